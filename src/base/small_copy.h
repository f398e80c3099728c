/* small_copy.h: copies a few bytes without a call: two overlapping moves of fixed size. */
#ifndef BASE_SMALL_COPY_H
#define BASE_SMALL_COPY_H

#include <string.h>

#include "base/compiler.h"

enum { SMALL_COPY_MAX = 32 };

#define SMALL_COPY_ENDS(to, from, n, size)                                                  \
	do {                                                                                \
		u8 first[size], last[size];                                                 \
                                                                                            \
		memcpy(first, (from), size);                                                \
		memcpy(last, (const u8 *)(from) + (n) - (size), size);                      \
		memcpy((to), first, size);                                                  \
		memcpy((u8 *)(to) + (n) - (size), last, size);                              \
	} while (0)

/* At most SMALL_COPY_MAX bytes, 0 too. The two ranges may overlap. */
static inline void small_copy(void *to, const void *from, u32 n)
{
	if (n >= 16)
		SMALL_COPY_ENDS(to, from, n, 16);
	else if (n >= 8)
		SMALL_COPY_ENDS(to, from, n, 8);
	else if (n >= 4)
		SMALL_COPY_ENDS(to, from, n, 4);
	else if (n >= 2)
		SMALL_COPY_ENDS(to, from, n, 2);
	else if (n == 1)
		*(u8 *)to = *(const u8 *)from;
}

#endif
