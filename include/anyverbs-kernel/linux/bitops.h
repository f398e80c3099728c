/* bitops.h: bits in arrays of unsigned long. None of this blocks.
 *
 * set_bit, clear_bit and change_bit are atomic and order nothing; the test_and_ family is atomic
 * and a full barrier; those with two underscores are neither. test_bit is a relaxed load,
 * clear_bit_unlock a release, test_and_set_bit_lock an acquire.
 */
#ifndef ANYVERBS_LINUX_BITOPS_H
#define ANYVERBS_LINUX_BITOPS_H

#include <linux/bits.h>
#include <linux/types.h>
#include <strings.h>

static inline void set_bit(long nr, unsigned long *bits)
{
	__atomic_fetch_or(&bits[BIT_WORD(nr)], BIT_MASK(nr), __ATOMIC_RELAXED);
}

static inline void clear_bit(long nr, unsigned long *bits)
{
	__atomic_fetch_and(&bits[BIT_WORD(nr)], ~BIT_MASK(nr), __ATOMIC_RELAXED);
}

static inline void clear_bit_unlock(long nr, unsigned long *bits)
{
	__atomic_fetch_and(&bits[BIT_WORD(nr)], ~BIT_MASK(nr), __ATOMIC_RELEASE);
}

static inline void change_bit(long nr, unsigned long *bits)
{
	__atomic_fetch_xor(&bits[BIT_WORD(nr)], BIT_MASK(nr), __ATOMIC_RELAXED);
}

static inline bool test_bit(long nr, const unsigned long *bits)
{
	return __atomic_load_n(&bits[BIT_WORD(nr)], __ATOMIC_RELAXED) & BIT_MASK(nr);
}

static inline bool test_and_set_bit(long nr, unsigned long *bits)
{
	return __atomic_fetch_or(&bits[BIT_WORD(nr)], BIT_MASK(nr), __ATOMIC_SEQ_CST) &
	       BIT_MASK(nr);
}

static inline bool test_and_set_bit_lock(long nr, unsigned long *bits)
{
	return __atomic_fetch_or(&bits[BIT_WORD(nr)], BIT_MASK(nr), __ATOMIC_ACQUIRE) &
	       BIT_MASK(nr);
}

static inline bool test_and_clear_bit(long nr, unsigned long *bits)
{
	return __atomic_fetch_and(&bits[BIT_WORD(nr)], ~BIT_MASK(nr), __ATOMIC_SEQ_CST) &
	       BIT_MASK(nr);
}

static inline void __set_bit(long nr, unsigned long *bits)
{
	bits[BIT_WORD(nr)] |= BIT_MASK(nr);
}

static inline void __clear_bit(long nr, unsigned long *bits)
{
	bits[BIT_WORD(nr)] &= ~BIT_MASK(nr);
}

/* The first bit at `from` or behind it that is `value`; `size`: none. */
static inline unsigned long anyverbs_find_bit(const unsigned long *bits, unsigned long size,
					      unsigned long from, bool value)
{
	while (from < size && test_bit((long)from, bits) != value)
		from++;
	return from < size ? from : size;
}

#define find_next_bit(bits, size, from) anyverbs_find_bit(bits, size, from, true)
#define find_next_zero_bit(bits, size, from) anyverbs_find_bit(bits, size, from, false)
#define find_first_bit(bits, size) anyverbs_find_bit(bits, size, 0, true)
#define find_first_zero_bit(bits, size) anyverbs_find_bit(bits, size, 0, false)
#define for_each_set_bit(bit, bits, size)                                                          \
	for ((bit) = find_first_bit(bits, size); (bit) < (size);                                   \
	     (bit) = find_next_bit(bits, size, (bit) + 1))

#define hweight32(n) ((unsigned int)__builtin_popcount(n))
#define hweight64(n) ((unsigned long)__builtin_popcountll(n))

#endif
