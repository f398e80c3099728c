/* address.c: how an address vector becomes GIDs, a path and a destination.
 * In: ib_ah_attr    Out: resolved vectors, destinations
 * Runs: any context: resolving and routing do not block but for the allocation of memory; a
 * connection may ask the kernel and the node; finding a neighbour waits for it, without a lock
 * Locks: config_lock and addr_instance.lock, leaves
 */
#include "driver/roce/roce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "addr/addr.h"
#include "base/log.h"

int adapter_resolve_av(struct soft_device *soft, const struct ib_ah_attr *attr, struct path_av *av)
{
	static const u8 none[16];

	/* RoCE addresses by GID only. */
	if ((attr->ah_flags & IB_AH_GRH) == 0 || !soft_has_port(soft, attr->port_num))
		return -EINVAL;
	if (adapter_gid(adapter_of(soft), attr->grh.sgid_index, av->sgid) != 0 ||
	    memcmp(av->sgid, none, 16) == 0 ||
	    memcmp(attr->grh.dgid.raw, none, 16) == 0)
		return -EINVAL;
	memcpy(av->dgid, attr->grh.dgid.raw, 16);
	/* The sender of a datagram ignores congestion: it never claims ECT. */
	av->traffic_class = attr->grh.traffic_class & (u8)~PATH_ECN_MASK;
	av->hop_limit = attr->grh.hop_limit;
	av->flow_label = attr->grh.flow_label & 0xfffff;
	av->sl = attr->sl & 15;
	av->no_grh = false;
	av->port = attr->port_num;
	av->dlid = av->slid = 0;
	av->pkey = 0;
	av->sport = av->flow_label == 0 ? 0 : roce_sport(av->flow_label);
	return 0;
}

/* Warns once per process: a source address that no datagram leaves from shows up as timeouts
 * only. */
static void adapter_route_is_missing(const struct path_av *av)
{
	static bool told; /* atomic */
	char gid[INET6_ADDRSTRLEN];

	if (__atomic_load_n(&told, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&told, true, __ATOMIC_RELAXED);
	inet_ntop(AF_INET6, av->sgid, gid, sizeof(gid));
	log_warn("roce", "no datagram leaves this host from GID %s; `anyverbs status` says why",
		 gid);
}

static struct path_dest *adapter_route_wire(struct seat *s, const struct path_av *av, u32 qpn)
{
	struct path *path = udp_path(s->a.udp);

	if ((s->paths & SEAT_PATH_UDP) == 0 || !udp_has_source(s->a.udp, av->sgid)) {
		adapter_route_is_missing(av);
		return NULL;
	}
	return path->ops->dest_get(path, av, qpn);
}

/* Warns once per process: the ends of this node have no path in common. */
static void adapter_route_has_none(u32 qpn)
{
	static bool told; /* atomic */

	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		log_warn("roce",
			 "the process of queue pair 0x%06x takes UDP only, and this one "
			 "shared memory only (ANYVERBS_PATHS): they have no path",
			 qpn);
}

/* Shared memory gave no destination for an own address. If the slot's process takes UDP only,
 * returns one of UDP, else NULL. */
static NOINLINE struct path_dest *adapter_route_refused(struct seat *s, const struct path_av *av,
							u32 qpn)
{
	if (!shm_slot_is_wire_only(s->a.shm, qpn >> NODE_INDEX_BITS))
		return NULL;
	if ((s->paths & SEAT_PATH_UDP) != 0)
		return adapter_route_wire(s, av, qpn);
	adapter_route_has_none(qpn);
	return NULL;
}

static ALWAYS_INLINE struct path_dest *adapter_route_find(void *seat, const struct path_av *av,
							  u32 qpn)
{
	struct seat *s = seat;
	struct path *path = shm_path(s->a.shm);
	struct path_dest *dest;

	if ((s->paths & SEAT_PATH_SHM) == 0 || !adapter_is_own_gid(av->dgid))
		return adapter_route_wire(s, av, qpn);
	dest = path->ops->dest_get(path, av, qpn);
	return likely(dest != NULL) ? dest : adapter_route_refused(s, av, qpn);
}

struct path_dest *adapter_route(void *seat, const struct path_av *av, u32 qpn)
{
	return adapter_route_find(seat, av, qpn);
}

struct path_dest *adapter_route_datagram(void *seat, const struct path_av *av, const struct pkt *p)
{
	return adapter_route_find(seat, av, p->dqpn);
}

/* A node that is not the first of its network namespace has a loopback address only, which reaches
 * no other host. */
static int adapter_route_check(const struct seat *s, const struct path_av *av)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];

	if ((s->paths & SEAT_PATH_UDP) == 0 || adapter_is_own_gid(av->dgid) ||
	    !udp_is_confined(av->sgid, av->dgid))
		return 0;
	inet_ntop(AF_INET6, av->sgid, from, sizeof(from));
	inet_ntop(AF_INET6, av->dgid, to, sizeof(to));
	log_warn("roce",
		 "no route from GID %s, a loopback address, to %s, which is another host's; "
		 "`anyverbs status` says whose this host's addresses are",
		 from, to);
	return -ENETUNREACH;
}

/* Of a link-local GID the interface, which no route names; else 0. */
static u32 adapter_scope(struct roce_device *dev, const struct ib_ah_attr *attr)
{
	const u8 *to = attr->grh.dgid.raw;
	struct node_config config;

	if (to[0] != 0xfe || (to[1] & 0xc0) != 0x80)
		return 0;
	adapter_config_of(dev, &config);
	return config.gids[attr->grh.sgid_index].ifindex;
}

/* Tells whether packets of this vector leave the process for another address, by UDP. A process
 * without a queue pair counts as one that has a socket of the source. */
static bool adapter_leaves(const struct seat *s, const struct path_av *av)
{
	return (s->paths & SEAT_PATH_UDP) != 0 && !node_is_mcast(av->dgid) &&
	       !adapter_is_own_gid(av->dgid) && udp_may_have_source(s->a.udp, av->sgid) &&
	       !udp_is_confined(av->sgid, av->dgid);
}

/* A group is reached without a neighbour, from an address of either family. */
static bool adapter_mixes_families(const struct path_av *av)
{
	return !node_is_mcast(av->dgid) && roce_gid_is_ipv4(av->sgid) != roce_gid_is_ipv4(av->dgid);
}

int adapter_find_neighbour(struct ib_device *ib, const struct ib_ah_attr *attr)
{
	enum { WAIT_MS = 1000 }; /* Linux's */
	struct soft_device *dev = soft_dev(ib);
	struct rdma_dev_addr link;
	struct addr_way way;
	struct path_av av;
	int err;

	if (soft_attach(dev) != 0 || adapter_resolve_av(dev, attr, &av) != 0)
		return 0;
	if (adapter_mixes_families(&av))
		return -EINVAL;
	if (!adapter_leaves(&the_seat, &av))
		return 0;
	err = addr_route(addr_host(), av.dgid, av.sgid, adapter_scope(adapter_of(dev), attr), &way);
	if (err == 0 && !way.route.local)
		err = addr_link_wait(addr_host(), &way, WAIT_MS, &link);
	/* Any other error says that this process cannot ask, and nothing of the peer. */
	return err == -ETIMEDOUT || err == -ENETUNREACH || err == -EHOSTUNREACH ? err : 0;
}

/* Routes a connection and resolves its destination. Without a route: 0, and *dest is NULL; else as
 * path_ops.resolve. A new node without a folder knows that a process takes UDP only when that has
 * come back, which resolving waits for: then the connection is routed again. */
static int adapter_connect_route(struct seat *s, const struct path_av *av, u32 to,
				 struct path_dest **dest)
{
	int err;

	*dest = adapter_route(s, av, to);
	if (*dest == NULL)
		return 0;
	err = (*dest)->path->ops->resolve(*dest);
	if ((*dest)->path != shm_path(s->a.shm) ||
	    !shm_slot_is_wire_only(s->a.shm, to >> NODE_INDEX_BITS))
		return err;
	(*dest)->path->ops->dest_put(*dest);
	*dest = adapter_route(s, av, to);
	return *dest == NULL ? 0 : (*dest)->path->ops->resolve(*dest);
}

int adapter_connect(struct soft_device *dev, const struct ib_ah_attr *attr, u32 from, u32 to,
		 struct path_av *av, struct path_dest **dest)
{
	struct seat *s = &the_seat;
	int err = adapter_resolve_av(dev, attr, av);

	/* A connection has one peer, never a group. */
	if (err == 0 && node_is_mcast(av->dgid))
		err = -EINVAL;
	if (err == 0)
		err = adapter_route_check(s, av);
	if (err != 0)
		return err;
	av->traffic_class |= PATH_ECN_CAPABLE;
	if (av->sport == 0)
		av->sport = roce_sport(roce_flow_label(from, to));
	err = adapter_connect_route(s, av, to, dest);
	if (*dest == NULL) {
		/* No route: a destination that never answers, so that the connection runs its
		 * timeouts. */
		struct path *path = shm_path(s->a.shm);

		*dest = path->ops->dest_nowhere(path);
		return *dest == NULL ? -ENOMEM : 0;
	}
	if (err != -EMFILE && err != -ENFILE)
		return 0; /* an absent peer may come */
	(*dest)->path->ops->dest_put(*dest);
	*dest = NULL;
	return err;
}
