/* work_test.c: works run in order, once for each push, at their time; what is cancelled does
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/work.h"

enum { STEPS = 32 };

static struct work_queue queue;
static char trace[STEPS + 1]; /* a letter per work that ran */

struct letter {
	struct work work;
	char name;
	int again; /* how often it pushes itself */
};

static void note(struct work *w)
{
	struct letter *l = container_of(w, struct letter, work);

	trace[strlen(trace)] = l->name;
	if (l->again-- > 0)
		work_push(w);
}

static int begin(void **state)
{
	memset(trace, 0, sizeof(trace));
	work_queue_init(&queue, "test", true);
	return 0;
}

static int finish(void **state)
{
	timer_set_destroy(&queue.timers);
	return 0;
}

static struct letter letter(char name)
{
	struct letter l = { .name = name };

	return l;
}

static void push(struct letter *l)
{
	work_init(&l->work, &queue, note);
	work_push(&l->work);
}

static void work_push__runs_in_order_and_once(void **state)
{
	struct letter a = letter('a'), b = letter('b');

	push(&a);
	push(&b);
	work_push(&a.work);
	assert_int_equal(work_queue_next_ns(&queue), 0);
	assert_int_equal(work_queue_run(&queue, 0), 2);
	assert_string_equal(trace, "ab");
	assert_int_equal(work_queue_next_ns(&queue), TIMER_NEVER);
}

static void work_push__may_push_itself(void **state)
{
	struct letter a = letter('a'), b = letter('b');

	a.again = 2;
	push(&a);
	push(&b);
	assert_int_equal(work_queue_run(&queue, 0), 4);
	assert_string_equal(trace, "abaa");
}

static void work_push_at__waits_and_moves(void **state)
{
	struct letter a = letter('a'), b = letter('b');

	work_init(&a.work, &queue, note);
	work_init(&b.work, &queue, note);
	work_push_at(&a.work, 100);
	work_push_at(&b.work, 50);
	assert_int_equal(work_queue_next_ns(&queue), 50);
	work_push_at(&b.work, 200);
	assert_int_equal(work_queue_run(&queue, 99), 0);
	assert_int_equal(work_queue_run(&queue, 100), 1);
	assert_int_equal(work_queue_run(&queue, 200), 1);
	assert_string_equal(trace, "ab");
}

static void work_cancel__takes_back_both(void **state)
{
	struct letter a = letter('a'), b = letter('b');

	push(&a);
	work_init(&b.work, &queue, note);
	work_push_at(&b.work, 10);
	assert_true(work_cancel(&a.work));
	assert_false(work_cancel(&b.work));
	assert_false(work_cancel(&a.work));
	assert_int_equal(work_queue_run(&queue, 100), 0);
}

static void end_itself(struct work *w)
{
	work_cancel_wait(w); /* from inside: waits for nothing */
	trace[strlen(trace)] = 'x';
	free(container_of(w, struct letter, work));
}

static void work_queue_run__lets_a_work_free_itself(void **state)
{
	struct letter *l = malloc(sizeof(*l));

	*l = letter('x');
	work_init(&l->work, &queue, end_itself);
	work_push(&l->work);
	assert_int_equal(work_queue_run(&queue, 0), 1);
	assert_string_equal(trace, "x");
}

/* With a thread: a cancel that returns was the last of it, whenever it comes. */
static struct work_queue threaded;
static int running; /* atomic */

static void work_shortly(struct work *w)
{
	__atomic_store_n(&running, 1, __ATOMIC_SEQ_CST);
	clock_sleep_ns(20 * NS_PER_US);
	__atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
}

static void work_cancel_wait__waits_for_the_thread(void **state)
{
	struct work w;

	work_init(&w, &threaded, work_shortly);
	for (int i = 0; i < 300; i++) {
		work_push(&w);
		work_push_at(&w, clock_now_ns() + (u64)i * 200);
		work_cancel_wait(&w);
		assert_int_equal(__atomic_load_n(&running, __ATOMIC_SEQ_CST), 0);
	}
}

static void work_queue_flush__returns_behind_the_works(void **state)
{
	struct letter a = letter('a');

	work_init(&a.work, &threaded, note);
	work_push(&a.work);
	work_queue_flush(&threaded);
	assert_string_equal(trace, "a");
}

static u32 answered; /* atomic */

static void work_answer(struct work *w)
{
	__atomic_fetch_add(&answered, 1, __ATOMIC_SEQ_CST);
	futex_wake(&answered, 1);
}

/* A push that comes while the thread goes to sleep is not lost: no other push would follow. */
static void work_push__wakes_the_thread_at_any_time(void **state)
{
	enum { ROUNDS = 20000, PAUSES = 32 };
	struct work w;

	work_init(&w, &threaded, work_answer);
	for (u32 i = 0; i < ROUNDS; i++) {
		u64 limit = clock_now_ns() + 5 * NS_PER_S;

		/* so that each instant of its way to sleep has its turn */
		for (u32 k = 0; k < i % PAUSES * 16; k++)
			cpu_relax();
		work_push(&w);
		while (__atomic_load_n(&answered, __ATOMIC_SEQ_CST) == i) {
			futex_sleep_for(&answered, i, 100 * NS_PER_MS);
			assert_true(clock_now_ns() < limit);
		}
	}
	work_cancel_wait(&w);
}

/* ---- a descriptor that is watched ------------------------------------------------------------ */

struct watched {
	struct work_queue queue;
	int ends[2];
	u32 bytes;  /* atomic: that were read */
	u32 inside; /* atomic: a work or the reader runs */
};

static void watched_count(u32 *count, u32 n)
{
	__atomic_fetch_add(count, n, __ATOMIC_SEQ_CST);
	futex_wake(count, 1);
}

static void watched_await(u32 *count, u32 n)
{
	u64 limit = clock_now_ns() + 20 * NS_PER_S;
	u32 seen;

	while ((seen = __atomic_load_n(count, __ATOMIC_SEQ_CST)) < n) {
		futex_sleep_for(count, seen, 100 * NS_PER_MS);
		assert_true(clock_now_ns() < limit);
	}
}

static void watched_read(void *arg)
{
	struct watched *w = arg;
	char bytes[16];
	ssize_t n = read(w->ends[0], bytes, sizeof(bytes));

	assert_int_equal(__atomic_fetch_add(&w->inside, 1, __ATOMIC_SEQ_CST), 0);
	assert_true(n > 0);
	__atomic_fetch_sub(&w->inside, 1, __ATOMIC_SEQ_CST);
	watched_count(&w->bytes, (u32)n);
}

/* Its thread stays until the process ends, and so does it. */
static struct watched *watched_begin(void)
{
	struct watched *w = calloc(1, sizeof(*w));

	work_queue_init(&w->queue, "watched", false);
	assert_int_equal(pipe(w->ends), 0);
	return w;
}

static void watched_watch(struct watched *w)
{
	assert_int_equal(work_queue_watch(&w->queue, w->ends[0], watched_read, w), 0);
}

static void watched_write(struct watched *w)
{
	assert_int_equal(write(w->ends[1], "x", 1), 1);
}

static void work_long(struct work *w)
{
	__atomic_store_n(&running, 1, __ATOMIC_SEQ_CST);
	clock_sleep_ns(100 * NS_PER_MS);
	__atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
}

struct endless {
	struct work work;
	struct watched *watched;
	u32 runs; /* atomic */
	u32 stop; /* atomic */
};

static void endless_run(struct work *w)
{
	struct endless *e = container_of(w, struct endless, work);

	assert_int_equal(__atomic_fetch_add(&e->watched->inside, 1, __ATOMIC_SEQ_CST), 0);
	__atomic_fetch_sub(&e->watched->inside, 1, __ATOMIC_SEQ_CST);
	watched_count(&e->runs, 1);
	if (!__atomic_load_n(&e->stop, __ATOMIC_SEQ_CST))
		work_push(w);
}

static void work_queue_watch__reads_what_comes(void **state)
{
	struct watched *w = watched_begin();

	watched_watch(w);
	for (u32 i = 1; i <= 1000; i++) {
		watched_write(w);
		watched_await(&w->bytes, i);
	}
}

/* A thread that sleeps on the futex by then learns of it. */
static void work_queue_watch__begins_late(void **state)
{
	struct watched *w = watched_begin();
	struct work done;

	work_init(&done, &w->queue, work_shortly);
	work_push(&done);
	work_queue_flush(&w->queue);
	clock_sleep_ns(20 * NS_PER_MS);
	watched_watch(w);
	watched_write(w);
	watched_await(&w->bytes, 1);
}

/* Pushes and deadlines reach a thread that polls, and a push at any instant of its way there. */
static void work_queue_watch__leaves_works_their_turn(void **state)
{
	enum { ROUNDS = 20000, PAUSES = 32 };
	struct watched *w = watched_begin();
	struct endless e = { .watched = w, .stop = 1 };

	watched_watch(w);
	work_init(&e.work, &w->queue, endless_run);
	for (u32 i = 1; i <= ROUNDS; i++) {
		for (u32 k = 0; k < i % PAUSES * 16; k++)
			cpu_relax();
		if (i % 64 == 0)
			work_push_at(&e.work, clock_now_ns() + 20 * NS_PER_US);
		else
			work_push(&e.work);
		if (i % 3 == 0)
			watched_write(w);
		watched_await(&e.runs, i);
	}
	watched_await(&w->bytes, ROUNDS / 3);
	work_cancel_wait(&e.work);
}

/* Works that never end let the reader in. */
static void work_queue_watch__has_its_turn_among_works(void **state)
{
	struct watched *w = watched_begin();
	struct endless e = { .watched = w };

	watched_watch(w);
	work_init(&e.work, &w->queue, endless_run);
	work_push(&e.work);
	for (u32 i = 1; i <= 100; i++) {
		watched_write(w);
		watched_await(&w->bytes, i);
	}
	__atomic_store_n(&e.stop, 1, __ATOMIC_SEQ_CST);
	work_queue_flush(&w->queue);
	work_cancel_wait(&e.work);
}

static void watched_judge(struct work *w)
{
	struct endless *e = container_of(w, struct endless, work);

	assert_int_equal(__atomic_load_n(&e->watched->bytes, __ATOMIC_SEQ_CST), 64);
	watched_count(&e->runs, 1);
}

/* A thread that is late finds a deadline passed and something to read: it reads all of it first. */
static void work_queue_watch__reads_before_a_deadline(void **state)
{
	struct watched *w = watched_begin();
	struct endless e = { .watched = w };
	char bytes[64] = { 0 };
	struct work busy;

	watched_watch(w);
	work_init(&e.work, &w->queue, watched_judge);
	work_init(&busy, &w->queue, work_long);
	work_push(&busy);
	while (!__atomic_load_n(&running, __ATOMIC_SEQ_CST))
		clock_sleep_ns(NS_PER_US);
	assert_int_equal(write(w->ends[1], bytes, sizeof(bytes)), sizeof(bytes));
	work_push_at(&e.work, clock_now_ns());
	watched_await(&e.runs, 1);
	work_cancel_wait(&busy);
}

/* A program that closes what is not its own: works run all the same. */
static void work_queue_watch__outlives_its_descriptor(void **state)
{
	struct watched *w = watched_begin();
	struct endless e = { .watched = w, .stop = 1 };

	watched_watch(w);
	work_init(&e.work, &w->queue, endless_run);
	for (u32 i = 1; i <= 100; i++) {
		if (i == 50)
			close(w->ends[0]);
		work_push(&e.work);
		watched_await(&e.runs, i);
	}
	work_cancel_wait(&e.work);
	close(w->ends[1]);
}

#ifndef __SANITIZE_THREAD__ /* it knows no threads in a forked child */
/* The child has a queue of its own, which watches nothing. */
static void work_queue_watch__ends_in_a_child(void **state)
{
	struct watched *w = watched_begin();
	struct endless e = { .watched = w, .stop = 1 };
	int status;
	pid_t child;

	watched_watch(w);
	watched_write(w);
	watched_await(&w->bytes, 1);
	work_init(&e.work, &w->queue, endless_run);
	child = fork();
	if (child == 0) {
		work_queue_drop_in_child(&w->queue);
		work_init(&e.work, &w->queue, endless_run);
		work_push(&e.work);
		watched_await(&e.runs, 1);
		assert_int_equal(pipe(w->ends), 0); /* the parent reads the other one */
		watched_watch(w);
		watched_write(w);
		watched_await(&w->bytes, 2);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	work_push(&e.work);
	watched_await(&e.runs, 1);
	work_cancel_wait(&e.work);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(work_push__runs_in_order_and_once, begin, finish),
		cmocka_unit_test_setup_teardown(work_push__may_push_itself, begin, finish),
		cmocka_unit_test_setup_teardown(work_push_at__waits_and_moves, begin, finish),
		cmocka_unit_test_setup_teardown(work_cancel__takes_back_both, begin, finish),
		cmocka_unit_test_setup_teardown(work_queue_run__lets_a_work_free_itself, begin,
						finish),
		cmocka_unit_test_setup_teardown(work_cancel_wait__waits_for_the_thread, begin,
						finish),
		cmocka_unit_test_setup_teardown(work_queue_flush__returns_behind_the_works, begin,
						finish),
		cmocka_unit_test(work_push__wakes_the_thread_at_any_time),
		cmocka_unit_test(work_queue_watch__reads_what_comes),
		cmocka_unit_test(work_queue_watch__begins_late),
		cmocka_unit_test(work_queue_watch__leaves_works_their_turn),
		cmocka_unit_test(work_queue_watch__has_its_turn_among_works),
		cmocka_unit_test(work_queue_watch__reads_before_a_deadline),
		cmocka_unit_test(work_queue_watch__outlives_its_descriptor),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(work_queue_watch__ends_in_a_child),
#endif
	};

	work_queue_init(&threaded, "test", false);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
