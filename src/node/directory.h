/* directory.h: the directory: what every process of a node may read without asking: configuration,
 * multicast groups, listeners, agents and flow rules.
 *
 * A sealed memfd that the node writes and processes map read-only. `seq` is odd while the node
 * writes; a reader copies and looks again. A node that dies in the middle leaves it odd for ever:
 * readers give up after some tries and take what they see, for each entry is judged again by the
 * process that it names.
 */
#ifndef NODE_DIRECTORY_H
#define NODE_DIRECTORY_H

#include "node/node.h"

enum { DIRECTORY_MAGIC = 0x61764e42, DIRECTORY_MEMBERS = NODE_MEMBERS, DIRECTORY_TRIES = 100 };

struct directory_member {
	u8 gid[16];
	u64 process; /* 0: free */
	u32 qpn;
	u32 reserved;
} OWNED_BY(the daemon while seq is odd or, of a copy, the reader);

/* A listener on service IDs. One whose mask has all bits lies in the chain of its service ID's
 * bucket, any other in the last chain. */
struct directory_listener {
	u64 service_id, mask;
	u64 process; /* 0: free */
	u32 slot;
	u32 next; /* index + 1 of the next one of the chain; 0: none */
	struct node_match match;
} OWNED_BY(the daemon while seq is odd or, of a copy, the reader);

struct directory_agent {
	struct node_agent agent;
	u64 process; /* 0: free */
	u32 slot;
	u32 reserved;
} OWNED_BY(the daemon while seq is odd or, of a copy, the reader);

struct directory_flow {
	struct node_flow flow;
	u64 process; /* 0: free */
} OWNED_BY(the daemon while seq is odd or, of a copy, the reader);

enum { DIRECTORY_BUCKETS = 4096 };

struct directory {
	u32 magic FIXED;
	u32 seq OWNED_BY(the daemon); /* stored atomically: readers look at it meanwhile */
	u32 members OWNED_BY(the daemon while seq is odd); /* entries in use lie below this index */
	/* entries in use lie below this index */
	u32 listeners OWNED_BY(the daemon while seq is odd);
	/* entries in use lie below this index */
	u32 agents OWNED_BY(the daemon while seq is odd);
	u32 flows OWNED_BY(the daemon while seq is odd); /* entries in use lie below this index */
	u64 flow_generation OWNED_BY(the daemon while seq is odd); /* changes with them */
	/* 1: a process of an earlier node may have listeners and agents that are not here yet.
	 * Stored atomically */
	u32 incomplete OWNED_BY(the daemon);
	u32 reserved OWNED_BY(the daemon);
	/* id 0: free */
	struct node_config devices[NODE_DEVICES] OWNED_BY(the daemon while seq is odd);
	struct directory_member member[DIRECTORY_MEMBERS] OWNED_BY(the daemon while seq is odd);
	struct directory_listener listener[NODE_LISTENERS] OWNED_BY(the daemon while seq is odd);
	struct directory_agent agent[NODE_AGENTS] OWNED_BY(the daemon while seq is odd);
	struct directory_flow flow[NODE_FLOWS] OWNED_BY(the daemon while seq is odd);
	/* index + 1 of the first fabric node of the host that the slot's process has entered; 0: of
	 * none. Stored atomically */
	u32 slot_host[NODE_SLOTS] OWNED_BY(the daemon);
	/* a bit for each slot whose process takes packets over the wire only; that of slot 0: there
	 * is one. Stored atomically */
	u64 wire_only[NODE_SLOTS / 64] OWNED_BY(the daemon);
	/* index + 1 of the first; the last entry is unused */
	u32 chain[DIRECTORY_BUCKETS + 2] OWNED_BY(the daemon while seq is odd);
};

/* The chain of listeners with this mask, on this service ID. */
static inline u32 directory_chain(u64 service_id, u64 mask)
{
	return mask != UINT64_MAX ? DIRECTORY_BUCKETS
				  : (u32)(service_id * 0x9e3779b97f4a7c15ull >> 52);
}

/* Maps the directory read-only, after checking that it can neither shrink nor be another size.
 * NULL if it is not one. */
const struct directory *directory_map(int fd);
void directory_unmap(const struct directory *n);
/* One device of the directory, index below NODE_DEVICES, as one state of it. Its texts have
 * ends, and it has one port. */
void directory_read_device(const struct directory *n, u32 index, struct node_config *out);
/* The id of a device; 0: nobody has the index. */
u64 directory_device_id(const struct directory *n, u32 index);
int directory_read_members(const struct directory *n, const u8 gid[16], u32 from,
			   struct node_member *out, int max);

/* Which processes count as listeners. */
struct directory_filter {
	bool (*fits)(void *arg, u64 process);
	void *arg;
} OWNED_BY(the caller);

/* The first listener on the service ID that takes a request with these NODE_MATCH bytes of private
 * data: its process and slot. One of slot `from` comes last, behind others that listen alike; 0:
 * none does. `only` NULL: any process. False: there is none. */
bool directory_read_listener(const struct directory *n, u64 service_id, const u8 *private_data,
			     u32 from, const struct directory_filter *only, u64 *process,
			     u32 *slot);
/* The agent that takes an unsolicited MAD (256 bytes): its process and slot. False: there is
 * none. */
bool directory_read_agent(const struct directory *n, u64 device, u8 port, u8 qpn, const u8 *mad,
			  u64 *process, u32 *slot);
/* Copies at most `max` listeners, from entry *at on, and moves *at behind them. Each is one state
 * of itself. Returns how many; fewer than `max`: there are no more. */
u32 directory_list_listeners(const struct directory *n, u32 *at, struct directory_listener *out,
			     u32 max);

/* Tells whether a process of an earlier node may have listeners and agents that the directory
 * does not show yet. To be asked before they are looked for. */
bool directory_is_incomplete(const struct directory *n);

/* As node_slot_is_wire_only. */
bool directory_slot_is_wire_only(const struct directory *n, u32 slot);

u64 directory_flow_generation(const struct directory *n);
/* Lists the flow rules of a device that are not of `process`; at most `max`. Returns how many. */
u32 directory_list_flows(const struct directory *n, u64 device, u64 process, struct node_flow *out,
			 u32 max);

/* The node's side: a new directory (*fd is what processes map), NULL and -errno in *err on
 * failure. */
struct directory *directory_create(int *fd, int *err);
/* Between these two the writer changes what it likes. */
void directory_write_begin(struct directory *n);
void directory_write_end(struct directory *n);

#endif
