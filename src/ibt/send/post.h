/* post.h: posts that are not as simple as quick.c wants them. */
#ifndef IBT_SEND_POST_H
#define IBT_SEND_POST_H

#include "ibt/ibt_qp.h"

/* Post the rest of a list that the fast path has left, and release the lock. 0; -EINVAL, -ENOMEM,
 * -EFAULT: *bad names the request. A queue pair in ERR flushes it. */
int post_send(struct ibt_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		 ibt_av_of *av_of) RELEASE(qp->req.sq_lock);
int post_recv(struct ibt_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
	RELEASE(qp->resp.rq_lock);

#endif
