/* accord.c: compares the ends of a connection, once.
 * In:    what both ends were given    Out: requester.accord, requester.no_direct
 * Runs:  the requester                Locks: sq_lock
 * Spec:  IBA vol 1, 9.7.4.1 (PSN, length of the packet)
 */
#include "ibt/send/accord.h"

void accord_begin(struct ibt_qp *qp)
{
	bool compared = !qp->lossy && qp_is_connected(qp) && !qp_is_initiator(qp) &&
			!qp_is_target(qp) && qp->dest->path->ops->peer_end != NULL;

	qp->req.accord = compared ? ACCORD_UNKNOWN : ACCORD_FULL;
}

/* Only RC refuses PSNs. */
static void accord_compare(struct ibt_qp *qp, const struct path_end *peer) REQUIRES(qp->req.sq_lock)
{
	u8 ours = (u8)qp->attr.path_mtu;
	bool differed = qp->req.accord != ACCORD_UNKNOWN;

	if (peer->mtu != ours && peer->mtu != 0)
		qp->req.accord = MIN(peer->mtu, ours) + 7;
	else if (qp_is_reliable(qp) && peer->psn != qp->attr.sq_psn)
		qp->req.accord = ACCORD_SIZES;
	else
		qp->req.accord = ACCORD_FULL;
	if (qp->req.accord != ACCORD_FULL)
		qp->req.no_direct = true;
	else if (differed && qp_is_reliable(qp)) /* UC has more reasons for it */
		qp->req.no_direct = false;
}

u8 accord_judge(struct ibt_qp *qp, u32 length)
{
	struct path_end peer;

	if (qp->req.accord != ACCORD_FULL &&
	    qp->dest->path->ops->peer_end(qp->dest, qp->qpn, qp->dest_qpn, &peer))
		accord_compare(qp, &peer);
	return accord_fits(qp, length) ? 0 : PKT_MISFIT;
}
