/* sweep_test.c: a subnet manager brings random fabrics up; then every pair of ports has a route.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "fabric/format.h"
#include "fabric/test_support/sm.h"

static u32 random_below(u64 *seed, u32 n)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)(*seed >> 33) % n;
}

/* A connected graph of switches, and CAs on some of their ports. Node 0 is a CA. */
static void random_fabric(struct bed *b, u64 seed)
{
	u32 switches = 1 + random_below(&seed, 8), hosts = 2 + random_below(&seed, 20);
	u8 used[9] = { 0 };
	char desc[TOPO_DESC_BYTES];

	bed_begin(b);
	bed_add(b, FABRIC_CA, 1, "h1 ib0");
	for (u32 i = 1; i <= switches; i++)
		bed_add(b, FABRIC_SWITCH, 36, "switch");
	for (u32 i = 2; i <= switches; i++) {
		u32 other = 1 + random_below(&seed, i - 1);

		bed_connect(b, i, ++used[i], other, ++used[other]);
	}
	for (u32 i = 0; i < switches && switches > 1; i++) {
		u32 x = 1 + random_below(&seed, switches), y = 1 + random_below(&seed, switches);

		if (x != y)
			bed_connect(b, x, ++used[x], y, ++used[y]);
	}
	bed_connect(b, 0, 1, 1, ++used[1]);
	for (u32 i = 2; i <= hosts; i++) {
		u32 at = 1 + random_below(&seed, switches), node;

		if (used[at] == 36)
			continue;
		snprintf(desc, sizeof(desc), "h%u ib0", i);
		node = bed_add(b, FABRIC_CA, 1, desc);
		bed_connect(b, node, 1, at, ++used[at]);
	}
	bed_up(b);
}

static void every_pair_has_a_route(struct bed *b)
{
	for (u32 i = 0; i < b->topo.node_count; i++)
		for (u32 k = 0; k < b->topo.node_count; k++) {
			struct fabric_path path;
			struct fabric_flow w = { .pkey = 0xffff };
			u32 from = bed_port(b, i, 1), to = bed_port(b, k, 1);

			if (b->topo.nodes[i].type != FABRIC_CA ||
			    b->topo.nodes[k].type != FABRIC_CA)
				continue;
			w.dlid = b->f->port[to].lid;
			assert_int_equal(fabric_route(b->v, from, &w, &path), 0);
			assert_int_equal(path.to, to);
			assert_true(i == k ? path.hops == 0 : path.hops >= 2);
			if (i != k)
				assert_int_equal(path.through[0].out, from);
		}
}

static void sweep__random_fabrics_come_up(void **state)
{
	(void)state;
	for (u64 seed = 1; seed <= 40; seed++) {
		static struct bed b;

		random_fabric(&b, seed);
		assert_int_equal(sm_sweep(&b, bed_port(&b, 0, 1)), b.topo.node_count);
		every_pair_has_a_route(&b);
		bed_again(&b);
		every_pair_has_a_route(&b);
		bed_end(&b);
	}
}

static void sweep__rebooted_switch_comes_back_by_the_next_one(void **state)
{
	static struct bed b;
	struct fabric_path path;
	struct fabric_flow w = { .pkey = 0xffff };
	u64 generation;

	(void)state;
	random_fabric(&b, 3);
	sm_sweep(&b, bed_port(&b, 0, 1));
	w.dlid = b.f->port[bed_port(&b, b.topo.node_count - 1, 1)].lid;
	generation = fabric_generation(b.v);
	assert_int_equal(fabric_node_reboot(b.f, 1), 0);
	assert_true(fabric_generation(b.v) > generation);
	assert_int_equal(fabric_route(b.v, bed_port(&b, 0, 1), &w, &path), -101);
	assert_int_equal(b.f->port[bed_port(&b, 0, 1)].state, FABRIC_INIT);
	assert_int_equal(sm_sweep(&b, bed_port(&b, 0, 1)), b.topo.node_count);
	every_pair_has_a_route(&b);
	bed_end(&b);
}

static void sweep__lid_routed_smps_reach_every_node(void **state)
{
	static struct bed b;

	(void)state;
	random_fabric(&b, 5);
	sm_sweep(&b, bed_port(&b, 0, 1));
	for (u32 i = 0; i < b.topo.node_count; i++) {
		u32 home = bed_port(&b, i, b.topo.nodes[i].type == FABRIC_SWITCH ? 0 : 1);
		const struct fabric_mad *m = sm_by_lid(&b, bed_port(&b, 0, 1),
						       b.f->port[home].lid, METHOD_GET,
						       ATTR_NODE_INFO, 0, NULL);

		assert_non_null(m);
		assert_int_equal(wire_get64(m->mad + MAD_DATA + 12), b.topo.nodes[i].guid);
	}
	bed_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sweep__random_fabrics_come_up),
		cmocka_unit_test(sweep__rebooted_switch_comes_back_by_the_next_one),
		cmocka_unit_test(sweep__lid_routed_smps_reach_every_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
