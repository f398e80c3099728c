/* endpoint.c: names and services as addresses, and ids made ready in one call.
 * In:    getaddrinfo's answers             Out: struct rdma_addrinfo, synchronous ids
 * Runs:  the application's threads         Locks: none
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/ib.h>
#include <rdma/rdma_verbs.h>

#include "door.h"

enum { ENDPOINT_TIMEOUT_MS = 2000 };

/* ---- addresses ------------------------------------------------------------------------------- */

static int info_socktype(int qp_type)
{
	switch (qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return SOCK_STREAM;
	case IBV_QPT_UD:
		return SOCK_DGRAM;
	default:
		return 0;
	}
}

static int info_protocol(int port_space, int socktype)
{
	switch (port_space) {
	case RDMA_PS_TCP:
		return IPPROTO_TCP;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return IPPROTO_UDP;
	case RDMA_PS_IB:
		if (socktype == SOCK_STREAM)
			return IPPROTO_TCP;
		return socktype == SOCK_DGRAM ? IPPROTO_UDP : 0;
	default:
		return 0;
	}
}

/* What the resolver is asked for. The family counts whether RAI_FAMILY is set or not; the resolver
 * reads a GID as an IPv6 address. */
static struct addrinfo info_hints(const struct rdma_addrinfo *hints)
{
	struct addrinfo ai = { .ai_family = hints->ai_family == AF_IB ? AF_UNSPEC
								     : hints->ai_family };

	ai.ai_socktype = info_socktype(hints->ai_qp_type);
	ai.ai_protocol = info_protocol(hints->ai_port_space, ai.ai_socktype);
	if (hints->ai_flags & RAI_PASSIVE)
		ai.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		ai.ai_flags |= AI_NUMERICHOST;
	return ai;
}

static struct sockaddr *info_copy(const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr *copy = len > 0 ? malloc(len) : NULL;

	if (copy != NULL)
		memcpy(copy, addr, len);
	return copy;
}

/* The source that the caller wants, unless the answer is a source itself. */
static int info_take_source(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints)
{
	if (hints == NULL || hints->ai_src_len == 0 || rai->ai_src_addr != NULL)
		return 0;
	rai->ai_src_addr = info_copy(hints->ai_src_addr, hints->ai_src_len);
	if (rai->ai_src_addr == NULL)
		return -ENOMEM;
	rai->ai_src_len = hints->ai_src_len;
	return 0;
}

static int info_qp_type(const struct addrinfo *ai)
{
	if (ai->ai_socktype == SOCK_STREAM)
		return IBV_QPT_RC;
	return ai->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : 0;
}

static int info_port_space(const struct addrinfo *ai)
{
	if (ai->ai_protocol == IPPROTO_TCP)
		return RDMA_PS_TCP;
	return ai->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : 0;
}

static bool info_wants_gid(const struct rdma_addrinfo *hints)
{
	const int flags = RAI_FAMILY | RAI_NUMERICHOST;

	return hints->ai_family == AF_IB && (hints->ai_flags & flags) == flags;
}

static bool info_is_v4(const struct addrinfo *ai, in_addr_t which)
{
	struct sockaddr_in sin;

	memcpy(&sin, ai->ai_addr, sizeof(sin));
	return ai->ai_family == AF_INET && sin.sin_addr.s_addr == htonl(which);
}

/* Of IPv4, which has no GIDs, those that the resolver has for no name at all stand for any. */
static bool info_has_gid(const struct addrinfo *ai)
{
	return ai->ai_family == AF_INET6 || info_is_v4(ai, INADDR_ANY) ||
	       info_is_v4(ai, INADDR_LOOPBACK);
}

/* The address as one of AF_IB, in the default partition: an IPv6 address is a GID. The service ID
 * has the port space and the port, as far as they are known. */
static struct sockaddr_ib info_gid(const struct addrinfo *ai, int ps)
{
	struct sockaddr_ib sib = { .sib_family = AF_IB, .sib_pkey = htobe16(0xffff) };
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in sin;

	if (ai->ai_family == AF_INET6) {
		memcpy(&sin6, ai->ai_addr, sizeof(sin6));
	} else {
		memcpy(&sin, ai->ai_addr, sizeof(sin));
		sin6.sin6_port = sin.sin_port;
	}
	if (info_is_v4(ai, INADDR_LOOPBACK))
		sin6.sin6_addr = in6addr_loopback;
	memcpy(sib.sib_addr.sib_raw, &sin6.sin6_addr, sizeof(sin6.sin6_addr));
	sib.sib_flowinfo = sin6.sin6_flowinfo;
	sib.sib_scope_id = sin6.sin6_scope_id;
	sib.sib_sid = htobe64(((u64)ps << 16) + be16toh(sin6.sin6_port));
	sib.sib_sid_mask = htobe64((ps != 0 ? RDMA_IB_IP_PS_MASK : 0) |
				   (sin6.sin6_port != 0 ? RDMA_IB_IP_PORT_MASK : 0));
	return sib;
}

/* NULL: no memory. */
static struct sockaddr *info_address(struct rdma_addrinfo *rai, const struct addrinfo *ai,
				     const struct rdma_addrinfo *hints, socklen_t *len)
{
	struct sockaddr_ib sib;

	rai->ai_family = ai->ai_family;
	*len = ai->ai_addrlen;
	if (!info_wants_gid(hints))
		return info_copy(ai->ai_addr, ai->ai_addrlen);
	sib = info_gid(ai, rai->ai_port_space);
	rai->ai_family = AF_IB;
	*len = sizeof(sib);
	return info_copy((const struct sockaddr *)&sib, sizeof(sib));
}

static int info_take(struct rdma_addrinfo *rai, const struct addrinfo *ai,
		     const struct rdma_addrinfo *hints)
{
	struct sockaddr *copy;
	socklen_t len;

	rai->ai_qp_type = hints->ai_qp_type != 0 ? hints->ai_qp_type : info_qp_type(ai);
	rai->ai_port_space = hints->ai_port_space != 0 ? hints->ai_port_space : info_port_space(ai);
	copy = info_address(rai, ai, hints, &len);
	if (copy == NULL)
		return -ENOMEM;
	if (hints->ai_flags & RAI_PASSIVE) {
		rai->ai_flags = RAI_PASSIVE;
		rai->ai_src_addr = copy;
		rai->ai_src_len = len;
	} else {
		rai->ai_dst_addr = copy;
		rai->ai_dst_len = len;
	}
	return 0;
}

/* Addresses that are known already. */
static int info_take_hints(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints)
{
	rai->ai_flags = hints->ai_flags;
	rai->ai_family = hints->ai_family;
	rai->ai_qp_type = hints->ai_qp_type;
	rai->ai_port_space = hints->ai_port_space;
	if (hints->ai_dst_len == 0)
		return 0;
	rai->ai_dst_addr = info_copy(hints->ai_dst_addr, hints->ai_dst_len);
	rai->ai_dst_len = hints->ai_dst_len;
	return rai->ai_dst_addr != NULL ? 0 : -ENOMEM;
}

/* The first that the resolver has, as rdma-core takes it: 0, a value of EAI_*, or -1 and errno. */
static int info_resolve(struct rdma_addrinfo *rai, const char *node, const char *service,
			const struct rdma_addrinfo *hints)
{
	static const struct rdma_addrinfo none;
	struct addrinfo want = info_hints(hints != NULL ? hints : &none), *list;
	int err = getaddrinfo(node, service, hints != NULL ? &want : NULL, &list);

	if (err != 0)
		return err;
	if (hints != NULL && info_wants_gid(hints) && !info_has_gid(list))
		err = EAI_ADDRFAMILY;
	else
		err = door_result(info_take(rai, list, hints != NULL ? hints : &none));
	freeaddrinfo(list);
	return err;
}

AV_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			       const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct rdma_addrinfo *rai;
	int result;

	if (node == NULL && service == NULL && hints == NULL)
		return door_result(-EINVAL);
	if (hints != NULL && (hints->ai_flags & DOOR_RAI_SA) != 0)
		return door_result(-EOPNOTSUPP); /* as rdma_resolve_addrinfo */
	rai = calloc(1, sizeof(*rai));
	if (rai == NULL)
		return -1;
	if (node != NULL || service != NULL)
		result = info_resolve(rai, node, service, hints);
	else
		result = door_result(info_take_hints(rai, hints));
	if (result == 0)
		result = door_result(info_take_source(rai, hints));
	if (result == 0)
		*res = rai;
	else
		rdma_freeaddrinfo(rai);
	return result;
}

AV_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res != NULL) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
		res = next;
	}
}

/* ---- endpoints ------------------------------------------------------------------------------- */

/* A listening endpoint: the attributes wait for its requests. */
static int endpoint_bind(struct rdma_cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
			 const struct ibv_qp_init_attr *init)
{
	struct door_id *d = door_id(id);

	if (rdma_bind_addr(id, res->ai_src_addr) != 0)
		return -1;
	if (init == NULL)
		return 0;
	d->init = malloc(sizeof(*d->init));
	if (d->init == NULL)
		return -1;
	*d->init = *init;
	d->init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	if (pd != NULL)
		id->pd = pd;
	return 0;
}

/* The path that the caller knows already, or the one that the CM finds. */
static int endpoint_route(struct rdma_cm_id *id, const struct rdma_addrinfo *res)
{
	if (res->ai_route_len == 0)
		return rdma_resolve_route(id, ENDPOINT_TIMEOUT_MS);
	if (rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route,
			    res->ai_route_len) != 0)
		return -1;
	return id_complete(door_id(id), door_id(id)->sync, 0);
}

/* Goes in front of the private data of the request. */
static int endpoint_keep_data(struct door_id *id, const struct rdma_addrinfo *res)
{
	if (res->ai_connect_len == 0)
		return 0;
	if (res->ai_connect_len > UINT8_MAX)
		return door_result(-EINVAL);
	id->connect_data = malloc(res->ai_connect_len);
	if (id->connect_data == NULL)
		return -1;
	memcpy(id->connect_data, res->ai_connect, res->ai_connect_len);
	id->connect_len = (u8)res->ai_connect_len;
	return 0;
}

static int endpoint_resolve(struct rdma_cm_id *id, const struct rdma_addrinfo *res,
			    struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, ENDPOINT_TIMEOUT_MS) != 0)
		return -1;
	if (endpoint_route(id, res) != 0 || endpoint_keep_data(door_id(id), res) != 0)
		return -1;
	if (init == NULL)
		return 0;
	init->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return rdma_create_qp(id, pd, init);
}

AV_EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
			     struct ibv_qp_init_attr *qp_init_attr)
{
	struct rdma_cm_id *made;
	int result;

	if (id_create(NULL, &made, NULL, (enum rdma_port_space)res->ai_port_space,
		      (enum ibv_qp_type)res->ai_qp_type) != 0)
		return -1;
	if (res->ai_flags & RAI_PASSIVE)
		result = endpoint_bind(made, res, pd, qp_init_attr);
	else
		result = endpoint_resolve(made, res, pd, qp_init_attr);
	if (result != 0) {
		int saved = errno;

		rdma_destroy_ep(made);
		errno = saved;
		return -1;
	}
	*id = made;
	return 0;
}

AV_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	if (id->srq != NULL)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}
