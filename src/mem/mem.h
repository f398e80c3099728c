/* mem.h: registered memory: keys, protection domains, access checks, translation, gather and
 * scatter.
 *
 * A key is (index << 12) | tag. The low 8 bits of the tag are a type-2 window's consumer-owned
 * part. Entries live in a table that may be *published*: placed in shared memory that peer
 * processes map read-only, so that they check a key themselves (path/shm). An entry's content
 * changes only while its `key` word is 0 and no peer holds a hazard on it.
 *
 *   table.c     allocates indexes, and makes every change of an entry
 *   shuffle.c   random numbers; which indexes come into use next
 *   access.h/c  lookups: contiguous regions; windows, page lists, the whole address space
 *   copy.h/c    scatter, gather, and the ordered copy of one-sided writes
 *   populate.c  makes pages present, as pinning does
 *   mapped.c    tells whether a long range is mapped
 */
#ifndef MEM_MEM_H
#define MEM_MEM_H

#include <infiniband/verbs.h>

#include "base/fault.h"
#include "base/lock.h"

enum {
	MEM_TAG_BITS = 12,
	MEM_INDEX_BITS = 20,
	MEM_MAX_KEYS = 1 << MEM_INDEX_BITS,
};

enum mem_flags {
	/* memory of this process: va = addr + (va of the peer - iova) */
	MEM_CONTIGUOUS = 1,
	/* a memory window: rkey only */
	MEM_WINDOW = 2,
	/* a window bound to `qpn` */
	MEM_WINDOW_TYPE2 = 4,
	/* FMR or ib_reg_phys_mr: translated page by page, never reached directly by peers */
	MEM_PAGES = 8,
	MEM_ZERO_BASED = 16,
	/* ib_get_dma_mr: the whole address space, local and (if permitted) remote */
	MEM_ALL = 32,
	/* set by the table: peers send packets to this process' engine (mem_exclude_peers) */
	MEM_AWAY = 64,
	/* local only: reads find zeros, writes vanish (ibv_alloc_null_mr) */
	MEM_NULL = 128,
	/* an on-demand region, or a window of one: peers send packets, because the kernel lets them
	 * write to pages that are read-only here; or one of a DMA buffer, which it does not let
	 * them reach */
	MEM_ON_DEMAND = 256,
	/* its place in the memory file outlasts mem_exclude_peers */
	MEM_STAYS_SHARED = 512,
};

/* Beside IBV_ACCESS_*: IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT of later headers. */
enum { MEM_ACCESS_FLUSH = 1 << 8, MEM_ACCESS_PERSISTENT = 1 << 9 };

/* For mem_table.drain: every entry of the table. */
enum { MEM_EVERY_KEY = UINT32_MAX - 2 };

/* One published entry: a cache line, read by peers. All fields but `key` are stable while `key` is
 * non-zero, except that mem_exclude_peers sets MEM_AWAY and clears `shared`, unless it has
 * MEM_STAYS_SHARED. `key` is the full
 * key, or 0: invalid. It is stored with release after the content; before a change it is cleared
 * with a full barrier, which pairs with the one between a peer's hazard and its second look at
 * the key. */
struct mem_entry {
	u32 key;
	u32 access; /* IBV_ACCESS_* */
	u32 pd;	    /* number of the protection domain; of a reserved key too */
	u32 flags;  /* enum mem_flags */
	u64 iova;   /* first address as the peer names it */
	u64 length; /* bytes */
	u64 addr;   /* where iova lies in this process (MEM_CONTIGUOUS) */
	u32 qpn;    /* type 2 windows: the only QP */
	u32 parent; /* windows: the region's key */
	u64 shared; /* offset of addr in the owner's memory file (src/shared); 0: not in it */
} CACHE_ALIGNED WRITTEN_UNDER(mem_table.lock);

/* The private half of an entry: page list, count of bound windows. Guarded by table->lock. */
struct mem_private;
struct mem_shuffle;

struct mem_table {
	struct lock lock;	     /* guards allocation and content changes; lookups take none */
	/* MEM_MAX_KEYS of them, sparse; shared memory if published */
	struct mem_entry *entries FIXED;
	struct mem_private *private FIXED; /* parallel, sparse */
	u32 *free GUARDED_BY(lock);  /* stack of free indexes */
	u32 free_count GUARDED_BY(lock);
	/* So many indexes were in use or are on the stack, in whole blocks; 0 never is. */
	u32 used GUARDED_BY(lock);
	u32 live GUARDED_BY(lock);
	struct mem_shuffle *shuffle FIXED; /* which indexes and tags come next */
	bool owns_entries FIXED;
	bool away GUARDED_BY(lock);	/* peers are excluded: new entries have MEM_AWAY */
	bool unshared GUARDED_BY(lock); /* new entries have no `shared`, but for that flag */
	/* Waits, with a limit, until no peer holds a hazard on the entry, or on any
	 * (MEM_EVERY_KEY). path/shm sets it; NULL: no peer sees the table. False: a peer may still
	 * write to the memory, and the entry must stay unchanged. */
	bool (*drain)(void *arg, u32 index) FIXED;
	/* Waits until no thread of this process still copies by an earlier lookup (the seat sets
	 * it; NULL: no engine). mem_deregister and mem_replace call it too, so that an application
	 * may unmap the memory right after (except for page lists); hence neither runs inside the
	 * engine's receive. mem_invalidate, which does, leaves it out: the memory stays
	 * registered. */
	void (*quiesce)(void *arg) FIXED;
	void *drain_arg FIXED;
};

/* entries: zeroed, MEM_MAX_KEYS long, or NULL to allocate private ones. 0 or -ENOMEM. Clears *t:
 * set drain afterwards. */
int mem_table_init(struct mem_table *t, struct mem_entry *entries);
/* Invalidates remaining keys without draining, and frees the table; given entries stay the
 * caller's. No other thread uses the table. */
void mem_table_fini(struct mem_table *t);

/* What a registration asks for.
 *
 * MEM_CONTIGUOUS: addr is where iova lies in this process.
 *
 * MEM_PAGES: addr is ignored; iova lies in the first page at the same offset as within its own
 * page.
 *
 * MEM_ALL, MEM_NULL: addr, length and iova are ignored.
 *
 * MEM_WINDOW: addr names the first byte in the parent's iova space; iova is what peers call it (0
 * if zero-based). The parent must be live, of the same pd, and allow IBV_ACCESS_MW_BIND. */
struct mem_region {
	u64 addr, length, iova;
	u64 shared; /* MEM_CONTIGUOUS: where addr lies in the memory file (src/shared), or 0 */
	u32 access, pd, flags, qpn, parent;
	const u64 *pages; /* MEM_PAGES: page addresses, copied */
	u32 page_count, page_shift;
} OWNED_BY(the caller);

/* Registers; *key on success. -ENOMEM (table full or no memory), -EINVAL (wraps around, bad flags
 * or access, bad parent). Does not touch the memory. Remote write and atomic access need local
 * write access too, of a window's parent likewise. */
int mem_register(struct mem_table *t, const struct mem_region *r, u32 *key);
/* Checks that [addr, addr+length) is mapped, with write permission if `write` is set, and faults it
 * in as pinning would. 0, -EFAULT, -ENOMEM. */
int mem_populate(u64 addr, u64 length, bool write);
/* Reads ahead memory that is about to be used. `wait`: until every page is present, with write
 * permission if `write` is set; -EFAULT if some are not mapped so, -ENOMEM. Else the kernel is only
 * asked to begin, and what it cannot do is left: 0. */
int mem_prefetch(u64 addr, u64 length, bool write, bool wait);
/* Tells whether this process may now read [addr, addr + length), or write it. Asks the kernel about
 * each page and touches none by its own instructions. Costs a system call per page. */
bool mem_is_there(u64 addr, u64 length, bool write);
/* Invalidates, waits for peers' hazards, frees the index. May block (bounded). -EINVAL: no such
 * key. -EBUSY: windows bound to it, or a peer is stopped in the middle of a write; then the key is
 * valid again. */
int mem_deregister(struct mem_table *t, u32 key);
/* Replaces the content under a key (FMR map and unmap, rereg, window bind). *key: in, the present
 * key (where the index came from mem_reserve, or is a window, any low 8 bits do); out, the new one,
 * of the same index and another tag. A type 2 window takes the low 8 bits that *key came with, and
 * must not be valid (-EINVAL). -EBUSY: as mem_deregister. Other errors as of mem_register; on any
 * error the old content stays. May block like mem_deregister if the content was valid, but for a
 * list of pages (an FMR): that one waits for nobody, and the old pages are the caller's again only
 * after mem_unbind and `quiesce`. */
int mem_replace(struct mem_table *t, u32 *key, const struct mem_region *r);
/* Changes the domain and the rights of an ordinary registration (rereg); key, addresses and length
 * stay. -EINVAL: no such key, from mem_reserve, a window, or rights as of mem_register. -EBUSY: as
 * mem_deregister. On any error the old content stays. May block like mem_deregister. */
int mem_modify(struct mem_table *t, u32 key, u32 pd, u32 access);
/* Copies the content of a valid key. -ENOENT: there is none. Waits for a change in progress. */
int mem_describe(struct mem_table *t, u32 key, struct mem_entry *out);
/* Reserves an index with no valid content (FMR or window before its first use): *key names it,
 * lookups of it fail. `flags`: MEM_WINDOW_TYPE2 for a window of type 2, else 0. Only binds of type
 * 2 fill the former, in the same pd, and its low 8 bits are 0 at first. -ENOMEM. */
int mem_reserve(struct mem_table *t, u32 pd, u32 flags, u32 *key);
/* Invalidates a key and keeps its index reserved, for its owner's verb (unbind, unmap). Drains like
 * mem_deregister. -EINVAL if not valid or of another pd, or an ordinary registration (neither from
 * mem_reserve nor a window). -EBUSY: as mem_deregister. Waits for no peer if the content was a list
 * of pages. */
int mem_unbind(struct mem_table *t, u32 key, u32 pd);
/* The same for a work request of QP `qpn`, the owner's (local invalidate) or a peer's
 * (SEND_WITH_INV): -EINVAL as well for a window of type 1, and for one that is bound to another
 * QP. The last key of a fast registration that is free is valid here: 0, and nothing changes. */
int mem_invalidate(struct mem_table *t, u32 key, u32 pd, u32 qpn);
/* Invalidates every window that is bound to the QP, which is gone: a later QP may have its
 * number. */
void mem_unbind_qp(struct mem_table *t, u32 qpn);

/* Fast registration. The key names an index that holds up to `max_pages` pages; lookups of it fail
 * until mem_fast_register. mem_deregister ends it, mem_invalidate ends its content. -EINVAL: 0
 * pages; -ENOMEM. */
int mem_fast_reserve(struct mem_table *t, u32 pd, u32 max_pages, u32 *key);
/* Keeps the pages, iova and length of `r` (flags MEM_PAGES) for the next mem_fast_register. The
 * present content stays. -EINVAL: not such a key, more pages than it holds, as of mem_register. */
int mem_fast_stage(struct mem_table *t, u32 key, const struct mem_region *r);
/* Makes what was staged last valid under `key`, whose low 8 bits are the caller's choice. -EINVAL:
 * not such a key, of another pd, valid, nothing staged, rights. Never blocks for long. */
int mem_fast_register(struct mem_table *t, u32 key, u32 pd, u32 access);

/* For the end of the memory file (src/shared). From the return of mem_exclude_peers to
 * mem_admit_peers no peer reaches this process' memory directly: its operations go through the
 * engine of this process. No entry is `shared` from then on. Waits for peers' hazards (bounded).
 * Keys and their contents stay valid. */
void mem_exclude_peers(struct mem_table *t);
void mem_admit_peers(struct mem_table *t);

/* Local side: checks an SGE against (pd, access) and returns its address in this process. NULL:
 * protection error. One contiguous piece only: *piece (out) is the number of contiguous bytes from
 * there on, at most length. Takes no lock. access: IBV_ACCESS_LOCAL_WRITE if the memory is written,
 * else 0. A zero length needs no valid key: not NULL, *piece 0. The result is valid until the key
 * is deregistered; a caller that races with that copies, at worst, from freed memory of this
 * process. */
static inline void *mem_local(const struct mem_table *t, u32 pd, u32 lkey, u64 addr, u32 length,
			      u32 access, u32 *piece);
/* Remote side: the same for a peer's (rkey, va, length) on QP `qpn` of `pd`; access:
 * IBV_ACCESS_REMOTE_*. */
static inline void *mem_remote(const struct mem_table *t, u32 pd, u32 qpn, u32 rkey, u64 va,
			       u64 length, u32 access, u64 *piece);

/* May a peer's key be used on QP `qpn` of `pd` with these rights, wherever in its range? */
bool mem_remote_whole(const struct mem_table *t, u32 pd, u32 qpn, u32 rkey, u32 access);

/* Copies so that bytes become visible in ascending order: the last 64 (or all, if fewer) after all
 * others. 0, or -EFAULT: one of the two is not mapped any more. */
int mem_copy_ordered(void *dst, const void *src, size_t n) MUST_CHECK;

/* A position in a scatter/gather list. */
struct mem_cursor {
	const struct ibv_sge *sge;
	u32 count, index;
	u32 offset; /* in sge[index] */
} OWNED_BY(the caller);

/* Copies n bytes from `src` into the list at the cursor, or the other way; checks every piece. 0,
 * -EACCES (key, pd, bounds), -EMSGSIZE (list too short), -EFAULT (the memory is not mapped any
 * more). Moves the cursor by the copied bytes. */
static inline int mem_scatter(const struct mem_table *t, u32 pd, struct mem_cursor *c,
			      const void *src, size_t n);
static inline int mem_gather(const struct mem_table *t, u32 pd, struct mem_cursor *c, void *dst,
			     size_t n);
/* Lists the pieces of the next n bytes as iovecs (for a direct copy): count, or the errors above,
 * or -E2BIG (more than max pieces). access as for mem_local. The cursor moves by n on success and
 * not at all on an error. */
struct iovec;
int mem_pieces(const struct mem_table *t, u32 pd, struct mem_cursor *c, size_t n, u32 access,
	       struct iovec *iov, int max);
u64 mem_list_length(const struct ibv_sge *sge, int count);

#include "mem/access.h"
#include "mem/copy.h"

#endif
