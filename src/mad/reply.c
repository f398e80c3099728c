/* reply.c: answers of the MAD layer itself: a driver's, RMPP's, or that nobody serves a request.
 * In:    received MADs, answers to them    Out: datagrams
 * Runs:  the port's queue                  Locks: mad_lock
 * Spec:  IBA vol 1, 13.5.4 (an answer goes back to where the request came from)
 */
#include <errno.h>

#include <rdma/ib_cache.h>

#include "mad/mad_priv.h"

static bool mad_reply_can_leave(struct mad_port *port)
{
	bool gone;

	lock_acquire(&mad_lock);
	gone = port->gone;
	lock_release(&mad_lock);
	return !gone;
}

/* `mad` is on its way out. */
static int mad_reply_send(struct mad_port *port, struct mad_message *to, const void *mad)
{
	const struct mad_port_config *cfg = &port->cfg;
	struct ib_ah_attr attr;
	struct mad_departure d = { .attr = &attr,
				   .remote_qpn = to->wc.src_qp,
				   .qkey = mad_port_qkey(port),
				   .pkey_index = to->wc.pkey_index,
				   .mad = mad };
	int err = ib_init_ah_from_wc(cfg->device, cfg->port_num, &to->wc, &to->grh, &attr);

	return err != 0 ? err : cfg->ops->send(cfg->arg, &d);
}

void mad_reply(struct mad_port *port, struct mad_message *to, void *mad)
{
	int err = -EINVAL;

	if (!mad_reply_can_leave(port))
		return;
	switch (mad_hop(port, mad, true)) {
	case MAD_HOP_HERE:
		mad_hop_here(port, mad);
		err = 0;
		break;
	case MAD_HOP_ON:
		err = mad_reply_send(port, to, mad);
		break;
	case MAD_HOP_DROP:
		break;
	}
	mad_count_one(err == 0 ? MAD_SENT : MAD_SEND_FAILED);
}
