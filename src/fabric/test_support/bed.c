/* bed.c: a fabric for tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/test_support/bed.h"

static void bed_deliver(void *arg, u32 port, const struct fabric_mad *m)
{
	struct bed *b = arg;

	b->mad[b->delivered % BED_MADS].port = port;
	b->mad[b->delivered % BED_MADS].m = *m;
	b->delivered++;
	if (b->deliver != NULL)
		b->deliver(b, port, m);
}

static void bed_changed(void *arg, u32 port, u32 what)
{
	struct bed *b = arg;

	b->changes++;
	b->changed_port = port;
	b->changed_what = what;
	if (b->change != NULL)
		b->change(b, port);
}

static u64 bed_now_ns(void *arg)
{
	return ((struct bed *)arg)->now_ns;
}

static const struct fabric_ops bed_ops = {
	.deliver = bed_deliver,
	.changed = bed_changed,
	.now_ns = bed_now_ns,
};

void bed_begin(struct bed *b)
{
	memset(b, 0, sizeof(*b));
	b->now_ns = 1000000000;
}

u32 bed_add(struct bed *b, enum fabric_node_type type, u8 ports, const char *desc)
{
	struct topo_node n = { .type = type,
			       .ports = ports,
			       .guid = 0x200000 + (u64)b->topo.node_count * 0x100,
			       .sys_guid = 0x200000 + (u64)b->topo.node_count * 0x100 };
	u32 node;

	strncpy(n.desc, desc, sizeof(n.desc) - 1);
	snprintf(n.id, sizeof(n.id), "N%u", b->topo.node_count);
	assert_int_equal(topo_add(&b->topo, &n, &node), 0);
	return node;
}

void bed_connect(struct bed *b, u32 node_a, u8 port_a, u32 node_b, u8 port_b)
{
	struct topo_link l = { .node_a = node_a,
			       .port_a = port_a,
			       .node_b = node_b,
			       .port_b = port_b,
			       .width = TOPO_4X,
			       .speed = TOPO_EDR };

	assert_int_equal(topo_connect(&b->topo, &l), 0);
}

void bed_up(struct bed *b)
{
	int err = 0;

	b->map_fd = memfd_create("map", MFD_CLOEXEC);
	b->counters_fd = memfd_create("counters", MFD_CLOEXEC);
	b->f = fabric_create(b->map_fd, b->counters_fd, &b->topo, &bed_ops, b, &err);
	assert_non_null(b->f);
	b->v = fabric_view(b->f);
}

void bed_again(struct bed *b)
{
	int err = 0;

	fabric_close(b->f);
	b->f = fabric_open(b->map_fd, b->counters_fd, &bed_ops, b, &err);
	assert_non_null(b->f);
	b->v = fabric_view(b->f);
}

void bed_end(struct bed *b)
{
	fabric_close(b->f);
	topo_free(&b->topo);
	close(b->map_fd);
	close(b->counters_fd);
}

void bed_star(struct bed *b, u32 hosts)
{
	char desc[TOPO_DESC_BYTES];

	bed_begin(b);
	bed_add(b, FABRIC_SWITCH, (u8)hosts, "switch");
	for (u32 i = 1; i <= hosts; i++) {
		snprintf(desc, sizeof(desc), "h%u ib0", i);
		bed_add(b, FABRIC_CA, 1, desc);
		bed_connect(b, 0, (u8)i, i, 1);
	}
	bed_up(b);
}

u32 bed_port(const struct bed *b, u32 node, u8 number)
{
	return b->topo.nodes[node].first_port + number;
}

const struct fabric_mad *bed_last(const struct bed *b, u32 port)
{
	u32 last = (b->delivered - 1) % BED_MADS;

	assert_true(b->delivered > 0);
	assert_int_equal(b->mad[last].port, port);
	return &b->mad[last].m;
}
