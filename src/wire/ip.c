/* ip.c: the IP and UDP headers in front of a RoCEv2 packet.
 *
 * Only captures send them as bytes; the ICRC covers what is invariant of them.
 * In: addresses as GIDs    Out: bytes    Runs: any thread    Locks: none
 * Spec: RFC 791, 8200, 768
 */
#include <endian.h>
#include <string.h>

#include "wire/roce.h"

enum { IPV4 = 20, IPV6 = 40, UDP = 8, PROTOCOL_UDP = 17, IPV4_DF = 0x40 };

bool roce_gid_is_ipv4(const u8 gid[16])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

u32 roce_ip_length(const struct roce_flow *f)
{
	return (roce_gid_is_ipv4(f->dgid) ? IPV4 : IPV6) + UDP;
}

static void ip_put16(u8 *out, u32 v)
{
	out[0] = (u8)(v >> 8);
	out[1] = (u8)v;
}

/* The Internet checksum of a header whose own checksum field is zero. */
static u32 ip_checksum(const u8 *header)
{
	u32 sum = 0;

	for (int i = 0; i < IPV4; i += 2)
		sum += (u32)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16)) & 0xffff;
}

static void ip_pack_v4(const struct roce_flow *f, u32 length, u8 *out)
{
	memset(out, 0, IPV4);
	out[0] = 0x45;
	out[1] = f->traffic_class;
	ip_put16(out + 2, length);
	ip_put16(out + 4, f->id);
	out[6] = f->df ? IPV4_DF : 0;
	out[8] = f->hop_limit;
	out[9] = PROTOCOL_UDP;
	memcpy(out + 12, f->sgid + 12, 4);
	memcpy(out + 16, f->dgid + 12, 4);
	ip_put16(out + 10, ip_checksum(out));
}

static void ip_pack_v6(const struct roce_flow *f, u32 length, u8 *out)
{
	u32 first = htobe32(6u << 28 | (u32)f->traffic_class << 20 | (f->flow_label & 0xfffff));

	memcpy(out, &first, 4);
	ip_put16(out + 4, length - IPV6);
	out[6] = PROTOCOL_UDP;
	out[7] = f->hop_limit;
	memcpy(out + 8, f->sgid, 16);
	memcpy(out + 24, f->dgid, 16);
}

u32 roce_ip_pack(const struct roce_flow *f, u32 length, u8 out[ROCE_IP_MAX])
{
	u32 bytes = roce_ip_length(f);
	u8 *udp = out + bytes - UDP;

	if (bytes == IPV4 + UDP)
		ip_pack_v4(f, bytes + length, out);
	else
		ip_pack_v6(f, bytes + length, out);
	ip_put16(udp, f->sport);
	ip_put16(udp + 2, ROCE_PORT);
	ip_put16(udp + 4, UDP + length);
	ip_put16(udp + 6, 0);
	return bytes;
}
