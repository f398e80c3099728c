/* port_test.c: a queue pair whose port goes down and comes up, at any moment of a stream: what is
 * lost meanwhile is sent again, nothing is done twice; datagrams and UC lose it.
 */
#include "watch.h"

#include <string.h>

enum {
	SLOT = 4096,
	ROUNDS = 60,
	SENDS = 8,
	WORD = 1 << 20, /* where the atomics count */
	RESULT = 2 << 20,
	READ_AT = 3 << 20,
	READ_BYTES = 20000,
	DELAY_NS = 5000,
	QKEY = 0x77,
};

struct port {
	struct net net;
	struct ibt_qp *qp[2];
	bool up[2];
};

static void port_open(struct port *p, const struct net_config *cfg, enum ibv_qp_type type)
{
	struct net_qp q = net_qp_defaults(type);

	*p = (struct port){ .up = { true, true } };
	q.timeout = 14;
	q.retry_cnt = 7;
	q.rd_atomic = 4;
	net_open(&p->net, cfg);
	net_pair(&p->net, p->qp, &q);
}

static void port_close(struct port *p)
{
	ibt_qp_destroy(p->qp[0]);
	ibt_qp_destroy(p->qp[1]);
	net_close(&p->net);
}

static void port_set(struct port *p, int side, bool up)
{
	p->up[side] = up;
	ibt_qp_set_port_up(p->qp[side], up);
	assert_int_equal(ibt_qp_access(p->qp[side]) != 0, up);
}

static u64 port_lost(const struct port *p)
{
	return p->net.side[0].counters[COUNT_PORT_DOWN] + p->net.side[1].counters[COUNT_PORT_DOWN];
}

/* Each kind of request, from either side. */
static void port_post_round(struct port *p, int from, u64 round)
{
	static const u32 lengths[] = { 8, 64, 1024, 3000 };
	struct net_side *s = &p->net.side[from], *peer = &p->net.side[1 - from];
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	for (u32 i = 0; i < SENDS; i++) {
		net_post_recv(peer, p->qp[1 - from], i, i * SLOT, SLOT);
		wr = net_wr(&sge, s, IBV_WR_SEND, i, (SENDS + i) * SLOT, lengths[i % 4]);
		net_post(p->qp[from], &wr);
	}
	wr = net_wr(&sge, s, IBV_WR_ATOMIC_FETCH_AND_ADD, SENDS, RESULT, 8);
	wr.wr.atomic.remote_addr = (uintptr_t)peer->memory + WORD;
	wr.wr.atomic.rkey = peer->key;
	wr.wr.atomic.compare_add = 1;
	net_post(p->qp[from], &wr);
	memset(peer->memory + READ_AT, (int)round, READ_BYTES);
	wr = net_wr(&sge, s, IBV_WR_RDMA_READ, SENDS + 1, RESULT + 64, READ_BYTES);
	net_wr_remote(&wr, peer, READ_AT);
	net_post(p->qp[from], &wr);
	wr = net_wr(&sge, s, IBV_WR_RDMA_WRITE, SENDS + 2, READ_AT, 3000);
	net_wr_remote(&wr, peer, WORD + 64);
	net_post(p->qp[from], &wr);
}

static void port_expect_round(struct port *p, int from, u64 round)
{
	struct net_side *s = &p->net.side[from], *peer = &p->net.side[1 - from];
	u64 before;

	for (u32 i = 0; i < SENDS + 3; i++) {
		struct ibv_wc wc = net_wc(&s->send_cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
	for (u32 i = 0; i < SENDS; i++)
		assert_int_equal(net_wc(&peer->recv_cq).wr_id, i);
	assert_int_equal(cq_peek(&peer->recv_cq, 1), 0);
	memcpy(&before, s->memory + RESULT, 8);
	assert_int_equal(before, round);
	for (u32 i = 0; i < READ_BYTES; i++)
		assert_int_equal(s->memory[RESULT + 64 + i], (u8)round);
}

/* Goes down and up a few times while the round is on its way, and is up in the end. */
static void port_flap(struct port *p)
{
	for (u32 i = 1 + net_random(&p->net, 3); i != 0; i--) {
		int side = (int)net_random(&p->net, 2);

		net_run(&p->net, net_random(&p->net, 4 * DELAY_NS));
		port_set(p, side, !p->up[side]);
	}
	net_run(&p->net, net_random(&p->net, 20 * NS_PER_MS));
	for (int side = 0; side < 2; side++)
		if (!p->up[side])
			port_set(p, side, true);
}

static void port_stream(const struct net_config *cfg)
{
	static struct port p;

	port_open(&p, cfg, IBV_QPT_RC);
	for (u64 round = 0; round < 2 * ROUNDS; round++) {
		int from = (int)(round & 1);

		port_post_round(&p, from, round / 2);
		port_flap(&p);
		net_run(&p.net, 5 * NS_PER_S);
		port_expect_round(&p, from, round / 2);
	}
	assert_true(port_lost(&p) > ROUNDS / 2);
	port_close(&p);
}

static void port__stream_survives(void **state)
{
	for (u64 seed = 1; seed <= 8; seed++) {
		port_stream(&(struct net_config){
			.seed = seed, .delay_ns = DELAY_NS, .reliable = true });
		port_stream(&(struct net_config){
			.seed = seed, .delay_ns = DELAY_NS, .reliable = true, .direct = true });
		port_stream(&(struct net_config){ .seed = seed, .delay_ns = DELAY_NS });
		port_stream(&(struct net_config){ .seed = seed,
						  .delay_ns = DELAY_NS,
						  .loss = 100,
						  .late = 100,
						  .late_ns = 10 * DELAY_NS });
	}
}

/* With little room on the way packets and answers wait for it when the port goes down. */
static void port__stream_survives_without_room(void **state)
{
	for (u64 seed = 1; seed <= 8; seed++)
		port_stream(&(struct net_config){ .seed = seed,
						  .delay_ns = DELAY_NS,
						  .reliable = true,
						  .room = { 2, 2 } });
}

/* The requester gives up after its tries, whichever end has the port that is down. */
static void port__stays_down(void **state)
{
	for (int side = 0; side < 2; side++)
		for (int reliable = 0; reliable < 2; reliable++) {
			static struct port p;
			struct net_side *s = &p.net.side[0];
			struct ibv_sge sge;
			struct ibv_send_wr wr;

			port_open(
				&p,
				&(struct net_config){ .delay_ns = DELAY_NS, .reliable = reliable },
				IBV_QPT_RC);
			port_set(&p, side, false);
			net_post_recv(&p.net.side[1], p.qp[1], 1, 0, SLOT);
			wr = net_wr(&sge, s, IBV_WR_SEND, 1, 0, 8);
			net_post(p.qp[0], &wr);
			net_run(&p.net, NS_PER_MS);
			assert_int_equal(cq_peek(&s->send_cq, 1), 0);
			net_run(&p.net, 20 * NS_PER_S);
			assert_int_equal(net_wc(&s->send_cq).status, IBV_WC_RETRY_EXC_ERR);
			assert_int_equal(cq_peek(&p.net.side[1].recv_cq, 1), 0);
			assert_true(port_lost(&p) > 0);
			port_close(&p);
		}
}

/* One message, and whether it arrives. */
static bool port_arrives(struct port *p)
{
	struct net_side *s = &p->net.side[0];
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, s, IBV_WR_SEND, 1, 0, 64);
	struct ibv_wc wc;

	net_post(p->qp[0], &wr);
	net_run(&p->net, NS_PER_MS);
	assert_int_equal(net_wc(&s->send_cq).status, IBV_WC_SUCCESS);
	return cq_pop(&p->net.side[1].recv_cq, 1, &wc) == 1;
}

static void port__unreliable_messages_are_lost(void **state)
{
	for (int side = 0; side < 2; side++)
		for (int reliable = 0; reliable < 2; reliable++) {
			static struct port p;

			port_open(
				&p,
				&(struct net_config){ .delay_ns = DELAY_NS, .reliable = reliable },
				IBV_QPT_UC);
			for (u32 i = 0; i < 4; i++)
				net_post_recv(&p.net.side[1], p.qp[1], i, i * SLOT, SLOT);
			assert_true(port_arrives(&p));
			port_set(&p, side, false);
			assert_false(port_arrives(&p));
			assert_int_equal(port_lost(&p), 1);
			port_set(&p, side, true);
			assert_true(port_arrives(&p));
			port_close(&p);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(port__stream_survives),
		cmocka_unit_test(port__stream_survives_without_room),
		cmocka_unit_test(port__stays_down),
		cmocka_unit_test(port__unreliable_messages_are_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
