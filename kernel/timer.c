/* timer.c: timers, jiffies, and the thread that runs the functions of timers.
 * In:    timers that are started     Out: calls of their functions, when it is time
 * Runs:  the thread anyverbs/timer   Locks: anyverbs_base_lock
 */
#include "kernel_priv.h"

#include <linux/delay.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <time.h>

pthread_mutex_t anyverbs_base_lock = PTHREAD_MUTEX_INITIALIZER;

static LIST_HEAD(timer_all);		      /* by `expires` */
static struct timer_list *timer_running;      /* its function runs without the lock */
static pthread_t timer_thread;		      /* that runs them */
static bool timer_has_thread;
/* another is the first, or none runs */
static pthread_cond_t timer_first = PTHREAD_COND_INITIALIZER;

unsigned long anyverbs_jiffies(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long)now.tv_sec * HZ + (unsigned long)now.tv_nsec / (1000000000 / HZ);
}

void ndelay(unsigned long ns)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < (long)ns);
}

/* With the lock held, but for the function of a timer that is not is_locked. A function may free
 * its timer. */
static void timer_run(struct timer_list *timer)
{
	void (*function)(struct timer_list *) = timer->function;

	list_del_init(&timer->entry);
	WRITE_ONCE(timer->is_pending, false);
	if (timer->is_locked) {
		function(timer);
		return;
	}
	timer_running = timer;
	pthread_mutex_unlock(&anyverbs_base_lock);
	anyverbs_spins_held++;
	function(timer);
	anyverbs_spins_held--;
	pthread_mutex_lock(&anyverbs_base_lock);
	timer_running = NULL;
	pthread_cond_broadcast(&timer_first);
}

static void *timer_main(void *unused)
{
	struct timer_list *first;

	(void)unused;
	pthread_setname_np(pthread_self(), "anyverbs/timer");
	pthread_mutex_lock(&anyverbs_base_lock);
	timer_thread = pthread_self();
	for (;;) {
		first = list_first_entry_or_null(&timer_all, struct timer_list, entry);
		if (!first)
			pthread_cond_wait(&timer_first, &anyverbs_base_lock);
		else if (time_after(first->expires, jiffies))
			anyverbs_wait_until(&timer_first, &anyverbs_base_lock, first->expires);
		else
			timer_run(first);
	}
	return NULL;
}

bool anyverbs_timer_stop(struct timer_list *timer)
{
	if (!timer->is_pending)
		return false;
	list_del_init(&timer->entry);
	WRITE_ONCE(timer->is_pending, false);
	return true;
}

bool anyverbs_timer_start(struct timer_list *timer, unsigned long expires)
{
	bool was_pending = anyverbs_timer_stop(timer);
	struct timer_list *before;

	if (!timer_has_thread)
		timer_has_thread = anyverbs_thread_start("timer", timer_main, NULL) == 0;
	timer->expires = expires;
	WRITE_ONCE(timer->is_pending, true);
	/* Behind all that are due earlier or at the same time; most are the last. */
	list_for_each_entry_reverse(before, &timer_all, entry)
		if (!time_after(before->expires, expires))
			break;
	list_add(&timer->entry, &before->entry);
	if (timer_all.next == &timer->entry)
		pthread_cond_broadcast(&timer_first);
	return was_pending;
}

int mod_timer(struct timer_list *timer, unsigned long expires)
{
	bool was_pending;

	pthread_mutex_lock(&anyverbs_base_lock);
	was_pending = anyverbs_timer_start(timer, expires);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return was_pending;
}

int del_timer(struct timer_list *timer)
{
	bool was_pending;

	pthread_mutex_lock(&anyverbs_base_lock);
	was_pending = anyverbs_timer_stop(timer);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return was_pending;
}

int del_timer_sync(struct timer_list *timer)
{
	bool was_pending;

	might_sleep();
	pthread_mutex_lock(&anyverbs_base_lock);
	was_pending = anyverbs_timer_stop(timer);
	while (timer_running == timer) {
		pthread_cond_wait(&timer_first, &anyverbs_base_lock);
		was_pending |= anyverbs_timer_stop(timer); /* its function has started it again */
	}
	pthread_mutex_unlock(&anyverbs_base_lock);
	return was_pending;
}
