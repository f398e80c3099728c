/* compiler.h: Linux's words for the compiler. None of this blocks.
 *
 * READ_ONCE and WRITE_ONCE are relaxed atomic accesses of C11, so that ThreadSanitizer takes them
 * as such; they take integers and pointers. The barriers of asm/barrier.h order them.
 */
#ifndef ANYVERBS_LINUX_COMPILER_H
#define ANYVERBS_LINUX_COMPILER_H

#include <sys/cdefs.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ __volatile__("" ::: "memory")

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value) __atomic_store_n(&(x), (value), __ATOMIC_RELAXED)

/* Marks of sections and address spaces: a program has one of each. */
#define __init
#define __exit
#define __initdata
#define __exitdata
#define __user
#define __kernel
#define __iomem
#define __force
#define __bitwise
#define __read_mostly
#define __acquires(x)
#define __releases(x)
#define __must_hold(x)

#define __must_check __attribute__((__warn_unused_result__))
#define __maybe_unused __attribute__((__unused__))
#define __always_unused __attribute__((__unused__))
#define __packed __attribute__((__packed__))
#define __aligned(bytes) __attribute__((__aligned__(bytes)))
#define ____cacheline_aligned __attribute__((__aligned__(64)))
#define ____cacheline_aligned_in_smp __attribute__((__aligned__(64)))
#define __weak __attribute__((__weak__))
#define __cold __attribute__((__cold__))
#define noinline __attribute__((__noinline__))
#define fallthrough __attribute__((__fallthrough__))
#ifndef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
#endif

#endif
