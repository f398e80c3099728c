/* timeout.h: the waits of a requester on a reliable path. */
#ifndef IBT_SEND_TIMEOUT_H
#define IBT_SEND_TIMEOUT_H

#include "ibt/ibt_qp.h"

/* Waits for `delay_ns` because of `why`; the scheduler calls timeout_over then. */
void timeout_arm(struct ibt_qp *qp, enum wait_reason why, u64 delay_ns)
	REQUIRES(qp->req.sq_lock);
/* The peer is not there or not receiving: begins the Local ACK Timeout, unless it runs. */
void timeout_begin(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Goes back to the oldest request, to be transmitted again. The peer has executed all before
 * psn: of those, READs and atomics at the front only wait for their answers. */
void timeout_rewind(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock);
/* The wait is over: marks the queue pair runnable, or fails its oldest request with
 * RETRY_EXC_ERR. */
void timeout_over(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);

#endif
