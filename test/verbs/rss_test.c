/* rss_test.c: receive-side scaling: each frame goes to one work queue of the table, each entry gets
 * some, and a flow always the same one.
 * In: nothing      Out: verdicts; 77: not root      Runs: cmocka      Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "raw_bed.h"
#include "verdict.h"

enum { RSS_LOG = 2, RSS_QUEUES = 1 << RSS_LOG, RSS_FLOWS = 60, RSS_KEY = 40 };

static struct raw_end a; /* sends */
static struct ibv_cq *cqs[RSS_QUEUES];
static struct ibv_wq *wqs[RSS_QUEUES];
static struct ibv_rwq_ind_table *table;
static struct ibv_qp *hashed;
static struct ibv_flow *flow;

static struct ibv_wq *rss_wq(struct ibv_cq *cq)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 2 * RSS_FLOWS,
					 .max_sge = 1, .pd = a.pd, .cq = cq };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_sge sge = { (uintptr_t)a.memory, RAW_ROOM, a.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wq *wq = ibv_create_wq(raw_ctx, &init);

	assert_non_null(wq);
	assert_int_equal(ibv_modify_wq(wq, &ready), 0);
	for (int i = 0; i < 2 * RSS_FLOWS; i++)
		assert_int_equal(ibv_post_wq_recv(wq, &wr, &bad), 0);
	return wq;
}

/* Of a queue pair that spreads frames over `table` by these fields. */
static struct ibv_qp_init_attr_ex rss_attr(uint64_t fields)
{
	static uint8_t key[RSS_KEY];

	for (int i = 0; i < RSS_KEY; i++)
		key[i] = (uint8_t)(i * 37 + 11);
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
			     IBV_QP_INIT_ATTR_RX_HASH,
		.pd = a.pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = RSS_KEY,
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = fields },
	};
}

static void rss_open(uint64_t fields)
{
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = RSS_LOG, .ind_tbl = wqs };
	struct raw_rule rule = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_qp_init_attr_ex ex;

	for (int i = 0; i < RSS_QUEUES; i++) {
		cqs[i] = ibv_create_cq(raw_ctx, 2 * RSS_FLOWS, NULL, NULL, 0);
		assert_non_null(cqs[i]);
		wqs[i] = rss_wq(cqs[i]);
	}
	table = ibv_create_rwq_ind_table(raw_ctx, &init);
	assert_non_null(table);
	ex = rss_attr(fields);
	hashed = ibv_create_qp_ex(raw_ctx, &ex);
	assert_non_null(hashed);
	raw_add_mac(&rule, 1);
	flow = ibv_create_flow(hashed, &rule.attr);
	assert_non_null(flow);
}

static void rss_close(void)
{
	assert_int_equal(ibv_destroy_qp(hashed), EBUSY);
	assert_int_equal(ibv_destroy_flow(flow), 0);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), EBUSY);
	assert_int_equal(ibv_destroy_qp(hashed), 0);
	assert_int_equal(ibv_destroy_wq(wqs[0]), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), 0);
	for (int i = 0; i < RSS_QUEUES; i++) {
		assert_int_equal(ibv_destroy_wq(wqs[i]), 0);
		assert_int_equal(ibv_destroy_cq(cqs[i]), 0);
	}
}

static int setup(void **state)
{
	raw_bed_open();
	raw_open(&a, 0);
	return 0;
}

static int teardown(void **state)
{
	raw_close(&a);
	raw_bed_close();
	return 0;
}

/* Which queue has got the frame: a process' own frames come to it as they are sent. -1: none. */
static int rss_taker(void)
{
	struct ibv_wc wc;
	int taker = -1;

	for (int i = 0; i < RSS_QUEUES; i++)
		while (ibv_poll_cq(cqs[i], 1, &wc) == 1) {
			assert_int_equal(taker, -1);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.byte_len, RAW_FRAME);
			taker = i;
		}
	return taker;
}

static void rss__each_entry_gets_flows(void **state)
{
	int taken[RSS_QUEUES] = { 0 };

	rss_open(IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP);
	for (uint16_t port = 1; port <= RSS_FLOWS; port++) {
		int taker;

		raw_send(&a, 1, port);
		taker = rss_taker();
		assert_true(taker >= 0);
		taken[taker]++;
		raw_send(&a, 1, port); /* a flow stays where it is */
		assert_int_equal(rss_taker(), taker);
	}
	for (int i = 0; i < RSS_QUEUES; i++)
		assert_true(taken[i] > 0);
	rss_close();
}

/* Fields that are not named do not part frames. */
static void rss__ports_that_are_not_named(void **state)
{
	int first;

	rss_open(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4);
	raw_send(&a, 1, 1);
	first = rss_taker();
	assert_true(first >= 0);
	for (uint16_t port = 2; port <= 20; port++) {
		raw_send(&a, 1, port);
		assert_int_equal(rss_taker(), first);
	}
	rss_close();
}

/* A table, hash or queue that is not right. */
static void rss__that_are_refused(void **state)
{
	enum { IP4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, LONGEST = 255 };
	static uint8_t key[LONGEST];
	struct ibv_context *ctx = ibv_open_device(raw_ctx->device);
	struct ibv_pd *other_pd = ibv_alloc_pd(ctx);
	struct ibv_cq *other_cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_wq_init_attr wq_init = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1,
					    .pd = other_pd, .cq = other_cq };
	struct ibv_wq *other_wq = ibv_create_wq(ctx, &wq_init);
	struct ibv_rwq_ind_table_init_attr init = { .ind_tbl = &other_wq };
	struct ibv_rwq_ind_table *other_table = ibv_create_rwq_ind_table(ctx, &init);
	struct ibv_qp_init_attr_ex ex;

	assert_non_null(other_table);
	rss_open(IP4);
#define REFUSED(change, error)                                                                     \
	do {                                                                                       \
		ex = rss_attr(IP4);                                                                \
		change;                                                                            \
		judge(#change, &(struct line){ "answer", 0, error },                               \
		      MADE(struct ibv_qp, ibv_create_qp_ex(raw_ctx, &ex), ibv_destroy_qp));        \
	} while (0)
	REFUSED((void)0, 0);
	REFUSED(ex.rx_hash_conf.rx_hash_fields_mask = 0, 0);
	REFUSED(ex.rx_hash_conf.rx_hash_fields_mask = 1ull << 63, EOPNOTSUPP);
	REFUSED(ex.rx_hash_conf.rx_hash_fields_mask = UINT64_MAX, EOPNOTSUPP);
	REFUSED(ex.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6, EINVAL);
	REFUSED(ex.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_PORT_TCP |
						       IBV_RX_HASH_DST_PORT_UDP, EINVAL);
	REFUSED(ex.rx_hash_conf.rx_hash_function = 0, EOPNOTSUPP);
	REFUSED(ex.rx_hash_conf.rx_hash_function = 255, EOPNOTSUPP);
	REFUSED(ex.rx_hash_conf.rx_hash_key = NULL, EINVAL);
	REFUSED(ex.rx_hash_conf.rx_hash_key_len = 0, EINVAL);
	REFUSED(ex.rx_hash_conf.rx_hash_key_len = RSS_KEY - 1, EINVAL);
	REFUSED((ex.rx_hash_conf.rx_hash_key = key,
		 ex.rx_hash_conf.rx_hash_key_len = RSS_KEY + 1), EINVAL);
	REFUSED((ex.rx_hash_conf.rx_hash_key = key,
		 ex.rx_hash_conf.rx_hash_key_len = LONGEST), EINVAL);
	REFUSED(ex.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_RX_HASH, EINVAL);
	REFUSED(ex.rwq_ind_tbl = other_table, EINVAL);
	REFUSED(ex.pd = other_pd, EINVAL);
	REFUSED(ex.send_cq = cqs[0], EINVAL);
	REFUSED(ex.recv_cq = cqs[0], EINVAL);
	REFUSED(ex.qp_type = IBV_QPT_UD, EOPNOTSUPP);
	REFUSED(ex.qp_type = IBV_QPT_RC, EOPNOTSUPP);
#undef REFUSED
	rss_close();
	assert_int_equal(ibv_destroy_rwq_ind_table(other_table), 0);
	assert_int_equal(ibv_destroy_wq(other_wq), 0);
	assert_int_equal(ibv_destroy_cq(other_cq), 0);
	assert_int_equal(ibv_dealloc_pd(other_pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	verdict();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(rss__each_entry_gets_flows),
		TEST(rss__ports_that_are_not_named),
		TEST(rss__that_are_refused),
	};

	if (!raw_bed_make()) {
		fprintf(stderr, "SKIPPED: no network namespace with a veth pair can be made\n");
		return RAW_SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
