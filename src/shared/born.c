/* born.c: the arena of born memory: allocates its pages, frees them, and maps them.
 *
 * In: requests of shim/born, in place of malloc and mmap    Out: maps of the file
 * Runs: any thread    Locks: born.lock; the file itself is adopt.lock's, and there for good
 *
 * Free pages are mapped to nothing (PROT_NONE), so that a stray access faults as it would anywhere,
 * and are holes in the file, so that their next owner finds zeroes. Maps next to each other
 * are one map to the kernel, for they lie in the file as they lie in memory.
 */
#include "shared/shared.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shared/adopt_priv.h"
#include "shared/born_priv.h"

enum { BORN_MAPS_SHARE = 2 }; /* share of the maps that adoption may use */
#define BORN_LARGEST (64ull << 30)
#define BORN_MIN (1ull << 30)

struct born born;
static __thread bool born_busy;

void *born_pointer(u64 page)
{
	return (void *)(uintptr_t)(born.base + page * born.page_bytes);
}

u64 born_page(u64 addr)
{
	return (addr - born.base) / born.page_bytes;
}

bool born_is_shared(void)
{
	return __atomic_load_n(&born.shared, __ATOMIC_RELAXED);
}

bool born_is_retired(void)
{
	return __atomic_load_n(&born.retired, __ATOMIC_RELAXED);
}

bool born_is_busy(void)
{
	return born_busy;
}

bool born_set_busy(bool busy)
{
	bool before = born_busy;

	born_busy = busy;
	return before;
}

bool born_enter(void)
{
	bool before = born_set_busy(true);

	lock_acquire(&born.lock);
	return before;
}

void born_leave(bool before)
{
	lock_release(&born.lock);
	born_set_busy(before);
}

/* ---- maps ---- */

/* Forked children get a copy (adopt_fork.c), never the map itself. */
bool maps_open(u64 page, u64 count)
{
	void *p = born_pointer(page);
	u64 bytes = count * born.page_bytes;

	if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		 adopt_file_fd(), (off_t)(born.offset + page * born.page_bytes)) == MAP_FAILED)
		return false;
	pages_mark(BORN_MAPPED, page, count, true);
	return madvise(p, bytes, MADV_DONTFORK) == 0;
}

/* Each gap splits a map, and the kernel limits their number: where there are many gaps, or the
 * kernel refuses, free pages stay mapped. */
void maps_close(u64 page, u64 count)
{
	u64 bytes = count * born.page_bytes;
	void *p = born_pointer(page);

	if (born_is_retired()) {
		munmap(p, bytes);
		pages_mark(BORN_MAPPED, page, count, false);
		return;
	}
	if (born.edges >= allow_maps() / BORN_MAPS_SHARE &&
	    pages_are(BORN_MAPPED, page, page + count, true))
		return;
	if (mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) != MAP_FAILED)
		pages_mark(BORN_MAPPED, page, count, false);
}

/* Uses the map where the descriptor is missing or may not be used. */
bool maps_zero(u64 page, u64 count)
{
	u64 bytes = count * born.page_bytes;

	return (adopt_file_is_open() &&
		fallocate(adopt_file_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)(born.offset + page * born.page_bytes), (off_t)bytes) == 0) ||
	       madvise(born_pointer(page), bytes, MADV_REMOVE) == 0;
}

bool maps_zero_ours(u64 page, u64 end)
{
	bool all = true;

	if (!born_is_shared())
		return true;
	while ((page = pages_next(BORN_MAPPED, page, end, true)) < end) {
		u64 stop = pages_next(BORN_MAPPED, page, end, false);

		all &= maps_zero(page, stop - page);
		page = stop;
	}
	return all;
}

void maps_forget(u64 page, u64 count)
{
	for (u64 i = page; i < page + count; i++)
		if (unlikely(born.lengths[i] != 0))
			born.lengths[i] = 0;
	pages_mark(BORN_FOREIGN, page, count, false);
	pages_mark(BORN_NO_FORK, page, count, false);
	pages_mark(BORN_WIPED, page, count, false);
}

/* Pages that cannot be zeroed are not given out again. */
void maps_end(u64 page, u64 count)
{
	bool zeroed = maps_zero_ours(page, page + count);

	maps_close(page, count);
	if (born.in_place)
		maps_zero(page, count);
	maps_forget(page, count);
	if (!born_is_shared() || !zeroed)
		return;
	pages_mark(BORN_TAKEN, page, count, false);
	born.low = MIN(born.low, page);
}

/* ---- the arena ---- */

static void *born_table(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A multiple of 1 GiB, so that every alignment that the kernel favours holds. */
static u64 born_reserve(u64 bytes)
{
	void *p = mmap(NULL, bytes + BORN_MIN, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	u64 at = (u64)(uintptr_t)p, base = (at + BORN_MIN - 1) / BORN_MIN * BORN_MIN;

	if (p == MAP_FAILED)
		return 0;
	if (base != at)
		munmap(p, base - at);
	munmap((void *)(uintptr_t)(base + bytes), at + BORN_MIN - base);
	return base;
}

static bool born_make_tables(u64 pages) REQUIRES(&born.lock)
{
	bool all;

	born.lengths = born_table(pages * sizeof(u64));
	all = born.lengths != NULL;
	for (int i = 0; i < BORN_BITS; i++) {
		born.bits[i] = born_table(pages / 8);
		all &= born.bits[i] != NULL;
	}
	return all;
}

static void born_drop_tables(u64 pages) REQUIRES(&born.lock)
{
	if (born.lengths != NULL)
		munmap(born.lengths, pages * sizeof(u64));
	for (int i = 0; i < BORN_BITS; i++)
		if (born.bits[i] != NULL)
			munmap(born.bits[i], pages / 8);
}

static bool born_make(void) REQUIRES(&born.lock)
{
	u64 bytes = BORN_LARGEST, base = 0;

	born.page_bytes = (u64)sysconf(_SC_PAGESIZE);
	born.longest = (u64)sysconf(_SC_PHYS_PAGES) * born.page_bytes;
	while (base == 0 && bytes >= BORN_MIN) {
		base = born_reserve(bytes);
		bytes /= base == 0 ? 2 : 1;
	}
	if (base == 0)
		return false;
	born.offset = born_make_tables(bytes / born.page_bytes) ? adopt_born(base, bytes) : 0;
	if (born.offset == 0) {
		born_drop_tables(bytes / born.page_bytes);
		munmap((void *)(uintptr_t)base, bytes);
		return false;
	}
	born.base = base;
	born.pages = bytes / born.page_bytes;
	__atomic_store_n(&born.shared, true, __ATOMIC_RELAXED);
	return true;
}

bool born_begin(void)
{
	bool before = born_enter(), made = born.pages != 0 || born_make();

	born_leave(before);
	return made;
}

void born_bounds(u64 *base, u64 *end)
{
	*base = born.base;
	*end = born.base + born.pages * born.page_bytes;
}

void born_hide(void)
{
	if (!__atomic_exchange_n(&born.hidden, true, __ATOMIC_RELAXED))
		adopt_born_lost();
}

void maps_close_free(void)
{
	u64 page = 0;

	while ((page = pages_next(BORN_TAKEN, page, born.pages, false)) < born.pages) {
		u64 stop = pages_next(BORN_TAKEN, page, born.pages, true);

		maps_close(page, stop - page);
		page = stop;
	}
}

void born_retire(void)
{
	bool before;

	if (born.pages == 0 || born_is_retired())
		return;
	born_hide(); /* the addresses may pass to other maps */
	before = born_enter();
	__atomic_store_n(&born.retired, true, __ATOMIC_RELAXED);
	maps_close_free();
	born_leave(before);
}

/* Tells whether more may be given out. Limits on private memory or addresses would not count born
 * memory as they should, and another process may set them at any time. */
static bool born_may(u64 length)
{
	struct rlimit space, data;

	if (!born_is_shared() || born_is_retired() || born_busy || length > born.longest ||
	    getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0)
		return false;
	if (space.rlim_cur != RLIM_INFINITY)
		born_retire();
	return space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY;
}

void *born_alloc(u64 length, u64 alignment, bool block)
{
	u64 count = (length + born.page_bytes - 1) / born.page_bytes, page;
	void *p = NULL;
	bool before;

	if (!born_may(length) || count == 0 || count > born.pages ||
	    alignment > born.pages * born.page_bytes)
		return NULL;
	before = born_enter();
	page = adopt_file_is_open() ? pages_find(count, MAX(alignment, born.page_bytes)) :
				      born.pages;
	if (page < born.pages && !born_is_retired()) {
		if (maps_open(page, count)) {
			p = born_pointer(page);
			pages_mark(BORN_TAKEN, page, count, true);
			born.lengths[page] = block ? length : 0;
			born.low = page == born.low ? page + count : born.low;
		} else {
			maps_close(page, count);
		}
	}
	born_leave(before);
	return p;
}

u64 born_length(const void *p)
{
	u64 addr = (u64)(uintptr_t)p, length;
	bool before;

	if (addr - born.base >= born.pages * born.page_bytes || addr % born.page_bytes != 0)
		return 0;
	before = born_enter();
	length = born.lengths[born_page(addr)];
	born_leave(before);
	return length;
}

bool born_free(void *p)
{
	u64 length = born_length(p);

	if (length == 0)
		return false;
	born_unmap((u64)(uintptr_t)p, (length + born.page_bytes - 1) & ~(born.page_bytes - 1));
	return true;
}

/* Runs of taken pages only: pages between them are neither zeroed nor mapped. After the arena has
 * ended those are the kernel's, and may hold other maps. */
void born_unmap(u64 addr, u64 length)
{
	u64 page = born_page(addr), end = page + length / born.page_bytes;
	bool before = born_enter();

	if (born_is_retired()) {
		maps_end(page, end - page);
		page = end;
	}
	while ((page = pages_next(BORN_TAKEN, page, end, true)) < end) {
		u64 stop = pages_next(BORN_TAKEN, page, end, false);

		maps_end(page, stop - page);
		page = stop;
	}
	born_leave(before);
}

bool born_has(u64 addr, u64 length)
{
	u64 end = addr + length - 1, last;
	bool before, all;

	if (!born_is_shared() || length == 0 || end < addr || addr < born.base ||
	    end - born.base >= born.pages * born.page_bytes)
		return false;
	last = born_page(end) + 1;
	before = born_enter();
	all = pages_are(BORN_TAKEN, born_page(addr), last, true) &&
	      pages_are(BORN_MAPPED, born_page(addr), last, true);
	born_leave(before);
	return all;
}

bool born_resize(const void *p, u64 length)
{
	u64 addr = (u64)(uintptr_t)p, page = born_page(addr), size = born.page_bytes;
	bool before, fits = false, may = born_may(length);
	u64 count, wanted = (length + size - 1) / size;

	before = born_enter();
	count = (born.lengths[page] + size - 1) / size;
	if (count != 0 && length < born.pages * size && born_is_shared())
		fits = wanted <= count || (may && born_grow(page, count, wanted));
	if (fits && wanted < count)
		maps_end(page + wanted, count - wanted);
	if (fits)
		born.lengths[page] = length;
	born_leave(before);
	return fits;
}
