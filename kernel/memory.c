/* memory.c: what the kernel's allocators promise, over malloc; scatter lists.
 * Runs:  the caller's thread         Locks: none
 */
#include <asm/atomic.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <malloc.h>
#include <stdlib.h>

static void memory_may_sleep(gfp_t flags)
{
	if (gfpflags_allow_blocking(flags))
		might_sleep();
}

static void *memory_aligned(size_t size, size_t align, gfp_t flags)
{
	void *memory = NULL;

	memory_may_sleep(flags);
	if (align <= 16)
		memory = malloc(size);
	else if (posix_memalign(&memory, align, size) != 0)
		memory = NULL;
	if (memory && flags & __GFP_ZERO)
		memset(memory, 0, size);
	return memory;
}

void *kmalloc(size_t size, gfp_t flags)
{
	return memory_aligned(size, is_power_of_2(size) ? min_t(size_t, size, PAGE_SIZE) : 1,
			      flags);
}

void *krealloc(const void *memory, size_t size, gfp_t flags)
{
	memory_may_sleep(flags);
	return realloc((void *)memory, size);
}

void kfree(const void *memory)
{
	free((void *)memory);
}

void kfree_sensitive(const void *memory)
{
	if (memory)
		explicit_bzero((void *)memory, malloc_usable_size((void *)memory));
	free((void *)memory);
}

void *vmalloc(unsigned long size)
{
	return memory_aligned(PAGE_ALIGN(size), PAGE_SIZE, GFP_KERNEL);
}

void *vzalloc(unsigned long size)
{
	return memory_aligned(PAGE_ALIGN(size), PAGE_SIZE, GFP_KERNEL | __GFP_ZERO);
}

unsigned long __get_free_pages(gfp_t flags, unsigned int order)
{
	return (unsigned long)memory_aligned(PAGE_SIZE << order, PAGE_SIZE, flags);
}

/* ---- copies ---------------------------------------------------------------------------------- */

void *kmemdup(const void *memory, size_t size, gfp_t flags)
{
	void *copy = kmalloc(size, flags);

	return copy ? memcpy(copy, memory, size) : NULL;
}

char *kstrndup(const char *text, size_t most, gfp_t flags)
{
	size_t length = text ? strnlen(text, most) : 0;
	char *copy = text ? kmalloc(length + 1, flags) : NULL;

	if (copy) {
		memcpy(copy, text, length);
		copy[length] = '\0';
	}
	return copy;
}

char *kstrdup(const char *text, gfp_t flags)
{
	return kstrndup(text, PTRDIFF_MAX - 1, flags);
}

char *kasprintf(gfp_t flags, const char *format, ...)
{
	va_list arguments;
	char *text;
	int length;

	memory_may_sleep(flags);
	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	return length < 0 ? NULL : text;
}

/* ---- objects of one size --------------------------------------------------------------------- */

struct kmem_cache {
	char *name;
	size_t size, align;
	void (*constructor)(void *object);
	atomic_long_t allocated;
};

struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align,
				     unsigned int flags, void (*constructor)(void *))
{
	struct kmem_cache *cache = kzalloc(sizeof(*cache), GFP_KERNEL);

	if (!cache)
		return NULL;
	cache->name = kstrdup(name, GFP_KERNEL);
	cache->size = size;
	cache->align = flags & SLAB_HWCACHE_ALIGN ? max(align, 64U) : align;
	cache->constructor = constructor;
	return cache;
}

void kmem_cache_destroy(struct kmem_cache *cache)
{
	if (!cache)
		return;
	WARN(atomic_long_read(&cache->allocated) != 0, KERN_CONT "%s: %ld objects are left\n",
	     cache->name, atomic_long_read(&cache->allocated));
	kfree(cache->name);
	kfree(cache);
}

void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
	void *object = memory_aligned(cache->size, cache->align, flags);

	if (!object)
		return NULL;
	if (cache->constructor)
		cache->constructor(object);
	atomic_long_inc(&cache->allocated);
	return object;
}

void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	if (object)
		atomic_long_dec(&cache->allocated);
	kfree(object);
}

/* ---- scatter lists --------------------------------------------------------------------------- */

int sg_alloc_table(struct sg_table *table, unsigned int count, gfp_t flags)
{
	*table = (struct sg_table){ 0 };
	if (count == 0)
		return -EINVAL;
	table->sgl = kmalloc_array(count, sizeof(*table->sgl), flags);
	if (!table->sgl)
		return -ENOMEM;
	sg_init_table(table->sgl, count);
	table->nents = table->orig_nents = count;
	return 0;
}

void sg_free_table(struct sg_table *table)
{
	kfree(table->sgl);
	*table = (struct sg_table){ 0 };
}

struct scatterlist *sgl_alloc(unsigned long long length, gfp_t flags, unsigned int *count)
{
	unsigned int pages = (unsigned int)PFN_UP(length);
	struct scatterlist *list = kmalloc_array(pages, sizeof(*list), flags);
	struct page *page;

	if (!list || pages == 0) {
		kfree(list);
		return NULL;
	}
	sg_init_table(list, pages);
	for (unsigned int i = 0; i < pages; i++) {
		page = alloc_page(flags);
		if (!page) {
			sgl_free(list);
			return NULL;
		}
		sg_set_page(&list[i], page, (unsigned int)min_t(u64, length, PAGE_SIZE), 0);
		length -= list[i].length;
	}
	if (count)
		*count = pages;
	return list;
}

void sgl_free(struct scatterlist *list)
{
	for (struct scatterlist *sg = list; sg && sg->length; sg = sg_next(sg))
		__free_page(sg_page(sg));
	kfree(list);
}

static size_t sg_copy(struct scatterlist *list, unsigned int count, char *buffer, size_t length,
		      off_t skip, bool is_to_list)
{
	struct scatterlist *sg;
	size_t done = 0, n;
	unsigned int i;
	char *piece;

	for_each_sg(list, sg, count, i) {
		if (skip >= (off_t)sg->length) {
			skip -= sg->length;
			continue;
		}
		n = min_t(size_t, sg->length - (size_t)skip, length - done);
		piece = (char *)sg_virt(sg) + skip;
		skip = 0;
		if (is_to_list)
			memcpy(piece, buffer + done, n);
		else
			memcpy(buffer + done, piece, n);
		done += n;
	}
	return done;
}

size_t sg_pcopy_from_buffer(struct scatterlist *list, unsigned int count, const void *buffer,
			    size_t length, off_t skip)
{
	return sg_copy(list, count, (char *)buffer, length, skip, true);
}

size_t sg_pcopy_to_buffer(struct scatterlist *list, unsigned int count, void *buffer, size_t length,
			  off_t skip)
{
	return sg_copy(list, count, buffer, length, skip, false);
}
