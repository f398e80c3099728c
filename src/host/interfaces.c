/* interfaces.c: asks the kernel for interfaces and addresses: two dumps.
 * In:    rtnetlink                     Out: struct host
 * Runs:  the daemon's only thread      Locks: none
 * Spec:  rtnetlink(7)
 */
#include "host/interfaces.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#include "host/netlink.h"

enum { HOST_TRIES = 5 }; /* the kernel's tables may change during a dump */

const struct host_interface *host_interface_of(const struct host *h, u32 ifindex)
{
	for (u32 i = 0; i < h->link_count; i++)
		if (h->links[i].ifindex == ifindex)
			return &h->links[i];
	return NULL;
}

const struct host_address *host_address_of(const struct host *h, const u8 gid[16])
{
	for (u32 i = 0; i < h->address_count; i++)
		if (memcmp(h->addresses[i].gid, gid, 16) == 0)
			return &h->addresses[i];
	return NULL;
}

/* ---- messages ---- */

/* Lists the attributes from `first` on by type; skips types above `max`. */
static void host_attributes(const struct rtattr *first, int left, const struct rtattr **out,
			    u32 max)
{
	memset(out, 0, (max + 1) * sizeof(*out));
	for (const struct rtattr *a = first; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) <= max)
			out[a->rta_type & NLA_TYPE_MASK] = a;
}

static u32 host_u32(const struct rtattr *a, u32 otherwise)
{
	u32 value = otherwise;

	if (a != NULL && RTA_PAYLOAD(a) >= sizeof(value))
		memcpy(&value, RTA_DATA(a), sizeof(value));
	return value;
}

static bool host_is_bridge(const struct rtattr *info)
{
	const struct rtattr *nested[IFLA_INFO_KIND + 1];

	if (info == NULL)
		return false;
	host_attributes(RTA_DATA(info), (int)RTA_PAYLOAD(info), nested, IFLA_INFO_KIND);
	return nested[IFLA_INFO_KIND] != NULL && RTA_PAYLOAD(nested[IFLA_INFO_KIND]) >= 6 &&
	       memcmp(RTA_DATA(nested[IFLA_INFO_KIND]), "bridge", 6) == 0;
}

static void host_take_interface(struct host *h, const struct nlmsghdr *m)
{
	const struct ifinfomsg *info = NLMSG_DATA(m);
	const struct rtattr *a[IFLA_LINKINFO + 1];
	struct host_interface *l = &h->links[h->link_count];

	if (h->link_count >= HOST_INTERFACES)
		return;
	host_attributes(IFLA_RTA(info), (int)IFLA_PAYLOAD(m), a, IFLA_LINKINFO);
	memset(l, 0, sizeof(*l));
	l->ifindex = (u32)info->ifi_index;
	l->mtu = host_u32(a[IFLA_MTU], 0);
	l->loopback = info->ifi_flags & IFF_LOOPBACK;
	l->up = info->ifi_flags & IFF_UP;
	l->running = l->up && (info->ifi_flags & IFF_RUNNING);
	l->bridge = host_is_bridge(a[IFLA_LINKINFO]);
	if (a[IFLA_IFNAME] != NULL)
		memcpy(l->name, RTA_DATA(a[IFLA_IFNAME]),
		       MIN(RTA_PAYLOAD(a[IFLA_IFNAME]), sizeof(l->name) - 1));
	if (a[IFLA_ADDRESS] != NULL && RTA_PAYLOAD(a[IFLA_ADDRESS]) == sizeof(l->mac))
		memcpy(l->mac, RTA_DATA(a[IFLA_ADDRESS]), sizeof(l->mac));
	h->link_count++;
}

static void host_take_address(struct host *h, const struct nlmsghdr *m)
{
	const struct ifaddrmsg *info = NLMSG_DATA(m);
	size_t size = info->ifa_family == AF_INET ? 4 : 16;
	const struct rtattr *a[IFA_FLAGS + 1], *own;
	struct host_address *out = &h->addresses[h->address_count];

	host_attributes(IFA_RTA(info), (int)IFA_PAYLOAD(m), a, IFA_FLAGS);
	/* of a point-to-point interface IFA_ADDRESS is the peer's */
	own = a[IFA_LOCAL] != NULL ? a[IFA_LOCAL] : a[IFA_ADDRESS];
	if (h->address_count >= HOST_ADDRESSES || own == NULL || RTA_PAYLOAD(own) != size ||
	    (info->ifa_family != AF_INET && info->ifa_family != AF_INET6))
		return;
	/* nothing can be bound to it yet; another message will follow */
	if (host_u32(a[IFA_FLAGS], info->ifa_flags) & (IFA_F_TENTATIVE | IFA_F_DADFAILED))
		return;
	memset(out->gid, 0, 10);
	out->gid[10] = out->gid[11] = 0xff;
	memcpy(out->gid + 16 - size, RTA_DATA(own), size);
	out->ifindex = info->ifa_index;
	h->address_count++;
}

void host_take(struct host *h, const struct nlmsghdr *m)
{
	if (m->nlmsg_type == RTM_NEWLINK && m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifinfomsg)))
		host_take_interface(h, m);
	if (m->nlmsg_type == RTM_NEWADDR && m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifaddrmsg)))
		host_take_address(h, m);
}

/* ---- dumps ---- */

static void host_take_message(const struct nlmsghdr *m, void *context)
{
	host_take(context, m);
}

static int host_dump(struct host *h, u16 ask, u16 answer)
{
	struct netlink_request q;

	netlink_begin(&q, ask, sizeof(struct rtgenmsg));
	q.head.nlmsg_flags |= NLM_F_DUMP;
	return netlink_ask(&q, answer, host_take_message, h);
}

static int host_try(struct host *h)
{
	int err;

	h->link_count = h->address_count = 0;
	err = host_dump(h, RTM_GETLINK, RTM_NEWLINK);
	return err != 0 ? err : host_dump(h, RTM_GETADDR, RTM_NEWADDR);
}

int host_read(struct host *h)
{
	int err = -EINTR;

	for (int i = 0; err == -EINTR && i < HOST_TRIES; i++)
		err = host_try(h);
	return err;
}
