/* event.h: how events reach a consumer: completion vectors (threads), completion channels and async
 * queues (descriptors).
 *
 * A *vector* stands for an interrupt vector: a thread, started on first use, that runs handlers. A
 * handler never runs inside the call chain of a verb, and one item's handler never overlaps itself.
 * A *channel* is a descriptor: one write per event, so edge-triggered epoll works; any number per
 * process. Layer: above base only. queue, core, driver and the doors use it.
 *
 *   vector.c       vectors and their items
 *   channel.c      completion channels
 *   async_queue.c  asynchronous events of one opened context
 *   ready_fd.c        the descriptor behind channels and async queues
 *   fork.c         resets all of them in a forked child
 */
#ifndef EVENT_EVENT_H
#define EVENT_EVENT_H

#include "base/list.h"
#include "base/lock.h"

/* ---- vectors -------------------------------------------------------------------------------- */

struct vector;

/* An item that a vector runs. Embedded in its owner. */
struct vector_item {
	struct list_head node OWNED_BY(vector.lock); /* on the vector's list while queued */
	/* the handler; may queue the item again, may not destroy it */
	void (*fn)(struct vector_item *) FIXED;
	struct vector *vector FIXED; /* the vector that runs it */
	/* idle, queued, running, running and queued again */
	u32 state OWNED_BY(vector.lock);
	/* of the vector, when `state` was set: an older one means idle */
	u32 generation OWNED_BY(vector.lock);
};

/* As many vectors as the process may use cores; the threads start on first use. Index modulo
 * count. */
AV_EXPORT u32 vector_count(void);
struct vector *vector_get(u32 index);
/* Starts the vector's thread now: 0 or -EAGAIN (no more threads). Without it the first
 * vector_item_queue does, as soon as a thread can be had. May block. */
AV_EXPORT int vector_start(struct vector *v);
void vector_item_init(struct vector_item *item, struct vector *v, void (*fn)(struct vector_item *));
/* Has the handler run once more, some time after this call, on the vector's thread. Never
 * blocks, any context. Calls while it is queued merge into one run. */
void vector_item_queue(struct vector_item *item);
/* Returns when the handler is neither queued nor running, nor will run for an earlier queueing.
 * From within the item's own handler it only unqueues. May block. */
void vector_item_flush(struct vector_item *item);
/* True on a vector's thread, inside a handler: there no verb may sleep. */
bool vector_in_handler(void);
/* The thread-local depth of driver calls: raised in every driver entry, so that a handler can
 * show it is not inside one. */
AV_EXPORT extern __thread int event_driver_depth;

/* ---- completion channels -------------------------------------------------------------------- */

struct channel;

/* One source of events on a channel (a CQ). Embedded in its owner. */
struct channel_source {
	/* owner's place on the channel's list of sources with undelivered events */
	struct list_head node OWNED_BY(channel.lock);
	struct channel *channel FIXED; /* until channel_source_remove; NULL: none */
	void *cookie FIXED;            /* what channel_next hands out: the door's CQ */
	u32 undelivered OWNED_BY(channel.lock); /* events in the queue */
	u32 delivered OWNED_BY(channel.lock);   /* events handed out, ever */
	u32 acked OWNED_BY(channel.lock);       /* events acknowledged, ever */
	u32 taken_call OWNED_BY(channel.lock);  /* the call of channel_next that took the last */
	bool held OWNED_BY(channel.lock);       /* events are counted, not delivered */
};

/* A new channel with a close-on-exec descriptor that is readable while events wait. NULL and
 * errno-style *err on failure. */
AV_EXPORT struct channel *channel_create(int *err);
/* The channel that this thread creates next has no descriptor (channel_fd says -1): each event
 * calls `notify` at once, in the context of its producer and under the channel's lock, so it may
 * take leaf locks only and never blocks. No event of such a channel waits or is acknowledged. */
AV_EXPORT void channel_notify_next(void (*notify)(void *cookie));
/* The sources must be gone (-EBUSY else). */
AV_EXPORT int channel_destroy(struct channel *ch);
AV_EXPORT int channel_fd(const struct channel *ch);
AV_EXPORT int channel_source_add(struct channel_source *s, struct channel *ch, void *cookie);
/* Queues one event: one write to the descriptor. Never blocks, any context. */
AV_EXPORT void channel_post(struct channel_source *s);
/* Takes the next event without waiting: 0 and *cookie, or -EAGAIN. */
AV_EXPORT int channel_next(struct channel *ch, void **cookie);
/* Did the latest call of channel_next take an event of this source? */
bool channel_source_is_latest(const struct channel_source *s);
AV_EXPORT void channel_ack(struct channel_source *s, u32 events);
/* Withdraws what is undelivered and waits until every event handed out is acknowledged. From then
 * on nobody has an event to acknowledge: what is posted waits for channel_source_release. May
 * block. */
AV_EXPORT void channel_source_hold(struct channel_source *s);
/* Takes channel_source_hold back: delivers what it withdrew and what has come since. */
AV_EXPORT void channel_source_release(struct channel_source *s);
/* Withdraws what is undelivered, waits until every event handed out is acknowledged, leaves the
 * channel. May block. */
AV_EXPORT void channel_source_remove(struct channel_source *s);

/* ---- async event queues --------------------------------------------------------------------- */

struct async_queue;

struct async_event {
	int type;       /* enum ibv_event_type's number */
	void *element;  /* the object or, for a port, NULL */
	u32 port;       /* for port events */
} OWNED_BY(the thread that posts or takes it);

/* One per opened context. The descriptor is close-on-exec, readable while events wait, and
 * honours O_NONBLOCK. */
AV_EXPORT struct async_queue *async_queue_create(int *err);
/* Closes the descriptor; a thread that waits is not woken, and gets EBADF when it is. */
AV_EXPORT void async_queue_close(struct async_queue *q);
AV_EXPORT void async_queue_destroy(struct async_queue *q);
AV_EXPORT int async_queue_fd(const struct async_queue *q);
/* Queues an event. Bounded: the oldest port event gives way; events of objects are never lost. */
AV_EXPORT void async_queue_post(struct async_queue *q, const struct async_event *ev);
/* Waits (unless the descriptor is O_NONBLOCK) for the next: 0, -EAGAIN, -EINTR. Handlers of signals
 * that were installed with SA_RESTART do not end the wait. */
AV_EXPORT int async_queue_next(struct async_queue *q, struct async_event *out);
AV_EXPORT void async_queue_ack(struct async_queue *q, const struct async_event *ev);
/* Withdraws undelivered events of `element` and waits until the delivered ones are acknowledged.
 * May block. */
AV_EXPORT void async_queue_forget(struct async_queue *q, void *element);

#endif
