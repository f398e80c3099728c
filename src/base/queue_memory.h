/* queue_memory.h: memory of an application's choice for the elements of a queue.
 * In: sizes    Out: memory, or that the queue takes its own
 * Runs: threads that create, resize and destroy queues    Locks: none, and none is held by a caller
 */
#ifndef BASE_QUEUE_MEMORY_H
#define BASE_QUEUE_MEMORY_H

#include "base/compiler.h"

enum queue_kind { QUEUE_SEND, QUEUE_RECV, QUEUE_SRQ, QUEUE_CQ };

/* Answer of queue_memory.get: the queue is to take memory of its own. */
#define QUEUE_MEMORY_OWN ((void *)-1)

/* Where queues take the memory for their elements. Both calls may block, and may call verbs. */
struct queue_memory {
	/* Returns `bytes` of memory at a multiple of `align`, QUEUE_MEMORY_OWN, or NULL: there is
	 * none. */
	void *(*get)(const struct queue_memory *m, size_t bytes, size_t align,
		     enum queue_kind kind);
	/* Takes back, once, what `get` has returned. */
	void (*put)(const struct queue_memory *m, void *memory, enum queue_kind kind);
} FIXED;

/* Asks `m` (NULL: nobody) for whole cache lines. *out is the memory, to be given back by
 * queue_memory_put, or NULL: the queue is to take its own. 0; -ENOMEM: there is none; -EINVAL: it
 * does not begin at a cache line, and was given back. */
int queue_memory_get(const struct queue_memory *m, size_t bytes, enum queue_kind kind, void **out);

static inline void queue_memory_put(const struct queue_memory *m, void *memory,
				    enum queue_kind kind)
{
	m->put(m, memory, kind);
}

#endif
