/* sagroup.c: multicast groups of which the ports of hosts are members at the subnet administrator.
 * The SA knows ports, not processes: a port leaves when the last process of its host that is a
 * member leaves or dies, and it is the node that sends the leave.
 *
 * Processes say so before they join, and their joins come over MAD channels, through this thread,
 * like the node's leaves. So a leave that is sent meets no join that came before it; one that is
 * repeated is not sent any more once a process has joined again.
 * In:    processes that become and end being members, answers of the SA, time    Out: leaves
 * Runs:  the daemon's only thread                                                Locks: none
 * Spec:  IBA vol 1, 15.2.5.17 (MCMemberRecord), 15.4.6 (leaving)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "node/daemon/fabricd.h"
#include "node/steer.h"

enum {
	SAGROUP_MOST = 65536, /* memberships of processes */
	SAGROUP_TRIES = 6,    /* of a leave: the last one after six seconds */
	SAGROUP_CLASS = 3,    /* subnet administration */
	SAGROUP_CLASS_VERSION = 2,
	SAGROUP_DELETE = 0x15,
	SAGROUP_DELETE_RESP = 0x95,
	SAGROUP_RECORD = 0x38, /* MCMemberRecord */
	SAGROUP_STATES = 15,
	/* where fields of a MAD of subnet administration lie */
	AT_COMPONENTS = 48,
	AT_MGID = 56,
	AT_PORT_GID = 72,
	AT_JOIN_STATE = 104,
};
#define SAGROUP_FIRST_NS (200 * NS_PER_MS)
#define SAGROUP_COMPONENTS 0x10003ull /* MGID, PortGID, JoinState */
#define SAGROUP_GSI_QKEY 0x80010000u
/* The top half of the transaction IDs of leaves, which no process has. */
#define SAGROUP_TID 0xffffffffu

/* A group of a port. */
struct sagroup_name {
	u32 port;
	u8 mgid[16];
} OWNED_BY(the daemon);

struct sagroup_member {
	struct list_head node; /* fabricd.members */
	u64 process;
	struct sagroup_name group;
	u16 pkey; /* of the partition in which its SA is asked */
	u8 states;
} OWNED_BY(the daemon);

struct sagroup_leave {
	struct list_head node; /* fabricd.leaves */
	struct sagroup_name group;
	u16 pkey;
	u8 states;
	u32 tries;
	u64 next_ns;
	u32 tid;
} OWNED_BY(the daemon);

static bool sagroup_is(const struct sagroup_name *a, const struct sagroup_name *b)
{
	return a->port == b->port && memcmp(a->mgid, b->mgid, sizeof(a->mgid)) == 0;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static void sagroup_leave_end(struct sagroup_leave *l)
{
	list_remove(&l->node);
	free(l);
}

static void sagroup_put32(u8 *at, u32 value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
}

static void sagroup_put64(u8 *at, u64 value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
}

static void sagroup_pack(const struct sagroup_leave *l, const struct fabric_port_attr *p, u8 *mad)
{
	mad[0] = 1; /* base version */
	mad[STEER_CLASS] = SAGROUP_CLASS;
	mad[2] = SAGROUP_CLASS_VERSION;
	mad[STEER_METHOD] = SAGROUP_DELETE;
	sagroup_put32(mad + STEER_TID, SAGROUP_TID);
	sagroup_put32(mad + STEER_TID + 4, l->tid);
	mad[STEER_ATTRIBUTE + 1] = SAGROUP_RECORD;
	sagroup_put64(mad + AT_COMPONENTS, SAGROUP_COMPONENTS);
	memcpy(mad + AT_MGID, l->group.mgid, sizeof(l->group.mgid));
	sagroup_put64(mad + AT_PORT_GID, p->gid_prefix);
	sagroup_put64(mad + AT_PORT_GID + 8, p->guid);
	mad[AT_JOIN_STATE] = l->states;
}

/* False: the port knows no subnet manager, and so no SA knows the port. */
static bool sagroup_send(struct fabricd *f, const struct sagroup_leave *l)
{
	struct fabric_mad m = { .src_qp = 1,
				.dst_qp = 1,
				.qkey = SAGROUP_GSI_QKEY,
				.pkey = l->pkey };
	struct fabric_port_attr p;

	if (fabric_port_read(fabric_view(f->fabric), l->group.port, &p) < 0 || p.sm_lid == 0)
		return false;
	m.slid = p.lid;
	m.dlid = p.sm_lid;
	m.sl = p.sm_sl;
	sagroup_pack(l, &p, m.mad);
	fabric_send(f->fabric, l->group.port, &m);
	return true;
}

static struct sagroup_leave *sagroup_find_leave(struct fabricd *f, const struct sagroup_name *g)
{
	list_for_each(l, &f->leaves, struct sagroup_leave, node)
		if (sagroup_is(&l->group, g))
			return l;
	return NULL;
}

/* Sends a leave, and repeats it until it is answered. */
static void sagroup_leave_begin(struct fabricd *f, const struct sagroup_name *g, u16 pkey,
				u8 states)
{
	struct sagroup_leave *l = sagroup_find_leave(f, g);

	if (l == NULL) {
		l = calloc(1, sizeof(*l));
		if (l == NULL)
			return;
		l->group = *g;
		list_push_back(&f->leaves, &l->node);
	}
	l->pkey = pkey;
	l->states |= states;
	l->tries = 1;
	l->tid = ++f->leave_tids;
	l->next_ns = clock_now_ns() + SAGROUP_FIRST_NS;
	if (!sagroup_send(f, l))
		sagroup_leave_end(l);
}

/* A process joins: what the port is a member of again is not left. */
static void sagroup_leave_stop(struct fabricd *f, const struct sagroup_name *g, u8 states)
{
	struct sagroup_leave *l = sagroup_find_leave(f, g);

	if (l == NULL)
		return;
	l->states &= (u8)~states;
	l->tid = ++f->leave_tids;
	if (l->states == 0)
		sagroup_leave_end(l);
}

bool sagroup_take_answer(struct fabricd *f, u32 port, const struct fabric_mad *m)
{
	u64 tid;

	if (m->dst_qp != 1 || m->mad[STEER_CLASS] != SAGROUP_CLASS ||
	    m->mad[STEER_METHOD] != SAGROUP_DELETE_RESP)
		return false;
	memcpy(&tid, m->mad + STEER_TID, sizeof(tid));
	tid = be64toh(tid);
	if (tid >> 32 != SAGROUP_TID)
		return false;
	list_for_each(l, &f->leaves, struct sagroup_leave, node) {
		if (l->group.port != port || l->tid != (u32)tid)
			continue;
		sagroup_leave_end(l);
		return true;
	}
	return false;
}

void sagroup_run(struct fabricd *f, u64 now_ns)
{
	list_for_each_safe(l, &f->leaves, struct sagroup_leave, node) {
		if (l->next_ns > now_ns)
			continue;
		if (l->tries == SAGROUP_TRIES || !sagroup_send(f, l)) {
			sagroup_leave_end(l);
			continue;
		}
		l->next_ns = now_ns + (SAGROUP_FIRST_NS << l->tries);
		l->tries++;
	}
}

u64 sagroup_next_ns(const struct fabricd *f)
{
	u64 next = UINT64_MAX;

	list_for_each(l, &f->leaves, struct sagroup_leave, node)
		next = MIN(next, l->next_ns);
	return next;
}

/* ---- members --------------------------------------------------------------------------------- */

/* All states in which processes are members. */
static u8 sagroup_states(const struct fabricd *f, const struct sagroup_name *g)
{
	u8 states = 0;

	list_for_each(m, &f->members, struct sagroup_member, node)
		if (sagroup_is(&m->group, g))
			states |= m->states;
	return states;
}

static struct sagroup_member *sagroup_find(struct fabricd *f, u64 process,
					   const struct sagroup_name *g)
{
	list_for_each(m, &f->members, struct sagroup_member, node)
		if (m->process == process && sagroup_is(&m->group, g))
			return m;
	return NULL;
}

static void sagroup_remove(struct fabricd *f, struct sagroup_member *m)
{
	list_remove(&m->node);
	f->member_count--;
	free(m);
}

static int sagroup_change(struct fabricd *f, u64 process, const struct sagroup_name *g, u16 pkey,
			  u8 states)
{
	struct sagroup_member *m = sagroup_find(f, process, g);

	if (states == 0) {
		if (m != NULL)
			sagroup_remove(f, m);
		return 0;
	}
	if (m == NULL) {
		if (f->member_count == SAGROUP_MOST)
			return -ENOSPC;
		m = calloc(1, sizeof(*m));
		if (m == NULL)
			return -ENOMEM;
		m->process = process;
		m->group = *g;
		list_push_back(&f->members, &m->node);
		f->member_count++;
	}
	m->pkey = pkey;
	m->states = states;
	return 0;
}

int sagroup_set(struct proc *p, const struct proto_fabric_member *q)
{
	struct fabricd *f = p->daemon->fabric;
	struct sagroup_name g = { .port = q->port };
	u8 before, after;
	int err;

	if (p->host == NULL || !host_place_has(&p->host->at, q->port))
		return -ENOENT;
	if (q->mgid[0] != 0xff || q->states > SAGROUP_STATES)
		return -EINVAL;
	memcpy(g.mgid, q->mgid, sizeof(g.mgid));
	before = sagroup_states(f, &g);
	err = sagroup_change(f, p->process, &g, q->pkey, q->states);
	if (err < 0)
		return err;
	after = sagroup_states(f, &g);
	sagroup_leave_stop(f, &g, after);
	if ((before & ~after) != 0)
		sagroup_leave_begin(f, &g, q->pkey, (u8)(before & ~after));
	return 0;
}

void sagroup_leave_all(struct proc *p)
{
	struct fabricd *f = p->daemon->fabric;

	list_for_each_safe(m, &f->members, struct sagroup_member, node) {
		struct sagroup_name g = m->group;
		u8 states = m->states;
		u16 pkey = m->pkey;

		if (m->process != p->process)
			continue;
		sagroup_remove(f, m);
		states &= (u8)~sagroup_states(f, &g);
		if (states != 0)
			sagroup_leave_begin(f, &g, pkey, states);
	}
}

void sagroup_clear(struct fabricd *f)
{
	list_for_each_safe(m, &f->members, struct sagroup_member, node)
		sagroup_remove(f, m);
	list_for_each_safe(l, &f->leaves, struct sagroup_leave, node)
		sagroup_leave_end(l);
}
