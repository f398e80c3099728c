/* clock.c: reads time. In: nothing    Out: nanoseconds    Runs: any thread, no lock */
#include "base/clock.h"

#include <time.h>

static u64 (*clock_source)(void);

void clock_set_source(u64 (*source)(void))
{
	__atomic_store_n(&clock_source, source, __ATOMIC_RELEASE);
}

u64 clock_now_ns(void)
{
	/* pairs with clock_set_source */
	u64 (*source)(void) = __atomic_load_n(&clock_source, __ATOMIC_ACQUIRE);
	struct timespec ts;

	if (unlikely(source != NULL))
		return source();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}
