/* mcast.c: multicast groups: the node keeps the members, the fabric's tables say which of them a
 * datagram reaches.
 * In:    queue pairs, MGIDs, MLIDs    Out: memberships, destinations
 * Runs:  any thread    Locks: none
 */
#include "driver/ib/ib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "node/fabric.h"

static int hca_mcast_check(const struct ib_qp *qp, const union ib_gid *gid, u16 lid)
{
	return qp->qp_type == IB_QPT_UD && gid->raw[0] == 0xff && lid >= FABRIC_MLID_FIRST &&
			       lid != FABRIC_LID_PERMISSIVE
		       ? 0
		       : -EINVAL;
}

static int hca_mcast_attach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	int err = soft_check(qp->device);

	if (err == 0)
		err = hca_mcast_check(qp, gid, lid);
	if (err == 0 && !soft_qp_is_ours(qp))
		err = -EIO;
	if (err == 0)
		err = node_mcast_join(the_seat.a.node, gid->raw, qp->qp_num);
	return err == -ENOSPC ? -ENOMEM : err;
}

static int hca_mcast_detach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	int err = hca_mcast_check(qp, gid, lid);

	if (err != 0)
		return err;
	/* of a parent, which stays a member */
	return soft_qp_is_ours(qp) ? node_mcast_leave(the_seat.a.node, gid->raw, qp->qp_num) : 0;
}

/* The ports that the datagram reaches; the sender's own, whose other queue pairs hear it, too. It
 * is counted at once: when unicast datagrams are charged, members may have left. */
static int hca_mcast_ports(const struct path_av *av, const struct pkt *p, u32 *ports, u32 max)
{
	const struct fabric_counters *c = &hca_fabric()->counters;
	struct hca_device *dev = hca_av_device(av);
	struct fabric_flow w = hca_av_flow(av);
	int n;

	if (dev == NULL || max < 1)
		return 0;
	ports[0] = dev->port[hca_av_port(av)].index;
	if (hca_ways_is_new(p))
		n = fabric_mcast_charge(hca_view(), c, hca_charge_datagram(av, p->length), ports[0],
					&w, ports + 1, max - 1);
	else
		n = fabric_mcast_route(hca_view(), ports[0], av->dlid, &w, ports + 1, max - 1);
	return n < 0 ? 0 : 1 + MIN(n, (int)max - 1);
}

static bool hca_mcast_reaches(u32 qpn, const u32 *ports, int count)
{
	for (int i = 0; i < count; i++)
		if (node_fabric_is_at(hca_fabric(), qpn >> NODE_INDEX_BITS, ports[i]))
			return true;
	return false;
}

int hca_multicast(void *seat, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max)
{
	enum { MCAST_PORTS = 4096 };
	struct seat *s = seat;
	struct path *path = shm_path(s->a.shm);
	struct node_member member[IBT_MEMBERS];
	/* not on the stack, which is the application's; without memory the datagram is lost */
	u32 *ports = malloc(MCAST_PORTS * sizeof(*ports));
	int n, found = 0, count;

	if (ports == NULL)
		return 0;
	count = hca_mcast_ports(av, p, ports, MCAST_PORTS);
	do {
		n = node_mcast_members(s->a.node, av->dgid, from, member,
				       MIN(max - found, IBT_MEMBERS));
		for (int i = 0; i < n; i++) {
			struct path_dest *d;

			from = member[i].at + 1;
			if (!hca_mcast_reaches(member[i].qpn, ports, count))
				continue;
			d = path->ops->dest_get(path, av, member[i].qpn);
			if (d == NULL)
				d = path->ops->dest_nowhere(path);
			out[found++] = (struct ibt_member){ d, member[i].qpn, member[i].at };
		}
	} while (n > 0 && found < max);
	free(ports);
	return found;
}

void hca_fill_mcast(struct ib_device *ib)
{
	ib->attach_mcast = hca_mcast_attach;
	ib->detach_mcast = hca_mcast_detach;
}
