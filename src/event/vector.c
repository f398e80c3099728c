/* vector.c: completion vectors: threads that run handlers, as interrupts would.
 *
 * In:    items queued by producers, in any context     Out: their handlers, one after the other
 * Runs:  a thread per vector, begun on first use
 * Locks: the vector's lock, never across a handler or a sleep
 *
 * A child of fork has no such thread: the vector's generation counts up there, which makes every
 * item idle at once, whatever state an interrupted thread of the parent left the lists in.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "base/cond.h"
#include "base/fork.h"
#include "base/thread.h"
#include "event/event_priv.h"

/* Far more than consumers request; unused ones take no memory. */
enum { VECTORS_MAX = 1024 };

enum item_state { ITEM_IDLE, ITEM_QUEUED, ITEM_RUNNING, ITEM_AGAIN };

struct vector {
	struct lock lock;
	/* the futex: 1 while the thread sleeps or is about to */
	u32 asleep ATOMIC_ONLY;
	struct list_head queue GUARDED_BY(lock);
	struct cond finished GUARDED_BY(lock); /* a handler has returned */
	u32 generation GUARDED_BY(lock);     /* 0: never used */
	struct thread thread GUARDS_ITSELF;
	char name[16] GUARDED_BY(lock); /* the thread's */
} CACHE_ALIGNED;

static struct vector vectors[VECTORS_MAX];
static u32 vector_counted;
static __thread const struct vector *vector_self; /* on a vector's thread */
__thread int event_driver_depth;

u32 vector_count(void)
{
	u32 count = __atomic_load_n(&vector_counted, __ATOMIC_RELAXED);
	cpu_set_t set;

	if (likely(count > 0))
		return count;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		count = MIN((u32)CPU_COUNT(&set), (u32)VECTORS_MAX);
	count = MAX(count, 1u);
	__atomic_store_n(&vector_counted, count, __ATOMIC_RELAXED);
	return count;
}

struct vector *vector_get(u32 index)
{
	return &vectors[index % vector_count()];
}

bool vector_in_handler(void)
{
	return vector_self != NULL;
}

static void *vector_main(void *arg);

static void vector_prepare(struct vector *v) REQUIRES(&v->lock)
{
	if (v->generation > 0)
		return;
	v->generation = 1;
	list_init(&v->queue);
	snprintf(v->name, sizeof(v->name), "anyverbs/vec%u", (u32)(v - vectors) % 1000);
	v->thread = (struct thread)THREAD_INIT(v->name, 0, vector_main, v);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void vector_sleep(struct vector *v) REQUIRES(&v->lock)
{
	/* vector_wake reads it after our lock_release */
	__atomic_store_n(&v->asleep, 1, __ATOMIC_RELAXED);
	lock_release(&v->lock);
	futex_sleep(&v->asleep, 1);
	lock_acquire(&v->lock);
	__atomic_store_n(&v->asleep, 0, __ATOMIC_RELAXED);
}

/* After the lock was released: the thread that clears `asleep` wakes the vector, once. */
static void vector_wake(struct vector *v)
{
	if (__atomic_load_n(&v->asleep, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&v->asleep, 0, __ATOMIC_RELAXED))
		futex_wake(&v->asleep, 1);
}

static void vector_requeue(struct vector *v, struct vector_item *item) REQUIRES(&v->lock)
{
	if (item->state == ITEM_AGAIN) {
		item->state = ITEM_QUEUED;
		list_push_back(&v->queue, &item->node);
	} else {
		item->state = ITEM_IDLE;
	}
	cond_wake(&v->finished);
}

/* Runs one handler. False: the handler has forked, and this is the child, where the vector is not
 * its own any more. */
static bool vector_run_one(struct vector *v) REQUIRES(&v->lock)
{
	struct vector_item *item = list_first(&v->queue, struct vector_item, node);
	u32 generation = v->generation;

	list_remove(&item->node);
	item->state = ITEM_RUNNING;
	lock_release(&v->lock);
	item->fn(item);
	lock_acquire(&v->lock);
	if (v->generation != generation)
		return false;
	vector_requeue(v, item);
	return true;
}

static void *vector_main(void *arg)
{
	struct vector *v = arg;
	bool ours = true;

	vector_self = v;
	lock_acquire(&v->lock);
	pthread_setname_np(pthread_self(), v->name);
	while (ours) {
		while (list_empty(&v->queue))
			vector_sleep(v);
		ours = vector_run_one(v);
	}
	lock_release(&v->lock);
	return NULL;
}

int vector_start(struct vector *v)
{
	lock_acquire(&v->lock);
	vector_prepare(v);
	lock_release(&v->lock);
	return thread_begin(&v->thread);
}

/* the only thread; a thread of the parent may have held a lock */
static void vector_drop_in_child(void) NO_THREAD_SAFETY
{
	for (u32 i = 0; i < VECTORS_MAX && i < vector_count(); i++) {
		struct vector *v = &vectors[i];

		if (v->generation == 0)
			continue;
		lock_init(&v->lock);
		list_init(&v->queue);
		v->finished = (struct cond){ 0 };
		v->asleep = 0;
		thread_reset_in_child(&v->thread);
		v->generation++;
	}
}
FORK_MAKES_ANEW(FORK_VECTORS, &vectors[0].lock, .child = vector_drop_in_child);

/* ---- items ---------------------------------------------------------------------------------- */

void vector_item_init(struct vector_item *item, struct vector *v, void (*fn)(struct vector_item *))
{
	*item = (struct vector_item){ .fn = fn, .vector = v, .state = ITEM_IDLE };
	list_init(&item->node);
}

static void item_refresh(struct vector *v, struct vector_item *item) REQUIRES(&v->lock)
{
	vector_prepare(v);
	if (item->generation == v->generation)
		return;
	item->generation = v->generation;
	item->state = ITEM_IDLE;
	list_init(&item->node);
}

static void item_enqueue(struct vector *v, struct vector_item *item) REQUIRES(&v->lock)
{
	item_refresh(v, item);
	if (item->state == ITEM_IDLE) {
		item->state = ITEM_QUEUED;
		list_push_back(&v->queue, &item->node);
	} else if (item->state == ITEM_RUNNING) {
		item->state = ITEM_AGAIN;
	}
}

void vector_item_queue(struct vector_item *item)
{
	struct vector *v = item->vector;

	lock_acquire(&v->lock);
	item_enqueue(v, item);
	lock_release(&v->lock);
	if (unlikely(!thread_is_there(&v->thread)))
		thread_begin_later(&v->thread);
	vector_wake(v); /* also a thread that has just begun, by another caller */
}

void vector_item_flush(struct vector_item *item)
{
	struct vector *v = item->vector;

	lock_acquire(&v->lock);
	item_refresh(v, item);
	if (item->state == ITEM_QUEUED) {
		list_remove(&item->node);
		item->state = ITEM_IDLE;
	} else if (item->state == ITEM_AGAIN) {
		item->state = ITEM_RUNNING;
	}
	/* Only its own handler can be running on the vector's thread, and would wait for itself. */
	while (item->state != ITEM_IDLE && item->generation == v->generation && vector_self != v)
		cond_wait(&v->finished, &v->lock);
	lock_release(&v->lock);
}
