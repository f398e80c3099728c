/* change.c: an address leaves its device, and those that are bound to it are told once.
 *
 * The id stays as it is: what it sends is lost until the address is back, and the consumer decides
 * what to do.
 * In:    events of devices             Out: ADDR_CHANGE
 * Runs:  the device's events on a thread of core's; the consumer's handler on the work queue
 * Locks: cma.lock; the device's cache of GIDs under it
 */
#include <errno.h>
#include <rdma/ib_cache.h>

#include "base/clock.h"
#include "cm/rdma/cma_priv.h"

/* How long an address must have been away: the cache may have read the table while it changed, and
 * an address that moves within the host comes back. */
#define CHANGE_SETTLES_NS (100 * NS_PER_MS)

static bool change_is_gone(const struct cma_id *id) REQUIRES(cma.lock)
{
	u16 index;

	if (cma_is_infiniband(id->id.device))
		return false; /* its GIDs are no addresses of IP */
	return ib_find_cached_gid_by_port(id->id.device, &id->id.route.addr.sgid, id->id.port_num,
					  &index) == -ENOENT;
}

/* Has the id's address left? Says so once for each time. */
static bool change_is_new(struct cma_id *id) REQUIRES(cma.lock)
{
	bool was = id->addr_gone;

	id->addr_gone = change_is_gone(id);
	return id->addr_gone && !was;
}

void cma_device_event(struct ib_event_handler *handler, struct ib_event *event)
{
	if (event->event != IB_EVENT_GID_CHANGE)
		return;
	lock_acquire(&cma.lock);
	list_for_each(id, &cma.ids, struct cma_id, node)
		if (id->id.device == handler->device && id->state < CMA_REMOVED &&
		    change_is_new(id))
			work_push_at(&id->change, clock_now_ns() + CHANGE_SETTLES_NS);
	lock_release(&cma.lock);
}

void cma_address_changed(struct work *w)
{
	struct cma_id *id = container_of(w, struct cma_id, change);
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_ADDR_CHANGE };
	bool destroy, tells;

	lock_acquire(&cma.lock);
	tells = id->id.device != NULL && change_is_gone(id);
	id->addr_gone = tells;
	lock_release(&cma.lock);
	if (!tells || !cma_enter_alive(id))
		return;
	destroy = cma_tell(id, &event) != 0;
	cma_leave(id);
	if (destroy)
		rdma_destroy_id(&id->id);
}
