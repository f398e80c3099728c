/* worker.c: threads on which CQs of the context WORKQUEUE poll, one for each: a `done` that sleeps
 * keeps no other CQ waiting.
 * In: poller.c    Out: work queues    Runs: the caller    Locks: workers.lock, a leaf
 *
 * A thread outlives its CQ and serves the next one.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fork.h"
#include "consumer/consumer_priv.h"

static struct {
	struct lock lock;
	struct list_head all GUARDED_BY(lock);
	struct list_head idle GUARDED_BY(lock);
} workers = { .all = LIST_HEAD_INIT(workers.all), .idle = LIST_HEAD_INIT(workers.idle) };

static struct worker *worker_take_idle(void)
{
	struct worker *w = NULL;

	lock_acquire(&workers.lock);
	if (!list_empty(&workers.idle)) {
		w = list_first(&workers.idle, struct worker, idle);
		list_remove(&w->idle);
	}
	lock_release(&workers.lock);
	return w;
}

static struct worker *worker_make(void)
{
	struct worker *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	work_queue_init(&w->queue, "anyverbs/cq", false);
	list_init(&w->idle);
	lock_acquire(&workers.lock);
	list_push_back(&workers.all, &w->node);
	lock_release(&workers.lock);
	return w;
}

void worker_put(struct worker *w)
{
	lock_acquire(&workers.lock);
	list_push_back(&workers.idle, &w->idle);
	lock_release(&workers.lock);
}

struct worker *worker_get(int *err)
{
	struct worker *w = worker_take_idle();

	if (w == NULL)
		w = worker_make();
	if (w == NULL) {
		*err = -ENOMEM;
		return NULL;
	}
	*err = work_queue_begin(&w->queue);
	if (*err == 0)
		return w;
	worker_put(w);
	return NULL;
}

/* The threads are the parent's; CQs of the parent poll no more. */
static void worker_drop_in_child(void) NO_THREAD_SAFETY
{
	list_init(&workers.idle);
	list_for_each(w, &workers.all, struct worker, node) {
		work_queue_drop_in_child(&w->queue);
		list_init(&w->idle);
		list_push_back(&workers.idle, &w->idle);
	}
}
FORK_TAKES(FORK_WORKERS, &workers.lock, .child = worker_drop_in_child);
