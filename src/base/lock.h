/* lock.h: the one lock of the project: spins briefly, then waits on a futex.
 *
 * Sections under a lock on a verbs path never block (no system call that can sleep, no allocation
 * that can fail slowly), so the spin nearly always wins; the futex keeps two threads of one core
 * from burning a scheduler slice. Not recursive, not fair. 4 bytes; all zeroes is unlocked. Never
 * shared between processes.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include "base/compiler.h"

struct CAPABILITY("lock") lock {
	/* 0 free, 1 held, 2 held and somebody may wait on the futex */
	u32 word OWNED_BY(atomic operations);
};

/* The steps that tests which watch locks are told of; other builds have no watch. */
enum lock_step { LOCK_WANTED, LOCK_HELD, LOCK_LEFT };
#ifdef AV_LOCK_WATCH
AV_EXPORT extern void (*lock_watch)(const struct lock *l, enum lock_step step);
#define LOCK_WATCH(l, step)                                                                        \
	do {                                                                                       \
		if (lock_watch)                                                                    \
			lock_watch((l), (step));                                                   \
	} while (0)
#else
#define LOCK_WATCH(l, step) ((void)0)
#endif

AV_EXPORT void lock_wait(struct lock *l); /* slow half of lock_acquire: returns holding it */
AV_EXPORT void lock_wake(struct lock *l); /* slow half of lock_release: wakes one waiter */

static inline void lock_init(struct lock *l)
{
	__atomic_store_n(&l->word, 0, __ATOMIC_RELAXED);
}

static inline bool lock_try(struct lock *l) TRY_ACQUIRE(true, l) NO_THREAD_SAFETY
{
	u32 free = 0;
	bool got = __atomic_compare_exchange_n(&l->word, &free, 1, false, __ATOMIC_ACQUIRE,
					       __ATOMIC_RELAXED);

	if (got)
		LOCK_WATCH(l, LOCK_HELD);
	return got;
}

static inline void lock_acquire(struct lock *l) ACQUIRE(l) NO_THREAD_SAFETY
{
	u32 free = 0;

	LOCK_WATCH(l, LOCK_WANTED);
	if (unlikely(!__atomic_compare_exchange_n(&l->word, &free, 1, false, __ATOMIC_ACQUIRE,
						  __ATOMIC_RELAXED)))
		lock_wait(l);
	LOCK_WATCH(l, LOCK_HELD);
}

/* The store pairs with the acquire in lock_acquire, lock_try and lock_wait. A plain store
 * instead of an exchange halves the price of an uncontended lock; a waiter that came between the
 * load and the store is not woken, which is why lock_wait never sleeps for long. */
static inline void lock_release(struct lock *l) RELEASE(l) NO_THREAD_SAFETY
{
	u32 word = __atomic_load_n(&l->word, __ATOMIC_RELAXED);

	LOCK_WATCH(l, LOCK_LEFT);
	__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
	if (unlikely(word == 2))
		lock_wake(l);
}

#endif
