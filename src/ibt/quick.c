/* quick.c: the shortest way of a small SEND: RC, one piece of memory, in sequence, on a path that
 * loses nothing, with nothing else under way. Whatever is not exactly so goes the general way
 * (requester.c, responder.c), from the beginning: a quick function that says false has changed
 * nothing that counts.
 *
 * In: a request or a packet    Out: a packet or a completion
 * Runs: the poster; whoever receives    Locks: sq_lock; rq_lock, then the CQ's
 */
#include "base/small_copy.h"
#include "ibt/ibt_priv.h"

enum { QUICK_BYTES = SMALL_COPY_MAX };

static inline bool quick_admits(const struct ibt_qp *qp, const struct ibv_send_wr *wr)
	REQUIRES(qp->sq_lock)
{
	return qp->quick && qp->state == IBV_QPS_RTS && wr->next == NULL &&
	       wr->opcode == IBV_WR_SEND && wr->num_sge == 1 &&
	       wr->sg_list->length - 1 < QUICK_BYTES && qp->sq_next == qp->sq_head &&
	       qp->waiting == WAIT_NONE && qp->sq_head - qp->sq_tail < qp->sq.size &&
	       (wr->send_flags & IBV_SEND_FENCE) == 0;
}

/* The bytes to send, where they stay until the request completes. NULL: look closer. */
static inline const void *quick_data(struct ibt_qp *qp, struct send_wqe *w,
				     const struct ibv_send_wr *wr) REQUIRES(qp->sq_lock)
{
	const struct ibv_sge *sge = wr->sg_list;
	const void *data;
	u32 piece;

	if (wr->send_flags & IBV_SEND_INLINE) {
		if (unlikely(sge->length > qp->max_inline))
			return NULL;
		small_copy(w->sge, (const void *)(uintptr_t)sge->addr, sge->length);
		w->sge_count = 0;
		return w->sge;
	}
	data = mem_local(qp->ibt->cfg.mem, qp->pd, sge->lkey, sge->addr, sge->length, 0, &piece);
	if (unlikely(piece != sge->length))
		return NULL;
	w->sge[0].addr = sge->addr;
	w->sge[0].length = sge->length;
	w->sge[0].lkey = sge->lkey;
	w->sge_count = 1;
	return data;
}

static inline void quick_fill(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
	REQUIRES(qp->sq_lock)
{
	w->wr_id = wr->wr_id;
	w->opcode = IBV_WR_SEND;
	w->flags = (u8)(wr->send_flags | (qp->sig_all ? IBV_SEND_SIGNALED : 0));
	w->answered = w->pull = false;
	w->length = wr->sg_list->length;
	w->first_psn = qp->sq_psn;
	w->psn_count = 1;
}

bool quick_send(struct ibt_qp *qp, const struct ibv_send_wr *wr)
{
	const struct path_ops *ops;
	struct send_wqe *w;
	struct iovec iov;
	struct pkt p;

	if (unlikely(!quick_admits(qp, wr)))
		return false;
	w = sq_at(qp, qp->sq_head);
	iov.iov_base = (void *)(uintptr_t)quick_data(qp, w, wr);
	iov.iov_len = wr->sg_list->length;
	if (unlikely(iov.iov_base == NULL))
		return false;
	quick_fill(qp, w, wr);
	req_fill(qp, &p, PKT_SEND_ONLY);
	p.length = w->length;
	p.imm = 0;
	if (wr->send_flags & IBV_SEND_SOLICITED)
		p.flags |= PKT_SOLICITED;
	if (req_wants_ack(qp, w))
		p.flags |= PKT_ACK_REQUEST;
	ops = qp->dest->path->ops;
	if (unlikely(ops->send(qp->dest, &p, &iov, 1) != 0)) {
		req_return_ack(qp, &p);
		return false;
	}
	qp->sq_next = ++qp->sq_head;
	qp->sq_psn = (qp->sq_psn + 1) & PSN_MASK;
	ops->flush(qp->dest);
	return true;
}

static inline bool quick_expects(const struct ibt_qp *qp, const struct path_dest *from,
				 const struct pkt *p) REQUIRES(qp->rq_lock)
{
	return qp->quick && qp->state == IBV_QPS_RTS && qp->dest == from &&
	       p->sqpn == qp->dest_qpn && p->psn == qp->epsn && qp->untold == 0 &&
	       qp->in_message == 0 && qp->current == NULL && qp->srq == NULL &&
	       qp->rq_tail != qp->rq_head && qp->resource_next == qp->resource_head &&
	       (p->flags & PKT_PULL) == 0 && p->length - 1 < QUICK_BYTES;
}

/* Copies into the oldest receive request and completes it. */
static inline bool quick_deliver(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->rq_lock)
{
	const struct recv_wqe *w = ring_recv_at(&qp->rq, qp->rq_tail);
	struct cqe *e;
	void *to;
	u32 piece;

	if (unlikely(w->sge_count != 1 || p->length > w->sge[0].length))
		return false;
	to = mem_local(qp->ibt->cfg.mem, qp->pd, w->sge[0].lkey, w->sge[0].addr, p->length,
		       IBV_ACCESS_LOCAL_WRITE, &piece);
	if (unlikely(to == NULL || piece != p->length))
		return false;
	e = cq_reserve(qp->recv_cq);
	if (unlikely(!e))
		return false;
	small_copy(to, payload, p->length);
	cqe_set(e, w->wr_id, IBV_WC_SUCCESS, IBV_WC_RECV, p->length, qp->qpn, p->sqpn, qp->owner);
	cq_commit(qp->recv_cq, e, (p->flags & PKT_SOLICITED) != 0);
	return true;
}

bool quick_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		   const void *payload)
{
	bool done;

	lock_acquire(&qp->rq_lock);
	done = likely(quick_expects(qp, from, p)) && quick_deliver(qp, p, payload);
	if (likely(done)) {
		qp->rq_tail++;
		qp->nak_sent = false;
		qp->epsn = (qp->epsn + 1) & PSN_MASK;
		qp->msn = (qp->msn + 1) & PSN_MASK;
		__atomic_store_n(&qp->counters->received, qp->counters->received + 1,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&qp->counters->received_bytes,
				 qp->counters->received_bytes + p->length, __ATOMIC_RELAXED);
		resp_owe_ack(qp, from, (p->flags & PKT_ACK_REQUEST) != 0);
	}
	lock_release(&qp->rq_lock);
	return done;
}
