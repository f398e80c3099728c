/* port.c: the InfiniBand ports of this process, and the way to their subnet administrators.
 * In:    devices, events of ports    Out: agents, address handles
 * Runs:  registration; any context   Locks: sa_start_lock, sa_lock
 * Spec:  IBA vol 1, 15.4.2 (how the SA is reached: SM's LID, QP1)
 */
#include <errno.h>
#include <stdlib.h>

#include <rdma/ib_cache.h>

#include "base/fork.h"
#include "base/log.h"
#include "core/service.h"
#include "sa/sa.h"
#include "sa/sa_priv.h"

struct lock sa_lock;
struct work_queue sa_queue;

static struct list_head sa_ports GUARDED_BY(sa_lock) = LIST_HEAD_INIT(sa_ports);

/* ---- uses ------------------------------------------------------------------------------------ */

bool sa_port_try(struct sa_port *port)
{
	if (port->gone)
		return false;
	port->users++;
	return true;
}

void sa_port_put(struct sa_port *port)
{
	lock_acquire(&sa_lock);
	if (--port->users == 0)
		cond_wake(&port->idle);
	lock_release(&sa_lock);
}

struct sa_port *sa_port_get(const struct ib_device *device, u8 number)
{
	struct sa_port *found = NULL;

	lock_acquire(&sa_lock);
	list_for_each(p, &sa_ports, struct sa_port, node)
		if (found == NULL && p->device == device && p->number == number &&
		    sa_port_try(p))
			found = p;
	lock_release(&sa_lock);
	return found;
}

bool sa_client_hold(struct ib_sa_client *client)
{
	if (client == NULL)
		return true;
	if (!client->registered)
		return false;
	client->users++;
	return true;
}

void sa_client_drop(struct ib_sa_client *client)
{
	if (client != NULL && --client->users == 0)
		futex_wake(&client->users, INT32_MAX);
}

/* ---- the way --------------------------------------------------------------------------------- */

u16 sa_port_pkey_index(const struct sa_port *port)
{
	u16 index = 0;

	(void)ib_find_cached_pkey(port->device, port->number, IB_DEFAULT_PKEY_FULL, &index);
	return index;
}

struct ib_ah *sa_port_way(struct sa_port *port, u16 *pkey_index)
{
	struct ib_port_attr attr;
	struct ib_ah_attr way = { .port_num = port->number };

	if (ib_query_port(port->device, port->number, &attr) != 0 || attr.sm_lid == 0)
		return ERR_PTR(-EAGAIN);
	way.dlid = attr.sm_lid;
	way.sl = attr.sm_sl;
	*pkey_index = sa_port_pkey_index(port);
	return ib_create_ah(port->pd, &way);
}

/* ---- devices --------------------------------------------------------------------------------- */

/* What an SA keeps of a port is gone, or may be. */
static bool sa_port_event_loses(enum ib_event_type type)
{
	return type == IB_EVENT_PORT_ERR || type == IB_EVENT_LID_CHANGE ||
	       type == IB_EVENT_SM_CHANGE || type == IB_EVENT_CLIENT_REREGISTER;
}

static void sa_port_on_event(struct ib_event_handler *handler, struct ib_event *event)
{
	if (sa_port_event_loses(event->event))
		sa_mcast_port_changed(event->device, event->element.port_num);
	/* with the link down there is nobody to ask */
	if ((sa_port_event_loses(event->event) && event->event != IB_EVENT_PORT_ERR) ||
	    event->event == IB_EVENT_PORT_ACTIVE)
		sa_inform_port_changed(event->device, event->element.port_num);
}

/* One of the device's ports; NULL: without SA. */
static struct sa_port *sa_port_make(struct ib_device *device, u8 number)
{
	struct sa_port *port = calloc(1, sizeof(*port));

	if (port == NULL)
		return NULL;
	port->device = device;
	port->number = number;
	list_init(&port->groups);
	list_init(&port->topics);
	port->pd = ib_alloc_pd(device);
	port->agent = IS_ERR(port->pd)
			      ? ERR_PTR(-ENOMEM)
			      : ib_register_mad_agent(device, number, IB_QPT_GSI, NULL, 0,
						      sa_query_on_sent, sa_query_on_received, port);
	if (!IS_ERR(port->agent))
		return port;
	log_warn("sa", "port %u of %s cannot ask its SA: error %ld", number, device->name,
		 -PTR_ERR(port->agent));
	if (!IS_ERR(port->pd))
		(void)ib_dealloc_pd(port->pd);
	free(port);
	return NULL;
}

/* Of a device, while it is registered here. */
struct sa_device {
	struct ib_event_handler events;
} OWNED_BY(turn.held);

static void sa_device_add(struct ib_device *device);
static void sa_device_remove(struct ib_device *device);

static struct core_service sa_service = {
	.client = { .name = "sa", .add = sa_device_add, .remove = sa_device_remove }
};

static void sa_device_add(struct ib_device *device)
{
	struct sa_device *d = NULL;

	for (u8 n = 1; n <= device->phys_port_cnt; n++) {
		struct sa_port *port;

		if (rdma_port_get_link_layer(device, n) != IB_LINK_LAYER_INFINIBAND)
			continue;
		port = sa_port_make(device, n);
		if (port == NULL)
			continue;
		lock_acquire(&sa_lock);
		list_push_back(&sa_ports, &port->node);
		lock_release(&sa_lock);
		if (d == NULL)
			d = calloc(1, sizeof(*d));
	}
	if (d == NULL)
		return;
	INIT_IB_EVENT_HANDLER(&d->events, device, sa_port_on_event);
	if (ib_register_event_handler(&d->events) == 0)
		ib_set_client_data(device, &sa_service.client, d);
	else
		free(d);
}

/* Nobody finds the port any more. NULL: none is left. */
static struct sa_port *sa_port_take(const struct ib_device *device)
{
	struct sa_port *found = NULL;

	lock_acquire(&sa_lock);
	list_for_each(p, &sa_ports, struct sa_port, node)
		if (found == NULL && p->device == device)
			found = p;
	if (found != NULL) {
		found->gone = true;
		list_remove(&found->node);
	}
	lock_release(&sa_lock);
	return found;
}

/* The agent's end flushes its queries. */
static void sa_port_free(struct sa_port *port)
{
	lock_acquire(&sa_lock);
	while (port->users != 0)
		cond_wait(&port->idle, &sa_lock);
	lock_release(&sa_lock);
	(void)ib_unregister_mad_agent(port->agent);
	sa_mcast_port_gone(port);
	sa_inform_port_gone(port);
	(void)ib_dealloc_pd(port->pd);
	free(port);
}

static void sa_device_remove(struct ib_device *device)
{
	struct sa_device *d = ib_get_client_data(device, &sa_service.client);
	struct sa_port *port;

	if (d != NULL)
		(void)ib_unregister_event_handler(&d->events);
	free(d);
	while ((port = sa_port_take(device)) != NULL)
		sa_port_free(port);
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct lock sa_start_lock ONE_AT_A_TIME;

/* Ports and queries are the parent's. What the child ends of the parent's is told to no SA. */
static void sa_drop_in_child(void) NO_THREAD_SAFETY
{
	list_for_each(p, &sa_ports, struct sa_port, node)
		p->gone = true;
	list_init(&sa_ports);
	sa_query_drop_in_child();
}
FORK_TAKES(FORK_SA, &sa_lock, .child = sa_drop_in_child);

/* Clients register anew. */
static void sa_start_in_child(void) NO_THREAD_SAFETY
{
	work_queue_drop_in_child(&sa_queue);
	core_service_drop_in_child(&sa_service);
}
FORK_MAKES_ANEW(FORK_SA_START, &sa_start_lock, .child = sa_start_in_child);

void sa_start(void)
{
	lock_acquire(&sa_start_lock);
	if (sa_queue.name == NULL)
		work_queue_init(&sa_queue, "anyverbs/sa", false);
	lock_release(&sa_start_lock);
	(void)core_service_begin(&sa_service);
}

void ib_sa_register_client(struct ib_sa_client *client)
{
	sa_start();
	lock_acquire(&sa_lock);
	*client = (struct ib_sa_client){ .registered = 1 };
	lock_release(&sa_lock);
}

void ib_sa_unregister_client(struct ib_sa_client *client)
{
	u32 users;

	lock_acquire(&sa_lock);
	client->registered = 0;
	while ((users = client->users) != 0) {
		lock_release(&sa_lock);
		futex_sleep(&client->users, users);
		lock_acquire(&sa_lock);
	}
	lock_release(&sa_lock);
}
