/* ends_test.c: how a stream ends when the peer's process does, without closing it. Between
 * processes of one node as with TCP, whose kernel closes for the process; over a wire by
 * ECONNRESET, for what the process had not delivered is lost.
 *
 * Each peer is this program again, a process that has never forked: "ends ROLE PORT".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "pair.h"

enum {
	MUCH = 300000, /* more than half of a receive buffer: the reader gives room back */
	REST = 1000,   /* less than its last message */
	LITTLE = 16,   /* receives for data */
	MAPS = 12,     /* more messages than this end has further receives for */
	FULL_MS = 300, /* a stream without room for so long has filled its peer's buffer */
};

static char block[MUCH];

/* ---- the peer -------------------------------------------------------------------------------- */

static void peer_send(int fd, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = rsend(fd, block + at, bytes - at, 0);

		if (n <= 0)
			_exit(2);
		at += (size_t)n;
	}
}

/* Messages that use up no credits, and then as many as are allowed. */
static int peer_overrun(int fd)
{
	for (int i = 0; i < MAPS; i++)
		if (riomap(fd, block, sizeof(block), PROT_WRITE, 0, -1) < 0)
			return 6;
	while (ready(fd, POLLOUT, FULL_MS) == POLLOUT)
		if (rsend(fd, block, 1, 0) != 1)
			return 6;
	return 0;
}

/* S sends much, s a byte, O more messages than there are receives; R receives a byte; k is killed,
 * e ends by _exit, x by exit, w waits to be killed; a aborts and waits. */
static int peer(const char *role, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct linger now = { .l_onoff = 1 };
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	if (rconnect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		return 3;
	for (; *role != '\0'; role++) {
		if (*role == 'S')
			peer_send(fd, MUCH);
		else if (*role == 's')
			peer_send(fd, 1);
		else if (*role == 'O' && peer_overrun(fd) != 0)
			return 6;
		else if (*role == 'R' && rrecv(fd, block, 1, 0) != 1)
			return 4;
		else if (*role == 'k')
			kill(getpid(), SIGKILL);
		else if (*role == 'e')
			_exit(0);
		else if (*role == 'x')
			exit(0);
		else if (*role == 'w')
			pause();
		else if (*role == 'a' && (rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &now,
						      sizeof(now)) != 0 || rclose(fd) != 0))
			return 5;
	}
	return 0;
}

/* ---- this end -------------------------------------------------------------------------------- */

static bool on_wire(void)
{
	return getenv("ANYVERBS_PATHS") != NULL;
}

struct meeting {
	struct pair p;
	pid_t child;
};

static void set(int fd, int option, int value)
{
	assert_int_equal(rsetsockopt(fd, SOL_RDMA, option, &value, sizeof(value)), 0);
}

static void meet(struct meeting *m, const char *role)
{
	char port[16];

	listen_at(&m->p, "127.0.0.1");
	if (strchr(role, 'O') != NULL) {
		set(m->p.listener, RDMA_RQSIZE, LITTLE);
		set(m->p.listener, RDMA_IOMAPSIZE, MAPS);
	}
	assert_int_equal(rlisten(m->p.listener, 1), 0);
	snprintf(port, sizeof(port), "%d",
		 ntohs(((struct sockaddr_in *)&m->p.addr)->sin_port));
	m->child = vfork();
	assert_true(m->child >= 0);
	if (m->child == 0) {
		execl("/proc/self/exe", "ends", role, port, NULL);
		_exit(9);
	}
	m->p.server = raccept(m->p.listener, NULL, NULL);
	assert_true(m->p.server >= 0);
}

static void part(struct meeting *m)
{
	assert_int_equal(waitpid(m->child, NULL, 0), m->child);
	assert_int_equal(rclose(m->p.server), 0);
	assert_int_equal(rclose(m->p.listener), 0);
}

static void receive(struct meeting *m, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = rrecv(m->p.server, block, sizeof(block), 0);

		assert_true(n > 0);
		at += (size_t)n;
	}
}

/* What a blocking call to receive says. */
static void ends_in_order(struct meeting *m)
{
	if (on_wire()) {
		fails((int)rrecv(m->p.server, block, 1, 0), ECONNRESET);
		return;
	}
	assert_int_equal(rrecv(m->p.server, block, 1, 0), 0);
	assert_int_equal(rrecv(m->p.server, block, 1, 0), 0);
	assert_int_equal(ready(m->p.server, POLLIN | POLLRDHUP, WAIT_MS), POLLIN | POLLRDHUP);
	assert_int_equal(error_of(m->p.server), 0);
}

static void a_peer_that_ends__ends_the_stream_in_order(void **state)
{
	static const char *const ways[] = { "k", "e", "x", "sk", "sRe", "Rsx" };
	struct meeting m;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		meet(&m, ways[i]);
		if (strchr(ways[i], 'R') != NULL)
			assert_int_equal(rsend(m.p.server, block, 1, 0), 1);
		receive(&m, strchr(ways[i], 's') != NULL);
		ends_in_order(&m);
		fails((int)rsend(m.p.server, block, 1, 0), ECONNRESET);
		part(&m);
	}
}

/* This end gives room back that nobody takes any more, and has bytes left to read. */
static void a_peer_that_ends_behind_much__ends_the_stream_in_order(void **state)
{
	struct meeting m;
	siginfo_t info;

	if (on_wire()) /* where its last packets may end with it */
		skip();
	meet(&m, "SRe");
	assert_int_equal(rrecv(m.p.server, block, MUCH - REST, MSG_WAITALL), MUCH - REST);
	assert_int_equal(rsend(m.p.server, block, 1, 0), 1);
	assert_int_equal(waitid(P_PID, (id_t)m.child, &info, WEXITED | WNOWAIT), 0);
	receive(&m, REST);
	ends_in_order(&m);
	part(&m);
}

/* What a process posts just before it ends may be lost: then the stream does not end in order. */
static void a_peer_that_ends_at_once__hides_no_loss(void **state)
{
	struct meeting m;
	size_t got;
	ssize_t n;

	for (int i = 0; i < 10; i++) {
		meet(&m, "Se");
		for (got = 0; (n = rrecv(m.p.server, block, sizeof(block), 0)) > 0;
		     got += (size_t)n)
			continue;
		assert_true(n == 0 ? got == MUCH : errno == ECONNRESET && got <= MUCH);
		part(&m);
	}
}

/* Its last messages have found no receive. */
static void a_peer_that_ends_with_messages_to_send__resets_the_stream(void **state)
{
	struct meeting m;
	siginfo_t info;
	ssize_t n;

	meet(&m, "Ok");
	assert_int_equal(waitid(P_PID, (id_t)m.child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(info.si_status, SIGKILL);
	do
		n = rrecv(m.p.server, block, sizeof(block), 0);
	while (n > 0);
	fails((int)n, ECONNRESET);
	part(&m);
}

/* It has bytes that it has not read: TCP resets such a connection. */
static void a_peer_that_has_not_read__resets_the_stream(void **state)
{
	struct meeting m;

	meet(&m, "w");
	do /* its adapter acknowledges what is in this end's buffer, and then there is room again */
		while (rsend(m.p.server, block, sizeof(block), MSG_DONTWAIT) > 0)
			;
	while (ready(m.p.server, POLLOUT, FULL_MS) != 0);
	kill(m.child, SIGKILL);
	fails((int)rrecv(m.p.server, block, 1, 0), ECONNRESET);
	part(&m);
}

/* SO_LINGER with a time of 0, and a process that goes on. */
static void a_peer_that_aborts__resets_the_stream(void **state)
{
	struct meeting m;

	meet(&m, "aw");
	fails((int)rrecv(m.p.server, block, 1, 0), ECONNRESET);
	kill(m.child, SIGKILL);
	part(&m);
}

/* Threads that sleep in each of the ways hear of it. */
static void a_peer_that_is_killed__wakes_who_waits(void **state)
{
	struct meeting m;
	short events;

	meet(&m, "sw");
	receive(&m, 1); /* its call to connect has returned */
	assert_int_equal(ready(m.p.server, POLLIN, 10), 0);
	kill(m.child, SIGKILL);
	events = ready(m.p.server, POLLIN | POLLRDHUP, WAIT_MS);
	if (on_wire())
		assert_true(events & POLLERR);
	else
		assert_int_equal(events, POLLIN | POLLRDHUP);
	part(&m);
}

/* Many at once, as when a server is killed; each connection of it. */
static void many_streams_of_a_peer__all_end(void **state)
{
	enum { MANY = 12 };
	struct meeting m[MANY];

	for (int i = 0; i < MANY; i++)
		meet(&m[i], "sw");
	for (int i = 0; i < MANY; i++)
		receive(&m[i], 1);
	for (int i = 0; i < MANY; i++)
		kill(m[i].child, SIGKILL);
	for (int i = MANY; i-- > 0;) {
		ends_in_order(&m[i]);
		part(&m[i]);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_ends__ends_the_stream_in_order),
		cmocka_unit_test(a_peer_that_ends_behind_much__ends_the_stream_in_order),
		cmocka_unit_test(a_peer_that_ends_at_once__hides_no_loss),
		cmocka_unit_test(a_peer_that_ends_with_messages_to_send__resets_the_stream),
		cmocka_unit_test(a_peer_that_has_not_read__resets_the_stream),
		cmocka_unit_test(a_peer_that_aborts__resets_the_stream),
		cmocka_unit_test(a_peer_that_is_killed__wakes_who_waits),
		cmocka_unit_test(many_streams_of_a_peer__all_end),
	};

	if (argc == 3)
		return peer(argv[1], atoi(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
