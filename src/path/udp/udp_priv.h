/* udp_priv.h: inside the path: sockets, destinations, batches.
 *
 *   sockets.c  one per address and slot, from the node
 *   group.c    multicast groups and their members
 *   lanes.c    sockets that only send, from other ports
 *   port.c     how packets leave by a socket that many destinations share
 *   connected.c  connected sockets, for short alternating messages
 *   dest.c     destinations, found by address
 *   send.c     packets gather in a batch; a batch leaves in few system calls
 *   receive.c  datagrams become packets, or a counted drop
 *   cut.c      joined packets of unknown length
 *   qp1.c      datagrams to QP1 that the node has received for this process
 *   udp.c      the path's life, and its table of operations
 *
 * Locks: poll_lock (receiving, one thread at a time), then a destination's tx_lock, then lock.
 */
#ifndef PATH_UDP_UDP_PRIV_H
#define PATH_UDP_UDP_PRIV_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "path/udp/udp.h"
#include "wire/source.h"

enum {
	UDP_SLOTS = 8,     /* as many as a process may hold */
	UDP_LANE_SOCKETS = 32, /* of a process */
	UDP_SOCKETS = 64, /* initial capacity */
	UDP_BUCKETS = 1024,
	UDP_DESTS_KEPT = 4096, /* destinations without references that are kept */
	UDP_SOURCES_KEPT = 1024, /* sources that are kept without a connection: 4 KB each */
	UDP_HASH_WORDS = 10,   /* of a key, 32 bits each */
	UDP_BATCH_PACKETS = 64, /* the kernel's limit for one UDP_SEGMENT call */
	UDP_BATCH_BYTES = 65000,
	UDP_CALL_MANY = 16, /* packets in one call, each a datagram of its own */
	UDP_ANY_SLOT = 0xffff,
	UDP_DEFAULT_HOPS = 64,
};

union node_udp_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct udp_port;
struct udp_dest;
struct udp_batch;

/* The calls by which batches use a socket. The caller holds the destination's tx_lock. No call
 * waits. */
struct udp_port_ops {
	/* Returns the IPv4 identification of the next packet, which has this place in its run of
	 * joined packets. Called once for each packet, in the order of sending. */
	u16 (*next_id)(struct udp_port *p, u32 place);
	/* Hands `bytes` over in one call: packets of `segment` bytes each but the last, or one
	 * packet where `segment` is 0. 0, or a negative errno: the kernel has taken none. */
	int (*send)(struct udp_port *p, const struct udp_dest *d, u8 *data, u32 bytes, u16 segment);
	/* Hands over n packets, at most UDP_CALL_MANY, each a datagram of its own. Returns how many
	 * the kernel has taken, or a negative errno. */
	int (*send_many)(struct udp_port *p, const struct udp_dest *d, struct iovec *iov, u32 n);
	/* Recovery. NULL: the port continues after a refused call. Else identifications are unknown
	 * after one: closes the port, and the destination sends by its socket's. Unsent packets
	 * need a new ICRC. */
	void (*retire)(struct udp_dest *d);
	/* Tells whether the port must be retired, since the peer is silent. NULL with retire. */
	bool (*is_stale)(struct udp_port *p, const struct udp_dest *d);
	/* A batch was sent, and no other one is begun. NULL: no action. */
	void (*batch_left)(struct udp_dest *d, const struct udp_batch *b);
} FIXED;

/* A socket that packets leave by. */
struct udp_port {
	const struct udp_port_ops *ops;
	int fd;
	u16 sport; /* source port, which the ICRC covers */
} FIXED;

/* Lives from the node's reply until its address leaves the host. */
struct udp_socket {
	struct udp_port port FIXED;
	bool v4 FIXED;
	u8 traffic_class FIXED, hops FIXED; /* its default header fields */
	u8 lane FIXED;			    /* 0: the socket that receives, too */
	u8 gid[16] FIXED;
	u32 ifindex FIXED;
	u32 slot FIXED;
	u64 id FIXED; /* the kernel's id of the socket */
	struct path_traffic *traffic FIXED; /* of the device whose address it has; never NULL */
	bool gone OWNED_BY(udp.slots_lock); /* its address has left */
	struct udp_socket *next_gone OWNED_BY(udp.slots_lock);
	struct udp_group *group FIXED; /* NULL: unicast */
	struct udp_dest *last_from OWNED_BY(udp.poll_lock); /* sender of the last datagram */
};

/* A multicast group with members in this process. */
struct udp_group {
	struct list_head node WRITTEN_UNDER(udp.slots_lock, udp.poll_lock); /* udp->groups */
	u8 gid[16] FIXED; /* as on the wire: IPv4 groups mapped */
	u32 count OWNED_BY(udp.poll_lock);
	u32 *qpns OWNED_BY(udp.poll_lock);
};

/* Packets to be sent, one behind the other. */
struct udp_batch {
	struct udp_batch *next OWNED_BY(udp.lock); /* in the list of spare ones */
	u32 packets, bytes;
	u32 tallied, tallied_bytes; /* of them, those that a queue pair tallies itself */
	u32 sent; /* packets that the kernel has taken */
	u16 length[UDP_BATCH_PACKETS];
	/* place in its run of equal lengths, which is the identification in its IPv4 header */
	u8 place[UDP_BATCH_PACKETS];
	u8 data[UDP_BATCH_BYTES];
} OWNED_BY(udp_dest.tx_lock);

/* A connected socket, of one destination. */
struct connected_socket {
	struct udp_port port FIXED;
	u16 id; /* predicted IPv4 identification of the first datagram of the last call */
	u16 segment; /* length into which the socket cuts joined packets; 0: calls must state it */
	u16 last;    /* length that the last call stated */
	u8 same;     /* how often in a row */
	u32 calls;   /* calls through it */
	u32 silences;  /* of the peer, in a row */
	u32 silent_at; /* value of `calls` at the last one */
} OWNED_BY(udp_dest.tx_lock);

/* One system call that sends. */
struct udp_call {
	struct msghdr msg;
	struct iovec iov;
	u8 control[3 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct in6_pktinfo))]
		__attribute__((aligned(8)));
} OWNED_BY(the caller);

/* Names a destination: all of it is on the wire, but for the slot (24-bit QPN's top bits), whose
 * packets may share a batch. */
struct udp_key {
	u8 remote[16], local[16];
	u32 flow_label;
	u16 slot; /* UDP_ANY_SLOT: a source, as receive() names it */
	u8 traffic_class, hops;
	u8 lane; /* 0: port 4791; else it shares a window with all lanes of its slot */
} OWNED_BY(the caller);

struct udp_dest {
	struct path_dest dest GUARDS_ITSELF; /* first */
	struct udp *udp FIXED;
	struct udp_key key FIXED;
	socklen_t to_length FIXED;
	u32 multicast_if FIXED; /* 0: unicast */
	bool nowhere FIXED;
	/* a source that has or had an own address, or the stand-in for unknown ones: receive_admit
	 * judges each packet */
	bool is_judged ATOMIC_ONLY;
	/* a source: a connection to it exists. In a sweep */
	bool has_connection OWNED_BY(udp.lock);
	/* the destination whose window counts, with a reference; NULL: this one */
	struct udp_dest *peer FIXED;
	u32 refs OWNED_BY(udp.lock);
	struct udp_dest *next OWNED_BY(udp.lock);  /* in its hash bucket */
	struct list_head stuck OWNED_BY(udp.lock); /* on udp->stuck while the kernel has no room */
	/* on udp->owing while it owes acknowledgements, on udp->heard during a batch */
	struct list_head owing OWNED_BY(udp.poll_lock), heard OWNED_BY(udp.poll_lock);
	/* inferred state of its packets' IP headers; NULL: it is no source */
	struct roce_source *source OWNED_BY(udp.poll_lock);
	struct lock tx_lock;
	union node_udp_address to GUARDED_BY(tx_lock);
	struct udp_socket *socket GUARDED_BY(tx_lock); /* NULL: the address has left */
	struct udp_port *port GUARDED_BY(tx_lock); /* the port it sends by; NULL with `socket` */
	struct udp_batch *batch GUARDED_BY(tx_lock);
	/* for the next batch; only of a port of its own. NULL: none */
	struct udp_batch *spare GUARDED_BY(tx_lock);
	struct roce_prefix prefix GUARDED_BY(tx_lock); /* of its packets */
	struct roce_trial trial GUARDED_BY(tx_lock);   /* of two of them as one */
	bool blocked GUARDED_BY(tx_lock); /* its batch waits for room in the kernel */
	bool unbatched GUARDED_BY(tx_lock);  /* packets are not joined ... */
	u64 unbatched_until_ns GUARDED_BY(tx_lock); /* ... until then */
	struct connected_socket *connected_socket GUARDED_BY(tx_lock); /* NULL: none */
	/* short batches in a row, and the number that opens a connected socket; 0: the least */
	u32 shorts GUARDED_BY(tx_lock), shorts_needed GUARDED_BY(tx_lock);
};

struct udp_inbox; /* receive buffers; receive.c */

struct udp {
	struct path path FIXED;
	struct udp_config cfg FIXED;
	int epoll_fd FIXED; /* over all sockets */

	/* Remaining polls that look at the sockets although nothing came; a hint. */
	u32 credit CACHE_ALIGNED ATOMIC_ONLY;
	u32 polls ATOMIC_ONLY;	/* a hint */
	u32 connections ATOMIC_ONLY; /* references to destinations */
	bool any_stuck ATOMIC_ONLY;	/* hint: stuck is not empty */
	u32 connected_count ATOMIC_ONLY; /* connected sockets */
	bool connect_wanted ATOMIC_ONLY; /* hint: connect_for is not NULL */
	u32 connect_ports ATOMIC_ONLY; /* where the search for the next port begins */
	u32 sockets_shown ATOMIC_ONLY; /* how often a socket was added to epoll_fd */
	bool empty_wanted ATOMIC_ONLY; /* proof that no packet is left is requested: path.emptied */
	bool any_rest ATOMIC_ONLY; /* hint: a received packet waits in the inbox */

	struct lock poll_lock CACHE_ALIGNED;
	struct udp_inbox *inbox GUARDED_BY(poll_lock);
	u64 now_ms GUARDED_BY(poll_lock); /* clock: when the current datagrams were read */
	/* packets received that are not yet in cfg.traffic, and their bytes */
	u32 fresh GUARDED_BY(poll_lock), fresh_bytes GUARDED_BY(poll_lock);
	struct udp_socket *hot GUARDED_BY(poll_lock); /* socket of the last datagram */
	struct list_head owing GUARDED_BY(poll_lock);
	struct list_head heard GUARDED_BY(poll_lock);
	struct list_head groups GUARDED_BY(poll_lock);

	/* one conversation with the node about sockets at a time */
	struct lock slots_lock ACQUIRED_BEFORE(poll_lock);
	u32 slots[UDP_SLOTS] WRITTEN_UNDER(slots_lock, poll_lock);
	u32 slot_count WRITTEN_UNDER(slots_lock, poll_lock);

	struct lock lock CACHE_ALIGNED ACQUIRED_AFTER(poll_lock) ACQUIRED_AFTER(slots_lock);
	struct udp_socket **sockets GUARDED_BY(lock);
	u32 socket_count GUARDED_BY(lock), socket_space GUARDED_BY(lock);
	struct udp_dest *buckets[UDP_BUCKETS] GUARDED_BY(lock);
	u32 dest_count GUARDED_BY(lock);
	struct list_head stuck GUARDED_BY(lock);
	struct udp_batch *spare GUARDED_BY(lock);
	u32 spare_count GUARDED_BY(lock);
	/* the destination that requests a connected socket, with a reference; NULL: none */
	struct udp_dest *connect_for GUARDED_BY(lock);
	struct udp_dest *nowhere FIXED;
	/* Stands for a sender that is not known yet: in no table, and without state from one
	 * datagram to the next */
	struct udp_dest *unknown OWNED_BY(udp.poll_lock);
	u32 sources OWNED_BY(udp.poll_lock), sources_most OWNED_BY(udp.poll_lock);
	u64 hash_key[UDP_HASH_WORDS + 1] FIXED; /* random, so that no sender can choose buckets */
	u32 warned ATOMIC_ONLY; /* bits of UDP_WARNED_*: logged already */
	struct path_traffic unread GUARDS_ITSELF; /* where it is counted that nobody asks for */
};

enum { UDP_WARNED_SIZE = 1, UDP_WARNED_SEND = 2, UDP_WARNED_SEGMENT = 4 };

static inline struct udp *udp_of(struct path *p)
{
	return container_of(p, struct udp, path);
}

static inline struct udp_dest *udp_dest_of(struct path_dest *d)
{
	return container_of(d, struct udp_dest, dest);
}

static inline void udp_count(const struct udp *udp, enum path_counter c)
{
	path_count(&udp->path, c);
}

/* Counts what crosses a port. */
static inline void udp_cross(struct path_traffic *port, enum path_traffic_count c, u64 n)
{
	__atomic_fetch_add(&port->count[c], n, __ATOMIC_RELAXED);
}

/* Where to count for a device, by its index. */
static inline struct path_traffic *udp_port_of(struct udp *udp, u32 device)
{
	return udp->cfg.traffic != NULL ? &udp->cfg.traffic[device] : &udp->unread;
}

/* Tells whether the end `qpn` of the packet is a queue pair of datagrams here: it tallies what it
 * sends and receives, by whichever path. */
static inline bool udp_is_tallied(const struct pkt *p, u32 qpn)
{
	return p->qp_type == IBV_QPT_UD && qpn > 1;
}

static inline bool udp_is_captured(const struct udp *udp)
{
	return udp->cfg.capture != NULL && capture_is_on(udp->cfg.capture);
}

/* ---- udp.c ---- */
struct epoll_event;
/* Lists sockets that are readable or writable, at most max; returns the count. Never sleeps. */
int udp_ready(const struct udp *udp, struct epoll_event *ev, int max);

/* ---- sockets.c ---- */
/* Returns the socket with this address, of any slot, or NULL. */
struct udp_socket *sockets_find(struct udp *udp, const u8 gid[16]) REQUIRES(udp->lock);
void sockets_set_class(struct udp_socket *s);
/* Sets the hop limit that most of its packets have: those need not state it. */
void sockets_set_hops(struct udp_socket *s, u8 hops);
/* Adds it to the table and the epoll set. False: no room. */
bool sockets_insert(struct udp *udp, struct udp_socket *s) REQUIRES(udp->lock);
/* Adds or removes the socket's wait for room in the epoll set. */
void sockets_want_room(struct udp *udp, struct udp_socket *s, bool want);
/* Is it an address of this node, whose processes reach each other by another path? A datagram from
 * there is a stranger's then: of any user of this host, or of another host with the address; unless
 * it is of a process that has no other path (udp_slot_is_wire_only). */
bool udp_is_own(struct udp *udp, const u8 sgid[16]);
/* As udp_is_own. */
bool sockets_is_own(struct udp *udp, const u8 gid[16]) REQUIRES(udp->lock);
/* As node_slot_is_wire_only; false without a node. */
bool udp_slot_is_wire_only(const struct udp *udp, u32 slot);
void sockets_close_all(struct udp *udp);
/* Takes a socket of a slot or of a group, with an address of that device. False: it is known
 * already, or cannot be used. */
bool sockets_add(struct udp *udp, u32 slot, u32 device, const struct node_socket *from,
		 struct udp_group *group) REQUIRES(udp->slots_lock);
/* Tells whether the group has a socket on this interface, which then stays. */
bool sockets_keep(struct udp *udp, const struct udp_group *g, u32 ifindex)
	REQUIRES(udp->slots_lock);
/* Counts the sockets of all groups. */
u32 sockets_of_groups(struct udp *udp) REQUIRES(udp->slots_lock);
/* Closes the sockets of a group. */
void sockets_drop_group(struct udp *udp, const struct udp_group *g) REQUIRES(udp->slots_lock);

/* ---- lanes.c ---- */
/* Returns the lane of a flow with this port. */
u8 lanes_of(const struct udp *udp, u16 sport);
/* Opens the key's lane, if it is not open. It may stay closed. */
void lanes_open(struct udp *udp, const struct udp_key *key, u16 sport) EXCLUDES(udp->lock);
/* Returns the socket to send from: the lane's, else that of port 4791; NULL: no such address. */
struct udp_socket *lanes_choose(struct udp *udp, const struct udp_key *key) REQUIRES(udp->lock);

/* Binds a socket that only sends to the address and port; `shared`: other sockets may have them,
 * too. 0 or a negative errno. */
int lanes_bind(int fd, const u8 gid[16], u32 ifindex, u16 sport, bool shared);

/* ---- port.c ---- */
/* The table of ports that many destinations share. */
extern const struct udp_port_ops udp_port_ops_shared;
/* Begins a call that sends `data`, without control messages. */
void udp_call_begin(struct udp_call *c, u8 *data, u32 bytes);
/* Adds a control message. The caller knows that there is room. */
void udp_call_add(struct udp_call *c, int level, int type, const void *value, size_t size);
/* Sends n packets, UDP_CALL_MANY at most, each a datagram of its own, with the address and the
 * control messages of `like`. Returns how many the kernel has taken, or a negative errno. Does not
 * wait. */
int udp_call_many(int fd, const struct msghdr *like, struct iovec *iov, u32 n);

/* ---- connected.c ---- */
/* A batch has left by a shared port, and no other one is begun: after enough short ones in a row
 * asks the engine's thread for a connected socket. Takes `lock`. */
void connected_batch_left(struct udp_dest *d, const struct udp_batch *b) REQUIRES(d->tx_lock);
/* Closes the destination's connected socket: it sends by its socket's port. Packets in its batch
 * have the ICRC of the connected socket's identifications. */
void connected_close(struct udp_dest *d) REQUIRES(d->tx_lock);

/* ---- group.c ---- */
/* Writes a group's address as it is on the wire. */
void group_gid(const u8 group[16], u8 gid[16]);
/* Joins every group on every interface. */
void group_open_all(struct udp *udp) REQUIRES(udp->slots_lock);
void group_free_all(struct udp *udp) REQUIRES(udp->poll_lock);

/* ---- dest.c ---- */
/* Returns the destination or source with this key, made if it is missing; NULL: no memory. Takes no
 * reference. */
struct udp_dest *dest_find(struct udp *udp, const struct udp_key *key) REQUIRES(udp->lock);
/* The same without making one. */
struct udp_dest *dest_look(struct udp *udp, const struct udp_key *key) REQUIRES(udp->lock);
/* Makes one that is in no table. */
struct udp_dest *dest_create(struct udp *udp, const struct udp_key *key, struct udp_socket *s);
/* Takes a reference to each destination of one bucket, at most max; returns the count. */
u32 dest_take_bucket(struct udp *udp, u32 bucket, struct udp_dest **out, u32 max);
/* Frees destinations without references once there are many. */
void dest_reap(struct udp *udp) REQUIRES(udp->poll_lock);
/* Returns the source with this key, or NULL. */
struct udp_dest *dest_source_look(struct udp *udp, const struct udp_key *key)
	REQUIRES(udp->poll_lock);
/* Adds a source that has proven itself, with the state of `source`. Sources without a connection
 * are freed once there are many. NULL: no memory. */
struct udp_dest *dest_source_add(struct udp *udp, const struct udp_key *key,
				 const struct roce_source *source) REQUIRES(udp->poll_lock);
/* The address is the host's own from now on: has its sources judged. */
void dest_judge(struct udp *udp, const u8 gid[16]) REQUIRES(udp->lock);
/* Opens the tables: random numbers, the stand-in for unknown senders. 0 or -ENOMEM. */
int dest_open(struct udp *udp);
void dest_free_all(struct udp *udp);

/* ---- send.c ---- */
int send_packet(struct path_dest *dest, const struct pkt *p, const struct iovec *iov, int n);
void send_flush(struct path_dest *dest);
/* Batches are lost while single packets arrive. */
void send_batches_lost(struct path_dest *dest);
/* The peer is silent. */
void send_peer_silent(struct path_dest *dest);
/* Sends the batch, if it may be sent. */
void send_waiting(struct udp_dest *d) REQUIRES(d->tx_lock);
/* Has the destination send from this socket; NULL: from none. */
void send_from(struct udp_dest *d, struct udp_socket *s) REQUIRES(d->tx_lock);
/* Sends again what a full socket refused, and calls writable() for waiting queue pairs. */
void send_retry(struct udp *udp) REQUIRES(udp->poll_lock);
void send_free_spare(struct udp *udp);

/* ---- cut.c ---- */
struct udp_cut {
	u32 segment; /* bytes of each packet but the last; 0: a single packet */
	bool judged; /* all packets have a right ICRC, and the source has recorded them */
} OWNED_BY(the caller);
/* Says how a datagram is cut. False: more than one answer is possible, by chance or because the
 * sender's consumer has contrived it by the content of its messages. */
bool cut_find(struct roce_source *s, const struct roce_flow *f, const u8 *data, u32 bytes,
	      u64 now_ms, struct udp_cut *cut);

/* ---- receive.c ---- */
struct udp_inbox *inbox_create(void);
void inbox_destroy(struct udp_inbox *in);
/* Drops the waiting packet, as if it were lost on the wire. */
void receive_forget_rest(struct udp *udp) REQUIRES(udp->poll_lock);
/* Receives about `budget` packets at most; returns how many datagrams' packets came. */
int receive_some(struct udp *udp, int budget) REQUIRES(udp->poll_lock);
/* The same from all sockets; no packet stays in the inbox. */
int receive_everywhere(struct udp *udp, int budget) REQUIRES(udp->poll_lock);

#endif
