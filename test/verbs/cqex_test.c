/* cqex_test.c: extended completion queues through libibverbs: every field that can be asked for,
 * of RC, UC and UD, with a receive queue and with a shared one; the clock; CQs that ignore an
 * overrun; events that are delayed. Two queue pairs of this process.
 * In: messages    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "pair.h"
#include "../late.h"

enum {
	DEPTH = 64,
	MESSAGES = 20,
	BYTES = 24,
	GRH = 40,
	GID = 1,
	QKEY = 0x1111,
	ALL_FLAGS = IBV_CREATE_CQ_SUP_WC_FLAGS,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t buffer[4096];
static union ibv_gid gid;
static struct ibv_comp_channel *channel; /* of the next CQ; NULL: none */

/* `from` sends to `to`, whose receives complete in `ex`. */
static struct line {
	struct ibv_cq *sends;
	struct ibv_cq_ex *ex;
	struct ibv_srq *srq; /* NULL: the queue pair's own */
	struct ibv_qp *from, *to;
	struct ibv_ah *ah; /* UD */
} line;

static int group_setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (list == NULL || list[0] == NULL)
		return -1;
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (ctx == NULL || ibv_query_gid(ctx, 1, GID, &gid) != 0)
		return -1;
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	return mr == NULL ? -1 : 0;
}

static int group_teardown(void **state)
{
	return ibv_dereg_mr(mr) | ibv_dealloc_pd(pd) | ibv_close_device(ctx);
}

static struct ibv_ah_attr way(void)
{
	return (struct ibv_ah_attr){ .is_global = 1,
				     .port_num = 1,
				     .grh = { .dgid = gid, .sgid_index = GID, .hop_limit = 64 } };
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	bool ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;

	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
			 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				  .path_mtu = IBV_MTU_1024,
				  .dest_qp_num = peer,
				  .ah_attr = way(),
				  .max_dest_rd_atomic = 1,
				  .min_rnr_timer = 1 };
	assert_int_equal(ibv_modify_qp(qp, &a,
				       ud ? IBV_QP_STATE :
					    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC |
								  IBV_QP_MIN_RNR_TIMER :
							  0)),
			 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 18,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	assert_int_equal(ibv_modify_qp(qp, &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN |
					       (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							     IBV_QP_RNR_RETRY |
							     IBV_QP_MAX_QP_RD_ATOMIC :
						     0)),
			 0);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .send_cq = line.sends,
					 .recv_cq = ibv_cq_ex_to_cq(line.ex),
					 .srq = line.srq,
					 .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = type,
					 .sq_sig_all = 1 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

static struct ibv_cq_ex *make_cq(uint64_t wc_flags, uint32_t flags, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = cqe,
					    .channel = channel,
					    .wc_flags = wc_flags,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = flags };

	return ibv_create_cq_ex(ctx, &attr);
}

static void line_open(enum ibv_qp_type type, bool shared, uint64_t wc_flags, uint32_t flags,
		      uint32_t cqe)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_ah_attr to = way();

	line = (struct line){ .sends = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0),
			      .ex = make_cq(wc_flags, flags, cqe),
			      .srq = shared ? ibv_create_srq(pd, &srq) : NULL };
	assert_non_null(line.ex);
	line.from = make_qp(type);
	line.to = make_qp(type);
	connect_to(line.from, line.to->qp_num);
	connect_to(line.to, line.from->qp_num);
	line.ah = type == IBV_QPT_UD ? ibv_create_ah(pd, &to) : NULL;
}

static void line_close(void)
{
	assert_int_equal(ibv_destroy_qp(line.from), 0);
	assert_int_equal(ibv_destroy_qp(line.to), 0);
	if (line.ah)
		assert_int_equal(ibv_destroy_ah(line.ah), 0);
	if (line.srq)
		assert_int_equal(ibv_destroy_srq(line.srq), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(line.ex)), 0);
	assert_int_equal(ibv_destroy_cq(line.sends), 0);
}

/* A message with immediate data `number`, whose request is acknowledged before this returns. */
static void line_message(uint32_t number)
{
	struct ibv_sge in = { (uintptr_t)buffer, BYTES + GRH, mr->lkey };
	struct ibv_sge out = { (uintptr_t)buffer + 1024, BYTES, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = number, .sg_list = &in, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &out,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND_WITH_IMM,
				    .imm_data = htobe32(number) },
			   *bad_send;
	struct ibv_wc wc;
	int got;

	if (line.ah) {
		send.wr.ud.ah = line.ah;
		send.wr.ud.remote_qpn = line.to->qp_num;
		send.wr.ud.remote_qkey = QKEY;
	}
	assert_int_equal(line.srq ? ibv_post_srq_recv(line.srq, &recv, &bad_recv) :
				    ibv_post_recv(line.to, &recv, &bad_recv),
			 0);
	assert_int_equal(ibv_post_send(line.from, &send, &bad_send), 0);
	do
		got = ibv_poll_cq(line.sends, 1, &wc);
	while (got == 0);
	assert_int_equal(got, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static uint64_t raw_now(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	assert_int_equal(ibv_query_rt_values_ex(ctx, &values), 0);
	assert_int_equal(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	return (uint64_t)values.raw_clock.tv_nsec;
}

static uint64_t wall_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void start(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int got;

	do
		got = ibv_start_poll(line.ex, &attr);
	while (got == ENOENT);
	assert_int_equal(got, 0);
}

/* The next entry, which may be still on its way, or none. */
static void next(bool more)
{
	int got = ibv_next_poll(line.ex);

	if (!more) {
		assert_int_equal(got, ENOENT);
	} else if (got != 0) {
		assert_int_equal(got, ENOENT);
		ibv_end_poll(line.ex);
		start();
	}
}

/* The entry of message `number`, all of it. */
static void check_entry(uint32_t number, uint64_t *raw, uint64_t *wall)
{
	struct ibv_wc_tm_info info = { .tag = 1, .priv = 1 };
	struct ibv_cq_ex *ex = line.ex;

	assert_int_equal(ex->wr_id, number);
	ibv_wc_read_tm_info(ex, &info);
	assert_int_equal(info.tag | info.priv, 0); /* of a message without a tag */
	assert_int_equal(ex->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_byte_len(ex), BYTES + (line.ah ? GRH : 0));
	assert_int_equal(ibv_wc_read_wc_flags(ex), IBV_WC_WITH_IMM | (line.ah ? IBV_WC_GRH : 0));
	assert_int_equal(be32toh(ibv_wc_read_imm_data(ex)), number);
	assert_int_equal(ibv_wc_read_qp_num(ex), line.to->qp_num);
	assert_int_equal(ibv_wc_read_src_qp(ex), line.from->qp_num);
	assert_int_equal(ibv_wc_read_slid(ex), 0);
	assert_int_equal(ibv_wc_read_dlid_path_bits(ex), 0);
	assert_true(ibv_wc_read_sl(ex) < 16);
	assert_int_equal(ibv_wc_read_cvlan(ex), 0);
	assert_int_equal(ibv_wc_read_flow_tag(ex), 0);
	assert_true(ibv_wc_read_completion_ts(ex) >= *raw);
	assert_true(ibv_wc_read_completion_wallclock_ns(ex) + 1000000 >= *wall); /* may be set */
	*raw = ibv_wc_read_completion_ts(ex);
	*wall = ibv_wc_read_completion_wallclock_ns(ex);
}

static void read_all_fields(enum ibv_qp_type type, bool shared, uint32_t flags)
{
	uint64_t raw, wall;

	line_open(type, shared, ALL_FLAGS, flags, DEPTH);
	raw = raw_now();
	wall = wall_now();
	for (uint32_t i = 0; i < MESSAGES; i++)
		line_message(i);
	start();
	for (uint32_t i = 0; i < MESSAGES; i++) {
		check_entry(i, &raw, &wall);
		next(i + 1 < MESSAGES);
	}
	ibv_end_poll(line.ex);
	assert_true(raw <= raw_now());
	assert_true(wall <= wall_now() + 1000000);
	line_close();
}

static void start_poll__reads_every_field_of_every_type(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 3; i++)
		read_all_fields(types[i], false, 0);
}

static void start_poll__of_a_shared_receive_queue(void **state)
{
	read_all_fields(IBV_QPT_RC, true, 0);
	read_all_fields(IBV_QPT_UC, true, 0);
	read_all_fields(IBV_QPT_UD, true, 0);
}

static void start_poll__single_threaded_and_ignoring_overruns(void **state)
{
	read_all_fields(IBV_QPT_RC, false, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	read_all_fields(IBV_QPT_UD, false, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	read_all_fields(IBV_QPT_RC, true,
			IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
}

/* Time is that of arrival: the poll comes much later, after a resize. */
static void read_completion_ts__is_the_time_of_arrival(void **state)
{
	uint64_t raw, wall, came;

	line_open(IBV_QPT_RC, false, ALL_FLAGS, 0, DEPTH);
	raw = raw_now();
	wall = wall_now();
	line_message(1);
	line_message(2);
	came = raw_now();
	usleep(20000);
	assert_int_equal(ibv_resize_cq(ibv_cq_ex_to_cq(line.ex), 4 * DEPTH), 0);
	start();
	check_entry(1, &raw, &wall);
	assert_int_equal(ibv_next_poll(line.ex), 0);
	check_entry(2, &raw, &wall);
	assert_true(raw <= came);
	ibv_end_poll(line.ex);
	line_close();
}

static void poll_cq__of_an_extended_queue(void **state)
{
	struct ibv_wc wc;
	int got;

	line_open(IBV_QPT_RC, false, ALL_FLAGS, 0, DEPTH);
	line_message(3);
	do
		got = ibv_poll_cq(ibv_cq_ex_to_cq(line.ex), 1, &wc);
	while (got == 0);
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(be32toh(wc.imm_data), 3);
	assert_int_equal(wc.src_qp, line.from->qp_num);
	line_close();
}

static void create_cq_ex__installs_the_readers_asked_for(void **state)
{
	struct ibv_cq_ex *ex = make_cq(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0, 1);

	assert_non_null(ex->read_completion_ts);
	assert_null(ex->read_completion_wallclock_ns);
	assert_null(ex->read_byte_len);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	ex = make_cq(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_SRC_QP, 0, 1);
	assert_null(ex->read_completion_ts);
	assert_non_null(ex->read_completion_wallclock_ns);
	assert_non_null(ex->read_src_qp);
	assert_null(ex->read_tm_info);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

static void create_cq_ex__refuses_what_it_cannot_honour(void **state)
{
	static const uint64_t fields[] = { IBV_CREATE_CQ_SUP_WC_FLAGS + 1, 1ull << 40 };

	for (int i = 0; i < 2; i++) {
		errno = 0;
		assert_null(make_cq(fields[i], 0, 1));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	errno = 0;
	assert_null(make_cq(0, 1 << 2, 1));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void ignore_overrun__loses_in_silence(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint32_t room;

	line_open(IBV_QPT_RC, false, IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, 1);
	room = (uint32_t)line.ex->cqe;
	for (uint32_t i = 0; i < room + MESSAGES; i++)
		line_message(i);
	start();
	for (uint32_t i = 0; i < room; i++) {
		assert_int_equal(line.ex->wr_id, i);
		assert_int_equal(ibv_next_poll(line.ex), i + 1 < room ? 0 : ENOENT);
	}
	ibv_end_poll(line.ex);
	assert_int_equal(ibv_query_qp(line.to, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	line_message(99);
	start();
	assert_int_equal(line.ex->wr_id, 99);
	ibv_end_poll(line.ex);
	line_close();
}

/* ---- moderation ------------------------------------------------------------------------------ */

static void moderate(uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { count, period_us } };

	assert_int_equal(ibv_modify_cq(ibv_cq_ex_to_cq(line.ex), &attr), 0);
	assert_int_equal(ibv_req_notify_cq(ibv_cq_ex_to_cq(line.ex), 0), 0);
}

static bool has_event(int timeout_ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, timeout_ms) != 1) {
		late("event", timeout_ms);
		return false;
	}
	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void modify_cq__gathers_completions_for_one_event(void **state)
{
	uint64_t begun;

	channel = ibv_create_comp_channel(ctx);
	line_open(IBV_QPT_RC, false, 0, 0, DEPTH);
	moderate(4, 0);
	for (uint32_t i = 0; i < 3; i++)
		line_message(i);
	assert_false(has_event(PAIR_QUIET_MS));
	line_message(3);
	assert_true(has_event(PAIR_WAIT_MS));
	moderate(1000, 20000);
	begun = wall_now();
	line_message(4);
	assert_true(has_event(PAIR_WAIT_MS));
	assert_true(wall_now() - begun >= 20000000 - 1000000); /* may be set */
	moderate(0, 0);
	line_message(5);
	assert_true(has_event(PAIR_WAIT_MS));
	assert_false(has_event(0));
	line_close();
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	channel = NULL;
}

/* Destroyed while it gathers. */
static void modify_cq__leaves_no_timer_behind(void **state)
{
	channel = ibv_create_comp_channel(ctx);
	for (int i = 0; i < 20; i++) {
		line_open(IBV_QPT_RC, false, 0, 0, DEPTH);
		moderate(1000, 1000);
		line_message(0);
		line_close();
	}
	usleep(2000);
	assert_false(has_event(0));
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	channel = NULL;
}

static void modify_cq__knows_moderation_alone(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	struct ibv_modify_cq_attr attr = { .moderate = { 1, 1 } };
	struct ibv_device_attr_ex device;

	assert_int_equal(ibv_modify_cq(cq, &attr), EOPNOTSUPP);
	attr.attr_mask = IBV_CQ_ATTR_RESERVED | IBV_CQ_ATTR_MODERATE;
	assert_int_equal(ibv_modify_cq(cq, &attr), EOPNOTSUPP);
	assert_int_equal(ibv_query_device_ex(ctx, NULL, &device), 0);
	attr.attr_mask = IBV_CQ_ATTR_MODERATE;
	attr.moderate = (struct ibv_moderate_cq){ device.cq_mod_caps.max_cq_count,
						  device.cq_mod_caps.max_cq_period };
	assert_int_equal(attr.moderate.cq_count, UINT16_MAX);
	assert_int_equal(attr.moderate.cq_period, UINT16_MAX);
	assert_int_equal(ibv_modify_cq(cq, &attr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void query_device_ex__announces_the_clock(void **state)
{
	struct ibv_values_ex none = { .comp_mask = 0 };
	struct ibv_device_attr_ex attr;
	uint64_t before, after;

	assert_int_equal(ibv_query_device_ex(ctx, NULL, &attr), 0);
	assert_int_equal(attr.hca_core_clock, 1000000); /* kHz */
	before = raw_now();
	usleep(10000);
	after = raw_now();
	assert_true(after - before >= 10000000 && after <= attr.completion_timestamp_mask);
	assert_int_equal(ibv_query_rt_values_ex(ctx, &none), 0);
	assert_int_equal(none.comp_mask, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(start_poll__reads_every_field_of_every_type),
		cmocka_unit_test(start_poll__of_a_shared_receive_queue),
		cmocka_unit_test(start_poll__single_threaded_and_ignoring_overruns),
		cmocka_unit_test(read_completion_ts__is_the_time_of_arrival),
		cmocka_unit_test(poll_cq__of_an_extended_queue),
		cmocka_unit_test(create_cq_ex__installs_the_readers_asked_for),
		cmocka_unit_test(create_cq_ex__refuses_what_it_cannot_honour),
		cmocka_unit_test(ignore_overrun__loses_in_silence),
		cmocka_unit_test(modify_cq__gathers_completions_for_one_event),
		cmocka_unit_test(modify_cq__leaves_no_timer_behind),
		cmocka_unit_test(modify_cq__knows_moderation_alone),
		cmocka_unit_test(query_device_ex__announces_the_clock),
	};

	pair_supervise();
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
