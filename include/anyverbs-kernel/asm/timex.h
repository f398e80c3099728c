/* timex.h: the processor's clock, x86-64's time stamp counter. Does not block. */
#ifndef ANYVERBS_ASM_TIMEX_H
#define ANYVERBS_ASM_TIMEX_H

typedef unsigned long long cycles_t;

static inline cycles_t get_cycles(void)
{
	return __builtin_ia32_rdtsc();
}

#endif
