/* cancel.h: the only cancellation point of the libraries.
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

#endif
