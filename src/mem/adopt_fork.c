/* adopt_fork.c: a forked child gets a copy of adopted memory, as it would of any other.
 *
 * The file's maps are not inherited (MADV_DONTFORK), for parent and child would share them. Before
 * the fork the content is copied into the stash, which is; the child moves it to where it belongs.
 * So advice that the application gave for a fork (MADV_WIPEONFORK, MADV_DONTFORK) holds, too.
 *
 * In: fork    Out: the child's memory
 * Runs: the forking thread    Locks: adopt.lock across the fork, so that no region changes
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/adopt_priv.h"

static struct adopt_region *fork_region_of(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	struct adopt_region *r = &adopt.regions[(p->offset >> ADOPT_SLOT_SHIFT) % ADOPT_REGIONS];

	return r->refs != 0 && p->offset - r->offset < r->length ? r : NULL;
}

/* Where the child's copy of a piece is made: in the stash, if the piece is where it was adopted. */
static u64 fork_place(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	const struct adopt_region *r = fork_region_of(p);
	void *place;

	if (r != NULL && p->start - r->addr == p->offset - r->offset &&
	    p->end <= r->addr + r->length)
		return r->stash + (p->start - r->addr);
	place = mmap(NULL, p->end - p->start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	return place == MAP_FAILED ? 0 : (u64)(uintptr_t)place;
}

static bool fork_place_is_stash(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	const struct adopt_region *r = fork_region_of(p);

	return r != NULL && p->copy - r->stash < r->length;
}

/* NO_THREAD_SAFETY: the lock is held from here to the handlers after the fork. */
static void fork_prepare(void) NO_THREAD_SAFETY
{
	lock_acquire(&adopt.lock);
	adopt.pieces.count = 0;
	if (adopt.fd < 0)
		return;
	if (!look_pieces(ADOPT_SLOT_BYTES, ADOPT_FILE_BYTES))
		log_error("mem", "a forked child may miss registered memory");
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		struct adopt_piece *p = &adopt.pieces.at[i];

		p->copy = fork_place(p);
		if (p->copy == 0 || move_read(p->copy, p->end - p->start, p->offset) != 0)
			log_error("mem", "a forked child misses registered memory at %#llx",
				  (unsigned long long)p->start);
	}
}

static void fork_parent(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		const struct adopt_piece *p = &adopt.pieces.at[i];
		void *copy = (void *)(uintptr_t)p->copy;

		if (p->copy == 0)
			continue;
		if (fork_place_is_stash(p))
			madvise(copy, p->end - p->start, MADV_DONTNEED);
		else
			munmap(copy, p->end - p->start);
	}
	adopt.pieces.count = 0;
	lock_release(&adopt.lock);
}

static void fork_child(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		const struct adopt_piece *p = &adopt.pieces.at[i];
		void *to = (void *)(uintptr_t)p->start;

		/* Fails where the application wanted that the child has nothing. */
		if (p->copy != 0 &&
		    mremap((void *)(uintptr_t)p->copy, p->end - p->start, p->end - p->start,
			   MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED &&
		    p->prot != (PROT_READ | PROT_WRITE))
			mprotect(to, p->end - p->start, p->prot);
	}
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (r->refs != 0)
			munmap((void *)(uintptr_t)r->stash, r->length);
		*r = (struct adopt_region){ .refs = 0 };
	}
	if (adopt.fd >= 0)
		close(adopt.fd);
	adopt.fd = -1;
	adopt.region_high = 0;
	adopt.shown = NULL;
	adopt.range_count = adopt.untracked = adopt.pieces.count = 0;
	adopt_engine_runs = adopt_engine_comes = false;
	lock_init(&adopt_engine_lock);
	lock_init(&adopt.lock);
}

bool fork_watch(void)
{
	if (!adopt.watches_forks)
		adopt.watches_forks =
			pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
	return adopt.watches_forks;
}
