/* mcast.c: multicast groups: the node keeps the members on this host, and the sender delivers to
 * each of them; other hosts get one datagram to the group's IP address. */
#include "driver/roce/roce.h"

#include <errno.h>

/* Places in a group: the other hosts, and then its members on this one. */
enum { MCAST_OTHERS, MCAST_LOCAL };

static int adapter_mcast_check(const struct ib_qp *qp, const union ib_gid *gid)
{
	return qp->qp_type == IB_QPT_UD && node_is_mcast(gid->raw) ? 0 : -EINVAL;
}

static int adapter_mcast_attach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	struct seat *s = &the_seat;
	int err = soft_check(qp->device);

	if (err == 0)
		err = adapter_mcast_check(qp, gid);
	if (err == 0 && !soft_qp_is_ours(qp))
		err = -EIO;
	if (err == 0)
		err = node_mcast_join(s->a.node, gid->raw, qp->qp_num);
	/* If the wire cannot be joined the members of this host are still reached. A shortage of
	 * descriptors or memory is an error: the queue pair would miss datagrams unnoticed. */
	if (err == 0 && (s->paths & SEAT_PATH_UDP) != 0 &&
	    udp_group_join(s->a.udp, gid->raw, qp->qp_num) == -ENOMEM) {
		(void)node_mcast_leave(s->a.node, gid->raw, qp->qp_num);
		err = -ENOMEM;
	}
	return err == -ENOSPC ? -ENOMEM : err;
}

static int adapter_mcast_detach(struct ib_qp *qp, union ib_gid *gid, u16 lid)
{
	struct seat *s = &the_seat;
	int err = adapter_mcast_check(qp, gid);

	if (err == 0 && !soft_qp_is_ours(qp))
		return 0; /* the parent stays a member */
	if (err == 0)
		err = node_mcast_leave(s->a.node, gid->raw, qp->qp_num);
	if (err == 0 && (s->paths & SEAT_PATH_UDP) != 0)
		udp_group_leave(s->a.udp, gid->raw, qp->qp_num);
	return err;
}

/* False: the member gets the datagram to the group's IP address. Without memory for a member's
 * destination its copy is dropped and counted. */
static bool adapter_mcast_member(struct seat *s, const struct path_av *av,
				 const struct node_member *member, struct ibt_member *out)
{
	struct path *path = shm_path(s->a.shm);
	struct path_dest *d = path->ops->dest_get(path, av, member->qpn);

	if (d == NULL && shm_slot_is_wire_only(s->a.shm, member->qpn >> NODE_INDEX_BITS))
		return false;
	if (d == NULL)
		d = path->ops->dest_nowhere(path);
	*out = (struct ibt_member){ d, member->qpn, MCAST_LOCAL + member->at };
	return true;
}

/* Sends to each member on this host by the ring to its process. */
static int adapter_mcast_local(struct seat *s, const struct path_av *av, u32 from,
		       struct ibt_member *out, int max)
{
	struct node_member member[IBT_MEMBERS];
	int found, wanted, n = 0;

	do {
		wanted = max - n;
		found = node_mcast_members(s->a.node, av->dgid, from, member, wanted);
		for (int i = 0; i < found; i++) {
			n += adapter_mcast_member(s, av, &member[i], &out[n]);
			from = member[i].at + 1;
		}
	} while (found == wanted && n < max);
	return n;
}

int adapter_multicast(void *seat, const struct path_av *av, const struct pkt *p, u32 from,
		  struct ibt_member *out, int max)
{
	struct seat *s = seat;
	struct path_dest *others = NULL;
	int found = 0;

	if (from == MCAST_OTHERS && (s->paths & SEAT_PATH_UDP) != 0)
		others = udp_group_dest(s->a.udp, av);
	if (others != NULL)
		out[found++] = (struct ibt_member){ others, UDP_GROUP_QPN, MCAST_OTHERS };
	if (s->paths & SEAT_PATH_SHM)
		found += adapter_mcast_local(s, av, MAX(from, (u32)MCAST_LOCAL) - MCAST_LOCAL,
				     out + found, max - found);
	return found;
}

void adapter_fill_mcast(struct ib_device *ib)
{
	ib->attach_mcast = adapter_mcast_attach;
	ib->detach_mcast = adapter_mcast_detach;
}
