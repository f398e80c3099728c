/* address.c: how an address vector becomes a route through the fabric and a destination.
 * In:    ib_ah_attr, the fabric's map    Out: resolved vectors, destinations
 * Runs:  any context: resolving and routing do not block but for the allocation of memory; a
 * connection may ask the node
 * Locks: way_lock, a leaf
 */
#include "driver/ib/ib.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "node/fabric.h"

enum { WAY_SLOTS = 1024, WAY_SENDERS = 256 };

/* A route that was found. */
struct hca_way {
	u32 from, to;
	struct fabric_flow flow;
	u64 generation; /* of the map */
	int result;
	u64 packets, bytes; /* datagrams that the route's ports are not charged with yet */
} OWNED_BY(hca_ways.ways_lock);

/* They are kept until the fabric changes. */
static struct {
	struct lock ways_lock;
	struct hca_way way[WAY_SLOTS] GUARDED_BY(ways_lock);
	bool owe GUARDED_BY(ways_lock); /* some way has packets */
	/* the latest datagram of a queue pair, which asks for its route again when it has waited
	 * for room; number, PSN */
	u64 latest[WAY_SENDERS] GUARDED_BY(ways_lock);
} hca_ways;

static u32 hca_way_hash(u32 from, const struct fabric_flow *w)
{
	u64 x = (u64)from << 32 | (u64)w->dlid << 16 | w->pkey;

	x ^= (u64)w->sl << 60 | (u64)w->slid << 44;
	return (u32)(x * 0x9e3779b97f4a7c15ull >> 54) % WAY_SLOTS;
}

static bool hca_flow_equals(const struct fabric_flow *a, const struct fabric_flow *b)
{
	return a->slid == b->slid && a->dlid == b->dlid && a->pkey == b->pkey && a->sl == b->sl;
}

static void hca_way_charge(struct hca_way *way) REQUIRES(hca_ways.ways_lock)
{
	if (way->packets != 0)
		hca_charge_flow(way->from, &way->flow, way->packets, way->bytes);
	way->packets = way->bytes = 0;
}

void hca_ways_charge(void)
{
	if (!lock_try(&hca_ways.ways_lock))
		return;
	for (u32 i = 0; i < WAY_SLOTS && hca_ways.owe; i++)
		hca_way_charge(&hca_ways.way[i]);
	hca_ways.owe = false;
	lock_release(&hca_ways.ways_lock);
}

static void hca_ways_drop_in_child(void) NO_THREAD_SAFETY
{
	memset(&hca_ways, 0, sizeof(hca_ways));
}
FORK_MAKES_ANEW(FORK_HCA_WAYS, &hca_ways.ways_lock, .child = hca_ways_drop_in_child);

static bool hca_way_is_new(const struct pkt *p) REQUIRES(hca_ways.ways_lock)
{
	u64 *latest = &hca_ways.latest[p->sqpn % WAY_SENDERS];
	u64 datagram = (u64)p->sqpn << 32 | p->psn;
	bool is_new = *latest != datagram;

	*latest = datagram;
	return is_new;
}

bool hca_ways_is_new(const struct pkt *p)
{
	bool is_new;

	lock_acquire(&hca_ways.ways_lock);
	is_new = hca_way_is_new(p);
	lock_release(&hca_ways.ways_lock);
	return is_new;
}

/* A datagram takes the way, unless another one has its place by now. */
static void hca_way_take(u32 from, const struct path_av *av, const struct pkt *p)
{
	struct fabric_flow w = hca_av_flow(av);
	struct hca_way *way = &hca_ways.way[hca_way_hash(from, &w)];

	lock_acquire(&hca_ways.ways_lock);
	if (hca_way_is_new(p) && way->from == from && hca_flow_equals(&way->flow, &w)) {
		way->packets++;
		way->bytes += hca_charge_datagram(av, p->length);
		hca_ways.owe = true;
	}
	lock_release(&hca_ways.ways_lock);
	hca_charge_begin();
}

/* The port that a packet of this flow gets to: as fabric_route. */
static int hca_way_find(u32 from, const struct fabric_flow *w, u32 *to)
{
	const struct fabric_view *view = hca_view();
	u64 generation = fabric_generation(view); /* before the tables are read */
	struct hca_way *way = &hca_ways.way[hca_way_hash(from, w)];
	struct fabric_path path;
	int err;

	lock_acquire(&hca_ways.ways_lock);
	if (way->generation == generation && way->from == from &&
	    hca_flow_equals(&way->flow, w)) {
		err = way->result;
		*to = way->to;
		lock_release(&hca_ways.ways_lock);
		return err;
	}
	lock_release(&hca_ways.ways_lock);
	err = fabric_route(view, from, w, &path);
	if (err == 0)
		*to = path.to;
	lock_acquire(&hca_ways.ways_lock);
	hca_way_charge(way);
	*way = (struct hca_way){ .from = from,
			     .to = err == 0 ? path.to : FABRIC_NONE,
			     .flow = *w,
			     .generation = generation,
			     .result = err };
	lock_release(&hca_ways.ways_lock);
	return err;
}

struct hca_device *hca_av_device(const struct path_av *av)
{
	return hca_host_device(av->port >> 4);
}

struct fabric_flow hca_av_flow(const struct path_av *av)
{
	return (struct fabric_flow){ .slid = av->slid,
				     .dlid = av->dlid,
				     .pkey = av->pkey == 0 ? HCA_PKEY_DEFAULT : av->pkey,
				     .sl = av->sl };
}

/* The GID of a port that is reached by LID only: receivers show it to nobody, but the path's
 * vectors have both. */
static void hca_gid_of_lid(const struct hca_device *dev, struct path_av *av)
{
	struct fabric_flow w = hca_av_flow(av);
	struct fabric_port_attr p;
	u32 to;

	memset(av->dgid, 0, sizeof(av->dgid));
	if (hca_way_find(dev->port[hca_av_port(av)].index, &w, &to) != 0 ||
	    fabric_port_read(hca_view(), to, &p) != 0)
		return;
	for (int i = 0; i < 8; i++) {
		av->dgid[i] = (u8)(p.gid_prefix >> (56 - 8 * i));
		av->dgid[8 + i] = (u8)(p.guid >> (56 - 8 * i));
	}
}

int hca_resolve_av(struct soft_device *soft, const struct ib_ah_attr *attr, struct path_av *av)
{
	bool has_grh = (attr->ah_flags & IB_AH_GRH) != 0;
	struct hca_device *dev = hca_of(soft);
	struct fabric_port_attr p;
	union ib_gid sgid;
	u16 mask;
	int err;

	if (!soft_has_port(soft, attr->port_num) || hca_port_read(dev, attr->port_num, &p) != 0)
		return -EINVAL;
	err = soft->ib.query_gid(&soft->ib, attr->port_num, has_grh ? attr->grh.sgid_index : 0,
				 &sgid);
	if (err != 0)
		return err;
	memset(av, 0, sizeof(*av));
	mask = (u16)((1 << p.lmc) - 1);
	av->port = (u8)(dev->index << 4 | attr->port_num);
	av->dlid = attr->dlid;
	av->slid = (u16)(p.lid | (attr->src_path_bits & mask));
	av->sl = attr->sl & 15;
	av->no_grh = !has_grh;
	memcpy(av->sgid, sgid.raw, 16);
	if (!has_grh) {
		hca_gid_of_lid(dev, av);
		return 0;
	}
	memcpy(av->dgid, attr->grh.dgid.raw, 16);
	av->traffic_class = attr->grh.traffic_class;
	av->hop_limit = attr->grh.hop_limit;
	av->flow_label = attr->grh.flow_label & 0xfffff;
	return 0;
}

static const char *hca_why(int err)
{
	switch (err) {
	case -EACCES:
		return "its partition does not reach there";
	case -ENOLINK:
		return "its service level has no virtual lane";
	default:
		return "no route";
	}
}

/* 0: packets of the vector reach that queue pair's process. Else as fabric_route. */
static int hca_reach_qp(const struct path_av *av, u32 qpn)
{
	struct hca_device *dev = hca_av_device(av);
	struct fabric_flow w;
	u32 to;
	int err;

	if (dev == NULL)
		return -ENETUNREACH;
	w = hca_av_flow(av);
	err = hca_way_find(dev->port[hca_av_port(av)].index, &w, &to);
	if (err == 0 && !node_fabric_is_at(hca_fabric(), qpn >> NODE_INDEX_BITS, to))
		err = -ENETUNREACH; /* another host has that queue pair */
	if (err != 0)
		log_debug("ib", "LID %u is not reached from LID %u: %s", av->dlid, av->slid,
			  hca_why(err));
	return err;
}

bool hca_reaches(struct soft_device *dev, const struct path_av *av, u32 to)
{
	return hca_reach_qp(av, to) == 0;
}

struct path_dest *hca_route(void *seat, const struct path_av *av, const struct pkt *p)
{
	struct path *path = shm_path(((struct seat *)seat)->a.shm);

	if (hca_reach_qp(av, p->dqpn) != 0)
		return NULL;
	hca_way_take(hca_av_device(av)->port[hca_av_port(av)].index, av, p);
	return path->ops->dest_get(path, av, p->dqpn);
}

/* The destination is the peer's whether a route leads there now or not: soft_kind.reaches tells
 * that, and may tell otherwise later. */
int hca_connect(struct soft_device *dev, const struct ib_ah_attr *attr, u32 from, u32 to,
		struct path_av *av, struct path_dest **dest)
{
	struct path *path = shm_path(the_seat.a.shm);
	u16 pkey = av->pkey;
	int err = hca_resolve_av(dev, attr, av);

	/* a connection has one peer, never a group */
	if (err == 0 && (av->dlid >= FABRIC_MLID_FIRST || av->dgid[0] == 0xff))
		err = -EINVAL;
	if (err != 0)
		return err;
	av->pkey = pkey;
	*dest = path->ops->dest_get(path, av, to);
	if (*dest == NULL)
		*dest = path->ops->dest_nowhere(path);
	if (*dest == NULL)
		return -ENOMEM;
	hca_charge_begin();
	err = (*dest)->path->ops->resolve(*dest);
	if (err != -EMFILE && err != -ENFILE)
		return 0; /* an absent peer may come */
	(*dest)->path->ops->dest_put(*dest);
	*dest = NULL;
	return err;
}

u8 hca_lid_mask(struct soft_device *dev)
{
	struct fabric_port_attr p;

	return hca_port_read(hca_of(dev), 1, &p) == 0 ? (u8)((1 << p.lmc) - 1) : 0;
}
