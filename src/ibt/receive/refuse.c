/* refuse.c: the responder's refusals, and their packets: NAK, RNR NAK, PKT_ABSENT.
 *
 * A refusal waits behind the responses that are still to be sent, and for room in the path. Until
 * the peer has it, no request of the peer is in sequence.
 *
 * In:    verdicts of the responder; a queue pair that stops receiving    Out: PKT_ACK, PKT_ABSENT
 * Runs:  the thread that receives or modifies    Locks: rq_lock
 * Spec:  IBA vol 1, 9.7.5.2 (NAK codes), 9.7.5.2.8 (RNR NAK), 9.9.3 (responder errors)
 */
#include <errno.h>

#include "ibt/receive/ack.h"
#include "ibt/receive/answer.h"
#include "ibt/block.h"
#include "ibt/xrc/forward.h"
#include "ibt/receive/refuse.h"
#include "ibt/send/portdown.h"

/* The packet of the pending refusal. */
static void refuse_fill(struct ibt_qp *qp, struct pkt *p) REQUIRES(qp->resp.rq_lock)
{
	static const u8 codes[] = { [RESP_NAK_INVALID] = NAK_INVALID_REQUEST,
				    [RESP_NAK_ACCESS] = NAK_REMOTE_ACCESS,
				    [RESP_NAK_OPERATION] = NAK_REMOTE_OPERATION,
				    [RESP_NAK_PULL] = NAK_CANNOT_PULL,
				    [RESP_NAK_SEQUENCE] = NAK_PSN_SEQUENCE };

	*p = (struct pkt){ .opcode = PKT_ACK,
			   .qp_type = qp->packet_type,
			   .dqpn = qp->dest_qpn,
			   .sqpn = qp->qpn,
			   .psn = qp->resp.owed_psn,
			   .msn = qp->resp.msn };
	if (qp->resp.owed == RESP_GONE)
		p->opcode = PKT_ABSENT;
	else if (qp->resp.owed == RESP_RNR)
		p->syndrome = AETH_RNR | qp->attr.min_rnr_timer;
	else
		p->syndrome = (u8)(AETH_NAK | codes[qp->resp.owed]);
}

/* Sends it, unless responses or lack of room still hold it back: nothing may overtake a response,
 * and a reliable path's sender waits for the refusal. True: sent, and *verdict is fatal to the
 * queue pair. IBA vol 1, 9.9.3. */
bool refuse_tell(struct ibt_qp *qp, enum resp_verdict *verdict) REQUIRES(qp->resp.rq_lock)
{
	struct pkt p;
	int err;

	if (!answer_pump(qp))
		return false;
	refuse_fill(qp, &p);
	/* What was executed before it is acknowledged by its PSN. */
	if (qp->resp.owed != RESP_GONE)
		__atomic_store_n(&qp->resp.ack_word, 0, __ATOMIC_RELAXED);
	err = portdown_answer(qp, &p, NULL, 0);
	if (err == -EAGAIN) {
		block_wait(qp, qp->dest);
		err = portdown_answer(qp, &p, NULL, 0);
	}
	if (err == -EAGAIN)
		return false;
	qp->dest->path->ops->flush(qp->dest);
	*verdict = (enum resp_verdict)qp->resp.owed;
	qp->resp.owed = RESP_OK;
	if (*verdict == RESP_RNR || *verdict == RESP_GONE)
		return false;
	qp_count(qp, COUNT_TX_NAK);
	return *verdict != RESP_NAK_PULL && *verdict != RESP_NAK_SEQUENCE;
}

void refuse_note(struct ibt_qp *qp, enum resp_verdict verdict) REQUIRES(qp->resp.rq_lock)
{
	if (verdict == RESP_DROP)
		return;
	if (verdict == RESP_RNR) {
		qp_count(qp, COUNT_RX_NO_WQE);
		qp_count(qp, COUNT_TX_RNR);
	}
	qp->resp.owed = (u8)verdict;
	qp->resp.owed_psn = qp->resp.epsn;
	qp->resp.nak_sent = true;
	qp->resp.gap_next = (qp->resp.epsn + 1) & PSN_MASK; /* what follows shows no gap */
}

void refuse_leave(struct ibt_qp *qp)
{
	bool held = forward_is_busy(qp);
	bool owes = held || qp->resp.resource_next != qp->resp.resource_head ||
		    qp->resp.owed != RESP_OK;
	u32 last = (held ? forward_next_psn(qp) : qp->resp.epsn) - 1, ack;
	enum resp_verdict verdict;

	forward_stop(qp);
	if (!qp_is_reliable(qp) || qp->dest == NULL)
		return;
	qp->resp.resource_next = qp->resp.resource_head;
	ack = __atomic_exchange_n(&qp->resp.ack_word, 0, __ATOMIC_ACQUIRE);
	if (ack & ACK_OWED)
		ack_send(qp, AETH_ACK, ack);
	if (qp->lossy)
		qp->resp.owed = RESP_OK; /* the peer's timeout reports it */
	if (!owes || qp->lossy)
		return;
	qp->resp.owed = RESP_GONE;
	qp->resp.owed_psn = last & PSN_MASK;
	refuse_tell(qp, &verdict);
}

bool refuse_has_left(struct ibt_qp *qp)
{
	bool left;

	lock_acquire(&qp->resp.rq_lock);
	left = qp->dest == NULL || (qp->resp.owed == RESP_OK && !ack_is_owed(qp));
	left = left && !forward_is_leaving(qp);
	lock_release(&qp->resp.rq_lock);
	return left;
}
