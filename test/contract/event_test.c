/* event_test.c: asynchronous events: of objects to their own handlers, of the device to every
 * ib_event_handler; never inside a verb, never after the object or the registration is gone.
 * In:    -    Out: -    Runs: the test's threads, the midlayer's
 */
#include "rig.h"

#include <signal.h>
#include <stdlib.h>

#include "event/event.h"

/* What one handler saw; counters are atomic. */
struct heard {
	int count, in_verb, wrong;
	int type;      /* of the last event */
	void *element; /* the expected one; NULL: any */
};

static void heard_note(struct heard *h, struct ib_event *event, void *element)
{
	if (event_driver_depth != 0)
		count_add(&h->in_verb);
	if (event->device != rig.dev || (h->element && element != h->element))
		count_add(&h->wrong);
	__atomic_store_n(&h->type, (int)event->event, __ATOMIC_RELEASE);
	count_add(&h->count);
}

static void qp_heard(struct ib_event *event, void *context)
{
	heard_note(context, event, event->element.qp);
}

static void srq_heard(struct ib_event *event, void *context)
{
	heard_note(context, event, event->element.srq);
}

static void cq_heard(struct ib_event *event, void *context)
{
	heard_note(context, event, event->element.cq);
}

static void expect_heard(struct heard *h, int count, enum ib_event_type type)
{
	assert_true(rig_await(&h->count, count));
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&h->count), count);
	assert_int_equal(h->type, type);
	assert_int_equal(h->in_verb, 0);
	assert_int_equal(h->wrong, 0);
}

/* A link whose b reports to `h`; b may have an SRQ. */
static void heard_link(struct link *l, struct heard *h, struct ib_srq *srq)
{
	struct ib_qp_init_attr init;

	link_open(l, IB_QPT_RC, NULL);
	assert_int_equal(ib_destroy_qp(l->b), 0);
	init = rig_qp_init(IB_QPT_RC, l->bscq, l->rcq, srq);
	init.event_handler = qp_heard;
	init.qp_context = h;
	l->b = rig_ok(ib_create_qp(rig.pd, &init));
	h->element = l->b;
	link_reset(l);
}

/* ---- events of objects ----------------------------------------------------------------------- */

static void qp_event__access_error(void **state)
{
	struct heard h = { 0 };
	struct ib_sge sge = rig_sge(0, 8);
	struct ib_send_wr wr = { .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_RDMA_WRITE,
				 .send_flags = IB_SEND_SIGNALED };
	struct link l;

	heard_link(&l, &h, NULL);
	wr.wr.rdma.remote_addr = (uintptr_t)rig.buf;
	wr.wr.rdma.rkey = rig.mr->rkey + 1;
	rig_send(l.a, &wr);
	rig_expect(l.scq, IB_WC_REM_ACCESS_ERR);
	expect_heard(&h, 1, IB_EVENT_QP_ACCESS_ERR);
	rig_await_state(l.b, IB_QPS_ERR);
	link_close(&l);
}

static void qp_event__communication_established(void **state)
{
	struct heard h = { 0 };
	struct link l;

	heard_link(&l, &h, NULL);
	assert_int_equal(rig_try_state(l.b, IB_QPS_RESET), 0);
	assert_int_equal(rig_try_init(l.b), 0);
	assert_int_equal(rig_try_rtr(l.b, &rig.gid, l.a->qp_num), 0);
	rig_recv(l.b, 1, 4096, 8);
	rig_send_bytes(l.a, 1, 0, 8, 0);
	rig_drain(l.rcq, 1);
	rig_drain(l.scq, 1);
	expect_heard(&h, 1, IB_EVENT_COMM_EST);
	link_close(&l);
}

static void qp_event__send_queue_drained(void **state)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_SQD, .en_sqd_async_notify = 1 };
	struct heard h = { 0 };
	struct link l;

	heard_link(&l, &h, NULL);
	assert_int_equal(ib_modify_qp(l.b, &attr, IB_QP_STATE | IB_QP_EN_SQD_ASYNC_NOTIFY), 0);
	expect_heard(&h, 1, IB_EVENT_SQ_DRAINED);
	assert_int_equal(rig_try_rts(l.b) == 0 || rig_try_state(l.b, IB_QPS_RTS) == 0, 1);
	link_close(&l);
}

static void srq_recv(struct ib_srq *srq, u64 wr_id)
{
	struct ib_sge sge = rig_sge(4096 + wr_id * 16, 16);
	struct ib_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ib_post_srq_recv(srq, &wr, &bad), 0);
}

static struct ib_srq *heard_srq(struct heard *h, u32 max_wr)
{
	struct ib_srq_init_attr init = { .event_handler = srq_heard,
					 .srq_context = h,
					 .attr = { .max_wr = max_wr, .max_sge = 2 } };
	struct ib_srq *srq = rig_ok(ib_create_srq(rig.pd, &init));

	assert_true(init.attr.max_wr >= max_wr);
	h->element = srq;
	return srq;
}

static void srq_event__limit_reached_once_per_arm(void **state)
{
	rig_needs(create_srq);
	struct heard h = { 0 }, hq = { 0 };
	struct ib_srq *srq = heard_srq(&h, 16);
	struct ib_srq_attr attr = { .srq_limit = 3 };
	struct link l;

	heard_link(&l, &hq, srq);
	for (u64 i = 0; i < 6; i++)
		srq_recv(srq, i);
	assert_int_equal(ib_modify_srq(srq, &attr, IB_SRQ_LIMIT), 0);
	assert_int_equal(ib_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 3);
	for (int i = 0; i < 3; i++)
		rig_send_bytes(l.a, 1, 0, 8, 0);
	rig_drain(l.rcq, 3);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&h.count), 0);
	for (int i = 0; i < 3; i++)
		rig_send_bytes(l.a, 1, 0, 8, 0);
	rig_drain(l.rcq, 3);
	expect_heard(&h, 1, IB_EVENT_SRQ_LIMIT_REACHED);
	assert_int_equal(ib_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	attr.srq_limit = 17;
	assert_int_equal(ib_modify_srq(srq, &attr, IB_SRQ_LIMIT), -EINVAL);
	rig_drain(l.scq, 6);
	link_close(&l);
	assert_int_equal(ib_destroy_srq(srq), 0);
}

static void qp_event__last_wqe_reached(void **state)
{
	rig_needs(create_srq);
	struct heard h = { 0 }, hs = { 0 };
	struct ib_srq *srq = heard_srq(&hs, 16);
	struct link l;

	heard_link(&l, &h, srq);
	assert_int_equal(rig_try_state(l.b, IB_QPS_ERR), 0);
	expect_heard(&h, 1, IB_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(hs.count, 0);
	link_close(&l);
	assert_int_equal(ib_destroy_srq(srq), 0);
}

static void cq_event__overflow(void **state)
{
	struct heard h = { 0 };
	struct link l;

	link_open(&l, IB_QPT_RC, rig_ok(ib_create_cq(rig.dev, NULL, cq_heard, &h, 4, 0)));
	h.element = l.rcq;
	for (int i = 0; i <= l.rcq->cqe; i++) {
		rig_recv(l.b, 1, 4096, 8);
		rig_send_bytes(l.a, 1, 0, 8, 0);
	}
	expect_heard(&h, 1, IB_EVENT_CQ_ERR);
	link_close(&l);
}

/* Of an object that is gone nothing is heard any more. */
static void destroy_qp__withdraws_its_events(void **state)
{
	for (int i = 0; i < 50; i++) {
		struct heard h = { 0 };
		struct ib_event event = { .device = rig.dev, .event = IB_EVENT_PATH_MIG };
		struct link l;

		heard_link(&l, &h, NULL);
		event.element.qp = l.b;
		for (int k = 0; k < 5; k++)
			ib_dispatch_event(&event);
		link_close(&l);
		int after = count_get(&h.count);

		rig_sleep_ms(1);
		assert_int_equal(count_get(&h.count), after);
		assert_int_equal(h.wrong, 0);
	}
}

/* ---- events of the device -------------------------------------------------------------------- */

struct listener {
	struct ib_event_handler handler; /* first */
	int order[64], count, in_verb, linger_ms, entered, left;
};

static void listen(struct ib_event_handler *handler, struct ib_event *event)
{
	struct listener *l = (struct listener *)handler;

	count_add(&l->entered);
	if (event_driver_depth != 0)
		count_add(&l->in_verb);
	if (l->linger_ms)
		rig_sleep_ms(l->linger_ms);
	if (count_get(&l->count) < 64)
		l->order[count_get(&l->count)] = (int)event->event;
	count_add(&l->left);
	count_add(&l->count);
}

static void listener_open(struct listener *l)
{
	memset(l, 0, sizeof(*l));
	INIT_IB_EVENT_HANDLER(&l->handler, rig.dev, listen);
	assert_int_equal(ib_register_event_handler(&l->handler), 0);
}

static void dispatch(enum ib_event_type type)
{
	struct ib_event event = { .device = rig.dev, .event = type, .element.port_num = 1 };

	ib_dispatch_event(&event);
	memset(&event, 0xff, sizeof(event)); /* it was copied */
}

static void dispatch_event__reaches_every_handler_in_order(void **state)
{
	struct listener one, two;

	listener_open(&one);
	listener_open(&two);
	for (int i = 0; i < 10; i++)
		dispatch(i % 2 ? IB_EVENT_SM_CHANGE : IB_EVENT_PORT_ACTIVE);
	assert_true(rig_await(&one.count, 10));
	assert_true(rig_await(&two.count, 10));
	for (int i = 0; i < 10; i++) {
		assert_int_equal(one.order[i], i % 2 ? IB_EVENT_SM_CHANGE : IB_EVENT_PORT_ACTIVE);
		assert_int_equal(two.order[i], one.order[i]);
	}
	assert_int_equal(ib_unregister_event_handler(&one.handler), 0);
	dispatch(IB_EVENT_PORT_ACTIVE);
	assert_true(rig_await(&two.count, 11));
	assert_int_equal(one.count, 10);
	assert_int_equal(ib_unregister_event_handler(&two.handler), 0);
	assert_int_equal(one.in_verb + two.in_verb, 0);
}

static void *dispatcher_main(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	dispatch(IB_EVENT_LID_CHANGE);
	return NULL;
}

static void dispatching_handler(struct ib_cq *cq, void *context)
{
	dispatch(IB_EVENT_PKEY_CHANGE);
}

static void dispatching_listen(struct ib_event_handler *handler, struct ib_event *event)
{
	if (event->event == IB_EVENT_LID_CHANGE)
		dispatch(IB_EVENT_SM_CHANGE);
}

static void dispatch_event__from_any_context(void **state)
{
	struct ib_cq *cq = rig_handler_cq(dispatching_handler, NULL, 64, 0);
	struct ib_event_handler chain;
	struct listener one;
	struct link l;
	pthread_t t;

	listener_open(&one);
	INIT_IB_EVENT_HANDLER(&chain, rig.dev, dispatching_listen);
	assert_int_equal(ib_register_event_handler(&chain), 0);
	link_open(&l, IB_QPT_RC, cq);
	assert_int_equal(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP), 0);
	link_ping(&l, 1, 0); /* from a completion handler */
	assert_true(rig_await(&one.count, 1));
	assert_int_equal(one.order[0], IB_EVENT_PKEY_CHANGE);
	/* from a thread that blocks every signal, and from an event handler */
	assert_int_equal(pthread_create(&t, NULL, dispatcher_main, NULL), 0);
	pthread_join(t, NULL);
	assert_true(rig_await(&one.count, 3));
	assert_int_equal(one.order[1], IB_EVENT_LID_CHANGE);
	assert_int_equal(one.order[2], IB_EVENT_SM_CHANGE);
	assert_int_equal(ib_unregister_event_handler(&chain), 0);
	assert_int_equal(ib_unregister_event_handler(&one.handler), 0);
	link_close(&l);
}

static void unregister_event_handler__waits_for_it(void **state)
{
	struct listener one, two;

	listener_open(&one);
	one.linger_ms = 150;
	dispatch(IB_EVENT_PORT_ACTIVE);
	assert_true(rig_await(&one.entered, 1));
	assert_int_equal(ib_unregister_event_handler(&one.handler), 0);
	assert_int_equal(count_get(&one.left), 1);
	/* and it hears no more of what others still hear */
	listener_open(&two);
	dispatch(IB_EVENT_PORT_ACTIVE);
	assert_true(rig_await(&two.count, 1));
	assert_int_equal(ib_unregister_event_handler(&two.handler), 0);
	assert_int_equal(count_get(&one.entered), 1);
}

static void *storm_main(void *arg)
{
	for (int i = 0; i < 2000; i++)
		dispatch(IB_EVENT_PORT_ACTIVE);
	return NULL;
}

/* Handlers come and go while four threads dispatch: each event of the steady one arrives once. */
static void dispatch_event__from_many_threads(void **state)
{
	struct listener steady, passing;
	pthread_t t[4];

	listener_open(&steady);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, storm_main, NULL), 0);
	for (int i = 0; i < 100; i++) {
		listener_open(&passing);
		assert_int_equal(ib_unregister_event_handler(&passing.handler), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_true(rig_await(&steady.count, 8000));
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&steady.count), 8000);
	assert_int_equal(ib_unregister_event_handler(&steady.handler), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(qp_event__access_error, rig_setup),
		cmocka_unit_test_setup(qp_event__communication_established, rig_setup),
		cmocka_unit_test_setup(qp_event__send_queue_drained, rig_setup),
		cmocka_unit_test_setup(srq_event__limit_reached_once_per_arm, rig_setup),
		cmocka_unit_test_setup(qp_event__last_wqe_reached, rig_setup),
		cmocka_unit_test_setup(cq_event__overflow, rig_setup),
		cmocka_unit_test_setup(destroy_qp__withdraws_its_events, rig_setup),
		cmocka_unit_test_setup(dispatch_event__reaches_every_handler_in_order, rig_setup),
		cmocka_unit_test_setup(dispatch_event__from_any_context, rig_setup),
		cmocka_unit_test_setup(unregister_event_handler__waits_for_it, rig_setup),
		cmocka_unit_test_setup(dispatch_event__from_many_threads, rig_setup),
	};

	return rig_run_tests(tests);
}
