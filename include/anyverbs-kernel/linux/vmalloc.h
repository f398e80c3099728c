/* vmalloc.h: large memory, from malloc as all. */
#ifndef ANYVERBS_LINUX_VMALLOC_H
#define ANYVERBS_LINUX_VMALLOC_H

#include <linux/mm.h>
#include <linux/slab.h>

#define vmalloc(size) kmalloc(PAGE_ALIGN(size), GFP_KERNEL)
#define vzalloc(size) kzalloc(PAGE_ALIGN(size), GFP_KERNEL)
#define vfree(memory) kfree(memory)
#define is_vmalloc_addr(address) ((void)(address), false)

#endif
