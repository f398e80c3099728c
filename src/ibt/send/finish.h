/* finish.h: how send requests end, one by one or with their queue pair. */
#ifndef IBT_SEND_FINISH_H
#define IBT_SEND_FINISH_H

#include "ibt/ibt_qp.h"

/* Completes the oldest request with success. Without room in the CQ the queue pair fails. */
void finish_request(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock);
/* The same for a READ or an atomic. */
void finish_answered(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock);
/* Completes everything up to and with `psn`; an unanswered READ or atomic holds up what follows it.
 * False: there was nothing. */
bool finish_up_to(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock);
/* Completes the oldest request with an error; the queue pair moves to ERR (RC, or no room in the
 * CQ) or SQE. Takes rq_lock. */
void finish_with_error(struct ibt_qp *qp, enum ibv_wc_status status) REQUIRES(qp->req.sq_lock);
/* Completes all requests with WR_FLUSH_ERR; the first with RETRY_EXC_ERR if the peer's death owes
 * that. */
void finish_flush(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* SQD: raises SQ_DRAINED if the last request before the stop is done and the consumer wants it. */
void finish_drain(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Moves to ERR and flushes both queues; nothing in ERR and RESET. Takes rq_lock. Callers without
 * sq_lock: sched_fail. */
void finish_qp(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* The same because a completion has found no room in the send CQ: raises QP_FATAL, too. */
void finish_overflowed(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* As finish_qp for a caller that holds both locks, in any state. */
void finish_both(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock);

#endif
