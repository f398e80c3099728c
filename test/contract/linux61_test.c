/* linux61_test.c: an upper layer in the words of Linux 6.1, over its headers: a client and a server
 * that connect by the RDMA CM, ping each other from completions, and drain.
 * In:    -    Out: -    Runs: the test's thread, the RDMA CM's, those of CQs
 */
#include "rig.h"

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

enum { PINGS = 200, DEPTH = 8, BYTES = 64 };

static struct ping {
	struct rdma_cm_id *listener;
	struct side {
		struct rdma_cm_id *id;
		struct ib_pd *pd;
		struct ib_cq *cq;
		struct ib_cqe sent, received;
		char *in, *out; /* DEPTH messages; one */
		int pongs, flushed, failed;
		int resolved, routed, established, gone;
		struct sockaddr_in to;
	} client, server;
	enum ib_poll_context context;
} ping;

/* ---- completions ----------------------------------------------------------------------------- */

static struct side *side_of(struct ib_cq *cq)
{
	return (struct side *)cq->cq_context;
}

static void side_receive(struct side *side, int slot)
{
	struct ib_sge sge = { .addr = ib_dma_map_single(side->id->device, side->in + slot * BYTES,
							BYTES, DMA_FROM_DEVICE),
			      .length = BYTES,
			      .lkey = side->pd->local_dma_lkey };
	const struct ib_recv_wr wr = { .wr_cqe = &side->received, .sg_list = &sge, .num_sge = 1 };
	const struct ib_recv_wr *bad;

	if (ib_post_recv(side->id->qp, &wr, &bad))
		count_add(&side->failed);
}

static void side_send(struct side *side)
{
	struct ib_sge sge = { .addr = ib_dma_map_single(side->id->device, side->out, BYTES,
							DMA_TO_DEVICE),
			      .length = BYTES,
			      .lkey = side->pd->local_dma_lkey };
	const struct ib_send_wr wr = { .wr_cqe = &side->sent,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IB_WR_SEND,
				       .send_flags = IB_SEND_SIGNALED };

	if (ib_post_send(side->id->qp, &wr, NULL))
		count_add(&side->failed);
}

static void side_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS && wc->status != IB_WC_WR_FLUSH_ERR)
		count_add(&side_of(cq)->failed);
}

/* Each message is answered, until there were enough. */
static void side_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct side *side = side_of(cq);

	if (wc->status == IB_WC_WR_FLUSH_ERR) {
		count_add(&side->flushed);
		return;
	}
	if (wc->status != IB_WC_SUCCESS || wc->byte_len != BYTES || wc->qp != side->id->qp)
		count_add(&side->failed);
	side_receive(side, 0);
	if (side == &ping.server || count_get(&side->pongs) + 1 < PINGS)
		side_send(side);
	count_add(&side->pongs);
}

/* ---- connections ----------------------------------------------------------------------------- */

static int side_open(struct side *side)
{
	struct ib_qp_init_attr init = { .sq_sig_type = IB_SIGNAL_REQ_WR,
					.qp_type = IB_QPT_RC,
					.cap = { .max_send_wr = 2 * DEPTH,
						 .max_recv_wr = 2 * DEPTH,
						 .max_send_sge = 1,
						 .max_recv_sge = 1 } };
	int err;

	side->sent.done = side_sent;
	side->received.done = side_received;
	side->in = (char *)calloc(DEPTH + 1, BYTES);
	side->out = side->in + DEPTH * BYTES;
	side->pd = ib_alloc_pd(side->id->device, 0);
	if (IS_ERR(side->pd))
		return (int)PTR_ERR(side->pd);
	side->cq = ib_alloc_cq_any(side->id->device, side, 4 * DEPTH, ping.context);
	if (IS_ERR(side->cq))
		return (int)PTR_ERR(side->cq);
	init.send_cq = init.recv_cq = side->cq;
	err = rdma_create_qp(side->id, side->pd, &init);
	for (int i = 0; i < DEPTH && !err; i++)
		side_receive(side, i);
	return err;
}

static void side_close(struct side *side)
{
	rdma_disconnect(side->id);
	ib_drain_qp(side->id->qp);
	rdma_destroy_qp(side->id);
	ib_free_cq(side->cq);
	ib_dealloc_pd(side->pd);
	rdma_destroy_id(side->id);
	free(side->in);
}

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct side *side = (struct side *)id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		count_add(&side->resolved);
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		count_add(&side->routed);
		return 0;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		id->context = side = &ping.server;
		side->id = id;
		return side_open(side) || rdma_accept(id, &param) ? -1 : 0;
	case RDMA_CM_EVENT_ESTABLISHED:
		count_add(&side->established);
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		count_add(&side->gone);
		return 0;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return 0;
	default:
		count_add(&side->failed);
		return 0;
	}
}

/* The device's first IPv4 address. */
static struct sockaddr_in own_address(void)
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	union ib_gid gid;
	int index = 0;

	do {
		assert_int_equal(ib_query_gid(rig.dev, 1, index++, &gid), 0);
	} while (memcmp(gid.raw, mapped, sizeof(mapped)) != 0);
	memcpy(&sin.sin_addr, gid.raw + 12, sizeof(sin.sin_addr));
	return sin;
}

static void ping_connect(void)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct side *client = &ping.client;

	client->to = own_address();
	ping.listener = rig_ok(rdma_create_id(NULL, on_event, &ping.server, RDMA_PS_TCP,
					      IB_QPT_RC));
	assert_int_equal(rdma_bind_addr(ping.listener, (struct sockaddr *)&client->to), 0);
	assert_int_equal(rdma_listen(ping.listener, 4), 0);
	client->to.sin_port = ((struct sockaddr_in *)&ping.listener->route.addr.src_addr)->sin_port;
	client->id = rig_ok(rdma_create_id(NULL, on_event, client, RDMA_PS_TCP, IB_QPT_RC));
	assert_int_equal(rdma_resolve_addr(client->id, NULL, (struct sockaddr *)&client->to, 5000),
			 0);
	assert_true(rig_await(&client->resolved, 1));
	assert_int_equal(rdma_resolve_route(client->id, 5000), 0);
	assert_true(rig_await(&client->routed, 1));
	assert_int_equal(side_open(client), 0);
	assert_int_equal(rdma_connect(client->id, &param), 0);
	assert_true(rig_await(&client->established, 1));
	assert_true(rig_await(&ping.server.established, 1));
}

static void ping_poll(struct side *side)
{
	if (ping.context == IB_POLL_DIRECT)
		ib_process_cq_direct(side->cq, -1);
}

static void ping_in(enum ib_poll_context context)
{
	u64 end = rig_now_ms() + RIG_WAIT_MS;

	memset(&ping, 0, sizeof(ping));
	ping.context = context;
	ping_connect();
	side_send(&ping.client);
	while (count_get(&ping.client.pongs) < PINGS && rig_now_ms() < end) {
		ping_poll(&ping.client);
		ping_poll(&ping.server);
	}
	assert_int_equal(ping.client.pongs, PINGS);
	side_close(&ping.client);
	side_close(&ping.server);
	rdma_destroy_id(ping.listener);
	assert_int_equal(ping.client.failed | ping.server.failed, 0);
	assert_int_equal(ping.client.flushed, DEPTH);
	assert_int_equal(ping.server.flushed, DEPTH);
}

static void ping__on_the_vector(void **state)
{
	ping_in(IB_POLL_SOFTIRQ);
}

static void ping__on_a_workqueue(void **state)
{
	ping_in(IB_POLL_WORKQUEUE);
}

static void ping__on_an_unbound_workqueue(void **state)
{
	ping_in(IB_POLL_UNBOUND_WORKQUEUE);
}

static void ping__polled_by_the_caller(void **state)
{
	ping_in(IB_POLL_DIRECT);
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct {
	struct ib_device *device;
	int added, removed, refuse, mistakes;
} told;

static void client_removed(struct ib_device *device, void *client_data);
static int client_added(struct ib_device *device);
static struct ib_client told_client = { .name = "told",
					.add = client_added,
					.remove = client_removed };

static int client_added(struct ib_device *device)
{
	told.device = device;
	told.mistakes += device->attrs.max_qp_wr < 1 || device->attrs.max_send_sge < 1;
	ib_set_client_data(device, &told_client, &told);
	told.added++;
	return told.refuse;
}

static void client_removed(struct ib_device *device, void *client_data)
{
	told.mistakes += client_data != &told ||
			 ib_get_client_data(device, &told_client) != &told;
	told.removed++;
}

static void register_client__gives_the_data_back(void **state)
{
	assert_int_equal(ib_register_client(&told_client), 0);
	assert_true(told.added > 0);
	assert_ptr_equal(ib_get_client_data(told.device, &told_client), &told);
	ib_unregister_client(&told_client);
	assert_int_equal(told.removed, told.added);
	assert_int_equal(told.mistakes, 0);
	assert_int_equal(ib_register_client(NULL), -EINVAL);
	ib_unregister_client(NULL);
}

static void register_client__spares_who_refuses(void **state)
{
	told.refuse = -EOPNOTSUPP;
	assert_int_equal(ib_register_client(&told_client), 0);
	assert_true(told.added > 0);
	assert_ptr_equal(ib_get_client_data(told.device, &told_client), NULL);
	ib_unregister_client(&told_client);
	assert_int_equal(told.removed, 0);
}

static void attrs__say_what_the_device_can(void **state)
{
	const struct ib_device_attr *attrs = &rig.dev->attrs;
	struct ib_device_attr_ex ex = { .size = sizeof(ex) };

	assert_int_equal(ib_query_device_ex(rig.dev, &ex), 0);
	assert_int_equal(attrs->max_qp, ex.base.max_qp);
	assert_int_equal(attrs->max_cqe, ex.base.max_cqe);
	assert_int_equal(attrs->max_send_sge, ex.base.max_sge);
	assert_int_equal(attrs->max_recv_sge, ex.base.max_sge);
	assert_int_equal(attrs->max_pkeys, ex.base.max_pkeys);
	assert_true(attrs->device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS);
	assert_int_equal(attrs->max_fast_reg_page_list_len, ex.max_fast_reg_page_list_len);
	assert_int_equal(attrs->kernel_cap_flags, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(ping__on_the_vector),
		cmocka_unit_test(ping__on_a_workqueue),
		cmocka_unit_test(ping__on_an_unbound_workqueue),
		cmocka_unit_test(ping__polled_by_the_caller),
		cmocka_unit_test(register_client__gives_the_data_back),
		cmocka_unit_test(register_client__spares_who_refuses),
		cmocka_unit_test(attrs__say_what_the_device_can),
	};

	return rig_run_tests(tests);
}
