/* udp_socket_test.c: what the sockets take.
 * In:    datagrams of this test's own       Out: verdicts
 * Runs:  one thread                         Locks: none
 */
#include "node/udp_socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#endif

/* Linux' rxe and adapters send RoCEv2 over IPv6 without a UDP checksum: the ICRC is there. */
static void udp_socket_open__takes_ipv6_without_checksum(void **state)
{
	static const u8 loopback[16] = { [15] = 1 };
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t length = sizeof(at);
	int one = 1, out, fd = node_udp_socket_open(loopback);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char word[8];

	if (fd == -EAFNOSUPPORT)
		skip();
	assert_true(fd >= 0);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 && errno == EADDRNOTAVAIL)
		skip(); /* a host without IPv6 */
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	out = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(out >= 0);
	assert_int_equal(setsockopt(out, IPPROTO_UDP, UDP_NO_CHECK6_TX, &one, sizeof(one)), 0);
	assert_int_equal(sendto(out, "roce", 4, 0, (struct sockaddr *)&at, sizeof(at)), 4);
	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(recv(fd, word, sizeof(word), 0), 4);
	close(out);
	close(fd);
}

/* What nobody paces: UC with 8 MiB over Linux' rxe, while this process does not run. */
static void udp_socket_open__holds_8_mib_with_privilege(void **state)
{
	static const u8 loopback[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 1 };
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t length = sizeof(at), size = sizeof(int);
	int room = 0, out, fd = node_udp_socket_open(loopback);
	static char packet[4096 + 44];

	assert_true(fd >= 0);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &size), 0);
	if (room < 32 << 20) { /* no privilege, and the system's limit is lower */
		close(fd);
		skip();
	}
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(out >= 0);
	for (int i = 0; i < 2048; i++)
		assert_int_equal(sendto(out, packet, sizeof(packet), 0, (struct sockaddr *)&at,
					sizeof(at)),
				 sizeof(packet));
	assert_int_equal(node_udp_socket_drain(fd, 4096), 2048);
	close(out);
	close(fd);
}

static void udp_socket_lost__counts_what_found_no_room(void **state)
{
	static const u8 loopback[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 1 };
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int out, little = 1, fd = node_udp_socket_open(loopback);
	socklen_t length = sizeof(at);
	char packet[1000] = { 0 };
	u32 kept;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(out >= 0);
	assert_int_equal(node_udp_socket_lost(fd), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(sendto(out, packet, sizeof(packet), 0, (struct sockaddr *)&at,
					sizeof(at)),
				 sizeof(packet));
	kept = node_udp_socket_drain(fd, 1000);
	assert_in_range(kept, 1, 99);
	assert_int_equal(node_udp_socket_lost(fd), 100 - kept);
	close(out);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(udp_socket_open__takes_ipv6_without_checksum),
		cmocka_unit_test(udp_socket_open__holds_8_mib_with_privilege),
		cmocka_unit_test(udp_socket_lost__counts_what_found_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
