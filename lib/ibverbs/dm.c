/* dm.c: device memory of another context: no device here has any.
 * In: handles      Out: EOPNOTSUPP      Runs: the application's threads      Locks: none
 */
#include "door.h"

AV_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return door_null(-EOPNOTSUPP);
}

/* Nothing can be imported, so there is nothing to release. */
AV_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
}
