/* responder.c: answers the peer's requests on an RC or UC queue pair.
 * In:    packets already matched to a queue pair    Out: registered memory, completions, ACK or NAK
 * Runs:  whoever receives    Locks: rq_lock, then SRQ and CQ locks    Spec: IBA vol 1, 9.7.4, 9.7.5
 */
#include <errno.h>

#include "ibt/ibt_priv.h"

static void resp_count(const struct ibt_qp *qp, enum path_counter c)
{
	if (qp->dest != NULL)
		path_count(qp->dest->path, c);
}

/* ---- acknowledgements ---- */

bool resp_send_ack(struct ibt_qp *qp, u8 syndrome, u32 psn)
{
	struct pkt p = {
		.opcode = PKT_ACK,
		.qp_type = qp->type,
		.syndrome = syndrome,
		.dqpn = qp->dest_qpn,
		.sqpn = qp->qpn,
		.psn = psn & PSN_MASK,
		.msn = qp->msn,
	};
	int err;

	if ((syndrome & 0xe0) != 0)
		resp_count(qp, (syndrome & 0xe0) == AETH_RNR ? COUNT_TX_RNR : COUNT_TX_NAK);
	err = qp->dest->path->ops->send(qp->dest, &p, NULL, 0);
	if (err == 0)
		qp->dest->path->ops->flush(qp->dest);
	else if (syndrome == AETH_ACK && err == -EAGAIN)
		__atomic_store_n(&qp->ack_word, ACK_OWED | (psn & PSN_MASK), __ATOMIC_RELEASE);
	else
		qp->nak_sent = false; /* the next packet has it said again */
	return err == 0;
}

static bool resp_ack_is_owed(const struct ibt_qp *qp)
{
	return (__atomic_load_n(&qp->ack_word, __ATOMIC_RELAXED) & ACK_OWED) != 0;
}

/* Settles whether the acknowledgement that waited for a ride had one. */
static void resp_ack_settle(struct ibt_qp *qp)
{
	if (qp->ack_waits && resp_ack_is_owed(qp))
		__atomic_store_n(&qp->ack_rides, false, __ATOMIC_RELAXED);
	qp->ack_waits = false;
	__atomic_store_n(&qp->ack_went_ahead, false, __ATOMIC_RELAXED);
}

/* Everything before epsn is to be acknowledged: at the end of the batch if the peer asked
 * (`urgent`), else when there is a moment. Where the consumer has just been seen to answer at once,
 * the answer takes it along; if it does not, the next idle poll or the engine's next tick (1 ms)
 * sends it, and the next one goes at once again. On a wire nothing takes it along. */
void resp_owe_ack(struct ibt_qp *qp, struct path_dest *from, bool urgent)
{
	resp_ack_settle(qp);
	/* Pairs with the exchanges that take it. */
	__atomic_store_n(&qp->ack_word, ACK_OWED | ((qp->epsn - 1) & PSN_MASK), __ATOMIC_RELEASE);
	if (urgent && __atomic_load_n(&qp->ack_rides, __ATOMIC_RELAXED)) {
		qp->ack_waits = true;
		urgent = false;
	}
	if (qp->ack_listed && !urgent)
		return;
	if (qp->ack_listed)
		list_remove(&qp->ack_node);
	list_push_back(urgent ? &from->acks_now : &from->acks, &qp->ack_node);
	qp->ack_listed = true;
	if (!urgent)
		__atomic_store_n(&from->acks_owed, true, __ATOMIC_RELAXED);
}

static void resp_flush_ack(struct ibt_qp *qp)
{
	u32 word;

	lock_acquire(&qp->rq_lock);
	/* pairs with resp_owe_ack */
	word = __atomic_exchange_n(&qp->ack_word, 0, __ATOMIC_ACQUIRE);
	/* Also in ERR: what was accepted was accepted. */
	if ((word & ACK_OWED) != 0 && qp->dest != NULL) {
		resp_send_ack(qp, AETH_ACK, word);
		__atomic_store_n(&qp->ack_went_ahead, true, __ATOMIC_RELAXED);
	}
	lock_release(&qp->rq_lock);
}

bool resp_ride_ack(struct ibt_qp *qp)
{
	bool sent = false;
	u32 word;

	if (!resp_ack_is_owed(qp)) {
		/* the next one may wait for this ride */
		if (__atomic_exchange_n(&qp->ack_went_ahead, false, __ATOMIC_RELAXED))
			__atomic_store_n(&qp->ack_rides, true, __ATOMIC_RELAXED);
		return false;
	}
	lock_acquire(&qp->rq_lock);
	/* pairs with resp_owe_ack */
	word = __atomic_exchange_n(&qp->ack_word, 0, __ATOMIC_ACQUIRE);
	if ((word & ACK_OWED) != 0 && qp->dest != NULL)
		sent = resp_send_ack(qp, AETH_ACK, word);
	lock_release(&qp->rq_lock);
	return sent;
}

static void resp_flush_acks(struct list_head *list)
{
	struct list_head again;
	struct list_head *node;

	list_init(&again);
	while ((node = list_pop_front(list)) != NULL) {
		struct ibt_qp *qp = list_entry(node, struct ibt_qp, ack_node);

		resp_ack_settle(qp);
		if (resp_ack_is_owed(qp))
			resp_flush_ack(qp);
		qp->ack_listed = resp_ack_is_owed(qp); /* there was no room */
		if (qp->ack_listed)
			list_push_back(&again, &qp->ack_node);
	}
	list_splice(&again, list);
}

void resp_batch_end(struct path_dest *from, bool idle)
{
	if (unlikely(absent_is_owed(from)))
		absent_tell(from);
	else if (likely(list_empty(&from->acks_now) && !idle))
		return;
	resp_flush_acks(&from->acks_now);
	if (idle)
		resp_flush_acks(&from->acks);
	/* What could not be sent now is looked at again on the next idle poll. */
	list_splice(&from->acks_now, &from->acks);
	__atomic_store_n(&from->acks_owed, !list_empty(&from->acks) || absent_is_owed(from),
			 __ATOMIC_RELAXED);
}

/* ---- receive requests ---- */

bool resp_take_wqe(struct ibt_qp *qp)
{
	if (qp->current != NULL) {
		/* UC: the message that had taken it broke off; it is filled from the beginning
		 * again */
	} else if (qp->srq != NULL) {
		if (!srq_take(qp->srq, qp->srq_copy))
			return false;
		qp->current = qp->srq_copy;
	} else {
		if (qp->rq_tail == qp->rq_head)
			return false;
		qp->current = ring_recv_at(&qp->rq, qp->rq_tail);
	}
	qp->in_cursor = (struct mem_cursor){ .sge = qp->current->sge,
					     .count = qp->current->sge_count };
	return true;
}

static void resp_wc_flags(struct ibv_wc *wc, const struct pkt *p)
{
	switch (p->opcode) {
	case PKT_SEND_LAST_IMM:
	case PKT_SEND_ONLY_IMM:
	case PKT_WRITE_LAST_IMM:
	case PKT_WRITE_ONLY_IMM:
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = p->imm;
		break;
	case PKT_SEND_LAST_INV:
	case PKT_SEND_ONLY_INV:
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = p->imm;
		break;
	default:
		break;
	}
	if (p->opcode == PKT_WRITE_LAST_IMM || p->opcode == PKT_WRITE_ONLY_IMM)
		wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	if ((p->flags & PKT_HAS_GRH) != 0 && p->qp_type == IBV_QPT_UD) {
		wc->wc_flags |= IBV_WC_GRH;
		wc->sl = ud_header_type(p);
	}
}

void resp_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
{
	bool ok = status == IBV_WC_SUCCESS;
	struct cqe *e = cq_reserve(qp->recv_cq);

	if (likely(e)) {
		cqe_set(e, qp->current->wr_id, status, IBV_WC_RECV, length, qp->qpn,
			!ok ? 0 : p->sqpn != 0 ? p->sqpn : qp->dest_qpn, qp->owner);
		if (likely(ok))
			resp_wc_flags(&e->wc, p);
		cq_commit(qp->recv_cq, e, ok && (p->flags & PKT_SOLICITED) != 0);
	} else {
		resp_count(qp, COUNT_CQ_OVERFLOW);
		qp->unheard = qp_receives(qp);
	}
	if (unlikely(!ok))
		__atomic_fetch_add(&qp->counters->errors, 1, __ATOMIC_RELAXED);
	qp->current = NULL;
	if (qp->srq == NULL)
		qp->rq_tail++;
}

bool resp_is_unheard(struct ibt_qp *qp)
{
	if (likely(!qp->unheard))
		return false;
	qp->unheard = false;
	return true;
}

void resp_flush_rq(struct ibt_qp *qp)
{
	qp->in_message = 0;
	if (qp->current != NULL)
		resp_complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
	if (qp->srq != NULL)
		return;
	while (qp->rq_tail != qp->rq_head && resp_take_wqe(qp))
		resp_complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
}

/* ---- requests ---- */

enum { OP_SEND = 1, OP_WRITE = 2, OP_FIRST = 4, OP_LAST = 8, OP_NOTICE = 16 };

static const u8 resp_ops[PKT_OPCODES] = {
	[PKT_SEND_FIRST] = OP_SEND | OP_FIRST,
	[PKT_SEND_MIDDLE] = OP_SEND,
	[PKT_SEND_LAST] = OP_SEND | OP_LAST,
	[PKT_SEND_LAST_IMM] = OP_SEND | OP_LAST,
	[PKT_SEND_LAST_INV] = OP_SEND | OP_LAST,
	[PKT_SEND_ONLY] = OP_SEND | OP_FIRST | OP_LAST,
	[PKT_SEND_ONLY_IMM] = OP_SEND | OP_FIRST | OP_LAST,
	[PKT_SEND_ONLY_INV] = OP_SEND | OP_FIRST | OP_LAST,
	[PKT_WRITE_FIRST] = OP_WRITE | OP_FIRST,
	[PKT_WRITE_MIDDLE] = OP_WRITE,
	[PKT_WRITE_LAST] = OP_WRITE | OP_LAST,
	[PKT_WRITE_LAST_IMM] = OP_WRITE | OP_LAST | OP_NOTICE,
	[PKT_WRITE_ONLY] = OP_WRITE | OP_FIRST | OP_LAST,
	[PKT_WRITE_ONLY_IMM] = OP_WRITE | OP_FIRST | OP_LAST | OP_NOTICE,
};

/* Does the packet continue, or begin, a message as the one before it says? IBA vol 1, 9.7.4.1.2. */
static bool resp_in_sequence(struct ibt_qp *qp, const struct pkt *p, u8 op) REQUIRES(qp->rq_lock)
{
	if (op & OP_FIRST)
		return qp->in_message == 0;
	return qp->in_message != 0 &&
	       (qp->in_message & (OP_SEND | OP_WRITE)) == (op & (OP_SEND | OP_WRITE));
}

static enum resp_verdict resp_receive_failed(struct ibt_qp *qp, int err) REQUIRES(qp->rq_lock)
{
	resp_complete(qp, err == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR, NULL, 0);
	return err == -EMSGSIZE ? RESP_NAK_INVALID : RESP_NAK_OPERATION;
}

/* `bytes` from `at` on of a list that has as many: how many elements of `out`, at most n. */
static int resp_part(const struct iovec *list, int n, u64 at, u64 bytes, struct iovec *out)
{
	int count = 0;

	for (int i = 0; i < n && bytes != 0; i++) {
		u64 skip = MIN(at, (u64)list[i].iov_len), k = MIN(list[i].iov_len - skip, bytes);

		at -= skip;
		bytes -= k;
		if (k != 0)
			out[count++] = (struct iovec){ .iov_base = (u8 *)list[i].iov_base + skip,
						       .iov_len = k };
	}
	return count;
}

/* In one call, unless our memory lies in too many pieces (pages of an FMR, say). 0, an error of
 * mem_pieces or of the path. */
static int resp_pull_list(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			  const struct iovec *theirs, int n) REQUIRES(qp->rq_lock)
{
	struct iovec part[IBT_MAX_SGE + 2], ours[2 * IBT_MAX_SGE];
	u64 step = p->dma_length, at = 0;

	while (at != p->dma_length) {
		u64 bytes = MIN(step, p->dma_length - at);
		int m = mem_pieces(qp->ibt->cfg.mem, qp->pd, &qp->in_cursor, bytes,
				   IBV_ACCESS_LOCAL_WRITE, ours, (int)ARRAY_LEN(ours));

		if (unlikely(m == -E2BIG)) {
			step = bytes / 2;
			continue;
		}
		if (m >= 0)
			m = from->path->ops->pull(from, p->sqpn, qp->qpn, part,
						  resp_part(theirs, n, at, bytes, part), ours, m,
						  bytes);
		if (m < 0)
			return m;
		at += bytes;
	}
	return 0;
}

/* Copies what the packet names in the sender's memory into the receive request. */
static enum resp_verdict resp_pull(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
				   const void *payload) REQUIRES(qp->rq_lock)
{
	struct iovec theirs[IBT_MAX_SGE + 2];
	struct mem_cursor before = qp->in_cursor;
	u32 n = p->length / sizeof(theirs[0]);
	u64 named = 0;
	int err;

	if (p->length > sizeof(theirs) || p->dma_length > PULL_BYTES)
		return RESP_NAK_INVALID;
	memcpy(theirs, payload, n * sizeof(theirs[0]));
	for (u32 i = 0; i < n; i++)
		named += MIN(theirs[i].iov_len, (size_t)PULL_BYTES + 1);
	if (named != p->dma_length)
		return RESP_NAK_INVALID;
	err = resp_pull_list(qp, from, p, theirs, (int)n);
	if (likely(err == 0))
		return RESP_OK;
	if (err == -EMSGSIZE || err == -EACCES)
		return resp_receive_failed(qp, err);
	qp->in_cursor = before;
	if (err == -EPIPE)
		return RESP_DROP;
	/* In the middle of a message its packets could not be numbered anew. */
	return qp->in_offset == 0 ? RESP_NAK_PULL : resp_receive_failed(qp, -EFAULT);
}

static enum resp_verdict resp_scatter(struct ibt_qp *qp, const void *payload, u32 n)
	REQUIRES(qp->rq_lock)
{
	int err = mem_scatter(qp->ibt->cfg.mem, qp->pd, &qp->in_cursor, payload, n);

	return likely(err == 0) ? RESP_OK : resp_receive_failed(qp, err);
}

static enum resp_verdict resp_send(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
				   const void *payload, u8 op) REQUIRES(qp->rq_lock)
{
	bool pull = (p->flags & PKT_PULL) != 0 && qp->type == IBV_QPT_RC && !qp->lossy;
	u64 length = pull ? p->dma_length : p->length;
	enum resp_verdict verdict;

	if ((op & OP_FIRST) != 0 && !resp_take_wqe(qp))
		return RESP_RNR;
	if (op & OP_FIRST)
		qp->in_offset = 0;
	if (length > IBT_MAX_MESSAGE - qp->in_offset)
		return RESP_NAK_INVALID;
	verdict = pull ? resp_pull(qp, from, p, payload) : resp_scatter(qp, payload, p->length);
	if (verdict != RESP_OK)
		return verdict;
	qp->in_offset += (u32)length;
	if ((p->opcode == PKT_SEND_LAST_INV || p->opcode == PKT_SEND_ONLY_INV) &&
	    mem_invalidate(qp->ibt->cfg.mem, p->imm, qp->pd) != 0) {
		resp_complete(qp, IBV_WC_LOC_PROT_ERR, NULL, 0);
		return RESP_NAK_ACCESS;
	}
	return RESP_OK;
}

/* Copies a WRITE's payload piece by piece into what the peer's key names. */
static enum resp_verdict resp_place(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->rq_lock)
{
	const u8 *from = payload;
	u32 n = p->length;

	while (n != 0) {
		u64 piece = 0;
		void *to = mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, qp->in_rkey,
				      qp->in_va + qp->in_offset, n, IBV_ACCESS_REMOTE_WRITE,
				      &piece);

		if (to == NULL || piece == 0)
			return RESP_NAK_ACCESS;
		piece = MIN(piece, (u64)n);
		if ((unlikely(p->flags & PKT_UNREACHED) &&
		     !mem_is_there((uintptr_t)to, piece, true)) ||
		    mem_copy_ordered(to, from, piece) != 0)
			return RESP_NAK_ACCESS; /* as rxe answers where a page has gone */
		from += piece;
		n -= (u32)piece;
		qp->in_offset += (u32)piece;
	}
	return RESP_OK;
}

static enum resp_verdict resp_write_begin(struct ibt_qp *qp, const struct pkt *p)
	REQUIRES(qp->rq_lock)
{
	u64 piece;

	if (p->dma_length > IBT_MAX_MESSAGE)
		return RESP_NAK_INVALID;
	qp->in_va = p->va;
	qp->in_rkey = p->rkey;
	qp->in_length = (u32)p->dma_length;
	qp->in_offset = 0;
	if (qp->in_length == 0)
		return RESP_OK;
	if ((qp->access & IBV_ACCESS_REMOTE_WRITE) == 0)
		return RESP_NAK_ACCESS;
	if (mem_remote(qp->ibt->cfg.mem, qp->pd, qp->qpn, p->rkey, p->va, p->dma_length,
		       IBV_ACCESS_REMOTE_WRITE, &piece) == NULL)
		return RESP_NAK_ACCESS;
	return RESP_OK;
}

static enum resp_verdict resp_write(struct ibt_qp *qp, const struct pkt *p, const void *payload,
				    u8 op) REQUIRES(qp->rq_lock)
{
	enum resp_verdict verdict = RESP_OK;
	bool placed = (p->flags & PKT_PLACED) != 0 && p->opcode == PKT_WRITE_ONLY_IMM &&
		      qp->dest->path->promise.direct;

	/* The receive request of a WRITE with immediate is taken first, so that RNR comes before
	 * any byte of the last packet. */
	if ((op & OP_NOTICE) != 0 && !resp_take_wqe(qp))
		return RESP_RNR;
	if (op & OP_FIRST)
		verdict = resp_write_begin(qp, p);
	if (verdict != RESP_OK)
		return verdict;
	if (placed) {
		qp->in_offset = qp->in_length;
		return p->length == 0 ? RESP_OK : RESP_NAK_INVALID;
	}
	if (p->length > qp->in_length - qp->in_offset)
		return RESP_NAK_INVALID;
	verdict = resp_place(qp, p, payload);
	if (verdict == RESP_OK && (op & OP_LAST) != 0 && qp->in_offset != qp->in_length)
		return RESP_NAK_INVALID;
	return verdict;
}

/* A sleeper whom this message wakes may answer it before the end of the batch: on a wire his answer
 * would overtake the acknowledgement. Who asked would be told of the answer first, and if he takes
 * one completion for each event, as perftest does, he would be one behind from then on. */
static void resp_ack_before_event(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->rq_lock)
{
	if (likely(!cq_is_minded(qp->recv_cq)) || !qp->lossy || qp->type != IBV_QPT_RC ||
	    (p->flags & PKT_ACK_REQUEST) == 0 || qp->resource_next != qp->resource_head ||
	    !cq_would_fire(qp->recv_cq, (p->flags & PKT_SOLICITED) != 0))
		return;
	if (!resp_send_ack(qp, AETH_ACK, qp->epsn))
		return;
	/* what was owed before is acknowledged by it */
	__atomic_store_n(&qp->ack_word, 0, __ATOMIC_RELAXED);
	qp->acked_ahead = true;
}

static void resp_message_done(struct ibt_qp *qp, const struct pkt *p, u8 op) REQUIRES(qp->rq_lock)
{
	qp->msn = (qp->msn + 1) & PSN_MASK;
	qp->in_message = 0;
	__atomic_store_n(&qp->counters->received, qp->counters->received + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&qp->counters->received_bytes,
			 qp->counters->received_bytes + qp->in_offset, __ATOMIC_RELAXED);
	if ((op & (OP_SEND | OP_NOTICE)) == 0)
		return;
	resp_ack_before_event(qp, p);
	resp_complete(qp, IBV_WC_SUCCESS, p, qp->in_offset);
}

static enum resp_verdict resp_message(struct ibt_qp *qp, struct path_dest *from,
				      const struct pkt *p, const void *payload)
	REQUIRES(qp->rq_lock)
{
	u8 op = resp_ops[p->opcode];
	enum resp_verdict verdict;

	if (op == 0 || !resp_in_sequence(qp, p, op))
		return RESP_NAK_INVALID;
	verdict = op & OP_SEND ? resp_send(qp, from, p, payload, op)
			       : resp_write(qp, p, payload, op);
	if (unlikely(verdict != RESP_OK))
		return verdict;
	if (op & OP_LAST)
		resp_message_done(qp, p, op);
	else
		qp->in_message |= op & (OP_SEND | OP_WRITE);
	return RESP_OK;
}

/* Has the packet as many bytes as its opcode says? Only on a wire is there more to say than that
 * they fit. IBA vol 1, 9.7.4.1.6. */
static bool resp_is_sized(const struct ibt_qp *qp, const struct pkt *p)
{
	u8 op = resp_ops[p->opcode];

	if (likely(!qp->lossy))
		return true;
	if (op == 0)
		return p->length == 0;
	if ((op & OP_LAST) == 0)
		return p->length == qp_packet_bytes(qp);
	return p->length <= qp_packet_bytes(qp) && (p->length != 0 || (op & OP_FIRST) != 0);
}

/* Executes a request in sequence. */
static enum resp_verdict resp_execute(struct ibt_qp *qp, struct path_dest *from,
				      const struct pkt *p, const void *payload)
	REQUIRES(qp->rq_lock)
{
	switch (p->opcode) {
	case PKT_READ_REQUEST:
		return qp->in_message != 0 ? RESP_NAK_INVALID : answer_read(qp, p);
	case PKT_COMPARE_SWAP:
	case PKT_FETCH_ADD:
		return qp->in_message != 0 ? RESP_NAK_INVALID : answer_atomic(qp, p);
	default:
		return resp_message(qp, from, p, payload);
	}
}

static void resp_accepted(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->rq_lock)
{
	bool answered = p->opcode == PKT_READ_REQUEST || p->opcode == PKT_COMPARE_SWAP ||
			p->opcode == PKT_FETCH_ADD;

	qp->nak_sent = false;
	if (!answered)
		qp->epsn = (qp->epsn + 1) & PSN_MASK;
	if (qp->type != IBV_QPT_RC)
		return;
	/* An acknowledgement may not overtake answers that still wait; the last of them
	 * acknowledges as well. */
	if (qp->resource_next != qp->resource_head && !answer_pump(qp))
		return;
	if (unlikely(qp->acked_ahead)) {
		qp->acked_ahead = false;
		return;
	}
	/* On a wire who wants an acknowledgement asks for it. */
	if (answered || (qp->lossy && (p->flags & PKT_ACK_REQUEST) == 0))
		return;
	resp_owe_ack(qp, from, (p->flags & PKT_ACK_REQUEST) != 0);
}

static void resp_event(struct ibt_qp *qp, enum resp_verdict verdict)
{
	enum ibv_event_type type = verdict == RESP_NAK_ACCESS	 ? IBV_EVENT_QP_ACCESS_ERR
				   : verdict == RESP_NAK_INVALID ? IBV_EVENT_QP_REQ_ERR
								 : IBV_EVENT_QP_FATAL;

	qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, type);
}

/* The packet that says what the peer is still to be told. */
static void resp_fill_untold(struct ibt_qp *qp, struct pkt *p) REQUIRES(qp->rq_lock)
{
	static const u8 codes[] = { [RESP_NAK_INVALID] = NAK_INVALID_REQUEST,
				    [RESP_NAK_ACCESS] = NAK_REMOTE_ACCESS,
				    [RESP_NAK_OPERATION] = NAK_REMOTE_OPERATION,
				    [RESP_NAK_PULL] = NAK_CANNOT_PULL };

	*p = (struct pkt){ .opcode = PKT_ACK,
			   .qp_type = qp->type,
			   .dqpn = qp->dest_qpn,
			   .sqpn = qp->qpn,
			   .psn = qp->untold_psn,
			   .msn = qp->msn };
	if (qp->untold == RESP_GONE)
		p->opcode = PKT_ABSENT;
	else if (qp->untold == RESP_RNR)
		p->syndrome = AETH_RNR | qp->attr.min_rnr_timer;
	else
		p->syndrome = (u8)(AETH_NAK | codes[qp->untold]);
}

/* Tells it, unless answers or the lack of room still hold it back: nothing may overtake an answer,
 * and a reliable path's sender waits for what it is told. True: told, and *verdict is fatal to the
 * queue pair. IBA vol 1, 9.9.3. */
static bool resp_tell(struct ibt_qp *qp, enum resp_verdict *verdict) REQUIRES(qp->rq_lock)
{
	struct pkt p;
	int err;

	if (!answer_pump(qp))
		return false;
	resp_fill_untold(qp, &p);
	/* What was executed before it is acknowledged by its PSN. */
	if (qp->untold != RESP_GONE)
		__atomic_store_n(&qp->ack_word, 0, __ATOMIC_RELAXED);
	err = qp->dest->path->ops->send(qp->dest, &p, NULL, 0);
	if (err == -EAGAIN) {
		req_block(qp, qp->dest);
		err = qp->dest->path->ops->send(qp->dest, &p, NULL, 0);
	}
	if (err == -EAGAIN)
		return false;
	qp->dest->path->ops->flush(qp->dest);
	*verdict = (enum resp_verdict)qp->untold;
	qp->untold = RESP_OK;
	if (*verdict == RESP_RNR || *verdict == RESP_GONE)
		return false;
	resp_count(qp, COUNT_TX_NAK);
	return *verdict != RESP_NAK_PULL;
}

static void resp_refuse(struct ibt_qp *qp, enum resp_verdict verdict) REQUIRES(qp->rq_lock)
{
	if (verdict == RESP_DROP)
		return;
	if (verdict == RESP_RNR) {
		resp_count(qp, COUNT_RX_NO_WQE);
		resp_count(qp, COUNT_TX_RNR);
	}
	qp->untold = (u8)verdict;
	qp->untold_psn = qp->epsn;
	qp->nak_sent = true;
	qp->gap_psn = (qp->epsn - 1) & PSN_MASK; /* what follows shows no gap */
}

/* It may be on none of its destination's lists: without room it waits for the next call. Tried once
 * more then, for room that came in between. */
static void resp_resume_ack(struct ibt_qp *qp) REQUIRES(qp->rq_lock)
{
	for (int i = 0; i < 2 && resp_ack_is_owed(qp); i++) {
		if (i == 1)
			req_block(qp, qp->dest);
		resp_send_ack(qp, AETH_ACK,
			      __atomic_exchange_n(&qp->ack_word, 0, __ATOMIC_ACQUIRE));
	}
}

void resp_resume(struct ibt_qp *qp)
{
	enum resp_verdict verdict = RESP_OK;
	bool fail = false;

	lock_acquire(&qp->rq_lock);
	if (qp->dest != NULL && qp->untold == RESP_OK && answer_pump(qp))
		resp_resume_ack(qp);
	if (qp->dest != NULL && qp->untold != RESP_OK)
		fail = resp_tell(qp, &verdict);
	lock_release(&qp->rq_lock);
	if (unlikely(fail)) {
		qp_fail(qp);
		resp_event(qp, verdict);
	}
}

void resp_leave(struct ibt_qp *qp)
{
	bool owes = qp->resource_next != qp->resource_head || qp->untold != RESP_OK;
	enum resp_verdict verdict;
	u32 ack;

	if (qp->type != IBV_QPT_RC || qp->dest == NULL)
		return;
	qp->resource_next = qp->resource_head;
	ack = __atomic_exchange_n(&qp->ack_word, 0, __ATOMIC_ACQUIRE);
	if (ack & ACK_OWED)
		resp_send_ack(qp, AETH_ACK, ack);
	if (qp->lossy)
		qp->untold = RESP_OK; /* its timeout tells the peer */
	if (!owes || qp->lossy)
		return;
	qp->untold = RESP_GONE;
	qp->untold_psn = (qp->epsn - 1) & PSN_MASK;
	resp_tell(qp, &verdict);
}

bool resp_has_left(struct ibt_qp *qp)
{
	bool left;

	lock_acquire(&qp->rq_lock);
	left = qp->dest == NULL || (qp->untold == RESP_OK && !resp_ack_is_owed(qp));
	lock_release(&qp->rq_lock);
	return left;
}

/* The same request for the third time: its answers do not seem to arrive. */
static void resp_asked_again(struct ibt_qp *qp, u32 psn) REQUIRES(qp->rq_lock)
{
	if (psn == qp->repeated_psn && qp->dest->path->ops->doubt != NULL)
		qp->dest->path->ops->doubt(qp->dest);
	qp->repeated_psn = psn;
}

/* It has come before, or seems to have. On a reliable path nobody else tells its sender of one that
 * has no answer any more, or never had any. */
static void resp_duplicate(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->rq_lock)
{
	resp_count(qp, COUNT_RX_DUPLICATE);
	resp_asked_again(qp, p->psn);
	if (p->opcode != PKT_READ_REQUEST && p->opcode != PKT_COMPARE_SWAP &&
	    p->opcode != PKT_FETCH_ADD)
		resp_owe_ack(qp, from, true);
	else if (!answer_duplicate(qp, p))
		absent_say(from, p);
}

/* What is missing is asked for once per gap; once more if its sender has gone back, and has lost
 * the same packet again, or, on a reliable path, never had it. There the word must not be lost. */
static void resp_gap(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->rq_lock)
{
	resp_count(qp, COUNT_RX_PSN);
	if (!qp->nak_sent || psn_ahead(p->psn, qp->gap_psn) <= 0) {
		qp->nak_sent = true;
		if (!resp_send_ack(qp, AETH_NAK | NAK_PSN_SEQUENCE, qp->epsn))
			absent_say(from, p);
	}
	qp->gap_psn = p->psn;
}

static void resp_receive_rc(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload) REQUIRES(qp->rq_lock)
{
	s32 ahead = psn_ahead(p->psn, qp->epsn);
	enum resp_verdict verdict;

	if (unlikely(ahead < 0)) {
		resp_duplicate(qp, from, p);
		return;
	}
	if (unlikely(ahead != 0)) {
		resp_gap(qp, from, p);
		return;
	}
	/* Its sender has not been told of the refusal yet, so this is nothing that it may send. */
	if (unlikely(qp->untold != RESP_OK)) {
		resp_count(qp, COUNT_RX_PSN);
		return;
	}
	verdict = likely(resp_is_sized(qp, p)) ? resp_execute(qp, from, p, payload)
					       : RESP_NAK_INVALID;
	if (likely(verdict == RESP_OK))
		resp_accepted(qp, from, p);
	else
		resp_refuse(qp, verdict);
}

/* UC on a wire: neither what has come before nor what has the wrong size. A sender whose numbers
 * begin behind ours is followed, though: only what was counted can come again. */
static bool resp_uc_admits(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->rq_lock)
{
	s32 ahead = psn_ahead(p->psn, qp->epsn);

	if (ahead < 0 && -ahead <= qp->uc_run) {
		resp_count(qp, COUNT_RX_DUPLICATE);
		return false;
	}
	qp->uc_run = (u16)MIN(ahead < 0 ? 1u : qp->uc_run + (u32)ahead + 1, UINT16_MAX);
	if (likely(resp_is_sized(qp, p)))
		return true;
	resp_count(qp, COUNT_RX_LENGTH);
	qp->epsn = (p->psn + 1) & PSN_MASK;
	qp->in_message = 0;
	return false;
}

/* UC: a gap or a fault drops the rest of the message, silently; only a fault of our own receive
 * request is fatal. IBA vol 1, 9.8.2. True: the queue pair must go to ERR. */
static bool resp_receive_uc(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload)
	REQUIRES(qp->rq_lock)
{
	u8 op = resp_ops[p->opcode];
	bool gap = p->psn != qp->epsn, rest;
	enum resp_verdict verdict;

	if (op == 0) {
		resp_count(qp, COUNT_RX_OPCODE);
		return false;
	}
	if (unlikely(qp->lossy) && !resp_uc_admits(qp, p))
		return false;
	qp->epsn = (p->psn + 1) & PSN_MASK;
	if (gap || (op & OP_FIRST) != 0)
		qp->in_message = 0;
	rest = (op & OP_FIRST) == 0 && qp->in_message == 0;
	if (gap || rest)
		resp_count(qp, COUNT_RX_PSN);
	if (rest)
		return false;
	verdict = resp_message(qp, from, p, payload);
	if (likely(verdict == RESP_OK))
		return false;
	qp->in_message = 0;
	resp_count(qp, verdict == RESP_RNR ? COUNT_RX_NO_WQE : COUNT_RX_REFUSED);
	return verdict != RESP_RNR && (op & OP_SEND) != 0;
}

static void resp_established(struct ibt_qp *qp) REQUIRES(qp->rq_lock)
{
	if (qp->state == IBV_QPS_RTR && !qp->comm_established) {
		qp->comm_established = true;
		qp->quick_from = qp->quick ? (u64)qp->dest_qpn << 32 | qp->qpn : 0;
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_COMM_EST);
	}
}

static inline void resp_marked(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->rq_lock)
{
	if (unlikely(qp->lossy) && cnp_is_marked(p))
		cnp_send(qp);
}

void resp_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		  const void *payload)
{
	enum resp_verdict verdict = RESP_OK;
	bool fail = false;

	lock_acquire(&qp->rq_lock);
	if (unlikely(!qp_receives(qp))) {
		path_count(from->path, COUNT_RX_NOT_RECEIVING);
		absent_say(from, p);
	} else if (unlikely(!qp_is_peer(qp, from, p))) {
		path_count(from->path, COUNT_RX_WRONG_PEER);
		absent_say(from, p);
	} else if (qp->type == IBV_QPT_RC) {
		if (unlikely(qp->dest != from))
			__atomic_store_n(&qp->heard_as, from, __ATOMIC_RELAXED);
		resp_established(qp);
		resp_marked(qp, p);
		resp_receive_rc(qp, from, p, payload);
		if (unlikely(qp->untold != RESP_OK))
			fail = resp_tell(qp, &verdict);
	} else {
		resp_established(qp);
		resp_marked(qp, p);
		fail = resp_receive_uc(qp, from, p, payload);
		verdict = RESP_NAK_OPERATION;
	}
	if (unlikely(resp_is_unheard(qp))) {
		fail = true;
		verdict = RESP_NAK_OPERATION;
	}
	lock_release(&qp->rq_lock);
	if (unlikely(fail)) {
		qp_fail(qp);
		resp_event(qp, verdict);
	}
}
