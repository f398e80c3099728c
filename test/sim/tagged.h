/* tagged.h: tag-matching SRQs and the software above them, which is MPI's. They have a world of
 * their own (plan.tagged): every process has one such SRQ, and queue pairs that share it.
 *
 *   tagged_world.c   processes, queue pairs and their ends
 *   tagged_post.c    messages, receives, list operations, drawn by lot
 *   tagged_judge.c   completions: MPI's model says who takes what, bytes and statuses are checked
 *   tagged_list.c    what the adapter's list must have done, as far as it is known for sure
 */
#ifndef SIM_TAGGED_H
#define SIM_TAGGED_H

#include <infiniband/tm_types.h>

#include "../match/match.h"
#include "model.h"

enum {
	TM_MESSAGES = 4096,
	TM_ITEMS = 4096, /* entries, buffers or operations of a process, each */
	TM_PIECES = 3,
	TM_TMH = 16,
	TM_RVH = 16,
	TM_MORE = 32, /* bytes behind the RVH, at most */
	TM_HEADER = TM_TMH + TM_RVH + TM_MORE,
	TM_TAGS = 5,
};

/* What a wr_id names: kind << 56 | number. */
enum tagged_kind { TM_ENTRY = 1, TM_BUFFER, TM_OP, TM_SEND, TM_READ, TM_FIN };

enum tagged_fault {
	TM_SOUND,
	TM_BAD_KEY,   /* the RVH's key is unknown */
	TM_TOO_FAR,   /* it names bytes that the key does not give */
};

/* A message, from its SEND to the last that is known of it. */
struct tagged_message {
	u32 id; /* app_ctx */
	struct proc *owner;
	struct sqp *from; /* until the end of the run */
	u8 opcode;	  /* enum ibv_tmh_op */
	u8 fault;
	u64 tag;
	u32 length; /* payload, or what is to be read */
	u32 headers, imm;
	bool has_imm;
	u32 index; /* among those of its queue pair */
	u64 posted_ns;
	struct slice packet; /* until the SEND has ended */
	struct slice data;   /* RNDV: until the FIN is there */
	u32 region, key; /* of the data; what the RVH says */
	bool sent, sent_well, seen, fin, read_well;
	bool imm_seen;
	/* software reads it: an unexpected one, or one whose buffer was too small */
	bool by_software;
	struct slice sink;
	u8 step; /* 0: to be read, 1: READ posted, 2: FIN to be sent, 3: posted, 4: done */
};

enum tagged_state { TM_WAITS, TM_MATCHED, TM_SOFT, TM_GONE };

/* A tagged receive: an entry of the list. */
struct tagged_entry {
	u64 tag, mask;
	u32 number, handle, length, pieces;
	struct slice piece[TM_PIECES];
	u8 state;	 /* enum tagged_state */
	bool cancelling; /* its TAG_DEL is signalled, and not completed */
	struct tagged_message *message;
	/* tagged_list.c */
	bool listed, sure; /* in the list; and enabled without doubt since sure_at */
	u64 sure_at;
};

struct tagged_buffer {
	struct slice slice;
	u32 number;
	bool posted;
};

struct tagged_op {
	u32 number, opcode;
	struct tagged_entry *entry;
	u64 marker; /* completions that the CQ had got before */
	bool signalled, syncs, done, applied;
	bool doubtful; /* a message was half received */
	u16 count;
	/* what the list must have done, if `judged` */
	bool judged, late, lags;
	bool must_succeed; /* DEL: for a message that MPI's model gives to it */
};

/* A process' SRQ. */
struct tagged {
	struct proc *proc;
	struct ibt_srq *srq;
	struct scq cq, send_cq; /* cq: of the SRQ */
	u32 pd, max_tags, max_ops, max_wr, max_sge;
	struct tagged_entry *entries[TM_ITEMS];
	struct tagged_buffer *buffers[TM_ITEMS];
	struct tagged_op *ops[TM_ITEMS];
	u32 entry_count, buffer_count, op_count;
	u32 listed, posted, signalled; /* entries not given back, buffers, operations */
	u32 next_op; /* signalled ones complete in order */
	u32 next_replay;
	u64 polled; /* completions */
	u16 handled, told; /* unexpected messages */
	struct mpi_match mpi;
	u16 unexpected, replay_told; /* tagged_list.c */
};

/* What the world has beside its plan. */
struct tagged_plan {
	u32 eager, data; /* bytes at most */
	u32 lazy_sync_percent, cancel_percent;
	u32 short_permille; /* entries that may be too small */
};
extern struct tagged_plan tagged_plan;
extern struct tagged_message *tagged_messages[TM_MESSAGES];
extern u32 tagged_message_count;

/* ---- tagged_world.c ---- */

/* The world's plan has been drawn; the rest of it. */
void tagged_draw_plan(struct plan *p);
void tagged_setup(struct proc *p);
void tagged_turn(struct proc *p);
void tagged_poll(struct proc *p);
void tagged_quiet_turn(struct proc *p);
/* Has all ended that must? */
bool tagged_is_done(void);
/* Says what has not, if anything. */
void tagged_check_done(void);
/* All has ended: software tells what it knows, and the counts must agree. */
void tagged_finish(void);
/* The queue pairs have been flushed. */
void tagged_check_flushed(void);
void tagged_teardown(struct proc *p);
/* A packet is about to be received. */
void tagged_saw(const struct proc *p, const struct pkt *k);
/* May this queue pair have failed, as far as anybody can tell? */
bool tagged_may_fail(const struct sqp *q);
/* Has it named a wrong key or address to its peer? */
bool tagged_asks_amiss(const struct sqp *q);
struct sqp *tagged_find(const struct proc *p, u32 qpn);
struct proc *tagged_other(const struct sqp *q);

/* ---- tagged_post.c ---- */

void tagged_send(struct sqp *q);
void tagged_buffers(struct tagged *tm, u32 depth);
void tagged_receive(struct tagged *tm);
void tagged_cancel(struct tagged *tm, struct tagged_entry *e);
void tagged_cancel_any(struct tagged *tm);
void tagged_sync(struct tagged *tm);
/* Takes the entry off the list: a message that came unexpected is its own. */
void tagged_withdraw(struct tagged *tm, struct tagged_entry *e);
/* Goes on with what software reads. */
void tagged_go_on(struct sqp *q);
void tagged_entry_free(struct tagged *tm, struct tagged_entry *e);
u64 tagged_text(u64 kind, u32 number);
/* The packet as it is on the wire: its headers. Returns their length. */
u32 tagged_header(const struct tagged_message *m, u8 opcode, u8 *to);
/* Software has the message: it reads the data if there is any to be read. */
void tagged_take(struct tagged *tm, struct tagged_message *m);

/* ---- tagged_judge.c ---- */

void tagged_judge(struct tagged *tm, const struct cqe *e, const struct cqe_side *side);
void tagged_judge_send(struct tagged *tm, const struct cqe *e);

/* ---- tagged_list.c ---- */

u64 tagged_position(struct tagged *tm);
/* Applies the operations that came before the completion with this number. */
void tagged_replay(struct tagged *tm, u64 number);
void tagged_replay_taken(struct tagged_entry *e);
/* An unexpected message has come to q. */
void tagged_replay_unexpected(struct tagged *tm, struct sqp *q, const struct tagged_message *m,
			      u64 number);
/* A completion of q has been polled. */
void tagged_replay_seen(struct sqp *q);

#endif
