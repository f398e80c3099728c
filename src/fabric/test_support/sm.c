/* sm.c: a small subnet manager for tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/format.h"
#include "fabric/test_support/sm.h"

/* ---- one MAD
 * ----------------------------------------------------------------------------------- */

static const struct fabric_mad *sm_exchange(struct bed *b, u32 port, struct fabric_mad *m)
{
	static u64 tid;
	u32 before = b->delivered;

	wire_put64(m->mad + MAD_TID, ++tid);
	fabric_send(b->f, port, m);
	for (u32 i = before; i < b->delivered; i++)
		if (b->mad[i % BED_MADS].port == port &&
		    wire_get64(b->mad[i % BED_MADS].m.mad + MAD_TID) == tid)
			return &b->mad[i % BED_MADS].m;
	return NULL;
}

static void sm_header(struct fabric_mad *m, u8 class, u8 method, u16 attribute, u32 modifier)
{
	memset(m, 0, sizeof(*m));
	m->mad[MAD_BASE_VERSION] = 1;
	m->mad[MAD_CLASS] = class;
	m->mad[MAD_CLASS_VERSION] = 1;
	m->mad[MAD_METHOD] = method;
	wire_put16(m->mad + MAD_ATTRIBUTE, attribute);
	wire_put32(m->mad + MAD_MODIFIER, modifier);
}

const struct fabric_mad *sm_directed(struct bed *b, u32 port, const struct sm_way *w, u8 method,
				     u16 attribute, u32 modifier, const u8 *data)
{
	struct fabric_mad m;

	sm_header(&m, CLASS_SMP_DIRECTED, method, attribute, modifier);
	m.slid = m.dlid = FABRIC_LID_PERMISSIVE;
	m.mad[MAD_HOP_COUNT] = w->hops;
	wire_put16(m.mad + MAD_DR_SLID, FABRIC_LID_PERMISSIVE);
	wire_put16(m.mad + MAD_DR_DLID, FABRIC_LID_PERMISSIVE);
	memcpy(m.mad + MAD_INITIAL_PATH, w->path, sizeof(w->path));
	if (data != NULL)
		memcpy(m.mad + MAD_DATA, data, MAD_SMP_DATA);
	return sm_exchange(b, port, &m);
}

const struct fabric_mad *sm_by_lid(struct bed *b, u32 port, u16 dlid, u8 method, u16 attribute,
				   u32 modifier, const u8 *data)
{
	struct fabric_mad m;

	sm_header(&m, CLASS_SMP_LID, method, attribute, modifier);
	m.dlid = dlid;
	if (data != NULL)
		memcpy(m.mad + MAD_DATA, data, MAD_SMP_DATA);
	return sm_exchange(b, port, &m);
}

const struct fabric_mad *sm_perf(struct bed *b, u32 port, u16 dlid, u8 method, u16 attribute,
				 const u8 *data)
{
	struct fabric_mad m;

	sm_header(&m, CLASS_PERFORMANCE, method, attribute, 0);
	m.src_qp = m.dst_qp = 1;
	m.qkey = 0x80010000;
	m.pkey = 0xffff;
	m.dlid = dlid;
	if (data != NULL)
		memcpy(m.mad + MAD_DATA, data, MAD_PM_DATA);
	return sm_exchange(b, port, &m);
}

u16 sm_status(const struct fabric_mad *m)
{
	assert_non_null(m);
	return wire_get16(m->mad + MAD_STATUS) & 0x7fff;
}

/* ---- a sweep
 * ----------------------------------------------------------------------------------- */

enum { SM_PORTS = 256 };

struct sm_node {
	u64 guid;
	u8 type, ports;
	u8 local; /* a CA's port that was found */
	u16 lid;
	struct sm_way way;
	u32 peer[SM_PORTS]; /* of sm.node + 1; 0: none */
	u8 *table;	    /* a switch's, by LID */
} OWNED_BY(the test);

struct sm {
	struct bed *b;
	u32 port;
	struct sm_node *node;
	u32 nodes, room;
	u16 lids;
} OWNED_BY(the test);

static const u8 *sm_data(const struct fabric_mad *m)
{
	assert_non_null(m);
	assert_int_equal(sm_status(m), 0);
	assert_int_equal(m->mad[MAD_METHOD], METHOD_GET_RESP);
	return m->mad + MAD_DATA;
}

/* Asks who is there, and remembers a node that is new. Returns its index. */
static u32 sm_visit(struct sm *s, const struct sm_way *w)
{
	const u8 *d = sm_data(sm_directed(s->b, s->port, w, METHOD_GET, ATTR_NODE_INFO, 0, NULL));
	u64 guid = wire_get64(d + (d[2] == FABRIC_SWITCH ? 12 : 20));
	struct sm_node *n;

	for (u32 i = 0; i < s->nodes; i++)
		if (s->node[i].guid == guid)
			return i;
	assert_true(s->nodes < s->room);
	n = &s->node[s->nodes];
	memset(n, 0, sizeof(*n));
	n->guid = guid;
	n->type = d[2];
	n->ports = d[3];
	n->local = d[36];
	n->way = *w;
	n->lid = ++s->lids;
	return s->nodes++;
}

static u8 sm_port_state(struct sm *s, const struct sm_way *w, u8 number)
{
	return sm_data(sm_directed(s->b, s->port, w, METHOD_GET, ATTR_PORT_INFO, number,
				   NULL))[32] &
	       15;
}

static void sm_discover(struct sm *s)
{
	struct sm_way here = { .hops = 0 };

	sm_visit(s, &here);
	for (u32 i = 0; i < s->nodes; i++) {
		u8 first = s->node[i].type == FABRIC_SWITCH ? 1 : s->node[i].local;
		u8 last = s->node[i].type == FABRIC_SWITCH ? s->node[i].ports : first;

		for (u32 k = first; k <= last; k++) {
			struct sm_way w = s->node[i].way;

			if ((i > 0 && s->node[i].type != FABRIC_SWITCH) ||
			    sm_port_state(s, &w, (u8)k) < FABRIC_INIT)
				continue;
			w.path[++w.hops] = (u8)k;
			s->node[i].peer[k] = sm_visit(s, &w) + 1;
		}
	}
}

/* From every node back to the one with `lid`, breadth first. */
static void sm_routes_to(struct sm *s, u32 to)
{
	u32 *queue = calloc(s->nodes, sizeof(u32)), head = 0, tail = 0;
	u8 *seen = calloc(s->nodes, 1);

	queue[tail++] = to;
	seen[to] = 1;
	while (head < tail) {
		u32 at = queue[head++];

		for (u32 i = 0; i < s->nodes; i++) {
			if (seen[i] || s->node[i].type != FABRIC_SWITCH)
				continue;
			for (u32 k = 1; k <= s->node[i].ports; k++) {
				/* a CA forwards nothing */
				if (s->node[i].peer[k] != at + 1 ||
				    (at != to && s->node[at].type != FABRIC_SWITCH))
					continue;
				s->node[i].table[s->node[to].lid] = (u8)k;
				seen[i] = 1;
				queue[tail++] = i;
				break;
			}
		}
	}
	if (s->node[to].type == FABRIC_SWITCH)
		s->node[to].table[s->node[to].lid] = 0;
	free(queue);
	free(seen);
}

static void sm_set_lid(struct sm *s, struct sm_node *n)
{
	u8 d[MAD_SMP_DATA];
	const struct fabric_mad *m;

	memcpy(d,
	       sm_data(sm_directed(s->b, s->port, &n->way, METHOD_GET, ATTR_PORT_INFO, 0, NULL)),
	       sizeof(d));
	d[32] &= 0xf0; /* leave the state */
	d[33] &= 0x0f;
	wire_put16(d + 16, n->lid);
	wire_put16(d + 18, s->node[0].lid);
	m = sm_directed(s->b, s->port, &n->way, METHOD_SET, ATTR_PORT_INFO, 0, d);
	assert_int_equal(wire_get16(sm_data(m) + 16), n->lid);
}

static void sm_set_tables(struct sm *s, struct sm_node *n)
{
	u8 d[MAD_SMP_DATA] = { 0 };

	memcpy(d,
	       sm_data(sm_directed(s->b, s->port, &n->way, METHOD_GET, ATTR_SWITCH_INFO, 0,
				   NULL)),
	       sizeof(d));
	wire_put16(d + 6, s->lids);
	d[11] |= 4;
	sm_data(sm_directed(s->b, s->port, &n->way, METHOD_SET, ATTR_SWITCH_INFO, 0, d));
	for (u32 block = 0; block <= s->lids / 64u; block++)
		sm_data(sm_directed(s->b, s->port, &n->way, METHOD_SET, ATTR_LINEAR_TABLE, block,
				    n->table + block * 64));
}

static void sm_set_state(struct sm *s, struct sm_node *n, u8 number, u8 state)
{
	u8 d[MAD_SMP_DATA];

	memcpy(d,
	       sm_data(sm_directed(s->b, s->port, &n->way, METHOD_GET, ATTR_PORT_INFO, number,
				   NULL)),
	       sizeof(d));
	if ((d[32] & 15) >= state)
		return;
	d[32] = (u8)((d[32] & 0xf0) | state);
	d[33] &= 0x0f;
	sm_data(sm_directed(s->b, s->port, &n->way, METHOD_SET, ATTR_PORT_INFO, number, d));
}

static void sm_set_states(struct sm *s, u8 state)
{
	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 1; k <= s->node[i].ports; k++)
			if (s->node[i].peer[k] != 0 ||
			    (s->node[i].type != FABRIC_SWITCH && k == s->node[i].local))
				sm_set_state(s, &s->node[i], (u8)k, state);
}

u32 sm_sweep(struct bed *b, u32 port)
{
	struct sm s = { .b = b, .port = port, .room = b->topo.port_count };
	u32 nodes;

	s.node = calloc(s.room, sizeof(*s.node));
	sm_discover(&s);
	for (u32 i = 0; i < s.nodes; i++)
		if (s.node[i].type == FABRIC_SWITCH) {
			s.node[i].table = malloc(65536);
			memset(s.node[i].table, 255, 65536);
		}
	for (u32 i = 0; i < s.nodes; i++)
		sm_routes_to(&s, i);
	for (u32 i = 0; i < s.nodes; i++) {
		sm_set_lid(&s, &s.node[i]);
		if (s.node[i].type == FABRIC_SWITCH)
			sm_set_tables(&s, &s.node[i]);
	}
	sm_set_states(&s, FABRIC_ARMED);
	sm_set_states(&s, FABRIC_ACTIVE);
	for (u32 i = 0; i < s.nodes; i++)
		free(s.node[i].table);
	nodes = s.nodes;
	free(s.node);
	return nodes;
}
