/* own.c: own memory: buffers of the stack's libraries that lie in the memory file from their
 * allocation on.
 *
 * All of it lies in one slot of the file, packed from its beginning, so that a peer that maps one
 * buffer has mapped the others. Each buffer is a map of its own, at an address of the kernel's
 * choice: nothing is reserved, so a limit or mlockall() counts what is allocated and no more. The
 * key of a region names the place in the file; peers do not find own memory by address.
 *
 * A forked child does not inherit it (MADV_DONTFORK), so a fork moves and copies none of it, and
 * the parent's stays shared.
 *
 * In: buffers of the doors    Out: maps of the file
 * Runs: any thread    Locks: adopt.lock
 */
#include "shared/shared.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"
#include "shared/adopt_priv.h"

/* A piece of the slot. */
struct own_block {
	struct list_head node; /* by `at` */
	u64 at;		       /* in the slot, bytes */
	u64 length;	       /* whole pages */
	u64 addr;	       /* 0: nobody's, but its pages could not be freed */
} OWNED_BY(adopt.lock);

static struct own {
	struct list_head blocks GUARDED_BY(adopt.lock);
	u32 count ATOMIC_ONLY; /* of blocks; changes under adopt.lock */
} own = { .blocks = LIST_HEAD_INIT(own.blocks) };

static u64 own_pages(u64 length)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);

	return (length + page - 1) / page * page;
}

/* The first gap that is long enough. Returns the block behind which it lies. */
static struct list_head *own_find_gap(u64 length, u64 *at) REQUIRES(&adopt.lock)
{
	struct list_head *behind = &own.blocks;

	*at = 0;
	list_for_each(b, &own.blocks, struct own_block, node) {
		if (b->at - *at >= length)
			break;
		*at = b->at + b->length;
		behind = &b->node;
	}
	return behind;
}

static u64 own_map(u64 at, u64 length) REQUIRES(&adopt.lock)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, adopt.fd,
		       (off_t)(ADOPT_OWN_OFFSET + at));

	if (p == MAP_FAILED)
		return 0;
	if (madvise(p, length, MADV_DONTFORK) == 0)
		return (u64)(uintptr_t)p;
	munmap(p, length);
	return 0;
}

static bool own_place(struct own_block *b) REQUIRES(&adopt.lock)
{
	struct list_head *behind;

	if (!allow_limits() || !inherit_is_watched() || !adopt_file_make())
		return false;
	behind = own_find_gap(b->length, &b->at);
	if (b->at + b->length > ADOPT_SLOT_BYTES)
		return false;
	b->addr = own_map(b->at, b->length);
	if (b->addr == 0)
		return false;
	list_insert(&b->node, behind, behind->next);
	__atomic_add_fetch(&own.count, 1, __ATOMIC_RELAXED);
	return true;
}

void *own_alloc(u64 length)
{
	struct own_block *b = NULL;
	bool placed;

	if (length != 0 && length <= ADOPT_SLOT_BYTES && allow_own())
		b = malloc(sizeof(*b));
	if (b == NULL)
		return NULL;
	b->length = own_pages(length);
	lock_acquire(&adopt.lock);
	placed = own_place(b);
	lock_release(&adopt.lock);
	if (placed)
		return (void *)(uintptr_t)b->addr;
	free(b);
	return NULL;
}

static struct own_block *own_find(u64 addr, u64 length) REQUIRES(&adopt.lock)
{
	list_for_each(b, &own.blocks, struct own_block, node)
		if (b->addr != 0 && addr - b->addr < b->length &&
		    length <= b->length - (addr - b->addr))
			return b;
	return NULL;
}

/* Makes a hole in the file. Uses the map where the descriptor is missing or may not be used; locked
 * memory refuses that. */
static bool own_empty(const struct own_block *b) REQUIRES(&adopt.lock)
{
	void *p = (void *)(uintptr_t)b->addr;

	if (adopt_file_is_there() &&
	    fallocate(adopt.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(ADOPT_OWN_OFFSET + b->at), (off_t)b->length) == 0)
		return true;
	munlock(p, b->length);
	return madvise(p, b->length, MADV_REMOVE) == 0;
}

bool own_free(void *p)
{
	struct own_block *b;
	bool emptied;

	lock_acquire(&adopt.lock);
	b = own_find((u64)(uintptr_t)p, 1);
	emptied = b != NULL && own_empty(b);
	if (b != NULL) {
		munmap(p, b->length);
		b->addr = 0;
	}
	if (emptied) {
		list_remove(&b->node);
		__atomic_sub_fetch(&own.count, 1, __ATOMIC_RELAXED);
	}
	lock_release(&adopt.lock);
	if (emptied)
		free(b);
	return b != NULL;
}

u64 own_offset(u64 addr, u64 length)
{
	struct own_block *b;
	u64 offset = 0;

	if (__atomic_load_n(&own.count, __ATOMIC_RELAXED) == 0)
		return 0;
	lock_acquire(&adopt.lock);
	b = own_find(addr, length);
	if (b != NULL)
		offset = ADOPT_OWN_OFFSET + b->at + (addr - b->addr);
	lock_release(&adopt.lock);
	return offset;
}

void own_drop_in_child(void) NO_THREAD_SAFETY /* the only thread */
{
	list_for_each_safe(b, &own.blocks, struct own_block, node)
		free(b);
	list_init(&own.blocks);
	own.count = 0;
}
