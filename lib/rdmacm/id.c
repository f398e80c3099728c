/* id.c: ids: made, bound, resolved, listening; what the application sees in their fields.
 * In:    the application's calls           Out: the RDMA CM's
 * Runs:  the application's threads         Locks: none
 */
#include <endian.h>
#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

/* libibverbs', which no installed header declares. */
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);

/* ---- making and ending ----------------------------------------------------------------------- */

struct door_id *id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		       enum ibv_qp_type qp_type)
{
	struct door_id *id = calloc(1, sizeof(*id));

	if (id == NULL)
		return NULL;
	id->sync = channel == NULL;
	id->id.channel = channel != NULL ? channel : channel_of_one_id();
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	mcast_init(id);
	if (id->id.channel != NULL)
		return id;
	free(id);
	return NULL;
}

void id_free(struct door_id *id)
{
	if (id->sync)
		rdma_destroy_event_channel(id->id.channel);
	mcast_free_all(id);
	free(id->init);
	free(id->connect_data);
	addrinfo_free(id);
	free(id);
}

/* The CM's type, which only the IB port space leaves to the application. */
static u32 id_qp_type(enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	if (ps == RDMA_PS_IB)
		return qp_type;
	return ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD;
}

int id_create(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
	      enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct door_id *id = id_new(channel, context, ps, qp_type);

	if (id == NULL)
		return -1;
	id->ucma = ucma_create_id(door_channel(id->id.channel)->ucma, id, ps,
				  id_qp_type(ps, qp_type));
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

void id_lock(struct door_id *id) NO_THREAD_SAFETY
{
	if (ucma_is_parents(id->ucma)) {
		lock_init(&id->shared.qp_lock);
		list_mend(&id->shared.groups);
	}
	lock_acquire(&id->shared.qp_lock);
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
	err = device_open(route->device, route->device_number, &id->device);
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
	for (u32 i = 0; i < route.num_paths; i++)
		ibv_copy_path_rec_from_kern(&id->paths[i], &route.path[i]);
	if (route.num_paths > 0)
		id->id.route.path_rec = id->paths;
	return id_take_device(id, &route);
}

/* What an event is to a synchronous call, right after it was taken. A status of the peer's
 * (UNREACHABLE of a datagram id) is its errno, as with rdma-core. */
static int id_event_result(const struct rdma_cm_event *event)
{
	if (event->status != 0 && event->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	/* this library failed; of what has no event of the CM it is EPERM */
	if (event->status == -1 && (u32)event->event < DOOR_EVENT_ADDRINFO_RESOLVED)
		return -errno;
	return event->status > 0 ? -event->status : event->status;
}

int id_complete(struct door_id *id, bool sync, int err)
{
	if (err < 0 || !sync)
		return door_result(err);
	if (id->id.event != NULL)
		rdma_ack_cm_event(id->id.event);
	id->id.event = NULL;
	if (rdma_get_cm_event(id->id.channel, &id->id.event) != 0)
		return -1;
	return door_result(id_event_result(id->id.event));
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool id_addr_is_known(const struct sockaddr *addr)
{
	return addr != NULL && (addr->sa_family == AF_INET || addr->sa_family == AF_INET6 ||
				addr->sa_family == AF_IB);
}

AV_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err = id_addr_is_known(addr) ? ucma_bind(door_id(id)->ucma, addr) : -EINVAL;

	return door_result(err < 0 ? err : id_query(door_id(id)));
}

AV_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
				struct sockaddr *dst_addr, int timeout_ms)
{
	bool sync = door_id(id)->sync;

	if (!id_addr_is_known(dst_addr) || (src_addr != NULL && !id_addr_is_known(src_addr)))
		return door_result(-EINVAL);
	return id_complete(door_id(id), sync,
			   ucma_resolve_addr(door_id(id)->ucma, src_addr, dst_addr, timeout_ms));
}

AV_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	bool sync = door_id(id)->sync;

	return id_complete(door_id(id), sync, ucma_resolve_route(door_id(id)->ucma, timeout_ms));
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
	if (addr->ss_family == AF_IB)
		return htobe16((u16)be64toh(((const struct sockaddr_ib *)addr)->sib_sid));
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
		return size == sizeof(uint8_t) ? ucma_set_tos(id, *(const uint8_t *)value)
					       : -EINVAL;
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

static struct ib_sa_path_rec id_path(const struct ibv_path_record *in)
{
	u32 flow_hop = be32toh(in->flowlabel_hoplimit);
	struct ib_sa_path_rec path = {
		.dlid = in->dlid,
		.slid = in->slid,
		.flow_label = htobe32(flow_hop >> 8 & 0xfffff),
		.hop_limit = (u8)flow_hop,
		.traffic_class = in->tclass,
		.reversible = in->reversible_numpath >> 7,
		.numb_path = in->reversible_numpath & 0x7f,
		.pkey = in->pkey,
		.sl = be16toh(in->qosclass_sl) & 0xf,
		.mtu_selector = in->mtu >> 6,
		.mtu = in->mtu & 0x3f,
		.rate_selector = in->rate >> 6,
		.rate = in->rate & 0x3f,
		.packet_life_time_selector = in->packetlifetime >> 6,
		.packet_life_time = in->packetlifetime & 0x3f,
		.preference = in->preference,
	};

	memcpy(path.dgid.raw, in->dgid.raw, sizeof(path.dgid.raw));
	memcpy(path.sgid.raw, in->sgid.raw, sizeof(path.sgid.raw));
	return path;
}

/* The first of the records that says that it is for both directions and for management, too. */
static int id_set_path(struct ucma_id *id, const void *value, size_t size)
{
	enum { WHOLE = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL };
	struct ibv_path_data data;
	struct ib_sa_path_rec path;

	if (size % sizeof(data) != 0)
		return -EINVAL;
	for (size_t at = 0; at < size; at += sizeof(data)) {
		memcpy(&data, (const char *)value + at, sizeof(data));
		if (data.flags != WHOLE)
			continue;
		path = id_path(&data.path);
		return ucma_set_path(id, &path);
	}
	return -EINVAL;
}

AV_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
			      size_t optlen)
{
	int err = ucma_check(door_id(id)->ucma);

	if (err == 0 && optval == NULL && optlen > 0)
		err = -EFAULT;
	if (err == 0 && level == RDMA_OPTION_ID)
		err = id_set_option(door_id(id)->ucma, optname, optval, optlen);
	else if (err == 0 && level == RDMA_OPTION_IB && optname == RDMA_OPTION_IB_PATH)
		err = id_set_path(door_id(id)->ucma, optval, optlen);
	else if (err == 0)
		err = -ENOSYS;
	return door_result(err);
}

/* The channel of a synchronous id is its own, and ends with its last event. */
static void id_leave_channel(struct door_id *id)
{
	if (!id->sync)
		return;
	if (id->id.event != NULL)
		rdma_ack_cm_event(id->id.event);
	id->id.event = NULL;
	rdma_destroy_event_channel(id->id.channel);
}

AV_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *to = channel;
	int err;

	if (channel == NULL && door_id(id)->sync)
		return door_result(-EINVAL);
	if (channel == NULL)
		to = channel_of_one_id();
	if (to == NULL)
		return -1;
	err = ucma_migrate(door_id(id)->ucma, door_channel(to)->ucma);
	if (err < 0) {
		if (channel == NULL)
			rdma_destroy_event_channel(to);
		return door_result(err);
	}
	id_leave_channel(door_id(id));
	id->channel = to;
	door_id(id)->sync = channel == NULL;
	ucma_wait_acked(door_id(id)->ucma);
	return 0;
}
