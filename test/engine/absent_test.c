/* absent_test.c: requests to queue pairs that nobody holds, over a reliable path whose way back is
 * full: each requester is told all the same, and its timeout ends it. */
#include "net.h"

#include <string.h>

enum { MANY = 100, FIRST = 0x100 };

/* Fills the way to side 0 with a packet that takes its time. */
static void absent_fill_way_back(struct net *net, struct ibt_qp **other)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_UC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	*other = net_qp_create(net, 1, 0x33, &q);
	net_qp_connect(net, 1, *other, 0x44, &q);
	net->cfg.delay_ns = NS_PER_MS;
	wr = net_wr(&sge, &net->side[1], IBV_WR_SEND, 1, 0, 8);
	net_post(*other, &wr);
	net->cfg.delay_ns = 10000;
}

static void absent_run(u32 count)
{
	struct net_config cfg = {
		.seed = 1, .delay_ns = 10000, .reliable = true, .room = { 1, 0 }
	};
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibt_qp *qp[MANY], *other;
	bool told[MANY] = { false };
	struct net net;

	net_open(&net, &cfg);
	absent_fill_way_back(&net, &other);
	for (u32 i = 0; i < count; i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		qp[i] = net_qp_create(&net, 0, FIRST + i, &q);
		net_qp_connect(&net, 0, qp[i], 0x1000 + i, &q);
		wr = net_wr(&sge, &net.side[0], IBV_WR_SEND, i, 0, 8);
		net_post(qp[i], &wr);
	}
	net_run(&net, 100 * NS_PER_S);
	for (u32 i = 0; i < count; i++) {
		struct ibv_wc wc = net_wc(&net.side[0].send_cq);

		assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		assert_false(told[wc.wr_id]);
		told[wc.wr_id] = true;
	}
	for (u32 i = 0; i < count; i++)
		ibt_qp_destroy(qp[i]);
	ibt_qp_destroy(other);
	net_close(&net);
}

static void absent__one_finds_no_room(void **state)
{
	absent_run(1);
}

static void absent__a_few_find_no_room(void **state)
{
	absent_run(PATH_ABSENT_MAX);
}

static void absent__more_than_are_kept(void **state)
{
	absent_run(MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(absent__one_finds_no_room),
		cmocka_unit_test(absent__a_few_find_no_room),
		cmocka_unit_test(absent__more_than_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
