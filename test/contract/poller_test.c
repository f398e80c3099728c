/* poller_test.c: completion queues that poll themselves, in every context, and drains: the calls
 * that Linux 6.1 has over the verbs.
 * In:    -    Out: -    Runs: the test's thread, vectors, threads of CQs
 */
#include "rig.h"

#include <rdma/ib_linux61.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

enum { SMALL = 64, DEEP = 100, ROUNDS = 300 };

static const enum ib_poll_context contexts[] = { IB_POLL_SOFTIRQ, IB_POLL_WORKQUEUE,
						 IB_POLL_UNBOUND_WORKQUEUE, IB_POLL_DIRECT };

#define FOR_EACH_CONTEXT(context)                                                                  \
	for (size_t i_ = 0; i_ < sizeof(contexts) / sizeof(contexts[0]); i_++)                     \
		for (enum ib_poll_context context = contexts[i_], once_ = (enum ib_poll_context)1; \
		     once_; once_ = (enum ib_poll_context)0)

/* What `done` has seen, of one kind of requests. */
struct tally {
	struct ib_cqe cqe;
	int count, failed, flushed;
	int inside, overlaps, here; /* here: on the thread of the test */
	pthread_t test;
	void *context; /* the CQ's */
	sem_t *gate;   /* `done` waits for it */
	int at_gate;
	void (*then)(struct tally *t);
};

static void tally_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tally *t = (struct tally *)((char *)wc->wr_cqe - offsetof(struct tally, cqe));

	if (count_add(&t->inside) != 1)
		count_add(&t->overlaps);
	t->here += pthread_equal(t->test, pthread_self()) != 0;
	t->context = cq->cq_context;
	t->flushed += wc->status == IB_WC_WR_FLUSH_ERR;
	t->failed += wc->status != IB_WC_SUCCESS && wc->status != IB_WC_WR_FLUSH_ERR;
	if (t->gate) {
		count_add(&t->at_gate);
		sem_wait(t->gate);
	}
	if (t->then)
		t->then(t);
	__atomic_sub_fetch(&t->inside, 1, __ATOMIC_ACQ_REL);
	count_add(&t->count);
}

static struct tally tally_new(void)
{
	return (struct tally){ .cqe = { tally_done }, .test = pthread_self() };
}

/* One queue pair whose messages come back to itself, or, of datagrams, go to itself. */
struct self {
	struct ib_cq *send_cq, *recv_cq;
	struct ib_srq *srq;
	struct ib_qp *qp;
	struct ib_ah *ah;
	struct tally sent, received;
};

static struct ib_cq *cq_of(enum ib_poll_context context, void *private)
{
	return rig_ok(ib_alloc_cq(rig.dev, private, 4 * DEEP, 0, context));
}

static void self_open(struct self *s, enum ib_qp_type type, enum ib_poll_context context,
		      struct ib_srq *srq)
{
	struct ib_qp_init_attr_linux61 init = { .sq_sig_type = IB_SIGNAL_REQ_WR,
						.qp_type = type,
						.srq = srq,
						.cap = { .max_send_wr = 4 * DEEP,
							 .max_recv_wr = DEEP + 1,
							 .max_send_sge = 1,
							 .max_recv_sge = 1 } };
	struct ib_ah_attr way = rig_way(&rig.gid);

	*s = (struct self){ .sent = tally_new(), .received = tally_new(), .srq = srq };
	init.send_cq = s->send_cq = cq_of(context, s);
	init.recv_cq = s->recv_cq = cq_of(context, &s->received);
	s->qp = rig_ok(ib_create_qp_linux61(rig.pd, &init));
	assert_true(init.cap.max_send_wr > DEEP);
	rig_connect(s->qp, &rig.gid, s->qp->qp_num);
	if (type == IB_QPT_UD)
		s->ah = rig_ok(ib_create_ah(rig.pd, &way));
}

static void self_close(struct self *s)
{
	if (s->ah)
		assert_int_equal(ib_destroy_ah(s->ah), 0);
	assert_int_equal(ib_destroy_qp_linux61(s->qp), 0);
	ib_free_cq(s->send_cq);
	ib_free_cq(s->recv_cq);
}

static void self_receive(struct self *s)
{
	struct ib_sge sge = rig_sge(RIG_PAGE, SMALL + 40);
	struct ib_recv_wr wr = { .wr_cqe = &s->received.cqe, .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(s->srq ? ib_post_srq_recv_linux61(s->srq, &wr, NULL) :
				  ib_post_recv_linux61(s->qp, &wr, NULL), 0);
}

static int self_try(struct self *s)
{
	struct ib_sge sge = rig_sge(0, SMALL);
	struct ib_ud_wr wr = { .wr = { .wr_cqe = &s->sent.cqe,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IB_WR_SEND,
				       .send_flags = IB_SEND_SIGNALED },
			       .ah = s->ah,
			       .remote_qpn = s->qp->qp_num,
			       .remote_qkey = RIG_QKEY };

	return ib_post_send_linux61(s->qp, &wr.wr, NULL);
}

static void self_send(struct self *s)
{
	assert_int_equal(self_try(s), 0);
}

static void self_poll_if_direct(struct self *s, enum ib_poll_context context)
{
	if (context != IB_POLL_DIRECT)
		return;
	ib_process_cq_direct(s->send_cq, -1);
	ib_process_cq_direct(s->recv_cq, -1);
}

static void self_await(struct self *s, enum ib_poll_context context, const int *count, int value)
{
	u64 end = rig_now_ms() + RIG_WAIT_MS;

	while (count_get(count) < value && rig_now_ms() < end)
		self_poll_if_direct(s, context);
	assert_true(count_get(count) >= value);
}

/* One message at a time: a missed event would leave the next one for ever. */
static void alloc_cq__hands_each_completion_to_its_done(void **state)
{
	struct self s;

	FOR_EACH_CONTEXT(context) {
		self_open(&s, IB_QPT_RC, context, NULL);
		for (int i = 1; i <= ROUNDS; i++) {
			self_receive(&s);
			self_send(&s);
			self_await(&s, context, &s.received.count, i);
			self_await(&s, context, &s.sent.count, i);
		}
		assert_int_equal(s.sent.count, ROUNDS);
		assert_int_equal(s.received.count, ROUNDS);
		assert_int_equal(s.sent.failed + s.received.failed, 0);
		assert_int_equal(s.sent.overlaps + s.received.overlaps, 0);
		assert_int_equal(s.sent.here, context == IB_POLL_DIRECT ? ROUNDS : 0);
		assert_ptr_equal(s.sent.context, &s);
		assert_ptr_equal(s.received.context, &s.received);
		self_close(&s);
	}
}

static struct self early;

/* Returns when the next message waits already, behind the poll of this turn and before its arm. */
static void early_send(struct tally *t)
{
	u64 end = rig_now_ms() + RIG_WAIT_MS;

	if (count_get(&t->count) + 1 == ROUNDS)
		return;
	self_receive(&early);
	self_send(&early);
	while (ib_peek_cq(early.recv_cq, 1) != 1 && rig_now_ms() < end)
		;
}

static void alloc_cq__misses_nothing_before_the_arm(void **state)
{
	rig_needs(peek_cq);
	FOR_EACH_CONTEXT(context) {
		self_open(&early, IB_QPT_RC, context, NULL);
		early.received.then = early_send;
		self_receive(&early);
		self_send(&early);
		self_await(&early, context, &early.received.count, ROUNDS);
		self_await(&early, context, &early.sent.count, ROUNDS);
		self_close(&early);
	}
}

static void alloc_cq__refuses_what_it_cannot_make(void **state)
{
	int vectors = rig.dev->num_comp_vectors;

	assert_int_equal(PTR_ERR(ib_alloc_cq(NULL, NULL, 1, 0, IB_POLL_DIRECT)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_alloc_cq(rig.dev, NULL, 1, 0, (enum ib_poll_context)4)),
			 -EINVAL);
	FOR_EACH_CONTEXT(context) {
		assert_int_equal(PTR_ERR(ib_alloc_cq(rig.dev, NULL, 0, 0, context)), -EINVAL);
		assert_int_equal(PTR_ERR(ib_alloc_cq(rig.dev, NULL, -1, 0, context)), -EINVAL);
		assert_int_equal(PTR_ERR(ib_alloc_cq(rig.dev, NULL, 1, -1, context)), -EINVAL);
		assert_int_equal(PTR_ERR(ib_alloc_cq(rig.dev, NULL, 1, vectors, context)),
				 -EINVAL);
		assert_int_equal(PTR_ERR(ib_alloc_cq(rig.dev, NULL, rig.dev->attrs.max_cqe + 1, 0,
						     context)), -EINVAL);
	}
	assert_int_equal(ib_process_cq_direct(NULL, 1), -EINVAL);
	ib_free_cq(NULL);
}

static struct self flood;
static pthread_mutex_t flood_lock = PTHREAD_MUTEX_INITIALIZER; /* who has it may post */
static bool flood_ends;
static int flood_out, flood_owed; /* SENDs without their `done`; those that have to wait for one */

static void flood_on(struct tally *t)
{
	pthread_mutex_lock(&flood_lock);
	flood_out -= t == &flood.sent;
	flood_owed += t != &flood.sent;
	while (!flood_ends && flood_owed > 0 && flood_out < DEEP) {
		self_receive(&flood);
		self_send(&flood);
		flood_out++;
		flood_owed--;
	}
	pthread_mutex_unlock(&flood_lock);
}

/* A CQ that always has completions leaves its vector to another one. */
static void alloc_cq__turns_of_two_cqs_alternate(void **state)
{
	struct self s;

	self_open(&flood, IB_QPT_RC, IB_POLL_SOFTIRQ, NULL);
	self_open(&s, IB_QPT_RC, IB_POLL_SOFTIRQ, NULL);
	flood.received.then = flood.sent.then = flood_on;
	for (int i = 0; i < DEEP / 2; i++)
		flood_on(&flood.received);
	self_await(&flood, IB_POLL_SOFTIRQ, &flood.received.count, 1000);
	for (int i = 1; i <= ROUNDS / 10; i++) {
		int before = count_get(&flood.received.count);

		self_receive(&s);
		self_send(&s);
		self_await(&s, IB_POLL_SOFTIRQ, &s.received.count, i);
		self_await(&flood, IB_POLL_SOFTIRQ, &flood.received.count, before + 1);
	}
	pthread_mutex_lock(&flood_lock);
	flood_ends = true;
	pthread_mutex_unlock(&flood_lock);
	self_close(&s);
	self_close(&flood);
}

/* One CQ's `done` waits for a completion of another. */
static void alloc_cq__a_done_of_workqueue_may_sleep(void **state)
{
	struct self a, b;
	sem_t gate;

	sem_init(&gate, 0, 0);
	self_open(&a, IB_QPT_RC, IB_POLL_WORKQUEUE, NULL);
	self_open(&b, IB_QPT_RC, IB_POLL_WORKQUEUE, NULL);
	a.received.gate = &gate;
	self_receive(&a);
	self_send(&a);
	assert_true(rig_await(&a.received.at_gate, 1));
	self_receive(&b);
	self_send(&b);
	assert_true(rig_await(&b.received.count, 1));
	assert_int_equal(count_get(&a.received.count), 0);
	sem_post(&gate);
	assert_true(rig_await(&a.received.count, 1));
	self_close(&a);
	self_close(&b);
}

static void process_cq_direct__keeps_to_its_budget(void **state)
{
	struct self s;

	self_open(&s, IB_QPT_RC, IB_POLL_DIRECT, NULL);
	for (int i = 0; i < 20; i++) {
		self_receive(&s);
		self_send(&s);
	}
	self_await(&s, IB_POLL_DIRECT, &s.sent.count, 20);
	s.received.count = 0; /* whatever has been polled meanwhile */
	for (int i = 0; i < 20; i++)
		self_receive(&s);
	assert_int_equal(rig_try_state(s.qp, IB_QPS_ERR), 0);
	assert_int_equal(ib_process_cq_direct(s.recv_cq, 0), 0);
	assert_int_equal(ib_process_cq_direct(s.recv_cq, 5), 5);
	assert_int_equal(ib_process_cq_direct(s.recv_cq, 9), 9);
	assert_int_equal(ib_process_cq_direct(s.recv_cq, -1), 6);
	assert_int_equal(s.received.count, 20);
	self_close(&s);
}

struct freeing {
	struct self *self;
	int freed;
};

static void *freeing_main(void *arg)
{
	struct freeing *f = arg;

	ib_free_cq(f->self->recv_cq);
	count_add(&f->freed);
	return NULL;
}

/* Nobody's `done` runs when ib_free_cq has returned. */
static void free_cq__waits_for_the_turn_that_runs(void **state)
{
	FOR_EACH_CONTEXT(context) {
		struct self s;
		struct freeing f = { .self = &s };
		pthread_t thread;
		sem_t gate;

		if (context == IB_POLL_DIRECT)
			continue;
		sem_init(&gate, 0, 0);
		self_open(&s, IB_QPT_RC, context, NULL);
		s.received.gate = &gate;
		self_receive(&s);
		self_send(&s);
		assert_true(rig_await(&s.received.at_gate, 1));
		assert_int_equal(ib_destroy_qp_linux61(s.qp), 0);
		assert_int_equal(pthread_create(&thread, NULL, freeing_main, &f), 0);
		rig_sleep_ms(RIG_QUIET_MS);
		assert_int_equal(count_get(&f.freed), 0);
		sem_post(&gate);
		pthread_join(thread, NULL);
		assert_int_equal(s.received.count, 1);
		ib_free_cq(s.send_cq);
	}
}

static void free_cq__in_use_stays_and_works(void **state)
{
	struct self s;

	FOR_EACH_CONTEXT(context) {
		self_open(&s, IB_QPT_RC, context, NULL);
		ib_free_cq(s.send_cq);
		ib_free_cq(s.recv_cq);
		self_receive(&s);
		self_send(&s);
		self_await(&s, context, &s.received.count, 1);
		self_await(&s, context, &s.sent.count, 1);
		self_close(&s);
	}
}

/* Events race with the end of their CQ. */
static void free_cq__while_completions_come(void **state)
{
	struct self s;

	FOR_EACH_CONTEXT(context)
		for (int round = 0; round < 20; round++) {
			self_open(&s, IB_QPT_RC, context, NULL);
			for (int i = 0; i < DEEP; i++) {
				self_receive(&s);
				self_send(&s);
			}
			self_close(&s);
		}
}

/* Consumers of one vector share a CQ while it has room for all of them. */
static void cq_pool__shares_until_there_is_no_room(void **state)
{
	unsigned int max = (unsigned int)rig.dev->attrs.max_cqe;
	unsigned int half = (max < 4096 ? max : 4096) / 2;
	struct ib_cq *a, *b, *c;

	FOR_EACH_CONTEXT(context) {
		if (context == IB_POLL_DIRECT)
			continue;
		a = rig_ok(ib_cq_pool_get(rig.dev, half, 0, context));
		b = rig_ok(ib_cq_pool_get(rig.dev, 8, 0, context));
		c = rig_ok(ib_cq_pool_get(rig.dev, half, rig.dev->num_comp_vectors, context));
		assert_ptr_equal(a, b);
		assert_ptr_not_equal(a, c);
		ib_free_cq(a); /* not so */
		ib_cq_pool_put(c, half);
		ib_cq_pool_put(a, half);
		c = rig_ok(ib_cq_pool_get(rig.dev, half, 0, context));
		assert_ptr_equal(b, c);
		ib_cq_pool_put(b, half + 9); /* more than is claimed: not so */
		ib_cq_pool_put(b, 8);
		ib_cq_pool_put(c, half);
	}
}

static void cq_pool__takes_vectors_in_turn(void **state)
{
	int count = rig.dev->num_comp_vectors < 16 ? rig.dev->num_comp_vectors : 16;
	struct ib_cq *cq[17] = { NULL };

	for (int i = 0; i <= count; i++)
		cq[i] = rig_ok(ib_cq_pool_get(rig.dev, 1, -1, IB_POLL_SOFTIRQ));
	for (int i = 0; i < count - 1; i++)
		assert_ptr_not_equal(cq[i], cq[i + 1]);
	if (count == rig.dev->num_comp_vectors)
		assert_ptr_equal(cq[0], cq[count]);
	for (int i = 0; i <= count; i++)
		ib_cq_pool_put(cq[i], 1);
}

static void cq_pool__refuses_what_it_cannot_give(void **state)
{
	unsigned int max = (unsigned int)rig.dev->attrs.max_cqe;

	assert_int_equal(PTR_ERR(ib_cq_pool_get(NULL, 1, 0, IB_POLL_SOFTIRQ)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_cq_pool_get(rig.dev, 1, 0, IB_POLL_DIRECT)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_cq_pool_get(rig.dev, max + 1, 0, IB_POLL_SOFTIRQ)), -EINVAL);
	ib_cq_pool_put(NULL, 1);
}

/* Two consumers: each gets the completions of its own requests. */
static void cq_pool__carries_the_traffic_of_two(void **state)
{
	struct tally one = tally_new(), two = tally_new();
	struct ib_cq *cq = rig_ok(ib_cq_pool_get(rig.dev, 2 * DEEP, 0, IB_POLL_WORKQUEUE));
	struct ib_cq *same = rig_ok(ib_cq_pool_get(rig.dev, 2 * DEEP, 0, IB_POLL_WORKQUEUE));
	struct ib_qp *a = rig_qp(IB_QPT_RC, cq, cq, NULL), *b = rig_qp(IB_QPT_RC, same, same, NULL);

	rig_connect(a, &rig.gid, b->qp_num);
	rig_connect(b, &rig.gid, a->qp_num);
	for (int i = 0; i < DEEP; i++) {
		struct ib_recv_wr recv = { .wr_cqe = &two.cqe };
		struct ib_send_wr send = { .wr_cqe = &one.cqe,
					   .opcode = IB_WR_SEND,
					   .send_flags = IB_SEND_SIGNALED };

		assert_int_equal(ib_post_recv(b, &recv, NULL), 0);
		assert_int_equal(ib_post_send(a, &send, NULL), 0);
	}
	assert_true(rig_await(&one.count, DEEP));
	assert_true(rig_await(&two.count, DEEP));
	ib_drain_qp(a);
	ib_drain_qp(b);
	assert_int_equal(ib_destroy_qp(a), 0);
	assert_int_equal(ib_destroy_qp(b), 0);
	ib_cq_pool_put(cq, 2 * DEEP);
	ib_cq_pool_put(same, 2 * DEEP);
	assert_int_equal(one.count, DEEP);
	assert_int_equal(two.count, DEEP);
	assert_int_equal(one.failed + two.failed + one.overlaps + two.overlaps, 0);
}

/* ---- queues that fill ---- */

/* Datagrams to a queue pair without receive requests are complete at once. */
static void post_send__is_full_until_a_completion_is_polled(void **state)
{
	int posted = 0, err;
	struct self s;

	if (getenv("CONTRACT_DRIVER"))
		skip(); /* another driver may free it before */
	self_open(&s, IB_QPT_UD, IB_POLL_DIRECT, NULL);
	while ((err = self_try(&s)) == 0 && posted < 100 * DEEP)
		posted++;
	assert_int_equal(err, -ENOMEM);
	assert_in_range(posted, 4 * DEEP, 8 * DEEP);
	usleep(20000);
	assert_int_equal(self_try(&s), -ENOMEM);
	for (u64 end = rig_now_ms() + RIG_WAIT_MS; rig_now_ms() < end && s.sent.count == 0;)
		ib_process_cq_direct(s.send_cq, 1);
	assert_int_equal(s.sent.count, 1);
	assert_int_equal(self_try(&s), 0);
	assert_int_equal(self_try(&s), -ENOMEM);
	self_await(&s, IB_POLL_DIRECT, &s.sent.count, posted + 1);
	self_close(&s);
}

/* Every request has had its `done` when the drain returns, whatever became of it. */
static void drain_qp__with_requests_in_flight(void **state)
{
	static const enum ib_qp_type types[] = { IB_QPT_RC, IB_QPT_UC, IB_QPT_UD };
	struct self s;

	FOR_EACH_CONTEXT(context)
		for (size_t t = 0; t < 3; t++) {
			self_open(&s, types[t], context, NULL);
			for (int i = 0; i < DEEP; i++)
				self_receive(&s);
			for (int i = 0; i < DEEP / 2; i++)
				self_send(&s);
			ib_drain_qp(s.qp);
			assert_int_equal(count_get(&s.sent.count), DEEP / 2);
			assert_int_equal(count_get(&s.received.count), DEEP);
			assert_int_equal(rig_state(s.qp), IB_QPS_ERR);
			assert_int_equal(s.sent.failed + s.received.failed, 0);
			assert_true(s.received.flushed >= DEEP / 2);
			ib_drain_qp(s.qp); /* again: nothing is left */
			self_close(&s);
		}
}

/* A drain's own request waits for its place. */
static void drain_qp__of_queues_without_room(void **state)
{
	int posted = 0;
	struct self s;

	if (getenv("CONTRACT_DRIVER"))
		skip();
	FOR_EACH_CONTEXT(context)
	{
		self_open(&s, IB_QPT_UD, context, NULL);
		for (posted = 0; posted < 100 * DEEP && self_try(&s) == 0; posted++)
			;
		ib_drain_qp(s.qp);
		assert_int_equal(count_get(&s.sent.count), posted);
		assert_int_equal(rig_state(s.qp), IB_QPS_ERR);
		self_close(&s);
		if (context != IB_POLL_DIRECT)
			break; /* there the posts are as fast as the polls */
	}
}

/* Requests that wait in an SRQ are nobody's to drain. */
static void drain_qp__leaves_the_srq_alone(void **state)
{
	struct ib_srq_init_attr init = { .attr = { .max_wr = DEEP, .max_sge = 1 } };
	struct ib_srq *srq = rig_ok(ib_create_srq(rig.pd, &init));
	struct self s;

	FOR_EACH_CONTEXT(context) {
		self_open(&s, IB_QPT_RC, context, srq);
		self_receive(&s);
		self_receive(&s);
		self_send(&s);
		self_await(&s, context, &s.received.count, 1);
		self_await(&s, context, &s.sent.count, 1);
		ib_drain_qp(s.qp);
		assert_int_equal(rig_state(s.qp), IB_QPS_ERR);
		assert_int_equal(s.received.count, 1);
		self_close(&s);
	}
	assert_int_equal(ib_destroy_srq(srq), 0);
}

/* INIT leads to ERR, RESET does not: such a queue pair is left alone. */
static void drain_qp__of_a_queue_pair_that_never_worked(void **state)
{
	FOR_EACH_CONTEXT(context) {
		struct self s;

		self_open(&s, IB_QPT_RC, context, NULL);
		assert_int_equal(rig_try_state(s.qp, IB_QPS_RESET), 0);
		ib_drain_qp(s.qp);
		assert_int_equal(rig_state(s.qp), IB_QPS_RESET);
		assert_int_equal(rig_try_init(s.qp), 0);
		self_receive(&s);
		ib_drain_qp(s.qp);
		assert_int_equal(rig_state(s.qp), IB_QPS_ERR);
		assert_int_equal(s.received.flushed, 1);
		self_close(&s);
	}
	ib_drain_qp(NULL);
	ib_drain_sq(NULL);
	ib_drain_rq(NULL);
}

static void alloc_pd__has_keys_for_all_of_memory(void **state)
{
	struct ib_pd *pd = rig_ok(ib_alloc_pd_linux61(rig.dev, 0));
	struct ib_pd *remote = rig_ok(ib_alloc_pd_linux61(rig.dev, IB_PD_UNSAFE_GLOBAL_RKEY));
	struct ib_mr *mr = rig_ok(ib_get_dma_mr(pd, IB_ACCESS_LOCAL_WRITE));

	assert_int_equal(pd->unsafe_global_rkey, 0);
	assert_int_not_equal(pd->local_dma_lkey, remote->local_dma_lkey);
	assert_int_not_equal(remote->unsafe_global_rkey, 0);
	ib_dealloc_pd_linux61(pd); /* in use: stays */
	assert_int_equal(ib_dereg_mr(mr), 0);
	ib_dealloc_pd_linux61(pd);
	ib_dealloc_pd_linux61(remote);
	assert_int_equal(PTR_ERR(ib_alloc_pd_linux61(NULL, 0)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_alloc_pd_linux61(rig.dev, 2)), -EINVAL);
}

static void create_qp__refuses_flags_that_no_device_has(void **state)
{
	struct ib_qp_init_attr_linux61 init = { .create_flags = IB_QP_CREATE_INTEGRITY_EN };

	assert_int_equal(PTR_ERR(ib_create_qp_linux61(rig.pd, &init)), -EOPNOTSUPP);
	assert_int_equal(PTR_ERR(ib_create_qp_linux61(NULL, &init)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_qp_linux61(rig.pd, NULL)), -EINVAL);
	init.create_flags = 0; /* no CQs */
	init.qp_type = IB_QPT_RC;
	assert_int_equal(PTR_ERR(ib_create_qp_linux61(rig.pd, &init)), -EINVAL);
	assert_int_equal(ib_destroy_qp_linux61(NULL), -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(alloc_cq__hands_each_completion_to_its_done),
		cmocka_unit_test(alloc_cq__misses_nothing_before_the_arm),
		cmocka_unit_test(alloc_cq__refuses_what_it_cannot_make),
		cmocka_unit_test(alloc_cq__turns_of_two_cqs_alternate),
		cmocka_unit_test(alloc_cq__a_done_of_workqueue_may_sleep),
		cmocka_unit_test(process_cq_direct__keeps_to_its_budget),
		cmocka_unit_test(free_cq__waits_for_the_turn_that_runs),
		cmocka_unit_test(free_cq__in_use_stays_and_works),
		cmocka_unit_test(free_cq__while_completions_come),
		cmocka_unit_test(cq_pool__shares_until_there_is_no_room),
		cmocka_unit_test(cq_pool__takes_vectors_in_turn),
		cmocka_unit_test(cq_pool__refuses_what_it_cannot_give),
		cmocka_unit_test(cq_pool__carries_the_traffic_of_two),
		cmocka_unit_test(post_send__is_full_until_a_completion_is_polled),
		cmocka_unit_test(drain_qp__with_requests_in_flight),
		cmocka_unit_test(drain_qp__of_queues_without_room),
		cmocka_unit_test(drain_qp__leaves_the_srq_alone),
		cmocka_unit_test(drain_qp__of_a_queue_pair_that_never_worked),
		cmocka_unit_test(alloc_pd__has_keys_for_all_of_memory),
		cmocka_unit_test(create_qp__refuses_flags_that_no_device_has),
	};

	return rig_run_tests(tests);
}
