/* dragonfly.c: groups of switches: each switch is cabled to all others of its group, and each group
 * to all other groups.
 *
 * ROUTERSxHOSTSxGLOBAL[xGROUPS]: a group of ROUTERS switches with HOSTS hosts and GLOBAL cables to
 * other groups each; GROUPS is at most, and without it just, ROUTERS * GLOBAL + 1.
 * In:    dimensions        Out: switches, hosts, cables
 * Runs:  its caller        Locks: none
 */
#include <errno.h>

#include "fabric/topo/topo_priv.h"

static int dragonfly_group(struct topo_spec *s, u32 group, u32 ports)
{
	u32 routers = s->dim[0], node = 0, first = 0;
	int err = 0;

	for (u32 r = 0; err == 0 && r < routers; r++) {
		err = topo_spec_switch(s, ports, &node, "g%ur%u", group + 1, r + 1);
		if (r == 0)
			first = node;
	}
	/* ports behind the hosts: to router q of the same group, one's own left out */
	for (u32 r = 0; r < routers; r++)
		for (u32 q = r + 1; err == 0 && q < routers; q++)
			err = topo_spec_cable(s, first + r, s->dim[1] + q, first + q,
					      s->dim[1] + r + 1);
	return err;
}

/* The cable number `link` of a group leaves through router link / GLOBAL. */
static int dragonfly_global(struct topo_spec *s, u32 first, u32 a, u32 link_a, u32 b, u32 link_b)
{
	u32 routers = s->dim[0], global = s->dim[2], base = s->dim[1] + routers;

	return topo_spec_cable(s, first + a * routers + link_a / global, base + link_a % global,
			       first + b * routers + link_b / global, base + link_b % global);
}

int topo_make_dragonfly(struct topo_spec *s)
{
	u32 routers = s->dim[0], most = routers * s->dim[2] + 1;
	u32 groups = s->dims == 4 ? s->dim[3] : most, first = s->out->node_count;
	u32 ports = s->dim[1] + routers - 1 + s->dim[2];
	int err = 0;

	if (groups > most)
		return topo_spec_fail(s, "%u switches with %u cables reach %u groups at most",
				      routers, s->dim[2], most);
	if ((u64)groups * routers > TOPO_NODES_MAX)
		return -E2BIG;
	for (u32 g = 0; err == 0 && g < groups; g++)
		err = dragonfly_group(s, g, MAX(ports, s->radix));
	/* between a and b: a's cable to the b - a - 1st group behind it */
	for (u32 a = 0; a < groups; a++)
		for (u32 b = a + 1; err == 0 && b < groups; b++)
			err = dragonfly_global(s, first, a, b - 1, b, a);
	for (u32 i = 0; i < groups * routers; i++)
		for (u32 h = 1; err == 0 && h <= s->dim[1]; h++)
			err = topo_spec_host(s, first + i, h);
	return err;
}
