/* ib_marshall.h: attributes and paths between the midlayer's structures and those that the kernel
 * shows to user programs (Linux's ib_user_verbs.h and ib_user_sa.h, of libibverbs-dev).
 *
 * Every byte of the output is written, reserved ones with zeroes. A path's LIDs, P_Key and flow
 * label are in network order on both sides.
 * Context: any. Nothing here blocks, allocates or takes a lock.
 */
#ifndef IB_MARSHALL_H
#define IB_MARSHALL_H

#include <rdma/ib_sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>

/* qp_attr_mask is 0, the caller's to set; a rate limit has no place there. */
AV_EXPORT void ib_copy_qp_attr_to_user(struct ib_uverbs_qp_attr *dst, struct ib_qp_attr *src);

/* `is_global` is 1 if the address vector has a GRH. */
AV_EXPORT void ib_copy_ah_attr_to_user(struct ib_uverbs_ah_attr *dst, struct ib_ah_attr *src);

/* A service ID and a QoS class have no place there. */
AV_EXPORT void ib_copy_path_rec_to_user(struct ib_user_path_rec *dst, struct ib_sa_path_rec *src);

/* An MTU that does not fit its field loses its upper bits; nothing else is judged. */
AV_EXPORT void ib_copy_path_rec_from_user(struct ib_sa_path_rec *dst,
					  struct ib_user_path_rec *src);

#endif
