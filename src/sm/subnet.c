/* subnet.c: the subnet as a sweep has found it: nodes, the ways to them, who has which LID.
 * In:    NodeInfo    Out: nodes, directed routes, indices
 * Runs:  the host's thread    Locks: none
 */
#include <stdlib.h>

#include "sm/sm_priv.h"

struct sm_subnet *sm_subnet_new(void)
{
	return calloc(1, sizeof(struct sm_subnet));
}

static void sm_subnet_free_node(struct sm_node *n)
{
	free(n->port);
	free(n->lft);
	free(n->lft_dirty);
	free(n->mft);
	free(n->mft_dirty);
}

void sm_subnet_free(struct sm_subnet *s)
{
	if (s == NULL)
		return;
	for (u32 i = 0; i < s->nodes; i++)
		sm_subnet_free_node(&s->node[i]);
	sm_map_free(&s->by_guid);
	sm_map_free(&s->by_port);
	free(s->node);
	free(s->sw);
	free(s);
}

/* Room for one node more, and for it among the switches. */
static bool sm_subnet_grow(struct sm_subnet *s)
{
	u32 room = s->room == 0 ? 16 : s->room * 2;
	struct sm_node *node;
	u32 *sw;

	if (s->nodes < s->room)
		return true;
	if (room > SM_NODES_MAX)
		return false;
	node = realloc(s->node, room * sizeof(*node));
	if (node == NULL)
		return false;
	s->node = node;
	sw = realloc(s->sw, room * sizeof(*sw));
	if (sw == NULL)
		return false;
	s->sw = sw;
	s->room = room;
	return true;
}

u32 sm_subnet_add(struct sm_subnet *s, const u8 *info)
{
	struct sm_node *n;

	if (!sm_subnet_grow(s))
		return SM_NONE;
	n = &s->node[s->nodes];
	*n = (struct sm_node){ .guid = wire_get64(info + 12),
			       .type = info[2],
			       .ports = info[3],
			       .up = info[36],
			       .sw = SM_NONE };
	memcpy(n->info, info, sizeof(n->info));
	n->port = calloc(n->ports + 1u, sizeof(*n->port));
	if (n->port == NULL || !sm_map_put(&s->by_guid, n->guid, s->nodes)) {
		free(n->port);
		return SM_NONE;
	}
	for (u32 i = 0; i <= n->ports; i++)
		n->port[i].peer = SM_NONE;
	if (n->type == FABRIC_SWITCH) {
		n->sw = s->switches;
		s->sw[s->switches++] = s->nodes;
		n->port[0].guid = wire_get64(info + 20);
	}
	return s->nodes++;
}

/* Is this where the SM is? */
static bool sm_subnet_is_root(const struct sm_subnet *s, u32 node, u8 port)
{
	return node == 0 && (s->node[0].type == FABRIC_SWITCH || port == s->root_port);
}

int sm_subnet_way(const struct sm_subnet *s, u32 node, u8 port, u8 path[64])
{
	u8 back[MAD_HOPS_MAX];
	int hops = 0;

	while (!sm_subnet_is_root(s, node, port)) {
		const struct sm_node *n = &s->node[node];
		const struct sm_port *up = &n->port[n->type == FABRIC_SWITCH ? n->up : port];

		if (hops == MAD_HOPS_MAX || up->peer == SM_NONE)
			return -1;
		back[hops++] = port = up->peer_port;
		node = up->peer;
	}
	for (int i = 1; i <= hops; i++)
		path[i] = back[hops - i];
	return hops;
}

/* ---- indices --------------------------------------------------------------------------------- */

bool sm_subnet_index(struct sm_subnet *s)
{
	bool able = true;

	s->lid_top = 0;
	for (u32 i = 0; i < s->nodes; i++) {
		struct sm_node *n = &s->node[i];

		for (u32 k = 0; k <= n->ports; k++) {
			if (!sm_is_home(n, k) || n->port[k].lid == 0)
				continue;
			s->by_lid[n->port[k].lid] = sm_at(i, (u8)k) + 1;
			s->lid_top = MAX(s->lid_top, n->port[k].lid);
			able = sm_map_put(&s->by_port, n->port[k].guid, sm_at(i, (u8)k)) && able;
		}
	}
	return able;
}

struct sm_port *sm_subnet_find_guid(const struct sm_subnet *s, u64 guid, u32 *at)
{
	u32 found = sm_map_get(&s->by_port, guid);

	if (found == SM_NONE)
		return NULL;
	*at = found;
	return &s->node[sm_at_node(found)].port[sm_at_port(found)];
}

struct sm_port *sm_subnet_find_lid(const struct sm_subnet *s, u16 lid, u32 *at)
{
	if (lid == 0 || lid >= SM_LIDS || s->by_lid[lid] == 0)
		return NULL;
	*at = s->by_lid[lid] - 1;
	return &s->node[sm_at_node(*at)].port[sm_at_port(*at)];
}
