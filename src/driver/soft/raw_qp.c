/* raw_qp.c: raw packet queue pairs: the verbs' methods, and the send queue.
 * In: verbs, work requests    Out: frames, completions    Runs: any thread
 * Locks: sq_lock, then those of raw.h; list_lock for the device's list
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/soft/raw.h"
#include "path/raw/raw.h"

static struct soft_raw *soft_raw_of(struct ib_qp *ib)
{
	return SOFT_OF(raw, ib);
}

/* ---- the send queue ---- */

static struct send_wqe *soft_raw_at(struct soft_raw *qp, u32 index) REQUIRES(qp->sq_lock)
{
	return (struct send_wqe *)(qp->ring.memory +
				   (size_t)(index & qp->ring.mask) * qp->ring.stride);
}

/* False: the CQ has overflowed. */
static bool soft_raw_complete(struct soft_raw *qp, enum ibv_wc_status status)
	REQUIRES(qp->sq_lock)
{
	struct send_wqe *w = soft_raw_at(qp, qp->tail++);
	struct cq *cq = &SOFT_OF(cq, qp->init.send_cq)->q;
	struct cqe *e;

	if (status == IBV_WC_SUCCESS && !(w->flags & IBV_SEND_SIGNALED))
		return true;
	e = cq_reserve(cq);
	if (likely(e)) {
		cqe_set(e, w->wr_id, status, IBV_WC_SEND, w->length, qp->ib.qp_num, 0, &qp->source,
			qp->tail);
		cq_commit(cq, e, false);
	}
	return e != NULL;
}

static void soft_raw_flush(struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	while (qp->tail != qp->head)
		(void)soft_raw_complete(qp, IBV_WC_WR_FLUSH_ERR);
}

static enum ibv_wc_status soft_raw_gather(struct soft_raw *qp, const struct send_wqe *w)
	REQUIRES(qp->sq_lock)
{
	struct mem_cursor cursor = { .sge = w->sge, .count = w->sge_count };

	if (w->length < ETHER_HEADER || w->length > RAW_FRAME_MAX)
		return IBV_WC_LOC_LEN_ERR;
	if (w->flags & IBV_SEND_INLINE) {
		memcpy(qp->frame, w->sge, w->length);
		return IBV_WC_SUCCESS;
	}
	return mem_gather(&the_seat.a.mem, qp->rq.pd, &cursor, qp->frame, w->length) == 0
		       ? IBV_WC_SUCCESS
		       : IBV_WC_LOC_PROT_ERR;
}

/* Sends the oldest request. False: it stays, for want of room. A frame that the host loses is
 * sent, as one that the wire loses. */
static bool soft_raw_send_one(struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	struct send_wqe *w = soft_raw_at(qp, qp->tail);
	enum ibv_wc_status status = soft_raw_gather(qp, w);
	int err = 0;

	if (status == IBV_WC_SUCCESS)
		err = soft_steer_send(soft_dev(qp->ib.device), qp->frame, w->length);
	if (err == -EAGAIN)
		return false;
	if (status == IBV_WC_SUCCESS)
		pace_charge(&qp->pace, w->length);
	if (err == -EMSGSIZE)
		status = IBV_WC_LOC_LEN_ERR;
	if (!soft_raw_complete(qp, status) || status != IBV_WC_SUCCESS) {
		qp->state = IB_QPS_SQE;
		soft_raw_flush(qp);
	}
	return true;
}

static bool soft_raw_is_held(struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	return pace_holds(&qp->pace, &the_seat.a.timers, progress_timer_kick, &the_seat);
}

static void soft_raw_pump(struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	while (qp->state == IB_QPS_RTS && qp->tail != qp->head && !qp->waits &&
	       !soft_raw_is_held(qp))
		qp->waits = !soft_raw_send_one(qp);
	if (qp->state == IB_QPS_ERR || qp->state == IB_QPS_SQE)
		soft_raw_flush(qp);
}

void soft_raw_resume(struct soft_raw *qp)
{
	lock_acquire(&qp->sq_lock);
	qp->waits = false;
	soft_raw_pump(qp);
	lock_release(&qp->sq_lock);
}

/* The time has come that its rate has made frames wait for. */
static void soft_raw_due(struct timer *t)
{
	struct soft_raw *qp = container_of(t, struct soft_raw, pace.timer);

	lock_acquire(&qp->sq_lock);
	qp->pace.timing = false;
	soft_raw_pump(qp);
	lock_release(&qp->sq_lock);
}

/* ---- posting ---- */

static int soft_raw_fill_inline(struct send_wqe *w, const struct ibv_send_wr *wr, u32 max_inline)
{
	u8 *to = (u8 *)w->sge;

	if (mem_list_length(wr->sg_list, wr->num_sge) > max_inline)
		return -EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		if (fault_copy(to, (const void *)(uintptr_t)wr->sg_list[i].addr,
			       wr->sg_list[i].length) != 0)
			return -EFAULT;
		to += wr->sg_list[i].length;
	}
	w->length = (u32)(to - (u8 *)w->sge);
	return 0;
}

/* Checks and copies one request. An offload that the adapter does not have is refused, since the
 * frame would leave without it. */
static int soft_raw_fill(struct soft_raw *qp, struct send_wqe *w, const struct ibv_send_wr *wr)
	REQUIRES(qp->sq_lock)
{
	if (wr->opcode != IBV_WR_SEND || (wr->send_flags & IBV_SEND_IP_CSUM) != 0 ||
	    wr->num_sge < 0 || (u32)wr->num_sge > qp->ring.max_sge)
		return -EINVAL;
	w->wr_id = wr->wr_id;
	w->flags = (u8)(wr->send_flags |
			(qp->init.sq_sig_type == IB_SIGNAL_ALL_WR ? IBV_SEND_SIGNALED : 0));
	w->sge_count = (u8)wr->num_sge;
	if (wr->send_flags & IBV_SEND_INLINE)
		return soft_raw_fill_inline(w, wr, qp->init.cap.max_inline_data);
	for (int i = 0; i < wr->num_sge; i++)
		w->sge[i] = wr->sg_list[i];
	w->length = (u32)MIN(mem_list_length(wr->sg_list, wr->num_sge), (u64)UINT32_MAX);
	return 0;
}

/* A receive in error is one of the whole queue pair. */
static void soft_raw_look_at_rq(struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	if (qp->state != IB_QPS_RESET && qp->table == NULL &&
	    soft_rq_state(&qp->rq) == SOFT_RQ_FAILED)
		qp->state = IB_QPS_ERR;
}

static u32 soft_raw_used(const struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	return cq_source_used(&qp->source, qp->head, qp->tail);
}

static int soft_raw_refusal(const struct soft_raw *qp) REQUIRES(qp->sq_lock)
{
	if (qp->unplugged || !soft_is_ours(qp->generation))
		return -EIO;
	return qp->table != NULL || qp->state == IB_QPS_RESET || qp->state == IB_QPS_INIT ||
			       qp->state == IB_QPS_RTR
		       ? -EINVAL
		       : 0;
}

int soft_uverbs_post_raw_send(struct ib_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct soft_raw *qp = soft_raw_of(ib);
	int err;

	lock_acquire(&qp->sq_lock);
	soft_raw_look_at_rq(qp);
	err = soft_raw_refusal(qp);
	for (; wr != NULL && err == 0; wr = wr->next) {
		if (soft_raw_used(qp) >= qp->ring.size) {
			err = -ENOMEM;
			break;
		}
		err = soft_raw_fill(qp, soft_raw_at(qp, qp->head), wr);
		if (err != 0)
			break;
		qp->head++;
	}
	soft_raw_pump(qp);
	lock_release(&qp->sq_lock);
	if (err != 0 && bad != NULL)
		*bad = wr;
	return err;
}

int soft_uverbs_check_raw_send(struct ib_qp *ib, const struct ibv_send_wr *wr)
{
	struct soft_raw *qp = soft_raw_of(ib);
	int err;

	lock_acquire(&qp->sq_lock);
	err = soft_raw_refusal(qp);
	for (u32 n = 0; wr != NULL && err == 0; wr = wr->next, n++)
		err = soft_raw_used(qp) + n >= qp->ring.size
			      ? -ENOMEM
			      : soft_raw_fill(qp, soft_raw_at(qp, qp->head + n), wr);
	lock_release(&qp->sq_lock);
	return err;
}

int soft_uverbs_post_raw_recv(struct ib_qp *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_raw *qp = soft_raw_of(ib);

	if (qp->table == NULL && soft_is_ours(qp->generation))
		return soft_rq_post(&qp->rq, wr, bad);
	if (bad != NULL)
		*bad = wr;
	return soft_is_ours(qp->generation) && soft_check(ib->device) == 0 ? -EINVAL : -EIO;
}

int soft_uverbs_post_wq_recv(struct ib_wq *ib, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct soft_wq *wq = SOFT_OF(wq, ib);

	if (soft_is_ours(wq->generation))
		return soft_rq_post(&wq->rq, wr, bad);
	if (bad != NULL)
		*bad = wr;
	return -EIO;
}

/* ---- creation ---- */

static int soft_raw_check_hash(const struct ib_rx_hash_conf *hash)
{
	const u64 tcp = RSS_SRC_PORT_TCP | RSS_DST_PORT_TCP;
	const u64 udp = RSS_SRC_PORT_UDP | RSS_DST_PORT_UDP;
	const u64 ip4 = RSS_SRC_IPV4 | RSS_DST_IPV4, ip6 = RSS_SRC_IPV6 | RSS_DST_IPV6;
	u64 fields = hash->fields_mask;

	if (hash->function != IB_RX_HASH_FUNC_TOEPLITZ || (fields & ~(u64)RSS_FIELDS) != 0)
		return -EOPNOTSUPP;
	if (hash->key_len != IB_RX_HASH_KEY || ((fields & tcp) != 0 && (fields & udp) != 0) ||
	    ((fields & ip4) != 0 && (fields & ip6) != 0))
		return -EINVAL;
	return 0;
}

static int soft_raw_check_init(const struct ib_qp_init_attr_ex *ex)
{
	const struct ib_qp_cap *cap = &ex->base.cap;

	if (ex->create_flags != 0 || ex->base.srq != NULL)
		return -EOPNOTSUPP;
	if (ex->rwq_ind_tbl != NULL)
		return soft_raw_check_hash(&ex->rx_hash);
	if (ex->base.send_cq == NULL || ex->base.recv_cq == NULL)
		return -EINVAL;
	return cap->max_send_wr > IBT_MAX_WR || cap->max_send_sge > IBT_MAX_SGE ||
			       cap->max_inline_data > RAW_MAX_INLINE
		       ? -EINVAL
		       : 0;
}

static int soft_raw_make_queues(struct soft_raw *qp, struct ib_qp_init_attr_ex *ex)
	NO_THREAD_SAFETY
{
	struct ib_qp_cap *cap = &ex->base.cap;
	int err = soft_rq_init(&qp->rq, ex->memory, &cap->max_recv_wr, &cap->max_recv_sge);

	qp->memory = (struct wqe_memory){ .from = ex->memory, .kind = QUEUE_SEND };
	if (cap->max_send_wr != 0 && cap->max_send_sge == 0)
		cap->max_send_sge = 1;
	if (err == 0)
		err = wqe_ring_init(&qp->ring, cap->max_send_wr,
				    wqe_send_stride(cap->max_send_sge, cap->max_inline_data),
				    cap->max_send_sge, &qp->memory);
	cap->max_send_wr = qp->ring.size;
	qp->frame = err == 0 ? malloc(RAW_FRAME_MAX) : NULL;
	return err == 0 && qp->frame == NULL ? -ENOMEM : err;
}

static void soft_raw_free(struct soft_raw *qp) NO_THREAD_SAFETY
{
	soft_rq_fini(&qp->rq);
	wqe_ring_fini(&qp->ring, &qp->memory);
	free(qp->frame);
	free(qp);
}

/* `cq` NULL: the queue is none of its own. */
static void soft_raw_init_source(struct cq_source *source, struct soft_raw *qp, struct ib_cq *cq)
{
	bool early = cq != NULL && ibt_frees_early(the_seat.a.ibt, &SOFT_OF(cq, cq)->q);

	cq_source_init(source, qp, early ? CQ_APART : 0);
}

/* Completions name the queue pair for ib_wc.qp, but it is none of the engine's. */
static void soft_raw_bind(struct soft_raw *qp, struct ib_pd *pd, struct ib_qp_init_attr_ex *ex)
	NO_THREAD_SAFETY
{
	qp->rq.pd = soft_pd_number(pd);
	qp->rq.number = qp->ib.qp_num;
	qp->rq.is_of_qp = true;
	soft_raw_init_source(&qp->rq.source, qp, ex->base.recv_cq);
	soft_raw_init_source(&qp->source, qp, ex->base.send_cq);
	qp->state = IB_QPS_RESET;
	qp->pace.timer.fn = soft_raw_due;
	qp->table = ex->rwq_ind_tbl;
	qp->hash = ex->rx_hash;
	qp->init = ex->base;
	qp->ib.qp_type = IB_QPT_RAW_PACKET;
	qp->ib.device = pd->device;
	qp->generation = seat_generation(&the_seat);
	if (qp->table != NULL)
		return;
	qp->rq.cq = &SOFT_OF(cq, ex->base.recv_cq)->q;
	cq_names_no_qp(qp->rq.cq);
	cq_names_no_qp(&SOFT_OF(cq, ex->base.send_cq)->q);
}

static struct soft_raw *soft_raw_new(struct soft_device *dev, struct ib_pd *pd,
				     struct ib_qp_init_attr_ex *ex)
{
	struct soft_raw *qp = calloc(1, sizeof(*qp));
	int err = qp == NULL ? -ENOMEM : 0;

	if (ex->rwq_ind_tbl != NULL)
		ex->base.cap = (struct ib_qp_cap){ .max_send_wr = 0 };
	if (err == 0)
		err = soft_raw_make_queues(qp, ex);
	if (err == 0)
		err = soft_steer_get(dev);
	if (err == 0) {
		err = seat_qpn_take(&the_seat, &qp->index, &qp->ib.qp_num);
		if (err != 0)
			soft_steer_put(dev);
	}
	if (err != 0) {
		if (qp != NULL)
			soft_raw_free(qp);
		return ERR_PTR(err);
	}
	soft_raw_bind(qp, pd, ex);
	return qp;
}

struct ib_qp *soft_raw_create(struct ib_pd *pd, struct ib_qp_init_attr_ex *ex)
{
	struct soft_device *dev = soft_dev(pd->device);
	struct soft_raw *qp = ERR_PTR(-ENOMEM);
	int err = dev->kind->carrier == NULL ? -EOPNOTSUPP : soft_raw_check_init(ex);

	if (err != 0)
		return ERR_PTR(err);
	if (__atomic_add_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED) <= SOFT_MAX_QP)
		qp = soft_raw_new(dev, pd, ex);
	if (IS_ERR(qp)) {
		__atomic_sub_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED);
		return ERR_PTR(PTR_ERR(qp));
	}
	lock_acquire(&dev->list_lock);
	list_push_back(&dev->raws, &qp->node);
	err = soft_check(&dev->ib); /* else soft_unplug finds it on the list */
	lock_release(&dev->list_lock);
	if (err != 0) {
		soft_raw_destroy(&qp->ib);
		return ERR_PTR(err);
	}
	return &qp->ib;
}

static void soft_raw_forget(struct soft_raw *qp)
{
	if (qp->table != NULL)
		return;
	cq_forget(&SOFT_OF(cq, qp->init.send_cq)->q, qp);
	cq_forget(qp->rq.cq, qp);
}

/* The midlayer sees to it that no flow rule names the queue pair. */
int soft_raw_destroy(struct ib_qp *ib)
{
	struct soft_raw *qp = soft_raw_of(ib);
	struct soft_device *dev = soft_dev(ib->device);

	__atomic_sub_fetch(&dev->qp_count, 1, __ATOMIC_RELAXED);
	if (soft_is_ours(qp->generation)) {
		lock_acquire(&dev->list_lock);
		list_remove(&qp->node);
		lock_release(&dev->list_lock);
		timer_cancel_wait(&the_seat.a.timers, &qp->pace.timer);
		soft_steer_put(dev);
		seat_qpn_give(&the_seat, qp->index);
	}
	soft_raw_forget(qp);
	soft_raw_free(qp);
	return 0;
}

void soft_raw_unplug(struct soft_raw *qp)
{
	lock_acquire(&qp->sq_lock);
	qp->unplugged = true;
	if (qp->state != IB_QPS_RESET)
		qp->state = IB_QPS_ERR;
	soft_raw_flush(qp);
	lock_release(&qp->sq_lock);
	if (qp->table == NULL)
		soft_rq_unplug(&qp->rq);
}

/* ---- states ---- */

static void soft_raw_enter(struct soft_raw *qp, enum ib_qp_state to) REQUIRES(qp->sq_lock)
{
	static const enum soft_rq_state states[] = {
		[IB_QPS_RESET] = SOFT_RQ_RESET, [IB_QPS_INIT] = SOFT_RQ_INIT,
		[IB_QPS_RTR] = SOFT_RQ_READY,	[IB_QPS_RTS] = SOFT_RQ_READY,
		[IB_QPS_SQD] = SOFT_RQ_READY,	[IB_QPS_SQE] = SOFT_RQ_READY,
		[IB_QPS_ERR] = SOFT_RQ_FAILED,
	};

	qp->state = to;
	soft_rq_set(&qp->rq, states[to]);
	if (to == IB_QPS_RESET) {
		qp->tail = qp->head;
		pace_set(&qp->pace, &(struct ib_uverbs_rate){ .kbps = 0 });
		soft_raw_forget(qp);
		cq_polled(&qp->source, qp->head);
		soft_rq_free_places(&qp->rq);
	}
	soft_raw_pump(qp);
}

/* What waits for the rate before goes by the new one. */
static void soft_raw_limit(struct soft_raw *qp, const struct ib_uverbs_rate *rate)
	REQUIRES(qp->sq_lock)
{
	pace_set(&qp->pace, rate);
	soft_raw_pump(qp);
}

static int soft_raw_check_modify(struct soft_raw *qp, const struct ib_qp_attr *attr, int mask)
	REQUIRES(qp->sq_lock)
{
	enum ib_qp_state from = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	enum ib_qp_state to = mask & IB_QP_STATE ? attr->qp_state : from;

	if (from != qp->state ||
	    !ib_modify_qp_is_ok(from, to, IB_QPT_RAW_PACKET, (enum ib_qp_attr_mask)mask))
		return -EINVAL;
	if ((mask & IB_QP_PORT) && !soft_has_port(soft_dev(qp->ib.device), attr->port_num))
		return -EINVAL;
	return 0;
}

/* `rate`: what IB_QP_RATE_LIMIT sets. */
static int soft_raw_change(struct ib_qp *ib, const struct ib_qp_attr *attr, int mask,
			   const struct ib_uverbs_rate *rate)
{
	struct soft_raw *qp = soft_raw_of(ib);
	int err = soft_is_ours(qp->generation) ? soft_check(ib->device) : -EIO;

	if (err == 0 && qp->table != NULL)
		err = -EOPNOTSUPP;
	if (err != 0)
		return err;
	lock_acquire(&qp->sq_lock);
	soft_raw_look_at_rq(qp);
	err = qp->unplugged ? -EIO : soft_raw_check_modify(qp, attr, mask);
	if (err == 0 && (mask & IB_QP_RATE_LIMIT))
		err = pace_check(rate);
	if (err == 0 && (mask & IB_QP_PORT))
		qp->port = attr->port_num;
	if (err == 0 && (mask & IB_QP_RATE_LIMIT))
		soft_raw_limit(qp, rate);
	if (err == 0 && (mask & IB_QP_STATE))
		soft_raw_enter(qp, attr->qp_state);
	lock_release(&qp->sq_lock);
	return err;
}

int soft_raw_modify(struct ib_qp *ib, struct ib_qp_attr *attr, int mask)
{
	return soft_raw_change(ib, attr, mask,
			       &(struct ib_uverbs_rate){ .kbps = attr->rate_limit });
}

int soft_uverbs_set_rate(struct ib_qp *ib, const struct ib_uverbs_rate *rate)
{
	if (ib->qp_type != IB_QPT_RAW_PACKET)
		return -EINVAL;
	return soft_raw_change(ib, &(struct ib_qp_attr){ .rate_limit = rate->kbps },
			       IB_QP_RATE_LIMIT, rate);
}

int soft_raw_query(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init)
{
	struct soft_raw *qp = soft_raw_of(ib);
	int err = soft_check(ib->device);

	if (err == 0 && qp->table != NULL)
		err = -EOPNOTSUPP;
	if (err != 0)
		return err;
	memset(attr, 0, sizeof(*attr));
	lock_acquire(&qp->sq_lock);
	soft_raw_look_at_rq(qp);
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->port_num = qp->port;
	attr->rate_limit = qp->pace.kbps;
	lock_release(&qp->sq_lock);
	attr->cap = qp->init.cap;
	*init = qp->init;
	init->event_handler = ib->event_handler;
	init->qp_context = ib->qp_context;
	return 0;
}
