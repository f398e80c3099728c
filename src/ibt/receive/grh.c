/* grh.c: the 40 bytes in front of a datagram's payload, as adapters leave them.
 * In:    a decoded packet    Out: bytes    Runs: the receiving thread    Locks: none
 * Spec:  IBA vol 1, 8.3; annex A17
 */
#include <netinet/in.h>

#include "ibt/receive/grh.h"

enum { GRH_UDP_HEADER = 8, GRH_BTH = 0x1b /* the next header is a BTH: IBA vol 1, 8.3 */ };

bool grh_is_v4(const u8 gid[16])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static u16 grh_checksum(const u8 *h)
{
	u32 sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (u32)h[i] << 8 | h[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16) ~(sum + (sum >> 16));
}

static bool grh_has_ipv4(const struct pkt *p)
{
	return grh_is_v4(p->dgid) && grh_is_v4(p->sgid);
}

void grh_wc_route(const struct ibt_qp *qp, const struct pkt *p, struct ibv_wc *wc)
{
	if (!p->no_grh)
		wc->wc_flags |= IBV_WC_GRH;
	if (p->dlid == 0) {
		wc->sl = grh_has_ipv4(p) ? 2 : 1;
		return;
	}
	wc->sl = p->sl;
	wc->slid = p->slid;
	wc->dlid_path_bits = (u8)(p->dlid & qp->lid_mask);
}

/* What stands behind the UDP header: BTH, DETH, the payload with its padding, ICRC. */
static u32 grh_bytes(const struct pkt *p)
{
	u32 imm = p->opcode == PKT_SEND_ONLY_IMM ? 4 : 0;

	return 12 + 8 + imm + ((p->length + 3) & ~3u) + 4;
}

static void grh_fill_ipv4(u8 ip[20], const struct pkt *p)
{
	u16 length = (u16)(20 + GRH_UDP_HEADER + grh_bytes(p)), sum;

	ip[0] = 0x45;
	ip[1] = p->traffic_class;
	ip[2] = (u8)(length >> 8);
	ip[3] = (u8)length;
	ip[6] = 0x40;
	ip[8] = p->hop_limit;
	ip[9] = IPPROTO_UDP;
	memcpy(ip + 12, p->sgid + 12, 4);
	memcpy(ip + 16, p->dgid + 12, 4);
	sum = grh_checksum(ip);
	ip[10] = (u8)(sum >> 8);
	ip[11] = (u8)sum;
}

/* The 40 bytes in front of the payload, as adapters leave them. InfiniBand: the packet's GRH.
 * RoCEv2: the datagram's IPv6 header, whose next one is UDP, or its IPv4 header in the last 20 of
 * them. */
void grh_fill(u8 grh[IBT_GRH], const struct pkt *p)
{
	bool has_udp = p->dlid == 0;
	u32 length = grh_bytes(p) + (has_udp ? GRH_UDP_HEADER : 0);

	memset(grh, 0, IBT_GRH);
	if (has_udp && grh_has_ipv4(p)) {
		grh_fill_ipv4(grh + 20, p);
		return;
	}
	grh[0] = (u8)(0x60 | p->traffic_class >> 4);
	grh[1] = (u8)(p->traffic_class << 4 | (p->flow_label >> 16 & 15));
	grh[2] = (u8)(p->flow_label >> 8);
	grh[3] = (u8)p->flow_label;
	grh[4] = (u8)(length >> 8);
	grh[5] = (u8)length;
	grh[6] = has_udp ? IPPROTO_UDP : GRH_BTH;
	grh[7] = p->hop_limit;
	memcpy(grh + 8, p->sgid, 16);
	memcpy(grh + 24, p->dgid, 16);
}
