/* conn.h: connections: nodes with an IB CM each, the MADs between them, and consumers of all ends.
 * They have a world of their own, with nothing of the transport in it.
 *
 *   conn_world.c   what a seed decides; nodes: births, works, deaths
 *   conn_air.c     MADs in flight; how many of them each exchange may send
 *   conn_will.c    what a host sends in the name of a process that has died
 *   conn_model.c   the specification's states: which call and which event each one allows
 *   conn_call.c    the calls of the CM, their parameters drawn by lot
 *   conn_again.c   numbers that had another owner, limits that are used up
 *   conn_user.c    consumers: which call they make, and when
 *   conn_judge.c   events: is this one due?
 *   conn_said.c    messages: do they say what the other end has said?
 *   conn_final.c   the end: both ends must agree, everything must have ended
 */
#ifndef SIM_CONN_H
#define SIM_CONN_H

#include "cm/ib/cm_priv.h"
#include "sim.h"

enum {
	CONN_NODES = 4,
	CONN_ATTEMPTS = 160,
	CONN_SIDES = 4096,
	CONN_PROCESSES = 80,
	CONN_SERVICES = 3,
	CONN_NUMBERS = 128, /* communication IDs of a process that are used again and again */
	CONN_STATES = IB_CM_SIDR_REQ_RCVD + 1,
	CONN_EVENTS = IB_CM_SIDR_REP_RECEIVED + 1,
};
#define CONN_LAG_NS (100 * NS_PER_US) /* until a node's thread runs a work that is due, at most */

enum conn_role {
	CONN_LISTENS,
	CONN_ACTIVE,
	CONN_PASSIVE,
	CONN_PEER,
	CONN_ASKS, /* SIDR */
	CONN_ANSWERS,
};

enum conn_call {
	CONN_REQ,
	CONN_REP,
	CONN_RTU,
	CONN_REJ,
	CONN_MRA,
	CONN_DREQ,
	CONN_DREP,
	CONN_LAP,
	CONN_APR,
	CONN_SIDR_REQ,
	CONN_SIDR_REP,
	CONN_ESTABLISH, /* ib_cm_notify */
	CONN_CALLS
};

/* What a seed decides. */
struct conn_plan {
	u32 nodes, attempts;
	u64 span_ns;		 /* of the attempts' beginnings */
	u32 loss, duplicate;	 /* MADs of a thousand */
	u64 delay_ns, jitter_ns; /* one way */
	u8 timeout, life_time, mra_time, ack_delay; /* exponents */
	u8 retries;
	u64 think_ns;	   /* how long consumers take at most, mostly */
	u32 slow_permille; /* handlers that sleep */
	u64 slow_ns;	   /* so long at most */
	u32 wild_permille; /* turns with a call that the state forbids */
	u32 peer_percent, ask_percent;
	u32 chaos_ns; /* mean time between cuts, deaths and listeners that go; 0: none */
	bool cuts, kills, gaps; /* gaps: listeners go and come */
	bool unplugs;		/* devices go, and their consumers are left */
	u32 numbers;	   /* communication IDs that are used again; 0: none */
	bool same_slot;	   /* a process takes the slot of the dead one before it */
	u32 backlog, orphans; /* limits of the CM; 0: its own */
	u32 again_percent; /* of ended connections that are made anew, with the same two numbers */
	bool answers; /* a host executes the wills of its processes, and answers for the dead */
	/* no request may time out: everything arrives sooner or later, and consumers answer */
	bool fair;
};

struct conn_node;

/* One CM instance. */
struct conn_process {
	struct cm_device dev; /* first: the ops know the process by it */
	struct ib_device ib;
	struct work_queue queue;
	struct cm *cm;
	struct conn_node *node;
	u32 number; /* among all processes, from 1 */
	u32 slot;
	bool dead, dying; /* dying: as soon as its handler returns */
	bool unplugged;	  /* its device has gone; its consumers still have their ids */
	bool running;	  /* its queue's thread is in a work */
	u64 run_ns;	  /* of its next look; SIM_NEVER: none planned */
	u32 refused;	  /* requests that found the backlog full */
	u32 listens;	  /* calls of ops->listen that are on */
	struct conn_will *wills; /* by slot */
	u32 will_count;
};

struct conn_node {
	u32 id;
	union ib_gid gid;
	struct conn_process *live; /* NULL: none */
	u32 next_qpn, highest_qpn;
	u64 rests_ns[CONN_NUMBERS]; /* until then no id gets the number; 0: none has had it */
	u32 fresh; /* numbers behind those */
	/* when a service had no listener last; SIM_NEVER: it has none now */
	u64 absent_ns[CONN_SERVICES];
};

/* A request for one connection, or for a datagram queue pair. */
struct conn_attempt {
	u32 number;
	enum conn_role role; /* of the side that begins */
	struct conn_side *first, *second; /* second: of two peers */
	struct conn_node *from, *to;
	u32 service;
	const struct conn_attempt *before; /* between the same two, and it has ended */
	const struct conn_side *passive; /* the last that has answered; NULL: none */
	u64 since;
	u32 made; /* passive sides that were established */
};

/* One end, as its consumer knows it. */
struct conn_side {
	u32 index;
	enum conn_role role;
	struct conn_process *process;
	struct conn_attempt *attempt; /* NULL: listens */
	struct ib_cm_id *id;	      /* NULL: destroyed, or dead with its process */
	u32 local_id;		      /* host order */
	u32 service;
	struct conn_side *peer; /* once known */
	enum ib_cm_state state; /* by the model */
	enum ib_cm_lap_state lap;
	/* events that waited already when the consumer made its last call are judged by these */
	u32 late;
	enum ib_cm_state late_state;
	enum ib_cm_lap_state late_lap;
	bool owed;	 /* a call that the state allows was refused: an event must say why */
	bool in_handler, acting; /* acting: its handler itself calls the CM */
	bool ends;		 /* its handler is to return non-zero */
	bool waits; /* does nothing before its peer, or time, lets it */
	bool reused; /* its id or queue pair number has served another request before */
	bool keeps, notified;
	u32 destroyed_at; /* among all that were */
	bool destroyed, killed, rejected; /* rejected: by its consumer */
	bool established, left, failed;
	struct ib_sa_path_rec path;
	struct ib_cm_req_param req;
	struct ib_cm_rep_param rep;
	struct ib_cm_sidr_rep_param sidr;
	u32 turn; /* of the next planned one; earlier ones are void */
	u64 since; /* when the outstanding request began */
	u64 ended_ns;	 /* when the first DREP or REJ came to its process; 0: none */
	u64 timewait_ns; /* when its consumer heard of timewait */
	/* by attribute, less CM_REQ */
	u8 said_length[CM_ATTR_END - CM_REQ]; /* 0: its consumer has not said it */
	u8 said_serial[CM_ATTR_END - CM_REQ];
	u32 sent[CM_ATTR_END - CM_REQ]; /* MADs, of the outstanding exchange */
	u32 came[CM_ATTR_END - CM_REQ]; /* MADs that reached its process */
	u64 sent_ns; /* when it has sent the last MAD */
	u32 farewells; /* DREQs and REJs of its peer that reached its process */
};

struct conn {
	struct conn_plan plan;
	struct conn_node nodes[CONN_NODES];
	struct conn_process *processes[CONN_PROCESSES];
	struct conn_attempt attempts[CONN_ATTEMPTS];
	struct conn_side *sides[CONN_SIDES];
	u32 process_count, attempt_count, side_count, destroyed;
	u64 cut_ns[CONN_NODES][CONN_NODES]; /* nothing gets through until then */
	u32 flying;
	struct conn_side *caller; /* its consumer is in a call of the CM */
	bool quiet;
};
extern struct conn conn;

/* How often what is judged has happened, over all seeds of a run. */
struct conn_coverage {
	u64 killed[CONN_STATES], destroyed[CONN_STATES], events[CONN_EVENTS];
	u64 calls[CONN_CALLS], refused, late, stale, connections, peers, wills;
	/* owners of a number after the first, MADs for the one before, requests dropped, orphans
	 * that gave way, connections made anew */
	u64 renumbered, belated, full, evicted, again;
};
extern struct conn_coverage conn_seen;

/* ---- conn_world.c ---- */

/* One seed's world, from its beginning to its end. */
void conn_run(u64 seed, bool tracing);
void conn_print_coverage(void);
/* Has the process' thread look at its queue. */
void conn_wake(struct conn_process *p);
/* The thread of the process sleeps in a handler; everything else goes on. */
void conn_sleep(struct conn_process *p, u64 ns);
/* Now and then the process dies in the middle of an exchange. */
void conn_strike(struct conn_process *p);
/* A listener of the node goes, and comes again. */
void conn_gap(struct conn_node *n);
/* No process dies any more, and every node has one. */
void conn_clear_up(void);

enum conn_trace_kind {
	CONN_TR_BEGIN = 100,
	CONN_TR_TX,
	CONN_TR_RX,
	CONN_TR_LOST,
	CONN_TR_CALL,
	CONN_TR_EVENT,
	CONN_TR_DESTROY,
	CONN_TR_BIRTH,
	CONN_TR_DEATH,
	CONN_TR_SLEEP,
	CONN_TR_CUT,
	CONN_TR_UNPLUG,
	CONN_TR_QUIET,
	CONN_TR_END,
};
void conn_trace(const struct conn_node *n, enum conn_trace_kind kind, u64 a, u64 b, u64 c, u64 d);
const char *conn_state_name(u32 state);
const char *conn_event_name(u32 event);
const char *conn_attr_name(u32 attr);

/* ---- conn_air.c ---- */

extern const struct cm_device_ops conn_ops;
/* One MAD sets out along the route; it is lost, or comes once or twice. by: whose it is. */
void conn_air_launch(struct conn_node *from, const struct cm_route *route, struct conn_side *by,
		     const u8 *mad);

/* ---- conn_will.c ---- */

void conn_will_set(struct cm_device *dev, u32 slot, const struct cm_route *route, const u8 *mad,
		   const struct mad_connection *connection);
u32 conn_will_count(const struct conn_process *p);
/* The process has died, and its host lives. */
void conn_will_execute(struct conn_process *p);

/* ---- conn_again.c ---- */

void conn_again_draw(struct conn_plan *p, u64 seed);
/* Gives the limits to the process' CM. */
void conn_again_limit(struct conn_process *p);
/* The process' CM is about to give an id its number. */
void conn_number_draw(struct conn_process *p);
/* The side has its number. */
void conn_number_begin(struct conn_side *s);
/* A MAD names the number, or its owner has gone: it rests, or longer if a will may name it. */
void conn_number_rest(struct conn_node *n, u32 local_id, bool willed);
struct conn_limits {
	u32 backlog, ids;
	u64 full;
};
struct conn_limits conn_limits_read(struct conn_process *p);
/* A MAD has come, and was answered by so many. asks: it is a request for a listener. */
void conn_limits_judge(struct conn_process *p, const struct conn_limits *before, bool asks,
		       u32 answers);
/* Destroys the id of the side. */
void conn_again_destroy(struct conn_side *s, struct ib_cm_id *id);

/* ---- conn_model.c ---- */

/* Does the state allow the call? Then *state and *lap are what follows. */
bool conn_model_call(enum conn_call call, enum ib_cm_state *state, enum ib_cm_lap_state *lap);
/* The same of an event. */
bool conn_model_event(const struct ib_cm_event *event, enum ib_cm_state *state,
		      enum ib_cm_lap_state *lap);
/* The state waits for the peer, or for time: it must end without the consumer. */
bool conn_model_ends(enum ib_cm_state state);

/* ---- conn_call.c ---- */

struct conn_side *conn_side_create(struct conn_process *p, enum conn_role role,
				   struct conn_attempt *attempt);
/* Gives it an id of its own. */
void conn_side_open(struct conn_side *s);
/* Whose id has the number; NULL: nobody's. */
struct conn_side *conn_side_find(const struct conn_process *p, u32 local_id);
void conn_listen(struct conn_process *p, u32 service);
/* Makes the call with parameters drawn by lot; judges its result. */
int conn_do(struct conn_side *s, enum conn_call call);
void conn_destroy(struct conn_side *s);
/* Events that its handler has not been told. */
u32 conn_pending(const struct conn_side *s);
/* The private data that a side says in a message. */
void conn_text(const struct conn_side *s, enum cm_attr attr, u8 *to, u32 length);

/* ---- conn_user.c ---- */

void conn_begin_attempt(void *arg, u64 n);
/* The consumer is to think about it, and then to have its turn. */
void conn_plan_turn(struct conn_side *s);
void conn_turn(void *arg, u64 n);
/* Does what the other end waits for, and nothing else. */
void conn_settle(struct conn_side *s);

/* ---- conn_said.c ---- */

/* Who has said what an event brings: each byte must be what that consumer said, and all others
 * zero. NULL: no consumer has, its CM speaks. */
struct conn_side *conn_speaker(const struct conn_node *n, const struct ib_cm_event *event);
/* The REQ or REP of the side `from` must be what it was sent as. */
void conn_judge_req(const struct conn_side *s, const struct conn_side *from,
		    const struct ib_cm_req_event_param *e);
void conn_judge_rep(const struct conn_side *s, const struct conn_side *from,
		    const struct ib_cm_rep_event_param *e);
/* What both queue pairs are given must fit together. */
void conn_judge_attributes(const struct conn_side *s);

/* ---- conn_judge.c ---- */

int conn_handler(struct ib_cm_id *id, struct ib_cm_event *event);

/* ---- conn_final.c ---- */

void conn_final(void);

#endif
