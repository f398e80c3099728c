/* workqueue.c: works and their queues, over one pool of workers.
 * In:    works that are queued       Out: calls of their functions
 * Runs:  threads anyverbs/work       Locks: anyverbs_base_lock, never while a function runs
 *
 * Each queueing has a number. A flush waits until none of certain numbers is queued or runs; it
 * looks at no work for that, since a work may free itself.
 */
#include "kernel_priv.h"

#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

enum work_state { WORK_IDLE, WORK_QUEUED, WORK_DELAYED, WORK_CANCELLED };
enum { WORKERS = 1024 };

struct workqueue_struct {
	struct list_head entry; /* of work_queues */
	struct list_head works; /* work_struct.entry, in the order of their numbers */
	int active, max_active;
	char name[24];
};

struct worker {
	struct list_head entry;	     /* of workers */
	struct work_struct *work;    /* that runs, maybe freed; NULL: none */
	work_func_t func;	     /* its function: another work may have its memory by now */
	struct workqueue_struct *wq; /* whose it is */
	u64 sequence;
};

/* All under anyverbs_base_lock. */
static LIST_HEAD(work_queues);
static LIST_HEAD(workers);
static int worker_count, worker_idle;
static u64 work_sequence;
static pthread_cond_t work_added = PTHREAD_COND_INITIALIZER; /* idle workers wait for it */
static pthread_cond_t work_ended = PTHREAD_COND_INITIALIZER; /* flushes and cancels do */

static __thread struct worker *worker_self;

/* ---- workers --------------------------------------------------------------------------------- */

/* The worker that runs the work, or NULL. */
static struct worker *worker_of(const struct work_struct *work)
{
	struct worker *worker;

	list_for_each_entry(worker, &workers, entry)
		if (worker->work == work && worker->func == work->func)
			return worker;
	return NULL;
}

/* The next work that may run. The queue that gave it is the last to be asked again. */
static struct work_struct *worker_choose(struct workqueue_struct **from)
{
	struct workqueue_struct *wq;
	struct work_struct *work;

	list_for_each_entry(wq, &work_queues, entry) {
		if (wq->active >= wq->max_active)
			continue;
		list_for_each_entry(work, &wq->works, entry)
			if (!worker_of(work)) {
				*from = wq;
				return work;
			}
	}
	return NULL;
}

static void *worker_main(void *data);

/* Sees to it that a worker takes the next work, if there is one. */
static void worker_kick(void)
{
	struct workqueue_struct *wq;
	struct worker *worker;

	if (worker_idle > 0) {
		pthread_cond_signal(&work_added);
		return;
	}
	if (worker_count >= WORKERS || (worker_count > 0 && !worker_choose(&wq)))
		return;
	worker = kzalloc(sizeof(*worker), GFP_NOWAIT);
	if (!worker)
		return;
	list_add_tail(&worker->entry, &workers);
	worker_count++;
	if (anyverbs_thread_start("work", worker_main, worker) != 0) {
		worker_count--;
		list_del(&worker->entry);
		kfree(worker);
	}
}

static void worker_run(struct worker *worker, struct workqueue_struct *wq, struct work_struct *work)
{
	work_func_t func = work->func;

	list_del_init(&work->entry);
	list_move_tail(&wq->entry, &work_queues);
	work->state = WORK_IDLE;
	wq->active++;
	*worker = (struct worker){ worker->entry, work, func, wq, work->sequence };
	worker_kick();
	pthread_mutex_unlock(&anyverbs_base_lock);
	func(work);
	WARN_ONCE(anyverbs_spins_held, KERN_CONT "a work has ended with a spinlock held\n");
	pthread_mutex_lock(&anyverbs_base_lock);
	worker->work = NULL;
	wq->active--;
	pthread_cond_broadcast(&work_ended);
}

static void *worker_main(void *data)
{
	struct worker *worker = data;
	struct workqueue_struct *wq = NULL;
	struct work_struct *work;

	worker_self = worker;
	pthread_setname_np(pthread_self(), "anyverbs/work");
	pthread_mutex_lock(&anyverbs_base_lock);
	for (;;) {
		work = worker_choose(&wq);
		if (work) {
			worker_run(worker, wq, work);
			continue;
		}
		worker_idle++;
		pthread_cond_wait(&work_added, &anyverbs_base_lock);
		worker_idle--;
	}
	return NULL;
}

struct work_struct *current_work(void)
{
	return worker_self ? worker_self->work : NULL;
}

/* ---- queueing -------------------------------------------------------------------------------- */

static void work_enqueue(struct workqueue_struct *wq, struct work_struct *work)
{
	work->state = WORK_QUEUED;
	work->sequence = ++work_sequence;
	list_add_tail(&work->entry, &wq->works);
	worker_kick();
}

bool queue_work(struct workqueue_struct *wq, struct work_struct *work)
{
	bool is_new;

	pthread_mutex_lock(&anyverbs_base_lock);
	is_new = work->state == WORK_IDLE;
	if (is_new)
		work_enqueue(wq, work);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return is_new;
}

/* A timer's function, called with the lock held. */
void anyverbs_delayed_work_expired(struct timer_list *timer)
{
	struct delayed_work *delayed = container_of(timer, struct delayed_work, timer);

	work_enqueue(delayed->wq, &delayed->work);
}

static void work_delay(struct workqueue_struct *wq, struct delayed_work *work, unsigned long delay)
{
	work->wq = wq;
	if (delay == 0) {
		work_enqueue(wq, &work->work);
		return;
	}
	work->work.state = WORK_DELAYED;
	anyverbs_timer_start(&work->timer, jiffies + delay);
}

bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *work, unsigned long delay)
{
	bool is_new;

	pthread_mutex_lock(&anyverbs_base_lock);
	is_new = work->work.state == WORK_IDLE;
	if (is_new)
		work_delay(wq, work, delay);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return is_new;
}

/* Off the queue or the timer. `delayed`: the work's, or NULL if it has no timer. */
static bool work_withdraw(struct work_struct *work, struct delayed_work *delayed)
{
	if (work->state == WORK_QUEUED)
		list_del_init(&work->entry);
	else if (work->state == WORK_DELAYED)
		anyverbs_timer_stop(&delayed->timer);
	else
		return false;
	work->state = WORK_IDLE;
	return true;
}

bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *work, unsigned long delay)
{
	bool was_pending;

	pthread_mutex_lock(&anyverbs_base_lock);
	was_pending = work_withdraw(&work->work, work);
	if (work->work.state == WORK_IDLE)
		work_delay(wq, work, delay);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return was_pending;
}

bool work_pending(struct work_struct *work)
{
	bool is_pending;

	pthread_mutex_lock(&anyverbs_base_lock);
	is_pending = work->state != WORK_IDLE;
	pthread_mutex_unlock(&anyverbs_base_lock);
	return is_pending;
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static bool work_cancel(struct work_struct *work, struct delayed_work *delayed)
{
	bool was_pending;

	pthread_mutex_lock(&anyverbs_base_lock);
	was_pending = work_withdraw(work, delayed);
	pthread_cond_broadcast(&work_ended); /* a flush may have waited for it */
	pthread_mutex_unlock(&anyverbs_base_lock);
	return was_pending;
}

bool cancel_work(struct work_struct *work)
{
	return work_cancel(work, NULL);
}

bool cancel_delayed_work(struct delayed_work *work)
{
	return work_cancel(&work->work, work);
}

/* Who finds the work being cancelled by another thread waits for that first. */
static bool work_cancel_sync(struct work_struct *work, struct delayed_work *delayed)
{
	bool was_pending;

	might_sleep();
	pthread_mutex_lock(&anyverbs_base_lock);
	while (work->state == WORK_CANCELLED)
		pthread_cond_wait(&work_ended, &anyverbs_base_lock);
	was_pending = work_withdraw(work, delayed);
	work->state = WORK_CANCELLED;
	while (worker_of(work))
		pthread_cond_wait(&work_ended, &anyverbs_base_lock);
	work->state = WORK_IDLE;
	pthread_cond_broadcast(&work_ended);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return was_pending;
}

bool cancel_work_sync(struct work_struct *work)
{
	return work_cancel_sync(work, NULL);
}

bool cancel_delayed_work_sync(struct delayed_work *work)
{
	return work_cancel_sync(&work->work, work);
}

/* ---- flushing -------------------------------------------------------------------------------- */

/* Whether a queueing of that number is queued or runs. */
static bool work_is_outstanding(u64 sequence)
{
	struct workqueue_struct *wq;
	struct work_struct *work;
	struct worker *worker;

	list_for_each_entry(worker, &workers, entry)
		if (worker->work && worker->sequence == sequence)
			return true;
	list_for_each_entry(wq, &work_queues, entry)
		list_for_each_entry(work, &wq->works, entry)
			if (work->sequence == sequence)
				return true;
	return false;
}

static bool work_flush(struct work_struct *work, struct delayed_work *delayed)
{
	struct worker *worker;
	u64 sequence = 0; /* no queueing's */

	might_sleep();
	pthread_mutex_lock(&anyverbs_base_lock);
	if (work->state == WORK_DELAYED && delayed && work_withdraw(work, delayed))
		work_enqueue(delayed->wq, work);
	worker = worker_of(work);
	if (work->state == WORK_QUEUED)
		sequence = work->sequence;
	else if (worker)
		sequence = worker->sequence;
	while (sequence && work_is_outstanding(sequence))
		pthread_cond_wait(&work_ended, &anyverbs_base_lock);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return sequence != 0;
}

bool flush_work(struct work_struct *work)
{
	return work_flush(work, NULL);
}

bool flush_delayed_work(struct delayed_work *work)
{
	return work_flush(&work->work, work);
}

/* Whether the queue has works of that number or before. */
static bool workqueue_is_busy(struct workqueue_struct *wq, u64 last)
{
	struct worker *worker;

	list_for_each_entry(worker, &workers, entry)
		if (worker->work && worker->wq == wq && worker->sequence <= last)
			return true;
	return !list_empty(&wq->works) &&
	       list_first_entry(&wq->works, struct work_struct, entry)->sequence <= last;
}

static void workqueue_wait(struct workqueue_struct *wq, u64 last)
{
	while (workqueue_is_busy(wq, last))
		pthread_cond_wait(&work_ended, &anyverbs_base_lock);
}

void flush_workqueue(struct workqueue_struct *wq)
{
	might_sleep();
	pthread_mutex_lock(&anyverbs_base_lock);
	workqueue_wait(wq, work_sequence);
	pthread_mutex_unlock(&anyverbs_base_lock);
}

void drain_workqueue(struct workqueue_struct *wq)
{
	might_sleep();
	pthread_mutex_lock(&anyverbs_base_lock);
	workqueue_wait(wq, UINT64_MAX);
	pthread_mutex_unlock(&anyverbs_base_lock);
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* False: there is no worker at all, and the system refuses one. */
static bool workqueue_begin(struct workqueue_struct *wq, int max_active)
{
	bool has_worker;

	wq->max_active = max_active > 0 ? max_active : WQ_DFL_ACTIVE;
	INIT_LIST_HEAD(&wq->works);
	pthread_mutex_lock(&anyverbs_base_lock);
	if (worker_count == 0)
		worker_kick();
	has_worker = worker_count > 0;
	if (has_worker)
		list_add_tail(&wq->entry, &work_queues);
	pthread_mutex_unlock(&anyverbs_base_lock);
	return has_worker;
}

struct workqueue_struct *alloc_workqueue(const char *name, unsigned int flags, int max_active, ...)
{
	struct workqueue_struct *wq = kzalloc(sizeof(*wq), GFP_KERNEL);
	va_list arguments;

	(void)flags;
	if (!wq)
		return NULL;
	va_start(arguments, max_active);
	vsnprintf(wq->name, sizeof(wq->name), name, arguments);
	va_end(arguments);
	if (workqueue_begin(wq, max_active))
		return wq;
	kfree(wq);
	return NULL;
}

void destroy_workqueue(struct workqueue_struct *wq)
{
	drain_workqueue(wq);
	pthread_mutex_lock(&anyverbs_base_lock);
	list_del(&wq->entry);
	pthread_mutex_unlock(&anyverbs_base_lock);
	kfree(wq);
}

static struct workqueue_struct work_system = { .name = "events" };

static void work_begin_system(void)
{
	BUG_ON(!workqueue_begin(&work_system, WQ_DFL_ACTIVE));
}

struct workqueue_struct *anyverbs_system_workqueue(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, work_begin_system);
	return &work_system;
}
