/* fabric.h: an InfiniBand fabric in memory: switches, host ports and links, what manages them,
 * and the routes that data takes through them.
 *
 * The fabric is a machine without threads, sockets or clock. Its owner (the node's daemon, a
 * simulator) gives it MADs and commands, and gets MADs and news by callbacks. Every switch and
 * every channel adapter answers as hardware does: as subnet management agent (SMA) and
 * performance management agent (PMA). MADs take every hop over the real tables, data takes the
 * same tables without the hops.
 *
 * The state lies in two files that processes map:
 * - the map: nodes, ports, PortInfo, tables. Only the owner writes it. A killed owner leaves it,
 * and fabric_open goes on with it.
 * - the counters: what ports have sent and received. Processes write it too, by atomic additions,
 * so nothing but counters depends on it.
 *
 * A *node* is a switch, a channel adapter (CA) or a router, and has an index. A *port* has an
 * index in the whole fabric: its node's first_port + its number. Numbers begin at 0: a switch's
 * port 0 is its management port, a CA's is unused.
 *
 * file         | has
 * -------------|------------------------------------------------------------------------------
 * layout.h     | the two files: sections, records (private)
 * map.c        | lays a map out, judges one that was found, finds what is in it
 * create.c     | from a topology to a map; fabric_open
 * owner.c      | how the owner writes; counters; news
 * reset.c      | power-on: PortInfo and tables as hardware has them first
 * enter.c      | the owner's calls: MADs of software, time
 * smi.c        | directed routes; who gets an SMP
 * sma*.c       | the SMA: attributes, and what follows from setting them
 * portinfo.c   | PortInfo between bytes and records
 * link.c       | links train and go down
 * hop.c, gmp.c | MADs by LID from switch to switch; QP1
 * pma.c        | the PMA
 * trap.c       | traps until they are repressed
 * command.c    | cables, restarts, errors
 * view.c       | what readers ask: hosts, nodes, ports; ip.c: addresses of hosts
 * route.c      | the way of data; mcast.c: the same for multicast
 * counters.c   | charging the ports of the way
 *
 * Results: 0 or a negative errno, outputs untouched on failure. No function blocks. The owner's
 * functions run one at a time; those of a view anywhere, at any time.
 */
#ifndef FABRIC_H
#define FABRIC_H

#include "base/compiler.h"
#include "fabric/topo/topo.h"

enum {
	FABRIC_HOPS = 64,   /* a packet that has taken so many is dropped */
	FABRIC_PKEYS = 128, /* of a port; a multiple of 32 */
	FABRIC_SWITCH_PKEYS = 32, /* of an external port of a switch; likewise */
	FABRIC_GUIDS = 8,   /* of a port; a multiple of 8 */
	FABRIC_MAD = 256,   /* bytes */
	FABRIC_DESC = 64,   /* bytes of a node description, without a zero behind them */
	FABRIC_MLID_FIRST = 0xc000,
	FABRIC_LID_PERMISSIVE = 0xffff,
};
#define FABRIC_NONE UINT32_MAX /* instead of the index of a port or node: there is none */

/* PortState and PortPhysicalState of PortInfo (IBA vol 1, 14.2.5.6). */
enum fabric_port_state { FABRIC_DOWN = 1, FABRIC_INIT, FABRIC_ARMED, FABRIC_ACTIVE };
enum fabric_port_phys {
	FABRIC_PHYS_SLEEP = 1,
	FABRIC_PHYS_POLLING,
	FABRIC_PHYS_DISABLED,
	FABRIC_PHYS_TRAINING,
	FABRIC_PHYS_LINK_UP,
	FABRIC_PHYS_RECOVERY,
};

/* What has changed at a CA's port; bits. */
enum fabric_change {
	FABRIC_CHANGED_STATE = 1,
	FABRIC_CHANGED_LID = 1 << 1, /* LID or LMC */
	FABRIC_CHANGED_SM = 1 << 2,  /* the master SM's LID or SL */
	FABRIC_CHANGED_PKEYS = 1 << 3,
	FABRIC_CHANGED_GIDS = 1 << 4,	    /* the subnet prefix, or the GUID table */
	FABRIC_CHANGED_REREGISTER = 1 << 5, /* the SM asks clients to register again */
};

/* One MAD and its addresses. dst_qp 0: an SMP, 1: a GMP. pkey as in the packet. */
struct fabric_mad {
	u32 src_qp, dst_qp;
	u32 qkey;
	u16 slid, dlid;
	u16 pkey;
	u8 sl;
	bool has_grh;
	u8 grh[40];
	u8 mad[FABRIC_MAD];
} OWNED_BY(the caller);

/* ---- the owner's side ------------------------------------------------------------------------
 */

struct fabric;

/* A callback may call any function of the owner's side. A MAD that it sends is taken up when the
 * function that called it has done what it was about: fabric_send does not nest. */
struct fabric_ops {
	/* A MAD for the software at a CA's port, or for the subnet manager at a switch's port 0;
	 * *m is valid until it returns. */
	void (*deliver)(void *arg, u32 port, const struct fabric_mad *m);
	/* Of a CA's port; the map has the new values. Not from fabric_create and fabric_open: their
	 * caller reads the map. */
	void (*changed)(void *arg, u32 port, u32 what);
	/* A MAD leaves a CA by this link, or comes to one from a switch that has made it: each MAD
	 * once, with the LIDs of its packet there. NULL: nobody looks. *m is valid until it
	 * returns. */
	void (*crossed)(void *arg, u32 out, u32 in, const struct fabric_mad *m);
	u64 (*now_ns)(void *arg);
} FIXED;

/* Lays out a new fabric in two empty files, which stay the caller's and must be open for reading
 * and writing. Every port with a link comes up as after power-on: INIT. The caller owns the
 * result, and gives it back by fabric_close. NULL: *err is -EINVAL (the topology has more than a
 * map can hold, or a port twice), -ENOMEM, or what the kernel says of the files. */
struct fabric *fabric_create(int map_fd, int counters_fd, const struct topo *t,
			     const struct fabric_ops *ops, void *arg, int *err);
/* Goes on with the files of a fabric whose owner has ended, at whichever instant. NULL: *err is
 * -EINVAL (no map of this version, or a damaged one), or as above. */
struct fabric *fabric_open(int map_fd, int counters_fd, const struct fabric_ops *ops, void *arg,
			   int *err);
/* Frees the handle; the files stay. NULL is allowed. */
void fabric_close(struct fabric *f);

/* What readers see, for the owner. Valid until fabric_close. */
struct fabric_view;
const struct fabric_view *fabric_view(const struct fabric *f);

/* A MAD from the software at a CA's port, or at port 0 of a switch that is a subnet manager. An
 * SMP as its consumer posted it: the fabric does all of the SMI, so that one with hop count 0, or
 * for the port's own LID, reaches the port's own SMA. Responses come by `deliver`. The fabric sets
 * slid but its path bits. What cannot be delivered is dropped and counted where hardware counts
 * it. */
void fabric_send(struct fabric *f, u32 port, const struct fabric_mad *m);

/* When fabric_tick must run next (of ops.now_ns; UINT64_MAX: never), and its work: traps are sent
 * again, leases of M_Keys end. */
u64 fabric_due_ns(const struct fabric *f);
void fabric_tick(struct fabric *f);

/* Whether software at a CA's port, or a switch's port 0, is a subnet manager: IsSM of PortInfo.
 * Returns whether that is new. */
bool fabric_set_issm(struct fabric *f, u32 port, bool on);
/* Replaces a node's description; at most FABRIC_DESC bytes of it. -EINVAL: no such node. */
int fabric_set_description(struct fabric *f, u32 node, const char *desc);

/* ---- commands --------------------------------------------------------------------------------
 */

/* Errors that a port can be made to have (IBA vol 1, 16.1.3.5). */
enum fabric_error {
	FABRIC_ERR_SYMBOL,
	FABRIC_ERR_LINK_RECOVERY,
	FABRIC_ERR_LINK_DOWNED,
	FABRIC_ERR_RCV,
	FABRIC_ERR_RCV_PHYSICAL,
	FABRIC_ERR_RCV_SWITCH_RELAY,
	FABRIC_ERR_XMIT_DISCARDS,
	FABRIC_ERR_XMIT_CONSTRAINT,
	FABRIC_ERR_RCV_CONSTRAINT,
	FABRIC_ERR_LOCAL_INTEGRITY,
	FABRIC_ERR_BUFFER_OVERRUN,
	FABRIC_ERR_VL15_DROPPED,
	FABRIC_ERR_XMIT_WAIT,
	FABRIC_ERRORS,
};

/* Pulls the cable of a port, or plugs it in again. -EINVAL: no such port; -ENOTCONN: it has no
 * link. */
int fabric_link_set(struct fabric *f, u32 port, bool up);
/* Restarts a node: its tables and PortInfo are lost, its links come up again. */
int fabric_node_reboot(struct fabric *f, u32 node);
/* Adds n errors to a counter of the port. Link integrity errors, buffer overruns and recoveries
 * raise the traps 129 to 131. -EINVAL: no such port or counter. */
int fabric_port_error(struct fabric *f, u32 port, enum fabric_error which, u32 n);
/* What a port has refused: a packet with a P_Key or Q_Key that is not its own. Counted in
 * PortInfo, and told the SM by trap 257 or 258. sl, QP numbers and LIDs are those of the packet.
 */
struct fabric_violation {
	u32 key;
	u16 slid, dlid;
	u32 src_qp, dst_qp;
	u8 sl;
	bool is_qkey;
} OWNED_BY(the caller);
void fabric_port_violation(struct fabric *f, u32 port, const struct fabric_violation *v);

/* ---- views: for processes on a read-only map, and for the owner -------------------------------
 */

/* Judged when it was opened, and bounded at each use: the map may change under it. */
struct fabric_view {
	const u8 *base;
	u64 bytes;
	u32 nodes, ports;
	const struct fabric_node_rec *node;
	const struct fabric_port_rec *port;
	const u16 *pkeys;
} FIXED;

/* bytes: of the mapping, which stays the caller's and must outlive the view. -EINVAL: no map of
 * this version. */
int fabric_view_open(struct fabric_view *v, const void *map, size_t bytes);

/* Grows with each change that may change a route: links, states, LIDs, tables, P_Keys. */
u64 fabric_generation(const struct fabric_view *v);
/* Drawn when the fabric was created: tells two fabrics apart. */
u64 fabric_identity(const struct fabric_view *v);

struct fabric_node_attr {
	enum fabric_node_type type;
	u32 first_port;
	u16 ports; /* the highest port number */
	u16 device_id;
	u32 vendor_id, revision;
	u64 guid, sys_guid;
	u16 lft_top, lft_cap, mft_cap; /* of a switch */
	char desc[FABRIC_DESC + 1];
} OWNED_BY(the caller);

/* -EINVAL: no such node. */
int fabric_node_read(const struct fabric_view *v, u32 node, struct fabric_node_attr *out);
/* The CAs of a host, in the order of the topology: those whose description begins with its name.
 * Returns how many there are, which may be more than `max`. */
u32 fabric_find_host(const struct fabric_view *v, const char *host, u32 cas[], u32 max);

/* The IP addresses of hosts that have no IP interface, in host byte order: 127.64.0.0/10. */
#define FABRIC_IP_NET 0x7f400000u
#define FABRIC_IP_COUNT (1u << 22)
static inline bool fabric_ip_is_host(u32 ip)
{
	return ip - FABRIC_IP_NET < FABRIC_IP_COUNT;
}
/* The address of a CA's port: the n-th of all, in the order of the topology, has the n-th. 0: it
 * is none, or there are too many. */
u32 fabric_ip_of(const struct fabric_view *v, u32 port);
/* FABRIC_NONE: no port has the address. */
u32 fabric_ip_port(const struct fabric_view *v, u32 ip);

struct fabric_port_attr {
	u32 node, peer; /* the port at the other end of the cable; or FABRIC_NONE */
	u8 number;
	bool cut; /* the cable is pulled (fabric_link_set) */
	u8 state, phys, link_down_default;
	u8 lmc, sm_sl, subnet_timeout, init_type_reply;
	u8 mtu_cap, mtu; /* IB_MTU_*: 1 is 256, 5 is 4096 */
	u8 vl_cap, operational_vls;
	u8 width, width_enabled, width_supported; /* enum topo_width */
	u8 speed; /* as in ib_port_attr.active_speed: 1 SDR, 2 DDR, 4 QDR, 16 FDR, 32 EDR, 64 HDR,
		     128 NDR */
	u16 lid, sm_lid;
	u32 cap_mask;
	u16 mkey_violations, pkey_violations, qkey_violations;
	u64 gid_prefix, guid; /* of index 0 */
	u32 guid_count, pkey_count;
	u64 guids[FABRIC_GUIDS];
	u16 pkeys[FABRIC_PKEYS]; /* 0: not used */
} OWNED_BY(the caller);

/* All of it of one instant. -EINVAL: no such port; -EAGAIN: the owner has died while it wrote,
 * and no new one has come yet. */
int fabric_port_read(const struct fabric_view *v, u32 port, struct fabric_port_attr *out);

/* ---- routes of data --------------------------------------------------------------------------
 */

/* What a packet says that decides on its way. */
struct fabric_flow {
	u16 slid, dlid, pkey;
	u8 sl;
} OWNED_BY(the caller);

struct fabric_hop {
	u32 out, in; /* the ports at both ends of a link */
} OWNED_BY(the caller);

struct fabric_path {
	u32 to;		/* the CA's port that has the LID */
	u8 hops;	/* links */
	u8 mtu;		/* the least NeighborMTU of the way: IB_MTU_* */
	u8 vl;		/* of the first link */
	u32 generation; /* low bits of fabric_generation when it was looked up */
	struct fabric_hop through[FABRIC_HOPS];
} OWNED_BY(the caller);

/* The way from a CA's port to the port with w->dlid (its own too: no hop). -EINVAL: no such port,
 * or dlid is no unicast LID; -ENETUNREACH: a port on the way is not active, a table has no way,
 * or has a circle; -EACCES: a switch on the way enforces partitions, and its port has not
 * w->pkey, or the CA's port has none that matches it; -ENOLINK: w->sl has no VL on the way (VL15):
 * packets are dropped. */
int fabric_route(const struct fabric_view *v, u32 from, const struct fabric_flow *w,
		 struct fabric_path *out);
/* The VL by which packets of the SL leave a CA's port: 15: they are dropped, or there is no such
 * port. */
u8 fabric_port_vl(const struct fabric_view *v, u32 port, u8 sl);
/* The CA ports that a multicast packet reaches, without `from` itself. Returns how many there
 * are, which may be more than `max`, or -EINVAL, -ENETUNREACH (of `from` itself). w->dlid is not
 * used. */
int fabric_mcast_route(const struct fabric_view *v, u32 from, u16 mlid,
		       const struct fabric_flow *w, u32 to[], u32 max);

/* ---- counters --------------------------------------------------------------------------------
 */

struct fabric_counters {
	struct fabric_port_counters *port;
	u32 ports;
} FIXED;

/* map: all of the counters' file, mapped for writing, for as long as *c is used. -EINVAL: it is
 * none, or not of this view's fabric. */
int fabric_counters_open(struct fabric_counters *c, void *map, size_t bytes,
			 const struct fabric_view *v);
/* Counts packets at every port of the way. bytes: of all packets, from the LRH to the ICRC. */
void fabric_charge(const struct fabric_counters *c, const struct fabric_path *p, u64 packets,
		   u64 bytes);

/* As fabric_mcast_route for w->dlid; a packet of so many bytes counts at every port of its tree. */
int fabric_mcast_charge(const struct fabric_view *v, const struct fabric_counters *c, u32 bytes,
			u32 from, const struct fabric_flow *w, u32 to[], u32 max);

/* Messages between two queue pairs, as far as their sum says how they went. */
struct fabric_load {
	u64 messages, bytes; /* payload, of all */
	u32 mtu;	     /* payload bytes of a packet, at most */
	u32 headers;	     /* bytes of the headers of each packet, from the LRH to the ICRC */
} OWNED_BY(the caller);

/* Counts messages at every port of the way, as if all were of one length: packets of messages that
 * differ are counted to within one per message. */
void fabric_charge_load(const struct fabric_counters *c, const struct fabric_path *p,
			const struct fabric_load *l);

/* What a port has counted since the fabric was created. */
struct fabric_counts {
	u64 xmit_bytes, rcv_bytes; /* multiples of 4 */
	u64 xmit_packets, rcv_packets;
	u64 mcast_xmit_packets, mcast_rcv_packets; /* of the packets above */
	u64 errors[FABRIC_ERRORS];
} OWNED_BY(the caller);

/* What the port's PMA answers: since PortCountersExtended was set last, errors since PortCounters
 * was. For the owner. -EINVAL: no such port. */
int fabric_pma_read(const struct fabric *f, u32 port, struct fabric_counts *out);
/* -EINVAL: no such port. */
int fabric_counts_read(const struct fabric_counters *c, u32 port, struct fabric_counts *out);

#endif
