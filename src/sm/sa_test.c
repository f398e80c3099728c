/* sa_test.c: the subnet administrator answers hosts: paths, records, groups, services, reports.
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
#include "fabric/portinfo.h"
#include "sm/test_support/rig.h"

enum {
	GET = 1,
	SET = 2,
	GET_TABLE = 0x12,
	REMOVE = 0x15,
	NODES = 0x11,
	PORTS = 0x12,
	PATHS = 0x35,
	GROUPS = 0x38,
	SERVICES = 0x31,
	INFORM = 3,
	INFORMS = 0xf3,
	CLASS_INFO = 1,
	LINKS = 0x20,
	SMS = 0x18,
	CAPS_AT = 4 + 20, /* CapabilityMask in a PortInfoRecord */
};

static struct rig r;
static struct sm *sm;

static int begin(void **state)
{
	(void)state;
	rig_begin(&r, "fat-tree:4x4");
	sm = rig_add(&r, rig_place(&r));
	rig_settle(&r, sm, 1000);
	return 0;
}

static int end(void **state)
{
	(void)state;
	rig_end(&r);
	return 0;
}

static void put_gid(u8 *at, u32 port)
{
	wire_put64(at, 0xfe80000000000000ull);
	wire_put64(at + 8, rig_guid(&r, port));
}

/* ---- records --------------------------------------------------------------------------------- */

static void sa__class_port_info(void **state)
{
	const struct fabric_mad *m = rig_ask(&r, rig_host(&r, 0), GET, CLASS_INFO, 0, NULL);

	(void)state;
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(m->mad[MAD_METHOD], 0x81);
	assert_int_equal(m->mad[56 + 1], 2);
	assert_int_equal(wire_get32(m->mad + 56 + 4) >> 5, 1 << 12);
}

static void sa__path_by_gid(void **state)
{
	u32 a = rig_host(&r, 1), b = rig_host(&r, 14);
	u8 w[200] = { 0 };
	const struct fabric_mad *m;

	(void)state;
	put_gid(w + 8, b);
	put_gid(w + 24, a);
	w[49] = 1;
	m = rig_ask(&r, a, GET, PATHS, 1 << 2 | 1 << 3 | 1 << 12, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(wire_get16(m->mad + 56 + 40), rig_lid(&r, b));
	assert_int_equal(wire_get16(m->mad + 56 + 42), rig_lid(&r, a));
	assert_int_equal(wire_get16(m->mad + 56 + 50), 0xffff);
	assert_int_equal(m->mad[56 + 54], 0x80 | 5);
	assert_int_equal(m->mad[56 + 55], 0x80 | 16); /* EDR 4x: 100 Gb/s */
	/* nobody has this GID; a rate that no path has */
	wire_put64(w + 16, 0x1234);
	assert_int_equal(rig_status(rig_ask(&r, a, GET, PATHS, 1 << 2 | 1 << 3, w)), 0x0300);
	put_gid(w + 8, b);
	w[55] = 2 << 6 | 3;
	assert_int_equal(rig_status(rig_ask(&r, a, GET, PATHS, 3 << 2 | 3 << 18, w)), 0x0300);
	w[55] = 0 << 6 | 3; /* more than that */
	assert_int_equal(rig_status(rig_ask(&r, a, GET, PATHS, 3 << 2 | 3 << 18, w)), 0);
}

static void sa__paths_of_all_pairs(void **state)
{
	static u8 out[1024][64];
	u32 count = rig_table(&r, rig_host(&r, 3), PATHS, 0, NULL, out[0], 64, 1024);
	u32 ports = r.bed.topo.node_count;

	(void)state;
	assert_int_equal(count, ports * ports);
	for (u32 i = 0; i < count; i++) {
		assert_true(wire_get16(out[i] + 40) != 0 && wire_get16(out[i] + 42) != 0);
		assert_int_equal(out[i][54], 0x80 | 5);
		/* EDR 4x; port 0 of a switch, which no link gives a speed, to itself: SDR 4x */
		assert_true(out[i][55] == (0x80 | 16) ||
			    (out[i][55] == (0x80 | 3) &&
			     wire_get16(out[i] + 40) == wire_get16(out[i] + 42)));
	}
}

static void sa__tables_of_records(void **state)
{
	static u8 out[512][108];
	u32 nodes = r.bed.topo.node_count, a = rig_host(&r, 0);
	u8 w[200] = { 0 };

	(void)state;
	assert_int_equal(rig_table(&r, a, NODES, 0, NULL, out[0], 108, 512), nodes);
	assert_memory_equal(out[0] + 44, r.bed.topo.nodes[0].desc, 4);
	w[6] = 0;
	w[5 + 1] = FABRIC_SWITCH; /* NodeType */
	assert_true(rig_table(&r, a, NODES, 1 << 4, w, out[0], 108, 512) < nodes);
	wire_put16(w, rig_lid(&r, a));
	assert_int_equal(rig_table(&r, a, NODES, 1, w, out[0], 108, 512), 1);
	assert_int_equal(rig_table(&r, a, PORTS, 1, w, out[0], 68, 512), 1);
	assert_int_equal(out[0][4 + 32] & 15, FABRIC_ACTIVE);
	assert_int_equal(rig_table(&r, a, LINKS, 0, NULL, out[0], 6, 512),
			 2 * r.bed.topo.link_count);
	assert_int_equal(rig_table(&r, a, SMS, 0, NULL, out[0], 28, 512), 1);
	assert_int_equal(out[0][24], SM_MASTER);
	wire_put16(w, 0x7777);
	assert_int_equal(rig_table(&r, a, NODES, 1, w, out[0], 108, 512), 0);
	assert_int_equal(rig_status(rig_ask(&r, a, GET, NODES, 1, w)), 0x0300);
	assert_int_equal(rig_status(rig_ask(&r, a, GET, NODES, 0, w)), 0x0400);
	assert_int_equal(rig_status(rig_ask(&r, a, GET, 0x36, 0, w)), 0x000c);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, NODES, 0, w)), 0x000c);
}

/* A question for capabilities is for ports that have just these; by the modifier's bit 31 for those
 * that have all of them. */
static void sa__ports_by_their_capabilities(void **state)
{
	static const u32 asked[] = { FABRIC_CAP_SM, FABRIC_CAP_REREGISTER,
				     FABRIC_CAP_SM | FABRIC_CAP_REREGISTER,
				     FABRIC_CAP_SM | FABRIC_CAP_CM };
	static u8 out[512][68], found[512][68];
	u32 a = rig_host(&r, 0), all, just = 0, seen = 0;
	u8 w[200] = { 0 };

	(void)state;
	fabric_set_issm(r.bed.f, rig_host(&r, 9), true);
	rig_run(&r, 1000);
	all = rig_table(&r, a, PORTS, 0, NULL, out[0], 68, 512);
	for (u32 i = 0; i < ARRAY_LEN(asked); i++) {
		u32 with = 0;

		for (u32 k = 0; k < all; k++)
			with += (wire_get32(out[k] + CAPS_AT) & asked[i]) == asked[i];
		wire_put32(w + CAPS_AT, asked[i]);
		r.modifier = 1u << 31;
		assert_int_equal(rig_table(&r, a, PORTS, 1 << 7, w, found[0], 68, 512), with);
		seen += with != 0;
		r.modifier = 0;
		assert_int_equal(rig_table(&r, a, PORTS, 1 << 7, w, found[0], 68, 512), 0);
	}
	assert_int_equal(seen, ARRAY_LEN(asked));
	memcpy(w + CAPS_AT, out[0] + CAPS_AT, 4);
	for (u32 k = 0; k < all; k++)
		just += memcmp(out[k] + CAPS_AT, w + CAPS_AT, 4) == 0;
	assert_int_equal(rig_table(&r, a, PORTS, 1 << 7, w, found[0], 68, 512), just);
}

/* Segments that come to a port within some time. */
static u32 segments(u32 port, u64 ms)
{
	u32 count = 0;

	r.answers = 0;
	rig_run(&r, ms);
	for (u32 i = 0; i < r.answers; i++)
		count += r.answer_port[i] == port;
	return count;
}

/* All tries begin anew with each segment that arrives. */
static void sa__a_table_is_repeated_until_it_arrives(void **state)
{
	u32 a = rig_host(&r, 3), acked = 1;
	struct fabric_mad m = *rig_ask(&r, a, GET_TABLE, PATHS, 0, NULL);

	(void)state;
	for (; acked <= 17; acked += 8) {
		assert_int_equal(segments(a, 1600), acked == 1 ? 3 : 3 * 8);
		rig_ack(&r, a, &m, acked);
		assert_int_equal(segments(a, 20), 8);
	}
	assert_int_equal(segments(a, 2100), 3 * 8);
	rig_ack(&r, a, &m, acked); /* too late */
	assert_int_equal(segments(a, 1000), 0);
}

/* Two hosts may choose one transaction ID. */
static void sa__tables_of_one_transaction_id(void **state)
{
	u32 port[2] = { rig_host(&r, 3), rig_host(&r, 4) };
	struct fabric_mad m[2];

	(void)state;
	for (u32 i = 0; i < 2; i++) {
		const struct fabric_mad *first;

		r.tid = 77;
		first = rig_ask(&r, port[i], GET_TABLE, PATHS, 0, NULL);
		assert_non_null(first);
		m[i] = *first;
	}
	for (u32 i = 0; i < 2; i++)
		for (u32 segment = 1; segment <= 9; segment += 8) {
			rig_ack(&r, port[i], &m[i], segment);
			assert_int_equal(segments(port[i], 20), 8);
		}
}

/* ---- groups ---------------------------------------------------------------------------------- */

#define JOIN (1u << 1 | 1u << 16 | 1u)
#define CREATE (JOIN | 1u << 2 | 1u << 6 | 1u << 7 | 1u << 12 | 1u << 13)

static void group(u8 *w, u8 last, u32 port, u8 join_state)
{
	static const u8 mgid[16] = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff };

	memset(w, 0, 200);
	memcpy(w, mgid, 16);
	w[15] = last;
	put_gid(w + 16, port);
	wire_put32(w + 32, 0x0b1b);
	wire_put16(w + 40, 0xffff);
	w[48] = 0x20 | join_state;
}

/* `port` makes group `last`, as a member in this one state. Returns the group's multicast LID. */
static u16 group_create(u8 last, u32 port, u8 join_state)
{
	const struct fabric_mad *m;
	u8 w[200];

	group(w, last, port, join_state);
	m = rig_ask(&r, port, SET, GROUPS, CREATE, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(m->mad[56 + 48] & 15, join_state);
	return wire_get16(m->mad + 56 + 36);
}

static u32 reached(u32 from, u16 mlid)
{
	struct fabric_flow w = { .pkey = 0xffff };
	u32 to[64];

	return (u32)fabric_mcast_route(r.bed.v, from, mlid, &w, to, 64);
}

static void sa__groups(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 7), c = rig_host(&r, 15);
	u8 w[200];
	u16 mlid;

	(void)state;
	group(w, 1, a, 1);
	/* not there, and not enough to create it; by a send-only member neither */
	assert_int_equal(rig_status(rig_ask(&r, a, SET, GROUPS, JOIN, w)), 0x0600);
	w[48] = 0x24;
	assert_int_equal(rig_status(rig_ask(&r, a, SET, GROUPS, CREATE, w)), 0x0200);
	mlid = group_create(1, a, 1);
	assert_true(mlid > 0xc000);
	group(w, 1, b, 1);
	assert_int_equal(rig_status(rig_ask(&r, b, SET, GROUPS, JOIN, w)), 0);
	assert_int_equal(reached(a, mlid), 1);
	assert_int_equal(reached(b, mlid), 1);
	group(w, 1, c, 4); /* sends only */
	assert_int_equal(rig_status(rig_ask(&r, c, SET, GROUPS, JOIN, w)), 0);
	assert_int_equal(reached(c, mlid), 2);
	assert_int_equal(reached(a, mlid), 1);
	/* another Q_Key than the group's; a port that does not exist */
	wire_put32(w + 32, 1);
	assert_int_equal(rig_status(rig_ask(&r, c, SET, GROUPS, CREATE, w)), 0x0200);
	wire_put64(w + 24, 1);
	assert_int_equal(rig_status(rig_ask(&r, c, SET, GROUPS, JOIN, w)), 0x0500);
	group(w, 1, b, 1);
	assert_int_equal(rig_status(rig_ask(&r, b, REMOVE, GROUPS, JOIN, w)), 0);
	assert_int_equal(rig_status(rig_ask(&r, b, REMOVE, GROUPS, JOIN, w)), 0x0200);
	assert_int_equal(reached(c, mlid), 1);
	group(w, 1, a, 1);
	assert_int_equal(rig_status(rig_ask(&r, a, REMOVE, GROUPS, JOIN, w)), 0);
	assert_int_equal(rig_report(sm).groups, 1);
	assert_int_equal(rig_status(rig_ask(&r, a, GET, GROUPS, 1, w)), 0x0300);
	/* no switch forwards to the multicast LID until another group has it */
	assert_int_equal(reached(c, mlid), 0);
	assert_int_equal(group_create(2, b, 1), mlid);
	group(w, 2, c, 4);
	assert_int_equal(rig_status(rig_ask(&r, c, SET, GROUPS, JOIN, w)), 0);
	assert_int_equal(reached(c, mlid), 1);
}

/* A port is a member in each state that it has joined in, until it leaves in that one. */
static void sa__states_of_a_member_end_one_by_one(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 7);
	const struct fabric_mad *m;
	u8 w[200];
	u16 mlid;

	(void)state;
	mlid = group_create(1, a, 1);
	group(w, 1, b, 1);
	assert_int_equal(rig_status(rig_ask(&r, b, SET, GROUPS, JOIN, w)), 0);
	group(w, 1, b, 4);
	m = rig_ask(&r, b, SET, GROUPS, JOIN, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(m->mad[56 + 48] & 15, 1 | 4);
	m = rig_ask(&r, b, REMOVE, GROUPS, JOIN, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(m->mad[56 + 48] & 15, 1);
	assert_int_equal(reached(a, mlid), 1);
	group(w, 1, b, 1);
	assert_int_equal(rig_status(rig_ask(&r, b, REMOVE, GROUPS, JOIN, w)), 0);
	assert_int_equal(rig_status(rig_ask(&r, b, REMOVE, GROUPS, JOIN, w)), 0x0200);
	assert_int_equal(reached(a, mlid), 0);
}

/* The broadcast group has MTU 2048, 10 Gb/s and lifetime 18: values of 4, 3 and 18. */
static void sa__groups_of_a_range_of_values(void **state)
{
	static const struct {
		u32 component, at;
		u8 less, is, more;
	} rows[] = { { 4, 38, 3, 4, 5 }, { 8, 42, 2, 3, 6 }, { 10, 43, 17, 18, 19 } };
	u32 a = rig_host(&r, 0);
	u8 w[200];

	(void)state;
	group(w, 0, a, 1);
	memset(w + 12, 0xff, 4);
	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		const u8 asked[] = { rows[i].less, rows[i].is, rows[i].more };

		/* more than the lesser, less than the greater, exactly itself */
		for (u32 how = 0; how < 3; how++)
			for (u32 k = 0; k < ARRAY_LEN(asked); k++) {
				w[rows[i].at] = (u8)(how << 6 | asked[k]);
				assert_int_equal(rig_status(rig_ask(&r, a, GET, GROUPS,
								    1 | 3u << rows[i].component,
								    w)),
						 k == (3 - how) % 3 ? 0 : 0x0300);
			}
	}
}

/* A full member that sends only creates a group and keeps it, and gets nothing of it. */
/* It is judged by the conditions of the question, as any path is. */
static void sa__path_to_a_group(void **state)
{
	static const struct {
		u32 component, at;
		u8 right, wrong;
	} rows[] = { { 13, 51, 0xff, 0xfe }, { 15, 53, 3, 2 },	  { 16, 54, 0x80 | 4, 0x80 | 5 },
		     { 18, 55, 0x80 | 3, 2 << 6 | 4 },	{ 20, 56, 0x80 | 12, 0x80 | 18 } };
	u32 a = rig_host(&r, 0);
	const struct fabric_mad *m;
	u8 g[200], w[200] = { 0 };

	(void)state;
	group(g, 1, a, 1);
	g[43] = 0x80 | 12;
	wire_put32(g + 44, 3u << 28);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, GROUPS, CREATE | 3u << 10, g)), 0);
	memcpy(w + 8, g, 16);
	put_gid(w + 24, a);
	m = rig_ask(&r, a, GET, PATHS, 1 << 2 | 1 << 3, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(m->mad[56 + 53], 3);
	assert_int_equal(m->mad[56 + 56], 0x80 | 12);
	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		u32 mask = rows[i].component < 16 ? 1u << rows[i].component :
						    3u << rows[i].component;

		for (u32 k = 0; k < 2; k++) {
			memset(w + 50, 0, 8);
			w[50] = 0xff;
			w[rows[i].at] = k == 0 ? rows[i].right : rows[i].wrong;
			assert_int_equal(
				rig_status(rig_ask(&r, a, GET, PATHS, 1 << 2 | 1 << 3 | mask, w)),
				k == 0 ? 0 : 0x0300);
		}
	}
}

/* There are as many groups as the switches' tables hold; the next one has the MLID of one that
 * ends. */
static void sa__as_many_groups_as_there_are_mlids(void **state)
{
	u32 a = rig_host(&r, 0), groups = 1; /* the broadcast group is there */
	const struct fabric_mad *m;
	u16 mlid = 0, status;
	u8 w[200];

	(void)state;
	do {
		group(w, 1, a, 1);
		wire_put16(w + 12, (u16)++groups);
		m = rig_ask(&r, a, SET, GROUPS, CREATE, w);
		status = rig_status(m);
		if (groups == 100)
			mlid = wire_get16(m->mad + 56 + 36);
	} while (status == 0);
	assert_int_equal(status, 0x0100);
	assert_int_equal(rig_report(sm).groups, groups - 1);
	assert_true(groups > 100);
	wire_put16(w + 12, 100);
	assert_int_equal(rig_status(rig_ask(&r, a, REMOVE, GROUPS, JOIN, w)), 0);
	assert_int_equal(group_create(2, a, 1), mlid);
}

static void sa__send_only_full_members(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 7);
	u8 w[200];
	u16 mlid;

	(void)state;
	mlid = group_create(1, a, 8);
	group(w, 1, b, 1);
	assert_int_equal(rig_status(rig_ask(&r, b, SET, GROUPS, JOIN, w)), 0);
	assert_int_equal(reached(a, mlid), 1);
	assert_int_equal(reached(b, mlid), 0);
	assert_int_equal(rig_status(rig_ask(&r, b, REMOVE, GROUPS, JOIN, w)), 0);
	assert_int_equal(rig_report(sm).groups, 2);
	group(w, 1, a, 8);
	assert_int_equal(rig_status(rig_ask(&r, a, REMOVE, GROUPS, JOIN, w)), 0);
	assert_int_equal(rig_report(sm).groups, 1);
}

static void sa__broadcast_group(void **state)
{
	static u8 out[32][52];
	u8 w[200];
	u16 mlid = 0;

	(void)state;
	for (u32 i = 0; i < 16; i++) {
		const struct fabric_mad *m;

		group(w, 0, rig_host(&r, i), 1);
		memset(w + 12, 0xff, 4);
		m = rig_ask(&r, rig_host(&r, i), SET, GROUPS, JOIN | 1 << 7, w);
		assert_int_equal(rig_status(m), 0);
		mlid = wire_get16(m->mad + 56 + 36);
		assert_int_equal(wire_get32(m->mad + 56 + 32), 0x0b1b);
	}
	assert_int_equal(mlid, 0xc000);
	for (u32 i = 0; i < 16; i++)
		assert_int_equal(reached(rig_host(&r, i), mlid), 15);
	assert_int_equal(rig_table(&r, rig_host(&r, 0), GROUPS, 0, NULL, out[0], 52, 32), 16);
	/* a member's switch restarts, another host goes: the tree follows */
	fabric_link_set(r.bed.f, rig_host(&r, 9), false);
	rig_run(&r, 2000);
	assert_int_equal(reached(rig_host(&r, 0), mlid), 14);
	assert_int_equal(rig_table(&r, rig_host(&r, 0), GROUPS, 0, NULL, out[0], 52, 32), 15);
}

/* ---- services and reports -------------------------------------------------------------------- */

static void sa__services(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 1);
	const struct fabric_mad *m;
	u8 w[200] = { 0 };

	(void)state;
	wire_put64(w, 0x1000);
	put_gid(w + 8, a);
	wire_put16(w + 24, 0xffff);
	wire_put32(w + 28, 100); /* seconds */
	memcpy(w + 48, "a service", 9);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, SERVICES, 0x57, w)), 0);
	rig_run(&r, 10000);
	m = rig_ask(&r, b, GET, SERVICES, 1 << 6, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(wire_get64(m->mad + 56), 0x1000);
	assert_int_equal(wire_get32(m->mad + 56 + 28), 89); /* what is left of the lease */
	rig_run(&r, 91000);
	assert_int_equal(rig_status(rig_ask(&r, b, GET, SERVICES, 1 << 6, w)), 0x0300);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, SERVICES, 0x47, w)), 0);
	m = rig_ask(&r, b, GET, SERVICES, 1 << 6, w);
	assert_int_equal(rig_status(m), 0);
	assert_int_equal(wire_get32(m->mad + 56 + 28), UINT32_MAX); /* for ever */
	assert_int_equal(rig_status(rig_ask(&r, a, REMOVE, SERVICES, 0x7, w)), 0);
	assert_int_equal(rig_status(rig_ask(&r, a, REMOVE, SERVICES, 0x7, w)), 0x0300);
}

/* A record has 64 bytes of data: components of 8 bits, 16, 32 and 64. */
static void sa__services_by_their_data(void **state)
{
	u32 a = rig_host(&r, 0), component = 7, at = 112;
	u8 w[200] = { 0 };

	(void)state;
	wire_put64(w, 0x1000);
	put_gid(w + 8, a);
	wire_put16(w + 24, 0xffff);
	for (u32 i = 0; i < 64; i++)
		w[at + i] = (u8)(i + 1);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, SERVICES, 0x7, w)), 0);
	for (u32 width = 1; width <= 8; width *= 2)
		for (u32 i = 0; i < 16 / width; i++, component++, at += width) {
			u64 mask = 1ull << component;

			assert_int_equal(rig_status(rig_ask(&r, a, GET, SERVICES, mask, w)), 0);
			w[at + width - 1] ^= 0x80;
			assert_int_equal(rig_status(rig_ask(&r, a, GET, SERVICES, mask, w)),
					 0x0300);
			assert_int_equal(rig_status(rig_ask(&r, a, GET, SERVICES,
							    0xfffffff80 & ~mask, w)),
					 0);
			w[at + width - 1] ^= 0x80;
		}
	assert_int_equal(component, 37);
}

/* InformInfo: all traps of the nodes with these LIDs. */
static void inform(u8 *w, u16 first_lid, u16 last_lid, bool subscribe)
{
	memset(w, 0, 200);
	wire_put16(w + 16, first_lid);
	wire_put16(w + 18, last_lid);
	w[22] = 1;
	w[23] = subscribe;
	wire_put16(w + 24, 0xffff);
	wire_put16(w + 26, 0xffff);
}

/* Answers reports, and counts those of a trap. */
static u32 reports(u32 port, u16 trap)
{
	u32 count = 0;

	for (u32 i = 0; i < r.answers; i++) {
		struct fabric_mad m = r.answer[i];

		if (r.answer_port[i] != port || m.mad[MAD_METHOD] != METHOD_REPORT)
			continue;
		count += wire_get16(m.mad + 56 + 4) == trap;
		m.dlid = r.answer[i].slid;
		m.mad[MAD_METHOD] = 0x86;
		fabric_send(r.bed.f, port, &m);
	}
	r.answers = 0;
	return count;
}

static void sa__reports(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 9);
	u8 w[200];

	(void)state;
	inform(w, 0xffff, 0, true);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	r.answers = 0;
	fabric_link_set(r.bed.f, b, false);
	rig_run(&r, 300);
	assert_int_equal(reports(a, 65), 1);
	fabric_link_set(r.bed.f, b, true);
	rig_run(&r, 1500); /* a port sends no two traps within its SubnetTimeOut */
	assert_int_equal(reports(a, 64), 1);
	rig_settle(&r, sm, 2000);
	r.answers = 0;
	group_create(1, b, 1);
	assert_int_equal(reports(a, 66), 1);
	rig_run(&r, 10000);
	assert_int_equal(reports(a, 66), 0); /* answered once */
	w[23] = 0;
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0x0200);
}

/* A port that subscribes to several traps has a subscription to each. */
static void sa__reports_of_each_trap(void **state)
{
	static const u16 traps[] = { 64, 65, 67 };
	u32 a = rig_host(&r, 0), b = rig_host(&r, 9);
	u8 w[200];

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(traps); i++) {
		inform(w, 0xffff, 0, true);
		wire_put16(w + 26, traps[i]);
		assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	}
	wire_put16(w + 26, traps[0]);
	w[23] = 0;
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	r.answers = 0;
	fabric_link_set(r.bed.f, b, false);
	rig_run(&r, 300);
	assert_int_equal(reports(a, 65), 1);
	fabric_link_set(r.bed.f, b, true);
	rig_run(&r, 1500); /* a port sends no two traps within its SubnetTimeOut */
	assert_int_equal(reports(a, 64), 0);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0x0200);
}

static void sa__subscriptions_end_with_their_port(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 9);
	u8 w[200], gid[16], out[4][60];

	(void)state;
	inform(w, 0xffff, 0, true);
	assert_int_equal(rig_status(rig_ask(&r, b, SET, INFORM, 0, w)), 0);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	assert_int_equal(rig_table(&r, a, INFORMS, 0, NULL, out[0], 60, 4), 2);
	fabric_link_set(r.bed.f, b, false);
	rig_run(&r, 300);
	assert_int_equal(rig_table(&r, a, INFORMS, 0, NULL, out[0], 60, 4), 1);
	put_gid(gid, a);
	assert_memory_equal(out[0], gid, sizeof(gid));
}

/* The port comes back from another subnet, with the LID that it had there. */
static void come_back(u32 port, u16 lid)
{
	fabric_link_set(r.bed.f, port, false);
	fabric_port_begin(r.bed.f, port)->lid = lid;
	fabric_port_end(r.bed.f, port);
	fabric_link_set(r.bed.f, port, true);
}

/* A report that waits for its response is for the port, whoever has its LID now. */
static void sa__reports_follow_their_port(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 9), c = rig_host(&r, 5);
	u16 lid = rig_lid(&r, a);
	u8 w[200];

	(void)state;
	inform(w, 0xffff, 0, true);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	group(w, 1, c, 1);
	assert_int_equal(rig_status(rig_ask(&r, c, SET, GROUPS, CREATE, w)), 0);
	come_back(a, 200);
	come_back(b, lid);
	rig_run(&r, 300);
	rig_check_active(&r);
	r.answers = 0;
	rig_run(&r, 1000);
	for (u32 i = 0; i < r.answers; i++)
		assert_int_not_equal(r.answer_port[i], b);
	assert_int_equal(reports(a, 66), 1);
}

/* Of a group that was refused nobody hears that it ended. */
static void sa__no_report_of_a_group_that_never_was(void **state)
{
	u32 a = rig_host(&r, 0), b = rig_host(&r, 9), told = 0;
	u8 w[200], g[200];

	(void)state;
	inform(w, 0xffff, 0, true);
	assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	group(g, 1, b, 1);
	g[42] = 0x80 | 18; /* 300 Gb/s: more than the port has */
	r.answers = 0;
	assert_int_equal(rig_status(rig_ask(&r, b, SET, GROUPS, CREATE | 3u << 8, g)), 0x0200);
	assert_int_equal(rig_status(rig_ask(&r, b, GET, GROUPS, 1, g)), 0x0300);
	assert_int_equal(rig_report(sm).groups, 1);
	rig_run(&r, 300);
	for (u32 i = 0; i < r.answers; i++)
		told += r.answer[i].mad[MAD_METHOD] == METHOD_REPORT;
	assert_int_equal(told, 0);
}

/* The range includes its last LID. One whose end is not behind its beginning is that LID alone. */
static void sa__reports_of_a_range_of_lids(void **state)
{
	static const struct {
		int first, last; /* from the LID of the node that sends the trap */
		u32 reports;
	} rows[] = { { -1, 0, 1 },  { 0, 0, 1 }, { 0, 1, 1 },  { 0, -1, 1 },
		     { -2, -1, 0 }, { 1, 2, 0 }, { 1, -1, 0 } };
	u32 a = rig_host(&r, 0), b = rig_host(&r, 9);
	u16 lid = rig_lid(&r, b);
	u8 w[200];

	(void)state;
	assert_true(lid > 3);
	for (u32 i = 0; i < ARRAY_LEN(rows); i++) {
		inform(w, (u16)(lid + rows[i].first), (u16)(lid + rows[i].last), true);
		assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
		r.answers = 0;
		fabric_set_description(r.bed.f, r.bed.f->port[b].node, "renamed");
		rig_run(&r, 300);
		assert_int_equal(reports(a, 144), rows[i].reports);
		rig_run(&r, 1200); /* a port sends no two traps within its SubnetTimeOut */
		w[23] = 0;
		assert_int_equal(rig_status(rig_ask(&r, a, SET, INFORM, 0, w)), 0);
	}
}

/* The SM is on a host whose programs ask the SA, too: what is for them does not end there. */
static void sa__asked_by_its_own_host(void **state)
{
	static u8 out[1024][64];
	u32 own, nodes;
	u8 w[200];

	(void)state;
	rig_kill(&r, 0);
	own = rig_host(&r, 5);
	sm = rig_add(&r, own);
	rig_settle(&r, sm, 12000);
	nodes = r.bed.topo.node_count;
	assert_int_equal(rig_table(&r, own, PATHS, 0, NULL, out[0], 64, 1024), nodes * nodes);
	inform(w, 0xffff, 0, true);
	assert_int_equal(rig_status(rig_ask(&r, own, SET, INFORM, 0, w)), 0);
	r.answers = 0;
	group_create(1, own, 1);
	assert_int_equal(reports(own, 66), 1);
	rig_run(&r, 3000);
	assert_int_equal(reports(own, 66), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sa__class_port_info, begin, end),
		cmocka_unit_test_setup_teardown(sa__path_by_gid, begin, end),
		cmocka_unit_test_setup_teardown(sa__paths_of_all_pairs, begin, end),
		cmocka_unit_test_setup_teardown(sa__tables_of_records, begin, end),
		cmocka_unit_test_setup_teardown(sa__ports_by_their_capabilities, begin, end),
		cmocka_unit_test_setup_teardown(sa__a_table_is_repeated_until_it_arrives, begin,
						end),
		cmocka_unit_test_setup_teardown(sa__tables_of_one_transaction_id, begin, end),
		cmocka_unit_test_setup_teardown(sa__groups, begin, end),
		cmocka_unit_test_setup_teardown(sa__states_of_a_member_end_one_by_one, begin, end),
		cmocka_unit_test_setup_teardown(sa__groups_of_a_range_of_values, begin, end),
		cmocka_unit_test_setup_teardown(sa__path_to_a_group, begin, end),
		cmocka_unit_test_setup_teardown(sa__as_many_groups_as_there_are_mlids, begin, end),
		cmocka_unit_test_setup_teardown(sa__send_only_full_members, begin, end),
		cmocka_unit_test_setup_teardown(sa__broadcast_group, begin, end),
		cmocka_unit_test_setup_teardown(sa__services, begin, end),
		cmocka_unit_test_setup_teardown(sa__services_by_their_data, begin, end),
		cmocka_unit_test_setup_teardown(sa__reports, begin, end),
		cmocka_unit_test_setup_teardown(sa__reports_of_each_trap, begin, end),
		cmocka_unit_test_setup_teardown(sa__no_report_of_a_group_that_never_was, begin,
						end),
		cmocka_unit_test_setup_teardown(sa__subscriptions_end_with_their_port, begin, end),
		cmocka_unit_test_setup_teardown(sa__reports_follow_their_port, begin, end),
		cmocka_unit_test_setup_teardown(sa__asked_by_its_own_host, begin, end),
		cmocka_unit_test_setup_teardown(sa__reports_of_a_range_of_lids, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
