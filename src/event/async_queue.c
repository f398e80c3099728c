/* async_queue.c: asynchronous events of one opened context, in order of arrival.
 *
 * In:    async_queue_post by drivers
 * Out: events, each owed an acknowledgement if it names an object
 * Runs:  any thread                                Locks: the queue's lock
 *
 * The descriptor's count equals the number of waiting events whenever the lock is free.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/cond.h"
#include "base/log.h"
#include "event/event_priv.h"

/* Limit of waiting events that name no object. Beyond it the oldest is dropped: only the present
 * state of a port matters. */
enum { ASYNC_PORT_EVENTS_MAX = 64 };

struct async_node {
	struct list_head node;
	struct async_event event;
} OWNED_BY(async_queue.lock);

struct async_queue {
	struct lock lock;
	struct ready_fd ready_fd FIXED;
	struct atfork_watch watch GUARDS_ITSELF;
	u32 port_events GUARDED_BY(lock);            /* on `waiting` */
	struct list_head waiting GUARDED_BY(lock);   /* async_node, oldest first */
	/* async_node with an element, not acknowledged yet */
	struct list_head delivered GUARDED_BY(lock);
	struct cond acked GUARDED_BY(lock);
	u32 posted GUARDED_BY(lock);   /* counts events that were posted: a futex */
	bool awaited GUARDED_BY(lock); /* a thread may sleep on `posted` */
};

/* As channel_drop: the child keeps waiting events, on a descriptor of its own. */
static void async_drop(struct atfork_watch *w) NO_THREAD_SAFETY /* the only thread */
{
	struct async_queue *q = container_of(w, struct async_queue, watch);
	u32 count = 0;

	if (q->lock.word != 0) { /* a thread of the parent was just changing them */
		list_init(&q->waiting);
		list_init(&q->delivered);
		q->port_events = 0;
	}
	lock_init(&q->lock);
	q->acked = (struct cond){ 0 };
	for (const struct list_head *n = q->waiting.next; n != &q->waiting; n = n->next)
		count++;
	ready_fd_renew(&q->ready_fd, count);
}

/* not yet visible to other threads */
static int async_queue_open(struct async_queue *q) NO_THREAD_SAFETY
{
	int err;

	list_init(&q->waiting);
	list_init(&q->delivered);
	err = ready_fd_open(&q->ready_fd);
	if (err)
		return err;
	err = atfork_watch_add(&q->watch, async_drop);
	if (err)
		ready_fd_close(&q->ready_fd);
	return err;
}

struct async_queue *async_queue_create(int *err)
{
	struct async_queue *q = calloc(1, sizeof(*q));
	int result = q ? async_queue_open(q) : -ENOMEM;

	if (result == 0)
		return q;
	*err = result;
	free(q);
	return NULL;
}

static void async_free_list(struct list_head *head)
{
	struct list_head *node;

	while ((node = list_pop_front(head)) != NULL)
		free(list_entry(node, struct async_node, node));
}

void async_queue_close(struct async_queue *q)
{
	lock_acquire(&q->lock);
	ready_fd_close(&q->ready_fd);
	lock_release(&q->lock);
}

/* visible to no other thread any more */
void async_queue_destroy(struct async_queue *q) NO_THREAD_SAFETY
{
	atfork_watch_remove(&q->watch);
	async_free_list(&q->waiting);
	async_free_list(&q->delivered);
	ready_fd_close(&q->ready_fd);
	free(q);
}

int async_queue_fd(const struct async_queue *q)
{
	return q->ready_fd.fd;
}

/* ---- posting -------------------------------------------------------------------------------- */

/* If there are too many port events, unlinks the oldest for reuse. */
static struct async_node *async_recycle(struct async_queue *q) REQUIRES(&q->lock)
{
	list_for_each(n, &q->waiting, struct async_node, node) {
		if (n->event.element)
			continue;
		list_remove(&n->node);
		q->port_events--;
		ready_fd_take(&q->ready_fd, 1);
		return n;
	}
	return NULL;
}

static void async_append(struct async_queue *q, struct async_node *n) REQUIRES(&q->lock)
{
	q->port_events += n->event.element == NULL;
	list_push_back(&q->waiting, &n->node);
	ready_fd_add(&q->ready_fd);
	__atomic_store_n(&q->posted, q->posted + 1, __ATOMIC_RELAXED);
	if (q->awaited)
		futex_wake(&q->posted, INT32_MAX);
	q->awaited = false;
}

void async_queue_post(struct async_queue *q, const struct async_event *ev)
{
	struct async_node *fresh = malloc(sizeof(*fresh)), *old = NULL;

	lock_acquire(&q->lock);
	if (!fresh || (!ev->element && q->port_events >= ASYNC_PORT_EVENTS_MAX))
		old = async_recycle(q);
	if (!fresh) {
		fresh = old;
		old = NULL;
	}
	if (fresh) {
		fresh->event = *ev;
		async_append(q, fresh);
	}
	lock_release(&q->lock);
	free(old);
	if (!fresh)
		log_error("event", "no memory: async event %d is lost", ev->type);
}

/* ---- taking --------------------------------------------------------------------------------- */

/* False: there is none, and `*seen` is the count to sleep on until there is one; `*fd` is the
 * descriptor, or -1 once it is closed. */
static bool async_take(struct async_queue *q, struct async_event *out, u32 *seen, int *fd)
{
	struct async_node *spent = NULL;
	struct list_head *node;

	lock_acquire(&q->lock);
	node = list_pop_front(&q->waiting);
	if (node) {
		struct async_node *n = list_entry(node, struct async_node, node);

		*out = n->event;
		ready_fd_take(&q->ready_fd, 1);
		if (n->event.element) {
			list_push_back(&q->delivered, &n->node);
		} else {
			q->port_events--;
			spent = n;
		}
	} else {
		ready_fd_take(&q->ready_fd, UINT32_MAX); /* strays, as in channel_next */
		*seen = q->posted;
		*fd = q->ready_fd.fd;
		q->awaited = true; /* stays if the thread is cancelled: no harm */
	}
	lock_release(&q->lock);
	free(spent);
	return node != NULL;
}

int async_queue_next(struct async_queue *q, struct async_event *out)
{
	int flags, fd = -1, err = 0;
	u32 seen = 0;

	while (!async_take(q, out, &seen, &fd)) {
		/* an event that came with the signal goes first, as in the kernel */
		if (err < 0)
			return err;
		flags = fcntl(fd, F_GETFL);
		if (flags < 0)
			return -errno;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		err = cancellable_sleep(&q->posted, seen);
	}
	return 0;
}

/* ---- acknowledging -------------------------------------------------------------------------- */

static struct async_node *async_find_delivered(struct async_queue *q, const void *element)
	REQUIRES(&q->lock)
{
	list_for_each(n, &q->delivered, struct async_node, node)
		if (n->event.element == element)
			return n;
	return NULL;
}

void async_queue_ack(struct async_queue *q, const struct async_event *ev)
{
	struct async_node *n;

	if (!ev->element)
		return;
	lock_acquire(&q->lock);
	n = async_find_delivered(q, ev->element);
	if (n) {
		list_remove(&n->node);
		cond_wake(&q->acked);
	}
	lock_release(&q->lock);
	free(n);
}

void async_queue_forget(struct async_queue *q, void *element)
{
	struct list_head withdrawn = LIST_HEAD_INIT(withdrawn);

	lock_acquire(&q->lock);
	list_for_each_safe(n, &q->waiting, struct async_node, node) {
		if (!element || n->event.element != element)
			continue;
		list_remove(&n->node);
		list_push_back(&withdrawn, &n->node);
		ready_fd_take(&q->ready_fd, 1);
	}
	while (element && async_find_delivered(q, element))
		cond_wait(&q->acked, &q->lock);
	lock_release(&q->lock);
	async_free_list(&withdrawn);
}
