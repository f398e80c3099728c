/* populate.h: the part of populate.c that its test calls. */
#ifndef MEM_POPULATE_H
#define MEM_POPULATE_H

#include "base/compiler.h"

/* For older kernels: touches each page of [first, end). 0 or -EFAULT. */
int mem_populate_by_touch(u64 first, u64 end, u64 page_size, bool write);

#endif
