/* icrc_test.c: the ICRC of captured packets, against a second computation bit by bit, and the check
 * that must not see identification and DF. */
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "wire/roce.h"

/* From the IP header to the ICRC: a CNP that a ConnectX-4 Lx sent, and a SEND on a UC queue pair by
 * a ConnectX. Both are test data of scapy's RoCE layer (its test/contrib/roce.uts), where the ICRC
 * is the one that the adapter computed. */
static const u8 cnp[] = {
	0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
	0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00,
	0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
};
static const u8 uc_send[] = {
	0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 0xc0, 0xa8, 0x00,
	0x07, 0xc0, 0xa8, 0x00, 0x07, 0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, 0x24, 0x60,
	0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81, 0x8b, 0xe2,
	0x89, 0x35, 0xd9, 0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00,
	0x78, 0xf3, 0x53, 0xf3,
};

/* ---- a second computation ---- */

static u32 test_crc(u32 crc, const u8 *data, u32 bytes)
{
	while (bytes-- > 0) {
		crc ^= *data++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
	}
	return crc;
}

/* The ICRC of a packet that begins with its IP header and ends where the ICRC belongs. */
static u32 test_icrc(const u8 *packet, u32 bytes)
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
};

static struct roce_flow test_flow(bool v4)
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
static void test_build(struct test_packet *t, const struct pkt *p)
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

/* ---- judging ---- */

static struct roce_flow test_flow_of(const u8 *packet)
{
	struct roce_flow f = { .sport = (u16)(packet[20] << 8 | packet[21]) };

	f.sgid[10] = f.sgid[11] = f.dgid[10] = f.dgid[11] = 0xff;
	memcpy(f.sgid + 12, packet + 12, 4);
	memcpy(f.dgid + 12, packet + 16, 4);
	return f;
}

static void test_captured(const u8 *packet, u32 bytes)
{
	struct roce_flow f = test_flow_of(packet);
	u8 copy[128];

	for (u32 bit = 0; bit < (bytes - 28) * 8; bit++) {
		struct roce_source s = { 0 };
		u32 byte = bit / 8;

		memcpy(copy, packet + 28, bytes - 28);
		assert_true(roce_icrc_matches(&s, &f, copy, bytes - 28, 1));
		assert_int_equal(s.track[0], packet[4] << 8 | packet[5]);
		assert_true(s.df);
		copy[byte] ^= (u8)(1 << bit % 8);
		/* the whole byte of FECN, BECN and reserved bits is not covered */
		assert_int_equal(roce_icrc_matches(&s, &f, copy, bytes - 28, 1), byte == 4);
	}
}

static void roce_icrc_matches__packets_of_adapters(void **state)
{
	test_captured(cnp, sizeof(cnp));
	test_captured(uc_send, sizeof(uc_send));
	assert_int_equal(test_stored(cnp + sizeof(cnp)), test_icrc(cnp, sizeof(cnp) - 4));
	assert_int_equal(test_stored(uc_send + sizeof(uc_send)),
			 test_icrc(uc_send, sizeof(uc_send) - 4));
}

/* Does a packet with this identification and DF pass? */
static bool test_arrives_at(struct roce_source *s, u16 id, bool df, u64 now_ms,
			    struct roce_place at)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY,
			 .qp_type = IBV_QPT_RC,
			 .length = 100,
			 .dqpn = at.dqpn,
			 .psn = at.psn };
	struct test_packet t = { .flow = test_flow(true) };

	t.flow.id = id;
	t.flow.df = df;
	test_build(&t, &p);
	return roce_icrc_matches(s, &t.flow, t.udp_payload, t.length, now_ms);
}

static bool test_arrives(struct roce_source *s, u16 id, bool df, u64 now_ms)
{
	return test_arrives_at(s, id, df, now_ms, (struct roce_place){ 0x11, 7 });
}

static void roce_icrc_matches__ipv6_is_exact(void **state)
{
	struct pkt p = { .opcode = PKT_WRITE_ONLY, .qp_type = IBV_QPT_RC, .length = 77 };
	struct test_packet t = { .flow = test_flow(false) };
	struct roce_source s = { 0 };

	test_build(&t, &p);
	assert_true(roce_icrc_matches(&s, &t.flow, t.udp_payload, t.length, 1));
	t.flow.traffic_class = t.flow.hop_limit = 1; /* routers change these */
	t.flow.flow_label = 0;
	assert_true(roce_icrc_matches(&s, &t.flow, t.udp_payload, t.length, 1));
	for (u32 i = 0; i < t.length; i++) {
		t.udp_payload[i] ^= 1;
		assert_int_equal(
			roce_icrc_matches(&s, &t.flow, t.udp_payload, t.length, 1), i == 4);
		t.udp_payload[i] ^= 1;
	}
	t.flow.sgid[15] ^= 1; /* translated addresses show */
	assert_false(roce_icrc_matches(&s, &t.flow, t.udp_payload, t.length, 1));
}

static void roce_icrc_matches__every_identification_is_found(void **state)
{
	for (u32 id = 0; id < 0x10000; id += 13) {
		struct roce_source s = { 0 };

		assert_true(test_arrives(&s, (u16)id, id & 1, 1));
		assert_int_equal(s.track[0], id);
		assert_int_equal(s.df, id & 1);
	}
}

/* The other two flags and the offset belong to fragments, and these do not arrive here. */
static void roce_icrc_matches__fragments_do_not(void **state)
{
	for (int bit = 0; bit < 16; bit++) {
		struct roce_source s = { 0 };
		struct roce_flow f = test_flow_of(uc_send);
		u8 copy[sizeof(uc_send)];
		u32 icrc;

		memcpy(copy, uc_send, sizeof(copy));
		copy[6 + bit / 8] ^= (u8)(0x80 >> bit % 8);
		icrc = test_icrc(copy, sizeof(copy) - 4);
		for (int i = 0; i < 4; i++)
			copy[sizeof(copy) - 4 + i] = (u8)(icrc >> 8 * i);
		assert_int_equal(roce_icrc_matches(&s, &f, copy + 28, sizeof(copy) - 28, 1),
				 bit == 1);
	}
}

static void roce_icrc_matches__batches_numbered_from_zero(void **state)
{
	struct roce_source s = { 0 };

	for (int batch = 0; batch < 20; batch++)
		for (u16 id = 0; id < 1 + batch * 7 % 64; id++)
			assert_true(test_arrives(&s, id, true, 1));
	assert_int_equal(s.tracks, 1);
	assert_true(test_arrives(&s, 0, false, 1)); /* 0 has either DF */
	assert_false(test_arrives(&s, 1, false, 1));
	assert_true(test_arrives(&s, 1, true, 1));
}

static void roce_icrc_matches__reordered_and_wrapped(void **state)
{
	struct roce_source s = { 0 };
	static const u16 ids[] = { 65500, 65510, 65505, 65535, 3, 65534, 100, 356, 300 };

	for (u32 i = 0; i < ARRAY_LEN(ids); i++)
		assert_true(test_arrives(&s, ids[i], false, 1));
	assert_int_equal(s.tracks, 1);
}

static void roce_icrc_matches__a_far_one_waits_for_its_follower(void **state)
{
	struct roce_source s = { 0 };

	assert_true(test_arrives(&s, 5000, true, 1));
	assert_false(test_arrives(&s, 20000, true, 1));
	assert_true(test_arrives(&s, 5001, true, 1));
	assert_false(test_arrives(&s, 20001, true, 1)); /* what was seen before is forgotten */
	assert_true(test_arrives(&s, 20002, true, 1));
	assert_true(test_arrives(&s, 20003, true, 1));
	assert_true(test_arrives(&s, 5002, true, 1)); /* both are known now */
	assert_false(test_arrives(&s, 20004, false, 1)); /* the other DF */
	assert_true(test_arrives(&s, 20005, false, 1));
	assert_false(s.wild);
}

/* A burst has overflowed the receive buffer: identification and PSN go on by the same. */
static void roce_icrc_matches__a_gap_in_the_connection(void **state)
{
	static const u32 lost[] = { 300, 1000, 2047, 40000, 70000, 5 };
	struct roce_place at = { 0x11, 0xfffff0 };
	struct roce_source s = { 0 };
	u16 id = 65000;

	assert_true(test_arrives_at(&s, id, true, 1, at));
	for (u32 i = 0; i < ARRAY_LEN(lost); i++) {
		id += (u16)(lost[i] + 1);
		at.psn = (at.psn + lost[i] + 1) & 0xffffff;
		assert_true(test_arrives_at(&s, id, true, 1, at));
		assert_int_equal(s.track[0], id);
	}
	assert_int_equal(s.tracks, 1);
	/* not of another connection, nor farther than that, nor with another DF */
	assert_false(test_arrives_at(&s, id + 2000, true, 1,
				     (struct roce_place){ 0x12, at.psn + 2000 }));
	at.psn = (at.psn + 2000) & 0xffffff;
	assert_false(test_arrives_at(&s, id + 4000, true, 1, at));
	assert_false(test_arrives_at(&s, id + 2000, false, 1, at));
	assert_true(test_arrives_at(&s, id + 2000, true, 1, at));
}

static void roce_icrc_matches__silence_widens(void **state)
{
	struct roce_source s = { 0 };

	assert_true(test_arrives(&s, 5000, true, 10));
	assert_false(test_arrives(&s, 6000, true, 11));
	assert_true(test_arrives(&s, 5001, true, 12));
	assert_true(test_arrives(&s, 6000, true, 1012));
	assert_true(test_arrives(&s, 40000, true, 100000));
}

static void roce_icrc_matches__no_order_at_all(void **state)
{
	struct roce_source s = { 0 };
	u32 passed = 0;

	for (u32 i = 1; i <= 20; i++)
		passed += test_arrives(&s, (u16)(i * 12345), true, 1);
	assert_int_equal(passed, 1 + 20 - ROCE_STRANGERS);
	assert_true(s.wild);
	assert_false(test_arrives(&s, 7777, false, 1));
}

/* A packet from this port, `place`th of those that were joined. */
static bool test_arrives_from(struct roce_source *s, u16 sport, u16 id, u16 place)
{
	struct pkt p = { .opcode = PKT_SEND_ONLY, .qp_type = IBV_QPT_RC, .length = 100, .psn = 7 };
	struct test_packet t = { .flow = test_flow(true) };

	t.flow.sport = sport;
	t.flow.id = id;
	t.flow.df = true;
	test_build(&t, &p);
	t.flow.id = place;
	return roce_icrc_matches(s, &t.flow, t.udp_payload, t.length, 1);
}

/* As Linux's rxe: whichever port has been silent while others sent thousands of packets. */
static void roce_icrc_matches__one_counter_for_all_ports(void **state)
{
	struct roce_source s = { 0 };
	u16 id = 5000;

	for (u16 port = 0xc000; port < 0xc100; port++)
		assert_true(test_arrives_from(&s, port, id++, 0));
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 5000; i++)
			assert_true(test_arrives_from(&s, 0xc001, id++, 0));
		assert_true(test_arrives_from(&s, 0xc0ff, id++, 0));
	}
	for (int i = 0; i < 1000; i++)
		assert_true(test_arrives_from(&s, 0xc000 + i * 7 % 256, id += i % 50, 0));
}

/* As connected sockets of one host: each begins anywhere and counts for itself. */
static void roce_icrc_matches__a_counter_for_each_port(void **state)
{
	struct roce_source s = { 0 };

	for (u16 i = 0; i < 1000; i++) {
		assert_true(test_arrives_from(&s, 0xc000, i % 2, i % 2)); /* not connected */
		for (u16 port = 1; port <= 40; port++) {
			u16 id = (u16)(port * 1601 + i);

			assert_true(test_arrives_from(&s, 0xc000 + port, id, 0));
			assert_true(test_arrives_from(&s, 0xc000 + port, id + 1, 1));
		}
	}
	assert_false(s.wild);
	assert_false(test_arrives_from(&s, 0xc001, 1601 + 5000, 0));
	assert_true(test_arrives_from(&s, 0xc002, 2 * 1601 + 1000, 0));
	/* what other ports have sent meanwhile does not make it forget */
	assert_true(test_arrives_from(&s, 0xc001, 1601 + 5001, 0));
}

/* Both kinds at once, and none makes the other one's packets look wrong. */
static void roce_icrc_matches__both_kinds_of_counters(void **state)
{
	struct roce_source s = { 0 };

	for (u16 i = 0; i < 5000; i++) {
		assert_true(test_arrives_from(&s, 0xc000 + i % 4, 9000 + i, 0));
		assert_true(test_arrives_from(&s, 0xd000, 40000 + i, 0));
		assert_true(test_arrives_from(&s, 0xd001, 60000 + i, 0));
	}
}

/* What is expected is right, so that no packet takes the long way: the source's `rest` is set by
 * that alone. */
static void roce_icrc_matches__expects_what_comes(void **state)
{
	struct roce_source s = { 0 };
	u16 port = 0xc007, other = 0xc008;

	for (u16 i = 0; i < 100; i++) {
		if (i == 4)
			s.rest = 0;
		assert_true(test_arrives_from(&s, port, 700 + i, 0));
		assert_true(test_arrives_from(&s, port, 700 + i + 1, 1));
		assert_true(test_arrives_from(&s, other, 50000 + i, 0));
	}
	assert_int_equal(s.rest, 0);
	for (u16 i = 0; i < 100; i++) {
		if (i == 4)
			s.rest = 0;
		assert_true(test_arrives_from(&s, port, 800 + 2 * i, 0));
		assert_true(test_arrives_from(&s, other, 801 + 2 * i, 0));
	}
	assert_int_equal(s.rest, 0);
}

/* Of a million packets whose ICRC is any number, about as many pass as the contract says. */
static void roce_icrc_matches__strength(void **state)
{
	struct roce_source known = { 0 };
	struct roce_flow f = test_flow_of(uc_send);
	u8 copy[sizeof(uc_send) - 28];
	u32 passed_first = 0, passed_known = 0, random = 12345;

	memcpy(copy, uc_send + 28, sizeof(copy));
	assert_true(roce_icrc_matches(&known, &f, copy, sizeof(copy), 1));
	for (int i = 0; i < 1000000; i++) {
		struct roce_source first = { 0 }, later = known;

		random = random * 1664525 + 1013904223;
		for (int k = 0; k < 4; k++)
			copy[sizeof(copy) - 4 + k] = (u8)(random >> 8 * k);
		passed_first += roce_icrc_matches(&first, &f, copy, sizeof(copy), 1);
		passed_known += roce_icrc_matches(&later, &f, copy, sizeof(copy), 1);
	}
	assert_in_range(passed_first, 10, 60); /* 2^-15 of them: 30 */
	assert_in_range(passed_known, 0, 4);   /* 963 of 2^32: 0.22 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roce_icrc__agrees_with_the_specification_bit_by_bit),
		cmocka_unit_test(roce_icrc_whole__agrees_whatever_was_before),
		cmocka_unit_test(roce_ip_pack__ipv4_checksum),
		cmocka_unit_test(roce_icrc_matches__packets_of_adapters),
		cmocka_unit_test(roce_icrc_matches__ipv6_is_exact),
		cmocka_unit_test(roce_icrc_matches__every_identification_is_found),
		cmocka_unit_test(roce_icrc_matches__fragments_do_not),
		cmocka_unit_test(roce_icrc_matches__batches_numbered_from_zero),
		cmocka_unit_test(roce_icrc_matches__reordered_and_wrapped),
		cmocka_unit_test(roce_icrc_matches__a_far_one_waits_for_its_follower),
		cmocka_unit_test(roce_icrc_matches__a_gap_in_the_connection),
		cmocka_unit_test(roce_icrc_matches__silence_widens),
		cmocka_unit_test(roce_icrc_matches__no_order_at_all),
		cmocka_unit_test(roce_icrc_matches__one_counter_for_all_ports),
		cmocka_unit_test(roce_icrc_matches__a_counter_for_each_port),
		cmocka_unit_test(roce_icrc_matches__both_kinds_of_counters),
		cmocka_unit_test(roce_icrc_matches__expects_what_comes),
		cmocka_unit_test(roce_icrc_matches__strength),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
