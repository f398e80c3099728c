/* post.c: requests drawn by lot, with now and then something wrong in them.
 * In: a queue pair with time on its hands    Out: posted requests, and what is known about them
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ibt/send/wqe.h"
#include "model.h"

struct sim_ah {
	struct ibv_ah ibv;
	struct path_av av;
};

/* A request on its way to the engine. */
struct draft {
	struct send *s;
	struct sqp *to; /* NULL: a group */
	struct ibv_send_wr wr;
	struct ibv_sge sge[MAX_SGES];
	struct sim_ah ah;
	u64 compare, swap;
	u32 sound; /* bytes before the piece of local memory that will be refused */
};

enum { POST_LIST = 4 };

static bool post_av_of(struct ibv_ah *ibv, u32 pd, struct path_av *av)
{
	*av = container_of(ibv, struct sim_ah, ibv)->av;
	return true;
}

static bool draw_is_message(u32 opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool draw_is_cell(u32 opcode)
{
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       opcode == IBV_WR_RDMA_READ;
}

static bool draw_is_atomic(u32 opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool draw_is_placed(u32 opcode)
{
	return opcode == IBV_WR_ATOMIC_WRITE || opcode == WQE_WR_FLUSH;
}

/* ---- lengths and places ---- */

static struct recv *recv_at(const struct sqp *q, u64 index)
{
	list_for_each(r, &q->recvs, struct recv, node)
		if (r->index == index)
			return r;
	return NULL;
}

/* Mostly little, sometimes anything, sometimes all. */
static u32 draw_span(u32 least, u32 limit)
{
	u32 kind = rng_below(RNG, 10);

	if (limit <= least)
		return limit;
	return kind < 5 ? (u32)rng_skewed(RNG, least, limit)
	       : kind < 8 ? (u32)rng_range(RNG, least, limit)
			  : limit;
}

/* At most as much as the receive request that this message will meet takes, unless that is to go
 * wrong. */
static u32 draw_message_length(struct sqp *q, struct sqp *to, u32 opcode)
{
	u32 limit = rng_permille(RNG, world.plan.large_permille) ? LARGE_BYTES : 6000;
	/* where messages may get lost, each must be known by its text or its immediate data */
	u32 least = sqp_is_reliable(q) || opcode == IBV_WR_SEND_WITH_IMM ? 0 : 8;
	struct recv *r;

	if (q->type == IBV_QPT_UD)
		return draw_span(least, DATAGRAM_BYTES);
	if (to->srq != NULL || to->type == IBV_QPT_XRC_RECV)
		limit = SHARED_BYTES;
	else if (q->type == IBV_QPT_UC)
		limit = UC_BYTES;
	else if ((r = recv_at(to, to->message_count - to->skipped + q->drawn)) != NULL)
		limit = r->length;
	if (rng_permille(RNG, world.plan.fault_permille / 4))
		limit += 100;
	return draw_span(least, limit);
}

static u32 cell_right(u32 opcode)
{
	return opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
}

struct cell *post_draw_cell(const struct sqp *to, u32 right, bool amiss)
{
	u32 skip = rng_below(RNG, to->cell_count);
	struct cell *found = NULL;

	list_for_each(c, &to->cells, struct cell, node) {
		bool gone = c->withdrawn || c->by_peer;
		bool good = !gone && (c->access & right) != 0 &&
			    c->version_count < 48;

		if (good == amiss || (c->victim_of != 0 && !gone))
			continue;
		found = c;
		if (skip-- == 0)
			break;
	}
	return found;
}

static void draw_remote(struct draft *d, u64 va, u32 rkey)
{
	if (draw_is_atomic(d->wr.opcode)) {
		d->wr.wr.atomic.remote_addr = va;
		d->wr.wr.atomic.rkey = rkey;
	} else {
		d->wr.wr.rdma.remote_addr = va;
		d->wr.wr.rdma.rkey = rkey;
	}
}

/* What a READ under way reads may be written again: only a fence says what it finds. */
static struct send *draw_read_before(const struct draft *d)
{
	if (d->s->opcode != IBV_WR_RDMA_WRITE || list_empty(&d->s->qp->sends) ||
	    !rng_percent(RNG, 50))
		return NULL;
	for (struct list_head *n = d->s->qp->sends.prev; n != &d->s->qp->sends; n = n->prev) {
		struct send *r = list_entry(n, struct send, node);
		const struct cell *c = r->cell;

		if (r->opcode == IBV_WR_RDMA_READ && r->fault == FAULT_NONE && !c->withdrawn &&
		    c->victim_of == 0 && (c->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
		    c->version_count < 48)
			return r;
	}
	return NULL;
}

/* The same bytes, or some of them. */
static bool draw_same_place(struct draft *d)
{
	struct send *r = draw_read_before(d), *s = d->s;

	if (r == NULL)
		return false;
	s->cell = r->cell;
	s->cell_from = r->cell_from;
	s->length = draw_span(0, r->length);
	s->fenced = rng_percent(RNG, 70);
	draw_remote(d, s->cell->iova + s->cell_from, s->cell->key);
	return true;
}

static bool draw_place(struct draft *d, bool amiss)
{
	struct send *s = d->s;
	struct cell *c = post_draw_cell(d->to, cell_right(s->opcode), amiss);

	if (c == NULL || (amiss && s->opcode == IBV_WR_RDMA_WRITE_WITH_IMM))
		return false;
	s->cell = c;
	s->cell_from = rng_percent(RNG, 50) ? 0 : rng_below(RNG, c->slice.length);
	s->length = draw_span(amiss, c->slice.length - s->cell_from);
	if (amiss && c->version_count >= 48)
		return false;
	if (amiss)
		s->fault = c->withdrawn || c->by_peer ? FAULT_WITHDRAWN : FAULT_ACCESS;
	draw_remote(d, c->iova + s->cell_from, c->key);
	return true;
}

static struct cell *draw_rebindable(struct sqp *owner, bool gone, bool amiss)
{
	u32 skip = rng_below(RNG, owner->cell_count);
	struct cell *found = NULL;

	list_for_each(c, &owner->cells, struct cell, node) {
		if (!(gone ? c->withdrawn
			   : key_is_rebindable(c) && !c->withdrawn && c->victim_of == 0 &&
				     (amiss || c->kind != CELL_WINDOW)))
			continue;
		found = c;
		if (skip-- == 0)
			break;
	}
	return found;
}

/* The key that a SEND_WITH_INV or a LOCAL_INV makes invalid: the owner's, if it can be. */
static bool draw_victim(struct draft *d, struct sqp *owner, bool amiss)
{
	struct send *s = d->s;
	struct cell *c = amiss && rng_percent(RNG, 40) ? window_of_another(owner, 0, 1)
							  : NULL;

	if (c != NULL) {
		d->wr.invalidate_rkey = c->key;
		s->fault = FAULT_VICTIM;
		return true;
	}
	c = draw_rebindable(owner, amiss && rng_percent(RNG, 50), amiss);
	if (c == NULL)
		return false;
	d->wr.invalidate_rkey = c->key;
	if (!amiss) {
		s->victim = c;
		c->victim_of = next_tag; /* the request's, soon */
		c->by_peer = owner != s->qp;
		return true;
	}
	s->fault = FAULT_VICTIM;
	/* The key of a window, of type 1, is as it is: no request may end that. */
	if (!c->withdrawn && c->kind != CELL_WINDOW)
		d->wr.invalidate_rkey ^= 1u << rng_below(RNG, 12);
	return true;
}

/* The request is not posted. */
static void draw_spare(struct send *s)
{
	if (s->victim != NULL) {
		s->victim->victim_of = 0;
		s->victim->by_peer = false;
	}
}

static bool draw_counter(struct draft *d)
{
	struct send *s = d->s;
	struct counter *c = counters[d->to->proc->id * SIM_PDS + d->to->pd];
	u32 unknown = 0;

	for (u32 i = 0; i < c->count; i++)
		unknown += !c->ops[i].known;
	if (c->count == COUNTER_OPS || unknown > 20)
		return false;
	s->counter = c;
	s->length = 8;
	s->floor = c->floor;
	d->compare = s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? rng_range(RNG, 1, 1 << 24)
							      : c->floor;
	d->swap = d->compare + rng_range(RNG, 1, 1 << 24);
	d->wr.wr.atomic.compare_add = d->compare;
	d->wr.wr.atomic.swap = d->swap;
	draw_remote(d, c->slice.at, c->key);
	return true;
}

/* ---- local memory ---- */

/* Cuts the request's bytes into pieces of memory; each holds its part of the text. */
static bool draw_slices(struct proc *p, u32 length, u32 max, struct slice *slice, u32 *count)
{
	u32 n = length == 0 ? rng_below(RNG, 2) : (u32)rng_range(RNG, 1, max), left = length;

	*count = 0;
	for (u32 i = 0; i < n; i++) {
		u32 part = i == n - 1 ? left : (u32)rng_skewed(RNG, 0, left);

		if (!slice_take(p->arena, part, &slice[i]))
			break;
		(*count)++;
		left -= part;
	}
	if (*count == n)
		return true;
	while (*count > 0)
		slice_give(p->arena, &slice[--*count]);
	return false;
}

static void draw_sges(struct proc *p, const struct slice *slice, u32 n, u32 key,
		      struct ibv_sge *sge)
{
	for (u32 i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){ .addr = (u64)(uintptr_t)(p->arena->bytes + slice[i].at),
					   .length = slice[i].length,
					   .lkey = key };
}

static void slices_write(struct proc *p, const struct slice *slice, u32 n, u64 tag)
{
	u64 from = 0;

	for (u32 i = 0; i < n; from += slice[i++].length)
		slice_write(p->arena, &slice[i], tag, from);
}

static void slices_loosen(struct proc *p, const struct slice *slice, u32 n)
{
	for (u32 i = 0; i < n; i++)
		arena_loosen(p->arena, slice[i].at, slice[i].length);
}

/* ---- what goes wrong ---- */

static bool fault_local(struct draft *d)
{
	struct sqp *q = d->s->qp;
	u32 i = rng_below(RNG, d->s->slices);

	if (d->s->slices == 0 || d->sge[i].length == 0)
		return false;
	d->sound = 0;
	for (u32 k = 0; k < i; k++)
		d->sound += d->sge[k].length;
	if (rng_percent(RNG, 50)) {
		d->sge[i].lkey ^= 1u << rng_below(RNG, 12);
		d->s->fault = FAULT_LKEY;
	} else {
		d->sge[i].lkey = q->proc->local_key[1 - q->pd];
		d->s->fault = FAULT_LPD;
	}
	return true;
}

static void fault_atomic(struct draft *d)
{
	struct counter *other = counters[d->to->proc->id * SIM_PDS + 1 - d->to->pd];
	struct send *s = d->s;

	switch (rng_below(RNG, 4)) {
	case 0:
		s->fault = FAULT_ALIGN;
		draw_remote(d, s->counter->slice.at + 1 + rng_below(RNG, 7), s->counter->key);
		break;
	case 1:
		s->fault = FAULT_RPD;
		draw_remote(d, other->slice.at, other->key);
		break;
	case 2:
		s->fault = FAULT_BEYOND;
		draw_remote(d, s->counter->slice.at + 8, s->counter->key);
		break;
	default:
		s->fault = FAULT_RKEY;
		draw_remote(d, s->counter->slice.at,
			    s->counter->key ^ 1u << rng_below(RNG, 12));
		break;
	}
	s->counter = NULL;
}

static void fault_cell(struct draft *d)
{
	struct cell *c = d->s->cell, *other = NULL;
	struct send *s = d->s;

	if (s->length == 0 || s->fault != FAULT_NONE)
		return;
	if (rng_percent(RNG, 40))
		other = window_of_another(d->to, cell_right(s->opcode), s->length);
	if (other != NULL) {
		s->fault = FAULT_RQP;
		draw_remote(d, other->iova, other->key);
		return;
	}
	switch (rng_below(RNG, 4)) {
	case 0:
		s->fault = FAULT_BEFORE;
		draw_remote(d, c->iova - 1, c->key);
		break;
	case 1:
		s->fault = FAULT_RKEY;
		draw_remote(d, c->iova + s->cell_from, c->key ^ 1u << rng_below(RNG, 12));
		break;
	case 2:
		s->fault = FAULT_ACCESS;
		draw_remote(d, (u64)(uintptr_t)d->to->proc->arena->bytes + ARENA_UNIT,
			    d->to->proc->local_key[d->to->pd]);
		break;
	default:
		s->fault = FAULT_BEYOND;
		draw_remote(d, c->iova + c->slice.length + 1 - s->length, c->key);
		break;
	}
}

static void draw_fault(struct draft *d)
{
	struct send *s = d->s;

	if (sqp_is_xrc(s->qp) && rng_percent(RNG, 70) && xrc_draw_fault(s, &d->wr))
		return;
	if ((s->qp->type == IBV_QPT_UD || rng_percent(RNG, 30)) && !draw_is_atomic(s->opcode) &&
	    rng_percent(RNG, 50)) {
		fault_local(d);
		return;
	}
	if (s->counter != NULL)
		fault_atomic(d);
	else if (s->cell != NULL && !draw_is_placed(s->opcode))
		fault_cell(d);
	else if (s->qp->type == IBV_QPT_UD) {
		d->wr.wr.ud.remote_qkey ^= 1;
		s->fault = FAULT_QKEY;
	}
}

/* ---- a whole request ---- */

static u32 draw_opcode(const struct sqp *q)
{
	static const u8 rc[] = { IBV_WR_SEND,	    IBV_WR_SEND,
				 IBV_WR_SEND,	    IBV_WR_SEND_WITH_IMM,
				 IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
				 IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
				 IBV_WR_RDMA_READ,  IBV_WR_RDMA_READ,
				 IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_CMP_AND_SWP,
				 IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const u8 uc[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				 IBV_WR_RDMA_WRITE_WITH_IMM };

	if (q->type != IBV_QPT_UD && rng_permille(RNG, world.plan.invalidate_permille))
		return sqp_is_reliable(q) && rng_percent(RNG, 60) ? IBV_WR_SEND_WITH_INV
								  : IBV_WR_LOCAL_INV;
	if (world.plan.wide && q->type == IBV_QPT_RC && rng_percent(RNG, 15))
		return rng_percent(RNG, 60) ? IBV_WR_ATOMIC_WRITE : (u32)WQE_WR_FLUSH;
	if (world.plan.hands && sqp_is_xrc(q) && rng_percent(RNG, 60))
		return rng_percent(RNG, 50) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
	if (world.plan.releases && sqp_is_reliable(q) && rng_percent(RNG, 50))
		return IBV_WR_RDMA_READ;
	if (sqp_is_reliable(q))
		return rc[rng_below(RNG, ARRAY_LEN(rc))];
	return uc[rng_below(RNG, q->type == IBV_QPT_UC ? 4 : 2)];
}

static struct sqp *draw_target(struct sqp *q)
{
	u32 begin = rng_below(RNG, sqp_count);

	if (q->type != IBV_QPT_UD)
		return q->peer;
	if (rng_percent(RNG, 30))
		return NULL;
	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *to = sqps[(begin + i) % sqp_count];

		if (to->type == IBV_QPT_UD)
			return to;
	}
	return q;
}

static void draw_flags(struct draft *d)
{
	struct send *s = d->s;

	s->signaled = s->qp->sig_all || rng_percent(RNG, s->qp->mute ? 2 : 60);
	s->fenced = sqp_is_reliable(s->qp) && (s->fenced || rng_percent(RNG, 15));
	d->wr.send_flags = (s->signaled ? IBV_SEND_SIGNALED : 0) |
			   (s->fenced ? IBV_SEND_FENCE : 0) |
			   (rng_percent(RNG, 20) ? IBV_SEND_SOLICITED : 0);
	if (s->length <= s->qp->cap.max_inline_data && s->fault == FAULT_NONE &&
	    s->opcode != IBV_WR_LOCAL_INV && s->opcode != IBV_WR_RDMA_READ &&
	    s->opcode != WQE_WR_FLUSH && !draw_is_atomic(s->opcode) && rng_percent(RNG, 40))
		d->wr.send_flags |= IBV_SEND_INLINE;
	if (s->opcode != IBV_WR_SEND_WITH_INV && s->opcode != IBV_WR_LOCAL_INV)
		d->wr.imm_data = (u32)rng_next(RNG);
}

static void draw_ud(struct draft *d)
{
	struct sqp *q = d->s->qp;

	memset(&d->ah, 0, sizeof(d->ah));
	path_gid(q->proc->node, d->ah.av.sgid);
	d->ah.av.hop_limit = 64;
	d->wr.wr.ud.ah = &d->ah.ibv;
	if (d->to == NULL) {
		d->s->group = &groups[rng_below(RNG, SIM_GROUPS)];
		memcpy(d->ah.av.dgid, d->s->group->gid, 16);
		d->wr.wr.ud.remote_qpn = GROUP_QPN;
		d->wr.wr.ud.remote_qkey = d->s->group->qkey;
		return;
	}
	path_gid(d->to->proc->node, d->ah.av.dgid);
	d->wr.wr.ud.remote_qpn = d->to->qpn;
	d->wr.wr.ud.remote_qkey = d->to->qkey;
	ends_draw_stray(d->s, d->to, &d->wr, &d->ah.av);
}

static bool draw_operands(struct draft *d, bool amiss)
{
	struct send *s = d->s;

	if (draw_is_cell(s->opcode))
		return (!amiss && draw_same_place(d)) ||
		       draw_place(d, amiss && rng_percent(RNG, 30)) || draw_place(d, false);
	if (draw_is_atomic(s->opcode))
		return draw_counter(d);
	if (draw_is_placed(s->opcode))
		return place_draw(s, &d->wr, d->to, amiss);
	if (s->opcode == IBV_WR_LOCAL_INV)
		return draw_victim(d, s->qp, amiss);
	if (s->opcode == IBV_WR_SEND_WITH_INV && !draw_victim(d, d->to, amiss))
		return false;
	s->length = draw_message_length(s->qp, d->to, s->opcode);
	if (s->qp->type == IBV_QPT_UD)
		draw_ud(d);
	return true;
}

/* What is not executed makes no key invalid. */
static void draw_ends(struct send *s)
{
	ends_judge(s);
	if (s->fault != FAULT_SILENT && s->fault != FAULT_DUPLICATE)
		return;
	draw_spare(s);
	s->victim = NULL;
}

static bool draw_send(struct sqp *q, struct draft *d)
{
	bool amiss = rng_permille(RNG, world.plan.fault_permille);
	struct send *s = calloc(1, sizeof(*s));
	bool drawn;
	u32 limit;

	if (s == NULL)
		abort();
	memset(&d->wr, 0, sizeof(d->wr));
	d->s = s;
	d->to = draw_target(q);
	amiss |= sqp_is_xrc(q) && world.plan.fault_permille != 0 && rng_percent(RNG, 4);
	s->qp = q;
	s->opcode = (u8)draw_opcode(q);
	d->wr.opcode = s->opcode;
	drawn = draw_operands(d, amiss);
	limit = ends_limit(q);
	s->length = MIN(s->length, limit);
	if (!drawn || !draw_slices(q->proc, s->length, q->cap.max_send_sge, s->slice, &s->slices)) {
		draw_spare(s);
		free(s);
		return false;
	}
	s->tag = next_tag++;
	d->wr.wr_id = s->tag;
	if (sqp_is_xrc(q))
		xrc_draw_srq(s, &d->wr);
	if (s->opcode != IBV_WR_RDMA_READ && !draw_is_atomic(s->opcode))
		slices_write(q->proc, s->slice, s->slices, s->tag);
	draw_sges(q->proc, s->slice, s->slices, q->proc->local_key[q->pd], d->sge);
	if (amiss && s->fault == FAULT_NONE)
		draw_fault(d);
	draw_flags(d);
	draw_ends(s);
	d->wr.sg_list = d->sge;
	d->wr.num_sge = (int)s->slices;
	return true;
}

/* ---- posted ---- */

static bool fault_is_local(u8 fault)
{
	return fault == FAULT_LKEY || fault == FAULT_LPD;
}

static struct message *message_add(struct sqp *to, const struct send *s)
{
	struct message *m;

	if (to->message_count == ARRAY_LEN(to->messages))
		sim_fail("the model has no room for more messages");
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		abort();
	*m = (struct message){ .tag = s->tag,
			       .length = s->length,
			       .index = to->message_count,
			       .opcode = s->opcode,
			       .imm = s->imm,
			       .solicited = s->solicited,
			       .fault = s->fault,
			       .misfit = s->misfit,
			       .src_qpn = s->qp->qpn,
			       .cell = s->cell,
			       .victim = s->victim,
			       .srq = s->srq,
			       .rnr_possible = to->srq != NULL || s->srq != NULL ||
					       to->recv_posted <= to->message_count };
	to->messages[to->message_count++] = m;
	to->skipped += s->fault == FAULT_DUPLICATE;
	return m;
}

void message_expect(struct sqp *to, const struct send *s)
{
	for (u32 i = to->message_count; i > 0; i--)
		if (to->messages[i - 1]->tag == s->tag)
			return;
	message_add(to, s);
}

static void commit_message(struct draft *d)
{
	struct send *s = d->s;

	s->imm = d->wr.imm_data;
	s->solicited = d->wr.send_flags & IBV_SEND_SOLICITED;
	if (s->group == NULL) {
		s->message = message_add(d->to, s);
		return;
	}
	for (u32 i = 0; i < sqp_count; i++)
		if (group_is_attached(sqps[i], s->group))
			message_add(sqps[i], s);
}

/* Whose local memory is refused in the middle has sent what lies before it, and the peer has
 * written that. */
static void commit_write(struct draft *d)
{
	struct send *s = d->s;
	bool part = fault_is_local(s->fault) && s->opcode != IBV_WR_ATOMIC_WRITE;
	u32 n = s->fault == FAULT_NONE ? s->length : part ? d->sound : 0;

	if (s->fault == FAULT_NONE || n != 0)
		cell_pend(s->cell, s->tag, s->cell_from, n, s->fenced ? s->tag : 0);
}

static void commit_operands(struct draft *d)
{
	struct send *s = d->s;

	if (s->opcode == IBV_WR_RDMA_READ || draw_is_atomic(s->opcode))
		slices_loosen(s->qp->proc, s->slice, s->slices);
	else if (s->cell != NULL && s->opcode != WQE_WR_FLUSH)
		commit_write(d);
	if (s->counter != NULL && s->fault == FAULT_NONE) {
		s->op = s->counter->count++;
		s->counter->ops[s->op] = (struct count_op){
			.adds = s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD,
			.add = d->compare,
			.compare = d->compare,
			.swap = d->swap,
		};
	}
}

static void commit(struct draft *d)
{
	struct send *s = d->s;
	struct sqp *q = s->qp;

	if (draw_is_message(s->opcode))
		commit_message(d);
	commit_operands(d);
	if (d->wr.send_flags & IBV_SEND_INLINE)
		slices_write(q->proc, s->slice, s->slices, next_tag++);
	q->psns += s->psns;
	q->shut |= s->misfit && s->opcode == IBV_WR_RDMA_READ;
	list_push_back(&q->sends, &s->node);
	q->send_count++;
}

void send_free(struct send *s)
{
	window_dropped(s);
	for (u32 i = 0; i < s->slices; i++)
		slice_give(s->qp->proc->arena, &s->slice[i]);
	list_remove(&s->node);
	free(s);
}

static void post_list(struct sqp *q, struct draft *d, u32 n)
{
	struct ibv_send_wr *bad = NULL;
	u32 taken = n, before = q->send_count;
	int err;

	for (u32 i = 0; i < n; i++) {
		d[i].wr.next = i + 1 < n ? &d[i + 1].wr : NULL;
		d[i].s->posted_ns = world.now;
		if (q->peer != NULL)
			d[i].s->peer_stopped_ns = reason_stopped_ns(q->peer->proc);
		trace(q->proc, TR_POST, q->qpn, d[i].s->tag,
		      (u64)d[i].s->fault << 8 | d[i].s->opcode, d[i].s->length);
	}
	err = ibt_post_send(q->engine, &d[0].wr, &bad, post_av_of);
	if (err != 0)
		for (taken = 0; taken < n && &d[taken].wr != bad;)
			taken++;
	for (u32 i = 0; i < taken; i++)
		commit(&d[i]);
	sim_check(before + taken <= q->cap.max_send_wr,
		  "qp %06x takes %u requests to %u whose completions have not been polled, of %u",
		  q->qpn, taken, before, q->cap.max_send_wr);
	if (err != 0 && taken < n)
		trace(q->proc, TR_POST_FAILED, q->qpn, (u64)-err, d[taken].s->tag, 0);
	for (u32 i = taken; i < n; i++) {
		list_init(&d[i].s->node);
		draw_spare(d[i].s);
		send_free(d[i].s);
	}
	if (err == 0)
		return;
	sim_check(taken < n, "a post fails with %d, but all is taken", err);
	sim_check(err == -ENOMEM && before + taken >= q->cap.max_send_wr,
		  "qp %06x cannot post: %d, with %u of %u outstanding", q->qpn, err,
		  before + taken, q->cap.max_send_wr);
}

void post_sends(struct sqp *q)
{
	u32 n = (u32)rng_skewed(RNG, 1, MIN(POST_LIST, world.requests_left)), drawn = 0;
	struct draft d[POST_LIST];
	enum ibv_qp_state state = sqp_state(q);

	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR ||
	    q->type == IBV_QPT_XRC_RECV || q->shut)
		return;
	q->drawn = q->drawn_psns = 0;
	while (drawn < n && (drawn == 0 || !d[drawn - 1].s->misfit) && draw_send(q, &d[drawn]))
		q->drawn += draw_is_message(d[drawn++].s->opcode);
	world.requests_left -= MIN(drawn, world.requests_left);
	if (drawn != 0)
		post_list(q, d, drawn);
}

bool post_may_bind(struct sqp *q)
{
	enum ibv_qp_state state = sqp_state(q);
	bool full = q->send_count >= q->cap.max_send_wr;
	int err = ibt_may_send(q->engine);

	sim_check((state != IBV_QPS_RTS && state != IBV_QPS_SQD) || err == (full ? -ENOMEM : 0),
		  "qp %06x says %d before a bind, with %u of %u outstanding", q->qpn, err,
		  q->send_count, q->cap.max_send_wr);
	return err == 0;
}

void post_bound(struct sqp *q)
{
	struct send *s = calloc(1, sizeof(*s));
	u32 flags = (rng_percent(RNG, 60) ? IBV_SEND_SIGNALED : 0) |
		    (rng_percent(RNG, 15) ? IBV_SEND_FENCE : 0);

	if (s == NULL)
		abort();
	s->qp = q;
	s->opcode = IBV_WR_BIND_MW;
	s->signaled = q->sig_all || (flags & IBV_SEND_SIGNALED) != 0;
	s->tag = next_tag++;
	s->posted_ns = world.now;
	list_push_back(&q->sends, &s->node);
	q->send_count++;
	trace(q->proc, TR_POST, q->qpn, s->tag, IBV_WR_BIND_MW, 0);
	sim_check(ibt_post_bound(q->engine, s->tag, flags) == 0, "qp %06x cannot post a bind",
		  q->qpn);
}

/* A signalled request of no bytes toward the peer. */
static void draft_open(struct draft *d, struct sqp *q, u8 opcode)
{
	memset(d, 0, sizeof(*d));
	d->s = calloc(1, sizeof(*d->s));
	if (d->s == NULL)
		abort();
	d->s->qp = q;
	d->to = q->peer;
	d->s->opcode = opcode;
	d->s->signaled = true;
	d->s->tag = d->wr.wr_id = next_tag++;
	d->wr.opcode = opcode;
	d->wr.send_flags = IBV_SEND_SIGNALED;
	if (sqp_is_xrc(q))
		xrc_draw_srq(d->s, &d->wr);
}

void post_closing(struct sqp *q)
{
	struct draft d;

	if (q->shut)
		return;
	q->drawn_psns = 0;
	draft_open(&d, q, IBV_WR_RDMA_WRITE);
	ends_judge(d.s);
	post_list(q, &d, 1);
}

void post_sound(struct sqp *q)
{
	struct plan plan = world.plan;
	struct draft d;
	bool drawn;

	world.plan.fault_permille = world.plan.invalidate_permille = 0;
	world.plan.large_permille = 1000;
	q->drawn = q->drawn_psns = 0;
	drawn = draw_send(q, &d);
	world.plan = plan;
	if (!drawn) {
		post_closing(q);
		return;
	}
	d.s->signaled = true;
	d.wr.send_flags |= IBV_SEND_SIGNALED;
	post_list(q, &d, 1);
}

void post_lone(struct sqp *q)
{
	static const u8 opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
				      IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE };
	struct draft d;

	draft_open(&d, q, opcodes[rng_below(RNG, ARRAY_LEN(opcodes))]);
	d.s->length = draw_is_atomic(d.s->opcode) ? 8 : (u32)rng_range(RNG, 1, LARGE_BYTES);
	d.sge[0] = (struct ibv_sge){ .addr = (u64)(uintptr_t)q->proc->arena->bytes,
				     .length = d.s->length,
				     .lkey = q->proc->local_key[q->pd] };
	d.wr.sg_list = d.sge;
	d.wr.num_sge = 1;
	post_list(q, &d, 1);
}

/* ---- receive requests ---- */

static u32 draw_recv_length(struct sqp *q, u64 index)
{
	u32 least = 0, limit = 6000;

	if (q->type == IBV_QPT_UD)
		return rng_permille(RNG, world.plan.fault_permille / 8) ? 100 : SHARED_BYTES;
	if (q->type == IBV_QPT_UC)
		return UC_BYTES;
	if (index + q->skipped < q->message_count)
		least = q->messages[index + q->skipped]->length;
	if (rng_permille(RNG, world.plan.fault_permille / 8))
		least = 0;
	if (rng_permille(RNG, world.plan.large_permille))
		limit = LARGE_BYTES / 4;
	return (u32)rng_skewed(RNG, least, MAX(least, limit));
}

static struct recv *draw_recv(struct proc *p, u32 length, u32 max_sge)
{
	struct recv *r = calloc(1, sizeof(*r));

	if (r == NULL)
		abort();
	r->length = length;
	if (!draw_slices(p, length, max_sge, r->slice, &r->slices)) {
		free(r);
		return NULL;
	}
	r->tag = next_tag++;
	slices_write(p, r->slice, r->slices, r->tag);
	slices_loosen(p, r->slice, r->slices);
	return r;
}

static void recv_fill(struct recv *r, struct proc *p, u32 pd, struct ibv_recv_wr *wr,
		      struct ibv_sge *sge)
{
	u32 i = rng_below(RNG, r->slices);

	draw_sges(p, r->slice, r->slices, p->local_key[pd], sge);
	if (r->slices != 0 && sge[i].length != 0 &&
	    rng_permille(RNG, world.plan.fault_permille / 8)) {
		sge[i].lkey ^= 1u << rng_below(RNG, 12);
		r->bad_key = true;
	}
	*wr = (struct ibv_recv_wr){ .wr_id = r->tag, .sg_list = sge, .num_sge = (int)r->slices };
}

void recv_free(struct recv *r, struct proc *p)
{
	for (u32 i = 0; i < r->slices; i++)
		slice_give(p->arena, &r->slice[i]);
	list_remove(&r->node);
	free(r);
}

static bool post_recv(struct sqp *q)
{
	struct ibv_recv_wr wr, *bad;
	struct ibv_sge sge[MAX_SGES];
	struct recv *r = draw_recv(q->proc, draw_recv_length(q, q->recv_posted),
				   q->cap.max_recv_sge);
	int err;

	if (r == NULL)
		return false;
	recv_fill(r, q->proc, q->pd, &wr, sge);
	err = ibt_post_recv(q->engine, &wr, &bad);
	sim_check(err == 0, "qp %06x cannot post a receive: %d, with %u of %u outstanding", q->qpn,
		  err, q->recv_count, q->cap.max_recv_wr);
	trace(q->proc, TR_RECV, q->qpn, r->tag, r->length, 0);
	r->index = q->recv_posted++;
	r->posted_ns = world.now;
	list_push_back(&q->recvs, &r->node);
	q->recv_count++;
	return true;
}

void post_recvs(struct sqp *q, u32 depth)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	if (q->srq != NULL || sqp_is_xrc(q) || sqp_state(q) == IBV_QPS_RESET)
		return;
	while (q->recv_count < MIN(depth, q->cap.max_recv_wr) && post_recv(q))
		continue;
	if (q->recv_count >= q->cap.max_recv_wr)
		sim_check(ibt_post_recv(q->engine, &wr, &bad) == -ENOMEM,
			  "qp %06x takes a receive request to %u that have not been polled", q->qpn,
			  q->recv_count);
}

/* -ENOBUFS: no room in the arena, -ENOMEM: none in the queue. */
static int post_shared(struct srq *s, u32 length)
{
	struct ibv_recv_wr wr, *bad;
	struct ibv_sge sge[MAX_SGES];
	struct recv *r = draw_recv(s->proc, length, s->max_sge);
	int err;

	if (r == NULL)
		return -ENOBUFS;
	recv_fill(r, s->proc, s->pd, &wr, sge);
	err = ibt_srq_post(s->srq, &wr, &bad);
	sim_check(err == 0 || (err == -ENOMEM && s->outstanding >= s->max_wr),
		  "a shared receive cannot be posted: %d, with %u of %u outstanding", err,
		  s->outstanding, s->max_wr);
	if (err != 0) {
		list_init(&r->node);
		recv_free(r, s->proc);
		return err;
	}
	trace(s->proc, TR_RECV, s->proc->id, r->tag, r->length, 1);
	r->posted_ns = world.now;
	r->srq = s;
	list_push_back(&s->recvs, &r->node);
	s->outstanding++;
	return 0;
}

/* All that is outstanding, but for what was forgotten, has a place. */
static void post_judge_full(struct srq *s)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	struct ibv_srq_attr a;

	ibt_srq_query(s->srq, &a);
	if (s->number == 0 && !event_may_lose(s) && s->outstanding >= a.max_wr + s->forgotten)
		sim_check(ibt_srq_post(s->srq, &wr, &bad) == -ENOMEM,
			  "p%u: a shared receive request is taken to %u that have not been polled",
			  s->proc->id, s->outstanding);
}

void post_srq(struct srq *s, u32 depth)
{
	int err = 0;

	while (err == 0 && s->outstanding < MIN(depth, s->max_wr))
		err = post_shared(s, SHARED_BYTES);
	post_judge_full(s);
	if (!world.quiet)
		return;
	/* What a queue pair had taken when it was destroyed has no completion: it seems
	 * outstanding, but its place is free. */
	err = 0;
	for (u32 i = 0; err == 0 && i < s->max_wr; i++)
		err = post_shared(s, SHARED_BYTES);
	/* Without any receive request its senders would wait for ever. */
	if (err == -ENOBUFS && s->outstanding <= s->forgotten)
		(void)post_shared(s, 0);
}
