/* devices.c: the node's devices and the state of their ports; which node shows the host's
 * addresses.
 * In:    the host's addresses and links, ANYVERBS_DEVICES, ANYVERBS_ADDR, requests of tools
 * Out:   the directory, sysfs trees, UDP sockets, the file for the next node
 * Runs:  the daemon's only thread
 * Locks: none
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "daemon/daemon_priv.h"
#include "daemon/fabric/sysfs.h"

enum {
	/* the first and the longest wait before another attempt at an address or port that
	 * could not be had: soon, for a node that has just died may still hold it */
	DEVICES_RETRY_FIRST_MS = 50,
	DEVICES_RETRY_LAST_MS = 5000,
};

/* Returns the directory's entry of a device; id 0: no device has the index. */
static struct node_config *devices_shown(struct daemon *d, u32 index)
{
	return &d->directory->devices[index];
}

int devices_find(struct daemon *d, const char name[NODE_DEVICE_NAME])
{
	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (d->devices[i].id != 0 &&
		    strncmp(d->devices[i].name, name, NODE_DEVICE_NAME) == 0)
			return (int)i;
	return -ENODEV;
}

u64 devices_of_gid(const struct daemon *d, const u8 gid[16])
{
	static const u8 link_local[8] = { 0xfe, 0x80 }, empty[16];

	for (u32 i = 0; i < NODE_DEVICES && memcmp(gid, empty, sizeof(empty)) != 0; i++) {
		const struct node_config *c = &d->directory->devices[i];
		u64 guid = htobe64(c->node_guid);

		if (c->id == 0)
			continue;
		for (u32 k = 0; k < NODE_GIDS; k++)
			if (memcmp(c->gids[k].gid, gid, 16) == 0)
				return c->id;
		if (memcmp(gid, link_local, 8) == 0 && memcmp(gid + 8, &guid, 8) == 0)
			return c->id;
	}
	return 0;
}

/* ---- the host's addresses ---- */

static bool devices_may_have(void *arg, const u8 gid[16], u32 ifindex)
{
	struct daemon *d = arg;

	return daemon_udp_want(&d->udp, gid, ifindex);
}

/* The first node stays the first. A later node follows once the first has gone and it has no
 * process, attached or about to come back, whose GIDs would change. */
static bool devices_be_first(struct daemon *d)
{
	if (d->options.scope == PLACE_NETWORK && !d->devices[0].told.given &&
	    (d->first || (d->attached == 0 && !folder_in_use(&d->folder))))
		d->first |= daemon_udp_be_first(&d->udp);
	return d->first;
}

/* Another node shows the host's addresses: logs that, and reports it in the status. */
static void devices_leave_addresses(struct daemon *d, const struct host *h)
{
	bool any = false;

	for (u32 i = 0; i < h->address_count; i++) {
		const struct host_address *a = &h->addresses[i];
		const struct host_interface *l = host_interface_of(h, a->ifindex);

		if (l == NULL || l->loopback || !l->up)
			continue;
		daemon_udp_leave(&d->udp, a->gid, a->ifindex);
		any = true;
	}
	if (any && !d->later_told)
		log_warn("node",
			 "another node of this network namespace came first and has the host's "
			 "addresses: this one has a loopback address, which no other host reaches "
			 "(ANYVERBS_ADDR says which node gets which)");
	d->later_told = any;
}

/* Collects the inputs of a device's configuration. */
static struct config_source devices_source(struct daemon *d, const struct host *host, u32 index)
{
	return (struct config_source){ .host = host,
				       .node = d->options.node,
				       .device = d->devices[index].name,
				       .index = index,
				       .id = d->devices[index].id,
				       .told = &d->devices[index].told,
				       .first = d->first && index == 0,
				       .mine = devices_may_have,
				       .arg = d };
}

/* Reads the host's addresses, opens their sockets, and reads the links: *fresh gets the resulting
 * configuration of each device. If they cannot be read the devices have none, and a negative errno
 * is returned. */
static int devices_read(struct daemon *d, struct node_config fresh[NODE_DEVICES])
{
	static struct host host; /* too large for a stack */
	int err = host_read(&host);
	bool all;

	if (err < 0)
		log_error("node", "cannot read the host's addresses: %s", strerror(-err));
	(void)devices_be_first(d);
	daemon_udp_look_begin(&d->udp);
	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct config_source s = devices_source(d, &host, i);

		if (s.id == 0)
			continue;
		config_fill(&fresh[i], &s);
		d->devices[i].link = config_link(&d->devices[i].links, &s);
	}
	if (!d->devices[0].told.given && !d->first)
		devices_leave_addresses(d, &host);
	all = daemon_udp_look_end(&d->udp) && err == 0 && (!d->first || d->udp.first_fd >= 0);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		if (d->devices[i].id != 0)
			daemon_udp_mark(&d->udp, &fresh[i]);
	d->retry_ms =
		all ? 0 : MIN(MAX(2 * d->retry_ms, DEVICES_RETRY_FIRST_MS), DEVICES_RETRY_LAST_MS);
	d->look_again_ns = all ? UINT64_MAX : clock_now_ns() + d->retry_ms * NS_PER_MS;
	return err;
}

/* ---- ports ---- */

/* The port's state: the link's, unless `anyverbs port` has set another one. */
static bool devices_port_state(struct device *v)
{
	/* forced up without a link: now there is one, which counts again */
	if (v->will == PORT_UP && v->link)
		v->will = PORT_AUTO;
	return v->will == PORT_AUTO ? v->link : v->will == PORT_UP;
}

/* Updates the port's state in *c. Returns whether it changed. */
static bool devices_update_port(struct device *v, struct node_config *c)
{
	bool up = devices_port_state(v), changed = c->port_up != up;

	c->port_downs = (u16)(c->port_downs + (changed && !up));
	c->port_up = up;
	if (changed)
		log_info("node", "port 1 of %s is %s", c->device, up ? "up" : "down");
	return changed;
}

/* For the node that takes over after a crash. */
static void devices_leave_file(struct daemon *d)
{
	struct device_file left = { .first = d->first, .next_id = d->next_device_id };
	int err;

	for (u32 i = 0; i < NODE_DEVICES; i++) {
		const struct device *v = &d->devices[i];

		left.devices[i] = (struct device_left){ .id = v->id,
							.will = v->will,
							.downs = devices_shown(d, i)->port_downs };
		memcpy(left.devices[i].name, v->name, sizeof(v->name));
	}
	err = device_file_write(&d->folder, &left);
	if (err < 0)
		log_warn("node", "the devices' state will not outlive this node: %s",
			 strerror(-err));
}

/* ---- what changes ---- */

/* The sysfs tree first: a process that is told of the change finds it there. */
static void devices_publish(struct daemon *d, u32 index, const struct node_config *c)
{
	(void)sysfs_write(&d->folder, c);
	directory_write_begin(d->directory);
	*devices_shown(d, index) = *c;
	directory_write_end(d->directory);
}

void devices_set_port(struct daemon *d, u32 index, bool up)
{
	struct device *v = &d->devices[index];
	struct node_config c = *devices_shown(d, index);

	v->will = !up ? PORT_DOWN : v->link ? PORT_AUTO : PORT_UP;
	if (devices_update_port(v, &c)) {
		devices_publish(d, index, &c);
		event_config(d);
	}
	devices_leave_file(d);
}

void devices_look(struct daemon *d)
{
	static struct node_config fresh[NODE_DEVICES];
	bool any = false;

	/* keeps the present configuration until the addresses can be read */
	if (devices_read(d, fresh) < 0)
		return;
	for (u32 i = 0; i < NODE_DEVICES; i++) {
		struct node_config now = *devices_shown(d, i);
		bool changed;

		if (now.id == 0)
			continue;
		changed = config_merge(&now, &fresh[i]);
		changed |= devices_update_port(&d->devices[i], &now);
		if (changed)
			devices_publish(d, i, &now);
		any |= changed;
	}
	devices_leave_file(d);
	if (any)
		event_config(d);
}

/* Writes the device's sysfs tree and stores its place in *c. Removes an incomplete tree. Without
 * the first device's tree there is none. */
static int devices_make_tree(struct daemon *d, u32 index, struct node_config *c)
{
	int err;

	if (d->folder.fd < 0 || (index > 0 && devices_shown(d, 0)->sysfs[0] == '\0'))
		return 0;
	err = sysfs_write(&d->folder, c);
	if (err == 0)
		err = traffic_begin_device(d, index, c);
	if (err == 0) {
		snprintf(c->sysfs, sizeof(c->sysfs), "%s/sys", d->folder.path);
		return 0;
	}
	log_error("node", "no sysfs tree of %s in %s: %s", c->device, d->folder.path,
		  strerror(-err));
	if (index == 0)
		folder_remove_tree(&d->folder, "sys");
	else
		sysfs_remove(&d->folder, c);
	return err;
}

/* ---- add and remove ---- */

/* Gives a device an index and an id; its configuration follows. */
static void devices_enter(struct daemon *d, u32 index, const char *name, u64 id)
{
	struct device *v = &d->devices[index];

	v->id = id;
	snprintf(v->name, sizeof(v->name), "%.31s", name);
	v->links.count = 0;
	v->will = PORT_AUTO;
}

/* Gives the device this configuration and a tree. A device without a tree is shown nevertheless. */
static int devices_show(struct daemon *d, u32 index, struct node_config *c)
{
	int err;

	c->port_up = devices_port_state(&d->devices[index]);
	err = devices_make_tree(d, index, c);
	directory_write_begin(d->directory);
	*devices_shown(d, index) = *c;
	directory_write_end(d->directory);
	return err;
}

static void devices_leave(struct daemon *d, u32 index)
{
	struct node_config gone = *devices_shown(d, index);

	d->devices[index].id = 0;
	directory_write_begin(d->directory);
	memset(devices_shown(d, index), 0, sizeof(gone));
	directory_write_end(d->directory);
	if (gone.id != 0)
		sysfs_remove(&d->folder, &gone);
}

int devices_add(struct daemon *d, const char *name)
{
	static struct node_config fresh[NODE_DEVICES];
	u32 i = 1;
	int err;

	if (!address_device_valid(name))
		return -EINVAL;
	if (devices_find(d, name) >= 0)
		return -EEXIST;
	while (i < NODE_DEVICES && d->devices[i].id != 0)
		i++;
	if (i == NODE_DEVICES)
		return -ENOSPC;
	devices_enter(d, i, name, d->next_device_id++);
	err = devices_read(d, fresh);
	if (err == 0)
		err = devices_show(d, i, &fresh[i]);
	if (err < 0) {
		devices_leave(d, i);
		return err;
	}
	log_info("node", "device %s is there", name);
	devices_leave_file(d);
	event_config(d);
	return 0;
}

int devices_remove(struct daemon *d, const char *name)
{
	int index = devices_find(d, name);

	if (index < 0)
		return index;
	/* programs take the first device */
	if (index == 0)
		return -EPERM;
	devices_leave(d, (u32)index);
	log_info("node", "device %s is gone", name);
	event_config(d);
	devices_look(d); /* updates its addresses */
	return 0;
}

/* ---- start ---- */

static void devices_refuse(const char *name)
{
	env_refuse("ANYVERBS_DEVICES", name, "roce and a number, seven of them beside roce0");
}

/* Takes the devices and ports of a node that was killed. Processes that know them may live, with a
 * slot or without one, which the folder does not show: so they take precedence over
 * ANYVERBS_DEVICES. */
static void devices_take_over(struct daemon *d, const struct device_file *left)
{
	d->first = left->first && !d->devices[0].told.given && folder_in_use(&d->folder);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		devices_enter(d, i, left->devices[i].name, left->devices[i].id);
	d->next_device_id = left->next_id;
}

void devices_begin(struct daemon *d)
{
	static struct node_config fresh[NODE_DEVICES];
	char names[NODE_DEVICES][NODE_DEVICE_NAME];
	u32 count = address_devices(getenv("ANYVERBS_DEVICES"), names, devices_refuse);
	struct config_told all, told[NODE_DEVICES];
	struct device_file left = { .first = false };

	config_parse_told(getenv("ANYVERBS_ADDR"), &all);
	config_deal(&all, count, told);
	for (u32 i = 0; i < NODE_DEVICES; i++)
		d->devices[i].told = told[i];
	d->next_device_id = count + 1;
	for (u32 i = 0; i < count; i++)
		devices_enter(d, i, names[i], i + 1);
	if (device_file_read(&d->folder, &left))
		devices_take_over(d, &left);
	(void)devices_read(d, fresh);
	for (u32 i = 0; i < NODE_DEVICES; i++) {
		if (d->devices[i].id == 0)
			continue;
		d->devices[i].will = left.devices[i].will;
		fresh[i].port_downs = left.devices[i].downs;
		(void)devices_show(d, i, &fresh[i]);
	}
	devices_leave_file(d);
}
