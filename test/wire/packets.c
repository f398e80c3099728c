/* packets.c: what src/wire makes of packets, for judges in other languages.
 *
 * usage: packets make     every kind of packet, over IPv4 and IPv6, with payloads of several sizes:
 *                         lines "NAME HEX", HEX from the IP header to the ICRC
 * packets judge    lines of HEX as above on standard input; for each "good" or "bad", whether
 * the receiver takes it from a source that it does not know, or why it is no
 *                         packet
 * In: above    Out: above    Runs: one thread    Locks: none
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#include "wire/source.h"

enum { PACKET_MAX = ROCE_IP_MAX + ROCE_UDP_MAX };

enum { KIND_GROUP = 3 }; /* datagrams to a multicast group */
static const u8 types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_UD };
static const char *const names[] = { "RC", "UC", "UD", "group" };
static const u32 lengths[] = { 0, 1, 2, 3, 4, 255, 256, 1023, 4096 };

static struct roce_flow packets_flow(bool v4, u32 seed)
{
	struct roce_flow f = { .sport = (u16)(0xc000 | seed),
			       .traffic_class = (u8)(seed * 37),
			       .hop_limit = (u8)(64 - seed % 8),
			       .flow_label = seed * 77777,
			       .id = (u16)(seed * 4099),
			       .df = seed % 3 != 0 };
	static const u8 v6[16] = { 0xfd, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 };

	memcpy(f.sgid, v6, 16);
	memcpy(f.dgid, v6, 16);
	if (v4) {
		memset(f.sgid, 0, 10);
		memset(f.sgid + 10, 0xff, 2);
		memcpy(f.dgid, f.sgid, 12);
	}
	f.dgid[15] ^= (u8)(seed | 1);
	return f;
}

/* 239.x.y.z or ff18::, and the queue pair number of all groups. */
static void packets_to_group(bool v4, struct roce_flow *f, struct pkt *p)
{
	if (v4) {
		f->dgid[12] = 239;
	} else {
		f->dgid[0] = 0xff;
		f->dgid[1] = 0x18;
	}
	p->dqpn = 0xffffff;
}

static void packets_print(const char *name, const u8 *packet, u32 bytes)
{
	printf("%s ", name);
	for (u32 i = 0; i < bytes; i++)
		printf("%02x", packet[i]);
	putchar('\n');
}

/* False: there is no such packet. */
static bool packets_make_one(const char *name, const struct roce_flow *f, const struct pkt *p)
{
	u8 packet[PACKET_MAX], *udp = packet + roce_ip_length(f);
	int headers = roce_pack(p, udp);
	u8 *payload = udp + headers;
	u32 length, icrc;

	if (headers < 0)
		return false;
	length = (u32)headers + p->length + roce_pad(p->length) + ROCE_ICRC;
	for (u32 i = 0; i < p->length; i++)
		payload[i] = (u8)(0xa0 | (p->psn + i * 31)); /* no EtherType */
	roce_ip_pack(f, length, packet);
	icrc = roce_icrc_begin(f, length, udp, (u32)headers);
	icrc = roce_icrc_add(icrc, payload, p->length);
	roce_icrc_end(icrc, roce_pad(p->length), payload + p->length);
	packets_print(name, packet, roce_ip_length(f) + length);
	return true;
}

static struct pkt packets_pkt(u8 opcode, u8 qp_type, u32 length, u32 seed)
{
	return (struct pkt){ .opcode = opcode,
			     .qp_type = qp_type,
			     .flags = (u8)(seed & (PKT_SOLICITED | PKT_ACK_REQUEST)),
			     .syndrome = seed % 2 ? AETH_ACK : AETH_NAK | NAK_PSN_SEQUENCE,
			     .dqpn = 0x400 + seed,
			     .sqpn = 0xfedc00 | seed,
			     .psn = (0xfffff0 + seed) & 0xffffff,
			     .imm = seed * 0x01010101,
			     .length = length,
			     .qkey = 0x80010000 | seed,
			     .msn = 0x800000 | seed,
			     .rkey = 0x12345600 | seed,
			     .va = 0x7f0012345678 + seed,
			     .dma_length = length,
			     .compare = (u64)seed * 0x0101010101010101,
			     .swap = 0xfedcba9876543210 };
}

static int packets_make(void)
{
	u32 seed = 1;
	char name[64];

	for (int v = 4; v <= 6; v += 2)
		for (u32 t = 0; t < ARRAY_LEN(types); t++)
			for (u8 opcode = 0; opcode < PKT_OPCODES; opcode++)
				for (u32 i = 0; i < ARRAY_LEN(lengths); i++, seed++) {
					struct roce_flow f = packets_flow(v == 4, seed % 251);
					struct pkt p = packets_pkt(opcode, types[t], lengths[i],
								   seed % 251);

					if (t == KIND_GROUP)
						packets_to_group(v == 4, &f, &p);
					snprintf(name, sizeof(name), "%s-v%d-%u-%u", names[t], v,
						 opcode, lengths[i]);
					packets_make_one(name, &f, &p);
				}
	return 0;
}

/* ---- judging ---- */

static void packets_gid(u8 gid[16], const u8 *address, u32 bytes)
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 16 - bytes, address, bytes);
}

static const char *packets_verdict(const u8 *packet, u32 bytes)
{
	u32 address = packet[0] >> 4 == 4 ? 4 : 16, ip = address == 4 ? 20 : 40, payload;
	struct roce_source s = { 0 };
	struct roce_flow f = { 0 };
	struct pkt p;

	if (bytes < ip + 8 + ROCE_ICRC)
		return "short";
	packets_gid(f.sgid, packet + ip - 2 * address, address);
	packets_gid(f.dgid, packet + ip - address, address);
	f.sport = (u16)(packet[ip] << 8 | packet[ip + 1]);
	packet += ip + 8;
	bytes -= ip + 8;
	if (!roce_icrc_matches(&s, &f, packet, bytes, 1))
		return "bad";
	switch (roce_unpack(packet, bytes - ROCE_ICRC, &p, &payload)) {
	case 0:
		return "good";
	case ROCE_OPCODE:
		return "opcode";
	default:
		return "malformed";
	}
}

static int packets_judge(void)
{
	char line[2 * PACKET_MAX + 2];
	u8 packet[PACKET_MAX];

	while (fgets(line, sizeof(line), stdin) != NULL) {
		u32 bytes = (u32)(strcspn(line, "\n") / 2), value;

		for (u32 i = 0; i < bytes; i++) {
			if (sscanf(line + 2 * i, "%2x", &value) != 1)
				return 2;
			packet[i] = (u8)value;
		}
		puts(packets_verdict(packet, bytes));
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "make") == 0)
		return packets_make();
	if (argc == 2 && strcmp(argv[1], "judge") == 0)
		return packets_judge();
	fprintf(stderr, "usage: packets make | judge\n");
	return 2;
}
