/* verbs_fuzz.c: what a program may ask of libibverbs: objects with any attributes, transitions in
 * any order, work requests of any content.
 *
 * The input is a list of calls on a few objects of each kind. Pointers are good, for a program that
 * hands over bad ones is beyond help: all else is the input's. Whatever is asked, the answer is
 * success or an errno value, the culprit of a list is one of it, and in the end everything can be
 * destroyed. Nothing leaves this host (ANYVERBS_PATHS).
 * In: bytes    Out: nothing, or an abort    Runs: the fuzzer's thread, and the stack's own
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "input.h"

enum { STEPS = 40, MEMORY = 32768, MRS = 3, CQS = 2, QPS = 4, AHS = 2, LIST = 3, SGES = 4 };

static struct fuzz {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	struct input in;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr[MRS];
	struct ibv_cq *cq[CQS];
	struct ibv_srq *srq;
	struct ibv_qp *qp[QPS];
	struct ibv_ah *ah[AHS];
	struct ibv_mw *mw;
} f;

static u8 memory[MEMORY];

static void fuzz_errno(int err)
{
	fuzz_need(err >= 0 && err < 140, "a result that is no errno value");
}

static u32 fuzz_u32(void)
{
	u32 value;

	input_bytes(&f.in, &value, sizeof(value));
	return value;
}

/* Mostly small. */
static u32 fuzz_count(u32 usual)
{
	u8 byte = input_u8(&f.in);

	return byte < 240 ? byte % usual : fuzz_u32();
}

static struct ibv_qp *fuzz_qp(void)
{
	return f.qp[input_u8(&f.in) % QPS];
}

static struct ibv_cq *fuzz_cq(void)
{
	return f.cq[input_u8(&f.in) % CQS];
}

/* ---- objects ---- */

static void fuzz_create_mr(void)
{
	int i = input_u8(&f.in) % MRS;
	u32 at = fuzz_u32() % MEMORY, length = fuzz_u32(), access = fuzz_u32();
	bool honest = length % 8 != 0;

	if (f.mr[i] != NULL) {
		int err = ibv_dereg_mr(f.mr[i]);

		fuzz_need(err == 0 || err == EBUSY, "a region is neither gone nor bound");
		if (err != 0)
			return; /* the window is on it */
		f.mr[i] = NULL;
	}
	if (honest) {
		f.mr[i] = ibv_reg_mr(f.pd, memory + at, length % (MEMORY - at + 1),
				     (int)(access & (access & 64 ? 15 : 0x3fffff)));
		return;
	}
	/* more than there is: whether it is taken or not, nobody uses it */
	f.mr[i] = ibv_reg_mr_iova(f.pd, memory + at, (u64)length << (access & 31), access, 7);
	if (f.mr[i] != NULL)
		fuzz_errno(ibv_dereg_mr(f.mr[i]));
	f.mr[i] = NULL;
}

static void fuzz_create_qp(void)
{
	int i = input_u8(&f.in) % QPS;
	u8 type = input_u8(&f.in);
	struct ibv_qp_init_attr attr = { .send_cq = fuzz_cq(),
					 .recv_cq = fuzz_cq(),
					 .srq = type & 32 ? f.srq : NULL,
					 .sq_sig_all = type >> 7,
					 .cap = { fuzz_count(20), fuzz_count(20), fuzz_count(5),
						  fuzz_count(5), fuzz_count(100) },
					 .qp_type = type % 16 < 12 ? 2 + type % 3 : type % 16 };

	if (f.qp[i] != NULL) {
		fuzz_errno(ibv_destroy_qp(f.qp[i]));
		f.qp[i] = NULL;
	}
	f.qp[i] = ibv_create_qp(f.pd, &attr);
	if (f.qp[i] != NULL)
		fuzz_need(attr.cap.max_send_wr <= 1 << 20, "caps that nobody offers");
}

static void fuzz_ah_attr(struct ibv_ah_attr *a)
{
	u8 how = input_u8(&f.in);

	input_bytes(&f.in, a, how & 1 ? sizeof(*a) : 0);
	if (how & 2) {
		a->is_global = 1;
		a->port_num = 1;
		a->grh.dgid = f.gid;
		a->grh.sgid_index = how >> 4 & 1;
		a->grh.hop_limit = 1;
	}
}

static void fuzz_create_ah(void)
{
	struct ibv_ah_attr attr = { .port_num = 1 };
	int i = input_u8(&f.in) % AHS;

	if (f.ah[i] != NULL)
		fuzz_errno(ibv_destroy_ah(f.ah[i]));
	fuzz_ah_attr(&attr);
	f.ah[i] = ibv_create_ah(f.pd, &attr);
}

static void fuzz_create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { fuzz_count(20), fuzz_count(5),
						    fuzz_count(9) } };
	struct ibv_srq_attr attr = init.attr;

	if (f.srq == NULL)
		f.srq = ibv_create_srq(f.pd, &init);
	else
		fuzz_errno(ibv_modify_srq(f.srq, &attr, (int)fuzz_count(4)));
}

/* ---- transitions ---- */

/* The next state on the way to sending, as a program does it right. */
static void fuzz_right_attr(const struct ibv_qp *qp, struct ibv_qp_attr *a, int *mask)
{
	static const int masks[3][2] = {
		{ IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
		{ IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		  IBV_QP_STATE },
		{ IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		  IBV_QP_STATE | IBV_QP_SQ_PSN },
	};
	int to = qp->state == IBV_QPS_RESET ? 0 : qp->state == IBV_QPS_INIT ? 1 : 2;
	const struct ibv_qp *peer = fuzz_qp();

	a->qp_state = IBV_QPS_INIT + to;
	a->port_num = 1;
	a->pkey_index = 0;
	a->path_mtu = IBV_MTU_1024;
	a->dest_qp_num = peer != NULL ? peer->qp_num : 7;
	a->qp_access_flags = 15;
	a->max_rd_atomic = a->max_dest_rd_atomic = 4;
	a->ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh.dgid = f.gid,
					   .grh.hop_limit = 1 };
	*mask = masks[to][qp->qp_type == IBV_QPT_UD];
	if (qp->qp_type == IBV_QPT_UC)
		*mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
			   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void fuzz_modify(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp *qp = fuzz_qp();
	u8 how = input_u8(&f.in);
	int mask;

	memset(&attr, 0, sizeof(attr));
	if (qp == NULL)
		return;
	if (how & 1)
		input_bytes(&f.in, &attr, sizeof(attr));
	mask = (int)(how & 2 ? fuzz_u32() & 0x3ffffff : IBV_QP_STATE);
	if (how & 2)
		attr.qp_state = input_u8(&f.in);
	if (how & 4)
		fuzz_ah_attr(&attr.ah_attr);
	if (how & 8)
		fuzz_right_attr(qp, &attr, &mask);
	fuzz_errno(ibv_modify_qp(qp, &attr, mask));
}

static void fuzz_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_srq_attr srq;
	struct ibv_port_attr port;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp = fuzz_qp();
	union ibv_gid gid;
	__be16 pkey;
	int at = (int)fuzz_count(70);

	if (qp != NULL)
		fuzz_errno(ibv_query_qp(qp, &attr, (int)fuzz_u32(), &init));
	if (f.srq != NULL)
		fuzz_errno(ibv_query_srq(f.srq, &srq));
	fuzz_errno(ibv_query_port(f.ctx, (u8)at, &port));
	ibv_query_gid(f.ctx, input_u8(&f.in), at, &gid);
	ibv_query_pkey(f.ctx, input_u8(&f.in), at, &pkey);
}

/* A tag-matching one, in place of a plain one. */
static void fuzz_create_tags(void)
{
	struct ibv_srq_init_attr_ex init = { .attr = { fuzz_count(20), fuzz_count(5), 0 },
					     .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							  IBV_SRQ_INIT_ATTR_PD |
							  IBV_SRQ_INIT_ATTR_CQ |
							  IBV_SRQ_INIT_ATTR_TM,
					     .srq_type = IBV_SRQT_TM,
					     .pd = f.pd,
					     .cq = f.cq[0],
					     .tm_cap = { fuzz_count(10), fuzz_count(10) } };

	if (f.srq == NULL)
		f.srq = ibv_create_srq_ex(f.ctx, &init);
}

/* ---- requests ---- */

static void fuzz_sges(struct ibv_sge sge[SGES], bool inlined)
{
	for (int i = 0; i < SGES; i++) {
		struct ibv_mr *mr = f.mr[input_u8(&f.in) % MRS];
		u32 at = fuzz_u32();
		u16 length;

		input_bytes(&f.in, &length, sizeof(length));
		sge[i] = (struct ibv_sge){ (uintptr_t)memory + at % (2 * MEMORY), length,
					   mr != NULL ? mr->lkey : at };
		if (inlined) /* read by the call itself */
			sge[i].addr = (uintptr_t)memory, sge[i].length %= MEMORY;
		else if (length == 0xffff)
			sge[i].length = at;
	}
}

static void fuzz_ud(struct ibv_send_wr *wr)
{
	const struct ibv_qp *peer = fuzz_qp();

	wr->wr.ud.ah = f.ah[input_u8(&f.in) % AHS];
	wr->wr.ud.remote_qpn = peer != NULL ? peer->qp_num : fuzz_u32();
	wr->wr.ud.remote_qkey = input_u8(&f.in);
}

static void fuzz_fill_send(const struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct ibv_mr *mr = f.mr[input_u8(&f.in) % MRS];
	u8 opcode = input_u8(&f.in), count = input_u8(&f.in), flags = input_u8(&f.in);

	memset(wr, 0, sizeof(*wr));
	fuzz_sges(sge, flags & IBV_SEND_INLINE);
	wr->sg_list = sge;
	wr->num_sge = count < 200 ? count % (SGES + 1) : -count;
	wr->opcode = opcode < 230 ? opcode % 12 : opcode;
	wr->send_flags = flags & (flags >= 128 ? 0xff : 15);
	wr->imm_data = fuzz_u32();
	wr->wr_id = (u64)wr->opcode << 32 | wr->send_flags;
	if (qp->qp_type == IBV_QPT_UD) {
		fuzz_ud(wr);
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = (uintptr_t)memory + 8 * input_u8(&f.in);
		wr->wr.atomic.rkey = mr != NULL ? mr->rkey : 0;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)memory + fuzz_u32() % (2 * MEMORY);
		wr->wr.rdma.rkey = mr != NULL ? mr->rkey : 0;
	}
	if (wr->opcode == IBV_WR_BIND_MW) {
		wr->bind_mw.mw = f.mw;
		wr->bind_mw.rkey = f.mw != NULL ? f.mw->rkey : 0;
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory + opcode,
								   count, flags };
	}
}

static void fuzz_post_send(void)
{
	struct ibv_sge sge[LIST][SGES];
	struct ibv_send_wr wr[LIST], *bad = NULL;
	struct ibv_qp *qp = fuzz_qp();
	int n = 1 + input_u8(&f.in) % LIST, err;

	if (qp == NULL)
		return;
	for (int i = 0; i < n; i++) {
		fuzz_fill_send(qp, &wr[i], sge[i]);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	err = ibv_post_send(qp, wr, &bad);
	fuzz_errno(err);
	fuzz_need(err == 0 || (bad >= wr && bad < wr + n), "the culprit is none of the list");
}

static void fuzz_post_receive(void)
{
	struct ibv_sge sge[SGES];
	struct ibv_recv_wr wr = { .sg_list = sge }, *bad = NULL;
	struct ibv_qp *qp = fuzz_qp();
	u8 count = input_u8(&f.in);
	int err = 0;

	wr.num_sge = count < 200 ? count % (SGES + 1) : -count;
	fuzz_sges(sge, false);
	if (count & 1 && f.srq != NULL)
		err = ibv_post_srq_recv(f.srq, &wr, &bad);
	else if (qp != NULL)
		err = ibv_post_recv(qp, &wr, &bad);
	fuzz_errno(err);
	fuzz_need(err == 0 || bad == &wr, "the culprit is none of the list");
}

static void fuzz_fill_op(struct ibv_ops_wr *wr, struct ibv_sge *sge)
{
	u8 opcode = input_u8(&f.in), count = input_u8(&f.in), flags = input_u8(&f.in);

	*wr = (struct ibv_ops_wr){ .wr_id = flags,
				   .opcode = opcode < 230 ? opcode % 3 : opcode,
				   .flags = flags & (flags >= 128 ? 0xff : 3) };
	fuzz_sges(sge, false);
	wr->tm.unexpected_cnt = fuzz_count(10);
	wr->tm.handle = fuzz_count(10);
	wr->tm.add.recv_wr_id = opcode;
	wr->tm.add.sg_list = sge;
	wr->tm.add.num_sge = count < 200 ? count % (SGES + 1) : count < 230 ? count : -count;
	wr->tm.add.tag = fuzz_count(4);
	wr->tm.add.mask = fuzz_count(4);
}

/* On whatever SRQ there is. */
static void fuzz_post_ops(void)
{
	struct ibv_sge sge[LIST][SGES];
	struct ibv_ops_wr wr[LIST], *bad = NULL;
	int n = 1 + input_u8(&f.in) % LIST, err;

	if (f.srq == NULL)
		return;
	for (int i = 0; i < n; i++) {
		fuzz_fill_op(&wr[i], sge[i]);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	err = ibv_post_srq_ops(f.srq, wr, &bad);
	fuzz_errno(err);
	fuzz_need(err == 0 || (bad >= wr && bad < wr + n), "the culprit is none of the list");
}

static void fuzz_bind(void)
{
	struct ibv_mr *mr = f.mr[input_u8(&f.in) % MRS];
	struct ibv_mw_bind bind = { .send_flags = input_u8(&f.in) & 15,
				    .bind_info = { mr, (uintptr_t)memory + fuzz_u32() % MEMORY,
						   fuzz_u32() % MEMORY, input_u8(&f.in) } };
	struct ibv_qp *qp = fuzz_qp();

	if (qp != NULL && f.mw != NULL && mr != NULL)
		fuzz_errno(ibv_bind_mw(qp, f.mw, &bind));
}

/* ---- completions ---- */

static void fuzz_poll(void)
{
	struct ibv_wc wc[8];
	int want = input_u8(&f.in) % 9, n = ibv_poll_cq(fuzz_cq(), want, wc);

	fuzz_need(n <= want, "more completions than asked for");
	for (int i = 0; i < n; i++)
		fuzz_need(wc[i].status <= IBV_WC_TM_RNDV_INCOMPLETE, "a status that there is not");
}

static void fuzz_arm(void)
{
	struct ibv_cq *cq = fuzz_cq();
	struct ibv_modify_cq_attr attr = {
		.attr_mask = fuzz_count(4),
		.moderate = { (uint16_t)fuzz_count(70), (uint16_t)fuzz_count(9) },
	};
	u8 how = input_u8(&f.in);

	fuzz_errno(ibv_req_notify_cq(cq, how & 1));
	if (how & 2)
		fuzz_errno(ibv_resize_cq(cq, (int)fuzz_count(200)));
	if (how & 4)
		fuzz_errno(ibv_modify_cq(cq, &attr));
}

/* ---- the extended calls ---- */

static void fuzz_extended(void)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = fuzz_count(100),
					  .comp_vector = fuzz_count(3),
					  .wc_flags = fuzz_u32() & 0x1fff,
					  .comp_mask = fuzz_count(8),
					  .flags = fuzz_count(4) };
	struct ibv_qp_init_attr_ex qp = { .qp_type = 2 + fuzz_count(5),
					  .send_cq = f.cq[0],
					  .recv_cq = f.cq[1],
					  .pd = f.pd,
					  .comp_mask = IBV_QP_INIT_ATTR_PD | fuzz_count(256),
					  .cap = { 2, 2, 1, 1, 16 },
					  .send_ops_flags = fuzz_count(1024) };
	struct ibv_srq_init_attr_ex srq = { .attr = { 4, 1, 0 },
					    .comp_mask = fuzz_count(64),
					    .srq_type = fuzz_count(4),
					    .pd = f.pd,
					    .cq = f.cq[0] };
	struct ibv_cq_ex *made = ibv_create_cq_ex(f.ctx, &cq);
	struct ibv_srq *queue = ibv_create_srq_ex(f.ctx, &srq);
	struct ibv_qp *pair = ibv_create_qp_ex(f.ctx, &qp);

	if (made != NULL)
		fuzz_errno(ibv_destroy_cq(ibv_cq_ex_to_cq(made)));
	if (queue != NULL)
		fuzz_errno(ibv_destroy_srq(queue));
	if (pair != NULL)
		fuzz_errno(ibv_destroy_qp(pair));
}

static void (*const calls[])(void) = {
	fuzz_create_mr, fuzz_create_qp, fuzz_create_ah,	   fuzz_create_srq, fuzz_modify,
	fuzz_modify,	fuzz_modify,	fuzz_query,	   fuzz_post_send,  fuzz_post_send,
	fuzz_post_send, fuzz_poll,	fuzz_post_receive, fuzz_bind,	    fuzz_arm,
	fuzz_extended,	fuzz_create_tags, fuzz_post_ops,
};

/* ---- beginning and end ---- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct ibv_device **list;
	char node[32];

	snprintf(node, sizeof(node), "fuzz-%d", (int)getpid());
	setenv("ANYVERBS_NODE", node, 1);
	setenv("ANYVERBS_ADDR", "own", 1);
	setenv("ANYVERBS_PATHS", "shm", 1);
	list = ibv_get_device_list(NULL);
	fuzz_need(list != NULL && list[0] != NULL, "no device");
	f.ctx = ibv_open_device(list[0]);
	fuzz_need(f.ctx != NULL, "no context");
	ibv_free_device_list(list);
	fuzz_need(ibv_query_gid(f.ctx, 1, 0, &f.gid) == 0, "no GID");
	return 0;
}

static void fuzz_begin(void)
{
	f.pd = ibv_alloc_pd(f.ctx);
	f.channel = ibv_create_comp_channel(f.ctx);
	f.mr[0] = ibv_reg_mr(f.pd, memory, MEMORY, 15);
	f.mw = ibv_alloc_mw(f.pd, IBV_MW_TYPE_1);
	fuzz_need(f.pd != NULL && f.channel != NULL && f.mr[0] != NULL, "no objects");
	for (int i = 0; i < CQS; i++) {
		f.cq[i] = ibv_create_cq(f.ctx, 60, NULL, i == 0 ? f.channel : NULL, 0);
		fuzz_need(f.cq[i] != NULL, "no CQ");
	}
}

static void fuzz_end(void)
{
	for (int i = 0; i < QPS; i++)
		fuzz_need(f.qp[i] == NULL || ibv_destroy_qp(f.qp[i]) == 0, "a queue pair stays");
	fuzz_need(f.srq == NULL || ibv_destroy_srq(f.srq) == 0, "an SRQ stays");
	for (int i = 0; i < CQS; i++)
		fuzz_need(ibv_destroy_cq(f.cq[i]) == 0, "a CQ stays");
	fuzz_need(f.mw == NULL || ibv_dealloc_mw(f.mw) == 0, "a window stays");
	for (int i = 0; i < MRS; i++)
		fuzz_need(f.mr[i] == NULL || ibv_dereg_mr(f.mr[i]) == 0, "a region stays");
	for (int i = 0; i < AHS; i++)
		fuzz_need(f.ah[i] == NULL || ibv_destroy_ah(f.ah[i]) == 0, "a handle stays");
	fuzz_need(ibv_destroy_comp_channel(f.channel) == 0, "a channel stays");
	fuzz_need(ibv_dealloc_pd(f.pd) == 0, "a domain stays");
	memset(f.qp, 0, sizeof(f.qp));
	memset(f.mr, 0, sizeof(f.mr));
	memset(f.ah, 0, sizeof(f.ah));
	f.srq = NULL;
	f.mw = NULL;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	f.in = (struct input){ data, size };
	fuzz_begin();
	for (int i = 0; i < STEPS && f.in.left != 0; i++)
		calls[input_u8(&f.in) % ARRAY_LEN(calls)]();
	fuzz_end();
	return 0;
}
