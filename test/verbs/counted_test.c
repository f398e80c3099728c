/* counted_test.c: completion counters, by prototypes of their own: those of rdma-core 65, whose
 * headers are not the ones that this is built with.
 * In: requests of all kinds, mistakes    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

struct ibv_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
	uint64_t comp_count_max_value, err_count_max_value;
};
struct comp_init {
	uint32_t comp_mask, type, flags;
};
struct comp_attach {
	uint32_t comp_mask, op_mask;
};
struct comp_caps {
	uint64_t max_value;
	uint32_t max_counters, ops;
};

enum { OP_SEND = 1, OP_RECV = 2, OP_READ = 4, OP_REMOTE_READ = 8, OP_WRITE = 16, OP_KNOWN = 23 };
enum { BYTES = 1, LENGTH = 100, LONG = 100000 };

int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct comp_caps *caps, size_t size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct comp_init *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter,
			    struct comp_attach *attr);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_srq *srq;
static struct ibv_qp *qp[2];
static struct ibv_qp_attr attr;
static struct ibv_ah *ah;
static uint8_t memory[2][LONG];

static struct ibv_qp *make_qp(enum ibv_qp_type type, bool shared)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
					 .srq = shared ? srq : NULL,
					 .cap = { 64, 64, 1, 1, 0 } };
	struct ibv_qp *made = ibv_create_qp(pd, &init);

	assert_non_null(made);
	return made;
}

static void bed_open(enum ibv_qp_type type, bool shared)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 1 } };
	union ibv_gid gid;

	ctx = device_open(NULL);
	assert_non_null(ctx);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 512, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	srq = ibv_create_srq(pd, &init);
	assert_int_equal(ibv_query_gid(ctx, 1, 1, &gid), 0);
	attr = conn_attr(0, &gid, 1);
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_REMOTE_ATOMIC;
	ah = ibv_create_ah(pd, &attr.ah_attr);
	qp[0] = make_qp(type, false);
	qp[1] = make_qp(type, shared);
}

static void bed_close(void)
{
	for (int i = 0; i < 2; i++)
		if (qp[i])
			assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static struct ibv_comp_cntr *make(uint32_t type)
{
	struct comp_init init = { .type = type };
	struct ibv_comp_cntr *counter = ibv_create_comp_cntr(ctx, &init);

	assert_non_null(counter);
	assert_ptr_equal(counter->context, ctx);
	assert_int_equal(counter->comp_count_max_value, UINT64_MAX);
	return counter;
}

static int attach(struct ibv_qp *to, struct ibv_comp_cntr *counter, uint32_t ops)
{
	struct comp_attach a = { .op_mask = ops };

	return ibv_qp_attach_comp_cntr(to, counter, &a);
}

static uint64_t count(struct ibv_comp_cntr *counter)
{
	uint64_t value = 77;

	assert_int_equal(ibv_read_comp_cntr(counter, &value), 0);
	return value;
}

static uint64_t errors(struct ibv_comp_cntr *counter)
{
	uint64_t value = 77;

	assert_int_equal(ibv_read_err_comp_cntr(counter, &value), 0);
	return value;
}

/* Nobody polls a CQ meanwhile. */
static void await(struct ibv_comp_cntr *counter, uint64_t value)
{
	for (int i = 0; i < PAIR_WAIT_MS && count(counter) < value; i++)
		usleep(1000);
	assert_int_equal(count(counter), value);
}

static void post_recv(int n)
{
	struct ibv_sge sge = { (uintptr_t)memory[1], LONG, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < n; i++)
		assert_int_equal(qp[1]->srq ? ibv_post_srq_recv(qp[1]->srq, &wr, &bad) :
					      ibv_post_recv(qp[1], &wr, &bad),
				 0);
}

/* `invalidate`: the key that SEND with invalidate names. */
static void post_key(enum ibv_wr_opcode opcode, uint32_t length, unsigned int flags,
		     uint32_t invalidate)
{
	struct ibv_sge sge = { (uintptr_t)memory[0], length, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode,
				  .send_flags = flags }, *bad;

	if (opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = invalidate;
	if (qp[0]->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qp[1]->qp_num;
		wr.wr.ud.remote_qkey = attr.qkey;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory[1];
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)memory[1];
		wr.wr.rdma.rkey = mr->rkey;
	}
	assert_int_equal(ibv_post_send(qp[0], &wr, &bad), 0);
}

static void post_send(enum ibv_wr_opcode opcode, uint32_t length, unsigned int flags)
{
	post_key(opcode, length, flags, 0);
}

/* No more completions than these. A counter may be there before them. */
static void expect_completions(int n)
{
	struct ibv_wc wc[64];

	assert_int_equal(cq_wait(cq, wc, n, PAIR_WAIT_MS), n);
	assert_int_equal(ibv_poll_cq(cq, 64, wc), 0);
}

/* Binds a window of type 2 of the receiver's, which counts as none of these operations. */
static void bind(struct ibv_mw *window)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.bind_mw.mw = window;
	wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)memory[1], LENGTH,
							  IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(ibv_post_send(qp[1], &wr, &bad), 0);
	window->rkey = wr.bind_mw.rkey;
	expect_completions(1);
}

/* ---- what is counted ---- */

static void counts(enum ibv_qp_type type, bool shared)
{
	struct ibv_comp_cntr *sent, *sent_bytes, *received;
	bool rc = type == IBV_QPT_RC;

	bed_open(type, shared);
	sent = make(0);
	sent_bytes = make(BYTES);
	received = make(BYTES);
	assert_int_equal(attach(qp[0], sent, OP_SEND | (rc ? OP_READ : 0)), 0);
	assert_int_equal(attach(qp[0], sent_bytes, OP_WRITE), 0);
	assert_int_equal(attach(qp[1], received, OP_RECV), 0);
	assert_int_equal(conn_pair(qp[0], qp[1], &attr), 0);
	post_recv(20);
	for (int i = 0; i < 10; i++)
		post_send(IBV_WR_SEND, i + 1, 0); /* without completions */
	await(sent, 10);
	await(received, 55 + (type == IBV_QPT_UD ? 400 : 0)); /* and a GRH each */
	if (rc) {
		post_send(IBV_WR_RDMA_WRITE, LENGTH, 0);
		post_send(IBV_WR_RDMA_WRITE, LONG, 0);
		await(sent_bytes, LENGTH + LONG);
		post_send(IBV_WR_RDMA_READ, LENGTH, 0);
		await(sent, 11);
		post_send(IBV_WR_RDMA_WRITE_WITH_IMM, LENGTH, 0);
		await(received, 55 + LENGTH);
	}
	expect_completions(rc ? 11 : 10); /* the receives' */
	post_send(IBV_WR_SEND, 1, IBV_SEND_SIGNALED);
	await(sent, rc ? 12 : 11);
	expect_completions(2);
	assert_int_equal(errors(sent), 0);
	assert_int_equal(errors(received), 0);
	assert_int_equal(ibv_destroy_comp_cntr(sent), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp[0]), 0);
	qp[0] = NULL;
	assert_int_equal(ibv_destroy_comp_cntr(sent), 0);
	assert_int_equal(ibv_destroy_comp_cntr(sent_bytes), 0);
	assert_int_equal(ibv_destroy_qp(qp[1]), 0);
	qp[1] = NULL;
	assert_int_equal(ibv_destroy_comp_cntr(received), 0);
	bed_close();
}

static void counts__rc(void **state)
{
	counts(IBV_QPT_RC, false);
}

static void counts__rc_with_an_srq(void **state)
{
	counts(IBV_QPT_RC, true);
}

static void counts__uc(void **state)
{
	counts(IBV_QPT_UC, false);
}

static void counts__ud(void **state)
{
	counts(IBV_QPT_UD, false);
}

/* Each operation counts in the counter of its kind, and in no other: those that have no kind in
 * none. The window makes a key to invalidate. */
static void counts__each_operation(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t send, read, write, recv;
	} rows[] = {
		{ IBV_WR_SEND, 1, 0, 0, 1 },
		{ IBV_WR_SEND_WITH_IMM, 1, 0, 0, 1 },
		{ IBV_WR_SEND_WITH_INV, 1, 0, 0, 1 },
		{ IBV_WR_RDMA_WRITE, 0, 0, 1, 0 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 1, 1 },
		{ IBV_WR_RDMA_READ, 0, 1, 0, 0 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 0, 0 },
	};
	struct ibv_comp_cntr *of[4];
	uint64_t wanted[4] = { 0 };

	bed_open(IBV_QPT_RC, false);
	for (int i = 0; i < 4; i++)
		of[i] = make(0);
	assert_int_equal(attach(qp[0], of[0], OP_SEND), 0);
	assert_int_equal(attach(qp[0], of[1], OP_READ), 0);
	assert_int_equal(attach(qp[0], of[2], OP_WRITE), 0);
	assert_int_equal(attach(qp[1], of[3], OP_RECV), 0);
	assert_int_equal(conn_pair(qp[0], qp[1], &attr), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);

		assert_non_null(window);
		if (rows[i].opcode == IBV_WR_SEND_WITH_INV)
			bind(window);
		post_recv(rows[i].recv != 0);
		post_key(rows[i].opcode, 8, IBV_SEND_SIGNALED, window->rkey);
		expect_completions(1 + (rows[i].recv != 0));
		wanted[0] += rows[i].send;
		wanted[1] += rows[i].read;
		wanted[2] += rows[i].write;
		wanted[3] += rows[i].recv;
		for (int k = 0; k < 4; k++)
			assert_int_equal(count(of[k]), wanted[k]);
		assert_int_equal(ibv_dealloc_mw(window), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	qp[0] = qp[1] = NULL;
	for (int i = 0; i < 4; i++)
		assert_int_equal(ibv_destroy_comp_cntr(of[i]), 0);
	bed_close();
}

/* Requests that are flushed, and several queue pairs with one counter. */
static void counts__errors(void **state)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_comp_cntr *counter;

	bed_open(IBV_QPT_RC, false);
	counter = make(0);
	assert_int_equal(attach(qp[0], counter, OP_KNOWN), 0);
	assert_int_equal(attach(qp[1], counter, OP_KNOWN), 0);
	assert_int_equal(conn_pair(qp[0], qp[1], &attr), 0);
	post_recv(5);
	post_send(IBV_WR_SEND, 8, 0);
	await(counter, 2); /* the SEND, and the receive */
	assert_int_equal(ibv_modify_qp(qp[1], &error, IBV_QP_STATE), 0);
	assert_int_equal(errors(counter), 4);
	assert_int_equal(ibv_modify_qp(qp[0], &error, IBV_QP_STATE), 0);
	post_send(IBV_WR_SEND, 8, 0);
	assert_int_equal(errors(counter), 5);
	assert_int_equal(count(counter), 2);
	assert_int_equal(ibv_destroy_qp(qp[0]), 0);
	assert_int_equal(ibv_destroy_comp_cntr(counter), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp[1]), 0);
	qp[0] = qp[1] = NULL;
	assert_int_equal(ibv_destroy_comp_cntr(counter), 0);
	bed_close();
}

/* A counter stays with its queue pair through RESET. */
static void counts__after_a_reset(void **state)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_comp_cntr *counter;

	bed_open(IBV_QPT_RC, false);
	counter = make(0);
	assert_int_equal(attach(qp[0], counter, OP_SEND), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(conn_pair(qp[0], qp[1], &attr), 0);
		post_recv(1);
		post_send(IBV_WR_SEND, 8, 0);
		await(counter, (uint64_t)i + 1);
		for (int k = 0; k < 2; k++)
			assert_int_equal(ibv_modify_qp(qp[k], &reset, IBV_QP_STATE), 0);
	}
	assert_int_equal(ibv_destroy_qp(qp[0]), 0);
	qp[0] = NULL;
	assert_int_equal(ibv_destroy_comp_cntr(counter), 0);
	bed_close();
}

/* ---- values and mistakes ---- */

static void values__set_and_added_to(void **state)
{
	struct comp_caps caps = { 0 };
	struct ibv_comp_cntr *counter;

	bed_open(IBV_QPT_RC, false);
	assert_int_equal(_ibv_query_comp_cntr_caps(ctx, &caps, sizeof(caps)), 0);
	assert_int_equal(caps.max_value, UINT64_MAX);
	assert_int_equal(caps.ops, OP_KNOWN);
	assert_int_equal(caps.max_counters, 65536);
	counter = make(0);
	assert_int_equal(count(counter), 0);
	assert_int_equal(ibv_set_comp_cntr(counter, 10), 0);
	assert_int_equal(ibv_inc_comp_cntr(counter, 5), 0);
	assert_int_equal(count(counter), 15);
	assert_int_equal(errors(counter), 0);
	assert_int_equal(ibv_set_err_comp_cntr(counter, UINT64_MAX), 0);
	assert_int_equal(ibv_inc_err_comp_cntr(counter, 1), 0); /* wraps */
	assert_int_equal(errors(counter), 0);
	assert_int_equal(count(counter), 15);
	assert_int_equal(ibv_destroy_comp_cntr(counter), 0);
	bed_close();
}

static void refused__creation(void **state)
{
	static struct comp_init bad[] = { { .comp_mask = 1 }, { .type = 2 }, { .flags = 1 },
					  { .type = UINT32_MAX } };

	bed_open(IBV_QPT_RC, false);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		errno = 0;
		assert_null(ibv_create_comp_cntr(ctx, &bad[i]));
		assert_int_equal(errno, EINVAL);
	}
	bed_close();
}

/* As many as the caps say, over all queue pairs and files. */
static void refused__one_more(void **state)
{
	struct comp_caps caps;
	struct comp_init init = { 0 };
	struct ibv_comp_cntr **counters;
	uint32_t n = 0;

	bed_open(IBV_QPT_RC, false);
	assert_int_equal(_ibv_query_comp_cntr_caps(ctx, &caps, sizeof(caps)), 0);
	counters = calloc(caps.max_counters + 1, sizeof(*counters));
	assert_non_null(counters);
	errno = 0;
	while (n <= caps.max_counters && (counters[n] = ibv_create_comp_cntr(ctx, &init)))
		n++;
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(n, caps.max_counters);
	assert_int_equal(ibv_destroy_comp_cntr(counters[--n]), 0);
	counters[n] = ibv_create_comp_cntr(ctx, &init);
	assert_non_null(counters[n]);
	for (uint32_t i = 0; i <= n; i++)
		assert_int_equal(ibv_destroy_comp_cntr(counters[i]), 0);
	free(counters);
	bed_close();
}

static void refused__attachment(void **state)
{
	struct comp_attach masked = { .comp_mask = 1, .op_mask = OP_SEND };
	struct ibv_context *other = device_open(NULL);
	struct comp_init init = { 0 };
	struct ibv_comp_cntr *counter, *foreign = ibv_create_comp_cntr(other, &init);

	bed_open(IBV_QPT_RC, false);
	counter = make(0);
	assert_int_equal(ibv_qp_attach_comp_cntr(qp[0], counter, &masked), EINVAL);
	assert_int_equal(attach(qp[0], foreign, OP_SEND), EINVAL);
	assert_int_equal(attach(qp[0], counter, 0), EINVAL);
	assert_int_equal(attach(qp[0], counter, OP_REMOTE_READ), EOPNOTSUPP);
	assert_int_equal(attach(qp[0], counter, OP_SEND | 1 << 5), EOPNOTSUPP);
	assert_int_equal(attach(qp[0], counter, 1u << 31), EOPNOTSUPP);
	assert_int_equal(attach(qp[0], counter, OP_SEND), 0);
	assert_int_equal(conn_to(qp[0], &attr, IBV_QPS_INIT), 0);
	assert_int_equal(attach(qp[0], counter, OP_SEND | OP_RECV), EBUSY);
	assert_int_equal(attach(qp[0], counter, OP_RECV), 0);
	assert_int_equal(attach(qp[0], counter, OP_RECV), EBUSY);
	assert_int_equal(conn_to(qp[0], &attr, IBV_QPS_RTR), 0);
	assert_int_equal(attach(qp[0], counter, OP_READ), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp[0]), 0);
	qp[0] = NULL;
	assert_int_equal(ibv_destroy_comp_cntr(counter), 0);
	assert_int_equal(ibv_destroy_comp_cntr(foreign), 0);
	bed_close();
	assert_int_equal(ibv_close_device(other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts__rc),
		cmocka_unit_test(counts__rc_with_an_srq),
		cmocka_unit_test(counts__uc),
		cmocka_unit_test(counts__ud),
		cmocka_unit_test(counts__each_operation),
		cmocka_unit_test(counts__errors),
		cmocka_unit_test(counts__after_a_reset),
		cmocka_unit_test(values__set_and_added_to),
		cmocka_unit_test(refused__creation),
		cmocka_unit_test(refused__one_more),
		cmocka_unit_test(refused__attachment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
