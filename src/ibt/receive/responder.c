/* responder.c: executes the requests of an RC or UC peer.
 *
 * A packet in sequence passes the checks of IBA vol 1, 9.7.4.1, one function each, in this order:
 * PSN, length of the packet, opcode sequence and validity, resources, R_Key, length of the message.
 * Then it is executed and acknowledged. A refused packet goes to refuse.c; READs and atomics
 * have checks of their own (answer.c).
 *
 * In:    packets already matched to a queue pair    Out: registered memory, completions, ACK or NAK
 * Runs:  the receiving thread
 * Locks:  rq_lock, then SRQ and CQ locks    Spec: IBA vol 1, 9.7.4, 9.7.5
 */
#include <errno.h>
#include <stdlib.h>

#include "ibt/receive/absent.h"
#include "ibt/receive/ack.h"
#include "ibt/receive/answer.h"
#include "ibt/lossy/cnp.h"
#include "ibt/xrc/forward.h"
#include "ibt/receive/opcode.h"
#include "ibt/send/packet.h"
#include "ibt/receive/pull.h"
#include "ibt/lossy/rate.h"
#include "ibt/receive/recv_queue.h"
#include "ibt/receive/refuse.h"
#include "ibt/receive/responder.h"
#include "ibt/sched.h"
#include "ibt/tagged/tm.h"
#include "ibt/xrc/xrc.h"

/* ---- the checks of a request in sequence ---- */

/* Opcode sequence, 9.7.4.1: the packet begins or continues a message, as its predecessor
 * requires; READs and atomics come between messages. An opcode that is no request is invalid. */
static enum resp_verdict resp_check_sequence(const struct ibt_qp *qp, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	bool right;

	if (op & (OP_FIRST | OP_ANSWERED))
		right = qp->resp.message == 0;
	else
		right = op != 0 && qp->resp.message != 0 &&
			(qp->resp.message & OP_MESSAGE) == (op & OP_MESSAGE);
	return likely(right) ? RESP_OK : RESP_NAK_INVALID;
}

/* Resources, 9.7.4.1: a SEND takes its receive request with the first packet. A WRITE with
 * immediate takes it with the last, before any byte of that is executed, so that RNR comes
 * first: 9.7.5.2.8. */
static enum resp_verdict resp_check_resources(struct ibt_qp *qp, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	bool begins = (op & (OP_SEND | OP_FIRST)) == (OP_SEND | OP_FIRST);

	if ((begins || (op & OP_NOTICE) != 0) && !rq_take(qp))
		return tm_is_used(qp) ? RESP_TAGGED : RESP_RNR;
	if (begins)
		qp->resp.offset = 0;
	return RESP_OK;
}

/* R_Key, 9.7.4.1: the first packet of a WRITE names the memory of the whole message. Zero bytes
 * need no right. */
static enum resp_verdict resp_check_access(struct ibt_qp *qp, const struct pkt *p, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	u64 piece;

	if ((op & (OP_WRITE | OP_FIRST)) != (OP_WRITE | OP_FIRST))
		return RESP_OK;
	if (p->dma_length > IBT_MAX_MESSAGE)
		return RESP_NAK_INVALID;
	qp->resp.write_va = p->va;
	qp->resp.write_rkey = p->rkey;
	qp->resp.write_length = (u32)p->dma_length;
	qp->resp.offset = 0;
	if (qp->resp.write_length == 0)
		return RESP_OK;
	if ((qp->access & IBV_ACCESS_REMOTE_WRITE) == 0)
		return RESP_NAK_ACCESS;
	if (mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey, p->va, p->dma_length,
		       IBV_ACCESS_REMOTE_WRITE, &piece) == NULL)
		return RESP_NAK_ACCESS;
	return RESP_OK;
}

/* Has the initiator placed the data by itself, and only the notice travels? */
static bool resp_is_placed(const struct ibt_qp *qp, const struct pkt *p)
{
	return (p->flags & PKT_PLACED) != 0 && p->opcode == PKT_WRITE_ONLY_IMM &&
	       qp->dest->path->guarantees.direct;
}

/* Length of the message, 9.7.4.1: a SEND has 2^31 bytes at most, a WRITE the length in its
 * RETH. */
static enum resp_verdict resp_check_length(const struct ibt_qp *qp, const struct pkt *p, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	u64 length = p->length, most;

	if (op & OP_SEND) {
		length = opcode_is_pulled(qp, p) ? p->dma_length : length;
		most = IBT_MAX_MESSAGE - qp->resp.offset;
	} else if (unlikely(resp_is_placed(qp, p))) {
		most = 0;
	} else {
		most = qp->resp.write_length - qp->resp.offset;
	}
	return likely(length <= most) ? RESP_OK : RESP_NAK_INVALID;
}

/* ---- execution ---- */

static enum resp_verdict resp_execute_send(struct ibt_qp *qp, struct path_dest *from,
					   const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	bool pull = opcode_is_pulled(qp, p);
	enum resp_verdict verdict = pull ? pull_copy(qp, from, p, payload)
					 : rq_scatter(qp, payload, p->length);

	if (verdict != RESP_OK)
		return verdict;
	qp->resp.offset += pull ? (u32)p->dma_length : p->length;
	if ((p->opcode == PKT_SEND_LAST_INV || p->opcode == PKT_SEND_ONLY_INV) &&
	    mem_invalidate(qp->ibt->cfg.mem, p->imm, qp->pd, qp->qpn) != 0) {
		rq_complete(qp, IBV_WC_LOC_PROT_ERR, NULL, 0);
		return RESP_NAK_ACCESS;
	}
	return RESP_OK;
}

/* Copies a WRITE's payload piece by piece into what the peer's key names. */
static enum resp_verdict resp_place(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	const u8 *from = payload;
	u32 n = p->length;

	while (n != 0) {
		u64 piece = 0;
		void *to = mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, qp->resp.write_rkey,
				      qp->resp.write_va + qp->resp.offset, n,
				      IBV_ACCESS_REMOTE_WRITE, &piece);

		if (to == NULL || piece == 0)
			return RESP_NAK_ACCESS;
		piece = MIN(piece, (u64)n);
		if ((unlikely(p->flags & PKT_UNREACHED) &&
		     !mem_is_there((uintptr_t)to, piece, true)) ||
		    mem_copy_ordered(to, from, piece) != 0)
			return RESP_NAK_ACCESS; /* as rxe responds for a page that is gone */
		from += piece;
		n -= (u32)piece;
		qp->resp.offset += (u32)piece;
	}
	return RESP_OK;
}

/* A WRITE that ends early has had its bytes placed: 9.7.4.1 (length). */
static enum resp_verdict resp_execute_write(struct ibt_qp *qp, const struct pkt *p,
					    const void *payload, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict;

	if (unlikely(resp_is_placed(qp, p))) {
		qp->resp.offset = qp->resp.write_length;
		return RESP_OK;
	}
	verdict = resp_place(qp, p, payload);
	if (verdict == RESP_OK && (op & OP_LAST) != 0 &&
	    qp->resp.offset != qp->resp.write_length)
		return RESP_NAK_INVALID;
	return verdict;
}

/* A consumer that sleeps until this message may respond before the end of the batch: on a wire its
 * message would overtake the acknowledgement. The peer would see that message's completion first;
 * if it takes one completion for each event, as perftest does, it would stay one behind. */
static void resp_ack_before_event(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock)
{
	if (likely(!cq_is_ring_only(qp->recv_cq)) || !qp->lossy || !qp_is_reliable(qp) ||
	    (p->flags & PKT_ACK_REQUEST) == 0 || qp->resp.resource_next != qp->resp.resource_head ||
	    !cq_would_fire(qp->recv_cq, (p->flags & PKT_SOLICITED) != 0))
		return;
	if (!ack_send(qp, AETH_ACK, qp->resp.epsn))
		return;
	/* what was owed before is acknowledged by it */
	__atomic_store_n(&qp->resp.ack_word, 0, __ATOMIC_RELAXED);
	qp->resp.acked_ahead = true;
}

static void resp_message_done(struct ibt_qp *qp, const struct pkt *p, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	qp->resp.msn = (qp->resp.msn + 1) & PSN_MASK;
	qp->resp.message = 0;
	__atomic_store_n(&qp->counters->received, qp->counters->received + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&qp->counters->received_bytes,
			 qp->counters->received_bytes + qp->resp.offset, __ATOMIC_RELAXED);
	if ((op & (OP_SEND | OP_NOTICE)) == 0)
		return;
	resp_ack_before_event(qp, p);
	rq_complete(qp, IBV_WC_SUCCESS, p, qp->resp.offset);
}

/* A packet that has its resources. */
static ALWAYS_INLINE enum resp_verdict resp_proceed(struct ibt_qp *qp, struct path_dest *from,
						    const struct pkt *p, const void *payload,
						    u8 op) REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict = resp_check_access(qp, p, op);

	if (likely(verdict == RESP_OK))
		verdict = resp_check_length(qp, p, op);
	if (unlikely(verdict != RESP_OK))
		return verdict;
	verdict = op & OP_SEND ? resp_execute_send(qp, from, p, payload)
			       : resp_execute_write(qp, p, payload, op);
	if (unlikely(verdict != RESP_OK))
		return verdict;
	if (op & OP_LAST)
		resp_message_done(qp, p, op);
	else
		qp->resp.message |= op & OP_MESSAGE;
	return RESP_OK;
}

/* The packet begins a message; its header selects the receive request. */
static NOINLINE enum resp_verdict resp_tagged(struct ibt_qp *qp, struct path_dest *from,
					      const struct pkt *p, const void *payload, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict;
	struct tm_view v; /* most of it is for pulled messages only */

	v.pkt = *p;
	v.payload = payload;
	lock_acquire(&qp->srq->order_lock);
	verdict = tm_take(qp, from, &v, (op & OP_NOTICE) != 0, (op & OP_LAST) != 0);
	if (likely(verdict == RESP_OK)) {
		qp->resp.offset = op & OP_SEND ? 0 : qp->resp.offset;
		verdict = resp_proceed(qp, from, &v.pkt, v.payload, op);
	}
	lock_release(&qp->srq->order_lock);
	return verdict;
}

/* A packet of a SEND or WRITE, whose PSN and size are right. */
static enum resp_verdict resp_message(struct ibt_qp *qp, struct path_dest *from,
				      const struct pkt *p, const void *payload, u8 op)
	REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict = resp_check_sequence(qp, op);

	if (likely(verdict == RESP_OK))
		verdict = resp_check_resources(qp, op);
	if (likely(verdict == RESP_OK))
		return resp_proceed(qp, from, p, payload, op);
	return verdict == RESP_TAGGED ? resp_tagged(qp, from, p, payload, op) : verdict;
}

/* A READ or an atomic: answer.c has its other checks. */
static enum resp_verdict resp_answered(struct ibt_qp *qp, const struct pkt *p,
				       const void *payload, u8 op) REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict = resp_check_sequence(qp, op);

	if (unlikely(verdict != RESP_OK))
		return verdict;
	if (unlikely(p->opcode > PKT_FETCH_ADD))
		return answer_placed(qp, p, payload);
	return p->opcode == PKT_READ_REQUEST ? answer_read(qp, p) : answer_atomic(qp, p);
}

enum resp_verdict resp_execute(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			       const void *payload)
{
	u8 op = opcode_ops[p->opcode];

	if (unlikely(!opcode_has_size(qp, p)))
		return RESP_NAK_INVALID;
	return op & OP_ANSWERED ? resp_answered(qp, p, payload, op)
				: resp_message(qp, from, p, payload, op);
}

void resp_acknowledge(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
{
	bool answered = (opcode_ops[p->opcode] & OP_ANSWERED) != 0;

	qp->resp.nak_sent = false;
	if (!answered)
		qp->resp.epsn = (qp->resp.epsn + 1) & PSN_MASK;
	if (!qp_is_reliable(qp))
		return;
	/* An acknowledgement may not overtake responses that still wait; the last of those
	 * acknowledges as well. */
	if (qp->resp.resource_next != qp->resp.resource_head && !answer_pump(qp))
		return;
	if (unlikely(qp->resp.acked_ahead)) {
		qp->resp.acked_ahead = false;
		return;
	}
	/* On a wire a requester that wants an acknowledgement asks for it. */
	if (answered || (qp->lossy && (p->flags & PKT_ACK_REQUEST) == 0))
		return;
	ack_owe(qp, from, (p->flags & PKT_ACK_REQUEST) != 0);
}

static void resp_event(struct ibt_qp *qp, enum resp_verdict verdict)
{
	enum ibv_event_type type = verdict == RESP_NAK_ACCESS	 ? IBV_EVENT_QP_ACCESS_ERR
				   : verdict == RESP_NAK_INVALID ? IBV_EVENT_QP_REQ_ERR
								 : IBV_EVENT_QP_FATAL;

	qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, type);
}

/* What is done without rq_lock. A queue pair that fails has flushed what was to be sent. */
static void resp_after(struct ibt_qp *qp, u8 after, enum resp_verdict verdict)
	EXCLUDES(qp->resp.rq_lock)
{
	if (after & AFTER_FAIL) {
		sched_fail(qp);
		resp_event(qp, verdict);
	} else {
		sched_send(qp);
	}
}

void resp_resume(struct ibt_qp *qp)
{
	enum resp_verdict verdict = RESP_OK;
	bool fail = false;

	lock_acquire(&qp->resp.rq_lock);
	if (qp->dest != NULL && qp->resp.owed == RESP_OK && answer_pump(qp))
		ack_resume(qp);
	forward_resume(qp);
	if (qp->dest != NULL && qp->resp.owed != RESP_OK)
		fail = refuse_tell(qp, &verdict);
	lock_release(&qp->resp.rq_lock);
	/* What a proxy refuses, its target fails of. */
	if (unlikely(fail) && !qp_is_proxy(qp)) {
		sched_fail(qp);
		resp_event(qp, verdict);
	}
}

void resp_rate_timer(struct timer *t)
{
	struct ibt_qp *qp = rate_qp(t);

	lock_acquire(&qp->resp.rq_lock);
	rate_answer_expired(qp);
	lock_release(&qp->resp.rq_lock);
	resp_resume(qp);
}

/* ---- requests of an XRC target that are held while another process is at work: forward.h ---- */

/* Acknowledges what has been executed, outside of the callbacks of the initiator's path. */
static void resp_acknowledge_held(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	__atomic_store_n(&qp->resp.ack_word, ACK_OWED | ((qp->resp.epsn - 1) & PSN_MASK),
			 __ATOMIC_RELEASE); /* pairs with the exchanges that take it */
	if (answer_pump(qp))
		ack_resume(qp);
}

/* The next of them is for an SRQ of this process. */
static enum resp_verdict resp_execute_held(struct ibt_qp *qp, const struct forward_item *item)
	REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict = xrc_select(qp, &item->pkt);

	if (verdict == RESP_OK)
		verdict = resp_execute(qp, qp->dest, &item->pkt, item->payload);
	if (verdict != RESP_OK)
		return verdict;
	qp->resp.nak_sent = false;
	if ((opcode_ops[item->pkt.opcode] & OP_ANSWERED) != 0) {
		answer_pump(qp);
	} else {
		qp->resp.epsn = (qp->resp.epsn + 1) & PSN_MASK;
		qp->resp.acked_ahead = false;
		resp_acknowledge_held(qp);
	}
	return RESP_OK;
}

/* Executes or hands on what can be. A refusal, or RESP_DROP. */
static enum resp_verdict resp_run_held(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	struct forward_item *item;
	enum resp_verdict verdict;

	while ((verdict = forward_run(qp, &item)) == RESP_OK) {
		verdict = resp_execute_held(qp, item);
		free(item);
		if (verdict != RESP_OK) {
			forward_drop(qp);
			return verdict;
		}
	}
	return verdict;
}

/* The request in sequence, as forward_next_psn has it. */
static enum resp_verdict resp_hand_on(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict = RESP_NAK_OPERATION;

	if (forward_hold(qp, p, payload)) {
		verdict = resp_run_held(qp);
		forward_settle(qp);
	}
	return verdict;
}

/* A READ or atomic comes again, whose answer another process has given. */
static bool resp_repeat_held(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock)
{
	if (!qp_is_target(qp) || qp_is_proxy(qp) || !forward_repeat(qp, p))
		return false;
	refuse_note(qp, resp_run_held(qp));
	return true;
}

/* What is left to do when rq_lock is released. */
static u8 resp_end_held(struct ibt_qp *qp, enum resp_verdict verdict, enum resp_verdict *fatal)
	REQUIRES(qp->resp.rq_lock)
{
	u8 after;

	if (qp->dest == NULL || !qp_receives(qp))
		return 0;
	if (verdict == RESP_DROP && qp->resp.owed == RESP_OK)
		verdict = resp_run_held(qp);
	refuse_note(qp, verdict);
	after = qp->resp.owed != RESP_OK && refuse_tell(qp, fatal) ? AFTER_FAIL : 0;
	if (after == 0 && qp->resp.after != 0)
		*fatal = RESP_NAK_OPERATION;
	return after | rq_after(qp);
}

void resp_receive_done(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		       const void *payload)
{
	enum resp_verdict verdict, fatal = RESP_OK;
	bool done;
	u8 after;

	lock_acquire(&qp->resp.rq_lock);
	verdict = forward_receive(qp, from, p, payload, &done);
	if (done)
		resp_acknowledge_held(qp);
	after = resp_end_held(qp, verdict, &fatal);
	lock_release(&qp->resp.rq_lock);
	if (unlikely(after != 0))
		resp_after(qp, after, fatal);
}

void resp_forward_timer(struct timer *t)
{
	struct ibt_qp *qp = forward_qp(t);
	enum resp_verdict fatal = RESP_OK;
	u8 after;

	lock_acquire(&qp->resp.rq_lock);
	forward_resume(qp);
	after = resp_end_held(qp, RESP_DROP, &fatal);
	/* without a connection there may be a word of its end left to say */
	forward_say_end(qp);
	lock_release(&qp->resp.rq_lock);
	if (unlikely(after != 0))
		resp_after(qp, after, fatal);
}

void resp_peer_died(struct ibt_qp *qp, struct path_dest *dest)
{
	enum resp_verdict fatal = RESP_OK;
	u8 after;

	if (!qp_is_target(qp))
		return;
	lock_acquire(&qp->resp.rq_lock);
	after = resp_end_held(qp, forward_peer_died(qp, dest), &fatal);
	lock_release(&qp->resp.rq_lock);
	if (unlikely(after != 0))
		resp_after(qp, after, fatal);
}

/* ---- duplicates and gaps ---- */

/* The same request for the third time: its responses seem to be lost. */
static void resp_repeated(struct ibt_qp *qp, u32 psn) REQUIRES(qp->resp.rq_lock)
{
	if (psn == qp->resp.repeated_psn && qp->dest->path->ops->peer_silent != NULL)
		qp->dest->path->ops->peer_silent(qp->dest);
	qp->resp.repeated_psn = psn;
}

/* It has come before, or seems to have. On a reliable path its sender gets no other report of one
 * without a response. */
static void resp_duplicate(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	qp_count(qp, COUNT_RX_DUPLICATE);
	resp_repeated(qp, p->psn);
	if ((opcode_ops[p->opcode] & OP_ANSWERED) == 0)
		ack_owe(qp, from, true);
	else if (!answer_duplicate(qp, p) && !resp_repeat_held(qp, p))
		absent_report(from, p);
}

/* Is the packet part of a gap that its sender has been told of? Not if its sender has gone back,
 * and has lost the same packet again. On a reliable path it follows the last one, or its sender
 * counts anew, and waits for a word in vain. */
static bool resp_gap_is_told(const struct ibt_qp *qp, u32 psn) REQUIRES(qp->resp.rq_lock)
{
	if (!qp->resp.nak_sent)
		return false;
	return qp->lossy ? psn_ahead(psn, qp->resp.gap_next) >= 0 : psn == qp->resp.gap_next;
}

/* What is missing is asked for once per gap. On a reliable path the word must not be lost. */
static void resp_gap(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	u32 psns = p->opcode == PKT_READ_REQUEST ? packet_count(qp, (u32)p->dma_length) : 1;

	qp_count(qp, COUNT_RX_PSN);
	if (!resp_gap_is_told(qp, p->psn)) {
		qp->resp.nak_sent = true;
		if (!ack_send(qp, AETH_NAK | NAK_PSN_SEQUENCE, qp->resp.epsn))
			absent_report(from, p);
	}
	qp->resp.gap_next = (p->psn + psns) & PSN_MASK;
}

/* PSN, 9.7.4.1: is this the request that is expected? A duplicate is acknowledged or answered
 * again, a gap gets a NAK. Until the peer has a refusal, none of its requests is in sequence. */
static bool resp_is_expected(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock)
{
	s32 ahead = psn_ahead(p->psn, qp->resp.epsn);

	if (unlikely(ahead < 0)) {
		resp_duplicate(qp, from, p);
		return false;
	}
	if (unlikely(ahead != 0)) {
		resp_gap(qp, from, p);
		return false;
	}
	if (unlikely(qp->resp.owed != RESP_OK)) {
		qp_count(qp, COUNT_RX_PSN);
		return false;
	}
	return true;
}

static void resp_receive_rc(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload) REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict;

	if (unlikely(!resp_is_expected(qp, from, p)))
		return;
	verdict = resp_execute(qp, from, p, payload);
	if (likely(verdict == RESP_OK))
		resp_acknowledge(qp, from, p);
	else
		refuse_note(qp, verdict);
}

/* A request comes while others are held. */
static void resp_hold(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		      const void *payload) REQUIRES(qp->resp.rq_lock)
{
	u32 next = forward_next_psn(qp);

	if (psn_ahead(p->psn, qp->resp.epsn) < 0) {
		resp_duplicate(qp, from, p);
	} else if (p->psn == next) {
		refuse_note(qp, resp_hand_on(qp, p, payload));
	} else {
		qp_count(qp, COUNT_RX_PSN);
		if (psn_ahead(p->psn, next) > 0)
			forward_note_gap(qp);
	}
}

/* XRC: as RC, once the SRQ that the request names is known. An initiator executes none. */
static void resp_receive_xrc(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			     const void *payload) REQUIRES(qp->resp.rq_lock)
{
	enum resp_verdict verdict;

	if (!qp_is_target(qp)) {
		qp_count(qp, COUNT_RX_OPCODE);
		return;
	}
	if (unlikely(forward_is_busy(qp))) {
		resp_hold(qp, from, p, payload);
		return;
	}
	if (unlikely(!resp_is_expected(qp, from, p)))
		return;
	verdict = forward_continues(qp, p) ? RESP_ELSEWHERE : xrc_select(qp, p);
	if (unlikely(verdict == RESP_ELSEWHERE)) {
		refuse_note(qp, resp_hand_on(qp, p, payload));
		return;
	}
	if (likely(verdict == RESP_OK))
		verdict = resp_execute(qp, from, p, payload);
	if (likely(verdict == RESP_OK))
		resp_acknowledge(qp, from, p);
	else
		refuse_note(qp, verdict);
}

/* UC on a wire: neither what has come before nor what has the wrong size. A sender whose PSNs begin
 * behind the expected one is followed, though: only packets that were counted can be duplicates. */
static bool resp_uc_admits(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock)
{
	s32 ahead = psn_ahead(p->psn, qp->resp.epsn);

	if (ahead < 0 && -ahead <= qp->resp.uc_run) {
		qp_count(qp, COUNT_RX_DUPLICATE);
		return false;
	}
	qp->resp.uc_run = (u16)MIN(ahead < 0 ? 1u : qp->resp.uc_run + (u32)ahead + 1, UINT16_MAX);
	if (likely(opcode_has_size(qp, p)))
		return true;
	qp_count(qp, COUNT_RX_LENGTH);
	qp->resp.epsn = (p->psn + 1) & PSN_MASK;
	qp->resp.message = 0;
	return false;
}

/* UC: a gap or a fault drops the rest of the message, silently; only a fault of our own receive
 * request is fatal. IBA vol 1, 9.8.2. True: the queue pair must go to ERR. */
static bool resp_receive_uc(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	u8 op = opcode_ops[p->opcode];
	bool gap = p->psn != qp->resp.epsn, rest;
	enum resp_verdict verdict;

	if ((op & OP_MESSAGE) == 0) {
		qp_count(qp, COUNT_RX_OPCODE);
		return false;
	}
	if (unlikely(qp->lossy || (p->flags & PKT_MISFIT) != 0) && !resp_uc_admits(qp, p))
		return false;
	qp->resp.epsn = (p->psn + 1) & PSN_MASK;
	if (gap || (op & OP_FIRST) != 0)
		qp->resp.message = 0;
	rest = (op & OP_FIRST) == 0 && qp->resp.message == 0;
	if (gap || rest)
		qp_count(qp, COUNT_RX_PSN);
	if (rest)
		return false;
	verdict = resp_message(qp, from, p, payload, op);
	if (likely(verdict == RESP_OK))
		return false;
	qp->resp.message = 0;
	qp_count(qp, verdict == RESP_RNR ? COUNT_RX_NO_WQE : COUNT_RX_REFUSED);
	return verdict != RESP_RNR && (op & OP_SEND) != 0;
}

static void resp_established(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	if (qp->state == IBV_QPS_RTR && !qp->resp.comm_established) {
		qp->resp.comm_established = true;
		qp->resp.quick_qpns = qp_quick_qpns(qp);
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_COMM_EST);
	}
}

static inline void resp_marked(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock)
{
	if (unlikely(qp->lossy) && cnp_is_marked(p))
		cnp_send(qp);
}

/* All types but RC. What is left to do: enum resp_after. */
static NOINLINE u8 resp_receive_other(struct ibt_qp *qp, struct path_dest *from,
				      const struct pkt *p, const void *payload,
				      enum resp_verdict *verdict) REQUIRES(qp->resp.rq_lock)
{
	resp_established(qp);
	resp_marked(qp, p);
	if (!qp_is_reliable(qp)) {
		*verdict = RESP_NAK_OPERATION;
		return resp_receive_uc(qp, from, p, payload) ? AFTER_FAIL : 0;
	}
	if (unlikely(qp->dest != from))
		__atomic_store_n(&qp->heard_as, from, __ATOMIC_RELAXED);
	resp_receive_xrc(qp, from, p, payload);
	return qp->resp.owed != RESP_OK && refuse_tell(qp, verdict) ? AFTER_FAIL : 0;
}

void resp_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		  const void *payload)
{
	enum resp_verdict verdict = RESP_OK;
	u8 after = 0;

	lock_acquire(&qp->resp.rq_lock);
	if (unlikely(!qp_receives(qp))) {
		path_count(from->path, COUNT_RX_NOT_RECEIVING);
		absent_report(from, p);
	} else if (unlikely(!qp_is_peer(qp, from, p))) {
		path_count(from->path, COUNT_RX_WRONG_PEER);
		absent_report(from, p);
	} else if (qp_takes_fast_paths(qp)) {
		if (unlikely(qp->dest != from))
			__atomic_store_n(&qp->heard_as, from, __ATOMIC_RELAXED);
		resp_established(qp);
		resp_marked(qp, p);
		resp_receive_rc(qp, from, p, payload);
		if (unlikely(qp->resp.owed != RESP_OK))
			after = refuse_tell(qp, &verdict) ? AFTER_FAIL : 0;
	} else {
		after = resp_receive_other(qp, from, p, payload, &verdict);
	}
	if (unlikely(qp->resp.after != 0)) {
		verdict = RESP_NAK_OPERATION;
		after |= rq_after(qp);
	}
	lock_release(&qp->resp.rq_lock);
	if (unlikely(after != 0))
		resp_after(qp, after, verdict);
}
