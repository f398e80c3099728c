/* requester.h: runs the send queue of a queue pair. */
#ifndef IBT_SEND_REQUESTER_H
#define IBT_SEND_REQUESTER_H

#include "ibt/ibt_qp.h"

/* Transmits what may be transmitted: requests from req.next on, until one must wait (for room, an
 * acknowledgement, its turn, a timer) or fails. Only the scheduler calls it. */
void req_pump(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);

#endif
