/* manager_test.c: several subnet managers agree which one is the master; one that lies stops
 * nobody for long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "fabric/format.h"
#include "sm/test_support/rig.h"

static struct rig r;

static enum sm_state state_of(u32 i)
{
	return rig_report(r.sms[i].sm).state;
}

/* All CAs know the same SM. */
static void check_master(u32 port)
{
	for (u32 i = 0; i < r.bed.topo.port_count; i++)
		if (r.bed.f->port[i].lid != 0)
			assert_int_equal(r.bed.f->port[i].sm_lid, rig_lid(&r, port));
}

static void manager__the_lower_guid_is_the_master(void **state)
{
	(void)state;
	rig_begin(&r, "star:4");
	rig_add(&r, rig_place(&r));
	rig_add(&r, rig_host(&r, 2));
	rig_add(&r, rig_host(&r, 1));
	rig_run(&r, 20000);
	assert_int_equal(state_of(0), SM_STANDBY);
	assert_int_equal(state_of(1), SM_STANDBY);
	assert_int_equal(state_of(2), SM_MASTER);
	rig_check_active(&r);
	check_master(rig_host(&r, 1));
	rig_end(&r);
}

static void manager__a_higher_one_takes_over_and_dies(void **state)
{
	u16 lid;

	(void)state;
	rig_begin(&r, "fat-tree:4x4");
	rig_add(&r, rig_place(&r));
	rig_settle(&r, r.sms[0].sm, 1000);
	lid = rig_lid(&r, rig_host(&r, 9));
	rig_add(&r, rig_host(&r, 3));
	rig_run(&r, 3000);
	assert_int_equal(state_of(0), SM_STANDBY);
	assert_int_equal(state_of(1), SM_MASTER);
	check_master(rig_host(&r, 3));
	r.bed.changed_what = 0;
	rig_kill(&r, 1);
	rig_run(&r, 3000);
	assert_int_equal(state_of(0), SM_MASTER);
	check_master(rig_place(&r));
	/* clients register again at the new one */
	assert_int_not_equal(r.bed.changed_what & FABRIC_CHANGED_REREGISTER, 0);
	assert_int_equal(rig_lid(&r, rig_host(&r, 9)), lid);
	rig_check_pairs(&r);
	rig_end(&r);
}

static void lie(u32 port, u8 says, u64 guid)
{
	r.liar = port;
	r.liar_state = says;
	r.liar_guid = guid;
	fabric_set_issm(r.bed.f, port, true);
}

/* Returns the MLID. */
static u16 join(u32 port)
{
	static const u8 mgid[16] = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 1 };
	u8 w[200] = { 0 };
	const struct fabric_mad *m;

	memcpy(w, mgid, sizeof(mgid));
	wire_put64(w + 16, 0xfe80000000000000ull);
	wire_put64(w + 24, rig_guid(&r, port));
	wire_put32(w + 32, 1);
	wire_put16(w + 40, 0xffff);
	w[48] = 0x21;
	m = rig_ask(&r, port, METHOD_SET, 0x38, 0x130c7, w);
	assert_int_equal(rig_status(m), 0);
	return wire_get16(m->mad + 56 + 36);
}

/* A master that was one before gives nobody what was for the groups that it had then. */
static void manager__groups_end_with_their_master(void **state)
{
	struct fabric_flow w = { .pkey = 0xffff };
	u32 to[4], a, b;
	u16 mlid;

	(void)state;
	rig_begin(&r, "fat-tree:4x4");
	rig_add(&r, rig_place(&r));
	rig_settle(&r, r.sms[0].sm, 1000);
	a = rig_host(&r, 1);
	b = rig_host(&r, 9);
	mlid = join(a);
	assert_int_equal(join(b), mlid);
	assert_int_equal(fabric_mcast_route(r.bed.v, a, mlid, &w, to, 4), 1);
	lie(rig_host(&r, 3), SM_DISCOVERING, rig_guid(&r, rig_host(&r, 3)));
	rig_run(&r, 1000);
	r.liar_state = SM_STANDBY;
	rig_run(&r, 1000);
	assert_int_equal(state_of(0), SM_STANDBY);
	rig_run(&r, 10000);
	assert_int_equal(state_of(0), SM_MASTER);
	assert_int_equal(fabric_mcast_route(r.bed.v, a, mlid, &w, to, 4), 0);
	rig_end(&r);
}

/* Another one was the master while this one was stopped: switches have its tables, and hosts have
 * registered with it. */
static void go_on(bool other_dies)
{
	struct fabric_flow w = { .pkey = 0xffff };
	u32 to[4], a, b;
	u16 mlid;

	rig_begin(&r, "fat-tree:4x4");
	rig_add(&r, rig_host(&r, 3));
	rig_add(&r, rig_place(&r));
	rig_run(&r, 3000);
	assert_int_equal(state_of(0), SM_MASTER);
	a = rig_host(&r, 1);
	b = rig_host(&r, 9);
	mlid = join(a);
	r.sms[0].deaf = true;
	rig_run(&r, 8000);
	assert_int_equal(state_of(1), SM_MASTER);
	assert_int_equal(join(a), mlid);
	assert_int_equal(join(b), mlid);
	r.sms[0].deaf = false;
	sm_wake(r.sms[0].sm);
	if (other_dies)
		rig_kill(&r, 1);
	else
		sm_wake(r.sms[1].sm);
	r.bed.changed_what = 0;
	rig_run(&r, 15000);
	assert_int_equal(state_of(0), SM_MASTER);
	if (!other_dies)
		assert_int_equal(state_of(1), SM_STANDBY);
	assert_int_not_equal(r.bed.changed_what & FABRIC_CHANGED_REREGISTER, 0);
	assert_int_equal(fabric_mcast_route(r.bed.v, a, mlid, &w, to, 4), 0);
	assert_int_equal(join(a), mlid);
	assert_int_equal(join(b), mlid);
	assert_int_equal(fabric_mcast_route(r.bed.v, a, mlid, &w, to, 4), 1);
	rig_end(&r);
}

static void manager__one_that_goes_on_begins_anew(void **state)
{
	(void)state;
	go_on(false);
}

/* Nobody hands over: the SM's LID in PortInfo tells of the other one. */
static void manager__one_that_goes_on_when_the_other_has_died(void **state)
{
	(void)state;
	go_on(true);
}

static void manager__one_that_does_not_answer_is_replaced(void **state)
{
	(void)state;
	rig_begin(&r, "star:4");
	rig_add(&r, rig_host(&r, 0));
	rig_settle(&r, r.sms[0].sm, 1000);
	rig_add(&r, rig_place(&r));
	rig_run(&r, 3000);
	assert_int_equal(state_of(1), SM_STANDBY);
	r.sms[0].deaf = true; /* as one that is stopped */
	rig_run(&r, 8000);
	assert_int_equal(state_of(1), SM_MASTER);
	/* it goes on: two masters, of which the lower hands over */
	r.sms[0].deaf = false;
	sm_wake(r.sms[0].sm);
	sm_wake(r.sms[1].sm);
	rig_run(&r, 15000);
	assert_int_equal(state_of(0), SM_MASTER);
	assert_int_equal(state_of(1), SM_STANDBY);
	check_master(rig_host(&r, 0));
	rig_end(&r);
}

/* A subnet of two switches with three hosts each, in two parts. Returns the cable between them. */
static const struct topo_link *begin_parts(void)
{
	const struct topo_link *l = NULL;

	rig_begin(&r, "mesh:2,hosts=3");
	for (u32 i = 0; i < r.bed.topo.link_count; i++)
		if (r.bed.topo.nodes[r.bed.topo.links[i].node_a].type == FABRIC_SWITCH &&
		    r.bed.topo.nodes[r.bed.topo.links[i].node_b].type == FABRIC_SWITCH)
			l = &r.bed.topo.links[i];
	assert_non_null(l);
	fabric_link_set(r.bed.f, bed_port(&r.bed, l->node_a, l->port_a), false);
	return l;
}

static void manager__two_parts_become_one(void **state)
{
	const struct topo_link *l;
	u32 cable;

	(void)state;
	l = begin_parts();
	cable = bed_port(&r.bed, l->node_a, l->port_a);
	rig_add(&r, bed_port(&r.bed, l->node_a, 0));
	rig_add(&r, bed_port(&r.bed, l->node_b, 0));
	rig_run(&r, 2000);
	assert_int_equal(state_of(0), SM_MASTER);
	assert_int_equal(state_of(1), SM_MASTER);
	assert_int_equal(rig_check_pairs(&r), 12); /* with the same LIDs in both */
	for (u32 i = 0; i < 3; i++) {
		fabric_link_set(r.bed.f, cable, true);
		rig_run(&r, 20000);
		assert_int_equal(state_of(0) + state_of(1), SM_MASTER + SM_STANDBY);
		assert_int_equal(rig_check_pairs(&r), 30);
		fabric_link_set(r.bed.f, cable, false);
		rig_run(&r, 20000);
		assert_int_equal(state_of(0), SM_MASTER);
		assert_int_equal(state_of(1), SM_MASTER);
		assert_int_equal(rig_check_pairs(&r), 12);
	}
	rig_end(&r);
}

/* The master of one part finds two that rank higher, the other part's master and its standby: it
 * hands over to the highest, which is the master. The standby obeys nobody else. */
static void manager__hands_over_to_the_highest(void **state)
{
	const struct topo_link *l;
	u64 faults;

	(void)state;
	l = begin_parts();
	rig_add(&r, rig_host(&r, 5));
	rig_add(&r, rig_host(&r, 0));
	rig_add(&r, rig_host(&r, 1));
	rig_run(&r, 5000);
	assert_int_equal(state_of(0), SM_MASTER);
	assert_int_equal(state_of(1), SM_MASTER);
	assert_int_equal(state_of(2), SM_STANDBY);
	faults = rig_report(r.sms[0].sm).faults;
	fabric_link_set(r.bed.f, bed_port(&r.bed, l->node_a, l->port_a), true);
	rig_run(&r, 20000);
	assert_int_equal(state_of(0), SM_STANDBY);
	assert_int_equal(state_of(1), SM_MASTER);
	assert_int_equal(rig_report(r.sms[0].sm).faults, faults);
	rig_end(&r);
}

static void manager__one_that_never_becomes_the_master(void **state)
{
	u32 masters = 0;

	(void)state;
	rig_begin(&r, "star:4");
	lie(rig_host(&r, 2), SM_STANDBY, rig_guid(&r, rig_host(&r, 2)));
	rig_add(&r, rig_place(&r));
	rig_run(&r, 10000);
	assert_int_equal(state_of(0), SM_MASTER);
	rig_check_active(&r);
	for (u32 i = 0; i < 300; i++) {
		rig_run(&r, 1000);
		masters += state_of(0) == SM_MASTER;
	}
	/* it gives each such one a try now and then: 5 polls of one minute */
	assert_in_range(masters, 251, 295);
	rig_end(&r);
}

/* Polls that find no master replace it only in a row. */
static void manager__one_that_is_the_master_now_and_then(void **state)
{
	(void)state;
	rig_begin(&r, "star:4");
	lie(rig_host(&r, 2), SM_MASTER, rig_guid(&r, rig_host(&r, 2)));
	rig_add(&r, rig_place(&r));
	rig_run(&r, 3000);
	for (u32 i = 0; i < 40; i++) {
		r.liar_state = i % 4 == 0 ? SM_MASTER : SM_STANDBY;
		rig_run(&r, 1000);
		assert_int_equal(state_of(0), SM_STANDBY);
	}
	r.liar_state = SM_STANDBY;
	rig_run(&r, 7000);
	assert_int_equal(state_of(0), SM_MASTER);
	rig_end(&r);
}

static void manager__one_that_only_says_that_it_is_the_master(void **state)
{
	u32 liar;

	(void)state;
	rig_begin(&r, "star:4");
	liar = rig_host(&r, 2);
	lie(liar, SM_MASTER, rig_guid(&r, liar));
	rig_add(&r, rig_place(&r));
	rig_run(&r, 10000);
	assert_int_equal(state_of(0), SM_STANDBY);
	r.liar = 0;
	fabric_set_issm(r.bed.f, liar, false);
	rig_run(&r, 3000);
	assert_int_equal(state_of(0), SM_MASTER);
	rig_check_active(&r);
	rig_end(&r);
}

static void manager__nonsense_is_ignored(void **state)
{
	(void)state;
	for (u32 i = 0; i < 3; i++) {
		rig_begin(&r, "star:4");
		lie(rig_host(&r, 2), i == 0 ? 15 : SM_MASTER,
		    i == 1 ? 0 : rig_guid(&r, rig_place(&r)));
		rig_add(&r, rig_place(&r));
		rig_run(&r, 3000);
		assert_int_equal(state_of(0), SM_MASTER);
		rig_check_active(&r);
		rig_end(&r);
	}
}

/* A Set of SMInfo from a host. Returns the answer's status. */
static u16 set_sm_info(u32 from, u32 to, u32 modifier, u64 guid)
{
	struct fabric_mad m = { .dlid = rig_lid(&r, to) };

	m.mad[MAD_BASE_VERSION] = m.mad[MAD_CLASS_VERSION] = 1;
	m.mad[MAD_CLASS] = CLASS_SMP_LID;
	m.mad[MAD_METHOD] = METHOD_SET;
	wire_put64(m.mad + MAD_TID, ++r.tid);
	wire_put16(m.mad + MAD_ATTRIBUTE, ATTR_SM_INFO);
	wire_put32(m.mad + MAD_MODIFIER, modifier);
	wire_put64(m.mad + MAD_DATA, guid);
	m.mad[MAD_DATA + 20] = 0xf0 | SM_MASTER;
	r.answers = 0;
	fabric_send(r.bed.f, from, &m);
	rig_run(&r, 20);
	assert_true(r.answers > 0);
	return rig_status(&r.answer[r.answers - 1]);
}

static void manager__only_the_master_gives_orders(void **state)
{
	u32 master, standby;

	(void)state;
	rig_begin(&r, "star:4");
	master = rig_host(&r, 0);
	standby = rig_place(&r);
	rig_add(&r, master);
	rig_add(&r, standby);
	rig_run(&r, 5000);
	assert_int_equal(state_of(1), SM_STANDBY);
	/* hand over, disable: from nobody */
	assert_int_not_equal(set_sm_info(rig_host(&r, 2), standby, 1, 77), 0);
	assert_int_not_equal(set_sm_info(rig_host(&r, 2), standby, 3, 77), 0);
	assert_int_not_equal(set_sm_info(rig_host(&r, 2), master, 3, 77), 0);
	assert_int_not_equal(set_sm_info(rig_host(&r, 2), master, 9, 77), 0);
	assert_int_equal(state_of(1), SM_STANDBY);
	assert_int_equal(set_sm_info(rig_host(&r, 2), standby, 3, rig_guid(&r, master)), 0);
	assert_int_equal(state_of(1), SM_NOT_ACTIVE);
	assert_int_equal(set_sm_info(rig_host(&r, 2), standby, 4, rig_guid(&r, master)), 0);
	rig_run(&r, 3000);
	assert_int_equal(state_of(1), SM_STANDBY);
	assert_int_equal(state_of(0), SM_MASTER);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(manager__the_lower_guid_is_the_master),
		cmocka_unit_test(manager__a_higher_one_takes_over_and_dies),
		cmocka_unit_test(manager__groups_end_with_their_master),
		cmocka_unit_test(manager__one_that_goes_on_begins_anew),
		cmocka_unit_test(manager__one_that_goes_on_when_the_other_has_died),
		cmocka_unit_test(manager__one_that_does_not_answer_is_replaced),
		cmocka_unit_test(manager__two_parts_become_one),
		cmocka_unit_test(manager__hands_over_to_the_highest),
		cmocka_unit_test(manager__one_that_never_becomes_the_master),
		cmocka_unit_test(manager__one_that_is_the_master_now_and_then),
		cmocka_unit_test(manager__one_that_only_says_that_it_is_the_master),
		cmocka_unit_test(manager__nonsense_is_ignored),
		cmocka_unit_test(manager__only_the_master_gives_orders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
