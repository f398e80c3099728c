/* fork.c: resets channels, async queues and vectors in a forked child.
 *
 * In:    owners that watch for fork          Out: their drop functions, called in the child
 * Runs:  any thread; atfork_drop_events as the child's only thread
 * Locks: none: a lock could be held by a thread that the child does not have, and a handler that
 * takes one before fork could wait for a thread that waits for another handler's lock
 *
 * The slots form a list that only grows, by one atomic push; a slot without an owner is used again.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fork.h"
#include "event/event_priv.h"

struct atfork_slot {
	struct atfork_slot *next FIXED;
	/* NULL: free. Release when it is set, acquire in the child */
	struct atfork_watch *watch ATOMIC_ONLY;
};

static struct atfork_slot *atfork_slots;

/* Pairs with the release in atfork_slot_push: the slot is complete. */
static struct atfork_slot *atfork_first(void)
{
	return __atomic_load_n(&atfork_slots, __ATOMIC_ACQUIRE);
}

static struct atfork_slot *atfork_slot_reuse(struct atfork_watch *w)
{
	for (struct atfork_slot *slot = atfork_first(); slot; slot = slot->next) {
		struct atfork_watch *none = NULL;

		if (__atomic_compare_exchange_n(&slot->watch, &none, w, false, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED))
			return slot;
	}
	return NULL;
}

/* Pairs with the acquire in atfork_first. */
static struct atfork_slot *atfork_slot_push(struct atfork_watch *w)
	NO_THREAD_SAFETY /* the slot is not yet visible to other threads */
{
	struct atfork_slot *slot = malloc(sizeof(*slot));

	if (!slot)
		return NULL;
	slot->watch = w;
	slot->next = __atomic_load_n(&atfork_slots, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&atfork_slots, &slot->next, slot, false,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	return slot;
}

int atfork_watch_add(struct atfork_watch *w, void (*drop)(struct atfork_watch *w))
{
	w->drop = drop;
	w->slot = atfork_slot_reuse(w);
	if (!w->slot)
		w->slot = atfork_slot_push(w);
	return w->slot ? 0 : -ENOMEM;
}

void atfork_watch_remove(struct atfork_watch *w)
{
	__atomic_store_n(&w->slot->watch, NULL, __ATOMIC_RELEASE);
}

void atfork_drop_events(void)
{
	for (struct atfork_slot *slot = atfork_first(); slot; slot = slot->next) {
		struct atfork_watch *w = __atomic_load_n(&slot->watch, __ATOMIC_ACQUIRE);

		if (w)
			w->drop(w);
	}
}
FORK_HOOK(FORK_EVENTS, .child = atfork_drop_events);
