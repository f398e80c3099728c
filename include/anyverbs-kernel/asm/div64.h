/* div64.h: division of 64-bit integers. */
#ifndef ANYVERBS_ASM_DIV64_H
#define ANYVERBS_ASM_DIV64_H

/* Divides the u64 variable; its new value is the quotient, the result is the rest. */
#define do_div(n, by)                                                                              \
	({                                                                                         \
		u32 anyverbs_by = (by);                                                            \
		u32 anyverbs_rest = (u32)((n) % anyverbs_by);                                      \
		(n) /= anyverbs_by;                                                                \
		anyverbs_rest;                                                                     \
	})

#endif
