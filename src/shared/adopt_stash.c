/* adopt_stash.c: makes an empty copy of one of the application's maps, to be put back later.
 *
 * In: part of a private map    Out: a map of the same length elsewhere, without pages
 * Runs: verbs that register memory    Locks: adopt.lock
 *
 * The copy has the advice, the policy and the name of the map, and its place in it: moved back,
 * it merges with its neighbours. No system call copies a private map. A page that is moved takes
 * the properties of its map along, and the moved map can grow. A page with content cannot be the
 * one, for another process that reads it (process_vm_readv) would find it missing. So the page is a
 * new one, in the hole below the map: the kernel merges it with the map if their properties agree.
 * A map with advice, or with another map right below it (another region, say), cannot be copied so.
 */
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/adopt_priv.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static void *stash_pointer(u64 addr)
{
	return (void *)(uintptr_t)addr;
}

u64 stash_reserve(u64 length)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	u8 *stash = mmap(NULL, length + page, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (stash == MAP_FAILED)
		return 0;
	munmap(stash + length, page);
	return (u64)(uintptr_t)stash;
}

/* Maps a new page below the first one of the map around `at`; 0: no room there. */
static u64 stash_seed(u64 at, u64 page) REQUIRES(&adopt.lock)
{
	u64 start, end, merged, seed;
	void *p;

	if (!look_bounds(at, &start, &end))
		return 0;
	seed = start - page;
	p = mmap(stash_pointer(seed), page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (p == MAP_FAILED)
		return 0;
	/* A kernel before Linux 4.17 takes the address as a hint. */
	if (p == stash_pointer(seed) && look_bounds(start, &merged, &end) && merged <= seed)
		return seed;
	munmap(p, page);
	return 0;
}

bool stash_copy_map(u64 from, u64 length, u64 stash)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), seed = stash_seed(from, page);
	u64 before = from - seed; /* bytes of the copy in front of `from` */
	void *copy;
	bool placed;

	if (seed == 0)
		return false;
	copy = mremap(stash_pointer(seed), page, before + length, MREMAP_MAYMOVE);
	if (copy == MAP_FAILED) {
		munmap(stash_pointer(seed), page);
		return false;
	}
	placed = mremap((u8 *)copy + before, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
			stash_pointer(stash)) != MAP_FAILED;
	munmap(copy, placed ? before : before + length);
	return placed;
}
