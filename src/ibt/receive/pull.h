/* pull.h: long SENDs that the receiver copies from the sender's memory. */
#ifndef IBT_RECEIVE_PULL_H
#define IBT_RECEIVE_PULL_H

#include "ibt/ibt_qp.h"

enum { PULL_LIST = IBT_MAX_SGE + 2 }; /* elements of a packet's list, at most */

/* Copies what the packet names in the sender's memory into resp.current. `payload`: a list of
 * iovecs there, which is judged first. RESP_NAK_PULL: it cannot be read, and nothing has been
 * executed; RESP_DROP: the sender has stopped meanwhile. Calls preadv under rq_lock. */
enum resp_verdict pull_copy(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload) REQUIRES(qp->resp.rq_lock);
/* Copies the packet's list to `list`, which has PULL_LIST elements, judges it, and copies the first
 * `bytes` that it names to `to`; there are as many. Verdicts as of pull_copy. */
enum resp_verdict pull_peek(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload, struct iovec *list, void *to, u32 bytes)
	REQUIRES(qp->resp.rq_lock);
/* Takes the first `bytes` off a list that pull_peek has judged, and off its packet's fields. */
void pull_skip(struct pkt *p, struct iovec *list, u32 bytes);

#endif
