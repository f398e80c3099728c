/* dgram_format_test.c: bytes as rdma-core's librdmacm has them, and what is refused. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rsocket/dgram_format.h"

static union dgram_addr addr_of(const char *text, u16 port)
{
	union dgram_addr a;

	memset(&a, 0, sizeof(a));
	if (strchr(text, ':') != NULL) {
		a.in6.sin6_family = AF_INET6;
		a.in6.sin6_port = htons(port);
		assert_int_equal(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
	} else {
		a.in.sin_family = AF_INET;
		a.in.sin_port = htons(port);
		assert_int_equal(inet_pton(AF_INET, text, &a.in.sin_addr), 1);
	}
	return a;
}

static void header_pack__writes_the_bytes_of_rdma_core(void **state)
{
	static const u8 v4[] = { 4, 8, 0x1c, 0x06, 192, 0, 2, 1 };
	static const u8 v6[] = { 6, 24, 0x1c, 0x06, 0, 0, 0, 7, 0x20, 1, 0xd, 0xb8,
				 0, 0,	0,    0,    0, 0, 0, 0, 0,    0, 0,   2 };
	union dgram_addr four = addr_of("192.0.2.1", 7174), six = addr_of("2001:db8::2", 7174);
	u8 out[DGRAM_HEADER_BYTES];

	(void)state;
	six.in6.sin6_flowinfo = htonl(7);
	assert_int_equal(dgram_header_pack(&four, out), sizeof(v4));
	assert_memory_equal(out, v4, sizeof(v4));
	assert_int_equal(dgram_header_pack(&six, out), sizeof(v6));
	assert_memory_equal(out, v6, sizeof(v6));
}

static void header_unpack__gives_the_address_that_was_packed(void **state)
{
	static const char *const text[] = { "192.0.2.1", "2001:db8::2" };
	u8 out[DGRAM_HEADER_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(text); i++) {
		union dgram_addr a = addr_of(text[i], 7), back;
		u32 bytes = dgram_header_pack(&a, out);

		assert_int_equal(dgram_header_unpack(out, bytes, &back), bytes);
		assert_true(dgram_addr_equal(&a, &back));
		assert_int_equal(dgram_header_unpack(out, bytes - 1, &back), -EBADMSG);
	}
}

static void header_unpack__refuses_what_is_no_header(void **state)
{
	static const u8 bad[][DGRAM_HEADER_BYTES] = { { 0, 8 }, { 5, 8 }, { 4, 24 }, { 6, 8 },
						      { 4, 0 }, { 6, 255 } };
	union dgram_addr a;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(dgram_header_unpack(bad[i], sizeof(bad[i]), &a), -EBADMSG);
	assert_int_equal(dgram_header_unpack(bad[0], 0, &a), -EBADMSG);
}

static void hello_pack__writes_the_bytes_of_rdma_core(void **state)
{
	static const u8 want[] = { 0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 1, 2, 3, 192, 0, 2, 1 };
	static const u8 want6[] = { 0x55, 0x55, 0x55, 0x55, 6,	  7, 28, 0, 0, 1, 2, 3, 0x20, 1,
				    0xd,  0xb8, 0,    0,    0,	  0, 0,	 0, 0, 0, 0, 0, 0,    2 };
	struct dgram_hello hello = { .op = DGRAM_DATA, .qpn = 0xff010203 }, back;
	union dgram_addr four = addr_of("192.0.2.1", 1), six = addr_of("2001:db8::2", 1);
	static const u8 none[16];
	u8 out[DGRAM_HELLO_BYTES];

	(void)state;
	dgram_addr_gid(&four, hello.gid);
	assert_int_equal(dgram_hello_pack(&hello, out), sizeof(want));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(dgram_hello_unpack(out, sizeof(want), AF_INET, &back), sizeof(want));
	assert_memory_equal(back.gid, hello.gid, sizeof(back.gid));
	dgram_addr_gid(&six, hello.gid);
	hello.op = DGRAM_CTRL;
	hello.v6 = true;
	assert_int_equal(dgram_hello_pack(&hello, out), sizeof(want6));
	assert_memory_equal(out, want6, sizeof(want6));
	assert_int_equal(dgram_hello_unpack(out, sizeof(want6), AF_INET6, &back), sizeof(want6));
	assert_memory_equal(back.gid, hello.gid, sizeof(back.gid));
	/* an IPv6 GID does not fit the other form, which then says none */
	hello.v6 = false;
	assert_int_equal(dgram_hello_pack(&hello, out), sizeof(want));
	assert_int_equal(dgram_hello_unpack(out, sizeof(want), AF_INET, &back), sizeof(want));
	assert_memory_equal(back.gid, none, sizeof(none));
}

static void hello_unpack__refuses_each_wrong_field(void **state)
{
	struct dgram_hello hello = { .op = DGRAM_CTRL, .qpn = 0x123456 }, back;
	static const struct {
		u32 at;
		u8 value;
	} wrong[] = { { 0, 0 }, { 3, 0x54 }, { 4, 6 }, { 4, 0 }, { 5, 1 }, { 5, 255 }, { 6, 15 },
		      { 6, 28 } };
	u8 good[DGRAM_HELLO_BYTES], bad[DGRAM_HELLO_BYTES];
	u32 bytes = dgram_hello_pack(&hello, good);

	(void)state;
	assert_int_equal(dgram_hello_unpack(good, bytes, AF_INET, &back), bytes);
	assert_int_equal(back.op, DGRAM_CTRL);
	assert_int_equal(back.qpn, 0x123456);
	assert_int_equal(dgram_hello_unpack(good, bytes - 1, AF_INET, &back), -EBADMSG);
	assert_int_equal(dgram_hello_unpack(good, sizeof(good), AF_INET6, &back), -EBADMSG);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		memcpy(bad, good, sizeof(bad));
		bad[wrong[i].at] = wrong[i].value;
		assert_int_equal(dgram_hello_unpack(bad, sizeof(bad), AF_INET, &back), -EBADMSG);
	}
}

static void addr_take__refuses_short_and_foreign_ones(void **state)
{
	union dgram_addr four = addr_of("192.0.2.1", 1), six = addr_of("::1", 1), out;
	struct sockaddr other = { .sa_family = AF_UNIX };

	(void)state;
	assert_true(dgram_addr_take(&out, &four.sa, sizeof(four.in)));
	assert_true(dgram_addr_equal(&out, &four));
	assert_false(dgram_addr_equal(&out, &six));
	assert_true(dgram_addr_take(&out, &six.sa, sizeof(six.in6)));
	assert_false(dgram_addr_take(&out, &six.sa, sizeof(six.in)));
	assert_false(dgram_addr_take(&out, &four.sa, 1));
	assert_false(dgram_addr_take(&out, &other, sizeof(other)));
	assert_false(dgram_addr_take(&out, NULL, sizeof(four)));
}

static void addr_from_gid__is_the_address_of_that_gid(void **state)
{
	static const u8 gids[2][16] = { { [10] = 0xff, [11] = 0xff, 10, 1, 0, 2 },
					{ 0xfd, [15] = 1 } };
	u8 again[16];

	for (int i = 0; i < 2; i++) {
		union dgram_addr a = dgram_addr_from_gid(gids[i]);

		assert_int_equal(a.sa.sa_family, i == 0 ? AF_INET : AF_INET6);
		assert_int_equal(a.in.sin_port, 0);
		dgram_addr_gid(&a, again);
		assert_memory_equal(again, gids[i], sizeof(again));
	}
}

static void addr_unmapped__changes_only_mapped_addresses(void **state)
{
	union dgram_addr mapped = addr_of("::ffff:192.0.2.1", 9), four = addr_of("192.0.2.1", 9);
	union dgram_addr six = addr_of("2001:db8::2", 9), got = dgram_addr_unmapped(&mapped);

	(void)state;
	assert_true(dgram_addr_equal(&got, &four));
	got = dgram_addr_unmapped(&six);
	assert_true(dgram_addr_equal(&got, &six));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_pack__writes_the_bytes_of_rdma_core),
		cmocka_unit_test(header_unpack__gives_the_address_that_was_packed),
		cmocka_unit_test(header_unpack__refuses_what_is_no_header),
		cmocka_unit_test(hello_pack__writes_the_bytes_of_rdma_core),
		cmocka_unit_test(hello_unpack__refuses_each_wrong_field),
		cmocka_unit_test(addr_take__refuses_short_and_foreign_ones),
		cmocka_unit_test(addr_from_gid__is_the_address_of_that_gid),
		cmocka_unit_test(addr_unmapped__changes_only_mapped_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
