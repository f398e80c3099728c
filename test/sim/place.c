/* place.c: atomic writes and flushes, drawn by lot.
 *
 * An atomic write is a WRITE of eight bytes at an aligned place that the peer answers; a flush
 * ends when what was written before it is in the peer's memory.
 * In: cells of the peer    Out: operands, and what is wrong with them    Spec: IBA vol 1, A19
 */
#include "ibt/send/wqe.h"
#include "model.h"

enum { PLACE_BYTES = 8, PLACE_FAULT_PERCENT = 8 };

void place_remote(struct ibv_send_wr *wr, u64 va, u32 rkey)
{
	if (wr->opcode == IBV_WR_ATOMIC_WRITE) {
		wr->wr.rdma.remote_addr = va;
		wr->wr.rdma.rkey = rkey;
	} else {
		wr->wr.atomic.remote_addr = va;
		wr->wr.atomic.rkey = rkey;
	}
}

/* The place of eight bytes whose address and whose key's address are aligned, by lot; beyond: the
 * first one that the cell does not hold. */
static bool place_aligned(const struct cell *c, bool beyond, u32 *from)
{
	u32 first = -c->slice.at & (PLACE_BYTES - 1), places;

	if ((c->iova + first) % PLACE_BYTES != 0 || c->slice.length < first + PLACE_BYTES)
		return false;
	places = (c->slice.length - first) / PLACE_BYTES;
	*from = first + PLACE_BYTES * (beyond ? places : rng_below(RNG, MIN(places, 64u)));
	return true;
}

static bool place_fault_write(struct send *s, struct ibv_send_wr *wr, const struct sqp *to)
{
	const struct cell *c = s->cell;
	u32 from = s->cell_from;

	switch (rng_below(RNG, 4)) {
	case 0:
		s->fault = FAULT_ALIGN;
		place_remote(wr, c->iova + from + 1 + rng_below(RNG, 7), c->key);
		break;
	case 1:
		s->fault = FAULT_RKEY;
		place_remote(wr, c->iova + from, c->key ^ 1u << rng_below(RNG, 12));
		break;
	case 2:
		s->fault = FAULT_ACCESS;
		place_remote(wr, (u64)(uintptr_t)to->proc->arena->bytes + ARENA_UNIT,
			     to->proc->local_key[to->pd]);
		break;
	default:
		s->fault = FAULT_BEYOND;
		place_aligned(c, true, &from);
		place_remote(wr, c->iova + from, c->key);
		break;
	}
	return true;
}

static bool place_draw_write(struct send *s, struct ibv_send_wr *wr, const struct sqp *to,
			     bool amiss)
{
	s->cell = post_draw_cell(to, IBV_ACCESS_REMOTE_WRITE, false);
	if (s->cell == NULL || !place_aligned(s->cell, false, &s->cell_from))
		return false;
	s->length = PLACE_BYTES;
	place_remote(wr, s->cell->iova + s->cell_from, s->cell->key);
	return !amiss || place_fault_write(s, wr, to);
}

/* Nothing here survives a loss of power, so nobody may ask for that. */
static bool place_draw_flush(struct send *s, struct ibv_send_wr *wr, const struct sqp *to,
			     bool amiss)
{
	u32 type = FETH_GLOBAL, level = rng_percent(RNG, 30) ? FETH_REGION : FETH_RANGE, range;
	u64 va;

	s->cell = post_draw_cell(to, MEM_ACCESS_FLUSH, amiss && rng_percent(RNG, 60));
	if (s->cell == NULL)
		return false;
	s->cell_from = rng_below(RNG, s->cell->slice.length);
	range = (u32)rng_range(RNG, 1, s->cell->slice.length - s->cell_from);
	va = s->cell->iova + s->cell_from;
	if (s->cell->withdrawn || s->cell->by_peer)
		s->fault = FAULT_WITHDRAWN;
	else if ((s->cell->access & MEM_ACCESS_FLUSH) == 0)
		s->fault = FAULT_ACCESS;
	else if (amiss && rng_percent(RNG, 50)) {
		s->fault = FAULT_ACCESS;
		type |= FETH_PERSISTENT;
	} else if (amiss) {
		s->fault = FAULT_BEYOND;
		level = FETH_RANGE;
		range = s->cell->slice.length - s->cell_from + 1;
	}
	place_remote(wr, va, s->cell->key);
	wr->wr.atomic.compare_add = range;
	wr->wr.atomic.swap = level << FETH_LEVEL_SHIFT | type;
	return true;
}

bool place_draw(struct send *s, struct ibv_send_wr *wr, const struct sqp *to, bool amiss)
{
	/* Rare requests: a seed with faults has some in them. */
	amiss |= world.plan.fault_permille != 0 && rng_percent(RNG, PLACE_FAULT_PERCENT);
	return s->opcode == IBV_WR_ATOMIC_WRITE ? place_draw_write(s, wr, to, amiss)
						: place_draw_flush(s, wr, to, amiss);
}
