/* work_test.c: timers, works and work queues. */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- timers ---------------------------------------------------------------------------------- */

struct test_timer {
	struct timer_list timer;
	int number;
	int again; /* how often its function starts it anew */
	struct completion fired;
};

static atomic_t test_order;

static void timer_fired(struct timer_list *timer)
{
	struct test_timer *t = from_timer(t, timer, timer);

	assert_true(in_atomic());
	/* the last three */
	atomic_set(&test_order, atomic_read(&test_order) % 100 * 10 + t->number);
	if (t->again-- > 0)
		mod_timer(timer, jiffies + 1);
	complete(&t->fired);
}

static void test_timer_init(struct test_timer *t, int number)
{
	*t = (struct test_timer){ .number = number };
	timer_setup(&t->timer, timer_fired, 0);
	init_completion(&t->fired);
}

static void timer__fires_in_order_and_not_before_its_time(void **state)
{
	unsigned long begin = jiffies;
	struct test_timer t[3];

	for (int i = 0; i < 3; i++)
		test_timer_init(&t[i], i + 1);
	atomic_set(&test_order, 0);
	assert_int_equal(mod_timer(&t[2].timer, begin + 60), 0);
	assert_int_equal(mod_timer(&t[0].timer, begin + 9000), 0);
	assert_true(timer_pending(&t[0].timer));
	assert_int_equal(mod_timer(&t[0].timer, begin + 30), 1);
	t[1].timer.expires = begin + 40;
	add_timer(&t[1].timer);
	wait_for_completion(&t[2].fired);
	assert_true(time_after_eq(jiffies, begin + 60));
	assert_int_equal(atomic_read(&test_order), 123);
	assert_int_equal(del_timer_sync(&t[2].timer), 0);
	assert_false(timer_pending(&t[2].timer));
}

static void del_timer__stops_it(void **state)
{
	struct test_timer t;

	test_timer_init(&t, 1);
	mod_timer(&t.timer, jiffies + 600 * HZ);
	assert_int_equal(del_timer(&t.timer), 1);
	assert_int_equal(del_timer(&t.timer), 0);
	mod_timer(&t.timer, jiffies + 600 * HZ);
	assert_int_equal(timer_shutdown_sync(&t.timer), 1);
	assert_false(completion_done(&t.fired));
}

/* A sanitizer says it if the function touches the freed timer. */
static void del_timer_sync__waits_for_the_function(void **state)
{
	for (int i = 0; i < 50; i++) {
		struct test_timer *t = kmalloc(sizeof(*t), GFP_KERNEL);

		test_timer_init(t, 0);
		t->again = 1000000;
		mod_timer(&t->timer, jiffies);
		wait_for_completion(&t->fired);
		del_timer_sync(&t->timer);
		kfree(t);
	}
}

/* ---- works ----------------------------------------------------------------------------------- */

struct test_work {
	struct work_struct work;
	struct delayed_work delayed;
	atomic_t runs, inside, most;
	int again;
	struct completion began, go;
};

static void test_run(struct test_work *w)
{
	int now = atomic_inc_return(&w->inside);

	if (now > atomic_read(&w->most))
		atomic_set(&w->most, now);
	complete(&w->began);
	wait_for_completion(&w->go);
	atomic_inc(&w->runs);
	atomic_dec(&w->inside);
}

static void test_func(struct work_struct *work)
{
	struct test_work *w = container_of(work, struct test_work, work);

	assert_ptr_equal(current_work(), work);
	assert_false(in_atomic());
	test_run(w);
}

static void test_delayed_func(struct work_struct *work)
{
	test_run(container_of(to_delayed_work(work), struct test_work, delayed));
}

/* With `is_free` its function does not wait for `go`. */
static void test_work_init(struct test_work *w, bool is_free)
{
	*w = (struct test_work){ .again = 0 };
	INIT_WORK(&w->work, test_func);
	INIT_DELAYED_WORK(&w->delayed, test_delayed_func);
	init_completion(&w->began);
	init_completion(&w->go);
	if (is_free)
		complete_all(&w->go);
}

static void queue_work__once_until_it_runs(void **state)
{
	struct workqueue_struct *wq = alloc_workqueue("test/%d", WQ_UNBOUND, 0, 1);
	struct test_work w;

	test_work_init(&w, false);
	assert_null(current_work());
	assert_true(queue_work(wq, &w.work));
	wait_for_completion(&w.began);
	assert_false(work_pending(&w.work));
	assert_true(queue_work_on(1, wq, &w.work)); /* it runs, and will again */
	assert_false(queue_work(wq, &w.work));
	assert_true(work_pending(&w.work));
	complete_all(&w.go);
	flush_workqueue(wq);
	assert_int_equal(atomic_read(&w.runs), 2);
	assert_int_equal(atomic_read(&w.most), 1); /* never on two threads */
	destroy_workqueue(wq);
}

static void flush_work__waits(void **state)
{
	struct test_work w;

	test_work_init(&w, true);
	assert_false(flush_work(&w.work));
	for (int i = 1; i <= 100; i++) {
		assert_true(schedule_work(&w.work));
		flush_work(&w.work);
		assert_int_equal(atomic_read(&w.runs), i);
	}
	schedule_work_on(0, &w.work);
	flush_scheduled_work();
	assert_int_equal(atomic_read(&w.runs), 101);
}

/* Works that wait for each other go on, but for those of an ordered queue. */
static void test_queue(struct workqueue_struct *wq, struct test_work *w, int count, int expected)
{
	for (int i = 0; i < count; i++) {
		test_work_init(&w[i], false);
		queue_work(wq, &w[i].work);
	}
	for (int i = 0; i < expected; i++)
		wait_for_completion(&w[i].began);
	for (int i = expected; i < count; i++)
		assert_false(completion_done(&w[i].began));
	for (int i = 0; i < count; i++)
		complete_all(&w[i].go);
	drain_workqueue(wq);
	for (int i = 0; i < count; i++)
		assert_int_equal(atomic_read(&w[i].runs), 1);
	destroy_workqueue(wq);
}

static void workqueue__runs_max_active_at_a_time(void **state)
{
	struct test_work w[20];

	test_queue(alloc_workqueue("many", WQ_MEM_RECLAIM, 0), w, 20, 20);
	test_queue(alloc_workqueue("three", 0, 3), w, 20, 3);
	test_queue(alloc_ordered_workqueue("one/%s", 0, "x"), w, 20, 1);
	test_queue(create_singlethread_workqueue("single"), w, 5, 1);
	test_queue(create_workqueue("old"), w, 5, 1);
}

static int test_sequence[50];
static atomic_t test_at;

struct numbered {
	struct work_struct work;
	int number;
};

/* A work may free itself. */
static void numbered_func(struct work_struct *work)
{
	struct numbered *n = container_of(work, struct numbered, work);

	test_sequence[atomic_inc_return(&test_at) - 1] = n->number;
	kfree(n);
}

static void ordered__runs_in_order(void **state)
{
	struct workqueue_struct *wq = alloc_ordered_workqueue("ordered", 0);

	for (int i = 0; i < 50; i++) {
		struct numbered *n = kmalloc(sizeof(*n), GFP_KERNEL);

		n->number = i;
		INIT_WORK(&n->work, numbered_func);
		queue_work(wq, &n->work);
	}
	destroy_workqueue(wq);
	for (int i = 0; i < 50; i++)
		assert_int_equal(test_sequence[i], i);
}

static void again_func(struct work_struct *work)
{
	struct test_work *w = container_of(work, struct test_work, work);

	atomic_inc(&w->runs);
	queue_work(system_long_wq, work);
}

static void cancel_work_sync__ends_one_that_queues_itself(void **state)
{
	struct test_work w;

	test_work_init(&w, true);
	INIT_WORK(&w.work, again_func);
	queue_work(system_wq, &w.work);
	while (atomic_read(&w.runs) < 10)
		cond_resched();
	flush_work(&w.work); /* waits for one run */
	cancel_work_sync(&w.work);
	assert_false(work_pending(&w.work));
	assert_false(cancel_work_sync(&w.work));
}

static void cancel_work__takes_it_off(void **state)
{
	struct workqueue_struct *wq = alloc_ordered_workqueue("cancel", 0);
	struct test_work first, second;

	test_work_init(&first, false);
	test_work_init(&second, true);
	queue_work(wq, &first.work);
	queue_work(wq, &second.work);
	assert_true(cancel_work(&second.work));
	assert_false(cancel_work(&second.work));
	complete_all(&first.go);
	destroy_workqueue(wq);
	assert_int_equal(atomic_read(&second.runs), 0);
}

/* ---- delayed works --------------------------------------------------------------------------- */

static void delayed_work__not_before_its_time(void **state)
{
	unsigned long begin = jiffies;
	struct test_work w;

	test_work_init(&w, true);
	assert_true(schedule_delayed_work(&w.delayed, 20));
	assert_false(queue_delayed_work(system_wq, &w.delayed, 0));
	assert_true(delayed_work_pending(&w.delayed));
	wait_for_completion(&w.began);
	assert_true(time_after_eq(jiffies, begin + 20));
	cancel_delayed_work_sync(&w.delayed);
	assert_int_equal(atomic_read(&w.runs), 1);
}

static void delayed_work__moved_flushed_cancelled(void **state)
{
	struct test_work w;

	test_work_init(&w, true);
	assert_false(mod_delayed_work(system_wq, &w.delayed, 600 * HZ));
	assert_true(mod_delayed_work(system_wq, &w.delayed, 1));
	wait_for_completion(&w.began);
	queue_delayed_work_on(0, system_wq, &w.delayed, 600 * HZ);
	assert_true(flush_delayed_work(&w.delayed)); /* now */
	assert_int_equal(atomic_read(&w.runs), 2);
	schedule_delayed_work(&w.delayed, 600 * HZ);
	assert_true(cancel_delayed_work(&w.delayed));
	assert_false(cancel_delayed_work(&w.delayed));
	schedule_delayed_work(&w.delayed, 600 * HZ);
	assert_true(cancel_delayed_work_sync(&w.delayed));
	schedule_delayed_work(&w.delayed, 0);
	flush_delayed_work(&w.delayed);
	assert_int_equal(atomic_read(&w.runs), 3);
}

/* A sanitizer says it if timer or worker touch what has been freed. */
static void cancel_delayed_work_sync__then_freed(void **state)
{
	for (int i = 0; i < 100; i++) {
		struct test_work *w = kmalloc(sizeof(*w), GFP_KERNEL);

		test_work_init(w, true);
		schedule_delayed_work(&w->delayed, (unsigned long)(i % 3));
		if (i % 2)
			msleep(1);
		cancel_delayed_work_sync(&w->delayed);
		kfree(w);
	}
}

static atomic_t test_declared;

static void declared_func(struct work_struct *work)
{
	atomic_inc(&test_declared);
}

static DECLARE_WORK(declared, declared_func);
static DECLARE_DELAYED_WORK(declared_delayed, declared_func);

static void declare_work__is_ready(void **state)
{
	schedule_work(&declared);
	schedule_delayed_work(&declared_delayed, 1);
	flush_work(&declared);
	flush_delayed_work(&declared_delayed);
	assert_int_equal(atomic_read(&test_declared), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timer__fires_in_order_and_not_before_its_time),
		cmocka_unit_test(del_timer__stops_it),
		cmocka_unit_test(del_timer_sync__waits_for_the_function),
		cmocka_unit_test(queue_work__once_until_it_runs),
		cmocka_unit_test(flush_work__waits),
		cmocka_unit_test(workqueue__runs_max_active_at_a_time),
		cmocka_unit_test(ordered__runs_in_order),
		cmocka_unit_test(cancel_work_sync__ends_one_that_queues_itself),
		cmocka_unit_test(cancel_work__takes_it_off),
		cmocka_unit_test(delayed_work__not_before_its_time),
		cmocka_unit_test(delayed_work__moved_flushed_cancelled),
		cmocka_unit_test(cancel_delayed_work_sync__then_freed),
		cmocka_unit_test(declare_work__is_ready),
	};

	return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
