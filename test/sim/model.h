/* model.h: the programs inside the simulated processes, and what they know must happen.
 *
 *   arena.c    memory: what each byte is, or may be
 *   cell.c     memory that a peer writes, reads and counts in
 *   qp.c       queue pairs: created, connected, modified, destroyed
 *   ends.c     connections whose ends do not agree
 *   reopen.c   connections that are reset and made anew with the same queue pairs
 *   place.c    atomic writes and flushes
 *   migrate.c  connections that move to their alternate paths
 *   xrc.c      XRC: connections whose requests name the SRQ that takes them
 *   lone.c     requesters whose peer queue pairs are gone, beside one whose peer is there
 *   key.c      keys of cells: regions, page lists, windows; bound anew, invalidated
 *   window.c   windows of type 2, bound by requests
 *   group.c    multicast groups: who is attached, and what is sent to all of them
 *   event.c    asynchronous events: is each due, and does none fail to come?
 *   post.c     requests drawn by lot
 *   judge.c    completions: is this one due, and is its status the right one?
 *   reason.c   queue pairs that fail by themselves: does each have a reason?
 *   program.c  what a process does in its turns
 *   tagged.h       a world of its own: tag-matching SRQs
 *   final.c    the end: everything must have ended, and everything must be given back
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "sim.h"

/* ---- arena.c ---- */

/* The memory of a process, and beside it what must be in it. */
enum { ARENA_BYTES = 2 << 20, ARENA_UNIT = 64 };

struct arena {
	u8 *bytes;
	u8 *want;  /* what is there */
	u8 *loose; /* 0xff: may be anything at the moment */
	u8 used[ARENA_BYTES / ARENA_UNIT];
};

/* A piece of an arena; units before and after it stay untouched by everybody. */
struct slice {
	u32 at, length; /* the program's bytes */
	u32 unit, units; /* what is taken for them */
};

struct arena *arena_create(void);
void arena_destroy(struct arena *a);
/* false: no room. Its content is what the arena's free memory has. */
bool slice_take(struct arena *a, u32 length, struct slice *s);
/* The program scribbles over it first: whoever still reads it reads rubbish, whoever still
 * writes is found. */
void slice_give(struct arena *a, struct slice *s);
/* Bytes `from` .. of the text that belongs to `tag`. */
u8 text_byte(u64 tag, u64 i);
void text_fill(u8 *to, u64 tag, u64 from, u32 n);
/* Writes text, as the program. */
void slice_write(struct arena *a, const struct slice *s, u64 tag, u64 from);
/* From now on [at, at + n) may change. */
void arena_loosen(struct arena *a, u32 at, u32 n);
/* Whatever is there now stays. */
void arena_settle(struct arena *a, u32 at, u32 n);
/* Every byte that may not change is as it was. */
void arena_check(const struct proc *p, u32 at, u32 n, const char *what);

/* ---- cell.c ---- */

/* A write that may or may not have been carried out. */
struct version {
	struct list_head node;
	u64 tag;  /* of its text; also the request's number */
	u32 from, length;
	u64 fenced_after; /* READs up to this number have ended before it begins; 0: none */
};

enum cell_kind {
	CELL_REGION,
	CELL_PAGES,  /* a region of pages */
	CELL_WINDOW, /* a window of type 1 on a region of its own */
	CELL_WINDOW2, /* the same of type 2 */
	CELL_FAST,   /* pages mapped under a key that comes back with others */
};

/* Memory of one process that one connection's other end writes and reads. */
struct cell {
	struct list_head node; /* of its connection's end that owns the memory */
	struct sqp *qp;
	struct proc *proc;
	struct slice slice;
	u32 key, pd, access;
	u32 parent; /* the window's region; 0: none */
	u64 iova;
	u8 kind; /* enum cell_kind */
	bool withdrawn;	 /* the key is not valid any more */
	bool released;	 /* given back */
	bool passed_on;	 /* the key's place is another cell's now */
	bool closed;	 /* nobody writes any more */
	u64 victim_of;	 /* the request that invalidates it, posted; 0: none */
	bool by_peer;	 /* that one is the peer's SEND_WITH_INV */
	struct list_head versions; /* oldest first */
	u32 version_count;
};

struct cell *cell_create(struct sqp *q);
void cell_destroy(struct cell *c);
/* A write has been posted: its bytes may change. */
void cell_pend(struct cell *c, u64 tag, u32 from, u32 n, u64 fenced_after);
/* It has been carried out, and everything before it of the same connection. */
void cell_done(struct cell *c, u64 tag);
/* It was never begun. */
void cell_forget(struct cell *c, u64 tag);
/* Is the byte at `i` one that may be there? `reader`: of a READ with that number; 0: of the
 * memory. */
bool cell_allows(const struct cell *c, u32 i, u8 byte, u64 reader);
void cell_check(const struct cell *c, const char *when);
/* The write has been carried out, whatever came after it. */
void cell_check_written(const struct cell *c, u64 tag);
/* Nobody writes any more: checks, and from now on nothing changes. */
void cell_close(struct cell *c);
void cell_withdraw(struct cell *c);
/* Its memory is there, its key not yet. NULL: no room. */
struct cell *cell_new(struct sqp *q);
/* As long as it lives others of its connection come after it. */
void cell_add(struct cell *c);

/* ---- key.c ---- */

/* A key for the cell, of a kind drawn by lot. */
void key_register(struct cell *c);
/* Gives it back, or what is left of it. */
void key_release(struct cell *c);
/* May the key be invalidated, and bound to other memory? */
static inline bool key_is_rebindable(const struct cell *c)
{
	return (c->kind == CELL_WINDOW || c->kind == CELL_WINDOW2 || c->kind == CELL_FAST) &&
	       !c->passed_on && !c->released;
}
/* It has been invalidated. */
void key_invalidated(struct cell *c);
/* Its key names other memory from now on: those who have the old one reach nothing. */
void key_rebind(struct cell *c);

struct send;
/* The READ has its data: in half of the seeds the program whose memory it is releases that at once,
 * as the sender of a rendezvous does when the receiver tells that it has the message. */
void key_release_read(const struct send *s);

/* ---- window.c ---- */

/* A key for the cell, of a window that is bound to it. */
void window_register(struct cell *c);
/* Posts a bind of the cell's window to other memory, if the window is free, or one that fails. */
void window_rebind(struct cell *c);
/* The request has bound it. */
void window_bound(struct send *s);
/* The request has failed, or nobody will ever say. */
void window_dropped(struct send *s);
/* A window of the same process and domain that is bound to another queue pair, at least so long and
 * with these rights; NULL: none. */
struct cell *window_of_another(const struct sqp *owner, u32 access, u32 length);
/* One of the queue pair's that is bound, or to nothing; NULL: none. */
struct cell *window_free_of(const struct sqp *q, bool bound);

/* An atomic operation on a counter. */
struct count_op {
	u64 compare, swap, add; /* FETCH_ADD: add; else compare and swap */
	u64 original;
	bool adds, known, used;
};

enum { COUNTER_OPS = 256 };

/* Eight bytes that everybody of a protection domain counts in. Values only grow, so the order of
 * the operations is the order of what they found. */
struct counter {
	struct proc *proc;
	struct slice slice;
	u32 key, pd;
	u64 begin;
	u64 floor; /* the largest value that is known to have been there */
	struct count_op ops[COUNTER_OPS];
	u32 count;
};

struct counter *counter_create(struct proc *p, u32 pd);
void counter_check(struct counter *c);
void counter_destroy(struct counter *c);

/* ---- completion queues and shared receive queues ---- */

struct scq {
	struct cq cq;
	struct proc *proc;
	bool small;	 /* it will overflow */
	bool overflowed; /* nothing is added any more */
};

struct srq {
	struct ibt_srq *srq;
	struct proc *proc;
	u32 pd, max_wr, max_sge;
	struct list_head recvs;
	u32 outstanding;
	u32 limit;    /* an event is due when fewer are left; 0: not armed */
	u32 at_arm;   /* outstanding, when it was armed */
	u32 since_arm; /* completions since then */
	/* taken by queue pairs that were then reset or destroyed, at most: without a completion */
	u32 forgotten;
	/* of an XRC domain */
	u32 number;	 /* 0: of none */
	struct scq *cq;
	bool gone;	 /* destroyed: requests that name it are refused */
	struct srq *older; /* had its place before */
};

/* ---- multicast ---- */

enum { SIM_GROUPS = 2, GROUP_QPN = 0xffffff };

struct group {
	u8 gid[16];
	u32 qkey;
};
extern struct group groups[SIM_GROUPS];

void groups_begin(void);
/* For the engine: the queue pairs that the address stands for. */
int group_members(struct proc *p, const u8 gid[16], u32 from, struct ibt_member *out, int max);
/* Comes or goes. */
void group_change(struct sqp *q);
bool group_is_attached(const struct sqp *q, const struct group *g);

/* ---- requests ---- */

enum {
	MAX_SGES = 8,
	DATAGRAM_BYTES = 4096,
	SHARED_BYTES = DATAGRAM_BYTES + IBT_GRH, /* of a shared receive request */
	UC_BYTES = 6000,
	LARGE_BYTES = 100 << 10,
};

enum fault {
	FAULT_NONE,
	FAULT_LKEY, /* an unknown local key */
	FAULT_LPD,  /* a local key of another protection domain */
	FAULT_RKEY, /* an unknown remote key */
	FAULT_RPD,
	FAULT_RQP,	 /* a window of another queue pair */
	FAULT_BEYOND,	 /* one byte too many at the end */
	FAULT_BEFORE,	 /* one byte too early */
	FAULT_ACCESS,	 /* a key without that right */
	FAULT_ALIGN,	 /* atomics */
	FAULT_QKEY,	 /* datagrams */
	FAULT_WITHDRAWN, /* the cell's key has been withdrawn since */
	FAULT_VICTIM,	 /* a key that cannot be invalidated */
	FAULT_SRQ,	 /* XRC: a number that no SRQ of the target's domain has */
	FAULT_BIND,	 /* a window or region that cannot be bound */
	FAULT_MTU,	 /* too long for the other end's path MTU */
	FAULT_SILENT,	 /* the peer never takes it, nor says so */
	FAULT_DUPLICATE, /* the peer takes it for what it has had: acknowledged, not executed */
};

/* A message that takes a receive request at the other end. */
struct message {
	u64 tag;
	u32 length, index; /* index: among those of its connection */
	u8 opcode;
	bool solicited;
	u32 imm;
	u8 fault;
	bool misfit;
	bool rnr_possible; /* no receive request was there for it when it was posted */
	bool delivered, sent; /* the receiver, the sender has a completion */
	u8 sent_status, delivered_status;
	u32 src_qpn;
	u64 recv_posted_ns;  /* delivered: when the program posted what took it */
	struct cell *cell;   /* WRITE with immediate */
	struct cell *victim; /* SEND_WITH_INV */
	struct srq *srq;     /* XRC: that it names */
};

struct send {
	struct list_head node;
	u64 tag; /* also wr_id, and the text that it carries */
	struct sqp *qp;
	u8 opcode, fault;
	bool signaled, fenced;
	bool misfit; /* longer than a packet of one end, and their path MTUs differ */
	u8 psns;     /* ends.c: that it counts */
	u32 length, slices;
	struct slice slice[MAX_SGES];
	struct cell *cell;
	u32 cell_from;
	struct counter *counter;
	u32 op;
	u64 floor; /* what the counter had reached when it was posted */
	struct message *message;
	struct srq *srq; /* XRC: that it names, where that is sound */
	struct group *group; /* sent to all of it */
	u32 imm;
	bool solicited;
	struct cell *victim; /* what it invalidates */
	struct cell *bound, *bound_from; /* what it binds, and whose window that is */
	u64 posted_ns;
	u64 peer_stopped_ns; /* how long the peer had been stopped by then */
	bool blamed; /* the peer may have failed for it */
};

struct recv {
	struct list_head node;
	u64 tag;
	struct srq *srq; /* NULL: in a queue pair's own queue */
	u32 length, slices;
	struct slice slice[MAX_SGES];
	bool bad_key;
	u64 index; /* among those of its queue pair */
	u64 posted_ns;
};

/* ---- qp.c ---- */

enum { TM_STREAM = 512 };

/* Why a queue pair may be in the error state. */
enum {
	WHY_PROGRAM = 1, /* its own program moved it there */
	WHY_REQUEST = 2, /* a send request failed */
	WHY_RECEIVE = 4, /* a receive request failed */
	WHY_PEER = 8,	 /* the peer asked for what it may not have */
};

/* A destination that nobody has. */
enum astray { ASTRAY_NONE, ASTRAY_DEST /* no process */, ASTRAY_QPN };

struct sqp {
	struct proc *proc;
	struct ibt_qp *engine; /* NULL: destroyed, or another connection's now */
	struct sqp *peer;      /* RC, UC: the other end, for good */
	struct sqp *next;      /* the connection that follows with the same queue pair */
	u32 qpn, type, pd, pd_number;
	struct scq *send_cq, *recv_cq;
	struct srq *srq;
	struct ibv_qp_cap cap;
	bool sig_all, mute; /* mute: hardly any request is signaled */
	u8 timeout, retry_cnt, rnr_retry, min_rnr, rd_atomic, dest_rd_atomic, mtu;
	u32 access, qkey, sq_psn, rq_psn;
	/* ends.c */
	s32 shift;	      /* between the first PSN that it expects and its peer's first one */
	u8 astray;	      /* enum astray */
	bool shut;	      /* posts no more: from here on both ends count different PSNs */
	u32 psns, drawn_psns; /* of requests that the peer takes for duplicates */
	u32 skipped;	      /* messages to it that it takes for duplicates */
	struct ibt_counters counters;
	/* what publish() has shown */
	u8 shown_state;
	u32 shown_access, shown_peer;

	u64 receiving_ns; /* since when it receives; SIM_NEVER: it does not */
	u64 sending_ns;	  /* since when it is in RTS without a break; SIM_NEVER: it is not */
	u64 absent_ns;	  /* since when it does not receive */
	u64 progress_ns;  /* last completion of a send request that was not flushed */
	u32 why;	  /* WHY_* */
	bool flushed;	  /* a send request has failed or was flushed */
	bool recv_flushed; /* a receive request likewise */
	bool forgotten;	  /* reset or destroyed: completions were dropped */
	bool going;	  /* is being destroyed: the adapter does not know it any more */
	bool ending;	  /* the program will destroy it */
	bool reset;	  /* ready to be connected anew */
	bool again;	  /* its queue pair has been another connection's */
	bool lone;	  /* lone.c: one end of a connection that never has another */
	bool drain_asked; /* SQD: an event is wanted when what has begun is done */
	bool drained;	  /* it has come */
	u8 plane;	  /* the one that it sends on */
	u8 alt_timeout;	  /* of the other one */
	bool mig_asked;	  /* the other one is its alternate path, and it is to be ready for it */
	bool mig_refused; /* PATH_MIG_ERR has come since */
	bool mig_moving;  /* it moves inside the call that has asked it to */
	bool said_migrated[SIM_PLANES]; /* by a packet there */
	u32 moves;
	u64 moved_ns;	  /* the last one: its retry budget begins */
	struct group *group; /* UD: it may be attached to */
	bool attached;

	struct list_head sends; /* posted, without completion */
	u32 send_count;
	struct list_head recvs;
	u32 recv_count;
	u64 recv_posted;
	/* RC, UC: in order; UD: of all senders */
	struct message *messages[4096];
	u32 message_count; /* sent to this queue pair */
	u32 drawn; /* messages of the list of requests that is being drawn */
	u32 next_message;  /* to be delivered */
	struct list_head cells; /* in this process' memory, for the peer */
	u32 cell_count;
	u32 blamed;	 /* its requests for which the peer may have failed: reason.c */
	u64 lost_ns;	 /* when the last packet of the connection was lost */
	bool marked; /* a packet for it was, since the last CNP */
	u64 cnp_ns;  /* when it last sent one; 0: never */
	/* with a tag-matching SRQ (tagged.h) */
	struct tagged *tm;
	struct tagged_message *tagged_stream[TM_STREAM]; /* sent by it, in order */
	/* tagged_next: of its peer's, to be reported */
	u32 tagged_sent, tagged_next;
	u32 tagged_posted;				 /* requests in its send queue */
	/* A first packet has come of a message that may not have been reported: how many
	 * completions there were then. It is one of the first tagged_until of its peer's. */
	bool tagged_begun;
	u64 tagged_begun_at;
	u32 tagged_until;
};

enum { SIM_QPS = 512 };
extern struct sqp *sqps[SIM_QPS];
extern u32 sqp_count;
extern struct counter *counters[SIM_PROCS * SIM_PDS];
extern u32 counter_count;
extern u64 next_tag;

static inline bool sqp_state_receives(u32 s)
{
	return s == IBV_QPS_RTR || s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE;
}

static inline bool sqp_is_xrc(const struct sqp *q)
{
	return q->type == IBV_QPT_XRC_SEND || q->type == IBV_QPT_XRC_RECV;
}

static inline bool sqp_is_reliable(const struct sqp *q)
{
	return q->type == IBV_QPT_RC || sqp_is_xrc(q);
}

struct sqp *sqp_find(const struct proc *p, u32 qpn);
/* One with an engine, in RESET. NULL: there are enough. */
struct sqp *sqp_create(struct proc *p, u32 type);
/* Its engine's part, once all of it is known. */
void sqp_create_engine(struct sqp *q);
/* Whose the engine's queue pair is now. */
void sqp_own(struct sqp *q);
struct sqp *sqp_of(const void *owner);
/* Two connected queue pairs, or one for datagrams; they reach RTS by and by. */
void pair_open(struct proc *a, struct proc *b, u32 type);
/* Both are new, the first one's wishes count: cells. */
void pair_join(struct sqp *x, struct sqp *y);
/* It will go its way to RTS. */
void sqp_connect(struct sqp *q);
/* One more connection of the process, without an engine yet. NULL: there are enough. */
struct sqp *sqp_new(struct proc *p, u32 type);
/* What a connection wants: timers, counts, numbers. */
void sqp_draw(struct sqp *q);
void datagram_open(struct proc *p);
void sqp_modify(struct sqp *q, enum ibv_qp_state to);
/* Moves it to ERR, and destroys it later. */
void sqp_end(struct sqp *q);
/* Its adapter's port has changed, as the process knows it now. `was_up`: as it knew it before; what
 * is outstanding may be lost then, even if the port is up again. */
void sqp_set_port(struct proc *p, bool was_up);
/* The queue pair sends, or reaches a peer's memory: only while its port is up. One that is being
 * destroyed does not hear of its port any more. */
void sqp_judge_port(const struct proc *p, u32 qpn);
void sqp_destroy(struct sqp *q);
void sqp_free(struct sqp *q);
enum ibv_qp_state sqp_state(const struct sqp *q);
/* Has the queue pair been ready to receive without a break since then? */
bool sqp_received_since(const struct sqp *q, u64 since);
void sqp_publish(void *arg, struct ibt_qp *engine);

/* ---- ends.c ---- */

/* Draws in what the ends of a new connection differ. */
void ends_draw(struct sqp *x, struct sqp *y);
/* The number that the queue pair is given as its peer's. */
u32 ends_peer_qpn(const struct sqp *q);
/* Does one of the ends send to a destination that nobody has? */
bool ends_are_apart(const struct sqp *q);
/* Does the request touch nothing of the peer's, or fail here? */
bool ends_is_local(const struct send *s);
/* Are requests carried out whose answers go elsewhere? */
bool ends_are_unheard(const struct sqp *q);
/* May requests stay without an answer, though the peer is there? */
bool ends_may_be_silent(const struct sqp *q);
/* The longest request that may be drawn now. */
u32 ends_limit(const struct sqp *q);
/* Says what becomes of a request that has been drawn. */
void ends_judge(struct send *s);
/* Now and then gives a datagram to `to` a destination that nobody has. */
void ends_draw_stray(struct send *s, const struct sqp *to, struct ibv_send_wr *wr,
		     struct path_av *av);

/* ---- reopen.c ---- */

/* Resets both ends, or one, each in its own time; then each connects anew, with other numbers. */
void pair_reopen(struct sqp *q);

/* ---- lone.c ---- */

/* It is quiet now. */
void lone_begin(void);
/* A turn of the process in quiet times. */
void lone_turn(struct proc *p);
bool lone_is_done(void);
/* How long the first requests of those whose peers are gone may keep others waiting. */
u64 lone_delay_ns(void);

/* ---- event.c ---- */

void sqp_async(void *arg, struct ibt_qp *engine, struct ibt_srq *srq, enum ibv_event_type type);
void event_overflow(struct cq *cq);
/* The queue pair leaves SQD. */
void event_check_drained(struct sqp *q);
void event_arm_limit(struct srq *s);
/* A receive request of it has a completion. */
void event_count_taken(struct srq *s);
/* The queue pair is about to be reset or destroyed: what it has taken from an SRQ may be lost. */
void event_forget_taken(struct sqp *q);
/* All queue pairs are gone: what was taken from the SRQ has completed. */
void event_check_taken(struct srq *s);
/* Has a queue overflowed that may have had its completions? */
bool event_may_lose(const struct srq *s);

/* ---- post.c ---- */

/* The queue pair may get what the request carries. */
void message_expect(struct sqp *to, const struct send *s);
/* Posts a few send requests. */
void post_sends(struct sqp *q);
/* A signalled request that is as small as can be, so that those before it are known to be done. */
void post_closing(struct sqp *q);
/* A signalled request without a fault, a long one if there is room. */
void post_sound(struct sqp *q);
/* One that nobody can answer, mostly a READ. */
void post_lone(struct sqp *q);
/* What is left of a bind once the window is bound; false: it cannot be posted now. */
bool post_may_bind(struct sqp *q);
void post_bound(struct sqp *q);
/* Fills the receive queue up to `depth` requests. */
void post_recvs(struct sqp *q, u32 depth);
void post_srq(struct srq *s, u32 depth);
void send_free(struct send *s);
void recv_free(struct recv *r, struct proc *p);

/* One of the cells for the peer that grants the right, or (amiss) that does not, or not any more.
 * NULL: none. */
struct cell *post_draw_cell(const struct sqp *to, u32 right, bool amiss);

/* ---- place.c ---- */

/* Draws the operands of an atomic write or a flush, with something wrong in them if asked for.
 * false: there is no place for it. */
bool place_draw(struct send *s, struct ibv_send_wr *wr, const struct sqp *to, bool amiss);
/* Writes where it goes into the request. */
void place_remote(struct ibv_send_wr *wr, u64 va, u32 rkey);

/* ---- migrate.c ---- */

/* May the connection have an alternate path? */
bool mig_may(const struct sqp *q);
/* Loads an alternate path, asks for a move, or cuts the plane, by lot. */
void mig_turn(struct sqp *q);
/* PATH_MIG and PATH_MIG_ERR have come. */
void mig_moved(struct sqp *q);
void mig_refused(struct sqp *q);
/* It sends a packet. */
void mig_judge(struct sqp *q, u32 plane, const struct pkt *k);

/* ---- xrc.c ---- */

#define XRC_DOMAIN (IBT_XRC_SHARED | 1)
void xrc_setup(struct proc *p);
void xrc_teardown(struct proc *p);
/* Names an SRQ of the peer in the request, one whose domain of protection its keys are of. */
void xrc_draw_srq(struct send *s, struct ibv_send_wr *wr);
/* Names a wrong one; false: another fault is to be drawn. */
bool xrc_draw_fault(struct send *s, struct ibv_send_wr *wr);
/* Receive requests of the SRQs; now and then one of these is destroyed, and another one made. */
void xrc_turn(struct proc *p);
void xrc_quiet_turn(struct proc *p);
/* The receive request of a completion that names no queue pair, and the target that took it. NULL:
 * there is none. */
struct recv *xrc_find_recv(struct proc *p, u64 tag);
struct sqp *xrc_find_target(struct proc *p, u32 qpn);
/* The target is about to be reset or destroyed: what it has taken may be lost. */
void xrc_forget_taken(const struct sqp *target);
/* May a request fail because it names an SRQ that is there no more? */
static inline bool xrc_is_refused(const struct srq *s)
{
	return s != NULL && s->gone;
}

/* ---- judge.c ---- */

void judge_poll(struct proc *p, struct scq *cq, int max);
/* The completions of the queue pair have been dropped: reset or destroyed. */
void judge_forget(struct sqp *q);
/* Is any request late, by its own timeouts? */
void judge_patience(struct sqp *q);
u64 judge_timeout_ns(u8 code);

/* ---- reason.c ---- */

/* May the peer refuse the request for its key, or as invalid? */
bool reason_is_access(const struct send *s);
bool reason_is_invalid(const struct send *s);
/* The queue pair says that it has failed for a request of its peer. */
void reason_refused(struct sqp *q, enum ibv_event_type type);
void reason_succeeded(struct send *s);
/* At the end of the run. */
void reason_check_flushed(const struct sqp *q);
/* A packet for the queue pair was lost. */
void reason_lost(u32 qpn);
/* How long the process has been stopped, in all. */
u64 reason_stopped_ns(const struct proc *p);
/* May the requester have heard nothing of its peer since the request was posted? */
bool reason_is_silence(const struct send *s);

/* ---- program.c ---- */

enum { RUN_TURNS = 6000 /* of all programs */ };

void program_setup(struct proc *p);
void program_turn(struct proc *p);
void program_poll(struct proc *p);
/* A turn in quiet times: everything that others wait for. */
void program_quiet_turn(struct proc *p);
void program_teardown(struct proc *p);
void chaos_begin(void);
/* The process dies, if any may. */
void chaos_kill(void *arg, u64 n);

/* ---- final.c ---- */

void final_run(void);

#endif
