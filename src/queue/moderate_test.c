/* moderate_test.c: events that wait for several completions or for a time, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "queue/cq.h"

enum { ENTRIES = 8, PERIOD_US = 50 };

static struct timer_set timers;
static struct channel *channel;
static struct cq cq;
static u64 now_ns;
static int kicks;

static u64 clock_of_the_test(void)
{
	return now_ns;
}

static void count_kick(void *arg)
{
	kicks++;
}

static const struct cq_clock test_clock = { .timers = &timers, .kick = count_kick };

static int setup(void **state)
{
	int err;

	now_ns = 1000;
	kicks = 0;
	clock_set_source(clock_of_the_test);
	timer_set_init(&timers);
	channel = channel_create(&err);
	assert_non_null(channel);
	assert_int_equal(cq_init(&cq, ENTRIES), 0);
	assert_int_equal(cq_sink_to_channel(&cq, channel, &cq), 0);
	return 0;
}

static int teardown(void **state)
{
	cq_fini(&cq);
	assert_int_equal(channel_destroy(channel), 0);
	timer_set_destroy(&timers);
	clock_set_source(NULL);
	return 0;
}

static void moderate(u32 count, u32 period_us)
{
	assert_int_equal(cq_moderate(&cq, &test_clock, count, period_us), 0);
}

static void push(u32 n, struct cq_source *source, bool solicited)
{
	struct cqe e = { .source = source };

	while (n-- > 0)
		assert_true(cq_push(&cq, &e, solicited));
}

static void arm(u32 kind)
{
	assert_true(cq_arm(&cq, kind) >= 0);
}

static int take(void)
{
	struct ibv_wc wc[ENTRIES];

	return cq_pop(&cq, ENTRIES, wc);
}

static int events(void)
{
	void *cookie;
	int n = 0;

	while (channel_next(channel, &cookie) == 0) {
		channel_ack(&cq.source, 1);
		n++;
	}
	return n;
}

static void pass(u64 us)
{
	now_ns += us * NS_PER_US;
	timer_run(&timers, now_ns);
}

static void moderate__one_event_for_so_many_completions(void **state)
{
	moderate(3, 0);
	arm(CQ_NEXT_COMP);
	push(2, NULL, false);
	assert_int_equal(events(), 0);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
	push(3, NULL, false);
	assert_int_equal(events(), 0); /* the arm is used up */
	assert_int_equal(take(), 6);
	assert_int_equal(kicks, 0);
}

/* Completions count although they have been polled. */
static void moderate__counts_what_was_added_since_the_arm(void **state)
{
	moderate(3, 0);
	push(2, NULL, false);
	arm(CQ_NEXT_COMP);
	for (int i = 0; i < 2; i++) {
		push(1, NULL, false);
		take();
	}
	assert_int_equal(events(), 0);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
}

static void moderate__waits_no_longer_than_the_period(void **state)
{
	moderate(3, PERIOD_US);
	arm(CQ_NEXT_COMP);
	pass(10 * PERIOD_US); /* it begins with the first completion */
	push(1, NULL, false);
	assert_int_equal(kicks, 1);
	pass(PERIOD_US - 1);
	push(1, NULL, false);
	assert_int_equal(events(), 0);
	pass(1);
	assert_int_equal(events(), 1);
	pass(10 * PERIOD_US);
	push(3, NULL, false);
	pass(10 * PERIOD_US);
	assert_int_equal(events(), 0);
}

static void moderate__a_period_alone(void **state)
{
	moderate(0, PERIOD_US);
	for (int i = 0; i < 3; i++) {
		arm(CQ_NEXT_COMP);
		push(3, NULL, false);
		pass(PERIOD_US - 1);
		assert_int_equal(events(), 0);
		pass(1);
		assert_int_equal(events(), 1);
		take();
	}
}

static void moderate__the_count_ends_the_period(void **state)
{
	moderate(2, PERIOD_US);
	arm(CQ_NEXT_COMP);
	push(2, NULL, false);
	assert_int_equal(events(), 1);
	assert_int_equal(timer_next_ns(&timers), TIMER_NEVER);
	arm(CQ_NEXT_COMP);
	pass(2 * PERIOD_US);
	assert_int_equal(events(), 0);
}

/* A solicited completion begins; then all count. */
static void moderate__begins_with_a_solicited_completion(void **state)
{
	moderate(2, 0);
	arm(CQ_SOLICITED);
	push(3, NULL, false);
	push(1, NULL, true);
	assert_int_equal(events(), 0);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
}

/* It could never have as many, and the next completion would be an overflow. */
static void moderate__fires_when_the_queue_is_full(void **state)
{
	moderate(1000, 0);
	push(ENTRIES - 1, NULL, false);
	arm(CQ_NEXT_COMP);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
}

static void moderate__of_an_eager_queue_counts_what_waits(void **state)
{
	void *cookie;

	cq.eager = true;
	moderate(3, PERIOD_US);
	push(2, NULL, false);
	arm(CQ_NEXT_COMP);
	assert_int_equal(events(), 0);
	push(1, NULL, false);
	assert_int_equal(channel_next(channel, &cookie), 0);
	channel_ack(&cq.source, 1);
	arm(CQ_NEXT_COMP); /* the event has announced all of them */
	assert_int_equal(events(), 0);
	assert_int_equal(take(), 3);
	arm(CQ_NEXT_COMP);
	pass(2 * PERIOD_US);
	assert_int_equal(events(), 0);
	push(4, NULL, false);
	assert_int_equal(events(), 1);
}

static void moderate__changes_what_is_being_gathered(void **state)
{
	moderate(5, PERIOD_US);
	arm(CQ_NEXT_COMP);
	push(2, NULL, false);
	moderate(3, 0);
	pass(2 * PERIOD_US);
	assert_int_equal(events(), 0);
	moderate(2, 0);
	assert_int_equal(events(), 1);
	arm(CQ_NEXT_COMP);
	push(1, NULL, false);
	moderate(0, 0); /* nothing is delayed any more */
	assert_int_equal(events(), 1);
	arm(CQ_NEXT_COMP);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
}

static void moderate__survives_a_destroyed_queue_pair(void **state)
{
	struct {
		u32 first;
		struct cq_source source;
	} gone;

	cq_source_init(&gone.source, &gone, 0);
	moderate(3, PERIOD_US);
	arm(CQ_NEXT_COMP);
	push(2, &gone.source, false);
	cq_forget(&cq, &gone);
	push(2, NULL, false);
	assert_int_equal(events(), 0);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
}

/* The other kind of event neither waits nor ends the gathering. */
static void moderate__leaves_ncomp_alone(void **state)
{
	moderate(4, PERIOD_US);
	arm(CQ_NEXT_COMP);
	assert_int_equal(cq_arm_ncomp(&cq, 1), 0);
	push(1, NULL, false);
	assert_int_equal(events(), 1);
	assert_int_equal(kicks, 1);
	pass(PERIOD_US);
	assert_int_equal(events(), 1);
}

static void orphan__forgets_the_parents_timer(void **state)
{
	moderate(4, PERIOD_US);
	arm(CQ_NEXT_COMP);
	push(1, NULL, false);
	cq_orphan(&cq);
	timer_set_destroy(&timers); /* as the child finds it */
	push(1, NULL, false);
	assert_int_equal(events(), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(moderate__one_event_for_so_many_completions),
		TEST(moderate__counts_what_was_added_since_the_arm),
		TEST(moderate__waits_no_longer_than_the_period),
		TEST(moderate__a_period_alone),
		TEST(moderate__the_count_ends_the_period),
		TEST(moderate__begins_with_a_solicited_completion),
		TEST(moderate__fires_when_the_queue_is_full),
		TEST(moderate__of_an_eager_queue_counts_what_waits),
		TEST(moderate__changes_what_is_being_gathered),
		TEST(moderate__survives_a_destroyed_queue_pair),
		TEST(moderate__leaves_ncomp_alone),
		TEST(orphan__forgets_the_parents_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
