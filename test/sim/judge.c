/* judge.c: completions: is this one due, is its status right, is the memory what it must be?
 * In: completion queues    Out: the model's new knowledge, or the end of the run
 */
#include <stdlib.h>
#include <string.h>

#include "ibt/send/wqe.h"
#include "model.h"

typedef unsigned long long ull;

u64 judge_timeout_ns(u8 code)
{
	return 4096ull << code;
}

/* IBA vol 1, table 45, in units of 10 us. */
static u64 judge_rnr_ns(u8 code)
{
	static const u32 units[32] = { 65536, 1,    2,	  3,	 4,	6,     8,     12,
				       16,    24,   32,	  48,	 64,	96,    128,   192,
				       256,   384,  512,  768,	 1024,	1536,  2048,  3072,
				       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

	return units[code] * 10000ull;
}

/* ---- what success means ---- */

static void success_read(struct send *s)
{
	u32 i = 0;

	for (u32 k = 0; k < s->slices && !s->cell->closed; k++)
		for (u32 j = 0; j < s->slice[k].length; j++, i++) {
			u8 byte = s->qp->proc->arena->bytes[s->slice[k].at + j];

			sim_check(
				cell_allows(s->cell, s->cell_from + i, byte, s->tag),
				"#%llu: byte %u read from cell %08x is %02x, which was never there",
				(ull)s->tag, s->cell_from + i, s->cell->key, byte);
		}
}

static u64 success_gather(const struct send *s)
{
	u64 value = 0;
	u8 *to = (u8 *)&value;

	for (u32 k = 0; k < s->slices; to += s->slice[k++].length)
		memcpy(to, s->qp->proc->arena->bytes + s->slice[k].at, s->slice[k].length);
	return value;
}

static void success_atomic(struct send *s)
{
	struct count_op *op = &s->counter->ops[s->op];
	u64 after;

	op->original = success_gather(s);
	op->known = true;
	sim_check(op->original >= s->floor, "#%llu found %llu, but %llu was there before",
		  (ull)s->tag, (ull)op->original, (ull)s->floor);
	after = op->adds ? op->original + op->add
			 : op->original == op->compare ? op->swap
						       : op->original;
	s->counter->floor = MAX(s->counter->floor, after);
	list_for_each(later, &s->qp->sends, struct send, node)
		if (later != s && later->counter == s->counter)
			later->floor = MAX(later->floor, after);
}

/* A fault that its own completion must show. */
static bool fault_shows(const struct send *s)
{
	if (s->fault == FAULT_DUPLICATE)
		return false;
	if (s->fault == FAULT_LKEY || s->fault == FAULT_LPD || s->fault == FAULT_BIND ||
	    s->opcode == IBV_WR_LOCAL_INV)
		return s->fault != FAULT_NONE;
	return s->fault != FAULT_NONE && sqp_is_reliable(s->qp);
}

static void send_succeeded(struct send *s)
{
	reason_succeeded(s);
	sim_check(!fault_shows(s), "qp %06x: #%llu succeeds in spite of fault %u", s->qp->qpn,
		  (ull)s->tag, s->fault);
	sim_check(!ends_are_unheard(s->qp) || ends_is_local(s),
		  "qp %06x: #%llu succeeds, but all answers go elsewhere", s->qp->qpn, (ull)s->tag);
	if (s->message != NULL) {
		s->message->sent = true;
		s->message->sent_status = IBV_WC_SUCCESS;
	}
	if (s->opcode == IBV_WR_LOCAL_INV && s->victim != NULL)
		key_invalidated(s->victim);
	window_bound(s);
	if (sqp_is_reliable(s->qp) && s->fault == FAULT_NONE) {
		if (s->counter != NULL)
			success_atomic(s);
		else if (s->cell != NULL && s->opcode == IBV_WR_RDMA_READ)
			success_read(s);
		else if (s->opcode == WQE_WR_FLUSH)
			cell_check(s->cell, "after a flush");
		else if (s->cell != NULL)
			cell_done(s->cell, s->tag);
	}
	if (s->opcode == IBV_WR_RDMA_READ && s->fault == FAULT_NONE && s->cell != NULL)
		key_release_read(s);
	s->qp->progress_ns = world.now;
	s->qp->send_count--;
	send_free(s);
}

/* ---- errors ---- */

static void error_retry(const struct send *s)
{
	const struct sqp *q = s->qp;
	u64 waited = world.now - MAX(s->posted_ns, q->moved_ns);
	u64 least = q->timeout == 0 ? SIM_NEVER
				    : (q->retry_cnt + 1u) * judge_timeout_ns(q->timeout);

	sim_check(reason_is_silence(s),
		  "qp %06x: #%llu gives up, but its peer has been there all the time", q->qpn,
		  (ull)s->tag);
	sim_check((q->peer->proc->dead && !path_is_air(q->proc, q->peer->proc)) || waited >= least,
		  "qp %06x: #%llu gives up after %llu ns, %u times %llu are asked for", q->qpn,
		  (ull)s->tag, (ull)waited, q->retry_cnt + 1, (ull)judge_timeout_ns(q->timeout));
}

/* Since when the receiver can have refused the message: the one before it was taken, by a receive
 * request that was posted no later. */
static u64 error_refused_since(const struct send *s)
{
	const struct sqp *to = s->qp->peer;
	u32 index = s->message->index;

	return index == 0 ? s->posted_ns
			  : MAX(s->posted_ns, to->messages[index - 1]->recv_posted_ns);
}

static void error_rnr(const struct send *s)
{
	const struct sqp *q = s->qp;
	u64 least = q->rnr_retry * judge_rnr_ns(q->peer->min_rnr), waited;

	sim_check(s->message != NULL && s->message->rnr_possible && q->rnr_retry != 7,
		  "qp %06x: #%llu ends with RNR_RETRY_EXC_ERR, but a receive request was there",
		  q->qpn, (ull)s->tag);
	waited = world.now - error_refused_since(s);
	sim_check(waited >= least,
		  "qp %06x: #%llu ends with RNR_RETRY_EXC_ERR after %llu ns, %llu are asked for",
		  q->qpn, (ull)s->tag, (ull)waited, (ull)least);
}

static void judge_error(const struct send *s, enum ibv_wc_status status)
{
	bool right = false;

	switch (status) {
	case IBV_WC_LOC_PROT_ERR:
		right = s->fault == FAULT_LKEY || s->fault == FAULT_LPD;
		break;
	case IBV_WC_MW_BIND_ERR:
		right = (s->opcode == IBV_WR_LOCAL_INV && s->fault == FAULT_VICTIM) ||
			s->fault == FAULT_BIND;
		break;
	case IBV_WC_REM_ACCESS_ERR:
		right = sqp_is_reliable(s->qp) && reason_is_access(s);
		break;
	case IBV_WC_REM_INV_REQ_ERR:
		right = sqp_is_reliable(s->qp) && reason_is_invalid(s);
		break;
	case IBV_WC_BAD_RESP_ERR:
		right = sqp_is_reliable(s->qp) && s->misfit && s->opcode == IBV_WR_RDMA_READ;
		break;
	case IBV_WC_REM_OP_ERR:
		right = sqp_is_reliable(s->qp) && s->message != NULL;
		break;
	case IBV_WC_RETRY_EXC_ERR:
		right = sqp_is_reliable(s->qp);
		if (right)
			error_retry(s);
		break;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		right = sqp_is_reliable(s->qp);
		if (right)
			error_rnr(s);
		break;
	default:
		break;
	}
	sim_check(right, "qp %06x: #%llu %s with fault %u ends with %s", s->qp->qpn, (ull)s->tag,
		  trace_wr_name(s->opcode), s->fault, trace_status_name(status));
}

static void send_failed(struct send *s, enum ibv_wc_status status)
{
	struct sqp *q = s->qp;

	sim_check(status == IBV_WC_WR_FLUSH_ERR || !q->flushed,
		  "qp %06x: #%llu ends with %s after an earlier one has failed", q->qpn,
		  (ull)s->tag, trace_status_name(status));
	if (status != IBV_WC_WR_FLUSH_ERR) {
		judge_error(s, status);
		q->why |= WHY_REQUEST;
	}
	if (s->message != NULL) {
		s->message->sent = true;
		s->message->sent_status = (u8)status;
	}
	sim_check(sqp_state(q) == IBV_QPS_ERR ||
			  (!sqp_is_reliable(q) && sqp_state(q) == IBV_QPS_SQE),
		  "qp %06x: #%llu fails in state %u", q->qpn, (ull)s->tag, sqp_state(q));
	q->flushed = true;
	q->send_count--;
	send_free(s);
}

static void judge_send(struct sqp *q, struct send *s, const struct ibv_wc *wc)
{
	list_for_each_safe(t, &q->sends, struct send, node) {
		if (t == s)
			break;
		sim_check(!t->signaled && !q->flushed,
			  "qp %06x: #%llu completes before #%llu", q->qpn, (ull)s->tag,
			  (ull)t->tag);
		send_succeeded(t);
	}
	if (wc->status != IBV_WC_SUCCESS) {
		send_failed(s, wc->status);
		return;
	}
	sim_check(s->signaled && !q->flushed, "qp %06x: #%llu has a completion", q->qpn,
		  (ull)s->tag);
	send_succeeded(s);
}

/* ---- receives ---- */

static bool message_has_imm(const struct message *m)
{
	return m->opcode == IBV_WR_SEND_WITH_IMM || m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The bytes [skip, skip + n) of the request's memory are text of `tag` from `from` on. */
static bool recv_has(const struct proc *p, const struct recv *r, u32 skip, u32 n, u64 tag, u64 from)
{
	u8 text[512];

	for (u32 k = 0; k < r->slices && n > 0; k++) {
		u32 at = MIN(skip, r->slice[k].length), left = MIN(n, r->slice[k].length - at);

		skip -= at;
		n -= left;
		while (left > 0) {
			u32 part = MIN(left, (u32)sizeof(text));

			text_fill(text, tag, from, part);
			if (memcmp(text, p->arena->bytes + r->slice[k].at + at, part) != 0)
				return false;
			at += part;
			from += part;
			left -= part;
		}
	}
	return n == 0;
}

/* Whose memory it is. */
static struct proc *recv_proc(const struct sqp *q, const struct recv *r)
{
	return r->srq != NULL ? r->srq->proc : q->proc;
}

static bool message_fits(const struct sqp *q, const struct message *m, const struct recv *r,
			 const struct ibv_wc *wc)
{
	u32 header = q->type == IBV_QPT_UD ? IBT_GRH : 0;
	bool write = m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
	bool inv = (wc->wc_flags & IBV_WC_WITH_INV) != 0;

	if (inv != (m->opcode == IBV_WR_SEND_WITH_INV) ||
	    (inv && (m->victim == NULL || wc->invalidated_rkey != m->victim->key)))
		return false;
	if (wc->byte_len != m->length + header || imm != message_has_imm(m) ||
	    (imm && wc->imm_data != m->imm) ||
	    wc->opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		return false;
	return write || (m->length + header <= r->length &&
			 recv_has(recv_proc(q, r), r, header, m->length, m->tag, 0));
}

/* The next message of a reliable connection that the receive request may take, or one that must be
 * refused before; NULL: there is none. Each process hears of what its own SRQs take in order. */
static struct message *message_due(const struct sqp *q, const struct recv *r)
{
	for (u32 i = q->next_message; i < q->message_count; i++) {
		struct message *m = q->messages[i];

		if (!m->delivered && m->fault != FAULT_DUPLICATE &&
		    (m->fault != FAULT_NONE || m->srq == NULL || m->srq->proc == recv_proc(q, r)))
			return m;
	}
	return NULL;
}

static void message_deliver(struct sqp *q, struct message *m, enum ibv_wc_status status)
{
	m->delivered = true;
	m->delivered_status = (u8)status;
	while (sqp_is_reliable(q) && q->next_message < q->message_count &&
	       q->messages[q->next_message]->delivered)
		q->next_message++;
}

static struct message *message_next_rc(struct sqp *q, const struct recv *r)
{
	struct message *m = message_due(q, r);

	sim_check(m != NULL, "qp %06x: receive #%llu completes, but nothing was sent", q->qpn,
		  (ull)r->tag);
	sim_check(m->fault == FAULT_NONE, "qp %06x: #%llu with fault %u arrives", q->qpn,
		  (ull)m->tag, m->fault);
	sim_check(m->srq == NULL || m->srq == r->srq,
		  "qp %06x: #%llu is taken by another SRQ than it names", q->qpn, (ull)m->tag);
	return m;
}

static struct message *message_find(struct sqp *q, const struct recv *r, const struct ibv_wc *wc)
{
	for (u32 i = q->type == IBV_QPT_UC ? q->next_message : 0; i < q->message_count; i++) {
		struct message *m = q->messages[i];

		/* A datagram may be doubled on its way. */
		if ((m->delivered && (q->type == IBV_QPT_UC || !world.plan.air)) ||
		    m->fault != FAULT_NONE || !message_fits(q, m, r, wc) ||
		    (q->type == IBV_QPT_UD && wc->src_qp != m->src_qpn))
			continue;
		q->next_message = i + 1; /* UC: what is not there by now is lost */
		return m;
	}
	sim_fail("qp %06x: receive #%llu completes with %u bytes that nobody sent, or for the "
		 "second time",
		 q->qpn, (ull)r->tag, wc->byte_len);
}

static void judge_delivery(struct sqp *q, struct recv *r, const struct ibv_wc *wc)
{
	struct message *m = sqp_is_reliable(q) ? message_next_rc(q, r) : message_find(q, r, wc);
	u32 end = q->type == IBV_QPT_UD ? m->length + IBT_GRH : m->length;

	sim_check(message_fits(q, m, r, wc),
		  "qp %06x: receive #%llu of %u bytes is not #%llu %s of %u bytes", q->qpn,
		  (ull)r->tag, wc->byte_len, (ull)m->tag, trace_wr_name(m->opcode), m->length);
	if (m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		end = 0;
	/* A UC message that broke off may have left something there. */
	sim_check(q->type == IBV_QPT_UC ||
			  recv_has(recv_proc(q, r), r, end, r->length - end, r->tag, end),
		  "qp %06x: receive #%llu: memory behind the message has changed", q->qpn,
		  (ull)r->tag);
	message_deliver(q, m, IBV_WC_SUCCESS);
	m->recv_posted_ns = r->posted_ns;
	if (m->victim != NULL)
		key_invalidated(m->victim);
	if (m->cell == NULL || m->cell->closed)
		return;
	if (q->type == IBV_QPT_UC)
		cell_done(m->cell, m->tag);
	else
		cell_check_written(m->cell, m->tag);
}

/* Is there a message that this receive request could not take? */
static struct message *message_too_long(struct sqp *q, const struct recv *r)
{
	u32 header = q->type == IBV_QPT_UD ? IBT_GRH : 0;
	struct message *due = sqp_is_reliable(q) ? message_due(q, r) : NULL;

	for (u32 i = q->type == IBV_QPT_UD ? 0 : q->next_message; i < q->message_count; i++) {
		struct message *m = q->messages[i];

		if (!m->delivered && m->length + header > r->length &&
		    m->opcode != IBV_WR_RDMA_WRITE_WITH_IMM && (due == NULL || due == m))
			return m;
	}
	return NULL;
}

static void judge_refusal(struct sqp *q, struct recv *r, enum ibv_wc_status status)
{
	struct message *m = NULL;

	if (status == IBV_WC_LOC_LEN_ERR) {
		m = message_too_long(q, r);
		sim_check(m != NULL, "qp %06x: receive #%llu of %u bytes is too short for nothing",
			  q->qpn, (ull)r->tag, r->length);
	} else {
		if (sqp_is_reliable(q))
			m = message_due(q, r);
		sim_check(!sqp_is_reliable(q) || m != NULL,
			  "qp %06x: receive #%llu fails, but nothing was sent", q->qpn,
			  (ull)r->tag);
		sim_check(status == IBV_WC_LOC_PROT_ERR &&
				  (r->bad_key || (m != NULL && m->fault == FAULT_VICTIM)),
			  "qp %06x: receive #%llu ends with %s", q->qpn, (ull)r->tag,
			  trace_status_name(status));
	}
	q->why |= WHY_RECEIVE;
	if (m != NULL && sqp_is_reliable(q))
		message_deliver(q, m, status);
}

static void judge_recv(struct sqp *q, struct recv *r, const struct ibv_wc *wc)
{
	sim_check(r->srq != NULL || list_first(&q->recvs, struct recv, node) == r,
		  "qp %06x: receive #%llu completes before an earlier one", q->qpn, (ull)r->tag);
	if (wc->status == IBV_WC_SUCCESS) {
		/* what one process hears of a target, another one may hear later */
		sim_check(!q->recv_flushed || q->type == IBV_QPT_XRC_RECV,
			  "qp %06x: receive #%llu completes after a flush", q->qpn, (ull)r->tag);
		judge_delivery(q, r, wc);
		q->proc->fresh = q;
	} else {
		/* One that fails by itself has its completion at once, but its queue pair goes to
		 * ERR when the peer has been told. */
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			judge_refusal(q, r, wc->status);
		else
			sim_check(sqp_state(q) == IBV_QPS_ERR || q->forgotten || q->proc->dead,
				  "qp %06x: receive #%llu is flushed in state %u", q->qpn,
				  (ull)r->tag, sqp_state(q));
		q->recv_flushed = true;
	}
	if (r->srq != NULL)
		event_count_taken(r->srq);
	else
		q->recv_count--;
	recv_free(r, recv_proc(q, r));
}

/* ---- polling ---- */

static struct send *find_send(struct sqp *q, u64 tag)
{
	list_for_each(s, &q->sends, struct send, node)
		if (s->tag == tag)
			return s;
	return NULL;
}

static struct recv *find_recv(struct sqp *q, u64 tag)
{
	struct list_head *list = q->srq != NULL ? &q->srq->recvs : &q->recvs;

	list_for_each(r, list, struct recv, node)
		if (r->tag == tag)
			return r;
	return NULL;
}

static void judge_one(struct scq *cq, const struct cqe *e)
{
	const void *owner = cq_source_qp(e->source);
	bool xrc = owner == NULL; /* it may outlive the target */
	struct sqp *q = xrc ? xrc_find_target(cq->proc, e->wc.qp_num) : sqp_of(owner);
	struct send *s;
	struct recv *r;

	trace(cq->proc, TR_DONE, q->qpn, e->wc.wr_id, e->wc.status, e->wc.byte_len);
	sim_check(xrc || !q->forgotten, "qp %06x: a completion after its end", q->qpn);
	sim_check(e->wc.qp_num == q->qpn, "qp %06x: a completion for %06x", q->qpn, e->wc.qp_num);
	s = find_send(q, e->wc.wr_id);
	r = s != NULL ? NULL
	    : xrc      ? xrc_find_recv(cq->proc, e->wc.wr_id)
		       : find_recv(q, e->wc.wr_id);
	sim_check(s != NULL || r != NULL,
		  "qp %06x: #%llu completes with %s, but is not outstanding", q->qpn,
		  (ull)e->wc.wr_id, trace_status_name(e->wc.status));
	if (s != NULL) {
		sim_check(cq == q->send_cq, "qp %06x: #%llu completes on another queue", q->qpn,
			  (ull)s->tag);
		judge_send(q, s, &e->wc);
	} else {
		sim_check(cq == (xrc ? r->srq->cq : q->recv_cq),
			  "qp %06x: #%llu completes on another queue", q->qpn, (ull)r->tag);
		judge_recv(q, r, &e->wc);
	}
}

void judge_poll(struct proc *p, struct scq *cq, int max)
{
	struct cqe e[16];

	while (max > 0) {
		int n = cq_pop_whole(&cq->cq, MIN(max, (int)ARRAY_LEN(e)), e, NULL);

		for (int i = 0; i < n; i++)
			judge_one(cq, &e[i]);
		if (n == 0)
			break;
		max -= n;
	}
}

void judge_forget(struct sqp *q)
{
	list_for_each_safe(s, &q->sends, struct send, node)
		send_free(s);
	list_for_each_safe(r, &q->recvs, struct recv, node)
		recv_free(r, q->proc);
	q->send_count = q->recv_count = 0;
	list_for_each(c, &q->cells, struct cell, node)
		cell_close(c);
}

/* ---- patience ---- */

/* Since when nothing but the peer's absence can have kept the oldest request; SIM_NEVER: something
 * else may. */
static u64 patience_since(const struct sqp *q, const struct send *s)
{
	const struct sqp *peer = q->peer;
	const struct proc *a = q->proc, *b = peer->proc;
	u64 since = MAX(MAX(s->posted_ns, q->progress_ns), MAX(q->sending_ns, a->stopped_ns));

	since = MAX(since, MAX(a->node->changed_ns, b->node->changed_ns));
	since = MAX(since, q->moved_ns); /* each path has a retry budget of its own */
	if (!proc_runs(a) || a->asleep || !a->node->up || !b->node->up)
		return SIM_NEVER;
	if (b->dead)
		return MAX(since, b->dead_ns);
	if (b->stopped || sqp_state_receives(peer->shown_state))
		return SIM_NEVER;
	return MAX(since, MAX(peer->absent_ns, b->stopped_ns));
}

void judge_patience(struct sqp *q)
{
	u64 since, limit = 50 * NS_PER_MS + (world.quiet ? lone_delay_ns() : 0);
	struct send *s = NULL;
	bool air;

	if (!sqp_is_reliable(q) || q->engine == NULL || list_empty(&q->sends) ||
	    q->sending_ns == SIM_NEVER)
		return;
	if (!cq_looks_empty(&q->send_cq->cq))
		return; /* its completion may be there, and the program has not looked */
	/* Those before the first that is signaled may be done already. */
	list_for_each(t, &q->sends, struct send, node)
		if (s == NULL && t->signaled)
			s = t;
	if (s == NULL)
		return;
	since = patience_since(q, s);
	air = path_is_air(q->proc, q->peer->proc);
	if (since == SIM_NEVER || (q->timeout == 0 && (air || !q->peer->proc->dead)))
		return;
	if (air || !q->peer->proc->dead)
		limit += (q->retry_cnt + 2u) * (judge_timeout_ns(q->timeout) + 5 * NS_PER_MS);
	limit += judge_rnr_ns(q->peer->min_rnr);
	sim_check(world.now - MIN(world.now, since) <= limit,
		  "qp %06x: #%llu still waits, %llu ns after its peer has gone; %llu were enough",
		  q->qpn, (ull)s->tag, (ull)(world.now - since), (ull)limit);
}
