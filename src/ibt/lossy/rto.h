/* rto.h: the retransmission timeout of a stream. */
#ifndef IBT_LOSSY_RTO_H
#define IBT_LOSSY_RTO_H

#include "ibt/ibt_qp.h"

enum { RTO_MOST_MS = 500 }; /* between two retransmissions */

/* The retry budget: how long the peer may be silent before the request fails. 0: for ever. */
u64 rto_budget_ns(const struct ibt_qp *qp);
/* How long to wait before transmitting again: the RTT with a margin, and backoff. */
u64 rto_after_ns(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Arms the timer of the queue pair. */
void rto_arm(struct ibt_qp *qp, u64 deadline_ns) REQUIRES(qp->req.sq_lock);
/* A request awaits a response from now on: starts the timer if it does not run. now_ns: 0, or the
 * time. */
void rto_watch(struct ibt_qp *qp, u64 now_ns) REQUIRES(qp->req.sq_lock);
/* The peer has acknowledged up to stream.una: takes the RTT if the measured packet is among it. */
void rto_measure(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);

#endif
