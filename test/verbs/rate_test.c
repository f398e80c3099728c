/* rate_test.c: the rate limit of raw packet queue pairs: limits, the time of frames, what waits.
 * In: nothing      Out: verdicts; 77: not root      Runs: cmocka      Locks: none
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "raw_bed.h"

/* 8 Mbit/s are a byte per microsecond. */
enum {
	RATE_KBPS = 8000,
	RATE_FRAME = 1000,
	RATE_FRAMES = 60,
	RATE_MAX = 100000000,
	RATE_DEFAULT_BURST = 2000,
	RATE_BURST_MAX = 1 << 20
};

static struct raw_end a;

/* A queue pair that holds all frames at once. */
static int setup(void **state)
{
	struct ibv_qp_init_attr init;

	raw_bed_open();
	raw_open(&a, 0);
	assert_int_equal(ibv_destroy_qp(a.qp), 0);
	init = raw_init(&a);
	init.cap.max_send_wr = 2 * RATE_FRAMES;
	a.qp = ibv_create_qp(a.pd, &init);
	assert_non_null(a.qp);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_INIT), 0);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RTR), 0);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RTS), 0);
	return 0;
}

static int teardown(void **state)
{
	raw_close(&a);
	raw_bed_close();
	return 0;
}

static int rate_limit(struct ibv_qp *qp, uint32_t kbps, uint32_t burst)
{
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = kbps, .max_burst_sz = burst };

	return ibv_modify_qp_rate_limit(qp, &limit);
}

static uint64_t rate_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void rate_post(void)
{
	struct ibv_sge sge = { (uintptr_t)a.memory, RATE_FRAME, a.mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };

	raw_frame(a.memory, 9, 1);
	for (int i = 0; i < RATE_FRAMES; i++)
		assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
}

static int rate_take(enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(a.scq, 1, &wc) == 1) {
		assert_int_equal(wc.status, status);
		n++;
	}
	return n;
}

static void rate_await(int n, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	for (; n > 0; n--) {
		assert_true(raw_poll(a.scq, &wc));
		assert_int_equal(wc.status, status);
	}
	assert_int_equal(rate_take(IBV_WC_SUCCESS), 0);
}

static void rate__limits_and_their_neighbours(void **state)
{
	static const struct {
		uint32_t kbps, burst, mask;
		uint16_t packet;
		int error;
	} rows[] = {
		{ .kbps = 0 },
		{ .kbps = 1 },
		{ .kbps = RATE_MAX },
		{ .kbps = RATE_MAX + 1, .error = EINVAL },
		{ .kbps = UINT32_MAX, .error = EINVAL },
		{ .kbps = 1, .burst = 1 },
		{ .kbps = 1, .burst = RATE_BURST_MAX },
		{ .kbps = 1, .burst = RATE_BURST_MAX + 1, .error = EINVAL },
		{ .kbps = 1, .burst = UINT32_MAX, .error = EINVAL },
		{ .kbps = 1, .packet = UINT16_MAX },
		{ .kbps = 0, .burst = 1, .error = EINVAL },
		{ .kbps = 0, .packet = 1, .error = EINVAL },
		{ .kbps = 1, .mask = 1, .error = EINVAL },
	};
	struct ibv_qp_init_attr init;
	struct ibv_device_attr_ex caps;
	struct ibv_qp_attr attr = { .rate_limit = 0 };

	assert_int_equal(ibv_query_device_ex(raw_ctx, NULL, &caps), 0);
	assert_int_equal(caps.packet_pacing_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	assert_int_equal(caps.packet_pacing_caps.qp_rate_limit_min, 1);
	assert_int_equal(caps.packet_pacing_caps.qp_rate_limit_max, RATE_MAX);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_qp_rate_limit_attr limit = { .rate_limit = rows[i].kbps,
							.max_burst_sz = rows[i].burst,
							.typical_pkt_sz = rows[i].packet,
							.comp_mask = rows[i].mask };

		assert_int_equal(rate_limit(a.qp, 77, 0), 0);
		assert_int_equal(ibv_modify_qp_rate_limit(a.qp, &limit), rows[i].error);
		assert_int_equal(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
		assert_int_equal(attr.rate_limit, rows[i].error ? 77 : rows[i].kbps);
		attr.rate_limit = rows[i].kbps;
		assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_RATE_LIMIT),
				 rows[i].kbps > RATE_MAX ? EINVAL : 0);
	}
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(rate_limit(a.qp, 1, 0), EINVAL); /* there is nothing to send yet */
	assert_int_equal(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.rate_limit, 0);
}

static void rate__of_other_queue_pairs(void **state)
{
	struct ibv_qp_init_attr init = raw_init(&a);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .rate_limit = 1 };
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct ibv_qp *qp;

		init.qp_type = types[i];
		init.cap.max_inline_data = 0;
		qp = ibv_create_qp(a.pd, &init);
		assert_non_null(qp);
		assert_int_equal(rate_limit(qp, 1, 0), EINVAL);
		assert_int_equal(ibv_modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
						       IBV_QP_RATE_LIMIT),
				 EINVAL);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

/* All frames take the time that their bytes take, but for a burst and a frame. */
static void rate__is_kept(void **state)
{
	static const uint32_t bursts[] = { 0, 1, 30 * RATE_FRAME };

	for (size_t i = 0; i < sizeof(bursts) / sizeof(bursts[0]); i++) {
		uint32_t burst = bursts[i] ? bursts[i] : RATE_DEFAULT_BURST;
		uint64_t began;

		assert_int_equal(rate_limit(a.qp, RATE_KBPS, bursts[i]), 0);
		began = rate_now_us();
		rate_post();
		rate_await(RATE_FRAMES, IBV_WC_SUCCESS);
		assert_true(rate_now_us() - began >=
			    (RATE_FRAMES - 1) * RATE_FRAME - (uint64_t)burst);
	}
}

/* So much leaves at once: at 1 kbit/s nothing else leaves while this test runs. */
static void rate__lets_a_burst_pass(void **state)
{
	assert_int_equal(rate_limit(a.qp, 1, 0), 0);
	rate_post();
	assert_int_equal(rate_take(IBV_WC_SUCCESS), 1);
	assert_int_equal(rate_limit(a.qp, 1, 7 * RATE_FRAME), 0);
	assert_int_equal(rate_take(IBV_WC_SUCCESS), 8);
	/* and a frame that waits goes by the rate that is set meanwhile */
	assert_int_equal(rate_limit(a.qp, RATE_KBPS, 0), 0);
	rate_await(RATE_FRAMES - 9, IBV_WC_SUCCESS);
}

static void rate__frames_that_wait_when_it_ends(void **state)
{
	assert_int_equal(rate_limit(a.qp, 1, 0), 0);
	rate_post();
	assert_int_equal(rate_take(IBV_WC_SUCCESS), 1);
	assert_int_equal(rate_limit(a.qp, 0, 0), 0);
	assert_int_equal(rate_take(IBV_WC_SUCCESS), RATE_FRAMES - 1);
	assert_int_equal(rate_limit(a.qp, 1, 0), 0);
	rate_post();
	assert_int_equal(rate_take(IBV_WC_SUCCESS), 1);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_ERR), 0);
	assert_int_equal(rate_take(IBV_WC_WR_FLUSH_ERR), RATE_FRAMES - 1);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_INIT), 0);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RTR), 0);
	assert_int_equal(raw_modify(a.qp, IBV_QPS_RTS), 0);
	rate_post(); /* a reset ends the limit */
	assert_int_equal(rate_take(IBV_WC_SUCCESS), RATE_FRAMES);
	assert_int_equal(rate_limit(a.qp, 1, 0), 0);
	rate_post(); /* and the queue pair goes while frames wait */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(rate__limits_and_their_neighbours),
		TEST(rate__of_other_queue_pairs),
		TEST(rate__is_kept),
		TEST(rate__lets_a_burst_pass),
		TEST(rate__frames_that_wait_when_it_ends),
	};

	if (!raw_bed_make()) {
		fprintf(stderr, "SKIPPED: no network namespace with a veth pair can be made\n");
		return RAW_SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
