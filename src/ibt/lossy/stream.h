/* stream.h: the requester over a path that loses packets (qp->streams). */
#ifndef IBT_LOSSY_STREAM_H
#define IBT_LOSSY_STREAM_H

#include "ibt/ibt_qp.h"

/* Begins a connection at req.psn with nothing in flight. */
void stream_begin(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Transmits one request, or the rest of it. 0; PACKET_STALL: it waits for the window, the rate, the
 * response to a probe or max_rd_atomic; or an error of packet_send or packet_pieces. */
int stream_transmit(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock);
/* The requester has stopped: gives back the window that it does not use. */
void stream_pumped(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Returns the oldest packet number without an acknowledgement or response; stream.top: none. */
u32 stream_front(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Something was acknowledged: gives its bytes back to the window. Transmission that stood behind
 * the front goes on from there. */
void stream_settle(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Goes back to the front: all from there on is sent again. Counts a retransmission. */
void stream_rewind(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);

#endif
