/* adopt_test.c: adopted memory is like any other to its owner, whatever he does to it, before and
 * after; and is the file's while it is adopted, as a peer sees it through a map of its own.
 * NO_THREAD_SAFETY: of functions that look where nobody else is.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "shared/adopt_kit.h"

static u8 *memory; /* of each test; filled */

/* As a peer maps it. */
static u8 *peer_map(u64 offset, u64 n)
{
	u64 inode;
	u8 *p;
	int fd;

	assert_true(adopt_file(&fd, &inode));
	assert_true(adopt_is_file(fd, inode));
	p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	assert_ptr_not_equal(p, MAP_FAILED);
	/* Else it would be taken for a piece that the owner has moved away. */
	return p;
}

static u8 *adopted(u64 *offset)
{
	wait_until_alone();
	*offset = enter(memory, BYTES);
	assert_int_not_equal(*offset, 0);
	return memory;
}

/* What went out beside other threads stays a map of the file, and is not adopted again. */
static void renew(void) NO_THREAD_SAFETY
{
	munmap(memory, BYTES);
	memory = new_memory();
}

static int setup(void **state) NO_THREAD_SAFETY
{
	memory = new_memory();
	return 0;
}

static int teardown(void **state) NO_THREAD_SAFETY
{
	munmap(memory, BYTES);
	for (u32 i = 0; i < ADOPT_REGIONS; i++)
		assert_int_equal(adopt.regions[i].refs, 0);
	assert_int_equal(adopt.range_count, 0);
	return 0;
}

/* ---- what is adopted ---- */

static void adopt_enter__keeps_the_content_and_shares_it(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset), *theirs = peer_map(offset, BYTES);

	check(p, BYTES);
	check(theirs, BYTES);
	theirs[5000] = 1;
	assert_int_equal(p[5000], 1);
	p[5000] = 2;
	assert_int_equal(theirs[5000], 2);
	munmap(theirs, BYTES);
	p[5000] = pattern(5000);
	leave(p, BYTES);
	check(p, BYTES);
	assert_false(is_shared(p));
}

static void adopt_leave__takes_the_pages_from_peers(void **state)
{
	u64 offset, inode;
	u8 *p = adopted(&offset), byte = 0;
	int fd;

	p[0] = 77;
	leave(p, BYTES);
	assert_int_equal(p[0], 77);
	assert_true(adopt_file(&fd, &inode));
	assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
	assert_int_equal(byte, 0); /* nothing of it is left there */
	byte = 13;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1); /* a late writer */
	assert_int_equal(p[0], 77);
	assert_int_equal(ftruncate(fd, 0), -1); /* and nobody can take the ground away */
}

static void adopt_enter__large_by_chunks(void **state)
{
	u64 n = 2 * (u64)ADOPT_CHUNK + 3 * PAGE, offset;
	u8 *p = map_private(n), *theirs;

	fill(p, n);
	offset = enter(p, n);
	assert_int_not_equal(offset, 0);
	theirs = peer_map(offset, n);
	check(theirs, n);
	munmap(theirs, n);
	check(p, n);
	p[n - 1]++;
	leave(p, n);
	p[n - 1]--;
	check(p, n);
	assert_false(is_shared(p));
	munmap(p, n);
}

static void adopt_enter__heap_of_the_c_library(void **state)
{
	u8 *p = aligned_alloc(PAGE, 2 * PAGE), *next = malloc(100);
	u64 offset;

	fill(p, 2 * PAGE);
	offset = enter(p, 2 * PAGE);
	assert_int_not_equal(offset, 0);
	check(p, 2 * PAGE);
	/* freed while it is registered: the heap uses it */
	free(p);
	free(next);
	for (int i = 0; i < 1000; i++)
		free(malloc((size_t)i * 16));
	leave(p, 2 * PAGE);
	p = calloc(1, 3 * PAGE);
	assert_true(is_zero(p, 3 * PAGE));
	free(p);
}

static void adopt_enter__only_whole_private_pages(void **state)
{
	u8 *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	FILE *f = tmpfile();
	u8 *file, *readonly = map_private(PAGE);

	assert_non_null(f);
	assert_int_equal(ftruncate(fileno(f), PAGE), 0);
	file = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
	mprotect(readonly, PAGE, PROT_READ);
	assert_int_equal(enter(shared, PAGE), 0);
	assert_int_equal(enter(file, PAGE), 0);
	assert_int_equal(enter(readonly, PAGE), 0);
	assert_int_equal(enter(memory + 8, PAGE), 0);
	assert_int_equal(enter(memory + PAGE, 100), 0);
	leave(shared, PAGE);
	leave(file, PAGE);
	leave(readonly, PAGE);
	leave(memory + 8, PAGE);
	leave(memory + PAGE, 100);
	check(memory, BYTES);
	munmap(shared, PAGE);
	munmap(file, PAGE);
	munmap(readonly, PAGE);
	fclose(f);
}

static void adopt_enter__refuses_a_hole(void **state)
{
	munmap(memory + 4 * PAGE, PAGE);
	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	check(memory, 4 * PAGE);
}

static void adopt_enter__refuses_huge_pages_of_the_kernel(void **state)
{
	u64 n = 2 << 20;
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (p == MAP_FAILED)
		skip(); /* none are reserved here */
	memset(p, 1, n);
	assert_int_equal(enter(p, n), 0);
	leave(p, n);
	munmap(p, n);
}

static void adopt_enter__transparent_huge_pages_and_back(void **state)
{
	u64 n = 8 << 20, offset;
	u8 *p = map_private(n);

	madvise(p, n, MADV_HUGEPAGE);
	fill(p, n);
	offset = enter(p, n);
	assert_int_not_equal(offset, 0);
	check(p, n);
	leave(p, n);
	check(p, n);
	munmap(p, n);
}

static void adopt_enter__refuses_locked_memory(void **state)
{
	if (mlock(memory, PAGE) != 0)
		skip();
	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	munlock(memory, PAGE);
	check(memory, BYTES);
}

static void adopt_enter__refuses_beside_a_limit_of_file_size(void **state)
{
	struct rlimit before, small = { 1 << 20, 1 << 20 };

	getrlimit(RLIMIT_FSIZE, &before);
	small.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

static void adopt_enter__refuses_its_own_ground(void **state)
{
	u64 page = (uintptr_t)&adopt & ~(PAGE - 1);

	assert_int_equal(adopt_enter(page, PAGE), 0);
	adopt_leave(page, PAGE, true);
}

static u64 now_ns = 3600 * NS_PER_S;

static u64 frozen_clock(void)
{
	return now_ns;
}

static u32 adopted_of(u32 tries, u64 length)
{
	u32 yes = 0;

	for (u32 i = 0; i < tries; i++) {
		yes += enter(memory, length) != 0;
		leave(memory, length);
	}
	return yes;
}

static void adopt_enter__not_too_often_at_once(void **state)
{
	clock_set_source(frozen_clock);
	assert_int_equal(adopted_of(600, BYTES), 512);
	now_ns += 10 * NS_PER_MS;
	assert_int_equal(adopted_of(10, BYTES), 5);
	clock_set_source(NULL);
	check(memory, BYTES);
}

/* What is small: some, then one of 256, also if no time passes, or one in 3.2 ms. */
static void adopt_enter__small_ones_seldom(void **state)
{
	clock_set_source(frozen_clock);
	assert_int_equal(adopted_of(16, PAGE), 16);
	assert_int_equal(adopted_of(2560, PAGE), 10);
	now_ns += 32 * NS_PER_MS;
	assert_int_equal(adopted_of(20, PAGE), 10);
	clock_set_source(NULL);
	check(memory, BYTES);
}

static void adopt_enter__more_regions_than_there_are(void **state) NO_THREAD_SAFETY
{
	u32 n = ADOPT_REGIONS + 50, yes = 0;
	u8 *p = map_private(n * PAGE);

	fill(p, n * PAGE);
	for (u32 i = 0; i < n; i++) {
		new_credit();
		yes += enter(p + i * PAGE, PAGE) != 0;
	}
	assert_in_range(yes, ADOPT_REGIONS - 1, ADOPT_REGIONS);
	check(p, n * PAGE);
	for (u32 i = 0; i < n; i++)
		leave(p + i * PAGE, PAGE);
	check(p, n * PAGE);
	assert_false(is_shared(p));
	munmap(p, n * PAGE);
}

/* ---- registrations that overlap ---- */

static void adopt_enter__inside_a_region(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset);

	assert_int_equal(enter(p + 100, 50), offset + 100);
	leave(p, BYTES);
	assert_true(is_shared(p)); /* the other one still needs it */
	leave(p + 100, 50);
	assert_false(is_shared(p));
	check(p, BYTES);
}

static void adopt_enter__across_the_edge_of_a_region(void **state)
{
	assert_int_not_equal(enter(memory, 4 * PAGE), 0);
	assert_int_equal(enter(memory + 2 * PAGE, 4 * PAGE), 0);
	leave(memory, 4 * PAGE);
	assert_true(is_shared(memory)); /* the other one may be in use */
	leave(memory + 2 * PAGE, 4 * PAGE);
	assert_false(is_shared(memory));
	check(memory, BYTES);
}

static void adopt_enter__over_what_is_registered_already(void **state)
{
	assert_int_equal(enter(memory + 8, 8), 0);
	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory + 8, 8);
	leave(memory, BYTES);
	assert_int_not_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
}

/* ---- what the application does meanwhile ---- */

static void adopted_memory__unmapped(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset), *other;

	munmap(p, BYTES);
	other = mmap(p, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0);
	memset(other, 0x55, BYTES);
	leave(p, BYTES);
	for (u64 i = 0; i < BYTES; i++)
		assert_int_equal(other[i], 0x55);
}

static void adopted_memory__partly_unmapped(void **state)
{
	unsigned char resident[1];
	u64 offset;
	u8 *p = adopted(&offset);

	munmap(p + 3 * PAGE, PAGE);
	leave(p, BYTES);
	check(p, 3 * PAGE);
	for (u64 i = 4 * PAGE; i < BYTES; i++)
		assert_int_equal(p[i], pattern(i));
	assert_int_equal(mincore(p + 3 * PAGE, PAGE, resident), -1); /* still a hole */
	assert_false(is_shared(p));
}

static void adopted_memory__under_a_fixed_map(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset);

	mmap(p + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
	     -1, 0);
	memset(p + PAGE, 9, 2 * PAGE);
	leave(p, BYTES);
	check(p, PAGE);
	for (u64 i = PAGE; i < 3 * PAGE; i++)
		assert_int_equal(p[i], 9);
	for (u64 i = 3 * PAGE; i < BYTES; i++)
		assert_int_equal(p[i], pattern(i));
}

static void adopted_memory__moved_and_grown(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset), *q;

	q = mremap(p, BYTES, 4 * BYTES, MREMAP_MAYMOVE);
	assert_ptr_not_equal(q, MAP_FAILED);
	check(q, BYTES);
	assert_true(is_zero(q + BYTES, 3 * BYTES));
	q[2 * BYTES] = 5;
	leave(p, BYTES);
	assert_false(is_shared(q));
	check(q, BYTES);
	assert_int_equal(q[2 * BYTES], 5);
	/* what allocators trust */
	madvise(q, 4 * BYTES, MADV_DONTNEED);
	assert_true(is_zero(q, 4 * BYTES));
	munmap(q, 4 * BYTES);
	memory = map_private(BYTES);
}

static void adopted_memory__two_regions_one_grows(void **state)
{
	u8 *a = map_private(PAGE), *b = map_private(PAGE), *c;

	fill(a, PAGE);
	memset(b, 3, PAGE);
	assert_int_not_equal(enter(a, PAGE), 0);
	assert_int_not_equal(enter(b, PAGE), 0);
	c = mremap(a, PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	assert_ptr_not_equal(c, MAP_FAILED);
	assert_true(is_zero(c + PAGE, 63 * PAGE));
	memset(c + PAGE, 8, 63 * PAGE);
	for (u64 i = 0; i < PAGE; i++)
		assert_int_equal(b[i], 3);
	leave(a, PAGE);
	leave(b, PAGE);
	check(c, PAGE);
	munmap(b, PAGE);
	munmap(c, 64 * PAGE);
}

static void adopted_memory__protected(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset), *last = p + BYTES - PAGE;

	mprotect(p, PAGE, PROT_READ);
	mprotect(last, PAGE, PROT_READ);
	leave(p, BYTES);
	check(p, BYTES);
	assert_int_equal(protection(p), PROT_READ);
	assert_int_equal(protection(p + PAGE), PROT_READ | PROT_WRITE);
	assert_int_equal(protection(last), PROT_READ);
	assert_int_equal(mprotect(p, PAGE, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(mprotect(last, PAGE, PROT_READ | PROT_WRITE), 0);
	p[0] = last[0] = 1;
}

static void adopted_memory__zeroed_by_advice_afterwards(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset);

	leave(p, BYTES);
	madvise(p, BYTES, MADV_DONTNEED);
	assert_true(is_zero(p, BYTES));
}

/* ---- fork ---- */

static int child_has_its_own(void) NO_THREAD_SAFETY
{
	for (u64 i = 0; i < BYTES; i++)
		if (memory[i] != pattern(i))
			return 1;
	if (is_shared(memory))
		return 2;
	memset(memory, 0xee, BYTES);
	/* and may adopt for itself */
	new_credit();
	if (adopt_enter((uintptr_t)memory, BYTES) == 0)
		return 3;
	if (memory[7] != 0xee)
		return 4;
	adopt_leave((uintptr_t)memory, BYTES, true);
	return memory[7] == 0xee ? 0 : 5;
}

static void fork__gives_the_child_a_copy(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset);

	assert_int_equal(in_child(child_has_its_own), 0);
	check(p, BYTES);
	assert_false(is_shared(p)); /* from the first fork on */
	assert_int_equal(in_child(child_has_its_own), 0); /* again */
	leave(p, BYTES);
	check(p, BYTES);
	assert_int_equal(in_child(child_has_its_own), 0);
}

static u8 *moved;

static int child_has_what_was_moved(void)
{
	for (u64 i = 0; i < BYTES; i++)
		if (moved[i] != pattern(i))
			return 1;
	return is_shared(moved) ? 2 : 0;
}

static void fork__of_memory_that_was_moved(void **state)
{
	u64 offset;
	u8 *p = adopted(&offset);

	moved = mremap(p, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, map_private(BYTES));
	assert_ptr_not_equal(moved, MAP_FAILED);
	assert_int_equal(in_child(child_has_what_was_moved), 0);
	check(moved, BYTES);
	leave(p, BYTES);
	check(moved, BYTES);
	munmap(moved, BYTES);
	memory = map_private(BYTES);
}

static int child_sees_zeroes(void)
{
	return is_zero(memory, BYTES) ? 0 : 1;
}

static void fork__honours_advice_from_before(void **state)
{
	u64 offset;

	assert_int_equal(madvise(memory, BYTES, MADV_WIPEONFORK), 0);
	adopted(&offset);
	assert_int_equal(in_child(child_sees_zeroes), 0);
	check(memory, BYTES);
	leave(memory, BYTES);
	check(memory, BYTES);
	assert_int_equal(in_child(child_sees_zeroes), 0); /* and still does */
}

/* ---- other threads ---- */

static bool stop;

static void *thread_counts(void *arg)
{
	u64 *word = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		__atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void *thread_waits(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		usleep(1000);
	return NULL;
}

static pthread_t start(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	stop = false;
	assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
	return t;
}

static void finish(pthread_t t)
{
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
}

static void adopt_enter__refuses_beside_another_thread(void **state)
{
	pthread_t t = start(thread_waits, NULL);

	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	finish(t);
	check(memory, BYTES);
}

/* A thread counts in each of some words while their pages become private: not one store is lost. */
static void adopt_leave__beside_a_thread_that_writes(void **state)
{
	u64 offset, sum;
	pthread_t t;

	for (int round = 0; round < 50; round++) {
		u64 *word;

		renew();
		word = (u64 *)(void *)(memory + (u64)(round % 16) * PAGE);
		adopted(&offset);
		*word = 0;
		t = start(thread_counts, word);
		while (__atomic_load_n(word, __ATOMIC_RELAXED) < 1000)
			sched_yield();
		sum = __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
		leave(memory, BYTES);
		assert_true(__atomic_load_n(word, __ATOMIC_RELAXED) > sum);
		assert_false(is_shared(memory));
		finish(t);
	}
	madvise(memory, BYTES, MADV_DONTNEED);
	assert_true(is_zero(memory, BYTES));
}

struct adder {
	u64 *word;
	u64 added;
};

static void *thread_adds(void *arg)
{
	struct adder *a = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(a->word, 1, __ATOMIC_RELAXED);
		a->added++;
	}
	return NULL;
}

static void adopt_leave__loses_no_store(void **state)
{
	u64 offset;

	for (int round = 0; round < 50; round++) {
		struct adder a = { .added = 0 };
		pthread_t t;

		renew();
		a.word = (u64 *)(void *)memory;
		adopted(&offset);
		*a.word = 0;
		t = start(thread_adds, &a);
		while (__atomic_load_n(a.word, __ATOMIC_RELAXED) < 100)
			sched_yield();
		leave(memory, BYTES);
		finish(t);
		assert_int_equal(*a.word, a.added);
	}
}

/* Pages that become private in place are writable meanwhile, and get their protection back. */
static void adopt_leave__beside_a_thread_keeps_protection(void **state)
{
	u8 *last = memory + BYTES - PAGE;
	u64 offset;
	pthread_t t;

	adopted(&offset);
	mprotect(memory, PAGE, PROT_READ);
	mprotect(last, PAGE, PROT_READ);
	t = start(thread_waits, NULL);
	leave(memory, BYTES);
	finish(t);
	check(memory, BYTES);
	assert_false(is_shared(memory));
	assert_int_equal(protection(memory), PROT_READ);
	assert_int_equal(protection(memory + PAGE), PROT_READ | PROT_WRITE);
	assert_int_equal(protection(last), PROT_READ);
	renew();
}

static void adopt_leave__beside_a_thread_gives_the_slot_up(void **state)
{
	u64 offset, again;
	pthread_t t;

	adopted(&offset);
	t = start(thread_waits, NULL);
	leave(memory, BYTES);
	finish(t);
	check(memory, BYTES);
	renew();
	adopted(&again);
	assert_int_not_equal(again, offset);
	leave(memory, BYTES);
}

static void adopt_leave__unclean_gives_the_slot_up(void **state)
{
	u64 offset, again;

	adopted(&offset);
	adopt_leave((uintptr_t)memory, BYTES, false);
	adopted(&again);
	assert_int_not_equal(again, offset);
	leave(memory, BYTES);
	adopted(&offset);
	assert_int_equal(again, offset);
	leave(memory, BYTES);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(adopt_enter__keeps_the_content_and_shares_it),
		T(adopt_leave__takes_the_pages_from_peers),
		T(adopt_enter__large_by_chunks),
		T(adopt_enter__heap_of_the_c_library),
		T(adopt_enter__only_whole_private_pages),
		T(adopt_enter__refuses_a_hole),
		T(adopt_enter__refuses_huge_pages_of_the_kernel),
		T(adopt_enter__transparent_huge_pages_and_back),
		T(adopt_enter__refuses_locked_memory),
		T(adopt_enter__refuses_beside_a_limit_of_file_size),
		T(adopt_enter__refuses_its_own_ground),
		T(adopt_enter__not_too_often_at_once),
		T(adopt_enter__small_ones_seldom),
		T(adopt_enter__more_regions_than_there_are),
		T(adopt_enter__inside_a_region),
		T(adopt_enter__across_the_edge_of_a_region),
		T(adopt_enter__over_what_is_registered_already),
		T(adopted_memory__unmapped),
		T(adopted_memory__partly_unmapped),
		T(adopted_memory__under_a_fixed_map),
		T(adopted_memory__moved_and_grown),
		T(adopted_memory__two_regions_one_grows),
		T(adopted_memory__protected),
		T(adopted_memory__zeroed_by_advice_afterwards),
		T(fork__gives_the_child_a_copy),
		T(fork__of_memory_that_was_moved),
		T(fork__honours_advice_from_before),
		T(adopt_enter__refuses_beside_another_thread),
		T(adopt_leave__beside_a_thread_that_writes),
		T(adopt_leave__loses_no_store),
		T(adopt_leave__beside_a_thread_keeps_protection),
		T(adopt_leave__beside_a_thread_gives_the_slot_up),
		T(adopt_leave__unclean_gives_the_slot_up),
	};

	if (!adopt_kit_runs())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
