/* loopback.c: two queue pairs of one process talk to each other; every payload and its surroundings
 * are checked.
 * usage: loopback -t RC|UC|UD -o OPERATION [-g GID_INDEX] [-d DEVICE] [-e]
 * In: an operation    Out: "ok ..." and status 0, or "wrong: ..." and status 1    Runs: one thread
 * Locks: none
 * A plain verbs program: it is linked against the system's libibverbs and knows nothing of this
 * project.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../pairs/pairs.h"

enum { QKEY = 0x11111111, GRH = 40, GUARD = 64, BIG = 64 << 20, WAIT_POLLS = 200000000 };

struct options {
	enum ibv_qp_type type;
	const char *type_name, *op, *device;
	int gid;
	bool events;
};

/* One end. `buf` has GUARD bytes before and after its `size`, and room for a GRH. */
struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	unsigned char *memory, *buf;
};

struct test {
	struct options opt;
	struct ibv_context *ctx;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_ah *ah;
	size_t room;
	struct end a, b;
};

static void fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *fmt, ...)
{
	va_list args;

	printf("wrong: ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	exit(1);
}

static void *need(void *p, const char *what)
{
	if (p == NULL)
		fail("%s: %s", what, strerror(errno));
	return p;
}

static void zero(int rc, const char *what)
{
	if (rc != 0)
		fail("%s: %s", what, strerror(rc > 0 ? rc : errno));
}

/* ---- setting up ---------------------------------------------------------------------------- */

static void test_open(struct test *t)
{
	t->ctx = need(device_open(t->opt.device), "opening a device");
	zero(ibv_query_port(t->ctx, CONN_PORT, &t->port), "ibv_query_port");
	zero(ibv_query_gid(t->ctx, CONN_PORT, t->opt.gid, &t->gid), "ibv_query_gid");
	t->pd = need(ibv_alloc_pd(t->ctx), "ibv_alloc_pd");
}

static void end_create(struct test *t, struct end *e)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr init = {
		.qp_type = t->opt.type,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4,
			 .max_inline_data = 64 },
	};

	e->memory = need(aligned_alloc(4096, t->room), "aligned_alloc");
	e->buf = e->memory + GUARD;
	e->mr = need(ibv_reg_mr(t->pd, e->memory, t->room, access), "ibv_reg_mr");
	if (t->opt.events)
		e->channel = need(ibv_create_comp_channel(t->ctx), "ibv_create_comp_channel");
	e->cq = need(ibv_create_cq(t->ctx, 32, e, e->channel, 0), "ibv_create_cq");
	if (e->channel != NULL)
		zero(ibv_req_notify_cq(e->cq, 0), "ibv_req_notify_cq");
	init.send_cq = init.recv_cq = e->cq;
	e->qp = need(ibv_create_qp(t->pd, &init), "ibv_create_qp");
}

/* The PSNs start just below their wrap, so that every run crosses it. */
static struct ibv_qp_attr ends_attr(const struct test *t, const struct ibv_qp *peer)
{
	struct ibv_qp_attr a = conn_attr(peer->qp_num, &t->gid, (uint8_t)t->opt.gid);

	a.qkey = QKEY;
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (t->opt.type == IBV_QPT_RC)
		a.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	a.rq_psn = a.sq_psn = 0xfffff0;
	a.max_dest_rd_atomic = a.max_rd_atomic = 4;
	a.min_rnr_timer = 1;
	a.ah_attr.dlid = t->port.lid;
	a.ah_attr.grh.hop_limit = 1;
	return a;
}

static void ends_connect(struct test *t)
{
	struct ibv_qp_attr a = ends_attr(t, t->b.qp), b = ends_attr(t, t->a.qp);

	zero(conn_to(t->a.qp, &a, IBV_QPS_INIT), "to INIT");
	zero(conn_to(t->b.qp, &b, IBV_QPS_INIT), "to INIT");
	zero(conn_to(t->a.qp, &a, IBV_QPS_RTR), "to RTR");
	zero(conn_to(t->b.qp, &b, IBV_QPS_RTR), "to RTR");
	zero(conn_to(t->a.qp, &a, IBV_QPS_RTS), "to RTS");
	zero(conn_to(t->b.qp, &b, IBV_QPS_RTS), "to RTS");
	if (t->opt.type == IBV_QPT_UD)
		t->ah = need(ibv_create_ah(t->pd, &a.ah_attr), "ibv_create_ah");
}

/* ---- waiting ------------------------------------------------------------------------------- */

static int event_wait(struct end *e, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int n = ibv_poll_cq(e->cq, 1, wc);

	while (n == 0) {
		zero(ibv_get_cq_event(e->channel, &cq, &context), "ibv_get_cq_event");
		if (cq != e->cq || context != e)
			fail("an event of another CQ");
		ibv_ack_cq_events(cq, 1);
		zero(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		n = ibv_poll_cq(e->cq, 1, wc);
	}
	return n;
}

static struct ibv_wc completion_wait(struct end *e, enum ibv_wc_opcode opcode, uint64_t wr_id)
{
	struct ibv_wc wc;
	int n = 0;

	if (e->channel != NULL)
		n = event_wait(e, &wc);
	for (int i = 0; n == 0 && i < WAIT_POLLS; i++)
		n = ibv_poll_cq(e->cq, 1, &wc);
	if (n != 1)
		fail("poll gave %d, opcode %d awaited", n, opcode);
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode || wc.wr_id != wr_id ||
	    wc.qp_num != e->qp->qp_num)
		fail("completion: %s, opcode %d for %d, wr_id %llu for %llu, QP %u",
		     ibv_wc_status_str(wc.status), wc.opcode, opcode, (unsigned long long)wc.wr_id,
		     (unsigned long long)wr_id, wc.qp_num);
	return wc;
}

/* ---- payload ------------------------------------------------------------------------------- */

static void pattern_fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + seed);
}

static void ends_fill(struct test *t, size_t n, unsigned seed)
{
	size_t span = n + 2 * GUARD + GRH < t->room ? n + 2 * GUARD + GRH : t->room;

	memset(t->a.memory, 0xaa, span);
	memset(t->b.memory, 0xbb, span);
	pattern_fill(t->a.buf, n, seed);
}

/* The n bytes at `got` are the pattern, and the GUARD bytes on both sides are untouched. */
static void pattern_check(const unsigned char *got, size_t n, unsigned seed, unsigned char guard,
			  bool before)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != (unsigned char)(i * 7 + (i >> 8) * 13 + seed))
			fail("byte %zu of %zu is %02x", i, n, got[i]);
	for (int i = 0; i < GUARD; i++)
		if (got[n + (size_t)i] != guard || (before && got[-1 - i] != guard))
			fail("a byte outside the message of %zu was written", n);
}

/* ---- operations ---------------------------------------------------------------------------- */

static void recv_post(struct test *t, size_t n)
{
	size_t extra = t->opt.type == IBV_QPT_UD ? GRH : 0;
	bool pieces = strcmp(t->opt.op, "sg") == 0 && n >= 4;
	size_t first = pieces ? n / 4 + extra : n + extra;
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)t->b.buf, .length = (uint32_t)first, .lkey = t->b.mr->lkey },
		{ .addr = (uintptr_t)t->b.buf + first,
		  .length = (uint32_t)(n + extra - first),
		  .lkey = t->b.mr->lkey },
	};
	struct ibv_recv_wr wr = { .wr_id = 77, .sg_list = sge, .num_sge = pieces ? 2 : 1 }, *bad;

	zero(ibv_post_recv(t->b.qp, &wr, &bad), "ibv_post_recv");
}

static void send_post(struct test *t, struct ibv_send_wr *wr, size_t n)
{
	bool pieces = strcmp(t->opt.op, "sg") == 0 && n >= 4;
	size_t first = pieces ? n / 3 : n;
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)t->a.buf, .length = (uint32_t)first, .lkey = t->a.mr->lkey },
		{ .addr = (uintptr_t)t->a.buf + first,
		  .length = (uint32_t)(n - first),
		  .lkey = t->a.mr->lkey },
	};
	struct ibv_send_wr *bad;

	wr->wr_id = 33;
	wr->sg_list = sge;
	wr->num_sge = pieces ? 2 : 1;
	wr->send_flags |= IBV_SEND_SIGNALED;
	if (t->opt.type == IBV_QPT_UD) {
		wr->wr.ud.ah = t->ah;
		wr->wr.ud.remote_qpn = t->b.qp->qp_num;
		wr->wr.ud.remote_qkey = QKEY;
	}
	zero(ibv_post_send(t->a.qp, wr, &bad), "ibv_post_send");
	if (wr->send_flags & IBV_SEND_INLINE)
		memset(t->a.buf, 0xaa, n); /* an inline payload was taken by the call */
}

static void send_run(struct test *t, size_t n, unsigned seed)
{
	size_t grh = t->opt.type == IBV_QPT_UD ? GRH : 0;
	bool imm = strcmp(t->opt.op, "imm") == 0;
	struct ibv_send_wr wr = { .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
				  .imm_data = htonl(seed) };
	struct ibv_wc wc;

	if (strcmp(t->opt.op, "inline") == 0)
		wr.send_flags = IBV_SEND_INLINE;
	recv_post(t, n);
	send_post(t, &wr, n);
	completion_wait(&t->a, IBV_WC_SEND, 33);
	wc = completion_wait(&t->b, IBV_WC_RECV, 77);
	if (wc.byte_len != n + grh)
		fail("byte_len %u for %zu", wc.byte_len, n + grh);
	if (imm && (!(wc.wc_flags & IBV_WC_WITH_IMM) || wc.imm_data != htonl(seed)))
		fail("immediate data %08x", wc.imm_data);
	if (grh && (!(wc.wc_flags & IBV_WC_GRH) || wc.src_qp != t->a.qp->qp_num))
		fail("UD completion without GRH or from QP %u", wc.src_qp);
	pattern_check(t->b.buf + grh, n, seed, 0xbb, grh == 0);
}

static void write_run(struct test *t, size_t n, unsigned seed)
{
	bool imm = strcmp(t->opt.op, "write_imm") == 0;
	struct ibv_send_wr wr = { .opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
				  .imm_data = htonl(seed) };
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = (uintptr_t)t->b.buf;
	wr.wr.rdma.rkey = t->b.mr->rkey;
	if (imm)
		recv_post(t, 0);
	send_post(t, &wr, n);
	completion_wait(&t->a, IBV_WC_RDMA_WRITE, 33);
	if (imm) {
		wc = completion_wait(&t->b, IBV_WC_RECV_RDMA_WITH_IMM, 77);
		if (wc.byte_len != n || wc.imm_data != htonl(seed))
			fail("write with immediate: %u bytes, data %08x", wc.byte_len, wc.imm_data);
	}
	for (volatile unsigned char *last = t->b.buf + n - 1; n > 0 && t->opt.type == IBV_QPT_UC &&
	     *last != (unsigned char)((n - 1) * 7 + ((n - 1) >> 8) * 13 + seed);)
		ibv_poll_cq(t->b.cq, 0, &wc); /* UC completes before the data is there */
	pattern_check(t->b.buf, n, seed, 0xbb, true);
}

/* Here A's buffer is the target: it reads B's pattern. */
static void read_run(struct test *t, size_t n, unsigned seed)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ };

	memset(t->a.memory, 0xaa, n + 2 * GUARD);
	pattern_fill(t->b.buf, n, seed);
	wr.wr.rdma.remote_addr = (uintptr_t)t->b.buf;
	wr.wr.rdma.rkey = t->b.mr->rkey;
	send_post(t, &wr, n);
	completion_wait(&t->a, IBV_WC_RDMA_READ, 33);
	pattern_check(t->a.buf, n, seed, 0xaa, true);
}

static void atomic_run(struct test *t, unsigned seed)
{
	bool add = strcmp(t->opt.op, "fetch_add") == 0;
	uint64_t before = 0x100000000ull + seed, after = add ? before + 5 : 99,
		 *target = (void *)t->b.buf;
	struct ibv_send_wr wr = { .opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD
						: IBV_WR_ATOMIC_CMP_AND_SWP };
	uint64_t got;

	*target = before;
	wr.wr.atomic.remote_addr = (uintptr_t)target;
	wr.wr.atomic.rkey = t->b.mr->rkey;
	wr.wr.atomic.compare_add = add ? 5 : before;
	wr.wr.atomic.swap = 99;
	for (int i = 0; i < 2; i++) { /* the second swap must not match */
		send_post(t, &wr, 8);
		completion_wait(&t->a, add ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP, 33);
		memcpy(&got, t->a.buf, 8);
		if (got != (i == 0 ? before : after) ||
		    *target != (add ? after + 5 * (uint64_t)i : after))
			fail("atomic %d: returned %llx, target %llx", i, (unsigned long long)got,
			     (unsigned long long)*target);
	}
}

/* SEND_WITH_INV of a key that is no window: the receiver's QP must refuse it, and nothing may
 * crash. */
static void inv_run(struct test *t)
{
	struct ibv_sge sge = { .addr = (uintptr_t)t->a.buf, .length = 8, .lkey = t->a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 33,
				  .opcode = IBV_WR_SEND_WITH_INV,
				  .invalidate_rkey = 0x12345678,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc;
	int n = 0;

	recv_post(t, 8);
	zero(ibv_post_send(t->a.qp, &wr, &bad), "ibv_post_send with invalidate");
	for (int i = 0; n == 0 && i < WAIT_POLLS; i++)
		n = ibv_poll_cq(t->a.cq, 1, &wc);
	if (n != 1 || wc.status == IBV_WC_SUCCESS)
		fail("invalidating a key that does not exist: %s",
		     n == 1 ? "success" : "no completion");
}

static void size_run(struct test *t, size_t n, unsigned seed)
{
	const char *op = t->opt.op;

	ends_fill(t, n, seed);
	if (strncmp(op, "write", 5) == 0 || strcmp(op, "big") == 0)
		write_run(t, n, seed);
	else if (strcmp(op, "read") == 0)
		read_run(t, n, seed);
	else if (strcmp(op, "fetch_add") == 0 || strcmp(op, "cmp_swap") == 0)
		atomic_run(t, seed);
	else
		send_run(t, n, seed);
	if (strcmp(op, "big") == 0) {
		ends_fill(t, n, seed);
		send_run(t, n, seed);
	}
}

static void sizes_run(struct test *t)
{
	static const size_t sizes[] = { 0,    1,    2,	  7,	 64,	  65, 1023,
					1024, 1025, 4096, 65536, 1000003, BIG };
	const char *op = t->opt.op;
	size_t mtu = (size_t)128 << t->port.active_mtu,
	       least = strcmp(op, "big") == 0 ? 1 << 20 : 0;
	size_t most = strcmp(op, "inline") == 0 ? 64 : strcmp(op, "big") == 0 ? BIG : 1000003;

	if (t->opt.type == IBV_QPT_UD && most > mtu)
		most = mtu;
	if (strstr(op, "fetch") || strstr(op, "swap"))
		most = 64, least = 64;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned round = 0; sizes[i] >= least && sizes[i] <= most && round < 3;
		     round++)
			size_run(t, sizes[i], i * 16 + round);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void end_destroy(struct end *e)
{
	zero(ibv_destroy_qp(e->qp), "ibv_destroy_qp");
	zero(ibv_destroy_cq(e->cq), "ibv_destroy_cq");
	if (e->channel != NULL)
		zero(ibv_destroy_comp_channel(e->channel), "ibv_destroy_comp_channel");
	zero(ibv_dereg_mr(e->mr), "ibv_dereg_mr");
	free(e->memory);
}

static void options_read(struct options *o, int argc, char **argv)
{
	int c;

	*o = (struct options){ .type = IBV_QPT_RC, .type_name = "RC", .op = "send" };
	while ((c = getopt(argc, argv, "t:o:g:d:e")) != -1) {
		if (c == 't')
			o->type = conn_type(optarg), o->type_name = optarg;
		else if (c == 'o')
			o->op = optarg;
		else if (c == 'g')
			o->gid = atoi(optarg);
		else if (c == 'd')
			o->device = optarg;
		else if (c == 'e')
			o->events = true;
		else if (c == '?')
			fail("usage: loopback -t RC|UC|UD -o OPERATION [-g GID] [-d DEVICE] [-e]");
	}
}

int main(int argc, char **argv)
{
	struct test t = { .room = 1 << 20 };

	options_read(&t.opt, argc, argv);
	if (strcmp(t.opt.op, "big") == 0)
		t.room = BIG + (1 << 20);
	test_open(&t);
	end_create(&t, &t.a);
	end_create(&t, &t.b);
	ends_connect(&t);
	sizes_run(&t);
	if (strcmp(t.opt.op, "send_inv") == 0)
		inv_run(&t);
	if (t.ah != NULL)
		zero(ibv_destroy_ah(t.ah), "ibv_destroy_ah");
	end_destroy(&t.a);
	end_destroy(&t.b);
	zero(ibv_dealloc_pd(t.pd), "ibv_dealloc_pd");
	zero(ibv_close_device(t.ctx), "ibv_close_device");
	printf("ok %s %s\n", t.opt.type_name, t.opt.op);
	return 0;
}
