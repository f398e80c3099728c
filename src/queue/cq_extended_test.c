/* cq_extended_test.c: whole entries, their side data, and CQs that ignore an overrun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/clock.h"
#include "queue/cq.h"

enum { ENTRIES = 4 };

static u64 now_ns;
static int overflows;

static u64 clock_of_the_test(void)
{
	return now_ns;
}

static void overflow_count(struct cq *cq)
{
	overflows++;
}

static int setup(void **state)
{
	now_ns = 100;
	overflows = 0;
	clock_set_source(clock_of_the_test);
	return 0;
}

static int teardown(void **state)
{
	clock_set_source(NULL);
	return 0;
}

static void wide_init(struct cq *cq)
{
	assert_int_equal(cq_init(cq, ENTRIES), 0);
	assert_int_equal(cq_keep_sides(cq), 0);
	cq->overflow = overflow_count;
}

/* One completion per nanosecond; a tag other than 0 is a match. */
static void add(struct cq *cq, u64 wr_id, struct cq_source *source, u64 tag)
	NO_THREAD_SAFETY /* asserts */
{
	struct cqe *e = cq_reserve(cq);

	assert_non_null(e);
	cqe_set(e, wr_id, IBV_WC_SUCCESS, IBV_WC_RECV, 8, 1, 2,
		source == NULL ? &cq_source_none : source, 0);
	now_ns++;
	if (tag)
		cq_commit_tagged(cq, e, false, tag, (u32)tag + 1);
	else
		cq_commit(cq, e, false);
}

static void expect(struct cq *cq, u64 wr_id, u64 time, u64 tag)
{
	struct cqe e;
	struct cqe_side side;

	assert_int_equal(cq_pop_whole(cq, 1, &e, &side), 1);
	assert_int_equal(e.wc.wr_id, wr_id);
	assert_int_equal(e.timestamp_ns, time);
	assert_int_equal(side.wall_ns, time);
	assert_int_equal(side.tag, tag);
	assert_int_equal(side.priv, tag ? tag + 1 : 0);
}

static void cq_pop_whole__gives_each_entry_its_own_side(void **state)
{
	struct cq cq;

	wide_init(&cq);
	/* three times around the ring, so that each place held a tag before */
	for (u64 i = 0; i < 3 * ENTRIES; i += 2) {
		add(&cq, i, NULL, i % ENTRIES ? 0 : 7 + i);
		add(&cq, i + 1, NULL, i % ENTRIES ? 7 + i : 0);
		expect(&cq, i, 101 + i, i % ENTRIES ? 0 : 7 + i);
		expect(&cq, i + 1, 102 + i, i % ENTRIES ? 7 + i : 0);
	}
	cq_fini(&cq);
}

static void cq_pop_whole__forgets_the_tag_of_an_earlier_entry(void **state)
{
	struct cq cq;

	wide_init(&cq);
	for (u64 i = 0; i < ENTRIES; i++)
		add(&cq, i, NULL, 9);
	for (u64 i = 0; i < ENTRIES; i++)
		expect(&cq, i, 101 + i, 9);
	for (u64 i = 0; i < ENTRIES; i++)
		add(&cq, i, NULL, 0);
	for (u64 i = 0; i < ENTRIES; i++)
		expect(&cq, i, 105 + i, 0);
	cq_fini(&cq);
}

static void cq_pop_whole__of_a_plain_cq_has_no_side(void **state)
{
	struct cqe_side sides[2] = { { 1, 2, 3 }, { 1, 2, 3 } };
	struct cqe out[2];
	struct cq cq;

	assert_int_equal(cq_init(&cq, ENTRIES), 0);
	add(&cq, 1, NULL, 0);
	add(&cq, 2, NULL, 5); /* matched, and nobody asked */
	assert_int_equal(cq_pop_whole(&cq, 2, out, sides), 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(out[i].wc.wr_id, i + 1);
		assert_int_equal(out[i].timestamp_ns, 0);
		assert_int_equal(sides[i].wall_ns | sides[i].tag | sides[i].priv, 0);
	}
	assert_int_equal(cq_pop_whole(&cq, 2, out, sides), 0);
	cq_fini(&cq);
}

static void cq_pop__of_a_wide_cq_shows_the_same_completions(void **state)
{
	struct ibv_wc wc[ENTRIES];
	struct cq cq;

	wide_init(&cq);
	for (u64 i = 0; i < ENTRIES; i++)
		add(&cq, i, NULL, i);
	assert_int_equal(cq_pop(&cq, ENTRIES, wc), ENTRIES);
	for (u64 i = 0; i < ENTRIES; i++)
		assert_int_equal(wc[i].wr_id, i);
	cq_fini(&cq);
}

static void cq_forget__moves_sides_along(void **state)
{
	struct {
		u32 first;
		struct cq_source source;
	} first, second;
	struct cq cq;

	cq_source_init(&first.source, &first, 0);
	cq_source_init(&second.source, &second, 0);
	wide_init(&cq);
	add(&cq, 0, &first.source, 10);
	add(&cq, 1, &second.source, 11);
	add(&cq, 2, &first.source, 12);
	add(&cq, 3, &second.source, 13);
	cq_forget(&cq, &first);
	expect(&cq, 1, 102, 11);
	expect(&cq, 3, 104, 13);
	cq_fini(&cq);
}

static void cq_resize__keeps_sides(void **state)
{
	struct cq cq;

	wide_init(&cq);
	add(&cq, 0, NULL, 10);
	expect(&cq, 0, 101, 10);
	for (u64 i = 1; i <= ENTRIES; i++) /* across the end of the ring */
		add(&cq, i, NULL, 10 + i);
	assert_int_equal(cq_resize(&cq, ENTRIES / 2), -EINVAL);
	assert_int_equal(cq_resize(&cq, 4 * ENTRIES), 0);
	add(&cq, 9, NULL, 0);
	for (u64 i = 1; i <= ENTRIES; i++)
		expect(&cq, i, 101 + i, 10 + i);
	expect(&cq, 9, 102 + ENTRIES, 0);
	cq_fini(&cq);
}

static void cq_keep_timestamps__stamps_without_sides(void **state)
{
	struct cqe_side side;
	struct cqe e;
	struct cq cq;

	assert_int_equal(cq_init(&cq, ENTRIES), 0);
	cq_keep_timestamps(&cq);
	add(&cq, 1, NULL, 5);
	assert_int_equal(cq_pop_whole(&cq, 1, &e, &side), 1);
	assert_int_equal(e.timestamp_ns, 101);
	assert_int_equal(side.wall_ns | side.tag, 0);
	cq_fini(&cq);
}

static void cq_ignore_overrun__loses_in_silence_and_goes_on(void **state)
{
	struct cq cq;

	wide_init(&cq);
	assert_int_equal(cq_ignore_overrun(&cq), 0);
	for (u64 i = 0; i < ENTRIES; i++)
		add(&cq, i, NULL, 0);
	assert_int_equal(cq_arm(&cq, CQ_NEXT_COMP), 0);
	add(&cq, 77, NULL, 0); /* no room, neither plain nor with a tag */
	add(&cq, 78, NULL, 5);
	assert_int_equal(overflows, 0);
	assert_true(cq_would_fire(&cq, false)); /* what is lost uses up no arm */
	assert_int_equal(cq_peek(&cq, 2 * ENTRIES), ENTRIES);
	for (u64 i = 0; i < ENTRIES; i++)
		expect(&cq, i, 101 + i, 0);
	add(&cq, 9, NULL, 0);
	expect(&cq, 9, 103 + ENTRIES, 0);
	cq_fini(&cq);
}

static void cq_ignore_overrun__is_of_that_cq_alone(void **state)
{
	struct cq cq;

	wide_init(&cq);
	for (u64 i = 0; i < ENTRIES; i++)
		add(&cq, i, NULL, 0);
	assert_null(cq_reserve(&cq));
	assert_int_equal(overflows, 1);
	cq_fini(&cq);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(cq_pop_whole__gives_each_entry_its_own_side),
		TEST(cq_pop_whole__forgets_the_tag_of_an_earlier_entry),
		TEST(cq_pop_whole__of_a_plain_cq_has_no_side),
		TEST(cq_pop__of_a_wide_cq_shows_the_same_completions),
		TEST(cq_forget__moves_sides_along),
		TEST(cq_resize__keeps_sides),
		TEST(cq_keep_timestamps__stamps_without_sides),
		TEST(cq_ignore_overrun__loses_in_silence_and_goes_on),
		TEST(cq_ignore_overrun__is_of_that_cq_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
