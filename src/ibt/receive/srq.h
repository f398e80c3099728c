/* srq.h: the shared receive queue, as the responder takes from it. */
#ifndef IBT_RECEIVE_SRQ_H
#define IBT_RECEIVE_SRQ_H

#include <infiniband/tm_types.h>

#include "ibt/send/wqe.h"
#include "tag/tag.h"

/* The first bytes of a tagged message; EAGER has no `rvh`. */
struct tm_header {
	struct ibv_tmh tmh;
	struct ibv_rvh rvh;
} OWNED_BY(who reads or writes the message);

struct ibt_srq {
	struct ibt *ibt FIXED;
	void *owner FIXED;
	u32 pd FIXED;
	u32 max_sge FIXED;
	struct lock lock;
	struct wqe_ring ring GUARDED_BY(lock); /* another one once its size is changed */
	struct wqe_memory memory GUARDED_BY(lock); /* of `ring` */
	u32 head GUARDED_BY(lock), tail GUARDED_BY(lock);
	u32 freed ATOMIC_ONLY;	/* requests whose completions have been polled */
	bool frees_early FIXED; /* a place is free once its request has been taken: `tail` counts */
	u32 limit GUARDED_BY(lock); /* 0: not armed */
	bool unplugged GUARDED_BY(lock); /* the adapter is gone: nothing is taken */
	/* Of its receives, whatever CQ a queue pair names: of a tag-matching SRQ, or of one of an
	 * XRC domain. NULL: a basic SRQ */
	struct cq *own_cq FIXED;

	/* Of an SRQ of an XRC domain only. */
	u64 xrcd FIXED; /* 0: it is of none */
	u32 number FIXED; /* by which requests name it; 0 in a forked child */
	struct ibt_srq *next OWNED_BY(ibt.table_lock); /* of the table: at the same place */

	/* Of a tag-matching SRQ only. */
	struct cq *tm_cq FIXED; /* of receives and list operations; NULL: a basic SRQ */
	u32 max_ops FIXED;
	u32 tm_id FIXED; /* ibv_wc.src_qp of its list operations: which SRQ's they are */
	/* Messages match in the order in which their completions are added. Held from the match to
	 * the completion of a whole message, or of the match of one in pieces */
	struct lock order_lock ONE_AT_A_TIME ACQUIRED_BEFORE(lock);
	struct tag_list tags GUARDED_BY(lock);
	/* Beside tags.entries: the request of the rendezvous that has taken the entry. */
	struct tm_header *rndvs FIXED;
	/* signalled operations that may not be polled yet: at least as many as there are */
	u32 ops GUARDED_BY(lock);
	bool tm_failed GUARDED_BY(lock); /* tm_cq has overflowed: operations answer -EIO */
};

static inline bool srq_matches_tags(const struct ibt_srq *srq)
{
	return srq->tm_cq != NULL;
}

/* A request that was taken has completed, and that has been polled, or never will be. */
static inline void srq_free_place(struct ibt_srq *srq)
{
	__atomic_fetch_add(&srq->freed, 1, __ATOMIC_RELAXED);
}

/* Copies the oldest request to `copy`, which has room for max_sge of this SRQ. False: there is
 * none.
 * Takes the lock of the SRQ; may raise SRQ_LIMIT_REACHED. */
bool srq_take(struct ibt_srq *srq, struct recv_wqe *copy);
/* The same for a caller that holds the lock; *fire: SRQ_LIMIT_REACHED is to be raised by srq_limit
 * once it has let go. */
bool srq_take_held(struct ibt_srq *srq, struct recv_wqe *copy, bool *fire) REQUIRES(srq->lock);
/* Raises SRQ_LIMIT_REACHED. */
void srq_limit(struct ibt_srq *srq) EXCLUDES(srq->lock);

#endif
