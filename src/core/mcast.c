/* mcast.c: which QP is attached to which multicast group.
 * In: consumers    Out: the driver's attach and detach    Runs: the caller
 * Locks: core->lock, not across the driver
 *
 * A QP is attached to a group once, however often it asks; so the count of its groups, which
 * keeps it from being destroyed, says the same on every driver.
 */
#include <stdlib.h>
#include <string.h>

#include "core/core_priv.h"

struct mcast_member {
	struct list_head node OWNED_BY(ib_device_core.lock); /* core->groups */
	struct ib_qp *qp FIXED;
	union ib_gid gid FIXED;
	u16 lid FIXED;
};

static struct mcast_member *mcast_find(struct ib_device_core *core, const struct mcast_member *like)
	REQUIRES(&core->lock)
{
	list_for_each(member, &core->groups, struct mcast_member, node)
		if (member->qp == like->qp && member->lid == like->lid &&
		    memcmp(&member->gid, &like->gid, sizeof(like->gid)) == 0)
			return member;
	return NULL;
}

/* A group as IPv6 has it, or an IPv4 one, mapped. */
static bool mcast_is_group(const union ib_gid *gid)
{
	static const u8 mapped[12] = { [10] = 0xff, 0xff };

	return gid->raw[0] == 0xff ||
	       (memcmp(gid->raw, mapped, sizeof(mapped)) == 0 && gid->raw[12] >> 4 == 0xe);
}

static int mcast_check(const struct ib_qp *qp, const union ib_gid *gid)
{
	if (!qp->device->attach_mcast || !qp->device->detach_mcast)
		return -ENOSYS;
	return qp->qp_type == IB_QPT_UD && mcast_is_group(gid) ? 0 : -EINVAL;
}

/* Ethernet has no LIDs: there a group is its GID. */
static u16 mcast_lid(const struct ib_qp *qp, u16 lid)
{
	return rdma_port_get_link_layer(qp->device, 1) == IB_LINK_LAYER_ETHERNET ? 0 : lid;
}

/* Takes the member off the list unless another thread was faster. */
static struct mcast_member *mcast_extract(struct ib_device_core *core,
					  const struct mcast_member *like)
{
	lock_acquire(&core->lock);
	struct mcast_member *member = mcast_find(core, like);

	if (member)
		list_remove(&member->node);
	lock_release(&core->lock);
	return member;
}

/* 0: it was there already; 1: inserted. Owns `member` from here. */
static int mcast_insert(struct ib_device_core *core, struct mcast_member *member)
{
	lock_acquire(&core->lock);
	int fresh = !mcast_find(core, member);

	if (fresh)
		list_push_back(&core->groups, &member->node);
	lock_release(&core->lock);
	if (!fresh)
		free(member);
	return fresh;
}

int ib_attach_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	struct ib_device_core *core = qp->device->core;
	struct mcast_member *member;
	struct mcast_member like = { .qp = qp, .gid = *gid, .lid = mcast_lid(qp, lid) };
	int err = mcast_check(qp, gid);

	if (err)
		return err;
	member = malloc(sizeof(*member));
	if (!member)
		return -ENOMEM;
	*member = like;
	if (!mcast_insert(core, member))
		return 0;
	err = use_get(&qp->usecnt) ? 0 : -EINVAL;
	if (!err) {
		err = DRIVER_CALL(qp->device->attach_mcast(qp, gid, like.lid));
		if (err)
			use_put(&qp->usecnt);
	}
	if (err)
		free(mcast_extract(core, &like));
	return err;
}

int ib_detach_mcast(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	struct ib_device_core *core = qp->device->core;
	struct mcast_member *member;
	struct mcast_member like = { .qp = qp, .gid = *gid, .lid = mcast_lid(qp, lid) };
	int err = mcast_check(qp, gid);

	if (err)
		return err;
	member = mcast_extract(core, &like);
	if (!member)
		return -EINVAL;
	err = DRIVER_CALL(qp->device->detach_mcast(qp, gid, like.lid));
	if (err) {
		mcast_insert(core, member);
		return err;
	}
	use_put(&qp->usecnt);
	free(member);
	return 0;
}
