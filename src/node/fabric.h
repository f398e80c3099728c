/* fabric.h: a process on a host of the InfiniBand fabric that its node carries.
 *
 * The process maps the fabric's state read-only and walks its tables itself; its MADs go over a
 * channel to the node, which takes them through the fabric hop by hop.
 */
#ifndef NODE_FABRIC_H
#define NODE_FABRIC_H

#include "fabric/fabric.h"

struct node;

enum {
	NODE_HOST_NAME = TOPO_HOST_BYTES,
	NODE_HOST_CAS = 8,	  /* of one host */
	NODE_FABRIC_BATCH = 32, /* MADs of one call */
};

/* What NODE_EVENT_FABRIC says beyond enum fabric_change. */
enum node_fabric_change {
	/* another node carries the fabric: what was told meanwhile is lost */
	NODE_FABRIC_AGAIN = 1 << 29,
	/* routes may have changed: fabric_generation is another one */
	NODE_FABRIC_ROUTES = 1 << 30,
	NODE_FABRIC_GONE = 1 << 31,	/* the fabric is down: the devices are gone */
};

/* A MAD at a port of the fabric. */
struct node_fabric_mad {
	u32 port;
	struct fabric_mad mad;
} OWNED_BY(the caller);

/* The host that a process has entered, until node_detach. The maps stay, also when the fabric is
 * down or the node has died. */
struct node_fabric {
	struct fabric_view view;
	struct fabric_counters counters;
	u32 ca_count;
	u32 ca[NODE_HOST_CAS]; /* fabric nodes, in the order of the topology */
} FIXED;

/* The id of a CA as a device, for node_agent_add: no adapter of another kind has it. */
static inline u64 node_fabric_device(u32 fabric_node)
{
	return 1ull << 63 | fabric_node;
}

/* Enters a host. *out stays the node's. -ENODEV: the node carries no fabric; -ENOENT: the fabric
 * has no such host; -EALREADY: this process has entered one; else as node_attach. A host is
 * entered for the life of *n: node_recover enters it again. May block. */
int node_fabric_enter(struct node *n, const char *host, const struct node_fabric **out);
/* Is the process that has this slot on the host of a CA's port? True also while the node does not
 * know the process. Any thread; never blocks. */
bool node_fabric_is_at(const struct node_fabric *f, u32 slot, u32 port);
/* Sends a MAD from a port of the host, as fabric_send says. A MAD may be lost, as on a wire, also
 * while a node dies and another one starts. 0; -EAGAIN: the channel has no room;
 * -EINVAL: no port of this host. Any thread; never blocks. */
int node_fabric_send(const struct node_fabric *f, u32 port, const struct fabric_mad *m);
/* Tells the fabric that a port of the host has refused a datagram for its key, as
 * fabric_port_violation says. May be lost. Any thread; never blocks. */
void node_fabric_refuse(const struct node_fabric *f, u32 port, const struct fabric_violation *v);
/* Readable while MADs have arrived; the same for the life of *f. */
int node_fabric_fd(const struct node_fabric *f);
/* Takes MADs that have arrived, at most `max`, without waiting; returns how many. Any thread. */
u32 node_fabric_receive(const struct node_fabric *f, struct node_fabric_mad *out, u32 max);
/* This process is a subnet manager at the port while *fd, which is the caller's, or a copy of it is
 * open. Outlives the node. -ENOENT: no port of this host; -EBUSY: a process is one already;
 * -EMFILE; -ENODEV: the fabric is gone; or else as node_attach. May block. */
int node_fabric_issm(const struct node_fabric *f, u32 port, int *fd);

/* Something that the SA keeps of a port. */
enum { SA_INFORM_RESPONSE = 19 }; /* RespTimeValue of subscriptions: 2 s */
enum node_sa_kind {
	NODE_SA_GROUP,	 /* a membership of a multicast group; id: the MGID */
	NODE_SA_NOTICES, /* a subscription; id: zeroes, and the trap number in network order */
	NODE_SA_KINDS,
};
struct node_sa_name {
	u32 port; /* of the fabric */
	u32 kind; /* enum node_sa_kind */
	u8 id[16];
} OWNED_BY(the caller);

/* Says in which states (bits of JoinState; 1: subscribed) the SA keeps *name for this process; 0:
 * none. Said before the process joins or subscribes. The node ends it at the SA for the last
 * process of the host, also if that dies, and gives each report to all subscribers of the host.
 * `pkey`: the partition in which the SA is asked. Outlives the node. -ENOENT: no port of this host;
 * -EINVAL: no such name; -ENOSPC; -ENOMEM; -ENODEV: the fabric is gone; or else as node_attach. May
 * block. */
int node_fabric_member(const struct node_fabric *f, const struct node_sa_name *name, u16 pkey,
		       u8 states);

#endif
