/* queue_memory.c: asks an application's allocator for the memory of a queue.
 * In: sizes    Out: memory    Runs: threads that create and resize queues    Locks: none
 */
#include "base/queue_memory.h"

#include <errno.h>

#include "base/line.h"

int queue_memory_get(const struct queue_memory *m, size_t bytes, enum queue_kind kind, void **out)
{
	void *memory = m == NULL ? QUEUE_MEMORY_OWN : m->get(m, bytes, CACHE_LINE, kind);

	if (memory == NULL)
		return -ENOMEM;
	if (memory != QUEUE_MEMORY_OWN && (uintptr_t)memory % CACHE_LINE != 0) {
		queue_memory_put(m, memory, kind);
		return -EINVAL;
	}
	*out = memory == QUEUE_MEMORY_OWN ? NULL : memory;
	return 0;
}
