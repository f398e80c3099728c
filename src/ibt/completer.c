/* completer.c: acknowledgements and answers of the peer, and the completions of send requests.
 * In: ACK, NAK, READ and atomic answers
 * Out: completions, the caller's memory, and the requester set going again
 * Runs: whoever receives, or the requester for what is done at once
 * Locks: sq_lock, then the CQ's
 * Spec: IBA vol 1, 9.7.5.1 (AETH), 9.7.6 (completion), 11.6.2 (statuses)
 */
#include <errno.h>

#include "base/clock.h"
#include "ibt/ibt_priv.h"

static const u8 comp_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
};

/* RNR timer codes in units of 10 us; IBA vol 1, table 45. */
static const u32 comp_rnr_10us[32] = { 65536, 1,    2,	  3,	 4,	6,     8,     12,
				       16,    24,   32,	  48,	 64,	96,    128,   192,
				       256,   384,  512,  768,	 1024,	1536,  2048,  3072,
				       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

u64 comp_rnr_ns(u8 code)
{
	return (u64)comp_rnr_10us[code & 31] * 10 * NS_PER_US;
}

static bool comp_push(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status)
{
	struct cqe *e = cq_reserve(qp->send_cq);

	if (unlikely(!e))
		return false;
	cqe_set(e, w->wr_id, status, (enum ibv_wc_opcode)comp_opcodes[w->opcode], w->length,
		qp->qpn, 0, qp->owner);
	cq_commit(qp->send_cq, e, status != IBV_WC_SUCCESS);
	return true;
}

/* The oldest request leaves the queue. False: its CQ has overflowed. */
static bool comp_pop(struct ibt_qp *qp, struct send_wqe *w, enum ibv_wc_status status)
	REQUIRES(qp->sq_lock)
{
	bool room = true;

	if ((w->flags & IBV_SEND_SIGNALED) != 0 || status != IBV_WC_SUCCESS)
		room = comp_push(qp, w, status);
	if (status == IBV_WC_SUCCESS) {
		__atomic_store_n(&qp->counters->sent, qp->counters->sent + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&qp->counters->sent_bytes, qp->counters->sent_bytes + w->length,
				 __ATOMIC_RELAXED);
	} else {
		__atomic_fetch_add(&qp->counters->errors, 1, __ATOMIC_RELAXED);
	}
	/* Pairs with nothing: posters read it under the lock; the hint in status needs no order. */
	__atomic_store_n(&qp->sq_tail, qp->sq_tail + 1, __ATOMIC_RELAXED);
	return room;
}

void comp_retire(struct ibt_qp *qp, struct send_wqe *w)
{
	if (unlikely(!comp_pop(qp, w, IBV_WC_SUCCESS)))
		qp_fail_locked(qp);
}

void comp_flush_sq(struct ibt_qp *qp)
{
	enum ibv_wc_status first = qp->owes_retry_exc ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR;

	qp->waiting = WAIT_NONE;
	qp->tx_offset = 0;
	qp->rx_offset = 0;
	qp->reads_out = 0;
	if (qp->streams)
		window_leave(qp);
	if (qp->sq_tail != qp->sq_head) {
		qp->owes_retry_exc = false;
		comp_pop(qp, sq_at(qp, qp->sq_tail), first);
	}
	while (qp->sq_tail != qp->sq_head)
		comp_pop(qp, sq_at(qp, qp->sq_tail), IBV_WC_WR_FLUSH_ERR);
	qp->sq_next = qp->sq_tail;
}

void comp_fail(struct ibt_qp *qp, enum ibv_wc_status status)
{
	if (qp->sq_tail != qp->sq_head)
		comp_pop(qp, sq_at(qp, qp->sq_tail), status);
	if (qp->type == IBV_QPT_RC) {
		qp_fail_locked(qp);
		return;
	}
	lock_acquire(&qp->rq_lock);
	qp_set_state(qp, IBV_QPS_SQE);
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	lock_release(&qp->rq_lock);
	comp_flush_sq(qp);
}

void comp_check_drained(struct ibt_qp *qp)
{
	if (qp->state != IBV_QPS_SQD || qp->sq_tail != qp->sq_stop)
		return;
	qp->draining = false;
	if (qp->attr.en_sqd_async_notify)
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_SQ_DRAINED);
	qp->attr.sq_draining = 0;
}

static void comp_progress(struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	qp->retry_left = qp->attr.retry_cnt;
	qp->rnr_left = qp->attr.rnr_retry;
	qp->progressed = true;
	/* What a wait was begun for is still to be sent again when it ends: only if nothing is
	 * left does it end now. */
	if (unlikely(qp->waiting != WAIT_NONE) && qp->sq_tail == qp->sq_next &&
	    qp->tx_offset == 0) {
		qp->waiting = WAIT_NONE;
		timer_cancel(qp->ibt->cfg.timers, &qp->timer);
	}
}

/* Completes everything up to and with `psn`; an unanswered READ or atomic holds up what follows
 * it. */
static void comp_ack_up_to(struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock)
{
	bool any = false;

	while (qp->sq_tail != qp->sq_next) {
		struct send_wqe *w = sq_at(qp, qp->sq_tail);
		u32 last = (w->first_psn + w->psn_count - 1) & PSN_MASK;

		if (psn_ahead(last, psn) > 0 || (wqe_is_answered_op(w) && !w->answered))
			break;
		comp_retire(qp, w);
		any = true;
	}
	if (any)
		comp_progress(qp);
}

void comp_ack(struct ibt_qp *qp, u32 psn)
{
	comp_ack_up_to(qp, psn);
	if (qp->sq_next != qp->sq_head || qp->draining)
		req_pump(qp);
}

/* Has the peer passed by a READ or atomic whose answer has not come? It was lost with the port, for
 * it would have come before anything later. IBA vol 1, 9.7.5.2.1. */
static bool comp_is_passed_by(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock)
{
	const struct send_wqe *w = sq_at(qp, qp->sq_tail);
	u32 last = (w->first_psn + w->psn_count - 1) & PSN_MASK;

	return qp->sq_tail != qp->sq_next && wqe_is_answered_op(w) && psn_ahead(psn, last) > 0;
}

static void comp_rnr(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	if (qp->attr.rnr_retry != 7) {
		if (qp->rnr_left == 0) {
			if (comp_is_passed_by(qp, p->psn))
				req_absent(qp);
			else
				comp_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		qp->rnr_left--;
	}
	req_rewind(qp, p->psn);
	req_arm_timer(qp, WAIT_RNR, comp_rnr_ns(p->syndrome));
}

bool comp_is_fatal_nak(u8 code)
{
	return code == NAK_INVALID_REQUEST || code == NAK_REMOTE_ACCESS ||
	       code == NAK_REMOTE_OPERATION;
}

void comp_fatal_nak(struct ibt_qp *qp, u8 code)
{
	comp_fail(qp, code == NAK_INVALID_REQUEST ? IBV_WC_REM_INV_REQ_ERR
		      : code == NAK_REMOTE_ACCESS ? IBV_WC_REM_ACCESS_ERR
						  : IBV_WC_REM_OP_ERR);
}

/* The peer refuses what came with `psn`. What it has passed by is asked for again, though a peer
 * that has failed will hardly answer. */
static void comp_refused(struct ibt_qp *qp, u32 psn, u8 code) REQUIRES(qp->sq_lock)
{
	if (comp_is_passed_by(qp, psn))
		req_absent(qp);
	else
		comp_fatal_nak(qp, code);
}

/* The peer cannot read what it was to copy, and has executed nothing from there on: that may be
 * sent in another way, with other PSNs. Once: what is said again is older than what was sent
 * since. */
static void comp_renumber(struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock)
{
	bool refused = false;

	for (u32 i = qp->sq_tail; i != qp->sq_head && sq_at(qp, i)->psn_count != 0; i++) {
		struct send_wqe *w = sq_at(qp, i);

		refused |= w->pull && w->first_psn == psn;
		if (refused)
			w->psn_count = 0;
	}
}

static void comp_nak(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	switch (p->syndrome & 31) {
	case NAK_PSN_SEQUENCE:
		req_rewind(qp, p->psn);
		req_pump(qp);
		break;
	case NAK_CANNOT_PULL:
		qp->no_pull = true;
		req_rewind(qp, p->psn);
		comp_renumber(qp, p->psn);
		req_pump(qp);
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
static bool comp_concerns(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock)
{
	return qp_has_outstanding(qp) &&
	       psn_ahead(psn, sq_at(qp, qp->sq_tail)->first_psn) >= -1;
}

/* The peer counts other PSNs than we do, so it will never take what is outstanding, and a reliable
 * path has no other end of it than the timeout. The first word of that may also be what an earlier
 * connection has left on the way: its wait does not count, and if it was, there is no second. */
static void comp_contradicted(struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	u32 doubted = sq_at(qp, qp->sq_tail)->first_psn | COMP_DOUBTED;

	if (qp->waiting == WAIT_TIMEOUT)
		return;
	req_absent(qp);
	qp->progressed = qp->doubted != doubted;
	qp->doubted = doubted;
}

/* Has any request with this PSN been sent? Also if it is to be sent again now. */
static bool comp_has_sent(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock)
{
	u32 i = qp->sq_head;

	while (i != qp->sq_tail && sq_at(qp, i - 1)->psn_count == 0)
		i--;
	if (i == qp->sq_tail)
		return false;
	return psn_ahead(psn, sq_at(qp, i - 1)->first_psn + sq_at(qp, i - 1)->psn_count) < 0;
}

void comp_beyond(struct ibt_qp *qp, u32 psn)
{
	if (qp_has_outstanding(qp) && !comp_has_sent(qp, psn))
		comp_contradicted(qp);
}

/* Does the peer wait for what it has acknowledged once? */
static bool comp_is_behind(const struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	return p->syndrome == (AETH_NAK | NAK_PSN_SEQUENCE) && qp_has_outstanding(qp) &&
	       psn_ahead(p->psn, sq_at(qp, qp->sq_tail)->first_psn) < 0;
}

static void comp_receive_ack(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
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

/* The request that an answer is for: the oldest one, once everything before it has been
 * acknowledged by the answer. */
static struct send_wqe *comp_answered(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	struct send_wqe *w;

	comp_ack_up_to(qp, (p->psn - 1) & PSN_MASK);
	if (qp->sq_tail == qp->sq_next)
		return NULL;
	w = sq_at(qp, qp->sq_tail);
	return wqe_is_answered_op(w) && !w->answered ? w : NULL;
}

static void comp_answer_done(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	w->answered = true;
	qp->reads_out -= MIN(qp->reads_out, 1u);
	qp->rx_offset = 0;
	comp_retire(qp, w);
	comp_progress(qp);
	if (qp->sq_next != qp->sq_head || qp->draining)
		req_pump(qp);
}

int comp_scatter(struct ibt_qp *qp, struct send_wqe *w, const void *data, u32 n)
{
	if (qp->rx_offset == 0)
		qp->rx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	return mem_scatter(qp->ibt->cfg.mem, qp->pd, &qp->rx_cursor, data, n);
}

static void comp_read_answer(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->sq_lock)
{
	struct send_wqe *w = comp_answered(qp, p);
	u32 expected;

	if (w == NULL || w->opcode != IBV_WR_RDMA_READ ||
	    p->psn != ((w->first_psn + (qp->rx_offset >> qp->psn_shift)) & PSN_MASK)) {
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
		return;
	}
	expected = MIN(w->length - qp->rx_offset, qp_packet_bytes(qp));
	if (p->length != expected) {
		comp_fail(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (comp_scatter(qp, w, payload, p->length) != 0) {
		comp_fail(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	qp->rx_offset += p->length;
	if (qp->rx_offset == w->length)
		comp_answer_done(qp, w);
}

static void comp_atomic_answer(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	struct send_wqe *w = comp_answered(qp, p);

	if (w == NULL || w->opcode == IBV_WR_RDMA_READ || p->psn != w->first_psn) {
		path_count(qp->dest->path, COUNT_RX_DUPLICATE);
		return;
	}
	if (comp_scatter(qp, w, &p->swap, sizeof(p->swap)) != 0)
		comp_fail(qp, IBV_WC_LOC_PROT_ERR);
	else
		comp_answer_done(qp, w);
}

/* Is the packet part of a READ's answer that has been asked for, also if it is to be asked for
 * again now? Mostly of the oldest request's. */
static bool comp_awaits_answer(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->sq_lock)
{
	for (u32 i = qp->sq_tail; i != qp->sq_head; i++) {
		const struct send_wqe *w = sq_at(qp, i);

		if (w->psn_count == 0)
			return false;
		if (((psn - w->first_psn) & PSN_MASK) < w->psn_count)
			return w->opcode == IBV_WR_RDMA_READ;
	}
	return false;
}

/* Only what can be an answer to something outstanding counts. */
static bool comp_expects(const struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	if (p->opcode >= PKT_READ_FIRST && p->opcode <= PKT_READ_ONLY)
		return comp_awaits_answer(qp, p->psn);
	return psn_ahead(p->psn, qp->sq_psn) < 0;
}

/* Acknowledges, or asks for, what has not been sent, or is to be sent again. */
static void comp_unexpected(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->sq_lock)
{
	if (p->opcode == PKT_ACK &&
	    ((p->syndrome & 0xe0) == 0 || p->syndrome == (AETH_NAK | NAK_PSN_SEQUENCE)))
		comp_beyond(qp, p->psn);
}

void comp_receive(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p,
		  const void *payload)
{
	struct path_dest *others = NULL;

	lock_acquire(&qp->sq_lock);
	if (unlikely(!qp_is_peer(qp, from, p))) {
		path_count(from->path, COUNT_RX_WRONG_PEER);
	} else if (qp->streams) {
		retry_receive(qp, p, payload);
		others = window_claim(qp);
	} else if (unlikely(!qp_sends(qp))) {
		/* nothing is outstanding */
	} else if (unlikely(!comp_expects(qp, p))) {
		comp_unexpected(qp, p);
	} else {
		switch (p->opcode) {
		case PKT_ACK:
			comp_receive_ack(qp, p);
			break;
		case PKT_ATOMIC_ACK:
			comp_atomic_answer(qp, p);
			break;
		case PKT_ABSENT:
			/* It acknowledges nothing: what came before it may have met the same. */
			if (comp_concerns(qp, p->psn))
				req_absent(qp);
			break;
		case PKT_CNP:
			path_count(from->path, COUNT_RX_OPCODE);
			break;
		default:
			comp_read_answer(qp, p, payload);
			break;
		}
	}
	lock_release(&qp->sq_lock);
	window_wake(others);
}
