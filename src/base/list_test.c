/* list_test.c: the intrusive list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/list.h"

struct test_item {
	int value;
	struct list_head node;
};

static void test_expect(struct list_head *head, int count, const int *values)
{
	int i = 0;

	list_for_each(x, head, struct test_item, node) {
		assert_true(i < count);
		assert_int_equal(x->value, values[i++]);
		assert_ptr_equal(x->node.next->prev, &x->node);
	}
	assert_int_equal(i, count);
}

static void list_push__keeps_order_at_both_ends(void **state)
{
	struct list_head head = LIST_HEAD_INIT(head);
	struct test_item x[3] = { { 1, LIST_HEAD_INIT(x[0].node) },
				  { 2, LIST_HEAD_INIT(x[1].node) },
				  { 3, LIST_HEAD_INIT(x[2].node) } };

	assert_true(list_empty(&head));
	list_push_back(&head, &x[1].node);
	list_push_back(&head, &x[2].node);
	list_push_front(&head, &x[0].node);
	test_expect(&head, 3, (int[]){ 1, 2, 3 });
	assert_ptr_equal(list_first(&head, struct test_item, node), &x[0]);
	assert_ptr_equal(list_pop_front(&head), &x[0].node);
	assert_true(list_empty(&x[0].node));
	test_expect(&head, 2, (int[]){ 2, 3 });
}

static void list_remove__twice_is_harmless(void **state)
{
	struct list_head head = LIST_HEAD_INIT(head);
	struct test_item x[2] = { { .value = 1 }, { .value = 2 } };

	list_push_back(&head, &x[0].node);
	list_push_back(&head, &x[1].node);
	list_remove(&x[0].node);
	list_remove(&x[0].node);
	test_expect(&head, 1, (int[]){ 2 });
	list_remove(&x[1].node);
	assert_true(list_empty(&head));
	assert_null(list_pop_front(&head));
}

static void list_for_each_safe__survives_removal(void **state)
{
	struct list_head head = LIST_HEAD_INIT(head);
	struct test_item x[4] = { { .value = 1 }, { .value = 2 }, { .value = 3 }, { .value = 4 } };

	for (int i = 0; i < 4; i++)
		list_push_back(&head, &x[i].node);
	list_for_each_safe(pos, &head, struct test_item, node)
		if (pos->value % 2 == 0)
			list_remove(&pos->node);
	test_expect(&head, 2, (int[]){ 1, 3 });
}

static void list_splice__moves_everything_to_the_end(void **state)
{
	struct list_head a = LIST_HEAD_INIT(a), b = LIST_HEAD_INIT(b);
	struct test_item x[3] = { { .value = 1 }, { .value = 2 }, { .value = 3 } };

	list_push_back(&a, &x[0].node);
	list_splice(&b, &a);
	test_expect(&a, 1, (int[]){ 1 });
	list_push_back(&b, &x[1].node);
	list_push_back(&b, &x[2].node);
	list_splice(&b, &a);
	test_expect(&a, 3, (int[]){ 1, 2, 3 });
	assert_true(list_empty(&b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_push__keeps_order_at_both_ends),
		cmocka_unit_test(list_remove__twice_is_harmless),
		cmocka_unit_test(list_for_each_safe__survives_removal),
		cmocka_unit_test(list_splice__moves_everything_to_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
