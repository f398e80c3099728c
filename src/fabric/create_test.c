/* create_test.c: fabrics are made from topologies, and go on after their owner's end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "fabric/test_support/bed.h"

static void create__ports_with_cables_are_initialized(void **state)
{
	struct bed b;
	struct fabric_port_attr a;

	(void)state;
	bed_star(&b, 3);
	assert_int_equal(fabric_port_read(b.v, bed_port(&b, 2, 1), &a), 0);
	assert_int_equal(a.state, FABRIC_INIT);
	assert_int_equal(a.phys, FABRIC_PHYS_LINK_UP);
	assert_int_equal(a.width, TOPO_4X);
	assert_int_equal(a.speed, 32);
	assert_int_equal(a.peer, bed_port(&b, 0, 2));
	assert_int_equal(a.guid, b.topo.ports[bed_port(&b, 2, 1)].guid);
	assert_int_equal(a.gid_prefix, 0xfe80000000000000ull);
	assert_int_equal(a.pkeys[0], 0xffff);
	assert_int_equal(a.lid, 0);
	/* a switch's management port has no cable and is active */
	assert_int_equal(fabric_port_read(b.v, bed_port(&b, 0, 0), &a), 0);
	assert_int_equal(a.state, FABRIC_ACTIVE);
	assert_int_equal(a.peer, FABRIC_NONE);
	bed_end(&b);
}

static void create__port_without_cable_is_down(void **state)
{
	struct bed b;
	struct fabric_port_attr a;

	(void)state;
	bed_begin(&b);
	bed_add(&b, FABRIC_CA, 2, "h1 ib0");
	bed_up(&b);
	assert_int_equal(fabric_port_read(b.v, bed_port(&b, 0, 2), &a), 0);
	assert_int_equal(a.state, FABRIC_DOWN);
	assert_int_equal(a.phys, FABRIC_PHYS_POLLING);
	bed_end(&b);
}

static void create__topology_that_contradicts_itself_is_refused(void **state)
{
	struct bed b;
	int err = 0, map, counters;
	struct fabric_ops ops = { 0 };

	(void)state;
	bed_begin(&b);
	bed_add(&b, FABRIC_CA, 2, "h1 ib0");
	b.topo.nodes[0].first_port = 1;
	map = memfd_create("map", MFD_CLOEXEC);
	counters = memfd_create("counters", MFD_CLOEXEC);
	assert_null(fabric_create(map, counters, &b.topo, &ops, NULL, &err));
	assert_int_equal(err, -22);
	close(map);
	close(counters);
	topo_free(&b.topo);
}

static void create__half_written_map_is_refused(void **state)
{
	struct bed b;
	struct fabric_view v;
	int err = 0;
	struct fabric_ops ops = { 0 };

	(void)state;
	bed_star(&b, 2);
	b.f->header->complete = 0;
	assert_int_equal(fabric_view_open(&v, b.f->header, b.v->bytes), -22);
	assert_null(fabric_open(b.map_fd, b.counters_fd, &ops, &b, &err));
	assert_int_equal(err, -22);
	bed_end(&b);
}

static void test_is_reserved(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_size > 0 && st.st_blocks * 512 >= st.st_size);
}

/* The place of the files may be full later. */
static void create__reserves_its_files(void **state)
{
	struct bed b;

	(void)state;
	bed_star(&b, 20);
	test_is_reserved(b.map_fd);
	test_is_reserved(b.counters_fd);
	bed_end(&b);
}

static void open__goes_on_with_what_was_there(void **state)
{
	struct bed b;
	struct fabric_port_attr a;
	u64 identity, generation;
	u32 port;

	(void)state;
	bed_star(&b, 3);
	port = bed_port(&b, 1, 1);
	b.f->port[port].lid = 77;
	identity = fabric_identity(b.v);
	generation = fabric_generation(b.v);
	bed_again(&b);
	assert_int_equal(fabric_identity(b.v), identity);
	assert_true(fabric_generation(b.v) > generation);
	assert_int_equal(fabric_port_read(b.v, port, &a), 0);
	assert_int_equal(a.lid, 77);
	assert_int_equal(a.state, FABRIC_INIT);
	bed_end(&b);
}

static void open__mends_what_a_kill_left_half_done(void **state)
{
	struct bed b;
	struct fabric_port_attr a;
	u32 port;

	(void)state;
	bed_star(&b, 3);
	port = bed_port(&b, 1, 1);
	fabric_port_begin(b.f, port);
	b.f->port[port].state = FABRIC_DOWN;
	b.f->port[port].phys = FABRIC_PHYS_POLLING;
	assert_int_equal(fabric_port_read(b.v, port, &a), -11);
	bed_again(&b);
	/* the other end was up: the link has bounced */
	assert_int_equal(fabric_port_read(b.v, port, &a), 0);
	assert_int_equal(a.state, FABRIC_INIT);
	assert_int_equal(fabric_port_read(b.v, bed_port(&b, 0, 1), &a), 0);
	assert_int_equal(a.state, FABRIC_INIT);
	bed_end(&b);
}

static void open__damaged_maps_are_refused(void **state)
{
	static const struct {
		u32 at, value;
	} damage[] = {
		{ offsetof(struct fabric_node_rec, first_port), 99 },
		{ offsetof(struct fabric_node_rec, ports), 300 },
		{ offsetof(struct fabric_node_rec, lft_at) + 4, 1 << 30 },
	};
	struct fabric_ops ops = { 0 };

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(damage); i++) {
		struct bed b;
		int err = 0;

		bed_star(&b, 2);
		memcpy((u8 *)&b.f->node[0] + damage[i].at, &damage[i].value, sizeof(u32));
		assert_null(fabric_open(b.map_fd, b.counters_fd, &ops, &b, &err));
		assert_int_equal(err, -22);
		bed_end(&b);
	}
}

/* Records are lines: a section that begins within one would be read at addresses that have none. */
static void view__a_section_within_a_line_is_refused(void **state)
{
	struct fabric_view v;
	struct bed b;

	(void)state;
	bed_star(&b, 2);
	assert_int_equal(fabric_view_judge(&v, b.f->header, b.f->header->bytes), 0);
	b.f->header->port_at -= 8;
	assert_int_equal(fabric_view_judge(&v, b.f->header, b.f->header->bytes), -22);
	b.f->header->port_at += 8;
	bed_end(&b);
}

static void create__memory_of_a_port_is_little(void **state)
{
	struct bed b;
	struct stat map, counters;

	(void)state;
	bed_star(&b, 200);
	assert_int_equal(fstat(b.map_fd, &map), 0);
	assert_int_equal(fstat(b.counters_fd, &counters), 0);
	assert_true((u64)(map.st_blocks + counters.st_blocks) * 512 < 8192ull * 200);
	bed_end(&b);
}

static void view__hosts_are_found_by_their_first_word(void **state)
{
	struct bed b;
	u32 cas[2];

	(void)state;
	bed_begin(&b);
	bed_add(&b, FABRIC_CA, 1, "h1 ib0");
	bed_add(&b, FABRIC_CA, 1, "h17 ib0");
	bed_add(&b, FABRIC_SWITCH, 1, "h1 switch");
	bed_add(&b, FABRIC_CA, 1, "h1 ib1");
	bed_add(&b, FABRIC_CA, 1, "alone");
	bed_up(&b);
	assert_int_equal(fabric_find_host(b.v, "h1", cas, 2), 2);
	assert_int_equal(cas[0], 0);
	assert_int_equal(cas[1], 3);
	assert_int_equal(fabric_find_host(b.v, "h1", cas, 1), 2);
	assert_int_equal(fabric_find_host(b.v, "alone", cas, 2), 1);
	assert_int_equal(fabric_find_host(b.v, "h", cas, 2), 0);
	assert_int_equal(fabric_find_host(b.v, "", cas, 2), 0);
	bed_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create__ports_with_cables_are_initialized),
		cmocka_unit_test(create__port_without_cable_is_down),
		cmocka_unit_test(create__topology_that_contradicts_itself_is_refused),
		cmocka_unit_test(create__half_written_map_is_refused),
		cmocka_unit_test(create__reserves_its_files),
		cmocka_unit_test(open__goes_on_with_what_was_there),
		cmocka_unit_test(open__mends_what_a_kill_left_half_done),
		cmocka_unit_test(open__damaged_maps_are_refused),
		cmocka_unit_test(view__a_section_within_a_line_is_refused),
		cmocka_unit_test(create__memory_of_a_port_is_little),
		cmocka_unit_test(view__hosts_are_found_by_their_first_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
