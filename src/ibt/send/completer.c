/* completer.c: acknowledgements and responses of the peer, on a reliable path.
 * In: ACK, NAK, READ and atomic answers
 * Out: completions, the caller's memory, and a runnable queue pair
 * Runs: the receiving thread
 * Locks: sq_lock, then the CQ's
 * Spec: IBA vol 1, 9.7.5.2 (AETH), 9.7.6 (responses), 11.6.2 (statuses)
 */
#include <errno.h>

#include "base/clock.h"
#include "ibt/send/accord.h"
#include "ibt/send/completer.h"
#include "ibt/send/finish.h"
#include "ibt/receive/opcode.h"
#include "ibt/send/timeout.h"

/* RNR timer codes in units of 10 us; IBA vol 1, table 45. */
static const u32 comp_rnr_10us[32] = { 65536, 1,    2,	  3,	 4,	6,     8,     12,
				       16,    24,   32,	  48,	 64,	96,    128,   192,
				       256,   384,  512,  768,	 1024,	1536,  2048,  3072,
				       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

u64 comp_rnr_ns(u8 code)
{
	return (u64)comp_rnr_10us[code & 31] * 10 * NS_PER_US;
}

static void comp_progress(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	qp->req.retry_left = qp->attr.retry_cnt;
	qp->req.rnr_left = qp->attr.rnr_retry;
	qp->req.progressed = true;
	/* What a wait was begun for is still to be sent again when it ends: only if nothing is
	 * left does it end now. */
	if (unlikely(qp->req.waiting != WAIT_NONE) && qp->req.tail == qp->req.next &&
	    qp->req.tx_offset == 0) {
		qp->req.waiting = WAIT_NONE;
		timer_cancel(qp->ibt->cfg.timers, &qp->req.timer);
	}
}

/* As finish_up_to; what was completed is progress. */
static void comp_ack_up_to(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	if (finish_up_to(qp, psn))
		comp_progress(qp);
}

void comp_ack(struct ibt_qp *qp, u32 psn)
{
	comp_ack_up_to(qp, psn);
	if (qp->req.next != qp->req.head || qp->req.draining)
		qp_mark_runnable(qp);
}

/* Tells whether the peer has acknowledged past a READ or atomic without its response, which was
 * lost with the port: a reliable path keeps the order. IBA vol 1, 9.7.6 (implied NAK). */
static bool comp_is_passed_by(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	const struct send_wqe *w = sq_at(qp, qp->req.tail);
	u32 last = (w->first_psn + w->psn_count - 1) & PSN_MASK;

	return qp->req.tail != qp->req.next && wqe_is_answered_op(w) && psn_ahead(psn, last) > 0;
}

static void comp_rnr(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	if (qp->attr.rnr_retry != 7) {
		if (qp->req.rnr_left == 0) {
			if (comp_is_passed_by(qp, p->psn))
				timeout_begin(qp);
			else
				finish_with_error(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		qp->req.rnr_left--;
	}
	timeout_rewind(qp, p->psn);
	timeout_arm(qp, WAIT_RNR, comp_rnr_ns(p->syndrome));
}

bool comp_is_fatal_nak(u8 code)
{
	return code == NAK_INVALID_REQUEST || code == NAK_REMOTE_ACCESS ||
	       code == NAK_REMOTE_OPERATION;
}

void comp_fatal_nak(struct ibt_qp *qp, u8 code)
{
	finish_with_error(qp, code == NAK_INVALID_REQUEST ? IBV_WC_REM_INV_REQ_ERR
		      : code == NAK_REMOTE_ACCESS ? IBV_WC_REM_ACCESS_ERR
						  : IBV_WC_REM_OP_ERR);
}

/* Is the refusal that of a READ which came to the peer again, and which has completed since? The
 * peer goes on. */
static bool comp_is_over(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	return psn_ahead(psn, sq_at(qp, qp->req.tail)->first_psn) < 0;
}

/* The peer refuses the request with `psn`. Earlier READs and atomics without a response are
 * requested again, though a failed peer will not respond. */
static void comp_refused(struct ibt_qp *qp, u32 psn, u8 code) REQUIRES(qp->req.sq_lock)
{
	if (comp_is_over(qp, psn))
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
	else if (comp_is_passed_by(qp, psn))
		timeout_begin(qp);
	else
		comp_fatal_nak(qp, code);
}

/* The peer cannot read the memory that it had to pull, and has executed nothing from there on: the
 * rest is sent in packets, with other PSNs. Only once: a repeated report is older than those
 * packets. */
static void comp_renumber(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	bool refused = false;

	for (u32 i = qp->req.tail; i != qp->req.head && sq_at(qp, i)->psn_count != 0; i++) {
		struct send_wqe *w = sq_at(qp, i);

		refused |= w->pull && w->first_psn == psn;
		if (refused)
			w->psn_count = 0;
	}
}

static void comp_nak(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	switch (p->syndrome & 31) {
	case NAK_PSN_SEQUENCE:
		timeout_rewind(qp, p->psn);
		qp_mark_runnable(qp);
		break;
	case NAK_CANNOT_PULL:
		qp->req.no_pull = true;
		timeout_rewind(qp, p->psn);
		comp_renumber(qp, p->psn);
		qp_mark_runnable(qp);
		break;
	default:
		if (comp_is_fatal_nak(p->syndrome & 31))
			comp_refused(qp, p->psn, p->syndrome & 31);
		else
			path_count(qp->dest->path, COUNT_RX_OPCODE);
		break;
	}
}

/* Is it about anything that is outstanding? What another connection of the same two queue pairs has
 * left on the way, before they were reset, is not. */
static bool comp_concerns(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	return qp_has_outstanding(qp) &&
	       psn_ahead(psn, sq_at(qp, qp->req.tail)->first_psn) >= -1;
}

/* The peer counts other PSNs than we do, so it will never take what is outstanding, and a reliable
 * path has no other end of it than the timeout. The first word of that may also be what an earlier
 * connection has left on the way: its wait does not count, and if it was, there is no second. */
static void comp_contradicted(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	u32 number = sq_at(qp, qp->req.tail)->first_psn | COMP_CONTRADICTED;

	if (qp->req.waiting == WAIT_TIMEOUT)
		return;
	timeout_begin(qp);
	qp->req.progressed = qp->contradicted_psn != number;
	qp->contradicted_psn = number;
}

/* Has any request with this PSN been sent? Also if it is to be sent again now. */
static bool comp_has_sent(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	u32 i = qp->req.head;

	while (i != qp->req.tail && sq_at(qp, i - 1)->psn_count == 0)
		i--;
	if (i == qp->req.tail)
		return false;
	return psn_ahead(psn, sq_at(qp, i - 1)->first_psn + sq_at(qp, i - 1)->psn_count) < 0;
}

void comp_beyond(struct ibt_qp *qp, u32 psn)
{
	if (qp_has_outstanding(qp) && !comp_has_sent(qp, psn))
		comp_contradicted(qp);
}

/* Does the peer wait for what it has acknowledged once? */
static bool comp_is_behind(const struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	return p->syndrome == (AETH_NAK | NAK_PSN_SEQUENCE) && qp_has_outstanding(qp) &&
	       psn_ahead(p->psn, sq_at(qp, qp->req.tail)->first_psn) < 0;
}

static void comp_receive_ack(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	if ((p->syndrome & 0xe0) == 0) {
		comp_ack(qp, p->psn);
		return;
	}
	comp_ack_up_to(qp, (p->psn - 1) & PSN_MASK);
	if (unlikely(comp_is_behind(qp, p)))
		comp_contradicted(qp);
	else if (!comp_concerns(qp, p->psn))
		return;
	else if ((p->syndrome & 0xe0) == AETH_RNR)
		comp_rnr(qp, p);
	else if ((p->syndrome & 0xe0) == AETH_NAK)
		comp_nak(qp, p);
}

/* Returns the request that a response belongs to: the oldest one, once the response has
 * acknowledged everything before it. */
static struct send_wqe *comp_answered(struct ibt_qp *qp, const struct pkt *p)
	REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w;

	comp_ack_up_to(qp, (p->psn - 1) & PSN_MASK);
	if (qp->req.tail == qp->req.next)
		return NULL;
	w = sq_at(qp, qp->req.tail);
	return wqe_is_answered_op(w) && !w->answered ? w : NULL;
}

static void comp_answer_done(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	w->answered = true;
	qp->req.reads_out -= MIN(qp->req.reads_out, 1u);
	qp->req.rx_offset = 0;
	finish_answered(qp, w);
	comp_progress(qp);
	if (qp->req.next != qp->req.head || qp->req.draining)
		qp_mark_runnable(qp);
}

int comp_scatter(struct ibt_qp *qp, struct send_wqe *w, const void *data, u32 n)
{
	if (qp->req.rx_offset == 0)
		qp->req.rx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	return mem_scatter(qp->ibt->cfg.mem, qp->pd, &qp->req.rx_cursor, data, n);
}

static void comp_read_answer(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = comp_answered(qp, p);
	u32 expected;

	if (w == NULL || (w->opcode != IBV_WR_RDMA_READ && !wqe_is_confirmed_op(w)) ||
	    p->psn != ((w->first_psn + (qp->req.rx_offset >> qp->psn_shift)) & PSN_MASK)) {
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
		return;
	}
	expected = MIN(w->length - qp->req.rx_offset, qp_packet_bytes(qp));
	if (p->length != expected ||
	    !opcode_fits_answer(p->opcode, qp->req.rx_offset == 0,
				qp->req.rx_offset + p->length == w->length) ||
	    (w->opcode == IBV_WR_RDMA_READ && !accord_fits(qp, w->length))) {
		finish_with_error(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (comp_scatter(qp, w, payload, p->length) != 0) {
		finish_with_error(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	qp->req.rx_offset += p->length;
	if (qp->req.rx_offset == w->length)
		comp_answer_done(qp, w);
}

static void comp_atomic_answer(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = comp_answered(qp, p);

	if (w == NULL || w->opcode == IBV_WR_RDMA_READ || wqe_is_confirmed_op(w) ||
	    p->psn != w->first_psn) {
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
		return;
	}
	if (comp_scatter(qp, w, &p->swap, sizeof(p->swap)) != 0)
		finish_with_error(qp, IBV_WC_LOC_PROT_ERR);
	else
		comp_answer_done(qp, w);
}

/* Is the packet part of an answer as a READ has it, one that was asked for, also if it is to be
 * asked for again now? Mostly of the oldest request's. */
static bool comp_awaits_answer(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	for (u32 i = qp->req.tail; i != qp->req.head; i++) {
		const struct send_wqe *w = sq_at(qp, i);

		if (w->psn_count == 0)
			return false;
		if (((psn - w->first_psn) & PSN_MASK) < w->psn_count)
			return w->opcode == IBV_WR_RDMA_READ || wqe_is_confirmed_op(w);
	}
	return false;
}

/* Ignores responses that match no outstanding request. */
static bool comp_expects(const struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	if (p->opcode >= PKT_READ_FIRST && p->opcode <= PKT_READ_ONLY)
		return comp_awaits_answer(qp, p->psn);
	return psn_ahead(p->psn, qp->req.psn) < 0;
}

/* Acknowledges, or asks for, what has not been sent, or is to be sent again. */
static void comp_unexpected(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->req.sq_lock)
{
	if (p->opcode == PKT_ACK &&
	    ((p->syndrome & 0xe0) == 0 || p->syndrome == (AETH_NAK | NAK_PSN_SEQUENCE)))
		comp_beyond(qp, p->psn);
}

void comp_receive(struct ibt_qp *qp, const struct pkt *p, const void *payload)
{
	if (unlikely(!qp_sends(qp)))
		return; /* nothing is outstanding */
	if (unlikely(!comp_expects(qp, p))) {
		comp_unexpected(qp, p);
		return;
	}
	switch (p->opcode) {
	case PKT_ACK:
		comp_receive_ack(qp, p);
		break;
	case PKT_ATOMIC_ACK:
		comp_atomic_answer(qp, p);
		break;
	case PKT_ABSENT:
		/* PKT_ABSENT acknowledges no packet: those sent before the one that it names may
		 * have found the queue pair absent, too. */
		if (comp_concerns(qp, p->psn))
			timeout_begin(qp);
		break;
	case PKT_CNP:
		path_count(qp->dest->path, COUNT_RX_OPCODE);
		break;
	default:
		comp_read_answer(qp, p, payload);
		break;
	}
}
