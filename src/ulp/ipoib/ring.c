/* ring.c: buffers, the queue pair, and completions, as NAPI polls them: a budget of completions,
 * then the arm, and again if the midlayer says that one may have been missed.
 * In:    frames to send, completions    Out: requests, packets for the stack above
 * Runs:  senders; the completion handler    Locks: ipoib.lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ulp/ipoib/ipoib_priv.h"

/* ---- buffers --------------------------------------------------------------------------------- */

static void ipoib_ring_give(struct ipoib *ip, struct ipoib_buffer *b) REQUIRES(ip->lock)
{
	list_push_back(&ip->idle, &b->node);
	cond_wake(&ip->idle_news);
}

struct ipoib_buffer *ipoib_ring_get(struct ipoib *ip)
{
	struct list_head *node = list_pop_front(&ip->idle);

	return node == NULL ? NULL : list_entry(node, struct ipoib_buffer, node);
}

struct ipoib_buffer *ipoib_get(struct ipoib *ip)
{
	struct ipoib_buffer *b;

	lock_acquire(&ip->lock);
	while (ip->in_flight >= IPOIB_SEND_RING - IPOIB_SPARE || list_empty(&ip->idle))
		cond_wait(&ip->idle_news, &ip->lock);
	b = ipoib_ring_get(ip);
	lock_release(&ip->lock);
	return b;
}

void ipoib_ring_drop(struct ipoib *ip, struct ipoib_buffer *b, enum ipoib_drop why)
{
	ip->counters.dropped[why]++;
	ipoib_ring_give(ip, b);
}

/* ---- requests -------------------------------------------------------------------------------- */

void ipoib_ring_post(struct ipoib *ip, struct ipoib_buffer *b, struct ib_ah *ah, u32 qpn)
{
	struct ib_sge sge = { (uintptr_t)b->frame, b->size, ip->mr->lkey };
	struct ib_send_wr wr = { .wr_id = (uintptr_t)b,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IB_WR_SEND,
				 .send_flags = IB_SEND_SIGNALED,
				 .wr.ud = { .ah = ah,
					    .remote_qpn = qpn,
					    .remote_qkey = ip->qkey } }, *bad;

	if (!ip->open || ip->in_flight == IPOIB_SEND_RING || ib_post_send(ip->qp, &wr, &bad) != 0) {
		ipoib_ring_drop(ip, b, ip->open ? IPOIB_DROP_ROOM : IPOIB_DROP_LINK);
		return;
	}
	ip->in_flight++;
}

/* The request's number has bit 0 set: a buffer's address has not. */
static int ipoib_ring_post_receive(struct ipoib *ip, u32 index)
{
	struct ib_sge sge = { (uintptr_t)ip->rx[index].bytes, IPOIB_RECEIVE_BYTES, ip->mr->lkey };
	struct ib_recv_wr wr = { .wr_id = (u64)index << 1 | 1, .sg_list = &sge, .num_sge = 1 },
			  *bad;

	return ib_post_recv(ip->qp, &wr, &bad);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void ipoib_ring_sent(struct ipoib *ip, const struct ib_wc *wc) REQUIRES(ip->lock)
{
	struct ipoib_buffer *b = (void *)(uintptr_t)wc->wr_id;

	ip->in_flight--;
	if (wc->status != IB_WC_SUCCESS) {
		ipoib_ring_drop(ip, b, IPOIB_DROP_STATUS);
		return;
	}
	ip->counters.sent++;
	ipoib_ring_give(ip, b);
}

/* A group's datagrams come back to a sender that is a member. */
static bool ipoib_ring_is_own(const struct ipoib *ip, const struct ib_wc *wc) REQUIRES(ip->lock)
{
	return wc->src_qp == ip->qp->qp_num && wc->slid == ip->lid;
}

/* NULL: no packet for the stack above. */
static const u8 *ipoib_ring_received(struct ipoib *ip, const struct ib_wc *wc, u32 *size)
	REQUIRES(ip->lock)
{
	const u8 *bytes = ip->rx[wc->wr_id >> 1].bytes + IPOIB_GRH;
	struct ipoib_frame f;

	if (wc->status != IB_WC_SUCCESS || wc->byte_len < IPOIB_GRH) {
		ip->counters.dropped[IPOIB_DROP_STATUS]++;
		return NULL;
	}
	if (ipoib_ring_is_own(ip, wc))
		return NULL;
	ipoib_frame_read(bytes, wc->byte_len - IPOIB_GRH, &f);
	if (f.kind == FRAME_BAD) {
		ip->counters.dropped[IPOIB_DROP_FORM]++;
		return NULL;
	}
	ip->counters.received++;
	if (f.kind != FRAME_IP) {
		ipoib_speak_hear(ip, &f);
		return NULL;
	}
	*size = wc->byte_len - IPOIB_GRH - IPOIB_HEAD;
	return bytes + IPOIB_HEAD;
}

static void ipoib_ring_completed(struct ipoib *ip, const struct ib_wc *wc)
{
	bool received = (wc->wr_id & 1) != 0, flushed = wc->status == IB_WC_WR_FLUSH_ERR;
	const u8 *packet = NULL;
	u32 size = 0;

	lock_acquire(&ip->lock);
	if (received && !flushed)
		packet = ipoib_ring_received(ip, wc, &size);
	else if (!received)
		ipoib_ring_sent(ip, wc);
	lock_release(&ip->lock);
	if (packet != NULL)
		ip->ops->receive(ip->arg, packet, size);
	if (received && !flushed)
		(void)ipoib_ring_post_receive(ip, (u32)(wc->wr_id >> 1));
}

/* Returns how many completions there were, at most the budget. */
static int ipoib_ring_poll(struct ipoib *ip, struct ib_cq *cq, int budget)
{
	struct ib_wc wc[IPOIB_BUDGET];
	int n = ib_poll_cq(cq, budget, wc);

	for (int i = 0; i < n; i++)
		ipoib_ring_completed(ip, &wc[i]);
	return n;
}

static void ipoib_ring_completion(struct ib_cq *cq, void *context)
{
	struct ipoib *ip = context;

	do
		while (ipoib_ring_poll(ip, cq, IPOIB_BUDGET) == IPOIB_BUDGET)
			;
	while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
}

/* ---- the queue pair -------------------------------------------------------------------------- */

static int ipoib_ring_to_rts(struct ipoib *ip)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT,
				   .port_num = ip->config.port,
				   .qkey = IPOIB_QKEY };
	int err;

	lock_acquire(&ip->lock);
	attr.pkey_index = ip->pkey_index;
	lock_release(&ip->lock);
	err = ib_modify_qp(ip->qp, &attr,
			   IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY);
	attr.qp_state = IB_QPS_RTR;
	if (err == 0)
		err = ib_modify_qp(ip->qp, &attr, IB_QP_STATE);
	attr.qp_state = IB_QPS_RTS;
	if (err == 0)
		err = ib_modify_qp(ip->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
	return err;
}

static int ipoib_ring_fill(struct ipoib *ip)
{
	int err = 0;

	for (u32 i = 0; i < IPOIB_RECEIVE_RING && err == 0; i++)
		err = ipoib_ring_post_receive(ip, i);
	if (err == 0)
		err = ib_req_notify_cq(ip->cq, IB_CQ_NEXT_COMP);
	return err;
}

/* Stores the object, or NULL and the errno that it is. */
#define RING_MADE(field, object)                                                                   \
	((field) = (object), IS_ERR(field) ? (err = (int)PTR_ERR(field), (field) = NULL, false)    \
					   : true)

int ipoib_ring_open(struct ipoib *ip)
{
	struct ib_qp_init_attr init = { .qp_type = IB_QPT_UD,
					.sq_sig_type = IB_SIGNAL_REQ_WR,
					.cap = { .max_send_wr = IPOIB_SEND_RING,
						 .max_recv_wr = IPOIB_RECEIVE_RING,
						 .max_send_sge = 1,
						 .max_recv_sge = 1 } };
	int err = 0;

	if (!RING_MADE(ip->pd, ib_alloc_pd(ip->device)) ||
	    !RING_MADE(ip->mr, ib_get_dma_mr(ip->pd, IB_ACCESS_LOCAL_WRITE)) ||
	    !RING_MADE(ip->cq, ib_create_cq(ip->device, ipoib_ring_completion, NULL, ip,
					    IPOIB_SEND_RING + IPOIB_RECEIVE_RING, 0)))
		return err;
	init.send_cq = init.recv_cq = ip->cq;
	if (!RING_MADE(ip->qp, ib_create_qp(ip->pd, &init)))
		return err;
	err = ipoib_ring_to_rts(ip);
	return err == 0 ? ipoib_ring_fill(ip) : err;
}

/* Completions that nobody will poll: their buffers are idle again. */
static void ipoib_ring_reclaim(struct ipoib *ip)
{
	while (ip->cq != NULL && ipoib_ring_poll(ip, ip->cq, IPOIB_BUDGET) > 0)
		;
}

void ipoib_ring_close(struct ipoib *ip)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	if (ip->qp != NULL) {
		(void)ib_modify_qp(ip->qp, &attr, IB_QP_STATE);
		ipoib_ring_reclaim(ip);
		(void)ib_destroy_qp(ip->qp);
	}
	if (ip->cq != NULL)
		(void)ib_destroy_cq(ip->cq);
	if (ip->mr != NULL)
		(void)ib_dereg_mr(ip->mr);
	if (ip->pd != NULL)
		(void)ib_dealloc_pd(ip->pd);
	ip->qp = NULL;
	ip->cq = NULL;
	ip->mr = NULL;
	ip->pd = NULL;
}
