/* import.c: taking over objects of a context that another part of the process opened: not yet.
 * In: a dup()ed cmd_fd, handles
 * Out: EOPNOTSUPP
 * Runs: the application's threads
 * Locks: none
 */
#include "door.h"

AV_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	return door_null(-EOPNOTSUPP);
}

AV_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return door_null(-EOPNOTSUPP);
}

AV_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return door_null(-EOPNOTSUPP);
}

AV_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return door_null(-EOPNOTSUPP);
}

/* Nothing was ever imported, so there is nothing to give back. */
AV_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
}

AV_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
}

AV_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
}
