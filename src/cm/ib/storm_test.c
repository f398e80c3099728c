/* storm_test.c: many connections at once over a network that loses, duplicates, reorders and is
 * cut, by consumers that do whatever their ids allow. Virtual time; each seed is one history.
 *
 * What must hold, whatever happens: one connection for each request at most; a request ends; who
 * stays learns that the other has left; timewait ends, once; a destroyed id is not heard of again;
 * in the end nothing is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { ATTEMPTS = 60, SERVERS = 4, STEP_MS = 1, STORM_MS = 4000, REQUEST_MS = 6000, SEEDS = 60 };
static const u64 STORM_SERVICE = 0x1060007;

/* One side of an attempt, as its consumer sees it. */
struct side {
	struct ib_cm_id *id; /* NULL: none yet, or destroyed */
	u32 attempt;
	bool active, asked_time;
	bool established, rejected, failed;
	bool keeps;   /* does nothing to a connection, so that only the other side ends it */
	bool leaves;  /* has sent a DREQ, or was destroyed when established */
	bool learned; /* that the other has left, or could not be reached */
	u32 timewaits, reqs, rtus;
	u64 since, established_at, failed_at;
	__be32 local_id, remote_id;
} OWNED_BY(the test);

static struct side clients[ATTEMPTS], servers[ATTEMPTS][SERVERS];
static u32 server_count[ATTEMPTS];
static struct ib_cm_id *storm_listener;
static u64 storm_seed;
static bool storm_cut; /* was the network ever cut? */

/* ---- what the handlers see ------------------------------------------------------------------- */

static void side_end(struct side *s)
{
	if (s->established && !s->learned)
		s->leaves = true;
	s->id = NULL;
}

/* The consumer goes without looking. */
static void side_destroy(struct side *s)
{
	struct ib_cm_id *id = s->id;

	side_end(s);
	ib_destroy_cm_id(id);
}

static void side_established(struct side *s)
{
	assert_false(s->established);
	s->established = true;
	s->established_at = net.now;
	s->remote_id = s->id->remote_id;
}

static int side_handler(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct side *s = id->context;

	assert_ptr_equal(s->id, id); /* else it was destroyed */
	switch (event->event) {
	case IB_CM_REQ_ERROR:
	case IB_CM_REP_ERROR:
		assert_false(s->failed);
		s->failed = true;
		s->failed_at = net.now;
		break;
	case IB_CM_RTU_RECEIVED:
	case IB_CM_USER_ESTABLISHED:
		assert_int_equal(s->rtus++, 0);
		side_established(s);
		break;
	case IB_CM_REJ_RECEIVED:
		s->rejected = s->learned = true;
		break;
	case IB_CM_DREQ_RECEIVED:
	case IB_CM_DREP_RECEIVED:
	case IB_CM_DREQ_ERROR:
		s->learned = true;
		break;
	case IB_CM_TIMEWAIT_EXIT:
		assert_true(s->learned || s->leaves);
		assert_int_equal(s->timewaits++, 0);
		break;
	default:
		break;
	}
	if (net_random(100) == 0 && !s->keeps) {
		side_end(s);
		return 1;
	}
	return 0;
}

static int storm_handler(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct side *s;
	u32 attempt;

	if (event->event != IB_CM_REQ_RECEIVED)
		return 0;
	memcpy(&attempt, event->private_data, sizeof(attempt));
	assert_true(attempt < ATTEMPTS && server_count[attempt] < SERVERS);
	s = &servers[attempt][server_count[attempt]++];
	*s = (struct side){ .id = id,
			    .attempt = attempt,
			    .keeps = attempt % 4 == 0,
			    .local_id = id->local_id,
			    .reqs = 1,
			    .since = net.now };
	id->context = s;
	id->cm_handler = side_handler;
	if (net_random(30) == 0) {
		s->id = NULL;
		return -1;
	}
	return 0;
}

/* ---- what the consumers do ------------------------------------------------------------------- */

static void client_begin(u32 attempt)
{
	struct side *s = &clients[attempt];
	u32 host = attempt % 2 == 0 ? 0 : 2;
	struct ib_sa_path_rec path = net_path(host, 1);
	struct ib_cm_req_param req = net_req(&path, STORM_SERVICE);

	req.qp_num = 0x1000 + attempt;
	req.private_data = &attempt;
	req.private_data_len = sizeof(attempt);
	*s = (struct side){ .attempt = attempt,
			    .active = true,
			    .keeps = attempt % 4 == 1,
			    .since = net.now };
	s->id = ib_create_cm_id(&net.hosts[host].ib, side_handler, s);
	assert_false(IS_ERR(s->id));
	s->local_id = s->id->local_id;
	assert_int_equal(ib_send_cm_req(s->id, &req), 0);
}

static void side_answer(struct side *s)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x9000 + (u32)(s - servers[0]) };
	u32 dice = net_random(20);

	if (dice == 0)
		assert_int_equal(
			ib_send_cm_rej(s->id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	else if (dice < 4 && !s->asked_time)
		s->asked_time = ib_send_cm_mra(s->id, 15, NULL, 0) == 0;
	else
		assert_int_equal(ib_send_cm_rep(s->id, &rep), 0);
}

static void side_complete(struct side *s)
{
	u32 dice = net_random(20);

	if (dice == 0) {
		assert_int_equal(
			ib_send_cm_rej(s->id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0), 0);
	} else if (dice < 4 && !s->asked_time) {
		s->asked_time = ib_send_cm_mra(s->id, 15, NULL, 0) == 0;
	} else {
		assert_int_equal(ib_send_cm_rtu(s->id, NULL, 0), 0);
		side_established(s);
	}
}

/* One thing that the id's state allows, now and then. */
static void side_act(struct side *s)
{
	if (s->id == NULL || net_random(40) != 0)
		return;
	if (net_random(20) == 0 && !s->keeps) {
		side_destroy(s);
		return;
	}
	switch (s->id->state) {
	case IB_CM_REQ_RCVD:
	case IB_CM_MRA_REQ_SENT:
		side_answer(s);
		break;
	case IB_CM_REP_RCVD:
	case IB_CM_MRA_REP_SENT:
		side_complete(s);
		break;
	case IB_CM_ESTABLISHED:
		if (net_random(6) == 0 && !s->keeps) {
			s->leaves = true;
			assert_int_equal(ib_send_cm_dreq(s->id, NULL, 0), 0);
		}
		break;
	case IB_CM_DREQ_RCVD:
		assert_int_equal(ib_send_cm_drep(s->id, NULL, 0), 0);
		break;
	default:
		break;
	}
}

static void storm_all(void (*act)(struct side *s))
{
	for (u32 i = 0; i < ATTEMPTS; i++) {
		act(&clients[i]);
		for (u32 j = 0; j < server_count[i]; j++)
			act(&servers[i][j]);
	}
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* A request is answered, or ends by itself. */
static void side_check_time(struct side *s)
{
	if (s->id == NULL || net.now - s->since < REQUEST_MS * NS_PER_MS)
		return;
	assert_int_not_equal(s->id->state, IB_CM_REQ_SENT);
	assert_int_not_equal(s->id->state, IB_CM_MRA_REQ_RCVD);
}

static struct side *storm_other(const struct side *s)
{
	if (!s->active)
		return clients[s->attempt].local_id == s->remote_id ? &clients[s->attempt] : NULL;
	for (u32 j = 0; j < server_count[s->attempt]; j++)
		if (servers[s->attempt][j].local_id == s->remote_id)
			return &servers[s->attempt][j];
	return NULL;
}

/* When all is quiet again. */
static void side_check_end(struct side *s)
{
	struct side *other = s->established ? storm_other(s) : NULL;

	if (s->leaves && s->id != NULL) {
		assert_true(s->learned);
		assert_int_equal(s->timewaits, 1);
	}
	if (other == NULL || storm_cut) /* a cut may outlast all retries */
		return;
	/* who is left behind has learned it */
	if (other->established && s->leaves && other->id != NULL)
		assert_true(other->learned || other->leaves);
	/* the RTU has come, unless the passive side had given up before it was sent */
	if (s->active && !other->failed && other->id != NULL)
		assert_true(other->established || other->learned);
	if (s->active && other->failed)
		assert_true(other->failed_at < s->established_at);
}

static void storm_check_connections(void)
{
	for (u32 i = 0; i < ATTEMPTS; i++) {
		u32 established = 0;

		for (u32 j = 0; j < server_count[i]; j++)
			established += servers[i][j].established;
		assert_true(established <= 1);
		if (established == 1 && !clients[i].established)
			fail_msg("attempt %u: the server has a connection, the client none", i);
	}
}

/* How often what is judged has happened at all, over all histories. */
static u32 seen_connections, seen_lefts, seen_failures, seen_rejects, seen_timewaits;

static void side_count(struct side *s)
{
	seen_connections += s->established;
	seen_lefts += s->learned && s->id != NULL;
	seen_failures += s->failed;
	seen_rejects += s->rejected;
	seen_timewaits += s->timewaits;
}

/* Answers what still waits for its consumer, so that all that began may end. */
static void side_settle(struct side *s)
{
	if (s->id == NULL)
		return;
	if (s->id->state == IB_CM_DREQ_RCVD)
		assert_int_equal(ib_send_cm_drep(s->id, NULL, 0), 0);
	else if (s->id->state != IB_CM_ESTABLISHED && s->id->state != IB_CM_DREQ_SENT &&
		 s->id->state != IB_CM_TIMEWAIT && s->id->state != IB_CM_IDLE)
		side_destroy(s);
}

static void side_finish(struct side *s)
{
	if (s->id != NULL)
		side_destroy(s);
}

/* ---- histories ------------------------------------------------------------------------------- */

static void storm_weather(u64 seed)
{
	net.loss_percent = seed % 3 == 0 ? 0 : net_random(21);
	net.duplicate_percent = net_random(30);
	net.delay_min_ns = 10 * NS_PER_US;
	net.delay_max_ns = net.delay_min_ns + net_random(20) * NS_PER_MS;
}

static void storm_run(u64 seed)
{
	bool cuts = seed % 4 == 3;

	net_open(seed);
	memset(clients, 0, sizeof(clients));
	memset(servers, 0, sizeof(servers));
	memset(server_count, 0, sizeof(server_count));
	storm_cut = cuts;
	storm_weather(seed);
	storm_listener = ib_create_cm_id(&net.hosts[1].ib, storm_handler, NULL);
	assert_int_equal(ib_cm_listen(storm_listener, htobe64(STORM_SERVICE), 0, NULL), 0);
	for (u32 t = 0, next = 0; t < STORM_MS; t += STEP_MS) {
		while (next < ATTEMPTS && net_random(STORM_MS / ATTEMPTS / 2) == 0)
			client_begin(next++);
		if (cuts && net_random(300) == 0)
			net.cut = !net.cut;
		storm_all(side_act);
		net_run_for(STEP_MS * NS_PER_MS);
		storm_all(side_check_time);
	}
	net.cut = false;
	for (u32 t = 0; t < 20; t++) {
		storm_all(side_settle);
		net_run_for(NS_PER_S);
	}
	storm_check_connections();
	storm_all(side_check_end);
	storm_all(side_count);
	storm_all(side_finish);
	ib_destroy_cm_id(storm_listener);
	net_run_for(20 * NS_PER_S);
	net_close();
}

static void storm__many_histories(void **state)
{
	u64 only = getenv("STORM_SEED") ? strtoull(getenv("STORM_SEED"), NULL, 10) : 0;

	(void)state;
	for (u64 seed = only ? only : 1; seed <= (only ? only : SEEDS); seed++) {
		storm_seed = seed;
		storm_run(seed);
	}
	print_message("%u ends connected, %u learned of the other's end, %u failed, %u rejected, "
		      "%u timewaits\n",
		      seen_connections, seen_lefts, seen_failures, seen_rejects, seen_timewaits);
	if (!only) {
		assert_true(seen_connections > 20 * SEEDS && seen_lefts > 10 * SEEDS);
		assert_true(seen_failures > 0 && seen_rejects > SEEDS && seen_timewaits > SEEDS);
	}
}

/* After a failure: STORM_SEED runs that history alone. */
static int storm_teardown(void **state)
{
	(void)state;
	print_message("last seed: %llu\n", (unsigned long long)storm_seed);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(storm__many_histories, storm_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
