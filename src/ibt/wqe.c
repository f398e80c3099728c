/* wqe.c: work requests, checked and copied into a queue's memory.
 * In: ibv_send_wr, ibv_recv_wr    Out: send_wqe, recv_wqe    Runs: the poster
 * Locks: the caller holds the queue's
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ibt/ibt_priv.h"

static u32 wqe_pow2(u32 n)
{
	u32 p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static u32 wqe_align(u32 n)
{
	return (n + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

u32 wqe_send_stride(u32 max_sge, u32 max_inline)
{
	return wqe_align((u32)sizeof(struct send_wqe) +
			 MAX(max_sge * (u32)sizeof(struct ibv_sge), max_inline));
}

int wqe_ring_init(struct wqe_ring *r, u32 size, u32 stride, u32 max_sge)
{
	u32 slots = wqe_pow2(MAX(size, 1));

	r->stride = stride != 0 ? stride
				: wqe_align((u32)(sizeof(struct recv_wqe) +
						  max_sge * sizeof(struct ibv_sge)));
	r->mask = slots - 1;
	r->size = size;
	r->max_sge = max_sge;
	r->memory = NULL;
	if (size == 0)
		return 0;
	r->memory = aligned_alloc(CACHE_LINE, (size_t)slots * r->stride);
	return r->memory == NULL ? -ENOMEM : 0;
}

void wqe_ring_fini(struct wqe_ring *r)
{
	free(r->memory);
	r->memory = NULL;
}

/* Which opcodes a queue pair of a type takes, as bits. IBA vol 1, 10.8.2.1. */
static u32 wqe_opcodes(u32 type)
{
	u32 send = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM;
	u32 write = 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM;

	switch (type) {
	case IBV_QPT_RC:
		return send | write | 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
		       1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_SEND_WITH_INV |
		       1u << IBV_WR_LOCAL_INV;
	case IBV_QPT_UC:
		return send | write | 1u << IBV_WR_LOCAL_INV;
	default:
		return send;
	}
}

static void wqe_fill_operands(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
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
	case IBV_WR_LOCAL_INV:
		w->imm = wr->invalidate_rkey;
		break;
	default:
		break;
	}
}

static int wqe_fill_inline(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
{
	u8 *to = (u8 *)w->sge;
	u64 length = mem_list_length(wr->sg_list, wr->num_sge);

	if (length > qp->max_inline || wqe_is_answered_op(w))
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

static int wqe_fill_sges(struct send_wqe *w, const struct ibv_send_wr *wr)
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

static int wqe_fill_ud(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
		       ibt_av_of *av_of)
{
	if (wr->wr.ud.ah == NULL || wr->wr.ud.remote_qpn > 0xffffff ||
	    !av_of(wr->wr.ud.ah, qp->pd, &w->ud.av))
		return -EINVAL;
	w->ud.remote_qpn = wr->wr.ud.remote_qpn;
	w->ud.qkey = wr->wr.ud.remote_qkey;
	return 0;
}

int wqe_fill_send(struct ibt_qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
		  ibt_av_of *av_of)
{
	int err = 0;

	if ((u32)wr->opcode > 31 || (wqe_opcodes(qp->type) & 1u << wr->opcode) == 0)
		return -EINVAL;
	if (wr->num_sge < 0 || (u32)wr->num_sge > qp->sq.max_sge)
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->opcode = (u8)wr->opcode;
	w->flags = (u8)(wr->send_flags | (qp->sig_all ? IBV_SEND_SIGNALED : 0));
	w->answered = w->pull = false;
	w->psn_count = 0;
	w->imm = wr->imm_data;
	if (qp->type == IBV_QPT_UD)
		err = wqe_fill_ud(qp, w, wr, av_of);
	else
		wqe_fill_operands(qp, w, wr);
	if (err == 0)
		err = wr->send_flags & IBV_SEND_INLINE ? wqe_fill_inline(qp, w, wr)
						       : wqe_fill_sges(w, wr);
	if (err == 0 && w->length != 8 &&
	    (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD))
		err = -EINVAL;
	return err;
}

void wqe_fill_bound(struct ibt_qp *qp, struct send_wqe *w, u64 wr_id, u32 flags)
{
	w->wr_id = wr_id;
	w->opcode = IBV_WR_BIND_MW;
	w->flags = (u8)(flags & (IBV_SEND_SIGNALED | IBV_SEND_FENCE)) |
		   (qp->sig_all ? IBV_SEND_SIGNALED : 0);
	w->answered = w->pull = false;
	w->psn_count = 0;
	w->imm = 0;
	w->sge_count = 0;
	w->length = 0;
}

int wqe_fill_recv(const struct wqe_ring *r, struct recv_wqe *w, const struct ibv_recv_wr *wr)
{
	u64 length = 0;

	if (wr->num_sge < 0 || (u32)wr->num_sge > r->max_sge)
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->sge_count = (u32)wr->num_sge;
	if (likely(wr->num_sge == 1)) {
		w->sge[0].addr = wr->sg_list[0].addr;
		w->sge[0].length = w->length = wr->sg_list[0].length;
		w->sge[0].lkey = wr->sg_list[0].lkey;
		return 0;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	w->length = (u32)MIN(length, (u64)UINT32_MAX);
	return 0;
}
