/* block.c: queue pairs that wait for room in the path of a destination.
 * In:    -EAGAIN of path_ops.send    Out: path_dest.blocked, which path_user.writable empties
 * Runs:  the sending thread; the path's callbacks    Locks: path_dest.blocked_lock, a leaf
 */
#include "ibt/block.h"

enum { BLOCK_RESUMES = 4096 }; /* queue pairs resumed in one call */

void block_wait(struct ibt_qp *qp, struct path_dest *dest)
{
	path_count(dest->path, COUNT_TX_BLOCKED);
	lock_acquire(&dest->blocked_lock);
	if (list_empty(&qp->blocked_node)) {
		list_push_back(&dest->blocked, &qp->blocked_node);
		__atomic_store_n(&dest->any_blocked, true, __ATOMIC_RELAXED);
	}
	lock_release(&dest->blocked_lock);
}

void block_wait_datagram(struct ibt_qp *qp, struct path_dest *dest)
{
	if (qp->req.blocked_on != dest) {
		block_leave(qp);
		dest->path->ops->dest_hold(dest);
		qp->req.blocked_on = dest;
	}
	block_wait(qp, dest);
}

void block_leave(struct ibt_qp *qp)
{
	struct path_dest *dest = !qp_is_connected(qp) ? qp->req.blocked_on : qp->dest;

	if (dest == NULL)
		return;
	lock_acquire(&dest->blocked_lock);
	list_remove(&qp->blocked_node);
	lock_release(&dest->blocked_lock);
	if (qp_is_connected(qp))
		return;
	qp->req.blocked_on = NULL;
	dest->path->ops->dest_put(dest);
}

/* The next that waits, off the list; it may come back to it while it is resumed. */
struct ibt_qp *block_pop(struct path_dest *dest)
{
	struct list_head *node;

	lock_acquire(&dest->blocked_lock);
	node = list_pop_front(&dest->blocked);
	__atomic_store_n(&dest->any_blocked, !list_empty(&dest->blocked), __ATOMIC_RELAXED);
	lock_release(&dest->blocked_lock);
	return node == NULL ? NULL : list_entry(node, struct ibt_qp, blocked_node);
}

/* A connected queue pair waits for this destination only, so its lock covers the node. */
bool block_is_listed(struct ibt_qp *qp, struct path_dest *dest)
{
	bool again;

	if (!qp_is_connected(qp))
		return false;
	lock_acquire(&dest->blocked_lock);
	again = !list_empty(&qp->blocked_node);
	lock_release(&dest->blocked_lock);
	return again;
}

/* How many wait, at most as many as one call sets going, but one look in any case: it corrects
 * any_blocked. Each of them gets one try: a queue pair of datagrams may come back to the list, and
 * its next try would find no room either. */
int block_count(struct path_dest *dest)
{
	int n = 0;

	lock_acquire(&dest->blocked_lock);
	for (struct list_head *node = dest->blocked.next;
	     node != &dest->blocked && n < BLOCK_RESUMES; node = node->next)
		n++;
	lock_release(&dest->blocked_lock);
	return MAX(n, 1);
}
