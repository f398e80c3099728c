/* turn.h: a lock that may be held across callbacks and blocking calls.
 *
 * Recursive, so that a callback may come back to who called it. Waiters sleep on the lock's futex.
 */
#ifndef CORE_TURN_H
#define CORE_TURN_H

#include "base/lock.h"

struct turn {
	struct lock held;
	/* turn_self of the thread that has it; written by that thread alone */
	const void *owner ATOMIC_ONLY;
	u32 depth GUARDED_BY(held);
};

/* How many turns this thread has; its address names the thread. */
extern __thread u32 turn_self;

static inline void turn_init(struct turn *t) NO_THREAD_SAFETY /* nobody else has it yet */
{
	lock_init(&t->held);
	__atomic_store_n(&t->owner, NULL, __ATOMIC_RELAXED);
	t->depth = 0;
}

static inline bool turn_is_mine(const struct turn *t)
{
	return __atomic_load_n(&t->owner, __ATOMIC_RELAXED) == &turn_self;
}

/* The analysis cannot follow a recursive lock. */
static inline void turn_enter(struct turn *t) NO_THREAD_SAFETY
{
	if (!turn_is_mine(t)) {
		lock_acquire(&t->held);
		__atomic_store_n(&t->owner, &turn_self, __ATOMIC_RELAXED);
		turn_self++;
	}
	t->depth++;
}

/* False: another thread has it. */
static inline bool turn_try(struct turn *t) NO_THREAD_SAFETY
{
	if (!turn_is_mine(t)) {
		if (!lock_try(&t->held))
			return false;
		__atomic_store_n(&t->owner, &turn_self, __ATOMIC_RELAXED);
		turn_self++;
	}
	t->depth++;
	return true;
}

static inline void turn_leave(struct turn *t) NO_THREAD_SAFETY
{
	if (--t->depth)
		return;
	__atomic_store_n(&t->owner, NULL, __ATOMIC_RELAXED);
	turn_self--;
	lock_release(&t->held);
}

#endif
