/* mig.c: what is known of a queue pair's alternate path.
 * In: the path, the migration state    Out: whether packets are watched, whether it may move
 * Runs: whoever sends, receives or modifies    Locks: sq_lock, rq_lock, the caller's
 */
#include <stdlib.h>

#include "ibt/migrate/mig.h"

bool mig_is_active(const struct ibt_qp *qp)
{
	const struct mig *m = qp->mig;

	return m != NULL && m->loaded && qp->attr.path_mig_state != IBV_MIG_MIGRATED &&
	       qp->streams && m->dest->path == qp->dest->path;
}

bool mig_is_armed(const struct ibt_qp *qp)
{
	return qp->attr.path_mig_state == IBV_MIG_ARMED && mig_is_active(qp);
}

u8 mig_takes(const struct ibt_qp *qp)
{
	return mig_is_active(qp) ? (u8)QP_TAKES_WATCHED : qp_own_type(qp);
}

void mig_watch(struct ibt_qp *qp)
{
	if (!qp_port_is_down(qp))
		__atomic_store_n(&qp->takes, mig_takes(qp), __ATOMIC_RELAXED);
}

struct mig *mig_take(struct ibt_qp *qp)
{
	struct mig *m = qp->mig;

	qp->mig = NULL;
	mig_watch(qp);
	return m;
}

void mig_free(struct mig *m)
{
	if (m == NULL)
		return;
	m->dest->path->ops->dest_put(m->dest);
	free(m);
}

bool mig_begins(struct ibt_qp *qp)
{
	if (!mig_is_armed(qp))
		return false;
	qp->mig->due = true;
	return true;
}

struct path *mig_take_due(struct ibt_qp *qp)
{
	if (likely(qp->mig == NULL) || !qp->mig->due)
		return NULL;
	qp->mig->due = false;
	return qp->dest->path;
}

bool mig_is_alternate(const struct ibt_qp *qp, const struct path_dest *from)
{
	return mig_is_armed(qp) && from->path == qp->dest->path &&
	       path_is_from(qp->mig->dest, from);
}
