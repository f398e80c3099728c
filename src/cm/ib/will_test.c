/* will_test.c: an end that dies in each of its states, and what the other end learns, in virtual
 * time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { SERVICE = 0x1061234, CLIENT = 0, SERVER = 1 };

static struct net_trio trio;

static int will_open(void **state)
{
	(void)state;
	net_trio_open(&trio, 11, SERVICE);
	return 0;
}

static int will_close(void **state)
{
	(void)state;
	net_trio_close(&trio);
	return 0;
}

/* ---- the way to a state ---------------------------------------------------------------------- */

static void to_req(void)
{
	struct ib_sa_path_rec path = net_path(CLIENT, SERVER);
	struct ib_cm_req_param req = net_req(&path, SERVICE);

	req.qp_num = 0x1111;
	assert_int_equal(ib_send_cm_req(trio.client.id, &req), 0);
	net_run_for(NS_PER_MS);
}

static void to_mra(void)
{
	to_req();
	assert_int_equal(ib_send_cm_mra(trio.server.id, 20, NULL, 0), 0);
	net_run_for(NS_PER_MS);
}

static void to_rep(void)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x2222 };

	to_req();
	assert_int_equal(ib_send_cm_rep(trio.server.id, &rep), 0);
	net_run_for(NS_PER_MS);
}

static void to_rep_mra(void)
{
	to_rep();
	assert_int_equal(ib_send_cm_mra(trio.client.id, 20, NULL, 0), 0);
	net_run_for(NS_PER_MS);
}

static void to_established(void)
{
	to_rep();
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
}

/* The client has sent its RTU, and the server has not got it. */
static void to_rtu_lost(void)
{
	to_rep();
	net.drop_attr = CM_RTU;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
}

static void to_dreq_lost(void)
{
	to_established();
	net.drop_attr = CM_DREQ;
	net.drop_count = 1;
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
}

static void to_dreq_received(void)
{
	to_established();
	assert_int_equal(ib_send_cm_dreq(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_DREQ_RCVD);
}

static void to_timewait(void)
{
	to_dreq_received();
	assert_int_equal(ib_send_cm_drep(trio.server.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.id->state, IB_CM_TIMEWAIT);
}

static const struct will_case {
	const char *name;
	void (*way)(void);
	u32 dies;
	u32 wills;		/* that it leaves */
	int event;		/* of the other end, soon; -1: none */
	enum ib_cm_state state; /* of the other end then */
} will_cases[] = {
	{ "server, REQ received", to_req, SERVER, 1, IB_CM_REJ_RECEIVED, IB_CM_IDLE },
	{ "server, MRA sent", to_mra, SERVER, 1, IB_CM_REJ_RECEIVED, IB_CM_IDLE },
	{ "server, REP sent", to_rep, SERVER, 1, IB_CM_REJ_RECEIVED, IB_CM_TIMEWAIT },
	{ "server, MRA of the REP received", to_rep_mra, SERVER, 1, IB_CM_REJ_RECEIVED,
	  IB_CM_TIMEWAIT },
	{ "server, RTU not received", to_rtu_lost, SERVER, 1, IB_CM_REJ_RECEIVED, IB_CM_TIMEWAIT },
	{ "server, established", to_established, SERVER, 1, IB_CM_DREQ_RECEIVED, IB_CM_DREQ_RCVD },
	{ "server, DREQ received", to_dreq_received, SERVER, 1, IB_CM_DREP_RECEIVED,
	  IB_CM_TIMEWAIT },
	{ "server, timewait", to_timewait, SERVER, 0, -1, IB_CM_TIMEWAIT },
	{ "client, REQ sent", to_req, CLIENT, 1, IB_CM_REJ_RECEIVED, IB_CM_IDLE },
	{ "client, MRA received", to_mra, CLIENT, 1, IB_CM_REJ_RECEIVED, IB_CM_IDLE },
	{ "client, REP received", to_rep, CLIENT, 1, IB_CM_REJ_RECEIVED, IB_CM_IDLE },
	{ "client, MRA of the REP sent", to_rep_mra, CLIENT, 1, IB_CM_REJ_RECEIVED, IB_CM_IDLE },
	{ "client, RTU lost", to_rtu_lost, CLIENT, 1, IB_CM_DREQ_RECEIVED, IB_CM_DREQ_RCVD },
	{ "client, established", to_established, CLIENT, 1, IB_CM_DREQ_RECEIVED, IB_CM_DREQ_RCVD },
	{ "client, DREQ lost", to_dreq_lost, CLIENT, 1, IB_CM_DREQ_RECEIVED, IB_CM_DREQ_RCVD },
	{ "client, timewait", to_timewait, CLIENT, 0, -1, IB_CM_TIMEWAIT },
};

static void die_and_judge(const struct will_case *c)
{
	struct net_end *other = c->dies == SERVER ? &trio.client : &trio.server;
	u32 before;

	print_message("%s\n", c->name);
	c->way();
	assert_int_equal(net_wills(c->dies), c->wills);
	before = other->total;
	net_kill(c->dies);
	net_run_for(NS_PER_MS);
	assert_int_equal(other->total, before + (c->event >= 0));
	if (c->event >= 0)
		assert_int_equal(other->last.event, c->event);
	assert_int_equal(other->id->state, c->state);
}

static void will__tells_the_other_end_in_each_state(void **state)
{
	for (u32 i = 0; i < ARRAY_LEN(will_cases); i++) {
		if (i > 0)
			will_open(state);
		die_and_judge(&will_cases[i]);
		if (i + 1 < ARRAY_LEN(will_cases))
			will_close(state);
	}
}

/* What tools are shown of both ends, which have one connection. */
static void will_show_the_connection(void)
{
	const struct mad_connection *here = &net.hosts[CLIENT].wills[0].connection;
	const struct mad_connection *there = &net.hosts[SERVER].wills[0].connection;

	assert_int_equal(here->state, IB_CM_ESTABLISHED);
	assert_int_equal(there->state, IB_CM_ESTABLISHED);
	assert_false(here->passive);
	assert_true(there->passive);
	assert_int_not_equal(here->service_id, 0);
	assert_int_equal(here->service_id, there->service_id);
	assert_int_equal(here->local_id, there->remote_id);
	assert_int_equal(here->remote_id, there->local_id);
	assert_int_equal(here->local_qpn, there->remote_qpn);
	assert_int_equal(here->remote_qpn, there->local_qpn);
}

/* Wills come and go with what they are for, and places are used again. */
static void will__is_taken_back_when_all_is_over(void **state)
{
	(void)state;
	for (u32 i = 0; i < 100; i++) {
		to_established();
		assert_int_equal(net_wills(CLIENT), 1);
		assert_int_equal(net_wills(SERVER), 1);
		will_show_the_connection();
		ib_destroy_cm_id(trio.client.id);
		net_run_for(NS_PER_MS);
		assert_int_equal(ib_send_cm_drep(trio.server.id, NULL, 0), 0);
		net_run_for(NS_PER_MS);
		assert_int_equal(net_wills(CLIENT), 0);
		assert_int_equal(net_wills(SERVER), 0);
		ib_destroy_cm_id(trio.server.id);
		net_run_for(NS_PER_S);
		trio.client = net_end_create(CLIENT);
		net_end_bind(&trio.client);
	}
	trio.server.id = NULL;
}

static void will__refuses_a_sidr_req(void **state)
{
	struct ib_sa_path_rec path = net_path(CLIENT, SERVER);
	struct ib_cm_sidr_req_param req = { .path = &path,
					    .service_id = htobe64(SERVICE),
					    .timeout_ms = 1000,
					    .max_cm_retries = 3 };

	(void)state;
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &req), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(net_wills(CLIENT), 0);
	assert_int_equal(net_wills(SERVER), 1);
	net_kill(SERVER);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.event, IB_CM_SIDR_REP_RECEIVED);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.status, IB_SIDR_REJECT);
}

/* A device that is unplugged takes its wills with it: nobody is left to send them. */
static void will__ends_with_its_device(void **state)
{
	(void)state;
	to_established();
	cm_device_remove(&net.hosts[CLIENT].dev);
	assert_int_equal(net_wills(CLIENT), 0);
	cm_device_add(net.hosts[CLIENT].cm, &net.hosts[CLIENT].dev);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(will__tells_the_other_end_in_each_state, will_open,
						will_close),
		cmocka_unit_test_setup_teardown(will__is_taken_back_when_all_is_over, will_open,
						will_close),
		cmocka_unit_test_setup_teardown(will__refuses_a_sidr_req, will_open, will_close),
		cmocka_unit_test_setup_teardown(will__ends_with_its_device, will_open, will_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
