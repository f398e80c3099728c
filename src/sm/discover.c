/* discover.c: finds nodes, ports and other SMs, by directed routes from the SM's own port.
 * In:    answers to Gets    Out: the subnet that is being discovered; more to ask
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 14.4.2 (discovery), 14.2.5.3 (NodeInfo)
 *
 * A node is its GUID. The first way that reaches it stays its way in this sweep.
 */
#include "sm/sm_priv.h"

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Does NodeInfo make sense? */
static bool sm_discover_judge(const u8 *d)
{
	u8 type = d[2], ports = d[3], local = d[36];

	return type >= FABRIC_CA && type <= FABRIC_ROUTER && ports >= 1 && ports <= 254 &&
	       local <= ports && (local != 0 || type == FABRIC_SWITCH) &&
	       wire_get64(d + 12) != 0 && wire_get64(d + 20) != 0;
}

/* A CA's port has been reached; a switch's all are. */
static void sm_discover_ask_ports(struct sm *sm, u32 node, u8 local)
{
	struct sm_node *n = &sm->next->node[node];

	if (n->type == FABRIC_SWITCH) {
		for (u32 i = 0; i <= n->ports; i++)
			sm_push(sm, SM_ASK_PORT, node, (u8)i, 0);
	} else {
		sm_push(sm, SM_ASK_PORT, node, local, 0);
	}
}

/* The node of a NodeInfo, new or known. SM_NONE: it contradicts what is known, or no memory. */
static u32 sm_discover_node(struct sm *sm, const u8 *d)
{
	struct sm_subnet *s = sm->next;
	u32 node = sm_map_get(&s->by_guid, wire_get64(d + 12));
	u8 local = d[36];
	struct sm_node *n;
	bool is_new = node == SM_NONE;

	if (is_new)
		node = sm_subnet_add(s, d);
	if (node == SM_NONE)
		return SM_NONE;
	n = &s->node[node];
	if (n->type != d[2] || n->ports != d[3])
		return SM_NONE;
	if (is_new && n->type == FABRIC_SWITCH)
		sm_push(sm, SM_ASK_SWITCH, node, 0, 0);
	if (is_new)
		sm_push(sm, SM_ASK_DESC, node, n->type == FABRIC_SWITCH ? 0 : local, 0);
	if (n->type != FABRIC_SWITCH) {
		if (n->port[local].guid != 0 && n->port[local].guid != wire_get64(d + 20))
			return SM_NONE;
		if (n->port[local].guid == 0)
			is_new = true;
		n->port[local].guid = wire_get64(d + 20);
	}
	if (is_new)
		sm_discover_ask_ports(sm, node, local);
	return node;
}

static void sm_discover_root(struct sm *sm, const struct sm_answer *a)
{
	struct sm_subnet *s = sm->next;

	if (a->data == NULL || !sm_discover_judge(a->data)) {
		s->flawed = true;
		return;
	}
	s->root_port = a->data[36];
	sm->guid = wire_get64(a->data + 20);
	if (sm_discover_node(sm, a->data) == SM_NONE)
		s->flawed = true;
}

/* Both ends of a link know each other. */
static void sm_discover_peer(struct sm *sm, const struct sm_answer *a)
{
	struct sm_subnet *s = sm->next;
	u32 from = a->item.node, node = SM_NONE;
	u8 local;

	if (a->data != NULL && sm_discover_judge(a->data))
		node = sm_discover_node(sm, a->data);
	local = node == SM_NONE ? 0 : a->data[36];
	if (local == 0 || (s->node[node].port[local].peer != SM_NONE &&
			   s->node[node].port[local].peer != from)) {
		s->flawed = true;
		return;
	}
	s->node[node].port[local].peer = from;
	s->node[node].port[local].peer_port = a->item.port;
	s->node[from].port[a->item.port].peer = node;
	s->node[from].port[a->item.port].peer_port = local;
}

/* ---- ports ----------------------------------------------------------------------------------- */

static void sm_discover_port(struct sm *sm, const struct sm_answer *a)
{
	struct sm_subnet *s = sm->next;
	u32 node = a->item.node;
	struct sm_node *n = &s->node[node];
	u8 port = a->item.port;
	struct sm_port *p = &n->port[port];
	bool leads_on = n->type == FABRIC_SWITCH ? port != 0 :
						   node == 0 && port == s->root_port;

	memcpy(p->info, a->data, sizeof(p->info));
	p->read = true;
	if (sm_is_home(n, port) && (wire_get32(p->info + PI_CAPS) & PI_CAP_SM) != 0 &&
	    p->guid != sm->guid)
		sm_push(sm, SM_ASK_SM, node, port, 0);
	if (leads_on && sm_port_state(p) >= FABRIC_INIT && p->peer == SM_NONE && !p->probed) {
		p->probed = true;
		sm_push(sm, SM_ASK_PEER, node, port, 0);
	}
}

void sm_discover(struct sm *sm, const struct sm_answer *a)
{
	struct sm_node *n;

	if (a->item.kind == SM_ASK_ROOT) {
		sm_discover_root(sm, a);
		return;
	}
	if (a->item.kind == SM_ASK_PEER) {
		sm_discover_peer(sm, a);
		return;
	}
	if (a->data == NULL) {
		sm->next->flawed = true;
		return;
	}
	n = &sm->next->node[a->item.node];
	if (a->item.kind == SM_ASK_DESC)
		memcpy(n->desc, a->data, sizeof(n->desc));
	else if (a->item.kind == SM_ASK_SWITCH)
		memcpy(n->switch_info, a->data, sizeof(n->switch_info));
	else
		sm_discover_port(sm, a);
}
