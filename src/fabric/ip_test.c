/* ip_test.c: addresses of hosts count the ports of CAs, and lead back to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/test_support/bed.h"

static void ip_of__counts_the_ports_of_all_cas(void **state)
{
	struct bed b;

	(void)state;
	bed_begin(&b);
	bed_add(&b, FABRIC_CA, 1, "h1 ib0");
	bed_add(&b, FABRIC_SWITCH, 8, "s1");
	bed_add(&b, FABRIC_CA, 2, "h2 ib0");
	bed_add(&b, FABRIC_CA, 1, "h3 ib0");
	bed_up(&b);
	assert_int_equal(fabric_ip_of(b.v, bed_port(&b, 0, 1)), 0x7f400001);
	assert_int_equal(fabric_ip_of(b.v, bed_port(&b, 2, 1)), 0x7f400002);
	assert_int_equal(fabric_ip_of(b.v, bed_port(&b, 2, 2)), 0x7f400003);
	assert_int_equal(fabric_ip_of(b.v, bed_port(&b, 3, 1)), 0x7f400004);
	for (u32 ip = 0x7f400001; ip <= 0x7f400004; ip++)
		assert_int_equal(fabric_ip_of(b.v, fabric_ip_port(b.v, ip)), ip);
	bed_end(&b);
}

static void ip_of__others_have_none(void **state)
{
	struct bed b;

	(void)state;
	bed_star(&b, 3);
	assert_int_equal(fabric_ip_of(b.v, bed_port(&b, 0, 1)), 0);
	assert_int_equal(fabric_ip_of(b.v, bed_port(&b, 1, 0)), 0);
	assert_int_equal(fabric_ip_of(b.v, FABRIC_NONE), 0);
	assert_int_equal(fabric_ip_port(b.v, 0x7f400000), FABRIC_NONE);
	assert_int_equal(fabric_ip_port(b.v, 0x7f400004), FABRIC_NONE);
	assert_int_equal(fabric_ip_port(b.v, 0x7f000001), FABRIC_NONE);
	assert_int_equal(fabric_ip_port(b.v, 0x7f800001), FABRIC_NONE);
	bed_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ip_of__counts_the_ports_of_all_cas),
		cmocka_unit_test(ip_of__others_have_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
