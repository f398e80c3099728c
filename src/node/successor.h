/* successor.h: replaces a node whose limit of descriptors is much lower than this process'. */
#ifndef NODE_SUCCESSOR_H
#define NODE_SUCCESSOR_H

#include "node/place.h"

enum {
	/* Descriptors with which a node serves as many processes as it takes (DAEMON_PROCS). A node
	 * that may have these is never replaced. */
	SUCCESSOR_ENOUGH = 65536,
	/* A successor may have so many times the descriptors of the node before it. */
	SUCCESSOR_FACTOR = 2,
};

/* The hard limit of descriptors of this process, which a node that it starts inherits. */
u64 successor_limit(void);
/* Tells whether a node that may have `limit` descriptors should replace one that may have `now`. */
bool successor_is_better(u64 limit, u64 now);
/* Judges the node at the other end of `control`, a new connection. 0: it stays, also because it
 * refuses. -ECONNRESET: it has ended, and a successor with this process' limit listens at the same
 * address, or any process can start one: connect again. Processes that were attached come back to
 * the successor, as after the death of a node. -ETIMEDOUT: no answer. May block. */
int successor_start(const char *name, enum place_scope scope, int control);

#endif
