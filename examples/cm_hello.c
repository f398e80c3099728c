/* cm_hello.c: the greeting of rc_hello.c, connected by the RDMA CM (librdmacm): addresses and ports
 * as with sockets, no QP numbers to exchange, and disconnects are noticed.
 *
 *   cc cm_hello.c -libverbs -lrdmacm -o cm_hello
 *   anyverbs run ./cm_hello &                 the server
 *   anyverbs run ./cm_hello 127.0.0.1         the client
 *
 *   socket()    rdma_create_id        bind, listen   rdma_bind_addr, rdma_listen
 *   connect()   rdma_resolve_addr, rdma_resolve_route, rdma_connect: each ends with an event
 *   accept()    event CONNECT_REQUEST, which brings a new id; rdma_accept
 *   close()     rdma_disconnect; the peer gets the event DISCONNECTED
 *
 * Events come by a channel: a file descriptor, so a server can poll() it among others.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 64, TIMEOUT_MS = 2000 };
#define SERVICE "18516"

static char memory[2][TEXT]; /* 0: to send, 1: to receive */
static struct rdma_event_channel *channel;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* Waits for an event and expects it to be of this type. Returns the id that it is about. What it
 * points to is valid until it is acknowledged, so callers that need more copy it before. */
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

/* An id has its device once an address is known: then it gets its objects. */
static struct ibv_mr *make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_mr *mr;

	init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	must(init.send_cq != NULL, "ibv_create_cq");
	must(rdma_create_qp(id, NULL, &init) == 0, "rdma_create_qp"); /* a default PD */
	mr = ibv_reg_mr(id->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	return mr;
}

/* Before the connection is up, so that the peer's first message finds it. */
static void post_receive(struct rdma_cm_id *id, const struct ibv_mr *mr)
{
	struct ibv_sge piece = { (uintptr_t)memory[1], TEXT, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &piece, .num_sge = 1 }, *bad;

	must(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

/* Sends our text, and waits for it and for the peer's. */
static void greet(struct rdma_cm_id *id, const struct ibv_mr *mr, const char *text)
{
	struct ibv_sge piece = { (uintptr_t)memory[0], (uint32_t)strlen(text) + 1, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &piece,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	snprintf(memory[0], TEXT, "%s", text);
	must(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
	for (int left = 2; left > 0;) {
		if (ibv_poll_cq(id->qp->send_cq, 1, &wc) == 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "failed: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		left--;
	}
	printf("received: %s\n", memory[1]);
}

static void destroy(struct rdma_cm_id *id, struct ibv_mr *mr)
{
	struct ibv_cq *cq = id->qp->send_cq;

	rdma_destroy_qp(id);
	must(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0, "closing");
	must(rdma_destroy_id(id) == 0, "rdma_destroy_id");
}

static void serve(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(SERVICE)) };
	struct rdma_conn_param accept = { .responder_resources = 1, .rnr_retry_count = 7 };
	struct rdma_cm_id *listener, *id;
	struct ibv_mr *mr;

	must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	must(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0, "rdma_bind_addr");
	must(rdma_listen(listener, 1) == 0, "rdma_listen");
	id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	mr = make_qp(id);
	post_receive(id, mr);
	must(rdma_accept(id, &accept) == 0, "rdma_accept");
	expect(RDMA_CM_EVENT_ESTABLISHED);
	greet(id, mr, "hello from the server");
	expect(RDMA_CM_EVENT_DISCONNECTED);
	puts("the client has gone");
	destroy(id, mr);
	rdma_destroy_id(listener);
}

static void resolve(struct rdma_cm_id *id, const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;

	must(getaddrinfo(host, SERVICE, &hints, &found) == 0, "getaddrinfo");
	must(rdma_resolve_addr(id, NULL, found->ai_addr, TIMEOUT_MS) == 0, "rdma_resolve_addr");
	freeaddrinfo(found);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED); /* now the id has a device */
	must(rdma_resolve_route(id, TIMEOUT_MS) == 0, "rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void call(const char *host)
{
	struct rdma_conn_param connect = { .initiator_depth = 1,
					   .retry_count = 7,
					   .rnr_retry_count = 7 };
	struct rdma_cm_id *id;
	struct ibv_mr *mr;

	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	resolve(id, host);
	mr = make_qp(id);
	post_receive(id, mr);
	must(rdma_connect(id, &connect) == 0, "rdma_connect");
	expect(RDMA_CM_EVENT_ESTABLISHED); /* REJECTED: nobody listens there */
	greet(id, mr, "hello from the client");
	must(rdma_disconnect(id) == 0, "rdma_disconnect");
	expect(RDMA_CM_EVENT_DISCONNECTED);
	destroy(id, mr);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	channel = rdma_create_event_channel();
	must(channel != NULL, "rdma_create_event_channel");
	if (argc > 1)
		call(argv[1]);
	else
		serve();
	rdma_destroy_event_channel(channel);
	return 0;
}
