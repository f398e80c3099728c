/* must.c: a program's checks and its clock.
 * In:    conditions    Out: the end of the process, or the time
 * Runs:  the caller    Locks: none
 */
#include "pairs.h"
#include "../late.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void must_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s (errno %d, pid %d)\n", file, line, what, errno, (int)getpid());
	exit(1);
}

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool fd_is_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, timeout_ms) == 1)
		return true;
	late("event", timeout_ms);
	return false;
}
