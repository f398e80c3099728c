/* event_priv.h: what channels and async queues share. */
#ifndef EVENT_EVENT_PRIV_H
#define EVENT_EVENT_PRIV_H

#include "event/event.h"

/* A *tally* is a close-on-exec descriptor that counts events and is readable while the count is
 * not 0. It belongs to the user as much as to us: he may make it O_NONBLOCK or not, and poll it.
 * Whoever keeps a count of his own changes both under one lock. */

/* A descriptor, initially blocking, or a negative errno. */
int tally_open(void);
/* Counts one up, which wakes whoever polls. Never blocks. */
void tally_add(int fd);
/* Counts `n` down as far as there is something; never blocks, whatever the descriptor's flags. */
void tally_take(int fd, u32 n);
/* In a forked child: puts a descriptor of the child's own, with this count, in the place of the one
 * that it shares with the parent. Keeps the descriptor's flags. */
void tally_renew(int fd, u32 count);

/* Something that event_drop_in_child must put in order in a forked child. Embedded in its owner. */
struct fork_watch {
	void (*drop)(struct fork_watch *w) FIXED; /* runs in the child, as its only thread */
	struct fork_slot *slot FIXED;
};

/* 0 or -ENOMEM. Takes no lock: fork may come at any moment, and holds nothing up. */
int fork_watch_add(struct fork_watch *w, void (*drop)(struct fork_watch *w));
void fork_watch_remove(struct fork_watch *w);
/* The vectors' part of event_drop_in_child. */
void vector_drop_in_child(void);

#endif
