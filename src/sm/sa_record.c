/* sa_record.c: records that show what the SM knows: nodes, ports, switches, tables, links, SMs.
 * In:    queries    Out: records
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 15.2.5
 */
#include "sm/sa_priv.h"

/* Component bits of the records' own identifiers, which all have the LID first. */
enum { COMPONENT_LID = 0, COMPONENT_SECOND = 1, COMPONENT_THIRD = 2 };

/* Does a field of the record equal the request's, if the mask names it? */
static bool sm_record_same(const struct sm_query *q, u32 component, const u8 *record, u32 at,
			   u32 bytes)
{
	return !sm_query_has(q, component) || memcmp(record + at, q->want + at, bytes) == 0;
}

static u16 sm_record_lid(const struct sm_node *n, u32 port)
{
	return n->port[sm_home(n, (u8)port)].lid;
}

/* ---- ClassPortInfo --------------------------------------------------------------------------- */

u16 sm_record_class(struct sm_query *q)
{
	u8 d[72] = { 0 };

	d[0] = 1; /* base and class version */
	d[1] = SA_CLASS_VERSION;
	/* optional records, multicast, CapabilityMask by bits */
	wire_put16(d + 2, 1 << 8 | 1 << 9 | 1 << 13);
	/* CapabilityMask2: full members that send only; RespTimeValue: a quarter of a second */
	wire_put32(d + 4, 1u << (12 + 5) | 16);
	sm_query_add(q, d);
	return SA_OK;
}

/* ---- NodeRecord ------------------------------------------------------------------------------ */

/* Components: LID, reserved, then the fields of NodeInfo, NodeDescription. */
static bool sm_record_node_fits(const struct sm_query *q, const u8 *d)
{
	static const struct {
		u8 component FIXED;
		u8 at FIXED;
		u8 bytes FIXED;
	} fields[] = {
		{ 0, 0, 2 },   { 2, 4, 1 },   { 3, 5, 1 },   { 4, 6, 1 },   { 5, 7, 1 },
		{ 6, 8, 8 },   { 7, 16, 8 },  { 8, 24, 8 },  { 9, 32, 2 },  { 10, 34, 2 },
		{ 11, 36, 4 }, { 12, 40, 1 }, { 13, 41, 3 }, { 14, 44, 64 },
	};

	for (u32 i = 0; i < ARRAY_LEN(fields); i++)
		if (!sm_record_same(q, fields[i].component, d, fields[i].at, fields[i].bytes))
			return false;
	return true;
}

u16 sm_record_nodes(struct sm_query *q)
{
	const struct sm_subnet *s = q->sm->subnet;

	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 0; k <= s->node[i].ports; k++) {
			const struct sm_node *n = &s->node[i];
			u8 d[108] = { 0 };

			if (!sm_is_home(n, k) || n->port[k].lid == 0)
				continue;
			wire_put16(d, n->port[k].lid);
			memcpy(d + 4, n->info, sizeof(n->info));
			wire_put64(d + 24, n->port[k].guid);
			if (n->type != FABRIC_SWITCH)
				d[40] = (u8)k;
			memcpy(d + 44, n->desc, sizeof(n->desc));
			if (sm_record_node_fits(q, d))
				sm_query_add(q, d);
		}
	return SA_OK;
}

/* ---- PortInfoRecord -------------------------------------------------------------------------- */

/* The components from M_Key to CapabilityMask; others are not looked at. The modifier may ask for
 * ports that have all bits of the request's CapabilityMask (IBA vol 1, 15.2.5.2). */
static bool sm_record_port_fits(const struct sm_query *q, const u8 *d)
{
	bool by_bits = (wire_get32(q->m->mad + MAD_MODIFIER) & 1u << 31) != 0;
	u32 caps = wire_get32(q->want + 4 + PI_CAPS);

	if (!sm_record_same(q, COMPONENT_LID, d, 0, 2) ||
	    !sm_record_same(q, COMPONENT_SECOND, d, 2, 1) ||
	    !sm_record_same(q, 3, d, 4 + PI_MKEY, 8) ||
	    !sm_record_same(q, 4, d, 4 + PI_PREFIX, 8) ||
	    !sm_record_same(q, 5, d, 4 + PI_LID, 2) ||
	    !sm_record_same(q, 6, d, 4 + PI_SM_LID, 2))
		return false;
	return !sm_query_has(q, 7) || (by_bits ? (wire_get32(d + 4 + PI_CAPS) & caps) == caps :
						 wire_get32(d + 4 + PI_CAPS) == caps);
}

u16 sm_record_ports(struct sm_query *q)
{
	const struct sm_subnet *s = q->sm->subnet;

	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 0; k <= s->node[i].ports; k++) {
			const struct sm_node *n = &s->node[i];
			u8 d[68] = { 0 };

			if (!n->port[k].read || sm_record_lid(n, k) == 0)
				continue;
			wire_put16(d, sm_record_lid(n, k));
			d[2] = (u8)k;
			memcpy(d + 4, n->port[k].info, MAD_SMP_DATA);
			if (!q->trusted)
				memset(d + 4 + PI_MKEY, 0, 8);
			if (sm_record_port_fits(q, d))
				sm_query_add(q, d);
		}
	return SA_OK;
}

/* ---- switches -------------------------------------------------------------------------------- */

u16 sm_record_switches(struct sm_query *q)
{
	const struct sm_subnet *s = q->sm->subnet;

	for (u32 i = 0; i < s->switches; i++) {
		const struct sm_node *n = &s->node[s->sw[i]];
		u8 d[24] = { 0 };

		wire_put16(d, n->port[0].lid);
		memcpy(d + 4, n->switch_info, 20);
		if (sm_record_same(q, COMPONENT_LID, d, 0, 2))
			sm_query_add(q, d);
	}
	return SA_OK;
}

u16 sm_record_lfts(struct sm_query *q)
{
	const struct sm_subnet *s = q->sm->subnet;

	for (u32 i = 0; i < s->switches; i++)
		for (u32 b = 0; b < s->node[s->sw[i]].lft_blocks; b++) {
			const struct sm_node *n = &s->node[s->sw[i]];
			u8 d[72] = { 0 };

			wire_put16(d, n->port[0].lid);
			wire_put16(d + 2, (u16)b);
			memcpy(d + 8, n->lft + (size_t)b * SM_LFT_BLOCK, SM_LFT_BLOCK);
			if (sm_record_same(q, COMPONENT_LID, d, 0, 2) &&
			    sm_record_same(q, COMPONENT_SECOND, d, 2, 2))
				sm_query_add(q, d);
		}
	return SA_OK;
}

/* Blocks of a switch, each with 16 ports of 32 groups. */
static void sm_record_mft(struct sm_query *q, const struct sm_node *n)
{
	u32 positions = n->ports / 16u + 1;

	for (u32 i = 0; i < n->mft_blocks * positions; i++) {
		u8 d[72] = { 0 };

		wire_put16(d, n->port[0].lid);
		wire_put16(d + 2, (u16)((i % positions) << 12 | i / positions));
		for (u32 k = 0; k < SM_MFT_BLOCK; k++)
			wire_put16(d + 8 + 2 * k, n->mft[(size_t)i * SM_MFT_BLOCK + k]);
		if (sm_record_same(q, COMPONENT_LID, d, 0, 2) &&
		    (!sm_query_has(q, COMPONENT_SECOND) || d[2] >> 4 == q->want[2] >> 4) &&
		    (!sm_query_has(q, 3) || ((wire_get16(d + 2) ^ wire_get16(q->want + 2)) &
					     0x1ff) == 0))
			sm_query_add(q, d);
	}
}

u16 sm_record_mfts(struct sm_query *q)
{
	const struct sm_subnet *s = q->sm->subnet;

	for (u32 i = 0; i < s->switches; i++)
		sm_record_mft(q, &s->node[s->sw[i]]);
	return SA_OK;
}

/* ---- SMs and links --------------------------------------------------------------------------- */

static void sm_record_sm(struct sm_query *q, u16 lid, u64 guid, u8 priority, u8 state, u32 count)
{
	u8 d[28] = { 0 };

	wire_put16(d, lid);
	wire_put64(d + 4, guid);
	wire_put32(d + 20, count);
	d[24] = (u8)(priority << 4 | state);
	if (sm_record_same(q, COMPONENT_LID, d, 0, 2) &&
	    sm_record_same(q, COMPONENT_THIRD, d, 4, 8))
		sm_query_add(q, d);
}

u16 sm_record_sms(struct sm_query *q)
{
	const struct sm *sm = q->sm;

	sm_record_sm(q, sm->report.lid, sm->guid, sm->config.priority, sm->state, sm->act_count);
	for (u32 i = 0; i < sm->peers; i++) {
		const struct sm_peer *p = &sm->peer[i];

		if (p->node < sm->subnet->nodes && p->port <= sm->subnet->node[p->node].ports)
			sm_record_sm(q, sm->subnet->node[p->node].port[p->port].lid, p->guid,
				     p->priority, p->state, 0);
	}
	return SA_OK;
}

u16 sm_record_links(struct sm_query *q)
{
	const struct sm_subnet *s = q->sm->subnet;

	for (u32 i = 0; i < s->nodes; i++)
		for (u32 k = 1; k <= s->node[i].ports; k++) {
			const struct sm_node *n = &s->node[i];
			const struct sm_port *p = &n->port[k];
			u8 d[6] = { 0 };

			if (p->peer == SM_NONE)
				continue;
			wire_put16(d, sm_record_lid(n, k));
			d[2] = (u8)k;
			d[3] = p->peer_port;
			wire_put16(d + 4, sm_record_lid(&s->node[p->peer], p->peer_port));
			if (sm_record_same(q, 0, d, 0, 2) && sm_record_same(q, 1, d, 2, 1) &&
			    sm_record_same(q, 2, d, 3, 1) && sm_record_same(q, 3, d, 4, 2))
				sm_query_add(q, d);
		}
	return SA_OK;
}
