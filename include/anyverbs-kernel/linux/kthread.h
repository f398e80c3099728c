/* kthread.h: threads. May sleep.
 *
 * A thread's function runs until it returns. kthread_stop needs the task: a thread that may return
 * before it is stopped is one for whose task the caller holds a reference (get_task_struct).
 */
#ifndef ANYVERBS_LINUX_KTHREAD_H
#define ANYVERBS_LINUX_KTHREAD_H

#include <linux/err.h>
#include <linux/sched.h>

/* A thread that waits for its first wake_up_process; ERR_PTR: the system refuses one. */
struct task_struct *kthread_create(int (*run)(void *data), void *data, const char *name, ...)
	__attribute__((__format__(__printf__, 3, 4)));

/* As kthread_create, and it runs. */
#define kthread_run(run, data, ...)                                                                \
	({                                                                                         \
		struct task_struct *anyverbs_task = kthread_create(run, data, __VA_ARGS__);        \
		if (!IS_ERR(anyverbs_task))                                                        \
			wake_up_process(anyverbs_task);                                            \
		anyverbs_task;                                                                     \
	})

/* In a kthread: whether somebody waits for its end. */
bool kthread_should_stop(void);

/* Wakes the thread with kthread_should_stop() true, waits for its end and returns what its function
 * returned; -EINTR: it has never run. */
int kthread_stop(struct task_struct *task);

/* References to the task of a kthread. */
struct task_struct *get_task_struct(struct task_struct *task);
void put_task_struct(struct task_struct *task);

#endif
