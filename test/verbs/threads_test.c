/* threads_test.c: eight threads on the same queue pairs, the same completion queue and the same
 * shared receive queue: every request completes once, every message arrives once.
 * In: nothing    Out: a count per message
 * Runs: eight threads of the test    Locks: none: counters are atomic
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "pair.h"

enum {
	THREADS = 8,
	EACH = 10000,
	TOTAL = THREADS * EACH,
	QPS = 4,
	DEPTH = 64,
	ROOMS = 256,
	RECV_BIT = 1 << 30, /* in wr_id: the rest is the room */
	LIMIT_MS = 110000,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *from[QPS], *to[QPS];
static struct ibv_mr *mr;
static uint64_t rooms[ROOMS];
static uint8_t sent[TOTAL], received[TOTAL];
static uint32_t sent_count, received_count;
static uint64_t deadline_ms;

/* Calls that failed and should not have. The first ones are named. */
static struct {
	uint32_t count;
	struct {
		const char *call;
		int err; /* an errno, or the status of a completion */
	} first[8];
} wrong;

static void note_wrong(const char *call, int err)
{
	uint32_t i = __atomic_fetch_add(&wrong.count, 1, __ATOMIC_RELAXED);

	if (i < sizeof(wrong.first) / sizeof(wrong.first[0])) {
		wrong.first[i].call = call;
		wrong.first[i].err = err;
	}
}

/* No thread but the test's own runs any more. */
static void assert_nothing_wrong(void)
{
	const uint32_t named = sizeof(wrong.first) / sizeof(wrong.first[0]);

	for (uint32_t i = 0; i < wrong.count && i < named; i++)
		print_error("%s: %d\n", wrong.first[i].call, wrong.first[i].err);
	assert_int_equal(wrong.count, 0);
}

static void post_room(uint64_t room)
{
	struct ibv_sge sge = { (uintptr_t)&rooms[room], 8, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV_BIT | room, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int err = ibv_post_srq_recv(srq, &wr, &bad);

	if (err != 0)
		note_wrong("ibv_post_srq_recv", err);
}

static void take_one(const struct ibv_wc *wc)
{
	uint64_t room = wc->wr_id & ~(uint64_t)RECV_BIT;

	if (wc->status != IBV_WC_SUCCESS) {
		note_wrong("a completion's status", (int)wc->status);
	} else if ((wc->wr_id & RECV_BIT) == 0) {
		__atomic_fetch_add(&sent[wc->wr_id], 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&sent_count, 1, __ATOMIC_RELAXED);
	} else {
		__atomic_fetch_add(&received[rooms[room] % TOTAL], 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&received_count, 1, __ATOMIC_RELAXED);
		post_room(room);
	}
}

static void take(void)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(cq, 8, wc);

	for (int i = 0; i < n; i++)
		take_one(&wc[i]);
	if (n == 0)
		sched_yield();
}

static int send_one(uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)&id, 8, 0 };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
	struct ibv_send_wr *bad;

	return ibv_post_send(from[id % QPS], &wr, &bad);
}

static bool all_done(void)
{
	return __atomic_load_n(&sent_count, __ATOMIC_RELAXED) >= TOTAL &&
	       __atomic_load_n(&received_count, __ATOMIC_RELAXED) >= TOTAL;
}

static void *run(void *arg)
{
	uint64_t first = (uint64_t)(uintptr_t)arg * EACH;

	for (uint64_t id = first; id < first + EACH && now_ms() < deadline_ms;) {
		int err = send_one(id);

		if (err == 0)
			id++;
		else if (err != ENOMEM)
			note_wrong("ibv_post_send", err);
		take();
	}
	while (!all_done() && now_ms() < deadline_ms)
		take();
	return NULL;
}

static struct ibv_qp_attr ordinary(const union ibv_gid *gid)
{
	struct ibv_qp_attr a = conn_attr(0, gid, 0);

	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	a.min_rnr_timer = 1;
	return a;
}

static void open_all(void)
{
	struct ibv_srq_init_attr si = { .attr = { .max_wr = ROOMS, .max_sge = 1 } };
	struct ibv_qp_attr a;
	union ibv_gid gid;

	ctx = device_open(NULL);
	assert_non_null(ctx);
	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 2 * (QPS * DEPTH + ROOMS), NULL, NULL, 0);
	srq = ibv_create_srq(pd, &si);
	mr = ibv_reg_mr(pd, rooms, sizeof(rooms), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init = { .send_cq = cq,
						 .recv_cq = cq,
						 .srq = srq,
						 .cap = { DEPTH, 0, 1, 0, 8 },
						 .qp_type = IBV_QPT_RC };

		from[i] = ibv_create_qp(pd, &init);
		to[i] = ibv_create_qp(pd, &init);
		assert_non_null(to[i]);
	}
	a = ordinary(&gid);
	assert_int_equal(conn_pairs(from, to, QPS, &a), 0);
}

static void close_all(void)
{
	for (int i = 0; i < QPS; i++) {
		assert_int_equal(ibv_destroy_qp(from[i]), 0);
		assert_int_equal(ibv_destroy_qp(to[i]), 0);
	}
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void threads__each_message_once(void **state)
{
	pthread_t threads[THREADS];

	open_all();
	for (uint64_t room = 0; room < ROOMS; room++)
		post_room(room);
	deadline_ms = now_ms() + LIMIT_MS;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_nothing_wrong();
	assert_int_equal(sent_count, TOTAL);
	assert_int_equal(received_count, TOTAL);
	for (int i = 0; i < TOTAL; i++) {
		assert_int_equal(sent[i], 1);
		assert_int_equal(received[i], 1);
	}
	close_all();
}

/* Objects come and go on several threads while others send. */
static void *churn(void *arg)
{
	for (int i = 0; i < 200; i++) {
		struct ibv_qp_init_attr init = { .send_cq = cq,
						 .recv_cq = cq,
						 .cap = { 4, 4, 1, 1, 0 },
						 .qp_type = IBV_QPT_UD };
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		struct ibv_mr *m = ibv_reg_mr(pd, arg, 4096, IBV_ACCESS_LOCAL_WRITE);
		struct ibv_cq *c = ibv_create_cq(ctx, 16, NULL, NULL, 0);

		if (qp == NULL || m == NULL || c == NULL || ibv_destroy_qp(qp) != 0 ||
		    ibv_dereg_mr(m) != 0 || ibv_destroy_cq(c) != 0)
			note_wrong("an object's creation or destruction", errno);
	}
	return NULL;
}

static void threads__objects_come_and_go(void **state)
{
	static uint8_t pages[THREADS][4096] __attribute__((aligned(4096)));
	pthread_t threads[THREADS];
	struct ibv_wc wc;

	open_all();
	wrong.count = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, pages[i]), 0);
	for (uint64_t room = 0; room < ROOMS; room++)
		post_room(room);
	for (uint64_t i = 0; i < ROOMS; i++) {
		uint64_t limit = now_ms() + PAIR_WAIT_MS;
		int got = 0;

		assert_int_equal(send_one(i), 0);
		while (got < 2 && now_ms() < limit)
			got += ibv_poll_cq(cq, 1, &wc);
		assert_int_equal(got, 2);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_nothing_wrong();
	close_all();
}

enum { RESIZES = 300, RESIZE_FROM = 100 };

static void *resize(void *arg)
{
	for (int i = 0; i < RESIZES; i++) {
		int err = ibv_resize_cq(cq, RESIZE_FROM << (i % 3 + (int)(intptr_t)arg));

		if (err != 0)
			note_wrong("ibv_resize_cq", err);
	}
	return NULL;
}

/* Two threads change the size of one queue: each does, and a sanitizer sees no race for what the
 * queue says of its size. */
static void threads__a_queue_is_resized_by_two(void **state)
{
	pthread_t threads[2];
	int least;

	open_all();
	wrong.count = 0;
	assert_int_equal(ibv_resize_cq(cq, RESIZE_FROM), 0);
	least = cq->cqe;
	for (intptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, resize, (void *)i), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_nothing_wrong();
	assert_in_range(cq->cqe, 4 * least, 8 * least); /* the last size of either */
	close_all();
}

/* ---- a target that comes and goes ---- */

enum { GOINGS = 400, PATIENCE_MS = 5 };

static struct {
	struct ibv_cq *cq; /* of `from` */
	struct ibv_qp *from, *to;
	union ibv_gid gid;
	uint64_t word;
	uint32_t rkey;
	bool over;
} target;

static bool target_has_failed(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	return ibv_query_qp(qp, &a, IBV_QP_STATE, &init) == 0 && a.qp_state == IBV_QPS_ERR;
}

/* A WRITE whose key has been withdrawn moves the target to ERR, also between its RTR and its RTS.
 * Then the step to RTS fails, and the queue pair starts again. */
static void target_renew(struct ibv_qp *qp, uint32_t dest)
{
	static const enum ibv_qp_state steps[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						   IBV_QPS_RTS };
	static const char *const names[] = { "ibv_modify_qp to RESET", "ibv_modify_qp to INIT",
					     "ibv_modify_qp to RTR", "ibv_modify_qp to RTS" };
	struct ibv_qp_attr a = ordinary(&target.gid);
	uint64_t limit = now_ms() + PAIR_WAIT_MS;

	a.dest_qp_num = dest;
	for (int i = 0; i < 4;) {
		int err = conn_to(qp, &a, steps[i]);

		if (err == EINVAL && i == 3 && target_has_failed(qp) && now_ms() < limit) {
			i = 0;
			continue;
		}
		if (err != 0)
			note_wrong(names[i], err);
		i++;
	}
}

static void target_write(uint32_t turn)
{
	uint64_t word = 1;
	struct ibv_sge sge = { (uintptr_t)&word, 8, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
	struct ibv_send_wr *bad;
	int err;

	wr.wr.rdma.remote_addr = (uintptr_t)&target.word;
	wr.wr.rdma.rkey = __atomic_load_n(&target.rkey, __ATOMIC_RELAXED);
	if (turn % 8 == 0)
		usleep(500); /* the key may go meanwhile */
	err = ibv_post_send(target.from, &wr, &bad);
	if (err != 0)
		note_wrong("ibv_post_send of a WRITE", err);
}

/* WRITEs go well or fail, as the target is at the moment. One with a PSN that the target, begun
 * anew meanwhile, does not expect goes neither way: then this end begins anew, too. */
static void *target_writer(void *arg)
{
	struct ibv_wc wc;

	for (uint32_t turn = 0; !__atomic_load_n(&target.over, __ATOMIC_RELAXED); turn++) {
		uint64_t limit = now_ms() + PATIENCE_MS;
		int n;

		target_write(turn);
		while ((n = ibv_poll_cq(target.cq, 1, &wc)) == 0 && now_ms() < limit)
			sched_yield();
		if (n < 0)
			note_wrong("ibv_poll_cq", n);
		if (n != 1 || wc.status != IBV_WC_SUCCESS)
			target_renew(target.from, target.to->qp_num);
	}
	return NULL;
}

static struct ibv_qp *target_qp(struct ibv_cq *c)
{
	struct ibv_qp_init_attr init = { .send_cq = c,
					 .recv_cq = c,
					 .cap = { DEPTH, 4, 1, 1, 8 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

static struct ibv_mr *target_register(void)
{
	struct ibv_mr *m = ibv_reg_mr(pd, &target.word, sizeof(target.word),
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	assert_non_null(m);
	__atomic_store_n(&target.rkey, m->rkey, __ATOMIC_RELAXED);
	return m;
}

/* It is connected with another one now and then, and the memory registered anew. */
static void target_goings(struct ibv_mr **m)
{
	struct ibv_qp *other = target_qp(cq);

	for (int i = 0; i < GOINGS; i++) {
		target_renew(target.to, (i % 8 == 7 ? other : target.from)->qp_num);
		if (i % 4 == 1) {
			assert_int_equal(ibv_dereg_mr(*m), 0);
			*m = target_register();
		}
		usleep(i % 5 * 300);
	}
	assert_int_equal(ibv_destroy_qp(other), 0);
}

static void threads__a_target_comes_and_goes(void **state)
{
	struct ibv_qp_attr a;
	struct ibv_mr *m;
	pthread_t t;

	open_all();
	wrong.count = 0;
	assert_int_equal(ibv_query_gid(ctx, 1, 0, &target.gid), 0);
	target.cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0);
	assert_non_null(target.cq);
	target.from = target_qp(target.cq);
	target.to = target_qp(cq);
	m = target_register();
	a = ordinary(&target.gid);
	assert_int_equal(conn_pair(target.from, target.to, &a), 0);
	assert_int_equal(pthread_create(&t, NULL, target_writer, NULL), 0);
	target_goings(&m);
	__atomic_store_n(&target.over, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	assert_nothing_wrong();
	assert_int_equal(ibv_destroy_qp(target.from), 0);
	assert_int_equal(ibv_destroy_qp(target.to), 0);
	assert_int_equal(ibv_dereg_mr(m), 0);
	assert_int_equal(ibv_destroy_cq(target.cq), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads__each_message_once),
		cmocka_unit_test(threads__objects_come_and_go),
		cmocka_unit_test(threads__a_queue_is_resized_by_two),
		cmocka_unit_test(threads__a_target_comes_and_goes),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
