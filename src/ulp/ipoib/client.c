/* client.c: the instance: its device as the midlayer tells of it, its port, the thread of works;
 * packets of the stack above.
 * In:    devices, events, packets    Out: frames, news of the link
 * Runs:  the midlayer's threads, senders, the thread of works    Locks: ipoib.lock
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_cache.h>

#include "base/log.h"
#include "ulp/ipoib/ipoib_priv.h"

static void ipoib_add(struct ib_device *device);
static void ipoib_remove(struct ib_device *device);

static struct ib_client ipoib_client = { .name = "ipoib",
					 .add = ipoib_add,
					 .remove = ipoib_remove };
/* The one instance of a process. */
static struct ipoib *the_ipoib;

void ipoib_kick(struct ipoib *ip)
{
	if (ip->open)
		work_push(&ip->work);
}

void ipoib_kick_at(struct ipoib *ip, u64 ns)
{
	if (!ip->open)
		return;
	if (ip->wake_ns != 0 && ip->wake_ns <= ns)
		return;
	ip->wake_ns = ns;
	work_push_at(&ip->work, ns);
}

/* ---- the port -------------------------------------------------------------------------------- */

/* The port has no link: the stack above is told. */
static void ipoib_link_down(struct ipoib *ip)
{
	bool was;

	lock_acquire(&ip->lock);
	was = ip->link;
	ip->link = false;
	ipoib_group_lose(ip);
	ipoib_path_flush(ip);
	lock_release(&ip->lock);
	if (was)
		ip->ops->link(ip->arg, false, NULL, 0);
}

/* What the port is now. False: it is not active, or has no such partition. */
static bool ipoib_port_read(struct ipoib *ip, struct ib_port_attr *port, union ib_gid *gid,
			    u16 *index)
{
	u16 pkey = 0xffff;

	if (ib_query_port(ip->device, ip->config.port, port) != 0 ||
	    port->state != IB_PORT_ACTIVE ||
	    ib_query_gid(ip->device, ip->config.port, 0, gid) != 0)
		return false;
	*index = 0;
	if (ip->config.pkey != 0)
		return ib_find_pkey(ip->device, ip->config.port, ip->config.pkey, index) == 0;
	return ib_query_pkey(ip->device, ip->config.port, 0, &pkey) == 0;
}

/* The queue pair moves to another entry of the P_Key table. */
static void ipoib_port_set_index(struct ipoib *ip, u16 index)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_SQD, .pkey_index = index };
	bool same;

	lock_acquire(&ip->lock);
	same = ip->pkey_index == index;
	ip->pkey_index = index;
	lock_release(&ip->lock);
	if (same)
		return;
	if (ib_modify_qp(ip->qp, &attr, IB_QP_STATE) == 0)
		(void)ib_modify_qp(ip->qp, &attr, IB_QP_PKEY_INDEX);
	attr.qp_state = IB_QPS_RTS;
	(void)ib_modify_qp(ip->qp, &attr, IB_QP_STATE);
}

static void ipoib_port_look(struct ipoib *ip)
{
	struct ib_port_attr port;
	struct ipoib_hw own;
	union ib_gid gid;
	u16 index = 0;
	bool active = ipoib_port_read(ip, &port, &gid, &index), moved;

	lock_acquire(&ip->lock);
	ip->active = active;
	lock_release(&ip->lock);
	if (!active) {
		ipoib_link_down(ip);
		return;
	}
	ipoib_port_set_index(ip, index);
	ipoib_hw_make(&own, ip->qp->qp_num, gid.raw);
	lock_acquire(&ip->lock);
	moved = ip->link && memcmp(&own, &ip->own, sizeof(own)) != 0;
	ip->own = own;
	ip->lid = port.lid;
	ipoib_path_flush(ip);
	lock_release(&ip->lock);
	if (moved) /* the stack above is told of the new address with the link */
		ipoib_link_down(ip);
}

/* ---- the thread of works --------------------------------------------------------------------- */

static void ipoib_step(struct work *w)
{
	struct ipoib *ip = container_of(w, struct ipoib, work);
	u64 now = clock_now_ns(), next;
	bool look;

	lock_acquire(&ip->lock);
	ip->wake_ns = 0;
	look = ip->port_changed;
	ip->port_changed = false;
	lock_release(&ip->lock);
	if (look)
		ipoib_port_look(ip);
	next = ipoib_group_step(ip, now);
	lock_acquire(&ip->lock);
	if (ip->announce && ip->link)
		ipoib_speak_announce(ip);
	if (now >= ip->ticked_ns + IPOIB_TICK_NS) {
		ip->ticked_ns = now;
		ipoib_neigh_tick(ip, now);
	} else {
		ipoib_kick_at(ip, ip->ticked_ns + IPOIB_TICK_NS);
	}
	ipoib_kick_at(ip, next);
	lock_release(&ip->lock);
	ipoib_neigh_refuse(ip);
	ipoib_neigh_tell(ip);
}

static void ipoib_event(struct ib_event_handler *handler, struct ib_event *event)
{
	struct ipoib *ip = container_of(handler, struct ipoib, events);

	switch (event->event) {
	case IB_EVENT_PORT_ACTIVE:
	case IB_EVENT_PORT_ERR:
	case IB_EVENT_LID_CHANGE:
	case IB_EVENT_PKEY_CHANGE:
	case IB_EVENT_SM_CHANGE:
	case IB_EVENT_CLIENT_REREGISTER:
	case IB_EVENT_GID_CHANGE:
		break;
	default:
		return;
	}
	if (event->element.port_num != ip->config.port)
		return;
	lock_acquire(&ip->lock);
	ip->port_changed = true;
	ipoib_kick(ip);
	lock_release(&ip->lock);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void ipoib_stop(struct ipoib *ip)
{
	lock_acquire(&ip->lock);
	ip->open = false;
	lock_release(&ip->lock);
	ib_unregister_event_handler(&ip->events);
	work_cancel_wait(&ip->work);
	ipoib_link_down(ip);
	ipoib_group_end(ip);
	lock_acquire(&ip->lock);
	ipoib_path_cancel(ip);
	lock_release(&ip->lock);
	ib_sa_unregister_client(&ip->sa);
	lock_acquire(&ip->lock);
	ipoib_neigh_end(ip);
	ipoib_wait_drop(ip, &ip->refused, IPOIB_DROP_NEIGHBOUR);
	lock_release(&ip->lock);
	ipoib_ring_close(ip);
	ip->device = NULL;
}

static void ipoib_start(struct ipoib *ip)
{
	ib_sa_register_client(&ip->sa);
	INIT_IB_EVENT_HANDLER(&ip->events, ip->device, ipoib_event);
	ib_register_event_handler(&ip->events);
	lock_acquire(&ip->lock);
	ip->open = true;
	ip->port_changed = ip->groups_changed = true;
	ipoib_kick(ip);
	lock_release(&ip->lock);
}

/* The partition, and where it stands in the table when the queue pair begins. */
static void ipoib_choose_pkey(struct ipoib *ip)
{
	u16 pkey = 0xffff, index = 0;

	if (ip->config.pkey != 0) {
		pkey = ip->config.pkey;
		(void)ib_find_pkey(ip->device, ip->config.port, pkey, &index);
	} else {
		(void)ib_query_pkey(ip->device, ip->config.port, 0, &pkey);
	}
	lock_acquire(&ip->lock);
	ip->pkey = pkey;
	ip->pkey_index = index;
	lock_release(&ip->lock);
}

static void ipoib_add(struct ib_device *device)
{
	struct ipoib *ip = the_ipoib;
	int err;

	if (ip->device != NULL || strcmp(device->name, ip->config.device) != 0 ||
	    ip->config.port < 1 || ip->config.port > device->phys_port_cnt ||
	    rdma_port_get_link_layer(device, ip->config.port) != IB_LINK_LAYER_INFINIBAND)
		return;
	ip->device = device;
	ipoib_choose_pkey(ip);
	err = ipoib_ring_open(ip);
	if (err != 0) {
		log_error("ipoib", "%s cannot be used: error %d", device->name, -err);
		ipoib_ring_close(ip);
		ip->device = NULL;
		return;
	}
	ib_set_client_data(device, &ipoib_client, ip);
	ipoib_start(ip);
}

static void ipoib_remove(struct ib_device *device)
{
	struct ipoib *ip = ib_get_client_data(device, &ipoib_client);

	if (ip == NULL)
		return;
	ipoib_stop(ip);
	ip->ops->gone(ip->arg);
}

/* ---- packets of the stack above -------------------------------------------------------------- */

bool ipoib_is_on_link(const struct ipoib *ip, const u8 to[16])
{
	if (!ipoib_ip_is_v4(to) && to[0] == 0xfe && to[1] >> 6 == 2)
		return true;
	for (u32 i = 0; i < ip->prefix_count; i++)
		if (ipoib_ip_is_v4(ip->prefix[i].ip) == ipoib_ip_is_v4(to) &&
		    ipoib_ip_fits(to, &ip->prefix[i]))
			return true;
	return false;
}

static struct ipoib_hop *ipoib_hop_of(struct ipoib *ip, const u8 to[16]) REQUIRES(ip->lock)
{
	u32 hash = 0;

	for (u32 i = 0; i < 16; i++)
		hash = hash * 31 + to[i];
	return &ip->hop[hash % IPOIB_HOPS];
}

/* 0: *next is it. */
static int ipoib_find_next(struct ipoib *ip, const u8 to[16], u8 next[16]) EXCLUDES(ip->lock)
{
	struct ipoib_hop *hop;
	bool known;
	int err;

	memcpy(next, to, 16);
	lock_acquire(&ip->lock);
	known = ipoib_is_on_link(ip, to);
	hop = ipoib_hop_of(ip, to);
	if (!known && hop->known && memcmp(hop->to, to, 16) == 0) {
		memcpy(next, hop->next, 16);
		known = true;
	}
	lock_release(&ip->lock);
	if (known)
		return 0;
	err = ip->ops->next_hop(ip->arg, to, next);
	if (err != 0)
		return err;
	lock_acquire(&ip->lock);
	memcpy(hop->to, to, 16);
	memcpy(hop->next, next, 16);
	hop->known = true;
	lock_release(&ip->lock);
	return 0;
}

void ipoib_routes_changed(struct ipoib *ip)
{
	lock_acquire(&ip->lock);
	memset(ip->hop, 0, sizeof(ip->hop));
	lock_release(&ip->lock);
}

static bool ipoib_is_broadcast(const struct ipoib *ip, const u8 to[16]) REQUIRES(ip->lock)
{
	if (ipoib_ip_is_broadcast(to))
		return true;
	for (u32 i = 0; i < ip->prefix_count; i++)
		if (ipoib_ip_is_broadcast_of(to, &ip->prefix[i]))
			return true;
	return false;
}

/* To a group, or the broadcast group. False: it is neither. */
static bool ipoib_send_to_many(struct ipoib *ip, const u8 to[16], struct ipoib_buffer *b)
	REQUIRES(ip->lock)
{
	static const u8 all[16] = { [10] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

	if (ipoib_is_broadcast(ip, to))
		ipoib_group_send(ip, all, b);
	else if (ipoib_ip_is_group(to))
		ipoib_group_send(ip, to, b);
	else
		return false;
	return true;
}

/* False: the frame has gone, or been dropped. */
static bool ipoib_send_begins(struct ipoib *ip, struct ipoib_buffer *b, const u8 to[16], bool is_ip)
	EXCLUDES(ip->lock)
{
	bool goes_on = false;

	lock_acquire(&ip->lock);
	if (!ip->link)
		ipoib_ring_drop(ip, b, IPOIB_DROP_LINK);
	else if (!is_ip)
		ipoib_ring_drop(ip, b, IPOIB_DROP_ADDRESS);
	else if (b->size > ip->mtu + IPOIB_HEAD)
		ipoib_ring_drop(ip, b, IPOIB_DROP_SIZE);
	else
		goes_on = !ipoib_send_to_many(ip, to, b);
	lock_release(&ip->lock);
	return goes_on;
}

void ipoib_send(struct ipoib *ip, struct ipoib_buffer *b, u32 size)
{
	bool is_ip = size <= IPOIB_MTU;
	u8 to[16], next[16];
	int err;

	b->size = size + IPOIB_HEAD;
	is_ip = is_ip && ipoib_frame_wrap(b->frame, size, to);
	if (!ipoib_send_begins(ip, b, to, is_ip))
		return;
	err = ipoib_find_next(ip, to, next);
	lock_acquire(&ip->lock);
	if (err != 0 || ipoib_ip_is_none(next))
		ipoib_ring_drop(ip, b, IPOIB_DROP_ADDRESS);
	else
		ipoib_neigh_send(ip, next, b);
	lock_release(&ip->lock);
}

void ipoib_set_addresses(struct ipoib *ip, const struct ipoib_prefix *prefix, u32 count)
{
	lock_acquire(&ip->lock);
	count = MIN(count, IPOIB_PREFIXES);
	if (count != ip->prefix_count || memcmp(ip->prefix, prefix, count * sizeof(*prefix)) != 0) {
		memcpy(ip->prefix, prefix, count * sizeof(*prefix));
		ip->prefix_count = count;
		ip->announce = ip->groups_changed = true;
		ipoib_kick(ip);
	}
	lock_release(&ip->lock);
}

void ipoib_set_groups(struct ipoib *ip, const u8 (*group)[16], u32 count)
{
	lock_acquire(&ip->lock);
	count = MIN(count, IPOIB_GROUPS);
	if (count != ip->listen_count || memcmp(ip->listens, group, count * sizeof(*group)) != 0) {
		memcpy(ip->listens, group, count * sizeof(*group));
		ip->listen_count = count;
		ip->groups_changed = true;
		ipoib_kick(ip);
	}
	lock_release(&ip->lock);
}

void ipoib_count(struct ipoib *ip, struct ipoib_counters *out)
{
	lock_acquire(&ip->lock);
	*out = ip->counters;
	lock_release(&ip->lock);
}

const char *ipoib_drop_name(enum ipoib_drop why)
{
	static const char *const names[IPOIB_DROPS] = {
		[IPOIB_DROP_FORM] = "malformed",     [IPOIB_DROP_STATUS] = "failed",
		[IPOIB_DROP_LINK] = "no link",	     [IPOIB_DROP_SIZE] = "too long",
		[IPOIB_DROP_ADDRESS] = "no address", [IPOIB_DROP_NEIGHBOUR] = "no neighbour",
		[IPOIB_DROP_GROUP] = "empty group",  [IPOIB_DROP_ROOM] = "no room"
	};

	return names[why];
}

/* ---- instances ------------------------------------------------------------------------------- */

static bool ipoib_make_buffers(struct ipoib *ip) NO_THREAD_SAFETY /* nobody else has it yet */
{
	ip->rx = calloc(IPOIB_RECEIVE_RING, sizeof(*ip->rx));
	for (u32 i = 0; i < IPOIB_BUFFERS && ip->rx != NULL; i++) {
		struct ipoib_buffer *b = malloc(sizeof(*b));

		if (b == NULL)
			return false;
		list_push_back(&ip->idle, &b->node);
	}
	return ip->rx != NULL;
}

static void ipoib_init(struct ipoib *ip, const struct ipoib_config *config,
		       const struct ipoib_ops *ops, void *arg) NO_THREAD_SAFETY
{
	ip->config = *config;
	ip->ops = ops;
	ip->arg = arg;
	list_init(&ip->idle);
	list_init(&ip->groups);
	list_init(&ip->queries);
	list_init(&ip->waiting);
	ipoib_wait_init(&ip->refused);
	for (u32 i = 0; i < IPOIB_BUCKETS; i++)
		list_init(&ip->bucket[i]);
	work_queue_init(&ip->queue, "ipoib", false);
	work_init(&ip->work, &ip->queue, ipoib_step);
}

struct ipoib *ipoib_open(const struct ipoib_config *config, const struct ipoib_ops *ops, void *arg,
			 int *err)
{
	struct ipoib *ip = calloc(1, sizeof(*ip));

	*err = -ENOMEM;
	if (ip == NULL)
		return NULL;
	ipoib_init(ip, config, ops, arg);
	if (!ipoib_make_buffers(ip))
		return NULL; /* the process has no memory, and ends */
	the_ipoib = ip;
	*err = work_queue_begin(&ip->queue);
	if (*err == 0)
		*err = ib_register_client(&ipoib_client);
	if (*err == 0 && ip->device == NULL) {
		ib_unregister_client(&ipoib_client);
		*err = -ENODEV;
	}
	return *err == 0 ? ip : NULL;
}

void ipoib_close(struct ipoib *ip)
{
	(void)ip;
	ib_unregister_client(&ipoib_client);
}
