/* asks.c: an rsocket listener, and clients of another host that do not complete their connections,
 * told by lines what to do: for asks_test.py.
 *
 * asks listen ADDRESS BACKLOG      "PORT", then, for a line
 *	accept                          "accepted", once raccept has returned
 *	read                            "read N": what the last one has sent
 * asks connect ADDRESS PORT        "connected", and stays
 * asks ask ADDRESS PORT COUNT      "answered COUNT": requests that were answered, and sends no RTU
 * asks speak ADDRESS PORT          "spoken": sends no RTU, but a byte
 * In: lines    Out: lines    Runs: one thread    Locks: none
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 20000, RECEIVES = 16, QPN_FIRST = 0x100001 };

/* What an rsocket says first. */
struct hello {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], iomaps;
	struct {
		uint64_t addr;
		uint32_t key, length;
	} table, buffer;
};

static void need(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "asks: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void say(const char *text, int number)
{
	printf("%s%d\n", text, number);
	fflush(stdout);
}

static struct sockaddr_in address(const char *text, const char *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons((uint16_t)atoi(port)) };

	need(inet_pton(AF_INET, text, &sin.sin_addr) == 1, text);
	return sin;
}

static void stay(void)
{
	while (getchar() != EOF)
		;
}

/* ---- the listener ---------------------------------------------------------------------------- */

static int accept_one(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };
	int fd;

	need(rpoll(&p, 1, WAIT_MS) == 1, "rpoll");
	fd = raccept(listener, NULL, NULL);
	need(fd >= 0, "raccept");
	puts("accepted");
	return fd;
}

static void serve(const char *at, const char *backlog)
{
	struct sockaddr_in sin = address(at, "0");
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), fd = -1;
	socklen_t len = sizeof(sin);
	char line[64], bytes[64];

	need(rbind(listener, (struct sockaddr *)&sin, sizeof(sin)) == 0, "rbind");
	need(rlisten(listener, atoi(backlog)) == 0, "rlisten");
	need(rgetsockname(listener, (struct sockaddr *)&sin, &len) == 0, "rgetsockname");
	say("", ntohs(sin.sin_port));
	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (strcmp(line, "accept\n") == 0)
			fd = accept_one(listener);
		else if (strcmp(line, "read\n") == 0)
			printf("read %zd\n", rrecv(fd, bytes, sizeof(bytes), 0));
		fflush(stdout);
	}
}

/* ---- clients --------------------------------------------------------------------------------- */

static void await(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
		  struct hello *said)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event = NULL;

	need(poll(&p, 1, WAIT_MS) == 1 && rdma_get_cm_event(channel, &event) == 0,
	     rdma_event_str(type));
	need(event->event == type, rdma_event_str(event->event));
	if (said != NULL)
		memcpy(said, event->param.conn.private_data, sizeof(*said));
	rdma_ack_cm_event(event);
}

static struct rdma_cm_id *resolved(const char *at, const char *port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in sin = address(at, port);
	struct rdma_cm_id *id = NULL;

	need(channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "id");
	need(rdma_resolve_addr(id, NULL, (struct sockaddr *)&sin, WAIT_MS) == 0, "resolve");
	await(channel, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	need(rdma_resolve_route(id, WAIT_MS) == 0, "route");
	await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	return id;
}

static void ask(struct rdma_cm_id *id, uint32_t qpn)
{
	struct hello hello = { .version = 1, .flags = 2, .credits = htons(RECEIVES),
			       .table.length = htonl(2), .buffer.length = htonl(64) };
	struct rdma_conn_param param = { .private_data = &hello,
					 .private_data_len = sizeof(hello),
					 .retry_count = 7,
					 .rnr_retry_count = 7,
					 .qp_num = qpn };

	need(rdma_connect(id, &param) == 0, "rdma_connect");
}

/* The answer stays on its channel. */
static void ask_often(const char *at, const char *port, int count)
{
	uint32_t qpn = QPN_FIRST + (uint32_t)getpid() % QPN_FIRST;

	for (int i = 0; i < count; i++) {
		struct rdma_cm_id *id = resolved(at, port);
		struct pollfd p = { .fd = id->channel->fd, .events = POLLIN };

		ask(id, qpn + (uint32_t)i);
		need(poll(&p, 1, WAIT_MS) == 1, "an answer");
	}
	say("answered ", count);
}

static void step(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	need(rdma_init_qp_attr(id, &attr, &mask) == 0, "rdma_init_qp_attr");
	need(ibv_modify_qp(qp, &attr, mask) == 0, "ibv_modify_qp");
}

/* A queue pair of its own: the library completes no connection for it. */
static void speak(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 2 * RECEIVES, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
					 .cap = { RECEIVES, RECEIVES, 1, 1, 16 } };
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_recv_wr *bad_recv, recv = { .num_sge = 0 };
	struct ibv_sge sge = { .addr = (uintptr_t) "x", .length = 1 };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					.send_flags = IBV_SEND_INLINE,
					.sg_list = &sge,
					.num_sge = 1,
					.imm_data = htonl(1) };
	struct hello said;

	need(qp != NULL, "ibv_create_qp");
	step(id, qp, IBV_QPS_INIT);
	for (int i = 0; i < RECEIVES; i++)
		need(ibv_post_recv(qp, &recv, &bad_recv) == 0, "ibv_post_recv");
	ask(id, qp->qp_num);
	await(id->channel, RDMA_CM_EVENT_CONNECT_RESPONSE, &said);
	step(id, qp, IBV_QPS_RTR);
	step(id, qp, IBV_QPS_RTS);
	wr.wr.rdma.remote_addr = be64toh(said.buffer.addr);
	wr.wr.rdma.rkey = ntohl(said.buffer.key);
	need(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
	puts("spoken");
	fflush(stdout);
}

static void connect_to(const char *at, const char *port)
{
	struct sockaddr_in sin = address(at, port);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	need(rconnect(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0, "rconnect");
	puts("connected");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "listen") == 0) {
		serve(argv[2], argv[3]);
		return 0;
	}
	if (argc == 4 && strcmp(argv[1], "connect") == 0)
		connect_to(argv[2], argv[3]);
	else if (argc == 4 && strcmp(argv[1], "speak") == 0)
		speak(resolved(argv[2], argv[3]));
	else if (argc == 5 && strcmp(argv[1], "ask") == 0)
		ask_often(argv[2], argv[3], atoi(argv[4]));
	else
		return 2;
	stay();
	return 0;
}
