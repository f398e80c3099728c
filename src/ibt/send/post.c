/* post.c: work requests, checked and copied into a queue's memory: what is not as simple as quick.c
 * wants it.
 * In: ibv_send_wr, ibv_recv_wr    Out: send_wqe, recv_wqe, and the requester set going
 * Runs: the poster    Locks: sq_lock; rq_lock
 * Spec: IBA vol 1, 10.8.2 (work requests)
 */
#include <errno.h>

#include "ibt/send/finish.h"
#include "ibt/send/post.h"
#include "ibt/receive/recv_queue.h"
#include "ibt/sched.h"

static void post_fill_operands(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->va = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		w->va = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		break;
	default:
		break;
	}
}

static int post_fill_inline(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	u8 *to = (u8 *)w->sge;
	u64 length = mem_list_length(wr->sg_list, wr->num_sge);

	if (length > qp->req.max_inline ||
	    (wqe_is_answered_op(w) && w->opcode != WQE_ATOMIC_WRITE))
		return -EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		if (fault_copy(to, (const void *)(uintptr_t)wr->sg_list[i].addr,
			       wr->sg_list[i].length) != 0)
			return -EFAULT;
		to += wr->sg_list[i].length;
	}
	w->sge_count = 0;
	w->length = (u32)length;
	return 0;
}

static int post_fill_sges(struct send_wqe *w, const struct ibv_send_wr *wr)
{
	u64 length = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	if (length > IBT_MAX_MESSAGE)
		return -EINVAL;
	w->sge_count = (u8)wr->num_sge;
	w->length = (u32)length;
	return 0;
}

/* In ERR the request is flushed wherever it would go: a drain has no address. */
static int post_fill_ud(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
		       ibt_av_of *av_of)
{
	if (wr->wr.ud.ah == NULL || wr->wr.ud.remote_qpn > 0xffffff ||
	    !av_of(wr->wr.ud.ah, qp->pd, &w->ud.av))
		return qp->state == IBV_QPS_ERR ? 0 : -EINVAL;
	w->ud.av.pkey = qp->pkey;
	w->ud.remote_qpn = wr->wr.ud.remote_qpn;
	w->ud.qkey = wr->wr.ud.remote_qkey;
	return 0;
}

/* ---- requests that touch this side only ---- */

enum {
	POST_KEY_LOW = 0xff, /* the consumer's part of a window's key */
	POST_BIND_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			   IBV_ACCESS_ZERO_BASED,
};

static void post_begin_local(struct ibt_qp *qp, struct send_wqe *w, u64 wr_id, u8 opcode, u32 flags)
{
	w->wr_id = wr_id;
	w->opcode = opcode;
	w->flags = (u8)(flags & (IBV_SEND_SIGNALED | IBV_SEND_FENCE)) |
		   (qp->post_flags & IBV_SEND_SIGNALED);
	w->answered = w->pull = false;
	w->psn_count = 0;
	w->imm = w->rkey = 0;
	w->sge_count = 0;
	w->length = 0;
}

/* A window of type 2 takes the low 8 bits that the consumer wants; what else the wanted key says is
 * ignored, as adapters do. Everything that the key table knows is judged when the request runs. */
static int post_fill_bind(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	const struct ibv_mw *mw = wr->bind_mw.mw;
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

	if (mw == NULL || mw->type != IBV_MW_TYPE_2 || info->mr == NULL || info->mr->lkey == 0 ||
	    (info->mw_access_flags & ~(u32)POST_BIND_ACCESS) != 0)
		return -EINVAL;
	w->imm = (mw->rkey & ~(u32)POST_KEY_LOW) | (wr->bind_mw.rkey & POST_KEY_LOW);
	w->rkey = info->mr->lkey;
	w->bind.addr = info->addr;
	w->bind.range = info->length;
	w->bind.access = info->mw_access_flags & ~(u32)IBV_ACCESS_LOCAL_WRITE;
	__atomic_store_n(&qp->has_bound, true, __ATOMIC_RELAXED);
	return 0;
}

static void post_begin_rare(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
			    u8 opcode)
{
	post_begin_local(qp, w, wr->wr_id, opcode, wr->send_flags);
	w->flags |= (u8)(wr->send_flags & (IBV_SEND_INLINE | IBV_SEND_SOLICITED));
}

/* Eight bytes, inline or in the list. */
static int post_fill_atomic_write(struct ibt_qp *qp, struct send_wqe *w,
				  const struct ibv_send_wr *wr)
{
	int err;

	if (wr->num_sge < 0 || (u32)wr->num_sge > qp->req.ring.max_sge)
		return -EINVAL;
	post_begin_rare(qp, w, wr, WQE_ATOMIC_WRITE);
	w->va = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	err = wr->send_flags & IBV_SEND_INLINE ? post_fill_inline(qp, w, wr)
					       : post_fill_sges(w, wr);
	if (err == 0 && w->length != ATOMIC_WRITE_BYTES)
		err = -EINVAL;
	w->length = 0;
	return err;
}

/* As the door builds it for ibv_wr_flush: in wr.atomic compare_add is the length of the range, and
 * swap the FETH. */
static int post_fill_flush(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	u64 feth = wr->wr.atomic.swap, type = feth & FETH_TYPE;

	if (type == 0 || (type & ~(u64)(FETH_GLOBAL | FETH_PERSISTENT)) != 0 ||
	    feth >> FETH_LEVEL_SHIFT > FETH_REGION || wr->wr.atomic.compare_add > IBT_MAX_MESSAGE)
		return -EINVAL;
	post_begin_rare(qp, w, wr, WQE_FLUSH);
	w->flags &= (u8)~IBV_SEND_INLINE;
	w->va = wr->wr.atomic.remote_addr;
	w->rkey = wr->wr.atomic.rkey;
	w->compare = wr->wr.atomic.compare_add;
	w->swap = feth;
	return 0;
}

/* What ibt_opcodes does not name: a request of the memory placement extensions, one for this side
 * (its SGEs mean nothing), or -EINVAL. */
static NOINLINE int post_fill_rare(struct ibt_qp *qp, struct send_wqe *w,
				   const struct ibv_send_wr *wr)
{
	if (wr->opcode == IBV_WR_ATOMIC_WRITE && qp_takes_fast_paths(qp))
		return post_fill_atomic_write(qp, w, wr);
	if ((int)wr->opcode == WQE_WR_FLUSH && qp_takes_fast_paths(qp))
		return post_fill_flush(qp, w, wr);
	if (!qp_is_connected(qp) ||
	    (wr->opcode != IBV_WR_LOCAL_INV && wr->opcode != IBV_WR_BIND_MW))
		return -EINVAL;
	post_begin_local(qp, w, wr->wr_id, (u8)(WQE_LOCAL | wr->opcode), wr->send_flags);
	if (wr->opcode == IBV_WR_BIND_MW)
		return post_fill_bind(qp, w, wr);
	w->imm = wr->invalidate_rkey;
	return 0;
}

static int post_fill_connected(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	post_fill_operands(qp, w, wr);
	if (likely(!qp_is_initiator(qp)))
		return 0;
	w->srqn = wr->qp_type.xrc.remote_srqn;
	return w->srqn > 0xffffff ? -EINVAL : 0;
}

/* Checks and copies one request into `w`. -EINVAL; -EFAULT: inline data is not mapped. */
static int post_fill_send(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
			  ibt_av_of *av_of)
{
	int err = 0;

	if ((u32)wr->opcode > 31 ||
	    (ibt_opcodes[qp->packet_type] & 1u << wr->opcode) == 0)
		return post_fill_rare(qp, w, wr);
	if (wr->num_sge < 0 || (u32)wr->num_sge > qp->req.ring.max_sge)
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->opcode = (u8)wr->opcode;
	w->flags = (u8)(wr->send_flags | qp->post_flags);
	w->answered = w->pull = false;
	w->psn_count = 0;
	w->imm = wr->imm_data;
	if (!qp_is_connected(qp))
		err = post_fill_ud(qp, w, wr, av_of);
	else
		err = post_fill_connected(qp, w, wr);
	if (err == 0)
		err = wr->send_flags & IBV_SEND_INLINE ? post_fill_inline(qp, w, wr)
						       : post_fill_sges(w, wr);
	if (err == 0 && w->length != 8 &&
	    (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD))
		err = -EINVAL;
	return err;
}

/* ---- posting ---- */

/* Why a queue pair that is not in RTS takes no send request; 0: it takes them. */
static int post_refusal(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	if (qp->unplugged)
		return -EIO;
	return qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT ||
			       qp->state == IBV_QPS_RTR ?
		       -EINVAL :
		       0;
}

/* How many places of the send queue are free. */
static u32 sq_room(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	u32 used, size = qp->req.ring.size;

	if ((qp->req.source.back & CQ_APART) != 0)
		cq_polled(&qp->req.source, qp->req.tail);
	used = sq_used(qp);
	return used < size ? size - used : 0;
}

static bool sq_is_full(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return unlikely(sq_used(qp) >= qp->req.ring.size) && sq_room(qp) == 0;
}

static bool rq_is_full(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	if (likely(rq_used(qp) < qp->resp.ring.size))
		return false;
	if ((qp->resp.source.back & CQ_APART) != 0)
		cq_polled(&qp->resp.source, qp->resp.tail);
	return rq_used(qp) >= qp->resp.ring.size;
}

int post_send(struct ibt_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		 ibt_av_of *av_of)
{
	int err = 0;

	if (unlikely(qp->state != IBV_QPS_RTS))
		err = post_refusal(qp);
	for (; wr != NULL && err == 0; wr = wr->next) {
		if (unlikely(sq_is_full(qp))) {
			err = qp_is_target(qp) ? -EINVAL : -ENOMEM;
			break;
		}
		err = post_fill_send(qp, sq_at(qp, qp->req.head), wr, av_of);
		if (unlikely(err != 0))
			break;
		qp->req.head++;
	}
	if (unlikely(qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE))
		finish_flush(qp);
	else
		qp_mark_runnable(qp);
	sched_leave(qp);
	if (unlikely(err != 0) && bad != NULL)
		*bad = wr;
	return err;
}

/* Written where they will lie, the requests are as good as posted, but for the head. */
int ibt_check_send(struct ibt_qp *qp, const struct ibv_send_wr *wr,
		   ibt_av_of *av_of)
{
	u32 most;
	int err;

	lock_acquire(&qp->req.sq_lock);
	err = qp->unplugged ? -EIO : 0;
	most = sq_room(qp);
	for (u32 n = 0; wr != NULL && err == 0; wr = wr->next, n++)
		err = n >= most ? -ENOMEM
				: post_fill_send(qp, sq_at(qp, qp->req.head + n), wr, av_of);
	lock_release(&qp->req.sq_lock);
	return err;
}

static int post_may_send(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	int err = post_refusal(qp);

	if (err != 0)
		return err;
	if (sq_is_full(qp))
		return -ENOMEM;
	return qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE ? -EPIPE : 0;
}

int ibt_may_send(struct ibt_qp *qp)
{
	int err;

	lock_acquire(&qp->req.sq_lock);
	err = post_may_send(qp);
	lock_release(&qp->req.sq_lock);
	return err;
}

/* Posts one request for this side. */
static int post_local(struct ibt_qp *qp, u64 wr_id, u8 opcode, u32 flags, u32 key, u32 access)
{
	int err;

	lock_acquire(&qp->req.sq_lock);
	err = post_may_send(qp);
	if (err == 0 || err == -EPIPE) {
		struct send_wqe *w = sq_at(qp, qp->req.head);

		post_begin_local(qp, w, wr_id, opcode, flags);
		w->imm = key;
		w->bind.access = access;
		qp->req.head++;
	}
	if (err == -EPIPE)
		finish_flush(qp);
	else
		qp_mark_runnable(qp);
	sched_leave(qp);
	return err == -EPIPE ? 0 : err;
}

int ibt_post_bound(struct ibt_qp *qp, u64 wr_id, u32 flags)
{
	return post_local(qp, wr_id, WQE_BIND_MW, flags, 0, 0);
}

int ibt_post_reg(struct ibt_qp *qp, u64 wr_id, u32 flags, u32 key, u32 access)
{
	if (!qp_is_connected(qp))
		return -EINVAL;
	return post_local(qp, wr_id, WQE_REG_MR, flags, key, access);
}

int post_recv(struct ibt_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = qp->srq != NULL || qp_is_initiator(qp) || qp_is_target(qp) ? -EINVAL : 0;

	if (unlikely(qp->unplugged))
		err = -EIO;
	else if (qp->state == IBV_QPS_RESET)
		err = -EINVAL;
	for (; wr != NULL && err == 0; wr = wr->next) {
		if (unlikely(rq_is_full(qp))) {
			err = -ENOMEM;
			break;
		}
		err = wqe_fill_recv(&qp->resp.ring, wqe_recv_at(&qp->resp.ring, qp->resp.head),
				    wr);
		if (unlikely(err != 0))
			break;
		qp->resp.head++;
	}
	if (unlikely(qp->state == IBV_QPS_ERR))
		rq_flush(qp);
	lock_release(&qp->resp.rq_lock);
	if (unlikely(err != 0) && bad != NULL)
		*bad = wr;
	return err;
}
