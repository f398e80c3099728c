/* sport_test.c: source ports of flows, with values computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/roce.h"

static void roce_sport__folds_the_label(void **state)
{
	assert_int_equal(roce_sport(0), 0xc000);
	assert_int_equal(roce_sport(0x3fff), 0xffff);
	assert_int_equal(roce_sport(0x12345), 0xe341);
	assert_int_equal(roce_sport(0xfff1e), 0xff21);
	/* a label has 20 bits */
	assert_int_equal(roce_sport(0xf12345 & 0xfffff), roce_sport(0xfff12345));
}

static void roce_flow_label__of_two_queue_pairs(void **state)
{
	assert_int_equal(roce_flow_label(0x11, 0x12), 0x132);
	assert_int_equal(roce_flow_label(0xffffff, 0xffffff), 0xfff1e);
	/* both ends say the same */
	assert_int_equal(roce_flow_label(0x14002, 0x3c117), roce_flow_label(0x3c117, 0x14002));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_sport__folds_the_label),
		cmocka_unit_test(roce_flow_label__of_two_queue_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
