/* response_test.c: the packets of a READ's response in an order of opcodes that no responder sends:
 * the request fails, on a path that loses and on one that does not. */
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(response__opcodes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
