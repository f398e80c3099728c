/* ud_header.c: the headers of a datagram, on InfiniBand and on Ethernet: one table per header.
 * In:    struct ib_ud_header, received bytes      Out: bytes, struct ib_ud_header
 * Runs:  any thread                               Locks: none
 * Spec:  IBA vol 1, 7.7 (LRH), 8.3 (GRH), 9.2 (BTH), 9.3.1 (DETH); A17 (RoCEv2); IEEE 802.1Q
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "pack/pack.h"

enum {
	UDH_IP6 = 6,
	UDH_NEXT_BTH = 0x1b, /* GRH's next header */
	UDH_NEXT_UDP = 17,
	UDH_TYPE_VLAN = 0x8100,
	UDH_IMMEDIATE = 4,
};

#define TYPE struct ib_unpacked_lrh
static const struct ib_field udh_lrh[] = {
	PACK_FIELD(virtual_lane, 0, 0, 4),
	PACK_FIELD(link_version, 0, 4, 4),
	PACK_FIELD(service_level, 0, 8, 4),
	PACK_RESERVED(0, 12, 2),
	PACK_FIELD(link_next_header, 0, 14, 2),
	PACK_FIELD(destination_lid, 0, 16, 16),
	PACK_RESERVED(1, 0, 5),
	PACK_FIELD(packet_length, 1, 5, 11),
	PACK_FIELD(source_lid, 1, 16, 16),
};
#undef TYPE

#define TYPE struct ib_unpacked_eth
static const struct ib_field udh_eth[] = {
	PACK_FIELD(dmac_h, 0, 0, 32),
	PACK_FIELD(dmac_l, 1, 0, 16),
	PACK_FIELD(smac_h, 1, 16, 16),
	PACK_FIELD(smac_l, 2, 0, 32),
	PACK_FIELD(type, 3, 0, 16),
};
#undef TYPE

#define TYPE struct ib_unpacked_vlan
static const struct ib_field udh_vlan[] = {
	PACK_FIELD(tag, 0, 0, 16),
	PACK_FIELD(type, 0, 16, 16),
};
#undef TYPE

#define TYPE struct ib_unpacked_grh
static const struct ib_field udh_grh[] = {
	PACK_FIELD(ip_version, 0, 0, 4),
	PACK_FIELD(traffic_class, 0, 4, 8),
	PACK_FIELD(flow_label, 0, 12, 20),
	PACK_FIELD(payload_length, 1, 0, 16),
	PACK_FIELD(next_header, 1, 16, 8),
	PACK_FIELD(hop_limit, 1, 24, 8),
	PACK_FIELD(source_gid, 2, 0, 128),
	PACK_FIELD(destination_gid, 6, 0, 128),
};
#undef TYPE

#define TYPE struct ib_unpacked_ip4
static const struct ib_field udh_ip4[] = {
	PACK_FIELD(ver, 0, 0, 4),
	PACK_FIELD(hdr_len, 0, 4, 4),
	PACK_FIELD(tos, 0, 8, 8),
	PACK_FIELD(tot_len, 0, 16, 16),
	PACK_FIELD(id, 1, 0, 16),
	PACK_FIELD(frag_off, 1, 16, 16),
	PACK_FIELD(ttl, 2, 0, 8),
	PACK_FIELD(protocol, 2, 8, 8),
	PACK_FIELD(check, 2, 16, 16),
	PACK_FIELD(saddr, 3, 0, 32),
	PACK_FIELD(daddr, 4, 0, 32),
};
#undef TYPE

#define TYPE struct ib_unpacked_udp
static const struct ib_field udh_udp[] = {
	PACK_FIELD(sport, 0, 0, 16),
	PACK_FIELD(dport, 0, 16, 16),
	PACK_FIELD(length, 1, 0, 16),
	PACK_FIELD(csum, 1, 16, 16),
};
#undef TYPE

#define TYPE struct ib_unpacked_bth
static const struct ib_field udh_bth[] = {
	PACK_FIELD(opcode, 0, 0, 8),
	PACK_FIELD(solicited_event, 0, 8, 1),
	PACK_FIELD(mig_req, 0, 9, 1),
	PACK_FIELD(pad_count, 0, 10, 2),
	PACK_FIELD(transport_header_version, 0, 12, 4),
	PACK_FIELD(pkey, 0, 16, 16),
	PACK_RESERVED(1, 0, 8),
	PACK_FIELD(destination_qpn, 1, 8, 24),
	PACK_FIELD(ack_req, 2, 0, 1),
	PACK_RESERVED(2, 1, 7),
	PACK_FIELD(psn, 2, 8, 24),
};
#undef TYPE

#define TYPE struct ib_unpacked_deth
static const struct ib_field udh_deth[] = {
	PACK_FIELD(qkey, 0, 0, 32),
	PACK_RESERVED(1, 0, 8),
	PACK_FIELD(source_qpn, 1, 8, 24),
};
#undef TYPE

/* ---- beginning ------------------------------------------------------------------------------- */

/* Bytes from BTH up to and with the ICRC. */
static u32 udh_transport_bytes(const struct ib_ud_header *h, u32 payload)
{
	u32 bytes = IB_BTH_BYTES + IB_DETH_BYTES + IB_ICRC_BYTES + ((payload + 3) & ~3u);

	return bytes + (h->immediate_present ? UDH_IMMEDIATE : 0);
}

static void udh_init_lrh(struct ib_ud_header *h, u32 bytes)
{
	bytes += IB_LRH_BYTES + (h->grh_present ? IB_GRH_BYTES : 0);
	h->lrh.link_next_header = h->grh_present ? IB_LNH_IBA_GLOBAL : IB_LNH_IBA_LOCAL;
	h->lrh.packet_length = htobe16((u16)(bytes / 4));
}

/* IPv6's header, of RoCEv2 or as the GRH of any other link. */
static void udh_init_grh(struct ib_ud_header *h, u32 bytes)
{
	h->grh.ip_version = UDH_IP6;
	h->grh.payload_length = htobe16((u16)bytes);
	h->grh.next_header = h->udp_present ? UDH_NEXT_UDP : UDH_NEXT_BTH;
}

static void udh_init_ip4(struct ib_ud_header *h, u32 bytes)
{
	h->ip4.ver = 4;
	h->ip4.hdr_len = IB_IP4_BYTES / 4;
	h->ip4.tot_len = htobe16((u16)(IB_IP4_BYTES + bytes));
	h->ip4.protocol = UDH_NEXT_UDP;
}

static void udh_init_transport(struct ib_ud_header *h, u32 payload)
{
	h->bth.opcode = h->immediate_present ? IB_OPCODE_UD_SEND_ONLY_WITH_IMMEDIATE
					     : IB_OPCODE_UD_SEND_ONLY;
	h->bth.pad_count = -payload & 3;
}

int ib_ud_header_init(int payload_bytes, int lrh_present, int eth_present, int vlan_present,
		      int grh_present, int ip_version, int udp_present, int immediate_present,
		      struct ib_ud_header *header)
{
	struct ib_ud_header h;
	u32 bytes;

	if (udp_present && ip_version != 4 && ip_version != UDH_IP6)
		return -EINVAL;
	memset(&h, 0, sizeof(h));
	h.lrh_present = lrh_present;
	h.eth_present = eth_present;
	h.vlan_present = vlan_present;
	h.grh_present = ip_version == 0 ? grh_present : ip_version == UDH_IP6;
	h.ipv4_present = ip_version == 4;
	h.udp_present = udp_present;
	h.immediate_present = immediate_present;
	bytes = udh_transport_bytes(&h, (u32)payload_bytes);
	if (lrh_present)
		udh_init_lrh(&h, bytes);
	if (vlan_present)
		h.eth.type = htobe16(UDH_TYPE_VLAN);
	bytes += udp_present ? IB_UDP_BYTES : 0;
	if (udp_present)
		h.udp.length = htobe16((u16)bytes);
	if (h.grh_present)
		udh_init_grh(&h, bytes);
	if (h.ipv4_present)
		udh_init_ip4(&h, bytes);
	udh_init_transport(&h, (u32)payload_bytes);
	*header = h;
	return 0;
}

/* ---- packing --------------------------------------------------------------------------------- */

#define PACK(table, member, at) ib_pack(table, ARRAY_LEN(table), member, at)

__sum16 ib_ud_ip4_csum(struct ib_ud_header *header)
{
	struct ib_unpacked_ip4 ip = header->ip4;
	u8 bytes[IB_IP4_BYTES];
	u32 sum = 0;

	ip.check = 0;
	PACK(udh_ip4, &ip, bytes);
	for (int i = 0; i < IB_IP4_BYTES; i += 2)
		sum += (u32)bytes[i] << 8 | bytes[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return htobe16((u16)~(sum + (sum >> 16)));
}

/* What lies in front of IP, and the GRH. */
static u8 *udh_pack_link(struct ib_ud_header *h, u8 *at)
{
	if (h->lrh_present) {
		PACK(udh_lrh, &h->lrh, at);
		at += IB_LRH_BYTES;
	}
	if (h->eth_present) {
		PACK(udh_eth, &h->eth, at);
		at += IB_ETH_BYTES;
	}
	if (h->vlan_present) {
		PACK(udh_vlan, &h->vlan, at);
		at += IB_VLAN_BYTES;
	}
	return at;
}

static u8 *udh_pack_network(struct ib_ud_header *h, u8 *at)
{
	if (h->grh_present) {
		PACK(udh_grh, &h->grh, at);
		at += IB_GRH_BYTES;
	}
	if (h->ipv4_present) {
		PACK(udh_ip4, &h->ip4, at);
		at += IB_IP4_BYTES;
	}
	if (h->udp_present) {
		PACK(udh_udp, &h->udp, at);
		at += IB_UDP_BYTES;
	}
	return at;
}

int ib_ud_header_pack(struct ib_ud_header *header, void *buf)
{
	u8 *at = udh_pack_network(header, udh_pack_link(header, buf));

	PACK(udh_bth, &header->bth, at);
	at += IB_BTH_BYTES;
	PACK(udh_deth, &header->deth, at);
	at += IB_DETH_BYTES;
	if (header->immediate_present) {
		memcpy(at, &header->immediate_data, UDH_IMMEDIATE);
		at += UDH_IMMEDIATE;
	}
	return (int)(at - (u8 *)buf);
}

/* ---- unpacking ------------------------------------------------------------------------------- */

#define UNPACK(table, at, member) ib_unpack(table, ARRAY_LEN(table), at, member)

/* Reads LRH and GRH. NULL: another version, or no datagram of IBA's. */
static u8 *udh_unpack_network(struct ib_ud_header *h, u8 *at)
{
	UNPACK(udh_lrh, at, &h->lrh);
	at += IB_LRH_BYTES;
	h->lrh_present = 1;
	h->grh_present = h->lrh.link_next_header == IB_LNH_IBA_GLOBAL;
	if (h->lrh.link_version != 0 || h->lrh.link_next_header < IB_LNH_IBA_LOCAL)
		return NULL;
	if (!h->grh_present)
		return at;
	UNPACK(udh_grh, at, &h->grh);
	if (h->grh.ip_version != UDH_IP6 || h->grh.next_header != UDH_NEXT_BTH)
		return NULL;
	return at + IB_GRH_BYTES;
}

int ib_ud_header_unpack(void *buf, struct ib_ud_header *header)
{
	u8 *at;

	memset(header, 0, sizeof(*header));
	at = udh_unpack_network(header, buf);
	if (at == NULL)
		return -EINVAL;
	UNPACK(udh_bth, at, &header->bth);
	header->immediate_present = header->bth.opcode == IB_OPCODE_UD_SEND_ONLY_WITH_IMMEDIATE;
	if (header->bth.opcode != IB_OPCODE_UD_SEND_ONLY && !header->immediate_present)
		return -EINVAL;
	if (header->bth.transport_header_version != 0)
		return -EINVAL;
	at += IB_BTH_BYTES;
	UNPACK(udh_deth, at, &header->deth);
	if (header->immediate_present)
		memcpy(&header->immediate_data, at + IB_DETH_BYTES, UDH_IMMEDIATE);
	return 0;
}
