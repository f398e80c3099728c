/* clock.c: reads time, sleeps. In: nothing    Out: nanoseconds    Runs: any thread, no lock */
#include "base/clock.h"

#include <time.h>

static u64 (*clock_source)(void);
static void (*clock_sleep)(u64 ns);

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

u64 clock_wall_ns(void)
{
	/* pairs with clock_set_source */
	u64 (*source)(void) = __atomic_load_n(&clock_source, __ATOMIC_ACQUIRE);
	struct timespec ts;

	if (unlikely(source != NULL))
		return source();
	clock_gettime(CLOCK_REALTIME, &ts);
	return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}

u64 clock_coarse_ms(void)
{
	/* pairs with clock_set_source */
	u64 (*source)(void) = __atomic_load_n(&clock_source, __ATOMIC_ACQUIRE);
	struct timespec ts;

	if (unlikely(source != NULL))
		return source() / NS_PER_MS;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / NS_PER_MS;
}

void clock_set_sleep(void (*sleep)(u64 ns))
{
	__atomic_store_n(&clock_sleep, sleep, __ATOMIC_RELEASE);
}

void clock_sleep_ns(u64 ns)
{
	/* pairs with clock_set_sleep */
	void (*sleep)(u64) = __atomic_load_n(&clock_sleep, __ATOMIC_ACQUIRE);
	struct timespec ts = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	if (unlikely(sleep != NULL))
		sleep(ns);
	else
		nanosleep(&ts, NULL);
}
