/* channel_test.c: one write per event, a count that matches, and a removal that waits for
 * acknowledgements. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "event/event.h"

enum { READERS = 2, POSTERS = 2, POSTS = 20000 };

static struct channel *test_channel(void)
{
	int err = 0;
	struct channel *ch = channel_create(&err);

	assert_non_null(ch);
	assert_int_equal(err, 0);
	return ch;
}

static bool test_readable(const struct channel *ch)
{
	struct pollfd p = { .fd = channel_fd(ch), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void channel_create__gives_a_blocking_descriptor_closed_on_exec(void **state)
{
	struct channel *ch = test_channel();

	assert_true(fcntl(channel_fd(ch), F_GETFD) & FD_CLOEXEC);
	assert_false(fcntl(channel_fd(ch), F_GETFL) & O_NONBLOCK);
	assert_int_equal(channel_destroy(ch), 0);
}

static void test_next_never_waits(bool nonblock)
{
	struct channel *ch = test_channel();
	struct channel_source s;
	void *cookie = NULL;

	if (nonblock)
		assert_int_equal(fcntl(channel_fd(ch), F_SETFL, O_NONBLOCK), 0);
	channel_source_add(&s, ch, &s);
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	assert_null(cookie);
	for (int i = 0; i < 3; i++)
		channel_post(&s);
	for (int i = 0; i < 3; i++) {
		assert_true(test_readable(ch));
		assert_int_equal(channel_next(ch, &cookie), 0);
		assert_ptr_equal(cookie, &s);
	}
	assert_false(test_readable(ch));
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	channel_ack(&s, 3);
	channel_source_remove(&s);
	assert_int_equal(channel_destroy(ch), 0);
}

static void channel_next__never_waits_on_a_blocking_descriptor(void **state)
{
	test_next_never_waits(false);
}

static void channel_next__never_waits_on_a_nonblocking_descriptor(void **state)
{
	test_next_never_waits(true);
}

/* Somebody took from the descriptor behind our back: events are still handed out, and nobody
 * hangs. */
static void channel_next__survives_a_stolen_count(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source s;
	void *cookie;
	u64 value;

	channel_source_add(&s, ch, &s);
	channel_post(&s);
	assert_int_equal(read(channel_fd(ch), &value, sizeof(value)), sizeof(value));
	assert_int_equal(channel_next(ch, &cookie), 0);
	channel_ack(&s, 1);
	channel_source_remove(&s);
	assert_int_equal(channel_destroy(ch), 0);
}

/* Somebody wrote into the descriptor: a consumer that polls must not spin on it for ever. */
static void channel_next__takes_strays_out_of_the_descriptor(void **state)
{
	struct channel *ch = test_channel();
	u64 strays = 3;
	void *cookie;

	assert_int_equal(write(channel_fd(ch), &strays, sizeof(strays)), sizeof(strays));
	assert_true(test_readable(ch));
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	assert_false(test_readable(ch));
	assert_int_equal(channel_destroy(ch), 0);
}

static void channel_next__takes_sources_in_turn(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source a, b;
	void *cookie[4];

	channel_source_add(&a, ch, &a);
	channel_source_add(&b, ch, &b);
	channel_post(&a);
	channel_post(&a);
	channel_post(&a);
	channel_post(&b);
	for (int i = 0; i < 4; i++)
		assert_int_equal(channel_next(ch, &cookie[i]), 0);
	assert_ptr_equal(cookie[0], &a);
	assert_ptr_equal(cookie[1], &b);
	assert_ptr_equal(cookie[2], &a);
	assert_ptr_equal(cookie[3], &a);
	channel_ack(&a, 3);
	channel_ack(&b, 1);
	channel_source_remove(&a);
	assert_int_equal(channel_destroy(ch), -EBUSY);
	channel_source_remove(&b);
	assert_int_equal(channel_destroy(ch), 0);
}

static void channel_post__wakes_edge_triggered_epoll_for_each_event(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source s;
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, channel_fd(ch), &ev), 0);
	channel_source_add(&s, ch, &s);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
		channel_post(&s); /* none of them is taken */
		assert_int_equal(epoll_wait(ep, &ev, 1, 1000), 1);
	}
	close(ep);
	channel_source_remove(&s);
	assert_int_equal(channel_destroy(ch), 0);
}

static void channel_post__without_a_channel_does_nothing(void **state)
{
	struct channel_source s;

	assert_int_equal(channel_source_add(&s, NULL, &s), 0);
	channel_post(&s);
	channel_ack(&s, 1);
	channel_source_remove(&s);
	assert_int_equal(s.undelivered, 0);
}

static void channel_source_remove__withdraws_what_is_undelivered(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source a, b;
	void *cookie;

	channel_source_add(&a, ch, &a);
	channel_source_add(&b, ch, &b);
	channel_post(&a);
	channel_post(&a);
	channel_post(&b);
	channel_source_remove(&a);
	assert_true(test_readable(ch));
	assert_int_equal(channel_next(ch, &cookie), 0);
	assert_ptr_equal(cookie, &b);
	assert_false(test_readable(ch));
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	channel_ack(&b, 100); /* too many: must not hang the removal */
	channel_source_remove(&b);
	assert_int_equal(channel_destroy(ch), 0);
}

static void channel_source_hold__keeps_events_back(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source s;
	void *cookie;
	int taken = 0;

	channel_source_add(&s, ch, &s);
	channel_post(&s);
	channel_source_hold(&s);
	channel_post(&s);
	assert_false(test_readable(ch));
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	channel_source_release(&s);
	assert_true(test_readable(ch));
	while (channel_next(ch, &cookie) == 0)
		taken++;
	assert_int_equal(taken, 2);
	assert_false(test_readable(ch));
	channel_ack(&s, 2);
	channel_post(&s);
	channel_source_hold(&s);
	channel_source_remove(&s);
	assert_false(test_readable(ch));
	assert_int_equal(channel_destroy(ch), 0);
}

/* The descriptor's count returns whole: each of several held events wakes a reader. */
static void channel_source_release__gives_back_every_event(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source held, other;
	void *cookie;

	channel_source_add(&held, ch, &held);
	channel_source_add(&other, ch, &other);
	channel_post(&held);
	channel_post(&held);
	channel_source_hold(&held);
	channel_post(&held);
	channel_post(&other);
	assert_int_equal(channel_next(ch, &cookie), 0);
	assert_ptr_equal(cookie, &other);
	assert_false(test_readable(ch));
	channel_source_release(&held);
	for (int i = 0; i < 3; i++) {
		assert_true(test_readable(ch));
		assert_int_equal(channel_next(ch, &cookie), 0);
		assert_ptr_equal(cookie, &held);
	}
	assert_false(test_readable(ch));
	/* the first event of all comes while it is held */
	channel_ack(&held, 3);
	channel_source_hold(&held);
	channel_post(&held);
	channel_post(&held);
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	channel_source_release(&held);
	assert_int_equal(channel_next(ch, &cookie), 0);
	assert_int_equal(channel_next(ch, &cookie), 0);
	assert_int_equal(channel_next(ch, &cookie), -EAGAIN);
	channel_ack(&held, 2);
	channel_ack(&other, 1);
	channel_source_remove(&held);
	channel_source_remove(&other);
	assert_int_equal(channel_destroy(ch), 0);
}

struct test_removal {
	struct channel_source *source;
	u32 gone;
};

static void *test_remove_thread(void *arg)
{
	struct test_removal *x = arg;

	channel_source_remove(x->source);
	__atomic_store_n(&x->gone, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void channel_source_remove__waits_for_every_acknowledgement(void **state)
{
	struct channel *ch = test_channel();
	struct channel_source s;
	struct test_removal x = { .source = &s };
	pthread_t thread;
	void *cookie;

	channel_source_add(&s, ch, &s);
	channel_post(&s);
	channel_post(&s);
	assert_int_equal(channel_next(ch, &cookie), 0);
	assert_int_equal(channel_next(ch, &cookie), 0);
	channel_ack(&s, 1);
	pthread_create(&thread, NULL, test_remove_thread, &x);
	usleep(20000);
	assert_int_equal(__atomic_load_n(&x.gone, __ATOMIC_ACQUIRE), 0);
	channel_ack(&s, 1);
	pthread_join(thread, NULL);
	assert_int_equal(x.gone, 1);
	assert_int_equal(channel_destroy(ch), 0);
}

struct test_traffic {
	struct channel *ch;
	struct channel_source source[POSTERS];
	u32 got[POSTERS];
	u32 missing; /* events that no reader has taken yet */
};

struct test_poster {
	struct channel_source *source;
	pthread_t thread;
};

static void *test_post_thread(void *arg)
{
	for (int i = 0; i < POSTS; i++)
		channel_post(((struct test_poster *)arg)->source);
	return NULL;
}

static void *test_read_thread(void *arg)
{
	struct test_traffic *x = arg;
	struct pollfd p = { .fd = channel_fd(x->ch), .events = POLLIN };
	void *cookie;

	while (__atomic_load_n(&x->missing, __ATOMIC_ACQUIRE) > 0) {
		poll(&p, 1, 10);
		if (channel_next(x->ch, &cookie))
			continue;
		__atomic_fetch_add((u32 *)cookie, 1, __ATOMIC_RELAXED);
		channel_ack(&x->source[(u32 *)cookie - x->got], 1);
		__atomic_fetch_sub(&x->missing, 1, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

static void channel_next__shares_events_among_threads_exactly(void **state)
{
	struct test_traffic x = { .ch = test_channel(), .missing = POSTERS * POSTS };
	struct test_poster poster[POSTERS];
	pthread_t reader[READERS];

	for (int i = 0; i < POSTERS; i++) {
		channel_source_add(&x.source[i], x.ch, &x.got[i]);
		poster[i].source = &x.source[i];
		pthread_create(&poster[i].thread, NULL, test_post_thread, &poster[i]);
	}
	for (int i = 0; i < READERS; i++)
		pthread_create(&reader[i], NULL, test_read_thread, &x);
	for (int i = 0; i < POSTERS; i++)
		pthread_join(poster[i].thread, NULL);
	for (int i = 0; i < READERS; i++)
		pthread_join(reader[i], NULL);
	for (int i = 0; i < POSTERS; i++) {
		assert_int_equal(x.got[i], POSTS);
		channel_source_remove(&x.source[i]);
	}
	assert_false(test_readable(x.ch));
	assert_int_equal(channel_destroy(x.ch), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(channel_create__gives_a_blocking_descriptor_closed_on_exec),
		cmocka_unit_test(channel_next__never_waits_on_a_blocking_descriptor),
		cmocka_unit_test(channel_next__never_waits_on_a_nonblocking_descriptor),
		cmocka_unit_test(channel_next__survives_a_stolen_count),
		cmocka_unit_test(channel_next__takes_strays_out_of_the_descriptor),
		cmocka_unit_test(channel_next__takes_sources_in_turn),
		cmocka_unit_test(channel_post__wakes_edge_triggered_epoll_for_each_event),
		cmocka_unit_test(channel_post__without_a_channel_does_nothing),
		cmocka_unit_test(channel_source_remove__withdraws_what_is_undelivered),
		cmocka_unit_test(channel_source_remove__waits_for_every_acknowledgement),
		cmocka_unit_test(channel_source_hold__keeps_events_back),
		cmocka_unit_test(channel_source_release__gives_back_every_event),
		cmocka_unit_test(channel_next__shares_events_among_threads_exactly),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
