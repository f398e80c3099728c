/* sysfs_host_test.c: the counters of a port below a host's /sys, each with a number of its own. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/fabric/sysfs.h"

#define COUNTERS "hosts/h1/sys/class/infiniband/ib1/ports/2/counters"

static const char *const errors[FABRIC_ERRORS] = {
	[FABRIC_ERR_SYMBOL] = "symbol_error",
	[FABRIC_ERR_LINK_RECOVERY] = "link_error_recovery",
	[FABRIC_ERR_LINK_DOWNED] = "link_downed",
	[FABRIC_ERR_RCV] = "port_rcv_errors",
	[FABRIC_ERR_RCV_PHYSICAL] = "port_rcv_remote_physical_errors",
	[FABRIC_ERR_RCV_SWITCH_RELAY] = "port_rcv_switch_relay_errors",
	[FABRIC_ERR_XMIT_DISCARDS] = "port_xmit_discards",
	[FABRIC_ERR_XMIT_CONSTRAINT] = "port_xmit_constraint_errors",
	[FABRIC_ERR_RCV_CONSTRAINT] = "port_rcv_constraint_errors",
	[FABRIC_ERR_LOCAL_INTEGRITY] = "local_link_integrity_errors",
	[FABRIC_ERR_BUFFER_OVERRUN] = "excessive_buffer_overrun_errors",
	[FABRIC_ERR_VL15_DROPPED] = "VL15_dropped",
	[FABRIC_ERR_XMIT_WAIT] = "port_xmit_wait",
};

static void expect(const struct folder *f, const char *name, u64 value)
{
	char path[128], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), COUNTERS "/%s", name);
	fd = openat(f->fd, path, O_RDONLY);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	assert_int_equal(strtoull(text, NULL, 10), value);
}

static void expect_all(const struct folder *f, const struct fabric_counts *n)
{
	expect(f, "port_xmit_data", n->xmit_bytes / 4);
	expect(f, "port_rcv_data", n->rcv_bytes / 4);
	expect(f, "port_xmit_packets", n->xmit_packets);
	expect(f, "port_rcv_packets", n->rcv_packets);
	expect(f, "unicast_xmit_packets", n->xmit_packets - n->mcast_xmit_packets);
	expect(f, "unicast_rcv_packets", n->rcv_packets - n->mcast_rcv_packets);
	expect(f, "multicast_xmit_packets", n->mcast_xmit_packets);
	expect(f, "multicast_rcv_packets", n->mcast_rcv_packets);
	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		expect(f, errors[i], n->errors[i]);
}

static void write_counts__each_has_its_file(void **state)
{
	struct fabric_counts before, now = { .xmit_bytes = 4000,
					     .rcv_bytes = 8000,
					     .xmit_packets = 300,
					     .rcv_packets = 400,
					     .mcast_xmit_packets = 50,
					     .mcast_rcv_packets = 60 };
	char path[] = "/tmp/anyverbs-sysfs-XXXXXX";
	u64 *const field[] = { &now.xmit_bytes,	 &now.rcv_bytes,	  &now.xmit_packets,
			       &now.rcv_packets, &now.mcast_xmit_packets, &now.mcast_rcv_packets };
	struct folder f;

	assert_non_null(mkdtemp(path));
	f.fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(f.fd >= 0);
	for (u32 i = 0; i < FABRIC_ERRORS; i++)
		now.errors[i] = 700 + i;
	assert_int_equal(folder_make(&f, "hosts/h1/sys/class/infiniband/ib1/ports/2"), 0);
	assert_int_equal(sysfs_host_write_counts(&f, "h1", 1, 2, NULL, &now), 0);
	expect_all(&f, &now);
	for (u32 i = 0; i < ARRAY_LEN(field) + FABRIC_ERRORS; i++) {
		before = now;
		if (i < ARRAY_LEN(field))
			*field[i] += 4;
		else
			now.errors[i - ARRAY_LEN(field)] += 4;
		assert_int_equal(sysfs_host_write_counts(&f, "h1", 1, 2, &before, &now), 0);
		expect_all(&f, &now);
	}
	folder_remove_tree(&f, "hosts");
	close(f.fd);
	rmdir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_counts__each_has_its_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
