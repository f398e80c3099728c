/* cond.c: the condition variable for base/lock.h.
 * In: a lock that is held    Out: the same, later    Runs: any thread    Locks: the caller's
 */
#include "base/cond.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void futex_sleep(u32 *word, u32 seen)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	errno = saved;
}

void futex_sleep_for(u32 *word, u32 seen, u64 ns)
{
	struct timespec limit = { .tv_sec = (time_t)(ns / NS_PER_S),
				  .tv_nsec = (long)(ns % NS_PER_S) };
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns != 0 ? &limit : NULL, NULL, 0);
	errno = saved;
}

void futex_wake(u32 *word, int threads)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
	errno = saved;
}

void cond_wait(struct cond *c, struct lock *l)
{
	/* cond_wake changes it under `l` only */
	u32 turn = __atomic_load_n(&c->turn, __ATOMIC_RELAXED);

	c->sleepers++;
	lock_release(l);
	futex_sleep(&c->turn, turn);
	lock_acquire(l);
	c->sleepers--;
}

void cond_wake(struct cond *c)
{
	if (c->sleepers == 0)
		return;
	__atomic_fetch_add(&c->turn, 1, __ATOMIC_RELAXED);
	futex_wake(&c->turn, INT32_MAX);
}
