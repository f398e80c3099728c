/* rmpp.c: answers that take several MADs. The receiver's ACKs open the window; what is not
 * acknowledged in time is sent again from there on, and given up after some tries.
 * In:    records, ACKs    Out: segments
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 13.6 (RMPP), 15.2.1.1 (SA MADs)
 */
#include <stdlib.h>

#include "sm/sa_priv.h"

enum {
	RMPP_DATA = 1, /* types */
	RMPP_ACK = 2,
	RMPP_ACTIVE = 1, /* flags */
	RMPP_FIRST = 2,
	RMPP_LAST = 4,
	RMPP_TRIES = 4,
	RMPP_WINDOW = 128, /* segments in flight at most */
};
#define RMPP_TIMEOUT_NS (500 * SM_MS)

/* ---- segments -------------------------------------------------------------------------------- */

/* Bytes behind the RMPP header: of all segments in the first one, its own in the last. */
static u32 sm_rmpp_length(const struct sm_rmpp *r, u32 segment)
{
	if (segment == 1)
		return r->segments * SA_HEAD_BYTES + r->bytes;
	if (segment == r->segments)
		return SA_HEAD_BYTES + r->bytes - (r->segments - 1) * SA_DATA_BYTES;
	return 0;
}

static void sm_rmpp_segment(struct sm *sm, const struct sm_rmpp *r, u32 segment)
{
	struct fabric_mad m = r->head;
	u32 at = (segment - 1) * SA_DATA_BYTES;
	u8 flags = RMPP_ACTIVE;

	flags |= segment == 1 ? RMPP_FIRST : 0;
	flags |= segment == r->segments ? RMPP_LAST : 0;
	m.mad[SA_RMPP_FLAGS] = flags;
	wire_put32(m.mad + SA_RMPP_SEGMENT, segment);
	wire_put32(m.mad + SA_RMPP_LENGTH, sm_rmpp_length(r, segment));
	if (at < r->bytes)
		memcpy(m.mad + SA_DATA, r->data + at, MIN(r->bytes - at, (u32)SA_DATA_BYTES));
	sm_reply(sm, &m);
}

static void sm_rmpp_go_on(struct sm *sm, struct sm_rmpp *r)
{
	u32 end = MIN(r->window, r->acked + RMPP_WINDOW);

	while (r->sent < MIN(end, r->segments))
		sm_rmpp_segment(sm, r, ++r->sent);
	r->due_ns = sm_now(sm) + RMPP_TIMEOUT_NS;
}

static void sm_rmpp_end(struct sm_rmpp *r)
{
	free(r->data);
	*r = (struct sm_rmpp){ .used = false };
}

/* ---- life ------------------------------------------------------------------------------------ */

static void sm_rmpp_head(const struct sm_query *q, struct fabric_mad *out)
{
	u8 gid[16];

	*out = *q->m;
	out->src_qp = q->m->dst_qp;
	out->dst_qp = q->m->src_qp;
	out->qkey = SM_QKEY;
	out->slid = q->m->dlid;
	out->dlid = q->m->slid;
	memcpy(gid, out->grh + 8, sizeof(gid));
	memcpy(out->grh + 8, out->grh + 24, sizeof(gid));
	memcpy(out->grh + 24, gid, sizeof(gid));
	out->mad[MAD_METHOD] = SA_GET_TABLE_RESP;
	wire_put16(out->mad + MAD_STATUS, SA_OK);
	memset(out->mad + SA_RMPP_VERSION, 0, SA_KEY - SA_RMPP_VERSION);
	out->mad[SA_RMPP_VERSION] = 1;
	out->mad[SA_RMPP_TYPE] = RMPP_DATA;
	wire_put16(out->mad + SA_OFFSET, q->count == 0 ? 0 : (u16)(sm_query_stride(q) / 8));
	memset(out->mad + SA_DATA, 0, SA_DATA_BYTES);
}

/* The transaction of a MAD; NULL: none. */
static struct sm_rmpp *sm_rmpp_find(struct sm_sa *sa, const struct fabric_mad *m)
{
	for (u32 i = 0; i < SA_RMPPS; i++) {
		struct sm_rmpp *r = &sa->rmpp[i];

		if (r->used && r->head.dlid == m->slid && r->head.dst_qp == m->src_qp &&
		    memcmp(r->head.mad + MAD_TID, m->mad + MAD_TID, 8) == 0)
			return r;
	}
	return NULL;
}

void sm_rmpp_answer(struct sm_query *q)
{
	struct sm_rmpp *r = sm_rmpp_find(q->sm->sa, q->m);

	if (r != NULL) /* the request has been repeated: so is the answer */
		return;
	for (u32 i = 0; i < SA_RMPPS && r == NULL; i++)
		if (!q->sm->sa->rmpp[i].used)
			r = &q->sm->sa->rmpp[i];
	if (r == NULL) {
		q->sm->report.dropped++;
		return;
	}
	*r = (struct sm_rmpp){ .used = true,
			       .data = q->data,
			       .bytes = q->count * sm_query_stride(q),
			       .window = 1 };
	q->data = NULL;
	r->segments = MAX((r->bytes + SA_DATA_BYTES - 1) / SA_DATA_BYTES, 1u);
	sm_rmpp_head(q, &r->head);
	sm_rmpp_go_on(q->sm, r);
}

void sm_rmpp_receive(struct sm *sm, const struct fabric_mad *m)
{
	struct sm_rmpp *r = sm_rmpp_find(sm->sa, m);
	u32 segment = wire_get32(m->mad + SA_RMPP_SEGMENT);
	u32 window = wire_get32(m->mad + SA_RMPP_LENGTH);

	if (r == NULL)
		return;
	if (m->mad[SA_RMPP_TYPE] != RMPP_ACK) { /* STOP, ABORT */
		sm_rmpp_end(r);
		return;
	}
	if (segment < r->acked || segment > r->sent || window < r->window)
		return;
	r->tries = segment > r->acked ? 0 : r->tries;
	r->acked = segment;
	r->window = window;
	if (r->acked == r->segments)
		sm_rmpp_end(r);
	else
		sm_rmpp_go_on(sm, r);
}

/* ---- time ------------------------------------------------------------------------------------ */

u64 sm_rmpp_due_ns(const struct sm_sa *sa)
{
	u64 due = UINT64_MAX;

	for (u32 i = 0; i < SA_RMPPS; i++)
		if (sa->rmpp[i].used)
			due = MIN(due, sa->rmpp[i].due_ns);
	return due;
}

void sm_rmpp_run(struct sm *sm)
{
	for (u32 i = 0; i < SA_RMPPS; i++) {
		struct sm_rmpp *r = &sm->sa->rmpp[i];

		if (!r->used || r->due_ns > sm_now(sm))
			continue;
		if (++r->tries >= RMPP_TRIES) {
			sm_rmpp_end(r);
			continue;
		}
		r->sent = r->acked;
		sm_rmpp_go_on(sm, r);
	}
}

void sm_rmpp_free(struct sm_sa *sa)
{
	for (u32 i = 0; i < SA_RMPPS; i++)
		free(sa->rmpp[i].data);
}
