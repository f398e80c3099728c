/* fabric_random.c: random fabrics with subnet managers in virtual time: cables are pulled and
 * plugged in, nodes restart, groups end and others take their MLIDs, managers go and return. At
 * rest every two hosts that are connected have a route both ways, multicast reaches all members and
 * nobody else, and few MADs were needed. A route that a process keeps while the generation stays
 * has no dead link: data counts at none.
 *
 * usage: fabric_random FIRST LAST (seeds)
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
#include "fabric/format.h"
#include "fabric_random.h"

enum {
	MEMBERS = 12,
	MLIDS = 16, /* that the seed may have used: from the first on */
	KEPT = 16,
	SET = 2,
	NO_RESOURCES = 0x0100,
	REMOVE = 0x15,
	GROUPS = 0x38,
};

struct rig r;
static u64 lot;
static u64 first_seed, last_seed;

u32 random_below(u32 n)
{
	lot = lot * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(lot >> 33) % n;
}

static void random_topology(char *out, size_t size)
{
	switch (random_below(5)) {
	case 0:
		snprintf(out, size, "torus:%ux%u,hosts=%u", 2 + random_below(4),
			 2 + random_below(4), 1 + random_below(2));
		break;
	case 1:
		snprintf(out, size, "mesh:%ux%u", 1 + random_below(5), 2 + random_below(4));
		break;
	case 2:
		snprintf(out, size, "fat-tree:%ux%u", 2 + random_below(5), 1 + random_below(6));
		break;
	case 3:
		snprintf(out, size, "dragonfly:3x%ux1", 1 + random_below(3));
		break;
	default:
		snprintf(out, size, "random:%ux%u,seed=%u", 1 + random_below(10),
			 2 + random_below(24), random_below(1000000));
		break;
	}
}

u32 random_ca(void)
{
	for (;;) {
		u32 node = random_below(r.bed.topo.node_count);

		if (r.bed.topo.nodes[node].type == FABRIC_CA)
			return bed_port(&r.bed, node, 1);
	}
}

static void group_record(u8 w[200], u32 port, u32 group)
{
	static const u8 mgid[15] = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff };

	memset(w, 0, 200);
	memcpy(w, mgid, 15);
	w[15] = (u8)(1 + group);
	wire_put64(w + 16, 0xfe80000000000000ull);
	wire_put64(w + 24, rig_guid(&r, port));
	wire_put32(w + 32, 1);
	wire_put16(w + 40, 0xffff);
	w[48] = 0x21;
}

const struct fabric_mad *ask_to_join(u32 port, u32 group)
{
	u8 w[200];

	group_record(w, port, group);
	again_note(port);
	again_note_member(port, group, true);
	return rig_ask(&r, port, SET, GROUPS, 0x130c7, w);
}

const struct fabric_mad *ask_to_leave(u32 port, u32 group)
{
	const struct fabric_mad *m;
	u8 w[200];

	group_record(w, port, group);
	again_note(port);
	m = rig_ask(&r, port, REMOVE, GROUPS, 0x10003, w);
	if (m != NULL)
		again_note_member(port, group, false);
	return m;
}

static void join(u32 port)
{
	u16 status;

	if (r.bed.f->port[port].state != FABRIC_ACTIVE)
		return;
	status = rig_status(ask_to_join(port, random_below(GROUPS_MADE)));
	if (status != 0)
		assert_int_equal(status, NO_RESOURCES);
}

static void leave(u32 port, u32 group)
{
	if (r.bed.f->port[port].state == FABRIC_ACTIVE)
		(void)ask_to_leave(port, group);
}

/* Hosts join and leave in the middle of faults, or all hosts leave a group, which ends, and gives
 * its MLID to the next one. The SA may refuse, or be out of reach. */
static void change_members(void)
{
	u32 group = random_below(GROUPS_MADE);
	bool all = random_below(4) == 0;

	for (u32 i = 0; i < r.bed.topo.node_count && all; i++)
		if (r.bed.topo.nodes[i].type == FABRIC_CA)
			leave(bed_port(&r.bed, i, 1), group);
	for (u32 i = random_below(4); i > 0; i--) {
		u32 port = random_ca(), other = random_below(GROUPS_MADE);

		if (r.bed.f->port[port].state == FABRIC_ACTIVE)
			(void)ask_to_join(port, other);
		leave(random_ca(), random_below(GROUPS_MADE));
	}
}

static u32 port_of(u64 guid)
{
	for (u32 i = 0; i < r.bed.topo.port_count; i++)
		if (rig_guid(&r, i) == guid && r.bed.f->port[i].number != 0)
			return i;
	fail();
	return 0;
}

/* From each member to each other one, and to nobody else. Returns the MLID; 0: no such group. */
static u16 check_group(u32 from, u32 group)
{
	static u8 rec[64][52];
	u32 to[64], count, found = 0;
	struct fabric_flow w = { .pkey = 0xffff };
	u8 want[200];

	group_record(want, from, group);
	again_note(from);
	count = rig_table(&r, from, GROUPS, 1, want, rec[0], 52, 64);
	for (u32 i = 0; i < count; i++)
		found += wire_get64(rec[i] + 24) != 0;
	for (u32 i = 0; i < count; i++) {
		if (wire_get64(rec[i] + 24) == 0)
			continue;
		assert_int_equal(fabric_mcast_route(r.bed.v, port_of(wire_get64(rec[i] + 24)),
						    wire_get16(rec[i] + 36), &w, to, 64),
				 found - 1);
	}
	return count != 0 ? wire_get16(rec[0] + 36) : 0;
}

void check_groups(u32 from)
{
	bool used[MLIDS] = { true }; /* the first is the broadcast group's */
	struct fabric_flow w = { .pkey = 0xffff };
	u32 to[64];

	for (u32 i = 0; i < GROUPS_MADE; i++) {
		u16 mlid = check_group(from, i);

		if (mlid == 0)
			continue;
		assert_in_range(mlid, FABRIC_MLID_FIRST, FABRIC_MLID_FIRST + MLIDS - 1);
		used[mlid - FABRIC_MLID_FIRST] = true;
	}
	for (u32 i = 0; i < MLIDS; i++)
		if (!used[i])
			assert_int_equal(fabric_mcast_route(r.bed.v, from,
							    (u16)(FABRIC_MLID_FIRST + i), &w, to,
							    64),
					 0);
}

/* ---- routes that processes keep -------------------------------------------------------------- */

static struct fabric_path kept[KEPT];
static u32 kept_count;

static void keep_routes(void)
{
	kept_count = 0;
	for (u32 i = 0; i < KEPT; i++) {
		u32 to = random_ca();
		struct fabric_flow w = { .pkey = 0xffff, .dlid = r.bed.f->port[to].lid };

		if (fabric_route(r.bed.v, random_ca(), &w, &kept[kept_count]) == 0)
			kept_count++;
	}
}

/* Data is charged along a kept route as long as it is valid. */
static void check_kept(void)
{
	for (u32 i = 0; i < kept_count; i++) {
		const struct fabric_path *p = &kept[i];
		bool valid = p->generation == (u32)fabric_generation(r.bed.v);

		for (u32 k = 0; k < p->hops && valid; k++) {
			const struct fabric_port_rec *out = &r.bed.f->port[p->through[k].out];
			const struct fabric_port_rec *in = &r.bed.f->port[p->through[k].in];

			assert_int_equal((out->flags | in->flags) & FABRIC_PORT_CUT, 0);
			assert_int_equal(out->state, FABRIC_ACTIVE);
			assert_true(in->state >= FABRIC_ARMED);
		}
	}
}

static void fault(void)
{
	u32 n = random_below(r.bed.topo.link_count);
	const struct topo_link *l = &r.bed.topo.links[n];

	if (random_below(6) == 0) {
		assert_int_equal(fabric_node_reboot(r.bed.f, l->node_a), 0);
		for (u32 i = 0; i < r.sm_count; i++)
			if (r.sms[i].sm != NULL)
				sm_wake(r.sms[i].sm);
	} else {
		fabric_link_set(r.bed.f, bed_port(&r.bed, l->node_a, l->port_a),
				random_below(2) != 0);
	}
	check_kept();
	rig_run(&r, random_below(3) == 0 ? random_below(2000) : random_below(5));
	check_kept();
	if (random_below(2) == 0)
		keep_routes();
}

static u64 mads(void)
{
	u64 sum = 0;

	for (u32 i = 0; i < r.sm_count; i++)
		sum += r.sms[i].sent;
	return sum;
}

static void check_rest(void)
{
	u64 before = mads();
	u32 port = 0;

	rig_run(&r, 30000);
	(void)rig_check_pairs(&r);
	assert_true(mads() - before < 60 * (r.bed.topo.link_count + r.bed.topo.port_count));
	/* and then only the light sweeps' and polls' */
	before = mads();
	rig_run(&r, 30000);
	assert_true(mads() - before < 200 + 8 * r.bed.topo.node_count);
	for (u32 i = 0; i < r.bed.topo.node_count; i++)
		if (r.bed.topo.nodes[i].type == FABRIC_CA &&
		    again_master(bed_port(&r.bed, i, 1)) != NULL)
			port = bed_port(&r.bed, i, 1);
	if (port == 0)
		return;
	check_groups(port);
	again_rest(port);
}

static void one_seed(u64 seed)
{
	char spec[64];

	lot = seed * 0x9e3779b97f4a7c15ull;
	random_topology(spec, sizeof(spec));
	print_message("%llu: %s\n", (unsigned long long)seed, spec);
	rig_begin(&r, spec);
	again_begin();
	again_add(rig_place(&r));
	if (random_below(2) == 0)
		again_add(random_ca());
	rig_run(&r, 3000);
	rig_check_active(&r);
	for (u32 i = 0; i < MEMBERS; i++)
		join(random_ca());
	keep_routes();
	for (u32 i = random_below(16); i > 0; i--) {
		fault();
		change_members();
		again_strike();
	}
	again_return();
	check_rest();
	rig_end(&r);
}

static void fabric__is_whole_at_rest(void **state)
{
	(void)state;
	for (u64 seed = first_seed; seed <= last_seed; seed++)
		one_seed(seed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(fabric__is_whole_at_rest) };

	first_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	last_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : first_seed;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
