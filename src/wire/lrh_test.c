/* lrh_test.c: the local packet that the specification prints, from its fields; what of a packet
 * each CRC covers. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "wire/lrh.h"

enum { RC = 2, BYTES = 14, PACKET = 56 };

/* VL 7, SL 1; it ends with the ICRC. IBA vol 1, 7.8.1 (sample packets) */
static const u8 printed[PACKET] = {
	0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00, 0x87,
	0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02,
	0x38, 0xf2, 0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c,
	0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00, 0x96, 0x25, 0xb7, 0x5a,
};
static const struct lrh printed_lrh = { .slid = 0x17d2, .dlid = 0x375c, .sl = 1, .vl = 7 };

static u32 test_make(const struct roce_flow *grh, u8 *out)
{
	struct pkt p = { .opcode = PKT_WRITE_ONLY,
			 .qp_type = RC,
			 .pkey = 0x2487,
			 .dqpn = 0x87b1b3,
			 .psn = 0x0dec2a,
			 .va = 0x01710a1c015d4002,
			 .rkey = 0x38f27a05,
			 .dma_length = BYTES,
			 .length = BYTES,
			 .unmigrated = true };
	u8 headers[ROCE_HEADERS_MAX];
	const u8 *payload = printed + 36;
	u32 link, icrc, bytes = (u32)roce_pack(&p, headers), pad = roce_pad(BYTES);

	link = lrh_pack(&printed_lrh, grh, bytes + BYTES + pad + ROCE_ICRC, out);
	memcpy(out + link, headers, bytes);
	memcpy(out + link + bytes, payload, BYTES);
	icrc = roce_icrc_add(lrh_icrc_begin(out, link, bytes), payload, BYTES);
	return link + bytes + BYTES + roce_icrc_end(icrc, pad, out + link + bytes + BYTES);
}

static void lrh__the_printed_packet(void **state)
{
	u8 packet[256];

	assert_int_equal(test_make(NULL, packet), PACKET);
	assert_memory_equal(packet, printed, PACKET);
}

/* A CRC that is sent behind what it covers leaves the same rest behind every packet. */
static void vcrc__leaves_its_rest(void **state)
{
	u8 packet[PACKET + LRH_VCRC];
	u16 rest = 0;

	for (u32 bytes = 0; bytes <= PACKET; bytes++) {
		u16 crc = lrh_vcrc(printed, bytes);

		memcpy(packet, printed, bytes);
		packet[bytes] = (u8)crc;
		packet[bytes + 1] = (u8)(crc >> 8);
		if (bytes == 0)
			rest = lrh_vcrc(packet, LRH_VCRC);
		assert_int_equal(lrh_vcrc(packet, bytes + LRH_VCRC), rest);
	}
}

/* By the definition, a bit at a time with the polynomial as the specification writes it. */
static void vcrc__is_that_of_the_polynomial(void **state)
{
	u32 crc = 0xffff, reversed = 0;

	for (u32 i = 0; i < PACKET * 8; i++) {
		u32 bit = printed[i / 8] >> i % 8 & 1, top = crc >> 15 & 1;

		crc = (crc << 1 & 0xffff) ^ (top != bit ? 0x100b : 0);
	}
	for (int i = 0; i < 16; i++)
		reversed |= (~crc >> i & 1) << (15 - i);
	assert_int_equal(lrh_vcrc(printed, PACKET), reversed);
}

static void lrh__a_global_packet(void **state)
{
	struct roce_flow f = { .traffic_class = 0xa5, .hop_limit = 9, .flow_label = 0x12345 };
	u8 packet[256], routed[256];
	u32 bytes;

	memset(f.sgid, 0x11, 16);
	memset(f.dgid, 0x22, 16);
	bytes = test_make(&f, packet);
	assert_int_equal(bytes, PACKET + LRH_GRH);
	assert_int_equal(packet[1] & 3, 3);
	assert_int_equal(packet[5] * 4, bytes);
	assert_memory_equal(packet + 8, "\x6a\x51\x23\x45\x00\x30\x1b\x09", 8);
	f.traffic_class = f.hop_limit = 1;
	f.flow_label = 0;
	test_make(&f, routed);
	assert_memory_equal(packet + bytes - ROCE_ICRC, routed + bytes - ROCE_ICRC, ROCE_ICRC);
	f.dgid[15]++;
	test_make(&f, routed);
	assert_memory_not_equal(packet + bytes - ROCE_ICRC, routed + bytes - ROCE_ICRC, ROCE_ICRC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lrh__the_printed_packet),
		cmocka_unit_test(vcrc__leaves_its_rest),
		cmocka_unit_test(vcrc__is_that_of_the_polynomial),
		cmocka_unit_test(lrh__a_global_packet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
