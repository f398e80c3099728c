/* race_test.c: lookups against registration on other threads: no torn answer, no freed page list,
 * no lost index. ThreadSanitizer runs it too. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mem/mem_priv.h"

enum { PD = 3, READERS = 2, WRITERS = 2, ROUNDS = 20000, KEYS = 8, SPAN = 1000 };

static struct mem_table table;
static u32 keys[KEYS]; /* what the writers offer the readers, maybe stale */
static u32 stop, wrong, found;

/* Content is a function of the length, so that a lookup that mixes two contents shows: the region
 * of length n lies at n << 32 for peers, and at n << 20 here. Nothing is ever dereferenced. */
static struct mem_region content(u32 n)
{
	return (struct mem_region){ .iova = (u64)n << 32,
				    .addr = (u64)n << 20,
				    .length = n,
				    .pd = PD,
				    .flags = MEM_CONTIGUOUS };
}

static struct mem_region content_pages(u32 n)
{
	static __thread u64 pages[2];

	pages[0] = (u64)n << 20;
	pages[1] = ((u64)n << 20) + 4096;
	return (struct mem_region){ .iova = (u64)n << 32,
				    .length = n,
				    .pd = PD,
				    .flags = MEM_PAGES,
				    .pages = pages,
				    .page_count = 2,
				    .page_shift = 12 };
}

/* On a busy machine the readers may not have run at all yet: what is offered last stays until they
 * have seen something. */
static void wait_for_reader(void)
{
	while (!__atomic_load_n(&found, __ATOMIC_RELAXED))
		sched_yield();
}

static void *read_keys(void *arg)
{
	u32 bad = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		u32 hits = 0;

		for (u32 n = 1; n <= SPAN; n++) {
			u32 key = __atomic_load_n(&keys[n % KEYS], __ATOMIC_RELAXED), piece;
			void *p = mem_local(&table, PD, key, ((u64)n << 32) + n - 1, 1, 0, &piece);

			hits += p != NULL;
			bad += p && (uintptr_t)p != ((u64)n << 20) + n - 1;
		}
		__atomic_fetch_add(&found, hits, __ATOMIC_RELAXED);
	}
	__atomic_fetch_add(&wrong, bad, __ATOMIC_RELAXED);
	return NULL;
}

static void *change_keys(void *arg)
{
	u32 seed = (u32)(uintptr_t)arg, bad = 0;

	for (int i = 0; i < ROUNDS; i++) {
		u32 n = 1 + (seed = seed * 1103515245 + 12345) / 65536 % SPAN, key;
		struct mem_region r = i & 1 ? content(n) : content_pages(n);

		bad += mem_register(&table, &r, &key) != 0;
		__atomic_store_n(&keys[n % KEYS], key, __ATOMIC_RELAXED);
		if (i % 3 == 0) {
			n = 1 + n % SPAN;
			r = i & 1 ? content_pages(n) : content(n);
			bad += mem_replace(&table, &key, &r) != 0;
			__atomic_store_n(&keys[n % KEYS], key, __ATOMIC_RELAXED);
		}
		if (i == ROUNDS - 1)
			wait_for_reader();
		bad += mem_deregister(&table, key) != 0;
	}
	__atomic_fetch_add(&wrong, bad, __ATOMIC_RELAXED);
	return NULL;
}

static void run_threads(void *(*reader)(void *), void *(*writer)(void *))
{
	pthread_t readers[READERS], writers[WRITERS];

	stop = wrong = found = 0;
	for (uintptr_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&readers[i], NULL, reader, (void *)i), 0);
	for (uintptr_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&writers[i], NULL, writer, (void *)(i + 1)), 0);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
	assert_int_equal(wrong, 0);
}

/* The other threads have ended. */
static void mem_local__never_mixes_two_contents(void **state) NO_THREAD_SAFETY
{
	run_threads(read_keys, change_keys);
	assert_int_not_equal(found, 0);
	assert_int_equal(table.live, 0);
}

/* ---- one key that changes all the time ---- */

static u32 changing;

/* Each replacement turns the lowest bit of the key over: odd keys lie at 1 << 20, others at 0. */
static void *change_one(void *arg)
{
	struct mem_region r = content(SPAN);
	u32 key = __atomic_load_n(&changing, __ATOMIC_RELAXED), bad = 0;

	if (arg != (void *)1) /* one writer only */
		return NULL;
	for (int i = 0; i < 20 * ROUNDS; i++) {
		r.addr = (u64)(~key & 1) << 20;
		bad += mem_replace(&table, &key, &r) != 0;
		__atomic_store_n(&changing, key, __ATOMIC_RELAXED);
	}
	wait_for_reader();
	__atomic_fetch_add(&wrong, bad, __ATOMIC_RELAXED);
	return NULL;
}

static void *read_one(void *arg)
{
	u32 bad = 0, piece;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		u32 key = __atomic_load_n(&changing, __ATOMIC_RELAXED);
		void *p = mem_local(&table, PD, key, ((u64)SPAN << 32) + 1, 1, 0, &piece);

		if (p && !__atomic_load_n(&found, __ATOMIC_RELAXED))
			__atomic_store_n(&found, 1, __ATOMIC_RELAXED);
		bad += p && (uintptr_t)p != ((u64)(key & 1) << 20) + 1;
	}
	__atomic_fetch_add(&wrong, bad, __ATOMIC_RELAXED);
	return NULL;
}

static void mem_local__sees_the_key_change_under_it(void **state)
{
	assert_int_equal(mem_reserve(&table, PD, 0, &changing), 0);
	run_threads(read_one, change_one);
	assert_int_not_equal(found, 0);
}

/* ---- one window, fought over ---- */

static u32 parent, window;

static void *bind_window(void *arg)
{
	struct mem_region r = content(SPAN);

	r.flags = MEM_WINDOW;
	r.addr = r.iova;
	r.parent = parent;
	r.access = IBV_ACCESS_REMOTE_READ;
	for (int i = 0; i < ROUNDS; i++) {
		u32 key = window;
		int err = mem_replace(&table, &key, &r);

		__atomic_fetch_add(&wrong, err != 0, __ATOMIC_RELAXED);
		err = i & 1 ? mem_unbind(&table, key, PD) : 0;
		/* The other thread may have bound it anew meanwhile. */
		__atomic_fetch_add(&wrong, err != 0 && err != -EINVAL, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *look_through_window(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		u64 piece;
		void *p = mem_remote(&table, PD, 0, window, (u64)SPAN << 32, 1,
				     IBV_ACCESS_REMOTE_READ, &piece);

		__atomic_fetch_add(&wrong, p && (uintptr_t)p != (u64)SPAN << 20, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void mem_replace__counts_windows_right(void **state)
{
	struct mem_region r = content(SPAN);

	r.access = IBV_ACCESS_MW_BIND;
	assert_int_equal(mem_register(&table, &r, &parent), 0);
	assert_int_equal(mem_reserve(&table, PD, 0, &window), 0);
	run_threads(look_through_window, bind_window);
	assert_int_equal(mem_deregister(&table, window), 0);
	assert_int_equal(mem_deregister(&table, parent), 0);
}

static int setup(void **state)
{
	return mem_table_init(&table, NULL);
}

static int teardown(void **state)
{
	mem_table_fini(&table);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(mem_local__never_mixes_two_contents, setup,
						teardown),
		cmocka_unit_test_setup_teardown(mem_local__sees_the_key_change_under_it, setup,
						teardown),
		cmocka_unit_test_setup_teardown(mem_replace__counts_windows_right, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
