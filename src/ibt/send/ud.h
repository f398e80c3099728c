/* ud.h: unreliable datagrams. */
#ifndef IBT_SEND_UD_H
#define IBT_SEND_UD_H

#include "ibt/ibt_qp.h"

/* Transmits one UD request, to one queue pair or to a group. 0: sent or dropped; -EAGAIN: waits for
 * room, and the queue pair is resumed; -EMSGSIZE: longer than a packet; -EACCES, -EFAULT: the local
 * memory is at fault. */
int ud_transmit(struct ibt_qp *qp, struct send_wqe *w) REQUIRES(qp->req.sq_lock);
/* Delivers a datagram into a receive request, or counts why not. Takes rq_lock. True: the queue
 * pair must fail. */
bool ud_receive(struct ibt_qp *qp, const struct path *path, const struct pkt *p,
		const void *payload);

#endif
