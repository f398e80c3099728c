/* resolve.c: binding an id to an address, and finding the way from there to another one.
 * In:    socket addresses; routes and neighbours   Out: devices, GIDs and paths; ADDR_*, ROUTE_*
 * Runs:  consumers' threads; a neighbour is waited for, and results are told, on work queues
 * Locks: cma.lock
 */
#include <errno.h>
#include <string.h>

#include "addr/addr.h"
#include "cm/rdma/cma_priv.h"
#include "node/hostip.h"
#include "node/node.h"

/* ---- binding --------------------------------------------------------------------------------- */

static enum node_port_space resolve_space(enum rdma_port_space ps)
{
	switch (ps) {
	case RDMA_PS_TCP:
		return NODE_PORT_TCP;
	case RDMA_PS_UDP:
		return NODE_PORT_UDP;
	case RDMA_PS_IPOIB:
		return NODE_PORT_IPOIB;
	default:
		return NODE_PORT_IB;
	}
}

static int resolve_take_port(struct cma_id *id, enum rdma_port_space ps,
			     const struct sockaddr *addr)
{
	struct cma_options options = cma_options_of(id);
	struct node_port_want want = { .space = resolve_space(ps),
				       .port = cma_addr_port(addr),
				       .addr = addr,
				       .v6only = options.afonly,
				       .shared = options.reuse };
	int err = id->user && want.port != 0 ? node_port_permit(want.port) : 0;

	return err == 0 ? node_port_take(&id->port, &want) : err;
}

/* No device has the address: does the host? */
static int resolve_absent(const union ib_gid *gid, const struct sockaddr *addr)
{
	u32 ifindex;
	int err = host_address_find(gid->raw, addr_scope(addr), &ifindex);

	return err == 0 ? -ENODEV : err;
}

/* Binds to the device that has the address. A loopback address that none has stands for this node:
 * as with the wildcard the id has no device before it is resolved, and listens on all of them.
 * libfabric asks for the addresses of the devices only if an id of 127.0.0.1 has none. */
static int resolve_bind_device(struct cma_id *id, const struct sockaddr *addr)
{
	union ib_gid gid;
	int err = cma_addr_port_gid(addr, &gid);

	if (err < 0)
		return err;
	err = cma_bind_gid(id, &gid);
	if (err < 0)
		err = cma_addr_is_loopback(addr) ? 0 : resolve_absent(&gid, addr);
	return err;
}

/* An id of a loopback address that no device has goes out of the first one. */
static int resolve_bind_loopback(struct cma_id *id)
{
	const struct sockaddr *addr = cma_addr(&id->id.route.addr.src_addr);
	union ib_gid gid;

	if (!cma_addr_is_loopback(addr) || cma_device_is_bound(id))
		return 0;
	return cma_bind_first(id, addr->sa_family == AF_INET, &gid);
}

static void resolve_unbind(struct cma_id *id)
{
	lock_acquire(&cma.lock);
	id->id.device = NULL;
	id->id.port_num = 0;
	lock_release(&cma.lock);
}

/* Its port numbers are those of IP addresses: a GID counts as an IPv6 address, the wildcard of
 * AF_IB for all. */
static int resolve_take_af_ib_port(struct cma_id *id)
{
	const struct sockaddr_storage *src = &id->id.route.addr.src_addr;
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
	enum rdma_port_space ps;
	union ib_gid gid;
	int err = cma_af_ib_take_space(id, &ps);

	if (err < 0)
		return err;
	cma_addr_gid(cma_addr(src), &gid);
	if (!cma_addr_is_any(cma_addr(src)))
		memcpy(&sin6.sin6_addr, gid.raw, sizeof(gid.raw));
	sin6.sin6_port = htons(cma_addr_port(cma_addr(src)));
	return resolve_take_port(id, ps, (const struct sockaddr *)&sin6);
}

static int resolve_bind_af_ib(struct cma_id *id, const struct sockaddr *addr)
{
	struct sockaddr_storage *src = &id->id.route.addr.src_addr;
	struct sockaddr_ib sib;
	int err = 0;

	cma_addr_copy(src, addr);
	sib = cma_af_ib(src);
	if (!cma_addr_is_any(addr))
		err = cma_af_ib_bind(id, &sib);
	if (err == 0)
		err = resolve_take_af_ib_port(id);
	if (err < 0) {
		resolve_unbind(id);
		memset(src, 0, sizeof(*src));
		return err;
	}
	cma_addr_set_port(src, id->port.port);
	return 0;
}

int cma_bind(struct cma_id *id, const struct sockaddr *addr)
{
	int err = 0;

	if (!cma_family_is_known(addr))
		return -EAFNOSUPPORT;
	if (addr->sa_family == AF_IB)
		return resolve_bind_af_ib(id, addr);
	if (cma_addr_lacks_scope(addr))
		return -EINVAL;
	if (!cma_addr_is_any(addr))
		err = resolve_bind_device(id, addr);
	if (err == 0)
		err = resolve_take_port(id, id->id.ps, addr);
	if (err < 0) {
		resolve_unbind(id);
		return err;
	}
	cma_addr_copy(&id->id.route.addr.src_addr, addr);
	cma_addr_set_port(&id->id.route.addr.src_addr, id->port.port);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *cm_id, struct sockaddr *addr)
{
	struct cma_id *id = cma_id(cm_id);
	int err;

	if (cm_id == NULL || addr == NULL)
		return -EINVAL;
	if (!cma_family_is_known(addr))
		return -EAFNOSUPPORT;
	if (!cma_move(id, CMA_IDLE, CMA_ADDR_BOUND))
		return -EINVAL;
	err = cma_bind(id, addr);
	if (err < 0)
		cma_move(id, CMA_ADDR_BOUND, CMA_IDLE);
	return err;
}

/* ---- the way --------------------------------------------------------------------------------- */

static bool resolve_is_loopback_gid(const union ib_gid *gid)
{
	struct sockaddr_storage addr;

	cma_addr_from_gid(&addr, gid);
	return cma_addr_is_loopback(cma_addr(&addr));
}

/* 127.0.0.1 or ::1, which stand for this node wherever it has its addresses. */
static bool resolve_is_localhost(const struct sockaddr *addr)
{
	struct sockaddr_in sin;

	if (addr->sa_family != AF_INET)
		return cma_addr_is_loopback(addr);
	memcpy(&sin, addr, sizeof(sin));
	return sin.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

/* A loopback address that no device of this node shows: another node's, if this one's is a loopback
 * address, too. 127.0.0.1 and ::1, and all of them if it is not, stand for this node's own first
 * address. */
static int resolve_loopback(struct cma_id *id, const struct sockaddr *to)
{
	struct rdma_addr *addr = &id->id.route.addr;
	union ib_gid gid, there;
	int err = 0;

	if (!cma_device_is_bound(id))
		err = cma_bind_first(id, to->sa_family == AF_INET, &gid);
	else
		gid = addr->sgid;
	if (err != 0)
		return err;
	cma_addr_gid(to, &there);
	addr->dgid = resolve_is_loopback_gid(&gid) && !resolve_is_localhost(to) ? there : gid;
	return 0;
}

/* The interface that a link-local address of either side names. */
static u32 resolve_scope(const struct rdma_addr *addr)
{
	u32 scope = addr_scope(cma_addr(&addr->dst_addr));

	return scope != 0 ? scope : addr_scope(cma_addr(&addr->src_addr));
}

/* The source's address without its port, which is known already. Both ends of a connection to a
 * loopback address have it, unless the device has one of its own in the same family: the header in
 * front of the private data has one version of IP for both. */
static void resolve_set_source(struct cma_id *id, const struct sockaddr *to, bool loopback,
			       u32 ifindex)
{
	struct sockaddr_storage *src = &id->id.route.addr.src_addr;
	const union ib_gid *from = &id->id.route.addr.sgid;
	u16 port = cma_addr_port(cma_addr(src));
	u32 scope = addr_scope(to);

	if (!cma_addr_is_any(cma_addr(src)))
		return;
	if (loopback && (to->sa_family == AF_INET6 || !resolve_is_loopback_gid(from)))
		cma_addr_copy(src, to);
	else
		cma_addr_of_port(src, from);
	cma_addr_set_port(src, port);
	/* the way to an address of this host leads through the loopback interface */
	cma_addr_set_scope(src, scope != 0 ? scope : ifindex);
}

/* The source that the way must have: an InfiniBand port's GID is no address of IP. False: any. */
static bool resolve_source(struct cma_id *id, union ib_gid *from)
{
	const struct rdma_addr *addr = &id->id.route.addr;

	if (!cma_device_is_bound(id))
		return false;
	*from = addr->sgid;
	if (cma_ipoib_is_port(&addr->sgid))
		cma_addr_gid(cma_addr(&addr->src_addr), from);
	return true;
}

/* Binds to the device that has the source's address, or to the port of its IPoIB interface. */
static int resolve_bind_source(struct cma_id *id, const struct addr_way *way)
{
	struct sockaddr_storage *src = &id->id.route.addr.src_addr;
	u16 port = cma_addr_port(cma_addr(src));
	union ib_gid from, ip;

	memcpy(ip.raw, way->route.source, 16);
	from = ip;
	if (node_hostip_find(ip.raw, &(struct node_hostip){ .own = false }) == -EADDRNOTAVAIL &&
	    cma_ipoib_port_gid(ip.raw, way->route.local ? 0 : way->route.ifindex, &from) == 0 &&
	    cma_addr_is_any(cma_addr(src))) {
		cma_addr_from_gid(src, &ip);
		cma_addr_set_port(src, port);
	}
	return cma_bind_gid(id, &from);
}

/* Binds the id to the device that leads to its destination. */
static int resolve_route(struct cma_id *id, struct addr_way *way)
{
	struct rdma_addr *addr = &id->id.route.addr;
	union ib_gid to, from;
	bool bound = resolve_source(id, &from);
	int err;

	cma_addr_gid(cma_addr(&addr->dst_addr), &to);
	err = addr_route(addr_host(), to.raw, bound ? from.raw : NULL, resolve_scope(addr), way);
	if (err == 0 && !bound)
		err = resolve_bind_source(id, way);
	if (err == 0)
		addr->dgid = cma_ipoib_is_port(&addr->sgid) ? addr->sgid : to;
	return err;
}

/* What the host lacks says nothing of the address. */
static bool resolve_is_shortage(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -ENOBUFS;
}

/* To a host of the fabric, from another one. -EADDRNOTAVAIL, -ENODEV: it is none. */
static int resolve_host(struct cma_id *id, const struct sockaddr *to)
{
	struct node_hostip host;
	union ib_gid gid;
	int err;

	cma_addr_gid(to, &gid);
	err = node_hostip_find(gid.raw, &host);
	if (err == 0 && !cma_device_is_bound(id))
		err = cma_bind_first(id, true, &gid);
	if (err != 0)
		return err;
	memcpy(id->id.route.addr.dgid.raw, host.gid, sizeof(host.gid));
	resolve_set_source(id, to, false, 0);
	return 0;
}

/* To a multicast group, from a port of InfiniBand: no route leads there but the port's own fabric.
 * Errors as resolve_host. */
static int resolve_group(struct cma_id *id, const struct sockaddr *to)
{
	struct node_hostip host;
	union ib_gid gid, from;
	int err;

	cma_addr_gid(to, &gid);
	err = node_hostip_find(gid.raw, &host);
	if (err == -ENODEV || !node_is_mcast(gid.raw))
		return -EADDRNOTAVAIL;
	err = cma_device_is_bound(id) ? 0 : cma_bind_first(id, true, &from);
	if (err != 0)
		return err;
	cma_mcast_ib_gid(id, to, &id->id.route.addr.dgid);
	resolve_set_source(id, to, false, 0);
	return 0;
}

/* Finds the device, the source and the link's address of the destination. -ENODATA: its neighbour
 * is not known yet. */
static int resolve_way(struct cma_id *id, struct addr_way *way)
{
	const struct sockaddr *to = cma_addr(&id->id.route.addr.dst_addr);
	int err = resolve_group(id, to);
	bool remote;

	if (err == -EADDRNOTAVAIL)
		err = resolve_host(id, to);

	if (err != -EADDRNOTAVAIL && err != -ENODEV)
		return err;
	err = resolve_route(id, way);
	remote = err == 0 && !way->route.local;

	/* from a source that is bound the host has a route to localhost, too */
	if (err == 0 && resolve_is_localhost(to) && !cma_gid_is_known(&id->id.route.addr.dgid))
		err = -ENODEV;
	if (err != 0 && !resolve_is_shortage(err) && cma_addr_is_loopback(to))
		err = resolve_loopback(id, to);
	if (err != 0)
		return err;
	resolve_set_source(id, to, cma_addr_is_loopback(to), way->route.ifindex);
	if (!remote)
		return 0;
	err = addr_link(addr_host(), way, &id->dev_addr);
	return err == 0 ? cma_ipoib_take_way(id) : err;
}

void cma_resolve_result(struct cma_id *id, int result)
{
	lock_acquire(&cma.lock);
	id->result = result;
	lock_release(&cma.lock);
	work_push(&id->work);
}

/* The neighbour is known, or time is up. */
static void resolve_found(int status, struct sockaddr *src_addr, struct rdma_dev_addr *addr,
			  void *context)
{
	(void)src_addr;
	(void)addr;
	cma_resolve_result(context, status == 0 ? cma_ipoib_take_way(context) : status);
}

/* The wildcard as a destination is this host, as it is to a socket. */
static void resolve_set_destination(struct cma_id *id, const struct sockaddr *to)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_storage *dst = &id->id.route.addr.dst_addr;

	if (!cma_addr_is_any(to)) {
		cma_addr_copy(dst, to);
		return;
	}
	cma_addr_copy(dst, to->sa_family == AF_INET ? (const void *)&sin : (const void *)&sin6);
	cma_addr_set_port(dst, cma_addr_port(to));
}

/* What the routes say is the call's own result; that no device leads there, and all that takes
 * time, is an event's. */
static int resolve_begin(struct cma_id *id, const struct sockaddr *to, int timeout_ms)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	struct addr_way way;
	int err;

	if (addr->src_addr.ss_family != to->sa_family)
		return -EINVAL;
	if (to->sa_family == AF_IB) {
		err = cma_af_ib_resolve(id, to);
		if (err == 0)
			cma_resolve_result(id, 0);
		return err;
	}
	err = resolve_bind_loopback(id);
	if (err != 0)
		return err;
	resolve_set_destination(id, to);
	err = resolve_way(id, &way);
	if (err == -ENODATA)
		return addr_wait(addr_host(), NULL, &way, &id->dev_addr, timeout_ms, resolve_found,
				 id);
	if (err != 0 && (err != -ENODEV || cma_addr_is_any(to)))
		return err;
	cma_resolve_result(id, err);
	return 0;
}

/* The wildcard of AF_IB, in the partition of the destination. */
static void resolve_any_of_partition(struct sockaddr_storage *any, const struct sockaddr *to)
{
	struct sockaddr_ib sib, from = { .sib_family = AF_IB };

	memcpy(&sib, to, sizeof(sib));
	from.sib_pkey = sib.sib_pkey;
	memcpy(any, &from, sizeof(from));
}

int rdma_resolve_addr(struct rdma_cm_id *cm_id, struct sockaddr *src_addr,
		      struct sockaddr *dst_addr, int timeout_ms)
{
	struct cma_id *id = cma_id(cm_id);
	struct sockaddr_storage any = { 0 };
	const struct sockaddr *from = cma_addr(&any);
	int err = 0;

	if (cm_id == NULL || dst_addr == NULL)
		return -EINVAL;
	any.ss_family = dst_addr->sa_family;
	if (!cma_family_is_known(dst_addr))
		return -EAFNOSUPPORT;
	if (dst_addr->sa_family == AF_IB)
		resolve_any_of_partition(&any, dst_addr);
	if (src_addr != NULL && cma_family_is_known(src_addr))
		from = src_addr;
	if (cma_move(id, CMA_IDLE, CMA_ADDR_QUERY))
		err = cma_bind(id, from);
	else if (!cma_move(id, CMA_ADDR_BOUND, CMA_ADDR_QUERY))
		return -EINVAL;
	if (err < 0) {
		cma_move(id, CMA_ADDR_QUERY, CMA_IDLE);
		return err;
	}
	err = resolve_begin(id, dst_addr, timeout_ms);
	if (err < 0)
		cma_move(id, CMA_ADDR_QUERY, CMA_ADDR_BOUND);
	return err;
}

/* ---- the path -------------------------------------------------------------------------------- */

int rdma_resolve_route(struct rdma_cm_id *cm_id, int timeout_ms)
{
	struct cma_id *id = cma_id(cm_id);
	int err;

	if (cm_id == NULL || timeout_ms == 0 || !cma_move(id, CMA_ADDR_RESOLVED, CMA_ROUTE_QUERY))
		return -EINVAL;
	err = cma_path_find(id, timeout_ms);
	if (err != 0)
		cma_move(id, CMA_ROUTE_QUERY, CMA_ADDR_RESOLVED);
	return err;
}

int rdma_set_ib_paths(struct rdma_cm_id *cm_id, struct ib_sa_path_rec *path_rec, int num_paths)
{
	struct cma_id *id = cma_id(cm_id);

	if (num_paths < 1 || num_paths > 2)
		return -EINVAL;
	if (!cma_move(id, CMA_ADDR_RESOLVED, CMA_ROUTE_RESOLVED))
		return -EINVAL;
	memcpy(id->path, path_rec, (size_t)num_paths * sizeof(*path_rec));
	cm_id->route.path_rec = id->path;
	cm_id->route.num_paths = num_paths;
	return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Begins the turn in which the result is told: the state that it leads to. */
static bool resolve_enter(struct cma_id *id, int *result, struct rdma_cm_event *event)
{
	bool addr = cma_is_in(id, CMA_ADDR_QUERY);

	lock_acquire(&cma.lock);
	*result = id->result;
	lock_release(&cma.lock);
	event->status = *result;
	if (addr) {
		event->event = *result == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED
					    : RDMA_CM_EVENT_ADDR_ERROR;
		return cma_enter_to(id, CMA_ADDR_QUERY,
				    *result == 0 ? CMA_ADDR_RESOLVED : CMA_ADDR_BOUND);
	}
	event->event = *result == 0 ? RDMA_CM_EVENT_ROUTE_RESOLVED : RDMA_CM_EVENT_ROUTE_ERROR;
	return cma_enter_to(id, CMA_ROUTE_QUERY,
			    *result == 0 ? CMA_ROUTE_RESOLVED : CMA_ADDR_RESOLVED);
}

void cma_resolved(struct work *w)
{
	struct cma_id *id = container_of(w, struct cma_id, work);
	struct rdma_cm_event event = { .status = 0 };
	bool destroy;
	int result;

	if (!resolve_enter(id, &result, &event))
		return;
	destroy = cma_tell(id, &event) != 0;
	cma_leave(id);
	if (destroy)
		rdma_destroy_id(&id->id);
}
