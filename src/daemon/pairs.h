/* pairs.h: the pairs of processes that share rings, by process number, since a pair outlives a
 * node. */
#ifndef DAEMON_PAIRS_H
#define DAEMON_PAIRS_H

#include "base/compiler.h"

enum { PAIRS_BUCKETS = 1024 };

struct pair {
	struct pair *next;
	u64 process[2]; /* the lesser first */
	bool known[2];	/* that process has confirmed the pair */
} OWNED_BY(the daemon);

/* How many pairs a process has: a CONNECT asks, and all pairs of a large node are too many to be
 * counted each time. */
struct pairs_tally {
	struct pairs_tally *next;
	u64 process;
	u32 count; /* not 0 */
} OWNED_BY(the daemon);

struct pairs {
	struct pair *bucket[PAIRS_BUCKETS];
	struct pairs_tally *tally[PAIRS_BUCKETS];
	u32 count;
} OWNED_BY(the daemon);

struct pair *pairs_find(struct pairs *p, u64 a, u64 b);
/* Returns the existing pair, or a new one that neither process has confirmed. NULL: no memory. */
struct pair *pairs_make(struct pairs *p, u64 a, u64 b);
void pairs_remove(struct pairs *p, u64 a, u64 b);
/* Returns the index of `process` in process[] and known[]. */
int pairs_end(const struct pair *pair, u64 process);
u32 pairs_count(struct pairs *p, u64 process);
/* Calls fn for each pair of `process` with the peer's number. fn may remove that pair. */
void pairs_each(struct pairs *p, u64 process, void (*fn)(struct pair *pair, u64 other, void *arg),
		void *arg);
void pairs_clear(struct pairs *p);

#endif
