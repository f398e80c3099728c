/* jiffies.h: time in jiffies, of which a second has HZ: a jiffy is a millisecond. None of this
 * blocks. */
#ifndef ANYVERBS_LINUX_JIFFIES_H
#define ANYVERBS_LINUX_JIFFIES_H

#include <linux/types.h>

#define HZ 1000

/* Since the host has started (CLOCK_MONOTONIC). */
unsigned long anyverbs_jiffies(void);
#define jiffies anyverbs_jiffies()
#define get_jiffies_64() ((u64)anyverbs_jiffies())

/* Whether a is later than b; right if less than half of all numbers lies between. */
#define time_after(a, b) ((long)((unsigned long)(b) - (unsigned long)(a)) < 0)
#define time_before(a, b) time_after(b, a)
#define time_after_eq(a, b) (!time_after(b, a))
#define time_before_eq(a, b) time_after_eq(b, a)
#define time_is_before_jiffies(a) time_after(jiffies, a)
#define time_is_after_jiffies(a) time_before(jiffies, a)

static inline unsigned long msecs_to_jiffies(unsigned int ms)
{
	return ms;
}

/* Rounds up. */
static inline unsigned long usecs_to_jiffies(unsigned int us)
{
	return us / 1000 + (us % 1000 != 0);
}

static inline unsigned int jiffies_to_msecs(unsigned long n)
{
	return (unsigned int)n;
}

static inline unsigned int jiffies_to_usecs(unsigned long n)
{
	return (unsigned int)(n * 1000);
}

#define round_jiffies(n) (n)
#define round_jiffies_relative(n) (n)

#endif
