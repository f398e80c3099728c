/* access.c: the slow half of lookups: windows, page lists and the whole address space.
 *
 * In:    a view that passed key, pd, access and bounds (mem_look)
 * Out:   an address of this process
 * Runs:  any thread      Locks: none
 */
#include "mem/mem_priv.h"

char mem_nothing[8];

/* Keeps the page list of `key` in place until mem_pages_leave. False: the key is invalid. The
 * increment is ordered before the second load of the key, as mem_entry_hide's exchange is before
 * mem_entry_drain's load of `readers`: one of the two sees the other. */
static bool mem_pages_enter(const struct mem_table *t, u32 key, struct mem_private *p)
{
	__atomic_fetch_add(&p->readers, 1, __ATOMIC_SEQ_CST);
	if (likely(__atomic_load_n(&t->entries[mem_index(key)].key, __ATOMIC_SEQ_CST) == key))
		return true;
	__atomic_fetch_sub(&p->readers, 1, __ATOMIC_RELEASE);
	return false;
}

static void mem_pages_leave(struct mem_private *p)
{
	__atomic_fetch_sub(&p->readers, 1, __ATOMIC_RELEASE);
}

/* Translates `offset` from the first page's beginning; limits *piece to the contiguous bytes.
 * `list` has the pages. */
static void *mem_pages_translate(const struct mem_private *list, u64 offset, u64 *piece)
{
	u64 size = 1ull << list->page_shift;
	u64 in_page = offset & (size - 1), page = offset >> list->page_shift;
	u64 start = list->pages[page] + in_page, run = size - in_page;

	while (run < *piece && page + 1 < list->page_count &&
	       list->pages[page + 1] == list->pages[page] + size) {
		page++;
		run += size;
	}
	*piece = MIN(*piece, run);
	return (void *)(uintptr_t)start;
}

/* The list is the key's own, or that of a window's parent, which outlives the window: so the
 * window's count guards both. */
static void *mem_pages_find(const struct mem_table *t, u32 key, const struct mem_view *v,
			    u64 *piece)
{
	struct mem_private *p = &t->private[mem_index(key)];
	const struct mem_private *list = v->flags & MEM_WINDOW ? &t->private[mem_index(v->parent)]
							       : p;
	void *found = NULL;

	if (!mem_pages_enter(t, key, p))
		return NULL;
	if (likely(list->pages && v->local >> list->page_shift < list->page_count))
		found = mem_pages_translate(list, v->local, piece);
	mem_pages_leave(p);
	return found;
}

/* What a null region's reads find, and where its writes go. Larger ranges are such pieces in a
 * row. */
static const char mem_zeros[1 << 16];
static char mem_sink[1 << 16];

static void *mem_null_piece(u32 access, u32 length, u32 *piece)
{
	*piece = MIN(length, (u32)sizeof(mem_sink));
	return access & IBV_ACCESS_LOCAL_WRITE ? mem_sink : (char *)(uintptr_t)mem_zeros;
}

void *mem_local_slow(const struct mem_table *t, u32 lkey, u32 length, u32 access,
		     const struct mem_view *v, u32 *piece)
{
	u64 run = length;
	void *found;

	if (v->flags & MEM_NULL)
		return mem_null_piece(access, length, piece);
	if (v->flags & MEM_WINDOW)
		return NULL;
	found = mem_pages_find(t, lkey, v, &run);
	*piece = (u32)run;
	return found;
}

/* A key for the whole address space does not tell what is mapped, and a wrong address from a peer
 * must not kill this process. */
static bool all_mapped(u64 addr, u64 length, u32 access)
{
	return mem_populate(addr, length,
			    access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0;
}

void *mem_remote_slow(const struct mem_table *t, u32 qpn, u32 rkey, u64 length, u32 access,
		      const struct mem_view *v, u64 *piece)
{
	if (v->flags & MEM_WINDOW_TYPE2 && v->qpn != qpn)
		return NULL;
	if (v->flags & MEM_PAGES)
		return mem_pages_find(t, rkey, v, piece);
	if (v->flags & MEM_ALL && !all_mapped(v->local, length, access))
		return NULL;
	return (void *)(uintptr_t)v->local;
}

bool mem_remote_whole(const struct mem_table *t, u32 pd, u32 qpn, u32 rkey, u32 access)
{
	const struct mem_entry *e = &t->entries[mem_index(rkey)];
	u64 piece;

	/* of another life of the entry: mem_remote looks at all of it again */
	return mem_remote(t, pd, qpn, rkey, __atomic_load_n(&e->iova, __ATOMIC_ACQUIRE), 1, access,
			  &piece) != NULL;
}
