/* adopt_back.c: turns all memory of the file into private memory before the first fork.
 *
 * A child's memory is a snapshot of one instant only if the kernel makes it, by copy-on-write of
 * private pages: a copy of a live file is torn by the threads that store meanwhile, and takes as
 * much memory again at each fork. So the first fork beside shared memory ends adoption in this
 * process:
 *
 *   1. Peers are excluded (mem_exclude_peers): their operations go through our engine meanwhile,
 *      and by system calls afterwards.
 *   2. Each map of the file becomes private, where it is, as at the end of a registration.
 *   3. Advice for children that a private map of a file cannot carry is carried here.
 *   4. Peers are admitted again; no key is shared.
 *
 * Born memory (shared.h) alone, of a process without other threads that has registered nothing, is
 * copied as long as there is little: nobody stores to it meanwhile, and the process may go on to
 * use it. Nothing happens while requests of AIO or io_uring may hold pages, or pages are pinned or
 * locked: then the child gets a copy (adopt_fork.c), which is not of one instant.
 *
 * In: fork    Out: private memory
 * Runs: the forking thread    Locks: adopt.lock, then adopt_engine_lock, table->lock, born.lock
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "mem/mem.h"
#include "shared/adopt_priv.h"
#include "shared/born_priv.h"

enum {
	BACK_WAIT_STEPS = 2000, /* times 50 us, until the engine's thread stands still */
	BACK_COPY = 64 << 20, /* bytes of born memory that each fork may copy */
	BACK_BLOCK = 512, /* bytes: the unit of st_blocks */
};

static void *back_pointer(u64 addr)
{
	return (void *)(uintptr_t)addr;
}

/* ---- memory withheld from children ---- */

static bool back_add_wiped(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	if (adopt.wiped_count == ADOPT_WIPED)
		return false;
	adopt.wiped[adopt.wiped_count++] = (struct adopt_range){ start, end };
	return true;
}

/* The kernel wipes anonymous memory only. A child does not inherit another map with that advice,
 * and its first fork handler maps zeroes there (inherit_take). */
static void back_advise(u64 start, u64 end, enum born_heir heir) REQUIRES(&adopt.lock)
{
	void *p = back_pointer(start);

	if (heir == BORN_COPIED || (heir == BORN_ZEROED && madvise(p, end - start,
								   MADV_WIPEONFORK) == 0))
		return;
	if (madvise(p, end - start, MADV_DONTFORK) != 0)
		log_error("mem", "a child inherits memory at %#llx: errno %d",
			  (unsigned long long)start, errno);
	else if (heir == BORN_ZEROED && !back_add_wiped(start, end))
		log_error("mem", "a child misses memory at %#llx", (unsigned long long)start);
}

/* Notes a map with advice for children. The advice of a stash holds for the memory that was moved
 * out of it, if that memory is still in place. NO_THREAD_SAFETY: called within back_pieces. */
static void back_at_advice(u64 start, u64 end, bool withheld, void *arg) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		const struct adopt_piece *p = &adopt.pieces.at[i];
		const struct adopt_region *r = region_of_piece(p);
		u64 from, to;

		if (r == NULL || region_is_born(r) ||
		    p->start - r->addr != p->offset - r->offset)
			continue;
		from = MAX(start, r->stash + (p->start - r->addr));
		to = MIN(end, r->stash + (MIN(p->end, r->addr + r->length) - r->addr));
		if (from < to)
			back_advise(from - r->stash + r->addr, to - r->stash + r->addr,
				    withheld ? BORN_WITHHELD : BORN_ZEROED);
	}
}

/* ---- out of the file ---- */

/* Moves each piece out that can be moved. True: some became private in place, as a map of the
 * file. */
static bool back_pieces(bool alone) REQUIRES(&adopt.lock)
{
	bool in_place = false;

	for (u32 i = 0; i < adopt.pieces.count; i++) {
		const struct adopt_piece *p = &adopt.pieces.at[i];
		struct adopt_region *r = region_of_piece(p);
		bool clean = true;

		if (r == NULL || !move_piece_out(r, p, alone && !adopt_stands_on(r), &clean))
			continue;
		back_advise(p->start, p->end, (enum born_heir)p->heir);
		in_place |= !clean;
	}
	if (in_place && adopt.bytes != 0 && !look_advice(back_at_advice, NULL))
		log_error("mem", "advice for children is lost");
	return in_place;
}

/* Ends the regions of which nothing is shared any more. */
static void back_end_regions(bool in_place) REQUIRES(&adopt.lock)
{
	bool known = look_pieces(ADOPT_SLOT_BYTES, ADOPT_FILE_BYTES);

	for (u32 i = 0; !known && i < adopt.region_high; i++)
		adopt.regions[i].stays = true;
	for (u32 i = 0; i < adopt.pieces.count; i++) {
		struct adopt_region *r = region_of_piece(&adopt.pieces.at[i]);

		if (r != NULL)
			r->unclean = r->stays = true;
	}
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (region_is_born(r))
			born_unshared(!r->stays, in_place);
		if (region_is_used(r) && !r->stays) {
			move_finish(r);
			region_end(r, false);
		}
		r->stays = false;
	}
}

static bool back_has_any(void) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.region_high; i++)
		if (region_is_used(&adopt.regions[i]))
			return true;
	return false;
}

static bool back_is_held(void) REQUIRES(&adopt.lock)
{
	return !look_pieces(0, 0) || adopt.pieces.held || look_is_held();
}

/* NO_THREAD_SAFETY: adopt_engine_runs is only set before anything is registered. */
static bool back_may_copy(void) NO_THREAD_SAFETY
{
	struct stat st;

	return region_is_born(&adopt.regions[BORN_REGION]) && adopt.bytes == 0 &&
	       adopt.range_count == 0 && adopt.untracked == 0 && fstat(adopt.fd, &st) == 0 &&
	       st.st_blocks * BACK_BLOCK <= BACK_COPY && look_is_alone();
}

static void back_exclude_peers(void) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.region_high; i++)
		region_hide(&adopt.regions[i]);
	if (adopt.keys != NULL)
		mem_exclude_peers(adopt.keys);
}

/* Stops the engine's thread. It may wait for a lock that this thread holds, since other handlers
 * ran before this one: then memory moves while that thread runs. NO_THREAD_SAFETY: the lock is
 * taken, or not. */
static bool back_stop_engine(void) NO_THREAD_SAFETY
{
	for (int i = 0; i < BACK_WAIT_STEPS; i++) {
		if (lock_try(&adopt_engine_lock))
			return true;
		clock_sleep_ns(50 * NS_PER_US);
	}
	return false;
}

static bool back_is_alone(bool stopped) NO_THREAD_SAFETY
{
	return stopped && look_is_alone() && !__atomic_load_n(&adopt.everywhere, __ATOMIC_RELAXED);
}

/* NO_THREAD_SAFETY: see back_stop_engine. */
void back_give(void) NO_THREAD_SAFETY
{
	sigset_t all, before;
	bool stopped, busy;

	if (adopt.fd < 0 || !back_has_any() || back_may_copy() || back_is_held())
		return;
	back_exclude_peers();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	stopped = back_stop_engine();
	busy = born_set_busy(true);
	lock_acquire(&born.lock);
	if (look_pieces(ADOPT_SLOT_BYTES, ADOPT_FILE_BYTES)) {
		born_unshare();
		back_end_regions(back_pieces(back_is_alone(stopped)));
	}
	lock_release(&born.lock);
	born_set_busy(busy);
	if (stopped)
		lock_release(&adopt_engine_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (adopt.keys != NULL)
		mem_admit_peers(adopt.keys);
	adopt.given_back = true;
}
