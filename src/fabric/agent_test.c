/* agent_test.c: agents answer as hardware does; traps come until they are repressed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "fabric/format.h"
#include "fabric/test_support/sm.h"

static const struct sm_way here = { .hops = 0 };
static struct bed b;
static u32 sm_port;

static void star_up(void)
{
	bed_star(&b, 3);
	sm_port = bed_port(&b, 1, 1);
	sm_sweep(&b, sm_port);
}

static u32 traps_of(u16 number, u32 since)
{
	u32 count = 0;

	for (u32 i = since; i < b.delivered; i++) {
		const struct fabric_mad *m = &b.mad[i % BED_MADS].m;

		if (m->mad[MAD_METHOD] == METHOD_TRAP &&
		    wire_get16(m->mad + MAD_DATA + 4) == number)
			count++;
	}
	return count;
}

/* The manager confirms a trap. */
static void repress(const struct fabric_mad *trap)
{
	struct fabric_mad m = *trap;

	m.mad[MAD_METHOD] = METHOD_TRAP_REPRESS;
	m.dlid = m.slid;
	fabric_send(b.f, sm_port, &m);
}

static void repress_last(void)
{
	repress(bed_last(&b, sm_port));
}

static void repress_all(u32 since)
{
	for (u32 i = since, end = b.delivered; i < end; i++)
		repress(&b.mad[i % BED_MADS].m);
}

static void pass_s(u32 seconds)
{
	b.now_ns += seconds * 1000000000ull;
	fabric_tick(b.f);
}

static void trap__link_down_is_told_until_it_is_repressed(void **state)
{
	u32 before;

	(void)state;
	star_up();
	before = b.delivered;
	assert_int_equal(fabric_link_set(b.f, bed_port(&b, 3, 1), false), 0);
	assert_int_equal(traps_of(128, before), 1);
	pass_s(2);
	assert_int_equal(traps_of(128, before), 2);
	repress_last();
	pass_s(2);
	pass_s(2);
	assert_int_equal(traps_of(128, before), 2);
	assert_true(fabric_due_ns(b.f) == UINT64_MAX);
	bed_end(&b);
}

/* The latest trap, which names port 2 of the switch. */
static void check_link_trap(u16 number)
{
	const u8 *notice = bed_last(&b, sm_port)->mad + MAD_DATA;
	u16 lid = b.f->port[bed_port(&b, 0, 0)].lid;

	assert_int_equal(notice[0], 0x81); /* generic, urgent */
	assert_int_equal(notice[3], FABRIC_SWITCH);
	assert_int_equal(wire_get16(notice + 4), number);
	assert_int_equal(wire_get16(notice + 6), lid);
	assert_int_equal(wire_get16(notice + 12), lid);
	assert_int_equal(notice[14], 2);
}

static void trap__errors_of_a_link_are_told_until_they_are_repressed(void **state)
{
	static const struct {
		enum fabric_error error;
		u16 trap;
	} rows[] FIXED = { { FABRIC_ERR_LOCAL_INTEGRITY, 129 },
			   { FABRIC_ERR_BUFFER_OVERRUN, 130 },
			   { FABRIC_ERR_LINK_RECOVERY, 131 } };

	(void)state;
	star_up();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		u32 before = b.delivered;

		assert_int_equal(fabric_port_error(b.f, bed_port(&b, 0, 2), rows[i].error, 1), 0);
		pass_s(2); /* a port sends no two traps sooner */
		assert_true(traps_of(rows[i].trap, before) >= 1);
		check_link_trap(rows[i].trap);
		before = b.delivered;
		pass_s(2);
		assert_int_equal(traps_of(rows[i].trap, before), 1);
		repress_last();
		before = b.delivered;
		pass_s(2);
		assert_int_equal(b.delivered, before);
	}
	/* an error that is no threshold's is counted only */
	assert_int_equal(fabric_port_error(b.f, bed_port(&b, 0, 2), FABRIC_ERR_SYMBOL, 1), 0);
	pass_s(2);
	assert_true(fabric_due_ns(b.f) == UINT64_MAX);
	bed_end(&b);
}

static void trap__a_node_tells_what_has_changed_of_it(void **state)
{
	u32 before, host;
	const u8 *notice;

	(void)state;
	star_up();
	host = bed_port(&b, 2, 1);
	before = b.delivered;
	fabric_set_issm(b.f, host, true);
	assert_int_equal(traps_of(144, before), 1);
	notice = bed_last(&b, sm_port)->mad + MAD_DATA;
	assert_int_equal(notice[0], 0x84); /* generic, informational */
	assert_int_equal(notice[3], FABRIC_CA);
	assert_int_equal(wire_get16(notice + 12), b.f->port[host].lid);
	assert_int_equal(wire_get32(notice + 16), b.f->port[host].cap_mask);
	assert_int_equal(wire_get32(notice + 16) & 2, 2); /* IsSM */
	assert_int_equal(notice[15], 0);
	repress_last();
	assert_int_equal(fabric_set_description(b.f, 2, "h2 renamed"), 0);
	pass_s(2);
	notice = bed_last(&b, sm_port)->mad + MAD_DATA;
	assert_int_equal(notice[15], 1); /* OtherLocalChanges */
	assert_int_equal(notice[21], 1); /* NodeDescriptionChange */
	repress_last();
	before = b.delivered;
	pass_s(2);
	assert_int_equal(b.delivered, before);
	/* the next one tells of itself alone */
	fabric_set_issm(b.f, host, false);
	assert_int_equal(traps_of(144, before), 1);
	notice = bed_last(&b, sm_port)->mad + MAD_DATA;
	assert_int_equal(wire_get32(notice + 16) & 2, 0);
	assert_int_equal(notice[15], 0);
	assert_int_equal(notice[21], 0);
	bed_end(&b);
}

/* Ports 2 and 3 of the switch, two kinds: each trap ends by its own TrapRepress only, and one
 * that is raised again needs another. */
static void trap__the_next_one_is_told_too(void **state)
{
	struct fabric_mad first;
	u32 before;

	(void)state;
	star_up();
	before = b.delivered;
	fabric_port_error(b.f, bed_port(&b, 0, 2), FABRIC_ERR_LOCAL_INTEGRITY, 1);
	assert_int_equal(traps_of(129, before), 1);
	first = *bed_last(&b, sm_port);
	fabric_port_error(b.f, bed_port(&b, 0, 3), FABRIC_ERR_LOCAL_INTEGRITY, 1);
	fabric_port_error(b.f, bed_port(&b, 0, 2), FABRIC_ERR_LOCAL_INTEGRITY, 1);
	fabric_port_error(b.f, bed_port(&b, 0, 2), FABRIC_ERR_BUFFER_OVERRUN, 1);
	repress(&first); /* of the one before */
	before = b.delivered;
	pass_s(2);
	assert_int_equal(traps_of(129, before), 2);
	assert_int_equal(traps_of(130, before), 1);
	repress_last(); /* the port's other trap stays */
	before = b.delivered;
	pass_s(2);
	assert_int_equal(traps_of(129, before), 2);
	assert_int_equal(traps_of(130, before), 0);
	repress_all(before);
	before = b.delivered;
	pass_s(2);
	assert_int_equal(b.delivered, before);
	fabric_port_error(b.f, bed_port(&b, 0, 3), FABRIC_ERR_LOCAL_INTEGRITY, 1);
	assert_int_equal(traps_of(129, before), 1);
	repress_last();
	/* within its interval it waits */
	fabric_port_error(b.f, bed_port(&b, 0, 3), FABRIC_ERR_LOCAL_INTEGRITY, 1);
	assert_int_equal(traps_of(129, before), 1);
	pass_s(2);
	assert_int_equal(traps_of(129, before), 2);
	bed_end(&b);
}

/* The PortInfo of the manager's port, to be set again: without a state. */
static void read_port_info(u8 d[MAD_SMP_DATA])
{
	memcpy(d,
	       sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_PORT_INFO, 0, NULL)->mad +
		       MAD_DATA,
	       MAD_SMP_DATA);
	d[32] &= 0xf0;
	d[33] &= 0x0f;
}

/* Software hears when a port's LID changes, and when their number does. */
static void sma__a_change_of_lids_is_told(void **state)
{
	static const struct {
		u8 at, bits;
	} changes[] FIXED = { { 17, 64 } /* the LID */, { 34, 2 } /* the LMC */ };
	u8 d[MAD_SMP_DATA];

	(void)state;
	star_up();
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		read_port_info(d);
		d[changes[i].at] = changes[i].bits;
		b.changed_what = 0;
		assert_int_equal(sm_status(sm_directed(&b, sm_port, &here, METHOD_SET,
						       ATTR_PORT_INFO, 0, d)),
				 0);
		assert_int_equal(b.changed_what, FABRIC_CHANGED_LID);
		assert_int_equal(b.changed_port, sm_port);
	}
	bed_end(&b);
}

/* A cable that is cut goes down at both ends, once; each counts it. */
static void pma__a_cut_counts_at_both_ends(void **state)
{
	const struct fabric_port_counters *c;

	(void)state;
	star_up();
	c = b.f->counters.port;
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(fabric_link_set(b.f, bed_port(&b, 3, 1), false), 0);
	assert_int_equal(c[bed_port(&b, 3, 1)].errors[FABRIC_ERR_LINK_DOWNED], 1);
	assert_int_equal(c[bed_port(&b, 0, 3)].errors[FABRIC_ERR_LINK_DOWNED], 1);
	assert_int_equal(c[bed_port(&b, 0, 2)].errors[FABRIC_ERR_LINK_DOWNED], 0);
	bed_end(&b);
}

static void sma__wrong_mkey_is_refused_and_counted(void **state)
{
	u8 d[MAD_SMP_DATA];

	(void)state;
	star_up();
	read_port_info(d);
	wire_put64(d, 42);
	d[34] = (u8)((d[34] & 0x3f) | 0x80); /* protect from reading */
	assert_int_equal(
		sm_status(sm_directed(&b, sm_port, &here, METHOD_SET, ATTR_PORT_INFO, 0, d)), 0);
	assert_null(sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_PORT_INFO, 0, NULL));
	assert_int_equal(b.f->port[sm_port].mkey_violations, 1);
	assert_int_equal(traps_of(256, 0), 1);
	bed_end(&b);
}

static void sma__unknown_attribute_is_unsupported(void **state)
{
	(void)state;
	star_up();
	assert_int_equal(sm_status(sm_directed(&b, sm_port, &here, METHOD_GET, 0xff91, 1, NULL)),
			 STATUS_BAD_ATTRIBUTE);
	assert_int_equal(
		sm_status(sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_SWITCH_INFO, 0, NULL)),
		STATUS_BAD_ATTRIBUTE);
	assert_int_equal(
		sm_status(sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_PORT_INFO, 9, NULL)),
		STATUS_BAD_VALUE);
	bed_end(&b);
}

/* An external port enforces fewer partitions than port 0 or a CA's may belong to. */
static void sma__ports_of_a_switch_have_fewer_pkeys(void **state)
{
	static const struct sm_way to_switch = { .hops = 1, .path = { 0, 1 } };
	static const struct {
		u32 port, block;
		u16 status;
	} rows[] FIXED = { { 0, 3, 0 }, { 0, 4, STATUS_BAD_VALUE },
			   { 2, 0, 0 }, { 2, 1, STATUS_BAD_VALUE } };
	const struct fabric_mad *m;

	(void)state;
	star_up();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		m = sm_directed(&b, sm_port, &to_switch, METHOD_GET, ATTR_PKEY_TABLE,
				rows[i].port << 16 | rows[i].block, NULL);
		assert_int_equal(sm_status(m), rows[i].status);
	}
	m = sm_directed(&b, sm_port, &to_switch, METHOD_GET, ATTR_SWITCH_INFO, 0, NULL);
	assert_int_equal(wire_get16(m->mad + MAD_DATA + 14), 32);
	m = sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_PKEY_TABLE, 3, NULL);
	assert_int_equal(sm_status(m), 0);
	bed_end(&b);
}

/* Each block of a table, and each part of the VL arbitration, is its own. */
static void sma__each_block_of_a_table_is_its_own(void **state)
{
	enum { VLARB_LOW = 1 << 16, VLARB_HIGH = 3 << 16 };
	static const struct {
		u16 attribute;
		u32 modifier[2];
		u32 bytes;
	} rows[] FIXED = { { ATTR_PKEY_TABLE, { 1, 3 }, 64 },
			   { ATTR_VL_ARBITRATION, { VLARB_LOW, VLARB_HIGH }, 2 * FABRIC_VLARB } };
	u8 d[2][MAD_SMP_DATA] = { { 0 } };
	const struct fabric_mad *m;

	(void)state;
	star_up();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		for (u32 k = 0; k < 2; k++) {
			memset(d[k], (int)(0x11 + k), rows[i].bytes);
			m = sm_directed(&b, sm_port, &here, METHOD_SET, rows[i].attribute,
					rows[i].modifier[k], d[k]);
			assert_int_equal(sm_status(m), 0);
		}
		for (u32 k = 0; k < 2; k++) {
			m = sm_directed(&b, sm_port, &here, METHOD_GET, rows[i].attribute,
					rows[i].modifier[k], NULL);
			assert_memory_equal(m->mad + MAD_DATA, d[k], rows[i].bytes);
		}
	}
	m = sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_PKEY_TABLE, 0, NULL);
	assert_int_equal(wire_get16(m->mad + MAD_DATA), 0xffff); /* the default one stays */
	bed_end(&b);
}

/* Each SL has VL 0 again, whatever the manager before has set: in a CA, and in a switch for
 * every pair of ports. */
static void sma__a_reboot_resets_sl_to_vl(void **state)
{
	static const struct {
		struct sm_way way;
		u32 node, modifier;
	} rows[] FIXED = { { { .hops = 2, .path = { 0, 1, 2 } }, 2, 0 },
			   { { .hops = 1, .path = { 0, 1 } }, 0, 0 },
			   { { .hops = 1, .path = { 0, 1 } }, 0, 3 << 8 | 3 } };
	u8 set[MAD_SMP_DATA] = { 0 }, none[MAD_SMP_DATA] = { 0 };
	const struct fabric_mad *m;

	(void)state;
	memset(set, 0x21, FABRIC_SL2VL);
	star_up();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		m = sm_directed(&b, sm_port, &rows[i].way, METHOD_SET, ATTR_SL_TO_VL,
				rows[i].modifier, set);
		assert_int_equal(sm_status(m), 0);
		assert_memory_equal(m->mad + MAD_DATA, set, MAD_SMP_DATA);
		assert_int_equal(fabric_node_reboot(b.f, rows[i].node), 0);
		m = sm_directed(&b, sm_port, &rows[i].way, METHOD_GET, ATTR_SL_TO_VL,
				rows[i].modifier, NULL);
		assert_int_equal(sm_status(m), 0);
		assert_memory_equal(m->mad + MAD_DATA, none, MAD_SMP_DATA);
	}
	bed_end(&b);
}

static void smi__repress_of_softwares_trap_reaches_it(void **state)
{
	struct fabric_mad m = { .dlid = 0 };
	u32 other;

	(void)state;
	star_up();
	other = bed_port(&b, 2, 1);
	m.dlid = b.f->port[other].lid;
	m.mad[MAD_BASE_VERSION] = m.mad[MAD_CLASS_VERSION] = 1;
	m.mad[MAD_CLASS] = CLASS_SMP_LID;
	m.mad[MAD_METHOD] = METHOD_TRAP_REPRESS;
	wire_put64(m.mad + MAD_TID, 0x1c00000001234);
	wire_put16(m.mad + MAD_ATTRIBUTE, ATTR_NOTICE);
	b.delivered = 0;
	fabric_send(b.f, sm_port, &m);
	assert_int_equal(b.delivered, 1);
	assert_int_equal(bed_last(&b, other)->mad[MAD_METHOD], METHOD_TRAP_REPRESS);
	bed_end(&b);
}

/* Port 0 has software while IsSM is set. */
static void smi__a_switch_that_is_a_manager(void **state)
{
	u32 port0, host;
	struct fabric_mad m = { .src_qp = 1, .dst_qp = 1, .qkey = 0x80010000, .pkey = 0xffff };

	(void)state;
	star_up();
	port0 = bed_port(&b, 0, 0);
	host = bed_port(&b, 2, 1);
	m.dlid = b.f->port[port0].lid;
	m.mad[MAD_BASE_VERSION] = 1;
	m.mad[MAD_CLASS] = 3;
	m.mad[MAD_METHOD] = METHOD_GET;
	b.delivered = 0;
	fabric_send(b.f, host, &m);
	assert_int_equal(bed_last(&b, host)->mad[MAD_METHOD], METHOD_GET_RESP); /* refused */
	fabric_set_issm(b.f, port0, true);
	fabric_send(b.f, host, &m);
	assert_int_equal(bed_last(&b, port0)->mad[MAD_METHOD], METHOD_GET);
	m = *bed_last(&b, port0);
	m.dlid = m.slid;
	m.mad[MAD_METHOD] = METHOD_GET_RESP;
	fabric_send(b.f, port0, &m);
	assert_int_equal(bed_last(&b, host)->slid, b.f->port[port0].lid);
	fabric_set_issm(b.f, port0, false);
	b.delivered = 0;
	fabric_send(b.f, port0, &m);
	assert_int_equal(b.delivered, 0);
	bed_end(&b);
}

static void sma__one_vendors_speeds(void **state)
{
	u8 d[MAD_SMP_DATA] = { 0 };
	const struct fabric_mad *m;

	(void)state;
	star_up();
	m = sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_MLNX_EXT_PORT_INFO, 1, NULL);
	assert_int_equal(sm_status(m), 0);
	assert_memory_equal(m->mad + MAD_DATA, d, sizeof(d));
	m = sm_directed(&b, sm_port, &here, METHOD_GET, ATTR_MLNX_EXT_PORT_INFO, 9, NULL);
	assert_int_equal(sm_status(m), STATUS_BAD_VALUE);
	d[11] = 1;
	m = sm_directed(&b, sm_port, &here, METHOD_SET, ATTR_MLNX_EXT_PORT_INFO, 1, d);
	assert_int_equal(sm_status(m), STATUS_BAD_VALUE);
	bed_end(&b);
}

static void pma__counters_count_and_are_cleared(void **state)
{
	u8 d[MAD_PM_DATA] = { 0, 1 };
	u16 lid;
	const struct fabric_mad *m;
	u32 packets;

	(void)state;
	star_up();
	lid = b.f->port[bed_port(&b, 2, 1)].lid;
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);
	packets = wire_get32(m->mad + MAD_DATA + 36);
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);
	assert_int_equal(wire_get32(m->mad + MAD_DATA + 36), packets + 1);
	assert_int_equal(fabric_port_error(b.f, bed_port(&b, 2, 1), FABRIC_ERR_SYMBOL, 70000), 0);
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);
	assert_int_equal(wire_get16(m->mad + MAD_DATA + 4), 0xffff);
	d[2] = d[3] = 0xff;
	m = sm_perf(&b, sm_port, lid, METHOD_SET, 0x12, d);
	assert_int_equal(sm_status(m), 0);
	assert_int_equal(wire_get16(m->mad + MAD_DATA + 4), 0);
	assert_int_equal(wire_get32(m->mad + MAD_DATA + 36), 0);
	/* the extended ones go on */
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x1d, d);
	assert_true(wire_get64(m->mad + MAD_DATA + 32) > packets);
	bed_end(&b);
}

/* Where PortCounters and PortCountersExtended have each counter, and the bit that selects it.
 * IBA vol 1, 16.1.3.5 and 16.1.4.11. */
struct pma_place {
	u32 which; /* enum fabric_error */
	u8 at, bits, shift;
	u8 select_at;
	u16 select;
};

static const struct pma_place pma_error_places[] = {
	{ FABRIC_ERR_SYMBOL, 4, 16, 0, 2, 1 << 0 },
	{ FABRIC_ERR_LINK_RECOVERY, 6, 8, 0, 2, 1 << 1 },
	{ FABRIC_ERR_LINK_DOWNED, 7, 8, 0, 2, 1 << 2 },
	{ FABRIC_ERR_RCV, 8, 16, 0, 2, 1 << 3 },
	{ FABRIC_ERR_RCV_PHYSICAL, 10, 16, 0, 2, 1 << 4 },
	{ FABRIC_ERR_RCV_SWITCH_RELAY, 12, 16, 0, 2, 1 << 5 },
	{ FABRIC_ERR_XMIT_DISCARDS, 14, 16, 0, 2, 1 << 6 },
	{ FABRIC_ERR_XMIT_CONSTRAINT, 16, 8, 0, 2, 1 << 7 },
	{ FABRIC_ERR_RCV_CONSTRAINT, 17, 8, 0, 2, 1 << 8 },
	{ FABRIC_ERR_LOCAL_INTEGRITY, 19, 4, 4, 2, 1 << 9 },
	{ FABRIC_ERR_BUFFER_OVERRUN, 19, 4, 0, 2, 1 << 10 },
	{ FABRIC_ERR_VL15_DROPPED, 22, 16, 0, 2, 1 << 11 },
	{ FABRIC_ERR_XMIT_WAIT, 40, 32, 0, 17, 1 << 0 },
};

static u32 pma_get(const struct fabric_mad *m, const struct pma_place *p)
{
	const u8 *at = m->mad + MAD_DATA + p->at;

	return p->bits == 32   ? wire_get32(at)
	       : p->bits == 16 ? wire_get16(at)
	       : p->bits == 8  ? *at
			       : *at >> p->shift & 15;
}

/* All counters but those that are 0 by now have values of their own. */
static void pma_expect_errors(u16 lid, u32 cleared)
{
	u8 d[MAD_PM_DATA] = { 0, 1 };
	const struct fabric_mad *m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);

	for (u32 i = 0; i < ARRAY_LEN(pma_error_places); i++)
		assert_int_equal(pma_get(m, &pma_error_places[i]), i < cleared ? 0 : i + 2);
}

static void pma__each_error_has_its_field(void **state)
{
	u32 port;
	u16 lid;

	(void)state;
	star_up();
	port = bed_port(&b, 2, 1);
	lid = b.f->port[port].lid;
	for (u32 i = 0; i < FABRIC_ERRORS; i++) {
		fabric_store(b.f->counters.port[port].errors[i], 0);
		assert_int_equal(pma_error_places[i].which, i);
		assert_int_equal(fabric_port_error(b.f, port, (enum fabric_error)i, i + 2), 0);
	}
	pma_expect_errors(lid, 0);
	for (u32 i = 0; i < FABRIC_ERRORS; i++) {
		u8 d[MAD_PM_DATA] = { 0, 1 };

		wire_put16(d + pma_error_places[i].select_at, pma_error_places[i].select);
		assert_int_equal(sm_status(sm_perf(&b, sm_port, lid, METHOD_SET, 0x12, d)), 0);
		pma_expect_errors(lid, i + 1);
	}
	bed_end(&b);
}

/* PortSelect 255 is all ports of a switch, which has five with port 0. */
static void pma__all_ports_are_each_port(void **state)
{
	u8 d[MAD_PM_DATA] = { 0, 0xff };
	const struct fabric_mad *m;
	u32 port0, errors = 0;
	u16 lid;

	(void)state;
	bed_star(&b, 4);
	sm_port = bed_port(&b, 1, 1);
	sm_sweep(&b, sm_port);
	port0 = bed_port(&b, 0, 0);
	lid = b.f->port[port0].lid;
	for (u32 i = 0; i < 5; i++) {
		assert_int_equal(fabric_port_error(b.f, port0 + i, FABRIC_ERR_SYMBOL, 1u << i), 0);
		errors += 1u << i;
	}
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);
	assert_int_equal(sm_status(m), 0);
	assert_int_equal(wire_get16(m->mad + MAD_DATA + 4), errors);
	d[3] = 1; /* CounterSelect: SymbolErrorCounter */
	assert_int_equal(sm_status(sm_perf(&b, sm_port, lid, METHOD_SET, 0x12, d)), 0);
	for (u8 i = 0; i < 5; i++) {
		d[1] = i;
		m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);
		assert_int_equal(wire_get16(m->mad + MAD_DATA + 4), 0);
	}
	bed_end(&b);
}

/* A few MADs have been counted beside them. */
static void pma__each_sum_has_its_field(void **state)
{
	enum { SLACK = 5000 };
	static const u64 sums[] = { 1000000, 2000000, 3000000, 4000000,
				    3000000 - 50000, 4000000 - 60000, 50000, 60000 };
	u8 d[MAD_PM_DATA] = { 0, 1 };
	struct fabric_port_counters *p;
	const struct fabric_mad *m;
	struct fabric_counts n;
	u16 lid;

	(void)state;
	star_up();
	p = &b.f->counters.port[bed_port(&b, 2, 1)];
	lid = b.f->port[bed_port(&b, 2, 1)].lid;
	p->xmit_bytes = 4 * sums[0];
	p->rcv_bytes = 4 * sums[1];
	p->xmit_packets = sums[2];
	p->rcv_packets = sums[3];
	p->mcast_xmit_packets = sums[6];
	p->mcast_rcv_packets = sums[7];
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x12, d);
	for (u32 i = 0; i < 4; i++)
		assert_in_range(wire_get32(m->mad + MAD_DATA + 24 + 4 * i), sums[i],
				sums[i] + SLACK);
	m = sm_perf(&b, sm_port, lid, METHOD_GET, 0x1d, d);
	for (u32 i = 0; i < 8; i++)
		assert_in_range(wire_get64(m->mad + MAD_DATA + 8 + 8 * i), sums[i],
				sums[i] + SLACK);
	/* and so it is to the host's /sys */
	assert_int_equal(fabric_pma_read(b.f, bed_port(&b, 2, 1), &n), 0);
	assert_in_range(n.xmit_bytes, 4 * sums[0], 4 * sums[0] + 4 * SLACK);
	assert_in_range(n.rcv_bytes, 4 * sums[1], 4 * sums[1] + 4 * SLACK);
	assert_in_range(n.xmit_packets, sums[2], sums[2] + SLACK);
	assert_in_range(n.rcv_packets, sums[3], sums[3] + SLACK);
	assert_in_range(n.mcast_xmit_packets, sums[6], sums[6] + SLACK);
	assert_in_range(n.mcast_rcv_packets, sums[7], sums[7] + SLACK);
	for (u32 i = 0; i < 8; i++) {
		wire_put16(d + 2, (u16)(1 << i));
		m = sm_perf(&b, sm_port, lid, METHOD_SET, 0x1d, d);
		for (u32 k = 0; k < 8; k++)
			assert_in_range(wire_get64(m->mad + MAD_DATA + 8 + 8 * k),
					k <= i ? 0 : sums[k], k <= i ? SLACK : sums[k] + SLACK);
		wire_put16(d + 2, (u16)(1 << (12 + i % 4)));
		m = sm_perf(&b, sm_port, lid, METHOD_SET, 0x12, d);
		for (u32 k = 0; k < 4; k++)
			assert_in_range(wire_get32(m->mad + MAD_DATA + 24 + 4 * k),
					k <= i ? 0 : sums[k], k <= i ? SLACK : sums[k] + SLACK);
	}
	assert_int_equal(fabric_pma_read(b.f, bed_port(&b, 2, 1), &n), 0);
	assert_in_range(n.xmit_bytes + n.rcv_bytes + n.xmit_packets + n.rcv_packets +
				n.mcast_xmit_packets + n.mcast_rcv_packets,
			0, 12 * SLACK);
	bed_end(&b);
}

static void route__partition_vl_and_link_decide(void **state)
{
	struct fabric_path path;
	struct fabric_flow w = { .pkey = 0xffff };
	u8 d[MAD_SMP_DATA] = { 0 };

	(void)state;
	star_up();
	w.dlid = b.f->port[bed_port(&b, 2, 1)].lid;
	assert_int_equal(fabric_route(b.v, sm_port, &w, &path), 0);
	b.f->port[bed_port(&b, 0, 2)].flags |= FABRIC_PORT_OUT_PKEYS;
	assert_int_equal(fabric_route(b.v, sm_port, &w, &path), -13);
	b.f->port[bed_port(&b, 0, 2)].flags = 0;
	w.pkey = 0x8001; /* the CA has only the default one */
	assert_int_equal(fabric_route(b.v, sm_port, &w, &path), -13);
	w.pkey = 0x7fff; /* a limited member, and the CA is a full one */
	assert_int_equal(fabric_route(b.v, sm_port, &w, &path), 0);
	w.pkey = 0xffff;
	memset(d, 0xff, FABRIC_SL2VL);
	assert_int_equal(
		sm_status(sm_directed(&b, sm_port, &here, METHOD_SET, ATTR_SL_TO_VL, 0, d)), 0);
	assert_int_equal(fabric_route(b.v, sm_port, &w, &path), -67);
	memset(d, 0, FABRIC_SL2VL);
	sm_directed(&b, sm_port, &here, METHOD_SET, ATTR_SL_TO_VL, 0, d);
	fabric_link_set(b.f, bed_port(&b, 2, 1), false);
	assert_int_equal(fabric_route(b.v, sm_port, &w, &path), -101);
	bed_end(&b);
}

/* A group whose members are all hosts: from each of them a packet reaches each other one. */
static void route__multicast_leaves_by_each_port(void **state)
{
	static const struct sm_way to_switch = { .hops = 1, .path = { 0, 1 } };
	const struct fabric_flow w = { .pkey = 0xffff };
	u8 d[MAD_SMP_DATA] = { 0 };
	u32 to[4];

	(void)state;
	star_up();
	wire_put16(d, 1 << 1 | 1 << 2 | 1 << 3);
	assert_int_equal(sm_status(sm_directed(&b, sm_port, &to_switch, METHOD_SET,
					       ATTR_MULTICAST_TABLE, 0, d)),
			 0);
	for (u32 from = 1; from <= 3; from++) {
		assert_int_equal(fabric_mcast_route(b.v, bed_port(&b, from, 1), FABRIC_MLID_FIRST,
						    &w, to, ARRAY_LEN(to)),
				 2);
		assert_int_equal(to[0], bed_port(&b, from == 1 ? 2 : 1, 1));
		assert_int_equal(to[1], bed_port(&b, from == 3 ? 2 : 3, 1));
	}
	bed_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trap__link_down_is_told_until_it_is_repressed),
		cmocka_unit_test(sma__a_change_of_lids_is_told),
		cmocka_unit_test(pma__a_cut_counts_at_both_ends),
		cmocka_unit_test(trap__errors_of_a_link_are_told_until_they_are_repressed),
		cmocka_unit_test(trap__a_node_tells_what_has_changed_of_it),
		cmocka_unit_test(trap__the_next_one_is_told_too),
		cmocka_unit_test(sma__wrong_mkey_is_refused_and_counted),
		cmocka_unit_test(sma__unknown_attribute_is_unsupported),
		cmocka_unit_test(sma__ports_of_a_switch_have_fewer_pkeys),
		cmocka_unit_test(sma__each_block_of_a_table_is_its_own),
		cmocka_unit_test(sma__a_reboot_resets_sl_to_vl),
		cmocka_unit_test(smi__repress_of_softwares_trap_reaches_it),
		cmocka_unit_test(smi__a_switch_that_is_a_manager),
		cmocka_unit_test(sma__one_vendors_speeds),
		cmocka_unit_test(pma__counters_count_and_are_cleared),
		cmocka_unit_test(pma__each_error_has_its_field),
		cmocka_unit_test(pma__all_ports_are_each_port),
		cmocka_unit_test(pma__each_sum_has_its_field),
		cmocka_unit_test(route__partition_vl_and_link_decide),
		cmocka_unit_test(route__multicast_leaves_by_each_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
