/* low_ports_test.c: a program binds a port of the RDMA CM that is a privileged one of IP only where
 * its sockets may: in every port space, by rsockets, and as the source of a connection.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <infiniband/ib.h>
#include <rdma/rsocket.h>

#include "cm.h"

enum { LOW = 777 };

static struct __user_cap_data_struct kept[2];

static void give_away(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct less[2];

	assert_int_equal(syscall(SYS_capget, &head, kept), 0);
	memcpy(less, kept, sizeof(less));
	less[0].effective &= ~(1u << CAP_NET_BIND_SERVICE);
	assert_int_equal(syscall(SYS_capset, &head, less), 0);
}

static void take_back(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	assert_int_equal(syscall(SYS_capset, &head, kept), 0);
}

static struct sockaddr *any_address(void)
{
	static struct sockaddr_in sin;

	sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(LOW) };
	return (struct sockaddr *)&sin;
}

/* What the kernel says of a socket: 0 or an errno. */
static int of_socket(void)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	int err = bind(s, any_address(), sizeof(struct sockaddr_in)) == 0 ? 0 : errno;

	close(s);
	return err == EADDRINUSE ? 0 : err;
}

static int of_id(enum rdma_port_space ps, struct sockaddr *addr)
{
	struct rdma_cm_id *id;
	int err;

	assert_int_equal(rdma_create_id(channel, &id, NULL, ps), 0);
	err = rdma_bind_addr(id, addr) == 0 ? 0 : errno;
	assert_int_equal(rdma_destroy_id(id), 0);
	return err;
}

static int of_source(void)
{
	struct rdma_cm_id *id;
	int err;

	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	err = rdma_resolve_addr(id, local(LOW), local(1), 2000) == 0 ? 0 : errno;
	if (err == 0)
		expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	assert_int_equal(rdma_destroy_id(id), 0);
	return err;
}

static int of_rsocket(int type)
{
	int s = rsocket(AF_INET, type, 0);
	int err = rbind(s, any_address(), sizeof(struct sockaddr_in)) == 0 ? 0 : errno;

	rclose(s);
	return err;
}

static struct sockaddr *ib_address(void)
{
	static struct sockaddr_ib sib;

	sib = (struct sockaddr_ib){ .sib_family = AF_IB,
				    .sib_sid = htobe64((uint64_t)RDMA_PS_TCP << 16 | LOW),
				    .sib_sid_mask = ~0ull };
	return (struct sockaddr *)&sib;
}

static void check_all(int want)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB,
						       RDMA_PS_IPOIB };

	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
		assert_int_equal(of_id(spaces[i], any_address()), want);
	assert_int_equal(of_id(RDMA_PS_TCP, ib_address()), want);
	assert_int_equal(of_source(), want);
	assert_int_equal(of_rsocket(SOCK_STREAM), want);
	assert_int_equal(of_rsocket(SOCK_DGRAM), want);
}

static void low_port__takes_the_right_that_sockets_take(void **state)
{
	(void)state;
	give_away();
	check_all(of_socket());
	take_back();
}

static void low_port__is_there_for_who_has_it(void **state)
{
	(void)state;
	check_all(of_socket());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(low_port__takes_the_right_that_sockets_take, begin,
						end),
		cmocka_unit_test_setup_teardown(low_port__is_there_for_who_has_it, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
