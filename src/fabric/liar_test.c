/* liar_test.c: a subnet manager that lies. Whatever it writes into tables and ports, a packet and
 * the search of a route end, data goes nowhere but where the tables lead, and a manager that is
 * honest mends the fabric by SMPs alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "fabric/format.h"
#include "fabric/test_support/sm.h"

enum { LEFT, RIGHT, THIRD, HOST_A, HOST_B, HOST_C, SWITCHES = 3, MLID = 0xc001 };

static struct bed b;
static u32 a, c; /* the ports of two hosts */

/* Three switches, each cabled to both others (ports 1 and 2) and with a host at port 3. */
static void triangle_up(void)
{
	bed_begin(&b);
	for (u32 i = 0; i < SWITCHES; i++)
		bed_add(&b, FABRIC_SWITCH, 5, "switch");
	bed_add(&b, FABRIC_CA, 1, "a ib0");
	bed_add(&b, FABRIC_CA, 1, "b ib0");
	bed_add(&b, FABRIC_CA, 1, "c ib0");
	bed_connect(&b, LEFT, 1, RIGHT, 2);
	bed_connect(&b, RIGHT, 1, THIRD, 2);
	bed_connect(&b, THIRD, 1, LEFT, 2);
	for (u32 i = 0; i < SWITCHES; i++)
		bed_connect(&b, i, 3, HOST_A + i, 1);
	bed_up(&b);
	a = bed_port(&b, HOST_A, 1);
	c = bed_port(&b, HOST_C, 1);
	assert_int_equal(sm_sweep(&b, a), 6);
}

/* From host a to each switch. */
static struct sm_way way_to(u32 node)
{
	if (node == LEFT)
		return (struct sm_way){ .hops = 1, .path = { 0, 1 } };
	return (struct sm_way){ .hops = 2, .path = { 0, 1, node == RIGHT ? 1 : 2 } };
}

static u16 write_table(u32 node, u16 attribute, u32 block, const u8 *data)
{
	struct sm_way way = way_to(node);

	return sm_status(sm_directed(&b, a, &way, METHOD_SET, attribute, block, data));
}

/* Every LID leaves the switch by one port. */
static void lead_all(u32 node, u8 port)
{
	u8 d[MAD_SMP_DATA];

	memset(d, port, sizeof(d));
	assert_int_equal(write_table(node, ATTR_LINEAR_TABLE, 0, d), 0);
}

static int route_to(u16 dlid)
{
	struct fabric_flow w = { .pkey = 0xffff, .dlid = dlid };
	struct fabric_path path;

	return fabric_route(b.v, a, &w, &path);
}

/* Whether a datagram of a reaches the port. */
static bool reaches(u32 port, u16 dlid)
{
	struct fabric_mad m = { .src_qp = 1, .dst_qp = 1, .qkey = 0x80010000, .pkey = 0xffff };
	u32 before = b.delivered;

	m.slid = b.f->port[a].lid;
	m.dlid = dlid;
	m.mad[MAD_BASE_VERSION] = m.mad[MAD_CLASS_VERSION] = 1;
	m.mad[MAD_CLASS] = 7;
	m.mad[MAD_METHOD] = METHOD_SEND;
	fabric_send(b.f, a, &m);
	for (u32 i = before; i < b.delivered; i++)
		if (b.mad[i % BED_MADS].port == port)
			return true;
	return false;
}

/* An honest manager begins. */
static void check_mended(void)
{
	assert_int_equal(sm_sweep(&b, a), 6);
	assert_int_equal(route_to(b.f->port[c].lid), 0);
	assert_true(reaches(c, b.f->port[c].lid));
	bed_end(&b);
}

static void liar__tables_in_a_circle(void **state)
{
	u16 lid;

	(void)state;
	triangle_up();
	lid = b.f->port[c].lid;
	assert_true(reaches(c, lid));
	for (u32 i = 0; i < SWITCHES; i++)
		lead_all(i, 1);
	assert_int_equal(route_to(lid), -101);
	assert_false(reaches(c, lid));
	lead_all(LEFT, 2); /* to and fro on one cable */
	lead_all(THIRD, 1);
	assert_int_equal(route_to(lid), -101);
	assert_false(reaches(c, lid));
	check_mended();
}

static void liar__ports_that_do_not_exist(void **state)
{
	static const u8 ports[] = { 0, 4, 6, 200, 254, 255 }; /* 4 has no cable */

	(void)state;
	triangle_up();
	for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
		lead_all(LEFT, ports[i]);
		assert_int_equal(route_to(b.f->port[c].lid), -101);
		assert_false(reaches(c, b.f->port[c].lid));
	}
	check_mended();
}

static void liar__the_wrong_host(void **state)
{
	(void)state;
	triangle_up();
	lead_all(LEFT, 1);
	lead_all(RIGHT, 3); /* to host b, who has another LID */
	assert_int_equal(route_to(b.f->port[c].lid), -101);
	assert_false(reaches(bed_port(&b, HOST_B, 1), b.f->port[c].lid));
	check_mended();
}

/* The first on the way gets what is for both. */
static void liar__one_lid_twice(void **state)
{
	struct sm_way way = { .hops = 3, .path = { 0, 1, 1, 3 } };
	u8 d[MAD_SMP_DATA];
	const struct fabric_mad *m;
	u32 host_b;

	(void)state;
	triangle_up();
	m = sm_directed(&b, a, &way, METHOD_GET, ATTR_PORT_INFO, 1, NULL);
	assert_int_equal(sm_status(m), 0);
	memcpy(d, m->mad + MAD_DATA, sizeof(d));
	d[32] &= 0xf0; /* the states stay */
	d[33] &= 0x0f;
	wire_put16(d + 16, b.f->port[c].lid);
	m = sm_directed(&b, a, &way, METHOD_SET, ATTR_PORT_INFO, 1, d);
	assert_int_equal(sm_status(m), 0);
	host_b = bed_port(&b, HOST_B, 1);
	assert_int_equal(b.f->port[host_b].lid, b.f->port[c].lid);
	lead_all(LEFT, 1);
	lead_all(RIGHT, 3);
	assert_true(reaches(host_b, b.f->port[c].lid));
	assert_false(reaches(c, b.f->port[c].lid));
	wire_put16(d + 16, 0xc000);
	m = sm_directed(&b, a, &way, METHOD_SET, ATTR_PORT_INFO, 1, d);
	assert_int_equal(sm_status(m), STATUS_BAD_VALUE);
	assert_int_equal(b.f->port[host_b].lid, b.f->port[c].lid);
	/* an honest manager gives each its own */
	wire_put16(d + 16, 77);
	assert_int_equal(
		sm_status(sm_directed(&b, a, &way, METHOD_SET, ATTR_PORT_INFO, 1, d)), 0);
	check_mended();
}

/* A group whose tree is a circle: a packet ends, and crosses no more links than there are ports. */
static void liar__a_tree_that_is_none(void **state)
{
	struct fabric_flow w = { .pkey = 0xffff, .dlid = MLID };
	u8 d[MAD_SMP_DATA] = { 0 };
	u32 to[64], before;

	(void)state;
	triangle_up();
	for (u32 i = 0; i < 32; i++)
		wire_put16(d + 2 * i, 0xffff); /* every MLID leaves by every port */
	for (u32 i = 0; i < SWITCHES; i++)
		assert_int_equal(write_table(i, ATTR_MULTICAST_TABLE, 0, d), 0);
	assert_in_range(fabric_mcast_route(b.v, a, MLID, &w, to, ARRAY_LEN(to)), 0, b.v->ports);
	before = b.delivered;
	(void)reaches(c, MLID);
	assert_in_range(b.delivered - before, 0, b.v->ports);
	check_mended();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(liar__tables_in_a_circle),
		cmocka_unit_test(liar__ports_that_do_not_exist),
		cmocka_unit_test(liar__the_wrong_host),
		cmocka_unit_test(liar__one_lid_twice),
		cmocka_unit_test(liar__a_tree_that_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
