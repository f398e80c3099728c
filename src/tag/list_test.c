/* list_test.c: the tag list, case by case and against a plain model. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tag/tag.h"

#define ALL UINT64_MAX

enum { TEST_CAPACITY = 40, TEST_SGE = 2 };

static u32 test_add(struct tag_list *list, u64 tag, u64 mask, u64 wr_id)
{
	u32 handle = UINT32_MAX;

	assert_int_equal(
		tag_list_add(list,
			     &(struct tag_add){ .tag = tag, .mask = mask, .recv_wr_id = wr_id },
			     &handle),
		0);
	return handle;
}

/* The wr_id of who takes the message; 0: nobody. */
static u64 test_message(struct tag_list *list, u64 tag)
{
	struct tag_entry *entry = tag_list_match(list, tag);
	u64 wr_id;

	if (entry == NULL)
		return 0;
	wr_id = entry->recv_wr_id;
	tag_list_release(list, entry);
	return wr_id;
}

static int test_setup(void **state)
{
	static struct tag_list list;

	assert_int_equal(tag_list_init(&list, TEST_CAPACITY, TEST_SGE), 0);
	*state = &list;
	return 0;
}

static int test_teardown(void **state)
{
	tag_list_destroy(*state);
	return 0;
}

static void tag_list_match__first_posted_takes(void **state)
{
	struct tag_list *list = *state;

	test_add(list, 7, ALL, 1);
	test_add(list, 7, ALL, 2);
	test_add(list, 0, 0, 3); /* matches everything */
	test_add(list, 7, ALL, 4);
	assert_int_equal(test_message(list, 8), 3);
	assert_int_equal(test_message(list, 8), 0);
	assert_int_equal(test_message(list, 7), 1);
	assert_int_equal(test_message(list, 7), 2);
	assert_int_equal(test_message(list, 7), 4);
	assert_int_equal(test_message(list, 7), 0);
}

static void tag_list_match__wildcard_posted_first_takes(void **state)
{
	struct tag_list *list = *state;

	test_add(list, 0x500, 0xff00, 1);
	test_add(list, 0x512, ALL, 2);
	test_add(list, 0x2, 0xf, 3);
	assert_int_equal(test_message(list, 0x512), 1);
	assert_int_equal(test_message(list, 0x512), 2);
	assert_int_equal(test_message(list, 0x512), 3);
	assert_int_equal(test_message(list, 0x512), 0);
}

/* message.tag & mask can never be it. */
static void tag_list_match__tag_outside_its_mask_never(void **state)
{
	struct tag_list *list = *state;

	test_add(list, 0x17, 0xf, 1);
	assert_int_equal(test_message(list, 0x17), 0);
	assert_int_equal(test_message(list, 0x7), 0);
}

static void tag_list_add__copies_elements(void **state)
{
	struct tag_list *list = *state;
	struct ibv_sge sge[TEST_SGE] = { { 10, 20, 30 }, { 40, 50, 60 } };
	struct tag_add add = { .tag = 1, .mask = ALL, .sge = sge, .sge_count = TEST_SGE };
	struct tag_entry *first, *second;
	u32 handle;

	assert_int_equal(tag_list_add(list, &add, &handle), 0);
	sge[1].length = 99;
	add.sge_count = 1;
	assert_int_equal(tag_list_add(list, &add, &handle), 0);
	first = tag_list_match(list, 1);
	second = tag_list_match(list, 1);
	assert_int_equal(first->sge_count, 2);
	assert_int_equal(first->sge[1].length, 50);
	assert_int_equal(second->sge_count, 1);
	assert_int_equal(second->sge[0].lkey, 30);
	tag_list_release(list, second);
	tag_list_release(list, first);
}

static void tag_list_add__full(void **state)
{
	struct tag_list *list = *state;
	struct tag_add add = { .tag = 1, .mask = ALL };
	struct tag_entry *taken;
	u32 handle, first;

	first = test_add(list, 1, ALL, 1);
	for (int i = 1; i < TEST_CAPACITY; i++)
		test_add(list, 1, ALL, 1);
	handle = 123;
	assert_int_equal(tag_list_add(list, &add, &handle), -ENOMEM);
	assert_int_equal(handle, 123);
	/* An entry that a message has is still in use. */
	taken = tag_list_match(list, 1);
	assert_int_equal(tag_list_add(list, &add, &handle), -ENOMEM);
	tag_list_release(list, taken);
	handle = test_add(list, 1, ALL, 1);
	assert_int_not_equal(handle, first);
}

static void tag_list_delete__each_place_of_a_group(void **state)
{
	struct tag_list *list = *state;

	for (u32 gone = 0; gone < 3; gone++) {
		u32 handle[3];

		for (u32 i = 0; i < 3; i++)
			handle[i] = test_add(list, 9, ALL, i + 1);
		assert_int_equal(tag_list_delete(list, handle[gone]), 0);
		for (u32 i = 0; i < 3; i++)
			if (i != gone)
				assert_int_equal(test_message(list, 9), i + 1);
		assert_int_equal(test_message(list, 9), 0);
	}
}

static void tag_list_delete__too_late(void **state)
{
	struct tag_list *list = *state;
	u32 handle = test_add(list, 9, ALL, 1), again;
	struct tag_entry *taken = tag_list_match(list, 9);

	assert_int_equal(tag_list_delete(list, handle), -ENOENT);
	tag_list_release(list, taken);
	assert_int_equal(tag_list_delete(list, handle), -ENOENT);
	again = test_add(list, 9, ALL, 2); /* perhaps the same entry */
	assert_int_equal(tag_list_delete(list, handle), -ENOENT);
	assert_int_equal(tag_list_delete(list, again), 0);
	assert_int_equal(tag_list_delete(list, again), -ENOENT);
}

/* As many uses of one entry behind it as a program makes that never deletes too late. */
static void tag_list_delete__much_too_late(void **state)
{
	struct tag_list large;
	u32 handle;

	(void)state;
	assert_int_equal(tag_list_init(&large, 1 << 16, 1), 0);
	handle = test_add(&large, 9, ALL, 1);
	tag_list_release(&large, tag_list_match(&large, 9));
	for (int i = 0; i < 1000000; i++) {
		u32 other = test_add(&large, 9, ALL, 2);

		assert_int_equal(tag_list_delete(&large, handle), -ENOENT);
		assert_int_equal(tag_list_delete(&large, other), 0);
	}
	tag_list_destroy(&large);
}

static void tag_list_delete__handle_of_nobody(void **state)
{
	struct tag_list *list = *state;

	test_add(list, 9, ALL, 1);
	assert_int_equal(tag_list_delete(list, 1), -EINVAL);
	assert_int_equal(tag_list_delete(list, TEST_CAPACITY), -EINVAL);
	assert_int_equal(tag_list_delete(list, UINT32_MAX), -EINVAL);
}

static void tag_list_sync__entry_waits_for_the_count(void **state)
{
	struct tag_list *list = *state;
	u32 gone;

	test_add(list, 1, ALL, 1);
	assert_false(tag_list_count_unexpected(list));
	assert_false(tag_list_in_phase(list));
	test_add(list, 1, ALL, 2);
	gone = test_add(list, 1, ALL, 3);
	test_add(list, 1, 0xf, 4);
	assert_int_equal(test_message(list, 1), 1); /* was enabled before */
	assert_int_equal(test_message(list, 1), 0);
	assert_int_equal(tag_list_delete(list, gone), 0);
	tag_list_sync(list, 2); /* more than there are: not agreed */
	assert_int_equal(test_message(list, 1), 0);
	tag_list_sync(list, 1);
	assert_true(tag_list_in_phase(list));
	assert_int_equal(test_message(list, 1), 2);
	assert_int_equal(test_message(list, 1), 4);
	assert_int_equal(test_message(list, 1), 0);
}

/* A message that broke off is taken back: what was posted meanwhile matches, in that order. */
static void tag_list_uncount_unexpected__keeps_the_order(void **state)
{
	struct tag_list *list = *state;

	test_add(list, 1, ALL, 1);
	assert_false(tag_list_count_unexpected(list));
	assert_false(tag_list_count_unexpected(list));
	test_add(list, 1, ALL, 2);
	test_add(list, 0, 0, 3);
	test_add(list, 1, ALL, 4);
	test_add(list, 1, ALL, 5);
	tag_list_uncount_unexpected(list); /* the other one is still unknown */
	assert_int_equal(test_message(list, 1), 1);
	assert_int_equal(test_message(list, 1), 0);
	tag_list_uncount_unexpected(list);
	assert_true(tag_list_in_phase(list));
	test_add(list, 1, ALL, 6);
	for (u64 wr_id = 2; wr_id <= 6; wr_id++)
		assert_int_equal(test_message(list, 1), wr_id);
	assert_int_equal(test_message(list, 1), 0);
}

static void tag_list_count_unexpected__wraps_and_asks(void **state)
{
	struct tag_list *list = *state;

	for (u32 i = 0; i < 0x10000 + 5; i++) {
		assert_int_equal(tag_list_count_unexpected(list), false);
		tag_list_sync(list, i + 1);
		assert_true(tag_list_in_phase(list));
	}
	for (u32 i = 0; i < TAG_LAG_MAX; i++)
		assert_int_equal(tag_list_count_unexpected(list), false);
	assert_int_equal(tag_list_count_unexpected(list), true);
	tag_list_sync(list, 0x10000 + 5);
	assert_int_equal(tag_list_count_unexpected(list), true);
	tag_list_sync(list, 5 + TAG_LAG_MAX + 2);
	assert_true(tag_list_in_phase(list));
}

/* ---- against a model that is a plain array in the order of posting ---- */

struct model_entry {
	u64 tag, mask, wr_id;
	u32 handle;
	bool enabled;
};

struct model {
	struct model_entry entry[TEST_CAPACITY];
	u32 count;
	u16 unexpected, told;
};

static void model_remove(struct model *m, u32 i)
{
	memmove(&m->entry[i], &m->entry[i + 1], (m->count - i - 1) * sizeof(m->entry[0]));
	m->count--;
}

static void model_sync(struct model *m, u16 count)
{
	m->told = count;
	for (u32 i = 0; i < m->count && m->told == m->unexpected; i++)
		m->entry[i].enabled = true;
}

static u64 model_message(struct model *m, u64 tag)
{
	for (u32 i = 0; i < m->count; i++) {
		u64 wr_id = m->entry[i].wr_id;

		if (m->entry[i].enabled && (tag & m->entry[i].mask) == m->entry[i].tag) {
			model_remove(m, i);
			return wr_id;
		}
	}
	return 0;
}

static u64 test_mask(void)
{
	static const u64 masks[] = { ALL, ALL, ALL, 0, 1, 2, 6, ALL - 1 };

	return masks[(u32)rand() % 8];
}

static void test_step(struct tag_list *list, struct model *m, u64 wr_id)
{
	u64 tag = (u32)rand() % 8;
	u32 at = m->count == 0 ? 0 : (u32)rand() % m->count;
	u64 mask = test_mask();

	switch (rand() % 6) {
	case 0:
	case 1:
		if (m->count == TEST_CAPACITY)
			return;
		m->entry[m->count++] =
			(struct model_entry){ tag & mask, mask, wr_id,
					      test_add(list, tag & mask, mask, wr_id),
					      m->told == m->unexpected };
		return;
	case 2:
		if (m->count == 0)
			return;
		assert_int_equal(tag_list_delete(list, m->entry[at].handle), 0);
		model_remove(m, at);
		return;
	case 3:
		/* mostly what is right, else what was right some time ago */
		tag = rand() % 3 != 0 ? 0 : tag;
		tag_list_sync(list, m->unexpected - (u32)tag);
		model_sync(m, (u16)(m->unexpected - tag));
		return;
	default:
		wr_id = model_message(m, tag);
		assert_int_equal(test_message(list, tag), wr_id);
		if (wr_id == 0) {
			m->unexpected++;
			tag_list_count_unexpected(list);
		}
	}
}

static void tag_list__as_the_model(void **state)
{
	for (u32 seed = 1; seed <= 200; seed++) {
		struct tag_list list;
		struct model m = { 0 };

		srand(seed);
		assert_int_equal(tag_list_init(&list, TEST_CAPACITY, 1), 0);
		for (u64 i = 1; i <= 3000; i++)
			test_step(&list, &m, i);
		while (m.count > 0) {
			assert_int_equal(tag_list_delete(&list, m.entry[0].handle), 0);
			model_remove(&m, 0);
		}
		assert_int_equal(list.used, 0);
		assert_int_equal(list.mask_count, 0);
		tag_list_destroy(&list);
	}
}

#define EACH(f) cmocka_unit_test_setup_teardown(f, test_setup, test_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(tag_list_match__first_posted_takes),
		EACH(tag_list_match__wildcard_posted_first_takes),
		EACH(tag_list_match__tag_outside_its_mask_never),
		EACH(tag_list_add__copies_elements),
		EACH(tag_list_add__full),
		EACH(tag_list_delete__each_place_of_a_group),
		EACH(tag_list_delete__too_late),
		EACH(tag_list_delete__much_too_late),
		EACH(tag_list_delete__handle_of_nobody),
		EACH(tag_list_sync__entry_waits_for_the_count),
		EACH(tag_list_count_unexpected__wraps_and_asks),
		EACH(tag_list_uncount_unexpected__keeps_the_order),
		cmocka_unit_test(tag_list__as_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
