/* adopt.c: decides which pages are adopted. docs/adoption.md has the rules.
 *
 * In: registrations and their ends    Out: regions, slots of the file
 * Runs: verbs that register memory    Locks: adopt.lock, then adopt_engine_lock
 */
#include "shared/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "shared/adopt_priv.h"
#include "shared/shared.h"

enum {
	ADOPT_LONGEST = 256 << 20, /* copying more costs more than it gains */
	ADOPT_STACK = 64 << 10, /* bytes around a variable of a thread that its stack may use */
	ADOPT_THREAD = 8 << 10, /* bytes behind errno that belong to the thread */
	/* Adopting costs more than registering, so many registrations in a row must not all adopt:
	 * at once so many may, then one per ADOPT_EVERY_NS. */
	ADOPT_BURST = 512,
	ADOPT_EVERY_NS = 2 * NS_PER_MS,
	/* Below this length adopting costs 50 times as much per byte, and such registrations come
	 * by the thousand: fewer may adopt, and each registration counts as ADOPT_SMALL_EACH_NS
	 * gone by. */
	ADOPT_SMALL = 64 << 10,
	ADOPT_SMALL_BURST = 16,
	ADOPT_SMALL_NS = 3200 * NS_PER_US,
	ADOPT_SMALL_EACH_NS = ADOPT_SMALL_NS / 256,
	ADOPT_SWEEP_NS = 100 * NS_PER_MS,
	ADOPT_START_STEPS = 400, /* times 50 us, until the engine's thread runs */
	ADOPT_TMPFS = 0x01021994,
};

struct adopt adopt = { .fd = -1, .maps_fd = -1 };
struct lock adopt_engine_lock;
bool adopt_engine_runs GUARDED_BY(adopt_engine_lock);

bool adopt_engine_comes GUARDED_BY(adopt_engine_lock);

void adopt_engine_expect(bool comes)
{
	lock_acquire(&adopt_engine_lock);
	adopt_engine_comes = comes;
	lock_release(&adopt_engine_lock);
}

void adopt_engine_begin(void)
{
	lock_acquire(&adopt_engine_lock);
	adopt_engine_comes = false;
	adopt_engine_runs = true;
	lock_release(&adopt_engine_lock);
}

/* NO_THREAD_SAFETY, both: callers cannot name the lock. */
void adopt_engine_enter(void) NO_THREAD_SAFETY
{
	lock_acquire(&adopt_engine_lock);
}

void adopt_engine_leave(void) NO_THREAD_SAFETY
{
	lock_release(&adopt_engine_lock);
}

/* ---- the file ---- */

static bool adopt_seal(int fd)
{
	return ftruncate(fd, (off_t)ADOPT_FILE_BYTES) == 0 &&
	       fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

static bool adopt_file_create(void) REQUIRES(&adopt.lock)
{
	int fd = fd_own(memfd_create("anyverbs-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	struct stat st;

	if (fd < 0)
		return false;
	if (!look_keep() || !adopt_seal(fd) || fstat(fd, &st) != 0) {
		close(fd);
		return false;
	}
	adopt.fd = fd;
	adopt.inode = st.st_ino;
	adopt.device = st.st_dev;
	return true;
}

bool adopt_file_is_there(void)
{
	struct stat st;

	return adopt.fd >= 0 && fstat(adopt.fd, &st) == 0 && st.st_ino == adopt.inode &&
	       st.st_dev == adopt.device;
}

/* NO_THREAD_SAFETY, both: a file that is open stays open. */
bool adopt_file_is_open(void) NO_THREAD_SAFETY
{
	return adopt_file_is_there();
}

int adopt_file_fd(void) NO_THREAD_SAFETY
{
	return adopt.fd;
}

bool adopt_file_make(void)
{
	return adopt.fd < 0 ? adopt_file_create() : adopt_file_is_there();
}

bool adopt_file(int *fd, u64 *inode)
{
	bool there;

	lock_acquire(&adopt.lock);
	there = adopt.fd >= 0;
	*fd = adopt.fd;
	*inode = adopt.inode;
	lock_release(&adopt.lock);
	return there;
}

bool adopt_is_file(int fd, u64 inode)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	/* Pages of other kinds of files may be absent when they are touched. */
	return fstat(fd, &st) == 0 && fstatfs(fd, &fs) == 0 && fs.f_type == ADOPT_TMPFS &&
	       st.st_ino == inode && (u64)st.st_size == ADOPT_FILE_BYTES && seals >= 0 &&
	       (seals & F_SEAL_SHRINK) != 0;
}

/* ---- ranges and regions ---- */

static bool range_overlaps(u64 start, u64 end, u64 addr, u64 length)
{
	return start < addr + length && addr < end;
}

static bool ranges_have(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.range_count; i++)
		if (adopt.ranges[i].start < end && start < adopt.ranges[i].end)
			return true;
	return false;
}

static void ranges_add(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	if (adopt.range_count == ADOPT_RANGES)
		adopt.untracked++;
	else
		adopt.ranges[adopt.range_count++] = (struct adopt_range){ start, end };
}

static void ranges_remove(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.range_count; i++)
		if (adopt.ranges[i].start == start && adopt.ranges[i].end == end) {
			adopt.ranges[i] = adopt.ranges[--adopt.range_count];
			return;
		}
	adopt.untracked--;
}

/* Returns the region that contains all of [start, end); NULL: none. */
static struct adopt_region *region_around(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (r->refs != 0 && !r->lost && r->addr <= start && end <= r->addr + r->length &&
		    (!region_is_born(r) || born_has(start, end - start)))
			return r;
	}
	return NULL;
}

bool region_is_born(const struct adopt_region *r)
{
	return r->stash == 0 && r->refs != 0;
}

bool region_is_used(const struct adopt_region *r)
{
	return r->refs != 0 || r->lingers;
}

void region_end(struct adopt_region *r, bool reusable)
{
	adopt.bytes -= region_is_born(r) ? 0 : r->length;
	adopt.lingering -= r->lingers;
	if (!reusable)
		r->offset = 0;
	r->refs = 0;
	r->lingers = r->unclean = r->keeps = r->lost = false;
}

/* Returns a free region that has a slot; NULL: none. A slot's number is its region's, modulo
 * ADOPT_REGIONS. The last region's place is that of own memory. */
static struct adopt_region *region_find_free(void) REQUIRES(&adopt.lock)
{
	struct adopt_region *r = adopt.regions;

	while (r < &adopt.regions[ADOPT_REGIONS - 1] && region_is_used(r))
		r++;
	if (r == &adopt.regions[ADOPT_REGIONS - 1])
		return NULL;
	if (r->offset == 0) {
		u64 slot = (u64)(r - adopt.regions) + (u64)ADOPT_REGIONS * ++r->turn;

		if (slot + 1 >= ADOPT_FILE_BYTES >> ADOPT_SLOT_SHIFT)
			return NULL;
		r->offset = slot << ADOPT_SLOT_SHIFT;
	}
	adopt.region_high = MAX(adopt.region_high, (u32)(r - adopt.regions) + 1);
	return r;
}

/* ---- what peers see ---- */

void region_hide(const struct adopt_region *r)
{
	if (adopt.shown != NULL)
		__atomic_store_n(&adopt.shown->at[r - adopt.regions].offset, 0, __ATOMIC_RELEASE);
}

static void region_show(const struct adopt_region *r) REQUIRES(&adopt.lock)
{
	struct adopt_shown *s;

	if (adopt.shown == NULL)
		return;
	s = &adopt.shown->at[r - adopt.regions];
	__atomic_store_n(&s->addr, r->addr, __ATOMIC_RELAXED);
	__atomic_store_n(&s->length, r->length, __ATOMIC_RELAXED);
	__atomic_store_n(&s->offset, r->offset, __ATOMIC_RELEASE); /* pairs with reach_address */
	__atomic_store_n(&adopt.shown->high, adopt.region_high, __ATOMIC_RELEASE);
}

void adopt_show(struct adopt_table *t, struct mem_table *keys)
{
	lock_acquire(&adopt.lock);
	adopt.shown = t;
	adopt.keys = keys;
	if (!adopt.born_is_lost && region_is_born(&adopt.regions[BORN_REGION]))
		region_show(&adopt.regions[BORN_REGION]);
	lock_release(&adopt.lock);
}

u64 adopt_born(u64 base, u64 length)
{
	struct adopt_region *r;
	u64 offset = 0;

	lock_acquire(&adopt.lock);
	if (adopt_is_on() && allow_limits() && length <= ADOPT_SLOT_BYTES && inherit_is_watched() &&
	    adopt_file_make()) {
		r = region_find_free();
		r->addr = base;
		r->length = length;
		r->refs = 1; /* never freed */
		offset = r->offset;
	}
	lock_release(&adopt.lock);
	return offset;
}

void adopt_born_lost(void)
{
	lock_acquire(&adopt.lock);
	region_hide(&adopt.regions[BORN_REGION]);
	adopt.born_is_lost = true;
	lock_release(&adopt.lock);
}

/* ---- adopting ---- */

/* Takes one credit: `at_once` gather at most, one per `every_ns`. */
static bool credit_take(u64 *since_ns, u32 at_once, u64 every_ns)
{
	u64 now = clock_now_ns(), most = at_once * every_ns;

	if (*since_ns == 0 || now - *since_ns > most)
		*since_ns = now > most ? now - most : 1;
	if (now - *since_ns < every_ns)
		return false;
	*since_ns += every_ns;
	return true;
}

static bool adopt_has_credit(u64 length) REQUIRES(&adopt.lock)
{
	if (length < ADOPT_SMALL) {
		if (adopt.small_ns > ADOPT_SMALL_EACH_NS)
			adopt.small_ns -= ADOPT_SMALL_EACH_NS;
		if (!credit_take(&adopt.small_ns, ADOPT_SMALL_BURST, ADOPT_SMALL_NS))
			return false;
	}
	return credit_take(&adopt.credit_ns, ADOPT_BURST, ADOPT_EVERY_NS);
}

/* Memory that runs, or keeps notes, while pages move must not move itself. */
static bool adopt_is_ours(u64 start, u64 end)
{
	const u64 stack = (u64)(uintptr_t)&start;
	const struct adopt_range ours[] = {
		{ (u64)(uintptr_t)&adopt, (u64)(uintptr_t)(&adopt + 1) },
		{ (u64)(uintptr_t)&adopt_engine_lock, (u64)(uintptr_t)(&adopt_engine_lock + 1) },
		/* the thread's own data: the C library's, and the thread's control block. The data
		 * of the program may lie between them */
		{ (u64)(uintptr_t)&errno, (u64)(uintptr_t)&errno + ADOPT_THREAD },
		{ (u64)pthread_self(), (u64)pthread_self() + ADOPT_THREAD },
		/* an application may have made a stack of ordinary memory */
		{ stack - ADOPT_STACK, stack + ADOPT_STACK },
	};

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (range_overlaps(start, end, ours[i].start, ours[i].end - ours[i].start))
			return true;
	return false;
}

bool adopt_stands_on(const struct adopt_region *r)
{
	return adopt_is_ours(r->addr, r->addr + r->length);
}

static bool adopt_may(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	u64 in_page = (u64)sysconf(_SC_PAGESIZE) - 1;

	if (!adopt_is_on() || __atomic_load_n(&adopt.everywhere, __ATOMIC_RELAXED))
		return false;
	if (start == end || ((start | end) & in_page) != 0 || end - start > ADOPT_LONGEST)
		return false;
	return !adopt.given_back && adopt.untracked == 0 && adopt_has_credit(end - start) &&
	       !ranges_have(start, end) && !adopt_is_ours(start, end) &&
	       end - start <= allow_bytes() - adopt.bytes && allow_limits() &&
	       allow_fits(adopt.bytes, end - start) && inherit_is_watched() && adopt_file_make();
}

/* Between adopt_stop and adopt_go_on. */
static struct adopt_region *adopt_now(u64 start, u64 end)
	REQUIRES(&adopt.lock) REQUIRES(&adopt_engine_lock)
{
	struct adopt_region *r;
	int err;

	if (!look_is_alone() || !look_is_plain(start, end))
		return NULL;
	r = region_find_free();
	if (r == NULL)
		return NULL;
	r->addr = start;
	r->length = end - start;
	err = move_in(r);
	if (err == 0) {
		adopt.bytes += r->length;
		region_show(r);
		return r;
	}
	log_info("mem", "memory at %#llx cannot be adopted: error %d", (unsigned long long)start,
		 -err);
	r->offset = 0;
	return NULL;
}

/* A program that registers at once may be ahead of the thread that its first verb has started. */
static void adopt_engine_await(void) REQUIRES(&adopt_engine_lock)
{
	for (int i = 0; i < ADOPT_START_STEPS && adopt_engine_comes; i++) {
		lock_release(&adopt_engine_lock);
		clock_sleep_ns(50 * NS_PER_US);
		lock_acquire(&adopt_engine_lock);
	}
	adopt_engine_comes = false;
}

static void adopt_region_out(struct adopt_region *r, bool clean)
	REQUIRES(&adopt.lock) REQUIRES(&adopt_engine_lock)
{
	bool alone = look_is_alone() && !adopt_stands_on(r) &&
		     !__atomic_load_n(&adopt.everywhere, __ATOMIC_RELAXED);

	switch (move_out(r, alone)) {
	case MOVE_NOT_YET:
		adopt.lingering += !r->lingers;
		r->lingers = true;
		r->unclean |= !clean;
		return;
	case MOVE_UNCLEAN:
		r->unclean = true;
		break;
	case MOVE_DONE:
		break;
	}
	region_end(r, clean && !r->unclean);
}

/* Blocks every signal and stops the engine's thread. */
static void adopt_stop(sigset_t *before) ACQUIRE(&adopt_engine_lock)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
	lock_acquire(&adopt_engine_lock);
}

static void adopt_go_on(const sigset_t *before) RELEASE(&adopt_engine_lock)
{
	lock_release(&adopt_engine_lock);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Tries again the regions that could not be put back when their registration ended. */
static void adopt_sweep(void) REQUIRES(&adopt.lock)
{
	u64 now = clock_now_ns();
	sigset_t before;

	if (adopt.lingering == 0 || now - adopt.swept_ns < ADOPT_SWEEP_NS)
		return;
	adopt.swept_ns = now;
	adopt_stop(&before);
	for (u32 i = 0; i < adopt.region_high; i++)
		if (adopt.regions[i].lingers)
			adopt_region_out(&adopt.regions[i], true);
	adopt_go_on(&before);
}

/* The application may have unmapped adopted memory and mapped other memory there, which it
 * registers now: peers that know the memory by its address must not find the file's pages. */
static void adopt_lose(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];
		u64 from = MAX(start, r->addr), to = MIN(end, r->addr + r->length);

		if (r->refs == 0 || r->lost || region_is_born(r) || from >= to ||
		    look_is_ours(from, to, r->offset + (from - r->addr), PROT_NONE))
			continue;
		r->lost = true;
		region_hide(r);
	}
}

static struct adopt_region *adopt_region_new(u64 start, u64 end) REQUIRES(&adopt.lock)
{
	struct adopt_region *r;
	sigset_t before;

	if (!adopt_may(start, end))
		return NULL;
	adopt_sweep();
	adopt_stop(&before);
	adopt_engine_await();
	r = adopt_now(start, end);
	adopt_go_on(&before);
	return r;
}

static void adopt_region_end(struct adopt_region *r, bool clean) REQUIRES(&adopt.lock)
{
	sigset_t before;

	region_hide(r);
	adopt_stop(&before);
	adopt_region_out(r, clean);
	adopt_go_on(&before);
}

/* Counts regions that the registration touches in part, too: they stay until it has ended. */
static void adopt_count(const struct adopt_region *r, u64 start, u64 end) REQUIRES(&adopt.lock)
{
	ranges_add(start, end);
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *at = &adopt.regions[i];

		if (at == r || (at->refs != 0 && range_overlaps(start, end, at->addr, at->length)))
			at->refs++;
	}
}

u64 adopt_again(u64 addr, u64 length, bool write)
{
	u64 end = addr + length, offset = 0;
	struct adopt_region *r;

	if (!adopt_is_on() || end <= addr)
		return 0;
	lock_acquire(&adopt.lock);
	r = region_around(addr, end);
	if (r != NULL && !region_is_born(r) &&
	    look_is_ours(addr, end, r->offset + (addr - r->addr),
			 write ? PROT_READ | PROT_WRITE : PROT_READ)) {
		offset = r->offset + (addr - r->addr);
		adopt_count(r, addr, end);
	}
	lock_release(&adopt.lock);
	return offset;
}

u64 adopt_enter(u64 addr, u64 length)
{
	u64 end = addr + length, offset = 0;
	struct adopt_region *r;

	if (!adopt_is_on())
		return 0;
	lock_acquire(&adopt.lock);
	adopt_lose(addr, end);
	r = region_around(addr, end);
	if (r == NULL)
		r = adopt_region_new(addr, end);
	if (r != NULL)
		offset = r->offset + (addr - r->addr);
	adopt_count(r, addr, end);
	lock_release(&adopt.lock);
	return offset;
}

void adopt_hold(u64 addr, u64 length)
{
	if (!adopt_is_on())
		return;
	lock_acquire(&adopt.lock);
	adopt_lose(addr, addr + length);
	adopt_count(NULL, addr, addr + length);
	lock_release(&adopt.lock);
}

bool adopt_is_last(u64 addr, u64 length)
{
	const struct adopt_region *r;
	bool last;

	lock_acquire(&adopt.lock);
	r = region_around(addr, addr + length);
	last = r != NULL && r->refs == 1 && !region_is_born(r);
	lock_release(&adopt.lock);
	return last;
}

void adopt_leave(u64 addr, u64 length, bool clean)
{
	u64 end = addr + length;

	if (!adopt_is_on())
		return;
	lock_acquire(&adopt.lock);
	ranges_remove(addr, end);
	for (u32 i = 0; i < adopt.region_high; i++) {
		struct adopt_region *r = &adopt.regions[i];

		if (r->refs != 0 && range_overlaps(addr, end, r->addr, r->length) &&
		    --r->refs == 0)
			adopt_region_end(r, clean);
	}
	adopt_sweep();
	lock_release(&adopt.lock);
}

void adopt_enter_all(void)
{
	__atomic_store_n(&adopt.everywhere, true, __ATOMIC_RELAXED);
}
