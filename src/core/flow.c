/* flow.c: flow rules: checked, given to the driver, counted at their queue pair.
 * In: consumers, doors    Out: the driver's ib_device_ops    Runs: the caller    Locks: none
 */
#include "core/core_priv.h"

enum {
	FLOW_ATTR_LEAST = sizeof(struct ib_flow_attr),
	FLOW_FLAGS = IB_FLOW_ATTR_FLAGS_DONT_TRAP | IB_FLOW_ATTR_FLAGS_EGRESS,
};

static int core_flow_check(const struct ib_qp *qp, const struct ib_flow_attr *attr)
{
	bool normal = attr->type == IB_FLOW_ATTR_NORMAL;

	if (qp->qp_type != IB_QPT_RAW_PACKET && qp->qp_type != IB_QPT_UD)
		return -EINVAL;
	if ((u32)attr->type > IB_FLOW_ATTR_SNIFFER || (attr->flags & ~(u32)FLOW_FLAGS) != 0)
		return -EINVAL;
	if (attr->port < 1 || attr->port > qp->device->phys_port_cnt)
		return -EINVAL;
	if (attr->num_of_specs > IB_FLOW_SPEC_LAYERS || (attr->num_of_specs != 0 && !normal))
		return -EINVAL;
	return (attr->flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP) && !normal ? -EINVAL : 0;
}

struct ib_flow *ib_create_flow(struct ib_qp *qp, const struct ib_flow_attr *attr)
{
	const struct ib_device_ops *ops = &qp->device->core->ops;
	struct ib_flow_attr own;
	struct ib_flow *flow;
	int err = extended_take_attr(&own, sizeof(own), attr, attr->size, FLOW_ATTR_LEAST);

	if (!err && !ops->create_flow)
		err = -EOPNOTSUPP;
	if (!err)
		err = core_flow_check(qp, &own);
	if (!err && !use_get(&qp->usecnt))
		err = -EINVAL;
	if (err)
		return ERR_PTR(err);
	flow = DRIVER_CALL(ops->create_flow(qp, &own));
	if (IS_ERR(flow)) {
		use_put(&qp->usecnt);
		return flow;
	}
	flow->device = qp->device;
	flow->qp = qp;
	return flow;
}

int ib_destroy_flow(struct ib_flow *flow)
{
	struct ib_qp *qp = flow->qp;
	int err = DRIVER_CALL(flow->device->core->ops.destroy_flow(flow));

	if (!err)
		use_put(&qp->usecnt);
	return err;
}
