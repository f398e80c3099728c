/* portdown.h: what a queue pair sends while its port is down, or it has an alternate path. */
#ifndef IBT_SEND_PORTDOWN_H
#define IBT_SEND_PORTDOWN_H

#include "ibt/ibt_qp.h"

/* A datagram, which is as good as sent: counted. 0. */
int portdown_lose(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* A request of a queue pair with an alternate path, or that meets the port. As path_ops.send. */
int portdown_request(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
	REQUIRES(qp->req.sq_lock);
/* An answer of the responder that meets the port: counted. On a reliable path its requester hears
 * PKT_ABSENT instead, for nobody sends an answer again. As path_ops.send, which it calls. */
int portdown_keep(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov, int n)
	REQUIRES(qp->resp.rq_lock);

/* Sends an answer of the responder. As path_ops.send. */
static inline int portdown_answer(struct ibt_qp *qp, const struct pkt *p, const struct iovec *iov,
				  int n) REQUIRES(qp->resp.rq_lock)
{
	if (unlikely(qp_is_special(qp)))
		return portdown_keep(qp, p, iov, n);
	return qp->dest->path->ops->send(qp->dest, p, iov, n);
}

#endif
