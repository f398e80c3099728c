/* absent.c: calls that this library exports and does not have: each fails and says so.
 *
 * EOPNOTSUPP: extended connection establishment, which no device here has (ibv_set_ece).
 * docs/rdmacm.md lists them.
 */
#include "door.h"

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
