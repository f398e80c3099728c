/* sa_inform.c: subscriptions, and reports to subscribers until they answer.
 * In:    InformInfo, traps, changes of the subnet    Out: reports
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 13.4.11 (event forwarding), 15.2.5.12, 13.4.8.3 (InformInfo), 14.2.5.1
 */
#include "sm/sa_priv.h"

/* Where the fields of InformInfo lie. */
enum inform_at {
	INFORM_GID = 0,
	INFORM_LID_FIRST = 16,
	INFORM_LID_LAST = 18,
	INFORM_GENERIC = 22,
	INFORM_SUBSCRIBE = 23,
	INFORM_TYPE = 24,
	INFORM_TRAP = 26,
	INFORM_QPN = 28, /* 24 bits; then RespTimeValue */
	INFORM_BYTES = 36,
	INFORM_ALL = 0xffff,
	INFORM_TRIES = 3,
	NOTICE_TYPE_INFO = 4,
	NOTICE_CLASS_MANAGER = 4,
	NOTICE_GID = 10 + 6, /* of traps 64 to 67: behind six bytes of details */
	NOTICE_ISSUER = 64,
	NOTICE_BYTES = 80,
};
#define INFORM_TIMEOUT_NS SM_S

/* ---- subscriptions --------------------------------------------------------------------------- */

/* What tells subscriptions apart. */
static bool sm_inform_same(const struct sm_subscriber *a, const struct sm_subscriber *b)
{
	return a->lid == b->lid && a->qpn == b->qpn &&
	       memcmp(a->inform, b->inform, INFORM_SUBSCRIBE) == 0 &&
	       memcmp(a->inform + INFORM_TYPE, b->inform + INFORM_TYPE, 4) == 0;
}

static struct sm_subscriber *sm_inform_find(struct sm_sa *sa, const struct sm_subscriber *like)
{
	for (u32 i = 0; i < sa->subscribers; i++)
		if (sm_inform_same(&sa->subscriber[i], like))
			return &sa->subscriber[i];
	return NULL;
}

static u16 sm_inform_subscribe(struct sm_sa *sa, const struct sm_subscriber *s)
{
	if (sm_inform_find(sa, s) != NULL)
		return SA_OK;
	if (!sm_sa_grow((void **)&sa->subscriber, &sa->subscriber_room, sa->subscribers,
			sizeof(*sa->subscriber), sa->subscribers_max))
		return SA_NO_RESOURCES;
	sa->subscriber[sa->subscribers++] = *s;
	return SA_OK;
}

static u16 sm_inform_unsubscribe(struct sm_sa *sa, const struct sm_subscriber *s)
{
	struct sm_subscriber *found = sm_inform_find(sa, s);

	if (found == NULL)
		return SA_INVALID;
	*found = sa->subscriber[--sa->subscribers];
	return SA_OK;
}

/* Reports that wait for their response follow the port: another one may have its LID now. */
static void sm_inform_move_reports(struct sm *sm)
{
	struct sm_sa *sa = sm->sa;
	u32 kept = 0, at;

	for (u32 i = 0; i < sa->notices; i++) {
		struct sm_notice *n = &sa->notice[i];
		const struct sm_port *p = sm_subnet_find_guid(sm->subnet, n->port_guid, &at);

		if (p == NULL)
			continue;
		n->mad.slid = sm->report.lid;
		n->mad.dlid = p->lid;
		sa->notice[kept++] = *n;
	}
	sa->notices = kept;
}

/* A port that has left hears nothing more; one that has another LID, there. */
void sm_inform_subnet_changed(struct sm *sm)
{
	struct sm_sa *sa = sm->sa;
	u32 kept = 0, at;

	for (u32 i = 0; i < sa->subscribers; i++) {
		struct sm_subscriber *s = &sa->subscriber[i];
		const struct sm_port *p =
			sm_subnet_find_guid(sm->subnet, wire_get64(s->gid + 8), &at);

		if (p == NULL)
			continue;
		s->lid = p->lid;
		sa->subscriber[kept++] = *s;
	}
	sa->subscribers = kept;
	sm_inform_move_reports(sm);
}

u16 sm_inform_set(struct sm_query *q)
{
	struct sm_subscriber s = { .lid = q->m->slid, .qpn = q->m->src_qp, .sl = q->m->sl };
	u16 status;
	u32 at;
	const struct sm_port *p = sm_subnet_find_lid(q->sm->subnet, q->m->slid, &at);

	if (p == NULL || q->want[INFORM_SUBSCRIBE] > 1)
		return SA_INVALID;
	memcpy(s.inform, q->want, sizeof(s.inform));
	wire_put64(s.gid, SM_PREFIX);
	wire_put64(s.gid + 8, p->guid);
	if (q->want[INFORM_SUBSCRIBE] != 0)
		status = sm_inform_subscribe(q->sm->sa, &s);
	else
		status = sm_inform_unsubscribe(q->sm->sa, &s);
	if (status == SA_OK)
		sm_query_add(q, q->want);
	return status;
}

/* InformInfoRecord: the subscriber's GID, a number, InformInfo. */
u16 sm_inform_query(struct sm_query *q)
{
	const struct sm_sa *sa = q->sm->sa;

	for (u32 i = 0; i < sa->subscribers; i++) {
		u8 d[60] = { 0 };

		memcpy(d, sa->subscriber[i].gid, 16);
		wire_put16(d + 16, (u16)i);
		memcpy(d + 24, sa->subscriber[i].inform, INFORM_BYTES);
		if ((!sm_query_has(q, 0) || memcmp(d, q->want, 16) == 0) &&
		    (!sm_query_has(q, 1) || memcmp(d + 16, q->want + 16, 2) == 0))
			sm_query_add(q, d);
	}
	return SA_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

static bool sm_inform_wants(const struct sm_subscriber *s, const u8 *notice)
{
	u16 trap = wire_get16(s->inform + INFORM_TRAP), type = wire_get16(s->inform + INFORM_TYPE);
	u16 first = wire_get16(s->inform + INFORM_LID_FIRST);
	u16 last = wire_get16(s->inform + INFORM_LID_LAST), issuer = wire_get16(notice + 6);
	bool generic = (notice[0] & 0x80) != 0;

	if (generic != (s->inform[INFORM_GENERIC] != 0) ||
	    (trap != INFORM_ALL && trap != wire_get16(notice + 4)) ||
	    (type != INFORM_ALL && type != (notice[0] & 0x7f)))
		return false;
	return first == INFORM_ALL || first == 0 || (issuer >= first && issuer <= MAX(first, last));
}

static void sm_inform_report(struct sm *sm, const struct sm_subscriber *s, const u8 *notice)
{
	struct sm_sa *sa = sm->sa;
	struct sm_notice *n;

	if (!sm_sa_grow((void **)&sa->notice, &sa->notice_room, sa->notices, sizeof(*sa->notice),
			SA_REPORTS)) {
		sm->report.dropped++;
		return;
	}
	n = &sa->notice[sa->notices++];
	*n = (struct sm_notice){ .port_guid = wire_get64(s->gid + 8),
				 .mad = { .src_qp = 1,
					  .dst_qp = 1,
					  .qkey = SM_QKEY,
					  .slid = sm->report.lid,
					  .dlid = s->lid,
					  .pkey = SM_PKEY,
					  .sl = s->sl } };
	n->mad.mad[MAD_BASE_VERSION] = 1;
	n->mad.mad[MAD_CLASS] = SA_CLASS;
	n->mad.mad[MAD_CLASS_VERSION] = SA_CLASS_VERSION;
	n->mad.mad[MAD_METHOD] = SA_REPORT;
	wire_put16(n->mad.mad + MAD_ATTRIBUTE, SA_ATTR_NOTICE);
	wire_put64(n->mad.mad + MAD_TID, sm->config.seed << 32 | (u32)++sa->sequence);
	memcpy(n->mad.mad + SA_DATA, notice, NOTICE_BYTES);
}

static void sm_inform_tell(struct sm *sm, const u8 *notice)
{
	for (u32 i = 0; i < sm->sa->subscribers; i++)
		if (sm_inform_wants(&sm->sa->subscriber[i], notice))
			sm_inform_report(sm, &sm->sa->subscriber[i], notice);
}

void sm_sa_notice(struct sm *sm, const u8 *notice)
{
	u8 d[NOTICE_BYTES] = { 0 };
	u32 at;
	const struct sm_port *p;

	if (sm->subnet == NULL)
		return;
	p = sm_subnet_find_lid(sm->subnet, wire_get16(notice + 6), &at);
	memcpy(d, notice, NOTICE_ISSUER);
	wire_put64(d + NOTICE_ISSUER, SM_PREFIX);
	wire_put64(d + NOTICE_ISSUER + 8, p == NULL ? 0 : p->guid);
	sm_inform_tell(sm, d);
}

void sm_inform_gid(struct sm *sm, u16 trap, const u8 *gid)
{
	u8 d[NOTICE_BYTES] = { 0 };

	if (sm->sa->subscribers == 0)
		return;
	d[0] = 0x80 | NOTICE_TYPE_INFO;
	d[3] = NOTICE_CLASS_MANAGER;
	wire_put16(d + 4, trap);
	wire_put16(d + 6, sm->report.lid);
	memcpy(d + NOTICE_GID, gid, 16);
	wire_put64(d + NOTICE_ISSUER, SM_PREFIX);
	wire_put64(d + NOTICE_ISSUER + 8, sm->guid);
	sm_inform_tell(sm, d);
}

void sm_inform_answered(struct sm *sm, const struct fabric_mad *m)
{
	struct sm_sa *sa = sm->sa;

	for (u32 i = 0; i < sa->notices; i++) {
		if (memcmp(sa->notice[i].mad.mad + MAD_TID, m->mad + MAD_TID, 8) != 0 ||
		    sa->notice[i].mad.dlid != m->slid)
			continue;
		sa->notice[i] = sa->notice[--sa->notices];
		return;
	}
}

u64 sm_inform_due_ns(const struct sm_sa *sa)
{
	u64 due = UINT64_MAX;

	for (u32 i = 0; i < sa->notices; i++)
		due = MIN(due, sa->notice[i].due_ns);
	return due;
}

void sm_inform_run(struct sm *sm)
{
	struct sm_sa *sa = sm->sa;
	u64 now = sm_now(sm);
	u32 kept = 0;

	for (u32 i = 0; i < sa->notices; i++) {
		struct sm_notice *n = &sa->notice[i];

		if (n->due_ns <= now) {
			if (n->tries++ == INFORM_TRIES)
				continue;
			n->due_ns = now + INFORM_TIMEOUT_NS;
			sm_reply(sm, &n->mad);
		}
		sa->notice[kept++] = *n;
	}
	sa->notices = kept;
}
