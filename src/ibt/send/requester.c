/* requester.c: turns send requests into packets, or into direct copies where the path can.
 * In: the send queue
 * Out: packets on a path, bytes in the peer's memory, completions of what is done at once
 * Runs: the poster, or the receiving thread    Locks: sq_lock
 * Spec: IBA vol 1, 9.7.3 (requester)
 */
#include <errno.h>

#include "base/clock.h"
#include "ibt/receive/ack.h"
#include "ibt/send/accord.h"
#include "ibt/send/finish.h"
#include "ibt/send/packet.h"
#include "ibt/lossy/rate.h"
#include "ibt/send/requester.h"
#include "ibt/lossy/stream.h"
#include "ibt/send/timeout.h"
#include "ibt/send/ud.h"
#include "ibt/lossy/window.h"

enum {
	PULL_FROM = 64 << 10, /* smaller messages go through the ring */
	DIRECT_WAIT_FROM = 16 << 10, /* one-sided ones that are not shorter wait for their turn */
};

static const struct path_ops *req_ops(const struct ibt_qp *qp)
{
	return qp->dest->path->ops;
}

static inline bool req_idle(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return qp->req.next == qp->req.tail;
}

static void req_begin(struct ibt_qp *qp, struct send_wqe *w, u32 packets) REQUIRES(qp->req.sq_lock)
{
	qp->req.tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	w->first_psn = qp->req.psn;
	w->psn_count = packets;
}

/* A long SEND whose receiver can read our memory: it copies once, instead of us and it once
 * each. */
static bool req_can_pull(const struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	bool send = w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM ||
		    w->opcode == IBV_WR_SEND_WITH_INV;

	return send && w->length >= PULL_FROM && qp_is_reliable(qp) && !qp->req.no_pull &&
	       qp->dest->path->guarantees.direct && req_ops(qp)->pullable(qp->dest);
}

static void req_fill_message(struct ibt_qp *qp, const struct send_wqe *w, struct pkt *p, u32 n,
			     u8 flags) REQUIRES(qp->req.sq_lock)
{
	u32 total = flags & PKT_PLACED ? 0 : w->length;
	bool first = qp->req.tx_offset == 0, last = qp->req.tx_offset + n == total;

	packet_fill(qp, p, packet_opcode(w, first, last));
	p->length = n;
	p->srqn = w->srqn;
	p->imm = w->imm;
	p->va = w->va;
	p->rkey = w->rkey;
	p->dma_length = w->length;
	p->flags |= flags;
	if (!last)
		return;
	p->flags |= (w->flags & IBV_SEND_SOLICITED ? PKT_SOLICITED : 0) |
		    (packet_wants_ack(qp, w->flags) ? PKT_ACK_REQUEST : 0);
}

/* UC: a packet has gone that a notification of congestion may be about. */
static inline void req_charge(struct ibt_qp *qp, u32 n) REQUIRES(qp->req.sq_lock)
{
	if (unlikely(qp->req.rate != NULL))
		rate_charge(qp, window_cost(1, n));
}

static int req_send_packet(struct ibt_qp *qp, struct send_wqe *w, u8 flags)
	REQUIRES(qp->req.sq_lock)
{
	struct iovec iov[IBT_MAX_SGE + 2], list = { .iov_base = iov };
	struct mem_cursor before = qp->req.tx_cursor;
	u32 left = (flags & PKT_PLACED ? 0 : w->length) - qp->req.tx_offset;
	u32 n = MIN(left, w->pull ? (u32)PULL_BYTES : qp_packet_bytes(qp));
	int pieces = packet_pieces(qp, w, n, 0, iov), err;
	struct pkt p;

	if (unlikely(pieces < 0))
		return pieces;
	req_fill_message(qp, w, &p, n, flags);
	if (w->pull) {
		p.flags |= PKT_PULL;
		p.dma_length = n;
		p.length = list.iov_len = (u32)pieces * sizeof(iov[0]);
		err = packet_send(qp, &p, &list, 1);
	} else {
		err = packet_send(qp, &p, iov, pieces);
	}
	if (unlikely(err != 0)) {
		qp->req.tx_cursor = before;
		return err;
	}
	req_charge(qp, n);
	qp->req.tx_offset += n;
	qp->req.psn = (qp->req.psn + 1) & PSN_MASK;
	return n == left ? 0 : -EINPROGRESS;
}

/* A SEND or WRITE that fits into one packet, from one piece of memory: most messages. 1: not so. */
static inline int req_single(struct ibt_qp *qp, struct send_wqe *w, u8 flags)
	REQUIRES(qp->req.sq_lock)
{
	struct iovec iov = { .iov_len = w->length };
	struct pkt p;
	u32 piece = w->length;
	int err;

	if (w->length > qp_packet_bytes(qp) || qp->req.tx_offset != 0 || qp->req.rate != NULL)
		return 1;
	if (w->flags & IBV_SEND_INLINE)
		iov.iov_base = w->sge;
	else if (w->sge_count == 1)
		iov.iov_base = mem_local(qp->ibt->cfg.mem, qp->pd, w->sge[0].lkey, w->sge[0].addr,
					 w->length, 0, &piece);
	if (unlikely(iov.iov_base == NULL || piece != w->length))
		return 1;
	req_fill_message(qp, w, &p, w->length, flags);
	w->pull = false;
	w->first_psn = qp->req.psn;
	w->psn_count = 1;
	err = packet_send(qp, &p, &iov, 1);
	if (likely(err == 0))
		qp->req.psn = (qp->req.psn + 1) & PSN_MASK;
	return err;
}

/* Sends what is left of a SEND or WRITE. PKT_PLACED: the data is there already, only the notice
 * goes. */
static int req_message(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->req.sq_lock)
{
	int err = flags & PKT_PLACED ? 1 : req_single(qp, w, flags);

	if (likely(err != 1))
		return err;
	if (qp->req.tx_offset == 0) {
		if (w->psn_count == 0)
			w->pull = req_can_pull(qp, w);
		req_begin(qp, w,
			  flags & PKT_PLACED ? 1
			  : w->pull ? (w->length - 1) / PULL_BYTES + 1
				    : packet_count(qp, w->length));
	}
	do
		err = rate_holds(qp) ? PACKET_STALL : req_send_packet(qp, w, flags);
	while (err == -EINPROGRESS);
	return err;
}

/* The last posted request, if it may be one of a list that begins with `w`: of one kind and key. */
static struct send_wqe *req_list_end(const struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *last = sq_at(qp, qp->req.head - 1);

	return last->opcode == w->opcode && last->rkey == w->rkey ? last : NULL;
}

static struct path_target req_target(const struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	u32 behind = qp->req.head - qp->req.next - 1;

	return (struct path_target){ .sqpn = qp->qpn,
				     .dqpn = qp->dest_qpn,
				     .rkey = w->rkey,
				     .va = w->va,
				     .length = w->length,
				     .write = w->opcode != IBV_WR_RDMA_READ,
				     .announced = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
				     .behind = behind != 0 && req_list_end(qp, w) != NULL ? behind
											  : 0,
				     .type = qp->packet_type };
}

/* The peer's engine is faster for `w`, and for those behind it: has the path told when the last of
 * them has ended. Those of READs that go one by one belong to the first. */
static void req_leave(struct ibt_qp *qp, struct send_wqe *w, u32 behind) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *last = behind != 0 ? req_list_end(qp, w) : w;

	if ((last->flags & WQE_LEFT) != 0)
		return;
	last->flags |= WQE_LEFT;
	last->left_ns = clock_now_ns();
	last->left = behind + 1;
}

/* Tries to do a WRITE or READ by ourselves. 0: done; -EOPNOTSUPP: use packets; -EFAULT: packets
 * with PKT_UNREACHED; -EACCES: our own memory is at fault. */
static int req_direct(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	struct path_target t = req_target(qp, w);
	bool write = t.write;
	struct iovec iov[IBT_MAX_SGE + 2];
	int n, err;

	/* What was in packets once has PSNs, which the peer may have counted: packets again. */
	if (!qp->dest->path->guarantees.direct || !req_idle(qp) || w->length == 0 ||
	    qp->req.tx_offset != 0 || w->psn_count != 0 || qp->req.no_direct || qp_port_is_down(qp))
		return -EOPNOTSUPP;
	qp->req.tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	n = packet_pieces(qp, w, w->length, write ? 0 : IBV_ACCESS_LOCAL_WRITE, iov);
	if (n == -E2BIG)
		return -EOPNOTSUPP;
	if (n < 0)
		return -EACCES;
	err = req_ops(qp)->direct(qp->dest, &t, iov, n);
	if (unlikely(err == -EBUSY) && !t.announced)
		req_leave(qp, w, t.behind);
	return err == 0 || err == -EFAULT ? err : -EOPNOTSUPP;
}

/* The same for an atomic operation. */
static int req_direct_atomic(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	struct path_target t = { .sqpn = qp->qpn,
				 .dqpn = qp->dest_qpn,
				 .rkey = w->rkey,
				 .va = w->va,
				 .length = sizeof(u64),
				 .write = true,
				 .type = qp->packet_type };
	struct path_atomic a = { .swap = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
				 .compare = w->compare };
	struct iovec iov[IBT_MAX_SGE + 2];
	int n;

	if (!qp->dest->path->guarantees.direct || req_ops(qp)->atomic == NULL || !req_idle(qp) ||
	    w->length != sizeof(u64) || w->psn_count != 0 || qp->req.no_direct ||
	    qp_port_is_down(qp))
		return -EOPNOTSUPP;
	a.operand = a.swap ? w->swap : w->compare;
	qp->req.tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	n = packet_pieces(qp, w, w->length, IBV_ACCESS_LOCAL_WRITE, iov);
	if (n != 1)
		return -EOPNOTSUPP; /* if the list is at fault the response shows it */
	if (req_ops(qp)->atomic(qp->dest, &t, &a) != 0)
		return -EOPNOTSUPP;
	/* It is done; our own memory is at fault. */
	return fault_copy(iov[0].iov_base, &a.before, sizeof(a.before)) == 0 ? 0 : -EACCES;
}

static bool req_is_reached(const struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	struct path_target t = req_target(qp, w);

	return req_ops(qp)->reaches != NULL ? req_ops(qp)->reaches(qp->dest, &t)
					    : req_ops(qp)->pullable(qp->dest);
}

/* A long WRITE or READ behind others waits for them: then it is one copy, by ourselves. In packets
 * it would be two, with the peer's engine in between, and those that come behind it would be
 * packets for the same reason, without end. The others need the peer's engine as well, so nothing
 * is lost by it. */
static bool req_waits_for_turn(const struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	return w->length >= DIRECT_WAIT_FROM && !req_idle(qp) && qp->req.tx_offset == 0 &&
	       w->psn_count == 0 && !qp->req.no_direct && qp_is_reliable(qp) &&
	       qp->dest->path->guarantees.direct && req_is_reached(qp, w);
}

/* Is it cheaper as a packet than directly, and ordered as such anyway? */
static bool req_is_short_notice(const struct ibt_qp *qp, const struct send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && w->length - 1 < PATH_NOTICE_BYTES &&
	       qp_is_reliable(qp);
}

static int req_write(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->req.sq_lock)
{
	int err = -EOPNOTSUPP;

	if (!req_is_short_notice(qp, w))
		err = req_waits_for_turn(qp, w) ? PACKET_STALL : req_direct(qp, w);

	if (err == -EACCES || err == PACKET_STALL)
		return err;
	if (err == 0 && w->opcode == IBV_WR_RDMA_WRITE) {
		qp->req.next++;
		finish_request(qp, w);
		return -EALREADY;
	}
	if (w->psn_count == 0)
		w->placed = err == 0;
	if (!w->placed && !qp_is_reliable(qp))
		qp->req.no_direct = true;
	flags |= w->placed ? PKT_PLACED : err == -EFAULT ? PKT_UNREACHED : 0;
	return req_message(qp, w, flags);
}

static int req_answered(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->req.sq_lock)
{
	struct iovec iov[IBT_MAX_SGE + 2];
	struct pkt p;
	int pieces, err;

	if (qp->req.reads_out >= MAX(qp->attr.max_rd_atomic, 1))
		return PACKET_STALL;
	pieces = packet_confirmed_pieces(qp, w, iov);
	if (pieces < 0)
		return pieces;
	req_begin(qp, w, w->opcode == IBV_WR_RDMA_READ ? packet_count(qp, w->length) : 1);
	packet_fill(qp, &p, packet_answered_opcode(w));
	p.flags |= flags;
	p.length = 0;
	p.srqn = w->srqn;
	p.va = w->va;
	p.rkey = w->rkey;
	p.dma_length = w->length;
	p.compare = w->compare;
	p.swap = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? w->compare : w->swap;
	packet_fill_confirmed(w, &p);
	err = packet_send(qp, &p, iov, pieces);
	if (err != 0)
		return err;
	qp->req.reads_out++;
	qp->req.psn = (qp->req.psn + w->psn_count) & PSN_MASK;
	return 0;
}

static int req_read(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	int err;

	if (req_waits_for_turn(qp, w))
		return PACKET_STALL;
	err = w->opcode == IBV_WR_RDMA_READ ? req_direct(qp, w) : req_direct_atomic(qp, w);
	if (err == 0) {
		qp->req.next++;
		finish_answered(qp, w);
		return -EALREADY;
	}
	return err == -EACCES ? err : req_answered(qp, w, err == -EFAULT ? PKT_UNREACHED : 0);
}

/* IBA vol 1, 10.6.7.2.2: QP, window and region of one domain, the window not bound, rights and
 * range within the region's. */
static int req_bind(struct ibt_qp *qp, const struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	bool zero_based = w->bind.access & IBV_ACCESS_ZERO_BASED;
	struct mem_region region = { .addr = w->bind.addr,
				     .length = w->bind.range,
				     .iova = zero_based ? 0 : w->bind.addr,
				     .access = w->bind.access,
				     .pd = qp->pd,
				     .flags = MEM_WINDOW | MEM_WINDOW_TYPE2,
				     .qpn = qp->qpn,
				     .parent = w->rkey };
	u32 key = w->imm;

	return w->rkey == 0 ? 0 : mem_replace(qp->ibt->cfg.mem, &key, &region);
}

static int req_execute_local(struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	struct mem_table *mem = qp->ibt->cfg.mem;

	switch (w->opcode) {
	case WQE_LOCAL_INV:
		return mem_invalidate(mem, w->imm, qp->pd, qp->qpn);
	case WQE_BIND_MW:
		return req_bind(qp, w);
	default:
		return mem_fast_register(mem, w->imm, qp->pd, w->bind.access);
	}
}

/* Requests that touch only this side: in order, after everything before them. */
static int req_local(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	if (!req_idle(qp))
		return PACKET_STALL;
	if (req_execute_local(qp, w) != 0)
		return -EPERM;
	qp->req.next++;
	finish_request(qp, w);
	return -EALREADY;
}

/* 0: transmitted; -EALREADY: complete as well; PACKET_STALL; or an error. */
static int req_transmit(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	u8 flags = 0;

	if (!qp_is_connected(qp))
		return ud_transmit(qp, w);
	if ((w->flags & IBV_SEND_FENCE) != 0 && qp->req.reads_out != 0)
		return PACKET_STALL;
	if (qp->streams && !wqe_is_local(w))
		return stream_transmit(qp, w);
	if (unlikely(qp->req.accord != ACCORD_FULL))
		flags = accord_judge(qp, w->length);
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return req_write(qp, w, flags);
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return req_read(qp, w);
	case WQE_ATOMIC_WRITE:
	case WQE_FLUSH:
		return req_answered(qp, w, 0);
	case WQE_LOCAL_INV:
	case WQE_BIND_MW:
	case WQE_REG_MR:
		return req_local(qp, w);
	default:
		return req_message(qp, w, flags);
	}
}

static enum ibv_wc_status req_status_of(int err)
{
	switch (err) {
	case -EMSGSIZE:
		return IBV_WC_LOC_LEN_ERR;
	case -EPERM:
		return IBV_WC_MW_BIND_ERR;
	case -EPIPE:
		return IBV_WC_RETRY_EXC_ERR;
	default:
		return IBV_WC_LOC_PROT_ERR;
	}
}

/* What becomes of a request that could not be transmitted. Requests before it complete first
 * (IBA vol 1, 10.8.3, ordering). */
static void req_failed(struct ibt_qp *qp, int err) REQUIRES(qp->req.sq_lock)
{
	if (err == -EAGAIN || err == PACKET_STALL)
		return;
	if (err == -ENETUNREACH)
		timeout_begin(qp);
	else if (err == -EPIPE || req_idle(qp))
		finish_with_error(qp, req_status_of(err));
	/* else: comp_ack pumps again when those before it are done, and it fails then */
}

static inline bool req_may_send(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return qp->req.next != qp->req.head &&
	       (qp->req.waiting == WAIT_NONE || qp->req.waiting >= WAIT_ROOM) &&
	       (qp->state == IBV_QPS_RTS ||
		(qp->state == IBV_QPS_SQD && qp->req.next != qp->drain_stop));
}

/* Says on the board whether something is left to send: if this process dies, it is lost. */
static inline void req_show_behind(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	u32 behind = qp->req.next != qp->req.head;

	if (unlikely(qp->counters->behind != behind))
		__atomic_store_n(&qp->counters->behind, behind, __ATOMIC_RELEASE);
}

void req_pump(struct ibt_qp *qp)
{
	bool sent = false;

	while (req_may_send(qp)) {
		struct send_wqe *w = sq_at(qp, qp->req.next);
		int err = req_transmit(qp, w);

		if (err == 0) {
			qp->req.tx_offset = 0;
			qp->req.next++;
			sent = true;
			if (!qp_is_reliable(qp))
				finish_request(qp, w);
		} else if (err != -EALREADY) {
			sent |= qp->req.tx_offset != 0;
			req_failed(qp, err);
			break;
		}
	}
	req_show_behind(qp);
	if (qp->streams)
		stream_pumped(qp);
	if (sent && qp->streams && ack_ride(qp))
		sent = false; /* handed over */
	if (sent && qp_is_connected(qp))
		req_ops(qp)->flush(qp->dest);
	if (unlikely(qp->req.draining))
		finish_drain(qp);
}
