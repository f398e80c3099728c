/* thread.c: begins the stack's own threads, and says why one cannot be had.
 * In:    functions        Out: threads, a line on standard error
 * Runs:  any thread; the engine's asks again      Locks: thread_lock
 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/limit.h"
#include "base/lock.h"
#include "base/log.h"

enum { THREAD_KINDS = 32 };

static struct lock thread_lock;
static struct list_head thread_waiting GUARDED_BY(thread_lock) = LIST_HEAD_INIT(thread_waiting);
static u64 thread_tried_ns GUARDED_BY(thread_lock);
static u32 thread_waiting_count ATOMIC_ONLY; /* changed under thread_lock */
static void (*thread_wake)(void) ATOMIC_ONLY;

/* ---- refusals -------------------------------------------------------------------------------- */

static struct lock thread_said_lock;
static const char *thread_said[THREAD_KINDS] GUARDED_BY(thread_said_lock);
static pid_t thread_said_pid GUARDED_BY(thread_said_lock); /* a forked child says it anew */

static bool thread_is_kind(const char *a, const char *b)
{
	size_t n = strcspn(a, "0123456789");

	return n == strcspn(b, "0123456789") && memcmp(a, b, n) == 0;
}

/* True: the first refusal of this kind. */
static bool thread_note_refusal(const char *name)
{
	u32 i = 0;

	lock_acquire(&thread_said_lock);
	if (thread_said_pid != getpid())
		memset(thread_said, 0, sizeof(thread_said));
	thread_said_pid = getpid();
	while (i < THREAD_KINDS && thread_said[i] != NULL && !thread_is_kind(thread_said[i], name))
		i++;
	bool first = i < THREAD_KINDS && thread_said[i] == NULL;

	if (first)
		thread_said[i] = name;
	lock_release(&thread_said_lock);
	return first;
}

static void thread_say_refusal(const char *name, int err)
{
	char limits[LIMIT_TEXT];

	if (!thread_note_refusal(name))
		return;
	if (limit_behind(err, limits)[0] != '\0')
		log_print(LOG_ERROR, "thread",
			  "the system refuses the thread %s: %s (%s; a cgroup's pids.max counts "
			  "threads, too)",
			  name, strerror(err), limits);
	else
		log_print(LOG_ERROR, "thread",
			  "the system refuses the thread %s: %s (pids.max of the cgroup, memory?)",
			  name, strerror(err));
}

/* ---- starting -------------------------------------------------------------------------------- */

int thread_start(const char *name, size_t stack, pthread_t *joinable, void *(*run)(void *),
		 void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	if (joinable == NULL)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack != 0)
		pthread_attr_setstacksize(&attr, stack);
	err = pthread_create(joinable != NULL ? joinable : &thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err == 0)
		return 0;
	thread_say_refusal(name, err);
	return -EAGAIN;
}

/* A thread that waits is its owner's to begin anew. */
static void thread_drop_in_child(void) NO_THREAD_SAFETY
{
	list_init(&thread_waiting);
	thread_waiting_count = 0;
}
FORK_MAKES_ANEW(FORK_THREADS, &thread_lock, .child = thread_drop_in_child);
FORK_TAKES(FORK_THREADS_SAID, &thread_said_lock);

static enum thread_state thread_state(const struct thread *t)
{
	/* pairs with thread_set */
	return (enum thread_state)__atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
}

static void thread_set(struct thread *t, enum thread_state state) REQUIRES(thread_lock)
{
	/* pairs with the loads in thread_is_there and thread_state */
	__atomic_store_n(&t->state, state, __ATOMIC_RELEASE);
}

static int thread_try(struct thread *t) REQUIRES(thread_lock)
{
	int err = thread_start(t->name, t->stack, NULL, t->run, t->arg);

	if (err != 0)
		return err;
	if (thread_state(t) == THREAD_WAITS) {
		list_remove(&t->node);
		__atomic_fetch_sub(&thread_waiting_count, 1, __ATOMIC_RELAXED);
	}
	thread_set(t, THREAD_THERE);
	return 0;
}

int thread_begin(struct thread *t)
{
	int err = 0;

	if (thread_state(t) == THREAD_THERE)
		return 0;
	lock_acquire(&thread_lock);
	if (thread_state(t) != THREAD_THERE)
		err = thread_try(t);
	lock_release(&thread_lock);
	return err;
}

void thread_begin_later(struct thread *t)
{
	void (*wake)(void) = NULL;

	lock_acquire(&thread_lock);
	if (thread_state(t) == THREAD_NOT && thread_try(t) != 0) {
		thread_set(t, THREAD_WAITS);
		list_push_back(&thread_waiting, &t->node);
		__atomic_fetch_add(&thread_waiting_count, 1, __ATOMIC_SEQ_CST);
		wake = __atomic_load_n(&thread_wake, __ATOMIC_ACQUIRE);
	}
	lock_release(&thread_lock);
	if (wake != NULL)
		wake();
}

void thread_ended(struct thread *t)
{
	lock_acquire(&thread_lock);
	thread_set(t, THREAD_NOT);
	lock_release(&thread_lock);
}

/* ---- another attempt ------------------------------------------------------------------------- */

void thread_on_waiting(void (*wake)(void))
{
	/* pairs with the load in thread_begin_later */
	__atomic_store_n(&thread_wake, wake, __ATOMIC_RELEASE);
}

int thread_wait_ms(int timeout_ms)
{
	if (likely(__atomic_load_n(&thread_waiting_count, __ATOMIC_RELAXED) == 0))
		return timeout_ms;
	return timeout_ms < 0 ? (int)THREAD_AGAIN_MS : MIN(timeout_ms, (int)THREAD_AGAIN_MS);
}

void thread_retry(void)
{
	u64 now;

	if (likely(__atomic_load_n(&thread_waiting_count, __ATOMIC_RELAXED) == 0))
		return;
	now = clock_now_ns();
	lock_acquire(&thread_lock);
	if (now - thread_tried_ns >= THREAD_AGAIN_MS * NS_PER_MS / 2) {
		thread_tried_ns = now;
		list_for_each_safe(t, &thread_waiting, struct thread, node)
			if (thread_try(t) != 0)
				break;
	}
	lock_release(&thread_lock);
}

