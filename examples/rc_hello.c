/* rc_hello.c: two programs greet each other over a reliable connection (RC), by messages.
 *
 *   cc rc_hello.c -libverbs -o rc_hello
 *   anyverbs run ./rc_hello &                 the server
 *   anyverbs run ./rc_hello 127.0.0.1         the client
 *
 * What sockets hide and verbs show:
 * - A queue pair (QP) is the connection's end. Two QPs are connected by telling each the other's
 *   number and address. How the two programs tell each other is their business: here by TCP.
 * - Memory is registered before the adapter may touch it: ibv_reg_mr.
 * - A receiver posts its buffers before messages come. One message takes one buffer.
 * - A send is posted, not done. When it is done the completion queue (CQ) has an entry that says
 *   whether it succeeded. Until then the buffer belongs to the adapter.
 */
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TEXT = 64, PORT = 1 };
#define TCP_PORT "18514"

/* What each end has to know of the other. */
struct address {
	uint32_t qpn;
	uint16_t lid; /* InfiniBand only */
	union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char memory[2][TEXT]; /* 0: to send, 1: to receive */
static int gid_index;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* ---- TCP: tells the other end our address ---- */

/* Connects to `host`, or waits for one connection if it is NULL. */
static int tcp_open(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int s, fd, on = 1;

	hints.ai_flags = host == NULL ? AI_PASSIVE : 0;
	must(getaddrinfo(host, TCP_PORT, &hints, &found) == 0, "getaddrinfo");
	s = socket(found->ai_family, found->ai_socktype, 0);
	must(s >= 0, "socket");
	if (host != NULL) {
		for (int i = 0; connect(s, found->ai_addr, found->ai_addrlen) != 0; i++) {
			must(i < 100, "connect"); /* the server may still be starting */
			usleep(50000);
		}
		freeaddrinfo(found);
		return s;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	must(bind(s, found->ai_addr, found->ai_addrlen) == 0 && listen(s, 1) == 0, "listen");
	freeaddrinfo(found);
	fd = accept(s, NULL, NULL);
	must(fd >= 0, "accept");
	close(s);
	return fd;
}

static void tcp_exchange(int fd, const void *ours, void *theirs, size_t size)
{
	must(send(fd, ours, size, 0) == (ssize_t)size, "send");
	must(recv(fd, theirs, size, MSG_WAITALL) == (ssize_t)size, "recv");
}

/* ---- verbs: objects ---- */

/* RoCE names a host by a GID: the IPv4 address in IPv6's form. A port has several. */
static int find_gid(void)
{
	struct ibv_gid_entry e;

	for (int i = 0; ibv_query_gid_ex(context, PORT, i, &e, 0) == 0; i++)
		if (e.gid_type == IBV_GID_TYPE_ROCE_V2 && e.gid.raw[10] == 0xff &&
		    e.gid.raw[11] == 0xff)
			return i;
	return 0;
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };

	must(list != NULL && list[0] != NULL, "no device: was this started by `anyverbs run`?");
	context = ibv_open_device(list[0]);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context); /* memory and QPs of one protection domain go together */
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	mr = pd != NULL ? ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE) : NULL;
	must(pd && cq && mr, "objects");
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	must(qp != NULL, "ibv_create_qp");
	gid_index = find_gid();
}

/* RESET -> INIT -> RTR (ready to receive) -> RTS (ready to send). */
static void to_init(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = PORT };

	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS) == 0, "to INIT");
}

static void connect_to(const struct address *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer->qpn,
				 .max_dest_rd_atomic = 1,
				 .min_rnr_timer = 12, /* 0.64 ms, until a buffer is posted */
				 .timeout = 14, /* 67 ms, then it sends again */
				 .retry_cnt = 7,
				 .rnr_retry = 7, /* for ever */
				 .max_rd_atomic = 1 };

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = PORT;
	a.ah_attr.dlid = peer->lid;
	a.ah_attr.grh.dgid = peer->gid;
	a.ah_attr.grh.sgid_index = (uint8_t)gid_index;
	a.ah_attr.grh.hop_limit = 64;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER) == 0, "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0, "to RTS");
}

/* ---- verbs: messages ---- */

static void post_receive(void)
{
	struct ibv_sge piece = { (uintptr_t)memory[1], TEXT, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &piece, .num_sge = 1 }, *bad;

	must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post_send(void)
{
	struct ibv_sge piece = { (uintptr_t)memory[0], (uint32_t)strlen(memory[0]) + 1, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &piece,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	must(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
}

/* Waits for `count` completions, in any order: the answer may be here before our own send is
 * acknowledged. */
static void complete(int count)
{
	struct ibv_wc wc;

	while (count > 0) {
		int n = ibv_poll_cq(cq, 1, &wc);

		must(n >= 0, "ibv_poll_cq");
		if (n == 0)
			continue; /* busy polling: the fastest way; events.c sleeps instead */
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "work request %d failed: %s\n", (int)wc.wr_id,
				ibv_wc_status_str(wc.status));
			exit(1);
		}
		count--;
	}
}

int main(int argc, char **argv)
{
	const char *host = argc > 1 ? argv[1] : NULL;
	struct address ours = { 0 }, theirs;
	struct ibv_port_attr port;
	char ready = 1;
	int fd;

	open_all();
	to_init();
	post_receive(); /* before the peer can send */
	must(ibv_query_port(context, PORT, &port) == 0, "ibv_query_port");
	ours.qpn = qp->qp_num;
	ours.lid = port.lid;
	must(ibv_query_gid(context, PORT, gid_index, &ours.gid) == 0, "ibv_query_gid");
	fd = tcp_open(host);
	tcp_exchange(fd, &ours, &theirs, sizeof(ours));
	connect_to(&theirs);
	tcp_exchange(fd, &ready, &ready, 1); /* both are in RTS */
	snprintf(memory[0], TEXT, "hello from the %s", host != NULL ? "client" : "server");
	post_send();
	complete(2); /* our send, their message */
	printf("received: %s\n", memory[1]);
	tcp_exchange(fd, &ready, &ready, 1); /* the peer has our message: now we may go */
	close(fd);
	must(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 &&
	     ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "closing");
	return 0;
}
