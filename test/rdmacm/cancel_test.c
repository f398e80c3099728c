/* cancel_test.c: threads that are cancelled while a call of an rsocket blocks: they end, and leave
 * nothing behind: the rsockets go on, and their numbers are free after rclose. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "pair.h"

/* One thread drives the device while it sleeps, the other does not. */
enum { THREADS = 2, SLEEP_US = 20000, MANY = 40, PARTS = 20 };

/* Of a newer release than the headers. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int most, int timeout);

struct blocked {
	pthread_t thread;
	void (*call)(int fd);
	int fd;
};

static void *block(void *arg)
{
	struct blocked *b = arg;

	b->call(b->fd);
	return NULL;
}

/* Two threads come into the call, and are cancelled there. */
static void cancel_in(void (*call)(int fd), int fd)
{
	struct blocked threads[THREADS];
	struct timespec until;
	void *result;

	for (int i = 0; i < THREADS; i++) {
		threads[i] = (struct blocked){ .call = call, .fd = fd };
		assert_int_equal(pthread_create(&threads[i].thread, NULL, block, &threads[i]), 0);
	}
	usleep(SLEEP_US);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_MS / 1000;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_cancel(threads[i].thread), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_timedjoin_np(threads[i].thread, &result, &until), 0);
		assert_ptr_equal(result, PTHREAD_CANCELED);
	}
}

/* Threads that sleep are still woken. */
static void *answer(void *arg)
{
	struct pair *p = arg;
	char byte;

	assert_int_equal(rrecv(p->server, &byte, 1, 0), 1);
	assert_int_equal(rsend(p->server, &byte, 1, 0), 1);
	return NULL;
}

static void talks(struct pair *p)
{
	pthread_t thread;
	char byte = 'x';

	assert_int_equal(pthread_create(&thread, NULL, answer, p), 0);
	usleep(SLEEP_US);
	assert_int_equal(rsend(p->client, &byte, 1, 0), 1);
	assert_int_equal(rrecv(p->client, &byte, 1, 0), 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* No call has the rsocket any more; the library's own thread may, for a moment. */
static void closes(int fd)
{
	assert_int_equal(rclose(fd), 0);
	for (int ms = 0; ms < WAIT_MS && fcntl(fd, F_GETFD) >= 0; ms++)
		usleep(1000);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(errno, EBADF);
}

static void closes_pair(struct pair *p)
{
	closes(p->client);
	closes(p->server);
	closes(p->listener);
}

/* ---- calls that block ------------------------------------------------------------------------ */

static void receive(int fd)
{
	char byte;

	(void)rrecv(fd, &byte, 1, 0);
}

/* More parts than a call keeps on its stack. */
static void receive_parts(int fd)
{
	char bytes[PARTS];
	struct iovec v[PARTS];

	for (int i = 0; i < PARTS; i++)
		v[i] = (struct iovec){ &bytes[i], 1 };
	(void)rreadv(fd, v, PARTS);
}

static void send_much(int fd)
{
	static char data[1 << 20];

	for (;;)
		(void)rsend(fd, data, sizeof(data), 0);
}

static void poll_one(int fd)
{
	(void)ready(fd, POLLIN, -1);
}

static void poll_many(int fd)
{
	struct pollfd fds[MANY];

	for (int i = 0; i < MANY; i++)
		fds[i] = (struct pollfd){ .fd = fd, .events = POLLIN };
	(void)rpoll(fds, MANY, -1);
}

static void select_one(int fd)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	(void)rselect(fd + 1, &in, NULL, NULL, NULL);
}

static void accept_one(int fd)
{
	(void)raccept(fd, NULL, NULL);
}

static void wait_in_set(int set)
{
	struct epoll_event event;

	(void)repoll_wait(set, &event, 1, -1);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void rrecv__may_be_cancelled(void **state)
{
	struct pair p;

	make_pair(&p);
	cancel_in(receive, p.server);
	cancel_in(receive_parts, p.server);
	talks(&p);
	closes_pair(&p);
}

static void rpoll__may_be_cancelled(void **state)
{
	struct pair p;

	make_pair(&p);
	cancel_in(poll_one, p.server);
	cancel_in(poll_many, p.server);
	cancel_in(select_one, p.server);
	talks(&p);
	closes_pair(&p);
}

/* What the cancelled calls have sent arrives, and the connection goes on. */
static void rsend__may_be_cancelled(void **state)
{
	static char data[1 << 20];
	struct pair p;
	ssize_t n;

	make_pair(&p);
	cancel_in(send_much, p.client);
	assert_int_equal(rfcntl(p.server, F_SETFL, O_NONBLOCK), 0);
	do
		n = rrecv(p.server, data, sizeof(data), 0);
	while (n > 0);
	assert_int_equal(n, -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(rfcntl(p.server, F_SETFL, 0), 0);
	talks(&p);
	closes_pair(&p);
}

static void raccept__may_be_cancelled(void **state)
{
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	cancel_in(accept_one, p.listener);
	cancel_in(poll_one, p.listener);
	connect_to(&p);
	talks(&p);
	closes_pair(&p);
}

static void repoll_wait__may_be_cancelled(void **state)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = repoll_create(0);
	struct pair p;

	make_pair(&p);
	assert_true(set >= 0);
	assert_int_equal(repoll_ctl(set, EPOLL_CTL_ADD, p.server, &event), 0);
	cancel_in(wait_in_set, set);
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	assert_int_equal(repoll_wait(set, &event, 1, -1), 1);
	closes(set);
	closes_pair(&p);
}

static void rrecv_of_datagrams__may_be_cancelled(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t size = sizeof(at);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	char byte = 'x';

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(rbind(fd, (struct sockaddr *)&at, size), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)&at, &size), 0);
	cancel_in(receive, fd);
	cancel_in(poll_one, fd);
	assert_int_equal(rsendto(fd, &byte, 1, 0, (struct sockaddr *)&at, size), 1);
	assert_int_equal(rrecv(fd, &byte, 1, 0), 1);
	closes(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rrecv__may_be_cancelled),
		cmocka_unit_test(rpoll__may_be_cancelled),
		cmocka_unit_test(rsend__may_be_cancelled),
		cmocka_unit_test(raccept__may_be_cancelled),
		cmocka_unit_test(repoll_wait__may_be_cancelled),
		cmocka_unit_test(rrecv_of_datagrams__may_be_cancelled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
