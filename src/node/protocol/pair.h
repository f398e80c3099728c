/* pair.h: pairs of processes that share rings. */
#ifndef NODE_PROTOCOL_PAIR_H
#define NODE_PROTOCOL_PAIR_H

#include "node/protocol/head.h"

enum {
	PROTO_CONNECT = PROTO_TYPE(PROTO_SERVICE_PAIR, 0),
	PROTO_PAIR_DROP = PROTO_TYPE(PROTO_SERVICE_PAIR, 1),
	PROTO_PAIR_CLAIM = PROTO_TYPE(PROTO_SERVICE_PAIR, 2),
	PROTO_EV_PEER_NEW = PROTO_TYPE(PROTO_SERVICE_PAIR, PROTO_EVENT_OP + 0),
	PROTO_EV_PEER_GONE = PROTO_TYPE(PROTO_SERVICE_PAIR, PROTO_EVENT_OP + 1),
};

enum { PROTO_PAIRS = 1024 /* pairs of one process */ };

/* Descriptor: the pair's rings. */
struct proto_connect {
	struct proto_head head;
	u32 slot;
	u32 reserved;
} OWNED_BY(the caller);

/* The reply to CONNECT. Descriptors: board, bell 0, bell 1, and a pidfd if has_pid_fd.
 * EV_PEER_NEW: the same with the rings in front. */
struct proto_peer {
	struct proto_head head;
	u64 process;
	s32 pid; /* as the receiver sees it; 0 if it cannot */
	u32 has_pid_fd;
} OWNED_BY(the caller);

/* EV_PEER_GONE, and the request PAIR_DROP, whose reply is plain: `process` is the other end. */
struct proto_pair_end {
	struct proto_head head;
	u64 process;
	s32 error; /* negative errno: that is why the sender refuses the pair; 0: it is over */
	u32 reserved;
} OWNED_BY(the caller);

/* After RESUME: all pairs of the process, by the peers' numbers. A pair ends, with EV_PEER_GONE, if
 * its peer is back and does not know it, or if it is not named here. Until this claim another
 * process' CONNECT to this one returns -EAGAIN. The reply is plain. */
struct proto_pair_claim {
	struct proto_head head;
	u32 count;
	u32 reserved;
	u64 pairs[PROTO_PAIRS];
} OWNED_BY(the caller);

#endif
