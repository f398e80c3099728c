/* responder.h: executes the requests of the peer: the checks of IBA vol 1, 9.7.4.1. */
#ifndef IBT_RECEIVE_RESPONDER_H
#define IBT_RECEIVE_RESPONDER_H

#include "ibt/ibt_qp.h"

/* Judges and executes a packet of an RC or UC peer. Inside the path's callbacks; takes rq_lock, and
 * sq_lock after it has let go, if the queue pair fails. `payload` may change meanwhile: it is
 * copied once. */
void resp_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		  const void *payload);
/* There is room again, or a new destination: sends waiting responses, acknowledgements and
 * refusals. Takes rq_lock; after it has released that, sq_lock if the queue pair fails. */
void resp_resume(struct ibt_qp *qp);

/* Executes a request that is in sequence: RESP_OK, or why not. `from`: whose callback runs. */
enum resp_verdict resp_execute(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
			       const void *payload) REQUIRES(qp->resp.rq_lock);
/* Then acknowledges it, 9.7.5.1: counts its PSN, answers it, or owes an acknowledgement. */
void resp_acknowledge(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
	REQUIRES(qp->resp.rq_lock);
/* Another process has executed, answered or refused what the target forwarded to it (forward.h). As
 * resp_receive. */
void resp_receive_done(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
		       const void *payload);
/* The process at `dest` has died: an XRC target may have forwarded requests to it. As
 * resp_receive. */
void resp_peer_died(struct ibt_qp *qp, struct path_dest *dest);
/* The function of the timer of a target's forwarding: tries again what found no room. */
void resp_forward_timer(struct timer *t);
/* The function of the timer of responder.answer_rate: sends the responses that the rate held
 * back. */
void resp_rate_timer(struct timer *t);

#endif
