/* general.c: QP1 of the RoCE adapters: MADs between the MAD layer and the paths.
 *
 * QP1 is no queue pair of the engine. Its only consumer is the MAD layer of this process, so there
 * is nothing to post, to register or to poll: a MAD goes to the path as one packet, and comes from
 * it as one. Which process of a node a MAD is for stands in its transaction ID or communication ID
 * (node/steer.h); a REQ is for the listener that the notice board shows.
 *
 * In:    MADs of the MAD layer; packets to QP1    Out: packets; arrivals of the MAD layer
 * Runs:  sending on the MAD layer's queue, receiving in any path's receiver
 * Locks: config_lock; the MAD layer's under it
 */
#include "driver/roce/roce.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/steer.h"

enum {
	GENERAL_QPN = 1,
	GENERAL_TRIES = 20, /* of a MAD that finds a ring full ... */
	GENERAL_PAUSE_US = 50, /* ... with pauses in between */
	GENERAL_EXIT_LOOKS = 4000, /* with such pauses, for what still waits at exit: 0.2 s */
};

static struct {
	struct lock general_lock;
	bool ready GUARDED_BY(general_lock);
	struct work_queue queue GUARDS_ITSELF;
	u32 psn ATOMIC_ONLY;
} general;

/* ---- out ------------------------------------------------------------------------------------- */

/* The slot of the process on this node that the MAD is for. One that names none is for this
 * process: its own agents, or its own answer that nobody listens. */
static u32 general_slot_of(struct seat *s, const struct mad_departure *d)
{
	u32 slot = 0;
	u64 service_id;

	if (d->remote_qpn != GENERAL_QPN)
		return d->remote_qpn >> NODE_INDEX_BITS;
	switch (steer_mad(d->mad, &slot, &service_id)) {
	case STEER_BY_SLOT:
		return slot;
	case STEER_BY_SERVICE:
		if (node_listener_find(s->a.node, service_id, &slot))
			return slot;
		break;
	case STEER_BY_NOBODY:
		break;
	}
	return (u32)MAX(seat_slot(s), 0);
}

static struct path_dest *general_route(struct seat *s, const struct path_av *av,
				       const struct mad_departure *d)
{
	struct path *path = shm_path(s->a.shm);
	u32 slot;

	if ((s->paths & SEAT_PATH_SHM) == 0 || !adapter_is_own_gid(av->dgid))
		return adapter_route(s, av, d->remote_qpn);
	slot = general_slot_of(s, d);
	/* slot 0 is the node's, which has no rings */
	return slot == 0 ? NULL : path->ops->dest_get(path, av, slot << NODE_INDEX_BITS);
}

static int general_transmit(struct path_dest *dest, const struct pkt *p, const void *mad)
{
	struct iovec iov = { (void *)(uintptr_t)mad, p->length };
	int err = dest->path->ops->resolve(dest);

	for (int i = 0; err == 0 && i < GENERAL_TRIES; i++) {
		err = dest->path->ops->send(dest, p, &iov, 1);
		if (err != -EAGAIN)
			break;
		clock_sleep_ns(GENERAL_PAUSE_US * NS_PER_US);
		err = 0;
	}
	if (err == 0)
		dest->path->ops->flush(dest);
	return err;
}

static int general_send(void *arg, const struct mad_departure *d)
{
	struct roce_device *dev = arg;
	struct seat *s = &the_seat;
	struct path_dest *dest;
	struct path_av av;
	struct pkt p;
	u16 pkey;
	int err = soft_attach(&dev->soft);

	if (err == 0 && !adapter_config_port_is_up(dev))
		err = -ENETDOWN;
	if (err == 0)
		err = ib_get_cached_pkey(&dev->soft.ib, 1, d->pkey_index, &pkey);
	if (err != 0)
		return err;
	soft_ah_av(d->ah, &av);
	if (node_is_mcast(av.dgid))
		return -EINVAL;
	p = (struct pkt){ .opcode = PKT_SEND_ONLY,
			  .flags = PKT_HAS_GRH,
			  .qp_type = IBV_QPT_UD,
			  .dqpn = d->remote_qpn,
			  .sqpn = GENERAL_QPN,
			  .psn = __atomic_fetch_add(&general.psn, 1, __ATOMIC_RELAXED) & 0xffffff,
			  .length = IB_MGMT_MAD_SIZE,
			  .pkey = pkey,
			  .qkey = d->qkey,
			  .sgid = av.sgid,
			  .dgid = av.dgid,
			  .traffic_class = av.traffic_class,
			  .hop_limit = av.hop_limit,
			  .flow_label = av.flow_label };
	dest = general_route(s, &av, d);
	if (dest == NULL)
		return -ENETUNREACH;
	err = general_transmit(dest, &p, d->mad);
	dest->path->ops->dest_put(dest);
	return err;
}

/* ---- in -------------------------------------------------------------------------------------- */

static void general_fill_grh(const struct pkt *p, struct ib_grh *grh)
{
	enum { GENERAL_IPV6 = 6, GENERAL_NEXT = 0x1b };

	*grh = (struct ib_grh){
		.version_tclass_flow = htonl((u32)GENERAL_IPV6 << 28 | (u32)p->traffic_class << 20 |
					     p->flow_label),
		.paylen = htons((u16)p->length),
		.next_hdr = GENERAL_NEXT,
		.hop_limit = p->hop_limit,
	};
	memcpy(grh->sgid.raw, p->sgid, 16);
	memcpy(grh->dgid.raw, p->dgid, 16);
}

void adapter_general_receive(void *seat, const struct pkt *p, const void *payload)
{
	struct mad_arrival a = { .src_qp = p->sqpn,
				 .qkey = p->qkey,
				 .pkey = p->pkey == 0 ? 0xffff : p->pkey,
				 .sl = p->sl,
				 .has_grh = true,
				 .mad = payload,
				 .length = p->length };
	struct mad_port *port;

	if ((p->flags & PKT_HAS_GRH) == 0)
		return;
	general_fill_grh(p, &a.grh);
	port = adapter_config_general(a.grh.dgid.raw);
	if (port == NULL)
		return;
	mad_port_receive(port, &a);
	mad_port_release(port);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int general_listen(void *arg, u64 service_id, u64 mask, bool on)
{
	struct roce_device *dev = arg;
	struct seat *s = &the_seat;
	int slot, err = soft_attach(&dev->soft);

	if (err != 0)
		return err;
	if (!on)
		return node_unlisten(s->a.node, service_id, mask);
	slot = seat_slot(s);
	return slot < 0 ? slot : node_listen(s->a.node, service_id, mask, (u32)slot);
}

static int general_slot(void *arg)
{
	struct roce_device *dev = arg;
	int err = soft_attach(&dev->soft);

	return err != 0 ? err : seat_slot(&the_seat);
}

static const struct mad_port_ops general_ops = {
	.send = general_send,
	.listen = general_listen,
	.slot = general_slot,
};

static void general_begin(void)
{
	lock_acquire(&general.general_lock);
	if (!general.ready)
		work_queue_init(&general.queue, "anyverbs/mad", false);
	general.ready = true;
	lock_release(&general.general_lock);
}

void adapter_general_add(struct roce_device *dev)
{
	struct mad_port_config config = { .device = &dev->soft.ib,
					  .port_num = 1,
					  .qp_type = IB_QPT_GSI,
					  .ops = &general_ops,
					  .arg = dev,
					  .queue = &general.queue };
	int err;

	general_begin();
	dev->general = mad_port_add(&config, &err);
	if (dev->general == NULL)
		log_warn("roce", "%s has no QP1: error %d", dev->soft.ib.name, -err);
}

void adapter_general_remove(struct roce_device *dev)
{
	if (dev->general != NULL)
		mad_port_remove(dev->general);
}

struct general_mark {
	struct work work GUARDS_ITSELF;
	bool reached ATOMIC_ONLY;
};

static void general_mark_reached(struct work *w)
{
	struct general_mark *mark = container_of(w, struct general_mark, work);

	__atomic_store_n(&mark->reached, true, __ATOMIC_RELEASE);
}

/* A process that ends at once has posted MADs that its peers wait for (DREP). They get a moment to
 * leave. */
__attribute__((destructor)) static void general_flush(void)
{
	static struct general_mark mark; /* may be reached after this has returned */
	bool used;

	lock_acquire(&general.general_lock);
	used = general.ready && work_queue_is_used(&general.queue);
	lock_release(&general.general_lock);
	if (!used)
		return;
	work_init(&mark.work, &general.queue, general_mark_reached);
	work_push(&mark.work);
	/* pairs with the store in general_mark_reached */
	for (int i = 0; i < GENERAL_EXIT_LOOKS && !__atomic_load_n(&mark.reached, __ATOMIC_ACQUIRE);
	     i++)
		clock_sleep_ns(GENERAL_PAUSE_US * NS_PER_US);
}

void adapter_general_drop_in_child(void) NO_THREAD_SAFETY
{
	lock_init(&general.general_lock);
	mad_drop_in_child();
	if (general.ready)
		work_queue_drop_in_child(&general.queue);
}
