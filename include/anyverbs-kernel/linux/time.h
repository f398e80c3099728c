/* time.h: clocks. None of this blocks. */
#ifndef ANYVERBS_LINUX_TIME_H
#define ANYVERBS_LINUX_TIME_H

#include <asm/timex.h>
#include <linux/ktime.h>
#include <linux/time_types.h>
#include <linux/types.h>
#include <sys/time.h>
#include <time.h>

#define MSEC_PER_SEC 1000L
#define USEC_PER_MSEC 1000L
#define USEC_PER_SEC 1000000L
#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_SEC 1000000000L

typedef s64 time64_t;
#define timespec64 timespec

/* The wall clock. */
static inline void do_gettimeofday(struct timeval *now)
{
	gettimeofday(now, (void *)0);
}

static inline void ktime_get_real_ts64(struct timespec *now)
{
	clock_gettime(CLOCK_REALTIME, now);
}

#define get_seconds() ((unsigned long)time((time_t *)0))
#define ktime_get_real_seconds() ((time64_t)time((time_t *)0))

#endif
