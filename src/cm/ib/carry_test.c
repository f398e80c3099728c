/* carry_test.c: what messages carry to the last byte, alternate paths that nobody wants, two ends
 * that ask each other over a bad network, and a consumer without memory; in virtual time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cm/ib/test_support/net.h"

enum { SIDR_REQ = IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE, SIDR_REP = IB_CM_SIDR_REP_PRIVATE_DATA_SIZE };
enum { SERVICE = 0x1065678, PEERS = 0x777, SEEDS = 40 };

/* A client on host 0, a listener on host 1 and the end that its request makes. */
static struct net_trio trio;
static u8 bytes[256]; /* none of them zero */

static int carry_open(void **state)
{
	(void)state;
	for (u32 i = 0; i < sizeof(bytes); i++)
		bytes[i] = (u8)(i % 255 + 1);
	net_trio_open(&trio, 11, SERVICE);
	return 0;
}

static int carry_close(void **state)
{
	(void)state;
	net_trio_close(&trio);
	return 0;
}

/* The end's last event has so many bytes of private data, and they are those sent. */
static void carried(const struct net_end *end, enum ib_cm_event_type type, u32 size)
{
	net_run_for(NS_PER_MS);
	assert_int_equal(end->last.event, type);
	assert_int_equal(end->last.private_data_len, size);
	assert_memory_equal(end->private_data, bytes, size);
}

static int ask(u8 length)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_req_param req = net_req(&path, SERVICE);

	req.private_data = bytes;
	req.private_data_len = length;
	return ib_send_cm_req(trio.client.id, &req);
}

static int answer(u8 length)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x2222,
				       .private_data = bytes,
				       .private_data_len = length };

	return ib_send_cm_rep(trio.server.id, &rep);
}

static void connect_ends(void)
{
	assert_int_equal(ask(0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(answer(0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.id->state, IB_CM_ESTABLISHED);
}

/* ---- private data ---------------------------------------------------------------------------- */

static void private_data__of_a_handshake(void **state)
{
	assert_int_equal(ask(IB_CM_REQ_PRIVATE_DATA_SIZE + 1), -EINVAL);
	assert_int_equal(ask(IB_CM_REQ_PRIVATE_DATA_SIZE), 0);
	carried(&trio.server, IB_CM_REQ_RECEIVED, IB_CM_REQ_PRIVATE_DATA_SIZE);
	assert_int_equal(ib_send_cm_mra(trio.server.id, 18, bytes, IB_CM_MRA_PRIVATE_DATA_SIZE + 1),
			 -EINVAL);
	assert_int_equal(ib_send_cm_mra(trio.server.id, 18, bytes, IB_CM_MRA_PRIVATE_DATA_SIZE), 0);
	carried(&trio.client, IB_CM_MRA_RECEIVED, IB_CM_MRA_PRIVATE_DATA_SIZE);
	assert_int_equal(answer(IB_CM_REP_PRIVATE_DATA_SIZE + 1), -EINVAL);
	assert_int_equal(answer(IB_CM_REP_PRIVATE_DATA_SIZE), 0);
	carried(&trio.client, IB_CM_REP_RECEIVED, IB_CM_REP_PRIVATE_DATA_SIZE);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, bytes, IB_CM_RTU_PRIVATE_DATA_SIZE + 1),
			 -EINVAL);
	assert_int_equal(ib_send_cm_rtu(trio.client.id, bytes, IB_CM_RTU_PRIVATE_DATA_SIZE), 0);
	carried(&trio.server, IB_CM_RTU_RECEIVED, IB_CM_RTU_PRIVATE_DATA_SIZE);
}

static void private_data__of_leaving(void **state)
{
	connect_ends();
	assert_int_equal(ib_send_cm_dreq(trio.client.id, bytes, IB_CM_DREQ_PRIVATE_DATA_SIZE + 1),
			 -EINVAL);
	assert_int_equal(ib_send_cm_dreq(trio.client.id, bytes, IB_CM_DREQ_PRIVATE_DATA_SIZE), 0);
	carried(&trio.server, IB_CM_DREQ_RECEIVED, IB_CM_DREQ_PRIVATE_DATA_SIZE);
	assert_int_equal(ib_send_cm_drep(trio.server.id, bytes, IB_CM_DREP_PRIVATE_DATA_SIZE + 1),
			 -EINVAL);
	assert_int_equal(ib_send_cm_drep(trio.server.id, bytes, IB_CM_DREP_PRIVATE_DATA_SIZE), 0);
	carried(&trio.client, IB_CM_DREP_RECEIVED, IB_CM_DREP_PRIVATE_DATA_SIZE);
}

static int refuse(u8 ari, u8 length)
{
	return ib_send_cm_rej(trio.server.id, IB_CM_REJ_CONSUMER_DEFINED, bytes, ari, bytes,
			      length);
}

static void private_data__of_a_rejection(void **state)
{
	assert_int_equal(ask(0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(refuse(IB_CM_REJ_ARI_LENGTH + 1, 0), -EINVAL);
	assert_int_equal(refuse(0, IB_CM_REJ_PRIVATE_DATA_SIZE + 1), -EINVAL);
	assert_int_equal(refuse(IB_CM_REJ_ARI_LENGTH, IB_CM_REJ_PRIVATE_DATA_SIZE), 0);
	carried(&trio.client, IB_CM_REJ_RECEIVED, IB_CM_REJ_PRIVATE_DATA_SIZE);
	assert_int_equal(trio.client.last.param.rej_rcvd.ari_length, IB_CM_REJ_ARI_LENGTH);
	assert_memory_equal(trio.client.info, bytes, IB_CM_REJ_ARI_LENGTH);
}

static int agree(u8 info, u8 length)
{
	return ib_send_cm_apr(trio.server.id, IB_CM_APR_SUCCESS, bytes, info, bytes, length);
}

static void private_data__of_an_alternate_path(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);

	connect_ends();
	assert_int_equal(
		ib_send_cm_lap(trio.client.id, &path, bytes, IB_CM_LAP_PRIVATE_DATA_SIZE + 1),
		-EINVAL);
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, bytes, IB_CM_LAP_PRIVATE_DATA_SIZE),
			 0);
	carried(&trio.server, IB_CM_LAP_RECEIVED, IB_CM_LAP_PRIVATE_DATA_SIZE);
	assert_int_equal(agree(IB_CM_APR_INFO_LENGTH + 1, 0), -EINVAL);
	assert_int_equal(agree(0, IB_CM_APR_PRIVATE_DATA_SIZE + 1), -EINVAL);
	assert_int_equal(agree(IB_CM_APR_INFO_LENGTH, IB_CM_APR_PRIVATE_DATA_SIZE), 0);
	carried(&trio.client, IB_CM_APR_RECEIVED, IB_CM_APR_PRIVATE_DATA_SIZE);
	assert_int_equal(trio.client.last.param.apr_rcvd.info_len, IB_CM_APR_INFO_LENGTH);
	assert_memory_equal(trio.client.info, bytes, IB_CM_APR_INFO_LENGTH);
}

static void private_data__of_a_service_id_request(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_cm_sidr_req_param req = { .path = &path,
					    .service_id = htobe64(SERVICE),
					    .timeout_ms = 50,
					    .private_data = bytes,
					    .private_data_len = SIDR_REQ + 1 };
	struct ib_cm_sidr_rep_param rep = { .private_data = bytes,
					    .private_data_len = SIDR_REP + 1,
					    .info = bytes,
					    .info_length = IB_CM_SIDR_REP_INFO_LENGTH };

	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &req), -EINVAL);
	req.private_data_len--;
	assert_int_equal(ib_send_cm_sidr_req(trio.client.id, &req), 0);
	carried(&trio.server, IB_CM_SIDR_REQ_RECEIVED, SIDR_REQ);
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), -EINVAL);
	rep.private_data_len--;
	rep.info_length++;
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), -EINVAL);
	rep.info_length--;
	assert_int_equal(ib_send_cm_sidr_rep(trio.server.id, &rep), 0);
	carried(&trio.client, IB_CM_SIDR_REP_RECEIVED, SIDR_REP);
	assert_int_equal(trio.client.last.param.sidr_rep_rcvd.info_len, IB_CM_SIDR_REP_INFO_LENGTH);
	assert_memory_equal(trio.client.info, bytes, IB_CM_SIDR_REP_INFO_LENGTH);
}

/* ---- alternate paths ------------------------------------------------------------------------- */

/* What the transition to RTS takes from an established connection. */
static int mask_of(struct net_end *end)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTS };
	int mask = 0;

	assert_int_equal(ib_cm_init_qp_attr(end->id, &attr, &mask), 0);
	return mask;
}

/* The connection lives on without it, and another LAP may follow. */
static void alternate__nobody_answers(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);

	connect_ends();
	net.cut = true;
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(20 * NS_PER_S);
	assert_int_equal(trio.client.seen[IB_CM_LAP_ERROR], 1);
	assert_int_equal(trio.client.id->state, IB_CM_ESTABLISHED);
	assert_int_equal(trio.client.id->lap_state, IB_CM_LAP_IDLE);
	net.cut = false;
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_LAP_RECEIVED], 1);
}

static void alternate__is_refused(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);

	connect_ends();
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(
		ib_send_cm_apr(trio.server.id, IB_CM_APR_INVALID_GID, NULL, 0, NULL, 0), 0);
	assert_int_equal(ib_send_cm_apr(trio.server.id, IB_CM_APR_SUCCESS, NULL, 0, NULL, 0),
			 -EINVAL);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.last.param.apr_rcvd.ap_status, IB_CM_APR_INVALID_GID);
	assert_int_equal(mask_of(&trio.client) & IB_QP_ALT_PATH, 0);
	assert_int_equal(mask_of(&trio.server) & IB_QP_ALT_PATH, 0);
	assert_int_equal(ib_cm_notify(trio.client.id, IB_EVENT_PATH_MIG), -EINVAL);
}

/* The CM's own messages follow the connection to its other path. */
static void notify__of_a_migration(void **state)
{
	struct ib_sa_path_rec path = net_path(0, 1);
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTR };
	int mask;

	connect_ends();
	assert_int_equal(ib_cm_notify(trio.client.id, IB_EVENT_PATH_MIG), -EINVAL);
	assert_int_equal(ib_cm_notify(trio.client.id, IB_EVENT_COMM_EST), -EISCONN);
	path.traffic_class = 33;
	assert_int_equal(ib_send_cm_lap(trio.client.id, &path, NULL, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(agree(0, 0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(ib_cm_init_qp_attr(trio.client.id, &attr, &mask), 0);
	assert_int_equal(attr.ah_attr.grh.traffic_class, 0);
	assert_int_equal(ib_cm_notify(trio.client.id, IB_EVENT_PATH_MIG), 0);
	assert_int_equal(ib_cm_init_qp_attr(trio.client.id, &attr, &mask), 0);
	assert_int_equal(attr.ah_attr.grh.traffic_class, 33);
	assert_int_equal(attr.alt_ah_attr.grh.traffic_class, 0);
}

/* ---- two that ask each other ----------------------------------------------------------------- */

static void peer_act(struct net_end *end, struct ib_cm_event *event)
{
	struct ib_cm_rep_param rep = { .qp_num = 0x31 };

	if (event->event == IB_CM_REQ_RECEIVED)
		assert_int_equal(ib_send_cm_rep(end->id, &rep), 0);
	if (event->event == IB_CM_REP_RECEIVED)
		assert_int_equal(ib_send_cm_rtu(end->id, NULL, 0), 0);
}

static void peer_ask(struct net_end *end, u32 from)
{
	struct ib_sa_path_rec path = net_path(from, 1 - from);
	struct ib_cm_req_param req = net_req(&path, PEERS);

	*end = net_end_create(from);
	net_end_bind(end);
	end->act = peer_act;
	req.peer_to_peer = 1;
	assert_int_equal(ib_send_cm_req(end->id, &req), 0);
}

/* Whatever is lost, doubled or late: one connection, of which each end is one side. */
static void peer__crossing_requests_over_a_bad_network(void **state)
{
	struct net_end ends[2];

	net.loss_percent = 20;
	net.duplicate_percent = 20;
	for (u32 seed = 0; seed < SEEDS; seed++) {
		peer_ask(&ends[0], 0);
		peer_ask(&ends[1], 1);
		net_run_for(5 * NS_PER_S);
		for (u32 i = 0; i < 2; i++) {
			assert_int_equal(ends[i].id->state, IB_CM_ESTABLISHED);
			assert_int_equal(ends[i].id->remote_id, ends[1 - i].id->local_id);
		}
		assert_int_equal(ends[0].seen[IB_CM_REQ_RECEIVED], 1);
		assert_int_equal(ends[1].seen[IB_CM_REQ_RECEIVED], 0);
		assert_int_equal(net.hosts[0].listens, 1);
		ib_destroy_cm_id(ends[0].id);
		assert_int_equal(net.hosts[0].listens, 0);
		ib_destroy_cm_id(ends[1].id);
		net_run_for(20 * NS_PER_S);
	}
	net.loss_percent = net.duplicate_percent = 0;
}

/* ---- a consumer without memory --------------------------------------------------------------- */

/* The request counts as lost: its sender asks again, and the handler sees a new one. */
static void listen__a_handler_without_memory(void **state)
{
	trio.server.result = -ENOMEM;
	assert_int_equal(ask(0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 1);
	assert_int_equal(trio.client.total, 0);
	assert_int_equal(cm_id_count(net.hosts[1].cm), 1);
	trio.server.result = 0;
	net_run_for(NS_PER_S / 8);
	assert_int_equal(trio.server.seen[IB_CM_REQ_RECEIVED], 2);
	assert_int_equal(answer(0), 0);
	net_run_for(NS_PER_MS);
	assert_int_equal(trio.client.seen[IB_CM_REP_RECEIVED], 1);
}

#define CARRY(test) cmocka_unit_test_setup_teardown(test, carry_open, carry_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CARRY(private_data__of_a_handshake),
		CARRY(private_data__of_leaving),
		CARRY(private_data__of_a_rejection),
		CARRY(private_data__of_an_alternate_path),
		CARRY(private_data__of_a_service_id_request),
		CARRY(alternate__nobody_answers),
		CARRY(alternate__is_refused),
		CARRY(notify__of_a_migration),
		CARRY(peer__crossing_requests_over_a_bad_network),
		CARRY(listen__a_handler_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
