/* udp_test.c: the UDP sockets that the node hands out: who gets which datagram.
 * In:    a node of its own for each test, on a loopback address of its own
 * Out:   verdicts
 * Runs:  one thread                    Locks: none
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <unistd.h>

#include "udp_user.h"

static void node_udp_sockets__slots_get_their_own(void **state)
{
	struct user users[3];

	for (int i = 0; i < 3; i++)
		user_begin(&users[i]);
	for (int i = 0; i < 3; i++) {
		node_udp_send(&users[0], users[i].slot << NODE_INDEX_BITS | 77,
			      UDP_BTH + (size_t)i);
		for (int k = 0; k < 3; k++)
			assert_true(i == k ? node_udp_came(users[k].socket.fd, UDP_BTH + (size_t)i)
					   : node_udp_silent(users[k].socket.fd));
	}
	for (int i = 0; i < 3; i++)
		user_end(&users[i]);
}

static void node_udp_sockets__strange_ones_go_to_the_node(void **state)
{
	struct user user;

	user_begin(&user);
	node_udp_send(&user, 1, UDP_BTH);
	node_udp_send(&user, 0xffffff, UDP_BTH);
	node_udp_send(&user, (user.slot ^ 3) << NODE_INDEX_BITS, UDP_BTH);
	/* ends inside the queue pair number */
	node_udp_send(&user, user.slot << NODE_INDEX_BITS, 7);
	node_udp_send(&user, user.slot << NODE_INDEX_BITS, 0);
	assert_true(node_udp_silent(user.socket.fd));
	node_udp_send(&user, user.slot << NODE_INDEX_BITS, 8);
	assert_true(node_udp_came(user.socket.fd, 8));
	user_end(&user);
}

static void node_udp_sockets__two_slots_of_one_process(void **state)
{
	struct user user;
	struct node_socket other;
	u32 slot;

	user_begin(&user);
	assert_int_equal(node_slot_take(user.h.node, &slot), 0);
	assert_int_equal(node_udp_sockets(user.h.node, 0, slot, &other, 1), 1);
	assert_true(other.id != user.socket.id);
	node_udp_send(&user, slot << NODE_INDEX_BITS | 5, UDP_BTH);
	assert_true(node_udp_silent(user.socket.fd));
	assert_true(node_udp_came(other.fd, UDP_BTH));
	close(other.fd);
	user_end(&user);
}

static void node_udp_sockets__the_same_when_asked_again(void **state)
{
	struct user user;
	struct node_socket again[NODE_GIDS];

	user_begin(&user);
	assert_int_equal(node_udp_sockets(user.h.node, 0, user.slot, again, NODE_GIDS), 1);
	assert_true(again[0].id == user.socket.id);
	assert_true(again[0].fd != user.socket.fd);
	assert_int_equal(again[0].gid_index, 1);
	close(again[0].fd);
	user_end(&user);
}

static void node_udp_sockets__refuses_what_is_not_the_askers(void **state)
{
	struct user user, other;
	struct node_socket s;
	int before;

	user_begin(&user);
	user_begin(&other);
	before = count_fds();
	assert_int_equal(node_udp_sockets(user.h.node, 0, other.slot, &s, 1), -ENOENT);
	assert_int_equal(node_udp_sockets(user.h.node, 0, 0, &s, 1), -ENOENT);
	assert_int_equal(node_udp_sockets(user.h.node, 0, NODE_SLOTS, &s, 1), -ENOENT);
	assert_int_equal(node_udp_sockets(user.h.node, 0, user.slot, &s, 0), 0);
	assert_int_equal(count_fds(), before);
	user_end(&other);
	user_end(&user);
}

static int node_udp_option(int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	assert_int_equal(getsockopt(fd, level, name, &value, &length), 0);
	return value;
}

static void node_udp_sockets__options(void **state)
{
	struct user user;
	int fd;

	user_begin(&user);
	fd = user.socket.fd;
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(node_udp_option(fd, IPPROTO_IP, IP_MTU_DISCOVER), IP_PMTUDISC_PROBE);
	assert_int_equal(node_udp_option(fd, IPPROTO_IP, IP_PKTINFO), 1);
	assert_int_equal(node_udp_option(fd, IPPROTO_IP, IP_RECVTOS), 1);
	assert_int_equal(node_udp_option(fd, IPPROTO_IP, IP_RECVTTL), 1);
	user_end(&user);
}

/* What was meant for a dead owner does not reach the next one. */
static void udp_member__is_emptied_between_owners(void **state)
{
	struct user first, second;
	u64 id;

	user_begin(&first);
	id = first.socket.id;
	node_udp_send(&first, first.slot << NODE_INDEX_BITS, UDP_BTH);
	user_end(&first);
	while (harness_status().attached > 0)
		usleep(1000);
	user_begin(&second);
	assert_true(second.socket.id == id);
	assert_int_not_equal(second.slot, first.slot);
	assert_true(node_udp_silent(second.socket.fd));
	node_udp_send(&second, first.slot << NODE_INDEX_BITS, UDP_BTH);
	assert_true(node_udp_silent(second.socket.fd));
	node_udp_send(&second, second.slot << NODE_INDEX_BITS, UDP_BTH);
	assert_true(node_udp_came(second.socket.fd, UDP_BTH));
	user_end(&second);
}

static void mcast_send(const u8 group[16], u32 ifindex, size_t size)
{
	struct sockaddr_storage to;
	u32 v4 = node_mcast_v4(group);
	u8 gid[16] = { [10] = 0xff, [11] = 0xff }, packet[64] = { 0x64 };
	struct ip_mreqn mreq = { .imr_ifindex = (int)ifindex };
	socklen_t length;
	int fd;

	memcpy(gid + 12, &v4, 4);
	length = node_udp_address(gid, ifindex, &to);
	fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &mreq, sizeof(mreq)), 0);
	assert_int_equal(sendto(fd, packet, size, 0, (struct sockaddr *)&to, length), size);
	close(fd);
}

static void node_mcast_socket__every_socket_gets_its_groups_only(void **state)
{
	static const u8 groups[2][16] = {
		{ 0xff, 0x0e, [10] = 0xff, [11] = 0xff, 239, 77, 1, 2 },
		{ [10] = 0xff, [11] = 0xff, 239, 77, 1, 3 },
	};
	struct node_gid port = { .ifindex = 1 };
	int first[2], second[2];

	for (int i = 0; i < 2; i++) {
		first[i] = node_mcast_socket(groups[i], &port);
		second[i] = node_mcast_socket(groups[i], &port);
		assert_true(first[i] >= 0 && second[i] >= 0);
	}
	for (int i = 0; i < 2; i++) {
		mcast_send(groups[i], 1, 20 + (size_t)i);
		assert_true(node_udp_came(first[i], 20 + (size_t)i));
		assert_true(node_udp_came(second[i], 20 + (size_t)i));
	}
	for (int i = 0; i < 2; i++) {
		assert_true(node_udp_silent(first[i]) && node_udp_silent(second[i]));
		close(first[i]);
		close(second[i]);
	}
}

static void node_mcast_socket__refuses_what_is_no_group(void **state)
{
	static const u8 unicast[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 };
	static const u8 group[16] = { 0xff, 0x0e, [15] = 1 };
	struct node_gid port = { .ifindex = 1 }, nowhere = { .ifindex = 0 };
	int before = count_fds();

	assert_int_equal(node_mcast_socket(unicast, &port), -EINVAL);
	assert_int_equal(node_mcast_socket(group, &nowhere), -EINVAL);
	port.ifindex = 999999;
	assert_true(node_mcast_socket(group, &port) < 0);
	assert_int_equal(count_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)
		TEST(node_udp_sockets__slots_get_their_own),
		TEST(node_udp_sockets__strange_ones_go_to_the_node),
		TEST(node_udp_sockets__two_slots_of_one_process),
		TEST(node_udp_sockets__the_same_when_asked_again),
		TEST(node_udp_sockets__refuses_what_is_not_the_askers),
		TEST(node_udp_sockets__options),
		TEST(udp_member__is_emptied_between_owners),
		TEST(node_mcast_socket__every_socket_gets_its_groups_only),
		TEST(node_mcast_socket__refuses_what_is_no_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
