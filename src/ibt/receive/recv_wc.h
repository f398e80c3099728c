/* recv_wc.h: what a receive completion says beyond its request. */
#ifndef IBT_RECEIVE_RECV_WC_H
#define IBT_RECEIVE_RECV_WC_H

#include "ibt/ibt_qp.h"

/* Adds to the completion of a message what its last packet says: immediate data, an invalidated
 * key, the route of a datagram. */
void recv_wc_flags(const struct ibt_qp *qp, struct ibv_wc *wc, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock);
/* A receive completion has found no room in the CQ: counts it. The queue pair is to fail:
 * AFTER_FAIL. */
void recv_wc_lost(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);

#endif
