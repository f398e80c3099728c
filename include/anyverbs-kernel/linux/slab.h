/* slab.h: memory, from malloc. NULL: there is none. With GFP_KERNEL the calls may sleep.
 *
 * Memory of 16 bytes or more is aligned to 16; of a power of two, to its size, up to a page, as
 * Linux aligns it. Nothing is pinned: RDMA needs no pinned memory here.
 */
#ifndef ANYVERBS_LINUX_SLAB_H
#define ANYVERBS_LINUX_SLAB_H

#include <linux/gfp.h>
#include <linux/overflow.h>
#include <linux/types.h>
#include <stdarg.h>

void *kmalloc(size_t size, gfp_t flags);
/* Resized to `size`, with the alignment of malloc; NULL leaves `memory` as it is. */
void *krealloc(const void *memory, size_t size, gfp_t flags);
/* NULL is allowed. Never sleeps. */
void kfree(const void *memory);
/* Overwrites the memory with 0 first. */
void kfree_sensitive(const void *memory);

static inline void *kzalloc(size_t size, gfp_t flags)
{
	return kmalloc(size, flags | __GFP_ZERO);
}

/* NULL, too, if n * size overflows. */
static inline void *kmalloc_array(size_t n, size_t size, gfp_t flags)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? (void *)0 : kmalloc(bytes, flags);
}

static inline void *kcalloc(size_t n, size_t size, gfp_t flags)
{
	return kmalloc_array(n, size, flags | __GFP_ZERO);
}

#define kmalloc_node(size, flags, node) ((void)(node), kmalloc(size, flags))
#define kzalloc_node(size, flags, node) ((void)(node), kzalloc(size, flags))
#define kcalloc_node(n, size, flags, node) ((void)(node), kcalloc(n, size, flags))
#define kvmalloc(size, flags) kmalloc(size, flags)
#define kvzalloc(size, flags) kzalloc(size, flags)
#define kvcalloc(n, size, flags) kcalloc(n, size, flags)
#define kvmalloc_array(n, size, flags) kmalloc_array(n, size, flags)
#define kvmalloc_node(size, flags, node) ((void)(node), kvmalloc(size, flags))
#define kvzalloc_node(size, flags, node) ((void)(node), kvzalloc(size, flags))
#define kvfree(memory) kfree(memory)

/* Copies, to be given to kfree. */
char *kstrdup(const char *text, gfp_t flags);
char *kstrndup(const char *text, size_t most, gfp_t flags);
void *kmemdup(const void *memory, size_t size, gfp_t flags);
char *kasprintf(gfp_t flags, const char *format, ...)
	__attribute__((__format__(__printf__, 2, 3)));

/* ---- objects of one size --------------------------------------------------------------------- */

struct kmem_cache;

#define SLAB_HWCACHE_ALIGN 1u

/* `align` 0: as malloc. `constructor`, or NULL, is called for each object that is allocated:
 * objects do not keep their state over a free. May sleep. */
struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
				     unsigned int flags, void (*constructor)(void *));
/* Warns of objects that are still allocated. NULL is allowed. */
void kmem_cache_destroy(struct kmem_cache *cache);
void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags);
void kmem_cache_free(struct kmem_cache *cache, void *object);

#define kmem_cache_zalloc(cache, flags) kmem_cache_alloc(cache, (flags) | __GFP_ZERO)
#define KMEM_CACHE(type, flags)                                                                    \
	kmem_cache_create(#type, sizeof(struct type), __alignof__(struct type), flags, (void *)0)

#endif
