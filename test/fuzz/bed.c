/* bed.c: the engine that a fuzzer's packets meet.
 * In: a path    Out: queue pairs, verdicts    Runs: the fuzzer's thread    Locks: none
 */
#include "bed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MEMORY = 64 << 10,
	SHUT_AT = 40008,
	SHUT_BYTES = 9000,
	RECEIVE_BYTES = 5000,
	RECEIVE_PIECE = 2000,
	RECEIVE_GAP = 3000,
	CANARY = 0x5e,
};

const u8 bed_types[BED_QPS] = { IBV_QPT_RC, IBV_QPT_RC,	IBV_QPT_UC,	 IBV_QPT_UD,
				IBV_QPT_RC, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV };

/* ---- what the engine asks of its adapter ---- */

static void bed_kick(void *arg)
{
}

static void bed_publish(void *arg, struct ibt_qp *qp)
{
}

static void bed_async(void *arg, struct ibt_qp *qp, struct ibt_srq *srq, enum ibv_event_type type)
{
}

static int bed_multicast(void *arg, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max)
{
	return 0;
}

static struct path_dest *bed_route(void *arg, const struct path_av *av, const struct pkt *p)
{
	struct bed *b = arg;

	b->path->ops->dest_hold(b->peer);
	return b->peer;
}

/* ---- setting up, once ---- */

static void bed_make_memory(struct bed *b)
{
	struct mem_region r[BED_KEYS] = {
		{ .length = BED_OPEN_BYTES,
		  .pd = 1,
		  .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC },
		{ .length = SHUT_BYTES,
		  .pd = 2,
		  .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
		{ .length = RECEIVE_BYTES, .pd = 1, .access = IBV_ACCESS_LOCAL_WRITE },
	};
	static const u32 at[BED_KEYS] = { BED_OPEN_AT, SHUT_AT, BED_RECEIVE_AT };

	b->memory = malloc(MEMORY);
	memset(b->memory, CANARY, MEMORY);
	for (int i = 0; i < BED_KEYS; i++) {
		r[i].flags = MEM_CONTIGUOUS;
		r[i].addr = r[i].iova = (u64)(uintptr_t)b->memory + at[i];
		fuzz_need(mem_register(&b->mem, &r[i], &b->key[i]) == 0, "no key");
	}
}

static void bed_make_qps(struct bed *b)
{
	struct ibt_srq_init srq = { .pd = 1, .max_wr = 16, .max_sge = 2 };

	fuzz_need(cq_init(&b->cq, 4096) == 0, "no CQ");
	b->cq.credit = ibt_credit;
	fuzz_need(ibt_srq_create(b->ibt, &srq, &b->srq) == 0, "no SRQ");
	fuzz_need(ibt_srq_create(b->ibt, &srq, &b->xrc_srq) == 0 &&
			  ibt_srq_enter_domain(b->xrc_srq, &b->cq, BED_DOMAIN, bed_srqn()) == 0,
		  "no SRQ of a domain");
	for (int i = 0; i < BED_QPS; i++) {
		struct ibt_qp_init init = { .type = bed_types[i],
					    .qpn = bed_qpn(i),
					    .pd = i == BED_XRC_TGT ? 0 : 1,
					    .xrcd = i == BED_XRC_TGT ? BED_DOMAIN : 0,
					    .cap = { 16, 16, 2, 2, 0 },
					    .send_cq = i == BED_XRC_TGT ? NULL : &b->cq,
					    .recv_cq = i < BED_XRC_INI ? &b->cq : NULL,
					    .srq = i == BED_SRQ_QP ? b->srq : NULL,
					    .sq_sig_all = true,
					    .counters = &b->counters[i] };

		fuzz_need(ibt_qp_create(b->ibt, &init, &b->qp[i]) == 0, "no queue pair");
	}
}

void bed_open(struct bed *b, struct mem_entry *keys, struct path *path, struct path_dest *peer,
	      enum ibv_mtu mtu)
{
	struct ibt_config engine = { .mem = &b->mem,
				     .timers = &b->timers,
				     .kick = bed_kick,
				     .publish = bed_publish,
				     .async = bed_async,
				     .multicast = bed_multicast,
				     .route = bed_route,
				     .arg = b };

	timer_set_init(&b->timers);
	fuzz_need(mem_table_init(&b->mem, keys) == 0, "no keys");
	b->path = path;
	b->peer = peer;
	b->mtu = mtu;
	b->ibt = ibt_create(&engine);
	fuzz_need(b->ibt != NULL, "no engine");
	ibt_add_path(b->ibt, path);
	bed_make_memory(b);
	bed_make_qps(b);
}

/* ---- before each input ---- */

static void bed_modify(struct bed *b, int i, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = to,
				    .port_num = 1,
				    .qkey = BED_QKEY,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC,
				    .path_mtu = b->mtu,
				    .dest_qp_num = bed_peer_qpn(i),
				    .rq_psn = BED_PSN,
				    .sq_psn = BED_PSN,
				    .max_dest_rd_atomic = 4,
				    .max_rd_atomic = 4,
				    .timeout = 10,
				    .retry_cnt = 3,
				    .rnr_retry = 7 };
	struct path_av av = { .hop_limit = 1 };
	struct path_dest *dest = mask & IBV_QP_AV ? bed_route(b, &av, NULL) : NULL;

	fuzz_need(ibt_qp_modify(b->qp[i], &attr, mask | IBV_QP_STATE, &av, dest) == 0, "modify");
}

static void bed_post_receives(struct bed *b, int i)
{
	u64 at = (uintptr_t)b->memory + BED_RECEIVE_AT;
	struct ibv_sge sge[2] = { { at, RECEIVE_PIECE, b->key[BED_RECEIVE_KEY] },
				  { at + RECEIVE_GAP, RECEIVE_PIECE, b->key[BED_RECEIVE_KEY] } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 2 }, *bad;

	for (int k = 0; k < 4; k++)
		if (i == BED_SRQ_QP || i == BED_XRC_TGT)
			ibt_srq_post(i == BED_SRQ_QP ? b->srq : b->xrc_srq, &wr, &bad);
		else
			ibt_post_recv(b->qp[i], &wr, &bad);
}

void bed_connect(struct bed *b)
{
	for (int i = 0; i < BED_QPS; i++) {
		bool ud = i == BED_UD_QP;

		bed_modify(b, i, IBV_QPS_RESET, 0);
		bed_modify(b, i, IBV_QPS_INIT,
			   IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
		bed_post_receives(b, i);
		if (i == BED_LOOSE_QP)
			continue;
		bed_modify(b, i, IBV_QPS_RTR,
			   ud ? 0
			      : IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU |
					IBV_QP_MAX_DEST_RD_ATOMIC);
		bed_modify(b, i, IBV_QPS_RTS,
			   IBV_QP_SQ_PSN | (ud ? 0
					       : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							 IBV_QP_RNR_RETRY |
							 IBV_QP_MAX_QP_RD_ATOMIC));
	}
}

/* ---- meanwhile ---- */

void bed_post_send(struct bed *b, int i, u8 how)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_send_wr wr = { .num_sge = 1,
				  .opcode = opcodes[how % 4],
				  .qp_type.xrc.remote_srqn = 1 },
			   *bad;
	struct ibv_sge sge = { (uintptr_t)b->memory + BED_RECEIVE_AT, how % 8 * 250u,
			       b->key[BED_RECEIVE_KEY] };

	wr.sg_list = &sge;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		sge.length = 8;
	if (i != BED_UD_QP) /* a datagram needs an address handle of the driver's */
		ibt_post_send(b->qp[i], &wr, &bad, NULL);
}

u32 bed_psn(struct bed *b, int i)
{
	struct ibv_qp_attr attr;

	ibt_qp_query(b->qp[i], &attr);
	return attr.rq_psn;
}

/* ---- after it ---- */

static void bed_check_span(const struct bed *b, u32 from, u32 to)
{
	for (u32 at = from; at < to; at++)
		if (b->memory[at] != CANARY) {
			dprintf(2, "fuzz: byte %u holds %02x\n", at, b->memory[at]);
			abort();
		}
}

void bed_check(struct bed *b)
{
	struct ibv_wc wc[64];

	for (int i = 0; i < 64 && ibt_poll(b->ibt, 64) != 0; i++)
		continue;
	while (cq_pop(&b->cq, 64, wc) > 0)
		continue;
	fuzz_need(!b->cq.overflowed, "the CQ has overflowed");
	bed_check_span(b, 0, BED_OPEN_AT);
	bed_check_span(b, BED_OPEN_AT + BED_OPEN_BYTES, BED_RECEIVE_AT);
	bed_check_span(b, BED_RECEIVE_AT + RECEIVE_PIECE, BED_RECEIVE_AT + RECEIVE_GAP);
	bed_check_span(b, BED_RECEIVE_AT + RECEIVE_BYTES, MEMORY);
}
