/* consumer.c: a consumer of the RDMA CM, and its ids.
 * In:    calls of a test      Out: what the consumer was told
 * Runs:  the test's threads   Locks: cma.lock
 */
#include "cm/rdma/test_support/consumer.h"

#include <arpa/inet.h>
#include <string.h>

struct fake_device *adapter;

struct consumer consumer;

int consumer_handle(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	int at = consumer.count;

	assert_true(at < SEEN);
	consumer.seen[at] = event->event;
	consumer.status[at] = event->status;
	consumer.ah = event->param.ud.ah_attr;
	consumer.last = id;
	if (consumer.call != NULL)
		consumer.called = consumer.call(id);
	__atomic_store_n(&consumer.count, at + 1, __ATOMIC_RELEASE);
	return consumer.answer;
}

int consumer_open(void **state)
{
	memset(&fake_cm, 0, sizeof(fake_cm));
	memset(&consumer, 0, sizeof(consumer));
	adapter = fake_create("fake0");
	adapter->pkeys[0] = 0xffff;
	assert_int_equal(ib_register_device(&adapter->ib), 0);
	return 0;
}

struct ib_cm_id *consumer_ib(struct rdma_cm_id *id)
{
	struct ib_cm_id *ib;

	lock_acquire(&cma.lock);
	ib = cma_id(id)->ib;
	lock_release(&cma.lock);
	return ib;
}

int consumer_ids(void)
{
	int n = 0;

	lock_acquire(&cma.lock);
	list_for_each(id, &cma.ids, struct cma_id, node)
		n += id != NULL;
	lock_release(&cma.lock);
	return n;
}

int consumer_close(void **state)
{
	assert_int_equal(consumer_ids(), 0);
	assert_int_equal(fake_cm.ids, 0);
	ib_unregister_device(&adapter->ib);
	fake_destroy(adapter);
	return 0;
}

/* ---- ids in some state ----------------------------------------------------------------------- */

struct rdma_cm_id *consumer_make(enum rdma_port_space ps)
{
	struct rdma_cm_id *id = rdma_create_id(consumer_handle, &consumer, ps,
					       ps == RDMA_PS_TCP ? IB_QPT_RC : IB_QPT_UD);

	assert_false(IS_ERR(id));
	return id;
}

void consumer_resolve(struct rdma_cm_id *id)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(1) };

	memcpy(&id->route.addr.src_addr, &here, sizeof(here));
	here.sin_port = htons(PORT);
	memcpy(&id->route.addr.dst_addr, &here, sizeof(here));
	cma_bind_device(cma_id(id), &adapter->ib, 1, &adapter->gids[0]);
	assert_true(cma_move(cma_id(id), CMA_IDLE, CMA_ADDR_RESOLVED));
}

void consumer_route(struct rdma_cm_id *id)
{
	struct ib_sa_path_rec path = { .sgid = adapter->gids[0],
				       .dgid = adapter->gids[1],
				       .flow_label = htobe32(0x12345),
				       .traffic_class = 0x20,
				       .hop_limit = 9 };

	consumer_resolve(id);
	assert_int_equal(rdma_set_ib_paths(id, &path, 1), 0);
}

struct rdma_cm_id *consumer_connecting(enum rdma_port_space ps)
{
	struct rdma_conn_param param = { .qp_num = 7, .private_data = "hi", .private_data_len = 2 };
	struct rdma_cm_id *id = consumer_make(ps);

	consumer_route(id);
	assert_int_equal(rdma_connect(id, &param), 0);
	return id;
}

struct rdma_cm_id *consumer_disconnected(void)
{
	struct rdma_cm_id *id = consumer_connecting(RDMA_PS_TCP);
	struct ib_cm_event event = { .event = IB_CM_DREQ_RECEIVED };

	assert_false(fake_cm_event(consumer_ib(id), &event));
	assert_int_equal(consumer.seen[consumer.count - 1], RDMA_CM_EVENT_DISCONNECTED);
	consumer.count = 0;
	return id;
}

struct rdma_cm_id *consumer_listener(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct rdma_cm_id *id = consumer_make(RDMA_PS_TCP);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	return id;
}

struct ib_cm_id *consumer_listener_ib(struct rdma_cm_id *id)
{
	struct ib_cm_id *ib = NULL;

	lock_acquire(&cma.lock);
	list_for_each(l, &cma_id(id)->listeners, struct cma_listener, node)
		if (l->device == &adapter->ib)
			ib = l->ib;
	lock_release(&cma.lock);
	assert_non_null(ib);
	return ib;
}
