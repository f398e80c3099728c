/* ack.h: acknowledgements that the responder owes. */
#ifndef IBT_RECEIVE_ACK_H
#define IBT_RECEIVE_ACK_H

#include "ibt/ibt_qp.h"

/* Acknowledges everything before resp.epsn: at the end of the batch if the peer asked (`urgent`),
 * else in an idle moment. `from`: where the request came from, whose callback runs. */
void ack_owe(struct ibt_qp *qp, struct path_dest *from, bool urgent)
	REQUIRES(qp->resp.rq_lock);
/* Sends an acknowledgement or a NAK of `psn` now. True: the path has taken it, and all that was
 * sent before it. False: an acknowledgement is owed again; a NAK is lost, and the next packet out
 * of sequence causes another. */
bool ack_send(struct ibt_qp *qp, u8 syndrome, u32 psn) REQUIRES(qp->resp.rq_lock);
/* Sends an owed acknowledgement as a packet of its own, behind packets just sent: on a path that
 * piggybacks none it still shares their flush. The caller holds sq_lock. True: sent, and
 * flushed. */
bool ack_ride(struct ibt_qp *qp) EXCLUDES(qp->resp.rq_lock);
/* Sends an owed acknowledgement if the path has room; else registers for room and tries once
 * more. */
void ack_resume(struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock);
/* path_user.batch_end: sends what is owed to `from` at the end of a batch, with `idle` all. */
void ack_batch_end(struct path_dest *from, bool idle);
/* Gives back an acknowledgement that ack_take took and whose packet was not sent; a newer one that
 * is owed meanwhile counts instead. No lock. */
void ack_return(struct ibt_qp *qp, u32 psn);

/* Is an acknowledgement owed? A hint unless rq_lock is held. */
static inline bool ack_is_owed(const struct ibt_qp *qp)
{
	return (__atomic_load_n(&qp->resp.ack_word, __ATOMIC_RELAXED) & ACK_OWED) != 0;
}

/* Nothing was owed when a message went: if an acknowledgement was sent before it, the next one may
 * be piggybacked. */
static inline void ack_missed_ride(struct ibt_qp *qp)
{
	if (unlikely(__atomic_load_n(&qp->resp.ack_went_ahead, __ATOMIC_RELAXED))) {
		__atomic_store_n(&qp->resp.ack_went_ahead, false, __ATOMIC_RELAXED);
		__atomic_store_n(&qp->resp.ack_piggybacks, true, __ATOMIC_RELAXED);
	}
}

/* Takes the owed acknowledgement to piggyback it: ACK_OWED | PSN, or 0. The caller sends it, or
 * gives it back by ack_return. */
static inline u32 ack_take(struct ibt_qp *qp)
{
	if (__atomic_load_n(&qp->resp.ack_word, __ATOMIC_RELAXED) & ACK_OWED)
		/* Whoever clears the word sends it; pairs with ack_owe. */
		return __atomic_exchange_n(&qp->resp.ack_word, 0, __ATOMIC_ACQUIRE);
	ack_missed_ride(qp);
	return 0;
}

#endif
