/* clock.h: the only reader of time, and the only sleeper by it. Nanoseconds of CLOCK_MONOTONIC, or
 * of a simulator's clock where one is set. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/compiler.h"

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

AV_EXPORT u64 clock_now_ns(void);
/* Nanoseconds of CLOCK_REALTIME. In a simulator the same as clock_now_ns. */
u64 clock_wall_ns(void);
/* The same in milliseconds, some late, for a fifth of the cost. */
u64 clock_coarse_ms(void);
/* Replaces the source of time for the whole process (NULL: the real one again). Only for
 * simulation and tests. */
void clock_set_source(u64 (*source)(void));

/* Sleeps so long, or more. May block, of course. */
void clock_sleep_ns(u64 ns);
/* Replaces sleeping likewise, beside the source of time. */
void clock_set_sleep(void (*sleep)(u64 ns));

#endif
