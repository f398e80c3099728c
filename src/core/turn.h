/* turn.h: two ways to wait that base/lock.h has not: a lock that may be held across callbacks,
 * and a count to wait for.
 *
 * A turn is recursive, so that a callback may come back to who called it. Waiters sleep on a
 * futex.
 */
#ifndef CORE_TURN_H
#define CORE_TURN_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

struct turn {
	struct lock held;
	const void *owner; /* turn_self of the thread that has it; written by that thread alone */
	u32 depth;         /* the owner's */
};

extern __thread char turn_self;

static inline void turn_init(struct turn *t)
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
	}
	t->depth++;
}

static inline void turn_leave(struct turn *t) NO_THREAD_SAFETY
{
	if (--t->depth)
		return;
	__atomic_store_n(&t->owner, NULL, __ATOMIC_RELAXED);
	lock_release(&t->held);
}

/* Sleeps until *word is no longer `value`, or for no reason. */
static inline void word_wait(u32 *word, u32 value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void word_wake_all(u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

#endif
