/* work.c: a queue of works and the thread that runs them.
 * In:    works, pushed in any context or due at a time; a descriptor that is watched
 * Out:   their functions, one by one
 * Runs:  the queue's thread; a simulator instead of it
 * Locks: work_queue.lock, then timer_set.lock; none across a work
 */
#include "base/work.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

enum {
	WORK_BURST = 4, /* works in a row before the thread looks at what it watches */
	WORK_DRAIN = 1024, /* looks before a deadline, while there is something */
};

static void *work_main(void *arg);

void work_queue_init(struct work_queue *q, const char *name, bool manual) NO_THREAD_SAFETY
{
	*q = (struct work_queue){ .name = name, .manual = manual, .bell = -1, .source = -1,
				  .thread = THREAD_INIT(name, THREAD_STACK, work_main, q) };
	list_init(&q->ready);
	timer_set_init(&q->timers);
}

/* The thread that held a lock may be gone. */
void work_queue_drop_in_child(struct work_queue *q) NO_THREAD_SAFETY
{
	if (q->name == NULL) /* it has not begun */
		return;
	if (q->bell >= 0)
		close(q->bell); /* its other copy wakes the parent's thread */
	work_queue_init(q, q->name, q->manual);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void work_ring(struct work_queue *q)
{
	const u64 one = 1;
	int saved = errno;

	/* full: it is readable already */
	(void)!write(__atomic_load_n(&q->bell, __ATOMIC_RELAXED), &one, sizeof(one));
	errno = saved;
}

/* The thread is woken only if it sleeps, and by one push only. It stores `asleep` before the kernel
 * compares `turn`, or before it looks at `turn` itself and polls; this changes `turn` before it
 * loads `asleep`. So either the push sees the sleeper, or the sleeper sees the push. */
static void work_kick(struct work_queue *q)
{
	u8 rest;

	__atomic_fetch_add(&q->turn, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&q->asleep, __ATOMIC_SEQ_CST) == WORK_AWAKE)
		return;
	rest = __atomic_exchange_n(&q->asleep, WORK_AWAKE, __ATOMIC_SEQ_CST);
	if (rest == WORK_ON_FUTEX)
		futex_wake(&q->turn, 1);
	else if (rest == WORK_IN_POLL)
		work_ring(q);
}

/* Sleeps for at most `ns` (0: without a limit) unless there was a push since `turn` was `seen`. */
static void work_sleep(struct work_queue *q, u32 seen, u64 ns)
{
	/* pairs with work_kick */
	__atomic_store_n(&q->asleep, WORK_ON_FUTEX, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&q->turn, __ATOMIC_SEQ_CST) == seen)
		futex_sleep_for(&q->turn, seen, ns);
	__atomic_store_n(&q->asleep, WORK_AWAKE, __ATOMIC_RELAXED);
}

/* A program that closes descriptors of others may have closed these: sleeps on the futex then. */
static void work_poll_failed(struct work_queue *q)
{
	log_error("work", "%s: what it watches is closed", q->name);
	__atomic_store_n(&q->bell, -1, __ATOMIC_RELAXED);
}

/* Looks at what is watched, for at most so long (NULL: without a limit). True: it read
 * something. */
static bool work_poll(struct work_queue *q, int bell, const struct timespec *limit)
{
	struct pollfd p[2] = { { .fd = bell, .events = POLLIN },
			       { .fd = q->source, .events = POLLIN } };
	int n = (int)syscall(SYS_ppoll, p, 2, limit, NULL, sizeof(u64));
	u64 rings;

	/* what `read` pushes needs no bell */
	__atomic_store_n(&q->asleep, WORK_AWAKE, __ATOMIC_RELAXED);
	if (n <= 0)
		return false;
	if (((p[0].revents | p[1].revents) & POLLNVAL) != 0)
		work_poll_failed(q);
	else if ((p[0].revents & POLLIN) != 0)
		(void)!read(bell, &rings, sizeof(rings));
	if ((p[1].revents & POLLIN) == 0)
		return false;
	q->read(q->read_arg);
	return true;
}

/* As work_sleep, in poll; what is watched ends it, too. */
static void work_sleep_in_poll(struct work_queue *q, int bell, u32 seen, u64 ns)
{
	struct timespec limit = { .tv_sec = (time_t)(ns / NS_PER_S),
				  .tv_nsec = (long)(ns % NS_PER_S) };

	/* pairs with work_kick */
	__atomic_store_n(&q->asleep, WORK_IN_POLL, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&q->turn, __ATOMIC_SEQ_CST) == seen)
		work_poll(q, bell, ns != 0 ? &limit : NULL);
	__atomic_store_n(&q->asleep, WORK_AWAKE, __ATOMIC_RELAXED);
}

/* Runs the first of the works that are ready. False: there is none. */
static bool work_run_one(struct work_queue *q)
{
	struct work *w;

	lock_acquire(&q->lock);
	if (list_empty(&q->ready)) {
		lock_release(&q->lock);
		return false;
	}
	w = list_first(&q->ready, struct work, node);
	list_remove(&w->node);
	w->queued = false;
	q->running = w;
	q->runner = pthread_self();
	lock_release(&q->lock);
	w->fn(w); /* which may free it */
	lock_acquire(&q->lock);
	q->running = NULL;
	cond_wake(&q->idle);
	lock_release(&q->lock);
	return true;
}

/* Nothing is ready: sleeps until something is. */
static void work_rest(struct work_queue *q, u32 seen, u64 now)
{
	u64 next = timer_next_ns(&q->timers), ns = next == TIMER_NEVER ? 0 : next - now;
	/* pairs with work_queue_watch */
	int bell = __atomic_load_n(&q->bell, __ATOMIC_ACQUIRE);

	if (next <= now)
		return;
	if (bell < 0)
		work_sleep(q, seen, ns);
	else
		work_sleep_in_poll(q, bell, seen, ns);
}

/* Reads what is watched so often at most, without a wait. */
static void work_glance(struct work_queue *q, u32 most)
{
	int bell = __atomic_load_n(&q->bell, __ATOMIC_ACQUIRE);

	while (bell >= 0 && most-- > 0 && work_poll(q, bell, &(struct timespec){ 0 }))
		;
}

/* What has come in time is there before its deadline is judged, however late this thread runs. */
static void work_run_timers(struct work_queue *q, u64 now)
{
	if (timer_next_ns(&q->timers) > now)
		return;
	work_glance(q, WORK_DRAIN);
	timer_run(&q->timers, now);
}

static void *work_main(void *arg)
{
	struct work_queue *q = arg;
	u32 ran = 0;

	pthread_setname_np(pthread_self(), q->name);
	for (;;) {
		/* pairs with work_kick: what was pushed before is seen below */
		u32 seen = __atomic_load_n(&q->turn, __ATOMIC_ACQUIRE);
		u64 now = clock_now_ns();

		work_run_timers(q, now);
		if (!work_run_one(q)) {
			ran = 0;
			work_rest(q, seen, now);
		} else if (++ran % WORK_BURST == 0) {
			work_glance(q, 1);
		}
	}
	return NULL;
}

int work_queue_begin(struct work_queue *q)
{
	return q->manual ? 0 : thread_begin(&q->thread);
}

/* Something has been pushed, and may run already, so that the caller's work may be freed. */
static void work_wake(struct work_queue *q)
{
	if (q->manual)
		return;
	if (unlikely(!thread_is_there(&q->thread)))
		thread_begin_later(&q->thread);
	work_kick(q); /* also a thread that has just begun, by another caller */
}

/* ---- works ----------------------------------------------------------------------------------- */

/* False: it waits in the queue already. */
static bool work_enqueue(struct work_queue *q, struct work *w) REQUIRES(q->lock)
{
	bool fresh = !w->queued;

	if (fresh)
		list_push_back(&q->ready, &w->node);
	w->queued = true;
	return fresh;
}

static void work_is_due(struct timer *t)
{
	struct work *w = container_of(t, struct work, timer);
	struct work_queue *q = w->queue;

	lock_acquire(&q->lock);
	work_enqueue(q, w);
	lock_release(&q->lock);
}

void work_init(struct work *w, struct work_queue *q, void (*fn)(struct work *w))
{
	*w = (struct work){ .fn = fn, .queue = q, .timer = { .fn = work_is_due } };
	list_init(&w->node);
}

void work_push(struct work *w)
{
	struct work_queue *q = w->queue; /* once it is queued the work may run, and be freed */
	bool fresh;

	lock_acquire(&q->lock);
	fresh = work_enqueue(q, w);
	lock_release(&q->lock);
	if (fresh)
		work_wake(q);
}

void work_push_at(struct work *w, u64 deadline_ns)
{
	struct work_queue *q = w->queue;

	if (timer_arm(&q->timers, &w->timer, deadline_ns))
		work_wake(q);
}

static bool work_unqueue(struct work_queue *q, struct work *w) REQUIRES(q->lock)
{
	bool queued = w->queued;

	list_remove(&w->node);
	w->queued = false;
	return queued;
}

bool work_cancel(struct work *w)
{
	struct work_queue *q = w->queue;
	bool queued;

	timer_cancel(&q->timers, &w->timer);
	lock_acquire(&q->lock);
	queued = work_unqueue(q, w);
	lock_release(&q->lock);
	return queued;
}

/* Is the caller the thread that runs a work of this queue? */
static bool work_is_inside(const struct work_queue *q) REQUIRES(q->lock)
{
	return q->running != NULL && pthread_equal(q->runner, pthread_self());
}

bool work_cancel_wait(struct work *w)
{
	struct work_queue *q = w->queue;
	bool queued, inside;

	lock_acquire(&q->lock);
	inside = work_is_inside(q);
	lock_release(&q->lock);
	if (inside)
		timer_cancel(&q->timers, &w->timer); /* this thread alone runs timers */
	else
		timer_cancel_wait(&q->timers, &w->timer);
	lock_acquire(&q->lock);
	queued = work_unqueue(q, w);
	while (!inside && q->running == w)
		cond_wait(&q->idle, &q->lock);
	lock_release(&q->lock);
	return queued;
}

struct work_mark {
	struct work work GUARDS_ITSELF;
	bool reached OWNED_BY(work_queue.lock);
};

static void work_mark_reached(struct work *w)
{
	struct work_mark *mark = container_of(w, struct work_mark, work);
	struct work_queue *q = w->queue;

	lock_acquire(&q->lock);
	mark->reached = true;
	lock_release(&q->lock);
}

void work_queue_flush(struct work_queue *q)
{
	struct work_mark mark = { .reached = false };

	work_init(&mark.work, q, work_mark_reached);
	work_push(&mark.work);
	lock_acquire(&q->lock);
	/* until it has returned: it is on this stack */
	while (!mark.reached || q->running == &mark.work)
		cond_wait(&q->idle, &q->lock);
	lock_release(&q->lock);
}

int work_queue_watch(struct work_queue *q, int fd, void (*read)(void *arg), void *arg)
{
	int err = work_queue_begin(q), bell;

	if (err != 0)
		return err;
	bell = fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (bell < 0)
		return -errno;
	q->source = fd;
	q->read = read;
	q->read_arg = arg;
	__atomic_store_n(&q->bell, bell, __ATOMIC_RELEASE); /* pairs with work_rest */
	work_kick(q);
	return 0;
}

bool work_queue_is_used(struct work_queue *q)
{
	return thread_is_there(&q->thread);
}

/* ---- without a thread ------------------------------------------------------------------------ */

u32 work_queue_run(struct work_queue *q, u64 now_ns)
{
	u32 ran = 0;

	timer_run(&q->timers, now_ns);
	while (work_run_one(q)) {
		ran++;
		timer_run(&q->timers, now_ns);
	}
	return ran;
}

u64 work_queue_next_ns(struct work_queue *q)
{
	bool ready;

	lock_acquire(&q->lock);
	ready = !list_empty(&q->ready);
	lock_release(&q->lock);
	return ready ? 0 : timer_next_ns(&q->timers);
}
