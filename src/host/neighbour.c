/* neighbour.c: asks the kernel for interfaces, addresses and neighbours, and hears of changes.
 * In:    indices, addresses as GIDs          Out: MACs, VLANs, indices, changes
 * Runs:  any thread                          Locks: none
 * Spec:  rtnetlink(7), RTM_GETLINK, RTM_GETADDR, RTM_GETNEIGH
 */
#include "host/neighbour.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/linkname.h"
#include "host/netlink.h"

enum { NEIGHBOUR_BUFFER = 32768, NEIGHBOUR_DISCARD_PORT = 9, NEIGHBOUR_READS = 64 };
enum {
	NEIGHBOUR_VALID = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE |
			  NUD_DELAY
};

/* ---- interfaces ------------------------------------------------------------------------------ */

static void neighbour_take_address(const struct rtattr *a, u8 out[HOST_LINK_ADDRESS])
{
	memcpy(out, RTA_DATA(a), MIN(RTA_PAYLOAD(a), (size_t)HOST_LINK_ADDRESS));
}

/* The attributes inside another; NULL: none of that type. */
static const struct rtattr *neighbour_inside(const struct rtattr *whole, u16 type)
{
	int left = (int)RTA_PAYLOAD(whole);

	for (const struct rtattr *a = RTA_DATA(whole); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) == type)
			return a;
	return NULL;
}

static void neighbour_take_info(const struct rtattr *info, struct host_link *out)
{
	const struct rtattr *kind = neighbour_inside(info, IFLA_INFO_KIND);
	const struct rtattr *data = neighbour_inside(info, IFLA_INFO_DATA);
	const struct rtattr *id;

	if (kind == NULL || data == NULL || RTA_PAYLOAD(kind) < 4 ||
	    memcmp(RTA_DATA(kind), "vlan", 4) != 0)
		return;
	id = neighbour_inside(data, IFLA_VLAN_ID);
	if (id != NULL && RTA_PAYLOAD(id) >= sizeof(out->vlan_id))
		memcpy(&out->vlan_id, RTA_DATA(id), sizeof(out->vlan_id));
}

/* An IPoIB interface of a host of a fabric is a TUN device, whose alias says what it stands for. It
 * has neighbours: anyverbs-ipoib resolves them, and tells the kernel. */
static void neighbour_take_alias(const struct rtattr *alias, struct host_link *out)
{
	size_t size = RTA_PAYLOAD(alias);
	const char *text = RTA_DATA(alias);
	struct linkname name;

	if (size > 0 && text[size - 1] == '\0')
		size--;
	if (!linkname_read(text, size, &name))
		return;
	memset(out->address, 0, sizeof(out->address));
	memcpy(out->address, name.address, sizeof(name.address));
	out->type = ARPHRD_INFINIBAND;
	out->no_arp = false;
}

static void neighbour_take_link(const struct nlmsghdr *m, void *context)
{
	const struct ifinfomsg *body = NLMSG_DATA(m);
	const struct rtattr *alias = NULL;
	struct host_link *out = context;
	int left = (int)IFLA_PAYLOAD(m);

	if (m->nlmsg_len < NLMSG_LENGTH(sizeof(*body)))
		return;
	out->ifindex = (u32)body->ifi_index;
	out->type = body->ifi_type;
	out->loopback = (body->ifi_flags & IFF_LOOPBACK) != 0;
	out->no_arp = (body->ifi_flags & (IFF_LOOPBACK | IFF_NOARP)) != 0;
	for (const struct rtattr *a = IFLA_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == IFLA_ADDRESS)
			neighbour_take_address(a, out->address);
		else if (a->rta_type == IFLA_BROADCAST)
			neighbour_take_address(a, out->broadcast);
		else if ((a->rta_type & NLA_TYPE_MASK) == IFLA_LINKINFO)
			neighbour_take_info(a, out);
		else if (a->rta_type == IFLA_IFALIAS)
			alias = a;
	}
	if (alias != NULL)
		neighbour_take_alias(alias, out);
}

int host_link_find(u32 ifindex, struct host_link *out)
{
	struct host_link found = { .vlan_id = HOST_NO_VLAN };
	struct netlink_request q;
	int err;

	netlink_begin(&q, RTM_GETLINK, sizeof(q.link));
	q.link.ifi_index = (int)ifindex;
	err = netlink_ask(&q, RTM_NEWLINK, neighbour_take_link, &found);
	if (err == 0 && found.ifindex == 0)
		err = -ENODEV;
	if (err == 0)
		*out = found;
	return err;
}

/* ---- addresses ------------------------------------------------------------------------------- */

struct neighbour_search {
	u8 gid[16];
	u32 scope, found;
} OWNED_BY(the caller);

static void neighbour_take_ifaddr(const struct nlmsghdr *m, void *context)
{
	const struct ifaddrmsg *body = NLMSG_DATA(m);
	struct neighbour_search *search = context;
	int left = (int)IFA_PAYLOAD(m);
	u8 gid[16];

	if (m->nlmsg_len < NLMSG_LENGTH(sizeof(*body)) || search->found != 0 ||
	    (search->scope != 0 && search->scope != body->ifa_index))
		return;
	for (const struct rtattr *a = IFA_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		/* of a point-to-point link IFA_ADDRESS is the peer's */
		if (a->rta_type != IFA_LOCAL &&
		    (a->rta_type != IFA_ADDRESS || body->ifa_family == AF_INET))
			continue;
		if (netlink_take_gid(a, gid) && memcmp(gid, search->gid, 16) == 0)
			search->found = body->ifa_index;
	}
}

int host_address_find(const u8 gid[16], u32 scope, u32 *ifindex)
{
	struct neighbour_search search = { .scope = scope };
	struct netlink_request q;
	int err;

	memcpy(search.gid, gid, 16);
	netlink_begin(&q, RTM_GETADDR, sizeof(q.address));
	q.head.nlmsg_flags |= NLM_F_DUMP;
	q.address.ifa_family = netlink_gid_is_v4(gid) ? AF_INET : AF_INET6;
	err = netlink_ask(&q, RTM_NEWADDR, neighbour_take_ifaddr, &search);
	if (err == 0 && search.found == 0)
		err = -EADDRNOTAVAIL;
	if (err == 0)
		*ifindex = search.found;
	return err;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

/* A GID is that of a neighbour of an IPoIB interface of a fabric: it stands where it does in a
 * hardware address, behind flags and QPN. */
static void neighbour_take_link_address(const struct rtattr *a, u8 out[HOST_LINK_ADDRESS])
{
	enum { GID = 16, GID_AT = 4 };

	if (RTA_PAYLOAD(a) == GID)
		memcpy(out + GID_AT, RTA_DATA(a), GID);
	else
		neighbour_take_address(a, out);
}

static bool neighbour_read(const struct nlmsghdr *m, struct host_neighbour *out)
{
	const struct ndmsg *body = NLMSG_DATA(m);
	int left = (int)NLMSG_PAYLOAD(m, sizeof(*body));
	bool has_address = false, has_gid = false;

	if (m->nlmsg_len < NLMSG_LENGTH(sizeof(*body)))
		return false;
	memset(out, 0, sizeof(*out));
	out->ifindex = (u32)body->ndm_ifindex;
	for (const struct rtattr *a =
		     (const void *)((const char *)body + NLMSG_ALIGN(sizeof(*body)));
	     RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == NDA_DST)
			has_gid = netlink_take_gid(a, out->gid);
		if (a->rta_type != NDA_LLADDR)
			continue;
		neighbour_take_link_address(a, out->address);
		has_address = true;
	}
	out->valid = has_address && m->nlmsg_type == RTM_NEWNEIGH &&
		     (body->ndm_state & NEIGHBOUR_VALID) != 0;
	return has_gid;
}

static void neighbour_take(const struct nlmsghdr *m, void *context)
{
	(void)neighbour_read(m, context);
}

/* Asks in the table of IPv4 or of IPv6. */
static int neighbour_ask(u32 ifindex, const u8 gid[16], bool v4, struct host_neighbour *out)
{
	struct host_neighbour found = { .ifindex = 0 };
	struct netlink_request q;
	int err;

	netlink_begin(&q, RTM_GETNEIGH, sizeof(q.neighbour));
	q.neighbour.ndm_family = v4 ? AF_INET : AF_INET6;
	q.neighbour.ndm_ifindex = (int)ifindex;
	if (v4)
		netlink_add_gid(&q, NDA_DST, gid);
	else
		netlink_add(&q, NDA_DST, gid, 16);
	err = netlink_ask(&q, RTM_NEWNEIGH, neighbour_take, &found);
	if (err == 0 && found.ifindex == 0)
		err = -ENOENT;
	if (err == 0)
		*out = found;
	return err;
}

int host_neighbour_find(u32 ifindex, const u8 gid[16], struct host_neighbour *out)
{
	bool v4 = netlink_gid_is_v4(gid);
	int err = neighbour_ask(ifindex, gid, v4, out);

	/* The kernel has one neighbour only of IPv4 on a TUN device: anyverbs-ipoib gives it those
	 * of its interface as ::ffff:a.b.c.d. */
	if (err == -ENOENT && v4)
		err = neighbour_ask(ifindex, gid, false, out);
	return err == -EINVAL ? -ENOENT : err;
}

/* The neighbour's discard port. Returns the address' length. */
static socklen_t neighbour_target(u32 ifindex, const u8 gid[16], struct sockaddr_storage *out)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6,
				     .sin6_port = htons(NEIGHBOUR_DISCARD_PORT),
				     .sin6_scope_id = ifindex };
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(NEIGHBOUR_DISCARD_PORT) };

	if (netlink_gid_is_v4(gid)) {
		memcpy(&sin.sin_addr, gid + 12, 4);
		memcpy(out, &sin, sizeof(sin));
		return sizeof(sin);
	}
	memcpy(&sin6.sin6_addr, gid, 16);
	memcpy(out, &sin6, sizeof(sin6));
	return sizeof(sin6);
}

/* Of two links with one subnet the main table has one: the datagram is to leave by the other, where
 * a rule for the source sends what the neighbour is needed for. */
static void neighbour_leave_by(int fd, bool v4, u32 ifindex)
{
	u32 index = htonl(ifindex);

	if (v4)
		setsockopt(fd, IPPROTO_IP, IP_UNICAST_IF, &index, sizeof(index));
	else
		setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_IF, &index, sizeof(index));
}

int host_neighbour_probe(u32 ifindex, const u8 gid[16])
{
	struct sockaddr_storage to;
	socklen_t length = neighbour_target(ifindex, gid, &to);
	bool v4 = netlink_gid_is_v4(gid);
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1, err = 0;

	if (fd < 0)
		return -errno;
	if (v4)
		setsockopt(fd, IPPROTO_IP, IP_TTL, &one, sizeof(one));
	else
		setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &one, sizeof(one));
	neighbour_leave_by(fd, v4, ifindex);
	if (sendto(fd, NULL, 0, MSG_DONTWAIT, (const void *)&to, length) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* ---- changes --------------------------------------------------------------------------------- */

static bool neighbour_inode(int fd, u64 *inode)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return false;
	*inode = st.st_ino;
	return true;
}

int host_watch_open(struct host_watch *w)
{
	int fd = netlink_watch(RTMGRP_NEIGH | RTMGRP_LINK), err;

	if (fd < 0)
		return fd;
	if (neighbour_inode(fd, &w->inode)) {
		w->fd = fd;
		return 0;
	}
	err = -errno;
	close(fd);
	return err;
}

static bool neighbour_is_ours(struct host_watch *w)
{
	u64 inode;

	if (w->fd >= 0 && (!neighbour_inode(w->fd, &inode) || inode != w->inode))
		w->fd = -1;
	return w->fd >= 0;
}

void host_watch_close(struct host_watch *w)
{
	if (neighbour_is_ours(w))
		close(w->fd);
	w->fd = -1;
}

static void neighbour_news(const struct nlmsghdr *m, ssize_t n,
			   void (*take)(const struct host_change *c, void *context), void *context)
{
	struct host_change c;
	u32 left = (u32)n;

	for (; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
		c.kind = HOST_CHANGE_ALL;
		if (m->nlmsg_type == RTM_NEWNEIGH || m->nlmsg_type == RTM_DELNEIGH) {
			c.kind = HOST_CHANGE_NEIGHBOUR;
			if (!neighbour_read(m, &c.neighbour))
				continue;
		}
		take(&c, context);
	}
}

static void neighbour_read_all(struct host_watch *w, char *buffer,
			       void (*take)(const struct host_change *c, void *context),
			       void *context)
{
	const struct host_change all = { .kind = HOST_CHANGE_ALL };

	for (u32 reads = 0; reads < NEIGHBOUR_READS; reads++) {
		ssize_t n = recv(w->fd, buffer, NEIGHBOUR_BUFFER, MSG_DONTWAIT);

		if (n >= 0)
			neighbour_news((const void *)buffer, n, take, context);
		else if (errno == EAGAIN)
			return;
		else if (errno != EINTR)
			take(&all, context); /* ENOBUFS: the kernel has dropped some */
	}
	take(&all, context); /* more than is read at once */
}

bool host_watch_read(struct host_watch *w, void (*take)(const struct host_change *c, void *context),
		     void *context)
{
	const struct host_change all = { .kind = HOST_CHANGE_ALL };
	char *buffer;

	if (!neighbour_is_ours(w))
		return false;
	/* not on the stack, which is the application's and may be small */
	buffer = malloc(NEIGHBOUR_BUFFER);
	if (buffer != NULL)
		neighbour_read_all(w, buffer, take, context);
	else
		take(&all, context);
	free(buffer);
	return true;
}
