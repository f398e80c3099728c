/* fork.c: the one pair of fork handlers of a library: runs the parts by rank.
 * In:    parts, from constructors    Out: locks held across a fork, or made anew in the child
 * Runs:  the forking thread; the child's only thread
 * Locks: fork_all.lock, from before the first part to behind the last
 */
#include "base/fork.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
	struct lock lock;
	struct list_head parts GUARDED_BY(lock); /* by rank */
	bool watched FIXED; /* set by the constructor */
	u32 forks FIXED;    /* fork_mark.forks of this process; a child has one thread */
} fork_all = { .parts = LIST_HEAD_INIT(fork_all.parts) };

void fork_add(struct fork_part *part)
{
	struct list_head *at;

	lock_acquire(&fork_all.lock);
	at = &fork_all.parts;
	while (at->prev != &fork_all.parts &&
	       list_entry(at->prev, struct fork_part, node)->rank > part->rank)
		at = at->prev;
	list_push_back(at, &part->node);
	lock_release(&fork_all.lock);
}

bool fork_is_watched(void)
{
	return fork_all.watched;
}

struct fork_mark fork_mark_here(void)
{
	return (struct fork_mark){ getpid(), fork_all.forks };
}

bool fork_is_marked_here(const struct fork_mark *mark)
{
	return mark->pid == getpid() && mark->forks == fork_all.forks;
}

static void fork_call(void (*fn)(void))
{
	if (fn != NULL)
		fn();
}

/* NO_THREAD_SAFETY, here and below: locks chosen at run time, held from here to the handlers behind
 * the fork. */
static void fork_before(void) NO_THREAD_SAFETY
{
	lock_acquire(&fork_all.lock);
	list_for_each(part, &fork_all.parts, struct fork_part, node) {
		if (part->takes)
			lock_acquire(part->lock);
		fork_call(part->before);
	}
}

static void fork_after(void) NO_THREAD_SAFETY
{
	for (struct list_head *at = fork_all.parts.prev; at != &fork_all.parts; at = at->prev) {
		struct fork_part *part = list_entry(at, struct fork_part, node);

		fork_call(part->after);
		if (part->takes)
			lock_release(part->lock);
	}
	lock_release(&fork_all.lock);
}

static void fork_child(void) NO_THREAD_SAFETY
{
	fork_all.forks++;
	for (struct list_head *at = fork_all.parts.prev; at != &fork_all.parts; at = at->prev) {
		struct fork_part *part = list_entry(at, struct fork_part, node);

		if (part->lock != NULL && !part->takes)
			lock_init(part->lock);
		fork_call(part->child);
		if (part->takes)
			lock_release(part->lock);
	}
	lock_release(&fork_all.lock);
}

/* Handlers that run before a fork run from the last that was registered to the first. An allocator
 * may have some that take its locks: it registers them when it is first called, and then ours,
 * whose locks other threads hold while they allocate, run before them. */
__attribute__((constructor)) static void fork_watch(void)
{
	void *volatile first = malloc(1);

	free(first);
	fork_all.watched = pthread_atfork(fork_before, fork_after, fork_child) == 0;
}
