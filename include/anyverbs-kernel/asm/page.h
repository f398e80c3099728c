/* page.h: the size of a page. */
#ifndef ANYVERBS_ASM_PAGE_H
#define ANYVERBS_ASM_PAGE_H

#define PAGE_SHIFT 12
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define PAGE_MASK (~(PAGE_SIZE - 1))

#endif
