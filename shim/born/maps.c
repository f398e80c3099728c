/* maps.c: mmap and its family: long anonymous private maps are born shared, and calls on born
 * memory have the same effect as on private memory.
 * In: addresses, lengths    Out: maps    Runs: any thread    Locks: none
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "born_next.h"

NEXT_SLOT(mmap);
NEXT_SLOT(mmap64);
NEXT_SLOT(munmap);
NEXT_SLOT(mremap);
NEXT_SLOT(madvise);

static u64 maps_round(size_t n)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);

	return (n + page - 1) & ~(page - 1);
}

static bool maps_is_page(u64 at)
{
	return maps_round(at) == at;
}

/* Tells whether the pages of [p, p + n) touch the arena. False for an empty or invalid range, which
 * the kernel refuses. */
static bool maps_touch(const void *p, size_t n)
{
	u64 at = (u64)(uintptr_t)p, end = at + maps_round(n);

	return end > at && at < born_end && born_base < end;
}

/* Reservations (MAP_NORESERVE, PROT_NONE), stacks and other special maps are the kernel's. */
static bool maps_are_plain(void *at, size_t n, int prot, int flags)
{
	return at == (void *)0 && born_wants(n) && prot == (PROT_READ | PROT_WRITE) &&
	       flags == (MAP_PRIVATE | MAP_ANONYMOUS);
}

static void *maps_answer(s64 got)
{
	if (got >= 0)
		return (void *)(uintptr_t)got;
	errno = (int)-got;
	return MAP_FAILED;
}

/* NULL: the kernel makes the map. */
static void *maps_map(void *at, size_t n, int prot, int flags, int fd, s64 offset)
{
	int saved = errno;
	s64 got = -ENOSYS;
	void *p = (void *)0;

	if (!maps_is_page((u64)offset))
		return p;
	if (maps_are_plain(at, n, prot, flags))
		p = born_alloc(n, 0, false);
	else if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0 && !born_is_busy() &&
		 maps_is_page((u64)(uintptr_t)at) && maps_touch(at, n))
		got = born_put((u64)(uintptr_t)at, maps_round(n), prot, flags, fd, offset);
	errno = saved;
	return got == -ENOSYS ? p : maps_answer(got);
}

AV_EXPORT void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	void *p = maps_map(at, n, prot, flags, fd, offset);

	return p != (void *)0 ? p : NEXT(mmap)(at, n, prot, flags, fd, offset);
}

AV_EXPORT void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
	void *p = maps_map(at, n, prot, flags, fd, offset);

	return p != (void *)0 ? p : NEXT(mmap64)(at, n, prot, flags, fd, offset);
}

/* Unmaps the part in the arena, and the rest by the kernel. The part above the arena goes first: if
 * the range ends beyond all addresses, nothing is unmapped. */
AV_EXPORT int munmap(void *p, size_t n)
{
	u64 at = (u64)(uintptr_t)p, end = at + maps_round(n), from, to;
	int saved = errno;

	if (born_is_busy() || !maps_touch(p, n) || !maps_is_page(at))
		return NEXT(munmap)(p, n);
	from = at < born_base ? born_base : at;
	to = end > born_end ? born_end : end;
	if (to < end && NEXT(munmap)((void *)(uintptr_t)to, end - to) != 0)
		return -1;
	born_unmap(from, to - from);
	errno = saved;
	return at < from ? NEXT(munmap)(p, from - at) : 0;
}

AV_EXPORT void *mremap(void *p, size_t n, size_t wanted, int flags, ...)
{
	bool fixed = (flags & MREMAP_FIXED) != 0, ours = !born_is_busy();
	int saved = errno;
	s64 moved = -ENOSYS;
	void *target;
	va_list args;

	va_start(args, flags);
	target = va_arg(args, void *);
	va_end(args);
	if (ours && born_is_in(p))
		moved = born_remap((u64)(uintptr_t)p, maps_round(n), maps_round(wanted), flags,
				   fixed ? (u64)(uintptr_t)target : 0);
	/* the application's own maps, also those that lie in the arena */
	if (moved == -ENOSYS && ours && fixed && maps_touch(target, wanted))
		moved = born_move_onto((u64)(uintptr_t)p, maps_round(n), maps_round(wanted), flags,
				       (u64)(uintptr_t)target);
	errno = saved;
	return moved == -ENOSYS ? NEXT(mremap)(p, n, wanted, flags, target) : maps_answer(moved);
}

AV_EXPORT int madvise(void *p, size_t n, int advice)
{
	int err = -ENOSYS, saved = errno;

	if (!born_is_busy() && maps_touch(p, n))
		err = born_advise((u64)(uintptr_t)p, maps_round(n), advice);
	errno = saved;
	if (err == -ENOSYS)
		return NEXT(madvise)(p, n, advice);
	if (err == 0)
		return 0;
	errno = -err;
	return -1;
}
