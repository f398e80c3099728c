/* udp.h: the node's addresses and their UDP sockets: for each a SO_REUSEPORT group on port 4791,
 * whose classic BPF program picks the member by the destination queue pair's slot.
 *
 * A datagram to QP1 goes by the slot in the transaction ID or communication ID of its MAD.
 *
 * Member 0 is the node's own: it gets datagrams for unknown slots, for QP0, malformed ones, and
 * MADs that name no process. A slot gets one of the others when its process asks, and gives it
 * back when it is freed. A
 * member is never closed while its group lives, since the kernel would move the last one into its
 * place. Groups outlive the node (fdstore.h).
 */
#ifndef DAEMON_UDP_H
#define DAEMON_UDP_H

#include "daemon/fdstore.h"
#include "daemon/loop.h"
#include "node/protocol.h"

struct udp_member {
	int fd;
	u64 id;
} OWNED_BY(the daemon);

struct udp_addresses;

/* An address and the SO_REUSEPORT group of its sockets. */
struct reuseport_group {
	struct udp_addresses *all;
	u8 gid[16];
	u32 ifindex;
	enum proto_udp_state state;
	int err;
	bool wanted; /* the host has it, or ANYVERBS_ADDR names it */
	bool seen;   /* seen in the present look */
	/* holds its name among the nodes of this network namespace; -1: another node has it */
	int claim_fd;
	struct loop_source own; /* member 0 */
	struct udp_member *members;
	u16 *slot_of; /* of each member: a row of the fdstore's table */
	u32 count, space;
	u64 dropped; /* datagrams of member 0 */
} OWNED_BY(the daemon);

/* All addresses of the node. */
struct udp_addresses {
	/* A datagram to QP1 that names no process. True: somebody has it. NULL: nobody has any. */
	bool (*to_qp1)(void *arg, const struct node_mad *mad);
	void *to_qp1_arg;
	u8 inbox[65536]; /* a datagram, or joined ones */
	struct loop *loop;
	struct fdstore fdstore;
	bool fdstore_full; /* logged already */
	int first_fd;	  /* holds the name of the namespace's first node; -1: another node does */
	struct reuseport_group groups[NODE_GIDS];
} OWNED_BY(the daemon);

/* 0 or a negative errno. */
int daemon_udp_init(struct udp_addresses *u, struct loop *loop);
void daemon_udp_destroy(struct udp_addresses *u);

/* Tries to become the first node of the network namespace, which shows the host's addresses, for as
 * long as this node or one of its processes lives. Returns whether it is. */
bool daemon_udp_be_first(struct udp_addresses *u);

/* One look at the host's addresses: daemon_udp_look_begin, daemon_udp_want for each,
 * daemon_udp_look_end. */
void daemon_udp_look_begin(struct udp_addresses *u);
/* Tells whether the address is this node's: false if another node of the namespace has it. */
bool daemon_udp_want(struct udp_addresses *u, const u8 gid[16], u32 ifindex);
/* Records an address of the host that is the first node's, for status. */
void daemon_udp_leave(struct udp_addresses *u, const u8 gid[16], u32 ifindex);
/* Opens the sockets of the wanted addresses, as far as possible. Returns whether all are open. */
bool daemon_udp_look_end(struct udp_addresses *u);
/* Sets NODE_GID_WIRE where there is a socket, and clears it elsewhere. */
void daemon_udp_mark(struct udp_addresses *u, struct node_config *c);

/* Returns the open group of an address, or NULL. */
struct reuseport_group *daemon_udp_find(struct udp_addresses *u, const u8 gid[16]);
/* Returns the group's member that belongs to the slot, made if it is missing. NULL and a negative
 * errno. */
const struct udp_member *daemon_udp_member_of(struct udp_addresses *u, struct reuseport_group *g,
					      u32 slot, int *err);
/* The slot's owner has gone: its member goes back to the pool. */
void daemon_udp_release(struct udp_addresses *u, u32 slot);
/* Takes over the groups of the last node, from the end that one of its processes held. in_use tells
 * whether a process has a slot. Returns how many groups. */
u32 daemon_udp_adopt(struct udp_addresses *u, int out, bool (*in_use)(void *arg, u32 slot),
		     void *arg);
/* Sends m->payload from the node's own socket of m->sgid to m->dgid, which hears of the source port
 * NODE_UDP_PORT: m->sport must be that for its ICRC. 0; -ENETUNREACH: no such socket; or the
 * kernel's errno. */
int daemon_udp_send_mad(struct udp_addresses *u, const struct node_mad *m);
/* Fills the report for status: returns the number of addresses. */
u32 daemon_udp_report(const struct udp_addresses *u, struct proto_address out[NODE_GIDS]);

#endif
