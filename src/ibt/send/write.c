/* write.c: the fast path of WRITEs into memory that is mapped here, and of those of a list that
 * adjoin where it is not: RC, one local piece of memory each, with nothing else in flight. They are
 * done when the path has taken them, so there is no record of them, only a completion if one is
 * requested. All other WRITEs take the general path (qp.c, requester.c) from the beginning.
 *
 * In: requests    Out: the peer's memory, completions
 * Runs: the poster    Locks: sq_lock, then the CQ's
 */
#include "ibt/send/finish.h"
#include "ibt/send/write.h"

enum { WRITE_LIST = 16 };

static inline bool write_take(const struct ibt_qp *qp, const struct ibv_send_wr *wr,
			      struct path_write *w) REQUIRES(qp->req.sq_lock)
{
	const struct ibv_sge *sge = wr->sg_list;
	u32 piece;

	if (unlikely(wr->num_sge != 1 || wr->opcode != IBV_WR_RDMA_WRITE))
		return false;
	w->length = piece = sge->length;
	w->va = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	if (unlikely(w->length - 1 >= IBT_MAX_MESSAGE))
		return false;
	if (wr->send_flags & IBV_SEND_INLINE) {
		w->from = (const void *)(uintptr_t)sge->addr;
		return likely(w->length <= qp->req.max_inline);
	}
	w->from = mem_local(qp->ibt->cfg.mem, qp->pd, sge->lkey, sge->addr, w->length, 0, &piece);
	__builtin_prefetch(w->from); /* read behind a locked instruction */
	return likely(w->from != NULL && piece == w->length);
}

/* `place`: requests posted up to this one. If its CQ has overflowed the queue pair fails. */
static inline void write_tell(struct ibt_qp *qp, const struct ibv_send_wr *wr, u32 place)
	REQUIRES(qp->req.sq_lock)
{
	struct cqe *e = cq_reserve(qp->send_cq);

	if (unlikely(!e)) {
		finish_overflowed(qp);
		return;
	}
	cqe_set(e, wr->wr_id, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, wr->sg_list->length, qp->qpn, 0,
		&qp->req.source, place);
	cq_commit(qp->send_cq, e, false);
}

/* The first `n` are done: they take places of the send queue like others. Returns the one after
 * them. */
static inline struct ibv_send_wr *write_complete(struct ibt_qp *qp, struct ibv_send_wr *wr, u32 n)
	REQUIRES(qp->req.sq_lock)
{
	u32 place = qp->req.head, end = place + n;
	struct ibt_counters *c;
	u64 bytes = 0;

	qp->req.head = qp->req.next = end;
	__atomic_store_n(&qp->req.tail, end, __ATOMIC_RELAXED); /* as in finish_pop */
	for (; place != end; wr = wr->next) {
		place++;
		bytes += wr->sg_list->length;
		if ((wr->send_flags | qp->post_flags) & IBV_SEND_SIGNALED)
			write_tell(qp, wr, place);
	}
	c = qp->counters;
	__atomic_store_n(&c->sent, c->sent + n, __ATOMIC_RELAXED);
	__atomic_store_n(&c->sent_bytes, c->sent_bytes + bytes, __ATOMIC_RELAXED);
	return wr;
}

/* The peer has died, and had more to send. */
static bool write_has_lost(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	const struct path_ops *ops = qp->dest->path->ops;

	return qp->state != IBV_QPS_RTS && ops->behind != NULL &&
	       ops->behind(qp->dest, qp->dest_qpn);
}

bool ibt_store(struct ibt_qp *qp, u32 rkey, u64 va, const void *from, u32 length)
{
	struct path_write w = { .from = from, .va = va, .rkey = rkey, .length = length };
	struct ibt_counters *c = qp->counters;
	u32 done = 0;


	lock_acquire(&qp->req.sq_lock);
	if (qp->packet_type != IBV_QPT_RC || qp->dest == NULL)
		goto unlock;
	if (length == 0)
		done = qp->dest->path->guarantees.reliable && !write_has_lost(qp);
	else if (qp->state == IBV_QPS_RTS && !qp_port_is_down(qp) &&
		 qp->dest->path->ops->writes != NULL && length - 1 < IBT_MAX_MESSAGE)
		/* of shared memory: link_writes */
		done = qp->dest->path->ops->writes(qp->dest, qp->qpn, qp->dest_qpn, &qp->grant, &w,
						   1);
	if (done != 0)
		__atomic_store_n(&c->sent_bytes, c->sent_bytes + length, __ATOMIC_RELAXED);
unlock:
	lock_release(&qp->req.sq_lock);
	return done != 0;
}

/* Does the first WRITEs together, where nothing is mapped. Returns how many. */
static NOINLINE u32 write_join(struct ibt_qp *qp, const struct path_write *w, u32 n)
	REQUIRES(qp->req.sq_lock)
{
	const struct path_ops *ops = qp->dest->path->ops;

	if (n < 2 || ops->writes_joined == NULL || w[1].va != w->va + w->length ||
	    w[1].rkey != w->rkey)
		return 0;
	return ops->writes_joined(qp->dest, qp->qpn, qp->dest_qpn, w, n);
}

struct ibv_send_wr *write_post(struct ibt_qp *qp, struct ibv_send_wr *wr)
{
	struct path_write list[WRITE_LIST];
	const struct path_ops *ops = qp->dest->path->ops;
	const struct ibv_send_wr *next = wr;
	u32 count = 0, used = sq_used(qp), most, done;

	if (unlikely(ops->writes == NULL || qp->req.tail != qp->req.head ||
		     used >= qp->req.ring.size || qp->req.ring.max_sge == 0))
		return wr;
	most = MIN(qp->req.ring.size - used, (u32)WRITE_LIST);
	do {
		if (unlikely(!write_take(qp, next, &list[count])))
			break;
		next = next->next;
		count++;
	} while (next != NULL && count < most);
	if (unlikely(count == 0))
		return wr;
	done = ops->writes(qp->dest, qp->qpn, qp->dest_qpn, &qp->grant, list, count);
	if (unlikely(done == 0))
		done = write_join(qp, list, count);
	return likely(done != 0) ? write_complete(qp, wr, done) : wr;
}
