/* vmalloc.h: large memory, which begins at a page's first byte. NULL: no memory. May sleep. */
#ifndef ANYVERBS_LINUX_VMALLOC_H
#define ANYVERBS_LINUX_VMALLOC_H

#include <linux/mm.h>
#include <linux/slab.h>

void *vmalloc(unsigned long size);
void *vzalloc(unsigned long size);
#define vmalloc_node(size, node) ((void)(node), vmalloc(size))
#define vzalloc_node(size, node) ((void)(node), vzalloc(size))
#define vfree(memory) kfree(memory)
#define vmalloc_to_page(address) virt_to_page(address)
#define is_vmalloc_addr(address) ((void)(address), false)

#endif
