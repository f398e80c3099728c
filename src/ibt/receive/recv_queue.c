/* recv_queue.c: receive requests: taken by a message, filled, completed, flushed.
 * In:    receive requests, of the queue pair or of its SRQ    Out: receive completions
 * Runs:  the receiving thread    Locks: rq_lock, then SRQ and CQ locks
 * Spec:  IBA vol 1, 10.2.9 (SRQ), 10.8.3 (completion), 11.4.2 (flags of a completion)
 */
#include <errno.h>

#include "ibt/counted.h"
#include "ibt/receive/recv_queue.h"
#include "ibt/receive/recv_wc.h"
#include "ibt/tagged/tm_wc.h"
#include "ibt/xrc/xrc.h"

bool rq_take_shared(struct ibt_qp *qp)
{
	if (srq_matches_tags(qp->srq))
		return false;
	if (qp->resp.current == NULL) {
		if (!srq_take(qp->srq, qp->resp.srq_copy))
			return false;
		qp->resp.current = qp->resp.srq_copy;
	}
	qp->resp.cursor = (struct mem_cursor){ .sge = qp->resp.current->sge,
					       .count = qp->resp.current->sge_count };
	return true;
}

/* True: the completion is made. */
static bool rq_complete_marked(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p,
			       u32 length) REQUIRES(qp->resp.rq_lock)
{
	if (qp->srq == NULL) {
		qp->resp.tail++;
	} else if (qp->srq->own_cq != NULL) {
		(srq_matches_tags(qp->srq) ? tm_complete : xrc_complete)(qp, status, p, length);
		return true;
	}
	counted_recv(qp, status, length);
	return false;
}

void rq_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
{
	bool ok = status == IBV_WC_SUCCESS;
	struct cqe *e;

	if (likely(!qp->resp.marked))
		qp->resp.tail++;
	else if (rq_complete_marked(qp, status, p, length))
		return;
	e = cq_reserve(qp->recv_cq);
	if (likely(e)) {
		cqe_set(e, qp->resp.current->wr_id, status, IBV_WC_RECV, length, qp->qpn,
			!ok	       ? 0
			: p->sqpn != 0 ? p->sqpn
				       : qp->dest_qpn,
			&qp->resp.source, qp->resp.tail);
		if (likely(ok))
			recv_wc_flags(qp, &e->wc, p);
		cq_commit(qp->recv_cq, e, ok && (p->flags & PKT_SOLICITED) != 0);
	} else {
		recv_wc_lost(qp);
		if (qp->srq != NULL)
			srq_free_place(qp->srq);
	}
	if (unlikely(!ok))
		qp_count_error(qp, status, IBT_ERROR_OF_RECEIVE);
	qp->resp.current = NULL;
}

void rq_flush(struct ibt_qp *qp)
{
	qp->resp.message = 0;
	if (qp->resp.current != NULL)
		rq_complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
	if (qp->srq != NULL && srq_matches_tags(qp->srq))
		tm_flush(qp);
	if (qp->srq != NULL)
		return;
	while (qp->resp.tail != qp->resp.head && rq_take(qp))
		rq_complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
}

enum resp_verdict rq_fail(struct ibt_qp *qp, int err) REQUIRES(qp->resp.rq_lock)
{
	rq_complete(qp, err == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR, NULL, 0);
	return err == -EMSGSIZE ? RESP_NAK_INVALID : RESP_NAK_OPERATION;
}

enum resp_verdict rq_scatter(struct ibt_qp *qp, const void *payload, u32 n)
{
	int err = mem_scatter(qp->ibt->cfg.mem, qp->resp.pd, &qp->resp.cursor, payload, n);

	return likely(err == 0) ? RESP_OK : rq_fail(qp, err);
}
