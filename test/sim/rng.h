/* rng.h: the simulation's only source of chance: splitmix64, whole state in one word. */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include "base/compiler.h"

struct rng {
	u64 state;
};

static inline u64 rng_mix(u64 z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline u64 rng_next(struct rng *r)
{
	return rng_mix(r->state += 0x9e3779b97f4a7c15ull);
}

/* 0 .. n-1; 0 for n 0. */
static inline u32 rng_below(struct rng *r, u32 n)
{
	return n == 0 ? 0 : (u32)(rng_next(r) % n);
}

/* low .. high, both included */
static inline u64 rng_range(struct rng *r, u64 low, u64 high)
{
	return low + rng_next(r) % (high - low + 1);
}

static inline bool rng_percent(struct rng *r, u32 percent)
{
	return rng_below(r, 100) < percent;
}

static inline bool rng_permille(struct rng *r, u32 permille)
{
	return rng_below(r, 1000) < permille;
}

/* low .. high, small values as likely as large ones */
static inline u64 rng_skewed(struct rng *r, u64 low, u64 high)
{
	u64 span = high - low;
	u32 bits = span == 0 ? 0 : 64 - (u32)__builtin_clzll(span);
	u64 cut = span >> rng_below(r, bits + 1);

	return low + rng_range(r, 0, cut);
}

#endif
