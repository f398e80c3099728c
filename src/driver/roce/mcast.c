/* mcast.c: multicast groups: the node keeps the members, every sender delivers to each. */
#include "driver/roce/roce.h"

#include <errno.h>

static int mcast_check(const struct ib_qp *qp, const union ib_gid *gid)
{
	return qp->qp_type == IB_QPT_UD && gid->raw[0] == 0xff ? 0 : -EINVAL;
}

static int mcast_attach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	int err = mcast_check(qp, gid);

	return err != 0 ? err : node_mcast_join(roce_dev(qp->device)->a.node, gid->raw, qp->qp_num);
}

static int mcast_detach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	int err = mcast_check(qp, gid);

	return err != 0 ? err
			: node_mcast_leave(roce_dev(qp->device)->a.node, gid->raw, qp->qp_num);
}

int roce_multicast(void *arg, const struct path_av *av, struct path_dest **dest, u32 *qpn, int max)
{
	struct roce_device *dev = arg;
	struct path *path = shm_path(dev->a.shm);
	struct node_member members[256];
	int n = node_mcast_members(dev->a.node, av->dgid, members,
				   MIN(max, (int)ARRAY_LEN(members)));
	int found = 0;

	for (int i = 0; i < n; i++) {
		struct path_dest *d = path->ops->dest_get(path, av, members[i].qpn);

		if (d == NULL)
			continue;
		dest[found] = d;
		qpn[found++] = members[i].qpn;
	}
	return found;
}

void roce_fill_mcast(struct ib_device *ib)
{
	ib->attach_mcast = mcast_attach;
	ib->detach_mcast = mcast_detach;
}
