/* mr_pool.c: lists of regions that a queue pair's requests register and invalidate.
 * In: ib_mr_pool_*    Out: regions of ib_alloc_mr    Runs: any thread    Locks: consumer_pools.lock
 */
#include <errno.h>
#include <stdlib.h>

#include "consumer/consumer_priv.h"

int consumer_pools_add(struct ib_qp *qp)
{
	struct consumer_pools *pools = calloc(1, sizeof(*pools));

	if (pools == NULL)
		return -ENOMEM;
	list_init(&pools->lists.rdma_mrs);
	list_init(&pools->lists.sig_mrs);
	qp->pools = &pools->lists;
	return 0;
}

void consumer_pools_empty(struct ib_qp *qp)
{
	ib_mr_pool_destroy(qp, &qp->pools->rdma_mrs);
	ib_mr_pool_destroy(qp, &qp->pools->sig_mrs);
}

struct ib_mr *ib_mr_pool_get(struct ib_qp *qp, struct list_head *list)
{
	struct consumer_pools *pools = qp != NULL ? consumer_pools_of(qp) : NULL;
	struct ib_mr *mr = NULL;

	if (pools == NULL || list == NULL)
		return NULL;
	lock_acquire(&pools->lock);
	if (!list_empty(list)) {
		mr = list_first(list, struct ib_mr, qp_entry);
		list_remove(&mr->qp_entry);
	}
	lock_release(&pools->lock);
	return mr;
}

/* To the end: a key that has just been invalidated is used again last. */
void ib_mr_pool_put(struct ib_qp *qp, struct list_head *list, struct ib_mr *mr)
{
	struct consumer_pools *pools = qp != NULL ? consumer_pools_of(qp) : NULL;

	if (pools == NULL || list == NULL || mr == NULL)
		return;
	lock_acquire(&pools->lock);
	list_push_back(list, &mr->qp_entry);
	lock_release(&pools->lock);
}

int ib_mr_pool_init(struct ib_qp *qp, struct list_head *list, int nr, enum ib_mr_type type,
		    u32 max_num_sg, u32 max_num_meta_sg)
{
	if (qp == NULL || list == NULL)
		return -EINVAL;
	if (!core_serves_linux61(qp->device) || qp->pools == NULL ||
	    (u32)type == IB_MR_TYPE_INTEGRITY)
		return -EOPNOTSUPP;
	for (int i = 0; i < nr; i++) {
		struct ib_mr *mr = ib_alloc_mr(qp->pd, type, max_num_sg);

		if (IS_ERR(mr)) {
			ib_mr_pool_destroy(qp, list);
			return (int)PTR_ERR(mr);
		}
		mr->need_inval = false;
		ib_mr_pool_put(qp, list, mr);
	}
	return 0;
}

void ib_mr_pool_destroy(struct ib_qp *qp, struct list_head *list)
{
	struct ib_mr *mr;

	while ((mr = ib_mr_pool_get(qp, list)) != NULL)
		ib_dereg_mr(mr);
}
