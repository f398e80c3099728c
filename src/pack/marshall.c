/* marshall.c: attributes and paths between the midlayer's structures and the kernel's for its user
 * programs.
 * In:    either                Out: the other
 * Runs:  any thread            Locks: none
 */
#include <rdma/ib_marshall.h>
#include <string.h>

#include "pack/pack.h"

/* What both sides call by one name. */
/* clang-format off */
#define MARSHALL_AH_FIELDS(X)                                                                      \
	X(grh.flow_label) X(grh.sgid_index) X(grh.hop_limit) X(grh.traffic_class)                  \
	X(dlid) X(sl) X(src_path_bits) X(static_rate) X(port_num)
#define MARSHALL_QP_FIELDS(X)                                                                      \
	X(qp_state) X(cur_qp_state) X(path_mtu) X(path_mig_state) X(qkey) X(rq_psn) X(sq_psn)      \
	X(dest_qp_num) X(qp_access_flags) X(pkey_index) X(alt_pkey_index) X(en_sqd_async_notify)   \
	X(sq_draining) X(max_rd_atomic) X(max_dest_rd_atomic) X(min_rnr_timer) X(port_num)         \
	X(timeout) X(retry_cnt) X(rnr_retry) X(alt_port_num) X(alt_timeout)
#define MARSHALL_CAP_FIELDS(X)                                                                     \
	X(max_send_wr) X(max_recv_wr) X(max_send_sge) X(max_recv_sge) X(max_inline_data)
#define MARSHALL_PATH_FIELDS(X)                                                                    \
	X(dlid) X(slid) X(raw_traffic) X(flow_label) X(hop_limit) X(traffic_class) X(reversible)   \
	X(numb_path) X(pkey) X(sl) X(mtu_selector) X(mtu) X(rate_selector) X(rate)                 \
	X(packet_life_time_selector) X(packet_life_time) X(preference)
/* clang-format on */
#define MARSHALL_FIELD(field) dst->field = (__typeof__(dst->field))src->field;
#define MARSHALL_CAP(field) dst->field = src->cap.field;

void ib_copy_ah_attr_to_user(struct ib_uverbs_ah_attr *dst, struct ib_ah_attr *src)
{
	memset(dst, 0, sizeof(*dst));
	MARSHALL_AH_FIELDS(MARSHALL_FIELD)
	dst->is_global = (src->ah_flags & IB_AH_GRH) != 0;
	memcpy(dst->grh.dgid, src->grh.dgid.raw, sizeof(dst->grh.dgid));
}

void ib_copy_qp_attr_to_user(struct ib_uverbs_qp_attr *dst, struct ib_qp_attr *src)
{
	memset(dst, 0, sizeof(*dst));
	MARSHALL_QP_FIELDS(MARSHALL_FIELD)
	MARSHALL_CAP_FIELDS(MARSHALL_CAP)
	ib_copy_ah_attr_to_user(&dst->ah_attr, &src->ah_attr);
	ib_copy_ah_attr_to_user(&dst->alt_ah_attr, &src->alt_ah_attr);
}

void ib_copy_path_rec_to_user(struct ib_user_path_rec *dst, struct ib_sa_path_rec *src)
{
	memset(dst, 0, sizeof(*dst));
	MARSHALL_PATH_FIELDS(MARSHALL_FIELD)
	memcpy(dst->dgid, src->dgid.raw, sizeof(dst->dgid));
	memcpy(dst->sgid, src->sgid.raw, sizeof(dst->sgid));
}

void ib_copy_path_rec_from_user(struct ib_sa_path_rec *dst, struct ib_user_path_rec *src)
{
	memset(dst, 0, sizeof(*dst));
	MARSHALL_PATH_FIELDS(MARSHALL_FIELD)
	memcpy(dst->dgid.raw, src->dgid, sizeof(src->dgid));
	memcpy(dst->sgid.raw, src->sgid, sizeof(src->sgid));
}
