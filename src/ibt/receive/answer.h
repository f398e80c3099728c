/* answer.h: READs and atomics of the peer. */
#ifndef IBT_RECEIVE_ANSWER_H
#define IBT_RECEIVE_ANSWER_H

#include "ibt/ibt_qp.h"

/* Checks and accepts a READ in sequence: length, R_Key, resources (IBA vol 1, 9.7.4.1). answer_pump
 * sends its answer. */
enum resp_verdict answer_read(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock);
/* Checks and executes an atomic in sequence; its answer is kept for duplicates, and sent by
 * answer_pump. RESP_NAK_INVALID: the address is no multiple of 8, or the peer has more
 * outstanding than agreed. */
enum resp_verdict answer_atomic(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock);
/* The same for an atomic write or a flush. */
enum resp_verdict answer_placed(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock);
/* Sends answers in order, as far as the path has room and the rate allows. True: none waits any
 * more. */
bool answer_pump(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* The peer repeats a READ or atomic: its answer is sent again, READs from the packet on that is
 * asked for. False: it is none of those that are kept, or the memory may not be read. */
bool answer_duplicate(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock);

#endif
