/* neighbour.h: the link layer of this host's interfaces and neighbours, as its kernel says, and
 * what changes there.
 *
 * Addresses are GIDs (IPv4 mapped). Every call may block as long as the kernel looks, but for those
 * of a watch. Results: 0; a negative errno of the kernel's; -EMFILE.
 */
#ifndef HOST_NEIGHBOUR_H
#define HOST_NEIGHBOUR_H

#include "base/compiler.h"

enum { HOST_LINK_ADDRESS = 32, HOST_NO_VLAN = 0xffff };

struct host_link {
	u32 ifindex;
	u16 type;    /* ARPHRD_* */
	u16 vlan_id; /* HOST_NO_VLAN: none */
	bool loopback;
	bool no_arp; /* it has no neighbours to resolve */
	u8 address[HOST_LINK_ADDRESS], broadcast[HOST_LINK_ADDRESS];
} OWNED_BY(the caller);

struct host_neighbour {
	u32 ifindex;
	u8 gid[16];
	bool valid; /* `address` can be sent to */
	u8 address[HOST_LINK_ADDRESS];
} OWNED_BY(the caller);

/* -ENODEV: no such interface. */
int host_link_find(u32 ifindex, struct host_link *out);

/* Which interface has the address. `scope`: of a link-local one, the interface to look at; 0: any.
 * -EADDRNOTAVAIL: none. */
int host_address_find(const u8 gid[16], u32 scope, u32 *ifindex);

/* What the kernel knows of a neighbour. -ENOENT: nothing. -EOPNOTSUPP: this kernel does not say. */
int host_neighbour_find(u32 ifindex, const u8 gid[16], struct host_neighbour *out);

/* Has the kernel look for the neighbour, without waiting: sends it an empty datagram that no router
 * passes on, which needs no privilege. */
int host_neighbour_probe(u32 ifindex, const u8 gid[16]);

/* ---- changes ---- */

enum host_change_kind {
	HOST_CHANGE_NEIGHBOUR, /* `neighbour` is what it is now */
	HOST_CHANGE_ALL	       /* anything may have changed: interfaces, or news were lost */
};

struct host_change {
	enum host_change_kind kind;
	struct host_neighbour neighbour;
} OWNED_BY(the caller);

/* The application may close any descriptor, and get its number for something of its own: the inode
 * tells. */
struct host_watch {
	int fd; /* -1: none */
	u64 inode;
} OWNED_BY(the caller);

/* Begins to watch, by a descriptor that is closed on exec. */
int host_watch_open(struct host_watch *w);
/* Ends it; nothing happens to a descriptor that is not the watch's any more. */
void host_watch_close(struct host_watch *w);
/* Calls `take` for each change that waits. False: the descriptor is not the watch's any more, and
 * w->fd is -1. Never blocks. */
bool host_watch_read(struct host_watch *w, void (*take)(const struct host_change *c, void *context),
		     void *context);

#endif
