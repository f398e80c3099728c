/* xrc_conn.h: what an XRC target has beside other queue pairs, and the proxy of one of another
 * process. */
#ifndef IBT_XRC_XRC_CONN_H
#define IBT_XRC_XRC_CONN_H

#include "ibt/ibt_qp.h"

struct forward;

struct xrc_conn {
	u64 xrcd WRITTEN_UNDER(responder.rq_lock); /* the number of its domain */
	/* requests for SRQs of other processes: forward.h. NULL: there were none */
	struct forward *forward WRITTEN_UNDER(responder.rq_lock);

	/* Of a proxy only: proxy.h. */
	struct list_head node OWNED_BY(callbacks of the first path); /* ibt.proxies */
	struct ibt_qp *qp FIXED;
	struct ibt_counters counters GUARDS_ITSELF;
	u32 initiator OWNED_BY(callbacks of the first path); /* its number, for completions */
	u32 serial OWNED_BY(callbacks of the first path); /* of the target's connection */
	bool open OWNED_BY(callbacks of the first path); /* no refusal since the last HAND_OPEN */

	/* responder.srq_copy: the receive request that the message at hand has taken */
	struct recv_wqe copy OWNED_BY(responder.rq_lock);
};

/* Of a target or a proxy. */
static inline struct xrc_conn *xrc_conn(const struct ibt_qp *qp)
{
	return container_of(qp->resp.srq_copy, struct xrc_conn, copy);
}

/* May another process of the domain have this number? Its slot is the process', as that of a queue
 * pair's number is; slot 0 is nobody's. */
static inline bool xrc_is_foreign(const struct ibt_qp *qp, u32 srqn)
{
	return xrc_conn(qp)->xrcd >= IBT_XRC_SHARED &&
	       srqn >> IBT_INDEX_BITS != qp->qpn >> IBT_INDEX_BITS && srqn >> IBT_INDEX_BITS != 0 &&
	       qp->ibt->paths[0]->guarantees.reliable;
}

#endif
