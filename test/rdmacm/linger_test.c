/* linger_test.c: RDMA_CLOSE_AT_ONCE: rclose and rshutdown return while the peer acknowledges
 * nothing, and what was sent arrives once it does. The peer speaks the protocol by verbs: it
 * acknowledges what it has posted receives for.
 * In:    -    Out: cmocka's report    Runs: the test's thread
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "anyverbs/rsocket.h"
#include "pair.h"
#include "stream_wire.h"

enum { QUEUE = 16, MESSAGES = 64, LINGER_MAX = 100 };
enum { CREDITS = 4 }; /* the type of a word */
#define WORD_DATA 5u /* and bytes */
#define WORD_DISCONNECT (7u << 29)
#define WORD_SHUTDOWN (WORD_DISCONNECT | 2)

/* An end of a connection by verbs. */
struct peer {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct hello hello;
	char table[32], buffer[32];
};

static struct pair door; /* its listener */
static struct ibv_cq *completions; /* of all peers: they are destroyed before the next */
static struct peer many[LINGER_MAX + 1];

static struct sge place(const struct peer *p, const void *at, uint32_t length)
{
	return (struct sge){ htobe64((uintptr_t)at), htonl(p->mr->rkey), htonl(length) };
}

/* The number of the stream that the peer is connected to. */
static int peer_connect(struct peer *p)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { QUEUE, QUEUE, 1, 1, 0 } };
	struct rdma_conn_param param = { .private_data = &p->hello,
					 .private_data_len = sizeof(p->hello),
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	int fd;

	memset(p, 0, sizeof(*p));
	assert_int_equal(rdma_create_id(NULL, &p->id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&door.addr, 2000), 0);
	assert_int_equal(rdma_resolve_route(p->id, 2000), 0);
	if (completions == NULL)
		completions = ibv_create_cq(p->id->verbs, 2 * QUEUE, NULL, NULL, 0);
	init.send_cq = init.recv_cq = completions;
	assert_int_equal(rdma_create_qp(p->id, NULL, &init), 0);
	p->mr = ibv_reg_mr(p->id->pd, p, sizeof(*p),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(p->mr);
	p->hello = (struct hello){ 1, 2, htons(MESSAGES), { 0 }, 0, place(p, p->table, 2),
				   place(p, p->buffer, sizeof(p->buffer)) };
	assert_int_equal(rdma_connect(p->id, &param), 0);
	fd = raccept(door.listener, NULL, NULL);
	assert_true(fd >= 0);
	return fd;
}

static void peer_end(struct peer *p)
{
	(void)rdma_disconnect(p->id);
	rdma_destroy_qp(p->id);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	rdma_destroy_id(p->id);
}

/* From now on it acknowledges. */
static void peer_listens(struct peer *p)
{
	struct ibv_recv_wr *bad, wr = { .num_sge = 0 };

	for (int i = 0; i < QUEUE; i++)
		assert_int_equal(ibv_post_recv(p->id->qp, &wr, &bad), 0);
}

/* The next word that the stream of the peer that listens says, but for credits. */
static uint32_t peer_hears(void)
{
	uint32_t word;
	struct ibv_wc wc;
	int got;

	do {
		while ((got = ibv_poll_cq(completions, 1, &wc)) == 0)
			;
		assert_int_equal(got, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		word = ntohl(wc.imm_data);
	} while (word >> 29 == CREDITS);
	return word;
}

/* -1: the rsocket does not say. */
static int lingering_of(int fd)
{
	int count = -1;
	socklen_t len = sizeof(count);

	return rgetsockopt(fd, SOL_RDMA, RDMA_LINGERING, &count, &len) == 0 ? count : -1;
}

static int lingering(void)
{
	int count = lingering_of(door.listener);

	assert_true(count >= 0);
	return count;
}

static void wait_for_lingering(int count)
{
	while (lingering() != count)
		(void)poll(NULL, 0, 1);
}

static void set_linger(int fd, int seconds)
{
	struct linger linger = { 1, seconds };

	assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
}

static void rclose__of_a_silent_peer_leaves_delivery_behind(void **state)
{
	struct pair honest = door;
	static struct peer p;
	struct peer *silent = &p;
	char got[WORD_DATA];
	int fd = peer_connect(silent), next;

	assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(lingering(), 1);
	fails(rshutdown(fd, SHUT_RD), EBADF);
	next = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_true(next <= fd); /* the number is free */
	assert_int_equal(rclose(next), 0);

	connect_to(&honest); /* the server goes on */
	assert_int_equal(rsend(honest.server, "world", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rrecv(honest.client, got, WORD_DATA, MSG_WAITALL), WORD_DATA);
	assert_int_equal(rclose(honest.client), 0);
	assert_int_equal(rclose(honest.server), 0);

	peer_listens(silent);
	assert_int_equal(peer_hears(), WORD_DATA);
	assert_memory_equal(silent->buffer, "hello", WORD_DATA);
	assert_int_equal(peer_hears(), WORD_DISCONNECT);
	wait_for_lingering(0);
	peer_end(silent);
}

/* Also of both in a row, with all places for control messages taken. */
static void rshutdown__does_not_wait(void **state)
{
	static struct peer p;
	struct peer *silent = &p;
	int fd = peer_connect(silent);

	assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rshutdown(fd, SHUT_WR), 0);
	assert_int_equal(rshutdown(fd, SHUT_RDWR), 0);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(lingering(), 1);
	peer_listens(silent);
	assert_int_equal(peer_hears(), WORD_DATA);
	assert_int_equal(peer_hears(), WORD_SHUTDOWN);
	assert_int_equal(peer_hears(), WORD_DISCONNECT);
	wait_for_lingering(0);
	peer_end(silent);
}

static void SO_LINGER__waits_or_aborts(void **state)
{
	static struct peer p;
	int fd = peer_connect(&p);

	set_linger(fd, 0);
	assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(lingering(), 0);
	peer_end(&p);

	/* the time passes, and then the rest is delivered as without it */
	fd = peer_connect(&p);
	set_linger(fd, 1);
	assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(lingering(), 1);
	peer_listens(&p);
	assert_int_equal(peer_hears(), WORD_DATA);
	assert_int_equal(peer_hears(), WORD_DISCONNECT);
	wait_for_lingering(0);
	peer_end(&p);
}

static void rclose__lingers_no_longer_than_the_peer_is_there(void **state)
{
	static struct peer p;
	int fd = peer_connect(&p);

	assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(lingering(), 1);
	peer_end(&p);
	wait_for_lingering(0);
}

static void rclose__ends_the_oldest_of_too_many(void **state)
{
	struct rlimit limit = { .rlim_cur = 4 * LINGER_MAX }, before;
	struct rdma_cm_event *event;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int i = 0; i <= LINGER_MAX; i++) {
		int fd = peer_connect(&many[i]);

		assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
		assert_int_equal(rclose(fd), 0);
		assert_in_range(lingering(), 1, LINGER_MAX);
	}
	while (rdma_get_cm_event(many[0].id->channel, &event) != 0)
		assert_int_equal(errno, EINTR);
	assert_int_equal(event->event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(event);
	peer_listens(&many[LINGER_MAX]);
	assert_int_equal(peer_hears(), WORD_DATA);
	for (int i = 0; i <= LINGER_MAX; i++)
		peer_end(&many[i]);
	wait_for_lingering(0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

#ifndef __SANITIZE_THREAD__ /* its runtime starts no thread in a forked child */
/* The streams that linger stay the parent's: a child has none. */
static void fork__leaves_streams_that_linger_to_the_parent(void **state)
{
	static struct peer p;
	int fd = peer_connect(&p), status = -1;
	pid_t child;

	assert_int_equal(rsend(fd, "hello", WORD_DATA, 0), WORD_DATA);
	assert_int_equal(rclose(fd), 0);
	assert_int_equal(lingering(), 1);
	child = fork();
	if (child == 0)
		_exit(lingering_of(rsocket(AF_INET, SOCK_STREAM, 0)) != 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(lingering(), 1);
	peer_listens(&p);
	assert_int_equal(peer_hears(), WORD_DATA);
	assert_int_equal(peer_hears(), WORD_DISCONNECT);
	wait_for_lingering(0);
	peer_end(&p);
}
#endif

static int open_door(void **state)
{
	int on = 1;

	listen_at(&door, "127.0.0.1");
	assert_int_equal(rsetsockopt(door.listener, SOL_RDMA, RDMA_CLOSE_AT_ONCE, &on, sizeof(on)),
			 0);
	assert_int_equal(rlisten(door.listener, 8), 0);
	return 0;
}

static int close_door(void **state)
{
	return rclose(door.listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rclose__of_a_silent_peer_leaves_delivery_behind),
		cmocka_unit_test(rshutdown__does_not_wait),
		cmocka_unit_test(SO_LINGER__waits_or_aborts),
		cmocka_unit_test(rclose__lingers_no_longer_than_the_peer_is_there),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(fork__leaves_streams_that_linger_to_the_parent),
#endif
		cmocka_unit_test(rclose__ends_the_oldest_of_too_many),
	};

	return cmocka_run_group_tests(tests, open_door, close_door);
}
