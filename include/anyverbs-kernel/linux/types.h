/* types.h: Linux's integer types and those structures that several headers share.
 *
 * Reached by <anyverbs/kernel.h> and by headers of the C library, so it uses no type of the former.
 * u64 is uint64_t, hence `unsigned long`: "%llx" of a u64 prints right and may draw a warning.
 */
#ifndef ANYVERBS_LINUX_TYPES_H
#define ANYVERBS_LINUX_TYPES_H

#include_next <linux/types.h>

#include <anyverbs/kernel.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef int8_t s8;
typedef int16_t s16;
typedef uint64_t phys_addr_t;
typedef uint64_t resource_size_t;
typedef unsigned int gfp_t;
typedef unsigned short umode_t;

/* asm/atomic.h has the operations. */
typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long counter;
} atomic64_t;

typedef atomic64_t atomic_long_t;

/* A list whose head is one pointer, for tables (linux/list.h). */
struct hlist_node {
	struct hlist_node *next, **pprev;
};

struct hlist_head {
	struct hlist_node *first;
};

#endif
