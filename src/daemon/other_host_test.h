/* other_host_test.h: for tests: a daemon without a thread, with one address, and another host,
 * which is a socket of the test at an address of its own. */
#ifndef DAEMON_OTHER_HOST_TEST_H
#define DAEMON_OTHER_HOST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cm/message/message.h"
#include "daemon/daemon_priv.h"
#include "daemon/wills.h"
#include "daemon/qp1.h"
#include "node/udp_socket.h"

static struct daemon *d;
static u8 ours[16], theirs[16];
static int host; /* the other host's socket */

/* Addresses that no other process has. */
static inline void make_address(u8 gid[16], u8 last)
{
	u32 pid = (u32)getpid();
	u8 address[16] = { [10] = 0xff,	   [11] = 0xff,		 127, (u8)(100 + (pid >> 14 & 63)),
			   (u8)(pid >> 6), (u8)(pid << 2 | last) };

	memcpy(gid, address, 16);
}

static inline int other_host_setup(void **state)
{
	int err = 0;

	(void)state;
	d = calloc(1, sizeof(*d));
	list_init(&d->procs);
	list_init(&d->wills);
	list_init(&d->held);
	d->folder.fd = d->listener.fd = d->inner.fd = d->addresses.fd = d->capture_fd = -1;
	make_address(ours, 1);
	make_address(theirs, 2);
	if (loop_init(&d->loop) < 0 || slots_open(&d->slots, -1, 0) < 0 ||
	    daemon_udp_init(&d->udp, &d->loop) < 0)
		return -1;
	d->directory = directory_create(&d->directory_fd, &err);
	d->directory->devices[0].id = 1;
	memcpy(d->directory->devices[0].gids[1].gid, ours, 16);
	d->udp.to_qp1 = route_datagram;
	d->udp.to_qp1_arg = d;
	daemon_udp_look_begin(&d->udp);
	assert_true(daemon_udp_want(&d->udp, ours, 1));
	assert_true(daemon_udp_look_end(&d->udp));
	host = node_udp_socket_open(theirs);
	return host < 0 ? -1 : node_udp_socket_bind(host, theirs, 1);
}

static inline int other_host_teardown(void **state)
{
	(void)state;
	close(host);
	wills_clear(d);
	route_clear(d);
	daemon_udp_destroy(&d->udp);
	directory_unmap(d->directory);
	close(d->directory_fd);
	slots_close(&d->slots);
	loop_destroy(&d->loop);
	free(d);
	return 0;
}

/* A datagram from the other host. */
static inline struct node_mad make_datagram(const struct cm_msg *msg)
{
	struct node_mad m = { .sport = NODE_UDP_PORT };
	u8 mad[CM_MAD_BYTES];

	memcpy(m.sgid, theirs, 16);
	memcpy(m.dgid, ours, 16);
	msg_pack(msg, mad);
	qp1_pack(&m, 0, 1, mad);
	return m;
}

/* What has come to the other host, with a right ICRC; false: nothing in time. */
static inline bool other_host_receive(struct cm_msg *msg, int timeout_ms)
{
	struct pollfd p = { .fd = host, .events = POLLIN };
	struct node_mad m = { .sport = 0 };
	u32 sqpn;

	if (poll(&p, 1, timeout_ms) != 1)
		return false;
	assert_int_equal(node_udp_socket_read(host, m.payload, sizeof(m.payload), &m),
			 NODE_MAD_BYTES);
	assert_memory_equal(m.sgid, ours, 16);
	memcpy(m.dgid, theirs, 16);
	assert_true(qp1_judge(&m, &sqpn));
	assert_int_equal(sqpn, 1);
	assert_true(msg_unpack(msg, m.payload + QP1_MAD, CM_MAD_BYTES));
	return true;
}

#endif
