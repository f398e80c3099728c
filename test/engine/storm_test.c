/* storm_test.c: every operation of RC, both ways at once, over a path that loses, doubles and
 * reorders: data right, completions once and in order. A failure prints its seed. */
#include "net.h"

#include <stdlib.h>
#include <string.h>

enum {
	SLOTS = 16,
	SLOT = 32 << 10,
	/* of a side's memory: as requester, */
	SOURCE = 0,
	TARGET = SLOTS * SLOT,
	RESULT = 2 * SLOTS * SLOT,
	/* and as responder */
	RECEIVED = 2 << 20,
	WRITTEN = RECEIVED + SLOTS * SLOT,
	READ_FROM = WRITTEN + SLOTS * SLOT,
	COUNTER = READ_FROM + SLOTS * SLOT,
	OPS = 7,
};

static const enum ibv_wr_opcode storm_ops[OPS] = { IBV_WR_SEND,
						   IBV_WR_SEND_WITH_IMM,
						   IBV_WR_RDMA_WRITE,
						   IBV_WR_RDMA_WRITE_WITH_IMM,
						   IBV_WR_RDMA_READ,
						   IBV_WR_ATOMIC_CMP_AND_SWP,
						   IBV_WR_ATOMIC_FETCH_AND_ADD };

struct storm_op {
	enum ibv_wr_opcode opcode;
	u32 length, source;
	u64 expected; /* atomics */
};

/* One direction. */
struct storm {
	struct net *net;
	struct ibt_qp *qp, *peer;
	struct net_side *from, *to;
	u32 posted, done, wanted, mtu;
	u32 receives, received; /* posted, and completed */
	u64 counter;		/* as the atomics in order leave it */
	struct storm_op op[SLOTS];
	/* receives that are expected, in order */
	struct storm_op notice[SLOTS];
	u32 notice_id[SLOTS];
	u32 noticed;
};

static bool storm_is_atomic(enum ibv_wr_opcode o)
{
	return o == IBV_WR_ATOMIC_CMP_AND_SWP || o == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool storm_takes_receive(enum ibv_wr_opcode o)
{
	return o == IBV_WR_SEND || o == IBV_WR_SEND_WITH_IMM || o == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static u32 storm_length(struct storm *s)
{
	switch (net_random(s->net, 6)) {
	case 0:
		return net_random(s->net, 9);
	case 1:
		return s->mtu - 1 + net_random(s->net, 3);
	case 2:
		return s->mtu * 4 - 1 + net_random(s->net, 3);
	default:
		return net_random(s->net, SLOT);
	}
}

static void storm_post_receive(struct storm *s)
{
	net_post_recv(s->to, s->peer, s->receives, RECEIVED + s->receives % SLOTS * SLOT, SLOT);
	s->receives++;
}

static void storm_expect_atomic(struct storm *s, struct storm_op *op, struct ibv_send_wr *wr)
{
	op->expected = s->counter;
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.compare_add = 3;
		s->counter += 3;
		return;
	}
	wr->wr.atomic.compare_add = s->counter + net_random(s->net, 2);
	wr->wr.atomic.swap = s->counter + 5;
	if (wr->wr.atomic.compare_add == s->counter)
		s->counter += 5;
}

static void storm_post(struct storm *s)
{
	u32 slot = s->posted % SLOTS, offset;
	struct storm_op *op = &s->op[slot];
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	op->opcode = storm_ops[net_random(s->net, OPS)];
	op->length = storm_is_atomic(op->opcode) ? 8 : MIN(storm_length(s), (u32)SLOT);
	op->source = net_random(s->net, SLOTS * SLOT - SLOT);
	offset = storm_is_atomic(op->opcode)	     ? RESULT + slot * 8
		 : op->opcode == IBV_WR_RDMA_READ ? TARGET + slot * SLOT
						     : SOURCE + op->source;
	wr = net_wr(&sge, s->from, op->opcode, s->posted, offset, op->length);
	wr.send_flags = net_random(s->net, 8) == 0 ? IBV_SEND_FENCE : 0;
	if (op->opcode == IBV_WR_RDMA_READ)
		net_wr_remote(&wr, s->to, READ_FROM + op->source);
	else if (storm_is_atomic(op->opcode))
		net_wr_remote(&wr, s->to, COUNTER);
	else if (op->opcode != IBV_WR_SEND && op->opcode != IBV_WR_SEND_WITH_IMM)
		net_wr_remote(&wr, s->to, WRITTEN + slot * SLOT);
	if (storm_is_atomic(op->opcode))
		storm_expect_atomic(s, op, &wr);
	if (storm_takes_receive(op->opcode)) {
		s->notice[s->noticed % SLOTS] = *op;
		s->notice_id[s->noticed++ % SLOTS] = s->posted;
	}
	net_post(s->qp, &wr);
	s->posted++;
}

static void storm_check_done(struct storm *s, const struct ibv_wc *wc)
{
	u32 slot = s->done % SLOTS;
	const struct storm_op *op = &s->op[slot];
	u64 result;

	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->wr_id, s->done);
	if (op->opcode == IBV_WR_RDMA_WRITE || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		assert_memory_equal(s->to->memory + WRITTEN + slot * SLOT,
				    s->from->memory + SOURCE + op->source, op->length);
	if (op->opcode == IBV_WR_RDMA_READ)
		assert_memory_equal(s->from->memory + TARGET + slot * SLOT,
				    s->to->memory + READ_FROM + op->source, op->length);
	if (storm_is_atomic(op->opcode)) {
		memcpy(&result, s->from->memory + RESULT + slot * 8, 8);
		assert_int_equal(result, op->expected);
	}
	s->done++;
}

static void storm_check_received(struct storm *s, const struct ibv_wc *wc)
{
	u32 slot = s->received % SLOTS;
	const struct storm_op *op = &s->notice[slot];
	bool imm = op->opcode != IBV_WR_SEND;

	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	assert_int_equal(wc->wr_id, s->received);
	assert_true(s->received < s->noticed);
	assert_int_equal(wc->byte_len, op->length);
	assert_int_equal((wc->wc_flags & IBV_WC_WITH_IMM) != 0, imm);
	if (imm)
		assert_int_equal(wc->imm_data, s->notice_id[slot]);
	if (op->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		assert_memory_equal(s->to->memory + RECEIVED + slot * SLOT,
				    s->from->memory + SOURCE + op->source, op->length);
	s->received++;
}

static void storm_turn(struct storm *s)
{
	struct ibv_wc wc;

	while (cq_pop(&s->from->send_cq, 1, &wc) == 1)
		storm_check_done(s, &wc);
	while (cq_pop(&s->to->recv_cq, 1, &wc) == 1)
		storm_check_received(s, &wc);
	/* Receives are late now and then, and then there is RNR. */
	while (s->receives - s->received < SLOTS && net_random(s->net, 4) != 0)
		storm_post_receive(s);
	while (s->posted < s->wanted && s->posted - s->done < SLOTS &&
	       s->noticed - s->received < SLOTS && net_random(s->net, 4) != 0)
		storm_post(s);
}

static void storm_fill(struct net_side *side, u64 seed)
{
	u64 x = seed * 77 + 13;

	for (u32 i = 0; i < COUNTER; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		side->memory[i] = (u8)(x >> 56);
	}
}

static void storm_run(const struct net_config *cfg, enum ibv_mtu mtu, u32 wanted)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibt_qp *qp[2];
	struct storm s[2];
	struct net net;
	u64 began;

	print_message("seed %lu mtu %d loss %u doubling %u late %u\n", (unsigned long)cfg->seed,
		      mtu, cfg->loss, cfg->doubling, cfg->late);
	net_open(&net, cfg);
	q.mtu = mtu;
	q.min_rnr_timer = 1;
	/* Numbers wrap around within the run. */
	q.sq_psn = q.rq_psn = 0xffffff - 40;
	net_pair(&net, qp, &q);
	for (int i = 0; i < 2; i++) {
		s[i] = (struct storm){ .net = &net,
				       .qp = qp[i],
				       .peer = qp[1 - i],
				       .from = &net.side[i],
				       .to = &net.side[1 - i],
				       .wanted = wanted,
				       .mtu = 128u << mtu };
		storm_fill(&net.side[i], cfg->seed + i);
		memset(net.side[i].memory + COUNTER, 0, 8);
	}
	began = net_now();
	while (s[0].done < wanted || s[1].done < wanted) {
		storm_turn(&s[0]);
		storm_turn(&s[1]);
		net_run(&net, 20 * NS_PER_US);
		assert_true(net_now() - began < 600 * NS_PER_S);
	}
	net_run(&net, NS_PER_S);
	for (int i = 0; i < 2; i++) {
		u64 value;

		storm_turn(&s[i]);
		assert_int_equal(s[i].received, s[i].noticed);
		memcpy(&value, s[i].to->memory + COUNTER, 8);
		assert_int_equal(value, s[i].counter);
		assert_int_equal(net_in_flight(s[i].from), 0);
	}
	print_message("  %lu ms, %lu packets, %lu lost, %lu times back\n",
		      (unsigned long)((net_now() - began) / NS_PER_MS), (unsigned long)net.sent,
		      (unsigned long)net.lost,
		      (unsigned long)(net.side[0].counters[COUNT_TX_RETRY] +
				      net.side[1].counters[COUNT_TX_RETRY]));
	ibt_qp_destroy(qp[0]);
	ibt_qp_destroy(qp[1]);
	net_close(&net);
}

static void rc__lossless_at_each_mtu(void **state)
{
	for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		storm_run(&(struct net_config){ .seed = 1, .delay_ns = 10000 }, mtu, 300);
}

static void rc__lost_packets(void **state)
{
	static const u32 loss[] = { 10, 100, 500, 2000 };

	for (u32 i = 0; i < ARRAY_LEN(loss); i++)
		for (u64 seed = 1; seed <= 4; seed++)
			storm_run(&(struct net_config){ .seed = seed,
							.loss = loss[i],
							.delay_ns = 10000 },
				  1 + (int)seed, 200);
}

static void rc__doubled_packets(void **state)
{
	for (u64 seed = 10; seed < 14; seed++)
		storm_run(&(struct net_config){ .seed = seed, .doubling = 3000, .delay_ns = 10000 },
			  IBV_MTU_1024, 200);
}

static void rc__packets_out_of_order(void **state)
{
	for (u64 seed = 20; seed < 24; seed++)
		storm_run(&(struct net_config){ .seed = seed,
						.late = 300,
						.delay_ns = 10000,
						.late_ns = 100000 },
			  IBV_MTU_1024, 200);
}

static void rc__everything_at_once(void **state)
{
	for (u64 seed = 30; seed < 50; seed++)
		storm_run(&(struct net_config){ .seed = seed,
						.loss = 300,
						.doubling = 300,
						.late = 300,
						.delay_ns = 10000,
						.late_ns = 20000000 },
			  1 + (int)(seed % 5), 150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rc__lossless_at_each_mtu),
		cmocka_unit_test(rc__lost_packets),
		cmocka_unit_test(rc__doubled_packets),
		cmocka_unit_test(rc__packets_out_of_order),
		cmocka_unit_test(rc__everything_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
