/* objects_fuzz.c: what a program may ask of libibverbs' later objects: XRC domains, SRQs,
 * initiators and targets, windows of both types, device memory, work queues and tables of them,
 * flow rules, counters of both kinds, regions that change, imports, requests by ibv_wr_*, extended
 * CQs.
 *
 * As verbs_fuzz.c: a list of calls, pointers are good, all else is the input's. Whatever is asked,
 * the answer is success or an errno value, what an object is in use by holds it, and in the end
 * everything can be destroyed. Nothing leaves this host: ANYVERBS_PATHS, and without CAP_NET_RAW no
 * raw packet queue pair comes to be.
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread, and the stack's own
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "input.h"

enum {
	STEPS = 48,
	MEMORY = 32768,
	MRS = 3,
	MWS = 2,
	DMS = 2,
	WQS = 2,
	SRQS = 2,
	QPS = 4, /* an initiator, a target, and two of the input's */
	COUNTS = 2,
	SGES = 3,
	SPECS = 512, /* bytes */
	/* Of later headers: in ibv_qp_init_attr_ex.send_ops_flags, among the rights */
	FLUSH_BIT = 1 << 11,
	ACCESS_FLUSH = 1 << 8,
};

/* What libibverbs has behind a queue pair's calls since then. */
struct qp_ex {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, u32 rkey, u64 addr, size_t length, u8 type,
			 u8 level);
};

/* Of rdma-core 65's headers. */
struct comp_init {
	u32 comp_mask, type, flags;
};
struct comp_attach {
	u32 comp_mask, op_mask;
};
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct comp_init *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
			    struct comp_attach *attr);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, u64 *value);

static struct objects {
	struct ibv_context *ctx, *twin; /* twin: imported by the same descriptor */
	union ibv_gid gid;
	int file; /* of an XRC domain */
	struct input in;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq; /* of everything */
	u64 cq_fields;
	struct ibv_xrcd *xrcd;
	struct ibv_mr *mr[MRS];
	struct ibv_mw *mw[MWS];
	struct ibv_dm *dm[DMS];
	struct ibv_wq *wq[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_srq *srq[SRQS];
	u32 srqn[SRQS];
	struct ibv_qp *qp[QPS];
	struct ibv_counters *counters;
	struct ibv_comp_cntr *count[COUNTS];
} o;

static u8 memory[MEMORY];

static void objects_errno(int err)
{
	fuzz_need(err >= 0 && err < 140, "a result that is no errno value");
}

/* What a call that creates has left in errno. */
static void objects_made(const void *object)
{
	fuzz_need(object != NULL || (errno > 0 && errno < 140), "nothing made, and no errno");
}

static u32 objects_u32(void)
{
	u32 value;

	input_bytes(&o.in, &value, sizeof(value));
	return value;
}

static u8 objects_u8(void)
{
	return input_u8(&o.in);
}

/* Mostly small. */
static u32 objects_count(u32 usual)
{
	u8 byte = objects_u8();

	return byte < 240 ? byte % usual : objects_u32();
}

static struct ibv_cq *objects_cq(void)
{
	return ibv_cq_ex_to_cq(o.cq);
}

static struct ibv_qp *objects_qp(void)
{
	return o.qp[objects_u8() % QPS];
}

static struct ibv_mr *objects_mr(void)
{
	return o.mr[objects_u8() % MRS];
}

/* ---- memory ---- */

static void objects_region(void)
{
	int i = objects_u8() % MRS, at = (int)(objects_u32() % MEMORY), err;
	u32 access = objects_u32() & 0x1fff7fff; /* not on demand, or later peers differ */
	struct ibv_dm *dm = o.dm[i % DMS];

	if (o.mr[i] != NULL) {
		err = ibv_dereg_mr(o.mr[i]);
		fuzz_need(err == 0 || err == EBUSY, "a region is neither gone nor bound");
		if (err != 0)
			return;
	}
	errno = 0;
	if (dm != NULL && access & 1 << 28)
		o.mr[i] = ibv_reg_dm_mr(o.pd, dm, objects_count(200), objects_count(300),
					access | IBV_ACCESS_ZERO_BASED);
	else if (access & 1 << 27)
		o.mr[i] = ibv_alloc_null_mr(o.pd);
	else
		o.mr[i] = ibv_reg_mr(o.pd, memory + at, objects_u32() % (u32)(MEMORY - at),
				     (int)(access & 31) | IBV_ACCESS_LOCAL_WRITE);
	objects_made(o.mr[i]);
}

static void objects_rereg(void)
{
	struct ibv_mr *mr = objects_mr();
	u32 at = objects_u32() % MEMORY, length = objects_u32() % (MEMORY - at);
	int flags = (int)objects_count(8), access = (int)objects_count(32), answer;

	if (mr == NULL)
		return;
	answer = ibv_rereg_mr(mr, flags, o.pd, memory + at, length, access);
	fuzz_need(answer <= 0 && answer >= IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW,
		  "an answer that rereg has not");
}

static void objects_advise(void)
{
	struct ibv_sge sge[SGES];
	u32 count = objects_u8() % (SGES + 1);

	for (int i = 0; i < SGES; i++) {
		struct ibv_mr *mr = objects_mr();

		sge[i] = (struct ibv_sge){ (uintptr_t)memory + objects_u32() % (2 * MEMORY),
					   objects_u32(), mr != NULL ? mr->lkey : objects_u32() };
	}
	objects_errno(ibv_advise_mr(o.pd, objects_count(4), objects_count(3), sge, count));
}

static void objects_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = objects_count(4000),
					  .log_align_req = objects_count(14),
					  .comp_mask = objects_u8() < 8 };
	int i = objects_u8() % DMS, err;

	if (o.dm[i] != NULL) {
		err = ibv_free_dm(o.dm[i]);
		fuzz_need(err == 0 || err == EBUSY, "device memory is neither gone nor in use");
		if (err != 0)
			return;
	}
	errno = 0;
	o.dm[i] = ibv_alloc_dm(o.ctx, &attr);
	objects_made(o.dm[i]);
}

/* The device judges the length: it is never more than the memory here. */
static void objects_copy(void)
{
	struct ibv_dm *dm = o.dm[objects_u8() % DMS];
	u64 offset = objects_count(4000);
	u32 length = objects_u32() % MEMORY;

	if (dm == NULL)
		return;
	objects_errno(ibv_memcpy_to_dm(dm, offset, memory, length));
	objects_errno(ibv_memcpy_from_dm(memory, dm, offset, length));
}

static void objects_window(void)
{
	struct ibv_mw_bind bind = { .wr_id = 3, .send_flags = objects_u8() & 15 };
	int i = objects_u8() % MWS;
	struct ibv_qp *qp = objects_qp();
	struct ibv_mr *mr = objects_mr();

	if (o.mw[i] != NULL && objects_u8() < 64) {
		fuzz_need(ibv_dealloc_mw(o.mw[i]) == 0, "a window stays");
		o.mw[i] = NULL;
	}
	errno = 0;
	if (o.mw[i] == NULL) {
		o.mw[i] = ibv_alloc_mw(o.pd, (enum ibv_mw_type)objects_count(3));
		objects_made(o.mw[i]);
		return;
	}
	bind.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory + objects_u32() % MEMORY,
						    objects_count(250), objects_u8() };
	if (qp != NULL && qp->qp_type == IBV_QPT_RC && mr != NULL)
		objects_errno(ibv_bind_mw(qp, o.mw[i], &bind));
}

/* Each import is one more hold, by which the object may also be destroyed: once. */
static void objects_import(void)
{
	struct ibv_pd *pd = ibv_import_pd(o.twin, o.pd->handle);
	struct ibv_mr *mr = objects_mr(), *copy;
	int i = objects_u8() % DMS;
	struct ibv_dm *dm;

	fuzz_need(pd != NULL, "a domain that is there cannot be imported");
	copy = ibv_import_mr(pd, mr != NULL && objects_u8() < 200 ? mr->handle : objects_u32());
	if (copy != NULL)
		ibv_unimport_mr(copy);
	dm = ibv_import_dm(o.twin, o.dm[i] != NULL ? o.dm[i]->handle : objects_u32());
	fuzz_need(dm != NULL || o.dm[i] == NULL, "device memory that is there");
	if (dm != NULL && objects_u8() & 1 && o.dm[i] != NULL && ibv_free_dm(dm) == 0) {
		fuzz_need(ibv_free_dm(o.dm[i]) == EINVAL, "destroyed twice");
		ibv_unimport_dm(o.dm[i]);
		o.dm[i] = dm = NULL;
	}
	if (dm != NULL)
		ibv_unimport_dm(dm);
	ibv_unimport_pd(pd);
}

/* ---- XRC ---- */

static void objects_xrcd(void)
{
	u8 how = objects_u8();
	struct ibv_xrcd_init_attr attr = { .comp_mask = how < 240 ? 3 : how,
					   .fd = how & 1 ? o.file : -1,
					   .oflags = how & 2 ? (int)objects_u32() : O_CREAT };
	int err = o.xrcd != NULL ? ibv_close_xrcd(o.xrcd) : 0;

	fuzz_need(err == 0 || err == EBUSY, "a domain is neither closed nor in use");
	if (err != 0)
		return;
	errno = 0;
	o.xrcd = ibv_open_xrcd(o.ctx, &attr);
	objects_made(o.xrcd);
}

static void objects_srq(void)
{
	int i = objects_u8() % SRQS;
	u8 how = objects_u8();
	struct ibv_srq_init_attr_ex init = {
		.attr = { objects_count(20), objects_count(5), 0 },
		.comp_mask = how < 220 ? 15 : objects_u8(),
		.srq_type = how < 220 ? IBV_SRQT_XRC : objects_count(4),
		.pd = o.pd,
		.xrcd = o.xrcd,
		.cq = objects_cq(),
	};

	if (o.srq[i] != NULL) {
		int err = ibv_destroy_srq(o.srq[i]);

		fuzz_need(err == 0 || err == EBUSY, "an SRQ is neither gone nor in use");
		if (err != 0)
			return;
	}
	errno = 0;
	o.srq[i] = ibv_create_srq_ex(o.ctx, &init);
	objects_made(o.srq[i]);
	if (o.srq[i] != NULL)
		objects_errno(ibv_get_srq_num(o.srq[i], &o.srqn[i]));
}

static void objects_receive(void)
{
	struct ibv_srq *srq = o.srq[objects_u8() % SRQS];
	struct ibv_mr *mr = objects_mr();
	struct ibv_sge sge = { (uintptr_t)memory + objects_u32() % MEMORY, objects_count(250),
			       mr != NULL ? mr->lkey : 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = objects_u8() < 200 }, *bad;

	if (srq != NULL)
		objects_errno(ibv_post_srq_recv(srq, &wr, &bad));
}

/* A handle of a target, beside the one that has it already. */
static void objects_open(void)
{
	struct ibv_qp_open_attr attr = { .comp_mask = objects_u8() < 200 ? 11 : objects_u8(),
					 .qp_num = o.qp[1] != NULL ? o.qp[1]->qp_num : 7,
					 .xrcd = o.xrcd,
					 .qp_type = objects_u8() < 200 ? IBV_QPT_XRC_RECV :
									 objects_u8() };
	struct ibv_qp *handle = (errno = 0, ibv_open_qp(o.ctx, &attr));

	objects_made(handle);
	if (handle != NULL)
		fuzz_need(ibv_destroy_qp(handle) == 0, "a handle stays");
}

/* ---- queue pairs ---- */

static void objects_queue_pair(void)
{
	static const int types[] = { IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RC, IBV_QPT_UD,
				     IBV_QPT_UC, IBV_QPT_RAW_PACKET };
	u8 i = objects_u8() % QPS, how = objects_u8();
	int type = i < 2 ? types[i] : types[2 + how % 4];
	u32 ops = objects_u32() & 0x3fff;
	struct ibv_qp_init_attr_ex init = {
		.qp_type = type,
		.send_cq = objects_cq(),
		.recv_cq = objects_cq(),
		.cap = { objects_count(20), objects_count(20), objects_count(4), objects_count(4),
			 objects_count(100) },
		.comp_mask = (type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD :
							 IBV_QP_INIT_ATTR_PD) |
			     (how & 64 && type != IBV_QPT_XRC_RECV ?
				      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS :
				      0),
		.pd = o.pd,
		.xrcd = o.xrcd,
		.send_ops_flags = how & 128 ? ops & 0x1ff : ops,
		.rwq_ind_tbl = o.table,
		.rx_hash_conf = { how, objects_u8(), memory, objects_u32() },
	};

	if (how & 32)
		init.comp_mask |= objects_u8();
	if (o.qp[i] != NULL)
		fuzz_need(ibv_destroy_qp(o.qp[i]) == 0, "a queue pair stays");
	errno = 0;
	o.qp[i] = ibv_create_qp_ex(o.ctx, &init);
	objects_made(o.qp[i]);
}

static void objects_step(struct ibv_qp *qp, const struct ibv_qp *peer)
{
	struct ibv_qp_attr a = { .port_num = 1,
				 .qp_access_flags = 15 | ACCESS_FLUSH,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer != NULL ? peer->qp_num : 7,
				 .max_rd_atomic = 4,
				 .max_dest_rd_atomic = 4,
				 .ah_attr = { .is_global = 1, .port_num = 1,
					      .grh = { .dgid = o.gid, .hop_limit = 1 } } };
	static const int masks[3] = {
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	};

	for (int i = 0; i < 3; i++) {
		int mask = masks[i];

		a.qp_state = IBV_QPS_INIT + i;
		if (qp->qp_type == IBV_QPT_XRC_SEND)
			mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
		if (qp->qp_type == IBV_QPT_XRC_RECV)
			mask &= ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
		objects_errno(ibv_modify_qp(qp, &a, mask));
	}
}

/* The initiator with the target, the others with whom the input says. */
static void objects_connect(void)
{
	u8 i = objects_u8() % QPS;
	struct ibv_qp *qp = o.qp[i], *peer = i < 2 ? o.qp[1 - i] : objects_qp();
	struct ibv_qp_attr attr = { .qp_state = objects_u8() % 8 };

	if (qp == NULL)
		return;
	if (attr.qp_state == IBV_QPS_RESET || attr.qp_state == IBV_QPS_ERR)
		objects_errno(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	if (attr.qp_state != IBV_QPS_ERR)
		objects_step(qp, peer);
}

static void objects_counted(void)
{
	struct comp_init init = { objects_u8() < 8, objects_count(2), objects_u8() < 8 };
	struct comp_attach attach = { objects_u8() < 8, objects_count(32) };
	struct ibv_qp *qp = objects_qp();
	int i = objects_u8() % COUNTS, err;
	u64 value;

	if (o.count[i] != NULL && objects_u8() < 64) {
		err = ibv_destroy_comp_cntr(o.count[i]);
		fuzz_need(err == 0 || err == EBUSY, "a counter is neither gone nor in use");
		if (err == 0)
			o.count[i] = NULL;
	}
	errno = 0;
	if (o.count[i] == NULL) {
		o.count[i] = ibv_create_comp_cntr(o.ctx, &init);
		objects_made(o.count[i]);
	} else if (qp != NULL) {
		objects_errno(ibv_qp_attach_comp_cntr(qp, o.count[i], &attach));
		objects_errno(ibv_read_comp_cntr(o.count[i], &value));
	}
}

/* ---- requests by ibv_wr_* ---- */

static void objects_request(struct ibv_qp_ex *ex)
{
	struct ibv_mr *mr = objects_mr();
	struct ibv_mw *mw = o.mw[objects_u8() % MWS];
	struct ibv_mw_bind_info info = { mr, (uintptr_t)memory + objects_u8(), objects_count(250),
					 objects_u8() };
	u64 va = (uintptr_t)memory + objects_u32() % (2 * MEMORY);
	u32 rkey = mr != NULL ? mr->rkey : objects_u32();

	ex->wr_id = va;
	ex->wr_flags = objects_u8() & (objects_u8() < 200 ? 15 : 255);
	switch (objects_u8() % 13) {
	case 0:
		ibv_wr_send_imm(ex, rkey);
		return;
	case 1:
		ibv_wr_send_inv(ex, mw != NULL ? mw->rkey : rkey);
		return;
	case 2:
		ibv_wr_rdma_write(ex, rkey, va);
		return;
	case 3:
		ibv_wr_rdma_write_imm(ex, rkey, va, 1);
		return;
	case 4:
		ibv_wr_rdma_read(ex, rkey, va);
		return;
	case 5:
		ibv_wr_atomic_cmp_swp(ex, rkey, va & ~7ull, 1, 2);
		return;
	case 6:
		ibv_wr_atomic_fetch_add(ex, rkey, va & ~7ull, 1);
		return;
	case 7:
		ibv_wr_local_inv(ex, mw != NULL ? mw->rkey : rkey);
		return;
	case 8:
		if (mw != NULL && mr != NULL)
			ibv_wr_bind_mw(ex, mw, mw->rkey ^ objects_count(4), &info);
		return;
	case 9:
		ibv_wr_atomic_write(ex, rkey, va & ~7ull, memory);
		return;
	case 10:
		((struct qp_ex *)ex)->wr_flush(ex, rkey, va, info.length, info.mw_access_flags & 31,
					       objects_u8() % 3);
		return;
	case 11:
		ibv_wr_send_tso(ex, memory, 14, 100);
		return;
	default:
		ibv_wr_send(ex);
	}
}

/* Any setters, none, or several in any order; data that the call reads is in bounds. */
static void objects_data(struct ibv_qp_ex *ex)
{
	u8 how = objects_u8();
	struct ibv_sge sge[SGES];
	struct ibv_data_buf list[SGES];

	for (int i = 0; i < SGES; i++) {
		struct ibv_mr *mr = objects_mr();

		sge[i] = (struct ibv_sge){ (uintptr_t)memory + objects_u32() % (2 * MEMORY),
					   objects_count(250), mr != NULL ? mr->lkey : 0 };
		list[i] = (struct ibv_data_buf){ memory, objects_u32() % MEMORY };
	}
	if (how & 1)
		ibv_wr_set_sge(ex, sge[0].lkey, sge[0].addr, sge[0].length);
	if (how & 2)
		ibv_wr_set_inline_data(ex, memory, list[0].length >> (how >> 5));
	if (how & 4)
		ibv_wr_set_sge_list(ex, how % (SGES + 1), sge);
	if (how & 8)
		ibv_wr_set_inline_data_list(ex, how % (SGES + 1), list);
	if (how & 16)
		ibv_wr_set_xrc_srqn(ex, o.srqn[how >> 5 & 1] ^ objects_count(2));
}

static void objects_post(void)
{
	struct ibv_qp *qp = objects_qp();
	struct ibv_qp_ex *ex = qp != NULL ? ibv_qp_to_qp_ex(qp) : NULL;
	int n = objects_u8() % 5;

	if (ex == NULL || ex->wr_start == NULL || qp->qp_type == IBV_QPT_UD)
		return;
	ibv_wr_start(ex);
	while (n-- > 0) {
		objects_request(ex);
		objects_data(ex);
	}
	if (objects_u8() < 220)
		objects_errno(ibv_wr_complete(ex));
	else
		ibv_wr_abort(ex);
}

static void objects_post_send(void)
{
	struct ibv_qp *qp = objects_qp();
	struct ibv_mr *mr = objects_mr();
	struct ibv_sge sge = { (uintptr_t)memory + objects_u32() % MEMORY, objects_count(250),
			       mr != NULL ? mr->lkey : 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = objects_u8() < 220,
				  .opcode = objects_count(16), .send_flags = objects_u8() & 7 },
			   *bad = NULL;
	int err;

	if (qp == NULL || qp->qp_type == IBV_QPT_UD || wr.opcode == IBV_WR_BIND_MW)
		return;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + objects_u32() % MEMORY / 8 * 8;
	wr.wr.rdma.rkey = mr != NULL ? mr->rkey : 0;
	wr.qp_type.xrc.remote_srqn = o.srqn[objects_u8() % SRQS] ^ objects_count(2);
	err = ibv_post_send(qp, &wr, &bad);
	objects_errno(err);
	fuzz_need(err == 0 || bad == &wr, "the culprit is none of the list");
}

/* ---- work queues, rules, counters ---- */

static void objects_wq(void)
{
	struct ibv_wq_init_attr init = { .wq_type = objects_count(2), .max_wr = objects_count(20),
					 .max_sge = objects_count(4), .pd = o.pd,
					 .cq = objects_cq(), .comp_mask = objects_count(3),
					 .create_flags = objects_count(3) };
	struct ibv_wq_attr attr = { .attr_mask = objects_count(8), .wq_state = objects_count(4),
				    .curr_wq_state = objects_count(4), .flags = objects_count(3),
				    .flags_mask = objects_count(3) };
	struct ibv_sge sge = { (uintptr_t)memory, objects_count(250), 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = (int)objects_count(3) }, *bad;
	int i = objects_u8() % WQS, err;

	if (o.wq[i] != NULL && objects_u8() < 64) {
		err = ibv_destroy_wq(o.wq[i]);
		fuzz_need(err == 0 || err == EBUSY, "a work queue is neither gone nor in use");
		if (err == 0)
			o.wq[i] = NULL;
	}
	errno = 0;
	if (o.wq[i] == NULL) {
		o.wq[i] = ibv_create_wq(o.ctx, &init);
		objects_made(o.wq[i]);
		return;
	}
	objects_errno(ibv_modify_wq(o.wq[i], &attr));
	if (wr.num_sge <= 1)
		objects_errno(ibv_post_wq_recv(o.wq[i], &wr, &bad));
}

static void objects_table(void)
{
	enum { PLACES = 4 };
	struct ibv_wq *list[PLACES];
	u32 log = objects_count(3);
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = log, .ind_tbl = list,
						    .comp_mask = objects_u8() < 8 };
	int err = o.table != NULL ? ibv_destroy_rwq_ind_table(o.table) : 0;

	fuzz_need(err == 0 || err == EBUSY, "a table is neither gone nor in use");
	for (int i = 0; i < PLACES; i++)
		list[i] = o.wq[objects_u8() % WQS];
	if (err != 0 || (log > 2 && log <= 16))
		return; /* the list is as long as it says */
	errno = 0;
	o.table = ibv_create_rwq_ind_table(o.ctx, &init);
	objects_made(o.table);
}

/* A specification of any type; its size is right, or not. */
static u16 objects_spec(u8 *to)
{
	static const struct {
		u16 type, size;
	} specs[] = {
		{ IBV_FLOW_SPEC_ETH, sizeof(struct ibv_flow_spec_eth) },
		{ IBV_FLOW_SPEC_IPV4, sizeof(struct ibv_flow_spec_ipv4) },
		{ IBV_FLOW_SPEC_IPV4_EXT, sizeof(struct ibv_flow_spec_ipv4_ext) },
		{ IBV_FLOW_SPEC_IPV6, sizeof(struct ibv_flow_spec_ipv6) },
		{ IBV_FLOW_SPEC_TCP, sizeof(struct ibv_flow_spec_tcp_udp) },
		{ IBV_FLOW_SPEC_UDP, sizeof(struct ibv_flow_spec_tcp_udp) },
		{ IBV_FLOW_SPEC_ACTION_DROP, sizeof(struct ibv_flow_spec_action_drop) },
		{ IBV_FLOW_SPEC_ACTION_COUNT, sizeof(struct ibv_flow_spec_counter_action) },
	};
	struct ibv_flow_spec_counter_action count;
	u8 i = objects_u8() % ARRAY_LEN(specs);
	u32 type = objects_u8() < 230 ? specs[i].type : objects_u32();
	u16 size = objects_u8() < 230 ? specs[i].size : objects_u8();

	input_bytes(&o.in, to, specs[i].size);
	if (type == IBV_FLOW_SPEC_ACTION_COUNT) {
		count = (struct ibv_flow_spec_counter_action){ .counters = o.counters };
		memcpy(to, &count, sizeof(count));
	}
	memcpy(to, &type, sizeof(type));
	memcpy(to + sizeof(type), &size, sizeof(size));
	return specs[i].size;
}

static void objects_rule(void)
{
	struct {
		struct ibv_flow_attr attr;
		u8 specs[SPECS];
	} rule;
	struct ibv_qp *qp = objects_qp();
	struct ibv_flow *flow;
	u32 at = 0;
	u8 n = objects_u8() % 5;

	memset(&rule, 0, sizeof(rule));
	rule.attr = (struct ibv_flow_attr){ .comp_mask = objects_u8() < 8,
					    .type = objects_count(4),
					    .size = sizeof(rule.attr),
					    .priority = objects_u8(),
					    .num_of_specs = n,
					    .port = objects_u8() < 200 ? 1 : objects_u8(),
					    .flags = objects_count(16) };
	for (u8 i = 0; i < n; i++)
		at += objects_spec(rule.specs + at);
	if (qp == NULL)
		return;
	errno = 0;
	flow = ibv_create_flow(qp, &rule.attr);
	objects_made(flow);
	if (flow != NULL)
		fuzz_need(ibv_destroy_flow(flow) == 0, "a rule stays");
}

static void objects_counters(void)
{
	struct ibv_counters_init_attr init = { .comp_mask = objects_u8() < 8 };
	struct ibv_counter_attach_attr attr = { .counter_desc = objects_count(3),
						.index = objects_count(6),
						.comp_mask = objects_u8() < 8 };
	u64 values[8];

	if (o.counters != NULL && objects_u8() < 32) {
		fuzz_need(ibv_destroy_counters(o.counters) == 0, "counters stay");
		o.counters = NULL;
	}
	errno = 0;
	if (o.counters == NULL) {
		o.counters = ibv_create_counters(o.ctx, &init);
		objects_made(o.counters);
		return;
	}
	objects_errno(ibv_attach_counters_point_flow(o.counters, &attr, NULL));
	objects_errno(ibv_read_counters(o.counters, values, objects_u8() % ARRAY_LEN(values),
					objects_count(3)));
}

/* ---- completions ---- */

/* Reads what the CQ was created with. */
static void objects_entry(void)
{
	struct ibv_wc_tm_info tm;

	fuzz_need(o.cq->status <= IBV_WC_TM_RNDV_INCOMPLETE, "a status that there is not");
	if (o.cq->status != IBV_WC_SUCCESS)
		return;
	ibv_wc_read_opcode(o.cq);
	if (o.cq_fields & IBV_WC_EX_WITH_BYTE_LEN)
		ibv_wc_read_byte_len(o.cq);
	if (o.cq_fields & IBV_WC_EX_WITH_IMM)
		ibv_wc_read_imm_data(o.cq);
	if (o.cq_fields & IBV_WC_EX_WITH_QP_NUM)
		ibv_wc_read_qp_num(o.cq);
	if (o.cq_fields & IBV_WC_EX_WITH_SRC_QP)
		ibv_wc_read_src_qp(o.cq);
	if (o.cq_fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ibv_wc_read_completion_ts(o.cq);
	if (o.cq_fields & IBV_WC_EX_WITH_TM_INFO)
		ibv_wc_read_tm_info(o.cq, &tm);
}

static void objects_poll(void)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = objects_u8() < 8 };
	struct ibv_wc wc[4];
	u8 how = objects_u8();
	int n, err;

	if (how & 1) { /* both ways, by turns */
		n = ibv_poll_cq(objects_cq(), how >> 1 & 3, wc);
		fuzz_need(n <= (how >> 1 & 3), "more completions than asked for");
		return;
	}
	err = ibv_start_poll(o.cq, &attr);
	objects_errno(err);
	if (err != 0)
		return;
	for (n = how >> 4; err == 0 && n >= 0; n--) {
		objects_entry();
		err = n > 0 ? ibv_next_poll(o.cq) : 0;
	}
	objects_errno(err);
	ibv_end_poll(o.cq);
}

/* Parent and thread domains, over the domain that all else is of. */
static void objects_parent(void)
{
	struct ibv_td_init_attr td_attr = { .comp_mask = objects_u8() < 8 };
	struct ibv_td *td = ibv_alloc_td(o.ctx, &td_attr);
	struct ibv_parent_domain_init_attr attr = { .pd = o.pd, .td = td,
						    .comp_mask = objects_count(8) };
	struct ibv_pd *parent = (errno = 0, ibv_alloc_parent_domain(o.ctx, &attr));

	objects_made(parent);
	if (parent != NULL) {
		fuzz_need(td == NULL || ibv_dealloc_td(td) == EBUSY, "in use, and gone");
		fuzz_need(ibv_dealloc_pd(o.pd) == EBUSY, "in use, and gone");
		fuzz_need(ibv_dealloc_pd(parent) == 0, "a parent domain stays");
	}
	fuzz_need(td == NULL || ibv_dealloc_td(td) == 0, "a thread domain stays");
}

static void (*const calls[])(void) = {
	objects_region, objects_rereg,	   objects_advise,  objects_dm,	     objects_copy,
	objects_window, objects_import,	   objects_xrcd,    objects_srq,     objects_receive,
	objects_open,	objects_queue_pair, objects_connect, objects_counted, objects_post,
	objects_post,	objects_post_send, objects_wq,	    objects_table,   objects_rule,
	objects_counters, objects_poll,	   objects_parent,
};

/* ---- beginning and end ---- */

/* A raw packet queue pair would send to the host's own interface. */
static void objects_drop_net_raw(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	fuzz_need(syscall(SYS_capget, &header, data) == 0, "capget");
	data[0].effective &= ~(1u << CAP_NET_RAW);
	fuzz_need(syscall(SYS_capset, &header, data) == 0, "capset");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct ibv_device **list;
	char node[32];

	objects_drop_net_raw();
	snprintf(node, sizeof(node), "fuzz-%d", (int)getpid());
	setenv("ANYVERBS_NODE", node, 1);
	setenv("ANYVERBS_ADDR", "own", 1);
	setenv("ANYVERBS_PATHS", "shm", 1);
	list = ibv_get_device_list(NULL);
	fuzz_need(list != NULL && list[0] != NULL, "no device");
	o.ctx = ibv_open_device(list[0]);
	fuzz_need(o.ctx != NULL, "no context");
	ibv_free_device_list(list);
	o.twin = ibv_import_device(dup(o.ctx->cmd_fd));
	o.file = memfd_create("xrc", MFD_CLOEXEC);
	fuzz_need(o.twin != NULL && o.file >= 0, "no import");
	fuzz_need(ibv_query_gid(o.ctx, 1, 0, &o.gid) == 0, "no GID");
	return 0;
}

/* An XRC initiator and its target, with an SRQ that has receives. */
static void objects_begin_xrc(void)
{
	struct ibv_srq_init_attr_ex srq = { .attr = { 16, 1, 0 }, .comp_mask = 15,
					    .srq_type = IBV_SRQT_XRC, .pd = o.pd,
					    .xrcd = o.xrcd, .cq = objects_cq() };
	struct ibv_qp_init_attr_ex ini = { .qp_type = IBV_QPT_XRC_SEND,
					   .send_cq = objects_cq(),
					   .cap = { 16, 0, 2, 0, 64 },
					   .comp_mask = IBV_QP_INIT_ATTR_PD |
							IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .pd = o.pd,
					   .send_ops_flags = 0x3ff };
	struct ibv_qp_init_attr_ex tgt = { .qp_type = IBV_QPT_XRC_RECV,
					   .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					   .xrcd = o.xrcd };
	struct ibv_sge sge = { (uintptr_t)memory, 300, o.mr[0]->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	o.srq[0] = ibv_create_srq_ex(o.ctx, &srq);
	o.qp[0] = ibv_create_qp_ex(o.ctx, &ini);
	o.qp[1] = ibv_create_qp_ex(o.ctx, &tgt);
	fuzz_need(o.srq[0] != NULL && o.qp[0] != NULL && o.qp[1] != NULL, "no XRC");
	fuzz_need(ibv_get_srq_num(o.srq[0], &o.srqn[0]) == 0, "an SRQ without a number");
	for (int i = 0; i < 4; i++)
		fuzz_need(ibv_post_srq_recv(o.srq[0], &wr, &bad) == 0, "no receive");
	objects_step(o.qp[1], o.qp[0]);
	objects_step(o.qp[0], o.qp[1]);
}

/* Two connected queue pairs of RC with every operation. */
static void objects_begin_rc(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC,
					    .send_cq = objects_cq(),
					    .recv_cq = objects_cq(),
					    .cap = { 16, 16, 2, 2, 64 },
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .pd = o.pd,
					    .send_ops_flags = 0x3ff | IBV_QP_EX_WITH_ATOMIC_WRITE |
							      FLUSH_BIT };

	for (int i = 2; i < QPS; i++) {
		o.qp[i] = ibv_create_qp_ex(o.ctx, &init);
		fuzz_need(o.qp[i] != NULL, "no queue pair");
	}
	objects_step(o.qp[2], o.qp[3]);
	objects_step(o.qp[3], o.qp[2]);
}

/* A domain and a region; connections, if the input wants them. */
static void objects_begin(void)
{
	u8 how = objects_u8();
	struct ibv_cq_init_attr_ex init = { .cqe = 200 };
	struct ibv_xrcd_init_attr xrc = { .comp_mask = 3, .fd = -1, .oflags = O_CREAT };

	o.cq_fields = init.wc_flags = objects_u32() & 0x5ff;
	o.pd = ibv_alloc_pd(o.ctx);
	o.cq = ibv_create_cq_ex(o.ctx, &init);
	if (o.cq == NULL) {
		o.cq_fields = init.wc_flags = IBV_WC_STANDARD_FLAGS;
		o.cq = ibv_create_cq_ex(o.ctx, &init);
	}
	o.xrcd = ibv_open_xrcd(o.ctx, &xrc);
	o.mr[0] = ibv_reg_mr(o.pd, memory, MEMORY, 31 | ACCESS_FLUSH);
	fuzz_need(o.pd != NULL && o.cq != NULL && o.xrcd != NULL && o.mr[0] != NULL, "no objects");
	if (how & 1)
		objects_begin_xrc();
	if (how & 2)
		objects_begin_rc();
}

#define END(object, destroy, what) fuzz_need((object) == NULL || destroy(object) == 0, what)

static void objects_end(void)
{
	for (int i = 0; i < QPS; i++)
		END(o.qp[i], ibv_destroy_qp, "a queue pair stays");
	END(o.table, ibv_destroy_rwq_ind_table, "a table stays");
	for (int i = 0; i < WQS; i++)
		END(o.wq[i], ibv_destroy_wq, "a work queue stays");
	for (int i = 0; i < SRQS; i++)
		END(o.srq[i], ibv_destroy_srq, "an SRQ stays");
	for (int i = 0; i < MWS; i++)
		END(o.mw[i], ibv_dealloc_mw, "a window stays");
	for (int i = 0; i < MRS; i++)
		END(o.mr[i], ibv_dereg_mr, "a region stays");
	for (int i = 0; i < DMS; i++)
		END(o.dm[i], ibv_free_dm, "device memory stays");
	for (int i = 0; i < COUNTS; i++)
		END(o.count[i], ibv_destroy_comp_cntr, "a counter stays");
	END(o.counters, ibv_destroy_counters, "counters stay");
	END(o.xrcd, ibv_close_xrcd, "an XRC domain stays");
	fuzz_need(ibv_destroy_cq(objects_cq()) == 0, "a CQ stays");
	fuzz_need(ibv_dealloc_pd(o.pd) == 0, "a domain stays");
	o = (struct objects){ .ctx = o.ctx, .twin = o.twin, .gid = o.gid, .file = o.file };
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	o.in = (struct input){ data, size };
	objects_begin();
	for (int i = 0; i < STEPS && o.in.left != 0; i++)
		calls[objects_u8() % ARRAY_LEN(calls)]();
	objects_end();
	return 0;
}
