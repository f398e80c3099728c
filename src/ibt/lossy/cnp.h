/* cnp.h: notifications of congestion. */
#ifndef IBT_LOSSY_CNP_H
#define IBT_LOSSY_CNP_H

#include "ibt/ibt_qp.h"

/* Sends a CNP to the peer, one in 50 us at most; drops it if the path has no room. */
void cnp_send(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* The peer has sent a CNP: slows down requests and answers. Takes both locks. */
void cnp_receive(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p);

/* Has a switch marked the packet (ECN: congestion experienced)? */
static inline bool cnp_is_marked(const struct pkt *p)
{
	return (p->traffic_class & PATH_ECN_MASK) == PATH_ECN_MARKED;
}

#endif
