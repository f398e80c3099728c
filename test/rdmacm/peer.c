/* peer.c: one end of connections, told by lines what to do: for tests with several processes.
 *
 * peer listen ADDRESS BACKLOG TCP|UDP COUNT   "PORT" for each of COUNT listeners, then, for a line
 *	drain                           takes all events that wait: "drained N requests"
 *	accept                          "accepted", once the next client's request is a connection
 * peer connect ADDRESS PORT               "established", within 50 seconds
 * peer hold ADDRESS PORT                  likewise, and disconnects at the end of its input
 * In: lines    Out: lines    Runs: one thread    Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 50000, QPN_ACTIVE = 0x100001, QPN_PASSIVE = 0x200001 };

static struct rdma_event_channel *channel;

static void fail(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr *address(const char *text, int port)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	if (inet_pton(AF_INET, text, &sin.sin_addr) != 1)
		fail(text);
	return (struct sockaddr *)&sin;
}

/* What a request of `connect` or `hold` says: those of others may come at any time. */
static const char hello[] = "peer";

static struct rdma_conn_param with_qp(uint32_t qpn)
{
	return (struct rdma_conn_param){ .private_data = hello,
					 .private_data_len = sizeof(hello),
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .qp_num = qpn };
}

/* The next event within so long; NULL: none came. */
static struct rdma_cm_event *next_event(int ms)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&p, 1, ms) != 1)
		return NULL;
	if (rdma_get_cm_event(channel, &event) != 0)
		fail("rdma_get_cm_event");
	return event;
}

static bool is_ours(const struct rdma_cm_event *event)
{
	return event->event != RDMA_CM_EVENT_CONNECT_REQUEST ||
	       (event->param.conn.private_data_len >= sizeof(hello) &&
		memcmp(event->param.conn.private_data, hello, sizeof(hello)) == 0);
}

/* Waits for an event of this type, a request by its words; others are passed over, and refused if
 * they are requests. */
static struct rdma_cm_id *await(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	while ((event = next_event(WAIT_MS)) != NULL) {
		bool found = event->event == type && is_ours(event);
		bool refused = !found && event->event == RDMA_CM_EVENT_CONNECT_REQUEST;

		id = event->id;
		if (!found)
			fprintf(stderr, "peer: %s, status %d\n", rdma_event_str(event->event),
				event->status);
		rdma_ack_cm_event(event);
		if (found)
			return id;
		if (refused)
			rdma_destroy_id(id);
	}
	errno = ETIMEDOUT;
	fail(rdma_event_str(type));
	return NULL;
}

/* ---- listening ------------------------------------------------------------------------------- */

static void listen_once(const char *at, int backlog, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, ps) != 0 ||
	    rdma_bind_addr(id, address(at, 0)) != 0 || rdma_listen(id, backlog) != 0)
		fail("rdma_listen");
	printf("%d\n", ntohs(rdma_get_src_port(id)));
}

static void drain(void)
{
	struct rdma_cm_event *event;
	int requests = 0;

	while ((event = next_event(0)) != NULL) {
		struct rdma_cm_id *id = event->id;
		bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;

		rdma_ack_cm_event(event);
		requests += request;
		if (request)
			rdma_destroy_id(id);
	}
	printf("drained %d requests\n", requests);
}

static void accept_next(void)
{
	static uint32_t qpn = QPN_PASSIVE;
	struct rdma_conn_param param = with_qp(qpn++);

	if (rdma_accept(await(RDMA_CM_EVENT_CONNECT_REQUEST), &param) != 0)
		fail("rdma_accept");
	await(RDMA_CM_EVENT_ESTABLISHED);
	puts("accepted");
}

static void serve(void)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (strcmp(line, "drain\n") == 0)
			drain();
		else if (strcmp(line, "accept\n") == 0)
			accept_next();
		fflush(stdout);
	}
}

/* ---- connecting ------------------------------------------------------------------------------ */

static struct rdma_cm_id *connect_to(const char *at, int port)
{
	/* the peer lets the queue pair of a connection rest */
	struct rdma_conn_param param = with_qp(QPN_ACTIVE + (uint32_t)getpid() % QPN_ACTIVE);
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_resolve_addr(id, NULL, address(at, port), WAIT_MS) != 0)
		fail("rdma_resolve_addr");
	await(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, WAIT_MS) != 0)
		fail("rdma_resolve_route");
	await(RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (rdma_connect(id, &param) != 0)
		fail("rdma_connect");
	await(RDMA_CM_EVENT_CONNECT_RESPONSE);
	if (rdma_establish(id) != 0)
		fail("rdma_establish");
	puts("established");
	return id;
}

static void hold(const char *at, int port)
{
	struct rdma_cm_id *id = connect_to(at, port);

	fflush(stdout);
	while (getchar() != EOF)
		;
	rdma_disconnect(id);
}

int main(int argc, char **argv)
{
	channel = rdma_create_event_channel();
	if (channel == NULL)
		fail("rdma_create_event_channel");
	if (argc == 6 && strcmp(argv[1], "listen") == 0) {
		for (int i = 0; i < atoi(argv[5]); i++)
			listen_once(argv[2], atoi(argv[3]),
				    strcmp(argv[4], "UDP") == 0 ? RDMA_PS_UDP : RDMA_PS_TCP);
		fflush(stdout);
		serve();
		return 0;
	}
	if (argc == 4 && strcmp(argv[1], "connect") == 0) {
		connect_to(argv[2], atoi(argv[3]));
		return 0;
	}
	if (argc == 4 && strcmp(argv[1], "hold") == 0) {
		hold(argv[2], atoi(argv[3]));
		return 0;
	}
	fprintf(stderr, "usage: peer listen ADDRESS BACKLOG SPACE COUNT | "
			"connect|hold ADDRESS PORT\n");
	return 2;
}
