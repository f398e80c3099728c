/* consumer.c: what Linux 6.1's calls cost over the verbs beneath them, in one process: a CQ polled
 * by ib_process_cq_direct beside ib_poll_cq, and a transfer of 4 KiB by rdma_rw_ctx_*, with and
 * without registration, beside a plain READ.
 *
 *   build/bench/consumer [ROUNDS]     nanoseconds per operation, and ratios
 *
 * The ways take turns of BATCH operations; each way's figure is that of its best turn, so another
 * program on the machine disturbs all or none of them.
 */
#include <rdma/ib_linux61.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 2000, BYTES = 4096, WAYS = 5 };

static struct {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp, *registers; /* each connected to itself */
	struct ib_cqe cqe;
	u64 done;
	char *near, *far;
} b;

static void fail(const char *what, long err)
{
	fprintf(stderr, "consumer: %s: error %ld\n", what, -err);
	exit(1);
}

static void on_done(struct ib_cq *cq, struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS)
		fail("completion", -(long)wc->status);
	b.done++;
}

static void add(struct ib_device *device)
{
	b.device = b.device ? b.device : device;
}

static void must(const char *what, int err)
{
	if (err)
		fail(what, err);
}

static void connect_to_itself(struct ib_qp *qp)
{
	struct ib_qp_attr a = { .qp_state = IB_QPS_INIT,
				.port_num = 1,
				.path_mtu = IB_MTU_4096,
				.dest_qp_num = qp->qp_num,
				.max_rd_atomic = 1,
				.max_dest_rd_atomic = 1,
				.qp_access_flags = IB_ACCESS_REMOTE_READ,
				.min_rnr_timer = 12,
				.timeout = 14,
				.retry_cnt = 7,
				.rnr_retry = 7 };

	must("GID", ib_query_gid(b.device, 1, 0, &a.ah_attr.grh.dgid));
	a.ah_attr.ah_flags = IB_AH_GRH;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.hop_limit = 64;
	must("INIT", ib_modify_qp(qp, &a, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
						  IB_QP_ACCESS_FLAGS));
	a.qp_state = IB_QPS_RTR;
	must("RTR", ib_modify_qp(qp, &a, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
						 IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
						 IB_QP_MIN_RNR_TIMER));
	a.qp_state = IB_QPS_RTS;
	must("RTS", ib_modify_qp(qp, &a, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT |
						 IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
						 IB_QP_MAX_QP_RD_ATOMIC));
}

static struct ib_qp *queue_pair(bool registers)
{
	struct ib_qp_init_attr_linux61 init = { .send_cq = b.cq,
						.recv_cq = b.cq,
						.qp_type = IB_QPT_RC,
						.sq_sig_type = IB_SIGNAL_REQ_WR,
						.port_num = 1,
						.cap = { .max_send_wr = 64,
							 .max_recv_wr = 64,
							 .max_send_sge = 1,
							 .max_recv_sge = 1,
							 .max_rdma_ctxs = 2 } };
	struct ib_qp *qp;

	rdma_rw_set_force_mr(registers);
	qp = ib_create_qp_linux61(b.pd, &init);
	if (IS_ERR(qp))
		fail("queue pair", PTR_ERR(qp));
	connect_to_itself(qp);
	return qp;
}

static void setup(void)
{
	static struct ib_client client = { .name = "consumer", .add = add };

	must("client", ib_register_client(&client));
	if (!b.device)
		fail("no device", 0);
	b.cqe.done = on_done;
	b.near = aligned_alloc(BYTES, BYTES);
	b.far = aligned_alloc(BYTES, BYTES);
	memset(b.near, 1, BYTES);
	memset(b.far, 2, BYTES);
	b.pd = ib_alloc_pd_linux61(b.device, IB_PD_UNSAFE_GLOBAL_RKEY);
	b.cq = ib_alloc_cq(b.device, NULL, 256, 0, IB_POLL_DIRECT);
	if (IS_ERR(b.pd) || IS_ERR(b.cq))
		fail("domain or CQ", -1);
	b.qp = queue_pair(false);
	b.registers = queue_pair(true);
}

/* ---- the ways -------------------------------------------------------------------------------- */

/* As ib_process_cq_direct polls. */
static void poll_by_hand(void)
{
	struct ib_wc wc[8];
	int got = ib_poll_cq(b.cq, 8, wc);

	for (int i = 0; i < got; i++)
		on_done(b.cq, &wc[i]);
}

static void wait_for(u64 done, bool direct)
{
	while (b.done < done)
		if (direct)
			ib_process_cq_direct(b.cq, -1);
		else
			poll_by_hand();
}

static void message(bool direct)
{
	struct ib_sge out = { (u64)(uintptr_t)b.near, 8, b.pd->local_dma_lkey };
	struct ib_sge in = { (u64)(uintptr_t)b.far, 8, b.pd->local_dma_lkey };
	struct ib_recv_wr recv = { .wr_cqe = &b.cqe, .sg_list = &in, .num_sge = 1 };
	struct ib_send_wr_linux61 send = { .wr_cqe = &b.cqe,
					   .sg_list = &out,
					   .num_sge = 1,
					   .opcode = IB_WR_SEND,
					   .send_flags = IB_SEND_SIGNALED };
	u64 before = b.done;

	must("receive", ib_post_recv_linux61(b.qp, &recv, NULL));
	must("send", ib_post_send_linux61(b.qp, &send, NULL));
	wait_for(before + 2, direct);
}

static void plain_read(void)
{
	struct ib_sge in = { (u64)(uintptr_t)b.near, BYTES, b.pd->local_dma_lkey };
	struct ib_rdma_wr wr = { .wr = { .wr_cqe = &b.cqe,
					 .sg_list = &in,
					 .num_sge = 1,
					 .opcode = IB_WR_RDMA_READ,
					 .send_flags = IB_SEND_SIGNALED },
				 .remote_addr = (u64)(uintptr_t)b.far,
				 .rkey = b.pd->unsafe_global_rkey };
	u64 before = b.done;

	must("READ", ib_post_send_linux61(b.qp, &wr.wr, NULL));
	wait_for(before + 1, true);
}

static void transfer(struct ib_qp *qp)
{
	struct rdma_rw_ctx ctx;
	struct scatterlist sg;
	u64 before = b.done;

	sg_init_one(&sg, b.near, BYTES);
	if (rdma_rw_ctx_init(&ctx, qp, 1, &sg, 1, 0, (u64)(uintptr_t)b.far,
			     b.pd->unsafe_global_rkey, DMA_FROM_DEVICE) < 1)
		fail("transfer", -1);
	must("transfer", rdma_rw_ctx_post(&ctx, qp, 1, &b.cqe, NULL));
	wait_for(before + 1, true);
	rdma_rw_ctx_destroy(&ctx, qp, 1, &sg, 1, DMA_FROM_DEVICE);
}

static void operate(int way)
{
	switch (way) {
	case 0:
	case 1:
		message(way == 1);
		return;
	case 2:
		plain_read();
		return;
	default:
		transfer(way == 3 ? b.qp : b.registers);
	}
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	static const char *const names[WAYS] = { "poll", "process_direct", "read", "rw",
						 "rw_registered" };
	static const int beside[WAYS] = { 0, 0, 2, 2, 2 };
	double best[WAYS] = { 0 };
	int rounds = argc > 1 ? atoi(argv[1]) : 20;

	setup();
	for (int round = 0; round < rounds; round++)
		for (int way = 0; way < WAYS; way++) {
			double begin = now_ns(), each;

			for (int i = 0; i < BATCH; i++)
				operate(way);
			each = (now_ns() - begin) / BATCH;
			if (best[way] == 0 || each < best[way])
				best[way] = each;
		}
	for (int way = 0; way < WAYS; way++)
		printf("%s %.0f ns\n%s_ratio %.3f\n", names[way], best[way], names[way],
		       best[way] / best[beside[way]]);
	ib_drain_qp(b.qp);
	ib_drain_qp(b.registers);
	ib_destroy_qp_linux61(b.qp);
	ib_destroy_qp_linux61(b.registers);
	ib_free_cq(b.cq);
	ib_dealloc_pd_linux61(b.pd);
	return 0;
}
