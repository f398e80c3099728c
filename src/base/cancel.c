/* cancel.c: a wait that may be cancelled.
 * In: descriptors    Out: as poll()    Runs: any thread that waits    Locks: none
 */
#include "base/cancel.h"

#include <time.h>

int cancellable_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
	struct timespec limit = { .tv_sec = timeout_ms / 1000,
				  .tv_nsec = timeout_ms % 1000 * 1000000L };

	return ppoll(p, n, timeout_ms < 0 ? NULL : &limit, NULL);
}
