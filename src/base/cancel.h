/* cancel.h: the only cancellation points of the libraries.
 *
 * No verb is one but those that wait for an event: a thread that ended elsewhere would leave locks
 * held. In the shared libraries poll() and its kin are none (uncancelled.c).
 */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <poll.h>

#include "base/compiler.h"

/* As poll(), and a cancellation point: what the caller holds a cleanup handler gives back. */
int cancellable_poll(struct pollfd *p, nfds_t n, int timeout_ms);

/* Sleeps while *word == seen, as futex_sleep, and is a cancellation point. 0: look again, maybe for
 * no reason. -EINTR: a signal's handler has run that was installed without SA_RESTART; after one
 * with it the sleep goes on, as a read() does and poll() never. */
int cancellable_sleep(u32 *word, u32 seen);

#endif
