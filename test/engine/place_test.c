/* place_test.c: atomic writes and flushes of RC on a path that loses packets: done once, in order,
 * refused for what is wrong with them. */
#include "watch.h"

#include <string.h>

enum { DELAY_NS = 10000, FIRST_PSN = 100, AT = 1 << 20, FLUSH = 14 };

struct place {
	struct net net;
	struct ibt_qp *qp[2];
	struct watch watch;
};

static struct place place;

static void place_open_on(bool reliable)
{
	struct net_config cfg = { .seed = 1, .delay_ns = DELAY_NS, .reliable = reliable };
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);

	net_open(&place.net, &cfg);
	net_pair(&place.net, place.qp, &q);
	watch_begin(&place.watch, &place.net);
}

static int place_open(void **state)
{
	place_open_on(false);
	return 0;
}

static int place_close(void **state)
{
	net_run(&place.net, NS_PER_S);
	assert_int_equal(net_in_flight(&place.net.side[0]), 0);
	ibt_qp_destroy(place.qp[0]);
	ibt_qp_destroy(place.qp[1]);
	net_close(&place.net);
	return 0;
}

static void place_write(u64 wr_id, u64 value, bool by_inline)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &place.net.side[0], IBV_WR_ATOMIC_WRITE, wr_id,
				       (u32)wr_id * 8, 8);

	memcpy(place.net.side[0].memory + wr_id * 8, &value, 8);
	net_wr_remote(&wr, &place.net.side[1], AT);
	wr.send_flags = IBV_SEND_SIGNALED | (by_inline ? IBV_SEND_INLINE : 0);
	net_post(place.qp[0], &wr);
}

static void place_flush(u64 wr_id, u64 length, u64 feth)
{
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = (enum ibv_wr_opcode)FLUSH,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr remote = { .opcode = IBV_WR_RDMA_WRITE };

	net_wr_remote(&remote, &place.net.side[1], AT);
	wr.wr.atomic.remote_addr = remote.wr.rdma.remote_addr;
	wr.wr.atomic.rkey = remote.wr.rdma.rkey;
	wr.wr.atomic.compare_add = length;
	wr.wr.atomic.swap = feth;
	net_post(place.qp[0], &wr);
}

static u64 place_value(void)
{
	u64 value;

	memcpy(&value, place.net.side[1].memory + AT, 8);
	return value;
}

static struct ibv_wc place_expect(u64 wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = net_wc(&place.net.side[0].send_cq);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	return wc;
}

/* The response is lost three times: the value of a request that comes behind stays, for the first
 * one is not executed again. */
static void atomic_write__is_done_once(void **state)
{
	place.watch.drop[0] =
		(struct watch_drop){ .from = 1, .opcodes = OP(READ_ONLY), .first = 1, .count = 3 };
	place_write(1, 0x1111, true);
	net_run(&place.net, NS_PER_MS);
	assert_int_equal(place_value(), 0x1111);
	memset(place.net.side[1].memory + AT, 7, 8);
	net_run(&place.net, 100 * NS_PER_MS);
	assert_int_equal(place_expect(1, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
	assert_int_equal(place_value(), 0x0707070707070707);
	assert_in_range(watch_count(&place.watch, 0, OP(ATOMIC_WRITE)), 2, 5);
}

/* The request itself is lost, and those behind it wait for it. */
static void atomic_write__keeps_the_order(void **state)
{
	place.watch.drop[0] = (struct watch_drop){
		.from = 0, .opcodes = OP(ATOMIC_WRITE), .first = 1, .count = 2
	};
	place_write(1, 0x1111, false);
	place_write(2, 0x2222, true);
	place_flush(3, 8, FETH_GLOBAL);
	net_run(&place.net, 200 * NS_PER_MS);
	place_expect(1, IBV_WC_SUCCESS);
	place_expect(2, IBV_WC_SUCCESS);
	assert_int_equal(place_expect(3, IBV_WC_SUCCESS).opcode, 8);
	assert_int_equal(place_value(), 0x2222);
}

/* No more of them are outstanding than READs and atomics may be. */
static void atomic_write__counts_as_an_atomic(void **state)
{
	for (u64 i = 0; i < 40; i++)
		place_write(i, i, true);
	assert_int_equal(watch_count(&place.watch, 0, OP(ATOMIC_WRITE)),
			 net_qp_defaults(IBV_QPT_RC).rd_atomic);
	net_run(&place.net, NS_PER_S);
	for (u64 i = 0; i < 40; i++)
		place_expect(i, IBV_WC_SUCCESS);
	assert_int_equal(place_value(), 39);
}

static void post__refuses(void **state)
{
	struct ibv_sge sge = { 0 }, two[2] = { { 0 }, { 0 } };
	struct ibv_send_wr wr, *bad;
	static const u32 lengths[] = { 0, 4, 7, 9, 16 };
	static const struct {
		u64 length, feth;
	} flushes[] = { { 8, 0 }, { 8, 4 }, { 8, FETH_GLOBAL | 2 << FETH_LEVEL_SHIFT },
			{ (1ull << 31) + 1, FETH_GLOBAL }, { 8, 1ull << 40 | FETH_GLOBAL } };

	for (u32 i = 0; i < ARRAY_LEN(lengths); i++)
		for (u32 flags = 0; flags <= IBV_SEND_INLINE; flags += IBV_SEND_INLINE) {
			wr = net_wr(&sge, &place.net.side[0], IBV_WR_ATOMIC_WRITE, 1, 0,
				    lengths[i]);
			wr.send_flags = flags;
			assert_int_equal(ibt_post_send(place.qp[0], &wr, &bad, NULL), -EINVAL);
		}
	wr.sg_list = two;
	wr.num_sge = 100;
	assert_int_equal(ibt_post_send(place.qp[0], &wr, &bad, NULL), -EINVAL);
	for (u32 i = 0; i < ARRAY_LEN(flushes); i++) {
		wr = (struct ibv_send_wr){ .opcode = (enum ibv_wr_opcode)FLUSH };
		wr.wr.atomic.compare_add = flushes[i].length;
		wr.wr.atomic.swap = flushes[i].feth;
		assert_int_equal(ibt_post_send(place.qp[0], &wr, &bad, NULL), -EINVAL);
	}
}

/* The way to the peer is full when an acknowledgement is owed to it. An atomic write that cannot be
 * sent, for its memory is not there, must not take it along. */
static void atomic_write__failed_leaves_the_owed_acknowledgement(void **state)
{
	struct net_config cfg = { .seed = 1, .delay_ns = NS_PER_MS, .reliable = true };
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	place_close(NULL);
	cfg.room[1] = 1;
	net_open(&place.net, &cfg);
	net_pair(&place.net, place.qp, &q);
	net_post_recv(&place.net.side[0], place.qp[0], 7, 8192, 64);
	place_flush(1, 8, FETH_GLOBAL); /* takes its time */
	place.net.cfg.delay_ns = 1000;
	wr = net_wr(&sge, &place.net.side[1], IBV_WR_SEND, 70, 0, 8);
	wr.send_flags = IBV_SEND_SIGNALED;
	net_post(place.qp[1], &wr);
	assert_true(net_step(&place.net));
	assert_int_equal(net_wc(&place.net.side[0].recv_cq).wr_id, 7);
	wr = net_wr(&sge, &place.net.side[0], IBV_WR_ATOMIC_WRITE, 2, 0, 8);
	net_wr_remote(&wr, &place.net.side[1], AT);
	wr.send_flags = IBV_SEND_SIGNALED;
	sge.lkey ^= 1; /* of nobody */
	net_post(place.qp[0], &wr);
	assert_int_equal(cq_peek(&place.net.side[1].send_cq, 1), 0);
	net_run(&place.net, NS_PER_S);
	place_expect(1, IBV_WC_SUCCESS);
	place_expect(2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(net_wc(&place.net.side[1].send_cq).status, IBV_WC_SUCCESS);
}

/* What no requester of ours sends. */
static void forged__is_naked(void **state)
{
	static const struct {
		u8 opcode;
		u32 length, dma_length, misalign, feth;
		u8 nak;
	} rows[] = {
		{ PKT_ATOMIC_WRITE, 0, 8, 0, 0, NAK_INVALID_REQUEST },
		{ PKT_ATOMIC_WRITE, 4, 8, 0, 0, NAK_INVALID_REQUEST },
		{ PKT_ATOMIC_WRITE, 16, 16, 0, 0, NAK_INVALID_REQUEST },
		{ PKT_ATOMIC_WRITE, 8, 16, 0, 0, NAK_INVALID_REQUEST },
		{ PKT_ATOMIC_WRITE, 8, 8, 4, 0, NAK_INVALID_REQUEST },
		{ PKT_ATOMIC_WRITE, 8, 8, NET_MEMORY, 0, NAK_REMOTE_ACCESS },
		{ PKT_FLUSH, 0, 8, 0, 0, NAK_INVALID_REQUEST },
		{ PKT_FLUSH, 8, 8, 0, FETH_GLOBAL, NAK_INVALID_REQUEST },
		{ PKT_FLUSH, 0, 8, 0, FETH_GLOBAL | 2 << FETH_LEVEL_SHIFT, NAK_INVALID_REQUEST },
		{ PKT_FLUSH, 0, 1u << 31 | 1, 0, FETH_GLOBAL, NAK_INVALID_REQUEST },
		{ PKT_FLUSH, 0, 8, 0, FETH_PERSISTENT, NAK_REMOTE_ACCESS },
		{ PKT_FLUSH, 0, 8, NET_MEMORY, FETH_GLOBAL, NAK_REMOTE_ACCESS },
	};
	static u8 payload[64];

	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		struct ibv_send_wr remote = { .opcode = IBV_WR_RDMA_WRITE };
		struct pkt p = { .opcode = rows[i].opcode,
				 .qp_type = IBV_QPT_RC,
				 .dqpn = 0x22,
				 .psn = FIRST_PSN,
				 .length = rows[i].length,
				 .dma_length = rows[i].dma_length,
				 .imm = rows[i].feth };

		net_wr_remote(&remote, &place.net.side[1], AT);
		p.va = remote.wr.rdma.remote_addr + rows[i].misalign;
		p.rkey = remote.wr.rdma.rkey;
		net_inject(&place.net, 1, &p, payload);
		assert_int_equal(watch_nth(&place.watch, 1, OP(ACK), 0)->syndrome,
				 AETH_NAK | rows[i].nak);
		place_close(NULL);
		place_open(NULL);
	}
}

/* The duplicate `p` gets `answers`, changes no memory and ends nothing. */
static void place_expect_answers(const struct pkt *p, u32 answers)
{
	static const u64 payload = 0x4444;
	u32 all = OP(READ_ONLY) | OP(ACK), before = watch_count(&place.watch, 1, all);

	net_inject(&place.net, 1, p, &payload);
	net_run(&place.net, NS_PER_MS);
	assert_int_equal(watch_count(&place.watch, 1, all), before + answers);
	assert_int_equal(ibt_qp_state(place.qp[1]), IBV_QPS_RTS);
	assert_int_equal(place_value(), 0x1111);
}

/* As again__repeated_request_of_other_memory_is_dropped (again_test.c). */
static void duplicate__of_other_memory_is_dropped(void **state)
{
	static const u32 ops[] = { OP(ATOMIC_WRITE), OP(FLUSH) };

	for (u32 path = 0; path < 2; path++) {
		place_close(NULL);
		place_open_on(path != 0);
		place_write(1, 0x1111, true);
		place_flush(2, 8, FETH_GLOBAL);
		net_run(&place.net, NS_PER_MS);
		place_expect(1, IBV_WC_SUCCESS);
		place_expect(2, IBV_WC_SUCCESS);
		for (u32 i = 0; i < ARRAY_LEN(ops); i++) {
			const struct pkt first = *watch_nth(&place.watch, 0, ops[i], 0);
			struct pkt p = first;

			p.rkey ^= 1 << 12;
			place_expect_answers(&p, 0);
			p = first;
			p.va += 64;
			place_expect_answers(&p, 0);
			p = first;
			p.dma_length += 8;
			place_expect_answers(&p, 0);
			place_expect_answers(&first, 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(atomic_write__is_done_once, place_open,
						place_close),
		cmocka_unit_test_setup_teardown(atomic_write__keeps_the_order, place_open,
						place_close),
		cmocka_unit_test_setup_teardown(atomic_write__counts_as_an_atomic, place_open,
						place_close),
		cmocka_unit_test_setup_teardown(
			atomic_write__failed_leaves_the_owed_acknowledgement, place_open,
			place_close),
		cmocka_unit_test_setup_teardown(post__refuses, place_open, place_close),
		cmocka_unit_test_setup_teardown(forged__is_naked, place_open, place_close),
		cmocka_unit_test_setup_teardown(duplicate__of_other_memory_is_dropped, place_open,
						place_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
