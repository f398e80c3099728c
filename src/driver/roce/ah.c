/* ah.c: address handles, and how an address vector becomes GIDs.
 * In: ib_ah_attr    Out: resolved vectors
 * Runs: any context: nothing here blocks but the allocation of memory
 * Locks: the handle's, a leaf
 */
#include "driver/roce/roce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int roce_resolve_av(struct roce_device *dev, const struct ib_ah_attr *attr, struct path_av *av)
{
	static const u8 none[16];

	if ((attr->ah_flags & IB_AH_GRH) == 0 || attr->port_num != 1)
		return -EINVAL;
	if (roce_gid(dev, attr->grh.sgid_index, av->sgid) != 0 || memcmp(av->sgid, none, 16) == 0 ||
	    memcmp(attr->grh.dgid.raw, none, 16) == 0)
		return -EINVAL;
	memcpy(av->dgid, attr->grh.dgid.raw, 16);
	/* Nothing slows down a datagram's sender. */
	av->traffic_class = attr->grh.traffic_class & (u8)~PATH_ECN_MASK;
	av->hop_limit = attr->grh.hop_limit;
	av->flow_label = attr->grh.flow_label & 0xfffff;
	av->sl = attr->sl;
	av->sport = av->flow_label == 0 ? 0 : roce_sport(av->flow_label);
	return 0;
}

static struct ib_ah *ah_create(struct ib_pd *pd, struct ib_ah_attr *attr)
	NO_THREAD_SAFETY /* nobody else has it yet */
{
	struct roce_device *dev = roce_dev(pd->device);
	struct roce_ah *ah = calloc(1, sizeof(*ah));
	int err = ah == NULL ? -ENOMEM : roce_resolve_av(dev, attr, &ah->av);

	if (err == 0 && __atomic_add_fetch(&dev->ah_count, 1, __ATOMIC_RELAXED) > ROCE_MAX_AH) {
		__atomic_sub_fetch(&dev->ah_count, 1, __ATOMIC_RELAXED);
		err = -ENOMEM;
	}
	if (err != 0) {
		free(ah);
		return ERR_PTR(err);
	}
	ah->attr = *attr;
	ah->pd = ROCE_OF(pd, pd)->number;
	return &ah->ib;
}

static int ah_modify(struct ib_ah *ib, struct ib_ah_attr *attr)
{
	struct roce_ah *ah = ROCE_OF(ah, ib);
	struct path_av av;
	int err = roce_resolve_av(roce_dev(ib->device), attr, &av);

	if (err != 0)
		return err;
	lock_acquire(&ah->lock);
	ah->av = av;
	ah->attr = *attr;
	lock_release(&ah->lock);
	return 0;
}

bool roce_av_of(struct ibv_ah *ibv, u32 pd, struct path_av *av)
{
	struct ib_ah *ib = container_of(ibv, struct ib_uverbs_ah, ibv)->ah;
	struct roce_ah *ah = ROCE_OF(ah, ib);

	if (ib == NULL || ah->pd != pd)
		return false;
	lock_acquire(&ah->lock);
	*av = ah->av;
	lock_release(&ah->lock);
	return true;
}

static int ah_query(struct ib_ah *ib, struct ib_ah_attr *attr)
{
	struct roce_ah *ah = ROCE_OF(ah, ib);

	lock_acquire(&ah->lock);
	*attr = ah->attr;
	lock_release(&ah->lock);
	return 0;
}

static int ah_destroy(struct ib_ah *ib)
{
	__atomic_sub_fetch(&roce_dev(ib->device)->ah_count, 1, __ATOMIC_RELAXED);
	free(ROCE_OF(ah, ib));
	return 0;
}

void roce_fill_ah(struct ib_device *ib)
{
	ib->create_ah = ah_create;
	ib->modify_ah = ah_modify;
	ib->query_ah = ah_query;
	ib->destroy_ah = ah_destroy;
}
