/* udp_socket.c: opens and binds UDP sockets.
 * In:    addresses                     Out: descriptors
 * Runs:  any thread                    Locks: none
 * Spec:  IBA annex A17 (UDP port 4791)
 */
#include "node/udp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

enum {
	UDP_SEND_BUFFER = 4 << 20,
	/* The kernel counts twice 4 KiB for a packet of 4 KiB, and doubles the requested size. So a
	 * burst that a peer sends without pacing (UC over Linux's rxe: a message of 8 MiB) fits,
	 * however late this process runs. */
	UDP_RECEIVE_BUFFER = 16 << 20,
};

struct node_udp_option {
	int level, name, value;
} FIXED;

static const struct node_udp_option udp_options_v4[] = {
	{ IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE },
	{ IPPROTO_IP, IP_PKTINFO, 1 },
	{ IPPROTO_IP, IP_RECVTOS, 1 },
	{ IPPROTO_IP, IP_RECVTTL, 1 },
	{ IPPROTO_IP, IP_MULTICAST_ALL, 0 },
};

static const struct node_udp_option udp_options_v6[] = {
	{ IPPROTO_IPV6, IPV6_V6ONLY, 1 },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, 1 },
	{ IPPROTO_IPV6, IPV6_RECVTCLASS, 1 },
	{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1 },
	/* rxe and adapters send without a checksum, since the ICRC protects the packet; the kernel
	 * would drop such datagrams */
	{ IPPROTO_UDP, UDP_NO_CHECK6_RX, 1 },
};

bool node_udp_gid_is_v4(const u8 gid[16])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

void node_udp_gid_from_v4(u8 gid[16], u32 address_be)
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &address_be, 4);
}

/* Neither unspecified nor a multicast address. */
static bool node_udp_gid_is_host(const u8 gid[16])
{
	static const u8 zero[16];

	if (node_udp_gid_is_v4(gid))
		return memcmp(gid + 12, zero, 4) != 0 && gid[12] < 224;
	return memcmp(gid, zero, 16) != 0 && gid[0] != 0xff;
}

bool node_udp_gid_parse(const char *text, u8 gid[16])
{
	struct in_addr v4;
	u8 found[16];

	if (inet_pton(AF_INET, text, &v4) == 1)
		node_udp_gid_from_v4(found, v4.s_addr);
	else if (inet_pton(AF_INET6, text, found) != 1)
		return false;
	if (!node_udp_gid_is_host(found))
		return false;
	memcpy(gid, found, sizeof(found));
	return true;
}

u32 node_udp_scope(const u8 gid[16], u32 ifindex)
{
	bool link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;

	return link_local || gid[0] == 0xff ? ifindex : 0;
}

socklen_t node_udp_address(const u8 gid[16], u32 ifindex, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	if (node_udp_gid_is_v4(gid)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(NODE_UDP_PORT);
		memcpy(&v4->sin_addr, gid + 12, 4);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(NODE_UDP_PORT);
	memcpy(&v6->sin6_addr, gid, 16);
	v6->sin6_scope_id = node_udp_scope(gid, ifindex);
	return sizeof(*v6);
}

/* As large as this user may have it: the larger of what privilege and the system's limit allow. */
static void node_udp_socket_grow(int fd)
{
	int receive = UDP_RECEIVE_BUFFER, send = UDP_SEND_BUFFER;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof(receive));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send, sizeof(send));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &receive, sizeof(receive));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send, sizeof(send));
}

int node_udp_socket_open(const u8 gid[16])
{
	bool v4 = node_udp_gid_is_v4(gid);
	const struct node_udp_option *o = v4 ? udp_options_v4 : udp_options_v6;
	size_t count = v4 ? ARRAY_LEN(udp_options_v4) : ARRAY_LEN(udp_options_v6);
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err, one = 1;

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < count; i++) {
		if (setsockopt(fd, o[i].level, o[i].name, &o[i].value, sizeof(int)) == 0)
			continue;
		err = -errno;
		close(fd);
		return err;
	}
	/* kernels before 5.0 lack UDP_GRO: there each datagram comes alone */
	(void)setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
	node_udp_socket_grow(fd);
	return fd;
}

int node_udp_socket_bind(int fd, const u8 gid[16], u32 ifindex)
{
	struct sockaddr_storage address;
	socklen_t length = node_udp_address(gid, ifindex, &address);

	return bind(fd, (struct sockaddr *)&address, length) < 0 ? -errno : 0;
}

u32 node_udp_socket_drain(int fd, u32 max)
{
	u32 count = 0;
	char byte;

	while (count < max && recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0)
		count++;
	return count;
}

u32 node_udp_socket_lost(int fd)
{
	u32 info[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(info);

	/* an old kernel lacks it */
	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size) < 0)
		return 0;
	return info[SK_MEMINFO_DROPS];
}

/* ---- multicast ---- */

u32 node_mcast_v4(const u8 group[16])
{
	static const u8 v1[12] = { [0] = 0xff, [1] = 0x0e, [10] = 0xff, [11] = 0xff };
	u32 address;

	if (!node_udp_gid_is_v4(group) && memcmp(group, v1, sizeof(v1)) != 0)
		return 0;
	memcpy(&address, group + 12, 4);
	return IN_MULTICAST(ntohl(address)) ? address : 0;
}

/* Translates the group for node_udp_address. False: no group. */
static bool node_udp_mcast_gid(const u8 group[16], u8 gid[16])
{
	u32 v4 = node_mcast_v4(group);

	memcpy(gid, group, 16);
	if (v4 == 0)
		return group[0] == 0xff;
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	return true;
}

static void node_udp_read_control(struct node_mad *from, const struct cmsghdr *m)
{
	int value = 0;

	memcpy(&value, CMSG_DATA(m), MIN(m->cmsg_len - CMSG_LEN(0), sizeof(value)));
	if (m->cmsg_level == IPPROTO_IP && m->cmsg_type == IP_TOS)
		from->traffic_class = *CMSG_DATA(m);
	else if (m->cmsg_level == IPPROTO_IPV6 && m->cmsg_type == IPV6_TCLASS)
		from->traffic_class = (u8)value;
	else if ((m->cmsg_level == IPPROTO_IP && m->cmsg_type == IP_TTL) ||
		 (m->cmsg_level == IPPROTO_IPV6 && m->cmsg_type == IPV6_HOPLIMIT))
		from->hop_limit = (u8)value;
}

static void node_udp_read_address(struct node_mad *from, const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	if (address->ss_family == AF_INET) {
		node_udp_gid_from_v4(from->sgid, v4->sin_addr.s_addr);
		from->sport = ntohs(v4->sin_port);
	} else {
		memcpy(from->sgid, &v6->sin6_addr, 16);
		from->sport = ntohs(v6->sin6_port);
	}
}

int node_udp_socket_read(int fd, void *data, size_t capacity, struct node_mad *from)
{
	struct sockaddr_storage address = { .ss_family = AF_INET };
	u8 control[256] __attribute__((aligned(8)));
	struct iovec iov = { data, capacity };
	struct msghdr m = { .msg_name = &address,
			    .msg_namelen = sizeof(address),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);

	if (n < 0)
		return -EAGAIN;
	node_udp_read_address(from, &address);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c))
		node_udp_read_control(from, c);
	return (int)n;
}

/* Appends one number to the control data. */
static void node_udp_add_control(struct msghdr *m, size_t room, int level, int type, int value)
{
	struct cmsghdr *c = (struct cmsghdr *)((u8 *)m->msg_control + m->msg_controllen);

	if (m->msg_controllen + CMSG_SPACE(sizeof(value)) > room)
		return;
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(sizeof(value));
	memcpy(CMSG_DATA(c), &value, sizeof(value));
	m->msg_controllen += CMSG_SPACE(sizeof(value));
}

int node_udp_socket_send(int fd, const struct node_mad *mad, u32 ifindex)
{
	bool v4 = node_udp_gid_is_v4(mad->dgid);
	int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
	u8 control[64] __attribute__((aligned(8))) = { 0 };
	struct sockaddr_storage to;
	struct iovec iov = { (void *)(uintptr_t)mad->payload, sizeof(mad->payload) };
	struct msghdr m = { .msg_name = &to,
			    .msg_namelen = node_udp_address(mad->dgid, ifindex, &to),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control };

	node_udp_add_control(&m, sizeof(control), level, v4 ? IP_TOS : IPV6_TCLASS,
			     mad->traffic_class);
	if (mad->hop_limit != 0)
		node_udp_add_control(&m, sizeof(control), level, v4 ? IP_TTL : IPV6_HOPLIMIT,
				mad->hop_limit);
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int node_udp_mcast_join(int fd, const u8 gid[16], u32 ifindex)
{
	struct ip_mreqn v4 = { .imr_ifindex = (int)ifindex };
	struct ipv6_mreq v6 = { .ipv6mr_interface = ifindex };
	int err;

	if (node_udp_gid_is_v4(gid)) {
		memcpy(&v4.imr_multiaddr, gid + 12, 4);
		err = setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &v4, sizeof(v4));
	} else {
		memcpy(&v6.ipv6mr_multiaddr, gid, 16);
		err = setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &v6, sizeof(v6));
	}
	return err < 0 ? -errno : 0;
}

/* Each multicast datagram goes to every socket bound to its group: so sockets of other processes
 * and users may share the port. */
static int node_udp_mcast_bind(int fd, const u8 gid[16], u32 ifindex)
{
	int one = 1, zero = 0, index = (int)ifindex;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
		return -errno;
	if (!node_udp_gid_is_v4(gid)) {
		/* IPv6 ignores the interface of a membership. Kernels that lack both options
		 * deliver datagrams of other interfaces, too */
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &zero, sizeof(zero));
		(void)setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof(index));
	}
	return node_udp_socket_bind(fd, gid, ifindex);
}

int node_mcast_socket(const u8 group[16], const struct node_gid *port)
{
	u8 gid[16];
	int fd, err;

	if (port->ifindex == 0 || !node_udp_mcast_gid(group, gid))
		return -EINVAL;
	fd = node_udp_socket_open(gid);
	if (fd < 0)
		return fd;
	err = node_udp_mcast_bind(fd, gid, port->ifindex);
	if (err == 0)
		err = node_udp_mcast_join(fd, gid, port->ifindex);
	if (err < 0) {
		close(fd);
		return err;
	}
	return fd;
}
