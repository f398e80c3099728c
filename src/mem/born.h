/* born.h: memory that is *born shared*: private anonymous memory in the application's eyes, but of
 * the process' memory file (adopt.h) from the beginning, so that a registration need not move it
 * and peers reach it whatever threads there are. docs/adoption.md says what holds for it.
 *
 * All of it lies in the *arena*, a range of addresses reserved at the start, which is region 0 of
 * adoption: an address has the same place in the file for ever. Pages that nobody has are not
 * mapped. tools/born puts it under malloc and mmap; without that library there is no arena.
 *
 * Lengths and addresses are whole pages where nothing else is said. Functions may be called by any
 * thread, but not from a signal handler, as malloc.
 */
#ifndef MEM_BORN_H
#define MEM_BORN_H

#include "base/compiler.h"

enum {
	BORN_FROM = 64 << 10, /* shorter memory is not worth a map of its own */
	/* its region's number: no other has that one while there is an arena */
	BORN_REGION = 0,
};

/* Reserves the arena, once, before the first thread. False: there will be none. */
AV_EXPORT bool born_begin(void);
/* Where it lies; the same until the end. Both 0: nowhere. */
AV_EXPORT void born_bounds(u64 *base, u64 *end);
/* Fresh zeroed memory, readable and writable; alignment is a power of 2, or 0. NULL: there is none
 * here, try elsewhere. `length` (any) is what born_length answers if it is a block, which malloc
 * gives out, and not a map. */
AV_EXPORT void *born_alloc(u64 length, u64 alignment, bool block);
/* Of the block that begins there; 0: none does. */
AV_EXPORT u64 born_length(const void *p);
/* The block ends. False: there is none. */
AV_EXPORT bool born_free(void *p);
/* The block that begins at `p` has `length` (any, not 0) from now on; false: not where it is. */
AV_EXPORT bool born_resize(const void *p, u64 length);
/* What munmap does, to a range within the arena. */
AV_EXPORT void born_unmap(u64 addr, u64 length);
/* mremap, to a range that begins in the arena. Returns the new address, or a negative errno;
 * -ENOSYS: it is not born memory, the kernel is to do it. */
AV_EXPORT s64 born_remap(u64 addr, u64 length, u64 wanted, int flags, u64 target);
/* mremap of other memory to an address whose range touches the arena. */
AV_EXPORT s64 born_move_onto(u64 from, u64 length, u64 wanted, int flags, u64 addr);
/* mmap with MAP_FIXED or MAP_FIXED_NOREPLACE over a range that touches the arena: likewise. */
AV_EXPORT s64 born_put(u64 addr, u64 length, int prot, int flags, int fd, s64 offset);
/* madvise, to a range that touches the arena: 0 or likewise. */
AV_EXPORT int born_advise(u64 addr, u64 length, int advice);
/* A limit now counts addresses, or all memory is being locked: what is reserved and not in use goes
 * back to the kernel, and new memory is ordinary. What there is stays born. */
AV_EXPORT void born_retire(void);
/* This thread is inside one of these functions, or wants ordinary memory. */
AV_EXPORT bool born_is_busy(void);

/* Ordinary memory for this thread, until it is set back to what it was before (the result). */
bool born_set_busy(bool busy);
/* Is all of [addr, addr + length), any numbers, born memory of the file? */
bool born_has(u64 addr, u64 length);
/* Around a fork: no page of the arena changes hands meanwhile. Also where there is no arena. */
void born_fork_begin(void);
void born_fork_end(bool child);

#endif
