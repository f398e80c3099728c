/* ah.c: address handles.
 * In: ib_ah_attr    Out: address vectors, resolved by the adapter's kind
 * Runs: any context: nothing here blocks but the allocation of memory. A forked child attaches
 * Locks: the handle's, a leaf; ah_list.lock
 */
#include "driver/soft/soft.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fork.h"

static struct {
	struct lock lock;
	struct list_head all GUARDED_BY(lock); /* so that a child can make their locks anew */
} ah_list = { .all = LIST_HEAD_INIT(ah_list.all) };

static void ah_drop_in_child(void) NO_THREAD_SAFETY
{
	list_for_each(ah, &ah_list.all, struct soft_ah, node)
		lock_init(&ah->lock);
}
FORK_TAKES(FORK_AHS, &ah_list.lock, .child = ah_drop_in_child);

static struct ib_ah *ah_create(struct ib_pd *pd, struct ib_ah_attr *attr)
	NO_THREAD_SAFETY /* not yet visible to other threads */
{
	struct soft_device *dev = soft_dev(pd->device);
	struct soft_ah *ah = calloc(1, sizeof(*ah));
	/* a forked child knows no routes before it has a seat */
	int err = ah == NULL ? -ENOMEM : soft_attach(dev);

	if (err == 0)
		err = dev->kind->resolve_av(dev, attr, &ah->av);

	if (err == 0 && __atomic_add_fetch(&dev->ah_count, 1, __ATOMIC_RELAXED) > SOFT_MAX_AH) {
		__atomic_sub_fetch(&dev->ah_count, 1, __ATOMIC_RELAXED);
		err = -ENOMEM;
	}
	if (err != 0) {
		free(ah);
		return ERR_PTR(err);
	}
	ah->attr = *attr;
	ah->pd = SOFT_OF(pd, pd)->number;
	lock_acquire(&ah_list.lock);
	list_push_back(&ah_list.all, &ah->node);
	lock_release(&ah_list.lock);
	return &ah->ib;
}

static int ah_modify(struct ib_ah *ib, struct ib_ah_attr *attr)
{
	struct soft_ah *ah = SOFT_OF(ah, ib);
	struct soft_device *dev = soft_dev(ib->device);
	struct path_av av;
	int err = soft_check(ib->device);

	if (err == 0)
		err = dev->kind->resolve_av(dev, attr, &av);

	if (err != 0)
		return err;
	lock_acquire(&ah->lock);
	ah->av = av;
	ah->attr = *attr;
	lock_release(&ah->lock);
	return 0;
}

void soft_ah_av(struct ib_ah *ib, struct path_av *av)
{
	struct soft_ah *ah = SOFT_OF(ah, ib);

	lock_acquire(&ah->lock);
	*av = ah->av;
	lock_release(&ah->lock);
}

bool soft_av_of(struct ibv_ah *ibv, u32 pd, struct path_av *av)
{
	struct ib_ah *ib = container_of(ibv, struct ib_uverbs_ah, ibv)->ah;

	if (ib == NULL || SOFT_OF(ah, ib)->pd != pd)
		return false;
	soft_ah_av(ib, av);
	return true;
}

static int ah_query(struct ib_ah *ib, struct ib_ah_attr *attr)
{
	struct soft_ah *ah = SOFT_OF(ah, ib);
	int err = soft_check(ib->device);

	if (err != 0)
		return err;
	lock_acquire(&ah->lock);
	*attr = ah->attr;
	lock_release(&ah->lock);
	return 0;
}

static int ah_destroy(struct ib_ah *ib)
{
	struct soft_ah *ah = SOFT_OF(ah, ib);

	__atomic_sub_fetch(&soft_dev(ib->device)->ah_count, 1, __ATOMIC_RELAXED);
	lock_acquire(&ah_list.lock);
	list_remove(&ah->node);
	lock_release(&ah_list.lock);
	free(ah);
	return 0;
}

void soft_fill_ah(struct ib_device *ib)
{
	ib->create_ah = ah_create;
	ib->modify_ah = ah_modify;
	ib->query_ah = ah_query;
	ib->destroy_ah = ah_destroy;
}
