/* sa_path.c: PathRecords: between two ports, along the tables that the SM has set.
 * In:    queries    Out: records
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 15.2.5.16
 */
#include "sm/sa_priv.h"

/* ComponentMask of PathRecord. */
enum path_component {
	PATH_DGID = 2,
	PATH_SGID = 3,
	PATH_DLID = 4,
	PATH_SLID = 5,
	PATH_RAW = 6,
	PATH_FLOW = 8,
	PATH_HOP_LIMIT = 9,
	PATH_CLASS = 10,
	PATH_PKEY = 13,
	PATH_SL = 15,
	PATH_MTU_SELECTOR = 16,
	PATH_MTU = 17,
	PATH_RATE_SELECTOR = 18,
	PATH_RATE = 19,
	PATH_LIFE_SELECTOR = 20,
	PATH_LIFE = 21,
};

/* Where its fields lie. */
enum path_at {
	PATH_AT_DGID = 8,
	PATH_AT_SGID = 24,
	PATH_AT_DLID = 40,
	PATH_AT_SLID = 42,
	PATH_AT_HOPS = 44, /* with the flow label */
	PATH_AT_CLASS = 48,
	PATH_AT_NUMBER = 49,
	PATH_AT_PKEY = 50,
	PATH_AT_SL = 52,
	PATH_AT_MTU = 54,
	PATH_AT_RATE = 55,
	PATH_AT_LIFE = 56,
	PATH_EXACTLY = 0x80,
	PATH_LIFE_TIME = 18, /* a second: as the switches' */
};

/* ---- rates ----------------------------------------------------------------------------------- */

/* In units of 100 Mb/s, by the code of a record. */
static const u16 sm_path_rates[] = {
	[2] = 25,   [3] = 100,	 [4] = 300,   [5] = 50,	  [6] = 200,   [7] = 400,   [8] = 600,
	[9] = 800,  [10] = 1200, [11] = 140,  [12] = 560, [13] = 1120, [14] = 1680, [15] = 250,
	[16] = 1000, [17] = 2000, [18] = 3000, [19] = 280, [20] = 500, [21] = 4000, [22] = 6000,
};

static u32 sm_path_speed(u8 code)
{
	return code < ARRAY_LEN(sm_path_rates) ? sm_path_rates[code] : 0;
}

int sm_path_compare_rates(u8 a, u8 b)
{
	return (int)sm_path_speed(a) - (int)sm_path_speed(b);
}

u8 sm_path_rate(const u8 *info)
{
	static const u16 extended[] = { [1] = 140, [2] = 250, [4] = 500, [8] = 1000 };
	u8 ext = info[PI_SPEED_EXT] >> 4, width = info[PI_WIDTH];
	u32 lanes = width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 1;
	u32 lane = 25u * (info[PI_SPEED] >> 4);
	u8 best = 2;

	if (ext != 0 && ext < ARRAY_LEN(extended))
		lane = extended[ext];
	for (u8 code = 2; code < ARRAY_LEN(sm_path_rates); code++)
		if (sm_path_rates[code] <= lanes * lane &&
		    sm_path_rates[code] > sm_path_rates[best])
			best = code;
	return best;
}

bool sm_path_fits(u8 selector, int order)
{
	switch (selector) {
	case 0:
		return order > 0;
	case 1:
		return order < 0;
	case 2:
		return order == 0;
	default:
		return true;
	}
}

/* ---- one path -------------------------------------------------------------------------------- */

struct sm_path {
	u16 slid, dlid;
	u64 from, to; /* GUIDs */
	u16 pkey;
	u8 mtu, rate, life, sl;
} OWNED_BY(the SM);

/* Over the link of a port. */
static bool sm_path_hop(const struct sm_subnet *s, struct sm_path *path, u32 *at)
{
	const struct sm_port *p = &s->node[sm_at_node(*at)].port[sm_at_port(*at)];
	u8 rate = sm_path_rate(p->info);

	if (p->peer == SM_NONE)
		return false;
	path->mtu = MIN(path->mtu, p->info[PI_MTU] >> 4);
	if (sm_path_compare_rates(rate, path->rate) < 0)
		path->rate = rate;
	*at = sm_at(p->peer, p->peer_port);
	return true;
}

/* Follows the tables. False: there is no way. */
static bool sm_path_walk(const struct sm_subnet *s, u32 from, u32 to, struct sm_path *path)
{
	u32 at = from;

	*path = (struct sm_path){ .mtu = 5, .rate = 22 };
	for (u32 hops = 0; hops < FABRIC_HOPS && at != to; hops++) {
		const struct sm_node *n = &s->node[sm_at_node(at)];
		u16 lid = s->node[sm_at_node(to)].port[sm_at_port(to)].lid;
		u8 out = sm_at_port(at);

		if (n->type == FABRIC_SWITCH) {
			if (sm_at_node(at) == sm_at_node(to))
				return true;
			out = lid < n->lft_blocks * SM_LFT_BLOCK ? n->lft[lid] : SM_NO_PORT;
			if (out == 0 || out > n->ports)
				return false;
		} else if (at != from) {
			return false; /* a CA forwards nothing */
		}
		at = sm_at(sm_at_node(at), out);
		if (!sm_path_hop(s, path, &at))
			return false;
	}
	return at == to || (sm_at_node(at) == sm_at_node(to) &&
			    s->node[sm_at_node(to)].type == FABRIC_SWITCH);
}

static bool sm_path_value(const struct sm_query *q, u32 selector, u32 at, int order)
{
	u8 how = sm_query_has(q, selector) ? q->want[at] >> 6 : 2;

	return !sm_query_has(q, selector + 1) || sm_path_fits(how, order);
}

static bool sm_path_judge(const struct sm_query *q, const struct sm_path *p)
{
	const u8 *w = q->want;

	if (sm_query_has(q, PATH_RAW) && (w[PATH_AT_HOPS] & 0x80) != 0)
		return false;
	if (sm_query_has(q, PATH_PKEY) && ((wire_get16(w + PATH_AT_PKEY) ^ p->pkey) & 0x7fff) != 0)
		return false;
	if (sm_query_has(q, PATH_SL) && (w[PATH_AT_SL + 1] & 15) != p->sl)
		return false;
	return sm_path_value(q, PATH_MTU_SELECTOR, PATH_AT_MTU,
			     p->mtu - (w[PATH_AT_MTU] & 63)) &&
	       sm_path_value(q, PATH_RATE_SELECTOR, PATH_AT_RATE,
			     sm_path_compare_rates(p->rate, w[PATH_AT_RATE] & 63)) &&
	       sm_path_value(q, PATH_LIFE_SELECTOR, PATH_AT_LIFE,
			     p->life - (w[PATH_AT_LIFE] & 63));
}

static void sm_path_pack(const struct sm_query *q, const struct sm_path *p, u8 *d)
{
	memset(d, 0, 64);
	wire_put64(d + PATH_AT_DGID, SM_PREFIX);
	wire_put64(d + PATH_AT_DGID + 8, p->to);
	wire_put64(d + PATH_AT_SGID, SM_PREFIX);
	wire_put64(d + PATH_AT_SGID + 8, p->from);
	wire_put16(d + PATH_AT_DLID, p->dlid);
	wire_put16(d + PATH_AT_SLID, p->slid);
	if (sm_query_has(q, PATH_FLOW))
		wire_put32(d + PATH_AT_HOPS, wire_get32(q->want + PATH_AT_HOPS) & 0x0fffff00);
	if (sm_query_has(q, PATH_CLASS))
		d[PATH_AT_CLASS] = q->want[PATH_AT_CLASS];
	d[PATH_AT_NUMBER] = 0x80; /* reversible */
	wire_put16(d + PATH_AT_PKEY, p->pkey);
	d[PATH_AT_SL + 1] = p->sl;
	d[PATH_AT_MTU] = PATH_EXACTLY | p->mtu;
	d[PATH_AT_RATE] = PATH_EXACTLY | p->rate;
	d[PATH_AT_LIFE] = PATH_EXACTLY | p->life;
}

static void sm_path_between(struct sm_query *q, u32 from, u32 to)
{
	const struct sm_subnet *s = q->sm->subnet;
	const struct sm_port *a = &s->node[sm_at_node(from)].port[sm_at_port(from)];
	const struct sm_port *b = &s->node[sm_at_node(to)].port[sm_at_port(to)];
	struct sm_path path;
	u8 d[64];

	if (!sm_path_walk(s, from, to, &path))
		return;
	path.slid = a->lid;
	path.dlid = b->lid;
	path.from = a->guid;
	path.to = b->guid;
	path.pkey = SM_PKEY;
	path.life = PATH_LIFE_TIME;
	path.sl = 0;
	if (from == to) { /* no link: what the port itself can, also port 0 of a switch */
		path.mtu = a->info[PI_MTU] >> 4;
		path.rate = sm_path_rate(a->info);
	}
	if (!sm_path_judge(q, &path))
		return;
	sm_path_pack(q, &path, d);
	sm_query_add(q, d);
}

/* ---- ends ------------------------------------------------------------------------------------ */

enum path_end { PATH_ONE, PATH_ANY, PATH_NOBODY };

/* Who is meant by a GID and a LID. */
static enum path_end sm_path_end(const struct sm_query *q, u32 gid, u32 gid_at, u32 lid,
				 u32 lid_at, u32 *at)
{
	const struct sm_subnet *s = q->sm->subnet;
	const u8 *w = q->want;
	u32 by_lid;

	if (sm_query_has(q, gid) &&
	    (wire_get64(w + gid_at) != SM_PREFIX ||
	     sm_subnet_find_guid(s, wire_get64(w + gid_at + 8), at) == NULL))
		return PATH_NOBODY;
	if (!sm_query_has(q, lid))
		return sm_query_has(q, gid) ? PATH_ONE : PATH_ANY;
	if (sm_subnet_find_lid(s, wire_get16(w + lid_at), &by_lid) == NULL ||
	    (sm_query_has(q, gid) && by_lid != *at))
		return PATH_NOBODY;
	*at = by_lid;
	return PATH_ONE;
}

static void sm_path_each(struct sm_query *q, enum path_end from_kind, u32 from,
			 enum path_end to_kind, u32 to)
{
	const struct sm_subnet *s = q->sm->subnet;
	u32 top = s->lid_top;

	if (from_kind == PATH_ANY) {
		for (u32 lid = 1; lid <= top && !q->full; lid++)
			if (sm_subnet_find_lid(s, (u16)lid, &from) != NULL)
				sm_path_each(q, PATH_ONE, from, to_kind, to);
		return;
	}
	if (to_kind == PATH_ONE) {
		sm_path_between(q, from, to);
		return;
	}
	for (u32 lid = 1; lid <= top && !q->full; lid++)
		if (sm_subnet_find_lid(s, (u16)lid, &to) != NULL)
			sm_path_between(q, from, to);
}

/* A path to a multicast group. */
static u16 sm_path_to_group(struct sm_query *q, u32 from)
{
	const struct sm_subnet *s = q->sm->subnet;
	const struct sm_port *a = &s->node[sm_at_node(from)].port[sm_at_port(from)];
	const struct sm_group *g = sm_group_find(q->sm->sa, q->want + PATH_AT_DGID);
	struct sm_path path = { .slid = a->lid, .from = a->guid };
	u8 d[64];

	if (g == NULL)
		return SA_OK;
	path.dlid = g->mlid;
	path.mtu = g->mtu;
	path.rate = g->rate;
	path.life = g->life;
	path.pkey = g->pkey;
	path.sl = g->sl;
	if (!sm_path_judge(q, &path))
		return SA_OK;
	sm_path_pack(q, &path, d);
	memcpy(d + PATH_AT_DGID, g->mgid, sizeof(g->mgid));
	wire_put32(d + PATH_AT_HOPS, g->flow_label << 8 | g->hop_limit);
	d[PATH_AT_CLASS] = g->traffic_class;
	sm_query_add(q, d);
	return SA_OK;
}

u16 sm_path_query(struct sm_query *q)
{
	u32 from = 0, to = 0;
	enum path_end from_kind = sm_path_end(q, PATH_SGID, PATH_AT_SGID, PATH_SLID,
					      PATH_AT_SLID, &from);
	enum path_end to_kind;

	/* One record: from the asker, if it says nothing else. */
	if (from_kind == PATH_ANY && q->method == SA_GET)
		from_kind = sm_subnet_find_lid(q->sm->subnet, q->m->slid, &from) == NULL ?
				    PATH_NOBODY :
				    PATH_ONE;
	if (from_kind == PATH_ONE && sm_query_has(q, PATH_DGID) &&
	    q->want[PATH_AT_DGID] == 0xff)
		return sm_path_to_group(q, from);
	to_kind = sm_path_end(q, PATH_DGID, PATH_AT_DGID, PATH_DLID, PATH_AT_DLID, &to);
	if (from_kind == PATH_NOBODY || to_kind == PATH_NOBODY)
		return SA_OK;
	if (q->method == SA_GET && to_kind == PATH_ANY)
		return SA_INSUFFICIENT;
	sm_path_each(q, from_kind, from, to_kind, to);
	return SA_OK;
}
