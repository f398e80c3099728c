/* packet.c: one packet of a send request: its opcode, header fields, local memory; and its way to
 * the path.
 * In:    a request and a position in it    Out: packets
 * Runs:  the thread that runs the requester    Locks: sq_lock    Spec: IBA vol 1, 9.7.3, 9.8.2
 */
#include <errno.h>

#include "ibt/receive/ack.h"
#include "ibt/block.h"
#include "ibt/send/packet.h"
#include "ibt/send/portdown.h"

void packet_fill(struct ibt_qp *qp, struct pkt *p, u8 opcode)
{
	u32 ack = qp->dest->path->guarantees.reliable ? ack_take(qp) : 0;

	p->opcode = opcode;
	p->flags = 0;
	p->qp_type = qp->packet_type;
	p->syndrome = 0;
	p->unmigrated = false;
	p->dqpn = qp->dest_qpn;
	p->sqpn = qp->qpn;
	p->psn = qp->req.psn;
	p->pkey = qp->pkey;
	p->ack_psn = 0;
	/* An owed acknowledgement travels along. */
	if (ack & ACK_OWED) {
		p->flags |= PKT_HAS_ACK;
		p->ack_psn = ack & PSN_MASK;
	}
}

int packet_send(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
{
	int err;

	if (unlikely(qp_is_special(qp)))
		err = portdown_request(qp, p, iov, n);
	else
		err = qp->dest->path->ops->send(qp->dest, p, iov, n);
	if (unlikely(err == -EAGAIN)) {
		/* Once more after we are on the list: room that came in between has no other
		 * witness. */
		block_wait(qp, qp->dest);
		err = qp_is_special(qp) ? portdown_request(qp, p, iov, n)
					: qp->dest->path->ops->send(qp->dest, p, iov, n);
	}
	if (unlikely(err != 0) && (p->flags & PKT_HAS_ACK) != 0)
		ack_return(qp, p->ack_psn);
	/* UC promises nothing: what has no receiver is as good as sent. IBA vol 1, 9.8.2. Where
	 * packets are lost anyhow RC's timeout deals with it. */
	if (unlikely(err == -ENETUNREACH || err == -EPIPE) &&
	    (!qp_is_reliable(qp) || (qp->lossy && err == -ENETUNREACH)))
		return 0;
	return err;
}

u8 packet_opcode(const struct send_wqe *w, bool first, bool last)
{
	bool write = w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	if (w->opcode == IBV_WR_SEND_WITH_INV && last)
		return first ? PKT_SEND_ONLY_INV : PKT_SEND_LAST_INV;
	if (first && last)
		return (u8)((write ? PKT_WRITE_ONLY : PKT_SEND_ONLY) + imm);
	if (last)
		return (u8)((write ? PKT_WRITE_LAST : PKT_SEND_LAST) + imm);
	if (first)
		return write ? PKT_WRITE_FIRST : PKT_SEND_FIRST;
	return write ? PKT_WRITE_MIDDLE : PKT_SEND_MIDDLE;
}

int packet_pieces(struct ibt_qp *qp, struct send_wqe *w, u32 n, u32 access, struct iovec *iov)
{
	if (n == 0)
		return 0;
	if (w->flags & IBV_SEND_INLINE) {
		iov[0].iov_base = (u8 *)w->sge + qp->req.tx_offset;
		iov[0].iov_len = n;
		return 1;
	}
	if (likely(w->sge_count == 1 && n == w->sge[0].length)) {
		u32 piece;

		iov[0].iov_base = mem_local(qp->ibt->cfg.mem, qp->pd, w->sge[0].lkey,
					    w->sge[0].addr, n, access, &piece);
		iov[0].iov_len = n;
		if (likely(iov[0].iov_base != NULL && piece == n))
			return 1;
	}
	return mem_pieces(qp->ibt->cfg.mem, qp->pd, &qp->req.tx_cursor, n, access, iov,
			  IBT_MAX_SGE + 2);
}

u8 packet_answered_opcode(const struct send_wqe *w)
{
	switch (w->opcode) {
	case IBV_WR_RDMA_READ:
		return PKT_READ_REQUEST;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return PKT_COMPARE_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return PKT_FETCH_ADD;
	case WQE_ATOMIC_WRITE:
		return PKT_ATOMIC_WRITE;
	default:
		return PKT_FLUSH;
	}
}

int packet_confirmed_pieces(struct ibt_qp *qp, struct send_wqe *w, struct iovec *iov)
{
	if (w->opcode != WQE_ATOMIC_WRITE)
		return 0;
	qp->req.tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	return packet_pieces(qp, w, ATOMIC_WRITE_BYTES, 0, iov);
}

void packet_fill_confirmed(const struct send_wqe *w, struct pkt *p)
{
	if (w->opcode == WQE_FLUSH) {
		p->imm = (u32)w->swap;
		p->dma_length = w->compare;
	} else if (w->opcode == WQE_ATOMIC_WRITE) {
		p->dma_length = p->length = ATOMIC_WRITE_BYTES;
	}
}

u32 packet_count(const struct ibt_qp *qp, u32 length)
{
	return length == 0 ? 1 : (u32)(((u64)length + qp_packet_bytes(qp) - 1) >> qp->psn_shift);
}
