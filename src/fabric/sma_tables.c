/* sma_tables.c: the tables that ports have: SL to VL, VL arbitration, P_Keys, GUIDs.
 * In:    requests    Out: answers in place; the port's tables
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.5.5, 14.2.5.7 to 14.2.5.9
 */
#include "fabric/sma.h"

enum {
	TABLE_PKEYS = 32, /* in one block */
	TABLE_GUIDS = 8,
	TABLE_VLARB_LOW = 1, /* the parts of VLArbitrationTable */
	TABLE_VLARB_LOW_2,
	TABLE_VLARB_HIGH,
	TABLE_VLARB_HIGH_2,
};

/* One SL-to-VL table, of a port and, in a switch, of the port a packet came by. */
static bool sl_to_vl_one(struct sma_request *q, u32 in, u32 out)
{
	struct fabric *f = q->f;
	u64 count = q->node->ports + 1u;
	u8 *table = f->port[sma_port(q, out)].sl2vl;
	bool changed = false;

	if (sma_is_switch(q))
		table = f->tables + q->node->sl2vl_at + (out * count + in) * FABRIC_SL2VL;
	for (u32 i = 0; i < FABRIC_SL2VL && q->set; i++) {
		changed = changed || table[i] != q->data[i];
		fabric_store(table[i], q->data[i]);
	}
	memcpy(q->data, table, FABRIC_SL2VL);
	return changed;
}

u16 sma_sl_to_vl(struct sma_request *q)
{
	u32 in = q->modifier >> 8 & 0xff, out = q->modifier & 0xff;
	bool changed;

	if (!sma_is_switch(q)) {
		in = 0;
		out = q->f->port[q->port].number;
	}
	if (in > q->node->ports || out > q->node->ports)
		return STATUS_BAD_VALUE;
	changed = sl_to_vl_one(q, in, out);
	memset(q->data + FABRIC_SL2VL, 0, MAD_SMP_DATA - FABRIC_SL2VL);
	if (changed)
		fabric_routes_changed(q->f);
	return STATUS_OK;
}

u16 sma_vl_arbitration(struct sma_request *q)
{
	u32 part = q->modifier >> 16, port = q->port;
	u8 *table;

	if (sma_is_switch(q))
		port = sma_port(q, q->modifier & 0xffff);
	if (port == FABRIC_NONE || part < TABLE_VLARB_LOW || part > TABLE_VLARB_HIGH_2)
		return STATUS_BAD_VALUE;
	/* The second parts begin behind the last entry. */
	if (part == TABLE_VLARB_LOW_2 || part == TABLE_VLARB_HIGH_2)
		return STATUS_BAD_VALUE;
	table = q->f->port[port].vlarb[part == TABLE_VLARB_HIGH];
	if (q->set) {
		fabric_port_begin(q->f, port);
		memcpy(table, q->data, 2 * FABRIC_VLARB);
		fabric_port_end(q->f, port);
	}
	memset(q->data, 0, MAD_SMP_DATA);
	memcpy(q->data, table, 2 * FABRIC_VLARB);
	return STATUS_OK;
}

u16 sma_pkey_table(struct sma_request *q)
{
	u32 block = q->modifier & 0xffff, port = q->port;
	u16 *table;
	bool changed = false;

	if (sma_is_switch(q))
		port = sma_port(q, q->modifier >> 16);
	if (port == FABRIC_NONE || block >= q->f->port[port].pkey_cap / TABLE_PKEYS)
		return STATUS_BAD_VALUE;
	table = q->f->pkeys + (size_t)port * FABRIC_PKEYS + block * TABLE_PKEYS;
	if (q->set)
		fabric_port_begin(q->f, port);
	for (u32 i = 0; i < TABLE_PKEYS; i++) {
		u16 key = wire_get16(q->data + 2 * i);

		if (q->set && table[i] != key) {
			fabric_store(table[i], key);
			changed = true;
		}
		wire_put16(q->data + 2 * i, table[i]);
	}
	if (q->set)
		fabric_port_end(q->f, port);
	if (changed) {
		fabric_routes_changed(q->f);
		fabric_tell(q->f, port, FABRIC_CHANGED_PKEYS);
	}
	return STATUS_OK;
}

u16 sma_guid_info(struct sma_request *q)
{
	u32 home = fabric_home(q->f, q->port);
	struct fabric_port_rec *p = &q->f->port[home];
	bool changed = false;

	if (q->modifier >= FABRIC_GUIDS / TABLE_GUIDS)
		return STATUS_BAD_VALUE;
	if (q->set)
		fabric_port_begin(q->f, home);
	for (u32 i = 0; i < TABLE_GUIDS; i++) {
		u64 guid = wire_get64(q->data + 8 * i);

		/* The first one is the hardware's. */
		if (q->set && i != 0 && p->guid[i] != guid) {
			p->guid[i] = guid;
			changed = true;
		}
		wire_put64(q->data + 8 * i, p->guid[i]);
	}
	if (q->set)
		fabric_port_end(q->f, home);
	if (changed)
		fabric_tell(q->f, home, FABRIC_CHANGED_GIDS);
	return STATUS_OK;
}
