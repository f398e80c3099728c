/* pma.c: the performance management agent: PortCounters and PortCountersExtended.
 * In:    GMPs that have reached a node    Out: answers in place; counters
 * Runs:  the owner's thread    Locks: none; processes add to counters meanwhile
 * Spec:  IBA vol 1, 16.1
 *
 * What has been sent and received is never set back, because processes add to it at any time: the
 * agent notes from where it counts instead. Errors are counted by the owner alone.
 */
#include "fabric/pma.h"

#include "fabric/format.h"

enum {
	PMA_CLASS_PORT_INFO = 0x0001,
	PMA_PORT_COUNTERS = 0x0012,
	PMA_PORT_COUNTERS_EXT = 0x001d,
	PMA_ALL_PORTS = 0xff,
	/* CapabilityMask: AllPortSelect, extended widths, PortXmitWait */
	PMA_CAPABILITIES = 0x1300,
	PMA_RESP_TIME = 18, /* 4.096 us * 2^18 at most */
	PMA_SELECT_AT = 1,  /* of the port, in the data; then 16 bits which counters */
	PMA_SELECT2_AT = 18,
	PMA_PC_DATA = FABRIC_ERRORS, /* bits of CounterSelect: errors first, but PortXmitWait */
};

/* ---- fields
 * ------------------------------------------------------------------------------------ */

/* Where PortCounters has an error counter: bytes, how wide it is in bits, and whether it is the
 * lower half of its byte. */
static const struct {
	u8 at FIXED;
	u8 bits FIXED;
	bool low FIXED;
} pma_errors[FABRIC_ERRORS] = {
	[FABRIC_ERR_SYMBOL] = { 4, 16, false },
	[FABRIC_ERR_LINK_RECOVERY] = { 6, 8, false },
	[FABRIC_ERR_LINK_DOWNED] = { 7, 8, false },
	[FABRIC_ERR_RCV] = { 8, 16, false },
	[FABRIC_ERR_RCV_PHYSICAL] = { 10, 16, false },
	[FABRIC_ERR_RCV_SWITCH_RELAY] = { 12, 16, false },
	[FABRIC_ERR_XMIT_DISCARDS] = { 14, 16, false },
	[FABRIC_ERR_XMIT_CONSTRAINT] = { 16, 8, false },
	[FABRIC_ERR_RCV_CONSTRAINT] = { 17, 8, false },
	[FABRIC_ERR_LOCAL_INTEGRITY] = { 19, 4, false },
	[FABRIC_ERR_BUFFER_OVERRUN] = { 19, 4, true },
	[FABRIC_ERR_VL15_DROPPED] = { 22, 16, false },
	[FABRIC_ERR_XMIT_WAIT] = { 40, 32, false },
};

static u64 pma_error_get(const u8 *d, u32 error)
{
	const u8 *at = d + pma_errors[error].at;

	switch (pma_errors[error].bits) {
	case 4:
		return pma_errors[error].low ? *at & 15 : *at >> 4;
	case 8:
		return *at;
	case 16:
		return wire_get16(at);
	default:
		return wire_get32(at);
	}
}

static void pma_error_put(u8 *d, u32 error, u64 value)
{
	u8 *at = d + pma_errors[error].at;
	u64 max = (1ull << pma_errors[error].bits) - 1;
	u64 v = MIN(value, max);

	switch (pma_errors[error].bits) {
	case 4:
		*at |= (u8)(pma_errors[error].low ? v : v << 4);
		break;
	case 8:
		*at = (u8)v;
		break;
	case 16:
		wire_put16(at, (u16)v);
		break;
	default:
		wire_put32(at, (u32)v);
		break;
	}
}

/* PortCounters' data begin behind the errors, PortCountersExtended's behind the selection. */
enum { PMA_PC_DATA_AT = 24, PMA_PCX_DATA_AT = 8 };

/* The eight counters of PortCountersExtended, of which PortCounters has the first four. Data are
 * in units of 4 bytes. */
static void pma_traffic(const struct fabric_counters *c, u32 port, u64 out[FABRIC_PCX_BASES])
{
	struct fabric_counts n;

	if (fabric_counts_read(c, port, &n) != 0)
		return;
	out[0] = n.xmit_bytes / 4;
	out[1] = n.rcv_bytes / 4;
	out[2] = n.xmit_packets;
	out[3] = n.rcv_packets;
	out[4] = n.xmit_packets - n.mcast_xmit_packets;
	out[5] = n.rcv_packets - n.mcast_rcv_packets;
	out[6] = n.mcast_xmit_packets;
	out[7] = n.mcast_rcv_packets;
}

/* ---- PortCounters
 * ------------------------------------------------------------------------------ */

/* The bit of CounterSelect for an error; PortXmitWait has one in CounterSelect2. */
static bool pma_is_selected(const u8 *d, u32 error)
{
	if (error == FABRIC_ERR_XMIT_WAIT)
		return (d[PMA_SELECT2_AT] & 1) != 0;
	return (wire_get16(d + PMA_SELECT_AT + 1) & 1 << error) != 0;
}

static void pc_set(struct fabric *f, u32 port, const u8 *d)
{
	struct fabric_port_counters *p = &f->counters.port[port];
	u16 select = wire_get16(d + PMA_SELECT_AT + 1);
	u64 now[FABRIC_PCX_BASES] = { 0 };

	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		if (pma_is_selected(d, i))
			fabric_store(p->errors[i], (u32)pma_error_get(d, i));
	pma_traffic(&f->counters, port, now);
	for (u32 i = 0; i < FABRIC_PC_BASES; i++)
		if ((select & 1 << (12 + i)) != 0)
			fabric_store(p->base[i],
				     now[i] - wire_get32(d + PMA_PC_DATA_AT + 4 * i));
}

struct pma_sums {
	u64 errors[FABRIC_ERRORS];
	u64 data[FABRIC_PCX_BASES];
} OWNED_BY(the caller);

static void pc_add(struct fabric *f, u32 port, struct pma_sums *s)
{
	const struct fabric_port_counters *p = &f->counters.port[port];
	u64 now[FABRIC_PCX_BASES] = { 0 };

	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		s->errors[i] += fabric_load(p->errors[i]);
	pma_traffic(&f->counters, port, now);
	for (u32 i = 0; i < FABRIC_PC_BASES; i++)
		s->data[i] += now[i] - fabric_load(p->base[i]);
}

static void pc_pack(u8 *d, const struct pma_sums *s)
{
	memset(d + PMA_SELECT_AT + 3, 0, MAD_PM_DATA - PMA_SELECT_AT - 3);
	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		pma_error_put(d, i, s->errors[i]);
	for (u32 i = 0; i < FABRIC_PC_BASES; i++)
		wire_put32(d + PMA_PC_DATA_AT + 4 * i, (u32)MIN(s->data[i], UINT32_MAX));
}

/* ---- PortCountersExtended
 * ---------------------------------------------------------------------- */

static void pcx_set(struct fabric *f, u32 port, const u8 *d)
{
	struct fabric_port_counters *p = &f->counters.port[port];
	u16 select = wire_get16(d + PMA_SELECT_AT + 1);
	u64 now[FABRIC_PCX_BASES] = { 0 };

	pma_traffic(&f->counters, port, now);
	for (u32 i = 0; i < FABRIC_PCX_BASES; i++)
		if ((select & 1 << i) != 0)
			fabric_store(p->base[FABRIC_PC_BASES + i],
				     now[i] - wire_get64(d + PMA_PCX_DATA_AT + 8 * i));
}

static void pcx_add(struct fabric *f, u32 port, struct pma_sums *s)
{
	const struct fabric_port_counters *p = &f->counters.port[port];
	u64 now[FABRIC_PCX_BASES] = { 0 };

	pma_traffic(&f->counters, port, now);
	for (u32 i = 0; i < FABRIC_PCX_BASES; i++)
		s->data[i] += now[i] - fabric_load(p->base[FABRIC_PC_BASES + i]);
}

static void pcx_pack(u8 *d, const struct pma_sums *s)
{
	memset(d + PMA_SELECT_AT + 3, 0, MAD_PM_DATA - PMA_SELECT_AT - 3);
	for (u32 i = 0; i < FABRIC_PCX_BASES; i++)
		wire_put64(d + PMA_PCX_DATA_AT + 8 * i, s->data[i]);
}

int fabric_pma_read(const struct fabric *f, u32 port, struct fabric_counts *out)
{
	struct fabric_counts n;
	const u64 *base;
	int err = fabric_counts_read(&f->counters, port, &n);

	if (err != 0)
		return err;
	base = &f->counters.port[port].base[FABRIC_PC_BASES];
	n.xmit_bytes -= 4 * fabric_load(base[0]);
	n.rcv_bytes -= 4 * fabric_load(base[1]);
	n.xmit_packets -= fabric_load(base[2]);
	n.rcv_packets -= fabric_load(base[3]);
	n.mcast_xmit_packets -= fabric_load(base[6]);
	n.mcast_rcv_packets -= fabric_load(base[7]);
	*out = n;
	return 0;
}

/* ---- dispatch
 * ---------------------------------------------------------------------------------- */

static u16 pma_class_port_info(u8 *d, bool set)
{
	if (set)
		return STATUS_BAD_ATTRIBUTE;
	memset(d, 0, MAD_PM_DATA);
	d[0] = 1; /* base and class version */
	d[1] = 1;
	wire_put16(d + 2, PMA_CAPABILITIES);
	d[7] = PMA_RESP_TIME;
	return STATUS_OK;
}

/* The ports of a node that PortSelect names. False: none. */
static bool pma_ports(struct fabric *f, u32 port, u8 select, u32 *first, u32 *last)
{
	const struct fabric_node_rec *n = fabric_node_of(f, port);
	u32 lowest = n->type == FABRIC_SWITCH ? 0 : 1;

	*first = n->first_port + (select == PMA_ALL_PORTS ? lowest : select);
	*last = n->first_port + (select == PMA_ALL_PORTS ? n->ports : select);
	return select == PMA_ALL_PORTS || (select >= lowest && select <= n->ports);
}

static u16 pma_counters(struct fabric *f, u32 port, u8 *d, bool set, bool extended)
{
	struct pma_sums s = { { 0 }, { 0 } };
	u32 first, last;

	if (!pma_ports(f, port, d[PMA_SELECT_AT], &first, &last))
		return STATUS_BAD_VALUE;
	for (u32 i = first; i <= last; i++) {
		if (set && extended)
			pcx_set(f, i, d);
		else if (set)
			pc_set(f, i, d);
		if (extended)
			pcx_add(f, i, &s);
		else
			pc_add(f, i, &s);
	}
	if (extended)
		pcx_pack(d, &s);
	else
		pc_pack(d, &s);
	return STATUS_OK;
}

static u16 pma_attribute(struct fabric *f, u32 port, struct fabric_mad *m, bool set)
{
	u8 *d = m->mad + MAD_DATA;

	switch (wire_get16(m->mad + MAD_ATTRIBUTE)) {
	case PMA_CLASS_PORT_INFO:
		return pma_class_port_info(d, set);
	case PMA_PORT_COUNTERS:
		return pma_counters(f, port, d, set, false);
	case PMA_PORT_COUNTERS_EXT:
		return pma_counters(f, port, d, set, true);
	default:
		return STATUS_BAD_ATTRIBUTE;
	}
}

bool pma_answer(struct fabric *f, u32 port, struct fabric_mad *m)
{
	u8 method = m->mad[MAD_METHOD];
	u16 status;

	if (method == METHOD_SEND || method == METHOD_TRAP || method == METHOD_REPORT ||
	    method == METHOD_TRAP_REPRESS)
		return false;
	if (m->mad[MAD_BASE_VERSION] != 1 || m->mad[MAD_CLASS_VERSION] != 1)
		status = STATUS_BAD_VERSION;
	else if (method != METHOD_GET && method != METHOD_SET)
		status = STATUS_BAD_METHOD;
	else
		status = pma_attribute(f, port, m, method == METHOD_SET);
	wire_put16(m->mad + MAD_STATUS, status);
	m->mad[MAD_METHOD] = METHOD_GET_RESP;
	return true;
}
