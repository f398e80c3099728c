/* extended.c: creation and queries by size-versioned structures, operations of tag-matching SRQs,
 * and the driver's methods for them.
 * In: consumers, doors    Out: the driver's ib_device_ops, or its older methods where they do
 * Runs: the caller    Locks: none of its own
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_linux61.h>

#include "core/consumer.h"
#include "core/core_priv.h"

/* The size of each structure in its first release. */
enum {
	CQ_ATTR_MIN = offsetof(struct ib_cq_init_attr, comp_vector) + sizeof(int),
	SRQ_ATTR_MIN = offsetof(struct ib_srq_init_attr_ex, max_ops) + sizeof(u32),
	QP_ATTR_MIN = offsetof(struct ib_qp_init_attr_ex, base) + sizeof(struct ib_qp_init_attr),
	OPS_MIN = offsetof(struct ib_device_ops, query_clock) + sizeof(void *),
};

/* The sizes of later releases. */
enum {
	DEVICE_ATTR_MIN = offsetof(struct ib_device_attr_ex, cq_caps) + sizeof(struct ib_cq_caps),
	OPS_WITH_SRQ_OPS = offsetof(struct ib_device_ops, post_srq_ops) + sizeof(void *),
	OPS_WITH_XRC = offsetof(struct ib_device_ops, close_xrcd) + sizeof(void *),
	OPS_WITH_WQ = offsetof(struct ib_device_ops, destroy_rwq_ind_table) + sizeof(void *),
	/* of objects with the fields of ib_linux61.h */
	DEVICE_WITH_DEV = offsetof(struct ib_device, dev) + sizeof(struct device),
	PD_WITH_KEYS = offsetof(struct ib_pd, internal_mr) + sizeof(void *),
	CQ_WITH_RES = offsetof(struct ib_cq, res) + sizeof(struct rdma_restrack_entry),
	QP_WITH_POOLS = offsetof(struct ib_qp, pools) + sizeof(void *),
	MR_WITH_RES = offsetof(struct ib_mr, res) + sizeof(struct rdma_restrack_entry),
	XRCD_ATTR_MIN = sizeof(struct ib_xrcd_init_attr),
};

/* The doors hand on lists as they are. */
_Static_assert(sizeof(struct ib_ops_wr) == sizeof(struct ibv_ops_wr), "same operation");
_Static_assert(offsetof(struct ib_ops_wr, flags) == offsetof(struct ibv_ops_wr, flags) &&
		       offsetof(struct ib_ops_wr, tm.handle) ==
			       offsetof(struct ibv_ops_wr, tm.handle) &&
		       offsetof(struct ib_ops_wr, tm.add.num_sge) ==
			       offsetof(struct ibv_ops_wr, tm.add.num_sge) &&
		       offsetof(struct ib_ops_wr, tm.add.mask) ==
			       offsetof(struct ibv_ops_wr, tm.add.mask),
	       "same operation");
_Static_assert((int)IB_WR_TAG_SYNC == (int)IBV_WR_TAG_SYNC &&
		       (int)IB_OPS_TM_SYNC == (int)IBV_OPS_TM_SYNC,
	       "same operation");

_Static_assert(sizeof(struct ib_wc_side) == 64, "polls hand out arrays of it: it never grows");

static bool bytes_are_zero(const void *from, size_t start, size_t end)
{
	const u8 *byte = from;

	for (size_t i = start; i < end; i++)
		if (byte[i])
			return false;
	return true;
}

/* Copies the part of `theirs` that both releases have; the rest of `own` becomes zero. */
static int attr_take(void *own, u32 own_size, const void *theirs, u32 size, u32 least)
{
	if (size < least)
		return -EINVAL;
	if (size > own_size && !bytes_are_zero(theirs, own_size, size))
		return -EOPNOTSUPP;
	memset(own, 0, own_size);
	memcpy(own, theirs, MIN(size, own_size));
	memcpy(own, &own_size, sizeof(own_size));
	return 0;
}

int extended_take_attr(void *own, u32 own_size, const void *theirs, u32 size, u32 least)
{
	return attr_take(own, own_size, theirs, size, least);
}

/* Does the structure ask for something that a driver with headers of that size has no field for?
 */
static bool attr_exceeds(const void *own, u32 own_size, u32 driver_size)
{
	return driver_size < own_size && !bytes_are_zero(own, driver_size, own_size);
}

int ib_set_device_ops(struct ib_device *device, const struct ib_device_ops *ops)
{
	struct ib_device_core *core;

	if (ops->size < OPS_MIN || ops->cq_attr_size < CQ_ATTR_MIN ||
	    ops->srq_attr_size < SRQ_ATTR_MIN || ops->qp_attr_size < QP_ATTR_MIN)
		return -EINVAL;
	core = core_device_make_core(device);
	if (!core)
		return -ENOMEM;
	if (core_device_is_registered(core))
		return -EBUSY;
	memset(&core->ops, 0, sizeof(core->ops));
	memcpy(&core->ops, ops, MIN(ops->size, (u32)sizeof(core->ops)));
	return 0;
}

bool core_serves_linux61(const struct ib_device *device)
{
	const struct ib_device_ops *ops = &device->core->ops;

	return ops->device_size >= DEVICE_WITH_DEV && ops->pd_size >= PD_WITH_KEYS &&
	       ops->cq_size >= CQ_WITH_RES && ops->qp_size >= QP_WITH_POOLS &&
	       ops->mr_size >= MR_WITH_RES;
}

bool extended_cq_polls_itself(const struct ib_cq *cq)
{
	return core_serves_linux61(cq->device) && __atomic_load_n(&cq->poller, __ATOMIC_RELAXED);
}

static u32 extended_next_id(void)
{
	static u32 last ATOMIC_ONLY;

	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

void extended_pd_clear(struct ib_pd *pd)
{
	if (!core_serves_linux61(pd->device))
		return;
	pd->local_dma_lkey = pd->unsafe_global_rkey = 0;
	pd->flags = 0;
	pd->internal_mr = NULL;
}

void extended_cq_clear(struct ib_cq *cq)
{
	if (!core_serves_linux61(cq->device))
		return;
	cq->poller = NULL;
	cq->res.id = extended_next_id();
}

void extended_mr_clear(struct ib_mr *mr)
{
	if (!core_serves_linux61(mr->device))
		return;
	mr->type = IB_MR_TYPE_DMA; /* of ib_alloc_mr it will be another */
	mr->need_inval = false;
	mr->sig_attrs = NULL;
	mr->res.id = extended_next_id();
}

void extended_qp_clear(struct ib_qp *qp)
{
	if (core_serves_linux61(qp->device))
		qp->pools = NULL;
}

/* ---- what a device can do -------------------------------------------------------------------- */

int ib_query_device_ex(struct ib_device *device, struct ib_device_attr_ex *attr)
{
	const struct ib_device_ops *ops = &device->core->ops;
	struct ib_device_attr_ex own = { .size = sizeof(own) };
	u32 size = attr->size;
	int err;

	if (size < DEVICE_ATTR_MIN)
		return -EINVAL;
	err = ib_query_device(device, &own.base);
	if (!err && ops->query_device)
		err = DRIVER_CALL(ops->query_device(device, &own));
	if (err)
		return err;
	memset(attr, 0, size);
	memcpy(attr, &own, MIN(size, (u32)sizeof(own)));
	attr->size = size;
	return 0;
}

/* ---- completion queues ----------------------------------------------------------------------- */

int extended_take_cq_attr(struct ib_cq_init_attr *own, const struct ib_cq_init_attr *theirs)
{
	return attr_take(own, sizeof(*own), theirs, theirs->size, CQ_ATTR_MIN);
}

struct ib_cq *extended_create_cq(struct ib_device *device, const struct ib_cq_init_attr *attr)
{
	const struct ib_device_ops *ops = &device->core->ops;

	if (ops->create_cq && !attr_exceeds(attr, sizeof(*attr), ops->cq_attr_size))
		return DRIVER_CALL(ops->create_cq(device, attr));
	if (attr->flags || attr_exceeds(attr, sizeof(*attr), CQ_ATTR_MIN))
		return ERR_PTR(-EOPNOTSUPP);
	return DRIVER_CALL(device->create_cq(device, attr->cqe, attr->comp_vector));
}

int ib_poll_cq_ex(struct ib_cq *cq, int num_entries, struct ib_wc *wc, struct ib_wc_side *side)
{
	const struct ib_device_ops *ops = &cq->device->core->ops;
	int got;

	if (num_entries <= 0)
		return num_entries ? -EINVAL : 0;
	if (ops->poll_cq)
		return DRIVER_CALL(ops->poll_cq(cq, num_entries, wc, side));
	got = DRIVER_CALL(cq->device->poll_cq(cq, num_entries, wc));
	if (got > 0)
		memset(side, 0, (size_t)got * sizeof(*side));
	return got;
}

int ib_query_clock(struct ib_device *device, u64 *raw)
{
	const struct ib_device_ops *ops = &device->core->ops;

	return ops->query_clock ? DRIVER_CALL(ops->query_clock(device, raw)) : -EOPNOTSUPP;
}

/* ---- XRC domains ----------------------------------------------------------------------------- */

bool extended_has_xrc(const struct ib_device *device)
{
	return device->core->ops.size >= OPS_WITH_XRC && device->core->ops.open_xrcd;
}

struct ib_xrcd *extended_srq_xrcd(const struct ib_srq *srq)
{
	return extended_has_xrc(srq->device) ? srq->xrcd : NULL;
}

struct ib_xrcd *extended_qp_xrcd(const struct ib_qp *qp)
{
	return extended_has_xrc(qp->device) ? qp->xrcd : NULL;
}

void extended_srq_set_xrcd(struct ib_srq *srq, struct ib_xrcd *xrcd)
{
	if (extended_has_xrc(srq->device))
		srq->xrcd = xrcd;
}

void extended_qp_set_xrcd(struct ib_qp *qp, struct ib_xrcd *xrcd)
{
	if (extended_has_xrc(qp->device))
		qp->xrcd = xrcd;
}

bool extended_has_wq(const struct ib_device *device)
{
	return device->core->ops.size >= OPS_WITH_WQ && device->core->ops.create_wq;
}

struct ib_rwq_ind_table *extended_qp_table(const struct ib_qp *qp)
{
	return extended_has_wq(qp->device) ? qp->rwq_ind_tbl : NULL;
}

void extended_qp_set_table(struct ib_qp *qp, struct ib_rwq_ind_table *table)
{
	if (extended_has_wq(qp->device))
		qp->rwq_ind_tbl = table;
}

struct ib_xrcd *ib_open_xrcd(struct ib_device *device, const struct ib_xrcd_init_attr *attr)
{
	struct ib_xrcd_init_attr own;
	struct ib_xrcd *xrcd;
	int err = attr_take(&own, sizeof(own), attr, attr->size, XRCD_ATTR_MIN);

	if (err)
		return ERR_PTR(err);
	if (!extended_has_xrc(device))
		return ERR_PTR(-EOPNOTSUPP);
	if (own.oflags & ~(O_CREAT | O_EXCL))
		return ERR_PTR(-EINVAL);
	xrcd = DRIVER_CALL(device->core->ops.open_xrcd(device, &own));
	if (IS_ERR(xrcd))
		return xrcd;
	xrcd->device = device;
	xrcd->usecnt = 0;
	return xrcd;
}

int ib_close_xrcd(struct ib_xrcd *xrcd)
{
	int err;

	if (!use_claim(&xrcd->usecnt))
		return -EBUSY;
	err = DRIVER_CALL(xrcd->device->core->ops.close_xrcd(xrcd));
	if (err)
		use_unclaim(&xrcd->usecnt);
	return err;
}

/* ---- shared receive queues ------------------------------------------------------------------- */

/* Does struct ib_srq end with `cq` for this driver? */
static bool core_srq_has_cq(const struct ib_device *device)
{
	return device->core->ops.create_srq != NULL;
}

struct ib_cq *extended_srq_cq(const struct ib_srq *srq)
{
	return core_srq_has_cq(srq->device) ? srq->cq : NULL;
}

void extended_srq_set_cq(struct ib_srq *srq, struct ib_cq *cq)
{
	if (core_srq_has_cq(srq->device))
		srq->cq = cq;
}

static bool core_srq_has_type(const struct ib_device *device)
{
	return device->core->ops.size >= OPS_WITH_SRQ_OPS;
}

void extended_srq_set_type(struct ib_srq *srq, enum ib_srq_type type)
{
	if (core_srq_has_type(srq->device))
		srq->srq_type = type;
}

static int core_srq_check_attr(const struct ib_pd *pd, const struct ib_srq_init_attr_ex *own)
{
	if ((u32)own->srq_type > IB_SRQT_TM)
		return -EINVAL;
	if ((own->srq_type == IB_SRQT_BASIC) != !own->cq)
		return -EINVAL;
	if ((own->srq_type == IB_SRQT_XRC) != !!own->xrcd)
		return -EINVAL;
	if (own->xrcd && own->xrcd->device != pd->device)
		return -EINVAL;
	return own->cq && own->cq->device != pd->device ? -EINVAL : 0;
}

/* The fields behind `base` describe types that the device's older method does not know. */
static struct ib_srq *core_srq_ask_driver(struct ib_pd *pd, struct ib_srq_init_attr_ex *own)
{
	const struct ib_device_ops *ops = &pd->device->core->ops;

	if (ops->create_srq && !attr_exceeds(own, sizeof(*own), ops->srq_attr_size))
		return DRIVER_CALL(ops->create_srq(pd, own));
	if (own->srq_type != IB_SRQT_BASIC ||
	    attr_exceeds(own, sizeof(*own), offsetof(struct ib_srq_init_attr_ex, cq)))
		return ERR_PTR(-EOPNOTSUPP);
	if (!pd->device->create_srq)
		return ERR_PTR(-ENOSYS);
	return DRIVER_CALL(pd->device->create_srq(pd, &own->base));
}

struct ib_srq *ib_create_srq_ex(struct ib_pd *pd, struct ib_srq_init_attr_ex *init)
{
	struct ib_srq_init_attr_ex own;
	struct ib_srq *srq;
	int err = attr_take(&own, sizeof(own), init, init->size, SRQ_ATTR_MIN);

	if (!err)
		err = core_srq_check_attr(pd, &own);
	if (!err && !use_get(&pd->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	if (own.cq && !use_get(&own.cq->usecnt)) {
		err = -EINVAL;
		goto put_pd;
	}
	if (own.xrcd && !use_get(&own.xrcd->usecnt)) {
		err = -EINVAL;
		goto put_cq;
	}
	srq = core_srq_ask_driver(pd, &own);
	if (IS_ERR(srq)) {
		err = (int)PTR_ERR(srq);
		goto put_xrcd;
	}
	verbs_fill_srq(srq, pd, &own);
	init->base.attr = own.base.attr;
	return srq;
put_xrcd:
	if (own.xrcd)
		use_put(&own.xrcd->usecnt);
put_cq:
	if (own.cq)
		use_put(&own.cq->usecnt);
put_pd:
	use_put(&pd->usecnt);
	return ERR_PTR(err);
}

int ib_post_srq_ops(struct ib_srq *srq, struct ib_ops_wr *wr, struct ib_ops_wr **bad)
{
	const struct ib_device_ops *ops = &srq->device->core->ops;
	struct ib_ops_wr *refused = wr;
	int err = -EOPNOTSUPP;

	if (ops->post_srq_ops)
		err = srq->srq_type != IB_SRQT_TM ?
			      -EINVAL :
			      DRIVER_CALL(ops->post_srq_ops(srq, wr, &refused));
	if (err && bad)
		*bad = refused;
	return err;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

struct ib_qp *extended_create_qp(struct ib_device *device, struct ib_pd *pd,
				 struct ib_qp_init_attr_ex *own)
{
	const struct ib_device_ops *ops = &device->core->ops;

	if (ops->create_qp && !attr_exceeds(own, sizeof(*own), ops->qp_attr_size))
		return DRIVER_CALL(ops->create_qp(pd, own));
	if (own->create_flags || attr_exceeds(own, sizeof(*own), QP_ATTR_MIN))
		return ERR_PTR(-EOPNOTSUPP);
	return pd ? DRIVER_CALL(device->create_qp(pd, &own->base)) : ERR_PTR(-EOPNOTSUPP);
}

int extended_take_qp_attr(struct ib_qp_init_attr_ex *own, const struct ib_qp_init_attr_ex *theirs)
{
	return attr_take(own, sizeof(*own), theirs, theirs->size, QP_ATTR_MIN);
}
