/* qp.c: queue pairs that the RDMA CM takes through their states, and the attributes for those that
 * it does not.
 * In:    ids and what the IB CM knows of their connections     Out: ib_modify_qp, attributes
 * Runs:  consumers' threads, the IB CM's; may block
 * Locks: struct cma_id.qp_lock, over cma.lock and what ib_modify_qp takes
 */
#include <errno.h>
#include <rdma/ib_cache.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"

/* ---- attributes ------------------------------------------------------------------------------ */

/* The port space IPOIB has the Q_Key of its broadcast group, as IPoIB's own interfaces. */
static int cma_qp_take_qkey(struct cma_id *id, const struct cma_device *d)
{
	if (id->qkey != 0 || id->id.ps != RDMA_PS_IPOIB || !d->infiniband)
		return 0;
	return cma_mcast_ib_qkey(id, d->device, &id->qkey);
}

/* Of a queue pair without a connection. */
static int cma_qp_attr_unconnected(struct cma_id *id, const struct cma_device *d,
				   struct ib_qp_attr *attr, int *mask)
{
	u16 pkey = d->infiniband ? id->id.route.addr.pkey : CMA_PKEY;
	int err;

	if (cma_is_in(id, CMA_LISTEN))
		return -EINVAL;
	err = ib_find_cached_pkey(d->device, id->id.port_num, pkey, &attr->pkey_index);
	if (err == 0 && cma_is_datagram(&id->id))
		err = cma_qp_take_qkey(id, d);
	if (err < 0)
		return err;
	attr->port_num = id->id.port_num;
	*mask = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT;
	if (cma_is_datagram(&id->id)) {
		attr->qkey = cma_qkey(id);
		*mask |= IB_QP_QKEY;
	} else {
		attr->qp_access_flags = 0;
		*mask |= IB_QP_ACCESS_FLAGS;
	}
	return 0;
}

static int cma_qp_attr_connected(struct cma_id *id, struct ib_cm_id *ib, struct ib_qp_attr *attr,
				 int *mask)
{
	struct cma_options options = cma_options_of(id);
	int err = ib_cm_init_qp_attr(ib, attr, mask);

	if (err < 0)
		return err;
	if (attr->qp_state == IB_QPS_RTR)
		attr->rq_psn = id->seq_num;
	if ((*mask & IB_QP_TIMEOUT) && options.ack_timeout != 0)
		attr->timeout = options.ack_timeout & 0x7f;
	if ((*mask & IB_QP_MIN_RNR_TIMER) && options.min_rnr_timer != 0)
		attr->min_rnr_timer = options.min_rnr_timer & 0x7f;
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *cm_id, struct ib_qp_attr *qp_attr, int *qp_attr_mask)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_cm_id *ib;
	struct cma_device *d;
	int err = -EINVAL;

	if (qp_attr->qp_state > IB_QPS_ERR)
		return -EINVAL;
	d = cma_device_hold_ib(id, &ib);
	if (ib != NULL && !cma_is_datagram(cm_id))
		err = cma_qp_attr_connected(id, ib, qp_attr, qp_attr_mask);
	else if (d != NULL)
		err = cma_qp_attr_unconnected(id, d, qp_attr, qp_attr_mask);
	cma_device_release(d);
	return err;
}

/* ---- states ---------------------------------------------------------------------------------- */

static int cma_qp_to(struct cma_id *id, enum ib_qp_state state, struct ib_qp_attr *attr, int *mask)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	return rdma_init_qp_attr(&id->id, attr, mask);
}

/* To INIT once more, RTR or RTS; `param` NULL: with the depths that the connection says. */
static int cma_qp_step(struct cma_id *id, enum ib_qp_state state,
		       const struct rdma_conn_param *param) REQUIRES(id->qp_lock)
{
	struct ib_qp_attr attr;
	int mask, err = cma_qp_to(id, state, &attr, &mask);

	if (err < 0)
		return err;
	if (param != NULL && state == IB_QPS_RTR)
		attr.max_dest_rd_atomic = param->responder_resources;
	if (param != NULL && state == IB_QPS_RTS)
		attr.max_rd_atomic = param->initiator_depth;
	return ib_modify_qp(id->id.qp, &attr, mask);
}

int cma_qp_to_rts(struct cma_id *id, const struct rdma_conn_param *param)
{
	/* rdma_create_qp gave no rights to the peer: they are the connection's */
	static const enum ib_qp_state steps[] = { IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS };
	int err = 0;

	lock_acquire(&id->qp_lock);
	for (size_t i = 0; i < ARRAY_LEN(steps) && err == 0 && id->id.qp != NULL; i++)
		err = cma_qp_step(id, steps[i], param);
	lock_release(&id->qp_lock);
	return err;
}

void cma_qp_to_err(struct cma_id *id)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	lock_acquire(&id->qp_lock);
	if (id->id.qp != NULL)
		(void)ib_modify_qp(id->id.qp, &attr, IB_QP_STATE);
	lock_release(&id->qp_lock);
}

static int cma_qp_to_init(struct cma_id *id, struct ib_qp *qp)
{
	struct ib_qp_attr attr;
	int mask, err = cma_qp_to(id, IB_QPS_INIT, &attr, &mask);

	return err < 0 ? err : ib_modify_qp(qp, &attr, mask);
}

/* A datagram queue pair needs nobody's consent. */
static int cma_qp_to_ready(struct cma_id *id, struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTR };
	int err = ib_modify_qp(qp, &attr, IB_QP_STATE);

	if (err < 0)
		return err;
	attr.qp_state = IB_QPS_RTS;
	attr.sq_psn = id->seq_num;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}

int rdma_create_qp(struct rdma_cm_id *cm_id, struct ib_pd *pd, struct ib_qp_init_attr *qp_init_attr)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_qp *qp;
	int err;

	if (cm_id->device == NULL || cm_id->device != pd->device || cm_id->qp != NULL)
		return -EINVAL;
	qp = ib_create_qp(pd, qp_init_attr);
	if (IS_ERR(qp))
		return (int)PTR_ERR(qp);
	err = cma_qp_to_init(id, qp);
	if (err == 0 && qp->qp_type == IB_QPT_UD)
		err = cma_qp_to_ready(id, qp);
	if (err < 0) {
		ib_destroy_qp(qp);
		return err;
	}
	cm_id->qp = qp;
	return 0;
}

/* Waits for a thread of the CM that leads the queue pair through its states. Its destruction, which
 * waits for handlers of the queue pair, holds no lock: they may call for the id. */
void rdma_destroy_qp(struct rdma_cm_id *cm_id)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_qp *qp;

	lock_acquire(&id->qp_lock);
	qp = cm_id->qp;
	cm_id->qp = NULL;
	lock_release(&id->qp_lock);
	if (qp != NULL)
		ib_destroy_qp(qp);
}
