/* config.c: what the master sets: PortInfo, SwitchInfo, P_Keys, forwarding tables, and at last
 * PortState ACTIVE. What a port or switch has already is not set again.
 * In:    the subnet    Out: SMPs; the subnet as their answers say
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.5.4 (SwitchInfo), 14.2.5.6 (PortInfo), 14.2.5.7 (P_Keys), 14.4.3
 */
#include "sm/sm_priv.h"

enum {
	CONFIG_TIMEOUT = 18, /* SubnetTimeOut: 4.096 us * 2^18, a second */
	CONFIG_LIFE = 18,    /* of a packet in a switch */
	CONFIG_SWITCH_CHANGE = 4, /* PortStateChange: a 1 clears it */
	CONFIG_PKEYS = 32,	  /* in a block */
};

/* ---- PortInfo -------------------------------------------------------------------------------- */

/* Fields in which zero means "as it is". */
static void sm_config_neutral(u8 *d)
{
	d[PI_WIDTH_ENABLED] = 0;
	d[PI_STATE] &= 0xf0;
	d[PI_PHYS] = 0;
	d[PI_SPEED] &= 0xf0;
	d[PI_SPEED_EXT_ENABLED] &= 0xe0;
	d[PI_SUBNET_TIMEOUT] &= (u8)~PI_REREGISTER;
}

/* What both ends of a link can do. */
static void sm_config_link(const struct sm_port *p, const struct sm_port *peer, u8 *d)
{
	u8 mtu = MIN(p->info[PI_MTU_CAP] & 15, peer->info[PI_MTU_CAP] & 15);
	u8 vls = MIN(p->info[PI_VL_CAP] >> 4, peer->info[PI_VL_CAP] >> 4);

	if (!peer->read || mtu == 0 || vls == 0)
		return;
	d[PI_MTU] = (u8)(mtu << 4 | (d[PI_MTU] & 15));
	d[PI_VLS] = (u8)(vls << 4 | (d[PI_VLS] & 15));
}

static void sm_config_home(struct sm *sm, const struct sm_port *p, bool is_switch, u8 *d)
{
	u16 sm_lid = sm->report.lid;

	memset(d + PI_MKEY, 0, sizeof(u64));
	wire_put64(d + PI_PREFIX, SM_PREFIX);
	wire_put16(d + PI_LID, p->lid);
	wire_put16(d + PI_SM_LID, sm_lid);
	d[PI_LMC] = 0;
	d[PI_MTU] &= 0xf0;
	d[PI_SUBNET_TIMEOUT] = (u8)((d[PI_SUBNET_TIMEOUT] & 0xe0) | CONFIG_TIMEOUT);
	if (!is_switch && (sm->fresh || wire_get16(p->info + PI_LID) != p->lid ||
			   wire_get16(p->info + PI_SM_LID) != sm_lid))
		d[PI_SUBNET_TIMEOUT] |= PI_REREGISTER;
}

static const struct sm_port *sm_config_peer(const struct sm_subnet *s, const struct sm_port *p)
{
	return p->peer == SM_NONE ? NULL : &s->node[p->peer].port[p->peer_port];
}

/* False: the port has all of it. */
static bool sm_config_port(struct sm *sm, const struct sm_item *it, u8 *d)
{
	const struct sm_node *n = &sm->subnet->node[it->node];
	const struct sm_port *p = &n->port[it->port];
	const struct sm_port *peer = sm_config_peer(sm->subnet, p);
	bool is_switch = n->type == FABRIC_SWITCH;
	u8 was[MAD_SMP_DATA];

	memcpy(was, p->info, sizeof(was));
	sm_config_neutral(was);
	memcpy(d, was, sizeof(was));
	if (sm_is_home(n, it->port))
		sm_config_home(sm, p, is_switch, d);
	else
		d[PI_VLS] &= (u8)~PI_ENFORCE;
	if (peer != NULL)
		sm_config_link(p, peer, d);
	if (sm_port_state(p) == FABRIC_INIT)
		d[PI_STATE] |= FABRIC_ARMED;
	return memcmp(was, d, sizeof(was)) != 0;
}

static bool sm_config_state(struct sm *sm, const struct sm_item *it, u8 *d)
{
	const struct sm_port *p = &sm->subnet->node[it->node].port[it->port];

	if (sm_port_state(p) != FABRIC_ARMED)
		return false;
	memcpy(d, p->info, MAD_SMP_DATA);
	sm_config_neutral(d);
	d[PI_STATE] |= FABRIC_ACTIVE;
	return true;
}

/* ---- switches -------------------------------------------------------------------------------- */

static bool sm_config_switch(struct sm *sm, const struct sm_item *it, u8 *d)
{
	const struct sm_node *n = &sm->subnet->node[it->node];

	memcpy(d, n->switch_info, sizeof(n->switch_info));
	wire_put16(d + 6, sm->subnet->lid_top);
	d[11] = CONFIG_LIFE << 3;
	if (memcmp(d, n->switch_info, sizeof(n->switch_info)) == 0)
		return false;
	d[11] |= CONFIG_SWITCH_CHANGE;
	return true;
}

static bool sm_config_mft(struct sm *sm, const struct sm_item *it, u8 *d)
{
	const struct sm_node *n = &sm->subnet->node[it->node];
	u32 block = it->arg >> 8, position = it->arg & 0xff, positions = n->ports / 16u + 1;
	const u16 *mft = n->mft + ((size_t)block * positions + position) * SM_MFT_BLOCK;

	for (u32 i = 0; i < SM_MFT_BLOCK; i++)
		wire_put16(d + 2 * i, mft[i]);
	return true;
}

bool sm_config_fill(struct sm *sm, const struct sm_item *it, u8 *d, u32 *modifier)
{
	const struct sm_node *n = &sm_here(sm)->node[it->node];

	*modifier = 0;
	switch (it->kind) {
	case SM_SET_PORT:
		*modifier = it->port;
		return sm_config_port(sm, it, d);
	case SM_SET_STATE:
		*modifier = it->port;
		return sm_config_state(sm, it, d);
	case SM_SET_SWITCH:
		return sm_config_switch(sm, it, d);
	case SM_SET_LFT:
		*modifier = it->arg;
		memcpy(d, n->lft + (size_t)it->arg * SM_LFT_BLOCK, SM_LFT_BLOCK);
		return true;
	case SM_SET_MFT:
		*modifier = (it->arg & 0xff) << 28 | it->arg >> 8;
		return sm_config_mft(sm, it, d);
	case SM_SET_PKEYS: /* the default partition alone */
		wire_put16(d, SM_PKEY);
		return true;
	case SM_SET_HANDOVER:
		*modifier = it->arg;
		sm_manager_info(sm, d);
		return true;
	default:
		return false;
	}
}

/* ---- phases ---------------------------------------------------------------------------------- */

void sm_config_ports(struct sm *sm)
{
	const struct sm_subnet *s = sm->subnet;

	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 0; k <= s->node[i].ports; k++) {
			const struct sm_port *p = &s->node[i].port[k];
			bool is_home = sm_is_home(&s->node[i], k);

			if (!is_home && (!p->read || p->peer == SM_NONE))
				continue;
			sm_push(sm, SM_SET_PORT, i, (u8)k, 0);
			if (is_home && (sm->fresh || sm_port_state(p) == FABRIC_INIT))
				sm_push(sm, SM_ASK_PKEYS, i, (u8)k, 0);
		}
}

void sm_config_tables(struct sm *sm)
{
	const struct sm_subnet *s = sm->subnet;

	for (u32 i = 0; i < s->switches; i++) {
		const struct sm_node *n = &s->node[s->sw[i]];

		sm_push(sm, SM_SET_SWITCH, s->sw[i], 0, 0);
		for (u32 block = 0; block < n->lft_blocks; block++)
			if (n->lft_dirty[block] != 0)
				sm_push(sm, SM_SET_LFT, s->sw[i], 0, block);
	}
}

void sm_config_activate(struct sm *sm)
{
	const struct sm_subnet *s = sm->subnet;

	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 0; k <= s->node[i].ports; k++)
			if (s->node[i].port[k].read &&
			    sm_port_state(&s->node[i].port[k]) == FABRIC_ARMED)
				sm_push(sm, SM_SET_STATE, i, (u8)k, 0);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A port that has lost the default partition gets it back. */
static void sm_config_pkeys(struct sm *sm, const struct sm_answer *a)
{
	for (u32 i = 0; i < CONFIG_PKEYS; i++)
		if (wire_get16(a->data + 2 * i) == SM_PKEY)
			return;
	sm_push(sm, SM_SET_PKEYS, a->item.node, a->item.port, 0);
}

static void sm_config_mft_done(struct sm_node *n, u32 block, u32 position)
{
	n->mft_dirty[block * 2 + position / 8] &= (u8) ~(1u << position % 8);
}

void sm_config_answer(struct sm *sm, const struct sm_answer *a)
{
	struct sm_node *n = &sm_here(sm)->node[a->item.node];
	struct sm_port *p = &n->port[a->item.port];

	if (a->data == NULL) {
		sm_here(sm)->flawed = true;
		return;
	}
	switch (a->item.kind) {
	case SM_SET_PORT:
	case SM_SET_STATE:
		memcpy(p->info, a->data, sizeof(p->info));
		p->info[PI_SUBNET_TIMEOUT] &= (u8)~PI_REREGISTER;
		break;
	case SM_SET_SWITCH:
		memcpy(n->switch_info, a->data, sizeof(n->switch_info));
		break;
	case SM_SET_LFT:
		n->lft_dirty[a->item.arg] = 0;
		break;
	case SM_SET_MFT:
		sm_config_mft_done(n, a->item.arg >> 8, a->item.arg & 0xff);
		break;
	case SM_ASK_PKEYS:
		sm_config_pkeys(sm, a);
		break;
	default:
		break;
	}
}
