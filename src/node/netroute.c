/* netroute.c: asks the kernel for one route.
 * In:    addresses as GIDs        Out: the preferred source and the interface
 * Runs:  any thread               Locks: none
 * Spec:  rtnetlink(7), RTM_GETROUTE
 */
#include "node/netroute.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { NETROUTE_BUFFER = 4096, NETROUTE_TIMEOUT_S = 2 };

struct netroute_request {
	struct nlmsghdr head;
	struct rtmsg body;
	char attributes[64];
} OWNED_BY(the caller);

static bool netroute_is_v4(const u8 gid[16])
{
	static const u8 mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static void netroute_add(struct netroute_request *q, u16 type, const void *data, size_t size)
{
	struct rtattr *a = (struct rtattr *)(void *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (unsigned short)RTA_LENGTH(size);
	memcpy(RTA_DATA(a), data, size);
	q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void netroute_ask(struct netroute_request *q, const u8 to[16], const u8 *from, u32 ifindex)
{
	bool v4 = netroute_is_v4(to);
	u8 size = v4 ? 4 : 16;

	memset(q, 0, sizeof(*q));
	q->head.nlmsg_len = NLMSG_LENGTH(sizeof(q->body));
	q->head.nlmsg_type = RTM_GETROUTE;
	q->head.nlmsg_flags = NLM_F_REQUEST;
	q->head.nlmsg_seq = 1;
	q->body.rtm_family = v4 ? AF_INET : AF_INET6;
	q->body.rtm_dst_len = (u8)(size * 8);
	netroute_add(q, RTA_DST, to + 16 - size, size);
	if (from != NULL && netroute_is_v4(from) == v4) {
		q->body.rtm_src_len = (u8)(size * 8);
		netroute_add(q, RTA_SRC, from + 16 - size, size);
	}
	if (ifindex != 0)
		netroute_add(q, RTA_OIF, &ifindex, sizeof(ifindex));
}

static void netroute_take(const struct rtmsg *body, int left, struct node_route *out)
{
	u8 size = body->rtm_family == AF_INET ? 4 : 16;

	memset(out, 0, sizeof(*out));
	out->local = body->rtm_type == RTN_LOCAL;
	for (const struct rtattr *a = RTM_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) == sizeof(out->ifindex))
			memcpy(&out->ifindex, RTA_DATA(a), sizeof(out->ifindex));
		if (a->rta_type != RTA_PREFSRC || RTA_PAYLOAD(a) != size)
			continue;
		if (size == 4)
			out->source[10] = out->source[11] = 0xff;
		memcpy(out->source + 16 - size, RTA_DATA(a), size);
	}
}

static int netroute_answer(const struct nlmsghdr *m, ssize_t n, struct node_route *out)
{
	if (n < (ssize_t)sizeof(*m) || !NLMSG_OK(m, (u32)n))
		return -EPROTO;
	if (m->nlmsg_type == NLMSG_ERROR && m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)))
		return MIN(((const struct nlmsgerr *)NLMSG_DATA(m))->error, -1);
	if (m->nlmsg_type != RTM_NEWROUTE || m->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg)))
		return -EPROTO;
	netroute_take(NLMSG_DATA(m), (int)RTM_PAYLOAD(m), out);
	return 0;
}

static int netroute_exchange(int fd, const struct netroute_request *q, struct node_route *out)
{
	_Alignas(struct nlmsghdr) char buffer[NETROUTE_BUFFER];
	struct timeval limit = { .tv_sec = NETROUTE_TIMEOUT_S };
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (send(fd, q, q->head.nlmsg_len, 0) < 0)
		return -errno;
	n = recv(fd, buffer, sizeof(buffer), 0);
	return n < 0 ? -errno : netroute_answer((const void *)buffer, n, out);
}

int node_route_find(const u8 to[16], const u8 *from, u32 ifindex, struct node_route *out)
{
	struct netroute_request q;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int err;

	if (fd < 0)
		return -errno;
	netroute_ask(&q, to, from, ifindex);
	err = netroute_exchange(fd, &q, out);
	close(fd);
	return err;
}
