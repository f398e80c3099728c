/* endpoint.c: names and services as addresses, and ids made ready in one call.
 * In:    getaddrinfo's answers             Out: struct rdma_addrinfo, synchronous ids
 * Runs:  the application's threads         Locks: none
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_verbs.h>

#include "door.h"

enum { ENDPOINT_TIMEOUT_MS = 2000 };

/* ---- addresses ------------------------------------------------------------------------------- */

static int info_port_space(const struct rdma_addrinfo *hints)
{
	if (hints != NULL && hints->ai_port_space != 0)
		return hints->ai_port_space;
	return hints != NULL && hints->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

static int info_qp_type(const struct rdma_addrinfo *hints)
{
	if (hints != NULL && hints->ai_qp_type != 0)
		return hints->ai_qp_type;
	return info_port_space(hints) == RDMA_PS_UDP || info_port_space(hints) == RDMA_PS_IPOIB
		       ? IBV_QPT_UD
		       : IBV_QPT_RC;
}

static struct addrinfo info_hints(const struct rdma_addrinfo *hints)
{
	struct addrinfo ai = { .ai_socktype = SOCK_STREAM };

	if (info_qp_type(hints) == IBV_QPT_UD)
		ai.ai_socktype = SOCK_DGRAM;
	if (hints == NULL)
		return ai;
	if (hints->ai_flags & RAI_PASSIVE)
		ai.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		ai.ai_flags |= AI_NUMERICHOST;
	if (hints->ai_flags & RAI_FAMILY)
		ai.ai_family = hints->ai_family;
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

static int info_take(struct rdma_addrinfo *rai, const struct addrinfo *ai, bool passive)
{
	struct sockaddr *copy = info_copy(ai->ai_addr, ai->ai_addrlen);
	char *name = ai->ai_canonname != NULL ? strdup(ai->ai_canonname) : NULL;

	if (copy == NULL) {
		free(name);
		return -ENOMEM;
	}
	rai->ai_family = ai->ai_family;
	if (passive) {
		rai->ai_src_addr = copy;
		rai->ai_src_len = ai->ai_addrlen;
		rai->ai_src_canonname = name;
	} else {
		rai->ai_dst_addr = copy;
		rai->ai_dst_len = ai->ai_addrlen;
		rai->ai_dst_canonname = name;
	}
	return 0;
}

static int info_make(const struct addrinfo *ai, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **out)
{
	struct rdma_addrinfo *rai = calloc(1, sizeof(*rai));
	bool passive = hints != NULL && (hints->ai_flags & RAI_PASSIVE);
	int err;

	if (rai == NULL)
		return -ENOMEM;
	rai->ai_flags = hints != NULL ? hints->ai_flags : 0;
	rai->ai_port_space = info_port_space(hints);
	rai->ai_qp_type = info_qp_type(hints);
	err = info_take(rai, ai, passive);
	if (err == 0)
		err = info_take_source(rai, hints);
	if (err < 0)
		rdma_freeaddrinfo(rai);
	else
		*out = rai;
	return err;
}

/* What the resolver says, as rdma_getaddrinfo tells it: a value of EAI_*, or -1 and errno. */
AV_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			       const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct addrinfo want = info_hints(hints), *list, *ai;
	int err;

	if (node == NULL && service == NULL && (hints == NULL || hints->ai_dst_len == 0))
		return door_result(-EINVAL);
	if (node == NULL && service == NULL) {
		/* addresses that are known already */
		struct addrinfo given = { .ai_family = hints->ai_dst_addr->sa_family,
					  .ai_addr = hints->ai_dst_addr,
					  .ai_addrlen = hints->ai_dst_len };

		return door_result(info_make(&given, hints, res));
	}
	err = getaddrinfo(node, service, &want, &list);
	if (err != 0)
		return err;
	ai = list;
	err = info_make(ai, hints, res);
	freeaddrinfo(list);
	return door_result(err);
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

static int endpoint_resolve(struct rdma_cm_id *id, const struct rdma_addrinfo *res,
			    struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, ENDPOINT_TIMEOUT_MS) != 0)
		return -1;
	if (rdma_resolve_route(id, ENDPOINT_TIMEOUT_MS) != 0)
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

	if (rdma_create_id(NULL, &made, NULL, (enum rdma_port_space)res->ai_port_space) != 0)
		return -1;
	made->qp_type = (enum ibv_qp_type)res->ai_qp_type;
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
