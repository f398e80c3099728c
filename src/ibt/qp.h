/* qp.h: how a queue pair fails. */
#ifndef IBT_QP_H
#define IBT_QP_H

#include "ibt/ibt_qp.h"

/* The process behind `dest` has died: fails the RC queue pair if it is connected there. Takes
 * sq_lock. */
void qp_peer_died(struct ibt_qp *qp, struct path_dest *dest);

#endif
