/* timer.c: one-shot timers in a binary heap whose elements know their place.
 *
 * In:    deadlines          Out: callbacks, without the set's lock held
 * Runs:  the threads that drive the engine which owns the set; one runner at a time
 * Locks: run_lock (tried, never waited for), then lock (never across a callback)
 */
#include "base/timer.h"

#include <stdlib.h>

enum { TIMER_HEAP_FIRST = 32 };
#define PLACE_LATE UINT32_MAX

void timer_set_init(struct timer_set *s) NO_THREAD_SAFETY /* nobody else has it yet */
{
	*s = (struct timer_set){ .next_ns = TIMER_NEVER };
}

void timer_set_destroy(struct timer_set *s) NO_THREAD_SAFETY /* nobody else has it any more */
{
	free(s->heap);
	timer_set_init(s);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static void heap_put(struct timer_set *s, u32 index, struct timer *t) REQUIRES(&s->lock)
{
	s->heap[index] = t;
	t->place = index + 1;
}

static u32 heap_raise(struct timer_set *s, u32 index, const struct timer *t) REQUIRES(&s->lock)
{
	while (index > 0 && s->heap[(index - 1) / 2]->deadline_ns > t->deadline_ns) {
		heap_put(s, index, s->heap[(index - 1) / 2]);
		index = (index - 1) / 2;
	}
	return index;
}

static u32 heap_lower(struct timer_set *s, u32 index, const struct timer *t) REQUIRES(&s->lock)
{
	for (u32 child = 2 * index + 1; child < s->count; child = 2 * index + 1) {
		if (child + 1 < s->count &&
		    s->heap[child + 1]->deadline_ns < s->heap[child]->deadline_ns)
			child++;
		if (s->heap[child]->deadline_ns >= t->deadline_ns)
			break;
		heap_put(s, index, s->heap[child]);
		index = child;
	}
	return index;
}

/* Finds the place of `t` from the hole at `index` on, and puts it there. */
static void heap_settle(struct timer_set *s, u32 index, struct timer *t) REQUIRES(&s->lock)
{
	index = heap_raise(s, index, t);
	heap_put(s, heap_lower(s, index, t), t);
}

static bool heap_reserve(struct timer_set *s) REQUIRES(&s->lock)
{
	u32 capacity = s->capacity ? 2 * s->capacity : TIMER_HEAP_FIRST;
	struct timer **heap;

	if (s->count < s->capacity)
		return true;
	heap = realloc(s->heap, capacity * sizeof(struct timer *));
	if (!heap)
		return false;
	s->heap = heap;
	s->capacity = capacity;
	return true;
}

/* ---- arming --------------------------------------------------------------------------------- */

static void timer_drop_late(struct timer_set *s, struct timer *t) REQUIRES(&s->lock)
{
	struct timer **link = &s->late;

	while (*link && *link != t)
		link = &(*link)->late_next;
	if (*link)
		*link = t->late_next;
}

static void timer_drop(struct timer_set *s, struct timer *t) REQUIRES(&s->lock)
{
	u32 place = t->place;
	struct timer *last;

	t->place = 0;
	if (place == PLACE_LATE) {
		timer_drop_late(s, t);
	} else if (place != 0) {
		last = s->heap[--s->count];
		if (last != t)
			heap_settle(s, place - 1, last);
	}
}

static void timer_publish(struct timer_set *s) REQUIRES(&s->lock)
{
	u64 next_ns = s->count ? s->heap[0]->deadline_ns : TIMER_NEVER;

	__atomic_store_n(&s->next_ns, s->late ? 0 : next_ns, __ATOMIC_RELAXED);
}

bool timer_arm(struct timer_set *s, struct timer *t, u64 deadline_ns)
{
	bool earliest;

	lock_acquire(&s->lock);
	timer_drop(s, t);
	t->deadline_ns = deadline_ns;
	if (heap_reserve(s)) {
		heap_settle(s, s->count++, t);
	} else {
		t->place = PLACE_LATE;
		t->late_next = s->late;
		s->late = t;
	}
	earliest = t->place == PLACE_LATE || t->place == 1;
	timer_publish(s);
	lock_release(&s->lock);
	return earliest;
}

void timer_cancel(struct timer_set *s, struct timer *t)
{
	lock_acquire(&s->lock);
	timer_drop(s, t);
	timer_publish(s);
	lock_release(&s->lock);
}

void timer_cancel_wait(struct timer_set *s, struct timer *t)
{
	lock_acquire(&s->lock);
	timer_drop(s, t);
	while (s->running == t) {
		cond_wait(&s->idle, &s->lock);
		timer_drop(s, t); /* the callback may have armed it again */
	}
	timer_publish(s);
	lock_release(&s->lock);
}

/* ---- running -------------------------------------------------------------------------------- */

/* Takes the next timer that is due, and makes it the running one. NULL: none. */
static struct timer *timer_take(struct timer_set *s, u64 now_ns) REQUIRES(&s->lock)
{
	struct timer *t = s->late;

	if (!t && s->count > 0 && s->heap[0]->deadline_ns <= now_ns)
		t = s->heap[0];
	if (t)
		timer_drop(s, t);
	s->running = t;
	return t;
}

static u32 timer_armed_count(const struct timer_set *s) REQUIRES(&s->lock)
{
	u32 n = s->count;

	for (const struct timer *t = s->late; t; t = t->late_next)
		n++;
	return n;
}

static int timer_run_due(struct timer_set *s, u64 now_ns)
{
	struct timer *t;
	u32 ran = 0, limit;

	lock_acquire(&s->lock);
	limit = timer_armed_count(s);
	while (ran < limit && (t = timer_take(s, now_ns)) != NULL) {
		timer_publish(s);
		lock_release(&s->lock);
		t->fn(t);
		ran++;
		lock_acquire(&s->lock);
		s->running = NULL;
		cond_wake(&s->idle);
	}
	timer_publish(s);
	lock_release(&s->lock);
	return (int)ran;
}

int timer_run(struct timer_set *s, u64 now_ns)
{
	int ran;

	if (timer_next_ns(s) > now_ns || !lock_try(&s->run_lock))
		return 0;
	ran = timer_run_due(s, now_ns);
	lock_release(&s->run_lock);
	return ran;
}
