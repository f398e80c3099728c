/* atomic.h: counters that threads share. None of this blocks.
 *
 * Orders are those that Linux promises, in C11's words: what returns nothing, and atomic_read and
 * atomic_set, are relaxed; what returns a value is sequentially consistent, a full barrier on
 * x86-64; a compare that fails orders nothing in Linux and is sequentially consistent here.
 * Suffixes (_relaxed, _acquire, _release) say otherwise.
 */
#ifndef ANYVERBS_ASM_ATOMIC_H
#define ANYVERBS_ASM_ATOMIC_H

#include <asm/barrier.h>
#include <linux/compiler.h>
#include <linux/types.h>

#define ATOMIC_INIT(n) { (n) }
#define ATOMIC64_INIT(n) { (n) }
#define ATOMIC_LONG_INIT(n) { (n) }

#define ANYVERBS_ATOMIC_PLAIN(name, atomic, number)                                                \
	static inline number name##_read(const atomic *v)                                          \
	{                                                                                          \
		return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);                             \
	}                                                                                          \
	static inline number name##_read_acquire(const atomic *v)                                  \
	{                                                                                          \
		return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);                             \
	}                                                                                          \
	static inline void name##_set(atomic *v, number n)                                         \
	{                                                                                          \
		__atomic_store_n(&v->counter, n, __ATOMIC_RELAXED);                                \
	}                                                                                          \
	static inline void name##_set_release(atomic *v, number n)                                 \
	{                                                                                          \
		__atomic_store_n(&v->counter, n, __ATOMIC_RELEASE);                                \
	}                                                                                          \
	static inline void name##_add(number n, atomic *v)                                         \
	{                                                                                          \
		__atomic_fetch_add(&v->counter, n, __ATOMIC_RELAXED);                              \
	}                                                                                          \
	static inline void name##_sub(number n, atomic *v)                                         \
	{                                                                                          \
		__atomic_fetch_sub(&v->counter, n, __ATOMIC_RELAXED);                              \
	}                                                                                          \
	static inline void name##_inc(atomic *v)                                                   \
	{                                                                                          \
		name##_add(1, v);                                                                  \
	}                                                                                          \
	static inline void name##_dec(atomic *v)                                                   \
	{                                                                                          \
		name##_sub(1, v);                                                                  \
	}                                                                                          \
	static inline void name##_or(number n, atomic *v)                                          \
	{                                                                                          \
		__atomic_fetch_or(&v->counter, n, __ATOMIC_RELAXED);                               \
	}                                                                                          \
	static inline void name##_and(number n, atomic *v)                                         \
	{                                                                                          \
		__atomic_fetch_and(&v->counter, n, __ATOMIC_RELAXED);                              \
	}

/* _return: the new value; fetch_: the old one; _and_test, _negative: of the new one. */
#define ANYVERBS_ATOMIC_ORDERED(name, atomic, number)                                              \
	static inline number name##_add_return(number n, atomic *v)                                \
	{                                                                                          \
		return __atomic_add_fetch(&v->counter, n, __ATOMIC_SEQ_CST);                       \
	}                                                                                          \
	static inline number name##_sub_return(number n, atomic *v)                                \
	{                                                                                          \
		return __atomic_sub_fetch(&v->counter, n, __ATOMIC_SEQ_CST);                       \
	}                                                                                          \
	static inline number name##_inc_return(atomic *v)                                          \
	{                                                                                          \
		return name##_add_return(1, v);                                                    \
	}                                                                                          \
	static inline number name##_dec_return(atomic *v)                                          \
	{                                                                                          \
		return name##_sub_return(1, v);                                                    \
	}                                                                                          \
	static inline number name##_fetch_add(number n, atomic *v)                                 \
	{                                                                                          \
		return __atomic_fetch_add(&v->counter, n, __ATOMIC_SEQ_CST);                       \
	}                                                                                          \
	static inline number name##_fetch_sub(number n, atomic *v)                                 \
	{                                                                                          \
		return __atomic_fetch_sub(&v->counter, n, __ATOMIC_SEQ_CST);                       \
	}                                                                                          \
	static inline bool name##_sub_and_test(number n, atomic *v)                                \
	{                                                                                          \
		return name##_sub_return(n, v) == 0;                                               \
	}                                                                                          \
	static inline bool name##_dec_and_test(atomic *v)                                          \
	{                                                                                          \
		return name##_sub_return(1, v) == 0;                                               \
	}                                                                                          \
	static inline bool name##_inc_and_test(atomic *v)                                          \
	{                                                                                          \
		return name##_add_return(1, v) == 0;                                               \
	}                                                                                          \
	static inline bool name##_add_negative(number n, atomic *v)                                \
	{                                                                                          \
		return name##_add_return(n, v) < 0;                                                \
	}

/* cmpxchg returns what it found; try_cmpxchg whether it stored, and what it found by `old`. */
#define ANYVERBS_ATOMIC_COMPARE(name, atomic, number)                                              \
	static inline number name##_xchg(atomic *v, number n)                                      \
	{                                                                                          \
		return __atomic_exchange_n(&v->counter, n, __ATOMIC_SEQ_CST);                      \
	}                                                                                          \
	static inline bool name##_try_cmpxchg(atomic *v, number *old, number n)                    \
	{                                                                                          \
		return __atomic_compare_exchange_n(&v->counter, old, n, false, __ATOMIC_SEQ_CST,   \
						   __ATOMIC_SEQ_CST);                              \
	}                                                                                          \
	static inline number name##_cmpxchg(atomic *v, number old, number n)                       \
	{                                                                                          \
		name##_try_cmpxchg(v, &old, n);                                                    \
		return old;                                                                        \
	}                                                                                          \
	/* Adds unless the value is `unless`; returns whether it added. */                         \
	static inline bool name##_add_unless(atomic *v, number n, number unless)                   \
	{                                                                                          \
		number old = name##_read(v);                                                       \
		while (old != unless)                                                              \
			if (name##_try_cmpxchg(v, &old, old + n))                                  \
				return true;                                                       \
		return false;                                                                      \
	}                                                                                          \
	static inline bool name##_inc_not_zero(atomic *v)                                          \
	{                                                                                          \
		return name##_add_unless(v, 1, 0);                                                 \
	}                                                                                          \
	/* Returns the value less 1, which it stored if that is not negative. */                   \
	static inline number name##_dec_if_positive(atomic *v)                                     \
	{                                                                                          \
		number old = name##_read(v);                                                       \
		while (old > 0 && !name##_try_cmpxchg(v, &old, old - 1))                           \
			;                                                                          \
		return old - 1;                                                                    \
	}

#define ANYVERBS_ATOMIC(name, atomic, number)                                                      \
	ANYVERBS_ATOMIC_PLAIN(name, atomic, number)                                                \
	ANYVERBS_ATOMIC_ORDERED(name, atomic, number)                                              \
	ANYVERBS_ATOMIC_COMPARE(name, atomic, number)

ANYVERBS_ATOMIC(atomic, atomic_t, int)
ANYVERBS_ATOMIC(atomic64, atomic64_t, long)
ANYVERBS_ATOMIC(atomic_long, atomic_long_t, long)

/* Of any integer or pointer. */
#define xchg(pointer, value) __atomic_exchange_n(pointer, value, __ATOMIC_SEQ_CST)
#define cmpxchg(pointer, old, value)                                                               \
	({                                                                                         \
		__typeof__(*(pointer)) anyverbs_old = (old);                                       \
		__atomic_compare_exchange_n(pointer, &anyverbs_old, value, false,                  \
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
		anyverbs_old;                                                                      \
	})

#endif
