/* verbs_bed.c: an object of every kind, in use: queue pairs are connected within the process.
 * In:    the first device    Out: objects
 * Runs:  the program's thread    Locks: none
 */
#include "verbs_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WAIT_MS = 20000, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
enum { QKEY = 0x11111111 };

const char *const bed_pairs[BED_PAIRS] = { "RC", "UC", "UD", "RC with SRQ", "RC with tags", "XRC",
					   "RC, stuck" };

struct verbs_bed bed;

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, void *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter, void *attr);

struct ibv_sge bed_sge(void)
{
	return (struct ibv_sge){ (uintptr_t)bed.memory, 64, bed.mr->lkey };
}

/* ---- making ---- */

static struct ibv_srq *make_srq(enum ibv_srq_type type)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = BED_DEPTH, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     (type == IBV_SRQT_XRC ? IBV_SRQ_INIT_ATTR_XRCD : 0) |
			     (type == IBV_SRQT_TM ? IBV_SRQ_INIT_ATTR_TM : 0),
		.srq_type = type,
		.pd = bed.pd,
		.xrcd = bed.xrcd,
		.cq = bed.cq,
		.tm_cap = { .max_num_tags = 16, .max_ops = 16 },
	};
	struct ibv_srq *srq = ibv_create_srq_ex(bed.context, &init);

	must(srq != NULL);
	for (int i = 0; i < 4; i++)
		must(bed_receive_shared(srq) == 0);
	return srq;
}

static void make_regions(void)
{
	struct ibv_alloc_dm_attr dm = { .length = 4096 };
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent;

	bed.pd = ibv_alloc_pd(bed.context);
	bed.td = ibv_alloc_td(bed.context, &td);
	must(bed.pd != NULL && bed.td != NULL);
	parent = (struct ibv_parent_domain_init_attr){ .pd = bed.pd, .td = bed.td };
	bed.parent = ibv_alloc_parent_domain(bed.context, &parent);
	bed.memory = mmap(NULL, BED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	must(bed.parent != NULL && bed.memory != MAP_FAILED);
	bed.mr = ibv_reg_mr(bed.pd, bed.memory, BED_BYTES, ACCESS | IBV_ACCESS_MW_BIND);
	bed.null_mr = ibv_alloc_null_mr(bed.pd);
	bed.dm = ibv_alloc_dm(bed.context, &dm);
	must(bed.mr != NULL && bed.null_mr != NULL && bed.dm != NULL);
	bed.dm_mr = ibv_reg_dm_mr(bed.pd, bed.dm, 0, 4096,
				  IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	bed.imported_mr = ibv_import_mr(bed.pd, bed.mr->handle);
	bed.mw = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_1);
	bed.mw2 = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_2);
	bed.buf_memory = ibv_alloc_buf(bed.pd, 4096, &bed.buf);
	must(bed.dm_mr != NULL && bed.imported_mr != NULL && bed.mw != NULL && bed.mw2 != NULL &&
	     bed.buf_memory != NULL);
}

static void make_queues(void)
{
	struct ibv_cq_init_attr_ex cq_ex = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
	};
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1,
					   .oflags = O_CREAT };

	bed.channel = ibv_create_comp_channel(bed.context);
	must(bed.channel != NULL && fcntl(bed.channel->fd, F_SETFL, O_NONBLOCK) == 0 &&
	     fcntl(bed.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	bed.cq = ibv_create_cq(bed.context, 256, NULL, bed.channel, 0);
	bed.spare_cq = ibv_create_cq(bed.context, 64, NULL, bed.channel, 0);
	bed.cq_ex = ibv_create_cq_ex(bed.context, &cq_ex);
	bed.xrcd = ibv_open_xrcd(bed.context, &xrcd);
	bed.raw_cq = ibv_create_cq(bed.context, 64, NULL, NULL, 0);
	must(bed.cq != NULL && bed.raw_cq != NULL && bed.spare_cq != NULL && bed.cq_ex != NULL &&
	     bed.xrcd != NULL);
	bed.srq = make_srq(IBV_SRQT_BASIC);
	bed.tag_srq = make_srq(IBV_SRQT_TM);
	bed.xrc_srq = make_srq(IBV_SRQT_XRC);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = type,
		.send_cq = bed.cq,
		.recv_cq = type == IBV_QPT_XRC_SEND ? NULL : bed.cq,
		.srq = srq,
		.cap = { BED_DEPTH, BED_DEPTH, 2, 2, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = bed.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct ibv_qp *qp;

	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ |
				       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	if (type == IBV_QPT_RC)
		init.send_ops_flags |= IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
				       IBV_QP_EX_WITH_SEND_WITH_INV |
				       IBV_QP_EX_WITH_ATOMIC_WRITE;
	if (type != IBV_QPT_UD)
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE |
				       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if (type == IBV_QPT_XRC_RECV)
		init = (struct ibv_qp_init_attr_ex){ .qp_type = type,
						     .comp_mask = IBV_QP_INIT_ATTR_XRCD,
						     .xrcd = bed.xrcd };
	qp = ibv_create_qp_ex(bed.context, &init);
	must(qp != NULL);
	return qp;
}

static void step(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state to)
{
	int mask = conn_mask(qp->qp_type, to);

	if (qp->qp_type == IBV_QPT_XRC_SEND && to == IBV_QPS_RTR)
		mask = conn_mask(IBV_QPT_UC, to);
	if (qp->qp_type == IBV_QPT_XRC_RECV && to != IBV_QPS_INIT)
		mask = to == IBV_QPS_RTR ? conn_mask(IBV_QPT_RC, to)
					 : IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
	attr->qp_state = to;
	must(ibv_modify_qp(qp, attr, mask) == 0);
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = conn_attr(peer->qp_num, &bed.gid, bed.gid_index);

	attr.ah_attr = bed.address;
	attr.qkey = QKEY;
	attr.qp_access_flags = qp->qp_type == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE :
							   ACCESS & ~IBV_ACCESS_LOCAL_WRITE;
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		step(qp, &attr, to);
}

static void make_pair(enum bed_pair pair)
{
	static const enum ibv_qp_type types[BED_PAIRS] = {
		IBV_QPT_RC, IBV_QPT_UC,	      IBV_QPT_UD, IBV_QPT_RC,
		IBV_QPT_RC, IBV_QPT_XRC_SEND, IBV_QPT_RC,
	};
	struct ibv_srq *srq = pair == BED_SHARED ? bed.srq : pair == BED_TAGS ? bed.tag_srq : NULL;

	bed.a[pair] = make_qp(types[pair], NULL);
	bed.b[pair] = make_qp(pair == BED_XRC ? IBV_QPT_XRC_RECV : types[pair], srq);
	connect_to(bed.b[pair], bed.a[pair]);
	connect_to(bed.a[pair], bed.b[pair]);
	if (pair < BED_SHARED)
		must(bed_receive(bed.b[pair]) == 0);
}

/* A UD queue pair in ERR: what it is posted is flushed. */
static struct ibv_qp *make_failed(struct ibv_cq *cq)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 }
	};
	struct ibv_qp *qp = ibv_create_qp(bed.pd, &init);

	must(qp != NULL);
	connect_to(qp, qp);
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	return qp;
}

/* Queue pairs in error: an event of the channel and one of the context wait, and one of each is
 * taken and not acknowledged. */
static void make_events(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	bed.failed_ex = make_failed(ibv_cq_ex_to_cq(bed.cq_ex));
	must(bed_receive(bed.failed_ex) == 0 && bed_receive(bed.failed_ex) == 0);
	bed.failed = make_failed(bed.spare_cq);
	must(ibv_req_notify_cq(bed.spare_cq, 0) == 0 && bed_receive(bed.failed) == 0);
	must(fd_is_readable(bed.channel->fd, WAIT_MS));
	must(ibv_get_cq_event(bed.channel, &cq, &context) == 0 && cq == bed.spare_cq);
	must(ibv_req_notify_cq(bed.spare_cq, 0) == 0 && bed_receive(bed.failed) == 0);
	for (int i = 0; i < 2; i++) {
		bed.last[i] = make_qp(IBV_QPT_RC, bed.srq);
		connect_to(bed.last[i], bed.a[BED_RC]);
		must(ibv_modify_qp(bed.last[i], &attr, IBV_QP_STATE) == 0);
		must(fd_is_readable(bed.context->async_fd, WAIT_MS));
		if (i == 0)
			must(ibv_get_async_event(bed.context, &event) == 0);
	}
	bed.owed = event;
}

static void make_pairs(void)
{
	for (int i = 0; i < BED_PAIRS; i++)
		make_pair((enum bed_pair)i);
	/* no receive request is there: they wait */
	for (int i = 0; i < BED_STUCK; i++)
		must(bed_send(BED_STUCK_RC, IBV_WR_SEND, IBV_SEND_SIGNALED) == 0);
	must(ibv_attach_mcast(bed.b[BED_UD], &bed.group, 0xc000) == 0);
	bed.fresh = make_qp(IBV_QPT_RC, NULL);
	make_events();
}

/* An ordinary user has no raw packets. */
static void make_raw(void)
{
	struct ibv_qp_init_attr init = { .send_cq = bed.raw_cq,
					 .recv_cq = bed.raw_cq,
					 .cap = { 16, 16, 1, 1, 64 },
					 .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_ALL_DEFAULT,
				      .size = sizeof(flow),
				      .port = 1 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1,
				       .pd = bed.pd, .cq = bed.raw_cq };
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &bed.wq };

	bed.raw = ibv_create_qp(bed.pd, &init);
	if (bed.raw == NULL)
		return;
	must(ibv_modify_qp(bed.raw, &attr, IBV_QP_STATE | IBV_QP_PORT) == 0);
	for (attr.qp_state = IBV_QPS_RTR; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
		must(ibv_modify_qp(bed.raw, &attr, IBV_QP_STATE) == 0);
	must(bed_receive(bed.raw) == 0);
	bed.flow = ibv_create_flow(bed.raw, &flow);
	bed.wq = ibv_create_wq(bed.context, &wq);
	must(bed.flow != NULL && bed.wq != NULL);
	bed.table = ibv_create_rwq_ind_table(bed.context, &table);
	must(bed.table != NULL);
}

static void find_address(void)
{
	struct ibv_port_attr port;

	must(ibv_query_port(bed.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	bed.gid_index = port.link_layer == IBV_LINK_LAYER_INFINIBAND ? 0 : 1;
	must(ibv_query_gid(bed.context, 1, bed.gid_index, &bed.gid) == 0);
	bed.address = conn_address(&bed.gid, bed.gid_index);
	bed.address.dlid = port.lid;
	bed.group = (union ibv_gid){ .raw = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 9 } };
}

void bed_make(void)
{
	uint32_t comp[3] = { 0, 0, 0 }, ops[2] = { 0, 1 };
	struct ibv_counters_init_attr counters = { 0 };

	bed.devices = ibv_get_device_list(NULL);
	bed.context = device_open(NULL);
	must(bed.devices != NULL && bed.context != NULL &&
	     ibv_query_device(bed.context, &bed.device) == 0);
	find_address();
	make_regions();
	make_queues();
	bed.ah = ibv_create_ah(bed.pd, &bed.address);
	bed.counters = ibv_create_counters(bed.context, &counters);
	bed.counter = ibv_create_comp_cntr(bed.context, comp);
	must(bed.ah != NULL && bed.counter != NULL);
	/* which are of flow rules */
	must(bed.counters != NULL || bed.address.dlid != 0);
	make_pairs();
	must(ibv_qp_attach_comp_cntr(bed.fresh, bed.counter, ops) == 0);
	make_raw();
}

/* ---- in use ---- */

int bed_send(enum bed_pair pair, enum ibv_wr_opcode op, int flags)
{
	struct ibv_sge sge = bed_sge();
	struct ibv_send_wr *bad, wr = { .wr_id = (uint64_t)pair,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = op,
					.send_flags = (unsigned int)flags };

	if (pair == BED_UD) {
		wr.wr.ud.ah = bed.ah;
		wr.wr.ud.remote_qpn = bed.b[BED_UD]->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = (uintptr_t)bed.memory + BED_ROOM;
		wr.wr.atomic.rkey = bed.mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)bed.memory + BED_ROOM;
		wr.wr.rdma.rkey = bed.mr->rkey;
	}
	if (pair == BED_XRC)
		must(ibv_get_srq_num(bed.xrc_srq, &wr.qp_type.xrc.remote_srqn) == 0);
	return ibv_post_send(bed.a[pair], &wr, &bad);
}

static struct ibv_recv_wr receive_of(struct ibv_sge *sge)
{
	*sge = (struct ibv_sge){ (uintptr_t)bed.memory + 2 * BED_ROOM, BED_ROOM, bed.mr->lkey };
	return (struct ibv_recv_wr){ .wr_id = BED_PAIRS, .sg_list = sge, .num_sge = 1 };
}

int bed_receive(struct ibv_qp *qp)
{
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = receive_of(&sge);

	return ibv_post_recv(qp, &wr, &bad);
}

int bed_receive_shared(struct ibv_srq *srq)
{
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = receive_of(&sge);

	return ibv_post_srq_recv(srq, &wr, &bad);
}

/* Both completions of a message, without errors. */
static void await_both(const char *after, const char *what)
{
	struct ibv_wc wc[2];
	int n = cq_wait(bed.cq, wc, 2, WAIT_MS);

	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			n = -2 - (int)wc[i].status;
	if (n != 2)
		fprintf(stderr, "the parent's %s after %s: %d\n", what, after, n);
	must(n == 2);
}

/* One message, and an event. The spare CQ's event may come first. */
static void carry(enum bed_pair pair, const char *after)
{
	struct ibv_cq *cq;
	void *context;

	must(ibv_req_notify_cq(bed.cq, 0) == 0);
	must(bed_send(pair, IBV_WR_SEND, IBV_SEND_SIGNALED) == 0);
	await_both(after, bed_pairs[pair]);
	do {
		must(fd_is_readable(bed.channel->fd, WAIT_MS));
		must(ibv_get_cq_event(bed.channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
	} while (cq != bed.cq);
	if (pair < BED_SHARED)
		must(bed_receive(bed.b[pair]) == 0);
	else
		must(bed_receive_shared(pair == BED_SHARED ? bed.srq : bed.xrc_srq) == 0);
}

void bed_works(const char *after)
{
	for (int i = 0; i < BED_STUCK_RC; i++)
		if (i != BED_TAGS)
			carry((enum bed_pair)i, after);
}

int bed_own(enum bed_pair pair)
{
	bed.mr = ibv_reg_mr(bed.pd, bed.memory, BED_BYTES, ACCESS);
	must(bed.mr != NULL);
	if (pair == BED_SHARED)
		bed.srq = make_srq(IBV_SRQT_BASIC);
	if (pair == BED_XRC)
		bed.xrc_srq = make_srq(IBV_SRQT_XRC);
	make_pair(pair);
	carry(pair, "the fork");
	must(ibv_destroy_qp(bed.a[pair]) == 0 && ibv_destroy_qp(bed.b[pair]) == 0);
	return 0;
}

void bed_attach(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(bed.context);
	struct ibv_cq *cq = ibv_create_cq(bed.context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;

	must(pd != NULL && cq != NULL);
	qp = ibv_create_qp(pd, &init);
	must(qp != NULL);
	must(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* ---- the end ---- */

static void end_pairs(bool inherited)
{
	for (int i = 0; i < BED_STUCK; i++)
		must(bed_receive(bed.b[BED_STUCK_RC]) == 0);
	for (int i = 0; i < BED_STUCK && !inherited; i++)
		await_both("all", "stuck pair");
	must(ibv_detach_mcast(bed.b[BED_UD], &bed.group, 0xc000) == 0);
	for (int i = 0; i < BED_PAIRS; i++)
		must(ibv_destroy_qp(bed.a[i]) == 0 && ibv_destroy_qp(bed.b[i]) == 0);
	must(ibv_destroy_qp(bed.fresh) == 0 && ibv_destroy_qp(bed.failed) == 0 &&
	     ibv_destroy_qp(bed.failed_ex) == 0);
	ibv_ack_async_event(&bed.owed);
	must(ibv_destroy_qp(bed.last[0]) == 0 && ibv_destroy_qp(bed.last[1]) == 0);
	must(ibv_destroy_comp_cntr(bed.counter) == 0);
	if (bed.raw == NULL)
		return;
	must(ibv_destroy_flow(bed.flow) == 0 && ibv_destroy_qp(bed.raw) == 0);
	must(ibv_destroy_rwq_ind_table(bed.table) == 0 && ibv_destroy_wq(bed.wq) == 0);
}

void bed_end(bool inherited)
{
	end_pairs(inherited);
	must(ibv_destroy_srq(bed.srq) == 0 && ibv_destroy_srq(bed.tag_srq) == 0 &&
	     ibv_destroy_srq(bed.xrc_srq) == 0 && ibv_close_xrcd(bed.xrcd) == 0);
	ibv_ack_cq_events(bed.spare_cq, 1);
	must(ibv_destroy_cq(bed.cq) == 0 && ibv_destroy_cq(bed.spare_cq) == 0 &&
	     ibv_destroy_cq(bed.raw_cq) == 0 &&
	     ibv_destroy_cq(ibv_cq_ex_to_cq(bed.cq_ex)) == 0);
	must(ibv_destroy_comp_channel(bed.channel) == 0);
	must(ibv_destroy_ah(bed.ah) == 0);
	must(bed.counters == NULL || ibv_destroy_counters(bed.counters) == 0);
	ibv_free_buf(bed.buf);
	ibv_unimport_mr(bed.imported_mr);
	must(ibv_dealloc_mw(bed.mw) == 0 && ibv_dealloc_mw(bed.mw2) == 0);
	must(ibv_dereg_mr(bed.dm_mr) == 0 && ibv_free_dm(bed.dm) == 0);
	must(ibv_dereg_mr(bed.mr) == 0 && ibv_dereg_mr(bed.null_mr) == 0);
	must(ibv_dealloc_pd(bed.parent) == 0 && ibv_dealloc_td(bed.td) == 0);
	must(ibv_dealloc_pd(bed.pd) == 0 && ibv_close_device(bed.context) == 0);
	ibv_free_device_list(bed.devices);
}
