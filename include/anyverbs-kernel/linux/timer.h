/* timer.h: functions that run at a time, one after the other on one thread, which stands for
 * Linux's softirq: they may not sleep, and a delay of one is a delay of all. The calls may be
 * made in any context, but for del_timer_sync, which may sleep. */
#ifndef ANYVERBS_LINUX_TIMER_H
#define ANYVERBS_LINUX_TIMER_H

#include <linux/jiffies.h>
#include <linux/list.h>

struct timer_list {
	struct list_head entry; /* of the timers that run, in the order of `expires` */
	unsigned long expires;	/* jiffies */
	void (*function)(struct timer_list *timer);
	bool is_pending; /* written under the timers' lock */
	bool is_locked;	 /* the function runs under the timers' lock: delayed works' */
};

#define TIMER_DEFERRABLE 0
#define TIMER_INITIALIZER(name, fn) { LIST_HEAD_INIT((name).entry), 0, fn, false, false }
#define DEFINE_TIMER(name, fn) struct timer_list name = TIMER_INITIALIZER(name, fn)
#define from_timer(variable, timer, member)                                                        \
	container_of(timer, __typeof__(*(variable)), member)

static inline void anyverbs_timer_setup(struct timer_list *timer,
					void (*function)(struct timer_list *timer))
{
	*timer = (struct timer_list)TIMER_INITIALIZER(*timer, function);
}

#define timer_setup(timer, function, flags) ((void)(flags), anyverbs_timer_setup(timer, function))
#define timer_setup_on_stack(timer, function, flags) timer_setup(timer, function, flags)
#define destroy_timer_on_stack(timer) ((void)(timer))

/* Starts the timer, or moves it; whether it was pending. */
int mod_timer(struct timer_list *timer, unsigned long expires);
#define add_timer(timer) ((void)mod_timer(timer, (timer)->expires))

/* Stops it; whether it was pending. Its function may still be running behind del_timer. */
int del_timer(struct timer_list *timer);
int del_timer_sync(struct timer_list *timer);
#define timer_delete_sync(timer) del_timer_sync(timer)
#define timer_shutdown_sync(timer) del_timer_sync(timer)

static inline int timer_pending(const struct timer_list *timer)
{
	return READ_ONCE(timer->is_pending);
}

#endif
