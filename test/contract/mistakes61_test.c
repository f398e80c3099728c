/* mistakes61_test.c: every call of Linux 6.1's level with NULL, with nothing, above its limits, and
 * with an object of another domain or device.
 * In:    -    Out: -    Runs: the test's thread
 */
#include <limits.h>
#include <rdma/ib_verbs.h>
#include <rdma/mr_pool.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include "mistakes.h"

enum { ROOM = 8 };

/* What a consumer has of this device, and of another. */
struct side {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq, *plain; /* of ib_alloc_cq; of ib_create_cq */
	struct ib_srq *srq;
	struct ib_qp *qp; /* in RTS, to itself */
	struct ib_mr *mr;
};

static struct side mine, other;
static struct ib_pd *mine_next; /* another domain of this device */
static int other_added;
static char bytes[8192] __attribute__((aligned(4096)));

static int other_add(struct ib_device *device)
{
	if (device == rig.dev)
		return -EOPNOTSUPP;
	other.device = device;
	count_add(&other_added);
	return 0;
}

static struct ib_client other_client = { .name = "other", .add = other_add };

static struct ib_qp_init_attr side_init(const struct side *side)
{
	return (struct ib_qp_init_attr){ .send_cq = side->cq,
					 .recv_cq = side->cq,
					 .qp_type = IB_QPT_RC,
					 .sq_sig_type = IB_SIGNAL_REQ_WR,
					 .cap = { .max_send_wr = ROOM,
						  .max_recv_wr = ROOM,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
}

static void side_open(struct side *side)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = ROOM, .max_sge = 1 } };
	struct ib_cq_init_attr cq = { .cqe = 64 };
	struct ib_qp_init_attr init;
	union ib_gid gid;

	side->pd = rig_ok(ib_alloc_pd(side->device, 0));
	side->cq = rig_ok(ib_alloc_cq(side->device, NULL, 64, 0, IB_POLL_DIRECT));
	side->plain = rig_ok(ib_create_cq(side->device, NULL, NULL, NULL, &cq));
	side->srq = rig_ok(ib_create_srq(side->pd, &srq));
	init = side_init(side);
	side->qp = rig_ok(ib_create_qp(side->pd, &init));
	side->mr = rig_ok(ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, 2));
	assert_int_equal(rdma_query_gid(side->device, 1, rig.gid_index, &gid), 0);
	rig_connect(side->qp, &gid, side->qp->qp_num);
}

static void side_close(struct side *side)
{
	assert_int_equal(ib_destroy_qp(side->qp), 0);
	assert_int_equal(ib_dereg_mr(side->mr), 0);
	assert_int_equal(ib_destroy_srq(side->srq), 0);
	assert_int_equal(ib_destroy_cq(side->plain), 0);
	ib_free_cq(side->cq);
	ib_dealloc_pd(side->pd);
}

static void setup(void)
{
	assert_int_equal(ib_register_client(&other_client), 0);
	assert_int_equal(rig_device("add", "roce1"), 0);
	assert_true(rig_await(&other_added, 1));
	mine.device = rig.dev;
	side_open(&mine);
	side_open(&other);
	mine_next = rig_ok(ib_alloc_pd(rig.dev, 0));
}

static void teardown(void)
{
	ib_dealloc_pd(mine_next);
	side_close(&other);
	side_close(&mine);
	ib_unregister_client(&other_client);
	assert_int_equal(rig_device("remove", "roce1"), 0);
}

/* ---- NULL ------------------------------------------------------------------------------------ */

static void null_of_queues(void)
{
	struct ib_cq_init_attr cq = { .cqe = 4 };
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ib_wc wc;

	ANSWERS(ib_alloc_cq, "no device", -EINVAL, ib_alloc_cq(NULL, NULL, 4, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_alloc_cq_any, "no device", -EINVAL,
		ib_alloc_cq_any(NULL, NULL, 4, IB_POLL_SOFTIRQ));
	NOTHING(ib_free_cq, "NULL", ib_free_cq(NULL), true);
	ANSWERS(ib_process_cq_direct, "NULL", -EINVAL, ib_process_cq_direct(NULL, 1));
	ANSWERS(ib_cq_pool_get, "no device", -EINVAL, ib_cq_pool_get(NULL, 4, 0, IB_POLL_SOFTIRQ));
	NOTHING(ib_cq_pool_put, "NULL", ib_cq_pool_put(NULL, 4), true);
	ANSWERS(ib_create_cq, "no device", -EINVAL, ib_create_cq(NULL, NULL, NULL, NULL, &cq));
	ANSWERS(ib_create_cq, "no attributes", -EINVAL,
		ib_create_cq(mine.device, NULL, NULL, NULL, NULL));
	ANSWERS(ib_destroy_cq, "NULL", -EINVAL, ib_destroy_cq(NULL));
	ANSWERS(ib_poll_cq, "NULL", -EINVAL, ib_poll_cq(NULL, 1, &wc));
	ANSWERS(ib_req_notify_cq, "NULL", -EINVAL, ib_req_notify_cq(NULL, IB_CQ_NEXT_COMP));
	ANSWERS(ib_create_srq, "no domain", -EINVAL, ib_create_srq(NULL, &srq));
	ANSWERS(ib_create_srq, "no attributes", -EINVAL, ib_create_srq(mine.pd, NULL));
	ANSWERS(ib_destroy_srq, "NULL", -EINVAL, ib_destroy_srq(NULL));
	NOTHING(ib_drain_qp, "NULL", ib_drain_qp(NULL), true);
	NOTHING(ib_drain_sq, "NULL", ib_drain_sq(NULL), true);
	NOTHING(ib_drain_rq, "NULL", ib_drain_rq(NULL), true);
}

static void null_of_queue_pairs(void)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_qp_init_attr init = side_init(&mine);
	const struct ib_send_wr send = { .opcode = IB_WR_SEND };
	const struct ib_recv_wr recv = { .num_sge = 0 };

	ANSWERS(ib_alloc_pd, "no device", -EINVAL, ib_alloc_pd(NULL, 0));
	NOTHING(ib_dealloc_pd, "NULL", ib_dealloc_pd(NULL), true);
	ANSWERS(ib_create_qp, "no domain", -EINVAL, ib_create_qp(NULL, &init));
	ANSWERS(ib_create_qp, "no attributes", -EINVAL, ib_create_qp(mine.pd, NULL));
	init.send_cq = NULL;
	ANSWERS(ib_create_qp, "no CQ", -EINVAL, ib_create_qp(mine.pd, &init));
	ANSWERS(ib_modify_qp, "NULL", -EINVAL, ib_modify_qp(NULL, &attr, IB_QP_STATE));
	ANSWERS(ib_modify_qp, "no attributes", -EINVAL, ib_modify_qp(mine.qp, NULL, IB_QP_STATE));
	ANSWERS(ib_query_qp, "NULL", -EINVAL, ib_query_qp(NULL, &attr, IB_QP_STATE, &init));
	ANSWERS(ib_query_qp, "no attributes", -EINVAL,
		ib_query_qp(mine.qp, NULL, IB_QP_STATE, &init));
	ANSWERS(ib_destroy_qp, "NULL", -EINVAL, ib_destroy_qp(NULL));
	ANSWERS(ib_post_send, "NULL", -EINVAL, ib_post_send(NULL, &send, NULL));
	ANSWERS(ib_post_recv, "NULL", -EINVAL, ib_post_recv(NULL, &recv, NULL));
	ANSWERS(ib_post_srq_recv, "NULL", -EINVAL, ib_post_srq_recv(NULL, &recv, NULL));
}

static void null_of_memory(void)
{
	struct ib_mr *mr = mine.mr;
	struct scatterlist sg;
	struct rdma_rw_ctx ctx;

	sg_init_one(&sg, bytes, sizeof(bytes));
	ANSWERS(ib_alloc_mr, "no domain", -EINVAL, ib_alloc_mr(NULL, IB_MR_TYPE_MEM_REG, 2));
	ANSWERS(ib_map_mr_sg, "NULL", -EINVAL, ib_map_mr_sg(NULL, &sg, 1, NULL, 4096));
	ANSWERS(ib_map_mr_sg, "no list", -EINVAL, ib_map_mr_sg(mr, NULL, 1, NULL, 4096));
	ANSWERS(ib_dereg_mr, "NULL", -EINVAL, ib_dereg_mr(NULL));
	ANSWERS(ib_mr_pool_init, "no queue pair", -EINVAL,
		ib_mr_pool_init(NULL, &mine.qp->rdma_mrs, 1, IB_MR_TYPE_MEM_REG, 2, 0));
	ANSWERS(ib_mr_pool_init, "no list", -EINVAL,
		ib_mr_pool_init(mine.qp, NULL, 1, IB_MR_TYPE_MEM_REG, 2, 0));
	ANSWERS(ib_mr_pool_get, "no queue pair", NULL, ib_mr_pool_get(NULL, &mine.qp->rdma_mrs));
	ANSWERS(ib_mr_pool_get, "no list", NULL, ib_mr_pool_get(mine.qp, NULL));
	NOTHING(ib_mr_pool_put, "NULL", ib_mr_pool_put(mine.qp, &mine.qp->rdma_mrs, NULL),
		!ib_mr_pool_get(mine.qp, &mine.qp->rdma_mrs));
	NOTHING(ib_mr_pool_destroy, "no queue pair", ib_mr_pool_destroy(NULL, &mine.qp->rdma_mrs),
		true);
	ANSWERS(rdma_rw_ctx_init, "no context", -EINVAL,
		rdma_rw_ctx_init(NULL, mine.qp, 1, &sg, 1, 0, 0, 1, DMA_TO_DEVICE));
	ANSWERS(rdma_rw_ctx_init, "no queue pair", -EINVAL,
		rdma_rw_ctx_init(&ctx, NULL, 1, &sg, 1, 0, 0, 1, DMA_TO_DEVICE));
	ANSWERS(rdma_rw_ctx_init, "no list", -EINVAL,
		rdma_rw_ctx_init(&ctx, mine.qp, 1, NULL, 1, 0, 0, 1, DMA_TO_DEVICE));
	GIVES(rdma_rw_ctx_wrs, "no context", "what was to be chained",
	      !rdma_rw_ctx_wrs(NULL, mine.qp, 1, NULL, NULL));
	ANSWERS(rdma_rw_ctx_post, "no context", -EINVAL,
		rdma_rw_ctx_post(NULL, mine.qp, 1, NULL, NULL));
	NOTHING(rdma_rw_ctx_destroy, "no context",
		rdma_rw_ctx_destroy(NULL, mine.qp, 1, &sg, 1, DMA_TO_DEVICE), true);
	ANSWERS(rdma_rw_mr_factor, "no device", 0, rdma_rw_mr_factor(NULL, 1, 16));
	GIVES(rdma_rw_max_send_wr, "no device", "as without registration",
	      rdma_rw_max_send_wr(NULL, 1, 16, 0) == 16);
}

static void null_of_clients(void)
{
	ANSWERS(ib_register_client, "NULL", -EINVAL, ib_register_client(NULL));
	ANSWERS(ib_register_client, "registered already", -EEXIST,
		ib_register_client(&other_client));
	NOTHING(ib_unregister_client, "NULL", ib_unregister_client(NULL), true);
	ANSWERS(ib_get_client_data, "no device or client", NULL, ib_get_client_data(NULL, NULL));
	NOTHING(ib_set_client_data, "no device or client",
		ib_set_client_data(mine.device, NULL, &mine), true);
}

static void null__of_every_call(void **state)
{
	setup();
	null_of_queues();
	null_of_queue_pairs();
	null_of_memory();
	null_of_clients();
	mistakes_assert_none();
	teardown();
}

/* ---- connections ----------------------------------------------------------------------------- */

static int ignore(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	return 0;
}

static void connection_null(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct sockaddr *addr = (struct sockaddr *)&to;
	struct rdma_conn_param param = { .retry_count = 1 };
	struct ib_qp_init_attr init = side_init(&mine);
	union ib_gid gid = { .raw = { 1 } };
	u8 length = 1;

	ANSWERS(rdma_create_id, "no handler", -EINVAL,
		rdma_create_id(NULL, NULL, NULL, RDMA_PS_TCP, IB_QPT_RC));
	NOTHING(rdma_destroy_id, "NULL", rdma_destroy_id(NULL), true);
	ANSWERS(rdma_bind_addr, "NULL", -EINVAL, rdma_bind_addr(NULL, addr));
	ANSWERS(rdma_resolve_addr, "NULL", -EINVAL, rdma_resolve_addr(NULL, NULL, addr, 1));
	ANSWERS(rdma_resolve_route, "NULL", -EINVAL, rdma_resolve_route(NULL, 1));
	ANSWERS(rdma_create_qp, "NULL", -EINVAL, rdma_create_qp(NULL, mine.pd, &init));
	NOTHING(rdma_destroy_qp, "NULL", rdma_destroy_qp(NULL), true);
	ANSWERS(rdma_connect, "NULL", -EINVAL, rdma_connect(NULL, &param));
	ANSWERS(rdma_connect_locked, "NULL", -EINVAL, rdma_connect_locked(NULL, &param));
	ANSWERS(rdma_listen, "NULL", -EINVAL, rdma_listen(NULL, 1));
	ANSWERS(rdma_accept, "NULL", -EINVAL, rdma_accept(NULL, &param));
	ANSWERS(rdma_notify, "NULL", -EINVAL, rdma_notify(NULL, IB_EVENT_COMM_EST));
	ANSWERS(rdma_reject, "NULL", -EINVAL,
		rdma_reject(NULL, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED));
	ANSWERS(rdma_disconnect, "NULL", -EINVAL, rdma_disconnect(NULL));
	NOTHING(rdma_set_service_type, "NULL", rdma_set_service_type(NULL, 1), true);
	ANSWERS(rdma_set_afonly, "NULL", -EINVAL, rdma_set_afonly(NULL, 1));
	ANSWERS(rdma_set_min_rnr_timer, "NULL", -EINVAL, rdma_set_min_rnr_timer(NULL, 1));
	NOTHING(rdma_lock_handler, "NULL", rdma_lock_handler(NULL), true);
	NOTHING(rdma_unlock_handler, "NULL", rdma_unlock_handler(NULL), true);
	rdma_read_gids(NULL, &gid, NULL);
	GIVES(rdma_read_gids, "NULL", "GIDs of all 0", !gid.raw[0]);
	GIVES(rdma_consumer_reject_data, "no event", "NULL, and no bytes",
	      !rdma_consumer_reject_data(NULL, NULL, &length) && !length);
}

static void connection_too_early(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .retry_count = 1 };
	struct ib_qp_init_attr init = side_init(&mine);

	ANSWERS(rdma_bind_addr, "no address", -EINVAL, rdma_bind_addr(id, NULL));
	ANSWERS(rdma_resolve_addr, "no address", -EINVAL, rdma_resolve_addr(id, NULL, NULL, 1));
	ANSWERS(rdma_resolve_route, "no address is resolved", -EINVAL, rdma_resolve_route(id, 1));
	ANSWERS(rdma_create_qp, "the id is bound to no device", -EINVAL,
		rdma_create_qp(id, mine.pd, &init));
	NOTHING(rdma_destroy_qp, "the id has none", rdma_destroy_qp(id), true);
	ANSWERS(rdma_connect, "no route", -EINVAL, rdma_connect(id, &param));
	ANSWERS(rdma_accept, "no request", -EINVAL, rdma_accept(id, &param));
	ANSWERS(rdma_reject, "no request", -EINVAL,
		rdma_reject(id, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED));
	ANSWERS(rdma_disconnect, "no connection", -EINVAL, rdma_disconnect(id));
	ANSWERS(rdma_notify, "no connection", -EINVAL, rdma_notify(id, IB_EVENT_COMM_EST));
	ANSWERS(rdma_set_min_rnr_timer, "above 31", -EINVAL, rdma_set_min_rnr_timer(id, 32));
}

static void connection__null_and_too_early(void **state)
{
	struct ib_qp_init_attr init;
	struct sockaddr_in own;
	struct rdma_cm_id *id;

	setup();
	id = rig_ok(rdma_create_id(NULL, ignore, NULL, RDMA_PS_TCP, IB_QPT_RC));
	init = side_init(&mine);
	own = rig_address();
	connection_null();
	connection_too_early(id);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&own), 0);
	ANSWERS(rdma_create_qp, "a domain of another device", -EINVAL,
		rdma_create_qp(id, other.pd, &init));
	ANSWERS(rdma_create_qp, "no domain", -EINVAL, rdma_create_qp(id, NULL, &init));
	ANSWERS(rdma_create_qp, "no attributes", -EINVAL, rdma_create_qp(id, mine.pd, NULL));
	init.send_cq = other.cq;
	ANSWERS(rdma_create_qp, "a CQ of another device", -EINVAL,
		rdma_create_qp(id, mine.pd, &init));
	rdma_destroy_id(id);
	mistakes_assert_none();
	teardown();
}

/* ---- nothing, and too much ------------------------------------------------------------------- */

static void nothing_of_queues(void)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 0, .max_sge = 1 } };
	struct ib_cq_init_attr cq = { .cqe = 0 };
	struct ib_cq *pooled;
	struct ib_wc wc;

	ANSWERS(ib_alloc_cq, "0 completions", -EINVAL,
		ib_alloc_cq(mine.device, NULL, 0, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_alloc_cq, "fewer than 0 completions", -EINVAL,
		ib_alloc_cq(mine.device, NULL, -1, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_alloc_cq_any, "0 completions", -EINVAL,
		ib_alloc_cq_any(mine.device, NULL, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_create_cq, "0 completions", -EINVAL,
		ib_create_cq(mine.device, NULL, NULL, NULL, &cq));
	pooled = rig_ok(ib_cq_pool_get(mine.device, 0, 0, IB_POLL_SOFTIRQ));
	GIVES(ib_cq_pool_get, "0 completions", "a CQ", !IS_ERR(pooled));
	ib_cq_pool_put(pooled, 0);
	ANSWERS(ib_process_cq_direct, "a budget of 0", 0, ib_process_cq_direct(mine.cq, 0));
	ANSWERS(ib_poll_cq, "0 completions", 0, ib_poll_cq(mine.plain, 0, &wc));
	ANSWERS(ib_poll_cq, "fewer than 0 completions", -EINVAL, ib_poll_cq(mine.plain, -1, &wc));
	ANSWERS(ib_req_notify_cq, "neither of the two kinds", -EINVAL,
		ib_req_notify_cq(mine.plain, (enum ib_cq_notify_flags)0));
	ANSWERS(ib_create_srq, "0 requests", -EINVAL, ib_create_srq(mine.pd, &srq));
	ANSWERS(ib_post_send, "no request", 0, ib_post_send(mine.qp, NULL, NULL));
	ANSWERS(ib_post_recv, "no request", 0, ib_post_recv(mine.qp, NULL, NULL));
	ANSWERS(ib_post_srq_recv, "no request", 0, ib_post_srq_recv(mine.srq, NULL, NULL));
}

static void nothing_of_memory(void)
{
	struct scatterlist sg;
	struct rdma_rw_ctx ctx;

	sg_init_one(&sg, bytes, sizeof(bytes));
	ANSWERS(ib_alloc_mr, "0 pages", -EINVAL, ib_alloc_mr(mine.pd, IB_MR_TYPE_MEM_REG, 0));
	ANSWERS(ib_map_mr_sg, "0 elements", -EINVAL, ib_map_mr_sg(mine.mr, &sg, 0, NULL, 4096));
	ANSWERS(ib_map_mr_sg, "pages of 0 bytes", -EINVAL, ib_map_mr_sg(mine.mr, &sg, 1, NULL, 0));
	ANSWERS(ib_mr_pool_init, "0 regions", 0,
		ib_mr_pool_init(mine.qp, &mine.qp->rdma_mrs, 0, IB_MR_TYPE_MEM_REG, 2, 0));
	ANSWERS(ib_mr_pool_init, "0 pages", -EINVAL,
		ib_mr_pool_init(mine.qp, &mine.qp->rdma_mrs, 1, IB_MR_TYPE_MEM_REG, 0, 0));
	ANSWERS(ib_mr_pool_get, "the list is empty", NULL,
		ib_mr_pool_get(mine.qp, &mine.qp->rdma_mrs));
	ANSWERS(rdma_rw_ctx_init, "0 elements", -EIO,
		rdma_rw_ctx_init(&ctx, mine.qp, 1, &sg, 0, 0, 0, 1, DMA_TO_DEVICE));
	ANSWERS(rdma_rw_ctx_init, "an offset at the end of the list", -EIO,
		rdma_rw_ctx_init(&ctx, mine.qp, 1, &sg, 1, sizeof(bytes), 0, 1, DMA_TO_DEVICE));
	ANSWERS(rdma_rw_ctx_init, "neither of the two directions", -EINVAL,
		rdma_rw_ctx_init(&ctx, mine.qp, 1, &sg, 1, 0, 0, 1, DMA_BIDIRECTIONAL));
	ANSWERS(rdma_rw_mr_factor, "0 pages", 0, rdma_rw_mr_factor(mine.device, 1, 0));
	ANSWERS(rdma_rw_max_send_wr, "0 transfers", 0, rdma_rw_max_send_wr(mine.device, 1, 0, 0));
}

static void nothing__is_little_to_do(void **state)
{
	setup();
	nothing_of_queues();
	nothing_of_memory();
	mistakes_assert_none();
	teardown();
}

static void much_of_queues(void)
{
	const struct ib_device_attr *most = &mine.device->attrs;
	struct ib_srq_init_attr srq = { .attr = { (u32)most->max_srq_wr + 1, 1, 0 } };
	struct ib_cq_init_attr cq = { .cqe = (u32)most->max_cqe + 1 };

	ANSWERS(ib_alloc_cq, "more completions than the device's", -EINVAL,
		ib_alloc_cq(mine.device, NULL, most->max_cqe + 1, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_alloc_cq, "no such vector", -EINVAL,
		ib_alloc_cq(mine.device, NULL, 4, mine.device->num_comp_vectors, IB_POLL_SOFTIRQ));
	ANSWERS(ib_alloc_cq, "no such context", -EINVAL,
		ib_alloc_cq(mine.device, NULL, 4, 0, (enum ib_poll_context)(IB_POLL_DIRECT + 1)));
	ANSWERS(ib_alloc_cq_any, "more completions than the device's", -EINVAL,
		ib_alloc_cq_any(mine.device, NULL, INT_MAX, IB_POLL_SOFTIRQ));
	ANSWERS(ib_cq_pool_get, "more completions than the device's", -EINVAL,
		ib_cq_pool_get(mine.device, (u32)most->max_cqe + 1, 0, IB_POLL_SOFTIRQ));
	ANSWERS(ib_cq_pool_get, "the context of the caller", -EINVAL,
		ib_cq_pool_get(mine.device, 4, 0, IB_POLL_DIRECT));
	ANSWERS(ib_create_cq, "more completions than the device's", -EINVAL,
		ib_create_cq(mine.device, NULL, NULL, NULL, &cq));
	cq = (struct ib_cq_init_attr){ .cqe = 4, .comp_vector = UINT_MAX };
	ANSWERS(ib_create_cq, "no such vector", -EINVAL,
		ib_create_cq(mine.device, NULL, NULL, NULL, &cq));
	cq = (struct ib_cq_init_attr){ .cqe = 4, .flags = 1 };
	ANSWERS(ib_create_cq, "a flag", -EOPNOTSUPP,
		ib_create_cq(mine.device, NULL, NULL, NULL, &cq));
	ANSWERS(ib_create_srq, "more requests than the device's", -EINVAL,
		ib_create_srq(mine.pd, &srq));
	srq.attr = (struct ib_srq_attr){ 4, (u32)most->max_srq_sge + 1, 0 };
	ANSWERS(ib_create_srq, "more SGEs than the device's", -EINVAL,
		ib_create_srq(mine.pd, &srq));
}

static void much_of_queue_pairs(void)
{
	const struct ib_device_attr *most = &mine.device->attrs;
	struct ib_qp_init_attr init = side_init(&mine);

	ANSWERS(ib_alloc_pd, "no such flag", -EINVAL, ib_alloc_pd(mine.device, 2));
	init.cap.max_send_wr = (u32)most->max_qp_wr + 1;
	ANSWERS(ib_create_qp, "more requests than the device's", -EINVAL,
		ib_create_qp(mine.pd, &init));
	init = side_init(&mine);
	init.cap.max_recv_sge = (u32)most->max_recv_sge + 1;
	ANSWERS(ib_create_qp, "more SGEs than the device's", -EINVAL, ib_create_qp(mine.pd, &init));
	init = side_init(&mine);
	init.qp_type = IB_QPT_MAX;
	ANSWERS(ib_create_qp, "no such type", -EINVAL, ib_create_qp(mine.pd, &init));
	init = side_init(&mine);
	init.create_flags = IB_QP_CREATE_INTEGRITY_EN;
	ANSWERS(ib_create_qp, "a create flag", -EOPNOTSUPP, ib_create_qp(mine.pd, &init));
	init = side_init(&mine);
	init.source_qpn = 1;
	ANSWERS(ib_create_qp, "`source_qpn`", -EOPNOTSUPP, ib_create_qp(mine.pd, &init));
}

static struct ib_cqe unheard = { NULL };

static void unheard_done(struct ib_cq *cq, struct ib_wc *wc)
{
}

static int recv_until_full(struct ib_qp *qp, struct ib_srq *srq)
{
	const struct ib_recv_wr recv = { .wr_cqe = &unheard };
	int err = 0;

	unheard.done = unheard_done;
	for (int i = 0; i <= 64 * ROOM && !err; i++)
		err = srq ? ib_post_srq_recv(srq, &recv, NULL) : ib_post_recv(qp, &recv, NULL);
	return err;
}

static void much_of_requests(void)
{
	struct ib_sge sge[64] = { { (uintptr_t)bytes, 1, mine.pd->local_dma_lkey } };
	const struct ib_send_wr send = { .sg_list = sge, .num_sge = 64, .opcode = IB_WR_SEND };
	const struct ib_recv_wr recv = { .sg_list = sge, .num_sge = 64 };
	struct ib_send_wr wrong = { .opcode = (enum ib_wr_opcode)IB_WR_REG_MR_INTEGRITY };
	const struct ib_send_wr *bad = NULL;

	ANSWERS(ib_post_send, "more SGEs than the queue pair's", -EINVAL,
		ib_post_send(mine.qp, &send, &bad));
	assert_ptr_equal(bad, &send);
	ANSWERS(ib_post_send, "an opcode that no device has", -EINVAL,
		ib_post_send(mine.qp, &wrong, &bad));
	ANSWERS(ib_post_recv, "more SGEs than the queue pair's", -EINVAL,
		ib_post_recv(mine.qp, &recv, NULL));
	ANSWERS(ib_post_srq_recv, "more SGEs than the SRQ's", -EINVAL,
		ib_post_srq_recv(mine.srq, &recv, NULL));
	ANSWERS(ib_post_recv, "the queue is full", -ENOMEM, recv_until_full(mine.qp, NULL));
	ANSWERS(ib_post_srq_recv, "the queue is full", -ENOMEM, recv_until_full(NULL, mine.srq));
}

static void much_of_memory(void)
{
	u32 pages = mine.device->attrs.max_fast_reg_page_list_len + 1;
	unsigned int offset = sizeof(bytes) + 1;
	struct scatterlist sg;

	sg_init_one(&sg, bytes, sizeof(bytes));
	ANSWERS(ib_alloc_mr, "more pages than the device's", -EINVAL,
		ib_alloc_mr(mine.pd, IB_MR_TYPE_MEM_REG, pages));
	ANSWERS(ib_alloc_mr, "no such type", -EINVAL,
		ib_alloc_mr(mine.pd, (enum ib_mr_type)IB_MR_TYPE_DM, 2));
	ANSWERS(ib_mr_pool_init, "more pages than the device's", -EINVAL,
		ib_mr_pool_init(mine.qp, &mine.qp->rdma_mrs, 2, IB_MR_TYPE_MEM_REG, pages, 0));
	ANSWERS(ib_mr_pool_init, "signatures", -EOPNOTSUPP,
		ib_mr_pool_init(mine.qp, &mine.qp->sig_mrs, 1,
				(enum ib_mr_type)IB_MR_TYPE_INTEGRITY, 2, 2));
	ANSWERS(ib_map_mr_sg, "an offset beyond the first element", -EINVAL,
		ib_map_mr_sg(mine.mr, &sg, 1, &offset, 4096));
	ANSWERS(ib_map_mr_sg, "pages of no power of two", -EINVAL,
		ib_map_mr_sg(mine.mr, &sg, 1, NULL, 4097));
	ANSWERS(rdma_rw_max_send_wr, "more than can be counted", UINT_MAX,
		rdma_rw_max_send_wr(mine.device, 1, UINT_MAX, IB_QP_CREATE_INTEGRITY_EN));
}

static void much__is_refused(void **state)
{
	setup();
	much_of_queues();
	much_of_queue_pairs();
	much_of_requests();
	much_of_memory();
	mistakes_assert_none();
	teardown();
}

/* ---- objects of others ----------------------------------------------------------------------- */

/* The status of the only request. */
static enum ib_wc_status status_of(const struct ib_send_wr *wr)
{
	struct ib_qp_init_attr init = side_init(&mine);
	enum ib_wc_status status;
	struct ib_qp *qp, *peer;

	init.send_cq = init.recv_cq = mine.plain;
	qp = rig_ok(ib_create_qp(mine.pd, &init));
	peer = rig_ok(ib_create_qp(mine.pd, &init));
	rig_connect(qp, &rig.gid, peer->qp_num);
	rig_connect(peer, &rig.gid, qp->qp_num);
	assert_int_equal(ib_post_send(qp, wr, NULL), 0);
	status = rig_outcome(mine.plain);
	assert_int_equal(ib_destroy_qp(peer), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	return status;
}

static struct ib_reg_wr registration(struct ib_mr *mr)
{
	struct scatterlist sg;

	sg_init_one(&sg, bytes, 4096);
	assert_int_equal(ib_map_mr_sg(mr, &sg, 1, NULL, 4096), 1);
	return (struct ib_reg_wr){ .wr = { .opcode = IB_WR_REG_MR, .send_flags = IB_SEND_SIGNALED },
				   .mr = mr,
				   .key = mr->rkey,
				   .access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE };
}

static void foreign_creations(void)
{
	struct ib_qp_init_attr init = side_init(&mine);
	struct ib_qp *qp;

	init.send_cq = other.cq;
	ANSWERS(ib_create_qp, "a CQ of another device", -EINVAL, ib_create_qp(mine.pd, &init));
	init = side_init(&mine);
	init.srq = other.srq;
	ANSWERS(ib_create_qp, "an SRQ of another device", -EINVAL, ib_create_qp(mine.pd, &init));
	ANSWERS(ib_create_qp, "a domain of another device than its CQs'", -EINVAL,
		ib_create_qp(other.pd, &init));
	init.srq = mine.srq;
	qp = ib_create_qp(mine_next, &init);
	GIVES(ib_create_qp, "an SRQ of another domain", "a queue pair", !IS_ERR(qp));
	ANSWERS(ib_post_recv, "the queue pair has an SRQ", -EINVAL,
		ib_post_recv(qp, &(const struct ib_recv_wr){ .num_sge = 0 }, NULL));
	assert_int_equal(ib_destroy_qp(qp), 0);
}

static void foreign_requests(void)
{
	struct ib_mr *next = rig_ok(ib_alloc_mr(mine_next, IB_MR_TYPE_MEM_REG, 2));
	struct ib_reg_wr theirs = registration(other.mr), nexts = registration(next);
	struct ib_reg_wr none = { .wr = nexts.wr, .key = next->rkey };
	struct ib_sge sge = { (uintptr_t)bytes, 8, mine_next->local_dma_lkey };
	const struct ib_send_wr send = {
		.sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED
	};
	const struct ib_send_wr invalidate = { .opcode = IB_WR_LOCAL_INV,
					       .send_flags = IB_SEND_SIGNALED,
					       .ex.invalidate_rkey = next->rkey };
	const struct ib_rdma_wr write = {
		.wr = { .opcode = IB_WR_RDMA_WRITE,
			.send_flags = IB_SEND_SIGNALED,
			.sg_list = &(struct ib_sge){ (uintptr_t)bytes, 8, mine.pd->local_dma_lkey },
			.num_sge = 1 },
		.remote_addr = (uintptr_t)bytes,
		.rkey = mine_next->local_dma_lkey
	};

	ANSWERS(ib_post_send, "IB_WR_REG_MR without a region", -EINVAL,
		ib_post_send(mine.qp, &none.wr, NULL));
	ANSWERS(ib_post_send, "IB_WR_REG_MR of another device's region", -EINVAL,
		ib_post_send(mine.qp, &theirs.wr, NULL));
	ANSWERS(ib_post_send, "IB_WR_REG_MR of another domain's region", IB_WC_MW_BIND_ERR,
		status_of(&nexts.wr));
	ANSWERS(ib_post_send, "IB_WR_LOCAL_INV of another domain's key", IB_WC_MW_BIND_ERR,
		status_of(&invalidate));
	ANSWERS(ib_post_send, "an SGE under another domain's key", IB_WC_LOC_PROT_ERR,
		status_of(&send));
	ANSWERS(ib_post_send, "a WRITE under another domain's key", IB_WC_REM_ACCESS_ERR,
		status_of(&write.wr));
	assert_int_equal(ib_dereg_mr(next), 0);
}

static void foreign_ends(void)
{
	struct ib_mr *dma = rig_ok(ib_get_dma_mr(mine.pd, IB_ACCESS_LOCAL_WRITE));
	struct ib_cq *pooled = rig_ok(ib_cq_pool_get(mine.device, 4, 0, IB_POLL_SOFTIRQ));
	struct scatterlist sg;

	sg_init_one(&sg, bytes, sizeof(bytes));
	ANSWERS(ib_map_mr_sg, "a region that is not of `ib_alloc_mr`", -EINVAL,
		ib_map_mr_sg(dma, &sg, 1, NULL, 4096));
	ANSWERS(ib_destroy_cq, "a queue pair or SRQ uses it, and it polls itself", -EOPNOTSUPP,
		ib_destroy_cq(mine.cq));
	ANSWERS(ib_destroy_cq, "a CQ of the pool", -EOPNOTSUPP, ib_destroy_cq(pooled));
	STAYS(ib_free_cq, "a CQ of the pool", ib_free_cq(pooled), !ib_process_cq_direct(pooled, 0));
	STAYS(ib_free_cq, "a queue pair or SRQ uses it", ib_free_cq(mine.cq),
	      !ib_process_cq_direct(mine.cq, 0));
	NOTHING(ib_free_cq, "a CQ of `ib_create_cq`", ib_free_cq(mine.plain),
		!ib_req_notify_cq(mine.plain, IB_CQ_NEXT_COMP));
	STAYS(ib_cq_pool_put, "more than was claimed", ib_cq_pool_put(pooled, 5),
	      !ib_process_cq_direct(pooled, 0));
	STAYS(ib_cq_pool_put, "a CQ that is not of the pool", ib_cq_pool_put(mine.cq, 1),
	      !ib_process_cq_direct(mine.cq, 0));
	STAYS(ib_dealloc_pd, "an object uses it", ib_dealloc_pd(mine.pd), mine.pd->local_dma_lkey);
	ANSWERS(ib_destroy_srq, "a queue pair uses it", -EBUSY, ({
			struct ib_qp_init_attr init = side_init(&mine);
			struct ib_qp *qp;
			int err;

			init.srq = mine.srq;
			qp = rig_ok(ib_create_qp(mine.pd, &init));
			err = ib_destroy_srq(mine.srq);
			assert_int_equal(ib_destroy_qp(qp), 0);
			err;
		}));
	ib_cq_pool_put(pooled, 4);
	assert_int_equal(ib_dereg_mr(dma), 0);
}

static void foreign__objects_are_refused(void **state)
{
	setup();
	foreign_creations();
	foreign_requests();
	foreign_ends();
	mistakes_assert_none();
	teardown();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(null__of_every_call),
		cmocka_unit_test(connection__null_and_too_early),
		cmocka_unit_test(nothing__is_little_to_do),
		cmocka_unit_test(much__is_refused),
		cmocka_unit_test(foreign__objects_are_refused),
	};

	return rig_run_tests(tests);
}
