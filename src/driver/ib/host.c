/* host.c: the devices of the host that this process is of: entering the fabric, and what changes at
 * their ports.
 * In:    ANYVERBS_HOST, the fabric's map, news of the node    Out: devices, events of ports
 * Runs:  entering under attach_lock, changes on the engine's thread, questions anywhere
 * Locks: none of its own: the devices of a process are made once, and stay
 */
#include "driver/ib/ib.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"

static struct {
	const struct node_fabric *fabric ATOMIC_ONLY; /* NULL: not entered */
	struct hca_device *device[HCA_DEVICES] ATOMIC_ONLY;
	u32 count ATOMIC_ONLY;
} host;

const char *hca_host(void)
{
	return node_fabric_host();
}

const struct node_fabric *hca_fabric(void)
{
	return __atomic_load_n(&host.fabric, __ATOMIC_ACQUIRE);
}

struct hca_device *hca_host_device(u32 index)
{
	if (index >= __atomic_load_n(&host.count, __ATOMIC_ACQUIRE))
		return NULL;
	return __atomic_load_n(&host.device[index], __ATOMIC_RELAXED);
}

struct hca_port *hca_host_port(u32 port)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++)
			if (dev->port[n].index == port)
				return &dev->port[n];
	return NULL;
}

int hca_port_read(struct hca_device *dev, u32 port, struct fabric_port_attr *out)
{
	if (!soft_has_port(&dev->soft, port) || hca_fabric() == NULL)
		return -EINVAL;
	return fabric_port_read(hca_view(), dev->port[port].index, out);
}

/* The tree of a host lies beside that of the node. */
static void hca_host_sysfs(char *out, size_t bytes)
{
	struct node_config node;
	char *end;

	out[0] = '\0';
	if (node_device_get(the_seat.a.node, 0, &node) != 0 || node.sysfs[0] == '\0')
		return;
	end = strrchr(node.sysfs, '/');
	if (end != NULL)
		*end = '\0';
	if (snprintf(out, bytes, "%s/hosts/%s/sys", node.sysfs, hca_host()) >= (int)bytes) {
		log_warn("ib", "the path of the host's tree in %s is too long", node.sysfs);
		out[0] = '\0';
	}
}

int hca_get_info(struct ib_device *ib, struct ib_uverbs_info *out)
{
	struct hca_device *dev = hca_dev(ib);
	char tree[sizeof(out->sysfs)];

	memset(out, 0, sizeof(*out));
	hca_host_sysfs(tree, sizeof(tree));
	snprintf(out->sysfs, sizeof(out->sysfs), "%s", tree);
	snprintf(out->name, sizeof(out->name), "%s", ib->name);
	snprintf(out->dev_name, sizeof(out->dev_name), "uverbs%u", dev->index);
	if (snprintf(out->dev_path, sizeof(out->dev_path), "%s/class/infiniband_verbs/%s", tree,
		     out->dev_name) >= (int)sizeof(out->dev_path) ||
	    snprintf(out->ibdev_path, sizeof(out->ibdev_path), "%s/class/infiniband/%s", tree,
		     out->name) >= (int)sizeof(out->ibdev_path))
		log_warn("ib", "the path %s is too long", tree);
	out->node_guid = ib->node_guid;
	out->abi_version = 1;
	return 0;
}

int hca_open_sm(struct ib_device *ib, u8 port)
{
	struct hca_device *dev = hca_dev(ib);
	int fd = -1, err = soft_attach(&dev->soft);

	if (err == 0)
		err = node_fabric_issm(hca_fabric(), dev->port[port].index, &fd);
	return err == 0 ? fd : err;
}

/* ---- entering -------------------------------------------------------------------------------- */

static int hca_host_add(const struct node_fabric *f, u32 index)
{
	struct fabric_node_attr node;
	struct hca_device *dev;
	int err = fabric_node_read(&f->view, f->ca[index], &node);

	if (err != 0)
		return err;
	dev = hca_device_new(index, &node);
	if (dev == NULL)
		return -ENOMEM;
	dev->node = f->ca[index];
	for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++) {
		dev->port[n].device = dev;
		dev->port[n].number = n;
		dev->port[n].index = node.first_port + n;
	}
	hca_mads_add(dev);
	__atomic_store_n(&host.device[index], dev, __ATOMIC_RELAXED);
	__atomic_store_n(&host.count, index + 1, __ATOMIC_RELEASE);
	return 0;
}

static bool hca_host_is_up(const struct fabric_port_attr *p)
{
	return p->state == FABRIC_ACTIVE;
}

/* What consumers know of the ports begins with what the map says now. */
static void hca_host_begin_ports(struct hca_device *dev)
{
	for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++) {
		struct hca_port *port = &dev->port[n];

		if (fabric_port_read(hca_view(), port->index, &port->told) != 0)
			memset(&port->told, 0, sizeof(port->told));
		soft_set_port_up(&dev->soft, n, hca_host_is_up(&port->told), false);
	}
}

int hca_host_begin(struct seat *s)
{
	const struct node_fabric *f;
	struct hca_device *dev;
	int err = node_fabric_enter(s->a.node, hca_host(), &f);

	if (err != 0) {
		log_error("ib", err == -ENOENT ? "the fabric has no host %s: error %d"
					       : "host %s is not entered: error %d",
			  hca_host(), -err);
		return err;
	}
	__atomic_store_n(&host.fabric, f, __ATOMIC_RELEASE);
	for (u32 i = __atomic_load_n(&host.count, __ATOMIC_RELAXED); i < f->ca_count && err == 0;
	     i++)
		err = hca_host_add(f, i);
	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		hca_host_begin_ports(dev);
	return err == 0 ? hca_mads_start(f) : err;
}

void hca_host_taken(struct seat *s)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		soft_taken(&dev->soft);
}

int hca_host_register(void)
{
	struct hca_device *dev;
	int first = 0;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++) {
		int err = soft_register(&dev->soft);

		first = first == 0 ? err : first;
	}
	return first;
}

static void hca_host_drop_in_child(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < host.count; i++)
		soft_drop_in_child(&host.device[i]->soft);
	host.fabric = NULL;
	hca_charge_drop_in_child();
	hca_gone_drop_in_child();
}
FORK_HOOK(FORK_HCA_HOST, .child = hca_host_drop_in_child);

/* ---- changes --------------------------------------------------------------------------------- */

static void hca_host_dispatch(struct hca_port *port, enum ib_event_type type)
{
	struct ib_event event = { .device = &port->device->soft.ib,
				  .event = type,
				  .element.port_num = port->number };

	ib_dispatch_event(&event);
}

/* The state of queue pairs first: a consumer that is told of the change finds it there. */
static void hca_host_tell_state(struct hca_port *port, bool was_up, bool up)
{
	if (was_up == up)
		return;
	soft_set_port_up(&port->device->soft, port->number, up, was_up);
	hca_host_dispatch(port, up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR);
}

static void hca_host_tell(struct hca_port *port)
{
	struct fabric_port_attr before = port->told, now;

	if (fabric_port_read(hca_view(), port->index, &now) != 0)
		return;
	port->told = now;
	if (before.lid != now.lid || before.lmc != now.lmc)
		hca_host_dispatch(port, IB_EVENT_LID_CHANGE);
	if (before.sm_lid != now.sm_lid || before.sm_sl != now.sm_sl)
		hca_host_dispatch(port, IB_EVENT_SM_CHANGE);
	if (memcmp(before.pkeys, now.pkeys, sizeof(now.pkeys)) != 0)
		hca_host_dispatch(port, IB_EVENT_PKEY_CHANGE);
	if (before.gid_prefix != now.gid_prefix || before.guid != now.guid ||
	    memcmp(before.guids, now.guids, sizeof(now.guids)) != 0)
		hca_host_dispatch(port, IB_EVENT_GID_CHANGE);
	hca_host_tell_state(port, hca_host_is_up(&before), hca_host_is_up(&now));
}

/* News may have been lost with a node: each port is looked at. */
void hca_host_changed(struct seat *s)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++)
			hca_host_tell(&dev->port[n]);
}

static void hca_host_review_routes(void)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		soft_review_routes(&dev->soft);
}

/* The subnet manager of a node that has taken over knows no groups, services and subscriptions;
 * that it asked for them may have been told to nobody. */
static void hca_host_reregister(void)
{
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++)
			hca_host_dispatch(&dev->port[n], IB_EVENT_CLIENT_REREGISTER);
}

void hca_host_fabric(struct seat *s, u32 index, u32 what)
{
	struct hca_port *port = hca_host_port(index);

	if (what & NODE_FABRIC_GONE) {
		hca_gone();
		return;
	}
	if (port != NULL) {
		hca_host_tell(port);
		if (what & FABRIC_CHANGED_REREGISTER)
			hca_host_dispatch(port, IB_EVENT_CLIENT_REREGISTER);
	}
	/* after a change of the node, news of single ports may be missing */
	if (what & NODE_FABRIC_ROUTES) {
		hca_host_changed(s);
		hca_host_review_routes();
	}
	if (what & NODE_FABRIC_AGAIN)
		hca_host_reregister();
}
