/* device_test.c: what may be registered, and under which name. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "core/core_priv.h"
#include "core/test_support/fake_device.h"

static void unplug(struct fake_device *fake)
{
	ib_unregister_device(&fake->ib);
	fake_destroy(fake);
}

static void ib_alloc_device__too_small(void **state)
{
	assert_null(ib_alloc_device(sizeof(struct ib_device) - 1));
	ib_dealloc_device(NULL);
}

static void ib_register_device__numbers_names(void **state)
{
	struct fake_device *fakes[3];

	for (int i = 0; i < 3; i++) {
		fakes[i] = fake_create("roce%d");
		assert_int_equal(ib_register_device(&fakes[i]->ib), 0);
	}
	assert_string_equal(fakes[0]->ib.name, "roce0");
	assert_string_equal(fakes[2]->ib.name, "roce2");
	unplug(fakes[1]);
	fakes[1] = fake_create("roce%d");
	assert_int_equal(ib_register_device(&fakes[1]->ib), 0);
	assert_string_equal(fakes[1]->ib.name, "roce1");
	for (int i = 0; i < 3; i++)
		unplug(fakes[i]);
}

static void ib_register_device__name_taken(void **state)
{
	struct fake_device *one = fake_create("mine"), *two = fake_create("mine");

	assert_int_equal(ib_register_device(&one->ib), 0);
	assert_int_equal(ib_register_device(&two->ib), -EEXIST);
	assert_int_equal(ib_register_device(&one->ib), -EEXIST);
	unplug(one);
	assert_int_equal(ib_register_device(&two->ib), 0);
	unplug(two);
}

static void ib_register_device__bad_names(void **state)
{
	static const char *const names[] = { "", "x%s", "x%d%d", "%", "100%%" };

	for (u32 i = 0; i < ARRAY_LEN(names); i++) {
		struct fake_device *fake = fake_create(names[i]);

		assert_int_equal(ib_register_device(&fake->ib), -EINVAL);
		assert_string_equal(fake->ib.name, names[i]);
		fake_destroy(fake);
	}
	struct fake_device *unending = fake_create("x");

	memset(unending->ib.name, 'x', sizeof(unending->ib.name));
	assert_int_equal(ib_register_device(&unending->ib), -EINVAL);
	fake_destroy(unending);
}

static void ib_register_device__name_too_long_for_its_number(void **state)
{
	char name[IB_DEVICE_NAME_MAX];
	struct fake_device *fakes[11];

	memset(name, 'x', sizeof(name));
	memcpy(name + sizeof(name) - 3, "%d",
	       3); /* room for two digits, none for the terminator after three */
	for (u32 i = 0; i < ARRAY_LEN(fakes); i++) {
		fakes[i] = fake_create(name);
		assert_int_equal(ib_register_device(&fakes[i]->ib), 0);
	}
	assert_string_equal(fakes[10]->ib.name + sizeof(name) - 3, "10");
	for (u32 i = 0; i < ARRAY_LEN(fakes); i++)
		unplug(fakes[i]);
}

static void ib_register_device__incomplete(void **state)
{
	struct fake_device *fake = fake_create("fake%d");

	fake->ib.poll_cq = NULL;
	assert_int_equal(ib_register_device(&fake->ib), -EINVAL);
	assert_int_equal(ib_register_device(NULL), -EINVAL);
	fake_destroy(fake);
	fake = fake_create("fake%d");
	fake->ib.post_send = NULL;
	assert_int_equal(ib_register_device(&fake->ib), -EINVAL);
	fake_destroy(fake);
	fake = fake_create("fake%d");
	fake->ib.node_type = 0;
	assert_int_equal(ib_register_device(&fake->ib), -EINVAL);
	fake_destroy(fake);
}

static void ib_register_device__again_after_unregister(void **state)
{
	struct fake_device *fake = fake_create("again");

	for (int i = 0; i < 3; i++) {
		assert_int_equal(ib_register_device(&fake->ib), 0);
		ib_unregister_device(&fake->ib);
		ib_unregister_device(&fake->ib);
	}
	ib_unregister_device(NULL);
	fake_destroy(fake);
}

/* As of a device that has gone. */
static int no_port(struct ib_device *device, u8 port_num, struct ib_port_attr *attr)
{
	return -EIO;
}

static void ib_query__checks_port(void **state)
{
	struct fake_device *fake = fake_create("fake%d");
	struct ib_port_attr port;
	union ib_gid gid;
	u8 port_num;
	u16 pkey, index;

	assert_int_equal(ib_register_device(&fake->ib), 0);
	assert_int_equal(ib_query_port(&fake->ib, 0, &port), -EINVAL);
	assert_int_equal(ib_query_port(&fake->ib, 2, &port), -EINVAL);
	assert_int_equal(ib_query_port(&fake->ib, 1, &port), 0);
	assert_int_equal(ib_query_gid(&fake->ib, 1, -1, &gid), -EINVAL);
	assert_int_equal(ib_query_gid(&fake->ib, 1, 0, &gid), 0);
	assert_int_equal(ib_query_pkey(&fake->ib, 2, 0, &pkey), -EINVAL);
	assert_int_equal(ib_find_gid(&fake->ib, &fake->gids[2], &port_num, &index), 0);
	assert_int_equal(port_num, 1);
	assert_int_equal(index, 2);
	gid.raw[0] = 0x77;
	assert_int_equal(ib_find_gid(&fake->ib, &gid, NULL, NULL), -ENOENT);
	fake->gids[3] = (union ib_gid){ .raw = { 0 } };
	assert_int_equal(ib_find_gid(&fake->ib, &fake->gids[3], NULL, NULL), -ENOENT);
	assert_int_equal(ib_find_pkey(&fake->ib, 1, 0x0002, &index), 0);
	assert_int_equal(index, 1);
	assert_int_equal(ib_find_pkey(&fake->ib, 1, 0x7777, &index), -ENOENT);
	assert_int_equal(ib_modify_port(&fake->ib, 1, 0, NULL), -ENOSYS);
	assert_int_equal(rdma_port_get_link_layer(&fake->ib, 1), IB_LINK_LAYER_ETHERNET);
	fake->ib.query_port = no_port;
	assert_int_equal(rdma_port_get_link_layer(&fake->ib, 1), IB_LINK_LAYER_ETHERNET);
	unplug(fake);
}

static void ib_rate__there_and_back(void **state)
{
	assert_int_equal(ib_rate_to_mult(IB_RATE_5_GBPS), 2);
	assert_int_equal(ib_rate_to_mult(IB_RATE_120_GBPS), 48);
	assert_int_equal(ib_rate_to_mult(IB_RATE_PORT_CURRENT), -1);
	assert_int_equal(ib_rate_to_mult((enum ib_rate)99), -1);
	assert_int_equal(ib_rate_to_mult((enum ib_rate)-1), -1);
	assert_int_equal(ib_rate_to_mbps(IB_RATE_100_GBPS), 103125);
	assert_int_equal(ib_rate_to_mbps((enum ib_rate)1), -1);
	assert_int_equal(mult_to_ib_rate(0), IB_RATE_PORT_CURRENT);
	assert_int_equal(mult_to_ib_rate(3), IB_RATE_PORT_CURRENT);
	for (int rate = IB_RATE_2_5_GBPS; rate <= IB_RATE_1200_GBPS; rate++)
		assert_int_equal(mult_to_ib_rate(ib_rate_to_mult((enum ib_rate)rate)), rate);
	assert_int_equal(rdma_node_get_transport(RDMA_NODE_RNIC), RDMA_TRANSPORT_IWARP);
	assert_int_equal(rdma_node_get_transport(RDMA_NODE_IB_CA), RDMA_TRANSPORT_IB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ib_alloc_device__too_small),
		cmocka_unit_test(ib_register_device__numbers_names),
		cmocka_unit_test(ib_register_device__name_taken),
		cmocka_unit_test(ib_register_device__bad_names),
		cmocka_unit_test(ib_register_device__name_too_long_for_its_number),
		cmocka_unit_test(ib_register_device__incomplete),
		cmocka_unit_test(ib_register_device__again_after_unregister),
		cmocka_unit_test(ib_query__checks_port),
		cmocka_unit_test(ib_rate__there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
