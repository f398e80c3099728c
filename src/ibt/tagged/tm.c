/* tm.c: tag matching: which buffer takes a message of a queue pair of a tag-matching SRQ.
 *
 * The header is copied once and then judged: a local peer may change its packet meanwhile. The
 * message is looked up and, where no entry matches, an ordinary buffer taken and the message
 * counted, all under the SRQ's lock: an entry that is added later comes later. A message that finds
 * no buffer (RNR) has changed nothing and is looked up anew when it is sent again. A message that
 * has a buffer and is sent anew (its memory could not be pulled) keeps it.
 *
 * A message without a whole TMH or with another opcode than the four has no tag: TM_NO_TAG.
 * Refused are the first piece of a message if shorter than a TMH, and a rendezvous that an entry
 * matches but whose request is not one packet of 32 to IBT_TM_MAX_RNDV_HDR bytes.
 *
 * In:    the first packet of a message    Out: resp.current, the cursor, matches
 * Runs:  whoever receives    Locks: rq_lock, order_lock, then the SRQ's and the CQ's
 * Spec:  ibv_post_srq_ops(3)
 */
#include <endian.h>
#include <errno.h>

#include "ibt/receive/recv_queue.h"
#include "ibt/tagged/tm.h"
#include "ibt/tagged/tm_wc.h"

enum { TM_TMH = sizeof(struct ibv_tmh), TM_HEADER = sizeof(struct tm_header) };
_Static_assert(TM_TMH == 16 && TM_HEADER == 32, "as they are on the wire");

static bool tm_is_pulled(const struct ibt_qp *qp, const struct pkt *p)
{
	return (p->flags & PKT_PULL) != 0 && !qp->lossy;
}

static u64 tm_length(const struct pkt *p, bool pulled)
{
	return pulled ? p->dma_length : p->length;
}

static enum resp_verdict tm_read_header(struct ibt_qp *qp, struct path_dest *from,
					struct tm_view *v, struct tm_header *header)
	REQUIRES(qp->resp.rq_lock)
{
	bool pulled = tm_is_pulled(qp, &v->pkt);
	u64 length = tm_length(&v->pkt, pulled);

	*header = (struct tm_header){ .tmh.opcode = IBV_TMH_NO_TAG };
	if (pulled)
		return pull_peek(qp, from, &v->pkt, v->payload, v->list, header,
				 (u32)MIN(length, (u64)TM_HEADER));
	/* of constant sizes: no call */
	if (length >= TM_HEADER)
		memcpy(header, v->payload, TM_HEADER);
	else if (length >= TM_TMH)
		memcpy(header, v->payload, TM_TMH);
	return RESP_OK;
}

/* What the header says that the message is. False: no header can be so. */
static bool tm_judge(const struct tm_view *v, const struct tm_header *header, bool pulled,
		     bool last, enum tm_kind *kind)
{
	*kind = TM_NO_TAG;
	if (unlikely(tm_length(&v->pkt, pulled) < TM_TMH))
		return last;
	if (header->tmh.opcode == IBV_TMH_EAGER)
		*kind = TM_EAGER;
	else if (header->tmh.opcode == IBV_TMH_RNDV)
		*kind = TM_RNDV;
	return true;
}

/* Has the request of a rendezvous its headers, and can it lie in an entry's buffer? */
static bool tm_rndv_is_whole(const struct tm_view *v, bool pulled, bool last)
{
	u64 length = tm_length(&v->pkt, pulled);

	return last && !pulled && length >= TM_HEADER && length <= IBT_TM_MAX_RNDV_HDR;
}

static bool tm_is_tagged(enum tm_kind kind)
{
	return kind == TM_EAGER || kind == TM_RNDV;
}

/* The payload of an EAGER comes with its packets: the copy of the scatter list is enough. A
 * rendezvous keeps its entry until the data is there. */
static void tm_give_back(struct ibt_srq *srq, struct tm_conn *c) REQUIRES(srq->lock)
{
	c->copy.sge_count = c->entry->sge_count;
	for (u32 i = 0; i < c->entry->sge_count; i++)
		c->copy.sge[i] = c->entry->sge[i];
	tag_list_release(&srq->tags, c->entry);
	c->entry = NULL;
}

/* False: an ordinary buffer is needed, and there is none. *fire: as srq_take_held. */
static bool tm_find(struct ibt_srq *srq, struct tm_conn *c, enum tm_kind kind, bool *fire)
	REQUIRES(srq->lock)
{
	if (tm_is_tagged(kind))
		c->entry = tag_list_match(&srq->tags, be64toh(c->header.tmh.tag));
	if (c->entry != NULL) {
		c->copy.wr_id = c->entry->recv_wr_id;
		if (kind == TM_EAGER)
			tm_give_back(srq, c);
		return true;
	}
	if (!srq_take_held(srq, &c->copy, fire))
		return false;
	if (!tm_is_tagged(kind))
		return true;
	c->kind = TM_UNEXPECTED;
	c->sync_req = tag_list_count_unexpected(&srq->tags);
	return true;
}

static enum resp_verdict tm_look_up(struct ibt_qp *qp, enum tm_kind kind) REQUIRES(qp->resp.rq_lock)
{
	struct tm_conn *c = tm_conn(qp);
	struct ibt_srq *srq = qp->srq;
	bool found, fire = false;

	c->kind = (u8)kind;
	c->entry = NULL;
	c->told_match = false;
	lock_acquire(&srq->lock);
	found = tm_find(srq, c, kind, &fire);
	lock_release(&srq->lock);
	if (unlikely(fire))
		srq_limit(srq);
	if (!found)
		return RESP_RNR;
	qp->resp.current = &c->copy;
	return RESP_OK;
}

static void tm_point(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	const struct tm_conn *c = tm_conn(qp);
	bool tagged = c->entry != NULL;

	qp->resp.cursor = (struct mem_cursor){ .sge = tagged ? c->entry->sge : c->copy.sge,
					       .count = tagged ? c->entry->sge_count
							       : c->copy.sge_count };
}

/* The payload of an EAGER lies behind its TMH. */
static void tm_cut_tmh(struct tm_view *v, bool pulled)
{
	if (pulled) {
		pull_skip(&v->pkt, v->list, TM_TMH);
		v->payload = v->list;
	} else {
		v->payload = (const u8 *)v->payload + TM_TMH;
		v->pkt.length -= TM_TMH;
	}
}

/* The READ brings the data, if there is room. Else the request itself lies in the entry's buffer,
 * as much of it as there is room for, TMH and RVH at least. */
static void tm_cut_request(struct tm_conn *c, struct tm_view *v)
{
	u64 room = mem_list_length(c->entry->sge, (int)c->entry->sge_count);
	u32 length = be32toh(c->header.rvh.len);

	if (length <= room && length <= IBT_MAX_MESSAGE) {
		v->pkt.length = 0;
		return;
	}
	c->kind = TM_RNDV_SHORT;
	v->pkt.length = (u32)MIN(v->pkt.length, MAX(room, (u64)TM_HEADER));
}

enum resp_verdict tm_take(struct ibt_qp *qp, struct path_dest *from, struct tm_view *v, bool notice,
			  bool last)
{
	struct tm_conn *c = tm_conn(qp);
	bool pulled = tm_is_pulled(qp, &v->pkt), again = qp->resp.current != NULL;
	enum tm_kind kind = TM_NOTICE;
	enum resp_verdict verdict;
	struct tm_header header;

	if (notice)
		return again ? RESP_OK : tm_look_up(qp, TM_NOTICE);
	verdict = tm_read_header(qp, from, v, &header);
	if (unlikely(verdict != RESP_OK))
		return verdict;
	if (unlikely(!tm_judge(v, &header, pulled, last, &kind) ||
		     (again && memcmp(&header.tmh, &c->header.tmh, TM_TMH) != 0)))
		return RESP_NAK_INVALID;
	if (!again) {
		c->header = header;
		verdict = tm_look_up(qp, kind);
	}
	if (unlikely(verdict != RESP_OK))
		return verdict;
	if (unlikely(c->kind == TM_RNDV && !tm_rndv_is_whole(v, pulled, last)))
		return rq_fail(qp, -EMSGSIZE);
	tm_point(qp);
	if (c->kind == TM_EAGER)
		tm_cut_tmh(v, pulled);
	else if (c->kind == TM_RNDV)
		tm_cut_request(c, v);
	if (c->kind == TM_EAGER && !last)
		tm_complete_match(qp);
	return RESP_OK;
}
