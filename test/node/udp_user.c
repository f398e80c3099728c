/* udp_user.c: processes that own UDP sockets, in the test's own process.
 * In:    a node                        Out: sockets, datagrams, verdicts
 * Runs:  the test's thread             Locks: none
 */
#include "udp_user.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void user_begin(struct user *u)
{
	int n;

	harness_attach(&u->h);
	assert_int_equal(node_slot_take(u->h.node, &u->slot), 0);
	n = node_udp_sockets(u->h.node, 0, u->slot, &u->socket, 1);
	/* the port may be another program's for a moment */
	if (n == 0)
		fprintf(stderr, "LATE: the node has no UDP socket yet\n");
	if (n != 1)
		harness_print_addresses();
	assert_int_equal(n, 1);
}

void user_end(struct user *u)
{
	close(u->socket.fd);
	harness_detach(&u->h);
}

void node_udp_send(const struct user *u, u32 qpn, size_t size)
{
	struct sockaddr_storage to;
	socklen_t length = node_udp_address(u->socket.gid, u->socket.ifindex, &to);
	u8 packet[64] = { 0x64, 0, 0xff, 0xff, 0, (u8)(qpn >> 16), (u8)(qpn >> 8), (u8)qpn };
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(sendto(fd, packet, size, 0, (struct sockaddr *)&to, length), size);
	close(fd);
}

bool node_udp_came(int fd, size_t size)
{
	u8 packet[64];
	ssize_t n;

	assert_true(harness_readable(fd, HARNESS_PATIENCE_MS));
	n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
	return n == (ssize_t)size && recv(fd, packet, sizeof(packet), MSG_DONTWAIT) < 0 &&
	       errno == EAGAIN;
}

bool node_udp_silent(int fd)
{
	u8 byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

bool node_udp_steered(const struct user *users, int count, u32 nobody)
{
	node_udp_send(&users[0], nobody << NODE_INDEX_BITS | 1, UDP_BTH);
	for (int i = 0; i < count; i++)
		node_udp_send(&users[0], users[i].slot << NODE_INDEX_BITS | 1,
			      UDP_BTH + 1 + (size_t)i);
	for (int i = 0; i < count; i++)
		if (!node_udp_came(users[i].socket.fd, UDP_BTH + 1 + (size_t)i))
			return false;
	return true;
}
