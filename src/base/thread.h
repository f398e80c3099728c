/* thread.h: the stack's own threads: how they begin, and what happens where the system refuses one.
 *
 * A call that needs a thread begins it (thread_begin, thread_start) and fails if it cannot be had.
 * A thread that an event needs begins later (thread_begin_later): the engine's thread asks for it
 * again and again, since no call is there that could fail. Each refusal says so on standard error,
 * once per process and kind of thread, whatever ANYVERBS_LOG is: the cause lies outside of the
 * program, and what follows may be far from it.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

#include "base/list.h"

enum {
	THREAD_STACK = 256 << 10, /* of threads that run no handler of an application's */
	THREAD_AGAIN_MS = 50,     /* between two attempts of thread_retry */
};

/* A thread that an object has. Zeroed but for what THREAD_INIT sets. */
struct thread {
	const char *name FIXED; /* at most 15 characters; a kind's ends before its digits */
	void *(*run)(void *arg) FIXED;
	void *arg FIXED;
	size_t stack FIXED; /* bytes; 0: the C library's default */
	struct list_head node OWNED_BY(thread_lock); /* while it waits for another attempt */
	u32 state ATOMIC_ONLY; /* enum thread_state, changed under thread_lock */
};

enum thread_state { THREAD_NOT, THREAD_THERE, THREAD_WAITS };

#define THREAD_INIT(name_, stack_, run_, arg_)                                                     \
	{ .name = (name_), .run = (run_), .arg = (arg_), .stack = (stack_) }

/* Starts a detached thread, all signals but SIGSEGV and SIGBUS blocked; with `joinable` not NULL
 * one that can be joined. 0 or -EAGAIN. May block. */
AV_EXPORT int thread_start(const char *name, size_t stack, pthread_t *joinable,
			   void *(*run)(void *), void *arg);

/* True: the thread runs, or will without another call. Any context. */
static inline bool thread_is_there(const struct thread *t)
{
	return __atomic_load_n(&t->state, __ATOMIC_ACQUIRE) != THREAD_NOT;
}

/* Returns when the thread runs, or cannot be had: 0 or -EAGAIN. May block. */
int thread_begin(struct thread *t);
/* Begins the thread now, or as soon as it can be had. Any context. */
void thread_begin_later(struct thread *t);
/* The thread has come to its end, and may begin anew; called by that thread. */
void thread_ended(struct thread *t);

/* The function that wakes the thread which calls thread_retry. */
void thread_on_waiting(void (*wake)(void));
/* How long the engine's thread may sleep, in ms, of `timeout_ms` (-1: without limit). */
int thread_wait_ms(int timeout_ms);
/* Tries to begin what waits. */
void thread_retry(void);
/* In a forked child: the object's thread is the parent's. */
static inline void thread_reset_in_child(struct thread *t)
{
	list_init(&t->node);
	__atomic_store_n(&t->state, THREAD_NOT, __ATOMIC_RELAXED);
}

#endif
