/* rdma_cm_ib.h: what consumers of the RDMA CM need that know of InfiniBand beneath it. Contexts and
 * results as in rdma_cm.h. */
#ifndef RDMA_CM_IB_H
#define RDMA_CM_IB_H

#include <rdma/rdma_cm.h>

/* Q_Key of datagram queue pairs and multicast groups of the RDMA CM. */
#define RDMA_UDP_QKEY 0x01234567

/* Takes one or two path records (primary, alternate), copied, in place of rdma_resolve_route. The
 * address must have been resolved; the id has a route afterwards, without an event. */
AV_EXPORT int rdma_set_ib_paths(struct rdma_cm_id *id, struct ib_sa_path_rec *path_rec,
				int num_paths);

#endif
