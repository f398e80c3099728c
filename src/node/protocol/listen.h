/* listen.h: who receives the REQ and SIDR_REQ of a service ID. Both replies are plain.
 *
 * EV_MAD brings a process a datagram to QP1 that came from another host and names no process by
 * itself: a UDP payload as it came, with the addresses in front.
 */
#ifndef NODE_PROTOCOL_LISTEN_H
#define NODE_PROTOCOL_LISTEN_H

#include "node/protocol/head.h"

enum {
	PROTO_LISTEN = PROTO_TYPE(PROTO_SERVICE_LISTEN, 0),
	PROTO_UNLISTEN = PROTO_TYPE(PROTO_SERVICE_LISTEN, 1),
	PROTO_EV_MAD = PROTO_TYPE(PROTO_SERVICE_LISTEN, PROTO_EVENT_OP + 0),
};

struct proto_listen {
	struct proto_head head;
	u64 service_id; /* host order; bits beyond `mask` are 0 */
	u64 mask;
	u32 slot; /* of the process */
	u32 reserved;
	struct node_match match; /* bits beyond its mask are 0 */
} OWNED_BY(the caller);

struct proto_mad {
	struct proto_head head;
	struct node_mad mad;
} OWNED_BY(the caller);

#endif
