/* barrier.h: memory barriers, for READ_ONCE, WRITE_ONCE and relaxed atomics. They are C11's fences.
 *
 * ThreadSanitizer does not know fences. In a program that is built with it, smp_mb, smp_rmb and
 * smp_wmb are an atomic operation on one variable that they all share: they order at least as much.
 */
#ifndef ANYVERBS_ASM_BARRIER_H
#define ANYVERBS_ASM_BARRIER_H

#if defined(__SANITIZE_THREAD__)
#define ANYVERBS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ANYVERBS_TSAN 1
#endif
#endif

#ifdef ANYVERBS_TSAN
extern int anyverbs_fence; /* ATOMIC_ONLY */
#define anyverbs_fence_by(order) ((void)__atomic_fetch_add(&anyverbs_fence, 0, __ATOMIC_ACQ_REL))
#else
#define anyverbs_fence_by(order) __atomic_thread_fence(order)
#endif

#define smp_mb() anyverbs_fence_by(__ATOMIC_SEQ_CST)
#define smp_rmb() anyverbs_fence_by(__ATOMIC_ACQUIRE)
#define smp_wmb() anyverbs_fence_by(__ATOMIC_RELEASE)
#define mb() smp_mb()
#define rmb() smp_rmb()
#define wmb() smp_wmb()
#define dma_rmb() smp_rmb()
#define dma_wmb() smp_wmb()
#define smp_mb__before_atomic() smp_mb()
#define smp_mb__after_atomic() smp_mb()
#define smp_mb__after_spinlock() smp_mb()
#define smp_load_acquire(pointer) __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define smp_store_release(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
#define smp_store_mb(variable, value)                                                              \
	((void)__atomic_exchange_n(&(variable), value, __ATOMIC_SEQ_CST))

#endif
