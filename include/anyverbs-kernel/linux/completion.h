/* completion.h: waiting for an end. complete and its kin may be called in any context, the waits
 * may sleep. What is done before complete is visible behind the wait; a waiter that has returned
 * may free the completion. */
#ifndef ANYVERBS_LINUX_COMPLETION_H
#define ANYVERBS_LINUX_COMPLETION_H

#include <linux/wait.h>

struct completion {
	unsigned int done; /* under wait.lock: ends that nobody has waited for; UINT_MAX: all */
	wait_queue_head_t wait;
};

#define COMPLETION_INITIALIZER(name) { 0, __WAIT_QUEUE_HEAD_INITIALIZER((name).wait) }
#define DECLARE_COMPLETION(name) struct completion name = COMPLETION_INITIALIZER(name)
#define DECLARE_COMPLETION_ONSTACK(name) DECLARE_COMPLETION(name)

static inline void init_completion(struct completion *x)
{
	x->done = 0;
	init_waitqueue_head(&x->wait);
}

/* For another round. Nobody waits. */
static inline void reinit_completion(struct completion *x)
{
	x->done = 0;
}

/* Lets one waiter go on, now or later. */
void complete(struct completion *x);
/* Lets all go on, until reinit_completion. */
void complete_all(struct completion *x);

/* Worth the jiffies that are left, at least 1; 0: the time is over; -ERESTARTSYS: a signal. */
long anyverbs_completion_wait(struct completion *x, unsigned int state, long timeout);

#define wait_for_completion(x)                                                                     \
	((void)anyverbs_completion_wait(x, TASK_UNINTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT))
#define wait_for_completion_timeout(x, timeout)                                                    \
	((unsigned long)anyverbs_completion_wait(x, TASK_UNINTERRUPTIBLE, (long)(timeout)))
/* 0, or -ERESTARTSYS. */
int wait_for_completion_interruptible(struct completion *x);
#define wait_for_completion_killable(x) wait_for_completion_interruptible(x)
#define wait_for_completion_interruptible_timeout(x, timeout)                                      \
	anyverbs_completion_wait(x, TASK_INTERRUPTIBLE, (long)(timeout))

/* Whether it would not have had to wait; then it has. In any context. */
bool try_wait_for_completion(struct completion *x);
/* Whether a wait would return at once. In any context. */
bool completion_done(struct completion *x);

#endif
