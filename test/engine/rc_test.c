/* rc_test.c: what an RC requester and its responder say on a path that loses packets, packet by
 * packet. The path's delay is 10 us. */
#include "watch.h"

#include <string.h>

enum { DELAY_NS = 10000, MTU = 1024, FIRST_PSN = 100 };

static void rc_open_as(struct pair *r, const struct net_qp *q)
{
	pair_open(r, &(struct net_config){ .seed = 1, .delay_ns = DELAY_NS }, q);
}

static void rc_open(struct pair *r)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	rc_open_as(r, &q);
}

/* A request of side 0 on its memory from 0 on, with 1 MiB of the other side. */
static void rc_post(struct pair *r, enum ibv_wr_opcode opcode, u64 wr_id, u32 length, u32 flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &r->net.side[0], opcode, wr_id, 0, length);

	wr.send_flags = flags;
	if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM)
		net_wr_remote(&wr, &r->net.side[1], 1 << 20);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.compare_add = 1;
	net_post(r->qp[0], &wr);
}

static u64 rc_counter(const struct pair *r, int side, enum path_counter c)
{
	return r->net.side[side].counters[c];
}

static void rc__each_packet_has_its_psn(void **state)
{
	static struct pair r;
	const u8 opcodes[] = { PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST };

	rc_open(&r);
	rc_post(&r, IBV_WR_RDMA_WRITE, 1, 2 * MTU + 1, 0);
	rc_post(&r, IBV_WR_RDMA_READ, 2, 2 * MTU + 1, 0);
	rc_post(&r, IBV_WR_RDMA_WRITE, 3, MTU, 0);
	net_run(&r.net, NS_PER_MS);
	for (u32 i = 0; i < 3; i++) {
		const struct pkt *p = watch_nth(&r.watch, 0, OP_ALL, i);

		assert_int_equal(p->opcode, opcodes[i]);
		assert_int_equal(p->psn, FIRST_PSN + i);
		assert_int_equal(p->length, i < 2 ? MTU : 1);
		p = watch_nth(&r.watch, 1, OP_READ_ANSWERS, i);
		assert_int_equal(p->psn, FIRST_PSN + 3 + i);
		assert_int_equal(p->length, i < 2 ? MTU : 1);
	}
	assert_int_equal(watch_nth(&r.watch, 0, OP(READ_REQUEST), 0)->psn, FIRST_PSN + 3);
	assert_int_equal(watch_nth(&r.watch, 0, OP(WRITE_ONLY), 0)->psn, FIRST_PSN + 6);
	for (u64 id = 1; id <= 3; id++)
		pair_expect(&r, id, IBV_WC_SUCCESS);
	assert_int_equal(rc_counter(&r, 0, COUNT_TX_RETRY), 0);
	pair_close(&r);
}

/* Only what is asked for is acknowledged, and the last message always asks. */
static void rc__acknowledgements_are_coalesced(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;
	u32 acks;

	q.all_signalled = false;
	rc_open_as(&r, &q);
	for (u32 i = 0; i < 32; i++)
		rc_post(&r, IBV_WR_RDMA_WRITE, i, 64, i == 31 ? IBV_SEND_SIGNALED : 0);
	net_run(&r.net, NS_PER_MS);
	acks = watch_count(&r.watch, 1, OP(ACK));
	assert_in_range(acks, 1, 32);
	assert_int_equal(watch_nth(&r.watch, 1, OP(ACK), acks - 1)->syndrome, AETH_ACK);
	assert_int_equal(watch_nth(&r.watch, 1, OP(ACK), acks - 1)->msn, 32);
	pair_expect(&r, 31, IBV_WC_SUCCESS);
	pair_close(&r);
}

static void rc__gap_is_naked_once(void **state)
{
	static struct pair r;
	const struct pkt *nak;

	rc_open(&r);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	r.watch.drop[0] = (struct watch_drop){ .opcodes = OP(SEND_MIDDLE), .first = 2, .count = 1 };
	rc_post(&r, IBV_WR_SEND, 1, 16 * MTU, 0);
	net_run(&r.net, NS_PER_MS);
	assert_int_equal(rc_counter(&r, 1, COUNT_TX_NAK), 1);
	nak = watch_nth(&r.watch, 1, OP(ACK), 0);
	assert_int_equal(nak->syndrome, AETH_NAK | NAK_PSN_SEQUENCE);
	assert_int_equal(nak->psn, FIRST_PSN + 2);
	/* transmission goes back to the gap, not to the message's beginning */
	assert_int_equal(watch_nth(&r.watch, 0, OP_ALL, 16)->psn, FIRST_PSN + 2);
	assert_int_equal(watch_count(&r.watch, 0, OP_ALL), 16 + 14);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	assert_int_equal(net_wc(&r.net.side[1].recv_cq).byte_len, 16 * MTU);
	pair_close(&r);
}

static void rc__duplicates_are_acknowledged_again(void **state)
{
	static struct pair r;

	rc_open(&r);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	r.watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP(ACK), .first = 1, .count = 2 };
	rc_post(&r, IBV_WR_SEND, 1, 100, 0);
	net_run(&r.net, 50 * NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	assert_int_equal(watch_count(&r.watch, 1, OP(ACK)), 3);
	assert_int_equal(rc_counter(&r, 1, COUNT_RX_DUPLICATE), 2);
	assert_int_equal(net_wc(&r.net.side[1].recv_cq).wr_id, 7);
	assert_int_equal(cq_peek(&r.net.side[1].recv_cq, 1), 0);
	pair_close(&r);
}

/* A later answer shows the gap, and only the rest is asked for again. */
static void rc__gap_in_an_answer_is_an_implied_nak(void **state)
{
	static struct pair r;
	const struct pkt *again;

	rc_open(&r);
	memset(r.net.side[1].memory + (1 << 20), 0x5a, 8 * MTU);
	r.watch.drop[0] = (struct watch_drop){
		.from = 1, .opcodes = OP(READ_MIDDLE), .first = 3, .count = 1
	};
	rc_post(&r, IBV_WR_RDMA_READ, 1, 8 * MTU, 0);
	net_run(&r.net, NS_PER_MS);
	again = watch_nth(&r.watch, 0, OP(READ_REQUEST), 1);
	assert_int_equal(again->psn, FIRST_PSN + 3);
	assert_int_equal(again->dma_length, 5 * MTU);
	assert_int_equal(watch_nth(&r.watch, 1, OP_READ_ANSWERS, 8)->opcode, PKT_READ_FIRST);
	assert_int_equal(watch_nth(&r.watch, 1, OP_READ_ANSWERS, 8)->psn, FIRST_PSN + 3);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	assert_memory_equal(r.net.side[0].memory, r.net.side[1].memory + (1 << 20), 8 * MTU);
	pair_close(&r);
}

/* The acknowledgement of a later request says that the answer is lost. */
static void rc__acknowledgement_past_a_read_is_an_implied_nak(void **state)
{
	static struct pair r;

	rc_open(&r);
	r.watch.drop[0] = (struct watch_drop){
		.from = 1, .opcodes = OP_READ_ANSWERS, .first = 1, .count = 4
	};
	rc_post(&r, IBV_WR_RDMA_READ, 1, 4 * MTU, 0);
	rc_post(&r, IBV_WR_RDMA_WRITE, 2, 64, 0);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_expect(&r, 2, IBV_WC_SUCCESS);
	/* what was executed is not sent again */
	assert_int_equal(watch_count(&r.watch, 0, OP(WRITE_ONLY)), 1);
	pair_close(&r);
}

static void rc__atomic_is_done_once(void **state)
{
	static struct pair r;
	u64 value;

	rc_open(&r);
	r.watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP(ATOMIC_ACK), .first = 1, .count = 3 };
	rc_post(&r, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 0);
	net_run(&r.net, 100 * NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	memcpy(&value, r.net.side[0].memory, 8);
	assert_int_equal(value, 0);
	memcpy(&value, r.net.side[1].memory + (1 << 20), 8);
	assert_int_equal(value, 1);
	pair_close(&r);
}

/* The peer had an atomic's answer already when it asked again: its next request comes while the
 * repeated answer still waits for room, and must not be refused for that. */
static void rc__repeated_answer_makes_way(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	static struct pair r;
	struct pkt again;

	q.rd_atomic = 1;
	rc_open_as(&r, &q);
	rc_post(&r, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 0);
	net_run(&r.net, 5 * DELAY_NS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	again = *watch_nth(&r.watch, 0, OP(FETCH_ADD), 0);
	rc_post(&r, IBV_WR_RDMA_READ, 2, 64, 0);
	/* no room on the way back */
	wr = net_wr(&sge, &r.net.side[1], IBV_WR_SEND, 7, 0, 8);
	net_post_recv(&r.net.side[0], r.qp[0], 8, 128, 64);
	net_post(r.qp[1], &wr);
	r.net.cfg.room[0] = 1;
	net_inject(&r.net, 1, &again, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP(ATOMIC_ACK)), 1);
	net_run(&r.net, 50 * NS_PER_MS);
	pair_expect(&r, 2, IBV_WC_SUCCESS);
	assert_int_equal(rc_counter(&r, 1, COUNT_TX_NAK), 0);
	pair_close(&r);
}

/* The rest of a READ whose key has gone is refused, not silently missing. */
static void rc__key_goes_during_an_answer(void **state)
{
	static struct pair r;

	rc_open(&r);
	r.net.cfg.room[0] = 8;
	rc_post(&r, IBV_WR_RDMA_READ, 1, 256 << 10, 0);
	for (int i = 0; i < 2; i++)
		net_step(&r.net);
	assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	assert_true(watch_count(&r.watch, 1, OP_READ_ANSWERS) > 0);
	assert_int_equal(mem_deregister(&r.net.side[1].mem, r.net.side[1].key), 0);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_REM_ACCESS_ERR);
	pair_close(&r);
}

/* An atomic whose answer does not come, and a WRITE that is refused. */
static void rc_post_refused(struct pair *r)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	rc_open(r);
	r->watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP(ATOMIC_ACK), .first = 1, .count = 1 };
	rc_post(r, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, 0);
	wr = net_wr(&sge, &r->net.side[0], IBV_WR_RDMA_WRITE, 2, 0, 64);
	net_wr_remote(&wr, &r->net.side[1], 0);
	wr.wr.rdma.rkey ^= 1;
	net_post(r->qp[0], &wr);
	net_run(&r->net, 5 * DELAY_NS);
	assert_int_equal(rc_counter(r, 1, COUNT_TX_NAK), 1);
	assert_int_equal(cq_peek(&r->net.side[0].send_cq, 1), 0);
}

/* The refusal of a later request is none of this one, and says that its answer is lost: it is asked
 * for again. A peer that has failed says nothing more. */
static void rc__refusal_behind_a_lost_answer(void **state)
{
	static struct pair r;

	rc_post_refused(&r);
	assert_int_equal(watch_count(&r.watch, 0, OP(FETCH_ADD)), 2);
	net_run(&r.net, 10 * NS_PER_S);
	pair_expect(&r, 1, IBV_WC_RETRY_EXC_ERR);
	pair_expect(&r, 2, IBV_WC_WR_FLUSH_ERR);
	pair_close(&r);
}

/* It was overtaken only. */
static void rc__refusal_overtakes_an_answer(void **state)
{
	static struct pair r;
	struct pkt late;

	rc_post_refused(&r);
	late = *watch_nth(&r.watch, 1, OP(ATOMIC_ACK), 0);
	net_inject(&r.net, 0, &late, NULL);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_expect(&r, 2, IBV_WC_REM_ACCESS_ERR);
	pair_close(&r);
}

/* There is no receive request for a SEND behind it. */
static void rc__rnr_behind_a_lost_answer(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;

	q.rnr_retry = 0;
	rc_open_as(&r, &q);
	r.watch.drop[0] = (struct watch_drop){
		.from = 1, .opcodes = OP_READ_ANSWERS, .first = 1, .count = 1
	};
	rc_post(&r, IBV_WR_RDMA_READ, 1, 64, 0);
	rc_post(&r, IBV_WR_SEND, 2, 64, 0);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_expect(&r, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_close(&r);
}

/* Of two READs the first is refused in the middle of its answer: that one fails. */
static void rc__key_goes_during_two_answers(void **state)
{
	static struct pair r;

	rc_open(&r);
	r.net.cfg.room[0] = 2;
	rc_post(&r, IBV_WR_RDMA_READ, 1, 8 * MTU, 0);
	rc_post(&r, IBV_WR_RDMA_READ, 2, 8 * MTU, 0);
	for (int i = 0; i < 2; i++)
		net_step(&r.net);
	assert_in_range(watch_count(&r.watch, 1, OP_READ_ANSWERS), 1, 7);
	assert_int_equal(mem_deregister(&r.net.side[1].mem, r.net.side[1].key), 0);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_REM_ACCESS_ERR);
	pair_expect(&r, 2, IBV_WC_WR_FLUSH_ERR);
	pair_close(&r);
}

/* ---- limits ---- */

/* The consumer cannot be told of a message any more: then nothing more is taken. */
static void rc__completion_queue_overflows(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;
	struct cq *cq = &r.net.side[1].recv_cq;

	q.timeout = 10;
	net_open(&r.net, &(struct net_config){ .seed = 1, .delay_ns = DELAY_NS });
	cq_fini(cq);
	assert_int_equal(cq_init(cq, 2), 0);
	net_pair(&r.net, r.qp, &q);
	watch_begin(&r.watch, &r.net);
	for (u64 id = 1; id <= 4; id++)
		net_post_recv(&r.net.side[1], r.qp[1], id, 0, 64);
	for (u64 id = 1; id <= 4; id++) {
		rc_post(&r, IBV_WR_SEND, id, 64, 0);
		net_run(&r.net, NS_PER_S);
		pair_expect(&r, id, id == 4 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	}
	assert_int_equal(ibt_qp_state(r.qp[1]), IBV_QPS_ERR);
	assert_int_equal(r.net.side[1].events[IBV_EVENT_QP_FATAL], 1);
	assert_int_equal(net_wc(cq).wr_id, 1);
	assert_int_equal(net_wc(cq).wr_id, 2);
	assert_int_equal(cq_peek(cq, 1), 0);
	pair_close(&r);
}

static void rc__no_more_reads_than_agreed(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;
	u32 out = 0, most = 0;

	q.rd_atomic = 2;
	rc_open_as(&r, &q);
	for (u32 i = 0; i < 8; i++)
		rc_post(&r, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, i, 8, 0);
	net_run(&r.net, NS_PER_MS);
	for (u32 i = 0; i < r.watch.count; i++) {
		out += r.watch.seen[i].from == 0 ? 1 : -1;
		most = MAX(most, out);
	}
	assert_int_equal(most, 2);
	for (u32 i = 0; i < 8; i++)
		pair_expect(&r, i, IBV_WC_SUCCESS);
	pair_close(&r);
}

static void rc__rnr_retry_runs_out(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;

	q.rnr_retry = 2;
	rc_open_as(&r, &q);
	rc_post(&r, IBV_WR_SEND, 1, 3 * MTU, 0);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(rc_counter(&r, 1, COUNT_TX_RNR), 3);
	/* what follows the refused packet is no gap */
	assert_int_equal(rc_counter(&r, 1, COUNT_TX_NAK), 0);
	pair_close(&r);
}

static void rc__rnr_retry_7_is_for_ever(void **state)
{
	static struct pair r;

	rc_open(&r);
	rc_post(&r, IBV_WR_SEND, 1, 3 * MTU, 0);
	net_run(&r.net, 30 * NS_PER_S);
	assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	/* 0.64 ms each, as the responder's timer says */
	assert_in_range(rc_counter(&r, 1, COUNT_TX_RNR), 40000, 48000);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_close(&r);
}

static void rc_dies_in_time(u8 timeout, u8 retry_cnt)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	u64 one = 4096ull << timeout, began;
	static struct pair r;

	q.timeout = timeout;
	q.retry_cnt = retry_cnt;
	rc_open_as(&r, &q);
	rc_post(&r, IBV_WR_RDMA_WRITE, 1, 64, 0);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	r.watch.drop[0] = (struct watch_drop){ .opcodes = OP_ALL, .first = 1, .count = UINT32_MAX };
	began = net_now();
	rc_post(&r, IBV_WR_RDMA_WRITE, 2, 64, 0);
	rc_post(&r, IBV_WR_RDMA_WRITE, 3, 64, 0);
	while (cq_peek(&r.net.side[0].send_cq, 1) == 0)
		assert_true(net_step(&r.net));
	/* IBA vol 1, 9.7.6.1.3: between one and four times the timeout, for each try */
	assert_in_range(net_now() - began, (retry_cnt + 1) * one, 4 * (retry_cnt + 1) * one);
	assert_true(r.watch.drop[0].met > 2u + retry_cnt);
	pair_expect(&r, 2, IBV_WC_RETRY_EXC_ERR);
	pair_expect(&r, 3, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibt_qp_state(r.qp[0]), IBV_QPS_ERR);
	pair_close(&r);
}

static void rc__dead_peer_is_told_in_time(void **state)
{
	rc_dies_in_time(10, 7);
	rc_dies_in_time(14, 1);
	rc_dies_in_time(14, 7);
	rc_dies_in_time(17, 3);
}

/* A process that was stopped, or its machine: that the peer was not heard meanwhile says nothing
 * of the peer. */
static void rc__a_freeze_is_not_the_peers_silence(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;

	q.timeout = 10;
	q.retry_cnt = 3;
	rc_open_as(&r, &q);
	r.watch.drop[0] =
		(struct watch_drop){ .opcodes = OP(WRITE_ONLY), .first = 1, .count = 2 };
	rc_post(&r, IBV_WR_RDMA_WRITE, 1, 64, 0);
	net_freeze(10 * NS_PER_S);
	assert_true(net_step(&r.net));
	net_freeze(10 * NS_PER_S);
	net_run(&r.net, NS_PER_S);
	assert_int_equal(r.watch.drop[0].met, 3);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_close(&r);
}

/* Of a READ's answer the last packet has come, so the peer has executed all that was sent; the
 * first one has not, and then the peer is gone: the repetitions do not begin the time anew. */
static void rc__peer_dies_in_the_middle_of_an_answer(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	u64 one = 4096ull << 12, began;
	static struct pair r;

	q.timeout = 12;
	q.retry_cnt = 3;
	rc_open_as(&r, &q);
	r.watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP(READ_FIRST), .first = 1, .count = 1 };
	r.watch.drop[1] = (struct watch_drop){ .opcodes = OP_ALL, .first = 2, .count = UINT32_MAX };
	began = net_now();
	rc_post(&r, IBV_WR_RDMA_READ, 1, 2 * MTU, 0);
	while (cq_peek(&r.net.side[0].send_cq, 1) == 0) {
		assert_true(net_step(&r.net));
		assert_true(net_now() - began < 4 * 4 * one);
	}
	assert_int_equal(watch_count(&r.watch, 1, OP(READ_LAST)), 1);
	pair_expect(&r, 1, IBV_WC_RETRY_EXC_ERR);
	pair_close(&r);
}

static void rc__timeout_0_is_for_ever(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;

	q.timeout = 0;
	q.retry_cnt = 1;
	rc_open_as(&r, &q);
	r.watch.drop[0] = (struct watch_drop){ .opcodes = OP_ALL, .first = 1, .count = UINT32_MAX };
	rc_post(&r, IBV_WR_RDMA_READ, 1, 64, 0);
	net_run(&r.net, 10000 * NS_PER_S);
	assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	r.watch.drop[0].count = 0;
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_close(&r);
}

/* ---- what nobody should send ---- */

/* A request with the right PSN that is wrong otherwise. */
static struct pkt rc_forge(u8 opcode, u32 length)
{
	return (struct pkt){ .opcode = opcode,
			     .qp_type = IBV_QPT_RC,
			     .dqpn = 0x22,
			     .psn = FIRST_PSN,
			     .length = length };
}

static void rc_is_naked(u8 opcode, u32 length, u8 code)
{
	static u8 payload[8192];
	struct pkt p = rc_forge(opcode, length);
	static struct pair r;

	rc_open(&r);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	p.dma_length = length;
	net_inject(&r.net, 1, &p, payload);
	assert_int_equal(watch_nth(&r.watch, 1, OP(ACK), 0)->syndrome, AETH_NAK | code);
	assert_int_equal(rc_counter(&r, 1, COUNT_TX_NAK), 1);
	assert_int_equal(ibt_qp_state(r.qp[1]), IBV_QPS_ERR);
	assert_int_equal(net_wc(&r.net.side[1].recv_cq).status, IBV_WC_WR_FLUSH_ERR);
	pair_close(&r);
}

static void rc__wrong_sizes_are_invalid_requests(void **state)
{
	rc_is_naked(PKT_SEND_ONLY, MTU + 1, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_SEND_FIRST, MTU - 1, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_SEND_FIRST, MTU + 4, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_WRITE_ONLY, MTU + 1, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_SEND_MIDDLE, MTU, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_SEND_LAST, 8, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_RESYNC, 0, NAK_INVALID_REQUEST);
	rc_is_naked(PKT_WRITE_ONLY, 8, NAK_REMOTE_ACCESS);
}

static bool rc_same(const struct path_dest *d, const struct path_dest *from)
{
	return true; /* reads what the other path's destinations do not have */
}

/* A packet of another path is none of the connection's, and its path is not asked. */
static void rc__another_path_is_a_wrong_source(void **state)
{
	static struct pair r;
	struct pkt request = rc_forge(PKT_SEND_ONLY, 8);
	struct net_dest stranger = { .side = 1, .to = 0 };
	struct path_ops ops;
	struct path other;

	rc_open(&r);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	other = r.net.side[1].path;
	ops = *other.ops;
	ops.same = rc_same;
	other.ops = &ops;
	path_dest_init(&stranger.dest, &other);
	other.user_ops->receive(other.user, &stranger.dest, &request, "12345678");
	assert_int_equal(rc_counter(&r, 1, COUNT_RX_WRONG_PEER), 1);
	assert_int_equal(cq_peek(&r.net.side[1].recv_cq, 1), 0);
	pair_close(&r);
}

static void rc__wrong_source_is_dropped(void **state)
{
	static struct pair r;
	struct net_dest stranger = { .side = 5, .to = 5 };
	struct pkt request = rc_forge(PKT_SEND_ONLY, 8);
	struct pkt nak = { .opcode = PKT_ACK,
			   .qp_type = IBV_QPT_RC,
			   .dqpn = 0x11,
			   .psn = FIRST_PSN,
			   .syndrome = AETH_NAK | NAK_INVALID_REQUEST };
	struct path *path[2];

	rc_open(&r);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	r.watch.drop[0] = (struct watch_drop){ .opcodes = OP_ALL, .first = 1, .count = 1 };
	rc_post(&r, IBV_WR_SEND, 1, 8, 0);
	for (int i = 0; i < 2; i++) {
		path[i] = &r.net.side[i].path;
		path_dest_init(&stranger.dest, path[i]);
		path[i]->user_ops->receive(path[i]->user, &stranger.dest, i == 0 ? &nak : &request,
					   "12345678");
		assert_int_equal(rc_counter(&r, i, COUNT_RX_WRONG_PEER), 1);
	}
	/* a queue pair that is named must be the right one, too */
	nak.sqpn = 0x23;
	net_inject(&r.net, 0, &nak, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_WRONG_PEER), 2);
	assert_int_equal(watch_count(&r.watch, 1, OP_ALL), 0);
	assert_int_equal(cq_peek(&r.net.side[1].recv_cq, 1), 0);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_close(&r);
}

static void rc__acknowledgement_of_nothing_is_dropped(void **state)
{
	static struct pair r;
	struct pkt ack = { .opcode = PKT_ACK, .qp_type = IBV_QPT_RC, .dqpn = 0x11 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	rc_open(&r);
	r.watch.drop[0] = (struct watch_drop){ .opcodes = OP_ALL, .first = 1, .count = 1 };
	rc_post(&r, IBV_WR_RDMA_WRITE, 1, 8, 0);
	ack.syndrome = AETH_ACK;
	ack.psn = FIRST_PSN + 1;
	net_inject(&r.net, 0, &ack, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_PSN), 1);
	ack.psn = FIRST_PSN - 1;
	net_inject(&r.net, 0, &ack, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_DUPLICATE), 1);
	ack.syndrome = AETH_NAK | NAK_REMOTE_ACCESS;
	net_inject(&r.net, 0, &ack, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_DUPLICATE), 2);
	ack.syndrome = AETH_NAK | NAK_PSN_SEQUENCE;
	net_inject(&r.net, 0, &ack, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_DUPLICATE), 3);
	assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_DUPLICATE), 3);
	assert_int_equal(ibt_qp_modify(r.qp[0], &error, IBV_QP_STATE, NULL, NULL), 0);
	net_inject(&r.net, 0, &ack, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_NOT_RECEIVING), 1);
	pair_close(&r);
}

/* What only a local path may say. */
static void rc__local_words_from_a_wire_mean_nothing(void **state)
{
	static struct pair r;
	struct pkt p = rc_forge(PKT_SEND_ONLY, 8);
	struct ibv_wc wc;

	rc_open(&r);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64 << 10);
	r.watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP_ALL, .first = 1, .count = 1 };
	p.flags = PKT_HAS_ACK | PKT_PULL | PKT_PLACED;
	p.ack_psn = FIRST_PSN;
	p.dma_length = 1000;
	net_inject(&r.net, 1, &p, "abcdefgh");
	wc = net_wc(&r.net.side[1].recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 8);
	assert_int_equal(wc.src_qp, 0x11);
	assert_memory_equal(r.net.side[1].memory, "abcdefgh", 8);
	p = (struct pkt){ .opcode = PKT_ABSENT, .qp_type = IBV_QPT_RC, .dqpn = 0x11 };
	net_inject(&r.net, 0, &p, NULL);
	p.dqpn = 0;
	net_inject(&r.net, 0, &p, NULL);
	assert_int_equal(rc_counter(&r, 0, COUNT_RX_NO_QP), 1);
	assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	pair_close(&r);
}

/* What an earlier connection has left on the way has other numbers. A NAK of the sequence may also
 * be of a peer that counts otherwise: psn_test.c. */
static void rc__words_of_another_connection_mean_nothing(void **state)
{
	static const u8 syndromes[] = { AETH_NAK | NAK_REMOTE_ACCESS, AETH_RNR | 1, 0 };
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;

	q.retry_cnt = q.rnr_retry = 0;
	net_open(&r.net, &(struct net_config){ .delay_ns = DELAY_NS, .reliable = true });
	net_pair(&r.net, r.qp, &q);
	watch_begin(&r.watch, &r.net);
	net_post_recv(&r.net.side[1], r.qp[1], 7, 0, 64);
	rc_post(&r, IBV_WR_SEND, 1, 64, 0);
	for (u32 i = 0; i < ARRAY_LEN(syndromes); i++) {
		struct pkt p = { .opcode = syndromes[i] == 0 ? PKT_ABSENT : PKT_ACK,
				 .syndrome = syndromes[i],
				 .qp_type = IBV_QPT_RC,
				 .dqpn = 0x11,
				 .sqpn = 0x22,
				 .psn = FIRST_PSN - 1000 };

		p.psn &= 0xffffff;
		net_inject(&r.net, 0, &p, NULL);
		assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
		assert_true(timer_next_ns(&r.net.side[0].timers) == TIMER_NEVER); /* no wait */
	}
	/* an answer acknowledges what was sent before it */
	for (u32 i = 0; i < 2; i++) {
		struct pkt p = { .opcode = PKT_READ_ONLY, .qp_type = IBV_QPT_RC, .dqpn = 0x11 };

		p.sqpn = 0x22;
		p.psn = (i == 0 ? FIRST_PSN + 1000 : FIRST_PSN - 1000) & 0xffffff;
		net_inject(&r.net, 0, &p, NULL);
		assert_int_equal(cq_peek(&r.net.side[0].send_cq, 1), 0);
	}
	/* nor does anything wait for a timeout */
	net_post_recv(&r.net.side[1], r.qp[1], 8, 0, 64);
	rc_post(&r, IBV_WR_SEND, 2, 64, 0);
	net_run(&r.net, NS_PER_MS / 2);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_expect(&r, 2, IBV_WC_SUCCESS);
	assert_int_equal(watch_count(&r.watch, 0, OP_ALL), 2);
	pair_close(&r);
}

/* A loss is suspected while two acknowledgements are on their way, and the second one is lost:
 * the wait in which the first one came was not the second one's. */
static void rc__what_waited_behind_another_has_its_own_time(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct pair r;

	q.retry_cnt = 0;
	q.timeout = 10;
	net_open(&r.net, &(struct net_config){ .delay_ns = DELAY_NS, .reliable = true });
	net_pair(&r.net, r.qp, &q);
	watch_begin(&r.watch, &r.net);
	r.watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP(ACK), .first = 2, .count = 1 };
	for (u64 id = 1; id <= 2; id++) {
		net_post_recv(&r.net.side[1], r.qp[1], id, 0, 64);
		rc_post(&r, IBV_WR_SEND, id, 64, 0);
		net_run(&r.net, DELAY_NS / 4);
	}
	ibt_qp_suspect_loss(r.qp[0]);
	net_run(&r.net, NS_PER_S);
	assert_int_equal(r.watch.drop[0].met, 3);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_expect(&r, 2, IBV_WC_SUCCESS);
	pair_close(&r);
}

/* Side 1 owes an acknowledgement. */
static void rc_open_owing(struct pair *r)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct net_side *s = &r->net.side[1];

	q.all_signalled = false;
	net_open(&r->net, &(struct net_config){ .seed = 1, .reliable = true });
	net_pair(&r->net, r->qp, &q);
	watch_begin(&r->watch, &r->net);
	rc_post(r, IBV_WR_RDMA_WRITE, 1, 64, 0);
	assert_int_equal(s->path.ops->poll(&s->path, 1, false), 1); /* and was not idle */
	assert_false(list_empty(&s->from.dest.acks));
}

/* Its address vector changes, in SQD; *other becomes the new destination. */
static void rc_change_way(struct pair *r, struct net_dest *other)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .cur_qp_state = IBV_QPS_RTS };
	struct path_av av = { .hop_limit = 1 };
	struct net_side *s = &r->net.side[1];

	assert_int_equal(ibt_qp_modify(r->qp[1], &a, IBV_QP_STATE | IBV_QP_CUR_STATE, NULL, NULL),
			 0);
	*other = s->dest;
	path_dest_init(&other->dest, &s->path);
	s->path.ops->dest_hold(&other->dest);
	a.cur_qp_state = IBV_QPS_SQD;
	assert_int_equal(ibt_qp_modify(r->qp[1], &a, IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_AV,
				       &av, &other->dest),
			 0);
}

/* What is owed goes by the new way, and the old destination, which may go now, has nothing of the
 * queue pair. */
static void rc__new_way_takes_the_acknowledgement_along(void **state)
{
	static struct net_dest other;
	static struct pair r;

	rc_open_owing(&r);
	rc_change_way(&r, &other);
	assert_true(list_empty(&r.net.side[1].from.dest.acks));
	assert_true(list_empty(&r.net.side[1].from.dest.acks_now));
	assert_int_equal(watch_count(&r.watch, 1, OP(ACK)), 1);
	pair_close(&r);
}

/* The new way has no room for it: it goes when there is some. */
static void rc__new_way_is_full(void **state)
{
	struct pkt p = rc_forge(PKT_SEND_ONLY, 0);
	static struct net_dest other;
	static struct pair r;
	struct net_side *s = &r.net.side[1];

	rc_open_owing(&r);
	r.net.cfg.room[0] = 1;
	p.dqpn = p.sqpn = 0x99;
	net_inject(&r.net, 1, &p, NULL);
	assert_int_equal(r.net.count, 1); /* the answer: there is no such queue pair */
	rc_change_way(&r, &other);
	assert_int_equal(watch_count(&r.watch, 1, OP(ACK)), 0);
	assert_true(path_is_awaited(&other.dest));
	r.net.cfg.room[0] = 0;
	s->path.user_ops->writable(s->path.user, &other.dest);
	assert_int_equal(watch_count(&r.watch, 1, OP(ACK)), 1);
	assert_false(path_is_awaited(&other.dest));
	pair_close(&r);
}

/* A switch on the way has marked packets: their sender is told, now and then. */
static void rc__congestion_is_notified(void **state)
{
	static struct pair r;
	struct pkt p = rc_forge(PKT_WRITE_ONLY, 0);

	rc_open(&r);
	for (u32 i = 0; i < 3; i++) {
		p.traffic_class = i == 0 ? 2 : 3;
		net_inject(&r.net, 1, &p, NULL);
		p.psn++;
		assert_int_equal(watch_count(&r.watch, 1, OP(CNP)), i != 0);
	}
	net_run(&r.net, NS_PER_MS);
	assert_int_equal(watch_nth(&r.watch, 1, OP(CNP), 0)->dqpn, 0x11);
	net_inject(&r.net, 1, &p, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP(CNP)), 1);
	pair_close(&r);
}

/* A MiB, with the path's word on batches. False: it has not come within the time. */
static bool rc_carries(const struct net_config *cfg, enum ibv_wr_opcode opcode, u64 within_ms,
		       u32 distrusted[2])
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	static struct net net;
	struct ibt_qp *qp[2];
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	net_open(&net, cfg);
	net_pair(&net, qp, &q);
	wr = net_wr(&sge, &net.side[0], opcode, 1, 0, 1 << 20);
	net_wr_remote(&wr, &net.side[1], 0);
	net_post(qp[0], &wr);
	net_run(&net, within_ms * NS_PER_MS);
	cq_pop(&net.side[0].send_cq, 1, &wc);
	distrusted[0] = net.distrusted[0];
	distrusted[1] = net.distrusted[1];
	ibt_qp_destroy(qp[0]);
	ibt_qp_destroy(qp[1]);
	net_close(&net);
	return wc.status == IBV_WC_SUCCESS;
}

/* Somebody on the way drops what leaves in one call, as a host may that claims an offload and has
 * none: found out, and then what is sent gets through. A packet per probe would take a second. */
static void rc__batches_that_vanish(void **state)
{
	struct net_config cfg = { .delay_ns = 20000, .batches_lost = true };
	u32 distrusted[2];

	assert_true(rc_carries(&cfg, IBV_WR_RDMA_WRITE, 300, distrusted));
	assert_int_not_equal(distrusted[0], 0);
	assert_true(rc_carries(&cfg, IBV_WR_RDMA_READ, 300, distrusted));
	assert_int_not_equal(distrusted[1], 0);
}

/* Neither a long way nor some losses are a reason. */
static void rc__batches_that_are_late(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	u32 distrusted[2];

	for (u64 seed = 0; seed < 10; seed++)
		for (u32 i = 0; i < ARRAY_LEN(opcodes); i++) {
			struct net_config slow = { .delay_ns = 4 * NS_PER_MS };
			struct net_config bad = { .seed = seed, .delay_ns = 20000, .loss = 300 };

			assert_true(rc_carries(&slow, opcodes[i], 5000, distrusted));
			assert_int_equal(distrusted[0] + distrusted[1], 0);
			assert_true(rc_carries(&bad, opcodes[i], 5000, distrusted));
			assert_int_equal(distrusted[0] + distrusted[1], 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rc__each_packet_has_its_psn),
		cmocka_unit_test(rc__acknowledgements_are_coalesced),
		cmocka_unit_test(rc__gap_is_naked_once),
		cmocka_unit_test(rc__duplicates_are_acknowledged_again),
		cmocka_unit_test(rc__gap_in_an_answer_is_an_implied_nak),
		cmocka_unit_test(rc__acknowledgement_past_a_read_is_an_implied_nak),
		cmocka_unit_test(rc__atomic_is_done_once),
		cmocka_unit_test(rc__repeated_answer_makes_way),
		cmocka_unit_test(rc__key_goes_during_an_answer),
		cmocka_unit_test(rc__key_goes_during_two_answers),
		cmocka_unit_test(rc__refusal_behind_a_lost_answer),
		cmocka_unit_test(rc__refusal_overtakes_an_answer),
		cmocka_unit_test(rc__rnr_behind_a_lost_answer),
		cmocka_unit_test(rc__no_more_reads_than_agreed),
		cmocka_unit_test(rc__completion_queue_overflows),
		cmocka_unit_test(rc__rnr_retry_runs_out),
		cmocka_unit_test(rc__rnr_retry_7_is_for_ever),
		cmocka_unit_test(rc__dead_peer_is_told_in_time),
		cmocka_unit_test(rc__a_freeze_is_not_the_peers_silence),
		cmocka_unit_test(rc__peer_dies_in_the_middle_of_an_answer),
		cmocka_unit_test(rc__timeout_0_is_for_ever),
		cmocka_unit_test(rc__wrong_sizes_are_invalid_requests),
		cmocka_unit_test(rc__wrong_source_is_dropped),
		cmocka_unit_test(rc__another_path_is_a_wrong_source),
		cmocka_unit_test(rc__acknowledgement_of_nothing_is_dropped),
		cmocka_unit_test(rc__local_words_from_a_wire_mean_nothing),
		cmocka_unit_test(rc__congestion_is_notified),
		cmocka_unit_test(rc__words_of_another_connection_mean_nothing),
		cmocka_unit_test(rc__what_waited_behind_another_has_its_own_time),
		cmocka_unit_test(rc__new_way_takes_the_acknowledgement_along),
		cmocka_unit_test(rc__new_way_is_full),
		cmocka_unit_test(rc__batches_that_vanish),
		cmocka_unit_test(rc__batches_that_are_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
