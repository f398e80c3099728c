/* af_ib_test.c: addresses of AF_IB on RoCE, as far as Linux allows them there: the wildcard and
 * port spaces in service IDs, but no device and no path. test/node/connections_test.py has
 * InfiniBand.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include <infiniband/ib.h>

#include "cm.h"

enum { PORT = 7301 };

static struct sockaddr *gid_of(const char *text, uint64_t sid, uint64_t mask)
{
	static struct sockaddr_ib sib;

	sib = (struct sockaddr_ib){ .sib_family = AF_IB, .sib_pkey = htobe16(0xffff) };
	sib.sib_sid = htobe64(sid);
	sib.sib_sid_mask = htobe64(mask);
	assert_int_equal(inet_pton(AF_INET6, text, &sib.sib_addr), 1);
	return (struct sockaddr *)&sib;
}

static struct rdma_cm_id *make_id(enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(channel, &id, NULL, ps), 0);
	return id;
}

static uint64_t sid_of(struct rdma_cm_id *id)
{
	struct sockaddr_ib sib;

	memcpy(&sib, rdma_get_local_addr(id), sizeof(sib));
	assert_int_equal(sib.sib_family, AF_IB);
	assert_true(be64toh(sib.sib_sid_mask) == UINT64_MAX);
	return be64toh(sib.sib_sid);
}

static void rdma_bind_addr__completes_the_service_id(void **state)
{
	static const struct {
		enum rdma_port_space ps;
		uint64_t sid, mask, space;
		int port; /* 0: any */
	} rows[] = {
		{ RDMA_PS_TCP, 0, 0, RDMA_IB_IP_PS_TCP, 0 },
		{ RDMA_PS_UDP, 0, 0, RDMA_IB_IP_PS_UDP, 0 },
		{ RDMA_PS_IB, 0, 0, RDMA_IB_PS_IB, 0 },
		{ RDMA_PS_IB, RDMA_IB_IP_PS_TCP, RDMA_IB_IP_PS_MASK, RDMA_IB_IP_PS_TCP, 0 },
		{ RDMA_PS_IB, RDMA_IB_IP_PS_UDP | PORT, UINT64_MAX, RDMA_IB_IP_PS_UDP, PORT },
		{ RDMA_PS_TCP, PORT, RDMA_IB_IP_PORT_MASK, RDMA_IB_IP_PS_TCP, PORT },
		{ RDMA_PS_TCP, RDMA_IB_IP_PS_TCP | PORT, RDMA_IB_IP_PS_MASK, RDMA_IB_IP_PS_TCP, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rdma_cm_id *id = make_id(rows[i].ps);

		assert_int_equal(rdma_bind_addr(id, gid_of("::", rows[i].sid, rows[i].mask)), 0);
		assert_true((sid_of(id) & RDMA_IB_IP_PS_MASK) == rows[i].space);
		assert_int_not_equal(be16toh(rdma_get_src_port(id)), 0);
		if (rows[i].port != 0)
			assert_int_equal(be16toh(rdma_get_src_port(id)), rows[i].port);
		assert_null(id->verbs);
		assert_int_equal(rdma_listen(id, 1), 0);
		rdma_destroy_id(id);
	}
}

static void rdma_bind_addr__refuses_foreign_port_spaces(void **state)
{
	static const struct {
		enum rdma_port_space ps;
		uint64_t sid;
	} rows[] = { { RDMA_PS_TCP, RDMA_IB_IP_PS_UDP }, { RDMA_PS_UDP, RDMA_IB_IP_PS_TCP },
		     { RDMA_PS_TCP, RDMA_IB_PS_IB },	 { RDMA_PS_UDP, RDMA_IB_PS_IB },
		     { RDMA_PS_IB, 0x20000 },		 { RDMA_PS_IB, 1ull << 40 },
		     { RDMA_PS_IPOIB, 0x20000 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rdma_cm_id *id = make_id(rows[i].ps);

		fails(rdma_bind_addr(id, gid_of("::", rows[i].sid, RDMA_IB_IP_PS_MASK)),
		      EPROTONOSUPPORT);
		/* nothing of it is left */
		assert_int_equal(rdma_get_local_addr(id)->sa_family, 0);
		assert_int_equal(rdma_bind_addr(id, local(0)), 0);
		rdma_destroy_id(id);
	}
}

/* The wildcard of AF_IB is in everybody's way, as that of IPv6. */
static void rdma_bind_addr__shares_port_numbers_with_ip(void **state)
{
	struct rdma_cm_id *ib = make_id(RDMA_PS_IB), *ip = make_id(RDMA_PS_TCP);
	uint64_t sid = RDMA_IB_IP_PS_TCP | PORT;

	assert_int_equal(rdma_bind_addr(ib, gid_of("::", sid, UINT64_MAX)), 0);
	fails(rdma_bind_addr(ip, local(PORT)), EADDRINUSE);
	rdma_destroy_id(ib);
	assert_int_equal(rdma_bind_addr(ip, local(PORT)), 0);
	ib = make_id(RDMA_PS_TCP);
	fails(rdma_bind_addr(ib, gid_of("::", sid, UINT64_MAX)), EADDRINUSE);
	rdma_destroy_id(ib);
	rdma_destroy_id(ip);
}

static void af_ib__has_no_device_of_roce(void **state)
{
	struct rdma_cm_id *id = make_id(RDMA_PS_TCP), *bound = make_id(RDMA_PS_TCP);
	struct sockaddr *other;
	union ibv_gid gid;
	char text[INET6_ADDRSTRLEN];

	assert_int_equal(rdma_bind_addr(bound, address_of("roce0", 0)), 0);
	assert_int_equal(ibv_query_gid(bound->verbs, 1, 0, &gid), 0);
	inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
	fails(rdma_bind_addr(id, gid_of(text, 0, 0)), ENODEV);
	fails(rdma_bind_addr(id, gid_of("fe80::77", 0, 0)), ENODEV);
	/* the families differ */
	fails(rdma_resolve_addr(bound, NULL, gid_of(text, 0, 0), 1000), EINVAL);
	/* another subnet, another partition */
	fails(rdma_resolve_addr(id, NULL, gid_of("fec0::1", 0, 0), 1000), ENODEV);
	other = gid_of(text, 0, 0);
	((struct sockaddr_ib *)other)->sib_pkey = htobe16(0x8001);
	fails(rdma_resolve_addr(id, NULL, other, 1000), ENODEV);
	/* the port leads there, but no path does */
	assert_int_equal(rdma_resolve_addr(id, NULL, gid_of(text, 0, 0), 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	fails(rdma_resolve_route(id, 1000), ENODEV);
	rdma_destroy_id(id);
	rdma_destroy_id(bound);
}

static void rdma_join_multicast__of_a_gid_on_roce(void **state)
{
	struct rdma_cm_id *id = make_id(RDMA_PS_UDP);

	assert_int_equal(rdma_bind_addr(id, address_of("roce0", 0)), 0);
	fails(rdma_join_multicast(id, gid_of("ff12:a01b::1", 0, 0), NULL), EINVAL);
	fails(rdma_leave_multicast(id, gid_of("ff12:a01b::1", 0, 0)), EADDRNOTAVAIL);
	rdma_destroy_id(id);
}

static void rdma_getaddrinfo__reads_gids(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST | RAI_FAMILY,
				       .ai_family = AF_IB,
				       .ai_port_space = RDMA_PS_TCP }, *res;
	struct sockaddr_ib sib;

	assert_int_equal(rdma_getaddrinfo("fe80::12", "7471", &hints, &res), 0);
	assert_int_equal(res->ai_family, AF_IB);
	assert_int_equal(res->ai_dst_len, sizeof(sib));
	memcpy(&sib, res->ai_dst_addr, sizeof(sib));
	assert_int_equal(sib.sib_addr.sib_raw[15], 0x12);
	assert_int_equal(be16toh(sib.sib_pkey), 0xffff);
	assert_true(be64toh(sib.sib_sid) == (RDMA_IB_IP_PS_TCP | 7471));
	assert_true(be64toh(sib.sib_sid_mask) == UINT64_MAX);
	rdma_freeaddrinfo(res);
	hints.ai_flags |= RAI_PASSIVE;
	assert_int_equal(rdma_getaddrinfo(NULL, "7471", &hints, &res), 0);
	memcpy(&sib, res->ai_src_addr, sizeof(sib));
	assert_int_equal(sib.sib_family, AF_IB);
	assert_true(ib_addr_any(&sib.sib_addr));
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_getaddrinfo("192.0.2.1", NULL, &hints, &res), EAI_ADDRFAMILY);
	hints.ai_flags = RAI_FAMILY; /* a name: an address of IP, for nobody resolves GIDs */
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res), 0);
	assert_int_equal(res->ai_family, AF_INET);
	rdma_freeaddrinfo(res);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rdma_bind_addr__completes_the_service_id),
		TEST(rdma_bind_addr__refuses_foreign_port_spaces),
		TEST(rdma_bind_addr__shares_port_numbers_with_ip),
		TEST(af_ib__has_no_device_of_roce),
		TEST(rdma_join_multicast__of_a_gid_on_roce),
		TEST(rdma_getaddrinfo__reads_gids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
