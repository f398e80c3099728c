/* forward.h: an XRC target hands requests that name another process' SRQ to that process.
 *
 * The target's process runs the transport: PSNs, acknowledgements, refusals. The SRQ's process has
 * a proxy of the target (proxy.h) that executes requests by its SRQ and its memory. Requests travel
 * there as packets of the first path, whose peers are the processes of this node, and the proxy
 * acknowledges, answers and refuses them as any responder does. Only then is a request executed to
 * the target, and acknowledged to the initiator.
 *
 * While the proxy is at work further requests are held in their order, whomever they name: as many
 * as are for the same process are handed on, the others wait. What does not fit is dropped, and
 * requested again by a NAK once all that is held is done.
 */
#ifndef IBT_XRC_FORWARD_H
#define IBT_XRC_FORWARD_H

#include "ibt/xrc/xrc_conn.h"

/* A request that is held. */
struct forward_item {
	struct list_head node;
	struct pkt pkt;
	const void *payload; /* in `copy`, or the path's while it shows the packet */
	bool sent;
	bool again;   /* a READ or atomic that was executed before: its answer was lost */
	bool stalled; /* the rest of its answer found no room on the way to the initiator */
	u32 answered; /* bytes of the answer that the initiator has been sent */
	u8 copy[];
} OWNED_BY(responder.rq_lock);

/* The payload of a PKT_FORWARD_OPEN. */
struct forward_open {
	u64 xrcd;
	u32 serial;    /* of the target's connection */
	u32 initiator; /* its number */
	u8 psn_shift;  /* of answers */
	u8 resources;  /* READs and atomics that the proxy remembers */
	u8 zero[6];
} OWNED_BY(the caller);

/* All of them: REQUIRES(rq_lock), inside the callbacks of any path unless they say otherwise. */

/* Is anything held? Then requests in sequence go to forward_hold, whatever they name. */
bool forward_is_busy(const struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Is a message in progress in another process, and is this a request for it? */
bool forward_continues(const struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock);
/* The PSN behind the last request that is held. */
u32 forward_next_psn(const struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Holds the request with that PSN; forward_run follows, and forward_settle before the payload goes.
 * Without room it is dropped: forward_note_gap. False: there is no memory to go on. */
bool forward_hold(struct ibt_qp *qp, const struct pkt *p, const void *payload)
	REQUIRES(qp->resp.rq_lock);
/* A request behind a gap has been dropped: it is requested again once nothing is held. */
void forward_note_gap(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* A READ or atomic comes again, that the target has not executed itself: asks the process that it
 * names for the answer, if nothing is held. False: it is none that is answered again. */
bool forward_repeat(struct ibt_qp *qp, const struct pkt *p) REQUIRES(qp->resp.rq_lock);
/* Hands on what can be. RESP_OK: *here is the next request, for this process itself: the caller
 * executes and frees it, and calls again. RESP_DROP: there is nothing more to do now. Else the
 * verdict on the request with resp.epsn: then nothing is held any more. Any thread. */
enum resp_verdict forward_run(struct ibt_qp *qp, struct forward_item **here)
	REQUIRES(qp->resp.rq_lock);
/* Copies the payload that is not on its way: the path's memory goes. */
void forward_settle(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Nothing is held any more. */
void forward_drop(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* A proxy's acknowledgement, answer or refusal. A refusal is the verdict, of the request with
 * resp.epsn, and nothing is held any more; else RESP_DROP. *done: something has been executed. */
enum resp_verdict forward_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
				  const void *payload, bool *done) REQUIRES(qp->resp.rq_lock);
/* There is room on the way to the initiator: asks for what was lost of an answer. Any thread. */
void forward_resume(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* A process has died: the verdict on what it had, or RESP_DROP. */
enum resp_verdict forward_peer_died(struct ibt_qp *qp, struct path_dest *dest)
	REQUIRES(qp->resp.rq_lock);
/* The target's connection ends: sends PKT_FORWARD_CLOSE to the proxy. Any thread. */
void forward_stop(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Sends the PKT_FORWARD_CLOSE for which the ring had no room before. Any thread. */
void forward_say_end(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* Is a PKT_FORWARD_CLOSE still to be sent? Any thread. */
bool forward_is_leaving(const struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* The target is not reachable any more: waits for the timer. No lock. May block. */
void forward_quiesce(struct ibt_qp *qp) EXCLUDES(qp->resp.rq_lock);
/* Frees all. `orphan`: in a forked child, where the destination is the parent's. No lock. */
void forward_free(struct ibt_qp *qp, bool orphan);
/* The target of its timer. */
struct ibt_qp *forward_qp(struct timer *t);

#endif
