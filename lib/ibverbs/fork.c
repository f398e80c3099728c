/* fork.c: what fork() does to objects of the doors, and to registered memory.
 *
 * The child makes the locks of each object anew, for a thread of the parent may have held them at
 * the fork.
 *
 * Registered memory stays as it is: no pages are pinned here. A peer writes through the page tables
 * of the process that registered the memory, so after a fork copy-on-write treats its writes like
 * the parent's own: the child keeps its copy, the parent sees the data. Ranges need no
 * MADV_DONTFORK, and ibv_fork_init may come before or after a registration.
 * Runs: any thread; in a child its only one
 * Locks: none
 */
#include <pthread.h>

#include "base/fork.h"
#include "door.h"

AV_EXPORT int ibv_dontfork_range(void *base, size_t size);
AV_EXPORT int ibv_dofork_range(void *base, size_t size);

AV_EXPORT int ibv_fork_init(void)
{
	return 0;
}

AV_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}

static void fork_renew_cq(struct ib_uobject *uobj) NO_THREAD_SAFETY
{
	struct door_cq *cq = container_of(uobj, struct door_cq, uobj);

	lock_init(&cq->poll_lock);
	pthread_mutex_init(&cq->ex.mutex, NULL);
}

static void fork_renew_srq(struct ib_uobject *uobj)
{
	pthread_mutex_init(&container_of(uobj, struct door_srq, uobj)->ibv.mutex, NULL);
}

static void fork_renew_qp(struct ib_uobject *uobj)
{
	struct door_qp *qp = container_of(uobj, struct door_qp, uobj);

	if (qp->ex.qp_base.qp_type != IBV_QPT_XRC_RECV)
		wr_drop_in_child(qp);
	pthread_mutex_init(&qp->ex.qp_base.mutex, NULL);
}

static void fork_renew_objects(void)
{
	ib_uobject_each_in_child(IB_UOBJECT_CQ, fork_renew_cq);
	ib_uobject_each_in_child(IB_UOBJECT_SRQ, fork_renew_srq);
	ib_uobject_each_in_child(IB_UOBJECT_QP, fork_renew_qp);
}
FORK_HOOK(FORK_DOOR_OBJECTS, .child = fork_renew_objects);
