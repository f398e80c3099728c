/* config.c: the devices, their GID tables and ports, as the node shows them.
 * In: the node's configuration    Out: devices, GIDs and their indices, events of ports and GIDs
 * Runs: queries on any thread; changes on the engine's thread
 * Locks: config_lock, a leaf
 */
#include "driver/roce/roce.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "driver/soft/mads.h"

static struct {
	struct lock config_lock; /* guards roce_device.config of each device, too */
	struct list_head devices GUARDED_BY(config_lock);
	struct list_head left GUARDED_BY(config_lock); /* removed, not yet freed */
} roce_table = { .devices = LIST_HEAD_INIT(roce_table.devices),
		 .left = LIST_HEAD_INIT(roce_table.left) };

void adapter_config_of(struct roce_device *dev, struct node_config *out)
{
	lock_acquire(&roce_table.config_lock);
	*out = dev->config;
	lock_release(&roce_table.config_lock);
}

int adapter_gid(struct roce_device *dev, u32 index, u8 gid[16])
{
	if (index >= NODE_GIDS)
		return -EINVAL;
	lock_acquire(&roce_table.config_lock);
	memcpy(gid, dev->config.gids[index].gid, 16);
	lock_release(&roce_table.config_lock);
	return 0;
}

static int adapter_config_find(const struct node_config *c, const u8 gid[16])
{
	for (int i = 0; i < NODE_GIDS; i++)
		if (memcmp(c->gids[i].gid, gid, 16) == 0)
			return i;
	return -ENOENT;
}

_Static_assert(NODE_DEVICES * NODE_GIDS <= CAPTURE_GIDS, "a capture knows all GIDs");

/* The GID's index in the device's table, 0 for the GID of its GUID; -ENOENT. Under config_lock. */
static int adapter_config_index_of(const struct roce_device *dev, const u8 gid[16])
{
	static const u8 link_local[8] = { 0xfe, 0x80 };
	int index = adapter_config_find(&dev->config, gid);

	if (index < 0 && memcmp(gid, link_local, 8) == 0 &&
	    memcmp(gid + 8, &dev->soft.ib.node_guid, 8) == 0)
		return 0;
	return index;
}

int adapter_find_gid(const u8 gid[16])
{
	int number = -ENOENT;

	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.devices, struct roce_device, node) {
		int index = number >= 0 ? -ENOENT : adapter_config_index_of(dev, gid);

		if (index >= 0)
			number = (int)dev->index * NODE_GIDS + index;
	}
	lock_release(&roce_table.config_lock);
	return number;
}

static u32 adapter_config_interface(const struct node_config *c)
{
	u32 found = 0;

	for (int i = 0; i < NODE_GIDS; i++) {
		if (c->gids[i].ifindex != 0 && strcmp(c->gids[i].ifname, "lo") != 0)
			return c->gids[i].ifindex;
		if (found == 0)
			found = c->gids[i].ifindex;
	}
	return found;
}

/* All devices of a node have one sysfs tree. */
int adapter_carrier(struct soft_device *soft, struct soft_carrier *out)
{
	struct roce_device *dev = container_of(soft, struct roce_device, soft);
	u32 found, hash = 2166136261u; /* FNV-1a */

	lock_acquire(&roce_table.config_lock);
	found = adapter_config_interface(&dev->config);
	for (const char *c = dev->config.sysfs; *c != '\0'; c++)
		hash = (hash ^ (u8)*c) * 16777619u;
	lock_release(&roce_table.config_lock);
	if (found == 0)
		return -ENODEV;
	*out = (struct soft_carrier){ .ifindex = found, .node = hash, .device = dev->id };
	return 0;
}

bool adapter_is_own_gid(const u8 gid[16])
{
	return adapter_find_gid(gid) >= 0;
}

bool adapter_config_port_is_up(struct roce_device *dev)
{
	bool up;

	lock_acquire(&roce_table.config_lock);
	up = dev->config.port_up;
	lock_release(&roce_table.config_lock);
	return up;
}

struct mad_port *adapter_config_general(const u8 gid[16])
{
	struct mad_port *found = NULL;

	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.devices, struct roce_device, node)
		if (found == NULL && dev->config.port_up && adapter_config_index_of(dev, gid) >= 0)
			found = dev->general;
	if (found != NULL)
		mad_port_hold(found);
	lock_release(&roce_table.config_lock);
	return found;
}

u64 adapter_config_id_of(const u8 gid[16])
{
	u64 id = 0;

	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.devices, struct roce_device, node)
		if (id == 0 && adapter_config_index_of(dev, gid) >= 0)
			id = dev->id;
	lock_release(&roce_table.config_lock);
	return id;
}

int adapter_get_info(struct ib_device *ib, struct ib_uverbs_info *out)
{
	struct roce_device *dev = adapter_dev(ib);
	const struct node_config *c = &dev->config;

	memset(out, 0, sizeof(*out));
	lock_acquire(&roce_table.config_lock);
	snprintf(out->name, sizeof(out->name), "%s", c->device);
	snprintf(out->dev_name, sizeof(out->dev_name), "%s", c->dev_path);
	snprintf(out->sysfs, sizeof(out->sysfs), "%s", c->sysfs);
	if (snprintf(out->dev_path, sizeof(out->dev_path), "%s/class/infiniband_verbs/%s", c->sysfs,
		     c->dev_path) >= (int)sizeof(out->dev_path))
		log_warn("roce", "the path %s is too long", c->sysfs);
	if (snprintf(out->ibdev_path, sizeof(out->ibdev_path), "%s/class/infiniband/%s", c->sysfs,
		     c->device) >= (int)sizeof(out->ibdev_path))
		log_warn("roce", "the path %s is too long", c->sysfs);
	out->node_guid = htobe64(c->node_guid);
	lock_release(&roce_table.config_lock);
	out->abi_version = 1;
	return 0;
}

/* ---- from the node ---- */

struct roce_device *adapter_config_device(u32 index)
{
	struct roce_device *found = NULL;

	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.devices, struct roce_device, node)
		if (dev->index == index)
			found = dev;
	lock_release(&roce_table.config_lock);
	return found;
}

bool adapter_config_is_settled(struct seat *s)
{
	u64 shown[NODE_DEVICES] = { 0 };
	struct node_config now;
	bool settled = true;

	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (node_device_get(s->a.node, i, &now) == 0)
			shown[i] = now.id;
	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.devices, struct roce_device, node) {
		settled = settled && dev->id == shown[dev->index] && soft_is_settled(&dev->soft);
		shown[dev->index] = 0;
	}
	list_for_each(dev, &roce_table.left, struct roce_device, node)
		settled = settled && soft_has_left(&dev->soft);
	lock_release(&roce_table.config_lock);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		settled = settled && shown[i] == 0;
	return settled;
}

static struct roce_device *adapter_config_add(u32 index, const struct node_config *config)
{
	struct roce_device *dev = adapter_device_new(config);

	if (dev == NULL)
		return NULL;
	dev->index = dev->soft.index = index;
	dev->id = config->id;
	dev->config = *config;
	adapter_general_add(dev);
	soft_set_port_up(&dev->soft, 1, config->port_up, false);
	lock_acquire(&roce_table.config_lock);
	list_push_back(&roce_table.devices, &dev->node);
	lock_release(&roce_table.config_lock);
	return dev;
}

/* Stores the node's present configuration of the device; *before (out) is the previous one. */
static void adapter_config_take(struct roce_device *dev, const struct node_config *now,
			struct node_config *before)
{
	lock_acquire(&roce_table.config_lock);
	*before = dev->config;
	dev->config = *now;
	lock_release(&roce_table.config_lock);
}

/* Takes the device out of the table; plug.c finds it on the list `left`. */
static void adapter_config_remove(struct roce_device *dev)
{
	soft_set_removed(&dev->soft);
	lock_acquire(&roce_table.config_lock);
	list_remove(&dev->node);
	list_push_back(&roce_table.left, &dev->node);
	lock_release(&roce_table.config_lock);
}

struct roce_device *adapter_config_next_left(void)
{
	struct roce_device *found = NULL;

	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.left, struct roce_device, node)
		if (found == NULL && !dev->taken)
			found = dev;
	if (found != NULL)
		found->taken = true;
	lock_release(&roce_table.config_lock);
	return found;
}

void adapter_config_closed(struct soft_device *soft)
{
	lock_acquire(&roce_table.config_lock);
	list_remove(&adapter_of(soft)->node);
	lock_release(&roce_table.config_lock);
	ib_dealloc_device(&soft->ib);
}

/* Returns the device of an index. Makes it if the node shows a new one there, removes it if the
 * node shows another one or none. *now: what the node shows. */
static struct roce_device *adapter_config_match(struct seat *s, u32 index, struct node_config *now,
					bool *changed)
{
	struct roce_device *dev = adapter_config_device(index);
	bool there = node_device_get(s->a.node, index, now) == 0;

	if (dev != NULL && (!there || dev->id != now->id)) {
		adapter_config_remove(dev);
		dev = NULL;
		*changed = true;
	}
	if (dev == NULL && there) {
		dev = adapter_config_add(index, now);
		*changed = true;
		if (dev == NULL)
			log_error("roce", "no memory for device %s", now->device);
	}
	return dev;
}

int adapter_config_begin(struct seat *s)
{
	struct node_config now, before;
	bool changed = false;

	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct roce_device *dev = adapter_config_match(s, i, &now, &changed);

		if (dev == NULL)
			continue;
		adapter_config_take(dev, &now, &before);
		soft_set_port_up(&dev->soft, 1, now.port_up, false);
	}
	return 0;
}

void adapter_config_taken(struct seat *s)
{
	lock_acquire(&roce_table.config_lock);
	list_for_each(dev, &roce_table.devices, struct roce_device, node)
		soft_taken(&dev->soft);
	lock_release(&roce_table.config_lock);
}

static void adapter_config_drop_in_child(void) NO_THREAD_SAFETY
{
	list_for_each(dev, &roce_table.devices, struct roce_device, node)
		soft_drop_in_child(&dev->soft);
	list_for_each(dev, &roce_table.left, struct roce_device, node) {
		soft_drop_in_child(&dev->soft);
		dev->soft.state = SOFT_GONE;
	}
}
FORK_TAKES(FORK_ROCE, &roce_table.config_lock, .child = adapter_config_drop_in_child);

/* ---- changes ---- */

static void adapter_config_dispatch(struct roce_device *dev, enum ib_event_type type)
{
	struct ib_event event = { .device = &dev->soft.ib,
				  .event = type,
				  .element.port_num = 1 };

	ib_dispatch_event(&event);
}

/* Updates the port before it raises an event. A port that went down and up between two looks raises
 * both events: packets were lost meanwhile. */
static void adapter_config_port(struct roce_device *dev, bool was_up, bool up)
{
	soft_set_port_up(&dev->soft, 1, up, was_up);
	if (was_up)
		adapter_config_dispatch(dev, IB_EVENT_PORT_ERR);
	if (up)
		adapter_config_dispatch(dev, IB_EVENT_PORT_ACTIVE);
}

/* Tells whether the GIDs themselves differ; flags and MTUs of their interfaces do not count. */
static bool adapter_config_gids_differ(const struct node_config *a, const struct node_config *b)
{
	for (int i = 0; i < NODE_GIDS; i++)
		if (memcmp(a->gids[i].gid, b->gids[i].gid, sizeof(a->gids[i].gid)) != 0)
			return true;
	return false;
}

static NOINLINE void adapter_config_update(struct seat *s, struct roce_device *dev,
				  const struct node_config *now)
{
	struct node_config before;

	adapter_config_take(dev, now, &before);
	if (before.port_up != now->port_up || before.port_downs != now->port_downs)
		adapter_config_port(dev, before.port_up, now->port_up);
	if ((s->paths & SEAT_PATH_UDP) && memcmp(before.gids, now->gids, sizeof(now->gids)) != 0)
		udp_refresh(s->a.udp);
	if (adapter_config_gids_differ(&before, now))
		adapter_config_dispatch(dev, IB_EVENT_GID_CHANGE);
}

/* Devices were added or removed, and with them addresses. */
static void adapter_config_devices_changed(struct seat *s)
{
	if (s->paths & SEAT_PATH_UDP)
		udp_refresh(s->a.udp);
	adapter_plug_changed();
}

void adapter_config_changed(struct seat *s)
{
	struct node_config now;
	bool changed = false;

	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct roce_device *dev = adapter_config_match(s, i, &now, &changed);

		if (dev == NULL)
			continue;
		soft_taken(&dev->soft);
		adapter_config_update(s, dev, &now);
	}
	if (changed)
		adapter_config_devices_changed(s);
}
