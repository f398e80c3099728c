/* cq.h: the completion queue: a ring of completions in libibverbs' layout, its arming and its sink.
 *
 * Producers are the engine's completer and responder, on any thread; consumers poll from any thread. One lock, whose
 * sections never block. Notification follows the midlayer's contract (docs/contract.md): strict by default.
 */
#ifndef QUEUE_CQ_H
#define QUEUE_CQ_H

#include <infiniband/verbs.h>

#include "base/lock.h"
#include "event/event.h"

enum { CQ_SOLICITED = 1, CQ_NEXT_COMP = 2, CQ_ARM_MASK = 3, CQ_REPORT_MISSED = 4 };

/* One completion, one cache line. */
struct cqe {
	struct ibv_wc wc;   /* as ibv_poll_cq hands it out */
	void *qp;           /* the driver's QP; for ib_wc.qp and for cleaning */
	u64 timestamp_ns;   /* when it was added, if the CQ keeps time stamps */
};

struct cq {
	struct lock lock;
	u32 mask;                        /* ring size - 1; changes under lock (resize) */
	u32 head GUARDED_BY(lock);       /* next to fill; free running. Read without the lock as a hint */
	u32 tail GUARDED_BY(lock);       /* next to hand out; free running */
	u32 capacity GUARDED_BY(lock);   /* how many the consumer asked for, at most mask + 1 */
	u8 armed GUARDED_BY(lock);       /* CQ_SOLICITED or CQ_NEXT_COMP, or 0 */
	bool overflowed GUARDED_BY(lock);
	bool eager;                      /* an arm with completions waiting fires at once (device attribute) */
	bool timestamps;
	u32 ncomp_wanted GUARDED_BY(lock); /* ib_req_ncomp_notif: fires when so many are queued; 0: off */
	struct cqe *ring PT_GUARDED_BY(lock);
	void (*handler)(struct cq *cq);  /* the consumer's, run by `item` on the vector; NULL for a channel */
	struct vector_item item;
	struct channel_source source;
	void (*overflow)(struct cq *cq); /* tells the driver (async event CQ_ERR); never under the lock */
};

/* Everything else of *cq is the caller's to set after this: sink first, then use. 0 or -ENOMEM. */
int cq_init(struct cq *cq, u32 cqe_wanted);
/* Flushes the sink (waits for handlers and acknowledgements), then frees the ring. May block. */
void cq_fini(struct cq *cq);
/* 0, -EINVAL if more completions wait than fit, -ENOMEM. */
int cq_resize(struct cq *cq, u32 cqe_wanted);
/* Adds a completion and fires the sink if armed for it. False: no room, the CQ is now in error (reported once). Any context.
 * `solicited`: the message asked for it, or the status is an error. */
bool cq_push(struct cq *cq, const struct cqe *e, bool solicited);
/* Takes up to n; returns how many, or -EIO... never: an overflowed CQ still hands out what it holds. */
int cq_pop(struct cq *cq, int n, struct ibv_wc *wc);
/* The same with the whole entry (ib_* side and extended CQs). */
int cq_pop_cqe(struct cq *cq, int n, struct cqe *out);
/* How many wait, counted up to `limit`. */
int cq_peek(struct cq *cq, int limit);
/* Flags as above; -EINVAL unless exactly one of SOLICITED and NEXT_COMP. 0 or, with CQ_REPORT_MISSED, 1. */
int cq_arm(struct cq *cq, u32 flags);
int cq_arm_ncomp(struct cq *cq, u32 count);
/* Drops every waiting completion of `qp` (it is being destroyed), keeping the order of the rest. */
void cq_forget(struct cq *cq, const void *qp);

static inline bool cq_looks_empty(const struct cq *cq)
{
	return __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) == __atomic_load_n(&cq->tail, __ATOMIC_RELAXED);
}

#endif
