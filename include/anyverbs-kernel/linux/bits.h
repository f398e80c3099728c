/* bits.h: masks. */
#ifndef ANYVERBS_LINUX_BITS_H
#define ANYVERBS_LINUX_BITS_H

#define BITS_PER_BYTE 8
#define BITS_PER_LONG 64
#define BIT(nr) (1UL << (nr))
#define BIT_ULL(nr) (1ULL << (nr))
#define BIT_MASK(nr) (1UL << ((unsigned long)(nr) % BITS_PER_LONG))
#define BIT_WORD(nr) ((unsigned long)(nr) / BITS_PER_LONG)
#define GENMASK(high, low) ((~0UL << (low)) & (~0UL >> (BITS_PER_LONG - 1 - (high))))
#define BITS_TO_LONGS(nr) (((nr) + BITS_PER_LONG - 1) / BITS_PER_LONG)
#define DECLARE_BITMAP(name, nr) unsigned long name[BITS_TO_LONGS(nr)]

#endif
