/* neighbour.h: the link layer of this host's interfaces and neighbours, as its kernel says, and
 * what changes there.
 *
 * Addresses are GIDs (IPv4 mapped). Every call may block as long as the kernel looks, but for those
 * of a watch. Results: 0; a negative errno of the kernel's; -EMFILE.
 */
#ifndef NODE_NEIGHBOUR_H
#define NODE_NEIGHBOUR_H

#include "base/compiler.h"

enum { NODE_LINK_ADDRESS = 32, NODE_NO_VLAN = 0xffff };

struct node_link {
	u32 ifindex;
	u16 type;    /* ARPHRD_* */
	u16 vlan_id; /* NODE_NO_VLAN: none */
	bool loopback;
	bool no_arp; /* it has no neighbours to resolve */
	u8 address[NODE_LINK_ADDRESS], broadcast[NODE_LINK_ADDRESS];
} OWNED_BY(the caller);

struct node_neighbour {
	u32 ifindex;
	u8 gid[16];
	bool valid; /* `address` can be sent to */
	u8 address[NODE_LINK_ADDRESS];
} OWNED_BY(the caller);

/* -ENODEV: no such interface. */
int node_link_find(u32 ifindex, struct node_link *out);

/* Which interface has the address. `scope`: of a link-local one, the interface to look at; 0: any.
 * -EADDRNOTAVAIL: none. */
int node_address_find(const u8 gid[16], u32 scope, u32 *ifindex);

/* What the kernel knows of a neighbour. -ENOENT: nothing. -EOPNOTSUPP: this kernel does not say. */
int node_neighbour_find(u32 ifindex, const u8 gid[16], struct node_neighbour *out);

/* Has the kernel look for the neighbour, without waiting: sends it an empty datagram that no router
 * passes on, which needs no privilege. */
int node_neighbour_probe(u32 ifindex, const u8 gid[16]);

/* ---- changes ---- */

enum node_change_kind {
	NODE_CHANGE_NEIGHBOUR, /* `neighbour` is what it is now */
	NODE_CHANGE_ALL	       /* anything may have changed: interfaces, or news were lost */
};

struct node_change {
	enum node_change_kind kind;
	struct node_neighbour neighbour;
} OWNED_BY(the caller);

/* The application may close any descriptor, and get its number for something of its own: the inode
 * tells. */
struct node_watch {
	int fd; /* -1: none */
	u64 inode;
} OWNED_BY(the caller);

/* Begins to watch, by a descriptor that is closed on exec. */
int node_watch_open(struct node_watch *w);
/* Ends it; nothing happens to a descriptor that is not the watch's any more. */
void node_watch_close(struct node_watch *w);
/* Calls `take` for each change that waits. False: the descriptor is not the watch's any more, and
 * w->fd is -1. Never blocks. */
bool node_watch_read(struct node_watch *w, void (*take)(const struct node_change *c, void *context),
		     void *context);

#endif
