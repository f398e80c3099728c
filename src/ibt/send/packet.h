/* packet.h: one packet of a send request. */
#ifndef IBT_SEND_PACKET_H
#define IBT_SEND_PACKET_H

#include "ibt/ibt_qp.h"

/* Answer of a transmission that waits for an acknowledgement, or for its turn. */
enum { PACKET_STALL = 1 };

/* Sets the fields that every packet of the connection has, but not `length`. On a reliable path an
 * owed acknowledgement is piggybacked: if the packet is not sent, the caller gives it back
 * (ack_return); packet_send does. So nothing that may fail comes between the two. */
void packet_fill(struct ibt_qp *qp, struct pkt *p, u8 opcode) REQUIRES(qp->req.sq_lock);
/* Hands a packet to the path. 0, also where UC or a lossy path drops it; -EAGAIN: no room, and the
 * queue pair will be resumed; -ENETUNREACH, -EPIPE, -EFAULT as path_ops.send. */
int packet_send(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
	REQUIRES(qp->req.sq_lock);
/* The local memory of the next `n` bytes of the request at tx_cursor, which moves. Returns the
 * count of pieces, at most IBT_MAX_SGE + 2, or a negative errno of mem_pieces. */
int packet_pieces(struct ibt_qp *qp, struct send_wqe *w, u32 n, u32 access, struct iovec *iov)
	REQUIRES(qp->req.sq_lock);
/* The opcode of a part of a SEND or WRITE. */
u8 packet_opcode(const struct send_wqe *w, bool first, bool last);
/* The opcode of a request that is answered. */
u8 packet_answered_opcode(const struct send_wqe *w);
/* The payload of a request that is answered, which only an atomic write has: returns how many
 * pieces lie in iov, of IBT_MAX_SGE + 2, or an error of packet_pieces. Before packet_fill. */
int packet_confirmed_pieces(struct ibt_qp *qp, struct send_wqe *w, struct iovec *iov)
	REQUIRES(qp->req.sq_lock);
/* Sets the fields that only an atomic write or a flush has; nothing for other requests. */
void packet_fill_confirmed(const struct send_wqe *w, struct pkt *p);
/* Packets of a message of `length` bytes; 1 for none. */
u32 packet_count(const struct ibt_qp *qp, u32 length);

/* Shall the last packet of a request with these flags ask for an acknowledgement? Also when half of
 * the queue is outstanding. */
static inline bool packet_wants_ack(const struct ibt_qp *qp, u32 flags)
	REQUIRES(qp->req.sq_lock)
{
	return (flags & IBV_SEND_SIGNALED) != 0 ||
	       (qp->req.head - qp->req.tail) * 2 > qp->req.ring.size;
}

#endif
