/* frame_test.c: frames as bytes, against what Linux's IPoIB sends, and against what breaks a rule;
 * addresses and MGIDs by RFC 4391. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "ulp/ipoib/frame.h"

static const u8 gid_a[16] = { 0xfe, 0x80, [8] = 0x02, 0xc9, 3, 0, 1, 2, 3, 4 };

static void test_ip(const char *text, u8 out[16])
{
	memset(out, 0, 16);
	if (inet_pton(AF_INET6, text, out) == 1)
		return;
	out[10] = out[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, text, out + 12), 1);
}

static void test_mgid(const char *ip, u16 pkey, const char *mgid)
{
	u8 from[16], want[16], got[16];

	test_ip(ip, from);
	test_ip(mgid, want);
	ipoib_mgid(from, pkey, 2, got);
	assert_memory_equal(got, want, 16);
}

static void mgid__of_both_families(void **state)
{
	(void)state;
	test_mgid("255.255.255.255", 0xffff, "ff12:401b:ffff::ffff:ffff");
	test_mgid("224.0.0.1", 0xffff, "ff12:401b:ffff::1");
	test_mgid("239.1.2.3", 0x8001, "ff12:401b:8001::f01:203");
	/* a limited member sends to the full members' groups */
	test_mgid("224.0.0.251", 0x0001, "ff12:401b:8001::fb");
	test_mgid("ff02::1", 0xffff, "ff12:601b:ffff::1");
	test_mgid("ff02::1:ff01:203", 0xffff, "ff12:601b:ffff::1:ff01:203");
	test_mgid("ff05:1:2:3:4:5:6:7", 0xffff, "ff12:601b:ffff:3:4:5:6:7");
}

static void ip__prefixes(void **state)
{
	struct ipoib_prefix p = { .bits = 96 + 20 };
	u8 ip[16];

	(void)state;
	test_ip("10.1.16.1", p.ip);
	test_ip("10.1.31.255", ip);
	assert_true(ipoib_ip_fits(ip, &p));
	assert_true(ipoib_ip_is_broadcast_of(ip, &p));
	test_ip("10.1.31.254", ip);
	assert_false(ipoib_ip_is_broadcast_of(ip, &p));
	test_ip("10.1.32.0", ip);
	assert_false(ipoib_ip_fits(ip, &p));
	p.bits = 127; /* RFC 3021: no broadcast address */
	test_ip("10.1.16.1", ip);
	assert_false(ipoib_ip_is_broadcast_of(ip, &p));
	p.bits = 255;
	assert_false(ipoib_ip_fits(ip, &p));
}

static struct ipoib_frame test_frame(enum ipoib_frame_kind kind, const char *about,
				     const char *from)
{
	struct ipoib_frame f = { .kind = kind };

	ipoib_hw_make(&f.hw, 0x123456, gid_a);
	test_ip(about, f.about);
	test_ip(from, f.from);
	return f;
}

static void arp__is_rfc_4391s(void **state)
{
	static const u8 request[60] = { 8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1, 0, 0x12, 0x34, 0x56,
					0xfe, 0x80, [24] = 2, 0xc9, 3, 0, 1, 2, 3, 4, 10, 1, 0, 1,
					[56] = 10, 1, 0, 2 };
	struct ipoib_frame f = test_frame(FRAME_ASK, "10.1.0.2", "10.1.0.1"), got;
	u8 bytes[FRAME_BYTES];

	(void)state;
	assert_int_equal(ipoib_frame_write_ask(bytes, &f, NULL), 60);
	assert_memory_equal(bytes, request, 60);
	ipoib_frame_read(bytes, 60, &got);
	assert_int_equal(got.kind, FRAME_ASK);
	assert_memory_equal(got.about, f.about, 16);
	assert_memory_equal(got.from, f.from, 16);
	assert_true(got.has_hw);
	assert_memory_equal(&got.hw, &f.hw, sizeof(f.hw));
}

static void arp__an_answer(void **state)
{
	struct ipoib_frame f = test_frame(FRAME_ANSWER, "10.1.0.2", "10.1.0.1"), got;
	u8 bytes[FRAME_BYTES];
	u32 size = ipoib_frame_write_answer(bytes, &f, &f.hw);

	(void)state;
	ipoib_frame_read(bytes, size, &got);
	assert_int_equal(got.kind, FRAME_ANSWER);
	assert_memory_equal(got.about, f.about, 16);
	assert_true(got.solicited && got.override);
}

static void arp__that_breaks_a_rule(void **state)
{
	struct ipoib_frame f = test_frame(FRAME_ASK, "10.1.0.2", "10.1.0.1"), got;
	/* offset in the frame, and what it must not be */
	static const struct {
		u8 at, value;
	} wrong[] = {
		{ 5, 1 }, { 7, 1 }, { 8, 6 }, { 9, 16 }, { 11, 3 }, { 16, 0xff }, { 32, 224 }
	};
	u8 bytes[FRAME_BYTES];
	u32 size;

	(void)state;
	for (u32 i = 0; i < ARRAY_LEN(wrong); i++) {
		size = ipoib_frame_write_ask(bytes, &f, NULL);
		bytes[wrong[i].at] = wrong[i].value;
		ipoib_frame_read(bytes, size, &got);
		assert_int_equal(got.kind, FRAME_BAD);
	}
	size = ipoib_frame_write_ask(bytes, &f, NULL);
	for (u32 i = 0; i < size; i++) {
		ipoib_frame_read(bytes, i, &got);
		assert_int_equal(got.kind, FRAME_BAD);
	}
}

static void nd__a_solicitation(void **state)
{
	/* as Linux writes the option: type, length 3, two zeroes, 20 bytes */
	static const u8 option[8] = { 1, 3, 0, 0, 0, 0x12, 0x34, 0x56 };
	struct ipoib_frame f = test_frame(FRAME_ASK, "fe80::2", "fe80::1"), got;
	u8 bytes[FRAME_BYTES], group[16];

	(void)state;
	assert_int_equal(ipoib_frame_write_ask(bytes, &f, NULL), 92);
	assert_int_equal(bytes[0] << 8 | bytes[1], 0x86dd);
	test_ip("ff02::1:ff00:2", group);
	assert_memory_equal(bytes + 4 + 24, group, 16);
	assert_memory_equal(bytes + 4 + 64, option, 8);
	ipoib_frame_read(bytes, 92, &got);
	assert_int_equal(got.kind, FRAME_ASK);
	assert_memory_equal(got.about, f.about, 16);
	assert_memory_equal(&got.hw, &f.hw, sizeof(f.hw));
	assert_int_equal(ipoib_frame_write_ask(bytes, &f, &f.hw), 92);
	assert_memory_equal(bytes + 4 + 24, f.about, 16);
}

static void nd__an_advertisement(void **state)
{
	struct ipoib_frame f = test_frame(FRAME_ANSWER, "fe80::2", "fe80::1"), got;
	u8 bytes[FRAME_BYTES];

	(void)state;
	ipoib_frame_read(bytes, ipoib_frame_write_answer(bytes, &f, &f.hw), &got);
	assert_int_equal(got.kind, FRAME_ANSWER);
	assert_true(got.solicited && got.override && got.has_hw);
	memset(f.from, 0, 16);
	ipoib_frame_read(bytes, ipoib_frame_write_answer(bytes, &f, NULL), &got);
	assert_int_equal(got.kind, FRAME_ANSWER);
	assert_false(got.solicited);
}

/* What is said of ::ffff:10.1.0.2 is nothing that ARP has said. */
static void nd__says_nothing_of_ipv4(void **state)
{
	struct ipoib_frame f = test_frame(FRAME_ANSWER, "fe80::2", "fe80::1"), got;
	u8 bytes[FRAME_BYTES];
	u32 size = ipoib_frame_write_answer(bytes, &f, &f.hw), sum;

	(void)state;
	test_ip("10.1.0.2", bytes + 4 + 48);
	/* the checksum of what has changed */
	sum = (bytes[46] << 8 | bytes[47]) + 0xfe80u + 2 + 2 * 0xffffu - 0xffff - 0x0a01 - 2;
	sum = (sum & 0xffff) + (sum >> 16);
	bytes[46] = (u8)(sum >> 8);
	bytes[47] = (u8)sum;
	ipoib_frame_read(bytes, size, &got);
	assert_int_equal(got.kind, FRAME_BAD);
}

/* Every byte counts: the checksum sees to it. */
static void nd__that_breaks_a_rule(void **state)
{
	struct ipoib_frame f = test_frame(FRAME_ASK, "fe80::2", "fe80::1"), got;
	u8 bytes[FRAME_BYTES];
	u32 size = ipoib_frame_write_ask(bytes, &f, NULL);

	(void)state;
	for (u32 i = 4 + 7; i < size; i++) {
		bytes[i] ^= 4;
		ipoib_frame_read(bytes, size, &got);
		assert_true(got.kind == FRAME_BAD || i == 4 + 40); /* another ICMP type: not ours */
		bytes[i] ^= 4;
	}
	for (u32 i = 4 + 64; i < size; i++) {
		ipoib_frame_read(bytes, i, &got);
		assert_int_equal(got.kind, FRAME_BAD);
	}
}

static void packet__finds_its_destination(void **state)
{
	u8 bytes[IPOIB_HEAD + 60] = { [4] = 0x45, [20] = 10, 1, 0, 9 }, to[16], want[16];
	struct ipoib_frame f;

	(void)state;
	assert_true(ipoib_frame_wrap(bytes, 20, to));
	test_ip("10.1.0.9", want);
	assert_memory_equal(to, want, 16);
	ipoib_frame_read(bytes, 24, &f);
	assert_int_equal(f.kind, FRAME_IP);
	assert_false(ipoib_frame_wrap(bytes, 19, to));
	bytes[4] = 0x60;
	assert_false(ipoib_frame_wrap(bytes, 39, to));
	assert_true(ipoib_frame_wrap(bytes, 40, to));
	bytes[4] = 0x10;
	assert_false(ipoib_frame_wrap(bytes, 60, to));
}

static u16 test_sum(u32 sum, const u8 *at, u32 size)
{
	for (u32 i = 0; i < size; i++)
		sum += i % 2 == 0 ? (u32)at[i] << 8 : at[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (u16)sum;
}

static void refusal__names_the_packet(void **state)
{
	u8 v4[40] = { 0x45, [3] = 40, [9] = 6, [12] = 10, 1, 0, 1, 10, 1, 0, 9, 0x12, 0x34 };
	u8 v6[60] = { 0x60, [5] = 20, [6] = 17, [8] = 0xfd, [23] = 1, 0xfd, [39] = 9, 0x12, 0x34 };
	u8 out[REFUSAL_BYTES];

	(void)state;
	assert_int_equal(ipoib_frame_refuse(v4, sizeof(v4), out), 56);
	assert_int_equal(test_sum(0, out, 20), 0xffff);
	assert_int_equal(test_sum(0, out + 20, 36), 0xffff);
	assert_memory_equal(out + 12, "\x0a\x01\x00\x09\x0a\x01\x00\x01\x03\x01", 10);
	assert_memory_equal(out + 28, v4, 28);
	assert_int_equal(ipoib_frame_refuse(v6, sizeof(v6), out), 108);
	assert_int_equal(test_sum(68 + 58, out + 8, 100), 0xffff);
	assert_memory_equal(out + 40, "\x01\x03", 2);
	assert_memory_equal(out + 48, v6, sizeof(v6));
}

static void refusal__answers_no_message(void **state)
{
	u8 v4[40] = { 0x45, [9] = 1, [20] = 3 }, v6[60] = { 0x60, [6] = 58, [40] = 1 };
	u8 out[REFUSAL_BYTES];

	(void)state;
	assert_int_equal(ipoib_frame_refuse(v4, sizeof(v4), out), 0);
	assert_int_equal(ipoib_frame_refuse(v6, sizeof(v6), out), 0);
	v4[20] = 8;
	assert_int_equal(ipoib_frame_refuse(v4, sizeof(v4), out), 56);
	v4[7] = 1; /* a later part of a packet */
	assert_int_equal(ipoib_frame_refuse(v4, sizeof(v4), out), 0);
	v4[7] = 0;
	for (u32 size = 0; size < 28; size++)
		assert_int_equal(ipoib_frame_refuse(v4, size, out), 0);
	v4[0] = 0x40;
	assert_int_equal(ipoib_frame_refuse(v4, sizeof(v4), out), 0);
	v4[0] = 0x10;
	assert_int_equal(ipoib_frame_refuse(v4, sizeof(v4), out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mgid__of_both_families),
		cmocka_unit_test(ip__prefixes),
		cmocka_unit_test(arp__is_rfc_4391s),
		cmocka_unit_test(arp__an_answer),
		cmocka_unit_test(arp__that_breaks_a_rule),
		cmocka_unit_test(nd__a_solicitation),
		cmocka_unit_test(nd__an_advertisement),
		cmocka_unit_test(nd__says_nothing_of_ipv4),
		cmocka_unit_test(nd__that_breaks_a_rule),
		cmocka_unit_test(refusal__names_the_packet),
		cmocka_unit_test(refusal__answers_no_message),
		cmocka_unit_test(packet__finds_its_destination),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
