/* cq.c: the completion queue.
 *
 * In:    completions from the engine, arms from the consumer    Out: completions, one event per arm
 * Runs:  any thread; the consumer's handler on a vector's thread
 * Locks: poll_lock (tail), then lock (head, arming); neither across a callback, an event or an
 * allocation
 *
 * Arming and adding exclude each other, so each completion falls either before an arm (then a
 * REPORT_MISSED arm says so, unless it has been polled) or after it (then it fires the arm). A
 * completion that cq_hand hands over counts as added and polled when `ring_only` was loaded, so it
 * falls before an arm that the load did not see.
 */
#include "queue/cq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "queue/moderate.h"

enum {
	CQ_CAPACITY_MAX = 1 << 26,
	/* from this size on a ring is mapped, so that unused pages take no memory */
	CQ_RING_MAPPED_BYTES = 1 << 16,
};

__thread struct cq_expectation cq_expectation;
struct cq_source cq_source_none = { .back = CQ_APART };

/* ---- the ring's memory ---------------------------------------------------------------------- */

/* A ring, and whose memory it is. */
struct cq_ring {
	struct cqe *at;
	u32 capacity;
	bool is_given; /* memory of cq.memory */
} OWNED_BY(the caller);

static struct cqe *cq_ring_alloc_own(size_t bytes)
{
	void *ring;

	if (bytes < CQ_RING_MAPPED_BYTES)
		return aligned_alloc(CACHE_LINE, bytes);
	ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ring == MAP_FAILED)
		return NULL;
	/* The first pass through the ring faults on each page; huge pages are 512 times fewer. */
	madvise(ring, bytes, MADV_HUGEPAGE);
	return ring;
}

/* 0, -ENOMEM, -EINVAL: see queue_memory_get. */
static int cq_ring_alloc(const struct queue_memory *memory, u32 capacity, struct cq_ring *out)
{
	size_t bytes = (size_t)capacity * sizeof(struct cqe);
	void *ring = NULL;
	int err = capacity == 0 ? -ENOMEM : queue_memory_get(memory, bytes, QUEUE_CQ, &ring);

	if (err)
		return err;
	*out = (struct cq_ring){ .capacity = capacity, .is_given = ring != NULL };
	out->at = ring != NULL ? ring : cq_ring_alloc_own(bytes);
	return out->at != NULL ? 0 : -ENOMEM;
}

static void cq_ring_free(const struct queue_memory *memory, const struct cq_ring *ring)
{
	size_t bytes = (size_t)ring->capacity * sizeof(struct cqe);

	if (!ring->at)
		return;
	if (ring->is_given)
		queue_memory_put(memory, ring->at, QUEUE_CQ);
	else if (bytes < CQ_RING_MAPPED_BYTES)
		free(ring->at);
	else
		munmap(ring->at, bytes);
}

static struct cq_ring cq_ring_of(const struct cq *cq) REQUIRES(&cq->lock, &cq->poll_lock)
{
	return (struct cq_ring){ cq->ring, cq->capacity, cq->ring_is_given };
}

static void cq_ring_set(struct cq *cq, const struct cq_ring *ring)
	REQUIRES(&cq->lock, &cq->poll_lock)
{
	cq->ring = ring->at;
	cq->capacity = ring->capacity;
	cq->mask = ring->capacity - 1;
	cq->ring_is_given = ring->is_given;
}

/* Mapped, so that unused pages take no memory: the sides of a wide CQ are half as large as its
 * ring. */
static struct cqe_side *sides_alloc(u32 capacity)
{
	return calloc(capacity, sizeof(struct cqe_side));
}

/* 0: too many. */
static u32 cq_ring_capacity(u32 wanted)
{
	u32 capacity = 1;

	if (wanted > CQ_CAPACITY_MAX)
		return 0;
	while (capacity < wanted)
		capacity *= 2;
	return capacity;
}

/* ---- creation, sinks and end ---------------------------------------------------------------- */

static void cq_count_as_owing(struct cq *cq, bool owes) REQUIRES(&cq->lock)
{
	if (cq->owing == NULL || cq->is_counted == owes)
		return;
	cq->is_counted = owes;
	/* pairs with the driver's loads: it counts before the consumer goes to sleep */
	__atomic_fetch_add(cq->owing, owes ? 1 : (u32)-1, __ATOMIC_SEQ_CST);
}

int cq_init_in(struct cq *cq, u32 cqe_wanted, const struct queue_memory *memory)
	NO_THREAD_SAFETY /* not yet visible to other threads */
{
	struct cq_ring ring;
	int err;

	memset(cq, 0, sizeof(*cq));
	err = cq_ring_alloc(memory, cq_ring_capacity(cqe_wanted), &ring);
	if (err)
		return err;
	cq->memory = memory;
	cq_ring_set(cq, &ring);
	return 0;
}

int cq_init(struct cq *cq, u32 cqe_wanted)
{
	return cq_init_in(cq, cqe_wanted, NULL);
}

void cq_keep_timestamps(struct cq *cq)
{
	cq->extended = true;
}

int cq_keep_sides(struct cq *cq) NO_THREAD_SAFETY /* not yet visible to other threads */
{
	cq->sides = sides_alloc(cq->capacity);
	if (!cq->sides)
		return -ENOMEM;
	cq->keeps_sides = true;
	cq->extended = true;
	return 0;
}

int cq_ignore_overrun(struct cq *cq)
{
	cq->spill = aligned_alloc(CACHE_LINE, sizeof(*cq->spill));
	if (!cq->spill)
		return -ENOMEM;
	cq->extended = true;
	return 0;
}

void cq_names_no_qp(struct cq *cq)
{
	lock_acquire(&cq->poll_lock);
	cq->fetch = NULL;
	lock_release(&cq->poll_lock);
}

static void sink_run_handler(struct vector_item *item)
{
	struct cq *cq = container_of(item, struct cq, item);

	cq->handler(cq);
}

void cq_sink_to_handler(struct cq *cq, struct vector *v, void (*handler)(struct cq *cq))
{
	cq->handler = handler;
	vector_item_init(&cq->item, v, sink_run_handler);
}

int cq_sink_to_channel(struct cq *cq, struct channel *ch, void *cookie)
{
	return channel_source_add(&cq->source, ch, cookie);
}

/* Without the CQ's locks: the sink has its own. */
static void sink_fire(struct cq *cq) EXCLUDES(&cq->lock, &cq->poll_lock)
{
	if (cq->handler)
		vector_item_queue(&cq->item);
	else
		channel_post(&cq->source);
}

void cq_follow(struct cq *cq, u32 after)
{
	if (after & CQ_AFTER_FIRE)
		sink_fire(cq);
	if (unlikely(after & CQ_AFTER_KICK)) /* `moderation` was seen under the lock, and stays */
		cq->moderation->clock.kick(cq->moderation->clock.arg);
}

/* The handler may run, and arm, until it has been flushed: only the timer ends before, which fires
 * it. */
void cq_fini(struct cq *cq) NO_THREAD_SAFETY /* nobody but the handler has it any more */
{
	struct cq_ring ring = cq_ring_of(cq);

	moderation_stop(cq);
	if (cq->handler)
		vector_item_flush(&cq->item);
	channel_source_remove(&cq->source);
	moderation_fini(cq);
	cq_count_as_owing(cq, false);
	cq_ring_free(cq->memory, &ring);
	free(cq->sides);
	free(cq->spill);
	cq->ring = NULL;
	cq->sides = NULL;
	cq->spill = NULL;
}

/* ---- adding --------------------------------------------------------------------------------- */

static u32 cq_waiting(const struct cq *cq) REQUIRES(&cq->lock)
{
	return cq->head - __atomic_load_n(&cq->tail, __ATOMIC_RELAXED);
}

/* Called after each change of armed, ncomp_wanted and overflowed. A CQ that has overflowed raises
 * no event. */
static void cq_note_arm(struct cq *cq) REQUIRES(&cq->lock)
{
	bool owes = cq->armed != 0 || cq->ncomp_wanted != 0;

	__atomic_store_n(&cq->ring_only, owes || cq->overflowed, __ATOMIC_RELAXED);
	cq_count_as_owing(cq, owes && !cq->overflowed);
}

static bool cq_arm_is_met(const struct cq *cq, bool solicited) REQUIRES(&cq->lock)
{
	return cq->armed == CQ_NEXT_COMP || (cq->armed == CQ_SOLICITED && solicited);
}

/* Tells whether `waiting` completions suffice for ib_req_ncomp_notif. */
static bool cq_count_is_met(const struct cq *cq, u32 waiting) REQUIRES(&cq->lock)
{
	return unlikely(cq->ncomp_wanted > 0) && waiting >= cq->ncomp_wanted;
}

/* Returns the running number of the first waiting completion that is not announced. */
static u32 cq_announced_end(const struct cq *cq) REQUIRES(&cq->lock)
{
	u32 tail = __atomic_load_n(&cq->tail, __ATOMIC_RELAXED);

	return (s32)(cq->announced - tail) > 0 ? cq->announced : tail;
}

void cq_spend_gathered(struct cq *cq)
{
	cq->armed = 0;
	cq->announced = cq->head;
	cq_note_arm(cq);
}

/* The arm is met by what waits from running number `first` on. */
static u32 cq_arm_use(struct cq *cq, u32 first) REQUIRES(&cq->lock)
{
	u32 after = CQ_AFTER_FIRE;
	bool gathers = cq->moderation != NULL;

	if (unlikely(gathers))
		after = moderation_judge(cq, first);
	if (after == CQ_AFTER_FIRE) {
		cq->armed = 0;
		cq->announced = gathers ? cq->head : cq_announced_end(cq) + 1;
	}
	return after;
}

/* Tells what the completion just added fires, and consumes the arm. `first`: as in cq_arm_use. */
static u32 cq_arm_spend(struct cq *cq, bool solicited, u32 first) REQUIRES(&cq->lock)
{
	u32 after = CQ_AFTER_NONE;

	if (cq_arm_is_met(cq, solicited))
		after = cq_arm_use(cq, first);
	if (cq_count_is_met(cq, cq_waiting(cq))) {
		cq->ncomp_wanted = 0;
		after |= CQ_AFTER_FIRE;
	}
	cq_note_arm(cq);
	return after;
}

/* The lock is held and the ring full, or was once. Releases the lock. */
static void cq_refuse(struct cq *cq) RELEASE(&cq->lock)
{
	bool first = !cq->overflowed;

	cq->overflowed = true;
	cq_note_arm(cq);
	lock_release(&cq->lock);
	if (first && cq->overflow)
		cq->overflow(cq);
}

/* A poll frees places in work queues before it moves `tail`. Who has posted to one meanwhile, and
 * completes it, waits for that poll: the CQ may be no larger than the queues that it serves. */
static bool cq_is_full(struct cq *cq) NO_THREAD_SAFETY /* lock is held but for a moment */
{
	/* Pairs with the release in cq_pop_end: entries that count as free have been copied out. */
	cq->tail_seen = __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE);
	if (cq->head - cq->tail_seen < cq->capacity)
		return false;
	lock_release(&cq->lock);
	lock_acquire(&cq->poll_lock);
	lock_release(&cq->poll_lock);
	lock_acquire(&cq->lock);
	cq->tail_seen = __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE);
	return cq->head - cq->tail_seen >= cq->capacity;
}

struct cqe *cq_reserve_slow(struct cq *cq) NO_THREAD_SAFETY
{
	if (!cq->overflowed && !cq_is_full(cq) && !cq->overflowed)
		return &cq->ring[cq->head & cq->mask];
	if (cq->spill)
		return cq->spill;
	cq_refuse(cq);
	return NULL;
}

/* Writes all of the entry's side data, since the place may hold an earlier entry's. */
static void cq_stamp(struct cq *cq, struct cqe *e, u64 tag, u32 priv) REQUIRES(&cq->lock)
{
	e->timestamp_ns = clock_now_ns();
	if (cq->keeps_sides)
		cq->sides[e - cq->ring] =
			(struct cqe_side){ .wall_ns = clock_wall_ns(), .tag = tag, .priv = priv };
}

/* Publishes a complete entry. */
static void cq_announce(struct cq *cq, struct cqe *e, bool solicited) RELEASE(&cq->lock)
{
	u32 after;

	e->solicited = solicited;
	if (solicited)
		cq->solicited_end = cq->head + 1;
	cq_show(cq);
	after = cq_arm_spend(cq, solicited, cq->head - 1);
	lock_release(&cq->lock);
	if (after)
		cq_follow(cq, after);
}

/* One of its completions is taken, dropped or lost. */
static NOINLINE void cq_credit(struct cq *cq, struct cq_source *source)
{
	if ((source->back & CQ_SHARED) != 0 && cq->credit != NULL)
		cq->credit(source);
}

/* Does taking it free something else than a place of its own queue? */
static inline bool cqe_is_apart(const struct cqe *e)
{
	return (e->source->back & CQ_APART) != 0;
}

/* The consumer gets it. */
static inline void cq_tell_source(struct cq *cq, const struct cqe *e) REQUIRES(&cq->poll_lock)
{
	if (cqe_is_apart(e))
		cq_credit(cq, e->source);
	else
		cq_polled(e->source, e->place);
}

void cq_commit_tagged(struct cq *cq, struct cqe *e, bool solicited, u64 tag, u32 priv)
{
	if (cq->extended && e == cq->spill) {
		cq_credit(cq, e->source);
		lock_release(&cq->lock);
		return;
	}
	if (cq->extended)
		cq_stamp(cq, e, tag, priv);
	cq_announce(cq, e, solicited | (e->wc.status != IBV_WC_SUCCESS));
}

void cq_commit_slow(struct cq *cq, struct cqe *e, bool solicited)
{
	if (unlikely(cq->extended))
		cq_commit_tagged(cq, e, solicited, 0, 0);
	else
		cq_announce(cq, e, solicited);
}

bool cq_push(struct cq *cq, const struct cqe *e, bool solicited)
{
	struct cqe *place = cq_reserve(cq);

	if (unlikely(!place))
		return false;
	*place = *e;
	if (place->source == NULL)
		place->source = &cq_source_none;
	cq_commit(cq, place, solicited);
	return true;
}

/* ---- taking --------------------------------------------------------------------------------- */

static int cq_available(const struct cq *cq, int limit) REQUIRES(&cq->poll_lock)
{
	/* Pairs with the release in cq_show: the counted entries are complete. */
	u32 waiting = __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) - cq->tail;

	return (int)MIN(waiting, (u32)limit);
}

/* Copies in the words that cqe_set writes. */
static inline void wc_copy(struct ibv_wc *to, const struct ibv_wc *from)
{
	const u64 *f = (const u64 *)from;
	u64 *t = (u64 *)to;

	t[0] = f[0];
	t[1] = f[1];
	t[2] = f[2];
	t[3] = f[3];
	t[4] = f[4];
	t[5] = f[5];
}

/* The n oldest are the consumer's, and have told their sources. */
static inline int cq_pop_end(struct cq *cq, int n) RELEASE(&cq->poll_lock)
{
	/* pairs with cq_reserve_slow, cq_looks_empty */
	__atomic_store_n(&cq->tail, cq->tail + (u32)n, __ATOMIC_RELEASE);
	lock_release(&cq->poll_lock);
	return n;
}

/* Of n the first `done` have been taken. */
static NOINLINE int cq_pop_apart(struct cq *cq, int n, struct ibv_wc *wc, u32 done)
	RELEASE(&cq->poll_lock)
{
	for (; done != (u32)n; done++) {
		const struct cqe *e = &cq->ring[(cq->tail + done) & cq->mask];

		wc_copy(wc++, &e->wc);
		cq_tell_source(cq, e);
	}
	return cq_pop_end(cq, n);
}

/* Takes n available ones. */
static inline int cq_pop_held(struct cq *cq, int n, struct ibv_wc *wc) RELEASE(&cq->poll_lock)
{
	u32 tail = cq->tail, end;

	for (end = tail + (u32)n; tail != end; tail++) {
		const struct cqe *e = &cq->ring[tail & cq->mask];

		if (unlikely(cqe_is_apart(e)))
			return cq_pop_apart(cq, n, wc, tail - cq->tail);
		wc_copy(wc++, &e->wc);
		cq_polled(e->source, e->place);
	}
	return cq_pop_end(cq, n);
}

/* Several completions of different queue pairs: the consumer is likely to post to each of them.
 * Fetches what those posts read, for all of them at the same time. */
static NOINLINE int cq_pop_several(struct cq *cq, int n, struct ibv_wc *wc) RELEASE(&cq->poll_lock)
{
	for (u32 i = 0; i < (u32)n; i++)
		cq->fetch(cq_source_qp(cq->ring[(cq->tail + i) & cq->mask].source));
	return cq_pop_held(cq, n, wc);
}

/* Waits while another thread polls. */
static NOINLINE int cq_pop_wait(struct cq *cq, int n, struct ibv_wc *wc) EXCLUDES(&cq->poll_lock)
{
	lock_acquire(&cq->poll_lock);
	return cq_pop_held(cq, cq_available(cq, n), wc);
}

int cq_pop(struct cq *cq, int n, struct ibv_wc *wc)
{
	if (cq_looks_empty(cq) || unlikely(n <= 0))
		return 0;
	if (unlikely(!lock_try(&cq->poll_lock)))
		return cq_pop_wait(cq, n, wc);
	n = cq_available(cq, n);
	if (n > 1 && cq->fetch != NULL)
		return cq_pop_several(cq, n, wc);
	return cq_pop_held(cq, n, wc);
}

int cq_pop_each(struct cq *cq, int n, cq_taker *take, void *arg)
{
	static const struct cqe_side none;

	if (n <= 0 || cq_looks_empty(cq))
		return 0;
	lock_acquire(&cq->poll_lock);
	n = cq_available(cq, n);
	for (int i = 0; i < n; i++) {
		u32 place = (cq->tail + (u32)i) & cq->mask;

		take(&cq->ring[place], cq->keeps_sides ? &cq->sides[place] : &none, i, arg);
		cq_tell_source(cq, &cq->ring[place]);
	}
	return cq_pop_end(cq, n);
}

/* Where cq_pop_whole puts what it takes. */
struct cq_copies {
	struct cqe *out;
	struct cqe_side *sides;
} OWNED_BY(the caller);

static void cq_copy_one(const struct cqe *e, const struct cqe_side *side, int i, void *arg)
{
	struct cq_copies *c = arg;

	c->out[i] = *e;
	if (c->sides != NULL)
		c->sides[i] = *side;
}

int cq_pop_whole(struct cq *cq, int n, struct cqe *out, struct cqe_side *sides)
{
	return cq_pop_each(cq, n, cq_copy_one, &(struct cq_copies){ .out = out, .sides = sides });
}

int cq_peek(struct cq *cq, int limit)
{
	int n;

	if (limit <= 0)
		return 0;
	lock_acquire(&cq->poll_lock);
	n = cq_available(cq, limit);
	lock_release(&cq->poll_lock);
	return n;
}

u32 cq_count(struct cq *cq, bool (*is)(const struct cqe *e, const void *arg), const void *arg)
{
	u32 n = 0;

	lock_acquire(&cq->poll_lock);
	lock_acquire(&cq->lock);
	for (u32 i = cq->tail; i != cq->head; i++)
		n += is(&cq->ring[i & cq->mask], arg);
	lock_release(&cq->lock);
	lock_release(&cq->poll_lock);
	return n;
}

/* ---- arming --------------------------------------------------------------------------------- */

/* Tells whether the last solicited completion is among the waiting ones, from the running number
 * `from` on. Holds when the running numbers wrap. */
static bool cq_solicited_waits(const struct cq *cq, u32 from) REQUIRES(&cq->lock)
{
	return cq->solicited_end - from - 1 < cq->head - from;
}

/* An eager CQ treats waiting completions as if they were added now. */
static u32 cq_arm_late(struct cq *cq, bool after_event) REQUIRES(&cq->lock)
{
	u32 from = after_event ? cq_announced_end(cq) :
				 __atomic_load_n(&cq->tail, __ATOMIC_RELAXED);

	if (!cq->eager || (s32)(cq->head - from) <= 0)
		return CQ_AFTER_NONE;
	return cq_arm_spend(cq, cq_solicited_waits(cq, from), from);
}

int cq_arm(struct cq *cq, u32 flags)
{
	u32 kind = flags & CQ_ARM_MASK;
	bool missed, after_event;
	u32 after;

	if ((kind != CQ_SOLICITED && kind != CQ_NEXT_COMP) ||
	    (flags & ~(u32)(CQ_ARM_MASK | CQ_REPORT_MISSED)))
		return -EINVAL;
	/* A program that arms between the event and the poll takes one completion for each event
	 * (perftest). A program that reads the channel until it is empty does not. */
	after_event = cq->eager && channel_source_is_latest(&cq->source);
	lock_acquire(&cq->lock);
	if (cq->armed != CQ_NEXT_COMP)
		cq->armed = (u8)kind;
	cq_note_arm(cq);
	missed = (flags & CQ_REPORT_MISSED) && cq_waiting(cq) > 0;
	after = cq_arm_late(cq, after_event);
	lock_release(&cq->lock);
	cq_follow(cq, after);
	return missed;
}

int cq_arm_ncomp(struct cq *cq, u32 count)
{
	bool fire = false;
	int err = 0;

	lock_acquire(&cq->lock);
	if (count > cq->capacity) {
		err = -EINVAL;
	} else {
		fire = count > 0 && cq_waiting(cq) >= count;
		cq->ncomp_wanted = fire ? 0 : count;
		cq_note_arm(cq);
	}
	lock_release(&cq->lock);
	if (fire)
		sink_fire(cq);
	return err;
}

bool cq_would_fire(struct cq *cq, bool solicited)
{
	bool fire;

	lock_acquire(&cq->lock);
	fire = cq_arm_is_met(cq, solicited) || cq_count_is_met(cq, cq_waiting(cq) + 1);
	lock_release(&cq->lock);
	return fire;
}

/* ---- changing what waits -------------------------------------------------------------------- */

void cq_forget(struct cq *cq, const void *qp)
{
	u32 kept;

	lock_acquire(&cq->poll_lock);
	lock_acquire(&cq->lock);
	kept = cq->tail;
	cq->solicited_end = kept;
	for (u32 i = cq->tail; i != cq->head; i++) {
		const struct cqe *e = &cq->ring[i & cq->mask];

		if (cq_source_qp(e->source) == qp) {
			cq_credit(cq, e->source);
			continue;
		}
		if (cq->keeps_sides)
			cq->sides[kept & cq->mask] = cq->sides[i & cq->mask];
		cq->ring[kept++ & cq->mask] = *e;
		if (e->solicited)
			cq->solicited_end = kept;
	}
	if ((s32)(cq->announced - kept) > 0)
		cq->announced = kept;
	moderation_forget(cq, kept);
	__atomic_store_n(&cq->head, kept, __ATOMIC_RELEASE); /* as in cq_show */
	lock_release(&cq->lock);
	lock_release(&cq->poll_lock);
}

/* Moves waiting completions into `ring` and `sides` (NULL: the CQ keeps none); every completion
 * keeps its running number. False: they do not fit. */
static bool cq_move(struct cq *cq, const struct cq_ring *ring, struct cqe_side *sides)
	REQUIRES(&cq->lock, &cq->poll_lock)
{
	u32 capacity = ring->capacity;

	if (cq->head - cq->tail > capacity)
		return false;
	for (u32 i = cq->tail; i != cq->head; i++) {
		ring->at[i & (capacity - 1)] = cq->ring[i & cq->mask];
		if (sides)
			sides[i & (capacity - 1)] = cq->sides[i & cq->mask];
	}
	cq_ring_set(cq, ring);
	cq->sides = sides;
	/* a wait for more than fit now fires when the ring is full */
	cq->ncomp_wanted = MIN(cq->ncomp_wanted, capacity);
	return true;
}

/* Tells whether a count that was lowered is reached. */
static bool cq_ncomp_is_due(struct cq *cq) REQUIRES(&cq->lock)
{
	bool due = cq->ncomp_wanted > 0 && cq_waiting(cq) >= cq->ncomp_wanted;

	if (due)
		cq->ncomp_wanted = 0;
	cq_note_arm(cq);
	return due;
}

int cq_resize(struct cq *cq, u32 cqe_wanted)
{
	struct cqe_side *sides = NULL, *old_sides;
	struct cq_ring ring, old;
	bool moved, fire;
	int err = cq_ring_alloc(cq->memory, cq_ring_capacity(cqe_wanted), &ring);

	if (err)
		return err;
	if (cq->keeps_sides && !(sides = sides_alloc(ring.capacity))) {
		cq_ring_free(cq->memory, &ring);
		return -ENOMEM;
	}
	lock_acquire(&cq->poll_lock);
	lock_acquire(&cq->lock);
	old = cq_ring_of(cq);
	old_sides = cq->sides;
	moved = cq_move(cq, &ring, sides);
	fire = moved && cq_ncomp_is_due(cq);
	lock_release(&cq->lock);
	lock_release(&cq->poll_lock);
	cq_ring_free(cq->memory, moved ? &old : &ring);
	free(moved ? old_sides : sides);
	if (fire)
		sink_fire(cq);
	return moved ? 0 : -EINVAL;
}
