/* habits_cancel.c: careless programs that cancel threads in the middle of a call, as iperf3 does.
 * In: -    Out: a trace, as of habits.c    Runs: threads of one process
 */
#include "habits.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NAP_MS = 20, JOIN_S = 20, STREAMS = 4, ROUNDS = 10, MUCH = 1 << 20 };

/* What a thread does until it is cancelled. */
struct way {
	const char *name;
	void (*run)(int fd);
	int listens; /* fd is a listener, not a connection */
};

struct blocked {
	pthread_t thread;
	const struct way *way;
	int fd, type;
};

static void *block(void *arg)
{
	struct blocked *b = arg;

	pthread_setcanceltype(b->type, NULL);
	b->way->run(b->fd);
	return NULL;
}

static void begin(struct blocked *b)
{
	if (pthread_create(&b->thread, NULL, block, b) != 0)
		puts("no thread");
}

/* A thread that holds what others need would let a program hang: it is not waited for. */
static void end(struct blocked *b)
{
	struct timespec until;
	void *result = NULL;

	pthread_cancel(b->thread);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_S;
	if (pthread_timedjoin_np(b->thread, &result, &until) != 0) {
		printf("%s: it does not end\n", b->way->name);
		exit(1);
	}
	if (result != PTHREAD_CANCELED)
		printf("%s: it was not cancelled\n", b->way->name);
}

/* ---- what threads do ---- */

static void with_read(int fd)
{
	char byte;

	for (;;)
		(void)!read(fd, &byte, 1);
}

static void with_readv(int fd)
{
	char bytes[20];
	struct iovec v[20];

	for (int i = 0; i < 20; i++)
		v[i] = (struct iovec){ &bytes[i], 1 };
	(void)!readv(fd, v, 20);
}

static void with_recvmsg(int fd)
{
	char byte;
	struct iovec v = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &v, .msg_iovlen = 1 };

	recvmsg(fd, &msg, 0);
}

static void with_recv_timeout(int fd)
{
	struct timeval t = { .tv_sec = 100 };
	char byte;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	recv(fd, &byte, 1, MSG_WAITALL);
}

static void with_write(int fd)
{
	static char data[MUCH];

	for (;;)
		(void)!write(fd, data, sizeof(data));
}

static void with_sendfile(int fd)
{
	int zeroes = open("/proc/self/exe", O_RDONLY);
	off_t at;

	/* the file stays open: the thread is cancelled */
	for (;;) {
		at = 0;
		sendfile(fd, zeroes, &at, MUCH);
	}
}

static void with_poll(int fd)
{
	struct pollfd p[100];

	for (int i = 0; i < 100; i++)
		p[i] = (struct pollfd){ .fd = fd, .events = POLLIN };
	for (;;)
		poll(p, 100, 10000);
}

static void with_ppoll(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	sigset_t none;

	sigemptyset(&none);
	for (;;)
		ppoll(&p, 1, NULL, &none);
}

static void with_select(int fd)
{
	fd_set in;

	for (;;) {
		FD_ZERO(&in);
		FD_SET(fd, &in);
		select(fd + 1, &in, NULL, NULL, NULL);
	}
}

static int waits; /* an epoll */

static void with_epoll(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	epoll_ctl(waits, EPOLL_CTL_ADD, fd, &event);
	for (;;)
		epoll_wait(waits, &event, 1, 10000);
}

static void with_accept(int fd)
{
	for (;;)
		close(accept(fd, NULL, NULL));
}

/* Never blocks, and takes locks all the time. */
static void with_options(int fd)
{
	int on = 1;
	socklen_t size = sizeof(on);
	char byte;

	for (;;) {
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &on, &size);
		recv(fd, &byte, 1, MSG_DONTWAIT);
		send(fd, &byte, 1, MSG_DONTWAIT);
	}
}

static const struct way ways[] = {
	{ "read", with_read, 0 },	{ "readv", with_readv, 0 },
	{ "recvmsg", with_recvmsg, 0 }, { "recv with a timeout", with_recv_timeout, 0 },
	{ "write", with_write, 0 },	{ "sendfile", with_sendfile, 0 },
	{ "poll", with_poll, 0 },	{ "ppoll", with_ppoll, 0 },
	{ "select", with_select, 0 },	{ "epoll", with_epoll, 0 },
	{ "options", with_options, 0 }, { "accept", with_accept, 1 },
	{ "poll a listener", with_poll, 1 },
};

/* ---- the programs ---- */

static void empty(int fd)
{
	static char data[MUCH];

	while (recv(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
}

/* Two threads in the same call, then the connection goes on and ends. */
static void cancel_way(const struct way *way, int type)
{
	struct blocked threads[2];
	int listener = server_socket(5), fds[2];
	char byte = 'x';

	waits = epoll_create1(0);
	fds[0] = client_socket();
	fds[1] = accept(listener, NULL, NULL);
	for (int i = 0; i < 2; i++) {
		threads[i] = (struct blocked){ .way = way,
					       .type = type,
					       .fd = way->listens ? listener : fds[0] };
		begin(&threads[i]);
	}
	nap(NAP_MS);
	end(&threads[0]);
	end(&threads[1]);
	empty(fds[1]);
	printf("%s: write %s,", way->name, result(write(fds[1], &byte, 1)));
	printf(" read %s\n", result(read(fds[0], &byte, 1)));
	close(waits);
	close(fds[0]);
	empty(fds[1]);
	printf("the end: %s\n", result(read(fds[1], &byte, 1)));
	close(fds[1]);
	close(listener);
}

void cancel_deferred(void)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		/* the C library has no cancellation point in these */
		if (ways[i].run != with_options && ways[i].run != with_sendfile)
			cancel_way(&ways[i], PTHREAD_CANCEL_DEFERRED);
}

void cancel_at_once(void)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		cancel_way(&ways[i], PTHREAD_CANCEL_ASYNCHRONOUS);
}

/* iperf3: a thread for each stream at either end, all busy, then cancelled. */
void cancel_busy(void)
{
	static const struct way sends = { "a sender", with_write, 0 };
	static const struct way receives = { "a receiver", with_read, 0 };
	struct blocked threads[2 * STREAMS];
	int fds[STREAMS][2], ended = 0;

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < STREAMS; i++) {
			make_pair(fds[i]);
			for (int end = 0; end < 2; end++) {
				struct blocked *b = &threads[2 * i + end];

				*b = (struct blocked){ .way = end == 0 ? &sends : &receives,
						       .fd = fds[i][end],
						       .type = PTHREAD_CANCEL_ASYNCHRONOUS };
				begin(b);
			}
		}
		nap(round);
		for (int i = 0; i < 2 * STREAMS; i++, ended++)
			end(&threads[i]);
		for (int i = 0; i < STREAMS; i++) {
			close(fds[i][0]);
			close(fds[i][1]);
		}
	}
	say("threads", ended);
}
