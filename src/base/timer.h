/* timer.h: one-shot timers, kept in a pairing of a binary heap and back pointers.
 *
 * A timer_set belongs to one engine, whose driving thread runs it. Callbacks run without the set's
 * lock held and may arm or cancel any timer. timer_cancel does not wait for a callback that
 * has begun: the owner's own lock and state decide whether a late callback still means something,
 * and owners free a timer only after timer_cancel_wait.
 */
#ifndef BASE_TIMER_H
#define BASE_TIMER_H

#include "base/cond.h"
#include "base/lock.h"

#define TIMER_NEVER UINT64_MAX

/* Whoever arms it under a lock of its own may read it under that one. */
struct timer {
	u64 deadline_ns OWNED_BY(timer_set.lock);
	void (*fn)(struct timer *t) FIXED;
	/* index in the heap + 1; 0: not armed; UINT32_MAX: on the set's late list */
	u32 place OWNED_BY(timer_set.lock);
	struct timer *late_next OWNED_BY(timer_set.lock);
};

struct timer_set {
	struct lock lock;
	struct timer **heap GUARDED_BY(lock);
	u32 count GUARDED_BY(lock);
	u32 capacity GUARDED_BY(lock);
	struct timer *running GUARDED_BY(lock); /* whose callback is being run, by the one runner */
	/* armed when the heap could not grow: fire at the next run */
	struct timer *late GUARDED_BY(lock);
	struct cond idle GUARDS_ITSELF; /* signalled when a callback has returned */
	/* earliest deadline or TIMER_NEVER; read without the lock as a hint */
	u64 next_ns ATOMIC_ONLY;
	struct lock run_lock ACQUIRED_BEFORE(lock) ONE_AT_A_TIME; /* held by the runner */
};

void timer_set_init(struct timer_set *s);
/* Nobody may use the set any more; timers that are still armed are forgotten. */
void timer_set_destroy(struct timer_set *s);
/* Arms `t`, or moves it if it is armed. Returns true if it is now the earliest (a sleeper must
 * look again). The heap grows by reallocation here; where that fails the timer fires at the next
 * run at the latest. */
bool timer_arm(struct timer_set *s, struct timer *t, u64 deadline_ns);
/* Does nothing to a timer that is not armed. One that was never armed must be all zeroes but for
 * `fn`. */
void timer_cancel(struct timer_set *s, struct timer *t);
/* Cancels, and waits until a callback of `t` that has begun has returned. May block; not from a
 * callback. */
void timer_cancel_wait(struct timer_set *s, struct timer *t);
/* Runs what is due at now_ns. Returns how many ran; 0 at once if another thread is running them.
 * At most as many as were armed when it began: a callback that arms itself in the past runs
 * again in the next run, not in this one for ever. */
int timer_run(struct timer_set *s, u64 now_ns);

static inline u64 timer_next_ns(const struct timer_set *s)
{
	return __atomic_load_n(&s->next_ns, __ATOMIC_RELAXED);
}

#endif
