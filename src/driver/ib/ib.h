/* ib.h: inside the InfiniBand adapters: the CAs of one host of a fabric, and what they add to a
 * software adapter (driver/soft).
 *
 *  device.c    attributes and registration
 *    host.c    the host's devices: entering the fabric, changes of ports, events
 * address.c    how an address vector becomes a route and a destination
 *  charge.c    what data counts at the ports of its route
 *    mads.c    MADs of QP0 and QP1, to and from the fabric
 *   mcast.c    multicast groups
 *    gone.c    the end of the fabric, and so of the devices
 *
 * A process of a host (ANYVERBS_HOST) has these devices and no others. All that they show comes
 * from the fabric's map, which the node keeps up to date: nothing of it is copied here but what
 * events need. Data takes the shared-memory path: hosts of a fabric are views of one node.
 */
#ifndef DRIVER_IB_IB_H
#define DRIVER_IB_IB_H

#include "driver/soft/soft.h"
#include "fabric/fabric.h"
#include "mad/port.h"
#include "node/fabric.h"

enum {
	HCA_DEVICES = 8, /* of a host */
	HCA_PORTS = 4,	 /* of a device */
	HCA_PKEY_DEFAULT = 0xffff,
};

struct hca_device;

struct hca_port {
	struct hca_device *device FIXED;
	u32 index FIXED; /* in the fabric */
	u8 number FIXED; /* of the device, from 1 on */
	/* NULL: none could be made */
	struct mad_port *smi FIXED; /* QP0 */
	struct mad_port *gsi FIXED; /* QP1 */
	struct fabric_port_attr told OWNED_BY(the engine thread); /* what consumers know of it */
};

struct hca_device {
	struct soft_device soft GUARDS_ITSELF; /* first */
	u32 node FIXED; /* in the fabric */
	u32 index FIXED; /* of the host's devices */
	struct hca_port port[HCA_PORTS + 1] GUARDS_ITSELF; /* from 1 on */
};

static inline struct hca_device *hca_of(struct soft_device *dev)
{
	return container_of(dev, struct hca_device, soft);
}

static inline struct hca_device *hca_dev(struct ib_device *ib)
{
	return hca_of(soft_dev(ib));
}

/* ---- device.c ---- */
/* Allocates a device that core does not know yet. NULL: no memory. Freed by ib_dealloc_device. */
struct hca_device *hca_device_new(u32 index, const struct fabric_node_attr *node);

/* ---- host.c ---- */
/* The host that this process is of; NULL: of none. */
const char *hca_host(void);
/* Methods of struct seat_ops, which says when they run. */
int hca_host_begin(struct seat *seat);
void hca_host_taken(struct seat *seat);
void hca_host_changed(struct seat *seat);
/* Registers the devices that core does not know. 0 or a negative errno. May block; calls
 * clients. */
int hca_host_register(void);
/* The device with this index; NULL: none. */
struct hca_device *hca_host_device(u32 index);
/* The device's port that has this index in the fabric; NULL: not of this host. */
struct hca_port *hca_host_port(u32 port);
/* The host's place in the fabric, and the fabric's map. Valid while the seat is attached. */
const struct node_fabric *hca_fabric(void);
static inline const struct fabric_view *hca_view(void)
{
	return &hca_fabric()->view;
}
/* seat_ops.fabric. */
void hca_host_fabric(struct seat *seat, u32 port, u32 what);
/* As fabric_port_read. */
int hca_port_read(struct hca_device *dev, u32 port, struct fabric_port_attr *out);
/* Methods of struct ib_uverbs_ops. */
int hca_get_info(struct ib_device *ib, struct ib_uverbs_info *out);
int hca_open_sm(struct ib_device *ib, u8 port);

/* ---- address.c: methods of struct soft_kind and struct seat_ops ---- */
/* -EINVAL: no such port, or no such source GID. */
int hca_resolve_av(struct soft_device *dev, const struct ib_ah_attr *attr, struct path_av *av);
int hca_connect(struct soft_device *dev, const struct ib_ah_attr *attr, u32 from, u32 to,
		struct path_av *av, struct path_dest **dest);
struct path_dest *hca_route(void *seat, const struct path_av *av, const struct pkt *p);
/* soft_kind.reaches. */
bool hca_reaches(struct soft_device *dev, const struct path_av *av, u32 to);
u8 hca_lid_mask(struct soft_device *dev);
/* What a packet of the vector says that decides on its way. */
struct fabric_flow hca_av_flow(const struct path_av *av);
/* The device and port of an address vector of this process. */
struct hca_device *hca_av_device(const struct path_av *av);
static inline u8 hca_av_port(const struct path_av *av)
{
	return av->port & 15;
}

/* False: the queue pair's latest datagram, which asks for its way again. */
bool hca_ways_is_new(const struct pkt *p);
/* Charges the datagrams that kept routes have carried. Never waits. */
void hca_ways_charge(void);

/* ---- charge.c ---- */
/* soft_kind.charge. */
void hca_charge(struct soft_device *dev, const struct soft_way *way,
		const struct soft_load *load);
/* Bytes of a datagram of the vector, from the LRH to the ICRC. */
u32 hca_charge_datagram(const struct path_av *av, u32 length);
/* Charges the route from a port in the fabric. */
void hca_charge_flow(u32 from, const struct fabric_flow *w, u64 packets, u64 bytes);
/* There is traffic, or may be soon: it is charged at intervals. Not under a lock. */
void hca_charge_begin(void);
void hca_charge_drop_in_child(void);

/* ---- mads.c ---- */
/* Gives a new device's ports their QP0 and QP1. */
void hca_mads_add(struct hca_device *dev);
/* Starts the thread that receives MADs, if this process has none. 0 or a negative errno. */
int hca_mads_start(const struct node_fabric *f);
/* seat_ops.general: data to QP1 does not come by a path. */
void hca_mads_receive(void *seat, const struct pkt *p, const void *payload);
/* seat_ops.bad_key: the port counts it, and tells its subnet manager. */
void hca_bad_key(void *seat, const struct pkt *p, bool is_qkey);

/* ---- gone.c ---- */
/* soft_kind.leave. */
void hca_gone_leave(struct soft_device *soft);
/* The fabric is gone: has the devices unplugged, once. Does not block. */
void hca_gone(void);
void hca_gone_drop_in_child(void);

/* ---- mcast.c ---- */
int hca_multicast(void *seat, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max);
void hca_fill_mcast(struct ib_device *ib);

#endif
