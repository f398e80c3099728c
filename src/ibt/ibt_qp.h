/* ibt_qp.h: a queue pair, and the questions about its state that every role asks. */
#ifndef IBT_IBT_QP_H
#define IBT_IBT_QP_H

#include <string.h>

#include "ibt/instance.h"
#include "ibt/psn.h"
#include "ibt/send/requester_state.h"
#include "ibt/receive/responder_state.h"
#include "ibt/receive/srq.h"
#include "ibt/traits.h"
#include "ibt/send/wqe.h"

enum { IBT_DEFAULT_PKEY = 0xffff, PKEY_BASE_MASK = 0x7fff, PKEY_FULL_MEMBER = 0x8000 };
/* Of qp->takes, instead of a type: an alternate path counts (alternate.h); the port is down. */
enum { QP_TAKES_WATCHED = 0xfe, QP_TAKES_NONE = 0xff };
enum { PULL_BYTES = 1 << 20 }; /* of a PKT_PULL, at most: others want the engine too */

struct alternate;

struct ibt_qp {
	/* fixed from creation on */
	struct ibt *ibt FIXED;
	u32 qpn FIXED;
	/* An XRC target has that of the SRQ which the request at hand names, under resp.rq_lock */
	u32 pd FIXED;
	u8 packet_type FIXED; /* pkt.qp_type of its packets */
	/* of each send request: SIGNALED if all are, WQE_COUNTED */
	u8 post_flags WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	bool quick WRITTEN_UNDER(req.sq_lock, resp.rq_lock); /* RC, on a path with send_briefs */
	/* log2 of the payload of one packet */
	u8 psn_shift WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	u16 pkey WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	u8 traits FIXED; /* enum ibt_trait, of its type */
	/* pkt.qp_type of the packets that it takes: its own type, or QP_TAKES_*. Read
	 * without a lock by the thread that receives */
	u8 takes WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	struct cq *send_cq FIXED; /* NULL: an XRC target */
	/* An XRC initiator has neither, a target those of the message at hand, under
	 * resp.rq_lock: xrc.c */
	struct cq *recv_cq FIXED;
	struct ibt_srq *srq FIXED;
	struct ibt_counters *counters FIXED;

	/* the connection */
	u8 state WRITTEN_UNDER(req.sq_lock, resp.rq_lock); /* enum ibv_qp_state */
	/* The peer's process died while no request was outstanding: the next one ends with
	 * RETRY_EXC_ERR, as it would with an adapter that has heard of nothing. */
	bool owes_retry_exc WRITTEN_UNDER(req.sq_lock);
	/* the path loses or reorders packets */
	bool lossy WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	/* lossy, and RC: `stream` is in use */
	bool streams WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	u32 dest_qpn WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	struct path_dest *dest WRITTEN_UNDER(req.sq_lock, resp.rq_lock); /* RC, UC */
	/* What the path calls `dest` when packets come from there, where it is known to be the
	 * same although it has another address. Only to compare with */
	const struct path_dest *heard_as ATOMIC_ONLY;
	struct path_grant grant WRITTEN_UNDER(req.sq_lock); /* of `dest` and `dest_qpn` */

	/* each begins at a line of its own, with its lock */
	struct requester req GUARDS_ITSELF;
	struct responder resp GUARDS_ITSELF;

	/* cold: read on no fast path */
	/* COMP_CONTRADICTED | first PSN of the request whose PSN the peer has contradicted; 0:
	 * none */
	u32 contradicted_psn WRITTEN_UNDER(req.sq_lock);
	u32 access WRITTEN_UNDER(req.sq_lock, resp.rq_lock); /* remote access flags */
	u32 qkey WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	/* the adapter is gone: the state is ERR for good */
	bool unplugged WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	/* of its port: (1 << LMC) - 1 */
	u8 lid_mask WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	bool has_bound WRITTEN_UNDER(req.sq_lock); /* windows of type 2 may name it */
	u32 drain_stop WRITTEN_UNDER(req.sq_lock); /* SQD: what comes before it is to be finished */
	u8 given_rings FIXED; /* bit by enum queue_kind: its memory came from `memory` */
	u8 device FIXED;      /* ibt_qp_init */
	/* what query_qp shows */
	struct ibv_qp_attr attr WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	struct path_av av WRITTEN_UNDER(req.sq_lock, resp.rq_lock);
	struct list_head blocked_node OWNED_BY(path_dest.blocked_lock); /* dest->blocked */
	struct alternate *alternate WRITTEN_UNDER(req.sq_lock,
						  resp.rq_lock); /* NULL: no alternate path */
	const struct queue_memory *memory FIXED; /* for the queues; NULL: the heap */
};
/* A field too many costs each queue pair a cache line: use the holes. */
_Static_assert(sizeof(struct requester) == 5 * CACHE_LINE, "the requester has grown");
_Static_assert(sizeof(struct responder) == 4 * CACHE_LINE, "the responder has grown");
_Static_assert(sizeof(struct ibt_qp) == 15 * CACHE_LINE, "a queue pair has grown");

/* The driver's queue pair, in front of the engine's. */
static inline void *qp_owner(const struct ibt_qp *qp)
{
	return cq_source_qp(&qp->req.source);
}

/* How many send requests the consumer has posted whose places are not free: their completions, or
 * later ones, have not been polled. */
static inline u32 sq_used(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return cq_unpolled(&qp->req.source, qp->req.head);
}

/* The same of receive requests. */
static inline u32 rq_used(const struct ibt_qp *qp) REQUIRES(qp->resp.rq_lock)
{
	return cq_unpolled(&qp->resp.source, qp->resp.head);
}

/* The element of the send queue with this free-running index. */
static inline struct send_wqe *sq_at(const struct ibt_qp *qp, u32 index)
{
	return (struct send_wqe *)(qp->req.ring.memory +
				   (size_t)(index & qp->req.ring.mask) * qp->req.ring.stride);
}

/* One peer, whose packets alone it takes? */
static inline bool qp_is_connected(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_CONNECTED) != 0;
}

/* Does it acknowledge and repeat? */
static inline bool qp_is_reliable(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_RELIABLE) != 0;
}

/* RC: brief packets, direct copies, and a receive source that never changes? */
static inline bool qp_takes_fast_paths(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_FAST) != 0;
}

/* Does each of its requests name an SRQ of the peer? */
static inline bool qp_is_initiator(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_INITIATOR) != 0;
}

/* Do the requests that it executes name their SRQ? */
static inline bool qp_is_target(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_TARGET) != 0;
}

/* Does it execute requests for a target of another process? */
static inline bool qp_is_proxy(const struct ibt_qp *qp)
{
	return (qp->traits & TRAIT_PROXY) != 0;
}

/* enum ibv_qp_type. */
static inline u8 qp_own_type(const struct ibt_qp *qp)
{
	return qp_is_initiator(qp) ? (u8)IBV_QPT_XRC_SEND
	       : qp_is_target(qp)	 ? (u8)IBV_QPT_XRC_RECV
				   : qp->packet_type;
}

/* Neither sends nor receives any packet until the port is up again. Either lock, or none: then it
 * is so or has just been. */
static inline bool qp_port_is_down(const struct ibt_qp *qp)
{
	return __atomic_load_n(&qp->takes, __ATOMIC_RELAXED) == QP_TAKES_NONE;
}

/* Is there more to a packet of its than to send it: is the port down, or an alternate path there?
 * As qp_port_is_down. */
static inline bool qp_is_special(const struct ibt_qp *qp)
{
	return __atomic_load_n(&qp->takes, __ATOMIC_RELAXED) >= QP_TAKES_WATCHED;
}

/* What quick_qpns are where small SENDs may go the shortest way; 0: where they may not. */
static inline u64 qp_quick_qpns(const struct ibt_qp *qp)
{
	return qp->quick && !qp_port_is_down(qp) ? (u64)qp->dest_qpn << 32 | qp->qpn : 0;
}

/* Read under either lock, and without any by ibt_qp_state. */
static inline void qp_set_state(struct ibt_qp *qp, enum ibv_qp_state state)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	qp->req.quick_qpns = qp->resp.quick_qpns =
		state == IBV_QPS_RTS ? qp_quick_qpns(qp) : 0;
	__atomic_store_n(&qp->state, (u8)state, __ATOMIC_RELAXED);
}

/* Does the queue pair execute send requests? Either lock. */
static inline bool qp_sends(const struct ibt_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* The requester has something to do. The scheduler runs it when sq_lock is released:
 * sched_leave. */
static inline void qp_mark_runnable(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	qp->req.runnable = true;
}

/* Has any request that is not complete been sent, at least in part? */
static inline bool qp_has_outstanding(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return qp->req.tail != qp->req.next || qp->req.tx_offset != 0;
}

/* Does the queue pair take packets of the peer? Either lock. */
static inline bool qp_receives(const struct ibt_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

/* Does a packet come from the other end of the connection? The caller holds either lock. */
static inline bool qp_is_peer(const struct ibt_qp *qp, const struct path_dest *from,
			      const struct pkt *p)
{
	/* A wire does not name the sender's queue pair. */
	return (p->sqpn == qp->dest_qpn || (p->sqpn == 0 && qp->lossy)) && qp->dest != NULL &&
	       path_is_from(qp->dest, from);
}

/* Counts in the path of the destination, if there is one. Either lock. */
static inline void qp_count(const struct ibt_qp *qp, enum path_counter c)
{
	if (qp->dest != NULL)
		path_count(qp->dest->path, c);
}

/* Counts a packet that is not sent: it has found no room, or the port down. */
static inline void qp_count_discard(const struct ibt_qp *qp)
{
	struct path_traffic *ports = qp->ibt->cfg.traffic;

	if (ports != NULL && qp->device != IBT_NO_DEVICE)
		__atomic_fetch_add(&ports[qp->device].count[TRAFFIC_XMIT_DISCARDS], 1,
				   __ATOMIC_RELAXED);
}

/* Counts a completion with an error. A flush tells nothing of its own: the error before it stays
 * the last. `of`: 0, or IBT_ERROR_OF_RECEIVE. */
static inline void qp_count_error(const struct ibt_qp *qp, enum ibv_wc_status status, u32 of)
{
	__atomic_fetch_add(&qp->counters->errors, 1, __ATOMIC_RELAXED);
	if (status != IBV_WC_WR_FLUSH_ERR)
		__atomic_store_n(&qp->counters->last_error, (u32)status | of, __ATOMIC_RELAXED);
}

/* Payload bytes of a full packet. */
static inline u32 qp_packet_bytes(const struct ibt_qp *qp)
{
	return 1u << qp->psn_shift;
}

#endif
