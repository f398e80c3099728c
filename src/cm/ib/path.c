/* path.c: paths: as consumers have them, as messages carry them, and as address vectors.
 * In: path records, messages    Out: the same in the other forms
 * Runs: any thread    Locks: cm.lock
 * Spec: IBA vol 1, 12.7 (fields), 13.6.2 (exponents of time)
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

#define CM_LID_PERMISSIVE 0xffff
#define CM_PATH_BITS 0x7f /* as many as the greatest LMC has */

/* Twice the path's life time and the delay, both exponents of two: the sum of two numbers of which
 * one is much larger is the larger one; of two that are near, the next exponent. */
u8 cm_ack_timeout(u8 ack_delay, u8 packet_life_time)
{
	int round = packet_life_time + 1, sum;

	if (round >= ack_delay)
		sum = round + (ack_delay >= round - 1);
	else
		sum = ack_delay + (round >= ack_delay - 1);
	return (u8)MIN(sum, 31);
}

int cm_av_from_path(struct cm_device *dev, const struct ib_sa_path_rec *path, struct cm_av *av)
{
	/* a path with LIDs stays in the subnet, unless its hop limit says more */
	bool local = path->dlid != 0 && path->hop_limit <= 1;
	u16 gid_index, pkey_index;
	u8 port;

	if (dev->ops->find_gid(dev, &path->sgid, &port, &gid_index) != 0 ||
	    dev->ops->find_pkey(dev, port, be16toh(path->pkey), &pkey_index) != 0)
		return -EINVAL;
	*av = (struct cm_av){
		.route = {
			.ah = {
				.dlid = be16toh(path->dlid),
				.sl = path->sl,
				.static_rate = path->rate,
				.src_path_bits = be16toh(path->slid) & CM_PATH_BITS,
				.ah_flags = local ? 0 : IB_AH_GRH,
				.port_num = port,
				.grh = { .dgid = path->dgid,
					 .flow_label = be32toh(path->flow_label),
					 .sgid_index = (u8)gid_index,
					 .hop_limit = path->hop_limit,
					 .traffic_class = path->traffic_class },
			},
			.pkey_index = pkey_index,
		},
		.timeout = cm_ack_timeout(dev->ack_delay, path->packet_life_time),
		.valid = true,
	};
	return 0;
}

void cm_path_to_wire(const struct ib_sa_path_rec *path, u8 ack_delay, struct cm_wire_path *wire)
{
	bool local = path->hop_limit <= 1;

	*wire = (struct cm_wire_path){
		.local_lid = local ? be16toh(path->slid) : CM_LID_PERMISSIVE,
		.remote_lid = local ? be16toh(path->dlid) : CM_LID_PERMISSIVE,
		.flow_label = be32toh(path->flow_label),
		.packet_rate = path->rate,
		.traffic_class = path->traffic_class,
		.hop_limit = path->hop_limit,
		.sl = path->sl,
		.subnet_local = local,
		.local_ack_timeout = cm_ack_timeout(ack_delay, path->packet_life_time),
	};
	memcpy(wire->local_gid, path->sgid.raw, 16);
	memcpy(wire->remote_gid, path->dgid.raw, 16);
}

bool cm_alternate_is_peers(struct cm *cm, const struct cm_received *r,
			   const struct cm_wire_path *wire)
{
	const union ib_gid *from = &r->a->sgid;
	union ib_gid to;

	if (!(r->a->back.ah.ah_flags & IB_AH_GRH))
		return true;
	memcpy(to.raw, wire->local_gid, sizeof(to.raw));
	return memcmp(&to, from, sizeof(to)) == 0 ||
	       (cm_gid_is_own(cm, &to) && cm_gid_is_own(cm, from));
}

bool cm_path_leaves_lid(u16 lid, const struct cm_wire_path *wire)
{
	return !wire->subnet_local && lid == CM_LID_PERMISSIVE;
}

void cm_path_from_wire(const struct cm_wire_path *wire, const struct cm_req_msg *req,
		       const struct cm_route *back, struct ib_sa_path_rec *path)
{
	u16 dlid = wire->local_lid, slid = wire->remote_lid;

	if (cm_path_leaves_lid(dlid, wire))
		dlid = back->ah.dlid;
	if (cm_path_leaves_lid(slid, wire))
		slid = 0;
	*path = (struct ib_sa_path_rec){
		.dlid = htobe16(dlid),
		.slid = htobe16(slid),
		.flow_label = htobe32(wire->flow_label),
		.hop_limit = wire->hop_limit,
		.traffic_class = wire->traffic_class,
		.reversible = 1,
		.pkey = htobe16(req->pkey),
		.sl = wire->sl,
		.mtu_selector = IB_SA_EQ,
		.mtu = req->path_mtu,
		.rate_selector = IB_SA_EQ,
		.rate = wire->packet_rate,
		.packet_life_time_selector = IB_SA_EQ,
		.packet_life_time = (u8)(wire->local_ack_timeout - (wire->local_ack_timeout > 0)),
	};
	memcpy(path->dgid.raw, wire->local_gid, 16);
	memcpy(path->sgid.raw, wire->remote_gid, 16);
}
