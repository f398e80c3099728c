/* cq_test.c: the completion queue's order, capacity, arming contract, overflow, and exact
 * accounting under threads. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "queue/cq.h"

enum {
	MANY = 50000,
	PRODUCERS = 2,
	CONSUMERS = 2,
	BATCH = 7,
	RING = 64,
	WAIT_TURNS = 20000,
	WAIT_US = 500,
	NARROW_US = 20000
};

/* A CQ on a channel. */
struct test_cq {
	struct cq cq;
	struct channel *ch;
	int overflows;
};

static void test_overflow(struct cq *cq)
{
	struct test_cq *x = container_of(cq, struct test_cq, cq);

	assert_int_equal(cq_peek(cq, 1), 1); /* takes the lock: it must not be held here */
	assert_int_equal(cq_arm(cq, CQ_NEXT_COMP), 0);
	x->overflows++;
}

static void test_setup(struct test_cq *x, u32 cqe)
{
	int err = 0;

	memset(x, 0, sizeof(*x));
	assert_int_equal(cq_init(&x->cq, cqe), 0);
	x->ch = channel_create(&err);
	assert_non_null(x->ch);
	assert_int_equal(cq_sink_to_channel(&x->cq, x->ch, x), 0);
	x->cq.overflow = test_overflow;
}

/* Moves the running numbers of an empty CQ, so that they and the ring wrap around in the test. */
/* nobody else has it yet */
static void test_begin_at(struct test_cq *x, u32 index) NO_THREAD_SAFETY
{
	x->cq.tail = x->cq.head = x->cq.tail_seen = index;
}

static void test_teardown(struct test_cq *x)
{
	cq_fini(&x->cq);
	assert_int_equal(channel_destroy(x->ch), 0);
}

/* How many events came since the last call; acknowledges them. */
static int test_events(struct test_cq *x)
{
	void *cookie;
	int n = 0;

	while (channel_next(x->ch, &cookie) == 0) {
		assert_ptr_equal(cookie, x);
		channel_ack(&x->cq.source, 1);
		n++;
	}
	return n;
}

/* A driver's QP with one work queue. */
struct test_qp {
	u32 first;
	struct cq_source source;
};

#define TEST_QP                                                                                    \
	{                                                                                          \
		.source.back = offsetof(struct test_qp, source)                                    \
	}

static bool test_push_from(struct cq *cq, u64 wr_id, struct test_qp *qp, bool solicited,
			   enum ibv_wc_status status)
{
	struct cqe e = { .wc = { .wr_id = wr_id, .status = status },
			 .source = qp == NULL ? NULL : &qp->source };

	return cq_push(cq, &e, solicited);
}

static bool test_push(struct test_cq *x, u64 wr_id)
{
	return test_push_from(&x->cq, wr_id, NULL, false, IBV_WC_SUCCESS);
}

static void test_expect(struct test_cq *x, int count, const u64 *wr_ids)
{
	struct ibv_wc wc[64];

	assert_int_equal(cq_pop(&x->cq, 64, wc), count);
	for (int i = 0; i < count; i++)
		assert_int_equal(wc[i].wr_id, wr_ids[i]);
}

/* ---- ring ----------------------------------------------------------------------------------- */

static void cq_init__rounds_up_and_refuses_the_absurd(void **state)
{
	static const u32 wanted[] = { 0, 1, 2, 3, 1000, 4096, 4097 },
			 given[] = { 1, 1, 2, 4, 1024, 4096, 8192 };
	struct cq cq;

	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		assert_int_equal(cq_init(&cq, wanted[i]), 0);
		assert_int_equal(cq.capacity, given[i]);
		cq_fini(&cq);
	}
	assert_int_equal(cq_init(&cq, UINT32_MAX), -ENOMEM);
	cq_fini(&cq);
	assert_int_equal(sizeof(struct cqe), CACHE_LINE);
}

static void cq_pop__hands_out_in_order_across_the_ends_of_the_ring(void **state)
{
	struct test_cq x;
	struct ibv_wc wc[3];
	u64 next = 0;

	test_setup(&x, 4);
	test_begin_at(&x, UINT32_MAX - 5); /* the running numbers wrap around as well */
	for (u64 i = 0; i < 30; i += 3) {
		for (u64 k = 0; k < 3; k++)
			assert_true(test_push(&x, i + k));
		assert_int_equal(cq_pop(&x.cq, 2, wc), 2);
		assert_int_equal(wc[0].wr_id, next++);
		assert_int_equal(wc[1].wr_id, next++);
		assert_int_equal(cq_pop(&x.cq, 3, wc), 1);
		assert_int_equal(wc[0].wr_id, next++);
	}
	assert_int_equal(cq_pop(&x.cq, 3, wc), 0);
	assert_int_equal(cq_pop(&x.cq, 0, wc), 0);
	assert_int_equal(cq_pop(&x.cq, -1, wc), 0);
	test_teardown(&x);
}

static void cq_pop_whole__gives_every_field_and_a_time(void **state)
{
	struct test_qp qp = TEST_QP;
	struct test_cq x;
	struct cqe e = { .wc = { .wr_id = 1,
				 .opcode = IBV_WC_RECV,
				 .byte_len = 5,
				 .imm_data = 6,
				 .qp_num = 7 },
			 .source = &qp.source };
	struct cqe out[2];

	test_setup(&x, 4);
	assert_true(cq_push(&x.cq, &e, false));
	cq_keep_timestamps(&x.cq);
	assert_true(cq_push(&x.cq, &e, false));
	assert_int_equal(cq_peek(&x.cq, 10), 2);
	assert_int_equal(cq_peek(&x.cq, 1), 1);
	assert_int_equal(cq_peek(&x.cq, 0), 0);
	assert_int_equal(cq_pop_whole(&x.cq, 2, out, NULL), 2);
	assert_memory_equal(&out[0].wc, &e.wc, sizeof(e.wc));
	assert_ptr_equal(cq_source_qp(out[0].source), &qp);
	assert_int_equal(out[0].timestamp_ns, 0);
	assert_true(out[1].timestamp_ns > 0);
	assert_int_equal(cq_peek(&x.cq, 10), 0);
	test_teardown(&x);
}

static void cq_push__overflows_once_and_for_good(void **state)
{
	struct test_cq x;

	test_setup(&x, 2);
	assert_true(test_push(&x, 1));
	assert_true(test_push(&x, 2));
	assert_int_equal(x.overflows, 0);
	assert_false(test_push(&x, 3));
	assert_int_equal(x.overflows, 1);
	assert_false(test_push(&x, 4));
	test_expect(&x, 2, (u64[]){ 1, 2 });
	assert_false(test_push(&x, 5));
	assert_int_equal(x.overflows, 1);
	test_expect(&x, 0, NULL);
	test_teardown(&x);
}

/* Is a completion handed over to this thread, which waits for one? */
static bool test_hand(struct test_cq *x)
{
	struct ibv_wc wc, *place;

	cq_expect(&x->cq, 1, &wc);
	place = cq_hand(&x->cq);
	assert_true(place == NULL || place == &wc);
	assert_int_equal(cq_expected(1), place != NULL);
	return place != NULL;
}

static void cq_hand__gives_as_many_places_as_are_expected(void **state)
{
	struct test_cq x, other;
	struct ibv_wc wc[2];

	test_setup(&x, 4);
	test_setup(&other, 4);
	assert_null(cq_hand(&x.cq));
	cq_expect(&x.cq, 2, wc);
	assert_null(cq_hand(&other.cq));
	assert_ptr_equal(cq_hand(&x.cq), &wc[0]);
	assert_ptr_equal(cq_hand(&x.cq), &wc[1]);
	assert_null(cq_hand(&x.cq));
	assert_int_equal(cq_expected(2), 2);
	assert_null(cq_hand(&x.cq));
	for (int n = 0; n >= -1; n--) {
		cq_expect(&x.cq, n, wc);
		assert_null(cq_hand(&x.cq));
		assert_int_equal(cq_expected(n), 0);
	}
	test_teardown(&other);
	test_teardown(&x);
}

static void cq_hand__overtakes_nothing(void **state)
{
	struct test_cq x;

	test_setup(&x, 4);
	assert_true(test_push(&x, 1));
	assert_false(test_hand(&x));
	test_expect(&x, 1, (u64[]){ 1 });
	assert_true(test_hand(&x));
	test_teardown(&x);
}

/* Whoever waits for an event hears of the completion: it goes through the ring. */
static void cq_hand__passes_nobody_who_minds(void **state)
{
	struct test_cq x;

	test_setup(&x, 2);
	for (u32 kind = CQ_SOLICITED; kind <= CQ_NEXT_COMP; kind++) {
		assert_int_equal(cq_arm(&x.cq, kind), 0);
		assert_false(test_hand(&x));
	}
	assert_true(test_push(&x, 1));
	assert_int_equal(test_events(&x), 1);
	test_expect(&x, 1, (u64[]){ 1 });
	assert_true(test_hand(&x));
	assert_int_equal(cq_arm_ncomp(&x.cq, 2), 0);
	assert_false(test_hand(&x));
	assert_int_equal(cq_arm_ncomp(&x.cq, 0), 0);
	assert_true(test_hand(&x));
	/* in error for good */
	while (test_push(&x, 2))
		continue;
	test_expect(&x, 2, (u64[]){ 2, 2 });
	assert_false(test_hand(&x));
	test_teardown(&x);
}

static void cq_init__of_a_huge_ring_costs_what_is_used(void **state)
{
	enum { HUGE = 1 << 22, PAGE = 4096 };
	static unsigned char resident[(size_t)HUGE * sizeof(struct cqe) / PAGE];
	struct test_cq x;
	size_t pages = 0;

	test_setup(&x, HUGE);
	assert_int_equal(x.cq.capacity, HUGE);
	assert_true(test_push(&x, 1));
	test_expect(&x, 1, (u64[]){ 1 });
	assert_int_equal(mincore(x.cq.ring, (size_t)HUGE * sizeof(struct cqe), resident), 0);
	for (size_t i = 0; i < sizeof(resident); i++)
		pages += resident[i] & 1;
	assert_true(pages >= 1 && pages <= 512); /* one page, or a huge one */
	test_teardown(&x);
}

static void cq_resize__keeps_what_waits(void **state)
{
	struct test_cq x;
	u64 want[10];

	test_setup(&x, 8);
	test_begin_at(&x, 5);
	for (u64 i = 0; i < 6; i++)
		assert_true(test_push(&x, want[i] = i));
	assert_int_equal(cq_resize(&x.cq, 4), -EINVAL);
	assert_int_equal(x.cq.capacity, 8);
	assert_int_equal(cq_resize(&x.cq, UINT32_MAX), -ENOMEM);
	assert_int_equal(cq_resize(&x.cq, 10000), 0);
	assert_int_equal(x.cq.capacity, 16384);
	for (u64 i = 6; i < 10; i++)
		assert_true(test_push(&x, want[i] = i));
	assert_int_equal(cq_resize(&x.cq, 10), 0);
	assert_int_equal(x.cq.capacity, 16);
	test_expect(&x, 10, want);
	for (u64 i = 0; i < 16; i++)
		assert_true(test_push(&x, i));
	assert_false(test_push(&x, 16));
	test_teardown(&x);
}

static void cq_forget__drops_one_qp_and_keeps_order(void **state)
{
	struct test_cq x;
	struct test_qp a = TEST_QP, b = TEST_QP;

	test_setup(&x, 8);
	test_begin_at(&x, 6);
	for (u64 i = 0; i < 8; i++)
		assert_true(test_push_from(&x.cq, i, i % 3 ? &a : &b, false, IBV_WC_SUCCESS));
	cq_forget(&x.cq, &a);
	assert_int_equal(cq_peek(&x.cq, 10), 3);
	for (u64 i = 10; i < 15; i++)
		assert_true(test_push(&x, i));
	test_expect(&x, 8, (u64[]){ 0, 3, 6, 10, 11, 12, 13, 14 });
	cq_forget(&x.cq, &a);
	assert_int_equal(cq_peek(&x.cq, 10), 0);
	test_teardown(&x);
}

static const void *fetched[8];
static u32 fetched_count;

static void test_fetch(const void *qp)
{
	fetched[fetched_count++] = qp;
}

static void cq_pop__has_what_several_queue_pairs_need_fetched(void **state)
{
	struct test_cq x;
	struct ibv_wc wc[4];
	struct test_qp a = TEST_QP, b = TEST_QP;

	test_setup(&x, 4);
	x.cq.fetch = test_fetch;
	for (u64 i = 0; i < 4; i++)
		assert_true(test_push_from(&x.cq, i, i % 2 ? &a : &b, false, IBV_WC_SUCCESS));
	assert_int_equal(cq_pop(&x.cq, 1, wc), 1);
	assert_int_equal(fetched_count, 0);
	assert_int_equal(cq_pop(&x.cq, 2, wc), 2);
	assert_int_equal(fetched_count, 2);
	assert_ptr_equal(fetched[0], &a);
	assert_ptr_equal(fetched[1], &b);
	assert_int_equal(cq_pop(&x.cq, 4, wc), 1);
	assert_int_equal(fetched_count, 2);
	test_teardown(&x);
}

/* ---- arming --------------------------------------------------------------------------------- */

static void cq_arm__wants_exactly_one_kind(void **state)
{
	struct test_cq x;

	test_setup(&x, 4);
	assert_int_equal(cq_arm(&x.cq, 0), -EINVAL);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED | CQ_NEXT_COMP), -EINVAL);
	assert_int_equal(cq_arm(&x.cq, CQ_REPORT_MISSED), -EINVAL);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP | 8), -EINVAL);
	assert_true(test_push(&x, 1));
	assert_int_equal(test_events(&x), 0); /* none of them has armed it */
	test_teardown(&x);
}

static void cq_arm__fires_once_for_what_comes_after_it(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	assert_true(test_push(&x, 1));
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_int_equal(test_events(&x), 0); /* strict: not for what was there */
	assert_true(test_push(&x, 2));
	assert_true(test_push(&x, 3));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_true(test_push(&x, 4));
	assert_true(test_push(&x, 5));
	assert_int_equal(test_events(&x), 1); /* arms do not add up */
	test_teardown(&x);
}

static void cq_arm__solicited_fires_for_solicited_or_error(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_true(test_push(&x, 1));
	assert_int_equal(test_events(&x), 0);
	assert_true(test_push_from(&x.cq, 2, NULL, true, IBV_WC_SUCCESS));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_true(test_push(&x, 3));
	assert_int_equal(test_events(&x), 0);
	assert_true(test_push_from(&x.cq, 4, NULL, false, IBV_WC_WR_FLUSH_ERR));
	assert_int_equal(test_events(&x), 1);
	test_teardown(&x);
}

static void cq_arm__solicited_never_weakens_next_comp(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_true(test_push(&x, 1));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0); /* but it is strengthened */
	assert_true(test_push(&x, 2));
	assert_int_equal(test_events(&x), 1);
	test_teardown(&x);
}

static void cq_arm__reports_what_it_missed_and_arms_all_the_same(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP | CQ_REPORT_MISSED), 0);
	assert_true(test_push(&x, 1));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED | CQ_REPORT_MISSED), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP | CQ_REPORT_MISSED), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0); /* not asked, not told */
	assert_true(test_push(&x, 2));
	assert_int_equal(test_events(&x), 1);
	test_expect(&x, 2, (u64[]){ 1, 2 });
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP | CQ_REPORT_MISSED), 0);
	test_teardown(&x);
}

static void cq_arm__eager_fires_for_what_waits(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	x.cq.eager = true;
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_int_equal(test_events(&x), 0);
	assert_true(test_push(&x, 1));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 0); /* nothing solicited waits */
	assert_true(test_push_from(&x.cq, 2, NULL, true, IBV_WC_SUCCESS));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 1);
	test_expect(&x, 2, (u64[]){ 1, 2 });
	assert_true(test_push(&x, 3));
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 0); /* the solicited one was polled */
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP | CQ_REPORT_MISSED), 1);
	assert_int_equal(test_events(&x), 1);
	test_teardown(&x);
}

static void cq_forget__takes_solicited_ones_out_of_account(void **state)
{
	struct test_qp qp = TEST_QP;
	struct test_cq x;

	test_setup(&x, 8);
	x.cq.eager = true;
	assert_true(test_push_from(&x.cq, 1, &qp, true, IBV_WC_SUCCESS));
	cq_forget(&x.cq, &qp);
	assert_true(test_push(&x, 2));
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 0);
	test_expect(&x, 1, (u64[]){ 2 });
	test_teardown(&x);
}

/* What stays is solicited or not as it was, whatever is dropped before or behind it. */
static void cq_forget__keeps_who_is_solicited(void **state)
{
	struct test_qp qp = TEST_QP;
	struct test_cq x;

	test_setup(&x, 8);
	x.cq.eager = true;
	assert_true(test_push(&x, 1));
	assert_true(test_push_from(&x.cq, 2, &qp, true, IBV_WC_SUCCESS));
	cq_forget(&x.cq, &qp);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 0);
	assert_true(test_push_from(&x.cq, 3, NULL, false, IBV_WC_WR_FLUSH_ERR));
	assert_int_equal(test_events(&x), 1);
	assert_true(test_push_from(&x.cq, 4, &qp, true, IBV_WC_SUCCESS));
	assert_true(test_push(&x, 5));
	cq_forget(&x.cq, &qp);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 1); /* 3 still waits */
	test_expect(&x, 3, (u64[]){ 1, 3, 5 });
	test_teardown(&x);
}

/* Those of other queue pairs stay in account, wherever the forgotten ones lay. */
static void cq_forget__keeps_solicited_ones_of_others(void **state)
{
	struct test_qp qp = TEST_QP;
	struct test_cq x;

	test_setup(&x, 8);
	x.cq.eager = true;
	assert_true(test_push_from(&x.cq, 1, &qp, false, IBV_WC_SUCCESS));
	assert_true(test_push_from(&x.cq, 2, NULL, true, IBV_WC_SUCCESS));
	assert_true(test_push_from(&x.cq, 3, &qp, false, IBV_WC_SUCCESS));
	cq_forget(&x.cq, &qp);
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(test_events(&x), 1);
	test_expect(&x, 1, (u64[]){ 2 });
	test_teardown(&x);
}

/* A count beyond what fits after a resize is met when the queue is full. */
static void cq_arm_ncomp__fires_when_a_smaller_queue_is_full(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	assert_int_equal(cq_arm_ncomp(&x.cq, 8), 0);
	assert_true(test_push(&x, 1));
	assert_int_equal(cq_resize(&x.cq, 2), 0);
	assert_int_equal(test_events(&x), 0);
	assert_true(test_push(&x, 2));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_resize(&x.cq, 8), 0);
	/* met at once by what waits */
	assert_int_equal(cq_arm_ncomp(&x.cq, 8), 0);
	assert_int_equal(cq_resize(&x.cq, 2), 0);
	assert_int_equal(test_events(&x), 1);
	test_teardown(&x);
}

static void cq_arm_ncomp__fires_when_so_many_wait(void **state)
{
	struct test_cq x;

	test_setup(&x, 8);
	assert_int_equal(cq_arm_ncomp(&x.cq, 9), -EINVAL);
	assert_int_equal(cq_arm_ncomp(&x.cq, 3), 0);
	assert_true(test_push(&x, 1));
	assert_true(test_push(&x, 2));
	assert_int_equal(test_events(&x), 0);
	assert_true(test_push(&x, 3));
	assert_true(test_push(&x, 4));
	assert_int_equal(test_events(&x), 1);
	assert_int_equal(cq_arm_ncomp(&x.cq, 4), 0);
	assert_int_equal(test_events(&x), 1); /* as many wait already */
	assert_int_equal(cq_arm_ncomp(&x.cq, 5), 0);
	assert_int_equal(cq_arm_ncomp(&x.cq, 0), 0);
	assert_true(test_push(&x, 5));
	assert_int_equal(test_events(&x), 0);
	test_teardown(&x);
}

/* The driver's count: of CQs that owe an event. */
static void cq_arm__is_counted_until_its_event(void **state)
{
	struct cqe e = { .wc.status = IBV_WC_SUCCESS };
	struct test_cq x;
	u32 owing = 5;

	test_setup(&x, 2);
	x.cq.owing = &owing;
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_int_equal(owing, 6);
	assert_int_equal(cq_arm_ncomp(&x.cq, 2), 0);
	assert_true(cq_push(&x.cq, &e, false));
	assert_int_equal(owing, 6); /* the second kind is owed still */
	assert_true(cq_push(&x.cq, &e, false));
	assert_int_equal(owing, 5);
	x.cq.eager = true;
	assert_int_equal(cq_arm(&x.cq, CQ_SOLICITED), 0);
	assert_int_equal(owing, 6);
	assert_false(cq_push(&x.cq, &e, false));
	assert_int_equal(owing, 5); /* it has overflowed: no event comes any more */
	assert_int_equal(x.overflows, 1);
	test_events(&x);
	test_teardown(&x);

	test_setup(&x, 2);
	x.cq.owing = &owing;
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	test_teardown(&x);
	assert_int_equal(owing, 5);
}

static void cq_fini__withdraws_events_that_nobody_took(void **state)
{
	struct test_cq x;
	struct pollfd p;

	test_setup(&x, 8);
	assert_int_equal(cq_arm(&x.cq, CQ_NEXT_COMP), 0);
	assert_true(test_push(&x, 1));
	p = (struct pollfd){ .fd = channel_fd(x.ch), .events = POLLIN };
	assert_int_equal(poll(&p, 1, 0), 1);
	cq_fini(&x.cq);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(channel_destroy(x.ch), 0);
}

/* ---- threads -------------------------------------------------------------------------------- */

struct test_traffic {
	struct test_cq *x;
	u32 missing;               /* completions that no consumer has taken */
	u8 seen[PRODUCERS * MANY]; /* how often each came out */
	u32 disorder;
};

struct test_worker {
	struct test_traffic *t;
	u64 first;
	pthread_t thread;
};

static void *test_produce_thread(void *arg)
{
	struct test_worker *w = arg;
	struct cq *cq = &w->t->x->cq;

	for (u64 i = 0; i < MANY; i++) {
		/* Each producer adds at most one after it has looked: never full. */
		while (cq_peek(cq, INT32_MAX) > RING - 2 * PRODUCERS)
			sched_yield();
		if (!test_push_from(cq, w->first + i, NULL, false, IBV_WC_SUCCESS))
			break;
	}
	return NULL;
}

static void test_note(struct test_traffic *t, const struct ibv_wc *wc, u64 *last)
{
	u64 producer = wc->wr_id / MANY;

	__atomic_fetch_add(&t->seen[wc->wr_id], 1, __ATOMIC_RELAXED);
	if (last[producer] > wc->wr_id)
		__atomic_fetch_add(&t->disorder, 1, __ATOMIC_RELAXED);
	last[producer] = wc->wr_id;
	__atomic_fetch_sub(&t->missing, 1, __ATOMIC_RELAXED);
}

static void *test_consume_thread(void *arg)
{
	struct test_worker *w = arg;
	u64 last[PRODUCERS] = { 0 };
	struct ibv_wc wc[BATCH];
	int n;

	while (__atomic_load_n(&w->t->missing, __ATOMIC_RELAXED) > 0) {
		n = cq_pop(&w->t->x->cq, BATCH, wc);
		if (n == 0)
			sched_yield();
		for (int i = 0; i < n; i++)
			test_note(w->t, &wc[i], last);
	}
	return NULL;
}

/* Meanwhile the ring is resized and searched for a QP that has nothing in it. */
static void test_disturb(struct test_traffic *t)
{
	for (u32 i = 0; __atomic_load_n(&t->missing, __ATOMIC_RELAXED) > 0; i++) {
		int err = cq_resize(&t->x->cq, (u32)RING << (i % 2));

		assert_true(err == 0 || err == -EINVAL);
		cq_forget(&t->x->cq, t);
		usleep(WAIT_US);
	}
}

/* ---- a queue as small as its work queue ---- */

static struct {
	struct test_cq x;
	bool is_freed, has_room;
} narrow;

/* The place is free; another thread may post to it, and complete that, before the poll returns. */
static void test_narrow_freed(struct cq_source *source)
{
	__atomic_store_n(&narrow.is_freed, true, __ATOMIC_RELEASE);
	usleep(NARROW_US);
}

static void *test_narrow_poster(void *arg)
{
	while (!__atomic_load_n(&narrow.is_freed, __ATOMIC_ACQUIRE))
		sched_yield();
	narrow.has_room = test_push(&narrow.x, 2);
	return NULL;
}

static void cq_push__has_room_for_what_a_poll_has_freed(void **state)
{
	struct cqe e = { .wc.wr_id = 1 };
	struct cq_source source;
	struct ibv_wc wc;
	pthread_t poster;

	cq_source_init(&source, NULL, CQ_APART | CQ_SHARED);
	test_setup(&narrow.x, 1);
	narrow.x.cq.credit = test_narrow_freed;
	e.source = &source;
	assert_true(cq_push(&narrow.x.cq, &e, false));
	pthread_create(&poster, NULL, test_narrow_poster, NULL);
	assert_int_equal(cq_pop(&narrow.x.cq, 1, &wc), 1);
	pthread_join(poster, NULL);
	assert_true(narrow.has_room);
	test_expect(&narrow.x, 1, (u64[]){ 2 });
	test_teardown(&narrow.x);
}

static void cq_push__and_pop_lose_and_double_nothing(void **state)
{
	static struct test_traffic t;
	struct test_worker w[PRODUCERS + CONSUMERS];
	struct test_cq x;

	test_setup(&x, RING);
	memset(&t, 0, sizeof(t));
	t.x = &x;
	t.missing = PRODUCERS * MANY;
	for (u64 i = 0; i < PRODUCERS + CONSUMERS; i++) {
		w[i] = (struct test_worker){ .t = &t, .first = i * MANY };
		pthread_create(&w[i].thread, NULL,
			       i < PRODUCERS ? test_produce_thread : test_consume_thread, &w[i]);
	}
	test_disturb(&t);
	for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
		pthread_join(w[i].thread, NULL);
	assert_int_equal(x.overflows, 0);
	assert_int_equal(t.disorder, 0);
	for (size_t i = 0; i < sizeof(t.seen); i++)
		assert_int_equal(t.seen[i], 1);
	test_teardown(&x);
}

/* A consumer that sleeps between events, by the book: drain, arm, drain again only if told so,
 * wait. A lost wake-up hangs it. */
static void *test_wait_thread(void *arg)
{
	struct test_worker *w = arg;
	struct test_cq *x = w->t->x;
	u64 last[PRODUCERS] = { 0 };
	struct pollfd p = { .fd = channel_fd(x->ch), .events = POLLIN };
	struct ibv_wc wc;

	while (__atomic_load_n(&w->t->missing, __ATOMIC_RELAXED) > 0) {
		while (cq_pop(&x->cq, 1, &wc) == 1)
			test_note(w->t, &wc, last);
		if (__atomic_load_n(&w->t->missing, __ATOMIC_RELAXED) == 0 ||
		    cq_arm(&x->cq, CQ_NEXT_COMP | CQ_REPORT_MISSED) > 0)
			continue;
		if (poll(&p, 1, 10000) != 1)
			return x; /* no event came */
		test_events(x);
	}
	return NULL;
}

static void cq_arm__loses_no_wake_up(void **state)
{
	static struct test_traffic t;
	struct test_worker w[PRODUCERS + 1];
	struct test_cq x;
	void *failure;

	test_setup(&x, RING);
	memset(&t, 0, sizeof(t));
	t.x = &x;
	t.missing = PRODUCERS * MANY;
	for (u64 i = 0; i <= PRODUCERS; i++) {
		w[i] = (struct test_worker){ .t = &t, .first = i * MANY };
		pthread_create(&w[i].thread, NULL,
			       i < PRODUCERS ? test_produce_thread : test_wait_thread, &w[i]);
	}
	pthread_join(w[PRODUCERS].thread, &failure);
	assert_null(failure);
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(w[i].thread, NULL);
	assert_int_equal(t.disorder, 0);
	test_teardown(&x);
}

/* A CQ whose handler drains and arms, as a kernel consumer does. */
struct test_handled {
	struct cq cq;
	u32 taken, calls, inside, overlaps, wrong;
};

static void test_handler(struct cq *cq)
{
	struct test_handled *h = container_of(cq, struct test_handled, cq);
	struct ibv_wc wc;

	if (__atomic_fetch_add(&h->inside, 1, __ATOMIC_ACQ_REL) != 0)
		__atomic_fetch_add(&h->overlaps, 1, __ATOMIC_RELAXED);
	if (!vector_in_handler() || event_driver_depth != 0)
		h->wrong++;
	do {
		while (cq_pop(cq, 1, &wc) == 1)
			__atomic_fetch_add(&h->taken, 1, __ATOMIC_RELEASE);
	} while (cq_arm(cq, CQ_NEXT_COMP | CQ_REPORT_MISSED) > 0);
	h->calls++;
	__atomic_fetch_sub(&h->inside, 1, __ATOMIC_ACQ_REL);
}

static void cq_push__runs_the_handler_on_the_vector_only(void **state)
{
	struct test_handled h;

	memset(&h, 0, sizeof(h));
	assert_int_equal(cq_init(&h.cq, 2 * MANY), 0);
	cq_sink_to_handler(&h.cq, vector_get(0), test_handler);
	assert_int_equal(cq_arm(&h.cq, CQ_NEXT_COMP), 0);
	event_driver_depth++; /* as inside post_send */
	for (u64 i = 0; i < MANY; i++)
		assert_true(test_push_from(&h.cq, i, NULL, false, IBV_WC_SUCCESS));
	event_driver_depth--;
	for (int i = 0; i < WAIT_TURNS && __atomic_load_n(&h.taken, __ATOMIC_ACQUIRE) < MANY; i++)
		usleep(WAIT_US);
	cq_fini(&h.cq);
	assert_int_equal(h.taken, MANY);
	assert_int_equal(h.wrong, 0);
	assert_int_equal(h.overlaps, 0);
	assert_true(h.calls >= 1 && h.calls <= MANY);
}

/* A handler that arms while its CQ ends. */
struct test_late_arm {
	struct cq cq;
	int entered, armed;
};

static void test_late_handler(struct cq *cq)
{
	struct test_late_arm *h = container_of(cq, struct test_late_arm, cq);

	__atomic_store_n(&h->entered, 1, __ATOMIC_RELEASE);
	usleep(50 * WAIT_US);
	h->armed = cq_arm(cq, CQ_NEXT_COMP) == 0;
}

static void cq_fini__counts_what_its_handler_armed(void **state)
{
	struct test_late_arm h = { .entered = 0 };
	u32 owing = 5;

	assert_int_equal(cq_init(&h.cq, 4), 0);
	h.cq.owing = &owing;
	cq_sink_to_handler(&h.cq, vector_get(0), test_late_handler);
	assert_int_equal(cq_arm(&h.cq, CQ_NEXT_COMP), 0);
	assert_true(test_push_from(&h.cq, 1, NULL, false, IBV_WC_SUCCESS));
	while (!__atomic_load_n(&h.entered, __ATOMIC_ACQUIRE))
		usleep(WAIT_US);
	cq_fini(&h.cq);
	assert_true(h.armed);
	assert_int_equal(owing, 5);
}

static void cq_push__to_nobody_is_fine(void **state)
{
	struct cq cq;
	struct ibv_wc wc;

	assert_int_equal(cq_init(&cq, 4), 0);
	assert_int_equal(cq_arm(&cq, CQ_NEXT_COMP), 0);
	assert_true(test_push_from(&cq, 1, NULL, false, IBV_WC_SUCCESS));
	assert_int_equal(cq_pop(&cq, 1, &wc), 1);
	cq_fini(&cq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cq_init__rounds_up_and_refuses_the_absurd),
		cmocka_unit_test(cq_pop__hands_out_in_order_across_the_ends_of_the_ring),
		cmocka_unit_test(cq_pop_whole__gives_every_field_and_a_time),
		cmocka_unit_test(cq_push__overflows_once_and_for_good),
		cmocka_unit_test(cq_hand__gives_as_many_places_as_are_expected),
		cmocka_unit_test(cq_hand__overtakes_nothing),
		cmocka_unit_test(cq_hand__passes_nobody_who_minds),
		cmocka_unit_test(cq_init__of_a_huge_ring_costs_what_is_used),
		cmocka_unit_test(cq_resize__keeps_what_waits),
		cmocka_unit_test(cq_forget__drops_one_qp_and_keeps_order),
		cmocka_unit_test(cq_pop__has_what_several_queue_pairs_need_fetched),
		cmocka_unit_test(cq_arm__wants_exactly_one_kind),
		cmocka_unit_test(cq_arm__fires_once_for_what_comes_after_it),
		cmocka_unit_test(cq_arm__solicited_fires_for_solicited_or_error),
		cmocka_unit_test(cq_arm__solicited_never_weakens_next_comp),
		cmocka_unit_test(cq_arm__reports_what_it_missed_and_arms_all_the_same),
		cmocka_unit_test(cq_arm__eager_fires_for_what_waits),
		cmocka_unit_test(cq_forget__takes_solicited_ones_out_of_account),
		cmocka_unit_test(cq_forget__keeps_solicited_ones_of_others),
		cmocka_unit_test(cq_arm__is_counted_until_its_event),
		cmocka_unit_test(cq_arm_ncomp__fires_when_a_smaller_queue_is_full),
		cmocka_unit_test(cq_forget__keeps_who_is_solicited),
		cmocka_unit_test(cq_arm_ncomp__fires_when_so_many_wait),
		cmocka_unit_test(cq_fini__withdraws_events_that_nobody_took),
		cmocka_unit_test(cq_push__has_room_for_what_a_poll_has_freed),
		cmocka_unit_test(cq_push__and_pop_lose_and_double_nothing),
		cmocka_unit_test(cq_arm__loses_no_wake_up),
		cmocka_unit_test(cq_push__runs_the_handler_on_the_vector_only),
		cmocka_unit_test(cq_fini__counts_what_its_handler_armed),
		cmocka_unit_test(cq_push__to_nobody_is_fine),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
