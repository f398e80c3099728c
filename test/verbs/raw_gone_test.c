/* raw_gone_test.c: raw packet queue pairs, rules, counters, work queues and their tables, and
 * device memory, on a device that has been removed: what each call answers, what its requests
 * complete with, and that all of it is destroyed as ever.
 * In: nothing      Out: verdicts; 77: not root      Runs: cmocka      Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw_bed.h"
#include "verdict.h"

enum { GONE_RECVS = 4 };

static struct raw_end a; /* has a rule with counters, and receive requests */
static struct ibv_flow *flow;
static struct ibv_counters *counters;
static struct ibv_wq *wq, *idle; /* idle: in RESET */
static struct ibv_rwq_ind_table *table;
static struct ibv_qp *hashed;
static struct ibv_dm *dm;
static uint8_t key[40];

static void run(const char *command)
{
	assert_int_equal(system(command), 0);
}

static struct ibv_context *gone_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (strcmp(ibv_get_device_name(list[i]), "roce1") == 0)
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

/* Added by the node, the device is listed as soon as this process has heard of it. */
static void gone_await(void)
{
	for (int i = 0; i < 20000 && (raw_ctx = gone_open()) == NULL; i++)
		usleep(1000);
	assert_non_null(raw_ctx);
}

static struct ibv_wq *gone_wq(void)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1,
					 .pd = a.pd, .cq = a.cq };

	return ibv_create_wq(raw_ctx, &init);
}

static struct ibv_rwq_ind_table *gone_table(void)
{
	struct ibv_rwq_ind_table_init_attr init = { .ind_tbl = &wq };

	return ibv_create_rwq_ind_table(raw_ctx, &init);
}

static struct ibv_qp *gone_hashed(void)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
			     IBV_QP_INIT_ATTR_RX_HASH,
		.pd = a.pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key },
	};

	return ibv_create_qp_ex(raw_ctx, &ex);
}

static struct ibv_qp *gone_plain(void)
{
	struct ibv_qp_init_attr init = raw_init(&a);

	return ibv_create_qp(a.pd, &init);
}

static struct ibv_counters *gone_counters(void)
{
	struct ibv_counters_init_attr init = { 0 };

	return ibv_create_counters(raw_ctx, &init);
}

static struct ibv_mr *gone_region(void)
{
	return ibv_reg_dm_mr(a.pd, dm, 0, 4, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
}

static int gone_attach(void)
{
	struct ibv_counter_attach_attr attr = { .counter_desc = IBV_COUNTER_PACKETS };

	return ibv_attach_counters_point_flow(counters, &attr, NULL);
}

static int gone_read(void)
{
	uint64_t value[1];

	return ibv_read_counters(counters, value, 1, IBV_READ_COUNTERS_ATTR_PREFER_CACHED);
}

static struct ibv_flow *gone_flow(struct ibv_qp *qp)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 3);

	raw_add_mac(&r, 9);
	return ibv_create_flow(qp, &r.attr);
}

static int gone_to(struct ibv_wq *queue, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	return ibv_modify_wq(queue, &attr);
}

static int gone_post_wq(struct ibv_wq *queue)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, RAW_ROOM, a.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 70, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_wq_recv(queue, &wr, &bad);
}

static int gone_post_recv(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, RAW_ROOM, a.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int gone_post_send(void)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, RAW_FRAME, a.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	return ibv_post_send(a.qp, &wr, &bad);
}

static int gone_limit(void)
{
	struct ibv_qp_rate_limit_attr attr = { .rate_limit = 1000 };

	return ibv_modify_qp_rate_limit(a.qp, &attr);
}

static int gone_query(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

static void objects_make(void)
{
	struct raw_rule r = raw_rule(IBV_FLOW_ATTR_NORMAL, 0);
	struct ibv_flow_spec_counter_action spec = { .type = IBV_FLOW_SPEC_ACTION_COUNT,
						     .size = sizeof(spec) };
	struct ibv_alloc_dm_attr memory = { .length = 4 };

	raw_open(&a, GONE_RECVS);
	dm = ibv_alloc_dm(raw_ctx, &memory);
	assert_non_null(dm);
	counters = gone_counters();
	assert_non_null(counters);
	assert_int_equal(gone_attach(), 0);
	spec.counters = counters;
	raw_add_mac(&r, 1);
	raw_add(&r, &spec, sizeof(spec));
	flow = ibv_create_flow(a.qp, &r.attr);
	assert_non_null(flow);
	wq = gone_wq();
	idle = gone_wq();
	assert_true(wq && idle);
	assert_int_equal(gone_to(wq, IBV_WQS_RDY), 0);
	assert_int_equal(gone_post_wq(wq), 0);
	table = gone_table();
	assert_non_null(table);
	hashed = gone_hashed();
	assert_non_null(hashed);
	raw_send(&a, 1, 5);
	raw_expect_to(&a, 1, 5);
}

/* Everything that waited is flushed: receives of the queue pair and of the work queue. */
static void requests_are_flushed(void)
{
	bool came[RAW_SLOTS + 1] = { false };
	struct ibv_wc wc;

	for (int i = 0; i < GONE_RECVS; i++) {
		uint64_t slot;

		assert_true(raw_poll(a.cq, &wc));
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		slot = wc.wr_id == 70 ? RAW_SLOTS : wc.wr_id;
		assert_true(slot <= RAW_SLOTS && !came[slot]);
		came[slot] = true;
	}
	assert_true(came[RAW_SLOTS]);
	assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), -EIO);
	assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), -EIO);
}

static void creations_are_refused(void)
{
	const struct line gone = { "gone", 0, EIO };

	judge("ibv_create_qp", &gone, MADE(struct ibv_qp, gone_plain(), ibv_destroy_qp));
	judge("ibv_create_qp_ex", &gone, MADE(struct ibv_qp, gone_hashed(), ibv_destroy_qp));
	judge("ibv_create_wq", &gone, MADE(struct ibv_wq, gone_wq(), ibv_destroy_wq));
	judge("ibv_create_rwq_ind_table", &gone,
	      MADE(struct ibv_rwq_ind_table, gone_table(), ibv_destroy_rwq_ind_table));
	judge("ibv_create_flow", &gone, MADE(struct ibv_flow, gone_flow(a.qp), ibv_destroy_flow));
	judge("ibv_create_flow, hashed", &gone,
	      MADE(struct ibv_flow, gone_flow(hashed), ibv_destroy_flow));
	judge("ibv_reg_dm_mr", &gone, MADE(struct ibv_mr, gone_region(), ibv_dereg_mr));
	judge("ibv_create_counters", &gone,
	      MADE(struct ibv_counters, gone_counters(), ibv_destroy_counters));
}

static void changes_are_refused(void)
{
	const struct line gone = { "gone", 0, EIO };

	judge("ibv_attach_counters_point_flow", &gone, gone_attach());
	judge("ibv_read_counters", &gone, gone_read());
	judge("ibv_modify_wq", &gone, gone_to(wq, IBV_WQS_ERR));
	judge("ibv_modify_wq, idle", &gone, gone_to(idle, IBV_WQS_RDY));
	judge("ibv_post_wq_recv", &gone, gone_post_wq(wq));
	judge("ibv_post_wq_recv, idle", &gone, gone_post_wq(idle));
	judge("ibv_modify_qp", &gone, raw_modify(a.qp, IBV_QPS_RESET));
	judge("ibv_modify_qp, hashed", &gone, raw_modify(hashed, IBV_QPS_INIT));
	judge("ibv_modify_qp_rate_limit", &gone, gone_limit());
	judge("ibv_query_qp", &gone, gone_query(a.qp));
	judge("ibv_query_qp, hashed", &gone, gone_query(hashed));
	judge("ibv_post_send", &gone, gone_post_send());
	judge("ibv_post_recv", &gone, gone_post_recv(a.qp));
	judge("ibv_post_recv, hashed", &gone, gone_post_recv(hashed));
}

/* In the order that they need each other. */
static void objects_are_destroyed(void)
{
	assert_int_equal(ibv_destroy_qp(a.qp), EBUSY);
	assert_int_equal(ibv_destroy_counters(counters), EBUSY);
	assert_int_equal(ibv_destroy_flow(flow), 0);
	assert_int_equal(ibv_destroy_counters(counters), 0);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), EBUSY);
	assert_int_equal(ibv_destroy_qp(hashed), 0);
	assert_int_equal(ibv_destroy_wq(wq), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), 0);
	assert_int_equal(ibv_destroy_wq(wq), 0);
	assert_int_equal(ibv_destroy_wq(idle), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	raw_close(&a);
}

static void removal__of_a_device_with_raw_packets(void **state)
{
	struct ibv_async_event event;

	for (int round = 0; round < 2; round++) {
		run(VERBS_COMMAND " device add roce1");
		gone_await();
		objects_make();
		run(VERBS_COMMAND " device remove roce1");
		do {
			assert_int_equal(ibv_get_async_event(raw_ctx, &event), 0);
			ibv_ack_async_event(&event);
		} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
		requests_are_flushed();
		creations_are_refused();
		changes_are_refused();
		objects_are_destroyed();
		assert_int_equal(ibv_close_device(raw_ctx), 0);
		verdict();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(removal__of_a_device_with_raw_packets),
	};

	if (!raw_bed_make()) {
		fprintf(stderr, "SKIPPED: no network namespace with a veth pair can be made\n");
		return RAW_SKIPPED;
	}
	return cmocka_run_group_tests_name("raw_gone", tests, NULL, NULL);
}
