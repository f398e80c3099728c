/* reset.c: what a port and a node have after power-on.
 * In:    what the topology says of them (kept)    Out: their records, tables of zeroes
 * Runs:  the owner's thread    Locks: none
 */
#include "fabric/fabric_priv.h"

#include <string.h>
#include <sys/mman.h>

#include "fabric/portinfo.h"

enum {
	RESET_LIFE_TIME = 18,	   /* of packets in a switch: 4.096 us * 2^18, a second */
	RESET_SUBNET_TIMEOUT = 18, /* a second between traps */
	RESET_RESP_TIME = 16,	   /* of the SMA: a quarter of a second */
	RESET_MTU = 5,		   /* 4096 */
	RESET_VLS = 4,		   /* VL0-7 */
	RESET_ERROR_LIMIT = 8,
};
#define RESET_PREFIX 0xfe80000000000000ull
#define RESET_PKEY 0xffff

static u32 reset_capabilities(u8 type)
{
	u32 caps = FABRIC_CAP_TRAP | FABRIC_CAP_SL_MAPPING | FABRIC_CAP_SYS_GUID |
		   FABRIC_CAP_EXT_SPEEDS;

	if (type != FABRIC_SWITCH)
		caps |= FABRIC_CAP_CM | FABRIC_CAP_VENDOR_CLASS | FABRIC_CAP_CAP_NOTICE |
			FABRIC_CAP_REREGISTER | FABRIC_CAP_OTHER_CHANGES;
	return caps;
}

/* What the SM may set, as it is before any SM has. */
static void reset_settings(struct fabric_port_rec *p, u8 state)
{
	p->lid = 0;
	p->lmc = 0;
	p->sm_lid = 0;
	p->sm_sl = 0;
	p->mkey = 0;
	p->mkey_protect = 0;
	p->mkey_lease = 0;
	p->lease_end_ns = 0;
	p->gid_prefix = RESET_PREFIX;
	p->mtu = RESET_MTU;
	p->operational_vls = RESET_VLS;
	p->subnet_timeout = RESET_SUBNET_TIMEOUT;
	p->link_down_default = FABRIC_PHYS_POLLING;
	p->width_enabled = p->width_supported;
	p->speed_enabled = p->speed_supported;
	p->speed_ext_enabled = p->speed_ext_supported;
	p->local_phy_errors = RESET_ERROR_LIMIT;
	p->overrun_errors = RESET_ERROR_LIMIT;
	p->flags &= FABRIC_PORT_CUT;
	p->state = state;
	p->phys = state == FABRIC_DOWN ? FABRIC_PHYS_POLLING : FABRIC_PHYS_LINK_UP;
	p->reregister = 0;
	p->init_type = 0;
	p->init_type_reply = 0;
	p->vl_high_limit = 0;
	p->vl_stall_count = 0;
	p->hoq_life = 0;
	p->mcast_pkey_trap = 0;
	p->mkey_violations = p->pkey_violations = p->qkey_violations = 0;
	p->traps = 0;
	p->trap_changes = 0;
	memset(p->sl2vl, 0, sizeof(p->sl2vl));
	memset(p->vlarb, 0, sizeof(p->vlarb));
	memset(p->guid + 1, 0, sizeof(p->guid) - sizeof(p->guid[0]));
}

static void reset_port(struct fabric *f, u32 port, bool is_new)
{
	struct fabric_node_rec *n = fabric_node_of(f, port);
	struct fabric_port_rec *p = fabric_port_begin(f, port);
	bool is_port0 = n->type == FABRIC_SWITCH && p->number == 0;
	u16 *pkeys = f->pkeys + (size_t)port * FABRIC_PKEYS;

	p->cap_mask = reset_capabilities(n->type) | (p->cap_mask & FABRIC_CAP_SM);
	p->resp_time = RESET_RESP_TIME;
	p->vl_cap = RESET_VLS;
	p->mtu_cap = RESET_MTU;
	p->vlarb_low_cap = p->vlarb_high_cap = FABRIC_VLARB;
	p->guid_cap = FABRIC_GUIDS;
	p->pkey_cap = n->type == FABRIC_SWITCH && !is_port0 ? FABRIC_SWITCH_PKEYS : FABRIC_PKEYS;
	reset_settings(p, !is_port0 ? FABRIC_DOWN : n->enhanced ? FABRIC_INIT : FABRIC_ACTIVE);
	for (u32 i = 0; i < FABRIC_PKEYS && !is_new; i++)
		fabric_store(pkeys[i], 0);
	/* An external port of a switch enforces nothing until it is told to. */
	if (n->type != FABRIC_SWITCH || p->number == 0)
		fabric_store(pkeys[0], RESET_PKEY);
	fabric_port_end(f, port);
}

/* Back to zeroes, and to no memory: reading a page that nobody has written would allocate it. */
static void reset_tables(struct fabric *f, struct fabric_node_rec *n)
{
	u64 bytes = fabric_switch_bytes(n->ports);

	if (madvise(f->tables + n->lft_at, bytes, MADV_REMOVE) != 0)
		memset(f->tables + n->lft_at, 0, bytes);
}

void fabric_node_reset(struct fabric *f, u32 node, bool is_new)
{
	struct fabric_node_rec *n = &f->node[node];
	u64 count = n->ports + 1u;

	if (n->type == FABRIC_SWITCH) {
		n->lft_top = 0;
		n->default_port = n->mcast_primary = n->mcast_not_primary = 0;
		n->life_time = RESET_LIFE_TIME;
		n->state_change = 0;
		if (!is_new)
			reset_tables(f, n);
	}
	for (u32 i = 0; i < count; i++)
		reset_port(f, n->first_port + i, is_new);
	fabric_routes_changed(f);
}
