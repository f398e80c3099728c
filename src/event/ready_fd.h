/* ready_fd.h: descriptors that are readable while events wait, and the reset of their owners in a
 * forked child.
 */
#ifndef EVENT_READY_FD_H
#define EVENT_READY_FD_H

#include "base/compiler.h"
#include "base/lock.h"

/* A *ready_fd* is a close-on-exec descriptor that counts events and is readable while the count is
 * not 0. The user has it, too: the user may set or clear O_NONBLOCK and poll it. An owner that
 * keeps a count of its own changes both under one lock. */

struct ready_fd {
	int fd FIXED;	/* the user's: it may close it, and open something else at its number */
	int twin FIXED; /* a descriptor of the same open file that the user does not know; -1 */
};

/* Opens one, initially blocking: 0 or a negative errno. */
int ready_fd_open(struct ready_fd *t);
/* Closes both descriptors. A number that the user has closed stays whatever it is now. */
void ready_fd_close(struct ready_fd *t);
/* Increments the count, which wakes threads that poll. Never blocks. Once the user has closed its
 * descriptor this has no effect. */
void ready_fd_add(const struct ready_fd *t);
/* Decrements the count by `n`, down to 0; never blocks, whatever the descriptor's flags. */
void ready_fd_take(const struct ready_fd *t, u32 n);
/* In a forked child: replaces the descriptors that it shares with the parent by some of its own,
 * with this count. Keeps the numbers and the flags. */
void ready_fd_renew(const struct ready_fd *t, u32 count);

/* An object that atfork_drop_events resets in a forked child. Embedded in its owner. */
struct atfork_watch {
	void (*drop)(struct atfork_watch *w) FIXED; /* runs in the child, as its only thread */
	struct atfork_slot *slot FIXED;
};

/* 0 or -ENOMEM. Takes no lock: fork may come at any time, and is never delayed. */
int atfork_watch_add(struct atfork_watch *w, void (*drop)(struct atfork_watch *w));
void atfork_watch_remove(struct atfork_watch *w);

#endif
