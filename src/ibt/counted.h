/* counted.h: counters of what a queue pair has completed. */
#ifndef IBT_COUNTED_H
#define IBT_COUNTED_H

#include "ibt/ibt_qp.h"

/* Counts a send request that ends, if the queue pair has a counter for its kind. */
void counted_send(struct ibt_qp *qp, const struct send_wqe *w, enum ibv_wc_status status)
	REQUIRES(qp->req.sq_lock);
/* The same for a receive request. */
void counted_recv(struct ibt_qp *qp, enum ibv_wc_status status, u32 length)
	REQUIRES(qp->resp.rq_lock);

#endif
