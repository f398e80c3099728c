/* pace.h: the rate limit of one raw packet queue pair (IBV_QP_RATE_LIMIT).
 *
 * Within any time T the queue pair sends no more than rate * T, one burst and one frame. Its
 * owner's lock guards a pace: sq_lock, which is not known here.
 */
#ifndef DRIVER_SOFT_PACE_H
#define DRIVER_SOFT_PACE_H

#include "base/timer.h"
#include "core/uverbs.h"

enum {
	PACE_KBPS_MAX = 100000000, /* 100 Gbit/s */
	PACE_BURST_US = 2000,	   /* the burst where none is asked for, as time at the rate */
	PACE_BURST_MAX = 1 << 20,  /* bytes of a burst that is asked for */
};

/* All zero but for timer.fn: no limit. */
struct pace {
	u32 kbps OWNED_BY(soft_raw.sq_lock); /* 0: no limit */
	u64 burst_ns OWNED_BY(soft_raw.sq_lock);
	u64 next_ns OWNED_BY(soft_raw.sq_lock); /* when what was sent has left at the rate */
	bool timing OWNED_BY(soft_raw.sq_lock);
	struct timer timer OWNED_BY(timer_set.lock);
};

/* 0; -EINVAL: beyond what the adapter announces. */
int pace_check(const struct ib_uverbs_rate *rate);
/* `rate` is checked. */
void pace_set(struct pace *p, const struct ib_uverbs_rate *rate);
/* Must the next frame wait? Then the timer runs. */
bool pace_holds(struct pace *p, struct timer_set *timers, void (*kick)(void *arg), void *arg);
/* A frame of so many bytes has left. */
void pace_charge(struct pace *p, u32 length);

#endif
