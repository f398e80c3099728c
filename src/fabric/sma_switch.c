/* sma_switch.c: SwitchInfo and the forwarding tables of switches.
 * In:    requests at a switch    Out: answers in place; the switch's tables
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.5.4, 14.2.5.10, 14.2.5.12
 */
#include "fabric/sma.h"

enum {
	SWITCH_LIDS_PER_PORT = 1,
	SWITCH_STATE_CHANGE = 4,   /* bit of the byte with LifeTimeValue */
	SWITCH_CAN_ENFORCE = 0xc0, /* P_Keys, of what comes in and what goes out */
	SWITCH_CAN_FILTER = 0x30,  /* raw packets, likewise */
	SWITCH_ENHANCED = 0x08,
};

static void switch_info_pack(const struct fabric_node_rec *n, u8 *d)
{
	memset(d, 0, MAD_SMP_DATA);
	wire_put16(d, FABRIC_LFT_CAP);
	wire_put16(d + 4, FABRIC_MFT_CAP);
	wire_put16(d + 6, n->lft_top);
	d[8] = n->default_port;
	d[9] = n->mcast_primary;
	d[10] = n->mcast_not_primary;
	d[11] = (u8)(n->life_time << 3 | (n->state_change ? SWITCH_STATE_CHANGE : 0));
	wire_put16(d + 12, SWITCH_LIDS_PER_PORT);
	wire_put16(d + 14, FABRIC_SWITCH_PKEYS);
	d[16] = SWITCH_CAN_ENFORCE | SWITCH_CAN_FILTER | (n->enhanced ? SWITCH_ENHANCED : 0);
}

u16 sma_switch_info(struct sma_request *q)
{
	struct fabric_node_rec *n = q->node;
	const u8 *d = q->data;
	u16 top = wire_get16(d + 6), status = STATUS_OK;

	if (q->set && top >= FABRIC_LFT_CAP) {
		status = STATUS_BAD_VALUE;
	} else if (q->set) {
		if (n->lft_top != top) {
			fabric_store(n->lft_top, top);
			fabric_routes_changed(q->f);
		}
		n->default_port = d[8];
		n->mcast_primary = d[9];
		n->mcast_not_primary = d[10];
		n->life_time = d[11] >> 3;
		if ((d[11] & SWITCH_STATE_CHANGE) != 0) /* a 1 clears it */
			n->state_change = 0;
	}
	switch_info_pack(n, q->data);
	return status;
}

u16 sma_linear_table(struct sma_request *q)
{
	u32 block = q->modifier & 0xffff;
	u8 *table;
	bool changed = false;

	if (block >= FABRIC_LFT_CAP / FABRIC_LFT_BLOCK)
		return STATUS_BAD_VALUE;
	table = q->f->tables + q->node->lft_at + block * FABRIC_LFT_BLOCK;
	for (u32 i = 0; i < FABRIC_LFT_BLOCK; i++) {
		u8 entry = FABRIC_NO_PORT - q->data[i];

		if (q->set && table[i] != entry) {
			fabric_store(table[i], entry);
			changed = true;
		}
		q->data[i] = FABRIC_NO_PORT - table[i];
	}
	if (changed)
		fabric_routes_changed(q->f);
	return STATUS_OK;
}

u16 sma_multicast_table(struct sma_request *q)
{
	u32 block = q->modifier & 0x1ff, position = q->modifier >> 28;
	u32 positions = fabric_mft_positions(q->node->ports);
	u16 *table;
	bool changed = false;

	if (block >= FABRIC_MFT_CAP / FABRIC_MFT_BLOCK || position >= positions)
		return STATUS_BAD_VALUE;
	table = (u16 *)(q->f->tables + q->node->mft_at) + block * FABRIC_MFT_BLOCK * positions +
		position;
	for (u32 i = 0; i < FABRIC_MFT_BLOCK; i++) {
		u16 *entry = &table[i * positions];

		if (q->set && *entry != wire_get16(q->data + 2 * i)) {
			fabric_store(*entry, wire_get16(q->data + 2 * i));
			changed = true;
		}
		wire_put16(q->data + 2 * i, *entry);
	}
	if (changed)
		fabric_routes_changed(q->f);
	return STATUS_OK;
}
