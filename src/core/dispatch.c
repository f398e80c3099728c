/* dispatch.c: brings asynchronous events to their handlers.
 * In: ib_dispatch_event from any context
 * Out: event handlers of the device, or of the object that the event names
 * Runs: handlers on vector 0's thread, one at a time per device
 * Locks: core->lock, never across a handler
 *
 * An object's event may still wait when the object is destroyed. Its destruction therefore
 * begins with dispatch_mute: what waits is dropped, what comes later too, and a handler that
 * runs has returned.
 */
#include <stdlib.h>
#include <unistd.h>

#include "core/core_priv.h"

enum { DISPATCH_LOOK_US = 1000 }; /* between looks of one that waits */
enum { DISPATCH_BURST = 64 }; /* events per run; others on the vector want their turn */

struct dispatch_node {
	struct list_head node OWNED_BY(ib_device_core.lock);
	struct ib_event event FIXED;
};

/* The object that an event is about, NULL for the device or a port. */
static const void *dispatch_element(const struct ib_event *event)
{
	switch (event->event) {
	case IB_EVENT_CQ_ERR:
		return event->element.cq;
	case IB_EVENT_SRQ_ERR:
	case IB_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq;
	case IB_EVENT_QP_FATAL:
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
	case IB_EVENT_COMM_EST:
	case IB_EVENT_SQ_DRAINED:
	case IB_EVENT_PATH_MIG:
	case IB_EVENT_PATH_MIG_ERR:
	case IB_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp;
	default:
		return NULL;
	}
}

static void element_notify(struct ib_event *event)
{
	struct ib_qp *qp = event->element.qp;
	struct ib_cq *cq = event->element.cq;
	struct ib_srq *srq = event->element.srq;

	switch (event->event) {
	case IB_EVENT_CQ_ERR:
		if (cq->event_handler)
			cq->event_handler(event, cq->cq_context);
		break;
	case IB_EVENT_SRQ_ERR:
	case IB_EVENT_SRQ_LIMIT_REACHED:
		if (srq->event_handler)
			srq->event_handler(event, srq->srq_context);
		break;
	default:
		if (qp->event_handler)
			qp->event_handler(event, qp->qp_context);
	}
}

static bool element_is_muted(struct ib_device_core *core, const void *element) REQUIRES(&core->lock)
{
	list_for_each(mute, &core->mutes, struct dispatch_mute, node)
		if (mute->element == element)
			return true;
	return false;
}

/* An event that cannot be kept for want of memory is lost, as it would be in a kernel. */
void ib_dispatch_event(struct ib_event *event)
{
	struct ib_device_core *core = event->device->core;
	struct dispatch_node *node;

	if (!core)
		return;
	node = malloc(sizeof(*node));
	if (!node) {
		log_error("core", "no memory: event %d of %s lost", event->event,
			  event->device->name);
		return;
	}
	node->event = *event;
	lock_acquire(&core->lock);
	const void *element = dispatch_element(event);
	bool wanted = !core->stopped && !(element && element_is_muted(core, element));

	if (wanted)
		list_push_back(&core->events, &node->node);
	lock_release(&core->lock);
	if (wanted)
		vector_item_queue(&core->item);
	else
		free(node);
}

/* The next handler of the device, which counts as running until the next call. */
static struct ib_event_handler *handler_advance(struct ib_device_core *core)
{
	struct ib_event_handler *handler = NULL;

	lock_acquire(&core->lock);
	if (core->cursor != &core->handlers) {
		handler = list_entry(core->cursor, struct ib_event_handler, list);
		core->cursor = core->cursor->next;
	}
	core->delivering = handler;
	lock_release(&core->lock);
	return handler;
}

static void handlers_notify(struct ib_device_core *core, struct ib_event *event)
{
	struct ib_event_handler *handler;

	cache_event(core, event);
	lock_acquire(&core->lock);
	core->cursor = core->handlers.next;
	lock_release(&core->lock);
	while ((handler = handler_advance(core)))
		handler->handler(handler, event);
}

static struct dispatch_node *dispatch_pop(struct ib_device_core *core)
{
	struct dispatch_node *node = NULL;

	lock_acquire(&core->lock);
	struct list_head *first = list_pop_front(&core->events);

	if (first) {
		node = list_entry(first, struct dispatch_node, node);
		core->delivering = dispatch_element(&node->event);
	}
	lock_release(&core->lock);
	return node;
}

static void dispatch_queue_rest(struct ib_device_core *core)
{
	lock_acquire(&core->lock);
	bool more = !list_empty(&core->events);
	lock_release(&core->lock);
	if (more)
		vector_item_queue(&core->item);
}

static void dispatch_idle(struct ib_device_core *core)
{
	lock_acquire(&core->lock);
	core->delivering = NULL;
	lock_release(&core->lock);
}

/* Runs on the vector's thread: delivers the waiting events. */
static void dispatch_run(struct vector_item *item)
{
	struct ib_device_core *core = container_of(item, struct ib_device_core, item);
	struct dispatch_node *node;

	for (int i = 0; i < DISPATCH_BURST && (node = dispatch_pop(core)); i++) {
		if (dispatch_element(&node->event))
			element_notify(&node->event);
		else
			handlers_notify(core, &node->event);
		free(node);
	}
	dispatch_idle(core);
	dispatch_queue_rest(core);
}

/* Waits for a handler that runs (unless it is the caller). Flushing may take back the queueing
 * of an event that came when the run was over, so that is done again. */
static void dispatch_wait(struct ib_device_core *core)
{
	vector_item_flush(&core->item);
	dispatch_queue_rest(core);
}

static bool dispatch_has_events(struct ib_device_core *core)
{
	lock_acquire(&core->lock);
	bool any = !list_empty(&core->events);
	lock_release(&core->lock);
	return any;
}

void ib_dispatch_drain(struct ib_device *device)
{
	struct ib_device_core *core = device->core;

	while (dispatch_has_events(core))
		usleep(DISPATCH_LOOK_US);
	dispatch_wait(core); /* for the one that has left the list */
}

static void dispatch_drop(struct ib_device_core *core, const void *element) REQUIRES(&core->lock)
{
	list_for_each_safe(node, &core->events, struct dispatch_node, node) {
		if (element && dispatch_element(&node->event) != element)
			continue;
		list_remove(&node->node);
		free(node);
	}
}

void dispatch_mute(struct ib_device_core *core, const void *element, struct dispatch_mute *mute)
{
	mute->element = element;
	lock_acquire(&core->lock);
	list_push_back(&core->mutes, &mute->node);
	dispatch_drop(core, element);
	bool running = core->delivering == element;
	lock_release(&core->lock);
	if (running)
		dispatch_wait(core);
}

void dispatch_unmute(struct ib_device_core *core, struct dispatch_mute *mute)
{
	lock_acquire(&core->lock);
	list_remove(&mute->node);
	lock_release(&core->lock);
}

int ib_register_event_handler(struct ib_event_handler *handler)
{
	struct ib_device_core *core = handler->device ? handler->device->core : NULL;

	if (!core || !handler->handler)
		return -EINVAL;
	lock_acquire(&core->lock);
	if (!core->stopped)
		list_push_back(&core->handlers, &handler->list);
	int err = core->stopped ? -ENODEV : 0;
	lock_release(&core->lock);
	return err;
}

int ib_unregister_event_handler(struct ib_event_handler *handler)
{
	struct ib_device_core *core = handler->device ? handler->device->core : NULL;

	if (!core)
		return -EINVAL;
	lock_acquire(&core->lock);
	if (core->cursor == &handler->list)
		core->cursor = handler->list.next;
	list_remove(&handler->list);
	bool running = core->delivering == handler;
	lock_release(&core->lock);
	if (running)
		dispatch_wait(core);
	return 0;
}

void dispatch_init(struct ib_device_core *core)
{
	lock_init(&core->lock);
	lock_acquire(&core->lock);
	list_init(&core->pairs);
	list_init(&core->handlers);
	list_init(&core->events);
	list_init(&core->mutes);
	list_init(&core->groups);
	core->cursor = &core->handlers;
	core->delivering = NULL;
	core->stopped = true;
	lock_release(&core->lock);
	vector_item_init(&core->item, vector_get(0), dispatch_run);
}

void dispatch_start(struct ib_device_core *core)
{
	lock_acquire(&core->lock);
	core->stopped = false;
	lock_release(&core->lock);
}

void dispatch_stop(struct ib_device_core *core)
{
	lock_acquire(&core->lock);
	core->stopped = true;
	dispatch_drop(core, NULL);
	if (!list_empty(&core->handlers))
		log_warn("core", "device %s leaves while event handlers are registered",
			 core->device->name);
	list_for_each_safe(handler, &core->handlers, struct ib_event_handler, list)
		list_remove(&handler->list);
	core->cursor = &core->handlers;
	lock_release(&core->lock);
	vector_item_flush(&core->item);
}

/* The child has neither the thread that delivered events nor any thread that was destroying an
 * object. Clients are forgotten. Event handlers and multicast groups stay: they belong to what
 * the child inherits. */
void dispatch_drop_in_child(struct ib_device_core *core) NO_THREAD_SAFETY
{
	list_init(&core->pairs);
	list_init(&core->events);
	list_init(&core->mutes);
	core->cursor = &core->handlers;
	core->delivering = NULL;
	core->stopped = true;
}
