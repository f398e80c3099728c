/* flow.c: flow rules and their counters: checked, given to the driver, counted at what they name.
 * In: consumers, doors    Out: the driver's ib_device_ops    Runs: the caller    Locks: none
 */
#include "core/core_priv.h"

enum {
	FLOW_ATTR_MIN = sizeof(struct ib_flow_attr),
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

/* The counters that the rule names, of which the rule is a user from here on; NULL: none. ERR_PTR:
 * -EINVAL. */
static struct ib_counters *core_flow_use_counters(const struct ib_qp *qp,
						  const struct ib_flow_attr *attr)
{
	struct ib_counters *counters = NULL;

	for (u32 i = 0; i < attr->num_of_specs; i++) {
		const struct ib_flow_spec *spec = &attr->specs[i];

		if (spec->type != IB_FLOW_SPEC_ACTION_COUNT)
			continue;
		if (counters || !spec->counters || spec->counters->device != qp->device)
			return ERR_PTR(-EINVAL);
		counters = spec->counters;
	}
	return !counters || use_get(&counters->usecnt) ? counters : ERR_PTR(-EINVAL);
}

static void core_flow_unuse(struct ib_qp *qp, struct ib_counters *counters)
{
	if (counters)
		use_put(&counters->usecnt);
	use_put(&qp->usecnt);
}

struct ib_flow *ib_create_flow(struct ib_qp *qp, const struct ib_flow_attr *attr)
{
	const struct ib_device_ops *ops = &qp->device->core->ops;
	struct ib_counters *counters;
	struct ib_flow_attr own;
	struct ib_flow *flow;
	int err = extended_take_attr(&own, sizeof(own), attr, attr->size, FLOW_ATTR_MIN);

	if (!err && !ops->create_flow)
		err = -EOPNOTSUPP;
	if (!err)
		err = core_flow_check(qp, &own);
	if (err)
		return ERR_PTR(err);
	counters = core_flow_use_counters(qp, &own);
	if (IS_ERR(counters))
		return ERR_PTR(PTR_ERR(counters));
	if (!use_get(&qp->usecnt)) {
		if (counters)
			use_put(&counters->usecnt);
		return ERR_PTR(-EINVAL);
	}
	flow = DRIVER_CALL(ops->create_flow(qp, &own));
	if (IS_ERR(flow)) {
		core_flow_unuse(qp, counters);
		return flow;
	}
	flow->device = qp->device;
	flow->qp = qp;
	flow->counters = counters;
	return flow;
}

int ib_destroy_flow(struct ib_flow *flow)
{
	struct ib_counters *counters = flow->counters;
	struct ib_qp *qp = flow->qp;
	int err = DRIVER_CALL(flow->device->core->ops.destroy_flow(flow));

	if (!err)
		core_flow_unuse(qp, counters);
	return err;
}

/* ---- counters -------------------------------------------------------------------------------- */

struct ib_counters *ib_create_counters(struct ib_device *device)
{
	const struct ib_device_ops *ops = &device->core->ops;
	struct ib_counters *counters;

	if (!ops->create_counters)
		return ERR_PTR(-EOPNOTSUPP);
	counters = DRIVER_CALL(ops->create_counters(device));
	if (IS_ERR(counters))
		return counters;
	counters->device = device;
	counters->usecnt = 0;
	return counters;
}

int ib_destroy_counters(struct ib_counters *counters)
{
	const struct ib_device_ops *ops = &counters->device->core->ops;

	if (!use_claim(&counters->usecnt))
		return -EBUSY;
	event_driver_depth++;
	ops->destroy_counters(counters);
	event_driver_depth--;
	return 0;
}

int ib_read_counters(struct ib_counters *counters, u64 values[IB_COUNTER_KINDS])
{
	return DRIVER_CALL(counters->device->core->ops.read_counters(counters, values));
}
