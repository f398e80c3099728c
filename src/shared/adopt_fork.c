/* adopt_fork.c: a forked child gets private memory in place of adopted memory.
 *
 * As a rule all of it becomes private before the fork (adopt_back.c), and the kernel does the rest.
 * This file handles the pages that could not, since a device or another process may hold them.
 *
 * Parent and child would share the file's maps, so a child does not inherit them: neither one made
 * behind our back (clone) nor, at last, one that we know of. Before a fork the content is copied
 * into the stash, and the maps are made inheritable, for until our handler runs the child has
 * nothing else at their address (the C library resets its streams, which may lie there). The
 * handler moves the copy over them. So advice that the application gave for a fork
 * (MADV_WIPEONFORK, MADV_DONTFORK) holds, too.
 *
 * All becomes private under adopt.lock, before the fork takes any other lock (FORK_ADOPT). The copy
 * is made behind all other parts, and moved to its place before them (FORK_MEMORY).
 *
 * In: fork    Out: the child's memory
 * Runs: the forking thread    Locks: adopt.lock across the fork, so that no region changes
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "shared/adopt_priv.h"
#include "shared/born_priv.h"

static bool inherit_was_busy;

static void *inherit_pointer(u64 addr)
{
	return (void *)(uintptr_t)addr;
}

static struct adopt_region *inherit_region_of(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	struct adopt_region *r = &adopt.regions[(p->offset >> ADOPT_SLOT_SHIFT) % ADOPT_REGIONS];

	return region_is_used(r) && !region_is_born(r) && p->offset - r->offset < r->length ? r
											    : NULL;
}

/* Chooses the place of the child's copy: the stash, if the piece lies where it was adopted. */
static u64 inherit_place(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	const struct adopt_region *r = inherit_region_of(p);
	u64 length = p->end - p->start;
	void *place;

	if (r != NULL && p->start - r->addr == p->offset - r->offset &&
	    p->end <= r->addr + r->length) {
		u64 stash = r->stash + (p->start - r->addr);

		return mprotect(inherit_pointer(stash), length, PROT_READ | PROT_WRITE) == 0
			       ? stash
			       : 0;
	}
	/* sparse, perhaps */
	place = mmap(NULL, length, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return place == MAP_FAILED ? 0 : (u64)(uintptr_t)place;
}

static bool inherit_place_is_stash(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	const struct adopt_region *r = inherit_region_of(p);

	return r != NULL && p->copy - r->stash < r->length;
}

static void inherit_copy_piece(const struct adopt_piece *p) REQUIRES(&adopt.lock)
{
	u64 length = p->end - p->start;
	bool filled;

	if (p->heir == BORN_WITHHELD)
		return;
	/* the kernel wipes it in the child, and in the child's children */
	filled = p->copy != 0 && (p->heir == BORN_ZEROED ?
					  madvise(inherit_pointer(p->copy), length,
						  MADV_WIPEONFORK) == 0 :
					  move_content(p->copy, length, p, 0) == 0);
	if (filled && madvise(inherit_pointer(p->start), length, MADV_DOFORK) == 0)
		return;
	log_error("mem", "a forked child misses registered memory at %#llx",
		  (unsigned long long)p->start);
}

/* NO_THREAD_SAFETY, here and below: the fork holds adopt.lock and born.lock. */
static void inherit_copy(void) NO_THREAD_SAFETY
{
	inherit_was_busy = born_set_busy(true);
	adopt.pieces.count = 0;
	if (adopt.fd < 0)
		return;
	if (!look_pieces(ADOPT_SLOT_BYTES, ADOPT_FILE_BYTES))
		log_error("mem", "a forked child may miss registered memory");
	/* All places first: the list itself may lie in a piece, and the child gets the copy. */
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		struct adopt_piece *p = &adopt.pieces.at[i];

		p->copy = p->heir == BORN_WITHHELD ? 0 : inherit_place(p);
	}
	for (u32 i = 0; i < adopt.pieces.count; i++)
		inherit_copy_piece(&adopt.pieces.at[i]);
}

static void inherit_drop_copy(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		const struct adopt_piece *p = &adopt.pieces.at[i];
		u64 length = p->end - p->start;
		void *copy = inherit_pointer(p->copy);

		madvise(inherit_pointer(p->start), length, MADV_DONTFORK);
		if (p->copy == 0)
			continue;
		if (!inherit_place_is_stash(p)) {
			munmap(copy, length);
			continue;
		}
		if (madvise(copy, length, MADV_DONTNEED) != 0) { /* mlockall() forbids it */
			munlock(copy, length);
			madvise(copy, length, MADV_DONTNEED);
		}
		mprotect(copy, length, PROT_NONE);
	}
	adopt.pieces.count = 0;
	born_set_busy(inherit_was_busy);
}

/* Copies where maps cannot be moved. */
static bool inherit_copy_in_child(void *to, const void *from, u64 length)
{
	if (mmap(to, length, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	memcpy(to, from, length);
	return true;
}

/* Tells whether all of the range is mapped. Asks for maps, not for pages. */
static bool inherit_is_whole(u64 at, u64 length)
{
	return msync(inherit_pointer(at), length, MS_ASYNC) == 0 || errno != ENOMEM;
}

/* Length of the run from `at` on that is mapped, or unmapped, in a range that is mapped in part. */
static u64 inherit_run(u64 at, u64 length, bool *mapped)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), n = page;

	*mapped = inherit_is_whole(at, page);
	while (n < length && inherit_is_whole(at + n, page) == *mapped)
		n += page;
	return n;
}

/* In the child: moves the copy into place. If the application withheld the memory from children,
 * the copy is missing, too; from Linux 6.17 on moving a missing map would leave the parent's memory
 * in place. The piece is not read again: it may lie in itself. */
static void inherit_place_copy(const struct adopt_piece *p)
{
	u64 to = p->start, copy = p->copy, length = p->end - to;
	int prot = p->prot;

	if (copy == 0)
		return;
	for (u64 at = 0, n; at < length; at += n) {
		void *from = inherit_pointer(copy + at), *there = inherit_pointer(to + at);
		bool mapped = inherit_is_whole(copy + at, length - at);

		n = mapped ? length - at : inherit_run(copy + at, length - at, &mapped);
		if (!mapped ||
		    (mremap(from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, there) == MAP_FAILED &&
		     !inherit_copy_in_child(there, from, n)))
			munmap(there, n);
		else if (prot != (PROT_READ | PROT_WRITE))
			mprotect(there, n, prot);
	}
}

/* Maps zeroes where nothing was inherited, unless the application has mapped something there
 * since. */
static void inherit_place_zeroes(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < adopt.wiped_count; i++) {
		u64 n = adopt.wiped[i].end - adopt.wiped[i].start;
		void *p = mmap(inherit_pointer(adopt.wiped[i].start), n, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
			       -1, 0);

		if (p != MAP_FAILED)
			madvise(p, n, MADV_WIPEONFORK);
	}
	adopt.wiped_count = 0;
}

static void inherit_take(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < adopt.pieces.count; i++)
		inherit_place_copy(&adopt.pieces.at[i]);
	inherit_place_zeroes();
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (region_is_used(r) && !region_is_born(r))
			munmap(inherit_pointer(r->stash), r->length);
		*r = (struct adopt_region){ .refs = 0 };
	}
	if (adopt_file_is_there())
		close(adopt.fd);
	look_drop();
	adopt.fd = -1;
	own_drop_in_child();
	adopt.bytes = 0;
	adopt.given_back = false;
	adopt.region_high = adopt.lingering = adopt.pieces.count = 0;
}

static void inherit_become_child(void) NO_THREAD_SAFETY
{
	if (adopt.fd >= 0)
		inherit_take();
	born_set_busy(inherit_was_busy);
}
FORK_HOOK(FORK_MEMORY, .before = inherit_copy, .after = inherit_drop_copy,
	  .child = inherit_become_child);

/* Registrations are the parent's. */
static void inherit_forget(void) NO_THREAD_SAFETY
{
	adopt.shown = NULL;
	adopt.keys = NULL;
	adopt.range_count = adopt.untracked = 0;
}
FORK_TAKES(FORK_ADOPT, &adopt.lock, .before = back_give, .child = inherit_forget);

static void inherit_forget_engine(void) NO_THREAD_SAFETY
{
	adopt_engine_runs = adopt_engine_comes = false;
}
FORK_MAKES_ANEW(FORK_ADOPT_ENGINE, &adopt_engine_lock, .child = inherit_forget_engine);

bool inherit_is_watched(void)
{
	return fork_is_watched();
}
