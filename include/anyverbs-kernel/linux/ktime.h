/* ktime.h: time in nanoseconds. None of this blocks. */
#ifndef ANYVERBS_LINUX_KTIME_H
#define ANYVERBS_LINUX_KTIME_H

#include <linux/types.h>
#include <time.h>

typedef s64 ktime_t;

static inline ktime_t anyverbs_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Since the host has started; it never goes back. */
#define ktime_get() anyverbs_clock(CLOCK_MONOTONIC)
#define ktime_get_ns() ((u64)ktime_get())
/* The wall clock. */
#define ktime_get_real() anyverbs_clock(CLOCK_REALTIME)
#define ktime_get_boottime() anyverbs_clock(CLOCK_BOOTTIME)

#define ktime_set(seconds, ns) ((ktime_t)(seconds)*1000000000L + (ktime_t)(ns))
#define ns_to_ktime(ns) ((ktime_t)(ns))
#define ms_to_ktime(ms) ((ktime_t)(ms)*1000000L)
#define ktime_add(a, b) ((a) + (b))
#define ktime_add_ns(a, ns) ((a) + (ktime_t)(ns))
#define ktime_sub(a, b) ((a) - (b))
#define ktime_to_ns(a) ((s64)(a))
#define ktime_to_us(a) ((s64)(a) / 1000)
#define ktime_to_ms(a) ((s64)(a) / 1000000)
#define ktime_us_delta(later, earlier) ktime_to_us(ktime_sub(later, earlier))
#define ktime_ms_delta(later, earlier) ktime_to_ms(ktime_sub(later, earlier))

static inline int ktime_compare(ktime_t a, ktime_t b)
{
	return a < b ? -1 : a > b;
}

#define ktime_before(a, b) ((a) < (b))
#define ktime_after(a, b) ((a) > (b))

#endif
