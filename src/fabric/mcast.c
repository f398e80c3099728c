/* mcast.c: the way of a multicast packet, by the tables of every switch on it.
 * In:    a map, hostile; a multicast LID    Out: the links of the tree
 * Runs:  readers in any process, the owner    Locks: none
 * Spec:  IBA vol 1, 18.2.4.3.3
 */
#include "fabric/route.h"

#include <errno.h>

/* Links of one tree. Tables that make no tree end here, or at FABRIC_HOPS links in a row. */
enum { TREE_STEPS = 1 << 20 };

struct tree_walk {
	const struct fabric_view *v;
	struct fabric_packet *k;
	fabric_mcast_visit visit;
	fabric_mcast_drop dropped;
	void *arg;
	u32 steps; /* that are left */
} OWNED_BY(the caller);

static void tree_from_switch(struct tree_walk *m, u32 in, u32 depth);

/* Over the link of `out`, and on if a switch is there. */
static int tree_cross(struct tree_walk *m, u32 out, u8 in_number, u32 depth)
{
	u32 in = 0;
	int rc;

	if (m->steps == 0 || depth == FABRIC_HOPS)
		return -ENETUNREACH;
	m->steps--;
	rc = fabric_cross(m->v, m->k, out, in_number, &in);
	if (rc != 0) {
		if (m->dropped != NULL)
			m->dropped(m->arg, m->k->blamed, m->k->blame);
		return rc;
	}
	m->visit(m->arg, m->k, out, in);
	if (fabric_switch_of(m->v, in) != NULL)
		tree_from_switch(m, in, depth + 1);
	return 0;
}

/* By every port of the switch that the table names, but not back. */
static void tree_from_switch(struct tree_walk *m, u32 in, u32 depth)
{
	const struct fabric_view *v = m->v;
	const struct fabric_node_rec *n = fabric_switch_of(v, in);
	u32 first = fabric_load(n->first_port), ports = fabric_load(n->ports);
	u8 in_number = fabric_load(v->port[in].number);

	for (u32 position = 0; position < fabric_mft_positions((u16)ports); position++) {
		u32 mask = fabric_mft(v, n, m->k->flow.dlid, position);

		for (; mask != 0; mask &= mask - 1) {
			u32 number = position * 16 + (u32)__builtin_ctz(mask);

			if (number == 0 || number == in_number || number > ports ||
			    first + number >= v->ports)
				continue;
			tree_cross(m, first + number, in_number, depth);
		}
	}
}

int fabric_mcast_walk(const struct fabric_view *v, struct fabric_packet *k, u32 from,
		      fabric_mcast_visit visit, fabric_mcast_drop dropped, void *arg)
{
	struct tree_walk m = { .v = v,
			       .k = k,
			       .visit = visit,
			       .dropped = dropped,
			       .arg = arg,
			       .steps = MIN(v->ports + 1, TREE_STEPS) };
	int rc;

	if (from >= v->ports || k->flow.dlid < FABRIC_MLID_FIRST ||
	    k->flow.dlid == FABRIC_LID_PERMISSIVE)
		return -EINVAL;
	rc = tree_cross(&m, from, 0, 0);
	return rc;
}

struct tree_list {
	const struct fabric_view *v;
	const struct fabric_counters *c; /* NULL: the packet does not count */
	u32 bytes;			 /* of the packet */
	u32 *to;
	u32 count, max, from;
} OWNED_BY(the caller);

static void tree_list(void *arg, const struct fabric_packet *k, u32 out, u32 in)
{
	struct tree_list *l = arg;

	(void)k;
	if (l->c != NULL)
		(void)fabric_charge_link(l->c, out, in, 1, l->bytes, true);
	if (in == l->from || fabric_switch_of(l->v, in) != NULL)
		return;
	if (l->count < l->max)
		l->to[l->count] = in;
	l->count++;
}

static int tree_collect(struct tree_list *l, const struct fabric_flow *w, u16 mlid)
{
	struct fabric_packet k = { .flow = *w };
	int rc;

	k.flow.dlid = mlid;
	rc = fabric_mcast_walk(l->v, &k, l->from, tree_list, NULL, l);
	return rc != 0 ? rc : (int)l->count;
}

int fabric_mcast_route(const struct fabric_view *v, u32 from, u16 mlid,
		       const struct fabric_flow *w, u32 to[], u32 max)
{
	struct tree_list l = { .v = v, .to = to, .max = max, .from = from };

	return tree_collect(&l, w, mlid);
}

int fabric_mcast_charge(const struct fabric_view *v, const struct fabric_counters *c, u32 bytes,
			u32 from, const struct fabric_flow *w, u32 to[], u32 max)
{
	struct tree_list l = {
		.v = v, .c = c, .bytes = bytes, .to = to, .max = max, .from = from
	};

	return tree_collect(&l, w, w->dlid);
}
