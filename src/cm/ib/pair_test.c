/* pair_test.c: two ends of a connection, step by step, in virtual time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { SERVICE = 0x1061234 };

/* A client on host 0, a listener on host 1 and the end that its request makes. */
static struct net_trio trio;

static int pair_open(void **state)
{
	(void)state;
	net_trio_open(&trio, 7, SERVICE);
	return 0;
}

static int pair_close(void **state)
{
	(void)state;
	net_trio_close(&trio);
	return 0;
}

static void pair_ask(void)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_req_param req = net_req(&path, SERVICE);

	req.qp_num = 0x1111;
	req.private_data = "hello";
	req.private_data_len = 5;
	req.ece = (struct ib_cm_ece){ .vendor_id = 0x123456, .attr_mod = 77 };
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
}

static int pair_answer(void)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x2222,
				       .starting_psn = 0x654321,
				       .private_data = "welcome",
				       .private_data_len = 7,
				       .responder_resources = 2,
				       .initiator_depth = 1,
				       .rnr_retry_count = 5,
				       .srq = 1,
				       .ece = { .vendor_id = 0xabcdef, .attr_mod = 99 } };

	return ib_send_cm_rep(trio.server.id, &rep);
}

static void pair_connect(void)
{
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, "go", 2), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.id->state, IB_CM_ESTABLISHED);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
}

/* ---- making a connection --------------------------------------------------------------------- */

static void connect__each_end_gets_what_the_other_said(void **state)
{
	const struct ib_cm_req_event_param *q = &trio.server.last.param.req_rcvd;
	const struct ib_cm_rep_event_param *p = &trio.client.last.param.rep_rcvd;

	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.total, 1);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 1);
	assert_ptr_equal(q->listen_id, trio.listener.id);
	assert_int_equal(q->port, 1);
	assert_int_equal(be64toh(q->remote_ca_guid), 0x1000);
	assert_int_equal(q->remote_qpn, 0x1111);
	assert_int_equal(q->qp_type, IB_QPT_RC);
	assert_int_equal(q->starting_psn, 0x123456);
	assert_int_equal(q->responder_resources, 3);
	assert_int_equal(q->initiator_depth, 4);
	assert_int_equal(q->retry_count, 7);
	assert_int_equal(q->rnr_retry_count, 6);
	assert_int_equal(q->ece.vendor_id, 0x123456);
	assert_int_equal(q->ece.attr_mod, 77);
	assert_memory_equal(&trio.server.primary.sgid, &net.hosts[1].gid, 16);
	assert_memory_equal(&trio.server.primary.dgid, &net.hosts[0].gid, 16);
	assert_int_equal(trio.server.primary.mtu, IB_MTU_1024);
	assert_int_equal(trio.server.primary.packet_life_time, 10);
	assert_int_equal(be16toh(trio.server.primary.pkey), 0xffff);
	assert_memory_equal(trio.server.private_data, "hello\0", 6);
	assert_int_equal(trio.server.last.private_data_len, IB_CM_REQ_PRIVATE_DATA_SIZE);
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REP_RECEIVED], 1);
	assert_int_equal(p->remote_qpn, 0x2222);
	assert_int_equal(p->starting_psn, 0x654321);
	assert_int_equal(p->responder_resources, 1);
	assert_int_equal(p->initiator_depth, 2);
	assert_int_equal(p->rnr_retry_count, 5);
	assert_int_equal(p->srq, 1);
	assert_int_equal(p->ece.vendor_id, 0xabcdef);
	assert_int_equal(p->ece.attr_mod, 99);
	assert_memory_equal(trio.client.private_data, "welcome\0", 8);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, "go", 2), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_RTU_RECEIVED], 1);
	assert_memory_equal(trio.server.private_data, "go\0", 3);
	assert_int_equal(trio.client.id->remote_id, trio.server.id->local_id);
	assert_int_equal(trio.server.id->remote_id, trio.client.id->local_id);
	assert_int_equal(be32toh(trio.server.id->local_id) >> CM_ID_BITS, 2);
}

static void connect__attributes_of_both_queue_pairs(void **state)
{
	struct ib_qp_attr a = { .qp_state = IB_QPS_INIT };
	int mask = 0;

	(void)state;
	assert_int_equal(ib_cm_init_qp_attr(trio.client.id, &a, &mask), -EINVAL);
	pair_connect();
	assert_int_equal(ib_cm_init_qp_attr(trio.server.id, &a, &mask), 0);
	assert_int_equal(mask, IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT);
	assert_int_equal(a.pkey_index, NET_PKEY_INDEX);
	assert_int_equal(a.port_num, 1);
	a.qp_state = IB_QPS_RTR;
	assert_int_equal(ib_cm_init_qp_attr(trio.client.id, &a, &mask), 0);
	assert_int_equal(mask, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
				       IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
				       IB_QP_MIN_RNR_TIMER);
	assert_int_equal(a.dest_qp_num, 0x2222);
	assert_int_equal(a.rq_psn, 0x123456);
	assert_int_equal(a.path_mtu, IB_MTU_1024);
	assert_int_equal(a.max_dest_rd_atomic, 1);
	assert_memory_equal(&a.ah_attr.grh.dgid, &net.hosts[1].gid, 16);
	assert_int_equal(a.ah_attr.grh.hop_limit, 64);
	a.qp_state = IB_QPS_RTS;
	assert_int_equal(ib_cm_init_qp_attr(trio.client.id, &a, &mask), 0);
	assert_int_equal(a.sq_psn, 0x654321);
	assert_int_equal(a.max_rd_atomic, 2);
	assert_int_equal(a.retry_cnt, 7);
	assert_int_equal(a.rnr_retry, 5);
	assert_int_equal(a.timeout, 11);
	assert_int_equal(ib_cm_init_qp_attr(trio.server.id, &a, &mask), 0);
	assert_int_equal(a.sq_psn, 0x123456);
	assert_int_equal(a.max_rd_atomic, 1);
	assert_int_equal(a.rnr_retry, 6);
	a.qp_state = IB_QPS_RTR;
	assert_int_equal(ib_cm_init_qp_attr(trio.server.id, &a, &mask), 0);
	assert_int_equal(a.rq_psn, 0x654321);
	assert_int_equal(a.dest_qp_num, 0x1111);
	a.qp_state = IB_QPS_ERR;
	assert_int_equal(ib_cm_init_qp_attr(trio.server.id, &a, &mask), -EINVAL);
}

/* Each message lost once or twice: it is sent again and taken once. */
static void connect__lost_messages(void **state)
{
	static const enum cm_attr lost[] = { CM_REQ, CM_REP, CM_RTU };

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(lost); i++) {
		memset(net.sent, 0, sizeof(net.sent));
		memset(trio.server.seen, 0, sizeof(trio.server.seen));
		memset(trio.client.seen, 0, sizeof(trio.client.seen));
		net.drop_attr = lost[i];
		net.drop_count = 2;
		pair_ask();
		net_run_for(NS_PER_S / 5);
		assert_int_equal(pair_answer(), 0);
		net_run_for(NS_PER_S / 5);
		assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
		net_run_for(NS_PER_S / 5);
		assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
		assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 1);
		assert_int_equal(trio.server.seen[IB_CM_RTU_RECEIVED], 1);
		assert_int_equal(trio.client.seen[IB_CM_REP_RECEIVED], 1);
		assert_true(net.sent[lost[i]] >= 3);
		ib_destroy_cm_id(trio.server.id);
		ib_destroy_cm_id(trio.client.id);
		net_run_for(NS_PER_S);
		trio.client = net_end_create(0);
		net_end_bind(&trio.client);
	}
	trio.server.id = NULL;
}

static void connect__no_answer_ends_after_all_retries(void **state)
{
	u64 one = (4096ull << 13) + (4096ull << 11);

	(void)state;
	net.cut = true;
	pair_ask();
	net_run_for(16 * one - NS_PER_MS);
	assert_int_equal(trio.client.total, 0);
	net_run_for(2 * NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REQ_ERROR], 1);
	assert_int_equal(trio.client.last.param.send_status, IB_WC_RESP_TIMEOUT_ERR);
	assert_int_equal(net.sent[CM_REQ], 16);
	assert_int_equal(trio.client.id->state, IB_CM_IDLE);
	net.cut = false;
	pair_connect(); /* the id may be used again */
}

static void connect__no_rtu_ends_after_all_retries(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	net.cut = true;
	assert_int_equal(pair_answer(), 0);
	net_run_for(16 * (4096ull << 13) + NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 1);
	assert_int_equal(net.sent[CM_REP], 16);
	assert_int_equal(trio.server.id->state, IB_CM_IDLE);
}

/* Timeout and retries of the REQ do not count: 0 and 31 stand for 4 us and 2 hours. */
static void connect__a_brief_answer_is_sent_four_times_in_four_seconds(void **state)
{
	static const u8 timeouts[] = { 0, 13, 31 };

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(timeouts); i++) {
		struct ib_sa_path_rec path = net_path(0, 1);
		struct ib_cm_req_param req = net_req(&path, SERVICE);

		memset(net.sent, 0, sizeof(net.sent));
		memset(trio.server.seen, 0, sizeof(trio.server.seen));
		req.local_cm_response_timeout = timeouts[i];
		req.qp_num = 0x1111 + i;
		assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
		net_run_for(NS_PER_MS);
		net.cut = true;
		cm_answer_briefly(trio.server.id);
		assert_int_equal(pair_answer(), 0);
		net_run_for(4 * NS_PER_S - NS_PER_MS);
		assert_int_equal(net.sent[CM_REP], 4);
		assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 0);
		net_run_for(2 * NS_PER_MS);
		assert_int_equal(net.sent[CM_REP], 4);
		assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 1);
		net.cut = false;
		ib_destroy_cm_id(trio.server.id);
		ib_destroy_cm_id(trio.client.id);
		net_run_for(NS_PER_S);
		trio.client = net_end_create(0);
		net_end_bind(&trio.client);
	}
	trio.server.id = NULL;
}

static void connect__first_data_before_the_rtu(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_cm_notify(trio.server.id, IB_EVENT_COMM_EST), -EINVAL);
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_MS);
	net.drop_attr = CM_RTU;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	assert_int_equal(ib_cm_notify(trio.server.id, IB_EVENT_COMM_EST), 0);
	assert_int_equal(ib_cm_notify(trio.server.id, IB_EVENT_COMM_EST), -EISCONN);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.server.seen[IB_CM_USER_ESTABLISHED], 1);
	assert_int_equal(net.sent[CM_REP], 1);
}

static void connect__calls_out_of_turn(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1), wrong = net_path(1, 0);
	struct ib_cm_req_param req = net_req(&path, SERVICE);
	u8 data[256] = { 0 };

	(void)state;
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), -EINVAL);
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), -EINVAL);
	assert_int_equal(ib_send_cm_drep(trio.client.id, NULL, 0), -EINVAL);
	assert_int_equal(ib_send_cm_mra(trio.client.id, 10, NULL, 0), -EINVAL);
	assert_int_equal(ib_send_cm_rej(trio.client.id, IB_CM_REJ_NO_QP, NULL, 0, NULL, 0),
			 -EINVAL);
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), -EINVAL);
	req.private_data = data;
	req.private_data_len = IB_CM_REQ_PRIVATE_DATA_SIZE + 1;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), -EINVAL);
	req.private_data_len = IB_CM_REQ_PRIVATE_DATA_SIZE;
	req.primary_path = &wrong; /* the GID is not this device's */
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), -EINVAL);
	req.primary_path = &path;
	req.qp_type = IB_QPT_UD;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), -EINVAL);
	req.qp_type = IB_QPT_UC;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), -EINVAL);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.last.param.req_rcvd.qp_type, IB_QPT_UC);
	assert_int_equal(pair_answer(), 0);
	assert_int_equal(pair_answer(), -EINVAL);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, data, 225), -EINVAL);
}

/* ---- rejecting ------------------------------------------------------------------------------- */

static void reject__reason_information_and_private_data_arrive(void **state)
{
	u8 ari[72] = { 1, 2, 3 };

	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(
		ib_send_cm_rej(trio.server.id, IB_CM_REJ_CONSUMER_DEFINED, ari, 3, "no", 2), 0);
	assert_int_equal(trio.server.id->state, IB_CM_IDLE);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.client.last.param.rej_rcvd.reason, IB_CM_REJ_CONSUMER_DEFINED);
	assert_int_equal(trio.client.last.param.rej_rcvd.ari_length, 3);
	assert_memory_equal(trio.client.info, ari, 4);
	assert_memory_equal(trio.client.private_data, "no\0", 3);
	assert_int_equal(trio.client.id->state, IB_CM_IDLE);
}

static void reject__nobody_listens(void **state)
{
	(void)state;
	ib_destroy_cm_id(trio.listener.id);
	trio.listener.id = NULL;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.rej_rcvd.reason, IB_CM_REJ_INVALID_SERVICE_ID);
}

static void reject__of_a_rep(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(
		ib_send_cm_rej(trio.client.id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.server.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 0);
	assert_int_equal(trio.server.id->state, IB_CM_IDLE);
}

static void reject__a_withdrawn_req(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	ib_destroy_cm_id(trio.client.id);
	trio.client.id = NULL;
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.server.last.param.rej_rcvd.reason, IB_CM_REJ_TIMEOUT);
	assert_int_equal(trio.server.id->state, IB_CM_IDLE);
	assert_int_equal(pair_answer(), -EINVAL);
}

/* The REJ of the withdrawal is lost: the REP finds nobody. */
static void reject__a_rep_for_nobody(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	net.cut = true;
	ib_destroy_cm_id(trio.client.id);
	trio.client.id = NULL;
	net.cut = false;
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.server.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.server.last.param.rej_rcvd.reason, IB_CM_REJ_INVALID_COMM_ID);
}

/* ---- more time ------------------------------------------------------------------------------- */

static void mra__holds_the_retries(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_mra(trio.server.id, 20, "wait", 4), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_MRA_RECEIVED], 1);
	assert_int_equal(trio.client.last.param.mra_rcvd.service_timeout, 20);
	assert_int_equal(trio.client.id->state, IB_CM_MRA_REQ_RCVD);
	net_run_for(4 * NS_PER_S);
	assert_int_equal(net.sent[CM_REQ], 1);
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_mra(trio.client.id, 18, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(net.sent[CM_REP], 1);
	assert_int_equal(trio.server.seen[IB_CM_MRA_RECEIVED], 1);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
}

static void mra__delayed_until_the_message_comes_again(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_mra(trio.server.id, IB_CM_MRA_FLAG_DELAY | 20, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(net.sent[CM_MRA], 0);
	net_run_for(NS_PER_S);
	assert_int_equal(net.sent[CM_REQ], 2);
	assert_int_equal(net.sent[CM_MRA], 1);
	assert_int_equal(trio.client.seen[IB_CM_MRA_RECEIVED], 1);
}

/* The client's consumer takes its time with the REP. */
static void mra__delayed_until_the_rep_comes_again(void **state)
{
	(void)state;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(pair_answer(), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_mra(trio.client.id, IB_CM_MRA_FLAG_DELAY | 24, NULL, 0), 0);
	assert_int_equal(trio.client.id->state, IB_CM_MRA_REP_SENT);
	net_run_for(NS_PER_MS);
	assert_int_equal(net.sent[CM_MRA], 0);
	/* longer than all of the server's tries */
	net_run_for(10 * NS_PER_S);
	assert_int_equal(net.sent[CM_REP], 2);
	assert_int_equal(net.sent[CM_MRA], 1);
	assert_int_equal(trio.server.seen[IB_CM_MRA_RECEIVED], 1);
	assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 0);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
	assert_int_equal(trio.client.id->state, IB_CM_ESTABLISHED);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void leave__both_learn_and_timewait_ends(void **state)
{
	(void)state;
	pair_connect();
	assert_int_equal(ib_send_cm_dreq(trio.client.id, "bye", 3), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_DREQ_RECEIVED], 1);
	assert_memory_equal(trio.server.private_data, "bye\0", 4);
	assert_int_equal(ib_send_cm_drep(trio.server.id, "fine", 4), 0);
	assert_int_equal(trio.server.id->state, IB_CM_TIMEWAIT);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_DREP_RECEIVED], 1);
	assert_int_equal(trio.client.id->state, IB_CM_TIMEWAIT);
	assert_int_equal(trio.client.seen[IB_CM_TIMEWAIT_EXIT], 0);
	net_run_for(4096ull << 11);
	assert_int_equal(trio.client.seen[IB_CM_TIMEWAIT_EXIT], 1);
	assert_int_equal(trio.server.seen[IB_CM_TIMEWAIT_EXIT], 1);
	assert_int_equal(trio.client.id->state, IB_CM_IDLE);
}

static void leave__lost_drep_is_sent_again(void **state)
{
	(void)state;
	pair_connect();
	net.drop_attr = CM_DREP;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	net_run_for(30 * NS_PER_MS); /* the DREQ comes again after 42 ms */
	trio.server.id->context = &trio.server;
	assert_int_equal(ib_send_cm_drep(trio.server.id, "again", 5), 0);
	net_run_for(NS_PER_S);
	/* timewait had ended: answered for nobody */
	assert_int_equal(trio.client.seen[IB_CM_DREP_RECEIVED], 1);
	assert_int_equal(trio.server.seen[IB_CM_DREQ_RECEIVED], 1);
}

static void leave__both_at_once(void **state)
{
	(void)state;
	pair_connect();
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	assert_int_equal(ib_send_cm_dreq(trio.server.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_DREQ_RECEIVED], 1);
	assert_int_equal(trio.server.seen[IB_CM_DREQ_RECEIVED], 1);
	assert_int_equal(ib_send_cm_drep(trio.client.id, NULL, 0), 0);
	assert_int_equal(ib_send_cm_drep(trio.server.id, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_TIMEWAIT_EXIT], 1);
	assert_int_equal(trio.server.seen[IB_CM_TIMEWAIT_EXIT], 1);
}

static void leave__nobody_answers(void **state)
{
	(void)state;
	pair_connect();
	net.cut = true;
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	net_run_for(5 * NS_PER_S);
	assert_int_equal(net.sent[CM_DREQ], 16);
	assert_int_equal(trio.client.seen[IB_CM_DREQ_ERROR], 1);
	assert_int_equal(trio.client.seen[IB_CM_TIMEWAIT_EXIT], 1);
}

/* The id is gone, but its DREQ is repeated, and its timewait answers. */
static void leave__a_destroyed_id_still_tells_the_peer(void **state)
{
	(void)state;
	pair_connect();
	net.drop_attr = CM_DREQ;
	net.drop_count = 3;
	ib_destroy_cm_id(trio.client.id);
	trio.client.id = NULL;
	net_run_for(NS_PER_S);
	assert_int_equal(trio.server.seen[IB_CM_DREQ_RECEIVED], 1);
	assert_int_equal(trio.client.total, 1); /* the REP only */
	assert_int_equal(ib_send_cm_drep(trio.server.id, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(cm_id_count(net.hosts[0].cm), 0);
}

static void leave__a_dreq_for_another_queue_pair_or_id(void **state)
{
	u8 dreq[CM_MAD_BYTES];

	(void)state;
	pair_connect();
	net.drop_attr = CM_DREQ;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	memcpy(dreq, net.last, sizeof(dreq));
	dreq[CM_MAD_HEADER + 8] ^= 1; /* the QPN */
	net_inject(1, 0, dreq, sizeof(dreq));
	dreq[CM_MAD_HEADER + 8] ^= 1;
	dreq[CM_MAD_HEADER + 3] ^= 1; /* the sender's ID */
	memset(net.sent, 0, sizeof(net.sent));
	net_inject(1, 0, dreq, sizeof(dreq));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
	assert_int_equal(net.sent[CM_DREP], 1); /* who asks for an unknown ID need not wait */
	net_run_for(NS_PER_S / 20);
	assert_int_equal(trio.server.id->state, IB_CM_DREQ_RCVD);
}

/* ---- listening ------------------------------------------------------------------------------- */

static void listen__one_for_each_service(void **state)
{
	struct net_end other = net_end_create(1), range = net_end_create(1);
	struct ib_cm_compare_data a = { .data = { 'a' }, .mask = { 0xff } };
	struct ib_cm_compare_data h = { .data = { 'h' }, .mask = { 0xff } };

	(void)state;
	assert_int_equal(ib_cm_listen(other.id, htobe64(SERVICE), 0, NULL), -EBUSY);
	assert_int_equal(ib_cm_listen(other.id, htobe64(SERVICE), 0, &a), -EBUSY);
	assert_int_equal(ib_cm_listen(range.id, htobe64(SERVICE & ~0xff), htobe64(~0xffull), NULL),
			 -EBUSY);
	assert_int_equal(ib_cm_listen(other.id, IB_CM_ASSIGN_SERVICE_ID, 0, NULL), 0);
	assert_int_equal(other.id->service_id & IB_SERVICE_ID_AGN_MASK, IB_CM_ASSIGN_SERVICE_ID);
	assert_int_equal(ib_cm_listen(other.id, htobe64(SERVICE + 1), 0, NULL), -EINVAL);
	ib_destroy_cm_id(trio.listener.id);
	trio.listener = net_end_create(1);
	net_end_bind(&trio.listener);
	trio.listener.child = &trio.server;
	assert_int_equal(ib_cm_listen(trio.listener.id, htobe64(SERVICE), 0, &h), 0);
	ib_destroy_cm_id(other.id);
	other = net_end_create(1);
	assert_int_equal(ib_cm_listen(other.id, htobe64(SERVICE), 0, &a), 0);
	pair_connect(); /* "hello" is for h */
	ib_destroy_cm_id(other.id);
	ib_destroy_cm_id(range.id);
}

static void listen__a_range_of_services(void **state)
{
	(void)state;
	ib_destroy_cm_id(trio.listener.id);
	trio.listener = net_end_create(1);
	trio.listener.child = &trio.server;
	net_end_bind(&trio.listener);
	assert_int_equal(ib_cm_listen(trio.listener.id, htobe64(SERVICE & ~0xff), htobe64(~0xffull),
				      NULL), 0);
	pair_connect();
	assert_int_equal(be64toh(trio.server.id->service_id), SERVICE);
}

/* A range is free unless a service ID of it is in another one. */
static void listen__ranges_do_not_overlap(void **state)
{
	static const struct {
		u64 service_id, mask;
		int err;
	} rows[] = {
		{ 0x2000, ~0xffull, -EBUSY },  { 0x2000, ~0xfull, -EBUSY },
		{ 0x20f0, ~0xfull, -EBUSY },   { 0x2000, ~0xfffull, -EBUSY },
		{ 0x20ff, UINT64_MAX, -EBUSY }, { 0x2100, ~0xffull, 0 },
		{ 0x1ff0, ~0xfull, 0 },	       { 0x3000, ~0xfffull, 0 },
		{ 0x34, ~0xff00ull, -EBUSY },  { 0x1034, ~0xf00ull, 0 }, /* masks that cross */
	};
	struct net_end held = net_end_create(1);

	(void)state;
	assert_int_equal(ib_cm_listen(held.id, htobe64(0x2000), htobe64(~0xffull), NULL), 0);
	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		struct net_end other = net_end_create(1);

		assert_int_equal(ib_cm_listen(other.id, htobe64(rows[i].service_id),
					      htobe64(rows[i].mask), NULL),
				 rows[i].err);
		ib_destroy_cm_id(other.id);
	}
	ib_destroy_cm_id(held.id);
}

/* The request is in the queue when its listener goes. */
static void listen__destroyed_before_the_handler_sees_the_request(void **state)
{
	u8 req[CM_MAD_BYTES];

	(void)state;
	net.cut = true;
	pair_ask();
	memcpy(req, net.last, sizeof(req));
	net.cut = false;
	net_inject(1, 0, req, sizeof(req));
	ib_destroy_cm_id(trio.listener.id);
	trio.listener.id = NULL;
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.total, 0);
	assert_int_equal(trio.client.last.param.rej_rcvd.reason, IB_CM_REJ_INVALID_SERVICE_ID);
}

static void listen__handler_that_returns_non_zero_ends_the_id(void **state)
{
	(void)state;
	trio.server.result = -ECONNREFUSED;
	pair_ask();
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.total, 1);
	assert_int_equal(trio.client.last.param.rej_rcvd.reason, IB_CM_REJ_CONSUMER_DEFINED);
	assert_int_equal(cm_id_count(net.hosts[1].cm), 1);
}

static void pair_destroy_listener(struct net_end *end, struct ib_cm_event *event)
{
	(void)end;
	if (event->event == IB_CM_REQ_RECEIVED) {
		ib_destroy_cm_id(trio.listener.id);
		trio.listener.id = NULL;
	}
}

static void listen__destroyed_by_the_handler_of_its_request(void **state)
{
	(void)state;
	trio.server.act = pair_destroy_listener;
	pair_connect();
}

/* ---- two that ask each other ----------------------------------------------------------------- */

static void peer__one_connection_of_two_requests(void **state)
{
	struct net_end ends[2];

	(void)state;
	for (u32 i = 0; i < 2; i++) {
		struct ib_sa_path_rec path = net_path(i, 1 - i);
		struct ib_cm_req_param req = net_req(&path, 0x777);

		ends[i] = net_end_create(i);
		net_end_bind(&ends[i]);
		req.peer_to_peer = 1;
		assert_int_equal(ib_send_cm_req(ends[i].id, &req), 0);
	}
	net_run_for(NS_PER_S / 20);
	/* host 1 has the greater GUID */
	assert_int_equal(ends[0].seen[IB_CM_REQ_RECEIVED], 1);
	assert_int_equal(ends[1].total, 0);
	assert_null(ends[0].last.param.req_rcvd.listen_id);
	struct ib_cm_rep_param rep = { .qp_num = 0x31 };
	assert_int_equal(ib_send_cm_rep(ends[0].id, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ends[1].seen[IB_CM_REP_RECEIVED], 1);
	assert_int_equal(ib_send_cm_rtu(ends[1].id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ends[0].id->state, IB_CM_ESTABLISHED);
	for (u32 i = 0; i < 2; i++)
		ib_destroy_cm_id(ends[i].id);
}

/* ---- stale connections ----------------------------------------------------------------------- */

static void stale__the_old_connection_ends_and_the_new_one_comes(void **state)
{
	struct net_end again = net_end_create(0);
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_req_param req = net_req(&path, SERVICE);
	struct net_end old;

	(void)state;
	pair_connect();
	/* the peer forgets it, as if it had been started anew */
	net.cut = true;
	ib_destroy_cm_id(trio.client.id);
	trio.client.id = NULL;
	net_run_for(10 * NS_PER_S);
	net.cut = false;
	old = trio.server;
	net_end_bind(&old);
	net_end_bind(&again);
	req.qp_num = 0x1111;
	assert_int_equal(ib_send_cm_req(again.id, &req), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(again.last.param.rej_rcvd.reason, IB_CM_REJ_STALE_CONN);
	assert_int_equal(old.seen[IB_CM_DREP_RECEIVED], 1);
	net_run_for(NS_PER_S);
	assert_int_equal(again.seen[IB_CM_TIMEWAIT_EXIT], 1);
	assert_int_equal(old.seen[IB_CM_TIMEWAIT_EXIT], 1);
	assert_int_equal(ib_send_cm_req(again.id, &req), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.last.event, IB_CM_REQ_RECEIVED);
	ib_destroy_cm_id(again.id);
	ib_destroy_cm_id(old.id);
}

/* Whether packets of the old connection may be taken for the new one's is its peer's business: as
 * with Linux, it is no stale connection of either queue pair. */
static void stale__not_a_connection_in_timewait(void **state)
{
	struct net_end left[2];

	(void)state;
	pair_connect();
	left[0] = trio.client;
	left[1] = trio.server;
	for (u32 i = 0; i < 2; i++)
		net_end_bind(&left[i]);
	trio.client = net_end_create(0);
	net_end_bind(&trio.client);
	memset(&trio.server, 0, sizeof(trio.server));
	assert_int_equal(ib_send_cm_dreq(left[0].id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_drep(left[1].id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(left[0].id->state, IB_CM_TIMEWAIT);
	pair_connect();
	assert_int_equal(left[1].id->state, IB_CM_TIMEWAIT);
	for (u32 i = 0; i < 2; i++)
		ib_destroy_cm_id(left[i].id);
}

/* ---- another path ---------------------------------------------------------------------------- */

static void alternate__is_proposed_and_accepted(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_qp_attr a = { .qp_state = IB_QPS_RTS };
	u8 info[1] = { 'i' };
	int mask;

	(void)state;
	pair_connect();
	path.traffic_class = 33;
	path.packet_life_time = 14; /* the primary path has 10 */
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, "other", 5), 0);
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), -EINVAL);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_LAP_RECEIVED], 1);
	assert_int_equal(trio.server.alternate.traffic_class, 33);
	assert_memory_equal(&trio.server.alternate.dgid, &net.hosts[0].gid, 16);
	net.drop_attr = CM_APR;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_apr(trio.server.id, IB_CM_APR_SUCCESS, info, 1, "ok", 2), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(net.sent[CM_LAP], 2);
	assert_int_equal(trio.server.seen[IB_CM_LAP_RECEIVED], 1);
	assert_int_equal(trio.client.seen[IB_CM_APR_RECEIVED], 1);
	assert_int_equal(trio.client.last.param.apr_rcvd.info_len, 1);
	assert_int_equal(ib_cm_init_qp_attr(trio.client.id, &a, &mask), 0);
	assert_int_equal(mask, IB_QP_STATE | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE);
	assert_int_equal(a.alt_ah_attr.grh.traffic_class, 33);
	assert_int_equal(a.alt_timeout, 15);
	assert_int_equal(ib_cm_notify(trio.client.id, IB_EVENT_PATH_MIG), 0);
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_mra(trio.server.id, 18, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.id->lap_state, IB_CM_MRA_LAP_RCVD);
	assert_int_equal(ib_send_cm_apr(trio.server.id, IB_CM_APR_REJECT, NULL, 0, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.apr_rcvd.ap_status, IB_CM_APR_REJECT);
}

/* ---- service ID resolution ------------------------------------------------------------------- */

static void sidr__answer_and_refusal(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_sidr_req_param ask = { .path = &path,
					    .service_id = htobe64(SERVICE),
					    .timeout_ms = 50,
					    .private_data = "who",
					    .private_data_len = 3,
					    .max_cm_retries = 3 };
	struct ib_cm_sidr_rep_param rep = { .qp_num = 0x77, .qkey = 0x1234567,
					    .private_data = "me", .private_data_len = 2 };

	(void)state;
	net.drop_attr = CM_SIDR_REP;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &ask), 0);
	net_run_for(10 * NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_SIDR_REQ_RECEIVED], 1);
	assert_ptr_equal(trio.server.last.param.sidr_req_rcvd.listen_id, trio.listener.id);
	assert_int_equal(be64toh(trio.server.last.param.sidr_req_rcvd.service_id), SERVICE);
	assert_int_equal(trio.server.last.param.sidr_req_rcvd.pkey, 0xffff);
	assert_memory_equal(trio.server.private_data, "who\0", 4);
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), 0);
	ib_destroy_cm_id(trio.server.id);
	net_run_for(45 * NS_PER_MS); /* asks again: a new request */
	assert_int_equal(trio.server.seen[IB_CM_SIDR_REQ_RECEIVED], 2);
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_SIDR_REP_RECEIVED], 1);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.qpn, 0x77);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.qkey, 0x1234567);
	assert_memory_equal(trio.client.private_data, "me\0", 3);
	ask.service_id = htobe64(SERVICE + 1);
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &ask), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.status, IB_SIDR_UNSUPPORTED);
	net.cut = true;
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &ask), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_SIDR_REQ_ERROR], 1);
}

/* While its consumer thinks, a request that comes again is the same. Another one is not. */
static void sidr__a_request_that_waits_is_told_once(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_sidr_req_param ask = { .path = &path,
					    .service_id = htobe64(SERVICE),
					    .timeout_ms = 50,
					    .max_cm_retries = 3 };
	struct ib_cm_sidr_rep_param rep = { .qp_num = 0x77 };
	struct net_end other = net_end_create(0);
	struct ib_cm_id *first;

	(void)state;
	net_end_bind(&other);
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &ask), 0);
	net_run_for(120 * NS_PER_MS);
	assert_int_equal(net.sent[CM_SIDR_REQ], 3);
	assert_int_equal(trio.server.seen[IB_CM_SIDR_REQ_RECEIVED], 1);
	first = trio.server.id;
	assert_int_equal(ib_send_cm_sidr_req(other.id, &ask), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_SIDR_REQ_RECEIVED], 2);
	assert_int_equal(ib_send_cm_sidr_rep(first, &rep), 0);
	rep.qp_num = 0x78;
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.qpn, 0x77);
	assert_int_equal(other.last.param.sidr_rep_rcvd.qpn, 0x78);
	ib_destroy_cm_id(first);
	ib_destroy_cm_id(other.id);
}

#define PAIR(test) cmocka_unit_test_setup_teardown(test, pair_open, pair_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR(connect__each_end_gets_what_the_other_said),
		PAIR(connect__attributes_of_both_queue_pairs),
		PAIR(connect__lost_messages),
		PAIR(connect__no_answer_ends_after_all_retries),
		PAIR(connect__no_rtu_ends_after_all_retries),
		PAIR(connect__a_brief_answer_is_sent_four_times_in_four_seconds),
		PAIR(connect__first_data_before_the_rtu),
		PAIR(connect__calls_out_of_turn),
		PAIR(reject__reason_information_and_private_data_arrive),
		PAIR(reject__nobody_listens),
		PAIR(reject__of_a_rep),
		PAIR(reject__a_withdrawn_req),
		PAIR(reject__a_rep_for_nobody),
		PAIR(mra__holds_the_retries),
		PAIR(mra__delayed_until_the_message_comes_again),
		PAIR(mra__delayed_until_the_rep_comes_again),
		PAIR(leave__both_learn_and_timewait_ends),
		PAIR(leave__lost_drep_is_sent_again),
		PAIR(leave__both_at_once),
		PAIR(leave__nobody_answers),
		PAIR(leave__a_destroyed_id_still_tells_the_peer),
		PAIR(leave__a_dreq_for_another_queue_pair_or_id),
		PAIR(listen__one_for_each_service),
		PAIR(listen__a_range_of_services),
		PAIR(listen__ranges_do_not_overlap),
		PAIR(listen__destroyed_before_the_handler_sees_the_request),
		PAIR(listen__handler_that_returns_non_zero_ends_the_id),
		PAIR(listen__destroyed_by_the_handler_of_its_request),
		PAIR(peer__one_connection_of_two_requests),
		PAIR(stale__the_old_connection_ends_and_the_new_one_comes),
		PAIR(stale__not_a_connection_in_timewait),
		PAIR(alternate__is_proposed_and_accepted),
		PAIR(sidr__answer_and_refusal),
		PAIR(sidr__a_request_that_waits_is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
