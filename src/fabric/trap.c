/* trap.c: notices to the subnet manager, sent until it represses them.
 * In:    events    Out: trap MADs from a node's port with the LID
 * Runs:  the owner's thread    Locks: none
 * Spec:  IBA vol 1, 13.4.8 (notices), 13.4.9 (traps), 14.2.5.1 (their details)
 *
 * A port repeats its traps every SubnetTimeOut, and sends no two sooner. A trap that is raised
 * anew gets a new transaction ID, so that a TrapRepress of the old one does not end it.
 */
#include "fabric/trap.h"

#include <errno.h>
#include <stdlib.h>

#include "fabric/portinfo.h"
#include "fabric/smi.h"

enum {
	NOTICE_URGENT = 0x81, /* generic, and how urgent */
	NOTICE_SECURITY = 0x82,
	NOTICE_INFO = 0x84,
	TRAP_TID_BITS = 16, /* below: the port's number, then the trap's bit */
};
#define TRAP_INTERVAL_MIN_NS 100000000ull

static const struct {
	u16 number FIXED;
	u8 type FIXED;
} traps[FABRIC_TRAPS] = {
	{ 128, NOTICE_URGENT },	  { 129, NOTICE_URGENT },   { 130, NOTICE_URGENT },
	{ 131, NOTICE_URGENT },	  { 144, NOTICE_INFO },	    { 256, NOTICE_SECURITY },
	{ 257, NOTICE_SECURITY }, { 258, NOTICE_SECURITY },
};

int trap_init(struct fabric *f)
{
	f->traps->due_ns = UINT64_MAX;
	f->traps->slot_of = calloc(f->view.ports + 1, sizeof(u32));
	return f->traps->slot_of == NULL ? -ENOMEM : 0;
}

void trap_destroy(struct fabric *f)
{
	free(f->traps->slots);
	free(f->traps->slot_of);
}

/* ---- slots
 * ------------------------------------------------------------------------------------- */

static struct trap_slot *slot_find(struct trap_set *t, u32 port)
{
	return t->slot_of[port] == 0 ? NULL : &t->slots[t->slot_of[port] - 1];
}

static struct trap_slot *slot_get(struct trap_set *t, u32 port)
{
	struct trap_slot *s = slot_find(t, port);

	if (s != NULL)
		return s;
	if (t->count == t->room) {
		u32 room = t->room == 0 ? 64 : t->room * 2;

		s = realloc(t->slots, room * sizeof(*s));
		if (s == NULL)
			return NULL;
		t->slots = s;
		t->room = room;
	}
	s = &t->slots[t->count++];
	memset(s, 0, sizeof(*s));
	s->port = port;
	t->slot_of[port] = t->count;
	return s;
}

static void slot_put(struct trap_set *t, struct trap_slot *s)
{
	struct trap_slot *last = &t->slots[--t->count];

	t->slot_of[s->port] = 0;
	if (s != last) {
		*s = *last;
		t->slot_of[s->port] = (u32)(s - t->slots) + 1;
	}
}

/* ---- one trap
 * ---------------------------------------------------------------------------------- */

static void details_of(struct fabric *f, const struct trap_slot *s, u32 kind, u8 *d)
{
	const struct fabric_port_rec *p = &f->port[s->port];
	const struct fabric_port_rec *home = &f->port[fabric_home(f, s->port)];

	switch (1 << kind) {
	case FABRIC_TRAP_128:
		wire_put16(d, home->lid);
		break;
	case FABRIC_TRAP_129:
	case FABRIC_TRAP_130:
	case FABRIC_TRAP_131:
		wire_put16(d + 2, home->lid);
		d[4] = p->number;
		break;
	case FABRIC_TRAP_144:
		wire_put16(d + 2, home->lid);
		d[5] = p->trap_changes != 0; /* OtherLocalChanges */
		wire_put32(d + 6, home->cap_mask);
		d[11] = p->trap_changes;
		break;
	default:
		memcpy(d, s->details[kind], TRAP_DETAILS);
		break;
	}
}

static void trap_send(struct fabric *f, const struct trap_slot *s, u32 kind)
{
	u32 home = fabric_home(f, s->port);
	const struct fabric_port_rec *p = &f->port[home];
	struct fabric_mad m = { .slid = p->lid, .dlid = p->sm_lid, .sl = p->sm_sl };
	u8 *d = m.mad + MAD_DATA;

	m.mad[MAD_BASE_VERSION] = 1;
	m.mad[MAD_CLASS] = CLASS_SMP_LID;
	m.mad[MAD_CLASS_VERSION] = 1;
	m.mad[MAD_METHOD] = METHOD_TRAP;
	wire_put64(m.mad + MAD_TID, s->tid[kind]);
	wire_put16(m.mad + MAD_ATTRIBUTE, ATTR_NOTICE);
	d[0] = traps[kind].type;
	d[3] = fabric_node_of(f, home)->type; /* ProducerType */
	wire_put16(d + 4, traps[kind].number);
	wire_put16(d + 6, p->lid);
	details_of(f, s, kind, d + 10);
	smi_send(f, home, &m);
}

static u64 trap_interval_ns(struct fabric *f, u32 port)
{
	u64 ns = 4096ull << (f->port[fabric_home(f, port)].subnet_timeout & 31);

	return MAX(ns, TRAP_INTERVAL_MIN_NS);
}

/* Sends what the port has raised. */
static void slot_send(struct fabric *f, u32 port)
{
	struct trap_set *t = f->traps;
	u8 raised = f->port[port].traps;

	for (u32 kind = 0; kind < FABRIC_TRAPS; kind++)
		if ((raised & 1 << kind) != 0)
			trap_send(f, slot_find(t, port), kind);
	slot_find(t, port)->due_ns = fabric_now(f) + trap_interval_ns(f, port);
}

static bool trap_has_manager(struct fabric *f, u32 port)
{
	const struct fabric_port_rec *home = &f->port[fabric_home(f, port)];

	return home->lid != 0 && home->sm_lid != 0;
}

void trap_raise(struct fabric *f, u32 port, enum fabric_trap_bit bit)
{
	struct trap_set *t = f->traps;
	u32 kind = (u32)__builtin_ctz(bit);
	struct trap_slot *s;

	if (!trap_has_manager(f, port))
		return;
	s = slot_get(t, port);
	if (s == NULL)
		return;
	s->tid[kind] = (u64)++t->sequence << TRAP_TID_BITS | (u64)f->port[port].number << 8 | bit;
	fabric_store(f->port[port].traps, f->port[port].traps | bit);
	/* A port that has sent a trap lately sends this one when its time comes. */
	if (s->due_ns == 0)
		s->due_ns = fabric_now(f);
	t->due_ns = MIN(t->due_ns, s->due_ns);
}

/* ---- security
 * ---------------------------------------------------------------------------------- */

static void trap_raise_details(struct fabric *f, u32 home, enum fabric_trap_bit bit, const u8 *d)
{
	struct trap_slot *s;

	trap_raise(f, home, bit);
	s = slot_find(f->traps, home);
	if (s != NULL)
		memcpy(s->details[__builtin_ctz(bit)], d, TRAP_DETAILS);
}

void trap_bad_mkey(struct fabric *f, u32 home, const struct fabric_mad *m)
{
	u8 d[TRAP_DETAILS] = { 0 };
	u8 hops = MIN(m->mad[MAD_HOP_COUNT], 30);

	wire_put16(d + 2, m->slid);
	d[6] = m->mad[MAD_METHOD];
	memcpy(d + 8, m->mad + MAD_ATTRIBUTE, sizeof(u16));
	memcpy(d + 10, m->mad + MAD_MODIFIER, sizeof(u32));
	memcpy(d + 14, m->mad + MAD_MKEY, sizeof(u64));
	if (m->mad[MAD_CLASS] == CLASS_SMP_DIRECTED) {
		memcpy(d + 4, m->mad + MAD_DR_SLID, sizeof(u16));
		/* directed route, truncated, how many hops */
		d[23] = (u8)(0x80 | (hops < m->mad[MAD_HOP_COUNT] ? 0x40 : 0) | hops);
		memcpy(d + 24, m->mad + MAD_RETURN_PATH + 1, hops);
	}
	trap_raise_details(f, home, FABRIC_TRAP_256, d);
}

void trap_bad_key(struct fabric *f, u32 home, const struct fabric_violation *v)
{
	u8 d[TRAP_DETAILS] = { 0 };

	wire_put16(d + 2, v->slid);
	wire_put16(d + 4, v->dlid);
	wire_put32(d + 6, v->key);
	wire_put32(d + 10, (u32)v->sl << 28 | (v->src_qp & 0xffffff));
	wire_put32(d + 14, v->dst_qp & 0xffffff);
	trap_raise_details(f, home, v->is_qkey ? FABRIC_TRAP_258 : FABRIC_TRAP_257, d);
}

/* ---- repress and time
 * --------------------------------------------------------------------------- */

bool trap_repress(struct fabric *f, u32 home, const struct fabric_mad *m)
{
	u64 tid = wire_get64(m->mad + MAD_TID);
	u32 number = tid >> 8 & 0xff, port;
	u8 bit = tid & 0xff;
	struct trap_slot *s;

	/* A CA's trap comes from the port itself, a switch's from any of its ports. */
	port = fabric_is_switch(f, home) ? home + number : home;
	if (number > fabric_node_of(f, home)->ports || bit == 0 || (bit & (bit - 1)) != 0)
		return false;
	s = slot_find(f->traps, port);
	if (s == NULL || s->tid[__builtin_ctz(bit)] != tid)
		return false;
	fabric_store(f->port[port].traps, f->port[port].traps & (u8)~bit);
	if (bit == FABRIC_TRAP_144)
		f->port[port].trap_changes = 0;
	return true;
}

/* A slot whose time has come. */
static void slot_run(struct fabric *f, u32 port)
{
	if (f->port[port].traps != 0 && trap_has_manager(f, port))
		slot_send(f, port);
	else {
		fabric_store(f->port[port].traps, 0);
		slot_put(f->traps, slot_find(f->traps, port));
	}
}

void trap_run(struct fabric *f)
{
	struct trap_set *t = f->traps;
	u64 now = fabric_now(f), due = UINT64_MAX;

	if (now < t->due_ns)
		return;
	/* From the end: slot_put moves the last one, which has been served, into the gap. */
	for (u32 i = t->count; i > 0; i--)
		if (i <= t->count && t->slots[i - 1].due_ns <= now)
			slot_run(f, t->slots[i - 1].port);
	for (u32 i = 0; i < t->count; i++)
		due = MIN(due, t->slots[i].due_ns);
	t->due_ns = due;
}
