/* origin.c: whether a request has come from the address that its header names, and to the one that
 * it names there. A program trusts its peer's address, and a listener of 127.0.0.1 trusts everybody
 * who reaches it.
 * In:    the addresses of a header, the way by which the request has come    Out: a verdict
 * Runs:  the IB CM's queue    Locks: cma.lock; the kernel is asked without it
 */
#include <arpa/inet.h>
#include <net/if_arp.h>
#include <string.h>

#include "addr/addr.h"
#include "cm/ib/cm.h"
#include "cm/rdma/cma_priv.h"
#include "node/hostip.h"

static bool origin_is_same(const union ib_gid *a, const union ib_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static u32 origin_v4(const union ib_gid *ip)
{
	__be32 v4;

	memcpy(&v4, ip->raw + 12, sizeof(v4));
	return ntohl(v4);
}

/* 127.0.0.0/8, mapped into IPv6 or not, and ::1. */
static bool origin_is_loopback(const union ib_gid *ip)
{
	static const union ib_gid one = { .raw = { [15] = 1 } };

	return cma_gid_is_v4(ip) ? origin_v4(ip) >> 24 == 127 : origin_is_same(ip, &one);
}

/* No host has it: a group, the limited broadcast, 0.0.0.0/8, ::. */
static bool origin_is_nobody(const union ib_gid *ip)
{
	static const union ib_gid any;

	if (!cma_gid_is_v4(ip))
		return ip->raw[0] == 0xff || origin_is_same(ip, &any);
	return origin_v4(ip) >> 28 == 0xe || origin_v4(ip) == INADDR_BROADCAST ||
	       origin_v4(ip) >> 24 == 0;
}

/* ---- RoCE: addresses are GIDs ---------------------------------------------------------------- */

static bool origin_holds_on_roce(const struct cma_request_way *way, const union ib_gid *from,
				 const union ib_gid *to)
{
	bool here = cma_gid_is_known(&way->peer);

	return (origin_is_same(from, &way->peer) || (here && origin_is_loopback(from))) &&
	       (origin_is_same(to, &way->own) || (here && origin_is_loopback(to)));
}

/* ---- InfiniBand: addresses of the fabric's hosts, and of interfaces of IPoIB ----------------- */

static bool origin_lid_is_of(struct ib_device *device, u8 port, u16 lid)
{
	struct ib_port_attr attr;

	return lid != 0 && ib_query_port(device, port, &attr) == 0 &&
	       lid >> attr.lmc == attr.lid >> attr.lmc;
}

/* Is it the LID of a port of this host? A GRH says nothing here: no switch looks at it. */
static bool origin_lid_is_here(u16 lid)
{
	struct cma_device *d;
	bool here = false;

	for (u32 i = 0; !here && (d = cma_device_hold_at(i)) != NULL; i++) {
		for (u8 port = 1; d->infiniband && port <= d->device->phys_port_cnt; port++)
			here |= origin_lid_is_of(d->device, port, lid);
		cma_device_release(d);
	}
	return here;
}

/* A GID's GUID: its prefix changes with the subnet's. */
static bool origin_has_guid(const u8 gid[16], const union ib_gid *of)
{
	return memcmp(gid + 8, of->raw + 8, 8) == 0;
}

/* This host's address of IPoIB, or one that stands for this host among its own processes. *ifindex:
 * its interface; 0: none. */
static bool origin_is_to_here(const struct cma_request_way *way, bool here, const union ib_gid *to,
			      u32 *ifindex)
{
	struct node_hostip host;
	union ib_gid gid;
	int err = node_hostip_find(to->raw, &host);

	*ifindex = 0;
	if (err == 0)
		return host.own && origin_has_guid(host.gid, &way->own);
	if (origin_is_loopback(to))
		return here && err == -EADDRNOTAVAIL;
	return addr_ipoib_find(addr_host(), to->raw, 0, ifindex, gid.raw) == 0 &&
	       origin_has_guid(gid.raw, &way->own);
}

/* The route back leads out by an interface of the port that the request has come to. */
static bool origin_is_routed(const struct cma_request_way *way, const union ib_gid *from,
			     const union ib_gid *to, u32 ifindex)
{
	bool link_local = from->raw[0] == 0xfe && (from->raw[1] & 0xc0) == 0x80;
	struct rdma_dev_addr link;
	struct addr_way back;

	if (origin_is_nobody(from) || origin_is_loopback(from) ||
	    addr_route(addr_host(), from->raw, ifindex != 0 ? to->raw : NULL,
		       link_local ? ifindex : 0, &back) != 0 ||
	    back.route.local)
		return false;
	link = (struct rdma_dev_addr){ .bound_dev_if = (int)back.route.ifindex };
	return addr_translate(addr_host(), NULL, &link, NULL) == 0 &&
	       link.dev_type == ARPHRD_INFINIBAND &&
	       origin_has_guid(addr_ipoib_of(link.src_dev_addr), &way->own);
}

static bool origin_holds_on_infiniband(const struct cma_request_way *way, const union ib_gid *from,
				       const union ib_gid *to)
{
	static const union ib_gid unsaid;
	bool here = origin_lid_is_here(way->lid);
	struct node_hostip host;
	union ib_gid gid;
	u32 ifindex;
	int err;

	if (!origin_is_to_here(way, here, to, &ifindex))
		return false;
	err = node_hostip_find(from->raw, &host);
	if (err == 0) /* a SIDR_REQ inside a subnet names no GID */
		return origin_is_same(&way->peer, &unsaid) ? host.own == here
							   : origin_has_guid(host.gid, &way->peer);
	if (here && err == -EADDRNOTAVAIL &&
	    (origin_is_loopback(from) || cma_ipoib_port_gid(from->raw, 0, &gid) == 0))
		return true;
	return origin_is_routed(way, from, to, ifindex);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

bool cma_origin_holds(const struct ib_device *device, const struct cma_request_way *way,
		      const struct rdma_addr *claimed)
{
	union ib_gid from, to;
	bool infiniband;

	cma_addr_gid(cma_addr(&claimed->dst_addr), &from);
	cma_addr_gid(cma_addr(&claimed->src_addr), &to);
	lock_acquire(&cma.lock);
	infiniband = cma_is_infiniband(device);
	lock_release(&cma.lock);
	return infiniband ? origin_holds_on_infiniband(way, &from, &to)
			  : origin_holds_on_roce(way, &from, &to);
}
