/* pull.h: long SENDs that the receiver copies from the sender's memory. */
#ifndef IBT_PULL_H
#define IBT_PULL_H

#include "ibt/ibt_qp.h"

/* Copies what the packet names in the sender's memory into resp.current. `payload`: a list of
 * iovecs there, which is judged first. RESP_NAK_PULL: it cannot be read, and nothing has been
 * executed; RESP_DROP: the sender has stopped meanwhile. Calls preadv under rq_lock. */
enum resp_verdict pull_copy(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			    const void *payload) REQUIRES(qp->resp.rq_lock);

#endif
