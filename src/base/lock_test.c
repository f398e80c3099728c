/* lock_test.c: the lock excludes, also with more threads than cores; the condition variable
 * loses no wake-up. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/cond.h"
#include "base/lock.h"

enum { THREADS = 4, ROUNDS = 50000, HANDS = 2000 };

struct test_shared {
	struct lock lock;
	struct cond cond;
	u64 sum GUARDED_BY(lock);
	u32 hand GUARDED_BY(lock); /* whose turn it is */
};

struct test_player {
	struct test_shared *shared;
	u32 self;
	pthread_t thread;
};

static void *test_add_thread(void *arg)
{
	struct test_shared *x = arg;

	for (int i = 0; i < ROUNDS; i++) {
		lock_acquire(&x->lock);
		x->sum++;
		lock_release(&x->lock);
	}
	return NULL;
}

static void lock_acquire__excludes(void **state)
{
	struct test_shared x = { 0 };
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, test_add_thread, &x);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	lock_acquire(&x.lock);
	assert_int_equal(x.sum, THREADS * ROUNDS);
	lock_release(&x.lock);
	assert_int_equal(x.lock.word, 0);
}

/* the point is to try what is held */
static void lock_try__fails_only_while_held(void **state) NO_THREAD_SAFETY
{
	struct lock l;

	lock_init(&l);
	assert_true(lock_try(&l));
	assert_false(lock_try(&l));
	lock_release(&l);
	assert_true(lock_try(&l));
	lock_release(&l);
}

static void *test_play_thread(void *arg)
{
	struct test_player *p = arg;
	struct test_shared *x = p->shared;

	for (int i = 0; i < HANDS; i++) {
		lock_acquire(&x->lock);
		while (x->hand != p->self)
			cond_wait(&x->cond, &x->lock);
		x->hand = (x->hand + 1) % THREADS;
		x->sum++;
		cond_wake(&x->cond);
		lock_release(&x->lock);
	}
	return NULL;
}

static void cond_wait__loses_no_wake(void **state)
{
	struct test_shared x = { 0 };
	struct test_player p[THREADS];

	for (u32 i = 0; i < THREADS; i++) {
		p[i] = (struct test_player){ .shared = &x, .self = i };
		pthread_create(&p[i].thread, NULL, test_play_thread, &p[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(p[i].thread, NULL);
	lock_acquire(&x.lock);
	assert_int_equal(x.sum, THREADS * HANDS);
	assert_int_equal(x.cond.sleepers, 0);
	lock_release(&x.lock);
}

static void futex_sleep__returns_if_the_word_has_changed(void **state)
{
	u32 word = 7;

	futex_sleep(&word, 6); /* would never return if it slept */
	futex_wake(&word, 1);
	assert_int_equal(word, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock_acquire__excludes),
		cmocka_unit_test(lock_try__fails_only_while_held),
		cmocka_unit_test(cond_wait__loses_no_wake),
		cmocka_unit_test(futex_sleep__returns_if_the_word_has_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
