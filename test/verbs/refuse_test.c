/* refuse_test.c: each limit of each object and its neighbours, by tables: what is taken, and with
 * which errno the rest is refused. docs/errno.md has the same tables for readers.
 * In: values below, at and beyond limits    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

#include "verdict.h"

enum { REFUSE_TYPES = 4, MOST_BAD = 6, ROOM = 1 << 16 };

static const enum ibv_qp_type types[REFUSE_TYPES] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						      IBV_QPT_XRC_SEND };

static struct ibv_context *ctx, *other; /* two files of one device */
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq, *other_cq;
static struct ibv_xrcd *xrc_domain;
static struct ibv_mr *mr;
static struct ibv_device_attr dev;
static struct ibv_port_attr port;
static union ibv_gid gid;
static uint8_t buffer[ROOM];

static int setup(void **state)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1, .oflags = O_CREAT };

	ctx = device_open(NULL);
	other = device_open(NULL);
	assert_non_null(ctx);
	assert_non_null(other);
	pd = ibv_alloc_pd(ctx);
	other_pd = ibv_alloc_pd(other);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	other_cq = ibv_create_cq(other, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	xrc_domain = ibv_open_xrcd(ctx, &init);
	assert_non_null(xrc_domain);
	assert_int_equal(ibv_query_device(ctx, &dev), 0);
	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	return ibv_query_gid(ctx, 1, 1, &gid);
}

static int teardown(void **state)
{
	assert_int_equal(ibv_close_xrcd(xrc_domain), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_cq(other_cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(other_pd), 0);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	return 0;
}

/* ---- regions ---- */

static void regions__addresses_and_lengths(void **state)
{
	const struct {
		struct line line;
		uintptr_t start;
	} table[] = {
		{ { "length", 0, EINVAL }, (uintptr_t)buffer },
		{ { "length", 1, 0 }, (uintptr_t)buffer },
		{ { "length", ROOM, 0 }, (uintptr_t)buffer },
		{ { "length", 1, 0 }, (uintptr_t)buffer + ROOM - 1 },
		{ { "length beyond the map", dev.max_mr_size, EFAULT }, (uintptr_t)buffer },
		{ { "length", dev.max_mr_size + 1, EFAULT }, (uintptr_t)buffer },
		{ { "length", UINT64_MAX, EINVAL }, (uintptr_t)buffer },
		{ { "last byte of all", 1, EFAULT }, UINTPTR_MAX - 1 },
		{ { "wraps", 4096, EINVAL }, UINTPTR_MAX - 4094 },
		{ { "at NULL", 0, EINVAL }, 0 },
		{ { "at NULL", 1, EFAULT }, 0 },
	};

	for (size_t i = 0; i < COUNT(table); i++)
		judge("ibv_reg_mr", &table[i].line,
		      MADE(struct ibv_mr,
			   ibv_reg_mr(pd, (void *)table[i].start, table[i].line.value, 0),
			   ibv_dereg_mr));
	verdict();
}

static void regions__rights(void **state)
{
	static const struct line table[] = {
		{ "none", 0, 0 },
		{ "all", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND, 0 },
		{ "first", IBV_ACCESS_LOCAL_WRITE, 0 },
		{ "write", IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ "atomic", IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ "bind", IBV_ACCESS_MW_BIND, 0 },
		{ "first unknown", 1 << 9, EINVAL },
		{ "last unknown", 1 << 19, EINVAL },
		{ "first hint", IBV_ACCESS_OPTIONAL_FIRST, 0 },
		{ "last hint", 1 << 29, 0 },
		{ "beyond the hints", 1 << 30, EINVAL },
		{ "sign", 1u << 31, EINVAL },
	};

	for (size_t i = 0; i < COUNT(table); i++)
		judge("ibv_reg_mr: rights", &table[i],
		      MADE(struct ibv_mr, ibv_reg_mr(pd, buffer, 64, (int)table[i].value),
			   ibv_dereg_mr));
	verdict();
}

static void windows__types(void **state)
{
	static const struct line table[] = { { "type", 0, EINVAL }, { "type", IBV_MW_TYPE_1, 0 },
					     { "type", IBV_MW_TYPE_2, 0 }, { "type", 3, EINVAL },
					     { "type", UINT32_MAX, EINVAL } };

	for (size_t i = 0; i < COUNT(table); i++)
		judge("ibv_alloc_mw", &table[i],
		      MADE(struct ibv_mw, ibv_alloc_mw(pd, (enum ibv_mw_type)table[i].value),
			   ibv_dealloc_mw));
	verdict();
}

/* ---- completion queues ---- */

static void cqs__sizes(void **state)
{
	const struct line table[] = { { "cqe", 0, EINVAL },
				      { "cqe", 1, 0 },
				      { "cqe", (uint64_t)dev.max_cqe, 0 },
				      { "cqe", (uint64_t)dev.max_cqe + 1, EINVAL },
				      { "cqe", INT_MAX, EINVAL },
				      { "cqe", (uint64_t)INT_MAX + 1, EINVAL },
				      { "cqe", UINT32_MAX, EINVAL } };

	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = (uint32_t)table[i].value };
		struct ibv_cq_ex *ex;
		struct ibv_cq *resized = ibv_create_cq(ctx, 4, NULL, NULL, 0);

		judge("ibv_create_cq", &table[i],
		      MADE(struct ibv_cq,
			   ibv_create_cq(ctx, (int)table[i].value, NULL, NULL, 0),
			   ibv_destroy_cq));
		errno = 0;
		ex = ibv_create_cq_ex(ctx, &attr);
		judge("ibv_create_cq_ex", &table[i], ex ? 0 : errno);
		if (ex)
			assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
		judge("ibv_resize_cq", &table[i], ibv_resize_cq(resized, (int)table[i].value));
		assert_int_equal(ibv_destroy_cq(resized), 0);
	}
	verdict();
}

static void cqs__vectors(void **state)
{
	const uint64_t vectors = (uint64_t)ctx->num_comp_vectors;
	const struct line table[] = { { "vector", 0, 0 },
				      { "vector", vectors - 1, 0 },
				      { "vector", vectors, EINVAL },
				      { "vector", INT_MAX, EINVAL },
				      { "vector", UINT32_MAX, EINVAL } };

	for (size_t i = 0; i < COUNT(table); i++)
		judge("ibv_create_cq", &table[i],
		      MADE(struct ibv_cq,
			   ibv_create_cq(ctx, 4, NULL, NULL, (int)table[i].value),
			   ibv_destroy_cq));
	verdict();
}

/* No count of entries makes a poll write where nothing was asked for. */
static void cqs__counts_of_a_poll(void **state)
{
	static const int counts[] = { 0, -1, INT_MIN };
	struct ibv_wc wc = { .wr_id = 77 };

	for (size_t i = 0; i < COUNT(counts); i++) {
		assert_true(ibv_poll_cq(cq, counts[i], &wc) <= 0);
		assert_int_equal(wc.wr_id, 77);
	}
}

static void cqs__of_other_files(void **state)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(other);
	struct ibv_cq_init_attr_ex ex = { .cqe = 4, .channel = channel };

	errno = 0;
	assert_null(ibv_create_cq(ctx, 4, NULL, channel, 0));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(ibv_create_cq_ex(ctx, &ex));
	assert_int_equal(errno, EINVAL);
	ex = (struct ibv_cq_init_attr_ex){ .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					   .parent_domain = pd }; /* a plain domain */
	assert_null(ibv_create_cq_ex(ctx, &ex));
	assert_int_equal(errno, EINVAL);
	ex = (struct ibv_cq_init_attr_ex){ .cqe = 4, .comp_mask = 1 << 2 };
	assert_null(ibv_create_cq_ex(ctx, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	ex = (struct ibv_cq_init_attr_ex){ .cqe = 4, .wc_flags = 1 << 20 };
	assert_null(ibv_create_cq_ex(ctx, &ex));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* ---- shared receive queues ---- */

/* Of type XRC, or basic. */
static struct ibv_srq *srq_new(bool xrc, struct ibv_srq_attr attr)
{
	struct ibv_srq_init_attr basic = { .attr = attr };
	struct ibv_srq_init_attr_ex ex = {
		.attr = attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrc_domain,
		.cq = cq,
	};

	return xrc ? ibv_create_srq_ex(ctx, &ex) : ibv_create_srq(pd, &basic);
}

static void srqs__sizes(void **state)
{
	const struct {
		struct line line;
		bool sge;
	} table[] = {
		{ { "max_wr", 0, EINVAL }, false },
		{ { "max_wr", 1, 0 }, false },
		{ { "max_wr", (uint64_t)dev.max_srq_wr, 0 }, false },
		{ { "max_wr", (uint64_t)dev.max_srq_wr + 1, EINVAL }, false },
		{ { "max_wr", UINT32_MAX, EINVAL }, false },
		{ { "max_sge", 0, 0 }, true },
		{ { "max_sge", (uint64_t)dev.max_srq_sge, 0 }, true },
		{ { "max_sge", (uint64_t)dev.max_srq_sge + 1, EINVAL }, true },
		{ { "max_sge", UINT32_MAX, EINVAL }, true },
	};

	for (size_t i = 0; i < 2 * COUNT(table); i++) {
		struct ibv_srq_attr attr = { .max_wr = 4, .max_sge = 1 };
		bool xrc = i % 2;

		*(table[i / 2].sge ? &attr.max_sge : &attr.max_wr) =
			(uint32_t)table[i / 2].line.value;
		judge(xrc ? "ibv_create_srq_ex, XRC" : "ibv_create_srq", &table[i / 2].line,
		      MADE(struct ibv_srq, srq_new(xrc, attr), ibv_destroy_srq));
	}
	verdict();
}

static void srqs__changes(void **state)
{
	const struct {
		struct line line;
		int mask;
	} table[] = {
		{ { "limit", 0, 0 }, IBV_SRQ_LIMIT },
		{ { "limit", 4, 0 }, IBV_SRQ_LIMIT },
		{ { "limit", 5, EINVAL }, IBV_SRQ_LIMIT },
		{ { "limit", UINT32_MAX, EINVAL }, IBV_SRQ_LIMIT },
		{ { "max_wr", 0, EINVAL }, IBV_SRQ_MAX_WR },
		{ { "max_wr", (uint64_t)dev.max_srq_wr, 0 }, IBV_SRQ_MAX_WR },
		{ { "max_wr", (uint64_t)dev.max_srq_wr + 1, EINVAL }, IBV_SRQ_MAX_WR },
		{ { "max_wr", UINT32_MAX, EINVAL }, IBV_SRQ_MAX_WR },
		{ { "mask", 1, EINVAL }, 1 << 2 },
		{ { "mask", 1, EINVAL }, -1 },
	};

	for (size_t i = 0; i < 2 * COUNT(table); i++) {
		const struct line *line = &table[i / 2].line;
		struct ibv_srq *srq =
			srq_new(i % 2, (struct ibv_srq_attr){ .max_wr = 4, .max_sge = 1 });
		struct ibv_srq_attr attr = { .max_wr = (uint32_t)line->value,
					     .srq_limit = (uint32_t)line->value };

		assert_non_null(srq);
		judge(i % 2 ? "ibv_modify_srq, XRC" : "ibv_modify_srq", line,
		      ibv_modify_srq(srq, &attr, table[i / 2].mask));
		assert_int_equal(ibv_destroy_srq(srq), 0);
	}
	verdict();
}

/* ---- address handles, and the address of a connection ---- */

static struct ibv_ah_attr address(void)
{
	return conn_address(&gid, 1);
}

static const union ibv_gid nobody;

static void addresses__values(void **state)
{
	const struct {
		struct line line;
		int error_of_rtr;
		size_t offset, size;
	} table[] = {
#define OF(field) offsetof(struct ibv_ah_attr, field), sizeof(((struct ibv_ah_attr *)0)->field)
		{ { "port_num", 0, EINVAL }, EINVAL, OF(port_num) },
		{ { "port_num", 1, 0 }, 0, OF(port_num) },
		{ { "port_num", 2, EINVAL }, EINVAL, OF(port_num) },
		{ { "port_num", 255, EINVAL }, EINVAL, OF(port_num) },
		{ { "is_global", 0, EINVAL }, EINVAL, OF(is_global) },
		{ { "sgid_index", 0, EINVAL },
		  EINVAL,
		  OF(grh.sgid_index) }, /* an IPv6 address, and the peer's is IPv4 */
		{ { "sgid_index", 1, 0 }, 0, OF(grh.sgid_index) },
		{ { "sgid_index", (uint64_t)port.gid_tbl_len - 1, EINVAL },
		  EINVAL,
		  OF(grh.sgid_index) }, /* an empty entry */
		{ { "sgid_index", (uint64_t)port.gid_tbl_len, EINVAL },
		  EINVAL,
		  OF(grh.sgid_index) },
		{ { "sgid_index", 255, EINVAL }, EINVAL, OF(grh.sgid_index) },
		{ { "hop_limit", 0, 0 }, 0, OF(grh.hop_limit) },
		{ { "hop_limit", 255, 0 }, 0, OF(grh.hop_limit) },
		{ { "traffic_class", 255, 0 }, 0, OF(grh.traffic_class) },
		{ { "flow_label", 0xfffff, 0 }, 0, OF(grh.flow_label) },
		{ { "sl", 7, 0 }, 0, OF(sl) },
		{ { "sl", 15, 0 }, 0, OF(sl) },
		{ { "static_rate", IBV_RATE_1200_GBPS, 0 }, 0, OF(static_rate) },
		{ { "src_path_bits", 127, 0 }, 0, OF(src_path_bits) },
		{ { "dlid", 0xffff, 0 }, 0, OF(dlid) },
#undef OF
	};

	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_ah_attr attr = address();
		struct line rtr = table[i].line;
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq,
						 .qp_type = IBV_QPT_RC,
						 .cap = { 1, 1, 1, 1, 0 } };
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		struct ibv_qp_attr a = conn_attr(1, &gid, 1);

		memcpy((char *)&attr + table[i].offset, &rtr.value, table[i].size);
		judge("ibv_create_ah", &table[i].line,
		      MADE(struct ibv_ah, ibv_create_ah(pd, &attr), ibv_destroy_ah));
		assert_int_equal(conn_up(qp, &a, IBV_QPS_INIT), 0);
		a.ah_attr = attr;
		rtr.error = table[i].error_of_rtr;
		judge("ibv_modify_qp: ah_attr", &rtr, conn_to(qp, &a, IBV_QPS_RTR));
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	verdict();
}

/* ---- queue pairs: creation ---- */

static struct ibv_qp_init_attr_ex qp_init(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = type,
		.send_cq = cq,
		.recv_cq = type == IBV_QPT_XRC_SEND ? NULL : cq,
		.pd = pd,
		.cap = { 4, type == IBV_QPT_XRC_SEND ? 0 : 4, 2,
			 type == IBV_QPT_XRC_SEND ? 0 : 2, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
}

static uint32_t inline_granted; /* to the last queue pair; 64 were asked for */

static struct ibv_qp *qp_make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = qp_init(type);
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);

	assert_non_null(qp);
	inline_granted = init.cap.max_inline_data;
	return qp;
}

static void qps__caps(void **state)
{
	const uint64_t wr = (uint64_t)dev.max_qp_wr, sge = (uint64_t)dev.max_sge, inl = 1024;
	const struct {
		struct line line;
		size_t offset;
		bool receives;
	} table[] = {
#define OF(field) offsetof(struct ibv_qp_init_attr_ex, cap.field)
#define LIMIT(field, most, receives)                                                               \
	{ { #field, 0, 0 }, OF(field), receives }, { { #field, most, 0 }, OF(field), receives },   \
	{ { #field, (most) + 1, EINVAL }, OF(field), receives },                                   \
	{ { #field, INT_MAX, EINVAL }, OF(field), receives },                                      \
	{ { #field, UINT32_MAX, EINVAL }, OF(field), receives }
		LIMIT(max_send_wr, wr, false),	 LIMIT(max_send_sge, sge, false),
		LIMIT(max_recv_wr, wr, true),	 LIMIT(max_recv_sge, sge, true),
		LIMIT(max_inline_data, inl, false),
#undef OF
#undef LIMIT
	};

	for (size_t t = 0; t < REFUSE_TYPES; t++) {
		for (size_t i = 0; i < COUNT(table); i++) {
			struct ibv_qp_init_attr_ex init = qp_init(types[t]);
			uint32_t *field = (uint32_t *)((char *)&init + table[i].offset);

			if (table[i].receives && types[t] == IBV_QPT_XRC_SEND)
				continue; /* without a receive queue they count for nothing */
			*field = (uint32_t)table[i].line.value;
			judge(t == 2 ? "UD" : "RC, UC, XRC", &table[i].line,
			      MADE(struct ibv_qp, ibv_create_qp_ex(ctx, &init), ibv_destroy_qp));
		}
	}
	verdict();
}

static void qps__of_other_files(void **state)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(other_pd, &srq_init);

	for (size_t t = 0; t < REFUSE_TYPES; t++) {
		struct ibv_qp_init_attr_ex init[4];

		for (int i = 0; i < 4; i++)
			init[i] = qp_init(types[t]);
		init[0].pd = other_pd;
		init[1].send_cq = other_cq;
		init[2].recv_cq = other_cq;
		init[3].srq = srq;
		for (int i = 0; i < (types[t] == IBV_QPT_XRC_SEND ? 2 : 4); i++) {
			errno = 0;
			assert_null(ibv_create_qp_ex(ctx, &init[i]));
			assert_int_equal(errno, EINVAL);
		}
	}
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void qps__types_and_masks(void **state)
{
	static const struct line table[] = {
		{ "type", 0, EINVAL },	 { "type", IBV_QPT_RC, 0 },   { "type", IBV_QPT_UC, 0 },
		{ "type", 1, EINVAL },	 { "type", IBV_QPT_UD, 0 },   { "type", 5, EINVAL },
		{ "type", 11, EINVAL },	 { "type", IBV_QPT_XRC_RECV, EINVAL },
		{ "type", 0xfe, EINVAL }, { "type", IBV_QPT_DRIVER, EOPNOTSUPP },
		{ "type", UINT32_MAX, EINVAL },
	};

	for (size_t i = 0; i < COUNT(table); i++) {
		struct ibv_qp_init_attr_ex init = qp_init((enum ibv_qp_type)table[i].value);

		judge("ibv_create_qp_ex", &table[i],
		      MADE(struct ibv_qp, ibv_create_qp_ex(ctx, &init), ibv_destroy_qp));
	}
	verdict();
}

/* ---- queue pairs: the attributes of each step ---- */

struct step {
	struct line line;
	enum ibv_qp_state to;
	size_t offset, size;
	int types; /* bits by the place in types[] */
};

enum { RC = 1, UC = 2, UD = 4, XRC = 8, CONNECTED = RC | UC | XRC, RELIABLE = RC | XRC, ANY = 15 };

static const struct step steps[] = {
#define OF(field) offsetof(struct ibv_qp_attr, field), sizeof(((struct ibv_qp_attr *)0)->field)
#define STEP(to, field, value, error, types)                                                       \
	{ { #field, value, error }, IBV_QPS_##to, OF(field), types }
#define INIT(field, value, error, types) STEP(INIT, field, value, error, types)
#define RTR(field, value, error, types) STEP(RTR, field, value, error, types)
#define RTS(field, value, error, types) STEP(RTS, field, value, error, types)
	INIT(port_num, 0, EINVAL, ANY),
	INIT(port_num, 2, EINVAL, ANY),
	INIT(port_num, 255, EINVAL, ANY),
	INIT(pkey_index, 0, 0, ANY),
	INIT(pkey_index, 1, EINVAL, ANY),
	INIT(pkey_index, 0xffff, EINVAL, ANY),
	INIT(qp_access_flags, 15, 0, CONNECTED),
	INIT(qp_access_flags, 1 << 10, EINVAL, CONNECTED),
	INIT(qp_access_flags, 1u << 31, EINVAL, CONNECTED),
	INIT(qkey, UINT32_MAX, 0, UD),
	INIT(qp_state, 8, EINVAL, ANY),
	INIT(qp_state, UINT32_MAX, EINVAL, ANY),
	RTR(path_mtu, 0, EINVAL, CONNECTED),
	RTR(path_mtu, IBV_MTU_256, 0, CONNECTED),
	RTR(path_mtu, 6, EINVAL, CONNECTED),
	RTR(path_mtu, UINT32_MAX, EINVAL, CONNECTED),
	RTR(dest_qp_num, 0, 0, CONNECTED),
	RTR(dest_qp_num, 0xffffff, 0, CONNECTED),
	RTR(dest_qp_num, 0x1000000, EINVAL, CONNECTED),
	RTR(dest_qp_num, UINT32_MAX, EINVAL, CONNECTED),
	RTR(rq_psn, 0xffffff, 0, CONNECTED),
	RTR(min_rnr_timer, 31, 0, RC),
	RTR(min_rnr_timer, 32, EINVAL, RC),
	RTR(min_rnr_timer, 255, EINVAL, RC),
	RTR(max_dest_rd_atomic, 0, 0, RC),
	RTR(max_dest_rd_atomic, 128, 0, RC),
	RTR(max_dest_rd_atomic, 129, EINVAL, RC),
	RTR(max_dest_rd_atomic, 255, EINVAL, RC),
	RTS(sq_psn, 0xffffff, 0, ANY),
	RTS(timeout, 31, 0, RELIABLE),
	RTS(timeout, 32, EINVAL, RELIABLE),
	RTS(timeout, 255, EINVAL, RELIABLE),
	RTS(retry_cnt, 7, 0, RELIABLE),
	RTS(retry_cnt, 8, EINVAL, RELIABLE),
	RTS(rnr_retry, 7, 0, RELIABLE),
	RTS(rnr_retry, 8, EINVAL, RELIABLE),
	RTS(max_rd_atomic, 0, 0, RELIABLE),
	RTS(max_rd_atomic, 128, 0, RELIABLE),
	RTS(max_rd_atomic, 129, EINVAL, RELIABLE),
	RTS(max_rd_atomic, 255, EINVAL, RELIABLE),
#undef OF
#undef STEP
#undef INIT
#undef RTR
#undef RTS
};

static void qps__attributes(void **state)
{
	for (size_t i = 0; i < COUNT(steps); i++) {
		const struct step *s = &steps[i];

		for (size_t t = 0; t < REFUSE_TYPES; t++) {
			struct ibv_qp *qp;
			struct ibv_qp_attr a = conn_attr(1, &gid, 1), changed;

			if (!(s->types & 1 << t))
				continue;
			qp = qp_make(types[t]);
			if (s->to > IBV_QPS_INIT)
				assert_int_equal(conn_up(qp, &a, s->to - 1), 0);
			a.qp_state = s->to;
			changed = a;
			memcpy((char *)&changed + s->offset, &s->line.value, s->size);
			judge("ibv_modify_qp", &s->line,
			      ibv_modify_qp(qp, &changed, conn_mask(types[t], s->to)));
			/* A step that was refused has changed nothing. */
			if (s->line.error)
				assert_int_equal(conn_to(qp, &a, s->to), 0);
			assert_int_equal(ibv_destroy_qp(qp), 0);
		}
	}
	verdict();
}

/* ---- posting ---- */

/* A queue pair of each type in RTS, to nobody. */
static struct ibv_qp *qp_ready(enum ibv_qp_type type)
{
	struct ibv_qp *qp = qp_make(type);
	struct ibv_qp_attr a = conn_attr(1, &gid, 1);

	a.timeout = 0;
	assert_int_equal(conn_up(qp, &a, IBV_QPS_RTS), 0);
	return qp;
}

struct request {
	const char *name;
	int num_sge;
	uint32_t length[3];
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	int types; /* that take it; the others refuse it with EINVAL */
};

static const struct request requests[] = {
	{ "no element", 0, { 0 }, IBV_WR_SEND, 0, ANY },
	{ "most elements", 2, { 8, 8 }, IBV_WR_SEND, 0, ANY },
	{ "one more", 3, { 8, 8, 8 }, IBV_WR_SEND, 0, 0 },
	{ "-1 elements", -1, { 8 }, IBV_WR_SEND, 0, 0 },
	{ "INT_MIN elements", INT_MIN, { 8 }, IBV_WR_SEND, 0, 0 },
	{ "INT_MAX elements", INT_MAX, { 8 }, IBV_WR_SEND, 0, 0 },
	{ "most inline", 1, { 64 }, IBV_WR_SEND, IBV_SEND_INLINE, ANY },
	{ "one byte more inline", 1, { 65 }, IBV_WR_SEND, IBV_SEND_INLINE, 0 },
	{ "one byte more in two", 2, { 64, 1 }, IBV_WR_SEND, IBV_SEND_INLINE, 0 },
	{ "inline whose sum wraps", 2, { UINT32_MAX, 65 }, IBV_WR_SEND, IBV_SEND_INLINE, 0 },
	{ "longest message", 1, { 1u << 31 }, IBV_WR_RDMA_WRITE, 0, CONNECTED },
	{ "one byte more", 2, { 1u << 31, 1 }, IBV_WR_RDMA_WRITE, 0, 0 },
	{ "a sum that wraps", 2, { UINT32_MAX, 2 }, IBV_WR_RDMA_WRITE, 0, 0 },
	{ "WRITE", 1, { 8 }, IBV_WR_RDMA_WRITE, 0, CONNECTED },
	{ "WRITE with immediate", 1, { 8 }, IBV_WR_RDMA_WRITE_WITH_IMM, 0, CONNECTED },
	{ "SEND with immediate", 1, { 8 }, IBV_WR_SEND_WITH_IMM, 0, ANY },
	{ "SEND with invalidate", 1, { 8 }, IBV_WR_SEND_WITH_INV, 0, RELIABLE },
	{ "READ", 1, { 8 }, IBV_WR_RDMA_READ, 0, RELIABLE },
	{ "READ inline", 1, { 8 }, IBV_WR_RDMA_READ, IBV_SEND_INLINE, 0 },
	{ "atomic of 7", 1, { 7 }, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0 },
	{ "atomic of 8", 1, { 8 }, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, RELIABLE },
	{ "atomic of 9", 1, { 9 }, IBV_WR_ATOMIC_CMP_AND_SWP, 0, 0 },
	{ "atomic in two", 2, { 4, 4 }, IBV_WR_ATOMIC_CMP_AND_SWP, 0, RELIABLE },
	{ "TSO", 1, { 8 }, IBV_WR_TSO, 0, 0 },
	{ "driver's", 1, { 8 }, IBV_WR_DRIVER1, 0, 0 },
	{ "opcode beyond", 1, { 8 }, (enum ibv_wr_opcode)(IBV_WR_DRIVER1 + 1), 0, 0 },
	{ "opcode -1", 1, { 8 }, (enum ibv_wr_opcode)-1, 0, 0 },
};

static struct ibv_ah *request_ah;

static void request_fill(const struct request *r, struct ibv_qp *qp, struct ibv_sge *sge,
			 struct ibv_send_wr *wr)
{
	for (int i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)buffer, r->length[i], mr->lkey };
	*wr = (struct ibv_send_wr){ .sg_list = sge,
				    .num_sge = r->num_sge,
				    .opcode = r->opcode,
				    .send_flags = r->flags };
	if (r->flags & IBV_SEND_INLINE && r->length[0] <= 65)
		sge[0].length += inline_granted - 64;
	if (qp->qp_type == IBV_QPT_UD) {
		wr->wr.ud.ah = request_ah;
		wr->wr.ud.remote_qpn = 1;
	}
}

/* Each request, as the first and as the last of a list of three whose others are right. */
static void posts__each_place_in_a_list(void **state)
{
	static const struct request right = { "right", 1, { 8 }, IBV_WR_SEND, 0, ANY };
	struct ibv_ah_attr attr = address();

	request_ah = ibv_create_ah(pd, &attr);
	for (size_t i = 0; i < COUNT(requests); i++) {
		for (size_t t = 0; t < REFUSE_TYPES; t++) {
			int error = requests[i].types & 1 << t ? 0 : EINVAL;

			for (int place = 0; place < 3; place++) {
				struct ibv_qp *qp = qp_ready(types[t]);
				struct ibv_send_wr wr[3], *bad = NULL;
				struct ibv_sge sge[3][3];
				struct line l = { requests[i].name, (uint64_t)place, error };

				for (int k = 0; k < 3; k++) {
					request_fill(k == place ? &requests[i] : &right, qp,
						     sge[k], &wr[k]);
					wr[k].next = k < 2 ? &wr[k + 1] : NULL;
				}
				judge(t == 2 ? "UD" : t == 1 ? "UC" : t == 0 ? "RC" : "XRC", &l,
				      ibv_post_send(qp, wr, &bad));
				if (error)
					assert_ptr_equal(bad, &wr[place]);
				assert_int_equal(ibv_destroy_qp(qp), 0);
			}
		}
	}
	assert_int_equal(ibv_destroy_ah(request_ah), 0);
	verdict();
}

static int post_receives(struct ibv_qp *qp, struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	return srq ? ibv_post_srq_recv(srq, wr, bad) : ibv_post_recv(qp, wr, bad);
}

/* Of a queue pair's own queue and of a shared one: the same answers, wherever in a list. */
static void posts__receives(void **state)
{
	static const struct line table[] = { { "elements", 0, 0 },
					     { "elements", 2, 0 },
					     { "elements", 3, EINVAL },
					     { "elements", INT_MAX, EINVAL },
					     { "elements", (uint32_t)INT_MIN, EINVAL },
					     { "elements", UINT32_MAX, EINVAL } };
	struct ibv_sge sge[3] = { { (uintptr_t)buffer, 8, mr->lkey } };

	for (size_t i = 0; i < COUNT(table); i++) {
		for (int round = 0; round < 9; round++) {
			int kind = round / 3, place = round % 3;
			struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 2 } };
			struct ibv_srq *srq = kind == 2 ? ibv_create_srq(pd, &init) : NULL;
			struct ibv_qp *qp = qp_ready(kind == 1 ? IBV_QPT_UD : IBV_QPT_RC);
			struct ibv_recv_wr wr[3], *bad = NULL;

			for (int k = 0; k < 3; k++)
				wr[k] = (struct ibv_recv_wr){ .next = k < 2 ? &wr[k + 1] : NULL,
							      .sg_list = sge,
							      .num_sge = 1 };
			wr[place].num_sge = (int)table[i].value;
			judge(kind == 2 ? "SRQ" : "QP", &table[i],
			      post_receives(qp, srq, wr, &bad));
			if (table[i].error)
				assert_ptr_equal(bad, &wr[place]);
			assert_int_equal(ibv_destroy_qp(qp), 0);
			if (srq)
				assert_int_equal(ibv_destroy_srq(srq), 0);
		}
	}
	verdict();
}

/* ---- groups ---- */

static void groups__members_and_addresses(void **state)
{
	static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 9 } };
	union ibv_gid almost = group;

	almost.raw[0] = 0xfe;
	for (size_t t = 0; t < REFUSE_TYPES; t++) {
		struct ibv_qp *qp = qp_make(types[t]);
		bool ud = types[t] == IBV_QPT_UD;

		assert_int_equal(ibv_attach_mcast(qp, &group, 0), ud ? 0 : EINVAL);
		assert_int_equal(ibv_attach_mcast(qp, &almost, 0), EINVAL);
		assert_int_equal(ibv_attach_mcast(qp, &nobody, 0), EINVAL);
		if (ud)
			assert_int_equal(ibv_destroy_qp(qp), EBUSY);
		assert_int_equal(ibv_detach_mcast(qp, &almost, 0), EINVAL);
		assert_int_equal(ibv_detach_mcast(qp, &group, 0), ud ? 0 : EINVAL);
		assert_int_equal(ibv_detach_mcast(qp, &group, 0), EINVAL);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

/* ---- other files of the device ---- */

static void files__objects_of_another(void **state)
{
	struct ibv_alloc_dm_attr dm_attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(other, &dm_attr);
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(other, &td_attr);
	struct ibv_parent_domain_init_attr parent[2] = { { .pd = other_pd },
							 { .pd = pd, .td = td } };
	struct ibv_srq_init_attr_ex srq = { .attr = { .max_wr = 4, .max_sge = 1 },
					    .srq_type = IBV_SRQT_TM,
					    .comp_mask = IBV_SRQ_INIT_ATTR_PD |
							 IBV_SRQ_INIT_ATTR_TYPE |
							 IBV_SRQ_INIT_ATTR_CQ |
							 IBV_SRQ_INIT_ATTR_TM,
					    .tm_cap = { 4, 4 } };

	errno = 0;
	assert_null(ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED));
	assert_int_equal(errno, EINVAL);
	for (int i = 0; i < 2; i++) {
		errno = 0;
		assert_null(ibv_alloc_parent_domain(ctx, &parent[i]));
		assert_int_equal(errno, EINVAL);
	}
	for (int i = 0; i < 3; i++) {
		srq.pd = i == 1 ? other_pd : pd;
		srq.cq = i == 2 ? other_cq : cq;
		assert_int_equal(MADE(struct ibv_srq, ibv_create_srq_ex(ctx, &srq),
				      ibv_destroy_srq), i ? EINVAL : 0);
	}
	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other_pd, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
}

/* ---- how many ---- */

static void limits__of_domains(void **state)
{
	struct ibv_pd **pds = calloc((size_t)dev.max_pd + 1, sizeof(struct ibv_pd *));
	int n = 0;

	assert_non_null(pds);
	errno = 0;
	while (n <= dev.max_pd && (pds[n] = ibv_alloc_pd(ctx)))
		n++;
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(n, dev.max_pd - 2); /* the tests' own are there already */
	assert_int_equal(ibv_dealloc_pd(pds[--n]), 0);
	pds[n] = ibv_alloc_pd(ctx); /* there is room for one again */
	assert_non_null(pds[n]);
	for (; n >= 0; n--)
		assert_int_equal(ibv_dealloc_pd(pds[n]), 0);
	free(pds);
}

/* ---- a device that is gone ---- */

#define DEVICE(what) VERBS_COMMAND " device " what " roce7"

/* Another device than the first, which cannot be removed. */
static struct ibv_context *gone_open(void)
{
	struct ibv_context *context = NULL;

	assert_int_equal(system(DEVICE("add")), 0);
	for (int i = 0; i < PAIR_WAIT_MS && !(context = device_open("roce7")); i++)
		usleep(1000);
	assert_non_null(context);
	return context;
}

static void gone_remove(struct ibv_context *context)
{
	struct ibv_port_attr attr;

	assert_int_equal(system(DEVICE("remove")), 0);
	for (int i = 0; i < PAIR_WAIT_MS && ibv_query_port(context, 1, &attr) == 0; i++)
		usleep(1000);
	assert_int_equal(ibv_query_port(context, 1, &attr), EIO);
}

/* What devices_test does not ask of it. All that was made before can be destroyed. */
static void gone__objects_beyond_queue_pairs(void **state)
{
	struct ibv_context *context = gone_open(), *twin;
	struct ibv_pd *domain = ibv_alloc_pd(context), *parent;
	struct ibv_cq *queue = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_alloc_dm_attr dm_attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1,
					    .pd = domain, .cq = queue };
	struct ibv_wq *wq = ibv_create_wq(context, &wq_attr);
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &wq };
	struct ibv_counters_init_attr counters_attr = { 0 };
	struct ibv_counters *counters = ibv_create_counters(context, &counters_attr);
	struct ibv_parent_domain_init_attr parent_attr = { .pd = domain };
	struct ibv_td_init_attr td = { 0 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS,
					   .fd = -1, .oflags = O_CREAT };
	struct ibv_sge sge = { (uintptr_t)buffer, 8, 0 };
	uint64_t value;
	uint32_t word = 0;

	assert_true(dm && wq && counters);
	gone_remove(context);
#define GONE(type, call, destroy) assert_int_equal(MADE(type, call, destroy), EIO)
	GONE(struct ibv_dm, ibv_alloc_dm(context, &dm_attr), ibv_free_dm);
	GONE(struct ibv_mr, ibv_reg_dm_mr(domain, dm, 0, 64, IBV_ACCESS_ZERO_BASED), ibv_dereg_mr);
	GONE(struct ibv_mr, ibv_reg_dmabuf_mr(domain, 0, 4096, 0, 0, 0), ibv_dereg_mr);
	GONE(struct ibv_wq, ibv_create_wq(context, &wq_attr), ibv_destroy_wq);
	GONE(struct ibv_rwq_ind_table, ibv_create_rwq_ind_table(context, &table),
	     ibv_destroy_rwq_ind_table);
	GONE(struct ibv_counters, ibv_create_counters(context, &counters_attr),
	     ibv_destroy_counters);
	GONE(struct ibv_xrcd, ibv_open_xrcd(context, &xrcd), ibv_close_xrcd);
#undef GONE
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, &word, 4), 0); /* a store, as on an adapter */
	assert_int_equal(ibv_modify_wq(wq, &ready), EIO);
	assert_int_equal(ibv_advise_mr(domain, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EIO);
	assert_int_equal(ibv_read_counters(counters, &value, 1, 0), EIO);
	errno = 0;
	twin = ibv_import_device(dup(context->cmd_fd));
	assert_null(twin);
	assert_int_equal(errno, EIO);
	/* the door's alone */
	parent = ibv_alloc_parent_domain(context, &parent_attr);
	assert_non_null(parent);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(MADE(struct ibv_td, ibv_alloc_td(context, &td), ibv_dealloc_td), 0);
	assert_int_equal(MADE(struct ibv_comp_channel, ibv_create_comp_channel(context),
			      ibv_destroy_comp_channel), 0);
	assert_int_equal(ibv_destroy_counters(counters), 0);
	assert_int_equal(ibv_destroy_wq(wq), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_destroy_cq(queue), 0);
	assert_int_equal(ibv_dealloc_pd(domain), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* ---- in use ---- */

static void busy__each_user(void **state)
{
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_parent_domain_init_attr parent_attr = { .pd = p };
	struct ibv_pd *parent;
	struct ibv_mw *mw = ibv_alloc_mw(p, IBV_MW_TYPE_2);
	struct ibv_mr *null;
	struct ibv_cq *c = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1,
					    .pd = p, .cq = c };
	struct ibv_wq *wq;
	struct ibv_rwq_ind_table_init_attr table_attr = { .log_ind_tbl_size = 0, .ind_tbl = &wq };
	struct ibv_rwq_ind_table *table;

	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	null = ibv_alloc_null_mr(p);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_dereg_mr(null), 0);
	parent = ibv_alloc_parent_domain(ctx, &parent_attr);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	wq = ibv_create_wq(ctx, &wq_attr);
	assert_non_null(wq);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_cq(c), EBUSY);
	table = ibv_create_rwq_ind_table(ctx, &table_attr);
	assert_non_null(table);
	assert_int_equal(ibv_destroy_wq(wq), EBUSY);
	assert_int_equal(ibv_destroy_rwq_ind_table(table), 0);
	assert_int_equal(ibv_destroy_wq(wq), 0);
	assert_int_equal(ibv_destroy_cq(c), 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(regions__addresses_and_lengths),
		TEST(regions__rights),
		TEST(windows__types),
		TEST(cqs__sizes),
		TEST(cqs__vectors),
		TEST(cqs__counts_of_a_poll),
		TEST(cqs__of_other_files),
		TEST(srqs__sizes),
		TEST(srqs__changes),
		TEST(addresses__values),
		TEST(qps__caps),
		TEST(qps__of_other_files),
		TEST(qps__types_and_masks),
		TEST(qps__attributes),
		TEST(posts__each_place_in_a_list),
		TEST(posts__receives),
		TEST(groups__members_and_addresses),
		TEST(files__objects_of_another),
		TEST(busy__each_user),
		TEST(limits__of_domains),
		TEST(gone__objects_beyond_queue_pairs),
	};
	char node[32];

	pair_supervise();
	snprintf(node, sizeof(node), "refuse-%d", getpid()); /* for no other test sees its device */
	setenv("ANYVERBS_NODE", node, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
