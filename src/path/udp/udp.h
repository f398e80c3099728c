/* udp.h: the path to other hosts: RoCEv2 in UDP datagrams to and from port 4791.
 *
 * The node binds the sockets, one per address of this host and slot of this process, and passes
 * them on; the kernel then delivers each datagram to the process that owns the queue pair.
 * Guarantees: the payload's size only. Packets may be lost, duplicated and reordered.
 */
#ifndef PATH_UDP_UDP_H
#define PATH_UDP_UDP_H

#include "capture/capture.h"
#include "node/node.h"
#include "path/path.h"

struct udp;

struct udp_config {
	struct node *node;
	u64 *counters;           /* PATH_COUNTERS of them */
	/* NODE_DEVICES of them: what crosses the ports of each, but for datagrams of queue pairs,
	 * which tally them. NULL: nobody asks */
	struct path_traffic *traffic;
	struct capture *capture; /* NULL: nothing is ever captured */
	void (*kick)(void *arg); /* has the engine's thread poll timers and sockets */
	void *kick_arg;
	/* what has an own source address is received, too: no other path takes this node's packets
	 * to itself */
	bool loop;
	u32 lanes; /* source ports beside 4791, per address; at most UDP_LANES */
	/* connected sockets for short alternating messages, which are received by the shortest
	 * call, too; 0: no connected sockets, and the long call */
	u32 connected_sockets;
	/* While true, a thread polls within a millisecond, even if others sleep; the thread that
	 * clears it polls after that, with `must`. Atomic. NULL: never true. */
	const bool *ticking;
	/* How many consumers may sleep, which wait for no tick: a thread that raises it while
	 * `ticking` is true polls after that, with `must`. Atomic. NULL only where `ticking` is. */
	const u32 *sleepers;
} OWNED_BY(the caller);
enum { UDP_LANES = 8, UDP_CONNECTED_SOCKETS = 32 };

/* NULL and *err: -EMFILE, -ENOMEM. It has no socket yet: sockets come with the slots. */
struct udp *udp_create(const struct udp_config *cfg, int *err);
/* Opens the sockets that senders have requested and may not open themselves. May sleep; one
 * thread. */
void udp_background(struct udp *udp);
/* No thread is inside the path any more, nor holds a destination. */
void udp_destroy(struct udp *udp);
/* In a forked child: closes the descriptors, which are copies of the parent's, and does nothing
 * else. */
void udp_drop_in_child(struct udp *udp);
struct path *udp_path(struct udp *udp);
/* Takes the sockets of `slot`, which is this process' own. May block (a request to the node). 0, or
 * why the slot receives nothing from the wire. */
int udp_slot_own(struct udp *udp, u32 slot);
/* The host's addresses have changed: takes the sockets of new addresses, closes those of old ones.
 * May block. */
void udp_refresh(struct udp *udp);
/* Returns how many multicast groups this process may join: their sockets, one per interface, have a
 * quarter of its descriptors. */
u32 udp_groups_most(struct udp *udp);
/* Joins a queue pair to a multicast group. -ENOMEM: not joined, for want of memory or descriptors,
 * or there are udp_groups_most already; else why an interface cannot join, which udp_refresh tries
 * again. May block. */
int udp_group_join(struct udp *udp, const u8 group[16], u32 qpn);
void udp_group_leave(struct udp *udp, const u8 group[16], u32 qpn);
/* Returns the destination of a group's remote members, from the address of `av`, with a reference;
 * packets to it are for queue pair UDP_GROUP_QPN. NULL: no such source address, or one of another
 * family. */
struct path_dest *udp_group_dest(struct udp *udp, const struct path_av *av);
enum { UDP_GROUP_QPN = 0xffffff };

/* Judges and unpacks a datagram to QP1 that the node has passed on. True: *p and *payload, which
 * point into *m; else it is counted. Any thread, never blocks. */
bool udp_unpack_mad(struct udp *udp, const struct node_mad *m, struct pkt *p, const u8 **payload);

/* Can this process reach anybody from this address? */
bool udp_has_source(struct udp *udp, const u8 sgid[16]);
/* The same, or it has no socket yet: they come with its first queue pair. */
bool udp_may_have_source(struct udp *udp, const u8 sgid[16]);
/* Tells whether `sgid` is a loopback address and `dgid` another host's, to which the kernel has no
 * route from there. A system call. */
bool udp_is_confined(const u8 sgid[16], const u8 dgid[16]);

/* Returns a descriptor that is readable while a datagram waits, always the same one. For poll and
 * epoll. */
int udp_wait_fd(const struct udp *udp);
/* Tells whether a datagram waits, by a system call, and has the next polls receive it; for threads
 * that do not poll all the time. Polls look at the sockets only while datagrams come or a queue
 * pair is connected through this path. No cancellation point. */
bool udp_look(struct udp *udp);

#endif
