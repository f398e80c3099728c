/* verbs.c: protection domains, completion queues, shared receive queues and queue pairs.
 * In: consumers    Out: the driver's methods    Runs: the caller    Locks: none of its own
 *
 * These functions check, once for all drivers, that an object has no users when it is destroyed,
 * that objects used together belong to one device, and that arguments have a meaning. The driver
 * checks limits and states.
 */
#include "core/core_priv.h"

struct ib_pd *ib_alloc_pd(struct ib_device *device)
{
	struct ib_pd *pd = DRIVER_CALL(device->alloc_pd(device));

	if (!IS_ERR(pd)) {
		pd->device = device;
		pd->usecnt = 0;
		extended_pd_clear(pd);
	}
	return pd;
}

int ib_dealloc_pd(struct ib_pd *pd)
{
	int err;

	if (!use_claim(&pd->usecnt))
		return -EBUSY;
	err = DRIVER_CALL(pd->device->dealloc_pd(pd));
	if (err)
		use_unclaim(&pd->usecnt);
	return err;
}

/* ---- completion queues ----------------------------------------------------------------------- */

static bool verbs_vector_is_known(const struct ib_device *device, int comp_vector)
{
	int count = device->num_comp_vectors > 0 ? device->num_comp_vectors : 1;

	return comp_vector >= 0 && comp_vector < count;
}

static void verbs_cq_fill(struct ib_cq *cq, struct ib_device *device)
{
	cq->device = device;
	cq->comp_handler = NULL;
	cq->event_handler = NULL;
	cq->cq_context = NULL;
	cq->uverbs_priv = NULL;
	cq->usecnt = 0;
	extended_cq_clear(cq);
}

struct ib_cq *ib_create_cq(struct ib_device *device, ib_comp_handler comp_handler,
			   void (*event_handler)(struct ib_event *event, void *cq_context),
			   void *cq_context, int cqe, int comp_vector)
{
	struct ib_cq_init_attr attr = { .size = sizeof(attr),
					.cqe = cqe,
					.comp_vector = comp_vector };

	return ib_create_cq_ex(device, comp_handler, event_handler, cq_context, &attr);
}

static int verbs_cq_check_attr(const struct ib_device *device, struct ib_cq_init_attr *own,
			 const struct ib_cq_init_attr *theirs)
{
	int err = extended_take_cq_attr(own, theirs);

	if (err)
		return err;
	return own->cqe < 1 || !verbs_vector_is_known(device, own->comp_vector) ? -EINVAL : 0;
}

struct ib_cq *ib_create_cq_ex(struct ib_device *device, ib_comp_handler comp_handler,
			      void (*event_handler)(struct ib_event *event, void *cq_context),
			      void *cq_context, const struct ib_cq_init_attr *attr)
{
	struct ib_cq_init_attr own;
	int err = verbs_cq_check_attr(device, &own, attr);
	struct ib_cq *cq;

	if (err)
		return ERR_PTR(err);
	cq = extended_create_cq(device, &own);
	if (IS_ERR(cq))
		return cq;
	verbs_cq_fill(cq, device);
	cq->comp_handler = comp_handler;
	cq->event_handler = event_handler;
	cq->cq_context = cq_context;
	return cq;
}

struct ib_cq *ib_uverbs_create_cq(struct ib_device *dev, const struct ib_uverbs_cq_attr *attr)
{
	struct ib_uverbs_cq_attr own = *attr;
	int err = verbs_cq_check_attr(dev, &own.cq, &attr->cq);
	struct ib_cq *cq;

	if (err)
		return ERR_PTR(err);
	cq = DRIVER_CALL(dev->uverbs->create_cq(dev, &own));
	if (IS_ERR(cq))
		return cq;
	cq->device = dev;
	cq->event_handler = attr->event_handler;
	cq->cq_context = attr->cq_context;
	cq->usecnt = 0;
	return cq;
}

int ib_modify_cq(struct ib_cq *cq, u16 cq_count, u16 cq_period)
{
	if (!cq->device->modify_cq)
		return -ENOSYS;
	return DRIVER_CALL(cq->device->modify_cq(cq, cq_count, cq_period));
}

int ib_destroy_cq(struct ib_cq *cq)
{
	struct dispatch_mute mute;
	struct ib_device_core *core;
	void *uverbs_priv;
	int err;

	if (!cq)
		return -EINVAL;
	if (extended_cq_polls_itself(cq))
		return -EOPNOTSUPP;
	core = cq->device->core;
	uverbs_priv = cq->uverbs_priv;
	if (!use_claim(&cq->usecnt))
		return -EBUSY;
	dispatch_mute(core, cq, &mute);
	uverbs_cq_hold(uverbs_priv);
	err = DRIVER_CALL(cq->device->destroy_cq(cq));
	dispatch_unmute(core, &mute);
	if (!err) {
		uverbs_cq_gone(uverbs_priv);
		return 0;
	}
	uverbs_cq_release(uverbs_priv);
	use_unclaim(&cq->usecnt);
	return err;
}

int ib_resize_cq(struct ib_cq *cq, int cqe)
{
	if (!cq->device->resize_cq)
		return -ENOSYS;
	if (cqe < 1)
		return -EINVAL;
	return DRIVER_CALL(cq->device->resize_cq(cq, cqe));
}

int ib_poll_cq(struct ib_cq *cq, int num_entries, struct ib_wc *wc)
{
	if (unlikely(!cq))
		return -EINVAL;
	if (num_entries <= 0)
		return num_entries ? -EINVAL : 0;
	return DRIVER_CALL(cq->device->poll_cq(cq, num_entries, wc));
}

int ib_peek_cq(struct ib_cq *cq, int wc_cnt)
{
	if (!cq->device->peek_cq)
		return -ENOSYS;
	if (wc_cnt < 0)
		return -EINVAL;
	return DRIVER_CALL(cq->device->peek_cq(cq, wc_cnt));
}

int ib_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags)
{
	u32 which = flags & IB_CQ_SOLICITED_MASK;

	if (unlikely(!cq))
		return -EINVAL;
	if (which == 0 || which == IB_CQ_SOLICITED_MASK)
		return -EINVAL;
	if (flags & ~(u32)(IB_CQ_SOLICITED_MASK | IB_CQ_REPORT_MISSED_EVENTS))
		return -EINVAL;
	return DRIVER_CALL(cq->device->req_notify_cq(cq, flags));
}

int ib_req_ncomp_notif(struct ib_cq *cq, int wc_cnt)
{
	if (!cq->device->req_ncomp_notif)
		return -ENOSYS;
	if (wc_cnt < 1)
		return -EINVAL;
	return DRIVER_CALL(cq->device->req_ncomp_notif(cq, wc_cnt));
}

/* ---- shared receive queues ------------------------------------------------------------------- */

void verbs_fill_srq(struct ib_srq *srq, struct ib_pd *pd, const struct ib_srq_init_attr_ex *init)
{
	srq->device = pd->device;
	srq->pd = pd;
	srq->event_handler = init->base.event_handler;
	srq->srq_context = init->base.srq_context;
	srq->usecnt = 0;
	extended_srq_set_cq(srq, init->cq);
	extended_srq_set_type(srq, init->srq_type);
	extended_srq_set_xrcd(srq, init->xrcd);
}

struct ib_srq *ib_create_srq(struct ib_pd *pd, struct ib_srq_init_attr *init)
{
	struct ib_srq_init_attr_ex ex = { .size = sizeof(ex), .base = *init };
	struct ib_srq *srq = ib_create_srq_ex(pd, &ex);

	if (!IS_ERR(srq))
		init->attr = ex.base.attr;
	return srq;
}

int ib_modify_srq(struct ib_srq *srq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask)
{
	if (!srq->device->modify_srq)
		return -ENOSYS;
	if (mask & ~(u32)(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EINVAL;
	return DRIVER_CALL(srq->device->modify_srq(srq, attr, mask));
}

int ib_query_srq(struct ib_srq *srq, struct ib_srq_attr *attr)
{
	if (!srq->device->query_srq)
		return -ENOSYS;
	return DRIVER_CALL(srq->device->query_srq(srq, attr));
}

int ib_destroy_srq(struct ib_srq *srq)
{
	struct ib_device_core *core;
	struct dispatch_mute mute;
	struct ib_xrcd *xrcd;
	struct ib_cq *cq;
	struct ib_pd *pd;
	int err;

	if (!srq)
		return -EINVAL;
	if (!srq->device->destroy_srq)
		return -ENOSYS;
	core = srq->device->core;
	xrcd = extended_srq_xrcd(srq);
	cq = extended_srq_cq(srq);
	pd = srq->pd;
	if (!use_claim(&srq->usecnt))
		return -EBUSY;
	dispatch_mute(core, srq, &mute);
	err = DRIVER_CALL(srq->device->destroy_srq(srq));
	dispatch_unmute(core, &mute);
	if (err) {
		use_unclaim(&srq->usecnt);
		return err;
	}
	if (cq)
		use_put(&cq->usecnt);
	if (xrcd)
		use_put(&xrcd->usecnt);
	use_put(&pd->usecnt);
	return 0;
}

int ib_post_srq_recv(struct ib_srq *srq, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	struct ib_recv_wr *ignored;

	if (!srq->device->post_srq_recv)
		return -ENOSYS;
	return DRIVER_CALL(srq->device->post_srq_recv(srq, wr, bad ? bad : &ignored));
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

/* The objects that a QP uses; absent ones are NULL. */
struct qp_base {
	int *counts[6];
} OWNED_BY(the caller);

static struct qp_base core_qp_base_of(struct ib_pd *pd, struct ib_cq *send_cq,
				      struct ib_cq *recv_cq, struct ib_srq *srq,
				      struct ib_xrcd *xrcd, struct ib_rwq_ind_table *table)
{
	return (struct qp_base){ { pd ? &pd->usecnt : NULL, send_cq ? &send_cq->usecnt : NULL,
				   recv_cq ? &recv_cq->usecnt : NULL, srq ? &srq->usecnt : NULL,
				   xrcd ? &xrcd->usecnt : NULL, table ? &table->usecnt : NULL } };
}

static void core_qp_base_put(const struct qp_base *base, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (base->counts[i])
			use_put(base->counts[i]);
}

/* All or none; false if one of them is being destroyed. */
static bool core_qp_base_get(const struct qp_base *base)
{
	for (u32 i = 0; i < ARRAY_LEN(base->counts); i++) {
		if (!base->counts[i] || use_get(base->counts[i]))
			continue;
		core_qp_base_put(base, i);
		return false;
	}
	return true;
}

static bool core_qp_needs_cqs(enum ib_qp_type type)
{
	return type != IB_QPT_XRC_TGT && type != IB_QPT_XRC_INI;
}

/* What the type does not use is not looked at. */
static void core_qp_drop_unused(struct ib_qp_init_attr_ex *init)
{
	struct ib_qp_init_attr *base = &init->base;

	if (base->qp_type == IB_QPT_XRC_TGT)
		base->send_cq = NULL;
	if (!core_qp_needs_cqs(base->qp_type)) {
		base->recv_cq = NULL;
		base->srq = NULL;
	}
}

/* A queue pair with a table has nothing else, and only receives. */
static int core_qp_check_table(const struct ib_device *device, const struct ib_qp_init_attr_ex *ex)
{
	const struct ib_qp_init_attr *init = &ex->base;

	if (init->qp_type != IB_QPT_RAW_PACKET || ex->rwq_ind_tbl->device != device)
		return -EINVAL;
	return init->send_cq || init->recv_cq || init->srq ? -EINVAL : 0;
}

static int core_qp_check_init(const struct ib_device *device,
			      const struct ib_qp_init_attr_ex *ex)
{
	const struct ib_qp_init_attr *init = &ex->base;

	if (init->qp_type == IB_QPT_XRC_INI && !extended_has_xrc(device))
		return -EOPNOTSUPP;
	if (ex->xrcd && (init->qp_type != IB_QPT_XRC_TGT || ex->xrcd->device != device))
		return -EINVAL;
	if ((u32)init->qp_type >= IB_QPT_MAX || init->qp_type == 7)
		return -EINVAL;
	if (ex->rwq_ind_tbl)
		return core_qp_check_table(device, ex);
	if (core_qp_needs_cqs(init->qp_type) && (!init->send_cq || !init->recv_cq))
		return -EINVAL;
	if ((init->send_cq && init->send_cq->device != device) ||
	    (init->recv_cq && init->recv_cq->device != device) ||
	    (init->srq && init->srq->device != device))
		return -EINVAL;
	return 0;
}

static void core_qp_fill(struct ib_qp *qp, struct ib_device *device, struct ib_pd *pd,
			 const struct ib_qp_init_attr *init)
{
	qp->device = device;
	qp->pd = pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->event_handler = init->event_handler;
	qp->qp_context = init->qp_context;
	qp->qp_type = init->qp_type;
	qp->usecnt = 0;
}

struct ib_qp *ib_create_qp_ex(struct ib_pd *pd, struct ib_qp_init_attr_ex *init)
{
	struct ib_qp_init_attr_ex own;
	int err = extended_take_qp_attr(&own, init);
	struct ib_device *device;
	struct qp_base base;
	struct ib_qp *qp;

	if (err)
		return ERR_PTR(err);
	/* An XRC target's keys are judged by the PD of the SRQ. */
	if (own.xrcd && own.base.qp_type == IB_QPT_XRC_TGT)
		pd = NULL;
	else if (!pd)
		return ERR_PTR(-EINVAL);
	device = pd ? pd->device : own.xrcd->device;
	core_qp_drop_unused(&own);
	err = core_qp_check_init(device, &own);
	if (err)
		return ERR_PTR(err);
	base = core_qp_base_of(pd, own.base.send_cq, own.base.recv_cq, own.base.srq, own.xrcd,
			       own.rwq_ind_tbl);
	if (!core_qp_base_get(&base))
		return ERR_PTR(-EINVAL);
	qp = extended_create_qp(device, pd, &own);
	if (IS_ERR(qp)) {
		core_qp_base_put(&base, ARRAY_LEN(base.counts));
		return qp;
	}
	core_qp_fill(qp, device, pd, &own.base);
	extended_qp_set_xrcd(qp, own.xrcd);
	extended_qp_set_table(qp, own.rwq_ind_tbl);
	extended_qp_clear(qp);
	init->base.cap = own.base.cap;
	return qp;
}

struct ib_qp *ib_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *init)
{
	struct ib_qp_init_attr_ex ex = { .size = sizeof(ex), .base = *init };
	struct ib_qp *qp = ib_create_qp_ex(pd, &ex);

	if (!IS_ERR(qp))
		init->cap = ex.base.cap;
	return qp;
}

static bool port_is_known(const struct ib_device *device, u8 port_num)
{
	return port_num >= 1 && port_num <= device->phys_port_cnt;
}

static bool core_qp_attr_makes_sense(const struct ib_device *device, const struct ib_qp_attr *attr,
				int mask)
{
	if ((mask & IB_QP_STATE) && (u32)attr->qp_state > IB_QPS_ERR)
		return false;
	if ((mask & IB_QP_CUR_STATE) && (u32)attr->cur_qp_state > IB_QPS_ERR)
		return false;
	if ((mask & IB_QP_PORT) && !port_is_known(device, attr->port_num))
		return false;
	if ((mask & IB_QP_AV) && !port_is_known(device, attr->ah_attr.port_num))
		return false;
	if ((mask & IB_QP_ALT_PATH) && !port_is_known(device, attr->alt_port_num))
		return false;
	if ((mask & IB_QP_PATH_MTU) && ib_mtu_enum_to_int(attr->path_mtu) < 0)
		return false;
	return true;
}

int ib_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask)
{
	if (!qp || !attr)
		return -EINVAL;
	if (!core_qp_attr_makes_sense(qp->device, attr, mask))
		return -EINVAL;
	return DRIVER_CALL(qp->device->modify_qp(qp, attr, mask));
}

int ib_query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	if (!qp->device->query_qp)
		return -ENOSYS;
	return DRIVER_CALL(qp->device->query_qp(qp, attr, mask, init));
}

int ib_destroy_qp(struct ib_qp *qp)
{
	struct qp_base base = core_qp_base_of(qp->pd, qp->send_cq, qp->recv_cq, qp->srq,
					      extended_qp_xrcd(qp), extended_qp_table(qp));
	struct ib_device_core *core = qp->device->core;
	struct dispatch_mute mute;
	int err;

	if (!use_claim(&qp->usecnt))
		return -EBUSY;
	dispatch_mute(core, qp, &mute);
	err = DRIVER_CALL(qp->device->destroy_qp(qp));
	dispatch_unmute(core, &mute);
	if (err)
		use_unclaim(&qp->usecnt);
	else
		core_qp_base_put(&base, ARRAY_LEN(base.counts));
	return err;
}

int ib_post_send(struct ib_qp *qp, struct ib_send_wr *wr, struct ib_send_wr **bad)
{
	struct ib_send_wr *ignored;

	return DRIVER_CALL(qp->device->post_send(qp, wr, bad ? bad : &ignored));
}

int ib_post_recv(struct ib_qp *qp, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	struct ib_recv_wr *ignored;

	return DRIVER_CALL(qp->device->post_recv(qp, wr, bad ? bad : &ignored));
}
