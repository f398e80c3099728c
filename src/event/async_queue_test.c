/* async_queue_test.c: events in order, a descriptor that honours O_NONBLOCK, and objects that
 * wait for acknowledgements. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "event/event.h"

enum { TYPE_OBJECT = 3, TYPE_PORT = 9, FLOOD = 1000 };

static struct async_queue *test_queue(bool nonblock)
{
	int err = 0;
	struct async_queue *q = async_queue_create(&err);

	assert_non_null(q);
	assert_int_equal(err, 0);
	if (nonblock)
		assert_int_equal(fcntl(async_queue_fd(q), F_SETFL, O_NONBLOCK), 0);
	return q;
}

static bool test_readable(const struct async_queue *q)
{
	struct pollfd p = { .fd = async_queue_fd(q), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void test_post(struct async_queue *q, int type, void *element, u32 port)
{
	async_queue_post(q,
			 &(struct async_event){ .type = type, .element = element, .port = port });
}

static void async_queue_next__keeps_order(void **state)
{
	struct async_queue *q = test_queue(true);
	struct async_event ev;
	int object;

	assert_true(fcntl(async_queue_fd(q), F_GETFD) & FD_CLOEXEC);
	assert_int_equal(async_queue_next(q, &ev), -EAGAIN);
	test_post(q, TYPE_PORT, NULL, 1);
	test_post(q, TYPE_OBJECT, &object, 0);
	assert_true(test_readable(q));
	assert_int_equal(async_queue_next(q, &ev), 0);
	assert_int_equal(ev.type, TYPE_PORT);
	assert_int_equal(ev.port, 1);
	async_queue_ack(q, &ev);
	assert_int_equal(async_queue_next(q, &ev), 0);
	assert_int_equal(ev.type, TYPE_OBJECT);
	assert_ptr_equal(ev.element, &object);
	assert_false(test_readable(q));
	async_queue_ack(q, &ev);
	async_queue_ack(q, &ev); /* once too often: no harm */
	async_queue_forget(q, &object);
	async_queue_destroy(q);
}

static void async_queue_post__drops_old_port_events_only(void **state)
{
	struct async_queue *q = test_queue(true);
	struct async_event ev;
	u32 objects = 0, ports = 0, last_port = 0;
	static char object[FLOOD];

	for (u32 i = 0; i < FLOOD; i++) {
		test_post(q, TYPE_PORT, NULL, i);
		test_post(q, TYPE_OBJECT, &object[i], 0);
	}
	while (async_queue_next(q, &ev) == 0) {
		if (ev.element) {
			assert_ptr_equal(ev.element, &object[objects]);
			objects++;
		} else {
			ports++;
			assert_true(ev.port >= last_port);
			last_port = ev.port;
		}
	}
	assert_int_equal(objects, FLOOD);
	assert_true(ports > 0 && ports < FLOOD);
	assert_int_equal(last_port, FLOOD - 1);
	assert_false(test_readable(q)); /* the count fell with every event that gave way */
	async_queue_destroy(q);         /* frees what was never acknowledged */
}

/* The limit is on port events that wait: delivered ones do not count, however many there were. */
static void async_queue_post__keeps_a_burst_after_many_deliveries(void **state)
{
	struct async_queue *q = test_queue(true);
	struct async_event ev;

	for (u32 i = 0; i < FLOOD; i++) {
		test_post(q, TYPE_PORT, NULL, i);
		assert_int_equal(async_queue_next(q, &ev), 0);
		assert_int_equal(ev.port, i);
	}
	for (u32 i = 0; i < 10; i++)
		test_post(q, TYPE_PORT, NULL, i);
	for (u32 i = 0; i < 10; i++) {
		assert_int_equal(async_queue_next(q, &ev), 0);
		assert_int_equal(ev.port, i);
	}
	assert_int_equal(async_queue_next(q, &ev), -EAGAIN);
	async_queue_destroy(q);
}

static void async_queue_forget__withdraws_what_is_undelivered(void **state)
{
	struct async_queue *q = test_queue(true);
	struct async_event ev;
	int a, b;

	test_post(q, TYPE_OBJECT, &a, 0);
	test_post(q, TYPE_OBJECT, &b, 0);
	test_post(q, TYPE_OBJECT, &a, 0);
	async_queue_forget(q, &a);
	assert_int_equal(async_queue_next(q, &ev), 0);
	assert_ptr_equal(ev.element, &b);
	assert_int_equal(async_queue_next(q, &ev), -EAGAIN);
	assert_false(test_readable(q));
	async_queue_forget(q, &a);
	async_queue_destroy(q);
}

struct test_forget {
	struct async_queue *q;
	void *element;
	u32 gone;
};

static void *test_forget_thread(void *arg)
{
	struct test_forget *x = arg;

	async_queue_forget(x->q, x->element);
	__atomic_store_n(&x->gone, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void async_queue_forget__waits_for_every_acknowledgement(void **state)
{
	int object;
	struct test_forget x = { .q = test_queue(true), .element = &object };
	struct async_event ev[2];
	pthread_t thread;

	for (int i = 0; i < 2; i++) {
		test_post(x.q, TYPE_OBJECT, &object, 0);
		assert_int_equal(async_queue_next(x.q, &ev[i]), 0);
	}
	async_queue_ack(x.q, &ev[0]);
	pthread_create(&thread, NULL, test_forget_thread, &x);
	usleep(20000);
	assert_int_equal(__atomic_load_n(&x.gone, __ATOMIC_ACQUIRE), 0);
	async_queue_ack(x.q, &ev[1]);
	pthread_join(thread, NULL);
	assert_int_equal(x.gone, 1);
	async_queue_destroy(x.q);
}

static void *test_late_post_thread(void *arg)
{
	usleep(20000);
	test_post(arg, TYPE_PORT, NULL, 7);
	return NULL;
}

static void async_queue_next__waits_on_a_blocking_descriptor(void **state)
{
	struct async_queue *q = test_queue(false);
	struct async_event ev;
	pthread_t thread;

	pthread_create(&thread, NULL, test_late_post_thread, q);
	assert_int_equal(async_queue_next(q, &ev), 0);
	assert_int_equal(ev.port, 7);
	pthread_join(thread, NULL);
	async_queue_destroy(q);
}

static u32 test_signals;

static void test_on_signal(int sig)
{
	__atomic_add_fetch(&test_signals, 1, __ATOMIC_RELAXED);
}

struct test_signalled {
	pthread_t thread;
	struct async_queue *q;
	u32 done;
};

static void *test_signal_thread(void *arg)
{
	struct test_signalled *x = arg;

	/* Again and again: the first may come before the wait has begun. */
	while (!__atomic_load_n(&x->done, __ATOMIC_ACQUIRE)) {
		usleep(5000);
		pthread_kill(x->thread, SIGUSR1);
	}
	return NULL;
}

static void async_queue_next__is_interrupted_by_a_signal(void **state)
{
	struct async_queue *q = test_queue(false);
	struct test_signalled x = { .thread = pthread_self() };
	struct sigaction action = { .sa_handler = test_on_signal }, before;
	struct async_event ev;
	pthread_t thread;

	sigaction(SIGUSR1, &action, &before);
	pthread_create(&thread, NULL, test_signal_thread, &x);
	assert_int_equal(async_queue_next(q, &ev), -EINTR);
	__atomic_store_n(&x.done, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	sigaction(SIGUSR1, &before, NULL);
	async_queue_destroy(q);
}

#ifndef __SANITIZE_THREAD__ /* its runtime runs no handler during a bare system call */
/* Posts an event when the waiting thread has been signalled some times. */
static void *test_signal_and_post_thread(void *arg)
{
	struct test_signalled *x = arg;

	while (__atomic_load_n(&test_signals, __ATOMIC_RELAXED) < 3) {
		usleep(5000);
		pthread_kill(x->thread, SIGUSR1);
	}
	test_post(x->q, TYPE_PORT, NULL, 7);
	return NULL;
}

static void async_queue_next__goes_on_after_a_handler_with_sa_restart(void **state)
{
	struct async_queue *q = test_queue(false);
	struct test_signalled x = { .thread = pthread_self(), .q = q };
	struct sigaction action = { .sa_handler = test_on_signal, .sa_flags = SA_RESTART }, before;
	struct async_event ev;
	pthread_t thread;

	test_signals = 0;
	sigaction(SIGUSR1, &action, &before);
	pthread_create(&thread, NULL, test_signal_and_post_thread, &x);
	assert_int_equal(async_queue_next(q, &ev), 0);
	assert_int_equal(ev.port, 7);
	assert_true(__atomic_load_n(&test_signals, __ATOMIC_RELAXED) >= 3);
	pthread_join(thread, NULL);
	sigaction(SIGUSR1, &before, NULL);
	async_queue_destroy(q);
}
#endif

#ifndef __SANITIZE_ADDRESS__ /* its runtime finds the frames that unwinding has left poisoned */
static void *test_cancelled_thread(void *arg)
{
	struct async_event ev;

	(void)async_queue_next(arg, &ev);
	return NULL;
}

/* A thread that is cancelled while it waits takes nothing with it. */
static void async_queue_next__may_be_cancelled(void **state)
{
	struct async_queue *q = test_queue(false);
	struct async_event ev;
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, test_cancelled_thread, q);
	usleep(20000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	test_post(q, TYPE_PORT, NULL, 7);
	assert_int_equal(async_queue_next(q, &ev), 0);
	assert_int_equal(ev.port, 7);
	async_queue_destroy(q);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(async_queue_next__keeps_order),
		cmocka_unit_test(async_queue_post__drops_old_port_events_only),
		cmocka_unit_test(async_queue_post__keeps_a_burst_after_many_deliveries),
		cmocka_unit_test(async_queue_forget__withdraws_what_is_undelivered),
		cmocka_unit_test(async_queue_forget__waits_for_every_acknowledgement),
		cmocka_unit_test(async_queue_next__waits_on_a_blocking_descriptor),
		cmocka_unit_test(async_queue_next__is_interrupted_by_a_signal),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(async_queue_next__goes_on_after_a_handler_with_sa_restart),
#endif
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(async_queue_next__may_be_cancelled),
#endif
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
