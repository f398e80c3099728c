/* cm_test.c: connections by the IB CM: within a process, and with another one of the same host.
 * In:    a socket pair for what the two processes must tell each other    Out: -
 * Runs:  the test's thread, the child's main thread, the CM's queue of both
 */
#include "rig.h"

#include <endian.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rdma/ib_cm.h>

enum { SERVICE = 0x0106a000, EVENTS = 18, PSN = 0x4321, BYTES = 2000 };

static int channel; /* to the other process */

static void tell(u8 what)
{
	assert_int_equal(write(channel, &what, 1), 1);
}

static u8 hear(void)
{
	u8 what = 0;

	assert_int_equal(recv(channel, &what, 1, 0), 1);
	return what;
}

/* ---- one end --------------------------------------------------------------------------------- */

struct end {
	struct ib_cm_id *id;
	struct ib_cq *cq;
	struct ib_qp *qp;
	int seen[EVENTS]; /* atomic */
	u32 remote_qpn;
	u8 reason;
	bool refuses;
};

static struct end passive, active;

static struct ib_sa_path_rec path_here(void)
{
	return (struct ib_sa_path_rec){ .dgid = rig.gid,
					.sgid = rig.gid,
					.hop_limit = 64,
					.reversible = 1,
					.pkey = htobe16(0xffff),
					.mtu = IB_MTU_1024,
					.rate = IB_RATE_100_GBPS,
					.packet_life_time = rig_timeout() };
}

static void make_queue_pair(struct end *e)
{
	e->cq = rig_cq(256);
	e->qp = rig_qp(IB_QPT_RC, e->cq, e->cq, NULL);
}

static void move(struct end *e, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask;

	assert_int_equal(ib_cm_init_qp_attr(e->id, &attr, &mask), 0);
	if (e == &passive && state == IB_QPS_RTR)
		attr.rq_psn = PSN; /* the CM learns it by the REP */
	assert_int_equal(ib_modify_qp(e->qp, &attr, mask), 0);
}

static void close_end(struct end *e)
{
	if (e->id != NULL)
		ib_destroy_cm_id(e->id);
	if (e->qp != NULL) {
		assert_int_equal(ib_destroy_qp(e->qp), 0);
		assert_int_equal(ib_destroy_cq(e->cq), 0);
	}
	memset(e, 0, sizeof(*e));
}

/* Accepts, from inside the handler. */
static void accept_request(struct end *e, struct ib_cm_id *id)
{
	struct ib_cm_rep_param rep = { .starting_psn = PSN,
				       .private_data = "yes",
				       .private_data_len = 3,
				       .responder_resources = 4,
				       .initiator_depth = 4,
				       .rnr_retry_count = 7 };

	make_queue_pair(e);
	move(e, IB_QPS_INIT);
	move(e, IB_QPS_RTR);
	move(e, IB_QPS_RTS);
	rig_recv(e->qp, 1, 0, BYTES);
	rep.qp_num = e->qp->qp_num;
	assert_int_equal(ib_send_cm_rep(id, &rep), 0);
}

static int on_passive(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct end *e = &passive;

	if (event->event == IB_CM_REQ_RECEIVED && e->refuses) {
		assert_memory_equal(event->private_data, "please\0", 7);
		return ib_send_cm_rej(id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, "no", 2) == 0;
	}
	if (event->event == IB_CM_REQ_RECEIVED) {
		e->id = id;
		e->remote_qpn = event->param.req_rcvd.remote_qpn;
		accept_request(e, id);
	}
	if (event->event == IB_CM_DREQ_RECEIVED)
		assert_int_equal(ib_send_cm_drep(id, NULL, 0), 0);
	count_add(&e->seen[event->event]);
	return 0;
}

static int on_active(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct end *e = &active;

	if (event->event == IB_CM_REP_RECEIVED) {
		e->remote_qpn = event->param.rep_rcvd.remote_qpn;
		assert_memory_equal(event->private_data, "yes\0", 4);
		move(e, IB_QPS_RTR);
		move(e, IB_QPS_RTS);
		assert_int_equal(ib_send_cm_rtu(id, NULL, 0), 0);
	}
	if (event->event == IB_CM_REJ_RECEIVED)
		e->reason = (u8)event->param.rej_rcvd.reason;
	if (event->event == IB_CM_DREQ_RECEIVED)
		assert_int_equal(ib_send_cm_drep(id, NULL, 0), 0);
	count_add(&e->seen[event->event]);
	return 0;
}

static struct ib_cm_id *listen_here(u64 service_id)
{
	struct ib_cm_id *id = rig_ok(ib_create_cm_id(rig.dev, on_passive, NULL));

	assert_int_equal(ib_cm_listen(id, htobe64(service_id), 0, NULL), 0);
	return id;
}

static void ask(u64 service_id)
{
	struct ib_sa_path_rec path = path_here();
	struct ib_cm_req_param req = { .primary_path = &path,
				       .service_id = htobe64(service_id),
				       .qp_type = IB_QPT_RC,
				       .starting_psn = PSN + 1,
				       .private_data = "please",
				       .private_data_len = 6,
				       .responder_resources = 4,
				       .initiator_depth = 4,
				       .remote_cm_response_timeout = 18,
				       .local_cm_response_timeout = 18,
				       .retry_count = 7,
				       .rnr_retry_count = 7,
				       .max_cm_retries = 15 };

	active.id = rig_ok(ib_create_cm_id(rig.dev, on_active, NULL));
	make_queue_pair(&active);
	req.qp_num = active.qp->qp_num;
	/* The answer may be here before the next line, and goes on from INIT. */
	assert_int_equal(rig_try_init(active.qp), 0);
	assert_int_equal(ib_send_cm_req(active.id, &req), 0);
}

/* ---- one process ----------------------------------------------------------------------------- */

static void cm__connects_queue_pairs_of_one_process(void **state)
{
	struct ib_cm_id *listener = listen_here(SERVICE + 1);
	struct ib_wc wc[2];

	ask(SERVICE + 1);
	assert_true(rig_await(&passive.seen[IB_CM_RTU_RECEIVED], 1));
	assert_int_equal(active.remote_qpn, passive.qp->qp_num);
	assert_int_equal(passive.remote_qpn, active.qp->qp_num);
	rig_send_bytes(active.qp, 2, BYTES, BYTES, 0);
	assert_int_equal(rig_poll(passive.cq, 1, wc, RIG_WAIT_MS), 1);
	assert_int_equal(wc[0].byte_len, BYTES);
	assert_int_equal(ib_send_cm_dreq(passive.id, NULL, 0), 0);
	assert_true(rig_await(&passive.seen[IB_CM_DREP_RECEIVED], 1));
	assert_true(rig_await(&active.seen[IB_CM_DREQ_RECEIVED], 1));
	ib_destroy_cm_id(listener);
	close_end(&active);
	close_end(&passive);
}

/* ---- two ids that ask each other ---- */

static int on_peer(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x1000 };
	int *made = id->context;

	if (event->event == IB_CM_REQ_RECEIVED)
		assert_int_equal(ib_send_cm_rep(id, &rep), 0);
	if (event->event == IB_CM_REP_RECEIVED)
		assert_int_equal(ib_send_cm_rtu(id, NULL, 0), 0);
	if (event->event == IB_CM_REP_RECEIVED || event->event == IB_CM_RTU_RECEIVED)
		count_add(made);
	return 0;
}

static struct ib_cm_id *ask_peer(u32 qpn, int *made)
{
	struct ib_cm_id *id = rig_ok(ib_create_cm_id(rig.dev, on_peer, made));
	struct ib_sa_path_rec path = path_here();
	struct ib_cm_req_param req = { .primary_path = &path,
				       .service_id = htobe64(SERVICE + 3),
				       .qp_num = qpn,
				       .qp_type = IB_QPT_RC,
				       .peer_to_peer = 1,
				       .remote_cm_response_timeout = 14,
				       .local_cm_response_timeout = 18,
				       .max_cm_retries = 15 };

	assert_int_equal(ib_send_cm_req(id, &req), 0);
	return id;
}

/* Their REQs cross, and one connection is made, whichever asks first. */
static void cm__connects_peers_of_one_process(void **state)
{
	struct ib_cm_id *ids[2];

	for (u32 first = 0; first < 2; first++) {
		int made = 0;

		for (u32 i = 0; i < 2; i++)
			ids[i] = ask_peer(0x100 + 16 * first + (i ^ first), &made);
		assert_true(rig_await(&made, 2));
		assert_int_equal(ids[0]->remote_id, ids[1]->local_id);
		assert_int_equal(ids[1]->remote_id, ids[0]->local_id);
		ib_destroy_cm_id(ids[0]);
		ib_destroy_cm_id(ids[1]);
	}
}

static void cm__nobody_listens(void **state)
{
	if (rig_on_wire())
		skip(); /* as from another host: there is no process to answer */
	ask(SERVICE + 2);
	assert_true(rig_await(&active.seen[IB_CM_REJ_RECEIVED], 1));
	assert_int_equal(active.reason, IB_CM_REJ_INVALID_SERVICE_ID);
	close_end(&active);
}

/* ---- two processes --------------------------------------------------------------------------- */

enum { ACCEPT = 1, REFUSE, ENDED, PEER, PEER_FIRST };

static void child_accept(void)
{
	struct ib_cm_id *listener = listen_here(SERVICE);
	struct ib_wc wc;

	tell(ACCEPT);
	assert_true(rig_await(&passive.seen[IB_CM_REQ_RECEIVED], 1));
	assert_int_equal(rig_poll(passive.cq, 1, &wc, RIG_WAIT_MS), 1);
	assert_int_equal(wc.status, IB_WC_SUCCESS);
	assert_int_equal(wc.byte_len, BYTES);
	for (u32 i = 0; i < BYTES; i++)
		assert_int_equal(rig.buf[i], (u8)(i * 3));
	assert_true(rig_await(&passive.seen[IB_CM_DREQ_RECEIVED], 1));
	close_end(&passive);
	ib_destroy_cm_id(listener);
}

static void child_refuse(void)
{
	struct ib_cm_id *listener;

	passive.refuses = true;
	listener = listen_here(SERVICE);
	tell(REFUSE);
	assert_int_equal(hear(), ENDED);
	ib_destroy_cm_id(listener);
	memset(&passive, 0, sizeof(passive));
}

static void cm__connects_two_processes(void **state)
{
	tell(ACCEPT);
	assert_int_equal(hear(), ACCEPT);
	for (u32 i = 0; i < BYTES; i++)
		rig.buf[i] = (u8)(i * 3);
	ask(SERVICE);
	assert_true(rig_await(&active.seen[IB_CM_REP_RECEIVED], 1));
	rig_send_bytes(active.qp, 2, 0, BYTES, 0);
	rig_expect(active.cq, IB_WC_SUCCESS);
	assert_int_equal(ib_send_cm_dreq(active.id, NULL, 0), 0);
	assert_true(rig_await(&active.seen[IB_CM_DREP_RECEIVED], 1));
	close_end(&active);
}

static void cm__refused_by_another_process(void **state)
{
	tell(REFUSE);
	assert_int_equal(hear(), REFUSE);
	ask(SERVICE);
	assert_true(rig_await(&active.seen[IB_CM_REJ_RECEIVED], 1));
	assert_int_equal(active.reason, IB_CM_REJ_CONSUMER_DEFINED);
	tell(ENDED);
	close_end(&active);
}

/* Asks, and waits until the connection is made; the one that has asked first does so when the other
 * one still does nothing. */
static void meet_peer(u32 qpn, bool first)
{
	struct ib_cm_id *id;
	int made = 0;

	if (!first)
		assert_int_equal(hear(), PEER);
	id = ask_peer(qpn, &made);
	if (first)
		tell(PEER);
	assert_true(rig_await(&made, 1));
	/* both are connected before one leaves */
	tell(ENDED);
	assert_int_equal(hear(), ENDED);
	ib_destroy_cm_id(id);
	tell(ENDED);
	assert_int_equal(hear(), ENDED);
}

/* Their REQs cross, whichever asks first and whichever of both REQs counts. */
static void cm__connects_peers_of_two_processes(void **state)
{
	for (u32 i = 0; i < 4; i++) {
		tell(i % 2 == 0 ? PEER : PEER_FIRST);
		meet_peer(0x200 + 16 * i + (i / 2 == 0 ? 1 : 3), i % 2 == 0);
	}
}

/* ---- the other process ----------------------------------------------------------------------- */

static void child_meet(bool first)
{
	static u32 rounds;

	meet_peer(0x200 + 16 * rounds++ + 2, first);
}

static void child_main(void)
{
	u8 what;

	if (rig_group_setup(NULL))
		_exit(3);
	while (recv(channel, &what, 1, 0) == 1) {
		if (what == ACCEPT)
			child_accept();
		else if (what == REFUSE)
			child_refuse();
		else
			child_meet(what == PEER_FIRST);
	}
	_exit(rig_group_teardown(NULL) ? 4 : 0);
}

static void fork_peer(void)
{
	rig_fork_peer(&channel, child_main);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(cm__connects_queue_pairs_of_one_process),
		cmocka_unit_test(cm__connects_peers_of_one_process),
		cmocka_unit_test(cm__nobody_listens),
		cmocka_unit_test(cm__connects_two_processes),
		cmocka_unit_test(cm__refused_by_another_process),
		cmocka_unit_test(cm__connects_peers_of_two_processes),
	};

	return rig_run(tests, sizeof(tests) / sizeof(tests[0]), fork_peer);
}
