/* grid.c: meshes and tori of one to four dimensions.
 *
 * A switch's port 2d + 1 leads up dimension d, port 2d + 2 down, on every switch alike, as
 * dimension-order routing wants it. Hosts follow.
 * In:    dimensions        Out: switches, hosts, cables
 * Runs:  its caller        Locks: none
 */
#include <errno.h>
#include <stdio.h>

#include "fabric/topo/topo_priv.h"

/* "sw2.0.1" of a place in the grid. */
static void grid_name(const struct topo_spec *s, u32 at, char name[64])
{
	int n = snprintf(name, 64, "sw");

	for (u32 d = 0; d < s->dims; d++) {
		n += snprintf(name + n, 64 - (size_t)n, d == 0 ? "%u" : ".%u", at % s->dim[d]);
		at /= s->dim[d];
	}
}

static int grid_switches(struct topo_spec *s, u32 count, u32 *first)
{
	u32 ports = MAX(s->radix, s->dims * 2 + s->hosts), node;
	char name[64];
	int err = 0;

	for (u32 i = 0; err == 0 && i < count; i++) {
		grid_name(s, i, name);
		err = topo_spec_switch(s, ports, &node, "%s", name);
		if (i == 0)
			*first = node;
	}
	return err;
}

/* The cable from place `at` to its neighbour up dimension d. */
static int grid_cable(struct topo_spec *s, u32 first, u32 at, u32 d, u32 stride, bool wrap)
{
	u32 size = s->dim[d], x = at / stride % size;
	u32 up = x + 1 < size ? at + stride : at - x * stride;

	/* around a ring of two there is the same neighbour again */
	if (x + 1 == size && (!wrap || size <= 2))
		return 0;
	return topo_spec_cable(s, first + at, 2 * d + 1, first + up, 2 * d + 2);
}

static int grid_make(struct topo_spec *s, bool wrap)
{
	u32 first = 0, stride = 1;
	u64 count = 1;
	int err;

	for (u32 d = 0; d < s->dims; d++)
		count = MIN(count * s->dim[d], (u64)TOPO_NODES_MAX + 1);
	if (count > TOPO_NODES_MAX)
		return -E2BIG;
	err = grid_switches(s, (u32)count, &first);
	for (u32 d = 0; d < s->dims; stride *= s->dim[d], d++)
		for (u32 i = 0; err == 0 && i < count; i++)
			err = grid_cable(s, first, i, d, stride, wrap);
	for (u32 i = 0; i < count; i++)
		for (u32 h = 1; err == 0 && h <= s->hosts; h++)
			err = topo_spec_host(s, first + i, s->dims * 2 + h);
	return err;
}

int topo_make_torus(struct topo_spec *s)
{
	return grid_make(s, true);
}

int topo_make_mesh(struct topo_spec *s)
{
	return grid_make(s, false);
}
