/* full_test.c: queues that fill. A place in a work queue is free once its completion, or a later
 * one of the same queue, has been polled; with ANYVERBS_QUEUES=early once the request is complete.
 * In: requests posted without polling    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

#include <cmocka.h>

enum {
	DEPTH = 8, /* of each queue; a power of two, as adapters have them */
	CQES = 64,
	BYTES = 64,
	QKEY = 0x1111,
	GRH = 40,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t memory[4096];
static struct ibv_ah *ah;

/* Two ends in this process, each with CQs of its own. */
struct full_end {
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
};

struct full_line {
	enum ibv_qp_type type;
	struct full_end from, to;
};

static void full_end_open(struct full_end *e, enum ibv_qp_type type, bool shared)
{
	struct ibv_srq_init_attr shared_init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .cap = { DEPTH, shared ? 0 : DEPTH, 1, shared ? 0 : 1, 0 },
					 .qp_type = type };

	e->srq = shared ? ibv_create_srq(pd, &shared_init) : NULL;
	init.srq = e->srq;
	init.send_cq = e->send_cq = ibv_create_cq(ctx, CQES, NULL, NULL, 0);
	init.recv_cq = e->recv_cq = ibv_create_cq(ctx, CQES, NULL, NULL, 0);
	e->qp = ibv_create_qp(pd, &init);
	assert_true(e->qp != NULL && (e->srq != NULL || !shared));
	assert_int_equal(init.cap.max_send_wr, DEPTH);
}

static struct ibv_qp_attr full_attr(void)
{
	struct ibv_qp_attr a;
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(ctx, CONN_PORT, 1, &gid), 0);
	a = conn_attr(0, &gid, 1);
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	a.qkey = QKEY;
	return a;
}

static void full_connect(struct full_line *l)
{
	struct ibv_qp_attr a = full_attr();

	assert_int_equal(conn_pair(l->to.qp, l->from.qp, &a), 0);
}

static void full_open(struct full_line *l, enum ibv_qp_type type, bool shared)
{
	l->type = type;
	full_end_open(&l->from, type, false);
	full_end_open(&l->to, type, shared);
	full_connect(l);
}

static void full_end_close(struct full_end *e)
{
	if (e->qp != NULL)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	if (e->srq != NULL)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_destroy_cq(e->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(e->recv_cq), 0);
}

static void full_close(struct full_line *l)
{
	full_end_close(&l->from);
	full_end_close(&l->to);
}

static int receive(struct full_end *e)
{
	struct ibv_sge sge = { (uintptr_t)memory, BYTES + GRH, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int err = e->srq != NULL ? ibv_post_srq_recv(e->srq, &wr, &bad)
				 : ibv_post_recv(e->qp, &wr, &bad);

	assert_true(err == 0 || bad == &wr);
	return err;
}

static int send_list(struct full_line *l, enum ibv_wr_opcode opcode, int flags, int n, int *done)
{
	struct ibv_sge sge = { (uintptr_t)memory + 1024, BYTES, mr->lkey };
	struct ibv_send_wr wr[2 * DEPTH], *bad = NULL;
	int err;

	for (int i = 0; i < n; i++) {
		wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i,
					      .sg_list = &sge,
					      .num_sge = 1,
					      .opcode = opcode,
					      .send_flags = (unsigned int)flags,
					      .next = i + 1 == n ? NULL : &wr[i + 1] };
		if (l->type == IBV_QPT_UD) {
			wr[i].wr.ud.ah = ah;
			wr[i].wr.ud.remote_qpn = l->to.qp->qp_num;
			wr[i].wr.ud.remote_qkey = QKEY;
		} else {
			wr[i].wr.rdma.remote_addr = (uintptr_t)memory + 2048;
			wr[i].wr.rdma.rkey = mr->rkey;
		}
	}
	err = ibv_post_send(l->from.qp, wr, &bad);
	*done = bad == NULL ? n : (int)(bad - wr);
	return err;
}

static int send_one(struct full_line *l, enum ibv_wr_opcode opcode, int flags)
{
	int done;

	return send_list(l, opcode, flags, 1, &done);
}

static void take(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc[CQES];

	assert_int_equal(cq_wait(cq, wc, n, PAIR_WAIT_MS), n);
	for (int i = 0; i < n; i++)
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
}

/* How many more requests the send queue takes, signalled ones; all are polled in the end. */
static void expect_room(struct full_line *l, enum ibv_wr_opcode opcode, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(send_one(l, opcode, IBV_SEND_SIGNALED), 0);
	assert_int_equal(send_one(l, opcode, IBV_SEND_SIGNALED), ENOMEM);
}

/* What a test is told of the ways a request goes. */
static const struct {
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
} ways[] = { { IBV_QPT_RC, IBV_WR_SEND },	{ IBV_QPT_RC, IBV_WR_RDMA_WRITE },
	     { IBV_QPT_RC, IBV_WR_RDMA_READ },	{ IBV_QPT_UC, IBV_WR_SEND },
	     { IBV_QPT_UC, IBV_WR_RDMA_WRITE }, { IBV_QPT_UD, IBV_WR_SEND } };
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void feed(struct full_line *l, enum ibv_wr_opcode opcode, int n)
{
	for (int i = 0; opcode == IBV_WR_SEND && i < n; i++)
		assert_int_equal(receive(&l->to), 0);
}

static void drink(struct full_line *l, enum ibv_wr_opcode opcode, int n)
{
	if (opcode == IBV_WR_SEND)
		take(l->to.recv_cq, n);
}

/* ---- send queues ---- */

static void send_queue__is_full_until_a_completion_is_polled(void **state)
{
	struct full_line l;

	for (size_t w = 0; w < WAYS; w++) {
		enum ibv_wr_opcode op = ways[w].opcode;
		struct ibv_wc wc;

		full_open(&l, ways[w].type, false);
		feed(&l, op, DEPTH);
		expect_room(&l, op, DEPTH);
		drink(&l, op, DEPTH); /* all have been received: complete soon, but not polled */
		usleep(20000);
		assert_int_equal(send_one(&l, op, IBV_SEND_SIGNALED), ENOMEM);
		assert_int_equal(cq_wait(l.from.send_cq, &wc, 1, PAIR_WAIT_MS), 1);
		feed(&l, op, 1);
		expect_room(&l, op, 1);
		drink(&l, op, 1);
		take(l.from.send_cq, DEPTH);
		feed(&l, op, DEPTH);
		expect_room(&l, op, DEPTH);
		full_close(&l);
	}
}

static void send_queue__of_unsignalled_requests_stays_full(void **state)
{
	struct full_line l;

	for (size_t w = 0; w < WAYS; w++) {
		enum ibv_wr_opcode op = ways[w].opcode;
		struct ibv_wc wc;

		full_open(&l, ways[w].type, false);
		feed(&l, op, DEPTH);
		for (int i = 0; i < DEPTH; i++)
			assert_int_equal(send_one(&l, op, 0), 0);
		drink(&l, op, DEPTH);
		usleep(20000);
		assert_int_equal(ibv_poll_cq(l.from.send_cq, 1, &wc), 0);
		assert_int_equal(send_one(&l, op, 0), ENOMEM);
		full_close(&l);
	}
}

/* The completion of a later request frees the places of those before it. */
static void send_queue__is_freed_by_one_in_many(void **state)
{
	struct full_line l;

	for (size_t w = 0; w < WAYS; w++) {
		enum ibv_wr_opcode op = ways[w].opcode;

		full_open(&l, ways[w].type, false);
		for (int round = 0; round < 5; round++) {
			feed(&l, op, DEPTH);
			for (int i = 0; i < DEPTH; i++)
				assert_int_equal(send_one(&l, op, i == 5 ? IBV_SEND_SIGNALED : 0),
						 0);
			assert_int_equal(send_one(&l, op, 0), ENOMEM);
			take(l.from.send_cq, 1);
			drink(&l, op, DEPTH);
			feed(&l, op, 6);
			for (int i = 0; i < 6; i++)
				assert_int_equal(send_one(&l, op, i == 5 ? IBV_SEND_SIGNALED : 0),
						 0);
			assert_int_equal(send_one(&l, op, 0), ENOMEM);
			take(l.from.send_cq, 1);
			drink(&l, op, 6);
		}
		full_close(&l);
	}
}

static void send_queue__takes_of_a_list_what_fits(void **state)
{
	struct full_line l;
	int done;

	for (size_t w = 0; w < WAYS; w++) {
		enum ibv_wr_opcode op = ways[w].opcode;

		full_open(&l, ways[w].type, false);
		feed(&l, op, DEPTH);
		assert_int_equal(send_one(&l, op, IBV_SEND_SIGNALED), 0);
		assert_int_equal(send_list(&l, op, IBV_SEND_SIGNALED, DEPTH + 3, &done), ENOMEM);
		assert_int_equal(done, DEPTH - 1);
		take(l.from.send_cq, DEPTH);
		drink(&l, op, DEPTH);
		full_close(&l);
	}
}

/* Free-running numbers wrap at 65,536. */
static void send_queue__counts_on_and_on(void **state)
{
	struct full_line l;

	full_open(&l, IBV_QPT_RC, false);
	for (int i = 0; i < 70000; i++) {
		assert_int_equal(
			send_one(&l, IBV_WR_RDMA_WRITE, i % DEPTH == 3 ? IBV_SEND_SIGNALED : 0), 0);
		if (i % DEPTH == 3)
			take(l.from.send_cq, 1);
	}
	full_close(&l);
}

/* Flushed requests take places, too; RESET empties the queue and the CQ. */
static void send_queue__in_error_fills_and_reset_empties_it(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc[DEPTH];
	struct full_line l;

	full_open(&l, IBV_QPT_RC, false);
	assert_int_equal(ibv_modify_qp(l.from.qp, &a, IBV_QP_STATE), 0);
	expect_room(&l, IBV_WR_RDMA_WRITE, DEPTH);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(receive(&l.from), 0);
	assert_int_equal(receive(&l.from), ENOMEM);
	assert_int_equal(cq_wait(l.from.send_cq, wc, 3, PAIR_WAIT_MS), 3);
	assert_int_equal(wc[2].status, IBV_WC_WR_FLUSH_ERR);
	expect_room(&l, IBV_WR_RDMA_WRITE, 3);
	a.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(l.from.qp, &a, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(l.to.qp, &a, IBV_QP_STATE), 0);
	assert_int_equal(ibv_poll_cq(l.from.send_cq, 1, wc), 0);
	assert_int_equal(ibv_poll_cq(l.from.recv_cq, 1, wc), 0);
	full_connect(&l);
	expect_room(&l, IBV_WR_RDMA_WRITE, DEPTH);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(receive(&l.from), 0);
	assert_int_equal(receive(&l.from), ENOMEM);
	take(l.from.send_cq, DEPTH);
	full_close(&l);
}

/* ---- receive queues ---- */

static void receive_queue__is_full_until_a_completion_is_polled(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct full_line l;

	for (int t = 0; t < 3; t++)
		for (int shared = 0; shared < 2; shared++) {
			full_open(&l, types[t], shared);
			for (int i = 0; i < DEPTH; i++)
				assert_int_equal(receive(&l.to), 0);
			assert_int_equal(receive(&l.to), ENOMEM);
			for (int i = 0; i < 3; i++)
				assert_int_equal(send_one(&l, IBV_WR_SEND, IBV_SEND_SIGNALED), 0);
			take(l.from.send_cq, 3);
			usleep(20000);
			assert_int_equal(receive(&l.to), ENOMEM);
			take(l.to.recv_cq, 1);
			assert_int_equal(receive(&l.to), 0);
			assert_int_equal(receive(&l.to), ENOMEM);
			take(l.to.recv_cq, 2);
			assert_int_equal(receive(&l.to), 0);
			assert_int_equal(receive(&l.to), 0);
			assert_int_equal(receive(&l.to), ENOMEM);
			full_close(&l);
		}
}

/* A queue pair that goes, or begins anew, gives back what it had of the SRQ. */
static void shared_queue__gets_places_back(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct full_line l;

	for (int destroys = 0; destroys < 2; destroys++) {
		full_open(&l, IBV_QPT_RC, true);
		for (int i = 0; i < DEPTH; i++)
			assert_int_equal(receive(&l.to), 0);
		for (int i = 0; i < 5; i++)
			assert_int_equal(send_one(&l, IBV_WR_SEND, IBV_SEND_SIGNALED), 0);
		take(l.from.send_cq, 5);
		assert_int_equal(receive(&l.to), ENOMEM);
		if (destroys) {
			assert_int_equal(ibv_destroy_qp(l.to.qp), 0);
			l.to.qp = NULL;
		} else {
			assert_int_equal(ibv_modify_qp(l.to.qp, &a, IBV_QP_STATE), 0);
		}
		for (int i = 0; i < 5; i++)
			assert_int_equal(receive(&l.to), 0);
		assert_int_equal(receive(&l.to), ENOMEM);
		full_close(&l);
	}
}

/* ---- extended CQs ---- */

static struct ibv_cq_ex *extended_cq(uint32_t entries, uint32_t flags)
{
	struct ibv_cq_init_attr_ex init = { .cqe = entries,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = flags };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &init);

	assert_non_null(cq);
	return cq;
}

/* Replaces the sender's queue pair by one with this CQ. */
static void full_recreate(struct full_line *l, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = l->type,
					 .send_cq = cq,
					 .recv_cq = l->from.recv_cq };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	assert_int_equal(ibv_destroy_qp(l->from.qp), 0);
	l->from.qp = ibv_create_qp(pd, &init);
	assert_non_null(l->from.qp);
	assert_int_equal(ibv_modify_qp(l->to.qp, &a, IBV_QP_STATE), 0);
	full_connect(l);
}

static void next_poll__frees_at_once(void **state)
{
	struct ibv_cq_ex *cq = extended_cq(CQES, 0);
	struct ibv_poll_cq_attr poll = { 0 };
	struct full_line l;
	uint64_t end;
	int err;

	full_open(&l, IBV_QPT_RC, false);
	full_recreate(&l, ibv_cq_ex_to_cq(cq));
	expect_room(&l, IBV_WR_RDMA_WRITE, DEPTH);
	end = now_ms() + PAIR_WAIT_MS;
	while ((err = ibv_start_poll(cq, &poll)) == ENOENT && now_ms() < end)
		;
	assert_int_equal(err, 0);
	expect_room(&l, IBV_WR_RDMA_WRITE, 1);
	while ((err = ibv_next_poll(cq)) == ENOENT && now_ms() < end)
		; /* the second request may be on its way */
	assert_int_equal(err, 0);
	expect_room(&l, IBV_WR_RDMA_WRITE, 1);
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_qp(l.from.qp), 0);
	l.from.qp = NULL;
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	full_close(&l);
}

/* Whose completions may be lost has its places back when its requests are complete. */
static void ignore_overrun__frees_early(void **state)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 1,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &init);
	struct full_line l;

	assert_non_null(cq);
	full_open(&l, IBV_QPT_RC, false);
	full_recreate(&l, ibv_cq_ex_to_cq(cq));
	for (int i = 0; i < 300; i++) {
		uint64_t end = now_ms() + PAIR_WAIT_MS;
		int err;

		while ((err = send_one(&l, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED)) == ENOMEM &&
		       now_ms() < end)
			usleep(100);
		assert_int_equal(err, 0);
	}
	assert_int_equal(ibv_destroy_qp(l.from.qp), 0);
	l.from.qp = NULL;
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	full_close(&l);
}

/* ---- ANYVERBS_QUEUES=early ---- */

static void early__takes_requests_without_a_poll(void **state)
{
	struct full_line l;

	for (size_t w = 0; w < WAYS; w++) {
		enum ibv_wr_opcode op = ways[w].opcode;

		full_open(&l, ways[w].type, false);
		for (int i = 0; i < 5 * DEPTH; i++) {
			uint64_t end = now_ms() + PAIR_WAIT_MS;
			int err;

			feed(&l, op, 1);
			while ((err = send_one(&l, op, 0)) == ENOMEM && now_ms() < end)
				usleep(100);
			assert_int_equal(err, 0);
			drink(&l, op, 1);
		}
		full_close(&l);
	}
}

/* Lists by ibv_wr_*, whose room is judged before any is posted. */
static void batches__fit_again_and_again(void **state)
{
	struct full_line l;
	struct ibv_qp_init_attr_ex init = { .cap = { 2 * DEPTH, DEPTH, 1, 1, 0 },
					    .qp_type = IBV_QPT_RC,
					    .comp_mask = IBV_QP_INIT_ATTR_PD |
							 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					    .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_ex *qp;

	full_open(&l, IBV_QPT_RC, false);
	assert_int_equal(ibv_destroy_qp(l.from.qp), 0);
	init.pd = pd;
	init.send_cq = l.from.send_cq;
	init.recv_cq = l.from.recv_cq;
	l.from.qp = ibv_create_qp_ex(ctx, &init);
	assert_non_null(l.from.qp);
	assert_int_equal(ibv_modify_qp(l.to.qp, &a, IBV_QP_STATE), 0);
	full_connect(&l);
	qp = ibv_qp_to_qp_ex(l.from.qp);
	for (int i = 0; i < 5 * DEPTH; i++) {
		ibv_wr_start(qp);
		for (int k = 0; k < 3; k++) {
			qp->wr_flags = k == 2 ? IBV_SEND_SIGNALED : 0;
			ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + 2048);
			ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory + 1024, BYTES);
		}
		assert_int_equal(ibv_wr_complete(qp), 0);
		take(l.from.send_cq, 1);
	}
	full_close(&l);
}

/* Completions that are polled late, when the numbers have gone on, change nothing. */
static void early__heeds_no_poll(void **state)
{
	struct full_line l;
	int err;

	full_open(&l, IBV_QPT_RC, false);
	assert_int_equal(send_one(&l, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), 0);
	for (int i = 0; i < 65536 + 3; i++) {
		uint64_t end = now_ms() + PAIR_WAIT_MS;

		while ((err = send_one(&l, IBV_WR_RDMA_WRITE, 0)) == ENOMEM && now_ms() < end)
			usleep(100);
		assert_int_equal(err, 0);
	}
	take(l.from.send_cq, 1);
	for (int i = 0; i < 3 * DEPTH; i++) {
		uint64_t end = now_ms() + PAIR_WAIT_MS;

		while ((err = send_one(&l, IBV_WR_RDMA_WRITE, 0)) == ENOMEM && now_ms() < end)
			usleep(100);
		assert_int_equal(err, 0);
	}
	full_close(&l);
}

/* ---- main ---- */

static int setup(void **state)
{
	struct ibv_qp_attr a;

	ctx = device_open(NULL);
	if (ctx == NULL)
		return -1;
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	a = full_attr();
	ah = ibv_create_ah(pd, &a.ah_attr);
	return mr == NULL || ah == NULL ? -1 : 0;
}

static int teardown(void **state)
{
	return ibv_destroy_ah(ah) | ibv_dereg_mr(mr) | ibv_dealloc_pd(pd) | ibv_close_device(ctx);
}

int main(void)
{
	const char *queues = getenv("ANYVERBS_QUEUES");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_queue__is_full_until_a_completion_is_polled),
		cmocka_unit_test(send_queue__of_unsignalled_requests_stays_full),
		cmocka_unit_test(send_queue__is_freed_by_one_in_many),
		cmocka_unit_test(send_queue__takes_of_a_list_what_fits),
		cmocka_unit_test(send_queue__counts_on_and_on),
		cmocka_unit_test(send_queue__in_error_fills_and_reset_empties_it),
		cmocka_unit_test(receive_queue__is_full_until_a_completion_is_polled),
		cmocka_unit_test(shared_queue__gets_places_back),
		cmocka_unit_test(batches__fit_again_and_again),
		cmocka_unit_test(next_poll__frees_at_once),
		cmocka_unit_test(ignore_overrun__frees_early),
	};
	const struct CMUnitTest early_tests[] = {
		cmocka_unit_test(early__takes_requests_without_a_poll),
		cmocka_unit_test(batches__fit_again_and_again),
		cmocka_unit_test(early__heeds_no_poll),
		cmocka_unit_test(ignore_overrun__frees_early),
	};

	pair_supervise();
	if (queues != NULL && strcmp(queues, "early") == 0)
		return cmocka_run_group_tests(early_tests, setup, teardown);
	return cmocka_run_group_tests(tests, setup, teardown);
}
