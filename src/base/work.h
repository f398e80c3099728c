/* work.h: a queue of works that one thread runs, one after the other, at once or at a given time.
 *
 * State machines that call consumers run on such a queue: a consumer's callback never runs inside
 * a call of its own, in a receiving thread or in a timer. A simulator runs the queue itself
 * (work_queue_run) in virtual time. A call that fails without the thread begins it
 * (work_queue_begin); else it begins with the first work.
 */
#ifndef BASE_WORK_H
#define BASE_WORK_H

#include <pthread.h>

#include "base/list.h"
#include "base/thread.h"
#include "base/timer.h"

enum work_rest { WORK_AWAKE, WORK_ON_FUTEX, WORK_IN_POLL };

/* Embedded in the object that it is about; the queue's but for `fn`. */
struct work {
	/* Runs on the queue's thread, with no lock held. May push any work, this one too, and may
	 * free the object. */
	void (*fn)(struct work *w);
	struct list_head node;
	struct timer timer;
	struct work_queue *queue;
	bool queued;
} OWNED_BY(work_queue.lock);

struct work_queue {
	struct timer_set timers GUARDS_ITSELF;
	struct lock lock ACQUIRED_BEFORE(timers.lock);
	struct list_head ready GUARDED_BY(lock);
	const struct work *running GUARDED_BY(lock); /* compared, never followed */
	struct cond idle GUARDED_BY(lock); /* signalled when `running` has returned */
	struct thread thread GUARDS_ITSELF;
	pthread_t runner GUARDED_BY(lock); /* who runs `running` */
	u32 turn ATOMIC_ONLY; /* the futex on which the thread sleeps: counts reasons to look */
	/* enum work_rest: how the thread sleeps, or is about to */
	u8 asleep ATOMIC_ONLY;
	int bell ATOMIC_ONLY; /* wakes it in poll; -1: no descriptor is watched */
	/* what the thread reads: set before `bell` */
	int source FIXED;
	void (*read)(void *arg) FIXED;
	void *read_arg FIXED;
	const char *name FIXED;
	bool manual FIXED;
};

/* `name` has at most 15 characters and stays the caller's. `manual`: no thread; the caller runs
 * the queue by work_queue_run. */
void work_queue_init(struct work_queue *q, const char *name, bool manual);
/* In a forked child, with one thread: forgets every work and what it watched. The queue has no
 * thread then. */
void work_queue_drop_in_child(struct work_queue *q);
/* Returns when the queue has its thread: 0; or -EAGAIN. What is pushed without it waits until a
 * thread can be had. May block. */
int work_queue_begin(struct work_queue *q);

/* Makes a work ready for use. */
void work_init(struct work *w, struct work_queue *q, void (*fn)(struct work *w));
/* Has the work run as soon as the works before it have. One that waits in the queue already runs
 * once; one that runs is queued again. Any context, never waits for a work. */
void work_push(struct work *w);
/* Has the work pushed at `deadline_ns` (clock_now_ns), and moves a deadline that was set before.
 * Context as work_push. */
void work_push_at(struct work *w, u64 deadline_ns);
/* Takes back a push and a deadline. True: the work was in the queue. Does not wait for one that
 * runs. Any context. */
bool work_cancel(struct work *w);
/* As work_cancel; returns when the work neither runs nor waits. On the queue's own thread it waits
 * for nothing. May block. */
bool work_cancel_wait(struct work *w);
/* Returns when every work that was in the queue has run; deadlines are not waited for. May block;
 * not from a work. */
void work_queue_flush(struct work_queue *q);

/* Has the queue's thread call `read` whenever `fd` is readable, between works, with no lock held:
 * what comes there needs no thread of its own. `read` takes what has come and does not wait. Once
 * for a queue that is not manual; `fd` stays the caller's, and open. 0, or -errno. May block. */
int work_queue_watch(struct work_queue *q, int fd, void (*read)(void *arg), void *arg);

/* Has the queue its thread? In a forked child: since the fork. Any context. */
bool work_queue_is_used(struct work_queue *q);

/* Of a manual queue: runs what is ready or due at now_ns, and what that pushes. Returns how many
 * works ran. */
u32 work_queue_run(struct work_queue *q, u64 now_ns);
/* The earliest deadline; 0: something is ready; TIMER_NEVER: nothing waits. */
u64 work_queue_next_ns(struct work_queue *q);

#endif
