/* tm_ops_test.c: the operations on the tag list of an SRQ: what is refused, how many are
 * outstanding, and what they tell of the list.
 */
#include "tm_kit.h"

enum { BOTH = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID };
#define ALL UINT64_MAX

static struct tm_bed bed;

static void ops__are_refused(void **state)
{
	struct ibv_sge sge[IBT_TM_MAX_SGE + 1] = { 0 };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .sg_list = sge, .num_sge = IBT_TM_MAX_SGE + 1 } };

	tm_open(&bed, TM_RELIABLE);
	assert_int_equal(tm_op(&bed, &wr), -EINVAL);
	wr.tm.add.num_sge = -1;
	assert_int_equal(tm_op(&bed, &wr), -EINVAL);
	wr.opcode = 77;
	assert_int_equal(tm_op(&bed, &wr), -EINVAL);
	wr.opcode = IBV_WR_TAG_DEL;
	wr.tm.handle = 5;
	assert_int_equal(tm_op(&bed, &wr), -EINVAL);
	wr.opcode = IBV_WR_TAG_ADD;
	wr.tm.add.num_sge = 0;
	for (int i = 0; i < TM_TAGS; i++)
		assert_int_equal(tm_op(&bed, &wr), 0);
	assert_int_equal(tm_op(&bed, &wr), -ENOMEM);
	tm_expect_none(&bed);
	ibt_srq_unplug(bed.srq);
	assert_int_equal(tm_op(&bed, &wr), -EIO);
	tm_close(&bed);
}

static void ops__of_a_basic_queue_are_refused(void **state)
{
	struct ibt_srq_init init = { .pd = 1, .max_wr = 1 };
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_SYNC }, *bad = NULL;
	struct ibt_srq *basic;

	tm_open(&bed, TM_RELIABLE);
	assert_int_equal(ibt_srq_create(bed.net.side[1].ibt, &init, &basic), 0);
	assert_int_equal(ibt_srq_post_ops(basic, &wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr);
	ibt_srq_destroy(basic);
	tm_close(&bed);
}

static void ops__list_stops_at_the_first_refused(void **state)
{
	struct ibv_ops_wr wr[3] = { { .wr_id = 1, .opcode = IBV_WR_TAG_SYNC, .next = &wr[1] },
				    { .wr_id = 2, .opcode = IBV_WR_TAG_DEL, .next = &wr[2] },
				    { .wr_id = 3, .opcode = IBV_WR_TAG_SYNC } };
	struct ibv_ops_wr *bad = NULL;

	tm_open(&bed, TM_RELIABLE);
	for (int i = 0; i < 3; i++)
		wr[i].flags = IBV_OPS_SIGNALED;
	assert_int_equal(ibt_srq_post_ops(bed.srq, wr, &bad), -EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(tm_next(&bed).wc.wr_id, 1);
	tm_close(&bed);
}

static void ops__outstanding_are_limited(void **state)
{
	struct ibv_ops_wr quiet = { .opcode = IBV_WR_TAG_SYNC };

	tm_open(&bed, TM_RELIABLE);
	for (int i = 0; i < TM_OPS; i++)
		assert_int_equal(tm_sync(&bed, 0), 0);
	assert_int_equal(tm_sync(&bed, 0), -ENOMEM);
	assert_int_equal(tm_op(&bed, &quiet), 0);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	assert_int_equal(tm_sync(&bed, 0), 0);
	assert_int_equal(tm_sync(&bed, 0), -ENOMEM);
	for (int i = 0; i < TM_OPS; i++)
		tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_close(&bed);
}

/* Those of another SRQ that completes on the same CQ do not count. */
static void ops__outstanding_are_counted_for_each_srq(void **state)
{
	struct ibt_srq_init init = { .pd = 1,
				     .max_wr = 1,
				     .tm_cq = &bed.cq,
				     .max_num_tags = 1,
				     .max_ops = TM_OPS };
	struct ibt_srq *first, *other;

	tm_open(&bed, TM_RELIABLE);
	assert_int_equal(ibt_srq_create(bed.net.side[1].ibt, &init, &other), 0);
	first = bed.srq;
	for (int i = 0; i < TM_OPS; i++)
		assert_int_equal(tm_sync(&bed, 0), 0);
	bed.srq = other;
	for (int i = 0; i < TM_OPS; i++)
		assert_int_equal(tm_sync(&bed, 0), 0);
	assert_int_equal(tm_sync(&bed, 0), -ENOMEM);
	for (int i = 0; i < TM_OPS; i++) /* of the first */
		tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	assert_int_equal(tm_sync(&bed, 0), -ENOMEM);
	bed.srq = first;
	assert_int_equal(tm_sync(&bed, 0), 0);
	for (int i = 0; i <= TM_OPS; i++)
		tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	ibt_srq_destroy(other);
	tm_close(&bed);
}

/* Two completions fit: the third operation's is lost, and the SRQ takes no other. */
static void ops__of_a_full_cq_fail(void **state)
{
	tm_open_with(&bed, TM_RELIABLE, (struct tm_options){ .cqe = 2 });
	assert_int_equal(tm_sync(&bed, 0), 0);
	assert_int_equal(tm_sync(&bed, 0), 0);
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_SRQ_ERR], 0);
	assert_int_equal(tm_sync(&bed, 0), 0);
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_SRQ_ERR], 1);
	assert_int_equal(tm_sync(&bed, 0), -EIO);
	assert_int_equal(bed.net.side[1].events[IBV_EVENT_SRQ_ERR], 1);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_expect_op(&bed, IBV_WC_TM_SYNC, 0);
	tm_close(&bed);
}

/* Its READs are judged by the queue pair's PD. Tags are matched for RC only. */
static void create__of_another_pd_or_type_is_refused(void **state)
{
	struct ibt_qp_init init = { .type = IBV_QPT_RC, .qpn = 0x33, .pd = 2 };
	struct ibt_qp *qp;

	tm_open(&bed, TM_RELIABLE);
	init.send_cq = init.recv_cq = &bed.net.side[1].recv_cq;
	init.counters = &bed.net.side[1].qp_counters;
	init.srq = bed.srq;
	assert_int_equal(ibt_qp_create(bed.net.side[1].ibt, &init, &qp), -EINVAL);
	init.pd = 1;
	init.type = IBV_QPT_UD;
	assert_int_equal(ibt_qp_create(bed.net.side[1].ibt, &init, &qp), -EINVAL);
	tm_close(&bed);
}

static void ops__delete_tells_if_the_entry_is_consumed(void **state)
{
	u32 handle[2];

	tm_open(&bed, TM_RELIABLE);
	handle[0] = tm_add(&bed, 1, 5, ALL, 0, 100, -1);
	handle[1] = tm_add(&bed, 2, 5, ALL, 0, 100, -1);
	tm_eager(&bed, 5, 0, 100);
	tm_run(&bed);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_expect(&bed, IBV_WC_TM_RECV, 1, BOTH);
	assert_int_equal(tm_delete(&bed, handle[0]), 0);
	tm_expect_status(&bed, 0, IBV_WC_TM_ERR);
	assert_int_equal(tm_delete(&bed, handle[1]), 0);
	tm_expect_op(&bed, IBV_WC_TM_DEL, 0);
	assert_int_equal(tm_delete(&bed, handle[1]), 0);
	tm_expect_status(&bed, 0, IBV_WC_TM_ERR);
	tm_close(&bed);
}

/* A TAG_DEL may say the count of unexpected messages, too: the entry behind it matches. */
static void ops__delete_brings_the_list_in_phase(void **state)
{
	struct ibv_ops_wr wr = { .opcode = IBV_WR_TAG_DEL,
				 .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
				 .tm.unexpected_cnt = 1 };

	tm_open(&bed, TM_RELIABLE);
	tm_buffer(&bed, 1);
	wr.tm.handle = tm_add(&bed, 2, 9, ALL, 0, 100, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 5, 0, 8);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 1, 0);
	assert_int_equal(tm_op(&bed, &wr), 0);
	tm_expect_op(&bed, IBV_WC_TM_DEL, 0);
	tm_add(&bed, 3, 5, ALL, 0, 100, -1);
	tm_expect_op(&bed, IBV_WC_TM_ADD, 0);
	tm_eager(&bed, 5, 0, 8);
	tm_run(&bed);
	tm_expect(&bed, IBV_WC_TM_RECV, 3, BOTH);
	tm_close(&bed);
}

#define CASE(f) cmocka_unit_test(f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(ops__are_refused),
		CASE(ops__of_a_basic_queue_are_refused),
		CASE(ops__list_stops_at_the_first_refused),
		CASE(ops__outstanding_are_limited),
		CASE(ops__outstanding_are_counted_for_each_srq),
		CASE(ops__of_a_full_cq_fail),
		CASE(create__of_another_pd_or_type_is_refused),
		CASE(ops__delete_tells_if_the_entry_is_consumed),
		CASE(ops__delete_brings_the_list_in_phase),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
