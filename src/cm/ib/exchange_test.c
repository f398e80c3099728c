/* exchange_test.c: an id that asks more than once: which exchange an answer belongs to; and what
 * the other end is told. Virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { SERVICE = 0x1061234, NOBODY = 0x1069999 };

/* A client on host 0, a listener on host 1 and the end of its last request. */
static struct net_trio trio;

static int exchange_open(void **state)
{
	(void)state;
	net_trio_open(&trio, 11, SERVICE);
	return 0;
}

static int exchange_close(void **state)
{
	(void)state;
	net_trio_close(&trio);
	return 0;
}

static void exchange_ask(u64 service, u32 qpn)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_req_param req = net_req(&path, service);

	req.qp_num = qpn;
	req.max_cm_retries = 3;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
}

/* The client asks and withdraws that, and host 1 does not hear of it; what host 1 sends meanwhile
 * comes back as `late`. */
static void exchange_ask_in_vain(u64 service, u8 *late)
{
	exchange_ask(service, 0x1111);
	net.cut = true;
	net_run_for(NS_PER_MS);
	memcpy(late, net.last, CM_MAD_BYTES);
	assert_int_equal(
		ib_send_cm_rej(trio.client.id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	net.cut = false;
}

static void exchange_answer(u32 qpn)
{
	struct ib_cm_rep_param rep = { .qp_num = qpn };

	assert_int_equal(ib_send_cm_rep(trio.server.id, &rep), 0);
}

static void exchange_complete(void)
{
	exchange_answer(0x2222);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REP_RECEIVED], 1);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
}

/* ---- answers to an earlier request ----------------------------------------------------------- */

static void answer__a_rep_to_an_earlier_req(void **state)
{
	u8 late[CM_MAD_BYTES];

	(void)state;
	exchange_ask_in_vain(SERVICE, late);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 1);
	exchange_ask(SERVICE, 0x3333);
	net_run_for(NS_PER_MS);
	exchange_answer(0x9999); /* to the first */
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REP_RECEIVED], 0);
	assert_int_equal(trio.server.last.param.rej_rcvd.reason, IB_CM_REJ_INVALID_COMM_ID);
	ib_destroy_cm_id(trio.server.id);
	net_run_for(NS_PER_S / 10); /* the second comes again */
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 2);
	assert_int_equal(trio.server.last.param.req_rcvd.remote_qpn, 0x3333);
	exchange_complete();
}

static void answer__a_rep_for_an_idle_id(void **state)
{
	u8 late[CM_MAD_BYTES];

	(void)state;
	exchange_ask_in_vain(SERVICE, late);
	exchange_answer(0x9999);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.server.last.param.rej_rcvd.reason, IB_CM_REJ_INVALID_COMM_ID);
}

static void answer__a_rej_of_an_earlier_req(void **state)
{
	u8 late[CM_MAD_BYTES];

	(void)state;
	exchange_ask_in_vain(NOBODY, late);
	assert_int_equal(late[17], CM_REJ);
	exchange_ask(SERVICE, 0x3333);
	net_inject(0, 1, late, sizeof(late));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REJ_RECEIVED], 0);
	exchange_complete();
}

static void answer__an_mra_of_an_earlier_req(void **state)
{
	u8 late[CM_MAD_BYTES];

	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	net.cut = true;
	assert_int_equal(ib_send_cm_mra(trio.server.id, 20, NULL, 0), 0);
	memcpy(late, net.last, sizeof(late));
	net.cut = false;
	assert_int_equal(
		ib_send_cm_rej(trio.client.id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	ib_destroy_cm_id(trio.server.id);
	exchange_ask(SERVICE, 0x3333);
	net_inject(0, 1, late, sizeof(late));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_MRA_RECEIVED], 0);
	exchange_complete();
}

/* The REQ came twice; its first end refuses it, and its second end accepts it. */
static void answer__a_rej_of_a_req_that_was_accepted(void **state)
{
	u8 req[CM_MAD_BYTES], late[CM_MAD_BYTES];

	(void)state;
	exchange_ask(SERVICE, 0x1111);
	memcpy(req, net.last, sizeof(req));
	net_run_for(NS_PER_MS);
	net.cut = true;
	assert_int_equal(
		ib_send_cm_rej(trio.server.id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	memcpy(late, net.last, sizeof(late));
	net.cut = false;
	ib_destroy_cm_id(trio.server.id);
	net_inject(1, 0, req, sizeof(req));
	net_run_for(NS_PER_MS);
	exchange_complete();
	net_inject(0, 1, late, sizeof(late));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REJ_RECEIVED], 0);
	assert_int_equal(trio.client.id->state, IB_CM_ESTABLISHED);
}

/* A REJ for a timeout names no id of its receiver: it must not end the request that follows. */
static void answer__a_late_rej_of_the_asker(void **state)
{
	u8 late[CM_MAD_BYTES];
	u64 guid = net.hosts[0].ib.node_guid;

	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	ib_destroy_cm_id(trio.server.id);
	net_run_for(NS_PER_MS);
	exchange_ask(SERVICE, 0x1111);
	net.cut = true;
	assert_int_equal(
		ib_send_cm_rej(trio.client.id, IB_CM_REJ_TIMEOUT, &guid, sizeof(guid), NULL, 0), 0);
	memcpy(late, net.last, sizeof(late));
	net_run_for(NS_PER_MS);
	net.cut = false;
	ib_destroy_cm_id(trio.server.id);
	exchange_ask(SERVICE, 0x3333);
	net_run_for(NS_PER_MS);
	net_inject(1, 0, late, sizeof(late));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_REJ_RECEIVED], 0);
	exchange_complete();
}

static void answer__an_apr_to_an_earlier_lap(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	u8 late[CM_MAD_BYTES];

	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	exchange_complete();
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	net.cut = true;
	assert_int_equal(ib_send_cm_apr(trio.server.id, IB_CM_APR_REJECT, NULL, 0, NULL, 0), 0);
	memcpy(late, net.last, sizeof(late));
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_LAP_ERROR], 1);
	net.cut = false;
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_inject(0, 1, late, sizeof(late));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_APR_RECEIVED], 0);
	assert_int_equal(trio.server.seen[IB_CM_LAP_RECEIVED], 2);
}

static void answer__an_mra_of_an_earlier_lap(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	u8 late[CM_MAD_BYTES];

	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	exchange_complete();
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	net.cut = true;
	assert_int_equal(ib_send_cm_mra(trio.server.id, 20, NULL, 0), 0);
	memcpy(late, net.last, sizeof(late));
	net.cut = false;
	assert_int_equal(ib_send_cm_apr(trio.server.id, IB_CM_APR_REJECT, NULL, 0, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_inject(0, 1, late, sizeof(late));
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_MRA_RECEIVED], 0);
	assert_int_equal(trio.client.id->lap_state, IB_CM_LAP_SENT);
}

static void answer__a_sidr_rep_to_an_earlier_request(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_sidr_req_param ask = { .path = &path,
					    .service_id = htobe64(SERVICE),
					    .timeout_ms = 50 };
	struct ib_cm_sidr_rep_param rep = { .qp_num = 0x77 };
	struct ib_cm_id *first;

	(void)state;
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &ask), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_SIDR_REQ_ERROR], 1);
	first = trio.server.id;
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &ask), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_SIDR_REQ_RECEIVED], 2);
	assert_int_equal(ib_send_cm_sidr_rep(first, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_SIDR_REP_RECEIVED], 0);
	rep.qp_num = 0x78;
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.qpn, 0x78);
	ib_destroy_cm_id(first);
}

/* ---- what the other end is told -------------------------------------------------------------- */

static void told__a_rej_that_overtakes_its_rep(void **state)
{
	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	net.cut = true;
	exchange_answer(0x2222);
	net.cut = false;
	assert_int_equal(
		ib_send_cm_rej(trio.server.id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.client.id->state, IB_CM_IDLE);
}

static void told__no_rtu_has_come(void **state)
{
	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	exchange_answer(0x2222);
	net_run_for(NS_PER_MS);
	net.drop_attr = CM_RTU;
	net.drop_count = 100;
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.server.seen[IB_CM_REP_ERROR], 1);
	assert_int_equal(trio.client.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(trio.client.last.event, IB_CM_TIMEWAIT_EXIT);
}

static void told__no_rep_has_come(void **state)
{
	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_REQ_ERROR], 1);
	assert_int_equal(trio.server.last.event, IB_CM_REJ_RECEIVED);
	assert_int_equal(trio.server.last.param.rej_rcvd.reason, IB_CM_REJ_TIMEOUT);
}

/* The client has left without the server's hearing of it, and asks anew by the same id. */
static void told__a_req_of_an_id_that_was_connected(void **state)
{
	struct net_end old;

	(void)state;
	exchange_ask(SERVICE, 0x1111);
	net_run_for(NS_PER_MS);
	exchange_complete();
	net.cut = true;
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_TIMEWAIT_EXIT], 1);
	net.cut = false;
	old = trio.server;
	net_end_bind(&old);
	exchange_ask(SERVICE, 0x3333);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.rej_rcvd.reason, IB_CM_REJ_STALE_CONN);
	assert_int_equal(old.seen[IB_CM_DREP_RECEIVED], 1);
	net_run_for(NS_PER_S);
	memset(&trio.client.seen, 0, sizeof(trio.client.seen));
	exchange_ask(SERVICE, 0x3333);
	net_run_for(NS_PER_MS);
	exchange_complete();
	ib_destroy_cm_id(old.id);
}

/* ---- no room --------------------------------------------------------------------------------- */

/* A descriptor may be free a moment later. */
static void full__asked_again_for_a_while(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 0);
	struct ib_cm_req_param req = net_req(&path, SERVICE);
	u8 full[CM_MAD_BYTES];
	u64 tries = 0;

	(void)state;
	net.drop_attr = CM_REQ;
	net.drop_count = 100;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
	while (trio.client.seen[IB_CM_REJ_RECEIVED] == 0 && tries < 100) {
		assert_int_equal(net.sent[CM_REQ], ++tries);
		assert_true(msg_answer_for_full(net.last, full));
		net_inject(0, 0, full, sizeof(full));
		net_run_for(2 * NS_PER_MS);
	}
	assert_true(tries > 1 && tries < 100);
	assert_int_equal(trio.client.last.param.rej_rcvd.reason, IB_CM_REJ_NO_RESOURCES);
}

/* What a consumer says is meant. */
static void full__not_where_a_consumer_says_so(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 0);
	struct ib_cm_req_param req = net_req(&path, SERVICE);
	struct cm_msg msg;
	u8 mad[CM_MAD_BYTES];

	(void)state;
	net.drop_attr = CM_REQ;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
	assert_true(msg_answer_for_full(net.last, mad));
	assert_true(msg_unpack(&msg, mad, sizeof(mad)));
	msg.rej.about = CM_ABOUT_REQ;
	msg_pack(&msg, mad);
	net_inject(0, 0, mad, sizeof(mad));
	net_run_for(2 * NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REJ_RECEIVED], 1);
	assert_int_equal(net.sent[CM_REQ], 1);
}

/* ---- the end of an instance ------------------------------------------------------------------ */

/* The listener is freed before the request that refers to it. A sanitizer sees the difference. */
static void destroyed__with_a_request_that_no_handler_has_seen(void **state)
{
	struct net_host *h = &net.hosts[1];
	u8 req[CM_MAD_BYTES];

	(void)state;
	net.cut = true;
	exchange_ask(SERVICE, 0x1111);
	memcpy(req, net.last, sizeof(req));
	net_inject(1, 0, req, sizeof(req));
	assert_int_equal(cm_id_count(h->cm), 2);
	cm_device_remove(&h->dev);
	cm_destroy(h->cm);
	trio.listener.id = NULL;
	h->listens = 0;
	h->cm = cm_create(&net.queue, 1);
	assert_non_null(h->cm);
	cm_device_add(h->cm, &h->dev);
	assert_int_equal(cm_id_count(h->cm), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.total, 0);
}

#define EXCHANGE(test) cmocka_unit_test_setup_teardown(test, exchange_open, exchange_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EXCHANGE(answer__a_rep_to_an_earlier_req),
		EXCHANGE(answer__a_rep_for_an_idle_id),
		EXCHANGE(answer__a_rej_of_an_earlier_req),
		EXCHANGE(answer__an_mra_of_an_earlier_req),
		EXCHANGE(answer__a_rej_of_a_req_that_was_accepted),
		EXCHANGE(answer__a_late_rej_of_the_asker),
		EXCHANGE(answer__an_apr_to_an_earlier_lap),
		EXCHANGE(answer__an_mra_of_an_earlier_lap),
		EXCHANGE(answer__a_sidr_rep_to_an_earlier_request),
		EXCHANGE(told__a_rej_that_overtakes_its_rep),
		EXCHANGE(told__no_rtu_has_come),
		EXCHANGE(told__no_rep_has_come),
		EXCHANGE(told__a_req_of_an_id_that_was_connected),
		EXCHANGE(full__asked_again_for_a_while),
		EXCHANGE(full__not_where_a_consumer_says_so),
		EXCHANGE(destroyed__with_a_request_that_no_handler_has_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
