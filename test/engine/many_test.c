/* many_test.c: many queue pairs to one destination: what is under way fits a stock receive buffer
 * there, and each gets its share. */
#include "watch.h"

#include <string.h>

enum { MANY = 300, DEPTH = 4, LENGTH = 16 << 10, RUN_MS = 100 };

struct many {
	struct net net;
	struct ibt_qp *qp[MANY][2];
	u32 posted[MANY], done[MANY];
	enum ibv_wr_opcode opcode;
	u32 count;
};

static void many_open(struct many *m, u32 loss)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	net_open(&m->net, &(struct net_config){ .seed = 3, .delay_ns = 20000, .loss = loss });
	q.mtu = IBV_MTU_4096;
	q.depth = DEPTH;
	for (u32 i = 0; i < m->count; i++) {
		m->qp[i][0] = net_qp_create(&m->net, 0, 0x1000 + i, &q);
		m->qp[i][1] = net_qp_create(&m->net, 1, 0x2000 + i, &q);
		net_qp_connect(&m->net, 0, m->qp[i][0], 0x2000 + i, &q);
		net_qp_connect(&m->net, 1, m->qp[i][1], 0x1000 + i, &q);
		m->posted[i] = m->done[i] = 0;
	}
}

static void many_post(struct many *m, u32 i)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &m->net.side[0], m->opcode, i, 0, LENGTH);

	net_wr_remote(&wr, &m->net.side[1], 0);
	net_post(m->qp[i][0], &wr);
	m->posted[i]++;
}

static void many_turn(struct many *m, bool more)
{
	struct ibv_wc wc;

	while (cq_pop(&m->net.side[0].send_cq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		m->done[wc.wr_id]++;
		if (more)
			many_post(m, (u32)wc.wr_id);
	}
}

static void many_run(enum ibv_wr_opcode opcode, u32 count, u32 loss)
{
	static struct many m;
	u32 least = UINT32_MAX, most = 0;
	u64 end;

	m.opcode = opcode;
	m.count = count;
	many_open(&m, loss);
	for (u32 d = 0; d < DEPTH; d++)
		for (u32 i = 0; i < count; i++)
			many_post(&m, i);
	end = net_now() + RUN_MS * NS_PER_MS;
	while (net_now() < end) {
		assert_true(net_step(&m.net));
		many_turn(&m, true);
	}
	for (u32 i = 0; i < count; i++) {
		least = MIN(least, m.done[i]);
		most = MAX(most, m.done[i]);
	}
	print_message("%u queue pairs: %u to %u messages each, at most %lu bytes on the way\n",
		      count, least, most, (unsigned long)m.net.most_buffered);
	assert_true(least > 0);
	assert_true(most <= 2 * least + 1);
	if (loss == 0)
		assert_true(m.net.most_buffered <= NET_BUFFER);
	net_run(&m.net, NS_PER_S);
	many_turn(&m, false);
	net_run(&m.net, NS_PER_S);
	many_turn(&m, false);
	for (u32 i = 0; i < count; i++) {
		assert_int_equal(m.done[i], m.posted[i]);
		ibt_qp_destroy(m.qp[i][0]);
		ibt_qp_destroy(m.qp[i][1]);
	}
	assert_int_equal(net_in_flight(&m.net.side[0]), 0);
	net_close(&m.net);
}

static void many__writers_share(void **state)
{
	many_run(IBV_WR_RDMA_WRITE, 1, 0);
	many_run(IBV_WR_RDMA_WRITE, 2, 0);
	many_run(IBV_WR_RDMA_WRITE, MANY, 0);
}

static void many__readers_share(void **state)
{
	many_run(IBV_WR_RDMA_READ, 2, 0);
	many_run(IBV_WR_RDMA_READ, MANY, 0);
}

static void many__losses_do_not_starve(void **state)
{
	many_run(IBV_WR_RDMA_WRITE, 20, 50);
	many_run(IBV_WR_RDMA_READ, 20, 50);
}

/* Those that wait for their turn do so for others that may fail or go. */
static void many__one_that_goes_lets_others_go_on(void **state)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	static struct many m;
	u32 finished = 0;

	m.opcode = IBV_WR_RDMA_WRITE;
	m.count = 40;
	many_open(&m, 0);
	for (u32 d = 0; d < DEPTH; d++)
		for (u32 i = 0; i < m.count; i++)
			many_post(&m, i);
	/* all that has been sent is lost with those who sent it */
	for (u32 i = 0; i < 20; i++) {
		if (i % 2 != 0) {
			assert_int_equal(
				ibt_qp_modify(m.qp[i][0], &error, IBV_QP_STATE, NULL, NULL), 0);
			continue;
		}
		ibt_qp_destroy(m.qp[i][0]);
		ibt_qp_destroy(m.qp[i][1]);
	}
	net_run(&m.net, NS_PER_S);
	for (struct ibv_wc wc; cq_pop(&m.net.side[0].send_cq, 1, &wc) == 1;)
		finished += wc.wr_id >= 20 && wc.status == IBV_WC_SUCCESS;
	assert_int_equal(finished, 20 * DEPTH);
	assert_int_equal(net_in_flight(&m.net.side[0]), 0);
	for (u32 i = 0; i < m.count; i++)
		if (i >= 20 || i % 2 != 0) {
			ibt_qp_destroy(m.qp[i][0]);
			ibt_qp_destroy(m.qp[i][1]);
		}
	net_close(&m.net);
}

/* Others have filled the window and hear nothing. One whose packet was lost asks again all the
 * same: its time to give up runs. */
static void many__full_window_lets_probes_pass(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct watch watch;
	static struct many m;
	struct ibt_qp *hog[4];
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	m.opcode = IBV_WR_RDMA_WRITE;
	m.count = 0;
	many_open(&m, 0);
	q.timeout = 1;
	q.retry_cnt = 1;
	net_pair(&m.net, m.qp[0], &q);
	watch_begin(&watch, &m.net);
	watch.drop[0] = (struct watch_drop){ .opcodes = OP(WRITE_ONLY), .first = 1, .count = 1 };
	wr = net_wr(&sge, &m.net.side[0], IBV_WR_RDMA_WRITE, 1, 0, 64);
	net_wr_remote(&wr, &m.net.side[1], 0);
	net_post(m.qp[0][0], &wr);
	q = net_qp_defaults(IBV_QPT_RC);
	for (u32 i = 0; i < 4; i++) {
		hog[i] = net_qp_create(&m.net, 0, 0x1000 + i, &q);
		net_qp_connect(&m.net, 0, hog[i], 0x2000 + i, &q);
		wr = net_wr(&sge, &m.net.side[0], IBV_WR_RDMA_WRITE, 2, 0, 64 << 10);
		net_wr_remote(&wr, &m.net.side[1], 0);
		net_post(hog[i], &wr);
	}
	net_run(&m.net, 9 * NS_PER_MS);
	assert_int_equal(net_wc(&m.net.side[0].send_cq).status, IBV_WC_SUCCESS);
	for (u32 i = 0; i < 4; i++)
		ibt_qp_destroy(hog[i]);
	ibt_qp_destroy(m.qp[0][0]);
	ibt_qp_destroy(m.qp[0][1]);
	assert_int_equal(net_in_flight(&m.net.side[0]), 0);
	net_close(&m.net);
}

/* What is under way after notifications of congestion is less, and nothing is stuck. */
static void many__congestion_notified(void **state)
{
	struct pkt cnp = { .opcode = PKT_CNP, .dqpn = 0x1000 };
	static struct many m;
	u64 before;

	m.opcode = IBV_WR_RDMA_WRITE;
	m.count = 1;
	many_open(&m, 0);
	many_post(&m, 0);
	net_run(&m.net, NS_PER_MS);
	many_turn(&m, false);
	for (u32 d = 0; d < DEPTH; d++)
		many_post(&m, 0);
	before = m.net.buffered[1];
	net_run(&m.net, NS_PER_MS);
	many_turn(&m, false);
	for (int i = 0; i < 20; i++) {
		net_inject(&m.net, 0, &cnp, NULL);
		net_run(&m.net, NS_PER_MS);
	}
	for (u32 d = 0; d < DEPTH; d++)
		many_post(&m, 0);
	assert_true(m.net.buffered[1] < before);
	assert_true(m.net.buffered[1] > 0);
	net_run(&m.net, NS_PER_S);
	many_turn(&m, false);
	assert_int_equal(m.done[0], m.posted[0]);
	ibt_qp_destroy(m.qp[0][0]);
	ibt_qp_destroy(m.qp[0][1]);
	net_close(&m.net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many__writers_share),
		cmocka_unit_test(many__readers_share),
		cmocka_unit_test(many__losses_do_not_starve),
		cmocka_unit_test(many__one_that_goes_lets_others_go_on),
		cmocka_unit_test(many__full_window_lets_probes_pass),
		cmocka_unit_test(many__congestion_notified),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
