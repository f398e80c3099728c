/* queues_test.c: stream rsockets whose queues and counters reach their ends: messages of one byte,
 * more than 65,536 of them, a peer that is stopped while this end's send queue is full, and one
 * that sends control messages as fast as they are taken.
 * In: calls      Out: verdicts      Runs: the test's thread, and processes that are its peers
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "pair.h"

enum { LEAST_BUFFER = 4096, LEAST_QUEUE = 16, QUEUE = 384, SETTLE_MS = 50, SECOND_US = 1000000 };

static void set_queue(int fd, int name, int value)
{
	assert_int_equal(rsetsockopt(fd, SOL_RDMA, name, &value, sizeof(value)), 0);
}

static void make_pair_of(struct pair *p, int queue, int buffer)
{
	listen_at(p, "127.0.0.1");
	set_queue(p->listener, RDMA_RQSIZE, queue);
	if (buffer > 0)
		assert_int_equal(rsetsockopt(p->listener, SOL_SOCKET, SO_RCVBUF, &buffer,
					     sizeof(buffer)),
				 0);
	assert_int_equal(rlisten(p->listener, 8), 0);
	connect_to(p);
}

/* Of a stream in which no byte is like one shortly before it. */
static unsigned char byte_at(long at)
{
	return (unsigned char)(at * 7 + at / 251);
}

/* One message for each byte. */
static void send_bytes(int fd, long *at, int count)
{
	for (int i = 0; i < count; i++) {
		unsigned char byte = byte_at((*at)++);

		assert_int_equal(rsend(fd, &byte, 1, 0), 1);
	}
}

static void recv_bytes(int fd, long *at, int count)
{
	unsigned char got[QUEUE];

	assert_int_equal(rrecv(fd, got, (size_t)count, MSG_WAITALL), count);
	for (int i = 0; i < count; i++)
		assert_int_equal(got[i], byte_at((*at)++));
}

/* ---- counters -------------------------------------------------------------------------------- */

/* The reader allows more messages long before half of its buffer is free, and again when it is. */
static void rsend__of_single_bytes_goes_through_the_least_queue_and_buffer(void **state)
{
	long sent = 0, got = 0;
	struct pair p;

	make_pair_of(&p, LEAST_QUEUE, LEAST_BUFFER / 2); /* it is doubled */
	while (got < 4 * LEAST_BUFFER) {
		send_bytes(p.client, &sent, LEAST_QUEUE / 2);
		recv_bytes(p.server, &got, LEAST_QUEUE / 2);
	}
	end_pair(&p);
}

/* The reader takes eight small messages and allows as many new ones. It has no buffer for them. */
static void rsend__waits_for_a_buffer_where_messages_are_allowed(void **state)
{
	const int half = LEAST_BUFFER / 2, small = LEAST_QUEUE / 2, large = LEAST_QUEUE / 4;
	char data[LEAST_BUFFER] = "";
	struct pair p;

	make_pair_of(&p, LEAST_QUEUE, half);
	for (int i = 0; i < small; i++)
		assert_int_equal(rsend(p.client, data, 1, 0), 1);
	assert_true(ready(p.server, POLLIN, WAIT_MS) & POLLIN); /* it gives its second half */
	for (int i = 0; i < 2 * large; i++) {
		int size = (i < large ? half - small : half) / large;

		assert_int_equal(rsend(p.client, data, (size_t)size, 0), size);
	}
	for (int i = 0; i < small; i++)
		assert_int_equal(rrecv(p.server, data, 1, MSG_WAITALL), 1);
	(void)ready(p.client, 0, SETTLE_MS);
	fails((int)rsend(p.client, data, 1, MSG_DONTWAIT), EAGAIN);
	assert_int_equal(rrecv(p.server, data, (size_t)(2 * half - small), MSG_WAITALL),
			 2 * half - small);
	assert_int_equal(rsend(p.client, data, 1, 0), 1);
	assert_int_equal(rrecv(p.server, data, 1, MSG_WAITALL), 1);
	end_pair(&p);
}

/* Counts of messages have 16 bits. The reader owes new ones just before they begin anew, and takes
 * many at once that go beyond. */
static void rrecv__allows_more_messages_where_their_count_begins_anew(void **state)
{
	const long owed = 0x10000 / (QUEUE / 2) * (QUEUE / 2);
	const int beyond = (int)(0x10000 - owed) + 16;
	long sent = 0, got = 0;
	char all[QUEUE];
	struct pair p;

	make_pair_of(&p, QUEUE, 0);
	while (got < owed - 1) {
		send_bytes(p.client, &sent, 1);
		recv_bytes(p.server, &got, 1);
	}
	send_bytes(p.client, &sent, 1 + beyond);
	while (rrecv(p.server, all, sizeof(all), MSG_PEEK) < 1 + beyond)
		; /* what is there is more each time, and is then taken at once */
	recv_bytes(p.server, &got, 1 + beyond);
	for (int i = 0; i < 4; i++) {
		send_bytes(p.client, &sent, QUEUE / 2);
		recv_bytes(p.server, &got, QUEUE / 2);
	}
	end_pair(&p);
}

/* ---- a peer that is stopped ------------------------------------------------------------------ */

/* The peer: accepts, stops itself, and once it goes on says by its status whether all bytes that
 * came before the end are right, and how many: `fd` says how many it is to get. */
static void stopped_peer(int fd)
{
	unsigned char byte;
	struct pair p;
	long got = 0, count;

	listen_at(&p, "127.0.0.1");
	if (rlisten(p.listener, 1) != 0 ||
	    write(fd, &p.addr, sizeof(p.addr)) != sizeof(p.addr))
		_exit(1);
	p.server = raccept(p.listener, NULL, NULL);
	if (p.server < 0 || rsend(p.server, "x", 1, 0) != 1)
		_exit(2);
	raise(SIGSTOP);
	while (rrecv(p.server, &byte, 1, 0) == 1)
		if (byte != byte_at(got++))
			_exit(3);
	if (read(fd, &count, sizeof(count)) != sizeof(count) || got != count)
		_exit(4);
	rclose(p.server);
	_exit(0);
}

/* A second later the peer goes on. */
static pid_t continue_later(pid_t peer)
{
	pid_t child = fork();

	if (child != 0)
		return child;
	usleep(SECOND_US);
	kill(peer, SIGCONT);
	_exit(0);
}

/* Ends a stream whose send queue a stopped peer keeps full: all that was sent arrives. */
static void end_stopped(int (*leave)(int fd))
{
	int ends[2], status;
	pid_t peer, helper;
	struct pair p;
	long sent = 0;
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	peer = fork();
	if (peer == 0)
		stopped_peer(ends[1]);
	assert_int_equal(read(ends[0], &p.addr, sizeof(p.addr)), sizeof(p.addr));
	p.client = rsocket(AF_INET, SOCK_STREAM, 0);
	set_queue(p.client, RDMA_SQSIZE, LEAST_QUEUE);
	assert_int_equal(rconnect(p.client, (struct sockaddr *)&p.addr, sizeof(p.addr)), 0);
	assert_int_equal(rrecv(p.client, &byte, 1, MSG_WAITALL), 1);
	assert_int_equal(waitpid(peer, &status, WUNTRACED), peer);
	assert_true(WIFSTOPPED(status));
	for (;;) {
		unsigned char next = byte_at(sent);

		if (rsend(p.client, &next, 1, MSG_DONTWAIT) != 1)
			break;
		sent++;
	}
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(write(ends[0], &sent, sizeof(sent)), sizeof(sent));
	helper = continue_later(peer);
	assert_int_equal(leave(p.client), 0);
	assert_int_equal(waitpid(peer, &status, 0), peer);
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(waitpid(helper, NULL, 0), helper);
	close(ends[0]);
	close(ends[1]);
}

static int shut_and_close(int fd)
{
	char byte;

	if (rfcntl(fd, F_SETFL, O_NONBLOCK) != 0 || rshutdown(fd, SHUT_WR) != 0 ||
	    rfcntl(fd, F_SETFL, 0) != 0 || rrecv(fd, &byte, 1, 0) != 0)
		return -1;
	return rclose(fd);
}

static void rshutdown__finds_a_place_in_a_full_send_queue(void **state)
{
	end_stopped(shut_and_close);
}

#ifndef __SANITIZE_THREAD__ /* a forked child of a process with threads starts none there */
static void rclose__waits_for_a_peer_that_is_stopped(void **state)
{
	end_stopped(rclose);
}
#endif

/* ---- a peer that never pauses ---------------------------------------------------------------- */

enum { FLOOD = 1000000, FLOOD_BEFORE = 100000, KEEPALIVE = 1 };

/* Stands between the library and the device: a queue has as many keepalives as a look asks for,
 * and what has really come only behind them. Each takes a receive that the library posts then. */
static struct flood {
	int (*poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	int (*post)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	uint64_t wr_id;	   /* of receives */
	struct ibv_cq *cq; /* the flooded one; NULL: the first that is looked at */
	long left;	   /* keepalives */
	int taken;	   /* receives that are due */
} flood;

static bool flood_is_at(struct ibv_cq *cq)
{
	struct ibv_cq *none = NULL;

	return __atomic_load_n(&flood.left, __ATOMIC_ACQUIRE) > 0 &&
	       (__atomic_compare_exchange_n(&flood.cq, &none, cq, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST) ||
		none == cq);
}

static int flood_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	if (!flood_is_at(cq))
		return flood.poll(cq, n, wc);
	for (; got < n && flood.left > got; got++)
		wc[got] = (struct ibv_wc){ .wr_id = __atomic_load_n(&flood.wr_id,
								   __ATOMIC_RELAXED),
					   .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
					   .wc_flags = IBV_WC_WITH_IMM,
					   .imm_data = htonl(7u << 29 | KEEPALIVE) };
	flood.taken += got;
	__atomic_sub_fetch(&flood.left, got, __ATOMIC_RELEASE);
	return got;
}

static int flood_post(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	__atomic_store_n(&flood.wr_id, wr->wr_id, __ATOMIC_RELAXED);
	if (qp->recv_cq != __atomic_load_n(&flood.cq, __ATOMIC_SEQ_CST) || flood.taken == 0)
		return flood.post(qp, wr, bad);
	for (; wr != NULL; wr = wr->next)
		flood.taken--;
	return 0;
}

/* A pair whose `server` is flooded from now on. */
static void make_flooded(struct pair *p, long messages)
{
	struct ibv_context **all;
	char byte;

	if (flood.poll == NULL) {
		all = rdma_get_devices(NULL);
		flood.poll = all[0]->ops.poll_cq;
		flood.post = all[0]->ops.post_recv;
		all[0]->ops.poll_cq = flood_poll;
		all[0]->ops.post_recv = flood_post;
		rdma_free_devices(all);
	}
	make_pair(p);
	assert_int_equal(ready(p->server, POLLOUT, WAIT_MS), POLLOUT); /* it is connected */
	flood.cq = NULL;
	__atomic_store_n(&flood.left, 1, __ATOMIC_RELEASE);
	fails((int)rrecv(p->server, &byte, 1, MSG_DONTWAIT), EAGAIN);
	__atomic_store_n(&flood.left, messages, __ATOMIC_RELEASE);
}

static void end_flooded(struct pair *p)
{
	__atomic_store_n(&flood.left, 0, __ATOMIC_RELEASE);
	end_pair(p);
}

static void a_call__returns_though_the_peer_never_pauses(void **state)
{
	struct pair p;
	char byte;

	make_flooded(&p, FLOOD);
	fails((int)rrecv(p.server, &byte, 1, MSG_DONTWAIT), EAGAIN);
	assert_int_equal(ready(p.server, POLLIN, 0), 0);
	assert_int_equal(rsend(p.server, "x", 1, MSG_DONTWAIT), 1);
	assert_true(flood.left > 0);
	assert_int_equal(rrecv(p.client, &byte, 1, 0), 1);
	end_flooded(&p);
}

/* What comes behind the messages of a first look is there before the receiver begins to wait. */
static void a_wait__goes_on_where_a_look_has_left_off(void **state)
{
	struct pair p;
	char byte;

	make_flooded(&p, 0);
	assert_int_equal(rsend(p.client, "xy", 2, 0), 2);
	assert_int_equal(ready(p.client, POLLIN, SETTLE_MS), 0);
	__atomic_store_n(&flood.left, FLOOD_BEFORE, __ATOMIC_RELEASE);
	assert_int_equal(rrecv(p.server, &byte, 1, 0), 1);
	assert_int_equal(ready(p.server, POLLIN, WAIT_MS), POLLIN);
	end_flooded(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rshutdown__finds_a_place_in_a_full_send_queue), /* fork first */
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(rclose__waits_for_a_peer_that_is_stopped),
#endif
		cmocka_unit_test(
			rsend__of_single_bytes_goes_through_the_least_queue_and_buffer),
		cmocka_unit_test(rsend__waits_for_a_buffer_where_messages_are_allowed),
		cmocka_unit_test(rrecv__allows_more_messages_where_their_count_begins_anew),
		cmocka_unit_test(a_call__returns_though_the_peer_never_pauses),
		cmocka_unit_test(a_wait__goes_on_where_a_look_has_left_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
