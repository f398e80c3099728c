/* socket_test.c: stream rsockets as programs expect sockets to be: arguments that make no sense,
 * pointers that lead nowhere, sizes out of bounds, and the ends of a connection beside TCP's.
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

enum { PAGE = 4096, LEAST_BUFFER = 4096, MOST_BUFFER = 32 << 20 };

/* ---- handlers of faults ---------------------------------------------------------------------- */

static const int signals[] = { SIGSEGV, SIGBUS };
static struct sigaction ours[2];

/* Those that come with the first rsocket. cmocka sets its own
 * before each test. */
static void keep_handlers(void)
{
	rclose(rsocket(AF_INET, SOCK_STREAM, 0));
	for (int i = 0; i < 2; i++)
		sigaction(signals[i], NULL, &ours[i]);
}

static void restore_handlers(void)
{
	for (int i = 0; i < 2; i++)
		sigaction(signals[i], &ours[i], NULL);
}

/* ---- sizes of buffers ------------------------------------------------------------------------ */

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

static void rsetsockopt__keeps_buffers_within_limits(void **state)
{
	static const struct {
		int asked, got;
	} sizes[] = { { 0, LEAST_BUFFER },	 { 1, LEAST_BUFFER },	{ 2049, 4098 },
		      { 100001, 200002 },	 { INT_MAX, MOST_BUFFER }, { -1, MOST_BUFFER } };
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		set_option(fd, SOL_SOCKET, SO_RCVBUF, sizes[i].asked);
		assert_int_equal(option(fd, SOL_SOCKET, SO_RCVBUF), sizes[i].got);
		set_option(fd, SOL_SOCKET, SO_SNDBUF, sizes[i].asked);
		assert_int_equal(option(fd, SOL_SOCKET, SO_SNDBUF), sizes[i].got);
	}
	assert_int_equal(rclose(fd), 0);
}

struct flow {
	int fd;
	size_t total;
};

static void *send_all(void *arg)
{
	static char block[50000];
	struct flow *f = arg;

	for (size_t at = 0; at < f->total;) {
		size_t left = f->total - at;
		ssize_t n = rsend(f->fd, block, left < sizeof(block) ? left : sizeof(block), 0);

		if (n <= 0)
			return (void *)1;
		at += (size_t)n;
	}
	return NULL;
}

static void receive_all(int fd, size_t total)
{
	static char block[50000];
	ssize_t n;

	for (size_t got = 0; got < total; got += (size_t)n) {
		n = rrecv(fd, block, sizeof(block), 0);
		assert_true(n > 0);
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The smallest buffers carry a stream in time, and the largest are there at once. */
static void rsetsockopt__of_any_buffer_makes_a_stream_that_works(void **state)
{
	static const int sizes[] = { 0, INT_MAX };
	struct pair p;
	pthread_t thread;
	void *failed;
	double begun;

	for (int i = 0; i < 2; i++) {
		struct flow f = { .total = 3 << 20 };

		listen_at(&p, "127.0.0.1");
		set_option(p.listener, SOL_SOCKET, SO_RCVBUF, sizes[i]);
		set_option(p.listener, SOL_SOCKET, SO_SNDBUF, sizes[i]);
		assert_int_equal(rlisten(p.listener, 1), 0);
		begun = seconds();
		connect_to(&p);
		assert_true(seconds() - begun < 2);
		f.fd = p.client;
		assert_int_equal(pthread_create(&thread, NULL, send_all, &f), 0);
		receive_all(p.server, f.total);
		assert_true(seconds() - begun < 15);
		assert_int_equal(pthread_join(thread, &failed), 0);
		assert_null(failed);
		end_pair(&p);
	}
}

/* ---- pointers that lead nowhere -------------------------------------------------------------- */
#ifndef __SANITIZE_THREAD__ /* its runtime does not survive a jump out of its own copy */

/* Two pages, of which the second one is not there. */
static char *half_there(void)
{
	char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);

	assert_true(page != MAP_FAILED);
	assert_int_equal(mprotect(page + PAGE, PAGE, PROT_NONE), 0);
	return page;
}

/* What came before the hole has been sent, and the stream goes on behind it. */
static void rsend__of_memory_that_is_not_there_is_EFAULT(void **state)
{
	char *page = half_there(), got[8 * PAGE];
	struct iovec two[2] = { { .iov_base = (char[]){ "ab" }, .iov_len = 2 },
				{ .iov_base = page + PAGE, .iov_len = 10 } };
	struct pair p;
	ssize_t n;

	restore_handlers();
	make_pair(&p);
	fails((int)rsend(p.client, NULL, 1, 0), EFAULT);
	fails((int)rsend(p.client, NULL, 100000, 0), EFAULT);
#ifndef __SANITIZE_ADDRESS__ /* no shadow is there */
	fails((int)rsend(p.client, (void *)(uintptr_t)0xdead000000000000ull, 300, 0), EFAULT);
#endif
	fails((int)rsend(p.client, page + PAGE - 10, 20, 0), EFAULT);
	fails((int)rwritev(p.client, two, 2), EFAULT);
	fails((int)rwritev(p.client, (struct iovec *)(page + PAGE), 1), EFAULT);
	fails((int)rwritev(p.client, NULL, 1), EFAULT);
	fails((int)rsendmsg(p.client, NULL, 0), EFAULT);
	assert_int_equal(rsend(p.client, NULL, 0, 0), 0);
	memset(page, 'x', PAGE);
	n = rsend(p.client, page, PAGE + 10, 0);
	assert_in_range(n, 1, PAGE);
	assert_int_equal(rsend(p.client, "end", 3, 0), 3);
	assert_int_equal(rrecv(p.server, got, (size_t)n + 3, MSG_WAITALL), n + 3);
	assert_memory_equal(got + n, "end", 3);
	for (ssize_t i = 0; i < n; i++)
		assert_int_equal(got[i], 'x');
	assert_int_equal(ready(p.server, POLLIN, 0), 0);
	end_pair(&p);
	munmap(page, 2 * PAGE);
}

/* Nothing is lost of what could not be given. */
static void rrecv__to_memory_that_is_not_there_is_EFAULT(void **state)
{
	char *page = half_there(), got[16];
	struct msghdr m = { .msg_iov = (struct iovec *)(page + PAGE), .msg_iovlen = 2 };
	struct pair p;

	restore_handlers();
	make_pair(&p);
	assert_int_equal(rsend(p.client, "0123456789", 10, 0), 10);
	assert_true(ready(p.server, POLLIN, WAIT_MS) & POLLIN);
	fails((int)rrecv(p.server, NULL, 10, 0), EFAULT);
	fails((int)rrecv(p.server, page + PAGE - 5, 10, MSG_PEEK), EFAULT);
	fails((int)rrecv(p.server, page + PAGE - 5, 10, MSG_WAITALL), EFAULT);
	fails((int)rreadv(p.server, NULL, 3), EFAULT);
	fails((int)rrecvmsg(p.server, NULL, 0), EFAULT);
	fails((int)rrecvmsg(p.server, &m, 0), EFAULT);
	assert_int_equal(rrecv(p.server, got, sizeof(got), 0), 10);
	assert_memory_equal(got, "0123456789", 10);
	end_pair(&p);
	munmap(page, 2 * PAGE);
}

static void a_call__with_other_pointers_that_lead_nowhere_is_EFAULT(void **state)
{
	char *page = half_there(), *gone = page + PAGE;
	struct sockaddr *where = (struct sockaddr *)gone;
	fd_set *set = (fd_set *)gone;
	socklen_t len = 16;
	int value;
	struct pair p;

	restore_handlers();
	make_pair(&p);
	fails(rbind(p.client, where, 16), EFAULT);
	fails(rgetsockname(p.client, where, &len), EFAULT);
	fails(rgetsockname(p.client, (struct sockaddr *)page, NULL), EFAULT);
	fails(rgetpeername(p.client, NULL, &len), EFAULT);
	fails(rsetsockopt(p.client, SOL_SOCKET, SO_KEEPALIVE, gone, 4), EFAULT);
	fails(rsetsockopt(p.client, SOL_SOCKET, SO_LINGER, NULL, 8), EFAULT);
	fails(rgetsockopt(p.client, SOL_SOCKET, SO_KEEPALIVE, gone, &len), EFAULT);
	fails(rgetsockopt(p.client, SOL_SOCKET, SO_KEEPALIVE, &value, NULL), EFAULT);
	fails(rpoll((struct pollfd *)(gone - 8), 2, 0), EFAULT);
	fails(rpoll(NULL, 1, 0), EFAULT);
	fails(rselect(p.client + 1, set, NULL, NULL, NULL), EFAULT);
	fails(rselect(0, NULL, NULL, NULL, (struct timeval *)gone), EFAULT);
	end_pair(&p);
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	fails(rconnect(p.client, where, 16), EFAULT);
	fails(rconnect(p.client, NULL, 16), EFAULT);
	fails(rconnect(p.client, NULL, 0), EINVAL);
	assert_int_equal(rclose(p.client), 0);
	munmap(page, 2 * PAGE);
}
#endif

/* ---- SOL_RDMA -------------------------------------------------------------------------------- */

/* More than the device has: it gives what it has, at both ends. */
static void RDMA_INLINE__beyond_the_devices_limit_connects(void **state)
{
	char byte = 5;
	struct pair p;

	listen_at(&p, "127.0.0.1");
	set_option(p.listener, SOL_RDMA, RDMA_INLINE, INT_MAX);
	assert_int_equal(rlisten(p.listener, 1), 0);
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	set_option(p.client, SOL_RDMA, RDMA_INLINE, 5000);
	connect_client(&p);
	assert_in_range(option(p.client, SOL_RDMA, RDMA_INLINE), 64, 4999);
	assert_in_range(option(p.server, SOL_RDMA, RDMA_INLINE), 64, 65533);
	assert_int_equal(rsend(p.client, &byte, 1, 0), 1);
	assert_int_equal(rrecv(p.server, &byte, 1, 0), 1);
	end_pair(&p);
}

static void RDMA_ROUTE__takes_paths_only(void **state)
{
	char no_path[2 * sizeof(struct ibv_path_data)], given[sizeof(no_path)];
	struct ibv_path_data path;
	socklen_t len = sizeof(path);
	struct pair p;

	restore_handlers();
	make_pair(&p);
	assert_int_equal(rgetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, &path, &len), 0);
	fails(rsetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, &path, len), EINVAL);
	assert_int_equal(rclose(p.client), 0);
	assert_int_equal(rclose(p.server), 0);
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	memset(no_path, 1, sizeof(no_path));
	fails(rsetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, no_path, sizeof(no_path)), EINVAL);
	fails(rsetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, &path, sizeof(path) - 1), EINVAL);
	fails(rsetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, &path, 0), EINVAL);
	fails(rsetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, NULL, sizeof(path)), EFAULT);
	memcpy(no_path + sizeof(path), &path, sizeof(path));
	assert_int_equal(rsetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, no_path, sizeof(no_path)), 0);
	len = sizeof(given);
	assert_int_equal(rgetsockopt(p.client, SOL_RDMA, RDMA_ROUTE, given, &len), 0);
	assert_int_equal(len, sizeof(no_path));
	assert_memory_equal(given, no_path, len);
	connect_client(&p);
	end_pair(&p);
}

/* ---- making and refusing --------------------------------------------------------------------- */

static void rsocket__takes_the_flags_of_its_type(void **state)
{
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int plain = rsocket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	int dgram = rsocket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP);
	char byte;

	assert_true(fd >= 0 && plain >= 0 && dgram >= 0);
	assert_true(rfcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_false(rfcntl(plain, F_GETFL) & O_NONBLOCK);
	assert_true(rfcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(rfcntl(plain, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(option(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	fails((int)rrecv(dgram, &byte, 1, 0), EAGAIN);
	fails(rsocket(AF_INET, SOCK_STREAM | 0x100000, 0), EINVAL);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(plain), 0);
	assert_int_equal(rclose(dgram), 0);
}

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

/* ---- ::1 ------------------------------------------------------------------------------------- */

static void is_localhost6(int (*name)(int, struct sockaddr *, socklen_t *), int fd, in_port_t port)
{
	struct sockaddr_in6 in6;
	socklen_t len = sizeof(in6);

	assert_int_equal(name(fd, (struct sockaddr *)&in6, &len), 0);
	assert_int_equal(in6.sin6_family, AF_INET6);
	assert_true(IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr));
	assert_true(port == 0 || port == in6.sin6_port);
}

/* The device has an IPv4 address; both ends show that of the connection, and a listener of IPv4
 * does not hear of it. */
static void rconnect__to_the_loopback_address_of_IPv6_has_it_at_both_ends(void **state)
{
	const char *const ips[] = { "::", "::1" };
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct pair p;
	in_port_t port;

	for (size_t i = 0; i < sizeof(ips) / sizeof(*ips); i++) {
		listen_at(&p, ips[i]);
		assert_int_equal(rlisten(p.listener, 8), 0);
		port = ((struct sockaddr_in6 *)&p.addr)->sin6_port;
		((struct sockaddr_in6 *)&p.addr)->sin6_addr = at.sin6_addr;
		connect_to(&p);
		is_localhost6(rgetsockname, p.client, 0);
		is_localhost6(rgetpeername, p.client, port);
		is_localhost6(rgetsockname, p.server, port);
		is_localhost6(rgetpeername, p.server, 0);
		end_pair(&p);
	}
	listen_at(&p, "0.0.0.0");
	assert_int_equal(rlisten(p.listener, 8), 0);
	at.sin6_port = ((struct sockaddr_in *)&p.addr)->sin_port;
	p.client = rsocket(AF_INET6, SOCK_STREAM, 0);
	fails(rconnect(p.client, (struct sockaddr *)&at, sizeof(at)), ECONNREFUSED);
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
		cmocka_unit_test(rsetsockopt__keeps_buffers_within_limits),
		cmocka_unit_test(rsetsockopt__of_any_buffer_makes_a_stream_that_works),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(rsend__of_memory_that_is_not_there_is_EFAULT),
		cmocka_unit_test(rrecv__to_memory_that_is_not_there_is_EFAULT),
		cmocka_unit_test(a_call__with_other_pointers_that_lead_nowhere_is_EFAULT),
#endif
		cmocka_unit_test(RDMA_INLINE__beyond_the_devices_limit_connects),
		cmocka_unit_test(RDMA_ROUTE__takes_paths_only),
		cmocka_unit_test(rsocket__takes_the_flags_of_its_type),
		cmocka_unit_test(rlisten__after_a_refusal_listens_at_the_bound_address),
		cmocka_unit_test(rbind__after_a_refusal_of_an_unbound_one_binds),
		cmocka_unit_test(rconnect__to_the_loopback_address_of_IPv6_has_it_at_both_ends),
		cmocka_unit_test(rpoll__says_of_shut_ends_what_TCP_says),
	};

	keep_handlers();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
