/* window_test.c: memory windows of type 2: who may bind what, who reaches it, who ends it.
 * In: tables of binds    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <string.h>

#include "pair.h"

#include "key_bed.h"

static enum ibv_qp_type rc = IBV_QPT_RC, uc = IBV_QPT_UC;

static struct ibv_mr *region; /* far's, that windows are bound to */
static struct ibv_mw *mw;

static int window_setup(void **state)
{
	key_setup(state);
	region = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_2);
	assert_non_null(mw);
	return 0;
}

static int window_teardown(void **state)
{
	int err = (mw ? ibv_dealloc_mw(mw) : 0) | ibv_dereg_mr(region);

	return err | key_teardown(state);
}

static struct ibv_send_wr window_bind_wr(struct ibv_mw *window, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 5,
				  .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED };

	wr.bind_mw.mw = window;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = region,
							  .addr = key_va(KEY_FAR),
							  .length = 4096,
							  .mw_access_flags = KEY_REMOTE };
	return wr;
}

/* Binds the window to the first page of the far half under a key of the next low bits. */
static uint32_t window_bind(struct ibv_qp *qp, struct ibv_cq *cq)
{
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr wr = window_bind_wr(mw, rkey);
	struct ibv_wc wc;

	key_send(qp, &wr);
	wc = key_expect(cq, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
	assert_int_equal(wc.wr_id, 5);
	mw->rkey = rkey; /* as applications do */
	return rkey;
}

static struct ibv_send_wr window_end_wr(enum ibv_wr_opcode op, uint32_t rkey)
{
	return (struct ibv_send_wr){ .opcode = op,
				     .send_flags = IBV_SEND_SIGNALED,
				     .invalidate_rkey = rkey };
}

static void window_local_inv(struct ibv_qp *qp, struct ibv_cq *cq, uint32_t rkey,
			     enum ibv_wc_status status)
{
	struct ibv_send_wr wr = window_end_wr(IBV_WR_LOCAL_INV, rkey);
	struct ibv_wc wc;

	key_send(qp, &wr);
	wc = key_expect(cq, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_LOCAL_INV);
}

static void window__reaches_its_range(void **state)
{
	uint32_t rkey;

	key_refused(key_va(KEY_FAR), mw->rkey);
	rkey = window_bind(bed.far, bed.far_cq);
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
	key_reaches(key_va(KEY_FAR + 4088), bed.bytes + KEY_FAR + 4088, rkey);
	key_refused(key_va(KEY_FAR + 4089), rkey);
	key_refused(key_va(KEY_FAR - 1), rkey);
	key_refused(key_va(KEY_FAR), ibv_inc_rkey(rkey));
	key_refused(key_va(KEY_FAR), region->rkey); /* whose rights are no remote ones */
	assert_int_equal(ibv_dereg_mr(region), EBUSY);
	window_local_inv(bed.far, bed.far_cq, rkey, IBV_WC_SUCCESS);
	key_refused(key_va(KEY_FAR), rkey);
}

static void window__over_uc(void **state)
{
	struct ibv_sge sge = { (uintptr_t)bed.bytes, 8, bed.own->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.rkey = window_bind(bed.far, bed.far_cq);
	wr.wr.rdma.remote_addr = key_va(KEY_FAR);
	memcpy(bed.bytes, "by a UC!", 8);
	key_send(bed.near, &wr);
	key_expect(bed.near_cq, IBV_WC_SUCCESS);
	key_await(bed.bytes + KEY_FAR);
	window_local_inv(bed.far, bed.far_cq, wr.wr.rdma.rkey, IBV_WC_SUCCESS);
	/* UC has no SEND that invalidates, and an error stops its send queue alone. */
	wr = window_end_wr(IBV_WR_SEND_WITH_INV, 1);
	assert_int_equal(ibv_post_send(bed.far, &wr, &(struct ibv_send_wr *){ NULL }), EINVAL);
	window_local_inv(bed.far, bed.far_cq, mw->rkey, IBV_WC_MW_BIND_ERR);
}

/* A device has one kind of type 2: what ibv_alloc_mw gives does not say which. */
static void window__is_of_type_2b(void **state)
{
	const unsigned int kinds = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
				   IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex ex;

	assert_int_equal(ibv_query_device(bed.ctx, &attr), 0);
	assert_int_equal(attr.device_cap_flags & kinds,
			 IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_int_equal(ibv_query_device_ex(bed.ctx, NULL, &ex), 0);
	assert_int_equal(ex.device_cap_flags_ex & kinds, attr.device_cap_flags & kinds);
}

/* 2B: another queue pair of the same domain reaches nothing, and ends nothing. */
static void window__belongs_to_its_queue_pair(void **state)
{
	struct ibv_qp *a = bed.near, *b = bed.far;
	struct ibv_qp *near = key_qp(bed.near_cq, IBV_QPT_RC, NULL);
	struct ibv_qp *far = key_qp(bed.far_cq, IBV_QPT_RC, NULL);
	uint32_t rkey = window_bind(bed.far, bed.far_cq);
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	struct ibv_send_wr inv = window_end_wr(IBV_WR_SEND_WITH_INV, rkey);

	key_connect(near, far);
	bed.near = near;
	bed.far = far;
	key_refused(key_va(KEY_FAR), rkey);
	window_local_inv(far, bed.far_cq, rkey, IBV_WC_MW_BIND_ERR);
	key_again();
	assert_int_equal(ibv_post_recv(far, &recv, &bad), 0);
	key_send(near, &inv);
	key_expect(bed.near_cq, IBV_WC_REM_ACCESS_ERR);
	bed.near = a;
	bed.far = b;
	key_again();
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
	assert_int_equal(ibv_destroy_qp(near), 0);
	assert_int_equal(ibv_destroy_qp(far), 0);
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
}

/* The consumer's part of the key: any, and only that. */
static void window__takes_the_low_bits_it_is_given(void **state)
{
	const uint32_t lows[] = { 0, 1, 0x7f, 0x80, 0xfe, 0xff };
	uint32_t index = mw->rkey & ~0xffu;

	assert_int_equal(mw->rkey & 0xff, 0);
	for (unsigned int i = 0; i < sizeof(lows) / sizeof(lows[0]); i++) {
		/* the rest of the wanted key means nothing */
		struct ibv_send_wr wr = window_bind_wr(mw, 0xabcde000 | lows[i]);

		key_send(bed.far, &wr);
		key_expect(bed.far_cq, IBV_WC_SUCCESS);
		key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, index | lows[i]);
		window_local_inv(bed.far, bed.far_cq, index | lows[i], IBV_WC_SUCCESS);
	}
	assert_int_equal(ibv_inc_rkey(0x123456ff), 0x12345600);
}

/* ---- what is refused ---- */

struct window_case {
	const char *name;
	int error;		   /* of the post; 0: it completes */
	enum ibv_wc_status status; /* of the completion */
	int64_t offset;		   /* beside the far half's beginning */
	uint64_t length;
	int access, region_access; /* region_access -1: LOCAL_WRITE | MW_BIND */
	int odd;		   /* enum odd */
};

enum odd {
	NO_WINDOW = 1,
	NO_REGION = 2,
	OTHER_WINDOW = 4,
	OTHER_REGION = 8,
	BOUND = 16,
	TYPE_1 = 32
};

enum { HALF = KEY_BYTES - KEY_FAR };
#define BIND IBV_WC_MW_BIND_ERR

static const struct window_case window_cases[] = {
	{ "all of the rest", 0, 0, 0, HALF, KEY_REMOTE, -1, 0 },
	{ "one byte", 0, 0, HALF - 1, 1, KEY_REMOTE, -1, 0 },
	{ "no rights", 0, 0, 0, 8, 0, -1, 0 },
	{ "LOCAL_WRITE means nothing", 0, 0, 0, 8, IBV_ACCESS_LOCAL_WRITE, -1, 0 },
	{ "nothing", 0, BIND, 0, 0, KEY_REMOTE, -1, 0 },
	{ "one too much", 0, BIND, 0, HALF + 1, KEY_REMOTE, -1, 0 },
	{ "one before", 0, BIND, -KEY_FAR - 1, 8, KEY_REMOTE, -1, 0 },
	{ "one behind", 0, BIND, HALF, 1, KEY_REMOTE, -1, 0 },
	{ "everything", 0, BIND, 0, UINT64_MAX, KEY_REMOTE, -1, 0 },
	{ "wraps around", 0, BIND, 8, UINT64_MAX - 7, KEY_REMOTE, -1, 0 },
	{ "read only, for reads", 0, 0, 0, 8, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_MW_BIND, 0 },
	{ "read only, for writes", 0, BIND, 0, 8, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_MW_BIND, 0 },
	{ "read only, for atomics", 0, BIND, 0, 8, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND,
	  0 },
	{ "no right to bind", 0, BIND, 0, 8, KEY_REMOTE, IBV_ACCESS_LOCAL_WRITE, 0 },
	{ "a region of another domain", 0, BIND, 0, 8, KEY_REMOTE, -1, OTHER_REGION },
	{ "a window of another domain", 0, BIND, 0, 8, KEY_REMOTE, -1, OTHER_WINDOW },
	{ "both of another domain than the queue pair", 0, BIND, 0, 8, KEY_REMOTE, -1,
	  OTHER_WINDOW | OTHER_REGION },
	{ "bound", 0, BIND, 0, 8, KEY_REMOTE, -1, BOUND },
	{ "type 1", EINVAL, 0, 0, 8, KEY_REMOTE, -1, TYPE_1 },
	{ "no window", EINVAL, 0, 0, 8, KEY_REMOTE, -1, NO_WINDOW },
	{ "no region", EINVAL, 0, 0, 8, KEY_REMOTE, -1, NO_REGION },
	{ "a right that is none", EINVAL, 0, 0, 8, 1 << 19, -1, 0 },
	{ "the right to bind", EINVAL, 0, 0, 8, IBV_ACCESS_MW_BIND, -1, 0 },
	{ "on demand", EINVAL, 0, 0, 8, IBV_ACCESS_ON_DEMAND, -1, 0 },
};

static void window_try(const struct window_case *k)
{
	int access = k->region_access < 0 ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND
					  : k->region_access;
	struct ibv_mr *mr = ibv_reg_mr(k->odd & OTHER_REGION ? bed.other_pd : bed.pd, bed.bytes,
				       KEY_BYTES, access);
	struct ibv_mw *window = ibv_alloc_mw(k->odd & OTHER_WINDOW ? bed.other_pd : bed.pd,
					     k->odd & TYPE_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	struct ibv_send_wr wr = window_bind_wr(window, 1), *bad = NULL;

	if (k->odd & BOUND) {
		key_send(bed.far, &wr);
		key_expect(bed.far_cq, IBV_WC_SUCCESS);
	}
	wr.bind_mw.mw = k->odd & NO_WINDOW ? NULL : window;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = k->odd & NO_REGION ? NULL : mr,
		.addr = key_va(KEY_FAR) + (uint64_t)k->offset,
		.length = k->length,
		.mw_access_flags = (unsigned int)k->access,
	};
	assert_int_equal(ibv_post_send(bed.far, &wr, &bad), k->error);
	if (k->error)
		assert_ptr_equal(bad, &wr);
	else
		key_expect(bed.far_cq, k->status);
	if (!k->error && k->status)
		key_again();
	/* The region is held exactly by what was bound to it. */
	assert_int_equal(ibv_dereg_mr(mr), k->error || k->status ? 0 : EBUSY);
	assert_int_equal(ibv_dealloc_mw(window), 0);
	if (!k->error && !k->status)
		assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void window__refuses(void **state)
{
	for (unsigned int i = 0; i < sizeof(window_cases) / sizeof(window_cases[0]); i++) {
		print_message("%s\n", window_cases[i].name);
		window_try(&window_cases[i]);
	}
}

/* A bind that fails changes nothing, and flushes what comes behind it. */
static void window__refused_flushes_the_rest(void **state)
{
	uint32_t rkey = window_bind(bed.far, bed.far_cq);
	struct ibv_send_wr bind = window_bind_wr(mw, ibv_inc_rkey(rkey));
	struct ibv_send_wr behind = window_end_wr(IBV_WR_LOCAL_INV, rkey);

	bind.next = &behind;
	behind.wr_id = 6;
	key_send(bed.far, &bind);
	assert_int_equal(key_expect(bed.far_cq, IBV_WC_MW_BIND_ERR).wr_id, 5);
	assert_int_equal(key_expect(bed.far_cq, IBV_WC_WR_FLUSH_ERR).wr_id, 6);
	key_again();
	key_refused(key_va(KEY_FAR), ibv_inc_rkey(rkey));
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
}

/* Each verb has its type, each type its verb. */
static void window__types(void **state)
{
	struct ibv_mw_bind bind = { .bind_info = { region, key_va(KEY_FAR), 8, KEY_REMOTE } };
	const int wrong[] = { 0, 3, -1, INT32_MAX };

	assert_int_equal(bed.far->context->ops.bind_mw(bed.far, mw, &bind), EINVAL);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		errno = 0;
		assert_null(ibv_alloc_mw(bed.pd, (enum ibv_mw_type)wrong[i]));
		assert_int_equal(errno, EINVAL);
	}
}

static void window__datagrams_have_none(void **state)
{
	struct ibv_qp *ud = key_qp(bed.far_cq, IBV_QPT_UD, NULL);
	struct ibv_send_wr wr = window_bind_wr(mw, 1), *bad;

	assert_int_equal(ibv_post_send(ud, &wr, &bad), EINVAL);
	wr = window_end_wr(IBV_WR_LOCAL_INV, mw->rkey);
	assert_int_equal(ibv_post_send(ud, &wr, &bad), EINVAL);
	wr = window_end_wr(IBV_WR_SEND_WITH_INV, mw->rkey);
	assert_int_equal(ibv_post_send(ud, &wr, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(ud), 0);
}

/* ---- the end of a window ---- */

/* A message of `length` bytes with a key; the receive says which. */
static void window_send_inv(struct ibv_qp *from, struct ibv_cq *cq, uint32_t rkey, uint32_t length)
{
	struct ibv_sge sge = { key_va(0), length, bed.own->lkey };
	struct ibv_send_wr wr = window_end_wr(IBV_WR_SEND_WITH_INV, rkey);
	struct ibv_wc wc;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	key_send(from, &wr);
	key_expect(bed.near_cq, IBV_WC_SUCCESS);
	wc = key_expect(cq, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, length);
	assert_int_equal(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM), IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, rkey);
}

static struct ibv_recv_wr window_recv_wr(struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){ key_va(KEY_FAR), KEY_FAR, bed.own->lkey };
	return (struct ibv_recv_wr){ .sg_list = sge, .num_sge = 1 };
}

/* Messages of nothing, of one packet, and of many. */
static void window__ended_by_the_peer(void **state)
{
	const uint32_t lengths[] = { 0, 8, 1024, 1025, 30000 };

	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t rkey = window_bind(bed.far, bed.far_cq);
		struct ibv_sge sge;
		struct ibv_recv_wr recv = window_recv_wr(&sge), *bad;

		key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
		assert_int_equal(ibv_post_recv(bed.far, &recv, &bad), 0);
		window_send_inv(bed.near, bed.far_cq, rkey, lengths[i]);
		assert_memory_equal(bed.bytes, bed.bytes + KEY_FAR, lengths[i]);
		key_refused(key_va(KEY_FAR), rkey);
	}
}

static void window__ended_into_an_srq(void **state)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &init);
	struct ibv_qp *far = key_qp(bed.far_cq, IBV_QPT_RC, srq), *before = bed.far;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = window_recv_wr(&sge), *bad;
	uint32_t rkey;

	bed.far = far;
	key_again();
	rkey = window_bind(far, bed.far_cq);
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	window_send_inv(bed.near, bed.far_cq, rkey, 100);
	key_refused(key_va(KEY_FAR), rkey);
	bed.far = before;
	assert_int_equal(ibv_destroy_qp(far), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* A key that names nothing to end: never bound, ended already, another one's low bits, a region. */
static void window__not_ended_twice(void **state)
{
	uint32_t rkey = window_bind(bed.far, bed.far_cq);
	const uint32_t wrong[] = { ibv_inc_rkey(rkey), region->lkey, bed.own->lkey, 0, UINT32_MAX };
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	struct ibv_send_wr inv;

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		window_local_inv(bed.far, bed.far_cq, wrong[i], IBV_WC_MW_BIND_ERR);
		key_again();
		assert_int_equal(ibv_post_recv(bed.far, &recv, &bad), 0);
		inv = window_end_wr(IBV_WR_SEND_WITH_INV, wrong[i]);
		key_send(bed.near, &inv);
		key_expect(bed.near_cq, IBV_WC_REM_ACCESS_ERR);
		key_again();
	}
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
	window_local_inv(bed.far, bed.far_cq, rkey, IBV_WC_SUCCESS);
	window_local_inv(bed.far, bed.far_cq, rkey, IBV_WC_MW_BIND_ERR);
	key_again();
	assert_int_equal(ibv_dereg_mr(region), 0);
	region = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
}

/* Deallocated while it is bound: nobody reaches it, and it holds its region no longer. */
static void window__deallocated_while_bound(void **state)
{
	uint32_t rkey = window_bind(bed.far, bed.far_cq);

	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
	assert_int_equal(ibv_dealloc_pd(bed.pd), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	mw = NULL;
	key_refused(key_va(KEY_FAR), rkey);
	assert_int_equal(ibv_dereg_mr(region), 0);
	region = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
}

/* With its queue pair its binding ends, since another one may get the number: it can be bound
 * anew. */
static void window__outlives_its_queue_pair(void **state)
{
	struct ibv_qp *far = key_qp(bed.far_cq, IBV_QPT_RC, NULL), *before = bed.far;
	uint32_t rkey;

	bed.far = far;
	key_again();
	rkey = window_bind(far, bed.far_cq);
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
	assert_int_equal(ibv_dereg_mr(region), EBUSY);
	bed.far = before;
	assert_int_equal(ibv_destroy_qp(far), 0);
	assert_int_equal(ibv_dereg_mr(region), 0);
	region = key_region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	key_again();
	rkey = window_bind(bed.far, bed.far_cq);
	key_reaches(key_va(KEY_FAR), bed.bytes + KEY_FAR, rkey);
}

/* Bind, use and end in one list: each request waits for those before it. */
static void window__in_the_order_of_the_queue(void **state)
{
	struct ibv_sge sge = { key_va(0), 8, bed.own->lkey }, into = sge;
	struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 }, *bad;

	into.addr += 8;
	for (int i = 0; i < 20; i++) {
		uint32_t rkey = ibv_inc_rkey(mw->rkey);
		struct ibv_send_wr end = window_end_wr(IBV_WR_LOCAL_INV, rkey);
		struct ibv_send_wr send = { .next = &end,
					    .sg_list = &sge,
					    .num_sge = 1,
					    .opcode = IBV_WR_SEND,
					    .send_flags = IBV_SEND_SIGNALED };
		struct ibv_send_wr bind = window_bind_wr(mw, rkey);

		bind.next = &send;
		assert_int_equal(ibv_post_recv(bed.near, &recv, &bad), 0);
		key_send(bed.far, &bind);
		assert_int_equal(key_expect(bed.far_cq, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
		assert_int_equal(key_expect(bed.near_cq, IBV_WC_SUCCESS).opcode, IBV_WC_RECV);
		assert_int_equal(key_expect(bed.far_cq, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		assert_int_equal(key_expect(bed.far_cq, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
		mw->rkey = rkey;
	}
}

#define RC(name)                                                                                   \
	cmocka_unit_test_prestate_setup_teardown(name, window_setup, window_teardown, &rc)
#define UC(name)                                                                                   \
	cmocka_unit_test_prestate_setup_teardown(name, window_setup, window_teardown, &uc)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RC(window__reaches_its_range),
		UC(window__over_uc),
		RC(window__is_of_type_2b),
		RC(window__belongs_to_its_queue_pair),
		RC(window__takes_the_low_bits_it_is_given),
		RC(window__refuses),
		UC(window__refuses),
		RC(window__refused_flushes_the_rest),
		RC(window__types),
		RC(window__datagrams_have_none),
		RC(window__ended_by_the_peer),
		RC(window__ended_into_an_srq),
		RC(window__not_ended_twice),
		RC(window__deallocated_while_bound),
		RC(window__outlives_its_queue_pair),
		RC(window__in_the_order_of_the_queue),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
