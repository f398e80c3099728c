/* mads.c: QP0 and QP1 of the host's ports: MADs between the MAD layer and the fabric.
 *
 * A MAD goes to the node, where the fabric takes it hop by hop, and comes from there. Which process
 * of a host a MAD is for is the node's to find: by its transaction ID, or by agents and listeners.
 * The SMI's rules for directed routes are the fabric's, too: SMPs leave and arrive here as they
 * are.
 *
 * In:    MADs of the MAD layer; MADs of the node    Out: the same, the other way
 * Runs:  the MAD layer's queue, whose thread reads the channel, too; SMPs leave on the thread that
 *        posts them: a subnet manager's are many, and each costs less without a switch of threads
 * Locks: mads_lock, and the MAD layer's
 */
#include "driver/ib/ib.h"

#include <errno.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "base/fork.h"
#include "base/log.h"
#include "driver/soft/mads.h"
#include "node/fabric.h"
#include "node/steer.h"

static struct {
	struct lock mads_lock;
	bool reading GUARDED_BY(mads_lock); /* the queue watches the fabric's channel */
} hca_mads;

/* ---- out ------------------------------------------------------------------------------------- */

/* The special queue pair of a class. */
static u8 hca_mads_qpn(u8 mgmt_class)
{
	return mgmt_class == IB_MGMT_CLASS_SUBN_LID_ROUTED ||
			       mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE
		       ? 0
		       : 1;
}

static void hca_mads_fill_grh(const struct path_av *av, u8 out[40])
{
	enum { MADS_BYTES = 12 + 8 + IB_MGMT_MAD_SIZE + 4 }; /* BTH, DETH, MAD, ICRC */
	struct pkt p = { .sgid = av->sgid,
			 .dgid = av->dgid,
			 .traffic_class = av->traffic_class,
			 .hop_limit = av->hop_limit,
			 .flow_label = av->flow_label };
	struct ib_grh grh;

	soft_mads_fill_grh(&p, MADS_BYTES, &grh);
	memcpy(out, &grh, sizeof(grh));
}

static int hca_mads_send(void *arg, const struct mad_departure *d)
{
	struct hca_port *port = arg;
	struct hca_device *dev = port->device;
	struct fabric_mad m = { .src_qp = hca_mads_qpn(
					((const struct ib_mad_hdr *)d->mad)->mgmt_class),
				.qkey = d->qkey };
	u16 pkey = HCA_PKEY_DEFAULT;
	struct path_av av;
	int err = soft_attach(&dev->soft);

	if (err == 0)
		err = soft_mads_av(&dev->soft, d, &av);
	if (err == 0 && m.src_qp != 0)
		err = ib_get_cached_pkey(&dev->soft.ib, hca_av_port(&av), d->pkey_index, &pkey);
	if (err != 0)
		return err;
	m.dst_qp = d->remote_qpn;
	m.slid = av.slid;
	m.dlid = av.dlid;
	m.sl = av.sl;
	m.pkey = pkey;
	m.has_grh = !av.no_grh;
	if (m.has_grh)
		hca_mads_fill_grh(&av, m.grh);
	memcpy(m.mad, d->mad, sizeof(m.mad));
	return node_fabric_send(hca_fabric(), port->index, &m);
}

/* The fabric does every hop. */
static enum mad_hop hca_mads_hop(void *arg, void *smp, bool leaves)
{
	return leaves ? MAD_HOP_ON : MAD_HOP_HERE;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* Copied, for the fabric's MADs have no alignment. */
static void hca_mads_deliver(u32 index, const struct fabric_mad *m)
{
	struct hca_port *port = hca_host_port(index);
	struct mad_port *to;
	struct mad_arrival a = { .src_qp = m->src_qp,
				 .qkey = m->qkey,
				 .pkey = m->pkey,
				 .slid = m->slid,
				 .sl = m->sl,
				 .has_grh = m->has_grh,
				 .mad = m->mad,
				 .length = sizeof(m->mad) };
	struct ib_grh grh;
	u64 service_id;
	u32 slot;

	if (port == NULL || m->dst_qp > 1)
		return;
	to = m->dst_qp == 0 ? port->smi : port->gsi;
	if (to == NULL)
		return;
	if (m->dst_qp == 1)
		a.begins = steer_mad(m->mad, &slot, &service_id) == STEER_BY_SERVICE;
	memcpy(&grh, m->grh, sizeof(grh));
	a.grh = grh;
	mad_port_receive(to, &a);
}

/* On the queue of the ports' MADs, which handles them next. */
static void hca_mads_read(void *arg)
{
	static struct node_fabric_mad in[NODE_FABRIC_BATCH]; /* of the one thread */
	u32 n = node_fabric_receive(arg, in, NODE_FABRIC_BATCH);

	for (u32 i = 0; i < n; i++)
		hca_mads_deliver(in[i].port, &in[i].mad);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int hca_mads_listen(void *arg, u64 service_id, u64 mask,
			   const struct ib_cm_compare_data *compare, bool on)
{
	struct hca_port *port = arg;

	return soft_mads_listen(&port->device->soft, service_id, mask, compare, on);
}

static int hca_mads_fill_will(struct hca_port *port, const struct mad_will *will,
			      struct node_will *out)
{
	struct ib_device *ib = &port->device->soft.ib;
	struct path_av av;
	int err = hca_resolve_av(&port->device->soft, will->ah, &av);

	if (err == 0)
		err = ib_get_cached_pkey(ib, port->number, will->pkey_index, &out->pkey);
	if (err != 0)
		return err;
	memcpy(out->sgid, av.sgid, sizeof(out->sgid));
	memcpy(out->dgid, av.dgid, sizeof(out->dgid));
	out->flow_label = av.flow_label;
	out->traffic_class = av.traffic_class;
	out->hop_limit = av.hop_limit;
	out->port = port->index;
	out->slid = av.slid;
	out->dlid = av.dlid;
	out->sl = av.sl;
	out->has_grh = !av.no_grh;
	soft_mads_fill_will(will, out);
	return 0;
}

static void hca_mads_will(void *arg, u32 index, const struct mad_will *will)
{
	struct node_will out = { .pkey = 0 };

	if (!seat_is_attached(&the_seat))
		return;
	if (will != NULL && hca_mads_fill_will(arg, will, &out) != 0)
		will = NULL; /* its port cannot be read */
	soft_mads_set_will(index, will != NULL ? &out : NULL);
}

static int hca_mads_agent(void *arg, const struct ib_mad_reg_req *request, bool on)
{
	struct hca_port *port = arg;
	struct soft_mads_place at = { .device = node_fabric_device(port->device->node),
				      .port = port->number,
				      .qpn = hca_mads_qpn(request->mgmt_class) };

	return soft_mads_agent(&port->device->soft, &at, request, on);
}

static int hca_mads_member(void *arg, const struct mad_member *member)
{
	struct hca_port *port = arg;
	struct ib_device *ib = &port->device->soft.ib;
	struct node_sa_name name = { .port = port->index };
	u16 pkey;
	int err = soft_attach(&port->device->soft);

	if (err == 0)
		err = ib_get_cached_pkey(ib, port->number, member->pkey_index, &pkey);
	if (err != 0)
		return err;
	/* an adapter has sent what was posted long before the group's routes change */
	if (member->states == 0 && !member->subscribes)
		soft_await_datagrams(&port->device->soft);
	if (member->subscribes) {
		name.kind = NODE_SA_NOTICES;
		name.id[14] = (u8)(member->trap >> 8);
		name.id[15] = (u8)member->trap;
	} else {
		memcpy(name.id, member->mgid.raw, sizeof(name.id));
	}
	return node_fabric_member(hca_fabric(), &name, pkey, member->states);
}

static int hca_mads_slot(void *arg)
{
	struct hca_port *port = arg;

	return soft_mads_slot(&port->device->soft);
}

static const struct mad_port_ops hca_mads_ops = {
	.send = hca_mads_send,
	.listen = hca_mads_listen,
	.agent = hca_mads_agent,
	.will = hca_mads_will,
	.hop = hca_mads_hop,
	.member = hca_mads_member,
	.slot = hca_mads_slot,
};

static struct mad_port *hca_mads_add_one(struct hca_device *dev, struct hca_port *port,
				     enum ib_qp_type type)
{
	struct mad_port_config config = { .device = &dev->soft.ib,
					  .port_num = port->number,
					  .qp_type = type,
					  .ops = &hca_mads_ops,
					  .arg = port,
					  .queue = soft_mads_queue(),
					  .at_once = type == IB_QPT_SMI };
	struct mad_port *made;
	int err;

	made = mad_port_add(&config, &err);
	if (made == NULL)
		log_warn("ib", "port %u of %s has no QP%d: error %d", port->number,
			 dev->soft.ib.name, type == IB_QPT_SMI ? 0 : 1, -err);
	return made;
}

void hca_mads_add(struct hca_device *dev)
{
	for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++) {
		dev->port[n].smi = hca_mads_add_one(dev, &dev->port[n], IB_QPT_SMI);
		dev->port[n].gsi = hca_mads_add_one(dev, &dev->port[n], IB_QPT_GSI);
	}
}

int hca_mads_start(const struct node_fabric *f)
{
	int err = 0;

	lock_acquire(&hca_mads.mads_lock);
	if (!hca_mads.reading)
		err = work_queue_watch(soft_mads_queue(), node_fabric_fd(f), hca_mads_read,
				       (void *)(uintptr_t)f);
	hca_mads.reading = err == 0;
	lock_release(&hca_mads.mads_lock);
	return err;
}

void hca_mads_receive(void *seat, const struct pkt *p, const void *payload)
{
}

/* ---- keys that queue pairs refuse ------------------------------------------------------------ */

/* The port that has the LID; of a multicast LID the first of the host. */
static u32 hca_port_of_lid(u16 lid)
{
	struct fabric_port_attr a;
	struct hca_device *dev;

	for (u32 i = 0; (dev = hca_host_device(i)) != NULL; i++)
		for (u8 n = 1; n <= dev->soft.ib.phys_port_cnt; n++)
			if (hca_port_read(dev, n, &a) == 0 &&
			    (lid >= FABRIC_MLID_FIRST || (lid >> a.lmc) == (a.lid >> a.lmc)))
				return dev->port[n].index;
	return FABRIC_NONE;
}

void hca_bad_key(void *seat, const struct pkt *p, bool is_qkey)
{
	u16 pkey = p->pkey == 0 ? HCA_PKEY_DEFAULT : p->pkey;
	struct fabric_violation v = { .key = is_qkey ? p->qkey : pkey,
				      .slid = p->slid,
				      .dlid = p->dlid,
				      .src_qp = p->sqpn,
				      .dst_qp = p->dqpn,
				      .sl = p->sl,
				      .is_qkey = is_qkey };

	node_fabric_refuse(hca_fabric(), hca_port_of_lid(p->dlid), &v);
}

static void hca_mads_drop_in_child(void) NO_THREAD_SAFETY
{
	hca_mads.reading = false;
}
FORK_TAKES(FORK_HCA_MADS, &hca_mads.mads_lock, .child = hca_mads_drop_in_child);
