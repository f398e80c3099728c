/* sweep_test.c: a subnet manager brings fabrics up, keeps them whole and their LIDs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "sm/test_support/rig.h"

static struct rig r;

static u32 random_below(u64 *seed, u32 n)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(*seed >> 33) % n;
}

static void sweep__two_hosts_at_a_switch(void **state)
{
	struct sm *sm;

	(void)state;
	rig_begin(&r, "star:2");
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 100);
	assert_int_equal(rig_report(sm).state, SM_MASTER);
	assert_int_equal(rig_report(sm).sweeps, 1);
	assert_int_equal(rig_report(sm).faults + rig_report(sm).timeouts, 0);
	rig_check_active(&r);
	assert_int_equal(rig_check_pairs(&r), 2);
	rig_end(&r);
}

static void sweep__two_hosts_without_a_switch(void **state)
{
	struct sm *sm;

	(void)state;
	memset(&r, 0, sizeof(r));
	bed_begin(&r.bed);
	bed_add(&r.bed, FABRIC_CA, 1, "h1 ib0");
	bed_add(&r.bed, FABRIC_CA, 1, "h2 ib0");
	bed_connect(&r.bed, 0, 1, 1, 1);
	bed_up(&r.bed);
	rig_take(&r);
	sm = rig_add(&r, bed_port(&r.bed, 1, 1));
	rig_settle(&r, sm, 100);
	rig_check_active(&r);
	assert_int_equal(rig_check_pairs(&r), 2);
	/* its own port tells of a cable that is pulled and plugged in again */
	assert_int_equal(fabric_link_set(r.bed.f, bed_port(&r.bed, 0, 1), false), 0);
	sm_wake(sm);
	rig_settle(&r, sm, 1000);
	assert_int_equal(fabric_link_set(r.bed.f, bed_port(&r.bed, 0, 1), true), 0);
	sm_wake(sm);
	rig_settle(&r, sm, 1000);
	rig_check_active(&r);
	rig_end(&r);
}

static void sweep__a_host_without_a_cable(void **state)
{
	struct sm *sm;

	(void)state;
	memset(&r, 0, sizeof(r));
	bed_begin(&r.bed);
	bed_add(&r.bed, FABRIC_CA, 2, "h1 ib0");
	bed_up(&r.bed);
	rig_take(&r);
	sm = rig_add(&r, bed_port(&r.bed, 0, 2));
	rig_settle(&r, sm, 100);
	assert_int_equal(rig_report(sm).nodes, 1);
	assert_int_not_equal(rig_lid(&r, bed_port(&r.bed, 0, 2)), 0);
	rig_end(&r);
}

static void sweep__hundreds_of_hosts(void **state)
{
	static const char *const specs[] = { "fat-tree:6x18", "torus:4x4x2,hosts=4",
					     "dragonfly:4x4x2", "mesh:5x5", "fat-tree:3x6x8" };

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(specs); i++) {
		struct sm *sm;
		u64 links = 0;

		rig_begin(&r, specs[i]);
		sm = rig_add(&r, rig_place(&r));
		rig_settle(&r, sm, 1000);
		rig_check_active(&r);
		assert_true(rig_check_pairs(&r) > 100);
		/* Each port and node costs a bounded number of SMPs, each table its blocks. */
		links = r.bed.topo.link_count;
		assert_true(r.sms[0].sent < 20 * (links + r.bed.topo.port_count));
		rig_end(&r);
	}
}

/* The routes of so many switches are computed in parts. */
static void sweep__a_silent_host_keeps_nobody_from_routes(void **state)
{
	struct sm *sm;

	(void)state;
	rig_begin(&r, "mesh:11x11");
	sm = rig_add(&r, rig_place(&r));
	r.mute_guid = rig_guid(&r, rig_host(&r, 60));
	rig_run(&r, 20000);
	assert_int_equal(rig_report(sm).sweeps, 0); /* none was without flaw */
	assert_int_equal(rig_check_pairs(&r), 120 * 119);
	r.mute_guid = 0;
	rig_settle(&r, sm, 100000);
	assert_int_equal(rig_check_pairs(&r), 121 * 120);
	rig_end(&r);
}

static void sweep__nothing_is_set_twice(void **state)
{
	struct sm *sm;
	u64 first, generation;

	(void)state;
	rig_begin(&r, "fat-tree:6x18");
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	first = r.sms[0].sent;
	generation = fabric_generation(r.bed.v);
	sm_wake(sm);
	rig_settle(&r, sm, 1000);
	assert_int_equal(rig_report(sm).sweeps, 2);
	assert_true(r.sms[0].sent - first < first);
	assert_int_equal(fabric_generation(r.bed.v), generation);
	/* at rest: a light sweep each ten seconds */
	first = r.sms[0].sent;
	rig_run(&r, 60000);
	assert_true(r.sms[0].sent - first <= 6 * 2 * r.bed.topo.node_count);
	rig_end(&r);
}

static void sweep__lids_stay(void **state)
{
	struct sm *sm;
	u16 before[108];

	(void)state;
	rig_begin(&r, "fat-tree:6x18");
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	for (u32 i = 0; i < 108; i++)
		before[i] = rig_lid(&r, rig_host(&r, i));
	/* a restart of its node takes a port's LID */
	assert_int_equal(fabric_node_reboot(r.bed.f, r.bed.f->port[rig_host(&r, 50)].node), 0);
	assert_int_equal(rig_lid(&r, rig_host(&r, 50)), 0);
	rig_run(&r, 3000);
	/* another SM keeps what is there */
	rig_kill(&r, 0);
	sm = rig_add(&r, rig_host(&r, 107));
	rig_settle(&r, sm, 1000);
	for (u32 i = 0; i < 108; i++)
		assert_int_equal(before[i], rig_lid(&r, rig_host(&r, i)));
	rig_check_active(&r);
	rig_end(&r);
}

/* While others are free nobody gets the LID of a port that is away. */
static void sweep__the_lid_of_an_absent_port_stays(void **state)
{
	u32 away, late;
	struct sm *sm;
	u16 lid;

	(void)state;
	rig_begin(&r, "star:4");
	away = rig_host(&r, 1);
	late = rig_host(&r, 3);
	assert_int_equal(fabric_link_set(r.bed.f, late, false), 0);
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	lid = rig_lid(&r, away);
	assert_int_not_equal(lid, 0);
	/* without a cable it restarts, and knows of no LID when it comes back */
	assert_int_equal(fabric_link_set(r.bed.f, away, false), 0);
	assert_int_equal(fabric_node_reboot(r.bed.f, r.bed.f->port[away].node), 0);
	assert_int_equal(fabric_link_set(r.bed.f, late, true), 0);
	rig_run(&r, 3000);
	assert_int_not_equal(rig_lid(&r, late), 0);
	assert_int_not_equal(rig_lid(&r, late), lid);
	assert_int_equal(rig_lid(&r, away), 0);
	assert_int_equal(fabric_link_set(r.bed.f, away, true), 0);
	rig_run(&r, 3000);
	assert_int_equal(rig_lid(&r, away), lid);
	rig_end(&r);
}

static void sweep__two_ports_with_one_lid(void **state)
{
	struct sm *sm;

	(void)state;
	rig_begin(&r, "star:4");
	for (u32 i = 1; i <= 4; i++)
		r.bed.f->port[bed_port(&r.bed, i, 1)].lid = i < 3 ? 7 : 0xfffe;
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	assert_int_equal(rig_check_pairs(&r), 12);
	rig_end(&r);
}

static void sweep__a_link_fails(void **state)
{
	struct sm *sm;

	(void)state;
	rig_begin(&r, "torus:3x3,hosts=1");
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	for (u32 i = 0; i < r.bed.topo.link_count; i++) {
		const struct topo_link *l = &r.bed.topo.links[i];
		u32 port = bed_port(&r.bed, l->node_a, l->port_a);

		assert_int_equal(fabric_link_set(r.bed.f, port, false), 0);
		rig_run(&r, 100);
		rig_settle(&r, sm, 2000);
		rig_check_pairs(&r);
		assert_int_equal(fabric_link_set(r.bed.f, port, true), 0);
		rig_run(&r, 1500); /* a trap that found no way comes again */
		rig_settle(&r, sm, 2000);
		rig_check_active(&r);
	}
	assert_int_equal(rig_check_pairs(&r), 72);
	rig_end(&r);
}

static void sweep__switches_restart(void **state)
{
	struct sm *sm;

	(void)state;
	rig_begin(&r, "fat-tree:4x4");
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	for (u32 i = 0; i < r.bed.topo.node_count; i++) {
		assert_int_equal(fabric_node_reboot(r.bed.f, i), 0);
		sm_wake(sm); /* as the host of an SM whose switch restarts does */
		rig_run(&r, 1500);
		rig_settle(&r, sm, 12000);
		rig_check_active(&r);
		assert_int_equal(rig_check_pairs(&r), 240);
	}
	rig_end(&r);
}

static void sweep__random_topologies_and_faults(void **state)
{
	(void)state;
	for (u64 seed = 1; seed <= 25; seed++) {
		char spec[64];
		u64 lot = seed, sent;
		struct sm *sm;

		snprintf(spec, sizeof(spec), "random:%ux%u,seed=%u", 2 + random_below(&lot, 8),
			 2 + random_below(&lot, 20), (u32)seed);
		rig_begin(&r, spec);
		sm = rig_add(&r, rig_place(&r));
		rig_settle(&r, sm, 1000);
		rig_check_active(&r);
		for (u32 i = 0; i < 12; i++) {
			u32 link = random_below(&lot, r.bed.topo.link_count);
			const struct topo_link *l = &r.bed.topo.links[link];

			fabric_link_set(r.bed.f, bed_port(&r.bed, l->node_a, l->port_a),
					random_below(&lot, 2) != 0);
			rig_run(&r, random_below(&lot, 4));
		}
		sent = r.sms[0].sent;
		rig_run(&r, 15000);
		rig_check_pairs(&r);
		/* some sweeps, and no more */
		assert_true(r.sms[0].sent - sent <
			    40 * (r.bed.topo.link_count + r.bed.topo.port_count));
		rig_end(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sweep__two_hosts_at_a_switch),
		cmocka_unit_test(sweep__two_hosts_without_a_switch),
		cmocka_unit_test(sweep__a_host_without_a_cable),
		cmocka_unit_test(sweep__hundreds_of_hosts),
		cmocka_unit_test(sweep__a_silent_host_keeps_nobody_from_routes),
		cmocka_unit_test(sweep__nothing_is_set_twice),
		cmocka_unit_test(sweep__lids_stay),
		cmocka_unit_test(sweep__the_lid_of_an_absent_port_stays),
		cmocka_unit_test(sweep__two_ports_with_one_lid),
		cmocka_unit_test(sweep__a_link_fails),
		cmocka_unit_test(sweep__switches_restart),
		cmocka_unit_test(sweep__random_topologies_and_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
