/* session.h: what a connection is: a process that attaches (HELLO), one that had attached to a
 * node that died (RESUME), or a command that only asks (TOOL: a plain request). Before the first
 * two a process may ask the node to end for a better one (SUCCEED). */
#ifndef NODE_PROTOCOL_SESSION_H
#define NODE_PROTOCOL_SESSION_H

#include "node/protocol/head.h"

enum {
	PROTO_HELLO = PROTO_TYPE(PROTO_SERVICE_SESSION, 0),
	PROTO_RESUME = PROTO_TYPE(PROTO_SERVICE_SESSION, 1),
	PROTO_TOOL = PROTO_TYPE(PROTO_SERVICE_SESSION, 2),
	PROTO_SUCCEED = PROTO_TYPE(PROTO_SERVICE_SESSION, 3),
	PROTO_BACK = PROTO_TYPE(PROTO_SERVICE_SESSION, 4),
};

/* The process that attaches. */
struct proto_process {
	u64 pid_ns; /* inode of its PID namespace; 0: unknown */
	s32 pid;    /* as it sees itself */
	u32 wire_only; /* 1: it takes no packets through shared memory; else 0 */
	char command[PROTO_COMMAND];
} OWNED_BY(the caller);

/* Descriptors: board, bell 0, bell 1. */
struct proto_hello {
	struct proto_head head;
	struct proto_process who;
} OWNED_BY(the caller);

/* Descriptors: board, bell 0, bell 1. The reply is HELLO's. Then the process claims what it holds
 * from each service, each claim at most once and in the order of the services: SLOT_CLAIM,
 * SOCKETS_CLAIM, PAIR_CLAIM, MCAST_JOIN for each membership, LISTEN for each listener,
 * FABRIC_ENTER, AGENT for each agent, and WILL. BACK, a plain request, ends the claims: until then
 * the node takes its listeners and agents for incomplete. */
struct proto_resume {
	struct proto_head head;
	struct proto_process who;
	u64 process;
} OWNED_BY(the caller);

/* Descriptors: events socket, directory, slots file, and the fdstore: what a process holds
 * only to give it to the next node. */
struct proto_hello_reply {
	struct proto_head head;
	u64 process;
} OWNED_BY(the caller);

/* Asks a node that a library has started to end, so that the process can start one that may have
 * `limit` descriptors. The reply is plain; its descriptors are the listening socket and, unless the
 * node has no folder, the locked folder. It comes when the node has closed all else, and then the
 * connection ends. The processes that are attached come back to the successor.
 * -EPERM: the node was started by hand; -EALREADY: its own limit is enough; -EBUSY: it still sends
 * for a process that has died. Then the connection goes on, by HELLO or RESUME. */
struct proto_succeed {
	struct proto_head head;
	u64 limit;
} OWNED_BY(the caller);

#endif
