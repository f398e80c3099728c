/* transfer_test.c: transfers of scatter lists (rdma_rw_ctx_*) with and without registration, and
 * the pools of regions below them: calls that Linux 6.1 has over the verbs.
 * In:    -    Out: -    Runs: the test's thread, a CQ's
 */
#include "rig.h"

#include <rdma/ib_linux61.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECES = 40, CTXS = 8, ROUNDS = 20, BYTES = 2 << 20 };

/* A queue pair connected to itself: it is its own peer. */
static struct {
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_cqe cqe;
	int done;
	enum ib_wc_status status;
	u8 *near, *far;
} t;

static void on_done(struct ib_cq *cq, struct ib_wc *wc)
{
	t.status = wc->status;
	count_add(&t.done);
}

static void open_unconnected(bool force, u32 ctxs)
{
	struct ib_qp_init_attr_linux61 init = { .sq_sig_type = IB_SIGNAL_REQ_WR,
						.qp_type = IB_QPT_RC,
						.port_num = 1,
						.cap = { .max_send_wr = 16,
							 .max_recv_wr = 4,
							 .max_send_sge = 4,
							 .max_recv_sge = 1,
							 .max_rdma_ctxs = ctxs } };

	memset(&t, 0, sizeof(t));
	t.near = aligned_alloc(RIG_PAGE, BYTES);
	t.far = aligned_alloc(RIG_PAGE, BYTES);
	t.cqe.done = on_done;
	t.pd = rig_ok(ib_alloc_pd_linux61(rig.dev, IB_PD_UNSAFE_GLOBAL_RKEY));
	t.cq = rig_ok(ib_alloc_cq(rig.dev, NULL, 64, 0, IB_POLL_WORKQUEUE));
	init.send_cq = init.recv_cq = t.cq;
	rdma_rw_set_force_mr(force);
	t.qp = rig_ok(ib_create_qp_linux61(t.pd, &init));
	assert_true(init.cap.max_send_wr >= 16 + ctxs * (force ? 3 : 1));
	assert_int_equal(init.cap.max_rdma_ctxs, ctxs);
}

static void open_with(bool force, u32 ctxs)
{
	open_unconnected(force, ctxs);
	rig_connect(t.qp, &rig.gid, t.qp->qp_num);
}

static void close_all(void)
{
	rdma_rw_set_force_mr(false);
	ib_drain_qp(t.qp);
	assert_int_equal(ib_destroy_qp_linux61(t.qp), 0);
	ib_free_cq(t.cq);
	ib_dealloc_pd_linux61(t.pd);
	free(t.near);
	free(t.far);
}

/* The driver has fast registration. */
static bool can_register(void)
{
	struct ib_mr *mr = ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, 1);

	if (IS_ERR(mr))
		return false;
	assert_int_equal(ib_dereg_mr(mr), 0);
	return true;
}

/* A list over t.near, and how long it is. */
struct shape {
	const char *name;
	u32 count, first, length, step, offset;
};

static const struct shape shapes[] = {
	{ "one piece", 1, 100, 5000, 0, 0 },
	{ "one piece, but for its begin", 1, 0, 4096, 0, 4095 },
	{ "three pages", 3, 0, 4096, 3 * 4096, 0 },
	{ "pages, from the second on", 3, 0, 4096, 2 * 4096, 5000 },
	{ "pieces that do not meet", PIECES, 77, 300, 1000, 30 },
	{ "more than a region holds", 1, 1000, (1 << 20) + 70000, 0, 2345 },
	{ "two such", 2, 0, 1 << 20, 1 << 20, 4000 },
};

static void shape_fill(const struct shape *s, struct scatterlist *sg)
{
	sg_init_table(sg, s->count);
	for (u32 i = 0; i < s->count; i++)
		sg_set_buf(&sg[i], t.near + s->first + i * s->step, s->length);
}

/* The bytes of the list, one after the other, are those of t.far. */
static bool shape_matches(const struct shape *s)
{
	u64 at = 0;

	for (u64 n = s->offset; n < (u64)s->count * s->length; n++)
		if (t.near[s->first + n / s->length * s->step + n % s->length] != t.far[at++])
			return false;
	return true;
}

static void move(const struct shape *s, enum dma_data_direction dir, int round)
{
	struct scatterlist sg[PIECES];
	struct rdma_rw_ctx ctx;
	int requests;

	for (int i = 0; i < BYTES; i++) {
		t.near[i] = (u8)(i * 7 + i / 251 + round);
		t.far[i] = (u8)(i * 5 + i / 257 + round);
	}
	shape_fill(s, sg);
	requests = rdma_rw_ctx_init(&ctx, t.qp, 1, sg, s->count, s->offset,
				    (u64)(uintptr_t)t.far, t.pd->unsafe_global_rkey, dir);
	assert_true(requests > 0);
	assert_int_equal(rdma_rw_ctx_post(&ctx, t.qp, 1, &t.cqe, NULL), 0);
	assert_true(rig_await(&t.done, round + 1));
	rdma_rw_ctx_destroy(&ctx, t.qp, 1, sg, s->count, dir);
	assert_int_equal(t.status, IB_WC_SUCCESS);
	if (!shape_matches(s))
		fail_msg("%s, %s", s->name, dir == DMA_TO_DEVICE ? "WRITE" : "READ");
}

/* Returns how many transfers there were. */
static int move_all(void)
{
	struct ib_port_attr port;
	int round = 0;

	assert_int_equal(ib_query_port(rig.dev, 1, &port), 0);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (shapes[i].count * shapes[i].length > port.max_msg_sz)
			continue;
		move(&shapes[i], DMA_TO_DEVICE, round++);
		move(&shapes[i], DMA_FROM_DEVICE, round++);
	}
	return round;
}

static void rw__moves_lists_of_every_shape(void **state)
{
	open_with(false, CTXS);
	assert_ptr_equal(t.qp->pools->rdma_mrs.next, &t.qp->pools->rdma_mrs);
	move_all();
	close_all();
}

/* More transfers than regions: every key is invalidated and used anew. */
static void rw__moves_them_registered(void **state)
{
	int round;

	if (!can_register())
		skip();
	open_with(true, PIECES);
	round = move_all();
	for (int i = 0; i < ROUNDS; i++)
		move(&shapes[2], i % 2 ? DMA_TO_DEVICE : DMA_FROM_DEVICE, round + i);
	close_all();
}

/* A region that was registered for one transfer is of no use to a later one's key. */
static void rw__gives_each_transfer_another_key(void **state)
{
	struct scatterlist sg[1];
	struct rdma_rw_ctx ctx;
	struct ib_send_wr_linux61 *first;
	u32 key = 0;

	if (!can_register())
		skip();
	open_with(true, 1);
	sg_init_one(sg, t.near, 100);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rdma_rw_ctx_init(&ctx, t.qp, 1, sg, 1, 0, (u64)(uintptr_t)t.far,
						  t.pd->unsafe_global_rkey, DMA_TO_DEVICE),
				 i ? 3 : 2);
		first = rdma_rw_ctx_wrs(&ctx, t.qp, 1, &t.cqe, NULL);
		assert_int_equal(first->opcode, i ? IB_WR_LOCAL_INV : IB_WR_REG_MR);
		if (i)
			assert_int_equal(first->ex.invalidate_rkey, key);
		key = ((struct ib_reg_wr *)(i ? first->next : first))->key;
		assert_int_equal(ib_post_send_linux61(t.qp, first, NULL), 0);
		assert_true(rig_await(&t.done, i + 1));
		assert_int_equal(t.status, IB_WC_SUCCESS);
		rdma_rw_ctx_destroy(&ctx, t.qp, 1, sg, 1, DMA_TO_DEVICE);
	}
	close_all();
}

static void begin_one(struct rdma_rw_ctx *ctx, struct scatterlist *sg, int requests)
{
	assert_int_equal(rdma_rw_ctx_init(ctx, t.qp, 1, sg, 1, 0, (u64)(uintptr_t)t.far,
					  t.pd->unsafe_global_rkey, DMA_TO_DEVICE),
			 requests);
}

/* A transfer that the queue pair does not take yet has changed no key: it may be given up, or
 * posted again. */
static void rw__may_be_posted_again(void **state)
{
	struct scatterlist sg[1];
	struct rdma_rw_ctx ctx;

	if (!can_register())
		skip();
	open_unconnected(true, 1);
	sg_init_one(sg, t.near, 100);
	begin_one(&ctx, sg, 2);
	assert_int_not_equal(rdma_rw_ctx_post(&ctx, t.qp, 1, &t.cqe, NULL), 0);
	rdma_rw_ctx_destroy(&ctx, t.qp, 1, sg, 1, DMA_TO_DEVICE);
	begin_one(&ctx, sg, 2);
	assert_int_not_equal(rdma_rw_ctx_post(&ctx, t.qp, 1, &t.cqe, NULL), 0);
	rig_connect(t.qp, &rig.gid, t.qp->qp_num);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_rw_ctx_post(&ctx, t.qp, 1, &t.cqe, NULL), 0);
		assert_true(rig_await(&t.done, i + 1));
		assert_int_equal(t.status, IB_WC_SUCCESS);
		rdma_rw_ctx_destroy(&ctx, t.qp, 1, sg, 1, DMA_TO_DEVICE);
		begin_one(&ctx, sg, 3);
	}
	rdma_rw_ctx_destroy(&ctx, t.qp, 1, sg, 1, DMA_TO_DEVICE);
	close_all();
}

/* The consumer's own request follows the data. */
static void rw__goes_before_what_is_chained(void **state)
{
	struct ib_sge in = { .length = 100 };
	struct ib_send_wr_linux61 send = { .opcode = IB_WR_SEND,
					   .send_flags = IB_SEND_SIGNALED,
					   .wr_cqe = &t.cqe };
	struct ib_recv_wr recv = { .wr_cqe = &t.cqe, .sg_list = &in, .num_sge = 1 };
	struct scatterlist sg[PIECES];
	struct rdma_rw_ctx ctx;

	open_with(false, CTXS);
	in.addr = (u64)(uintptr_t)(t.near + 8192);
	in.lkey = t.pd->local_dma_lkey;
	shape_fill(&shapes[4], sg);
	assert_int_equal(ib_post_recv_linux61(t.qp, &recv, NULL), 0);
	assert_int_equal(rdma_rw_ctx_init(&ctx, t.qp, 1, sg, PIECES, 30, (u64)(uintptr_t)t.far,
					  t.pd->unsafe_global_rkey, DMA_TO_DEVICE), PIECES / 4);
	assert_int_equal(rdma_rw_ctx_post(&ctx, t.qp, 1, NULL, &send), 0);
	assert_true(rig_await(&t.done, 2));
	assert_true(shape_matches(&shapes[4]));
	rdma_rw_ctx_destroy(&ctx, t.qp, 1, sg, PIECES, DMA_TO_DEVICE);
	close_all();
}

static int begin(struct rdma_rw_ctx *ctx, struct scatterlist *sg, u32 count, u32 offset)
{
	return rdma_rw_ctx_init(ctx, t.qp, 1, sg, count, offset, (u64)(uintptr_t)t.far,
				t.pd->unsafe_global_rkey, DMA_FROM_DEVICE);
}

static void rw__ends_with_the_regions(void **state)
{
	struct rdma_rw_ctx ctx[3];
	struct scatterlist sg;

	if (!can_register())
		skip();
	open_with(true, 2);
	sg_init_one(&sg, t.near, 100);
	assert_int_equal(begin(&ctx[0], &sg, 1, 0), 2);
	assert_int_equal(begin(&ctx[1], &sg, 1, 0), 2);
	assert_int_equal(begin(&ctx[2], &sg, 1, 0), -EAGAIN);
	rdma_rw_ctx_destroy(&ctx[0], t.qp, 1, &sg, 1, DMA_FROM_DEVICE);
	assert_int_equal(begin(&ctx[2], &sg, 1, 0), 2); /* no key was used up */
	rdma_rw_ctx_destroy(&ctx[1], t.qp, 1, &sg, 1, DMA_FROM_DEVICE);
	rdma_rw_ctx_destroy(&ctx[2], t.qp, 1, &sg, 1, DMA_FROM_DEVICE);
	close_all();
}

static void rw__refuses_what_it_cannot_move(void **state)
{
	struct ib_qp *old = rig_qp(IB_QPT_RC, rig_cq(4), rig_cq(4), NULL);
	struct ib_cq *scq = old->send_cq, *rcq = old->recv_cq;
	struct rdma_rw_ctx ctx;
	struct scatterlist sg;

	for (int force = 0; force <= can_register(); force++) {
		open_with(force, CTXS);
		sg_init_one(&sg, t.near, 100);
		assert_int_equal(begin(NULL, &sg, 1, 0), -EINVAL);
		assert_int_equal(begin(&ctx, NULL, 1, 0), -EINVAL);
		assert_int_equal(begin(&ctx, &sg, 0, 0), -EIO);
		assert_int_equal(begin(&ctx, &sg, 1, 100), -EIO);
		assert_int_equal(begin(&ctx, &sg, 7, 101), -EIO); /* more than the list has */
		assert_int_equal(rdma_rw_ctx_init(&ctx, NULL, 1, &sg, 1, 0, 0, 0, DMA_TO_DEVICE),
				 -EINVAL);
		assert_int_equal(rdma_rw_ctx_init(&ctx, t.qp, 1, &sg, 1, 0, 0, 0,
						  DMA_BIDIRECTIONAL), -EINVAL);
		assert_int_equal(rdma_rw_ctx_init(&ctx, old, 1, &sg, 1, 0, 0, 0, DMA_TO_DEVICE),
				 -EOPNOTSUPP);
		assert_int_equal(rdma_rw_ctx_signature_init(&ctx, t.qp, 1, &sg, 1, NULL, 0, NULL,
							    0, 0, DMA_TO_DEVICE), -EOPNOTSUPP);
		assert_true(begin(&ctx, &sg, 1, 0) > 0);
		assert_int_equal(rdma_rw_ctx_post(&ctx, t.qp, 1, NULL, NULL), -EINVAL);
		rdma_rw_ctx_destroy(&ctx, t.qp, 1, &sg, 1, DMA_FROM_DEVICE);
		close_all();
	}
	assert_int_equal(ib_destroy_qp(old), 0);
	assert_int_equal(ib_destroy_cq(scq), 0);
	assert_int_equal(ib_destroy_cq(rcq), 0);
}

static void rw__counts_what_a_queue_pair_needs(void **state)
{
	assert_true(rdma_rw_mr_factor(rig.dev, 1, 1) <= 1);
	assert_int_equal(rdma_rw_mr_factor(NULL, 1, 1), 0);
	assert_int_equal(rdma_rw_max_send_wr(rig.dev, 1, 100, 0), 100);
	assert_int_equal(rdma_rw_max_send_wr(rig.dev, 1, 100, IB_QP_CREATE_INTEGRITY_EN), 300);
	rdma_rw_set_force_mr(true);
	assert_int_equal(rdma_rw_max_send_wr(rig.dev, 1, 100, 0), 300);
	assert_int_equal(rdma_rw_max_send_wr(rig.dev, 1, 0xffffffff, 0), 0xffffffff);
	rdma_rw_set_force_mr(false);
}

static void mr_pool__gives_each_region_once(void **state)
{
	struct list_head own = { &own, &own };
	struct ib_mr *mr[5];

	if (!can_register())
		skip();
	open_with(false, 0);
	assert_int_equal(ib_mr_pool_init(t.qp, &own, 4, IB_MR_TYPE_MEM_REG, 16, 0), 0);
	for (int i = 0; i < 4; i++) {
		mr[i] = ib_mr_pool_get(t.qp, &own);
		assert_non_null(mr[i]);
		assert_false(mr[i]->need_inval);
		for (int j = 0; j < i; j++)
			assert_ptr_not_equal(mr[i], mr[j]);
	}
	assert_null(ib_mr_pool_get(t.qp, &own));
	ib_mr_pool_put(t.qp, &own, mr[2]);
	assert_ptr_equal(ib_mr_pool_get(t.qp, &own), mr[2]);
	for (int i = 0; i < 4; i++)
		ib_mr_pool_put(t.qp, &own, mr[i]);
	ib_mr_pool_destroy(t.qp, &own);
	assert_null(ib_mr_pool_get(t.qp, &own));
	/* The queue pair's own list goes with it. */
	assert_int_equal(
		ib_mr_pool_init(t.qp, &t.qp->pools->rdma_mrs, 4, IB_MR_TYPE_MEM_REG, 16, 0), 0);
	close_all();
}

static void mr_pool__refuses_what_no_device_has(void **state)
{
	struct list_head own = { &own, &own };

	open_with(false, 0);
	assert_int_equal(ib_mr_pool_init(t.qp, &own, 1, (enum ib_mr_type)IB_MR_TYPE_INTEGRITY, 16,
					 16), -EOPNOTSUPP);
	assert_int_equal(ib_mr_pool_init(NULL, &own, 1, IB_MR_TYPE_MEM_REG, 16, 0), -EINVAL);
	assert_int_equal(ib_mr_pool_init(t.qp, NULL, 1, IB_MR_TYPE_MEM_REG, 16, 0), -EINVAL);
	assert_int_equal(ib_mr_pool_init(t.qp, &own, 0, IB_MR_TYPE_MEM_REG, 16, 0), 0);
	if (can_register()) {
		assert_int_equal(ib_mr_pool_init(t.qp, &own, 1, IB_MR_TYPE_MEM_REG, 0, 0), -EINVAL);
		assert_int_equal(ib_mr_pool_init(t.qp, &own, 1, IB_MR_TYPE_MEM_REG, 1u << 31, 0),
				 -EINVAL);
	}
	assert_ptr_equal(own.next, &own);
	close_all();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rw__moves_lists_of_every_shape),
		cmocka_unit_test(rw__moves_them_registered),
		cmocka_unit_test(rw__gives_each_transfer_another_key),
		cmocka_unit_test(rw__may_be_posted_again),
		cmocka_unit_test(rw__goes_before_what_is_chained),
		cmocka_unit_test(rw__ends_with_the_regions),
		cmocka_unit_test(rw__refuses_what_it_cannot_move),
		cmocka_unit_test(rw__counts_what_a_queue_pair_needs),
		cmocka_unit_test(mr_pool__gives_each_region_once),
		cmocka_unit_test(mr_pool__refuses_what_no_device_has),
	};

	return rig_run_tests(tests);
}
