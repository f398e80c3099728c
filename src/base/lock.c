/* lock.c: the slow halves of the lock.
 * In: a lock that somebody else holds    Out: the lock held, or one waiter woken
 * Runs: any thread
 */
#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	/* about 1 us: longer than any section, shorter than a futex round trip */
	LOCK_SPINS = 200,
	LOCK_SLEEP_NS = 500000, /* a wake that lock_release missed costs this at most */
};

#ifdef AV_LOCK_WATCH
void (*lock_watch)(const struct lock *l, enum lock_step step);
#endif

static bool lock_spin(struct lock *l)
{
	for (int i = 0; i < LOCK_SPINS; i++) {
		u32 free = 0;

		if (__atomic_load_n(&l->word, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&l->word, &free, 1, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return true;
		cpu_relax();
	}
	return false;
}

void lock_wait(struct lock *l)
{
	static const struct timespec limit = { .tv_nsec = LOCK_SLEEP_NS };

	if (lock_spin(l))
		return;
	while (__atomic_exchange_n(&l->word, 2, __ATOMIC_ACQUIRE) != 0)
		syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, 2, &limit, NULL, 0);
}

void lock_wake(struct lock *l)
{
	syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
