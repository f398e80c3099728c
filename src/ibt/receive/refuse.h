/* refuse.h: the responder's refusals, and their packets. */
#ifndef IBT_RECEIVE_REFUSE_H
#define IBT_RECEIVE_REFUSE_H

#include "ibt/ibt_qp.h"

/* Notes that the request with resp.epsn is refused; refuse_tell sends it. RESP_DROP: nothing is
 * sent. */
void refuse_note(struct ibt_qp *qp, enum resp_verdict verdict) REQUIRES(qp->resp.rq_lock);
/* Sends the refusal that is owed, unless responses or lack of room still hold it back. True:
 * sent, and the queue pair fails of *verdict. */
bool refuse_tell(struct ibt_qp *qp, enum resp_verdict *verdict) REQUIRES(qp->resp.rq_lock);
/* The queue pair stops receiving: acknowledges accepted requests, drops waiting responses, and
 * sends PKT_ABSENT to a peer that waits for them. */
void refuse_leave(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Tells whether all that refuse_leave had to send is sent. Takes rq_lock. */
bool refuse_has_left(struct ibt_qp *qp);

#endif
