/* sched.h: runs queue pairs that are marked runnable. */
#ifndef IBT_SCHED_H
#define IBT_SCHED_H

#include "ibt/lossy/window.h"

/* Runs the requester now; the mark is taken off. */
void sched_run(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Runs the queue pairs whose turn in the window of `dest` has come, at most SCHED_TURNS; drops the
 * reference. No lock is held. */
void sched_serve(struct path_dest *dest);
/* Moves the queue pair to ERR and flushes it: for the responder, which has released rq_lock. Takes
 * both locks. */
void sched_fail(struct ibt_qp *qp);
/* Deferred send work of the responder, which has released rq_lock: the READs of rendezvous that a
 * tag-matching SRQ has matched (AFTER_SEND). Takes sq_lock. */
void sched_send(struct ibt_qp *qp);
/* What requester.timer does: migrate_timer. NULL, or the path by which it is to move. */
struct path *sched_timer(struct timer *t);
/* The function of the timer of requester.rate. */
void sched_rate_timer(struct timer *t);

/* Runs the requester if the section has marked it: for one that releases sq_lock by itself, because
 * its path has no window. */
static inline void sched_run_marked(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	if (qp->req.runnable)
		sched_run(qp);
}

/* For what window_claim gave. No lock is held. */
static inline void sched_wake(struct path_dest *dest)
{
	if (unlikely(dest != NULL))
		sched_serve(dest);
}

/* Releases sq_lock, whose section may have marked the queue pair runnable or given back room in the
 * window: runs it first, and those whose turn has come afterwards. */
static inline void sched_leave(struct ibt_qp *qp) RELEASE(qp->req.sq_lock)
{
	struct path_dest *others = NULL;

	sched_run_marked(qp);
	if (qp->streams)
		others = window_claim(qp);
	lock_release(&qp->req.sq_lock);
	sched_wake(others);
}

#endif
