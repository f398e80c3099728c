/* rdma_test.c: ids of the RDMA CM as a kernel consumer has them: connections with queue pairs that
 * the CM leads through their states, and multicast groups.
 * In:    -    Out: -    Runs: the test's thread, the RDMA CM's
 */
#include "rig.h"

#include <arpa/inet.h>
#include <endian.h>
#include <rdma/rdma_cm_ib.h>

enum { BYTES = 100, EVENTS = 32 };

/* ---- connections ----------------------------------------------------------------------------- */

enum { SERVICE_PORT = 7450 };

/* How the queue pairs of a connection are made. */
static struct role {
	enum ib_qp_type type;
	bool srq;
	bool own;      /* by ib_create_qp, and through their states by rdma_init_qp_attr */
	bool no_depth; /* neither end reads */
} role;

/* One end of a connection. */
static struct side {
	struct rdma_cm_id *id;
	struct ib_qp *qp;
	struct ib_cq *scq, *rcq;
	struct ib_srq *srq;
	int events[EVENTS];	 /* by type */
	struct rdma_ud_param ud; /* of ESTABLISHED, of datagrams: the way to the peer */
} client, server;

static void side_to(struct side *s, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask;

	assert_int_equal(rdma_init_qp_attr(s->id, &attr, &mask), 0);
	assert_int_equal(ib_modify_qp(s->qp, &attr, mask), 0);
}

static void side_make_qp(struct side *s)
{
	struct ib_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ib_qp_init_attr init;

	s->scq = rig_cq(64);
	s->rcq = rig_cq(64);
	s->srq = role.srq ? rig_ok(ib_create_srq(rig.pd, &srq)) : NULL;
	init = rig_qp_init(role.type, s->scq, s->rcq, s->srq);
	if (role.own) {
		s->qp = rig_ok(ib_create_qp(rig.pd, &init));
		side_to(s, IB_QPS_INIT);
		return;
	}
	assert_int_equal(rdma_create_qp(s->id, rig.pd, &init), 0);
	s->qp = s->id->qp;
}

static struct rdma_conn_param side_param(struct side *s)
{
	u8 depth = role.no_depth ? 0 : 4;

	return (struct rdma_conn_param){ .responder_resources = depth,
					 .initiator_depth = depth,
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .qp_num = s->qp->qp_num,
					 .srq = s->srq != NULL };
}

static void side_accept(struct side *s, struct rdma_cm_id *id)
{
	struct rdma_conn_param param;

	s->id = id;
	side_make_qp(s);
	if (role.own && role.type != IB_QPT_UD) {
		side_to(s, IB_QPS_RTR);
		side_to(s, IB_QPS_RTS);
	}
	param = side_param(s);
	assert_int_equal(rdma_accept(id, &param), 0);
}

static int on_server(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		side_accept(&server, id);
	if (event->event == RDMA_CM_EVENT_DISCONNECTED) /* answers the peer, who has left */
		assert_int_equal(rdma_disconnect(id), 0);
	count_add(&server.events[event->event]);
	return 0;
}

static int on_client(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_CONNECT_RESPONSE) {
		side_to(&client, IB_QPS_INIT); /* with the connection's rights */
		side_to(&client, IB_QPS_RTR);
		side_to(&client, IB_QPS_RTS);
		assert_int_equal(rdma_accept(id, NULL), 0);
	}
	if (event->event == RDMA_CM_EVENT_ESTABLISHED)
		client.ud = event->param.ud;
	count_add(&client.events[event->event]);
	return 0;
}

static int side_access(struct side *s)
{
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;

	assert_int_equal(ib_query_qp(s->qp, &attr, IB_QP_ACCESS_FLAGS, &init), 0);
	return attr.qp_access_flags;
}

static void side_close(struct side *s)
{
	if (role.own)
		assert_int_equal(ib_destroy_qp(s->qp), 0);
	else
		rdma_destroy_qp(s->id);
	rdma_destroy_id(s->id);
	if (s->srq != NULL)
		assert_int_equal(ib_destroy_srq(s->srq), 0);
	assert_int_equal(ib_destroy_cq(s->scq), 0);
	assert_int_equal(ib_destroy_cq(s->rcq), 0);
}

/* What the handler does with an event, and what it has seen. */
static struct seen {
	int events[EVENTS]; /* by type */
	struct rdma_cm_event last;
	bool leaves;  /* the group of the event */
	bool refuses; /* the id: returns non-zero */
} seen;

static struct sockaddr *address(const char *text)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET };
	assert_int_equal(inet_pton(AF_INET, text, &sin.sin_addr), 1);
	return (struct sockaddr *)&sin;
}

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	bool refuses = seen.refuses;

	seen.last = *event;
	if (seen.leaves)
		rdma_leave_multicast(id, address("239.77.3.1"));
	count_add(&seen.events[event->event]);
	return refuses;
}

/* One of the loopback network that the device does not have binds none. */
static struct sockaddr *own_address(void)
{
	static struct sockaddr_in sin;

	sin = rig_address();
	return (struct sockaddr *)&sin;
}

static struct rdma_cm_id *bound(enum ib_qp_type type)
{
	struct rdma_cm_id *id;

	memset(&seen, 0, sizeof(seen));
	id = rig_ok(rdma_create_id(on_event, NULL, type == IB_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP,
				   type));
	assert_int_equal(rdma_bind_addr(id, own_address()), 0);
	return id;
}

static int join(struct rdma_cm_id *id, const char *group)
{
	return rdma_join_multicast(id, address(group), IB_SA_FULL_MEMBER, &seen);
}

static void join_and_wait(struct rdma_cm_id *id, const char *group)
{
	int before = count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]);

	assert_int_equal(join(id, group), 0);
	assert_true(rig_await(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN], before + 1));
}

/* The event's address vector leads to the queue pairs that are attached to its group. */
static void rdma_join_multicast__says_the_way_to_the_group(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);
	struct ib_cq *cq = rig_cq(16);
	struct ib_qp *qp = rig_qp(IB_QPT_UD, cq, cq, NULL);
	struct ib_wc wc[2];
	struct ib_ah *ah;

	join_and_wait(id, "239.77.3.1");
	assert_int_equal(seen.last.status, 0);
	assert_ptr_equal(seen.last.param.ud.private_data, &seen);
	assert_int_equal(seen.last.param.ud.qp_num, IB_MULTICAST_QPN);
	assert_int_equal(seen.last.param.ud.qkey, RDMA_UDP_QKEY);
	rig_connect(qp, &rig.gid, 0);
	assert_int_equal(ib_attach_mcast(qp, &seen.last.param.ud.ah_attr.grh.dgid, 0), 0);
	ah = rig_ok(ib_create_ah(rig.pd, &seen.last.param.ud.ah_attr));
	rig_recv(qp, 1, RIG_PAGE, 2 * BYTES);
	rig_datagram(qp, ah, IB_MULTICAST_QPN, 0, BYTES);
	assert_int_equal(rig_poll(cq, 2, wc, RIG_WAIT_MS), 2);
	assert_int_equal(wc[0].status | wc[1].status, IB_WC_SUCCESS);
	assert_int_equal(ib_detach_mcast(qp, &seen.last.param.ud.ah_attr.grh.dgid, 0), 0);
	assert_int_equal(ib_destroy_ah(ah), 0);
	assert_int_equal(ib_destroy_qp(qp), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
	rdma_destroy_id(id);
}

static void rdma_join_multicast__refuses_what_it_cannot_join(void **state)
{
	struct ib_cq *cq = rig_cq(4);
	struct ib_qp_init_attr init = rig_qp_init(IB_QPT_UD, cq, cq, NULL);
	struct rdma_cm_id *id = bound(IB_QPT_RC);

	assert_int_equal(join(id, "239.77.3.1"), -EINVAL);
	rdma_destroy_id(id);
	id = bound(IB_QPT_UD);
	assert_int_equal(join(id, "198.51.100.7"), -EINVAL);
	assert_int_equal(rdma_join_multicast(id, address("239.77.3.1"), 0, NULL), -EINVAL);
	assert_int_equal(rdma_create_qp(id, rig.pd, &init), 0);
	assert_int_equal(join(id, "239.77.3.1"), -EINVAL);
	rdma_destroy_qp(id);
	join_and_wait(id, "239.77.3.1");
	rdma_destroy_id(id);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

/* After it returns nothing is told. */
static void rdma_leave_multicast__while_the_join_is_under_way(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);
	int told;

	for (int i = 0; i < 200; i++) {
		assert_int_equal(join(id, "239.77.3.1"), 0);
		rdma_leave_multicast(id, address("239.77.3.1"));
		told = count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]);
		if (i % 50 == 0)
			rig_sleep_ms(RIG_QUIET_MS);
		assert_int_equal(count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]), told);
	}
	rdma_leave_multicast(id, address("239.77.3.1"));
	rdma_destroy_id(id);
}

static void rdma_leave_multicast__from_the_handler_of_its_event(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);

	seen.leaves = true;
	for (int i = 0; i < 20; i++)
		join_and_wait(id, "239.77.3.1");
	rdma_destroy_id(id);
}

static void rdma_destroy_id__with_groups_joined_and_under_way(void **state)
{
	struct rdma_cm_id *id;
	int told;

	for (int i = 0; i < 100; i++) {
		id = bound(IB_QPT_UD);
		join_and_wait(id, "239.77.3.1");
		assert_int_equal(join(id, "239.77.3.2"), 0);
		assert_int_equal(join(id, "239.77.3.2"), 0);
		rdma_destroy_id(id);
		told = count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]);
		if (i % 25 == 0)
			rig_sleep_ms(RIG_QUIET_MS);
		assert_int_equal(count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]), told);
	}
}

/* A handler that returns non-zero ends the id, and with it the groups that nobody was told of. */
static void rdma_join_multicast__ends_the_id_that_refuses(void **state)
{
	struct rdma_cm_id *id = bound(IB_QPT_UD);

	seen.refuses = true;
	assert_int_equal(join(id, "239.77.3.1"), 0);
	assert_true(rig_await(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN], 1));
	rig_sleep_ms(RIG_QUIET_MS);
	assert_int_equal(count_get(&seen.events[RDMA_CM_EVENT_MULTICAST_JOIN]), 1);
}

static struct sockaddr *service_address(void)
{
	struct sockaddr *address = own_address();

	((struct sockaddr_in *)address)->sin_port = htobe16(SERVICE_PORT);
	return address;
}

static struct rdma_cm_id *connect_both(void)
{
	enum rdma_port_space ps = role.type == IB_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	struct rdma_cm_id *listener = rig_ok(rdma_create_id(on_server, NULL, ps, role.type));
	struct rdma_conn_param param;

	memset(&client, 0, sizeof(client));
	memset(&server, 0, sizeof(server));
	assert_int_equal(rdma_bind_addr(listener, service_address()), 0);
	assert_int_equal(rdma_listen(listener, 4), 0);
	client.id = rig_ok(rdma_create_id(on_client, NULL, ps, role.type));
	assert_int_equal(rdma_resolve_addr(client.id, NULL, service_address(), RIG_WAIT_MS), 0);
	assert_true(rig_await(&client.events[RDMA_CM_EVENT_ADDR_RESOLVED], 1));
	assert_int_equal(rdma_resolve_route(client.id, RIG_WAIT_MS), 0);
	assert_true(rig_await(&client.events[RDMA_CM_EVENT_ROUTE_RESOLVED], 1));
	side_make_qp(&client);
	param = side_param(&client);
	assert_int_equal(rdma_connect(client.id, &param), 0);
	assert_true(rig_await(
		&client.events[role.own && role.type == IB_QPT_RC ? RDMA_CM_EVENT_CONNECT_RESPONSE
								  : RDMA_CM_EVENT_ESTABLISHED],
		1));
	if (role.type == IB_QPT_RC)
		assert_true(rig_await(&server.events[RDMA_CM_EVENT_ESTABLISHED], 1));
	return listener;
}

static void side_recv(struct side *s)
{
	struct ib_sge sge = rig_sge(4 * RIG_PAGE, BYTES);
	struct ib_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	if (s->srq != NULL)
		assert_int_equal(ib_post_srq_recv(s->srq, &wr, &bad), 0);
	else
		assert_int_equal(ib_post_recv(s->qp, &wr, &bad), 0);
}

static void side_atomic(struct side *s, enum ib_wr_opcode opcode)
{
	struct ib_sge sge = rig_sge(RIG_PAGE, 8);
	struct ib_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IB_SEND_SIGNALED
	};

	wr.wr.atomic.remote_addr = (uintptr_t)rig.buf + 2 * RIG_PAGE;
	wr.wr.atomic.compare_add = 1;
	wr.wr.atomic.rkey = rig.mr->rkey;
	rig_send(s->qp, &wr);
	rig_expect(s->scq, IB_WC_SUCCESS);
}

/* Each kind of request that a connection carries. */
static void side_speaks(struct side *s, struct side *peer)
{
	static const enum ib_wr_opcode reaches[] = { IB_WR_RDMA_WRITE, IB_WR_RDMA_READ };

	side_recv(peer);
	rig_send_bytes(s->qp, 1, 0, BYTES, IB_SEND_SIGNALED);
	rig_expect(s->scq, IB_WC_SUCCESS);
	rig_expect(peer->rcq, IB_WC_SUCCESS);
	for (u32 i = 0; i < sizeof(reaches) / sizeof(reaches[0]); i++) {
		rig_reach(s->qp, reaches[i], 0, (uintptr_t)rig.buf + 2 * RIG_PAGE, rig.mr->rkey,
			  BYTES);
		rig_expect(s->scq, IB_WC_SUCCESS);
	}
	side_atomic(s, IB_WR_ATOMIC_FETCH_AND_ADD);
	side_atomic(s, IB_WR_ATOMIC_CMP_AND_SWP);
}

static void connection_speaks(struct role how)
{
	struct rdma_cm_id *listener;

	role = how;
	listener = connect_both();
	side_speaks(&client, &server);
	side_speaks(&server, &client);
	assert_int_equal(rdma_disconnect(client.id), 0);
	assert_true(rig_await(&server.events[RDMA_CM_EVENT_DISCONNECTED], 1));
	assert_true(rig_await(&client.events[RDMA_CM_EVENT_DISCONNECTED], 1));
	side_close(&client);
	side_close(&server);
	rdma_destroy_id(listener);
}

/* rdma_create_qp gives the peer no rights; the connection does. */
static void rdma_create_qp__reads_writes_and_atomics_of_both_ends(void **state)
{
	connection_speaks((struct role){ .type = IB_QPT_RC });
}

static void rdma_create_qp__with_an_srq(void **state)
{
	connection_speaks((struct role){ .type = IB_QPT_RC, .srq = true });
}

static void rdma_init_qp_attr__of_the_consumers_own_queue_pair(void **state)
{
	connection_speaks((struct role){ .type = IB_QPT_RC, .own = true });
	connection_speaks((struct role){ .type = IB_QPT_RC, .own = true, .srq = true });
}

/* A peer that asks for no READs may do none. */
static void rdma_connect__with_no_depth_gives_no_right_to_read(void **state)
{
	struct rdma_cm_id *listener;

	role = (struct role){ .type = IB_QPT_RC, .no_depth = true };
	listener = connect_both();
	rig_reach(client.qp, IB_WR_RDMA_WRITE, 0, (uintptr_t)rig.buf + 2 * RIG_PAGE, rig.mr->rkey,
		  BYTES);
	rig_expect(client.scq, IB_WC_SUCCESS);
	assert_int_not_equal(side_access(&server) & IB_ACCESS_REMOTE_WRITE, 0);
	assert_int_equal(side_access(&server) & (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC),
			 0);
	side_close(&client);
	side_close(&server);
	rdma_destroy_id(listener);
}

static void rdma_create_qp__datagrams_to_the_peer(void **state)
{
	struct ib_sge sge = rig_sge(0, BYTES);
	struct rdma_cm_id *listener;
	struct ib_send_wr send;
	struct ib_ah *ah;

	role = (struct role){ .type = IB_QPT_UD };
	listener = connect_both();
	rig_recv(server.qp, 1, 4 * RIG_PAGE, RIG_PAGE);
	ah = rig_ok(ib_create_ah(rig.pd, &client.ud.ah_attr));
	send = (struct ib_send_wr){
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = client.ud.qp_num, .remote_qkey = client.ud.qkey }
	};
	rig_send(client.qp, &send);
	rig_expect(client.scq, IB_WC_SUCCESS);
	rig_expect(server.rcq, IB_WC_SUCCESS);
	assert_int_equal(ib_destroy_ah(ah), 0);
	side_close(&client);
	side_close(&server);
	rdma_destroy_id(listener);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rdma_create_qp__reads_writes_and_atomics_of_both_ends),
		cmocka_unit_test(rdma_create_qp__with_an_srq),
		cmocka_unit_test(rdma_init_qp_attr__of_the_consumers_own_queue_pair),
		cmocka_unit_test(rdma_connect__with_no_depth_gives_no_right_to_read),
		cmocka_unit_test(rdma_create_qp__datagrams_to_the_peer),
		cmocka_unit_test(rdma_join_multicast__says_the_way_to_the_group),
		cmocka_unit_test(rdma_join_multicast__refuses_what_it_cannot_join),
		cmocka_unit_test(rdma_leave_multicast__while_the_join_is_under_way),
		cmocka_unit_test(rdma_leave_multicast__from_the_handler_of_its_event),
		cmocka_unit_test(rdma_destroy_id__with_groups_joined_and_under_way),
		cmocka_unit_test(rdma_join_multicast__ends_the_id_that_refuses),
	};

	return rig_run(tests, sizeof(tests) / sizeof(tests[0]), NULL);
}
