/* sagroup.c: what the subnet administrator keeps of the ports of hosts: memberships of multicast
 * groups, and subscriptions. The SA knows ports, not processes: a port leaves when the last process
 * of its host that is a member leaves or dies, and it is the node that sends the leave. A
 * subscription is a membership, too, and its end a leave.
 *
 * Processes say so before they join, and their joins come over MAD channels, through this thread,
 * like the node's leaves. So a leave that is sent meets no join that came before it; one that is
 * repeated is not sent any more once a process has joined again.
 * In:    processes that become and end being members, answers of the SA, reports, time
 * Out:   leaves
 * Runs:  the daemon's only thread                                                Locks: none
 * Spec:  IBA vol 1, 15.2.5.17 (MCMemberRecord), 15.4.6 (leaving), 13.4.8.3 (InformInfo)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/fabric/fabricd.h"
#include "node/steer.h"

enum {
	SAGROUP_MAX = 65536, /* memberships of processes */
	SAGROUP_TRIES = 6,   /* of a leave: the last one after six seconds */
	SAGROUP_CLASS = 3,   /* subnet administration */
	SAGROUP_CLASS_VERSION = 2,
	SAGROUP_SET = 0x02,
	SAGROUP_GET_RESP = 0x81,
	SAGROUP_REPORT = 0x06,
	SAGROUP_NOTICE = 0x02,
	SAGROUP_INFORM = 0x03,
	SAGROUP_ALL = 0xff, /* bytes of a number that stands for each value */
	SAGROUP_DELETE = 0x15,
	SAGROUP_DELETE_RESP = 0x95,
	SAGROUP_RECORD = 0x38, /* MCMemberRecord */
	SAGROUP_STATES = 15,
	/* where fields of a MAD of subnet administration lie */
	AT_COMPONENTS = 48,
	AT_MGID = 56,
	AT_PORT_GID = 72,
	AT_JOIN_STATE = 104,
	AT_INFORM = 56, /* InformInfo: GID, ... */
	AT_INFORM_LIDS = AT_INFORM + 16,
	AT_INFORM_GENERIC = AT_INFORM + 22,
	AT_INFORM_TYPE = AT_INFORM + 24,
	AT_INFORM_TRAP = AT_INFORM + 26,
	AT_INFORM_QPN = AT_INFORM + 28,
	AT_INFORM_RESPONSE = AT_INFORM + 31,
	AT_INFORM_PRODUCER = AT_INFORM + 33,
	AT_NOTICE_GENERIC = 56,
	AT_NOTICE_TRAP = 60,
	AT_TRAP = 14, /* in the ID of a subscription */
};
#define SAGROUP_FIRST_NS (200 * NS_PER_MS)
#define SAGROUP_COMPONENTS 0x10003ull /* MGID, PortGID, JoinState */
#define SAGROUP_GSI_QKEY 0x80010000u
/* The top half of the transaction IDs of leaves, which no process has. */
#define SAGROUP_TID 0xffffffffu

struct sagroup_member {
	struct list_head node; /* fabricd.members */
	u64 process;
	struct node_sa_name group;
	u16 pkey; /* of the partition in which its SA is asked */
	u8 states;
} OWNED_BY(the daemon);

struct sagroup_leave {
	struct list_head node; /* fabricd.leaves */
	struct node_sa_name group;
	u16 pkey;
	u8 states;
	u32 tries;
	u64 next_ns;
	u32 tid;
} OWNED_BY(the daemon);

static bool sagroup_is(const struct node_sa_name *a, const struct node_sa_name *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
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

static void sagroup_pack_leave(const struct sagroup_leave *l, const struct fabric_port_attr *p,
			       u8 *mad)
{
	mad[STEER_METHOD] = SAGROUP_DELETE;
	mad[STEER_ATTRIBUTE + 1] = SAGROUP_RECORD;
	sagroup_put64(mad + AT_COMPONENTS, SAGROUP_COMPONENTS);
	memcpy(mad + AT_MGID, l->group.id, sizeof(l->group.id));
	sagroup_put64(mad + AT_PORT_GID, p->gid_prefix);
	sagroup_put64(mad + AT_PORT_GID + 8, p->guid);
	mad[AT_JOIN_STATE] = l->states;
}

/* The subscription of src/sa, with Subscribe 0. */
static void sagroup_pack_unsubscribe(const struct sagroup_leave *l, u8 *mad)
{
	mad[STEER_METHOD] = SAGROUP_SET;
	mad[STEER_ATTRIBUTE + 1] = SAGROUP_INFORM;
	memset(mad + AT_INFORM_LIDS, SAGROUP_ALL, 2);
	mad[AT_INFORM_GENERIC] = 1;
	memset(mad + AT_INFORM_TYPE, SAGROUP_ALL, 2);
	memcpy(mad + AT_INFORM_TRAP, l->group.id + AT_TRAP, 2);
	mad[AT_INFORM_QPN + 2] = 1;
	mad[AT_INFORM_RESPONSE] = SA_INFORM_RESPONSE;
	memset(mad + AT_INFORM_PRODUCER, SAGROUP_ALL, 3);
}

static void sagroup_pack(const struct sagroup_leave *l, const struct fabric_port_attr *p, u8 *mad)
{
	mad[0] = 1; /* base version */
	mad[STEER_CLASS] = SAGROUP_CLASS;
	mad[2] = SAGROUP_CLASS_VERSION;
	sagroup_put32(mad + STEER_TID, SAGROUP_TID);
	sagroup_put32(mad + STEER_TID + 4, l->tid);
	if (l->group.kind == NODE_SA_GROUP)
		sagroup_pack_leave(l, p, mad);
	else
		sagroup_pack_unsubscribe(l, mad);
}

/* False: the port knows no subnet manager, and so no SA knows the port. */
static bool sagroup_send(struct fabricd *f, const struct sagroup_leave *l)
{
	struct fabric_mad m = {
		.src_qp = 1, .dst_qp = 1, .qkey = SAGROUP_GSI_QKEY, .pkey = l->pkey
	};
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

static struct sagroup_leave *sagroup_find_leave(struct fabricd *f, const struct node_sa_name *g)
{
	list_for_each(l, &f->leaves, struct sagroup_leave, node)
		if (sagroup_is(&l->group, g))
			return l;
	return NULL;
}

/* Sends a leave, and repeats it until it is answered. */
static void sagroup_leave_begin(struct fabricd *f, const struct node_sa_name *g, u16 pkey,
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
static void sagroup_leave_stop(struct fabricd *f, const struct node_sa_name *g, u8 states)
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
	    (m->mad[STEER_METHOD] != SAGROUP_DELETE_RESP &&
	     m->mad[STEER_METHOD] != SAGROUP_GET_RESP))
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
static u8 sagroup_states(const struct fabricd *f, const struct node_sa_name *g)
{
	u8 states = 0;

	list_for_each(m, &f->members, struct sagroup_member, node)
		if (sagroup_is(&m->group, g))
			states |= m->states;
	return states;
}

static struct sagroup_member *sagroup_find(struct fabricd *f, u64 process,
					   const struct node_sa_name *g)
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

static int sagroup_change(struct fabricd *f, u64 process, const struct node_sa_name *g, u16 pkey,
			  u8 states)
{
	struct sagroup_member *m = sagroup_find(f, process, g);

	if (states == 0) {
		if (m != NULL)
			sagroup_remove(f, m);
		return 0;
	}
	if (m == NULL) {
		if (f->member_count == SAGROUP_MAX)
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

static bool sagroup_is_valid(const struct node_sa_name *g)
{
	static const u8 none[AT_TRAP];

	if (g->kind == NODE_SA_GROUP)
		return g->id[0] == 0xff;
	return g->kind == NODE_SA_NOTICES && memcmp(g->id, none, sizeof(none)) == 0;
}

int sagroup_set(struct proc *p, const struct proto_fabric_member *q)
{
	struct fabricd *f = p->daemon->fabric;
	struct node_sa_name g = q->name;
	u8 before, after;
	int err;

	if (p->host == NULL || !fabricd_place_has(&p->host->at, g.port))
		return -ENOENT;
	if (!sagroup_is_valid(&g) || q->states > SAGROUP_STATES)
		return -EINVAL;
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

/* ---- reports --------------------------------------------------------------------------------- */

bool sagroup_is_report(const struct fabric_mad *m)
{
	return m->dst_qp == 1 && m->mad[STEER_CLASS] == SAGROUP_CLASS &&
	       m->mad[STEER_METHOD] == SAGROUP_REPORT && m->mad[STEER_ATTRIBUTE] == 0 &&
	       m->mad[STEER_ATTRIBUTE + 1] == SAGROUP_NOTICE;
}

/* A process that subscribes to a trap and to all traps is one subscriber. */
static bool sagroup_hears(const struct fabricd *f, u64 process, u32 port,
			  const struct fabric_mad *report)
{
	struct node_sa_name one = { .port = port, .kind = NODE_SA_NOTICES }, all = one;

	memcpy(one.id + AT_TRAP, report->mad + AT_NOTICE_TRAP, 2);
	memset(all.id + AT_TRAP, SAGROUP_ALL, 2);
	list_for_each(m, &f->members, struct sagroup_member, node)
		if (m->process == process &&
		    (sagroup_is(&m->group, &one) || sagroup_is(&m->group, &all)))
			return true;
	return false;
}

bool sagroup_subscribes(const struct proc *p, u32 port, const struct fabric_mad *report)
{
	return p->host != NULL && (report->mad[AT_NOTICE_GENERIC] & 0x80) != 0 &&
	       sagroup_hears(p->daemon->fabric, p->process, port, report);
}

/* ---- ends ------------------------------------------------------------------------------------ */

void sagroup_leave_all(struct proc *p)
{
	struct fabricd *f = p->daemon->fabric;

	list_for_each_safe(m, &f->members, struct sagroup_member, node) {
		struct node_sa_name g = m->group;
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
