/* overflow.h: arithmetic that tells what does not fit. */
#ifndef ANYVERBS_LINUX_OVERFLOW_H
#define ANYVERBS_LINUX_OVERFLOW_H

#include <stddef.h>
#include <stdint.h>

/* Whether the result does not fit *to, which has its low bits then. */
#define check_add_overflow(a, b, to) __builtin_add_overflow(a, b, to)
#define check_sub_overflow(a, b, to) __builtin_sub_overflow(a, b, to)
#define check_mul_overflow(a, b, to) __builtin_mul_overflow(a, b, to)

/* SIZE_MAX, which no allocation is given, where the result does not fit. */
static inline size_t size_mul(size_t a, size_t b)
{
	size_t bytes;

	return __builtin_mul_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

static inline size_t size_add(size_t a, size_t b)
{
	size_t bytes;

	return __builtin_add_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

#define array_size(a, b) size_mul(a, b)
#define array3_size(a, b, c) size_mul(size_mul(a, b), c)
#define flex_array_size(pointer, member, count) size_mul(count, sizeof(*(pointer)->member))
#define struct_size(pointer, member, count)                                                        \
	size_add(sizeof(*(pointer)), flex_array_size(pointer, member, count))

#endif
