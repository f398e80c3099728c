/* portdown.c: what a queue pair sends while its port is down, or it has an alternate path
 * (alternate.c).
 *
 * The paths are the process', the port is the device's: so each queue pair knows the state of its
 * port. Packets that it sends are lost here, packets to it where the engine finds it (engine.c),
 * and the board shows peers that it grants no access (ibt_qp_access). The fast paths test nothing:
 * quick_qpns is 0 meanwhile.
 *
 * In:    packets of the requester and the responder    Out: PKT_ABSENT
 * Runs:  the poster; the thread that receives    Locks: sq_lock or rq_lock, the caller's
 */
#include <errno.h>

#include "ibt/send/portdown.h"

/* With MigReq 0. */
static int portdown_mark(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
{
	struct pkt marked = *p;

	marked.unmigrated = true;
	return qp->dest->path->ops->send(qp->dest, &marked, iov, n);
}

int portdown_request(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
{
	if (!qp_port_is_down(qp))
		return portdown_mark(qp, p, iov, n);
	/* as a path says that leads nowhere */
	qp_count(qp, COUNT_PORT_DOWN);
	qp_count_discard(qp);
	return -ENETUNREACH;
}

int portdown_lose(struct ibt_qp *qp)
{
	path_count(qp->ibt->paths[0], COUNT_PORT_DOWN);
	qp_count_discard(qp);
	return 0;
}

int portdown_keep(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
{
	struct pkt absent = { .opcode = PKT_ABSENT,
			      .qp_type = p->qp_type,
			      .dqpn = p->dqpn,
			      .sqpn = p->sqpn,
			      .psn = p->psn };

	if (!qp_port_is_down(qp))
		return portdown_mark(qp, p, iov, n);
	qp_count(qp, COUNT_PORT_DOWN);
	qp_count_discard(qp);
	if (qp->lossy || !pkt_is_reliable(p->qp_type))
		return -ENETUNREACH;
	return qp->dest->path->ops->send(qp->dest, &absent, NULL, 0);
}
