/* cq.h: the completion queue: a ring of completions in libibverbs' layout, its arming and its sink.
 *
 * Producers are the engine's completer and responder, on any thread; consumers poll from any
 * thread. Two locks, whose sections never block: producers and arming take `lock`, consumers
 * `poll_lock`, so that filling and emptying do not wait for each other. poll_lock is taken before
 * `lock`. Notification follows the midlayer's contract; `eager` adds what adapters do.
 */
#ifndef QUEUE_CQ_H
#define QUEUE_CQ_H

#include <infiniband/verbs.h>

#include "base/lock.h"
#include "base/queue_memory.h"
#include "base/timer.h"
#include "event/event.h"

enum { CQ_SOLICITED = 1, CQ_NEXT_COMP = 2, CQ_ARM_MASK = 3, CQ_REPORT_MISSED = 4 };

/* A work queue as its completions know it. It lies inside the driver's QP, or in none.
 *
 * A place in a work queue is free again when its completion, or a later one of the same queue, has
 * been polled: each completion says where its queue stands behind it (cqe.place), and a poll copies
 * that to `polled`. So the consumer's free places are the queue's size less the low 16 bits of what
 * it has posted minus `polled`; no queue is longer than 32,768. */
struct cq_source {
	/* written under poll_lock, and by the queue's owner in RESET */
	_Alignas(4) u16 polled ATOMIC_ONLY;
	u16 back FIXED; /* bytes from here back to the driver's QP, 0: none; and CQ_SOURCE_BITS */
} OWNED_BY(its work queue);

/* Bits of cq_source.back. */
enum {
	CQ_APART = 1,  /* a poll does not write `polled`: the owner alone does */
	CQ_SHARED = 2, /* with CQ_APART: the requests are of a queue that others use: cq.credit */
	CQ_SOURCE_BITS = CQ_APART | CQ_SHARED,
};

/* One completion, one cache line. */
struct cqe {
	union {
		struct ibv_wc wc; /* as ibv_poll_cq returns it */
		struct {
			u8 of_wc[46];
			u16 place; /* in what ibv_wc pads: requests of its queue up to this one */
		};
	};
	struct cq_source *source; /* whose it is: for ib_wc.qp, for cleaning, for its place */
	u64 timestamp_ns : 63; /* clock_now_ns when it was added, if the CQ is extended */
	u64 solicited : 1;     /* the message requested an event, or the status is an error */
} OWNED_BY(who adds or takes it: cq.head and cq.tail say who);

/* Data of an entry beside its cache line, of CQs that request it (cq_keep_sides). */
struct cqe_side {
	u64 wall_ns; /* clock_wall_ns when it was added */
	u64 tag;     /* of the tag-matching header, with cq_commit_tagged; else 0 */
	u32 priv;    /* its app_ctx, likewise */
} OWNED_BY(who adds or takes its entry);

/* The timers that delay events, and their driver. */
struct cq_clock {
	struct timer_set *timers;
	void (*kick)(void *arg); /* a timer became the earliest: a sleeper must look again. Never
				  * blocks; called without the CQ's locks */
	void *arg;
} OWNED_BY(the driver that passes it, then cq_moderation);

/* Of a CQ whose events are delayed (ib_modify_cq). The general rule: the completion that meets an
 * arm raises no event itself but begins to gather, and the event comes when `count` completions
 * have been added from that one on, when `period_us` have passed, or when the CQ is full. A limit
 * of 0 does not count. While the CQ gathers it stays armed, for any next completion. */
struct cq_moderation {
	struct cq *cq;
	struct cq_clock clock;
	struct timer timer;
	u32 count, period_us; /* both 0: events are not delayed */
	u32 first;	      /* running number of the completion that met the arm */
	bool gathering;
} OWNED_BY(cq.lock);

/* The pads keep the fields that producers write, that consumers write and that all only read on
 * separate cache lines. */
struct cq {
	struct lock lock;
	/* next to fill; free running. Written with release, read also without the lock */
	u32 head GUARDED_BY(lock);
	/* an earlier value of `tail`: enough to know that there is room */
	u32 tail_seen GUARDED_BY(lock);
	u32 solicited_end GUARDED_BY(lock); /* behind the last solicited completion */
	/* Each event announces one waiting completion that no event has announced before: those up
	 * to here are announced, or taken. */
	u32 announced GUARDED_BY(lock);
	/* ib_req_ncomp_notif: fires when so many wait; 0: off */
	u32 ncomp_wanted GUARDED_BY(lock);
	u8 armed GUARDED_BY(lock); /* CQ_SOLICITED or CQ_NEXT_COMP, or 0 */
	/* entries get a time stamp; `sides` and `spill` may exist */
	bool extended FIXED;
	/* full once: in error for good, nothing is added any more */
	bool overflowed GUARDED_BY(lock);
	/* armed, ncomp_wanted or overflowed is set: each completion has to go through the ring.
	 * Written under `lock` */
	bool ring_only ATOMIC_ONLY;
	u8 producers_pad[CACHE_LINE];

	struct lock poll_lock ACQUIRED_BEFORE(lock);
	/* next to hand out; free running. Written with release, read also without the lock */
	u32 tail GUARDED_BY(poll_lock);
	u8 consumers_pad[CACHE_LINE];

	struct cqe *ring WRITTEN_UNDER(lock, poll_lock);
	u32 mask WRITTEN_UNDER(lock, poll_lock);     /* ring size - 1 */
	u32 capacity WRITTEN_UNDER(lock, poll_lock); /* number of entries: the ring's size */
	/* An arm fires at once, and is consumed, if completions wait: for SOLICITED, if a solicited
	 * one or one in error does. Else (strict) only a completion that is added later fires it.
	 * An arm right after the consumer took an event of this CQ ignores announced ones. */
	bool eager FIXED;
	/* the consumer's, run by `item` on the vector; NULL: the channel, if any */
	void (*handler)(struct cq *cq) FIXED;
	/* Called with each completion's QP when several are taken at once: fetches from memory
	 * what the next post to it reads. Under poll_lock; may be NULL */
	void (*fetch)(const void *qp) WRITTEN_UNDER(poll_lock);
	/* Called for each completion of a source with CQ_SHARED that is taken, dropped or lost: its
	 * place is free. Under one of the locks; may be NULL */
	void (*credit)(struct cq_source *source) FIXED;
	/* tells the driver (async event CQ_ERR), once; never under a lock; may be NULL */
	void (*overflow)(struct cq *cq) FIXED;
	struct vector_item item GUARDS_ITSELF;
	struct channel_source source GUARDS_ITSELF;
	/* Of extended CQs only, hence behind the fields that every completion reads. */
	bool keeps_sides FIXED;
	struct cqe_side *sides WRITTEN_UNDER(lock, poll_lock); /* beside `ring` */
	/* takes, under `lock`, a completion without room, which is lost. NULL: the CQ overflows */
	struct cqe *spill FIXED;
	const struct queue_memory *memory FIXED; /* where `ring` comes from; NULL: always its own */
	bool ring_is_given WRITTEN_UNDER(lock, poll_lock); /* `ring` is memory of `memory` */
	/* NULL: no event was ever delayed. Stays for as long as the CQ lives */
	struct cq_moderation *moderation WRITTEN_UNDER(lock);
	/* The driver's count of CQs that owe an event, atomic: armed ones, and those with
	 * `ncomp_wanted`. NULL: this CQ is not counted */
	u32 *owing FIXED;
	bool is_counted GUARDED_BY(lock); /* in *owing */
};

/* Clears *cq; its capacity is cqe_wanted rounded up to a power of two. The sink, fetch,
 * credit, overflow, eager and owing are the caller's to set after this, before use. 0 or -ENOMEM
 * (also if more are wanted than any device offers). */
int cq_init(struct cq *cq, u32 cqe_wanted);
/* The same with a ring in memory of `memory` (NULL: its own), which outlives the CQ. Resizing asks
 * it again. -EINVAL as well: what it gives is not aligned. */
int cq_init_in(struct cq *cq, u32 cqe_wanted, const struct queue_memory *memory);
/* After cq_init, before use: entries get a time stamp. Each completion then takes the rarer half
 * of cq_commit, so a CQ without this pays nothing for it. */
void cq_keep_timestamps(struct cq *cq);
/* The same, and memory for a struct cqe_side beside each entry. 0 or -ENOMEM; cq_fini frees. */
int cq_keep_sides(struct cq *cq);
/* Completions are added from now on that name no QP: `fetch` is not called any more. */
void cq_names_no_qp(struct cq *cq);
/* How many completions wait that `is` says true of, with `arg`. `is` runs under both locks. */
u32 cq_count(struct cq *cq, bool (*is)(const struct cqe *e, const void *arg), const void *arg);
/* After cq_init, before use: a completion that finds no room is lost without an error. 0 or
 * -ENOMEM. */
int cq_ignore_overrun(struct cq *cq);
static inline bool cq_ignores_overrun(const struct cq *cq)
{
	return cq->spill != NULL;
}
/* One of the two sinks, once, before use: a handler that runs on a vector, or events on a
 * channel. 0 or negative errno. */
void cq_sink_to_handler(struct cq *cq, struct vector *v, void (*handler)(struct cq *cq));
int cq_sink_to_channel(struct cq *cq, struct channel *ch, void *cookie);
/* Flushes the sink (waits for handlers and acknowledgements), then frees the ring. May block. */
void cq_fini(struct cq *cq);
/* 0, -EINVAL if more completions wait than fit, or as cq_init_in; -ENOMEM. */
int cq_resize(struct cq *cq, u32 cqe_wanted);
/* Adds a completion and fires the sink if armed for it. False: no room, now or once before: the CQ
 * is in error (reported once) until it is destroyed. Any context. `solicited`: the message
 * requested an event (a status in error counts as that in any case). An e->source of NULL is
 * cq_source_none. */
bool cq_push(struct cq *cq, const struct cqe *e, bool solicited);
/* The same in two halves, for the hot path. Returns the place of the next entry, to be written by
 * cqe_set, with the lock held until cq_commit; NULL: the CQ has overflowed, and no lock is held. */
static inline struct cqe *cq_reserve(struct cq *cq) TRY_ACQUIRE(true, cq->lock)
	EXCLUDES(cq->poll_lock);
static inline void cq_commit(struct cq *cq, struct cqe *e, bool solicited) RELEASE(cq->lock);
/* cq_commit of a receive that has matched a tag. */
void cq_commit_tagged(struct cq *cq, struct cqe *e, bool solicited, u64 tag, u32 priv)
	RELEASE(cq->lock);
/* A thread that is about to receive announces that it waits for up to n completions of this CQ
 * (none, if n is not positive). Those that it then adds while the ring is empty and `ring_only` is
 * false need not go through the ring: cq_hand returns their places in `wc`. cq_expected, with the
 * same n, ends that and returns how many came so; completions in the ring came after them. */
static inline void cq_expect(struct cq *cq, int n, struct ibv_wc *wc);
static inline int cq_expected(int n);
/* Returns where to write a completion (wc_set) that this thread waits for, without any lock; NULL:
 * it has to go through the ring. It counts as polled: the caller writes the source's `polled`
 * (cq_polled). Completions of one work queue are added one at a time, under that queue's lock. */
static inline struct ibv_wc *cq_hand(struct cq *cq);
/* Takes up to n; returns how many, never an error: an overflowed CQ still returns its
 * completions. */
int cq_pop(struct cq *cq, int n, struct ibv_wc *wc);
/* The same with the driver's QP, the time stamp and side data (zero if the CQ keeps none): `take`
 * gets the i-th completion with poll_lock held, so that its QP stays meanwhile: cq_forget, before a
 * QP is freed, takes that lock. */
typedef void cq_taker(const struct cqe *e, const struct cqe_side *side, int i, void *arg);
int cq_pop_each(struct cq *cq, int n, cq_taker *take, void *arg);
/* The same by copies: sides[i] belongs to out[i]; `sides` NULL: without. */
int cq_pop_whole(struct cq *cq, int n, struct cqe *out, struct cqe_side *sides);
/* Returns how many wait, counted up to `limit`. */
int cq_peek(struct cq *cq, int limit);
/* Flags as above; -EINVAL unless exactly one of SOLICITED and NEXT_COMP. 0 or, with
 * CQ_REPORT_MISSED and completions waiting, 1: armed all the same, but those raise no event (of an
 * eager CQ they may have). */
int cq_arm(struct cq *cq, u32 flags);
/* Raises one event as soon as `count` completions wait, at once if they do; 0 cancels that. 0, or
 * -EINVAL: more than ever fit. */
int cq_arm_ncomp(struct cq *cq, u32 count);
/* Tells whether one more completion would raise an event now. */
bool cq_would_fire(struct cq *cq, bool solicited);
/* Delays events from now on: see struct cq_moderation. `count` below 2 and `period_us` of 0 end
 * that, with the event that is due. The same clock at each call. 0 or -ENOMEM. */
int cq_moderate(struct cq *cq, const struct cq_clock *clock, u32 count, u32 period_us);
/* In a forked child: lets go of locks whose holder the child does not have, of the timer, which is
 * in the parent's set, and of *owing, which counts the child's own CQs. Single-threaded. */
void cq_orphan(struct cq *cq);
/* Drops every waiting completion of `qp` (it is being destroyed), keeping the order of the rest. */
void cq_forget(struct cq *cq, const void *qp);

/* Of completions whose queue may be gone when they are polled, and that free nothing. */
extern struct cq_source cq_source_none;

/* The first `requests` of the queue have been polled. */
static inline void cq_polled(struct cq_source *source, u32 requests)
{
	__atomic_store_n(&source->polled, (u16)requests, __ATOMIC_RELAXED);
}

/* `at`: the driver's QP, in front of *source by less than 64 KiB, a multiple of 4; NULL: none. */
static inline void cq_source_init(struct cq_source *source, const void *at, u32 bits)
{
	cq_polled(source, 0);
	source->back = (u16)((at == NULL ? 0 : (u32)((u8 *)source - (const u8 *)at)) | bits);
}

static inline void *cq_source_qp(const struct cq_source *source)
{
	u16 back = source->back & (u16)~CQ_SOURCE_BITS;

	return back == 0 ? NULL : (void *)((uintptr_t)source - back);
}

/* How many of `posted` requests have not been polled. */
static inline u32 cq_unpolled(const struct cq_source *source, u32 posted)
{
	return (u16)(posted - __atomic_load_n(&source->polled, __ATOMIC_RELAXED));
}

/* How many of `posted` requests, `complete` of them complete, have places that are not free. */
static inline u32 cq_source_used(const struct cq_source *source, u32 posted, u32 complete)
{
	return (source->back & CQ_APART) != 0 ? posted - complete : cq_unpolled(source, posted);
}

/* Writes an entry without immediate data, flags or key. In words of eight bytes, as cq_pop reads
 * them: a load that spans two stores which have not reached the cache waits until they have. */
static inline void wc_set(struct ibv_wc *wc, u64 wr_id, enum ibv_wc_status status,
			  enum ibv_wc_opcode opcode, u32 byte_len, u32 qp_num, u32 src_qp)
{
	u64 *word = (u64 *)wc;

	word[0] = wr_id;
	word[1] = (u64)opcode << 32 | status;
	word[2] = (u64)byte_len << 32;
	word[3] = (u64)qp_num << 32;
	word[4] = src_qp;
	word[5] = 0;
}

/* `place`: how many requests of the queue have been posted up to this one, low 16 bits. */
static inline void cqe_set(struct cqe *e, u64 wr_id, enum ibv_wc_status status,
			   enum ibv_wc_opcode opcode, u32 byte_len, u32 qp_num, u32 src_qp,
			   struct cq_source *source, u32 place)
{
	wc_set(&e->wc, wr_id, status, opcode, byte_len, qp_num, src_qp);
	((u64 *)&e->wc)[5] = (u64)place << 48;
	e->source = source;
	e->timestamp_ns = 0;
	e->solicited = 0;
}
_Static_assert(offsetof(struct ibv_wc, opcode) == 12 && offsetof(struct ibv_wc, byte_len) == 20 &&
		       offsetof(struct ibv_wc, qp_num) == 28 &&
		       offsetof(struct ibv_wc, src_qp) == 32 && sizeof(struct ibv_wc) == 48 &&
		       offsetof(struct ibv_wc, dlid_path_bits) == 45 &&
		       offsetof(struct cqe, place) == 46 && sizeof(struct cqe) == CACHE_LINE &&
		       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "cqe_set knows the layout");

/* Their slow halves: the ring seems full; or the entry raises an event, or the CQ is extended. */
struct cqe *cq_reserve_slow(struct cq *cq) TRY_ACQUIRE(true, cq->lock) EXCLUDES(cq->poll_lock);
void cq_commit_slow(struct cq *cq, struct cqe *e, bool solicited) RELEASE(cq->lock);

static inline struct cqe *cq_reserve(struct cq *cq) NO_THREAD_SAFETY
{
	lock_acquire(&cq->lock);
	if (likely(cq->head - cq->tail_seen < cq->capacity && !cq->overflowed))
		return &cq->ring[cq->head & cq->mask];
	return cq_reserve_slow(cq);
}

/* Pairs with the acquire in cq_looks_empty and cq_available: the entry is complete before it
 * counts. */
static inline void cq_show(struct cq *cq) REQUIRES(cq->lock)
{
	__atomic_store_n(&cq->head, cq->head + 1, __ATOMIC_RELEASE);
}

static inline void cq_commit(struct cq *cq, struct cqe *e, bool solicited)
{
	solicited |= e->wc.status != IBV_WC_SUCCESS;
	if (unlikely(solicited || cq->armed != 0 || cq->ncomp_wanted != 0 || cq->extended)) {
		cq_commit_slow(cq, e, solicited);
		return;
	}
	cq_show(cq);
	lock_release(&cq->lock);
}

/* Tells whether completions must go through the ring, since one may raise an event or be
 * refused. */
static inline bool cq_is_ring_only(const struct cq *cq)
{
	return __atomic_load_n(&cq->ring_only, __ATOMIC_RELAXED);
}

static inline bool cq_looks_empty(const struct cq *cq)
{
	/* `tail` pairs with cq_pop_held: what was taken before has told its source */
	return __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) ==
	       __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE);
}

/* The completions that this thread waits for. */
struct cq_expectation {
	struct cq *cq; /* NULL: nothing */
	struct ibv_wc *next;
	int room;
} OWNED_BY(its thread);
extern __thread struct cq_expectation cq_expectation;

static inline void cq_expect(struct cq *cq, int n, struct ibv_wc *wc)
{
	cq_expectation.next = wc;
	cq_expectation.room = n;
	cq_expectation.cq = cq;
}

static inline int cq_expected(int n)
{
	cq_expectation.cq = NULL;
	return n - cq_expectation.room;
}

/* Counts as added and taken when `ring_only` is loaded: a later arm does not cover it, and
 * completions that the same work queue added before have been taken. */
static inline struct ibv_wc *cq_hand(struct cq *cq)
{
	if (cq_expectation.cq != cq || unlikely(cq_expectation.room <= 0) ||
	    unlikely(cq_is_ring_only(cq) || !cq_looks_empty(cq)))
		return NULL;
	cq_expectation.room--;
	return cq_expectation.next++;
}

#endif
