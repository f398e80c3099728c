/* xrc.h: the SRQ that an XRC request names. */
#ifndef IBT_XRC_XRC_H
#define IBT_XRC_XRC_H

#include "ibt/xrc/xrc_conn.h"

/* Makes responder.srq_copy of a target or a proxy part of a struct xrc_conn. 0, -ENOMEM. */
int xrc_conn_create(struct ibt_qp *qp);
/* Before the target is reachable. */
void xrc_conn_set_domain(struct ibt_qp *qp, u64 xrcd);
void xrc_conn_free(struct ibt_qp *qp);
/* A request in sequence: the SRQ that it names becomes the target's receive source, and that SRQ's
 * PD the one that judges all keys. RESP_NAK_INVALID: there is no such SRQ in the target's domain,
 * or the message in progress is for another one. RESP_ELSEWHERE: the number may be another
 * process'. */
enum resp_verdict xrc_select(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock);
/* The target has no SRQ until the next request. */
void xrc_forget(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* As rq_complete. The completion names no queue pair (cqe.qp): it may outlive the target. */
void xrc_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
	REQUIRES(qp->resp.rq_lock);

#endif
