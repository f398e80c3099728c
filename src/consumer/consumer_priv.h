/* consumer_priv.h: inside the room of what Linux 6.1 gives consumers over the verbs
 * (rdma/ib_linux61.h).
 *
 *   poller.c   CQs that poll themselves      worker.c   threads for them
 *   cq_pool.c  CQs that consumers share      client.c   clients by 6.1's structure
 *   drain.c    waits for the last completion of a queue
 *   pd.c       domains with keys             qp.c       queue pairs by 6.1's attributes
 *   queue.c    CQs and SRQs likewise         text.c     what numbers mean
 *   mr_pool.c  regions of a queue pair       rw.c       transfers of scatter lists
 *
 * Locks: the workers', the pool's and that of a queue pair's regions, each a leaf, never held
 * across a verb or a callback.
 */
#ifndef CONSUMER_PRIV_H
#define CONSUMER_PRIV_H

#include <rdma/ib_linux61.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/work.h"
#include "core/consumer.h"
#include "event/event.h"

enum { POLLER_BATCH = 16 };

/* What a queue pair has for its regions and transfers: ib_qp.pools. */
struct consumer_pools {
	struct ib_qp_pools lists OWNED_BY(consumer_pools.lock);
	struct lock lock ONE_AT_A_TIME; /* the lists of regions, which are consumers' */
	u32 max_write_sge FIXED;
	u32 max_read_sge FIXED;
	/* rdma_rw_set_force_mr when the queue pair was created */
	bool force FIXED;
};

/* The queue pair's; NULL: it has none. */
static inline struct consumer_pools *consumer_pools_of(const struct ib_qp *qp)
{
	return (struct consumer_pools *)qp->pools;
}
/* Gives a new queue pair its pools, empty. 0 or -ENOMEM. */
int consumer_pools_add(struct ib_qp *qp);
/* Ends the regions of the queue pair's own lists. May block. */
void consumer_pools_empty(struct ib_qp *qp);

/* Has a transfer of the device registered memory, or will it have? */
bool rw_may_register(const struct ib_device *device);
/* Adds the requests of `ctxs` transfers to a send queue's. */
u32 rw_add_requests(const struct ib_device *device, u32 max_send_wr, u32 ctxs);
/* Makes the queue pair ready for `ctxs` transfers. 0, or as ib_mr_pool_init. */
int rw_prepare(struct ib_qp *qp, u32 max_send_sge, u32 ctxs);

/* A thread that serves one CQ at a time. Never freed. */
struct worker {
	struct work_queue queue GUARDS_ITSELF;
	struct list_head node OWNED_BY(workers.lock); /* workers.all, for good */
	struct list_head idle OWNED_BY(workers.lock); /* workers.idle, or nowhere */
};

/* One that serves nobody else, with its thread; NULL: no thread, or no memory (*err). May block. */
struct worker *worker_get(int *err);
/* Pairs with worker_get: no work is in the queue any more. */
void worker_put(struct worker *w);

/* What a CQ of ib_alloc_cq has: ib_cq.poller. */
struct poller {
	struct ib_cq *cq FIXED;
	enum ib_poll_context context FIXED;
	int comp_vector FIXED;
	bool stopped ATOMIC_ONLY;	    /* the CQ is being freed: a turn does nothing */
	u32 turns ATOMIC_ONLY;		    /* that have emptied the CQ */
	struct vector_item item GUARDS_ITSELF; /* SOFTIRQ: the turn */
	struct worker *worker FIXED;	       /* WORKQUEUE */
	struct work work GUARDS_ITSELF;	       /* WORKQUEUE: the turn */
	struct ib_wc wc[POLLER_BATCH] OWNED_BY(the turn);
	/* Of a CQ in the pool. */
	struct list_head node OWNED_BY(cq_pool.lock);
	u32 holders OWNED_BY(cq_pool.lock); /* gets without their put */
	u32 claimed OWNED_BY(cq_pool.lock); /* completions that they may have waiting at once */
};

/* Returns when every completion that the CQ has at the call has had its `done`. Not from such a
 * one, and not with IB_POLL_DIRECT. May block. */
void poller_await_turn(struct poller *p);

/* NULL: the CQ was not made by ib_alloc_cq. */
static inline struct poller *poller_of(const struct ib_cq *cq)
{
	return core_serves_linux61(cq->device) ? cq->poller : NULL;
}

#endif
