/* srq.h: the shared receive queue, as the responder takes from it. */
#ifndef IBT_SRQ_H
#define IBT_SRQ_H

#include "ibt/wqe.h"

struct ibt_srq {
	struct ibt *ibt FIXED;
	void *owner FIXED;
	u32 pd FIXED;
	u32 max_sge FIXED;
	struct lock lock;
	struct wqe_ring ring GUARDED_BY(lock); /* another one once its size is changed */
	u32 head GUARDED_BY(lock), tail GUARDED_BY(lock);
	u32 limit GUARDED_BY(lock); /* 0: not armed */
	bool unplugged GUARDED_BY(lock); /* the adapter is gone: nothing is taken */
};

/* Copies the oldest request to `copy`, which has room for max_sge of this SRQ. False: there is
 * none.
 * Takes the lock of the SRQ; may raise SRQ_LIMIT_REACHED. */
bool srq_take(struct ibt_srq *srq, struct recv_wqe *copy);

#endif
