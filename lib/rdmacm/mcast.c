/* mcast.c: multicast groups: the id's queue pair is attached when the event of a join is taken, and
 * detached when the group is left, or with its end.
 * In:    the application's calls, MULTICAST_JOIN      Out: the RDMA CM's, libibverbs
 * Runs:  the application's threads
 * Locks: struct door_shared.qp_lock, over those of the RDMA CM and of libibverbs
 */
#include <stdlib.h>
#include <string.h>

#include <infiniband/ib.h>

#include "door.h"

/* One membership. An id may have joined a group several times. */
struct door_mcast {
	struct list_head node OWNED_BY(door_shared.qp_lock); /* struct door_shared.groups */
	struct ucma_mcast *ucma OWNED_BY(door_shared.qp_lock);
	struct sockaddr_storage addr FIXED;
	void *context FIXED;
	bool send_only FIXED;
	bool left OWNED_BY(door_shared.qp_lock);     /* off the list */
	bool attached OWNED_BY(door_shared.qp_lock); /* the id's queue pair, to `mgid` */
	union ibv_gid mgid OWNED_BY(door_shared.qp_lock);
	u16 mlid OWNED_BY(door_shared.qp_lock);
};

void mcast_init(struct door_id *id) NO_THREAD_SAFETY /* nobody else has it */
{
	list_init(&id->shared.groups);
}

void *mcast_context(const struct door_mcast *m)
{
	return m->context;
}

/* 0: no family that there is here. */
static size_t mcast_addr_size(const struct sockaddr *addr)
{
	if (addr == NULL)
		return 0;
	if (addr->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	if (addr->sa_family == AF_IB)
		return sizeof(struct sockaddr_ib);
	return addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

/* ---- attaching ------------------------------------------------------------------------------- */

int mcast_joined(struct door_id *id, struct door_mcast *m, const struct ibv_ah_attr *ah)
{
	int err = 0;

	lock_acquire(&id->shared.qp_lock);
	m->mgid = ah->grh.dgid;
	m->mlid = ah->dlid;
	if (id->id.qp != NULL && !m->send_only && !m->left) {
		err = -ibv_attach_mcast(id->id.qp, &m->mgid, m->mlid);
		m->attached = err == 0;
	}
	lock_release(&id->shared.qp_lock);
	return err;
}

/* Detaches the queue pair, unless another membership of the group needs it attached. */
static void mcast_detach(struct door_id *id, struct door_mcast *m) REQUIRES(id->shared.qp_lock)
{
	if (!m->attached)
		return;
	m->attached = false;
	list_for_each(other, &id->shared.groups, struct door_mcast, node)
		if (other->attached && memcmp(&other->mgid, &m->mgid, sizeof(m->mgid)) == 0)
			return;
	if (id->id.qp != NULL)
		(void)ibv_detach_mcast(id->id.qp, &m->mgid, m->mlid);
}

void mcast_detach_all(struct door_id *id)
{
	list_for_each(m, &id->shared.groups, struct door_mcast, node)
		mcast_detach(id, m);
}

void mcast_free_all(struct door_id *id) NO_THREAD_SAFETY /* likewise; or a parent's thread had it */
{
	struct list_head *node;

	while ((node = list_pop_front(&id->shared.groups)) != NULL)
		free(list_entry(node, struct door_mcast, node));
}

/* ---- joining and leaving --------------------------------------------------------------------- */

static int mcast_enlist(struct door_id *id, struct door_mcast *m)
{
	int err;

	lock_acquire(&id->shared.qp_lock);
	err = ucma_join(id->ucma, (struct sockaddr *)&m->addr, m->send_only, m, &m->ucma);
	if (err == 0)
		list_push_back(&id->shared.groups, &m->node);
	lock_release(&id->shared.qp_lock);
	return err;
}

static int mcast_join(struct rdma_cm_id *id, const struct sockaddr *addr, bool send_only,
		      void *context)
{
	size_t size = mcast_addr_size(addr);
	bool sync = door_id(id)->sync;
	struct door_mcast *m;
	int err;

	/* another thread of the parent may have held the id's lock */
	if (size == 0 || ucma_is_parents(door_id(id)->ucma))
		return door_result(-EINVAL);
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return -1;
	memcpy(&m->addr, addr, size);
	m->context = context;
	m->send_only = send_only;
	err = mcast_enlist(door_id(id), m);
	if (err < 0)
		free(m);
	return id_complete(door_id(id), sync, err);
}

AV_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return mcast_join(id, addr, false, context);
}

AV_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id,
				     struct rdma_cm_join_mc_attr_ex *mc_join_attr, void *context)
{
	const u32 needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (mc_join_attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return door_result(-EOPNOTSUPP);
	if (mc_join_attr->comp_mask != needed ||
	    mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return door_result(-EINVAL);
	return mcast_join(id, mc_join_attr->addr,
			  mc_join_attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
			  context);
}

/* Takes the latest membership at the address off the list, and detaches; NULL: there is none. */
static struct door_mcast *mcast_take(struct door_id *id, const struct sockaddr *addr, size_t size)
{
	struct door_mcast *found = NULL;

	id_lock(id);
	list_for_each(m, &id->shared.groups, struct door_mcast, node)
		if (memcmp(&m->addr, addr, size) == 0)
			found = m;
	if (found != NULL) {
		list_remove(&found->node);
		found->left = true;
		mcast_detach(id, found);
	}
	lock_release(&id->shared.qp_lock);
	return found;
}

AV_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	size_t size = mcast_addr_size(addr);
	struct door_mcast *m;

	if (size == 0)
		return door_result(-EINVAL);
	m = mcast_take(door_id(id), addr, size);
	if (m == NULL)
		return door_result(-EADDRNOTAVAIL);
	/* a synchronous id still holds the event of its join */
	if (id->event != NULL && ((struct door_event *)id->event)->mcast == m->ucma) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	ucma_leave(m->ucma);
	free(m);
	return 0;
}
