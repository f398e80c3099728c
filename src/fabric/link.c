/* link.c: links train and go down: the link state machine of both ends as one step (IBA vol
 * 1, 7.2). In:    what the ends are set to    Out: PortState, PortPhysicalState, width, speed;
 * traps Runs:  the owner's thread    Locks: none
 */
#include "fabric/fabric_priv.h"

#include "fabric/trap.h"

void fabric_link_capability(struct fabric_port_rec *p, u8 width, u8 speed)
{
	static const struct {
		/* the highest, of LinkSpeedSupported and LinkSpeedExtSupported */
		u8 plain FIXED;
		u8 extended FIXED;
	} codes[TOPO_SPEEDS] = {
		[TOPO_SDR] = { 1, 0 },	 [TOPO_DDR] = { 2, 0 }, [TOPO_QDR] = { 4, 0 },
		[TOPO_FDR10] = { 4, 0 }, [TOPO_FDR] = { 4, 1 }, [TOPO_EDR] = { 4, 2 },
		[TOPO_HDR] = { 4, 4 },	 [TOPO_NDR] = { 4, 8 },
	};
	u8 known = speed < TOPO_SPEEDS ? speed : TOPO_SDR;

	p->width_supported = width | TOPO_1X;
	p->speed_supported = (u8)(codes[known].plain * 2 - 1);
	p->speed_ext_supported = codes[known].extended == 0 ? 0
							    : (u8)(codes[known].extended * 2 - 1);
}

void fabric_link_clear(struct fabric_port_rec *p)
{
	p->width = TOPO_4X;
	p->speed = 1;
	p->speed_ext = 0;
}

static u8 highest_bit(u8 bits)
{
	return bits == 0 ? 0 : (u8)(1u << (31 - __builtin_clz(bits)));
}

/* Lanes in ascending order are not bits in ascending order: 2x has the highest bit. */
static u8 widest(u8 bits)
{
	u8 others = bits & (u8)~TOPO_2X & (u8)~TOPO_1X;

	return others != 0 ? highest_bit(others) : (bits & TOPO_2X) != 0 ? TOPO_2X : TOPO_1X;
}

static bool train_end_is_ready(const struct fabric_port_rec *p)
{
	return p->state == FABRIC_DOWN &&
	       (p->phys == FABRIC_PHYS_POLLING || p->phys == FABRIC_PHYS_SLEEP) &&
	       (p->flags & FABRIC_PORT_CUT) == 0;
}

static void train_end_up(struct fabric *f, u32 port, const struct fabric_port_rec *other)
{
	struct fabric_port_rec *p = fabric_port_begin(f, port);

	p->width = widest(p->width_enabled & other->width_enabled);
	p->speed_ext = highest_bit(p->speed_ext_enabled & other->speed_ext_enabled);
	p->speed = p->speed_ext != 0
			   ? 4
			   : MAX(highest_bit(p->speed_enabled & other->speed_enabled), 1);
	p->phys = FABRIC_PHYS_LINK_UP;
	fabric_store(p->state, FABRIC_INIT);
	fabric_port_end(f, port);
}

/* What follows at one end from a change of its state by the link. */
static void train_end_tell(struct fabric *f, u32 port)
{
	struct fabric_node_rec *n = fabric_node_of(f, port);

	fabric_tell(f, port, FABRIC_CHANGED_STATE);
	if (n->type != FABRIC_SWITCH)
		return;
	n->state_change = 1;
	trap_raise(f, n->first_port, FABRIC_TRAP_128);
}

void fabric_link_train(struct fabric *f, u32 port)
{
	u32 peer = f->port[port].peer;

	if (peer == FABRIC_NONE || !train_end_is_ready(&f->port[port]) ||
	    !train_end_is_ready(&f->port[peer]))
		return;
	/* A port that sleeps wakes up when the other end polls. */
	if (f->port[port].phys == FABRIC_PHYS_SLEEP && f->port[peer].phys == FABRIC_PHYS_SLEEP)
		return;
	train_end_up(f, port, &f->port[peer]);
	train_end_up(f, peer, &f->port[port]);
	fabric_routes_changed(f);
	train_end_tell(f, port);
	train_end_tell(f, peer);
}

static bool train_end_down(struct fabric *f, u32 port, u8 phys)
{
	struct fabric_port_rec *p = fabric_port_begin(f, port);
	bool was_up = p->state != FABRIC_DOWN;

	fabric_store(p->state, FABRIC_DOWN);
	p->phys = phys;
	fabric_link_clear(p);
	fabric_port_end(f, port);
	return was_up;
}

void fabric_link_drop(struct fabric *f, u32 port, u8 phys)
{
	u32 peer = f->port[port].peer;
	bool was_up = train_end_down(f, port, phys);
	bool peer_was_up = peer != FABRIC_NONE && f->port[peer].state != FABRIC_DOWN;

	if (peer_was_up)
		train_end_down(f, peer, f->port[peer].link_down_default);
	fabric_routes_changed(f);
	if (was_up)
		train_end_tell(f, port);
	if (peer_was_up)
		train_end_tell(f, peer);
}
