/* fault_priv.h: between the handler of faults and the two kinds of copies: fault_table.c by a table
 * of instructions, fault_jump.c by sigsetjmp.
 */
#ifndef BASE_FAULT_PRIV_H
#define BASE_FAULT_PRIV_H

#include "base/fault.h"

/* A fault of the kernel's making (si_code > 0) at `address`. Was it one of our copies? Then it goes
 * on behind it when the handler returns. Called in the handler; fault_jump.c's does not return. */
bool fault_recover(void *context, u64 address);
/* The C library's own memmove, wherever the program's or a sanitizer's may stand in front. */
void fault_use_memmove(void *(*memmove_of_libc)(void *, const void *, size_t));

#endif
