/* head.h: what all messages between a process and the node have in common: the head, the numbers of
 * the services, and the limits.
 *
 * The rendezvous is an abstract SOCK_SEQPACKET socket, or, where another user has taken its name,
 * one in the node's private folder; both ends check the other's user. Messages are structs of a
 * fixed size, one per packet; descriptors follow the order that each struct names. A connection's
 * first message is of the session service (session.h). Each request has one reply with its type
 * and its serial number. Events come on a socket of their own, handed over in the reply to HELLO.
 * Both sides check every size, count and descriptor.
 *
 * A type is the number of its service and its number there: a new service takes the next number of
 * enum proto_service and touches no other one.
 */
#ifndef NODE_PROTOCOL_HEAD_H
#define NODE_PROTOCOL_HEAD_H

#include "node/node.h"

enum {
	PROTO_MAGIC = 0x61764e44,
	PROTO_VERSION = 21,
	PROTO_FDS = 6,      /* the most that one message carries */
	PROTO_OPS = 16,     /* types of one service */
	PROTO_EVENT_OP = 8, /* from here on a service's types are events, below requests */
	PROTO_COMMAND = 64,
};

enum proto_service {
	PROTO_SERVICE_SESSION = 1, /* who is connected */
	PROTO_SERVICE_SLOT,        /* queue pair numbers */
	PROTO_SERVICE_ADDRESS,     /* addresses and their UDP sockets */
	PROTO_SERVICE_PAIR,        /* pairs of processes */
	PROTO_SERVICE_MCAST,       /* multicast groups */
	PROTO_SERVICE_DEVICE,      /* devices and ports */
	PROTO_SERVICE_CAPTURE,
	PROTO_SERVICE_STATUS,      /* what tools show and stop */
	PROTO_SERVICE_LISTEN,      /* service IDs of connections */
	PROTO_SERVICE_WILL,        /* what is said when a process dies */
	PROTO_SERVICE_AGENT,       /* MAD agents */
	PROTO_SERVICE_FLOW,        /* flow rules of raw packet queue pairs */
	PROTO_SERVICE_FABRIC,      /* an InfiniBand fabric */
	PROTO_SERVICES,            /* one past the last */
};

#define PROTO_TYPE(service, op) ((service) * PROTO_OPS + (op))
#define PROTO_OP(type) ((type) % PROTO_OPS)

struct proto_head {
	u32 magic;
	u16 version;
	u16 type;
	u32 serial; /* the reply repeats the request's */
	s32 status; /* replies: 0 or a negative errno */
} OWNED_BY(the caller);

/* Every request and every reply that carries nothing. */
struct proto_plain {
	struct proto_head head;
} OWNED_BY(the caller);

#endif
