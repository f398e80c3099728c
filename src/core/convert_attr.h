/* convert_attr.h: address vectors and the attributes of queue pairs between the midlayer's layout
 * and libibverbs', for the doors and for drivers whose engine works in libibverbs' layout.
 */
#ifndef CORE_CONVERT_ATTR_H
#define CORE_CONVERT_ATTR_H

#include <infiniband/verbs.h>
#include <rdma/ib_verbs.h>
#include <string.h>

_Static_assert((int)IB_QP_STATE == IBV_QP_STATE && (int)IB_QP_DEST_QPN == IBV_QP_DEST_QPN &&
		       (int)IB_QP_MAX_DEST_RD_ATOMIC == IBV_QP_MAX_DEST_RD_ATOMIC,
	       "the masks agree");
_Static_assert((int)IB_QPS_ERR == IBV_QPS_ERR && (int)IB_MIG_ARMED == IBV_MIG_ARMED,
	       "the states agree");
_Static_assert(sizeof(struct ibv_qp_cap) == sizeof(struct ib_qp_cap), "the capabilities agree");

/* The fields that have one name on both sides. */
/* clang-format off */
#define CONVERT_AH_FIELDS(X)                                                                       \
	X(grh.flow_label) X(grh.sgid_index) X(grh.hop_limit) X(grh.traffic_class)                  \
	X(dlid) X(sl) X(src_path_bits) X(static_rate) X(port_num)
#define CONVERT_QP_FIELDS(X)                                                                       \
	X(qkey) X(rq_psn) X(sq_psn) X(dest_qp_num) X(pkey_index) X(alt_pkey_index)                 \
	X(en_sqd_async_notify) X(sq_draining) X(max_rd_atomic) X(max_dest_rd_atomic)               \
	X(min_rnr_timer) X(port_num) X(timeout) X(retry_cnt) X(rnr_retry) X(alt_port_num)          \
	X(alt_timeout) X(rate_limit)
/* clang-format on */
#define CONVERT_FIELD(field) out->field = in->field;

static inline void ib_convert_ah_attr(const struct ib_ah_attr *in, struct ibv_ah_attr *out)
{
	memset(out, 0, sizeof(*out));
	CONVERT_AH_FIELDS(CONVERT_FIELD)
	out->is_global = (in->ah_flags & IB_AH_GRH) != 0;
	memcpy(out->grh.dgid.raw, in->grh.dgid.raw, sizeof(out->grh.dgid.raw));
}

static inline void ib_convert_ibv_ah_attr(const struct ibv_ah_attr *in, struct ib_ah_attr *out)
{
	memset(out, 0, sizeof(*out));
	CONVERT_AH_FIELDS(CONVERT_FIELD)
	out->ah_flags = in->is_global ? IB_AH_GRH : 0;
	memcpy(out->grh.dgid.raw, in->grh.dgid.raw, sizeof(out->grh.dgid.raw));
}

static inline void ib_convert_qp_attr(const struct ib_qp_attr *in, struct ibv_qp_attr *out)
{
	memset(out, 0, sizeof(*out));
	CONVERT_QP_FIELDS(CONVERT_FIELD)
	out->qp_state = (enum ibv_qp_state)in->qp_state;
	out->cur_qp_state = (enum ibv_qp_state)in->cur_qp_state;
	out->path_mtu = (enum ibv_mtu)in->path_mtu;
	out->path_mig_state = (enum ibv_mig_state)in->path_mig_state;
	out->qp_access_flags = (unsigned int)in->qp_access_flags;
	memcpy(&out->cap, &in->cap, sizeof(out->cap));
	ib_convert_ah_attr(&in->ah_attr, &out->ah_attr);
	ib_convert_ah_attr(&in->alt_ah_attr, &out->alt_ah_attr);
}

static inline void ib_convert_ibv_qp_attr(const struct ibv_qp_attr *in, struct ib_qp_attr *out)
{
	memset(out, 0, sizeof(*out));
	CONVERT_QP_FIELDS(CONVERT_FIELD)
	out->qp_state = (enum ib_qp_state)in->qp_state;
	out->cur_qp_state = (enum ib_qp_state)in->cur_qp_state;
	out->path_mtu = (enum ib_mtu)in->path_mtu;
	out->path_mig_state = (enum ib_mig_state)in->path_mig_state;
	out->qp_access_flags = (int)in->qp_access_flags;
	memcpy(&out->cap, &in->cap, sizeof(out->cap));
	ib_convert_ibv_ah_attr(&in->ah_attr, &out->ah_attr);
	ib_convert_ibv_ah_attr(&in->alt_ah_attr, &out->alt_ah_attr);
}

#endif
