/* query.c: one question to a subnet administrator: a request that is repeated until it is answered.
 * In:    records, answers        Out: MADs, the ends of queries
 * Runs:  consumers; the MAD layer's queue    Locks: sa_lock
 * Spec:  IBA vol 1, 15.2 (SA MADs), 15.4 (operations)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sa/sa_priv.h"

static struct list_head sa_queries[SA_BUCKETS] GUARDED_BY(sa_lock);
static u32 sa_next_id GUARDED_BY(sa_lock);

static struct list_head *sa_query_bucket(int id) REQUIRES(sa_lock)
{
	struct list_head *bucket = &sa_queries[(u32)id % SA_BUCKETS];

	if (bucket->next == NULL)
		list_init(bucket);
	return bucket;
}

void sa_query_drop_in_child(void) NO_THREAD_SAFETY
{
	memset(sa_queries, 0, sizeof(sa_queries));
}

static struct sa_query *sa_query_find(int id, const void *query) REQUIRES(sa_lock)
{
	list_for_each(q, sa_query_bucket(id), struct sa_query, node)
		if (q->id == id && q == query)
			return q;
	return NULL;
}

/* Makes the query known, if its client still takes one. Ids are above 0. */
static int sa_query_enter(struct sa_query *q)
{
	int err;

	lock_acquire(&sa_lock);
	err = sa_client_hold(q->client) ? 0 : -EINVAL;
	if (err == 0) {
		q->id = (int)(++sa_next_id & INT32_MAX);
		q->id += q->id == 0;
		list_push_back(sa_query_bucket(q->id), &q->node);
	}
	lock_release(&sa_lock);
	return err;
}

/* Its client may end now. */
static void sa_query_leave(struct sa_query *q)
{
	lock_acquire(&sa_lock);
	list_remove(&q->node);
	sa_client_drop(q->client);
	lock_release(&sa_lock);
}

static void sa_query_free(struct sa_query *q)
{
	if (q->buf != NULL)
		ib_free_send_mad(q->buf);
	if (q->ah != NULL)
		(void)ib_destroy_ah(q->ah);
	free(q);
}

static void sa_query_fill(struct sa_query *q, const struct sa_ask *ask, u32 tid)
{
	struct ib_sa_mad *mad = q->buf->mad;

	mad->mad_hdr = (struct ib_mad_hdr){
		.base_version = IB_MGMT_BASE_VERSION,
		.mgmt_class = IB_MGMT_CLASS_SUBN_ADM,
		.class_version = IB_SA_CLASS_VERSION,
		.method = ask->method,
		.attr_id = htobe16(ask->attribute),
		.tid = htobe64((u64)q->port->agent->hi_tid << 32 | tid),
	};
	mad->sa_hdr.comp_mask = ask->mask;
	q->buf->ah = q->ah;
	q->buf->context[0] = q;
	q->buf->timeout_ms = ask->timeout_ms;
	q->buf->retries = ask->retries;
}

/* NULL and *err. */
static struct sa_query *sa_query_make(struct sa_port *port, const struct sa_ask *ask, int *err)
{
	struct sa_query *q = calloc(1, sizeof(*q));
	u16 pkey_index = 0;

	*err = -ENOMEM;
	if (q == NULL)
		return NULL;
	*q = (struct sa_query){ .port = port,
				.client = ask->client,
				.done = ask->done,
				.callback = ask->callback,
				.context = ask->context };
	list_init(&q->node);
	q->ah = sa_port_way(port, &pkey_index);
	if (IS_ERR(q->ah)) {
		*err = (int)PTR_ERR(q->ah);
		free(q);
		return NULL;
	}
	q->buf = ib_create_send_mad(port->agent, 1, pkey_index, 0, IB_MGMT_SA_HDR, IB_MGMT_SA_DATA,
				    0);
	if (!IS_ERR(q->buf))
		return q;
	q->buf = NULL;
	sa_query_free(q);
	return NULL;
}

int sa_query_begin(struct sa_port *port, const struct sa_ask *ask, const void *record,
		   void (*pack)(const void *record, void *attribute))
{
	static u32 tids; /* atomic */
	struct sa_query *q;
	int err, id;

	if (ask->timeout_ms <= 0)
		return -EINVAL;
	q = sa_query_make(port, ask, &err);
	if (q == NULL)
		return err;
	sa_query_fill(q, ask, __atomic_add_fetch(&tids, 1, __ATOMIC_RELAXED));
	pack(record, ((struct ib_sa_mad *)q->buf->mad)->data);
	err = sa_query_enter(q);
	if (err != 0) {
		sa_query_free(q);
		return err;
	}
	id = q->id;
	if (ask->query != NULL)
		*ask->query = (struct ib_sa_query *)q;
	err = ib_post_send_mad(q->buf, NULL);
	if (err == 0)
		return id; /* it may have ended by now */
	sa_query_leave(q);
	sa_query_free(q);
	return err;
}

void ib_sa_cancel_query(int id, struct ib_sa_query *query)
{
	struct ib_mad_agent *agent = NULL;
	struct ib_mad_send_buf *buf = NULL;
	struct sa_port *port = NULL;
	struct sa_query *q;

	lock_acquire(&sa_lock);
	q = sa_query_find(id, query);
	if (q != NULL && sa_port_try(q->port)) {
		port = q->port;
		agent = port->agent;
		buf = q->buf;
	}
	lock_release(&sa_lock);
	if (port == NULL)
		return; /* it has ended, or does so with its port */
	/* the MAD layer compares the buffer: one that has ended meanwhile is not touched */
	ib_cancel_mad(agent, buf);
	sa_port_put(port);
}

/* ---- ends ------------------------------------------------------------------------------------ */

void sa_query_on_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *recv)
{
	struct ib_mad_send_buf *buf = (struct ib_mad_send_buf *)(uintptr_t)recv->wc->wr_id;

	if (buf != NULL) {
		struct sa_query *q = buf->context[0];
		struct ib_sa_mad *mad = (struct ib_sa_mad *)recv->recv_buf.mad;

		q->answered = true;
		q->done(q, mad->mad_hdr.status == 0 ? 0 : -EINVAL, mad);
	}
	ib_free_recv_mad(recv);
}

static int sa_query_status(enum ib_wc_status status)
{
	switch (status) {
	case IB_WC_RESP_TIMEOUT_ERR:
	case IB_WC_RETRY_EXC_ERR:
		return -ETIMEDOUT;
	case IB_WC_WR_FLUSH_ERR:
		return -EINTR;
	default:
		return -EIO;
	}
}

void sa_query_on_sent(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct sa_query *q = wc->send_buf->context[0];

	if (!q->answered)
		q->done(q, sa_query_status(wc->status), NULL);
	sa_query_leave(q);
	sa_query_free(q);
}
