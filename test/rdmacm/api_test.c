/* api_test.c: librdmacm as programs use it: events, ids and their fields, errno, ports. Both ends
 * are this process, which connects to itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "cm.h"

enum { RIVALS = 100, PORT_OF_RIVALS = 7399, PORT_OF_NOBODY = 7398, LAST_EVENTS = 5 };

/* ---- a connection ---------------------------------------------------------------------------- */

/* The request for the listener: its id, with the private data that the client sent. */
static struct rdma_cm_id *take_request(struct ends *e, const char *data, size_t room)
{
	struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	assert_ptr_equal(event->listen_id, e->listener);
	assert_ptr_equal(id->context, e);
	if (id->qp_type == IBV_QPT_RC) {
		assert_int_equal(event->param.conn.private_data_len, room);
		assert_string_equal(event->param.conn.private_data, data);
		assert_int_equal(event->param.conn.responder_resources, 3);
		assert_int_equal(event->param.conn.initiator_depth, 2);
	} else {
		assert_int_equal(event->param.ud.private_data_len, room);
		assert_string_equal(event->param.ud.private_data, data);
	}
	assert_int_equal(rdma_get_dst_port(id), rdma_get_src_port(e->client));
	assert_int_equal(rdma_get_src_port(id), rdma_get_src_port(e->listener));
	assert_non_null(id->verbs);
	assert_int_equal(rdma_ack_cm_event(event), 0);
	return id;
}

static void request(struct ends *e)
{
	struct rdma_conn_param param = { .private_data = "from the client",
					 .private_data_len = 16,
					 .responder_resources = 2,
					 .initiator_depth = 3,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };

	assert_int_equal(rdma_connect(e->client, &param), 0);
}

/* Both ESTABLISHED, in any order; the client's has the server's private data. */
static void take_established(struct ends *e, const char *data)
{
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_ESTABLISHED);

		if (event->id == e->client) {
			assert_int_equal(event->param.conn.private_data_len, 196);
			assert_string_equal(event->param.conn.private_data, data);
		} else {
			assert_ptr_equal(event->id, e->server);
		}
		rdma_ack_cm_event(event);
	}
}

static void connect_ends(struct ends *e)
{
	struct rdma_conn_param param = { .private_data = "from the server",
					 .private_data_len = 16,
					 .responder_resources = 3,
					 .initiator_depth = 2,
					 .rnr_retry_count = 7 };

	make_listener(e, RDMA_PS_TCP);
	make_client(e, RDMA_PS_TCP);
	make_qp(e->client);
	request(e);
	e->server = take_request(e, "from the client", 56);
	make_qp(e->server);
	assert_int_equal(rdma_accept(e->server, &param), 0);
	take_established(e, "from the server");
}

static void transfer(struct rdma_cm_id *from, struct rdma_cm_id *to)
{
	char out[64] = "a message", in[64] = "";
	struct ibv_mr *mr_out = rdma_reg_msgs(from, out, sizeof(out));
	struct ibv_mr *mr_in = rdma_reg_msgs(to, in, sizeof(in));
	struct ibv_wc wc;

	assert_non_null(mr_out);
	assert_non_null(mr_in);
	assert_int_equal(rdma_post_recv(to, NULL, in, sizeof(in), mr_in), 0);
	assert_int_equal(rdma_post_send(from, NULL, out, sizeof(out), mr_out, 0), 0);
	assert_int_equal(rdma_get_recv_comp(to, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(in, "a message");
	assert_int_equal(rdma_get_send_comp(from, &wc), 1);
	rdma_dereg_mr(mr_out);
	rdma_dereg_mr(mr_in);
}

/* The fields of a resolved id are those that librdmacm fills. */
/* As Linux's: a loopback address that no device has binds to none. It listens on all of them, and
 * the first one leads out of it. libfabric takes such an id for one without an address. */
static void rdma_bind_addr__to_localhost_binds_no_device(void **state)
{
	struct rdma_cm_id *id;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	assert_null(e.listener->verbs);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, local(0)), 0);
	assert_null(id->verbs);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	resolve(id, ntohs(rdma_get_src_port(e.listener)));
	assert_non_null(id->verbs);
	destroy(id);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	assert_non_null(id->verbs);
	destroy(id);
	destroy_all(&e);
}

/* An id that cannot have its port is as new: bound to the wildcard then, it has no device. */
static void rdma_bind_addr__that_fails_binds_no_device(void **state)
{
	struct rdma_cm_id *id, *other;
	uint16_t port;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	port = ntohs(rdma_get_src_port(id));
	assert_int_equal(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), 0);
	fails(rdma_bind_addr(other, address_of("roce0", port)), EADDRINUSE);
	assert_int_equal(rdma_bind_addr(other, local(0)), 0);
	assert_null(other->verbs);
	destroy(other);
	destroy(id);
}

/* Binds an id in each of three port spaces to one port; false: a space has it in use. */
static bool bind_in_each_port_space(void)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_UDP, RDMA_PS_IPOIB, RDMA_PS_TCP };
	struct rdma_cm_id *ids[3];
	uint16_t port = 0;
	int bound = 0;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(rdma_create_id(channel, &ids[i], NULL, spaces[i]), 0);
		if (rdma_bind_addr(ids[i], local(port)) == 0)
			bound++;
		port = ntohs(rdma_get_src_port(ids[0]));
	}
	for (int i = 0; i < 3; i++)
		destroy(ids[i]);
	return bound == 3;
}

/* Each port space has its own numbers. Another program may have one of them, but not eight. */
static void rdma_bind_addr__of_each_port_space(void **state)
{
	bool bound = false;

	for (int i = 0; !bound && i < 8; i++)
		bound = bind_in_each_port_space();
	assert_true(bound);
}

/* The completion queues that a failed call has made are gone: the next one brings its own. */
static void rdma_create_qp__that_fails_leaves_no_queues(void **state)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = UINT32_MAX },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	assert_int_equal(rdma_create_qp(id, NULL, &init), -1);
	assert_null(id->send_cq);
	assert_null(id->recv_cq);
	assert_null(id->send_cq_channel);
	assert_null(id->recv_cq_channel);
	make_qp(id);
	rdma_destroy_qp(id);
	destroy(id);
}

static void rdma_resolve_route__fills_the_id(void **state)
{
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	assert_non_null(e.client->verbs);
	assert_int_equal(e.client->port_num, 1);
	assert_int_equal(e.client->route.num_paths, 1);
	assert_int_equal(e.client->route.path_rec->pkey, 0xffff);
	assert_memory_equal(&e.client->route.path_rec->sgid, &e.client->route.addr.addr.ibaddr.sgid,
			    16);
	assert_int_equal(e.client->route.addr.src_addr.sa_family, AF_INET);
	assert_in_range(ntohs(rdma_get_src_port(e.client)), 32768, 60999);
	assert_int_equal(rdma_get_dst_port(e.client), rdma_get_src_port(e.listener));
	destroy_all(&e);
}

static void rdma_connect__carries_messages_until_both_leave(void **state)
{
	struct ends e;

	connect_ends(&e);
	transfer(e.client, e.server);
	transfer(e.server, e.client);
	assert_int_equal(rdma_disconnect(e.client), 0);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event = event_of(channel, RDMA_CM_EVENT_DISCONNECTED);

		if (event->id == e.server)
			assert_int_equal(rdma_disconnect(e.server), 0);
		rdma_ack_cm_event(event);
	}
	destroy_all(&e);
}

/* An end that is destroyed leaves the connection. */
static void rdma_destroy_id__disconnects_the_peer(void **state)
{
	struct ends e;

	connect_ends(&e);
	destroy(e.client);
	e.client = NULL;
	expect(RDMA_CM_EVENT_DISCONNECTED, e.server);
	destroy_all(&e);
}

/* Queue pairs of the program's own, whose last connection is in timewait. */
static void rdma_connect__takes_a_queue_pair_in_timewait(void **state)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event;

		make_client(&e, RDMA_PS_TCP);
		param.qp_num = 0x77;
		assert_int_equal(rdma_connect(e.client, &param), 0);
		event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		e.server = event->id;
		rdma_ack_cm_event(event);
		param.qp_num = 0x78;
		assert_int_equal(rdma_accept(e.server, &param), 0);
		expect(RDMA_CM_EVENT_CONNECT_RESPONSE, e.client);
		assert_int_equal(rdma_establish(e.client), 0);
		expect(RDMA_CM_EVENT_ESTABLISHED, e.server);
		assert_int_equal(rdma_disconnect(e.client), 0);
		expect(RDMA_CM_EVENT_DISCONNECTED, e.server);
		assert_int_equal(rdma_disconnect(e.server), 0);
		expect(RDMA_CM_EVENT_DISCONNECTED, e.client);
		destroy(e.client);
		destroy(e.server);
	}
	destroy(e.listener);
}

/* As with rdma-core: the status of what librdmacm itself could not do is -1. */
static void rdma_get_cm_event__leaves_its_own_error_in_errno(void **state)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct ibv_qp_attr failed = { .qp_state = IBV_QPS_ERR };
	struct rdma_conn_param param = { .responder_resources = 1, .qp_num = 5 };
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	request(&e);
	e.server = take_request(&e, "from the client", 56);
	assert_int_equal(ibv_modify_qp(e.client->qp, &failed, IBV_QP_STATE), 0);
	assert_int_equal(rdma_accept(e.server, &param), 0);
	assert_int_equal(poll(&p, 1, EVENT_MS), 1);
	errno = 0;
	assert_int_equal(rdma_get_cm_event(channel, &event), 0);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(event->event, RDMA_CM_EVENT_CONNECT_ERROR);
	assert_int_equal(event->status, -1);
	rdma_ack_cm_event(event);
	destroy_all(&e);
}

static void rdma_reject__tells_the_client_why(void **state)
{
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	request(&e);
	e.server = take_request(&e, "from the client", 56);
	assert_int_equal(rdma_reject(e.server, "no", 3), 0);
	event = event_of(channel, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, e.client);
	assert_int_equal(event->status, 28);
	assert_int_equal(event->param.conn.private_data_len, 148);
	assert_string_equal(event->param.conn.private_data, "no");
	rdma_ack_cm_event(event);
	destroy_all(&e);
}

/* As with Linux's CM, a server is told nothing of a connection that it has not accepted, whose
 * context is the listener's. The next request comes behind what the client leaves with. */
static void rdma_accept__says_that_the_client_has_left(void **state)
{
	struct rdma_conn_param param = { .qp_num = 7 };
	struct rdma_cm_id *left;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	request(&e);
	left = take_request(&e, "from the client", 56);
	destroy(e.client);
	make_client(&e, RDMA_PS_TCP);
	request(&e);
	e.server = take_request(&e, "from the client", 56);
	fails(rdma_accept(left, &param), EINVAL);
	destroy(left);
	destroy_all(&e);
}

/* Nobody listens on the port: the answer does not wait for a timeout. */
static void rdma_connect__is_rejected_without_a_listener(void **state)
{
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	destroy(e.listener);
	e.listener = NULL;
	request(&e);
	event = event_of(channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 8);
	rdma_ack_cm_event(event);
	destroy_all(&e);
}

/* The port's next listener comes a moment after the request. */
static void rdma_connect__waits_for_a_listener_of_this_host(void **state)
{
	static const struct {
		enum rdma_port_space ps;
		size_t room; /* of its private data */
	} rows[] = { { RDMA_PS_TCP, 56 }, { RDMA_PS_UDP, 180 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ends e;
		int port;

		make_listener(&e, rows[i].ps);
		port = ntohs(rdma_get_src_port(e.listener));
		make_client(&e, rows[i].ps);
		make_qp(e.client);
		destroy(e.listener);
		request(&e);
		assert_int_equal(rdma_create_id(channel, &e.listener, &e, rows[i].ps), 0);
		assert_int_equal(rdma_bind_addr(e.listener, local(port)), 0);
		usleep(2000);
		assert_int_equal(rdma_listen(e.listener, 8), 0);
		e.server = take_request(&e, "from the client", rows[i].room);
		destroy_all(&e);
	}
}

/* Requests that the application has not taken end with the listener. */
static void rdma_destroy_id__refuses_requests_that_wait(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pollfd p = { .fd = other->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	assert_int_equal(rdma_migrate_id(e.listener, other), 0);
	request(&e);
	assert_int_equal(poll(&p, 1, EVENT_MS), 1);
	destroy(e.listener);
	e.listener = NULL;
	event = event_of(channel, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, e.client);
	rdma_ack_cm_event(event);
	destroy_all(&e);
	rdma_destroy_event_channel(other);
}

/* The request's new id, too: its next event comes to where the listener is by now. */
static void rdma_migrate_id__takes_a_waiting_request_along(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	request(&e);
	assert_int_equal(poll(&p, 1, EVENT_MS), 1);
	assert_int_equal(rdma_migrate_id(e.listener, other), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	event = event_of(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(event->listen_id, e.listener);
	e.server = event->id;
	assert_ptr_equal(e.server->channel, other);
	rdma_ack_cm_event(event);
	make_qp(e.server);
	assert_int_equal(rdma_accept(e.server, NULL), 0);
	event = event_of(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(event->id, e.client);
	rdma_ack_cm_event(event);
	event = event_of(other, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(event->id, e.server);
	rdma_ack_cm_event(event);
	destroy_all(&e);
	rdma_destroy_event_channel(other);
}

/* A datagram id asks for the peer's queue pair. */
static void rdma_connect__finds_the_datagram_queue_pair(void **state)
{
	struct rdma_conn_param param = { .private_data = "datagrams", .private_data_len = 10 };
	struct rdma_cm_event *event;
	struct ends e;

	make_listener(&e, RDMA_PS_UDP);
	make_client(&e, RDMA_PS_UDP);
	make_qp(e.client);
	assert_int_equal(rdma_connect(e.client, &param), 0);
	e.server = take_request(&e, "datagrams", 180);
	make_qp(e.server);
	assert_int_equal(rdma_accept(e.server, NULL), 0);
	event = event_of(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(event->id, e.client);
	assert_int_equal(event->param.ud.qp_num, e.server->qp->qp_num);
	assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(event->param.ud.ah_attr.is_global, 1);
	rdma_ack_cm_event(event);
	destroy_all(&e);
}

/* ---- synchronous ids ------------------------------------------------------------------------- */

static struct ibv_qp_init_attr sync_attr(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
}

static void *serve(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;

	if (rdma_get_request(listener, &id) != 0 || rdma_accept(id, NULL) != 0)
		return NULL;
	return id;
}

/* Returns when the peer has answered: with its own leaving, or by an acknowledgement of this
 * one. */
static void *leave(void *id)
{
	return rdma_disconnect(id) == 0 ? id : NULL;
}

static void rdma_create_ep__connects_in_calls_that_wait(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *res;
	struct ibv_qp_init_attr attr = sync_attr();
	struct rdma_cm_id *listener, *client;
	char port[8];
	pthread_t thread;
	void *server, *left;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "0", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&listener, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_listen(listener, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, listener), 0);
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(listener)));
	hints.ai_flags = 0;
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", port, &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&client, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_connect(client, NULL), 0);
	pthread_join(thread, &server);
	assert_non_null(server);
	transfer(client, server);
	assert_int_equal(pthread_create(&thread, NULL, leave, server), 0);
	assert_non_null(leave(client));
	pthread_join(thread, &left);
	assert_ptr_equal(left, server);
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

/* ---- channels and errno ---------------------------------------------------------------------- */

static void rdma_get_cm_event__honours_o_nonblock(void **state)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	assert_int_equal(poll(&p, 1, 0), 0);
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	assert_int_equal(rdma_get_cm_event(channel, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

/* Calls that an id's state does not allow, and those that this library does not have. */
static void rdma_calls__say_why_they_fail(void **state)
{
	struct sockaddr_in far = { .sin_family = AF_INET };
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *id, *other;
	int on = 1;

	far.sin_addr.s_addr = inet_addr("198.51.100.7");
	fails(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)0x7777), EINVAL);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	fails(rdma_resolve_route(id, 100), EINVAL);
	fails(rdma_connect(id, &param), EINVAL);
	fails(rdma_accept(id, &param), EINVAL);
	fails(rdma_reject(id, NULL, 0), EINVAL);
	fails(rdma_disconnect(id), EINVAL);
	fails(rdma_bind_addr(id, &unknown), EINVAL);
	fails(rdma_bind_addr(id, (struct sockaddr *)&far), EADDRNOTAVAIL);
	fails(rdma_join_multicast(id, local(0), NULL), EINVAL);
	fails(rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof(on)), ENOSYS);
	fails(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 1), EINVAL);
	assert_int_equal(rdma_bind_addr(id, local(0)), 0);
	fails(rdma_bind_addr(id, local(0)), EINVAL);
	assert_int_equal(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), 0);
	fails(rdma_bind_addr(other, local(ntohs(rdma_get_src_port(id)))), EADDRINUSE);
	assert_int_equal(rdma_destroy_id(other), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	fails(rdma_listen(id, 1), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	fails(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
}

/* ---- ports of several processes -------------------------------------------------------------- */

/* In a child: says whether it got the port, and keeps it until it is told to go. */
static void rival(int go, int said, int stay)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	char c;
	int got;

	(void)!read(go, &c, 1);
	ch = rdma_create_event_channel();
	got = ch != NULL && rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) == 0 &&
	      rdma_bind_addr(id, local(PORT_OF_RIVALS)) == 0;
	c = got ? 'y' : errno == EADDRINUSE ? 'n' : '?';
	(void)!write(said, &c, 1);
	(void)!read(stay, &c, 1);
	_exit(0);
}

static void rdma_get_cm_event__on_a_destroyed_channel_is_ebadf(void **state)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *event;

	assert_non_null(ch);
	rdma_destroy_event_channel(ch);
	for (int i = 0; i < 60; i++) /* others that come and go meanwhile */
		rdma_destroy_event_channel(rdma_create_event_channel());
	errno = 0;
	assert_int_equal(rdma_get_cm_event(ch, &event), -1);
	assert_int_equal(errno, EBADF);
}

struct sleeper {
	struct rdma_event_channel *ch;
	int err;
	bool back; /* atomic */
};

static void *sleep_in_channel(void *arg)
{
	struct sleeper *s = arg;
	struct rdma_cm_event *event;

	s->err = rdma_get_cm_event(s->ch, &event) == 0 ? 0 : errno;
	__atomic_store_n(&s->back, true, __ATOMIC_RELEASE);
	return NULL;
}

static void on_signal(int signal)
{
}

/* rping's other end: a thread waits in a channel while another one destroys it. It stays there, and
 * whenever it is woken, it finds no memory of somebody else. */
static void rdma_get_cm_event__outlives_its_channel(void **state)
{
	struct sigaction action = { .sa_handler = on_signal }, before;
	struct sleeper s = { .ch = rdma_create_event_channel() };
	int number = s.ch->fd;
	pthread_t thread;

	sigaction(SIGUSR1, &action, &before);
	assert_int_equal(pthread_create(&thread, NULL, sleep_in_channel, &s), 0);
	usleep(50000); /* where it comes later, it gets EBADF */
	rdma_destroy_event_channel(s.ch);
	assert_int_equal(fcntl(number, F_GETFD), -1);
	for (int i = 0; i < 60; i++)
		rdma_destroy_event_channel(rdma_create_event_channel());
	while (!__atomic_load_n(&s.back, __ATOMIC_ACQUIRE)) {
		pthread_kill(thread, SIGUSR1);
		usleep(1000);
	}
	pthread_join(thread, NULL);
	assert_true(s.err == EINTR || s.err == EBADF);
	sigaction(SIGUSR1, &before, NULL);
}

#ifndef __SANITIZE_THREAD__ /* which starts no thread in a forked child of a process with threads */
static void *ask_and_exit(void *ended)
{
	struct rdma_cm_event *event;

	_exit(rdma_get_cm_event(ended, &event) == 0 ? 2 : 3);
}

/* As rping ends: one thread destroys the channel and leaves, another one takes the next event, and
 * ends the process with an error if it cannot. */
static void rdma_get_cm_event__lets_a_process_end(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		pthread_t thread;

		rdma_destroy_event_channel(ch);
		pthread_create(&thread, NULL, ask_and_exit, ch);
		usleep(20000);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}
#endif

static void rdma_bind_addr__gives_a_port_to_one_process(void **state)
{
	int go[2], said[2], stay[2], winners = 0;
	char c = 0;

	assert_int_equal(pipe(go) | pipe(said) | pipe(stay), 0);
	for (int i = 0; i < RIVALS; i++) {
		if (fork() == 0) {
			close(go[1]);
			close(stay[1]);
			rival(go[0], said[1], stay[0]);
		}
	}
	close(go[1]);
	for (int i = 0; i < RIVALS; i++) {
		assert_int_equal(read(said[0], &c, 1), 1);
		assert_int_not_equal(c, '?');
		winners += c == 'y';
	}
	assert_int_equal(winners, 1);
	close(stay[1]);
	while (wait(NULL) > 0)
		;
	close(go[0]);
	close(said[0]);
	close(said[1]);
	close(stay[0]);
}

/* The man page forbids it, programs do it at their end, and rdma-core lets them: the events that
 * the ids still had go with them. */
static void rdma_destroy_event_channel__before_its_ids(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ends e;

	make_listener(&e, RDMA_PS_TCP);
	make_client(&e, RDMA_PS_TCP);
	make_qp(e.client);
	request(&e);
	event = event_of(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	e.server = event->id;
	rdma_ack_cm_event(event);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, local(PORT_OF_NOBODY), EVENT_MS), 0);
	rdma_destroy_event_channel(channel);
	assert_int_equal(rdma_resolve_addr(id, NULL, local(PORT_OF_NOBODY), EVENT_MS), -1);
	assert_int_equal(rdma_migrate_id(e.client, other), 0);
	destroy_all(&e); /* the client's event waits on the other channel */
	destroy(id);
	rdma_destroy_event_channel(other);
	channel = rdma_create_event_channel();
}

/* Takes the next event and destroys its id, which is the last that the id's calls may know of. */
static void *take_last_event(void *arg)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(channel, &event) != 0)
		return NULL;
	id = event->id;
	rdma_ack_cm_event(event);
	return rdma_destroy_id(id) == 0 ? arg : NULL;
}

static int call_resolve_addr(struct rdma_cm_id *id)
{
	return rdma_resolve_addr(id, NULL, local(PORT_OF_NOBODY), EVENT_MS);
}

static int call_resolve_route(struct rdma_cm_id *id)
{
	return rdma_resolve_route(id, EVENT_MS);
}

static int call_connect(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .qp_num = 77 };

	return rdma_connect(id, &param);
}

/* Once the event of a call is there the call touches its id no more: another thread may have
 * destroyed it. ThreadSanitizer judges. */
static void rdma_calls__are_done_when_their_event_is_taken(void **state)
{
	static int (*const calls[])(struct rdma_cm_id *) = { call_resolve_addr, call_resolve_route,
							     call_connect };

	for (int i = 0; i < LAST_EVENTS; i++)
		for (int last = 0; last < 3; last++) {
			struct rdma_cm_id *id;
			pthread_t thread;
			void *good;

			assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
			for (int k = 0; k < last; k++) {
				assert_int_equal(calls[k](id), 0);
				rdma_ack_cm_event(
					event_of(channel, k == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED
								 : RDMA_CM_EVENT_ROUTE_RESOLVED));
			}
			assert_int_equal(pthread_create(&thread, NULL, take_last_event, channel),
					 0);
			assert_int_equal(calls[last](id), 0);
			assert_int_equal(pthread_join(thread, &good), 0);
			assert_non_null(good);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: the children have nothing of a parent's */
		cmocka_unit_test(rdma_bind_addr__gives_a_port_to_one_process),
		cmocka_unit_test_setup_teardown(rdma_bind_addr__to_localhost_binds_no_device, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_bind_addr__that_fails_binds_no_device, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_bind_addr__of_each_port_space, begin, end),
		cmocka_unit_test_setup_teardown(rdma_create_qp__that_fails_leaves_no_queues, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_resolve_route__fills_the_id, begin, end),
		cmocka_unit_test_setup_teardown(rdma_connect__carries_messages_until_both_leave,
						begin, end),
		cmocka_unit_test(rdma_get_cm_event__on_a_destroyed_channel_is_ebadf),
		cmocka_unit_test(rdma_get_cm_event__outlives_its_channel),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(rdma_get_cm_event__lets_a_process_end),
#endif
		cmocka_unit_test_setup_teardown(rdma_destroy_id__disconnects_the_peer, begin, end),
		cmocka_unit_test_setup_teardown(rdma_connect__takes_a_queue_pair_in_timewait, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_get_cm_event__leaves_its_own_error_in_errno,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_reject__tells_the_client_why, begin, end),
		cmocka_unit_test_setup_teardown(rdma_accept__says_that_the_client_has_left, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_connect__is_rejected_without_a_listener, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_connect__waits_for_a_listener_of_this_host,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_destroy_id__refuses_requests_that_wait, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_migrate_id__takes_a_waiting_request_along,
						begin, end),
		cmocka_unit_test_setup_teardown(rdma_connect__finds_the_datagram_queue_pair, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_create_ep__connects_in_calls_that_wait, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_get_cm_event__honours_o_nonblock, begin, end),
		cmocka_unit_test_setup_teardown(rdma_calls__say_why_they_fail, begin, end),
		cmocka_unit_test_setup_teardown(rdma_destroy_event_channel__before_its_ids, begin,
						end),
		cmocka_unit_test_setup_teardown(rdma_calls__are_done_when_their_event_is_taken,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
