/* daemon_priv.h: the daemon's state and its parts. It has one thread and no locks.
 *
 * A `proc` is one connection: a process that attaches (two sockets: control, events), a tool, or a
 * connection that has not sent its first message yet.
 *
 *   daemon.c   start, main loop, end          proc.c      connections, life and death of processes
 *   loop.c     the epoll loop                 events.c    unsolicited messages
 *   succession.c  passes the node on to its successor
 *   service.c  finds a packet's service       serve_*.c   one service each
 *   devices.c  devices and ports              config.c    GUID, GIDs, MTU and link of a device
 *   udp.c      addresses and UDP sockets      udp_program.c  steers datagrams to processes
 *   qp1.c      datagrams to and from QP1      route.c     those that no process' socket gets
 *   wills.c    sends the wills of the dead    fdstore.c   keeps sockets for the next node
 *   slots.c    the QPN space                  pairs.c     pairs of processes
 *   folder.c   the node's folder              device_file.c  its files
 *   traffic.c  what crosses the devices' ports
 *
 *   fabric/    the InfiniBand fabric that the node carries (fabric/fabricd.h), and the trees that
 *              stand for its hosts' /sys (fabric/sysfs.h)
 */
#ifndef DAEMON_DAEMON_PRIV_H
#define DAEMON_DAEMON_PRIV_H

#include "base/list.h"
#include "capture/capture.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/device_file.h"
#include "daemon/folder.h"
#include "daemon/loop.h"
#include "daemon/pairs.h"
#include "daemon/slots.h"
#include "daemon/traffic.h"
#include "daemon/udp.h"
#include "node/message.h"
#include "node/directory.h"

enum {
	DAEMON_PROCS = 4096,  /* connections at once */
	DAEMON_SILENT_S = 5,  /* seconds that a connection has for its first message */
	DAEMON_EVENTS = 4096, /* unread events per process */
	DAEMON_TICK_MS = 50,
	DAEMON_BACKLOG = 4096,
	DAEMON_FIRST_S = 2, /* seconds that a new node waits at least for its first process */
};

enum proc_kind { PROC_SILENT, PROC_ATTACHED, PROC_TOOL };

/* A device's state beyond the directory. */
struct device {
	u64 id; /* 0: no device has this index */
	char name[NODE_DEVICE_NAME];
	struct config_told told;
	struct config_links links;
	bool link;	     /* the port's interfaces have a link */
	enum port_will will; /* the setting of `anyverbs port` */
} OWNED_BY(the daemon);

struct daemon {
	struct daemon_options options;
	struct loop loop;
	struct loop_source listener; /* at an abstract address; no descriptor (-1): all are taken */
	struct loop_source inner;    /* in the folder; -1: there is none */
	struct loop_source signals, addresses;
	bool listening; /* false while the daemon lacks descriptors */
	u64 listen_again_ns;
	/* clock: when to read the host's addresses; UINT64_MAX: unchanged */
	u64 look_again_ns;
	u32 retry_ms; /* how long the last attempt waited; 0: it had all */
	struct device devices[NODE_DEVICES];
	struct traffic traffic;
	u64 next_device_id;
	bool first; /* the first node of its network namespace: it shows the host's addresses */
	bool later_told; /* a log message has said that it is not */
	struct folder folder;
	struct slots slots;
	struct pairs pairs;
	struct udp_addresses udp;
	struct directory *directory;
	int directory_fd;
	struct list_head procs; /* struct proc */
	u32 proc_count, attached, blocked_count;
	u32 member_count;
	u32 free_flow;	 /* entries of the directory's flow rules below this index are in use */
	u64 flow_serial; /* of the last rule; 0: none yet */
	u64 started_ns;
	u32 resuming;	   /* processes of an earlier node that have come back and still claim */
	u64 idle_since_ns; /* when the last process left */
	bool served;	   /* some process has been attached */
	int spare_fd;	   /* given up for a connection that no other descriptor is left for; -1 */
	/* the connection that has asked for the listening socket, to start the successor; NULL */
	struct proc *successor;
	u32 succession_serial; /* of its request */
	struct list_head held; /* route.c's requests that wait for a listener */
	u32 held_count;
	struct list_head wills;	  /* struct dead_process */
	u32 wills_count;	  /* in all of them */
	struct proc *recorder;	  /* the process whose memory file all record into; NULL: none */
	int capture_fd;
	struct capture capture; /* that memory file, for what the node itself takes and sends */
	struct fabricd *fabric; /* NULL: none is up */
	/* connections end, but processes keep what they hold: the next node takes over */
	bool ending;
} OWNED_BY(the daemon);

struct proc {
	struct list_head node;
	struct daemon *daemon;
	enum proc_kind kind;
	struct loop_source control, events, life;
	u64 since_ns;
	u64 process; /* 0: not attached */
	struct proto_process who;
	s32 pid; /* as the daemon sees it; 0: unknown */
	int board_fd, bell_fd[2], slots_fd;
	struct traffic_source traffic;
	int will_fd;		  /* struct will_file; -1: none */
	struct list_head waiting; /* struct proc_event: events for which the socket has no room */
	u32 waiting_count;
	bool config_due, capture_due;
	struct proc_host *host; /* of the fabric; NULL: it has entered none */
	bool blocked;		/* events wait */
	/* a bit by enum proto_service: the claims that are still due after its RESUME */
	u32 claims_due;
} OWNED_BY(the daemon);

/* ---- proc.c: connections ---- */

void proc_accept(struct daemon *d, int fd);
/* Ends a connection and frees all that its process held; tells its peers. Frees `p`. */
void proc_drop(struct proc *p, const char *why);
struct proc *proc_find(struct daemon *d, u64 process);
/* Makes a connection an attached process: *m holds board and bells. */
int proc_attach(struct proc *p, u64 process, const struct proto_process *who, struct message *m);

/* ---- events.c: unsolicited messages ---- */

/* Opens the events socket of an attached process; *theirs is the other end. */
int event_open(struct proc *p, int *theirs);
/* Tells `to` of its new pair with `peer`; rings_fd is duplicated if the event must wait. */
int event_peer_new(struct proc *to, struct proc *peer, int rings_fd);
/* As struct proto_pair_end. */
void event_peer_gone(struct proc *to, u64 process, s32 error);
void event_config(struct daemon *d);
/* Tells one process, or all, that a capture has begun or ended. */
void event_capture(struct proc *to);
void event_capture_all(struct daemon *d);
/* Sends waiting events, as far as there is room. */
void event_flush(struct proc *p);
/* Passes a datagram on; where there is no room, or something else waits, it is lost. False: so it
 * was. */
bool event_mad(struct proc *to, const struct node_mad *mad);
/* Tells a process on a host of the fabric of a change: bits, which add up while they wait. */
void event_fabric(struct proc *to, u32 port, u32 what);
/* The fabric is going down. Lost if the process does not read. */
void event_fabric_gone(struct proc *to);
void event_discard(struct proc *p);
/* Fills a peer's description for `to`, with the descriptors board, bells, pidfd: returns their
 * number. */
int event_describe(const struct proc *peer, const struct proc *to, struct proto_peer *out,
		   int fds[4]);

/* ---- service.c: requests ---- */

/* Judges and answers one packet; false: the connection must end. */
bool service_handle(struct proc *p, const union proto_request *q, struct message *m);

/* ---- serve_slot.c ---- */

/* Shows in the directory which slots' processes are reached over the wire only, also those of
 * processes that have not come back yet. */
void serve_slot_show(struct daemon *d);

/* ---- route.c ---- */

/* udp_addresses.to_qp1: passes a datagram to QP1 to its process, or answers it if nobody will.
 * `arg`: the daemon. False: it is lost. */
bool route_datagram(void *arg, const struct node_mad *mad);
/* Tells whether listeners and agents may exist that this node does not know yet. */
bool route_is_incomplete(struct daemon *d);
/* Shows on the directory whether that is so. */
void route_show(struct daemon *d);
/* Somebody listens from now on: requests that have waited for it go there. */
void route_listening(struct daemon *d);
/* Refuses requests that have waited long enough. */
void route_run(struct daemon *d, u64 now_ns);
/* When the next one has; UINT64_MAX: none waits. */
u64 route_next_ns(const struct daemon *d);
void route_clear(struct daemon *d);
/* Passes it to every process that has had a peer. False: nobody has got it. */
bool route_to_all(struct daemon *d, const struct node_mad *mad);

/* ---- devices.c ---- */

/* The id of the device that has the GID in its table, or as that of its GUID; 0: none of this node
 * has it. */
u64 devices_of_gid(const struct daemon *d, const u8 gid[16]);
static inline bool devices_have_gid(const struct daemon *d, const u8 gid[16])
{
	return devices_of_gid(d, gid) != 0;
}

/* Configures the devices of ANYVERBS_DEVICES, or those of the node that was killed before:
 * directory, sysfs trees, UDP sockets. */
void devices_begin(struct daemon *d);
/* Reads the host's addresses, and tells all processes of changes. */
void devices_look(struct daemon *d);
/* Returns the index of the device of this name, or -ENODEV. */
int devices_find(struct daemon *d, const char name[NODE_DEVICE_NAME]);
/* Sets the state of a device's port, tells all processes, and records it for the next node. Without
 * a link, `up` holds until there has been a link again. */
void devices_set_port(struct daemon *d, u32 index, bool up);
/* Adds or removes a device and tells all processes. add: -EINVAL: no device name; -EEXIST; -ENOSPC:
 * NODE_DEVICES exist, or no room for its sysfs tree. remove: -ENODEV; -EPERM: roce0 stays. */
int devices_add(struct daemon *d, const char *name);
int devices_remove(struct daemon *d, const char *name);

/* ---- succession.c ---- */

/* Tells where the listening socket belongs that the node before has passed on: &d->listener or
 * &d->inner; NULL: it is none. */
struct loop_source *succession_listener(struct daemon *d, int fd);
/* Has the node end for a successor that this connection's process starts. A negative errno as of
 * struct proto_succeed. */
int succession_promise(struct daemon *d, struct proc *p, u32 serial, u64 limit);
/* The connection ends: nothing is passed on through it. */
void succession_forget(struct daemon *d, const struct proc *p);
/* Takes the socket of the connection out of the daemon's tables; -1: there is no successor. */
int succession_detach(struct daemon *d);
/* The end of the node, when all else is closed: passes the listening socket and the folder on.
 * Closes `fd`. */
void succession_pass(struct daemon *d, int fd);

/* ---- daemon.c ---- */

void daemon_stop(struct daemon *d, const char *why);

#endif
