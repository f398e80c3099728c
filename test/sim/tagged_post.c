/* tagged_post.c: messages, receives and list operations, drawn by lot.
 * In: a process with time on its hands    Out: posted requests, and what is known about them
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "tagged.h"

struct tagged_message *tagged_messages[TM_MESSAGES];
u32 tagged_message_count;

static void *tagged_new(size_t size)
{
	void *p = calloc(1, size);

	if (p == NULL)
		abort();
	return p;
}

static u64 tagged_id(enum tagged_kind kind, u32 number)
{
	return (u64)kind << 56 | number;
}

u64 tagged_text(u64 kind, u32 number)
{
	return kind << 40 | number;
}

static u8 *tagged_at(const struct proc *p, u32 at)
{
	return p->arena->bytes + at;
}

static struct ibv_sge tagged_sge(const struct proc *p, u32 pd, u32 at, u32 length)
{
	return (struct ibv_sge){ .addr = (u64)(uintptr_t)tagged_at(p, at),
				 .length = length,
				 .lkey = p->local_key[pd] };
}

/* ---- messages ---- */

u32 tagged_header(const struct tagged_message *m, u8 opcode, u8 *to)
{
	struct ibv_tmh tmh = { .opcode = opcode,
			       .app_ctx = htonl(m->id),
			       .tag = htobe64(m->tag) };
	struct ibv_rvh rvh = { .rkey = htonl(m->key), .len = htonl(m->length) };
	u64 va = m->data.at;

	memcpy(to, &tmh, TM_TMH);
	if (opcode != IBV_TMH_RNDV && opcode != IBV_TMH_FIN)
		return TM_TMH;
	rvh.va = htobe64(m->fault == TM_TOO_FAR ? va + ARENA_BYTES : va);
	memcpy(to + TM_TMH, &rvh, TM_RVH);
	return TM_TMH + TM_RVH;
}

static bool message_register(struct tagged_message *m)
{
	struct proc *p = m->from->proc;
	struct mem_region r = { .length = MAX(m->length, 1u),
				.access = IBV_ACCESS_REMOTE_READ,
				.pd = m->from->pd + 1,
				.flags = MEM_CONTIGUOUS };

	if (!slice_take(p->arena, MAX(m->length, 1u), &m->data))
		return false;
	slice_write(p->arena, &m->data, tagged_text(TM_SEND, m->id), 0);
	r.addr = (u64)(uintptr_t)tagged_at(p, m->data.at);
	r.iova = m->data.at; /* no address goes into the history */
	sim_check(mem_register(&p->mem, &r, &m->region) == 0, "no key");
	m->key = m->fault == TM_BAD_KEY ? m->region ^ 1u << 5 : m->region;
	return true;
}

static void message_draw(struct tagged_message *m, struct sqp *q)
{
	u32 lot = rng_below(RNG, 10);

	m->id = tagged_message_count;
	m->from = q;
	m->owner = q->proc;
	m->posted_ns = world.now;
	m->tag = 0xa5ull << 56 | (u64)q->proc->id << 8 | rng_below(RNG, TM_TAGS);
	m->opcode = lot < 6 ? IBV_TMH_EAGER : lot < 9 ? IBV_TMH_RNDV : IBV_TMH_NO_TAG;
	m->length = (u32)rng_skewed(RNG, 0, m->opcode == IBV_TMH_RNDV ? tagged_plan.data
								       : tagged_plan.eager);
	m->has_imm = rng_percent(RNG, 20);
	m->imm = m->id ^ 0x5a5a5a5a;
	m->index = q->tagged_sent;
	if (m->opcode == IBV_TMH_RNDV && m->length != 0 &&
	    rng_permille(RNG, world.plan.fault_permille / 4))
		m->fault = rng_percent(RNG, 50) ? TM_BAD_KEY : TM_TOO_FAR;
}

/* The packet's memory is filled; false: no room. */
static bool message_pack(struct tagged_message *m)
{
	struct proc *p = m->from->proc;
	u32 more = m->opcode == IBV_TMH_RNDV && rng_percent(RNG, 30) ? rng_below(RNG, TM_MORE) : 0;
	u32 headers = TM_TMH + (m->opcode == IBV_TMH_RNDV ? TM_RVH + more : 0);
	u32 payload = m->opcode == IBV_TMH_RNDV ? 0 : m->length;

	if (m->opcode == IBV_TMH_RNDV && !message_register(m))
		return false;
	if (!slice_take(p->arena, headers + payload, &m->packet)) {
		if (m->key != 0)
			sim_check(mem_deregister(&p->mem, m->region) == 0, "a key is gone");
		slice_give(p->arena, &m->data);
		return false;
	}
	m->headers = headers;
	slice_write(p->arena, &m->packet, tagged_text(TM_SEND, m->id), 0);
	text_fill(tagged_at(p, m->packet.at + headers), tagged_text(TM_SEND, m->id), 0, payload);
	tagged_header(m, m->opcode, tagged_at(p, m->packet.at));
	arena_settle(p->arena, m->packet.at, m->packet.length);
	return true;
}

void tagged_send(struct sqp *q)
{
	struct tagged_message *m;
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = { .num_sge = 1, .sg_list = sge, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	u32 cut;

	if (tagged_message_count == TM_MESSAGES || q->tagged_posted >= q->cap.max_send_wr)
		return;
	m = tagged_new(sizeof(*m));
	message_draw(m, q);
	if (!message_pack(m)) {
		free(m);
		return;
	}
	tagged_messages[tagged_message_count++] = m;
	cut = m->packet.length;
	if (q->cap.max_send_sge > 1 && rng_percent(RNG, 50))
		cut = rng_percent(RNG, 50) ? m->headers : rng_below(RNG, cut + 1);
	sge[0] = tagged_sge(q->proc, q->pd, m->packet.at, cut);
	sge[1] = tagged_sge(q->proc, q->pd, m->packet.at + cut, m->packet.length - cut);
	wr.num_sge = 1 + (cut != m->packet.length);
	wr.wr_id = tagged_id(TM_SEND, m->id);
	wr.opcode = m->has_imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
	wr.imm_data = m->imm;
	trace(q->proc, TR_POST, q->qpn, m->id, wr.opcode | (u64)m->fault << 8, m->packet.length);
	sim_check(ibt_post_send(q->engine, &wr, &bad, NULL) == 0,
		  "qp %06x cannot post message %u", q->qpn, m->id);
	q->tagged_stream[q->tagged_sent++] = m;
	q->tagged_posted++;
	world.requests_left -= world.requests_left != 0;
}

/* ---- what software reads itself ---- */

void tagged_take(struct tagged *tm, struct tagged_message *m)
{
	struct sqp *q = m->from->peer;

	if (m->opcode != IBV_TMH_RNDV || q->cap.max_send_wr == 0 ||
	    !slice_take(tm->proc->arena, MAX(m->length, (u32)TM_HEADER), &m->sink)) /* FIN, too */
		return;
	m->by_software = true;
}

static void read_post(struct sqp *q, struct tagged_message *m)
{
	struct ibv_sge sge = tagged_sge(q->proc, q->pd, m->sink.at, m->length);
	struct ibv_send_wr wr = { .wr_id = tagged_id(TM_READ, m->id),
				  .opcode = IBV_WR_RDMA_READ,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .wr.rdma = { .rkey = m->key } }, *bad;
	struct ibv_rvh rvh;
	u8 header[TM_HEADER];

	tagged_header(m, IBV_TMH_RNDV, header);
	memcpy(&rvh, header + TM_TMH, TM_RVH);
	wr.wr.rdma.remote_addr = be64toh(rvh.va);
	arena_loosen(q->proc->arena, m->sink.at, m->sink.length);
	trace(q->proc, TR_POST, q->qpn, m->id, wr.opcode, m->length);
	sim_check(ibt_post_send(q->engine, &wr, &bad, NULL) == 0, "qp %06x cannot post a READ",
		  q->qpn);
	m->step = 1;
	q->tagged_posted++;
}

static void fin_post(struct sqp *q, struct tagged_message *m)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = tagged_id(TM_FIN, m->id),
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1 }, *bad;

	sge = tagged_sge(q->proc, q->pd, m->sink.at, tagged_header(m, IBV_TMH_FIN,
							    tagged_at(q->proc, m->sink.at)));
	arena_settle(q->proc->arena, m->sink.at, m->sink.length);
	trace(q->proc, TR_POST, q->qpn, m->id, wr.opcode, sge.length);
	sim_check(ibt_post_send(q->engine, &wr, &bad, NULL) == 0, "qp %06x cannot post a FIN",
		  q->qpn);
	m->step = 3;
	q->tagged_posted++;
}

void tagged_go_on(struct sqp *q)
{
	if (sqp_state(q) != IBV_QPS_RTS)
		return;
	for (u32 i = 0; i < q->peer->tagged_sent && q->tagged_posted < q->cap.max_send_wr; i++) {
		struct tagged_message *m = q->peer->tagged_stream[i];

		if (!m->by_software)
			continue;
		if (m->step == 0)
			read_post(q, m);
		else if (m->step == 2)
			fin_post(q, m);
	}
}

/* ---- buffers ---- */

static bool buffer_post(struct tagged *tm)
{
	struct tagged_buffer *b;
	struct ibv_recv_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_sge sge;
	int err;

	if (tm->buffer_count == TM_ITEMS)
		return false;
	b = tagged_new(sizeof(*b));
	if (!slice_take(tm->proc->arena, TM_HEADER + tagged_plan.eager, &b->slice)) {
		free(b);
		return false;
	}
	b->number = tm->buffer_count;
	b->posted = true;
	slice_write(tm->proc->arena, &b->slice, tagged_text(TM_BUFFER, b->number), 0);
	arena_loosen(tm->proc->arena, b->slice.at, b->slice.length);
	sge = tagged_sge(tm->proc, tm->pd, b->slice.at, b->slice.length);
	wr.wr_id = tagged_id(TM_BUFFER, b->number);
	wr.sg_list = &sge;
	err = ibt_srq_post(tm->srq, &wr, &bad);
	sim_check(err == 0, "p%u cannot post a buffer: %d, with %u of %u posted", tm->proc->id, err,
		  tm->posted, tm->max_wr);
	trace(tm->proc, TR_RECV, tm->proc->id, b->number, b->slice.length, 1);
	tm->buffers[tm->buffer_count++] = b;
	tm->posted++;
	return true;
}

void tagged_buffers(struct tagged *tm, u32 depth)
{
	while (tm->posted < MIN(depth, tm->max_wr) && buffer_post(tm))
		continue;
}

/* ---- list operations ---- */

static bool tagged_half_received(const struct tagged *tm)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->tm == tm && sqps[i]->tagged_begun)
			return true;
	return false;
}

/* Room for one more operation, a signalled one too. */
static bool op_has_room(const struct tagged *tm)
{
	return tm->op_count < TM_ITEMS && tm->signalled < tm->max_ops;
}

static struct tagged_op *op_post(struct tagged *tm, struct ibv_ops_wr *wr, struct tagged_entry *e,
			     bool signalled)
{
	struct tagged_op *op = tagged_new(sizeof(*op));
	struct ibv_ops_wr *bad;
	int err;

	op->number = tm->op_count;
	op->opcode = wr->opcode;
	op->entry = e;
	op->signalled = signalled;
	op->syncs = (wr->flags & IBV_OPS_TM_SYNC) != 0;
	op->count = (u16)wr->tm.unexpected_cnt;
	op->marker = tagged_position(tm);
	op->doubtful = tagged_half_received(tm);
	wr->wr_id = tagged_id(TM_OP, op->number);
	wr->flags |= signalled ? IBV_OPS_SIGNALED : 0;
	tm->ops[tm->op_count++] = op;
	tm->signalled += signalled;
	if (op->syncs)
		tm->told = op->count;
	trace(tm->proc, TR_POST, tm->proc->id, op->number, wr->opcode, (u64)wr->flags);
	err = ibt_srq_post_ops(tm->srq, wr, &bad);
	sim_check(err == 0, "p%u: operation %u of opcode %u is refused: %d", tm->proc->id,
		  op->number, wr->opcode, err);
	return op;
}

/* What software says of unexpected messages; sometimes nothing, or what was so some time ago. */
static void op_count(const struct tagged *tm, struct ibv_ops_wr *wr)
{
	u16 behind = (u16)(tm->handled - tm->told);

	if (rng_percent(RNG, tagged_plan.lazy_sync_percent) && !world.quiet) {
		if (rng_percent(RNG, 50))
			return;
		behind = (u16)rng_below(RNG, behind + 1u);
	}
	wr->flags |= IBV_OPS_TM_SYNC;
	wr->tm.unexpected_cnt = (u16)(tm->told + behind);
}

void tagged_sync(struct tagged *tm)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_TM_SYNC };

	if (!op_has_room(tm))
		return;
	op_count(tm, &wr);
	wr.flags |= IBV_OPS_TM_SYNC;
	if (wr.tm.unexpected_cnt == 0)
		wr.tm.unexpected_cnt = tm->told;
	op_post(tm, &wr, NULL, rng_percent(RNG, 50));
}

static void op_delete(struct tagged *tm, struct tagged_entry *e, bool signalled, bool must)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_DEL, .tm.handle = e->handle };

	op_count(tm, &wr);
	op_post(tm, &wr, e, signalled)->must_succeed = must;
}

void tagged_cancel(struct tagged *tm, struct tagged_entry *e)
{
	if (e->state != TM_WAITS || e->cancelling || !op_has_room(tm))
		return;
	e->cancelling = true;
	op_delete(tm, e, true, false);
}

void tagged_cancel_any(struct tagged *tm)
{
	u32 begin = rng_below(RNG, tm->entry_count);

	for (u32 i = 0; i < tm->entry_count; i++) {
		struct tagged_entry *e = tm->entries[(begin + i) % tm->entry_count];

		if (e->state == TM_WAITS && !e->cancelling) {
			tagged_cancel(tm, e);
			break;
		}
	}
}

void tagged_withdraw(struct tagged *tm, struct tagged_entry *e)
{
	bool signalled = rng_percent(RNG, 50) && op_has_room(tm);

	e->state = TM_SOFT;
	if (e->cancelling)
		return;
	sim_check(tm->op_count < TM_ITEMS, "too many operations for this world");
	op_delete(tm, e, signalled, true);
	if (!signalled)
		tagged_entry_free(tm, e);
}

void tagged_entry_free(struct tagged *tm, struct tagged_entry *e)
{
	for (u32 i = 0; i < e->pieces; i++)
		slice_give(tm->proc->arena, &e->piece[i]);
	e->pieces = 0;
	e->state = TM_GONE;
	tm->listed--;
}

/* ---- receives ---- */

static bool entry_memory(struct tagged *tm, struct tagged_entry *e, struct ibv_sge *sge)
{
	u32 most = MIN(tm->max_sge, (u32)TM_PIECES), left = e->length;
	u32 pieces = left == 0 ? rng_below(RNG, 2) : 1 + rng_below(RNG, most);

	for (u32 i = 0; i < pieces; i++) {
		u32 length = i + 1 == pieces ? left : rng_below(RNG, left + 1);
		struct slice *s = &e->piece[i];

		if (!slice_take(tm->proc->arena, length, s))
			return false;
		slice_write(tm->proc->arena, s, tagged_text(TM_ENTRY, e->number), e->length - left);
		arena_loosen(tm->proc->arena, s->at, s->length);
		sge[i] = tagged_sge(tm->proc, tm->pd, s->at, length);
		e->pieces = i + 1;
		left -= length;
	}
	return true;
}

static void entry_draw(struct tagged *tm, struct tagged_entry *e)
{
	u64 source = (u64)rng_below(RNG, world.plan.procs) << 8, top = 0xa5ull << 56;
	static const u64 masks[] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, 0xff, ~0xffull, 0 };

	e->number = tm->entry_count;
	e->mask = masks[rng_below(RNG, ARRAY_LEN(masks))];
	e->tag = (top | source | rng_below(RNG, TM_TAGS)) & e->mask;
	e->length = MAX(tagged_plan.data, tagged_plan.eager);
	if (rng_permille(RNG, tagged_plan.short_permille))
		e->length = rng_below(RNG, 200);
}

void tagged_receive(struct tagged *tm)
{
	struct ibv_sge sge[TM_PIECES];
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD };
	struct tagged_entry *e;
	u64 id;

	if (tm->entry_count == TM_ITEMS || tm->listed >= tm->max_tags || !op_has_room(tm))
		return;
	e = tagged_new(sizeof(*e));
	entry_draw(tm, e);
	if (!entry_memory(tm, e, sge)) {
		for (u32 i = 0; i < e->pieces; i++)
			slice_give(tm->proc->arena, &e->piece[i]);
		free(e);
		return;
	}
	tm->entries[tm->entry_count++] = e;
	tm->listed++;
	if (mpi_post(&tm->mpi, e->number, e->tag, e->mask, &id)) {
		e->state = TM_SOFT;
		tagged_take(tm, tagged_messages[id]);
		tagged_entry_free(tm, e);
		return;
	}
	wr.tm.add.recv_wr_id = tagged_id(TM_ENTRY, e->number);
	wr.tm.add.sg_list = sge;
	wr.tm.add.num_sge = (int)e->pieces;
	wr.tm.add.tag = e->tag;
	wr.tm.add.mask = e->mask;
	op_count(tm, &wr);
	op_post(tm, &wr, e, rng_percent(RNG, 50));
	e->handle = wr.tm.handle;
}
