/* ack.c: acknowledgements that the responder owes: sent now, at the end of the batch, in an idle
 * moment, or piggybacked on the next packet of the other direction.
 *
 * ack_word holds the PSN that is owed. The thread that exchanges it away sends it, so the requester
 * can piggyback it without rq_lock.
 *
 * In:    requests that the responder has accepted    Out: PKT_ACK, PKT_HAS_ACK
 * Runs:  the receiving thread; the requester
 * Locks: rq_lock; the lists belong to the path's callbacks
 * Spec:  IBA vol 1, 9.7.5.1 (acknowledgements), 9.7.5.1.2 (coalesced ones)
 */
#include <errno.h>

#include "ibt/receive/absent.h"
#include "ibt/receive/ack.h"
#include "ibt/block.h"
#include "ibt/send/portdown.h"

bool ack_send(struct ibt_qp *qp, u8 syndrome, u32 psn)
{
	struct pkt p = {
		.opcode = PKT_ACK,
		.qp_type = qp->packet_type,
		.syndrome = syndrome,
		.dqpn = qp->dest_qpn,
		.sqpn = qp->qpn,
		.psn = psn & PSN_MASK,
		.msn = qp->resp.msn,
	};
	int err;

	if ((syndrome & 0xe0) != 0)
		qp_count(qp, (syndrome & 0xe0) == AETH_RNR ? COUNT_TX_RNR : COUNT_TX_NAK);
	err = portdown_answer(qp, &p, NULL, 0);
	if (err == 0)
		qp->dest->path->ops->flush(qp->dest);
	else if (syndrome == AETH_ACK && err == -EAGAIN)
		__atomic_store_n(&qp->resp.ack_word, ACK_OWED | (psn & PSN_MASK), __ATOMIC_RELEASE);
	else
		qp->resp.nak_sent = false; /* the next packet repeats it */
	return err == 0;
}

/* Notes whether the delayed acknowledgement was piggybacked. */
static void ack_settle(struct ibt_qp *qp)
{
	if (qp->resp.ack_waits && ack_is_owed(qp))
		__atomic_store_n(&qp->resp.ack_piggybacks, false, __ATOMIC_RELAXED);
	qp->resp.ack_waits = false;
	__atomic_store_n(&qp->resp.ack_went_ahead, false, __ATOMIC_RELAXED);
}

/* Owes an acknowledgement of everything before epsn: at the end of the batch if the peer requested
 * it (`urgent`), else in an idle poll. If the consumer's last response came at once, the next
 * response piggybacks it; if none comes, the next idle poll or the engine's next tick (1 ms) sends
 * it, and later ones are not delayed. Nothing is piggybacked on a wire. */
void ack_owe(struct ibt_qp *qp, struct path_dest *from, bool urgent)
{
	ack_settle(qp);
	/* Pairs with the exchanges that take it. */
	__atomic_store_n(&qp->resp.ack_word, ACK_OWED | ((qp->resp.epsn - 1) & PSN_MASK),
			 __ATOMIC_RELEASE);
	if (urgent && __atomic_load_n(&qp->resp.ack_piggybacks, __ATOMIC_RELAXED)) {
		qp->resp.ack_waits = true;
		urgent = false;
	}
	if (qp->resp.ack_listed && !urgent)
		return;
	if (qp->resp.ack_listed)
		list_remove(&qp->resp.ack_node);
	list_push_back(urgent ? &from->acks_now : &from->acks, &qp->resp.ack_node);
	qp->resp.ack_listed = true;
	if (!urgent)
		__atomic_store_n(&from->acks_owed, true, __ATOMIC_RELAXED);
}

static void ack_flush(struct ibt_qp *qp)
{
	u32 word;

	lock_acquire(&qp->resp.rq_lock);
	/* pairs with ack_owe */
	word = __atomic_exchange_n(&qp->resp.ack_word, 0, __ATOMIC_ACQUIRE);
	/* Also in ERR: what was accepted was accepted. */
	if ((word & ACK_OWED) != 0 && qp->dest != NULL) {
		ack_send(qp, AETH_ACK, word);
		__atomic_store_n(&qp->resp.ack_went_ahead, true, __ATOMIC_RELAXED);
	}
	lock_release(&qp->resp.rq_lock);
}

bool ack_ride(struct ibt_qp *qp)
{
	bool sent = false;
	u32 word;

	if (!ack_is_owed(qp)) {
		/* the next one may be piggybacked */
		if (__atomic_exchange_n(&qp->resp.ack_went_ahead, false, __ATOMIC_RELAXED))
			__atomic_store_n(&qp->resp.ack_piggybacks, true, __ATOMIC_RELAXED);
		return false;
	}
	lock_acquire(&qp->resp.rq_lock);
	/* pairs with ack_owe */
	word = __atomic_exchange_n(&qp->resp.ack_word, 0, __ATOMIC_ACQUIRE);
	if ((word & ACK_OWED) != 0 && qp->dest != NULL)
		sent = ack_send(qp, AETH_ACK, word);
	lock_release(&qp->resp.rq_lock);
	return sent;
}

static void ack_flush_list(struct list_head *list)
{
	struct list_head again;
	struct list_head *node;

	list_init(&again);
	while ((node = list_pop_front(list)) != NULL) {
		struct ibt_qp *qp = list_entry(node, struct ibt_qp, resp.ack_node);

		ack_settle(qp);
		if (ack_is_owed(qp))
			ack_flush(qp);
		qp->resp.ack_listed = ack_is_owed(qp); /* there was no room */
		if (qp->resp.ack_listed)
			list_push_back(&again, &qp->resp.ack_node);
	}
	list_splice(&again, list);
}

void ack_batch_end(struct path_dest *from, bool idle)
{
	if (unlikely(absent_is_owed(from)))
		absent_tell(from);
	else if (likely(list_empty(&from->acks_now) && !idle))
		return;
	ack_flush_list(&from->acks_now);
	if (idle)
		ack_flush_list(&from->acks);
	/* What could not be sent now is looked at again on the next idle poll. */
	list_splice(&from->acks_now, &from->acks);
	__atomic_store_n(&from->acks_owed, !list_empty(&from->acks) || absent_is_owed(from),
			 __ATOMIC_RELAXED);
}

void ack_return(struct ibt_qp *qp, u32 psn)
{
	u32 none = 0;

	__atomic_compare_exchange_n(&qp->resp.ack_word, &none, ACK_OWED | psn, false,
				    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* It may be on none of its destination's lists: without room it waits for the next call. Tried once
 * more then, for room that came in between. */
void ack_resume(struct ibt_qp *qp)
{
	for (int i = 0; i < 2 && ack_is_owed(qp); i++) {
		if (i == 1)
			block_wait(qp, qp->dest);
		ack_send(qp, AETH_ACK,
			      __atomic_exchange_n(&qp->resp.ack_word, 0, __ATOMIC_ACQUIRE));
	}
}
