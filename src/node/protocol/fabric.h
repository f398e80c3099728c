/* fabric.h: the InfiniBand fabric that a node carries. A process enters one of its hosts: from then
 * on it sees that host's channel adapters, and sends and receives their MADs over a *MAD channel*.
 *
 * A MAD channel is a SOCK_SEQPACKET socket of its own. Each packet is one struct proto_fabric_mad,
 * both ways, or one struct proto_fabric_refused to the node; one of another size or for a port of
 * another host is counted and dropped. A MAD for which the channel has no room is dropped and
 * counted, as by a port without a buffer.
 */
#ifndef NODE_PROTOCOL_FABRIC_H
#define NODE_PROTOCOL_FABRIC_H

#include "node/fabric.h"
#include "node/protocol/head.h"

enum {
	PROTO_FABRIC_ENTER = PROTO_TYPE(PROTO_SERVICE_FABRIC, 0),
	PROTO_FABRIC_ISSM = PROTO_TYPE(PROTO_SERVICE_FABRIC, 1),
	PROTO_FABRIC_UP = PROTO_TYPE(PROTO_SERVICE_FABRIC, 2),
	PROTO_FABRIC_DOWN = PROTO_TYPE(PROTO_SERVICE_FABRIC, 3),
	PROTO_FABRIC_COMMAND = PROTO_TYPE(PROTO_SERVICE_FABRIC, 4),
	PROTO_FABRIC_SHOW = PROTO_TYPE(PROTO_SERVICE_FABRIC, 5),
	PROTO_FABRIC_HOST = PROTO_TYPE(PROTO_SERVICE_FABRIC, 6),
	PROTO_FABRIC_MEMBER = PROTO_TYPE(PROTO_SERVICE_FABRIC, 7),
	PROTO_EV_FABRIC = PROTO_TYPE(PROTO_SERVICE_FABRIC, PROTO_EVENT_OP + 0),
};

enum { PROTO_FABRIC_SOURCE = 128 /* bytes */ };

/* Of an attached process, and its claim after a RESUME. -ENODEV: the node carries no fabric;
 * -ENOENT: the fabric has no such host; -EALREADY: the process has entered one. */
struct proto_fabric_enter {
	struct proto_head head;
	char host[NODE_HOST_NAME];
} OWNED_BY(the caller);

/* Descriptors: the map, read-only; the counters; the process' end of its MAD channel. */
struct proto_fabric_entered {
	struct proto_head head;
	u32 ca_count;
	u32 ca[NODE_HOST_CAS]; /* indices of fabric nodes */
	u32 reserved;
} OWNED_BY(the caller);

/* The process is a subnet manager at a port of its host. Descriptor: the writing end of a pipe; it
 * is one until the pipe has no reader, or it ends. Also a claim, after ENTER. The reply is plain.
 * -ENOENT: no such port; -EBUSY: another one is. */
struct proto_fabric_issm {
	struct proto_head head;
	u32 port; /* of the fabric */
	u32 reserved;
} OWNED_BY(the caller);

/* The states in which the process is a member of a multicast group at the SA, through a port of its
 * host, or 1: it subscribes to a trap; 0: it is none any more. The node ends at the SA those states
 * in which no process of the host is a member now. Reports of a trap go to all its subscribers, and
 * the node answers them. Also a claim, after ENTER. The reply is plain. -ENOENT: no such port;
 * -EINVAL: no such name, no states; -ENOSPC. */
struct proto_fabric_member {
	struct proto_head head;
	struct node_sa_name name;
	u16 pkey; /* of the partition in which the SA is asked */
	u8 states; /* bits of JoinState */
	u8 reserved[5];
} OWNED_BY(the caller);

/* HOST, of a tool, is a struct proto_fabric_enter whose reply is plain: writes the host's tree, for
 * a program that reads it before it attaches, or never attaches. -ENODEV, -ENOENT as of ENTER. */

/* Of a tool. Descriptor: a file with the topology's text, or with a generator's words.
 * The reply is plain. -EINVAL: topo_parse and topo_generate say why; -EEXIST: a fabric is up;
 * -EPERM: the node is one of a network namespace. */
struct proto_fabric_up {
	struct proto_head head;
	char source[PROTO_FABRIC_SOURCE]; /* what people are shown as the origin */
	u32 flags; /* enum proto_fabric_flags */
	u32 reserved;
} OWNED_BY(the caller);

enum proto_fabric_flags {
	PROTO_FABRIC_SPEC = 1,	/* the file has a generator's words */
	PROTO_FABRIC_NO_SM = 2, /* the node adds no subnet manager */
};

/* -ENODEV; -EBUSY: processes are on its hosts, and `force` is 0. The reply is plain. */
struct proto_fabric_down {
	struct proto_head head;
	u32 force;
	u32 reserved;
} OWNED_BY(the caller);

enum proto_fabric_verb {
	PROTO_FABRIC_LINK, /* value: 1 up, 0 down */
	PROTO_FABRIC_REBOOT,
	PROTO_FABRIC_ERROR, /* value: how many of `counter` */
};

/* The reply is plain; its status is that of the function of fabric.h. */
struct proto_fabric_command {
	struct proto_head head;
	u32 verb;
	u32 index; /* a port, or of REBOOT a node */
	u32 counter; /* enum fabric_error */
	u32 value;
} OWNED_BY(the caller);

/* The reply to SHOW, a plain request. Descriptors: the map, read-only, and the counters. */
struct proto_fabric_show {
	struct proto_head head;
	char source[PROTO_FABRIC_SOURCE];
	u64 up_ms;	    /* since `fabric up` or the node's start */
	u64 sent, received; /* MADs from and to processes */
	u64 unclaimed;	    /* for which there was no process */
	u64 overrun;	    /* for which a process' channel had no room */
	u64 malformed;	    /* packets of processes */
	u32 processes;	    /* on hosts */
	/* of the node's own subnet managers, all together */
	u32 sm_state; /* enum sm_state, the highest; or PROTO_FABRIC_SM_NONE */
	u32 sm_busy;  /* 1: a sweep is in progress */
	u32 reserved;
	u64 sm_sweeps, sm_smps, sm_queries;
} OWNED_BY(the caller);

enum { PROTO_FABRIC_SM_NONE = 255 };

/* port: of a CA, or FABRIC_NONE. what: bits of enum fabric_change or enum node_fabric_change. */
struct proto_fabric_event {
	struct proto_head head;
	u32 port;
	u32 what;
	u64 generation; /* of the routes */
} OWNED_BY(the caller);

/* A packet of a MAD channel. */
struct proto_fabric_mad {
	u32 port; /* of the fabric: where it is sent, or where it has arrived */
	struct fabric_mad mad;
} OWNED_BY(the caller);

/* The other packet of a MAD channel, from a process: a port of its host has refused a datagram with
 * this P_Key or Q_Key. */
struct proto_fabric_refused {
	u32 port;
	u32 key, is_qkey;
	u32 src_qp, dst_qp;
	u16 slid, dlid;
	u32 sl;
} OWNED_BY(the caller);

#endif
