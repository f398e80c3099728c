/* requester.c: turns send requests into packets, or into direct copies where the path can.
 * In: the send queue
 * Out: packets on a path, bytes in the peer's memory, completions of what is done at once
 * Runs: the poster, or whoever receives    Locks: sq_lock
 * Spec: IBA vol 1, 9.7.2 (requester), 9.7.7 (PSN)
 */
#include <errno.h>

#include "base/clock.h"
#include "ibt/ibt_priv.h"

enum {
	REQ_FOREVER_RETRY_MS =
		/* Local ACK timeout 0: no limit; still looked at again, for a reliable path
		 * loses nothing else */
		500,
};

static const struct path_ops *req_ops(const struct ibt_qp *qp)
{
	return qp->dest->path->ops;
}

static inline bool req_idle(const struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	return qp->sq_next == qp->sq_tail;
}

void req_fill(struct ibt_qp *qp, struct pkt *p, u8 opcode)
{
	u32 ack = qp->dest->path->promise.reliable ? req_take_ack(qp) : 0;

	p->opcode = opcode;
	p->flags = 0;
	p->qp_type = qp->type;
	p->syndrome = 0;
	p->dqpn = qp->dest_qpn;
	p->sqpn = qp->qpn;
	p->psn = qp->sq_psn;
	p->pkey = IBT_DEFAULT_PKEY;
	p->length = 0;
	p->ack_psn = 0;
	/* An owed acknowledgement travels along. */
	if (ack & ACK_OWED) {
		p->flags |= PKT_HAS_ACK;
		p->ack_psn = ack & PSN_MASK;
	}
}

void req_return_ack(struct ibt_qp *qp, u32 psn)
{
	u32 none = 0;

	__atomic_compare_exchange_n(&qp->ack_word, &none, ACK_OWED | psn, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
}

int req_send(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
{
	int err = req_ops(qp)->send(qp->dest, p, iov, n);

	if (unlikely(err == -EAGAIN)) {
		/* Once more after we are on the list: room that came in between has no other
		 * witness. */
		req_block(qp, qp->dest);
		err = req_ops(qp)->send(qp->dest, p, iov, n);
	}
	if (unlikely(err != 0) && (p->flags & PKT_HAS_ACK) != 0)
		req_return_ack(qp, p->ack_psn);
	/* UC promises nothing: what has no receiver is as good as sent. IBA vol 1, 9.8.2. Where
	 * packets are lost anyhow RC's timeout deals with it. */
	if (unlikely(err == -ENETUNREACH || err == -EPIPE) &&
	    (qp->type == IBV_QPT_UC || (qp->lossy && err == -ENETUNREACH)))
		return 0;
	return err;
}

u8 req_message_opcode(const struct send_wqe *w, bool first, bool last)
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

int req_pieces(struct ibt_qp *qp, struct send_wqe *w, u32 n, u32 access, struct iovec *iov)
{
	if (n == 0)
		return 0;
	if (w->flags & IBV_SEND_INLINE) {
		iov[0].iov_base = (u8 *)w->sge + qp->tx_offset;
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
	return mem_pieces(qp->ibt->cfg.mem, qp->pd, &qp->tx_cursor, n, access, iov,
			  IBT_MAX_SGE + 2);
}

static void req_begin(struct ibt_qp *qp, struct send_wqe *w, u32 packets) REQUIRES(qp->sq_lock)
{
	qp->tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	w->first_psn = qp->sq_psn;
	w->psn_count = packets;
}

u32 req_packets(const struct ibt_qp *qp, u32 length)
{
	return length == 0 ? 1 : (u32)(((u64)length + qp_packet_bytes(qp) - 1) >> qp->psn_shift);
}

/* A long SEND whose receiver can read our memory: it copies once, instead of us and it once
 * each. */
static bool req_can_pull(const struct ibt_qp *qp, const struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	bool send = w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM ||
		    w->opcode == IBV_WR_SEND_WITH_INV;

	return send && w->length >= PULL_FROM && qp->type == IBV_QPT_RC && !qp->no_pull &&
	       qp->dest->path->promise.direct && req_ops(qp)->pullable(qp->dest);
}

static void req_fill_message(struct ibt_qp *qp, const struct send_wqe *w, struct pkt *p, u32 n,
			     u8 flags) REQUIRES(qp->sq_lock)
{
	u32 total = flags & PKT_PLACED ? 0 : w->length;
	bool first = qp->tx_offset == 0, last = qp->tx_offset + n == total;

	req_fill(qp, p, req_message_opcode(w, first, last));
	p->length = n;
	p->imm = w->imm;
	p->va = w->va;
	p->rkey = w->rkey;
	p->dma_length = w->length;
	p->flags |= flags;
	if (!last)
		return;
	p->flags |= (w->flags & IBV_SEND_SOLICITED ? PKT_SOLICITED : 0) |
		    (req_wants_ack(qp, w->flags) ? PKT_ACK_REQUEST : 0);
}

/* UC: a packet has gone that a notification of congestion may be about. */
static inline void req_charge(struct ibt_qp *qp, u32 n) REQUIRES(qp->sq_lock)
{
	if (unlikely(qp->rate != NULL))
		rate_charge(qp, window_cost(1, n));
}

static int req_send_packet(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->sq_lock)
{
	struct iovec iov[IBT_MAX_SGE + 2], list = { .iov_base = iov };
	struct mem_cursor before = qp->tx_cursor;
	u32 left = (flags & PKT_PLACED ? 0 : w->length) - qp->tx_offset;
	u32 n = MIN(left, w->pull ? (u32)PULL_BYTES : qp_packet_bytes(qp));
	int pieces = req_pieces(qp, w, n, 0, iov), err;
	struct pkt p;

	if (unlikely(pieces < 0))
		return pieces;
	req_fill_message(qp, w, &p, n, flags);
	if (w->pull) {
		p.flags |= PKT_PULL;
		p.dma_length = n;
		p.length = list.iov_len = (u32)pieces * sizeof(iov[0]);
		err = req_send(qp, &p, &list, 1);
	} else {
		err = req_send(qp, &p, iov, pieces);
	}
	if (unlikely(err != 0)) {
		qp->tx_cursor = before;
		return err;
	}
	req_charge(qp, n);
	qp->tx_offset += n;
	qp->sq_psn = (qp->sq_psn + 1) & PSN_MASK;
	return n == left ? 0 : -EINPROGRESS;
}

/* A SEND or WRITE that fits into one packet, from one piece of memory: most messages. 1: not so. */
static inline int req_single(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->sq_lock)
{
	struct iovec iov = { .iov_len = w->length };
	struct pkt p;
	u32 piece = w->length;
	int err;

	if (w->length > qp_packet_bytes(qp) || qp->tx_offset != 0 || qp->rate != NULL)
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
	w->first_psn = qp->sq_psn;
	w->psn_count = 1;
	err = req_send(qp, &p, &iov, 1);
	if (likely(err == 0))
		qp->sq_psn = (qp->sq_psn + 1) & PSN_MASK;
	return err;
}

/* Sends what is left of a SEND or WRITE. PKT_PLACED: the data is there already, only the notice
 * goes. */
static int req_message(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->sq_lock)
{
	int err = flags & PKT_PLACED ? 1 : req_single(qp, w, flags);

	if (likely(err != 1))
		return err;
	if (qp->tx_offset == 0) {
		if (w->psn_count == 0)
			w->pull = req_can_pull(qp, w);
		req_begin(qp, w,
			  flags & PKT_PLACED ? 1
			  : w->pull ? (w->length - 1) / PULL_BYTES + 1
				    : req_packets(qp, w->length));
	}
	do
		err = rate_holds(qp) ? REQ_STALL : req_send_packet(qp, w, flags);
	while (err == -EINPROGRESS);
	return err;
}

/* Tries to do a WRITE or READ by ourselves. 0: done; -EOPNOTSUPP: use packets; -EFAULT: packets
 * with PKT_UNREACHED; -EACCES: our own memory is at fault. */
static int req_direct(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	bool write = w->opcode != IBV_WR_RDMA_READ;
	struct path_target t = { .sqpn = qp->qpn,
				 .dqpn = qp->dest_qpn,
				 .rkey = w->rkey,
				 .va = w->va,
				 .length = w->length,
				 .write = write,
				 .type = qp->type };
	struct iovec iov[IBT_MAX_SGE + 2];
	int n, err;

	/* What was in packets once has PSNs, which the peer may have counted: packets again. */
	if (!qp->dest->path->promise.direct || !req_idle(qp) || w->length == 0 ||
	    qp->tx_offset != 0 || w->psn_count != 0 || qp->no_direct)
		return -EOPNOTSUPP;
	qp->tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	n = req_pieces(qp, w, w->length, write ? 0 : IBV_ACCESS_LOCAL_WRITE, iov);
	if (n == -E2BIG)
		return -EOPNOTSUPP;
	if (n < 0)
		return -EACCES;
	err = req_ops(qp)->direct(qp->dest, &t, iov, n);
	return err == 0 || err == -EFAULT ? err : -EOPNOTSUPP;
}

/* The same for an atomic operation. */
static int req_direct_atomic(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	struct path_target t = { .sqpn = qp->qpn,
				 .dqpn = qp->dest_qpn,
				 .rkey = w->rkey,
				 .va = w->va,
				 .length = sizeof(u64),
				 .write = true,
				 .type = qp->type };
	struct path_atomic a = { .swap = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
				 .compare = w->compare };
	struct iovec iov[IBT_MAX_SGE + 2];
	int n;

	if (!qp->dest->path->promise.direct || req_ops(qp)->atomic == NULL || !req_idle(qp) ||
	    w->length != sizeof(u64) || w->psn_count != 0 || qp->no_direct)
		return -EOPNOTSUPP;
	a.operand = a.swap ? w->swap : w->compare;
	qp->tx_cursor = (struct mem_cursor){ .sge = w->sge, .count = w->sge_count };
	n = req_pieces(qp, w, w->length, IBV_ACCESS_LOCAL_WRITE, iov);
	if (n != 1)
		return -EOPNOTSUPP; /* and if the list is at fault, the answer shows it */
	if (req_ops(qp)->atomic(qp->dest, &t, &a) != 0)
		return -EOPNOTSUPP;
	/* It is done; our own memory is at fault. */
	return fault_copy(iov[0].iov_base, &a.before, sizeof(a.before)) == 0 ? 0 : -EACCES;
}

/* A long WRITE or READ behind others waits for them: then it is one copy, by ourselves. In packets
 * it would be two, with the peer's engine in between, and those that come behind it would be
 * packets for the same reason, without end. The others need the peer's engine as well, so nothing
 * is lost by it. */
static bool req_waits_for_turn(const struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->sq_lock)
{
	return w->length >= DIRECT_WAIT_FROM && !req_idle(qp) && qp->tx_offset == 0 &&
	       w->psn_count == 0 && !qp->no_direct && qp->type == IBV_QPT_RC &&
	       qp->dest->path->promise.direct && req_ops(qp)->pullable(qp->dest);
}

static int req_write(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	int err = req_waits_for_turn(qp, w) ? REQ_STALL : req_direct(qp, w);

	if (err == -EACCES || err == REQ_STALL)
		return err;
	if (err == 0 && w->opcode == IBV_WR_RDMA_WRITE) {
		qp->sq_next++;
		comp_retire(qp, w);
		return -EALREADY;
	}
	if (w->psn_count == 0)
		w->placed = err == 0;
	if (!w->placed && qp->type == IBV_QPT_UC)
		qp->no_direct = true;
	return req_message(qp, w, w->placed ? PKT_PLACED : err == -EFAULT ? PKT_UNREACHED : 0);
}

static int req_answered(struct ibt_qp *qp, struct send_wqe *w, u8 flags) REQUIRES(qp->sq_lock)
{
	struct pkt p;
	int err;

	if (qp->reads_out >= MAX(qp->attr.max_rd_atomic, 1))
		return REQ_STALL;
	req_begin(qp, w, w->opcode == IBV_WR_RDMA_READ ? req_packets(qp, w->length) : 1);
	req_fill(qp, &p,
		 w->opcode == IBV_WR_RDMA_READ		  ? PKT_READ_REQUEST
		 : w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? PKT_COMPARE_SWAP
							  : PKT_FETCH_ADD);
	p.flags |= flags;
	p.va = w->va;
	p.rkey = w->rkey;
	p.dma_length = w->length;
	p.compare = w->compare;
	p.swap = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? w->compare : w->swap;
	err = req_send(qp, &p, NULL, 0);
	if (err != 0)
		return err;
	qp->reads_out++;
	qp->sq_psn = (qp->sq_psn + w->psn_count) & PSN_MASK;
	return 0;
}

static int req_read(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	int err;

	if (req_waits_for_turn(qp, w))
		return REQ_STALL;
	err = w->opcode == IBV_WR_RDMA_READ ? req_direct(qp, w) : req_direct_atomic(qp, w);
	if (err == 0) {
		qp->sq_next++;
		comp_retire(qp, w);
		return -EALREADY;
	}
	return err == -EACCES ? err : req_answered(qp, w, err == -EFAULT ? PKT_UNREACHED : 0);
}

/* Requests that touch only this side: in order, after everything before them. */
static int req_local(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	if (!req_idle(qp))
		return REQ_STALL;
	if (w->opcode == IBV_WR_LOCAL_INV && mem_invalidate(qp->ibt->cfg.mem, w->imm, qp->pd) != 0)
		return -EPERM;
	qp->sq_next++;
	comp_retire(qp, w);
	return -EALREADY;
}

/* 0: transmitted; -EALREADY: complete as well; REQ_STALL; or an error. */
static int req_transmit(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->sq_lock)
{
	if (qp->type == IBV_QPT_UD)
		return ud_transmit(qp, w);
	if ((w->flags & IBV_SEND_FENCE) != 0 && qp->reads_out != 0)
		return REQ_STALL;
	if (qp->streams && w->opcode != IBV_WR_LOCAL_INV && w->opcode != IBV_WR_BIND_MW)
		return stream_transmit(qp, w);
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return req_write(qp, w);
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return req_read(qp, w);
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return req_local(qp, w);
	default:
		return req_message(qp, w, 0);
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
 * (IBA vol 1, 10.8.3.3). */
static void req_failed(struct ibt_qp *qp, int err) REQUIRES(qp->sq_lock)
{
	if (err == -EAGAIN || err == REQ_STALL)
		return;
	if (err == -ENETUNREACH)
		req_absent(qp);
	else if (err == -EPIPE || req_idle(qp))
		comp_fail(qp, req_status_of(err));
	/* else: comp_ack pumps again when those before it are done, and it fails then */
}

static inline bool req_may_send(const struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	return qp->sq_next != qp->sq_head &&
	       (qp->waiting == WAIT_NONE || qp->waiting >= WAIT_ROOM) &&
	       (qp->state == IBV_QPS_RTS ||
		(qp->state == IBV_QPS_SQD && qp->sq_next != qp->sq_stop));
}

void req_pump(struct ibt_qp *qp)
{
	bool sent = false;

	while (req_may_send(qp)) {
		struct send_wqe *w = sq_at(qp, qp->sq_next);
		int err = req_transmit(qp, w);

		if (err == 0) {
			qp->tx_offset = 0;
			qp->sq_next++;
			sent = true;
			if (qp->type != IBV_QPT_RC)
				comp_retire(qp, w);
		} else if (err != -EALREADY) {
			sent |= qp->tx_offset != 0;
			req_failed(qp, err);
			break;
		}
	}
	if (qp->streams)
		stream_pumped(qp);
	if (sent && qp->streams && resp_ride_ack(qp))
		sent = false; /* handed over */
	if (sent && qp->type != IBV_QPT_UD)
		req_ops(qp)->flush(qp->dest);
	if (unlikely(qp->draining))
		comp_check_drained(qp);
}

void req_block(struct ibt_qp *qp, struct path_dest *dest)
{
	path_count(dest->path, COUNT_TX_BLOCKED);
	lock_acquire(&dest->blocked_lock);
	if (list_empty(&qp->blocked_node)) {
		list_push_back(&dest->blocked, &qp->blocked_node);
		__atomic_store_n(&dest->any_blocked, true, __ATOMIC_RELAXED);
	}
	lock_release(&dest->blocked_lock);
}

void req_block_datagram(struct ibt_qp *qp, struct path_dest *dest)
{
	if (qp->blocked_on != dest) {
		req_unblock(qp);
		dest->path->ops->dest_hold(dest);
		qp->blocked_on = dest;
	}
	req_block(qp, dest);
}

void req_unblock(struct ibt_qp *qp)
{
	struct path_dest *dest = qp->type == IBV_QPT_UD ? qp->blocked_on : qp->dest;

	if (dest == NULL)
		return;
	lock_acquire(&dest->blocked_lock);
	list_remove(&qp->blocked_node);
	lock_release(&dest->blocked_lock);
	if (qp->type != IBV_QPT_UD)
		return;
	qp->blocked_on = NULL;
	dest->path->ops->dest_put(dest);
}

/* Executed, its answer on the way. */
static bool req_is_being_answered(const struct send_wqe *w, u32 psn)
{
	return wqe_is_answered_op(w) && psn_ahead(w->first_psn + w->psn_count - 1, psn) < 0;
}

void req_rewind(struct ibt_qp *qp, u32 psn)
{
	u32 from = qp->sq_tail;

	path_count(qp->dest->path, COUNT_TX_RETRY);
	while (from != qp->sq_next && req_is_being_answered(sq_at(qp, from), psn))
		from++;
	if (from != qp->sq_next || qp->tx_offset != 0)
		qp->sq_psn = sq_at(qp, from)->first_psn;
	if (from == qp->sq_tail)
		qp->rx_offset = 0;
	qp->sq_next = from;
	qp->tx_offset = 0;
	qp->reads_out = from - qp->sq_tail;
}

void req_arm_timer(struct ibt_qp *qp, enum wait_reason why, u64 delay_ns)
{
	qp->waiting = (u8)why;
	qp->progressed = false;
	if (timer_arm(qp->ibt->cfg.timers, &qp->timer, clock_now_ns() + delay_ns))
		qp->ibt->cfg.kick(qp->ibt->cfg.arg);
}

void req_absent(struct ibt_qp *qp)
{
	u64 timeout = qp->attr.timeout == 0 ? REQ_FOREVER_RETRY_MS * NS_PER_MS
					    : 4096ull << (qp->attr.timeout & 31);

	if (qp->waiting != WAIT_TIMEOUT)
		req_arm_timer(qp, WAIT_TIMEOUT, timeout);
}

/* What the timer was armed for has not come, or the wait is over. */
static void req_wait_over(struct ibt_qp *qp) REQUIRES(qp->sq_lock)
{
	enum wait_reason why = (enum wait_reason)qp->waiting;

	qp->waiting = WAIT_NONE;
	if (why >= WAIT_ROOM) {
		if (why == WAIT_ROOM && qp->blocked_on != NULL)
			path_give_up(qp->blocked_on, true);
		qp->hurried |= why == WAIT_MEMBER;
		req_pump(qp);
	} else if (why != WAIT_NONE && qp_sends(qp)) {
		/* A wait in which something else was done says nothing of what is left. */
		bool counts = why == WAIT_TIMEOUT && qp->attr.timeout != 0 && !qp->progressed;

		if (counts && qp->retry_left == 0) {
			comp_fail(qp, IBV_WC_RETRY_EXC_ERR);
		} else {
			qp->retry_left -= counts;
			if (why == WAIT_TIMEOUT)
				req_rewind(qp, sq_at(qp, qp->sq_tail)->first_psn);
			req_pump(qp);
		}
	}
}

void req_timer(struct timer *t)
{
	struct ibt_qp *qp = container_of(t, struct ibt_qp, timer);
	struct path_dest *others = NULL;

	lock_acquire(&qp->sq_lock);
	if (qp->streams) {
		retry_timer(qp);
		others = window_claim(qp);
	} else {
		req_wait_over(qp);
	}
	lock_release(&qp->sq_lock);
	window_wake(others);
}
