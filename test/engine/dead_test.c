/* dead_test.c: requesters whose peer queue pairs do not answer, although the peer's process lives,
 * beside a requester whose peer does. All of them share one window. The dead ones probe after each
 * silence; the healthy one is to get its turn all the same. */
#include "watch.h"

#include <string.h>

enum {
	MOST = 64,
	NEVER_READY = 12,
	LENGTH = 256 << 10, /* of a message; an atomic has 8 bytes */
	HEALTHY = 1000,	    /* its wr_id */
	ROUNDS = 40,
	/* A queue pair whose peer has never answered probes after 10 ms, and until then the window
	 * counts what it has sent. */
	FIRST_MS = 50,
	FIRST_EACH_MS = 5,
	LATER_MS = 5,
	LIMIT_MIN = 190 << 10, /* of the window's limit, 208 KiB */
};

struct dead {
	struct net net;
	struct ibt_qp *qp[MOST], *healthy[2];
	u32 count;
	u8 timeout;
	bool heard; /* the dead ones have been answered before */
};

static const enum ibv_wr_opcode dead_ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
					       IBV_WR_RDMA_WRITE, IBV_WR_SEND };
static const u32 dead_counts[] = { 1, 4, 5, 32, MOST };
static const u8 dead_timeouts[] = { 0, 14, 18 };

static void dead_post(struct dead *d, struct ibt_qp *qp, enum ibv_wr_opcode op, u64 wr_id)
{
	u32 length = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH;
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &d->net.side[0], op, wr_id, 0, length);

	if (op != IBV_WR_SEND)
		net_wr_remote(&wr, &d->net.side[1], 0);
	net_post(qp, &wr);
}

/* Every peer answers once and is destroyed then, or there never is one. */
static void dead_open(struct dead *d, u32 count, u8 timeout, bool heard)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	*d = (struct dead){ .count = count, .timeout = timeout, .heard = heard };
	net_open(&d->net, &(struct net_config){ .seed = 5, .delay_ns = 20000 });
	q.mtu = IBV_MTU_4096;
	net_pair(&d->net, d->healthy, &q);
	q.timeout = timeout;
	for (u32 i = 0; i < count; i++) {
		struct ibt_qp *peer = NULL;

		d->qp[i] = net_qp_create(&d->net, 0, 0x1000 + i, &q);
		net_qp_connect(&d->net, 0, d->qp[i], 0x2000 + i, &q);
		if (!heard)
			continue;
		peer = net_qp_create(&d->net, 1, 0x2000 + i, &q);
		net_qp_connect(&d->net, 1, peer, 0x1000 + i, &q);
		for (int n = 0; n < 8; n++) {
			dead_post(d, d->qp[i], IBV_WR_ATOMIC_FETCH_AND_ADD, i);
			net_run(&d->net, NS_PER_MS);
			assert_int_equal(net_wc(&d->net.side[0].send_cq).status, IBV_WC_SUCCESS);
		}
		ibt_qp_destroy(peer);
	}
}

static void dead_close(struct dead *d)
{
	for (u32 i = 0; i < d->count; i++)
		ibt_qp_destroy(d->qp[i]);
	ibt_qp_destroy(d->healthy[0]);
	ibt_qp_destroy(d->healthy[1]);
	assert_int_equal(net_in_flight(&d->net.side[0]), 0);
	net_close(&d->net);
}

/* Has the healthy request completed? The dead ones may give up meanwhile, no more. */
static bool dead_healthy_is_done(struct dead *d)
{
	struct ibv_wc wc;
	bool done = false;

	while (cq_pop(&d->net.side[0].send_cq, 1, &wc) == 1) {
		done |= wc.wr_id == HEALTHY;
		assert_int_equal(wc.status, wc.wr_id == HEALTHY ? IBV_WC_SUCCESS
								: IBV_WC_RETRY_EXC_ERR);
		assert_true(wc.wr_id == HEALTHY || d->timeout != 0);
	}
	return done;
}

static void dead_expect_healthy(struct dead *d, enum ibv_wr_opcode op, u32 limit_ms)
{
	u64 end = net_now() + limit_ms * NS_PER_MS;
	struct ibv_wc wc;

	if (op == IBV_WR_SEND)
		net_post_recv(&d->net.side[1], d->healthy[1], 1, 0, LENGTH);
	dead_post(d, d->healthy[0], op, HEALTHY);
	while (!dead_healthy_is_done(d)) {
		assert_true(net_step(&d->net));
		assert_true(net_now() <= end);
	}
	while (cq_pop(&d->net.side[1].recv_cq, 1, &wc) == 1)
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* Nothing is lost, and silence alone is no reason to shrink what all of them share, but once. */
static void dead_expect_window(struct dead *d) NO_THREAD_SAFETY /* there is one thread */
{
	const struct path_window *w = d->net.side[0].dest.dest.window;

	assert_true(w->limit == 0 || w->limit >= LIMIT_MIN);
}

static void dead_run(struct dead *d, enum ibv_wr_opcode theirs, enum ibv_wr_opcode healthy)
{
	u32 first_ms = FIRST_MS + d->count * FIRST_EACH_MS;

	for (u32 i = 0; i < d->count; i++)
		dead_post(d, d->qp[i], theirs, i);
	dead_expect_healthy(d, healthy, first_ms);
	net_run(&d->net, first_ms * NS_PER_MS);
	for (u32 i = 0; i < ROUNDS; i++) {
		dead_expect_healthy(d, healthy, LATER_MS);
		net_run(&d->net, net_random(&d->net, 60) * NS_PER_MS);
	}
	if (healthy != IBV_WR_ATOMIC_FETCH_AND_ADD)
		dead_expect_window(d);
}

static void dead_siblings(enum ibv_wr_opcode theirs, bool heard)
{
	static struct dead d;

	for (u32 c = 0; c < ARRAY_LEN(dead_counts); c++)
		for (u32 t = 0; t < ARRAY_LEN(dead_timeouts); t++)
			for (u32 o = 0; o < ARRAY_LEN(dead_ops); o++) {
				dead_open(&d, dead_counts[c], dead_timeouts[t], heard);
				dead_run(&d, theirs, dead_ops[o]);
				dead_close(&d);
			}
}

static void dead__reads(void **state)
{
	dead_siblings(IBV_WR_RDMA_READ, false);
	dead_siblings(IBV_WR_RDMA_READ, true);
}

static void dead__atomics(void **state)
{
	dead_siblings(IBV_WR_ATOMIC_FETCH_AND_ADD, false);
	dead_siblings(IBV_WR_ATOMIC_FETCH_AND_ADD, true);
}

static void dead__writes(void **state)
{
	dead_siblings(IBV_WR_RDMA_WRITE, false);
	dead_siblings(IBV_WR_RDMA_WRITE, true);
}

static void dead__sends(void **state)
{
	dead_siblings(IBV_WR_SEND, false);
	dead_siblings(IBV_WR_SEND, true);
}

/* The peers live, but never post a receive: each message is refused, waits and goes again. */
static void dead__never_ready(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibt_qp *peer[NEVER_READY];
	static struct dead d;

	dead_open(&d, 0, 14, false);
	q.mtu = IBV_MTU_4096;
	for (u32 i = 0; i < NEVER_READY; i++) {
		d.qp[i] = net_qp_create(&d.net, 0, 0x1000 + i, &q);
		peer[i] = net_qp_create(&d.net, 1, 0x2000 + i, &q);
		net_qp_connect(&d.net, 0, d.qp[i], 0x2000 + i, &q);
		net_qp_connect(&d.net, 1, peer[i], 0x1000 + i, &q);
	}
	d.count = NEVER_READY;
	for (u32 o = 0; o < ARRAY_LEN(dead_ops); o++)
		dead_run(&d, IBV_WR_SEND, dead_ops[o]);
	for (u32 i = 0; i < NEVER_READY; i++)
		ibt_qp_destroy(peer[i]);
	dead_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dead__reads),
		cmocka_unit_test(dead__atomics),
		cmocka_unit_test(dead__writes),
		cmocka_unit_test(dead__sends),
		cmocka_unit_test(dead__never_ready),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
