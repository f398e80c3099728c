/* tally.h: what descriptors that tell of events are made of: tallies, and the reset of their owners
 * in a forked child.
 */
#ifndef EVENT_TALLY_H
#define EVENT_TALLY_H

#include "base/compiler.h"
#include "base/lock.h"

/* A *tally* is a close-on-exec descriptor that counts events and is readable while the count is not
 * 0. The user has it, too: the user may set or clear O_NONBLOCK and poll it. An owner that keeps a
 * count of its own changes both under one lock. */

struct tally {
	int fd FIXED;	/* the user's: it may close it, and open something else at its number */
	int twin FIXED; /* a descriptor of the same open file that the user does not know; -1 */
};

/* Opens one, initially blocking: 0 or a negative errno. */
int tally_open(struct tally *t);
/* Closes both descriptors. A number that the user has closed stays whatever it is now. */
void tally_close(struct tally *t);
/* Increments the count, which wakes threads that poll. Never blocks. Once the user has closed its
 * descriptor this has no effect. */
void tally_add(const struct tally *t);
/* Decrements the count by `n`, down to 0; never blocks, whatever the descriptor's flags. */
void tally_take(const struct tally *t, u32 n);
/* In a forked child: replaces the descriptors that it shares with the parent by some of its own,
 * with this count. Keeps the numbers and the flags. */
void tally_renew(const struct tally *t, u32 count);

/* An object that atfork_drop_events resets in a forked child. Embedded in its owner. */
struct atfork_watch {
	void (*drop)(struct atfork_watch *w) FIXED; /* runs in the child, as its only thread */
	struct atfork_slot *slot FIXED;
};

/* 0 or -ENOMEM. Takes no lock: fork may come at any time, and is never delayed. */
int atfork_watch_add(struct atfork_watch *w, void (*drop)(struct atfork_watch *w));
void atfork_watch_remove(struct atfork_watch *w);

#endif
