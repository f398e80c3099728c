/* event_priv.h: shared by channels and async queues. */
#ifndef EVENT_EVENT_PRIV_H
#define EVENT_EVENT_PRIV_H

#include "event/event.h"
#include "event/ready_fd.h"

/* In a forked child: channels and async queues get descriptors of the child's own under the same
 * numbers, with what waited in the parent. */
void atfork_drop_events(void);

#endif
