/* stream_test.c: stream rsockets, from outside. Both ends are this process, unless a test says
 * otherwise.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/ib.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "pair.h"

enum { MANY = 200, LONG = 6 << 20, SMALL_BUFFER = 8192, RECEIVES = 4 };

/* ---- connecting ------------------------------------------------------------------------------ */

static void rconnect__says_what_connect_says(void **state)
{
	struct pair p;
	char byte = 1;

	listen_at(&p, "127.0.0.1");
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	fails((int)rsend(p.client, &byte, 1, 0), ENOTCONN);
	fails((int)rrecv(p.client, &byte, 1, 0), ENOTCONN);
	fails(rshutdown(p.client, SHUT_WR), ENOTCONN);
	fails(rgetpeername(p.client, (struct sockaddr *)&p.addr, &(socklen_t){ sizeof(p.addr) }),
	      ENOTCONN);
	fails(raccept(p.client, NULL, NULL), EINVAL);
	/* nobody listens yet: refused, and it may be tried again */
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), ECONNREFUSED);
	assert_int_equal(error_of(p.client), 0);
	assert_int_equal(rlisten(p.listener, 8), 0);
	fails(rconnect(p.listener, (struct sockaddr *)&p.addr, sizeof(p.addr)), EISCONN);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, 4), EINVAL);
	rfcntl(p.client, F_SETFL, O_NONBLOCK);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), EINPROGRESS);
	fails((int)rrecv(p.client, &byte, 1, 0), EAGAIN);
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_true(ready(p.client, POLLOUT, WAIT_MS) & POLLOUT);
	assert_int_equal(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), 0);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), EISCONN);
	rfcntl(p.listener, F_SETFL, O_NONBLOCK);
	fails(raccept(p.listener, NULL, NULL), EAGAIN);
	end_pair(&p);
}

static void rconnect__without_blocking_says_by_SO_ERROR_that_it_is_refused(void **state)
{
	struct pair p;

	listen_at(&p, "127.0.0.1");
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	rfcntl(p.client, F_SETFL, O_NONBLOCK);
	fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), EINPROGRESS);
	assert_true(ready(p.client, POLLOUT, WAIT_MS) & POLLERR);
	assert_int_equal(error_of(p.client), ECONNREFUSED);
	assert_int_equal(error_of(p.client), 0);
	rclose(p.client);
	rclose(p.listener);
}

/* Above those that a program opens itself: librspreload confuses them otherwise. */
static void rsocket__has_a_number_beyond_those_of_files(void **state)
{
	int datagram = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct pair p;

	make_pair(&p);
	assert_in_range(p.listener, 256, 511);
	assert_in_range(p.client, 256, 511);
	assert_in_range(p.server, 256, 511);
	assert_in_range(datagram, 256, 511);
	assert_int_equal(rclose(datagram), 0);
	end_pair(&p);
}

static void rsocket__refuses_what_it_has_not(void **state)
{
	char byte;
	int fds[2];

	fails(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
	fails(rsocket(AF_IB, SOCK_DGRAM, 0), EAFNOSUPPORT);
	fails(rsocket(AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
	fails(rsocket(AF_INET, 77, 0), EINVAL);
	fails(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	fails(rsocket(AF_INET6, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT);
	assert_int_equal(pipe(fds), 0);
	fails((int)rrecv(fds[0], &byte, 1, 0), EBADF);
	fails(rclose(fds[0]), EBADF);
	fails(rclose(-1), EBADF);
	fails(rclose(1 << 30), EBADF);
	close(fds[0]);
	close(fds[1]);
}

/* On RoCE a listener of AF_IB takes requests by IP address, and AF_IB has no path (af_ib_test.c).
 * test/node/connections_test.py has InfiniBand. */
static void rsocket__of_af_ib_on_roce(void **state)
{
	struct sockaddr_ib ib = { .sib_family = 0 }, any = { .sib_family = AF_IB };
	struct sockaddr *addr = (struct sockaddr *)&ib;
	struct sockaddr_in *in;
	socklen_t len = sizeof(ib);
	struct pair p = { .listener = rsocket(AF_IB, SOCK_STREAM, 0) };
	char byte;

	in = (struct sockaddr_in *)&p.addr;
	assert_true(p.listener >= 0);
	fails(rbind(p.listener, local(0), sizeof(*in)), EAFNOSUPPORT);
	fails(rbind(p.listener, (struct sockaddr *)&any, sizeof(any) - 1), EINVAL);
	assert_int_equal(rbind(p.listener, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(rlisten(p.listener, 8), 0);
	assert_int_equal(rgetsockname(p.listener, addr, &len), 0);
	assert_int_equal(len, sizeof(ib));
	assert_int_equal(ib.sib_family, AF_IB);
	*in = *(struct sockaddr_in *)local(be64toh(ib.sib_sid) & RDMA_IB_IP_PORT_MASK);
	connect_to(&p);
	len = sizeof(ib);
	assert_int_equal(rgetpeername(p.server, addr, &len), 0);
	assert_int_equal(ib.sib_family, AF_IB);
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	assert_int_equal(rrecv(p.server, &byte, 1, 0), 1);
	end_pair(&p);
	p.client = rsocket(AF_IB, SOCK_STREAM, 0);
	fails(rconnect(p.client, local(1), sizeof(*in)), EAFNOSUPPORT);
	fails(rconnect(p.client, addr, sizeof(ib)), ENODEV);
	assert_int_equal(rclose(p.client), 0);
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	fails(rconnect(p.client, addr, sizeof(ib)), EAFNOSUPPORT);
	assert_int_equal(rclose(p.client), 0);
}

static void names_of(struct pair *p, const char *ip)
{
	struct sockaddr_storage a = { 0 }, b = { 0 };
	socklen_t len = sizeof(a);

	make_pair_at(p, ip);
	assert_int_equal(rgetsockname(p->client, (struct sockaddr *)&a, &len), 0);
	len = sizeof(b);
	assert_int_equal(rgetpeername(p->server, (struct sockaddr *)&b, &len), 0);
	assert_int_equal(len, a.ss_family == AF_INET ? sizeof(struct sockaddr_in)
						     : sizeof(struct sockaddr_in6));
	assert_memory_equal(&a, &b, a.ss_family == AF_INET ? 8 : 24);
	len = 4;
	assert_int_equal(rgetpeername(p->client, (struct sockaddr *)&b, &len), 0);
	assert_true(len > 4);
	assert_int_equal(rsend(p->client, "hello", 5, 0), 5);
	assert_int_equal(rrecv(p->server, &b, 5, MSG_WAITALL), 5);
	assert_memory_equal(&b, "hello", 5);
	end_pair(p);
}

static void rgetsockname__is_the_peers_rgetpeername(void **state)
{
	struct pair p;

	names_of(&p, "127.0.0.1");
	names_of(&p, "::ffff:127.0.0.1");
}

/* ---- data ------------------------------------------------------------------------------------ */

struct flow {
	int fd;
	size_t total;
	unsigned seed;
	size_t wrong;
};

static unsigned char byte_at(size_t i)
{
	return (unsigned char)(i * 2654435761u >> 13);
}

static void *send_flow(void *arg)
{
	struct flow *f = arg;
	unsigned char *buf = malloc(100000);
	size_t sent = 0;

	while (sent < f->total) {
		size_t n = 1 + (size_t)rand_r(&f->seed) % (rand_r(&f->seed) % 4 ? 300 : 90000);
		ssize_t done;

		n = n < f->total - sent ? n : f->total - sent;
		for (size_t i = 0; i < n; i++)
			buf[i] = byte_at(sent + i);
		done = rsend(f->fd, buf, n, 0);
		if (done <= 0)
			break;
		sent += (size_t)done;
	}
	free(buf);
	f->wrong += sent != f->total;
	return NULL;
}

static void *recv_flow(void *arg)
{
	struct flow *f = arg;
	unsigned char *buf = malloc(100000);
	size_t got = 0;

	while (got < f->total) {
		ssize_t n = rrecv(f->fd, buf, 1 + (size_t)rand_r(&f->seed) % 99999,
				  rand_r(&f->seed) % 8 ? 0 : MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			continue;
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			f->wrong += buf[i] != byte_at(got + (size_t)i);
		got += (size_t)n;
	}
	free(buf);
	f->wrong += got != f->total;
	return NULL;
}

/* Both ways at once, a thread for each way and end. */
static void run_flows(struct pair *p, size_t total)
{
	struct flow flows[4] = { { p->client, total, 1, 0 },
				 { p->server, total, 2, 0 },
				 { p->client, total, 3, 0 },
				 { p->server, total, 4, 0 } };
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? send_flow : recv_flow,
						&flows[i]),
				 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(flows[i].wrong, 0);
	}
}

static void rsend__arrives_whole_and_in_order_both_ways(void **state)
{
	struct pair p;

	make_pair(&p);
	run_flows(&p, LONG);
	end_pair(&p);
}

static void rsend__goes_through_small_buffers_and_queues(void **state)
{
	int small = SMALL_BUFFER / 2, queue = 16, got;
	socklen_t len = sizeof(got);
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rsetsockopt(p.listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(rsetsockopt(p.listener, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	assert_int_equal(rsetsockopt(p.listener, SOL_RDMA, RDMA_SQSIZE, &queue, sizeof(queue)), 0);
	assert_int_equal(rsetsockopt(p.listener, SOL_RDMA, RDMA_RQSIZE, &queue, sizeof(queue)), 0);
	assert_int_equal(rlisten(p.listener, 8), 0);
	connect_to(&p);
	assert_int_equal(rgetsockopt(p.server, SOL_SOCKET, SO_RCVBUF, &got, &len), 0);
	assert_int_equal(got, SMALL_BUFFER);
	assert_int_equal(rgetsockopt(p.server, SOL_RDMA, RDMA_RQSIZE, &got, &len), 0);
	assert_int_equal(got, queue);
	fails(rsetsockopt(p.server, SOL_RDMA, RDMA_SQSIZE, &queue, sizeof(queue)), EINVAL);
	run_flows(&p, LONG / 8);
	end_pair(&p);
}

static void rwritev__gathers_and_rreadv_scatters(void **state)
{
	char a[3], b[5], c[8];
	struct iovec in[2] = { { a, sizeof(a) }, { b, sizeof(b) } };
	char text[] = "abcdefgh";
	struct iovec out[3] = { { text, 2 }, { text, 0 }, { text + 2, 6 } };
	struct msghdr msg = { .msg_iov = in, .msg_iovlen = 2 };
	struct pair p;

	make_pair(&p);
	assert_int_equal(rwritev(p.client, out, 3), 8);
	assert_true(ready(p.server, POLLIN, WAIT_MS) & POLLIN);
	assert_int_equal(rreadv(p.server, in, 2), 8);
	assert_memory_equal(a, "abc", 3);
	assert_memory_equal(b, "defgh", 5);
	msg.msg_iov = out;
	msg.msg_iovlen = 3;
	assert_int_equal(rsendmsg(p.server, &msg, 0), 8);
	msg.msg_iov = in;
	msg.msg_iovlen = 2;
	assert_int_equal(rrecvmsg(p.client, &msg, MSG_PEEK | MSG_WAITALL), 8);
	assert_int_equal(rrecvfrom(p.client, c, sizeof(c), MSG_WAITALL, NULL, NULL), 8);
	assert_memory_equal(c, "abcdefgh", 8);
	fails((int)rrecv(p.client, c, 1, MSG_DONTWAIT), EAGAIN);
	fails((int)rwritev(p.client, out, -1), EINVAL);
	fails((int)rsendto(p.client, c, 1, 0, (struct sockaddr *)&p.addr, sizeof(p.addr)), EISCONN);
	assert_int_equal(rsend(p.client, c, 0, 0), 0);
	assert_int_equal(rrecv(p.client, c, 0, 0), 0);
	end_pair(&p);
}

/* What a sender may send to a reader that does not read ends; reading makes room again. */
static void rsend__stops_at_a_full_buffer(void **state)
{
	static char block[30000];
	struct pair p;
	size_t sent = 0, got = 0;
	ssize_t n;

	make_pair(&p);
	rfcntl(p.client, F_SETFL, O_NONBLOCK);
	while ((n = rsend(p.client, block, sizeof(block), 0)) > 0 || ready(p.client, POLLOUT, 200))
		sent += n > 0 ? (size_t)n : 0;
	fails((int)rsend(p.client, block, sizeof(block), 0), EAGAIN);
	assert_in_range(sent, 1 << 16, 1 << 20);
	while (got < sent && (n = rrecv(p.server, block, sizeof(block), 0)) > 0)
		got += (size_t)n;
	assert_int_equal(got, sent);
	assert_true(ready(p.client, POLLOUT, WAIT_MS) == POLLOUT);
	assert_int_equal(rsend(p.client, block, 10, 0), 10);
	end_pair(&p);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void rshutdown__ends_one_way(void **state)
{
	char byte = 7;
	struct pair p;

	make_pair(&p);
	assert_int_equal(rsend(p.client, &byte, 1, 0), 1);
	assert_int_equal(rshutdown(p.client, SHUT_WR), 0);
	fails((int)rsend(p.client, &byte, 1, MSG_NOSIGNAL), EPIPE);
	assert_int_equal(rrecv(p.server, &byte, 1, 0), 1);
	assert_int_equal(rrecv(p.server, &byte, 1, 0), 0);
	assert_true(ready(p.server, POLLIN | POLLRDHUP, 0) == (POLLIN | POLLRDHUP));
	assert_int_equal(rsend(p.server, &byte, 1, 0), 1);
	assert_int_equal(rrecv(p.client, &byte, 1, 0), 1);
	assert_int_equal(rshutdown(p.server, SHUT_WR), 0);
	assert_int_equal(rrecv(p.client, &byte, 1, 0), 0);
	assert_true(ready(p.client, POLLIN, 0) & POLLHUP);
	end_pair(&p);
}

/* Reading is given up last: the peer hears that this end has left. */
static void rshutdown__of_the_second_way_ends_the_connection(void **state)
{
	struct pair p;

	make_pair(&p);
	rfcntl(p.client, F_SETFL, O_NONBLOCK);
	assert_int_equal(rshutdown(p.client, SHUT_RD), 0);
	assert_int_equal(ready(p.server, POLLIN, 50), 0);
	assert_int_equal(rrecv(p.client, &(char){ 0 }, 1, 0), 0);
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	assert_int_equal(rshutdown(p.client, SHUT_WR), 0);
	assert_int_equal(rshutdown(p.client, SHUT_RDWR), 0);
	assert_int_equal(rrecv(p.server, &(char){ 0 }, 1, 0), 1);
	assert_int_equal(rrecv(p.server, &(char){ 0 }, 1, 0), 0);
	fails((int)rsend(p.server, "x", 1, 0), ECONNRESET);
	fails(rshutdown(p.server, 77), EINVAL);
	end_pair(&p);
}

static void rclose__delivers_what_was_sent_before(void **state)
{
	static char block[60000];
	size_t got = 0;
	ssize_t n;
	struct pair p;

	make_pair(&p);
	assert_int_equal(rsend(p.client, block, sizeof(block), 0), sizeof(block));
	assert_int_equal(rclose(p.client), 0);
	usleep(20000); /* for the farewell */
	assert_true(ready(p.server, POLLIN, WAIT_MS) == POLLIN); /* the end comes behind them */
	while ((n = rrecv(p.server, block, 1000, 0)) > 0)
		got += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(got, sizeof(block));
	fails((int)rsend(p.server, block, 1, 0), ECONNRESET);
	assert_true(ready(p.server, POLLIN | POLLOUT, 0) & POLLHUP);
	rclose(p.server);
	rclose(p.listener);
}

/* The last message and the farewell find receives though the reader has taken nothing. */
static void rclose__does_not_wait_for_a_reader_of_many_messages(void **state)
{
	char block[1000];
	struct pair p;

	for (int shut = 0; shut < 2; shut++) {
		size_t sent = 0, got = 0;
		ssize_t n;

		make_pair(&p);
		for (; ready(p.client, POLLOUT, 200) == POLLOUT; sent++)
			assert_int_equal(rsend(p.client, block, 1, 0), 1);
		if (shut)
			assert_int_equal(rshutdown(p.client, SHUT_WR), 0);
		assert_int_equal(rclose(p.client), 0);
		while ((n = rrecv(p.server, block, sizeof(block), 0)) > 0)
			got += (size_t)n;
		assert_int_equal(n, 0);
		assert_int_equal(got, sent);
		rclose(p.server);
		rclose(p.listener);
	}
}

static void *receive_one(void *arg)
{
	char byte;
	ssize_t n = rrecv(*(int *)arg, &byte, 1, 0);

	return (void *)(intptr_t)(n < 0 ? -errno : n);
}

static void rclose__ends_a_wait_of_another_thread(void **state)
{
	struct pair p;
	pthread_t thread;
	void *result;

	make_pair(&p);
	assert_int_equal(pthread_create(&thread, NULL, receive_one, &p.server), 0);
	usleep(50000);
	assert_int_equal(rclose(p.server), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -EBADF);
	assert_int_equal(rrecv(p.client, &(char){ 0 }, 1, 0), 0);
	rclose(p.client);
	rclose(p.listener);
}

static void *accept_one(void *arg)
{
	return (void *)(intptr_t)(raccept(*(int *)arg, NULL, NULL) < 0 ? -errno : 0);
}

static void rclose__ends_a_wait_for_connections(void **state)
{
	struct pair p;
	pthread_t thread;
	void *result;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	assert_int_equal(pthread_create(&thread, NULL, accept_one, &p.listener), 0);
	usleep(50000);
	assert_int_equal(rclose(p.listener), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -EBADF);
}

/* A client that sends and leaves before the server has looked at all. */
static void a_client_that_leaves_at_once__has_said_what_it_said(void **state)
{
	struct pair p;
	char byte;

	for (int i = 0; i < 30; i++) {
		make_pair(&p);
		assert_int_equal(rsend(p.client, "x", 1, 0), 1);
		assert_int_equal(rclose(p.client), 0);
		assert_int_equal(rrecv(p.server, &byte, 1, 0), 1);
		assert_int_equal(rrecv(p.server, &byte, 1, 0), 0);
		fails((int)rsend(p.server, &byte, 1, 0), ECONNRESET);
		rclose(p.server);
		rclose(p.listener);
	}
}

/* Pieces of odd sizes, so that the send buffer ends in the middle of one: how many messages there
 * are says whether they stay whole. */
/* The server may not have heard yet that the connection stands. The client reads the end, and its
 * own rclose, which waits, hears of it all the same. */
static void a_server_that_leaves_at_once__ends_the_stream(void **state)
{
	enum { ROUNDS = 300, SLOW_S = 5 };
	struct timespec from, to;
	struct pair p;
	char byte;

	make_pair(&p);
	assert_int_equal(rfcntl(p.listener, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < ROUNDS; i++) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		assert_int_equal(rclose(p.client), 0);
		if (i == 0)
			assert_int_equal(rclose(p.server), 0);
		p.client = rsocket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(rfcntl(p.client, F_SETFL, O_NONBLOCK), 0);
		fails(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), EINPROGRESS);
		assert_true(ready(p.listener, POLLIN, WAIT_MS) == POLLIN);
		p.server = raccept(p.listener, NULL, NULL);
		assert_true(p.server >= 0);
		assert_true(ready(p.client, POLLOUT, WAIT_MS) == POLLOUT);
		assert_int_equal(rclose(p.server), 0);
		if (i % 2 == 0)
			assert_true(ready(p.client, POLLIN, WAIT_MS) & POLLIN);
		if (i % 2 == 0)
			assert_int_equal(rrecv(p.client, &byte, 1, 0), 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		assert_true(to.tv_sec - from.tv_sec < SLOW_S);
	}
	assert_int_equal(rclose(p.client), 0);
	assert_int_equal(rclose(p.listener), 0);
}

static void rsend__keeps_pieces_whole_where_its_buffer_ends(void **state)
{
	static char block[3001], back[3001];
	struct pair p;

	make_pair(&p);
	for (int i = 0; i < 500; i++) {
		memset(block, i, sizeof(block));
		assert_int_equal(rsend(p.client, block, sizeof(block), 0), sizeof(block));
		assert_int_equal(rrecv(p.server, back, sizeof(back), MSG_WAITALL), sizeof(back));
		assert_memory_equal(block, back, sizeof(block));
	}
	end_pair(&p);
}

/* A process that is killed in the middle of a stream. */
static void a_peer_that_is_killed__ends_the_stream(void **state)
{
	static char block[10000];
	struct pair p;
	ssize_t n;
	pid_t child;
	int pipe_fds[2];
	char go;

	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		close(pipe_fds[1]);
		if (read(pipe_fds[0], &p.addr, sizeof(p.addr)) != sizeof(p.addr))
			_exit(1);
		p.client = rsocket(AF_INET, SOCK_STREAM, 0);
		if (rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)) != 0)
			_exit(2);
		for (;;)
			if (rsend(p.client, block, sizeof(block), 0) < 0)
				_exit(3);
	}
	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	assert_int_equal(write(pipe_fds[1], &p.addr, sizeof(p.addr)), sizeof(p.addr));
	p.server = raccept(p.listener, NULL, NULL);
	assert_true(p.server >= 0);
	assert_int_equal(rrecv(p.server, &go, 1, MSG_WAITALL), 1);
	kill(child, SIGKILL);
	while ((n = rrecv(p.server, block, sizeof(block), 0)) > 0)
		;
	if (n < 0)
		assert_int_equal(errno, ECONNRESET);
	assert_int_equal(waitpid(child, NULL, 0), child);
	fails((int)rsend(p.server, &go, 1, 0), ECONNRESET);
	rclose(p.server);
	rclose(p.listener);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

/* ---- waiting for many ------------------------------------------------------------------------ */

struct later {
	int fd, pipe;
};

static void *write_later(void *arg)
{
	struct later *l = arg;

	usleep(30000);
	if (l->fd >= 0)
		rsend(l->fd, "x", 1, 0);
	else if (write(l->pipe, "x", 1) != 1)
		abort();
	return NULL;
}

static void rpoll__waits_for_rsockets_and_descriptors_at_once(void **state)
{
	struct pollfd fds[MANY + 2];
	struct pair pairs[20];
	struct later l;
	pthread_t thread;
	int pipe_fds[2];
	char byte;

	assert_int_equal(pipe(pipe_fds), 0);
	make_pair(&pairs[0]);
	for (int i = 1; i < 20; i++) {
		pairs[i] = pairs[0];
		connect_to(&pairs[i]);
	}
	for (int i = 0; i < 20; i++)
		fds[i] = (struct pollfd){ .fd = pairs[i].server, .events = POLLIN };
	fds[20] = (struct pollfd){ .fd = pipe_fds[0], .events = POLLIN };
	fds[21] = (struct pollfd){ .fd = -1, .events = POLLIN };
	assert_int_equal(rpoll(fds, 22, 0), 0);
	assert_int_equal(rpoll(fds, 22, 20), 0);
	for (int i = 0; i < 60; i++) {
		l = (struct later){ .fd = i % 3 ? pairs[i % 20].client : -1, .pipe = pipe_fds[1] };
		if (i < 6)
			assert_int_equal(pthread_create(&thread, NULL, write_later, &l), 0);
		else
			write_later(&l);
		assert_int_equal(rpoll(fds, 22, WAIT_MS), 1);
		if (i < 6)
			pthread_join(thread, NULL);
		assert_int_equal(fds[i % 3 ? i % 20 : 20].revents, POLLIN);
		assert_int_equal(i % 3 ? rrecv(pairs[i % 20].server, &byte, 1, 0)
				       : read(pipe_fds[0], &byte, 1),
				 1);
	}
	for (int i = 0; i < 20; i++) {
		rclose(pairs[i].client);
		assert_int_equal(rpoll(&fds[i], 1, WAIT_MS), 1);
		rclose(pairs[i].server);
	}
	rclose(pairs[0].listener);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void rselect__marks_what_is_ready(void **state)
{
	struct timeval none = { 0 }, some = { .tv_sec = 20 };
	struct pair p;
	fd_set in, out;

	make_pair(&p);
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(p.server, &in);
	assert_int_equal(rselect(p.server + 1, &in, NULL, NULL, &none), 0);
	assert_false(FD_ISSET(p.server, &in));
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	FD_SET(p.server, &in);
	FD_SET(p.server, &out);
	assert_int_equal(rselect(p.server + 1, &in, NULL, NULL, &some), 1);
	assert_int_equal(rselect(p.server + 1, &in, &out, NULL, &some), 2);
	assert_true(FD_ISSET(p.server, &in) && FD_ISSET(p.server, &out));
	end_pair(&p);
}

/* Two threads that wait for one rsocket, in different calls. */
static void *poll_one(void *arg)
{
	return (void *)(intptr_t)ready(*(int *)arg, POLLIN, WAIT_MS);
}

/* A thread that sleeps elsewhere drives the device, so a thread that waits here must be told. */
static void a_wait_that_ends__leaves_the_others_told(void **state)
{
	struct timespec soon = { .tv_nsec = 100000000 };
	struct pair p, other;
	pthread_t driver, waits;
	void *revents;

	make_pair(&p);
	make_pair(&other);
	assert_int_equal(pthread_create(&driver, NULL, poll_one, &other.server), 0);
	nanosleep(&soon, NULL);
	assert_int_equal(pthread_create(&waits, NULL, poll_one, &p.server), 0);
	nanosleep(&soon, NULL);
	assert_int_equal(ready(p.server, POLLIN, 10), 0);
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	assert_int_equal(pthread_join(waits, &revents), 0);
	assert_int_equal((intptr_t)revents, POLLIN);
	assert_int_equal(rsend(other.client, "x", 1, 0), 1);
	assert_int_equal(pthread_join(driver, NULL), 0);
	end_pair(&p);
	end_pair(&other);
}

static void a_change__wakes_all_who_wait(void **state)
{
	pthread_t pollers[3];
	struct pair p;
	void *result;

	make_pair(&p);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 3; i++)
			assert_int_equal(pthread_create(&pollers[i], NULL, poll_one, &p.server), 0);
		usleep(round * 200);
		assert_int_equal(rsend(p.client, "x", 1, 0), 1);
		for (int i = 0; i < 3; i++) {
			pthread_join(pollers[i], &result);
			assert_int_equal((intptr_t)result, POLLIN);
		}
		assert_int_equal(rrecv(p.server, &(char){ 0 }, 1, 0), 1);
	}
	end_pair(&p);
}

/* ---- options, fork --------------------------------------------------------------------------- */

static void rsetsockopt__keeps_what_it_knows(void **state)
{
	int fd = rsocket(AF_INET6, SOCK_STREAM, 0), one = 1, got, idle = 1;
	struct linger linger = { 1, 2 }, back;
	socklen_t len = sizeof(got);

	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &got, &len), 0);
	assert_int_equal(got, 1);
	assert_int_equal(rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(rsetsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)), 0);
	len = sizeof(back);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &len), 0);
	assert_int_equal(back.l_onoff, 1);
	assert_true(back.l_linger > 0); /* what is read may be set: 0 is to abort */
	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &len), 0);
	assert_memory_equal(&linger, &back, sizeof(back));
	linger.l_onoff = 0;
	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &len), 0);
	assert_int_equal(back.l_onoff, 0);
	assert_int_equal(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)), 0);
	idle = 0;
	fails(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)), EINVAL);
	fails(rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one)), ENOTSUP);
	fails(rsetsockopt(fd, 4711, 1, &one, sizeof(one)), ENOTSUP);
	fails(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &one, 1), EINVAL);
	fails(rgetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &got, &len), ENOTSUP);
	fails(rfcntl(fd, F_GETLK), ENOTSUP);
	assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_true(rfcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(rclose(fd), 0);
}

static void keepalive__leaves_a_live_peer_alone(void **state)
{
	int one = 1;
	struct pair p;

	make_pair(&p);
	assert_int_equal(rsetsockopt(p.client, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)), 0);
	assert_int_equal(rsetsockopt(p.client, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)), 0);
	assert_int_equal(ready(p.client, POLLIN, 2500), 0);
	assert_int_equal(rsend(p.client, "x", 1, 0), 1);
	assert_int_equal(rrecv(p.server, &(char){ 0 }, 1, 0), 1);
	end_pair(&p);
}

__attribute__((unused)) /* where a sanitizer allows a forked child no threads */
static void a_forked_child__has_none_and_breaks_none(void **state)
{
	struct pair p;
	pid_t child;
	int status;

	make_pair(&p);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		char byte = 1;
		struct pair own;

		if (rsend(p.client, &byte, 1, 0) != -1 || errno != EBADF)
			_exit(1);
		if (rclose(p.client) != 0 || rclose(p.server) != 0 || rclose(p.listener) != 0)
			_exit(2);
		if (rclose(p.client) != -1)
			_exit(3);
		make_pair(&own);
		if (rsend(own.client, &byte, 1, 0) != 1 || rrecv(own.server, &byte, 1, 0) != 1)
			_exit(4);
		end_pair(&own);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	run_flows(&p, 100000);
	end_pair(&p);
}

/* ---- peers that break the protocol ----------------------------------------------------------- */

/* What a client of the CM says instead of what an rsocket would. */
struct hello {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], iomaps;
	struct {
		uint64_t addr;
		uint32_t key, length;
	} table, buffer;
};

static struct rdma_cm_id *rogue_connect(struct pair *p, struct hello *hello, size_t size)
{
	struct rdma_conn_param param = { .private_data = hello,
					 .private_data_len = (uint8_t)size,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct ibv_recv_wr *bad, wr = { .num_sge = 0 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	bool established;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	resolve(id, ntohs(((struct sockaddr_in *)&p->addr)->sin_port));
	make_qp(id);
	for (int i = 0; i < RECEIVES; i++)
		assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), 0);
	assert_int_equal(rdma_connect(id, &param), 0);
	p->server = -1;
	if (ready(p->listener, POLLIN, 1000) & POLLIN)
		p->server = raccept(p->listener, NULL, NULL);
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	established = event->event == RDMA_CM_EVENT_ESTABLISHED;
	if (established)
		memcpy(hello, event->param.conn.private_data, sizeof(*hello));
	rdma_ack_cm_event(event);
	if (established)
		return id;
	destroy(id);
	return NULL;
}

static void rogue_says(struct rdma_cm_id *id, struct hello *h, uint32_t message, uint32_t len)
{
	static char bytes[64];
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .length = len };
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE,
		.sg_list = &sge,
		.num_sge = len > 0,
		.imm_data = htonl(message),
		.wr.rdma = { be64toh(h->buffer.addr), ntohl(h->buffer.key) },
	};

	assert_int_equal(ibv_post_send(id->qp, &wr, &bad), 0);
}

static void one_lie(uint32_t message, uint32_t len)
{
	struct hello h = { .version = 1, .flags = 2, .credits = htons(16),
			   .table.length = htonl(2), .buffer.length = htonl(64) };
	struct rdma_cm_id *id;
	struct pair p;
	char byte;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	rfcntl(p.listener, F_SETFL, O_NONBLOCK);
	id = rogue_connect(&p, &h, sizeof(h));
	assert_non_null(id);
	assert_true(p.server >= 0);
	rogue_says(id, &h, message, len);
	assert_true(ready(p.server, POLLIN, WAIT_MS) & POLLERR);
	fails((int)rrecv(p.server, &byte, 1, 0), ECONNRESET);
	fails((int)rsend(p.server, &byte, 1, 0), ECONNRESET);
	assert_int_equal(error_of(p.server), message == 0xffffffff ? ECONNRESET : EPROTO);
	rclose(p.server);
	destroy(id);
	rclose(p.listener);
}

static void a_peer_that_lies_about_lengths__is_reset(void **state)
{
	one_lie(0x1fffffff, 0);		/* more than was granted */
	one_lie(0, 0);			/* a message of nothing */
	one_lie(5u << 29 | 1, 0);	/* no such type */
	one_lie(3u << 29, 0);
}

static void a_client_without_a_proper_hello__is_refused(void **state)
{
	struct hello h = { .version = 2, .table.length = htonl(2), .buffer.length = htonl(64) };
	struct pair p;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	rfcntl(p.listener, F_SETFL, O_NONBLOCK);
	assert_null(rogue_connect(&p, &h, sizeof(h)));
	h.version = 1;
	assert_null(rogue_connect(&p, &h, 20));
	assert_null(rogue_connect(&p, &h, 0));
	h.table.length = 0;
	assert_null(rogue_connect(&p, &h, sizeof(h)));
	rclose(p.listener);
}

/* It gives addresses that are not its own: this end's write fails, and the connection with it. */
static void a_peer_that_lies_about_its_buffer__is_reset(void **state)
{
	struct hello h = { .version = 1, .flags = 2, .credits = htons(16),
			   .table = { .addr = ~0ull, .key = ~0u, .length = htonl(2) },
			   .buffer = { .addr = ~0ull, .key = ~0u, .length = ~0u } };
	struct rdma_cm_id *id;
	struct pair p;
	char block[3000] = "";
	ssize_t n;

	listen_at(&p, "127.0.0.1");
	assert_int_equal(rlisten(p.listener, 1), 0);
	id = rogue_connect(&p, &h, sizeof(h));
	assert_non_null(id);
	while ((n = rsend(p.server, block, sizeof(block), 0)) > 0)
		;
	assert_int_equal(errno, ECONNRESET);
	fails((int)rrecv(p.server, block, 1, 0), ECONNRESET);
	rclose(p.server);
	destroy(id);
	rclose(p.listener);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_is_killed__ends_the_stream), /* forks first */
		cmocka_unit_test(rconnect__says_what_connect_says),
		cmocka_unit_test(rconnect__without_blocking_says_by_SO_ERROR_that_it_is_refused),
		cmocka_unit_test(rsocket__has_a_number_beyond_those_of_files),
		cmocka_unit_test(rsocket__refuses_what_it_has_not),
		cmocka_unit_test(rsocket__of_af_ib_on_roce),
		cmocka_unit_test(rgetsockname__is_the_peers_rgetpeername),
		cmocka_unit_test(rsend__arrives_whole_and_in_order_both_ways),
		cmocka_unit_test(rsend__goes_through_small_buffers_and_queues),
		cmocka_unit_test(rwritev__gathers_and_rreadv_scatters),
		cmocka_unit_test(rsend__stops_at_a_full_buffer),
		cmocka_unit_test(rshutdown__ends_one_way),
		cmocka_unit_test(rshutdown__of_the_second_way_ends_the_connection),
		cmocka_unit_test(rclose__delivers_what_was_sent_before),
		cmocka_unit_test(rclose__does_not_wait_for_a_reader_of_many_messages),
		cmocka_unit_test(rclose__ends_a_wait_of_another_thread),
		cmocka_unit_test(rclose__ends_a_wait_for_connections),
		cmocka_unit_test(a_client_that_leaves_at_once__has_said_what_it_said),
		cmocka_unit_test(a_server_that_leaves_at_once__ends_the_stream),
		cmocka_unit_test(rsend__keeps_pieces_whole_where_its_buffer_ends),
		cmocka_unit_test(rpoll__waits_for_rsockets_and_descriptors_at_once),
		cmocka_unit_test(rselect__marks_what_is_ready),
		cmocka_unit_test(a_change__wakes_all_who_wait),
		cmocka_unit_test(a_wait_that_ends__leaves_the_others_told),
		cmocka_unit_test(rsetsockopt__keeps_what_it_knows),
		cmocka_unit_test(keepalive__leaves_a_live_peer_alone),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(a_forked_child__has_none_and_breaks_none),
#endif
		cmocka_unit_test_setup_teardown(a_peer_that_lies_about_lengths__is_reset, begin,
						end),
		cmocka_unit_test_setup_teardown(a_client_without_a_proper_hello__is_refused, begin,
						end),
		cmocka_unit_test_setup_teardown(a_peer_that_lies_about_its_buffer__is_reset, begin,
						end),
	};

	signal(SIGPIPE, SIG_DFL);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
