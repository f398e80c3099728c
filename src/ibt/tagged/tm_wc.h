/* tm_wc.h: receive completions of a tag-matching SRQ. */
#ifndef IBT_TAGGED_TM_WC_H
#define IBT_TAGGED_TM_WC_H

#include "ibt/tagged/tm_conn.h"

/* Completes resp.current as rq_complete does, for the kind of message that it is. A rendezvous is
 * queued for its READ: AFTER_SEND. */
void tm_complete(struct ibt_qp *qp, enum ibv_wc_status status, const struct pkt *p, u32 length)
	REQUIRES(qp->resp.rq_lock);
/* EAGER in pieces: completes the match, once for each message. */
void tm_complete_match(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* The data of a rendezvous is there, or will not come: completes its entry and gives it back.
 * False: the CQ has overflowed. */
bool tm_complete_rndv(struct ibt_qp *qp, struct tag_entry *entry, enum ibv_wc_status status,
		      u32 length);
/* Completes the rendezvous that wait for a slot with WR_FLUSH_ERR. */
void tm_flush(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);

#endif
