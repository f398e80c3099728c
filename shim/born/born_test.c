/* born_test.c: memory that is born shared keeps the manners of private memory. The library is
 * linked in front of libc here, which interposes as preloading does; this process has a second
 * thread throughout, as UCX's have.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/stat.h>

#include "born_kit.h"

enum { HUGE_ALIGNMENT = 1 << 26, THREADS = 4, ROUNDS = 300 };

static void born__what_is_long_and_only_that(void **state)
{
	char *block = malloc(LONG), *small = malloc(100), *map = map_long(LONG);
	char *read_only = mmap(NULL, LONG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_true(is_born(block));
	assert_false(is_born(small));
	assert_false(is_born(read_only));
	assert_int_equal(munmap(read_only, LONG), 0);
	assert_int_equal(munmap(map, LONG), 0);
	free(block);
	free(small);
}

static void heap__blocks_are_zeroed_aligned_and_grow(void **state)
{
	char *p = malloc(LONG), *small = malloc(1000);
	void *aligned;

	(void)state;
	memset(p, 7, LONG);
	assert_true(malloc_usable_size(p) >= LONG);
	p = realloc(p, 3 * LONG);
	assert_true(is_born(p) && is_all(p, LONG, 7));
	p = realloc(p, 100);
	assert_true(!is_born(p) && is_all(p, 100, 7));
	free(p);
	memset(small, 5, 1000);
	small = realloc(small, LONG);
	assert_true(is_born(small) && is_all(small, 1000, 5));
	free(small);
	p = calloc(LONG / 8, 8); /* where the old bytes were */
	assert_true(is_born(p) && is_all(p, LONG, 0));
	free(p);
	assert_int_equal(posix_memalign(&aligned, HUGE_ALIGNMENT, LONG), 0);
	assert_true(is_born(aligned));
	assert_int_equal((uintptr_t)aligned % HUGE_ALIGNMENT, 0);
	free(aligned);
	assert_int_equal(posix_memalign(&aligned, 3, LONG), EINVAL);
}

/* What cannot be had, and what the next allocator is to judge. */
static void heap__refuses_what_it_would_refuse(void **state)
{
	volatile size_t most = SIZE_MAX, odd = 3, none = 0;
	void *p, *kept = malloc(LONG);

	(void)state;
	for (size_t n = most; n > most - 2 * PAGE; n -= PAGE - 1) {
		errno = 0;
		assert_true(pvalloc(n) == NULL && errno == ENOMEM);
		errno = 0;
		assert_true(valloc(n) == NULL && errno == ENOMEM);
		errno = 0;
		assert_true(malloc(n) == NULL && errno == ENOMEM);
		errno = 0;
		assert_true(realloc(kept, n) == NULL && errno == ENOMEM);
		errno = 0;
		assert_true(reallocarray(kept, n, 2) == NULL && errno == ENOMEM);
		errno = 0;
		assert_true(calloc(n, 2) == NULL && errno == ENOMEM);
	}
	assert_int_equal(posix_memalign(&p, none, LONG), EINVAL);
	assert_int_equal(posix_memalign(&p, sizeof(p) / 2, LONG), EINVAL);
	assert_int_equal(posix_memalign(&p, 1ul << 62, LONG), ENOMEM);
	p = aligned_alloc(none, LONG);
	assert_false(p != NULL && is_born(p));
	free(p);
	p = memalign(odd, LONG);
	assert_false(p != NULL && is_born(p));
	free(p);
	free(kept);
}

static void maps__unmapped_pages_fault_and_come_back_zero(void **state)
{
	char *p = map_long(LONG), *q;

	(void)state;
	memset(p, 9, LONG);
	assert_int_equal(munmap(p + PAGE, PAGE), 0);
	assert_true(faults(p + PAGE));
	assert_true(is_all(p, PAGE, 9) && is_all(p + 2 * PAGE, LONG - 2 * PAGE, 9));
	assert_int_equal(munmap(p, LONG), 0);
	assert_true(faults(p));
	q = map_long(LONG);
	assert_ptr_equal(q, p);
	assert_true(is_all(q, LONG, 0));
	assert_int_equal(munmap(q, LONG), 0);
}

static void maps__advice_gives_zero_pages(void **state)
{
	char *p = map_long(LONG);

	(void)state;
	memset(p, 9, LONG);
	assert_int_equal(madvise(p + PAGE, PAGE, MADV_DONTNEED), 0);
	assert_true(is_all(p + PAGE, PAGE, 0));
	assert_true(is_all(p, PAGE, 9) && is_all(p + 2 * PAGE, PAGE, 9));
	assert_int_equal(madvise(p, PAGE, MADV_FREE), 0);
	assert_true(p[0] == 0 || p[0] == 9);
	assert_int_equal(munmap(p, LONG), 0);
}

static void maps__protection_holds_and_ends_with_the_map(void **state)
{
	char *p = map_long(LONG), *q;

	(void)state;
	p[0] = 3;
	assert_int_equal(mprotect(p, PAGE, PROT_NONE), 0);
	assert_true(faults(p));
	assert_int_equal(mprotect(p, PAGE, PROT_READ), 0);
	assert_int_equal(p[0], 3);
	/* also what may not be written is given back */
	assert_int_equal(madvise(p, PAGE, MADV_DONTNEED), 0);
	assert_int_equal(p[0], 0);
	assert_int_equal(munmap(p, LONG), 0);
	q = map_long(LONG);
	q[0] = 1;
	assert_int_equal(munmap(q, LONG), 0);
}

static void remap__grows_shrinks_and_moves(void **state)
{
	char *p = map_long(LONG), *wall, *target;

	(void)state;
	memset(p, 4, LONG);
	p = mremap(p, LONG, 2 * LONG, MREMAP_MAYMOVE);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(is_born(p) && is_all(p, LONG, 4) && is_all(p + LONG, LONG, 0));
	wall = map_long(LONG); /* behind it, most likely: then it must move */
	p = mremap(p, 2 * LONG, 4 * LONG, MREMAP_MAYMOVE);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(is_born(p) && is_all(p, LONG, 4) && is_all(p + LONG, 3 * LONG, 0));
	assert_true(is_all(wall, LONG, 0));
	assert_ptr_equal(mremap(p, 4 * LONG, LONG, 0), p);
	assert_true(faults(p + LONG));
	target = mmap(NULL, LONG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_equal(mremap(p, LONG, LONG, MREMAP_MAYMOVE | MREMAP_FIXED, target), target);
	assert_true(is_all(target, LONG, 4));
	assert_true(faults(p));
	assert_int_equal(munmap(target, LONG), 0);
	assert_int_equal(munmap(wall, LONG), 0);
}

/* Each has its own from the moment of the fork on, with the protections that there were. */
static void fork__child_has_a_copy(void **state)
{
	char *p = map_long(LONG), *block = malloc(LONG);
	int pipes[2];
	char byte = 0;
	pid_t child;

	(void)state;
	memset(p, 1, LONG);
	memset(block, 2, LONG);
	assert_int_equal(mprotect(p + PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		bool ok = read(pipes[0], &byte, 1) == 1 && is_all(p, LONG, 1) &&
			  is_all(block, LONG, 2) && !is_born(p) &&
			  strcmp(map_of(p + PAGE).prot, "r--p") == 0;

		memset(block, 8, LONG);
		p[0] = 8;
		free(block);
		ok &= munmap(p, LONG) == 0 && !map_of(p).shared;
		block = malloc(LONG);
		memset(block, 1, LONG);
		free(block);
		_exit(ok ? 0 : 1);
	}
	memset(block, 3, LONG);
	p[0] = 3;
	assert_int_equal(write(pipes[1], &byte, 1), 1);
	assert_int_equal(child_verdict(child), 0);
	assert_true(is_born(p) && is_all(block, LONG, 3) && p[0] == 3);
	close(pipes[0]);
	close(pipes[1]);
	free(block);
	assert_int_equal(munmap(p, LONG), 0);
}

/* Calls that succeed leave errno as it was, though some of ours have failed meanwhile. */
static void errno_is_kept(char *p, void *block)
{
	void *map;

	errno = 0;
	block = realloc(block, LONG / 2);
	assert_true(block != NULL && errno == 0);
	free(block);
	block = malloc(LONG);
	assert_true(block != NULL && errno == 0);
	block = realloc(block, 2 * LONG);
	assert_true(block != NULL && errno == 0);
	free(block);
	map = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(map != MAP_FAILED && errno == 0);
	assert_ptr_equal(mmap(p, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
	assert_int_equal(errno, 0);
	assert_true(madvise(p + PAGE, PAGE, MADV_DONTNEED) == 0 && errno == 0);
	assert_int_equal(munmap(p + PAGE, PAGE), 0);
	assert_int_equal(errno, 0);
	p = mremap(p + 2 * PAGE, LONG - 2 * PAGE, LONG, MREMAP_MAYMOVE);
	assert_true(p != MAP_FAILED && errno == 0);
	munmap(p, LONG);
	munmap(map, LONG);
}

static void limits__without_a_descriptor_memory_is_ordinary(void **state)
{
	char *p, *other, *block;
	int null;

	(void)state;
	p = map_long(LONG);
	other = map_long(LONG);
	block = malloc(LONG);
	for (int fd = 3; fd < 1024; fd++) { /* as daemons do */
		struct stat st;

		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 1ll << 60)
			close(fd);
	}
	p[0] = 6;
	errno_is_kept(other, block);
	null = open("/dev/null", O_RDONLY);
	assert_false(is_born(malloc(LONG)));
	assert_int_equal(munmap(p, LONG), 0);
	assert_true(faults(p));
	close(null);
}

static void *thread_churn(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		size_t n = 65536 + rand_r(&seed) % (4 * LONG);
		char *p = i % 2 == 0 ? malloc(n) : calloc(1, n);

		if (p == NULL || (i % 2 == 1 && !is_all(p, PAGE, 0)))
			return arg;
		p[0] = p[n - 1] = (char)i;
		p = realloc(p, n / 3 + 65536);
		if (p == NULL || p[0] != (char)i)
			return arg;
		free(p);
	}
	return NULL;
}

static void heap__from_many_threads_beside_forks(void **state)
{
	pthread_t threads[THREADS];
	void *failed;

	(void)state;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, thread_churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();

		if (child == 0) {
			char *p = malloc(LONG);

			memset(p, 1, LONG);
			free(p);
			_exit(0);
		}
		assert_int_equal(child_verdict(child), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(born__what_is_long_and_only_that),
		cmocka_unit_test(heap__blocks_are_zeroed_aligned_and_grow),
		cmocka_unit_test(heap__refuses_what_it_would_refuse),
		cmocka_unit_test(maps__unmapped_pages_fault_and_come_back_zero),
		cmocka_unit_test(maps__advice_gives_zero_pages),
		cmocka_unit_test(maps__protection_holds_and_ends_with_the_map),
		cmocka_unit_test(remap__grows_shrinks_and_moves),
		cmocka_unit_test(fork__child_has_a_copy),
		cmocka_unit_test(limits__without_a_descriptor_memory_is_ordinary),
		/* the last: no memory is born after it */
		cmocka_unit_test(heap__from_many_threads_beside_forks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
