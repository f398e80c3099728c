/* log2.h: powers of two. None of this blocks. */
#ifndef ANYVERBS_LINUX_LOG2_H
#define ANYVERBS_LINUX_LOG2_H

#include <linux/types.h>

static inline bool is_power_of_2(unsigned long n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* Of 1 and above. */
static inline int ilog2(u64 n)
{
	return 63 - __builtin_clzll(n);
}

/* The least power of two that is `n` or more. */
static inline unsigned long roundup_pow_of_two(unsigned long n)
{
	return n <= 1 ? 1 : 1UL << (ilog2(n - 1) + 1);
}

static inline unsigned long rounddown_pow_of_two(unsigned long n)
{
	return 1UL << ilog2(n);
}

/* The least order of pages that holds `size` bytes. */
static inline int get_order(unsigned long size)
{
	return size <= 4096 ? 0 : ilog2((size - 1) >> 12) + 1;
}

#endif
