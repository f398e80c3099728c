/* madtap.c: records the MADs that leave a host's port, or come to one, during a capture.
 *
 * The fabric shows each MAD once. QP0 and QP1 number their packets as one here.
 * In:    MADs on links of the fabric      Out: records
 * Runs:  the daemon's only thread         Locks: capture.lock
 */
#include <endian.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/uio.h>

#include "daemon/fabric/fabricd.h"

enum { MADTAP_GRH_HOPS = 7, MADTAP_GRH_GIDS = 8, MADTAP_MTU = 256, MADTAP_PSN = 0xffffff };

/* The GRH's fields go into the packet, which the recorder writes out again. */
static void madtap_read_grh(const u8 grh[40], struct pkt *p)
{
	u32 first;

	memcpy(&first, grh, sizeof(first));
	first = be32toh(first);
	p->flags |= PKT_HAS_GRH;
	p->traffic_class = (u8)(first >> 20);
	p->flow_label = first & 0xfffff;
	p->hop_limit = grh[MADTAP_GRH_HOPS];
	p->sgid = grh + MADTAP_GRH_GIDS;
	p->dgid = grh + MADTAP_GRH_GIDS + 16;
}

static bool madtap_is_inbound(const struct fabricd *f, u32 out)
{
	const struct fabric_view *v = fabric_view(f->fabric);
	struct fabric_port_attr from;
	struct fabric_node_attr n;

	return fabric_port_read(v, out, &from) == 0 && fabric_node_read(v, from.node, &n) == 0 &&
	       n.type == FABRIC_SWITCH;
}

void madtap_crossed(void *arg, u32 out, u32 in, const struct fabric_mad *m)
{
	struct fabricd *f = arg;
	struct capture *c = &f->daemon->capture;
	struct iovec iov = { (void *)(uintptr_t)m->mad, FABRIC_MAD };
	struct capture_hold hold;
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = IBV_QPT_UD,
			 .dqpn = m->dst_qp,
			 .sqpn = m->src_qp,
			 .qkey = m->dst_qp == 0 ? 0 : m->qkey,
			 .length = FABRIC_MAD };
	struct capture_packet packet = { .kind = CAPTURE_LOCAL,
					 .sgid_index = CAPTURE_NO_GID,
					 .dgid_index = CAPTURE_NO_GID,
					 .lids = { m->slid, m->dlid, m->pkey, m->sl, m->has_grh },
					 .mtu = MADTAP_MTU,
					 .path_bytes = MADTAP_MTU,
					 .length = FABRIC_MAD,
					 .pkt = &p };

	if (!capture_is_on(c))
		return;
	p.psn = f->captured++ & MADTAP_PSN;
	if (m->has_grh)
		madtap_read_grh(m->grh, &p);
	packet.inbound = madtap_is_inbound(f, out);
	capture_begin(c, &packet, &hold);
	capture_end(c, &hold, &packet, &iov, 1, true);
}
