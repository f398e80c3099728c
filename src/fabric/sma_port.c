/* sma_port.c: Get and Set of PortInfo: what may be set, and what follows from it.
 * In:    a request    Out: the answer in place; the port's record; links
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 14.2.5.6
 */
#include "fabric/portinfo.h"
#include "fabric/sma.h"

enum {
	SET_NOTHING = 0, /* of most fields: leave it */
	SET_ALL_WIDTHS = 255,
	SET_ALL_SPEEDS = 15,
	SET_ALL_EXT_SPEEDS = 31,
	SET_NO_EXT_SPEED = 30,
};

/* ---- judging
 * ----------------------------------------------------------------------------------- */

/* One of the "enabled" fields: nothing, everything, or some of what is supported. */
static bool judge_enabled(u8 value, u8 all, u8 supported)
{
	return value == SET_NOTHING || value == all || (value & ~supported) == 0;
}

static bool judge_state(const struct fabric_port_rec *now, const struct fabric_port_rec *want)
{
	switch (want->state) {
	case SET_NOTHING:
	case FABRIC_DOWN:
		return want->phys <= FABRIC_PHYS_DISABLED;
	case FABRIC_ARMED:
		return want->phys == SET_NOTHING &&
		       (now->state == FABRIC_INIT || now->state == FABRIC_ARMED);
	case FABRIC_ACTIVE:
		return want->phys == SET_NOTHING &&
		       (now->state == FABRIC_ARMED || now->state == FABRIC_ACTIVE);
	default:
		return false;
	}
}

/* Fields that every port has. */
static bool judge_link(const struct fabric_port_rec *now, const struct fabric_port_rec *want)
{
	return want->link_down_default <= FABRIC_PHYS_POLLING && want->mtu <= now->mtu_cap &&
	       want->operational_vls <= now->vl_cap &&
	       judge_enabled(want->width_enabled, SET_ALL_WIDTHS, now->width_supported) &&
	       judge_enabled(want->speed_enabled, SET_ALL_SPEEDS, now->speed_supported) &&
	       (want->speed_ext_enabled == SET_NO_EXT_SPEED ||
		judge_enabled(want->speed_ext_enabled, SET_ALL_EXT_SPEEDS,
				 now->speed_ext_supported));
}

/* Fields of a port that has a LID. */
static bool judge_home(const struct fabric_port_rec *now, const struct fabric_port_rec *want)
{
	bool lid = want->lid == now->lid || (want->lid != 0 && want->lid < FABRIC_MLID_FIRST);

	return lid && want->sm_lid < FABRIC_MLID_FIRST &&
	       (want->lid & ((1u << want->lmc) - 1)) == 0;
}

/* ---- setting
 * ----------------------------------------------------------------------------------- */

static void set_enabled(u8 *field, u8 value, u8 all, u8 supported)
{
	if (value == all)
		*field = supported;
	else if (value != SET_NOTHING)
		*field = value;
}

static void set_link(struct fabric_port_rec *p, const struct fabric_port_rec *want)
{
	if (want->link_down_default != SET_NOTHING)
		p->link_down_default = want->link_down_default;
	if (want->mtu != SET_NOTHING)
		fabric_store(p->mtu, want->mtu);
	if (want->operational_vls != SET_NOTHING)
		fabric_store(p->operational_vls, want->operational_vls);
	set_enabled(&p->width_enabled, want->width_enabled, SET_ALL_WIDTHS, p->width_supported);
	set_enabled(&p->speed_enabled, want->speed_enabled, SET_ALL_SPEEDS, p->speed_supported);
	if (want->speed_ext_enabled == SET_NO_EXT_SPEED)
		p->speed_ext_enabled = 0;
	else
		set_enabled(&p->speed_ext_enabled, want->speed_ext_enabled, SET_ALL_EXT_SPEEDS,
			    p->speed_ext_supported);
	p->vl_high_limit = want->vl_high_limit;
	p->vl_stall_count = want->vl_stall_count;
	p->hoq_life = want->hoq_life;
	p->local_phy_errors = want->local_phy_errors;
	p->overrun_errors = want->overrun_errors;
}

/* The M_Key and its like belong to the node's port with the LID. */
static void set_home(struct fabric_port_rec *p, const struct fabric_port_rec *want)
{
	p->mkey = want->mkey;
	p->mkey_protect = want->mkey_protect;
	p->mkey_lease = want->mkey_lease;
	p->gid_prefix = want->gid_prefix;
	fabric_store(p->lid, want->lid);
	fabric_store(p->lmc, want->lmc);
	p->sm_lid = want->sm_lid;
	p->sm_sl = want->sm_sl;
	p->subnet_timeout = want->subnet_timeout;
	p->init_type = want->init_type;
	p->mcast_pkey_trap = want->mcast_pkey_trap;
	p->mkey_violations = want->mkey_violations;
	p->pkey_violations = want->pkey_violations;
	p->qkey_violations = want->qkey_violations;
}

static void set_enforcement(struct fabric_port_rec *p, const struct fabric_port_rec *want)
{
	fabric_store(p->flags, (p->flags & FABRIC_PORT_CUT) | (want->flags & ~FABRIC_PORT_CUT));
}

static u32 what_has_changed(const struct fabric_port_rec *a, const struct fabric_port_rec *b)
{
	return (a->state != b->state ? FABRIC_CHANGED_STATE : 0) |
	       (a->lid != b->lid || a->lmc != b->lmc ? FABRIC_CHANGED_LID : 0) |
	       (a->sm_lid != b->sm_lid || a->sm_sl != b->sm_sl ? FABRIC_CHANGED_SM : 0) |
	       (a->gid_prefix != b->gid_prefix ? FABRIC_CHANGED_GIDS : 0);
}

static bool routes_have_changed(const struct fabric_port_rec *a, const struct fabric_port_rec *b)
{
	return a->state != b->state || a->lid != b->lid || a->lmc != b->lmc || a->mtu != b->mtu ||
	       a->operational_vls != b->operational_vls || a->flags != b->flags;
}

/* What the SM does to the link: it goes down, and trains again where it may. */
static void set_link_state(struct fabric *f, u32 port, const struct fabric_port_rec *want)
{
	struct fabric_port_rec *p = &f->port[port];
	u8 phys = want->phys != SET_NOTHING ? want->phys : p->link_down_default;

	if (want->phys == SET_NOTHING && p->state == FABRIC_DOWN)
		return;
	fabric_link_drop(f, port, phys);
	fabric_link_train(f, port);
}

static void set_port(struct sma_request *q, u32 port, const struct fabric_port_rec *want)
{
	struct fabric *f = q->f;
	struct fabric_port_rec before = f->port[port];
	struct fabric_port_rec *p = fabric_port_begin(f, port);
	bool external = sma_is_switch(q) && p->number != 0;
	u32 changed;

	set_link(p, want);
	if (external)
		set_enforcement(p, want);
	else
		set_home(p, want);
	if (want->state >= FABRIC_ARMED)
		fabric_store(p->state, want->state);
	fabric_port_end(f, port);
	if (routes_have_changed(&before, p))
		fabric_routes_changed(f);
	changed = what_has_changed(&before, p);
	if ((q->data[PORTINFO_REREGISTER] & 0x80) != 0)
		changed |= FABRIC_CHANGED_REREGISTER;
	fabric_tell(f, port, changed);
	if (want->state == FABRIC_DOWN || want->phys != SET_NOTHING)
		set_link_state(f, port, want);
}

/* A base switch's port 0 has no link, and no state that could be set. */
static bool set_has_state(const struct sma_request *q, u32 port)
{
	return !(sma_is_switch(q) && q->f->port[port].number == 0 && !q->node->enhanced);
}

static u16 set_port_info(struct sma_request *q, u32 port)
{
	const struct fabric_port_rec *now = &q->f->port[port];
	struct fabric_port_rec want = *now;
	bool external = sma_is_switch(q) && now->number != 0;

	portinfo_unpack(&want, q->data);
	if (!set_has_state(q, port))
		want.state = want.phys = SET_NOTHING;
	if (now->number == 0 && want.state == FABRIC_DOWN)
		return STATUS_BAD_VALUE;
	if (!judge_state(now, &want) || !judge_link(now, &want) ||
	    (!external && !judge_home(now, &want)))
		return STATUS_BAD_VALUE;
	set_port(q, port, &want);
	return STATUS_OK;
}

u16 sma_port_info(struct sma_request *q)
{
	u32 number = q->modifier & 0xff, port;
	u8 reregister = 0;
	u16 status = STATUS_OK;

	if (!sma_is_switch(q) && number == 0)
		number = q->f->port[q->port].number;
	port = sma_port(q, number);
	if (port == FABRIC_NONE)
		return STATUS_BAD_VALUE;
	if (q->set) {
		/* A CA's port is set through itself. */
		if (!sma_is_switch(q) && port != q->port)
			return STATUS_BAD_VALUE;
		reregister = q->data[PORTINFO_REREGISTER] & 0x80;
		status = set_port_info(q, port);
	}
	portinfo_pack(&q->f->port[port], q->data);
	q->data[PORTINFO_LOCAL_PORT] = q->f->port[q->port].number;
	q->data[PORTINFO_REREGISTER] |= reregister;
	if (q->hide_mkey)
		memset(q->data, 0, sizeof(u64));
	return status;
}

/* One vendor's speeds beyond PortInfo's: FDR10, which no port has, for a link of that speed
 * trains at QDR. */
u16 sma_mlnx_ext_port_info(struct sma_request *q)
{
	enum { MLNX_SPEED_ENABLED = 11, MLNX_NO_SPEED = 0 };
	u8 speeds = q->data[MLNX_SPEED_ENABLED];

	if (sma_port(q, q->modifier & 0xff) == FABRIC_NONE)
		return STATUS_BAD_VALUE;
	memset(q->data, 0, MAD_SMP_DATA);
	return q->set && speeds != MLNX_NO_SPEED ? STATUS_BAD_VALUE : STATUS_OK;
}
