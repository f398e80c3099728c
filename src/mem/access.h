/* access.h: the fast half of lookups: contiguous regions. Included by mem.h only.
 *
 * Lookups take no lock. They read an entry like a sequence lock with the key as the sequence: key,
 * content, key again. Each load of content acquires, so that the second look at the key cannot come
 * before it; a writer has cleared the key before it stores content (mem_entry_fill in table.c), and
 * the next key of an index differs from the last.
 */
#ifndef MEM_ACCESS_H
#define MEM_ACCESS_H

#include "mem/mem.h"

/* The result of a lookup. */
struct mem_view {
	u64 local; /* address in this process; MEM_PAGES: offset from the first page's beginning */
	u32 flags;
	u32 qpn, parent; /* of a window */
} OWNED_BY(the thread that looks up);

extern char mem_nothing[8]; /* the place of zero bytes */

void *mem_local_slow(const struct mem_table *t, u32 lkey, u32 length, u32 access,
		     const struct mem_view *v, u32 *piece);
void *mem_remote_slow(const struct mem_table *t, u32 qpn, u32 rkey, u64 length, u32 access,
		      const struct mem_view *v, u64 *piece);

/* Checks key, pd, access and bounds of a non-empty range. Index 0 is never in use and its length
 * stays 0, so that the key 0, which equals an invalid entry's, fails at the bounds. */
static inline bool mem_look(const struct mem_table *t, u32 pd, u32 key, u64 va, u64 length,
			    u32 access, struct mem_view *v)
{
	const struct mem_entry *e = &t->entries[key >> MEM_TAG_BITS];
	u64 offset, size;

	/* Pairs with the release of the key in mem_entry_fill. */
	if (unlikely(__atomic_load_n(&e->key, __ATOMIC_ACQUIRE) != key))
		return false;
	if (unlikely(__atomic_load_n(&e->pd, __ATOMIC_ACQUIRE) != pd))
		return false;
	if (unlikely((__atomic_load_n(&e->access, __ATOMIC_ACQUIRE) & access) != access))
		return false;
	offset = va - __atomic_load_n(&e->iova, __ATOMIC_ACQUIRE);
	size = __atomic_load_n(&e->length, __ATOMIC_ACQUIRE);
	if (unlikely(length > size || offset > size - length))
		return false;
	v->local = __atomic_load_n(&e->addr, __ATOMIC_ACQUIRE) + offset;
	v->flags = __atomic_load_n(&e->flags, __ATOMIC_ACQUIRE);
	if (unlikely(v->flags & (MEM_WINDOW | MEM_WINDOW_TYPE2))) {
		v->qpn = __atomic_load_n(&e->qpn, __ATOMIC_ACQUIRE);
		v->parent = __atomic_load_n(&e->parent, __ATOMIC_ACQUIRE);
	}
	return likely(__atomic_load_n(&e->key, __ATOMIC_RELAXED) == key);
}

static inline void *mem_local(const struct mem_table *t, u32 pd, u32 lkey, u64 addr, u32 length,
			      u32 access, u32 *piece)
{
	struct mem_view v;

	*piece = length;
	if (unlikely(length == 0))
		return mem_nothing;
	if (unlikely(!mem_look(t, pd, lkey, addr, length, access, &v)))
		return NULL;
	if (unlikely(v.flags & (MEM_WINDOW | MEM_PAGES | MEM_NULL))) {
		/* copies, so that the originals can stay in registers */
		struct mem_view copy = v;
		u32 n = length;
		void *p = mem_local_slow(t, lkey, length, access, &copy, &n);

		*piece = n;
		return p;
	}
	return (void *)(uintptr_t)v.local;
}

/* The fast path: a piece of a contiguous region; NULL: use the general lookup. The range is not
 * empty. */
static inline void *mem_plain(const struct mem_table *t, u32 pd, u32 lkey, u64 addr, u32 length,
			      u32 access)
{
	struct mem_view v;

	if (unlikely(!mem_look(t, pd, lkey, addr, length, access, &v) ||
		     (v.flags & (MEM_WINDOW | MEM_PAGES | MEM_NULL)) != 0))
		return NULL;
	return (void *)(uintptr_t)v.local;
}

static inline void *mem_remote(const struct mem_table *t, u32 pd, u32 qpn, u32 rkey, u64 va,
			       u64 length, u32 access, u64 *piece)
{
	struct mem_view v;

	*piece = length;
	if (unlikely(length == 0))
		return mem_nothing;
	if (unlikely(!mem_look(t, pd, rkey, va, length, access, &v)))
		return NULL;
	if (unlikely(v.flags & (MEM_WINDOW | MEM_PAGES | MEM_ALL)))
		return mem_remote_slow(t, qpn, rkey, length, access, &v, piece);
	return (void *)(uintptr_t)v.local;
}

#endif
