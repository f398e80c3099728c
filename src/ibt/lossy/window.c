/* window.c: limits the bytes in flight to one destination of a path that loses packets.
 *
 * All queue pairs of a process there share its receive buffer, and an overflow loses packets: so
 * all bytes in flight to one destination share one window. A queue pair that finds it full queues
 * for it, and then sends a fixed amount, so that many active queue pairs share fairly. A loss cuts
 * the limit by a quarter, acknowledgements let it grow again.
 *
 * Where the RTT is long, most bytes in flight are on the wire, not in the buffer. The limit may
 * then grow to one buffer for each WINDOW_STALL_US of the minimum RTT: a receiver that does not run
 * for that long still loses nothing. It doubles each RTT until a loss, if it is used. It starts
 * anew when nothing is in flight, since then all of it would arrive at once.
 *
 * A probe, one packet after silence, is sent even if the window is full: else the retry budget
 * would run without a probe. The window counts neither the probe nor its response until the peer
 * responds (stream.uncounted): a dead peer queue pair never does, and its requesters' probes would
 * take the room of others.
 *
 * In:    packets about to be sent, acknowledged bytes
 * Out:   permission to send, in turn
 * Runs:  the thread that runs the requester; the scheduler, for turns
 * Locks: window.lock, a leaf inside sq_lock
 */
#include "base/clock.h"
#include "ibt/lossy/window.h"

enum {
	/* A stock receive buffer of the node's sockets is twice 212,992 bytes, and the kernel
	 * counts about 9,000 for a packet of 4096 that comes alone. */
	WINDOW_STOCK = 208 << 10,
	WINDOW_MAX = 16 << 20,
	WINDOW_STALL_US = 4000,
	WINDOW_RTTS = 4,		  /* measurements, before the shortest one is believed */
	WINDOW_BURST = 15 * (4096 + 512), /* what one system call takes */
	WINDOW_MIN = 40 << 10, /* the answer of a READ request fits that is not stretched */
	WINDOW_STRETCH = 2,    /* log2; such an answer comes at once, and fits a stock buffer too */
	WINDOW_QUANTUM = 20 << 10,		    /* for one turn */
	WINDOW_PACKET = 512,			    /* what a packet counts beside its payload */
	WINDOW_GROWTH = 2 * (4096 + WINDOW_PACKET), /* per limit's worth of acknowledged bytes */
	WINDOW_SLOWLY = 16, /* part of it that it grows each time, after a loss */
	WINDOW_CUT_LEAST_US = 100,
	WINDOW_BUSY_US = 50,
};

u32 window_cost(u32 packets, u32 bytes)
{
	return packets * WINDOW_PACKET + bytes;
}

/* How far the limit may grow. */
static u32 window_most(const struct path_window *w)
{
	u32 rtt_us = __atomic_load_n(&w->rtt_us, __ATOMIC_RELAXED);

	if (likely(rtt_us < 2 * WINDOW_STALL_US) ||
	    __atomic_load_n(&w->rtts, __ATOMIC_RELAXED) < WINDOW_RTTS)
		return WINDOW_STOCK;
	return (u32)MIN((u64)WINDOW_STOCK * rtt_us / WINDOW_STALL_US, (u64)WINDOW_MAX);
}

static u32 window_limit(const struct path_window *w) REQUIRES(w->lock)
{
	return w->limit == 0 ? (u32)WINDOW_STOCK : w->limit;
}

/* With nothing in flight anything may be sent. */
static u32 window_room(const struct path_window *w, u32 need) REQUIRES(w->lock)
{
	u32 limit = window_limit(w);

	if (w->in_flight == 0)
		return MAX(limit, need);
	return w->in_flight < limit ? limit - w->in_flight : 0;
}

u8 window_stretch(struct ibt_qp *qp, u32 cost)
{
	u64 reads = MAX(qp->attr.max_rd_atomic, 1);
	struct path_window *w = qp->dest->window;
	u8 stretch = 0;
	u32 limit;

	lock_acquire(&w->lock);
	limit = window_limit(w);
	lock_release(&w->lock);
	while (limit > WINDOW_STOCK && stretch < WINDOW_STRETCH &&
	       reads * (cost << stretch) < limit)
		stretch++;
	return stretch;
}

static u32 window_burst(const struct path_window *w) REQUIRES(w->lock)
{
	return MIN((u32)WINDOW_BURST, window_limit(w) / 2);
}

/* What a message takes at once, `left` of which is to be sent: whole bursts, each one system call.
 * Else every acknowledgement lets go as little as it is for, and small bursts stay small for ever.
 * While others wait too, as much as one turn is worth. */
static u32 window_portion(const struct path_window *w, const struct ibt_qp *qp, u32 need, u32 left)
	REQUIRES(w->lock)
{
	bool shared = qp->req.place.turn && !list_empty(&w->waiting);

	return MAX(need, MIN(left, shared ? (u32)WINDOW_QUANTUM : window_burst(w)));
}

static void window_hint(struct path_window *w) REQUIRES(w->lock)
{
	__atomic_store_n(&w->any_waiting, !list_empty(&w->waiting), __ATOMIC_RELAXED);
}

static bool window_is_turn(const struct path_window *w, const struct ibt_qp *qp) REQUIRES(w->lock)
{
	return qp->req.place.turn || list_empty(&w->waiting) ||
	       w->waiting.next == &qp->req.place.node;
}

static void window_enlist(struct path_window *w, struct ibt_qp *qp) REQUIRES(w->lock)
{
	if (!list_empty(&qp->req.place.node))
		return;
	if (qp->req.place.turn)
		list_push_front(&w->waiting, &qp->req.place.node);
	else
		list_push_back(&w->waiting, &qp->req.place.node);
}

/* Grants a probe, whatever the window has. */
static void window_pass(struct path_window *w, struct ibt_qp *qp, u32 need) REQUIRES(w->lock)
	REQUIRES(qp->req.sq_lock)
{
	qp->req.stream.charged += need;
	qp->req.stream.uncounted += need;
	qp->req.place.turn = false;
	list_remove(&qp->req.place.node);
}

bool window_reserve(struct ibt_qp *qp, u32 cost, u32 left)
{
	struct stream *s = &qp->req.stream;
	/* Taken from the window by an earlier call, and not yet sent. */
	u32 held = s->charged - (s->cost_next - s->cost_done);
	struct path_window *w = qp->dest->window;
	bool granted = false;
	u32 need, room, portion;

	if (likely(held >= cost))
		return true;
	need = cost - held;
	lock_acquire(&w->lock);
	if (unlikely(w->in_flight == 0 && w->limit > WINDOW_STOCK))
		w->limit = 0;
	room = window_is_turn(w, qp) ? window_room(w, need) : 0;
	portion = window_portion(w, qp, need, left);
	if (unlikely(s->probe)) {
		window_pass(w, qp, need);
		granted = true;
	} else if (room >= portion) {
		/* More follows, of this message or of a request behind it: takes a whole
		 * quantum, so that not each packet takes the window's lock. What is too much
		 * goes back at the end of the pump (stream_pumped). */
		if (left > cost || qp->req.next + 1 != qp->req.head)
			portion = MIN(MAX(portion, (u32)WINDOW_QUANTUM), room);
		w->in_flight += portion;
		s->charged += portion;
		qp->req.place.turn = false;
		list_remove(&qp->req.place.node);
		granted = true;
	} else {
		qp->req.place.wants = need;
		window_enlist(w, qp);
	}
	window_hint(w);
	lock_release(&w->lock);
	return granted;
}

/* Growth where the RTT is long. Only a limit that is used has shown that it is not too much. */
static u64 window_grow_far(const struct path_window *w, u64 limit, u32 acked) REQUIRES(w->lock)
{
	if (w->in_flight + acked < limit / 2)
		return limit;
	return limit + (w->fast_to == 0 || limit < w->fast_to ? acked : acked / WINDOW_SLOWLY);
}

static void window_grow(struct path_window *w, u32 acked) REQUIRES(w->lock)
{
	u64 limit = window_limit(w), most = window_most(w);

	if (acked == 0 || (limit == most && likely(limit == WINDOW_STOCK)))
		return;
	if (limit < WINDOW_STOCK)
		limit += (u64)acked * WINDOW_GROWTH / limit;
	else
		limit = window_grow_far(w, limit, acked);
	limit = MIN(limit, most);
	w->limit = limit == WINDOW_STOCK ? 0 : (u32)limit;
}

void window_settle(struct ibt_qp *qp, u32 acked)
{
	u32 used = qp->req.stream.cost_next - qp->req.stream.cost_done;
	struct path_window *w = qp->dest->window;

	if (qp->req.stream.charged == used && acked == 0)
		return;
	lock_acquire(&w->lock);
	w->in_flight += used - (qp->req.stream.charged - qp->req.stream.uncounted);
	window_grow(w, acked);
	lock_release(&w->lock);
	qp->req.stream.charged = used;
	qp->req.stream.uncounted = 0;
}

void window_count_probe(struct ibt_qp *qp)
{
	struct path_window *w = qp->dest->window;

	lock_acquire(&w->lock);
	w->in_flight += qp->req.stream.uncounted;
	lock_release(&w->lock);
	qp->req.stream.uncounted = 0;
}

void window_unlist(struct ibt_qp *qp)
{
	struct path_window *w = qp->dest->window;

	lock_acquire(&w->lock);
	list_remove(&qp->req.place.node);
	qp->req.place.turn = false;
	window_hint(w);
	lock_release(&w->lock);
}

void window_leave(struct ibt_qp *qp)
{
	qp->req.stream.cost_done = qp->req.stream.cost_next;
	window_settle(qp, 0);
	window_unlist(qp);
}

void window_cut(struct ibt_qp *qp, u32 rtt_us, u64 now_ns)
{
	struct path_window *w = qp->dest->window;

	lock_acquire(&w->lock);
	if (now_ns - w->cut_ns >= MAX(rtt_us, (u32)WINDOW_CUT_LEAST_US) * NS_PER_US) {
		w->limit = MAX(window_limit(w) / 4 * 3, (u32)WINDOW_MIN);
		w->fast_to = w->limit;
		w->cut_ns = now_ns;
	}
	lock_release(&w->lock);
}

void window_measured(struct ibt_qp *qp, u32 rtt_us)
{
	struct path_window *w = qp->dest->window;
	u32 rtts = __atomic_load_n(&w->rtts, __ATOMIC_RELAXED);

	/* If two do this at once the one or the other counts: good enough for both. */
	if (rtts == 0 || rtt_us < __atomic_load_n(&w->rtt_us, __ATOMIC_RELAXED))
		__atomic_store_n(&w->rtt_us, rtt_us, __ATOMIC_RELAXED);
	if (rtts < WINDOW_RTTS)
		__atomic_store_n(&w->rtts, rtts + 1, __ATOMIC_RELAXED);
}

struct path_dest *window_claim(struct ibt_qp *qp)
{
	struct path_dest *dest = qp->dest;

	if (dest == NULL || likely(!__atomic_load_n(&dest->window->any_waiting, __ATOMIC_RELAXED)))
		return NULL;
	dest->path->ops->dest_hold(dest);
	return dest;
}

/* Tells whether the first waiting queue pair may have its turn. The usual room may be too little
 * for a long READ request; a queue pair whose turn was too small stays the first. */
static bool window_has_turn(const struct path_window *w) REQUIRES(w->lock)
{
	const struct ibt_qp *first = list_entry(w->waiting.next, struct ibt_qp, req.place.node);
	u32 usual = MAX((u32)WINDOW_MIN - WINDOW_PACKET, window_burst(w));

	return w->in_flight == 0 || window_room(w, 0) >= MAX(usual, first->req.place.wants);
}

/* The next whose turn it is, if there is room for that. */
struct ibt_qp *window_pop(struct path_window *w)
{
	struct list_head *node = NULL;
	struct ibt_qp *qp = NULL;

	lock_acquire(&w->lock);
	if (!list_empty(&w->waiting) && window_has_turn(w))
		node = list_pop_front(&w->waiting);
	if (node != NULL) {
		qp = list_entry(node, struct ibt_qp, req.place.node);
		qp->req.place.turn = true;
		__atomic_store_n(&qp->req.place.busy, true, __ATOMIC_RELAXED);
	}
	window_hint(w);
	lock_release(&w->lock);
	return qp;
}

void window_turn_over(struct path_window *w, struct ibt_qp *qp)
{
	lock_acquire(&w->lock);
	qp->req.place.turn = false;
	lock_release(&w->lock);
	/* pairs with window_quiesce */
	__atomic_store_n(&qp->req.place.busy, false, __ATOMIC_RELEASE);
}

void window_quiesce(struct ibt_qp *qp)
{
	/* pairs with window_turn_over */
	while (__atomic_load_n(&qp->req.place.busy, __ATOMIC_ACQUIRE))
		clock_sleep_ns(WINDOW_BUSY_US * NS_PER_US);
}
