/* wait.h: wait queues. The wait_event family may sleep; the wake_up family may be called in any
 * context.
 *
 * wait_event evaluates its condition in the waiting thread, under no lock, at the beginning and
 * after each wake-up. Whoever makes it true does so before wake_up, and the condition reads atomic
 * variables (READ_ONCE, atomic_read) or takes a lock; else it is a data race, as it is in the
 * kernel, and ThreadSanitizer says so.
 *
 * What the waker stored before wake_up is visible to the thread that it wakes.
 */
#ifndef ANYVERBS_LINUX_WAIT_H
#define ANYVERBS_LINUX_WAIT_H

#include <linux/errno.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

typedef struct wait_queue_head {
	spinlock_t lock;
	struct list_head head; /* wait_queue_entry.entry */
} wait_queue_head_t;

typedef struct wait_queue_entry {
	struct list_head entry;
	struct task_struct *task;
	bool is_exclusive; /* a wake-up ends with it */
	bool is_kept;	   /* stays on the queue when it is woken (add_wait_queue) */
} wait_queue_entry_t;

typedef wait_queue_entry_t wait_queue_t; /* its name before 4.13 */

#define __WAIT_QUEUE_HEAD_INITIALIZER(name)                                                        \
	{ __SPIN_LOCK_UNLOCKED(name), LIST_HEAD_INIT((name).head) }
#define DECLARE_WAIT_QUEUE_HEAD(name)                                                              \
	wait_queue_head_t name = __WAIT_QUEUE_HEAD_INITIALIZER(name)
#define DECLARE_WAIT_QUEUE_HEAD_ONSTACK(name) DECLARE_WAIT_QUEUE_HEAD(name)
#define DEFINE_WAIT(name)                                                                          \
	wait_queue_entry_t name = { LIST_HEAD_INIT((name).entry), current, false, false }
#define DECLARE_WAITQUEUE(name, waiter)                                                            \
	wait_queue_entry_t name = { LIST_HEAD_INIT((name).entry), waiter, false, true }

static inline void init_waitqueue_head(wait_queue_head_t *queue)
{
	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->head);
}

/* Without the queue's lock; only behind a smp_mb that follows the store of the condition. */
static inline bool waitqueue_active(wait_queue_head_t *queue)
{
	return !list_empty(&queue->head);
}

void add_wait_queue(wait_queue_head_t *queue, wait_queue_entry_t *entry);
void remove_wait_queue(wait_queue_head_t *queue, wait_queue_entry_t *entry);

/* Puts the entry on the queue, unless it is there, and sets the task's state. */
void prepare_to_wait(wait_queue_head_t *queue, wait_queue_entry_t *entry, int state);
void prepare_to_wait_exclusive(wait_queue_head_t *queue, wait_queue_entry_t *entry, int state);
/* Takes it off, and sets TASK_RUNNING. */
void finish_wait(wait_queue_head_t *queue, wait_queue_entry_t *entry);

/* Wakes those that sleep in one of `mode`'s states, oldest first: all that are not exclusive, and
 * `exclusive` of those that are (0: all). The first is with the queue's lock held. */
void anyverbs_wake_locked(wait_queue_head_t *queue, unsigned int mode, int exclusive);
void anyverbs_wake(wait_queue_head_t *queue, unsigned int mode, int exclusive);

#define wake_up(queue) anyverbs_wake(queue, TASK_NORMAL, 1)
#define wake_up_nr(queue, n) anyverbs_wake(queue, TASK_NORMAL, n)
#define wake_up_all(queue) anyverbs_wake(queue, TASK_NORMAL, 0)
#define wake_up_interruptible(queue) anyverbs_wake(queue, TASK_INTERRUPTIBLE, 1)
#define wake_up_interruptible_all(queue) anyverbs_wake(queue, TASK_INTERRUPTIBLE, 0)
#define wake_up_interruptible_sync(queue) wake_up_interruptible(queue)

/* Worth the jiffies that are left, at least 1, if the condition was true; 0: the time is over;
 * -ERESTARTSYS: a signal. */
#define anyverbs_wait(queue, condition, how, is_one, timeout)                                      \
	({                                                                                         \
		wait_queue_head_t *anyverbs_queue = &(queue);                                      \
		long anyverbs_left = (timeout);                                                    \
		might_sleep();                                                                     \
		if (!(condition)) {                                                                \
			DEFINE_WAIT(anyverbs_entry);                                               \
			anyverbs_entry.is_exclusive = (is_one);                                    \
			for (;;) {                                                                 \
				prepare_to_wait(anyverbs_queue, &anyverbs_entry, how);             \
				if (condition) {                                                   \
					anyverbs_left += anyverbs_left == 0;                       \
					break;                                                     \
				}                                                                  \
				if (anyverbs_left == 0)                                            \
					break;                                                     \
				if ((how) == TASK_INTERRUPTIBLE && signal_pending(current)) {      \
					anyverbs_left = -ERESTARTSYS;                              \
					break;                                                     \
				}                                                                  \
				anyverbs_left = schedule_timeout(anyverbs_left);                   \
			}                                                                          \
			finish_wait(anyverbs_queue, &anyverbs_entry);                              \
		} else {                                                                           \
			anyverbs_left += anyverbs_left == 0;                                       \
		}                                                                                  \
		anyverbs_left;                                                                     \
	})

#define anyverbs_wait_long(queue, condition, how, is_one)                                          \
	anyverbs_wait(queue, condition, how, is_one, MAX_SCHEDULE_TIMEOUT)

#define wait_event(queue, condition)                                                               \
	((void)anyverbs_wait_long(queue, condition, TASK_UNINTERRUPTIBLE, false))
/* 0, or -ERESTARTSYS. */
#define wait_event_interruptible(queue, condition)                                                 \
	({                                                                                         \
		long anyverbs_end =                                                                \
			anyverbs_wait_long(queue, condition, TASK_INTERRUPTIBLE, false);           \
		anyverbs_end < 0 ? (int)anyverbs_end : 0;                                          \
	})
#define wait_event_interruptible_exclusive(queue, condition)                                       \
	({                                                                                         \
		long anyverbs_end =                                                                \
			anyverbs_wait_long(queue, condition, TASK_INTERRUPTIBLE, true);            \
		anyverbs_end < 0 ? (int)anyverbs_end : 0;                                          \
	})
#define wait_event_killable(queue, condition) wait_event_interruptible(queue, condition)
#define wait_event_timeout(queue, condition, timeout)                                              \
	anyverbs_wait(queue, condition, TASK_UNINTERRUPTIBLE, false, timeout)
#define wait_event_interruptible_timeout(queue, condition, timeout)                                \
	anyverbs_wait(queue, condition, TASK_INTERRUPTIBLE, false, timeout)

#endif
