/* cond.h: waiting, with a lock, for something that another thread will make true. A futex and no
 * more; all zeroes is ready.
 *
 * Waits may end without a reason: wait in a loop around the condition. Waking costs no system call
 * while nobody sleeps.
 */
#ifndef BASE_COND_H
#define BASE_COND_H

#include "base/lock.h"

struct cond {
	u32 turn ATOMIC_ONLY; /* the futex: changes with every wake that found a sleeper */
	u32 sleepers OWNED_BY(the lock of cond_wait); /* threads inside it */
};

/* Lets go of `l`, sleeps until cond_wake (or for no reason), takes `l` again. May block. */
AV_EXPORT void cond_wait(struct cond *c, struct lock *l) REQUIRES(l);
/* Wakes every sleeper. Call with the lock held: then a thread that it wakes may free the object.
 * Never blocks. */
AV_EXPORT void cond_wake(struct cond *c);

/* The two halves of sleeping on a bare word: returns at once unless *word == seen. Both return
 * on any signal or reason. */
void futex_sleep(u32 *word, u32 seen);
void futex_wake(u32 *word, int threads);
/* As futex_sleep, for at most so long; 0: without a limit. */
void futex_sleep_for(u32 *word, u32 seen, u64 ns);

#endif
