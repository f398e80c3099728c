/* fault.h: copies and stores that answer EFAULT where memory of the application has gone.
 *
 * An adapter pins what is registered; we cannot, so a program may unmap or protect registered
 * memory under us. Each instruction of ours that touches such memory has an entry in a table, as in
 * the Linux kernel: where it begins and ends, and where to go on if it faults. A handler of SIGSEGV
 * and SIGBUS looks the faulting instruction up there; every other fault is the program's.
 * docs/faults.md says what programs notice of it.
 *
 * None of these functions blocks. All may run in any thread, but on the same memory as anybody.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <errno.h>
#include <signal.h>

#include "base/small_copy.h"

/* Installs the handlers, once. From then on the functions below survive. Blocks (bounded). */
AV_EXPORT void fault_guard(void);
/* As sigaction(2) for SIGSEGV or SIGBUS in the program's eyes: our handlers stay first and hand
 * over to the program's. -1 and errno. */
int fault_program_action(int number, const struct sigaction *act, struct sigaction *old);

/* Copies n bytes; the ranges may overlap. 0, or -EFAULT: some of them may have been copied. */
AV_EXPORT int fault_copy(void *to, const void *from, size_t n) MUST_CHECK;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAULT_BY_JUMP 1
#endif
#endif
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAULT_BY_JUMP 1 /* fault_jump.c: no instructions of our own, but sigsetjmp before each */
#endif

#ifdef FAULT_BY_JUMP

/* Eight bytes or one, aligned at `to`: as one, and they release what went before. False: the memory
 * has gone. */
bool fault_copy_u64(void *to, const void *from) MUST_CHECK;
bool fault_copy_u8(void *to, const void *from) MUST_CHECK;
/* Atomic, in one order with all others. *before: what was there. */
bool fault_compare_swap(u64 *at, u64 compare, u64 swap, u64 *before) MUST_CHECK;
bool fault_fetch_add(u64 *at, u64 add, u64 *before) MUST_CHECK;

static inline bool MUST_CHECK fault_small_copy(void *to, const void *from, u32 n)
{
	return n == 0 || fault_copy(to, from, n) == 0;
}

#else

/* Code behind such a label is a slow path; clang knows no such attribute of a label. */
#ifdef __clang__
#define FAULT_COLD
#else
#define FAULT_COLD __attribute__((cold))
#endif

/* One line of the table: the instructions between labels 661 and 662 go on at `landing`. */
#define FAULT_ENTRY(landing)                                                                       \
	"662:\n"                                                                                   \
	".pushsection fault_table, \"a\"\n"                                                        \
	".balign 4\n"                                                                              \
	".long 661b - ., 662b - ., " landing " - .\n"                                              \
	".popsection\n"

/* The first and the last `size` bytes of n, both read before either is written. */
#define FAULT_COPY_ENDS(to, from, n, move, size, first, last, ...)                                 \
	__asm__ goto("661: " move " (%[src]), " first "\n"                                         \
		     move " -" #size "(%[src],%[count]), " last "\n"                               \
		     move " " first ", (%[dst])\n"                                                 \
		     move " " last ", -" #size "(%[dst],%[count])\n"                               \
		     FAULT_ENTRY("%l[gone]")                                                       \
		     :                                                                             \
		     : [dst] "r"(to), [src] "r"(from), [count] "r"((size_t)(n))                    \
		     : "memory", __VA_ARGS__                                                       \
		     : gone)

/* small_copy. False: the memory has gone. */
static ALWAYS_INLINE bool MUST_CHECK fault_small_copy(void *to, const void *from, u32 n)
{
	if (n >= 16)
		FAULT_COPY_ENDS(to, from, n, "movdqu", 16, "%%xmm0", "%%xmm1", "xmm0", "xmm1");
	else if (n >= 8)
		FAULT_COPY_ENDS(to, from, n, "movq", 8, "%%rax", "%%rdx", "rax", "rdx");
	else if (n >= 4)
		FAULT_COPY_ENDS(to, from, n, "movl", 4, "%%eax", "%%edx", "rax", "rdx");
	else if (n >= 2)
		FAULT_COPY_ENDS(to, from, n, "movw", 2, "%%ax", "%%dx", "rax", "rdx");
	else if (n == 1)
		FAULT_COPY_ENDS(to, from, n, "movb", 1, "%%al", "%%dl", "rax", "rdx");
	return true;
gone: FAULT_COLD;
	return false;
}

/* Eight bytes, aligned at `to`: as one, and they release what went before, as each store of this
 * processor does. False: the memory has gone.
 *
 * No result is an output of the assembler: gcc 12.2 loses those of asm goto (PR 113921). */
static ALWAYS_INLINE bool MUST_CHECK fault_copy_u64(void *to, const void *from)
{
	__asm__ goto("661: movq (%[src]), %%rax\n"
		     "movq %%rax, (%[dst])\n" FAULT_ENTRY("%l[gone]")
		     :
		     : [dst] "r"(to), [src] "r"(from)
		     : "memory", "rax"
		     : gone);
	return true;
gone: FAULT_COLD;
	return false;
}

static ALWAYS_INLINE bool MUST_CHECK fault_copy_u8(void *to, const void *from)
{
	__asm__ goto("661: movb (%[src]), %%al\n"
		     "movb %%al, (%[dst])\n" FAULT_ENTRY("%l[gone]")
		     :
		     : [dst] "r"(to), [src] "r"(from)
		     : "memory", "rax"
		     : gone);
	return true;
gone: FAULT_COLD;
	return false;
}

/* Atomic, in one order with all others. *before: what was there. False: the memory has gone. */
static ALWAYS_INLINE bool MUST_CHECK fault_compare_swap(u64 *at, u64 compare, u64 swap, u64 *before)
{
	*before = compare;
	__asm__ goto("movq (%[before]), %%rax\n"
		     "661: lock cmpxchgq %[swap], (%[at])\n" FAULT_ENTRY("%l[gone]")
		     "movq %%rax, (%[before])\n"
		     :
		     : [at] "r"(at), [swap] "r"(swap), [before] "r"(before)
		     : "memory", "cc", "rax"
		     : gone);
	return true;
gone: FAULT_COLD;
	return false;
}

static ALWAYS_INLINE bool MUST_CHECK fault_fetch_add(u64 *at, u64 add, u64 *before)
{
	*before = add;
	__asm__ goto("movq (%[before]), %%rax\n"
		     "661: lock xaddq %%rax, (%[at])\n" FAULT_ENTRY("%l[gone]")
		     "movq %%rax, (%[before])\n"
		     :
		     : [at] "r"(at), [before] "r"(before)
		     : "memory", "cc", "rax"
		     : gone);
	return true;
gone: FAULT_COLD;
	return false;
}

#endif

#endif
