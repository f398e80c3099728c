/* dispatch_test.c: events reach their handlers, never on the caller's stack and never after the
 * object's end. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static struct fake_device *fake;

static int setup(void **state)
{
	fake = fake_create("fake%d");
	return ib_register_device(&fake->ib);
}

static int teardown(void **state)
{
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
	return 0;
}

static void dispatch(enum ib_event_type type, u8 port)
{
	struct ib_event event = { .device = &fake->ib, .event = type };

	event.element.port_num = port;
	ib_dispatch_event(&event);
}

/* A handler that counts, and can be made to wait. */
struct witness {
	struct ib_event_handler handler;
	int seen, wrong_place, order;
	int *clock;
	int *gate;         /* not NULL: waits until it is 1 */
	pthread_t dispatcher;
	enum ib_event_type last;
};

static void witness_see(struct ib_event_handler *handler, struct ib_event *event)
{
	struct witness *w = container_of(handler, struct witness, handler);

	if (event_driver_depth || pthread_equal(pthread_self(), w->dispatcher) ||
	    !vector_in_handler())
		fake_bump(&w->wrong_place);
	if (w->clock)
		w->order = __atomic_add_fetch(w->clock, 1, __ATOMIC_RELAXED);
	w->last = event->event;
	fake_bump(&w->seen);
	if (w->gate)
		fake_await(w->gate, 1);
}

static void witness_start(struct witness *w)
{
	w->dispatcher = pthread_self();
	INIT_IB_EVENT_HANDLER(&w->handler, &fake->ib, witness_see);
	assert_int_equal(ib_register_event_handler(&w->handler), 0);
}

static void ib_dispatch_event__never_on_the_callers_stack(void **state)
{
	struct witness w = { 0 }, other = { 0 };

	witness_start(&w);
	event_driver_depth++; /* as from inside a verb */
	dispatch(IB_EVENT_PORT_ACTIVE, 1);
	assert_int_equal(w.wrong_place, 0);
	event_driver_depth--;
	assert_true(fake_await(&w.seen, 1));
	assert_int_equal(ib_unregister_event_handler(&w.handler), 0);
	assert_int_equal(w.wrong_place, 0);
	assert_int_equal(w.last, IB_EVENT_PORT_ACTIVE);
	/* who has gone hears no more of what others still hear */
	witness_start(&other);
	dispatch(IB_EVENT_PORT_ERR, 1);
	assert_true(fake_await(&other.seen, 1));
	assert_int_equal(ib_unregister_event_handler(&other.handler), 0);
	assert_int_equal(w.seen, 1);
}

static void ib_dispatch_event__every_handler_in_order(void **state)
{
	int clock = 0;
	struct witness first = { .clock = &clock }, second = { .clock = &clock };

	witness_start(&first);
	witness_start(&second);
	for (int i = 0; i < 200; i++)
		dispatch(IB_EVENT_SM_CHANGE, 1);
	assert_true(fake_await(&second.seen, 200));
	assert_int_equal(ib_unregister_event_handler(&first.handler), 0);
	assert_int_equal(ib_unregister_event_handler(&second.handler), 0);
	assert_int_equal(first.seen, 200);
	assert_int_equal(first.order, 399);
	assert_int_equal(second.order, 400);
}

static void *release_thread(void *arg)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	fake_bump(arg);
	return NULL;
}

static void ib_unregister_event_handler__waits(void **state)
{
	int gate = 0;
	struct witness *w = calloc(1, sizeof(*w));
	struct witness other = { 0 };
	pthread_t thread;

	w->gate = &gate;
	witness_start(w);
	witness_start(&other);
	dispatch(IB_EVENT_SM_CHANGE, 1);
	dispatch(IB_EVENT_LID_CHANGE, 1);
	assert_true(fake_await(&w->seen, 1));
	pthread_create(&thread, NULL, release_thread, &gate);
	assert_int_equal(ib_unregister_event_handler(&w->handler), 0);
	assert_int_equal(fake_count(&gate), 1);
	free(w);
	assert_true(fake_await(&other.seen, 2)); /* what waited was not lost */
	assert_int_equal(ib_unregister_event_handler(&other.handler), 0);
	pthread_join(thread, NULL);
}

static void last_words(struct ib_event_handler *handler, struct ib_event *event)
{
	struct witness *w = container_of(handler, struct witness, handler);

	ib_unregister_event_handler(handler);
	fake_bump(&w->seen);
}

static void ib_unregister_event_handler__from_itself(void **state)
{
	struct witness w = { 0 }, after = { 0 };

	INIT_IB_EVENT_HANDLER(&w.handler, &fake->ib, last_words);
	assert_int_equal(ib_register_event_handler(&w.handler), 0);
	witness_start(&after);
	dispatch(IB_EVENT_SM_CHANGE, 1);
	dispatch(IB_EVENT_SM_CHANGE, 1);
	assert_true(fake_await(&after.seen, 2));
	assert_int_equal(w.seen, 1);
	assert_int_equal(ib_unregister_event_handler(&after.handler), 0);
}

/* The first handler takes the second one away, just when it would be next. */
static struct witness taken;

static void take_away(struct ib_event_handler *handler, struct ib_event *event)
{
	struct witness *w = container_of(handler, struct witness, handler);

	if (w->seen == 0)
		ib_unregister_event_handler(&taken.handler);
	fake_bump(&w->seen);
}

static void ib_unregister_event_handler__of_the_next(void **state)
{
	struct witness w = { 0 }, after = { 0 };

	INIT_IB_EVENT_HANDLER(&w.handler, &fake->ib, take_away);
	assert_int_equal(ib_register_event_handler(&w.handler), 0);
	witness_start(&taken);
	witness_start(&after);
	dispatch(IB_EVENT_SM_CHANGE, 1);
	assert_true(fake_await(&after.seen, 1));
	assert_int_equal(fake_count(&taken.seen), 0);
	assert_int_equal(ib_unregister_event_handler(&w.handler), 0);
	assert_int_equal(ib_unregister_event_handler(&after.handler), 0);
}

/* ---- events of objects ----------------------------------------------------------------------- */

struct object {
	int seen, wrong_place, alive;
	int *gate;
	enum ib_event_type last;
	const void *element;
};

static void object_see(struct ib_event *event, void *context)
{
	struct object *o = context;

	if (event_driver_depth || !vector_in_handler() || !fake_count(&o->alive))
		fake_bump(&o->wrong_place);
	o->last = event->event;
	o->element = event->element.qp;
	fake_bump(&o->seen);
	if (o->gate)
		fake_await(o->gate, 1);
}

static struct ib_pd *pd;
static struct ib_cq *cq;

static struct ib_qp *core_qp_make(struct object *o)
{
	struct ib_qp_init_attr init = { .event_handler = object_see,
					.qp_context = o,
					.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IB_QPT_RC };
	struct ib_qp *qp = ib_create_qp(pd, &init);

	assert_false(IS_ERR(qp));
	fake_bump(&o->alive);
	return qp;
}

static void base_make(struct object *cq_object)
{
	pd = ib_alloc_pd(&fake->ib);
	cq = ib_create_cq(&fake->ib, NULL, cq_object ? object_see : NULL, cq_object, 16, 0);
	assert_false(IS_ERR(pd));
	assert_false(IS_ERR(cq));
}

static void base_break(void)
{
	assert_int_equal(ib_destroy_cq(cq), 0);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

static void dispatch_object(enum ib_event_type type, void *object)
{
	struct ib_event event = { .device = &fake->ib, .event = type };

	event.element.qp = object;
	ib_dispatch_event(&event);
}

static void ib_dispatch_event__goes_to_the_object(void **state)
{
	struct object on_cq = { .alive = 1 }, on_qp = { 0 }, on_srq = { .alive = 1 };
	struct ib_srq_init_attr init = { .event_handler = object_see, .srq_context = &on_srq };
	struct witness device = { 0 };

	base_make(&on_cq);
	struct ib_qp *qp = core_qp_make(&on_qp);
	struct ib_srq *srq = ib_create_srq(pd, &init);

	witness_start(&device);
	dispatch_object(IB_EVENT_CQ_ERR, cq);
	dispatch_object(IB_EVENT_QP_FATAL, qp);
	dispatch_object(IB_EVENT_SRQ_LIMIT_REACHED, srq);
	dispatch(IB_EVENT_SM_CHANGE, 1);
	assert_true(fake_await(&device.seen, 1));
	ib_unregister_event_handler(&device.handler);
	assert_int_equal(device.seen, 1);
	assert_int_equal(on_cq.last, IB_EVENT_CQ_ERR);
	assert_ptr_equal(on_cq.element, cq);
	assert_int_equal(on_qp.last, IB_EVENT_QP_FATAL);
	assert_ptr_equal(on_srq.element, srq);
	assert_int_equal(on_cq.wrong_place + on_qp.wrong_place + on_srq.wrong_place, 0);
	assert_int_equal(ib_destroy_srq(srq), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	base_break();
}

/* Destroying waits for the handler that runs, drops what is queued, and other objects' events
 * survive. */
static void ib_destroy_qp__no_event_after(void **state)
{
	int gate = 0;
	struct object dying = { .gate = &gate }, other = { 0 };
	pthread_t thread;

	base_make(NULL);
	struct ib_qp *qp = core_qp_make(&dying), *neighbour = core_qp_make(&other);

	dispatch_object(IB_EVENT_QP_FATAL, qp);
	dispatch_object(IB_EVENT_QP_ACCESS_ERR, qp);
	dispatch_object(IB_EVENT_COMM_EST, neighbour);
	dispatch_object(IB_EVENT_SQ_DRAINED, qp); /* all that wait, not the first only */
	assert_true(fake_await(&dying.seen, 1));
	pthread_create(&thread, NULL, release_thread, &gate);
	assert_int_equal(ib_destroy_qp(qp), 0);
	__atomic_store_n(&dying.alive, 0, __ATOMIC_RELEASE);
	assert_int_equal(fake_count(&gate), 1);
	assert_true(fake_await(&other.seen, 1));
	pthread_join(thread, NULL);
	assert_int_equal(ib_destroy_qp(neighbour), 0);
	assert_int_equal(dying.seen, 1);
	assert_int_equal(dying.wrong_place, 0);
	base_break();
}

static int raising;
static struct lock raising_lock;
static struct ib_qp *raising_on;

/* A driver's thread that reports on whatever QP is there. */
static void *raise_thread(void *arg)
{
	while (fake_count(&raising)) {
		lock_acquire(&raising_lock);
		if (raising_on)
			dispatch_object(IB_EVENT_COMM_EST, raising_on);
		lock_release(&raising_lock);
		sched_yield();
	}
	return NULL;
}

static void raise_on(struct ib_qp *qp)
{
	lock_acquire(&raising_lock);
	raising_on = qp;
	lock_release(&raising_lock);
}

/* As a driver does: from the end of its destroy_qp no event more. */
static void raise_no_more(struct ib_qp *qp)
{
	raise_on(NULL);
}

static void ib_destroy_qp__races_with_events(void **state)
{
	pthread_t thread;
	int seen = 0;

	base_make(NULL);
	raising = 1;
	fake->on_destroy_qp = raise_no_more;
	pthread_create(&thread, NULL, raise_thread, NULL);
	for (int i = 0; i < 300; i++) {
		struct object *o = calloc(1, sizeof(*o));
		struct ib_qp *qp = core_qp_make(o);

		raise_on(qp);
		if (i % 8 == 0)
			fake_await(&o->seen, 1);
		assert_int_equal(ib_destroy_qp(qp), 0);
		assert_int_equal(o->wrong_place, 0);
		seen += o->seen;
		free(o);
	}
	__atomic_store_n(&raising, 0, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	fake->on_destroy_qp = NULL;
	assert_true(seen >= 300 / 8);
	base_break();
}

static void raise_last(struct ib_qp *qp)
{
	dispatch_object(IB_EVENT_QP_FATAL, qp);
}

static void ib_destroy_qp__event_while_it_is_destroyed(void **state)
{
	struct object o = { 0 };
	struct witness later = { 0 };

	base_make(NULL);
	witness_start(&later);
	fake->on_destroy_qp = raise_last;
	assert_int_equal(ib_destroy_qp(core_qp_make(&o)), 0);
	fake->on_destroy_qp = NULL;
	dispatch(IB_EVENT_SM_CHANGE, 1);
	assert_true(fake_await(&later.seen, 1));
	assert_int_equal(fake_count(&o.seen), 0);
	assert_int_equal(ib_unregister_event_handler(&later.handler), 0);
	base_break();
}

static void ib_destroy_qp__fails_and_lives_on(void **state)
{
	struct object o = { 0 };

	base_make(NULL);
	struct ib_qp *qp = core_qp_make(&o);

	fake->fail = -EIO;
	assert_int_equal(ib_destroy_qp(qp), -EIO);
	fake->fail = 0;
	dispatch_object(IB_EVENT_COMM_EST, qp);
	assert_true(fake_await(&o.seen, 1));
	assert_int_equal(ib_destroy_qp(qp), 0);
	base_break();
}

static void ib_unregister_device__drops_events(void **state)
{
	int gate = 0;
	struct witness w = { .gate = &gate };
	pthread_t thread;

	witness_start(&w);
	for (int i = 0; i < 10; i++)
		dispatch(IB_EVENT_SM_CHANGE, 1);
	assert_true(fake_await(&w.seen, 1));
	pthread_create(&thread, NULL, release_thread, &gate);
	ib_unregister_device(&fake->ib);
	int seen = fake_count(&w.seen);

	assert_int_equal(fake_count(&gate), 1);
	dispatch(IB_EVENT_SM_CHANGE, 1);
	nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	assert_int_equal(fake_count(&w.seen), seen);
	assert_int_equal(ib_register_event_handler(&w.handler), -ENODEV);
	pthread_join(thread, NULL);
	assert_int_equal(ib_register_device(&fake->ib), 0);
}

static void ib_dispatch_event__before_registration(void **state)
{
	struct fake_device *early = fake_create("early");
	struct ib_event event = { .device = &early->ib, .event = IB_EVENT_SM_CHANGE };

	ib_dispatch_event(&event);
	fake_destroy(early);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_dispatch_event__never_on_the_callers_stack),
		cmocka_unit_test(ib_dispatch_event__every_handler_in_order),
		cmocka_unit_test(ib_unregister_event_handler__waits),
		cmocka_unit_test(ib_unregister_event_handler__from_itself),
		cmocka_unit_test(ib_unregister_event_handler__of_the_next),
		cmocka_unit_test(ib_dispatch_event__goes_to_the_object),
		cmocka_unit_test(ib_destroy_qp__no_event_after),
		cmocka_unit_test(ib_destroy_qp__races_with_events),
		cmocka_unit_test(ib_destroy_qp__event_while_it_is_destroyed),
		cmocka_unit_test(ib_destroy_qp__fails_and_lives_on),
		cmocka_unit_test(ib_unregister_device__drops_events),
		cmocka_unit_test(ib_dispatch_event__before_registration),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
