/* compiler.h: hints to the compiler, and clang's thread-safety annotations.
 * The annotations say which lock guards a field and which a function needs; `-Werror=thread-safety`
 * checks them.
 */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#include <anyverbs/kernel.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CACHE_LINE 64
#define CACHE_ALIGNED __attribute__((aligned(CACHE_LINE)))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
/* A slow path: the fast path shall not pay for its registers and stack. */
#define NOINLINE __attribute__((noinline))
/* The fast path: one piece of code even if it has other callers. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define MUST_CHECK __attribute__((warn_unused_result))
/* fn(&variable) runs at the end of the variable's scope; in a file that is built with -fexceptions
 * also when the thread is cancelled inside. */
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#ifdef __clang__
#define TSA(x) __attribute__((x))
#else
#define TSA(x)
#endif
#define CAPABILITY(name) TSA(capability(name))
/* Held by nobody, ever: see ATOMIC_ONLY. */
struct CAPABILITY("rule") access_rule;
extern struct access_rule only_atomic;
/* Takes the lock's bare name; the capability itself is its address, as the functions of lock.h
 * name it. */
#define GUARDED_BY(l) TSA(guarded_by(&l))
#define PT_GUARDED_BY(l) TSA(pt_guarded_by(&l))
/* Marks of fields that no single lock of the same struct guards (docs/locking.md). scripts/check
 * requires a mark at each field of a struct, or one behind its closing brace for all of them.
 * ATOMIC_ONLY: touched by atomic operations only; clang refuses anything else.
 * FIXED: set before anybody else sees the object, and never again.
 * WRITTEN_UNDER: written under all of these locks, so that each of them is enough for reading.
 * OWNED_BY: one thread at a time has it: under a lock of another struct, named struct.lock, or by
 * being the thread that the mark names.
 * GUARDS_ITSELF: its type's own functions see to that.
 * At a lock, ONE_AT_A_TIME: it guards what its section does, and no field. */
#define ATOMIC_ONLY TSA(guarded_by(&only_atomic))
#define FIXED
#define WRITTEN_UNDER(...)
#define OWNED_BY(...)
#define GUARDS_ITSELF
#define ONE_AT_A_TIME
/* The order of two locks of one struct; that of others stands in docs/locking.md. */
#define ACQUIRED_AFTER(l) TSA(acquired_after(&l))
#define ACQUIRED_BEFORE(l) TSA(acquired_before(&l))
#define ACQUIRE(...) TSA(acquire_capability(__VA_ARGS__))
#define RELEASE(...) TSA(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TSA(try_acquire_capability(__VA_ARGS__))
#define REQUIRES(...) TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TSA(locks_excluded(__VA_ARGS__))
/* For the few places where the analysis cannot follow (locks chosen at run time, two objects of
 * one class). Say why. */
#define NO_THREAD_SAFETY TSA(no_thread_safety_analysis)

/* Tells the processor that this is a spin loop. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	__asm__ __volatile__("" ::: "memory");
#endif
}

#endif
