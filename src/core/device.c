/* device.c: registers devices, names them, and keeps the list of them.
 * In: drivers    Out: clients (client.c), doors (driver.c)
 * Runs: the driver's or the consumer's thread
 * Locks: registry.lock; the device's turn by way of client.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cond.h"
#include "base/fork.h"
#include "core/core_priv.h"

enum { DEVICE_MAX_NUMBER = 1024 };

static struct {
	struct lock lock;
	struct list_head devices GUARDED_BY(lock);
	u64 last_serial GUARDED_BY(lock);
} registry = { .devices = LIST_HEAD_INIT(registry.devices) };

__thread u32 turn_self;

struct ib_device *ib_alloc_device(size_t size)
{
	return size < sizeof(struct ib_device) ? NULL : calloc(1, size);
}

void ib_dealloc_device(struct ib_device *device)
{
	if (!device)
		return;
	if (device->core)
		vector_item_flush(&device->core->item); /* a last run may find nothing to do */
	free(device->core);
	free(device);
}

static void registry_hold(struct ib_device_core *core)
{
	__atomic_add_fetch(&core->holders, 1, __ATOMIC_RELAXED);
}

/* Pairs with the acquire in core_device_wait_holders. */
void registry_put(struct ib_device_core *core)
{
	if (__atomic_sub_fetch(&core->holders, 1, __ATOMIC_RELEASE) == 0)
		futex_wake(&core->holders, INT32_MAX);
}

static void core_device_wait_holders(struct ib_device_core *core)
{
	u32 left;

	while ((left = __atomic_load_n(&core->holders, __ATOMIC_ACQUIRE)))
		futex_sleep(&core->holders, left);
}

/* Neither going nor about to go: lists have it, and clients are told of it. */
static bool registry_shows(const struct ib_device_core *core) REQUIRES(&registry.lock)
{
	return core->registered && !core->dying && !core->unlisted;
}

struct ib_device_core *registry_next(u64 after, bool alive)
{
	struct ib_device_core *found = NULL;

	lock_acquire(&registry.lock);
	list_for_each(core, &registry.devices, struct ib_device_core, node) {
		if (core->serial > after && (!alive || registry_shows(core))) {
			found = core;
			registry_hold(core);
			break;
		}
	}
	lock_release(&registry.lock);
	return found;
}

struct ib_device_core *registry_previous(u64 before)
{
	struct ib_device_core *found = NULL;

	lock_acquire(&registry.lock);
	list_for_each(core, &registry.devices, struct ib_device_core, node)
		if (core->serial < before)
			found = core;
	if (found)
		registry_hold(found);
	lock_release(&registry.lock);
	return found;
}

bool registry_is_alive(struct ib_device_core *core)
{
	lock_acquire(&registry.lock);
	bool alive = registry_shows(core);
	lock_release(&registry.lock);
	return alive;
}

bool core_device_is_registered(const struct ib_device_core *core)
{
	lock_acquire(&registry.lock);
	bool registered = core->registered;
	lock_release(&registry.lock);
	return registered;
}

static bool registry_has_name(const char *name) REQUIRES(&registry.lock)
{
	list_for_each(core, &registry.devices, struct ib_device_core, node)
		if (!core->unlisted && strcmp(core->device->name, name) == 0)
			return true;
	return false;
}

/* Replaces one %d by the lowest number that makes the name free. */
static int registry_choose_name(char *name) REQUIRES(&registry.lock)
{
	char prefix[IB_DEVICE_NAME_MAX], candidate[IB_DEVICE_NAME_MAX];
	const char *percent = strchr(name, '%');

	if (!percent)
		return registry_has_name(name) ? -EEXIST : 0;
	if (percent[1] != 'd' || strchr(percent + 1, '%'))
		return -EINVAL;
	memcpy(prefix, name, IB_DEVICE_NAME_MAX);
	prefix[percent - name] = '\0';
	for (int i = 0; i < DEVICE_MAX_NUMBER; i++) {
		int length = snprintf(candidate, sizeof(candidate), "%s%d%s", prefix, i,
				      percent + 2);

		if (length >= IB_DEVICE_NAME_MAX)
			return -EINVAL;
		if (registry_has_name(candidate))
			continue;
		memcpy(name, candidate, IB_DEVICE_NAME_MAX);
		return 0;
	}
	return -ENFILE;
}

static int registry_insert(struct ib_device_core *core)
{
	char name[IB_DEVICE_NAME_MAX];
	int err;

	memcpy(name, core->device->name, IB_DEVICE_NAME_MAX);
	lock_acquire(&registry.lock);
	err = registry_choose_name(name);
	if (err == 0) {
		memcpy(core->device->name, name, IB_DEVICE_NAME_MAX);
		core->serial = ++registry.last_serial;
		core->registered = true;
		core->dying = core->unlisted = false;
		list_push_back(&registry.devices, &core->node);
	}
	lock_release(&registry.lock);
	return err;
}

/* False: it is not registered, or another thread unregisters it. */
static bool registry_begin_removal(struct ib_device_core *core)
{
	lock_acquire(&registry.lock);
	bool mine = core->registered && !core->dying;

	if (mine)
		core->dying = true;
	lock_release(&registry.lock);
	return mine;
}

static void registry_end_removal(struct ib_device_core *core)
{
	lock_acquire(&registry.lock);
	list_remove(&core->node);
	core->registered = false;
	lock_release(&registry.lock);
}

/* The methods without which no consumer could do anything. */
static bool core_device_is_complete(const struct ib_device *d)
{
	const struct ib_uverbs_ops *u = d->uverbs;

	return d->query_device && d->query_port && d->query_gid && d->query_pkey && d->alloc_pd &&
	       d->dealloc_pd && d->create_ah && d->destroy_ah && d->create_qp && d->modify_qp &&
	       d->destroy_qp && d->create_cq && d->destroy_cq && d->poll_cq && d->req_notify_cq &&
	       d->get_dma_mr && d->dereg_mr && (d->post_send || (u && u->post_send)) &&
	       (d->post_recv || (u && u->post_recv));
}

static int core_device_check(const struct ib_device *device)
{
	if (!device || !device->name[0] || !memchr(device->name, '\0', IB_DEVICE_NAME_MAX))
		return -EINVAL;
	if (device->node_type < RDMA_NODE_IB_CA || device->node_type > RDMA_NODE_RNIC)
		return -EINVAL;
	return core_device_is_complete(device) ? 0 : -EINVAL;
}

struct ib_device_core *core_device_make_core(struct ib_device *device)
{
	struct ib_device_core *core = device->core;

	if (core)
		return core;
	core = calloc(1, sizeof(*core));
	if (!core)
		return NULL;
	core->device = device;
	list_init(&core->node);
	dispatch_init(core);
	device->core = core;
	return core;
}

int ib_register_device(struct ib_device *device)
{
	int err = core_device_check(device);

	if (err)
		return err;
	struct ib_device_core *core = core_device_make_core(device);

	if (!core)
		return -ENOMEM;
	if (core_device_is_registered(core))
		return -EEXIST;
	err = core_fill_attrs(device);
	if (!err)
		err = cache_init(core);
	if (err)
		return err;
	uverbs_attach(core);
	dispatch_start(core);
	err = registry_insert(core);
	if (err)
		goto stop;
	log_debug("core", "device %s registered", device->name);
	core_client_catch_up(core);
	return 0;
stop:
	dispatch_stop(core);
	uverbs_detach(core);
	cache_fini(core);
	return err;
}

void ib_device_unlist(struct ib_device *device)
{
	lock_acquire(&registry.lock);
	if (device->core)
		device->core->unlisted = true;
	lock_release(&registry.lock);
}

bool ib_device_is_listed(struct ib_device *device)
{
	bool shown;

	lock_acquire(&registry.lock);
	shown = device->core && registry_shows(device->core);
	lock_release(&registry.lock);
	return shown;
}

/* Teardown: unreachable for new clients and holders; clients gone; holders gone; no event left;
 * then the driver's alone. */
void ib_unregister_device(struct ib_device *device)
{
	struct ib_device_core *core = device ? device->core : NULL;

	if (!core || !registry_begin_removal(core))
		return;
	core_client_remove_all(core);
	registry_end_removal(core);
	core_device_wait_holders(core);
	dispatch_stop(core);
	uverbs_detach(core);
	cache_fini(core);
	log_debug("core", "device %s unregistered", device->name);
}

/* The analysis cannot follow as many locks as there are devices. Nobody else takes two cores'
 * locks at once. */
static void registry_lock_cores(void) NO_THREAD_SAFETY
{
	list_for_each(core, &registry.devices, struct ib_device_core, node) {
		lock_acquire(&core->lock);
		lock_acquire(&core->cache_lock);
	}
}

static void registry_unlock_cores(void) NO_THREAD_SAFETY
{
	list_for_each(core, &registry.devices, struct ib_device_core, node) {
		lock_release(&core->cache_lock);
		lock_release(&core->lock);
	}
}

/* Forgets every device and calls nobody, so that drivers can probe again. What hangs on the devices
 * stays usable. */
static void registry_drop_in_child(void) NO_THREAD_SAFETY
{
	list_for_each_safe(core, &registry.devices, struct ib_device_core, node) {
		turn_init(&core->turn);
		lock_init(&core->lock);
		lock_init(&core->cache_lock);
		dispatch_drop_in_child(core);
		core->registered = core->dying = false;
		list_init(&core->node);
	}
	list_init(&registry.devices);
}
FORK_TAKES(FORK_REGISTRY, &registry.lock, .before = registry_lock_cores,
	   .after = registry_unlock_cores, .child = registry_drop_in_child);
