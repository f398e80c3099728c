/* resolve.c: binding an id to an address, and finding the way from there to another one.
 * In:    socket addresses, the host's routes      Out: devices, GIDs and paths; ADDR_*, ROUTE_*
 * Runs:  consumers' threads; results are told on the work queue
 * Locks: cma.lock
 */
#include <errno.h>
#include <string.h>

#include "cm/rdma/cma_priv.h"
#include "node/netroute.h"

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

static int resolve_take_port(struct cma_id *id, const struct sockaddr *addr)
{
	struct node_port_want want = { .space = resolve_space(id->id.ps),
				       .port = cma_addr_port(addr),
				       .addr = addr,
				       .v6only = id->afonly,
				       .shared = id->reuse };

	return node_port_take(&id->port, &want);
}

/* Binds to the device that has the address. */
static int resolve_bind_device(struct cma_id *id, const struct sockaddr *addr)
{
	union ib_gid gid;
	int err;

	cma_addr_gid(addr, &gid);
	err = cma_bind_gid(id, &gid);
	if (err < 0 && cma_addr_is_loopback(addr))
		err = cma_bind_first(id, addr->sa_family == AF_INET, &gid);
	return err;
}

int cma_bind(struct cma_id *id, const struct sockaddr *addr)
{
	int err = 0;

	if (!cma_family_is_known(addr))
		return -EAFNOSUPPORT;
	if (!cma_addr_is_any(addr))
		err = resolve_bind_device(id, addr);
	if (err == 0)
		err = resolve_take_port(id, addr);
	if (err < 0) {
		lock_acquire(&cma.lock);
		id->id.device = NULL;
		id->id.port_num = 0;
		lock_release(&cma.lock);
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

/* A loopback address that no device of this node shows: another node's, if this one's is a loopback
 * address, too. 127.0.0.1 and ::1, and all of them if it is not, stand for this node's own first
 * address. */
static int resolve_loopback(struct cma_id *id, const struct sockaddr *to)
{
	static const union ib_gid localhost = {
		.raw = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 }
	};
	struct rdma_addr *addr = &id->id.route.addr;
	union ib_gid gid, there;
	int err = 0;

	if (id->id.device == NULL)
		err = cma_bind_first(id, to->sa_family == AF_INET, &gid);
	else
		gid = addr->sgid;
	if (err != 0)
		return err;
	cma_addr_gid(to, &there);
	addr->dgid = to->sa_family == AF_INET && resolve_is_loopback_gid(&gid) &&
				     memcmp(&there, &localhost, sizeof(there)) != 0
			     ? there
			     : gid;
	return 0;
}

/* The source that the host's routes prefer. */
static int resolve_source(struct cma_id *id, const union ib_gid *to, u32 scope, union ib_gid *from)
{
	struct node_route route;
	bool bound = id->id.device != NULL;
	int err = node_route_find(to->raw, bound ? id->id.route.addr.sgid.raw : NULL, scope,
				  &route);

	if (err == 0 && !bound)
		memcpy(from->raw, route.source, 16);
	return err;
}

static u32 resolve_scope(const struct sockaddr *addr)
{
	struct sockaddr_in6 sin6;

	if (addr->sa_family != AF_INET6)
		return 0;
	memcpy(&sin6, addr, sizeof(sin6));
	return IN6_IS_ADDR_LINKLOCAL(&sin6.sin6_addr) ? sin6.sin6_scope_id : 0;
}

/* The source's address without its port, which is known already. */
static void resolve_set_source(struct cma_id *id, const struct sockaddr *to,
			       const union ib_gid *from)
{
	struct sockaddr_storage *src = &id->id.route.addr.src_addr;
	u16 port = cma_addr_port(cma_addr(src));

	if (!cma_addr_is_any(cma_addr(src)))
		return;
	if (cma_addr_is_loopback(to) && !resolve_is_loopback_gid(from))
		cma_addr_copy(src, to);
	else
		cma_addr_from_gid(src, from);
	cma_addr_set_port(src, port);
}

/* Binds the id to the device that leads to its destination. */
static int resolve_way(struct cma_id *id)
{
	const struct sockaddr *to = cma_addr(&id->id.route.addr.dst_addr);
	union ib_gid dgid, sgid;
	int err;

	cma_addr_gid(to, &dgid);
	memset(&sgid, 0, sizeof(sgid));
	err = resolve_source(id, &dgid, resolve_scope(to), &sgid);
	if (err == 0 && id->id.device == NULL)
		err = cma_bind_gid(id, &sgid);
	if (err == 0)
		id->id.route.addr.dgid = dgid;
	else if (cma_addr_is_loopback(to))
		err = resolve_loopback(id, to);
	if (err == 0)
		resolve_set_source(id, to, &id->id.route.addr.sgid);
	return err;
}

int rdma_resolve_addr(struct rdma_cm_id *cm_id, struct sockaddr *src_addr,
		      struct sockaddr *dst_addr, int timeout_ms)
{
	struct sockaddr_storage any = { .ss_family = dst_addr->sa_family };
	struct cma_id *id = cma_id(cm_id);
	const struct sockaddr *from = cma_addr(&any);
	int err = 0;

	if (!cma_family_is_known(dst_addr))
		return -EAFNOSUPPORT;
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
	cma_addr_copy(&id->id.route.addr.dst_addr, dst_addr);
	err = resolve_way(id);
	lock_acquire(&cma.lock);
	id->result = err;
	lock_release(&cma.lock);
	work_push(&id->work);
	return 0;
}

/* ---- the path -------------------------------------------------------------------------------- */

/* RoCE has no subnet administrator: the path is made of what both ends know. */
static int resolve_path(struct cma_id *id)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	struct ib_sa_path_rec *path = &id->path[0];
	struct ib_port_attr port;
	int err;

	if (id->id.device == NULL)
		return -ENODEV;
	err = ib_query_port(id->id.device, id->id.port_num, &port);
	if (err < 0)
		return err;
	if (port.state != IB_PORT_ACTIVE)
		return -ENETDOWN;
	*path = (struct ib_sa_path_rec){
		.dgid = addr->dgid,
		.sgid = addr->sgid,
		.hop_limit = CMA_HOP_LIMIT,
		.traffic_class = id->tos,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htobe16(CMA_PKEY),
		.mtu_selector = IB_SA_EQ,
		.mtu = (u8)port.active_mtu,
		.rate_selector = IB_SA_EQ,
		.rate = IB_RATE_PORT_CURRENT,
		.packet_life_time_selector = IB_SA_EQ,
		.packet_life_time = CMA_PACKET_LIFETIME,
	};
	id->id.route.path_rec = path;
	id->id.route.num_paths = 1;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *cm_id, int timeout_ms)
{
	struct cma_id *id = cma_id(cm_id);
	int err;

	if (!cma_move(id, CMA_ADDR_RESOLVED, CMA_ROUTE_QUERY))
		return -EINVAL;
	err = resolve_path(id);
	lock_acquire(&cma.lock);
	id->result = err;
	lock_release(&cma.lock);
	work_push(&id->work);
	return 0;
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
