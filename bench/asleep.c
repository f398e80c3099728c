/* asleep.c: a round trip between two processes that sleep on the descriptors of their completion
 * channels, with one request in 64 signalled beside each signalled, by SEND and by WRITE with
 * immediate.
 * Prints for both the ratio of the two times, and the times: medians of five blocks in turn.
 * usage: asleep [BUSY]    so many processes are busy meanwhile
 * In:    -    Out: `name value unit` lines    Runs: two processes with a thread each
 */
#include "client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS = 1000, BLOCKS = 5, DEPTH = 128, RECVS = 64, BYTES = 1000, RARELY = 64 };
enum { BUSY_MAX = 64 };

static const struct kind {
	const char *name;
	enum ibv_wr_opcode opcode;
	int every; /* so many requests to a signalled one */
} kinds[] = {
	{ "send_us", IBV_WR_SEND, 1 },
	{ "send_rarely_us", IBV_WR_SEND, RARELY },
	{ "imm_us", IBV_WR_RDMA_WRITE_WITH_IMM, 1 },
	{ "imm_rarely_us", IBV_WR_RDMA_WRITE_WITH_IMM, RARELY },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* What the other process must know. */
struct place {
	uint32_t qpn, rkey;
	uint64_t addr;
};

struct talk {
	struct client c;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct place peer;
	int fd, sent;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void talk_recv(struct talk *t)
{
	struct ibv_sge to = { (uintptr_t)t->mr->addr + 2048, BYTES, t->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &to, .num_sge = 1 }, *bad;

	client_need(ibv_post_recv(t->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void talk_send(struct talk *t, const struct kind *k)
{
	struct ibv_sge from = { (uintptr_t)t->mr->addr, BYTES, t->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &from,
					.num_sge = 1,
					.opcode = k->opcode,
					.wr.rdma = { t->peer.addr, t->peer.rkey } };

	if (++t->sent % k->every == 0)
		wr.send_flags = IBV_SEND_SIGNALED;
	client_need(ibv_post_send(t->qp, &wr, &bad) == 0, "ibv_post_send");
}

/* Both processes are here at the same time. */
static void talk_meet(struct talk *t)
{
	char c = 0;

	client_need(write(t->fd, &c, 1) == 1 && read(t->fd, &c, 1) == 1, "the other process");
}

static void talk_open(struct talk *t, int fd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 1, 1, 0 } };
	struct place own;
	char *memory = aligned_alloc(4096, 4096);

	t->fd = fd;
	client_open(&t->c, DEPTH);
	t->channel = ibv_create_comp_channel(t->c.context);
	client_need(t->channel != NULL, "ibv_create_comp_channel");
	init.send_cq = init.recv_cq = t->cq =
		ibv_create_cq(t->c.context, 4 * DEPTH, NULL, t->channel, 0);
	client_need(t->cq != NULL, "ibv_create_cq");
	t->qp = ibv_create_qp(t->c.pd, &init);
	t->mr = ibv_reg_mr(t->c.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	client_need(t->qp != NULL && t->mr != NULL, "ibv_create_qp or ibv_reg_mr");
	own = (struct place){ t->qp->qp_num, t->mr->rkey, (uintptr_t)memory + 2048 };
	client_need(write(fd, &own, sizeof(own)) == sizeof(own) &&
			    read(fd, &t->peer, sizeof(t->peer)) == sizeof(t->peer),
		    "the other process");
	client_connect(&t->c, t->qp, t->peer.qpn);
	for (int i = 0; i < RECVS; i++)
		talk_recv(t);
	talk_meet(t);
}

/* Takes what is there; returns how many of it are messages. */
static int talk_take(struct talk *t)
{
	struct ibv_wc wc;
	int messages = 0;

	while (ibv_poll_cq(t->cq, 1, &wc) == 1) {
		client_need(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		if ((wc.opcode & IBV_WC_RECV) == 0)
			continue;
		talk_recv(t);
		messages++;
	}
	return messages;
}

static void talk_sleep(struct talk *t)
{
	struct pollfd p = { .fd = t->channel->fd, .events = POLLIN };
	struct ibv_cq *cq = NULL;
	void *context;

	client_need(poll(&p, 1, -1) == 1 && ibv_get_cq_event(t->channel, &cq, &context) == 0,
		    "an event");
	ibv_ack_cq_events(cq, 1);
	client_need(ibv_req_notify_cq(t->cq, 0) == 0, "ibv_req_notify_cq");
}

/* ROUNDS messages each way; returns a round trip's time. */
static double talk_rounds(struct talk *t, const struct kind *k, int begins)
{
	double begin;

	talk_meet(t);
	begin = now_us();
	if (begins)
		talk_send(t, k);
	for (int got = 0; got < ROUNDS;) {
		for (int n = talk_take(t); n > 0; n--)
			if (++got < ROUNDS || !begins)
				talk_send(t, k);
		if (got < ROUNDS)
			talk_sleep(t);
	}
	return (now_us() - begin) / ROUNDS;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void talk(int fd, int begins, double us[KINDS][BLOCKS + 1])
{
	struct talk t = { 0 };

	talk_open(&t, fd);
	client_need(ibv_req_notify_cq(t.cq, 0) == 0, "ibv_req_notify_cq");
	for (int block = 0; block <= BLOCKS; block++) /* the first warms up */
		for (int k = 0; k < KINDS; k++)
			us[k][block] = talk_rounds(&t, &kinds[k], begins);
	talk_meet(&t);
}

int main(int argc, char **argv)
{
	int busy = argc > 1 ? atoi(argv[1]) : 0, ends[2];
	double us[KINDS][BLOCKS + 1], median[KINDS];

	client_need(busy >= 0 && busy <= BUSY_MAX, "so many busy processes");
	client_need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "a pair of sockets");
	for (int i = 0; i < busy; i++)
		if (client_fork() == 0)
			for (;;)
				__asm__ volatile("");
	if (client_fork() == 0) {
		talk(ends[1], 0, us);
		return 0;
	}
	talk(ends[0], 1, us);
	for (int k = 0; k < KINDS; k++) {
		qsort(us[k] + 1, BLOCKS, sizeof(double), compare);
		median[k] = us[k][1 + BLOCKS / 2];
		printf("%s %.1f us\n", kinds[k].name, median[k]);
	}
	printf("send_rarely %.3f x\n", median[1] / median[0]);
	printf("imm_rarely %.3f x\n", median[3] / median[2]);
	return 0;
}
