/* err.h: an errno in a pointer. None of this blocks. */
#ifndef ANYVERBS_LINUX_ERR_H
#define ANYVERBS_LINUX_ERR_H

#include <anyverbs/kernel.h>
#include <errno.h>
#include <linux/compiler.h>

#define IS_ERR_VALUE(x) ((unsigned long)(void *)(x) >= (unsigned long)-MAX_ERRNO)

static inline bool IS_ERR_OR_NULL(const void *ptr)
{
	return !ptr || IS_ERR(ptr);
}

/* The errno of `ptr`, or 0. */
static inline int PTR_ERR_OR_ZERO(const void *ptr)
{
	return IS_ERR(ptr) ? (int)PTR_ERR(ptr) : 0;
}

static inline void *ERR_CAST(const void *ptr)
{
	return (void *)ptr;
}

#endif
