/* retry.h: responses of a stream's peer, and their absence. */
#ifndef IBT_LOSSY_RETRY_H
#define IBT_LOSSY_RETRY_H

#include "ibt/ibt_qp.h"

/* Receives a response or acknowledgement of the peer: completes, retransmits, or marks runnable. */
void retry_receive(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->req.sq_lock);
/* The timer of the queue pair has expired: probes, waits on, or fails with RETRY_EXC_ERR. */
void retry_timer(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);

#endif
