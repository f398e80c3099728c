/* kernel.h: the few words of the Linux kernel that the midlayer's headers are written in.
 *
 * The headers under include/rdma/ keep Linux's names and semantics, so that kernel upper-layer code
 * reads the same here. This file gives them the kernel's integer types, error pointers and list
 * heads, and nothing else.
 */
#ifndef ANYVERBS_KERNEL_H
#define ANYVERBS_KERNEL_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
typedef uint64_t dma_addr_t;

/* Doubly linked, circular; the head is an element without a container. */
struct list_head {
	struct list_head *next, *prev;
};

/* An errno in a pointer: the top 4095 addresses are never valid ones. */
#define MAX_ERRNO 4095

static inline void *ERR_PTR(long error)
{
	return (void *)error;
}

static inline long PTR_ERR(const void *ptr)
{
	return (long)ptr;
}

static inline bool IS_ERR(const void *ptr)
{
	return (unsigned long)ptr >= (unsigned long)-MAX_ERRNO;
}

/* Symbols that leave libanyverbs.so; everything else is hidden. C++ calls them by C's names. */
#ifdef __cplusplus
#define AV_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define AV_EXPORT __attribute__((visibility("default")))
#endif

#endif
