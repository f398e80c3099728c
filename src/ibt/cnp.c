/* cnp.c: tells an RC sender that its packets meet congestion on their way (RoCEv2's notification
 * point). What the sender does then is window_cut.
 *
 * In:    packets that a switch has marked (ECN: congestion experienced)    Out: PKT_CNP
 * Runs:  whoever receives    Locks: rq_lock    Spec: IBA annex A17, 17.9 (congestion management)
 */
#include "base/clock.h"
#include "ibt/ibt_priv.h"

enum { CNP_LEAST_US = 50 /* between two of one queue pair */ };

void cnp_send(struct ibt_qp *qp)
{
	struct pkt p = { .opcode = PKT_CNP,
			 .qp_type = IBV_QPT_RC,
			 .dqpn = qp->dest_qpn,
			 .sqpn = qp->qpn };
	u64 now = clock_now_ns();

	path_count(qp->dest->path, COUNT_RX_MARKED);
	if (now - qp->cnp_ns < CNP_LEAST_US * NS_PER_US)
		return;
	qp->cnp_ns = now;
	/* One that finds no room is not worth waiting for: the next mark says the same. */
	if (qp->dest->path->ops->send(qp->dest, &p, NULL, 0) != 0)
		return;
	path_count(qp->dest->path, COUNT_TX_CNP);
	qp->dest->path->ops->flush(qp->dest);
}
