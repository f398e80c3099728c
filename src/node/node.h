/* node.h: the client side of the node (anyverbsd): what the processes of one user on one host
 * share.
 *
 * node_attach finds the node of (user, network namespace, ANYVERBS_NODE) by its socket, starts it
 * where there is none, and registers this process. Requests are answered on a control socket
 * (serialised by a lock, may block); events arrive on a second one that the engine's thread
 * watches. If the node dies, requests start a new one and register again: the slots that this
 * process holds stay its own.
 *
 *   client.c      attaching, requests, recovery     events.c     unsolicited messages
 *   connection.c  finds the node or starts it       spawn.c      starts the daemon
 *   address.c     the node's name and address       place.c      places of its folder
 *   message.c     packets with descriptors          await.c      the wait for a slow node
 *   directory.c      the directory                  udp_socket.c sockets as RoCEv2 needs them
 *   will.c        what the node says at our death
 *   datagram.c    the RoCE headers of a datagram to QP1
 *   successor.c   replaces a node whose limit of descriptors is too low
 *   agent.c       MAD agents of all processes
 *   flow.c        flow rules of all processes
 *   domain.c      XRC domains of files, which processes share
 *   fabric.c      a host of the InfiniBand fabric that the node carries (fabric.h)
 *   protocol/     the messages, a header per service
 */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include <sys/types.h>

#include "base/lock.h"
#include "wire/ether.h"

enum { NODE_GIDS = 64, NODE_SLOTS = 1024, NODE_SLOT_BITS = 10, NODE_INDEX_BITS = 14 };
/* Memberships of multicast groups on this host, of all its processes */
enum { NODE_MEMBERS = 4096 };
/* Listeners on service IDs, of all processes of a node */
enum { NODE_LISTENERS = 16384 };
/* Agents for unsolicited MADs, of all processes of a node */
enum { NODE_AGENTS = 1024 };
/* Flow rules of raw packet queue pairs, of all processes of a node */
enum { NODE_FLOWS = 4096 };
enum { NODE_UDP_PORT = 4791 };
/* Devices of one node at most. roce0 has index 0, or nobody has */
enum { NODE_DEVICES = 8, NODE_DEVICE_NAME = 32 };

enum node_gid_flag {
	/* datagrams leave from this address and come to it: node_udp_sockets has a socket for it.
	 * Without it the GID serves this host's processes only */
	NODE_GID_WIRE = 1,
	NODE_GID_LINK = 2, /* its interface is up and has a link */
};

struct node_gid {
	u8 gid[16];      /* all zeroes: empty */
	u32 ifindex;     /* 0: no interface */
	char ifname[16];
	u32 mtu;         /* active MTU in bytes that its interface has room for: 256 to 4096 */
	u16 flags;       /* NODE_GID_* */
	u8 mac[6];       /* the interface's; zeroes where it has none */
} OWNED_BY(the caller);

/* Of a device's ports, numbered as libibverbs does. */
enum node_link_layer { NODE_LINK_NONE, NODE_LINK_INFINIBAND, NODE_LINK_ETHERNET };

/* A device of the node and its port, as every process shows them. The device keeps its index while
 * it exists, also through a change of the node. An index may pass to another device, or to a device
 * of the same name and GUID that was removed and added again: the id tells them apart. */
struct node_config {
	u64 id;         /* never reused by a node and its successors; 0: no device */
	/* host byte order; the same for every process and after a restart */
	u64 node_guid;
	u32 link_layer;          /* enum node_link_layer */
	u32 ports;               /* 1: what follows describes port 1 */
	char device[NODE_DEVICE_NAME]; /* "roce0" */
	char dev_path[32];       /* "uverbs0" */
	/* what ibv_get_sysfs_path answers: a tree with class/infiniband/... in it, the same for all
	 * devices */
	char sysfs[256];
	u32 mtu;                 /* active MTU in bytes: the least of the GIDs that have a link */
	u16 port_up;    /* the interfaces have a link, and `anyverbs port` says nothing else */
	u16 port_downs; /* how often it went down: who missed that sees it here. Wraps */
	/* 0: an interface's IPv6 link-local address, or one made from the GUID (never on the wire);
	 * 1: IPv4-mapped; further addresses follow */
	struct node_gid gids[NODE_GIDS];
} OWNED_BY(the caller);

/* A peer process, as handed to both ends of a pair. Descriptors belong to the receiver, -1 if
 * absent. */
struct node_peer {
	u64 process;     /* unique for the life of the node's user: never reused */
	pid_t pid;       /* as this process sees it, 0 if it cannot */
	int ring_fd;     /* the pair's rings (connector's memfd) */
	int board_fd;    /* the peer's published board */
	int bell_fd[2];  /* the peer's doorbells */
	int pid_fd;      /* readable when the peer dies */
} OWNED_BY(the caller);

enum node_event_type {
	NODE_EVENT_NONE,
	NODE_EVENT_PEER_NEW,   /* another process made a pair with this one: `peer` */
	NODE_EVENT_CONFIG,     /* the configuration changed: node_device_get again */
	/* the node is gone; the next request, or node_recover, starts another */
	NODE_EVENT_LOST,
	/* the pair with `peer.process` is over, though its process may live (it detached, called
	 * exec, or could not take the pair): as if it had died. Only `process` is set, and
	 * `error` if it could not. Comes after a death, too. */
	NODE_EVENT_PEER_GONE,
	/* what this process' adapter sends and receives is to be recorded in `capture_fd` (the
	 * receiver's), or, if it is -1, no more */
	NODE_EVENT_CAPTURE,
	/* A device appeared or disappeared after node_attach: `device`. The client finds both by
	 * comparing the node's list with the last one, whenever the node says that it changed and
	 * after node_recover: so none is lost, and a device that was removed and added again
	 * between two looks gives both, REMOVED first. */
	NODE_EVENT_DEVICE_ADDED,
	NODE_EVENT_DEVICE_REMOVED,
	/* A datagram to QP1 from another host, for a service ID on which this process listens or
	 * for an agent of this process: `mad`. One that finds too many unread is lost, as datagrams
	 * are. */
	NODE_EVENT_MAD,
	/* The fabric whose host this process has entered has changed: `fabric` (node/fabric.h). */
	NODE_EVENT_FABRIC,
};

enum { NODE_MAD_BYTES = 280 /* BTH, DETH, MAD and ICRC */ };

/* A datagram to QP1 as it came: nothing of it has been judged. */
struct node_mad {
	u8 sgid[16], dgid[16];
	u16 sport;
	u8 traffic_class, hop_limit;
	u32 reserved;
	u8 payload[NODE_MAD_BYTES]; /* of the UDP datagram */
} OWNED_BY(the caller);

enum { NODE_WILLS = 65536 /* of one process */, NODE_WILL_MAD = 80 };

/* Of an end of a connection, IBA vol 1, 12.9.5; in the order of enum ib_cm_state. */
enum node_connection_state {
	NODE_CONNECTION_IDLE,
	NODE_CONNECTION_LISTEN,
	NODE_CONNECTION_REQ_SENT,
	NODE_CONNECTION_REQ_RCVD,
	NODE_CONNECTION_MRA_REQ_SENT,
	NODE_CONNECTION_MRA_REQ_RCVD,
	NODE_CONNECTION_REP_SENT,
	NODE_CONNECTION_REP_RCVD,
	NODE_CONNECTION_MRA_REP_SENT,
	NODE_CONNECTION_MRA_REP_RCVD,
	NODE_CONNECTION_ESTABLISHED,
	NODE_CONNECTION_DREQ_SENT,
	NODE_CONNECTION_DREQ_RCVD,
	NODE_CONNECTION_TIMEWAIT,
	NODE_CONNECTION_SIDR_REQ_SENT,
	NODE_CONNECTION_SIDR_REQ_RCVD,
};

/* A connection, as tools show it; the node does not judge it. Host byte order; 0: not known yet. */
struct node_connection {
	u64 service_id;		 /* that the REQ asked for */
	u32 local_id, remote_id; /* communication IDs */
	u32 local_qpn, remote_qpn;
	u8 state;   /* enum node_connection_state */
	u8 passive; /* 1: the REQ came from the peer */
	u8 reserved[6];
} OWNED_BY(the caller);

/* A MAD that the node sends to QP1 of dgid if this process dies, from sgid, which is a GID of this
 * node; or, with a port, from that one through the fabric to dlid. A message of the CM that wants
 * no answer, or DREQ; an ID of its sender is this process'. */
struct node_will {
	u8 sgid[16], dgid[16];
	u32 flow_label;
	u16 pkey;
	u8 traffic_class, hop_limit;
	u32 port; /* of the fabric, at a CA of this process' host; 0: the MAD goes by GID */
	u16 slid, dlid;
	u8 sl, has_grh; /* with a port */
	u8 reserved[6];
	u8 mad[NODE_WILL_MAD]; /* the others of its bytes are 0 */
	struct node_connection connection;
} OWNED_BY(the caller);

/* A change of the fabric. */
struct node_fabric_event {
	u32 port; /* of a CA of this host; FABRIC_NONE: of no port in particular */
	u32 what; /* bits of enum fabric_change or enum node_fabric_change */
	u64 generation; /* of the routes, when the event was sent */
} OWNED_BY(the caller);

/* Which device an event is about. */
struct node_device_key {
	u32 index; /* below NODE_DEVICES */
	u64 id;    /* node_config.id */
} OWNED_BY(the caller);

struct node_event {
	enum node_event_type type;
	struct node_peer peer;
	int error; /* NODE_EVENT_PEER_GONE: a negative errno: the peer has never read the rings */
	int capture_fd; /* NODE_EVENT_CAPTURE */
	struct node_device_key device; /* NODE_EVENT_DEVICE_* */
	struct node_mad mad;	       /* NODE_EVENT_MAD */
	struct node_fabric_event fabric; /* NODE_EVENT_FABRIC */
} OWNED_BY(the caller);

/* A UDP socket of this process: unconnected (and must stay so), non-blocking, close-on-exec,
 * bound to (GID's address, NODE_UDP_PORT). Options that it has: IP_MTU_DISCOVER is
 * IP_PMTUDISC_PROBE, so that IPv4's identification is 0 and DF is set; UDP_GRO; IP_PKTINFO,
 * IP_RECVTOS, IP_RECVTTL, or their IPv6 counterparts and UDP_NO_CHECK6_RX. Sharing it with a
 * child (fork) keeps the address from other nodes. */
struct node_socket {
	int fd;          /* the caller's */
	u32 gid_index;   /* in node_config.gids of the device */
	u8 gid[16];
	u32 ifindex;
	u32 reserved;
	u64 id;          /* the kernel's number of the socket: the same socket, the same id */
} OWNED_BY(the caller);

/* A member of a multicast group on this host. */
struct node_member {
	u64 process;
	u32 qpn;
	u32 at; /* its place: below NODE_MEMBERS, and the same as long as it is one */
} OWNED_BY(the caller);

struct node;

/* The host of a fabric that this process is of (ANYVERBS_HOST); NULL: of none. */
const char *node_fabric_host(void);

/* What this process shows of itself; the descriptors stay the caller's and stay open until
 * node_detach. */
struct node_self {
	int board_fd;
	int bell_fd[2];
	bool wire_only; /* it takes no packets through shared memory */
} OWNED_BY(the caller);

/* 0, or -ECONNREFUSED (no node and none could be started: why is logged), -EACCES (another user's
 * process sits at the address), -EINVAL (ANYVERBS_NODE), -EPROTO (the node is of another version),
 * -ENFILE, -EMFILE, -ENOMEM; then *out is NULL. Stored before it has attached, so that a child of a
 * fork meanwhile can drop it. May block up to 10 s. */
int node_attach(const struct node_self *self, struct node **out);
void node_detach(struct node *n);
/* In a forked child: closes the descriptors, forgets everything, says nothing to the node. */
void node_drop_in_child(struct node *n);
u64 node_process(const struct node *n); /* this process' unique number */
/* The device with this index as the node shows it now: 0, or -ENODEV: no device has the index (then
 * *out is untouched). A process that has just attached finds its devices by asking for all indices
 * below NODE_DEVICES; NODE_EVENT_DEVICE_* tell of later ones. Answered from memory that the node
 * shares with all processes: any thread, never blocks. */
int node_device_get(struct node *n, u32 index, struct node_config *out);
/* A slot of the QPN space: 0..1023; -ENOSPC. */
int node_slot_take(struct node *n, u32 *slot);
/* Tells whether the slot's process is reached over the wire only, as one of another host is
 * (node_self.wire_only). Of slot 0, which is the node's own: whether any slot's is. The next node
 * knows it from its beginning, if the node's folder is there. Answered from memory that the node
 * shares with all processes: any thread, never blocks. */
bool node_slot_is_wire_only(struct node *n, u32 slot);
/* The sockets to which the kernel delivers what comes for queue pairs of `slot`, one per GID of the
 * device with NODE_GID_WIRE, in the table's order: returns how many, at most max. -ENODEV: no
 * device has the index. The slot must be this
 * process' (else -ENOENT). What comes for unknown slots, for QP0, QP1 and in bad form goes to
 * the node itself. While the slot is its owner's and the address is there, the socket is the
 * same: who asks again after NODE_EVENT_CONFIG recognises it by its id, and closes what is no
 * longer named. A datagram for another slot may come too: one that the kernel had joined to one
 * for this slot (UDP_GRO). -EMFILE and as node_attach: then nothing was taken. May block. */
int node_udp_sockets(struct node *n, u32 device, u32 slot, struct node_socket *out, int max);
/* Makes a pair with the owner of `slot`. ring_fd is offered for the pair's rings. 0: *out filled,
 * ring_fd in it is the offered one (duplicated). -ENOENT: nobody owns it. -EAGAIN: its owner lives,
 * and has not come back to this node for a second. -EALREADY: the pair exists or the peer was
 * faster (a NODE_EVENT_PEER_NEW is on its way): only out->process is filled. */
int node_connect(struct node *n, u32 slot, int ring_fd, struct node_peer *out);
/* This process cannot take part in the pair that node_connect or NODE_EVENT_PEER_NEW gave it, and
 * has read nothing of its rings: the other end hears NODE_EVENT_PEER_GONE with `err`, a negative
 * errno. May block. */
void node_pair_refuse(struct node *n, u64 process, int err);
/* Says on standard error, unasked once, that this process can have no pair for want of what the
 * errno says. node_event_next and node_event_take say it where they refuse a pair. */
void node_say_no_pair(int err);
/* Memberships that the processes of this node see of each other. What comes from other hosts comes
 * on a socket of the process' own: node_mcast_socket. A group is ff..., or ::ffff:a.b.c.d with an
 * IPv4 group (else -EINVAL). -ENOSPC: there are NODE_MEMBERS already. */
int node_mcast_join(struct node *n, const u8 gid[16], u32 qpn);
int node_mcast_leave(struct node *n, const u8 gid[16], u32 qpn);
/* Members of a group on this host whose place is `from` or behind it, in the order of their places,
 * at most max; returns the count. Answered from memory that the node shares with all
 * processes: always up to date, never blocks. */
int node_mcast_members(struct node *n, const u8 gid[16], u32 from, struct node_member *out,
		       int max);
/* The IPv4 group that an MGID stands for, in network byte order: that of ::ffff:a.b.c.d, which is
 * RoCEv2's, and of ff0e::ffff:a.b.c.d, as librdmacm made it for RoCEv1. 0: it is an IPv6 group. */
u32 node_mcast_v4(const u8 group[16]);
/* Is it a group at all? */
static inline bool node_is_mcast(const u8 gid[16])
{
	return gid[0] == 0xff || node_mcast_v4(gid) != 0;
}
/* A new socket of this process on which what is sent to (group, NODE_UDP_PORT) and reaches the
 * interface of `port` arrives: joined there, with the options of struct node_socket (receive only).
 * Every socket that is open gets each datagram, so a process wants one per (group, interface); the
 * membership ends with its last descriptor. Datagrams of this host come back to it: who also
 * delivers to members on this node by other means passes by those whose source is a GID of this
 * node. The descriptor, the caller's; -EINVAL: no group, or `port` has no interface; -EADDRINUSE:
 * somebody has the port for all addresses; -ENODEV, -EMFILE, -ENOBUFS. Does not ask the node. */
int node_mcast_socket(const u8 group[16], const struct node_gid *port);
/* A flow rule of a raw packet queue pair. */
struct node_flow {
	struct ether_rule rule;
	u64 device; /* node_config.id */
	u32 qpn;
	u32 reserved;
	/* Numbers rules in the order in which they were made, all processes' in one row; a process
	 * that comes to another node keeps the numbers of its own. */
	u64 serial;
} OWNED_BY(the caller);

/* Shows all processes of the node a rule of this one, from the return of this call on: flow->serial
 * is set. Outlives the node, as memberships do. -ENOSPC: there are NODE_FLOWS already; -ENODEV: no
 * such device; -EINVAL; else as node_mcast_join. May block. */
int node_flow_add(struct node *n, struct node_flow *flow);
/* -ENOENT: this process has no such rule. May block. */
int node_flow_remove(struct node *n, u64 serial);
/* Changes whenever a rule comes or goes. From memory; any thread, never blocks. */
u64 node_flow_generation(struct node *n);
/* Lists the rules of the device that other processes have, at most `max`. Returns how many;
 * -EAGAIN: this process has come to another node a moment ago, and others may still be on their way
 * there. As node_flow_generation. */
int node_flow_list(struct node *n, u64 device, struct node_flow *out, int max);

/* Which requests a listener takes, by the bytes with which their private data begins: those for
 * which (bytes & mask) == data. The RDMA CM's header lies there, and in it the address that was
 * asked for. All zeroes: any request. */
enum { NODE_MATCH = 40 };
struct node_match {
	u8 data[NODE_MATCH], mask[NODE_MATCH];
} OWNED_BY(the caller);
/* REQ and SIDR_REQ for a service ID that equals `service_id` in the bits of `mask` (host order) are
 * for this process from now on: what comes from other hosts arrives as NODE_EVENT_MAD, and local
 * senders find `slot` by node_listener_find. `slot` is this process' own. Of several listeners
 * that match a request the first has it. `match` may be NULL: any. Listening twice takes two
 * node_unlisten. Outlives the node, as memberships do.
 * -ENOSPC: there are NODE_LISTENERS already; -ENOENT: not this process' slot; else as
 * node_mcast_join. May block. */
int node_listen(struct node *n, u64 service_id, u64 mask, const struct node_match *match, u32 slot);
/* -ENOENT: it does not listen. May block. */
int node_unlisten(struct node *n, u64 service_id, u64 mask, const struct node_match *match);
/* The slot of the process that listens on the service ID, for a request of slot `from` with these
 * NODE_MATCH bytes of private data; -ENOENT: nobody does; -EAGAIN: nobody does, but the node is
 * new, or has ended, and the process may be on its way to it. The sender itself comes last, behind
 * others that listen alike: two that ask each other peer to peer both listen. Answered from memory
 * that the node shares with all processes: any thread, never blocks. */
int node_listener_find(struct node *n, u64 service_id, const u8 *private_data, u32 from, u32 *slot);
/* The slots by which processes listen, on anything, a bit each. As node_listener_find. */
void node_listening_slots(struct node *n, u64 slots[NODE_SLOTS / 64]);
/* Unsolicited MADs of a class other than the CM's, whose messages name their process themselves. */
struct node_agent {
	u64 device; /* node_config.id */
	u64 methods[2]; /* bit m % 64 of methods[m / 64]: method m, below 128 */
	u8 port, qpn; /* 0 or 1 */
	u8 mgmt_class, version;
	u8 oui[3]; /* of vendor classes from 0x30 to 0x4f; else 0 */
	u8 reserved; /* 0 */
} OWNED_BY(the caller);
/* Unsolicited MADs that `agent` describes are for this process from now on, whichever process of
 * the node or host sends them: from other hosts they come as NODE_EVENT_MAD. `slot` is this
 * process' own. Outlives the node, as memberships do, but not the device.
 * -EINVAL: an agent of any process of this node takes some of these MADs already, or nobody could
 * send such; -EAGAIN: a new node has not heard of all processes for three seconds; -ENOSPC: there
 * are NODE_AGENTS already; -ENODEV: no such device; -ENOENT: not this process' slot; else as
 * node_mcast_join. May block. */
int node_agent_add(struct node *n, const struct node_agent *agent, u32 slot);
/* -ENOENT: there is no such agent of this process. May block. */
int node_agent_remove(struct node *n, const struct node_agent *agent);
/* The slot of the process whose agent takes the unsolicited MAD (256 bytes of any content) to QP
 * `qpn` of a port. Else as node_listener_find. */
int node_agent_find(struct node *n, u64 device, u8 port, u8 qpn, const u8 *mad, u32 *slot);
/* Leaves a will under a number that the caller chooses, in place of an earlier one; NULL: takes
 * that back. The node sends it when this process has died, called exec, or exited. 0; 1:
 * node_will_offer must be called, once, for the will to count; -ENOSPC: no such number, or
 * another errno. Any thread; never blocks, and asks nobody. */
int node_will_set(struct node *n, u32 index, const struct node_will *will);
/* Copies the will of this process at *index, or the first one behind it, and sets *index behind
 * that. False: there are no more. Any thread; never blocks. */
bool node_will_next(struct node *n, u32 *index, struct node_will *out);
/* The will that the peer of a connection has left, as far as this process' own one tells: the MAD
 * that it would get when the peer dies. False: it would get none. `connection` is still this
 * process'. */
bool node_will_of_peer(const struct node_will *own, struct node_will *out);
/* Shows the node where the wills are. The next node is shown them without a call. 0 or as
 * node_attach. May block. */
int node_will_offer(struct node *n);
/* After NODE_EVENT_LOST: attaches to the next node, starting it if need be, with the same process
 * number, slots, pairs and multicast memberships. 0, also if the node lives; else as node_attach:
 * then NODE_EVENT_LOST comes again. May block up to 10 s. */
int node_recover(struct node *n);
/* Stays the same for the life of *n. */
int node_event_fd(struct node *n);
/* Next event without waiting; false if there is none. Only one thread at a time. */
bool node_event_next(struct node *n, struct node_event *ev);
/* The next event of this type without waiting, out of turn: for a thread that waits for a peer,
 * say. The others stay for node_event_next. Any thread, any number of them. */
bool node_event_take(struct node *n, enum node_event_type type, struct node_event *ev);

#endif
