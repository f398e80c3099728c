/* ether_test.c: the fields of frames, and which rules take them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "wire/ether.h"

#define MAC_TO 1, 2, 3, 4, 5, 6
#define MAC_FROM 7, 8, 9, 10, 11, 12

static const u8 udp4[] = { MAC_TO, MAC_FROM, 0x08, 0x00,
			   0x45, 0x2e, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
			   0x04, 0xd2, 0x16, 0x2e, 0, 12, 0, 0, 'd', 'a', 't', 'a' };
static const u8 tcp6[] = { MAC_TO, MAC_FROM, 0x81, 0x00, 0xac, 0x0c, 0x86, 0xdd, 0x6a, 0xb1,
			   0x23,   0x45,     0,	   20,	 6,    63,   0xfe, 0x80, 0,    0,
			   0,	   0,	     0,	   0,	 0,    0,    0,	   0,	 0,    0,
			   0,	   1,	     0xfe, 0x80, 0,    0,    0,	   0,	 0,    0,
			   0,	   0,	     0,	   0,	 0,    0,    0,	   2,	 0x00, 0x50,
			   0x1f,   0x90,     0,	   0,	 0,    0,    0,	   0,	 0,    0,
			   0x50,   0,	     0,	   0,	 0,    0,    0,	   0 };

static void ether_parse__udp_over_ipv4(void **state)
{
	struct ether_key k;

	assert_true(ether_parse(udp4, sizeof(udp4), &k));
	assert_memory_equal(k.dmac, ((u8[]){ MAC_TO }), 6);
	assert_memory_equal(k.smac, ((u8[]){ MAC_FROM }), 6);
	assert_memory_equal(k.ether_type, "\x08\x00", 2);
	assert_memory_equal(k.vlan_tag, "\0\0", 2);
	assert_int_equal(k.l3, 4);
	assert_int_equal(k.l4, ETHER_UDP);
	assert_int_equal(k.tos, 0x2e);
	assert_int_equal(k.ttl, 64);
	assert_int_equal(k.proto, 17);
	assert_int_equal(k.ip_flags, ETHER_DONT_FRAGMENT);
	assert_memory_equal(k.src_ip, "\x0a\0\0\x01\0\0\0\0\0\0\0\0\0\0\0", 16);
	assert_memory_equal(k.dst_ip, "\x0a\0\0\x02\0\0\0\0\0\0\0\0\0\0\0", 16);
	assert_memory_equal(k.sport, "\x04\xd2", 2);
	assert_memory_equal(k.dport, "\x16\x2e", 2);
}

static void ether_parse__tcp_over_ipv6_behind_a_tag(void **state)
{
	struct ether_key k;

	assert_true(ether_parse(tcp6, sizeof(tcp6), &k));
	assert_memory_equal(k.ether_type, "\x86\xdd", 2);
	assert_memory_equal(k.vlan_tag, "\xac\x0c", 2);
	assert_int_equal(k.l3, 6);
	assert_int_equal(k.l4, ETHER_TCP);
	assert_int_equal(k.tos, 0xab);
	assert_memory_equal(k.flow_label, "\0\x01\x23\x45", 4);
	assert_int_equal(k.ttl, 63);
	assert_int_equal(k.src_ip[15], 1);
	assert_int_equal(k.dst_ip[15], 2);
	assert_memory_equal(k.sport, "\0\x50", 2);
	assert_memory_equal(k.dport, "\x1f\x90", 2);
}

/* Each length in a block of its own, so that a sanitizer sees a byte too many. */
static void ether_parse__every_length(void **state)
{
	for (u32 n = 0; n <= sizeof(tcp6); n++) {
		u8 *copy = malloc(n + 1);
		struct ether_key k;
		bool ok;

		memcpy(copy + 1, tcp6, n);
		ok = ether_parse(copy + 1, n, &k);
		assert_int_equal(ok, n >= ETHER_HEADER);
		if (ok)
			assert_int_equal(k.l3, n >= 18 + 40 ? 6 : 0);
		if (ok)
			assert_int_equal(k.l4, n >= 18 + 40 + 4 ? ETHER_TCP : 0);
		free(copy);
	}
}

static void ether_parse__a_later_fragment_has_no_ports(void **state)
{
	struct ether_key k;
	u8 frame[sizeof(udp4)];

	memcpy(frame, udp4, sizeof(udp4));
	frame[14 + 6] = 0x20; /* more fragments: the first one */
	assert_true(ether_parse(frame, sizeof(frame), &k));
	assert_int_equal(k.l4, ETHER_UDP);
	assert_int_equal(k.ip_flags, ETHER_MORE_FRAGMENTS);
	frame[14 + 7] = 1;
	assert_true(ether_parse(frame, sizeof(frame), &k));
	assert_int_equal(k.l4, 0);
	assert_int_equal(k.proto, 17);
}

static void ether_parse__a_wrong_header_length_is_no_ip(void **state)
{
	struct ether_key k;
	u8 frame[sizeof(udp4)];

	memcpy(frame, udp4, sizeof(udp4));
	frame[14] = 0x44; /* 16 bytes */
	assert_true(ether_parse(frame, sizeof(frame), &k));
	assert_int_equal(k.l3, 0);
	frame[14] = 0x4f; /* 60 bytes: beyond the frame */
	assert_true(ether_parse(frame, sizeof(frame), &k));
	assert_int_equal(k.l3, 0);
	frame[14] = 0x65;
	assert_true(ether_parse(frame, sizeof(frame), &k));
	assert_int_equal(k.l3, 0);
}

static struct ether_rule rule_to(u8 last, s32 rank)
{
	struct ether_rule r = { .rank = rank };

	r.value.dmac[5] = last;
	r.mask.dmac[5] = 0xff;
	return r;
}

static void ether_matches__the_masked_bits_only(void **state)
{
	struct ether_rule r = rule_to(6, 0);
	struct ether_key k;

	assert_true(ether_parse(udp4, sizeof(udp4), &k));
	assert_true(ether_matches(&r, &k));
	r.value.dport[1] = 0x2e;
	r.mask.dport[1] = 0xff;
	assert_true(ether_matches(&r, &k));
	r.value.dport[1] = 0x2f;
	assert_false(ether_matches(&r, &k));
	r.mask.dport[1] = 0x0e;
	r.value.dport[1] = 0x0e;
	assert_true(ether_matches(&r, &k));
}

/* A bit for each rule that the frame is delivered to. */
static u32 walk(const struct ether_rule *rules, u32 n)
{
	struct ether_walk w = { .taken = NULL };
	struct ether_key k;
	u32 got = 0;

	assert_true(ether_parse(udp4, sizeof(udp4), &k));
	for (u32 i = 0; i < n; i++) {
		enum ether_verdict v = ether_judge(&w, &rules[i], &k);

		if (v == ETHER_END)
			break;
		got |= v == ETHER_DELIVER ? 1u << i : 0;
	}
	return got;
}

static void ether_judge__the_first_that_matches_and_its_equals(void **state)
{
	struct ether_rule rules[] = { rule_to(5, 0), rule_to(6, 1), rule_to(6, 1), rule_to(6, 2) };

	assert_int_equal(walk(rules, 4), 1 << 1 | 1 << 2);
}

static void ether_judge__one_that_passes_lets_the_next_rank_have_it(void **state)
{
	struct ether_rule rules[] = { rule_to(6, 0), rule_to(6, 3), { .rank = ETHER_RANK_ALL } };

	rules[0].passes = 1;
	assert_int_equal(walk(rules, 3), 1 << 0 | 1 << 1);
}

static void ether_judge__a_sniffer_takes_nothing_away(void **state)
{
	struct ether_rule rules[] = { { .rank = ETHER_RANK_SNIFFER },
				      { .rank = ETHER_RANK_SNIFFER },
				      rule_to(6, 0) };

	assert_int_equal(walk(rules, 3), 7);
}

static void ether_judge__a_drop_ends_the_walk(void **state)
{
	struct ether_rule rules[] = { rule_to(6, 0), rule_to(6, 0), { .rank = ETHER_RANK_ALL } };

	rules[0].drops = 1;
	assert_int_equal(walk(rules, 3), 0);
}

static void ether_judge__defaults_take_what_is_left(void **state)
{
	struct ether_rule rules[] = { rule_to(5, 7), { .rank = ETHER_RANK_MULTICAST },
				      { .rank = ETHER_RANK_ALL } };

	rules[1].value.dmac[0] = rules[1].mask.dmac[0] = 1; /* the frame's is 01 */
	assert_int_equal(walk(rules, 3), 1 << 1);
	rules[1].value.dmac[0] = 0;
	assert_int_equal(walk(rules, 3), 1 << 2);
}

/* The vectors that makers of adapters publish for receive-side scaling. */
static const u8 rss_key[RSS_KEY] = { 0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
				     0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
				     0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
				     0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa };
enum { RSS_IP4 = RSS_SRC_IPV4 | RSS_DST_IPV4, RSS_TCP = RSS_SRC_PORT_TCP | RSS_DST_PORT_TCP };

static void rss_hash__known_vectors(void **state)
{
	struct ether_key k = { .l3 = 4, .l4 = ETHER_TCP, .src_ip = { 66, 9, 149, 187 },
			       .dst_ip = { 161, 142, 100, 80 }, .sport = { 0x0a, 0xea },
			       .dport = { 0x06, 0xe6 } };
	struct ether_key k6 = { .l3 = 6, .l4 = ETHER_TCP,
				.src_ip = { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0,
					    0, 0, 0, 0, 7 },
				.dst_ip = { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0,
					    0, 0, 0, 0, 1 },
				.sport = { 0x0a, 0xea }, .dport = { 0x06, 0xe6 } };

	assert_int_equal(rss_hash(rss_key, RSS_IP4, &k), 0x323e8fc2);
	assert_int_equal(rss_hash(rss_key, RSS_IP4 | RSS_TCP, &k), 0x51ccc178);
	assert_int_equal(rss_hash(rss_key, RSS_SRC_IPV6 | RSS_DST_IPV6, &k6), 0x2cc18cd5);
	assert_int_equal(rss_hash(rss_key, RSS_SRC_IPV6 | RSS_DST_IPV6 | RSS_TCP, &k6), 0x40207d3d);
}

static void rss_hash__fields_that_the_frame_lacks_count_nothing(void **state)
{
	struct ether_key k = { .l3 = 4, .l4 = ETHER_UDP, .src_ip = { 66, 9, 149, 187 },
			       .dst_ip = { 161, 142, 100, 80 }, .sport = { 1, 2 } };

	assert_int_equal(rss_hash(rss_key, RSS_IP4 | RSS_TCP, &k),
			 rss_hash(rss_key, RSS_IP4, &k));
	assert_int_equal(rss_hash(rss_key, RSS_SRC_IPV6 | RSS_TCP, &k), 0);
	assert_int_not_equal(rss_hash(rss_key, RSS_SRC_PORT_UDP, &k), 0);
	k.l3 = 0;
	assert_int_equal(rss_hash(rss_key, RSS_IP4, &k), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ether_parse__udp_over_ipv4),
		cmocka_unit_test(ether_parse__tcp_over_ipv6_behind_a_tag),
		cmocka_unit_test(ether_parse__every_length),
		cmocka_unit_test(ether_parse__a_later_fragment_has_no_ports),
		cmocka_unit_test(ether_parse__a_wrong_header_length_is_no_ip),
		cmocka_unit_test(ether_matches__the_masked_bits_only),
		cmocka_unit_test(ether_judge__the_first_that_matches_and_its_equals),
		cmocka_unit_test(ether_judge__one_that_passes_lets_the_next_rank_have_it),
		cmocka_unit_test(ether_judge__a_sniffer_takes_nothing_away),
		cmocka_unit_test(ether_judge__a_drop_ends_the_walk),
		cmocka_unit_test(ether_judge__defaults_take_what_is_left),
		cmocka_unit_test(rss_hash__known_vectors),
		cmocka_unit_test(rss_hash__fields_that_the_frame_lacks_count_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
