/* mcast_test.c: the MGIDs that IP groups have on InfiniBand, as RFC 4391 and Linux's RDMA CM make
 * them.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cm/rdma/cma_priv.h"

/* A group's MGID for an id of this port space and partition. */
static void judge(const char *group, enum rdma_port_space ps, u16 pkey, const char *want)
{
	struct cma_id id = { .id = { .ps = ps, .route.addr.pkey = pkey } };
	struct sockaddr_storage addr = { .ss_family = AF_INET };
	struct in6_addr expected;
	union ib_gid mgid;

	if (inet_pton(AF_INET, group, &((struct sockaddr_in *)&addr)->sin_addr) != 1) {
		addr.ss_family = AF_INET6;
		assert_int_equal(inet_pton(AF_INET6, group,
					   &((struct sockaddr_in6 *)&addr)->sin6_addr),
				 1);
	}
	assert_int_equal(inet_pton(AF_INET6, want, &expected), 1);
	cma_mcast_ib_gid(&id, (struct sockaddr *)&addr, &mgid);
	assert_memory_equal(&mgid, &expected, 16);
}

/* Full and limited members of a partition have one group. */
static void cma_mcast_ib_gid__of_a_group_and_a_partition(void **state)
{
	static const u16 members[][2] = { { 0xffff, 0x7fff }, { 0x8001, 0x0001 } };
	static const char *const want[][4] = {
		{ "ff12:401b:ffff::f01:203", "ff12:4001:ffff::f01:203", "ff12:601b:ffff::9",
		  "ff12:6001:ffff::9" },
		{ "ff12:401b:8001::f01:203", "ff12:4001:8001::f01:203", "ff12:601b:8001::9",
		  "ff12:6001:8001::9" },
	};

	(void)state;
	for (u32 i = 0; i < 4; i++) {
		u16 pkey = members[i / 2][i % 2];
		const char *const *mgid = want[i / 2];

		judge("239.1.2.3", RDMA_PS_IPOIB, pkey, mgid[0]);
		judge("239.1.2.3", RDMA_PS_UDP, pkey, mgid[1]);
		judge("ff02::9", RDMA_PS_IPOIB, pkey, mgid[2]);
		judge("ff02::9", RDMA_PS_UDP, pkey, mgid[3]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cma_mcast_ib_gid__of_a_group_and_a_partition),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
