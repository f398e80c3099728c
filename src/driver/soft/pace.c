/* pace.c: when the next frame of a queue pair with a rate limit may leave.
 * In: bytes that were sent    Out: a timer    Runs: whoever sends    Locks: its owner's
 */
#include "driver/soft/pace.h"

#include <errno.h>

#include "base/clock.h"

/* A bit of a rate of 1 kbit/s takes so long. */
enum { PACE_NS_PER_KBIT = 1000000 };

static u64 pace_ns(u32 kbps, u64 bytes)
{
	return bytes * 8 * PACE_NS_PER_KBIT / kbps;
}

int pace_check(const struct ib_uverbs_rate *rate)
{
	if (rate->kbps > PACE_KBPS_MAX || rate->burst > PACE_BURST_MAX)
		return -EINVAL;
	return rate->kbps == 0 && (rate->burst != 0 || rate->typical_packet != 0) ? -EINVAL : 0;
}

void pace_set(struct pace *p, const struct ib_uverbs_rate *rate)
{
	p->kbps = rate->kbps;
	p->next_ns = 0;
	p->timing = false; /* the next frame that is held moves the timer */
	p->burst_ns = rate->kbps != 0 && rate->burst != 0 ? pace_ns(rate->kbps, rate->burst) :
							    PACE_BURST_US * NS_PER_US;
}

/* The timer gives leave for half a burst at once, so that it does not run for each frame. */
bool pace_holds(struct pace *p, struct timer_set *timers, void (*kick)(void *arg), void *arg)
{
	if (likely(p->kbps == 0) || p->next_ns <= clock_now_ns() + p->burst_ns)
		return false;
	if (p->timing)
		return true;
	p->timing = true;
	if (timer_arm(timers, &p->timer, p->next_ns - p->burst_ns / 2))
		kick(arg);
	return true;
}

void pace_charge(struct pace *p, u32 length)
{
	if (p->kbps != 0)
		p->next_ns = MAX(p->next_ns, clock_now_ns()) + pace_ns(p->kbps, length);
}
