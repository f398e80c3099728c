/* multicast.c: one sender, many receivers, by unreliable datagrams (UD): what UDP is to TCP.
 *
 *   cc multicast.c -libverbs -lrdmacm -o multicast
 *   anyverbs run ./multicast receive 239.1.2.3 [LOCAL] &        as many as you like
 *   anyverbs run ./multicast send    239.1.2.3 [LOCAL]
 *
 * LOCAL is an address of the device to use; without it the host's routes decide.
 *
 * - A UD QP has no peer: each request names its destination by an address handle (AH), a QP number
 *   and a Q_Key. For a group the RDMA CM gives all three when it has joined.
 * - A datagram is at most one MTU. It may be lost, and nobody is told: a receiver that has posted
 * no   buffer loses it.
 * - The first 40 bytes of a UD receive buffer are not payload: they are the GRH, which says who
 * sent   it. (IBV_WC_GRH says whether it is valid.)
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRH = 40, TEXT = 64, MESSAGES = 3, BUFFERS = 8, TIMEOUT_MS = 2000 };

static char memory[BUFFERS][GRH + TEXT];
static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

/* The group's destination. */
static struct ibv_ah *ah;
static uint32_t group_qpn, group_qkey;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	must(inet_pton(AF_INET, text, &a.sin_addr) == 1, "an IPv4 address is needed");
	return a;
}

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	must(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
	if (e->event != type) {
		fprintf(stderr, "expected %s, got %s (status %d)\n", rdma_event_str(type),
			rdma_event_str(e->event), e->status);
		exit(1);
	}
	return e;
}

/* Finds the device that leads to the group, and makes a UD QP on it. rdma_create_qp brings a UD QP
 * to RTS at once: there is no peer to wait for. */
static void make_qp(struct sockaddr_in *group, const char *local)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { BUFFERS, BUFFERS, 1, 1, 0 } };

	if (local != NULL) {
		struct sockaddr_in from = address(local);

		must(rdma_bind_addr(id, (struct sockaddr *)&from) == 0, "rdma_bind_addr");
	}
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)group, TIMEOUT_MS) == 0,
	     "rdma_resolve_addr");
	rdma_ack_cm_event(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
	cq = ibv_create_cq(id->verbs, 2 * BUFFERS, NULL, NULL, 0);
	must(cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = cq;
	must(rdma_create_qp(id, NULL, &init) == 0, "rdma_create_qp");
	mr = ibv_reg_mr(id->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	must(mr != NULL, "ibv_reg_mr");
}

static void post_receive(uint64_t i)
{
	struct ibv_sge piece = { (uintptr_t)memory[i], GRH + TEXT, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &piece, .num_sge = 1 }, *bad;

	must(ibv_post_recv(id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

/* Joining attaches the QP to the group, and says where datagrams to it go. */
static void join(struct sockaddr_in *group)
{
	struct rdma_cm_event *e;

	must(rdma_join_multicast(id, (struct sockaddr *)group, NULL) == 0, "rdma_join_multicast");
	e = expect(RDMA_CM_EVENT_MULTICAST_JOIN);
	ah = ibv_create_ah(id->pd, &e->param.ud.ah_attr);
	group_qpn = e->param.ud.qp_num; /* 0xffffff: all members */
	group_qkey = e->param.ud.qkey;
	rdma_ack_cm_event(e);
	must(ah != NULL, "ibv_create_ah");
}

static struct ibv_wc completed(void)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (n == 0);
	must(n == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "failed: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

/* The end of the list tells receivers to go. A real program would repeat it: it may be lost. */
static void send_all(void)
{
	static const char *const texts[MESSAGES] = { "one", "two", "end" };

	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge piece = { (uintptr_t)memory[i], TEXT, mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &piece,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;

		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = group_qpn;
		wr.wr.ud.remote_qkey = group_qkey;
		snprintf(memory[i], TEXT, "%s", texts[i]);
		must(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
		completed(); /* it has left: whether it arrives nobody knows */
	}
	printf("sent %d datagrams\n", MESSAGES);
}

static void receive_all(void)
{
	const char *text;

	puts("joined");
	do {
		struct ibv_wc wc = completed();

		text = memory[wc.wr_id] + GRH;
		printf("received: %.*s, %u bytes behind the GRH, from QP %u\n", TEXT, text,
		       wc.byte_len - GRH, wc.src_qp);
		if (strncmp(text, "end", TEXT) != 0)
			post_receive(wc.wr_id);
	} while (strncmp(text, "end", TEXT) != 0);
}

int main(int argc, char **argv)
{
	int receives = argc > 1 && strcmp(argv[1], "receive") == 0;
	struct sockaddr_in group;

	if (argc < 3 || argc > 4 || (!receives && strcmp(argv[1], "send") != 0)) {
		fprintf(stderr, "usage: %s receive|send GROUP [LOCAL]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	group = address(argv[2]);
	channel = rdma_create_event_channel();
	must(channel != NULL, "rdma_create_event_channel");
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0, "rdma_create_id");
	make_qp(&group, argc > 3 ? argv[3] : NULL);
	for (uint64_t i = 0; receives && i < BUFFERS; i++)
		post_receive(i);
	join(&group);
	if (receives)
		receive_all();
	else
		send_all();
	must(rdma_leave_multicast(id, (struct sockaddr *)&group) == 0, "rdma_leave_multicast");
	ibv_destroy_ah(ah);
	rdma_destroy_qp(id);
	ibv_dereg_mr(mr);
	ibv_destroy_cq(cq);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
