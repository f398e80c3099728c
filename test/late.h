/* late.h: how a test says that something did not come within its time.
 *
 * A test prints a line with late() when it gives up waiting, and then fails as it would else. So
 * scripts/again can tell a failure that a busy machine explains from every other one. What is
 * waited for less than LATE_LEAST_MS is often expected to stay away: no line.
 */
#ifndef AV_TEST_LATE_H
#define AV_TEST_LATE_H

#include <stdio.h>

enum { LATE_LEAST_MS = 1000 };

/* In one write, on standard error: standard output may be a child's answer to its parent. */
static inline void late(const char *what, int timeout_ms)
{
	if (timeout_ms >= LATE_LEAST_MS)
		fprintf(stderr, "LATE: no %s within %d ms\n", what, timeout_ms);
}

#endif
