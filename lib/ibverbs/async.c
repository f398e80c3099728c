/* async.c: asynchronous events of a context: of its objects, of the device and its ports.
 * In: ib_event from the midlayer's threads
 * Out: the context's queue, then ibv_get_async_event
 * Runs: handlers on the midlayer's threads, the rest in the application's
 * Locks: none of its own
 */
#include <pthread.h>

#include "door.h"

_Static_assert((int)IB_EVENT_CQ_ERR == IBV_EVENT_CQ_ERR &&
		       (int)IB_EVENT_GID_CHANGE == IBV_EVENT_GID_CHANGE,
	       "the two enumerations agree");

static void async_post(struct ibv_context *context, int type, void *element, u32 port)
{
	struct async_event ev = { .type = type, .element = element, .port = port };

	async_queue_post(door_context(context)->async, &ev);
}

void async_on_cq(struct ib_event *event, void *cq)
{
	async_post(((struct ibv_cq *)cq)->context, event->event, cq, 0);
}

void async_on_qp(struct ib_event *event, void *qp)
{
	async_post(((struct ibv_qp *)qp)->context, event->event, qp, 0);
}

void async_on_srq(struct ib_event *event, void *srq)
{
	async_post(((struct ibv_srq *)srq)->context, event->event, srq, 0);
}

void async_on_device(struct ib_event_handler *handler, struct ib_event *event)
{
	struct door_context *c = container_of(handler, struct door_context, handler);

	if (event->event == IB_EVENT_DEVICE_FATAL)
		ib_export_end(c->file->export);
	async_post(&c->verbs.context, event->event, NULL, event->element.port_num);
}

enum async_subject async_subject_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ASYNC_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ASYNC_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ASYNC_SRQ;
	default:
		return ASYNC_PORT;
	}
}

/* Counts the event in its object and returns the object's context; NULL for ports and the device,
 * whose destruction waits for no event. */
static struct ibv_context *async_count(const struct ibv_async_event *event)
{
	switch (async_subject_of(event->event_type)) {
	case ASYNC_CQ:
		DOOR_COUNT_EVENTS(event->element.cq, async_events_completed, 1);
		return event->element.cq->context;
	case ASYNC_QP:
		DOOR_COUNT_EVENTS(event->element.qp, events_completed, 1);
		return event->element.qp->context;
	case ASYNC_SRQ:
		DOOR_COUNT_EVENTS(event->element.srq, events_completed, 1);
		return event->element.srq->context;
	case ASYNC_PORT:
		break;
	}
	return NULL;
}

AV_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct door_context *c = door_context(context);
	struct async_event ev;
	int error;

	pthread_testcancel(); /* as read() would */
	do {
		error = channel_wait_fd(c, async_queue_fd(c->async));
		if (error)
			return door_minus_one(error);
		/* Waits by itself if another thread was faster. */
		error = async_queue_next(c->async, &ev);
	} while (error == -EINTR);
	if (error)
		return door_minus_one(error);
	event->event_type = ev.type;
	if (ev.element)
		event->element.cq = ev.element;
	else
		event->element.port_num = (int)ev.port;
	return 0;
}
DOOR_DEFAULT(ibv_get_async_event);

AV_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *context = async_count(event);
	struct async_event ev = { .type = (int)event->event_type };

	if (!context)
		return;
	ev.element = event->element.cq;
	async_queue_ack(door_context(context)->async, &ev);
}
DOOR_DEFAULT(ibv_ack_async_event);
