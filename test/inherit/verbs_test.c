/* verbs_test.c: every verb of a forked child on an object of its parent of every kind: it returns,
 * with an errno or as ever, and the parent's objects work afterwards.
 * In:    the first device    Out: the exit status
 * Runs:  one thread; a child for each call    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/tm_types.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs_bed.h"

int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
void ibv_free_buf(struct ibv_buf *buf);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, void *attr);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t size);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, void *type);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, void *attr);
void *ibv_alloc_dmah(struct ibv_context *context, void *attr);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter, void *attr);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);

/* ---- contexts, domains, memory ---- */

static void calls_of_context(void)
{
	struct ibv_device_attr device;
	struct ibv_device_attr_ex device_ex;
	struct ibv_port_attr port;
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_async_event event;
	struct ibv_gid_entry entry, table[256];
	union ibv_gid gid;
	uint64_t speed;
	uint32_t type;
	uint16_t pkey;

	inherit_about("context");
	CALL(0, ibv_query_device(bed.context, &device));
	CALL(0, ibv_query_device_ex(bed.context, NULL, &device_ex));
	CALL(0, ibv_query_port(bed.context, 1, &port));
	CALL(0, ibv_query_port_speed(bed.context, 1, &speed));
	CALL(0, ibv_query_gid(bed.context, 1, bed.gid_index, &gid));
	CALL(0, ibv_query_gid_ex(bed.context, 1, bed.gid_index, &entry, 0));
	CALL(0, ibv_query_gid_table(bed.context, table, 256, 0) > 0 ? 0 : EIO);
	CALL(0, ibv_query_pkey(bed.context, 1, 0, &pkey));
	CALL(0, ibv_get_pkey_index(bed.context, 1, 0xffff));
	CALL(0, ibv_query_rt_values_ex(bed.context, &values));
	CALL(0, ibv_get_async_event(bed.context, &event));
	CALL(0, ibv_import_device(bed.context->cmd_fd));
	CALL(0, ibv_import_pd(bed.context, bed.pd->handle));
	CALL(0, ibv_alloc_pd(bed.context));
	CALL(0, ibv_open_device(bed.context->device));
	CALL(0, ibv_close_device(bed.context));
	CALL(0, ibv_close_device(ibv_open_device(bed.context->device)));
	CALL(0, ibv_get_device_list(NULL));
	CALL_VOID(ibv_free_device_list(bed.devices));
	CALL_VOID(ibv_free_device_list(ibv_get_device_list(NULL)));
	CALL(0, ibv_get_device_guid(bed.context->device) != 0 ? 0 : EIO);
	CALL(0, ibv_get_device_index(bed.context->device));
	CALL(0, ibv_query_gid_type(bed.context, 1, bed.gid_index, &type));
	CALL(ANY, ibv_alloc_dmah(bed.context, NULL));
	CALL(0, ibv_is_fork_initialized() < 0);
	CALL(0, ibv_get_device_name(bed.context->device));
	CALL(0, ibv_fork_init());
}

static void calls_of_domains(void)
{
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = bed.pd, .td = bed.td };

	inherit_about("domains");
	CALL(EBUSY, ibv_dealloc_pd(bed.pd));
	CALL(0, ibv_dealloc_pd(bed.parent));
	CALL(0, ibv_alloc_parent_domain(bed.context, &parent));
	CALL(0, ibv_dealloc_pd(ibv_alloc_parent_domain(bed.context, &parent)));
	CALL(0, ibv_alloc_td(bed.context, &td));
	CALL(EBUSY, ibv_dealloc_td(bed.td));
	CALL_VOID(ibv_unimport_pd(ibv_import_pd(bed.context, bed.pd->handle)));
}

static int rereg(int what)
{
	int err = ibv_rereg_mr(bed.mr, what, bed.pd, bed.memory, BED_ROOM, IBV_ACCESS_LOCAL_WRITE);

	return err == 0 ? 0 : errno;
}

static void calls_of_regions(void)
{
	enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, ADDRESS = 1 << 1 };
	struct {
		size_t length;
		int access;
		uint64_t mask, iova;
		void *addr, *room[4];
	} by_address = { BED_BYTES, ACCESS, ADDRESS, 0, bed.memory, { NULL } };
	struct ibv_sge sge = bed_sge();

	inherit_about("memory regions");
	CALL(0, ibv_reg_mr(bed.pd, bed.memory, BED_BYTES, ACCESS));
	CALL(0, ibv_reg_mr(bed.parent, bed.memory, BED_BYTES, ACCESS));
	CALL(0, ibv_dereg_mr(ibv_reg_mr(bed.pd, bed.memory, BED_BYTES, ACCESS)));
	CALL(0, ibv_reg_mr_iova(bed.pd, bed.memory, BED_BYTES, 0, ACCESS));
	CALL(0, ibv_reg_mr_ex(bed.pd, &by_address));
	CALL(EBADF, ibv_reg_dmabuf_mr(bed.pd, 0, 64, 0, -1, ACCESS));
	CALL(EIO, rereg(IBV_REREG_MR_CHANGE_ACCESS));
	CALL(ANY, rereg(IBV_REREG_MR_CHANGE_PD));
	CALL(ANY, rereg(IBV_REREG_MR_CHANGE_TRANSLATION));
	CALL(ENOENT, ibv_advise_mr(bed.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	CALL(0, ibv_dereg_mr(bed.mr));
	CALL(0, ibv_dereg_mr(bed.null_mr));
	CALL(0, ibv_dereg_mr(bed.dm_mr));
	CALL(0, ibv_dereg_mr(bed.imported_mr));
	CALL_VOID(ibv_unimport_mr(bed.imported_mr));
	CALL(0, ibv_import_mr(bed.pd, bed.mr->handle));
	CALL(0, ibv_alloc_null_mr(bed.pd));
	CALL(0, munmap(bed.memory, BED_BYTES) + ibv_dereg_mr(bed.mr));
	CALL(0, ibv_reg_buf_mr(bed.pd, bed.buf, bed.buf_memory, 64, ACCESS));
	CALL(ENODATA, ibv_export_buf_dmabuf_fd(bed.buf));
	CALL_VOID(ibv_free_buf(bed.buf));
}

static int bind_type1(void)
{
	struct ibv_mw_bind bind = { .bind_info = { .mr = bed.mr,
						   .addr = (uintptr_t)bed.memory,
						   .length = 64,
						   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };

	return ibv_bind_mw(bed.a[BED_RC], bed.mw, &bind);
}

static int bind_type2(bool ends)
{
	struct ibv_send_wr *bad, wr = { .opcode = ends ? IBV_WR_LOCAL_INV : IBV_WR_BIND_MW };

	if (ends) {
		wr.invalidate_rkey = bed.mw2->rkey;
	} else {
		wr.bind_mw.mw = bed.mw2;
		wr.bind_mw.rkey = ibv_inc_rkey(bed.mw2->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = bed.mr,
								  .addr = (uintptr_t)bed.memory,
								  .length = 64 };
	}
	return ibv_post_send(bed.a[BED_RC], &wr, &bad);
}

static void calls_of_windows(void)
{
	char bytes[64] = "";

	inherit_about("windows, device memory");
	CALL(0, ibv_alloc_mw(bed.pd, IBV_MW_TYPE_1));
	CALL(0, ibv_alloc_mw(bed.pd, IBV_MW_TYPE_2));
	CALL(0, ibv_dealloc_mw(ibv_alloc_mw(bed.pd, IBV_MW_TYPE_2)));
	CALL(0, ibv_dealloc_mw(bed.mw));
	CALL(0, ibv_dealloc_mw(bed.mw2));
	CALL(0, bind_type1());
	CALL(0, bind_type2(false));
	CALL(0, bind_type2(true));
	CALL(0, ibv_memcpy_to_dm(bed.dm, 0, bytes, sizeof(bytes)));
	CALL(0, ibv_memcpy_from_dm(bytes, bed.dm, 0, sizeof(bytes)));
	CALL(0, ibv_reg_dm_mr(bed.pd, bed.dm, 0, 64, IBV_ACCESS_ZERO_BASED));
	CALL(0, ibv_import_dm(bed.context, bed.dm->handle));
	CALL_VOID(ibv_unimport_dm(ibv_import_dm(bed.context, bed.dm->handle)));
	CALL(EOPNOTSUPP, ibv_dm_export_dmabuf_fd(bed.dm));
	CALL(EBUSY, ibv_free_dm(bed.dm));
	CALL(0, ibv_dereg_mr(bed.dm_mr) + ibv_free_dm(bed.dm));
}

/* ---- completion queues ---- */

static int poll_all(struct ibv_cq *cq)
{
	struct ibv_wc wc[BED_DEPTH];
	int n;

	do
		n = ibv_poll_cq(cq, BED_DEPTH, wc);
	while (n > 0);
	return n;
}

static int poll_extended(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	int err = ibv_start_poll(cq, &attr);

	if (err != 0)
		return err;
	(void)(ibv_wc_read_opcode(cq) + ibv_wc_read_vendor_err(cq) + ibv_wc_read_byte_len(cq));
	(void)(ibv_wc_read_imm_data(cq) + ibv_wc_read_qp_num(cq) + ibv_wc_read_src_qp(cq));
	(void)(ibv_wc_read_wc_flags(cq) + ibv_wc_read_slid(cq) + ibv_wc_read_sl(cq));
	(void)(ibv_wc_read_dlid_path_bits(cq) + ibv_wc_read_completion_ts(cq));
	(void)ibv_wc_read_completion_wallclock_ns(cq);
	err = ibv_next_poll(cq);
	ibv_end_poll(cq);
	return err;
}

static int take_event(void)
{
	struct ibv_cq *cq;
	void *context;
	int err = ibv_get_cq_event(bed.channel, &cq, &context);

	if (err == 0)
		ibv_ack_cq_events(cq, 1);
	return err;
}

static int arm_and_send(void)
{
	int err = ibv_req_notify_cq(bed.cq, 0);

	if (err == 0)
		err = bed_send(BED_RC, IBV_WR_SEND, IBV_SEND_SIGNALED);
	return err != 0 ? err : take_event();
}

static int create_cq_ex(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 4,
					    .channel = bed.channel,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					    .parent_domain = bed.parent };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(bed.context, &init);

	return cq == NULL ? errno : ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

/* As the parent would have to: what it has taken is acknowledged first. */
static int end_spare_cq(void)
{
	ibv_ack_cq_events(bed.spare_cq, 1);
	return ibv_destroy_cq(bed.spare_cq);
}

static int end_last(void)
{
	ibv_ack_async_event(&bed.owed);
	return ibv_destroy_qp(bed.last[0]);
}

static void calls_of_cqs(void)
{
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					       .moderate = { 4, 100 } };

	inherit_about("completion queues, channels");
	CALL(0, ibv_create_comp_channel(bed.context));
	CALL(0, ibv_create_cq(bed.context, 4, NULL, bed.channel, 0));
	CALL(0, ibv_destroy_cq(ibv_create_cq(bed.context, 4, NULL, bed.channel, 0)));
	CALL(0, create_cq_ex());
	CALL(0, poll_all(bed.cq));
	CALL(0, poll_all(bed.spare_cq));
	CALL(0, poll_extended(bed.cq_ex));
	CALL(0, poll_all(ibv_cq_ex_to_cq(bed.cq_ex)));
	CALL(0, ibv_resize_cq(ibv_cq_ex_to_cq(bed.cq_ex), 128) + poll_extended(bed.cq_ex));
	CALL(0, ibv_req_notify_cq(bed.cq, 0));
	CALL(0, ibv_req_notify_cq(bed.spare_cq, 1));
	CALL(0, ibv_resize_cq(bed.cq, 512));
	CALL(0, ibv_resize_cq(bed.spare_cq, 512));
	CALL(EIO, ibv_modify_cq(bed.cq, &moderate));
	CALL(EAGAIN, take_event());
	CALL(0, arm_and_send());
	CALL_VOID(ibv_ack_cq_events(bed.spare_cq, 1));
	CALL(EBUSY, ibv_destroy_cq(bed.cq));
	CALL(EBUSY, ibv_destroy_cq(bed.spare_cq));
	CALL(0, ibv_destroy_qp(bed.failed) + end_spare_cq());
	CALL(EBUSY, ibv_destroy_cq(ibv_cq_ex_to_cq(bed.cq_ex)));
	CALL(0, ibv_destroy_qp(bed.failed_ex) + poll_all(ibv_cq_ex_to_cq(bed.cq_ex)) +
			ibv_destroy_cq(ibv_cq_ex_to_cq(bed.cq_ex)));
	CALL(EBUSY, ibv_destroy_comp_channel(bed.channel));
}

/* ---- shared receive queues, XRC domains ---- */

static int add_tag(bool again)
{
	struct ibv_sge sge = bed_sge();
	struct ibv_ops_wr *bad, wr = { .opcode = again ? IBV_WR_TAG_SYNC : IBV_WR_TAG_ADD,
				       .flags = IBV_OPS_SIGNALED };

	wr.tm.add.sg_list = &sge;
	wr.tm.add.num_sge = 1;
	return ibv_post_srq_ops(bed.tag_srq, &wr, &bad);
}

static int open_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(bed.context, &attr);

	return xrcd == NULL ? errno : ibv_close_xrcd(xrcd);
}

static int create_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = bed.pd,
		.xrcd = bed.xrcd,
		.cq = bed.cq
	};
	struct ibv_srq *srq = ibv_create_srq_ex(bed.context, &init);

	return srq == NULL ? errno : ibv_destroy_srq(srq);
}

static int open_target(void)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM |
						      IBV_QP_OPEN_ATTR_XRCD |
						      IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = bed.b[BED_XRC]->qp_num,
					 .xrcd = bed.xrcd,
					 .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp *qp = ibv_open_qp(bed.context, &attr);

	return qp == NULL ? errno : ibv_destroy_qp(qp);
}

static void calls_of_srq(struct ibv_srq *srq, const char *kind)
{
	struct ibv_srq_attr attr = { .max_wr = 2 * BED_DEPTH, .srq_limit = 1 };
	uint32_t number;

	inherit_about(kind);
	CALL(0, bed_receive_shared(srq));
	CALL(0, ibv_query_srq(srq, &attr));
	CALL(0, ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	CALL(0, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	CALL(ANY, ibv_get_srq_num(srq, &number));
	CALL(ANY, ibv_destroy_srq(srq));
}

static void calls_of_srqs(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };

	calls_of_srq(bed.srq, "SRQ");
	calls_of_srq(bed.tag_srq, "SRQ with tags");
	calls_of_srq(bed.xrc_srq, "SRQ of XRC");
	CALL(0, ibv_destroy_srq(ibv_create_srq(bed.pd, &init)));
	CALL(0, add_tag(false));
	CALL(0, add_tag(true));
	inherit_about("XRC domain");
	CALL(0, open_xrcd());
	CALL(0, create_xrc_srq());
	CALL(0, open_target());
	CALL(EBUSY, ibv_close_xrcd(bed.xrcd));
	CALL(0, ibv_destroy_qp(bed.b[BED_XRC]) + ibv_destroy_srq(bed.xrc_srq) +
			  ibv_close_xrcd(bed.xrcd));
}

/* ---- queue pairs ---- */

static int modify_to(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .qp_state = to, .port_num = 1, .path_mtu = IBV_MTU_1024,
				    .ah_attr = bed.address, .dest_qp_num = 1 };

	return ibv_modify_qp(qp, &attr, conn_mask(qp->qp_type, to));
}

static int query(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

/* A list longer than the queue. */
static int send_many(enum bed_pair pair)
{
	int err = 0;

	for (int i = 0; i < 4 * BED_DEPTH && err == 0; i++) {
		err = bed_send(pair, IBV_WR_SEND, IBV_SEND_SIGNALED);
		if (err == 0 && i % 8 == 0)
			err = poll_all(bed.cq);
	}
	return err;
}

/* One request by the calls of ibv_wr_*. */
static int build(enum bed_pair pair, enum ibv_wr_opcode op, bool is_inline, bool abort)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(bed.a[pair]);
	uint64_t to = (uintptr_t)bed.memory + BED_ROOM;
	struct ibv_sge sge = bed_sge();
	uint32_t srqn;

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (op == IBV_WR_SEND)
		ibv_wr_send(qp);
	else if (op == IBV_WR_SEND_WITH_IMM)
		ibv_wr_send_imm(qp, 1);
	else if (op == IBV_WR_RDMA_WRITE)
		ibv_wr_rdma_write(qp, bed.mr->rkey, to);
	else if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
		ibv_wr_rdma_write_imm(qp, bed.mr->rkey, to, 1);
	else if (op == IBV_WR_RDMA_READ)
		ibv_wr_rdma_read(qp, bed.mr->rkey, to);
	else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		ibv_wr_atomic_fetch_add(qp, bed.mr->rkey, to, 1);
	else if (op == IBV_WR_ATOMIC_CMP_AND_SWP)
		ibv_wr_atomic_cmp_swp(qp, bed.mr->rkey, to, 0, 1);
	else if (op == IBV_WR_SEND_WITH_INV)
		ibv_wr_send_inv(qp, bed.mw2->rkey);
	else if (op == IBV_WR_LOCAL_INV)
		ibv_wr_local_inv(qp, bed.mw2->rkey);
	else if (op == IBV_WR_ATOMIC_WRITE)
		ibv_wr_atomic_write(qp, bed.mr->rkey, to, bed.memory);
	if (pair == BED_UD)
		ibv_wr_set_ud_addr(qp, bed.ah, bed.b[pair]->qp_num, 0x11111111);
	if (pair == BED_XRC && ibv_get_srq_num(bed.xrc_srq, &srqn) == 0)
		ibv_wr_set_xrc_srqn(qp, srqn);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP)
		sge.length = 8;
	if (is_inline)
		ibv_wr_set_inline_data(qp, bed.memory, 32);
	else if (op != IBV_WR_LOCAL_INV)
		ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	if (abort)
		return ibv_wr_abort(qp), poll_all(bed.cq);
	return ibv_wr_complete(qp) + poll_all(bed.cq);
}

/* A WRITE of two elements, and the binding of a window. */
static int build_lists(enum bed_pair pair, bool is_inline)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(bed.a[pair]);
	struct ibv_data_buf bufs[2] = { { bed.memory, 8 }, { bed.memory + 8, 8 } };
	struct ibv_mw_bind_info bind = { .mr = bed.mr,
					 .addr = (uintptr_t)bed.memory,
					 .length = 64 };
	struct ibv_sge sges[2] = { bed_sge(), bed_sge() };

	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, bed.mr->rkey, (uintptr_t)bed.memory + BED_ROOM);
	if (is_inline)
		ibv_wr_set_inline_data_list(qp, 2, bufs);
	else
		ibv_wr_set_sge_list(qp, 2, sges);
	ibv_wr_bind_mw(qp, bed.mw2, ibv_inc_rkey(bed.mw2->rkey), &bind);
	return ibv_wr_complete(qp) + poll_all(bed.cq);
}

static void calls_of_sender(enum bed_pair pair)
{
	bool one_sided = pair != BED_UD;
	bool answered = one_sided && pair != BED_UC;

	CALL(0, bed_send(pair, IBV_WR_SEND, IBV_SEND_SIGNALED) + poll_all(bed.cq));
	CALL(0, bed_send(pair, IBV_WR_SEND, 0) + poll_all(bed.cq));
	CALL(0, bed_send(pair, IBV_WR_SEND, IBV_SEND_INLINE) + poll_all(bed.cq));
	CALL(0, bed_send(pair, IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED) + poll_all(bed.cq));
	CALL(0, send_many(pair));
	CALL(0, build(pair, IBV_WR_SEND, false, false));
	CALL(0, build(pair, IBV_WR_SEND, true, false));
	CALL(0, build(pair, IBV_WR_SEND, false, true));
	CALL(0, build(pair, IBV_WR_SEND_WITH_IMM, false, false));
	for (int i = 0; one_sided && i < 2; i++) {
		int flags = i == 0 ? IBV_SEND_SIGNALED : IBV_SEND_INLINE;

		CALL(0, bed_send(pair, IBV_WR_RDMA_WRITE, flags) + poll_all(bed.cq));
		CALL(0, bed_send(pair, IBV_WR_RDMA_WRITE_WITH_IMM, flags) + poll_all(bed.cq));
		CALL(0, build(pair, IBV_WR_RDMA_WRITE, i != 0, false));
		CALL(0, build(pair, IBV_WR_RDMA_WRITE_WITH_IMM, i != 0, false));
	}
	if (!answered)
		return;
	CALL(0, bed_send(pair, IBV_WR_RDMA_READ, 0) + poll_all(bed.cq));
	CALL(0, bed_send(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 0) + poll_all(bed.cq));
	CALL(0, build(pair, IBV_WR_RDMA_READ, false, false));
	CALL(0, build(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, false, false));
	CALL(0, build(pair, IBV_WR_ATOMIC_CMP_AND_SWP, false, false));
	if (pair == BED_XRC)
		return;
	CALL(0, build(pair, IBV_WR_SEND_WITH_INV, false, false));
	CALL(0, build(pair, IBV_WR_LOCAL_INV, false, false));
	CALL(ANY, build(pair, IBV_WR_ATOMIC_WRITE, false, false));
	CALL(ANY, build_lists(pair, false));
	CALL(ANY, build_lists(pair, true));
}

static void calls_of_qp(struct ibv_qp *qp)
{
	struct ibv_ece ece = { 0 };

	CALL(ANY, bed_receive(qp) + poll_all(bed.cq));
	CALL(0, query(qp));
	CALL(EIO, modify_to(qp, IBV_QPS_ERR) + poll_all(bed.cq));
	CALL(EIO, modify_to(qp, IBV_QPS_RESET) + poll_all(bed.cq));
	CALL(EIO, modify_to(qp, IBV_QPS_INIT));
	CALL(EIO, modify_to(qp, IBV_QPS_RTR));
	CALL(EIO, modify_to(qp, IBV_QPS_SQD));
	CALL(EOPNOTSUPP, ibv_query_ece(qp, &ece));
	CALL(0, ibv_set_ece(qp, &ece));
	CALL(0, ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0));
	CALL(ANY, ibv_attach_mcast(qp, &bed.group, 0xc000));
	CALL(ANY, ibv_detach_mcast(qp, &bed.group, 0xc000));
	CALL(ANY, ibv_destroy_qp(qp));
	CALL(ANY, ibv_destroy_qp(qp) + poll_all(bed.cq));
}

static int create_qp(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = bed.cq,
					 .recv_cq = bed.cq,
					 .srq = srq,
					 .qp_type = type,
					 .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(bed.pd, &init);

	return qp == NULL ? errno : ibv_destroy_qp(qp);
}

/* Is a request taken, and flushed? */
static int flushes(enum bed_pair pair)
{
	struct ibv_wc wc;
	int err = bed_send(pair, IBV_WR_SEND, IBV_SEND_SIGNALED);

	if (err != 0)
		return err;
	if (ibv_poll_cq(bed.cq, 1, &wc) != 1)
		return ENOENT;
	return wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == bed.a[pair]->qp_num ? 0 : EBADMSG;
}

static void calls_of_qps(void)
{
	uint32_t ops[2] = { 0, 1 };

	for (int i = 0; i < BED_PAIRS; i++) {
		inherit_about(bed_pairs[i]);
		CALL(0, flushes((enum bed_pair)i));
		calls_of_sender((enum bed_pair)i);
		calls_of_qp(bed.a[i]);
		calls_of_qp(bed.b[i]);
	}
	inherit_about("UD in a group");
	CALL(EIO, ibv_attach_mcast(bed.a[BED_UD], &bed.group, 0xc000));
	CALL(0, ibv_detach_mcast(bed.b[BED_UD], &bed.group, 0xc000));
	CALL(0, ibv_detach_mcast(bed.b[BED_UD], &bed.group, 0xc000) +
			ibv_destroy_qp(bed.b[BED_UD]));
	inherit_about("QP in RESET");
	calls_of_qp(bed.fresh);
	CALL(EIO, ibv_qp_attach_comp_cntr(bed.fresh, bed.counter, ops));
	CALL(0, ibv_destroy_qp(bed.fresh) + ibv_destroy_comp_cntr(bed.counter));
	inherit_about("QP in error");
	CALL(0, bed_receive(bed.failed) + poll_all(bed.spare_cq));
	CALL(0, ibv_destroy_qp(bed.failed));
	CALL(0, ibv_destroy_qp(bed.last[1]));
	CALL(0, end_last());
	inherit_about("QP of a child over its parent's objects");
	for (int i = 0; i < BED_STUCK_RC; i++)
		if (i != BED_TAGS)
			CALL(0, bed_own((enum bed_pair)i));
	CALL(0, create_qp(IBV_QPT_RC, NULL));
	CALL(0, create_qp(IBV_QPT_UD, NULL));
	CALL(0, create_qp(IBV_QPT_RC, bed.srq));
	CALL(0, create_qp(IBV_QPT_RC, bed.tag_srq));
}

/* ---- addresses, counters, raw packets ---- */

static int create_ah(void)
{
	struct ibv_ah *ah = ibv_create_ah(bed.pd, &bed.address);

	return ah == NULL ? errno : ibv_destroy_ah(ah);
}

static void calls_of_counters(void)
{
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5, .slid = bed.address.dlid };
	struct ibv_grh *grh = (struct ibv_grh *)bed.memory;
	struct ibv_ah_attr address = bed.address;
	uint32_t comp[3] = { 0, 0, 0 }, caps[4];
	uint64_t value;
	uint16_t vlan;
	uint8_t mac[6];

	inherit_about("address handle, counters");
	CALL(0, create_ah());
	CALL(ANY, ibv_init_ah_from_wc(bed.context, 1, &wc, grh, &address));
	CALL(ANY, ibv_create_ah_from_wc(bed.pd, &wc, grh, 1));
	CALL(ANY, ibv_resolve_eth_l2_from_gid(bed.context, &address, mac, &vlan));
	CALL(0, ibv_destroy_ah(bed.ah));
	CALL(ANY, _ibv_query_comp_cntr_caps(bed.context, caps, sizeof(caps)));
	CALL(0, ibv_create_comp_cntr(bed.context, comp));
	CALL(0, ibv_set_comp_cntr(bed.counter, 1));
	CALL(0, ibv_set_err_comp_cntr(bed.counter, 1));
	CALL(0, ibv_inc_comp_cntr(bed.counter, 1));
	CALL(0, ibv_inc_err_comp_cntr(bed.counter, 1));
	CALL(0, ibv_read_comp_cntr(bed.counter, &value));
	CALL(0, ibv_read_err_comp_cntr(bed.counter, &value));
	CALL(EBUSY, ibv_destroy_comp_cntr(bed.counter));
}

static int send_raw(void)
{
	struct ibv_sge sge = bed_sge();
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	return ibv_post_send(bed.raw, &wr, &bad) + poll_all(bed.cq);
}

static int receive_wq(void)
{
	struct ibv_sge sge = bed_sge();
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	return ibv_post_wq_recv(bed.wq, &wr, &bad);
}

static struct ibv_flow *create_flow(void)
{
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_ALL_DEFAULT,
				      .size = sizeof(flow),
				      .priority = 1,
				      .port = 1 };

	return ibv_create_flow(bed.raw, &flow);
}

static int create_rss(void)
{
	uint8_t key[40] = { 1 };
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
			     IBV_QP_INIT_ATTR_RX_HASH,
		.pd = bed.pd,
		.rwq_ind_tbl = bed.table,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				  .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key,
				  .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 |
							  IBV_RX_HASH_DST_IPV4 }
	};
	struct ibv_qp *qp = ibv_create_qp_ex(bed.context, &init);

	return qp == NULL ? errno : modify_to(qp, IBV_QPS_RESET) + ibv_destroy_qp(qp);
}

static void calls_of_raw(void)
{
	struct ibv_counter_attach_attr attach = { .counter_desc = IBV_COUNTER_PACKETS };
	struct ibv_counters_init_attr counters = { 0 };
	uint64_t value;
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &bed.wq };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };

	if (bed.raw == NULL)
		return;
	inherit_about("raw packets");
	calls_of_qp(bed.raw);
	CALL(EIO, send_raw());
	CALL(0, create_qp(IBV_QPT_RAW_PACKET, NULL));
	CALL(EIO, ibv_modify_qp_rate_limit(bed.raw, &rate));
	CALL(0, ibv_create_counters(bed.context, &counters));
	CALL(EOPNOTSUPP, ibv_attach_counters_point_flow(bed.counters, &attach, bed.flow));
	CALL(0, ibv_read_counters(bed.counters, &value, 1, 0));
	CALL(0, ibv_destroy_counters(bed.counters));
	CALL(EIO, create_flow());
	CALL(0, ibv_destroy_flow(bed.flow));
	CALL(0, ibv_destroy_flow(bed.flow) + ibv_destroy_qp(bed.raw));
	CALL(EIO, receive_wq());
	CALL(0, ibv_modify_wq(bed.wq, &attr));
	CALL(0, ibv_create_rwq_ind_table(bed.context, &table));
	CALL(EOPNOTSUPP, create_rss());
	CALL(EBUSY, ibv_destroy_wq(bed.wq));
	CALL(0, ibv_destroy_rwq_ind_table(bed.table));
	CALL(0, ibv_destroy_rwq_ind_table(bed.table) + ibv_destroy_wq(bed.wq));
}

static void calls(void)
{
	calls_of_context();
	calls_of_domains();
	calls_of_regions();
	calls_of_windows();
	calls_of_cqs();
	calls_of_srqs();
	calls_of_qps();
	calls_of_counters();
	calls_of_raw();
	inherit_about("all");
	CALL_VOID(bed_end(true));
}

int main(void)
{
	static const struct inherit_bed kit = {
		.last = GRANDCHILD, .attach = bed_attach, .works = bed_works
	};
	int status;

	bed_make();
	status = inherit_run(&kit, calls);
	bed_end(false);
	return status;
}
