/* client_test.c: clients of the real adapter that come and go while it carries traffic.
 * In:    -    Out: -    Runs: the test's threads; each client has a thread of its own
 */
#include "rig.h"

#include <stdlib.h>
#include <unistd.h>

/* One upper-layer driver: all that it has hangs on its client data. */
struct ulp {
	struct ib_client client; /* first */
	int adds, removes, refused; /* atomic */
};

struct ulp_port {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_mr *mr;
	struct ib_cq *scq, *rcq;
	struct ib_qp *qp; /* looped back to itself */
	struct ib_event_handler events;
	pthread_t thread;
	int stop, wakes, faults, messages;
	u64 out, in;
};

static void ulp_event(struct ib_event_handler *handler, struct ib_event *event)
{
}

static void ulp_wake(struct ib_cq *cq, void *context)
{
	count_add(&((struct ulp_port *)context)->wakes);
}

/* Sends numbers to itself and sleeps on completion events. */
static void *ulp_main(void *arg)
{
	struct ulp_port *p = arg;
	struct ib_sge out = { (uintptr_t)&p->out, 8, p->mr->lkey };
	struct ib_sge in = { (uintptr_t)&p->in, 8, p->mr->lkey };
	struct ib_recv_wr recv = { .sg_list = &in, .num_sge = 1 };
	struct ib_send_wr send = { .sg_list = &out,
				   .num_sge = 1,
				   .opcode = IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED };
	struct ib_wc wc;

	while (!count_get(&p->stop)) {
		int before = count_get(&p->wakes);

		p->out++;
		if (ib_req_notify_cq(p->rcq, IB_CQ_NEXT_COMP) ||
		    ib_post_recv(p->qp, &recv, NULL) || ib_post_send(p->qp, &send, NULL) ||
		    !rig_await(&p->wakes, before + 1) ||
		    rig_poll(p->rcq, 1, &wc, RIG_WAIT_MS) != 1 || wc.status != IB_WC_SUCCESS ||
		    rig_poll(p->scq, 1, &wc, RIG_WAIT_MS) != 1 || p->in != p->out)
			count_add(&p->faults);
		count_add(&p->messages);
	}
	return NULL;
}

static void ulp_open_qp(struct ulp_port *p)
{
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_RC, p->scq, p->rcq, NULL);
	union ib_gid gid;

	p->qp = rig_ok(ib_create_qp(p->pd, &init));
	assert_int_equal(ib_query_gid(p->dev, 1, rig.gid_index, &gid), 0);
	rig_connect(p->qp, &gid, p->qp->qp_num);
}

static void ulp_add(struct ulp *u, struct ib_device *dev)
{
	struct ulp_port *p;

	if (dev != rig.dev) /* not the one under test */
		return;
	p = calloc(1, sizeof(*p));
	p->dev = dev;
	p->pd = rig_ok(ib_alloc_pd(dev));
	p->mr = rig_ok(ib_get_dma_mr(p->pd, IB_ACCESS_LOCAL_WRITE));
	p->scq = rig_ok(ib_create_cq(dev, NULL, NULL, NULL, 16, 0));
	p->rcq = rig_ok(ib_create_cq(dev, ulp_wake, NULL, p, 16, dev->num_comp_vectors - 1));
	ulp_open_qp(p);
	INIT_IB_EVENT_HANDLER(&p->events, dev, ulp_event);
	assert_int_equal(ib_register_event_handler(&p->events), 0);
	assert_int_equal(pthread_create(&p->thread, NULL, ulp_main, p), 0);
	ib_set_client_data(dev, &u->client, p);
	count_add(&u->adds);
}

/* Everything of the device is gone before this returns. */
static void ulp_remove(struct ulp *u, struct ib_device *dev)
{
	struct ulp_port *p = ib_get_client_data(dev, &u->client);

	if (dev != rig.dev)
		return;
	assert_non_null(p);
	assert_true(rig_await(&p->messages, 1));
	count_add(&p->stop);
	pthread_join(p->thread, NULL);
	assert_int_equal(p->faults, 0);
	assert_int_equal(ib_unregister_event_handler(&p->events), 0);
	assert_int_equal(ib_destroy_qp(p->qp), 0);
	assert_int_equal(ib_destroy_cq(p->scq), 0);
	assert_int_equal(ib_destroy_cq(p->rcq), 0);
	assert_int_equal(ib_dereg_mr(p->mr), 0);
	assert_int_equal(ib_dealloc_pd(p->pd), 0);
	free(p);
	count_add(&u->removes);
}

static struct ulp one, two;

static void one_add(struct ib_device *dev)
{
	ulp_add(&one, dev);
}

static void one_remove(struct ib_device *dev)
{
	ulp_remove(&one, dev);
}

static void two_add(struct ib_device *dev)
{
	ulp_add(&two, dev);
}

static void two_remove(struct ib_device *dev)
{
	ulp_remove(&two, dev);
}

static int setup(void **state)
{
	one = (struct ulp){ .client = { .name = "one", .add = one_add, .remove = one_remove } };
	two = (struct ulp){ .client = { .name = "two", .add = two_add, .remove = two_remove } };
	return rig_setup(state);
}

static void register_client__adds_with_traffic_and_removes_all(void **state)
{
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ib_register_client(&one.client), 0);
		assert_int_equal(one.adds, i + 1);
		assert_int_equal(ib_register_client(&two.client), 0);
		assert_int_equal(ib_register_client(&one.client), -EEXIST);
		assert_non_null(ib_get_client_data(rig.dev, &one.client));
		assert_ptr_not_equal(ib_get_client_data(rig.dev, &one.client),
				     ib_get_client_data(rig.dev, &two.client));
		rig_sleep_ms(20);
		ib_unregister_client(&one.client);
		assert_int_equal(one.removes, i + 1);
		assert_null(ib_get_client_data(rig.dev, &one.client));
		rig_sleep_ms(5);
		ib_unregister_client(&two.client);
		assert_int_equal(two.removes, i + 1);
		ib_unregister_client(&two.client); /* nothing is left to remove */
		assert_int_equal(two.removes, i + 1);
	}
}

static void *comer_main(void *arg)
{
	struct ulp *u = arg;

	for (int i = 0; i < 10; i++) {
		if (ib_register_client(&u->client))
			count_add(&u->refused);
		usleep(2000);
		ib_unregister_client(&u->client);
	}
	return NULL;
}

static void register_client__from_two_threads(void **state)
{
	pthread_t t[2];

	assert_int_equal(pthread_create(&t[0], NULL, comer_main, &one), 0);
	assert_int_equal(pthread_create(&t[1], NULL, comer_main, &two), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(one.refused + two.refused, 0);
	assert_int_equal(one.adds, 10);
	assert_int_equal(one.removes, 10);
	assert_int_equal(two.adds, 10);
	assert_int_equal(two.removes, 10);
}

/* What a kernel driver asks its device first. */
static void query__tells_what_the_device_is(void **state)
{
	struct ib_device_attr attr;
	struct ib_port_attr port;
	union ib_gid gid;
	u8 port_num = 0;
	u16 index = 9, pkey;

	assert_int_equal(ib_query_device(rig.dev, &attr), 0);
	assert_true(attr.max_qp > 0 && attr.max_cq > 0);
	assert_int_equal(attr.max_fmr > 0, rig.dev->alloc_fmr != NULL);
	assert_int_equal(attr.max_mw > 0, rig.dev->alloc_mw != NULL);
	assert_true(attr.vendor_id != 0 && attr.vendor_id != 0x02c9);
	assert_int_equal(ib_query_port(rig.dev, 1, &port), 0);
	assert_int_equal(port.state, IB_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IB_LINK_LAYER_ETHERNET);
	assert_int_equal(ib_query_port(rig.dev, 0, &port), -EINVAL);
	assert_int_equal(ib_query_port(rig.dev, 2, &port), -EINVAL);
	assert_int_equal(ib_query_gid(rig.dev, 1, port.gid_tbl_len, &gid), -EINVAL);
	assert_int_equal(ib_find_gid(rig.dev, &rig.gid, &port_num, &index), 0);
	assert_int_equal(port_num, 1);
	assert_int_equal(index, rig.gid_index);
	assert_int_equal(ib_query_pkey(rig.dev, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ib_find_pkey(rig.dev, 1, 0xffff, &index), 0);
	assert_int_equal(rdma_node_get_transport(rig.dev->node_type), RDMA_TRANSPORT_IB);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(register_client__adds_with_traffic_and_removes_all, setup),
		cmocka_unit_test_setup(register_client__from_two_threads, setup),
		cmocka_unit_test_setup(query__tells_what_the_device_is, setup),
	};

	return rig_run_tests(tests);
}
