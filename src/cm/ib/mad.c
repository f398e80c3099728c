/* mad.c: the process' instance of the CM, over the MAD layer: an agent on QP1 of every port.
 * In: MADs from agents, devices from the midlayer    Out: MADs to agents
 * Runs: consumers' threads, the MAD layer's queue, the CM's queue    Locks: cm_mad_lock, making
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rdma/ib_cache.h>

#include "base/fork.h"
#include "cm/ib/cm_priv.h"
#include "core/service.h"
#include "core/uverbs.h"
#include "mad/mad.h"

enum { CM_PORTS_MAX = 2 };

struct cm_mad_device {
	struct cm_device dev WRITTEN_UNDER(making); /* first: the ops know the device by it */
	struct ib_pd *pd FIXED;			    /* of the address handles */
	struct lock making; /* held until all fields have their values */
	struct ib_mad_agent *agents[CM_PORTS_MAX + 1] WRITTEN_UNDER(making); /* by port or NULL */
};

static struct lock cm_mad_lock;
static struct cm *cm_mad_cm WRITTEN_UNDER(cm_mad_lock); /* before the first device */
static struct work_queue cm_mad_queue;
static int cm_mad_refused ATOMIC_ONLY; /* the error of a device that lacks a resource */

/* ---- sending --------------------------------------------------------------------------------- */

/* The peer's process has ended, and nobody is left to answer in its name. */
static void cm_mad_answer_for_gone(struct cm_mad_device *d, const u8 *mad)
{
	u8 answer[CM_MAD_BYTES];
	struct cm_arrival a = { .mad = answer, .length = sizeof(answer) };

	if (msg_answer_for_gone(mad, answer))
		cm_receive(&d->dev, &a);
}

static void cm_mad_send_done(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	if (wc->status == IB_WC_RETRY_EXC_ERR)
		cm_mad_answer_for_gone(agent->context, wc->send_buf->mad);
	ib_destroy_ah(wc->send_buf->ah);
	ib_free_send_mad(wc->send_buf);
}

/* A MAD that cannot be sent is lost, as on the way. */
static void cm_mad_send(struct cm_device *dev, const struct cm_route *route, const u8 *mad)
{
	struct cm_mad_device *d = (struct cm_mad_device *)dev;
	u8 port = route->ah.port_num;
	struct ib_ah_attr attr = route->ah;
	struct ib_mad_send_buf *buf;
	struct ib_ah *ah;

	if (port > CM_PORTS_MAX || d->agents[port] == NULL)
		return;
	ah = ib_create_ah(d->pd, &attr);
	if (IS_ERR(ah))
		return;
	buf = ib_create_send_mad(d->agents[port], 1, route->pkey_index, 0, IB_MGMT_MAD_HDR,
				 IB_MGMT_MAD_DATA, 0);
	if (IS_ERR(buf)) {
		ib_destroy_ah(ah);
		return;
	}
	memcpy(buf->mad, mad, CM_MAD_BYTES);
	buf->ah = ah;
	if (ib_post_send_mad(buf, NULL) != 0) {
		ib_destroy_ah(ah);
		ib_free_send_mad(buf);
	}
}

static void cm_mad_flush(struct cm_device *dev)
{
	struct cm_mad_device *d = (struct cm_mad_device *)dev;

	for (u8 port = 1; port <= CM_PORTS_MAX; port++)
		if (d->agents[port] != NULL)
			mad_flush(d->agents[port]);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void cm_mad_received(struct ib_mad_agent *agent, struct ib_mad_recv_wc *wc)
{
	struct cm_mad_device *d = agent->context;
	struct cm_arrival a = { .mad = (const u8 *)wc->recv_buf.mad, .length = (u32)wc->mad_len };
	struct ib_ah_attr *back = &a.back.ah;

	/* the first MAD may be faster than ib_register_mad_agent returns */
	lock_acquire(&d->making);
	lock_release(&d->making);
	if (ib_init_ah_from_wc(agent->device, agent->port_num, wc->wc, wc->recv_buf.grh, back) ==
	    0) {
		a.back.pkey_index = wc->wc->pkey_index;
		if (back->ah_flags & IB_AH_GRH) {
			a.sgid = back->grh.dgid;
			(void)ib_get_cached_gid(agent->device, agent->port_num,
						back->grh.sgid_index, &a.dgid);
		}
		cm_receive(&d->dev, &a);
	}
	ib_free_recv_mad(wc);
}

/* ---- the device's tables --------------------------------------------------------------------- */

static int cm_mad_find_gid(struct cm_device *dev, const union ib_gid *gid, u8 *port, u16 *index)
{
	union ib_gid copy = *gid;

	return ib_find_cached_gid(dev->ib, &copy, port, index);
}

static int cm_mad_find_pkey(struct cm_device *dev, u8 port, u16 pkey, u16 *index)
{
	return ib_find_cached_pkey(dev->ib, port, pkey, index);
}

static int cm_mad_listen(struct cm_device *dev, u64 service_id, u64 mask,
			 const struct ib_cm_compare_data *compare, bool on)
{
	struct cm_mad_device *d = (struct cm_mad_device *)dev;
	u8 port = 1;
	int err = 0;

	for (; port <= CM_PORTS_MAX && err == 0; port++) {
		if (d->agents[port] == NULL)
			continue;
		if (on)
			err = mad_listen(d->agents[port], service_id, mask, compare);
		else
			mad_unlisten(d->agents[port], service_id, mask, compare);
	}
	while (err != 0 && --port > 1) { /* the last one has failed */
		if (d->agents[port - 1] != NULL)
			mad_unlisten(d->agents[port - 1], service_id, mask, compare);
	}
	return err;
}

static void cm_mad_will(struct cm_device *dev, u32 slot, const struct cm_route *route,
			const u8 *mad, const struct mad_connection *connection)
{
	struct cm_mad_device *d = (struct cm_mad_device *)dev;
	u8 port = 1;

	if (mad != NULL) {
		struct mad_will will = { .ah = &route->ah,
					 .pkey_index = route->pkey_index,
					 .mad = mad,
					 .bytes = CM_WILL_BYTES,
					 .connection = *connection };

		port = route->ah.port_num;
		if (port <= CM_PORTS_MAX && d->agents[port] != NULL)
			mad_will_set(d->agents[port], slot, &will);
		return;
	}
	/* wills are the process', whichever the port */
	while (port <= CM_PORTS_MAX && d->agents[port] == NULL)
		port++;
	if (port <= CM_PORTS_MAX)
		mad_will_set(d->agents[port], slot, NULL);
}

static const struct cm_device_ops cm_mad_ops = {
	.send = cm_mad_send,
	.flush = cm_mad_flush,
	.find_gid = cm_mad_find_gid,
	.find_pkey = cm_mad_find_pkey,
	.listen = cm_mad_listen,
	.will = cm_mad_will,
};

/* ---- devices --------------------------------------------------------------------------------- */

static void cm_mad_add(struct ib_device *device);
static void cm_mad_remove(struct ib_device *device);

static struct core_service cm_mad_service = {
	.client = { .name = "cm", .add = cm_mad_add, .remove = cm_mad_remove }
};

static void cm_mad_device_free(struct cm_mad_device *d)
{
	for (u8 port = 1; port <= CM_PORTS_MAX; port++) {
		if (d->agents[port] != NULL)
			ib_unregister_mad_agent(d->agents[port]);
	}
	if (!IS_ERR(d->pd))
		ib_dealloc_pd(d->pd);
	free(d);
}

/* cm_start fails where a device lacks a resource (threads, descriptors, memory), which says nothing
 * about the device; with another error it has no management. */
static void cm_mad_note(long err)
{
	if (err == -EAGAIN || err == -EMFILE || err == -ENFILE || err == -ENOMEM)
		__atomic_store_n(&cm_mad_refused, (int)err, __ATOMIC_RELAXED);
}

/* False: no port has management. */
static bool cm_mad_register_agents(struct cm_mad_device *d)
{
	struct ib_mad_reg_req req = { .mgmt_class = CM_CLASS,
				      .mgmt_class_version = CM_CLASS_VERSION,
				      .method_mask = { 1ul << CM_METHOD_SEND } };
	u8 ports = MIN(d->dev.ib->phys_port_cnt, (u8)CM_PORTS_MAX);
	bool any = false;

	for (u8 port = 1; port <= ports; port++) {
		struct ib_mad_agent *agent =
			ib_register_mad_agent(d->dev.ib, port, IB_QPT_GSI, &req, 0,
					      cm_mad_send_done, cm_mad_received, d);

		if (IS_ERR(agent)) {
			cm_mad_note(PTR_ERR(agent));
			continue;
		}
		d->agents[port] = agent;
		d->dev.id_bits = mad_id_bits(agent);
		d->dev.hi_tid = agent->hi_tid;
		any = true;
	}
	return any;
}

static void cm_mad_add(struct ib_device *device)
{
	struct cm_mad_device *d = calloc(1, sizeof(*d));
	struct ib_device_attr attr;
	bool any;

	if (d == NULL) {
		cm_mad_note(-ENOMEM);
		return;
	}
	lock_init(&d->making);
	d->dev.ib = device;
	d->dev.ops = &cm_mad_ops;
	d->pd = ib_alloc_pd(device);
	if (IS_ERR(d->pd))
		cm_mad_note(PTR_ERR(d->pd));
	if (IS_ERR(d->pd) || ib_query_device(device, &attr) != 0) {
		cm_mad_device_free(d);
		return;
	}
	d->dev.ack_delay = attr.local_ca_ack_delay;
	lock_acquire(&d->making);
	any = cm_mad_register_agents(d);
	if (any)
		cm_device_add(cm_mad_cm, &d->dev);
	lock_release(&d->making);
	if (any)
		ib_set_client_data(device, &cm_mad_service.client, d);
	else
		cm_mad_device_free(d);
}

static void cm_mad_remove(struct ib_device *device)
{
	struct cm_mad_device *d = ib_get_client_data(device, &cm_mad_service.client);

	if (d == NULL)
		return;
	cm_device_remove(&d->dev);
	cm_mad_device_free(d);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* Whose lock the fork holds: another thread may make the instance meanwhile. NULL: nobody's */
static struct cm *cm_mad_forked OWNED_BY(fork_all.lock);

static void cm_mad_before_fork(void) NO_THREAD_SAFETY
{
	cm_mad_forked = __atomic_load_n(&cm_mad_cm, __ATOMIC_ACQUIRE);
	if (cm_mad_forked != NULL)
		lock_acquire(&cm_mad_forked->lock);
}

static void cm_mad_after_fork(void) NO_THREAD_SAFETY
{
	if (cm_mad_forked != NULL)
		lock_release(&cm_mad_forked->lock);
}

/* The child's ids are the parent's connections: it has none. */
static void cm_mad_drop_in_child(void) NO_THREAD_SAFETY
{
	if (cm_mad_cm != NULL)
		cm_drop_in_child(cm_mad_cm);
}
FORK_HOOK(FORK_CM, .before = cm_mad_before_fork, .after = cm_mad_after_fork,
	  .child = cm_mad_drop_in_child);

/* What the child creates is on an instance of its own. */
static void cm_mad_start_in_child(void) NO_THREAD_SAFETY
{
	work_queue_drop_in_child(&cm_mad_queue);
	core_service_drop_in_child(&cm_mad_service);
	cm_mad_cm = NULL;
}
FORK_MAKES_ANEW(FORK_CM_START, &cm_mad_lock, .child = cm_mad_start_in_child);

/* ---- the beginning --------------------------------------------------------------------------- */

_Static_assert((int)CM_COUNTERS == (int)MAD_CM_COUNTERS, "each counter of the CM has a place");

/* nobody else has the new instance yet */
static struct cm *cm_mad_create(void) NO_THREAD_SAFETY
{
	struct cm *cm;
	u32 seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = (u32)clock_now_ns();
	cm = cm_create(&cm_mad_queue, seed);
	if (cm != NULL)
		cm->shown = true;
	return cm;
}

/* The queue and the instance. What there is already at a failure waits for the next call: a fork
 * may have the instance's lock. */
static int cm_mad_begin(void)
{
	int err;

	lock_acquire(&cm_mad_lock);
	if (cm_mad_queue.name == NULL)
		work_queue_init(&cm_mad_queue, "anyverbs/cm", false);
	err = work_queue_begin(&cm_mad_queue);
	if (err == 0 && cm_mad_cm == NULL) {
		struct cm *cm = cm_mad_create();

		/* pairs with the load in cm_mad_before_fork */
		__atomic_store_n(&cm_mad_cm, cm, __ATOMIC_RELEASE);
		err = cm == NULL ? -ENOMEM : 0;
	}
	lock_release(&cm_mad_lock);
	return err;
}

int cm_start(void)
{
	int err;

	if (core_service_is_settled(&cm_mad_service))
		return 0;
	err = cm_mad_begin();
	if (err != 0)
		return err;
	cm_mad_note(driver_probe_all());
	err = core_service_begin(&cm_mad_service);
	if (err == 0) {
		err = __atomic_exchange_n(&cm_mad_refused, 0, __ATOMIC_RELAXED);
		if (err != 0)
			core_service_end(&cm_mad_service);
	}
	return err;
}
