/* tree.c: the tree of each multicast group: shortest paths from the switch of its first member,
 * without the branches that have no member.
 * In:    groups, links    Out: each switch's multicast table, and which blocks have changed
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 18.2.4.3.3 (multicast tables), 14.2.5.12
 */
#include <stdlib.h>

#include "sm/sa_priv.h"

enum { TREE_STATES_IN = 3 /* full and non-members receive */, TREE_POSITIONS = 16 };

/* What the computation of one tree needs, by switch. */
struct sm_tree {
	struct sm_subnet *s;
	u16 (*mask)[TREE_POSITIONS]; /* ports */
	u8 *up;			     /* the port towards the root; 0: not reached */
	u8 *has;		     /* it, or a branch behind it, has a member */
	u32 *order;
	u32 root;
} OWNED_BY(the SM);

static bool sm_tree_new(struct sm_tree *t, struct sm_subnet *s)
{
	*t = (struct sm_tree){ .s = s, .root = SM_NONE };
	t->mask = calloc(s->switches + 1u, sizeof(*t->mask));
	t->up = calloc(s->switches + 1u, 1);
	t->has = calloc(s->switches + 1u, 1);
	t->order = calloc(s->switches + 1u, sizeof(*t->order));
	return t->mask != NULL && t->up != NULL && t->has != NULL && t->order != NULL;
}

static void sm_tree_free(struct sm_tree *t)
{
	free(t->mask);
	free(t->up);
	free(t->has);
	free(t->order);
}

static void sm_tree_set(struct sm_tree *t, u32 sw, u8 port)
{
	t->mask[sw][port / 16] |= (u16)(1u << port % 16);
}

/* The switch of a member, and its port there. */
static void sm_tree_member(struct sm_tree *t, const struct sm_member *m)
{
	u32 at, sw;
	const struct sm_port *p = sm_subnet_find_guid(t->s, m->port_guid, &at);
	u8 port = 0;

	if (p == NULL)
		return;
	sw = t->s->node[sm_at_node(at)].sw;
	if (sw == SM_NONE) {
		if (p->peer == SM_NONE || t->s->node[p->peer].sw == SM_NONE)
			return;
		sw = t->s->node[p->peer].sw;
		port = p->peer_port;
	}
	t->has[sw] = 1;
	if (t->root == SM_NONE)
		t->root = sw;
	if ((m->join_state & TREE_STATES_IN) != 0)
		sm_tree_set(t, sw, port);
}

/* Breadth first from the root. Returns how many switches it reaches. */
static u32 sm_tree_reach(struct sm_tree *t)
{
	u32 count = 1;

	t->order[0] = t->root;
	for (u32 i = 0; i < count; i++) {
		const struct sm_node *n = &t->s->node[t->s->sw[t->order[i]]];

		for (u32 k = 1; k <= n->ports; k++) {
			u32 peer = n->port[k].peer;
			u32 sw = peer == SM_NONE ? SM_NONE : t->s->node[peer].sw;

			if (sw == SM_NONE || sw == t->root || t->up[sw] != 0)
				continue;
			t->up[sw] = n->port[k].peer_port;
			t->order[count++] = sw;
		}
	}
	return count;
}

static void sm_tree_span(struct sm_tree *t)
{
	for (u32 i = sm_tree_reach(t); i > 1; i--) {
		u32 sw = t->order[i - 1];
		const struct sm_port *p = &t->s->node[t->s->sw[sw]].port[t->up[sw]];
		u32 parent = t->s->node[p->peer].sw;

		if (t->has[sw] == 0)
			continue;
		t->has[parent] = 1;
		sm_tree_set(t, sw, t->up[sw]);
		sm_tree_set(t, parent, p->peer_port);
	}
}

/* ---- tables ---------------------------------------------------------------------------------- */

static bool sm_tree_grow(struct sm_node *n, u32 blocks)
{
	size_t words = (n->ports / 16u + 1) * SM_MFT_BLOCK;
	u16 *mft;
	u8 *dirty;

	if (n->mft_blocks >= blocks)
		return true;
	mft = realloc(n->mft, blocks * words * sizeof(*mft));
	if (mft == NULL)
		return false;
	n->mft = mft;
	dirty = realloc(n->mft_dirty, (size_t)blocks * sizeof(*dirty) * 2);
	if (dirty == NULL)
		return false;
	n->mft_dirty = dirty;
	memset(mft + n->mft_blocks * words, 0, (blocks - n->mft_blocks) * words * sizeof(*mft));
	for (u32 i = n->mft_blocks * 2; i < blocks * 2; i++)
		dirty[i] = 0xff; /* nobody knows what the switch has there */
	n->mft_blocks = blocks;
	return true;
}

/* A switch's entry for a group. */
static bool sm_tree_store(struct sm_node *n, u16 mlid, const u16 *mask)
{
	u32 index = mlid - FABRIC_MLID_FIRST, block = index / SM_MFT_BLOCK;
	u32 positions = n->ports / 16u + 1;

	if (!sm_tree_grow(n, block + 1))
		return false;
	for (u32 i = 0; i < positions; i++) {
		u16 *at = n->mft + ((size_t)block * positions + i) * SM_MFT_BLOCK +
			  index % SM_MFT_BLOCK;

		if (*at == mask[i])
			continue;
		*at = mask[i];
		n->mft_dirty[block * 2 + i / 8] |= (u8)(1u << i % 8);
	}
	return true;
}

/* members NULL: the group has gone. */
static bool sm_tree_compute(struct sm_subnet *s, u16 mlid, const struct sm_group *g)
{
	struct sm_tree t;
	bool able = sm_tree_new(&t, s);

	for (u32 i = 0; able && g != NULL && i < g->members; i++)
		sm_tree_member(&t, &g->member[i]);
	if (able && t.root != SM_NONE)
		sm_tree_span(&t);
	for (u32 i = 0; able && i < s->switches; i++)
		able = sm_tree_store(&s->node[s->sw[i]], mlid, t.mask[i]);
	sm_tree_free(&t);
	return able;
}

static void sm_trees_push_switch(struct sm *sm, u32 node)
{
	const struct sm_node *n = &sm->subnet->node[node];
	u32 positions = n->ports / 16u + 1;

	for (u32 b = 0; b < n->mft_blocks; b++)
		for (u32 i = 0; i < positions; i++)
			if ((n->mft_dirty[b * 2 + i / 8] & 1u << i % 8) != 0)
				sm_push(sm, SM_SET_MFT, node, 0, b << 8 | i);
}

void sm_trees_push(struct sm *sm)
{
	struct sm_sa *sa = sm->sa;
	struct sm_subnet *s = sm->subnet;

	sm->trees_stale = false;
	for (u32 i = 0; i < sa->dead_count; i++)
		if (sa->group[sa->dead[i] - FABRIC_MLID_FIRST] == NULL &&
		    !sm_tree_compute(s, sa->dead[i], NULL))
			s->flawed = true;
	sa->dead_count = 0;
	for (u32 i = 0; i < sa->group_top; i++) {
		struct sm_group *g = sa->group[i];

		if (g == NULL || !g->stale)
			continue;
		g->stale = !sm_tree_compute(s, g->mlid, g);
		s->flawed = s->flawed || g->stale;
	}
	for (u32 i = 0; i < s->switches; i++)
		sm_trees_push_switch(sm, s->sw[i]);
}
