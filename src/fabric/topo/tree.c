/* tree.c: a star, and fat trees of two and three levels.
 * In:    dimensions        Out: switches, hosts, cables
 * Runs:  its caller        Locks: none
 */
#include <errno.h>

#include "fabric/topo/topo_priv.h"

int topo_make_star(struct topo_spec *s)
{
	u32 hub;
	int err = topo_spec_switch(s, MAX(s->dim[0], s->radix), &hub, "leaf1");

	for (u32 i = 1; err == 0 && i <= s->dim[0]; i++)
		err = topo_spec_host(s, hub, i);
	return err;
}
