/* id.c: ids: made, bound, resolved, listening; what the application sees in their fields.
 * In:    the application's calls           Out: the RDMA CM's
 * Runs:  the application's threads         Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "door.h"

_Static_assert(sizeof(struct ibv_sa_path_rec) == sizeof(struct ib_sa_path_rec),
	       "the records agree");

/* ---- making and ending ----------------------------------------------------------------------- */

struct door_id *id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		       enum ibv_qp_type qp_type)
{
	struct door_id *id = calloc(1, sizeof(*id));

	if (id == NULL)
		return NULL;
	id->sync = channel == NULL;
	id->id.channel = channel != NULL ? channel : rdma_create_event_channel();
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	if (id->id.channel != NULL)
		return id;
	free(id);
	return NULL;
}

void id_free(struct door_id *id)
{
	if (id->sync)
		rdma_destroy_event_channel(id->id.channel);
	free(id->init);
	free(id);
}

static int id_create(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
		     enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct door_id *id = id_new(channel, context, ps, qp_type);

	if (id == NULL)
		return -1;
	id->ucma = ucma_create_id(door_channel(id->id.channel)->ucma, id, ps, qp_type);
	if (IS_ERR(id->ucma)) {
		int err = (int)PTR_ERR(id->ucma);

		id_free(id);
		return door_result(err);
	}
	*out = &id->id;
	return 0;
}

AV_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
			     void *context, enum rdma_port_space ps)
{
	bool datagram = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;

	return id_create(channel, id, context, ps, datagram ? IBV_QPT_UD : IBV_QPT_RC);
}

AV_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	if (id->event != NULL)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
	ucma_destroy_id(door_id(id)->ucma);
	id_free(door_id(id));
	return 0;
}

/* ---- what the CM knows ----------------------------------------------------------------------- */

static void id_take_gids(struct door_id *id, const struct ucma_route *route)
{
	struct rdma_ib_addr *ib = &id->id.route.addr.addr.ibaddr;

	memcpy(ib->sgid.raw, route->sgid.raw, sizeof(ib->sgid.raw));
	memcpy(ib->dgid.raw, route->dgid.raw, sizeof(ib->dgid.raw));
	ib->pkey = (__be16)__builtin_bswap16(route->pkey);
}

static int id_take_device(struct door_id *id, const struct ucma_route *route)
{
	int err;

	if (route->device[0] == '\0' || id->device != NULL)
		return 0;
	err = device_open(route->device, &id->device);
	if (err < 0)
		return err;
	id->id.verbs = id->device->verbs;
	id->id.port_num = route->port_num;
	if (id->id.pd == NULL)
		id->id.pd = device_pd(id->device);
	return 0;
}

int id_query(struct door_id *id)
{
	struct rdma_addr *addr = &id->id.route.addr;
	struct ucma_route route;

	ucma_query(id->ucma, &route);
	addr->src_storage = route.src_addr;
	addr->dst_storage = route.dst_addr;
	id_take_gids(id, &route);
	id->id.route.num_paths = (int)route.num_paths;
	if (route.num_paths > 0) {
		memcpy(id->paths, route.path, sizeof(id->paths));
		id->id.route.path_rec = id->paths;
	}
	return id_take_device(id, &route);
}

/* What an event that says a failure is to a synchronous call. */
static int id_event_result(const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	if (event->status < 0)
		return event->status;
	return event->status > 0 ? -EIO : 0;
}

int id_complete(struct door_id *id)
{
	if (!id->sync)
		return 0;
	if (id->id.event != NULL)
		rdma_ack_cm_event(id->id.event);
	id->id.event = NULL;
	if (rdma_get_cm_event(id->id.channel, &id->id.event) != 0)
		return -1;
	return door_result(id_event_result(id->id.event));
}

/* ---- addresses ------------------------------------------------------------------------------- */

AV_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err = ucma_bind(door_id(id)->ucma, addr);

	return door_result(err < 0 ? err : id_query(door_id(id)));
}

AV_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
				struct sockaddr *dst_addr, int timeout_ms)
{
	int err = ucma_resolve_addr(door_id(id)->ucma, src_addr, dst_addr, timeout_ms);

	return err < 0 ? door_result(err) : id_complete(door_id(id));
}

AV_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int err = ucma_resolve_route(door_id(id)->ucma, timeout_ms);

	return err < 0 ? door_result(err) : id_complete(door_id(id));
}

AV_EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int err = ucma_listen(door_id(id)->ucma, backlog);

	return door_result(err < 0 ? err : id_query(door_id(id)));
}

static __be16 id_port(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET)
		return ((const struct sockaddr_in *)addr)->sin_port;
	return addr->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)addr)->sin6_port : 0;
}

AV_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id_port(&id->route.addr.src_storage);
}

AV_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id_port(&id->route.addr.dst_storage);
}

/* ---- options and channels -------------------------------------------------------------------- */

/* A program may hand over an option that is not aligned. */
static int id_option_int(const void *value)
{
	int number;

	memcpy(&number, value, sizeof(number));
	return number;
}

static int id_set_option(struct ucma_id *id, int name, const void *value, size_t size)
{
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (size != sizeof(uint8_t))
			return -EINVAL;
		ucma_set_tos(id, *(const uint8_t *)value);
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		return size == sizeof(int) ? ucma_set_reuseaddr(id, id_option_int(value)) : -EINVAL;
	case RDMA_OPTION_ID_AFONLY:
		return size == sizeof(int) ? ucma_set_afonly(id, id_option_int(value)) : -EINVAL;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		return size == sizeof(uint8_t) ? ucma_set_ack_timeout(id, *(const uint8_t *)value)
					       : -EINVAL;
	default:
		return -ENOSYS;
	}
}

AV_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
			      size_t optlen)
{
	if (level != RDMA_OPTION_ID)
		return door_result(-ENOSYS); /* paths are the CM's to resolve */
	return door_result(id_set_option(door_id(id)->ucma, optname, optval, optlen));
}

AV_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *to = channel, *from = id->channel;
	bool sync = channel == NULL;

	if (sync && door_id(id)->sync)
		return 0;
	if (sync)
		to = rdma_create_event_channel();
	if (to == NULL)
		return -1;
	ucma_migrate(door_id(id)->ucma, door_channel(to)->ucma);
	id->channel = to;
	if (door_id(id)->sync) {
		if (id->event != NULL)
			rdma_ack_cm_event(id->event);
		id->event = NULL;
		rdma_destroy_event_channel(from);
	}
	door_id(id)->sync = sync;
	return 0;
}
