/* alternate.c: what is known of a queue pair's alternate path.
 * In: the path, the migration state    Out: whether packets are watched, whether it may move
 * Runs: whoever sends, receives or modifies    Locks: sq_lock, rq_lock, the caller's
 */
#include <stdlib.h>

#include "ibt/migrate/alternate.h"

bool alternate_is_active(const struct ibt_qp *qp)
{
	const struct alternate *m = qp->alternate;

	return m != NULL && m->loaded && qp->attr.path_mig_state != IBV_MIG_MIGRATED &&
	       qp->streams && m->dest->path == qp->dest->path;
}

bool alternate_is_armed(const struct ibt_qp *qp)
{
	return qp->attr.path_mig_state == IBV_MIG_ARMED && alternate_is_active(qp);
}

u8 alternate_takes(const struct ibt_qp *qp)
{
	return alternate_is_active(qp) ? (u8)QP_TAKES_WATCHED : qp_own_type(qp);
}

void alternate_watch(struct ibt_qp *qp)
{
	if (!qp_port_is_down(qp))
		__atomic_store_n(&qp->takes, alternate_takes(qp), __ATOMIC_RELAXED);
}

struct alternate *alternate_take(struct ibt_qp *qp)
{
	struct alternate *m = qp->alternate;

	qp->alternate = NULL;
	alternate_watch(qp);
	return m;
}

void alternate_free(struct alternate *m)
{
	if (m == NULL)
		return;
	m->dest->path->ops->dest_put(m->dest);
	free(m);
}

bool alternate_begins(struct ibt_qp *qp)
{
	if (!alternate_is_armed(qp))
		return false;
	qp->alternate->due = true;
	return true;
}

struct path *alternate_take_due(struct ibt_qp *qp)
{
	if (likely(qp->alternate == NULL) || !qp->alternate->due)
		return NULL;
	qp->alternate->due = false;
	return qp->dest->path;
}

bool alternate_is_alternate(const struct ibt_qp *qp, const struct path_dest *from)
{
	return alternate_is_armed(qp) && from->path == qp->dest->path &&
	       path_is_from(qp->alternate->dest, from);
}
