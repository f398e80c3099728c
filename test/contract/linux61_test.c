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

static void ping_connect(void)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct side *client = &ping.client;
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	client->to = rig_address();
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
	assert_int_equal(rdma_set_min_rnr_timer(client->id, IB_RNR_TIMER_000_32), 0);
	assert_int_equal(rdma_connect(client->id, &param), 0);
	assert_true(rig_await(&client->established, 1));
	assert_int_equal(ib_query_qp(client->id->qp, &attr, IB_QP_MIN_RNR_TIMER, &init), 0);
	assert_int_equal(attr.min_rnr_timer, IB_RNR_TIMER_000_32);
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

/* What messages call a device and its objects. */
static void names__of_objects_in_messages(void **state)
{
	struct ib_cq *cq = rig_ok(ib_alloc_cq(rig.dev, NULL, 8, 0, IB_POLL_DIRECT));
	struct ib_cq *other = rig_ok(ib_alloc_cq_any(rig.dev, NULL, 8, IB_POLL_DIRECT));
	struct ib_mr *mr = rig_ok(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, 4));
	struct ib_mr *next = rig_ok(ib_alloc_mr(rig.pd, IB_MR_TYPE_MEM_REG, 4));

	assert_string_equal(rig.dev->dev.init_name, rig.dev->name);
	assert_null(rig.dev->dev.parent);
	assert_int_equal(ibdev_to_node(rig.dev), -1);
	assert_int_not_equal(cq->res.id, other->res.id);
	assert_int_not_equal(mr->res.id, next->res.id);
	assert_false(mr->need_inval);
	ib_dereg_mr(next);
	ib_dereg_mr(mr);
	ib_free_cq(other);
	ib_free_cq(cq);
}

static void ports__of_a_roce_adapter(void **state)
{
	union ib_gid gid, cached;
	u32 port, ports = 0;

	rdma_for_each_port(rig.dev, port) ports++;
	assert_int_equal(ports, rig.dev->phys_port_cnt);
	assert_int_equal(rdma_start_port(rig.dev), 1);
	assert_int_equal(rdma_end_port(rig.dev), rig.dev->phys_port_cnt);
	assert_true(rdma_is_port_valid(rig.dev, 1) && !rdma_is_port_valid(rig.dev, 0));
	assert_true(rdma_protocol_roce(rig.dev, 1) && rdma_protocol_roce_udp_encap(rig.dev, 1));
	assert_false(rdma_protocol_ib(rig.dev, 1) || rdma_protocol_iwarp(rig.dev, 1));
	assert_true(rdma_cap_ib_mad(rig.dev, 1) && rdma_cap_ib_cm(rig.dev, 1));
	assert_true(rdma_cap_eth_ah(rig.dev, 1));
	assert_false(rdma_cap_ib_smi(rig.dev, 1) || rdma_cap_ib_sa(rig.dev, 1) ||
		     rdma_cap_ib_mcast(rig.dev, 1) || rdma_cap_af_ib(rig.dev, 1));
	assert_false(rdma_cap_iw_cm(rig.dev, 1) || rdma_cap_read_inv(rig.dev, 1));
	assert_int_equal(rdma_query_gid(rig.dev, 1, 0, &gid), 0);
	assert_int_equal(ib_get_cached_gid(rig.dev, 1, 0, &cached), 0);
	assert_memory_equal(&gid, &cached, sizeof(gid));
	assert_int_equal(rdma_query_gid(rig.dev, 0, 0, &gid), -EINVAL);
	assert_int_equal(rdma_query_gid(rig.dev, 1, -1, &gid), -EINVAL);
	assert_int_equal(rdma_query_gid(rig.dev, 1, 100000, &gid), -EINVAL);
}

/* Numbers that upper layers exchange with their peers, or keep as bits. */
static void signatures__have_linux_numbers(void **state)
{
	struct ib_sig_attrs attrs = {
		.check_mask = IB_SIG_CHECK_GUARD | IB_SIG_CHECK_APPTAG | IB_SIG_CHECK_REFTAG,
		.mem.sig_type = IB_SIG_TYPE_NONE,
		.wire = { .sig_type = IB_SIG_TYPE_T10_DIF, .sig.dif.bg_type = IB_T10DIF_CSUM }
	};
	struct ib_mr_status status = { .sig_err.err_type = IB_SIG_BAD_APPTAG };

	assert_int_equal(attrs.check_mask, 0xff);
	assert_int_equal(attrs.wire.sig.dif.bg_type, 1);
	assert_int_equal(IB_SIG_CHECK_GUARD, 0xc0);
	assert_int_equal(status.sig_err.err_type, 2);
	assert_int_equal(IB_PROT_T10DIF_TYPE_3 | IB_GUARD_T10DIF_CSUM, 6);
	assert_int_equal(rig.dev->attrs.sig_prot_cap | rig.dev->attrs.sig_guard_cap, 0);
	assert_int_equal(rig.dev->attrs.kernel_cap_flags & IBK_INTEGRITY_HANDOVER, 0);
	assert_null(rig.mr->sig_attrs);
	assert_int_equal(IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, 1);
	assert_int_equal(ib_advise_mr(rig.pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				      IB_UVERBS_ADVISE_MR_FLAG_FLUSH, NULL, 0),
			 -EOPNOTSUPP);
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef void (*any_function)(void);
#define NAME(function) { #function, (any_function)(function) }

/* What rds, iser, isert, nvme and sunrpc of Linux 6.1 call. docs/linux-6.1.md has the same list. */
static const struct {
	const char *name;
	any_function function;
} names[] = {
	NAME(ib_advise_mr),
	NAME(ib_alloc_cq),
	NAME(ib_alloc_cq_any),
	NAME(ib_alloc_mr),
	NAME(ib_alloc_mr_integrity),
	NAME(ib_alloc_pd),
	NAME(ib_check_mr_status),
	NAME(ib_cq_pool_get),
	NAME(ib_cq_pool_put),
	NAME(ib_create_cq),
	NAME(ib_create_srq),
	NAME(ib_dealloc_pd),
	NAME(ib_dereg_mr),
	NAME(ib_destroy_cq),
	NAME(ib_destroy_qp),
	NAME(ib_destroy_srq),
	NAME(ib_dma_map_page),
	NAME(ib_dma_map_sg),
	NAME(ib_dma_map_single),
	NAME(ib_dma_mapping_error),
	NAME(ib_dma_max_seg_size),
	NAME(ib_dma_pci_p2p_dma_supported),
	NAME(ib_dma_sync_sg_for_cpu),
	NAME(ib_dma_sync_sg_for_device),
	NAME(ib_dma_sync_single_for_cpu),
	NAME(ib_dma_sync_single_for_device),
	NAME(ib_dma_unmap_page),
	NAME(ib_dma_unmap_sg),
	NAME(ib_dma_unmap_single),
	NAME(ib_drain_qp),
	NAME(ib_drain_rq),
	NAME(ib_drain_sq),
	NAME(ib_event_msg),
	NAME(ib_free_cq),
	NAME(ib_get_client_data),
	NAME(ib_inc_rkey),
	NAME(ib_map_mr_sg),
	NAME(ib_map_mr_sg_pi),
	NAME(ib_map_mr_sg_zbva),
	NAME(ib_mr_pool_destroy),
	NAME(ib_mr_pool_get),
	NAME(ib_mr_pool_init),
	NAME(ib_mr_pool_put),
	NAME(ib_poll_cq),
	NAME(ib_post_recv),
	NAME(ib_post_send),
	NAME(ib_post_srq_recv),
	NAME(ib_process_cq_direct),
	NAME(ib_query_qp),
	NAME(ib_reg_user_mr),
	NAME(ib_register_client),
	NAME(ib_register_event_handler),
	NAME(ib_req_notify_cq),
	NAME(ib_set_client_data),
	NAME(ib_unregister_client),
	NAME(ib_unregister_event_handler),
	NAME(ib_update_fast_reg_key),
	NAME(ib_uses_virt_dma),
	NAME(ib_wc_status_msg),
	NAME(ibdev_to_node),
	NAME(rdma_accept),
	NAME(rdma_bind_addr),
	NAME(rdma_cap_ib_cm),
	NAME(rdma_connect),
	NAME(rdma_connect_locked),
	NAME(rdma_consumer_reject_data),
	NAME(rdma_create_id),
	NAME(rdma_create_qp),
	NAME(rdma_destroy_id),
	NAME(rdma_destroy_qp),
	NAME(rdma_disconnect),
	NAME(rdma_end_port),
	NAME(rdma_event_msg),
	NAME(rdma_ib_or_roce),
	NAME(rdma_is_port_valid),
	NAME(rdma_listen),
	NAME(rdma_lock_handler),
	NAME(rdma_notify),
	NAME(rdma_protocol_ib),
	NAME(rdma_protocol_iwarp),
	NAME(rdma_protocol_roce),
	NAME(rdma_query_gid),
	NAME(rdma_read_gids),
	NAME(rdma_reject),
	NAME(rdma_reject_msg),
	NAME(rdma_resolve_addr),
	NAME(rdma_resolve_route),
	NAME(rdma_rw_ctx_destroy),
	NAME(rdma_rw_ctx_destroy_signature),
	NAME(rdma_rw_ctx_init),
	NAME(rdma_rw_ctx_post),
	NAME(rdma_rw_ctx_signature_init),
	NAME(rdma_rw_ctx_wrs),
	NAME(rdma_rw_max_send_wr),
	NAME(rdma_rw_mr_factor),
	NAME(rdma_set_afonly),
	NAME(rdma_set_min_rnr_timer),
	NAME(rdma_set_service_type),
	NAME(rdma_start_port),
	NAME(rdma_unlock_handler),
};

static void names__are_all_there(void **state)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_non_null(names[i].function);
}

static void msg__has_a_text_for_every_number(void **state)
{
	for (int i = -1; i < 64; i++) {
		assert_non_null(ib_event_msg((enum ib_event_type)i));
		assert_non_null(ib_wc_status_msg((enum ib_wc_status)i));
		assert_non_null(rdma_event_msg((enum rdma_cm_event_type)i));
		assert_non_null(rdma_reject_msg(NULL, i));
	}
	for (int i = 0; i <= IB_EVENT_GID_CHANGE; i++)
		assert_string_not_equal(ib_event_msg((enum ib_event_type)i), "unknown");
	for (int i = 0; i <= IB_WC_GENERAL_ERR; i++)
		assert_string_not_equal(ib_wc_status_msg((enum ib_wc_status)i), "unknown");
	for (int i = 0; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++)
		assert_string_not_equal(rdma_event_msg((enum rdma_cm_event_type)i), "unknown");
	assert_string_equal(ib_wc_status_msg((enum ib_wc_status)-1), "unknown");
}

static void refused__what_no_device_has(void **state)
{
	assert_int_equal(PTR_ERR(ib_alloc_mr_integrity(rig.pd, 1, 1)), -EOPNOTSUPP);
	assert_int_equal(ib_check_mr_status(rig.mr, IB_MR_CHECK_SIG_STATUS, NULL), -EOPNOTSUPP);
	assert_int_equal(ib_map_mr_sg_pi(rig.mr, NULL, 0, NULL, NULL, 0, NULL, 4096), -EOPNOTSUPP);
	assert_int_equal(ib_map_mr_sg_zbva(rig.mr, NULL, 0, NULL, 4096), -EOPNOTSUPP);
	assert_int_equal(PTR_ERR(ib_reg_user_mr(rig.pd, 0, 1, 0, 0)), -EOPNOTSUPP);
	assert_int_equal(ib_advise_mr(rig.pd, 0, 0, NULL, 0), -EOPNOTSUPP);
	assert_true(ib_uses_virt_dma(rig.dev));
	assert_ptr_equal(ib_virt_dma_to_ptr((uintptr_t)state), state);
	assert_int_equal(ib_dma_max_seg_size(rig.dev), UINT32_MAX);
	assert_false(ib_dma_pci_p2p_dma_supported(rig.dev));
	assert_false(rdma_protocol_iwarp(rig.dev, 1));
	assert_true(rdma_ib_or_roce(rig.dev, 1));
}

static void objects__by_their_attributes(void **state)
{
	struct ib_cq_init_attr attr = { .cqe = 16 };
	struct ib_srq_init_attr srq_attr = { .attr = { .max_wr = 8, .max_sge = 1 },
					     .srq_type = IB_SRQT_BASIC };
	struct ib_pd *pd = rig_ok(ib_alloc_pd(rig.dev, 0));
	struct ib_cq *cq = rig_ok(ib_create_cq(rig.dev, NULL, NULL, &attr, &attr));
	struct ib_srq *srq = rig_ok(ib_create_srq(pd, &srq_attr));
	struct ib_qp_init_attr init = { .send_cq = cq,
					.recv_cq = cq,
					.srq = srq,
					.qp_type = IB_QPT_RC,
					.cap = { .max_send_wr = 4, .max_send_sge = 1 } }, back;
	struct ib_qp *qp = rig_ok(ib_create_qp(pd, &init));
	struct ib_qp_attr qp_attr;

	assert_true(cq->cqe >= 16);
	assert_ptr_equal(cq->cq_context, &attr);
	assert_int_equal(ib_query_qp(qp, &qp_attr, IB_QP_CAP, &back), 0);
	assert_true(back.cap.max_send_wr >= 4);
	assert_int_equal(ib_query_qp(qp, &qp_attr, IB_QP_CAP, NULL), -EINVAL);
	assert_int_equal(ib_destroy_qp(qp), 0);
	ib_destroy_srq(srq);
	ib_destroy_cq(cq);
	ib_dealloc_pd(pd);
	attr.flags = 1;
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, &attr)), -EOPNOTSUPP);
	attr = (struct ib_cq_init_attr){ .cqe = 1, .comp_vector = 0x80000000 };
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, &attr)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_cq(rig.dev, NULL, NULL, NULL, NULL)), -EINVAL);
	assert_int_equal(PTR_ERR(ib_create_srq(NULL, &srq_attr)), -EINVAL);
}

/* ---- the handler's lock, options ------------------------------------------------------------- */

static int refuse(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		rdma_reject(id, "no", 3, IB_CM_REJ_CONSUMER_DEFINED);
		return -1;
	}
	return 0;
}

static struct {
	char data[8];
	int resolved, routed, rejected;
} refused;

static int on_refusal(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	const void *data;
	u8 length;

	if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		count_add(&refused.resolved);
	if (event->event == RDMA_CM_EVENT_ROUTE_RESOLVED)
		count_add(&refused.routed);
	if (event->event != RDMA_CM_EVENT_REJECTED)
		return 0;
	data = rdma_consumer_reject_data(id, event, &length);
	if (data && length >= 3)
		memcpy(refused.data, data, 3);
	count_add(&refused.rejected);
	return 0;
}

/* The handler is not called while the lock is held, and the peer's reason is told after it. */
static void lock_handler__keeps_the_event_back(void **state)
{
	struct sockaddr_in to = rig_address();
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 0x123 };
	struct rdma_cm_id *id, *listener;

	listener = rig_ok(rdma_create_id(NULL, refuse, NULL, RDMA_PS_TCP, IB_QPT_RC));
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&to), 0);
	assert_int_equal(rdma_listen(listener, 4), 0);
	to.sin_port = ((struct sockaddr_in *)&listener->route.addr.src_addr)->sin_port;
	id = rig_ok(rdma_create_id(NULL, on_refusal, NULL, RDMA_PS_TCP, IB_QPT_RC));
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), 0);
	assert_true(rig_await(&refused.resolved, 1));
	assert_int_equal(rdma_resolve_route(id, 5000), 0);
	assert_true(rig_await(&refused.routed, 1));
	rdma_lock_handler(id);
	assert_int_equal(rdma_connect_locked(id, &param), 0);
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&refused.rejected), 0);
	rdma_unlock_handler(id);
	assert_true(rig_await(&refused.rejected, 1));
	assert_string_equal(refused.data, "no");
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
}

static void set_min_rnr_timer__takes_five_bits(void **state)
{
	struct rdma_cm_id *id = rig_ok(rdma_create_id(NULL, refuse, NULL, RDMA_PS_TCP, IB_QPT_RC));
	struct rdma_cm_id *ud = rig_ok(rdma_create_id(NULL, refuse, NULL, RDMA_PS_UDP, IB_QPT_UD));

	assert_int_equal(rdma_set_min_rnr_timer(id, 31), 0);
	assert_int_equal(rdma_set_min_rnr_timer(id, 32), -EINVAL);
	assert_int_equal(rdma_set_min_rnr_timer(ud, 1), -EINVAL);
	rdma_destroy_id(id);
	rdma_destroy_id(ud);
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
		cmocka_unit_test(names__are_all_there),
		cmocka_unit_test(msg__has_a_text_for_every_number),
		cmocka_unit_test(refused__what_no_device_has),
		cmocka_unit_test(objects__by_their_attributes),
		cmocka_unit_test(lock_handler__keeps_the_event_back),
		cmocka_unit_test(set_min_rnr_timer__takes_five_bits),
		cmocka_unit_test(attrs__say_what_the_device_can),
		cmocka_unit_test(names__of_objects_in_messages),
		cmocka_unit_test(ports__of_a_roce_adapter),
		cmocka_unit_test(signatures__have_linux_numbers),
	};

	return rig_run_tests(tests);
}
