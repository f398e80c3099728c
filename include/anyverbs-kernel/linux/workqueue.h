/* workqueue.h: functions that run later, on threads that may sleep.
 *
 * All queues share one pool of workers. A queue has at most its `max_active` works running, in the
 * order in which they were queued; the pool grows while works wait, so that works which wait for
 * each other go on. One work never runs on two threads at a time. A work's function may queue the
 * work again, or free it.
 *
 * Queueing may be done in any context. Flushing, the _sync calls and what makes and destroys queues
 * may sleep; they must not wait for the work that calls them. What is done before queue_work
 * is visible in the work's function, if queue_work returned true; what the function does is visible
 * behind a flush.
 */
#ifndef ANYVERBS_LINUX_WORKQUEUE_H
#define ANYVERBS_LINUX_WORKQUEUE_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/list.h>
#include <linux/timer.h>

struct work_struct;
struct workqueue_struct;

typedef void (*work_func_t)(struct work_struct *work);

/* The fields but `func` are under the timers' lock. */
struct work_struct {
	struct list_head entry;
	work_func_t func;
	int state;    /* this library's: idle, on a queue, waiting for a timer, being cancelled */
	u64 sequence; /* numbers all queueings, of all works */
};

struct delayed_work {
	struct work_struct work;
	struct timer_list timer;
	struct workqueue_struct *wq;
};

void anyverbs_delayed_work_expired(struct timer_list *timer);

#define __WORK_INITIALIZER(name, fn) { LIST_HEAD_INIT((name).entry), fn, 0, 0 }
#define DECLARE_WORK(name, fn) struct work_struct name = __WORK_INITIALIZER(name, fn)
#define DECLARE_DELAYED_WORK(name, fn)                                                             \
	struct delayed_work name = { __WORK_INITIALIZER((name).work, fn),                          \
				     { LIST_HEAD_INIT((name).timer.entry), 0,                      \
				       anyverbs_delayed_work_expired, false, true },               \
				     NULL }

static inline void anyverbs_work_init(struct work_struct *work, work_func_t func)
{
	*work = (struct work_struct)__WORK_INITIALIZER(*work, func);
}

static inline void anyverbs_delayed_work_init(struct delayed_work *work, work_func_t func)
{
	anyverbs_work_init(&work->work, func);
	anyverbs_timer_setup(&work->timer, anyverbs_delayed_work_expired);
	work->timer.is_locked = true;
	work->wq = NULL;
}

#define INIT_WORK(work, func) anyverbs_work_init(work, func)
#define INIT_WORK_ONSTACK(work, func) anyverbs_work_init(work, func)
#define INIT_DELAYED_WORK(work, func) anyverbs_delayed_work_init(work, func)
#define destroy_work_on_stack(work) ((void)(work))

static inline struct delayed_work *to_delayed_work(struct work_struct *work)
{
	return container_of(work, struct delayed_work, work);
}

/* ---- queues ---------------------------------------------------------------------------------- */

enum {
	WQ_UNBOUND = 1 << 1, /* no flag has a meaning: workers are threads like any */
	WQ_FREEZABLE = 1 << 2,
	WQ_MEM_RECLAIM = 1 << 3,
	WQ_HIGHPRI = 1 << 4,
	WQ_CPU_INTENSIVE = 1 << 5,
	WQ_SYSFS = 1 << 6,
	WQ_POWER_EFFICIENT = 1 << 7,
	WQ_MAX_ACTIVE = 512,
	WQ_DFL_ACTIVE = 256,
};

/* `max_active` 0: WQ_DFL_ACTIVE. NULL: no memory, or the system refuses the first worker. */
struct workqueue_struct *alloc_workqueue(const char *name, unsigned int flags, int max_active, ...);
#define alloc_ordered_workqueue(name, flags, ...) alloc_workqueue(name, flags, 1, ##__VA_ARGS__)
#define create_workqueue(name) alloc_workqueue("%s", 0, 1, name)
#define create_singlethread_workqueue(name) alloc_workqueue("%s", 0, 1, name)
/* Runs what is queued, and what that queues, before. */
void destroy_workqueue(struct workqueue_struct *wq);

/* Waits for all works that were queued before the call. Delayed ones whose time has not come are
 * not queued. */
void flush_workqueue(struct workqueue_struct *wq);
/* Until the queue is empty; works may go on queueing themselves meanwhile. */
void drain_workqueue(struct workqueue_struct *wq);

/* There from the start of the program to its end. They differ in nothing. */
struct workqueue_struct *anyverbs_system_workqueue(void);
#define system_wq anyverbs_system_workqueue()
#define system_long_wq system_wq
#define system_highpri_wq system_wq
#define system_unbound_wq system_wq
#define system_power_efficient_wq system_wq

/* ---- works ----------------------------------------------------------------------------------- */

/* Whether it was not queued already. A work that runs may be queued again. */
bool queue_work(struct workqueue_struct *wq, struct work_struct *work);
bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *work,
			unsigned long delay);
/* Sets the delay anew if it waits already; whether it did. */
bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *work, unsigned long delay);

#define queue_work_on(cpu, wq, work) ((void)(cpu), queue_work(wq, work))
#define queue_delayed_work_on(cpu, wq, work, delay)                                                \
	((void)(cpu), queue_delayed_work(wq, work, delay))
#define schedule_work(work) queue_work(system_wq, work)
#define schedule_work_on(cpu, work) ((void)(cpu), schedule_work(work))
#define schedule_delayed_work(work, delay) queue_delayed_work(system_wq, work, delay)
#define flush_scheduled_work() flush_workqueue(system_wq)

/* Waits for the work's last queueing; whether there was something to wait for. */
bool flush_work(struct work_struct *work);
/* The same, without the rest of the delay. */
bool flush_delayed_work(struct delayed_work *work);

/* Takes the work off its queue; whether it was there. It may still be running. */
bool cancel_work(struct work_struct *work);
bool cancel_delayed_work(struct delayed_work *work);
/* And it does not run any more, nor can it be queued meanwhile: it may be freed. */
bool cancel_work_sync(struct work_struct *work);
bool cancel_delayed_work_sync(struct delayed_work *work);

/* Queued, and not running yet. */
bool work_pending(struct work_struct *work);
#define delayed_work_pending(delayed) work_pending(&(delayed)->work)
/* The work that the thread runs, or NULL. */
struct work_struct *current_work(void);

#endif
