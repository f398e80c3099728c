/* qp.c: the pocket adapter's queue pairs and shared receive queues.
 * In: verbs    Out: queues of requests for move.c, flushes, events
 * Runs: any thread    Locks: the device's
 */
#include "pocket.h"

static struct pocket_qp *qp_of(struct ib_qp *ib)
{
	return (struct pocket_qp *)ib;
}

/* ---- receive queues -------------------------------------------------------------------------- */

static int rq_init(struct pocket_rq *rq, u32 size, u32 max_sge)
{
	*rq = (struct pocket_rq){ .size = size, .max_sge = (int)max_sge };
	rq->ring = calloc(size ? size : 1, sizeof(*rq->ring));
	return rq->ring ? 0 : -ENOMEM;
}

static int rq_add(struct pocket_rq *rq, const struct ib_recv_wr *wr)
{
	struct pocket_recv *r;

	if (wr->num_sge < 0 || wr->num_sge > rq->max_sge)
		return -EINVAL;
	if (rq->head - rq->tail == rq->size)
		return -ENOMEM;
	r = &rq->ring[rq->head++ % rq->size];
	r->wr_id = wr->wr_id;
	r->num_sge = wr->num_sge;
	if (wr->num_sge)
		memcpy(r->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(r->sge[0]));
	return 0;
}

static int rq_add_all(struct pocket_rq *rq, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	int err = 0;

	for (; wr && !err; wr = err ? wr : wr->next)
		err = rq_add(rq, wr);
	if (err)
		*bad = wr;
	return err;
}

bool pocket_take_recv(struct pocket_qp *qp, struct pocket_recv *recv)
{
	struct pocket_srq *srq = qp->srq;
	struct pocket_rq *rq = srq ? &srq->rq : &qp->rq;

	if (rq->head == rq->tail)
		return false;
	*recv = rq->ring[rq->tail++ % rq->size];
	if (srq && srq->limit && rq->head - rq->tail < srq->limit) {
		srq->limit = 0;
		pocket_event(qp->ib.device, IB_EVENT_SRQ_LIMIT_REACHED, &srq->ib);
	}
	return true;
}

/* Senders may have waited for what has been posted. */
static void run_all(struct pocket_device *d)
{
	for (u32 i = 0; i < POCKET_QPS; i++)
		if (d->qps[i] && d->qps[i]->sq_head != d->qps[i]->sq_tail)
			pocket_run(d, d->qps[i]);
}

/* ---- shared receive queues ------------------------------------------------------------------- */

static struct ib_srq *srq_create(struct ib_pd *pd, struct ib_srq_init_attr *init)
{
	struct pocket_srq *srq;

	if (init->attr.max_wr < 1 || init->attr.max_wr > POCKET_MAX_WR ||
	    init->attr.max_sge > POCKET_SGES)
		return ERR_PTR(-EINVAL);
	srq = calloc(1, sizeof(*srq));
	if (!srq || rq_init(&srq->rq, init->attr.max_wr, init->attr.max_sge)) {
		free(srq);
		return ERR_PTR(-ENOMEM);
	}
	return &srq->ib;
}

static int srq_modify(struct ib_srq *ib, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_srq *srq = (struct pocket_srq *)ib;
	int err = 0;

	if (mask & IB_SRQ_MAX_WR)
		return -ENOSYS;
	pthread_mutex_lock(&d->lock);
	if (attr->srq_limit > srq->rq.size)
		err = -EINVAL;
	else
		srq->limit = attr->srq_limit;
	pthread_mutex_unlock(&d->lock);
	return err;
}

static int srq_query(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_srq *srq = (struct pocket_srq *)ib;

	pthread_mutex_lock(&d->lock);
	*attr = (struct ib_srq_attr){ .max_wr = srq->rq.size,
				      .max_sge = (u32)srq->rq.max_sge,
				      .srq_limit = srq->limit };
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int srq_destroy(struct ib_srq *ib)
{
	struct pocket_srq *srq = (struct pocket_srq *)ib;

	free(srq->rq.ring);
	free(srq);
	return 0;
}

static int srq_post(struct ib_srq *ib, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	struct pocket_device *d = pocket_of(ib->device);
	int err;

	pthread_mutex_lock(&d->lock);
	err = rq_add_all(&((struct pocket_srq *)ib)->rq, wr, bad);
	run_all(d);
	pthread_mutex_unlock(&d->lock);
	return err;
}

/* ---- queue pairs: creation and end ----------------------------------------------------------- */

static bool init_is_ok(const struct ib_qp_init_attr *init)
{
	const struct ib_qp_cap *cap = &init->cap;

	return (init->qp_type == IB_QPT_RC || init->qp_type == IB_QPT_UC ||
		init->qp_type == IB_QPT_UD) &&
	       cap->max_send_wr <= POCKET_MAX_WR && cap->max_recv_wr <= POCKET_MAX_WR &&
	       cap->max_send_sge <= POCKET_SGES && cap->max_recv_sge <= POCKET_SGES &&
	       cap->max_inline_data <= POCKET_INLINE;
}

/* A number that has rested longest: the table is searched onward from the last one. */
static int number_take(struct pocket_device *d, struct pocket_qp *qp)
{
	static u32 last = 1;

	for (u32 i = 0; i < POCKET_QPS; i++) {
		u32 number = 2 + (last + i) % (POCKET_QPS - 2);

		if (d->qps[number])
			continue;
		last = number;
		d->qps[number] = qp;
		qp->ib.qp_num = number;
		return 0;
	}
	return -ENOMEM;
}

static void qp_free(struct pocket_qp *qp)
{
	free(qp->sq);
	free(qp->rq.ring);
	free(qp);
}

static struct ib_qp *qp_create(struct ib_pd *pd, struct ib_qp_init_attr *init)
{
	struct pocket_device *d = pocket_of(pd->device);
	struct pocket_qp *qp;
	int err;

	if (!init_is_ok(init))
		return ERR_PTR(init->qp_type < IB_QPT_RC ? -ENOSYS : -EINVAL);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return ERR_PTR(-ENOMEM);
	qp->init = *init;
	qp->srq = (struct pocket_srq *)init->srq;
	qp->sq_size = init->cap.max_send_wr ? init->cap.max_send_wr : 1;
	qp->sq = calloc(qp->sq_size, sizeof(*qp->sq));
	err = rq_init(&qp->rq, init->cap.max_recv_wr, init->cap.max_recv_sge);
	if (!qp->sq)
		err = -ENOMEM;
	/* what move.c needs and the midlayer sets only after this */
	qp->ib = (struct ib_qp){ .device = pd->device,
				 .pd = pd,
				 .send_cq = init->send_cq,
				 .recv_cq = init->recv_cq,
				 .qp_type = init->qp_type };
	pthread_mutex_lock(&d->lock);
	err = err ? err : number_take(d, qp);
	pthread_mutex_unlock(&d->lock);
	if (err) {
		qp_free(qp);
		return ERR_PTR(err);
	}
	return &qp->ib;
}

/* Forgets requests and completions. */
static void qp_reset(struct pocket_qp *qp)
{
	qp->sq_tail = qp->sq_head;
	qp->rq.tail = qp->rq.head;
	qp->established = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
	pocket_forget(qp->init.send_cq, &qp->ib);
	pocket_forget(qp->init.recv_cq, &qp->ib);
}

static int qp_destroy(struct ib_qp *ib)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);

	pthread_mutex_lock(&d->lock);
	qp_reset(qp);
	d->qps[ib->qp_num] = NULL;
	run_all(d); /* its peer's requests fail */
	pthread_mutex_unlock(&d->lock);
	qp_free(qp);
	return 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

void pocket_qp_fail(struct pocket_qp *qp)
{
	bool was = qp->attr.qp_state == IB_QPS_ERR;
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .qp = &qp->ib, .port_num = 1 };

	qp->attr.qp_state = IB_QPS_ERR;
	for (; qp->sq_tail != qp->sq_head; qp->sq_tail++) {
		wc.wr_id = qp->sq[qp->sq_tail % qp->sq_size].wr.wr_id;
		wc.opcode = IB_WC_SEND;
		pocket_push(qp->init.send_cq, &wc, false);
	}
	for (; qp->rq.tail != qp->rq.head; qp->rq.tail++) {
		wc.wr_id = qp->rq.ring[qp->rq.tail % qp->rq.size].wr_id;
		wc.opcode = IB_WC_RECV;
		pocket_push(qp->init.recv_cq, &wc, false);
	}
	if (qp->srq && !was)
		pocket_event(qp->ib.device, IB_EVENT_QP_LAST_WQE_REACHED, &qp->ib);
}

static void attr_merge_numbers(struct ib_qp_attr *to, const struct ib_qp_attr *from, int mask)
{
	if (mask & IB_QP_QKEY)
		to->qkey = from->qkey;
	if (mask & IB_QP_RQ_PSN)
		to->rq_psn = from->rq_psn;
	if (mask & IB_QP_SQ_PSN)
		to->sq_psn = from->sq_psn;
	if (mask & IB_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IB_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
	if (mask & IB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = from->min_rnr_timer;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = from->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = from->max_dest_rd_atomic;
}

static void attr_merge(struct ib_qp_attr *to, const struct ib_qp_attr *from, int mask)
{
	attr_merge_numbers(to, from, mask);
	if (mask & IB_QP_ACCESS_FLAGS)
		to->qp_access_flags = from->qp_access_flags;
	if (mask & IB_QP_PORT)
		to->port_num = from->port_num;
	if (mask & IB_QP_AV)
		to->ah_attr = from->ah_attr;
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IB_QP_DEST_QPN)
		to->dest_qp_num = from->dest_qp_num;
	to->en_sqd_async_notify =
		mask & IB_QP_EN_SQD_ASYNC_NOTIFY ? from->en_sqd_async_notify : 0;
}

static bool attr_is_ok(const struct pocket_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state now = qp->attr.qp_state;
	enum ib_qp_state to = mask & IB_QP_STATE ? attr->qp_state : now;

	return !((mask & IB_QP_CUR_STATE) && attr->cur_qp_state != now) &&
	       ib_modify_qp_is_ok(now, to, qp->ib.qp_type, (enum ib_qp_attr_mask)mask) &&
	       !((mask & IB_QP_PKEY_INDEX) && attr->pkey_index) &&
	       !((mask & IB_QP_AV) && !pocket_way_is_ok(&attr->ah_attr));
}

static void qp_enter(struct pocket_qp *qp, enum ib_qp_state to)
{
	enum ib_qp_state from = qp->attr.qp_state;

	qp->attr.qp_state = to;
	if (to == IB_QPS_SQD && from != to && qp->attr.en_sqd_async_notify)
		pocket_event(qp->ib.device, IB_EVENT_SQ_DRAINED, &qp->ib);
}

static int qp_modify(struct ib_qp *ib, struct ib_qp_attr *attr, int mask)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);
	int err = 0;

	pthread_mutex_lock(&d->lock);
	if (!attr_is_ok(qp, attr, mask)) {
		err = -EINVAL;
	} else if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_RESET) {
		qp_reset(qp);
	} else if ((mask & IB_QP_STATE) && attr->qp_state == IB_QPS_ERR) {
		pocket_qp_fail(qp);
	} else {
		attr_merge(&qp->attr, attr, mask);
		if (mask & IB_QP_STATE)
			qp_enter(qp, attr->qp_state);
	}
	run_all(d); /* peers may have waited for this, or wait in vain now */
	pthread_mutex_unlock(&d->lock);
	return err;
}

static int qp_query(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);

	pthread_mutex_lock(&d->lock);
	*attr = qp->attr;
	attr->cur_qp_state = qp->attr.qp_state;
	attr->cap = qp->init.cap;
	*init = qp->init;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* ---- posting --------------------------------------------------------------------------------- */

static bool opcode_is_ok(enum ib_qp_type type, enum ib_wr_opcode op)
{
	switch (op) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		return true;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return type != IB_QPT_UD;
	case IB_WR_SEND_WITH_INV:
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return type == IB_QPT_RC;
	default:
		return false;
	}
}

static int send_take_inline(struct pocket_send *s, const struct ib_send_wr *wr)
{
	s->inline_length = 0;
	if (!(wr->send_flags & IB_SEND_INLINE))
		return 0;
	for (int i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length > POCKET_INLINE - s->inline_length)
			return -EINVAL;
		memcpy(s->inlined + s->inline_length, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		s->inline_length += wr->sg_list[i].length;
	}
	return 0;
}

/* Of `wr` the opcode's part alone: others may lie beyond the end of the consumer's request. */
static void send_copy(struct ib_send_wr *to, const struct ib_send_wr *from, enum ib_qp_type type)
{
	memcpy(to, from, offsetof(struct ib_send_wr, wr));
	if (type == IB_QPT_UD)
		to->wr.ud = from->wr.ud;
	else if (from->opcode == IB_WR_RDMA_WRITE || from->opcode == IB_WR_RDMA_WRITE_WITH_IMM ||
		 from->opcode == IB_WR_RDMA_READ)
		to->wr.rdma = from->wr.rdma;
	else if (from->opcode == IB_WR_ATOMIC_CMP_AND_SWP ||
		 from->opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		to->wr.atomic = from->wr.atomic;
}

static int send_add(struct pocket_qp *qp, const struct ib_send_wr *wr)
{
	enum ib_qp_state state = qp->attr.qp_state;
	struct pocket_send *s = &qp->sq[qp->sq_head % qp->sq_size];
	int err;

	if (state == IB_QPS_RESET || state == IB_QPS_INIT || state == IB_QPS_RTR)
		return -EINVAL;
	if (!opcode_is_ok(qp->ib.qp_type, wr->opcode) || wr->num_sge < 0 ||
	    (u32)wr->num_sge > qp->init.cap.max_send_sge)
		return -EINVAL;
	if (qp->sq_head - qp->sq_tail == qp->sq_size)
		return -ENOMEM;
	err = send_take_inline(s, wr);
	if (err)
		return err;
	send_copy(&s->wr, wr, qp->ib.qp_type);
	if (wr->num_sge)
		memcpy(s->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(s->sge[0]));
	qp->sq_head++;
	return 0;
}

static int qp_post_send(struct ib_qp *ib, struct ib_send_wr *wr, struct ib_send_wr **bad)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);
	int err = 0;

	pthread_mutex_lock(&d->lock);
	for (; wr; wr = wr->next) {
		err = send_add(qp, wr);
		if (err)
			break;
		pocket_run(d, qp);
	}
	pthread_mutex_unlock(&d->lock);
	if (err)
		*bad = wr;
	return err;
}

static int qp_post_recv(struct ib_qp *ib, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);
	int err = -EINVAL;

	*bad = wr;
	pthread_mutex_lock(&d->lock);
	if (!qp->srq && qp->attr.qp_state != IB_QPS_RESET)
		err = rq_add_all(&qp->rq, wr, bad);
	if (qp->attr.qp_state == IB_QPS_ERR)
		pocket_qp_fail(qp);
	run_all(d);
	pthread_mutex_unlock(&d->lock);
	return err;
}

/* ---- multicast groups ------------------------------------------------------------------------ */

static int group_find(const struct pocket_qp *qp, const union ib_gid *gid)
{
	for (int i = 0; i < qp->group_count; i++)
		if (memcmp(&qp->groups[i], gid, sizeof(*gid)) == 0)
			return i;
	return -EINVAL;
}

static int mcast_attach(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);
	int err = 0;

	pthread_mutex_lock(&d->lock);
	if (group_find(qp, gid) < 0) {
		if (qp->group_count == POCKET_GROUPS)
			err = -ENOMEM;
		else
			qp->groups[qp->group_count++] = *gid;
	}
	pthread_mutex_unlock(&d->lock);
	return err;
}

static int mcast_detach(struct ib_qp *ib, union ib_gid *gid, u16 lid)
{
	struct pocket_device *d = pocket_of(ib->device);
	struct pocket_qp *qp = qp_of(ib);
	int i;

	pthread_mutex_lock(&d->lock);
	i = group_find(qp, gid);
	if (i >= 0)
		qp->groups[i] = qp->groups[--qp->group_count];
	pthread_mutex_unlock(&d->lock);
	return i < 0 ? i : 0;
}

void pocket_qp_methods(struct ib_device *ib)
{
	ib->create_srq = srq_create;
	ib->modify_srq = srq_modify;
	ib->query_srq = srq_query;
	ib->destroy_srq = srq_destroy;
	ib->post_srq_recv = srq_post;
	ib->create_qp = qp_create;
	ib->modify_qp = qp_modify;
	ib->query_qp = qp_query;
	ib->destroy_qp = qp_destroy;
	ib->post_send = qp_post_send;
	ib->post_recv = qp_post_recv;
	ib->attach_mcast = mcast_attach;
	ib->detach_mcast = mcast_detach;
}
