/* interrupt.h: tasklets. A tasklet is a work of the system's queue (linux/workqueue.h): it never
 * runs twice at once, and it may sleep, which the kernel's may not. */
#ifndef ANYVERBS_LINUX_INTERRUPT_H
#define ANYVERBS_LINUX_INTERRUPT_H

#include <linux/workqueue.h>

struct tasklet_struct {
	struct work_struct work;
	void (*func)(unsigned long data);		  /* of tasklet_init */
	void (*callback)(struct tasklet_struct *tasklet); /* of tasklet_setup */
	unsigned long data;
};

static inline void anyverbs_tasklet_run(struct work_struct *work)
{
	struct tasklet_struct *tasklet = container_of(work, struct tasklet_struct, work);

	if (tasklet->callback)
		tasklet->callback(tasklet);
	else
		tasklet->func(tasklet->data);
}

static inline void tasklet_init(struct tasklet_struct *tasklet, void (*func)(unsigned long data),
				unsigned long data)
{
	*tasklet = (struct tasklet_struct){ .func = func, .data = data };
	INIT_WORK(&tasklet->work, anyverbs_tasklet_run);
}

static inline void tasklet_setup(struct tasklet_struct *tasklet,
				 void (*callback)(struct tasklet_struct *tasklet))
{
	*tasklet = (struct tasklet_struct){ .callback = callback };
	INIT_WORK(&tasklet->work, anyverbs_tasklet_run);
}

#define from_tasklet(pointer, tasklet, member) container_of(tasklet, __typeof__(*(pointer)), member)

/* Runs it once, soon, if it does not wait already. Never sleeps. */
#define tasklet_schedule(tasklet) ((void)queue_work(system_wq, &(tasklet)->work))
#define tasklet_hi_schedule(tasklet) tasklet_schedule(tasklet)
/* Waits until it has run. May sleep. */
#define tasklet_kill(tasklet) ((void)flush_work(&(tasklet)->work))

#endif
