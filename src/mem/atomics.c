/* atomics.c: the two 8-byte atomics of verbs, on memory that processors and peers change too.
 *
 * In:    an aligned address that mem_remote allowed     Out: the original value
 * Runs:  the responder                                  Locks: none
 */
#include "mem/mem.h"

u64 mem_compare_swap(u64 *addr, u64 compare, u64 swap)
{
	/* A failure overwrites `compare` by what was there; on success that is what was there. */
	__atomic_compare_exchange_n(addr, &compare, swap, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return compare;
}

u64 mem_fetch_add(u64 *addr, u64 add)
{
	return __atomic_fetch_add(addr, add, __ATOMIC_SEQ_CST);
}
