/* timeout.c: the waits of a requester on a reliable path: RNR, the Local ACK Timeout, room for a
 * datagram; and the step back that ends them.
 * In:    NAK, PKT_ABSENT, the timer    Out: a runnable queue pair, or a failed request
 * Runs:  the thread that receives or runs timers    Locks: sq_lock
 * Spec:  IBA vol 1, 9.7.5.2.8 (RNR NAK), 9.7.6.1.3 (retry)
 */
#include "base/clock.h"
#include "ibt/send/finish.h"
#include "ibt/send/timeout.h"

/* Local ACK Timeout 0 has no limit; the request is still tried again, for a reliable path loses
 * nothing else. */
enum { TIMEOUT_FOREVER_MS = 500 };

/* Executed, its response in flight. */
static bool timeout_is_executed(const struct send_wqe *w, u32 psn)
{
	return wqe_is_answered_op(w) && psn_ahead(w->first_psn + w->psn_count - 1, psn) < 0;
}

void timeout_rewind(struct ibt_qp *qp, u32 psn)
{
	u32 from = qp->req.tail;

	path_count(qp->dest->path, COUNT_TX_RETRY);
	while (from != qp->req.next && timeout_is_executed(sq_at(qp, from), psn))
		from++;
	if (from != qp->req.next || qp->req.tx_offset != 0)
		qp->req.psn = sq_at(qp, from)->first_psn;
	if (from == qp->req.tail)
		qp->req.rx_offset = 0;
	qp->req.next = from;
	qp->req.tx_offset = 0;
	qp->req.reads_out = from - qp->req.tail;
}

void timeout_arm(struct ibt_qp *qp, enum wait_reason why, u64 delay_ns)
{
	qp->req.waiting = (u8)why;
	qp->req.progressed = false;
	if (timer_arm(qp->ibt->cfg.timers, &qp->req.timer, clock_now_ns() + delay_ns))
		qp->ibt->cfg.kick(qp->ibt->cfg.arg);
}

void timeout_begin(struct ibt_qp *qp)
{
	u64 timeout = qp->attr.timeout == 0 ? TIMEOUT_FOREVER_MS * NS_PER_MS
					    : 4096ull << (qp->attr.timeout & 31);

	if (qp->req.waiting != WAIT_TIMEOUT)
		timeout_arm(qp, WAIT_TIMEOUT, timeout);
}

/* What the timer was armed for has not come, or the wait is over. */
void timeout_over(struct ibt_qp *qp)
{
	enum wait_reason why = (enum wait_reason)qp->req.waiting;

	qp->req.waiting = WAIT_NONE;
	if (why >= WAIT_ROOM) {
		if (why == WAIT_ROOM && qp->req.blocked_on != NULL)
			path_set_drops_when_full(qp->req.blocked_on, true);
		qp->req.member_timed_out |= why == WAIT_MEMBER;
		qp_mark_runnable(qp);
	} else if (why != WAIT_NONE && qp_sends(qp)) {
		/* A timeout during which another request completed uses up no retry. */
		bool counts = why == WAIT_TIMEOUT && qp->attr.timeout != 0 && !qp->req.progressed;

		if (counts && qp->req.retry_left == 0) {
			finish_with_error(qp, IBV_WC_RETRY_EXC_ERR);
		} else {
			qp->req.retry_left -= counts;
			if (why == WAIT_TIMEOUT)
				timeout_rewind(qp, sq_at(qp, qp->req.tail)->first_psn);
			qp_mark_runnable(qp);
		}
	}
}
