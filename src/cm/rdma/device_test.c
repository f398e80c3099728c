/* device_test.c: devices that come and go under ids of the RDMA CM, over an IB CM that sends
 * nothing: who is told, what an id keeps, and what the device waits for.
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "cm/rdma/test_support/consumer.h"

static int destroyed; /* atomic */

/* Every id of a device that goes is told once, whatever it was in the middle of; one that wants to
 * end does. */
static void cma_device_remove__tells_every_id(void **state)
{
	struct rdma_cm_id *ids[] = { consumer_make(RDMA_PS_TCP), consumer_make(RDMA_PS_TCP),
				     consumer_connecting(RDMA_PS_TCP), consumer_disconnected(),
				     consumer_listener() };
	struct rdma_conn_param param = { .qp_num = 7 };
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT };
	int mask;

	consumer_route(ids[1]);
	for (u32 i = 0; i < ARRAY_LEN(ids); i++)
		cma_id(ids[i])->user = true; /* may stay when the device has gone */
	ib_unregister_device(&adapter->ib);
	/* the first has no device, the last listens on all */
	assert_int_equal(consumer.count, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(consumer.seen[i], RDMA_CM_EVENT_DEVICE_REMOVAL);
	assert_int_equal(fake_cm.ids, 0);
	for (int i = 1; i < 4; i++) {
		assert_null(ids[i]->device);
		assert_int_equal(rdma_connect(ids[i], &param), -EINVAL);
		assert_int_equal(rdma_disconnect(ids[i]), -EINVAL);
		assert_int_equal(rdma_init_qp_attr(ids[i], &attr, &mask), -EINVAL);
	}
	assert_int_equal(ib_register_device(&adapter->ib), 0);
	assert_int_equal(fake_cm.ids, 1); /* the listener listens on it again */
	for (u32 i = 0; i < ARRAY_LEN(ids); i++)
		rdma_destroy_id(ids[i]);
}

/* A device that comes is one for each id that listens on all. */
static void cma_device_add__each_listener_listens(void **state)
{
	struct rdma_cm_id *ids[] = { consumer_listener(), consumer_listener(),
				     consumer_listener() };

	ib_unregister_device(&adapter->ib);
	assert_int_equal(fake_cm.ids, 0);
	assert_int_equal(ib_register_device(&adapter->ib), 0);
	assert_int_equal(fake_cm.ids, 3);
	for (u32 i = 0; i < ARRAY_LEN(ids); i++)
		rdma_destroy_id(ids[i]);
}

static void cma_device_remove__ends_ids_that_want_it(void **state)
{
	(void)consumer_connecting(RDMA_PS_TCP);
	(void)consumer_connecting(RDMA_PS_UDP);
	consumer.answer = 1;
	ib_unregister_device(&adapter->ib);
	assert_int_equal(consumer.count, 2);
	assert_int_equal(consumer_ids(), 0);
	assert_int_equal(fake_cm.ids, 0);
	consumer.answer = 0;
	assert_int_equal(ib_register_device(&adapter->ib), 0);
}

static void *unregister_thread(void *arg)
{
	ib_unregister_device(&adapter->ib);
	__atomic_store_n(&destroyed, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* What a consumer of the midlayer does when it is told of the removal. */
static struct removal {
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_device *device; /* that the event's id named */
	bool later;		  /* on another thread, after the handler */
} removal;

static int removal_close(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	return ib_destroy_cq(removal.cq) | ib_dealloc_pd(removal.pd);
}

static int removal_note(struct rdma_cm_id *id)
{
	removal.device = id->device;
	return removal.later ? 0 : removal_close(id);
}

/* The id keeps its device, whose methods work, until it is destroyed; until then the device does
 * not go. */
static void removal_of_a_consumer(bool later)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_RC };
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);
	struct rdma_conn_param param = { 0 };
	pthread_t thread;

	consumer_route(id);
	removal = (struct removal){ .pd = ib_alloc_pd(&adapter->ib),
				    .cq = ib_create_cq(&adapter->ib, NULL, NULL, NULL, 4, 0),
				    .later = later };
	init.send_cq = init.recv_cq = removal.cq;
	assert_int_equal(rdma_create_qp(id, removal.pd, &init), 0);
	assert_int_equal(rdma_connect(id, &param), 0);
	consumer.count = 0;
	consumer.call = removal_note;
	consumer.answer = !later;
	destroyed = 0;
	pthread_create(&thread, NULL, unregister_thread, NULL);
	while (__atomic_load_n(&consumer.count, __ATOMIC_ACQUIRE) == 0)
		usleep(1000);
	if (later) {
		usleep(20000);
		assert_int_equal(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), 0);
		assert_ptr_equal(id->device, &adapter->ib);
		consumer.called = removal_close(id);
		assert_int_equal(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), 0);
		rdma_destroy_id(id);
	}
	pthread_join(thread, NULL);
	assert_int_equal(consumer.count, 1);
	assert_ptr_equal(removal.device, &adapter->ib);
	assert_int_equal(consumer.called, 0);
	assert_int_equal(consumer_ids(), 0);
	assert_int_equal(adapter->objects, 0);
	consumer.call = NULL;
	consumer.answer = 0;
	assert_int_equal(ib_register_device(&adapter->ib), 0);
}

static void cma_device_remove__waits_for_the_consumers(void **state)
{
	removal_of_a_consumer(false);
	consumer.count = 0;
	removal_of_a_consumer(true);
}

/* A call that has the device in its hands holds it. */
static void cma_device_hold__delays_the_removal(void **state)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct cma_device *d;
	struct ib_cm_id *ib;
	pthread_t thread;
	char name[16];

	cma_id(id)->user = true;
	assert_true(cma_device_name(cma_id(id), name, sizeof(name)) > 0);
	assert_string_equal(name, "fake0");
	d = cma_device_hold_ib(cma_id(id), &ib);
	assert_non_null(d);
	assert_ptr_equal(ib, consumer_ib(id));
	destroyed = 0;
	pthread_create(&thread, NULL, unregister_thread, NULL);
	usleep(20000);
	assert_int_equal(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), 0);
	assert_int_equal(consumer.count, 0);
	cma_device_release(d);
	pthread_join(thread, NULL);
	assert_int_equal(consumer.count, 1);
	assert_null(cma_device_hold(cma_id(id)));
	assert_int_equal(cma_device_name(cma_id(id), name, sizeof(name)), 0);
	assert_string_equal(name, "");
	rdma_destroy_id(id);
	assert_int_equal(ib_register_device(&adapter->ib), 0);
}

#define ADAPTER_TEST(name) cmocka_unit_test_setup_teardown(name, consumer_open, consumer_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ADAPTER_TEST(cma_device_remove__tells_every_id),
		ADAPTER_TEST(cma_device_add__each_listener_listens),
		ADAPTER_TEST(cma_device_remove__ends_ids_that_want_it),
		ADAPTER_TEST(cma_device_remove__waits_for_the_consumers),
		ADAPTER_TEST(cma_device_hold__delays_the_removal),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
