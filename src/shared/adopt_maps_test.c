/* adopt_maps_test.c: memory whose maps are not one plain piece: advised or sealed in part, never
 * touched, gone and replaced while it is registered; limits of what else may be mapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "shared/adopt_kit.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

static u8 *memory; /* of each test; filled, not adopted */

static int setup(void **state) NO_THREAD_SAFETY
{
	memory = new_memory();
	return 0;
}

static int teardown(void **state) NO_THREAD_SAFETY
{
	munmap(memory, BYTES);
	for (u32 i = 0; i < ADOPT_REGIONS; i++)
		assert_false(region_is_used(&adopt.regions[i]));
	return 0;
}

static bool is_mapped(const u8 *p)
{
	return msync((void *)((uintptr_t)p & ~(PAGE - 1)), PAGE, MS_ASYNC) == 0;
}

/* From Linux 6.17 on the kernel moves the first of several maps before it refuses the second. */
static void adopt_enter__keeps_what_can_move_only_in_part(void **state)
{
	u8 *p = map_private(BYTES); /* stays: it cannot be unmapped any more */

	fill(p, BYTES);
	if (syscall(SYS_mseal, p + 2 * PAGE, PAGE, 0) != 0)
		skip();
	assert_int_equal(enter(p, BYTES), 0);
	for (u64 at = 0; at < BYTES; at += PAGE)
		assert_true(is_mapped(p + at));
	check(p, BYTES);
	leave(p, BYTES);
	check(p, BYTES);
}

static void adopt_leave__untouched_memory_is_one_map_again(void **state)
{
	u8 *p = map_private(3 * BYTES);

	assert_int_not_equal(enter(p + BYTES, BYTES), 0);
	leave(p + BYTES, BYTES);
	p = mremap(p, 3 * BYTES, 6 * BYTES, MREMAP_MAYMOVE); /* EFAULT, if it were not */
	assert_ptr_not_equal(p, MAP_FAILED);
	munmap(p, 6 * BYTES);
}

/* Of three parts the middle one goes into the file and back; then they are one map, with the advice
 * that they had. */
static void one_map_again(int protection_below, int advice)
{
	u8 *below = map_private(PAGE + 3 * BYTES), *p = below + PAGE;

	assert_int_equal(protection_below < 0 ? munmap(below, PAGE) :
						mprotect(below, PAGE, protection_below),
			 0);
	assert_int_equal(madvise(p, 3 * BYTES, advice), 0);
	fill(p, 3 * BYTES);
	new_credit();
	assert_int_not_equal(enter(p + BYTES, BYTES), 0);
	assert_true(is_shared(p + BYTES));
	leave(p + BYTES, BYTES);
	check(p, 3 * BYTES);
	p = mremap(p, 3 * BYTES, 6 * BYTES, MREMAP_MAYMOVE); /* EFAULT, if it were not */
	assert_ptr_not_equal(p, MAP_FAILED);
	munmap(p, 6 * BYTES);
	if (protection_below >= 0)
		munmap(below, PAGE);
}

static void adopt_leave__memory_is_one_map_again(void **state)
{
	static const int below[] = { -1, PROT_NONE };
	static const int advice[] = { MADV_NORMAL, MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP,
				      MADV_RANDOM };

	for (u32 i = 0; i < ARRAY_LEN(below); i++)
		for (u32 k = 0; k < ARRAY_LEN(advice); k++)
			one_map_again(below[i], advice[k]);
}

static void adopt_enter__new_memory_where_adopted_was(void **state) NO_THREAD_SAFETY
{
	static struct adopt_table shown;
	const struct adopt_shown *s = NULL;
	u64 offset;

	adopt_show(&shown, NULL);
	offset = enter(memory, BYTES);
	assert_int_not_equal(offset, 0);
	for (u32 i = 0; i < shown.high; i++)
		if (shown.at[i].offset == offset)
			s = &shown.at[i];
	assert_non_null(s);
	assert_ptr_equal(mmap(memory, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 memory);
	memset(memory, 9, BYTES);
	assert_int_equal(enter(memory, PAGE), 0);
	assert_int_equal(s->offset, 0);
	leave(memory, BYTES);
	leave(memory, PAGE);
	adopt_show(NULL, NULL);
	assert_int_equal(memory[0], 9);
	/* and it is as good as any other */
	assert_int_not_equal(enter(memory, BYTES), 0);
	assert_int_not_equal(enter(memory + PAGE, PAGE), 0);
	leave(memory, BYTES);
	leave(memory + PAGE, PAGE);
}

static void adopt_enter__refuses_beside_a_limit_of_data(void **state)
{
	struct rlimit before, now;

	assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
	now = before;
	now.rlim_cur = 1ull << 40;
	assert_int_equal(setrlimit(RLIMIT_DATA, &now), 0);
	assert_int_equal(enter(memory, BYTES), 0);
	leave(memory, BYTES);
	assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

static int child_locks_what_comes(void)
{
	if (mlockall(MCL_FUTURE) != 0)
		return errno == EPERM || errno == ENOMEM ? 0 : 1;
	if (enter(memory, BYTES) != 0)
		return 2;
	leave(memory, BYTES);
	munlockall();
	check(memory, BYTES);
	return madvise(memory, BYTES, MADV_DONTNEED) == 0 && is_zero(memory, BYTES) ? 0 : 3;
}

static void adopt_enter__refuses_where_new_maps_are_locked(void **state)
{
	assert_int_equal(in_child(child_locks_what_comes), 0);
}

static int child_writes(void)
{
	memory[0] = 99;
	return memory[1] == pattern(1) ? 0 : 1;
}

/* The list of what a child is to get may itself be in memory that is adopted. */
static void fork__copies_with_their_list_adopted(void **state) NO_THREAD_SAFETY
{
	u8 *list;

	assert_int_not_equal(enter(memory, BYTES), 0);
	assert_int_equal(in_child(child_writes), 0); /* now there is a list */
	check(memory, BYTES);
	leave(memory, BYTES);
	new_credit();
	assert_int_not_equal(enter(memory, BYTES), 0);
	list = (u8 *)((uintptr_t)adopt.pieces.at & ~(PAGE - 1));
	assert_true(list < memory);
	assert_int_not_equal(enter(list, 2 * PAGE), 0);
	assert_int_equal(in_child(child_writes), 0);
	check(memory, BYTES);
	leave(list, 2 * PAGE);
	leave(memory, BYTES);
}

static int child_misses_a_page(void)
{
	memory[0] = memory[3 * PAGE] = 99;
	return !is_mapped(memory + 2 * PAGE) && memory[1] == pattern(1) &&
			       memory[3 * PAGE + 1] == pattern(3 * PAGE + 1) ?
		       0 :
		       1;
}

/* Of a piece that was several maps the child gets those that it may have. */
static void fork__not_inherited_in_part(void **state)
{
	assert_int_equal(madvise(memory + 2 * PAGE, PAGE, MADV_DONTFORK), 0);
	enter(memory, BYTES); /* before Linux 6.17 it is refused */
	assert_int_equal(in_child(child_misses_a_page), 0);
	check(memory, BYTES);
	leave(memory, BYTES);
	assert_int_equal(in_child(child_misses_a_page), 0);
	check(memory, BYTES);
}

/* The block that a thread's register points to is read by every function that guards its stack. */
static void adopt_enter__refuses_the_threads_block(void **state)
{
	static __thread u8 own[32 << 10]; /* so that errno is far from it */
	u8 *block = (u8 *)((u64)pthread_self() & ~(u64)(PAGE - 1));

	own[0] = 1;
	assert_true(&own[sizeof(own)] <= (u8 *)pthread_self());
	assert_int_equal(enter(block, PAGE), 0);
	leave(block, PAGE);
	assert_int_equal(own[0], 1);
}

static u64 again(u8 *p, u64 n, bool write)
{
	return adopt_again((uintptr_t)p, n, write);
}

static void adopt_again__knows_what_is_adopted(void **state)
{
	u64 offset = enter(memory, BYTES);

	assert_int_not_equal(offset, 0);
	assert_int_equal(again(memory, BYTES, true), offset);
	assert_int_equal(again(memory + PAGE + 5, 100, false), offset + PAGE + 5);
	leave(memory + PAGE + 5, 100);
	leave(memory, BYTES);
	assert_true(is_shared(memory)); /* one registration is left */
	assert_int_equal(again(memory, BYTES + 1, false), 0);
	assert_int_equal(again(memory + 1, UINT64_MAX, false), 0);
	leave(memory, BYTES);
	assert_false(is_shared(memory));
	assert_int_equal(again(memory, BYTES, false), 0);
	check(memory, BYTES);
}

static void adopt_again__asks_what_is_mapped(void **state)
{
	u64 offset = enter(memory, BYTES);

	assert_int_equal(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(again(memory, BYTES, true), 0);
	assert_int_equal(again(memory, BYTES, false), offset);
	leave(memory, BYTES);
	assert_int_equal(munmap(memory + PAGE, PAGE), 0);
	assert_int_equal(again(memory, BYTES, false), 0);
	assert_ptr_equal(mmap(memory + PAGE, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 memory + PAGE);
	assert_int_equal(again(memory, BYTES, false), 0);
	assert_int_equal(again(memory, PAGE, true), offset);
	leave(memory, PAGE);
	leave(memory, BYTES);
}

/* An application may close what it has not opened, and open something else. */
static void adopt_again__without_the_list_of_maps(void **state) NO_THREAD_SAFETY
{
	u64 offset = enter(memory, BYTES);
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(dup2(other, adopt.maps_fd) >= 0);
	assert_int_equal(again(memory, BYTES, true), offset);
	leave(memory, BYTES);
	assert_int_equal(munmap(memory, BYTES), 0);
	assert_int_equal(again(memory, BYTES, true), 0);
	leave(memory, BYTES);
	close(other);
	memory = new_memory();
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(adopt_enter__keeps_what_can_move_only_in_part),
		T(adopt_leave__untouched_memory_is_one_map_again),
		T(adopt_leave__memory_is_one_map_again),
		T(adopt_enter__new_memory_where_adopted_was),
		T(adopt_enter__refuses_beside_a_limit_of_data),
		T(adopt_enter__refuses_where_new_maps_are_locked),
		T(fork__copies_with_their_list_adopted),
		T(fork__not_inherited_in_part),
		T(adopt_enter__refuses_the_threads_block),
		T(adopt_again__knows_what_is_adopted),
		T(adopt_again__asks_what_is_mapped),
		T(adopt_again__without_the_list_of_maps),
	};

	if (!adopt_kit_runs())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
