/* write.h: the shortest way of WRITEs into memory that is mapped here. */
#ifndef IBT_SEND_WRITE_H
#define IBT_SEND_WRITE_H

#include "ibt/ibt_qp.h"

/* Executes WRITEs at the front of the list by direct copies into memory that is mapped here, 16 at
 * most, and completes them; returns the rest. The queue pair is one that the fast path may send
 * on. */
struct ibv_send_wr *write_post(struct ibt_qp *qp, struct ibv_send_wr *wr) REQUIRES(qp->req.sq_lock);

#endif
