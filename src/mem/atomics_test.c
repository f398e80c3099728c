/* atomics_test.c: the original value comes back, and no concurrent change is lost. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mem/mem.h"

enum { THREADS = 3, ROUNDS = 20000 };

static u64 word;

static void mem_compare_swap__swaps_only_what_it_expects(void **state)
{
	word = 5;
	assert_int_equal(mem_compare_swap(&word, 4, 9), 5);
	assert_int_equal(word, 5);
	assert_int_equal(mem_compare_swap(&word, 5, UINT64_MAX), 5);
	assert_true(word == UINT64_MAX);
}

static void mem_fetch_add__wraps(void **state)
{
	word = UINT64_MAX;
	assert_true(mem_fetch_add(&word, 3) == UINT64_MAX);
	assert_int_equal(word, 2);
}

static void *add_many(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		u64 old = __atomic_load_n(&word, __ATOMIC_RELAXED), seen;

		mem_fetch_add(&word, 1);
		while ((seen = mem_compare_swap(&word, old, old + 2)) != old)
			old = seen;
	}
	return NULL;
}

static void mem_fetch_add__loses_nothing(void **state)
{
	pthread_t threads[THREADS];

	word = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(word, 3ull * THREADS * ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mem_compare_swap__swaps_only_what_it_expects),
		cmocka_unit_test(mem_fetch_add__wraps),
		cmocka_unit_test(mem_fetch_add__loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
