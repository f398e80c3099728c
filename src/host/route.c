/* route.c: asks the kernel for one route.
 * In:    addresses as GIDs        Out: the preferred source, the next hop and the interface
 * Runs:  any thread               Locks: none
 * Spec:  rtnetlink(7), RTM_GETROUTE
 */
#include "host/route.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "host/netlink.h"

struct host_route_found {
	struct host_route route;
	u32 answers;
} OWNED_BY(the caller);

static void host_route_ask(struct netlink_request *q, const u8 to[16], const u8 *from, u32 ifindex)
{
	bool v4 = netlink_gid_is_v4(to);
	u8 bits = v4 ? 32 : 128;

	netlink_begin(q, RTM_GETROUTE, sizeof(q->route));
	q->route.rtm_family = v4 ? AF_INET : AF_INET6;
	q->route.rtm_dst_len = bits;
	netlink_add_gid(q, RTA_DST, to);
	if (from != NULL && netlink_gid_is_v4(from) == v4) {
		q->route.rtm_src_len = bits;
		netlink_add_gid(q, RTA_SRC, from);
	}
	if (ifindex != 0)
		netlink_add(q, RTA_OIF, &ifindex, sizeof(ifindex));
}

static void host_route_take_metrics(const struct rtattr *metrics, struct host_route *out)
{
	int left = (int)RTA_PAYLOAD(metrics);
	u32 hops;

	for (const struct rtattr *a = RTA_DATA(metrics); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type != RTAX_HOPLIMIT || RTA_PAYLOAD(a) != sizeof(hops))
			continue;
		memcpy(&hops, RTA_DATA(a), sizeof(hops));
		out->hop_limit = (u8)MIN(hops, 0xffu);
	}
}

/* A gateway of the other family, which IPv4 may have. */
static void host_route_take_via(const struct rtattr *a, struct host_route *out)
{
	const struct rtvia *via = RTA_DATA(a);

	if (RTA_PAYLOAD(a) == sizeof(*via) + 16 && via->rtvia_family == AF_INET6)
		memcpy(out->next, via->rtvia_addr, 16);
}

static void host_route_take(const struct nlmsghdr *m, void *context)
{
	struct host_route_found *found = context;
	struct host_route *out = &found->route;
	const struct rtmsg *body = NLMSG_DATA(m);
	int left = (int)RTM_PAYLOAD(m);

	if (m->nlmsg_len < NLMSG_LENGTH(sizeof(*body)))
		return;
	found->answers++;
	out->local = body->rtm_type == RTN_LOCAL;
	for (const struct rtattr *a = RTM_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) == sizeof(out->ifindex))
			memcpy(&out->ifindex, RTA_DATA(a), sizeof(out->ifindex));
		else if (a->rta_type == RTA_PREFSRC)
			(void)netlink_take_gid(a, out->source);
		else if (a->rta_type == RTA_GATEWAY)
			(void)netlink_take_gid(a, out->next);
		else if (a->rta_type == RTA_VIA)
			host_route_take_via(a, out);
		else if (a->rta_type == RTA_METRICS)
			host_route_take_metrics(a, out);
	}
}

int host_route_find(const u8 to[16], const u8 *from, u32 ifindex, struct host_route *out)
{
	struct host_route_found found = { .answers = 0 };
	struct netlink_request q;
	int err;

	memcpy(found.route.next, to, 16);
	host_route_ask(&q, to, from, ifindex);
	err = netlink_ask(&q, RTM_NEWROUTE, host_route_take, &found);
	if (err == 0 && found.answers == 0)
		err = -EPROTO;
	if (err == 0)
		*out = found.route;
	return err;
}
