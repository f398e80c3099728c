/* born.c: the arena of memory that is of the file from the beginning: which of its pages are given
 * out, and their maps.
 *
 * In: wishes of tools/born, in place of malloc and mmap    Out: maps of the file
 * Runs: any thread    Locks: born.lock; the file itself is adopt.lock's, and there for good
 *
 * Free pages are mapped to nothing (PROT_NONE), so that a stray access faults as it would anywhere,
 * and are holes in the file, so that whoever gets them next finds zeroes. Maps next to each other
 * are one map to the kernel, for they lie in the file as they lie in memory.
 */
#include "mem/born.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem/adopt_priv.h"

enum { BORN_WORD = 64 };
#define BORN_LARGEST (64ull << 30)
#define BORN_LEAST (1ull << 30)

static struct {
	struct lock lock;
	u64 base FIXED, pages FIXED; /* 0: there is no arena */
	u64 page_bytes FIXED;
	u64 offset FIXED; /* in the file */
	u64 low GUARDED_BY(lock); /* no free page lies before this one */
	u64 *used GUARDED_BY(lock); /* a bit for each page */
	u64 *lengths GUARDED_BY(lock); /* of the block that begins on a page; else 0 */
	bool shared ATOMIC_ONLY; /* not in a forked child: there it is plain memory */
	bool lost ATOMIC_ONLY; /* the application maps other things into it: registrations ask */
} born;

static __thread bool born_busy;

static void *born_pointer(u64 page)
{
	return (void *)(uintptr_t)(born.base + page * born.page_bytes);
}

static bool born_is_shared(void)
{
	return __atomic_load_n(&born.shared, __ATOMIC_RELAXED);
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

/* Whatever is mapped from here on goes past tools/born. */
static bool born_enter(void) ACQUIRE(&born.lock)
{
	bool before = born_set_busy(true);

	lock_acquire(&born.lock);
	return before;
}

static void born_leave(bool before) RELEASE(&born.lock)
{
	lock_release(&born.lock);
	born_set_busy(before);
}

/* ---- pages ---- */

static void pages_mark(u64 page, u64 count, bool used) REQUIRES(&born.lock)
{
	for (u64 end = page + count; page < end;) {
		u64 at = page % BORN_WORD, n = MIN(BORN_WORD - at, end - page);
		u64 mask = (n == BORN_WORD ? ~0ull : (1ull << n) - 1) << at;

		if (used)
			born.used[page / BORN_WORD] |= mask;
		else
			born.used[page / BORN_WORD] &= ~mask;
		page += n;
	}
}

/* The first page from `page` on, before `end`, that is used, or that is not; or `end`. */
static u64 pages_next(u64 page, u64 end, bool used) REQUIRES(&born.lock)
{
	while (page < end) {
		u64 word = born.used[page / BORN_WORD];

		word = (used ? word : ~word) >> page % BORN_WORD;
		if (word != 0)
			return MIN(page + (u64)__builtin_ctzll(word), end);
		page = (page / BORN_WORD + 1) * BORN_WORD;
	}
	return end;
}

static u64 pages_align(u64 page, u64 alignment)
{
	u64 addr = born.base + page * born.page_bytes;

	return ((addr + alignment - 1) / alignment * alignment - born.base) / born.page_bytes;
}

/* `count` free pages; born.pages: there are none. */
static u64 pages_find(u64 count, u64 alignment) REQUIRES(&born.lock)
{
	u64 page = pages_align(pages_next(born.low, born.pages, false), alignment);

	while (page < born.pages && count <= born.pages - page) {
		u64 taken = pages_next(page, page + count, true);

		if (taken == page + count)
			return page;
		page = pages_align(pages_next(taken, born.pages, false), alignment);
	}
	return born.pages;
}

/* ---- maps ---- */

/* Forked children get it as a copy (adopt_fork.c), never as it is. */
static bool maps_open(u64 page, u64 count) REQUIRES(&born.lock)
{
	void *p = born_pointer(page);
	u64 bytes = count * born.page_bytes;

	return mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
		    adopt_file_fd(), (off_t)(born.offset + page * born.page_bytes)) != MAP_FAILED &&
	       madvise(p, bytes, MADV_DONTFORK) == 0;
}

static void maps_close(u64 page, u64 count) REQUIRES(&born.lock)
{
	u64 bytes = count * born.page_bytes;

	mmap(born_pointer(page), bytes, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static bool maps_zero(u64 page, u64 count) REQUIRES(&born.lock)
{
	return adopt_file_is_open() &&
	       fallocate(adopt_file_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)(born.offset + page * born.page_bytes),
			 (off_t)(count * born.page_bytes)) == 0;
}

/* Gives pages back. Those that cannot be made zeroes are not given out again. */
static void maps_end(u64 page, u64 count) REQUIRES(&born.lock)
{
	maps_close(page, count);
	for (u64 i = page; i < page + count; i++)
		if (unlikely(born.lengths[i] != 0))
			born.lengths[i] = 0;
	if (!born_is_shared() || !maps_zero(page, count))
		return;
	pages_mark(page, count, false);
	born.low = MIN(born.low, page);
}

/* ---- the arena ---- */

static void *born_table(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A multiple of 1 GiB, so that whatever the kernel likes to see aligned is. */
static u64 born_reserve(u64 bytes)
{
	void *p = mmap(NULL, bytes + BORN_LEAST, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	u64 at = (u64)(uintptr_t)p, base = (at + BORN_LEAST - 1) / BORN_LEAST * BORN_LEAST;

	if (p == MAP_FAILED)
		return 0;
	if (base != at)
		munmap(p, base - at);
	munmap((void *)(uintptr_t)(base + bytes), at + BORN_LEAST - base);
	return base;
}

static bool born_make(void) REQUIRES(&born.lock)
{
	u64 bytes = BORN_LARGEST, base = 0;

	while (base == 0 && bytes >= BORN_LEAST) {
		base = born_reserve(bytes);
		bytes /= base == 0 ? 2 : 1;
	}
	if (base == 0)
		return false;
	born.page_bytes = (u64)sysconf(_SC_PAGESIZE);
	born.used = born_table(bytes / born.page_bytes / 8);
	born.lengths = born_table(bytes / born.page_bytes * sizeof(u64));
	born.offset = adopt_born(base, bytes);
	if (born.used == NULL || born.lengths == NULL || born.offset == 0) {
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

void *born_alloc(u64 length, u64 alignment, bool block)
{
	u64 count = (length + born.page_bytes - 1) / born.page_bytes, page;
	void *p = NULL;
	bool before;

	if (!born_is_shared() || born_busy || count == 0 || count > born.pages ||
	    alignment > born.pages * born.page_bytes)
		return NULL;
	before = born_enter();
	page = adopt_file_is_open() ? pages_find(count, MAX(alignment, born.page_bytes)) :
				      born.pages;
	if (page < born.pages) {
		if (maps_open(page, count)) {
			p = born_pointer(page);
			pages_mark(page, count, true);
			born.lengths[page] = block ? length : 0;
			born.low = page == born.low ? page + count : born.low;
		} else {
			maps_close(page, count);
		}
	}
	born_leave(before);
	return p;
}

static u64 born_page(u64 addr)
{
	return (addr - born.base) / born.page_bytes;
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

/* Runs of used pages: what lies between is not to be zeroed, nor mapped. */
void born_unmap(u64 addr, u64 length)
{
	u64 page = born_page(addr), end = page + length / born.page_bytes;
	bool before = born_enter();

	while ((page = pages_next(page, end, true)) < end) {
		u64 stop = pages_next(page, end, false);

		maps_end(page, stop - page);
		page = stop;
	}
	born_leave(before);
}

bool born_zero(u64 addr, u64 length)
{
	bool before, done;

	if (!born_is_shared())
		return false;
	before = born_enter();
	done = maps_zero(born_page(addr), length / born.page_bytes);
	born_leave(before);
	return done;
}

void born_lose(u64 addr, u64 length)
{
	if (addr < born.base + born.pages * born.page_bytes && born.base < addr + length &&
	    !__atomic_exchange_n(&born.lost, true, __ATOMIC_RELAXED))
		adopt_born_lost();
}

bool born_has(u64 addr, u64 length)
{
	u64 end = addr + length - 1, last;
	bool before, all;

	if (!born_is_shared() || __atomic_load_n(&born.lost, __ATOMIC_RELAXED) || length == 0 ||
	    end < addr || addr < born.base || end - born.base >= born.pages * born.page_bytes)
		return false;
	last = born_page(end) + 1;
	before = born_enter();
	all = pages_next(born_page(addr), last, false) == last;
	born_leave(before);
	return all;
}

/* ---- mremap ---- */

/* More pages behind it, in place. */
static bool remap_grow(u64 page, u64 count, u64 wanted) REQUIRES(&born.lock)
{
	u64 end = page + wanted;

	if (end > born.pages || pages_next(page + count, end, true) != end ||
	    !adopt_file_is_open())
		return false;
	if (!maps_open(page + count, wanted - count)) {
		maps_close(page + count, wanted - count);
		return false;
	}
	pages_mark(page + count, wanted - count, true);
	return true;
}

/* By way of the file, whatever may be done with the map. */
static bool remap_copy(void *to, u64 addr, u64 length)
{
	if (!adopt_file_is_open())
		return false;
	for (u64 done = 0; done < length;) {
		ssize_t n = pread(adopt_file_fd(), (u8 *)to + done, length - done,
				  (off_t)(born.offset + (addr - born.base) + done));

		if (n <= 0)
			return false;
		done += (u64)n;
	}
	return true;
}

bool born_resize(const void *p, u64 length)
{
	u64 addr = (u64)(uintptr_t)p, page = born_page(addr), size = born.page_bytes;
	bool before = born_enter(), fits = false;
	u64 count = (born.lengths[page] + size - 1) / size, wanted = (length + size - 1) / size;

	if (count != 0 && length < born.pages * size && born_is_shared())
		fits = wanted <= count || remap_grow(page, count, wanted);
	if (fits && wanted < count)
		maps_end(page + wanted, count - wanted);
	if (fits)
		born.lengths[page] = length;
	born_leave(before);
	return fits;
}

s64 born_remap(u64 addr, u64 length, u64 wanted, int flags, u64 target)
{
	bool fixed = (flags & MREMAP_FIXED) != 0, before, grown;
	void *to = NULL;

	if (!born_is_shared())
		return -ENOSYS;
	if (!adopt_file_is_open() && wanted > length)
		return -ENOMEM;
	if (!fixed && wanted <= length) {
		born_unmap(addr + wanted, length - wanted);
		return (s64)addr;
	}
	if (!fixed) {
		before = born_enter();
		grown = remap_grow(born_page(addr), length / born.page_bytes,
				   wanted / born.page_bytes);
		born_leave(before);
		if (grown)
			return (s64)addr;
		if ((flags & MREMAP_MAYMOVE) == 0)
			return -ENOMEM;
		to = born_alloc(wanted, 0, false);
	}
	if (to == NULL) {
		before = born_set_busy(true);
		to = mmap((void *)(uintptr_t)target, wanted, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0), -1, 0);
		born_set_busy(before);
	}
	if (to == MAP_FAILED)
		return -ENOMEM;
	if (!remap_copy(to, addr, MIN(length, wanted)))
		return -EFAULT;
	born_unmap(addr, length);
	return (s64)(uintptr_t)to;
}

/* ---- fork ---- */

void born_fork_begin(void) NO_THREAD_SAFETY
{
	lock_acquire(&born.lock);
}

void born_fork_end(bool child) NO_THREAD_SAFETY
{
	if (child)
		__atomic_store_n(&born.shared, false, __ATOMIC_RELAXED);
	lock_init(&born.lock);
}
