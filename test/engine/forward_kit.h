/* forward_kit.h: an XRC target whose requests name the SRQs of four processes, its own among them,
 * in virtual time: an initiator, the target, and three processes beside it, joined by ways with few
 * places and delays by lot, from a seed.
 */
#ifndef ENGINE_FORWARD_KIT_H
#define ENGINE_FORWARD_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ibt/ibt.h"

enum {
	MEMBERS = 5, /* 0 is the initiator, 1 the target; all but 0 have an SRQ */
	SEEDS = 200,
	REQUESTS = 150,
	OUT = 32,	  /* requests of the initiator */
	ROOM = 40 << 10,  /* bytes of the longest message, and more */
	RECEIVES = 6,	  /* of an SRQ */
	PLACES = OUT + 1, /* of WRITEs */
	MTU = 4096,
	PRIVATE = 7, /* a domain */
	QPN = 3,     /* of initiator and target, in their process */
	/* a member's memory: receives, places of WRITEs, what READs show, a counter */
	AT_WRITES = RECEIVES * ROOM,
	AT_READS = AT_WRITES + PLACES * ROOM,
	AT_COUNT = AT_READS + ROOM,
	MEMORY = AT_COUNT + 64,
};

#define DOMAIN (IBT_XRC_SHARED | 7)

struct flight {
	struct list_head node;
	u64 due_ns;
	struct pkt pkt;
	u8 payload[];
};

/* One member's way to another; the receiver's own way back is its name for the sender. */
struct way {
	struct path_dest dest; /* first */
	struct member *owner;
	int to;
	struct list_head flights;
	u32 count;
	u64 last_ns;
};

struct request {
	u64 tag;
	enum ibv_wr_opcode opcode;
	int to;
	u32 length, place, count;
};

struct member {
	int index;
	bool dead;
	struct path path;
	u64 counters[PATH_COUNTERS];
	struct way way[MEMBERS];
	u32 refs;
	struct mem_table mem;
	struct timer_set timers;
	struct cq cq;
	struct ibt *ibt;
	u8 *memory;
	u32 key;
	struct ibt_srq *srq;
	u64 receive[RECEIVES];		 /* 1: posted */
	struct request wanted[REQUESTS]; /* SENDs that name it, in order */
	u32 wanted_count, wanted_next;
	u32 adds, writes;
	u32 flushed;   /* receives that a death has taken along */
	u64 asleep_ns; /* until then it does not run */
};

struct forward {
	u64 now, random;
	struct member m[MEMBERS];
	struct ibt_qp *ini, *tgt;
	struct ibt_counters qp_counters;
	u8 *out; /* OUT buffers of the initiator's memory */
	struct request request[OUT];
	u32 posted, done;
	u32 room; /* packets of a way */
	u64 domain;
	bool crowd;	  /* each number is one of a target */
	u32 long_one_in;  /* requests: with many of them a target holds more than it has room for */
	bool failed;	  /* a request has: all that follow are flushed */
	bool gone;	  /* the target does not receive any more */
	struct pkt asked; /* the initiator's last packet */
	u32 answers;	  /* packets from the target to it */
};

extern struct forward h;

/* By the seed, below `below`. */
u32 lot(u32 below);
/* A number of a process' queue pairs or SRQs. */
u32 number_of(int index, u32 low);
/* Opens the members, unconnected; or connected. */
void forward_begin(u64 seed, u64 domain);
void forward_open(u64 seed);
/* Destroys all, and expects that nothing is left. */
void forward_close(void);
/* Posts the next of h.request. */
void request_post(void);
/* Requests until there are so many; of REQUESTS until they have all completed. */
void forward_requests(u32 many);
/* Time passes; or until the next member has something to do. */
void forward_pass(u64 ns);
void forward_step(void);
/* The path's send: with a packet of any content. */
int forward_path_send(struct path_dest *d, const struct pkt *p, const struct iovec *iov, int n);
/* The oldest packet on a way, NULL if there is none; takes it from the way. */
struct flight *way_first(const struct way *w);
void way_take(struct way *w, struct flight *f);

#endif
