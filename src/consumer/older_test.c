/* older_test.c: the calls of Linux 6.1 over a driver whose objects have no room for them: each is
 * refused, and nothing of the object is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "consumer/consumer_priv.h"
#include "core/test_support/fake_device.h"

static void older__has_no_attrs(void **state)
{
	struct fake_device *fake = *state;
	struct ib_device_attrs none;

	memset(&none, 0, sizeof(none));
	assert_false(core_serves_linux61(&fake->ib));
	assert_memory_equal(&fake->ib.attrs, &none, sizeof(none));
}

static void older__makes_none_of_the_objects(void **state)
{
	struct fake_device *fake = *state;
	struct ib_qp_init_attr_linux61 init = { .qp_type = IB_QPT_RC };
	struct ib_pd *pd = ib_alloc_pd(&fake->ib);

	assert_int_equal(PTR_ERR(ib_alloc_cq(&fake->ib, NULL, 1, 0, IB_POLL_DIRECT)), -EOPNOTSUPP);
	assert_int_equal(PTR_ERR(ib_alloc_pd_linux61(&fake->ib, 0)), -EOPNOTSUPP);
	assert_int_equal(PTR_ERR(ib_create_qp_linux61(pd, &init)), -EOPNOTSUPP);
	assert_int_equal(ib_dealloc_pd(pd), 0);
}

/* Such a CQ is the consumer's of 2007, and ib_free_cq is not its end. */
static void older__leaves_its_objects_alone(void **state)
{
	struct fake_device *fake = *state;
	struct ib_cq *cq = ib_create_cq(&fake->ib, NULL, NULL, NULL, 1, 0);

	assert_false(IS_ERR(cq));
	ib_free_cq(cq);
	assert_int_equal(ib_process_cq_direct(cq, -1), 0);
	assert_int_equal(ib_destroy_cq(cq), 0);
}

static int older_setup(void **state)
{
	struct fake_device *fake = fake_create("older");

	*state = fake;
	return fake == NULL || ib_register_device(&fake->ib) != 0;
}

static int older_teardown(void **state)
{
	struct fake_device *fake = *state;

	ib_unregister_device(&fake->ib);
	ib_dealloc_device(&fake->ib);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(older__has_no_attrs),
		cmocka_unit_test(older__makes_none_of_the_objects),
		cmocka_unit_test(older__leaves_its_objects_alone),
	};

	return cmocka_run_group_tests(tests, older_setup, older_teardown);
}
