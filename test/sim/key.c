/* key.c: the keys of cells: regions, page lists, windows of type 1, mappings that come and go.
 * In: cells    Out: keys, bound anew and invalidated; what must not reach anything any more
 */
#include <stdlib.h>

#include "model.h"

enum {
	KEY_PAGES = 2048,
	KEY_PAGE_SHIFT_MIN = 6,
	KEY_PAGE_SHIFT_MAX = 12,
	KEY_CELLS_MAX = 24, /* of one end of a connection, where READs release them */
};

/* As a program sees it: where it lies, from 0 on, or anywhere. */
static u64 key_draw_iova(const struct cell *c)
{
	u32 length = c->slice.length;

	return rng_percent(RNG, 60)   ? (u64)c->slice.at + (1ull << 40)
	       : rng_percent(RNG, 50) ? 0
				      : UINT64_MAX - length + 1;
}

static struct mem_region key_region(const struct cell *c)
{
	return (struct mem_region){
		.addr = (u64)(uintptr_t)(c->proc->arena->bytes + c->slice.at),
		.length = c->slice.length,
		.iova = c->iova,
		.access = c->access | IBV_ACCESS_LOCAL_WRITE,
		.pd = c->pd + 1,
		.flags = MEM_CONTIGUOUS,
	};
}

/* The pages that the cell's memory lies in. */
static void key_fill_pages(struct cell *c, struct mem_region *r, u64 *pages)
{
	u64 size, first;

	r->page_shift = (u32)rng_range(RNG, KEY_PAGE_SHIFT_MIN, KEY_PAGE_SHIFT_MAX);
	size = 1ull << r->page_shift;
	first = r->addr & ~(size - 1);
	r->page_count = (u32)((r->addr + r->length - 1 - first) / size + 1);
	for (u32 i = 0; i < r->page_count; i++)
		pages[i] = first + i * size;
	c->iova = r->iova = (1ull << 41) + (u64)c->slice.unit * 4096 + (r->addr & (size - 1));
	r->flags = MEM_PAGES;
	r->pages = pages;
}

/* A new region that windows may be bound to, and nothing else. */
static void key_register_parent(struct cell *c, struct mem_region *r)
{
	struct mem_region parent = key_region(c);

	c->access &= ~(u32)MEM_ACCESS_FLUSH; /* no bind grants it */
	parent.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	parent.iova = parent.addr;
	sim_check(mem_register(&c->proc->mem, &parent, &c->parent) == 0, "no key for a region");
	*r = key_region(c);
	r->addr = parent.iova;
	r->access = c->access;
	r->flags = MEM_WINDOW;
	r->parent = c->parent;
}

/* Binds what `c->key` names to the cell's memory. */
static void key_bind(struct cell *c)
{
	u64 pages[KEY_PAGES];
	struct mem_region r;

	c->iova = key_draw_iova(c);
	if (c->kind == CELL_WINDOW) {
		key_register_parent(c, &r);
	} else {
		r = key_region(c);
		key_fill_pages(c, &r, pages);
	}
	sim_check(mem_replace(&c->proc->mem, &c->key, &r) == 0, "key %08x cannot be bound", c->key);
}

void key_register(struct cell *c)
{
	u32 kind = rng_below(RNG, 28);
	u64 pages[KEY_PAGES];
	struct mem_region r;

	c->kind = kind < 9    ? CELL_REGION
		  : kind < 11 ? CELL_PAGES
		  : kind < 17 ? CELL_WINDOW
		  : kind < 20 ? CELL_FAST
			      : CELL_WINDOW2;
	/* Nobody could bind it: targets have no send queue. */
	if (c->kind == CELL_WINDOW2 && sqp_is_xrc(c->qp))
		c->kind = CELL_REGION;
	if (c->kind == CELL_WINDOW2) {
		window_register(c);
		return;
	}
	if (c->kind == CELL_WINDOW || c->kind == CELL_FAST) {
		sim_check(mem_reserve(&c->proc->mem, c->pd + 1, 0, &c->key) == 0,
			  "no place for a key");
		key_bind(c);
		return;
	}
	c->iova = key_draw_iova(c);
	r = key_region(c);
	if (c->kind == CELL_PAGES)
		key_fill_pages(c, &r, pages);
	sim_check(mem_register(&c->proc->mem, &r, &c->key) == 0,
		  "a region of %u bytes cannot be registered", c->slice.length);
}

static bool key_is_valid(const struct cell *c)
{
	u64 piece;

	return mem_remote(&c->proc->mem, c->pd + 1, c->qp->qpn, c->key, c->iova, 1, 0, &piece) !=
	       NULL;
}

void key_release(struct cell *c)
{
	struct mem_table *mem = &c->proc->mem;

	if (c->released)
		return;
	/* The peer may have invalidated it already, and nobody has looked yet. */
	if (c->parent != 0 && key_is_valid(c))
		sim_check(mem_deregister(mem, c->parent) < 0,
			  "region %08x is deregistered under a window", c->parent);
	if (!c->passed_on)
		sim_check(mem_deregister(mem, c->key) == 0, "key %08x cannot be withdrawn", c->key);
	if (c->parent != 0)
		sim_check(mem_deregister(mem, c->parent) == 0, "region %08x cannot be withdrawn",
			  c->parent);
	c->released = true;
}

static void key_lose(struct cell *c)
{
	sim_check(!key_is_valid(c), "p%u: key %08x is still valid", c->proc->id, c->key);
	c->withdrawn = true;
	cell_close(c);
}

void key_invalidated(struct cell *c)
{
	if (c->withdrawn || c->released)
		return;
	trace(c->proc, TR_KEY, c->key, 0, 0, 1);
	key_lose(c);
}

void key_rebind(struct cell *c)
{
	struct sqp *q = c->qp;
	struct cell *n;

	if (!key_is_rebindable(c) || (c->victim_of != 0 && !c->withdrawn) || !post_may_bind(q))
		return;
	if (c->kind == CELL_WINDOW2) {
		window_rebind(c);
		return;
	}
	n = cell_new(q);
	if (n == NULL)
		return;
	n->kind = c->kind;
	n->key = c->key;
	key_bind(n);
	c->passed_on = true;
	if (!c->withdrawn)
		key_lose(c);
	cell_add(n);
	if (n->kind == CELL_WINDOW)
		post_bound(q);
}

static bool key_is_wanted(const struct send *s)
{
	list_for_each(t, &s->qp->sends, struct send, node)
		if (t != s && t->cell == s->cell)
			return true;
	return false;
}

void key_release_read(const struct send *s)
{
	struct cell *c = s->cell;
	struct sqp *owner = c->qp;

	if (!world.plan.releases || c->withdrawn || c->closed || c->victim_of != 0 ||
	    !proc_runs(c->proc) || c->proc->asleep || owner->engine == NULL || owner->ending ||
	    key_is_wanted(s))
		return;
	cell_withdraw(c);
	if (owner->cell_count < KEY_CELLS_MAX)
		cell_create(owner);
}
