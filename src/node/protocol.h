/* protocol.h: what a process and the node say to each other over their sockets: fixed-size structs,
 * one per packet.
 *
 * The rendezvous is an abstract SOCK_SEQPACKET socket, or, where another user has taken its name,
 * one in the node's private folder; both ends check the other's user. A connection's first message
 * is HELLO (a process attaches), RESUME (it had attached to a node that died) or TOOL (a command
 * that only asks). Each request has one reply with its serial number; events come on a socket of
 * their own, handed over in the reply to HELLO. Both sides check every size, count and descriptor.
 * Descriptors follow the order that each struct names.
 */
#ifndef NODE_PROTOCOL_H
#define NODE_PROTOCOL_H

#include "node/node.h"

enum {
	PROTO_MAGIC = 0x61764e44,
	PROTO_VERSION = 4,
	PROTO_FDS = 6,             /* the most that one message carries */
	PROTO_SLOT_BYTES = NODE_SLOTS / 8,
	PROTO_PAIRS = 1024,        /* pairs that one process may have */
	PROTO_RECORDS = 16,        /* processes per PROTO_PROCESSES reply */
	PROTO_RECORD_SLOTS = 16,
	PROTO_COMMAND = 64,
};

enum proto_type {
	PROTO_HELLO = 1, PROTO_RESUME, PROTO_TOOL,
	PROTO_SLOT_TAKE, PROTO_UDP_SOCKETS, PROTO_CONNECT, PROTO_PAIR_DROP, PROTO_MCAST_JOIN,
	PROTO_MCAST_LEAVE,
	PROTO_STATUS, PROTO_ADDRESSES, PROTO_PROCESSES, PROTO_BOARD, PROTO_STOP, PROTO_PORT,
	PROTO_CAPTURE,
	PROTO_REQUESTS, /* one past the last request */
	PROTO_EV_PEER_NEW = 64, PROTO_EV_PEER_GONE, PROTO_EV_CONFIG, PROTO_EV_CAPTURE,
};

struct proto_head {
	u32 magic;
	u16 version;
	u16 type;
	u32 serial; /* the reply repeats the request's */
	s32 status; /* replies: 0 or a negative errno */
};

/* Who attaches. */
struct proto_process {
	u64 pid_ns; /* inode of its PID namespace; 0: unknown */
	s32 pid;    /* as it sees itself */
	u32 reserved;
	char command[PROTO_COMMAND];
};

/* Descriptors: board, bell 0, bell 1. */
struct proto_hello {
	struct proto_head head;
	struct proto_process who;
};

/* Descriptors: board, bell 0, bell 1, slots, keeper. The reply is HELLO's. */
struct proto_resume {
	struct proto_head head;
	struct proto_process who;
	u64 process;
	u8 slots[PROTO_SLOT_BYTES]; /* bit per slot that it held */
	u32 pair_count;
	u32 reserved;
	u64 pairs[PROTO_PAIRS];     /* the peers' process numbers */
};

/* Descriptors: events socket, notice board, slots file, and the keeper: what a process holds
 * only to give it to the next node. */
struct proto_hello_reply {
	struct proto_head head;
	u64 process;
	u8 slots[PROTO_SLOT_BYTES]; /* those of RESUME that are still its own */
};

/* SLOT_TAKE, TOOL, STATUS requests; every reply that carries nothing. CAPTURE's request, with the
 * memory file as descriptor: every process gets it with EV_CAPTURE, those that come later too,
 * until the connection of whoever asked ends; then EV_CAPTURE comes without one. -EBUSY:
 * somebody else captures. */
struct proto_plain {
	struct proto_head head;
};

struct proto_slot_reply {
	struct proto_head head;
	u32 slot;
	u32 generation; /* counts the owners that the slot has had */
};

struct proto_udp_sockets {
	struct proto_head head;
	u32 slot;
	u32 from; /* the first GID index that is of interest */
};

struct proto_socket {
	u8 gid[16];
	u64 id;
	u32 gid_index;
	u32 ifindex;
};

/* Descriptors: as many as `count`. */
struct proto_udp_sockets_reply {
	struct proto_head head;
	u32 count;
	u32 next; /* ask again from this index; 0: that was all */
	struct proto_socket sockets[PROTO_FDS];
};

/* Descriptor: the pair's rings. */
struct proto_connect {
	struct proto_head head;
	u32 slot;
	u32 reserved;
};

/* The reply to CONNECT. Descriptors: board, bell 0, bell 1, and a pidfd if has_pid_fd.
 * EV_PEER_NEW: the same with the rings in front. EV_PEER_GONE: `process` only. PAIR_DROP's request,
 * too. */
struct proto_peer {
	struct proto_head head;
	u64 process;
	s32 pid; /* as the receiver sees it; 0 if it cannot */
	u32 has_pid_fd;
};

struct proto_mcast {
	struct proto_head head;
	u8 gid[16];
	u32 qpn;
	u32 reserved;
};

struct proto_stop {
	struct proto_head head;
	u32 force;
	u32 reserved;
};

/* Sets a port's state; the reply comes when the configuration and the sysfs tree say so. -ENODEV:
 * no such device or port. */
struct proto_port {
	struct proto_head head;
	char device[32]; /* empty: the only one */
	u32 port;
	u32 up;
};

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
	struct node_config config;
};

enum proto_udp_state {
	PROTO_UDP_NONE,
	PROTO_UDP_OPEN,
	PROTO_UDP_OTHER,  /* another node of this network namespace has the address */
	PROTO_UDP_TAKEN,  /* its port 4791 is somebody else's */
	PROTO_UDP_ABSENT, /* the host does not have it */
	PROTO_UDP_FAILED, /* `err` says why */
};

struct proto_address {
	u8 gid[16];
	u32 ifindex;
	u32 state;   /* enum proto_udp_state */
	s32 err;
	u32 sockets; /* in its group, the node's own included */
	u32 slots;   /* that have one */
	u32 lost;    /* datagrams that found a socket's buffer full */
	u64 dropped; /* datagrams that nobody was there for */
};

struct proto_addresses_reply {
	struct proto_head head;
	u32 count;
	u32 reserved;
	struct proto_address addresses[NODE_GIDS];
};

struct proto_processes { /* also BOARD: the process whose board is asked for */
	struct proto_head head;
	u64 after;       /* processes with greater numbers, in order */
};

struct proto_record {
	u64 process;
	s32 pid;         /* as the node sees it; 0 if it cannot */
	u32 slot_count;
	u32 pair_count;
	u32 member_count;
	u64 age_ms;
	u16 slots[PROTO_RECORD_SLOTS]; /* the first ones */
	char command[PROTO_COMMAND];
};

struct proto_processes_reply {
	struct proto_head head;
	u32 count;
	u32 more;        /* ask again with the last one's number */
	struct proto_record records[PROTO_RECORDS];
};

/* The largest of each direction. */
union proto_request {
	struct proto_head head;
	struct proto_hello hello;
	struct proto_resume resume;
	struct proto_udp_sockets udp_sockets;
	struct proto_connect connect;
	struct proto_peer peer;
	struct proto_mcast mcast;
	struct proto_stop stop;
	struct proto_port port;
	struct proto_processes processes;
};

union proto_reply {
	struct proto_head head;
	struct proto_hello_reply hello;
	struct proto_slot_reply slot;
	struct proto_udp_sockets_reply udp_sockets;
	struct proto_peer peer;
	struct proto_status_reply status;
	struct proto_addresses_reply addresses;
	struct proto_processes_reply processes;
};

#endif
