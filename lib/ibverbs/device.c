/* device.c: the list of devices and their names.
 * In: ib_device pointers from the core
 * Out: ibv_device objects, one per ib_device while it has references
 * Runs: callers of the list, open and close
 * Locks: device_lock (never held across a call into the stack)
 */
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "door.h"

static struct lock device_lock;
static struct list_head device_known GUARDED_BY(device_lock) = LIST_HEAD_INIT(device_known);
FORK_TAKES(FORK_DEVICE_LIST, &device_lock);

static enum ibv_transport_type device_transport(u8 node_type)
{
	switch (node_type) {
	case RDMA_NODE_IB_CA:
	case RDMA_NODE_IB_SWITCH:
	case RDMA_NODE_IB_ROUTER:
		return IBV_TRANSPORT_IB;
	case RDMA_NODE_RNIC:
		return IBV_TRANSPORT_IWARP;
	default:
		return IBV_TRANSPORT_UNKNOWN;
	}
}

static void device_copy_name(char *to, size_t size, const char *from)
{
	size_t length = strnlen(from, size - 1);

	memcpy(to, from, length);
	to[length] = 0;
}

static struct door_device *device_make(struct ib_device *ib, int index)
{
	struct ib_uverbs_info info;
	struct door_device *d;

	memset(&info, 0, sizeof(info));
	if (ib_uverbs_get_info(ib, &info))
		return NULL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->ib = ib;
	d->index = index;
	d->guid = info.node_guid;
	d->ibv.node_type = ib->node_type;
	d->ibv.transport_type = device_transport(ib->node_type);
	device_copy_name(d->ibv.name, sizeof(d->ibv.name), info.name);
	device_copy_name(d->ibv.dev_name, sizeof(d->ibv.dev_name), info.dev_name);
	device_copy_name(d->ibv.dev_path, sizeof(d->ibv.dev_path), info.dev_path);
	device_copy_name(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), info.ibdev_path);
	device_copy_name(d->sysfs, sizeof(d->sysfs), info.sysfs);
	return d;
}

static struct door_device *device_find(struct ib_device *ib) REQUIRES(device_lock)
{
	list_for_each(d, &device_known, struct door_device, node)
		if (d->ib == ib)
			return d;
	return NULL;
}

/* Makes lists of one, so that a program that keeps one device open does not keep the others
 * alive. */
static struct ib_device **device_hold_one(struct ib_device *ib)
{
	struct ib_device **held = calloc(2, sizeof(*held));

	if (held)
		held[0] = ib;
	return held;
}

/* Returns a referenced device for the one in `held`: the existing one, or a new one that keeps
 * `held`. NULL: no memory. Takes `held` in any case. */
static struct door_device *device_take(struct ib_device **held, int index)
{
	struct door_device *made = device_make(held[0], index);
	struct door_device *d;

	lock_acquire(&device_lock);
	d = device_find(held[0]);
	if (!d && made) {
		d = made;
		made = NULL;
		d->held = held;
		held = NULL;
		list_push_back(&device_known, &d->node);
	}
	if (d)
		d->refs++;
	lock_release(&device_lock);
	free(made);
	ib_uverbs_put_devices(held);
	return d;
}

void device_get(struct door_device *d)
{
	lock_acquire(&device_lock);
	d->refs++;
	lock_release(&device_lock);
}

void device_put(struct door_device *d)
{
	bool last;

	lock_acquire(&device_lock);
	last = --d->refs == 0;
	if (last)
		list_remove(&d->node);
	lock_release(&device_lock);
	if (!last)
		return;
	ib_uverbs_put_devices(d->held);
	free(d);
}

/* Turns the core's list into the door's; returns how many it took. Each entry that it takes is
 * cleared in the core's list, so the caller gives back the rest. */
static int device_take_all(struct ib_device **list, int count, struct ibv_device **out)
{
	int taken = 0, left = 0;

	for (int i = 0; i < count; i++) {
		struct ib_device **held = device_hold_one(list[i]);
		struct door_device *d = held ? device_take(held, i) : NULL;

		if (!held)
			list[left++] = list[i];
		if (d)
			out[taken++] = &d->ibv;
	}
	list[left] = NULL;
	return taken;
}

/* As the man page says: without a node this host has no RDMA, which programs accept as an empty
 * list. */
static int device_list_error(int error)
{
	switch (error) {
	case -ECONNREFUSED:
	case -ENOENT:
		return -ENOSYS;
	case -EACCES:
		return -EPERM;
	default:
		return error;
	}
}

AV_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ib_device **list = NULL;
	struct ibv_device **out;
	int count, taken;

	if (num_devices)
		*num_devices = 0;
	count = ib_uverbs_get_devices(&list);
	if (count < 0) {
		errno = -device_list_error(count);
		return NULL;
	}
	out = calloc((size_t)count + 1, sizeof(*out));
	taken = out ? device_take_all(list, count, out) : 0;
	ib_uverbs_put_devices(list);
	if (!out)
		return door_null(-ENOMEM);
	if (num_devices)
		*num_devices = taken;
	return out;
}
DOOR_DEFAULT(ibv_get_device_list);

AV_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	if (!list)
		return;
	for (struct ibv_device **d = list; *d; d++)
		device_put(door_device(*d));
	free(list);
}
DOOR_DEFAULT(ibv_free_device_list);

AV_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}
DOOR_DEFAULT(ibv_get_device_name);

AV_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return door_device(device)->index;
}

AV_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return door_device(device)->guid;
}
DOOR_DEFAULT(ibv_get_device_guid);
