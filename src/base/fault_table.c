/* fault_table.c: copies by instructions of our own, and the table that says where they land.
 *
 * In:    memory that may have gone    Out: bytes moved, or -EFAULT
 * Runs:  any thread; fault_recover in a signal handler      Locks: none
 *
 * Long copies are the C library's memmove, which knows each processor's best way. Its instructions
 * are in no table of ours, so fault_move leaves word in its thread where to land, and what is
 * copied.
 */
#include "base/fault_priv.h"

#ifndef FAULT_BY_JUMP

#include <string.h>
#include <ucontext.h>

enum {
	FAULT_MEDIUM = 128, /* bytes up to which registers hold all */
	/* memmove's stack at most; a signal frame, behind which a handler of the program runs that
	 * has interrupted us, is larger */
	FAULT_STACK = 1024,
};

#define FAULT_ADDRESSES (1ull << 47) /* of a program */

/* A line of the table; each number is a distance from itself. */
struct fault_entry {
	s32 begin, end, landing;
} FIXED;

/* The linker's names for the section's ends. */
extern const struct fault_entry __start_fault_table[] __attribute__((visibility("hidden")));
extern const struct fault_entry __stop_fault_table[] __attribute__((visibility("hidden")));

/* fault_move is under way in this thread while sp is not 0. The assembler below knows the order. */
struct fault_move_state {
	u64 sp; /* to land with */
	u64 to, from, n;
} OWNED_BY(its thread and the signal handlers in it);

__thread struct fault_move_state fault_moving;
void *(*fault_memmove)(void *, const void *, size_t) = memmove;

int fault_move(void *to, const void *from, size_t n);
void fault_move_gone(void);

/* Seven registers are pushed so that the stack is aligned for the call. */
__asm__(".pushsection .text\n"
	".balign 16\n"
	".globl fault_move, fault_move_gone\n"
	".hidden fault_move, fault_move_gone\n"
	".type fault_move, @function\n"
	"fault_move:\n"
	".cfi_startproc\n"
	"pushq %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"
	"pushq %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
	"pushq %r12\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r12, 0\n"
	"pushq %r13\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r13, 0\n"
	"pushq %r14\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r14, 0\n"
	"pushq %r15\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r15, 0\n"
	"subq $8, %rsp\n .cfi_adjust_cfa_offset 8\n"
	"movq fault_moving@gottpoff(%rip), %rbx\n"
	"movq %rdi, %fs:8(%rbx)\n"
	"movq %rsi, %fs:16(%rbx)\n"
	"movq %rdx, %fs:24(%rbx)\n"
	"movq %rsp, %fs:(%rbx)\n"
	"call *fault_memmove(%rip)\n"
	"movq $0, %fs:(%rbx)\n"
	"xorl %eax, %eax\n"
	"1:\n"
	".cfi_remember_state\n"
	"addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
	"popq %r15\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r15\n"
	"popq %r14\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r14\n"
	"popq %r13\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r13\n"
	"popq %r12\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r12\n"
	"popq %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"
	"popq %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
	"ret\n"
	"fault_move_gone:\n"
	".cfi_restore_state\n"
	"cld\n"
	"movl $-14, %eax\n"
	"jmp 1b\n"
	".cfi_endproc\n"
	".size fault_move, . - fault_move\n"
	".popsection\n");
_Static_assert(EFAULT == 14, "fault_move_gone returns it");

/* 33 to 64 bytes. */
static inline bool fault_copy_64(void *to, const void *from, size_t n)
{
	__asm__ goto("661: movdqu (%[src]), %%xmm0\n"
		     "movdqu 16(%[src]), %%xmm1\n"
		     "movdqu -32(%[src],%[count]), %%xmm2\n"
		     "movdqu -16(%[src],%[count]), %%xmm3\n"
		     "movdqu %%xmm0, (%[dst])\n"
		     "movdqu %%xmm1, 16(%[dst])\n"
		     "movdqu %%xmm2, -32(%[dst],%[count])\n"
		     "movdqu %%xmm3, -16(%[dst],%[count])\n"
		     FAULT_ENTRY("%l[gone]")
		     :
		     : [dst] "r"(to), [src] "r"(from), [count] "r"(n)
		     : "memory", "xmm0", "xmm1", "xmm2", "xmm3"
		     : gone);
	return true;
gone: FAULT_COLD;
	return false;
}

/* 65 to 128 bytes. */
static inline bool fault_copy_128(void *to, const void *from, size_t n)
{
	__asm__ goto("661: movdqu (%[src]), %%xmm0\n"
		     "movdqu 16(%[src]), %%xmm1\n"
		     "movdqu 32(%[src]), %%xmm2\n"
		     "movdqu 48(%[src]), %%xmm3\n"
		     "movdqu -64(%[src],%[count]), %%xmm4\n"
		     "movdqu -48(%[src],%[count]), %%xmm5\n"
		     "movdqu -32(%[src],%[count]), %%xmm6\n"
		     "movdqu -16(%[src],%[count]), %%xmm7\n"
		     "movdqu %%xmm0, (%[dst])\n"
		     "movdqu %%xmm1, 16(%[dst])\n"
		     "movdqu %%xmm2, 32(%[dst])\n"
		     "movdqu %%xmm3, 48(%[dst])\n"
		     "movdqu %%xmm4, -64(%[dst],%[count])\n"
		     "movdqu %%xmm5, -48(%[dst],%[count])\n"
		     "movdqu %%xmm6, -32(%[dst],%[count])\n"
		     "movdqu %%xmm7, -16(%[dst],%[count])\n"
		     FAULT_ENTRY("%l[gone]")
		     :
		     : [dst] "r"(to), [src] "r"(from), [count] "r"(n)
		     : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"
		     : gone);
	return true;
gone: FAULT_COLD;
	return false;
}

int fault_copy(void *to, const void *from, size_t n)
{
	bool done;

	if (n > FAULT_MEDIUM)
		return fault_move(to, from, n);
	if (n > FAULT_MEDIUM / 2)
		done = fault_copy_128(to, from, n);
	else if (n > SMALL_COPY_MAX)
		done = fault_copy_64(to, from, n);
	else
		done = fault_small_copy(to, from, (u32)n);
	return done ? 0 : -EFAULT;
}

void fault_use_memmove(void *(*memmove_of_libc)(void *, const void *, size_t))
{
	__atomic_store_n(&fault_memmove, memmove_of_libc, __ATOMIC_RELAXED);
}

static u64 fault_resolve(const s32 *distance)
{
	return (u64)(uintptr_t)distance + (u64)(s64)*distance;
}

/* Where to go on behind the instruction at `pc`; 0: it is none of ours. */
static u64 fault_landing(u64 pc)
{
	for (const struct fault_entry *e = __start_fault_table; e != __stop_fault_table; e++)
		if (pc >= fault_resolve(&e->begin) && pc < fault_resolve(&e->end))
			return fault_resolve(&e->landing);
	return 0;
}

/* An address that no page can have: the processor does not say which one it was (0). */
static bool fault_is_no_address(u64 at, u64 n)
{
	return at + n > FAULT_ADDRESSES || at + n < at;
}

/* Is it memmove, called by fault_move, that has met `address`? */
static bool fault_is_move(const struct fault_move_state *m, u64 sp, u64 address)
{
	return m->sp != 0 && m->sp - sp <= FAULT_STACK &&
	       (address - m->to < m->n || address - m->from < m->n ||
		(address == 0 && (fault_is_no_address(m->to, m->n) ||
				  fault_is_no_address(m->from, m->n))));
}

bool fault_recover(void *context, u64 address)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	u64 landing = fault_landing((u64)r[REG_RIP]);

	if (landing == 0 && fault_is_move(&fault_moving, (u64)r[REG_RSP], address)) {
		landing = (u64)(uintptr_t)fault_move_gone;
		r[REG_RSP] = (greg_t)fault_moving.sp;
		fault_moving.sp = 0;
	}
	if (landing == 0)
		return false;
	r[REG_RIP] = (greg_t)landing;
	return true;
}

#endif
