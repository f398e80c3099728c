/* header_test.c: the private-data header as annex A11 has it, and what is no such header. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cm/rdma/cma_priv.h"

static void set_v4(struct sockaddr_storage *out, const char *text, u16 port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, text, &sin.sin_addr), 1);
	cma_addr_copy(out, (const struct sockaddr *)&sin);
}

static void set_v6(struct sockaddr_storage *out, const char *text, u16 port)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET6, text, &sin6.sin6_addr), 1);
	cma_addr_copy(out, (const struct sockaddr *)&sin6);
}

/* The bytes of a request of 10.1.2.3:0x1234 to 10.4.5.6. */
static void cma_header_write__lays_out_ipv4(void **state)
{
	static const u8 wanted[CMA_HEADER] = { 0, 0x40, 0x12, 0x34, [16] = 10, 1, 2, 3,
					       [32] = 10, 4, 5, 6 };
	struct rdma_addr addr = { .pkey = 0 };
	u8 out[CMA_HEADER];

	set_v4(&addr.src_addr, "10.1.2.3", 0x1234);
	set_v4(&addr.dst_addr, "10.4.5.6", 7174);
	memset(out, 0xee, sizeof(out));
	cma_header_write(out, &addr);
	assert_memory_equal(out, wanted, sizeof(out));
}

/* The side that receives it has the addresses the other way round, and its own port. */
static void cma_header_read__turns_the_addresses(void **state)
{
	struct rdma_addr sent = { .pkey = 0 }, got = { .pkey = 0 };
	u8 bytes[CMA_HEADER];

	set_v6(&sent.src_addr, "fd00::1", 40000);
	set_v6(&sent.dst_addr, "fd00::2", 7174);
	cma_header_write(bytes, &sent);
	assert_int_equal(bytes[1], 0x60);
	assert_int_equal(cma_header_read(bytes, sizeof(bytes), 7174, &got), 0);
	assert_memory_equal(&got.src_addr, &sent.dst_addr, sizeof(got.src_addr));
	assert_memory_equal(&got.dst_addr, &sent.src_addr, sizeof(got.dst_addr));
}

static void cma_header_read__refuses_what_is_none(void **state)
{
	struct rdma_addr got = { .pkey = 77 };
	u8 bytes[CMA_HEADER] = { 0, 0x40 };

	assert_int_equal(cma_header_read(NULL, 0, 1, &got), -EINVAL);
	assert_int_equal(cma_header_read(bytes, CMA_HEADER - 1, 1, &got), -EINVAL);
	bytes[0] = 1;
	assert_int_equal(cma_header_read(bytes, CMA_HEADER, 1, &got), -EINVAL);
	bytes[0] = 0;
	for (u32 version = 0; version < 16; version++) {
		bytes[1] = (u8)(version << 4 | 0xf);
		assert_int_equal(cma_header_read(bytes, CMA_HEADER, 1, &got),
				 version == 4 || version == 6 ? 0 : -EINVAL);
	}
}

static void cma_service_id__is_space_and_port(void **state)
{
	assert_int_equal(be64toh(cma_service_id(RDMA_PS_TCP, 7174)), 0x01061c06);
	assert_int_equal(be64toh(cma_service_id(RDMA_PS_UDP, 1)), 0x01110001);
}

/* The ID of a port is in the id's port space, whatever the family; AF_IB names the ID itself. */
static void rdma_get_service_id__of_each_family(void **state)
{
	struct rdma_cm_id tcp = { .ps = RDMA_PS_TCP }, udp = { .ps = RDMA_PS_UDP };
	struct sockaddr_ib ib = { .sib_family = AF_IB, .sib_sid = htobe64(0x1000000000001234) };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(7174) };
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_port = htons(7174) };
	struct sockaddr unknown = { .sa_family = AF_UNIX };

	assert_int_equal(be64toh(rdma_get_service_id(&tcp, (void *)&sin)), 0x01061c06);
	assert_int_equal(be64toh(rdma_get_service_id(&udp, (void *)&sin6)), 0x01111c06);
	assert_int_equal(be64toh(rdma_get_service_id(&udp, (void *)&ib)), 0x1000000000001234);
	assert_int_equal(be64toh(rdma_get_service_id(&tcp, &unknown)), 0x01060000);
}

/* A listener at an address takes requests to it, and one at the wildcard all of its family. */
static bool compare_takes(const struct ib_cm_compare_data *c, const u8 *bytes)
{
	for (u32 i = 0; i < CMA_HEADER; i++)
		if ((bytes[i] & c->mask[i]) != (c->data[i] & c->mask[i]))
			return false;
	return true;
}

static void cma_header_compare__tells_addresses_apart(void **state)
{
	struct sockaddr_storage here, there, any4, any6;
	struct rdma_addr addr = { .pkey = 0 };
	struct ib_cm_compare_data c;
	u8 bytes[CMA_HEADER];

	set_v4(&here, "10.4.5.6", 1);
	set_v4(&there, "10.4.5.7", 1);
	set_v4(&any4, "0.0.0.0", 1);
	set_v6(&any6, "::", 1);
	set_v4(&addr.src_addr, "10.1.2.3", 2);
	addr.dst_addr = here;
	cma_header_write(bytes, &addr);
	cma_header_compare(cma_addr(&here), &c);
	assert_true(compare_takes(&c, bytes));
	cma_header_compare(cma_addr(&there), &c);
	assert_false(compare_takes(&c, bytes));
	cma_header_compare(cma_addr(&any4), &c);
	assert_true(compare_takes(&c, bytes));
	cma_header_compare(cma_addr(&any6), &c);
	assert_false(compare_takes(&c, bytes));
}

/* All 128 bits of an IPv6 address count: two servers of a host differ in the last ones. */
static void cma_header_compare__of_each_bit_of_ipv6(void **state)
{
	struct rdma_addr addr = { .pkey = 0 };
	struct ib_cm_compare_data c;
	u8 bytes[CMA_HEADER];

	set_v6(&addr.src_addr, "2001:db8::1", 2);
	set_v6(&addr.dst_addr, "2001:db8::1234:5678:9abc:def0", 1);
	cma_header_compare(cma_addr(&addr.dst_addr), &c);
	cma_header_write(bytes, &addr);
	assert_true(compare_takes(&c, bytes));
	for (u32 bit = 0; bit < 128; bit++) {
		bytes[20 + bit / 8] ^= (u8)(1 << bit % 8);
		assert_false(compare_takes(&c, bytes));
		bytes[20 + bit / 8] ^= (u8)(1 << bit % 8);
	}
}

/* A REQ names the partition, which is that of both ends. */
static void cma_af_ib_of_request__fills_both_ends(void **state)
{
	struct ib_sa_path_rec path = { .pkey = htobe16(0x8001), .flow_label = htobe32(0x12345) };
	struct sockaddr_ib at = { .sib_family = AF_IB }, ends[2];
	struct cma_id listen = { .busy = false };
	struct rdma_addr addr;

	memset(path.sgid.raw, 0x11, sizeof(path.sgid.raw));
	memset(path.dgid.raw, 0x22, sizeof(path.dgid.raw));
	cma_addr_copy(&listen.id.route.addr.src_addr, (const struct sockaddr *)&at);
	cma_af_ib_of_request(&listen, &path, &addr);
	ends[0] = cma_af_ib(&addr.src_addr);
	ends[1] = cma_af_ib(&addr.dst_addr);
	assert_memory_equal(&ends[0].sib_addr, &path.sgid, sizeof(path.sgid));
	assert_memory_equal(&ends[1].sib_addr, &path.dgid, sizeof(path.dgid));
	for (u32 i = 0; i < 2; i++) {
		assert_int_equal(ends[i].sib_pkey, path.pkey);
		assert_int_equal(ends[i].sib_flowinfo, path.flow_label);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cma_header_write__lays_out_ipv4),
		cmocka_unit_test(cma_header_read__turns_the_addresses),
		cmocka_unit_test(cma_header_read__refuses_what_is_none),
		cmocka_unit_test(cma_service_id__is_space_and_port),
		cmocka_unit_test(rdma_get_service_id__of_each_family),
		cmocka_unit_test(cma_header_compare__tells_addresses_apart),
		cmocka_unit_test(cma_header_compare__of_each_bit_of_ipv6),
		cmocka_unit_test(cma_af_ib_of_request__fills_both_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
