/* event.c: events on their way to handlers, and the works of an instance.
 * In: notes, due timers, dead ids    Out: calls of handlers
 * Runs: the instance's queue    Locks: cm.lock, never across a handler
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

struct cm_note *cm_note_create(struct cm *cm, struct cm_id *id, enum ib_cm_event_type type)
{
	struct cm_note *note;

	if (id->orphan)
		return NULL;
	note = calloc(1, sizeof(*note));
	if (note == NULL)
		cm_tally(cm, CM_DROP_MEMORY);
	else
		note->event.event = type;
	return note;
}

struct cm_note *cm_note_of(struct cm *cm, struct cm_id *id, enum ib_cm_event_type type,
			   struct cm_msg *msg)
{
	struct cm_note *note = cm_note_create(cm, id, type);
	u32 bytes;
	const u8 *data = msg_private(msg, &bytes);

	if (note != NULL) {
		memcpy(note->private_data, data, bytes);
		note->event.private_data = note->private_data;
		note->event.private_data_len = (u8)bytes;
	}
	return note;
}

void cm_note_post(struct cm *cm, struct cm_id *id, struct cm_note *note)
{
	if (note == NULL)
		return;
	list_push_back(&id->notes, &note->link);
	if (list_empty(&id->ready) && !id->in_handler)
		list_push_back(&cm->ready, &id->ready);
}

void cm_note_free(struct cm_note *note)
{
	free(note);
}

void cm_child_new(struct cm *cm, struct cm_id *listener, struct cm_id *id)
{
	id->listener = listener;
	listener->children++;
	cm->backlog++;
}

/* The handler has seen a request, or never will. */
static void cm_child_done(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	if (id->listener == NULL)
		return;
	id->listener->children--;
	id->listener = NULL;
	cm->backlog--;
}

void cm_note_drop_all(struct cm *cm, struct cm_id *id)
{
	struct list_head *link;

	while ((link = list_pop_front(&id->notes)) != NULL)
		free(list_entry(link, struct cm_note, link));
	if (!id->in_handler)
		cm_child_done(cm, id);
}

/* The handler wants the id destroyed. A request for which it has no memory counts as lost: its
 * sender asks again. */
static void cm_id_refuse(struct cm *cm, struct cm_id *id, int why) REQUIRES(&cm->lock)
{
	if (why == -ENOMEM && id->pub.state == IB_CM_REQ_RCVD)
		cm_id_reset(cm, id);
	cm_id_abandon(cm, id);
}

/* Calls one handler. False: nothing waits. */
static bool cm_note_deliver(struct cm *cm) REQUIRES(&cm->lock)
{
	struct list_head *link = list_pop_front(&cm->ready);
	struct cm_note *note;
	struct cm_id *id;
	int end;

	if (link == NULL)
		return false;
	id = list_entry(link, struct cm_id, ready);
	note = list_entry(list_pop_front(&id->notes), struct cm_note, link);
	id->in_handler = true;
	cm->running = true;
	cm->runner = pthread_self();
	lock_release(&cm->lock);
	end = id->pub.cm_handler(&id->pub, &note->event);
	free(note);
	if (end != 0)
		cm_peer_close(id);
	lock_acquire(&cm->lock);
	cm->running = false;
	id->in_handler = false;
	cm_child_done(cm, id);
	cond_wake(&cm->idle);
	if (!id->orphan && end != 0)
		cm_id_refuse(cm, id, end);
	else if (!id->orphan && !list_empty(&id->notes))
		list_push_back(&cm->ready, &id->ready);
	return true;
}

/* Frees ids that nobody uses; the others wake this work again when they are let go of. */
static void cm_free_dead(struct cm *cm) REQUIRES(&cm->lock)
{
	list_for_each_safe(id, &cm->dead, struct cm_id, ready) {
		if (!id->in_handler && id->waiting == 0 && id->children == 0)
			cm_id_free(cm, id);
	}
}

/* One handler at a time, then what it has sent leaves. */
void cm_run(struct work *w)
{
	struct cm *cm = container_of(w, struct cm, work);

	cm_enter(cm);
	cm_note_deliver(cm);
	cm_free_dead(cm);
	cm_leave(cm);
}
