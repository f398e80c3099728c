/* born_next.h: inside the library that puts born memory under a program. */
#ifndef BORN_NEXT_H
#define BORN_NEXT_H

#include "../next.h"
#include "shared/shared.h"

/* The bounds of the arena; 0, 0: none. Set by the constructor (begin.c). */
extern u64 born_base, born_end;

static inline bool born_is_in(const void *p)
{
	return (u64)(uintptr_t)p - born_base < born_end - born_base;
}

static inline bool born_wants(size_t n)
{
	return n >= BORN_FROM && born_end != 0;
}

#endif
