/* sched.c: runs queue pairs. Completer, retry, rate and timeout only mark one as runnable; the
 * thread that holds sq_lock runs it before it releases that (sched_leave), and afterwards the queue
 * pairs whose turn in the window has come.
 *
 * The responder never takes sq_lock while it holds rq_lock: its work for the requester is done
 * here, after it has released that (sched_fail, sched_send).
 *
 * In:    marks, timers, turns    Out: the requester runs
 * Runs:  the thread that posts, receives or runs timers
 * Locks:  sq_lock; none between two queue pairs
 */
#include "ibt/send/finish.h"
#include "ibt/migrate/alternate.h"
#include "ibt/lossy/rate.h"
#include "ibt/send/requester.h"
#include "ibt/lossy/retry.h"
#include "ibt/sched.h"
#include "ibt/send/timeout.h"
#include "ibt/tagged/tm_rndv.h"

enum { SCHED_TURNS = 4096 }; /* in one call */

void sched_run(struct ibt_qp *qp)
{
	qp->req.runnable = false;
	req_pump(qp);
}

void sched_serve(struct path_dest *dest)
{
	struct ibt_qp *qp;

	for (int i = 0; i < SCHED_TURNS && (qp = window_pop(dest->window)) != NULL; i++) {
		lock_acquire(&qp->req.sq_lock);
		sched_run(qp);
		lock_release(&qp->req.sq_lock);
		window_turn_over(dest->window, qp);
	}
	dest->path->ops->dest_put(dest);
}

void sched_fail(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	finish_qp(qp);
	sched_leave(qp);
}

void sched_send(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	tm_rndv_issue(qp);
	sched_leave(qp);
}

struct path *sched_timer(struct timer *t)
{
	struct ibt_qp *qp = container_of(t, struct ibt_qp, req.timer);
	struct path *path;

	lock_acquire(&qp->req.sq_lock);
	if (qp->streams)
		retry_timer(qp);
	else
		timeout_over(qp);
	path = alternate_take_due(qp);
	sched_leave(qp);
	return path;
}

void sched_rate_timer(struct timer *t)
{
	struct ibt_qp *qp = rate_qp(t);

	lock_acquire(&qp->req.sq_lock);
	rate_expired(qp);
	sched_leave(qp);
}
