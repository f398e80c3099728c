/* address.h: the node's addresses and their UDP sockets. ADDRESSES is a plain request.
 *
 * SOCKETS_CLAIM, after RESUME and SLOT_CLAIM, and its reply are plain: the fdstore that the process
 * holds goes to the node, and the fdstore that it holds from now on comes back.
 */
#ifndef NODE_PROTOCOL_ADDRESS_H
#define NODE_PROTOCOL_ADDRESS_H

#include "node/protocol/head.h"

enum {
	PROTO_UDP_SOCKETS = PROTO_TYPE(PROTO_SERVICE_ADDRESS, 0),
	PROTO_ADDRESSES = PROTO_TYPE(PROTO_SERVICE_ADDRESS, 1),
	PROTO_SOCKETS_CLAIM = PROTO_TYPE(PROTO_SERVICE_ADDRESS, 2),
};

struct proto_udp_sockets {
	struct proto_head head;
	u32 slot;
	u32 from;   /* the first GID index that is requested */
	u32 device; /* whose GIDs */
	u32 reserved;
} OWNED_BY(the caller);

struct proto_socket {
	u8 gid[16];
	u64 id;
	u32 gid_index;
	u32 ifindex;
} OWNED_BY(the caller);

/* Descriptors: as many as `count`. */
struct proto_udp_sockets_reply {
	struct proto_head head;
	u32 count;
	u32 next; /* ask again from this index; 0: that was all */
	struct proto_socket sockets[PROTO_FDS];
} OWNED_BY(the caller);

enum proto_udp_state {
	PROTO_UDP_NONE,
	PROTO_UDP_OPEN,
	PROTO_UDP_OTHER,  /* another node of this network namespace has the address */
	PROTO_UDP_TAKEN,  /* another program has its port 4791 */
	PROTO_UDP_ABSENT, /* the host does not have it */
	PROTO_UDP_FAILED, /* `err` says why */
};

struct proto_address {
	u8 gid[16];
	u32 ifindex;
	u32 state;   /* enum proto_udp_state */
	s32 err;
	u32 sockets; /* in its group, the node's own included */
	u32 slots;   /* of those, with a slot */
	u32 lost;    /* datagrams that found a full receive buffer */
	u64 dropped; /* datagrams without an owner */
} OWNED_BY(the caller);

struct proto_addresses_reply {
	struct proto_head head;
	u32 count;
	u32 reserved;
	struct proto_address addresses[NODE_GIDS];
} OWNED_BY(the caller);

#endif
