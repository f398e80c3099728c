/* wait_test.c: threads that wait for rsockets: who is woken by what, and what ends a wait. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "anyverbs/rsocket.h"
#include "pair.h"

enum { ROUNDS = 300, FEW = 50, PAUSE_US = 300 };

/* ---- a thread that listens beside threads that move data ------------------------------------- */

struct listens {
	int fd;
	bool polls;
	pid_t thread; /* atomic; 0: it does not run yet */
};

static void *listen_on(void *arg)
{
	struct listens *l = arg;

	__atomic_store_n(&l->thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	if (l->polls)
		assert_int_equal(ready(l->fd, POLLIN, -1), POLLIN);
	return (void *)(intptr_t)raccept(l->fd, NULL, NULL);
}

/* How often a thread has slept. */
static long sleeps_of(pid_t thread)
{
	char path[64], line[128];
	long count = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)thread);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1)
			break;
	fclose(f);
	return count;
}

static void *echo(void *arg)
{
	int fd = *(int *)arg;
	char byte;

	while (rrecv(fd, &byte, 1, 0) == 1)
		assert_int_equal(rsend(fd, &byte, 1, 0), 1);
	return NULL;
}

/* The receiver has gone to sleep before each message. */
static void exchange(struct pair *p)
{
	pthread_t echoes;
	char byte = 0;

	assert_int_equal(pthread_create(&echoes, NULL, echo, &p->server), 0);
	for (int i = 0; i < ROUNDS; i++) {
		usleep(PAUSE_US);
		assert_int_equal(rsend(p->client, &byte, 1, 0), 1);
		assert_int_equal(rrecv(p->client, &byte, 1, 0), 1);
	}
	assert_int_equal(rshutdown(p->client, SHUT_WR), 0);
	assert_int_equal(pthread_join(echoes, NULL), 0);
}

static void sleeps_through(bool polls)
{
	struct pair p, other;
	struct listens l = { .polls = polls };
	pthread_t thread;
	void *fd;
	long before;

	make_pair(&p);
	listen_at(&other, "127.0.0.1");
	assert_int_equal(rlisten(other.listener, 1), 0);
	l.fd = other.listener;
	assert_int_equal(pthread_create(&thread, NULL, listen_on, &l), 0);
	while (__atomic_load_n(&l.thread, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	usleep(50000);
	before = sleeps_of(l.thread);
	exchange(&p);
	assert_in_range(sleeps_of(l.thread) - before, 0, FEW);
	other.client = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rconnect(other.client, (struct sockaddr *)&other.addr, sizeof(other.addr)),
			 0);
	assert_int_equal(pthread_join(thread, &fd), 0);
	other.server = (int)(intptr_t)fd;
	assert_true(other.server >= 0);
	end_pair(&other);
	end_pair(&p);
}

static void raccept__sleeps_through_the_data_of_others(void **state)
{
	sleeps_through(false);
}

static void rpoll__of_a_listener_sleeps_through_the_data_of_others(void **state)
{
	sleeps_through(true);
}

/* ---- a listener that is shut down ------------------------------------------------------------ */

static void *accept_until_the_end(void *arg)
{
	int fd = raccept(*(int *)arg, NULL, NULL);

	return (void *)(intptr_t)(fd < 0 ? errno : 0);
}

static void *poll_until_the_end(void *arg)
{
	return (void *)(intptr_t)ready(*(int *)arg, POLLIN, -1);
}

/* Its address may be another one now. */
static void connects_again(struct pair *p)
{
	socklen_t len = sizeof(p->addr);

	assert_int_equal(rlisten(p->listener, 1), 0);
	assert_int_equal(rgetsockname(p->listener, (struct sockaddr *)&p->addr, &len), 0);
	connect_to(p);
	exchange(p);
	end_pair(p);
}

static void rshutdown__of_a_listener_ends_waits(void **state)
{
	pthread_t accepts[2], polls;
	struct pair p;
	void *result;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&accepts[i], NULL, accept_until_the_end,
						&p.listener),
				 0);
	assert_int_equal(pthread_create(&polls, NULL, poll_until_the_end, &p.listener), 0);
	usleep(50000);
	assert_int_equal(rshutdown(p.listener, SHUT_WR), 0);
	assert_int_equal(rshutdown(p.listener, SHUT_RD), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(accepts[i], &result), 0);
		assert_int_equal((intptr_t)result, EINVAL);
	}
	assert_int_equal(pthread_join(polls, &result), 0);
	assert_int_equal((intptr_t)result, POLLHUP);
	fails(raccept(p.listener, NULL, NULL), EINVAL);
	fails(rshutdown(p.listener, SHUT_RD), ENOTCONN);
	connects_again(&p);
}

/* Those that it has not accepted: on demand none. Others: listen_test.c. */
static void rshutdown__of_a_listener_refuses_clients_that_wait(void **state)
{
	struct pair p;
	int on = 1;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rsetsockopt(p.listener, SOL_RDMA, RDMA_ACCEPT_ON_DEMAND, &on, sizeof(on)),
			 0);
	assert_int_equal(rlisten(p.listener, 1), 0);
	p.client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), EINPROGRESS);
	assert_int_equal(ready(p.listener, POLLIN, WAIT_MS), POLLIN);
	assert_int_equal(rshutdown(p.listener, SHUT_RDWR), 0);
	assert_true(ready(p.client, POLLOUT, WAIT_MS) & POLLERR);
	assert_int_equal(error_of(p.client), ECONNREFUSED);
	assert_int_equal(rclose(p.client), 0);
	connects_again(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(raccept__sleeps_through_the_data_of_others),
		cmocka_unit_test(rpoll__of_a_listener_sleeps_through_the_data_of_others),
		cmocka_unit_test(rshutdown__of_a_listener_ends_waits),
		cmocka_unit_test(rshutdown__of_a_listener_refuses_clients_that_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
