/* spec_test.c: generated topologies: their numbers, that every host reaches every other one, that
 * cables lie as each shape wants them, and that bad words have a place.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/topo/topo.h"

/* Hops from node 0; the farthest one's, or UINT32_MAX if one is not reached. */
static u32 farthest(const struct topo *t)
{
	u32 *hops = malloc(t->node_count * sizeof(*hops)), *queue;
	u32 head = 0, tail = 0, most = 0;

	queue = malloc(t->node_count * sizeof(*queue));
	assert_non_null(hops);
	assert_non_null(queue);
	memset(hops, 0xff, t->node_count * sizeof(*hops));
	hops[0] = 0;
	queue[tail++] = 0;
	while (head < tail) {
		u32 node = queue[head++], peer;
		u8 port;

		for (u32 p = 1; p <= t->nodes[node].ports; p++) {
			if (!topo_peer(t, node, (u8)p, &peer, &port) || hops[peer] != UINT32_MAX)
				continue;
			hops[peer] = hops[node] + 1;
			queue[tail++] = peer;
		}
	}
	for (u32 i = 0; i < t->node_count; i++)
		most = MAX(most, hops[i]);
	free(hops);
	free(queue);
	return most;
}

static void judge(const char *spec, u32 switches, u32 hosts, u32 links, u32 hops)
{
	u32 found[4] = { 0 };
	struct topo_error e;
	struct topo t;

	assert_int_equal(topo_generate(spec, &t, &e), 0);
	for (u32 i = 0; i < t.node_count; i++)
		found[t.nodes[i].type]++;
	assert_int_equal(found[FABRIC_SWITCH], switches);
	assert_int_equal(found[FABRIC_CA], hosts);
	assert_int_equal(t.link_count, links);
	assert_int_equal(farthest(&t), hops);
	topo_free(&t);
}

static void topo_generate__sizes(void **state)
{
	(void)state;
	judge("star:2", 1, 2, 2, 1);
	judge("star:64", 1, 64, 64, 1);
	judge("fat-tree:6x18", 6 + 3, 108, 108 * 2, 3);
	judge("fat-tree:36x18", 36 + 18, 648, 648 * 2, 3);
	judge("fat-tree:54x18", 54 + 54 + 36, 972, 972 * 3, 5);
	judge("fat-tree:288x18", 288 + 288 + 162, 5184, 5184 * 3, 5);
	judge("fat-tree:648x18", 648 + 648 + 324, 11664, 11664 * 3, 5);
	judge("fat-tree:8x16", 8 + 4, 128, 256, 3);
	judge("fat-tree:2x2x2,radix=4", 4 + 4 + 2, 8, 24, 5);
	judge("torus:4x4x2,hosts=2", 32, 64, 32 + 32 + 16 + 64, 6);
	judge("torus:5", 5, 5, 10, 3);
	judge("mesh:3x3", 9, 9, 12 + 9, 5);
	judge("dragonfly:4x2x2", 36, 72, 36 + 9 * 6 + 72, 4);
	judge("dragonfly:4x2x2x5", 20, 40, 10 + 5 * 6 + 40, 4);
}

static void topo_generate__names(void **state)
{
	struct topo_error e;
	struct topo t;
	u32 node;

	(void)state;
	assert_int_equal(topo_generate("fat-tree:2x2,speed=HDR", &t, &e), 0);
	node = topo_find(&t, "h3");
	assert_true(node != TOPO_NONE);
	assert_string_equal(t.nodes[node].desc, "h3 ib0");
	assert_int_equal(t.nodes[node].type, FABRIC_CA);
	assert_true(topo_port(&t, node, 1)->guid == t.nodes[node].guid + 1);
	assert_int_equal(topo_find(&t, "leaf2"), topo_find(&t, t.nodes[topo_find(&t, "leaf2")].id));
	for (u32 i = 0; i < t.link_count; i++)
		assert_int_equal(t.links[i].speed, TOPO_HDR);
	topo_free(&t);
}

/* On each switch of a torus the same port leads the same way. */
static void topo_generate__torus_ports(void **state)
{
	struct topo_error e;
	struct topo t;
	char name[16];
	u32 peer;
	u8 port;

	(void)state;
	assert_int_equal(topo_generate("torus:3x4", &t, &e), 0);
	for (u32 y = 0; y < 4; y++) {
		for (u32 x = 0; x < 3; x++) {
			u32 node;

			(void)snprintf(name, sizeof(name), "sw%u.%u", x, y);
			node = topo_find(&t, name);
			assert_true(topo_peer(&t, node, 1, &peer, &port));
			assert_int_equal(port, 2);
			(void)snprintf(name, sizeof(name), "sw%u.%u", (x + 1) % 3, y);
			assert_int_equal(peer, topo_find(&t, name));
			assert_true(topo_peer(&t, node, 3, &peer, &port));
			assert_int_equal(port, 4);
			(void)snprintf(name, sizeof(name), "sw%u.%u", x, (y + 1) % 4);
			assert_int_equal(peer, topo_find(&t, name));
		}
	}
	topo_free(&t);
}

static void topo_generate__random(void **state)
{
	struct topo_error e;
	char spec[48];

	(void)state;
	for (u32 seed = 0; seed < 200; seed++) {
		struct topo t;

		(void)snprintf(spec, sizeof(spec), "random:%ux2,radix=7,seed=%u", 2 + seed % 40,
			       seed);
		assert_int_equal(topo_generate(spec, &t, &e), 0);
		assert_true(farthest(&t) < UINT32_MAX);
		topo_free(&t);
	}
}

struct mistake {
	const char *spec;
	u32 column;
	const char *message;
};

static void topo_generate__mistakes(void **state)
{
	static const struct mistake all[] = {
		{ "", 1, "a generator is star, fat-tree, torus, mesh, dragonfly or random" },
		{ "tree:2", 1, "a generator is star, fat-tree, torus, mesh, dragonfly or random" },
		{ "star", 5, "star:HOSTS: a colon must stand here" },
		{ "star:", 6, "a number must be a number" },
		{ "star:0", 6, "a number is 1 at least" },
		{ "star:255", 1, "a switch would need 255 ports and has at most 254" },
		{ "star:3x3", 8, "star has at most 1 numbers: HOSTS" },
		{ "fat-tree:8", 11, "fat-tree has at least 2 numbers: [PODSx]LEAVESxHOSTS" },
		{ "fat-tree:8x20", 1, "leaves of 20 hosts need switches of 40 ports, not 36" },
		{ "fat-tree:649x18", 1, "649 leaves need switches of more than 36 ports" },
		{ "torus:4x4,size=3", 11,
		  "torus has no option \"size\"; it has radix=, hosts= and speed=" },
		{ "torus:4x4,", 11,
		  "torus has no option \"\"; it has radix=, hosts= and speed=" },
		{ "mesh:2,seed=3", 8,
		  "mesh has no option \"seed\"; it has radix=, hosts= and speed=" },
		{ "star:2,hosts=3", 8,
		  "star has no option \"hosts\"; it has radix= and speed=" },
		{ "fat-tree:2x2,radix=8, hosts=3", 23,
		  "fat-tree has no option \"hosts\"; it has radix= and speed=" },
		{ "dragonfly:4x2x2,seed=3", 17,
		  "dragonfly has no option \"seed\"; it has radix= and speed=" },
		{ "random:2x2,hosts=3", 12,
		  "random has no option \"hosts\"; it has radix=, seed= and speed=" },
		{ "torus:4x4,speed=fast", 17,
		  "a speed is SDR, DDR, QDR, FDR10, FDR, EDR, HDR or NDR" },
		{ "torus:4x4;", 10, "a comma and an option, or nothing, must stand here" },
		{ "mesh:99999x99999x9", 1, "that is more than 65536 nodes or 2097152 ports" },
		{ "dragonfly:4x2x2x10", 1, "4 switches with 2 cables reach 9 groups at most" },
	};
	struct topo_error e;
	struct topo t;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		assert_true(topo_generate(all[i].spec, &t, &e) < 0);
		assert_null(t.nodes);
		assert_string_equal(e.message, all[i].message);
		assert_int_equal(e.line, 1);
		assert_int_equal(e.column, all[i].column);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(topo_generate__sizes),
		cmocka_unit_test(topo_generate__names),
		cmocka_unit_test(topo_generate__torus_ports),
		cmocka_unit_test(topo_generate__random),
		cmocka_unit_test(topo_generate__mistakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
