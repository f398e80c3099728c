/* retry.c: responses of an RC connection's peer, and their absence, over a path that loses or
 * reorders packets.
 *
 * An acknowledgement, a response or a NAK that shows a gap makes the requester retransmit from the
 * oldest packet at once. After silence a probe, the oldest packet, is sent after a time that
 * follows the RTT, long before the Local ACK Timeout. The request fails when (retry_cnt + 1)
 * timeouts have passed without a response, and the path was polled since. An unneeded probe, to a
 * slow peer, costs one packet.
 *
 * In:    ACK, NAK, responses, the timer
 * Out:  completions, the caller's memory, the stream set back
 * Runs:  the thread that receives or runs timers    Locks: sq_lock, then the CQ's
 * Spec:  IBA vol 1, 9.7.5, 9.7.6 (responses, implied NAK), 9.9.2
 */
#include "base/clock.h"
#include "ibt/lossy/cnp.h"
#include "ibt/send/completer.h"
#include "ibt/send/finish.h"
#include "ibt/migrate/alternate.h"
#include "ibt/receive/opcode.h"
#include "ibt/lossy/rate.h"
#include "ibt/lossy/retry.h"
#include "ibt/lossy/rto.h"
#include "ibt/lossy/stream.h"
#include "ibt/lossy/window.h"

enum {
	RETRY_BACKOFFS = 12,
	/* so many in a row: the path is to send packets one by one (distrust) */
	RETRY_SINGLE_STEPS = 6,
	RETRY_FROZEN_US = 4000, /* later than this, no thread has run the timer */
	RETRY_LOOK_US = 1000, /* from one question whether the path is empty to the next */
};

static bool retry_awaits(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return (s32)(qp->req.stream.top - stream_front(qp)) > 0;
}

/* Of what was sent together nothing has come, but for one packet at most. A peer that was only
 * asleep has it all. */
static void retry_single_step(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	if (++qp->req.stream.single_steps < RETRY_SINGLE_STEPS)
		return;
	qp->req.stream.single_steps = 0;
	if (qp->dest->path->ops->batches_lost != NULL)
		qp->dest->path->ops->batches_lost(qp->dest);
}

/* The peer's response was new. */
static void retry_heard(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;

	s->heard_ns = clock_now_ns();
	if (likely(s->backoff == 0 && !s->probe))
		return;
	/* The peer had nothing of what came after the probe. */
	if (s->probe && s->una == s->probe_psn + 1 && s->una != s->top) {
		window_cut(qp, s->srtt_us, s->heard_ns);
		retry_single_step(qp);
	}
	s->backoff = 0;
	s->probe = s->probed = false;
	window_count_probe(qp);
	if (qp->req.waiting == WAIT_NONE)
		rto_arm(qp, s->heard_ns + rto_after_ns(qp));
}

static void retry_go_back(struct ibt_qp *qp, u64 now_ns, bool probe) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;
	u64 rtt_ns = s->rtt_ns;

	s->resent_ns = now_ns;
	s->probe = probe;
	s->probed = false;
	s->probe_psn = stream_front(qp);
	/* Two probes without a response may be a loss. Later ones prove nothing more, since a dead
	 * queue pair never responds, and the window is shared. */
	if (!probe || (s->backoff == 2 && s->srtt_us != 0))
		window_cut(qp, s->srtt_us, now_ns);
	stream_rewind(qp);
	s->rtt_ns = rtt_ns;
	s->rtt_ambiguous = true;
	if (!probe)
		s->ambiguous_run = 0;
}

/* A process that did not run (stopped, its machine frozen or too busy) could neither receive nor
 * retransmit: such time does not count against the peer. */
static void retry_discount_frozen(struct ibt_qp *qp, u64 now) REQUIRES(qp->req.sq_lock)
{
	if (now > qp->req.timer.deadline_ns + RETRY_FROZEN_US * NS_PER_US)
		qp->req.stream.heard_ns += now - qp->req.timer.deadline_ns;
}

/* A part of an incomplete response is a sign of life as well. It is checked here only, so that it
 * costs no packet anything. */
static void retry_look_for_answers(struct ibt_qp *qp, u64 now) REQUIRES(qp->req.sq_lock)
{
	u32 number = stream_front(qp);

	if (number != qp->req.stream.front_seen && qp->req.rx_offset != 0)
		qp->req.stream.heard_ns = now;
	qp->req.stream.front_seen = number;
}

/* The retry budget has ended. The receiving thread may not have run for as long, though timers ran:
 * then the response may lie unread in the path. So the path must be found empty first, by a poll
 * that begins later: the second from now on. With a limit, since a flooded path is never empty. */
static bool retry_is_over(struct ibt_qp *qp, u64 now, u64 end) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;
	struct path *path = qp->dest->path;
	u32 emptied = (u32)path_emptied(path);

	if (s->end_ns != end) {
		s->end_ns = end;
		s->emptied = emptied;
	}
	if (emptied - s->emptied >= 2 ||
	    now - end >= MAX(rto_budget_ns(qp), RTO_MOST_MS * NS_PER_MS))
		return true;
	if (path->ops->want_look != NULL)
		path->ops->want_look(path);
	return false;
}

/* Nothing has come for a while: again, or enough. */
static void retry_late(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;
	u64 now = clock_now_ns(), budget = rto_budget_ns(qp), next, end;

	retry_discount_frozen(qp, now);
	retry_look_for_answers(qp, now);
	end = budget == 0 ? TIMER_NEVER : s->heard_ns + budget;
	if (now >= end) {
		if (retry_is_over(qp, now, end) && !alternate_begins(qp))
			finish_with_error(qp, IBV_WC_RETRY_EXC_ERR);
		else
			rto_arm(qp, now + RETRY_LOOK_US * NS_PER_US);
		return;
	}
	next = MAX(s->heard_ns, s->resent_ns) + rto_after_ns(qp);
	if (now >= next) {
		/* the first time it may be that one of the two did not run */
		if (s->backoff != 0 && qp->dest->path->ops->peer_silent != NULL)
			qp->dest->path->ops->peer_silent(qp->dest);
		retry_go_back(qp, now, true);
		s->backoff = MIN(s->backoff + 1, RETRY_BACKOFFS);
		next = now + rto_after_ns(qp);
	}
	rto_arm(qp, MIN(next, end));
}

void retry_timer(struct ibt_qp *qp)
{
	struct stream *s = &qp->req.stream;

	if (!qp_sends(qp))
		return;
	if (qp->req.waiting == WAIT_RNR) {
		s->heard_ns = clock_now_ns();
		if (s->heard_ns < s->rnr_ns) {
			rto_arm(qp, s->rnr_ns);
			return;
		}
		qp->req.waiting = WAIT_NONE;
	}
	s->timing = retry_awaits(qp);
	if (s->timing)
		retry_late(qp);
	if (qp_sends(qp))
		qp_mark_runnable(qp);
}

/* ---- acknowledgements ---- */

/* Completes executed requests, up to a READ or atomic without a response. */
static void retry_retire(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	while (qp->req.tail != qp->req.head && qp_sends(qp)) {
		struct send_wqe *w = sq_at(qp, qp->req.tail);

		if (w->psn_count == 0 || wqe_is_answered_op(w) ||
		    (s32)(qp->req.stream.una - w->first_psn - w->psn_count) < 0)
			break;
		finish_request(qp, w);
	}
	if (likely(qp_sends(qp)))
		stream_settle(qp);
}

/* Everything before `number` has been executed. */
static void retry_executed(struct ibt_qp *qp, u32 number) REQUIRES(qp->req.sq_lock)
{
	if ((s32)(number - qp->req.stream.una) <= 0)
		return;
	if (number - qp->req.stream.una > 1 || number == qp->req.stream.top)
		qp->req.stream.single_steps = 0;
	qp->req.stream.una = number;
	qp->req.rnr_left = qp->attr.rnr_retry;
	retry_heard(qp);
	rto_measure(qp);
	retry_retire(qp);
}

/* The oldest packet is missing, though later ones have arrived. Once per gap and RTT: packets that
 * were in flight at the retransmission report the same gap again. */
static void retry_gap(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;
	u32 front = stream_front(qp);
	u64 now = clock_now_ns();

	if (qp->req.waiting != WAIT_NONE || !retry_awaits(qp))
		return;
	if (front == s->gap && now - s->resent_ns < 2 * MAX(s->srtt_us, 50u) * NS_PER_US)
		return;
	s->gap = front;
	/* requests for READs and atomics go alone */
	if (!wqe_is_answered_op(sq_at(qp, qp->req.tail)))
		retry_single_step(qp);
	retry_go_back(qp, now, false);
}

/* Has the peer passed by a READ or atomic whose answer has not come? IBA vol 1, 9.7.6 (implied
 * NAK). */
static bool retry_is_passed_by(const struct ibt_qp *qp, u32 number) REQUIRES(qp->req.sq_lock)
{
	const struct send_wqe *w = sq_at(qp, qp->req.tail);

	return retry_awaits(qp) && wqe_is_answered_op(w) && (s32)(number - stream_front(qp)) >= 0;
}

static void retry_rnr(struct ibt_qp *qp, u32 number, u8 code) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;

	if (qp->req.waiting != WAIT_NONE || (s32)(number - s->una) < 0)
		return;
	if (qp->attr.rnr_retry != 7 && qp->req.rnr_left == 0) {
		/* As in retry_refused; the NAK will be repeated. */
		if ((s32)(number - stream_front(qp)) > 0)
			retry_gap(qp);
		else
			finish_with_error(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	qp->req.rnr_left -= qp->attr.rnr_retry != 7;
	retry_heard(qp);
	stream_rewind(qp);
	qp->req.waiting = WAIT_RNR;
	s->rnr_ns = s->heard_ns + comp_rnr_ns(code);
	rto_arm(qp, s->rnr_ns);
}

/* The peer refuses a request: that one fails, and not an earlier READ or atomic whose response is
 * lost. Such a response is requested again first; a failed peer does not send it, and the timeout
 * ends the request. IBA vol 1, 9.7.6, 9.9.2. */
static void retry_refused(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;

	if (likely(s->refusal == 0) || !qp_sends(qp) || !retry_awaits(qp))
		return;
	if ((s32)(s->refused - stream_front(qp)) > 0)
		retry_gap(qp);
	else
		comp_fatal_nak(qp, s->refusal);
}

/* An error may concern a READ with a partial response; other late packets are ignored. */
static void retry_nak(struct ibt_qp *qp, u32 number, u8 code) REQUIRES(qp->req.sq_lock)
{
	bool late = (s32)(number - qp->req.stream.una) < 0;

	if (late && (code == NAK_PSN_SEQUENCE || !retry_awaits(qp) ||
		     (s32)(number - sq_at(qp, qp->req.tail)->first_psn) < 0)) {
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
		return;
	}
	if (code == NAK_PSN_SEQUENCE) {
		retry_gap(qp);
		return;
	}
	if (!comp_is_fatal_nak(code)) {
		path_count(qp->dest->path, COUNT_RX_OPCODE);
		return;
	}
	qp->req.stream.refusal = code;
	qp->req.stream.refused = number;
}

static void retry_ack(struct ibt_qp *qp, const struct pkt *p, u32 number) REQUIRES(qp->req.sq_lock)
{
	bool positive = (p->syndrome & 0xe0) == 0;
	bool fresh = (s32)(number + positive - qp->req.stream.una) > 0;

	retry_executed(qp, number + positive);
	if (!qp_sends(qp))
		return;
	if (positive && fresh && retry_is_passed_by(qp, number))
		retry_gap(qp);
	else if ((p->syndrome & 0xe0) == AETH_RNR)
		retry_rnr(qp, number, p->syndrome & 31);
	else if ((p->syndrome & 0xe0) == AETH_NAK)
		retry_nak(qp, number, p->syndrome & 31);
	else if (!fresh)
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
}

/* ---- responses ---- */

/* Returns the oldest request, if this is the next packet of its response. */
static struct send_wqe *retry_front_answer(struct ibt_qp *qp, u32 number) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = sq_at(qp, qp->req.tail);

	return retry_awaits(qp) && wqe_is_answered_op(w) && number == stream_front(qp) ? w : NULL;
}

/* The same, once the response has acknowledged everything before it. */
static struct send_wqe *retry_answered(struct ibt_qp *qp, u32 number) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;
	struct send_wqe *w = retry_front_answer(qp, number);

	if (likely(w != NULL && s->rtt_ns == 0)) {
		s->una = (s32)(number + 1 - s->una) > 0 ? number + 1 : s->una;
		return w;
	}
	retry_executed(qp, number + 1);
	if (!qp_sends(qp) || !retry_awaits(qp))
		return NULL;
	w = retry_front_answer(qp, number);
	if (w != NULL)
		return w;
	path_count(qp->dest->path, COUNT_RX_DUPLICATE);
	if (retry_is_passed_by(qp, number))
		retry_gap(qp);
	return NULL;
}

/* `bytes` more of the response have come. */
static void retry_answer_taken(struct ibt_qp *qp, struct send_wqe *w, u32 bytes)
	REQUIRES(qp->req.sq_lock)
{
	u32 segment = (u32)qp->req.stream.segment << (qp->psn_shift + w->stretch);
	bool all, behind;

	qp->req.rx_offset += bytes;
	all = qp->req.rx_offset == w->length;
	behind = (s32)(stream_front(qp) - qp->req.psn) > 0;
	if (unlikely(qp->req.stream.backoff != 0))
		retry_heard(qp);
	if (!all && qp->req.rx_offset % segment != 0 && !behind)
		return;
	if (all || qp->req.rx_offset % segment == 0)
		qp->req.reads_out -= MIN(qp->req.reads_out, 1u);
	if (all) {
		w->answered = true;
		qp->req.rx_offset = 0;
		finish_answered(qp, w);
	}
	if (!qp_sends(qp))
		return;
	retry_heard(qp);
	/* What was executed after it has been waiting for it. */
	retry_retire(qp);
}

static void retry_scatter(struct ibt_qp *qp, struct send_wqe *w, const void *data, u32 n)
	REQUIRES(qp->req.sq_lock)
{
	if (comp_scatter(qp, w, data, n) != 0)
		finish_with_error(qp, IBV_WC_LOC_PROT_ERR);
	else
		retry_answer_taken(qp, w, n);
}

/* The READ was requested in segments, each of which has a response of its own. IBA vol 1, 9.9.2.4
 * (bad response). */
static bool retry_is_response(const struct ibt_qp *qp, const struct send_wqe *w,
			      const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	u32 offset = qp->req.rx_offset, end = offset + p->length;
	u32 segment = (u32)qp->req.stream.segment << (qp->psn_shift + w->stretch);

	return (w->opcode == IBV_WR_RDMA_READ || wqe_is_confirmed_op(w)) &&
	       p->length == MIN(w->length - offset, qp_packet_bytes(qp)) &&
	       opcode_fits_answer(p->opcode, offset % segment == 0,
				  end == w->length || end % segment == 0);
}

static void retry_read_answer(struct ibt_qp *qp, const struct pkt *p, u32 number,
			      const void *payload) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = retry_answered(qp, number);

	/* A requester that asks slowly is answered slowly, whatever the peer does with CNPs. */
	if (unlikely(cnp_is_marked(p))) {
		path_count(qp->dest->path, COUNT_RX_MARKED);
		rate_cut(qp);
	}
	if (w == NULL)
		return;
	if (!retry_is_response(qp, w, p))
		finish_with_error(qp, IBV_WC_BAD_RESP_ERR);
	else
		retry_scatter(qp, w, payload, p->length);
}

static void retry_atomic_answer(struct ibt_qp *qp, const struct pkt *p, u32 number)
	REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = retry_answered(qp, number);

	if (w == NULL)
		return;
	if (w->opcode == IBV_WR_RDMA_READ || wqe_is_confirmed_op(w))
		finish_with_error(qp, IBV_WC_BAD_RESP_ERR);
	else
		retry_scatter(qp, w, &p->swap, sizeof(p->swap));
}

void retry_receive(struct ibt_qp *qp, const struct pkt *p, const void *payload)
{
	u32 number = qp->req.stream.una + (u32)psn_ahead(p->psn, qp->req.stream.una);

	if (!qp_sends(qp)) {
		path_count(qp->dest->path, COUNT_RX_NOT_RECEIVING);
		return;
	}
	if ((s32)(number - qp->req.stream.top) >= 0) {
		path_count(qp->dest->path, COUNT_RX_PSN);
		return;
	}
	switch (p->opcode) {
	case PKT_ACK:
		retry_ack(qp, p, number);
		break;
	case PKT_ATOMIC_ACK:
		retry_atomic_answer(qp, p, number);
		break;
	case PKT_ABSENT:
	case PKT_CNP:
		path_count(qp->dest->path, COUNT_RX_OPCODE);
		break;
	default:
		retry_read_answer(qp, p, number, payload);
		break;
	}
	retry_refused(qp);
	if ((qp->req.next != qp->req.head || qp->req.draining) && qp_sends(qp))
		qp_mark_runnable(qp);
}
