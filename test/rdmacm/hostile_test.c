/* hostile_test.c: a peer that speaks the protocol of stream rsockets by verbs, and breaks it at
 * random: from a seed, or one after the other. Whatever it does, each call on the rsocket returns,
 * with a result that a socket may have, and the next connection works.
 * usage: rdmacm_hostile [SEED [PEERS]]
 * In:    -    Out: cmocka's report; the seed of each peer that is not survived
 * Runs:  the rsocket's thread, and one that is the peer
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "cm.h"
#include "stream_wire.h"

#ifdef __SANITIZE_THREAD__
/* The foe writes into the rsocket's ring beyond its credits, while the rsocket reads there: what it
 * reads then may be anything, but nothing else may happen. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:recv_copy\n";
}
#endif

enum { PEERS = 120, STEPS = 60, QUEUE = 256, BUFFER = 1 << 16, TABLE = 4096, PLACES = 8 };
enum { DATA, CREDITS = 4, IOMAP = 6, CONTROL = 7 };

static struct peer {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct hello ours, theirs;
	uint64_t rng;
	bool dead; /* a request has failed */
	struct {
		uint8_t table[TABLE], buffer[BUFFER];
	} memory;
} foe;

static int listener;
static uint16_t port;
static uint64_t first_seed = 1;
static int peers = PEERS;

static uint32_t draw(uint32_t below)
{
	foe.rng ^= foe.rng << 13;
	foe.rng ^= foe.rng >> 7;
	foe.rng ^= foe.rng << 17;
	return (uint32_t)(foe.rng >> 11) % below;
}

static uint64_t draw_wild(uint64_t good)
{
	switch (draw(8)) {
	case 0:
		return 0;
	case 1:
		return ~0ull;
	case 2:
		return (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
	default:
		return good;
	}
}

/* ---- the peer -------------------------------------------------------------------------------- */

/* Mostly what an rsocket would say, of which some fields are wrong now and then. */
static void foe_hello(struct hello *h)
{
	*h = (struct hello){ .version = 1, .flags = 2, .credits = htons(QUEUE), .places = PLACES };
	h->table = (struct sge){ htobe64((uintptr_t)foe.memory.table), htonl(foe.mr->rkey),
				 htonl(2) };
	h->buffer = (struct sge){ htobe64((uintptr_t)foe.memory.buffer), htonl(foe.mr->rkey),
				  htonl(BUFFER / 2) };
	if (draw(3) != 0)
		return;
	h->flags = (uint8_t)draw(4);
	h->credits = (uint16_t)draw_wild(h->credits);
	h->places = (uint8_t)draw(256);
	h->table.addr = draw_wild(h->table.addr);
	h->table.length = (uint32_t)draw_wild(h->table.length);
	h->buffer.addr = draw_wild(h->buffer.addr);
	h->buffer.key = (uint32_t)draw_wild(h->buffer.key);
	h->buffer.length = (uint32_t)draw_wild(h->buffer.length);
	if (draw(8) == 0)
		h->version = (uint8_t)draw(256);
}

static bool foe_connect(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { QUEUE, QUEUE, 1, 1, 64 } };
	struct rdma_conn_param param = { .private_data = &foe.ours,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct ibv_recv_wr *bad, wr = { .num_sge = 0 };

	memset(&foe.theirs, 0, sizeof(foe.theirs));
	foe.dead = false;
	assert_int_equal(rdma_create_id(NULL, &foe.id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(foe.id, NULL, local(port), 2000), 0);
	assert_int_equal(rdma_resolve_route(foe.id, 2000), 0);
	assert_int_equal(rdma_create_qp(foe.id, NULL, &init), 0);
	foe.mr = ibv_reg_mr(foe.id->pd, &foe.memory, sizeof(foe.memory),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(foe.mr);
	for (int i = 0; i < QUEUE; i++)
		assert_int_equal(ibv_post_recv(foe.id->qp, &wr, &bad), 0);
	foe_hello(&foe.ours);
	param.private_data_len = (uint8_t)(draw(12) == 0 ? draw(sizeof(foe.ours)) :
							   sizeof(foe.ours));
	if (rdma_connect(foe.id, &param) != 0)
		return false;
	if (foe.id->event != NULL && foe.id->event->param.conn.private_data_len >= 40)
		memcpy(&foe.theirs, foe.id->event->param.conn.private_data, sizeof(foe.theirs));
	return true;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* By time: a poll that finds nothing yields, which may take a whole slice of a busy processor. */
static void foe_collect(void)
{
	uint64_t until = now_us() + 200;
	struct ibv_wc wc;

	do {
		int got = ibv_poll_cq(foe.id->send_cq, 1, &wc);

		if (got == 1 && wc.status != IBV_WC_SUCCESS)
			foe.dead = true;
		if (got == 1)
			return;
	} while (!foe.dead && now_us() < until);
}

/* A write, with a message or without, or a SEND. `from` NULL: the bytes of the buffer, to which the
 * peer may write meanwhile; else they go inline. */
static void foe_post_from(const void *from, enum ibv_wr_opcode opcode, uint32_t message,
			  uint64_t to, uint32_t key, uint32_t bytes)
{
	struct ibv_sge sge = { from != NULL ? (uintptr_t)from : (uintptr_t)foe.memory.buffer, bytes,
			       foe.mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = bytes > 0,
					.opcode = opcode,
					.send_flags = from != NULL ? IBV_SEND_INLINE : 0,
					.imm_data = htonl(message) };

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = key;
	if (foe.dead || ibv_post_send(foe.id->qp, &wr, &bad) != 0)
		return;
	foe_collect();
}

static void foe_post(enum ibv_wr_opcode opcode, uint32_t message, uint64_t to, uint32_t key,
		     uint32_t bytes)
{
	foe_post_from(NULL, opcode, message, to, key, bytes);
}

/* An entry for the rsocket's table: where this end can be written to, or nonsense. */
static void foe_entry(uint32_t type)
{
	struct sge entry = { (uintptr_t)foe.memory.buffer, foe.mr->rkey, BUFFER / 2 };
	uint32_t place = draw(2), at = place * 16, bytes = 16;
	uint64_t sent[3] = { 0 };

	if (type == IOMAP) {
		place = draw(PLACES + 4);
		at = 32 + place * 24;
		bytes = 24;
		sent[0] = draw_wild(0);
	}
	entry.addr = draw_wild(entry.addr);
	entry.key = (uint32_t)draw_wild(entry.key);
	entry.length = (uint32_t)draw_wild(entry.length);
	memcpy((uint8_t *)sent + (bytes - 16), &entry, sizeof(entry));
	foe_post_from(sent, IBV_WR_RDMA_WRITE_WITH_IMM,
		      type << 29 | (type == IOMAP ? place : draw(1 << 16)),
		      be64toh(foe.theirs.table.addr) + at, ntohl(foe.theirs.table.key), bytes);
}

static void foe_step(void)
{
	uint64_t to = be64toh(foe.theirs.buffer.addr);
	uint32_t key = ntohl(foe.theirs.buffer.key), bytes = 1 + draw(2000);

	switch (draw(12)) {
	case 0:
		foe_entry(CREDITS);
		break;
	case 1:
		foe_entry(IOMAP);
		break;
	case 2: /* any type, any value, nothing with it */
		foe_post(IBV_WR_RDMA_WRITE_WITH_IMM, draw(8) << 29 | draw(1 << 29), to, key, 0);
		break;
	case 3:
		foe_post(IBV_WR_RDMA_WRITE_WITH_IMM, (uint32_t)CONTROL << 29 | draw(5), to, key, 0);
		break;
	case 4: /* where nothing of this end's is */
		foe_post(IBV_WR_RDMA_WRITE, 0, draw_wild(to + draw(1 << 20)),
			 (uint32_t)draw_wild(key), bytes);
		break;
	case 5:
		foe_post(draw(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, draw(1u << 31), 0, 0,
			 draw(100));
		break;
	case 6: /* says more or less than it wrote */
		foe_post(IBV_WR_RDMA_WRITE_WITH_IMM, draw(3000), to, key, bytes);
		break;
	case 7: /* a flood beyond all credits */
		for (int i = 0; i < 600 && !foe.dead; i++)
			foe_post(IBV_WR_RDMA_WRITE_WITH_IMM, 1, to, key, 1);
		break;
	default:
		foe_post(IBV_WR_RDMA_WRITE_WITH_IMM, bytes, to, key, bytes);
		break;
	}
}

static void *foe_main(void *argument)
{
	if (foe_connect()) {
		int steps = (int)draw(STEPS);

		for (int i = 0; i < steps && !foe.dead; i++) {
			foe_step();
			if (draw(4) == 0)
				usleep(draw(500));
		}
		if (draw(2))
			rdma_disconnect(foe.id);
	}
	rdma_destroy_qp(foe.id);
	ibv_dereg_mr(foe.mr);
	rdma_destroy_id(foe.id);
	return argument;
}

/* ---- the rsocket ----------------------------------------------------------------------------- */

static bool legal(ssize_t result)
{
	return result >= 0 || errno == EAGAIN || errno == ECONNRESET || errno == EPIPE ||
	       errno == EINVAL || errno == ENOTCONN || errno == ENOMEM;
}

/* Does all that one can do with it, until it ends or nothing happens any more. */
static void use(int fd)
{
	static char block[20000], mapped[64];
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };
	ssize_t got = 1;

	assert_int_equal(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_true(legal(riomap(fd, mapped, sizeof(mapped), PROT_WRITE, 0, 0)));
	for (int i = 0; i < 3000 && got != 0; i++) {
		p.events = POLLIN;
		if (rpoll(&p, 1, 1) == 0 && i > 300)
			break;
		if (p.revents & (POLLERR | POLLHUP))
			i += 100;
		got = rrecv(fd, block, sizeof(block), 0);
		assert_true(legal(got));
		assert_true(legal(rsend(fd, block, 1 + (size_t)i % sizeof(block), 0)));
		assert_true(legal((ssize_t)riowrite(fd, block, 100, i % 7 ? i : i * 1000, 0)));
	}
	assert_true(legal(rshutdown(fd, SHUT_WR)));
	assert_int_equal(rclose(fd), 0);
}

static void one_peer(uint64_t seed)
{
	struct pollfd p = { .events = POLLIN };
	pthread_t thread;
	void *done;

	foe.rng = seed * 0x9e3779b97f4a7c15ull | 1;
	assert_int_equal(pthread_create(&thread, NULL, foe_main, NULL), 0);
	for (int i = 0; i < 5000; i++) {
		int fd;

		p.fd = listener;
		if (rpoll(&p, 1, 2) == 1) {
			fd = raccept(listener, NULL, NULL);
			if (fd >= 0) {
				use(fd);
				break;
			}
		}
		if (pthread_tryjoin_np(thread, &done) == 0)
			return;
	}
	pthread_join(thread, NULL);
}

static void *honest_main(void *result)
{
	char word[5] = "";
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	*(int *)result = fd >= 0 &&
			 rconnect(fd, local(port), sizeof(struct sockaddr_in)) == 0 &&
			 rsend(fd, "hello", 5, 0) == 5 && rrecv(fd, word, 5, MSG_WAITALL) == 5 &&
			 memcmp(word, "hello", 5) == 0;
	rclose(fd);
	return NULL;
}

/* The next stream. A foe that ended before it was accepted may be in front of who is honest. */
static int next_stream(void)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };
	int fd = -1;

	while (fd < 0) {
		assert_int_equal(rpoll(&p, 1, 10000), 1);
		fd = raccept(listener, NULL, NULL);
	}
	assert_int_equal(rfcntl(fd, F_SETFL, 0), 0);
	return fd;
}

static void honest_peer(void)
{
	pthread_t thread;
	int good = 0, fd;
	char word[5];

	assert_int_equal(pthread_create(&thread, NULL, honest_main, &good), 0);
	fd = next_stream();
	while (rrecv(fd, word, 5, MSG_WAITALL) != 5 || memcmp(word, "hello", 5) != 0) {
		assert_int_equal(rclose(fd), 0);
		fd = next_stream();
	}
	assert_int_equal(rsend(fd, word, 5, 0), 5);
	pthread_join(thread, NULL);
	assert_int_equal(good, 1);
	assert_int_equal(rclose(fd), 0);
}

static void a_stream__survives_peers_that_break_the_protocol(void **state)
{
	struct sockaddr_in name;
	socklen_t len = sizeof(name);
	int places = PLACES;

	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &places, sizeof(places)),
			 0);
	assert_int_equal(rbind(listener, local(0), sizeof(name)), 0);
	assert_int_equal(rgetsockname(listener, (struct sockaddr *)&name, &len), 0);
	port = ntohs(name.sin_port);
	assert_int_equal(rlisten(listener, 16), 0);
	assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < peers; i++) {
		alarm(60);
		fprintf(stderr, "%s%llu", i ? " " : "seeds ",
			(unsigned long long)(first_seed + (uint64_t)i));
		one_peer(first_seed + (uint64_t)i);
		if (i % 20 == 19)
			honest_peer();
	}
	fprintf(stderr, "\n");
	honest_peer();
	assert_int_equal(rclose(listener), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream__survives_peers_that_break_the_protocol),
	};

	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		peers = atoi(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
