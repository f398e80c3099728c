/* convert.c: work requests and completions between the midlayer's layout and libibverbs'.
 * In: ib_* or ibv_* structures    Out: the other    Runs: anywhere    Locks: none
 */
#include "core/convert.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"

/* SGE lists are shared between both worlds. */
_Static_assert(sizeof(struct ib_sge) == sizeof(struct ibv_sge), "same SGE");
_Static_assert(offsetof(struct ib_sge, addr) == offsetof(struct ibv_sge, addr), "same SGE");
_Static_assert(offsetof(struct ib_sge, length) == offsetof(struct ibv_sge, length), "same SGE");
_Static_assert(offsetof(struct ib_sge, lkey) == offsetof(struct ibv_sge, lkey), "same SGE");

/* Numbers that pass unchanged. */
_Static_assert((int)IB_WR_LSO == (int)IBV_WR_TSO, "same opcodes");
_Static_assert((int)IB_WR_SEND_WITH_INV == (int)IBV_WR_SEND_WITH_INV, "same opcodes");
_Static_assert((int)IB_SEND_IP_CSUM == (int)IBV_SEND_IP_CSUM, "same send flags");
_Static_assert((int)IB_WC_TM_RNDV_INCOMPLETE == (int)IBV_WC_TM_RNDV_INCOMPLETE, "same statuses");
_Static_assert((int)IB_WC_LSO == (int)IBV_WC_TSO, "same completion opcodes");
_Static_assert((int)IB_WC_RECV_RDMA_WITH_IMM == (int)IBV_WC_RECV_RDMA_WITH_IMM, "same opcodes");
_Static_assert((int)IB_WC_TM_ADD == (int)IBV_WC_TM_ADD, "same opcodes");
_Static_assert((int)IB_WC_TM_NO_TAG == (int)IBV_WC_TM_NO_TAG, "same opcodes");
_Static_assert((int)IB_WC_WITH_IMM == (int)IBV_WC_WITH_IMM, "same flags, but for two and tags'");
_Static_assert((int)IB_QPT_XRC_TGT == (int)IBV_QPT_XRC_RECV, "same QP types");
_Static_assert((int)IB_QP_RATE_LIMIT == (int)IBV_QP_RATE_LIMIT, "same attribute bits");
_Static_assert((int)IB_EVENT_GID_CHANGE == (int)IBV_EVENT_GID_CHANGE, "same events");

/* Is the opcode one of the set? */
#define OPCODE_IN(opcode, set) ((1u << (u32)(opcode) & (set)) != 0)

enum {
	OPCODES_RDMA = 1 << IB_WR_RDMA_WRITE | 1 << IB_WR_RDMA_WRITE_WITH_IMM |
		       1 << IB_WR_RDMA_READ,
	OPCODES_ATOMIC = 1 << IB_WR_ATOMIC_CMP_AND_SWP | 1 << IB_WR_ATOMIC_FETCH_AND_ADD,
};

static bool core_qp_is_datagram(const struct ib_qp *qp)
{
	return qp->qp_type == IB_QPT_UD || qp->qp_type == IB_QPT_GSI || qp->qp_type == IB_QPT_SMI;
}

int ib_convert_send_wr(const struct ib_qp *qp, const struct ib_send_wr *in, struct ibv_send_wr *out,
		       struct ib_uverbs_ah *ah)
{
	if ((u32)in->opcode > IB_WR_SEND_WITH_INV || in->opcode == IB_WR_BIND_MW)
		return -EINVAL;
	out->wr_id = in->wr_id;
	out->next = NULL;
	out->sg_list = (struct ibv_sge *)in->sg_list;
	out->num_sge = in->num_sge;
	out->opcode = (enum ibv_wr_opcode)in->opcode;
	out->send_flags = (unsigned int)in->send_flags;
	out->invalidate_rkey = in->invalidate_rkey;
	if (core_qp_is_datagram(qp)) {
		ah->ah = in->wr.ud.ah;
		out->wr.ud.ah = &ah->ibv;
		out->wr.ud.remote_qpn = in->wr.ud.remote_qpn;
		out->wr.ud.remote_qkey = in->wr.ud.remote_qkey;
	} else if (OPCODE_IN(in->opcode, OPCODES_RDMA)) {
		out->wr.rdma.remote_addr = in->wr.rdma.remote_addr;
		out->wr.rdma.rkey = in->wr.rdma.rkey;
	} else if (OPCODE_IN(in->opcode, OPCODES_ATOMIC)) {
		out->wr.atomic.remote_addr = in->wr.atomic.remote_addr;
		out->wr.atomic.compare_add = in->wr.atomic.compare_add;
		out->wr.atomic.swap = in->wr.atomic.swap;
		out->wr.atomic.rkey = in->wr.atomic.rkey;
	}
	return 0;
}

int ib_convert_ibv_send_wr(const struct ib_qp *qp, const struct ibv_send_wr *in,
			   struct ib_send_wr *out)
{
	if ((u32)in->opcode > IBV_WR_SEND_WITH_INV || in->opcode == IBV_WR_BIND_MW)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	out->wr_id = in->wr_id;
	out->sg_list = (struct ib_sge *)in->sg_list;
	out->num_sge = in->num_sge;
	out->opcode = (enum ib_wr_opcode)in->opcode;
	out->send_flags = (int)in->send_flags;
	out->invalidate_rkey = in->invalidate_rkey;
	if (core_qp_is_datagram(qp)) {
		if (!in->wr.ud.ah)
			return -EINVAL;
		out->wr.ud.ah = container_of(in->wr.ud.ah, struct ib_uverbs_ah, ibv)->ah;
		out->wr.ud.remote_qpn = in->wr.ud.remote_qpn;
		out->wr.ud.remote_qkey = in->wr.ud.remote_qkey;
	} else if (in->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   in->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		out->wr.atomic.remote_addr = in->wr.atomic.remote_addr;
		out->wr.atomic.compare_add = in->wr.atomic.compare_add;
		out->wr.atomic.swap = in->wr.atomic.swap;
		out->wr.atomic.rkey = in->wr.atomic.rkey;
	} else {
		out->wr.rdma.remote_addr = in->wr.rdma.remote_addr;
		out->wr.rdma.rkey = in->wr.rdma.rkey;
	}
	return 0;
}

void ib_convert_recv_wr(const struct ib_recv_wr *in, struct ibv_recv_wr *out)
{
	out->wr_id = in->wr_id;
	out->next = NULL;
	out->sg_list = (struct ibv_sge *)in->sg_list;
	out->num_sge = in->num_sge;
}

void ib_convert_ibv_recv_wr(const struct ibv_recv_wr *in, struct ib_recv_wr *out)
{
	out->wr_id = in->wr_id;
	out->next = NULL;
	out->sg_list = (struct ib_sge *)in->sg_list;
	out->num_sge = in->num_sge;
}

enum {
	IBV_TM_FLAGS = IBV_WC_TM_SYNC_REQ | IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
	TM_FLAGS_SHIFT = 12,
};
_Static_assert(IBV_WC_TM_SYNC_REQ << TM_FLAGS_SHIFT == IB_WC_TM_SYNC_REQ &&
		       IBV_WC_TM_MATCH << TM_FLAGS_SHIFT == IB_WC_TM_MATCH &&
		       IBV_WC_TM_DATA_VALID << TM_FLAGS_SHIFT == IB_WC_TM_DATA_VALID,
	       "tag matching's flags stand in the same order");

/* Two flags have changed places between the two worlds, and those of tag matching have moved. */
static int flags_from_ibv(unsigned int flags)
{
	return (int)(flags & (IBV_WC_GRH | IBV_WC_WITH_IMM)) |
	       (flags & IBV_WC_WITH_INV ? IB_WC_WITH_INVALIDATE : 0) |
	       (flags & IBV_WC_IP_CSUM_OK ? IB_WC_IP_CSUM_OK : 0) |
	       (int)((flags & IBV_TM_FLAGS) << TM_FLAGS_SHIFT);
}

static unsigned int flags_to_ibv(int flags)
{
	return ((u32)flags & (IB_WC_GRH | IB_WC_WITH_IMM)) |
	       (flags & IB_WC_WITH_INVALIDATE ? IBV_WC_WITH_INV : 0) |
	       (flags & IB_WC_IP_CSUM_OK ? IBV_WC_IP_CSUM_OK : 0) |
	       ((u32)flags >> TM_FLAGS_SHIFT & IBV_TM_FLAGS);
}

void ib_convert_wc(const struct ibv_wc *in, struct ib_qp *qp, struct ib_wc *out)
{
	out->wr_id = in->wr_id;
	out->status = (enum ib_wc_status)in->status;
	out->opcode = (enum ib_wc_opcode)in->opcode;
	out->vendor_err = in->vendor_err;
	out->byte_len = in->byte_len;
	out->qp = qp;
	out->invalidate_rkey = in->invalidated_rkey;
	out->src_qp = in->src_qp;
	out->wc_flags = flags_from_ibv(in->wc_flags);
	out->pkey_index = in->pkey_index;
	out->slid = in->slid;
	out->sl = in->sl;
	out->dlid_path_bits = in->dlid_path_bits;
	out->port_num = 0;
}

void ib_convert_ib_wc(const struct ib_wc *in, struct ibv_wc *out)
{
	out->wr_id = in->wr_id;
	out->status = (enum ibv_wc_status)in->status;
	out->opcode = (enum ibv_wc_opcode)in->opcode;
	out->vendor_err = in->vendor_err;
	out->byte_len = in->byte_len;
	out->qp_num = in->qp ? in->qp->qp_num : 0;
	out->invalidated_rkey = in->invalidate_rkey;
	out->src_qp = in->src_qp;
	out->wc_flags = flags_to_ibv(in->wc_flags);
	out->pkey_index = in->pkey_index;
	out->slid = in->slid;
	out->sl = in->sl;
	out->dlid_path_bits = in->dlid_path_bits;
}

int ib_convert_post_send(struct ib_qp *qp, struct ib_send_wr *wr, struct ib_send_wr **bad)
{
	const struct ib_uverbs_ops *ops = qp->device->uverbs;

	for (; wr; wr = wr->next) {
		struct ibv_send_wr one, *ignored;
		struct ib_uverbs_ah ah;
		int err = ib_convert_send_wr(qp, wr, &one, &ah);

		if (!err)
			err = qp->qp_type == IB_QPT_RAW_PACKET ?
				      ops->post_raw_send(qp, &one, &ignored) :
				      ops->post_send(qp, &one, &ignored);
		else if (wr->opcode == IB_WR_REG_MR && ops->post_reg)
			err = ops->post_reg(qp, wr);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

/* On the SRQ, or, without one, on the queue pair. */
static int convert_post_recvs(const struct ib_uverbs_ops *ops, struct ib_qp *qp, struct ib_srq *srq,
		      struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr one, *ignored;

		ib_convert_recv_wr(wr, &one);
		int err = srq ? ops->post_srq_recv(srq, &one, &ignored) :
			  qp->qp_type == IB_QPT_RAW_PACKET ?
				ops->post_raw_recv(qp, &one, &ignored) :
				ops->post_recv(qp, &one, &ignored);

		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

int ib_convert_post_recv(struct ib_qp *qp, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	return convert_post_recvs(qp->device->uverbs, qp, NULL, wr, bad);
}

int ib_convert_post_srq_recv(struct ib_srq *srq, struct ib_recv_wr *wr, struct ib_recv_wr **bad)
{
	return convert_post_recvs(srq->device->uverbs, NULL, srq, wr, bad);
}
