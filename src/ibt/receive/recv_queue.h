/* recv_queue.h: receive requests: taken by a message, filled, completed, flushed. */
#ifndef IBT_RECEIVE_RECV_QUEUE_H
#define IBT_RECEIVE_RECV_QUEUE_H

#include "ibt/ibt_qp.h"

/* The rest of rq_take, with an SRQ. */
bool rq_take_shared(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Completes resp.current. `p` is the message's last packet; only a success reads it. `length`:
 * bytes. Without room in the CQ the queue pair is to fail: AFTER_FAIL. */
void rq_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
	REQUIRES(qp->resp.rq_lock);
/* What is left to do once rq_lock is released, enum resp_after. Says so once. */
static inline u8 rq_after(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	u8 after = qp->resp.after;

	if (unlikely(after != 0))
		qp->resp.after = 0;
	return after;
}
/* Completes the message in progress and all receive requests of the queue pair with
 * WR_FLUSH_ERR; those of an SRQ stay. */
void rq_flush(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Copies n bytes of payload behind those that resp.current has. A fault completes it with an error
 * and gives the verdict. */
enum resp_verdict rq_scatter(struct ibt_qp *qp, const void *payload, u32 n)
	REQUIRES(qp->resp.rq_lock);
/* Completes resp.current with the error that -EMSGSIZE (too short) or another errno (protection)
 * means, and gives the verdict. */
enum resp_verdict rq_fail(struct ibt_qp *qp, int err) REQUIRES(qp->resp.rq_lock);
/* Takes a receive request for the message in progress, of the queue pair or of its SRQ; points the
 * cursor at its first byte. False: there is none, or the SRQ matches tags (tm_take). A request that
 * is taken already is filled from its beginning again: UC, where the message broke off, and a
 * pulled message that is sent anew. */
static inline bool rq_take(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	if (unlikely(qp->srq != NULL))
		return rq_take_shared(qp);
	if (likely(qp->resp.current == NULL)) {
		if (qp->resp.tail == qp->resp.head)
			return false;
		qp->resp.current = wqe_recv_at(&qp->resp.ring, qp->resp.tail);
	}
	qp->resp.cursor = (struct mem_cursor){ .sge = qp->resp.current->sge,
					       .count = qp->resp.current->sge_count };
	return true;
}

#endif
