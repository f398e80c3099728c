/* source_test.c: judging the ICRC of packets whose identification and DF must not be seen. */
#include "wire/icrc_test.h"
#include "wire/source.h"

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

/* What is expected is right, so that no packet takes the long way: the source's `unshift` is set by
 * that alone. */
static void roce_icrc_matches__expects_what_comes(void **state)
{
	struct roce_source s = { 0 };
	u16 port = 0xc007, other = 0xc008;

	for (u16 i = 0; i < 100; i++) {
		if (i == 4)
			s.unshift.length = 0;
		assert_true(test_arrives_from(&s, port, 700 + i, 0));
		assert_true(test_arrives_from(&s, port, 700 + i + 1, 1));
		assert_true(test_arrives_from(&s, other, 50000 + i, 0));
	}
	assert_int_equal(s.unshift.length, 0);
	for (u16 i = 0; i < 100; i++) {
		if (i == 4)
			s.unshift.length = 0;
		assert_true(test_arrives_from(&s, port, 800 + 2 * i, 0));
		assert_true(test_arrives_from(&s, other, 801 + 2 * i, 0));
	}
	assert_int_equal(s.unshift.length, 0);
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
