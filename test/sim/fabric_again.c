/* fabric_again.c: the second episode of random fabrics: managers go and return, hosts subscribe to
 * reports and end that, and at rest all leave and come again until the seed's limits of groups and
 * subscriptions are used up. LIDs and MLIDs get other owners meanwhile.
 *
 * An answer reaches the port that has asked, once. A report reaches only ports that have asked for
 * reports, whatever LID they had then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric_priv.h"
#include "fabric/format.h"
#include "fabric_random.h"
#include "sm/sa_priv.h"

enum {
	PORTS = 4096,
	ASKED = 4096,
	TOLD = 1024,
	GUESTS = 4,		   /* hosts that come again at rest */
	REPORTS_LAST_MS = 5000,	   /* a report is repeated no longer */
	REPORT_TIMES = 3,
	TRAP_CREATED = 66,
	TRAP_DELETED = 67,
};

static struct {
	u32 groups, subscribers, lids; /* limits */
	bool member[PORTS][GROUPS_MADE]; /* or may be */
	bool hears[PORTS];		 /* or may */
	bool responds[PORTS];		 /* to reports */
	u64 deaf_ns[PORTS];		 /* from then on it hears nothing, if it does not ask */
	u32 asker[ASKED];		 /* by transaction ID */
	bool answered[ASKED];
	struct {
		u32 port;
		u64 tid;
		u16 trap;
		u32 times;
	} told[TOLD];
	u32 told_count;
} again;

/* ---- what hosts hear ------------------------------------------------------------------------- */

static void again_respond(u32 port, const struct fabric_mad *m)
{
	struct fabric_mad out = *m;

	out.dlid = m->slid;
	out.slid = m->dlid;
	out.mad[MAD_METHOD] = SA_REPORT_RESP;
	fabric_send(r.bed.f, port, &out);
}

static void again_report(u32 port, const struct fabric_mad *m)
{
	u64 tid = wire_get64(m->mad + MAD_TID);
	u32 i = 0;

	assert_true(again.hears[port] || r.bed.now_ns < again.deaf_ns[port]);
	while (i < again.told_count && (again.told[i].port != port || again.told[i].tid != tid))
		i++;
	assert_in_range(i, 0, TOLD - 1);
	if (i == again.told_count) {
		again.told_count++;
		again.told[i].port = port;
		again.told[i].tid = tid;
		again.told[i].trap = wire_get16(m->mad + SA_DATA + 4);
		again.told[i].times = 0;
	}
	again.told[i].times++;
	if (again.responds[port])
		again_respond(port, m);
}

static void again_heard(struct rig *rig, u32 port, const struct fabric_mad *m)
{
	u64 tid = wire_get64(m->mad + MAD_TID);

	(void)rig;
	if (m->dst_qp != 1 || m->mad[MAD_CLASS] != SA_CLASS)
		return;
	if (m->mad[MAD_METHOD] == SA_REPORT) {
		again_report(port, m);
	} else if ((m->mad[MAD_METHOD] & METHOD_RESPONSE) != 0) {
		assert_int_equal(again.asker[tid % ASKED], port);
		if ((m->mad[SA_RMPP_FLAGS] & 1) != 0) /* one of several MADs */
			return;
		assert_false(again.answered[tid % ASKED]);
		again.answered[tid % ASKED] = true;
	}
}

/* ---- what hosts ask -------------------------------------------------------------------------- */

void again_note(u32 port)
{
	again.asker[(r.tid + 1) % ASKED] = port;
	again.answered[(r.tid + 1) % ASKED] = false;
}

void again_note_member(u32 port, u32 group, bool may_be)
{
	again.member[port][group] = may_be;
}

static void again_fall_deaf(u32 port)
{
	again.hears[port] = false;
	again.deaf_ns[port] = r.bed.now_ns + REPORTS_LAST_MS * SM_MS;
}

/* Returns the answer's status; STATUS_NONE: there was none. */
static u16 again_subscribe(u32 port, bool on)
{
	u8 w[200] = { 0 };
	const struct fabric_mad *m;
	u16 status;

	if (r.bed.f->port[port].state != FABRIC_ACTIVE)
		return STATUS_NONE;
	wire_put16(w + 16, 0xffff);
	w[22] = 1;
	w[23] = on;
	wire_put16(w + 24, 0xffff);
	wire_put16(w + 26, 0xffff);
	again.hears[port] |= on;
	again_note(port);
	m = rig_ask(&r, port, SA_SET, SA_ATTR_INFORM, 0, w);
	status = m == NULL ? STATUS_NONE : rig_status(m);
	if (status == SA_NO_RESOURCES || (status != STATUS_NONE && !on))
		again_fall_deaf(port);
	return status;
}

/* ---- managers -------------------------------------------------------------------------------- */

static void again_limit(struct sm *sm)
{
	sm->lid_end = again.lids;
	sm->sa->groups_max = again.groups;
	sm->sa->subscribers_max = again.subscribers;
}

/* LIDs for all ports that have one, and hardly more. */
static u32 again_count_lids(void)
{
	u32 count = 0;

	for (u32 i = 0; i < r.bed.topo.port_count; i++) {
		const struct fabric_port_rec *p = &r.bed.f->port[i];
		bool is_switch = r.bed.topo.nodes[p->node].type == FABRIC_SWITCH;

		count += is_switch == (p->number == 0);
	}
	return count;
}

void again_begin(void)
{
	assert_in_range(r.bed.topo.port_count, 1, PORTS);
	memset(&again, 0, sizeof(again));
	again.groups = random_below(2) == 0 ? SA_MLIDS : 2 + random_below(GROUPS_MADE);
	again.subscribers = random_below(2) == 0 ? SA_SUBSCRIBERS : 1 + random_below(GUESTS);
	again.lids = random_below(2) == 0 ? SM_LIDS : again_count_lids() + 1 + random_below(8);
	for (u32 i = 0; i < r.bed.topo.port_count; i++)
		again.responds[i] = random_below(2) == 0;
	r.heard = again_heard;
}

void again_add(u32 port)
{
	again_limit(rig_add(&r, port));
}

/* The host comes back from another fabric, with the LID that it had there: any, or that of a host
 * that leaves. */
static void again_move(u32 port)
{
	u32 most = again.lids == SM_LIDS ? 2 * again_count_lids() : again.lids - 1;
	u32 leaver = random_ca();
	u16 lid = (u16)(1 + random_below(most));

	fabric_link_set(r.bed.f, port, false);
	if (leaver != port && rig_lid(&r, leaver) != 0 && random_below(2) == 0) {
		lid = rig_lid(&r, leaver);
		fabric_link_set(r.bed.f, leaver, false);
	}
	rig_run(&r, random_below(2) * random_below(50));
	fabric_port_begin(r.bed.f, port)->lid = lid;
	fabric_port_end(r.bed.f, port);
	fabric_link_set(r.bed.f, port, true);
}

void again_strike(void)
{
	u32 i = random_below(r.sm_count);

	again.told_count = 0;
	switch (random_below(10)) {
	case 0:
	case 1:
		if (r.sms[i].sm != NULL)
			rig_kill(&r, i);
		break;
	case 2:
	case 3:
		if (r.sms[i].sm == NULL)
			again_limit(rig_return(&r, i));
		rig_run(&r, random_below(2) * random_below(3000));
		break;
	case 4:
	case 5:
		(void)again_subscribe(random_ca(), true);
		break;
	case 6:
		(void)again_subscribe(random_ca(), false);
		break;
	case 7:
	case 8:
		again_move(random_ca());
		break;
	default:
		break;
	}
}

void again_return(void)
{
	for (u32 i = 0; i < r.sm_count; i++)
		if (r.sms[i].sm != NULL)
			return;
	again_limit(rig_return(&r, random_below(r.sm_count)));
}

struct sm *again_master(u32 port)
{
	const struct fabric_port_rec *p = &r.bed.f->port[port];

	for (u32 i = 0; i < r.sm_count && p->state == FABRIC_ACTIVE; i++) {
		struct sm *sm = r.sms[i].sm;

		if (sm != NULL && rig_report(sm).state == SM_MASTER &&
		    rig_report(sm).lid == p->sm_lid &&
		    rig_connected(&r, port, r.sms[i].port))
			return sm;
	}
	return NULL;
}

/* ---- all leave ------------------------------------------------------------------------------- */

static bool again_is_host(u32 port, u32 with)
{
	const struct fabric_port_rec *p = &r.bed.f->port[port];

	return r.bed.topo.nodes[p->node].type == FABRIC_CA && p->number == 1 &&
	       p->state == FABRIC_ACTIVE && rig_connected(&r, port, with);
}

static void again_leave_all(u32 with)
{
	for (u32 i = 0; i < r.bed.topo.port_count; i++) {
		if (!again_is_host(i, with))
			continue;
		for (u32 g = 0; g < GROUPS_MADE; g++)
			if (again.member[i][g])
				assert_non_null(ask_to_leave(i, g));
		if (again.hears[i])
			assert_int_not_equal(again_subscribe(i, false), STATUS_NONE);
	}
}

/* Nothing is left of those that have gone. */
static void again_check_empty(const struct sm *sm, u32 port)
{
	u8 record[60];

	rig_run(&r, REPORTS_LAST_MS);
	assert_int_equal(sm->sa->subscribers, 0);
	assert_int_equal(sm->sa->notices, 0);
	assert_int_equal(sm->sa->dead_count, 0);
	assert_int_equal(rig_report(sm).groups, 1); /* the broadcast group */
	for (u32 i = 0; i < SA_RMPPS; i++)
		assert_false(sm->sa->rmpp[i].used);
	again_note(port);
	assert_int_equal(rig_table(&r, port, SA_ATTR_INFORM_RECORD, 0, NULL, record,
				   sizeof(record), 1),
			 0);
	check_groups(port);
}

/* ---- all come again -------------------------------------------------------------------------- */

struct guests {
	u32 port[GUESTS], count;
	u32 subscribers; /* the first of them */
	u32 created, deleted; /* groups */
};

static void again_choose(struct guests *g, u32 with)
{
	u32 from = random_below(r.bed.topo.port_count);

	*g = (struct guests){ 0 };
	for (u32 i = 0; i < r.bed.topo.port_count && g->count < GUESTS; i++) {
		u32 port = (from + i) % r.bed.topo.port_count;

		if (again_is_host(port, with))
			g->port[g->count++] = port;
	}
}

static void again_fill_subscriptions(struct guests *g)
{
	g->subscribers = MIN(g->count, again.subscribers);
	for (u32 i = 0; i < g->count; i++)
		assert_int_equal(again_subscribe(g->port[i], true),
				 i < g->subscribers ? SA_OK : SA_NO_RESOURCES);
}

static u16 again_mlid(const struct fabric_mad *m)
{
	assert_int_equal(rig_status(m), SA_OK);
	return wire_get16(m->mad + SA_DATA + 36);
}

/* When no MLID is left, the next group gets that of the one that ends. */
static void again_fill_groups(struct guests *g)
{
	u32 most = MIN(again.groups - 1, (u32)GROUPS_MADE);
	u16 mlid = 0;

	for (u32 i = 0; i < most; i++) {
		u16 next = again_mlid(ask_to_join(g->port[i % g->count], i));

		mlid = i == 0 ? next : mlid;
	}
	g->created = most;
	if (most == GROUPS_MADE)
		return;
	assert_int_equal(rig_status(ask_to_join(g->port[0], most)), SA_NO_RESOURCES);
	assert_int_equal(rig_status(ask_to_leave(g->port[0], 0)), SA_OK);
	assert_int_equal(again_mlid(ask_to_join(g->port[g->count - 1], most)), mlid);
	g->created++;
	g->deleted++;
}

/* A report is repeated until it is answered. */
static u32 again_count_told(u32 port, u16 trap)
{
	u32 count = 0;

	for (u32 i = 0; i < again.told_count; i++) {
		if (again.told[i].port != port || again.told[i].trap != trap)
			continue;
		assert_int_equal(again.told[i].times, again.responds[port] ? 1 : REPORT_TIMES);
		count++;
	}
	return count;
}

/* Each subscriber hears of each group once. */
static void again_check_told(const struct guests *g)
{
	rig_run(&r, REPORTS_LAST_MS);
	for (u32 i = 0; i < g->subscribers; i++) {
		assert_int_equal(again_count_told(g->port[i], TRAP_CREATED), g->created);
		assert_int_equal(again_count_told(g->port[i], TRAP_DELETED), g->deleted);
	}
}

void again_rest(u32 port)
{
	struct sm *sm = again_master(port);
	struct guests g;

	again_leave_all(port);
	again_check_empty(sm, port);
	again_choose(&g, port);
	again.told_count = 0;
	again_fill_subscriptions(&g);
	again_fill_groups(&g);
	again_check_told(&g);
	check_groups(port);
	again_leave_all(port);
	again_check_empty(sm, port);
}
