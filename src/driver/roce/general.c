/* general.c: QP1 of the RoCE adapters: MADs between the MAD layer and the paths.
 *
 * QP1 is no queue pair of the engine. Its only consumer is the MAD layer of this process, so there
 * is nothing to post, to register or to poll: a MAD goes to the path as one packet, and comes from
 * it as one. Which process of a node a MAD is for stands in its transaction ID or communication ID
 * (node/steer.h); a REQ is for the listener that the notice board shows, and an unsolicited MAD of
 * another class for the agent there.
 *
 * In:    MADs of the MAD layer, wills; packets to QP1    Out: packets; arrivals of the MAD layer
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
#include "mad/mad.h"
#include "node/steer.h"

enum {
	GENERAL_QPN = 1,
	GENERAL_PORT = 1,
	GENERAL_TRIES = 20, /* of a MAD that finds a ring full ... */
	GENERAL_PAUSE_US = 50, /* ... with pauses in between; and then for so long ... */
	GENERAL_FULL_MS = 20,  /* ... the next ones to that process try once */
	GENERAL_EXIT_LOOKS = 4000, /* with such pauses, for what still waits at exit: 0.2 s */
};

static struct {
	struct lock general_lock;
	bool ready GUARDED_BY(general_lock);
	struct work_queue queue GUARDS_ITSELF;
	struct work offer GUARDS_ITSELF; /* shows the node the wills of this process */
	u32 psn ATOMIC_ONLY;
} general;

/* ---- out ------------------------------------------------------------------------------------- */

/* The slot of the process on this node that the MAD to `dgid` is for. One that nobody takes is for
 * this process, whose MAD layer answers that. -EAGAIN: the agent may exist, but is not known. */
static int general_slot_of(struct seat *s, const struct mad_departure *d, const u8 dgid[16])
{
	u32 slot = 0;
	u64 service_id;

	if (d->remote_qpn != GENERAL_QPN)
		return (int)(d->remote_qpn >> NODE_INDEX_BITS);
	switch (steer_mad(d->mad, &slot, &service_id)) {
	case STEER_BY_SLOT:
		return (int)slot;
	case STEER_BY_SERVICE:
		if (node_listener_find(s->a.node, service_id, steer_private(d->mad),
				       steer_sender(d->mad), &slot))
			return (int)slot;
		break;
	case STEER_BY_AGENT:
		switch (node_agent_find(s->a.node, adapter_config_id_of(dgid), GENERAL_PORT,
					GENERAL_QPN, d->mad, &slot)) {
		case 0:
			return (int)slot;
		case -EAGAIN:
			return -EAGAIN;
		default:
			break;
		}
		break;
	}
	return MAX(seat_slot(s), 0);
}

static bool general_is_local(const struct seat *s, const struct path_av *av)
{
	return (s->paths & SEAT_PATH_SHM) != 0 && adapter_is_own_gid(av->dgid);
}

/* To a process of this node. Slot 0 is the node's own, which has no rings. */
static struct path_dest *general_route_slot(struct seat *s, const struct path_av *av, u32 slot)
{
	struct path *path = shm_path(s->a.shm);

	return slot == 0 ? NULL : path->ops->dest_get(path, av, slot << NODE_INDEX_BITS);
}

/* A process that does not read what it is sent, a stopped one, say, must not hold up the MADs for
 * all others: only the first of them waits for it. Compared, never followed. */
static struct general_full {
	const struct path_dest *dest;
	u64 until_ns;
} general_full OWNED_BY(the thread of the queue);

static int general_tries(const struct path_dest *dest)
{
	return dest == general_full.dest && clock_now_ns() < general_full.until_ns ? 1
										   : GENERAL_TRIES;
}

static int general_transmit(struct path_dest *dest, const struct pkt *p, const void *mad)
{
	struct iovec iov = { (void *)(uintptr_t)mad, p->length };
	int err = dest->path->ops->resolve(dest), tries = general_tries(dest);

	if (err == 0)
		err = dest->path->ops->send(dest, p, &iov, 1);
	while (err == -EAGAIN && --tries > 0) {
		clock_sleep_ns(GENERAL_PAUSE_US * NS_PER_US);
		err = dest->path->ops->send(dest, p, &iov, 1);
	}
	if (err == -EAGAIN)
		general_full = (struct general_full){
			dest, clock_now_ns() + GENERAL_FULL_MS * NS_PER_MS
		};
	if (err == 0)
		dest->path->ops->flush(dest);
	return err;
}

static int general_transmit_put(struct path_dest *dest, const struct pkt *p, const void *mad)
{
	int err = -ENETUNREACH;

	if (dest != NULL) {
		err = general_transmit(dest, p, mad);
		dest->path->ops->dest_put(dest);
	}
	return err;
}

/* To every process of this node that listens. One of them may have the request that the sender
 * takes back before it has heard of any ID of theirs. */
static int general_send_to_all(struct seat *s, const struct path_av *av, const struct pkt *p,
			       const void *mad)
{
	u64 slots[NODE_SLOTS / 64];
	int err = -ENETUNREACH;

	node_listening_slots(s->a.node, slots);
	for (u32 slot = 0; slot < NODE_SLOTS; slot++) {
		if ((slots[slot / 64] & 1ull << slot % 64) != 0 &&
		    general_transmit_put(general_route_slot(s, av, slot), p, mad) == 0)
			err = 0;
	}
	return err;
}

static int general_av(struct roce_device *dev, const struct mad_departure *d, struct path_av *av)
{
	if (d->ah == NULL)
		return adapter_resolve_av(&dev->soft, d->attr, av);
	soft_ah_av(d->ah, av);
	return 0;
}

static int general_send(void *arg, const struct mad_departure *d)
{
	struct roce_device *dev = arg;
	struct seat *s = &the_seat;
	struct path_av av;
	struct pkt p;
	u16 pkey;
	int slot, err = soft_attach(&dev->soft);

	if (err == 0 && !adapter_config_port_is_up(dev))
		err = -ENETDOWN;
	if (err == 0)
		err = ib_get_cached_pkey(&dev->soft.ib, 1, d->pkey_index, &pkey);
	if (err == 0)
		err = general_av(dev, d, &av);
	if (err != 0)
		return err;
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
	if (!general_is_local(s, &av))
		return general_transmit_put(adapter_route(s, &av, d->remote_qpn), &p, d->mad);
	if (d->remote_qpn == GENERAL_QPN && steer_names_nobody(d->mad))
		return general_send_to_all(s, &av, &p, d->mad);
	slot = general_slot_of(s, d, av.dgid);
	if (slot < 0)
		return slot;
	return general_transmit_put(general_route_slot(s, &av, (u32)slot), &p, d->mad);
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
	u64 service_id;
	u32 slot;

	if ((p->flags & PKT_HAS_GRH) == 0)
		return;
	/* a peer may change its ring meanwhile: all but this hint is judged of a copy */
	if (p->length == IB_MGMT_MAD_SIZE)
		a.begins = steer_mad(payload, &slot, &service_id) == STEER_BY_SERVICE;
	general_fill_grh(p, &a.grh);
	port = adapter_config_general(a.grh.dgid.raw);
	if (port == NULL)
		return;
	mad_port_receive(port, &a);
	mad_port_release(port);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static struct node_match general_match(const struct ib_cm_compare_data *compare)
{
	struct node_match m = { .mask = { 0 } };

	if (compare != NULL) {
		memcpy(m.data, compare->data, sizeof(m.data));
		memcpy(m.mask, compare->mask, sizeof(m.mask));
	}
	return m;
}

static int general_listen(void *arg, u64 service_id, u64 mask,
			  const struct ib_cm_compare_data *compare, bool on)
{
	struct node_match match = general_match(compare);
	struct roce_device *dev = arg;
	struct seat *s = &the_seat;
	int slot, err = soft_attach(&dev->soft);

	if (err != 0)
		return err;
	if (!on)
		return node_unlisten(s->a.node, service_id, mask, &match);
	slot = seat_slot(s);
	return slot < 0 ? slot : node_listen(s->a.node, service_id, mask, &match, (u32)slot);
}

static int general_agent(void *arg, const struct ib_mad_reg_req *request, bool on)
{
	struct roce_device *dev = arg;
	struct seat *s = &the_seat;
	struct node_agent a = { .device = dev->id,
				.port = GENERAL_PORT,
				.qpn = GENERAL_QPN,
				.mgmt_class = request->mgmt_class,
				.version = request->mgmt_class_version };
	int slot, err = soft_attach(&dev->soft);

	if (err != 0 || request->mgmt_class == STEER_CLASS_CM)
		return err; /* each process has its own CM, and its MADs say whose they are */
	memcpy(a.oui, request->oui, sizeof(a.oui));
	memcpy(a.methods, request->method_mask, sizeof(a.methods));
	if (!on)
		return node_agent_remove(s->a.node, &a);
	slot = seat_slot(s);
	return slot < 0 ? slot : node_agent_add(s->a.node, &a, (u32)slot);
}

_Static_assert(sizeof(((struct ib_mad_reg_req *)0)->method_mask) ==
		       sizeof(((struct node_agent *)0)->methods),
	       "a bit for each method");

static int general_slot(void *arg)
{
	struct roce_device *dev = arg;
	int err = soft_attach(&dev->soft);

	if (err != 0)
		return err;
	/* the process has a board now, a forked child one of its own */
	mad_count_at(&the_seat.a.board->counters[COUNT_MAD_FIRST]);
	return seat_slot(&the_seat);
}

_Static_assert(COUNT_MAD_FIRST + (int)MAD_COUNTERS == (int)COUNT_CM_FIRST &&
		       COUNT_CM_FIRST + (int)MAD_CM_COUNTERS == (int)COUNT_CM_LAST + 1,
	       "path_counter_names has a name for each counter of the MAD layer and the CM");

static void general_offer(struct work *w)
{
	struct seat *s = &the_seat;
	int err = seat_is_attached(s) ? node_will_offer(s->a.node) : 0;

	/* if the node is gone, the next one is shown them */
	if (err != 0)
		log_warn("roce", "the node does not take this process' wills: error %d", -err);
}

_Static_assert((int)NODE_CONNECTION_REQ_SENT == (int)IB_CM_REQ_SENT &&
		       (int)NODE_CONNECTION_ESTABLISHED == (int)IB_CM_ESTABLISHED &&
		       (int)NODE_CONNECTION_SIDR_REQ_RCVD == (int)IB_CM_SIDR_REQ_RCVD,
	       "states are shown as the CM counts them");

static int general_fill_will(struct roce_device *dev, const struct mad_will *will,
			     struct node_will *out)
{
	const struct ib_global_route *grh = &will->ah->grh;
	const struct mad_connection *c = &will->connection;
	int err = adapter_gid(dev, grh->sgid_index, out->sgid);

	if (err == 0)
		err = ib_get_cached_pkey(&dev->soft.ib, 1, will->pkey_index, &out->pkey);
	if (err != 0)
		return err;
	memcpy(out->dgid, grh->dgid.raw, sizeof(out->dgid));
	out->flow_label = grh->flow_label & 0xfffff;
	out->traffic_class = grh->traffic_class & (u8)~PATH_ECN_MASK;
	out->hop_limit = grh->hop_limit;
	out->connection = (struct node_connection){ .service_id = c->service_id,
						    .local_id = c->local_id,
						    .remote_id = c->remote_id,
						    .local_qpn = c->local_qpn,
						    .remote_qpn = c->remote_qpn,
						    .state = c->state,
						    .passive = c->passive };
	memset(out->mad, 0, sizeof(out->mad));
	memcpy(out->mad, will->mad, MIN((size_t)will->bytes, sizeof(out->mad)));
	return 0;
}

/* The first will makes the file. The queue shows it to the node before it sends the MADs that were
 * posted after. */
static void general_will(void *arg, u32 index, const struct mad_will *will)
{
	struct roce_device *dev = arg;
	struct seat *s = &the_seat;
	struct node_will out;

	if (!seat_is_attached(s))
		return;
	if (will != NULL && general_fill_will(dev, will, &out) != 0)
		will = NULL; /* its address is gone: the earlier one is out of date, too */
	if (node_will_set(s->a.node, index, will != NULL ? &out : NULL) == 1)
		work_push(&general.offer);
}

static const struct mad_port_ops general_ops = {
	.send = general_send,
	.listen = general_listen,
	.agent = general_agent,
	.will = general_will,
	.slot = general_slot,
};

static void general_begin(void)
{
	lock_acquire(&general.general_lock);
	if (!general.ready) {
		work_queue_init(&general.queue, "anyverbs/mad", false);
		work_init(&general.offer, &general.queue, general_offer);
	}
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
	if (general.ready) {
		work_queue_drop_in_child(&general.queue);
		work_init(&general.offer, &general.queue, general_offer);
	}
}
