/* extended_test.c: structures and tables of several releases: a driver that is older than the
 * midlayer, one that is newer, one that has none of it; operations of tag-matching SRQs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/convert.h"
#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static struct fake_device *fake;
static int created, polled, posted;
static struct ib_cq_init_attr seen_cq;
static struct ib_srq_init_attr_ex seen_srq;

static int setup(void **state)
{
	created = polled = posted = 0;
	fake = fake_create("fake%d");
	return 0;
}

static int teardown(void **state)
{
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static struct ib_cq *ops_create_cq(struct ib_device *device, const struct ib_cq_init_attr *attr)
{
	created++;
	seen_cq = *attr;
	if (attr->flags & ~(u32)IB_CQ_FLAGS_WALLCLOCK)
		return ERR_PTR(-EOPNOTSUPP);
	return device->create_cq(device, attr->cqe, attr->comp_vector);
}

static int ops_poll_cq(struct ib_cq *cq, int n, struct ib_wc *wc, struct ib_wc_side *side)
{
	int got = cq->device->poll_cq(cq, n, wc);

	polled++;
	for (int i = 0; i < got; i++)
		side[i] = (struct ib_wc_side){ .wallclock_ns = 5 };
	return got;
}

/* What the driver's own structure has, `cq` among it. */
static struct ib_srq *ops_create_srq(struct ib_pd *pd, struct ib_srq_init_attr_ex *init)
{
	created++;
	seen_srq = *init;
	init->base.attr.max_wr = 99;
	return pd->device->create_srq(pd, &init->base);
}

static struct ib_qp *ops_create_qp(struct ib_pd *pd, struct ib_qp_init_attr_ex *init)
{
	created++;
	if (init->create_flags)
		return ERR_PTR(-EOPNOTSUPP);
	init->base.cap.max_send_wr = 77;
	return pd->device->create_qp(pd, &init->base);
}

static int ops_query_device(struct ib_device *device, struct ib_device_attr_ex *attr)
{
	assert_int_equal(attr->size, sizeof(*attr));
	attr->tm_caps.max_num_tags = (u32)attr->base.max_map_per_fmr + 5;
	attr->cq_caps.max_cq_moderation_count = 6;
	return fake->fail;
}

/* Takes entries with a handle that counts up; refuses a tag of 0. */
static int ops_post_srq_ops(struct ib_srq *srq, struct ib_ops_wr *wr, struct ib_ops_wr **bad)
{
	assert_true(event_driver_depth > 0);
	for (; wr; wr = wr->next) {
		if (wr->opcode == IB_WR_TAG_ADD && !wr->tm.add.tag) {
			*bad = wr;
			return -ENOMEM;
		}
		wr->tm.handle = (u32)++posted;
	}
	return 0;
}

static const struct ib_device_ops ops = {
	IB_DEVICE_OPS_SIZES,
	.create_cq = ops_create_cq,
	.poll_cq = ops_poll_cq,
	.create_srq = ops_create_srq,
	.create_qp = ops_create_qp,
	.query_device = ops_query_device,
	.post_srq_ops = ops_post_srq_ops,
};

static void register_with(const struct ib_device_ops *table)
{
	if (table)
		assert_int_equal(ib_set_device_ops(&fake->ib, table), 0);
	assert_int_equal(ib_register_device(&fake->ib), 0);
}

static struct ib_cq *cq_with(u32 flags)
{
	struct ib_cq_init_attr attr = { .size = sizeof(attr), .flags = flags, .cqe = 8 };

	return ib_create_cq_ex(&fake->ib, NULL, NULL, NULL, &attr);
}

static void set_device_ops__takes_tables_of_any_release(void **state)
{
	struct {
		struct ib_device_ops now;
		void (*later)(void);
	} longer = { .now = ops, .later = NULL };
	struct ib_device_ops shorter = ops;

	longer.now.size = sizeof(longer);
	assert_int_equal(ib_set_device_ops(&fake->ib, &longer.now), 0);
	shorter.size = 8;
	assert_int_equal(ib_set_device_ops(&fake->ib, &shorter), -EINVAL);
	shorter = ops;
	shorter.cq_attr_size = 0;
	assert_int_equal(ib_set_device_ops(&fake->ib, &shorter), -EINVAL);
	shorter = ops;
	shorter.srq_attr_size = 8;
	assert_int_equal(ib_set_device_ops(&fake->ib, &shorter), -EINVAL);
	shorter = ops;
	shorter.qp_attr_size = 8;
	assert_int_equal(ib_set_device_ops(&fake->ib, &shorter), -EINVAL);
	register_with(NULL);
	assert_int_equal(ib_set_device_ops(&fake->ib, &ops), -EBUSY);
	assert_int_equal(ib_destroy_cq(cq_with(0)), 0);
	assert_int_equal(created, 1); /* the longer table holds, no refused one */
}

static void create_cq_ex__without_a_table(void **state)
{
	struct ib_cq *cq;

	register_with(NULL);
	assert_int_equal(PTR_ERR(cq_with(IB_CQ_FLAGS_WALLCLOCK)), -EOPNOTSUPP);
	cq = cq_with(0);
	assert_false(IS_ERR(cq));
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(fake->ib.core->ops.size, 0);
}

static void create_cq_ex__asks_the_driver_in_the_midlayers_size(void **state)
{
	struct ib_cq *cq;

	register_with(&ops);
	cq = cq_with(IB_CQ_FLAGS_WALLCLOCK);
	assert_false(IS_ERR(cq));
	assert_int_equal(seen_cq.size, sizeof(seen_cq));
	assert_int_equal(seen_cq.flags, IB_CQ_FLAGS_WALLCLOCK);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(PTR_ERR(cq_with(IB_CQ_FLAGS_TM_INFO)), -EOPNOTSUPP);
	cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 8, 1); /* the plain call too */
	assert_int_equal(seen_cq.comp_vector, 1);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(created, 3);
}

static void poll_cq_ex__by_the_table_or_with_empty_sides(void **state)
{
	struct ib_wc in = { .wr_id = 3 }, out[2];
	struct ib_wc_side side[2];
	struct ibv_wc wc[2];
	struct ib_cq *cq;

	register_with(&ops);
	cq = cq_with(IB_CQ_FLAGS_WALLCLOCK);
	fake_complete(cq, &in);
	assert_int_equal(ib_poll_cq_ex(cq, 2, out, side), 1);
	assert_int_equal(out[0].wr_id, 3);
	assert_int_equal(side[0].wallclock_ns, 5);
	for (int i = 0; i < 2; i++)
		fake_complete(cq, &in);
	assert_int_equal(fake->ib.uverbs->poll_cq_ex(cq, 2, wc, side), 2);
	assert_int_equal(wc[1].wr_id, 3);
	assert_int_equal(side[1].wallclock_ns, 5);
	assert_int_equal(polled, 2);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* An older driver knows less of the structure: what it could not see is refused for it. */
static void create_srq_ex__spares_an_older_driver(void **state)
{
	struct ib_srq_init_attr_ex init = { .size = sizeof(init), .srq_type = IB_SRQT_TM };
	struct ib_device_ops without = ops;
	struct ib_pd *pd;

	without.create_srq = NULL;
	register_with(&without);
	pd = ib_alloc_pd(&fake->ib);
	init.cq = cq_with(0);
	assert_int_equal(PTR_ERR(ib_create_srq_ex(pd, &init)), -EOPNOTSUPP);
	assert_int_equal(ib_destroy_cq(init.cq), 0); /* nothing stands on it */
	init = (struct ib_srq_init_attr_ex){ .size = sizeof(init), .max_ops = 1 };
	assert_int_equal(PTR_ERR(ib_create_srq_ex(pd, &init)), -EOPNOTSUPP);
	init.max_ops = 0;
	assert_int_equal(ib_destroy_srq(ib_create_srq_ex(pd, &init)), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void create_srq_ex__stands_on_its_cq(void **state)
{
	struct ib_srq_init_attr_ex init = { .size = sizeof(init),
					    .srq_type = IB_SRQT_TM,
					    .max_num_tags = 7,
					    .max_ops = 8 };
	struct ib_srq_init_attr plain = { 0 };
	struct ib_srq *srq;
	struct ib_pd *pd;

	register_with(&ops);
	pd = ib_alloc_pd(&fake->ib);
	assert_int_equal(PTR_ERR(ib_create_srq_ex(pd, &init)), -EINVAL); /* without one */
	init.cq = cq_with(0);
	srq = ib_create_srq_ex(pd, &init);
	assert_false(IS_ERR(srq));
	assert_int_equal(init.base.attr.max_wr, 99);
	assert_int_equal(seen_srq.max_num_tags, 7);
	assert_int_equal(seen_srq.max_ops, 8);
	assert_ptr_equal(srq->cq, init.cq);
	assert_int_equal(ib_destroy_cq(init.cq), -EBUSY);
	assert_int_equal(ib_destroy_srq(srq), 0);
	fake->fail = -ENOMEM;
	assert_int_equal(PTR_ERR(ib_create_srq_ex(pd, &init)), -ENOMEM);
	fake->fail = 0;
	assert_int_equal(ib_destroy_cq(init.cq), 0);
	srq = ib_create_srq(pd, &plain);
	assert_int_equal(plain.attr.max_wr, 99);
	assert_null(srq->cq);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void create_qp_ex__by_the_table(void **state)
{
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;

	register_with(&ops);
	pd = ib_alloc_pd(&fake->ib);
	cq = cq_with(0);
	struct ib_qp_init_attr_ex init = { .size = sizeof(init),
					   .base = { .send_cq = cq,
						     .recv_cq = cq,
						     .qp_type = IB_QPT_RC } };

	qp = ib_create_qp(pd, &init.base);
	assert_int_equal(init.base.cap.max_send_wr, 77);
	assert_int_equal(ib_destroy_qp(qp), 0);
	init.create_flags = 1;
	init.base.cap.max_send_wr = 1;
	assert_int_equal(PTR_ERR(ib_create_qp_ex(pd, &init)), -EOPNOTSUPP);
	assert_int_equal(init.base.cap.max_send_wr, 1);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void query_clock__without_one(void **state)
{
	u64 raw = 4;

	register_with(&ops);
	assert_int_equal(ib_query_clock(&fake->ib, &raw), -EOPNOTSUPP);
	assert_int_equal(raw, 4);
}

/* ---- tag matching ---------------------------------------------------------------------------- */

static struct ib_srq *core_srq_of(struct ib_pd *pd, enum ib_srq_type type, struct ib_cq *cq)
{
	struct ib_srq_init_attr_ex init = { .size = sizeof(init), .srq_type = type, .cq = cq };
	struct ib_srq *srq = ib_create_srq_ex(pd, &init);

	assert_false(IS_ERR(srq));
	return srq;
}

static void post_srq_ops__goes_to_the_driver_of_a_tm_srq_only(void **state)
{
	struct ib_ops_wr last = { .opcode = IB_WR_TAG_ADD };
	struct ib_ops_wr list = { .opcode = IB_WR_TAG_ADD, .next = &last, .tm.add.tag = 1 };
	struct ib_srq *srq, *plain;
	struct ib_ops_wr *bad = NULL;
	struct ib_pd *pd;
	struct ib_cq *cq;

	register_with(&ops);
	pd = ib_alloc_pd(&fake->ib);
	cq = cq_with(0);
	srq = core_srq_of(pd, IB_SRQT_TM, cq);
	plain = core_srq_of(pd, IB_SRQT_BASIC, NULL);
	assert_int_equal(ib_post_srq_ops(srq, &list, &bad), -ENOMEM);
	assert_ptr_equal(bad, &last);
	assert_int_equal(list.tm.handle, 1);
	assert_int_equal(ib_post_srq_ops(srq, &list, NULL), -ENOMEM);
	last.tm.add.tag = 1;
	bad = NULL;
	assert_int_equal(ib_post_srq_ops(srq, &list, &bad), 0);
	assert_int_equal(last.tm.handle, 4);
	assert_null(bad);
	assert_int_equal(ib_post_srq_ops(plain, &list, &bad), -EINVAL);
	assert_ptr_equal(bad, &list);
	assert_int_equal(posted, 4);
	assert_int_equal(ib_destroy_srq(plain), 0);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

/* Its struct ib_srq ends before the type. */
static void post_srq_ops__spares_an_older_driver(void **state)
{
	struct ib_ops_wr wr = { .opcode = IB_WR_TAG_SYNC }, *bad = NULL;
	struct ib_device_ops older = ops;
	struct ib_srq *srq;
	struct ib_pd *pd;

	older.size = offsetof(struct ib_device_ops, query_device);
	register_with(&older);
	pd = ib_alloc_pd(&fake->ib);
	srq = core_srq_of(pd, IB_SRQT_BASIC, NULL);
	assert_int_equal(ib_post_srq_ops(srq, &wr, &bad), -EOPNOTSUPP);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void query_device_ex__asks_both_methods(void **state)
{
	struct ib_device_attr_ex attr = { .size = sizeof(attr) }, again;

	fake->max_map_per_fmr = 3;
	register_with(&ops);
	assert_int_equal(ib_query_device_ex(&fake->ib, &attr), 0);
	assert_int_equal(attr.size, sizeof(attr));
	assert_int_equal(attr.base.max_map_per_fmr, 3);
	assert_int_equal(attr.tm_caps.max_num_tags, 8);
	assert_int_equal(attr.cq_caps.max_cq_moderation_count, 6);
	again = attr;
	fake->fail = -EIO;
	assert_int_equal(ib_query_device_ex(&fake->ib, &again), -EIO);
	assert_memory_equal(&again, &attr, sizeof(attr));
	fake->fail = 0;
	attr.size = offsetof(struct ib_device_attr_ex, odp_caps); /* an older consumer */
	assert_int_equal(ib_query_device_ex(&fake->ib, &attr), 0);
	attr.size = offsetof(struct ib_device_attr_ex, cq_caps) + sizeof(attr.cq_caps) - 1;
	assert_int_equal(ib_query_device_ex(&fake->ib, &attr), -EINVAL);
}

static void query_device_ex__of_an_older_driver_and_a_later_consumer(void **state)
{
	static const u8 none[sizeof(struct ib_tm_caps) + sizeof(struct ib_cq_caps)];
	struct {
		struct ib_device_attr_ex now;
		u64 later;
	} attr;

	register_with(NULL);
	memset(&attr, 0xff, sizeof(attr));
	attr.now.size = sizeof(attr);
	assert_int_equal(ib_query_device_ex(&fake->ib, &attr.now), 0);
	assert_int_equal(attr.now.size, sizeof(attr));
	assert_memory_equal(&attr.now.tm_caps, none, sizeof(none));
	assert_int_equal(attr.later, 0);
}

static void poll_cq__of_a_list_operation_has_tag_flags_and_no_queue_pair(void **state)
{
	struct ib_wc in = { .opcode = IB_WC_TM_ADD, .wc_flags = IB_WC_TM_SYNC_REQ }, out;
	struct ibv_wc wc;
	struct ib_cq *cq;

	register_with(&ops);
	cq = cq_with(0);
	fake_complete(cq, &in);
	assert_int_equal(fake->ib.uverbs->poll_cq(cq, 1, &wc), 1);
	assert_int_equal(wc.opcode, IBV_WC_TM_ADD);
	assert_int_equal(wc.wc_flags, IBV_WC_TM_SYNC_REQ);
	assert_int_equal(wc.qp_num, 0);
	wc.wc_flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID | IBV_WC_WITH_IMM;
	ib_convert_wc(&wc, NULL, &out);
	assert_int_equal(out.wc_flags, IB_WC_TM_MATCH | IB_WC_TM_DATA_VALID | IB_WC_WITH_IMM);
	assert_null(out.qp);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(set_device_ops__takes_tables_of_any_release),
		TEST(create_cq_ex__without_a_table),
		TEST(create_cq_ex__asks_the_driver_in_the_midlayers_size),
		TEST(poll_cq_ex__by_the_table_or_with_empty_sides),
		TEST(create_srq_ex__spares_an_older_driver),
		TEST(create_srq_ex__stands_on_its_cq),
		TEST(create_qp_ex__by_the_table),
		TEST(query_clock__without_one),
		TEST(post_srq_ops__goes_to_the_driver_of_a_tm_srq_only),
		TEST(post_srq_ops__spares_an_older_driver),
		TEST(query_device_ex__asks_both_methods),
		TEST(query_device_ex__of_an_older_driver_and_a_later_consumer),
		TEST(poll_cq__of_a_list_operation_has_tag_flags_and_no_queue_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
