/* hotplug_test.c: a device leaves while clients hold objects of it and threads are inside verbs.
 * In:    -    Out: -    Runs: the test's threads, the midlayer's
 *
 * The real adapter stays as long as its process; this one is the midlayer's adapter in memory.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/test_support/fake_device.h"

enum { HOLD_POLLERS = 2 };

/* What a client holds of one device. */
struct hold {
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_mr *mr;
	struct ib_ah *ah;
	struct ib_event_handler events;
	pthread_t poster, poller[HOLD_POLLERS];
	int stop, posts, taken, faults, events_heard;
};

static int adds, removes, late_events, faults;

static void hold_event(struct ib_event_handler *handler, struct ib_event *event)
{
	struct hold *h = container_of(handler, struct hold, events);

	fake_bump(&h->events_heard);
}

static void hold_completion(struct ib_cq *cq, void *context)
{
	ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
}

static void *poster_main(void *arg)
{
	struct hold *h = arg;
	struct ib_sge sge = { 0 };
	struct ib_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND };

	while (!fake_count(&h->stop)) {
		if (fake_count(&h->posts) - fake_count(&h->taken) < FAKE_WCS / 2) {
			if (ib_post_send(h->qp, &wr, NULL))
				fake_bump(&h->faults);
			fake_bump(&h->posts);
		}
		usleep(20);
	}
	return NULL;
}

static void *poller_main(void *arg)
{
	struct hold *h = arg;
	struct ib_wc wc[4];

	while (!fake_count(&h->stop)) {
		int got = ib_poll_cq(h->cq, 4, wc);

		if (got < 0 || ib_req_notify_cq(h->cq, IB_CQ_NEXT_COMP) < 0)
			fake_bump(&h->faults);
		while (got-- > 0)
			fake_bump(&h->taken);
		usleep(10);
	}
	return NULL;
}

static struct ib_client client;

static void hold_make(struct hold *h, struct ib_device *dev)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_RC };
	struct ib_ah_attr way = { .port_num = 1 };

	h->pd = ib_alloc_pd(dev);
	h->mr = ib_get_dma_mr(h->pd, IB_ACCESS_LOCAL_WRITE);
	h->ah = ib_create_ah(h->pd, &way);
	h->cq = ib_create_cq(dev, hold_completion, NULL, h, 16, 0);
	init.send_cq = init.recv_cq = h->cq;
	h->qp = ib_create_qp(h->pd, &init);
	if (IS_ERR(h->pd) || IS_ERR(h->mr) || IS_ERR(h->ah) || IS_ERR(h->cq) || IS_ERR(h->qp))
		fake_bump(&faults);
}

static void client_add(struct ib_device *dev)
{
	struct hold *h = calloc(1, sizeof(*h));

	hold_make(h, dev);
	INIT_IB_EVENT_HANDLER(&h->events, dev, hold_event);
	if (ib_register_event_handler(&h->events))
		fake_bump(&faults);
	pthread_create(&h->poster, NULL, poster_main, h);
	for (int i = 0; i < HOLD_POLLERS; i++)
		pthread_create(&h->poller[i], NULL, poller_main, h);
	ib_set_client_data(dev, &client, h);
	fake_bump(&adds);
}

/* The device works as before until this has returned. */
static void client_remove(struct ib_device *dev)
{
	struct hold *h = ib_get_client_data(dev, &client);
	struct ib_event event = { .device = dev, .event = IB_EVENT_PORT_ACTIVE };
	int heard = fake_count(&h->events_heard), posts = fake_count(&h->posts);

	ib_dispatch_event(&event);
	if (!fake_await(&h->events_heard, heard + 1) || !fake_await(&h->posts, posts + 2))
		fake_bump(&faults);
	fake_bump(&h->stop);
	pthread_join(h->poster, NULL);
	for (int i = 0; i < HOLD_POLLERS; i++)
		pthread_join(h->poller[i], NULL);
	if (ib_unregister_event_handler(&h->events) || ib_dealloc_pd(h->pd) != -EBUSY ||
	    ib_destroy_cq(h->cq) != -EBUSY || ib_destroy_qp(h->qp) || ib_destroy_cq(h->cq) ||
	    ib_destroy_ah(h->ah) || ib_dereg_mr(h->mr) || ib_dealloc_pd(h->pd) || h->faults)
		fake_bump(&faults);
	free(h);
	fake_bump(&removes);
}

static struct ib_client client = { .name = "holder", .add = client_add, .remove = client_remove };

static int setup(void **state)
{
	adds = removes = late_events = faults = 0;
	return 0;
}

static void unregister_device__while_threads_are_inside_verbs(void **state)
{
	assert_int_equal(ib_register_client(&client), 0);
	for (int i = 0; i < 10; i++) {
		struct fake_device *fake = fake_create("hot%d");

		assert_int_equal(ib_register_device(&fake->ib), 0);
		assert_int_equal(fake_count(&adds), i + 1);
		usleep(3000);
		ib_unregister_device(&fake->ib);
		assert_int_equal(fake_count(&removes), i + 1);
		int calls = fake_count(&fake->calls);

		usleep(1000);
		assert_int_equal(fake_count(&fake->calls), calls);
		fake_destroy(fake); /* fails if an object is left */
	}
	ib_unregister_client(&client);
	assert_int_equal(fake_count(&removes), 10);
	assert_int_equal(faults, 0);
}

/* Devices leave and come while another one, and its client, go on. */
static void unregister_device__leaves_others_alone(void **state)
{
	struct fake_device *steady = fake_create("steady");

	assert_int_equal(ib_register_device(&steady->ib), 0);
	assert_int_equal(ib_register_client(&client), 0);
	struct hold *h = ib_get_client_data(&steady->ib, &client);

	for (int i = 0; i < 10; i++) {
		struct fake_device *fake = fake_create("hot%d");
		int posts = fake_count(&h->posts);

		assert_int_equal(ib_register_device(&fake->ib), 0);
		ib_unregister_device(&fake->ib);
		fake_destroy(fake);
		assert_true(fake_await(&h->posts, posts + 1));
		assert_ptr_equal(ib_get_client_data(&steady->ib, &client), h);
	}
	ib_unregister_client(&client);
	ib_unregister_device(&steady->ib);
	fake_destroy(steady);
	assert_int_equal(adds, 11);
	assert_int_equal(removes, 11);
	assert_int_equal(faults, 0);
}

static void late_event(struct ib_event_handler *handler, struct ib_event *event)
{
	fake_bump(&late_events);
}

static int dispatching;

static void *dispatcher_main(void *arg)
{
	struct ib_event event = { .device = arg, .event = IB_EVENT_PORT_ERR };

	while (fake_count(&dispatching) < 2) {
		ib_dispatch_event(&event);
		if (fake_count(&dispatching) == 0)
			fake_bump(&dispatching);
		usleep(5);
	}
	return NULL;
}

/* A driver whose interrupts go on to the end. */
static void unregister_device__no_event_after_it(void **state)
{
	struct fake_device *fake = fake_create("late");
	struct ib_event_handler handler;
	pthread_t t;

	dispatching = 0;
	assert_int_equal(ib_register_device(&fake->ib), 0);
	INIT_IB_EVENT_HANDLER(&handler, &fake->ib, late_event);
	assert_int_equal(ib_register_event_handler(&handler), 0);
	assert_int_equal(pthread_create(&t, NULL, dispatcher_main, &fake->ib), 0);
	assert_true(fake_await(&late_events, 3));
	ib_unregister_device(&fake->ib);
	int heard = fake_count(&late_events);

	usleep(20000);
	assert_int_equal(fake_count(&late_events), heard);
	fake_bump(&dispatching);
	pthread_join(t, NULL);
	fake_destroy(fake);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(unregister_device__while_threads_are_inside_verbs, setup),
		cmocka_unit_test_setup(unregister_device__leaves_others_alone, setup),
		cmocka_unit_test_setup(unregister_device__no_event_after_it, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
