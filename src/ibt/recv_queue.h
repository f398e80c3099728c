/* recv_queue.h: receive requests: taken by a message, filled, completed, flushed. */
#ifndef IBT_RECV_QUEUE_H
#define IBT_RECV_QUEUE_H

#include "ibt/ibt_qp.h"

/* Takes a receive request for the message in progress, of the queue pair or of its SRQ; points the
 * cursor at its first byte. False: there is none. */
bool rq_take(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Completes resp.current. `p` is the message's last packet; only a success reads it. `length`:
 * bytes. Without room in the CQ the queue pair is to fail: rq_overflowed. */
void rq_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
	REQUIRES(qp->resp.rq_lock);
/* Has a completion found no room in the CQ? Says so once. */
bool rq_overflowed(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
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

#endif
