/* shuffle.c: random numbers, and the order in which blocks of indexes come into use.
 * In:    the kernel's random numbers       Out: draws, blocks
 * Runs:  who changes the table of keys     Locks: none; the caller has mem_table.lock
 */
#include <sys/random.h>

#include "base/clock.h"
#include "mem/shuffle.h"

/* splitmix64: for a kernel that has no random numbers yet. */
static u32 shuffle_generate(struct mem_shuffle *s)
{
	u64 z = s->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (u32)(z ^ (z >> 31));
}

void shuffle_begin(struct mem_shuffle *s)
{
	s->state = clock_now_ns() ^ (uintptr_t)s;
}

u32 shuffle_draw(struct mem_shuffle *s)
{
	if (s->left == 0) {
		if (getrandom(s->draws, sizeof(s->draws), GRND_NONBLOCK) != sizeof(s->draws))
			for (u32 i = 0; i < SHUFFLE_DRAWS; i++)
				s->draws[i] = shuffle_generate(s);
		s->left = SHUFFLE_DRAWS;
	}
	return s->draws[--s->left];
}

void shuffle_add_block(struct mem_shuffle *s, u32 place)
{
	u32 from = place + shuffle_draw(s) % (SHUFFLE_BLOCKS - place);
	u32 block = s->blocks[from] ^ from;

	s->blocks[from] = (u16)(s->blocks[place] ^ place ^ from);
	s->blocks[place] = (u16)(block ^ place);
}
