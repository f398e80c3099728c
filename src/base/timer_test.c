/* timer_test.c: timers fire once, in order, not before their time, and can be cancelled at any
 * moment. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static bool test_no_memory;

static void *scarce_realloc(void *p, size_t bytes)
{
	return test_no_memory ? NULL : realloc(p, bytes);
}

/* The set's own source, so that its one allocation can be made to fail. */
#define realloc scarce_realloc
#include "timer.c"
#undef realloc

enum { MANY = 1000 };

struct test_timer {
	struct timer t;
	struct timer_set *set;
	int fired;
	u64 again_ns; /* the callback arms itself for then, if not 0 */
	u32 hold;     /* 1: the callback waits until it is 0; it says with 2 that it waits */
};

static u64 test_fired_order[MANY];
static int test_fired_count;

static void test_fn(struct timer *t)
{
	struct test_timer *x = container_of(t, struct test_timer, t);

	test_fired_order[test_fired_count++ % MANY] = t->deadline_ns;
	__atomic_fetch_add(&x->fired, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&x->hold, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&x->hold, 2, __ATOMIC_RELEASE);
		while (__atomic_load_n(&x->hold, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	if (x->again_ns)
		timer_arm(x->set, t, x->again_ns);
}

static struct test_timer test_timer_make(struct timer_set *s)
{
	test_fired_count = 0;
	test_no_memory = false;
	return (struct test_timer){ .t.fn = test_fn, .set = s };
}

static void timer_run__fires_only_what_is_due(void **state)
{
	struct timer_set s;
	struct test_timer a = test_timer_make(&s), b = test_timer_make(&s);

	timer_set_init(&s);
	assert_int_equal(timer_next_ns(&s), TIMER_NEVER);
	assert_true(timer_arm(&s, &a.t, 200));
	assert_true(timer_arm(&s, &b.t, 100));
	assert_int_equal(timer_next_ns(&s), 100);
	assert_int_equal(timer_run(&s, 99), 0);
	assert_int_equal(timer_run(&s, 100), 1);
	assert_int_equal(a.fired, 0);
	assert_int_equal(b.fired, 1);
	assert_int_equal(timer_next_ns(&s), 200);
	assert_int_equal(timer_run(&s, 1000), 1);
	assert_int_equal(timer_run(&s, 1000), 0);
	assert_int_equal(a.fired, 1);
	assert_int_equal(timer_next_ns(&s), TIMER_NEVER);
	timer_set_destroy(&s);
}

static void timer_arm__moves_an_armed_timer(void **state)
{
	struct timer_set s;
	struct test_timer a = test_timer_make(&s), b = test_timer_make(&s);

	timer_set_init(&s);
	timer_arm(&s, &a.t, 100);
	assert_false(timer_arm(&s, &b.t, 150));
	assert_false(timer_arm(&s, &a.t, 300));
	assert_int_equal(timer_next_ns(&s), 150);
	assert_int_equal(timer_run(&s, 200), 1);
	assert_int_equal(b.fired, 1);
	assert_true(timer_arm(&s, &a.t, 250));
	assert_int_equal(timer_run(&s, 250), 1);
	assert_int_equal(timer_run(&s, 400), 0);
	assert_int_equal(a.fired, 1);
	timer_set_destroy(&s);
}

static void timer_run__keeps_order_among_many(void **state)
{
	static struct test_timer x[MANY];
	struct timer_set s;
	u32 random = 1;
	int cancelled = 0;

	timer_set_init(&s);
	for (int i = 0; i < MANY; i++) {
		x[i] = test_timer_make(&s);
		random = random * 1103515245 + 12345;
		timer_arm(&s, &x[i].t, random >> 12);
	}
	for (int i = 0; i < MANY; i += 3, cancelled++)
		timer_cancel(&s, &x[i].t);
	for (int i = 1; i < MANY; i += 3)
		timer_arm(&s, &x[i].t, x[MANY - i].t.deadline_ns / 2);
	assert_int_equal(timer_run(&s, TIMER_NEVER - 1), MANY - cancelled);
	for (int i = 1; i < test_fired_count; i++)
		assert_true(test_fired_order[i - 1] <= test_fired_order[i]);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(x[i].fired, i % 3 == 0 ? 0 : 1);
	timer_set_destroy(&s);
}

static void timer_run__ends_though_a_callback_arms_in_the_past(void **state)
{
	struct timer_set s;
	struct test_timer a = test_timer_make(&s);

	timer_set_init(&s);
	a.again_ns = 1;
	timer_arm(&s, &a.t, 5);
	assert_int_equal(timer_run(&s, 10), 1);
	assert_int_equal(timer_next_ns(&s), 1);
	assert_int_equal(timer_run(&s, 10), 1);
	assert_int_equal(a.fired, 2);
	timer_cancel(&s, &a.t);
	assert_int_equal(timer_run(&s, 10), 0);
	timer_set_destroy(&s);
}

static void timer_arm__without_memory_fires_at_the_next_run(void **state)
{
	struct timer_set s;
	struct test_timer a = test_timer_make(&s), b = test_timer_make(&s), c = test_timer_make(&s);

	timer_set_init(&s);
	test_no_memory = true;
	assert_true(timer_arm(&s, &a.t, 1000));
	assert_true(timer_arm(&s, &b.t, 1000));
	assert_true(timer_arm(&s, &c.t, 1000));
	timer_cancel(&s, &b.t);
	assert_int_equal(timer_next_ns(&s), 0);
	assert_int_equal(timer_run(&s, 1), 2);
	assert_int_equal(a.fired, 1);
	assert_int_equal(b.fired, 0);
	assert_int_equal(c.fired, 1);
	test_no_memory = false;
	timer_arm(&s, &a.t, 7);
	assert_int_equal(timer_run(&s, 6), 0);
	assert_int_equal(timer_run(&s, 7), 1);
	timer_set_destroy(&s);
}

static void *test_run_thread(void *arg)
{
	while (timer_run(arg, 10) == 0)
		sched_yield();
	return NULL;
}

static void *test_free_thread(void *arg)
{
	struct test_timer *x = arg;

	timer_cancel_wait(x->set, &x->t);
	assert_int_equal(__atomic_load_n(&x->hold, __ATOMIC_ACQUIRE), 0);
	free(x);
	return NULL;
}

static void timer_cancel_wait__waits_for_a_callback_that_has_begun(void **state)
{
	struct timer_set s;
	struct test_timer *x = malloc(sizeof(*x)), other = test_timer_make(&s);
	pthread_t runner, waiter;

	timer_set_init(&s);
	*x = test_timer_make(&s);
	x->hold = 1;
	x->again_ns = 3; /* and it must not stay armed either */
	timer_arm(&s, &x->t, 1);
	pthread_create(&runner, NULL, test_run_thread, &s);
	while (__atomic_load_n(&x->hold, __ATOMIC_ACQUIRE) != 2)
		sched_yield();
	timer_arm(&s, &other.t, 1);
	assert_int_equal(timer_run(&s, 10), 0); /* somebody else is running them */
	timer_cancel_wait(&s, &other.t);        /* waits for nobody: it is not being run */
	pthread_create(&waiter, NULL, test_free_thread, x);
	for (int i = 0; i < 100; i++)
		sched_yield();
	__atomic_store_n(&x->hold, 0, __ATOMIC_RELEASE);
	pthread_join(waiter, NULL);
	pthread_join(runner, NULL);
	assert_int_equal(timer_run(&s, 10), 0);
	assert_int_equal(timer_next_ns(&s), TIMER_NEVER);
	timer_set_destroy(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timer_run__fires_only_what_is_due),
		cmocka_unit_test(timer_arm__moves_an_armed_timer),
		cmocka_unit_test(timer_run__keeps_order_among_many),
		cmocka_unit_test(timer_run__ends_though_a_callback_arms_in_the_past),
		cmocka_unit_test(timer_arm__without_memory_fires_at_the_next_run),
		cmocka_unit_test(timer_cancel_wait__waits_for_a_callback_that_has_begun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
