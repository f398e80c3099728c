/* srq_server.c: a server of many clients with one pool of receive buffers: a shared receive queue
 * (SRQ) and one completion queue for all connections.
 *
 *   cc srq_server.c -libverbs -lrdmacm -o srq_server
 *   anyverbs run ./srq_server 3 &                   serves 3 clients, then ends
 *   anyverbs run ./srq_server 3 127.0.0.1           3 clients in one program, 4 messages each
 *
 * Without an SRQ each connection has buffers of its own: 1,000 clients times 64 buffers, most of
 * them idle. With one the buffers go to whoever sends. A completion says which connection a message
 * came by (wc.qp_num); its buffer is posted again, to the pool.
 *
 * A pool may run dry: then senders get RNR NAKs and try again (rnr_retry 7: for ever).
 * ibv_modify_srq(IBV_SRQ_LIMIT) asks for an event before that happens.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pool that runs dry costs time: the sender is told to wait, by librdmacm's default for 655 ms.
 * So give it a buffer for each message that may come at once. */
enum { TEXT = 64, POOL = 16, CLIENTS = 64, MESSAGES = 4, TIMEOUT_MS = 2000 };
#define SERVICE "18519"

static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static char memory[POOL + CLIENTS][TEXT]; /* the pool, then one to send from per connection */
static struct rdma_cm_id *ids[CLIENTS];
static int connections;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void post_to_pool(uint64_t i)
{
	struct ibv_sge piece = { (uintptr_t)memory[i], TEXT, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &piece, .num_sge = 1 }, *bad;

	must(ibv_post_srq_recv(srq, &wr, &bad) == 0, "ibv_post_srq_recv");
}

/* All connections share these: made on the first one's device. */
static void make_shared(struct ibv_context *verbs)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = POOL, .max_sge = 1 } };

	pd = ibv_alloc_pd(verbs);
	cq = ibv_create_cq(verbs, POOL + 2 * CLIENTS, NULL, NULL, 0);
	must(pd && cq, "objects");
	srq = ibv_create_srq(pd, &init);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	must(srq && mr, "objects");
	for (uint64_t i = 0; i < POOL; i++)
		post_to_pool(i);
}

/* A QP with the SRQ has no receive queue of its own. */
static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 0, 1, 0, 0 } };

	if (pd == NULL)
		make_shared(id->verbs);
	init.send_cq = init.recv_cq = cq;
	init.srq = srq;
	must(rdma_create_qp(id, pd, &init) == 0, "rdma_create_qp");
	ids[connections++] = id;
}

static int find(uint32_t qpn)
{
	for (int i = 0; i < connections; i++)
		if (ids[i]->qp->qp_num == qpn)
			return i;
	return -1;
}

static void say(int connection, const char *text)
{
	char *from = memory[POOL + connection];
	struct ibv_sge piece = { (uintptr_t)from, TEXT, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = POOL,
				  .sg_list = &piece,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	snprintf(from, TEXT, "%s", text);
	must(ibv_post_send(ids[connection]->qp, &wr, &bad) == 0, "ibv_post_send");
}

/* The next received message of any connection. Its buffer is the caller's until post_to_pool. */
static struct ibv_wc received(void)
{
	struct ibv_wc wc;

	for (;;) {
		int n = ibv_poll_cq(cq, 1, &wc);

		must(n >= 0, "ibv_poll_cq");
		if (n == 1 && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "failed: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		if (n == 1 && (wc.opcode & IBV_WC_RECV))
			return wc;
	}
}

static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	must(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
	if (e->event != type) {
		fprintf(stderr, "expected %s, got %s (status %d)\n", rdma_event_str(type),
			rdma_event_str(e->event), e->status);
		exit(1);
	}
	id = e->id;
	rdma_ack_cm_event(e);
	return id;
}

/* ---- the server ---- */

static void serve(int clients)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(SERVICE)) };
	struct rdma_conn_param accept = { .rnr_retry_count = 7 };
	struct rdma_cm_id *listener;
	int counts[CLIENTS] = { 0 };

	must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	must(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0, "rdma_bind_addr");
	must(rdma_listen(listener, clients) == 0, "rdma_listen");
	/* a client may ask while another one's connection is not there yet */
	for (int there = 0; there < clients;) {
		struct rdma_cm_event *e;

		must(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(e->id);
			must(rdma_accept(e->id, &accept) == 0, "rdma_accept");
		} else {
			must(e->event == RDMA_CM_EVENT_ESTABLISHED, rdma_event_str(e->event));
			there++;
		}
		rdma_ack_cm_event(e);
	}
	for (int left = clients * MESSAGES; left > 0; left--) {
		struct ibv_wc wc = received();
		int from = find(wc.qp_num);
		char text[TEXT];

		must(from >= 0, "a message of nobody");
		snprintf(text, TEXT, "number %d of yours, %.30s", ++counts[from], memory[wc.wr_id]);
		post_to_pool(wc.wr_id);
		say(from, text);
	}
	printf("server: %d clients, %d buffers, %d messages\n", clients, POOL, clients * MESSAGES);
	for (int i = 0; i < clients; i++)
		expect(RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_id(listener);
}

/* ---- the clients ---- */

static void connect_one(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	struct rdma_conn_param connect = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;

	must(getaddrinfo(host, SERVICE, &hints, &found) == 0, "getaddrinfo");
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	must(rdma_resolve_addr(id, NULL, found->ai_addr, TIMEOUT_MS) == 0, "rdma_resolve_addr");
	freeaddrinfo(found);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, TIMEOUT_MS) == 0, "rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	must(rdma_connect(id, &connect) == 0, "rdma_connect");
	expect(RDMA_CM_EVENT_ESTABLISHED);
}

static void call(int clients, const char *host)
{
	char text[TEXT];

	for (int i = 0; i < clients; i++)
		connect_one(host);
	for (int n = 0; n < MESSAGES; n++) {
		for (int i = 0; i < clients; i++) {
			snprintf(text, TEXT, "client %d", i);
			say(i, text);
		}
		for (int i = 0; i < clients; i++) {
			struct ibv_wc wc = received();

			if (n == MESSAGES - 1)
				printf("client %d: %s\n", find(wc.qp_num), memory[wc.wr_id]);
			post_to_pool(wc.wr_id);
		}
	}
	for (int i = 0; i < clients; i++)
		rdma_disconnect(ids[i]);
	for (int i = 0; i < clients; i++)
		expect(RDMA_CM_EVENT_DISCONNECTED);
}

int main(int argc, char **argv)
{
	int clients = argc > 1 ? atoi(argv[1]) : 0;

	if (clients < 1 || clients > CLIENTS || argc > 3) {
		fprintf(stderr, "usage: %s CLIENTS [HOST]\n", argv[0]);
		return 2;
	}
	channel = rdma_create_event_channel();
	must(channel != NULL, "rdma_create_event_channel");
	if (argc > 2)
		call(clients, argv[2]);
	else
		serve(clients);
	for (int i = 0; i < connections; i++) {
		rdma_destroy_qp(ids[i]);
		rdma_destroy_id(ids[i]);
	}
	must(ibv_destroy_srq(srq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 &&
	     ibv_dealloc_pd(pd) == 0, "closing");
	rdma_destroy_event_channel(channel);
	return 0;
}
