/* wills.h: what a dead process has left for its peers: its wills, until they have been sent and
 * answered, or often enough. */
#ifndef DAEMON_WILLS_H
#define DAEMON_WILLS_H

#include "daemon/daemon_priv.h"
#include "node/will.h"

enum {
	WILLS_TOTAL = 131072, /* of all dead processes; more are dropped */
	WILLS_BURST = 64,     /* sent in one turn of the loop */
	WILLS_ROUNDS = 20,    /* of one process at most: half a minute */
};

struct dead_will {
	struct node_will will;
	u32 local_id; /* the communication ID of the dead process in it; 0: none */
	bool local;   /* for a process of this node */
	u8 tries_left;
} OWNED_BY(the daemon);

struct dead_process {
	struct list_head node; /* daemon.wills */
	u64 process;
	u64 next_ns;	/* when to go on */
	u64 pause_ns;	/* behind this round */
	u64 refused_ns; /* since when a local receiver has had no room; 0: it has */
	u32 rounds;
	u32 cursor; /* of this round */
	u32 count;
	struct dead_will *wills; /* in the order of local_id */
} OWNED_BY(the daemon);

/* Judges a copy of a slot of `process`' file. True: *out may be sent in its name. */
bool wills_judge(const struct daemon *d, u64 process, const struct will_slot *slot,
		 struct dead_will *out);
/* The process is dead: reads its file, and begins to send soon. It still has its slots. */
void wills_open(struct proc *p);
/* A datagram to QP1 for a process that is gone: if it answers a will, that is done. */
bool wills_take_answer(struct daemon *d, const struct node_mad *mad);
/* As wills_take_answer, of a MAD that has come to a CA's port of the fabric. */
bool wills_take_fabric_answer(struct daemon *d, u32 port, const u8 *mad);
/* The process lives after all: its wills are not sent any more. */
void wills_discard(struct daemon *d, u64 process);
/* Sends what is due, at most WILLS_BURST of each process. */
void wills_run(struct daemon *d, u64 now_ns);
/* When something is due; UINT64_MAX: never. */
u64 wills_next_ns(const struct daemon *d);
void wills_clear(struct daemon *d);

#endif
