/* plug_test.c: devices that come and go under clients with live objects and threads inside verbs.
 * For drivers that can (the RoCE adapter stays as long as its process).
 * In: contract_plug, contract_unplug    Out: -    Runs: the test's threads, the driver's vectors
 */
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"

static void needs_plug(void)
{
	if (!rig.plug)
		skip();
}

/* ---- order ----------------------------------------------------------------------------------- */

static char journal[64]; /* one letter per call: small `add`, capital `remove` */
static int journal_length, journal_overlap, journal_inside;
static struct ib_device *journal_device;

static void journal_note(struct ib_device *device, char letter)
{
	if (device != journal_device && journal_device)
		return;
	if (count_add(&journal_inside) != 1)
		count_add(&journal_overlap);
	usleep(100);
	if (journal_length < (int)sizeof(journal) - 1)
		journal[journal_length++] = letter;
	__atomic_sub_fetch(&journal_inside, 1, __ATOMIC_ACQ_REL);
}

#define JOURNAL_CLIENT(letter, capital)                                                            \
	static void add_##letter(struct ib_device *device)                                         \
	{                                                                                          \
		if (device != rig.dev)                                                             \
			journal_note(device, #letter[0]);                                          \
	}                                                                                          \
	static void remove_##letter(struct ib_device *device)                                      \
	{                                                                                          \
		journal_note(device, #capital[0]);                                                 \
	}                                                                                          \
	static struct ib_client client_##letter = { .name = #letter,                               \
						    .add = add_##letter,                           \
						    .remove = remove_##letter }

JOURNAL_CLIENT(a, A);
JOURNAL_CLIENT(b, B);
JOURNAL_CLIENT(c, C);

static void journal_clear(void)
{
	memset(journal, 0, sizeof(journal));
	journal_length = journal_overlap = 0;
}

/* Clients are told in the order of their registration, and untold in the reverse. */
static void register_device__tells_clients_in_order(void **state)
{
	struct ib_device *dev;

	needs_plug();
	journal_device = NULL;
	assert_int_equal(ib_register_client(&client_a), 0);
	assert_int_equal(ib_register_client(&client_b), 0);
	assert_int_equal(ib_register_client(&client_c), 0);
	journal_clear();
	dev = rig.plug();
	assert_non_null(dev);
	assert_string_equal(journal, "abc");
	journal_device = dev;
	journal_clear();
	ib_unregister_client(&client_b);
	assert_string_equal(journal, "B");
	assert_int_equal(ib_register_client(&client_b), 0); /* now the last of all */
	assert_string_equal(journal, "Bb");
	journal_clear();
	rig.unplug(dev);
	assert_string_equal(journal, "BCA");
	assert_int_equal(journal_overlap, 0);
	journal_device = (void *)1;
	ib_unregister_client(&client_a);
	ib_unregister_client(&client_b);
	ib_unregister_client(&client_c);
}

/* ---- a client with live objects and threads inside verbs ------------------------------------- */

enum { BUSY_THREADS = 4 };

struct busy {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_mr *mr;
	struct ib_cq *cq;
	struct ib_srq *srq;
	struct ib_qp *qp, *stuck; /* looped to itself; `stuck` waits for a receive for ever */
	struct ib_event_handler events;
	pthread_t threads[BUSY_THREADS];
	int stop, rounds[BUSY_THREADS], faults, handled, heard;
	u64 out, in;
};

static struct ib_client busy_client;
static int busy_adds, busy_removes, busy_faults;

static void busy_fault(struct busy *x, bool ok)
{
	if (!ok)
		count_add(&x->faults);
}

static void busy_handler(struct ib_cq *cq, void *context)
{
	struct busy *x = context;

	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	count_add(&x->handled);
}

static void busy_event(struct ib_event_handler *handler, struct ib_event *event)
{
	struct busy *x = (struct busy *)((char *)handler - offsetof(struct busy, events));

	count_add(&x->heard);
}

/* One message to itself. */
static void busy_send(struct busy *x)
{
	struct ib_sge out = { (uintptr_t)&x->out, 8, x->mr->lkey };
	struct ib_sge in = { (uintptr_t)&x->in, 8, x->mr->lkey };
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };
	struct ib_send_wr send = { .sg_list = &out,
				   .num_sge = 1,
				   .opcode = IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED };
	int err = ib_post_recv(x->qp, &recv, NULL);

	busy_fault(x, err == 0 || err == -ENOMEM);
	if (err == 0)
		err = ib_post_send(x->qp, &send, NULL);
	busy_fault(x, err == 0 || err == -ENOMEM);
}

static void busy_poll(struct busy *x)
{
	struct ib_wc wc[8];
	int got = ib_poll_cq(x->cq, 8, wc);

	busy_fault(x, got >= 0 && ib_req_notify_cq(x->cq, IB_CQ_NEXT_COMP) >= 0);
	for (int i = 0; i < got; i++)
		busy_fault(x, wc[i].status == IB_WC_SUCCESS);
}

static void busy_handles(struct busy *x)
{
	struct ib_ah_attr way = { .ah_flags = IB_AH_GRH, .port_num = 1 };
	struct ib_ah *ah;

	busy_fault(x, ib_query_gid(x->dev, 1, 0, &way.grh.dgid) == 0);
	ah = ib_create_ah(x->pd, &way);
	busy_fault(x, !IS_ERR(ah) && ib_destroy_ah(ah) == 0);
}

/* What may sleep. */
static void busy_objects(struct busy *x)
{
	struct ib_cq *cq = ib_create_cq(x->dev, NULL, NULL, NULL, 16, 0);
	struct ib_mr *mr = ib_get_dma_mr(x->pd, IB_ACCESS_LOCAL_WRITE);
	struct ib_port_attr port;

	busy_fault(x, !IS_ERR(cq) && ib_destroy_cq(cq) == 0);
	busy_fault(x, !IS_ERR(mr) && ib_dereg_mr(mr) == 0);
	busy_fault(x, ib_query_port(x->dev, 1, &port) == 0);
}

struct busy_thread {
	struct busy *x;
	int index;
};

static void *busy_main(void *arg)
{
	static void (*const does[BUSY_THREADS])(struct busy *) = { busy_send, busy_poll,
								   busy_handles, busy_objects };
	struct busy_thread t = *(struct busy_thread *)arg;

	free(arg);
	while (!count_get(&t.x->stop)) {
		does[t.index](t.x);
		count_add(&t.x->rounds[t.index]);
		usleep(20);
	}
	return NULL;
}

static struct ib_qp *busy_qp(struct busy *x, struct ib_srq *srq)
{
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, x->cq, x->cq, srq);
	struct ib_qp *qp = ib_create_qp(x->pd, &init);
	union ib_gid gid;

	busy_fault(x, !IS_ERR(qp) && ib_query_gid(x->dev, 1, 0, &gid) == 0 &&
			      rig_try_init(qp) == 0 && rig_try_rtr(qp, &gid, qp->qp_num) == 0 &&
			      rig_try_rts(qp) == 0);
	return qp;
}

static void busy_make(struct busy *x)
{
	struct ib_srq_init_attr si = { .attr = { .max_wr = 16, .max_sge = 1 } };

	x->pd = ib_alloc_pd(x->dev);
	x->mr = ib_get_dma_mr(x->pd, IB_ACCESS_LOCAL_WRITE);
	x->cq = ib_create_cq(x->dev, busy_handler, NULL, x, 4096, x->dev->num_comp_vectors - 1);
	x->srq = ib_create_srq(x->pd, &si);
	x->qp = busy_qp(x, NULL);
	x->stuck = busy_qp(x, x->srq);
	busy_fault(x, ib_req_notify_cq(x->cq, IB_CQ_NEXT_COMP) == 0);
	INIT_IB_EVENT_HANDLER(&x->events, x->dev, busy_event);
	busy_fault(x, ib_register_event_handler(&x->events) == 0);
}

static void busy_add(struct ib_device *dev)
{
	struct busy *x;

	if (dev == rig.dev || dev->create_cq != rig.dev->create_cq)
		return;
	x = calloc(1, sizeof(*x));
	x->dev = dev;
	busy_make(x);
	for (int i = 0; i < BUSY_THREADS; i++) {
		struct busy_thread *t = malloc(sizeof(*t));

		*t = (struct busy_thread){ x, i };
		pthread_create(&x->threads[i], NULL, busy_main, t);
	}
	ib_set_client_data(dev, &busy_client, x);
	count_add(&busy_adds);
}

/* A request that waits when everything is torn down. */
static void busy_strand(struct busy *x)
{
	struct ib_sge out = { (uintptr_t)&x->out, 8, x->mr->lkey };
	struct ib_send_wr send = { .sg_list = &out, .num_sge = 1, .opcode = IB_WR_SEND };

	busy_fault(x, ib_post_send(x->stuck, &send, NULL) == 0);
}

static void busy_free(struct busy *x)
{
	busy_fault(x, ib_unregister_event_handler(&x->events) == 0);
	busy_fault(x, ib_destroy_cq(x->cq) == -EBUSY);
	busy_fault(x, ib_destroy_qp(x->stuck) == 0 && ib_destroy_qp(x->qp) == 0);
	busy_fault(x, ib_destroy_srq(x->srq) == 0 && ib_destroy_cq(x->cq) == 0);
	busy_fault(x, ib_dereg_mr(x->mr) == 0 && ib_dealloc_pd(x->pd) == 0);
}

/* The device works as ever; each thread gets once more through its verbs, and events are heard. */
static void busy_remove(struct ib_device *dev)
{
	struct busy *x = ib_get_client_data(dev, &busy_client);
	struct ib_event event = { .device = dev, .event = IB_EVENT_PORT_ACTIVE };

	if (!x)
		return;
	event.element.port_num = 1;
	ib_dispatch_event(&event);
	for (int i = 0; i < BUSY_THREADS; i++)
		busy_fault(x, rig_await(&x->rounds[i], count_get(&x->rounds[i]) + 2));
	busy_fault(x, rig_await(&x->heard, 1) && rig_await(&x->handled, 1));
	busy_strand(x);
	count_add(&x->stop);
	for (int i = 0; i < BUSY_THREADS; i++)
		pthread_join(x->threads[i], NULL);
	busy_free(x);
	__atomic_add_fetch(&busy_faults, x->faults, __ATOMIC_ACQ_REL);
	free(x);
	count_add(&busy_removes);
}

static struct ib_client busy_client = { .name = "busy", .add = busy_add, .remove = busy_remove };

static void busy_expect(int count)
{
	assert_int_equal(busy_faults, 0);
	assert_int_equal(busy_adds, count);
	assert_int_equal(busy_removes, count);
}

static int busy_setup(void **state)
{
	busy_adds = busy_removes = busy_faults = 0;
	return rig_setup(state);
}

static void unregister_device__with_threads_inside_verbs(void **state)
{
	needs_plug();
	assert_int_equal(ib_register_client(&busy_client), 0);
	for (int i = 0; i < 10; i++) {
		struct ib_device *dev = rig.plug();

		assert_non_null(dev);
		assert_int_equal(busy_adds, i + 1);
		usleep(2000);
		rig.unplug(dev);
		busy_expect(i + 1);
	}
	ib_unregister_client(&busy_client);
	busy_expect(10);
}

/* Devices of one driver come and go while others of it carry traffic. */
static void unregister_device__leaves_its_siblings_alone(void **state)
{
	struct ib_device *steady, *passing;

	needs_plug();
	assert_int_equal(ib_register_client(&busy_client), 0);
	steady = rig.plug();
	assert_non_null(steady);
	for (int i = 0; i < 5; i++) {
		struct busy *x = ib_get_client_data(steady, &busy_client);
		int rounds = count_get(&x->rounds[0]);

		passing = rig.plug();
		assert_non_null(passing);
		rig.unplug(passing);
		assert_true(rig_await(&x->rounds[0], rounds + 1));
		assert_ptr_equal(ib_get_client_data(steady, &busy_client), x);
	}
	rig.unplug(steady);
	ib_unregister_client(&busy_client);
	busy_expect(6);
}

/* ---- clients and devices at once ------------------------------------------------------------- */

static int storm_stop;

static void *storm_main(void *arg)
{
	while (!count_get(&storm_stop)) {
		if (ib_register_client(&busy_client) == 0)
			ib_unregister_client(&busy_client);
		usleep(200);
	}
	return NULL;
}

static void register_client__while_devices_come_and_go(void **state)
{
	pthread_t t;

	needs_plug();
	storm_stop = 0;
	assert_int_equal(pthread_create(&t, NULL, storm_main, NULL), 0);
	for (int i = 0; i < 20; i++) {
		struct ib_device *dev = rig.plug();

		assert_non_null(dev);
		usleep(500);
		rig.unplug(dev);
	}
	count_add(&storm_stop);
	pthread_join(t, NULL);
	busy_expect(busy_adds);
}

/* ---- calls back ------------------------------------------------------------------------------ */

static int callback_faults, callbacks;

static void no_event(struct ib_event_handler *handler, struct ib_event *event)
{
}

static struct ib_client passing_client = { .name = "passing" };

/* On a thread of its own, as a consumer's workers would: whatever may sleep. */
static void *callback_main(void *arg)
{
	struct busy x = { .dev = arg };
	struct ib_event_handler handler;

	x.pd = ib_alloc_pd(x.dev);
	busy_fault(&x, !IS_ERR(x.pd));
	busy_objects(&x);
	busy_handles(&x);
	INIT_IB_EVENT_HANDLER(&handler, x.dev, no_event);
	busy_fault(&x, ib_register_event_handler(&handler) == 0);
	busy_fault(&x, ib_unregister_event_handler(&handler) == 0);
	busy_fault(&x, ib_dealloc_pd(x.pd) == 0);
	__atomic_add_fetch(&callback_faults, x.faults, __ATOMIC_ACQ_REL);
	count_add(&callbacks);
	return NULL;
}

static void callback_now(struct ib_device *dev)
{
	pthread_t t;

	if (dev == rig.dev || dev->create_cq != rig.dev->create_cq)
		return;
	callback_main(dev); /* from the very thread */
	pthread_create(&t, NULL, callback_main, dev);
	pthread_join(t, NULL);
	if (ib_register_client(&passing_client))
		count_add(&callback_faults);
	ib_unregister_client(&passing_client);
}

/* Neither add nor remove is called with a lock held that these need. */
static void unregister_device__with_calls_back_into_the_driver(void **state)
{
	struct ib_client client = { .name = "back",
				    .add = callback_now,
				    .remove = callback_now };
	struct ib_device *dev;

	needs_plug();
	callbacks = callback_faults = 0;
	dev = rig.plug();
	assert_non_null(dev);
	assert_int_equal(ib_register_client(&client), 0);
	assert_int_equal(count_get(&callbacks), 2);
	rig.unplug(dev);
	assert_int_equal(count_get(&callbacks), 4);
	dev = rig.plug();
	assert_int_equal(count_get(&callbacks), 6);
	ib_unregister_client(&client);
	assert_int_equal(count_get(&callbacks), 8);
	rig.unplug(dev);
	assert_int_equal(count_get(&callbacks), 8);
	assert_int_equal(callback_faults, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(register_device__tells_clients_in_order, busy_setup),
		cmocka_unit_test_setup(unregister_device__with_threads_inside_verbs, busy_setup),
		cmocka_unit_test_setup(unregister_device__leaves_its_siblings_alone, busy_setup),
		cmocka_unit_test_setup(register_client__while_devices_come_and_go, busy_setup),
		cmocka_unit_test_setup(unregister_device__with_calls_back_into_the_driver,
				       busy_setup),
	};

	return rig_run_tests(tests);
}
