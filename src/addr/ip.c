/* ip.c: the calls of ib_addr.h, over the instance of this process.
 * In:    socket addresses          Out: ways, MACs, VLANs
 * Runs:  any thread                Locks: addr_instance.lock
 */
#include <errno.h>
#include <limits.h>
#include <net/if_arp.h>
#include <string.h>

#include "addr/addr.h"

int rdma_addr_size(struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

u32 addr_scope(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	if (addr->sa_family != AF_INET6)
		return 0;
	memcpy(&sin6, addr, sizeof(sin6));
	return IN6_IS_ADDR_LINKLOCAL(&sin6.sin6_addr) || IN6_IS_ADDR_MC_LINKLOCAL(&sin6.sin6_addr)
		       ? sin6.sin6_scope_id
		       : 0;
}

/* IPv4's wildcard as a GID. */
static bool addr_is_v4_wildcard(const union ib_gid *gid)
{
	static const u8 any[16] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, any, sizeof(any)) == 0;
}

void rdma_addr_register_client(struct rdma_addr_client *client)
{
	client->requests = 0;
}

void rdma_addr_unregister_client(struct rdma_addr_client *client)
{
	addr_client_wait(addr_host(), client);
}

void rdma_addr_cancel(struct rdma_dev_addr *addr)
{
	addr_cancel(addr_host(), addr);
}

int addr_copy(struct addr_instance *a, struct rdma_dev_addr *dev_addr, u32 ifindex,
	      const unsigned char *dst, u16 *vlan_id)
{
	struct host_link l;
	int err = ifindex == 0 || ifindex > INT_MAX ? -ENODEV : a->ops->link(ifindex, &l);

	if (err != 0)
		return err;
	memcpy(dev_addr->src_dev_addr, l.address, IB_ADDR_LEN);
	memcpy(dev_addr->broadcast, l.broadcast, IB_ADDR_LEN);
	if (dst != NULL)
		memcpy(dev_addr->dst_dev_addr, dst, IB_ADDR_LEN);
	dev_addr->dev_type = l.type;
	dev_addr->bound_dev_if = (int)ifindex;
	if (vlan_id != NULL)
		*vlan_id = l.vlan_id;
	return 0;
}

int rdma_copy_addr(struct rdma_dev_addr *dev_addr, int ifindex, const unsigned char *dst_dev_addr)
{
	return addr_copy(addr_host(), dev_addr, (u32)ifindex, dst_dev_addr, NULL);
}

int addr_translate(struct addr_instance *a, const struct sockaddr *addr,
		   struct rdma_dev_addr *dev_addr, u16 *vlan_id)
{
	u32 ifindex = (u32)dev_addr->bound_dev_if;
	union ib_gid gid;
	int err = 0;

	if (ifindex == 0)
		err = rdma_ip2gid(addr, &gid);
	if (err == 0 && ifindex == 0)
		err = a->ops->address(gid.raw, addr_scope(addr), &ifindex);
	return err == 0 ? addr_copy(a, dev_addr, ifindex, NULL, vlan_id) : err;
}

int addr_ipoib_find(struct addr_instance *a, const u8 ip[16], u32 scope, u32 *ifindex, u8 gid[16])
{
	struct host_link l;
	u32 found = 0;
	int err = a->ops->address(ip, scope, &found);

	if (err == 0)
		err = a->ops->link(found, &l);
	if (err == 0 && l.type != ARPHRD_INFINIBAND)
		err = -ENODEV;
	if (err != 0)
		return err;
	memcpy(gid, addr_ipoib_of(l.address), 16);
	*ifindex = found;
	return 0;
}

int addr_ipoib_gid(struct addr_instance *a, const u8 ip[16], u32 scope, u8 gid[16])
{
	u32 ifindex;

	return addr_ipoib_find(a, ip, scope, &ifindex, gid);
}

int rdma_translate_ip(struct sockaddr *addr, struct rdma_dev_addr *dev_addr, u16 *vlan_id)
{
	return addr_translate(addr_host(), addr, dev_addr, vlan_id);
}

int addr_resolve(struct addr_instance *a, struct rdma_addr_client *client,
		 const struct sockaddr *src_addr, const struct sockaddr *dst_addr,
		 struct rdma_dev_addr *addr, int timeout_ms,
		 void (*callback)(int status, struct sockaddr *src_addr,
				  struct rdma_dev_addr *addr, void *context),
		 void *context)
{
	u32 ifindex = addr->bound_dev_if != 0 ? (u32)addr->bound_dev_if : addr_scope(dst_addr);
	union ib_gid to, from = { .raw = { 0 } };
	struct addr_way way;
	int err = rdma_ip2gid(dst_addr, &to);

	if (err == 0 && src_addr != NULL)
		err = src_addr->sa_family == dst_addr->sa_family ? rdma_ip2gid(src_addr, &from)
								 : -EINVAL;
	if (err == 0 && addr_is_v4_wildcard(&from))
		memset(&from, 0, sizeof(from));
	if (err == 0 && ifindex == 0 && src_addr != NULL)
		ifindex = addr_scope(src_addr);
	if (err == 0)
		err = addr_route(a, to.raw, from.raw, ifindex, &way);
	if (err != 0)
		return err;
	return addr_wait(a, client, &way, addr, timeout_ms, callback, context);
}

int rdma_resolve_ip(struct rdma_addr_client *client, struct sockaddr *src_addr,
		    struct sockaddr *dst_addr, struct rdma_dev_addr *addr, int timeout_ms,
		    void (*callback)(int status, struct sockaddr *src_addr,
				     struct rdma_dev_addr *addr, void *context),
		    void *context)
{
	return addr_resolve(addr_host(), client, src_addr, dst_addr, addr, timeout_ms, callback,
			    context);
}
