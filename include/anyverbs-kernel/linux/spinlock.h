/* spinlock.h: locks whose holder does not sleep. They are mutexes of the C library: a thread that
 * finds one taken waits in the kernel, not in a loop. Not recursive.
 *
 * There are no interrupts. Handlers of the midlayer are threads (docs/contract.md), so a lock alone
 * keeps them out, and the forms _irq, _irqsave and _bh are the plain lock; _irqsave sets its
 * flags to 0. Code that disables interrupts and takes no lock (local_irq_save, per-CPU data) would
 * not be safe, and does not compile.
 *
 * A thread that holds one and calls what may sleep is warned of, once per place: might_sleep of
 * linux/sched.h.
 */
#ifndef ANYVERBS_LINUX_SPINLOCK_H
#define ANYVERBS_LINUX_SPINLOCK_H

#include <asm/barrier.h>
#include <linux/compiler.h>
#include <linux/types.h>
#include <pthread.h>

/* How many locks of this file the thread holds. */
extern __thread int anyverbs_spins_held;

typedef struct spinlock {
	pthread_mutex_t mutex;
	bool is_held; /* for spin_is_locked */
} spinlock_t;

typedef spinlock_t raw_spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name) { PTHREAD_MUTEX_INITIALIZER, false }
#define SPIN_LOCK_UNLOCKED ((spinlock_t)__SPIN_LOCK_UNLOCKED(x))
#define DEFINE_SPINLOCK(name) spinlock_t name = __SPIN_LOCK_UNLOCKED(name)

static inline void spin_lock_init(spinlock_t *lock)
{
	pthread_mutex_init(&lock->mutex, (const pthread_mutexattr_t *)0);
	lock->is_held = false;
}

static inline void spin_lock(spinlock_t *lock)
{
	anyverbs_spins_held++;
	pthread_mutex_lock(&lock->mutex);
	WRITE_ONCE(lock->is_held, true);
}

static inline void spin_unlock(spinlock_t *lock)
{
	WRITE_ONCE(lock->is_held, false);
	pthread_mutex_unlock(&lock->mutex);
	anyverbs_spins_held--;
}

/* Whether it took the lock. */
static inline bool spin_trylock(spinlock_t *lock)
{
	if (pthread_mutex_trylock(&lock->mutex) != 0)
		return false;
	anyverbs_spins_held++;
	WRITE_ONCE(lock->is_held, true);
	return true;
}

/* By any thread. */
static inline bool spin_is_locked(const spinlock_t *lock)
{
	return READ_ONCE(lock->is_held);
}

#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_nested(lock, subclass) spin_lock(lock)
#define spin_lock_irqsave(lock, flags) ((void)((flags) = 0), spin_lock(lock))
#define spin_unlock_irqrestore(lock, flags) ((void)(flags), spin_unlock(lock))
#define spin_trylock_bh(lock) spin_trylock(lock)
#define spin_trylock_irqsave(lock, flags) ((void)((flags) = 0), spin_trylock(lock))
#define assert_spin_locked(lock) BUG_ON(!spin_is_locked(lock))
#define lockdep_assert_held(lock) ((void)(lock))

/* ---- many readers or one writer -------------------------------------------------------------- */

typedef struct {
	pthread_rwlock_t rwlock;
} rwlock_t;

#define DEFINE_RWLOCK(name) rwlock_t name = { PTHREAD_RWLOCK_INITIALIZER }

static inline void rwlock_init(rwlock_t *lock)
{
	pthread_rwlock_init(&lock->rwlock, (const pthread_rwlockattr_t *)0);
}

static inline void read_lock(rwlock_t *lock)
{
	anyverbs_spins_held++;
	pthread_rwlock_rdlock(&lock->rwlock);
}

static inline void write_lock(rwlock_t *lock)
{
	anyverbs_spins_held++;
	pthread_rwlock_wrlock(&lock->rwlock);
}

static inline void read_unlock(rwlock_t *lock)
{
	pthread_rwlock_unlock(&lock->rwlock);
	anyverbs_spins_held--;
}

#define write_unlock(lock) read_unlock(lock)
#define read_lock_bh(lock) read_lock(lock)
#define read_unlock_bh(lock) read_unlock(lock)
#define write_lock_bh(lock) write_lock(lock)
#define write_unlock_bh(lock) read_unlock(lock)
#define read_lock_irqsave(lock, flags) ((void)((flags) = 0), read_lock(lock))
#define read_unlock_irqrestore(lock, flags) ((void)(flags), read_unlock(lock))
#define write_lock_irqsave(lock, flags) ((void)((flags) = 0), write_lock(lock))
#define write_unlock_irqrestore(lock, flags) ((void)(flags), read_unlock(lock))

#include <linux/bug.h>

#endif
