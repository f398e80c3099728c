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

#endif
