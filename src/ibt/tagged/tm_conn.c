/* tm_conn.c: what a queue pair of a tag-matching SRQ has beside others: made and freed.
 * Runs: the caller of create or destroy    Locks: none
 */
#include <errno.h>
#include <stdlib.h>

#include "ibt/tagged/tm_conn.h"

int tm_conn_create(struct ibt_qp *qp)
{
	/* the larger one of both kinds of buffers */
	u32 max_sge = MAX(qp->srq->max_sge, (u32)IBT_TM_MAX_SGE);
	struct tm_conn *c = calloc(1, sizeof(*c) + max_sge * sizeof(struct ibv_sge));

	if (c == NULL)
		return -ENOMEM;
	list_init(&c->pending);
	qp->resp.srq_copy = &c->copy;
	return 0;
}

void tm_conn_orphan(struct ibt_qp *qp)
{
	struct tm_conn *c = tm_conn(qp);

	qp->req.ring.size -= c->count;
	c->count = 0;
	c->entry = NULL;
	list_init(&c->pending);
}

void tm_conn_free(struct ibt_qp *qp)
{
	if (qp->resp.srq_copy != NULL)
		free(tm_conn(qp));
	qp->resp.srq_copy = NULL;
}
