/* mcast.h: memberships of multicast groups. Both replies are plain. */
#ifndef NODE_PROTOCOL_MCAST_H
#define NODE_PROTOCOL_MCAST_H

#include "node/protocol/head.h"

enum {
	PROTO_MCAST_JOIN = PROTO_TYPE(PROTO_SERVICE_MCAST, 0),
	PROTO_MCAST_LEAVE = PROTO_TYPE(PROTO_SERVICE_MCAST, 1),
};

struct proto_mcast {
	struct proto_head head;
	u8 gid[16];
	u32 qpn;
	u32 reserved;
} OWNED_BY(the caller);

#endif
