/* arena.c: the memory of a process, and what must be in it, byte by byte.
 * In: what the program does with its memory    Out: an oracle's word about every byte
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { ARENA_POISON = 0xdb };

u8 text_byte(u64 tag, u64 i)
{
	return (u8)(rng_mix(tag * 0x9e3779b97f4a7c15ull + (i >> 3)) >> (i & 7) * 8);
}

void text_fill(u8 *to, u64 tag, u64 from, u32 n)
{
	u64 word = 0;

	for (u32 i = 0; i < n; i++, from++) {
		if (i == 0 || (from & 7) == 0)
			word = rng_mix(tag * 0x9e3779b97f4a7c15ull + (from >> 3));
		to[i] = (u8)(word >> (from & 7) * 8);
	}
}

struct arena *arena_create(void)
{
	struct arena *a = calloc(1, sizeof(*a));

	if (a != NULL) {
		a->bytes = aligned_alloc(4096, ARENA_BYTES);
		a->want = aligned_alloc(4096, ARENA_BYTES);
		a->loose = aligned_alloc(4096, ARENA_BYTES);
	}
	if (a == NULL || a->bytes == NULL || a->want == NULL || a->loose == NULL)
		abort();
	memset(a->bytes, ARENA_POISON, ARENA_BYTES);
	memset(a->want, ARENA_POISON, ARENA_BYTES);
	memset(a->loose, 0, ARENA_BYTES);
	/* The edges belong to nobody. */
	a->used[0] = a->used[ARENA_BYTES / ARENA_UNIT - 1] = 1;
	return a;
}

void arena_destroy(struct arena *a)
{
	free(a->bytes);
	free(a->want);
	free(a->loose);
	free(a);
}

/* The first run of so many free units from `begin` on, or 0. */
static u32 arena_find(const struct arena *a, u32 begin, u32 units)
{
	u32 end = ARENA_BYTES / ARENA_UNIT, run = 0;

	for (u32 i = begin; i < end; i++) {
		run = a->used[i] ? 0 : run + 1;
		if (run == units)
			return i + 1 - units;
	}
	return 0;
}

bool slice_take(struct arena *a, u32 length, struct slice *s)
{
	/* one unit of guard before, one behind, and room to begin anywhere in the first */
	u32 units = (length + 2 * ARENA_UNIT - 1) / ARENA_UNIT + 2;
	u32 end = ARENA_BYTES / ARENA_UNIT;
	u32 unit = arena_find(a, rng_below(RNG, end), units);

	if (unit == 0)
		unit = arena_find(a, 1, units);
	if (unit == 0)
		return false;
	memset(a->used + unit, 1, units);
	*s = (struct slice){ .at = (unit + 1) * ARENA_UNIT + rng_below(RNG, ARENA_UNIT),
			     .length = length,
			     .unit = unit,
			     .units = units };
	return true;
}

void slice_give(struct arena *a, struct slice *s)
{
	if (s->units == 0)
		return;
	memset(a->bytes + s->at, ARENA_POISON, s->length);
	memset(a->want + s->at, ARENA_POISON, s->length);
	memset(a->loose + s->at, 0, s->length);
	memset(a->used + s->unit, 0, s->units);
	s->units = 0;
}

void slice_write(struct arena *a, const struct slice *s, u64 tag, u64 from)
{
	text_fill(a->bytes + s->at, tag, from, s->length);
	memcpy(a->want + s->at, a->bytes + s->at, s->length);
	memset(a->loose + s->at, 0, s->length);
}

void arena_loosen(struct arena *a, u32 at, u32 n)
{
	memset(a->loose + at, 0xff, n);
}

void arena_settle(struct arena *a, u32 at, u32 n)
{
	memcpy(a->want + at, a->bytes + at, n);
	memset(a->loose + at, 0, n);
}

void arena_check(const struct proc *p, u32 at, u32 n, const char *what)
{
	const struct arena *a = p->arena;
	u8 wrong = 0;

	for (u32 i = at; i < at + n; i++)
		wrong |= (a->bytes[i] ^ a->want[i]) & ~a->loose[i];
	if (likely(wrong == 0))
		return;
	for (u32 i = at; i < at + n; i++)
		sim_check(((a->bytes[i] ^ a->want[i]) & ~a->loose[i]) == 0,
			  "p%u: %s: byte %u of its memory is %02x, must be %02x", p->id, what, i,
			  a->bytes[i], a->want[i]);
}
