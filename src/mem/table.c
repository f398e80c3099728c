/* table.c: the table of keys: allocates indexes, and makes every change of an entry's content.
 *
 * In:    registrations, binds, invalidations       Out: published entries
 * Runs:  any thread                                Locks: table->lock, never across a drain
 *
 * A change goes: claim the index (state BUSY, others wait) - clear the key - release the lock -
 * drain the peers' hazards and the page readers - take the lock - store the content - store the
 * key. If the drain fails the old key is stored again. So the content never changes under a peer
 * that checked the key with a hazard raised, and lookups without one (access.h) notice the
 * change by the key.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "mem/mem_priv.h"
#include "mem/shuffle.h"

enum {
	TAG_LOW_MASK = 0xff,
	/* Added to the low 8 bits of a key for its next content: odd, so a stale key can match
	 * again only after 256 changes; not 1, so that a key + 1 stays invalid right after one. */
	TAG_STEP = 0x65,
	ACCESS_REMOTE_CHANGE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	ACCESS_WINDOW = ACCESS_REMOTE_CHANGE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED,
	ACCESS_REGION = ACCESS_WINDOW | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
			IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | MEM_ACCESS_FLUSH |
			IBV_ACCESS_OPTIONAL_RANGE,
	FLAGS_KIND = MEM_CONTIGUOUS | MEM_PAGES | MEM_ALL | MEM_WINDOW | MEM_NULL,
	FLAGS_KNOWN = FLAGS_KIND | MEM_WINDOW_TYPE2 | MEM_ZERO_BASED | MEM_ON_DEMAND |
		      MEM_STAYS_SHARED,
	/* what a window has of its parent */
	FLAGS_INHERITED = MEM_CONTIGUOUS | MEM_PAGES | MEM_ALL | MEM_ON_DEMAND,
	PAGE_SHIFT_MAX = 40,
};

static void *mem_table_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* Few small pages are touched, far from each other. */
	(void)madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

static void mem_table_unmap(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

/* NO_THREAD_SAFETY: not yet visible to other threads. */
int mem_table_init(struct mem_table *t, struct mem_entry *entries) NO_THREAD_SAFETY
{
	memset(t, 0, sizeof(*t));
	t->owns_entries = !entries;
	t->entries = entries ? entries : mem_table_map(MEM_MAX_KEYS * sizeof(*t->entries));
	t->private = mem_table_map(MEM_MAX_KEYS * sizeof(*t->private));
	t->free = mem_table_map(MEM_MAX_KEYS * sizeof(*t->free));
	t->shuffle = mem_table_map(sizeof(*t->shuffle));
	if (!t->entries || !t->private || !t->free || !t->shuffle) {
		mem_table_fini(t);
		return -ENOMEM;
	}
	shuffle_begin(t->shuffle);
	return 0;
}

/* Frees a page list that was the entry's; a fast registration keeps its room. */
static void private_free_pages(const struct mem_private *p, u64 *pages)
{
	if (!p->fast)
		free(pages);
}

/* NO_THREAD_SAFETY: visible to no other thread any more. */
void mem_table_fini(struct mem_table *t) NO_THREAD_SAFETY
{
	/* Only indexes that were in use: reading a hole of a sparse table would allocate it. */
	for (u32 n = 0; n < t->used; n++) {
		u32 i = shuffle_index(t->shuffle, n);

		if (t->private[i].state == MEM_FREE)
			continue;
		__atomic_store_n(&t->entries[i].key, 0, __ATOMIC_SEQ_CST);
		private_free_pages(&t->private[i], t->private[i].pages);
		free(t->private[i].fast);
	}
	if (t->owns_entries)
		mem_table_unmap(t->entries, MEM_MAX_KEYS * sizeof(*t->entries));
	mem_table_unmap(t->private, MEM_MAX_KEYS * sizeof(*t->private));
	mem_table_unmap(t->free, MEM_MAX_KEYS * sizeof(*t->free));
	mem_table_unmap(t->shuffle, sizeof(*t->shuffle));
	memset(t, 0, sizeof(*t));
}

/* ---- indexes and names ---- */

/* Puts an index on the stack and swaps it with a random one, so that reuse is neither at once nor
 * in order. */
static void index_push(struct mem_table *t, u32 index) REQUIRES(&t->lock)
{
	u32 place = shuffle_draw(t->shuffle) % (t->free_count + 1);

	t->free[t->free_count] = t->free[place];
	t->free[place] = index;
	t->free_count++;
}

/* A block that no key was in: at a place of the table that nobody foresees. */
static void index_push_block(struct mem_table *t) REQUIRES(&t->lock)
{
	u32 end = t->used + SHUFFLE_BLOCK;

	shuffle_add_block(t->shuffle, t->used / SHUFFLE_BLOCK);
	for (; t->used < end; t->used++) {
		u32 index = shuffle_index(t->shuffle, t->used);

		if (index != 0)
			index_push(t, index);
	}
}

static bool index_pop(struct mem_table *t, u32 *index) REQUIRES(&t->lock)
{
	if (t->free_count == 0 && t->used < MEM_MAX_KEYS)
		index_push_block(t);
	if (t->free_count == 0)
		return false;
	*index = t->free[--t->free_count];
	return true;
}

/* Makes a name for a free index: a random tag other than its last one. The tag's upper 4 bits are
 * never 0, so that no low 8 bits that a window's consumer chooses make the tag 0: key + 1 of the
 * largest tag, which is the next index with tag 0, is never valid. */
static u32 name_new(struct mem_table *t, u32 index) REQUIRES(&t->lock)
{
	u32 name;

	do {
		u32 r = shuffle_draw(t->shuffle);

		name = index << MEM_TAG_BITS | (1 + (r >> 8) % 15) << 8 | (r & TAG_LOW_MASK);
	} while (name == t->private[index].name);
	return name;
}

static u32 name_next(u32 name, u32 wanted, u32 flags)
{
	u32 low = flags & MEM_WINDOW_TYPE2 ? wanted : name + TAG_STEP;

	return (name & ~(u32)TAG_LOW_MASK) | (low & TAG_LOW_MASK);
}

/* Takes an index, BUSY, with a new name. */
static int index_take(struct mem_table *t, u32 *index) REQUIRES(&t->lock)
{
	struct mem_private *p;

	if (!index_pop(t, index))
		return -ENOMEM;
	p = &t->private[*index];
	p->name = name_new(t, *index);
	p->state = MEM_BUSY;
	t->live++;
	return 0;
}

static void index_give(struct mem_table *t, u32 index) REQUIRES(&t->lock)
{
	t->private[index].state = MEM_FREE;
	t->private[index].rebindable = t->private[index].window2 = false;
	t->live--;
	index_push(t, index);
}

static bool name_matches(const struct mem_private *p, u32 key)
{
	return p->rebindable ? (p->name | TAG_LOW_MASK) == (key | TAG_LOW_MASK) : p->name == key;
}

/* Finds the entry whose name matches `key`, after a change in progress has ended; NULL: none.
 * Releases the lock meanwhile. The wait is bounded as a drain is. */
static struct mem_private *name_find(struct mem_table *t, u32 key) REQUIRES(&t->lock)
{
	struct mem_private *p = &t->private[mem_index(key)];

	while (p->state == MEM_BUSY) {
		lock_release(&t->lock);
		sched_yield();
		lock_acquire(&t->lock);
	}
	return p->state != MEM_FREE && name_matches(p, key) ? p : NULL;
}

/* ---- content ---- */

static int mem_region_check_access(const struct mem_region *r)
{
	u32 known = r->flags & MEM_WINDOW ? ACCESS_WINDOW
		    : r->flags & MEM_NULL ? IBV_ACCESS_LOCAL_WRITE
					  : ACCESS_REGION;

	if (r->access & ~known)
		return -EINVAL;
	if (!(r->flags & MEM_WINDOW) && r->access & ACCESS_REMOTE_CHANGE &&
	    !(r->access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static int mem_region_check_pages(const struct mem_region *r)
{
	u64 skip;

	if (r->page_shift > PAGE_SHIFT_MAX || (r->page_count && !r->pages))
		return -EINVAL;
	skip = r->iova & ((1ull << r->page_shift) - 1);
	if (r->length > UINT64_MAX - skip ||
	    (r->length && (skip + r->length - 1) >> r->page_shift >= r->page_count))
		return -EINVAL;
	return 0;
}

static bool mem_range_wraps(u64 start, u64 length)
{
	return length && start + (length - 1) < start;
}

static int mem_region_check(const struct mem_region *r)
{
	u32 kind = r->flags & FLAGS_KIND;

	if (r->flags & ~(u32)FLAGS_KNOWN || !kind || kind & (kind - 1))
		return -EINVAL;
	if (r->flags & MEM_WINDOW_TYPE2 && (kind != MEM_WINDOW || r->length == 0))
		return -EINVAL;
	if (kind != MEM_ALL && kind != MEM_NULL &&
	    (mem_range_wraps(r->iova, r->length) || mem_range_wraps(r->addr, r->length)))
		return -EINVAL;
	if (kind == MEM_PAGES && mem_region_check_pages(r) < 0)
		return -EINVAL;
	return mem_region_check_access(r);
}

/* Copies the page list. NULL with *err 0: there is none. */
static u64 *mem_region_copy_pages(const struct mem_region *r, int *err)
{
	u64 *pages;

	*err = 0;
	if (!(r->flags & MEM_PAGES) || !r->page_count)
		return NULL;
	pages = malloc(r->page_count * sizeof(*pages));
	if (pages)
		memcpy(pages, r->pages, r->page_count * sizeof(*pages));
	else
		*err = -ENOMEM;
	return pages;
}

/* Derives the content of a window from its parent's, which stays live while windows are bound to
 * it.
 */
static int mem_window_derive(struct mem_table *t, const struct mem_region *r, struct mem_entry *e)
	REQUIRES(&t->lock)
{
	const struct mem_entry *parent = &t->entries[mem_index(r->parent)];
	const struct mem_private *p = &t->private[mem_index(r->parent)];
	u64 offset;

	if (p->state != MEM_LIVE || p->name != r->parent)
		return -EINVAL;
	if (parent->flags & (MEM_WINDOW | MEM_NULL) || parent->pd != r->pd ||
	    !(parent->access & IBV_ACCESS_MW_BIND))
		return -EINVAL;
	if (r->access & ACCESS_REMOTE_CHANGE && !(parent->access & IBV_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	offset = r->addr - parent->iova;
	if (r->length > parent->length || offset > parent->length - r->length)
		return -EINVAL;
	e->addr = parent->addr + offset;
	e->shared = parent->shared == 0 ? 0 : parent->shared + offset;
	e->flags |= parent->flags & FLAGS_INHERITED;
	e->parent = r->parent;
	return 0;
}

/* Composes the entry to be published for `r`; its key is still 0. */
static int mem_region_compose(struct mem_table *t, const struct mem_region *r, struct mem_entry *e)
	REQUIRES(&t->lock)
{
	*e = (struct mem_entry){ .access = r->access,
				 .pd = r->pd,
				 .flags = r->flags,
				 .qpn = r->qpn,
				 .iova = r->iova,
				 .length = r->length,
				 .addr = r->addr,
				 .shared = r->shared };

	if (r->flags & MEM_WINDOW)
		return mem_window_derive(t, r, e);
	if (r->flags & MEM_PAGES)
		e->addr = r->iova & ((1ull << r->page_shift) - 1);
	if (r->flags & MEM_ALL)
		e->flags |= MEM_CONTIGUOUS;
	if (r->flags & (MEM_ALL | MEM_NULL)) {
		e->iova = e->addr = 0;
		e->length = UINT64_MAX;
	}
	return 0;
}

/* The stores release, so that a lookup that sees one of them sees the cleared key too (mem_look);
 * the last one publishes. */
static void mem_entry_fill(struct mem_entry *to, const struct mem_entry *e, u32 key)
{
	__atomic_store_n(&to->access, e->access, __ATOMIC_RELEASE);
	__atomic_store_n(&to->pd, e->pd, __ATOMIC_RELEASE);
	__atomic_store_n(&to->flags, e->flags, __ATOMIC_RELEASE);
	__atomic_store_n(&to->iova, e->iova, __ATOMIC_RELEASE);
	__atomic_store_n(&to->length, e->length, __ATOMIC_RELEASE);
	__atomic_store_n(&to->addr, e->addr, __ATOMIC_RELEASE);
	__atomic_store_n(&to->shared, e->shared, __ATOMIC_RELEASE);
	__atomic_store_n(&to->qpn, e->qpn, __ATOMIC_RELEASE);
	__atomic_store_n(&to->parent, e->parent, __ATOMIC_RELEASE);
	__atomic_store_n(&to->key, key, __ATOMIC_RELEASE);
}

/* Makes a live entry BUSY and unreachable. The exchange is the full barrier between clearing the
 * key and reading hazards. */
static void mem_entry_hide(struct mem_table *t, struct mem_private *p) REQUIRES(&t->lock)
{
	p->state = MEM_BUSY;
	__atomic_exchange_n(&t->entries[mem_index(p->name)].key, 0, __ATOMIC_SEQ_CST);
}

/* Makes a hidden entry live again, unchanged. Peers may have been excluded, or admitted,
 * meanwhile. */
static void mem_entry_restore(struct mem_table *t, struct mem_private *p) REQUIRES(&t->lock)
{
	struct mem_entry e = t->entries[mem_index(p->name)];

	e.flags = t->away ? e.flags | MEM_AWAY : e.flags & ~(u32)MEM_AWAY;
	if (t->unshared && !(e.flags & MEM_STAYS_SHARED))
		e.shared = 0;
	mem_entry_fill(&t->entries[mem_index(p->name)], &e, p->name);
	p->state = MEM_LIVE;
}

/* Waits until no peer and no page reader uses the entry's old content. Peers reach contiguous
 * memory only. -EBUSY: a peer is stopped in the middle of a write. */
static int mem_entry_drain(struct mem_table *t, struct mem_private *p) EXCLUDES(&t->lock)
{
	if (t->drain && t->entries[mem_index(p->name)].flags & MEM_CONTIGUOUS &&
	    !t->drain(t->drain_arg, mem_index(p->name)))
		return -EBUSY;
	/* Pairs with the release in mem_pages_leave (access.c). */
	while (__atomic_load_n(&p->readers, __ATOMIC_SEQ_CST) != 0)
		sched_yield();
	return 0;
}

/* Waits for the engine of this process, too. */
static int mem_entry_drain_all(struct mem_table *t, struct mem_private *p) EXCLUDES(&t->lock)
{
	int err = mem_entry_drain(t, p);

	if (!err && t->quiesce)
		t->quiesce(t->drain_arg);
	return err;
}

/* Waits before other content is stored: of a page list only for its readers, which is short. Its
 * owner unmaps before it reuses the pages, and waits then (mem_unbind). */
static int mem_entry_drain_for_other(struct mem_table *t, struct mem_private *p) EXCLUDES(&t->lock)
{
	if ((t->entries[mem_index(p->name)].flags & FLAGS_KIND) == MEM_PAGES)
		return mem_entry_drain(t, p);
	return mem_entry_drain_all(t, p);
}

/* Fills a BUSY index and publishes it. Peers may have been excluded since `e` was composed. */
static void mem_entry_publish(struct mem_table *t, struct mem_private *p,
			      const struct mem_region *r, struct mem_entry *e, u64 *pages)
	REQUIRES(&t->lock)
{
	p->pages = pages;
	p->page_count = r->page_count;
	p->page_shift = r->page_shift;
	if (r->flags & MEM_WINDOW)
		t->private[mem_index(r->parent)].windows++;
	if (t->away)
		e->flags |= MEM_AWAY;
	if (t->unshared && !(e->flags & MEM_STAYS_SHARED))
		e->shared = 0;
	mem_entry_fill(&t->entries[mem_index(p->name)], e, p->name);
	p->state = MEM_LIVE;
}

/* Ends the content of a hidden and drained entry. The caller frees the result, without the lock. */
static u64 *mem_entry_strip(struct mem_table *t, struct mem_private *p) REQUIRES(&t->lock)
{
	const struct mem_entry *e = &t->entries[mem_index(p->name)];
	u64 *pages = p->pages;

	if (e->flags & MEM_WINDOW)
		t->private[mem_index(e->parent)].windows--;
	p->pages = NULL;
	p->page_count = 0;
	return pages;
}

/* ---- the calls ---- */

int mem_register(struct mem_table *t, const struct mem_region *r, u32 *key)
{
	struct mem_entry e;
	u32 index;
	int err = mem_region_check(r);
	u64 *pages = err ? NULL : mem_region_copy_pages(r, &err);

	if (err)
		return err;
	lock_acquire(&t->lock);
	err = mem_region_compose(t, r, &e);
	if (!err)
		err = index_take(t, &index);
	if (!err) {
		t->private[index].rebindable = r->flags & MEM_WINDOW;
		t->private[index].window2 = r->flags & MEM_WINDOW_TYPE2;
		mem_entry_publish(t, &t->private[index], r, &e, pages);
		*key = t->private[index].name;
	}
	lock_release(&t->lock);
	if (err)
		free(pages);
	return err;
}

int mem_describe(struct mem_table *t, u32 key, struct mem_entry *out)
{
	const struct mem_entry *e = &t->entries[mem_index(key)];
	bool found;

	lock_acquire(&t->lock);
	found = name_find(t, key) != NULL && e->key == key;
	if (found)
		*out = *e;
	lock_release(&t->lock);
	return found ? 0 : -ENOENT;
}

/* Takes an index without content. */
static int index_reserve(struct mem_table *t, u32 pd, struct mem_private **out) REQUIRES(&t->lock)
{
	u32 index;
	int err = index_take(t, &index);

	if (err)
		return err;
	t->private[index].rebindable = true;
	t->private[index].state = MEM_RESERVED;
	__atomic_store_n(&t->entries[index].pd, pd, __ATOMIC_RELAXED);
	*out = &t->private[index];
	return 0;
}

int mem_reserve(struct mem_table *t, u32 pd, u32 flags, u32 *key)
{
	struct mem_private *p;
	int err;

	lock_acquire(&t->lock);
	err = index_reserve(t, pd, &p);
	if (!err) {
		p->window2 = flags & MEM_WINDOW_TYPE2;
		if (p->window2)
			p->name &= ~(u32)TAG_LOW_MASK;
		*key = p->name;
	}
	lock_release(&t->lock);
	return err;
}

int mem_deregister(struct mem_table *t, u32 key)
{
	struct mem_private *p;
	struct mem_fast *fast = NULL;
	u64 *pages = NULL;
	int err = 0;

	lock_acquire(&t->lock);
	p = name_find(t, key);
	if (!p) {
		err = -EINVAL;
	} else if (p->windows) {
		err = -EBUSY;
	} else if (p->state == MEM_LIVE) {
		mem_entry_hide(t, p);
		lock_release(&t->lock);
		err = mem_entry_drain_all(t, p);
		lock_acquire(&t->lock);
		if (err)
			mem_entry_restore(t, p);
		else
			pages = mem_entry_strip(t, p);
	}
	if (!err) {
		fast = p->fast;
		p->fast = NULL;
		index_give(t, mem_index(key));
	}
	lock_release(&t->lock);
	/* The pages of a fast registration lie in it. */
	free(fast ? (void *)fast : pages);
	return err;
}

/* For mem_table_empty: the owner's verb, no work request. */
enum { BY_VERB = UINT32_MAX };

/* Tells whether a work request of the QP, the peer's or the owner's, may invalidate the entry: not
 * a window of type 1, which only another bind ends (IBA vol 1, 10.6.7, memory windows), and not
 * one that is bound to another QP. */
static bool mem_entry_yields(const struct mem_entry *e, u32 qpn)
{
	return !(e->flags & MEM_WINDOW) || (e->flags & MEM_WINDOW_TYPE2 && e->qpn == qpn);
}

/* Tells whether the entry may be emptied. -EALREADY: it is empty, which a work request may meet: a
 * consumer of fast registration invalidates the region's last key before each use, the first
 * included, and adapters see no mistake in it. */
static int mem_entry_may_empty(struct mem_table *t, const struct mem_private *p, u32 key, u32 pd,
			       u32 qpn) REQUIRES(&t->lock)
{
	const struct mem_entry *e = &t->entries[mem_index(key)];

	if (!p || p->name != key || !p->rebindable || e->pd != pd)
		return -EINVAL;
	if (qpn != BY_VERB && p->fast && p->state == MEM_RESERVED)
		return -EALREADY;
	if (p->state != MEM_LIVE || (qpn != BY_VERB && !mem_entry_yields(e, qpn)))
		return -EINVAL;
	return p->windows ? -EBUSY : 0;
}

static int mem_table_empty(struct mem_table *t, u32 key, u32 pd, u32 qpn)
{
	struct mem_private *p;
	u64 *pages = NULL;
	int err;

	lock_acquire(&t->lock);
	p = name_find(t, key);
	err = mem_entry_may_empty(t, p, key, pd, qpn);
	if (err) {
		lock_release(&t->lock);
		return err == -EALREADY ? 0 : err;
	}
	mem_entry_hide(t, p);
	lock_release(&t->lock);
	err = mem_entry_drain(t, p);
	lock_acquire(&t->lock);
	if (err) {
		mem_entry_restore(t, p);
	} else {
		pages = mem_entry_strip(t, p);
		p->state = MEM_RESERVED;
	}
	private_free_pages(p, pages);
	lock_release(&t->lock);
	return err;
}

int mem_unbind(struct mem_table *t, u32 key, u32 pd)
{
	return mem_table_empty(t, key, pd, BY_VERB);
}

int mem_invalidate(struct mem_table *t, u32 key, u32 pd, u32 qpn)
{
	return mem_table_empty(t, key, pd, qpn);
}

/* The next key of a window that is bound to the QP, and its pd; from the *n-th index on. */
static bool mem_window_find(struct mem_table *t, u32 qpn, u32 *n, u32 *key, u32 *pd)
{
	bool found = false;

	lock_acquire(&t->lock);
	for (; *n < t->used && !found; (*n)++) {
		u32 index = shuffle_index(t->shuffle, *n);
		const struct mem_entry *e = &t->entries[index];

		found = t->private[index].state == MEM_LIVE && e->flags & MEM_WINDOW_TYPE2 &&
			e->qpn == qpn;
		if (found) {
			*key = t->private[index].name;
			*pd = e->pd;
		}
	}
	lock_release(&t->lock);
	return found;
}

void mem_unbind_qp(struct mem_table *t, u32 qpn)
{
	u32 n = 0, key, pd;

	while (mem_window_find(t, qpn, &n, &key, &pd))
		mem_invalidate(t, key, pd, qpn);
}

/* Finds the entry that mem_replace may change, and composes the new content. */
static int replace_claim(struct mem_table *t, u32 key, const struct mem_region *r,
			 struct mem_entry *e, struct mem_private **out) REQUIRES(&t->lock)
{
	struct mem_private *p = name_find(t, key);

	if (!p)
		return -EINVAL;
	if (p->windows)
		return -EBUSY;
	if (p->fast || p->window2 != (bool)(r->flags & MEM_WINDOW_TYPE2))
		return -EINVAL;
	if (p->window2 && (p->state == MEM_LIVE || t->entries[mem_index(key)].pd != r->pd))
		return -EINVAL;
	*out = p;
	return mem_region_compose(t, r, e);
}

int mem_replace(struct mem_table *t, u32 *key, const struct mem_region *r)
{
	struct mem_private *p;
	struct mem_entry e;
	u64 *old = NULL;
	int err = mem_region_check(r);
	u64 *pages = err ? NULL : mem_region_copy_pages(r, &err);

	if (err)
		return err;
	lock_acquire(&t->lock);
	err = replace_claim(t, *key, r, &e, &p);
	if (err) {
		lock_release(&t->lock);
		free(pages);
		return err;
	}
	if (p->state == MEM_LIVE) {
		mem_entry_hide(t, p);
		/* Holds a window's new parent while the lock is released. */
		if (r->flags & MEM_WINDOW)
			t->private[mem_index(r->parent)].windows++;
		lock_release(&t->lock);
		err = mem_entry_drain_for_other(t, p);
		lock_acquire(&t->lock);
		if (r->flags & MEM_WINDOW)
			t->private[mem_index(r->parent)].windows--;
		if (err)
			mem_entry_restore(t, p);
		else
			old = mem_entry_strip(t, p);
	}
	if (!err) {
		p->name = name_next(p->name, *key, r->flags);
		mem_entry_publish(t, p, r, &e, pages);
		*key = p->name;
	}
	lock_release(&t->lock);
	free(err ? pages : old);
	return err;
}

int mem_modify(struct mem_table *t, u32 key, u32 pd, u32 access)
{
	struct mem_private *p;
	int err = mem_region_check_access(&(struct mem_region){ .access = access });

	if (err)
		return err;
	lock_acquire(&t->lock);
	p = name_find(t, key);
	if (!p || p->rebindable || p->state != MEM_LIVE)
		err = -EINVAL;
	else if (p->windows)
		err = -EBUSY;
	if (err) {
		lock_release(&t->lock);
		return err;
	}
	mem_entry_hide(t, p);
	lock_release(&t->lock);
	err = mem_entry_drain_all(t, p);
	lock_acquire(&t->lock);
	if (!err) {
		__atomic_store_n(&t->entries[mem_index(key)].access, access, __ATOMIC_RELEASE);
		__atomic_store_n(&t->entries[mem_index(key)].pd, pd, __ATOMIC_RELEASE);
	}
	mem_entry_restore(t, p);
	lock_release(&t->lock);
	return err;
}

/* ---- fast registration ---- */

int mem_fast_reserve(struct mem_table *t, u32 pd, u32 max_pages, u32 *key)
{
	struct mem_private *p;
	struct mem_fast *fast;
	int err;

	if (!max_pages)
		return -EINVAL;
	fast = malloc(sizeof(*fast) + 2 * (size_t)max_pages * sizeof(u64));
	if (!fast)
		return -ENOMEM;
	*fast = (struct mem_fast){ .max_pages = max_pages };
	lock_acquire(&t->lock);
	err = index_reserve(t, pd, &p);
	if (!err) {
		p->fast = fast;
		*key = p->name;
	}
	lock_release(&t->lock);
	if (err)
		free(fast);
	return err;
}

int mem_fast_stage(struct mem_table *t, u32 key, const struct mem_region *r)
{
	struct mem_private *p;
	int err = mem_region_check(r);

	if (err || !(r->flags & MEM_PAGES))
		return -EINVAL;
	lock_acquire(&t->lock);
	p = name_find(t, key);
	if (!p || !p->fast || r->page_count > p->fast->max_pages) {
		err = -EINVAL;
	} else {
		p->fast->count = r->page_count;
		p->fast->shift = r->page_shift;
		p->fast->iova = r->iova;
		p->fast->length = r->length;
		memcpy(p->fast->pages, r->pages, r->page_count * sizeof(u64));
	}
	lock_release(&t->lock);
	return err;
}

/* The content that was staged, as a region; its pages are copied to where lookups find them. */
static struct mem_region mem_fast_unstage(struct mem_fast *fast, u32 pd, u32 access)
{
	u64 *pages = fast->pages + fast->max_pages;

	memcpy(pages, fast->pages, fast->count * sizeof(u64));
	return (struct mem_region){ .length = fast->length,
				    .iova = fast->iova,
				    .access = access,
				    .pd = pd,
				    .flags = MEM_PAGES,
				    .pages = pages,
				    .page_count = fast->count,
				    .page_shift = fast->shift };
}

int mem_fast_register(struct mem_table *t, u32 key, u32 pd, u32 access)
{
	struct mem_private *p;
	struct mem_region r;
	struct mem_entry e;
	int err = mem_region_check_access(&(struct mem_region){ .access = access });

	if (err)
		return err;
	lock_acquire(&t->lock);
	p = name_find(t, key);
	if (!p || !p->fast || p->state != MEM_RESERVED || !p->fast->count ||
	    t->entries[mem_index(key)].pd != pd) {
		err = -EINVAL;
	} else {
		r = mem_fast_unstage(p->fast, pd, access);
		mem_region_compose(t, &r, &e);
		p->name = (p->name & ~(u32)TAG_LOW_MASK) | (key & TAG_LOW_MASK);
		mem_entry_publish(t, p, &r, &e, p->fast->pages + p->fast->max_pages);
	}
	lock_release(&t->lock);
	return err;
}

/* Sets or clears the flag in all entries that peers see. A BUSY one has no key; it gets its flags
 * when it is published. */
static void mem_table_set_away(struct mem_table *t, bool away) REQUIRES(&t->lock)
{
	t->away = away;
	for (u32 n = 0; n < t->used; n++) {
		u32 i = shuffle_index(t->shuffle, n);
		struct mem_entry *e = &t->entries[i];

		if (t->private[i].state != MEM_LIVE)
			continue;
		/* Pairs with direct_entry_allows. */
		__atomic_store_n(&e->flags, away ? e->flags | MEM_AWAY : e->flags & ~MEM_AWAY,
				 __ATOMIC_RELEASE);
		/* Pairs with direct_find. */
		if (away && !(e->flags & MEM_STAYS_SHARED))
			__atomic_store_n(&e->shared, 0, __ATOMIC_RELEASE);
	}
}

void mem_exclude_peers(struct mem_table *t)
{
	lock_acquire(&t->lock);
	t->unshared = true;
	mem_table_set_away(t, true);
	lock_release(&t->lock);
	/* Waits for an initiator that raised its hazard before it saw the flag; one that raises it
	 * later sees the next generation, and judges again. */
	if (t->drain)
		t->drain(t->drain_arg, MEM_EVERY_KEY);
}

void mem_admit_peers(struct mem_table *t)
{
	lock_acquire(&t->lock);
	mem_table_set_away(t, false);
	lock_release(&t->lock);
}
