/* loss.h: what a path has lost although it promised to be reliable. */
#ifndef IBT_LOSSY_LOSS_H
#define IBT_LOSSY_LOSS_H

#include "ibt/ibt_qp.h"

/* Begins the Local ACK Timeout of an RC queue pair that waits for an answer over a path that
 * promises to be reliable. */
void loss_suspect(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Begins the Local ACK Timeout of each RC queue pair that is connected with `from` and waits for an
 * answer. Inside the path's callbacks; takes each sq_lock in turn. */
void loss_suspect_from(struct ibt *ibt, const struct path_dest *from);

#endif
