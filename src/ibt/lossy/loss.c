/* loss.c: packets that a reliable path has lost: its port went down, or a peer had more reports
 * than it could keep.
 * In:    calls of the driver, reports of the peer
 * Out: timeouts of the queue pairs that wait for an answer
 * Runs:  the driver's thread; the path's callbacks    Locks: each sq_lock in turn
 * Spec:  IBA vol 1, 9.7.6.1.3 (retry)
 */
#include "ibt/lossy/loss.h"
#include "ibt/send/timeout.h"

static bool loss_concerns(const struct ibt_qp *qp, const struct path_dest *from)
{
	return qp->dest != NULL && path_is_from(qp->dest, from);
}

void loss_suspect(struct ibt_qp *qp)
{
	/* The end of a wait for RNR would send again only what the peer has not executed; the
	 * answers to the rest may be lost. */
	if (qp_is_reliable(qp) && !qp->streams && qp->dest != NULL && qp_sends(qp) &&
	    qp_has_outstanding(qp))
		timeout_begin(qp);
}

void ibt_qp_suspect_loss(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	loss_suspect(qp);
	lock_release(&qp->req.sq_lock);
}

void loss_suspect_from(struct ibt *ibt, const struct path_dest *from)
{
	for (u32 s = 0; s < IBT_TABLES; s++) {
		/* both loads pair with table_add */
		struct ibt_qp **table = __atomic_load_n(&ibt->tables[s], __ATOMIC_ACQUIRE);

		for (u32 i = 0; table != NULL && i < 1u << IBT_INDEX_BITS; i++) {
			struct ibt_qp *qp = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);

			if (qp == NULL)
				continue;
			lock_acquire(&qp->req.sq_lock);
			if (loss_concerns(qp, from))
				loss_suspect(qp);
			lock_release(&qp->req.sq_lock);
		}
	}
}
