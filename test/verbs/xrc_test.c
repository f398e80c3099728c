/* xrc_test.c: extended reliable connections: domains, SRQs that requests name, initiators, targets
 * and their handles, in one process: shared memory, or UDP.
 * In: requests and mistakes    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pair.h"

enum { XRC_BYTES = 2 << 20, XRC_WAIT_MS = 10000, XRC_PSN = 0xfffffe };

static struct ibv_context *ctx, *other;
static uint8_t *memory;

/* An SRQ with what it stands on. */
struct place {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* of all of `memory` */
	struct ibv_srq *srq;
	uint32_t number;
};

/* An initiator, and the target that it is connected to. */
static struct {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_xrcd *xrcd;
	struct place place[2];
	struct ibv_qp *ini, *tgt;
} x;

#define NULL_WITH(call, error)                                                                     \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, error);                                                    \
	} while (0)

static struct ibv_xrcd *xrc_domain(struct ibv_context *c, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = fd,
					   .oflags = oflags };

	return ibv_open_xrcd(c, &attr);
}

static struct ibv_srq_init_attr_ex xrc_srq_attr(struct ibv_pd *pd, struct ibv_cq *cq,
						struct ibv_xrcd *xrcd)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq
	};
}

static void place_make(struct place *p, struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex attr;

	p->pd = ibv_alloc_pd(ctx);
	p->cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	p->mr = ibv_reg_mr(p->pd, memory, XRC_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	attr = xrc_srq_attr(p->pd, p->cq, xrcd);
	p->srq = ibv_create_srq_ex(ctx, &attr);
	assert_non_null(p->srq);
	assert_int_equal(ibv_get_srq_num(p->srq, &p->number), 0);
	assert_in_range(p->number, 1, 0xffffff);
}

static void place_end(struct place *p)
{
	if (p->srq != NULL)
		assert_int_equal(ibv_destroy_srq(p->srq), 0);
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	assert_int_equal(ibv_destroy_cq(p->cq), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
}

static struct ibv_qp *xrc_target(struct ibv_context *c, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = xrcd };

	return ibv_create_qp_ex(c, &init);
}

static struct ibv_qp_init_attr_ex xrc_initiator_attr(struct ibv_pd *pd, struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr_ex){ .qp_type = IBV_QPT_XRC_SEND,
					     .send_cq = cq,
					     .cap = { .max_send_wr = 16,
						      .max_send_sge = 2,
						      .max_inline_data = 64 },
					     .comp_mask = IBV_QP_INIT_ATTR_PD,
					     .pd = pd };
}

static void xrc_step(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     enum ibv_qp_state to)
{
	attr->qp_state = to;
	assert_int_equal(ibv_modify_qp(qp, attr, mask | IBV_QP_STATE), 0);
}

/* Programs give both ends the attributes of both. */
static void xrc_bring_up(struct ibv_qp *qp, uint32_t peer, uint8_t rnr_retry)
{
	struct ibv_qp_attr a = { .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_READ |
						    IBV_ACCESS_REMOTE_ATOMIC,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer,
				 .rq_psn = XRC_PSN,
				 .sq_psn = XRC_PSN,
				 .max_rd_atomic = 4,
				 .max_dest_rd_atomic = 4,
				 .min_rnr_timer = 1,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = rnr_retry,
				 .ah_attr = { .is_global = 1, .port_num = 1 } };

	a.ah_attr.grh.sgid_index = 1;
	a.ah_attr.grh.hop_limit = 1;
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &a.ah_attr.grh.dgid), 0);
	xrc_step(qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QPS_INIT);
	xrc_step(qp, &a,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		 IBV_QPS_RTR);
	xrc_step(qp, &a,
		 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			 IBV_QP_MAX_QP_RD_ATOMIC,
		 IBV_QPS_RTS);
}

static void xrc_connect(uint8_t rnr_retry)
{
	xrc_bring_up(x.tgt, x.ini->qp_num, rnr_retry);
	xrc_bring_up(x.ini, x.tgt->qp_num, rnr_retry);
}

static int xrc_setup(void **state)
{
	struct ibv_qp_init_attr_ex init;

	memset(&x, 0, sizeof(x));
	memset(memory, 0, XRC_BYTES);
	x.pd = ibv_alloc_pd(ctx);
	x.cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	x.mr = ibv_reg_mr(x.pd, memory, XRC_BYTES, IBV_ACCESS_LOCAL_WRITE);
	x.xrcd = xrc_domain(ctx, -1, O_CREAT);
	assert_non_null(x.xrcd);
	place_make(&x.place[0], x.xrcd);
	place_make(&x.place[1], x.xrcd);
	init = xrc_initiator_attr(x.pd, x.cq);
	x.ini = ibv_create_qp_ex(ctx, &init);
	x.tgt = xrc_target(ctx, x.xrcd);
	assert_non_null(x.ini);
	assert_non_null(x.tgt);
	return 0;
}

static int xrc_teardown(void **state)
{
	assert_int_equal(ibv_destroy_qp(x.ini), 0);
	if (x.tgt != NULL)
		assert_int_equal(ibv_destroy_qp(x.tgt), 0);
	place_end(&x.place[0]);
	place_end(&x.place[1]);
	assert_int_equal(ibv_close_xrcd(x.xrcd), 0);
	assert_int_equal(ibv_dereg_mr(x.mr), 0);
	assert_int_equal(ibv_destroy_cq(x.cq), 0);
	assert_int_equal(ibv_dealloc_pd(x.pd), 0);
	return 0;
}

static struct ibv_wc xrc_poll(struct ibv_cq *cq)
{
	struct ibv_wc wc = { .wr_id = 0 };

	for (int ms = 0; ms < XRC_WAIT_MS; ms++) {
		for (int i = 0; i < 1000; i++)
			if (ibv_poll_cq(cq, 1, &wc) == 1)
				return wc;
		usleep(1000);
	}
	fail_msg("no completion");
	return wc;
}

static void place_post(struct place *p, uint64_t wr_id, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory + offset, length, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_srq_recv(p->srq, &wr, &bad), 0);
}

/* A signalled request with `length` bytes from the beginning of the memory. */
static int xrc_try_send(enum ibv_wr_opcode opcode, uint32_t length, uint32_t srqn,
			const struct place *remote, uint64_t remote_offset)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, x.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = 0x12345678 },
			   *bad;

	wr.qp_type.xrc.remote_srqn = srqn;
	if (remote != NULL && (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + remote_offset;
		wr.wr.atomic.rkey = remote->mr->rkey;
		wr.wr.atomic.compare_add = 3;
	} else if (remote != NULL) {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + remote_offset;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	return ibv_post_send(x.ini, &wr, &bad);
}

static void xrc_send(enum ibv_wr_opcode opcode, uint32_t length, uint32_t srqn,
		     const struct place *remote, uint64_t remote_offset,
		     enum ibv_wc_status expected)
{
	struct ibv_wc wc;

	assert_int_equal(xrc_try_send(opcode, length, srqn, remote, remote_offset), 0);
	wc = xrc_poll(x.cq);
	assert_int_equal(wc.status, expected);
	assert_int_equal(wc.wr_id, 7);
	assert_int_equal(wc.qp_num, x.ini->qp_num);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void send__reaches_the_srq_that_it_names(void **state)
{
	static const uint32_t lengths[] = { 0, 1, 32, 33, 1024, 1025, 65536, 1 << 20 };
	struct ibv_wc wc;

	xrc_connect(7);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct place *p = &x.place[i % 2];

		memset(memory, 'a' + (int)i, lengths[i]);
		place_post(p, 100 + i, 1 << 20, 1 << 20);
		xrc_send(IBV_WR_SEND_WITH_IMM, lengths[i], p->number, NULL, 0, IBV_WC_SUCCESS);
		wc = xrc_poll(p->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.byte_len, lengths[i]);
		assert_int_equal(wc.qp_num, x.tgt->qp_num);
		assert_int_equal(wc.src_qp, x.ini->qp_num);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
		assert_int_equal(wc.imm_data, 0x12345678);
		assert_memory_equal(memory, memory + (1 << 20), lengths[i]);
	}
	assert_int_equal(ibv_poll_cq(x.place[0].cq, 1, &wc), 0);
	assert_int_equal(ibv_poll_cq(x.place[1].cq, 1, &wc), 0);
}

static void one_sided__by_the_pd_of_the_srq(void **state)
{
	struct place *p = &x.place[0], *q = &x.place[1];
	struct ibv_wc wc;

	xrc_connect(7);
	memset(memory, 5, 4096);
	xrc_send(IBV_WR_RDMA_WRITE, 4096, p->number, p, 8192, IBV_WC_SUCCESS);
	assert_memory_equal(memory, memory + 8192, 4096);
	xrc_send(IBV_WR_RDMA_WRITE, 4096, q->number, q, 16384, IBV_WC_SUCCESS);
	assert_memory_equal(memory, memory + 16384, 4096);
	memset(memory + 8192, 6, 4096);
	xrc_send(IBV_WR_RDMA_READ, 4096, p->number, p, 8192, IBV_WC_SUCCESS);
	assert_int_equal(memory[4095], 6);
	memset(memory + 8192, 0, 8);
	xrc_send(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, q->number, q, 8192, IBV_WC_SUCCESS);
	assert_int_equal(memory[8192], 3);
	place_post(q, 1, 1 << 20, 64);
	xrc_send(IBV_WR_RDMA_WRITE_WITH_IMM, 4096, q->number, q, 8192, IBV_WC_SUCCESS);
	wc = xrc_poll(q->cq);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	xrc_send(IBV_WR_RDMA_WRITE, 4096, p->number, q, 8192, IBV_WC_REM_ACCESS_ERR);
}

static void read__by_the_pd_of_the_srq(void **state)
{
	xrc_connect(7);
	xrc_send(IBV_WR_RDMA_READ, 64, x.place[0].number, &x.place[1], 8192,
		 IBV_WC_REM_ACCESS_ERR);
}

static void send__without_a_receive(void **state)
{
	xrc_connect(0);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void send__waits_for_a_receive(void **state)
{
	xrc_connect(7);
	assert_int_equal(xrc_try_send(IBV_WR_SEND, 64, x.place[1].number, NULL, 0), 0);
	place_post(&x.place[0], 1, 1 << 20, 64);
	usleep(20000);
	place_post(&x.place[1], 2, 1 << 20, 64);
	assert_int_equal(xrc_poll(x.cq).status, IBV_WC_SUCCESS);
	assert_int_equal(xrc_poll(x.place[1].cq).wr_id, 2);
}

static void send__receive_too_short(void **state)
{
	xrc_connect(7);
	place_post(&x.place[0], 1, 1 << 20, 63);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(xrc_poll(x.place[0].cq).status, IBV_WC_LOC_LEN_ERR);
}

static void send__to_no_srq(void **state)
{
	xrc_connect(7);
	xrc_send(IBV_WR_SEND, 64, 0xffffff, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(xrc_try_send(IBV_WR_SEND, 64, 0x1000000, NULL, 0), EINVAL);
}

static void send__to_an_srq_of_another_domain(void **state)
{
	struct ibv_xrcd *xrcd = xrc_domain(ctx, -1, O_CREAT);
	struct place foreign;

	place_make(&foreign, xrcd);
	place_post(&foreign, 1, 1 << 20, 64);
	xrc_connect(7);
	xrc_send(IBV_WR_SEND, 64, foreign.number, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
	place_end(&foreign);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
}

static void send__to_an_srq_that_is_gone(void **state)
{
	xrc_connect(7);
	place_post(&x.place[0], 1, 1 << 20, 64);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_srq(x.place[0].srq), 0);
	x.place[0].srq = NULL;
	/* What the SRQ has received stays, and so does the target. */
	assert_int_equal(xrc_poll(x.place[0].cq).status, IBV_WC_SUCCESS);
	place_post(&x.place[1], 1, 1 << 20, 64);
	xrc_send(IBV_WR_SEND, 64, x.place[1].number, NULL, 0, IBV_WC_SUCCESS);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_REM_INV_REQ_ERR);
}

static void recv__outlives_the_target(void **state)
{
	xrc_connect(7);
	place_post(&x.place[0], 9, 1 << 20, 64);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_qp(x.tgt), 0);
	x.tgt = NULL;
	assert_int_equal(xrc_poll(x.place[0].cq).wr_id, 9);
}

static void target__again_after_reset(void **state)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	for (int i = 0; i < 3; i++) {
		xrc_connect(7);
		place_post(&x.place[i % 2], 1, 1 << 20, 64);
		xrc_send(IBV_WR_SEND, 64, x.place[i % 2].number, NULL, 0, IBV_WC_SUCCESS);
		assert_int_equal(xrc_poll(x.place[i % 2].cq).status, IBV_WC_SUCCESS);
		assert_int_equal(ibv_modify_qp(x.ini, &reset, IBV_QP_STATE), 0);
		assert_int_equal(ibv_modify_qp(x.tgt, &reset, IBV_QP_STATE), 0);
	}
}

static void post__where_there_is_no_queue(void **state)
{
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;

	xrc_connect(7);
	assert_int_equal(ibv_post_recv(x.ini, &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	assert_int_equal(ibv_post_recv(x.tgt, &recv, &bad_recv), EINVAL);
	assert_int_equal(ibv_post_send(x.tgt, &send, &bad_send), EINVAL);
	assert_ptr_equal(bad_send, &send);
}

/* ---- ibv_wr_* -------------------------------------------------------------------------------- */

static void wr__names_the_srq(void **state)
{
	struct ibv_qp_init_attr_ex init = xrc_initiator_attr(x.pd, x.cq);
	char text[] = "inline";
	struct ibv_qp_ex *ex;

	assert_int_equal(ibv_destroy_qp(x.ini), 0);
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	x.ini = ibv_create_qp_ex(ctx, &init);
	ex = ibv_qp_to_qp_ex(x.ini);
	assert_non_null(ex);
	xrc_connect(7);
	place_post(&x.place[1], 1, 1 << 20, 64);
	ibv_wr_start(ex);
	ex->wr_id = 7;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, x.place[1].number);
	ibv_wr_set_inline_data(ex, text, 6);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(xrc_poll(x.cq).status, IBV_WC_SUCCESS);
	assert_int_equal(xrc_poll(x.place[1].cq).byte_len, 6);
	assert_memory_equal(memory + (1 << 20), "inline", 6);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, 0x1000000);
	ibv_wr_set_sge(ex, x.mr->lkey, (uintptr_t)memory, 6);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_rdma_read(ex, 1, 1); /* not asked for */
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
}

static void wr__operations_of_each_type(void **state)
{
	static const struct {
		enum ibv_qp_type type;
		uint64_t flags;
		int error;
	} rows[] = {
		{ IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, 0 },
		{ IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND_WITH_INV, 0 },
		{ IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_BIND_MW, 0 },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_BIND_MW, 0 },
		{ IBV_QPT_UD, IBV_QP_EX_WITH_LOCAL_INV, EOPNOTSUPP },
		{ IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_TSO, EOPNOTSUPP },
		{ IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE, 0 },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_WRITE, EOPNOTSUPP },
		{ IBV_QPT_RC, 1ull << 63, EOPNOTSUPP },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_SEND_WITH_INV, EOPNOTSUPP },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ, EOPNOTSUPP },
		{ IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE, EOPNOTSUPP },
		{ IBV_QPT_UD, IBV_QP_EX_WITH_SEND, 0 },
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_qp_init_attr_ex init = xrc_initiator_attr(x.pd, x.cq);
		struct ibv_qp *qp;

		init.qp_type = rows[i].type;
		init.recv_cq = x.cq;
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = rows[i].flags;
		errno = 0;
		qp = ibv_create_qp_ex(ctx, &init);
		assert_int_equal(qp == NULL ? errno : 0, rows[i].error);
		if (qp != NULL)
			assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

/* ---- domains --------------------------------------------------------------------------------- */

static void domain__of_a_file(void **state)
{
	int fd = memfd_create("xrc", 0), copy = dup(fd), another = memfd_create("xrc", 0);
	struct ibv_xrcd *a, *b, *c;

	NULL_WITH(xrc_domain(ctx, fd, 0), EAGAIN);
	a = xrc_domain(ctx, fd, O_CREAT | O_EXCL);
	assert_non_null(a);
	NULL_WITH(xrc_domain(ctx, copy, O_CREAT | O_EXCL), EINVAL);
	b = xrc_domain(other, copy, 0);
	assert_non_null(b);
	NULL_WITH(xrc_domain(ctx, another, 0), EAGAIN);
	c = xrc_domain(ctx, another, O_CREAT);
	assert_non_null(c);
	assert_int_equal(ibv_close_xrcd(a), 0);
	a = xrc_domain(ctx, fd, O_CREAT);
	assert_non_null(a);
	assert_int_equal(ibv_close_xrcd(a), 0);
	assert_int_equal(ibv_close_xrcd(b), 0);
	assert_int_equal(ibv_close_xrcd(c), 0);
	NULL_WITH(xrc_domain(ctx, fd, 0), EAGAIN);
	close(fd);
	close(copy);
	close(another);
	NULL_WITH(xrc_domain(ctx, fd, O_CREAT), EBADF);
}

/* Of two file systems, whose roots have it. */
static void domain__of_files_with_one_inode_number(void **state)
{
	int proc = open("/proc", O_RDONLY), sys = open("/sys", O_RDONLY);
	struct ibv_xrcd *xrcd;
	struct stat a, b;

	assert_int_equal(fstat(proc, &a), 0);
	assert_int_equal(fstat(sys, &b), 0);
	if (a.st_ino == b.st_ino && a.st_dev != b.st_dev) {
		xrcd = xrc_domain(ctx, proc, O_CREAT);
		assert_non_null(xrcd);
		NULL_WITH(xrc_domain(ctx, sys, 0), EAGAIN);
		assert_int_equal(ibv_close_xrcd(xrcd), 0);
	}
	close(proc);
	close(sys);
}

static void domain__shares_srqs_by_its_file(void **state)
{
	int fd = memfd_create("xrc", 0);
	struct ibv_xrcd *mine = xrc_domain(ctx, fd, O_CREAT), *theirs = xrc_domain(other, fd, 0);

	assert_int_equal(ibv_destroy_qp(x.tgt), 0);
	x.tgt = xrc_target(other, theirs);
	assert_non_null(x.tgt);
	assert_int_equal(ibv_destroy_srq(x.place[0].srq), 0);
	{
		struct ibv_srq_init_attr_ex attr = xrc_srq_attr(x.place[0].pd, x.place[0].cq, mine);

		x.place[0].srq = ibv_create_srq_ex(ctx, &attr);
	}
	assert_non_null(x.place[0].srq);
	assert_int_equal(ibv_get_srq_num(x.place[0].srq, &x.place[0].number), 0);
	xrc_connect(7);
	place_post(&x.place[0], 1, 1 << 20, 64);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(xrc_poll(x.place[0].cq).status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_close_xrcd(mine), EBUSY);
	assert_int_equal(ibv_close_xrcd(theirs), EBUSY);
	assert_int_equal(ibv_destroy_srq(x.place[0].srq), 0);
	x.place[0].srq = NULL;
	assert_int_equal(ibv_destroy_qp(x.tgt), 0);
	x.tgt = NULL;
	assert_int_equal(ibv_close_xrcd(mine), 0);
	assert_int_equal(ibv_close_xrcd(theirs), 0);
	close(fd);
}

static void domain__bad_attributes(void **state)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };

	NULL_WITH(ibv_open_xrcd(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_XRCD_INIT_ATTR_OFLAGS;
	NULL_WITH(ibv_open_xrcd(ctx, &attr), EINVAL);
	attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS | 4;
	NULL_WITH(ibv_open_xrcd(ctx, &attr), EOPNOTSUPP);
	NULL_WITH(xrc_domain(ctx, -1, O_APPEND), EINVAL);
	NULL_WITH(xrc_domain(ctx, -2, O_CREAT), EBADF);
	assert_int_equal(ibv_close_xrcd(x.xrcd), EBUSY);
}

static void srq__bad_attributes(void **state)
{
	struct ibv_srq_init_attr_ex good = xrc_srq_attr(x.pd, x.cq, x.xrcd), bad = good;
	struct ibv_xrcd *foreign = xrc_domain(other, -1, O_CREAT);
	struct ibv_srq *basic;
	uint32_t number;

	bad.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_XRCD;
	NULL_WITH(ibv_create_srq_ex(ctx, &bad), EINVAL);
	bad = good;
	bad.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_CQ;
	NULL_WITH(ibv_create_srq_ex(ctx, &bad), EINVAL);
	bad = good;
	bad.xrcd = foreign;
	NULL_WITH(ibv_create_srq_ex(ctx, &bad), EINVAL);
	bad = good;
	bad.attr.max_wr = 0;
	NULL_WITH(ibv_create_srq_ex(ctx, &bad), EINVAL);
	bad = good;
	bad.srq_type = (enum ibv_srq_type)7;
	NULL_WITH(ibv_create_srq_ex(ctx, &bad), EINVAL);
	basic = ibv_create_srq(x.pd, (struct ibv_srq_init_attr *)&good);
	assert_non_null(basic);
	assert_int_equal(ibv_get_srq_num(basic, &number), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_srq(basic), 0);
	assert_int_equal(ibv_close_xrcd(foreign), 0);
}

static void qp__bad_attributes(void **state)
{
	struct ibv_qp_init_attr_ex init = xrc_initiator_attr(x.pd, x.cq);
	struct ibv_xrcd *foreign = xrc_domain(other, -1, O_CREAT);

	init.comp_mask = 0;
	NULL_WITH(ibv_create_qp_ex(ctx, &init), EINVAL);
	init = xrc_initiator_attr(x.pd, NULL);
	NULL_WITH(ibv_create_qp_ex(ctx, &init), EINVAL);
	NULL_WITH(xrc_target(ctx, NULL), EINVAL);
	NULL_WITH(xrc_target(ctx, foreign), EINVAL);
	init = xrc_initiator_attr(x.pd, x.cq);
	init.qp_type = IBV_QPT_XRC_RECV;
	NULL_WITH(ibv_create_qp_ex(ctx, &init), EINVAL);
	init.comp_mask |= IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.xrcd = x.xrcd;
	NULL_WITH(ibv_create_qp_ex(ctx, &init), EOPNOTSUPP);
	assert_int_equal(ibv_close_xrcd(foreign), 0);
}

/* ---- handles of a target --------------------------------------------------------------------- */

static struct ibv_qp *xrc_open(struct ibv_context *c, struct ibv_xrcd *xrcd, uint32_t number)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM |
						      IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE |
						      IBV_QP_OPEN_ATTR_CONTEXT,
					 .qp_num = number,
					 .xrcd = xrcd,
					 .qp_context = &x,
					 .qp_type = IBV_QPT_XRC_RECV };

	return ibv_open_qp(c, &attr);
}

static void open_qp__goes_with_the_last(void **state)
{
	struct ibv_qp *second = xrc_open(ctx, x.xrcd, x.tgt->qp_num);
	struct ibv_qp_attr attr;
	uint32_t number = x.tgt->qp_num;
	struct ibv_qp_init_attr init;

	assert_non_null(second);
	assert_int_equal(second->qp_num, x.tgt->qp_num);
	assert_ptr_equal(second->qp_context, &x);
	xrc_connect(7);
	assert_int_equal(ibv_destroy_qp(x.tgt), 0);
	x.tgt = second;
	assert_int_equal(ibv_query_qp(second, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(init.qp_type, IBV_QPT_XRC_RECV);
	place_post(&x.place[0], 1, 1 << 20, 64);
	xrc_send(IBV_WR_SEND, 64, x.place[0].number, NULL, 0, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_qp(second), 0);
	NULL_WITH(xrc_open(ctx, x.xrcd, number), EINVAL);
	x.tgt = NULL;
}

static void open_qp__bad_attributes(void **state)
{
	struct ibv_xrcd *another = xrc_domain(ctx, -1, O_CREAT);
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM };

	NULL_WITH(ibv_open_qp(ctx, &attr), EINVAL);
	NULL_WITH(xrc_open(ctx, x.xrcd, x.ini->qp_num), EINVAL);
	NULL_WITH(xrc_open(ctx, another, x.tgt->qp_num), EINVAL);
	NULL_WITH(xrc_open(other, x.xrcd, x.tgt->qp_num), EINVAL);
	assert_int_equal(ibv_close_xrcd(another), 0);
}

static enum ibv_event_type xrc_event(void)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	ibv_ack_async_event(&event);
	return event.event_type;
}

/* Each of them gets the events. */
static void open_qp__events(void **state)
{
	struct ibv_qp *second = xrc_open(ctx, x.xrcd, x.tgt->qp_num);

	xrc_connect(7);
	xrc_send(IBV_WR_RDMA_WRITE, 64, x.place[0].number, &x.place[1], 0, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(xrc_event(), IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(xrc_event(), IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(ibv_destroy_qp(second), 0);
}

static void caps__announce_xrc(void **state)
{
	struct ibv_device_attr attr;

	assert_int_equal(ibv_query_device(ctx, &attr), 0);
	assert_true(attr.device_cap_flags & IBV_DEVICE_XRC);
}

static int xrc_group_setup(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (list == NULL || list[0] == NULL)
		return -1;
	ctx = ibv_open_device(list[0]);
	other = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	memory = mmap(NULL, XRC_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return ctx == NULL || other == NULL || memory == MAP_FAILED ? -1 : 0;
}

static int xrc_group_teardown(void **state)
{
	return ibv_close_device(ctx) | ibv_close_device(other);
}

#define XRC_TEST(name) cmocka_unit_test_setup_teardown(name, xrc_setup, xrc_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		XRC_TEST(send__reaches_the_srq_that_it_names),
		XRC_TEST(one_sided__by_the_pd_of_the_srq),
		XRC_TEST(read__by_the_pd_of_the_srq),
		XRC_TEST(send__without_a_receive),
		XRC_TEST(send__waits_for_a_receive),
		XRC_TEST(send__receive_too_short),
		XRC_TEST(send__to_no_srq),
		XRC_TEST(send__to_an_srq_of_another_domain),
		XRC_TEST(send__to_an_srq_that_is_gone),
		XRC_TEST(recv__outlives_the_target),
		XRC_TEST(target__again_after_reset),
		XRC_TEST(post__where_there_is_no_queue),
		XRC_TEST(wr__names_the_srq),
		XRC_TEST(wr__operations_of_each_type),
		XRC_TEST(domain__of_a_file),
		XRC_TEST(domain__of_files_with_one_inode_number),
		XRC_TEST(domain__shares_srqs_by_its_file),
		XRC_TEST(domain__bad_attributes),
		XRC_TEST(srq__bad_attributes),
		XRC_TEST(qp__bad_attributes),
		XRC_TEST(open_qp__goes_with_the_last),
		XRC_TEST(open_qp__bad_attributes),
		XRC_TEST(open_qp__events),
		cmocka_unit_test(caps__announce_xrc),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("xrc", tests, xrc_group_setup, xrc_group_teardown);
}
