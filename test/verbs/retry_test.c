/* retry_test.c: a receiver that is not ready, and a peer that is not there: RNR and its timer, the
 * timeout and its retries, and that nothing is lost, doubled or told twice on the way.
 * In: connections with chosen timers    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "pair.h"

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

enum {
	BYTES = 1 << 20,
	LONG = 8 << 20,
	RNR_10MS = 20, /* the timer's code for 10.24 ms */
	RNR_246MS = 29,
	RNR_SHORT = 1, /* 10 us */
	PAUSE_MS = 600, /* two retries of RNR_246MS; its limit of six lasts for 1.7 s */
	TIMEOUT_1S = 18, /* eight tries: 8.6 s */
	TIMEOUT_1MS = 8,
	SLACK_MS = 15000, /* what a busy machine may add */
};

static struct side_link link_to(uint8_t rnr_retry, uint8_t rnr_timer, uint8_t timeout,
				uint8_t retry)
{
	struct side_link l = pair_default_link(&pair.b, 0);

	l.rnr_retry = rnr_retry;
	l.min_rnr_timer = rnr_timer;
	l.timeout = timeout;
	l.retry_cnt = retry;
	return l;
}

/* Opens with these on both sides. The GID comes from an end that is open. */
/* Where it is not the timeout that a test is about: a busy machine must not reach it. Over a
 * wire it runs for the peer's silence, too: 4 s. */
static uint8_t patience(void)
{
	return side_on_wire() ? 20 : 14;
}

static void open_with(uint32_t bytes, uint8_t rnr_retry, uint8_t rnr_timer, uint8_t timeout,
		      uint8_t retry)
{
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = bytes, .mr_access = -1, .qp_access = -1
	};
	struct side_link l;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = link_to(rnr_retry, rnr_timer, timeout, retry);
	pair_connect(1, &l, &l);
}

/* ---- RNR ---- */

static void rnr__gives_up_after_its_retries(void **state)
{
	static const uint8_t retries[] = { 0, 1, 3 };

	for (size_t i = 0; i < ELEMENTS(retries); i++) {
		uint64_t begin, took;
		struct side_wr w;

		open_with(BYTES, retries[i], RNR_10MS, patience(), 7);
		w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
		begin = now_ms();
		end_send_many(&pair.a, 0, &w, 3, 0);
		assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_RNR_RETRY_EXC_ERR).wr_id, 1);
		took = now_ms() - begin;
		end_expect_in_order(&pair.a, SENDS, 2, 2, IBV_WC_WR_FLUSH_ERR);
		assert_in_range(took, 10 * retries[i], 11 * retries[i] + SLACK_MS);
		end_expect_state(&pair.a, 0, IBV_QPS_ERR);
		end_expect_state(&pair.b, 0, IBV_QPS_RTS);
		pair_teardown(NULL);
	}
}

/* Seven means for ever; all arrive once, in order, when there is room. */
static void rnr__waits_for_ever(void **state)
{
	struct side_wr w, room;

	open_with(BYTES, 7, RNR_SHORT, patience(), 0);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 70000, &pair.b, 0);
	room = end_wr(&pair.b, 0, 70000);
	end_fill(&pair.a, 0, 70000, 31);
	end_send_many(&pair.a, 0, &w, 10, 0);
	usleep(100000);
	end_expect_none(&pair.a, SENDS);
	for (uint64_t i = 0; i < 10; i++) {
		room.wr_id = i;
		end_recv(&pair.b, 0, &room, 1);
		assert_int_equal(end_expect(&pair.b, RECVS, IBV_WC_SUCCESS).wr_id, i);
		end_check(&pair.b, 0, 70000, 31);
		assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).wr_id, i + 1);
	}
	end_expect_none(&pair.b, RECVS);
}

/* A limit counts retries without progress, not all of a connection's life. */
static void rnr__progress_renews_the_count(void **state)
{
	struct side_wr w, room;

	open_with(BYTES, 6, RNR_246MS, patience(), 7);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 100, &pair.b, 0);
	room = end_wr(&pair.b, 0, 100);
	end_send_many(&pair.a, 0, &w, 4, 0);
	for (int i = 0; i < 4; i++) {
		usleep(PAUSE_MS * 1000);
		end_recv(&pair.b, 0, &room, 1);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	}
	end_expect_in_order(&pair.a, SENDS, 4, 1, IBV_WC_SUCCESS);
}

/* The notice of a WRITE finds no receive request; whether the bytes go by packets (behind a SEND
 * that is not acknowledged yet) or not, the notice comes later and once. */
static void rnr__write_with_imm(void **state)
{
	for (uint32_t size = 100; size < 400000; size *= 5) {
		struct side_wr first, w, room;
		struct ibv_wc wc;

		open_with(BYTES, 7, RNR_10MS, patience(), 7);
		end_fill(&pair.a, 0, size, size);
		first = end_op(&pair.a, IBV_WR_SEND, 0, 8, &pair.b, 0);
		w = end_op(&pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, 0, size, &pair.b, 4096);
		w.imm = htobe32(size);
		w.wr_id = 2;
		room = end_wr(&pair.b, 0, 8);
		end_recv(&pair.b, 0, &room, 1);
		end_send(&pair.a, 0, &first);
		end_send(&pair.a, 0, &w);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		usleep(25000);
		end_expect_none(&pair.a, SENDS);
		end_recv(&pair.b, 0, &room, 2);
		wc = end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		assert_int_equal(wc.imm_data, w.imm);
		assert_int_equal(wc.byte_len, size);
		assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).wr_id, 2);
		end_check(&pair.b, 4096, size, size);
		end_send(&pair.a, 0, &first);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		end_expect_none(&pair.b, RECVS);
		pair_teardown(NULL);
	}
}

/* A long READ is being answered when the SEND behind it finds no room: both end well. */
static void rnr__behind_a_read(void **state)
{
	struct side_wr read, send, room;

	open_with(LONG, 7, RNR_SHORT, patience(), 7);
	end_fill(&pair.b, 0, LONG, 17);
	read = end_op(&pair.a, IBV_WR_RDMA_READ, 0, LONG, &pair.b, 0);
	send = end_op(&pair.a, IBV_WR_SEND, 0, 64, &pair.b, 0);
	room = end_wr(&pair.b, 0, 64);
	read.wr_id = 1;
	send.wr_id = 2;
	end_send(&pair.a, 0, &read);
	end_send(&pair.a, 0, &send);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).wr_id, 1);
	end_check(&pair.a, 0, LONG, 17);
	end_expect_none(&pair.a, SENDS);
	end_recv(&pair.b, 0, &room, 1);
	assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).wr_id, 2);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
}

/* One connection that waits holds up no other. */
static void rnr__blocks_no_other(void **state)
{
	struct side_options o = {
		.type = IBV_QPT_RC, .qps = 2, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_wr w, room;

	pair_open(&o);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 60000, &pair.b, 0);
	room = end_wr(&pair.b, 0, 60000);
	end_send_many(&pair.a, 0, &w, 60, 0);
	for (int i = 0; i < 20; i++) {
		end_recv(&pair.b, 1, &room, 1);
		end_send(&pair.a, 1, &w);
		end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_SUCCESS).qp_num,
				 pair.a.at.qpn[1]);
	}
	end_recv(&pair.b, 0, &room, 60);
	end_expect_in_order(&pair.a, SENDS, 60, 1, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.b, RECVS, 60, 1, IBV_WC_SUCCESS);
}

/* Both directions full of messages, and both sides short of receives: no refusal gets lost. */
static void rnr__storm(void **state)
{
	enum { ROUNDS = 60, BURST = 40, SIZE = 20000 };
	struct side_options o = { .type = IBV_QPT_RC,
				  .qps = 4,
				  .bytes = BYTES,
				  .mr_access = -1,
				  .qp_access = -1 };
	struct side_wr there, back, room_a, room_b;

	pair_open(&o);
	there = end_op(&pair.a, IBV_WR_SEND, 0, SIZE, &pair.b, 0);
	back = end_op(&pair.b, IBV_WR_SEND, 0, SIZE, &pair.a, 0);
	room_a = end_wr(&pair.a, 65536, SIZE);
	room_b = end_wr(&pair.b, 65536, SIZE);
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t q = 0; q < 4; q++) {
			end_send_many(&pair.a, q, &there, BURST, BURST);
			end_send_many(&pair.b, q, &back, BURST, BURST);
			end_recv(&pair.a, q, &room_a, BURST);
			end_recv(&pair.b, q, &room_b, BURST);
		}
		for (uint32_t q = 0; q < 4 * BURST; q++) {
			end_expect(&pair.a, RECVS, IBV_WC_SUCCESS);
			end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
		}
		for (uint32_t q = 0; q < 8; q++)
			end_expect(q % 2 ? &pair.a : &pair.b, SENDS, IBV_WC_SUCCESS);
		if (round == 0) {
			there.flags = back.flags = 0;
			/* the first round was signalled throughout */
			for (uint32_t q = 0; q < 4 * BURST - 4; q++) {
				end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
				end_expect(&pair.b, SENDS, IBV_WC_SUCCESS);
			}
		}
	}
}

/* ---- absent peers ---- */

enum absence {
	ABSENT_DESTROYED,
	ABSENT_RESET,
	ABSENT_INIT,
	ABSENT_ERROR,
	ABSENT_NUMBER,
	ABSENT_TYPE,
	ABSENT_UNRELIABLE,
	ABSENCES
};

static const char *const absence_names[] = { "destroyed", "in reset", "in init", "in error",
					     "of nobody's number", "of another type",
					     "of type UC" };

static void absent_arrange(enum absence how, uint8_t timeout, uint8_t retry)
{
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};
	struct side_link l;

	end_open(&pair.a, &o);
	o.type = how == ABSENT_TYPE	  ? IBV_QPT_UD
		 : how == ABSENT_UNRELIABLE ? IBV_QPT_UC
					    : IBV_QPT_RC;
	end_open(&pair.b, &o);
	l = link_to(7, RNR_SHORT, timeout, retry);
	if (how == ABSENT_NUMBER)
		l.dest_qpn = pair.b.at.qpn[0] ^ 0x300000; /* a slot that nobody has */
	end_connect(&pair.a, 0, &l);
	l = pair_default_link(&pair.a, 0);
	l.until = how == ABSENT_INIT ? IBV_QPS_INIT : 0;
	if (how != ABSENT_RESET && how != ABSENT_NUMBER)
		end_connect(&pair.b, 0, &l);
	if (how == ABSENT_ERROR)
		end_state(&pair.b, 0, IBV_QPS_ERR);
	if (how == ABSENT_DESTROYED)
		end_destroy_qp(&pair.b, 0);
}

/* Ends in time, with the first in error and the rest flushed: not one of them "succeeds". */
static void absent__retries_are_exhausted(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	enum absence how = (enum absence)(uintptr_t)*state;

	for (size_t i = 0; i < ELEMENTS(ops); i++) {
		uint64_t begin, took;
		struct side_wr w;

		absent_arrange(how, TIMEOUT_1MS + 3, 2);
		w = end_op(&pair.a, ops[i], 0, 8, &pair.b, 0);
		begin = now_ms();
		end_send_many(&pair.a, 0, &w, 5, 0);
		assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_RETRY_EXC_ERR).wr_id, 1);
		took = now_ms() - begin;
		end_expect_in_order(&pair.a, SENDS, 4, 2, IBV_WC_WR_FLUSH_ERR);
		/* 8.4 ms each */
		assert_in_range(took, 3 * 8, SLACK_MS);
		end_expect_state(&pair.a, 0, IBV_QPS_ERR);
		pair_teardown(NULL);
	}
}

/* It becomes ready before the patience is at an end. */
static void absent__comes_late(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_READ };

	for (size_t i = 0; i < ELEMENTS(ops); i++) {
		struct side_link l;
		struct side_wr w, room;

		absent_arrange(ABSENT_RESET, TIMEOUT_1S, 7);
		w = end_op(&pair.a, ops[i], 0, 50000, &pair.b, 0);
		room = end_wr(&pair.b, 65536, 50000);
		end_send_many(&pair.a, 0, &w, 8, 0);
		usleep(50000);
		l = pair_default_link(&pair.a, 0);
		end_connect(&pair.b, 0, &l);
		end_recv(&pair.b, 0, &room, 10);
		end_expect_in_order(&pair.a, SENDS, 8, 1, IBV_WC_SUCCESS);
		if (ops[i] == IBV_WR_SEND)
			end_expect_in_order(&pair.b, RECVS, 8, 1, IBV_WC_SUCCESS);
		end_expect_none(&pair.b, RECVS);
		pair_teardown(NULL);
	}
}

/* The peer goes while something is outstanding: an answer that will never come, a message that
 * waits for room. It ends in an error, in time. */
static void absent__goes_meanwhile(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_READ };
	enum absence how = (enum absence)(uintptr_t)*state;

	for (size_t i = 0; i < ELEMENTS(ops); i++) {
		struct ibv_wc wc;
		struct side_wr w;

		open_with(LONG, 7, RNR_SHORT, TIMEOUT_1MS + 3, 3);
		w = end_op(&pair.a, ops[i], 0, LONG, &pair.b, 0);
		end_send_many(&pair.a, 0, &w, 8, 0);
		if (how == ABSENT_DESTROYED)
			end_destroy_qp(&pair.b, 0);
		else
			end_state(&pair.b, 0,
				  how == ABSENT_RESET ? IBV_QPS_RESET : IBV_QPS_ERR);
		for (uint64_t n = 1; n <= 8; n++) {
			assert_int_equal(end_poll(&pair.a, SENDS, 1, PAIR_WAIT_MS, &wc), 1);
			assert_int_equal(wc.wr_id, n);
		}
		if (ops[i] == IBV_WR_SEND || !pair_is_direct())
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		pair_teardown(NULL);
	}
}

/* Who has received the last message may go at once: its sender is told that it arrived. */
static void absent__goes_after_the_last_message(void **state)
{
	enum absence how = (enum absence)(uintptr_t)*state;

	for (int i = 0; i < 60; i++) {
		struct side_wr w, room;

		open_with(BYTES, 7, RNR_SHORT, patience(), 7);
		w = end_op(&pair.a, IBV_WR_SEND, 0, 2000, &pair.b, 0);
		room = end_wr(&pair.b, 0, 2000);
		end_recv(&pair.b, 0, &room, 10);
		end_send_many(&pair.a, 0, &w, 10, 10);
		end_expect_in_order(&pair.b, RECVS, 10, 1, IBV_WC_SUCCESS);
		if (how == ABSENT_DESTROYED)
			end_destroy_qp(&pair.b, 0);
		else
			end_state(&pair.b, 0,
				  how == ABSENT_RESET ? IBV_QPS_RESET : IBV_QPS_ERR);
		end_expect_in_order(&pair.a, SENDS, 10, 1, IBV_WC_SUCCESS);
		pair_teardown(NULL);
	}
}

/* Timeout 0 means without limit. */
static void absent__no_timeout_waits(void **state)
{
	struct side_link l;
	struct side_wr w, room;

	absent_arrange(ABSENT_INIT, 0, 0);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 500, &pair.b, 0);
	room = end_wr(&pair.b, 0, 500);
	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	usleep(800000);
	end_expect_none(&pair.a, SENDS);
	l = pair_default_link(&pair.a, 0);
	end_connect(&pair.b, 0, &l);
	end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
}

/* A connected queue pair hears only the one that it is connected to. */
static void absent__wrong_peer(void **state)
{
	struct side_options o = { .type = IBV_QPT_RC,
				  .qps = 2,
				  .bytes = BYTES,
				  .mr_access = -1,
				  .qp_access = -1 };
	struct side_wr w, room;
	struct side_link l;

	end_open(&pair.a, &o);
	end_open(&pair.b, &o);
	l = link_to(7, RNR_SHORT, TIMEOUT_1MS, 2);
	end_connect(&pair.a, 0, &l);
	l = pair_default_link(&pair.a, 1); /* b's first with a's second */
	end_connect(&pair.b, 0, &l);
	w = end_op(&pair.a, IBV_WR_SEND, 0, 500, &pair.b, 0);
	room = end_wr(&pair.b, 0, 500);
	end_recv(&pair.b, 0, &room, 1);
	end_send(&pair.a, 0, &w);
	end_expect(&pair.a, SENDS, IBV_WC_RETRY_EXC_ERR);
	end_expect_none(&pair.b, RECVS);
}

/* The two ends count different PSNs, for one was given a wrong number: every request ends, over
 * either path, also one that the initiator would do alone. */
static void absent__peer_expects_other_numbers(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
						  IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct side_options o = {
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1
	};

	for (uint32_t i = 0; i < ELEMENTS(ops) * 2 * 2; i++) {
		uint32_t count = i % 2 == 0 ? 1 : 3;
		struct side_link la, lb;
		struct side_wr w;

		end_open(&pair.a, &o);
		end_open(&pair.b, &o);
		la = lb = link_to(7, RNR_SHORT, TIMEOUT_1MS, 2);
		lb.psn += i / 2 % 2 == 0 ? 1000 : -1000u;
		pair_connect(1, &la, &lb);
		w = end_op(&pair.a, ops[i / 4], 0, 8, &pair.b, 0);
		end_send_many(&pair.a, 0, &w, count, 0);
		assert_int_equal(end_expect(&pair.a, SENDS, IBV_WC_RETRY_EXC_ERR).wr_id, 1);
		if (count > 1)
			end_expect_in_order(&pair.a, SENDS, count - 1, 2, IBV_WC_WR_FLUSH_ERR);
		end_expect_state(&pair.a, 0, IBV_QPS_ERR);
		end_expect_state(&pair.b, 0, IBV_QPS_RTS);
		pair_teardown(NULL);
	}
}

enum { MAX_TESTS = 64 };
static struct CMUnitTest tests[MAX_TESTS];
static char names[MAX_TESTS][80];
static size_t test_count;

static void add(void (*fn)(void **), const char *name, enum absence how, bool named)
{
	snprintf(names[test_count], sizeof(names[0]), "%s%s%s", name, named ? " " : "",
		 named ? absence_names[how] : "");
	tests[test_count] = (struct CMUnitTest){ names[test_count], fn, NULL, pair_teardown,
						 (void *)(uintptr_t)how };
	test_count++;
}

#define ADD(fn) add(fn, #fn, 0, false)
#define ADD_HOW(fn, how) add(fn, #fn, how, true)

int main(void)
{
	static const enum absence leaving[] = { ABSENT_DESTROYED, ABSENT_RESET, ABSENT_ERROR };

	pair_supervise();
	ADD(rnr__gives_up_after_its_retries);
	ADD(rnr__waits_for_ever);
	ADD(rnr__progress_renews_the_count);
	ADD(rnr__write_with_imm);
	ADD(rnr__behind_a_read);
	ADD(rnr__blocks_no_other);
	ADD(rnr__storm);
	for (int how = 0; how < ABSENCES; how++)
		ADD_HOW(absent__retries_are_exhausted, (enum absence)how);
	ADD(absent__comes_late);
	for (size_t i = 0; i < ELEMENTS(leaving); i++) {
		ADD_HOW(absent__goes_meanwhile, leaving[i]);
		ADD_HOW(absent__goes_after_the_last_message, leaving[i]);
	}
	ADD(absent__no_timeout_waits);
	ADD(absent__peer_expects_other_numbers);
	/* a wire does not say which queue pair of its host sends */
	if (!side_on_wire())
		ADD(absent__wrong_peer);
	return _cmocka_run_group_tests("retry", tests, test_count, pair_group_setup,
				       pair_group_teardown);
}
