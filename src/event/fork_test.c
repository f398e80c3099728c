/* fork_test.c: a forked child has channels and async queues of its own; the parent's are left
 * alone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process_test.h"
#include "event/event_priv.h"

enum { MANY = 100, POSTED = 3 };

struct test_pair {
	struct channel *ch;
	struct channel_source source;
	struct async_queue *q;
	int object;
};

static void test_setup(struct test_pair *x)
{
	int err = 0;

	x->ch = channel_create(&err);
	x->q = async_queue_create(&err);
	assert_non_null(x->ch);
	assert_non_null(x->q);
	assert_int_equal(fcntl(async_queue_fd(x->q), F_SETFL, O_NONBLOCK), 0);
	channel_source_add(&x->source, x->ch, x);
	for (int i = 0; i < POSTED; i++) {
		channel_post(&x->source);
		async_queue_post(x->q, &(struct async_event){ .type = 1, .element = &x->object });
	}
}

static void test_teardown(struct test_pair *x)
{
	channel_source_remove(&x->source);
	channel_destroy(x->ch);
	async_queue_destroy(x->q);
}

static bool test_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* How many events can be taken, if the descriptors agree with it; -1 if they do not. */
static int test_drain(struct test_pair *x)
{
	struct async_event ev;
	void *cookie;
	int n = 0;

	for (; test_readable(channel_fd(x->ch)); n++) {
		if (channel_next(x->ch, &cookie))
			return -1;
		channel_ack(&x->source, 1);
	}
	for (; test_readable(async_queue_fd(x->q)); n++) {
		if (async_queue_next(x->q, &ev))
			return -1;
		async_queue_ack(x->q, &ev);
	}
	return n;
}

/* Takes what waited at the fork, makes and takes more, and destroys everything. */
static int test_child(struct test_pair *x)
{
	struct test_pair own;

	if (test_drain(x) != 2 * POSTED)
		return 1;
	for (int i = 0; i < 3; i++)
		channel_post(&x->source);
	if (test_drain(x) != 3)
		return 2;
	channel_post(&x->source);
	test_teardown(x);
	test_setup(&own);
	if (test_drain(&own) != 2 * POSTED)
		return 3;
	test_teardown(&own);
	return 0;
}

static int test_fork(struct test_pair *x)
{
	pid_t child = fork();

	if (child == 0)
		_exit(test_child(x));
	return child_verdict(child);
}

static void atfork_drop_events__parts_the_descriptors(void **state)
{
	struct test_pair x;

	test_setup(&x);
	assert_int_equal(test_fork(&x), 0);
	assert_int_equal(test_drain(&x), 2 * POSTED); /* the child has taken its own only */
	test_teardown(&x);
}

/* A thread of the parent was inside: the locks are held in the child by nobody. */
static void atfork_drop_events__frees_locks_that_nobody_holds(void **state)
{
	struct test_pair x;
	pid_t child;

	test_setup(&x);
	*(u32 *)(void *)x.ch = 1; /* the lock is its first word */
	*(u32 *)(void *)x.q = 2;
	child = fork();
	if (child == 0) {
		struct async_event ev;
		void *cookie;

		channel_next(x.ch, &cookie);
		_exit(async_queue_next(x.q, &ev) == -EAGAIN ? 7 : 0);
	}
	*(u32 *)(void *)x.ch = 0;
	*(u32 *)(void *)x.q = 0;
	assert_int_equal(child_verdict(child), 7);
	test_teardown(&x);
}

static u32 test_dropped[MANY];
static struct atfork_watch test_watch[MANY];

static void test_drop(struct atfork_watch *w)
{
	test_dropped[w - test_watch]++;
}

static void atfork_watch_remove__is_called_no_more(void **state)
{
	for (int i = 0; i < MANY; i++)
		assert_int_equal(atfork_watch_add(&test_watch[i], test_drop), 0);
	for (int i = 0; i < MANY; i += 2)
		atfork_watch_remove(&test_watch[i]);
	for (int i = 0; i < MANY; i += 4)
		assert_int_equal(atfork_watch_add(&test_watch[i], test_drop), 0);
	atfork_drop_events();
	for (int i = 0; i < MANY; i++)
		assert_int_equal(test_dropped[i], i % 4 == 2 ? 0 : 1);
	for (int i = 0; i < MANY; i++)
		if (i % 4 != 2)
			atfork_watch_remove(&test_watch[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(atfork_drop_events__parts_the_descriptors),
		cmocka_unit_test(atfork_drop_events__frees_locks_that_nobody_holds),
		cmocka_unit_test(atfork_watch_remove__is_called_no_more),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
