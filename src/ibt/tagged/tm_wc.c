/* tm_wc.c: receive completions of a tag-matching SRQ: TM_RECV, TM_NO_TAG. They go to the SRQ's CQ
 * and name no queue pair (cqe.source), so they outlive it. Each entry that was taken completes once
 * with DATA_VALID or with an error, also where its queue pair fails or goes.
 *
 * In:    messages that are whole, have matched or broken off    Out: completions
 * Runs:  whoever receives, or fails the queue pair
 * Locks: rq_lock or sq_lock, then the SRQ's and the CQ's
 * Spec:  ibv_post_srq_ops(3)
 */
#include <endian.h>

#include "ibt/receive/recv_wc.h"
#include "ibt/tagged/tm_wc.h"

/* One completion. */
struct tm_wc {
	u64 wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	u32 flags, length;
	const struct ibv_tmh *tmh; /* what read_tm_info is to tell; NULL: zeros */
} OWNED_BY(its thread);

/* `p`: the message's last packet, with rq_lock held; or NULL. False: the CQ has overflowed. */
static bool tm_wc_push(const struct ibt_qp *qp, const struct tm_wc *wc, const struct pkt *p)
	NO_THREAD_SAFETY /* rq_lock as it says */
{
	const struct ibv_tmh *tmh = wc->tmh;
	struct cq *cq = qp->srq->tm_cq;
	struct cqe *e = cq_reserve(cq);

	if (unlikely(!e))
		return false;
	cqe_set(e, wc->wr_id, wc->status, wc->opcode, wc->length, qp->qpn, qp->dest_qpn,
		&cq_source_none, 0);
	e->wc.wc_flags = wc->flags;
	if (likely(p != NULL))
		recv_wc_flags(qp, &e->wc, p);
	cq_commit_tagged(cq, e, p != NULL && (p->flags & PKT_SOLICITED) != 0,
			 tmh != NULL ? be64toh(tmh->tag) : 0,
			 tmh != NULL ? be32toh(tmh->app_ctx) : 0);
	return true;
}

static void tm_wc_release(struct ibt_srq *srq, struct tag_entry *entry)
{
	lock_acquire(&srq->lock);
	tag_list_release(&srq->tags, entry);
	lock_release(&srq->lock);
}

/* What becomes of the buffer, before its completion: the consumer may use it at once. */
static void tm_wc_let_go(struct ibt_qp *qp, struct tm_conn *c, bool ok) REQUIRES(qp->resp.rq_lock)
{
	if (c->entry != NULL && !(ok && c->kind == TM_RNDV))
		tm_wc_release(qp->srq, c->entry);
	/* What fails is not seen as an unexpected message: nobody counts it. */
	if (c->kind == TM_UNEXPECTED && !ok) {
		lock_acquire(&qp->srq->lock);
		tag_list_uncount_unexpected(&qp->srq->tags);
		lock_release(&qp->srq->lock);
	}
}

static void tm_wc_describe(const struct tm_conn *c, struct tm_wc *wc)
{
	switch ((enum tm_kind)c->kind) {
	case TM_UNEXPECTED:
		wc->flags = c->sync_req ? IBV_WC_TM_SYNC_REQ : 0;
		break;
	case TM_NO_TAG:
		wc->opcode = IBV_WC_TM_NO_TAG;
		break;
	case TM_NOTICE:
		wc->opcode = IBV_WC_RECV;
		break;
	case TM_EAGER:
		wc->flags = IBV_WC_TM_DATA_VALID | (c->told_match ? 0 : IBV_WC_TM_MATCH);
		break;
	case TM_RNDV:
		wc->flags = IBV_WC_TM_MATCH;
		break;
	case TM_RNDV_SHORT:
		wc->flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
		wc->status = IBV_WC_TM_RNDV_INCOMPLETE;
		break;
	}
	if (wc->flags & IBV_WC_TM_MATCH)
		wc->tmh = &c->header.tmh;
}

/* Behind the completion of the match, which must come first. */
static void tm_wc_queue_rndv(struct ibt_qp *qp, struct tm_conn *c) REQUIRES(qp->resp.rq_lock)
{
	struct ibt_srq *srq = qp->srq;

	lock_acquire(&srq->lock);
	srq->rndvs[tag_list_index(&srq->tags, c->entry)] = c->header;
	list_push_back(&c->pending, &c->entry->link);
	lock_release(&srq->lock);
	qp->resp.after |= AFTER_SEND;
}

void tm_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
{
	struct tm_conn *c = tm_conn(qp);
	struct tm_wc wc = { .wr_id = c->copy.wr_id,
			    .status = status,
			    .opcode = IBV_WC_TM_RECV,
			    .length = length };
	bool ok = status == IBV_WC_SUCCESS;

	if (likely(ok))
		tm_wc_describe(c, &wc);
	else
		qp_count_error(qp, status, IBT_ERROR_OF_RECEIVE);
	tm_wc_let_go(qp, c, ok);
	if (unlikely(!tm_wc_push(qp, &wc, ok ? p : NULL)))
		recv_wc_lost(qp);
	if (ok && c->kind == TM_RNDV)
		tm_wc_queue_rndv(qp, c);
	c->entry = NULL;
	c->told_match = false;
	qp->resp.current = NULL;
}

void tm_complete_match(struct ibt_qp *qp)
{
	struct tm_conn *c = tm_conn(qp);
	struct tm_wc wc = { .wr_id = c->copy.wr_id,
			    .opcode = IBV_WC_TM_RECV,
			    .flags = IBV_WC_TM_MATCH,
			    .tmh = &c->header.tmh };

	if (c->told_match)
		return;
	c->told_match = true;
	if (unlikely(!tm_wc_push(qp, &wc, NULL)))
		recv_wc_lost(qp);
}

bool tm_complete_rndv(struct ibt_qp *qp, struct tag_entry *entry, enum ibv_wc_status status,
		      u32 length)
{
	bool ok = status == IBV_WC_SUCCESS;
	struct tm_wc wc = { .wr_id = entry->recv_wr_id,
			    .status = status,
			    .opcode = IBV_WC_TM_RECV,
			    .flags = ok ? IBV_WC_TM_DATA_VALID : 0,
			    .length = ok ? length : 0 };

	tm_wc_release(qp->srq, entry);
	return tm_wc_push(qp, &wc, NULL);
}

static struct tag_entry *tm_wc_pop_pending(struct ibt_qp *qp)
{
	struct list_head *link;

	lock_acquire(&qp->srq->lock);
	link = list_pop_front(&tm_conn(qp)->pending);
	lock_release(&qp->srq->lock);
	return link == NULL ? NULL : list_entry(link, struct tag_entry, link);
}

void tm_flush(struct ibt_qp *qp)
{
	struct tag_entry *entry;

	while ((entry = tm_wc_pop_pending(qp)) != NULL)
		if (!tm_complete_rndv(qp, entry, IBV_WC_WR_FLUSH_ERR, 0))
			recv_wc_lost(qp);
}
