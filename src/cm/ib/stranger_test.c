/* stranger_test.c: messages of a host that have nothing to do with the connection that they name.
 * Virtual time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { SERVICE = 0x1061234, CLIENT_QPN = 0x1111, SERVER_QPN = 0x2222, STRANGER_QPN = 0x3333 };
enum { CLIENT_HOST, SERVER_HOST, STRANGER };

/* A client on host 0, a listener on host 1 and the end of its last request. */
static struct net_trio trio;

static int stranger_open(void **state)
{
	(void)state;
	net_trio_open(&trio, 5, SERVICE);
	return 0;
}

static int stranger_close(void **state)
{
	(void)state;
	net_trio_close(&trio);
	return 0;
}

/* The client's REQ, which is on its way or lost. */
static struct cm_msg stranger_req(void)
{
	struct ib_sa_path_rec path = net_path(CLIENT_HOST, SERVER_HOST);
	struct ib_cm_req_param req = net_req(&path, SERVICE);
	struct cm_msg msg;

	req.qp_num = CLIENT_QPN;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
	assert_true(msg_unpack(&msg, net.last, CM_MAD_BYTES));
	return msg;
}

static void stranger_inject(u32 to, u32 from, const struct cm_msg *msg)
{
	u8 mad[CM_MAD_BYTES];

	msg_pack(msg, mad);
	net_inject(to, from, mad, sizeof(mad));
	net_run_for(NS_PER_MS);
}

/* ---- REQ ------------------------------------------------------------------------------------- */

static void req__came_another_way_than_its_path(void **state)
{
	static const u8 nobody[16] = { 0xfe, [15] = 99 };
	struct cm_msg msg;

	(void)state;
	net.cut = true;
	msg = stranger_req();
	net.cut = false;
	stranger_inject(SERVER_HOST, STRANGER, &msg); /* its path begins at the client */
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 0);
	memcpy(msg.req.primary.remote_gid, nobody, 16);
	stranger_inject(SERVER_HOST, CLIENT_HOST, &msg);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 0);
	assert_int_equal(cm_count(net.hosts[SERVER_HOST].cm, CM_DROP_SOURCE), 2);
}

/* Connects both, and returns the REQ as the stranger sends it, by its own path. */
static struct cm_msg stranger_connect(void)
{
	struct ib_cm_rep_param rep = { .qp_num = SERVER_QPN };
	struct cm_msg msg = stranger_req();

	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_rep(trio.server.id, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
	msg.tid++;
	memcpy(msg.req.primary.local_gid, net.hosts[STRANGER].gid.raw, 16);
	return msg;
}

/* The stranger's REQ becomes a request like any other, and the connection goes on. */
static void stranger_asks(const struct cm_msg *msg)
{
	struct ib_cm_id *connected = trio.server.id;
	u32 dreqs = net.sent[CM_DREQ];

	stranger_inject(SERVER_HOST, STRANGER, msg);
	assert_int_equal(connected->state, IB_CM_ESTABLISHED);
	assert_int_equal(net.sent[CM_DREQ], dreqs);
	assert_int_equal(cm_count(net.hosts[SERVER_HOST].cm, CM_STALE), 0);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 2);
	assert_ptr_not_equal(trio.server.id, connected);
	ib_destroy_cm_id(trio.server.id);
	trio.server.id = connected;
}

static void req__names_a_queue_pair_of_another_host(void **state)
{
	struct cm_msg msg = stranger_connect();

	(void)state;
	msg.req.local_id = 0x99;
	stranger_asks(&msg);
}

static void req__names_a_connection_of_another_host(void **state)
{
	struct cm_msg msg = stranger_connect();

	(void)state;
	msg.req.local_qpn = STRANGER_QPN;
	stranger_asks(&msg);
}

/* ---- what messages say of time --------------------------------------------------------------- */

/* The server gets the client's REQ, with these, and answers it. Nothing arrives from then on. */
static void stranger_names_times(u8 exponent, u8 retries)
{
	struct ib_cm_rep_param rep = { .qp_num = SERVER_QPN };
	struct cm_msg msg;

	net.cut = true;
	msg = stranger_req();
	msg.req.local_response_timeout = exponent;
	msg.req.max_cm_retries = retries;
	stranger_inject(SERVER_HOST, CLIENT_HOST, &msg);
	assert_int_equal(ib_send_cm_rep(trio.server.id, &rep), 0);
}

static void times__hold_a_server_for_minutes(void **state)
{
	(void)state;
	stranger_names_times(31, 15);
	net_run_for(CM_HOLD_NS + NS_PER_S);
	assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 1);
	assert_int_equal(net.sent[CM_REP], CM_HOLD_NS / CM_TIMEOUT_MAX_NS);
}

static void times__hold_as_long_as_a_fabric_needs(void **state)
{
	(void)state;
	stranger_names_times(22, 15);
	net_run_for(15 * cm_exponent_ns(22) + NS_PER_S);
	assert_int_equal(net.sent[CM_REP], 16);
	assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 0);
}

static void times__ask_for_an_answer_each_millisecond(void **state)
{
	(void)state;
	stranger_names_times(0, 15);
	net_run_for(5 * NS_PER_MS);
	assert_in_range(net.sent[CM_REP], 2, 6);
	net_run_for(NS_PER_S);
	assert_int_equal(net.sent[CM_REP], 16);
}

static void times__of_an_mra_hold_a_client_for_minutes(void **state)
{
	(void)state;
	(void)stranger_req();
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_mra(trio.server.id, 31, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.id->state, IB_CM_MRA_REQ_RCVD);
	assert_int_equal(net.sent[CM_REQ], 1);
	net_run_for(CM_HOLD_NS);
	assert_int_equal(net.sent[CM_REQ], 2);
}

/* Either end's timeout is the other's word: the client's in the REQ, the server's delay in the
 * REP. */
static void times__of_a_path_keep_nobody_in_timewait_for_long(void **state)
{
	struct ib_cm_rep_param rep = { .qp_num = SERVER_QPN };
	struct cm_msg msg;

	(void)state;
	net.hosts[SERVER_HOST].dev.ack_delay = 31;
	net.cut = true;
	msg = stranger_req();
	net.cut = false;
	msg.req.primary.local_ack_timeout = 31;
	stranger_inject(SERVER_HOST, CLIENT_HOST, &msg);
	assert_int_equal(ib_send_cm_rep(trio.server.id, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_dreq(trio.server.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_drep(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.id->state, IB_CM_TIMEWAIT);
	assert_int_equal(trio.server.id->state, IB_CM_TIMEWAIT);
	net_run_for(CM_TIMEWAIT_MAX_NS);
	assert_int_equal(trio.client.seen[IB_CM_TIMEWAIT_EXIT], 1);
	assert_int_equal(trio.server.seen[IB_CM_TIMEWAIT_EXIT], 1);
}

static void orphans__the_oldest_gives_way(void **state)
{
	struct cm *cm = net.hosts[SERVER_HOST].cm;
	u32 before = cm_id_count(cm);

	(void)state;
	cm->orphans_max = 2;
	for (u32 i = 0; i < 5; i++) {
		(void)stranger_connect();
		net.cut = true;
		ib_destroy_cm_id(trio.server.id);
		ib_destroy_cm_id(trio.client.id);
		net_run_for(NS_PER_MS);
		net.cut = false;
		trio.server.id = NULL;
		trio.client = net_end_create(CLIENT_HOST);
		net_end_bind(&trio.client);
	}
	assert_int_equal(cm_id_count(cm), before + 2);
}

/* ---- alternate paths ------------------------------------------------------------------------- */

/* The stranger's own REQ, whose alternate path is the client's. */
static struct cm_msg stranger_names_alternate(void)
{
	struct cm_msg msg;

	net.cut = true;
	msg = stranger_req();
	net.cut = false;
	memcpy(msg.req.primary.local_gid, net.hosts[STRANGER].gid.raw, 16);
	msg.req.alternate = msg.req.primary;
	memcpy(msg.req.alternate.local_gid, net.hosts[CLIENT_HOST].gid.raw, 16);
	return msg;
}

/* It has the numbers that the client's has, and comes first. */
static void alternate__keeps_no_request_of_its_host(void **state)
{
	struct cm_msg msg = stranger_names_alternate();
	struct ib_cm_id *first;

	(void)state;
	stranger_inject(SERVER_HOST, STRANGER, &msg);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 1);
	first = trio.server.id;
	net_run_for(60 * NS_PER_S); /* the client's REQ is repeated */
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 2);
	assert_int_equal(cm_count(net.hosts[SERVER_HOST].cm, CM_STALE), 0);
	ib_destroy_cm_id(first);
}

static int server_mask(enum ib_qp_state state)
{
	struct ib_qp_attr a = { .qp_state = state };
	int mask;

	assert_int_equal(ib_cm_init_qp_attr(trio.server.id, &a, &mask), 0);
	return mask;
}

static void alternate__of_a_request_leads_to_no_other_host(void **state)
{
	struct ib_cm_rep_param rep = { .qp_num = SERVER_QPN };
	struct cm_msg msg = stranger_names_alternate();

	(void)state;
	stranger_inject(SERVER_HOST, STRANGER, &msg);
	assert_null(trio.server.last.param.req_rcvd.alternate_path);
	assert_int_equal(server_mask(IB_QPS_RTR) & IB_QP_ALT_PATH, 0);
	assert_int_equal(cm_count(net.hosts[SERVER_HOST].cm, CM_DROP_SOURCE), 1);
	assert_int_equal(ib_send_cm_rep(trio.server.id, &rep), 0);
	assert_true(msg_unpack(&msg, net.last, CM_MAD_BYTES));
	assert_int_equal(msg.rep.failover_accepted, 2);
}

static void alternate__of_a_lap_leads_to_no_other_host(void **state)
{
	struct ib_sa_path_rec path = net_path(CLIENT_HOST, SERVER_HOST);
	struct cm_msg msg;

	(void)state;
	(void)stranger_connect();
	net.cut = true;
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net.cut = false;
	assert_true(msg_unpack(&msg, net.last, CM_MAD_BYTES));
	memcpy(msg.lap.alternate.local_gid, net.hosts[STRANGER].gid.raw, 16);
	stranger_inject(SERVER_HOST, CLIENT_HOST, &msg);
	assert_int_equal(trio.server.seen[IB_CM_LAP_RECEIVED], 0);
	assert_int_equal(trio.client.seen[IB_CM_APR_RECEIVED], 1);
	assert_int_equal(trio.client.last.param.apr_rcvd.ap_status, IB_CM_APR_INVALID_GID);
	/* another one may follow */
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_LAP_RECEIVED], 1);
}

static void alternate__of_a_lap_counts_once_accepted(void **state)
{
	struct ib_sa_path_rec path = net_path(CLIENT_HOST, SERVER_HOST);

	(void)state;
	(void)stranger_connect();
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(server_mask(IB_QPS_RTR) & IB_QP_ALT_PATH, 0);
	assert_int_equal(ib_cm_notify(trio.server.id, IB_EVENT_PATH_MIG), -EINVAL);
	assert_int_equal(ib_send_cm_apr(trio.server.id, IB_CM_APR_SUCCESS, NULL, 0, NULL, 0), 0);
	assert_int_equal(server_mask(IB_QPS_RTR) & IB_QP_ALT_PATH, IB_QP_ALT_PATH);
}

/* ---- messages of a connection ---------------------------------------------------------------- */

static void message__ends_no_connection_of_others(void **state)
{
	(void)state;
	(void)stranger_connect();
	const u32 theirs = be32toh(trio.client.id->local_id);
	const u32 ours = be32toh(trio.server.id->local_id);
	struct cm_msg forged[] = {
		{ .attr = CM_DREQ, .dreq = { .local_id = theirs, .remote_id = ours,
					     .remote_qpn = SERVER_QPN } },
		{ .attr = CM_REJ, .rej = { .local_id = theirs, .remote_id = ours,
					   .about = CM_ABOUT_OTHER,
					   .reason = IB_CM_REJ_CONSUMER_DEFINED } },
		{ .attr = CM_LAP, .lap = { .local_id = theirs, .remote_id = ours,
					   .remote_qpn = SERVER_QPN } },
	};
	static const enum ib_cm_event_type event[] = { IB_CM_DREQ_RECEIVED, IB_CM_REJ_RECEIVED,
						       IB_CM_LAP_RECEIVED };

	memcpy(forged[2].lap.alternate.local_gid, net.hosts[STRANGER].gid.raw, 16);
	memcpy(forged[2].lap.alternate.remote_gid, net.hosts[SERVER_HOST].gid.raw, 16);
	for (u32 i = 0; i < ARRAY_LEN(forged); i++) {
		stranger_inject(SERVER_HOST, STRANGER, &forged[i]);
		assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
		assert_int_equal(trio.server.seen[event[i]], 0);
		assert_int_equal(cm_count(net.hosts[SERVER_HOST].cm, CM_DROP_UNKNOWN), i + 1);
	}
}

/* The answer to a REQ comes from the port that was asked. */
static void message__answers_no_request_of_others(void **state)
{
	struct cm_msg req, rep;

	(void)state;
	req = stranger_req();
	memset(&rep, 0, sizeof(rep));
	rep.attr = CM_REP;
	rep.tid = req.tid;
	rep.rep.local_id = 0x99;
	rep.rep.remote_id = req.req.local_id;
	rep.rep.local_qpn = STRANGER_QPN;
	stranger_inject(CLIENT_HOST, STRANGER, &rep);
	assert_int_equal(trio.client.seen[IB_CM_REP_RECEIVED], 0);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 1);
}

int main(void)
{
#define STRANGER_TEST(test) cmocka_unit_test_setup_teardown(test, stranger_open, stranger_close)
	const struct CMUnitTest tests[] = {
		STRANGER_TEST(req__came_another_way_than_its_path),
		STRANGER_TEST(req__names_a_queue_pair_of_another_host),
		STRANGER_TEST(req__names_a_connection_of_another_host),
		STRANGER_TEST(times__hold_a_server_for_minutes),
		STRANGER_TEST(times__hold_as_long_as_a_fabric_needs),
		STRANGER_TEST(times__ask_for_an_answer_each_millisecond),
		STRANGER_TEST(times__of_an_mra_hold_a_client_for_minutes),
		STRANGER_TEST(times__of_a_path_keep_nobody_in_timewait_for_long),
		STRANGER_TEST(orphans__the_oldest_gives_way),
		STRANGER_TEST(alternate__keeps_no_request_of_its_host),
		STRANGER_TEST(alternate__of_a_request_leads_to_no_other_host),
		STRANGER_TEST(alternate__of_a_lap_leads_to_no_other_host),
		STRANGER_TEST(alternate__of_a_lap_counts_once_accepted),
		STRANGER_TEST(message__ends_no_connection_of_others),
		STRANGER_TEST(message__answers_no_request_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
