/* sa.c: the subnet administrator: requests, and which function answers them.
 * In:    SA MADs, hostile    Out: answers
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, chapter 15
 */
#include <stdlib.h>

#include "sm/sa_priv.h"

/* ---- life ------------------------------------------------------------------------------------ */

struct sm_sa *sm_sa_new(void)
{
	struct sm_sa *sa = calloc(1, sizeof(*sa));

	if (sa == NULL)
		return NULL;
	sa->groups_max = SA_MLIDS;
	sa->subscribers_max = SA_SUBSCRIBERS;
	return sa;
}

void sm_sa_free(struct sm_sa *sa)
{
	if (sa == NULL)
		return;
	for (u32 i = 0; i < SA_MLIDS; i++) {
		if (sa->group[i] != NULL)
			free(sa->group[i]->member);
		free(sa->group[i]);
	}
	sm_rmpp_free(sa);
	free(sa->service);
	free(sa->subscriber);
	free(sa->notice);
	free(sa);
}

bool sm_sa_grow(void **array, u32 *room, u32 count, size_t size, u32 max)
{
	u32 wide = *room == 0 ? 4 : *room * 2;
	void *p;

	if (count >= max)
		return false;
	if (count < *room)
		return true;
	p = realloc(*array, wide * size);
	if (p == NULL)
		return false;
	*array = p;
	*room = wide;
	return true;
}

void sm_sa_forget(struct sm *sm)
{
	sm_group_forget(sm);
	sm->sa->services = sm->sa->subscribers = sm->sa->notices = 0;
}

/* ---- records --------------------------------------------------------------------------------- */

void sm_query_add(struct sm_query *q, const u8 *record)
{
	u32 stride = sm_query_stride(q);
	u32 need = (q->count + 1) * stride;

	if (need > SA_TABLE_MAX || q->full) {
		q->full = true;
		return;
	}
	if (need > q->room) {
		u32 room = MAX(q->room * 2, 1024u);
		u8 *data = realloc(q->data, room);

		if (data == NULL) {
			q->full = true;
			return;
		}
		q->data = data;
		q->room = room;
	}
	memset(q->data + q->count * stride, 0, stride);
	memcpy(q->data + q->count++ * stride, record, q->size);
}

/* ---- answers --------------------------------------------------------------------------------- */

void sm_sa_answer_one(struct sm_query *q, u16 status, const u8 *record)
{
	struct fabric_mad out = *q->m;
	u8 gid[16];

	out.src_qp = q->m->dst_qp;
	out.dst_qp = q->m->src_qp;
	out.qkey = SM_QKEY;
	out.slid = q->m->dlid;
	out.dlid = q->m->slid;
	if (out.has_grh) {
		memcpy(gid, out.grh + 8, sizeof(gid));
		memcpy(out.grh + 8, out.grh + 24, sizeof(gid));
		memcpy(out.grh + 24, gid, sizeof(gid));
	}
	out.mad[MAD_METHOD] = q->method == SA_SET ? SA_GET_RESP : q->method | METHOD_RESPONSE;
	wire_put16(out.mad + MAD_STATUS, status);
	memset(out.mad + SA_RMPP_VERSION, 0, SA_KEY - SA_RMPP_VERSION);
	if (record != NULL) {
		memset(out.mad + SA_DATA, 0, SA_DATA_BYTES);
		memcpy(out.mad + SA_DATA, record, MIN(q->size, SA_DATA_BYTES));
	}
	sm_reply(q->sm, &out);
}

static void sm_sa_answer(struct sm_query *q, u16 status)
{
	if (status == SA_OK && q->full)
		status = SA_NO_RESOURCES;
	if (status == SA_OK && q->method == SA_GET_TABLE) {
		sm_rmpp_answer(q);
		return;
	}
	if (status == SA_OK && q->count == 0)
		status = SA_NO_RECORDS;
	if (status == SA_OK && q->count > 1)
		status = SA_TOO_MANY;
	sm_sa_answer_one(q, status, status == SA_OK ? q->data : NULL);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static const struct {
	u16 attribute FIXED;
	u16 size FIXED; /* of a record */
	u16 (*get)(struct sm_query *q) FIXED; /* also of GetTable */
	u16 (*set)(struct sm_query *q) FIXED;
	u16 (*remove)(struct sm_query *q) FIXED;
} sm_sa_records[] = {
	{ SA_ATTR_CLASS_PORT_INFO, 72, sm_record_class, NULL, NULL },
	{ SA_ATTR_NODE, 108, sm_record_nodes, NULL, NULL },
	{ SA_ATTR_PORT, 68, sm_record_ports, NULL, NULL },
	{ SA_ATTR_SWITCH, 24, sm_record_switches, NULL, NULL },
	{ SA_ATTR_LFT, 72, sm_record_lfts, NULL, NULL },
	{ SA_ATTR_MFT, 72, sm_record_mfts, NULL, NULL },
	{ SA_ATTR_SM, 28, sm_record_sms, NULL, NULL },
	{ SA_ATTR_LINK, 6, sm_record_links, NULL, NULL },
	{ SA_ATTR_PATH, 64, sm_path_query, NULL, NULL },
	{ SA_ATTR_MEMBER, 52, sm_group_query, sm_group_join, sm_group_leave },
	{ SA_ATTR_SERVICE, 176, sm_service_query, sm_service_set, sm_service_delete },
	{ SA_ATTR_INFORM, 36, NULL, sm_inform_set, NULL },
	{ SA_ATTR_INFORM_RECORD, 60, sm_inform_query, NULL, NULL },
};

static u16 sm_sa_obey(struct sm_query *q)
{
	u16 attribute = wire_get16(q->m->mad + MAD_ATTRIBUTE);
	u16 (*fn)(struct sm_query *) = NULL;

	for (u32 i = 0; i < ARRAY_LEN(sm_sa_records); i++) {
		if (sm_sa_records[i].attribute != attribute)
			continue;
		q->size = sm_sa_records[i].size;
		if (q->method == SA_GET || q->method == SA_GET_TABLE)
			fn = sm_sa_records[i].get;
		else if (q->method == SA_SET)
			fn = sm_sa_records[i].set;
		else
			fn = sm_sa_records[i].remove;
	}
	return fn == NULL ? SA_UNSUPPORTED : fn(q);
}

static bool sm_sa_is_request(u8 method)
{
	return method == SA_GET || method == SA_SET || method == SA_GET_TABLE ||
	       method == SA_DELETE;
}

bool sm_sa_receive(struct sm *sm, const struct fabric_mad *m)
{
	u8 method = m->mad[MAD_METHOD], flags = m->mad[SA_RMPP_FLAGS] & 7;
	struct sm_query q = { .sm = sm,
			      .m = m,
			      .method = method,
			      .mask = wire_get64(m->mad + SA_MASK),
			      .want = m->mad + SA_DATA,
			      .trusted = wire_get64(m->mad + SA_KEY) != 0 };

	if ((flags & 1) != 0 && m->mad[SA_RMPP_TYPE] != 1) {
		if (method != SA_GET_TABLE)
			return false;
		sm_rmpp_receive(sm, m);
		return true;
	}
	if (method == SA_REPORT_RESP) {
		sm_inform_answered(sm, m);
		return true;
	}
	if ((method & METHOD_RESPONSE) != 0 || method == SA_REPORT)
		return false;
	/* Only the master's SA answers; no request of several MADs is supported. */
	if (sm->state != SM_MASTER || sm->subnet == NULL || (flags & 1) != 0)
		return true;
	sm->report.queries++;
	if (m->mad[MAD_CLASS_VERSION] != SA_CLASS_VERSION)
		sm_sa_answer_one(&q, STATUS_BAD_VERSION, NULL);
	else if (!sm_sa_is_request(method))
		sm_sa_answer_one(&q, SA_UNSUPPORTED, NULL);
	else
		sm_sa_answer(&q, sm_sa_obey(&q));
	free(q.data);
	return true;
}

/* ---- time ------------------------------------------------------------------------------------ */

u64 sm_sa_due_ns(const struct sm *sm)
{
	return MIN(sm_rmpp_due_ns(sm->sa),
		   MIN(sm_service_due_ns(sm->sa), sm_inform_due_ns(sm->sa)));
}

void sm_sa_run(struct sm *sm)
{
	u64 now = sm_now(sm);

	if (sm_rmpp_due_ns(sm->sa) <= now)
		sm_rmpp_run(sm);
	if (sm_service_due_ns(sm->sa) <= now)
		sm_service_expire(sm);
	if (sm_inform_due_ns(sm->sa) <= now)
		sm_inform_run(sm);
}

/* The ports of `a` that `b` has not, as traps. */
static void sm_sa_compare(struct sm *sm, const struct sm_subnet *a, const struct sm_subnet *b,
			  u16 trap)
{
	u8 gid[16];
	u32 at;

	for (u32 lid = 1; lid <= a->lid_top; lid++) {
		const struct sm_port *p = sm_subnet_find_lid(a, (u16)lid, &at);

		if (p == NULL || a->node[sm_at_node(at)].type == FABRIC_SWITCH ||
		    sm_subnet_find_guid(b, p->guid, &at) != NULL)
			continue;
		wire_put64(gid, SM_PREFIX);
		wire_put64(gid + 8, p->guid);
		sm_inform_gid(sm, trap, gid);
	}
}

void sm_sa_subnet_changed(struct sm *sm, const struct sm_subnet *before)
{
	sm_group_subnet_changed(sm);
	sm_inform_subnet_changed(sm);
	if (before == NULL || sm->sa->subscribers == 0)
		return;
	sm_sa_compare(sm, sm->subnet, before, 64);
	sm_sa_compare(sm, before, sm->subnet, 65);
}
