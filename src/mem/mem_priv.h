/* mem_priv.h: inside the room: the private half of an entry. */
#ifndef MEM_MEM_PRIV_H
#define MEM_MEM_PRIV_H

#include "mem/mem.h"

/* What a fast registration will map, and room for what it maps. */
struct mem_fast {
	u32 max_pages FIXED;
	/* what was staged; 0 pages: nothing */
	u32 count WRITTEN_UNDER(mem_table.lock), shift WRITTEN_UNDER(mem_table.lock);
	u64 iova WRITTEN_UNDER(mem_table.lock), length WRITTEN_UNDER(mem_table.lock);
	/* max_pages that are staged, and as many that are mapped (mem_private.pages) */
	u64 pages[] WRITTEN_UNDER(mem_table.lock);
};

enum mem_state {
	MEM_FREE,     /* on the free stack, or never used */
	MEM_RESERVED, /* has a name, no content */
	MEM_LIVE,     /* entry->key == name */
	MEM_BUSY,     /* one thread changes it, without the lock; others wait */
};

/* Read under table->lock, too, except as noted. Lives as long as the table, so that a late
 * lookup never meets freed memory here. */
struct mem_private {
	/* MEM_PAGES: owned by the table. Read by lookups that count in `readers`; freed when the
	 * key is 0 and readers 0. */
	u64 *pages;
	u32 page_count; /* read by lookups as above */
	u32 page_shift; /* likewise */
	u32 readers ATOMIC_ONLY;	/* lookups inside `pages` */
	/* The key last handed out for this index; kept while free, so that the next one differs. */
	u32 name;
	u32 windows; /* windows bound to this region */
	u8 state;    /* enum mem_state */
	/* From mem_reserve, or a window: matches any low 8 bits, may be invalidated by key. */
	bool rebindable;
	bool window2; /* only binds of type 2 fill it */
	/* Fast registration: `pages` of the present content lies in it. Allocated with the index,
	 * freed with it. */
	struct mem_fast *fast;
} WRITTEN_UNDER(mem_table.lock);

static inline u32 mem_index(u32 key)
{
	return key >> MEM_TAG_BITS;
}

#endif
