/* stream.c: the requester of an RC connection over a path that loses or reorders packets: one
 * packet per path MTU; after a loss it retransmits from the oldest unacknowledged one.
 *
 * Numbers of packets are linear (u32), the wire sees their low 24 bits; far less than 2^23 of them
 * are in flight, since the window bounds them. A READ is requested in pieces of at most
 * stream.segment packets, each a request of its own to the peer, so that its responses fit the
 * window; where the window has grown with the RTT they are longer (send_wqe.stretch). The pieces of
 * a message are cut at fixed places: a repeated request lies within an earlier one.
 *
 * In:    requests of the send queue    Out: packets
 * Runs:  the thread that runs the requester    Locks: sq_lock    Spec: IBA vol 1, 9.7.3
 */
#include <errno.h>

#include "base/clock.h"
#include "ibt/send/packet.h"
#include "ibt/lossy/rate.h"
#include "ibt/lossy/rto.h"
#include "ibt/lossy/stream.h"
#include "ibt/lossy/window.h"

enum {
	STREAM_SEGMENT_COST = 36 << 10,
	STREAM_ASK_COST = 36 << 10, /* acknowledgements are asked for no later */
	STREAM_LEFT_MAX = 1 << 20,  /* more than any burst */
};

void stream_begin(struct ibt_qp *qp)
{
	struct stream *s = &qp->req.stream;

	s->una = s->top = qp->req.psn;
	s->cost_done = s->cost_next;
	s->backoff = 0;
	s->probe = s->probed = false;
	s->rtt_ns = 0;
	s->refusal = 0;
	s->gap = qp->req.psn - 1;
	s->segment = (u16)MAX((u32)STREAM_SEGMENT_COST / window_cost(1, qp_packet_bytes(qp)), 1u);
}

static u32 stream_cost(const struct ibt_qp *qp, const struct send_wqe *w, u32 packets)
{
	u64 bytes = (u64)packets << qp->psn_shift;

	return window_cost(packets, (u32)MIN(bytes, (u64)w->length));
}

/* ---- where it stands ---- */

/* The oldest request, if any packet of it has been numbered. */
static struct send_wqe *stream_oldest(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = sq_at(qp, qp->req.tail);

	return qp->req.tail != qp->req.head && w->psn_count != 0 ? w : NULL;
}

/* Packets of the oldest request that nothing is awaited for any more. */
static u32 stream_done(const struct ibt_qp *qp, const struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	s32 done = (s32)(qp->req.stream.una - w->first_psn);

	if (wqe_is_answered_op(w))
		return qp->req.rx_offset >> qp->psn_shift;
	return done <= 0 ? 0 : MIN((u32)done, w->psn_count);
}

u32 stream_front(const struct ibt_qp *qp)
{
	const struct send_wqe *w = stream_oldest(qp);

	return w == NULL ? qp->req.stream.top : w->first_psn + stream_done(qp, w);
}

static void stream_go_to(struct ibt_qp *qp, struct send_wqe *w, u32 packets)
	REQUIRES(qp->req.sq_lock)
{
	qp->req.psn = w->first_psn + packets;
	qp->req.tx_offset = packets << qp->psn_shift;
	qp->req.stream.cost_next = w->first_cost + stream_cost(qp, w, packets);
	qp->req.stream.seek = true;
}

void stream_settle(struct ibt_qp *qp)
{
	struct stream *s = &qp->req.stream;
	struct send_wqe *w = stream_oldest(qp);
	u32 done = w == NULL ? 0 : stream_done(qp, w);
	u32 front = w == NULL ? s->top : w->first_psn + done;
	u32 before = s->cost_done;

	if ((s32)(front - qp->req.psn) > 0 || (s32)(qp->req.tail - qp->req.next) > 0) {
		qp->req.next = qp->req.tail;
		qp->req.psn = front;
		qp->req.tx_offset = 0;
		if (w != NULL)
			stream_go_to(qp, w, done);
		s->cost_done = before = s->cost_next;
	}
	s->cost_done = w == NULL ? s->cost_next : w->first_cost + stream_cost(qp, w, done);
	window_settle(qp, s->cost_done - before);
}

void stream_rewind(struct ibt_qp *qp)
{
	struct send_wqe *w = stream_oldest(qp);

	if (w == NULL)
		return;
	path_count(qp->dest->path, COUNT_TX_RETRY);
	qp->req.next = qp->req.tail;
	qp->req.reads_out = 0;
	qp->req.stream.rtt_ns = 0;
	stream_go_to(qp, w, stream_done(qp, w));
	qp->req.stream.cost_done = qp->req.stream.cost_next;
	window_settle(qp, 0);
}

/* ---- transmitting ---- */

static void stream_number(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	w->first_psn = qp->req.psn;
	w->psn_count = wqe_is_answered_op(w) && w->opcode != IBV_WR_RDMA_READ
			       ? 1
			       : packet_count(qp, w->length);
	w->first_cost = qp->req.stream.cost_next;
	w->stretch = 0;
	if (w->opcode == IBV_WR_RDMA_READ && w->psn_count > qp->req.stream.segment)
		w->stretch = window_stretch(qp, stream_cost(qp, w, qp->req.stream.segment));
}

/* After a step back: what the peer has executed is not sent again. */
static void stream_skip(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	if (!wqe_is_answered_op(w) && (s32)(qp->req.stream.una - qp->req.psn) > 0)
		stream_go_to(qp, w, MIN(qp->req.stream.una - w->first_psn, w->psn_count));
}

static void stream_seek(struct ibt_qp *qp, const struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	struct mem_cursor *c = &qp->req.tx_cursor;

	*c = (struct mem_cursor){ .sge = w->sge,
				  .count = w->sge_count,
				  .offset = qp->req.tx_offset };
	while (c->index < c->count && c->offset >= c->sge[c->index].length)
		c->offset -= c->sge[c->index++].length;
	qp->req.stream.seek = false;
}

static void stream_fill(struct ibt_qp *qp, const struct send_wqe *w, struct pkt *p, u8 opcode)
	REQUIRES(qp->req.sq_lock)
{
	*p = (struct pkt){
		.opcode = opcode,
		.qp_type = qp->packet_type,
		.dqpn = qp->dest_qpn,
		.sqpn = qp->qpn,
		.psn = qp->req.psn & PSN_MASK,
		.srqn = w->srqn,
		.rkey = w->rkey,
	};
}

static void stream_sent(struct ibt_qp *qp, u32 packets, u32 bytes, bool asked)
	REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;
	u64 now_ns = 0;

	if (asked && s->rtt_ns == 0 && qp->req.psn == s->top) {
		s->rtt_ns = now_ns = clock_now_ns();
		s->rtt_psn = qp->req.psn;
		s->rtt_ambiguous = false;
	}
	s->probed = s->probe;
	qp->req.psn += packets;
	qp->req.tx_offset += bytes;
	s->cost_next += window_cost(packets, bytes);
	s->unasked = asked ? 0 : s->unasked + window_cost(packets, bytes);
	if (unlikely(qp->req.rate != NULL))
		rate_charge(qp, window_cost(packets, bytes));
	/* The peer may have executed all while a response is missing: the stream is not idle then.
	 * */
	if ((s->una == s->top && stream_front(qp) == s->top) || unlikely(!s->timing))
		rto_watch(qp, now_ns);
	if ((s32)(qp->req.psn - s->top) > 0)
		s->top = qp->req.psn;
}

/* Must what comes next wait until this has been acknowledged? */
static bool stream_next_waits(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	const struct send_wqe *next = sq_at(qp, qp->req.next + 1);

	return qp->req.next + 1 == qp->req.head || qp->state != IBV_QPS_RTS ||
	       wqe_is_local(next);
}

/* What the rest of the message at hand will count, or some of it that is more than a burst. */
static u32 stream_left(const struct ibt_qp *qp, const struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	u32 bytes = MIN(w->length - qp->req.tx_offset, (u32)STREAM_LEFT_MAX);

	return window_cost(packet_count(qp, bytes), bytes);
}

static bool stream_wants_ack(struct ibt_qp *qp, const struct send_wqe *w, u32 n)
	REQUIRES(qp->req.sq_lock)
{
	bool last = qp->req.tx_offset + n == w->length;

	if (unlikely(qp->req.stream.probe))
		return true;
	if (last && ((w->flags & IBV_SEND_SIGNALED) != 0 || stream_next_waits(qp) ||
		     (qp->req.head - qp->req.tail) * 2 > qp->req.ring.size))
		return true;
	if (qp->req.stream.unasked >= STREAM_ASK_COST)
		return true;
	if (unlikely(qp->req.rate != NULL) && rate_pauses_after(qp, window_cost(1, n)))
		return true;
	/* Requests an acknowledgement if no further packet fits the window. */
	return !window_reserve(qp, window_cost(1, n) + window_cost(1, qp_packet_bytes(qp)),
			       stream_left(qp, w));
}

static int stream_packet(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	u32 n = MIN(w->length - qp->req.tx_offset, qp_packet_bytes(qp));
	bool first = qp->req.tx_offset == 0, last = qp->req.tx_offset + n == w->length;
	struct iovec iov[IBT_MAX_SGE + 2];
	struct pkt p;
	int pieces, err;

	if (unlikely(qp->req.stream.probed) || rate_holds(qp) ||
	    !window_reserve(qp, window_cost(1, n), stream_left(qp, w)))
		return PACKET_STALL;
	if (qp->req.stream.seek)
		stream_seek(qp, w);
	pieces = packet_pieces(qp, w, n, 0, iov);
	if (unlikely(pieces < 0))
		return pieces;
	stream_fill(qp, w, &p, packet_opcode(w, first, last));
	p.length = n;
	p.imm = w->imm;
	p.va = w->va;
	p.dma_length = w->length;
	p.flags = (last && (w->flags & IBV_SEND_SOLICITED) != 0 ? PKT_SOLICITED : 0) |
		  (stream_wants_ack(qp, w, n) ? PKT_ACK_REQUEST : 0);
	err = packet_send(qp, &p, iov, pieces);
	if (unlikely(err != 0)) {
		qp->req.stream.seek = true;
		return err;
	}
	stream_sent(qp, 1, n, (p.flags & PKT_ACK_REQUEST) != 0);
	return 0;
}

static int stream_message(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	int err = 0;

	while (err == 0 && qp->req.psn != w->first_psn + w->psn_count)
		err = stream_packet(qp, w);
	return err;
}

/* One request for an atomic, an atomic write, a flush, or for the next piece of a READ. */
static int stream_request(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;
	u32 segment = (u32)qp->req.stream.segment << (qp->psn_shift + w->stretch);
	u32 n = MIN(w->length - qp->req.tx_offset, segment - qp->req.tx_offset % segment);
	u32 packets = read ? packet_count(qp, n) : 1;
	struct iovec iov[IBT_MAX_SGE + 2];
	struct pkt p;
	int pieces, err;

	if (unlikely(qp->req.stream.probed) ||
	    qp->req.reads_out >= MAX(qp->attr.max_rd_atomic, 1) || rate_holds(qp) ||
	    !window_reserve(qp, window_cost(packets, n), 0)) /* a piece is worth a quantum */
		return PACKET_STALL;
	pieces = packet_confirmed_pieces(qp, w, iov);
	if (unlikely(pieces < 0))
		return pieces;
	stream_fill(qp, w, &p, packet_answered_opcode(w));
	p.va = w->va + qp->req.tx_offset;
	p.dma_length = n;
	p.compare = w->compare;
	p.swap = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? w->compare : w->swap;
	packet_fill_confirmed(w, &p);
	err = packet_send(qp, &p, iov, pieces);
	if (unlikely(err != 0))
		return err;
	qp->req.reads_out++;
	stream_sent(qp, packets, n, true);
	return 0;
}

static int stream_answered(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock)
{
	int err = 0;

	while (err == 0 && qp->req.psn != w->first_psn + w->psn_count)
		err = stream_request(qp, w);
	return err;
}

int stream_transmit(struct ibt_qp *qp, struct send_wqe *w)
{
	if (qp->req.tx_offset == 0)
		qp->req.stream.seek = true;
	if (w->psn_count == 0)
		stream_number(qp, w);
	else
		stream_skip(qp, w);
	return wqe_is_answered_op(w) ? stream_answered(qp, w) : stream_message(qp, w);
}

void stream_pumped(struct ibt_qp *qp)
{
	window_settle(qp, 0);
	if (unlikely(__atomic_load_n(&qp->dest->window->any_waiting, __ATOMIC_RELAXED)) &&
	    (qp->req.next == qp->req.head || qp->req.waiting != WAIT_NONE || rate_is_holding(qp)))
		window_unlist(qp);
}
