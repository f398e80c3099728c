/* transfer_test.c: what is sent arrives, byte for byte, whatever the operation, size, cut, order.
 * In: the table of operations    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>

#include "pair.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

enum {
	MIB = 1 << 20,
	GUARD = 64,
	FROM = 3, /* odd places, so that nothing is aligned by chance */
	TO = 5,
	BUFFER = 8 * MIB + 65536,
	NOTE = BUFFER - 64, /* where nothing of the payload lies */
};

struct op_case {
	const char *name;
	int type;
	enum ibv_wr_opcode opcode;
};

static const struct op_case op_cases[] = {
	{ "rc/send", IBV_QPT_RC, IBV_WR_SEND },
	{ "rc/send_with_imm", IBV_QPT_RC, IBV_WR_SEND_WITH_IMM },
	{ "rc/write", IBV_QPT_RC, IBV_WR_RDMA_WRITE },
	{ "rc/write_with_imm", IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "rc/read", IBV_QPT_RC, IBV_WR_RDMA_READ },
	{ "uc/send", IBV_QPT_UC, IBV_WR_SEND },
	{ "uc/send_with_imm", IBV_QPT_UC, IBV_WR_SEND_WITH_IMM },
	{ "uc/write", IBV_QPT_UC, IBV_WR_RDMA_WRITE },
	{ "uc/write_with_imm", IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "ud/send", IBV_QPT_UD, IBV_WR_SEND },
	{ "ud/send_with_imm", IBV_QPT_UD, IBV_WR_SEND_WITH_IMM },
};

static const uint32_t sizes[] = { 0,	 1,	31,    32,    33,    4095,	4096,	 4097,
				  16383, 16384, 16385, 65539, MIB,   8 * MIB };

static bool op_is_write(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool op_has_imm(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool op_has_receive(enum ibv_wr_opcode op)
{
	return op != IBV_WR_RDMA_WRITE && op != IBV_WR_RDMA_READ;
}

static enum ibv_wc_opcode op_completion(enum ibv_wr_opcode op)
{
	return op_is_write(op) ? IBV_WC_RDMA_WRITE :
	       op == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_SEND;
}

/* What a receive completion must say. */
static void expect_received(const struct op_case *k, uint32_t size, uint64_t wr_id, uint32_t imm)
{
	struct ibv_wc wc = end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	uint32_t grh = k->type == IBV_QPT_UD ? 40 : 0;

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode,
			 op_is_write(k->opcode) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	assert_int_equal(wc.byte_len, size + grh);
	assert_int_equal(wc.qp_num, pair.b.at.qpn[0]);
	assert_int_equal(wc.src_qp, pair.a.at.qpn[0]);
	assert_int_equal((wc.wc_flags & IBV_WC_GRH) != 0, grh != 0);
	assert_int_equal((wc.wc_flags & IBV_WC_WITH_IMM) != 0, op_has_imm(k->opcode));
	if (op_has_imm(k->opcode))
		assert_int_equal(wc.imm_data, imm);
}

static void expect_sent(const struct op_case *k, uint64_t wr_id)
{
	struct ibv_wc wc = end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.opcode, op_completion(k->opcode));
	assert_int_equal(wc.qp_num, pair.a.at.qpn[0]);
}

/* An unreliable WRITE completes before it arrives: a SEND behind it tells. */
static void sync_after(void)
{
	struct side_wr note = end_op(&pair.a, IBV_WR_SEND, NOTE, 1, &pair.b, 0);
	struct side_wr room = end_wr(&pair.b, NOTE, 1);

	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &note);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
}

/* A receive's place: of a WRITE with immediate nothing lands there. */
static struct side_wr receive_for(const struct op_case *k, uint32_t size)
{
	uint32_t grh = k->type == IBV_QPT_UD ? 40 : 0;

	return op_is_write(k->opcode) ? end_wr(&pair.b, NOTE, 8) :
					end_wr(&pair.b, TO, size + grh);
}

static struct side_wr request_for(const struct op_case *k, uint32_t size)
{
	return k->opcode == IBV_WR_RDMA_READ ?
		       end_op(&pair.a, k->opcode, TO, size, &pair.b, FROM) :
		       end_op(&pair.a, k->opcode, FROM, size, &pair.b, TO);
}

/* One message there (or back, for a READ), with bytes behind it that must stay. */
static void move(const struct op_case *k, struct side_wr *w, struct side_wr *r, uint32_t size,
		 uint64_t seed)
{
	struct end *from = k->opcode == IBV_WR_RDMA_READ ? &pair.b : &pair.a;
	struct end *to = k->opcode == IBV_WR_RDMA_READ ? &pair.a : &pair.b;
	uint32_t grh = k->type == IBV_QPT_UD ? 40 : 0;

	end_fill(from, FROM, size, seed);
	end_fill(to, TO, size + grh, seed + 1);
	end_fill(to, TO + grh + size, GUARD, seed + 2);
	w->wr_id = seed;
	w->imm = htobe32((uint32_t)seed);
	r->wr_id = seed + 7;
	if (op_has_receive(k->opcode))
		end_recv(&pair.b, 0, r, 1);
	end_send(&pair.a, 0, w);
	expect_sent(k, seed);
	if (op_has_receive(k->opcode))
		expect_received(k, size, seed + 7, w->imm);
	else if (k->type == IBV_QPT_UC)
		sync_after();
	end_check(to, TO + grh, size, seed);
	end_check(to, TO + grh + size, GUARD, seed + 2);
}

static void open_for(int type)
{
	pair_open(&(struct side_options){ .type = type,
					  .bytes = BUFFER,
					  .mr_access = -1,
					  .qp_access = -1,
					  .send_sge = 32,
					  .recv_sge = 32,
					  .inline_bytes = 256 });
}

/* What is not acknowledged is lost on a wire when the receiver's process comes late. */
static uint32_t longest(const struct op_case *k)
{
	if (k->type == IBV_QPT_UD)
		return 4096;
	return k->type == IBV_QPT_UC && side_on_wire() ? 64 << 10 : UINT32_MAX;
}

static void transfer__every_size(void **state)
{
	const struct op_case *k = *state;

	open_for(k->type);
	for (size_t i = 0; i < ELEMENTS(sizes); i++) {
		struct side_wr w = request_for(k, sizes[i]), r = receive_for(k, sizes[i]);

		if (sizes[i] <= longest(k))
			move(k, &w, &r, sizes[i], 100 + i * 10);
	}
}

/* Cuts `size` bytes from `addr` on into odd pieces, in order; some are empty. */
static void cut(struct side_wr *w, int pieces, uint64_t addr, uint32_t size, uint32_t lkey)
{
	uint32_t left = size, step = size / (uint32_t)pieces | 1;

	w->num_sge = pieces;
	for (int i = 0; i < pieces; i++) {
		uint32_t n = i % 5 == 3 ? 0 : i % 2 ? step + 2 : step > 3 ? step - 2 : step;

		if (n > left || i == pieces - 1)
			n = left;
		w->sge[i] = (struct ibv_sge){ addr, n, lkey };
		addr += n;
		left -= n;
	}
}

static void transfer__scattered_and_gathered(void **state)
{
	static const int pieces[] = { 1, 2, 7, 31, 32 };
	static const uint32_t lengths[] = { 1, 100, 4001, 50001 };
	const struct op_case *k = *state;

	open_for(k->type);
	for (size_t i = 0; i < ELEMENTS(pieces) * ELEMENTS(pieces) * ELEMENTS(lengths); i++) {
		uint32_t size = lengths[i % ELEMENTS(lengths)];
		struct side_wr w = request_for(k, size), r = receive_for(k, size);

		if (k->type == IBV_QPT_UD && size > 4096)
			continue;
		cut(&w, pieces[i / ELEMENTS(lengths) % ELEMENTS(pieces)], w.sge[0].addr, size,
		    w.sge[0].lkey);
		cut(&r, pieces[i / ELEMENTS(lengths) / ELEMENTS(pieces)], r.sge[0].addr,
		    r.sge[0].length, r.sge[0].lkey);
		move(k, &w, &r, size, 1000 + i * 10);
	}
}

/* Inline data is taken at the post: what the buffer says later does not matter, nor does the
 * key. */
static void transfer__inline(void **state)
{
	const struct op_case *k = *state;

	open_for(k->type);
	assert_true(pair.a.at.max_inline >= 256);
	for (uint32_t size = 0; size <= 256; size += size < 60 ? 1 : 49) {
		struct side_wr w = request_for(k, size), r = receive_for(k, size);

		w.flags |= IBV_SEND_INLINE;
		cut(&w, 3, w.sge[0].addr, size, 0xdeadbeef);
		move(k, &w, &r, size, 500 + size * 10);
	}
}

/* One of N is signalled; the queue wraps often. */
static void transfer__unsignalled_stream(void **state)
{
	enum { DEPTH = 48, EVERY = 12, ROUNDS = 40, SIZE = 777 };
	const struct op_case *k = *state;

	pair_open(&(struct side_options){ .type = k->type,
					  .bytes = BUFFER,
					  .mr_access = -1,
					  .qp_access = -1,
					  .send_wr = DEPTH,
					  .recv_wr = DEPTH });
	for (int round = 0; round < ROUNDS; round++) {
		struct side_wr w = request_for(k, SIZE), r = receive_for(k, SIZE);

		w.flags = 0;
		w.wr_id = r.wr_id = (uint64_t)round * DEPTH;
		if (op_has_receive(k->opcode))
			end_recv(&pair.b, 0, &r, DEPTH);
		end_send_many(&pair.a, 0, &w, DEPTH, EVERY);
		for (uint32_t i = 1; i <= DEPTH / EVERY; i++)
			assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).wr_id,
					 w.wr_id + i * EVERY - 1);
		if (op_has_receive(k->opcode))
			end_expect_in_order(&pair.b, RECVS, DEPTH, r.wr_id, IBV_WC_SUCCESS);
	}
	end_expect_none(&pair.a, SENDS);
	end_expect_none(&pair.b, RECVS);
}

/* ---- atomics ---- */

static uint64_t atomic_do(enum ibv_wr_opcode op, uint64_t there, uint64_t compare, uint64_t swap)
{
	struct side_wr w = end_op(&pair.a, op, 64, 8, &pair.b, there);
	struct ibv_wc wc;

	w.compare = compare;
	w.swap = swap;
	end_send(&pair.a, 0, &w);
	wc = end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, op == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP :
								      IBV_WC_FETCH_ADD);
	assert_int_equal(wc.byte_len, 8);
	return end_word(&pair.a, 64);
}

static void atomic__compare_swap(void **state)
{
	uint64_t before;

	open_for(IBV_QPT_RC);
	end_fill(&pair.b, 4096, 24, 9);
	before = end_word(&pair.b, 4104);
	assert_int_equal(atomic_do(IBV_WR_ATOMIC_CMP_AND_SWP, 4104, before + 1, 77), before);
	assert_int_equal(end_word(&pair.b, 4104), before);
	assert_int_equal(atomic_do(IBV_WR_ATOMIC_CMP_AND_SWP, 4104, before, 77), before);
	assert_int_equal(end_word(&pair.b, 4104), 77);
	end_check(&pair.b, 4096, 8, 9);
}

static void atomic__fetch_add(void **state)
{
	uint64_t before, sum;

	open_for(IBV_QPT_RC);
	end_fill(&pair.b, 4096, 24, 9);
	before = sum = end_word(&pair.b, 4104);
	for (uint64_t i = 0; i < 20; i++) {
		uint64_t add = i % 3 == 0 ? (uint64_t)-5 : i << 58;

		assert_int_equal(atomic_do(IBV_WR_ATOMIC_FETCH_AND_ADD, 4104, add, 0), sum);
		sum += add;
	}
	assert_int_equal(end_word(&pair.b, 4104), sum);
	assert_int_not_equal(sum, before);
	end_check(&pair.b, 4096, 8, 9);
}

/* Many in flight, from both sides at once: none is lost. */
static void atomic__stream(void **state)
{
	enum { COUNT = 60, ROUNDS = 20 };
	struct side_wr there, back;

	open_for(IBV_QPT_RC);
	there = end_op(&pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 64, 8, &pair.b, 4096);
	back = end_op(&pair.b, IBV_WR_ATOMIC_FETCH_AND_ADD, 64, 8, &pair.a, 4096);
	there.compare = back.compare = 3;
	for (int i = 0; i < ROUNDS; i++) {
		end_send_many(&pair.a, 0, &there, COUNT, 0);
		end_send_many(&pair.b, 0, &back, COUNT, 0);
		end_expect_in_order(&pair.a, SENDS, COUNT, 1, IBV_WC_SUCCESS);
		end_expect_in_order(&pair.b, SENDS, COUNT, 1, IBV_WC_SUCCESS);
	}
	assert_int_equal(end_word(&pair.a, 4096), 3 * COUNT * ROUNDS);
	assert_int_equal(end_word(&pair.b, 4096), 3 * COUNT * ROUNDS);
}

/* ---- order ---- */

/* READ into a buffer, then SEND of that buffer: with the fence the SEND carries what was read. */
static void order__fence(void **state)
{
	static const uint32_t lengths[] = { 8, 20000, MIB };

	open_for(IBV_QPT_RC);
	for (size_t i = 0; i < 3 * ELEMENTS(lengths); i++) {
		uint32_t size = lengths[i % ELEMENTS(lengths)];
		struct side_wr read = end_op(&pair.a, IBV_WR_RDMA_READ, 0, size, &pair.b, 0);
		struct side_wr send = end_op(&pair.a, IBV_WR_SEND, 0, size, &pair.b, 0);
		struct side_wr room = end_wr(&pair.b, 2 * MIB, size);
		struct side_wr first = end_op(&pair.a, IBV_WR_SEND, NOTE, 1, &pair.b, 0);
		struct side_wr first_room = end_wr(&pair.b, NOTE, 1);

		end_fill(&pair.b, 0, size, 40 + i);
		end_fill(&pair.a, 0, size, 90 + i);
		send.flags |= IBV_SEND_FENCE;
		end_recv(&pair.b, 0, &first_room, 1);
		end_recv(&pair.b, 0, &room, 1);
		end_send(&pair.a, 0, &first);
		end_send(&pair.a, 0, &read);
		end_send(&pair.a, 0, &send);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		end_check(&pair.b, 2 * MIB, size, 40 + i);
	}
}

/* Every kind at once in one queue completes in the order posted, and the last WRITE wins. */
static void order__mixed(void **state)
{
	struct side_wr kinds[5], room;

	open_for(IBV_QPT_RC);
	kinds[0] = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 40000, &pair.b, 0);
	kinds[1] = end_op(&pair.a, IBV_WR_RDMA_READ, MIB, 50000, &pair.b, 0);
	kinds[2] = end_op(&pair.a, IBV_WR_SEND, 0, 30000, &pair.b, 0);
	kinds[3] = end_op(&pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 2 * MIB, 8, &pair.b, 2 * MIB);
	kinds[4] = end_op(&pair.a, IBV_WR_RDMA_WRITE, 100, 40000, &pair.b, 0);
	room = end_wr(&pair.b, 3 * MIB, 30000);
	kinds[3].compare = 1;
	end_fill(&pair.a, 0, 50000, 4);
	for (uint64_t round = 0; round < 12; round++) {
		end_recv(&pair.b, 0, &room, 1);
		for (uint64_t i = 0; i < 5; i++) {
			kinds[i].wr_id = round * 5 + i;
			end_send(&pair.a, 0, &kinds[i]);
		}
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		if (round % 4 == 3)
			end_expect_in_order(&pair.a, SENDS, 20, (round - 3) * 5, IBV_WC_SUCCESS);
	}
	end_check(&pair.b, 3 * MIB, 30000, 4);
	assert_int_equal(end_word(&pair.b, 2 * MIB), 12);
	end_check(&pair.a, MIB, 40000 - 100, 4);
}

/* Many large READs in flight: answers wait for room and come in order. */
static void order__many_reads(void **state)
{
	enum { COUNT = 30, SIZE = 200001 };
	struct side_wr w;

	open_for(IBV_QPT_RC);
	end_fill(&pair.b, 0, BUFFER - 64, 6);
	for (uint64_t i = 0; i < COUNT; i++) {
		w = end_op(&pair.a, IBV_WR_RDMA_READ, i * SIZE, SIZE, &pair.b, i * SIZE);
		w.wr_id = i;
		end_send(&pair.a, 0, &w);
	}
	end_expect_in_order(&pair.a, SENDS, COUNT, 0, IBV_WC_SUCCESS);
	end_check(&pair.a, 0, (uint64_t)COUNT * SIZE, 6);
}

/* ---- solicited events ---- */

static void solicited__only_those(void **state)
{
	struct side_wr w, r;
	bool recv;

	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .mr_access = -1, .qp_access = -1, .channel = true });
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	r = end_wr(&pair.b, 0, 100);
	end_recv(&pair.b, 0, &r, 10);
	end_arm(&pair.b, true);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	assert_false(end_cq_event(&pair.b, 100, &recv));
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	w.flags |= IBV_SEND_SOLICITED;
	end_send(&pair.a, 0, &w);
	assert_true(end_cq_event(&pair.b, PAIR_WAIT_MS, &recv));
	assert_true(recv);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	/* One arm, one event. */
	end_send(&pair.a, 0, &w);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	assert_false(end_cq_event(&pair.b, 100, &recv));
	/* Any completion, once armed for any. */
	end_arm(&pair.b, false);
	w.flags &= ~IBV_SEND_SOLICITED;
	end_send(&pair.a, 0, &w);
	assert_true(end_cq_event(&pair.b, PAIR_WAIT_MS, &recv));
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
}

static void solicited__write_with_imm_and_errors(void **state)
{
	struct side_wr w, r;
	bool recv;

	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .mr_access = -1, .qp_access = -1, .channel = true });
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 3000, &pair.b, 0);
	w.flags |= IBV_SEND_SOLICITED;
	r = end_wr(&pair.b, 4096, 8);
	end_recv(&pair.b, 0, &r, 2);
	end_arm(&pair.b, true);
	end_send(&pair.a, 0, &w);
	assert_true(end_cq_event(&pair.b, PAIR_WAIT_MS, &recv));
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	/* A completion in error counts as solicited. */
	end_arm(&pair.b, true);
	end_state(&pair.b, 0, IBV_QPS_ERR);
	assert_true(end_cq_event(&pair.b, PAIR_WAIT_MS, &recv));
	end_expect(&pair.b, RECVS, IBV_WC_WR_FLUSH_ERR);
}

/* ---- the table becomes tests ---- */

struct test_kind {
	const char *name;
	void (*fn)(void **state);
	bool (*applies)(const struct op_case *k);
};

static bool applies_always(const struct op_case *k)
{
	return true;
}

static bool applies_inline(const struct op_case *k)
{
	return k->opcode != IBV_WR_RDMA_READ;
}

static const struct test_kind kinds[] = {
	{ "every_size", transfer__every_size, applies_always },
	{ "scattered_and_gathered", transfer__scattered_and_gathered, applies_always },
	{ "inline", transfer__inline, applies_inline },
	{ "unsignalled_stream", transfer__unsignalled_stream, applies_always },
};

static const struct CMUnitTest others[] = {
	cmocka_unit_test_teardown(atomic__compare_swap, pair_teardown),
	cmocka_unit_test_teardown(atomic__fetch_add, pair_teardown),
	cmocka_unit_test_teardown(atomic__stream, pair_teardown),
	cmocka_unit_test_teardown(order__fence, pair_teardown),
	cmocka_unit_test_teardown(order__mixed, pair_teardown),
	cmocka_unit_test_teardown(order__many_reads, pair_teardown),
	cmocka_unit_test_teardown(solicited__only_those, pair_teardown),
	cmocka_unit_test_teardown(solicited__write_with_imm_and_errors, pair_teardown),
};

int main(void)
{
	struct CMUnitTest tests[ELEMENTS(kinds) * ELEMENTS(op_cases) + ELEMENTS(others)];
	static char names[ELEMENTS(kinds) * ELEMENTS(op_cases)][64];
	size_t n = 0;

	pair_supervise();
	for (size_t i = 0; i < ELEMENTS(kinds); i++)
		for (size_t j = 0; j < ELEMENTS(op_cases); j++) {
			if (!kinds[i].applies(&op_cases[j]))
				continue;
			snprintf(names[n], sizeof(names[n]), "transfer__%s %s", kinds[i].name,
				 op_cases[j].name);
			tests[n] = (struct CMUnitTest){ names[n], kinds[i].fn, NULL, pair_teardown,
							(void *)&op_cases[j] };
			n++;
		}
	memcpy(&tests[n], others, sizeof(others));
	n += ELEMENTS(others);
	return _cmocka_run_group_tests("transfer", tests, n, pair_group_setup,
				       pair_group_teardown);
}
