/* hop.c: directed-route SMPs: which leave the port, and which stay on this node. The port knows how
 * a hop is done.
 * In:    SMPs that leave or have arrived    Out: verdicts; arrivals
 * Runs:  consumers, the port's queue        Locks: none
 * Spec:  IBA vol 1, 14.2.2
 */
#include "mad/mad_priv.h"

enum { HOP_PERMISSIVE_LID = 0xffff };

enum mad_hop mad_hop_directed(const struct mad_port *port, void *smp, bool leaves)
{
	if (port->cfg.ops->hop == NULL)
		return MAD_HOP_DROP;
	return port->cfg.ops->hop(port->cfg.arg, smp, leaves);
}

void mad_hop_here(struct mad_port *port, const void *mad)
{
	struct mad_arrival a = { .slid = HOP_PERMISSIVE_LID,
				 .mad = mad,
				 .length = IB_MGMT_MAD_SIZE };

	mad_port_receive(port, &a);
}
