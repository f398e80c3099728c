/* mm.h: pages. A page is known by its address: a `struct page *` points to its first byte, has no
 * reference count and no flags. So there is no get_page and no put_page: who shares pages counts
 * them itself. With GFP_KERNEL what allocates may sleep.
 */
#ifndef ANYVERBS_LINUX_MM_H
#define ANYVERBS_LINUX_MM_H

#include <asm/page.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/sizes.h>
#include <linux/types.h>

struct page;

#define PAGE_ALIGN(address) ALIGN(address, PAGE_SIZE)
#define PAGE_ALIGNED(address) IS_ALIGNED((unsigned long)(address), PAGE_SIZE)
#define offset_in_page(address) ((unsigned long)(address) & ~PAGE_MASK)
#define PFN_UP(bytes) (((bytes) + PAGE_SIZE - 1) >> PAGE_SHIFT)
#define PFN_DOWN(bytes) ((bytes) >> PAGE_SHIFT)

/* The page that has `address` in it. */
static inline struct page *virt_to_page(const void *address)
{
	return (struct page *)((unsigned long)address & PAGE_MASK);
}

static inline void *page_address(const struct page *page)
{
	return (void *)page;
}

static inline phys_addr_t page_to_phys(const struct page *page)
{
	return (phys_addr_t)page;
}

#define kmap(page) page_address(page)
#define kunmap(page) ((void)(page))
#define kmap_atomic(page) page_address(page)
#define kunmap_atomic(address) ((void)(address))
#define kmap_local_page(page) page_address(page)
#define kunmap_local(address) ((void)(address))

/* 2 to the power of `order` pages in a row; 0 or NULL: no memory. */
unsigned long __get_free_pages(gfp_t flags, unsigned int order);

static inline void free_pages(unsigned long address, unsigned int order)
{
	(void)order;
	__builtin_free((void *)address);
}

#define __get_free_page(flags) __get_free_pages(flags, 0)
#define get_zeroed_page(flags) __get_free_pages((flags) | __GFP_ZERO, 0)
#define free_page(address) free_pages(address, 0)
#define alloc_pages(flags, order) ((struct page *)__get_free_pages(flags, order))
#define alloc_page(flags) alloc_pages(flags, 0)
#define __free_pages(page, order) free_pages((unsigned long)(page), order)
#define __free_page(page) __free_pages(page, 0)

#endif
