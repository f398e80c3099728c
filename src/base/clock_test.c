/* clock_test.c: time goes forward, at the right pace, and can be replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

static u64 test_virtual_time(void)
{
	return 42;
}

static void clock_now_ns__goes_forward_at_the_pace_of_a_sleep(void **state)
{
	u64 begin = clock_now_ns(), end;

	nanosleep(&(struct timespec){ .tv_nsec = 2 * NS_PER_MS }, NULL);
	end = clock_now_ns();
	assert_true(end - begin >= 2 * NS_PER_MS);
	assert_true(end - begin < 10 * NS_PER_S);
}

static void clock_set_source__replaces_and_restores(void **state)
{
	clock_set_source(test_virtual_time);
	assert_int_equal(clock_now_ns(), 42);
	clock_set_source(NULL);
	assert_true(clock_now_ns() > 42);
}

static u64 test_slept_ns;

static void test_virtual_sleep(u64 ns)
{
	test_slept_ns += ns;
}

static void clock_set_sleep__replaces_and_restores(void **state)
{
	u64 begin;

	clock_set_sleep(test_virtual_sleep);
	clock_sleep_ns(1000 * NS_PER_S);
	assert_int_equal(test_slept_ns, 1000 * NS_PER_S);
	clock_set_sleep(NULL);
	begin = clock_now_ns();
	clock_sleep_ns(2 * NS_PER_MS);
	assert_true(clock_now_ns() - begin >= 2 * NS_PER_MS);
	assert_int_equal(test_slept_ns, 1000 * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clock_now_ns__goes_forward_at_the_pace_of_a_sleep),
		cmocka_unit_test(clock_set_source__replaces_and_restores),
		cmocka_unit_test(clock_set_sleep__replaces_and_restores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
