/* lanes_test.c: how batches leave: from which port, with which label, and what if the kernel
 * does not join datagrams. */
#include "path/udp/test_support/world.h"

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/process_test.h"
#include "path/udp/kernel_test.h"
#include "path/udp/udp_priv.h"

#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* ---- in the kernel's place ---- */

enum { VANISH = 1 };

/* What becomes of packets joined for UDP_SEGMENT, and of others: 0 they go, else this errno; of
 * those that are joined VANISH is none. */
static int joined_fate, single_fate;
static u32 joined_calls, many_calls;

static bool is_joined(const struct msghdr *msg)
{
	const u8 *at = msg->msg_control;
	const struct cmsghdr *m = (const void *)at;

	for (; at != NULL && at < (const u8 *)msg->msg_control + msg->msg_controllen;
	     at += CMSG_ALIGN(m->cmsg_len)) {
		m = (const void *)at;
		if (m->cmsg_level == SOL_UDP && m->cmsg_type == UDP_SEGMENT)
			return true;
	}
	return false;
}

static bool kernel_answers(long number, const long a[6], long *result)
{
	const struct msghdr *msg = (const void *)(uintptr_t)a[1];
	bool joined = number == SYS_sendmsg && is_joined(msg);
	int fate = joined ? joined_fate : single_fate;

	if (number != SYS_sendmmsg && number != SYS_sendmsg)
		return false;
	many_calls += number == SYS_sendmmsg;
	joined_calls += joined;
	*result = joined && fate == VANISH ? 1 : -1;
	errno = fate;
	return fate != 0;
}

/* ---- without UDP_SEGMENT ---- */

static void send_equal(struct path_dest *d, u32 first, u32 count)
{
	for (u32 i = 0; i < count; i++)
		assert_int_equal(send_one(&side[0], d, first + i, 1024), 0);
	side[0].path->ops->flush(d);
}

/* An interface that cannot compute checksums, a kernel or a sandbox that does not know it. */
static void joined__refused_go_one_by_one(void **state)
{
	static const int fates[] = { EIO, EINVAL, EOPNOTSUPP };

	for (u32 i = 0; i < ARRAY_LEN(fates); i++) {
		struct path_dest *d = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17),
					      (u16)(0xc000 + i));

		joined_fate = fates[i];
		joined_calls = many_calls = 0;
		send_equal(d, 60 * i, 20);
		receive(&side[1], 60 * i + 20);
		send_equal(d, 60 * i + 20, 40);
		receive(&side[1], 60 * i + 60);
		joined_fate = 0;
		/* asked once, and no more */
		assert_int_equal(joined_calls, 1);
		assert_in_range(many_calls, 4, 5);
	}
	for (u32 i = 0; i < side[1].count; i++)
		check_packet(&side[1], i, i, 1024);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
	assert_int_equal(side[0].counters[COUNT_TX_FAILED], 0);
	assert_int_equal(side[0].counters[COUNT_TX_UNBATCHED], ARRAY_LEN(fates));
}

static void joined__that_vanish_go_one_by_one(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	joined_fate = VANISH;
	send_equal(d, 0, 20);
	receive(&side[1], 0);
	side[0].path->ops->batches_lost(d);
	send_equal(d, 0, 20);
	receive(&side[1], 20);
	joined_fate = 0;
	for (u32 i = 0; i < 20; i++)
		check_packet(&side[1], i, i, 1024);
	assert_int_equal(side[0].counters[COUNT_TX_UNBATCHED], 1);
}

/* The kernel refuses both: that is not the fault of having been joined. */
static void joined__too_long_for_the_way(void **state)
{
	struct path_dest *d = dest_to(&side[0], &side[1], side_qpn_of(SLOT_B, 17));

	joined_fate = EINVAL;
	single_fate = EMSGSIZE;
	send_equal(d, 0, 20);
	joined_fate = single_fate = 0;
	assert_int_equal(side[0].counters[COUNT_TX_TOO_LONG], 20);
	assert_int_equal(side[0].counters[COUNT_TX_UNBATCHED], 0);
	send_equal(d, 0, 20);
	receive(&side[1], 20);
}

/* ---- IPv6, in a network of its own ---- */

/* The traffic class and flow label of a packet to fd00::9, by a bare socket there. */
static u32 label_seen(u32 flow_label)
{
	struct path_av av = { .hop_limit = 64, .flow_label = flow_label };
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(NODE_UDP_PORT) };
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), one = 1;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	u8 data[64], control[64] __attribute__((aligned(8)));
	struct iovec iov = { data, sizeof(data) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct path_dest *d;
	u32 word = 0;

	inet_pton(AF_INET6, "fd00::9", &at.sin6_addr);
	memcpy(av.dgid, &at.sin6_addr, 16);
	memcpy(av.sgid, side[0].gid, 16);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    setsockopt(fd, IPPROTO_IPV6, IPV6_FLOWINFO, &one, sizeof(one)) != 0)
		return UINT32_MAX;
	d = side[0].path->ops->dest_get(side[0].path, &av, side_qpn_of(SLOT_B, 17));
	for (int tries = 0; tries < 50 && p.revents == 0; tries++) {
		send_one(&side[0], d, 1, 8);
		side[0].path->ops->flush(d);
		poll(&p, 1, 200);
	}
	if (recvmsg(fd, &msg, MSG_DONTWAIT) > 0 && CMSG_FIRSTHDR(&msg) != NULL)
		memcpy(&word, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(word));
	close(fd);
	return ntohl(word);
}

/* In a child: exits with 0, 77 (not possible here), or another number. */
static void label_child(void)
{
	struct udp_config cfg = { .node = &nodes[0], .counters = side[0].counters };
	int err;

	if ((unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ||
	    system("ip link set lo up 2>/dev/null && ip addr add fd00::2/128 dev lo nodad && "
		   "ip addr add fd00::9/128 dev lo nodad") != 0)
		_exit(77);
	node_fd[0] = -1;
	memset(&side[0], 0, sizeof(side[0]));
	inet_pton(AF_INET6, "fd00::2", side[0].gid);
	side[0].udp = udp_create(&cfg, &err);
	side[0].path = udp_path(side[0].udp);
	if (udp_slot_own(side[0].udp, SLOT_A) != 0)
		_exit(1);
	if (label_seen(0x12345) != 0x12345)
		_exit(2);
	_exit(label_seen(0xfffff) == 0xfffff ? 0 : 3);
}

static void label__is_in_the_ipv6_header(void **state)
{
	pid_t child = fork();
	int verdict;

	if (child == 0)
		label_child();
	verdict = child_verdict(child);
	if (verdict == 77) {
		print_message("SKIPPED: no network namespace to be had\n");
		skip();
	}
	assert_int_equal(verdict, 0);
}

/* ---- lanes ---- */

/* A bare socket at another address of this host, from last byte and port; with SO_REUSEPORT not
 * set. */
static int bare_socket(u8 last, u16 port, u8 gid[16])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	side_gid(gid, last);
	memcpy(&at.sin_addr, gid + 12, 4);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* The source port of the next datagram. */
static u16 bare_sport(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	u8 data[64];

	assert_int_equal(poll(&p, 1, 1000), 1);
	assert_true(recvfrom(fd, data, sizeof(data), 0, (struct sockaddr *)&from, &length) > 0);
	assert_memory_equal(&from.sin_addr, side[0].gid + 12, 4);
	return ntohs(from.sin_port);
}

/* The port that a flow leaves from which should have `sport`. */
static u16 lane_port(int fd, const u8 gid[16], u16 sport)
{
	struct path_dest *d = dest_by(&side[0], gid, side_qpn_of(SLOT_B, 17), sport);

	assert_int_equal(send_one(&side[0], d, 1, 8), 0);
	side[0].path->ops->flush(d);
	side[0].path->ops->dest_put(d);
	return bare_sport(fd);
}

static void lane__leaves_from_its_port(void **state)
{
	u8 gid[16], other[16];
	int fd = bare_socket(9, NODE_UDP_PORT, gid), more;

	assert_int_equal(lane_port(fd, gid, 0), NODE_UDP_PORT);
	assert_int_equal(lane_port(fd, gid, 0xe341), 0xe341);
	assert_int_equal(lane_port(fd, gid, 0xc007), 0xc007);
	/* in the lane of the first one */
	assert_int_equal(lane_port(fd, gid, 0xc001), 0xe341);
	more = bare_socket(10, NODE_UDP_PORT, other);
	assert_int_equal(lane_port(more, other, 0xf001), 0xe341);
	close(more);
	close(fd);
}

/* Whoever receives judges the ICRC, which covers the port. */
static void lane__has_a_right_icrc(void **state)
{
	for (u32 i = 0; i < 32; i++) {
		struct path_dest *d = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17),
					      (u16)(0xc100 + i));

		for (u32 k = 0; k < 4; k++)
			assert_int_equal(send_one(&side[0], d, 4 * i + k, 1024), 0);
		side[0].path->ops->flush(d);
		receive(&side[1], 4 * i + 4);
	}
	for (u32 i = 0; i < side[1].count; i++)
		check_packet(&side[1], i, i, 1024);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
}

static void lane__without_a_port_takes_another(void **state)
{
	u8 gid[16], own[16];
	int fd = bare_socket(9, NODE_UDP_PORT, gid), taken[5];

	taken[0] = bare_socket(2, 0xd003, own); /* 2: side 0's address */
	assert_int_equal(lane_port(fd, gid, 0xd003), 0xd003 + UDP_LANES);
	for (u32 i = 0; i < 4; i++)
		taken[1 + i] = bare_socket(2, (u16)(0xfffd - i * UDP_LANES), own);
	assert_int_equal(lane_port(fd, gid, 0xfffd), NODE_UDP_PORT);
	for (u32 i = 0; i < ARRAY_LEN(taken); i++)
		close(taken[i]);
	close(fd);
}

static void lane__without_a_descriptor_is_none(void **state)
{
	struct rlimit limit, tight;
	u8 gid[16];
	int fd = bare_socket(9, NODE_UDP_PORT, gid), top = dup(fd);

	assert_int_equal(lane_port(fd, gid, 0xe001), 0xe001);
	close(top);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	tight = limit;
	tight.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_int_equal(lane_port(fd, gid, 0xe002), NODE_UDP_PORT);
	/* those that there are go on */
	assert_int_equal(lane_port(fd, gid, 0xe009), 0xe001);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	close(fd);
}

/* The other process' buffer is one, whichever way leads there. */
static void lane__shares_the_window(void **state)
{
	struct path_dest *a = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 1), 0xc001);
	struct path_dest *b = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 2), 0xc002);
	struct path_dest *c = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B + 1, 1), 0xc001);

	assert_ptr_not_equal(a, b);
	assert_ptr_equal(a->window, b->window);
	assert_ptr_not_equal(a->window, c->window);
	assert_true(side[0].path->ops->same(a, b));
}

/* Each of two destinations without room is sent on once there is some. */
static void stuck__two_destinations_go_on(void **state)
{
	struct path_dest *d[2] = { dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17), 0),
				   dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17),
					   0xe001) };

	single_fate = EAGAIN;
	for (u32 i = 0; i < 2; i++) {
		assert_int_equal(send_one(&side[0], d[i], i, 64), 0);
		side[0].path->ops->flush(d[i]);
		assert_int_equal(send_one(&side[0], d[i], 7, 64), -EAGAIN);
	}
	single_fate = 0;
	side[0].path->ops->poll(side[0].path, 16, true);
	receive(&side[1], 2);
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(send_one(&side[0], d[i], 2 + i, 64), 0);
}

/* A process may have several slots: after a change sockets are asked for each of them. */
static void refresh__asks_for_every_slot(void **state)
{
	assert_int_equal(udp_slot_own(side[0].udp, SLOT_A + 1), 0);
	assert_int_equal(udp_slot_own(side[0].udp, SLOT_A + 2), 0);
	side[0].asked = 0;
	udp_refresh(side[0].udp);
	assert_int_equal(side[0].asked, 7u << SLOT_A);
}

static void lane__goes_with_its_address(void **state)
{
	u8 gid[16];
	int fd = bare_socket(9, NODE_UDP_PORT, gid);

	for (u16 port = 0xe001; port < 0xe005; port++)
		assert_int_equal(lane_port(fd, gid, port), port);
	side[0].absent = true;
	udp_refresh(side[0].udp);
	/* their ports are free, the last as the first */
	for (u16 port = 0xe001; port < 0xe005; port++) {
		close(bare_socket(2, port, gid));
		side_gid(gid, 9);
	}
	side[0].absent = false;
	udp_refresh(side[0].udp);
	side_gid(gid, 9);
	assert_int_equal(lane_port(fd, gid, 0xe001), NODE_UDP_PORT);
	close(fd);
}

static void set_descriptors(rlim_t count)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = count;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A destination of a lane that could not be opened, and then is, by another one. It changes to the
 * lane's socket with the next refresh. */
static struct path_dest *dest_before_its_lane(void)
{
	struct path_dest *d;
	struct rlimit limit;
	u8 gid[16];

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	set_descriptors(3);
	d = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17), 0xe003);
	set_descriptors(limit.rlim_cur);
	side_gid(gid, 9);
	side[0].path->ops->dest_put(dest_by(&side[0], gid, side_qpn_of(SLOT_B, 17), 0xe003));
	return d;
}

/* The ICRC covers the source port: what waits goes from the port that it is signed for. */
static void lane__changes_between_two_packets(void **state)
{
	struct path_dest *d = dest_before_its_lane();

	assert_int_equal(send_one(&side[0], d, 0, 64), 0);
	assert_int_equal(send_one(&side[0], d, 1, 64), 0);
	udp_refresh(side[0].udp);
	assert_int_equal(send_one(&side[0], d, 2, 64), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 3);
	for (u32 i = 0; i < 3; i++)
		check_packet(&side[1], i, i, 64);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
}

/* The kernel has no room for what waits when the port changes: it is signed anew. */
static void lane__changes_under_a_batch_that_is_stuck(void **state)
{
	struct path_dest *d = dest_before_its_lane();

	joined_fate = single_fate = EAGAIN;
	for (u32 i = 0; i < 4; i++)
		assert_int_equal(send_one(&side[0], d, i, 64), 0);
	side[0].path->ops->flush(d);
	assert_int_equal(send_one(&side[0], d, 4, 64), -EAGAIN);
	udp_refresh(side[0].udp);
	joined_fate = single_fate = 0;
	side[0].path->ops->poll(side[0].path, 16, true);
	receive(&side[1], 4);
	for (u32 i = 0; i < 4; i++)
		check_packet(&side[1], i, i, 64);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
}

/* What was stuck when the address left goes nowhere, not later from another port. */
static void lane__stuck_batch_goes_with_the_address(void **state)
{
	struct path_dest *d = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17), 0xe003);

	joined_fate = single_fate = EAGAIN;
	assert_int_equal(send_one(&side[0], d, 0, 64), 0);
	side[0].path->ops->flush(d);
	side[0].absent = true;
	udp_refresh(side[0].udp);
	side[0].absent = false;
	udp_refresh(side[0].udp);
	joined_fate = single_fate = 0;
	side[0].path->ops->poll(side[0].path, 16, true);
	assert_int_equal(send_one(&side[0], d, 1, 64), 0);
	side[0].path->ops->flush(d);
	receive(&side[1], 1);
	check_packet(&side[1], 0, 1, 64);
	assert_int_equal(side[1].counters[COUNT_RX_ICRC], 0);
}

/* Lanes that nobody holds are forgotten, and so are the windows that they had in common. */
static void lane__forgotten_with_its_window(void **state) NO_THREAD_SAFETY /* one thread */
{
	struct path_dest *held = dest_by(&side[0], side[1].gid, side_qpn_of(SLOT_B, 17), 0xc001);

	for (u32 round = 0; round < 5; round++) {
		u8 gid[16];

		/* each in a slot of its own: as many windows as lanes */
		side_gid(gid, (u8)(10 + round));
		for (u32 i = 0; i < UDP_DESTS_KEPT / 4; i++)
			side[0].path->ops->dest_put(
				dest_by(&side[0], gid, side_qpn_of(1 + i, 1), 0xc001));
	}
	assert_in_range(side[0].udp->dest_count, 2 * UDP_DESTS_KEPT, 3 * UDP_DESTS_KEPT);
	/* a window goes with its last lane, or the next time */
	for (int i = 0; i < 2; i++)
		side[0].path->ops->poll(side[0].path, 16, true);
	assert_in_range(side[0].udp->dest_count, 2, UDP_DESTS_KEPT);
	assert_int_equal(send_one(&side[0], held, 0, 64), 0);
	side[0].path->ops->flush(held);
	receive(&side[1], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(joined__refused_go_one_by_one),
		EACH(joined__that_vanish_go_one_by_one),
		EACH(joined__too_long_for_the_way),
		EACH(label__is_in_the_ipv6_header),
		EACH(lane__leaves_from_its_port),
		EACH(lane__has_a_right_icrc),
		EACH(lane__without_a_port_takes_another),
		EACH(lane__without_a_descriptor_is_none),
		EACH(lane__shares_the_window),
		EACH(stuck__two_destinations_go_on),
		EACH(refresh__asks_for_every_slot),
		EACH(lane__goes_with_its_address),
		EACH(lane__changes_between_two_packets),
		EACH(lane__changes_under_a_batch_that_is_stuck),
		EACH(lane__stuck_batch_goes_with_the_address),
		EACH(lane__forgotten_with_its_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
