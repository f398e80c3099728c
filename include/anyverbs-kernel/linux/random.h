/* random.h: random numbers, of the system. None of this blocks once the system has begun. */
#ifndef ANYVERBS_LINUX_RANDOM_H
#define ANYVERBS_LINUX_RANDOM_H

#include <linux/types.h>

void get_random_bytes(void *buffer, size_t size);
u32 get_random_u32(void);
u64 get_random_u64(void);
#define get_random_int() get_random_u32()
#define prandom_u32() get_random_u32()
#define prandom_bytes(buffer, size) get_random_bytes(buffer, size)
/* Below `end`. */
#define prandom_u32_max(end) ((u32)(((u64)get_random_u32() * (end)) >> 32))
#define get_random_u32_below(end) prandom_u32_max(end)

#endif
