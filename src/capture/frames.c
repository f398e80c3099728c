/* frames.c: records become frames: RoCEv2 over IPv4 or IPv6 in Ethernet, with ICRC; packets of a
 * fabric from the LRH to the VCRC.
 *
 * A datagram is wrapped as it is. A packet of a local path is cut at the path MTU, gets the numbers
 * that flow.c gives it, addresses of the devices' tables, and Ethernet addresses that mean nothing.
 * A one-sided copy becomes the WRITE and its acknowledgement, or the READ request and its response,
 * that it stands for.
 *
 * In: records of any content    Out: frames    Runs: the recorder's thread    Locks: none
 * Spec: IBA vol 1, ch. 7 to 9, A17
 */
#include <infiniband/verbs.h>
#include <string.h>

#include "capture/capture.h"
#include "wire/lrh.h"

enum { ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_IPV6 = 0x86dd, UDP_BYTES = 8, IPV6_BYTES = 40 };

/* ---- a packet's frames ---- */

/* What the first, a middle and the last frame are of a packet that is cut. */
static const struct frames_cut {
	u8 first FIXED, middle FIXED, last FIXED;
} frames_cut[PKT_OPCODES] = {
	[PKT_SEND_FIRST] = { PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE },
	[PKT_SEND_MIDDLE] = { PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_MIDDLE },
	[PKT_SEND_LAST] = { PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_LAST },
	[PKT_SEND_LAST_IMM] = { PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_LAST_IMM },
	[PKT_SEND_LAST_INV] = { PKT_SEND_MIDDLE, PKT_SEND_MIDDLE, PKT_SEND_LAST_INV },
	[PKT_SEND_ONLY] = { PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST },
	[PKT_SEND_ONLY_IMM] = { PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST_IMM },
	[PKT_SEND_ONLY_INV] = { PKT_SEND_FIRST, PKT_SEND_MIDDLE, PKT_SEND_LAST_INV },
	[PKT_WRITE_FIRST] = { PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE },
	[PKT_WRITE_MIDDLE] = { PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE },
	[PKT_WRITE_LAST] = { PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE, PKT_WRITE_LAST },
	[PKT_WRITE_LAST_IMM] = { PKT_WRITE_MIDDLE, PKT_WRITE_MIDDLE, PKT_WRITE_LAST_IMM },
	[PKT_WRITE_ONLY] = { PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST },
	[PKT_WRITE_ONLY_IMM] = { PKT_WRITE_FIRST, PKT_WRITE_MIDDLE, PKT_WRITE_LAST_IMM },
	[PKT_READ_FIRST] = { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_MIDDLE },
	[PKT_READ_MIDDLE] = { PKT_READ_MIDDLE, PKT_READ_MIDDLE, PKT_READ_MIDDLE },
	[PKT_READ_LAST] = { PKT_READ_MIDDLE, PKT_READ_MIDDLE, PKT_READ_LAST },
	[PKT_READ_ONLY] = { PKT_READ_FIRST, PKT_READ_MIDDLE, PKT_READ_LAST },
};

static void frames_cut_packet(struct pkt *p, const struct capture_record *r)
{
	const struct frames_cut *cut = &frames_cut[p->opcode];

	p->length = r->length;
	if (r->parts == 1)
		return;
	p->opcode = r->part == 0 ? cut->first : r->part + 1 < r->parts ? cut->middle : cut->last;
	if (r->part + 1 < r->parts)
		p->flags &= (u8) ~(PKT_SOLICITED | PKT_ACK_REQUEST);
}

/* ---- addresses ---- */

static bool frames_is_zero(const u8 gid[16])
{
	static const u8 zero[16];

	return memcmp(gid, zero, 16) == 0;
}

/* The GID of that index; where none is known, the first one that is an IPv4 address, else the
 * first. */
static const u8 *frames_gid(const struct frames *m, u16 index)
{
	if (index < ARRAY_LEN(m->gids) && !frames_is_zero(m->gids[index]))
		return m->gids[index];
	for (u32 i = 0; i < ARRAY_LEN(m->gids); i++)
		if (roce_gid_is_ipv4(m->gids[i]))
			return m->gids[i];
	return m->gids[0];
}

/* `back`: the frame goes from the record's destination to its source. */
static struct roce_flow frames_flow(const struct frames *m, const struct capture_record *r,
				    const struct pkt *p, bool back)
{
	const u8 *from = r->flow.sgid, *to = r->flow.dgid;
	struct roce_flow f = { .traffic_class = p->traffic_class,
			       .hop_limit = p->hop_limit != 0 ? p->hop_limit : 64,
			       .flow_label = p->flow_label,
			       .df = true };

	if (frames_is_zero(to)) {
		from = frames_gid(m, r->sgid_index);
		to = frames_gid(m, r->dgid_index);
	}
	memcpy(f.sgid, back ? to : from, 16);
	memcpy(f.dgid, back ? from : to, 16);
	/* one family, that of the destination, as on a wire */
	if (roce_gid_is_ipv4(f.sgid) != roce_gid_is_ipv4(f.dgid))
		memcpy(f.sgid, f.dgid, 16);
	f.sport = (u16)(0xc000 | ((p->sqpn ^ p->sqpn >> 8) & 0x3fff));
	return f;
}

/* An address that is nobody's: a local one with the last bytes of the GID, or the group's. */
static void frames_mac(u8 mac[6], const u8 gid[16])
{
	mac[0] = 0x02;
	mac[1] = roce_gid_is_ipv4(gid) ? 0x04 : 0x06;
	memcpy(mac + 2, gid + 12, 4);
	if (gid[0] == 0xff) {
		mac[0] = mac[1] = 0x33;
	} else if (roce_gid_is_ipv4(gid) && gid[12] >> 4 == 0xe) {
		memcpy(mac, (const u8[]){ 0x01, 0x00, 0x5e }, 3);
		mac[3] &= 0x7f;
	}
}

/* ---- an Ethernet frame ---- */

/* UDP's checksum over IPv6, which may not be left out there. `udp` begins `bytes` of UDP. */
static void frames_checksum(u8 *ip, u8 *udp, u32 bytes)
{
	u64 sum = bytes + 17; /* pseudo header: length, protocol, addresses */

	for (u32 i = 8; i < IPV6_BYTES; i += 2)
		sum += (u32)ip[i] << 8 | ip[i + 1];
	for (u32 i = 0; i < bytes; i += 2)
		sum += (u32)udp[i] << 8 | (i + 1 < bytes ? udp[i + 1] : 0);
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	sum = sum == 0xffff ? sum : ~sum & 0xffff;
	udp[6] = (u8)(sum >> 8);
	udp[7] = (u8)sum;
}

/* The frame's beginning, for a UDP payload of `length` bytes; returns where that lies. */
static u8 *frame_begin(struct frames *m, const struct roce_flow *f, u32 length)
{
	u8 *at = m->frame.data;
	u32 type = roce_gid_is_ipv4(f->dgid) ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6, ip;

	frames_mac(at, f->dgid);
	frames_mac(at + 6, f->sgid);
	at[12] = (u8)(type >> 8);
	at[13] = (u8)type;
	ip = roce_ip_pack(f, length, at + FRAME_ETHERNET);
	m->frame.length = FRAME_ETHERNET + ip + length;
	return at + FRAME_ETHERNET + ip;
}

/* `kept` bytes of the frame are there. */
static void frame_emit(struct frames *m, const struct capture_record *r, u32 kept,
		       const char *comment)
{
	m->frame.kept = MIN(kept, m->snaplen);
	m->frame.time_ns = r->time_ns;
	m->frame.inbound = r->inbound != 0;
	m->frame.comment = comment;
	m->emit(m->arg, &m->frame);
}

/* `kept` bytes of UDP payload are there. */
static void frame_end(struct frames *m, const struct capture_record *r, u8 *payload, u32 kept,
		      const char *comment)
{
	u8 *ip = m->frame.data + FRAME_ETHERNET;
	u32 headers = (u32)(payload - m->frame.data);

	if (ip[0] >> 4 == 6 && headers + kept == m->frame.length)
		frames_checksum(ip, payload - UDP_BYTES, kept + UDP_BYTES);
	m->frame.link = FRAME_LINK_ETHERNET;
	frame_emit(m, r, headers + kept, comment);
}

static void frame_ether_packet(struct frames *m, const struct capture_record *r,
			       const struct pkt *p, bool back, const char *comment)
{
	struct roce_flow f = frames_flow(m, r, p, back);
	u32 pad = roce_pad(p->length), kept = MIN(r->kept, p->length), length, icrc;
	u8 headers[ROCE_HEADERS_MAX], *at;
	int bytes = roce_pack(p, headers);

	if (bytes < 0)
		return;
	length = (u32)bytes + p->length + pad + ROCE_ICRC;
	at = frame_begin(m, &f, length);
	memcpy(at, headers, (size_t)bytes);
	memcpy(at + bytes, r->data, kept);
	if (kept == p->length) {
		icrc = roce_icrc_begin(&f, length, headers, (u32)bytes);
		icrc = roce_icrc_add(icrc, r->data, kept);
		kept += roce_icrc_end(icrc, pad, at + bytes + kept);
	}
	frame_end(m, r, at, (u32)bytes + kept, comment);
}

/* ---- a frame of a fabric ---- */

/* Fills the addresses; true: the packet has a GRH. */
static bool frame_link_address(const struct frames *m, const struct capture_record *r,
			       const struct pkt *p, bool back, struct lrh *h,
			       struct roce_flow *grh)
{
	struct capture_lids lids = r->lids;
	struct frames_way way = { .vl = 0 };

	if (back) {
		lids.slid = r->lids.dlid;
		lids.dlid = r->lids.slid;
	}
	if (m->find_way != NULL)
		m->find_way(m->arg, &lids, &way);
	*h = (struct lrh){ .slid = lids.slid,
			   .dlid = lids.dlid,
			   .sl = lids.sl & 15,
			   .vl = p->dqpn == 0 ? LRH_VL_SMP : way.vl & 15 };
	if (lids.has_grh == 0)
		return false;
	*grh = (struct roce_flow){ .traffic_class = p->traffic_class,
				   .hop_limit = p->hop_limit != 0 ? p->hop_limit : 64,
				   .flow_label = p->flow_label };
	memcpy(grh->sgid, frames_is_zero(r->flow.dgid) ? way.sgid : r->flow.sgid, 16);
	memcpy(grh->dgid, frames_is_zero(r->flow.dgid) ? way.dgid : r->flow.dgid, 16);
	return true;
}

static void frame_link_packet(struct frames *m, const struct capture_record *r,
			      const struct pkt *packet, bool back, const char *comment)
{
	u8 headers[ROCE_HEADERS_MAX], *at = m->frame.data;
	u32 pad, kept, link, icrc;
	struct pkt p = *packet;
	struct roce_flow grh;
	bool has_grh;
	struct lrh h;
	u16 vcrc;
	int bytes;

	p.pkey = r->lids.pkey;
	bytes = roce_pack(&p, headers);
	if (bytes < 0)
		return;
	pad = roce_pad(p.length);
	kept = MIN(r->kept, p.length);
	has_grh = frame_link_address(m, r, &p, back, &h, &grh);
	link = lrh_pack(&h, has_grh ? &grh : NULL, (u32)bytes + p.length + pad + ROCE_ICRC, at);
	memcpy(at + link, headers, (size_t)bytes);
	memcpy(at + link + bytes, r->data, kept);
	m->frame.length = link + (u32)bytes + p.length + pad + ROCE_ICRC + LRH_VCRC;
	if (kept == p.length) {
		icrc = roce_icrc_add(lrh_icrc_begin(at, link, (u32)bytes), r->data, kept);
		kept += roce_icrc_end(icrc, pad, at + link + bytes + kept);
		vcrc = lrh_vcrc(at, link + (u32)bytes + kept);
		at[link + (u32)bytes + kept++] = (u8)vcrc;
		at[link + (u32)bytes + kept++] = (u8)(vcrc >> 8);
	}
	m->frame.link = FRAME_LINK_INFINIBAND;
	frame_emit(m, r, link + (u32)bytes + kept, comment);
}

/* ---- either ---- */

/* A packet with the record's payload behind it, or with none. */
static void frame_packet(struct frames *m, const struct capture_record *r, const struct pkt *p,
			 bool back, const char *comment)
{
	if (r->lids.dlid != 0)
		frame_link_packet(m, r, p, back, comment);
	else
		frame_ether_packet(m, r, p, back, comment);
}

/* ---- kinds of records ---- */

static void frames_wire(struct frames *m, const struct capture_record *r)
{
	u8 *at;

	if (r->length > ROCE_UDP_MAX)
		return;
	at = frame_begin(m, &r->flow, r->length);
	memcpy(at, r->data, r->kept);
	frame_end(m, r, at, r->kept, NULL);
}

/* The acknowledgement of what goes from sqpn to dqpn, which went back at the same time. */
static void frames_ack(struct frames *m, const struct capture_record *r, u32 sqpn, u32 dqpn,
		       u32 psn, bool back, const char *comment)
{
	struct pkt ack = { .opcode = PKT_ACK,
			   .qp_type = IBV_QPT_RC,
			   .syndrome = AETH_ACK,
			   .dqpn = sqpn,
			   .sqpn = dqpn,
			   .psn = psn,
			   .msn = flows_msn(m->flows, sqpn, dqpn, NULL) };

	frame_packet(m, r, &ack, back, comment);
}

static const char *frames_local_comment(const struct capture_record *r)
{
	if (r->pkt.dqpn <= 1 && r->lids.dlid != 0)
		return NULL; /* a MAD, which goes through the fabric as it is */
	if (r->pkt.flags & PKT_PLACED)
		return "shared memory; the data was copied before";
	if (r->pkt.flags & PKT_PULL)
		return "shared memory; copied by the receiver";
	return r->parts > 1 ? "shared memory; cut from a larger packet" : "shared memory";
}

static void frames_local(struct frames *m, const struct capture_record *r)
{
	struct pkt p = r->pkt;

	if (p.flags & PKT_HAS_ACK && r->part == 0)
		frames_ack(m, r, p.dqpn, p.sqpn,
			   flows_acked(m->flows, p.dqpn, p.sqpn, p.ack_psn, false), false,
			   "shared memory; travelled with the next packet");
	p.psn = flows_psn(m->flows, r);
	if (p.flags & PKT_PLACED)
		p.dma_length = 0;
	if (p.opcode == PKT_ACK || p.opcode == PKT_ATOMIC_ACK)
		p.msn = flows_msn(m->flows, p.dqpn, p.sqpn, &r->pkt.msn);
	frames_cut_packet(&p, r);
	frame_packet(m, r, &p, false, frames_local_comment(r));
}

static void frames_write(struct frames *m, const struct capture_record *r)
{
	struct pkt p = r->pkt;

	p.psn = flows_psn(m->flows, r);
	p.flags = PKT_ACK_REQUEST;
	frames_cut_packet(&p, r);
	frame_packet(m, r, &p, false, "direct copy");
	if (r->part + 1 == r->parts && p.qp_type == IBV_QPT_RC)
		frames_ack(m, r, p.sqpn, p.dqpn, p.psn, true, "direct copy; nobody sent this");
}

static void frames_read(struct frames *m, const struct capture_record *r)
{
	struct pkt p = r->pkt, request = r->pkt;

	p.psn = flows_psn(m->flows, r);
	if (r->part == 0) {
		request.opcode = PKT_READ_REQUEST;
		request.psn = p.psn;
		request.length = 0;
		request.flags = PKT_ACK_REQUEST;
		frame_packet(m, r, &request, false, "direct copy; nobody sent this");
	}
	p.dqpn = r->pkt.sqpn;
	p.sqpn = r->pkt.dqpn;
	p.syndrome = AETH_ACK;
	p.flags = 0;
	p.msn = flows_msn(m->flows, r->pkt.sqpn, r->pkt.dqpn, NULL);
	frames_cut_packet(&p, r);
	frame_packet(m, r, &p, true, "direct copy");
}

/* Has it a form on the wire, and a sense at all? */
static bool frames_is_shown(const struct capture_record *r)
{
	const struct pkt *p = &r->pkt;

	if (r->kind == CAPTURE_WIRE)
		return true;
	return p->opcode < PKT_OPCODES && r->parts != 0 && r->part < r->parts &&
	       r->mtu - 1 < ROCE_MTU_MAX && r->length <= ROCE_MTU_MAX &&
	       (r->parts == 1 || frames_cut[p->opcode].last != 0) &&
	       !(p->opcode == PKT_ACK && p->syndrome == (AETH_NAK | NAK_CANNOT_PULL));
}

void frames_make(struct frames *m, const struct capture_record *r)
{
	if (!frames_is_shown(r))
		return;
	switch (r->kind) {
	case CAPTURE_WIRE:
		frames_wire(m, r);
		break;
	case CAPTURE_LOCAL:
		frames_local(m, r);
		break;
	case CAPTURE_DIRECT:
		if (r->pkt.opcode == PKT_WRITE_ONLY)
			frames_write(m, r);
		else if (r->pkt.opcode == PKT_READ_ONLY)
			frames_read(m, r);
		break;
	default:
		break;
	}
}
