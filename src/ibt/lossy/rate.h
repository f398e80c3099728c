/* rate.h: how fast a queue pair sends after a notification of congestion. */
#ifndef IBT_LOSSY_RATE_H
#define IBT_LOSSY_RATE_H

#include "ibt/ibt_qp.h"

/* The peer reports congestion: reduces the rate, once per RTT; creates it the first time. Without
 * memory for it the window is cut instead. */
void rate_cut(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Reduces the rate of answers to READs, if any were sent since the last time. `way_us`: the RTT, or
 * 0. */
void rate_cut_answers(struct ibt_qp *qp, u32 way_us) REQUIRES(qp->resp.rq_lock);
/* Must the next packet wait? qp->req.rate is not NULL. Then the timer marks the queue pair runnable
 * when it may go. */
bool rate_must_wait(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Will the next packet wait once `cost` (window_cost) has been sent? qp->req.rate is not NULL. */
bool rate_pauses_after(struct ibt_qp *qp, u32 cost) REQUIRES(qp->req.sq_lock);
/* Charges `cost` that was sent after rate_must_wait said no. qp->req.rate is not NULL. */
void rate_charge(struct ibt_qp *qp, u32 cost) REQUIRES(qp->req.sq_lock);
/* The same for answers. qp->resp.answer_rate is not NULL; its timer has the responder resume. */
bool rate_answer_must_wait(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
void rate_charge_answer(struct ibt_qp *qp, u32 cost) REQUIRES(qp->resp.rq_lock);
/* Do packets wait for the timer of the rate? */
bool rate_is_holding(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Ends pacing: the connection is reset. Keeps the memory. */
void rate_forget(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock);
/* Cancels both timers and waits for their callbacks. The queue pair is in RESET. May block. */
void rate_quiesce(struct ibt_qp *qp) EXCLUDES(qp->req.sq_lock) EXCLUDES(qp->resp.rq_lock);
/* Frees both rates; after rate_quiesce. */
void rate_destroy(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock);

/* The queue pair whose timer it is; of either rate. */
struct ibt_qp *rate_qp(struct timer *t);
/* The timer of qp->req.rate has expired: marks the queue pair runnable. */
void rate_expired(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* The timer of the rate of answers has expired: the caller sends them. */
void rate_answer_expired(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);

/* Must the next packet wait, if there is a rate at all? */
static inline bool rate_holds(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return unlikely(qp->req.rate != NULL) && rate_must_wait(qp);
}

#endif
