/* cnp.c: notifies the sender of a connection of congestion (RoCEv2's notification point), and
 * receives the peer's notifications. rate.c reacts to them.
 *
 * In:    packets that a switch has marked (ECN: congestion experienced); PKT_CNP    Out: PKT_CNP
 * Runs:  the receiving thread    Locks: rq_lock to notify, both to be notified
 * Spec:  IBA annex A17 (congestion management)
 */
#include "base/clock.h"
#include "ibt/lossy/cnp.h"
#include "ibt/lossy/rate.h"
#include "ibt/send/portdown.h"

enum { CNP_LEAST_US = 50 /* between two of one queue pair */ };

void cnp_send(struct ibt_qp *qp)
{
	struct pkt p = { .opcode = PKT_CNP,
			 .dqpn = qp->dest_qpn,
			 .sqpn = qp->qpn };
	u64 now = clock_now_ns();

	path_count(qp->dest->path, COUNT_RX_MARKED);
	if (now - qp->resp.cnp_ns < CNP_LEAST_US * NS_PER_US)
		return;
	qp->resp.cnp_ns = now;
	/* A notification that finds no room is dropped: the next mark causes another. */
	if (portdown_answer(qp, &p, NULL, 0) != 0)
		return;
	path_count(qp->dest->path, COUNT_TX_CNP);
	qp->dest->path->ops->flush(qp->dest);
}

/* A CNP does not tell which packets were marked: requests, responses, or both. */
void cnp_receive(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p)
{
	lock_acquire(&qp->req.sq_lock);
	if (!qp->lossy || !qp_is_peer(qp, from, p)) {
		path_count(from->path, COUNT_RX_WRONG_PEER);
	} else {
		path_count(from->path, COUNT_RX_CNP);
		rate_cut(qp);
		lock_acquire(&qp->resp.rq_lock);
		rate_cut_answers(qp, qp->req.stream.srtt_us);
		lock_release(&qp->resp.rq_lock);
	}
	lock_release(&qp->req.sq_lock);
}
