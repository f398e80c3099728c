/* born_test.c: the arena alone, without anything put under malloc and mmap, so that sanitizers run
 * it too: eight threads take, grow, move, advise and give back, beside registrations and forks.
 */
#include "shared/shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process_test.h"
#include "shared/adopt_priv.h"

enum { PAGE = 4096, THREADS = 8, ROUNDS = 100, FORKS = 6, SHORTEST = 16, LONGEST = 60 };

/* In place of shim/born's: adoption asks whose blocks the short ones are, and trusts the C
 * library's only. Here a sanitizer's may be in front of them, which does not matter to the
 * arena. */
AV_EXPORT void *anyverbs_next_malloc(void);

void *anyverbs_next_malloc(void)
{
	return dlsym(dlopen("libc.so.6", RTLD_NOW), "malloc");
}

static u64 file_bytes(void)
{
	struct stat st;
	u64 inode;
	int fd;

	assert_true(adopt_file(&fd, &inode));
	assert_int_equal(fstat(fd, &st), 0);
	return (u64)st.st_blocks * 512;
}

static bool is_all(const u8 *p, u64 n, u8 value)
{
	for (u64 i = 0; i < n; i++)
		if (p[i] != value)
			return false;
	return true;
}

/* From its first fork on, with other threads, a process has no shared memory. */
static bool forked;

static bool has_forked(void)
{
	return __atomic_load_n(&forked, __ATOMIC_RELAXED);
}

/* One life of a piece of memory; false: something was not as it should be. */
static bool piece_live(unsigned int *seed, u8 mine)
{
	u64 n = PAGE * (u64)(SHORTEST + rand_r(seed) % LONGEST), more = n + 16 * PAGE;
	u8 *p = born_alloc(n, 0, true);
	u64 at = (u64)(uintptr_t)p;
	int advised;
	bool ok;

	if (p == NULL)
		return has_forked();
	ok = is_all(p, n, 0) && born_length(p) == n && (born_has(at, n) || has_forked());
	memset(p, mine, n);
	if (born_resize(p, more))
		ok &= is_all(p + n, more - n, 0);
	else
		more = n;
	ok &= adopt_enter(at, n) != 0 || has_forked(); /* registered: shared already */
	advised = born_advise(at, PAGE, MADV_DONTNEED);
	if (advised == -ENOSYS && has_forked())
		advised = madvise(p, PAGE, MADV_DONTNEED);
	ok &= advised == 0 && is_all(p, PAGE, 0);
	ok &= is_all(p + PAGE, n - PAGE, mine);
	adopt_leave(at, n, true);
	return born_free(p) && ok;
}

static bool map_live(unsigned int *seed, u8 mine)
{
	u64 n = PAGE * (u64)(SHORTEST + rand_r(seed) % LONGEST);
	u8 *p = born_alloc(n, 0, false);
	s64 moved, put;
	u64 base, end;
	bool ok;

	if (p == NULL)
		return has_forked();
	memset(p, mine, n);
	moved = born_remap((u64)(uintptr_t)p, n, 2 * n, MREMAP_MAYMOVE, 0);
	if (moved == -ENOSYS && has_forked()) {
		ok = is_all(p, n, mine);
		born_unmap((u64)(uintptr_t)p, n);
		return ok;
	}
	if (moved <= 0)
		return false;
	p = (u8 *)(uintptr_t)moved;
	ok = is_all(p, n, mine) && is_all(p + n, n, 0);
	put = born_put((u64)moved + PAGE, PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ok &= (put == moved + PAGE && is_all(p + PAGE, PAGE, 0)) ||
	      (put == -ENOSYS && has_forked());
	ok &= is_all(p, PAGE, mine);
	born_bounds(&base, &end);
	if (base <= (u64)moved && (u64)moved < end)
		born_unmap((u64)moved, 2 * n);
	else
		munmap(p, 2 * n);
	return ok;
}

static void *churn(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++)
		if (!(i % 2 == 0 ? piece_live : map_live)(&seed, (u8)(uintptr_t)arg))
			return arg;
	return NULL;
}

static void churn_begin(pthread_t *threads)
{
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
}

static void churn_end(pthread_t *threads)
{
	for (int i = 0; i < THREADS; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
}

static void born_begin__once(void **state)
{
	u64 base, end;

	assert_true(born_begin());
	born_bounds(&base, &end);
	assert_true(base != 0 && end - base >= 1ull << 30);
	assert_true(born_begin());
}

static void born_alloc__from_eight_threads(void **state)
{
	u64 before = file_bytes();
	pthread_t threads[THREADS];

	churn_begin(threads);
	churn_end(threads);
	assert_int_equal(file_bytes(), before);
}

static void born_alloc__beside_forks(void **state)
{
	u64 before = file_bytes();
	u8 *p = born_alloc(LONGEST * PAGE, 0, true);
	pthread_t threads[THREADS];

	memset(p, 42, LONGEST * PAGE);
	churn_begin(threads);
	__atomic_store_n(&forked, true, __ATOMIC_RELAXED);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();

		/* ThreadSanitizer's _exit asks for the threads, which are the parent's to join */
		if (child == 0)
			syscall(SYS_exit_group, !is_all(p, LONGEST * PAGE, 42) || !born_free(p));
		assert_int_equal(child_verdict(child), 0);
	}
	churn_end(threads);
	assert_true(is_all(p, LONGEST * PAGE, 42) && born_free(p));
	assert_int_equal(file_bytes(), before);
	assert_null(born_alloc(PAGE * SHORTEST, 0, true));
}

static bool storer_ends;
static u32 storer_rounds;

/* Stores to both ends of a block, and to nothing else. */
static void *store(void *arg)
{
	volatile u8 *p = arg;

	while (!__atomic_load_n(&storer_ends, __ATOMIC_RELAXED)) {
		p[0] = p[SHORTEST * PAGE - 1] = 1;
		__atomic_add_fetch(&storer_rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void storer_await(void)
{
	u32 before = __atomic_load_n(&storer_rounds, __ATOMIC_RELAXED);

	while (__atomic_load_n(&storer_rounds, __ATOMIC_RELAXED) - before < 2)
		sched_yield();
}

/* The fork makes the block private, which stores to no byte: ThreadSanitizer must not report a
 * race. */
static void born_alloc__stored_to_beside_a_fork(void **state)
{
	u8 *p = born_alloc(SHORTEST * PAGE, 0, true);
	pthread_t thread;
	pid_t child;

	assert_int_not_equal(adopt_enter((u64)(uintptr_t)p, PAGE), 0);
	assert_int_equal(pthread_create(&thread, NULL, store, p), 0);
	storer_await();
	child = fork();
	if (child == 0)
		syscall(SYS_exit_group, p[0] != 1);
	assert_int_equal(child_verdict(child), 0);
	storer_await();
	__atomic_store_n(&storer_ends, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	adopt_leave((u64)(uintptr_t)p, PAGE, true);
	assert_true(born_free(p));
}

static void born_remap__without_the_descriptor(void **state)
{
	u64 before = file_bytes(), n = SHORTEST * PAGE;
	u8 *p = born_alloc(n, 0, false), *wall = born_alloc(PAGE * 16, 0, false);
	int kept = dup(adopt_file_fd());

	memset(p, 1, n);
	close(adopt_file_fd()); /* as an application may; then there is no born place to move to */
	assert_true(born_remap((u64)(uintptr_t)p, n, 4 * n, MREMAP_MAYMOVE, 0) > 0);
	assert_null(born_alloc(n, 0, false));
	assert_int_equal(dup2(kept, adopt_file_fd()), adopt_file_fd());
	close(kept);
	born_unmap((u64)(uintptr_t)wall, PAGE * 16);
	assert_int_equal(file_bytes(), before);
}

/* They do not move with born memory, and end with what shrinks over them. */
static void born_remap__over_maps_that_are_not_born(void **state)
{
	u64 before = file_bytes(), n = SHORTEST * PAGE;
	u8 *p = born_alloc(n, 0, false), *next;
	u64 at = (u64)(uintptr_t)p;

	memset(p, 1, n);
	assert_int_equal(born_put(at + 4 * PAGE, 2 * PAGE, PROT_READ,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 at + 4 * PAGE);
	assert_int_equal(born_remap(at, n, 2 * n, MREMAP_MAYMOVE, 0), -EFAULT);
	assert_int_equal(born_remap(at, n, 2 * PAGE, 0, 0), at);
	assert_true(is_all(p, 2 * PAGE, 1) && !born_has(at + 2 * PAGE, PAGE));
	next = born_alloc(n - 2 * PAGE, 0, false);
	assert_ptr_equal(next, p + 2 * PAGE);
	assert_true(is_all(next, n - 2 * PAGE, 0));
	born_unmap(at, n);
	assert_int_equal(file_bytes(), before);
}

static void born_retire__ends_the_arena_and_not_what_is_in_it(void **state)
{
	u64 n = SHORTEST * PAGE;
	u8 *p = born_alloc(n, 0, true);

	memset(p, 5, n);
	born_retire();
	assert_null(born_alloc(n, 0, true));
	assert_true(born_has((u64)(uintptr_t)p, n) && is_all(p, n, 5));
	assert_true(born_free(p));
	assert_int_equal(born_length(p), 0);
}

/* A group of tests in a process of its own. */
#define group_passes(name, tests)                                                                  \
	({                                                                                         \
		pid_t group_child = fork();                                                        \
		int group_status = 0;                                                              \
                                                                                                   \
		if (group_child == 0)                                                              \
			_exit(cmocka_run_group_tests_name(name, tests, NULL, NULL));               \
		waitpid(group_child, &group_status, 0) == group_child && group_status == 0;        \
	})

/* Each group ends the arena in another way. */
int main(void)
{
	const struct CMUnitTest retired[] = {
		cmocka_unit_test(born_begin__once),
		cmocka_unit_test(born_retire__ends_the_arena_and_not_what_is_in_it),
	};
	const struct CMUnitTest forked_once[] = {
		cmocka_unit_test(born_begin__once),
		cmocka_unit_test(born_alloc__stored_to_beside_a_fork),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(born_begin__once),
		cmocka_unit_test(born_alloc__from_eight_threads),
		cmocka_unit_test(born_remap__without_the_descriptor),
		cmocka_unit_test(born_remap__over_maps_that_are_not_born),
		cmocka_unit_test(born_alloc__beside_forks), /* the last */
	};

	if (!group_passes("retire", retired) || !group_passes("fork", forked_once))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
