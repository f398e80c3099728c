/* mcast.c: a datagram QP's membership of multicast groups.
 * In: a group's GID      Out: the midlayer      Runs: the application's threads      Locks: none
 */
#include <string.h>

#include "door.h"

AV_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	union ib_gid group;

	memcpy(group.raw, gid->raw, sizeof(group.raw));
	return door_errno(ib_attach_mcast(door_qp(qp)->ib, &group, lid));
}
DOOR_DEFAULT(ibv_attach_mcast);

AV_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	union ib_gid group;

	memcpy(group.raw, gid->raw, sizeof(group.raw));
	return door_errno(ib_detach_mcast(door_qp(qp)->ib, &group, lid));
}
DOOR_DEFAULT(ibv_detach_mcast);
