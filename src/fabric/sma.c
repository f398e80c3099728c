/* sma.c: the subnet management agent: which SMPs it answers, M_Keys, and what is no table.
 * In:    SMPs that have reached a node    Out: answers in place; the map
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.4 (M_Key), 14.2.5 (attributes)
 */
#include "fabric/sma.h"

#include "fabric/trap.h"

/* ---- attributes that only tell
 * ----------------------------------------------------------------- */

static u16 sma_node_description(struct sma_request *q)
{
	if (q->set)
		return STATUS_BAD_ATTRIBUTE;
	memcpy(q->data, q->node->desc, FABRIC_DESC);
	return STATUS_OK;
}

static u16 sma_node_info(struct sma_request *q)
{
	const struct fabric_port_rec *p = &q->f->port[q->port];
	const struct fabric_port_rec *home = &q->f->port[fabric_home(q->f, q->port)];
	u8 *d = q->data;

	if (q->set)
		return STATUS_BAD_ATTRIBUTE;
	memset(d, 0, MAD_SMP_DATA);
	d[0] = 1; /* base and class version */
	d[1] = 1;
	d[2] = q->node->type;
	d[3] = (u8)q->node->ports;
	wire_put64(d + 4, q->node->sys_guid);
	wire_put64(d + 12, q->node->guid);
	wire_put64(d + 20, home->guid[0]);
	wire_put16(d + 28, home->pkey_cap);
	wire_put16(d + 30, q->node->device_id);
	wire_put32(d + 32, q->node->revision);
	wire_put32(d + 36, q->node->vendor_id & 0xffffff);
	d[36] = p->number;
	return STATUS_OK;
}

/* ---- M_Keys
 * ------------------------------------------------------------------------------------ */

/* The lease of an M_Key has ended: it no longer protects from reading. */
static void mkey_lease_look(struct fabric *f, u32 home)
{
	struct fabric_port_rec *p = &f->port[home];

	if (p->lease_end_ns == 0 || fabric_now(f) < p->lease_end_ns)
		return;
	p = fabric_port_begin(f, home);
	p->lease_end_ns = 0;
	p->mkey_protect = 0;
	fabric_port_end(f, home);
}

static void mkey_violated(struct fabric *f, u32 home, const struct fabric_mad *m)
{
	struct fabric_port_rec *p = fabric_port_begin(f, home);

	if (p->mkey_violations < UINT16_MAX)
		p->mkey_violations++;
	if (p->lease_end_ns == 0 && p->mkey_lease != 0)
		p->lease_end_ns = fabric_now(f) + p->mkey_lease * 1000000000ull;
	fabric_port_end(f, home);
	trap_bad_mkey(f, home, m);
}

/* False: refused, silently. *hide: answer, but not with the M_Key. */
static bool mkey_admits(struct fabric *f, u32 port, const struct fabric_mad *m, bool *hide)
{
	u32 home = fabric_home(f, port);
	struct fabric_port_rec *p = &f->port[home];

	*hide = false;
	if (p->mkey == 0)
		return true;
	mkey_lease_look(f, home);
	if (wire_get64(m->mad + MAD_MKEY) == p->mkey) {
		p->lease_end_ns = 0;
		return true;
	}
	if (m->mad[MAD_METHOD] == METHOD_GET && p->mkey_protect <= 1) {
		*hide = p->mkey_protect == 1;
		return true;
	}
	mkey_violated(f, home, m);
	return false;
}

/* ---- dispatch
 * ---------------------------------------------------------------------------------- */

static u16 sma_attribute(struct sma_request *q, u16 attribute)
{
	switch (attribute) {
	case ATTR_NODE_DESCRIPTION:
		return sma_node_description(q);
	case ATTR_NODE_INFO:
		return sma_node_info(q);
	case ATTR_PORT_INFO:
		return sma_port_info(q);
	case ATTR_MLNX_EXT_PORT_INFO:
		return sma_mlnx_ext_port_info(q);
	case ATTR_PKEY_TABLE:
		return sma_pkey_table(q);
	case ATTR_SL_TO_VL:
		return sma_sl_to_vl(q);
	case ATTR_VL_ARBITRATION:
		return sma_vl_arbitration(q);
	case ATTR_GUID_INFO:
		return sma_guid_info(q);
	case ATTR_SWITCH_INFO:
		return sma_is_switch(q) ? sma_switch_info(q) : STATUS_BAD_ATTRIBUTE;
	case ATTR_LINEAR_TABLE:
		return sma_is_switch(q) ? sma_linear_table(q) : STATUS_BAD_ATTRIBUTE;
	case ATTR_MULTICAST_TABLE:
		return sma_is_switch(q) ? sma_multicast_table(q) : STATUS_BAD_ATTRIBUTE;
	default:
		return STATUS_BAD_ATTRIBUTE;
	}
}

static u16 sma_judge(struct fabric *f, u32 port, struct fabric_mad *m)
{
	u8 method = m->mad[MAD_METHOD];
	struct sma_request q = { .f = f,
				 .node = fabric_node_of(f, port),
				 .port = port,
				 .modifier = wire_get32(m->mad + MAD_MODIFIER),
				 .set = method == METHOD_SET,
				 .data = m->mad + MAD_DATA };

	if (m->mad[MAD_BASE_VERSION] != 1 || m->mad[MAD_CLASS_VERSION] != 1)
		return STATUS_BAD_VERSION;
	if (method != METHOD_GET && method != METHOD_SET)
		return STATUS_BAD_METHOD;
	if (!mkey_admits(f, port, m, &q.hide_mkey))
		return STATUS_NONE;
	return sma_attribute(&q, wire_get16(m->mad + MAD_ATTRIBUTE));
}

bool sma_answer(struct fabric *f, u32 port, struct fabric_mad *m)
{
	u8 method = m->mad[MAD_METHOD];
	u16 status;

	if ((method & METHOD_RESPONSE) != 0 || method == METHOD_SEND || method == METHOD_TRAP ||
	    method == METHOD_REPORT || method == METHOD_TRAP_REPRESS)
		return false;
	status = sma_judge(f, port, m);
	if (status == STATUS_NONE)
		return false;
	if (m->mad[MAD_CLASS] == CLASS_SMP_DIRECTED)
		status |= STATUS_DIRECTION;
	wire_put16(m->mad + MAD_STATUS, status);
	m->mad[MAD_METHOD] = METHOD_GET_RESP;
	return true;
}
