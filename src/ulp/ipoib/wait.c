/* wait.c: packets that wait for a neighbour or a group, and neighbours' packets that are to be
 * refused. They have places of their own, so that who waits for nobody finds a buffer.
 *
 * A queue has IPOIB_WAITING places, all of them together IPOIB_WAITING_ALL. Where too many wait,
 * the oldest gives way: of the queue, or of all.
 * In:    frames    Out: the same frames, or drops
 * Runs:  senders, the completion handler, the thread of works    Locks: ipoib.lock
 */
#include "ulp/ipoib/ipoib_priv.h"

void ipoib_wait_init(struct ipoib_wait *w)
{
	list_init(&w->buffers);
	w->count = 0;
}

static void ipoib_wait_remove(struct ipoib *ip, struct ipoib_buffer *b) REQUIRES(ip->lock)
{
	list_remove(&b->node);
	list_remove(&b->all);
	b->waits->count--;
	b->waits = NULL;
	ip->waiting_count--;
}

struct ipoib_buffer *ipoib_wait_pop(struct ipoib *ip, struct ipoib_wait *w)
{
	struct ipoib_buffer *b;

	if (list_empty(&w->buffers))
		return NULL;
	b = list_first(&w->buffers, struct ipoib_buffer, node);
	ipoib_wait_remove(ip, b);
	return b;
}

static void ipoib_wait_put(struct ipoib *ip, struct ipoib_wait *w, struct ipoib_buffer *b)
	REQUIRES(ip->lock)
{
	b->waits = w;
	list_push_back(&w->buffers, &b->node);
	list_push_back(&ip->waiting, &b->all);
	w->count++;
	ip->waiting_count++;
}

void ipoib_wait_push(struct ipoib *ip, struct ipoib_wait *w, struct ipoib_buffer *b)
{
	struct ipoib_buffer *oldest = NULL;

	if (w->count == IPOIB_WAITING)
		oldest = list_first(&w->buffers, struct ipoib_buffer, node);
	else if (ip->waiting_count == IPOIB_WAITING_ALL)
		oldest = list_first(&ip->waiting, struct ipoib_buffer, all);
	if (oldest != NULL) {
		ipoib_wait_remove(ip, oldest);
		ipoib_ring_drop(ip, oldest, IPOIB_DROP_ROOM);
	}
	ipoib_wait_put(ip, w, b);
}

void ipoib_wait_move(struct ipoib *ip, struct ipoib_wait *from, struct ipoib_wait *to)
{
	struct ipoib_buffer *b;

	while ((b = ipoib_wait_pop(ip, from)) != NULL)
		ipoib_wait_put(ip, to, b);
}

void ipoib_wait_drop(struct ipoib *ip, struct ipoib_wait *w, enum ipoib_drop why)
{
	struct ipoib_buffer *b;

	while ((b = ipoib_wait_pop(ip, w)) != NULL)
		ipoib_ring_drop(ip, b, why);
}
