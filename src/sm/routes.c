/* routes.c: forwarding tables: of all shortest paths the one whose first link has the fewest.
 * In:    the subnet's links and LIDs    Out: each switch's table, and which blocks have changed
 * Runs:  the host's thread, in parts    Locks: none
 * Spec:  IBA vol 1, 14.4.3 (path set-up), 18.2.4.3.1 (linear tables)
 */
#include <stdlib.h>

#include "sm/sm_priv.h"

enum { ROUTES_BATCH = 1 << 16 /* entries of one part, about */, ROUTES_FAR = 255 };

/* ---- tables ---------------------------------------------------------------------------------- */

static bool sm_routes_grow(struct sm_node *n, u32 blocks)
{
	u8 *lft, *dirty;

	if (n->lft_blocks >= blocks)
		return true;
	lft = realloc(n->lft, (size_t)blocks * SM_LFT_BLOCK);
	if (lft == NULL)
		return false;
	n->lft = lft;
	dirty = realloc(n->lft_dirty, blocks);
	if (dirty == NULL)
		return false;
	n->lft_dirty = dirty;
	memset(lft + (size_t)n->lft_blocks * SM_LFT_BLOCK, SM_NO_PORT,
	       (size_t)(blocks - n->lft_blocks) * SM_LFT_BLOCK);
	/* nobody knows what a block has that was never set */
	memset(dirty + n->lft_blocks, 1, blocks - n->lft_blocks);
	n->lft_blocks = blocks;
	return true;
}

static void sm_routes_set(struct sm_node *n, u16 lid, u8 port)
{
	if (n->lft[lid] == port)
		return;
	n->lft[lid] = port;
	n->lft_dirty[lid / SM_LFT_BLOCK] = 1;
}

/* Takes a switch's tables over from the sweep before. */
static void sm_routes_inherit(struct sm_node *n, struct sm_node *old)
{
	n->lft = old->lft;
	n->lft_dirty = old->lft_dirty;
	n->lft_blocks = old->lft_blocks;
	n->mft = old->mft;
	n->mft_dirty = old->mft_dirty;
	n->mft_blocks = old->mft_blocks;
	old->lft = old->lft_dirty = old->mft_dirty = NULL;
	old->mft = NULL;
	old->lft_blocks = old->mft_blocks = 0;
}

/* Does the switch have the tables that it had? One that has restarted has lost its LID, and another
 * master has set its own LID as the SM's. */
static bool sm_routes_has_kept(const struct sm *sm, const struct sm_node *n,
			       const struct sm_node *old)
{
	const u8 *was = old->port[0].info, *is = n->port[0].info;

	return !sm->fresh && old->ports == n->ports &&
	       wire_get16(is + PI_SM_LID) == wire_get16(was + PI_SM_LID) &&
	       wire_get16(is + PI_LID) == old->port[0].lid && old->port[0].lid != 0;
}

/* All of it is written again. Trees follow, of the groups that there are: a master that was one
 * before has forgotten those that it had then. */
static void sm_routes_forget(struct sm_node *n)
{
	size_t words = (n->ports / 16u + 1) * SM_MFT_BLOCK;

	if (n->lft_blocks > 0)
		memset(n->lft_dirty, 1, n->lft_blocks);
	if (n->mft_blocks == 0)
		return;
	memset(n->mft, 0, n->mft_blocks * words * sizeof(*n->mft));
	memset(n->mft_dirty, 0xff, n->mft_blocks * 2);
}

static bool sm_routes_take_over(struct sm *sm, struct sm_subnet *s, struct sm_subnet *before)
{
	for (u32 i = 0; i < s->switches; i++) {
		struct sm_node *n = &s->node[s->sw[i]];
		u32 was = before == NULL ? SM_NONE : sm_map_get(&before->by_guid, n->guid);

		if (was != SM_NONE && before->node[was].type == FABRIC_SWITCH &&
		    before->node[was].ports == n->ports) {
			sm_routes_inherit(n, &before->node[was]);
			if (!sm_routes_has_kept(sm, n, &before->node[was]))
				sm_routes_forget(n);
		}
		if (!sm_routes_grow(n, s->lid_top / SM_LFT_BLOCK + 1u))
			return false;
	}
	return true;
}

/* No way to a LID that nobody has. */
static void sm_routes_clear(struct sm_subnet *s)
{
	for (u32 i = 0; i < s->switches; i++) {
		struct sm_node *n = &s->node[s->sw[i]];

		for (u32 lid = 0; lid < n->lft_blocks * SM_LFT_BLOCK; lid++)
			if (lid >= SM_LIDS || s->by_lid[lid] == 0)
				sm_routes_set(n, (u16)lid, SM_NO_PORT);
	}
}

bool sm_routes_begin(struct sm *sm, struct sm_subnet *s, struct sm_subnet *before)
{
	if (!sm_routes_take_over(sm, s, before))
		return false;
	sm_routes_clear(s);
	free(sm->load);
	sm->load = calloc(s->switches + 1u, 256 * sizeof(*sm->load));
	sm->route_next = 0;
	return sm->load != NULL;
}

/* ---- shortest paths -------------------------------------------------------------------------- */

/* What the computation of one destination needs. */
struct sm_routes {
	struct sm *sm;
	struct sm_subnet *s;
	u8 *distance; /* of each switch */
	u32 *order;   /* switches by distance */
	u32 count;
	u16 lid[256]; /* at the destination switch, and the port for each */
	u8 port[256];
	u32 lids;
} OWNED_BY(the SM);

/* The switch behind a port; SM_NONE: none. */
static u32 sm_routes_behind(const struct sm_subnet *s, const struct sm_port *p)
{
	return p->peer == SM_NONE ? SM_NONE : s->node[p->peer].sw;
}

static void sm_routes_measure(struct sm_routes *r, u32 to)
{
	struct sm_subnet *s = r->s;

	memset(r->distance, ROUTES_FAR, s->switches);
	r->distance[to] = 0;
	r->order[0] = to;
	r->count = 1;
	for (u32 i = 0; i < r->count; i++) {
		const struct sm_node *n = &s->node[s->sw[r->order[i]]];
		u8 next = r->distance[r->order[i]] + 1;

		for (u32 k = 1; k <= n->ports && next < MAD_HOPS_MAX; k++) {
			u32 sw = sm_routes_behind(s, &n->port[k]);

			if (sw == SM_NONE || r->distance[sw] != ROUTES_FAR)
				continue;
			r->distance[sw] = next;
			r->order[r->count++] = sw;
		}
	}
}

/* The LIDs of a switch and of the CAs behind it. */
static void sm_routes_collect(struct sm_routes *r, u32 to)
{
	const struct sm_node *n = &r->s->node[r->s->sw[to]];

	r->lids = 0;
	for (u32 k = 0; k <= n->ports; k++) {
		const struct sm_port *p = &n->port[k];
		u16 lid = k == 0 ? p->lid : 0;

		if (k != 0 && p->peer != SM_NONE && r->s->node[p->peer].type != FABRIC_SWITCH)
			lid = r->s->node[p->peer].port[p->peer_port].lid;
		if (lid == 0)
			continue;
		r->lid[r->lids] = lid;
		r->port[r->lids++] = (u8)k;
	}
}

/* The ports of a switch that lead to the destination by a shortest path. */
static u32 sm_routes_choices(const struct sm_routes *r, u32 from, u8 choice[256])
{
	const struct sm_node *n = &r->s->node[r->s->sw[from]];
	u32 choices = 0;

	for (u32 k = 1; k <= n->ports; k++) {
		u32 sw = sm_routes_behind(r->s, &n->port[k]);

		if (sw != SM_NONE && r->distance[sw] + 1 == r->distance[from])
			choice[choices++] = (u8)k;
	}
	return choices;
}

static void sm_routes_from(const struct sm_routes *r, u32 from)
{
	struct sm_node *n = &r->s->node[r->s->sw[from]];
	u32 *load = r->sm->load + (size_t)from * 256;
	u8 choice[256];
	u32 choices = r->distance[from] == ROUTES_FAR ? 0 : sm_routes_choices(r, from, choice);

	for (u32 i = 0; i < r->lids; i++) {
		u8 best = choices == 0 ? SM_NO_PORT : choice[0];

		for (u32 k = 1; k < choices; k++)
			if (load[choice[k]] < load[best])
				best = choice[k];
		load[best]++;
		sm_routes_set(n, r->lid[i], best);
	}
}

static void sm_routes_to(struct sm_routes *r, u32 to)
{
	struct sm_node *n = &r->s->node[r->s->sw[to]];

	sm_routes_measure(r, to);
	sm_routes_collect(r, to);
	for (u32 i = 0; i < r->lids; i++)
		sm_routes_set(n, r->lid[i], r->port[i]);
	for (u32 i = 0; i < r->s->switches; i++)
		if (i != to)
			sm_routes_from(r, i);
}

bool sm_routes_go_on(struct sm *sm)
{
	struct sm_routes r = { .sm = sm, .s = sm->subnet };
	u32 switches = r.s->switches;
	u32 end = MIN(switches, sm->route_next + ROUTES_BATCH / (switches * 8 + 1) + 1);
	bool able;

	r.distance = malloc(switches + 1u);
	r.order = malloc((switches + 1u) * sizeof(*r.order));
	able = r.distance != NULL && r.order != NULL && sm->load != NULL;
	if (able)
		while (sm->route_next < end)
			sm_routes_to(&r, sm->route_next++);
	else
		r.s->flawed = true;
	free(r.distance);
	free(r.order);
	if (able && sm->route_next < switches)
		return false;
	free(sm->load);
	sm->load = NULL;
	return true;
}
