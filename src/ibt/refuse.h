/* refuse.h: what the responder refuses, and how the peer hears of it. */
#ifndef IBT_REFUSE_H
#define IBT_REFUSE_H

#include "ibt/ibt_qp.h"

/* Notes that the request with resp.epsn is refused; refuse_tell sends it. RESP_DROP: nothing is
 * said. */
void refuse_note(struct ibt_qp *qp, enum resp_verdict verdict) REQUIRES(qp->resp.rq_lock);
/* Sends the refusal that is owed, unless answers or the lack of room still hold it back. True:
 * sent, and the queue pair fails of *verdict. */
bool refuse_tell(struct ibt_qp *qp, enum resp_verdict *verdict) REQUIRES(qp->resp.rq_lock);
/* The queue pair stops receiving: acknowledges what it has accepted, drops the answers that
 * wait, and says PKT_ABSENT to a peer that waits for them. */
void refuse_leave(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Has the peer been told all that refuse_leave had to tell? Takes rq_lock. */
bool refuse_has_left(struct ibt_qp *qp);

#endif
