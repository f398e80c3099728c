/* mutex.h: locks whose holder may sleep. May sleep, but for mutex_trylock, mutex_unlock and
 * mutex_is_locked. Not recursive; the thread that took one unlocks it. Signals interrupt no wait
 * here: mutex_lock_interruptible returns 0. */
#ifndef ANYVERBS_LINUX_MUTEX_H
#define ANYVERBS_LINUX_MUTEX_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

struct mutex {
	pthread_mutex_t mutex;
	bool is_held; /* for mutex_is_locked */
};

#define __MUTEX_INITIALIZER(name) { PTHREAD_MUTEX_INITIALIZER, false }
#define DEFINE_MUTEX(name) struct mutex name = __MUTEX_INITIALIZER(name)

static inline void mutex_init(struct mutex *lock)
{
	pthread_mutex_init(&lock->mutex, (const pthread_mutexattr_t *)0);
	lock->is_held = false;
}

static inline void mutex_destroy(struct mutex *lock)
{
	pthread_mutex_destroy(&lock->mutex);
}

static inline void anyverbs_mutex_lock(struct mutex *lock)
{
	pthread_mutex_lock(&lock->mutex);
	WRITE_ONCE(lock->is_held, true);
}

#define mutex_lock(lock)                                                                           \
	do {                                                                                       \
		might_sleep();                                                                     \
		anyverbs_mutex_lock(lock);                                                         \
	} while (0)
#define mutex_lock_nested(lock, subclass) mutex_lock(lock)
#define mutex_lock_interruptible(lock)                                                             \
	({                                                                                         \
		mutex_lock(lock);                                                                  \
		0;                                                                                 \
	})
#define mutex_lock_killable(lock) mutex_lock_interruptible(lock)

/* Whether it took the lock. */
static inline bool mutex_trylock(struct mutex *lock)
{
	if (pthread_mutex_trylock(&lock->mutex) != 0)
		return false;
	WRITE_ONCE(lock->is_held, true);
	return true;
}

static inline void mutex_unlock(struct mutex *lock)
{
	WRITE_ONCE(lock->is_held, false);
	pthread_mutex_unlock(&lock->mutex);
}

/* By any thread. */
static inline bool mutex_is_locked(const struct mutex *lock)
{
	return READ_ONCE(lock->is_held);
}

#endif
