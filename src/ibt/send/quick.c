/* quick.c: the two posts, and the fast path of a small SEND: RC, one piece of memory, in sequence,
 * on a reliable path, with nothing left unsent before it. All other requests take the general path
 * (post.c, requester.c, responder.c, completer.c) from the beginning: a quick function that returns
 * false has changed no state.
 *
 * In: requests, or a brief packet    Out: brief packets, or completions
 * Runs: the poster; the receiving thread    Locks: sq_lock; rq_lock, then the CQ's
 */
#include "ibt/receive/ack.h"
#include "ibt/send/completer.h"
#include "ibt/send/packet.h"
#include "ibt/send/post.h"
#include "ibt/send/quick.h"
#include "ibt/sched.h"
#include "ibt/table.h"
#include "ibt/send/write.h"

enum { QUICK_LIST = 16 };

/* What the short way needs of a request, read once. */
struct quick_request {
	u64 addr;
	u32 length, lkey;
	u32 flags; /* enum ibv_send_flags, with SIGNALED where the queue pair says so */
} OWNED_BY(the caller);

static inline bool quick_read(const struct ibt_qp *qp, const struct ibv_send_wr *wr,
			      struct quick_request *r) REQUIRES(qp->req.sq_lock)
{
	const struct ibv_sge *sge = wr->sg_list;

	if (unlikely(wr->num_sge != 1 || wr->opcode != IBV_WR_SEND))
		return false;
	r->addr = sge->addr;
	r->length = sge->length;
	r->lkey = sge->lkey;
	r->flags = wr->send_flags | qp->post_flags;
	return likely(r->length - 1 < PKT_BRIEF_BYTES && (r->flags & IBV_SEND_FENCE) == 0 &&
		      sq_used(qp) < qp->req.ring.size);
}

/* The bytes to send, where the consumer has them. NULL: look closer. */
static inline const void *quick_find(const struct ibt_qp *qp, const struct quick_request *r)
	REQUIRES(qp->req.sq_lock)
{
	if (r->flags & IBV_SEND_INLINE)
		return likely(r->length <= qp->req.max_inline) ? (const void *)(uintptr_t)r->addr
							   : NULL;
	return mem_plain(qp->ibt->cfg.mem, qp->pd, r->lkey, r->addr, r->length, 0);
}

/* Writes a request down as the next of the queue; inline data stays with it until it completes. */
static inline void quick_record(struct ibt_qp *qp, u64 wr_id, const struct quick_request *r)
	REQUIRES(qp->req.sq_lock)
{
	struct send_wqe *w = sq_at(qp, qp->req.head); /* there is none in a queue of size 0 */

	if (r->flags & IBV_SEND_INLINE) {
		/* The packet has gone: if the bytes have, too, another thread has taken them away
		 * meanwhile. */
		if (!fault_small_copy(w->sge, (const void *)(uintptr_t)r->addr, r->length))
			memset(w->sge, 0, r->length);
		w->sge_count = 0;
	} else {
		w->sge[0].addr = r->addr;
		w->sge[0].length = r->length;
		w->sge[0].lkey = r->lkey;
		w->sge_count = 1;
	}
	w->wr_id = wr_id;
	w->opcode = IBV_WR_SEND;
	w->flags = (u8)r->flags;
	w->answered = w->pull = false;
	w->length = r->length;
	w->first_psn = qp->req.psn;
	w->psn_count = 1;
	qp->req.next = ++qp->req.head;
	qp->req.psn = (qp->req.psn + 1) & PSN_MASK;
}

static inline void quick_fill_packet(struct ibt_qp *qp, struct pkt_brief *b,
				     const struct quick_request *r) REQUIRES(qp->req.sq_lock)
{
	u32 ack = ack_take(qp);
	u32 flags = (r->flags >> 2 & PKT_SOLICITED) |
		    (packet_wants_ack(qp, r->flags) ? PKT_ACK_REQUEST : 0) |
		    (ack >> 31) * PKT_HAS_ACK;

	b->kind = PKT_BRIEF_KIND | flags << 8;
	b->length = r->length;
	b->qpns = qp->req.quick_qpns << 32 | qp->req.quick_qpns >> 32;
	b->psns = (u64)(ack & PSN_MASK) << 32 | qp->req.psn;
}
_Static_assert(IBV_SEND_SOLICITED == PKT_SOLICITED << 2 && ACK_OWED == 1u << 31,
	       "quick_fill_packet knows the bits");

/* Reads a request and fills its packet: the bytes to send, or NULL: look closer. */
static inline const void *quick_prepare(struct ibt_qp *qp, const struct ibv_send_wr *wr,
					struct quick_request *r, struct pkt_brief *b)
	REQUIRES(qp->req.sq_lock)
{
	const void *data = likely(quick_read(qp, wr, r)) ? quick_find(qp, r) : NULL;

	if (likely(data != NULL))
		quick_fill_packet(qp, b, r);
	return data;
}

/* Requests that go to the path together. */
struct quick_list {
	struct pkt_brief brief[QUICK_LIST];
	const void *data[QUICK_LIST];
} OWNED_BY(the caller);

static inline bool quick_take(struct ibt_qp *qp, struct quick_list *l, u32 at,
			      const struct ibv_send_wr *wr) REQUIRES(qp->req.sq_lock)
{
	struct quick_request r;

	l->data[at] = quick_prepare(qp, wr, &r, &l->brief[at]);
	if (unlikely(l->data[at] == NULL))
		return false;
	quick_record(qp, wr->wr_id, &r);
	return true;
}

/* The path has taken only so many of them: as if the others had not been posted. */
static NOINLINE void quick_untake(struct ibt_qp *qp, const struct quick_list *l, u32 count,
				  u32 taken) REQUIRES(qp->req.sq_lock)
{
	qp->req.next = qp->req.head -= count - taken;
	qp->req.psn = (u32)l->brief[taken].psns;
	/* An acknowledgement that is owed rode on one of them; the latest counts. */
	for (u32 i = count; i-- != taken;)
		if (l->brief[i].kind & PKT_HAS_ACK << 8)
			ack_return(qp, (u32)(l->brief[i].psns >> 32));
}

/* Sends as many as go together, up to the first that is not so simple, and returns what is left. */
static inline struct ibv_send_wr *quick_send(struct ibt_qp *qp, struct ibv_send_wr *wr)
	REQUIRES(qp->req.sq_lock)
{
	const struct path_ops *ops = qp->dest->path->ops;
	struct ibv_send_wr *left = wr;
	struct quick_list list;
	u32 count = 0, taken;

	while (left != NULL && count < QUICK_LIST && quick_take(qp, &list, count, left)) {
		left = left->next;
		count++;
	}
	if (unlikely(count == 0))
		return wr;
	taken = ops->send_briefs(qp->dest, list.brief, list.data, count);
	if (unlikely(taken != count)) {
		quick_untake(qp, &list, count, taken);
		for (left = wr; taken != 0; taken--)
			left = left->next;
	}
	/* after 0, too: at worst a needless bell, and 0 is too rare to be worth a test each time */
	ops->flush(qp->dest);
	return left;
}

/* The same for a single one. The peer sees it first; then it is recorded, while it is in flight:
 * its response waits for sq_lock. */
static inline bool quick_send_one(struct ibt_qp *qp, const struct ibv_send_wr *wr)
	REQUIRES(qp->req.sq_lock)
{
	const struct path_ops *ops = qp->dest->path->ops;
	struct quick_request r;
	struct pkt_brief brief;
	const void *data = quick_prepare(qp, wr, &r, &brief);

	if (unlikely(data == NULL))
		return false;
	if (unlikely(ops->send_briefs(qp->dest, &brief, &data, 1) == 0)) {
		if (brief.kind & PKT_HAS_ACK << 8)
			ack_return(qp, (u32)(brief.psns >> 32));
		return false;
	}
	quick_record(qp, wr->wr_id, &r);
	ops->flush(qp->dest);
	return true;
}

static inline bool quick_may_send(const struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	return qp->req.quick_qpns != 0 && qp->req.waiting == WAIT_NONE &&
	       qp->req.next == qp->req.head;
}

/* What is left when as many as possible have gone the short way. `before`: one that has been
 * refused there. */
static NOINLINE struct ibv_send_wr *quick_send_list(struct ibt_qp *qp, struct ibv_send_wr *wr,
						    const struct ibv_send_wr *before)
	REQUIRES(qp->req.sq_lock)
{
	while (wr != before && quick_may_send(qp)) {
		before = wr;
		if (wr->opcode == IBV_WR_SEND)
			wr = quick_send(qp, wr);
		else if (wr->opcode == IBV_WR_RDMA_WRITE)
			wr = write_post(qp, wr);
		if (wr == NULL)
			break;
	}
	return wr;
}

void ibt_qp_fetch(const struct ibt_qp *qp)
{
	__builtin_prefetch(qp);
	__builtin_prefetch(&qp->dest);
	__builtin_prefetch(&qp->req.sq_lock, 1);
}

int ibt_post_send(struct ibt_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		  ibt_av_of *av_of)
{
	/* Of many queue pairs this one's lines may be far away: all of them at once. */
	__builtin_prefetch(qp);
	__builtin_prefetch(&qp->dest);
	lock_acquire(&qp->req.sq_lock);
	if (likely(wr != NULL && quick_may_send(qp))) {
		const struct ibv_send_wr *first = wr;
		bool writes = wr->opcode == IBV_WR_RDMA_WRITE;

		if (writes)
			wr = write_post(qp, wr);
		else if (wr->opcode == IBV_WR_SEND && wr->next == NULL)
			wr = likely(quick_send_one(qp, wr)) ? NULL : wr;
		if (unlikely(wr != NULL))
			wr = quick_send_list(qp, wr, writes ? first : NULL);
		if (likely(wr == NULL)) {
			lock_release(&qp->req.sq_lock);
			return 0;
		}
	}
	return post_send(qp, wr, bad, av_of);
}

static inline void quick_fill_recv(struct recv_wqe *w, const struct ibv_recv_wr *wr)
{
	w->wr_id = wr->wr_id;
	w->sge_count = 1;
	w->length = w->sge[0].length = wr->sg_list->length;
	w->sge[0].addr = wr->sg_list->addr;
	w->sge[0].lkey = wr->sg_list->lkey;
}

int ibt_post_recv(struct ibt_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	lock_acquire(&qp->resp.rq_lock);
	if (unlikely(qp->state != IBV_QPS_RTS) &&
	    (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_ERR))
		return post_recv(qp, wr, bad);
	/* With a shared queue the size of its own is 0. */
	while (likely(wr != NULL && wr->num_sge == 1 && rq_used(qp) < qp->resp.ring.size &&
		      qp->resp.ring.max_sge != 0)) {
		quick_fill_recv(wqe_recv_at(&qp->resp.ring, qp->resp.head++), wr);
		wr = wr->next;
	}
	if (unlikely(wr != NULL))
		return post_recv(qp, wr, bad);
	lock_release(&qp->resp.rq_lock);
	return 0;
}

/* Does it come from the other end of the connection, which has `qpns`? The caller holds either
 * lock. */
static inline bool quick_is_peer(const struct ibt_qp *qp, const struct path_dest *from,
				 const struct pkt_brief *b, u64 qpns)
{
	return b->qpns == qpns &&
	       (qp->dest == from || __atomic_load_n(&qp->heard_as, __ATOMIC_RELAXED) == from);
}

static inline bool quick_expects(const struct ibt_qp *qp, const struct path_dest *from,
				 const struct pkt_brief *b) REQUIRES(qp->resp.rq_lock)
{
	/* With a shared queue nothing ever lies in its own. */
	return quick_is_peer(qp, from, b, qp->resp.quick_qpns) && (u32)b->psns == qp->resp.epsn &&
	       qp->resp.owed == 0 && qp->resp.message == 0 && qp->resp.current == NULL &&
	       qp->resp.tail != qp->resp.head && qp->resp.resource_next == qp->resp.resource_head;
}

/* Copies into the oldest receive request and completes it. */
static ALWAYS_INLINE bool quick_deliver(struct ibt_qp *qp, const struct pkt_brief *b,
					const void *payload)
	REQUIRES(qp->resp.rq_lock)
{
	const struct recv_wqe *w = wqe_recv_at(&qp->resp.ring, qp->resp.tail);
	struct ibv_wc *wc;
	struct cqe *e;
	void *to;

	if (unlikely(w->sge_count != 1 || b->length > w->sge[0].length))
		return false;
	to = mem_plain(qp->ibt->cfg.mem, qp->pd, w->sge[0].lkey, w->sge[0].addr, b->length,
		       IBV_ACCESS_LOCAL_WRITE);
	if (unlikely(to == NULL))
		return false;
	if (unlikely(!fault_small_copy(to, payload, b->length)))
		return false;
	wc = cq_hand(qp->recv_cq);
	if (wc != NULL) {
		wc_set(wc, w->wr_id, IBV_WC_SUCCESS, IBV_WC_RECV, b->length, qp->qpn, qp->dest_qpn);
		cq_polled(&qp->resp.source, qp->resp.tail + 1);
		return true;
	}
	e = cq_reserve(qp->recv_cq);
	if (unlikely(!e))
		return false;
	cqe_set(e, w->wr_id, IBV_WC_SUCCESS, IBV_WC_RECV, b->length, qp->qpn, qp->dest_qpn,
		&qp->resp.source, qp->resp.tail + 1);
	cq_commit(qp->recv_cq, e, (b->kind & PKT_SOLICITED << 8) != 0);
	return true;
}

static inline void quick_count(struct ibt_counters *c, u32 bytes)
{
	__atomic_store_n(&c->received, c->received + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&c->received_bytes, c->received_bytes + bytes, __ATOMIC_RELAXED);
}

static inline bool quick_tell_sent(struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	struct ibv_wc *wc = cq_hand(qp->send_cq);
	struct cqe *e;

	if (wc != NULL) {
		wc_set(wc, w->wr_id, IBV_WC_SUCCESS, IBV_WC_SEND, w->length, qp->qpn, 0);
		cq_polled(&qp->req.source, qp->req.tail + 1);
		return true;
	}
	e = cq_reserve(qp->send_cq);
	if (unlikely(!e))
		return false;
	cqe_set(e, w->wr_id, IBV_WC_SUCCESS, IBV_WC_SEND, w->length, qp->qpn, 0, &qp->req.source,
		qp->req.tail + 1);
	cq_commit(qp->send_cq, e, false);
	return true;
}

/* Completes the oldest request; false: its CQ has no room. */
static inline bool quick_retire(struct ibt_qp *qp, const struct send_wqe *w)
	REQUIRES(qp->req.sq_lock)
{
	struct ibt_counters *c = qp->counters;

	if ((w->flags & IBV_SEND_SIGNALED) && unlikely(!quick_tell_sent(qp, w)))
		return false;
	__atomic_store_n(&c->sent, c->sent + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&c->sent_bytes, c->sent_bytes + w->length, __ATOMIC_RELAXED);
	/* as in finish_pop */
	__atomic_store_n(&qp->req.tail, qp->req.tail + 1, __ATOMIC_RELAXED);
	return true;
}

/* An acknowledgement that came along: mostly of the one request that is outstanding. */
static inline void quick_take_ack(struct ibt_qp *qp, u32 psn) REQUIRES(qp->req.sq_lock)
{
	const struct send_wqe *w = sq_at(qp, qp->req.tail);

	if (likely(qp->req.tail != qp->req.next && qp->req.next == qp->req.head &&
		   w->first_psn == psn && w->opcode == IBV_WR_SEND && w->psn_count == 1 &&
		   qp->req.waiting == WAIT_NONE && quick_retire(qp, w))) {
		qp->req.retry_left = qp->attr.retry_cnt;
		qp->req.rnr_left = qp->attr.rnr_retry;
	} else if (likely(psn_ahead(psn, qp->req.psn) < 0)) {
		comp_ack(qp, psn);
		sched_run_marked(qp);
	} else {
		comp_beyond(qp, psn);
	}
}

static inline bool quick_asks_ack(const struct pkt_brief *b)
{
	return (b->kind & PKT_ACK_REQUEST << 8) != 0;
}

/* It has been delivered. */
static inline void quick_advance(struct ibt_qp *qp, const struct pkt_brief *b)
	REQUIRES(qp->resp.rq_lock)
{
	qp->resp.tail++;
	qp->resp.nak_sent = false;
	qp->resp.epsn = (qp->resp.epsn + 1) & PSN_MASK;
	qp->resp.msn = (qp->resp.msn + 1) & PSN_MASK;
	quick_count(qp->counters, b->length);
}

bool quick_receive(void *user, struct path_dest *from, const struct pkt_brief *b,
		   const void *payload)
{
	struct ibt_qp *qp = table_lookup(user, (u32)b->qpns & 0xffffff);
	bool done;

	if (unlikely(qp == NULL))
		return false;
	if (likely(b->kind & PKT_HAS_ACK << 8)) {
		lock_acquire(&qp->req.sq_lock);
		if (likely(quick_is_peer(qp, from, b, qp->req.quick_qpns)))
			quick_take_ack(qp, (u32)(b->psns >> 32));
		lock_release(&qp->req.sq_lock);
	}
	lock_acquire(&qp->resp.rq_lock);
	done = likely(quick_expects(qp, from, b)) && quick_deliver(qp, b, payload);
	if (likely(done)) {
		quick_advance(qp, b);
		ack_owe(qp, from, quick_asks_ack(b));
	}
	lock_release(&qp->resp.rq_lock);
	return done;
}

/* How many of them follow each other in one connection, up to one that bears an acknowledgement. */
static inline u32 quick_run_length(const struct pkt_brief *b, u32 n)
{
	u32 i = 0;

	while (i < n && b[i].qpns == b[0].qpns && (b[i].kind & PKT_HAS_ACK << 8) == 0 &&
	       (u32)b[i].psns == (((u32)b[0].psns + i) & PSN_MASK))
		i++;
	return i;
}

/* The first is expected. What has come is owed an acknowledgement where the peer asks, and in the
 * end: what is owed in between makes no difference. */
static inline u32 quick_deliver_run(struct ibt_qp *qp, struct path_dest *from,
				    const struct pkt_brief *b, const void *const *payload, u32 n)
	REQUIRES(qp->resp.rq_lock)
{
	u32 i;

	n = MIN(n, qp->resp.head - qp->resp.tail);
	for (i = 0; i < n && likely(quick_deliver(qp, &b[i], payload[i])); i++) {
		quick_advance(qp, &b[i]);
		if (quick_asks_ack(&b[i]))
			ack_owe(qp, from, true);
	}
	if (i != 0 && !quick_asks_ack(&b[i - 1]))
		ack_owe(qp, from, false);
	return i;
}

u32 quick_receive_run(void *user, struct path_dest *from, const struct pkt_brief *b,
		      const void *const *payload, u32 n)
{
	struct ibt_qp *qp = table_lookup(user, (u32)b->qpns & 0xffffff);
	u32 taken = 0;

	n = quick_run_length(b, n);
	if (unlikely(qp == NULL || n == 0))
		return 0;
	lock_acquire(&qp->resp.rq_lock);
	if (likely(quick_expects(qp, from, b)))
		taken = quick_deliver_run(qp, from, b, payload, n);
	lock_release(&qp->resp.rq_lock);
	return taken;
}
