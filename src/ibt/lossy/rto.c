/* rto.c: the retransmission timeout of a connection over a path that loses packets: the measured
 * RTT, the Local ACK Timeout, and the timer.
 * In:    acknowledgements
 * Out:  the timer of the queue pair    Runs: the thread that runs the requester
 * Locks: sq_lock    Spec: IBA vol 1, 9.7.6.1.3; RFC 6298 (mean and deviation)
 */
#include "base/clock.h"
#include "ibt/lossy/rto.h"
#include "ibt/lossy/window.h"

enum {
	RTO_LEAST_US = 1000,
	RTO_FIRST_US = 10000, /* as long as nothing has been measured */
	RTO_TIMEOUT_LEAST_US = 4000,
	RTO_LONG_US = 150000,
	RTO_AMBIGUOUS_RUN = 16, /* measurements in a row of what was sent twice: one is believed */
};

/* The Local ACK Timeout; no shorter than a peer on a busy host needs. 0: none. */
static u64 rto_timeout_ns(const struct ibt_qp *qp)
{
	u64 ns = 4096ull << (qp->attr.timeout & 31);

	return qp->attr.timeout == 0 ? 0 : MAX(ns, RTO_TIMEOUT_LEAST_US * NS_PER_US);
}

/* Permitted silence of the peer. 0: without limit. */
u64 rto_budget_ns(const struct ibt_qp *qp)
{
	u64 timeout = rto_timeout_ns(qp);

	return (qp->attr.retry_cnt + 1ull) * timeout;
}

/* The RTT, with a margin. A measured RTT may be longer than the Local ACK Timeout: a timeout
 * before it would send everything in flight twice. The retry budget must last for two tries, and
 * for four where the RTT is ambiguous. */
static u64 rto_rtt_ns(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	const struct stream *s = &qp->req.stream;
	u64 timeout = rto_timeout_ns(qp);
	u64 ns = MAX(s->srtt_us + 4ull * s->rttvar_us, (u64)RTO_LEAST_US) * NS_PER_US;

	if (s->srtt_us == 0)
		ns = RTO_FIRST_US * NS_PER_US;
	if (timeout == 0)
		return ns;
	if (s->srtt_us != 0)
		timeout = MAX(timeout, rto_budget_ns(qp) / (s->srtt_ambiguous ? 4 : 2));
	return MIN(ns, timeout);
}

/* How long to wait before transmitting again. */
u64 rto_after_ns(const struct ibt_qp *qp)
{
	u64 limit = RTO_MOST_MS * NS_PER_MS, timeout = rto_timeout_ns(qp);
	u64 way = rto_rtt_ns(qp);

	if (timeout != 0)
		limit = MIN(limit, timeout);
	return MAX(way, MIN(way << qp->req.stream.backoff, limit));
}

void rto_arm(struct ibt_qp *qp, u64 deadline_ns)
{
	qp->req.stream.timing = true;
	if (timer_arm(qp->ibt->cfg.timers, &qp->req.timer, deadline_ns))
		qp->ibt->cfg.kick(qp->ibt->cfg.arg);
}

void rto_watch(struct ibt_qp *qp, u64 now_ns)
{
	qp->req.stream.heard_ns = now_ns != 0 ? now_ns : clock_now_ns();
	if (!qp->req.stream.timing)
		rto_arm(qp, qp->req.stream.heard_ns + rto_after_ns(qp));
}

/* Does this measurement replace all that were before? That of a retransmitted packet is
 * ambiguous: the first transmission may have been answered, then the RTT is as long as measured,
 * or the second, then it is shorter. It is taken if none is known yet and it is at most
 * RTO_LONG_US, and if many in a row were ambiguous though nothing was lost: an RTT that has
 * become longer than the timeout is never measured otherwise. The next one that is not ambiguous
 * replaces it. */
static bool rto_starts_anew(struct stream *s, u32 us)
{
	bool anew;

	s->ambiguous_run = s->rtt_ambiguous ? s->ambiguous_run + 1 : 0;
	if (s->rtt_ambiguous)
		anew = s->ambiguous_run >= RTO_AMBIGUOUS_RUN ||
		       (s->srtt_us == 0 && us <= RTO_LONG_US);
	else
		anew = s->srtt_us == 0 || s->srtt_ambiguous;
	if (anew) {
		s->srtt_ambiguous = s->rtt_ambiguous;
		s->ambiguous_run = 0;
	}
	return anew;
}

/* Mean and deviation as TCP has them, RFC 6298. */
void rto_measure(struct ibt_qp *qp)
{
	struct stream *s = &qp->req.stream;
	u32 us, off;

	if (s->rtt_ns == 0 || ((s32)(s->una - s->rtt_psn) <= 0 && !s->rtt_ambiguous))
		return;
	us = MAX((u32)MIN((s->heard_ns - s->rtt_ns) / NS_PER_US, 1000000ull), 1u);
	s->rtt_ns = 0;
	if (unlikely(s->srtt_us == 0 || s->rtt_ambiguous || s->srtt_ambiguous)) {
		if (rto_starts_anew(s, us)) {
			s->srtt_us = us;
			s->rttvar_us = us / (s->srtt_ambiguous ? 16 : 2);
		}
		return;
	}
	s->ambiguous_run = 0;
	off = us > s->srtt_us ? us - s->srtt_us : s->srtt_us - us;
	s->rttvar_us = (3 * s->rttvar_us + off) / 4;
	s->srtt_us = MAX((7 * s->srtt_us + us) / 8, 1u);
	window_measured(qp, us);
}
