/* lost_wakeup.c: a consumer that sleeps between completions, once with the classic bug and once
 * without. docs/lost-wakeup.md tells the story.
 *
 * usage: lost_wakeup classic|careful [MILLISECONDS]
 *
 * Both styles take what is there, ask for an event and sleep. A message that arrives after the last
 * look and before the request is the whole difference: here it always does. Adapters that raise an
 * event at once hide it; ANYVERBS_STRICT_NOTIFY=1 shows it. Exit status 0: the message was seen;
 * 3: it waits in the completion queue, and the consumer sleeps beside it (it gives up after
 * MILLISECONDS, a real one never would).
 */
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CQE = 16, ASLEEP = 3, FAILED = 1, USAGE = 2 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_qp *sender, *receiver;
static uint64_t words[2];

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(FAILED);
}

/* ---- a connection of this process to itself -------------------------------------------------- */

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr init = { .send_cq = send_cq,
					 .recv_cq = recv_cq,
					 .cap = { CQE, CQE, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer,
				 .max_dest_rd_atomic = 1,
				 .max_rd_atomic = 1,
				 .min_rnr_timer = 12,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7 };

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = *gid;
	a.ah_attr.grh.hop_limit = 64;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS) == 0, "to INIT");
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER) == 0, "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					   IBV_QP_MAX_QP_RD_ATOMIC) == 0, "to RTS");
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	union ibv_gid gid;

	must(list != NULL && list[0] != NULL, "a device");
	ctx = ibv_open_device(list[0]);
	must(ctx != NULL && ibv_query_gid(ctx, 1, 0, &gid) == 0, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	channel = ibv_create_comp_channel(ctx);
	send_cq = ibv_create_cq(ctx, CQE, NULL, NULL, 0);
	recv_cq = ibv_create_cq(ctx, CQE, NULL, channel, 0);
	must(pd && channel && send_cq && recv_cq, "objects");
	mr = ibv_reg_mr(pd, words, sizeof(words), IBV_ACCESS_LOCAL_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	sender = make_qp();
	receiver = make_qp();
	connect_qp(sender, receiver->qp_num, &gid);
	connect_qp(receiver, sender->qp_num, &gid);
}

static void close_all(void)
{
	must(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(receiver) == 0, "ibv_destroy_qp");
	must(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
	must(ibv_destroy_cq(recv_cq) == 0 && ibv_destroy_cq(send_cq) == 0, "ibv_destroy_cq");
	must(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
	must(ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0, "ibv_close_device");
}

/* When this returns the message has arrived: the sender's completion says so. */
static void peer_sends(void)
{
	struct ibv_sge from = { (uintptr_t)&words[0], 8, mr->lkey };
	struct ibv_sge to = { (uintptr_t)&words[1], 8, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_wc wc;
	int n;

	must(ibv_post_recv(receiver, &recv, &bad_recv) == 0, "ibv_post_recv");
	must(ibv_post_send(sender, &send, &bad_send) == 0, "ibv_post_send");
	do
		n = ibv_poll_cq(send_cq, 1, &wc);
	while (n == 0);
	must(n == 1 && wc.status == IBV_WC_SUCCESS, "the send");
}

/* ---- the consumer ---------------------------------------------------------------------------- */

static int take_all(void)
{
	struct ibv_wc wc;
	int taken = 0;

	while (ibv_poll_cq(recv_cq, 1, &wc) == 1)
		taken++;
	return taken;
}

/* 0: no event came. */
static int sleep_until_event(int timeout_ms)
{
	struct pollfd ready = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&ready, 1, timeout_ms) != 1)
		return 0;
	must(ibv_get_cq_event(channel, &cq, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	return 1;
}

/* Takes, asks, sleeps, takes. An event is promised for what is added after the request only. */
static int consume_classic(int timeout_ms)
{
	int taken = take_all();

	peer_sends(); /* the unlucky moment */
	must(ibv_req_notify_cq(recv_cq, 0) == 0, "ibv_req_notify_cq");
	if (sleep_until_event(timeout_ms))
		taken += take_all();
	return taken;
}

/* Takes, asks, looks once more, and only then sleeps. */
static int consume_careful(int timeout_ms)
{
	int taken = take_all();

	peer_sends();
	must(ibv_req_notify_cq(recv_cq, 0) == 0, "ibv_req_notify_cq");
	taken += take_all();
	if (taken == 0 && sleep_until_event(timeout_ms))
		taken += take_all();
	return taken;
}

int main(int argc, char **argv)
{
	int timeout_ms = argc > 2 ? atoi(argv[2]) : 1000;
	int careful = argc > 1 && strcmp(argv[1], "careful") == 0;
	int taken;

	if (argc < 2 || (!careful && strcmp(argv[1], "classic") != 0)) {
		fprintf(stderr, "usage: %s classic|careful [MILLISECONDS]\n", argv[0]);
		return USAGE;
	}
	open_all();
	taken = careful ? consume_careful(timeout_ms) : consume_classic(timeout_ms);
	if (taken == 1)
		printf("%s: the message was seen\n", argv[1]);
	else
		printf("%s: asleep, while %d completion waits\n", argv[1], take_all());
	close_all();
	return taken == 1 ? 0 : ASLEEP;
}
