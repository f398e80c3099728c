/* rwsem.h: many readers or one writer; the holder may sleep. May sleep, but for the up_ calls. */
#ifndef ANYVERBS_LINUX_RWSEM_H
#define ANYVERBS_LINUX_RWSEM_H

#include <linux/sched.h>
#include <pthread.h>

struct rw_semaphore {
	pthread_rwlock_t rwlock;
};

#define DECLARE_RWSEM(name) struct rw_semaphore name = { PTHREAD_RWLOCK_INITIALIZER }
#define init_rwsem(sem) ((void)pthread_rwlock_init(&(sem)->rwlock, NULL))
#define down_read(sem) (might_sleep(), (void)pthread_rwlock_rdlock(&(sem)->rwlock))
#define down_write(sem) (might_sleep(), (void)pthread_rwlock_wrlock(&(sem)->rwlock))
#define up_read(sem) ((void)pthread_rwlock_unlock(&(sem)->rwlock))
#define up_write(sem) ((void)pthread_rwlock_unlock(&(sem)->rwlock))

#endif
