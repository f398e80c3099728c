/* af_ib.c: InfiniBand's own addresses (AF_IB): port spaces in service IDs, devices by GID, and the
 * ways between GIDs, which need no route of the host.
 * In:    socket addresses of AF_IB, GIDs and P_Keys of devices    Out: devices, ports, GIDs
 * Runs:  consumers' threads; may block                            Locks: cma.lock
 */
#include <errno.h>
#include <rdma/ib_cache.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"

struct sockaddr_ib cma_af_ib(const struct sockaddr_storage *addr)
{
	struct sockaddr_ib sib;

	memcpy(&sib, addr, sizeof(sib));
	return sib;
}

/* ---- port spaces ----------------------------------------------------------------------------- */

/* The space of a service ID that agrees in the known bits; of several, the id's own is first. */
static u64 cma_af_ib_space(enum rdma_port_space ps, u64 sid, u64 mask)
{
	static const struct {
		u64 space;
		enum rdma_port_space ps;
	} FIXED spaces[] = { { RDMA_IB_IP_PS_IB, RDMA_PS_IB },
		       { RDMA_IB_IP_PS_TCP, RDMA_PS_TCP },
		       { RDMA_IB_IP_PS_UDP, RDMA_PS_UDP } };

	mask &= RDMA_IB_IP_PS_MASK;
	for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
		if ((ps == RDMA_PS_IB || ps == spaces[i].ps) &&
		    (sid & mask) == (spaces[i].space & mask))
			return spaces[i].space;
	return 0;
}

int cma_af_ib_take_space(struct cma_id *id, enum rdma_port_space *ps)
{
	struct sockaddr_storage *src = &id->id.route.addr.src_addr;
	struct sockaddr_ib sib = cma_af_ib(src);
	u64 mask = be64toh(sib.sib_sid_mask);
	u64 space = cma_af_ib_space(id->id.ps, be64toh(sib.sib_sid), mask);

	if (space == 0)
		return -EPROTONOSUPPORT;
	sib.sib_sid = htobe64(space | cma_addr_port(cma_addr(src)));
	sib.sib_sid_mask = htobe64(mask | RDMA_IB_IP_PS_MASK);
	memcpy(src, &sib, sizeof(sib));
	*ps = (enum rdma_port_space)(space >> 16);
	return 0;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void cma_af_ib_set_pkey(struct cma_id *id, const struct sockaddr_ib *sib)
{
	lock_acquire(&cma.lock);
	id->id.route.addr.pkey = be16toh(sib->sib_pkey);
	lock_release(&cma.lock);
}

int cma_af_ib_bind(struct cma_id *id, const struct sockaddr_ib *sib)
{
	int err = cma_bind_gid(id, &sib->sib_addr);
	struct cma_device *d;

	if (err < 0)
		return err;
	d = cma_device_hold(id);
	err = d != NULL && d->infiniband ? 0 : -ENODEV; /* an address of RoCE is one of IP */
	cma_device_release(d);
	if (err == 0)
		cma_af_ib_set_pkey(id, sib);
	return err;
}

/* Does the port lead to the GID: by itself, or by its subnet? */
static bool cma_af_ib_leads(struct ib_device *device, u8 port, const struct sockaddr_ib *to,
			    union ib_gid *from)
{
	struct ib_port_attr attr;
	union ib_gid gid;
	u16 index;

	if (ib_find_cached_pkey(device, port, be16toh(to->sib_pkey), &index) != 0 ||
	    ib_query_port(device, port, &attr) != 0)
		return false;
	for (int i = 0; ib_get_cached_gid(device, port, i, &gid) == 0; i++) {
		bool same = memcmp(&gid, &to->sib_addr, sizeof(gid)) == 0;
		bool subnet = attr.state == IB_PORT_ACTIVE &&
			      memcmp(gid.raw, to->sib_addr.raw, 8) == 0;

		if (!same && !subnet)
			continue;
		*from = gid;
		return true;
	}
	return false;
}

/* Binds the id to the first port that leads to the GID. */
static int cma_af_ib_find(struct cma_id *id, const struct sockaddr_ib *to)
{
	struct cma_device *d;
	union ib_gid from;
	int err = -ENODEV;

	for (u32 i = 0; err != 0 && (d = cma_device_hold_at(i)) != NULL; i++) {
		for (u8 port = 1; err != 0 && port <= d->device->phys_port_cnt; port++) {
			if (!cma_af_ib_leads(d->device, port, to, &from))
				continue;
			cma_bind_device(id, d->device, port, &from);
			err = 0;
		}
		cma_device_release(d);
	}
	if (err == 0)
		cma_af_ib_set_pkey(id, to);
	return err;
}

/* The wildcard as a destination is the id's own port. */
static int cma_af_ib_loopback(struct cma_id *id)
{
	struct rdma_addr *addr = &id->id.route.addr;
	struct sockaddr_ib src = cma_af_ib(&addr->src_addr);
	union ib_gid gid;
	int err = cma_device_is_bound(id) ? 0 : cma_bind_first(id, false, &gid);

	if (err < 0)
		return err;
	addr->dgid = addr->sgid;
	if (cma_addr_is_any(cma_addr(&addr->src_addr))) {
		src.sib_addr = (union ib_gid){ .raw = { [15] = 1 } };
		memcpy(&addr->src_addr, &src, sizeof(src));
	}
	return 0;
}

int cma_af_ib_resolve(struct cma_id *id, const struct sockaddr *to)
{
	struct rdma_addr *addr = &id->id.route.addr;
	struct sockaddr_ib src = cma_af_ib(&addr->src_addr), dst;
	int err = 0;

	cma_addr_copy(&addr->dst_addr, to);
	if (cma_addr_is_any(to))
		return cma_af_ib_loopback(id);
	dst = cma_af_ib(&addr->dst_addr);
	if (!cma_device_is_bound(id)) {
		err = cma_af_ib_find(id, &dst);
		src.sib_addr = addr->sgid;
		if (err == 0)
			memcpy(&addr->src_addr, &src, sizeof(src));
	}
	if (err == 0)
		addr->dgid = dst.sib_addr;
	return err;
}

/* ---- requests -------------------------------------------------------------------------------- */

void cma_af_ib_of_request(const struct cma_id *listen, const struct ib_sa_path_rec *path,
			  struct rdma_addr *out)
{
	struct sockaddr_ib here = cma_af_ib(&listen->id.route.addr.src_addr);
	struct sockaddr_ib there = { .sib_family = AF_IB };

	here.sib_sid_mask = htobe64(UINT64_MAX);
	if (path != NULL) {
		here.sib_pkey = there.sib_pkey = path->pkey;
		here.sib_flowinfo = there.sib_flowinfo = path->flow_label;
		here.sib_addr = path->sgid;
		there.sib_addr = path->dgid;
		here.sib_scope_id = 0;
	}
	memset(&out->src_addr, 0, sizeof(out->src_addr));
	memset(&out->dst_addr, 0, sizeof(out->dst_addr));
	memcpy(&out->src_addr, &here, sizeof(here));
	memcpy(&out->dst_addr, &there, sizeof(there));
}
