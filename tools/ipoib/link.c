/* link.c: what the kernel is told of the interface, by rtnetlink.
 *
 * The interface's alias and its neighbours are how programs on it know what a real IPoIB interface
 * would tell them: its hardware address, and its neighbours' (host/neighbour.h). Both go with the
 * interface, so with this process.
 * In:    addresses, names    Out: settings of the kernel
 * Runs:  any thread    Locks: none
 */
#include <errno.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "host/linkname.h"
#include "host/netlink.h"
#include "tool.h"

static void link_ignore(const struct nlmsghdr *m, void *context)
{
	(void)m;
	(void)context;
}

static int link_tell(struct netlink_request *q, u16 flags)
{
	q->head.nlmsg_flags |= NLM_F_ACK | flags;
	return netlink_ask(q, 0, link_ignore, NULL);
}

static void link_begin(struct netlink_request *q, u32 ifindex)
{
	netlink_begin(q, RTM_NEWLINK, sizeof(q->link));
	q->link.ifi_index = (int)ifindex;
}

int link_set_name(u32 ifindex, const struct ipoib_hw *own, const char *host,
		  const struct ipoib_config *ib)
{
	struct linkname name = { .port = ib->port };
	char text[LINKNAME_BYTES];
	struct netlink_request q;

	memcpy(name.address, own->raw, sizeof(name.address));
	snprintf(name.host, sizeof(name.host), "%.47s", host);
	snprintf(name.device, sizeof(name.device), "%.47s", ib->device);
	linkname_write(&name, text);
	link_begin(&q, ifindex);
	netlink_add(&q, IFLA_IFALIAS, text, strlen(text));
	return link_tell(&q, 0);
}

int link_set_mtu(u32 ifindex, u32 mtu)
{
	struct netlink_request q;

	link_begin(&q, ifindex);
	netlink_add(&q, IFLA_MTU, &mtu, sizeof(mtu));
	return link_tell(&q, 0);
}

int link_set_queue(u32 ifindex, u32 packets)
{
	struct netlink_request q;

	link_begin(&q, ifindex);
	netlink_add(&q, IFLA_TXQLEN, &packets, sizeof(packets));
	return link_tell(&q, 0);
}

int link_up(u32 ifindex)
{
	struct netlink_request q;

	link_begin(&q, ifindex);
	q.link.ifi_flags = q.link.ifi_change = IFF_UP;
	return link_tell(&q, 0);
}

/* The kernel would make a link-local address of a link address that is no port's. */
int link_no_ipv6_addresses(u32 ifindex)
{
	struct {
		struct rtattr family, mode;
		u8 value, pad[3];
	} spec = { .family = { sizeof(spec), AF_INET6 },
		   .mode = { RTA_LENGTH(1), IFLA_INET6_ADDR_GEN_MODE },
		   .value = IN6_ADDR_GEN_MODE_NONE };
	struct netlink_request q;

	link_begin(&q, ifindex);
	netlink_add(&q, IFLA_AF_SPEC, &spec, sizeof(spec));
	return link_tell(&q, 0);
}

static int link_address(u16 type, u16 flags, u32 ifindex, const struct ipoib_prefix *a)
{
	bool v4 = ipoib_ip_is_v4(a->ip), local = !v4 && a->ip[0] == 0xfe && a->ip[1] == 0x80;
	u8 all[4];
	struct netlink_request q;

	netlink_begin(&q, type, sizeof(q.address));
	q.address.ifa_family = v4 ? AF_INET : AF_INET6;
	q.address.ifa_prefixlen = v4 ? a->bits - 96 : a->bits;
	q.address.ifa_scope = local ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
	q.address.ifa_index = ifindex;
	netlink_add_gid(&q, IFA_LOCAL, a->ip);
	netlink_add_gid(&q, IFA_ADDRESS, a->ip);
	memcpy(all, a->ip + 12, 4);
	for (u32 bit = a->bits; v4 && bit < 128; bit++)
		all[bit / 8 - 12] |= 0x80 >> bit % 8;
	if (v4 && a->bits < 127)
		netlink_add(&q, IFA_BROADCAST, all, sizeof(all));
	return link_tell(&q, flags);
}

int link_add_address(u32 ifindex, const struct ipoib_prefix *a)
{
	return link_address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, ifindex, a);
}

int link_del_address(u32 ifindex, const struct ipoib_prefix *a)
{
	return link_address(RTM_DELADDR, 0, ifindex, a);
}

/* In the table of IPv6, those of IPv4 as ::ffff:a.b.c.d: the kernel has one neighbour only of IPv4
 * on a point-to-point device. */
int link_neighbour(u32 ifindex, const u8 ip[16], const u8 *gid)
{
	struct netlink_request q;

	netlink_begin(&q, gid != NULL ? RTM_NEWNEIGH : RTM_DELNEIGH, sizeof(q.neighbour));
	q.neighbour.ndm_family = AF_INET6;
	q.neighbour.ndm_ifindex = (int)ifindex;
	q.neighbour.ndm_state = NUD_PERMANENT;
	netlink_add(&q, NDA_DST, ip, 16);
	if (gid != NULL)
		netlink_add(&q, NDA_LLADDR, gid, 16);
	return link_tell(&q, gid != NULL ? NLM_F_CREATE | NLM_F_REPLACE : 0);
}
