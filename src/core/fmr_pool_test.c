/* fmr_pool_test.c: caching, wear, the dirty watermark, flushing. The fake device allows two
 * mappings per FMR. */
#include <pthread.h>
#include <rdma/ib_fmr_pool.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process_test.h"
#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static struct fake_device *fake;
static struct ib_pd *pd;
static int flushes;

static int setup(void **state)
{
	fake = fake_create("fake%d");
	if (ib_register_device(&fake->ib))
		return -1;
	pd = ib_alloc_pd(&fake->ib);
	flushes = 0;
	return IS_ERR(pd);
}

static int teardown(void **state)
{
	assert_int_equal(ib_dealloc_pd(pd), 0);
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static void on_flush(struct ib_fmr_pool *pool, void *arg)
{
	fake_bump(arg);
}

static struct ib_fmr_pool *pool_make(int size, int watermark, bool cache)
{
	struct ib_fmr_pool_param param = { .max_pages_per_fmr = 4,
					   .page_shift = 12,
					   .access = IB_ACCESS_LOCAL_WRITE,
					   .pool_size = size,
					   .dirty_watermark = watermark,
					   .flush_function = on_flush,
					   .flush_arg = &flushes,
					   .cache = cache };
	struct ib_fmr_pool *pool = ib_create_fmr_pool(pd, &param);

	assert_false(IS_ERR(pool));
	return pool;
}

static struct ib_pool_fmr *map(struct ib_fmr_pool *pool, u64 page)
{
	u64 pages[2] = { page << 12, (page + 1) << 12 };

	return ib_fmr_pool_map_phys(pool, pages, 2, page << 12);
}

static int maps_of(struct ib_pool_fmr *fmr)
{
	return container_of(fmr->fmr, struct fake_fmr, ib)->maps;
}

static void ib_create_fmr_pool__checks(void **state)
{
	struct ib_fmr_pool_param param = { .max_pages_per_fmr = 4,
					   .page_shift = 12,
					   .pool_size = 0 };

	assert_int_equal(PTR_ERR(ib_create_fmr_pool(pd, &param)), -EINVAL);
	param.pool_size = 2;
	param.max_pages_per_fmr = 0;
	assert_int_equal(PTR_ERR(ib_create_fmr_pool(pd, &param)), -EINVAL);
	param.max_pages_per_fmr = 1;
	fake->fail = -ENOMEM;
	assert_int_equal(PTR_ERR(ib_create_fmr_pool(pd, &param)), -ENOMEM);
	fake->fail = 0;
	fake->ib.unmap_fmr = NULL;
	assert_int_equal(PTR_ERR(ib_create_fmr_pool(pd, &param)), -ENOSYS);
}

static void ib_fmr_pool_map_phys__limits(void **state)
{
	struct ib_fmr_pool *pool = pool_make(2, 2, false);
	u64 pages[5] = { 0 };
	struct ib_pool_fmr *a, *b;

	assert_int_equal(PTR_ERR(ib_fmr_pool_map_phys(pool, pages, 5, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_fmr_pool_map_phys(pool, pages, 0, 0)), -EINVAL);
	fake->fail = -EIO;
	assert_int_equal(PTR_ERR(map(pool, 1)), -EIO);
	fake->fail = 0;
	a = map(pool, 1);
	b = map(pool, 1); /* no cache: another one */
	assert_false(IS_ERR(a));
	assert_false(IS_ERR(b));
	assert_ptr_not_equal(a, b);
	assert_int_equal(PTR_ERR(map(pool, 3)), -EAGAIN);
	assert_int_equal(ib_fmr_pool_unmap(a), 0);
	assert_int_equal(ib_fmr_pool_unmap(a), -EINVAL);
	assert_ptr_equal(map(pool, 3), a);
	ib_fmr_pool_unmap(a);
	ib_fmr_pool_unmap(b);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

static void ib_fmr_pool_map_phys__cache_shares(void **state)
{
	struct ib_fmr_pool *pool = pool_make(4, 4, true);
	struct ib_pool_fmr *a = map(pool, 1), *again = map(pool, 1), *other = map(pool, 2);
	u64 pages[2] = { 1 << 12, 2 << 12 };

	assert_ptr_equal(a, again);
	assert_ptr_not_equal(a, other);
	struct ib_pool_fmr *elsewhere = ib_fmr_pool_map_phys(pool, pages, 2, 0); /* another iova */

	assert_ptr_not_equal(elsewhere, a);
	assert_int_equal(ib_fmr_pool_unmap(again), 0);
	assert_int_equal(ib_fmr_pool_unmap(a), 0);
	assert_ptr_equal(map(pool, 1), a); /* still mapped although it was given back */
	assert_int_equal(maps_of(a), 1);
	ib_fmr_pool_unmap(a);
	ib_fmr_pool_unmap(other);
	ib_fmr_pool_unmap(elsewhere);
	assert_int_equal(fake->fmr_unmaps, 0);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* The longest unused mapping makes room for a new one. */
static void ib_fmr_pool_map_phys__replaces_the_oldest(void **state)
{
	struct ib_fmr_pool *pool = pool_make(2, 4, true);
	struct ib_pool_fmr *a = map(pool, 10), *b = map(pool, 20);

	ib_fmr_pool_unmap(a);
	ib_fmr_pool_unmap(b);
	assert_ptr_equal(map(pool, 30), a);
	assert_ptr_equal(map(pool, 20), b);
	assert_int_equal(maps_of(b), 1);
	ib_fmr_pool_unmap(a);
	ib_fmr_pool_unmap(b);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* Two mappings wear an FMR out; two worn ones reach the watermark. */
static void ib_fmr_pool_unmap__cleans_at_the_watermark(void **state)
{
	struct ib_fmr_pool *pool = pool_make(2, 2, false);

	for (u64 i = 0; i < 3; i++)
		ib_fmr_pool_unmap(map(pool, 1 + i));
	nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	assert_int_equal(fake_count(&flushes), 0);
	ib_fmr_pool_unmap(map(pool, 9));
	assert_true(fake_await(&flushes, 1));
	assert_int_equal(fake_count(&fake->fmr_unmaps), 1); /* both with one call */
	struct ib_pool_fmr *fmr = map(pool, 1);

	assert_false(IS_ERR(fmr));
	assert_int_equal(maps_of(fmr), 1);
	ib_fmr_pool_unmap(fmr);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* A worn mapping that the cache gives out again is no longer dirty, and so is not cleaned away
 * under its user. */
static void ib_fmr_pool_map_phys__shares_a_worn_one(void **state)
{
	struct ib_fmr_pool *pool = pool_make(1, 2, true);
	struct ib_pool_fmr *fmr;

	ib_fmr_pool_unmap(map(pool, 1));
	ib_fmr_pool_unmap(map(pool, 2));
	fmr = map(pool, 2);
	assert_false(IS_ERR(fmr));
	assert_int_equal(ib_flush_fmr_pool(pool), 0);
	assert_int_equal(maps_of(fmr), 2);
	ib_fmr_pool_unmap(fmr);
	assert_int_equal(ib_flush_fmr_pool(pool), 0);
	assert_int_equal(maps_of(fmr), 0);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* Sharing a worn one and giving it back makes one dirty, not two. */
static void ib_fmr_pool_unmap__counts_a_worn_one_once(void **state)
{
	struct ib_fmr_pool *pool = pool_make(1, 2, true);

	ib_fmr_pool_unmap(map(pool, 1));
	for (int i = 0; i < 5; i++)
		ib_fmr_pool_unmap(map(pool, 2));
	nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	assert_int_equal(fake_count(&flushes), 0);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* Cleaning at the watermark leaves the cache of those that are not worn. */
static void ib_fmr_pool_unmap__cleans_worn_ones_only(void **state)
{
	struct ib_fmr_pool *pool = pool_make(2, 1, true);
	struct ib_pool_fmr *a = map(pool, 1), *b = map(pool, 2);

	ib_fmr_pool_unmap(a);
	assert_ptr_equal(map(pool, 3), a);
	ib_fmr_pool_unmap(b);
	ib_fmr_pool_unmap(a);
	assert_true(fake_await(&flushes, 1));
	assert_int_equal(maps_of(a), 0);
	assert_int_equal(maps_of(b), 1);
	assert_ptr_equal(map(pool, 2), b);
	ib_fmr_pool_unmap(b);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

/* Out of clean ones, with a watermark that is never reached: the pool cleans all the same. */
static void ib_fmr_pool_map_phys__starvation_cleans(void **state)
{
	struct ib_fmr_pool *pool = pool_make(1, 100, false);
	struct ib_pool_fmr *fmr;

	ib_fmr_pool_unmap(map(pool, 1));
	ib_fmr_pool_unmap(map(pool, 2));
	assert_int_equal(PTR_ERR(map(pool, 3)), -EAGAIN);
	assert_true(fake_await(&flushes, 1));
	fmr = map(pool, 3);
	assert_false(IS_ERR(fmr));
	ib_fmr_pool_unmap(fmr);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

static void ib_flush_fmr_pool__unmaps_whatever_was_given_back(void **state)
{
	struct ib_fmr_pool *pool = pool_make(4, 4, true);
	struct ib_pool_fmr *back = map(pool, 1), *kept = map(pool, 2), *too = map(pool, 3);

	ib_fmr_pool_unmap(back);
	ib_fmr_pool_unmap(too);
	assert_int_equal(ib_flush_fmr_pool(pool), 0);
	assert_int_equal(maps_of(back), 0);
	assert_int_equal(maps_of(too), 0);
	assert_int_equal(maps_of(kept), 1);
	assert_int_equal(fake_count(&flushes), 1);
	assert_ptr_equal(map(pool, 2), kept);
	struct ib_pool_fmr *anew = map(pool, 1); /* the cache has forgotten it */

	assert_int_equal(maps_of(anew), 1);
	ib_fmr_pool_unmap(anew);
	ib_fmr_pool_unmap(kept);
	ib_fmr_pool_unmap(kept);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
	assert_int_equal(fake_count(&fake->objects), 1); /* the PD */
}

static void ib_flush_fmr_pool__in_a_child(void **state)
{
	struct ib_fmr_pool *pool = pool_make(1, 1, false);

	ib_fmr_pool_unmap(map(pool, 1));
	pid_t child = fork();

	if (child == 0) {
		alarm(10);
		ib_flush_fmr_pool(pool);
		_exit(fake->fmr_unmaps == 1 && ib_destroy_fmr_pool(pool) == 0 ? 0 : 1);
	}
	assert_int_equal(child_verdict(child), 0);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

static void *churn(void *arg)
{
	for (u64 i = 0; i < 3000; i++) {
		struct ib_pool_fmr *fmr = map(arg, i % 7);

		if (!IS_ERR(fmr))
			ib_fmr_pool_unmap(fmr);
		else if (PTR_ERR(fmr) != -EAGAIN)
			return arg;
		if (i % 500 == 0)
			ib_flush_fmr_pool(arg);
	}
	return NULL;
}

static void ib_fmr_pool__many_threads(void **state)
{
	struct ib_fmr_pool *pool = pool_make(4, 2, true);
	pthread_t threads[3];
	void *failed;

	for (u32 i = 0; i < ARRAY_LEN(threads); i++)
		pthread_create(&threads[i], NULL, churn, pool);
	for (u32 i = 0; i < ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	ib_flush_fmr_pool(pool);
	assert_int_equal(ib_destroy_fmr_pool(pool), 0);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(ib_create_fmr_pool__checks),
		WITH(ib_fmr_pool_map_phys__limits),
		WITH(ib_fmr_pool_map_phys__cache_shares),
		WITH(ib_fmr_pool_map_phys__replaces_the_oldest),
		WITH(ib_fmr_pool_unmap__cleans_at_the_watermark),
		WITH(ib_fmr_pool_map_phys__shares_a_worn_one),
		WITH(ib_fmr_pool_unmap__counts_a_worn_one_once),
		WITH(ib_fmr_pool_unmap__cleans_worn_ones_only),
		WITH(ib_fmr_pool_map_phys__starvation_cleans),
		WITH(ib_flush_fmr_pool__unmaps_whatever_was_given_back),
		WITH(ib_flush_fmr_pool__in_a_child),
		WITH(ib_fmr_pool__many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
