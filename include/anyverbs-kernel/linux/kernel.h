/* kernel.h: small words that all kernel code uses. None of this blocks. */
#ifndef ANYVERBS_LINUX_KERNEL_H
#define ANYVERBS_LINUX_KERNEL_H

#include_next <linux/kernel.h>

#include <asm/byteorder.h>
#include <asm/div64.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/compiler.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/kconfig.h>
#include <linux/kstrtox.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/printk.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/types.h>
#include <stdio.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#define DIV_ROUND_UP(n, by) (((n) + (by)-1) / (by))
#define roundup(n, to) (DIV_ROUND_UP(n, to) * (to))
#define rounddown(n, to) ((n) - (n) % (to))
/* `to`, and `align`, is a power of two. */
#define round_up(n, to) ((((n)-1) | ((__typeof__(n))(to)-1)) + 1)
#define round_down(n, to) ((n) & ~((__typeof__(n))(to)-1))
#define ALIGN(n, align) round_up(n, align)
#define ALIGN_DOWN(n, align) round_down(n, align)
#define IS_ALIGNED(n, align) (((n) & ((__typeof__(n))(align)-1)) == 0)
#define PTR_ALIGN(pointer, align) ((__typeof__(pointer))ALIGN((unsigned long)(pointer), align))

#define upper_32_bits(n) ((u32)(((n) >> 16) >> 16))
#define lower_32_bits(n) ((u32)(n))

#define U8_MAX UINT8_MAX
#define U16_MAX UINT16_MAX
#define U32_MAX UINT32_MAX
#define S32_MAX INT32_MAX
#define U64_MAX UINT64_MAX
#include <limits.h>

/* Writes at most `size` bytes and, unlike snprintf, returns how many those were, without the 0. */
int scnprintf(char *buffer, size_t size, const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));

#endif
