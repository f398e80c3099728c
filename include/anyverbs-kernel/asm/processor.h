/* processor.h: waiting in a loop. */
#ifndef ANYVERBS_ASM_PROCESSOR_H
#define ANYVERBS_ASM_PROCESSOR_H

/* Once around a loop that waits for another thread: that thread may need the processor. */
#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#else
#define cpu_relax() __asm__ __volatile__("" ::: "memory")
#endif

#endif
