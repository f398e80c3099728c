/* fabricd.h: the fabric that the node carries: its life, its time, and the MAD channels of the
 * processes that have entered its hosts.
 */
#ifndef DAEMON_FABRIC_FABRICD_H
#define DAEMON_FABRIC_FABRICD_H

#include "daemon/daemon_priv.h"

enum { FABRICD_BATCH = 64 /* MADs of one turn for one system call */, FABRICD_CHANGES = 32 };

/* What a process must be told of a port. */
struct fabricd_change {
	u32 port, what;
} OWNED_BY(the daemon);

/* A host: its CAs and their ports. */
struct fabricd_place {
	char name[NODE_HOST_NAME];
	u32 ca_count;
	u32 ca[NODE_HOST_CAS];
	u32 first_port[NODE_HOST_CAS], ports[NODE_HOST_CAS]; /* of each CA */
} OWNED_BY(the daemon);

/* The host that a process has entered. */
struct proc_host {
	struct proc *proc;
	struct loop_source channel; /* the node's end; fd -1: the process has closed its own */
	struct fabricd_place at;
	struct fabricd_change changes[FABRICD_CHANGES]; /* to tell */
	u32 change_count;
} OWNED_BY(the daemon);

/* Counts of MADs, as struct proto_fabric_show has them. */
struct fabricd_counts {
	u64 sent, received, unclaimed, overrun, malformed;
} OWNED_BY(the daemon);

struct fabricd {
	struct daemon *daemon;
	struct fabric *fabric;
	struct smd *smd; /* NULL: it has no subnet manager of its own */
	int map_fd, map_read_fd, counters_fd;
	char source[PROTO_FABRIC_SOURCE];
	u64 since_ns;
	u64 generation;	   /* of which processes know, or hear at routes_due_ns */
	u64 routes_due_ns; /* UINT64_MAX: nothing is due */
	/* ports that the node before left as subnet managers': cleared unless claimed until then */
	u64 orphans_until_ns;
	u32 processes;		/* on hosts */
	struct list_head sms;	/* struct smhold: ports at which a process is a subnet manager */
	struct list_head trees; /* struct hosttree */
	u64 count_due_ns;	/* counters of the trees; UINT64_MAX: nothing counts */
	struct list_head held;	/* madhold.c's requests that wait for a listener */
	u32 held_count;
	struct list_head members, leaves; /* sagroup.c's */
	u32 member_count;
	u32 leave_tids; /* given out */
	struct fabricd_counts counts;
	/* MADs for processes, sent at the end of the turn */
	struct proc *out_to[FABRICD_BATCH];
	struct proto_fabric_mad out[FABRICD_BATCH];
	u32 out_count;
	u32 captured; /* MADs: their PSNs in a capture */
	struct proto_fabric_mad in[FABRICD_BATCH];
} OWNED_BY(the daemon);

/* ---- fabricd.c: life and time ---- */

/* Makes the fabric of a topology's text (or a generator's words) and keeps it in the folder. As
 * struct proto_fabric_up, whose `source` and `flags` these are. */
int fabricd_up(struct daemon *d, const char *text, size_t size, const char *source, u32 flags);
/* Goes on with the fabric that a node before has left in the folder, if it has. */
void fabricd_resume(struct daemon *d);
/* Tells the processes on its hosts, and forgets it; `keep`: the next node goes on with it. */
void fabricd_down(struct daemon *d, bool keep);
void fabricd_run(struct daemon *d, u64 now_ns);
/* When it must run next; UINT64_MAX: never. */
u64 fabricd_next_ns(const struct daemon *d);

/* ---- hosttree.c: hosts, and the trees that stand for their /sys ---- */

/* -ENOENT: the fabric has no such host. */
int fabricd_place_find(const struct fabric_view *v, const char *name, struct fabricd_place *out);
/* NULL is no host. */
bool fabricd_place_has(const struct fabricd_place *h, u32 port);
/* Writes the tree of a host, and keeps it up to date from now on. -ENOENT: there is no such host;
 * -ENOMEM. A tree that cannot be written is none, which is logged. */
int hosttree_show(struct fabricd *f, const char *name);
/* A port has changed: bits of enum fabric_change. */
void hosttree_changed(struct fabricd *f, u32 port, u32 what);
/* Writes counters of ports that have changed, at its time. */
void hosttree_count(struct fabricd *f, u64 now_ns);
/* Forgets the trees; `keep`: the files stay for the next node. */
void hosttree_drop_all(struct fabricd *f, bool keep);

/* ---- smhold.c: subnet managers ---- */

/* The process is a subnet manager at a port of its host until the pipe, of which `fd` is the
 * writing end, has no reader. `fd` stays the caller's. -ENOENT: no such port; -EBUSY: another one
 * is; -ENOMEM; or as epoll_ctl(2). */
int smhold_take(struct proc *p, u32 port, int fd);
bool smhold_has(const struct fabricd *f, u32 port);
/* The process leaves its host. */
void smhold_leave(struct proc *p);

/* ---- madchannel.c: processes on hosts, and their MADs ---- */

/* Has a process enter a host; *theirs is its end of the channel. */
int madchannel_enter(struct proc *p, const char *host, int *theirs);
/* The process leaves its host, if it is on one. */
void madchannel_leave(struct proc *p);
/* Shows all processes the host of the slots that this one has. */
void madchannel_show(struct proc *p);
/* Sends what waits for processes. */
void madchannel_flush(struct fabricd *f);
/* Does the process' host have the CA that is this device? */
bool madchannel_has_device(const struct proc *p, u64 device);
/* Is or was the process on the host of this port? Also while it dies. */
bool madchannel_was_at(const struct daemon *d, u64 process, u32 port);
/* Sends the will of a process that is dead. False: there is no fabric any more. */
bool madchannel_send_will(struct daemon *d, const struct node_will *w);
/* Has a REQ or SIDR_REQ go to its listener, if there is one by now. */
bool madchannel_to_listener(struct fabricd *f, u32 port, const struct fabric_mad *m);
/* Answers in the name of the host what none of its processes takes. */
void madchannel_answer(struct fabricd *f, u32 port, const struct fabric_mad *m);

/* ---- madhold.c: requests whose listener does not listen yet ---- */

/* False: the request does not wait. */
bool madhold_take(struct fabricd *f, u32 port, const struct fabric_mad *m);
/* A process listens: requests that wait for it go there. */
void madhold_listening(struct daemon *d);
void madhold_run(struct fabricd *f, u64 now_ns);
u64 madhold_next_ns(const struct fabricd *f);
void madhold_clear(struct fabricd *f);

/* ---- sagroup.c: members of multicast groups, and subscribers, at the SA ---- */

/* As struct proto_fabric_member. -ENOMEM. */
int sagroup_set(struct proc *p, const struct proto_fabric_member *q);
/* The process leaves its host: its ports leave the groups of which it was the last member. */
void sagroup_leave_all(struct proc *p);
/* Is the MAD, which has arrived at the port, the answer to a leave of the node's? */
bool sagroup_take_answer(struct fabricd *f, u32 port, const struct fabric_mad *m);
/* Is the MAD a report of the SA, of any notice? */
bool sagroup_is_report(const struct fabric_mad *m);
/* Does the process subscribe to the trap that the report, which has come to the port, tells of? */
bool sagroup_subscribes(const struct proc *p, u32 port, const struct fabric_mad *report);
void sagroup_run(struct fabricd *f, u64 now_ns);
u64 sagroup_next_ns(const struct fabricd *f);
void sagroup_clear(struct fabricd *f);

/* ---- madtap.c: MADs for captures ---- */

/* fabric_ops.crossed; `arg`: the struct fabricd. */
void madtap_crossed(void *arg, u32 out, u32 in, const struct fabric_mad *m);

/* ---- madchannel.c again: callbacks ---- */

/* fabric_ops.deliver and .changed; `arg`: the struct fabricd. */
void madchannel_deliver(void *arg, u32 port, const struct fabric_mad *m);
void madchannel_changed(void *arg, u32 port, u32 what);

#endif
