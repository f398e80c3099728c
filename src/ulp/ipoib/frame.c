/* frame.c: reads and writes encapsulated packets, ARP and neighbour discovery.
 * In:    bytes of a stranger, fields    Out: fields, bytes
 * Runs:  any thread; pure functions     Locks: none
 * Spec:  RFC 4391, 6 and 9; RFC 826; RFC 4861, 4.3, 4.4, 7.1
 */
#include "ulp/ipoib/frame.h"

#include <string.h>

enum ipoib_frame_ethertype { TYPE_IPV4 = 0x0800, TYPE_ARP = 0x0806, TYPE_IPV6 = 0x86dd };

/* ARP behind the encapsulation header: offsets and values. */
enum ipoib_frame_arp {
	ARP_HARDWARE = 0, /* 32: InfiniBand */
	ARP_PROTOCOL = 2,
	ARP_SIZES = 4, /* of a hardware and of a protocol address */
	ARP_OPERATION = 6,
	ARP_SENDER_HW = 8,
	ARP_SENDER_IP = 28,
	ARP_TARGET_HW = 32,
	ARP_TARGET_IP = 52,
	ARP_BYTES = 56,
	ARP_INFINIBAND = 32,
	ARP_REQUEST = 1,
	ARP_REPLY = 2,
};

/* An IPv6 packet of neighbour discovery. */
enum ipoib_frame_nd {
	ND_LENGTH = 4,
	ND_NEXT = 6,
	ND_HOPS = 7,
	ND_FROM = 8,
	ND_TO = 24,
	ND_TYPE = 40,
	ND_CODE = 41,
	ND_SUM = 42,
	ND_FLAGS = 44,
	ND_ABOUT = 48,
	ND_OPTIONS = 64,
	ND_OPTION_BYTES = 24, /* of a hardware address: type, length, two zeroes, address */
	ND_ICMP = 58,
	ND_SOLICITATION = 135,
	ND_ADVERTISEMENT = 136,
	ND_SOURCE_HW = 1,
	ND_TARGET_HW = 2,
	ND_SOLICITED = 0x40,
	ND_OVERRIDE = 0x20,
};

static u16 ipoib_frame_get16(const u8 *at)
{
	return (u16)(at[0] << 8 | at[1]);
}

static void ipoib_frame_put16(u8 *at, u32 value)
{
	at[0] = (u8)(value >> 8);
	at[1] = (u8)value;
}

static void ipoib_frame_take_v4(const u8 *at, u8 ip[16])
{
	memset(ip, 0, 10);
	ip[10] = ip[11] = 0xff;
	memcpy(ip + 12, at, 4);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void ipoib_frame_read_arp(const u8 *arp, u32 size, struct ipoib_frame *out)
{
	u16 operation;

	if (size < ARP_BYTES || ipoib_frame_get16(arp + ARP_HARDWARE) != ARP_INFINIBAND ||
	    ipoib_frame_get16(arp + ARP_PROTOCOL) != TYPE_IPV4 ||
	    ipoib_frame_get16(arp + ARP_SIZES) != (IPOIB_HW << 8 | 4))
		return;
	operation = ipoib_frame_get16(arp + ARP_OPERATION);
	memcpy(out->hw.raw, arp + ARP_SENDER_HW, IPOIB_HW);
	out->has_hw = true;
	ipoib_frame_take_v4(arp + ARP_SENDER_IP, out->from);
	if (!ipoib_hw_is_valid(&out->hw) || ipoib_ip_is_group(out->from) ||
	    ipoib_ip_is_broadcast(out->from))
		return;
	if (operation == ARP_REQUEST) {
		ipoib_frame_take_v4(arp + ARP_TARGET_IP, out->about);
		out->kind = FRAME_ASK;
	} else if (operation == ARP_REPLY && !ipoib_ip_is_none(out->from)) {
		memcpy(out->about, out->from, 16);
		out->solicited = out->override = true;
		out->kind = FRAME_ANSWER;
	}
}

static u16 ipoib_frame_nd_sum(const u8 *packet, u32 icmp_bytes)
{
	u32 sum = icmp_bytes + ND_ICMP;

	for (u32 i = ND_FROM; i < ND_TYPE + icmp_bytes; i += 2)
		sum += (u32)packet[i] << 8 | (i + 1 < ND_TYPE + icmp_bytes ? packet[i + 1] : 0);
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (u16)~sum;
}

/* The options of neighbour discovery. False: one breaks the rules. */
static bool ipoib_frame_read_options(const u8 *options, u32 size, u8 wanted,
				     struct ipoib_frame *out)
{
	while (size > 0) {
		u32 length;

		if (size < 8)
			return false;
		length = options[1] * 8u;
		if (length == 0 || length > size)
			return false;
		if (options[0] == wanted && length == ND_OPTION_BYTES && !out->has_hw) {
			memcpy(out->hw.raw, options + 4, IPOIB_HW);
			out->has_hw = true;
		}
		options += length;
		size -= length;
	}
	return !out->has_hw || ipoib_hw_is_valid(&out->hw);
}

static bool ipoib_frame_is_nd(const u8 *packet, u32 size)
{
	return size >= ND_OPTIONS && packet[ND_NEXT] == ND_ICMP &&
	       (packet[ND_TYPE] == ND_SOLICITATION || packet[ND_TYPE] == ND_ADVERTISEMENT);
}

/* RFC 4861, 7.1. An address of IPv4's form would be taken for one of ARP's. */
static bool ipoib_frame_nd_is_valid(const u8 *packet, u32 icmp_bytes, const struct ipoib_frame *f)
{
	bool asks = packet[ND_TYPE] == ND_SOLICITATION;

	if (packet[ND_HOPS] != 255 || packet[ND_CODE] != 0 ||
	    ipoib_frame_nd_sum(packet, icmp_bytes) != 0 || ipoib_ip_is_v4(f->about) ||
	    ipoib_ip_is_v4(f->from) || ipoib_ip_is_none(f->about) || ipoib_ip_is_group(f->about) ||
	    ipoib_ip_is_group(f->from))
		return false;
	if (asks && ipoib_ip_is_none(f->from))
		return packet[ND_TO] == 0xff && !f->has_hw;
	return asks || !f->solicited || packet[ND_TO] != 0xff;
}

static void ipoib_frame_read_nd(const u8 *packet, u32 size, struct ipoib_frame *out)
{
	bool asks = packet[ND_TYPE] == ND_SOLICITATION;
	u32 icmp_bytes = ipoib_frame_get16(packet + ND_LENGTH);

	out->kind = FRAME_BAD;
	if (icmp_bytes < ND_OPTIONS - ND_TYPE || icmp_bytes > size - ND_TYPE)
		return;
	memcpy(out->from, packet + ND_FROM, 16);
	memcpy(out->about, packet + ND_ABOUT, 16);
	out->solicited = !asks && (packet[ND_FLAGS] & ND_SOLICITED) != 0;
	out->override = !asks && (packet[ND_FLAGS] & ND_OVERRIDE) != 0;
	if (ipoib_frame_read_options(packet + ND_OPTIONS, icmp_bytes - (ND_OPTIONS - ND_TYPE),
			       asks ? ND_SOURCE_HW : ND_TARGET_HW, out) &&
	    ipoib_frame_nd_is_valid(packet, icmp_bytes, out))
		out->kind = asks ? FRAME_ASK : FRAME_ANSWER;
}

void ipoib_frame_read(const u8 *bytes, u32 size, struct ipoib_frame *out)
{
	const u8 *packet = bytes + IPOIB_HEAD;
	u32 left = size - IPOIB_HEAD;

	memset(out, 0, sizeof(*out));
	if (size <= IPOIB_HEAD)
		return;
	switch (ipoib_frame_get16(bytes)) {
	case TYPE_ARP:
		ipoib_frame_read_arp(packet, left, out);
		return;
	case TYPE_IPV4:
		if (left >= 20 && packet[0] >> 4 == 4)
			out->kind = FRAME_IP;
		return;
	case TYPE_IPV6:
		if (left < 40 || packet[0] >> 4 != 6)
			return;
		out->kind = FRAME_IP;
		if (ipoib_frame_is_nd(packet, left))
			ipoib_frame_read_nd(packet, left, out);
		return;
	default:
		return;
	}
}

/* ---- writing --------------------------------------------------------------------------------- */

static void ipoib_frame_put_head(u8 *bytes, u32 type)
{
	ipoib_frame_put16(bytes, type);
	ipoib_frame_put16(bytes + 2, 0);
}

static u32 ipoib_frame_write_arp(u8 *bytes, u32 operation, const u8 *sender,
				 const struct ipoib_hw *hw, const u8 *target,
				 const struct ipoib_hw *to)
{
	u8 *arp = bytes + IPOIB_HEAD;

	ipoib_frame_put_head(bytes, TYPE_ARP);
	memset(arp, 0, ARP_BYTES);
	ipoib_frame_put16(arp + ARP_HARDWARE, ARP_INFINIBAND);
	ipoib_frame_put16(arp + ARP_PROTOCOL, TYPE_IPV4);
	ipoib_frame_put16(arp + ARP_SIZES, IPOIB_HW << 8 | 4);
	ipoib_frame_put16(arp + ARP_OPERATION, operation);
	memcpy(arp + ARP_SENDER_HW, hw->raw, IPOIB_HW);
	memcpy(arp + ARP_SENDER_IP, sender + 12, 4);
	if (to != NULL)
		memcpy(arp + ARP_TARGET_HW, to->raw, IPOIB_HW);
	memcpy(arp + ARP_TARGET_IP, target + 12, 4);
	return IPOIB_HEAD + ARP_BYTES;
}

static u32 ipoib_frame_write_nd(u8 *bytes, u8 type, u8 flags, const u8 *from, const u8 *to,
			  const struct ipoib_frame *f)
{
	bool has_hw = !ipoib_ip_is_none(from);
	u32 icmp_bytes = ND_OPTIONS - ND_TYPE + (has_hw ? ND_OPTION_BYTES : 0);
	u8 *packet = bytes + IPOIB_HEAD;

	ipoib_frame_put_head(bytes, TYPE_IPV6);
	memset(packet, 0, ND_TYPE + icmp_bytes);
	packet[0] = 0x60;
	ipoib_frame_put16(packet + ND_LENGTH, icmp_bytes);
	packet[ND_NEXT] = ND_ICMP;
	packet[ND_HOPS] = 255;
	memcpy(packet + ND_FROM, from, 16);
	memcpy(packet + ND_TO, to, 16);
	packet[ND_TYPE] = type;
	packet[ND_FLAGS] = flags;
	memcpy(packet + ND_ABOUT, f->about, 16);
	if (has_hw) {
		packet[ND_OPTIONS] = type == ND_SOLICITATION ? ND_SOURCE_HW : ND_TARGET_HW;
		packet[ND_OPTIONS + 1] = ND_OPTION_BYTES / 8;
		memcpy(packet + ND_OPTIONS + 4, f->hw.raw, IPOIB_HW);
	}
	ipoib_frame_put16(packet + ND_SUM, ipoib_frame_nd_sum(packet, icmp_bytes));
	return IPOIB_HEAD + ND_TYPE + icmp_bytes;
}

u32 ipoib_frame_write_ask(u8 *bytes, const struct ipoib_frame *f, const struct ipoib_hw *to)
{
	u8 group[16];

	if (ipoib_ip_is_v4(f->about))
		return ipoib_frame_write_arp(bytes, ARP_REQUEST, f->from, &f->hw, f->about, to);
	ipoib_ip_solicited(f->about, group);
	return ipoib_frame_write_nd(bytes, ND_SOLICITATION, 0, f->from,
				    to != NULL ? f->about : group, f);
}

u32 ipoib_frame_write_answer(u8 *bytes, const struct ipoib_frame *f, const struct ipoib_hw *to)
{
	static const u8 all_nodes[16] = { 0xff, 2, [15] = 1 };
	bool to_all = ipoib_ip_is_none(f->from);

	if (ipoib_ip_is_v4(f->about))
		return ipoib_frame_write_arp(bytes, ARP_REPLY, f->about, &f->hw, f->from, to);
	return ipoib_frame_write_nd(bytes, ND_ADVERTISEMENT,
				    ND_OVERRIDE | (to_all ? 0 : ND_SOLICITED), f->about,
				    to_all ? all_nodes : f->from, f);
}

bool ipoib_frame_wrap(u8 *bytes, u32 size, u8 to[16])
{
	const u8 *packet = bytes + IPOIB_HEAD;

	if (size >= 20 && packet[0] >> 4 == 4) {
		ipoib_frame_put_head(bytes, TYPE_IPV4);
		ipoib_frame_take_v4(packet + 16, to);
		return true;
	}
	if (size < 40 || packet[0] >> 4 != 6)
		return false;
	ipoib_frame_put_head(bytes, TYPE_IPV6);
	memcpy(to, packet + ND_TO, 16);
	return !ipoib_ip_is_v4(to);
}
