/* born_over.c: mmap over born memory, mremap and madvise of it.
 *
 * In: the calls' own arguments    Out: the same result as for private memory
 * Runs: any thread    Locks: born.lock
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/vma.h"
#include "shared/adopt_priv.h"
#include "shared/born_priv.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { REMAP_ADDRESS_BITS = 56 }; /* no processor gives a process more */

static u64 over_end(void)
{
	return born.base + born.pages * born.page_bytes;
}

static bool over_is_inside(u64 addr, u64 length)
{
	return addr >= born.base && addr < over_end() && length <= over_end() - addr;
}

/* ---- mmap over it ---- */

static bool put_is_plain(int prot, int flags)
{
	return prot == (PROT_READ | PROT_WRITE) &&
	       (flags & ~MAP_FIXED) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

/* Maps new born pages over the range. */
static bool put_born(u64 page, u64 end) REQUIRES(&born.lock)
{
	if (!maps_zero_ours(page, end) || !adopt_file_is_open() || !maps_open(page, end - page))
		return false;
	maps_forget(page, end - page);
	pages_mark(BORN_TAKEN, page, end - page, true);
	return true;
}

/* The application's own map lies in the range now, or in part of it. */
static void put_foreign(u64 addr, u64 end) REQUIRES(&born.lock)
{
	u64 page = born_page(MAX(addr, born.base)), stop = born_page(MIN(end, over_end()));
	bool zeroed = maps_zero_ours(page, stop);

	maps_forget(page, stop - page);
	pages_mark(BORN_MAPPED, page, stop - page, false);
	if (born_is_retired()) {
		pages_mark(BORN_TAKEN, page, stop - page, !zeroed);
		return;
	}
	pages_mark(BORN_TAKEN, page, stop - page, true);
	pages_mark(BORN_FOREIGN, page, stop - page, true);
}

static s64 put_map(u64 addr, u64 length, int prot, int flags, int fd, s64 offset)
	REQUIRES(&born.lock)
{
	bool inside = over_is_inside(addr, length), ours = !born_is_retired();
	u64 page = born_page(addr), end = page + length / born.page_bytes;
	void *p;

	/* where not all is free the kernel finds a map and returns its own error */
	if ((flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE && ours && inside &&
	    pages_are(BORN_TAKEN, page, end, false))
		flags = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
	if (ours && inside && put_is_plain(prot, flags) && put_born(page, end))
		return (s64)addr;
	p = mmap((void *)(uintptr_t)addr, length, prot, flags, fd, (off_t)offset);
	if (p == MAP_FAILED)
		return -errno;
	if ((u64)(uintptr_t)p == addr) /* kernels before 4.17 treat NOREPLACE as a hint */
		put_foreign(addr, addr + length);
	return (s64)(uintptr_t)p;
}

s64 born_put(u64 addr, u64 length, int prot, int flags, int fd, s64 offset)
{
	bool before, open = born_is_shared();
	s64 got;

	if (!open || addr + length < addr)
		return -ENOSYS;
	before = born_enter();
	got = put_map(addr, length, prot, flags, fd, offset);
	born_leave(before);
	if (got >= 0 && !born_has(addr, length))
		born_hide();
	return got;
}

s64 born_move_onto(u64 from, u64 length, u64 wanted, int flags, u64 addr)
{
	bool before = born_enter();
	void *p = mremap((void *)(uintptr_t)from, length, wanted, flags, (void *)(uintptr_t)addr);
	s64 got = p == MAP_FAILED ? -errno : (s64)(uintptr_t)p;
	bool over = got >= 0 && born_is_shared() && addr < over_end() &&
		    born.base < addr + wanted;

	if (over)
		put_foreign(addr, addr + wanted);
	born_leave(before);
	if (over)
		born_hide();
	return got;
}

/* ---- mremap ---- */

bool born_grow(u64 page, u64 count, u64 wanted)
{
	u64 end = page + wanted;

	if (end > born.pages || !pages_are(BORN_TAKEN, page + count, end, false) ||
	    !adopt_file_is_open())
		return false;
	if (!maps_open(page + count, wanted - count)) {
		maps_close(page + count, wanted - count);
		return false;
	}
	pages_mark(BORN_TAKEN, page + count, wanted - count, true);
	return true;
}

struct remap_look {
	u64 at;
	int prot;
} OWNED_BY(the caller);

static void remap_at_map(const struct vma *m, void *arg)
{
	struct remap_look *look = arg;

	if (m->start <= look->at && look->at < m->end)
		look->prot = m->prot;
}

/* Reads the protection that the application has set (mprotect). */
static int remap_prot(u64 addr)
{
	struct remap_look look = { .at = addr, .prot = PROT_READ | PROT_WRITE };
	int fd = vma_open();

	if (fd >= 0) {
		vma_each(fd, remap_at_map, &look);
		close(fd);
	}
	return look.prot;
}

/* Copies through the file, whatever the map's protection. NO_THREAD_SAFETY: needs only the file of
 * adoption, which stays open. */
static bool remap_copy(void *to, u64 addr, u64 length, int prot) NO_THREAD_SAFETY
{
	const struct adopt_piece all = { .start = addr,
					 .end = addr + length,
					 .offset = born.offset + (addr - born.base),
					 .prot = prot };

	return move_read((u64)(uintptr_t)to, length, &all, 0) == 0;
}

static void remap_advise(void *to, u64 length, int advice)
{
	if (born_advise((u64)(uintptr_t)to, length, advice) == -ENOSYS)
		madvise(to, length, advice);
}

/* Sets the same advice and protection on moved memory. */
static void remap_dress(void *to, u64 length, u64 from, int prot)
{
	bool before = born_enter(), kept_back, wiped;
	u64 page = born_page(from);

	kept_back = pages_are(BORN_NO_FORK, page, page + 1, true);
	wiped = pages_are(BORN_WIPED, page, page + 1, true);
	born_leave(before);
	if (kept_back)
		remap_advise(to, length, MADV_DONTFORK);
	if (wiped)
		remap_advise(to, length, MADV_WIPEONFORK);
	if (prot != (PROT_READ | PROT_WRITE))
		mprotect(to, length, prot);
}

/* Maps ordinary memory outside [target, target + length), where the move goes: the kernel likes to
 * return what was just unmapped. At most two maps can overlap the target. */
static void *remap_ordinary(u64 length, u64 target)
{
	bool before = born_set_busy(true);
	void *to = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	u64 at = (u64)(uintptr_t)to;

	if (to == MAP_FAILED) {
		to = NULL;
	} else if (at < target + length && target < at + length) {
		to = remap_ordinary(length, target);
		munmap((void *)(uintptr_t)at, length);
	}
	born_set_busy(before);
	return to;
}

static void remap_drop(void *to, u64 length)
{
	if (over_is_inside((u64)(uintptr_t)to, length))
		born_unmap((u64)(uintptr_t)to, length);
	else
		munmap(to, length);
}

/* Moves by copying: to other born memory, or to ordinary memory at a requested address. */
static s64 remap_move(u64 addr, u64 length, u64 wanted, int flags, u64 target)
{
	bool fixed = (flags & MREMAP_FIXED) != 0;
	void *to = fixed ? NULL : born_alloc(wanted, 0, false);
	int prot = remap_prot(addr);
	bool copied;
	s64 moved;

	if (to == NULL)
		to = remap_ordinary(wanted, target);
	if (to == NULL)
		return -ENOMEM;
	copied = remap_copy(to, addr, MIN(length, wanted), prot);
	/* A fork has taken the content out of the file, perhaps before it was read: the kernel
	 * moves the memory, which is private now. */
	if (!copied || !born_is_shared()) {
		remap_drop(to, wanted);
		return born_is_shared() ? -EFAULT : -ENOSYS;
	}
	remap_dress(to, wanted, addr, prot);
	if (fixed) {
		moved = born_move_onto((u64)(uintptr_t)to, wanted, wanted,
				       MREMAP_MAYMOVE | MREMAP_FIXED, target);
		if (moved < 0) {
			remap_drop(to, wanted);
			return moved;
		}
		to = (void *)(uintptr_t)moved;
	}
	if ((flags & MREMAP_DONTUNMAP) != 0)
		remap_advise((void *)(uintptr_t)addr, length, MADV_DONTNEED);
	else
		born_unmap(addr, length);
	return (s64)(uintptr_t)to;
}

static bool remap_is_in_place(u64 length, u64 wanted, int flags)
{
	return wanted <= length && (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) == 0;
}

/* Returns mremap's error for a range or flags that it refuses; 0: none. A range that is born only
 * in part does not move. A range that shrinks need be mapped at its beginning only. */
static s64 remap_refuse(u64 addr, u64 length, u64 wanted, int flags, u64 target)
{
	bool fixed = (flags & MREMAP_FIXED) != 0, keeps = (flags & MREMAP_DONTUNMAP) != 0;
	const int known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
	u64 page = born_page(addr), end = page + 1;
	bool before, ours;

	if (length == 0 || wanted == 0 || length >> REMAP_ADDRESS_BITS != 0 ||
	    (flags & ~known) != 0 || addr % born.page_bytes != 0 ||
	    ((fixed || keeps) && (flags & MREMAP_MAYMOVE) == 0) || (keeps && length != wanted) ||
	    (fixed && (target % born.page_bytes != 0 ||
		       (target < addr + length && addr < target + wanted))))
		return -EINVAL;
	if (!over_is_inside(addr, length))
		return -EFAULT;
	if (!remap_is_in_place(length, wanted, flags))
		end = page + length / born.page_bytes;
	before = born_enter();
	ours = pages_are(BORN_TAKEN, page, end, true) &&
	       (pages_are(BORN_MAPPED, page, end, true) ||
		pages_are(BORN_MAPPED, page, end, false));
	born_leave(before);
	return ours ? 0 : -EFAULT;
}

s64 born_remap(u64 addr, u64 length, u64 wanted, int flags, u64 target)
{
	s64 refused;
	bool before, grown;

	if (!born_is_shared())
		return -ENOSYS;
	refused = remap_refuse(addr, length, wanted, flags, target);
	if (refused != 0)
		return born_is_retired() && refused == -EFAULT ? -ENOSYS : refused;
	if (remap_is_in_place(length, wanted, flags)) { /* munmap, of any map there */
		if (wanted < length)
			born_unmap(addr + wanted, length - wanted);
		return (s64)addr;
	}
	/* the application's own map, or a call that the kernel refuses with its own error */
	if (!born_has(addr, length) || wanted >> REMAP_ADDRESS_BITS != 0)
		return -ENOSYS;
	if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0)
		return remap_move(addr, length, wanted, flags, target);
	before = born_enter();
	grown = !born_is_retired() && born_grow(born_page(addr), length / born.page_bytes,
						wanted / born.page_bytes);
	born_leave(before);
	if (grown) {
		remap_dress((void *)(uintptr_t)(addr + length), wanted - length, addr,
			    remap_prot(addr));
		return (s64)addr;
	}
	return (flags & MREMAP_MAYMOVE) == 0 ? -ENOMEM :
					       remap_move(addr, length, wanted, flags, 0);
}

/* ---- advice ---- */

static int advise_kernel(u64 page, u64 end, int advice)
{
	return madvise(born_pointer(page), (end - page) * born.page_bytes, advice) == 0 ? 0 :
											  -errno;
}

/* The kernel judges the call, and the file drops the pages. It refuses locked memory; pages before
 * that are dropped nevertheless. */
static int advise_zero(u64 page, u64 end, int advice) REQUIRES(&born.lock)
{
	int asked = advice == MADV_FREE ? MADV_DONTNEED : advice;
	int err = advise_kernel(page, end, asked);
	u64 good = err == 0 ? end : page, bad = end;

	while (bad - good > 1) {
		u64 middle = good + (bad - good) / 2;

		if (advise_kernel(page, middle, asked) == 0)
			good = middle;
		else
			bad = middle;
	}
	return good != page && !maps_zero(page, good - page) ? -EINVAL : err;
}

/* Advice for pages of the file. */
static int advise_ours(u64 page, u64 end, int advice) REQUIRES(&born.lock)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
		return advise_zero(page, end, advice);
	case MADV_DONTFORK:
	case MADV_DOFORK:
		pages_mark(BORN_NO_FORK, page, end - page, advice == MADV_DONTFORK);
		return 0;
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
		pages_mark(BORN_WIPED, page, end - page, advice == MADV_WIPEONFORK);
		return 0;
	case MADV_REMOVE: /* the kernel refuses it for private memory */
		return -EINVAL;
	default:
		return advise_kernel(page, end, advice);
	}
}

/* Continues past unmapped pages, as the kernel does. */
static int advise_pages(u64 page, u64 end, int advice) REQUIRES(&born.lock)
{
	int err = 0;

	while (page < end && (err == 0 || err == -ENOMEM)) {
		bool taken = pages_are(BORN_TAKEN, page, page + 1, true);
		bool mapped = pages_are(BORN_MAPPED, page, page + 1, true);
		u64 stop = MIN(pages_next(BORN_TAKEN, page, end, !taken),
			       pages_next(BORN_MAPPED, page, end, !mapped));
		int now;

		if (taken && mapped)
			now = advise_ours(page, stop, advice);
		else if (taken || born_is_retired())
			now = advise_kernel(page, stop, advice);
		/* no page, but the advice exists */
		else if ((now = advise_kernel(page, page, advice)) == 0)
			now = -ENOMEM;
		err = now != 0 ? now : err;
		page = stop;
	}
	return err;
}

static int advise_outside(u64 addr, u64 end, int advice)
{
	if (addr >= end)
		return 0;
	return madvise((void *)(uintptr_t)addr, end - addr, advice) == 0 ? 0 : -errno;
}

static int advise_shared(u64 addr, u64 end, int advice) REQUIRES(&born.lock)
{
	u64 from = MAX(addr, born.base), to = MIN(end, over_end());
	int first = advise_outside(addr, from, advice), err, last;

	err = first == 0 || first == -ENOMEM ?
		      advise_pages(born_page(from), born_page(to), advice) :
		      0;
	if (err == 0)
		err = first;
	if (err == 0 || err == -ENOMEM) {
		last = advise_outside(to, end, advice);
		err = last != 0 ? last : err;
	}
	return err;
}

/* The kernel takes advice for private memory. Memory that a child does not inherit is no block of
 * the child (born_become_child): this is noted. */
static void advise_note(u64 addr, u64 end, int advice) REQUIRES(&born.lock)
{
	u64 page = born_page(MAX(addr, born.base)), stop = born_page(MIN(end, over_end()));

	if (advice == MADV_DONTFORK || advice == MADV_DOFORK)
		pages_mark(BORN_NO_FORK, page, stop - page, advice == MADV_DONTFORK);
}

int born_advise(u64 addr, u64 length, int advice)
{
	u64 end = addr + length;
	int err = -ENOSYS;
	bool before;

	if (born.pages == 0 || MAX(addr, born.base) >= MIN(end, over_end()) ||
	    addr % born.page_bytes != 0)
		return -ENOSYS;
	before = born_enter();
	if (born_is_shared())
		err = advise_shared(addr, end, advice);
	else
		advise_note(addr, end, advice);
	born_leave(before);
	return err;
}
