/* shuffle.h: what makes keys unpredictable: random numbers, and the order in which blocks of
 * indexes come into use. The caller holds mem_table.lock. */
#ifndef MEM_SHUFFLE_H
#define MEM_SHUFFLE_H

#include "mem/mem.h"

enum {
	/* Indexes of a block are neighbours in memory, so a small table touches few pages. */
	SHUFFLE_BLOCK = 256,
	SHUFFLE_BLOCKS = MEM_MAX_KEYS / SHUFFLE_BLOCK,
	SHUFFLE_DRAWS = 64, /* of one system call */
};

struct mem_shuffle {
	u64 state; /* of the generator that stands in for the kernel's */
	u32 left;  /* draws that nobody has had yet */
	u32 draws[SHUFFLE_DRAWS];
	/* The block that comes into use at a place, XOR the place: all zeroes is the identity, and
	 * pages of it that no draw has touched are not there. */
	u16 blocks[SHUFFLE_BLOCKS];
} OWNED_BY(mem_table.lock);

/* Of one that is all zeroes. */
void shuffle_begin(struct mem_shuffle *s);
/* 32 random bits. */
u32 shuffle_draw(struct mem_shuffle *s);
/* Draws which of the blocks that are not in use yet is the one at `place`, behind all that are. */
void shuffle_add_block(struct mem_shuffle *s, u32 place);

/* The n-th index that came into use, in blocks that were drawn. */
static inline u32 shuffle_index(const struct mem_shuffle *s, u32 n)
{
	u32 place = n / SHUFFLE_BLOCK;

	return (s->blocks[place] ^ place) * SHUFFLE_BLOCK + n % SHUFFLE_BLOCK;
}

#endif
