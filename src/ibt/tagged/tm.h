/* tm.h: tag matching: which buffer takes a message of a queue pair of a tag-matching SRQ. */
#ifndef IBT_TAGGED_TM_H
#define IBT_TAGGED_TM_H

#include "ibt/receive/pull.h"
#include "ibt/tagged/tm_conn.h"

/* The first packet of a message, and then what of it goes into the buffer that has been found. */
struct tm_view {
	struct pkt pkt;
	const void *payload;
	struct iovec list[PULL_LIST]; /* pulled: what `payload` points at once the header is cut */
} OWNED_BY(its thread);

/* Finds the receive source of a message that begins, or of a WRITE with immediate (`notice`): an
 * entry that matches or an ordinary buffer; sets resp.current and the cursor, and cuts off what is
 * not for the buffer. `last`: the packet is the whole message; else the match of an EAGER completes
 * here. RESP_OK, RESP_RNR: no ordinary buffer; RESP_NAK_INVALID: a header that none can be;
 * as pull_copy for a pulled one. Takes the SRQ's lock; the caller holds order_lock. */
enum resp_verdict tm_take(struct ibt_qp *qp, struct path_dest *from, struct tm_view *v, bool notice,
			  bool last) REQUIRES(qp->resp.rq_lock) REQUIRES(qp->srq->order_lock);

#endif
