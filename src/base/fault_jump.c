/* fault_jump.c: the same copies for other processors, and under sanitizers, which want to see every
 * access: each leaves word where to jump to if it faults.
 *
 * In:    memory that may have gone    Out: bytes moved, or a word that it has
 * Runs:  any thread; fault_recover in a signal handler      Locks: none
 */
#include "base/fault_priv.h"

#ifdef FAULT_BY_JUMP

#include <setjmp.h>

/* The memory that this thread touches while `back` is not NULL. */
struct fault_touch {
	sigjmp_buf *back;
	u64 to, from, n;
} OWNED_BY(its thread and the signal handlers in it);

static __thread volatile struct fault_touch fault_touching;

static void fault_begin(sigjmp_buf *back, const void *to, const void *from, size_t n)
{
	fault_touching.to = (uintptr_t)to;
	fault_touching.from = (uintptr_t)from;
	fault_touching.n = n;
	fault_touching.back = back;
	__asm__ __volatile__("" ::: "memory");
}

static bool fault_end(bool done)
{
	__asm__ __volatile__("" ::: "memory");
	fault_touching.back = NULL;
	return done;
}

/* The signal mask need not be saved: the handler blocks nothing. Of zero bytes either pointer may
 * be NULL, which memmove does not allow. */
int fault_copy(void *to, const void *from, size_t n)
{
	sigjmp_buf back;

	if (n == 0)
		return 0;
	if (sigsetjmp(back, 0) != 0) {
		fault_end(false);
		return -EFAULT;
	}
	fault_begin(&back, to, from, n);
	memmove(to, from, n);
	fault_end(true);
	return 0;
}

bool fault_copy_u64(void *to, const void *from)
{
	sigjmp_buf back;
	u64 word;

	if (sigsetjmp(back, 0) != 0)
		return fault_end(false);
	fault_begin(&back, to, from, sizeof(word));
	memcpy(&word, from, sizeof(word));
	__atomic_store_n((u64 *)to, word, __ATOMIC_RELEASE);
	return fault_end(true);
}

bool fault_copy_u8(void *to, const void *from)
{
	sigjmp_buf back;

	if (sigsetjmp(back, 0) != 0)
		return fault_end(false);
	fault_begin(&back, to, from, sizeof(u8));
	__atomic_store_n((u8 *)to, *(const u8 *)from, __ATOMIC_RELEASE);
	return fault_end(true);
}

bool fault_compare_swap(u64 *at, u64 compare, u64 swap, u64 *before)
{
	sigjmp_buf back;
	u64 was = compare;

	if (sigsetjmp(back, 0) != 0)
		return fault_end(false);
	fault_begin(&back, at, at, sizeof(*at));
	/* A failure overwrites it by what was there; on success that is what was there. */
	__atomic_compare_exchange_n(at, &was, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	*before = was;
	return fault_end(true);
}

bool fault_fetch_add(u64 *at, u64 add, u64 *before)
{
	sigjmp_buf back;

	if (sigsetjmp(back, 0) != 0)
		return fault_end(false);
	fault_begin(&back, at, at, sizeof(*at));
	*before = __atomic_fetch_add(at, add, __ATOMIC_SEQ_CST);
	return fault_end(true);
}

void fault_use_memmove(void *(*memmove_of_libc)(void *, const void *, size_t)) {}

bool fault_recover(void *context, u64 address)
{
	volatile struct fault_touch *t = &fault_touching;

	if (t->back == NULL || (address - t->to >= t->n && address - t->from >= t->n))
		return false;
	siglongjmp(*t->back, 1);
}

#endif
