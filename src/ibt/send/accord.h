/* accord.h: whether both ends of a connection were given the same path MTU, and a first PSN, on a
 * path that does not cut packets at the path MTU, and where direct copies have no PSN.
 *
 * Ends that differ get what a wire would give them. With different path MTUs a message that fits
 * one packet of either end succeeds. The first packet of a longer one has a size that its receiver
 * refuses: it travels uncut and marked (PKT_MISFIT), since no later one counts. Nothing is copied
 * directly, so that PSNs are judged. Small SENDs need no care: they fit, and have PSNs.
 */
#ifndef IBT_SEND_ACCORD_H
#define IBT_SEND_ACCORD_H

#include "ibt/ibt_qp.h"

/* requester.accord. Beyond: log2 of the longest message that both ends take. What is not full is
 * compared anew with each request: the peer may still show an earlier connection. */
enum { ACCORD_UNKNOWN, ACCORD_FULL, ACCORD_SIZES /* the PSNs differ */ };

/* The queue pair has got a destination. */
void accord_begin(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock);
/* Before a request is transmitted, unless the accord is full: compares the ends as soon as the peer
 * shows its own. Returns PKT_MISFIT if the peer would refuse the first packet of a message of this
 * length, else 0. */
u8 accord_judge(struct ibt_qp *qp, u32 length) REQUIRES(qp->req.sq_lock);

/* Does the answer to a READ of this length have packets of the expected sizes? */
static inline bool accord_fits(const struct ibt_qp *qp, u32 length) REQUIRES(qp->req.sq_lock)
{
	return qp->req.accord <= ACCORD_SIZES || length <= 1u << qp->req.accord;
}

#endif
