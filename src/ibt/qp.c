/* qp.c: a queue pair's life: created, connected, failed, reset, destroyed; and the two posts of
 * what is not as simple as quick.c wants it.
 * In: verbs    Out: a queue pair that requester, responder and completer work on
 * Runs: the caller's thread    Locks: sq_lock, then rq_lock
 * Spec: IBA vol 1, 10.3 (states), 11.2.5 (modify)
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/line.h"
#include "ibt/block.h"
#include "ibt/send/accord.h"
#include "ibt/send/finish.h"
#include "ibt/xrc/forward.h"
#include "ibt/lossy/loss.h"
#include "ibt/migrate/migrate.h"
#include "ibt/qp.h"
#include "ibt/lossy/rate.h"
#include "ibt/receive/refuse.h"
#include "ibt/receive/responder.h"
#include "ibt/sched.h"
#include "ibt/lossy/stream.h"
#include "ibt/table.h"
#include "ibt/tagged/tm_rndv.h"
#include "ibt/tagged/tm_wc.h"
#include "ibt/xrc/xrc.h"

enum { QP_LEAVE_MS = 100 };

/* The board grants direct copies to RC and UC only: an XRC target's access is that of the SRQ. */
static bool qp_copies_directly(const struct ibt_qp *qp)
{
	return !qp_is_initiator(qp);
}

static int qp_check_init(const struct ibt_qp_init *init)
{
	const struct ibt_traits *type = ibt_traits_of(init->type);
	const struct ibv_qp_cap *cap = &init->cap;

	if (cap->max_send_wr > IBT_MAX_WR || cap->max_send_sge > IBT_MAX_SGE ||
	    cap->max_inline_data > IBT_MAX_INLINE)
		return -EINVAL;
	/* With an SRQ there is no receive queue. */
	if (init->srq == NULL &&
	    (cap->max_recv_wr > IBT_MAX_WR || cap->max_recv_sge > IBT_MAX_SGE))
		return -EINVAL;
	if (type == NULL)
		return -EOPNOTSUPP;
	if (init->send_cq == NULL && (type->traits & TRAIT_TARGET) == 0)
		return -EINVAL;
	if (init->srq == NULL)
		return 0;
	if ((type->traits & TRAIT_SRQ) == 0)
		return -EINVAL;
	/* A rendezvous READs by this queue pair into the SRQ's buffers, so both have one PD. */
	return srq_matches_tags(init->srq) &&
			       ((type->traits & TRAIT_TAGS) == 0 || init->pd != init->srq->pd) ?
		       -EINVAL :
		       0;
}

/* Of the queues that the type does not have. */
static void qp_drop_caps(struct ibt_qp_init *init)
{
	const struct ibt_traits *type = ibt_traits_of(init->type);
	u8 traits = type == NULL ? 0 : type->traits;

	if (traits & TRAIT_TARGET)
		init->cap.max_send_wr = init->cap.max_send_sge = init->cap.max_inline_data = 0;
	if (traits & (TRAIT_TARGET | TRAIT_INITIATOR))
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
}

/* With an SRQ, or many: a copy of the request that a message has taken. */
static int qp_alloc_copy(struct ibt_qp *qp, struct ibv_qp_cap *cap)
{
	cap->max_recv_wr = cap->max_recv_sge = 0;
	if (qp_is_target(qp))
		return xrc_conn_create(qp);
	if (tm_is_used(qp))
		return tm_conn_create(qp);
	qp->resp.srq_copy = calloc(1, sizeof(struct recv_wqe) +
					      qp->srq->max_sge * sizeof(struct ibv_sge));
	return qp->resp.srq_copy == NULL ? -ENOMEM : 0;
}

/* Allocates the ring of one queue, and notes whose memory it is. */
static int qp_alloc_ring(struct ibt_qp *qp, struct wqe_ring *ring, enum queue_kind kind, u32 size,
			 u32 stride, u32 max_sge)
{
	struct wqe_memory memory = { .from = qp->memory, .kind = kind };
	int err = wqe_ring_init(ring, size, stride, max_sge, &memory);

	if (memory.is_given)
		qp->given_rings |= (u8)(1 << kind);
	return err;
}

static void qp_free_ring(struct ibt_qp *qp, struct wqe_ring *ring, enum queue_kind kind)
{
	struct wqe_memory memory = { .from = qp->memory,
				     .kind = kind,
				     .is_given = (qp->given_rings & 1 << kind) != 0 };

	wqe_ring_fini(ring, &memory);
}

/* not reachable yet */
static int qp_alloc_rings(struct ibt_qp *qp, struct ibt_qp_init *init) NO_THREAD_SAFETY
{
	struct ibv_qp_cap *cap = &init->cap;
	bool tm = tm_is_used(qp);
	u32 sges = tm ? MAX(cap->max_send_sge, (u32)IBT_TM_MAX_SGE) : cap->max_send_sge;
	u32 stride = wqe_send_stride(sges, cap->max_inline_data);
	int err = qp_alloc_ring(qp, &qp->req.ring, QUEUE_SEND,
				cap->max_send_wr + (tm ? TM_RING : 0), stride, cap->max_send_sge);

	if (tm)
		qp->req.ring.size = cap->max_send_wr; /* the others are the adapter's own */
	cap->max_send_wr = qp->req.ring.size;
	qp->req.no_direct = !qp_copies_directly(qp);
	/* What the alignment of a request leaves over is the consumer's as well. */
	qp->req.max_inline = MIN(stride - (u32)sizeof(struct send_wqe), (u32)IBT_MAX_INLINE);
	if (qp_is_target(qp))
		qp->req.max_inline = 0;
	if (err == 0 && init->srq == NULL)
		err = qp_alloc_ring(qp, &qp->resp.ring, QUEUE_RECV, cap->max_recv_wr, 0,
				    cap->max_recv_sge);
	cap->max_recv_wr = qp->resp.ring.size;
	if (err == 0 && (init->srq != NULL || qp_is_target(qp)))
		err = qp_alloc_copy(qp, cap);
	cap->max_inline_data = qp->req.max_inline;
	return err;
}

static void qp_free(struct ibt_qp *qp) NO_THREAD_SAFETY /* not reachable any more */
{
	qp_free_ring(qp, &qp->req.ring, QUEUE_SEND);
	qp_free_ring(qp, &qp->resp.ring, QUEUE_RECV);
	if (qp_is_target(qp))
		xrc_conn_free(qp);
	else if (tm_is_used(qp))
		tm_conn_free(qp);
	else
		free(qp->resp.srq_copy);
	free(qp->resp.resources);
	free(qp->resp.counted);
	rate_destroy(qp);
	free(qp_owner(qp));
}

LINE_ASSERT_SPARE(struct ibt_qp, memory);

/* With room for its owner in front. */
static struct ibt_qp *qp_alloc(const struct ibt_qp_init *init)
{
	size_t front = (uintptr_t)ibt_qp_behind(NULL, init->owner_bytes);
	u8 *block = line_alloc(front + sizeof(struct ibt_qp));
	struct ibt_qp *qp;

	if (block == NULL)
		return NULL;
	qp = ibt_qp_behind(block, init->owner_bytes);
	cq_source_init(&qp->req.source, block, 0);
	cq_source_init(&qp->resp.source, block, 0);
	return qp;
}

/* Where a completion that is polled frees no place, a request that is complete does. A rendezvous
 * takes places without completions. */
static void qp_init_sources(struct ibt_qp *qp)
{
	bool sends_apart = tm_is_used(qp) || ibt_frees_early(qp->ibt, qp->send_cq);
	bool receives_apart = ibt_frees_early(qp->ibt, qp->recv_cq);

	cq_source_init(&qp->req.source, qp_owner(qp), sends_apart ? CQ_APART : 0);
	cq_source_init(&qp->resp.source, qp_owner(qp),
		       qp->srq != NULL	? CQ_APART | CQ_SHARED
		       : receives_apart ? CQ_APART
					: 0);
}

int ibt_qp_create(struct ibt *ibt, struct ibt_qp_init *init, struct ibt_qp **out)
{
	struct ibt_qp *qp;
	int err;

	qp_drop_caps(init);
	err = qp_check_init(init);
	if (err != 0)
		return err;
	qp = qp_alloc(init);
	if (qp == NULL)
		return -ENOMEM;
	qp->ibt = ibt;
	qp->memory = init->memory;
	qp->qpn = init->qpn;
	qp->pd = init->pd;
	qp->takes = (u8)init->type;
	qp->traits = ibt_traits_of(init->type)->traits;
	qp->packet_type = ibt_traits_of(init->type)->packet_type;
	qp->post_flags = init->sq_sig_all ? IBV_SEND_SIGNALED : 0;
	qp->send_cq = init->send_cq;
	qp->srq = init->srq;
	qp->recv_cq = tm_is_used(qp) ? qp->srq->tm_cq : init->recv_cq;
	qp->resp.pd = qp->srq != NULL ? qp->srq->pd : qp->pd;
	qp->resp.marked = qp->srq != NULL || qp_is_target(qp);
	qp_init_sources(qp);
	qp->counters = init->counters;
	qp->device = init->device;
	qp->req.timer.fn = migrate_timer;
	qp->psn_shift = 12;
	qp->pkey = IBT_DEFAULT_PKEY;
	list_init(&qp->resp.ack_node);
	list_init(&qp->blocked_node);
	list_init(&qp->req.place.node);
	err = qp_alloc_rings(qp, init);
	if (err == 0 && qp_is_target(qp))
		xrc_conn_set_domain(qp, init->xrcd);
	if (err == 0)
		err = table_add(ibt, qp);
	if (err != 0) {
		qp_free(qp);
		return err;
	}
	qp->attr.cap = init->cap;
	*out = qp;
	return 0;
}

/* Off every list of its path; runs while that path is in no callback. */
static void qp_unlist(void *arg)
{
	struct ibt_qp *qp = arg;

	list_remove(&qp->resp.ack_node);
	qp->resp.ack_listed = false;
	lock_acquire(&qp->req.sq_lock);
	block_leave(qp);
	lock_release(&qp->req.sq_lock);
}

static void qp_nothing(void *arg)
{
}

/* The callbacks of its own path alone guard its lists; those of the others are only waited for. One
 * without a destination is on no list of a path. */
static void qp_quiesce(struct ibt_qp *qp)
{
	struct ibt *ibt = qp->ibt;

	timer_cancel_wait(ibt->cfg.timers, &qp->req.timer);
	rate_quiesce(qp);
	forward_quiesce(qp);
	for (u32 i = 0; i < ibt->path_count; i++) {
		struct path *path = ibt->paths[i];
		bool own = qp->dest == NULL ? i == 0 : qp->dest->path == path;

		path->ops->exclude(path, own ? qp_unlist : qp_nothing, qp);
	}
}

/* What a message or a rendezvous has taken of a tag-matching SRQ completes all the same. */
static void qp_give_up_tags(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
	REQUIRES(qp->resp.rq_lock)
{
	if (qp->resp.current != NULL)
		tm_complete(qp, IBV_WC_WR_FLUSH_ERR, NULL, 0);
	tm_rndv_reset(qp);
	tm_flush(qp);
}

static void qp_clear(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	if (tm_is_used(qp))
		qp_give_up_tags(qp);
	qp->req.head = qp->req.next = qp->req.tail = 0;
	qp->req.tx_offset = qp->req.rx_offset = qp->req.reads_out = 0;
	qp->req.waiting = WAIT_NONE;
	qp->req.tx_member = qp->contradicted_psn = 0;
	qp->req.member_timed_out = qp->req.draining = false;
	qp->req.no_direct = !qp_copies_directly(qp);
	qp->resp.head = qp->resp.tail = 0;
	/* As a new one has them. */
	qp->attr = (struct ibv_qp_attr){ .cap = qp->attr.cap };
	qp->access = qp->dest_qpn = qp->qkey = qp->req.psn = qp->resp.epsn = 0;
	if (qp->resp.current != NULL && qp->srq != NULL)
		srq_free_place(qp->srq);
	qp->resp.current = NULL;
	if (qp_is_target(qp))
		xrc_forget(qp);
	qp->resp.message = 0;
	qp->resp.nak_sent = qp->resp.comm_established = false;
	qp->resp.owed = RESP_OK;
	qp->resp.after = 0;
	qp->resp.resource_head = qp->resp.resource_next = 0;
	if (qp->resp.resources != NULL)
		memset(qp->resp.resources, 0,
		       qp->resp.resource_count * sizeof(*qp->resp.resources));
	__atomic_store_n(&qp->resp.ack_word, 0, __ATOMIC_RELAXED);
	qp->resp.uc_run = 0;
	qp->owes_retry_exc = false;
	if (qp->streams)
		window_leave(qp);
	rate_forget(qp);
	qp->req.stream.timing = false;
	qp->streams = qp->lossy = false;
}

/* A full ring may delay the report to the peer; not for long, unless the peer is stopped. */
static void qp_await_leave(struct ibt_qp *qp)
{
	for (int ms = 0; ms < QP_LEAVE_MS && !refuse_has_left(qp); ms++)
		clock_sleep_ns(NS_PER_MS);
}

static void qp_forget(struct ibt_qp *qp)
{
	if (qp->send_cq != NULL)
		cq_forget(qp->send_cq, qp_owner(qp));
	/* Those of an SRQ that has a CQ of its own stay: they name no queue pair. */
	if (qp->recv_cq != NULL && qp->recv_cq != qp->send_cq && !tm_is_used(qp) &&
	    !qp_is_target(qp))
		cq_forget(qp->recv_cq, qp_owner(qp));
}

/* Once none of its completions waits. */
static void qp_free_places(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	cq_polled(&qp->req.source, qp->req.head);
	lock_release(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	cq_polled(&qp->resp.source, qp->resp.head);
	lock_release(&qp->resp.rq_lock);
}

/* To RESET: first no thread finds work in it any more, then the lists, then the completions. */
static void qp_reset(struct ibt_qp *qp)
{
	struct path_dest *dest, *others;
	struct alternate *alternate;

	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	refuse_leave(qp);
	qp_set_state(qp, IBV_QPS_RESET);
	qp->req.waiting = WAIT_NONE;
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
	qp_await_leave(qp);
	qp_quiesce(qp);
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	qp_clear(qp);
	others = window_claim(qp);
	dest = qp->dest;
	qp->dest = NULL;
	alternate = alternate_take(qp);
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
	window_quiesce(qp);
	sched_wake(others);
	if (dest != NULL)
		dest->path->ops->dest_put(dest);
	alternate_free(alternate);
	qp_forget(qp);
	qp_free_places(qp);
}

bool ibt_qp_has_datagrams(struct ibt_qp *qp)
{
	bool unsent;

	if (qp_is_connected(qp))
		return false;
	lock_acquire(&qp->req.sq_lock);
	unsent = qp->state == IBV_QPS_RTS && qp->req.next != qp->req.head;
	lock_release(&qp->req.sq_lock);
	return unsent;
}

void ibt_qp_destroy(struct ibt_qp *qp)
{
	bool has_bound = __atomic_load_n(&qp->has_bound, __ATOMIC_RELAXED);

	table_remove(qp->ibt, qp);
	qp_reset(qp);
	forward_free(qp, false);
	if (has_bound)
		mem_unbind_qp(qp->ibt->cfg.mem, qp->qpn);
	qp_free(qp);
}

void ibt_qp_orphan(struct ibt_qp *qp) NO_THREAD_SAFETY /* the child has one thread */
{
	lock_init(&qp->req.sq_lock);
	lock_init(&qp->resp.rq_lock);
	qp_set_state(qp, IBV_QPS_ERR);
	qp->dest = NULL;
	qp->streams = qp->lossy = qp->quick = false; /* a stream is one with its destination */
	free(qp->alternate);			     /* its destination is the parent's */
	qp->alternate = NULL;
	/* Not back: a completion may be there already of a request that still seems to wait. */
	qp->req.tail = qp->req.next = qp->req.head;
	qp->resp.tail = qp->resp.head;
	if (qp->resp.current != NULL && qp->srq != NULL)
		srq_free_place(qp->srq);
	qp->resp.current = NULL;
	if (tm_is_used(qp))
		tm_conn_orphan(qp);
	forward_free(qp, true);
}

void ibt_qp_free_orphan(struct ibt_qp *qp)
{
	qp_forget(qp);
	qp_free(qp);
}

void ibt_qp_unplug(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	qp->unplugged = true;
	if (qp->state != IBV_QPS_ERR)
		finish_both(qp);
	lock_release(&qp->resp.rq_lock);
	sched_leave(qp);
}

void qp_peer_died(struct ibt_qp *qp, struct path_dest *dest)
{
	bool held;

	lock_acquire(&qp->req.sq_lock);
	if (qp->dest != NULL && path_is_from(qp->dest, dest)) {
		held = dest->path->ops->holds(dest, qp->dest_qpn, 0);
		if (qp_sends(qp) && qp->req.tail != qp->req.head) {
			finish_with_error(qp, IBV_WC_RETRY_EXC_ERR);
		} else if (held && qp_receives(qp)) {
			finish_qp(qp);
			qp->owes_retry_exc = true;
		}
	}
	lock_release(&qp->req.sq_lock);
}

/* ---- modify ---- */

enum {
	QP_ACCESS_KNOWN = IBV_ACCESS_OPTIONAL_RANGE | ((IBV_ACCESS_HUGETLB << 1) - 1) |
			  MEM_ACCESS_FLUSH | MEM_ACCESS_PERSISTENT,
};

static int qp_check_values(const struct ibv_qp_attr *a, int mask)
{
	bool bad = (mask & IBV_QP_ACCESS_FLAGS &&
		    (a->qp_access_flags & ~(u32)QP_ACCESS_KNOWN) != 0) ||
		   (mask & IBV_QP_PATH_MTU &&
		    (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)) ||
		   (mask & IBV_QP_DEST_QPN && a->dest_qp_num > 0xffffff) ||
		   (mask & IBV_QP_MAX_DEST_RD_ATOMIC &&
		    a->max_dest_rd_atomic > IBT_MAX_RD_ATOMIC) ||
		   (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > IBT_MAX_RD_ATOMIC) ||
		   (mask & IBV_QP_TIMEOUT && a->timeout > 31) ||
		   (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) ||
		   (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) ||
		   (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31) ||
		   (mask & IBV_QP_ALT_PATH && a->alt_timeout > 31) ||
		   (mask & IBV_QP_PATH_MIG_STATE && (u32)a->path_mig_state > IBV_MIG_REARM);

	return bad ? -EINVAL : 0;
}

/* Copies what the mask names into what query shows. */
static void qp_take_attr(struct ibt_qp *qp, const struct ibv_qp_attr *a, int mask)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	struct ibv_qp_attr *to = &qp->attr;

	if (mask & IBV_QP_STATE && a->qp_state == IBV_QPS_SQD && qp->state != IBV_QPS_SQD)
		to->en_sqd_async_notify =
			mask & IBV_QP_EN_SQD_ASYNC_NOTIFY ? a->en_sqd_async_notify : 0;
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		qp->qkey = to->qkey = a->qkey;
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		qp->req.retry_left = to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->req.rnr_left = to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		qp->resp.epsn = to->rq_psn = a->rq_psn & PSN_MASK;
	if (mask & IBV_QP_SQ_PSN)
		qp->req.psn = to->sq_psn = a->sq_psn & PSN_MASK;
	if (mask & IBV_QP_SQ_PSN && qp->streams)
		stream_begin(qp);
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		qp->dest_qpn = to->dest_qp_num = a->dest_qp_num;
	if (mask & IBV_QP_ALT_PATH) {
		to->alt_ah_attr = a->alt_ah_attr;
		to->alt_port_num = a->alt_port_num;
		to->alt_timeout = a->alt_timeout;
		to->alt_pkey_index = a->alt_pkey_index;
	}
	/* One that is armed moves first: ibt_qp_modify. */
	if (mask & IBV_QP_PATH_MIG_STATE &&
	    (a->path_mig_state != IBV_MIG_MIGRATED || !alternate_is_armed(qp)))
		to->path_mig_state = a->path_mig_state;
}

static u8 qp_log2(u32 n)
{
	return (u8)(31 - __builtin_clz(n));
}

static void qp_take_dest(struct ibt_qp *qp, const struct path_av *av, struct path_dest *dest)
	REQUIRES(qp->req.sq_lock)
{
	const struct path_guarantees *guarantees = &dest->path->guarantees;
	u8 most = qp_log2(guarantees->mtu);

	if (qp->streams)
		window_leave(qp);
	qp->dest = dest;
	qp->av = *av;
	/* A reliable path cuts no packets of its own size; elsewhere the path MTU of the
	 * connection rules. */
	qp->psn_shift = guarantees->reliable ? most : MIN(most, (u8)(qp->attr.path_mtu + 7));
	qp->lossy = !guarantees->reliable || !guarantees->ordered;
	qp->streams = qp->lossy && qp_is_reliable(qp);
	qp->quick = !qp->lossy && qp_takes_fast_paths(qp) && qp->resp.counted == NULL &&
		    dest->path->ops->send_briefs != NULL;
	accord_begin(qp);
	__atomic_store_n(&qp->heard_as, NULL, __ATOMIC_RELAXED);
}

static int qp_alloc_resources(struct ibt_qp *qp, u32 count) REQUIRES(qp->resp.rq_lock)
{
	struct resp_resource *r = NULL;

	if (count == qp->resp.resource_count)
		return 0;
	if (count != 0 && (r = calloc(count, sizeof(*r))) == NULL)
		return -ENOMEM;
	free(qp->resp.resources);
	qp->resp.resources = r;
	qp->resp.resource_count = count;
	qp->resp.resource_head = qp->resp.resource_next = 0;
	return 0;
}

/* The new state's own doing. */
static void qp_enter(struct ibt_qp *qp, enum ibv_qp_state to) REQUIRES(qp->req.sq_lock)
	REQUIRES(qp->resp.rq_lock)
{
	bool begins = to == IBV_QPS_SQD && qp->state != IBV_QPS_SQD;

	qp_set_state(qp, to);
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	if (to != IBV_QPS_SQD || begins) {
		qp->req.draining = begins;
		qp->attr.sq_draining = begins;
	}
	if (!begins)
		return;
	/* Also what is to be sent again: its first packet has been seen. */
	qp->drain_stop = qp->req.next;
	while (qp->drain_stop != qp->req.head && sq_at(qp, qp->drain_stop)->psn_count != 0)
		qp->drain_stop++;
}

static int qp_modify_locked(struct ibt_qp *qp, const struct ibv_qp_attr *a, int mask,
			    const struct path_av *av, struct path_dest **dest)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	struct path_dest *old = qp->dest;

	if (mask & IBV_QP_CUR_STATE && a->cur_qp_state != (enum ibv_qp_state)qp->state)
		return -EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && qp_alloc_resources(qp, a->max_dest_rd_atomic) != 0)
		return -ENOMEM;
	qp_take_attr(qp, a, mask);
	qp->grant = (struct path_grant){ .length = 0 };
	if (*dest != NULL) {
		qp_take_dest(qp, av, *dest);
		*dest = old;
	}
	alternate_watch(qp);
	if (mask & IBV_QP_STATE && a->qp_state != IBV_QPS_ERR)
		qp_enter(qp, a->qp_state);
	else if (mask & IBV_QP_STATE && qp->state != IBV_QPS_ERR)
		finish_both(qp);
	else if (mask & IBV_QP_STATE)
		qp->owes_retry_exc = false;
	else
		qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	return 0;
}

/* One modification, so that it may run where its path is in no callback. */
struct qp_change {
	struct ibt_qp *qp;
	const struct ibv_qp_attr *attr;
	int mask;
	const struct path_av *av;
	struct path_dest *dest; /* the new one; then the one to give back */
	struct path_dest *others;
	int err;
} OWNED_BY(the caller);

static void qp_change(struct qp_change *c)
{
	struct ibt_qp *qp = c->qp;

	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	c->err = qp_modify_locked(qp, c->attr, c->mask, c->av, &c->dest);
	lock_release(&qp->resp.rq_lock);
	if (c->err == 0 && tm_is_used(qp))
		tm_rndv_issue(qp);
	if (c->err == 0)
		sched_run(qp);
	c->others = window_claim(qp);
	lock_release(&qp->req.sq_lock);
}

/* Off the lists of the old destination, which may go, and only then on to the new one. */
static void qp_change_dest(void *arg)
{
	struct qp_change *c = arg;

	qp_unlist(c->qp);
	qp_change(c);
}

int ibt_qp_modify(struct ibt_qp *qp, const struct ibv_qp_attr *attr, int mask,
		  const struct path_av *av, struct path_dest *dest)
{
	struct qp_change c = { qp, attr, mask, av, dest, NULL, qp_check_values(attr, mask) };
	/* Stands still: modifications of one queue pair exclude each other (ibt.h). */
	struct path_dest *old = qp->dest;

	if (c.err == 0 && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET) {
		qp_reset(qp);
	} else if (c.err == 0 && dest != NULL && old != NULL) {
		old->path->ops->exclude(old->path, qp_change_dest, &c);
		resp_resume(qp); /* it may have waited on a list of the old one */
	} else if (c.err == 0) {
		qp_change(&c);
	}
	sched_wake(c.others);
	if (c.err == 0 && mask & IBV_QP_PATH_MIG_STATE &&
	    attr->path_mig_state == IBV_MIG_MIGRATED && qp->dest != NULL)
		migrate_run(qp, qp->dest->path, false);
	if (c.dest != NULL)
		c.dest->path->ops->dest_put(c.dest);
	return c.err;
}

void ibt_qp_set_port(struct ibt_qp *qp, u16 pkey, u8 lid_mask)
{
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	qp->pkey = pkey;
	qp->lid_mask = lid_mask;
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
}

void ibt_qp_set_port_up(struct ibt_qp *qp, bool up)
{
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	__atomic_store_n(&qp->takes, up ? alternate_takes(qp) : (u8)QP_TAKES_NONE,
			 __ATOMIC_RELAXED);
	qp_set_state(qp, (enum ibv_qp_state)qp->state);
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	lock_release(&qp->resp.rq_lock);
	if (!up)
		loss_suspect(qp);
	/* A queue pair that waits for room is resumed, to see that its port is down. */
	if (qp_sends(qp))
		qp_mark_runnable(qp);
	sched_leave(qp);
	if (qp_is_reliable(qp))
		resp_resume(qp);
}

void ibt_qp_query(struct ibt_qp *qp, struct ibv_qp_attr *attr)
{
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)qp->state;
	attr->sq_psn = qp->req.psn & PSN_MASK;
	attr->rq_psn = qp->resp.epsn;
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
}

enum ibv_qp_state ibt_qp_state(const struct ibt_qp *qp)
{
	return (enum ibv_qp_state)__atomic_load_n(&qp->state, __ATOMIC_RELAXED);
}

u32 ibt_qp_number(const struct ibt_qp *qp)
{
	return qp->qpn;
}

enum ibv_qp_type ibt_qp_type(const struct ibt_qp *qp)
{
	return (enum ibv_qp_type)qp_own_type(qp);
}

u32 ibt_qp_peer(const struct ibt_qp *qp)
{
	return qp->dest_qpn;
}

u32 ibt_qp_access(const struct ibt_qp *qp)
{
	u32 answered = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	u32 none = qp->attr.max_dest_rd_atomic == 0 ? answered : 0;

	return qp_port_is_down(qp) ? 0 : qp->access & ~none;
}

void *ibt_qp_owner(const struct ibt_qp *qp)
{
	return qp_owner(qp);
}

bool ibt_frees_early(const struct ibt *ibt, const struct cq *cq)
{
	return ibt->cfg.frees_early || (cq != NULL && cq_ignores_overrun(cq));
}

void ibt_credit(struct cq_source *source)
{
	srq_free_place(container_of(source, struct ibt_qp, resp.source)->srq);
}
