/* device.c: the devices that there are, which of them has an address, and what happens when one
 * goes.
 * In:    add and remove of an ib_client           Out: devices and ports of ids, DEVICE_REMOVAL
 * Runs:  any thread that may sleep; add and remove on those of core
 * Locks: cma.lock; the device's cache of GIDs under it
 */
#include <errno.h>
#include <pthread.h>
#include <rdma/ib_cache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "cm/ib/cm.h"
#include "cm/rdma/cma_priv.h"
#include "core/service.h"
#include "core/uverbs.h"
#include "sa/sa.h"

static struct cma_start {
	struct lock lock;
	bool done GUARDED_BY(lock); /* the queue has begun, and the SA knows the client */
} cma_started;

/* ---- binding --------------------------------------------------------------------------------- */

bool cma_is_infiniband(const struct ib_device *device)
{
	list_for_each(d, &cma.devices, struct cma_device, node)
		if (d->device == device)
			return d->infiniband;
	return false;
}

static void cma_device_bind(struct cma_id *id, struct ib_device *device, u8 port,
			const union ib_gid *sgid) REQUIRES(cma.lock)
{
	u16 index;

	id->id.device = device;
	id->id.port_num = port;
	id->id.route.addr.sgid = *sgid;
	id->id.route.addr.pkey = CMA_PKEY;
	id->addr_gone = !cma_is_infiniband(device) &&
			ib_find_cached_gid_by_port(device, sgid, port, &index) != 0;
}

void cma_bind_device(struct cma_id *id, struct ib_device *device, u8 port, const union ib_gid *sgid)
{
	lock_acquire(&cma.lock);
	cma_device_bind(id, device, port, sgid);
	lock_release(&cma.lock);
}

/* Why there is no device: a driver that lacked descriptors or memory says so, and is asked again.
 * 0: there are some. May block. */
static int cma_device_absence(void)
{
	struct ib_device **list;
	int count;

	lock_acquire(&cma.lock);
	count = !list_empty(&cma.devices);
	lock_release(&cma.lock);
	if (count > 0)
		return -ENODEV;
	count = ib_uverbs_get_devices(&list);
	if (count >= 0)
		ib_uverbs_put_devices(list);
	if (count == -EMFILE || count == -ENFILE || count == -ENOMEM)
		return count;
	return count > 0 ? 0 : -ENODEV;
}

static int cma_bind_known_gid(struct cma_id *id, const union ib_gid *gid)
{
	union ib_gid wanted = *gid;
	int err = -ENODEV;
	u16 index;
	u8 port;

	lock_acquire(&cma.lock);
	list_for_each(d, &cma.devices, struct cma_device, node) {
		if (ib_find_cached_gid(d->device, &wanted, &port, &index) < 0)
			continue;
		cma_device_bind(id, d->device, port, gid);
		err = 0;
		break;
	}
	lock_release(&cma.lock);
	return err;
}

bool cma_gid_is_known(const union ib_gid *gid)
{
	union ib_gid wanted = *gid;
	bool known = false;
	u16 index;
	u8 port;

	lock_acquire(&cma.lock);
	list_for_each(d, &cma.devices, struct cma_device, node)
		known |= ib_find_cached_gid(d->device, &wanted, &port, &index) == 0;
	lock_release(&cma.lock);
	return known;
}

int cma_bind_gid(struct cma_id *id, const union ib_gid *gid)
{
	int err = cma_bind_known_gid(id, gid);

	if (err != -ENODEV)
		return err;
	err = cma_device_absence();
	return err == 0 ? cma_bind_known_gid(id, gid) : err;
}

/* ---- the id's device ------------------------------------------------------------------------- */

static struct cma_device *cma_device_of(const struct cma_id *id) REQUIRES(cma.lock)
{
	if (id->id.device == NULL)
		return NULL;
	list_for_each(d, &cma.devices, struct cma_device, node)
		if (d->device == id->id.device)
			return d;
	return NULL;
}

bool cma_device_is_bound(struct cma_id *id)
{
	bool bound;

	lock_acquire(&cma.lock);
	bound = id->id.device != NULL;
	lock_release(&cma.lock);
	return bound;
}

struct cma_device *cma_device_hold_ib(struct cma_id *id, struct ib_cm_id **ib)
{
	struct cma_device *d;

	lock_acquire(&cma.lock);
	d = cma_device_of(id);
	if (d != NULL)
		d->users++;
	*ib = d != NULL ? id->ib : NULL;
	lock_release(&cma.lock);
	return d;
}

struct cma_device *cma_device_hold_at(u32 index)
{
	struct cma_device *found = NULL;

	lock_acquire(&cma.lock);
	list_for_each(d, &cma.devices, struct cma_device, node) {
		if (index-- != 0)
			continue;
		found = d;
		d->users++;
		break;
	}
	lock_release(&cma.lock);
	return found;
}

struct cma_device *cma_device_hold(struct cma_id *id)
{
	struct ib_cm_id *ib;

	return cma_device_hold_ib(id, &ib);
}

void cma_device_release(struct cma_device *d)
{
	if (d == NULL)
		return;
	lock_acquire(&cma.lock);
	d->users--;
	cond_wake(&d->unused);
	lock_release(&cma.lock);
}

u32 cma_device_name(struct cma_id *id, char *out, size_t size)
{
	const struct cma_device *d;
	u32 number = 0;

	lock_acquire(&cma.lock);
	d = cma_device_of(id);
	out[0] = '\0';
	if (d != NULL) {
		snprintf(out, size, "%s", d->device->name);
		number = d->number;
	}
	lock_release(&cma.lock);
	return number;
}

/* ---- binding to what has an address ---------------------------------------------------------- */

/* An address of IPv4, or one of IPv6 that is no link's own, in the table of port 1. */
bool cma_device_find_family(struct ib_device *device, bool v4, union ib_gid *gid)
{
	static const u8 none[16];
	union ib_gid found;
	int index = 0;

	for (; ib_get_cached_gid(device, 1, index, &found) == 0; index++) {
		if (cma_gid_is_v4(&found) != v4 || memcmp(found.raw, none, 16) == 0 ||
		    (!v4 && found.raw[0] == 0xfe))
			continue;
		*gid = found;
		return true;
	}
	return false;
}

static int cma_bind_first_known(struct cma_id *id, bool v4, union ib_gid *gid)
{
	union ib_gid found;
	int err = -ENODEV;

	lock_acquire(&cma.lock);
	list_for_each(d, &cma.devices, struct cma_device, node) {
		/* another family's serves as well: a GID is a GID */
		if (!cma_device_find_family(d->device, v4, &found) &&
		    !cma_device_find_family(d->device, !v4, &found) &&
		    ib_get_cached_gid(d->device, 1, 0, &found) < 0)
			continue;
		cma_device_bind(id, d->device, 1, &found);
		*gid = found;
		err = 0;
		break;
	}
	lock_release(&cma.lock);
	return err;
}

int cma_bind_first(struct cma_id *id, bool v4, union ib_gid *gid)
{
	int err = cma_bind_first_known(id, v4, gid);

	if (err != -ENODEV)
		return err;
	err = cma_device_absence();
	return err == 0 ? cma_bind_first_known(id, v4, gid) : err;
}

/* ---- devices come and go --------------------------------------------------------------------- */

static void cma_device_add(struct ib_device *device)
{
	struct cma_device *d = calloc(1, sizeof(*d));

	if (d == NULL) {
		log_error("rdmacm", "no memory for device %s", device->name);
		return;
	}
	d->device = device;
	d->infiniband = rdma_port_get_link_layer(device, 1) == IB_LINK_LAYER_INFINIBAND;
	lock_acquire(&cma.lock);
	d->number = ++cma.device_numbers;
	list_push_back(&cma.devices, &d->node);
	lock_release(&cma.lock);
	INIT_IB_EVENT_HANDLER(&d->events, device, cma_device_event);
	(void)ib_register_event_handler(&d->events);
	cma_listen_device(device);
}

/* An id of the device that has not been told, with a reference; NULL: none. No call of the CM for
 * it finds the device any more. That of a program forgets it; that of a consumer of the midlayer
 * keeps it until it is destroyed, and the device stays until then. */
static struct cma_id *cma_device_next_id(struct ib_device *device, struct ib_cm_id **ib)
{
	struct cma_id *found = NULL;

	lock_acquire(&cma.lock);
	list_for_each(id, &cma.ids, struct cma_id, node) {
		if (id->id.device != device || id->state >= CMA_REMOVED)
			continue;
		id->state = CMA_REMOVED;
		if (id->user)
			id->id.device = NULL;
		id->refs++;
		*ib = id->ib;
		id->ib = NULL;
		cond_wake(&id->idle);
		found = id;
		break;
	}
	lock_release(&cma.lock);
	return found;
}

static void cma_device_put_id(struct cma_id *id)
{
	lock_acquire(&cma.lock);
	id->refs--;
	cond_wake(&id->idle);
	lock_release(&cma.lock);
}

static void cma_device_remove_id(struct cma_id *id, struct ib_cm_id *ib)
{
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_DEVICE_REMOVAL };
	bool destroy = false;

	if (ib != NULL)
		ib_destroy_cm_id(ib);
	cma_mcast_device_gone(id);
	if (cma_enter(id, CMA_REMOVED)) {
		destroy = cma_tell(id, &event) != 0;
		cma_leave(id);
	}
	cma_device_put_id(id);
	if (destroy)
		rdma_destroy_id(&id->id);
}

/* Nobody finds it any more, and who had found it has let go. */
static struct cma_device *cma_device_take(struct ib_device *device)
{
	struct cma_device *taken = NULL;

	lock_acquire(&cma.lock);
	list_for_each(d, &cma.devices, struct cma_device, node) {
		if (d->device != device)
			continue;
		list_remove(&d->node);
		taken = d;
		break;
	}
	while (taken != NULL && taken->users > 0)
		cond_wait(&taken->unused, &cma.lock);
	lock_release(&cma.lock);
	return taken;
}

/* Stops listening on the device, for ids that listen on all of them. */
static void cma_device_unlisten(struct ib_device *device)
{
	struct cma_id *found;

	do {
		found = NULL;
		lock_acquire(&cma.lock);
		list_for_each(id, &cma.ids, struct cma_id, node) {
			list_for_each(l, &id->listeners, struct cma_listener, node)
				if (l->device == device)
					found = id;
			if (found != NULL)
				break;
		}
		if (found != NULL)
			found->refs++;
		lock_release(&cma.lock);
		if (found != NULL) {
			cma_unlisten(found, device);
			cma_device_put_id(found);
		}
	} while (found != NULL);
}

static bool cma_device_has_ids(const struct ib_device *device) REQUIRES(cma.lock)
{
	list_for_each(id, &cma.ids, struct cma_id, node)
		if (id->id.device == device && !id->user)
			return true;
	return false;
}

/* Consumers of the midlayer may destroy their ids, queue pairs and what those stand on, after
 * DEVICE_REMOVAL, on any thread. */
static void cma_device_wait_ids(const struct ib_device *device)
{
	lock_acquire(&cma.lock);
	while (cma_device_has_ids(device))
		cond_wait(&cma.id_gone, &cma.lock);
	lock_release(&cma.lock);
}

static void cma_device_remove(struct ib_device *device)
{
	struct cma_device *d = cma_device_take(device);
	struct ib_cm_id *ib;
	struct cma_id *id;

	if (d != NULL)
		(void)ib_unregister_event_handler(&d->events);
	cma_device_unlisten(device);
	while ((id = cma_device_next_id(device, &ib)) != NULL)
		cma_device_remove_id(id, ib);
	cma_device_wait_ids(device);
	free(d);
}

static struct core_service cma_service = {
	.client = { .name = "rdma_cm", .add = cma_device_add, .remove = cma_device_remove }
};

/* ---- the start ------------------------------------------------------------------------------- */

/* The only thread. Ids and devices are the parent's; whoever had a turn or a reference of an id is
 * one of the parent's threads, and the child may destroy the id. */
static void cma_device_drop_in_child(void) NO_THREAD_SAFETY
{
	list_for_each_safe(id, &cma.ids, struct cma_id, node) {
		id->busy = false;
		id->refs = 0;
		id->idle = (struct cond){ 0 };
		list_init(&id->node);
	}
	list_init(&cma.ids);
	list_init(&cma.devices);
	cma.id_gone = (struct cond){ 0 };
}
FORK_TAKES(FORK_CMA, &cma.lock, .child = cma_device_drop_in_child);

static void cma_start_in_child(void) NO_THREAD_SAFETY
{
	cma_started.done = false;
	core_service_drop_in_child(&cma_service);
	work_queue_drop_in_child(&cma.queue);
}
FORK_MAKES_ANEW(FORK_CMA_START, &cma_started.lock, .child = cma_start_in_child);

static int cma_device_start(void)
{
	int err = 0;

	lock_acquire(&cma_started.lock);
	if (!cma_started.done) {
		if (cma.queue.name == NULL)
			work_queue_init(&cma.queue, "anyverbs/rdmacm", false);
		err = work_queue_begin(&cma.queue);
		if (err == 0)
			ib_sa_register_client(&cma.sa);
		cma_started.done = err == 0;
	}
	lock_release(&cma_started.lock);
	return err;
}

int cma_start(void)
{
	int err;

	if (core_service_is_settled(&cma_service))
		return 0;
	/* services that this one stands on: they are told of a device first */
	err = cm_start();
	if (err == 0) {
		sa_start();
		err = cma_device_start();
	}
	return err == 0 ? core_service_begin(&cma_service) : err;
}
