/* adopt_allow.c: decides whether this process may adopt memory: settings, allocator, limits.
 *
 * In: the environment, limits, /proc/sys    Out: yes or no; bounds
 * Runs: verbs that register memory    Locks: none
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "shared/adopt_priv.h"

enum {
	ALLOW_MAPS = 16000, /* or a quarter of vm.max_map_count, whichever is less */
	ALLOW_MEMORY_SHARE = 8, /* share of the machine's memory, and of a control group's limit */
	ALLOW_CHUNKS = 2, /* room that must be left, in chunks */
	/* how long the finding that no group has a limit is used */
	ALLOW_NONE_NS = 100 * NS_PER_MS,
};
#define ALLOW_BYTES (1ull << 30)

/* Other allocators than the C library's expect zeroes in freed memory after MADV_DONTNEED, even
 * while it is registered; a file's pages are not zeroed. Sanitizers have such allocators, too. */
static bool allow_malloc(void)
{
	/* under shim/born another allocator may lie behind this one */
	void *(*behind)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "anyverbs_next_malloc");
	void *allocator = behind != NULL ? behind() : dlsym(RTLD_DEFAULT, "malloc");
	const char *name;
	Dl_info info;

	if (dladdr(allocator, &info) == 0 || info.dli_fname == NULL)
		return false;
	name = strrchr(info.dli_fname, '/');
	name = name == NULL ? info.dli_fname : name + 1;
	return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "libc-2", 6) == 0;
}

/* Reads a number from /proc/sys. */
static u64 allow_setting(const char *path, u64 otherwise)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return otherwise;
	text[n] = '\0';
	return strtoull(text, NULL, 10);
}

/* Under strict accounting the empty stash would count once more. */
static bool allow_file(void)
{
	return env_is_on("ANYVERBS_ADOPT", true) &&
	       allow_setting("/proc/sys/vm/overcommit_memory", 2) != 2;
}

static bool allow_moves(void)
{
	const char *preload = getenv("LD_PRELOAD");

	/* valgrind tracks each byte of the memory that it has seen mapped */
	if (preload != NULL && strstr(preload, "vgpreload") != NULL)
		return false;
	return allow_file() && allow_malloc();
}

/* *known: 0: unknown, 1: yes, 2: no. Threads that race store the same value */
static bool allow_once(int *known, bool (*ask)(void))
{
	int on = __atomic_load_n(known, __ATOMIC_RELAXED);

	if (on == 0) {
		on = ask() ? 1 : 2;
		__atomic_store_n(known, on, __ATOMIC_RELAXED);
	}
	return on == 1;
}

bool adopt_is_on(void)
{
	static int known;

	return allow_once(&known, allow_moves);
}

/* No page of own memory moves, and no allocator sees it. */
bool allow_own(void)
{
	static int known;

	return allow_once(&known, allow_file);
}

static bool allow_unlimited(int resource)
{
	struct rlimit limit;

	return getrlimit((__rlimit_resource_t)resource, &limit) == 0 &&
	       limit.rlim_cur == RLIM_INFINITY;
}

static bool allow_space(void)
{
	return allow_unlimited(RLIMIT_AS);
}

/* Refuses limits that adoption would run into. A write beyond RLIMIT_FSIZE raises a signal; the
 * stash uses up RLIMIT_AS; the file's pages do not count as RLIMIT_DATA, but a child's copy and
 * returned pages do. */
bool allow_limits(void)
{
	return allow_unlimited(RLIMIT_FSIZE) && allow_unlimited(RLIMIT_DATA) && allow_space();
}

u64 allow_bytes(void)
{
	static u64 known; /* 0: unknown. Threads that race store the same value */
	u64 bytes = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (bytes == 0) {
		u64 all = (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE);

		bytes = MIN(ALLOW_BYTES, all / ALLOW_MEMORY_SHARE + 1);
		__atomic_store_n(&known, bytes, __ATOMIC_RELAXED);
	}
	return bytes;
}

bool allow_fits(u64 bytes, u64 length)
{
	/* clock: until then no group has a limit. Threads that race store about the same value */
	static u64 none_until;
	static struct cgroup_ask ask GUARDED_BY(adopt.lock);
	u64 need = ALLOW_CHUNKS * MIN(length, (u64)ADOPT_CHUNK), now = clock_now_ns();
	struct cgroup_room room;

	if (now < __atomic_load_n(&none_until, __ATOMIC_RELAXED))
		return true;
	room = cgroup_ask("/proc/self", need, &ask);
	if (room.limit == CGROUP_NO_LIMIT)
		__atomic_store_n(&none_until, now + ALLOW_NONE_NS, __ATOMIC_RELAXED);
	return bytes + length <= room.limit / ALLOW_MEMORY_SHARE && need <= room.left;
}

bool adopt_may_map(u32 count)
{
	return count < allow_maps() / 4 && allow_space();
}

u32 allow_maps(void)
{
	static u32 known; /* 0: unknown. Threads that race store the same value */
	u32 maps = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (maps == 0) {
		u64 all = allow_setting("/proc/sys/vm/max_map_count", 0);

		maps = (u32)MIN(all / 4 + 1, (u64)ALLOW_MAPS);
		__atomic_store_n(&known, maps, __ATOMIC_RELAXED);
	}
	return maps;
}
