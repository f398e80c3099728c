/* cancel.c: a wait that may be cancelled.
 * In: descriptors    Out: as poll()    Runs: any thread that waits    Locks: none
 */
#include "base/cancel.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int cancellable_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
	struct timespec limit = { .tv_sec = timeout_ms / 1000,
				  .tv_nsec = timeout_ms % 1000 * 1000000L };

	return ppoll(p, n, timeout_ms < 0 ? NULL : &limit, NULL);
}

/* A bare system call is no cancellation point: the thread may be cancelled at any instruction of
 * this one, and holds nothing. */
int cancellable_sleep(u32 *word, u32 seen)
{
	int type, err;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	err = (int)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	pthread_setcanceltype(type, NULL);
	return err < 0 && errno == EINTR ? -EINTR : 0;
}
