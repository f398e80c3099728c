/* op_counter.h: how many operations have ended well, or how many bytes they moved, and how many
 * have failed.
 *
 * In: ends of operations    Out: two numbers    Runs: any thread    Locks: none
 */
#ifndef BASE_OP_COUNTER_H
#define BASE_OP_COUNTER_H

#include "base/compiler.h"

struct op_counter {
	u64 done ATOMIC_ONLY, failed ATOMIC_ONLY;
	bool counts_bytes FIXED; /* of what ended well; failures are counted one by one */
};

/* Release: whoever reads the number with acquire sees what the operation has written. */
static inline void op_counter_add(struct op_counter *c, bool ok, u32 bytes)
{
	if (ok)
		__atomic_fetch_add(&c->done, c->counts_bytes ? bytes : 1, __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(&c->failed, 1, __ATOMIC_RELEASE);
}

#endif
