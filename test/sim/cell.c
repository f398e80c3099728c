/* cell.c: memory that peers write, read and count in.
 *
 * One connection's other end is a cell's only writer, and an RC queue pair writes in order: what is
 * in it is what the last completed write put there, or any later one that is still under way.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static bool version_covers(const struct version *v, u32 i)
{
	return i >= v->from && i - v->from < v->length;
}

static void cell_loosen(struct cell *c)
{
	struct arena *a = c->proc->arena;

	memset(a->loose + c->slice.at, 0, c->slice.length);
	list_for_each(v, &c->versions, struct version, node)
		arena_loosen(a, c->slice.at + v->from, v->length);
}

struct cell *cell_new(struct sqp *q)
{
	static const u32 rights[] = { IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, 0 };
	u32 length = rng_percent(RNG, 50)   ? (u32)rng_skewed(RNG, 1, 6000)
		     : rng_percent(RNG, 80) ? (u32)rng_range(RNG, 2000, 20000)
					    : (u32)rng_range(RNG, 20000, 120000);
	struct cell *c = calloc(1, sizeof(*c));

	if (c == NULL)
		abort();
	if (!slice_take(q->proc->arena, length, &c->slice)) {
		free(c);
		return NULL;
	}
	c->qp = q;
	c->proc = q->proc;
	c->pd = q->pd;
	c->access = rights[rng_below(RNG, ARRAY_LEN(rights))];
	if (world.plan.wide && rng_percent(RNG, 70))
		c->access |= MEM_ACCESS_FLUSH;
	list_init(&c->versions);
	slice_write(q->proc->arena, &c->slice, next_tag++, 0);
	return c;
}

void cell_add(struct cell *c)
{
	trace(c->proc, TR_KEY, c->key, 1, c->slice.length, c->kind);
	list_push_back(&c->qp->cells, &c->node);
	c->qp->cell_count++;
}

struct cell *cell_create(struct sqp *q)
{
	struct cell *c = cell_new(q);

	if (c == NULL)
		return NULL;
	key_register(c);
	cell_add(c);
	return c;
}

void cell_withdraw(struct cell *c)
{
	if (c->withdrawn)
		return;
	trace(c->proc, TR_KEY, c->key, 0, 0, 0);
	key_release(c);
	c->withdrawn = true;
	cell_close(c);
}

void cell_destroy(struct cell *c)
{
	cell_withdraw(c);
	key_release(c);
	cell_check(c, "at the end");
	slice_give(c->proc->arena, &c->slice);
	list_remove(&c->node);
	free(c);
}

void cell_pend(struct cell *c, u64 tag, u32 from, u32 n, u64 fenced_after)
{
	struct version *v = calloc(1, sizeof(*v));

	if (v == NULL)
		abort();
	*v = (struct version){
		.tag = tag, .from = from, .length = n, .fenced_after = fenced_after
	};
	list_push_back(&c->versions, &v->node);
	c->version_count++;
	arena_loosen(c->proc->arena, c->slice.at + from, n);
}

static void version_drop(struct cell *c, struct version *v)
{
	list_remove(&v->node);
	free(v);
	c->version_count--;
}

static struct version *cell_find(struct cell *c, u64 tag)
{
	list_for_each(v, &c->versions, struct version, node)
		if (v->tag == tag)
			return v;
	return NULL;
}

void cell_done(struct cell *c, u64 tag)
{
	struct version *last = cell_find(c, tag);

	if (last == NULL)
		return; /* the cell was closed meanwhile */
	text_fill(c->proc->arena->want + c->slice.at + last->from, tag, 0, last->length);
	/* UC: older ones may have been lost or not; what this one covers they cannot change any
	 * more. */
	list_for_each_safe(v, &c->versions, struct version, node)
		if (v->tag < tag && v->from >= last->from &&
		    v->from + v->length <= last->from + last->length)
			version_drop(c, v);
	version_drop(c, last);
	cell_loosen(c);
	cell_check(c, "after a write");
}

void cell_forget(struct cell *c, u64 tag)
{
	struct version *v = cell_find(c, tag);

	if (v == NULL)
		return;
	version_drop(c, v);
	cell_loosen(c);
}

bool cell_allows(const struct cell *c, u32 i, u8 byte, u64 reader)
{
	if (c->proc->arena->want[c->slice.at + i] == byte)
		return true;
	list_for_each(v, &c->versions, struct version, node)
		if (version_covers(v, i) && text_byte(v->tag, i - v->from) == byte &&
		    (reader == 0 || v->tag < reader || v->fenced_after < reader))
			return true;
	return false;
}

void cell_check(const struct cell *c, const char *when)
{
	const struct arena *a = c->proc->arena;

	for (u32 i = 0; i < c->slice.length; i++) {
		u32 at = c->slice.at + i;

		if (unlikely(a->bytes[at] != a->want[at]) && !cell_allows(c, i, a->bytes[at], 0))
			sim_fail("p%u: byte %u of cell %08x is %02x %s, which nobody wrote there; "
				 "last known %02x",
				 c->proc->id, i, c->key, a->bytes[at], when, a->want[at]);
	}
}

void cell_check_written(const struct cell *c, u64 tag)
{
	const u8 *bytes = c->proc->arena->bytes + c->slice.at;
	struct version *v = cell_find((struct cell *)c, tag);

	for (u32 i = v == NULL ? 0 : v->from; v != NULL && i < v->from + v->length; i++) {
		bool found = text_byte(tag, i - v->from) == bytes[i];

		for (struct list_head *n = v->node.next; !found && n != &c->versions; n = n->next) {
			struct version *later = list_entry(n, struct version, node);

			found = version_covers(later, i) &&
				text_byte(later->tag, i - later->from) == bytes[i];
		}
		sim_check(found,
			  "p%u: byte %u of cell %08x is %02x: the notice of #%llu came before its "
			  "data",
			  c->proc->id, i, c->key, bytes[i], (unsigned long long)tag);
	}
}

void cell_close(struct cell *c)
{
	c->closed = true;
	cell_check(c, "when it was closed");
	while (!list_empty(&c->versions))
		version_drop(c, list_first(&c->versions, struct version, node));
	arena_settle(c->proc->arena, c->slice.at, c->slice.length);
}

/* ---- counters ---- */

struct counter *counter_create(struct proc *p, u32 pd)
{
	struct counter *c = calloc(1, sizeof(*c));
	struct mem_region r = { .flags = MEM_CONTIGUOUS };

	if (c == NULL || !slice_take(p->arena, 16, &c->slice))
		abort();
	c->slice.at = (c->slice.at + 7) & ~7u;
	c->slice.length = 8;
	c->proc = p;
	c->pd = pd;
	c->begin = c->floor = rng_range(RNG, 1, 1 << 20);
	memcpy(p->arena->bytes + c->slice.at, &c->begin, 8);
	arena_settle(p->arena, c->slice.at, 8);
	arena_loosen(p->arena, c->slice.at, 8);
	r.addr = (u64)(uintptr_t)(p->arena->bytes + c->slice.at);
	r.iova = c->slice.at;
	r.length = 8;
	r.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	r.pd = pd + 1;
	if (mem_register(&p->mem, &r, &c->key) != 0)
		sim_fail("a counter cannot be registered");
	return c;
}

/* What the counter holds after the operation, if it found `value`. */
static u64 count_after(const struct count_op *op, u64 value)
{
	if (op->adds)
		return value + op->add;
	return value == op->compare ? op->swap : value;
}

/* The values that a counter took, one after the other. */
struct count_way {
	struct counter *c;
	u64 end;
	u64 value[2 * COUNTER_OPS];
	u32 length;
};

static bool way_leads_on(struct count_way *w, u64 value, u32 first);

/* The one known operation that changed `value`: there may be no second. */
static struct count_op *count_find(struct counter *c, u64 value)
{
	struct count_op *found = NULL;

	for (u32 i = 0; i < c->count; i++) {
		struct count_op *op = &c->ops[i];

		if (!op->known || op->original != value || count_after(op, value) == value)
			continue;
		sim_check(found == NULL, "p%u: two atomics found %llu in one counter", c->proc->id,
			  (unsigned long long)value);
		found = op;
	}
	return found;
}

/* Can one of those whose outcome nobody knows have come here? Of several additions in a row the
 * order does not matter. */
static bool way_try_unknown(struct count_way *w, u64 value, u32 first)
{
	for (u32 i = 0; i < w->c->count; i++) {
		struct count_op *op = &w->c->ops[i];

		if (op->known || op->used || count_after(op, value) == value ||
		    (op->adds && i < first))
			continue;
		op->used = true;
		if (way_leads_on(w, count_after(op, value), op->adds ? i + 1 : 0))
			return true;
		op->used = false;
	}
	return false;
}

static bool way_leads_on(struct count_way *w, u64 value, u32 first)
{
	struct count_op *op = count_find(w->c, value);
	bool ok;

	if (value > w->end || w->length == ARRAY_LEN(w->value))
		return false;
	w->value[w->length++] = value;
	if (op != NULL)
		ok = way_leads_on(w, count_after(op, value), 0);
	else
		ok = value == w->end || way_try_unknown(w, value, first);
	w->length -= !ok;
	return ok;
}

static bool way_has(const struct count_way *w, u64 value)
{
	for (u32 i = 0; i < w->length; i++)
		if (w->value[i] == value)
			return true;
	return false;
}

void counter_check(struct counter *c)
{
	struct count_way w = { .c = c };

	memcpy(&w.end, c->proc->arena->bytes + c->slice.at, 8);
	sim_check(way_leads_on(&w, c->begin, 0),
		  "p%u: no order of its atomics takes a counter from %llu to %llu", c->proc->id,
		  (unsigned long long)c->begin, (unsigned long long)w.end);
	for (u32 i = 0; i < c->count; i++)
		sim_check(!c->ops[i].known || way_has(&w, c->ops[i].original),
			  "p%u: an atomic found %llu, which its counter never held", c->proc->id,
			  (unsigned long long)c->ops[i].original);
}

void counter_destroy(struct counter *c)
{
	sim_check(mem_deregister(&c->proc->mem, c->key) == 0, "a counter's key is gone");
	slice_give(c->proc->arena, &c->slice);
	free(c);
}
