/* move.c: what a request of the pocket adapter does: finds its peer, moves the bytes, completes on
 * both sides. A SEND without a receive waits where it is.
 * In: send queues    Out: memory, completions, events
 * Runs: whoever posts, or lets a waiting request go on    Locks: the device's, held by the caller
 */
#include <arpa/inet.h>

#include "pocket.h"

enum { WAIT = -1 }; /* instead of a status */

static enum ib_wc_opcode done_opcode(enum ib_wr_opcode op)
{
	switch (op) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
		return IB_WC_RDMA_READ;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		return IB_WC_COMP_SWAP;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return IB_WC_FETCH_ADD;
	default:
		return IB_WC_SEND;
	}
}

static u64 sge_length(const struct ib_sge *sge, int n)
{
	u64 length = 0;

	for (int i = 0; i < n; i++)
		length += sge[i].length;
	return length;
}

static bool scatter(struct pocket_device *d, struct ib_pd *pd, const struct ib_sge *sge, int n,
		    const u8 *bytes, u32 length)
{
	for (int i = 0; i < n && length; i++) {
		u32 part = sge[i].length < length ? sge[i].length : length;

		if (!pocket_copy(d, pd, sge[i].lkey, IB_ACCESS_LOCAL_WRITE, sge[i].addr,
				 (void *)(uintptr_t)bytes, part, true))
			return false;
		bytes += part;
		length -= part;
	}
	return true;
}

/* Into the bounce buffer from `skip` on. */
static int gather(struct pocket_device *d, struct pocket_qp *qp, struct pocket_send *s, u32 skip,
		  u32 *length)
{
	u8 *to = d->bounce + skip;

	if (s->wr.send_flags & IB_SEND_INLINE) {
		memcpy(to, s->inlined, s->inline_length);
		*length = s->inline_length;
		return IB_WC_SUCCESS;
	}
	if (sge_length(s->sge, s->wr.num_sge) > POCKET_MESSAGE - skip)
		return IB_WC_LOC_LEN_ERR;
	for (int i = 0; i < s->wr.num_sge; i++) {
		if (!pocket_copy(d, qp->ib.pd, s->sge[i].lkey, 0, s->sge[i].addr, to,
				 s->sge[i].length, false))
			return IB_WC_LOC_PROT_ERR;
		to += s->sge[i].length;
	}
	*length = (u32)(to - d->bounce) - skip;
	return IB_WC_SUCCESS;
}

/* ---- the receiver's side --------------------------------------------------------------------- */

static bool receives(const struct pocket_qp *qp)
{
	return qp->attr.qp_state == IB_QPS_RTR || qp->attr.qp_state == IB_QPS_RTS ||
	       qp->attr.qp_state == IB_QPS_SQD;
}

static struct pocket_qp *peer_find(struct pocket_device *d, const struct pocket_qp *qp)
{
	u32 number = qp->attr.dest_qp_num;
	struct pocket_qp *peer = number < POCKET_QPS ? d->qps[number] : NULL;

	return peer && peer->ib.qp_type == qp->ib.qp_type &&
			       peer->attr.dest_qp_num == qp->ib.qp_num && receives(peer) ?
		       peer :
		       NULL;
}

static void peer_established(struct pocket_qp *peer)
{
	if (peer->attr.qp_state == IB_QPS_RTR && !peer->established) {
		peer->established = true;
		pocket_event(peer->ib.device, IB_EVENT_COMM_EST, &peer->ib);
	}
}

static void peer_receive(struct pocket_qp *peer, struct ib_wc *wc, bool solicited)
{
	wc->qp = &peer->ib;
	wc->port_num = 1;
	pocket_push(peer->init.recv_cq, wc, solicited);
}

/* The receive was too short or lies in the wrong place. */
static int peer_refuse(struct pocket_qp *peer, struct ib_wc *wc, enum ib_wc_status theirs,
		       enum ib_wc_status ours)
{
	wc->status = theirs;
	peer_receive(peer, wc, false);
	pocket_qp_fail(peer);
	return (int)ours;
}

static int deliver(struct pocket_device *d, struct pocket_qp *peer, struct pocket_send *s,
		   u32 length)
{
	bool write = s->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	struct ib_wc wc = { .opcode = write ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
			    .byte_len = length };
	struct pocket_recv recv;

	if (!pocket_take_recv(peer, &recv))
		return peer->ib.qp_type == IB_QPT_UC ? (int)IB_WC_SUCCESS : WAIT;
	wc.wr_id = recv.wr_id;
	if (!write && sge_length(recv.sge, recv.num_sge) < length)
		return peer_refuse(peer, &wc, IB_WC_LOC_LEN_ERR, IB_WC_REM_INV_REQ_ERR);
	if (!write && !scatter(d, peer->ib.pd, recv.sge, recv.num_sge, d->bounce, length))
		return peer_refuse(peer, &wc, IB_WC_LOC_PROT_ERR, IB_WC_REM_OP_ERR);
	if (write || s->wr.opcode == IB_WR_SEND_WITH_IMM) {
		wc.wc_flags = IB_WC_WITH_IMM;
		wc.imm_data = s->wr.imm_data;
	}
	if (s->wr.opcode == IB_WR_SEND_WITH_INV) {
		if (!pocket_invalidate(d, peer->ib.pd, s->wr.invalidate_rkey))
			return peer_refuse(peer, &wc, IB_WC_LOC_ACCESS_ERR, IB_WC_REM_ACCESS_ERR);
		wc.wc_flags = IB_WC_WITH_INVALIDATE;
		wc.invalidate_rkey = s->wr.invalidate_rkey;
	}
	peer_receive(peer, &wc, s->wr.send_flags & IB_SEND_SOLICITED);
	return IB_WC_SUCCESS;
}

/* ---- one request ----------------------------------------------------------------------------- */

static int access_refused(struct pocket_qp *peer)
{
	if (peer->ib.qp_type == IB_QPT_UC)
		return IB_WC_SUCCESS;
	pocket_event(peer->ib.device, IB_EVENT_QP_ACCESS_ERR, &peer->ib);
	pocket_qp_fail(peer);
	return IB_WC_REM_ACCESS_ERR;
}

static bool qp_allows(const struct pocket_qp *peer, int access)
{
	return peer->attr.qp_access_flags & access;
}

static int do_write(struct pocket_device *d, struct pocket_qp *peer, struct pocket_send *s,
		    u32 length)
{
	const struct ib_send_wr *wr = &s->wr;

	if (length && (!qp_allows(peer, IB_ACCESS_REMOTE_WRITE) ||
		       !pocket_copy(d, peer->ib.pd, wr->wr.rdma.rkey, IB_ACCESS_REMOTE_WRITE,
				    wr->wr.rdma.remote_addr, d->bounce, length, true)))
		return access_refused(peer);
	return wr->opcode == IB_WR_RDMA_WRITE ? (int)IB_WC_SUCCESS : deliver(d, peer, s, length);
}

static int do_read(struct pocket_device *d, struct pocket_qp *qp, struct pocket_qp *peer,
		   struct pocket_send *s, u32 *length)
{
	const struct ib_send_wr *wr = &s->wr;
	u64 total = sge_length(s->sge, wr->num_sge);

	if (total > POCKET_MESSAGE)
		return IB_WC_LOC_LEN_ERR;
	*length = (u32)total;
	if (!qp_allows(peer, IB_ACCESS_REMOTE_READ) ||
	    !pocket_copy(d, peer->ib.pd, wr->wr.rdma.rkey, IB_ACCESS_REMOTE_READ,
			 wr->wr.rdma.remote_addr, d->bounce, *length, false))
		return access_refused(peer);
	return scatter(d, qp->ib.pd, s->sge, wr->num_sge, d->bounce, *length) ?
		       (int)IB_WC_SUCCESS :
		       (int)IB_WC_LOC_PROT_ERR;
}

static int do_atomic(struct pocket_device *d, struct pocket_qp *qp, struct pocket_qp *peer,
		     struct pocket_send *s)
{
	const struct ib_send_wr *wr = &s->wr;
	u64 *word, before;

	if (wr->wr.atomic.remote_addr % 8)
		return IB_WC_REM_INV_REQ_ERR;
	word = qp_allows(peer, IB_ACCESS_REMOTE_ATOMIC) ?
		       pocket_word(d, peer->ib.pd, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr) :
		       NULL;
	if (!word)
		return access_refused(peer);
	before = *word;
	if (wr->opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		*word = before + wr->wr.atomic.compare_add;
	else if (before == wr->wr.atomic.compare_add)
		*word = wr->wr.atomic.swap;
	return scatter(d, qp->ib.pd, s->sge, wr->num_sge, (u8 *)&before, 8) ?
		       (int)IB_WC_SUCCESS :
		       (int)IB_WC_LOC_PROT_ERR;
}

static int do_connected(struct pocket_device *d, struct pocket_qp *qp, struct pocket_send *s,
			u32 *length)
{
	struct pocket_qp *peer = peer_find(d, qp);
	enum ib_wr_opcode op = s->wr.opcode;
	int status;

	if (!peer)
		return qp->ib.qp_type == IB_QPT_UC ? (int)IB_WC_SUCCESS : (int)IB_WC_RETRY_EXC_ERR;
	peer_established(peer);
	if (op == IB_WR_RDMA_READ)
		return do_read(d, qp, peer, s, length);
	if (op == IB_WR_ATOMIC_CMP_AND_SWP || op == IB_WR_ATOMIC_FETCH_AND_ADD)
		return do_atomic(d, qp, peer, s);
	status = gather(d, qp, s, 0, length);
	if (status != IB_WC_SUCCESS)
		return status;
	return op == IB_WR_RDMA_WRITE || op == IB_WR_RDMA_WRITE_WITH_IMM ?
		       do_write(d, peer, s, *length) :
		       deliver(d, peer, s, *length);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

static void datagram_header(struct pocket_device *d, const struct ib_ah_attr *way, u32 length)
{
	struct ib_grh grh = { .version_tclass_flow = htonl(6u << 28 |
							  (u32)way->grh.traffic_class << 20 |
							  way->grh.flow_label),
			      .paylen = htons((u16)length),
			      .next_hdr = 0x1b,
			      .hop_limit = way->grh.hop_limit,
			      .sgid = d->gid,
			      .dgid = way->grh.dgid };

	memcpy(d->bounce, &grh, POCKET_GRH);
}

/* Nobody promised that it arrives. */
static void datagram_deliver(struct pocket_device *d, struct pocket_qp *qp, struct pocket_qp *to,
			     const struct pocket_send *s, u32 length)
{
	u32 key = s->wr.wr.ud.remote_qkey & 0x80000000 ? qp->attr.qkey : s->wr.wr.ud.remote_qkey;
	struct ib_wc wc = { .opcode = IB_WC_RECV,
			    .byte_len = length + POCKET_GRH,
			    .src_qp = qp->ib.qp_num,
			    .sl = ((struct pocket_ah *)s->wr.wr.ud.ah)->attr.sl,
			    .wc_flags = IB_WC_GRH };
	struct pocket_recv recv;

	if (to->ib.qp_type != IB_QPT_UD || !receives(to) || to->attr.qkey != key ||
	    !pocket_take_recv(to, &recv))
		return;
	wc.wr_id = recv.wr_id;
	if (sge_length(recv.sge, recv.num_sge) < length + POCKET_GRH)
		wc.status = IB_WC_LOC_LEN_ERR;
	else if (!scatter(d, to->ib.pd, recv.sge, recv.num_sge, d->bounce, length + POCKET_GRH))
		wc.status = IB_WC_LOC_PROT_ERR;
	if (s->wr.opcode == IB_WR_SEND_WITH_IMM) {
		wc.wc_flags |= IB_WC_WITH_IMM;
		wc.imm_data = s->wr.imm_data;
	}
	peer_receive(to, &wc, s->wr.send_flags & IB_SEND_SOLICITED);
}

static bool is_member(const struct pocket_qp *qp, const union ib_gid *gid)
{
	for (int i = 0; i < qp->group_count; i++)
		if (memcmp(&qp->groups[i], gid, sizeof(*gid)) == 0)
			return true;
	return false;
}

static int do_datagram(struct pocket_device *d, struct pocket_qp *qp, struct pocket_send *s,
		       u32 *length)
{
	const struct ib_ah_attr *way = &((struct pocket_ah *)s->wr.wr.ud.ah)->attr;
	u32 number = s->wr.wr.ud.remote_qpn;
	int status = gather(d, qp, s, POCKET_GRH, length);

	if (status != IB_WC_SUCCESS)
		return status;
	datagram_header(d, way, *length);
	if (number == IB_MULTICAST_QPN) {
		for (u32 i = 0; i < POCKET_QPS; i++)
			if (d->qps[i] && is_member(d->qps[i], &way->grh.dgid))
				datagram_deliver(d, qp, d->qps[i], s, *length);
	} else if (number < POCKET_QPS && d->qps[number] &&
		   memcmp(&way->grh.dgid, &d->gid, sizeof(d->gid)) == 0) {
		datagram_deliver(d, qp, d->qps[number], s, *length);
	}
	return IB_WC_SUCCESS;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void complete(struct pocket_qp *qp, const struct pocket_send *s, int status, u32 length)
{
	struct ib_wc wc = { .wr_id = s->wr.wr_id,
			    .status = (enum ib_wc_status)status,
			    .opcode = done_opcode(s->wr.opcode),
			    .byte_len = length,
			    .qp = &qp->ib,
			    .port_num = 1 };

	if (status != IB_WC_SUCCESS || qp->init.sq_sig_type == IB_SIGNAL_ALL_WR ||
	    (s->wr.send_flags & IB_SEND_SIGNALED))
		pocket_push(qp->init.send_cq, &wc, false);
}

void pocket_run(struct pocket_device *d, struct pocket_qp *qp)
{
	if (qp->attr.qp_state == IB_QPS_ERR)
		pocket_qp_fail(qp);
	while (qp->sq_tail != qp->sq_head && qp->attr.qp_state == IB_QPS_RTS) {
		struct pocket_send *s = &qp->sq[qp->sq_tail % qp->sq_size];
		u32 length = 0;
		int status = qp->ib.qp_type == IB_QPT_UD ? do_datagram(d, qp, s, &length) :
							   do_connected(d, qp, s, &length);

		if (status == WAIT)
			return;
		complete(qp, s, status, length);
		qp->sq_tail++;
		if (status != IB_WC_SUCCESS)
			pocket_qp_fail(qp);
	}
}
