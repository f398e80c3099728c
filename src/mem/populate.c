/* populate.c: does what pinning does for an adapter: makes every page present, and writable if
 * needed. Long ranges of plain memory are only checked for being mapped.
 *
 * In:    an address range of this process, valid or not
 * Out:   pages faulted in, or the reason why not
 * Runs:  any thread; may block on page faults      Locks: none
 *
 * madvise does it in one call from Linux 5.14 on. Before that each page is touched through a futex
 * call: the kernel reads the word (FUTEX_WAIT), or changes it by or-ing 0, atomically
 * (FUTEX_WAKE_OP), and returns EFAULT where an instruction would fault. process_vm_readv and writev
 * on the own process would write stale bytes over another thread's store.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mem/mapped.h"
#include "mem/mem.h"
#include "mem/populate.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	POPULATE_RETRIES = 16,
	POPULATE_LONG = 1 << 20, /* from this length on it costs more than asking what is mapped */
};

static bool populate_read_word(const void *word)
{
	struct timespec now = { 0 };

	/* The awaited value may be there or not; the wait ends at once in either case. */
	return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &now, NULL, 0) == 0 ||
	       errno != EFAULT;
}

static bool populate_write_word(void *word)
{
	static u32 nobody; /* the word of the call's first half, which has no waiter */

	return syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 0, NULL, word,
		       FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
	       errno != EFAULT;
}

int mem_populate_by_touch(u64 first, u64 end, u64 page_size, bool write)
{
	for (u64 at = first; at != end; at += page_size) {
		void *word = (void *)(uintptr_t)at;

		if (!(write ? populate_write_word(word) : populate_read_word(word)))
			return -EFAULT;
	}
	return 0;
}

/* madvise returns ENOMEM both for a hole and for want of memory; mincore only for a hole. Searches
 * a range for a hole in steps. */
static bool populate_has_hole(u64 first, u64 end, u64 page_size)
{
	enum { STEP = 256 };
	unsigned char resident[STEP];

	for (u64 at = first; at != end;) {
		u64 bytes = MIN(end - at, STEP * page_size);

		if (mincore((void *)(uintptr_t)at, bytes, resident) < 0)
			return true;
		at += bytes;
	}
	return false;
}

/* Tells whether this kernel has the advice. Tries it on a page that exists; an older kernel returns
 * EINVAL even then. */
static bool populate_has_advice(u64 page_size)
{
	static int known; /* 0: unknown, 1: yes, 2: no. Threads that race store the same value */
	int has = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!has) {
		u64 page = (uintptr_t)&has & ~(page_size - 1);

		has = madvise((void *)(uintptr_t)page, page_size, MADV_POPULATE_READ) == 0 ? 1 : 2;
		__atomic_store_n(&known, has, __ATOMIC_RELAXED);
	}
	return has == 1;
}

static int populate_advise(u64 first, u64 end, u64 page_size, bool write)
{
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	for (int i = 0; i < POPULATE_RETRIES; i++) {
		if (madvise((void *)(uintptr_t)first, end - first, advice) == 0)
			return 0;
		if (errno != EINTR && errno != EAGAIN)
			break;
	}
	return errno == ENOMEM && !populate_has_hole(first, end, page_size) ? -ENOMEM : -EFAULT;
}

int mem_populate(u64 addr, u64 length, bool write)
{
	u64 page_size = (u64)sysconf(_SC_PAGESIZE);
	u64 first = addr & ~(page_size - 1), last;

	if (!length)
		return 0;
	if (addr + (length - 1) < addr)
		return -EFAULT;
	last = (addr + (length - 1)) & ~(page_size - 1);
	if (last + page_size < page_size) /* no process owns the topmost page */
		return -EFAULT;
	if (length >= POPULATE_LONG && mem_is_mapped(first, last + page_size, write))
		return 0;
	if (populate_has_advice(page_size))
		return populate_advise(first, last + page_size, page_size, write);
	return mem_populate_by_touch(first, last + page_size, page_size, write);
}

/* Asks the kernel to begin reading what is not in memory: files, swap. */
static void prefetch_begin(u64 first, u64 end)
{
	(void)madvise((void *)(uintptr_t)first, end - first, MADV_WILLNEED);
}

int mem_prefetch(u64 addr, u64 length, bool write, bool wait)
{
	u64 page_size = (u64)sysconf(_SC_PAGESIZE);
	u64 first = addr & ~(page_size - 1);
	u64 end = (addr + length + page_size - 1) & ~(page_size - 1);

	if (length == 0)
		return 0;
	if (end <= first)
		return wait ? -EFAULT : 0;
	if (!wait)
		prefetch_begin(first, end);
	else if (populate_has_advice(page_size))
		return populate_advise(first, end, page_size, write);
	else
		return mem_populate_by_touch(first, end, page_size, write);
	return 0;
}

bool mem_is_there(u64 addr, u64 length, bool write)
{
	u64 page_size = (u64)sysconf(_SC_PAGESIZE);
	u64 first = addr & ~(page_size - 1);
	u64 end = (addr + length + page_size - 1) & ~(page_size - 1);

	return mem_populate_by_touch(first, end, page_size, write) == 0;
}
