/* random.c: a connected graph of switches, drawn from a seed: a tree, and half as many cables
 * again.
 * In:    dimensions, a seed        Out: switches, hosts, cables
 * Runs:  its caller                Locks: none
 */
#include <errno.h>
#include <stdlib.h>

#include "fabric/topo/topo_priv.h"

/* xorshift64*. */
static u32 random_below(u64 *state, u32 n)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (u32)((*state * 0x2545f4914f6cdd1dull) >> 33) % n;
}

/* A cable between the next free ports; nothing where there is none. */
static int random_cable(struct topo_spec *s, u32 a, u32 b, u32 *used, u32 ports)
{
	if (a == b || used[a] == ports || used[b] == ports)
		return 0;
	return topo_spec_cable(s, a, ++used[a], b, ++used[b]);
}

static int random_cables(struct topo_spec *s, u32 switches, u32 ports, u32 *used)
{
	u64 state = s->seed * 0x9e3779b97f4a7c15ull + 1;
	int err = 0;

	for (u32 i = 1; err == 0 && i < switches; i++) {
		u32 to = random_below(&state, i);

		while (used[to] == ports) /* the one before has one cable only */
			to = i - 1;
		err = random_cable(s, i, to, used, ports);
	}
	for (u32 i = 0; err == 0 && i < switches / 2; i++)
		err = random_cable(s, random_below(&state, switches),
				   random_below(&state, switches), used, ports);
	return err;
}

/* SWITCHESxHOSTS: hosts of each switch. */
int topo_make_random(struct topo_spec *s)
{
	u32 switches = s->dim[0], hosts = s->dim[1], node, ports = MAX(s->radix, hosts + 4);
	u32 *used;
	int err = 0;

	if (switches > TOPO_NODES_MAX)
		return -E2BIG;
	for (u32 i = 0; err == 0 && i < switches; i++)
		err = topo_spec_switch(s, ports, &node, "sw%u", i + 1);
	used = calloc(switches, sizeof(*used));
	if (used == NULL)
		return -ENOMEM;
	if (err == 0)
		err = random_cables(s, switches, ports - hosts, used);
	free(used);
	for (u32 i = 0; i < switches; i++)
		for (u32 h = 1; err == 0 && h <= hosts; h++)
			err = topo_spec_host(s, i, ports - hosts + h);
	return err;
}
