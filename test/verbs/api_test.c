/* api_test.c: what the verbs say to arguments that make no sense, to objects in use, to wrong
 * states and full queues: the documented errno, the exact bad_wr, and nothing changed.
 * In: mistakes    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "pair.h"

static struct ibv_context *ctx;
static struct ibv_device_attr dev;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t buffer[65536];
static union ibv_gid gid;

static int api_setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (list == NULL || list[0] == NULL)
		return -1;
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (ctx == NULL || ibv_query_device(ctx, &dev) != 0 || ibv_query_gid(ctx, 1, 0, &gid) != 0)
		return -1;
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	return pd == NULL || cq == NULL || mr == NULL ? -1 : 0;
}

static int api_teardown(void **state)
{
	int err = ibv_dereg_mr(mr);

	err |= ibv_destroy_cq(cq);
	err |= ibv_dealloc_pd(pd);
	err |= ibv_close_device(ctx);
	return err;
}

static struct ibv_qp_init_attr api_init(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){ .send_cq = cq,
					  .recv_cq = cq,
					  .cap = { 8, 8, 2, 2, 64 },
					  .qp_type = type };
}

static struct ibv_qp *api_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = api_init(type);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

#define NULL_WITH(call, error)                                                                     \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, error);                                                    \
	} while (0)

/* ---- device and port ---- */

static void query__bad_ports_and_indexes(void **state)
{
	struct ibv_port_attr port;
	union ibv_gid g;
	uint16_t pkey;
	__be16 be;

	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(ibv_query_port(ctx, 0, &port), EINVAL);
	assert_int_equal(ibv_query_port(ctx, 2, &port), EINVAL);
	assert_int_not_equal(ibv_query_gid(ctx, 1, port.gid_tbl_len, &g), 0);
	assert_int_not_equal(ibv_query_gid(ctx, 2, 0, &g), 0);
	assert_int_not_equal(ibv_query_gid(ctx, 1, -1, &g), 0);
	assert_int_equal(ibv_query_pkey(ctx, 1, 0, &be), 0);
	pkey = be;
	assert_int_equal(pkey, 0xffff);
	assert_int_not_equal(ibv_query_pkey(ctx, 1, port.pkey_tbl_len, &be), 0);
	assert_int_not_equal(ibv_query_pkey(ctx, 2, 0, &be), 0);
}

/* ---- completion queues ---- */

static void cq__sizes_and_vectors(void **state)
{
	struct ibv_cq *big;

	NULL_WITH(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(ctx, -1, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(ctx, dev.max_cqe + 1, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(ctx, 1, NULL, NULL, -1), EINVAL);
	NULL_WITH(ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors), EINVAL);
	big = ibv_create_cq(ctx, dev.max_cqe, NULL, NULL, ctx->num_comp_vectors - 1);
	assert_non_null(big);
	assert_true(big->cqe >= dev.max_cqe);
	assert_int_equal(ibv_resize_cq(big, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(big, dev.max_cqe + 1), EINVAL);
	assert_int_equal(ibv_resize_cq(big, 10), 0);
	assert_true(big->cqe >= 10);
	assert_int_equal(ibv_destroy_cq(big), 0);
}

/* ---- in use ---- */

static void busy__what_others_stand_on(void **state)
{
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_cq *c = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_srq(p, &si);
	struct ibv_qp_init_attr init = { .send_cq = c,
					 .recv_cq = c,
					 .srq = srq,
					 .cap = { 1, 0, 1, 0, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(p, &init);

	assert_non_null(qp);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_cq(c), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(c), 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

static void busy__pd_with_region_or_ah(void **state)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_mr *m = ibv_reg_mr(p, buffer, 100, 0);
	struct ibv_ah *ah;

	assert_non_null(m);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_dereg_mr(m), 0);
	ah = ibv_create_ah(p, &attr);
	assert_non_null(ah);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

static void busy__channel_with_cq(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *c = ibv_create_cq(ctx, 10, NULL, ch, 0);

	assert_non_null(c);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	assert_int_equal(ibv_destroy_cq(c), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

/* ---- memory regions and address handles ---- */

static void region__mistakes(void **state)
{
	NULL_WITH(ibv_reg_mr(pd, buffer, 100, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, buffer, 100, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, buffer, 100, 1 << 12), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, (void *)8, 100, 0), EFAULT);
	NULL_WITH(ibv_reg_mr(pd, (void *)(uintptr_t)-4096, 8192, 0), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, (void *)(uintptr_t)"constant", 8, IBV_ACCESS_LOCAL_WRITE),
		  EFAULT);
}

static void ah__mistakes(void **state)
{
	struct ibv_ah_attr good = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } }, bad;

	bad = good;
	bad.port_num = 2;
	NULL_WITH(ibv_create_ah(pd, &bad), EINVAL);
	bad = good;
	bad.is_global = 0;
	NULL_WITH(ibv_create_ah(pd, &bad), EINVAL);
	bad = good;
	bad.grh.sgid_index = 255;
	NULL_WITH(ibv_create_ah(pd, &bad), EINVAL);
}

/* ---- shared receive queues ---- */

static void srq__mistakes(void **state)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = (uint32_t)dev.max_srq_wr + 1,
						    .max_sge = 1 } };
	struct ibv_srq_attr attr = { .max_wr = 4, .max_sge = 1 };
	struct ibv_sge sge[3] = { { (uintptr_t)buffer, 10, mr->lkey } };
	struct ibv_recv_wr wr[6] = { { 0 } }, *bad = NULL;
	struct ibv_srq *srq;

	NULL_WITH(ibv_create_srq(pd, &init), EINVAL);
	init.attr.max_wr = 4;
	init.attr.max_sge = (uint32_t)dev.max_srq_sge + 1;
	NULL_WITH(ibv_create_srq(pd, &init), EINVAL);
	init.attr = attr;
	srq = ibv_create_srq(pd, &init);
	assert_non_null(srq);
	attr.srq_limit = 5;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.srq_limit = 3;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	assert_int_equal(ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 3);
	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){ (uint64_t)i, i < 5 ? &wr[i + 1] : NULL, sge, 1 };
	assert_int_equal(ibv_post_srq_recv(srq, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[attr.max_wr]);
	wr[5].num_sge = 3;
	assert_int_equal(ibv_post_srq_recv(srq, &wr[5], &bad), ENOMEM);
	attr.max_wr = 100;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(ibv_post_srq_recv(srq, &wr[5], &bad), EINVAL);
	assert_ptr_equal(bad, &wr[5]);
	attr.max_wr = 2; /* fewer than wait */
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static struct ibv_srq *try_srq(struct ibv_srq_init_attr_ex attr)
{
	return ibv_create_srq_ex(ctx, &attr);
}

static void srq_ex__mistakes(void **state)
{
	const uint32_t basic = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	const uint32_t tags = basic | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 4, .max_sge = 1 },
					     .comp_mask = basic,
					     .pd = pd,
					     .tm_cap = { 4, 4 } };
	struct ibv_ops_wr last = { .opcode = IBV_WR_TAG_SYNC };
	struct ibv_ops_wr ops = { .opcode = IBV_WR_TAG_SYNC, .next = &last }, *bad = NULL;
	struct ibv_srq *srq = try_srq(attr); /* the CQ and the tags are not named */

	assert_non_null(srq);
	assert_int_equal(ibv_post_srq_ops(srq, &ops, &bad), EINVAL);
	assert_ptr_equal(bad, &ops);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	attr.comp_mask = basic | IBV_SRQ_INIT_ATTR_RESERVED;
	NULL_WITH(try_srq(attr), EOPNOTSUPP);
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	NULL_WITH(try_srq(attr), EINVAL); /* without a domain */
	attr.comp_mask = tags;
	attr.srq_type = IBV_SRQT_XRC;
	NULL_WITH(try_srq(attr), EINVAL); /* of no XRC domain */
	attr.srq_type = (enum ibv_srq_type)(IBV_SRQT_TM + 1);
	NULL_WITH(try_srq(attr), EINVAL);
	attr.srq_type = IBV_SRQT_TM;
	NULL_WITH(try_srq(attr), EINVAL); /* without a CQ */
	attr.cq = cq;
	attr.comp_mask = tags & ~(uint32_t)IBV_SRQ_INIT_ATTR_CQ;
	NULL_WITH(try_srq(attr), EINVAL);
	attr.comp_mask = tags & ~(uint32_t)IBV_SRQ_INIT_ATTR_TM;
	NULL_WITH(try_srq(attr), EINVAL);
}

/* ---- queue pairs ---- */

static void qp__caps_beyond_the_limits(void **state)
{
	for (int i = 0; i < 5; i++) {
		struct ibv_qp_init_attr init = api_init(IBV_QPT_RC);
		uint32_t *caps[] = { &init.cap.max_send_wr, &init.cap.max_recv_wr,
				     &init.cap.max_send_sge, &init.cap.max_recv_sge,
				     &init.cap.max_inline_data };
		uint32_t limits[] = { (uint32_t)dev.max_qp_wr, (uint32_t)dev.max_qp_wr,
				      (uint32_t)dev.max_sge, (uint32_t)dev.max_sge, 1 << 20 };
		struct ibv_qp *qp;

		*caps[i] = limits[i] + 1;
		NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
		if (i == 4)
			continue;
		*caps[i] = limits[i];
		qp = ibv_create_qp(pd, &init);
		assert_non_null(qp);
		assert_true(*caps[i] >= limits[i]);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

static void qp__incomplete_or_of_another_kind(void **state)
{
	struct ibv_qp_init_attr init = api_init(IBV_QPT_RC);

	init.send_cq = NULL;
	NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
	init = api_init((enum ibv_qp_type)77);
	NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
	init = api_init(IBV_QPT_DRIVER);
	NULL_WITH(ibv_create_qp(pd, &init), EOPNOTSUPP);
}

static struct ibv_qp_attr attr_init(void)
{
	return (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT,
				     .port_num = 1,
				     .qp_access_flags = IBV_ACCESS_REMOTE_READ };
}

static struct ibv_qp_attr attr_rtr(uint32_t dest)
{
	return (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_2048,
				     .dest_qp_num = dest,
				     .rq_psn = 0x123456,
				     .max_dest_rd_atomic = 3,
				     .min_rnr_timer = 9,
				     .ah_attr = { .is_global = 1,
						  .port_num = 1,
						  .sl = 0,
						  .grh = { .dgid = gid,
							   .hop_limit = 77,
							   .traffic_class = 5,
							   .flow_label = 0x12345 } } };
}

static struct ibv_qp_attr attr_rts(void)
{
	return (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = 0x654321,
				     .timeout = 13,
				     .retry_cnt = 5,
				     .rnr_retry = 6,
				     .max_rd_atomic = 4 };
}

enum {
	MASK_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	MASK_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	MASK_RTS = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* Each attribute that a step needs: without it, EINVAL, and the state stays. */
static void modify_without_each(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask,
				enum ibv_qp_state from)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;

	for (int bit = 1; bit <= mask; bit <<= 1) {
		if ((mask & bit) == 0 || bit == IBV_QP_STATE)
			continue;
		assert_int_equal(ibv_modify_qp(qp, &attr, mask & ~bit), EINVAL);
	}
	assert_int_equal(ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY), EINVAL);
	assert_int_equal(ibv_query_qp(qp, &now, IBV_QP_STATE, &init), 0);
	assert_int_equal(now.qp_state, from);
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
}

static void qp__masks_and_query(void **state)
{
	struct ibv_qp *qp = api_qp(IBV_QPT_RC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	modify_without_each(qp, attr_init(), MASK_INIT, IBV_QPS_RESET);
	modify_without_each(qp, attr_rtr(0x777), MASK_RTR, IBV_QPS_INIT);
	modify_without_each(qp, attr_rts(), MASK_RTS, IBV_QPS_RTR);
	assert_int_equal(ibv_query_qp(qp, &a, 0x1fffff, &init), 0);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.cur_qp_state, IBV_QPS_RTS);
	assert_int_equal(a.port_num, 1);
	assert_int_equal(a.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(a.path_mtu, IBV_MTU_2048);
	assert_int_equal(a.dest_qp_num, 0x777);
	assert_int_equal(a.rq_psn, 0x123456);
	assert_int_equal(a.sq_psn, 0x654321);
	assert_int_equal(a.max_dest_rd_atomic, 3);
	assert_int_equal(a.max_rd_atomic, 4);
	assert_int_equal(a.min_rnr_timer, 9);
	assert_int_equal(a.timeout, 13);
	assert_int_equal(a.retry_cnt, 5);
	assert_int_equal(a.rnr_retry, 6);
	assert_int_equal(a.ah_attr.is_global, 1);
	assert_int_equal(a.ah_attr.grh.hop_limit, 77);
	assert_int_equal(a.ah_attr.grh.traffic_class, 5);
	assert_int_equal(a.ah_attr.grh.flow_label, 0x12345);
	assert_memory_equal(&a.ah_attr.grh.dgid, &gid, 16);
	assert_true(a.cap.max_send_wr >= 8 && a.cap.max_recv_sge >= 2);
	assert_true(init.cap.max_inline_data >= 64);
	assert_ptr_equal(init.send_cq, cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* Back in RESET it is as it was when it was created. */
static void qp__reset_forgets(void **state)
{
	struct ibv_qp *qp = api_qp(IBV_QPT_RC);
	struct ibv_qp_attr fresh, now, reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init;

	memset(&fresh, 0, sizeof(fresh));
	memset(&now, 0, sizeof(now));
	assert_int_equal(ibv_query_qp(qp, &fresh, 0x1fffff, &init), 0);
	modify_without_each(qp, attr_init(), MASK_INIT, IBV_QPS_RESET);
	modify_without_each(qp, attr_rtr(0x777), MASK_RTR, IBV_QPS_INIT);
	modify_without_each(qp, attr_rts(), MASK_RTS, IBV_QPS_RTR);
	assert_int_equal(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(ibv_query_qp(qp, &now, 0x1fffff, &init), 0);
	assert_memory_equal(&now, &fresh, sizeof(now));
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* Values out of range: EINVAL each, and the step can be made afterwards. */
static void qp__values(void **state)
{
	static const union ibv_gid group6 = { { 0xff, 0x0e, [15] = 1 } };
	static const union ibv_gid group4 = { { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	struct ibv_qp *qp = api_qp(IBV_QPT_RC);
	struct ibv_qp_attr a;

#define BAD(base, mask, change)                                                                    \
	do {                                                                                       \
		a = base;                                                                          \
		a.change;                                                                          \
		assert_int_equal(ibv_modify_qp(qp, &a, mask), EINVAL);                             \
	} while (0)
	BAD(attr_init(), MASK_INIT, port_num = 0);
	BAD(attr_init(), MASK_INIT, port_num = 2);
	BAD(attr_init(), MASK_INIT, pkey_index = 1);
	BAD(attr_init(), MASK_INIT, qp_access_flags = 1 << 10);
	BAD(attr_init(), MASK_INIT, qp_access_flags = 1u << 30);
	BAD(attr_init(), MASK_INIT, qp_state = (enum ibv_qp_state)9);
	BAD(attr_rts(), MASK_RTS, qp_state = IBV_QPS_RTS); /* from RESET */
	a = attr_init();
	a.qp_access_flags |= IBV_ACCESS_RELAXED_ORDERING; /* a hint */
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_INIT), 0);
	BAD(attr_rtr(1), MASK_RTR, path_mtu = (enum ibv_mtu)0);
	BAD(attr_rtr(1), MASK_RTR, path_mtu = (enum ibv_mtu)6);
	BAD(attr_rtr(1), MASK_RTR, dest_qp_num = 0x1000000);
	BAD(attr_rtr(1), MASK_RTR, min_rnr_timer = 32);
	BAD(attr_rtr(1), MASK_RTR, max_dest_rd_atomic = 255);
	BAD(attr_rtr(1), MASK_RTR, ah_attr.port_num = 2);
	BAD(attr_rtr(1), MASK_RTR, ah_attr.is_global = 0);
	BAD(attr_rtr(1), MASK_RTR, ah_attr.grh.sgid_index = 255);
	BAD(attr_rtr(1), MASK_RTR, ah_attr.grh.dgid = group6);
	BAD(attr_rtr(1), MASK_RTR, ah_attr.grh.dgid = group4);
	a = attr_rtr(1);
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_RTR), 0);
	BAD(attr_rts(), MASK_RTS, timeout = 32);
	BAD(attr_rts(), MASK_RTS, retry_cnt = 8);
	BAD(attr_rts(), MASK_RTS, rnr_retry = 8);
	BAD(attr_rts(), MASK_RTS, max_rd_atomic = 255);
	a = attr_rts();
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_RTS), 0);
#undef BAD
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* ---- posting ---- */

static struct ibv_send_wr post_wr(struct ibv_sge *sge, int n)
{
	return (struct ibv_send_wr){ .sg_list = sge, .num_sge = n, .opcode = IBV_WR_SEND };
}

static void post__in_wrong_states(void **state)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 10, mr->lkey };
	struct ibv_send_wr w = post_wr(&sge, 1), *bad_send;
	struct ibv_recv_wr r = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_qp *qp = api_qp(IBV_QPT_RC);
	struct ibv_qp_attr a;

	bad_send = NULL;
	bad_recv = NULL;
	assert_int_equal(ibv_post_send(qp, &w, &bad_send), EINVAL);
	assert_ptr_equal(bad_send, &w);
	assert_int_equal(ibv_post_recv(qp, &r, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &r);
	a = attr_init();
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_INIT), 0);
	assert_int_equal(ibv_post_send(qp, &w, &bad_send), EINVAL);
	assert_int_equal(ibv_post_recv(qp, &r, &bad_recv), 0);
	a = attr_rtr(qp->qp_num);
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_RTR), 0);
	assert_int_equal(ibv_post_send(qp, &w, &bad_send), EINVAL);
	assert_int_equal(ibv_post_recv(qp, &r, &bad_recv), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static struct ibv_qp *post_connect(struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr a = attr_init();

	assert_non_null(qp);
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_INIT), 0);
	a = attr_rtr(to);
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_RTR), 0);
	a = attr_rts();
	a.sq_psn = 0x123456; /* as attr_rtr expects it */
	a.timeout = 0;
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_RTS), 0);
	return qp;
}

/* To nobody: what is posted stays. */
static struct ibv_qp *post_make_ready(struct ibv_qp *qp)
{
	return post_connect(qp, 0x10);
}

static struct ibv_qp *post_ready_qp(void)
{
	return post_make_ready(api_qp(IBV_QPT_RC));
}

static void post__too_much(void **state)
{
	struct ibv_sge sge[33] = { { (uintptr_t)buffer, 10, mr->lkey } };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ibv_qp *qp = post_ready_qp();
	struct ibv_send_wr w = post_wr(sge, 3), *bad = NULL;
	struct ibv_recv_wr r = { .sg_list = sge, .num_sge = 3 }, *bad_recv = NULL;

	assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_CAP, &init), 0);
	w.num_sge = (int)init.cap.max_send_sge + 1;
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	assert_ptr_equal(bad, &w);
	w.num_sge = -1;
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	r.num_sge = (int)init.cap.max_recv_sge + 1;
	assert_int_equal(ibv_post_recv(qp, &r, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &r);
	w.num_sge = 1;
	w.send_flags = IBV_SEND_INLINE;
	sge[0].length = init.cap.max_inline_data + 1;
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	w.send_flags = 0;
	w.num_sge = 2;
	sge[0].length = 1u << 31;
	sge[1] = (struct ibv_sge){ 0, 1, 0 };
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void post__wrong_opcodes(void **state)
{
	static const int opcodes[] = { IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_DRIVER1, 31, 77, -1 };
	struct ibv_sge sge = { (uintptr_t)buffer, 8, mr->lkey };
	struct ibv_qp *qp = post_ready_qp();
	struct ibv_send_wr w = post_wr(&sge, 1), *bad = NULL;

	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		w.opcode = (enum ibv_wr_opcode)opcodes[i];
		assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
		assert_ptr_equal(bad, &w);
	}
	w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	sge.length = 4;
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* A list that does not fit: what fits is taken, bad_wr is the first that does not. */
static void post__full(void **state)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 10, mr->lkey };
	struct ibv_qp *qp = post_ready_qp();
	struct ibv_send_wr w[12], *bad = NULL;
	struct ibv_recv_wr r[12], *bad_recv = NULL;
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc[32];

	for (int i = 0; i < 12; i++) {
		w[i] = post_wr(&sge, 1);
		w[i].next = i < 11 ? &w[i + 1] : NULL;
		w[i].wr_id = (uint64_t)i;
		r[i] = (struct ibv_recv_wr){ .wr_id = 100 + (uint64_t)i,
					     .next = i < 11 ? &r[i + 1] : NULL,
					     .sg_list = &sge,
					     .num_sge = 1 };
	}
	assert_int_equal(ibv_post_send(qp, w, &bad), ENOMEM);
	assert_ptr_equal(bad, &w[8]);
	assert_int_equal(ibv_post_send(qp, &w[11], &bad), ENOMEM);
	assert_ptr_equal(bad, &w[11]);
	assert_int_equal(ibv_post_recv(qp, r, &bad_recv), ENOMEM);
	assert_ptr_equal(bad_recv, &r[8]);
	assert_int_equal(ibv_modify_qp(qp, &err, IBV_QP_STATE), 0);
	assert_int_equal(ibv_poll_cq(cq, 32, wc), 16);
	for (int i = 0; i < 16; i++)
		assert_int_equal(wc[i].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void post__receive_beside_an_srq(void **state)
{
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = api_init(IBV_QPT_RC);
	struct ibv_recv_wr r = { .wr_id = 1 }, *bad = NULL;
	struct ibv_qp_attr a = attr_init();
	struct ibv_qp *qp;

	init.srq = ibv_create_srq(pd, &si);
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_modify_qp(qp, &a, MASK_INIT), 0);
	assert_int_equal(ibv_post_recv(qp, &r, &bad), EINVAL);
	assert_ptr_equal(bad, &r);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(init.srq), 0);
}

static struct ibv_qp *post_datagrams(void)
{
	struct ibv_qp *qp = api_qp(IBV_QPT_UD);
	struct ibv_qp_attr a = attr_init();

	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_QKEY),
			 0);
	a.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

static void post__datagram_without_ah(void **state)
{
	struct ibv_sge sge = { (uintptr_t)buffer, 10, mr->lkey };
	struct ibv_send_wr w = post_wr(&sge, 1), *bad = NULL;
	struct ibv_qp *qp = post_datagrams();

	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	w.opcode = IBV_WR_RDMA_WRITE;
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void post__datagram_of_another_domain(void **state)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_sge sge = { (uintptr_t)buffer, 10, mr->lkey };
	struct ibv_send_wr w = post_wr(&sge, 1), *bad = NULL;
	struct ibv_qp *qp = post_datagrams();
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_ah *stranger = ibv_create_ah(other, &attr), *ours = ibv_create_ah(pd, &attr);

	w.wr.ud.remote_qpn = qp->qp_num;
	w.wr.ud.ah = stranger;
	assert_int_equal(ibv_post_send(qp, &w, &bad), EINVAL);
	assert_ptr_equal(bad, &w);
	w.wr.ud.ah = ours;
	assert_int_equal(ibv_post_send(qp, &w, &bad), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_ah(stranger), 0);
	assert_int_equal(ibv_destroy_ah(ours), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

/* What is said of a receive queue counts for nothing where there is none. */
static void qp__receive_caps_beside_an_srq(void **state)
{
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = api_init(IBV_QPT_RC);
	struct ibv_qp *qp;

	init.srq = ibv_create_srq(pd, &si);
	init.cap.max_recv_wr = init.cap.max_recv_sge = UINT32_MAX;
	qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	assert_int_equal(init.cap.max_recv_wr, 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(init.srq), 0);
}

/* RC and UD, as the man page says; UC, as adapters do. */
static void qp__types_that_share_a_receive_queue(void **state)
{
	struct ibv_srq_init_attr si = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &si);
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_qp_init_attr init = api_init(IBV_QPT_RC);
	struct ibv_qp *qp;

	init.srq = srq;
	for (int i = 0; i < 3; i++) {
		init.qp_type = types[i];
		qp = ibv_create_qp(pd, &init);
		assert_non_null(qp);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* ---- requests built call by call ---- */

static struct ibv_qp *wr_qp(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.pd = pd,
		.cap = { 8, 8, 2, 2, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops,
	};

	return ibv_create_qp_ex(ctx, &init);
}

/* So many SENDs in one go, with wr_id from `first` on. */
static int wr_post(struct ibv_qp *qp, int count, uint64_t first)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < count; i++) {
		ex->wr_id = first + (uint64_t)i;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, 10);
	}
	return ibv_wr_complete(ex);
}

/* Nothing of what ibv_wr_complete refuses is posted. */
static void wr__whole_or_not_at_all(void **state)
{
	struct ibv_qp *qp = post_make_ready(wr_qp(IBV_QPT_RC, IBV_QP_EX_WITH_SEND));
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc[16];

	assert_int_equal(wr_post(qp, 5, 1), 0);
	assert_int_equal(wr_post(qp, 4, 50), ENOMEM);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, 10);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)buffer, UINT32_MAX);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	assert_int_equal(wr_post(qp, 3, 6), 0);
	assert_int_equal(wr_post(qp, 1, 60), ENOMEM);
	assert_int_equal(ibv_modify_qp(qp, &err, IBV_QP_STATE), 0);
	assert_int_equal(ibv_poll_cq(cq, 16, wc), 8);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(wc[i].wr_id, 1 + i);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* ---- windows ---- */

static struct ibv_wc api_complete(enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int got = 0;

	for (int i = 0; i < PAIR_WAIT_MS && got == 0; i++) {
		got = ibv_poll_cq(cq, 1, &wc);
		usleep(got ? 0 : 1000);
	}
	assert_int_equal(got, 1);
	assert_int_equal(wc.status, status);
	return wc;
}

static void window_complete(enum ibv_wc_opcode opcode)
{
	assert_int_equal(api_complete(IBV_WC_SUCCESS).opcode, opcode);
}

static struct ibv_mr *window_region(void)
{
	return ibv_reg_mr(pd, buffer, sizeof(buffer),
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
}

/* Its first byte's remote address is 0, wherever in its region it begins. */
static void window__zero_based(void **state)
{
	struct ibv_mr *region = window_region();
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { region, (uintptr_t)buffer + 1000, 100,
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED },
	};
	struct ibv_sge sge = { (uintptr_t)buffer, 8, mr->lkey };
	struct ibv_send_wr w = post_wr(&sge, 1), *bad;
	struct ibv_qp *qp = api_qp(IBV_QPT_RC);

	post_connect(qp, qp->qp_num);
	memcpy(buffer + 1092, "the last", 8);
	assert_int_equal(ibv_bind_mw(qp, mw, &bind), 0);
	window_complete(IBV_WC_BIND_MW);
	w.opcode = IBV_WR_RDMA_READ;
	w.send_flags = IBV_SEND_SIGNALED;
	w.wr.rdma.remote_addr = 92;
	w.wr.rdma.rkey = mw->rkey;
	assert_int_equal(ibv_post_send(qp, &w, &bad), 0);
	window_complete(IBV_WC_RDMA_READ);
	assert_memory_equal(buffer, "the last", 8);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(region), 0);
}

/* No request ends a window of type 1: not its owner's, which completes with an error, nor a peer's,
 * to whom it is an access that is not allowed. */
static void window__is_not_invalidated(void **state)
{
	struct ibv_mr *region = window_region();
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { region, (uintptr_t)buffer + 1000, 100, IBV_ACCESS_REMOTE_READ },
	};
	struct ibv_sge sge = { (uintptr_t)buffer, 8, mr->lkey };

	for (int by_peer = 0; by_peer < 2; by_peer++) {
		struct ibv_qp *qp = api_qp(IBV_QPT_RC), *peer = api_qp(IBV_QPT_RC);
		struct ibv_recv_wr r = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
		struct ibv_send_wr w = post_wr(&sge, by_peer), *bad;

		post_connect(qp, peer->qp_num);
		post_connect(peer, qp->qp_num);
		assert_int_equal(ibv_bind_mw(qp, mw, &bind), 0);
		window_complete(IBV_WC_BIND_MW);
		assert_int_equal(ibv_post_recv(peer, &r, &bad_recv), 0);
		w.opcode = by_peer ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV;
		w.invalidate_rkey = mw->rkey;
		assert_int_equal(ibv_post_send(qp, &w, &bad), 0);
		if (by_peer)
			api_complete(IBV_WC_LOC_PROT_ERR); /* the receive */
		api_complete(by_peer ? IBV_WC_REM_ACCESS_ERR : IBV_WC_MW_BIND_ERR);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		assert_int_equal(ibv_destroy_qp(peer), 0);
		assert_int_equal(ibv_dereg_mr(region), EBUSY); /* it is still bound */
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(region), 0);
}

/* Nor is it bound to a region that has been destroyed through another import of it. */
static void window__of_a_region_that_is_gone(void **state)
{
	struct ibv_context *imported = ibv_import_device(dup(ctx->cmd_fd));
	struct ibv_pd *shared = ibv_import_pd(imported, pd->handle);
	struct ibv_mr *region = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_MW_BIND);
	struct ibv_mw_bind bind = {
		.bind_info = { ibv_import_mr(shared, region->handle), (uintptr_t)buffer, 100, 0 },
	};
	struct ibv_cq *their_cq = ibv_create_cq(imported, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = api_init(IBV_QPT_RC);
	struct ibv_mw *mw = ibv_alloc_mw(shared, IBV_MW_TYPE_1);
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = their_cq;
	qp = post_make_ready(ibv_create_qp(shared, &init));

	assert_int_equal(ibv_bind_mw(qp, mw, &bind), 0);
	bind.bind_info.length = 0;
	assert_int_equal(ibv_bind_mw(qp, mw, &bind), 0);
	assert_int_equal(ibv_dereg_mr(region), 0);
	bind.bind_info.length = 100;
	assert_int_equal(ibv_bind_mw(qp, mw, &bind), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(their_cq), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	ibv_unimport_mr(bind.bind_info.mr);
	ibv_unimport_pd(shared);
	assert_int_equal(ibv_close_device(imported), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(query__bad_ports_and_indexes),
		cmocka_unit_test(cq__sizes_and_vectors),
		cmocka_unit_test(busy__what_others_stand_on),
		cmocka_unit_test(busy__pd_with_region_or_ah),
		cmocka_unit_test(busy__channel_with_cq),
		cmocka_unit_test(region__mistakes),
		cmocka_unit_test(ah__mistakes),
		cmocka_unit_test(srq__mistakes),
		cmocka_unit_test(srq_ex__mistakes),
		cmocka_unit_test(qp__caps_beyond_the_limits),
		cmocka_unit_test(qp__incomplete_or_of_another_kind),
		cmocka_unit_test(qp__masks_and_query),
		cmocka_unit_test(qp__reset_forgets),
		cmocka_unit_test(qp__values),
		cmocka_unit_test(post__in_wrong_states),
		cmocka_unit_test(post__too_much),
		cmocka_unit_test(post__wrong_opcodes),
		cmocka_unit_test(post__full),
		cmocka_unit_test(post__receive_beside_an_srq),
		cmocka_unit_test(post__datagram_without_ah),
		cmocka_unit_test(post__datagram_of_another_domain),
		cmocka_unit_test(qp__receive_caps_beside_an_srq),
		cmocka_unit_test(qp__types_that_share_a_receive_queue),
		cmocka_unit_test(wr__whole_or_not_at_all),
		cmocka_unit_test(window__zero_based),
		cmocka_unit_test(window__is_not_invalidated),
		cmocka_unit_test(window__of_a_region_that_is_gone),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("api", tests, api_setup, api_teardown);
}
