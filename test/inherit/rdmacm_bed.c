/* rdmacm_bed.c: an id in each state: both ends of each connection are this process.
 * In:    INHERIT_ADDRESS: an address of a device; without it the loopback address
 * Out:   ids    Runs: the program's thread    Locks: none
 */
#include "rdmacm_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_verbs.h>

enum { WAIT_MS = 20000, RESOLVE_MS = 5000, CALLS_PER_REQUEST = 8 };

const char *const cm_names[IDS] = {
	"idle id",	 "bound id",	"resolved id",	 "routed id",	"listening id",
	"connecting id", "requested id", "client",	 "server",	"disconnected id",
	"id with SRQ",	 "datagram id", "member",	 "synchronous id", "synchronous listener",
};

struct cm_bed cm;
static uint8_t bytes[4096];
static struct ibv_mr *mr;

struct sockaddr *cm_address(int port)
{
	static struct sockaddr_in sin;
	const char *text = getenv("INHERIT_ADDRESS");

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	must(inet_pton(AF_INET, text != NULL ? text : "127.0.0.1", &sin.sin_addr) == 1);
	return (struct sockaddr *)&sin;
}

static struct rdma_cm_event *next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	must(fd_is_readable(ch->fd, WAIT_MS) && rdma_get_cm_event(ch, &event) == 0);
	if (event->event != type)
		fprintf(stderr, "%s (%d) instead of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(type));
	must(event->event == type);
	return event;
}

static void pass(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	must(rdma_ack_cm_event(next(ch, type)) == 0);
}

/* ---- making ---- */

static struct rdma_cm_id *make(struct rdma_event_channel *ch, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	must(rdma_create_id(ch, &id, NULL, ps) == 0);
	return id;
}

static void route(struct rdma_cm_id *id, int port)
{
	must(rdma_resolve_addr(id, NULL, cm_address(port), RESOLVE_MS) == 0);
	pass(cm.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, RESOLVE_MS) == 0);
	pass(cm.events, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .cap = { 8, 8, 1, 1, 0 }, .qp_type = id->qp_type };

	must(rdma_create_qp(id, NULL, &init) == 0);
	must(fcntl(id->send_cq_channel->fd, F_SETFL, O_NONBLOCK) == 0 &&
	     fcntl(id->recv_cq_channel->fd, F_SETFL, O_NONBLOCK) == 0);
}

static struct rdma_cm_id *take_request(void)
{
	struct rdma_cm_event *event = next(cm.requests, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	must(rdma_ack_cm_event(event) == 0);
	return id;
}

static struct rdma_conn_param some_param(void)
{
	static uint32_t number = 0x100; /* of ids without a queue pair */

	return (struct rdma_conn_param){ .qp_num = number++,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
}

/* A request to the listener, and what it became there. */
static void request(struct rdma_cm_id **client, struct rdma_cm_id **server, bool has_qp)
{
	struct rdma_conn_param param = some_param();

	*client = make(cm.events, RDMA_PS_TCP);
	route(*client, ntohs(rdma_get_src_port(cm.ids[ID_LISTENING])));
	if (has_qp)
		make_qp(*client);
	must(rdma_connect(*client, &param) == 0);
	*server = take_request();
}

static void join(struct rdma_cm_id **client, struct rdma_cm_id **server)
{
	struct rdma_conn_param param = some_param();

	request(client, server, true);
	make_qp(*server);
	must(rdma_accept(*server, &param) == 0);
	pass(cm.events, RDMA_CM_EVENT_ESTABLISHED);
	pass(cm.requests, RDMA_CM_EVENT_ESTABLISHED);
}

static void make_connections(void)
{
	struct rdma_cm_id *peer;

	must(rdma_bind_addr(cm.ids[ID_LISTENING], cm_address(0)) == 0);
	must(rdma_listen(cm.ids[ID_LISTENING], 8) == 0);
	join(&cm.ids[ID_CLIENT], &cm.ids[ID_SERVER]);
	join(&cm.ids[ID_LEFT], &peer);
	must(rdma_disconnect(cm.ids[ID_LEFT]) == 0);
	pass(cm.requests, RDMA_CM_EVENT_DISCONNECTED);
	must(rdma_disconnect(peer) == 0);
	pass(cm.events, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(peer);
	must(rdma_destroy_id(peer) == 0);
	request(&cm.ids[ID_CONNECTING], &cm.ids[ID_REQUESTED], false);
	mr = rdma_reg_msgs(cm.ids[ID_CLIENT], bytes, sizeof(bytes));
	must(mr != NULL);
}

static void make_datagrams(void)
{
	struct sockaddr *group = (struct sockaddr *)&cm.group;
	struct rdma_cm_event *event;

	cm.group = (struct sockaddr_in){ .sin_family = AF_INET };
	must(inet_pton(AF_INET, "239.1.2.77", &cm.group.sin_addr) == 1);
	must(rdma_bind_addr(cm.ids[ID_DATAGRAM], cm_address(0)) == 0);
	must(rdma_listen(cm.ids[ID_DATAGRAM], 8) == 0);
	must(rdma_resolve_addr(cm.ids[ID_MEMBER], cm_address(0), group, RESOLVE_MS) == 0);
	pass(cm.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	make_qp(cm.ids[ID_MEMBER]);
	must(rdma_join_multicast(cm.ids[ID_MEMBER], group, NULL) == 0);
	event = next(cm.events, RDMA_CM_EVENT_MULTICAST_JOIN);
	cm.ah = ibv_create_ah(cm.ids[ID_MEMBER]->pd, &event->param.ud.ah_attr);
	must(cm.ah != NULL && rdma_ack_cm_event(event) == 0);
}

static void make_synchronous(void)
{
	must(rdma_resolve_addr(cm.ids[ID_SYNC], NULL, cm_address(7471), RESOLVE_MS) == 0);
	must(rdma_bind_addr(cm.ids[ID_SYNC_LISTENING], cm_address(0)) == 0);
	must(rdma_listen(cm.ids[ID_SYNC_LISTENING], 8) == 0);
}

/* The first event of an id is taken, its second one waits. */
static void make_events(void)
{
	cm.owing = make(cm.events, RDMA_PS_TCP);
	must(rdma_resolve_addr(cm.owing, NULL, cm_address(7471), RESOLVE_MS) == 0);
	cm.owed = next(cm.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(cm.owing, RESOLVE_MS) == 0);
	must(fd_is_readable(cm.events->fd, WAIT_MS));
}

void cm_make(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };

	cm.events = rdma_create_event_channel();
	cm.requests = rdma_create_event_channel();
	must(cm.events != NULL && cm.requests != NULL);
	for (int i = 0; i < IDS; i++) {
		struct rdma_event_channel *ch = i >= ID_SYNC	    ? NULL
						: i == ID_LISTENING ? cm.requests
								    : cm.events;

		if (i < ID_CONNECTING || i > ID_LEFT)
			cm.ids[i] = make(ch, i == ID_DATAGRAM || i == ID_MEMBER ? RDMA_PS_UDP
									       : RDMA_PS_TCP);
	}
	must(rdma_bind_addr(cm.ids[ID_BOUND], cm_address(0)) == 0);
	must(rdma_resolve_addr(cm.ids[ID_RESOLVED], NULL, cm_address(7471), RESOLVE_MS) == 0);
	pass(cm.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	route(cm.ids[ID_ROUTED], 7471);
	route(cm.ids[ID_SHARED], 7471);
	must(rdma_create_srq(cm.ids[ID_SHARED], NULL, &srq) == 0);
	make_qp(cm.ids[ID_SHARED]);
	make_connections();
	make_datagrams();
	make_synchronous();
	make_events();
	must(rdma_getaddrinfo("127.0.0.1", "7471", NULL, &cm.info) == 0);
	must(fcntl(cm.events->fd, F_SETFL, O_NONBLOCK) == 0 &&
	     fcntl(cm.requests->fd, F_SETFL, O_NONBLOCK) == 0);
}

/* ---- in use ---- */

static void carry(const char *after)
{
	struct rdma_cm_id *client = cm.ids[ID_CLIENT], *server = cm.ids[ID_SERVER];
	struct ibv_wc wc;

	must(rdma_post_recv(server, NULL, bytes, 64, mr) == 0);
	must(rdma_post_send(client, NULL, bytes + 64, 64, mr, IBV_SEND_SIGNALED) == 0);
	if (cq_wait(client->send_cq, &wc, 1, WAIT_MS) != 1 || wc.status != IBV_WC_SUCCESS ||
	    cq_wait(server->recv_cq, &wc, 1, WAIT_MS) != 1 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "the parent's connection after %s: %d\n", after, (int)wc.status);
		must(false);
	}
}

/* On a channel of its own: an event waits on the other one. */
static void ask(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = make(ch, RDMA_PS_TCP), *server;
	struct rdma_conn_param param = some_param();

	must(rdma_resolve_addr(id, NULL, cm_address(ntohs(rdma_get_src_port(cm.ids[ID_LISTENING]))),
			       RESOLVE_MS) == 0);
	pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, RESOLVE_MS) == 0);
	pass(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	must(rdma_connect(id, &param) == 0);
	server = take_request();
	must(rdma_reject(server, NULL, 0) == 0);
	pass(ch, RDMA_CM_EVENT_REJECTED);
	must(rdma_destroy_id(server) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

void cm_works(const char *after)
{
	static int calls;

	carry(after);
	if (calls++ % CALLS_PER_REQUEST == 0)
		ask();
}

void cm_attach(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	must(ch != NULL);
	id = make(ch, RDMA_PS_TCP);
	must(rdma_resolve_addr(id, NULL, cm_address(7471), RESOLVE_MS) == 0);
	pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	make_qp(id);
	rdma_destroy_qp(id);
	must(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

void cm_end(void)
{
	must(rdma_dereg_mr(mr) == 0 && ibv_destroy_ah(cm.ah) == 0);
	must(rdma_ack_cm_event(cm.owed) == 0 && rdma_destroy_id(cm.owing) == 0);
	must(rdma_leave_multicast(cm.ids[ID_MEMBER], (struct sockaddr *)&cm.group) == 0);
	for (int i = 0; i < IDS; i++) {
		if (cm.ids[i]->qp != NULL)
			rdma_destroy_qp(cm.ids[i]);
		if (cm.ids[i]->srq != NULL)
			rdma_destroy_srq(cm.ids[i]);
		must(rdma_destroy_id(cm.ids[i]) == 0);
	}
	rdma_freeaddrinfo(cm.info);
	rdma_destroy_event_channel(cm.events);
	rdma_destroy_event_channel(cm.requests);
}
