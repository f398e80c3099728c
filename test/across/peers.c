/* peers.c: two processes on two hosts, whose every byte is checked.
 *
 * usage: peers [-m data|many|dead|UC|UD|group|pressed] [-d DEVICE] [-g GID_INDEX] [-p PORT] [-q
 * QPS] [-n COUNT]
 *              [-s SECONDS] [-t TIMEOUT] [-r RETRIES] [-c TRAFFIC_CLASS] [HOST]
 * Without HOST it is the server; both get the same options.
 * data: COUNT rounds of WRITE, READ, SEND, fetch-add and compare-swap of all sizes up to 64 KiB.
 * many: QPS queue pairs, all busy: COUNT messages each, or for SECONDS; says how many each got.
 * UC, UD: COUNT messages of all sizes over that transport, one after the other; some may be lost,
 *         but none may be wrong, late or come twice.
 * group: the same over UD, to a multicast group that the server has joined: IPv4's with GID 1.
 * pressed: the client sends messages of 64 KiB over UC for SECONDS, one behind the other; the
 * server
 *         says how many arrived of those of the second half of the time.
 * dead: the client says "connected", waits for a line, and writes to a peer that is gone by then.
 * In: options, lines    Out: "ok ..." and status 0, or "wrong: ..." and status 1
 * Runs: one thread      Locks: none
 * A plain verbs program: it is linked against the system's libibverbs and knows nothing of this
 * project.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../pairs/pairs.h"

enum {
	PSN = 0xfffff0, /* soon past 24 bits */
	QKEY = 0x11111111,
	SIZE = 64 << 10,
	RECEIVES = 8,
	WINDOW = 4,	/* messages under way per queue pair of "many" */
	MESSAGE = 1024, /* bytes of each of them */
	PATIENCE_S = 60,
	GRH = 40,
	LOOSE_POLLS = 20000,
	PRESSED_MAX = 1 << 20,
	PRESSED_WAIT_S = 1,
};

/* The server's wait for a message. */
static const double LOOSE_WAIT_S = 0.03;

struct options {
	const char *mode, *device, *host;
	int gid, port, qps, count, seconds, timeout, retries, traffic_class;
};

/* What the other side must know. */
struct card {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey, first_qpn;
};

struct flow {
	struct ibv_qp *qp;
	uint32_t posted, done;
};

struct peer {
	struct options opt;
	struct ibv_context *ctx;
	struct ibv_port_attr port;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_ah *ah; /* UD: the peer's address */
	uint8_t *memory;
	size_t bytes;
	struct flow *flows;
	uint32_t *qpns; /* the peer's */
	struct card card, theirs;
	int tcp;
};

static void fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *fmt, ...)
{
	va_list args;

	printf("wrong: ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	exit(1);
}

static void need(bool truth, const char *what)
{
	if (!truth)
		fail("%s", what);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the word beside the wire ---- */

static void tcp_open(struct peer *p)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)p->opt.port) };
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	if (p->opt.host != NULL) {
		need(inet_pton(AF_INET, p->opt.host, &at.sin_addr) == 1, "an address");
		need(connect(listener, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
		p->tcp = listener;
		return;
	}
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	need(bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
	need(listen(listener, 1) == 0, "listen");
	p->tcp = accept(listener, NULL, NULL);
	need(p->tcp >= 0, "accept");
	close(listener);
}

static void tcp_swap(struct peer *p, const void *mine, void *theirs, size_t bytes)
{
	need(send(p->tcp, mine, bytes, MSG_NOSIGNAL) == (ssize_t)bytes, "the peer has left");
	need(recv(p->tcp, theirs, bytes, MSG_WAITALL) == (ssize_t)bytes, "the peer has left");
}

static void tcp_barrier(struct peer *p)
{
	char a = 'b', b = 0;

	tcp_swap(p, &a, &b, 1);
}

/* ---- verbs ---- */

static void peer_open_device(struct peer *p)
{
	p->ctx = device_open(p->opt.device);
	need(p->ctx != NULL, "the device");
	need(ibv_query_port(p->ctx, CONN_PORT, &p->port) == 0, "ibv_query_port");
	need(ibv_query_gid(p->ctx, CONN_PORT, p->opt.gid, &p->card.gid) == 0, "ibv_query_gid");
}

static bool peer_is_group(const struct peer *p)
{
	return strcmp(p->opt.mode, "group") == 0;
}

static enum ibv_qp_type peer_type(const struct peer *p)
{
	if (peer_is_group(p))
		return IBV_QPT_UD;
	return strcmp(p->opt.mode, "pressed") == 0 ? IBV_QPT_UC : conn_type(p->opt.mode);
}

static struct ibv_qp *peer_create_qp(struct peer *p)
{
	struct ibv_qp_init_attr init = {
		.qp_type = peer_type(p),
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .port_num = CONN_PORT,
				    .qkey = QKEY,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp(p->pd, &init);

	if (init.qp_type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	need(qp != NULL, "ibv_create_qp");
	need(conn_to(qp, &attr, IBV_QPS_INIT) == 0, "to INIT");
	return qp;
}

static union ibv_gid peer_group(const struct peer *p)
{
	static const union ibv_gid v4 = { .raw = { [10] = 0xff, [11] = 0xff, 239, 9, 9, 9 } };
	static const union ibv_gid v6 = { .raw = { 0xff, 0x15, [13] = 9, [15] = 9 } };

	return p->opt.gid == 1 ? v4 : v6;
}

static void peer_connect_qp(struct peer *p, struct ibv_qp *qp, uint32_t to)
{
	union ibv_gid group = peer_group(p);
	struct ibv_qp_attr attr = conn_attr(to, peer_is_group(p) ? &group : &p->theirs.gid,
					    (uint8_t)p->opt.gid);

	attr.path_mtu = p->port.active_mtu;
	attr.rq_psn = attr.sq_psn = PSN;
	attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	attr.timeout = (uint8_t)p->opt.timeout;
	attr.retry_cnt = (uint8_t)p->opt.retries;
	attr.ah_attr.grh.traffic_class = (uint8_t)p->opt.traffic_class;
	need(conn_to(qp, &attr, IBV_QPS_RTR) == 0, "to RTR");
	need(conn_to(qp, &attr, IBV_QPS_RTS) == 0, "to RTS");
	if (qp->qp_type != IBV_QPT_UD)
		return;
	p->ah = ibv_create_ah(p->pd, &attr.ah_attr);
	need(p->ah != NULL, "ibv_create_ah");
	if (peer_is_group(p) && p->opt.host == NULL)
		need(ibv_attach_mcast(qp, &group, 0) == 0, "ibv_attach_mcast");
}

static struct ibv_sge sge_of(struct peer *p, const void *at, uint32_t bytes)
{
	return (struct ibv_sge){ .addr = (uintptr_t)at, .length = bytes, .lkey = p->mr->lkey };
}

/* One of `bytes` at `at`, whose completion names the flow and the place. */
static void flow_receive(struct peer *p, uint32_t flow, uint32_t place, uint8_t *at, uint32_t bytes)
{
	struct ibv_sge sge = sge_of(p, at, bytes);
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)flow << 32 | place,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;

	need(ibv_post_recv(p->flows[flow].qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void flow_send(struct peer *p, uint32_t flow, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct ibv_send_wr *bad;

	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (p->ah != NULL) {
		wr->wr.ud.ah = p->ah;
		wr->wr.ud.remote_qpn = peer_is_group(p) ? 0xffffff : p->qpns[flow];
		wr->wr.ud.remote_qkey = QKEY;
	}
	need(ibv_post_send(p->flows[flow].qp, wr, &bad) == 0, "ibv_post_send");
}

/* The next completion, whatever its status. */
static struct ibv_wc peer_await(struct peer *p)
{
	double until = now_s() + PATIENCE_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->cq, 1, &wc)) == 0)
		need(now_s() < until, "no completion for a minute");
	need(n == 1, "ibv_poll_cq");
	return wc;
}

static struct ibv_wc peer_await_good(struct peer *p)
{
	struct ibv_wc wc = peer_await(p);

	if (wc.status != IBV_WC_SUCCESS)
		fail("%s (%d)", ibv_wc_status_str(wc.status), wc.status);
	return wc;
}

static void peer_open(struct peer *p)
{
	int n = p->opt.qps;

	p->flows = calloc((size_t)n, sizeof(*p->flows));
	p->qpns = calloc((size_t)n * 2, sizeof(*p->qpns));
	/* Receives of one place each; requests of "data" have room behind them. */
	p->bytes = (size_t)n * RECEIVES * MESSAGE + (RECEIVES + 4) * (size_t)SIZE;
	p->memory = calloc(1, p->bytes);
	need(p->flows != NULL && p->qpns != NULL && p->memory != NULL, "memory");
	peer_open_device(p);
	p->pd = ibv_alloc_pd(p->ctx);
	p->cq = ibv_create_cq(p->ctx, n * 2 * RECEIVES + 64, NULL, NULL, 0);
	need(p->pd != NULL && p->cq != NULL, "a protection domain and a completion queue");
	p->mr = ibv_reg_mr(p->pd, p->memory, p->bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	need(p->mr != NULL, "ibv_reg_mr");
	p->card.addr = (uintptr_t)p->memory;
	p->card.rkey = p->mr->rkey;
	for (int i = 0; i < n; i++) {
		p->flows[i].qp = peer_create_qp(p);
		p->qpns[n + i] = p->flows[i].qp->qp_num;
	}
}

static void peer_connect(struct peer *p)
{
	int n = p->opt.qps;

	tcp_swap(p, &p->card, &p->theirs, sizeof(p->card));
	tcp_swap(p, p->qpns + n, p->qpns, sizeof(*p->qpns) * (size_t)n);
	for (int i = 0; i < n; i++)
		peer_connect_qp(p, p->flows[i].qp, p->qpns[i]);
}

/* ---- data: every operation, every size ---- */

static uint32_t mix(uint32_t x)
{
	x = (x ^ (x >> 16)) * 0x7feb352du;
	x = (x ^ (x >> 15)) * 0x846ca68bu;
	return x ^ (x >> 16);
}

static uint32_t round_size(uint32_t round)
{
	return 1 + mix(round) % (1u << (mix(round + 7) % 17));
}

static void fill(uint8_t *at, uint32_t bytes, uint32_t seed)
{
	for (uint32_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(mix(seed) + i * 7 + (i >> 8));
}

static void check(const uint8_t *at, uint32_t bytes, uint32_t seed, const char *what)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (at[i] != (uint8_t)(mix(seed) + i * 7 + (i >> 8)))
			fail("%s %u: byte %u of %u is %02x", what, seed, i, bytes, at[i]);
}

/* Places in both sides' memory: receives first, then these. */
static size_t place_of(int which)
{
	return (RECEIVES + (size_t)which) * SIZE;
}

static struct ibv_wc data_request(struct peer *p, struct ibv_send_wr *wr, uint8_t *at,
				  uint32_t bytes)
{
	struct ibv_sge sge = sge_of(p, at, bytes);

	flow_send(p, 0, wr, &sge);
	return peer_await_good(p);
}

static void data_write_and_read(struct peer *p, uint32_t round)
{
	uint8_t *out = p->memory + place_of(0), *in = p->memory + place_of(1);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
	uint32_t bytes = round_size(round);

	wr.wr.rdma.remote_addr = p->theirs.addr + place_of(2);
	wr.wr.rdma.rkey = p->theirs.rkey;
	fill(out, bytes, round);
	memset(in, 0, bytes);
	data_request(p, &wr, out, bytes);
	wr.opcode = IBV_WR_RDMA_READ;
	data_request(p, &wr, in, bytes);
	check(in, bytes, round, "WRITE and READ");
}

/* The word counts the rounds, if each is executed once. */
static void data_atomics(struct peer *p, uint32_t round)
{
	uint64_t *in = (uint64_t *)(p->memory + place_of(1));
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

	wr.wr.atomic.remote_addr = p->theirs.addr + place_of(3);
	wr.wr.atomic.rkey = p->theirs.rkey;
	wr.wr.atomic.compare_add = 1;
	data_request(p, &wr, (uint8_t *)in, 8);
	if (*in != 2ull * round)
		fail("fetch-add %u found %llu", round, (unsigned long long)*in);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 2ull * round + 1;
	wr.wr.atomic.swap = 2ull * round + 2;
	data_request(p, &wr, (uint8_t *)in, 8);
	if (*in != 2ull * round + 1)
		fail("compare-swap %u found %llu", round, (unsigned long long)*in);
}

static void data_client(struct peer *p)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM };

	for (uint32_t round = 0; round < (uint32_t)p->opt.count; round++) {
		data_write_and_read(p, round);
		fill(p->memory + place_of(0), round_size(round + 1), round + 1);
		wr.imm_data = htonl(round);
		data_request(p, &wr, p->memory + place_of(0), round_size(round + 1));
		data_atomics(p, round);
	}
}

static void data_server(struct peer *p)
{
	for (uint32_t round = 0; round < (uint32_t)p->opt.count; round++) {
		struct ibv_wc wc = peer_await_good(p);
		uint8_t *at = p->memory + wc.wr_id * SIZE;

		if (ntohl(wc.imm_data) != round || wc.byte_len != round_size(round + 1))
			fail("SEND %u came with %u and %u bytes", round, ntohl(wc.imm_data),
			     wc.byte_len);
		check(at, wc.byte_len, round + 1, "SEND");
		flow_receive(p, 0, (uint32_t)wc.wr_id, at, SIZE);
	}
}

static void data_run(struct peer *p)
{
	struct ibv_wc wc;

	for (uint32_t i = 0; p->opt.host == NULL && i < RECEIVES; i++)
		flow_receive(p, 0, i, p->memory + (size_t)i * SIZE, SIZE);
	tcp_barrier(p);
	if (p->opt.host != NULL)
		data_client(p);
	else
		data_server(p);
	/* The server answers retries until the client has its last acknowledgement. */
	tcp_barrier(p);
	need(ibv_poll_cq(p->cq, 1, &wc) == 0, "one completion too many");
	printf("ok %d rounds\n", p->opt.count);
}

/* ---- many: all queue pairs busy ---- */

static void many_post(struct peer *p, uint32_t i)
{
	uint32_t number = p->flows[i].posted++;
	uint32_t *at = (uint32_t *)(p->memory + ((size_t)i * RECEIVES + number % WINDOW) * MESSAGE);
	struct ibv_send_wr wr = { .wr_id = (uint64_t)i << 32, .opcode = IBV_WR_SEND };
	struct ibv_sge sge = sge_of(p, at, MESSAGE);

	at[0] = i;
	at[1] = number;
	at[MESSAGE / 4 - 1] = mix(i ^ number);
	flow_send(p, i, &wr, &sge);
}

static int many_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void many_report(const struct peer *p)
{
	uint32_t n = (uint32_t)p->opt.qps, *done = calloc(n, sizeof(*done));

	need(done != NULL, "memory");
	for (uint32_t i = 0; i < n; i++)
		done[i] = p->flows[i].done;
	qsort(done, n, sizeof(*done), many_compare);
	printf("least %u\nmedian %u\nmost %u\nunfair %.3f\n", done[0], done[n / 2], done[n - 1],
	       (double)done[n - 1] / (done[0] > 0 ? done[0] : 0.001));
	free(done);
}

static void many_client(struct peer *p)
{
	uint32_t n = (uint32_t)p->opt.qps, under_way = 0;
	double until = now_s() + p->opt.seconds;
	bool ends = false;

	for (uint32_t k = 0; k < WINDOW; k++)
		for (uint32_t i = 0; i < n; i++, under_way++)
			many_post(p, i);
	while (under_way > 0) {
		uint32_t i = (uint32_t)(peer_await_good(p).wr_id >> 32);

		p->flows[i].done++;
		under_way--;
		if (p->opt.seconds > 0)
			ends = ends || now_s() > until;
		else
			ends = p->flows[i].posted >= (uint32_t)p->opt.count;
		if (!ends) {
			many_post(p, i);
			under_way++;
		}
	}
	many_report(p);
}

/* Each message must be the next of its queue pair; `done` says what has come. */
static void many_take(struct peer *p, struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)(wc->wr_id >> 32), place = (uint32_t)wc->wr_id;
	uint8_t *at = p->memory + ((size_t)i * RECEIVES + place) * MESSAGE;
	const uint32_t *word = (const uint32_t *)at;

	if (word[0] != i || word[1] != p->flows[i].done ||
	    word[MESSAGE / 4 - 1] != mix(i ^ word[1]))
		fail("queue pair %u got message %u of %u instead of %u", i, word[1], word[0],
		     p->flows[i].done);
	p->flows[i].done++;
	flow_receive(p, i, place, at, MESSAGE);
}

/* Until the client says how many it sent. */
static void many_server(struct peer *p)
{
	uint64_t taken = 0, total = UINT64_MAX;
	struct ibv_wc wc;

	while (taken < total) {
		int n = ibv_poll_cq(p->cq, 1, &wc);

		need(n == 0 || (n == 1 && wc.status == IBV_WC_SUCCESS), "a receive failed");
		if (n == 1) {
			many_take(p, &wc);
			taken++;
		} else if (total == UINT64_MAX) {
			if (recv(p->tcp, &total, sizeof(total), MSG_DONTWAIT) == 0)
				fail("the client has left after %llu messages",
				     (unsigned long long)taken);
		}
	}
	need(taken == total, "more messages than were sent");
}

static void many_run(struct peer *p)
{
	uint64_t total = 0;

	for (uint32_t i = 0; p->opt.host == NULL && i < (uint32_t)p->opt.qps; i++)
		for (uint32_t k = 0; k < RECEIVES; k++)
			flow_receive(p, i, k,
				     p->memory + ((size_t)i * RECEIVES + k) * MESSAGE, MESSAGE);
	tcp_barrier(p);
	if (p->opt.host != NULL) {
		many_client(p);
		for (int i = 0; i < p->opt.qps; i++)
			total += p->flows[i].done;
		need(send(p->tcp, &total, sizeof(total), MSG_NOSIGNAL) == sizeof(total),
		     "the peer has left");
	} else {
		many_server(p);
	}
	tcp_barrier(p);
	printf("ok %d queue pairs\n", p->opt.qps);
}

/* ---- UC and UD: what arrives is right ---- */

/* Message `n`: its size, and the way it goes. The immediate data is its number. */
static uint32_t loose_size(const struct peer *p, uint32_t n)
{
	uint32_t mtu = 128u << p->port.active_mtu;

	return p->ah != NULL ? 1 + mix(n) % mtu : round_size(n);
}

static bool loose_is_write(const struct peer *p, uint32_t n)
{
	return p->ah == NULL && n % 2 != 0;
}

static void loose_client(struct peer *p)
{
	for (uint32_t n = 0; n < (uint32_t)p->opt.count; n++) {
		bool write = loose_is_write(p, n);
		struct ibv_send_wr wr = { .opcode = write ? IBV_WR_RDMA_WRITE_WITH_IMM
							  : IBV_WR_SEND_WITH_IMM,
					  .imm_data = htonl(n) };

		if (write) {
			wr.wr.rdma.remote_addr = p->theirs.addr + place_of(2);
			wr.wr.rdma.rkey = p->theirs.rkey;
		}
		fill(p->memory + place_of(0), loose_size(p, n), n);
		data_request(p, &wr, p->memory + place_of(0), loose_size(p, n));
		tcp_barrier(p); /* went by the same wire, behind it */
		tcp_barrier(p); /* the server has looked for it */
	}
}

/* Numbers rise, so that none comes twice; what was lost is passed over. Returns the next. */
static uint32_t loose_take(struct peer *p, const struct ibv_wc *wc, uint32_t least, uint32_t sent)
{
	uint32_t n = ntohl(wc->imm_data), header = p->ah != NULL ? GRH : 0;
	uint8_t *at = p->memory + wc->wr_id * SIZE;

	if (wc->status != IBV_WC_SUCCESS)
		fail("%s (%d)", ibv_wc_status_str(wc->status), wc->status);
	if (n < least || n > sent || wc->byte_len != loose_size(p, n) + header)
		fail("message %u of %u bytes after %u, before %u", n, wc->byte_len, least, sent);
	if ((wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) != loose_is_write(p, n))
		fail("message %u came as another operation (%d)", n, wc->opcode);
	check(loose_is_write(p, n) ? p->memory + place_of(2) : at + header, loose_size(p, n), n,
	      "message");
	flow_receive(p, 0, (uint32_t)wc->wr_id, at, SIZE);
	return n + 1;
}

/* A wire may hold it back for some milliseconds, and a busy machine the threads that receive it. */
static bool loose_look(struct peer *p, struct ibv_wc *wc)
{
	double until = now_s() + LOOSE_WAIT_S;
	int found = 0;

	for (int i = 0; found == 0 && (i < LOOSE_POLLS || now_s() < until); i++)
		found = ibv_poll_cq(p->cq, 1, wc);
	need(found >= 0, "ibv_poll_cq");
	return found > 0;
}

/* One message is under way at a time: what does not come now is lost. */
static void loose_server(struct peer *p)
{
	uint32_t next = 0, arrived = 0;

	for (uint32_t n = 0; n < (uint32_t)p->opt.count; n++) {
		struct ibv_wc wc;

		tcp_barrier(p);
		if (loose_look(p, &wc)) {
			next = loose_take(p, &wc, next, n);
			arrived++;
		}
		tcp_barrier(p);
	}
	printf("arrived %u\n", arrived);
	need(arrived > (uint32_t)p->opt.count / 4, "nearly all messages were lost");
}

/* ---- pressed: UC, as fast as the queue pair takes it ---- */

static void pressed_client(struct peer *p)
{
	double begin = now_s(), now = begin;
	uint64_t counts[2] = { 0, 0 }; /* sent, and of these before half of the time */

	while (now < begin + p->opt.seconds) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM,
					  .imm_data = htonl((uint32_t)counts[0]) };

		fill(p->memory + place_of(0), SIZE, (uint32_t)counts[0]);
		data_request(p, &wr, p->memory + place_of(0), SIZE);
		counts[0]++;
		now = now_s();
		if (now < begin + p->opt.seconds / 2.0)
			counts[1] = counts[0];
	}
	need(send(p->tcp, counts, sizeof(counts), MSG_NOSIGNAL) == sizeof(counts),
	     "the peer has left");
}

/* Which message has come: whole, right, and after those before it. */
static uint32_t pressed_take(struct peer *p, const struct ibv_wc *wc, uint32_t least)
{
	uint8_t *at = p->memory + wc->wr_id * SIZE;
	uint32_t n = ntohl(wc->imm_data);

	if (wc->status != IBV_WC_SUCCESS || wc->byte_len != SIZE || n < least)
		fail("message %u of %u bytes (%d), not before %u", n, wc->byte_len, wc->status,
		     least);
	check(at, SIZE, n, "message");
	flow_receive(p, 0, (uint32_t)wc->wr_id, at, SIZE);
	return n;
}

static void pressed_server(struct peer *p)
{
	uint32_t *seen = calloc(PRESSED_MAX, sizeof(*seen)), arrived = 0, later = 0;
	double until = now_s() + PATIENCE_S;
	uint64_t counts[2] = { 0, 0 };
	struct ibv_wc wc;

	need(seen != NULL, "memory");
	while (now_s() < until) {
		int n = ibv_poll_cq(p->cq, 1, &wc);

		need(n >= 0 && arrived < PRESSED_MAX, "ibv_poll_cq");
		if (n == 1) {
			seen[arrived] = pressed_take(p, &wc,
						     arrived == 0 ? 0 : seen[arrived - 1] + 1);
			arrived++;
		} else if (counts[0] == 0 &&
			   recv(p->tcp, counts, sizeof(counts), MSG_DONTWAIT) == sizeof(counts)) {
			until = now_s() + PRESSED_WAIT_S;
		}
	}
	for (uint32_t i = 0; i < arrived; i++)
		later += seen[i] >= counts[1];
	free(seen);
	printf("sent %llu\narrived %u\nthen %llu\nlater %u\n", (unsigned long long)counts[0],
	       arrived, (unsigned long long)(counts[0] - counts[1]), later);
	need(counts[0] != 0, "the client has not ended");
}

static void loose_run(struct peer *p)
{
	bool pressed = strcmp(p->opt.mode, "pressed") == 0;

	for (uint32_t i = 0; p->opt.host == NULL && i < RECEIVES; i++)
		flow_receive(p, 0, i, p->memory + (size_t)i * SIZE, SIZE);
	tcp_barrier(p);
	if (p->opt.host != NULL)
		(pressed ? pressed_client : loose_client)(p);
	else
		(pressed ? pressed_server : loose_server)(p);
	tcp_barrier(p);
	printf("ok %s\n", p->opt.mode);
}

/* ---- dead: how long until it is said ---- */

static void dead_run(struct peer *p)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_sge sge = sge_of(p, p->memory, 64);
	struct ibv_wc wc;
	double begin;
	char line[16];

	tcp_barrier(p);
	if (p->opt.host == NULL) {
		pause();
		return;
	}
	wr.wr.rdma.remote_addr = p->theirs.addr;
	wr.wr.rdma.rkey = p->theirs.rkey;
	data_request(p, &wr, p->memory, 64);
	printf("connected\n");
	fflush(stdout);
	need(fgets(line, sizeof(line), stdin) != NULL, "a line");
	begin = now_s();
	flow_send(p, 0, &wr, &sge);
	wc = peer_await(p);
	printf("status %d\nms %.0f\nok\n", wc.status, (now_s() - begin) * 1e3);
}

/* ---- the command ---- */

static int *option_number(struct options *o, int c)
{
	switch (c) {
	case 'g':
		return &o->gid;
	case 'p':
		return &o->port;
	case 'q':
		return &o->qps;
	case 'n':
		return &o->count;
	case 's':
		return &o->seconds;
	case 't':
		return &o->timeout;
	case 'r':
		return &o->retries;
	case 'c':
		return &o->traffic_class;
	default:
		fail("no such option");
	}
}

int main(int argc, char **argv)
{
	static struct peer p;
	int c;

	p.opt = (struct options){ .mode = "data", .device = "roce0", .gid = 1, .port = 18515,
				  .qps = 1, .count = 100, .timeout = 14, .retries = 7 };
	while ((c = getopt(argc, argv, "m:d:g:p:q:n:s:t:r:c:")) != -1) {
		if (c == 'm')
			p.opt.mode = optarg;
		else if (c == 'd')
			p.opt.device = optarg;
		else
			*option_number(&p.opt, c) = atoi(optarg);
	}
	p.opt.host = argv[optind];
	peer_open(&p);
	tcp_open(&p);
	peer_connect(&p);
	if (strcmp(p.opt.mode, "many") == 0)
		many_run(&p);
	else if (peer_type(&p) != IBV_QPT_RC)
		loose_run(&p);
	else if (strcmp(p.opt.mode, "dead") == 0)
		dead_run(&p);
	else
		data_run(&p);
	return 0;
}
