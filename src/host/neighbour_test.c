/* neighbour_test.c: this host's loopback interface, as the kernel tells of it; and a watch whose
 * descriptor becomes somebody else's. */
#include <errno.h>
#include <fcntl.h>
#include <net/if_arp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/neighbour.h"

enum { LO = 1 };

static const u8 loopback[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };
static const u8 foreign[16] = { [10] = 0xff, [11] = 0xff, [12] = 203, [14] = 113, [15] = 7 };

static void host_link_find__loopback(void **state)
{
	struct host_link l = { .ifindex = 77 };

	(void)state;
	assert_int_equal(host_link_find(1u << 30, &l), -ENODEV);
	assert_int_equal(l.ifindex, 77);
	assert_int_equal(host_link_find(LO, &l), 0);
	assert_int_equal(l.ifindex, LO);
	assert_int_equal(l.type, ARPHRD_LOOPBACK);
	assert_int_equal(l.vlan_id, HOST_NO_VLAN);
	assert_true(l.loopback);
	assert_true(l.no_arp);
}

static void host_address_find__loopback(void **state)
{
	u32 ifindex = 77;

	(void)state;
	assert_int_equal(host_address_find(foreign, 0, &ifindex), -EADDRNOTAVAIL);
	assert_int_equal(host_address_find(loopback, 1u << 30, &ifindex), -EADDRNOTAVAIL);
	assert_int_equal(ifindex, 77);
	assert_int_equal(host_address_find(loopback, 0, &ifindex), 0);
	assert_int_equal(ifindex, LO);
}

static void host_neighbour_find__nobody(void **state)
{
	struct host_neighbour n = { .ifindex = 77 };

	(void)state;
	assert_true(host_neighbour_find(LO, foreign, &n) < 0);
	assert_int_equal(n.ifindex, 77);
}

static void on_change(const struct host_change *c, void *context)
{
	(void)c;
	(void)context;
}

/* What is the application's now is neither read nor closed. */
static void host_watch__a_descriptor_of_somebody_else(void **state)
{
	struct host_watch w = { .fd = -1 };
	int ends[2];
	char byte;

	(void)state;
	assert_int_equal(host_watch_open(&w), 0);
	assert_true(host_watch_read(&w, on_change, NULL));
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(dup2(ends[0], w.fd), w.fd);
	close(ends[0]);
	ends[0] = w.fd;
	assert_false(host_watch_read(&w, on_change, NULL));
	assert_int_equal(w.fd, -1);
	host_watch_close(&w);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_link_find__loopback),
		cmocka_unit_test(host_address_find__loopback),
		cmocka_unit_test(host_neighbour_find__nobody),
		cmocka_unit_test(host_watch__a_descriptor_of_somebody_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
