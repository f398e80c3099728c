/* status.h: what tools ask of the whole node. STATUS is a plain request; BOARD has the struct of
 * PROCESSES, and its reply is plain with the board as its descriptor; NOTICE is plain, and so is
 * its reply, with the directory. CONNECTIONS lists what a process' wills say (will.h).
 */
#ifndef NODE_PROTOCOL_STATUS_H
#define NODE_PROTOCOL_STATUS_H

#include "node/fabric.h"
#include "node/protocol/head.h"

enum {
	PROTO_STATUS = PROTO_TYPE(PROTO_SERVICE_STATUS, 0),
	PROTO_PROCESSES = PROTO_TYPE(PROTO_SERVICE_STATUS, 1),
	PROTO_BOARD = PROTO_TYPE(PROTO_SERVICE_STATUS, 2),
	PROTO_STOP = PROTO_TYPE(PROTO_SERVICE_STATUS, 3),
	PROTO_DIRECTORY = PROTO_TYPE(PROTO_SERVICE_STATUS, 4),
	PROTO_CONNECTIONS = PROTO_TYPE(PROTO_SERVICE_STATUS, 5),
};

enum {
	PROTO_RECORDS = 16, /* processes per PROTO_PROCESSES reply */
	PROTO_RECORD_SLOTS = 16,
	PROTO_CONNECTION_RECORDS = 16, /* per PROTO_CONNECTIONS reply */
};

/* Without `force`: -EBUSY: processes are attached; -ENOTEMPTY: the node carries a fabric. The reply
 * is plain. */
struct proto_stop {
	struct proto_head head;
	u32 force;
	u32 reserved;
} OWNED_BY(the caller);

struct proto_status_reply {
	struct proto_head head;
	s32 pid;
	u32 attached;
	u32 slots_taken;
	u32 pairs;
	u32 members;     /* multicast memberships */
	u32 idle_ms;     /* leaves after this time without a process; UINT32_MAX: never */
	u64 uptime_ms;
	char node[32];
	char folder[256];
	struct node_config config; /* of device 0; DEVICE_READ has the others */
} OWNED_BY(the caller);

struct proto_processes { /* also BOARD: the process whose board is asked for */
	struct proto_head head;
	u64 after;       /* processes with greater numbers, in order */
} OWNED_BY(the caller);

struct proto_record {
	u64 process;
	s32 pid;         /* as the node sees it; 0 if it cannot */
	u32 slot_count;
	u32 pair_count;
	u32 member_count;
	u64 age_ms;
	u16 slots[PROTO_RECORD_SLOTS]; /* the first ones */
	char command[PROTO_COMMAND];
	char host[NODE_HOST_NAME]; /* of the fabric that it is on; "": none */
} OWNED_BY(the caller);

struct proto_processes_reply {
	struct proto_head head;
	u32 count;
	u32 more;        /* ask again with the last one's number */
	struct proto_record records[PROTO_RECORDS];
} OWNED_BY(the caller);

/* The connections of one process that are in a state with a will: from the REQ to timewait. */
struct proto_connections {
	struct proto_head head;
	u64 process;
	u32 from; /* place of the first one that is looked at */
	u32 reserved;
} OWNED_BY(the caller);

struct proto_connection {
	u8 sgid[16], dgid[16];
	struct node_connection connection;
} OWNED_BY(the caller);

/* -ENOENT: no such process. */
struct proto_connections_reply {
	struct proto_head head;
	u32 count;
	u32 next; /* `from` of the next request; 0: there are no more */
	struct proto_connection records[PROTO_CONNECTION_RECORDS];
} OWNED_BY(the caller);

#endif
