/* options_test.c: options that reach queue pairs, private data to the last byte, backlogs, and the
 * status of each way to say no.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

#include "cm.h"

enum { TOS = 0x60, ACK_TIMEOUT = 13, QUIET_MS = 300, AGAIN_MS = 20000, CONSUMER = 28 };

static const struct rdma_conn_param plain = { .retry_count = 7, .rnr_retry_count = 7 };
static char bytes[256]; /* none of them zero */

static void ask(struct ends *e, uint8_t length)
{
	struct rdma_conn_param param = plain;

	memset(bytes, 'x', sizeof(bytes));
	param.private_data = bytes;
	param.private_data_len = length;
	assert_int_equal(rdma_connect(e->client, &param), 0);
}

/* The request for the listener, acknowledged; the last of `length` bytes of private data is there.
 */
static void take(struct ends *e, uint8_t length)
{
	struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	const char *data = e->client->qp_type == IBV_QPT_UD ? event->param.ud.private_data
							    : event->param.conn.private_data;

	assert_ptr_equal(event->listen_id, e->listener);
	e->server = event->id;
	if (length > 0)
		assert_int_equal(data[length - 1], 'x');
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

static void prepare(struct ends *e, enum rdma_port_space ps)
{
	make_listener(e, ps);
	make_client(e, ps);
	make_qp(e->client);
}

static void accept_and_wait(struct ends *e)
{
	struct rdma_conn_param param = plain;

	make_qp(e->server);
	assert_int_equal(rdma_accept(e->server, &param), 0);
	for (int i = 0; i < 2; i++)
		rdma_ack_cm_event(event_of(channel, RDMA_CM_EVENT_ESTABLISHED));
}

/* The client's next event, with its status. */
static void expect_status(struct ends *e, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event = event_of(channel, type);

	assert_ptr_equal(event->id, e->client);
	assert_int_equal(event->status, status);
	assert_int_equal(rdma_ack_cm_event(event), 0);
}

/* ---- options --------------------------------------------------------------------------------- */

static struct ibv_qp_attr attributes(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init), 0);
	return attr;
}

/* The client's choice is on both ways: the REQ says it to the server. */
static void rdma_set_option__tos_reaches_both_queue_pairs(void **state)
{
	uint8_t tos = TOS;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	assert_int_equal(rdma_create_id(channel, &e.client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_set_option(e.client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	resolve(e.client, ntohs(rdma_get_src_port(e.listener)));
	make_qp(e.client);
	assert_int_equal(e.client->route.path_rec->traffic_class, TOS);
	ask(&e, 0);
	take(&e, 0);
	accept_and_wait(&e);
	assert_int_equal(attributes(e.client).ah_attr.grh.traffic_class, TOS);
	assert_int_equal(attributes(e.server).ah_attr.grh.traffic_class, TOS);
	destroy_all(&e);
}

/* Each side's own. */
static void rdma_set_option__ack_timeout_reaches_the_queue_pair(void **state)
{
	uint8_t client = ACK_TIMEOUT, server = ACK_TIMEOUT + 1;
	struct ends e;

	prepare(&e, RDMA_PS_TCP);
	ask(&e, 0);
	take(&e, 0);
	assert_int_equal(rdma_set_option(e.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
					 &client, 1),
			 0);
	assert_int_equal(rdma_set_option(e.server, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
					 &server, 1),
			 0);
	accept_and_wait(&e);
	assert_int_equal(attributes(e.client).timeout, ACK_TIMEOUT);
	assert_int_equal(attributes(e.server).timeout, ACK_TIMEOUT + 1);
	destroy_all(&e);
}

/* Of the path, from which the peer takes its own Local ACK Timeout. */
static void rdma_set_option__ack_timeout_is_the_paths_life_time(void **state)
{
	uint8_t timeout = ACK_TIMEOUT;
	struct rdma_cm_id *id;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
		if (i > 0)
			assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID,
							 RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1),
					 0);
		resolve(id, 7471);
		assert_int_equal(id->route.path_rec->packet_life_time,
				 i > 0 ? ACK_TIMEOUT - 1 : 18);
		assert_int_equal(rdma_destroy_id(id), 0);
	}
}

/* An IPv6 source has a flow label, which becomes the path's. */
static void rdma_resolve_addr__takes_the_flow_label_of_its_source(void **state)
{
	struct sockaddr_in6 from = { .sin6_family = AF_INET6,
				     .sin6_addr = IN6ADDR_LOOPBACK_INIT,
				     .sin6_flowinfo = htonl(0x0ff12345) },
			    to = { .sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT,
				   .sin6_port = htons(7471) };
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to,
					   1000),
			 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
	assert_int_equal(be32toh(id->route.path_rec->flow_label), 0x12345);
	assert_int_equal(id->route.path_rec->traffic_class, 0);
	assert_int_equal(rdma_destroy_id(id), 0);
}

static struct rdma_cm_id *id_with(int option)
{
	struct rdma_cm_id *id;
	int on = 1;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	if (option >= 0)
		assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, option, &on, sizeof(on)), 0);
	return id;
}

/* Both must say so, and none may listen beside another. */
static void rdma_set_option__reuseaddr_shares_a_port(void **state)
{
	struct rdma_cm_id *first = id_with(RDMA_OPTION_ID_REUSEADDR);
	struct rdma_cm_id *second = id_with(RDMA_OPTION_ID_REUSEADDR), *third = id_with(-1);
	int port;

	assert_int_equal(rdma_bind_addr(first, local(0)), 0);
	port = ntohs(rdma_get_src_port(first));
	assert_int_equal(rdma_bind_addr(second, local(port)), 0);
	fails(rdma_bind_addr(third, local(port)), EADDRINUSE);
	fails(rdma_listen(first, 1), EADDRINUSE);
	assert_int_equal(rdma_destroy_id(second), 0);
	assert_int_equal(rdma_listen(first, 1), 0);
	second = id_with(RDMA_OPTION_ID_REUSEADDR);
	fails(rdma_bind_addr(second, local(port)), EADDRINUSE);
	assert_int_equal(rdma_destroy_id(second), 0);
	assert_int_equal(rdma_destroy_id(third), 0);
	assert_int_equal(rdma_destroy_id(first), 0);
}

/* The wildcard of IPv6 leaves IPv4's to others, if it says so. */
static void rdma_set_option__afonly_leaves_the_other_family(void **state)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct rdma_cm_id *six = id_with(RDMA_OPTION_ID_AFONLY), *four = id_with(-1);

	assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any6), 0);
	any4.sin_port = any6.sin6_port = rdma_get_src_port(six);
	assert_int_equal(rdma_bind_addr(four, (struct sockaddr *)&any4), 0);
	assert_int_equal(rdma_destroy_id(four), 0);
	assert_int_equal(rdma_destroy_id(six), 0);
	six = id_with(-1);
	four = id_with(-1);
	any6.sin6_port = 0;
	assert_int_equal(rdma_bind_addr(six, (struct sockaddr *)&any6), 0);
	any4.sin_port = rdma_get_src_port(six);
	fails(rdma_bind_addr(four, (struct sockaddr *)&any4), EADDRINUSE);
	assert_int_equal(rdma_destroy_id(four), 0);
	assert_int_equal(rdma_destroy_id(six), 0);
}

/* ---- private data ---------------------------------------------------------------------------- */

/* How much each message takes, by the port space of its ids. */
static const struct limits {
	enum rdma_port_space ps;
	uint8_t request, answer, refusal;
} limits[] = {
	{ RDMA_PS_TCP, 56, 196, 148 },
	{ RDMA_PS_UDP, 180, 136, 136 },
};

static void rdma_connect__takes_private_data_to_the_last_byte(void **state)
{
	struct rdma_conn_param param = plain;
	struct ends e;

	for (int i = 0; i < 2; i++) {
		prepare(&e, limits[i].ps);
		param.private_data = bytes;
		param.private_data_len = limits[i].request + 1;
		fails(rdma_connect(e.client, &param), EINVAL);
		ask(&e, limits[i].request);
		take(&e, limits[i].request);
		fails(rdma_reject(e.server, bytes, limits[i].refusal + 1), EINVAL);
		assert_int_equal(rdma_reject(e.server, bytes, limits[i].refusal), 0);
		rdma_ack_cm_event(event_of(channel, i == 0 ? RDMA_CM_EVENT_REJECTED
							   : RDMA_CM_EVENT_UNREACHABLE));
		destroy_all(&e);
	}
}

/* An answer that is too long refuses the request. */
static void rdma_accept__takes_private_data_to_the_last_byte(void **state)
{
	struct rdma_conn_param param = plain;
	struct rdma_cm_event *event;
	struct ends e;

	for (int i = 0; i < 4; i++) {
		const struct limits *l = &limits[i / 2];
		bool fits = i % 2 == 0;

		prepare(&e, l->ps);
		ask(&e, 0);
		take(&e, 0);
		make_qp(e.server);
		param.private_data = bytes;
		param.private_data_len = l->answer + !fits;
		if (!fits) {
			fails(rdma_accept(e.server, &param), EINVAL);
			destroy_all(&e);
			continue;
		}
		assert_int_equal(rdma_accept(e.server, &param), 0);
		do {
			event = event_of(channel, RDMA_CM_EVENT_ESTABLISHED);
			if (event->id == e.client && l->ps == RDMA_PS_TCP)
				assert_memory_equal(event->param.conn.private_data, bytes,
						    l->answer);
			else if (event->id == e.client)
				assert_memory_equal(event->param.ud.private_data, bytes, l->answer);
		} while (event->id != e.client && rdma_ack_cm_event(event) == 0);
		rdma_ack_cm_event(event);
		destroy_all(&e);
		end(NULL);
		begin(NULL);
	}
}

/* ---- ways to say no -------------------------------------------------------------------------- */

static void rdma_get_cm_event__says_the_reason_of_a_rejection(void **state)
{
	struct ends e;

	/* by the consumer */
	prepare(&e, RDMA_PS_TCP);
	ask(&e, 0);
	take(&e, 0);
	assert_int_equal(rdma_reject(e.server, NULL, 0), 0);
	expect_status(&e, RDMA_CM_EVENT_REJECTED, 28);
	destroy_all(&e);
	/* by an id that ends unanswered */
	prepare(&e, RDMA_PS_TCP);
	ask(&e, 0);
	take(&e, 0);
	destroy(e.server);
	e.server = NULL;
	expect_status(&e, RDMA_CM_EVENT_REJECTED, 28);
	destroy_all(&e);
	/* for options of a vendor */
	prepare(&e, RDMA_PS_TCP);
	ask(&e, 0);
	take(&e, 0);
	assert_int_equal(rdma_reject_ece(e.server, NULL, 0), 0);
	expect_status(&e, RDMA_CM_EVENT_REJECTED, 35);
	destroy_all(&e);
}

/* A datagram id is told with the status of the answer (SIDR). */
static void rdma_get_cm_event__says_the_status_of_a_datagram_answer(void **state)
{
	struct ends e, other;

	prepare(&e, RDMA_PS_UDP);
	ask(&e, 0);
	take(&e, 0);
	assert_int_equal(rdma_reject(e.server, NULL, 0), 0);
	expect_status(&e, RDMA_CM_EVENT_UNREACHABLE, 2);
	destroy_all(&e);
	/* over UDP somebody must be there who answers for the node */
	make_listener(&other, RDMA_PS_UDP);
	prepare(&e, RDMA_PS_UDP);
	destroy(e.listener);
	e.listener = NULL;
	ask(&e, 0);
	expect_status(&e, RDMA_CM_EVENT_UNREACHABLE, 1);
	destroy_all(&e);
	destroy_all(&other);
}

/* ---- backlog --------------------------------------------------------------------------------- */

/* A server with a backlog of one that takes its time: the second client is not refused, but asks
 * again, and connects. */
static void rdma_listen__clients_wait_for_a_full_backlog(void **state)
{
	struct rdma_event_channel *slow = rdma_create_event_channel();
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct pollfd q = { .fd = slow->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct rdma_cm_id *request[2];
	struct ends e, second;

	memset(&e, 0, sizeof(e));
	memset(&second, 0, sizeof(second));
	assert_int_equal(rdma_create_id(slow, &e.listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(e.listener, local(0)), 0);
	assert_int_equal(rdma_listen(e.listener, 1), 0);
	second.listener = e.listener;
	make_client(&e, RDMA_PS_TCP);
	make_client(&second, RDMA_PS_TCP);
	make_qp(e.client);
	make_qp(second.client);
	ask(&e, 0);
	assert_int_equal(poll(&q, 1, EVENT_MS), 1);
	ask(&second, 0);
	assert_int_equal(poll(&p, 1, QUIET_MS), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(poll(&q, 1, AGAIN_MS), 1);
		assert_int_equal(rdma_get_cm_event(slow, &event), 0);
		assert_int_equal(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		request[i] = event->id;
		assert_int_equal(rdma_ack_cm_event(event), 0);
	}
	assert_int_equal(poll(&p, 1, 0), 0);
	destroy(request[0]);
	destroy(request[1]);
	for (int i = 0; i < 2; i++)
		rdma_ack_cm_event(event_of(channel, RDMA_CM_EVENT_REJECTED));
	second.listener = NULL;
	destroy_all(&second);
	destroy_all(&e);
	rdma_destroy_event_channel(slow);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

/* What the verbs do not have is refused where they are asked for it. */
static void rdma_create_ep__refuses_what_the_verbs_lack(void **state)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_ece ece = { .vendor_id = 0x15b3 };
	struct rdma_cm_id *id;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	fails(rdma_set_local_ece(id, &ece), EOPNOTSUPP);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void rdma_create_ep__makes_an_initiator_of_xrc(void **state)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP,
				       .ai_qp_type = IBV_QPT_XRC_SEND },
			     *res;
	struct ibv_qp_init_attr init = { .cap = { 1, 0, 1, 0, 0 } };
	struct rdma_cm_id *id;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&id, res, NULL, &init), 0);
	assert_int_equal(id->qp->qp_type, IBV_QPT_XRC_SEND);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

/* A shared receive queue of the endpoint's: its queue pair receives from there. */
static void rdma_create_ep__takes_a_shared_receive_queue(void **state)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1, 0 } }, said;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_attr attr;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&id, res, NULL, NULL), 0);
	assert_int_equal(rdma_create_srq(id, NULL, &srq), 0);
	init.qp_type = IBV_QPT_RC;
	assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
	assert_ptr_equal(id->qp->srq, id->srq);
	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_CAP, &said), 0);
	assert_ptr_equal(said.srq, id->srq);
	/* the library's completion queues go with the last that uses them */
	rdma_destroy_qp(id);
	assert_non_null(id->recv_cq);
	rdma_destroy_srq(id);
	assert_null(id->recv_cq);
	assert_null(id->send_cq);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

/* A depth that the server leaves open is what the client has asked for, and no more. */
static void rdma_accept__leaves_no_depth_beyond_the_clients(void **state)
{
	struct rdma_conn_param param = plain;
	struct rdma_cm_event *event;
	struct ibv_qp_attr attr;
	struct ends e;

	prepare(&e, RDMA_PS_TCP);
	param.initiator_depth = 3;
	param.responder_resources = 2;
	assert_int_equal(rdma_connect(e.client, &param), 0);
	take(&e, 0);
	make_qp(e.server);
	param.initiator_depth = RDMA_MAX_INIT_DEPTH;
	param.responder_resources = RDMA_MAX_RESP_RES;
	assert_int_equal(rdma_accept(e.server, &param), 0);
	for (int i = 0; i < 2; i++) {
		event = event_of(channel, RDMA_CM_EVENT_ESTABLISHED);
		if (event->id == e.client) {
			assert_int_equal(event->param.conn.responder_resources, 2);
			assert_int_equal(event->param.conn.initiator_depth, 3);
		}
		rdma_ack_cm_event(event);
	}
	attr = attributes(e.server);
	assert_int_equal(attr.max_rd_atomic, 2);
	assert_int_equal(attr.max_dest_rd_atomic, 3);
	destroy_all(&e);
}

/* The client hears at once that the server could not make the queue pair. */
static void rdma_get_request__without_a_queue_pair_refuses(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct ibv_qp_init_attr too_large = { .cap = { .max_send_wr = 1,
						       .max_recv_wr = 1,
						       .max_send_sge = UINT32_MAX } };
	struct rdma_cm_id *request = NULL;
	struct rdma_addrinfo *res;
	struct ends e = { 0 };

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "0", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&e.listener, res, NULL, &too_large), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_listen(e.listener, 0), 0);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	ask(&e, 0);
	assert_int_equal(rdma_get_request(e.listener, &request), -1);
	assert_null(request);
	expect_status(&e, RDMA_CM_EVENT_REJECTED, CONSUMER);
	rdma_destroy_ep(e.listener);
	e.listener = NULL;
	destroy_all(&e);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rdma_set_option__tos_reaches_both_queue_pairs),
		TEST(rdma_set_option__ack_timeout_is_the_paths_life_time),
		TEST(rdma_resolve_addr__takes_the_flow_label_of_its_source),
		TEST(rdma_set_option__ack_timeout_reaches_the_queue_pair),
		TEST(rdma_set_option__reuseaddr_shares_a_port),
		TEST(rdma_set_option__afonly_leaves_the_other_family),
		TEST(rdma_connect__takes_private_data_to_the_last_byte),
		TEST(rdma_accept__takes_private_data_to_the_last_byte),
		TEST(rdma_get_cm_event__says_the_reason_of_a_rejection),
		TEST(rdma_get_cm_event__says_the_status_of_a_datagram_answer),
		TEST(rdma_listen__clients_wait_for_a_full_backlog),
		TEST(rdma_create_ep__refuses_what_the_verbs_lack),
		TEST(rdma_create_ep__makes_an_initiator_of_xrc),
		TEST(rdma_create_ep__takes_a_shared_receive_queue),
		TEST(rdma_accept__leaves_no_depth_beyond_the_clients),
		TEST(rdma_get_request__without_a_queue_pair_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
