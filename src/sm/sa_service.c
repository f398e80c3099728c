/* sa_service.c: ServiceRecords: services that ports announce, each with a lease.
 * In:    records    Out: records
 * Runs:  the host's thread    Locks: none
 * Spec:  IBA vol 1, 15.2.5.14
 */
#include "sm/sa_priv.h"

/* Where the fields lie. */
enum service_at {
	SERVICE_ID = 0,
	SERVICE_GID = 8,
	SERVICE_PKEY = 24,
	SERVICE_LEASE = 28,
	SERVICE_KEY = 32,
	SERVICE_NAME = 48,
	SERVICE_DATA = 112,
	SERVICE_BYTES = 176,
	SERVICE_DATA_FIRST = 7, /* components of the data: 16 of 8 bits, 8, 4, 2 of more */
};

/* ---- comparing ------------------------------------------------------------------------------- */

static bool sm_service_same(const struct sm_query *q, u32 component, const u8 *record, u32 at,
			    u32 bytes)
{
	return !sm_query_has(q, component) || memcmp(record + at, q->want + at, bytes) == 0;
}

/* The data is 16 bytes of each width. */
static bool sm_service_data_fits(const struct sm_query *q, const u8 *record)
{
	u32 component = SERVICE_DATA_FIRST, at = SERVICE_DATA;

	for (u32 width = 1; width <= 8; width *= 2)
		for (u32 i = 0; i < 16 / width; i++, at += width)
			if (!sm_service_same(q, component++, record, at, width))
				return false;
	return true;
}

static bool sm_service_fits(const struct sm_query *q, const u8 *record)
{
	return sm_service_same(q, 0, record, SERVICE_ID, 8) &&
	       sm_service_same(q, 1, record, SERVICE_GID, 16) &&
	       sm_service_same(q, 2, record, SERVICE_PKEY, 2) &&
	       sm_service_same(q, 5, record, SERVICE_KEY, 16) &&
	       sm_service_same(q, 6, record, SERVICE_NAME, 64) &&
	       sm_service_data_fits(q, record);
}

/* A record is its service ID, GID and P_Key. */
static struct sm_service *sm_service_find(struct sm_sa *sa, const u8 *record)
{
	for (u32 i = 0; i < sa->services; i++)
		if (memcmp(sa->service[i].record, record, SERVICE_PKEY + 2) == 0)
			return &sa->service[i];
	return NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void sm_service_show(struct sm_query *q, const struct sm_service *s)
{
	u64 now = sm_now(q->sm);
	u8 d[SERVICE_BYTES];

	memcpy(d, s->record, sizeof(d));
	if (s->ends_ns != UINT64_MAX)
		wire_put32(d + SERVICE_LEASE,
			   s->ends_ns > now ? (u32)((s->ends_ns - now) / SM_S) : 0);
	if (!q->trusted)
		memset(d + SERVICE_KEY, 0, 16);
	sm_query_add(q, d);
}

u16 sm_service_query(struct sm_query *q)
{
	for (u32 i = 0; i < q->sm->sa->services; i++)
		if (sm_service_fits(q, q->sm->sa->service[i].record))
			sm_service_show(q, &q->sm->sa->service[i]);
	return SA_OK;
}

u16 sm_service_set(struct sm_query *q)
{
	struct sm_sa *sa = q->sm->sa;
	struct sm_service *s = sm_service_find(sa, q->want);
	u32 lease = sm_query_has(q, 4) ? wire_get32(q->want + SERVICE_LEASE) : UINT32_MAX;

	/* Only with its key may a record be replaced. */
	if (s != NULL && memcmp(s->record + SERVICE_KEY, q->want + SERVICE_KEY, 16) != 0)
		return SA_INVALID;
	if (s == NULL) {
		if (!sm_sa_grow((void **)&sa->service, &sa->service_room, sa->services,
				sizeof(*sa->service), SA_SERVICES))
			return SA_NO_RESOURCES;
		s = &sa->service[sa->services++];
	}
	memcpy(s->record, q->want, sizeof(s->record));
	wire_put32(s->record + SERVICE_LEASE, lease);
	s->ends_ns = lease == UINT32_MAX ? UINT64_MAX : sm_now(q->sm) + lease * SM_S;
	sm_query_add(q, s->record);
	return SA_OK;
}

u16 sm_service_delete(struct sm_query *q)
{
	struct sm_sa *sa = q->sm->sa;

	for (u32 i = 0; i < sa->services; i++) {
		if (!sm_service_fits(q, sa->service[i].record))
			continue;
		sm_query_add(q, sa->service[i].record);
		sa->service[i] = sa->service[--sa->services];
		return SA_OK;
	}
	return SA_NO_RECORDS;
}

/* ---- leases ---------------------------------------------------------------------------------- */

u64 sm_service_due_ns(const struct sm_sa *sa)
{
	u64 due = UINT64_MAX;

	for (u32 i = 0; i < sa->services; i++)
		due = MIN(due, sa->service[i].ends_ns);
	return due;
}

void sm_service_expire(struct sm *sm)
{
	struct sm_sa *sa = sm->sa;
	u64 now = sm_now(sm);
	u32 kept = 0;

	for (u32 i = 0; i < sa->services; i++)
		if (sa->service[i].ends_ns > now)
			sa->service[kept++] = sa->service[i];
	sa->services = kept;
}
