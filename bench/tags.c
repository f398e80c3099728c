/* tags.c: what tag matching costs: beside a plain SRQ, with many posted tags, and as a rendezvous
 * beside a READ. Two processes on the first two cores; the figures alternate in short chunks.
 *
 * In:    nothing    Out: "name value" lines: times in us of one way, MiB/s, and ratios
 *   plain_lat       8 bytes by SEND into a plain SRQ
 *   eager_lat       8 bytes, expected, into a tag-matching SRQ; eager_ratio: to plain_lat
 *   list_N          the same behind N posted tags that do not match; list_ratio: the slowest of
 *                   them to the fastest
 *   read_bw         READs of 1 MiB, DEPTH at a time
 *   rendezvous_bw   rendezvous of 1 MiB, likewise; rendezvous_ratio: read_bw to it
 * Runs:  one thread in each process    Locks: none
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/tm_types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "../test/pairs/pairs.h"

enum {
	LANES = 5,
	PLAIN = 0,
	EAGER = 1,
	CHUNKS = 15,
	ROUNDS = 2000, /* of a chunk */
	WARM = 2000,
	AHEAD = 8, /* receives posted before they are needed */
	SENDS = 32,
	TAG = 7,
	LONG = 1 << 20,
	DEPTH = 8,
	LONGS = 256, /* of a chunk */
};

/* Entries that do not match, of each lane. */
static const uint32_t fillers[LANES] = { 0, 0, 10, 1000, 50000 };

struct lane {
	struct ibv_srq *srq;
	struct ibv_cq *recv_cq, *send_cq;
	struct ibv_qp *qp;
	uint32_t sending; /* without completion */
};

struct card {
	union ibv_gid gid;
	uint32_t qpn[LANES];
	uint64_t addr;
	uint32_t rkey;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct lane lanes[LANES];
static struct ibv_mr *mr;
static uint8_t *memory; /* headers and small messages in front, long ones behind */
static struct card peer;

enum { MEMORY = 4096 + DEPTH * LONG };

static double tags_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- setting up ---- */

static void lane_open(struct lane *l, int i)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 64, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC,
				       .cap = { .max_send_wr = 2 * SENDS, .max_send_sge = 1,
						.max_inline_data = 64 } };

	must((l->recv_cq = ibv_create_cq(ctx, 4096, NULL, NULL, 0)) != NULL);
	must((l->send_cq = ibv_create_cq(ctx, 4096, NULL, NULL, 0)) != NULL);
	if (i != PLAIN) {
		init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
		init.srq_type = IBV_SRQT_TM;
		init.cq = l->recv_cq;
		init.tm_cap.max_num_tags = fillers[i] + AHEAD + 3 * DEPTH;
		init.tm_cap.max_ops = 64;
	}
	must((l->srq = ibv_create_srq_ex(ctx, &init)) != NULL);
	qp.send_cq = l->send_cq;
	qp.recv_cq = l->recv_cq;
	qp.srq = l->srq;
	must((l->qp = ibv_create_qp(pd, &qp)) != NULL);
}

static void side_open(int fd)
{
	struct card mine = { 0 };

	must((ctx = device_open(NULL)) != NULL && ibv_query_gid(ctx, CONN_PORT, 1, &mine.gid) == 0);
	must((pd = ibv_alloc_pd(ctx)) != NULL);
	must((memory = aligned_alloc(4096, MEMORY)) != NULL);
	memset(memory, 1, MEMORY);
	must((mr = ibv_reg_mr(pd, memory, MEMORY,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)) != NULL);
	mine.addr = (uintptr_t)memory;
	mine.rkey = mr->rkey;
	for (int i = 0; i < LANES; i++) {
		lane_open(&lanes[i], i);
		mine.qpn[i] = lanes[i].qp->qp_num;
	}
	must(other_tell(fd, &mine, sizeof(mine)));
	must(other_hear(fd, &peer, sizeof(peer)) == sizeof(peer));
	for (int i = 0; i < LANES; i++) {
		struct ibv_qp_attr a = conn_attr(peer.qpn[i], &peer.gid, 1);

		a.qp_access_flags = IBV_ACCESS_REMOTE_READ;
		a.max_rd_atomic = a.max_dest_rd_atomic = 16;
		a.path_mtu = IBV_MTU_4096;
		must(conn_up(lanes[i].qp, &a, IBV_QPS_RTS) == 0);
	}
}

/* ---- requests ---- */

static void lane_receive(struct lane *l, uint64_t tag, uint32_t at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory + at, length, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_ops_wr op = { .opcode = IBV_WR_TAG_ADD,
				 .tm.add = { .sg_list = &sge,
					     .num_sge = 1,
					     .tag = tag,
					     .mask = UINT64_MAX } },
			  *bad_op;

	if (l == &lanes[PLAIN])
		must(ibv_post_srq_recv(l->srq, &recv, &bad) == 0);
	else
		must(ibv_post_srq_ops(l->srq, &op, &bad_op) == 0);
}

static void lane_reap(struct lane *l, uint32_t most)
{
	struct ibv_wc wc[SENDS];
	int n;

	while (l->sending > most) {
		must((n = ibv_poll_cq(l->send_cq, SENDS, wc)) >= 0);
		for (int i = 0; i < n; i++)
			must(wc[i].status == IBV_WC_SUCCESS);
		l->sending -= (uint32_t)n;
	}
}

static void lane_post(struct lane *l, enum ibv_wr_opcode opcode, void *at, uint32_t length,
		      unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)at, length, mr->lkey };
	struct ibv_send_wr wr = { .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED | flags,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .wr.rdma = { peer.addr + 4096, peer.rkey } }, *bad;

	must(ibv_post_send(l->qp, &wr, &bad) == 0);
	l->sending++;
}

/* One completion of a receive whose data is there. */
static void lane_wait(struct lane *l)
{
	struct ibv_wc wc;
	int n;

	do {
		while ((n = ibv_poll_cq(l->recv_cq, 1, &wc)) == 0)
			;
		must(n == 1 && wc.status == IBV_WC_SUCCESS);
	} while (wc.opcode == IBV_WC_TM_RECV && (wc.wc_flags & IBV_WC_TM_DATA_VALID) == 0);
}

static void lane_send(struct lane *l)
{
	struct {
		struct ibv_tmh tmh;
		uint64_t payload;
	} m = { { .opcode = IBV_TMH_EAGER, .tag = htobe64(TAG) }, 1 };

	if (l == &lanes[PLAIN])
		lane_post(l, IBV_WR_SEND, &m.payload, 8, IBV_SEND_INLINE);
	else
		lane_post(l, IBV_WR_SEND, &m, sizeof(m), IBV_SEND_INLINE);
	if (l->sending >= SENDS)
		lane_reap(l, 0);
}

/* Ordinary buffers, for FINs. */
static void lane_buffers(struct lane *l)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < 4 * DEPTH; i++)
		must(ibv_post_srq_recv(l->srq, &recv, &bad) == 0);
}

/* ---- latency ---- */

static double lane_pingpong(struct lane *l, bool first, int rounds)
{
	double begin = tags_now();

	for (int i = 0; i < rounds; i++) {
		if (first)
			lane_send(l);
		lane_wait(l);
		if (!first)
			lane_send(l);
		lane_receive(l, TAG, 0, 64);
	}
	return (tags_now() - begin) / rounds / 2;
}

static int tags_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double tags_median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), tags_compare);
	return v[n / 2];
}

/* What does not match lies in front of what does. */
static void lanes_fill(int fd)
{
	char ready = 1;

	for (int i = 0; i < LANES; i++) {
		for (uint32_t k = 0; k < fillers[i]; k++)
			lane_receive(&lanes[i], TAG + 1 + k, 0, 64);
		for (int k = 0; k < AHEAD; k++)
			lane_receive(&lanes[i], TAG, 0, 64);
	}
	must(other_tell(fd, &ready, 1) && other_hear(fd, &ready, 1) == 1);
}

static void run_latency(int fd, bool first, double *us)
{
	static double chunk[LANES][CHUNKS];

	lanes_fill(fd);
	for (int i = 0; i < LANES; i++)
		lane_pingpong(&lanes[i], first, WARM);
	for (int c = 0; c < CHUNKS; c++)
		for (int i = 0; i < LANES; i++)
			chunk[i][c] = lane_pingpong(&lanes[i], first, ROUNDS);
	for (int i = 0; i < LANES; i++)
		us[i] = tags_median(chunk[i], CHUNKS);
}

/* ---- bandwidth ---- */

static double run_read(void)
{
	struct lane *l = &lanes[EAGER];
	double begin = tags_now();

	lane_reap(l, 0);
	for (int i = 0; i < LONGS; i++) {
		lane_post(l, IBV_WR_RDMA_READ, memory + 4096 + i % DEPTH * LONG, LONG, 0);
		lane_reap(l, DEPTH - 1);
	}
	lane_reap(l, 0);
	return LONGS / ((tags_now() - begin) / 1e6);
}

static void rendezvous_entries(int fd, int from)
{
	char go = 1;

	for (int i = 0; i < DEPTH && from < LONGS; i++)
		lane_receive(&lanes[EAGER], 1, 4096 + (uint32_t)(i * LONG), LONG);
	must(other_tell(fd, &go, 1));
}

/* Twice DEPTH entries are posted, so that the sender need not wait for those that are consumed. */
static double run_rendezvous_receive(int fd)
{
	double begin = tags_now();

	rendezvous_entries(fd, 0);
	rendezvous_entries(fd, DEPTH);
	for (int i = 0; i < LONGS; i++) {
		lane_wait(&lanes[EAGER]);
		if (i % DEPTH == DEPTH - 1)
			rendezvous_entries(fd, i + 1 + DEPTH);
	}
	return LONGS / ((tags_now() - begin) / 1e6);
}

/* Takes the FINs that have come. */
static void rendezvous_fins(struct lane *l, int *fins)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	while (ibv_poll_cq(l->recv_cq, 1, &wc) == 1) {
		must(wc.opcode == IBV_WC_TM_NO_TAG);
		must(ibv_post_srq_recv(l->srq, &recv, &bad) == 0);
		++*fins;
	}
}

/* Requests are sent only when their entries are posted. */
static void run_rendezvous_send(int fd)
{
	struct lane *l = &lanes[EAGER];
	struct {
		struct ibv_tmh tmh;
		struct ibv_rvh rvh;
	} m = { { .opcode = IBV_TMH_RNDV, .tag = htobe64(1) },
		{ htobe64((uintptr_t)memory + 4096), htonl(mr->rkey), htonl(LONG) } };
	int fins = 0;
	char go;

	for (int i = 0; i < LONGS; i += DEPTH) {
		/* a rank that polls while it waits, as MPI does */
		while (recv(fd, &go, 1, MSG_DONTWAIT) != 1)
			rendezvous_fins(l, &fins);
		for (int k = 0; k < DEPTH; k++)
			lane_post(l, IBV_WR_SEND, &m, sizeof(m), IBV_SEND_INLINE);
		lane_reap(l, DEPTH);
		rendezvous_fins(l, &fins);
	}
	while (fins < LONGS)
		rendezvous_fins(l, &fins);
	for (int i = 0; i < 2; i++)
		must(other_hear(fd, &go, 1) == 1);
}

/* ---- both sides ---- */

static void tags_print(const double *us)
{
	double low = us[2], high = us[2];

	printf("plain_lat %.3f us\neager_lat %.3f us\neager_ratio %.3f\n", us[PLAIN], us[EAGER],
	       us[EAGER] / us[PLAIN]);
	for (int i = 2; i < LANES; i++) {
		low = us[i] < low ? us[i] : low;
		high = us[i] > high ? us[i] : high;
		printf("list_%u %.3f us\n", fillers[i], us[i]);
	}
	printf("list_ratio %.3f\n", high / low);
}

static void tags_run(int fd, bool first)
{
	double us[LANES], read[5], rendezvous[5];
	char done = 1;

	side_open(fd);
	lane_buffers(&lanes[EAGER]);
	run_latency(fd, first, us);
	for (int i = 0; i < 5; i++) {
		if (first) {
			read[i] = run_read();
			rendezvous[i] = run_rendezvous_receive(fd);
		} else {
			run_rendezvous_send(fd);
		}
	}
	must(other_tell(fd, &done, 1) && other_hear(fd, &done, 1) == 1);
	if (!first)
		return;
	tags_print(us);
	printf("read_bw %.0f MiB/s\n", tags_median(read, 5));
	printf("rendezvous_bw %.0f MiB/s\n", tags_median(rendezvous, 5));
	printf("rendezvous_ratio %.3f\n", read[2] / rendezvous[2]);
}

int main(void)
{
	int fd;
	pid_t child = other_fork_pinned(&fd);

	must(child >= 0);
	tags_run(fd, child != 0);
	return 0;
}
