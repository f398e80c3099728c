/* socket_test.c: stream rsockets as programs expect sockets to be: after a refusal, and the ends of
 * a connection beside TCP's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "pair.h"

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	assert_int_equal(rgetsockopt(fd, level, name, &value, &len), 0);
	assert_int_equal(len, sizeof(value));
	return value;
}

static void set_option(int fd, int level, int name, int value)
{
	assert_int_equal(rsetsockopt(fd, level, name, &value, sizeof(value)), 0);
}

/* ---- after a refusal ------------------------------------------------------------------------ */

/* The address and the options are the rsocket's, whichever id the CM has for it. */
static void rlisten__after_a_refusal_listens_at_the_bound_address(void **state)
{
	struct sockaddr_in from = { .sin_family = AF_INET }, now;
	socklen_t len = sizeof(now);
	struct pair p;

	listen_at(&p, "127.0.0.1");
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	from.sin_port = htons((uint16_t)(20000 + getpid() % 10000));
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	set_option(p.client, SOL_SOCKET, SO_REUSEADDR, 1);
	assert_int_equal(rbind(p.client, (struct sockaddr *)&from, sizeof(from)), 0);
	for (int i = 0; i < 2; i++)
		fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), ECONNREFUSED);
	assert_int_equal(rlisten(p.client, 4), 0);
	assert_int_equal(rgetsockname(p.client, (struct sockaddr *)&now, &len), 0);
	assert_int_equal(now.sin_port, from.sin_port);
	assert_int_equal(option(p.client, SOL_SOCKET, SO_ACCEPTCONN), 1);
	assert_int_equal(rclose(p.listener), 0);
	p.listener = p.client;
	memcpy(&p.addr, &from, sizeof(from));
	connect_to(&p);
	end_pair(&p);
}

static void rbind__after_a_refusal_of_an_unbound_one_binds(void **state)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	struct pair p;

	listen_at(&p, "127.0.0.1");
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), ECONNREFUSED);
	assert_int_equal(rbind(p.client, (struct sockaddr *)&from, sizeof(from)), 0);
	fails(rbind(p.client, (struct sockaddr *)&from, sizeof(from)), EINVAL);
	assert_int_equal(rclose(p.client), 0);
	assert_int_equal(rclose(p.listener), 0);
}

/* ---- the ends of a connection, beside TCP ---------------------------------------------------- */

static void tcp_pair(int fds[2])
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(in);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &len), 0);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fds[0], (struct sockaddr *)&in, sizeof(in)), 0);
	fds[1] = accept(listener, NULL, NULL);
	close(listener);
}

enum { ENDS = 2, WAYS = 3, STEPS = 3, STEP_KINDS = ENDS * WAYS, SETTLE_MS = 400 };

/* Shutdowns of either end in some order, as a number: each digit an end and a way. */
static int run_steps(int plan, const int fds[2], int (*shut)(int, int))
{
	int what[STEPS], results = 0;

	for (int i = 0; i < STEPS; i++, plan /= STEP_KINDS)
		what[i] = plan % STEP_KINDS;
	for (int i = 0; i < STEPS; i++)
		results = results * 2 + (shut(fds[what[i] / WAYS], what[i] % WAYS) == 0);
	return results;
}

enum { SEEN = POLLIN | POLLOUT | POLLHUP | POLLRDHUP };

/* A moment later both say the same, or they have had time enough. */
static bool same_ends(const int tcp[2], const struct pair *p, short seen[4])
{
	const int rs[2] = { p->client, p->server };

	for (int end = 0; end < ENDS; end++) {
		struct pollfd f = { .fd = tcp[end], .events = POLLIN | POLLOUT | POLLRDHUP };

		poll(&f, 1, 0);
		seen[end] = f.revents & SEEN;
		seen[2 + end] = ready(rs[end], POLLIN | POLLOUT | POLLRDHUP, 0) & SEEN;
	}
	return seen[0] == seen[2] && seen[1] == seen[3];
}

static void show(int plan, const short seen[4])
{
	char text[64] = "";

	for (int i = 0; i < STEPS; i++, plan /= STEP_KINDS)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s:%s",
			 plan % STEP_KINDS / WAYS ? "B" : "A",
			 (const char *const[]){ "RD", "WR", "RDWR" }[plan % WAYS]);
	print_message("%s: tcp %#x %#x, rsockets %#x %#x\n", text, seen[0], seen[1], seen[2],
		      seen[3]);
}

static void rpoll__says_of_shut_ends_what_TCP_says(void **state)
{
	int tcp[2], different = 0, plans = 1;
	short seen[4];
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 8), 0);
	for (int i = 0; i < STEPS; i++)
		plans *= STEP_KINDS;
	for (int plan = 0; plan < plans; plan++) {
		bool same = false;

		tcp_pair(tcp);
		connect_to(&p);
		run_steps(plan, tcp, shutdown);
		run_steps(plan, (int[]){ p.client, p.server }, rshutdown);
		for (int ms = 0; ms < SETTLE_MS && !same; ms++) {
			same = same_ends(tcp, &p, seen);
			if (!same)
				usleep(1000);
		}
		if (!same)
			show(plan, seen);
		different += !same;
		close(tcp[0]);
		close(tcp[1]);
		assert_int_equal(rclose(p.client), 0);
		assert_int_equal(rclose(p.server), 0);
	}
	assert_int_equal(rclose(p.listener), 0);
	assert_int_equal(different, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rlisten__after_a_refusal_listens_at_the_bound_address),
		cmocka_unit_test(rbind__after_a_refusal_of_an_unbound_one_binds),
		cmocka_unit_test(rpoll__says_of_shut_ends_what_TCP_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
