/* kernel_priv.h: what the files of libanyverbs-kernel share. */
#ifndef ANYVERBS_KERNEL_PRIV_H
#define ANYVERBS_KERNEL_PRIV_H

#include <linux/timer.h>
#include <pthread.h>
#include <time.h>

/* Guards timers, works and work queues: what expires a delayed work queues it in the same step.
 * Nothing is called with it held but the functions of timers that are is_locked. */
extern pthread_mutex_t anyverbs_base_lock;

/* Under anyverbs_base_lock; otherwise as mod_timer and del_timer. */
bool anyverbs_timer_start(struct timer_list *timer, unsigned long expires);
bool anyverbs_timer_stop(struct timer_list *timer);

/* A detached thread without signals. 0, or -EAGAIN, which it has said on standard error. */
int anyverbs_thread_start(const char *name, void *(*run)(void *data), void *data);

/* Waits on a condition until a time of CLOCK_MONOTONIC, in jiffies. */
void anyverbs_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, unsigned long deadline);

#endif
