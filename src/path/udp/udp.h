/* udp.h: the path to other hosts: RoCEv2 in UDP datagrams to and from port 4791.
 *
 * The node binds the sockets, one per address of this host and slot of this process, and hands them
 * over; the kernel then gives each datagram to the process that owns the queue pair. Promise: none
 * but the payload's size: packets may be lost, doubled and reordered.
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
	struct capture *capture; /* NULL: nothing is ever captured */
	void (*kick)(void *arg); /* has the engine's thread look at the clock and the sockets */
	void *kick_arg;
	bool loop; /* multicast of this host is received, too: nobody else delivers it */
	u32 lanes; /* source ports beside 4791, per address; at most UDP_LANES */
	/* connected sockets for short messages in turn, which are then received by the shortest
	 * call too; 0: none, and by the long one */
	u32 connected_sockets;
	/* While it is true somebody looks in within a millisecond, whoever sleeps; who makes it
	 * false polls after that, with `must`. Atomic. NULL: it never is. */
	const bool *ticking;
};
enum { UDP_LANES = 8, UDP_CONNECTED_SOCKETS = 32 };

/* NULL and *err: -EMFILE, -ENOMEM. No socket yet: they come with the slots. */
struct udp *udp_create(const struct udp_config *cfg, int *err);
/* Opens what those who send have asked for and may not open themselves. May sleep; one thread. */
void udp_background(struct udp *udp);
/* Nobody is inside it any more, nor holds a destination. */
void udp_destroy(struct udp *udp);
/* In a forked child: closes the descriptors, which are the parent's, and nothing else. */
void udp_drop_in_child(struct udp *udp);
struct path *udp_path(struct udp *udp);
/* `slot` is this process' own: takes its sockets. May block (a question to the node). 0, or why
 * this slot receives nothing from the wire. */
int udp_slot_own(struct udp *udp, u32 slot);
/* The host's addresses have changed: takes the sockets of new ones, closes those of old ones. May
 * block. */
void udp_refresh(struct udp *udp);
/* What comes for the multicast group is for this queue pair too. -ENOMEM: it is not, for want of
 * memory or descriptors; else why an interface cannot join, which udp_refresh tries again. May
 * block. */
int udp_group_join(struct udp *udp, const u8 group[16], u32 qpn);
void udp_group_leave(struct udp *udp, const u8 group[16], u32 qpn);
/* The destination that is all of a group, from the address of `av`, with a reference; packets to it
 * are for queue pair UDP_GROUP_QPN. NULL: no such source address, or one of another family. */
struct path_dest *udp_group_dest(struct udp *udp, const struct path_av *av);
enum { UDP_GROUP_QPN = 0xffffff };

/* Can this process reach anybody from this address? */
bool udp_has_source(struct udp *udp, const u8 sgid[16]);
/* Whether `sgid` is a loopback address and `dgid` another host's: the kernel has no route from the
 * one to the other. Asks the kernel. */
bool udp_is_confined(const u8 sgid[16], const u8 dgid[16]);

/* A descriptor that is readable while a datagram waits; stays the same. For poll and epoll. */
int udp_wait_fd(const struct udp *udp);
/* Whether a datagram waits, at the price of a system call, so that the next polls take it;
 * for threads that do not poll all the time. Polls by themselves look only while datagrams come
 * or a queue pair is connected through this path. Nothing here is a cancellation point. */
bool udp_look(struct udp *udp);

#endif
