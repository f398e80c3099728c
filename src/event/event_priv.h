/* event_priv.h: shared by channels and async queues. */
#ifndef EVENT_EVENT_PRIV_H
#define EVENT_EVENT_PRIV_H

#include "event/event.h"
#include "event/tally.h"

/* The vectors' part of atfork_drop_events. */
void vector_drop_in_child(void);

#endif
