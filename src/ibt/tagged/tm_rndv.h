/* tm_rndv.h: the READ and the FIN of a rendezvous, sent by the adapter itself. */
#ifndef IBT_TAGGED_TM_RNDV_H
#define IBT_TAGGED_TM_RNDV_H

#include "ibt/tagged/tm_conn.h"

/* Adds READs for the rendezvous that wait, in order, while slots are free; marks the queue pair
 * runnable. Nothing unless the queue pair sends. For the scheduler, after the responder has let go
 * of rq_lock. */
void tm_rndv_issue(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* The oldest send request `w`, which has WQE_TM, has ended. True: it was a READ or FIN of a
 * rendezvous, whose entry has been completed; *room: false if its CQ has overflowed. False: it is
 * the consumer's. */
bool tm_rndv_finish(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status,
		    bool *room) REQUIRES(qp->req.sq_lock);
/* The send queue is emptied without completions: completes the entries of its READs with
 * WR_FLUSH_ERR. */
void tm_rndv_reset(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);

#endif
