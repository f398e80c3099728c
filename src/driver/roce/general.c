/* general.c: QP1 of the RoCE adapters: MADs between the MAD layer and the paths.
 *
 * QP1 is no queue pair of the engine. Its only consumer is the MAD layer of this process, so there
 * is nothing to post, to register or to poll: a MAD goes to the path as one packet, and comes from
 * it as one. Which process of a node a MAD is for stands in its transaction ID or communication ID
 * (node/steer.h); a REQ is for the listener that the directory shows, and an unsolicited MAD of
 * another class for the agent there.
 *
 * In:    MADs of the MAD layer, wills; packets to QP1    Out: packets; arrivals of the MAD layer
 * Runs:  sending on the MAD layer's queue, receiving in any path's receiver
 * Locks: config_lock; the MAD layer's under it
 */
#include "driver/roce/roce.h"

#include <errno.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "base/clock.h"
#include "base/limit.h"
#include "base/log.h"
#include "cm/message/message.h"
#include "driver/soft/mads.h"
#include "node/steer.h"

enum {
	GENERAL_QPN = 1,
	GENERAL_PORT = 1,
	GENERAL_TRIES = 20, /* of a MAD that finds a ring full ... */
	GENERAL_PAUSE_US = 50, /* ... with pauses in between; and then for so long ... */
	GENERAL_FULL_MS = 20,  /* ... the next ones to that process try once */
};

static u32 general_psn ATOMIC_ONLY;

/* ---- out ------------------------------------------------------------------------------------- */

/* The slot of the process on this node that the MAD to `dgid` is for. One that nobody takes is for
 * this process, whose MAD layer answers that. -EAGAIN: the listener or the agent may exist, but is
 * not known. */
static int general_slot_of(struct seat *s, const struct mad_departure *d, const u8 dgid[16])
{
	int err = -ENOENT;
	u32 slot = 0;
	u64 service_id;

	if (d->remote_qpn != GENERAL_QPN)
		return (int)(d->remote_qpn >> NODE_INDEX_BITS);
	switch (steer_mad(d->mad, &slot, &service_id)) {
	case STEER_BY_SLOT:
		return (int)slot;
	case STEER_BY_SERVICE:
		err = node_listener_find(s->a.node, service_id, steer_private(d->mad),
					 steer_sender(d->mad), &slot);
		break;
	case STEER_BY_AGENT:
		err = node_agent_find(s->a.node, adapter_config_id_of(dgid), GENERAL_PORT,
				      GENERAL_QPN, d->mad, &slot);
		break;
	}
	if (err == 0)
		return (int)slot;
	return err == -EAGAIN ? err : MAX(seat_slot(s), 0);
}

static bool general_is_local(const struct seat *s, const struct path_av *av)
{
	return (s->paths & SEAT_PATH_SHM) != 0 && adapter_is_own_gid(av->dgid);
}

/* To a process of this node. Slot 0 is the node's own, which has no rings. To one that has no path
 * through shared memory the MAD goes over the wire, and is steered there as from another host. */
static struct path_dest *general_route_slot(struct seat *s, const struct path_av *av, u32 slot)
{
	return slot == 0 ? NULL : adapter_route(s, av, slot << NODE_INDEX_BITS);
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

	if (err == -EAGAIN)
		return -ETIMEDOUT; /* nobody has died: lost on the way */
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
	/* the receiver may have refused the pair between the two calls above */
	if (err == 0 || err == -EPIPE) {
		int refusal = dest->path->ops->resolve(dest);

		err = limit_refuses(refusal) ? refusal : err;
	}
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
 * takes back before it has heard of any ID of theirs. What goes over the wire the node hands to
 * each process, so that goes once. */
static int general_send_to_all(struct seat *s, const struct path_av *av, const struct pkt *p,
			       const void *mad)
{
	u64 slots[NODE_SLOTS / 64];
	int err = -ENETUNREACH;
	u32 by_wire = 0;

	node_listening_slots(s->a.node, slots);
	for (u32 slot = 1; slot < NODE_SLOTS; slot++) {
		if ((slots[slot / 64] & 1ull << slot % 64) == 0)
			continue;
		if (shm_slot_is_wire_only(s->a.shm, slot))
			by_wire = slot;
		else if (general_transmit_put(general_route_slot(s, av, slot), p, mad) == 0)
			err = 0;
	}
	if (general_transmit_put(general_route_slot(s, av, by_wire), p, mad) == 0)
		err = 0;
	return err;
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
		err = soft_mads_av(&dev->soft, d, &av);
	if (err != 0)
		return err;
	if (node_is_mcast(av.dgid))
		return -EINVAL;
	p = (struct pkt){ .opcode = PKT_SEND_ONLY,
			  .flags = PKT_HAS_GRH,
			  .qp_type = IBV_QPT_UD,
			  .dqpn = d->remote_qpn,
			  .sqpn = GENERAL_QPN,
			  .psn = __atomic_fetch_add(&general_psn, 1, __ATOMIC_RELAXED) & 0xffffff,
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
	err = general_transmit_put(general_route_slot(s, &av, (u32)slot), &p, d->mad);
	if (limit_refuses(err))
		adapter_general_returned(s, &p, d->mad);
	return err;
}

/* ---- in -------------------------------------------------------------------------------------- */

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
	soft_mads_fill_grh(p, (u16)p->length, &a.grh);
	port = adapter_config_general(a.grh.dgid.raw);
	if (port == NULL)
		return;
	mad_port_receive(port, &a);
	mad_port_release(port);
}

/* Of a peer on this host: another host's IDs name the slots of its own node. */
static void general_end(const struct node_will *will)
{
	struct pkt p = { .flags = PKT_HAS_GRH,
			 .sqpn = GENERAL_QPN,
			 .length = IB_MGMT_MAD_SIZE,
			 .pkey = will->pkey,
			 .qkey = IB_QP1_QKEY,
			 .sgid = will->sgid,
			 .dgid = will->dgid,
			 .traffic_class = will->traffic_class,
			 .hop_limit = will->hop_limit,
			 .flow_label = will->flow_label };
	u8 mad[IB_MGMT_MAD_SIZE] = { 0 };

	if (!adapter_is_own_gid(will->sgid))
		return;
	memcpy(mad, will->mad, sizeof(will->mad));
	adapter_general_receive(&the_seat, &p, mad);
}

void adapter_general_died(void *seat, const u64 slots[NODE_SLOTS / 64])
{
	soft_mads_died(slots, general_end);
}

_Static_assert((int)CM_MAD_BYTES == (int)IB_MGMT_MAD_SIZE, "MADs have one size");

void adapter_general_returned(void *seat, const struct pkt *p, const void *payload)
{
	u8 mad[CM_MAD_BYTES], answer[CM_MAD_BYTES];
	struct pkt back = *p;

	if (p->length != sizeof(mad))
		return;
	memcpy(mad, payload, sizeof(mad)); /* the peer may change it meanwhile */
	if (!msg_answer_for_full(mad, answer))
		return;
	back.sgid = p->dgid;
	back.dgid = p->sgid;
	back.sqpn = p->dqpn;
	back.dqpn = p->sqpn;
	adapter_general_receive(seat, &back, answer);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int general_listen(void *arg, u64 service_id, u64 mask,
			  const struct ib_cm_compare_data *compare, bool on)
{
	struct roce_device *dev = arg;

	return soft_mads_listen(&dev->soft, service_id, mask, compare, on);
}

static int general_agent(void *arg, const struct ib_mad_reg_req *request, bool on)
{
	struct roce_device *dev = arg;
	struct soft_mads_place at = { .device = dev->id,
				      .port = GENERAL_PORT,
				      .qpn = GENERAL_QPN };

	return soft_mads_agent(&dev->soft, &at, request, on);
}

static int general_slot(void *arg)
{
	struct roce_device *dev = arg;

	return soft_mads_slot(&dev->soft);
}

static int general_fill_will(struct roce_device *dev, const struct mad_will *will,
			     struct node_will *out)
{
	const struct ib_global_route *grh = &will->ah->grh;
	int err = adapter_gid(dev, grh->sgid_index, out->sgid);

	if (err == 0)
		err = ib_get_cached_pkey(&dev->soft.ib, 1, will->pkey_index, &out->pkey);
	if (err != 0)
		return err;
	memcpy(out->dgid, grh->dgid.raw, sizeof(out->dgid));
	out->flow_label = grh->flow_label & 0xfffff;
	out->traffic_class = grh->traffic_class & (u8)~PATH_ECN_MASK;
	out->hop_limit = grh->hop_limit;
	soft_mads_fill_will(will, out);
	return 0;
}

static void general_will(void *arg, u32 index, const struct mad_will *will)
{
	struct roce_device *dev = arg;
	struct node_will out = { .pkey = 0 };

	if (!seat_is_attached(&the_seat))
		return;
	if (will != NULL && general_fill_will(dev, will, &out) != 0)
		will = NULL; /* its address is gone: the earlier one is out of date, too */
	soft_mads_set_will(index, will != NULL ? &out : NULL);
}

static const struct mad_port_ops general_ops = {
	.send = general_send,
	.listen = general_listen,
	.agent = general_agent,
	.will = general_will,
	.slot = general_slot,
};

void adapter_general_add(struct roce_device *dev)
{
	struct mad_port_config config = { .device = &dev->soft.ib,
					  .port_num = 1,
					  .qp_type = IB_QPT_GSI,
					  .ops = &general_ops,
					  .arg = dev,
					  .queue = soft_mads_queue() };
	int err;

	dev->general = mad_port_add(&config, &err);
	if (dev->general == NULL)
		log_warn("roce", "%s has no QP1: error %d", dev->soft.ib.name, -err);
}

void adapter_general_leave(struct soft_device *soft)
{
	struct roce_device *dev = adapter_of(soft);

	if (dev->general != NULL)
		mad_port_remove(dev->general);
}
