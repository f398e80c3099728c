/* cache.c: keeps every port's GID table, P_Key table, LMC and state for those who may not block.
 * In: registration, events of the port    Out: ib_get_cached_*, ib_find_cached_*
 * Runs: readers anywhere; refresh on vector 0's thread
 * Locks: core->cache_lock, never across a driver's method
 */
#include <rdma/ib_cache.h>
#include <stdlib.h>
#include <string.h>

#include "core/core_priv.h"

enum { CACHE_MAX_ENTRIES = 65536, CACHE_READINGS = 8 };

/* One port's tables, replaced as a whole. */
struct cache_port {
	u8 lmc, link_layer;
	enum ib_port_state state;
	u32 gid_count, pkey_count;
	union ib_gid *gids; /* in the same allocation, as are the keys */
	u16 pkeys[];
} FIXED;

struct cache {
	u32 port_count FIXED;
	/* by port number - 1; NULL: the device could not tell */
	struct cache_port *ports[] OWNED_BY(ib_device_core.cache_lock);
};

static struct cache_port *port_alloc(const struct ib_port_attr *attr)
{
	u32 gids = (u32)attr->gid_tbl_len, pkeys = attr->pkey_tbl_len;
	struct cache_port *port;

	if (attr->gid_tbl_len < 0 || gids > CACHE_MAX_ENTRIES)
		return NULL;
	size_t keys_end = (sizeof(*port) + pkeys * sizeof(u16) + 7) & ~(size_t)7;

	port = calloc(1, keys_end + gids * sizeof(union ib_gid));
	if (!port)
		return NULL;
	port->lmc = attr->lmc;
	port->link_layer = attr->link_layer;
	port->state = attr->state;
	port->gid_count = gids;
	port->pkey_count = pkeys;
	port->gids = (union ib_gid *)((char *)port + keys_end);
	return port;
}

/* Asks the driver. An entry that it refuses to tell is as good as empty. */
static void port_fill(struct ib_device *device, u8 number, struct cache_port *port)
{
	for (u32 i = 0; i < port->gid_count; i++)
		if (DRIVER_CALL(device->query_gid(device, number, (int)i, &port->gids[i])))
			memset(&port->gids[i], 0, sizeof(port->gids[i]));
	for (u32 i = 0; i < port->pkey_count; i++)
		if (DRIVER_CALL(device->query_pkey(device, number, (u16)i, &port->pkeys[i])))
			port->pkeys[i] = 0;
}

static bool ports_agree(const struct cache_port *a, const struct cache_port *b)
{
	return memcmp(a->gids, b->gids, a->gid_count * sizeof(a->gids[0])) == 0 &&
	       memcmp(a->pkeys, b->pkeys, a->pkey_count * sizeof(a->pkeys[0])) == 0;
}

/* The driver tells one entry at a time. Its tables may change in between, and an entry that moves
 * to a place that has been read would be missed: so two readings must agree. */
static struct cache_port *port_read(struct ib_device *device, u8 number)
{
	struct cache_port *port, *again, *older;
	struct ib_port_attr attr = { 0 };

	if (DRIVER_CALL(device->query_port(device, number, &attr)))
		return NULL;
	port = port_alloc(&attr);
	again = port_alloc(&attr);
	if (port != NULL && again != NULL) {
		port_fill(device, number, port);
		for (int i = 0; i < CACHE_READINGS; i++) {
			port_fill(device, number, again);
			if (ports_agree(port, again))
				break;
			older = port;
			port = again;
			again = older;
		}
	} else {
		free(port);
		port = NULL;
	}
	free(again);
	return port;
}

void cache_fini(struct ib_device_core *core)
{
	lock_acquire(&core->cache_lock);
	struct cache *cache = core->cache;

	core->cache = NULL;
	lock_release(&core->cache_lock);
	for (u32 i = 0; cache && i < cache->port_count; i++)
		free(cache->ports[i]);
	free(cache);
}

int cache_init(struct ib_device_core *core)
{
	u32 count = core->device->phys_port_cnt;
	struct cache *cache = calloc(1, sizeof(*cache) + count * sizeof(cache->ports[0]));

	if (!cache)
		return -ENOMEM;
	cache->port_count = count;
	for (u32 i = 0; i < count; i++)
		cache->ports[i] = port_read(core->device, (u8)(i + 1));
	cache_fini(core);
	lock_acquire(&core->cache_lock);
	core->cache = cache;
	lock_release(&core->cache_lock);
	return 0;
}

static bool cache_event_changes(const struct ib_event *event)
{
	switch (event->event) {
	case IB_EVENT_PORT_ACTIVE:
	case IB_EVENT_PORT_ERR:
	case IB_EVENT_LID_CHANGE:
	case IB_EVENT_PKEY_CHANGE:
	case IB_EVENT_SM_CHANGE:
	case IB_EVENT_CLIENT_REREGISTER:
	case IB_EVENT_GID_CHANGE:
		return true;
	default:
		return false;
	}
}

void cache_event(struct ib_device_core *core, const struct ib_event *event)
{
	u8 number = event->element.port_num;
	struct cache_port *fresh, *stale = NULL;

	if (!cache_event_changes(event) || number < 1 || number > core->device->phys_port_cnt)
		return;
	fresh = port_read(core->device, number);
	if (!fresh) {
		log_warn("core", "port %u of %s cannot be read: its tables stay as they were",
			 number, core->device->name);
		return;
	}
	lock_acquire(&core->cache_lock);
	if (core->cache) {
		stale = core->cache->ports[number - 1];
		core->cache->ports[number - 1] = fresh;
	} else {
		stale = fresh;
	}
	lock_release(&core->cache_lock);
	free(stale);
}

/* -EINVAL: no such port; -ENODATA: nothing is known of it. */
static int port_get(struct ib_device_core *core, u8 number, const struct cache_port **port)
	REQUIRES(&core->cache_lock)
{
	if (!core->cache || number < 1 || number > core->cache->port_count)
		return -EINVAL;
	*port = core->cache->ports[number - 1];
	return *port ? 0 : -ENODATA;
}

/* A lookup in the table of one port. */
struct question {
	int index;
	union ib_gid *gid;
	const union ib_gid *wanted_gid;
	u16 *pkey, wanted_pkey;
	u8 *lmc, *link_layer;
	enum ib_port_state *state;
} OWNED_BY(the caller);

static int port_ask(struct ib_device *device, u8 number,
		    int (*answer)(const struct cache_port *port, const struct question *q),
		    const struct question *q)
{
	struct ib_device_core *core = device->core;
	const struct cache_port *port;

	if (!core)
		return -EINVAL;
	lock_acquire(&core->cache_lock);
	int err = port_get(core, number, &port);

	if (!err)
		err = answer(port, q);
	lock_release(&core->cache_lock);
	return err;
}

static int cache_answer_gid(const struct cache_port *port, const struct question *q)
{
	if (q->index < 0 || (u32)q->index >= port->gid_count)
		return -EINVAL;
	*q->gid = port->gids[q->index];
	return 0;
}

int ib_get_cached_gid(struct ib_device *device, u8 port_num, int index, union ib_gid *gid)
{
	return port_ask(device, port_num, cache_answer_gid,
			&(struct question){ .index = index, .gid = gid });
}

static int port_find_gid(const struct cache_port *port, const union ib_gid *gid)
{
	if (core_gid_is_empty(gid))
		return -ENOENT;
	for (u32 i = 0; port && i < port->gid_count; i++)
		if (memcmp(&port->gids[i], gid, sizeof(*gid)) == 0)
			return (int)i;
	return -ENOENT;
}

int ib_find_cached_gid(struct ib_device *device, union ib_gid *gid, u8 *port_num, u16 *index)
{
	struct ib_device_core *core = device->core;
	int found = -ENOENT;
	u32 i = 0;

	if (!core)
		return -EINVAL;
	lock_acquire(&core->cache_lock);
	for (; core->cache && i < core->cache->port_count; i++) {
		found = port_find_gid(core->cache->ports[i], gid);
		if (found >= 0)
			break;
	}
	lock_release(&core->cache_lock);
	if (found < 0)
		return found;
	if (port_num)
		*port_num = (u8)(i + 1);
	if (index)
		*index = (u16)found;
	return 0;
}

static int cache_answer_where_gid(const struct cache_port *port, const struct question *q)
{
	return port_find_gid(port, q->wanted_gid);
}

/* Asks for the place of something in a port's table. */
static int port_find(struct ib_device *device, u8 number,
		     int (*answer)(const struct cache_port *port, const struct question *q),
		     const struct question *q, u16 *index)
{
	int found = port_ask(device, number, answer, q);

	if (found < 0)
		return found;
	*index = (u16)found;
	return 0;
}

int ib_find_cached_gid_by_port(struct ib_device *device, const union ib_gid *gid, u8 port_num,
			       u16 *index)
{
	return port_find(device, port_num, cache_answer_where_gid,
			 &(struct question){ .wanted_gid = gid }, index);
}

static int cache_answer_pkey(const struct cache_port *port, const struct question *q)
{
	if (q->index < 0 || (u32)q->index >= port->pkey_count)
		return -EINVAL;
	*q->pkey = port->pkeys[q->index];
	return 0;
}

int ib_get_cached_pkey(struct ib_device *device, u8 port_num, int index, u16 *pkey)
{
	return port_ask(device, port_num, cache_answer_pkey,
			&(struct question){ .index = index, .pkey = pkey });
}

static int cache_answer_where_pkey(const struct cache_port *port, const struct question *q)
{
	int limited = -ENOENT;

	for (u32 i = 0; i < port->pkey_count; i++) {
		if (!pkey_is_same(port->pkeys[i], q->wanted_pkey))
			continue;
		if (pkey_is_full(port->pkeys[i]))
			return (int)i;
		if (limited < 0)
			limited = (int)i;
	}
	return limited;
}

static int cache_answer_where_exactly(const struct cache_port *port, const struct question *q)
{
	for (u32 i = 0; i < port->pkey_count; i++)
		if (port->pkeys[i] == q->wanted_pkey)
			return (int)i;
	return -ENOENT;
}

int ib_find_cached_pkey(struct ib_device *device, u8 port_num, u16 pkey, u16 *index)
{
	return port_find(device, port_num, cache_answer_where_pkey,
			 &(struct question){ .wanted_pkey = pkey }, index);
}

int ib_find_exact_cached_pkey(struct ib_device *device, u8 port_num, u16 pkey, u16 *index)
{
	return port_find(device, port_num, cache_answer_where_exactly,
			 &(struct question){ .wanted_pkey = pkey }, index);
}

static int cache_answer_lmc(const struct cache_port *port, const struct question *q)
{
	*q->lmc = port->lmc;
	return 0;
}

int ib_get_cached_lmc(struct ib_device *device, u8 port_num, u8 *lmc)
{
	return port_ask(device, port_num, cache_answer_lmc, &(struct question){ .lmc = lmc });
}

static int cache_answer_link_layer(const struct cache_port *port, const struct question *q)
{
	*q->link_layer = port->link_layer;
	return 0;
}

int cache_link_layer(struct ib_device *device, u8 port_num, u8 *link_layer)
{
	return port_ask(device, port_num, cache_answer_link_layer,
			&(struct question){ .link_layer = link_layer });
}

static int cache_answer_state(const struct cache_port *port, const struct question *q)
{
	*q->state = port->state;
	return 0;
}

int ib_get_cached_port_state(struct ib_device *device, u8 port_num, enum ib_port_state *port_state)
{
	return port_ask(device, port_num, cache_answer_state,
			&(struct question){ .state = port_state });
}
