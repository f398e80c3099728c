/* again_test.c: READs that come again, because responses were lost or because the request was late:
 * packet by packet, on a path that loses, and on one that does not. Its delay is 10 us. */
#include "watch.h"

enum { DELAY_NS = 10000, MTU = 1024, FIRST_PSN = 100 };

static void again_open_on(struct pair *r, bool reliable)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct net_config cfg = {
		.seed = 1, .delay_ns = DELAY_NS, .reliable = reliable, .mtu = MTU
	};

	pair_open(r, &cfg, &q);
}

static void again_open(struct pair *r)
{
	again_open_on(r, false);
}

/* A request of side 0 on its memory from 0 on, with 1 MiB of the other side. */
static void again_post(struct pair *r, enum ibv_wr_opcode opcode, u64 wr_id, u32 length)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = net_wr(&sge, &r->net.side[0], opcode, wr_id, 0, length);

	net_wr_remote(&wr, &r->net.side[1], 1 << 20);
	net_post(r->qp[0], &wr);
}

static void again__repeated_read_outside_the_first_is_dropped(void **state)
{
	static struct pair r;
	struct pkt p = { .opcode = PKT_READ_REQUEST, .qp_type = IBV_QPT_RC, .dqpn = 0x22 };
	u32 answers;

	again_open(&r);
	again_post(&r, IBV_WR_RDMA_READ, 1, 4 * MTU);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	answers = watch_count(&r.watch, 1, OP_READ_ANSWERS);
	assert_int_equal(answers, 4);
	p.va = (u64)(uintptr_t)r.net.side[1].memory + (1 << 20) + MTU;
	p.rkey = r.net.side[1].key;
	p.psn = FIRST_PSN + 1;
	p.dma_length = 3 * MTU + 1;
	net_inject(&r.net, 1, &p, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 4);
	p.dma_length = 3 * MTU;
	net_inject(&r.net, 1, &p, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 7);
	p.dma_length = 2 * MTU;
	net_inject(&r.net, 1, &p, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 9);
	pair_close(&r);
}

/* The duplicate `p` gets neither an answer nor a word, and ends nothing. */
static void again_expect_silence(struct pair *r, const struct pkt *p)
{
	u32 all = OP_READ_ANSWERS | OP(ATOMIC_ACK) | OP(ACK);
	u32 before = watch_count(&r->watch, 1, all);

	net_inject(&r->net, 1, p, NULL);
	net_run(&r->net, NS_PER_MS);
	assert_int_equal(watch_count(&r->watch, 1, all), before);
	assert_int_equal(ibt_qp_state(r->qp[1]), IBV_QPS_RTS);
}

/* Other memory and other keys than those of the first: a peer that may ask for them again and again
 * tries all keys, and loses nothing by it. */
static void again__repeated_request_of_other_memory_is_dropped(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP
	};
	static struct pair r;

	for (u32 path = 0; path < 2; path++) {
		again_open_on(&r, path != 0);
		for (u32 i = 0; i < ARRAY_LEN(opcodes); i++) {
			u32 op = i == 0 ? OP(READ_REQUEST)
					: i == 1 ? OP(FETCH_ADD) : OP(COMPARE_SWAP);
			struct pkt first, p;

			again_post(&r, opcodes[i], 1 + i, 8);
			net_run(&r.net, NS_PER_MS);
			pair_expect(&r, 1 + i, IBV_WC_SUCCESS);
			p = first = *watch_nth(&r.watch, 0, op, 0);
			p.rkey ^= 1 << 12;
			again_expect_silence(&r, &p);
			p = first;
			p.va += 64;
			again_expect_silence(&r, &p);
			p.rkey ^= 1;
			again_expect_silence(&r, &p);
		}
		pair_close(&r);
	}
}

/* A READ that was late on its way comes again when its initiator has its data, and the memory has
 * been released: nothing fails. */
static void again__late_read_of_released_memory_ends_nothing(void **state)
{
	static struct pair r;
	struct net_side *peer = &r.net.side[1];
	struct pkt late;

	again_open(&r);
	again_post(&r, IBV_WR_RDMA_READ, 1, 4 * MTU);
	again_post(&r, IBV_WR_RDMA_READ, 2, MTU);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	pair_expect(&r, 2, IBV_WC_SUCCESS);
	late = *watch_nth(&r.watch, 0, OP(READ_REQUEST), 0);
	assert_int_equal(mem_deregister(&peer->mem, peer->key), 0);
	net_inject(&r.net, 1, &late, NULL);
	net_run(&r.net, NS_PER_MS);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 5);
	for (int side = 0; side < 2; side++)
		assert_int_equal(ibt_qp_state(r.qp[side]), IBV_QPS_RTS);
	/* and no gap is thought to have been told */
	r.watch.drop[0] = (struct watch_drop){ .opcodes = OP(WRITE_ONLY), .first = 1, .count = 1 };
	for (u64 id = 3; id <= 4; id++)
		again_post(&r, IBV_WR_RDMA_WRITE, id, 0);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 3, IBV_WC_SUCCESS);
	pair_expect(&r, 4, IBV_WC_SUCCESS);
	pair_close(&r);
}

/* Nor does an initiator that waits for what has gone wait in vain: its responses were lost. */
static void again__read_of_memory_released_too_early_is_refused(void **state)
{
	static struct pair r;
	struct net_side *peer = &r.net.side[1];

	again_open(&r);
	r.watch.drop[0] = (struct watch_drop){
		.from = 1, .opcodes = OP_READ_ANSWERS, .first = 2, .count = 2
	};
	again_post(&r, IBV_WR_RDMA_READ, 1, 4 * MTU);
	net_run(&r.net, DELAY_NS / 2 * 5);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 4);
	assert_int_equal(mem_deregister(&peer->mem, peer->key), 0);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_REM_ACCESS_ERR);
	pair_close(&r);
}

/* Without loss a READ comes again when its responder slept longer than the timeout: then both are
 * in the ring. The refusal of the second concerns no request after it. */
static void again__read_of_released_memory_on_a_reliable_path(void **state)
{
	static struct pair r;
	struct net_side *peer = &r.net.side[1];
	struct pkt again;

	again_open_on(&r, true);
	again_post(&r, IBV_WR_RDMA_READ, 1, 4 * MTU);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	again = *watch_nth(&r.watch, 0, OP(READ_REQUEST), 0);
	assert_int_equal(mem_deregister(&peer->mem, peer->key), 0);
	for (u32 i = 0; i < 2; i++) { /* the last packet alone, then all */
		struct pkt part = again;

		part.psn += i == 0 ? 3 : 0;
		part.va += i == 0 ? 3 * MTU : 0;
		part.dma_length = i == 0 ? MTU : 4 * MTU;
		again_post(&r, IBV_WR_RDMA_WRITE, 2 + i, 0);
		net_inject(&r.net, 1, &part, NULL);
		net_run(&r.net, NS_PER_MS);
		pair_expect(&r, 2 + i, IBV_WC_SUCCESS);
	}
	for (int side = 0; side < 2; side++)
		assert_int_equal(ibt_qp_state(r.qp[side]), IBV_QPS_RTS);
	pair_close(&r);
}

/* Responses that were lost with a port: the initiator asks again, and the memory has gone. */
static void again__read_lost_with_a_port_is_refused(void **state)
{
	static struct pair r;
	struct net_side *peer = &r.net.side[1];

	again_open_on(&r, true);
	r.watch.drop[0] = (struct watch_drop){
		.from = 1, .opcodes = OP_READ_ANSWERS, .first = 3, .count = 2
	};
	again_post(&r, IBV_WR_RDMA_READ, 1, 4 * MTU);
	net_run(&r.net, NS_PER_MS);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 4);
	assert_int_equal(mem_deregister(&peer->mem, peer->key), 0);
	ibt_qp_suspect_loss(r.qp[0]);
	net_run(&r.net, NS_PER_S);
	pair_expect(&r, 1, IBV_WC_REM_ACCESS_ERR);
	pair_close(&r);
}

/* A READ that comes again after its queue pair has been connected anew is none of the new ones. */
static void again__reset_forgets_what_was_asked(void **state)
{
	struct net_qp q = net_qp_defaults(IBV_QPT_RC);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	struct pkt again;
	static struct pair r;

	again_open(&r);
	again_post(&r, IBV_WR_RDMA_READ, 1, 64);
	net_run(&r.net, NS_PER_MS);
	pair_expect(&r, 1, IBV_WC_SUCCESS);
	again = *watch_nth(&r.watch, 0, OP(READ_REQUEST), 0);
	net_inject(&r.net, 1, &again, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 2);
	assert_int_equal(ibt_qp_modify(r.qp[1], &a, IBV_QP_STATE, NULL, NULL), 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT,
				  .port_num = 1,
				  .qp_access_flags = IBV_ACCESS_REMOTE_READ };
	assert_int_equal(ibt_qp_modify(r.qp[1], &a,
				       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL,
				       NULL),
			 0);
	q.rq_psn = FIRST_PSN + 1000;
	net_qp_connect(&r.net, 1, r.qp[1], 0x11, &q);
	net_inject(&r.net, 1, &again, NULL);
	assert_int_equal(watch_count(&r.watch, 1, OP_READ_ANSWERS), 2);
	pair_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(again__repeated_read_outside_the_first_is_dropped),
		cmocka_unit_test(again__repeated_request_of_other_memory_is_dropped),
		cmocka_unit_test(again__late_read_of_released_memory_ends_nothing),
		cmocka_unit_test(again__read_of_memory_released_too_early_is_refused),
		cmocka_unit_test(again__read_of_released_memory_on_a_reliable_path),
		cmocka_unit_test(again__read_lost_with_a_port_is_refused),
		cmocka_unit_test(again__reset_forgets_what_was_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
