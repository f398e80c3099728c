/* heap.c: malloc and its family: long blocks are born shared, the next allocator has the others.
 * In: lengths, pointers    Out: blocks    Runs: any thread    Locks: none
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "born_next.h"

/* For libanyverbs (adopt_allow.c): the allocator of the short blocks. */
AV_EXPORT void *anyverbs_next_malloc(void);

NEXT_SLOT(malloc);
NEXT_SLOT(calloc);
NEXT_SLOT(realloc);
NEXT_SLOT(free);
NEXT_SLOT(posix_memalign);
NEXT_SLOT(aligned_alloc);
NEXT_SLOT(memalign);
NEXT_SLOT(malloc_usable_size);

void *anyverbs_next_malloc(void)
{
	return (void *)(uintptr_t)NEXT(malloc);
}

static void *heap_block(size_t n, size_t alignment)
{
	int saved = errno;
	void *p = born_wants(n) ? born_alloc(n, alignment, true) : (void *)0;

	errno = saved;
	return p;
}

static bool heap_resize(void *p, size_t n)
{
	int saved = errno;
	bool done = born_wants(n) && born_resize(p, n);

	errno = saved;
	return done;
}

AV_EXPORT void *malloc(size_t n)
{
	void *p = heap_block(n, 0);

	return p != (void *)0 ? p : NEXT(malloc)(n);
}

AV_EXPORT void *calloc(size_t count, size_t each)
{
	size_t n;
	void *p = __builtin_mul_overflow(count, each, &n) ? (void *)0 : heap_block(n, 0);

	return p != (void *)0 ? p : NEXT(calloc)(count, each);
}

AV_EXPORT void free(void *p)
{
	int saved = errno;

	if (!born_is_in(p) || !born_free(p))
		NEXT(free)(p);
	errno = saved;
}

AV_EXPORT size_t malloc_usable_size(void *p)
{
	return born_is_in(p) ? (size_t)born_length(p) : NEXT(malloc_usable_size)(p);
}

/* A block that becomes long is born; a born block that becomes short goes to the next allocator. */
AV_EXPORT void *realloc(void *old, size_t n)
{
	size_t before = born_is_in(old) ? born_length(old) : 0;
	void *p;

	if (before == 0 && (old == (void *)0 || !born_wants(n)))
		return old == (void *)0 ? malloc(n) : NEXT(realloc)(old, n);
	if (before == 0)
		before = NEXT(malloc_usable_size)(old);
	else if (heap_resize(old, n))
		return old;
	p = n == 0 ? (void *)0 : malloc(n);
	if (p != (void *)0)
		memcpy(p, old, before < n ? before : n);
	if (p != (void *)0 || n == 0)
		free(old);
	return p;
}

AV_EXPORT void *reallocarray(void *old, size_t count, size_t each)
{
	size_t n;

	if (!__builtin_mul_overflow(count, each, &n))
		return realloc(old, n);
	errno = ENOMEM;
	return (void *)0;
}

AV_EXPORT int posix_memalign(void **out, size_t alignment, size_t n)
{
	bool valid = alignment >= sizeof(void *) && (alignment & (alignment - 1)) == 0;
	void *p = valid ? heap_block(n, alignment) : (void *)0;

	if (p == (void *)0)
		return NEXT(posix_memalign)(out, alignment, n);
	*out = p;
	return 0;
}

/* Alignments that are no power of 2 are the next allocator's to judge. */
static void *heap_aligned(size_t alignment, size_t n)
{
	bool power = alignment != 0 && (alignment & (alignment - 1)) == 0;

	return power ? heap_block(n, alignment) : (void *)0;
}

AV_EXPORT void *memalign(size_t alignment, size_t n)
{
	void *p = heap_aligned(alignment, n);

	return p != (void *)0 ? p : NEXT(memalign)(alignment, n);
}

AV_EXPORT void *aligned_alloc(size_t alignment, size_t n)
{
	void *p = heap_aligned(alignment, n);

	return p != (void *)0 ? p : NEXT(aligned_alloc)(alignment, n);
}

AV_EXPORT void *valloc(size_t n)
{
	return memalign((size_t)sysconf(_SC_PAGESIZE), n);
}

AV_EXPORT void *pvalloc(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), end;

	if (!__builtin_add_overflow(n, page - 1, &end))
		return memalign(page, end & ~(page - 1));
	errno = ENOMEM;
	return (void *)0;
}
