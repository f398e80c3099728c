/* adopt_maps_test.c: memory whose maps are not one plain piece: advised or sealed in part, never
 * touched, gone and replaced while it is registered; limits of what else may be mapped.
 */
#include "mem/adopt_kit.h"

static u8 *memory; /* of each test; filled, not adopted */

static int setup(void **state) NO_THREAD_SAFETY
{
	new_credit();
	memory = map_private(BYTES);
	fill(memory, BYTES);
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

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(fork__copies_with_their_list_adopted),
		T(fork__not_inherited_in_part),
	};

	setenv("ANYVERBS_ADOPT", "1", 1);
	if (!adopt_is_on()) {
		fprintf(stderr, "SKIPPED: no adoption here (another allocator, or a sanitizer)\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
