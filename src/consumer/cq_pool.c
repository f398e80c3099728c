/* cq_pool.c: completion queues that consumers of a device share: of one vector and context, each
 * consumer with a claim to so many completions.
 * In: ib_cq_pool_get and _put    Out: CQs of ib_alloc_cq    Runs: the caller
 * Locks: cq_pool.lock, a leaf
 *
 * A CQ lives from its first get to its last put, so nothing is left when a device goes.
 */
#include <errno.h>

#include "base/fork.h"
#include "base/log.h"
#include "consumer/consumer_priv.h"

enum { CQ_POOL_LEAST = 4096 };

static struct {
	struct lock lock;
	struct list_head pollers GUARDED_BY(lock);
} cq_pool = { .pollers = LIST_HEAD_INIT(cq_pool.pollers) };

static struct ib_cq *pooled_cq_claim(struct ib_device *device, u32 nr_cqe, int vector,
				   enum ib_poll_context context)
{
	struct ib_cq *found = NULL;

	lock_acquire(&cq_pool.lock);
	list_for_each(p, &cq_pool.pollers, struct poller, node) {
		if (p->cq->device != device || p->comp_vector != vector || p->context != context ||
		    nr_cqe > (u32)p->cq->cqe - p->claimed)
			continue;
		p->holders++;
		p->claimed += nr_cqe;
		found = p->cq;
		break;
	}
	lock_release(&cq_pool.lock);
	return found;
}

/* ERR_PTR: as ib_alloc_cq. */
static struct ib_cq *pooled_cq_add(struct ib_device *device, u32 nr_cqe, int vector,
				 enum ib_poll_context context)
{
	u32 size = MIN(MAX(nr_cqe, (u32)CQ_POOL_LEAST), (u32)device->attrs.max_cqe);
	struct ib_cq *cq = ib_alloc_cq(device, NULL, (int)size, vector, context);
	struct poller *p;

	if (IS_ERR(cq))
		return cq;
	p = cq->poller;
	p->holders = 1;
	p->claimed = nr_cqe;
	lock_acquire(&cq_pool.lock);
	list_push_back(&cq_pool.pollers, &p->node);
	lock_release(&cq_pool.lock);
	return cq;
}

static int pooled_cq_vector(const struct ib_device *device, int hint)
{
	static u32 last ATOMIC_ONLY;
	u32 count = device->num_comp_vectors > 1 ? (u32)device->num_comp_vectors : 1;

	if (hint < 0)
		hint = (int)(__atomic_add_fetch(&last, 1, __ATOMIC_RELAXED) & 0xffff);
	return (int)((u32)hint % count);
}

struct ib_cq *ib_cq_pool_get(struct ib_device *device, unsigned int nr_cqe, int comp_vector_hint,
			     enum ib_poll_context poll_ctx)
{
	struct ib_cq *cq;
	int vector;

	if (device == NULL || (u32)poll_ctx > IB_POLL_LAST_POOL_TYPE)
		return ERR_PTR(-EINVAL);
	if (!core_serves_linux61(device))
		return ERR_PTR(-EOPNOTSUPP);
	if (nr_cqe > (u32)device->attrs.max_cqe)
		return ERR_PTR(-EINVAL);
	vector = pooled_cq_vector(device, comp_vector_hint);
	cq = pooled_cq_claim(device, nr_cqe, vector, poll_ctx);
	return cq != NULL ? cq : pooled_cq_add(device, nr_cqe, vector, poll_ctx);
}

void ib_cq_pool_put(struct ib_cq *cq, unsigned int nr_cqe)
{
	struct poller *p = cq != NULL ? poller_of(cq) : NULL;
	bool known, last = false;

	if (p == NULL)
		return;
	lock_acquire(&cq_pool.lock);
	known = p->holders > 0 && nr_cqe <= p->claimed;
	if (known) {
		p->holders--;
		p->claimed -= nr_cqe;
		last = p->holders == 0;
	}
	if (last) {
		list_remove(&p->node);
		list_init(&p->node);
	}
	lock_release(&cq_pool.lock);
	if (!known)
		log_warn("consumer", "a CQ of device %s was put too often", cq->device->name);
	if (last)
		ib_free_cq(cq);
}

/* The parent's CQs are nobody's here. */
static void pooled_cq_drop_in_child(void) NO_THREAD_SAFETY
{
	list_init(&cq_pool.pollers);
}
FORK_TAKES(FORK_CQ_POOL, &cq_pool.lock, .child = pooled_cq_drop_in_child);
