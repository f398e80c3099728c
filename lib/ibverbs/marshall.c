/* marshall.c: copies address vectors, QP attributes and path records between the kernel's layout
 * and the user's.
 * In: structures of rdma/ib_user_*.h
 * Out: structures of infiniband/verbs.h and sa.h, or back
 * Runs: any thread (connection managers)
 * Locks: none
 */
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include "door.h"

AV_EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
AV_EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
AV_EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst,
					   struct ib_user_path_rec *src);
AV_EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

/* One list per structure pair whose fields bear the same names; `to` and `from` are pointers. */
#define COPY_FIELD(field) to->field = from->field;
/* clang-format off */
#define AH_FIELDS(X)                                                                               \
	X(grh.flow_label) X(grh.sgid_index) X(grh.hop_limit) X(grh.traffic_class)                  \
	X(dlid) X(sl) X(src_path_bits) X(static_rate) X(is_global) X(port_num)
#define QP_FIELDS(X)                                                                               \
	X(qp_state) X(cur_qp_state) X(path_mtu) X(path_mig_state) X(qkey) X(rq_psn) X(sq_psn)      \
	X(dest_qp_num) X(qp_access_flags) X(pkey_index) X(alt_pkey_index) X(en_sqd_async_notify)   \
	X(sq_draining) X(max_rd_atomic) X(max_dest_rd_atomic) X(min_rnr_timer) X(port_num)         \
	X(timeout) X(retry_cnt) X(rnr_retry) X(alt_port_num) X(alt_timeout)
#define PATH_FIELDS(X)                                                                             \
	X(dlid) X(slid) X(raw_traffic) X(flow_label) X(hop_limit) X(traffic_class) X(reversible)   \
	X(numb_path) X(pkey) X(sl) X(mtu_selector) X(mtu) X(rate_selector) X(rate)                 \
	X(packet_life_time_selector) X(packet_life_time) X(preference)
/* clang-format on */

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from)
{
	memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof(to->grh.dgid.raw));
	AH_FIELDS(COPY_FIELD)
}

void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from)
{
	QP_FIELDS(COPY_FIELD)
	to->cap.max_send_wr = from->max_send_wr;
	to->cap.max_recv_wr = from->max_recv_wr;
	to->cap.max_send_sge = from->max_send_sge;
	to->cap.max_recv_sge = from->max_recv_sge;
	to->cap.max_inline_data = from->max_inline_data;
	ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
	ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
}

void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from)
{
	memcpy(to->dgid.raw, from->dgid, sizeof(to->dgid.raw));
	memcpy(to->sgid.raw, from->sgid, sizeof(to->sgid.raw));
	PATH_FIELDS(COPY_FIELD)
}

void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from)
{
	memcpy(to->dgid, from->dgid.raw, sizeof(to->dgid));
	memcpy(to->sgid, from->sgid.raw, sizeof(to->sgid));
	PATH_FIELDS(COPY_FIELD)
}
