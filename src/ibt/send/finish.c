/* finish.c: how send requests end, one by one or with their queue pair: completions, errors,
 * flushes.
 * In:    requests that are done, or have failed    Out: send completions, state, async events
 * Runs:  the thread that runs the requester or receives
 * Locks:  sq_lock, then rq_lock, then the CQ's
 * Spec:  IBA vol 1, 10.3.1 (SQE, ERR), 10.8.3 (completion), 11.6.2 (statuses)
 */
#include "base/clock.h"
#include "ibt/counted.h"
#include "ibt/send/finish.h"
#include "ibt/receive/recv_queue.h"
#include "ibt/receive/refuse.h"
#include "ibt/tagged/tm_rndv.h"
#include "ibt/lossy/window.h"

static const u8 finish_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[WQE_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
	[WQE_FLUSH] = WQE_WC_FLUSH,
	[WQE_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[WQE_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
	[WQE_REG_MR] = WQE_WC_REG_MR,
};

/* Tells the path, and marks the last request that has followed. The bit of another kind of request
 * is the application's, which sets what nobody has defined. */
static void finish_left(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status)
	REQUIRES(qp->req.sq_lock)
{
	u32 behind = qp->req.next - qp->req.tail - 1, n = (u32)w->left;
	struct send_wqe *last = sq_at(qp, qp->req.next - 1);
	u64 now = clock_now_ns(), ns = now - w->left_ns;

	if ((w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_READ) || qp->dest == NULL ||
	    qp->dest->path->ops->answered == NULL)
		return;
	if (status != IBV_WC_SUCCESS) { /* how long that took says nothing */
		n = 0;
		ns = 0;
	}
	if (behind >= qp->req.ring.size || last->rkey != w->rkey || last->opcode != w->opcode)
		behind = 0;
	qp->dest->path->ops->answered(qp->dest, n, ns, behind != 0);
	if (behind == 0)
		return;
	last->flags |= WQE_LEFT;
	last->left_ns = now;
	last->left = behind;
}

/* Counts the request. True: the consumer gets no completion for it (it is unsignalled, or a request
 * of a rendezvous, whose tag entry may have completed instead). *room: false if the CQ had no room
 * for that entry's completion. */
static bool finish_marked(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status,
			  bool *room) REQUIRES(qp->req.sq_lock)
{
	if ((w->flags & WQE_LEFT) != 0)
		finish_left(qp, w, status);
	if ((w->flags & WQE_TM) != 0)
		return tm_rndv_finish(qp, w, status, room);
	if ((w->flags & WQE_COUNTED) != 0)
		counted_send(qp, w, status);
	*room = true;
	return status == IBV_WC_SUCCESS && (w->flags & IBV_SEND_SIGNALED) == 0;
}

static bool finish_push(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status)
	REQUIRES(qp->req.sq_lock)
{
	bool room;
	struct cqe *e;

	if (unlikely((w->flags & (WQE_TM | WQE_COUNTED | WQE_LEFT)) != 0) &&
	    finish_marked(qp, w, status, &room))
		return room;
	e = cq_reserve(qp->send_cq);
	if (unlikely(!e))
		return false;
	cqe_set(e, w->wr_id, status, (enum ibv_wc_opcode)finish_opcodes[w->opcode], w->length,
		qp->qpn, 0, &qp->req.source, qp->req.tail + 1);
	cq_commit(qp->send_cq, e, status != IBV_WC_SUCCESS);
	return true;
}

/* The oldest request leaves the queue. False: its CQ has overflowed. */
static bool finish_pop(struct ibt_qp *qp, struct send_wqe *w, enum ibv_wc_status status)
	REQUIRES(qp->req.sq_lock)
{
	bool room = true;

	if ((w->flags & (IBV_SEND_SIGNALED | WQE_COUNTED | WQE_LEFT)) != 0 ||
	    status != IBV_WC_SUCCESS)
		room = finish_push(qp, w, status);
	if (status == IBV_WC_SUCCESS) {
		__atomic_store_n(&qp->counters->sent, qp->counters->sent + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&qp->counters->sent_bytes, qp->counters->sent_bytes + w->length,
				 __ATOMIC_RELAXED);
	} else {
		qp_count_error(qp, status, 0);
	}
	/* Pairs with nothing: posters read it under the lock; the hint in status needs no order. */
	__atomic_store_n(&qp->req.tail, qp->req.tail + 1, __ATOMIC_RELAXED);
	return room;
}

void finish_request(struct ibt_qp *qp, struct send_wqe *w)
{
	if (unlikely(!finish_pop(qp, w, IBV_WC_SUCCESS)))
		finish_overflowed(qp);
}

void finish_answered(struct ibt_qp *qp, struct send_wqe *w)
{
	struct ibt_counters *c = qp->counters;

	if (w->opcode == IBV_WR_RDMA_READ) {
		__atomic_store_n(&c->reads, c->reads + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&c->read_bytes, c->read_bytes + w->length, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_RELEASE); /* pairs with tally_of_connection */
	}
	finish_request(qp, w);
}

bool finish_up_to(struct ibt_qp *qp, u32 psn)
{
	bool any = false;

	while (qp->req.tail != qp->req.next) {
		struct send_wqe *w = sq_at(qp, qp->req.tail);
		u32 last = (w->first_psn + w->psn_count - 1) & PSN_MASK;

		if (psn_ahead(last, psn) > 0 || (wqe_is_answered_op(w) && !w->answered))
			break;
		finish_request(qp, w);
		any = true;
	}
	return any;
}

void finish_flush(struct ibt_qp *qp)
{
	enum ibv_wc_status first = qp->owes_retry_exc ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR;

	qp->req.waiting = WAIT_NONE;
	qp->req.tx_offset = 0;
	qp->req.rx_offset = 0;
	qp->req.reads_out = 0;
	if (qp->streams)
		window_leave(qp);
	if (qp->req.tail != qp->req.head) {
		qp->owes_retry_exc = false;
		finish_pop(qp, sq_at(qp, qp->req.tail), first);
	}
	while (qp->req.tail != qp->req.head)
		finish_pop(qp, sq_at(qp, qp->req.tail), IBV_WC_WR_FLUSH_ERR);
	qp->req.next = qp->req.tail;
}

void finish_with_error(struct ibt_qp *qp, enum ibv_wc_status status)
{
	if (qp->req.tail != qp->req.head && !finish_pop(qp, sq_at(qp, qp->req.tail), status)) {
		finish_overflowed(qp);
		return;
	}
	if (qp_is_reliable(qp)) {
		finish_qp(qp);
		return;
	}
	lock_acquire(&qp->resp.rq_lock);
	qp_set_state(qp, IBV_QPS_SQE);
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	lock_release(&qp->resp.rq_lock);
	finish_flush(qp);
}

void finish_drain(struct ibt_qp *qp)
{
	if (qp->state != IBV_QPS_SQD || qp->req.tail != qp->drain_stop)
		return;
	qp->req.draining = false;
	if (qp->attr.en_sqd_async_notify)
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_SQ_DRAINED);
	qp->attr.sq_draining = 0;
}

void finish_both(struct ibt_qp *qp)
{
	refuse_leave(qp);
	qp_set_state(qp, IBV_QPS_ERR);
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	timer_cancel(qp->ibt->cfg.timers, &qp->req.timer);
	finish_flush(qp);
	rq_flush(qp);
	if (qp->srq != NULL && !qp_is_target(qp))
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* False: it had failed before, or is in RESET. */
static bool finish_once(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	bool fails;

	lock_acquire(&qp->resp.rq_lock);
	fails = qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET;
	if (fails)
		finish_both(qp);
	lock_release(&qp->resp.rq_lock);
	return fails;
}

void finish_qp(struct ibt_qp *qp)
{
	(void)finish_once(qp);
}

void finish_overflowed(struct ibt_qp *qp)
{
	if (finish_once(qp))
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_QP_FATAL);
}
