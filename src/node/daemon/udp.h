/* udp.h: the node's UDP sockets: for each address a SO_REUSEPORT group on port 4791, whose classic
 * BPF program picks the member by the destination queue pair's slot.
 *
 * Member 0 is the node's own: what comes for no known slot, for QP0 and QP1, and in bad form. The
 * others are given to slots when a process asks, and go back into the pool when the slot is free. A
 * member is never closed while its group lives, since the kernel would move the last one into its
 * place.
 */
#ifndef NODE_DAEMON_UDP_H
#define NODE_DAEMON_UDP_H

#include "node/daemon/loop.h"
#include "node/node.h"

enum udp_state {
	UDP_NONE,   /* this place is free */
	UDP_OPEN,
	UDP_TAKEN,  /* port 4791 of this address is somebody else's */
	UDP_FAILED, /* `err` says why */
};

struct udp_member {
	int fd;
	u32 slot; /* 0: nobody's */
	u64 id;
};

struct udp_group {
	u8 gid[16];
	u32 ifindex;
	enum udp_state state;
	int err;
	struct loop_source own; /* member 0 */
	struct udp_member *members;
	u32 count, space;
	u64 dropped; /* datagrams that came for the node itself */
};

struct udp {
	struct loop *loop;
	struct udp_group groups[NODE_GIDS];
};

void udp_init(struct udp *u, struct loop *loop);
void udp_destroy(struct udp *u);
/* Opens the sockets of the table's addresses, as far as they can be, and sets NODE_GID_WIRE where
 * there is one. */
void udp_update(struct udp *u, struct node_config *c);
struct udp_group *udp_find(struct udp *u, const u8 gid[16]);
/* The group's member that belongs to the slot; makes it if need be. NULL and a negative errno. */
const struct udp_member *udp_member_of(struct udp_group *g, u32 slot, int *err);
/* The slot's owner is gone: what comes for it is the node's again. */
void udp_release(struct udp *u, u32 slot);

#endif
