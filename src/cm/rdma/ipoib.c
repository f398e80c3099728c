/* ipoib.c: addresses of IPoIB interfaces, for a process on a host of a fabric: which port an
 * address stands for, and which GID a neighbour has. What the kernel says of the interface and of
 * its neighbours decides: it goes with the program that carries the interface (src/ulp/ipoib).
 * In:    addresses, ways    Out: GIDs
 * Runs:  consumers' threads, the queue of addresses    Locks: none
 */
#include <errno.h>
#include <net/if_arp.h>
#include <string.h>

#include "addr/addr.h"
#include "cm/rdma/cma_priv.h"
#include "node/hostip.h"

bool cma_ipoib_is_port(const union ib_gid *gid)
{
	u32 port;

	return node_hostip_port(gid->raw, &port) == 0;
}

int cma_ipoib_port_gid(const u8 ip[16], u32 scope, union ib_gid *out)
{
	union ib_gid gid;
	int err = addr_ipoib_gid(addr_host(), ip, scope, gid.raw);

	if (err == 0 && !cma_ipoib_is_port(&gid))
		err = -ENODEV; /* of another host, in the same network namespace */
	if (err == 0)
		*out = gid;
	return err;
}

int cma_ipoib_take_way(struct cma_id *id)
{
	struct rdma_addr *addr = &id->id.route.addr;

	if (!cma_ipoib_is_port(&addr->sgid))
		return 0;
	if (id->dev_addr.dev_type != ARPHRD_INFINIBAND)
		return -ENODEV;
	memcpy(addr->dgid.raw, addr_ipoib_of(id->dev_addr.dst_dev_addr), sizeof(addr->dgid.raw));
	return 0;
}
