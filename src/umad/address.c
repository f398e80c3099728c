/* address.c: addresses as the header of a buffer has them, and as ib_* has them.
 * In:    headers of programs; where a MAD came from    Out: attributes; headers
 * Runs:  any thread    Locks: none
 */
#include <endian.h>
#include <rdma/ib_cache.h>
#include <string.h>

#include "umad/umad_priv.h"

struct ib_ah_attr umad_address_of(const struct ib_user_mad_hdr *hdr, u8 port_num)
{
	struct ib_ah_attr attr = { .dlid = be16toh(hdr->lid),
				   .sl = hdr->sl,
				   .src_path_bits = hdr->path_bits,
				   .port_num = port_num };

	if (hdr->grh_present == 0)
		return attr;
	attr.ah_flags = IB_AH_GRH;
	memcpy(attr.grh.dgid.raw, hdr->gid, sizeof(attr.grh.dgid.raw));
	attr.grh.flow_label = be32toh(hdr->flow_label);
	attr.grh.sgid_index = hdr->gid_index;
	attr.grh.hop_limit = hdr->hop_limit;
	attr.grh.traffic_class = hdr->traffic_class;
	return attr;
}

bool umad_address_same(const struct ib_ah_attr *a, const struct ib_ah_attr *b)
{
	if (a->dlid != b->dlid || a->sl != b->sl || a->src_path_bits != b->src_path_bits ||
	    a->ah_flags != b->ah_flags || a->port_num != b->port_num)
		return false;
	return (a->ah_flags & IB_AH_GRH) == 0 ||
	       (memcmp(a->grh.dgid.raw, b->grh.dgid.raw, sizeof(a->grh.dgid.raw)) == 0 &&
		a->grh.flow_label == b->grh.flow_label && a->grh.sgid_index == b->grh.sgid_index &&
		a->grh.hop_limit == b->grh.hop_limit &&
		a->grh.traffic_class == b->grh.traffic_class);
}

static void umad_address_fill_grh(struct ib_user_mad_hdr *hdr, const struct ib_mad_agent *agent,
				  const struct ib_grh *grh)
{
	u32 word = be32toh(grh->version_tclass_flow);
	u16 index = 0;

	(void)ib_find_cached_gid_by_port(agent->device, &grh->dgid, agent->port_num, &index);
	hdr->grh_present = 1;
	hdr->gid_index = (u8)index;
	hdr->hop_limit = grh->hop_limit;
	hdr->traffic_class = (u8)(word >> 20);
	memcpy(hdr->gid, grh->sgid.raw, sizeof(hdr->gid));
	hdr->flow_label = htobe32(word & 0xfffff);
}

void umad_address_fill(struct ib_user_mad_hdr *hdr, const struct ib_mad_agent *agent,
		       const struct ib_mad_recv_wc *recv)
{
	const struct ib_wc *wc = recv->wc;

	*hdr = (struct ib_user_mad_hdr){ .length = (u32)(sizeof(*hdr) + (size_t)recv->mad_len),
					 .qpn = htobe32(wc->src_qp),
					 .lid = htobe16(wc->slid),
					 .sl = wc->sl,
					 .path_bits = wc->dlid_path_bits,
					 .pkey_index = wc->pkey_index };
	if ((wc->wc_flags & IB_WC_GRH) != 0)
		umad_address_fill_grh(hdr, agent, recv->recv_buf.grh);
}
