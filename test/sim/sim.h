/* sim.h: the simulated world: virtual time, processes, and the links between them.
 *
 * One thread. Everything that happens is an event at a virtual instant; one seed decides all of it.
 * A process is an adapter: an engine (ibt) with its key table and timers, and a path that this
 * file's world implements. What the processes do with their verbs is model.h's.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/clock.h"
#include "base/list.h"
#include "base/timer.h"
#include "ibt/ibt.h"
#include "mem/mem.h"
#include "path/path.h"
#include "rng.h"

enum {
	SIM_PROCS = 6,
	SIM_NODES = 3,
	SIM_PLANES = 2, /* ways between two nodes */
	SIM_CQS = 3,
	SIM_PDS = 2,
	SIM_XRCS = SIM_PDS + 1, /* the last one is of another domain */
};
#define SIM_NEVER UINT64_MAX

struct proc;
struct sqp;
struct srq;
struct tagged;

/* ---- trace.c ---- */

/* What happened. Each has up to four numbers; trace.c has the sentence for each. */
enum trace_kind {
	TR_BEGIN,
	TR_TX,
	TR_TX_REFUSED,
	TR_RX,
	TR_LOST,
	TR_DIRECT,
	TR_PULL,
	TR_CREATE,
	TR_MODIFY,
	TR_DESTROY,
	TR_POST,
	TR_POST_FAILED,
	TR_RECV,
	TR_DONE,
	TR_EVENT,
	TR_TIMERS,
	TR_STOP,
	TR_CONTINUE,
	TR_KILL,
	TR_PORT,
	TR_KEY,
	TR_GROUP,
	TR_QUIET,
	TR_END,
	TR_ENDS,
};

/* Mixes the event into the hash of the run, and prints it if asked to. p may be NULL. */
void trace(const struct proc *p, enum trace_kind kind, u64 a, u64 b, u64 c, u64 d);
/* Mixes the event into the hash of the run. True: it is to be printed. */
bool trace_mix(u32 who, u32 kind, u64 a, u64 b, u64 c, u64 d);
/* An oracle has spoken: prints seed, commit and reason, ends the program with status 1. */
void sim_fail(const char *fmt, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));
#define sim_check(ok, ...)                                                                         \
	do {                                                                                       \
		if (unlikely(!(ok)))                                                               \
			sim_fail(__VA_ARGS__);                                                     \
	} while (0)
const char *trace_wr_name(u32 opcode);
const char *trace_status_name(u32 status);

/* ---- world.c ---- */

/* What a seed decides about the whole run. */
struct plan {
	u32 nodes, procs;
	u32 requests;		/* send requests to be posted in all */
	u32 pairs, datagram_qps; /* connections and UD queue pairs alive at a time */
	u32 fault_permille;	/* requests with something wrong in them */
	u32 modify_permille;	/* of the actions: states changed, objects destroyed */
	u32 rebind_permille;	/* likewise: keys bound to other memory */
	u32 invalidate_permille; /* of the requests: those that make a key invalid */
	u32 small_cq_percent;	/* completion queues that are too small */
	u32 chaos_us;		/* mean time between stops, deaths, port changes; 0: none */
	u32 late_percent;	/* how lazy receivers are */
	u32 ring_slots, ring_bytes;
	u32 delay_ns, jitter_ns;
	u32 large_permille;	/* messages of up to 100 KiB */
	bool direct;		/* peers may reach each other's memory */
	u32 left_percent;	/* of such operations are left to the peer */
	bool kills;
	bool air;	/* nodes are connected by what loses packets, else by shared memory, too */
	bool air_only;	/* also within a node */
	bool ipv6;
	u32 full_permille; /* sockets without room */
	bool tagged; /* tag-matching SRQs and nothing else (tagged.h) */
	bool wide; /* XRC, atomic writes and flushes */
	bool hands; /* XRC targets hand messages to SRQs of other processes (xrc.c) */
	bool migrates; /* RC connections with alternate paths */
	bool releases; /* memory is released as soon as a READ of it has its data */
	bool fills;    /* lazy polls, small send queues whose requests are hardly ever signaled */
	bool ends;     /* connections whose ends do not agree (ends.c) */
	u32 lone; /* requesters without a peer queue pair, once it is quiet */
};

/* Of one direction between two nodes. */
struct weather {
	u32 loss, duplicate, reorder, corrupt, mark; /* packets of a thousand */
	bool marks; /* ... and whatever waits long */
	u64 delay_ns, jitter_ns;
	u64 ns_per_kib; /* bandwidth */
	u64 queue_ns;	/* what would wait longer is lost */
	u64 busy_ns, last_ns; /* when the line is free again; the last arrival in order */
	u64 cut_until_ns;     /* nothing gets through */
};

struct node {
	u32 id;
	bool up;
	u64 changed_ns; /* when the port last went down or up */
};

struct world {
	u64 seed, now;
	struct rng rng;
	struct plan plan;
	struct node nodes[SIM_NODES];
	struct proc *procs[SIM_PROCS];
	u32 requests_left;
	u32 turns; /* of programs, in all */
	u32 kills;
	struct weather weather[SIM_PLANES][SIM_NODES][SIM_NODES];
	u32 targets[SIM_PROCS]; /* of XRC that each process has had */
	bool quiet;   /* nothing goes wrong any more; what is under way is to end */
	bool tracing;
	u64 hash, events;
};
extern struct world world;
#define RNG (&world.rng)

/* An empty world: time, chance and the trace. `salt`: which of the seed's worlds. */
void world_open(u64 seed, u64 salt, bool tracing);
void world_close(void);
/* `tagged`: the world of tag-matching SRQs, else that of all other verbs. */
void world_begin(u64 seed, bool tagged, bool tracing);
/* Runs `fn(arg, n)` at the virtual instant. Events of one instant run in the order they were
 * added. */
void world_at(u64 when, void (*fn)(void *arg, u64 n), void *arg, u64 n);
/* Runs until nothing is left to do, the instant has passed or `done` says so. */
void world_run(u64 until, bool (*done)(void));
/* Somebody sleeps inside a verb: the others go on meanwhile. */
void world_sleep(u64 ns);
void world_end(void);

/* ---- proc.c ---- */

/* A simulated process with one adapter. */
struct proc {
	u32 id, slot;
	struct node *node;
	bool dead, stopped;
	bool port_up;	   /* as the process knows it; the node may know otherwise already */
	u64 port_seen_ns; /* node->changed_ns of what it knows */
	u64 stopped_ns;	   /* when it was last stopped or continued */
	u64 stops_ns;	   /* how long all its stops were that are over */
	u64 dead_ns;
	bool asleep;	   /* inside a verb that waits: the engine goes on, the program does not */
	u64 wake_ns;	   /* of its next pass; SIM_NEVER: none planned */
	u64 program_ns;	   /* of the program's next turn */
	u32 pace_ns;	   /* mean time between turns */
	struct ibt *ibt;
	struct mem_table mem;
	struct timer_set timers;
	u64 counters[PATH_COUNTERS];
	struct sim_path *path; /* what is reliable */
	struct air_path *air;
	struct arena *arena;
	struct scq *cqs[SIM_CQS];
	u32 cq_count;
	struct srq *srq;
	struct srq *xrc[SIM_XRCS]; /* NULL: it is no target of XRC connections */
	struct tagged *tm; /* NULL: this is not the world of tags */
	struct sqp *fresh; /* the last one that received something */
	u32 next_index; /* of a queue pair's number */
	u32 local_key[SIM_PDS]; /* the whole arena, for local use */
};

struct proc *proc_create(u32 id, struct node *node);
void proc_destroy(struct proc *p);
/* Has the process look around at the instant, or earlier if it is to anyhow. */
void proc_wake(struct proc *p, u64 at);
/* The program goes into a verb that may sleep; its engine is looked after meanwhile. */
void proc_enter(struct proc *p);
void proc_stop(struct proc *p);
void proc_continue(struct proc *p);
void proc_kill(struct proc *p);
/* The node's port changes; each process hears of it a little later. */
void node_set_port(struct node *n, bool up);
static inline bool proc_runs(const struct proc *p)
{
	return !p->dead && !p->stopped;
}

/* ---- link.c ---- */

struct sim_path *path_create(struct proc *p);
void path_destroy(struct sim_path *sp);
/* The processes exist now. */
void path_connect(struct proc *p);
struct path *path_of(struct proc *p);
/* Do packets between them get lost? */
bool path_is_air(const struct proc *a, const struct proc *b);
/* The destination that stands for a queue pair of `peer`, with a reference. */
struct path_dest *path_dest_of(struct proc *p, struct proc *peer);
/* The same for one that does not exist, on the path that leads to `peer`. */
struct path_dest *path_nowhere(struct proc *p, struct proc *peer);
/* Receives at once what is under way to the process on reliable paths. */
void path_drain(struct proc *p);
/* When the next packet for the process arrives; SIM_NEVER: none is under way. */
u64 path_next_arrival(const struct proc *p);
/* Does anybody owe an acknowledgement that an idle moment would send? */
bool path_owes(const struct proc *p);
/* The process has died: its peers hear of it when what it had sent has been received. */
void path_proc_died(struct proc *p);
void path_gid(const struct node *n, u8 gid[16]);
bool path_is_quiet(void);
/* No list of the process' paths may have a node in these bytes, which a queue pair was. */
void path_check_gone(const struct proc *p, const void *from, size_t size);
/* The same of one destination. */
void path_check_off(const struct path_dest *d, const struct proc *p, const void *from, size_t size);
void link_trace(const struct proc *p, enum trace_kind kind, const struct proc *peer,
		const struct pkt *k, u64 extra);
/* Now and then a process dies in the middle of what it sends or receives. */
void link_strike(struct proc *from, struct proc *to);
/* What no engine may hand to a path. */
void link_judge(const struct path_dest *d, const struct pkt *k, const struct iovec *iov, int n);

/* ---- air.c ---- */

struct air_path *air_create(struct proc *p);
void air_destroy(struct proc *p);
struct path *air_path(struct proc *p);
/* `n`: NULL: nowhere. */
struct path_dest *air_dest(struct proc *p, const struct node *n, u32 plane);
/* The node's address on a plane; on the first one that is path_gid's. */
void air_gid(const struct node *n, u32 plane, u8 gid[16]);
u64 air_next_arrival(const struct proc *p);
bool air_owes(const struct proc *p);
void air_check_gone(const struct proc *p, const void *from, size_t size);
/* What is under way to the process is lost. */
void air_forget(struct proc *p);
void air_draw_weather(void);
/* From now on nothing is lost any more. */
void air_clear_up(void);

#endif
