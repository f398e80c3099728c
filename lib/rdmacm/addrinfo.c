/* addrinfo.c: names and services whose addresses an event announces, and events of the
 * application's own.
 *
 * The resolver is asked in the call itself, as by rdma-core: only the answer comes as an event.
 *
 * In:    rdma_getaddrinfo's answers        Out: events, struct rdma_addrinfo
 * Runs:  the application's threads         Locks: struct door_shared.qp_lock
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

/* Of newer releases, whose headers are not the ones that this library is built with. */
AV_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
AV_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
				    const struct rdma_addrinfo *hints);
AV_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
				  uint64_t arg);

/* The resolver's verdict as the status of an event; `err` is errno behind it, 0: it set none. */
static int addrinfo_status(int result, int err)
{
	switch (result) {
	case 0:
		return 0;
	case -1: /* of rdma_getaddrinfo itself, or EAI_BADFLAGS */
	case EAI_SYSTEM:
		return err != 0 ? -err : -EADDRNOTAVAIL;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_AGAIN:
		return -EAGAIN;
	default:
		return -EADDRNOTAVAIL;
	}
}

/* The subnet administration has service records on an InfiniBand fabric only, and this library asks
 * for none there. The errors are the kernel's where no SA is. */
static int addrinfo_ask_sa(const struct door_id *id, const char *node,
			   const struct rdma_addrinfo *hints)
{
	if (node != NULL || (hints->ai_flags & DOOR_RAI_DNS) != 0)
		return -EOPNOTSUPP;
	return id->device == NULL ? -EINVAL : -EOPNOTSUPP;
}

void addrinfo_free(struct door_id *id) NO_THREAD_SAFETY /* nobody else has it */
{
	rdma_freeaddrinfo(id->shared.info);
}

/* Makes `info` the id's answer, and returns the earlier one. */
static struct rdma_addrinfo *addrinfo_swap(struct door_id *id, struct rdma_addrinfo *info)
{
	struct rdma_addrinfo *old;

	id_lock(id);
	old = id->shared.info;
	id->shared.info = info;
	lock_release(&id->shared.qp_lock);
	return old;
}

/* Once the event is there another thread may take it, and destroy the id, before this returns. */
static int addrinfo_resolve(struct door_id *id, const char *node, const char *service,
			    const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *info = NULL, *old;
	int result, status, err, saved = errno;

	errno = 0;
	result = rdma_getaddrinfo(node, service, hints, &info);
	status = addrinfo_status(result, errno);
	old = addrinfo_swap(id, info);
	err = ucma_write_event(
		id->ucma, status == 0 ? DOOR_EVENT_ADDRINFO_RESOLVED : DOOR_EVENT_ADDRINFO_ERROR,
		status, 0);
	if (err < 0)
		old = addrinfo_swap(id, old); /* nobody heard */
	rdma_freeaddrinfo(old);
	errno = saved;
	return err;
}

AV_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
				    const struct rdma_addrinfo *hints)
{
	bool sync;
	int err;

	if (id == NULL || (node == NULL && service == NULL && hints == NULL) ||
	    ucma_is_parents(door_id(id)->ucma))
		return door_result(-EINVAL);
	sync = door_id(id)->sync;
	if (hints != NULL && (hints->ai_flags & DOOR_RAI_SA) != 0)
		err = addrinfo_ask_sa(door_id(id), node, hints);
	else
		err = addrinfo_resolve(door_id(id), node, service, hints);
	return id_complete(door_id(id), sync, err);
}

/* False: no memory. */
static bool addrinfo_copy_addr(struct sockaddr **to, const struct sockaddr *from, socklen_t len)
{
	if (len == 0)
		return true;
	*to = malloc(len);
	if (*to != NULL)
		memcpy(*to, from, len);
	return *to != NULL;
}

/* What a resolver's answer has: addresses, no names, no route and no data. */
static struct rdma_addrinfo *addrinfo_copy(const struct rdma_addrinfo *from)
{
	struct rdma_addrinfo *to = calloc(1, sizeof(*to));

	if (to == NULL)
		return NULL;
	to->ai_flags = from->ai_flags;
	to->ai_family = from->ai_family;
	to->ai_qp_type = from->ai_qp_type;
	to->ai_port_space = from->ai_port_space;
	to->ai_src_len = from->ai_src_len;
	to->ai_dst_len = from->ai_dst_len;
	if (addrinfo_copy_addr(&to->ai_src_addr, from->ai_src_addr, from->ai_src_len) &&
	    addrinfo_copy_addr(&to->ai_dst_addr, from->ai_dst_addr, from->ai_dst_len))
		return to;
	rdma_freeaddrinfo(to);
	return NULL;
}

static int addrinfo_query(struct door_id *id, struct rdma_addrinfo **info)
{
	struct rdma_addrinfo *copy = NULL;
	int err = -ENODATA;

	id_lock(id); /* the next call of rdma_resolve_addrinfo frees the answer */
	if (id->shared.info != NULL) {
		copy = addrinfo_copy(id->shared.info);
		err = copy == NULL ? -ENOMEM : 0;
	}
	lock_release(&id->shared.qp_lock);
	if (err == 0)
		*info = copy;
	return err;
}

AV_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info)
{
	if (id == NULL || info == NULL)
		return door_result(-EINVAL);
	return door_result(addrinfo_query(door_id(id), info));
}

AV_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
				  uint64_t arg)
{
	if (id == NULL || (u32)event != DOOR_EVENT_USER)
		return door_result(-EINVAL);
	return door_result(ucma_write_event(door_id(id)->ucma, DOOR_EVENT_USER, status, arg));
}
