/* tagged_judge.c: completions of tag matching: MPI's model says who takes what; bytes, flags and
 * statuses are checked, and that each entry, buffer and operation completes once.
 * In: completions    Out: what the software above does next, or the end of the run
 */
#include <arpa/inet.h>
#include <string.h>

#include "tagged.h"

/* ---- memory ---- */

/* Bytes [skip, skip + n) of the entry are text from `from` on. */
static bool entry_has(const struct tagged *tm, const struct tagged_entry *e, u32 skip, u32 n,
		      u64 text, u64 from)
{
	u8 want[512];

	for (u32 i = 0; i < e->pieces && n != 0; i++) {
		u32 at = MIN(skip, e->piece[i].length), left = MIN(n, e->piece[i].length - at);

		skip -= at;
		n -= left;
		for (u32 part; left != 0; left -= part, at += part, from += part) {
			part = MIN(left, (u32)sizeof(want));
			text_fill(want, text, from, part);
			if (memcmp(want, tm->proc->arena->bytes + e->piece[i].at + at, part) != 0)
				return false;
		}
	}
	return n == 0;
}

static void entry_check_rest(const struct tagged *tm, const struct tagged_entry *e, u32 from)
{
	sim_check(entry_has(tm, e, from, e->length - from, tagged_text(TM_ENTRY, e->number), from),
		  "p%u: entry %u: memory behind byte %u has changed", tm->proc->id, e->number,
		  from);
}

static u8 entry_byte(const struct tagged *tm, const struct tagged_entry *e, u32 at)
{
	for (u32 i = 0; i < e->pieces; at -= e->piece[i++].length)
		if (at < e->piece[i].length)
			return tm->proc->arena->bytes[e->piece[i].at + at];
	return 0;
}

static void buffer_free(struct tagged *tm, struct tagged_buffer *b)
{
	slice_give(tm->proc->arena, &b->slice);
	b->posted = false;
	tm->posted--;
}

/* ---- messages ---- */

static struct sqp *judge_qp(const struct tagged *tm, const struct ibv_wc *wc)
{
	struct sqp *q = tagged_find(tm->proc, wc->qp_num);

	sim_check(q != NULL && q->tm == tm, "p%u: a completion of queue pair %06x", tm->proc->id,
		  wc->qp_num);
	return q;
}

/* The next message that this queue pair may be told of. */
static struct tagged_message *message_next(const struct sqp *q)
{
	sim_check(q->tagged_next < q->peer->tagged_sent,
		  "qp %06x: a message is reported, but no more were sent", q->qpn);
	return q->peer->tagged_stream[q->tagged_next];
}

static struct tagged_message *message_see(struct sqp *q, u32 id, u64 tag)
{
	struct tagged_message *m = message_next(q);

	sim_check(m->id == id && m->tag == tag,
		  "qp %06x: message %u with tag %llx is reported, the next one is %u with %llx",
		  q->qpn, id, (unsigned long long)tag, m->id, (unsigned long long)m->tag);
	q->tagged_next++;
	m->seen = true;
	return m;
}

static void message_imm(struct tagged_message *m, const struct ibv_wc *wc)
{
	if ((wc->wc_flags & IBV_WC_WITH_IMM) == 0)
		return;
	sim_check(m->has_imm && wc->imm_data == m->imm && !m->imm_seen,
		  "message %u: wrong immediate data, or twice", m->id);
	m->imm_seen = true;
}

static void message_whole(const struct tagged_message *m)
{
	sim_check(!m->has_imm || m->imm_seen, "message %u: its immediate data is missing", m->id);
}

/* MPI's model has the message: which receive takes it? */
static struct tagged_entry *message_arrive(struct tagged *tm, const struct tagged_message *m)
{
	u64 number;

	if (!mpi_arrive(&tm->mpi, m->id, m->tag, &number))
		return NULL;
	return tm->entries[number];
}

/* ---- entries ---- */

static void entry_matched(struct tagged *tm, struct tagged_entry *e, struct tagged_message *m)
{
	struct tagged_entry *right = message_arrive(tm, m);

	sim_check(e->state == TM_WAITS, "p%u: entry %u matches in state %u", tm->proc->id,
		  e->number, e->state);
	sim_check(right == e, "p%u: message %u takes entry %u, by MPI's rules it takes %d",
		  tm->proc->id, m->id, e->number, right == NULL ? -1 : (int)right->number);
	sim_check(m->opcode == IBV_TMH_EAGER || m->opcode == IBV_TMH_RNDV,
		  "message %u of opcode %u matches", m->id, m->opcode);
	e->state = TM_MATCHED;
	e->message = m;
	tagged_replay_taken(e);
}

static bool is_too_small(const struct tagged_entry *e, const struct tagged_message *m)
{
	return m->length > e->length;
}

static void entry_done(struct tagged *tm, struct tagged_entry *e, const struct ibv_wc *wc)
{
	struct tagged_message *m = e->message;

	sim_check(e->state == TM_MATCHED, "p%u: entry %u has data in state %u", tm->proc->id,
		  e->number, e->state);
	sim_check(!is_too_small(e, m) && m->fault == TM_SOUND && wc->byte_len == m->length,
		  "p%u: entry %u of %u bytes gets message %u of %u, with byte_len %u",
		  tm->proc->id, e->number, e->length, m->id, m->length, wc->byte_len);
	sim_check(entry_has(tm, e, 0, m->length, tagged_text(TM_SEND, m->id), 0),
		  "p%u: entry %u has other bytes than message %u", tm->proc->id, e->number, m->id);
	entry_check_rest(tm, e, m->length);
	message_whole(m);
	tagged_entry_free(tm, e);
}

/* TMH and RVH lie in the buffer; software goes on. */
static void entry_incomplete(struct tagged *tm, struct tagged_entry *e)
{
	struct tagged_message *m = e->message;
	u8 header[TM_HEADER];
	u32 n = tagged_header(m, IBV_TMH_RNDV, header);

	sim_check(m->opcode == IBV_TMH_RNDV && is_too_small(e, m) && e->length >= n,
		  "p%u: entry %u of %u bytes says that message %u of %u does not fit",
		  tm->proc->id, e->number, e->length, m->id, m->length);
	for (u32 i = 0; i < n; i++)
		sim_check(entry_byte(tm, e, i) == header[i],
			  "p%u: entry %u: byte %u of the headers of message %u is wrong",
			  tm->proc->id, e->number, i, m->id);
	tagged_take(tm, m);
	tagged_entry_free(tm, e);
}

/* The queue pair has failed. An entry that no completion told of has been taken by the message that
 * it received last. */
static void entry_failed(struct tagged *tm, struct tagged_entry *e, struct sqp *q,
			 enum ibv_wc_status s)
{
	sim_check(tagged_may_fail(q), "qp %06x: entry %u ends with %s for no reason", q->qpn,
		  e->number, trace_status_name(s));
	if (e->state == TM_WAITS) {
		struct tagged_message *m = message_next(q);

		message_see(q, m->id, m->tag);
		entry_matched(tm, e, m);
	}
	sim_check(e->state == TM_MATCHED, "p%u: entry %u fails in state %u", tm->proc->id,
		  e->number, e->state);
	q->why |= WHY_RECEIVE;
	tagged_entry_free(tm, e);
}

static void judge_entry(struct tagged *tm, struct tagged_entry *e, const struct ibv_wc *wc,
			const struct cqe_side *side)
{
	struct sqp *q = judge_qp(tm, wc);
	bool incomplete = wc->status == IBV_WC_TM_RNDV_INCOMPLETE;

	if (wc->status != IBV_WC_SUCCESS && !incomplete) {
		entry_failed(tm, e, q, wc->status);
		return;
	}
	sim_check(wc->opcode == IBV_WC_TM_RECV &&
			  (wc->wc_flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)) != 0,
		  "p%u: entry %u completes with opcode %u, flags %x", tm->proc->id, e->number,
		  wc->opcode, wc->wc_flags);
	if (wc->wc_flags & IBV_WC_TM_MATCH)
		entry_matched(tm, e, message_see(q, side->priv, side->tag));
	else
		sim_check(side->tag == 0 && side->priv == 0, "p%u: entry %u has a tag once more",
			  tm->proc->id, e->number);
	message_imm(e->message, wc);
	if (incomplete)
		entry_incomplete(tm, e);
	else if (wc->wc_flags & IBV_WC_TM_DATA_VALID)
		entry_done(tm, e, wc);
}

/* ---- buffers ---- */

static bool buffer_has(const struct tagged *tm, const struct tagged_buffer *b,
		       const struct tagged_message *m)
{
	u8 want[TM_HEADER], text[512];
	const u8 *at = tm->proc->arena->bytes + b->slice.at;
	u32 n = tagged_header(m, m->opcode, want), rndv = m->opcode == IBV_TMH_RNDV;

	if (memcmp(at, want, n) != 0)
		return false;
	/* what lies behind the RVH is the packet's own text */
	for (u32 part, from = 0, length = m->packet.length - n; from < length; from += part) {
		part = MIN(length - from, (u32)sizeof(text));
		text_fill(text, tagged_text(TM_SEND, m->id), rndv ? n + from : from, part);
		if (memcmp(at + n + from, text, part) != 0)
			return false;
	}
	return true;
}

static void judge_fin(struct tagged *tm, struct sqp *q, const struct tagged_buffer *b, u32 id,
		      u32 length)
{
	struct tagged_message *m = id < tagged_message_count ? tagged_messages[id] : NULL;
	u8 want[TM_HEADER];

	sim_check(m != NULL && m->from == q && m->opcode == IBV_TMH_RNDV && !m->fin,
		  "qp %06x: a FIN for message %u, or a second one", q->qpn, id);
	sim_check(length == tagged_header(m, IBV_TMH_FIN, want) &&
			  memcmp(tm->proc->arena->bytes + b->slice.at, want, length) == 0,
		  "qp %06x: the FIN of message %u of %u bytes is not its request", q->qpn, id,
		  length);
	m->fin = true;
	sim_check(mem_deregister(&q->proc->mem, m->region) == 0, "a key is gone");
	slice_give(q->proc->arena, &m->data);
}

static void judge_unexpected(struct tagged *tm, struct sqp *q, struct tagged_message *m, u64 number)
{
	struct tagged_entry *e;

	tagged_replay_unexpected(tm, q, m, number);
	tm->handled++;
	e = message_arrive(tm, m);
	if (e == NULL)
		return;
	sim_check(e->state == TM_WAITS, "p%u: message %u belongs to entry %u in state %u",
		  tm->proc->id, m->id, e->number, e->state);
	tagged_take(tm, m);
	tagged_withdraw(tm, e);
}

static void judge_buffer(struct tagged *tm, struct tagged_buffer *b, const struct ibv_wc *wc,
			 const struct cqe_side *side, u64 number)
{
	struct sqp *q = judge_qp(tm, wc);
	struct tagged_message *m;
	struct ibv_tmh tmh;

	sim_check(b->posted, "p%u: buffer %u completes twice", tm->proc->id, b->number);
	if (wc->status != IBV_WC_SUCCESS) {
		sim_check(tagged_may_fail(q), "qp %06x: buffer %u ends with %s for no reason",
			  q->qpn, b->number, trace_status_name(wc->status));
		buffer_free(tm, b);
		return;
	}
	sim_check(side->tag == 0 && side->priv == 0 &&
			  (wc->wc_flags & (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)) == 0,
		  "p%u: buffer %u with a tag or flags %x", tm->proc->id, b->number, wc->wc_flags);
	memcpy(&tmh, tm->proc->arena->bytes + b->slice.at, TM_TMH);
	sim_check((tmh.opcode == IBV_TMH_NO_TAG || tmh.opcode == IBV_TMH_FIN) ==
			  (wc->opcode == IBV_WC_TM_NO_TAG),
		  "p%u: buffer %u completes with opcode %u", tm->proc->id, b->number, wc->opcode);
	if (tmh.opcode == IBV_TMH_FIN) {
		judge_fin(tm, q, b, ntohl(tmh.app_ctx), wc->byte_len);
		buffer_free(tm, b);
		return;
	}
	m = message_see(q, ntohl(tmh.app_ctx), be64toh(tmh.tag));
	sim_check(wc->byte_len == m->packet.length && buffer_has(tm, b, m),
		  "p%u: buffer %u of %u bytes is not message %u", tm->proc->id, b->number,
		  wc->byte_len, m->id);
	message_imm(m, wc);
	message_whole(m);
	buffer_free(tm, b);
	if (m->opcode != IBV_TMH_NO_TAG)
		judge_unexpected(tm, q, m, number);
}

/* ---- operations ---- */

static void judge_delete(struct tagged *tm, struct tagged_op *op, enum ibv_wc_status status)
{
	struct tagged_entry *e = op->entry;
	bool late = status == IBV_WC_TM_ERR;

	sim_check(!late || !op->must_succeed,
		  "p%u: entry %u was taken by a message that overtook one for the same receive",
		  tm->proc->id, e->number);
	sim_check(late || e->state == TM_SOFT || e->state == TM_WAITS,
		  "p%u: entry %u in state %u was deleted", tm->proc->id, e->number, e->state);
	e->cancelling = false;
	if (late || e->state == TM_GONE)
		return;
	if (e->state == TM_WAITS)
		sim_check(mpi_cancel(&tm->mpi, e->number), "entry %u is not posted", e->number);
	entry_check_rest(tm, e, 0);
	tagged_entry_free(tm, e);
}

static void judge_op(struct tagged *tm, struct tagged_op *op, const struct ibv_wc *wc)
{
	static const u8 opcodes[] = { [IBV_WR_TAG_ADD] = IBV_WC_TM_ADD - IBV_WC_TM_ADD,
				      [IBV_WR_TAG_DEL] = IBV_WC_TM_DEL - IBV_WC_TM_ADD,
				      [IBV_WR_TAG_SYNC] = IBV_WC_TM_SYNC - IBV_WC_TM_ADD };
	bool asks = (wc->wc_flags & IBV_WC_TM_SYNC_REQ) != 0;

	while (tm->next_op < tm->op_count && !tm->ops[tm->next_op]->signalled)
		tm->next_op++;
	sim_check(tm->next_op == op->number, "p%u: operation %u completes before %u",
		  tm->proc->id, op->number, tm->next_op);
	tm->next_op++;
	tm->signalled--;
	op->done = true;
	sim_check(wc->opcode == (enum ibv_wc_opcode)(IBV_WC_TM_ADD + opcodes[op->opcode]),
		  "p%u: operation %u completes with opcode %u", tm->proc->id, op->number,
		  wc->opcode);
	sim_check(wc->status == IBV_WC_SUCCESS ||
			  (wc->status == IBV_WC_TM_ERR && op->opcode == IBV_WR_TAG_DEL),
		  "p%u: operation %u ends with %s", tm->proc->id, op->number,
		  trace_status_name(wc->status));
	sim_check(!op->judged || asks == op->lags,
		  "p%u: operation %u: SYNC_REQ is %u, must be %u", tm->proc->id, op->number, asks,
		  op->lags);
	if (op->opcode != IBV_WR_TAG_DEL)
		return;
	sim_check(!op->judged || (wc->status == IBV_WC_TM_ERR) == op->late,
		  "p%u: operation %u deletes entry %u: %s, but it was there: %u", tm->proc->id,
		  op->number, op->entry->number, trace_status_name(wc->status), !op->late);
	judge_delete(tm, op, wc->status);
}

void tagged_judge(struct tagged *tm, const struct cqe *c, const struct cqe_side *side)
{
	u32 number = (u32)c->wc.wr_id;
	u64 position = tm->polled++;

	trace(tm->proc, TR_DONE, c->wc.qp_num, c->wc.wr_id, c->wc.status, c->wc.byte_len);
	tagged_replay(tm, position);
	switch (c->wc.wr_id >> 56) {
	case TM_OP:
		sim_check(number < tm->op_count && tm->ops[number]->signalled &&
				  !tm->ops[number]->done,
			  "p%u: operation %u completes, or once more", tm->proc->id, number);
		judge_op(tm, tm->ops[number], &c->wc);
		return;
	case TM_ENTRY:
		sim_check(number < tm->entry_count, "p%u: entry %u completes", tm->proc->id,
			  number);
		judge_entry(tm, tm->entries[number], &c->wc, side);
		break;
	case TM_BUFFER:
		sim_check(number < tm->buffer_count, "p%u: buffer %u completes", tm->proc->id,
			  number);
		judge_buffer(tm, tm->buffers[number], &c->wc, side, position);
		break;
	default:
		sim_fail("p%u: a completion of %llx", tm->proc->id,
			 (unsigned long long)c->wc.wr_id);
	}
	tagged_replay_seen(judge_qp(tm, &c->wc));
}

/* ---- send queues ---- */

static void judge_read(struct sqp *q, struct tagged_message *m)
{
	u8 text[512];

	for (u32 part, at = 0; at < m->length; at += part) {
		part = MIN(m->length - at, (u32)sizeof(text));
		text_fill(text, tagged_text(TM_SEND, m->id), at, part);
		sim_check(memcmp(text, q->proc->arena->bytes + m->sink.at + at, part) == 0,
			  "qp %06x: message %u is read with other bytes", q->qpn, m->id);
	}
	sim_check(m->fault == TM_SOUND, "qp %06x: message %u is read in spite of fault %u", q->qpn,
		  m->id, m->fault);
	m->step = 2;
}

void tagged_judge_send(struct tagged *tm, const struct cqe *c)
{
	struct tagged_message *m;
	struct sqp *q = judge_qp(tm, &c->wc);
	u32 number = (u32)c->wc.wr_id;
	bool well = c->wc.status == IBV_WC_SUCCESS;

	trace(tm->proc, TR_DONE, c->wc.qp_num, c->wc.wr_id, c->wc.status, c->wc.byte_len);
	sim_check(number < tagged_message_count, "qp %06x: %llx completes", q->qpn,
		  (unsigned long long)c->wc.wr_id);
	sim_check(well || tagged_may_fail(q), "qp %06x: %llx ends with %s for no reason", q->qpn,
		  (unsigned long long)c->wc.wr_id, trace_status_name(c->wc.status));
	m = tagged_messages[number];
	q->tagged_posted--;
	q->why |= well ? 0 : WHY_REQUEST;
	switch (c->wc.wr_id >> 56) {
	case TM_SEND:
		sim_check(m->from == q && !m->sent, "qp %06x: message %u is sent twice", q->qpn,
			  number);
		m->sent = true;
		m->sent_well = well;
		slice_give(q->proc->arena, &m->packet);
		break;
	case TM_READ:
		sim_check(m->from->peer == q && m->step == 1, "qp %06x: READ of %u", q->qpn,
			  number);
		if (well)
			judge_read(q, m);
		else
			m->step = 4;
		break;
	case TM_FIN:
		sim_check(m->from->peer == q && m->step == 3, "qp %06x: FIN of %u", q->qpn,
			  number);
		m->step = 4;
		slice_give(q->proc->arena, &m->sink);
		break;
	default:
		sim_fail("qp %06x: %llx completes", q->qpn, (unsigned long long)c->wc.wr_id);
	}
}
