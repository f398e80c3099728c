/* icrc_test.h: packets for the tests of the ICRC: captured ones, and some of our own. */
#ifndef WIRE_ICRC_TEST_H
#define WIRE_ICRC_TEST_H

#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "wire/roce.h"

/* From the IP header to the ICRC: a CNP that a ConnectX-4 Lx sent, and a SEND on a UC queue pair by
 * a ConnectX. Both are test data of scapy's RoCE layer (its test/contrib/roce.uts), where the ICRC
 * is the one that the adapter computed. */
static const u8 __attribute__((unused)) cnp[] = {
	0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
	0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00,
	0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
};
static const u8 __attribute__((unused)) uc_send[] = {
	0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 0xc0, 0xa8, 0x00,
	0x07, 0xc0, 0xa8, 0x00, 0x07, 0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, 0x24, 0x60,
	0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81, 0x8b, 0xe2,
	0x89, 0x35, 0xd9, 0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00,
	0x78, 0xf3, 0x53, 0xf3,
};

/* ---- a second computation ---- */

static inline u32 test_crc(u32 crc, const u8 *data, u32 bytes)
{
	while (bytes-- > 0) {
		crc ^= *data++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return crc;
}

/* The ICRC of a packet that begins with its IP header and ends where the ICRC belongs. */
static inline u32 test_icrc(const u8 *packet, u32 bytes)
{
	u8 all[8 + ROCE_IP_MAX + ROCE_UDP_MAX];
	bool v4 = packet[0] >> 4 == 4;
	u8 *ip = all + 8, *udp = ip + (v4 ? 20 : 40);

	memset(all, 0xff, 8);
	memcpy(ip, packet, bytes);
	if (v4) {
		ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
	} else {
		ip[0] = 0x6f;
		ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
	}
	udp[6] = udp[7] = udp[8 + 4] = 0xff;
	return ~test_crc(~0u, all, 8 + bytes);
}

/* ---- packets of our own ---- */

struct test_packet {
	struct roce_flow flow;
	u8 bytes[ROCE_IP_MAX + ROCE_UDP_MAX]; /* from the IP header on */
	u8 *udp_payload;
	u32 length; /* of the UDP payload */
} OWNED_BY(the test);

static inline struct roce_flow test_flow(bool v4)
{
	static const u8 a[16] = { [10] = 0xff, [11] = 0xff, 10, 1, 2, 3 };
	static const u8 b[16] = { [10] = 0xff, [11] = 0xff, 10, 1, 2, 4 };
	struct roce_flow f = { .sport = 0xc123,
			       .traffic_class = 0x6a,
			       .hop_limit = 63,
			       .flow_label = 0xabcde };

	memcpy(f.sgid, a, 16);
	memcpy(f.dgid, b, 16);
	if (!v4)
		f.sgid[0] = f.dgid[0] = 0xfd;
	return f;
}

/* As a sender does it: headers, payload in two pieces, padding and ICRC. */
static inline void test_build(struct test_packet *t, const struct pkt *p)
{
	u32 pad = roce_pad(p->length), ip = roce_ip_length(&t->flow), headers, icrc;
	u8 *at;

	t->udp_payload = t->bytes + ip;
	headers = (u32)roce_pack(p, t->udp_payload);
	at = t->udp_payload + headers;
	t->length = headers + p->length + pad + ROCE_ICRC;
	assert_int_equal(roce_ip_pack(&t->flow, t->length, t->bytes), ip);
	for (u32 i = 0; i < p->length; i++)
		at[i] = (u8)(i * 7 + p->psn);
	icrc = roce_icrc_begin(&t->flow, t->length, t->udp_payload, headers);
	icrc = roce_icrc_add(icrc, at, p->length / 3);
	icrc = roce_icrc_add(icrc, at + p->length / 3, p->length - p->length / 3);
	assert_int_equal(roce_icrc_end(icrc, pad, at + p->length), pad + ROCE_ICRC);
}

#endif
