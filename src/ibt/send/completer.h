/* completer.h: acknowledgements and responses of the peer. */
#ifndef IBT_SEND_COMPLETER_H
#define IBT_SEND_COMPLETER_H

#include "ibt/ibt_qp.h"

enum { COMP_CONTRADICTED = 1u << 31 /* of ibt_qp.contradicted_psn */ };

/* Receives an acknowledgement or response of the peer, on a reliable path. */
void comp_receive(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->req.sq_lock);
/* Completes everything up to and with `psn`, up to a READ or atomic that has no answer; marks the
 * queue pair runnable if requests wait. */
void comp_ack(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock);
/* The peer acknowledges what has not been sent, or is to be sent again after a step back: begins
 * the Local ACK Timeout if it contradicts the PSNs of this side. */
NOINLINE void comp_beyond(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock);
/* Copies n bytes of an answer to where the oldest request wants them. 0, or an errno of
 * mem_scatter. */
int comp_scatter(struct ibt_qp *qp, struct send_wqe *w, const void *data, u32 n)
	REQUIRES(qp->req.sq_lock);
/* Does a NAK with this code end its request? */
bool comp_is_fatal_nak(u8 code);
/* Fails the oldest request with what a fatal NAK (its code) says of it. */
void comp_fatal_nak(struct ibt_qp *qp, u8 code) REQUIRES(qp->req.sq_lock);
/* The wait that an RNR timer code stands for. IBA vol 1, table 45. */
u64 comp_rnr_ns(u8 code);

#endif
