/* tm_rndv.c: the rendezvous that a tag-matching SRQ has matched: the adapter READs the data by the
 * queue pair that the request came by, completes the entry, and SENDs a FIN.
 *
 * Both are requests of that queue pair's send queue, in places beyond the consumer's: ring.size
 * grows by one for each, so it still says what the consumer may have outstanding. A FIN is added
 * only when its READ has ended, so it needs no fence, and READs behind each other do not wait for
 * FINs. Rendezvous beyond TM_SLOTS wait in the order of matching.
 *
 * In:    entries that have matched a rendezvous    Out: send requests, completions
 * Runs:  whoever runs the requester    Locks: sq_lock, then the SRQ's and the CQ's
 */
#include <endian.h>

#include "ibt/tagged/tm_rndv.h"
#include "ibt/tagged/tm_wc.h"

static struct send_wqe *rndv_wqe(struct ibt_qp *qp, u8 opcode) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = sq_at(qp, qp->req.head);

	*w = (struct send_wqe){ .opcode = opcode, .flags = IBV_SEND_SIGNALED | WQE_TM };
	return w;
}

/* The request that has been filled in joins the queue. */
static void rndv_join(struct ibt_qp *qp, struct tag_entry *entry) REQUIRES(qp->req.sq_lock)
{
	struct tm_conn *c = tm_conn(qp);
	u32 i = (c->first + c->count) % TM_SLOTS;

	c->slot[i].at = qp->req.head++;
	c->slot[i].entry = entry;
	c->count++;
	cq_polled(&qp->req.source, qp->req.tail); /* no poll does: 65,536 are too many to count */
	qp->req.ring.size++;
	qp_mark_runnable(qp);
}

/* The oldest leaves. */
static struct tag_entry *rndv_leave(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct tm_conn *c = tm_conn(qp);
	struct tag_entry *entry = c->slot[c->first].entry;

	c->first = (c->first + 1) % TM_SLOTS;
	c->count--;
	qp->req.ring.size--;
	return entry;
}

static void rndv_read(struct ibt_qp *qp, struct tag_entry *entry, const struct ibv_rvh *rvh)
	REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = rndv_wqe(qp, IBV_WR_RDMA_READ);

	w->va = be64toh(rvh->va);
	w->rkey = be32toh(rvh->rkey);
	w->length = be32toh(rvh->len);
	w->sge_count = (u8)entry->sge_count;
	memcpy(w->sge, entry->sge, entry->sge_count * sizeof(w->sge[0]));
	rndv_join(qp, entry);
}

static void rndv_fin(struct ibt_qp *qp, const struct tm_header *request) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = rndv_wqe(qp, WQE_TM_FIN);
	struct tm_header fin = *request;

	fin.tmh.opcode = IBV_TMH_FIN;
	w->flags |= IBV_SEND_INLINE;
	w->length = sizeof(fin);
	memcpy(w->sge, &fin, sizeof(fin));
	rndv_join(qp, NULL);
}

/* The oldest that waits for a slot and its request; NULL: none. */
static struct tag_entry *rndv_next(struct ibt_qp *qp, struct tm_header *request)
{
	struct ibt_srq *srq = qp->srq;
	struct tag_entry *entry = NULL;
	struct list_head *link;

	lock_acquire(&srq->lock);
	link = list_pop_front(&tm_conn(qp)->pending);
	if (link != NULL) {
		entry = list_entry(link, struct tag_entry, link);
		*request = srq->rndvs[tag_list_index(&srq->tags, entry)];
	}
	lock_release(&srq->lock);
	return entry;
}

void tm_rndv_issue(struct ibt_qp *qp)
{
	struct tm_conn *c = tm_conn(qp);
	struct tag_entry *entry;
	struct tm_header request;

	while (qp_sends(qp) && c->count < TM_SLOTS && (entry = rndv_next(qp, &request)) != NULL)
		rndv_read(qp, entry, &request.rvh);
}

static struct tm_header rndv_request(struct ibt_qp *qp, const struct tag_entry *entry)
{
	struct ibt_srq *srq = qp->srq;
	struct tm_header request;

	lock_acquire(&srq->lock);
	request = srq->rndvs[tag_list_index(&srq->tags, entry)];
	lock_release(&srq->lock);
	return request;
}

bool tm_rndv_finish(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status,
		    bool *room)
{
	struct tm_conn *c;
	struct tag_entry *entry;
	struct tm_header request;
	bool ok = status == IBV_WC_SUCCESS;

	/* A consumer may have set the flag. */
	if (!tm_is_used(qp))
		return false;
	c = tm_conn(qp);
	if (c->count == 0 || c->slot[c->first].at != qp->req.tail)
		return false;
	*room = true;
	entry = rndv_leave(qp);
	if (entry != NULL) {
		request = rndv_request(qp, entry);
		*room = tm_complete_rndv(qp, entry, status, w->length);
		if (ok)
			rndv_fin(qp, &request);
	} else if (ok) {
		tm_rndv_issue(qp);
	}
	return true;
}

void tm_rndv_reset(struct ibt_qp *qp)
{
	while (tm_conn(qp)->count != 0) {
		struct tag_entry *entry = rndv_leave(qp);

		/* without room it is lost as all that come after */
		if (entry != NULL && !tm_complete_rndv(qp, entry, IBV_WC_WR_FLUSH_ERR, 0))
			qp_count(qp, COUNT_CQ_OVERFLOW);
	}
}
