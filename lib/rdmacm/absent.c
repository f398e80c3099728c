/* absent.c: calls that this library exports and does not have: each fails and says so.
 *
 * ENOSYS: what only a newer librdmacm has. EOPNOTSUPP: extended connection
 * establishment, which no device here has (ibv_set_ece). docs/rdmacm.md lists them.
 */
#include "door.h"

/* Each takes what the original takes and looks at nothing of it. */
#define ABSENT_CALL(type, name, arguments)                                                         \
	AV_EXPORT type name arguments                                                              \
	{                                                                                          \
		errno = ENOSYS;                                                                    \
		return (type)-1;                                                                   \
	}

/* Of newer releases, whose headers are not the ones that this library is built with. */
AV_EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
AV_EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
				    const struct rdma_addrinfo *hints);
AV_EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
				  uint64_t arg);

ABSENT_CALL(int, rdma_query_addrinfo, (struct rdma_cm_id *id, struct rdma_addrinfo **info))
ABSENT_CALL(int, rdma_resolve_addrinfo, (struct rdma_cm_id *id, const char *node,
					 const char *service, const struct rdma_addrinfo *hints))
ABSENT_CALL(int, rdma_write_cm_event, (struct rdma_cm_id *id, enum rdma_cm_event_type event,
				       int status, uint64_t arg))

/* Options of no vendor are what every connection has. */
AV_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (ece == NULL || ece->comp_mask != 0)
		return door_result(-EINVAL);
	return door_result(ece->vendor_id == 0 ? 0 : -EOPNOTSUPP);
}

AV_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (ece == NULL || ece->comp_mask != 0)
		return door_result(-EINVAL);
	*ece = (struct ibv_ece){ .vendor_id = 0 };
	return 0;
}
