/* counters.h: what the counters of a process mean. */
#ifndef ANYVERBS_COUNTERS_H
#define ANYVERBS_COUNTERS_H

#include "path/path.h"

/* Tells whether the counter counts packets or messages that were dropped. */
bool counter_is_drop(u32 counter);
/* One line that says what it counts. */
const char *counter_meaning(u32 counter);
/* The sum of all drops. */
u64 counter_drops(const u64 counters[PATH_COUNTERS]);

#endif
