/* xrc.c: XRC targets: each request names the SRQ that takes it.
 *
 * A target has no PD, no CQ and no receive queue. What it needs of them it has from the SRQ of the
 * request at hand, from xrc_select on, under rq_lock. An SRQ that is destroyed leaves the table
 * first; when the callbacks of all paths have ended no thread can select it any more, and then the
 * targets that still have it let go of it.
 *
 * In:    requests in sequence    Out: qp->srq, pd, recv_cq; receive completions
 * Runs:  the receiving thread; the thread that destroys an SRQ
 * Locks: table_lock for the table; rq_lock, then the CQ's    Spec: IBA vol 1, annex A14
 */
#include <errno.h>
#include <stdlib.h>

#include "ibt/receive/recv_wc.h"
#include "ibt/xrc/xrc.h"

enum { XRC_PLACES = 1 << IBT_INDEX_BITS };

static struct ibt_srq **xrc_place(struct ibt *ibt, u32 number)
{
	struct ibt_srq **table = __atomic_load_n(&ibt->xrc_srqs, __ATOMIC_ACQUIRE); /* xrc_add */

	return table == NULL ? NULL : &table[number & (XRC_PLACES - 1)];
}

static int xrc_add(struct ibt *ibt, struct ibt_srq *srq)
{
	struct ibt_srq **place, *before;
	int err = 0;

	lock_acquire(&ibt->table_lock);
	if (ibt->xrc_srqs == NULL)
		__atomic_store_n(&ibt->xrc_srqs, calloc(XRC_PLACES, sizeof(struct ibt_srq *)),
				 __ATOMIC_RELEASE); /* pairs with xrc_place */
	place = xrc_place(ibt, srq->number);
	/* The places of one process' numbers in two slots coincide: chained. */
	before = place == NULL ? NULL : __atomic_load_n(place, __ATOMIC_RELAXED);
	srq->next = before;
	if (place == NULL)
		err = -ENOMEM;
	else
		__atomic_store_n(place, srq, __ATOMIC_RELEASE); /* pairs with xrc_lookup */
	lock_release(&ibt->table_lock);
	return err;
}

/* Takes no lock: an SRQ that is found stays while the caller is in a callback of a path. */
static struct ibt_srq *xrc_lookup(struct ibt *ibt, u32 number)
{
	struct ibt_srq **place = xrc_place(ibt, number);
	struct ibt_srq *srq = place == NULL ? NULL : __atomic_load_n(place, __ATOMIC_ACQUIRE);

	while (srq != NULL && srq->number != number)
		srq = __atomic_load_n(&srq->next, __ATOMIC_ACQUIRE);
	return srq;
}

static void xrc_unlink(struct ibt *ibt, const struct ibt_srq *srq)
{
	struct ibt_srq **at;

	lock_acquire(&ibt->table_lock);
	for (at = xrc_place(ibt, srq->number); *at != srq;)
		at = &(*at)->next;
	__atomic_store_n(at, srq->next, __ATOMIC_RELEASE); /* pairs with xrc_lookup */
	lock_release(&ibt->table_lock);
}

int xrc_conn_create(struct ibt_qp *qp)
{
	struct xrc_conn *c = calloc(1, sizeof(*c) + IBT_MAX_SGE * sizeof(struct ibv_sge));

	if (c == NULL)
		return -ENOMEM;
	c->qp = qp;
	list_init(&c->node);
	qp->resp.srq_copy = &c->copy;
	return 0;
}

void xrc_conn_set_domain(struct ibt_qp *qp, u64 xrcd) NO_THREAD_SAFETY /* not reachable yet */
{
	xrc_conn(qp)->xrcd = xrcd;
}

void xrc_conn_free(struct ibt_qp *qp)
{
	if (qp->resp.srq_copy != NULL)
		free(xrc_conn(qp));
	qp->resp.srq_copy = NULL;
}

void xrc_forget(struct ibt_qp *qp)
{
	qp->srq = NULL;
	qp->recv_cq = NULL;
	qp->pd = qp->resp.pd = 0;
}

/* The target lets go of the SRQ. What the message has taken of it goes with it. */
static void xrc_let_go(struct ibt_qp *qp, const struct ibt_srq *srq)
{
	lock_acquire(&qp->resp.rq_lock);
	if (qp->srq == srq) {
		xrc_forget(qp);
		qp->resp.current = NULL;
	}
	lock_release(&qp->resp.rq_lock);
}

/* Runs while no thread is in a callback of the first path: each queue pair of the table stays,
 * since its destruction waits for the same. */
static void xrc_let_all_go(void *arg)
{
	const struct ibt_srq *srq = arg;
	struct ibt *ibt = srq->ibt;

	for (u32 s = 0; s < IBT_TABLES; s++) {
		/* both loads pair with table_add */
		struct ibt_qp **table = __atomic_load_n(&ibt->tables[s], __ATOMIC_ACQUIRE);

		for (u32 i = 0; table != NULL && i < 1u << IBT_INDEX_BITS; i++) {
			struct ibt_qp *qp = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);

			if (qp != NULL && qp_is_target(qp))
				xrc_let_go(qp, srq);
		}
	}
	for (u32 b = 0; ibt->proxies != NULL && b < IBT_PROXY_BUCKETS; b++)
		list_for_each(c, &ibt->proxies[b], struct xrc_conn, node)
			xrc_let_go(c->qp, srq);
}

static void xrc_nothing(void *arg)
{
}

int ibt_srq_enter_domain(struct ibt_srq *srq, struct cq *cq, u64 xrcd, u32 number)
{
	int err;

	srq->own_cq = cq;
	srq->frees_early = true;
	srq->xrcd = xrcd;
	srq->number = number;
	cq_names_no_qp(cq);
	err = xrc_add(srq->ibt, srq);
	if (err != 0)
		srq->number = 0;
	return err;
}

void ibt_srq_leave_domain(struct ibt_srq *srq)
{
	struct ibt *ibt = srq->ibt;

	if (srq->number == 0)
		return;
	xrc_unlink(ibt, srq);
	for (u32 i = 1; i < ibt->path_count; i++)
		ibt->paths[i]->ops->exclude(ibt->paths[i], xrc_nothing, NULL);
	ibt->paths[0]->ops->exclude(ibt->paths[0], xrc_let_all_go, srq);
}

/* Has the message at hand, or one that is to be sent again, taken something of qp->srq? */
static bool xrc_is_bound(const struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	return qp->resp.message != 0 || qp->resp.current != NULL;
}

enum resp_verdict xrc_select(struct ibt_qp *qp, const struct pkt *p)
{
	struct ibt_srq *srq;

	if (xrc_is_bound(qp))
		return qp->srq != NULL && qp->srq->number == p->srqn ? RESP_OK : RESP_NAK_INVALID;
	srq = xrc_lookup(qp->ibt, p->srqn);
	if (srq == NULL && xrc_is_foreign(qp, p->srqn)) {
		xrc_forget(qp);
		return RESP_ELSEWHERE;
	}
	if (srq == NULL || srq->xrcd != xrc_conn(qp)->xrcd)
		return RESP_NAK_INVALID;
	qp->srq = srq;
	qp->recv_cq = srq->own_cq;
	qp->pd = qp->resp.pd = srq->pd;
	return RESP_OK;
}

void xrc_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
{
	bool ok = status == IBV_WC_SUCCESS;
	struct cqe *e = cq_reserve(qp->recv_cq);

	if (likely(e)) {
		cqe_set(e, qp->resp.current->wr_id, status, IBV_WC_RECV, length, qp->qpn,
			!ok		  ? 0
			: qp_is_proxy(qp) ? xrc_conn(qp)->initiator
					  : qp->dest_qpn,
			&cq_source_none, 0);
		if (likely(ok))
			recv_wc_flags(qp, &e->wc, p);
		cq_commit(qp->recv_cq, e, ok && (p->flags & PKT_SOLICITED) != 0);
	} else {
		recv_wc_lost(qp);
	}
	if (unlikely(!ok))
		qp_count_error(qp, status, IBT_ERROR_OF_RECEIVE);
	qp->resp.current = NULL;
}
