/* response_test.c: the packets of a READ's response in an order of opcodes that no responder sends:
 * the request fails, on a path that loses and on one that does not. And what each kind of request
 * counts at both ends. */
#include "watch.h"

enum { DELAY_NS = 10000, MTU = 1024, FIRST_PSN = 100, PACKETS = 3 };

struct response {
	u8 opcodes[PACKETS]; /* PKT_ACK: no more packet */
	enum ibv_wc_status status;
};

static const struct response cases[] = {
	{ { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_LAST }, IBV_WC_SUCCESS },
	/* requested again from the second packet on, and from the third on */
	{ { PKT_READ_FIRST, PKT_READ_FIRST, PKT_READ_LAST }, IBV_WC_SUCCESS },
	{ { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_ONLY }, IBV_WC_SUCCESS },
	{ { PKT_READ_MIDDLE, PKT_ACK }, IBV_WC_BAD_RESP_ERR },
	{ { PKT_READ_LAST, PKT_ACK }, IBV_WC_BAD_RESP_ERR },
	{ { PKT_READ_ONLY, PKT_ACK }, IBV_WC_BAD_RESP_ERR },
	{ { PKT_READ_FIRST, PKT_READ_LAST, PKT_ACK }, IBV_WC_BAD_RESP_ERR },
	{ { PKT_READ_FIRST, PKT_READ_ONLY, PKT_ACK }, IBV_WC_BAD_RESP_ERR },
	{ { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_MIDDLE }, IBV_WC_BAD_RESP_ERR },
	{ { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_FIRST }, IBV_WC_BAD_RESP_ERR },
};

static void response_give(struct pair *r, const u8 opcodes[PACKETS])
{
	static const u8 payload[MTU];

	for (u32 i = 0; i < PACKETS && opcodes[i] != PKT_ACK; i++) {
		struct pkt p = { .opcode = opcodes[i],
				 .qp_type = IBV_QPT_RC,
				 .dqpn = 0x11,
				 .sqpn = 0x22,
				 .psn = FIRST_PSN + i,
				 .length = MTU };

		net_inject(&r->net, 0, &p, payload);
	}
}

static void response__opcodes(void **state)
{
	static struct pair r;

	for (u32 i = 0; i < 2 * ARRAY_LEN(cases); i++) {
		const struct response *c = &cases[i / 2];
		struct net_config cfg = {
			.seed = 1, .delay_ns = DELAY_NS, .reliable = i % 2 != 0, .mtu = MTU
		};
		struct net_qp q = net_qp_defaults(IBV_QPT_RC);
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		pair_open(&r, &cfg, &q);
		r.watch.drop[0] = (struct watch_drop){
			.from = 1, .opcodes = OP_READ_ANSWERS, .first = 1, .count = PACKETS
		};
		wr = net_wr(&sge, &r.net.side[0], IBV_WR_RDMA_READ, 1, 0, PACKETS * MTU);
		net_wr_remote(&wr, &r.net.side[1], 1 << 20);
		net_post(r.qp[0], &wr);
		net_run(&r.net, 5 * DELAY_NS / 2);
		assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), PACKETS);
		response_give(&r, c->opcodes);
		pair_expect(&r, 1, c->status);
		pair_close(&r);
	}
}

/* ---- counters ---- */

/* What one request adds: messages and bytes of the requester, READs among them, and the
 * responder's. A READ or an atomic brings the responder no byte. */
struct counts {
	enum ibv_wr_opcode opcode;
	u32 length;
	u64 reads, read_bytes, received_bytes;
};

static const struct counts counts[] = {
	{ IBV_WR_SEND, 5, 0, 0, 5 },
	{ IBV_WR_SEND_WITH_IMM, 2 * MTU + 7, 0, 0, 2 * MTU + 7 },
	{ IBV_WR_RDMA_WRITE, 3 * MTU + 11, 0, 0, 3 * MTU + 11 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, 13, 0, 0, 13 },
	{ IBV_WR_RDMA_READ, 17, 1, 17, 0 },
	{ IBV_WR_RDMA_READ, 4 * MTU + 19, 1, 4 * MTU + 19, 0 },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0, 0 },
};

static void counts_expect(struct pair *r, const struct counts *c)
{
	struct ibt_counters out = r->net.side[0].qp_counters, in = r->net.side[1].qp_counters;
	const struct ibt_counters *now = &r->net.side[0].qp_counters;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	net_post_recv(&r->net.side[1], r->qp[1], 1, 0, 8 * MTU);
	wr = net_wr(&sge, &r->net.side[0], c->opcode, 1, 0, c->length);
	if (c->opcode != IBV_WR_SEND && c->opcode != IBV_WR_SEND_WITH_IMM)
		net_wr_remote(&wr, &r->net.side[1], 1 << 20);
	if (c->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.compare_add = 1;
	net_post(r->qp[0], &wr);
	net_run(&r->net, NS_PER_MS);
	pair_expect(r, 1, IBV_WC_SUCCESS);
	assert_int_equal(now->sent, out.sent + 1);
	assert_int_equal(now->sent_bytes, out.sent_bytes + c->length);
	assert_int_equal(now->reads, out.reads + c->reads);
	assert_int_equal(now->read_bytes, out.read_bytes + c->read_bytes);
	assert_int_equal(now->received + now->received_bytes, 0);
	now = &r->net.side[1].qp_counters;
	if (r->net.cfg.direct) /* the peer knows nothing of it */
		return;
	assert_int_equal(now->received, in.received + 1);
	assert_int_equal(now->received_bytes, in.received_bytes + c->received_bytes);
	assert_int_equal(now->sent + now->sent_bytes + now->reads + now->read_bytes, 0);
}

static void counters__of_each_request(void **state)
{
	static struct pair r;

	for (u32 i = 0; i < 3; i++) {
		struct net_config cfg = { .seed = 1,
					  .delay_ns = DELAY_NS,
					  .reliable = i > 0,
					  .direct = i > 1,
					  .mtu = MTU };
		struct net_qp q = net_qp_defaults(IBV_QPT_RC);

		pair_open(&r, &cfg, &q);
		for (u32 k = 0; k < ARRAY_LEN(counts); k++)
			counts_expect(&r, &counts[k]);
		pair_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(response__opcodes),
		cmocka_unit_test(counters__of_each_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
