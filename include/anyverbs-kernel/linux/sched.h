/* sched.h: tasks. A task is a thread of this process, whoever has started it: the program, the
 * midlayer, a kthread, a worker. `current` is the thread that runs.
 *
 * Signals are none of the process': a task has one pending when send_sig gives it one (the program
 * that hosts a module does so by anyverbs_interrupt, anyverbs/module.h), and only then do the
 * _interruptible waits end early.
 */
#ifndef ANYVERBS_LINUX_SCHED_H
#define ANYVERBS_LINUX_SCHED_H

#include_next <linux/sched.h>

#include <asm/atomic.h>
#include <asm/processor.h>
#include <linux/compiler.h>
#include <linux/jiffies.h>
#include <linux/printk.h>
#include <linux/types.h>
#include <pthread.h>
#include <sched.h>

#define TASK_RUNNING 0
#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_NORMAL (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)
#define TASK_KILLABLE TASK_INTERRUPTIBLE
#define TASK_COMM_LEN 16
#define MAX_SCHEDULE_TIMEOUT ((long)(~0UL >> 1))

struct task_struct {
	pid_t pid; /* the thread's, as the system counts */
	char comm[TASK_COMM_LEN];
	/* The rest is this library's. */
	pthread_mutex_t lock;
	pthread_cond_t woken;
	unsigned int state; /* TASK_*; wake_up_process sets TASK_RUNNING under the lock */
	bool is_signalled;  /* written under the lock */
	bool is_kthread;
	atomic_t refs; /* to the task of a kthread */
};

/* Never NULL. Valid until the thread ends, a kthread's as kthread.h says. */
struct task_struct *anyverbs_current(void);
#define current anyverbs_current()

/* Before it looks at what it waits for, a task sets its state; wake_up_process resets it. So a
 * wake-up between the look and schedule is not lost. set_ is a full barrier, __set_ none. */
#define set_current_state(value) smp_store_mb(current->state, (value))
#define __set_current_state(value) WRITE_ONCE(current->state, (value))

/* Sleeps until the state is TASK_RUNNING, or, from TASK_INTERRUPTIBLE, a signal is pending. Returns
 * with TASK_RUNNING. */
void schedule(void);
/* At most that many jiffies; returns those that were left. */
long schedule_timeout(long timeout);
long schedule_timeout_interruptible(long timeout);
long schedule_timeout_uninterruptible(long timeout);

/* 1, or 0 if the task runs already. May be called in any context. */
int wake_up_process(struct task_struct *task);

static inline int cond_resched(void)
{
	return sched_yield();
}

#define yield() ((void)sched_yield())

/* ---- signals --------------------------------------------------------------------------------- */

/* The number of the signal, and `privileged`, have no meaning. Returns 0. In any context. */
int send_sig(int signal, struct task_struct *task, int privileged);
void flush_signals(struct task_struct *task);

static inline int signal_pending(struct task_struct *task)
{
	return READ_ONCE(task->is_signalled);
}

#define fatal_signal_pending(task) signal_pending(task)

/* ---- what may not sleep ---------------------------------------------------------------------- */

extern __thread int anyverbs_spins_held; /* linux/spinlock.h */

void anyverbs_sleep_warn(const char *file, int line);

/* Warns, once per place, of a thread that holds a spinlock or runs a timer's function. */
#define might_sleep()                                                                              \
	((void)(unlikely(anyverbs_spins_held) && anyverbs_first_time() &&                          \
		(anyverbs_sleep_warn(__FILE__, __LINE__), true)))

#define in_atomic() (anyverbs_spins_held != 0)

#endif
