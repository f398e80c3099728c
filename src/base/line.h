/* line.h: structures that begin at a cache line, many of which lie one behind the other.
 *
 * In: sizes    Out: zeroed memory    Locks: none
 */
#ifndef BASE_LINE_H
#define BASE_LINE_H

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* malloc keeps a word of its own in front of each block. With room for it in the padding at the end
 * of a structure, the next one begins at the next line instead of one line later. */
enum { LINE_SPARE = sizeof(size_t) };

/* That the padding of `type`, behind the last member, has the room. */
#define LINE_ASSERT_SPARE(type, last)                                                              \
	_Static_assert(sizeof(type) - offsetof(type, last) - sizeof(((type *)NULL)->last) >=       \
			       LINE_SPARE,                                                         \
		       "the next one would begin a line later")

/* `bytes`: of structures in a row whose last one was asserted. Zeroed; NULL; for free(). */
static inline void *line_alloc(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, CACHE_LINE, bytes - LINE_SPARE) != 0)
		return NULL;
	return memset(p, 0, bytes - LINE_SPARE);
}

#endif
