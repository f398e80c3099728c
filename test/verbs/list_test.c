/* list_test.c: WRITEs posted together, of all kinds that one list may mix: each is done or refused
 * as if it had been posted alone.
 * In: nothing    Out: verdicts    Runs: cmocka    Locks: none
 */
#include <stdlib.h>
#include <unistd.h>

#include "pair.h"

enum { BYTES = 16 * 4096, WORDS = 40, WAS = 3, IS = 4 };

static struct ibv_send_wr list[WORDS];
static struct ibv_sge pieces[WORDS];

/* The first operations go another way, while a map is being made. */
static void list_open(void)
{
	struct side_wr w;

	pair_open(&(struct side_options){
		.type = IBV_QPT_RC, .bytes = BYTES, .mr_access = -1, .qp_access = -1 });
	w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 0, 8, &pair.b, 0);
	for (int i = 0; i < 20; i++) {
		end_send(&pair.a, 0, &w);
		end_expect(&pair.a, SENDS, IBV_WC_SUCCESS);
		usleep(1000);
	}
	end_fill(&pair.a, 0, BYTES, IS);
	end_fill(&pair.b, 0, BYTES, WAS);
}

/* WRITEs of a word each, signalled, that lie one behind the other. */
static void list_fill(int count)
{
	for (int i = 0; i < count; i++) {
		struct side_wr w = end_op(&pair.a, IBV_WR_RDMA_WRITE, 8u * (unsigned)i, 8, &pair.b,
					  8u * (unsigned)i);

		pieces[i] = w.sge[0];
		list[i] = (struct ibv_send_wr){ .wr_id = 100 + (unsigned)i,
						.next = i + 1 < count ? &list[i + 1] : NULL,
						.sg_list = &pieces[i],
						.num_sge = 1,
						.opcode = IBV_WR_RDMA_WRITE,
						.send_flags = IBV_SEND_SIGNALED };
		list[i].wr.rdma.remote_addr = w.remote_addr;
		list[i].wr.rdma.rkey = w.rkey;
	}
}

static void list_post(void)
{
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(side_qp(pair.a.local, 0), list, &bad), 0);
}

/* Of the words from `from` on, are `count` those of the initiator, or none of them? */
static void list_check(unsigned int from, unsigned int count, bool written)
{
	for (unsigned int i = from; i < from + count; i++)
		assert_int_equal(end_word(&pair.b, 8 * i) == end_word(&pair.a, 8 * i), written);
}

/* More than go together, some without a completion, one inline, and one of another kind among
 * them. */
static void list__of_all_kinds(void **state)
{
	struct side_wr room;

	list_open();
	room = end_wr(&pair.b, BYTES / 2, 8);
	end_recv(&pair.b, 0, &room, 1);
	list_fill(WORDS);
	list[3].send_flags = 0;
	list[5].send_flags |= IBV_SEND_FENCE;
	list[20].opcode = IBV_WR_SEND;
	list[21].opcode = IBV_WR_RDMA_WRITE;
	pieces[30].length = 0; /* nothing of it */
	list_post();
	end_expect_in_order(&pair.a, SENDS, 3, 100, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.a, SENDS, WORDS - 4, 104, IBV_WC_SUCCESS);
	end_expect(&pair.b, RECVS, IBV_WC_SUCCESS);
	list_check(0, 20, true);
	list_check(20, 1, false); /* the SEND's */
	list_check(21, 9, true);
	list_check(30, 1, false);
	list_check(31, WORDS - 31, true);
	list_check(WORDS, 64, false);
}

enum mistake { WRONG_KEY, BEFORE, BEHIND, LENGTH, WRONG_LOCAL_KEY };

/* What came before it is done, nothing after it. */
static void list__mistake_in_the_middle(void **state)
{
	enum mistake what = (enum mistake)(uintptr_t)*state;
	enum ibv_wc_status status = what == WRONG_LOCAL_KEY ? IBV_WC_LOC_PROT_ERR :
							      IBV_WC_REM_ACCESS_ERR;
	uint64_t base;

	list_open();
	list_fill(8);
	base = list[0].wr.rdma.remote_addr;
	if (what == WRONG_KEY)
		list[4].wr.rdma.rkey ^= 1;
	else if (what == WRONG_LOCAL_KEY)
		pieces[4].lkey ^= 1;
	else if (what == BEFORE)
		list[4].wr.rdma.remote_addr = base - 4;
	else
		list[4].wr.rdma.remote_addr = base + BYTES - (what == BEHIND ? 4 : 4096);
	if (what == LENGTH)
		pieces[4].length = 4104;
	list_post();
	end_expect_in_order(&pair.a, SENDS, 4, 100, IBV_WC_SUCCESS);
	end_expect_in_order(&pair.a, SENDS, 1, 104, status);
	end_expect_in_order(&pair.a, SENDS, 3, 105, IBV_WC_WR_FLUSH_ERR);
	list_check(0, 4, true);
	list_check(4, 64, false);
	list_check(BYTES / 8 - 512, 512, false);
}

/* Two regions of the target in turn, and one of them ends. */
static void list__keys_in_turn(void **state)
{
	struct side_reply other;

	list_open();
	other = end_register(&pair.b, 0, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			     false);
	for (int turn = 0; turn < 3; turn++) {
		list_fill(WORDS);
		for (int i = 0; i < WORDS; i += 3)
			list[i].wr.rdma.rkey = other.reg.rkey;
		list_post();
		end_expect_in_order(&pair.a, SENDS, WORDS, 100, IBV_WC_SUCCESS);
	}
	list_check(0, WORDS, true);
	end_fill(&pair.b, 0, BYTES, WAS);
	end_deregister(&pair.b, other.reg.mr);
	list_post();
	end_expect_in_order(&pair.a, SENDS, 1, 100, IBV_WC_REM_ACCESS_ERR);
	end_expect_in_order(&pair.a, SENDS, WORDS - 1, 101, IBV_WC_WR_FLUSH_ERR);
	end_check(&pair.b, 0, BYTES, WAS);
}

/* A queue pair that was found to be writable, and is not any more. */
static void list__target_is_reset(void **state)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	list_open();
	list_fill(2);
	list_post();
	end_expect_in_order(&pair.a, SENDS, 2, 100, IBV_WC_SUCCESS);
	end_fill(&pair.b, 0, BYTES, WAS);
	assert_int_equal(end_try_modify(&pair.b, 0, &reset, IBV_QP_STATE), 0);
	list_post();
	end_expect_none(&pair.a, SENDS);
	end_check(&pair.b, 0, BYTES, WAS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(list__of_all_kinds, pair_teardown),
		{ "list__mistake_in_the_middle: key", list__mistake_in_the_middle, NULL,
		  pair_teardown, (void *)(uintptr_t)WRONG_KEY },
		{ "list__mistake_in_the_middle: before", list__mistake_in_the_middle, NULL,
		  pair_teardown, (void *)(uintptr_t)BEFORE },
		{ "list__mistake_in_the_middle: behind", list__mistake_in_the_middle, NULL,
		  pair_teardown, (void *)(uintptr_t)BEHIND },
		{ "list__mistake_in_the_middle: length", list__mistake_in_the_middle, NULL,
		  pair_teardown, (void *)(uintptr_t)LENGTH },
		{ "list__mistake_in_the_middle: local key", list__mistake_in_the_middle, NULL,
		  pair_teardown, (void *)(uintptr_t)WRONG_LOCAL_KEY },
		cmocka_unit_test_teardown(list__keys_in_turn, pair_teardown),
		cmocka_unit_test_teardown(list__target_is_reset, pair_teardown),
	};

	pair_supervise();
	return cmocka_run_group_tests_name("list", tests, pair_group_setup, pair_group_teardown);
}
