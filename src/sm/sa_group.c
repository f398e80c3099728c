/* sa_group.c: multicast groups: who is a member, what a group's packets are like. A port joins by
 * Set, leaves by Delete; the first full member creates the group, the last one ends it.
 * In:    MCMemberRecords    Out: records; groups whose trees are stale
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 15.2.5.17, 10.5 (multicast); RFC 4391, 4 (the broadcast group of IPoIB)
 */
#include <stdlib.h>

#include "sm/sa_priv.h"

/* ComponentMask of MCMemberRecord. */
enum group_component {
	GROUP_MGID,
	GROUP_PORT_GID,
	GROUP_QKEY,
	GROUP_MLID,
	GROUP_MTU_SELECTOR,
	GROUP_MTU,
	GROUP_CLASS,
	GROUP_PKEY,
	GROUP_RATE_SELECTOR,
	GROUP_RATE,
	GROUP_LIFE_SELECTOR,
	GROUP_LIFE,
	GROUP_SL,
	GROUP_FLOW,
	GROUP_HOP_LIMIT,
	GROUP_SCOPE,
	GROUP_JOIN_STATE,
	GROUP_PROXY,
};

/* Where its fields lie. */
enum group_at {
	AT_PORT_GID = 16,
	AT_QKEY = 32,
	AT_MLID = 36,
	AT_MTU = 38,
	AT_CLASS = 39,
	AT_PKEY = 40,
	AT_RATE = 42,
	AT_LIFE = 43,
	AT_SL_FLOW_HOPS = 44,
	AT_SCOPE_STATE = 48,
	AT_PROXY = 49,
	GROUP_BYTES = 52,
	GROUP_FULL = 1 | 8, /* full members, and those that send only */
	GROUP_STATES = 15,
	GROUP_LIFE_TIME = 18,
	GROUP_DEFAULT_MTU = 4, /* 2048 */
	GROUP_DEFAULT_RATE = 3, /* 10 Gb/s */
	GROUP_TRAP_CREATED = 66,
	GROUP_TRAP_DELETED = 67,
	GROUP_IPOIB_QKEY = 0x0b1b,
};

/* What a group must have to be created. */
#define GROUP_NEEDED                                                                               \
	(1u << GROUP_QKEY | 1u << GROUP_CLASS | 1u << GROUP_PKEY | 1u << GROUP_SL |                \
	 1u << GROUP_FLOW)

static const u8 sm_group_broadcast[16] = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0,    0,
					   0,	 0,    0,    0,	   0xff, 0xff, 0xff, 0xff };

/* ---- groups ---------------------------------------------------------------------------------- */

struct sm_group *sm_group_find(const struct sm_sa *sa, const u8 *mgid)
{
	for (u32 i = 0; i < sa->group_top; i++)
		if (sa->group[i] != NULL && memcmp(sa->group[i]->mgid, mgid, 16) == 0)
			return sa->group[i];
	return NULL;
}

/* The capacity of the smallest multicast table. */
static u32 sm_group_capacity(const struct sm *sm)
{
	const struct sm_subnet *s = sm->subnet;
	u32 least = sm->sa->groups_max;

	for (u32 i = 0; s != NULL && i < s->switches; i++)
		least = MIN(least, (u32)wire_get16(s->node[s->sw[i]].switch_info + 4));
	return least;
}

/* NULL: no MLID is left, or no memory. */
static struct sm_group *sm_group_new(struct sm *sm)
{
	u32 i = 0, capacity = sm_group_capacity(sm);
	struct sm_group *g;

	while (i < capacity && sm->sa->group[i] != NULL)
		i++;
	g = i == capacity ? NULL : calloc(1, sizeof(*g));
	if (g == NULL)
		return NULL;
	g->mlid = (u16)(FABRIC_MLID_FIRST + i);
	g->stale = true;
	sm->sa->group[i] = g;
	sm->sa->group_top = MAX(sm->sa->group_top, i + 1);
	sm->report.groups++;
	return g;
}

/* Of a group that nobody has been told of. */
static void sm_group_free(struct sm *sm, struct sm_group *g)
{
	u32 i = g->mlid - FABRIC_MLID_FIRST;

	sm->sa->group[i] = NULL;
	if (sm->sa->dead_count < SA_MLIDS)
		sm->sa->dead[sm->sa->dead_count++] = g->mlid;
	sm->trees_stale = true;
	sm->report.groups--;
	free(g->member);
	free(g);
}

static void sm_group_end(struct sm *sm, struct sm_group *g)
{
	sm_inform_gid(sm, GROUP_TRAP_DELETED, g->mgid);
	sm_group_free(sm, g);
}

/* The broadcast group of IPoIB in the default partition is there from the beginning. */
static void sm_group_make_broadcast(struct sm *sm)
{
	struct sm_group *g = sm_group_new(sm);

	if (g == NULL)
		return;
	memcpy(g->mgid, sm_group_broadcast, sizeof(g->mgid));
	g->qkey = GROUP_IPOIB_QKEY;
	g->pkey = SM_PKEY;
	g->mtu = GROUP_DEFAULT_MTU;
	g->rate = GROUP_DEFAULT_RATE;
	g->life = GROUP_LIFE_TIME;
	g->scope = 2;
	g->permanent = true;
}

void sm_group_forget(struct sm *sm)
{
	for (u32 i = 0; i < SA_MLIDS; i++) {
		if (sm->sa->group[i] != NULL)
			free(sm->sa->group[i]->member);
		free(sm->sa->group[i]);
		sm->sa->group[i] = NULL;
	}
	sm->sa->group_top = sm->sa->dead_count = 0;
	sm->report.groups = 0;
	sm_group_make_broadcast(sm);
}

/* ---- members --------------------------------------------------------------------------------- */

static struct sm_member *sm_group_member(struct sm_group *g, u64 port_guid)
{
	for (u32 i = 0; i < g->members; i++)
		if (g->member[i].port_guid == port_guid)
			return &g->member[i];
	return NULL;
}

static bool sm_group_has_full(const struct sm_group *g)
{
	for (u32 i = 0; i < g->members; i++)
		if ((g->member[i].join_state & GROUP_FULL) != 0)
			return true;
	return false;
}

/* Without a full member a group ends, and its other members with it. */
static void sm_group_look(struct sm *sm, struct sm_group *g)
{
	g->stale = true;
	sm->trees_stale = true;
	if (!g->permanent && !sm_group_has_full(g))
		sm_group_end(sm, g);
}

void sm_group_subnet_changed(struct sm *sm)
{
	u32 at;

	for (u32 i = 0; i < sm->sa->group_top; i++) {
		struct sm_group *g = sm->sa->group[i];
		u32 kept = 0;

		for (u32 k = 0; g != NULL && k < g->members; k++)
			if (sm_subnet_find_guid(sm->subnet, g->member[k].port_guid, &at) != NULL)
				g->member[kept++] = g->member[k];
		if (g == NULL)
			continue;
		g->members = kept;
		sm_group_look(sm, g);
	}
}

/* ---- records --------------------------------------------------------------------------------- */

static void sm_group_pack(const struct sm_group *g, const struct sm_member *m, u8 *d)
{
	memset(d, 0, GROUP_BYTES);
	memcpy(d, g->mgid, sizeof(g->mgid));
	wire_put32(d + AT_QKEY, g->qkey);
	wire_put16(d + AT_MLID, g->mlid);
	d[AT_MTU] = 0x80 | g->mtu;
	d[AT_CLASS] = g->traffic_class;
	wire_put16(d + AT_PKEY, g->pkey);
	d[AT_RATE] = 0x80 | g->rate;
	d[AT_LIFE] = 0x80 | g->life;
	wire_put32(d + AT_SL_FLOW_HOPS, (u32)g->sl << 28 | g->flow_label << 8 | g->hop_limit);
	d[AT_SCOPE_STATE] = (u8)(g->scope << 4);
	if (m == NULL)
		return;
	memcpy(d + AT_PORT_GID, m->gid, sizeof(m->gid));
	d[AT_SCOPE_STATE] |= m->join_state;
	d[AT_PROXY] = m->proxy ? 0x80 : 0;
}

static bool sm_group_value(const struct sm_query *q, u32 selector, u32 at, int order)
{
	u8 how = sm_query_has(q, selector) ? q->want[at] >> 6 : 2;

	return !sm_query_has(q, selector + 1) || sm_path_fits(how, order);
}

/* Is the group as the request wants it, in the components that a query and a join share? */
static bool sm_group_fits(const struct sm_query *q, const struct sm_group *g)
{
	const u8 *w = q->want;
	u32 word = wire_get32(w + AT_SL_FLOW_HOPS);

	if ((sm_query_has(q, GROUP_QKEY) && wire_get32(w + AT_QKEY) != g->qkey) ||
	    (sm_query_has(q, GROUP_MLID) && wire_get16(w + AT_MLID) != g->mlid) ||
	    (sm_query_has(q, GROUP_CLASS) && w[AT_CLASS] != g->traffic_class) ||
	    (sm_query_has(q, GROUP_PKEY) &&
	     ((wire_get16(w + AT_PKEY) ^ g->pkey) & 0x7fff) != 0) ||
	    (sm_query_has(q, GROUP_SL) && word >> 28 != g->sl) ||
	    (sm_query_has(q, GROUP_FLOW) && (word >> 8 & 0xfffff) != g->flow_label) ||
	    (sm_query_has(q, GROUP_HOP_LIMIT) && (word & 0xff) != g->hop_limit) ||
	    (sm_query_has(q, GROUP_SCOPE) && w[AT_SCOPE_STATE] >> 4 != g->scope))
		return false;
	return sm_group_value(q, GROUP_MTU_SELECTOR, AT_MTU, g->mtu - (w[AT_MTU] & 63)) &&
	       sm_group_value(q, GROUP_RATE_SELECTOR, AT_RATE,
			      sm_path_compare_rates(g->rate, w[AT_RATE] & 63)) &&
	       sm_group_value(q, GROUP_LIFE_SELECTOR, AT_LIFE, g->life - (w[AT_LIFE] & 63));
}

static void sm_group_show(struct sm_query *q, struct sm_group *g)
{
	u8 d[GROUP_BYTES];
	u64 port = wire_get64(q->want + AT_PORT_GID + 8);

	if (!q->trusted && !sm_query_has(q, GROUP_PORT_GID)) {
		sm_group_pack(g, NULL, d);
		sm_query_add(q, d);
		return;
	}
	for (u32 i = 0; i < g->members; i++) {
		const struct sm_member *m = &g->member[i];

		if (sm_query_has(q, GROUP_PORT_GID) && m->port_guid != port)
			continue;
		if (sm_query_has(q, GROUP_JOIN_STATE) &&
		    (m->join_state & q->want[AT_SCOPE_STATE] & GROUP_STATES) == 0)
			continue;
		sm_group_pack(g, m, d);
		sm_query_add(q, d);
	}
	if (g->members == 0 && !sm_query_has(q, GROUP_PORT_GID)) {
		sm_group_pack(g, NULL, d);
		sm_query_add(q, d);
	}
}

u16 sm_group_query(struct sm_query *q)
{
	for (u32 i = 0; i < q->sm->sa->group_top; i++) {
		struct sm_group *g = q->sm->sa->group[i];

		if (g == NULL ||
		    (sm_query_has(q, GROUP_MGID) && memcmp(g->mgid, q->want, 16) != 0) ||
		    !sm_group_fits(q, g))
			continue;
		sm_group_show(q, g);
	}
	return SA_OK;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* What a new group takes where the request asks for a range. best: of the joining port. */
static u8 sm_group_choose(const struct sm_query *q, u32 selector, u32 at, u8 usual, u8 best,
			  u8 step)
{
	u8 how = sm_query_has(q, selector) ? q->want[at] >> 6 : 2, asked = q->want[at] & 63;

	if (!sm_query_has(q, selector + 1))
		return MIN(usual, best);
	switch (how) {
	case 0:
		return (u8)(asked + step);
	case 1:
		return (u8)(asked - step);
	case 2:
		return asked;
	default:
		return best;
	}
}

/* A code that is a little more or less than another: rates are not in order. */
static u8 sm_group_choose_rate(const struct sm_query *q, u8 best)
{
	u8 how = sm_query_has(q, GROUP_RATE_SELECTOR) ? q->want[AT_RATE] >> 6 : 2;
	u8 asked = q->want[AT_RATE] & 63;

	if (!sm_query_has(q, GROUP_RATE))
		return sm_path_compare_rates(best, GROUP_DEFAULT_RATE) < 0 ? best :
									     GROUP_DEFAULT_RATE;
	if (how == 1)
		return sm_path_compare_rates(2, asked) < 0 ? 2 : 0;
	return how == 2 ? asked : best;
}

static void sm_group_make_up(struct sm *sm, struct sm_group *g)
{
	if (g->mgid[0] != 0)
		return;
	/* FF12:A01B:prefix:a number (IBA vol 1, 10.5.1: a transient group of the local subnet) */
	g->mgid[0] = 0xff;
	g->mgid[1] = 0x12;
	g->mgid[2] = 0xa0;
	g->mgid[3] = 0x1b;
	wire_put64(g->mgid + 8, sm->guid ^ ++sm->sa->made_up << 40);
}

/* Creates a group for its first full member. */
static u16 sm_group_create(struct sm_query *q, const struct sm_port *port, struct sm_group **out)
{
	const u8 *w = q->want;
	u32 word = wire_get32(w + AT_SL_FLOW_HOPS);
	u8 mtu = sm_group_choose(q, GROUP_MTU_SELECTOR, AT_MTU, GROUP_DEFAULT_MTU,
				 port->info[PI_MTU_CAP] & 15, 1);
	u8 rate = sm_group_choose_rate(q, sm_path_rate(port->info));
	struct sm_group *g;

	if ((w[AT_SCOPE_STATE] & GROUP_FULL) == 0)
		return SA_INVALID;
	if ((q->mask & GROUP_NEEDED) != GROUP_NEEDED)
		return SA_INSUFFICIENT;
	if (mtu < 1 || mtu > 5 || sm_path_compare_rates(rate, 0) == 0 ||
	    (wire_get16(w + AT_PKEY) | 0x8000) != SM_PKEY || (w[0] != 0xff && w[0] != 0))
		return SA_INVALID;
	g = sm_group_new(q->sm);
	if (g == NULL)
		return SA_NO_RESOURCES;
	if (sm_query_has(q, GROUP_MGID))
		memcpy(g->mgid, w, sizeof(g->mgid));
	sm_group_make_up(q->sm, g);
	g->qkey = wire_get32(w + AT_QKEY);
	g->pkey = wire_get16(w + AT_PKEY) | 0x8000;
	g->traffic_class = w[AT_CLASS];
	g->mtu = mtu;
	g->rate = rate;
	g->life = sm_query_has(q, GROUP_LIFE) ? w[AT_LIFE] & 63 : GROUP_LIFE_TIME;
	g->sl = (u8)(word >> 28);
	g->flow_label = word >> 8 & 0xfffff;
	g->hop_limit = sm_query_has(q, GROUP_HOP_LIMIT) ? (u8)word : 0;
	g->scope = sm_query_has(q, GROUP_SCOPE) ? w[AT_SCOPE_STATE] >> 4 : g->mgid[1] & 15;
	*out = g;
	return SA_OK;
}

/* Can the port take the group's packets? */
static bool sm_group_suits(const struct sm_group *g, const struct sm_port *port)
{
	return g->mtu <= (port->info[PI_MTU_CAP] & 15) &&
	       sm_path_compare_rates(g->rate, sm_path_rate(port->info)) <= 0;
}

static struct sm_member *sm_group_add(struct sm_group *g, const struct sm_query *q)
{
	u64 port_guid = wire_get64(q->want + AT_PORT_GID + 8);
	struct sm_member *m = sm_group_member(g, port_guid);

	if (m == NULL) {
		if (!sm_sa_grow((void **)&g->member, &g->room, g->members, sizeof(*g->member),
				SM_LIDS))
			return NULL;
		m = &g->member[g->members++];
		*m = (struct sm_member){ .port_guid = port_guid };
		memcpy(m->gid, q->want + AT_PORT_GID, sizeof(m->gid));
	}
	m->join_state |= q->want[AT_SCOPE_STATE] & GROUP_STATES;
	m->proxy = sm_query_has(q, GROUP_PROXY) && (q->want[AT_PROXY] & 0x80) != 0;
	return m;
}

/* The port that a join is for; NULL: none. */
static const struct sm_port *sm_group_port(const struct sm_query *q)
{
	u32 at;

	if (wire_get64(q->want + AT_PORT_GID) != SM_PREFIX)
		return NULL;
	return sm_subnet_find_guid(q->sm->subnet, wire_get64(q->want + AT_PORT_GID + 8), &at);
}

static u16 sm_group_enter(struct sm_query *q, const struct sm_port *port, struct sm_group *g)
{
	const struct sm_member *m;
	u8 d[GROUP_BYTES];
	bool is_new = g == NULL;
	u16 status = SA_OK;

	if (is_new)
		status = sm_group_create(q, port, &g);
	else if (!sm_group_fits(q, g))
		status = SA_INVALID;
	if (status != SA_OK)
		return status;
	m = sm_group_suits(g, port) ? sm_group_add(g, q) : NULL;
	if (m == NULL) {
		if (is_new)
			sm_group_free(q->sm, g);
		return SA_INVALID;
	}
	g->stale = true;
	q->sm->trees_stale = true;
	if (is_new)
		sm_inform_gid(q->sm, GROUP_TRAP_CREATED, g->mgid);
	sm_group_pack(g, m, d);
	sm_query_add(q, d);
	return SA_OK;
}

u16 sm_group_join(struct sm_query *q)
{
	static const u8 none[16];
	bool has_mgid = sm_query_has(q, GROUP_MGID) && memcmp(q->want, none, 16) != 0;
	const struct sm_port *port = sm_group_port(q);

	if (!sm_query_has(q, GROUP_PORT_GID) || !sm_query_has(q, GROUP_JOIN_STATE))
		return SA_INSUFFICIENT;
	if (port == NULL)
		return SA_INVALID_GID;
	if ((q->want[AT_SCOPE_STATE] & GROUP_STATES) == 0)
		return SA_INVALID;
	return sm_group_enter(q, port, has_mgid ? sm_group_find(q->sm->sa, q->want) : NULL);
}

u16 sm_group_leave(struct sm_query *q)
{
	struct sm_group *g = sm_query_has(q, GROUP_MGID) ? sm_group_find(q->sm->sa, q->want) :
							   NULL;
	struct sm_member *m = NULL;
	u8 d[GROUP_BYTES], states = q->want[AT_SCOPE_STATE] & GROUP_STATES;

	if (g != NULL && sm_query_has(q, GROUP_PORT_GID))
		m = sm_group_member(g, wire_get64(q->want + AT_PORT_GID + 8));
	if (m == NULL || !sm_query_has(q, GROUP_JOIN_STATE) || (m->join_state & states) == 0)
		return SA_INVALID;
	m->join_state &= (u8)~states;
	sm_group_pack(g, m, d);
	sm_query_add(q, d);
	if (m->join_state == 0)
		*m = g->member[--g->members];
	sm_group_look(q->sm, g);
	return SA_OK;
}
