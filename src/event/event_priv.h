/* event_priv.h: shared by channels and async queues. */
#ifndef EVENT_EVENT_PRIV_H
#define EVENT_EVENT_PRIV_H

#include "event/event.h"

/* A *tally* is a close-on-exec descriptor that counts events and is readable while the count is not
 * 0. The user has it, too: the user may set or clear O_NONBLOCK and poll it. An owner that keeps a
 * count of its own changes both under one lock. */

/* Opens one, initially blocking; or a negative errno. */
int tally_open(void);
/* Increments the count, which wakes threads that poll. Never blocks. */
void tally_add(int fd);
/* Decrements the count by `n`, down to 0; never blocks, whatever the descriptor's flags. */
void tally_take(int fd, u32 n);
/* In a forked child: replaces the descriptor that it shares with the parent by one of its own, with
 * this count. Keeps the number and the flags. */
void tally_renew(int fd, u32 count);

/* An object that atfork_drop_events resets in a forked child. Embedded in its owner. */
struct atfork_watch {
	void (*drop)(struct atfork_watch *w) FIXED; /* runs in the child, as its only thread */
	struct atfork_slot *slot FIXED;
};

/* 0 or -ENOMEM. Takes no lock: fork may come at any time, and is never delayed. */
int atfork_watch_add(struct atfork_watch *w, void (*drop)(struct atfork_watch *w));
void atfork_watch_remove(struct atfork_watch *w);
/* The vectors' part of atfork_drop_events. */
void vector_drop_in_child(void);

#endif
