/* udp.h: the node's addresses and their UDP sockets: for each a SO_REUSEPORT group on port 4791,
 * whose classic BPF program picks the member by the destination queue pair's slot.
 *
 * Member 0 is the node's own: what comes for no known slot, for QP0 and QP1, and in bad form. The
 * others are given to slots when a process asks, and go back into the pool when the slot is free. A
 * member is never closed while its group lives, since the kernel would move the last one into its
 * place. Groups outlive the node (keeper.h).
 */
#ifndef NODE_DAEMON_UDP_H
#define NODE_DAEMON_UDP_H

#include "node/daemon/keeper.h"
#include "node/daemon/loop.h"
#include "node/protocol.h"

struct udp_member {
	int fd;
	u64 id;
};

/* An address and the SO_REUSEPORT group of its sockets. */
struct reuseport_group {
	u8 gid[16];
	u32 ifindex;
	enum proto_udp_state state;
	int err;
	bool wanted;	/* the host has it, or ANYVERBS_ADDR names it */
	bool seen;	/* in the look that is going on */
	int claim_fd;	/* holds its name among the nodes of this network namespace; -1: not ours */
	struct loop_source own; /* member 0 */
	struct udp_member *members;
	u16 *slot_of;	/* of each member: a row of the keeper's table */
	u32 count, space;
	u64 dropped; /* datagrams that came for the node itself */
};

/* All of the node. */
struct udp_addresses {
	struct loop *loop;
	struct keeper keeper;
	bool keeper_full; /* and said so */
	int first_fd; /* holds the name of the namespace's first node; -1: not ours */
	struct reuseport_group groups[NODE_GIDS];
};

/* 0 or a negative errno. */
int udp_init(struct udp_addresses *u, struct loop *loop);
void udp_destroy(struct udp_addresses *u);

/* Tries to become the first node of the network namespace, whose the host's addresses are, and to
 * stay so for as long as this node or one of its processes lives. Whether it is. */
bool udp_be_first(struct udp_addresses *u);

/* One look at the host's addresses: udp_look_begin, udp_want for each, udp_look_end. */
void udp_look_begin(struct udp_addresses *u);
/* Whether the address is this node's: false if another node of the namespace has it. */
bool udp_want(struct udp_addresses *u, const u8 gid[16], u32 ifindex);
/* An address of the host that is the first node's, for status. */
void udp_leave(struct udp_addresses *u, const u8 gid[16], u32 ifindex);
/* Opens the sockets of the addresses that are wanted, as far as they can be. Whether all could. */
bool udp_look_end(struct udp_addresses *u);
/* Sets NODE_GID_WIRE where there is a socket, and clears it elsewhere. */
void udp_mark(struct udp_addresses *u, struct node_config *c);

/* The open group of an address, or NULL. */
struct reuseport_group *udp_find(struct udp_addresses *u, const u8 gid[16]);
/* The group's member that belongs to the slot; makes it if need be. NULL and a negative errno. */
const struct udp_member *udp_member_of(struct udp_addresses *u, struct reuseport_group *g, u32 slot,
				       int *err);
/* The slot's owner is gone: what comes for it is the node's again. */
void udp_release(struct udp_addresses *u, u32 slot);
/* Takes over the groups of the node before, from what one of its processes held. in_use says
 * whether somebody has a slot. Returns how many. */
u32 udp_adopt(struct udp_addresses *u, int out, bool (*in_use)(void *arg, u32 slot), void *arg);
/* What status shows: returns the number of addresses. */
u32 udp_report(const struct udp_addresses *u, struct proto_address out[NODE_GIDS]);

#endif
