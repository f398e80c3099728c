/* icrc_test.c: the ICRC of captured packets, against a second computation bit by bit. */
#include "wire/icrc_test.h"

static u32 test_stored(const u8 *end)
{
	return (u32)end[-4] | (u32)end[-3] << 8 | (u32)end[-2] << 16 | (u32)end[-1] << 24;
}

static void roce_icrc__agrees_with_the_specification_bit_by_bit(void **state)
{
	static const u32 lengths[] = { 0, 1, 2, 3, 4, 63, 256, 1021, 4096 };
	struct test_packet t;
	int checked = 0;

	for (int v4 = 0; v4 < 2; v4++)
		for (u8 opcode = 0; opcode <= PKT_CNP; opcode++)
			for (u32 i = 0; i < ARRAY_LEN(lengths); i++) {
				struct pkt p = { .opcode = opcode,
						 .qp_type = IBV_QPT_RC,
						 .dqpn = 99,
						 .psn = i,
						 .length = lengths[i] };
				u8 out[ROCE_HEADERS_MAX];
				u32 ip;

				if (roce_pack(&p, out) < 0)
					continue;
				t.flow = test_flow(v4);
				t.flow.id = (u16)(i * 999);
				t.flow.df = i % 2;
				test_build(&t, &p);
				ip = roce_ip_length(&t.flow);
				assert_int_equal(test_stored(t.udp_payload + t.length),
						 test_icrc(t.bytes, ip + t.length - 4));
				checked++;
			}
	assert_int_equal(checked, 2 * (18 * 9 + 6));
}

/* One prefix for flows, lengths, identifications and DF in turn. */
static void roce_icrc_whole__agrees_whatever_was_before(void **state)
{
	struct roce_prefix x = { .sport = 0 };
	struct test_packet t;

	for (u32 i = 0; i < 20000; i++) {
		struct pkt p = { .opcode = i % 3 == 0 ? PKT_ACK : PKT_SEND_ONLY,
				 .qp_type = IBV_QPT_RC,
				 .dqpn = i,
				 .psn = i,
				 .length = i % 3 == 0 ? 0 : i % 97 };

		t.flow = test_flow(i % 1000 < 900);
		t.flow.sport += (u16)(i / 64 % 3);
		t.flow.dgid[15] ^= i / 128 % 5 == 0;
		t.flow.id = (u16)(i * 40503);
		t.flow.df = i / 7 % 2;
		test_build(&t, &p);
		t.udp_payload[4] ^= (u8)(i * 11); /* FECN's byte is not covered */
		assert_int_equal(roce_icrc_whole(&x, &t.flow, t.udp_payload, t.length),
				 test_icrc(t.bytes, roce_ip_length(&t.flow) + t.length - 4));
	}
}

static void roce_ip_pack__ipv4_checksum(void **state)
{
	struct roce_flow f = { .sport = 0xc000, .traffic_class = 1, .hop_limit = 64, .id = 0x478 };
	u8 out[ROCE_IP_MAX];

	f.df = true;
	f.sgid[10] = f.sgid[11] = f.dgid[10] = f.dgid[11] = 0xff;
	memcpy(f.sgid + 12, uc_send + 12, 4);
	memcpy(f.dgid + 12, uc_send + 16, 4);
	assert_int_equal(roce_ip_pack(&f, sizeof(uc_send) - 28, out), 28);
	assert_memory_equal(out, uc_send, 26); /* the UDP checksum is not ours */
}

static void roce_icrc__of_packets_of_adapters(void **state)
{
	assert_int_equal(test_stored(cnp + sizeof(cnp)), test_icrc(cnp, sizeof(cnp) - 4));
	assert_int_equal(test_stored(uc_send + sizeof(uc_send)),
			 test_icrc(uc_send, sizeof(uc_send) - 4));
}

/* ---- whatever the identification ---- */

static struct pkt test_send(u8 opcode, u32 psn, u32 length)
{
	return (struct pkt){ .opcode = opcode,
			     .qp_type = IBV_QPT_RC,
			     .dqpn = 99,
			     .psn = psn,
			     .length = length };
}

static void roce_icrc_is_possible__every_packet_is(void **state)
{
	struct roce_trial x = { .same = 0 };
	struct test_packet t;
	u32 passed = 0;

	for (u32 i = 0; i < 4000; i++) {
		struct pkt p = test_send(PKT_SEND_ONLY, i, i % 300);
		struct roce_flow f;

		t.flow = f = test_flow(i % 5 < 4);
		t.flow.id = (u16)(i * 40503);
		t.flow.df = i / 7 % 2;
		test_build(&t, &p);
		assert_true(roce_icrc_is_possible(&x, &f, t.udp_payload, t.length));
		t.udp_payload[5 + i % (t.length - 5)] ^= (u8)(1 + i % 255);
		passed += roce_icrc_is_possible(&x, &f, t.udp_payload, t.length);
	}
	assert_int_equal(passed, 0); /* one in 2^15 could */
	assert_false(roce_icrc_is_possible(&x, &t.flow, t.udp_payload, ROCE_BTH));
}

/* Two joined packets of one length each, with all identifications of the second. Some pairs are
 * possible; which ones does not depend on whether the pair is learned. */
static void roce_icrc_is_pair_possible__as_the_whole_is(void **state)
{
	static const u32 lengths[] = { 0, 8, 64, 200, 1024 };
	struct test_packet t;
	u32 possible = 0;

	for (u32 i = 0; i < ARRAY_LEN(lengths); i++)
		for (u32 v4 = 0; v4 < 2; v4++) {
			struct roce_trial pair = { .same = 0 }, whole = { .same = 0 };
			struct pkt p = test_send(PKT_SEND_ONLY, i, lengths[i]);
			struct pkt ack = test_send(PKT_ACK, i, 0);
			u8 data[2 * ROCE_UDP_MAX];

			t.flow = test_flow(v4);
			for (u32 id = 0; id < 1u << 16; id += v4 ? 1 : 4096) {
				u32 first, all;
				bool can;

				t.flow.id = (u16)(id - 1);
				test_build(&t, &p);
				memcpy(data, t.udp_payload, first = t.length);
				t.flow.id = (u16)id;
				test_build(&t, &ack);
				memcpy(data + first, t.udp_payload, t.length);
				all = first + t.length;
				can = roce_icrc_is_possible(&whole, &t.flow, data, all);
				assert_int_equal(can, roce_icrc_is_pair_possible(&pair, &t.flow,
										 data, first, all));
				possible += can;
			}
		}
	assert_true(possible > 0);
}

/* Nor on what was asked before. */
static void roce_icrc_is_pair_possible__whatever_was_before(void **state)
{
	struct roce_trial pair = { .same = 0 };
	struct test_packet t;

	for (u32 i = 0; i < 20000; i++) {
		struct pkt p = test_send(PKT_SEND_ONLY, i, i / 64 % 3 * 8);
		struct pkt ack = test_send(PKT_ACK, i, 0);
		struct roce_trial none = { .same = 0 };
		u8 data[2 * ROCE_UDP_MAX];
		u32 first;

		t.flow = test_flow(i % 1000 < 900);
		t.flow.sport += (u16)(i / 200 % 3);
		t.flow.df = i / 300 % 2;
		test_build(&t, &p);
		memcpy(data, t.udp_payload, first = t.length);
		t.flow.id = (u16)(i * 40503);
		test_build(&t, &ack);
		t.udp_payload[4] = (u8)(i / 500);
		memcpy(data + first, t.udp_payload, t.length);
		assert_int_equal(roce_icrc_is_possible(&none, &t.flow, data, first + t.length),
				 roce_icrc_is_pair_possible(&pair, &t.flow, data, first,
							    first + t.length));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_icrc__agrees_with_the_specification_bit_by_bit),
		cmocka_unit_test(roce_icrc_whole__agrees_whatever_was_before),
		cmocka_unit_test(roce_ip_pack__ipv4_checksum),
		cmocka_unit_test(roce_icrc__of_packets_of_adapters),
		cmocka_unit_test(roce_icrc_is_possible__every_packet_is),
		cmocka_unit_test(roce_icrc_is_pair_possible__as_the_whole_is),
		cmocka_unit_test(roce_icrc_is_pair_possible__whatever_was_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
