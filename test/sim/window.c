/* window.c: windows of type 2: bound by requests of their queue pair, which alone reaches them.
 *
 * A window that has been invalidated is bound to other memory by IBV_WR_BIND_MW. Until that request
 * has succeeded nobody uses the new key; if it fails, or is never judged, the window belongs to the
 * old cell again.
 */
#include <stdlib.h>

#include "model.h"

static struct mem_region window_region(const struct cell *c)
{
	return (struct mem_region){
		.addr = (u64)(uintptr_t)(c->proc->arena->bytes + c->slice.at),
		.length = c->slice.length,
		.iova = c->iova,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
		.pd = c->pd + 1,
		.flags = MEM_CONTIGUOUS,
	};
}

void window_register(struct cell *c)
{
	struct mem_region r = window_region(c);

	c->access &= ~(u32)MEM_ACCESS_FLUSH; /* no bind grants it */
	sim_check(mem_reserve(&c->proc->mem, r.pd, MEM_WINDOW_TYPE2, &c->key) == 0,
		  "no place for a window");
	c->iova = r.addr;
	r.iova = r.addr;
	sim_check(mem_register(&c->proc->mem, &r, &c->parent) == 0, "no key for a region");
	c->key |= rng_below(RNG, 256);
	r.access = c->access;
	r.flags = MEM_WINDOW | MEM_WINDOW_TYPE2;
	r.parent = c->parent;
	r.qpn = c->qp->qpn;
	sim_check(mem_replace(&c->proc->mem, &c->key, &r) == 0, "window %08x cannot be bound",
		  c->key);
}

struct cell *window_free_of(const struct sqp *q, bool bound)
{
	list_for_each(c, &q->cells, struct cell, node)
		if (c->kind == CELL_WINDOW2 && c->withdrawn != bound && key_is_rebindable(c))
			return c;
	return NULL;
}

struct cell *window_of_another(const struct sqp *owner, u32 access, u32 length)
{
	u32 begin = rng_below(RNG, sqp_count);

	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[(begin + i) % sqp_count];

		if (q->proc != owner->proc || q->pd != owner->pd || q->qpn == owner->qpn)
			continue;
		list_for_each(c, &q->cells, struct cell, node)
			if (c->kind == CELL_WINDOW2 && !c->withdrawn && !c->released &&
			    c->slice.length >= length && (c->access & access) == access)
				return c;
	}
	return NULL;
}

/* Gives back what no request has bound. */
static void window_discard(struct cell *n)
{
	if (n->parent != 0)
		sim_check(mem_deregister(&n->proc->mem, n->parent) == 0,
			  "region %08x is held by a window that is not bound", n->parent);
	slice_give(n->proc->arena, &n->slice);
	free(n);
}

/* The cell that the window will lie in, with a region for it, or one that it may not have. */
static struct cell *window_place(struct cell *c, bool amiss)
{
	struct cell *n = cell_new(c->qp);
	struct mem_region r;

	if (n == NULL)
		return NULL;
	n->kind = CELL_WINDOW2;
	n->access &= ~(u32)MEM_ACCESS_FLUSH;
	r = window_region(n);
	r.iova = n->iova = r.addr;
	if (amiss && rng_percent(RNG, 50))
		r.access &= ~(u32)IBV_ACCESS_MW_BIND;
	else if (amiss)
		r.pd = 2 - n->pd;
	if (mem_register(&n->proc->mem, &r, &n->parent) != 0)
		sim_fail("no key for a region");
	n->key = (c->key & ~0xffu) | ((c->key + 1) & 0xff);
	return n;
}

static void window_post(struct cell *c, struct cell *n, bool amiss)
{
	struct ibv_mw mw = { .rkey = c->key, .type = IBV_MW_TYPE_2 };
	struct ibv_mr mr = { .lkey = n->parent };
	struct sqp *q = c->qp;
	struct send *s = calloc(1, sizeof(*s));
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW,
				  .send_flags = (rng_percent(RNG, 60) ? IBV_SEND_SIGNALED : 0) |
						(rng_percent(RNG, 15) ? IBV_SEND_FENCE : 0) };
	struct ibv_send_wr *bad;

	if (s == NULL)
		abort();
	s->qp = q;
	s->opcode = IBV_WR_BIND_MW;
	s->signaled = q->sig_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
	s->tag = wr.wr_id = next_tag++;
	s->fault = amiss ? FAULT_BIND : FAULT_NONE;
	s->posted_ns = world.now;
	s->bound = n;
	s->bound_from = c;
	wr.bind_mw.mw = &mw;
	wr.bind_mw.rkey = n->key;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = &mr,
							  .addr = n->iova,
							  .length = n->slice.length,
							  .mw_access_flags = n->access };
	list_push_back(&q->sends, &s->node);
	q->send_count++;
	/* One that is bound stays so, whatever else might have ended it meanwhile. */
	if (c->withdrawn)
		c->passed_on = true;
	else
		c->victim_of = s->tag;
	trace(q->proc, TR_POST, q->qpn, s->tag, (u64)s->fault << 8 | IBV_WR_BIND_MW, 0);
	sim_check(ibt_post_send(q->engine, &wr, &bad, NULL) == 0, "qp %06x cannot post a bind",
		  q->qpn);
}

void window_rebind(struct cell *c)
{
	bool amiss = world.plan.fault_permille != 0 && rng_percent(RNG, c->withdrawn ? 15 : 60);
	struct cell *n;

	/* One that is still bound cannot be bound. */
	if (!c->withdrawn && (!amiss || c->victim_of != 0))
		return;
	n = window_place(c, amiss && c->withdrawn);
	if (n == NULL)
		return;
	window_post(c, n, amiss);
}

void window_bound(struct send *s)
{
	struct cell *n = s->bound;

	if (n == NULL)
		return;
	s->bound = NULL;
	cell_add(n);
}

void window_dropped(struct send *s)
{
	struct cell *n = s->bound;
	u64 piece;

	if (n == NULL)
		return;
	s->bound = NULL;
	if (s->bound_from->victim_of == s->tag)
		s->bound_from->victim_of = 0;
	else
		s->bound_from->passed_on = false;
	/* Nobody has heard of its end: it may have been bound. */
	if (s->fault == FAULT_NONE &&
	    mem_remote(&n->proc->mem, n->pd + 1, n->qp->qpn, n->key, n->iova, 1, 0, &piece) != NULL)
		sim_check(mem_invalidate(&n->proc->mem, n->key, n->pd + 1, n->qp->qpn) == 0,
			  "window %08x cannot be invalidated", n->key);
	window_discard(n);
}
