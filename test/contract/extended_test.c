/* extended_test.c: creation by size-versioned structures, whole completions, and CQs that ignore
 * an overrun, through ib_* over any driver. What a device lacks is skipped.
 * In:    -    Out: -    Runs: the test's threads
 */
#include "rig.h"

#include <rdma/ib_extended.h>
#include <time.h>

enum { MESSAGES = 40, CQE = 64, DROPPED = 40, UNKNOWN_FLAG = 1 << 30 };

/* As a consumer of a later release has it. */
struct later_cq_attr {
	struct ib_cq_init_attr now;
	u64 later[2];
};

static int overruns;

static void cq_event(struct ib_event *event, void *context)
{
	if (event->event == IB_EVENT_CQ_ERR)
		count_add(&overruns);
}

static struct ib_cq *try_cq(u32 flags, int cqe)
{
	struct ib_cq_init_attr attr = { .size = sizeof(attr), .flags = flags, .cqe = cqe };

	return ib_create_cq_ex(rig.dev, NULL, cq_event, NULL, &attr);
}

/* Skips the test if the device does not know the flag. */
static struct ib_cq *needs_cq(u32 flags, int cqe)
{
	struct ib_cq *cq = try_cq(flags, cqe);

	if (IS_ERR(cq) && PTR_ERR(cq) == -EOPNOTSUPP)
		skip();
	return rig_ok(cq);
}

static struct ib_wc take_whole(struct ib_cq *cq, struct ib_wc_side *side)
{
	u64 end = rig_now_ms() + RIG_WAIT_MS;
	struct ib_wc wc;
	int got = 0;

	while (got == 0 && rig_now_ms() < end)
		got = ib_poll_cq_ex(cq, 1, &wc, side);
	assert_int_equal(got, 1);
	assert_int_equal(wc.status, IB_WC_SUCCESS);
	return wc;
}

static u64 clock_now(void)
{
	u64 raw;

	assert_int_equal(ib_query_clock(rig.dev, &raw), 0);
	return raw;
}

/* ---- versions -------------------------------------------------------------------------------- */

static int cq_error(struct ib_cq *cq)
{
	return IS_ERR(cq) ? (int)PTR_ERR(cq) : ib_destroy_cq(cq);
}

static void create_cq_ex__reads_older_and_later_structures(void **state)
{
	struct later_cq_attr attr = { .now = { .size = sizeof(attr), .cqe = CQE } };
	struct ib_cq_init_attr *now = &attr.now;

	assert_int_equal(cq_error(ib_create_cq_ex(rig.dev, NULL, NULL, NULL, now)), 0);
	attr.later[1] = 1;
	assert_int_equal(cq_error(ib_create_cq_ex(rig.dev, NULL, NULL, NULL, now)), -EOPNOTSUPP);
	now->size = sizeof(*now); /* then it is not even looked at */
	assert_int_equal(cq_error(ib_create_cq_ex(rig.dev, NULL, NULL, NULL, now)), 0);
	now->size = sizeof(*now) - 1;
	assert_int_equal(cq_error(ib_create_cq_ex(rig.dev, NULL, NULL, NULL, now)), -EINVAL);
	now->size = 0;
	assert_int_equal(cq_error(ib_create_cq_ex(rig.dev, NULL, NULL, NULL, now)), -EINVAL);
}

static void create_cq_ex__refuses_what_it_does_not_know(void **state)
{
	assert_int_equal(cq_error(try_cq(UNKNOWN_FLAG, CQE)), -EOPNOTSUPP);
	assert_int_equal(cq_error(try_cq(0, 0)), -EINVAL);
	assert_int_equal(cq_error(try_cq(0, -1)), -EINVAL);
	assert_int_equal(cq_error(try_cq(0, CQE)), 0);
}

static int srq_error(struct ib_srq_init_attr_ex *init)
{
	struct ib_srq *srq = ib_create_srq_ex(rig.pd, init);

	return IS_ERR(srq) ? (int)PTR_ERR(srq) : ib_destroy_srq(srq);
}

static void create_srq_ex__basic_as_ever_and_no_unknown_type(void **state)
{
	struct ib_srq_init_attr_ex init = { .size = sizeof(init),
					    .base.attr = { .max_wr = 10, .max_sge = 1 } };
	struct ib_cq *cq = rig_cq(CQE);

	rig_needs(create_srq);
	assert_int_equal(srq_error(&init), 0);
	assert_true(init.base.attr.max_wr >= 10);
	init.cq = cq; /* a basic one has none */
	assert_int_equal(srq_error(&init), -EINVAL);
	init.srq_type = (enum ib_srq_type)3;
	assert_int_equal(srq_error(&init), -EINVAL);
	init.size = 4;
	assert_int_equal(srq_error(&init), -EINVAL);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static void create_qp_ex__as_create_qp_and_no_unknown_flag(void **state)
{
	static const enum ib_qp_type types[] = { IB_QPT_RC, IB_QPT_UD };
	struct ib_cq *cq = rig_cq(CQE);

	for (int i = 0; i < 2; i++) {
		struct ib_qp_init_attr_ex init = { .size = sizeof(init),
						   .base = rig_qp_init(types[i], cq, cq, NULL) };

		assert_int_equal(ib_destroy_qp(rig_ok(ib_create_qp_ex(rig.pd, &init))), 0);
		init.create_flags = UNKNOWN_FLAG;
		assert_int_equal(PTR_ERR(ib_create_qp_ex(rig.pd, &init)), -EOPNOTSUPP);
		init.size = 8;
		assert_int_equal(PTR_ERR(ib_create_qp_ex(rig.pd, &init)), -EINVAL);
	}
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* ---- whole completions ----------------------------------------------------------------------- */

static void poll_cq_ex__of_a_plain_queue_has_no_side(void **state)
{
	static const u8 none[sizeof(struct ib_wc_side)];
	struct ib_wc_side side;
	struct link l;

	memset(&side, 0xff, sizeof(side));
	link_open(&l, IB_QPT_RC, NULL);
	link_ping(&l, 1, 0);
	take_whole(l.rcq, &side);
	assert_memory_equal(&side, none, sizeof(side));
	assert_int_equal(ib_poll_cq_ex(l.rcq, -1, NULL, &side), -EINVAL);
	assert_int_equal(ib_poll_cq_ex(l.rcq, 0, NULL, &side), 0);
	link_close(&l);
}

/* Each tells when it came: after its request, before it was polled, none before its predecessor. */
static void times_of(enum ib_qp_type type)
{
	struct ib_cq *cq = needs_cq(IB_CQ_FLAGS_TIMESTAMP_COMPLETION, CQE);
	struct ib_wc_side side;
	u64 last = 0;
	struct link l;

	link_open(&l, type, cq);
	for (int i = 0; i < MESSAGES; i++) {
		u64 asked = clock_now();

		link_ping(&l, 1, 0);
		assert_ptr_equal(take_whole(cq, &side).qp, l.b);
		assert_true(side.timestamp >= asked && side.timestamp >= last);
		assert_true(side.timestamp <= clock_now());
		assert_int_equal(side.wallclock_ns | side.tm_tag, 0); /* not asked for */
		last = side.timestamp;
	}
	link_close(&l);
}

static void poll_cq_ex__tells_when_each_came(void **state)
{
	times_of(IB_QPT_RC);
}

static void poll_cq_ex__tells_when_each_came_over_uc(void **state)
{
	times_of(IB_QPT_UC);
}

/* Taken long after they came, and after the queue has changed its size. */
static void poll_cq_ex__tells_the_time_of_arrival_not_of_the_poll(void **state)
{
	struct ib_cq *cq = needs_cq(IB_CQ_FLAGS_TIMESTAMP_COMPLETION, CQE);
	struct ib_wc_side side;
	u64 came, last = 0;
	struct link l;

	link_open(&l, IB_QPT_RC, cq);
	link_ping(&l, MESSAGES, 0);
	came = clock_now();
	rig_sleep_ms(20);
	if (rig.dev->resize_cq)
		assert_int_equal(ib_resize_cq(cq, 4 * CQE), 0);
	for (int i = 0; i < MESSAGES; i++) {
		take_whole(cq, &side);
		assert_true(side.timestamp >= last && side.timestamp <= came);
		last = side.timestamp;
	}
	link_close(&l);
}

static void poll_cq_ex__tells_the_wall_clock(void **state)
{
	struct ib_cq *cq = needs_cq(IB_CQ_FLAGS_WALLCLOCK, CQE);
	struct timespec before, after;
	struct ib_wc_side side;
	struct link l;

	link_open(&l, IB_QPT_RC, cq);
	clock_gettime(CLOCK_REALTIME, &before);
	link_ping(&l, 1, 0);
	take_whole(cq, &side);
	clock_gettime(CLOCK_REALTIME, &after);
	assert_true(side.wallclock_ns >= (u64)before.tv_sec * 1000000000 + (u64)before.tv_nsec);
	assert_true(side.wallclock_ns <= (u64)after.tv_sec * 1000000000 + (u64)after.tv_nsec);
	assert_int_equal(side.timestamp, 0); /* not asked for */
	link_close(&l);
}

/* ---- overruns -------------------------------------------------------------------------------- */

static void ignore_overrun__loses_in_silence(void **state)
{
	struct ib_cq *cq = needs_cq(IB_CQ_FLAGS_IGNORE_OVERRUN, 1);
	int room = cq->cqe;
	struct ib_wc wc;
	struct link l;

	link_open(&l, IB_QPT_RC, cq);
	link_ping(&l, room + DROPPED, 0);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&overruns), 0);
	assert_int_equal(rig_state(l.a), IB_QPS_RTS);
	assert_int_equal(rig_state(l.b), IB_QPS_RTS);
	rig_drain(cq, room);
	assert_int_equal(ib_poll_cq(cq, 1, &wc), 0);
	link_ping(&l, 1, 0);
	rig_drain(cq, 1);
	link_close(&l);
}

/* ---- moderation ------------------------------------------------------------------------------ */

static int handled;

static void count_handled(struct ib_cq *cq, void *context)
{
	count_add(&handled);
}

static void modify_cq__one_event_for_several_completions(void **state)
{
	struct ib_cq *cq = rig_ok(ib_create_cq(rig.dev, count_handled, NULL, NULL, CQE, 0));
	int err = ib_modify_cq(cq, 3, 0);
	struct link l;

	if (err == -ENOSYS)
		skip();
	assert_int_equal(err, 0);
	link_open(&l, IB_QPT_RC, cq);
	assert_true(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) >= 0);
	link_ping(&l, 2, 0);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&handled), 0);
	link_ping(&l, 2, 0);
	rig_await(&handled, 1);
	rig_drain(cq, 4);
	assert_int_equal(ib_modify_cq(cq, 100, 1000), 0);
	assert_true(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) >= 0);
	link_ping(&l, 1, 0);
	rig_await(&handled, 2); /* by the period */
	assert_int_equal(ib_modify_cq(cq, 0, 0), 0);
	rig_drain(cq, 1);
	assert_true(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP) >= 0);
	link_ping(&l, 1, 0);
	rig_await(&handled, 3);
	rig_drain(cq, 1);
	link_close(&l);
}

static void query_device_ex__as_query_device_and_more(void **state)
{
	struct ib_device_attr_ex attr = { .size = sizeof(attr) };
	struct ib_device_attr base;

	assert_int_equal(ib_query_device(rig.dev, &base), 0);
	assert_int_equal(ib_query_device_ex(rig.dev, &attr), 0);
	assert_int_equal(attr.base.max_qp, base.max_qp);
	assert_int_equal(attr.base.max_srq, base.max_srq);
	if (!rig.dev->modify_cq)
		assert_int_equal(attr.cq_caps.max_cq_moderation_count, 0);
	attr.size = 4;
	assert_int_equal(ib_query_device_ex(rig.dev, &attr), -EINVAL);
}

/* ---- tag matching ---------------------------------------------------------------------------- */

/* As libibverbs' struct ibv_tmh. */
struct tag_header {
	u8 opcode, reserved[3];
	u8 app_ctx[4], tag[8]; /* network order */
};

enum { EAGER = 3, TAG = 0x42, APP_CTX = 0x77, PAYLOAD = 8, BUFFER_AT = 2 * RIG_PAGE };

static struct tags {
	struct ib_cq *cq, *sends;
	struct ib_srq *srq;
	struct ib_qp *from, *to;
} tags;

/* Skips the test if the device cannot match tags. */
static void tags_open(void)
{
	struct ib_device_attr_ex attr = { .size = sizeof(attr) };
	struct ib_srq_init_attr_ex init = { .size = sizeof(init),
					    .srq_type = IB_SRQT_TM,
					    .base.attr = { .max_wr = 8, .max_sge = 1 },
					    .max_num_tags = 8,
					    .max_ops = 8 };

	assert_int_equal(ib_query_device_ex(rig.dev, &attr), 0);
	if (!(attr.tm_caps.flags & IB_TM_CAP_RC))
		skip();
	assert_true(attr.tm_caps.max_num_tags >= 8 && attr.tm_caps.max_ops >= 8);
	tags.cq = needs_cq(IB_CQ_FLAGS_TM_INFO, CQE);
	tags.sends = rig_cq(CQE);
	init.cq = tags.cq;
	tags.srq = rig_ok(ib_create_srq_ex(rig.pd, &init));
	tags.from = rig_qp(IB_QPT_RC, tags.sends, tags.sends, NULL);
	tags.to = rig_qp(IB_QPT_RC, tags.sends, tags.sends, tags.srq);
	rig_connect(tags.from, &rig.gid, tags.to->qp_num);
	rig_connect(tags.to, &rig.gid, tags.from->qp_num);
}

static void tags_close(void)
{
	assert_int_equal(ib_destroy_srq(tags.srq), -EBUSY);
	assert_int_equal(ib_destroy_qp(tags.from), 0);
	assert_int_equal(ib_destroy_qp(tags.to), 0);
	assert_int_equal(ib_destroy_cq(tags.cq), -EBUSY);
	assert_int_equal(ib_destroy_srq(tags.srq), 0);
	assert_int_equal(ib_destroy_cq(tags.cq), 0);
	assert_int_equal(ib_destroy_cq(tags.sends), 0);
}

static void tags_send(u8 tag)
{
	struct tag_header header = { .opcode = EAGER, .app_ctx[3] = APP_CTX, .tag[7] = tag };

	memcpy(rig.buf, &header, sizeof(header));
	memset(rig.buf + sizeof(header), tag, PAYLOAD);
	rig_send_bytes(tags.from, tag, 0, sizeof(header) + PAYLOAD, 0);
	rig_drain(tags.sends, 1);
}

static void post_srq_ops__a_message_finds_its_tag(void **state)
{
	struct ib_sge sge = rig_sge(BUFFER_AT, PAYLOAD);
	struct ib_ops_wr wr = { .wr_id = 5,
				.opcode = IB_WR_TAG_ADD,
				.flags = IB_OPS_SIGNALED,
				.tm.add = { .recv_wr_id = 6,
					    .sg_list = &sge,
					    .num_sge = 1,
					    .tag = TAG,
					    .mask = ~0ull } };
	const u8 wanted[PAYLOAD] = { TAG, TAG, TAG, TAG, TAG, TAG, TAG, TAG };
	struct ib_wc_side side;
	struct ib_wc wc;

	tags_open();
	assert_int_equal(ib_post_srq_ops(tags.srq, &wr, NULL), 0);
	wc = take_whole(tags.cq, &side);
	assert_int_equal(wc.opcode, IB_WC_TM_ADD);
	assert_int_equal(wc.wr_id, 5);
	tags_send(TAG);
	wc = take_whole(tags.cq, &side);
	assert_int_equal(wc.opcode, IB_WC_TM_RECV);
	assert_int_equal(wc.wr_id, 6);
	assert_int_equal(wc.wc_flags & IB_WC_TM_MATCH, IB_WC_TM_MATCH);
	assert_int_equal(side.tm_tag, TAG);
	assert_int_equal(side.tm_priv, APP_CTX);
	if (!(wc.wc_flags & IB_WC_TM_DATA_VALID))
		wc = take_whole(tags.cq, &side);
	assert_int_equal(wc.wc_flags & IB_WC_TM_DATA_VALID, IB_WC_TM_DATA_VALID);
	assert_int_equal(wc.byte_len, PAYLOAD);
	assert_memory_equal(rig.buf + BUFFER_AT, wanted, PAYLOAD);
	tags_close();
}

static void post_srq_ops__a_message_without_one_takes_a_receive(void **state)
{
	struct ib_sge sge = rig_sge(BUFFER_AT, RIG_PAGE);
	struct ib_recv_wr recv = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };
	struct ib_ops_wr sync = { .wr_id = 8,
				  .opcode = IB_WR_TAG_SYNC,
				  .flags = IB_OPS_SIGNALED };
	struct ib_wc_side side;
	struct ib_wc wc;

	tags_open();
	assert_int_equal(ib_post_srq_recv(tags.srq, &recv, NULL), 0);
	tags_send(TAG);
	wc = take_whole(tags.cq, &side);
	assert_int_equal(wc.opcode, IB_WC_TM_RECV);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.wc_flags & (IB_WC_TM_MATCH | IB_WC_TM_DATA_VALID), 0);
	assert_int_equal(side.tm_tag | side.tm_priv, 0);
	assert_memory_equal(rig.buf + BUFFER_AT, rig.buf, sizeof(struct tag_header) + PAYLOAD);
	assert_int_equal(ib_post_srq_ops(tags.srq, &sync, NULL), 0);
	assert_int_equal(take_whole(tags.cq, &side).wc_flags, IB_WC_TM_SYNC_REQ);
	sync.flags |= IB_OPS_TM_SYNC;
	sync.tm.unexpected_cnt = 1;
	assert_int_equal(ib_post_srq_ops(tags.srq, &sync, NULL), 0);
	wc = take_whole(tags.cq, &side);
	assert_int_equal(wc.opcode, IB_WC_TM_SYNC);
	assert_int_equal(wc.wc_flags, 0);
	tags_close();
}

static void post_srq_ops__refuses_bad_operations_and_other_queues(void **state)
{
	struct ib_ops_wr bad_one = { .opcode = (enum ib_ops_wr_opcode)9 }, *bad = NULL;
	struct ib_ops_wr first = { .opcode = IB_WR_TAG_SYNC, .next = &bad_one };
	struct ib_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ib_srq *plain;

	tags_open();
	assert_int_equal(ib_post_srq_ops(tags.srq, &first, &bad), -EINVAL);
	assert_ptr_equal(bad, &bad_one);
	first.next = NULL;
	plain = rig_ok(ib_create_srq(rig.pd, &init));
	assert_int_equal(ib_post_srq_ops(plain, &first, &bad), -EINVAL);
	assert_ptr_equal(bad, &first);
	assert_int_equal(ib_destroy_srq(plain), 0);
	tags_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(create_cq_ex__reads_older_and_later_structures, rig_setup),
		cmocka_unit_test_setup(create_cq_ex__refuses_what_it_does_not_know, rig_setup),
		cmocka_unit_test_setup(create_srq_ex__basic_as_ever_and_no_unknown_type, rig_setup),
		cmocka_unit_test_setup(create_qp_ex__as_create_qp_and_no_unknown_flag, rig_setup),
		cmocka_unit_test_setup(poll_cq_ex__of_a_plain_queue_has_no_side, rig_setup),
		cmocka_unit_test_setup(poll_cq_ex__tells_when_each_came, rig_setup),
		cmocka_unit_test_setup(poll_cq_ex__tells_when_each_came_over_uc, rig_setup),
		cmocka_unit_test_setup(poll_cq_ex__tells_the_time_of_arrival_not_of_the_poll,
				       rig_setup),
		cmocka_unit_test_setup(poll_cq_ex__tells_the_wall_clock, rig_setup),
		cmocka_unit_test_setup(ignore_overrun__loses_in_silence, rig_setup),
		cmocka_unit_test_setup(modify_cq__one_event_for_several_completions, rig_setup),
		cmocka_unit_test_setup(query_device_ex__as_query_device_and_more, rig_setup),
		cmocka_unit_test_setup(post_srq_ops__a_message_finds_its_tag, rig_setup),
		cmocka_unit_test_setup(post_srq_ops__a_message_without_one_takes_a_receive,
				       rig_setup),
		cmocka_unit_test_setup(post_srq_ops__refuses_bad_operations_and_other_queues,
				       rig_setup),
	};

	return rig_run_tests(tests);
}
