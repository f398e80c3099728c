/* route_test.c: the host's own loopback address is local, and its route has a source. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "host/route.h"

static const u8 loopback[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };

static void host_route_find__knows_the_loopback(void **state)
{
	struct host_route route;

	assert_int_equal(host_route_find(loopback, NULL, 0, &route), 0);
	assert_true(route.local);
	assert_memory_equal(route.source, loopback, 16);
	assert_int_equal(route.ifindex, 1);
}

static void host_route_find__says_what_the_kernel_says(void **state)
{
	static const u8 nowhere[16] = { 0x3f, 0xfe, [15] = 1 };
	struct host_route route = { .ifindex = 77 };
	/* of an interface that does not exist */
	int err = host_route_find(nowhere, NULL, 1u << 30, &route);

	assert_true(err < 0);
	assert_int_equal(route.ifindex, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_route_find__knows_the_loopback),
		cmocka_unit_test(host_route_find__says_what_the_kernel_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
