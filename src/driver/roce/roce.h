/* roce.h: inside the RoCE adapters: what they add to a software adapter (driver/soft).
 *
 *  device.c    the adapter's attributes and its registration
 *  config.c    the devices, their GID tables and ports, as the node shows them
 *    plug.c    registers devices that appear, unplugs devices that disappear
 * address.c    how an address vector becomes GIDs, a path and a destination
 *   mcast.c    multicast groups
 * general.c    MADs to and from QP1
 */
#ifndef DRIVER_ROCE_ROCE_H
#define DRIVER_ROCE_ROCE_H

#include "driver/soft/soft.h"
#include "mad/port.h"

struct roce_device {
	struct soft_device soft GUARDS_ITSELF; /* first */
	/* the list of devices or of removed ones */
	struct list_head node OWNED_BY(roce_table.config_lock);
	struct node_config config OWNED_BY(roce_table.config_lock);
	u32 index FIXED; /* the node's of this device */
	u64 id FIXED;	 /* the node's, never reused */
	struct mad_port *general FIXED; /* its QP1. NULL: without */
	bool taken OWNED_BY(roce_table.config_lock); /* plug.c is unplugging it */
};

static inline struct roce_device *adapter_of(struct soft_device *dev)
{
	return container_of(dev, struct roce_device, soft);
}

static inline struct roce_device *adapter_dev(struct ib_device *ib)
{
	return adapter_of(soft_dev(ib));
}

/* ---- device.c ---- */
/* Allocates a device that core does not know yet. Its configuration holds only what never changes.
 * NULL: no memory. Freed by ib_dealloc_device. */
struct roce_device *adapter_device_new(const struct node_config *config);
void adapter_fill_mcast(struct ib_device *ib);

/* ---- config.c: the node's configuration as this process has it ---- */
/* Methods of struct seat_ops, which says when they run. */
int adapter_config_begin(struct seat *seat);
void adapter_config_taken(struct seat *seat);
void adapter_config_changed(struct seat *seat);
/* The device with this index of the node's, or NULL. */
struct roce_device *adapter_config_device(u32 index);
/* Returns the next device that the node has removed and plug.c has not taken yet, and marks it
 * taken; NULL: none. */
struct roce_device *adapter_config_next_left(void);
/* Tells whether the devices that core lists are those that the node shows now. */
bool adapter_config_is_settled(struct seat *seat);
/* soft_kind.closed: takes a device that adapter_config_next_left has returned off the list, and
 * frees it. */
void adapter_config_closed(struct soft_device *dev);
/* Copies the device's configuration. */
void adapter_config_of(struct roce_device *dev, struct node_config *out);
/* uverbs.get_info. */
int adapter_get_info(struct ib_device *ib, struct ib_uverbs_info *out);
/* Tells whether a GID is this node's: one of a device's table, or that of a device's GUID, which
 * the table holds only while there is no link-local address. */
bool adapter_is_own_gid(const u8 gid[16]);
/* Writes the GID at an index of the device's table; zeroes: an empty entry. -EINVAL: no such
 * index. */
int adapter_gid(struct roce_device *dev, u32 index, u8 gid[16]);
/* soft_kind.find_gid. */
int adapter_find_gid(const u8 gid[16]);
/* soft_kind.carrier: the interface of the first GID that is not the loopback interface's, else of
 * the first one. */
int adapter_carrier(struct soft_device *dev, struct soft_carrier *out);

/* ---- plug.c: devices come and go ---- */
/* ib_driver.settle: waits until the devices that the node shows are those that core lists, five
 * seconds at most. Returns at once on the plug thread. */
void adapter_plug_settle(void);
/* Registers every device that core does not know, in the order of the node's indices. 0 or a
 * negative errno. May block; calls clients. */
int adapter_plug_register(void);
/* The list of devices has changed: starts the plug thread, which registers and unplugs devices.
 * Never blocks. */
void adapter_plug_changed(void);

/* ---- address.c: methods of struct soft_kind and struct seat_ops ---- */
/* -EINVAL: no GRH (RoCE has no LIDs), or no such source GID. */
int adapter_resolve_av(struct soft_device *dev, const struct ib_ah_attr *attr, struct path_av *av);
/* -EINVAL as adapter_resolve_av, and for a multicast address; -ENETUNREACH: the source is a
 * loopback address, and the destination another host's; -EMFILE, -ENFILE: no descriptor for the
 * peer. */
int adapter_connect(struct soft_device *dev, const struct ib_ah_attr *attr, u32 from, u32 to,
		 struct path_av *av, struct path_dest **dest);
/* uverbs.find_neighbour: of another host that UDP leads to. */
int adapter_find_neighbour(struct ib_device *ib, const struct ib_ah_attr *attr);
struct path_dest *adapter_route(void *seat, const struct path_av *av, u32 qpn);
struct path_dest *adapter_route_datagram(void *seat, const struct path_av *av,
					 const struct pkt *p);

bool adapter_config_port_is_up(struct roce_device *dev);
/* The MAD port of the device that has this GID, with a hold; NULL: no device with a port that is up
 * has it. */
struct mad_port *adapter_config_general(const u8 gid[16]);

/* The node's id of the device that has this GID; 0: none. */
u64 adapter_config_id_of(const u8 gid[16]);

/* ---- general.c ---- */
/* Gives a new device its QP1. */
void adapter_general_add(struct roce_device *dev);
/* soft_kind.leave. */
void adapter_general_leave(struct soft_device *dev);
/* seat_ops.general. */
void adapter_general_receive(void *seat, const struct pkt *p, const void *payload);
/* seat_ops.died. */
void adapter_general_died(void *seat, const u64 slots[NODE_SLOTS / 64]);
/* seat_ops.returned: answers a REQ or SIDR_REQ of this process in the name of its receiver, which
 * cannot be reached for want of descriptors or memory. Any thread. */
void adapter_general_returned(void *seat, const struct pkt *p, const void *payload);

/* ---- mcast.c ---- */
int adapter_multicast(void *seat, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max);

#endif
