/* agent_test.c: what an agent takes, field by field. */
#include "node/agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "node/steer.h"

enum { DEVICE = 77, VENDOR = 0x30, VENDOR_LAST = 0x4f, OTHER = 0x0a };

static struct node_agent an_agent(u8 mgmt_class, u8 method)
{
	struct node_agent a = { .device = DEVICE,
				.port = 1,
				.qpn = 1,
				.mgmt_class = mgmt_class,
				.version = 2,
				.oui = { 1, 2, 3 } };

	a.methods[method / 64] = 1ull << method % 64;
	return a;
}

/* A vendor's MAD has the OUI behind its headers; another one has data there. */
static bool takes(const struct node_agent *a, u8 mgmt_class, u8 version, u8 method, u8 oui)
{
	u8 mad[STEER_MAD] = { 1, mgmt_class, version, method, [37] = 1, 2, oui };

	return node_agent_takes(a, DEVICE, 1, 1, mad);
}

static void node_agent_takes__every_field_counts(void **state)
{
	struct node_agent a = an_agent(VENDOR, 127);
	u8 mad[STEER_MAD] = { 1, VENDOR, 2, 127, [37] = 1, 2, 3 };

	assert_true(node_agent_takes(&a, DEVICE, 1, 1, mad));
	assert_false(node_agent_takes(&a, DEVICE + 1, 1, 1, mad));
	assert_false(node_agent_takes(&a, DEVICE, 2, 1, mad));
	assert_false(node_agent_takes(&a, DEVICE, 1, 0, mad));
	assert_false(takes(&a, VENDOR + 1, 2, 127, 3));
	assert_false(takes(&a, VENDOR, 1, 127, 3));
	assert_false(takes(&a, VENDOR, 2, 126, 3));
	assert_false(takes(&a, VENDOR, 2, 63, 3));
	assert_false(takes(&a, VENDOR, 2, 127, 4));
}

static void node_agent_takes__the_oui_of_vendors_only(void **state)
{
	struct node_agent a = an_agent(OTHER, 1), last = an_agent(VENDOR_LAST, 1),
			  behind = an_agent(VENDOR_LAST + 1, 1);

	assert_true(takes(&a, OTHER, 2, 1, 99));
	assert_false(takes(&last, VENDOR_LAST, 2, 1, 99));
	assert_true(takes(&behind, VENDOR_LAST + 1, 2, 1, 99));
}

static void node_agent_overlaps__in_one_method_of_one_port(void **state)
{
	struct node_agent a = an_agent(OTHER, 1), b = a;

	b.methods[1] = 1;
	assert_true(node_agent_overlaps(&a, &b));
	b.methods[0] = 4;
	assert_false(node_agent_overlaps(&a, &b));
	a.methods[1] = 3;
	assert_true(node_agent_overlaps(&a, &b));
	b.port = 2;
	assert_false(node_agent_overlaps(&a, &b));
}

static void node_agent_is_valid__refuses_what_no_port_has(void **state)
{
	struct node_agent good = an_agent(OTHER, 1), bad;

	assert_true(node_agent_is_valid(&good));
	bad = good;
	bad.qpn = 2;
	assert_false(node_agent_is_valid(&bad));
	bad = good;
	bad.port = 0;
	assert_false(node_agent_is_valid(&bad));
	bad = good;
	bad.mgmt_class = 0;
	assert_false(node_agent_is_valid(&bad));
	bad.mgmt_class = STEER_CLASS_CM; /* its MADs say whose they are */
	assert_false(node_agent_is_valid(&bad));
	bad = good;
	bad.methods[0] = 0;
	assert_false(node_agent_is_valid(&bad));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_agent_takes__every_field_counts),
		cmocka_unit_test(node_agent_takes__the_oui_of_vendors_only),
		cmocka_unit_test(node_agent_overlaps__in_one_method_of_one_port),
		cmocka_unit_test(node_agent_is_valid__refuses_what_no_port_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
