/* block.h: queue pairs that wait for room in the path of a destination. */
#ifndef IBT_BLOCK_H
#define IBT_BLOCK_H

#include "ibt/ibt_qp.h"

/* Lists the queue pair with `dest`, whose path had no room: it is resumed when there is. The caller
 * sends once more after it, for room that came in between. Either lock. */
void block_wait(struct ibt_qp *qp, struct path_dest *dest);
/* The same for UD, where each request has a destination of its own: holds a reference of it, in
 * place of that of the destination before. */
void block_wait_datagram(struct ibt_qp *qp, struct path_dest *dest) REQUIRES(qp->req.sq_lock);
/* Takes the queue pair off the list; drops UD's reference. */
void block_leave(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* The queue pair that has waited longest, off the list; NULL: none waits. */
struct ibt_qp *block_pop(struct path_dest *dest);
/* Has a connected queue pair that was taken found no room again? UD: false. */
bool block_is_listed(struct ibt_qp *qp, struct path_dest *dest);
/* How many to resume in one call, 1 to BLOCK_RESUMES. */
int block_count(struct path_dest *dest);

#endif
