/* cq.h: completion queues of rsockets: a completion of an armed one wakes those who wait for the
 * rsocket, without a descriptor in between.
 *
 * A thread that waits joins the rsocket's wait_queue, arms, polls the CQ until it is empty, and
 * only then sleeps.
 */
#ifndef RDMACM_RSOCKET_CQ_H
#define RDMACM_RSOCKET_CQ_H

#include <rdma/rdma_cma.h>

#include "rsocket.h"

struct rsocket_cq {
	struct ibv_comp_channel *channel FIXED;
	struct ibv_cq *cq FIXED; /* NULL: there is none */
	struct wait_queue *waiters FIXED;
	u32 armed ATOMIC_ONLY; /* 1: the next completion wakes the waiters */
};

/* 0 or a negative errno; nothing is left then. `waiters` outlives it. */
int rsocket_cq_create(struct rsocket_cq *c, struct ibv_context *verbs, u32 entries,
		      struct wait_queue *waiters);
/* Its queue pairs are gone. Also of one that is all zeroes. */
void rsocket_cq_destroy(struct rsocket_cq *c);
/* If it is armed, whatever has come since it was last polled empty has woken the waiters. */
static inline bool rsocket_cq_is_armed(const struct rsocket_cq *c)
{
	return __atomic_load_n(&c->armed, __ATOMIC_ACQUIRE) != 0;
}
/* It may have more than its last look took: those who wait for the rsocket look, and a later wait
 * arms it anew. */
static inline void rsocket_cq_tell(struct rsocket_cq *c)
{
	/* before the waiters look; pairs with rsocket_cq_arm */
	__atomic_store_n(&c->armed, 0, __ATOMIC_SEQ_CST);
	wait_wake(c->waiters);
}

/* Poll it until it is empty after this call, or rsocket_cq_tell. */
void rsocket_cq_arm(struct rsocket_cq *c);
/* Makes the id's queue pair in a domain; `pd` NULL: in the device's own. A device that has less
 * room for inline data than *attr asks for gives what it has, to half of it: no attribute of a
 * device says how much that is. *attr then says. 0 or a negative errno. */
int rsocket_qp_create(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

#endif
