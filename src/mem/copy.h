/* copy.h: the fast half of scatter and gather: one element, one piece. Included by mem.h only. */
#ifndef MEM_COPY_H
#define MEM_COPY_H

#include <string.h>

#include "mem/access.h"

int mem_scatter_slow(const struct mem_table *t, u32 pd, struct mem_cursor *c, const void *src,
		     size_t n);
int mem_gather_slow(const struct mem_table *t, u32 pd, struct mem_cursor *c, void *dst, size_t n);

/* Returns the next n bytes at the cursor if they lie in one element and one piece, and moves the
 * cursor; else NULL: use the general way. */
static inline void *mem_cursor_take(const struct mem_table *t, u32 pd, struct mem_cursor *c,
				    size_t n, u32 access)
{
	const struct ibv_sge *sge;
	u64 va;
	u32 piece;
	void *p;

	if (unlikely(c->index >= c->count))
		return NULL;
	sge = &c->sge[c->index];
	if (unlikely(n > sge->length - c->offset))
		return NULL;
	va = sge->addr + c->offset;
	if (unlikely(va < sge->addr))
		return NULL;
	p = mem_local(t, pd, sge->lkey, va, (u32)n, access, &piece);
	if (unlikely(!p || piece != n))
		return NULL;
	c->offset += (u32)n;
	return p;
}

static inline int mem_scatter(const struct mem_table *t, u32 pd, struct mem_cursor *c,
			      const void *src, size_t n)
{
	void *p = mem_cursor_take(t, pd, c, n, IBV_ACCESS_LOCAL_WRITE);

	if (unlikely(!p))
		return mem_scatter_slow(t, pd, c, src, n);
	return fault_copy(p, src, n); /* on the self path both ends may be the same memory */
}

static inline int mem_gather(const struct mem_table *t, u32 pd, struct mem_cursor *c, void *dst,
			     size_t n)
{
	const void *p = mem_cursor_take(t, pd, c, n, 0);

	if (unlikely(!p))
		return mem_gather_slow(t, pd, c, dst, n);
	return fault_copy(dst, p, n);
}

#endif
