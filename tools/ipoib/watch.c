/* watch.c: what the kernel says of the interface: its addresses, the groups that its sockets listen
 * to, and that routes have changed.
 * In:    rtnetlink, /proc/net    Out: addresses, groups
 * Runs:  the main thread; watch_is_report anywhere    Locks: none
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/netlink.h"
#include "tool.h"

enum { WATCH_BUFFER = 32768, WATCH_READS = 64 };

int watch_open(void)
{
	return netlink_watch(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR |
			     RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE);
}

static void watch_take_link(const struct nlmsghdr *m, struct watch_news *out)
{
	const struct ifinfomsg *link = NLMSG_DATA(m);
	int left = (int)IFLA_PAYLOAD(m);

	if (m->nlmsg_type == RTM_DELLINK && link->ifi_family == AF_UNSPEC)
		out->gone = true;
	else if ((link->ifi_change & IFF_UP) != 0 && (link->ifi_flags & IFF_UP) != 0)
		out->link_up = true;
	for (const struct rtattr *a = IFLA_RTA(link); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == IFLA_MTU && RTA_PAYLOAD(a) == sizeof(out->mtu))
			memcpy(&out->mtu, RTA_DATA(a), sizeof(out->mtu));
}

static void watch_take(const struct nlmsghdr *m, u32 left, u32 ifindex, struct watch_news *out)
{
	for (; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
		const struct ifinfomsg *link = NLMSG_DATA(m);

		if ((m->nlmsg_type == RTM_NEWLINK || m->nlmsg_type == RTM_DELLINK) &&
		    m->nlmsg_len >= NLMSG_LENGTH(sizeof(*link)) &&
		    (u32)link->ifi_index == ifindex)
			watch_take_link(m, out);
	}
}

bool watch_read(int fd, u32 ifindex, struct watch_news *out)
{
	_Alignas(struct nlmsghdr) static char buffer[WATCH_BUFFER];
	bool some = false;

	*out = (struct watch_news){ .link_up = false };
	for (u32 i = 0; i < WATCH_READS; i++) {
		ssize_t n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return some;
		some = true; /* with ENOBUFS some were lost */
		if (n > 0)
			watch_take((const void *)buffer, (u32)n, ifindex, out);
	}
	return true;
}

/* ---- addresses ------------------------------------------------------------------------------- */

struct watch_list {
	struct ipoib_prefix *out;
	u32 ifindex, count, max;
};

static void watch_take_address(const struct nlmsghdr *m, void *context)
{
	const struct ifaddrmsg *body = NLMSG_DATA(m);
	struct watch_list *list = context;
	int left = (int)IFA_PAYLOAD(m);
	bool v4 = body->ifa_family == AF_INET;
	struct ipoib_prefix p = { .bits = 0 };
	bool has = false;

	if (m->nlmsg_len < NLMSG_LENGTH(sizeof(*body)) || body->ifa_index != list->ifindex ||
	    list->count == list->max)
		return;
	/* of a point-to-point link IFA_ADDRESS may be the peer's */
	for (const struct rtattr *a = IFA_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == IFA_LOCAL || (a->rta_type == IFA_ADDRESS && !has))
			has = netlink_take_gid(a, p.ip) || has;
	if (!has)
		return;
	p.bits = (u8)(body->ifa_prefixlen + (v4 ? 96 : 0));
	list->out[list->count++] = p;
}

u32 watch_addresses(u32 ifindex, struct ipoib_prefix *out, u32 max)
{
	struct watch_list list = { .out = out, .ifindex = ifindex, .max = max };
	struct netlink_request q;

	netlink_begin(&q, RTM_GETADDR, sizeof(q.address));
	q.head.nlmsg_flags |= NLM_F_DUMP;
	(void)netlink_ask(&q, RTM_NEWADDR, watch_take_address, &list);
	return list.count;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* A line for each interface, "3 ib0 : 1 V3", and below it one for each group: 010000E0. */
static u32 watch_groups_v4(u32 ifindex, u8 (*out)[16], u32 max)
{
	FILE *f = fopen("/proc/self/net/igmp", "re");
	u32 at = 0, count = 0, group;
	char line[256];

	while (f != NULL && count < max && fgets(line, sizeof(line), f) != NULL) {
		if (line[0] != '\t')
			at = (u32)strtoul(line, NULL, 10);
		else if (at == ifindex && sscanf(line, " %8x", &group) == 1) {
			memset(out[count], 0, 10);
			out[count][10] = out[count][11] = 0xff;
			memcpy(out[count] + 12, &group, 4); /* as it lies in memory */
			count++;
		}
	}
	if (f != NULL)
		fclose(f);
	return count;
}

/* "3    ib0             ff020000000000000000000000000001     1 0000000C 0" */
static u32 watch_groups_v6(u32 ifindex, u8 (*out)[16], u32 max)
{
	FILE *f = fopen("/proc/self/net/igmp6", "re");
	char line[256], group[33];
	u32 at, count = 0;

	while (f != NULL && count < max && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%u %*s %32s", &at, group) != 2 || at != ifindex ||
		    strlen(group) != 32)
			continue;
		for (u32 i = 0; i < 16; i++) {
			char byte[3] = { group[2 * i], group[2 * i + 1], '\0' };

			out[count][i] = (u8)strtoul(byte, NULL, 16);
		}
		/* those of the node itself never leave it */
		if ((out[count][1] & 15) > 1)
			count++;
	}
	if (f != NULL)
		fclose(f);
	return count;
}

u32 watch_groups(u32 ifindex, u8 (*out)[16], u32 max)
{
	u32 count = watch_groups_v4(ifindex, out, max);

	return count + watch_groups_v6(ifindex, out + count, max - count);
}

bool watch_is_report(const u8 *packet, u32 size)
{
	if (size < 20)
		return false;
	if (packet[0] >> 4 == 4)
		return packet[9] == IPPROTO_IGMP;
	/* MLD stands behind a hop-by-hop header */
	return size >= 48 && packet[0] >> 4 == 6 && packet[6] == IPPROTO_HOPOPTS &&
	       packet[40] == IPPROTO_ICMPV6;
}
