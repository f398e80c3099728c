/* mapped.h: tells whether a long range is mapped. */
#ifndef MEM_MAPPED_H
#define MEM_MAPPED_H

#include "base/compiler.h"

/* Tells whether [start, end) is anonymous memory of this process, readable, and writable if `write`
 * is set. False also if that is unknown. Takes no longer for a longer range. */
bool mem_is_mapped(u64 start, u64 end, bool write);

#endif
