/* dgram_test.c: datagram rsockets, both ends in one process, and peers that break the protocol.
 * In:    -    Out: cmocka's report    Runs: the test's thread, and one that a test starts
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "cm.h"

enum { SOON_MS = 5000, LIMIT = 2048 - 16 };

/* ---- both ends ------------------------------------------------------------------------------- */

static int opened(int family)
{
	int fd = rsocket(family, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	return fd;
}

/* A bound rsocket; its address in *name. */
static int bound(struct sockaddr_in *name)
{
	socklen_t len = sizeof(*name);
	int fd = opened(AF_INET);

	assert_int_equal(rbind(fd, local(0), sizeof(*name)), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)name, &len), 0);
	assert_int_not_equal(name->sin_port, 0);
	return fd;
}

static void readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(rpoll(&p, 1, SOON_MS), 1);
	assert_int_equal(p.revents, POLLIN);
}

static bool is_readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return rpoll(&p, 1, ms) == 1;
}

static ssize_t sent(int fd, const void *data, size_t bytes, const struct sockaddr_in *to)
{
	return rsendto(fd, data, bytes, 0, (const struct sockaddr *)to,
		       to != NULL ? sizeof(*to) : 0);
}

/* Takes a datagram, which must be this one, from there. */
static void takes(int fd, const char *text, const struct sockaddr_in *from)
{
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	char got[64];

	readable(fd);
	assert_int_equal(rrecvfrom(fd, got, sizeof(got), 0, (struct sockaddr *)&name, &len),
			 strlen(text));
	assert_memory_equal(got, text, strlen(text));
	assert_int_equal(len, sizeof(name));
	assert_int_equal(name.sin_port, from->sin_port);
	assert_int_equal(name.sin_addr.s_addr, from->sin_addr.s_addr);
}

/* From now on nothing comes through the rsocket's UDP socket, whose number it has. */
static void deafen(int fd)
{
	struct sock_filter drop = { .code = BPF_RET | BPF_K };
	struct sock_fprog program = { .len = 1, .filter = &drop };

	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

struct pair {
	int a, b;
	struct sockaddr_in a_name, b_name;
};

/* Two rsockets that know each other's queue pair. */
static void make_pair(struct pair *p)
{
	p->a = bound(&p->a_name);
	p->b = bound(&p->b_name);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sent(p->a, "ping", 4, &p->b_name), 4);
		takes(p->b, "ping", &p->a_name);
		assert_int_equal(sent(p->b, "pong", 4, &p->a_name), 4);
		takes(p->a, "pong", &p->b_name);
		usleep(20000);
	}
}

static void end_pair(struct pair *p)
{
	assert_int_equal(rclose(p->a), 0);
	assert_int_equal(rclose(p->b), 0);
}

/* ---- what works ------------------------------------------------------------------------------ */

static void dgram__goes_over_queue_pairs_once_they_are_known(void **state)
{
	struct pair p;

	make_pair(&p);
	deafen(p.a);
	deafen(p.b);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(sent(p.a, "there", 5, &p.b_name), 5);
		takes(p.b, "there", &p.a_name);
		assert_int_equal(sent(p.b, "back", 4, &p.a_name), 4);
		takes(p.a, "back", &p.b_name);
	}
	end_pair(&p);
}

static void dgram__connected_sends_to_its_peer(void **state)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct sockaddr_in name, server_name;
	socklen_t len = sizeof(name);
	int server = bound(&server_name), client = opened(AF_INET);
	char got[8];

	fails((int)rsend(client, "x", 1, 0), EDESTADDRREQ);
	fails(rgetpeername(client, (struct sockaddr *)&name, &len), ENOTCONN);
	fails(rshutdown(client, SHUT_RDWR), ENOTCONN);
	assert_int_equal(rconnect(client, (struct sockaddr *)&server_name, sizeof(server_name)), 0);
	assert_int_equal(rgetpeername(client, (struct sockaddr *)&name, &len), 0);
	assert_int_equal(name.sin_port, server_name.sin_port);
	len = sizeof(name);
	assert_int_equal(rgetsockname(client, (struct sockaddr *)&name, &len), 0);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(rsend(client, "hello", 5, 0), 5);
		takes(server, "hello", &name);
		assert_int_equal(sent(server, "you", 3, &name), 3);
		assert_int_equal(rrecv(client, got, sizeof(got), 0), 3);
	}
	assert_int_equal(rshutdown(client, SHUT_WR), 0);
	fails((int)rsend(client, "x", 1, 0), EPIPE);
	assert_int_equal(rconnect(client, &none, sizeof(none)), 0);
	assert_int_equal(rclose(client), 0);
	assert_int_equal(rclose(server), 0);
}

/* The kernel takes a port that it has chosen from a UDP socket that is disconnected. */
static void dgram__keeps_its_port_when_it_disconnects(void **state)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct sockaddr_in name, other_name, now;
	socklen_t len = sizeof(now);
	int fd = bound(&name), other = bound(&other_name);

	assert_int_equal(rconnect(fd, (struct sockaddr *)&other_name, sizeof(other_name)), 0);
	assert_int_equal(rconnect(fd, &none, sizeof(none)), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)&now, &len), 0);
	assert_int_equal(now.sin_port, name.sin_port);
	assert_int_equal(sent(fd, "first", 5, &other_name), 5);
	takes(other, "first", &name);
	assert_int_equal(sent(other, "back", 4, &name), 4);
	takes(fd, "back", &other_name);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(other), 0);
}

static void dgram__keeps_the_bounds_of_each_datagram(void **state)
{
	static char large[LIMIT + 1];
	char one[] = "one", two[] = "two";
	struct iovec parts[3] = { { one, 3 }, { NULL, 0 }, { two, 3 } };
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = 3 };
	char got[LIMIT + 1];
	struct pair p;

	make_pair(&p);
	memset(large, 'L', sizeof(large));
	assert_int_equal(sent(p.a, large, LIMIT, &p.b_name), LIMIT);
	fails((int)sent(p.a, large, LIMIT + 1, &p.b_name), EMSGSIZE);
	fails((int)sent(p.a, large, SIZE_MAX / 2, &p.b_name), EMSGSIZE);
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, sizeof(got), 0), LIMIT);
	assert_memory_equal(got, large, LIMIT);
	/* one that is empty, one in parts, one that is cut */
	assert_int_equal(sent(p.a, "", 0, &p.b_name), 0);
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 0);
	m.msg_name = &p.b_name;
	m.msg_namelen = sizeof(p.b_name);
	assert_int_equal(rsendmsg(p.a, &m, 0), 6);
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, 2, MSG_PEEK), 2);
	assert_int_equal(rrecv(p.b, got, 2, MSG_PEEK | MSG_TRUNC), 6);
	assert_int_equal(rrecv(p.b, got, 5, 0), 5);
	assert_memory_equal(got, "onetw", 5);
	fails((int)rrecv(p.b, got, sizeof(got), MSG_DONTWAIT), EAGAIN);
	end_pair(&p);
}

static void dgram__ipv6_reaches_ipv6(void **state)
{
	struct sockaddr_in6 name = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in6 from;
	socklen_t len = sizeof(name);
	int server = opened(AF_INET6), client = opened(AF_INET6);
	char got[8];

	assert_int_equal(rbind(server, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(rgetsockname(server, (struct sockaddr *)&name, &len), 0);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(rsendto(client, "six", 3, 0, (struct sockaddr *)&name, len), 3);
		readable(server);
		len = sizeof(from);
		assert_int_equal(rrecvfrom(server, got, sizeof(got), 0, (struct sockaddr *)&from,
					   &len),
				 3);
		assert_int_equal(from.sin6_family, AF_INET6);
		assert_true(IN6_IS_ADDR_LOOPBACK(&from.sin6_addr));
		assert_int_equal(rsendto(server, "back", 4, 0, (struct sockaddr *)&from, len), 4);
		assert_int_equal(rrecv(client, got, sizeof(got), 0), 4);
		len = sizeof(name);
	}
	assert_int_equal(rclose(client), 0);
	assert_int_equal(rclose(server), 0);
}

static void dgram__what_nobody_takes_is_lost_and_no_more(void **state)
{
	struct pair p;
	char got[8];
	int taken = 0;

	make_pair(&p);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(sent(p.a, "flood", 5, &p.b_name), 5);
	while (is_readable(p.b, 200)) {
		assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 5);
		taken++;
	}
	assert_in_range(taken, 64, 1000);
	assert_int_equal(sent(p.a, "again", 5, &p.b_name), 5);
	takes(p.b, "again", &p.a_name);
	end_pair(&p);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void *later(void *argument)
{
	const struct pair *p = argument;

	usleep(100000);
	sent(p->a, "late", 4, &p->b_name);
	return NULL;
}

static void dgram__wakes_a_thread_that_waits(void **state)
{
	struct pair p;
	pthread_t thread;
	char got[8];

	make_pair(&p);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&thread, NULL, later, &p), 0);
		if (i & 1)
			takes(p.b, "late", &p.a_name);
		else
			assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 4);
		pthread_join(thread, NULL);
	}
	assert_false(is_readable(p.b, 50));
	end_pair(&p);
}

static void *closes(void *argument)
{
	usleep(100000);
	rclose(*(int *)argument);
	return NULL;
}

static void dgram__closing_ends_a_wait(void **state)
{
	struct sockaddr_in name;
	int fd = bound(&name);
	pthread_t thread;
	char got[8];

	assert_int_equal(pthread_create(&thread, NULL, closes, &fd), 0);
	fails((int)rrecv(fd, got, sizeof(got), 0), EBADF);
	pthread_join(thread, NULL);
	fails((int)rrecv(fd, got, sizeof(got), 0), EBADF);
}

static void *receives(void *argument)
{
	char got[8];

	return (void *)rrecv(*(int *)argument, got, sizeof(got), 0);
}

static void dgram__shutting_down_ends_a_wait(void **state)
{
	struct timespec limit;
	struct pair p;
	pthread_t thread;
	bool late;
	void *got;

	make_pair(&p);
	assert_int_equal(rconnect(p.b, (struct sockaddr *)&p.a_name, sizeof(p.a_name)), 0);
	assert_int_equal(pthread_create(&thread, NULL, receives, &p.b), 0);
	usleep(100000);
	assert_int_equal(rshutdown(p.b, SHUT_RD), 0);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += EVENT_MS / 1000;
	late = pthread_timedjoin_np(thread, &got, &limit) != 0;
	if (late && sent(p.a, "late", 4, &p.b_name) == 4)
		pthread_join(thread, &got);
	assert_false(late);
	assert_int_equal((intptr_t)got, 0);
	end_pair(&p);
}

/* ---- errors ---------------------------------------------------------------------------------- */

#ifndef __SANITIZE_THREAD__ /* its runtime starts no thread in a forked child */
/* A child has none of its parent's, but may make its own, over queue pairs of its own. */
static int child_has_its_own(void)
{
	struct pair own;

	make_pair(&own);
	deafen(own.a);
	deafen(own.b);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(sent(own.a, "there", 5, &own.b_name), 5);
		takes(own.b, "there", &own.a_name);
		assert_int_equal(sent(own.b, "back", 4, &own.a_name), 4);
		takes(own.a, "back", &own.b_name);
	}
	end_pair(&own);
	return 0;
}

static void dgram__a_child_begins_anew(void **state)
{
	struct pair p;
	int status, pid;

	make_pair(&p);
	pid = fork();
	if (pid == 0)
		_exit(child_has_its_own());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	deafen(p.a);
	deafen(p.b);
	assert_int_equal(sent(p.a, "there", 5, &p.b_name), 5);
	takes(p.b, "there", &p.a_name);
	end_pair(&p);
}
#endif

static void dgram__refuses_bad_addresses(void **state)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr strange = { .sa_family = AF_UNIX };
	struct sockaddr_in name, foreign = { .sin_family = AF_INET, .sin_port = 1 };
	int fd = bound(&name), again = opened(AF_INET);

	foreign.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 is nobody's */
	fails((int)rsendto(fd, "x", 1, 0, (struct sockaddr *)&six, sizeof(six)), EAFNOSUPPORT);
	fails((int)rsendto(fd, "x", 1, 0, &strange, sizeof(strange)), EAFNOSUPPORT);
	fails((int)rsendto(fd, "x", 1, 0, (struct sockaddr *)&name, 4), EINVAL);
	fails(rconnect(fd, (struct sockaddr *)&six, sizeof(six)), EAFNOSUPPORT);
	fails(rbind(again, (struct sockaddr *)&name, sizeof(name)), EADDRINUSE);
	fails(rbind(again, (struct sockaddr *)&foreign, sizeof(foreign)), EADDRNOTAVAIL);
	fails(rlisten(again, 1), EOPNOTSUPP);
	fails(raccept(again, NULL, NULL), EOPNOTSUPP);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rclose(again), 0);
	fails(rclose(fd), EBADF);
}

static void dgram__tells_a_connected_one_that_nobody_listens(void **state)
{
	struct sockaddr_in name;
	int fd = bound(&name), client = opened(AF_INET);
	struct pollfd p = { .fd = client, .events = POLLIN };

	assert_int_equal(rclose(fd), 0);
	assert_int_equal(rconnect(client, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(rsend(client, "x", 1, 0), 1);
	assert_int_equal(rpoll(&p, 1, SOON_MS), 1);
	assert_true(p.revents & POLLERR);
	fails((int)rrecv(client, &name, sizeof(name), 0), ECONNREFUSED);
	fails((int)rrecv(client, &name, sizeof(name), MSG_DONTWAIT), EAGAIN);
	assert_int_equal(rclose(client), 0);
}

static void dgram__options(void **state)
{
	int fd = opened(AF_INET), value = 1 << 19;
	socklen_t len = sizeof(value);

	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof(value)), 0);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &len), 0);
	assert_int_equal(value, 1 << 20);
	value = 10;
	assert_int_equal(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, sizeof(value)), 0);
	assert_int_equal(rgetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &len), 0);
	assert_int_equal(value, 10);
	fails(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &value, sizeof(value)), EOPNOTSUPP);
	fails(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, 1), EINVAL);
	fails(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, NULL, sizeof(value)), EFAULT);
	assert_int_equal(rbind(fd, local(0), sizeof(struct sockaddr_in)), 0);
	fails(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, sizeof(value)), EINVAL);
	assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	fails((int)rrecv(fd, &value, sizeof(value), 0), EAGAIN);
	assert_int_equal(rclose(fd), 0);
}

/* ---- peers that break the protocol ----------------------------------------------------------- */

static int plain(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, local(0), sizeof(struct sockaddr_in)), 0);
	return fd;
}

/* A message of a UDP socket that says a queue pair of nobody. */
static void make_hello(uint8_t hello[16], uint8_t op)
{
	static const uint8_t good[16] = {
		0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56
	};

	memcpy(hello, good, sizeof(good));
	hello[5] = op;
}

static void dgram__survives_noise_on_its_udp_socket(void **state)
{
	static uint8_t noise[4096];
	struct pair p;
	int fd = plain();

	make_pair(&p);
	srandom(19);
	for (int i = 0; i < 2000; i++) {
		size_t bytes = (size_t)random() % (i % 100 == 0 ? sizeof(noise) : 64);

		for (size_t at = 0; at < bytes; at++)
			noise[at] = (uint8_t)random();
		if (i & 1)
			make_hello(noise, (uint8_t)(i % 10));
		if (i % 8 == 1) /* one byte of a good one is wrong */
			noise[random() % 8] ^= (uint8_t)(1 + random() % 255);
		(void)sendto(fd, noise, bytes, 0, (struct sockaddr *)&p.b_name, sizeof(p.b_name));
	}
	usleep(100000);
	while (is_readable(p.b, 50)) /* what was a datagram by chance */
		assert_true(rrecv(p.b, noise, sizeof(noise), 0) >= 0);
	assert_int_equal(sent(p.a, "still", 5, &p.b_name), 5);
	takes(p.b, "still", &p.a_name);
	close(fd);
	end_pair(&p);
}

/* More peers than are remembered: each is answered, and those that were forgotten are learned
 * anew. */
static void dgram__forgets_peers_beyond_its_limit(void **state)
{
	uint8_t hello[16], answer[64];
	struct pollfd wait = { .events = POLLIN };
	struct pair p;

	make_pair(&p);
	make_hello(hello, 0);
	for (int i = 0; i < 4200; i++) {
		wait.fd = plain();
		assert_int_equal(sendto(wait.fd, hello, 16, 0, (struct sockaddr *)&p.b_name,
					sizeof(p.b_name)),
				 16);
		assert_int_equal(poll(&wait, 1, SOON_MS), 1);
		assert_int_equal(recv(wait.fd, answer, sizeof(answer), 0), 16);
		assert_int_equal(answer[5], 7);
		close(wait.fd);
		if (i % 16 == 0)
			while (is_readable(p.b, 0))
				assert_int_equal(rrecv(p.b, answer, sizeof(answer), 0), 0);
	}
	while (is_readable(p.b, 0))
		(void)rrecv(p.b, answer, sizeof(answer), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sent(p.b, "known", 5, &p.a_name), 5);
		takes(p.a, "known", &p.b_name);
	}
	end_pair(&p);
}

/* Fills blocks of each size that were freed lately. */
static void use_freed_memory(void)
{
	void *blocks[64][32];

	for (size_t i = 0; i < 64; i++)
		for (int k = 0; k < 32; k++) {
			blocks[i][k] = malloc(16 * (i + 1));
			assert_non_null(blocks[i][k]);
			memset(blocks[i][k], 0xff, 16 * (i + 1));
		}
	__asm__ volatile("" : : "r"(blocks) : "memory"); /* the fill stays */
	for (size_t i = 0; i < 64; i++)
		for (int k = 0; k < 32; k++)
			free(blocks[i][k]);
}

/* The peer that an rsocket is connected to stays, however many others it sends to. */
static void dgram__remembers_the_peer_that_it_is_connected_to(void **state)
{
	struct sockaddr_in sink = { .sin_family = AF_INET };
	socklen_t len = sizeof(sink);
	int others = socket(AF_INET, SOCK_DGRAM, 0);
	struct pair p;

	p.a = bound(&p.a_name);
	p.b = bound(&p.b_name);
	assert_int_equal(bind(others, (struct sockaddr *)&sink, sizeof(sink)), 0);
	assert_int_equal(getsockname(others, (struct sockaddr *)&sink, &len), 0);
	assert_int_equal(rconnect(p.b, (struct sockaddr *)&p.a_name, sizeof(p.a_name)), 0);
	for (uint32_t i = 0; i < 4100; i++) { /* of 127.1.0.0/16 */
		sink.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (1 << 16) + i);
		assert_int_equal(sent(p.b, "x", 1, &sink), 1);
	}
	use_freed_memory();
	assert_int_equal(rsend(p.b, "still", 5, 0), 5);
	takes(p.a, "still", &p.b_name);
	close(others);
	end_pair(&p);
}

/* A message that says a queue pair at another host than it comes from changes nothing: the UDP
 * sockets go on to carry what is sent there. */
static void dgram__believes_no_message_that_names_another_host(void **state)
{
	static const uint8_t elsewhere[4] = { 10, 98, 0, 3 };
	struct pollfd wait = { .fd = plain(), .events = POLLIN };
	uint8_t hello[16], got[64];
	struct sockaddr_in name;
	socklen_t size = sizeof(name);
	struct pair p;

	make_pair(&p);
	assert_int_equal(getsockname(wait.fd, (struct sockaddr *)&name, &size), 0);
	make_hello(hello, 7);
	memcpy(hello + 12, elsewhere, sizeof(elsewhere));
	assert_int_equal(sendto(wait.fd, hello, 16, 0, (struct sockaddr *)&p.b_name,
				sizeof(p.b_name)),
			 16);
	make_hello(hello, 0); /* behind it, and answered */
	memcpy(hello + 12, elsewhere, sizeof(elsewhere));
	assert_int_equal(sendto(wait.fd, hello, 16, 0, (struct sockaddr *)&p.b_name,
				sizeof(p.b_name)),
			 16);
	assert_int_equal(poll(&wait, 1, SOON_MS), 1);
	assert_int_equal(recv(wait.fd, got, sizeof(got), 0), 16);
	assert_int_equal(sent(p.b, "here", 4, &name), 4);
	assert_int_equal(poll(&wait, 1, SOON_MS), 1);
	assert_int_equal(recv(wait.fd, got, sizeof(got), 0), 16 + 4);
	assert_memory_equal(got + 16, "here", 4);
	close(wait.fd);
	end_pair(&p);
}

/* ---- ... and their queue pairs ---- */

struct foe {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint32_t qpn; /* of the rsocket */
	struct in_addr addr;
	uint8_t memory[4096];
};

/* The queue pair of an rsocket, as it says itself. */
static uint32_t foe_ask(const struct sockaddr_in *name)
{
	struct pollfd wait = { .fd = plain(), .events = POLLIN };
	uint8_t hello[16];

	make_hello(hello, 0);
	assert_int_equal(sendto(wait.fd, hello, 16, 0, (const struct sockaddr *)name,
				sizeof(*name)),
			 16);
	assert_int_equal(poll(&wait, 1, SOON_MS), 1);
	assert_int_equal(recv(wait.fd, hello, sizeof(hello), 0), 16);
	close(wait.fd);
	return (uint32_t)hello[9] << 16 | (uint32_t)hello[10] << 8 | hello[11];
}

static void foe_open(struct foe *f, const struct sockaddr_in *name)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { .max_send_wr = 16,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 };

	assert_int_equal(rdma_create_id(NULL, &f->id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(f->id, address_of("roce0", 0)), 0);
	assert_int_equal(rdma_create_qp(f->id, NULL, &init), 0);
	f->mr = ibv_reg_mr(f->id->pd, f->memory, sizeof(f->memory), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(f->mr);
	attr.grh.sgid_index = 1;
	assert_int_equal(ibv_query_gid(f->id->verbs, 1, 1, &attr.grh.dgid), 0);
	memcpy(&f->addr, attr.grh.dgid.raw + 12, sizeof(f->addr));
	f->ah = ibv_create_ah(f->id->pd, &attr);
	assert_non_null(f->ah);
	f->qpn = foe_ask(name);
}

static void foe_send(struct foe *f, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uintptr_t)f->memory, .length = bytes, .lkey = f->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	wr.wr.ud.ah = f->ah;
	wr.wr.ud.remote_qpn = f->qpn;
	wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
	assert_int_equal(ibv_post_send(f->id->qp, &wr, &bad), 0);
	while (ibv_poll_cq(f->id->send_cq, 1, &wc) == 0)
		;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* Sends text behind a header that names an address. */
static void foe_claim(struct foe *f, in_addr_t addr, uint16_t port, const char *text)
{
	f->memory[0] = 4;
	f->memory[1] = 8;
	memcpy(f->memory + 2, &port, sizeof(port));
	memcpy(f->memory + 4, &addr, sizeof(addr));
	memcpy(f->memory + 8, text, strlen(text));
	foe_send(f, 8 + (uint32_t)strlen(text));
}

static void foe_close(struct foe *f)
{
	rdma_destroy_qp(f->id);
	ibv_destroy_ah(f->ah);
	ibv_dereg_mr(f->mr);
	rdma_destroy_id(f->id);
}

static void dgram__drops_ud_messages_without_a_header(void **state)
{
	static const uint8_t heads[][2] = { { 4, 24 }, { 6, 8 }, { 5, 8 }, { 4, 0 }, { 4, 255 },
					    { 0, 0 } };
	struct foe f;
	struct pair p;
	char got[4096];

	make_pair(&p);
	foe_open(&f, &p.b_name);
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 0); /* the question was a datagram */
	for (size_t i = 0; i < 200; i++) {
		memcpy(f.memory, heads[i % (sizeof(heads) / sizeof(heads[0]))], 2);
		foe_send(&f, 100);
	}
	f.memory[0] = 6;
	f.memory[1] = 24;
	for (uint32_t bytes = 0; bytes < 24; bytes++)
		foe_send(&f, bytes); /* shorter than their header */
	assert_false(is_readable(p.b, 100));
	/* as large as a packet can be: larger than an rsocket sends */
	foe_claim(&f, f.addr.s_addr, 0, "");
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 0);
	for (int i = 0; i < 100; i++) {
		foe_send(&f, sizeof(f.memory));
		readable(p.b);
		assert_int_equal(rrecv(p.b, got, sizeof(got), 0), sizeof(f.memory) - 8);
	}
	assert_int_equal(sent(p.a, "still", 5, &p.b_name), 5);
	takes(p.b, "still", &p.a_name);
	foe_close(&f);
	end_pair(&p);
}

/* The address in a message's header is that of its sender. */
static void dgram__drops_ud_messages_that_name_another_host(void **state)
{
	static const char *const others[] = { "10.98.0.3", "0.0.0.0", "255.255.255.255" };
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(7) };
	struct foe f;
	struct pair p;
	char got[64];

	make_pair(&p);
	foe_open(&f, &p.b_name);
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 0); /* the question was a datagram */
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		foe_claim(&f, inet_addr(others[i]), from.sin_port, "forged");
	foe_claim(&f, f.addr.s_addr, from.sin_port, "own");
	from.sin_addr = f.addr;
	takes(p.b, "own", &from);
	/* this host sends from 127.0.0.1, too */
	foe_claim(&f, htonl(INADDR_LOOPBACK), from.sin_port, "near");
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	takes(p.b, "near", &from);
	foe_close(&f);
	end_pair(&p);
}

/* As of a UDP socket. */
static void dgram__connected_hears_its_peer_only(void **state)
{
	struct foe f;
	struct pair p;
	char got[64];

	make_pair(&p);
	foe_open(&f, &p.b_name);
	readable(p.b);
	assert_int_equal(rrecv(p.b, got, sizeof(got), 0), 0); /* the question was a datagram */
	assert_int_equal(rconnect(p.b, (struct sockaddr *)&p.a_name, sizeof(p.a_name)), 0);
	foe_claim(&f, f.addr.s_addr, p.a_name.sin_port ^ htons(1), "forged");
	assert_int_equal(sent(p.a, "peer", 4, &p.b_name), 4);
	takes(p.b, "peer", &p.a_name);
	foe_close(&f);
	end_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dgram__goes_over_queue_pairs_once_they_are_known),
		cmocka_unit_test(dgram__connected_sends_to_its_peer),
		cmocka_unit_test(dgram__keeps_its_port_when_it_disconnects),
		cmocka_unit_test(dgram__keeps_the_bounds_of_each_datagram),
		cmocka_unit_test(dgram__ipv6_reaches_ipv6),
		cmocka_unit_test(dgram__what_nobody_takes_is_lost_and_no_more),
		cmocka_unit_test(dgram__wakes_a_thread_that_waits),
		cmocka_unit_test(dgram__closing_ends_a_wait),
		cmocka_unit_test(dgram__shutting_down_ends_a_wait),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(dgram__a_child_begins_anew),
#endif
		cmocka_unit_test(dgram__refuses_bad_addresses),
		cmocka_unit_test(dgram__tells_a_connected_one_that_nobody_listens),
		cmocka_unit_test(dgram__options),
		cmocka_unit_test(dgram__survives_noise_on_its_udp_socket),
		cmocka_unit_test(dgram__forgets_peers_beyond_its_limit),
		cmocka_unit_test(dgram__remembers_the_peer_that_it_is_connected_to),
		cmocka_unit_test(dgram__believes_no_message_that_names_another_host),
		cmocka_unit_test(dgram__drops_ud_messages_without_a_header),
		cmocka_unit_test(dgram__drops_ud_messages_that_name_another_host),
		cmocka_unit_test(dgram__connected_hears_its_peer_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
