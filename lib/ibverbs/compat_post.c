/* compat_post.c: the data path of programs linked with libibverbs 1.0.
 * In: work requests of that layout
 * Out: today's, converted and posted one at a time, so no list needs memory
 * Runs: the application's threads
 * Locks: none
 */
#include <string.h>

#include "compat_1_0.h"

static int old_poll_cq(struct old_cq *cq, int n, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq->real, n, wc);
}

static int old_req_notify_cq(struct old_cq *cq, int solicited_only)
{
	return ibv_req_notify_cq(cq->real, solicited_only);
}

static void old_convert_send(const struct old_qp *qp, const struct old_send_wr *from,
			     struct ibv_send_wr *to)
{
	memset(to, 0, sizeof(*to));
	to->wr_id = from->wr_id;
	to->sg_list = from->sg_list;
	to->num_sge = from->num_sge;
	to->opcode = from->opcode;
	to->send_flags = (unsigned int)from->send_flags;
	to->imm_data = from->imm_data;
	if (qp->qp_type == IBV_QPT_UD) {
		to->wr.ud.ah = from->wr.ud.ah ? from->wr.ud.ah->real : NULL;
		to->wr.ud.remote_qpn = from->wr.ud.remote_qpn;
		to->wr.ud.remote_qkey = from->wr.ud.remote_qkey;
		return;
	}
	if (from->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    from->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		to->wr.atomic.remote_addr = from->wr.atomic.remote_addr;
		to->wr.atomic.compare_add = from->wr.atomic.compare_add;
		to->wr.atomic.swap = from->wr.atomic.swap;
		to->wr.atomic.rkey = from->wr.atomic.rkey;
		return;
	}
	to->wr.rdma.remote_addr = from->wr.rdma.remote_addr;
	to->wr.rdma.rkey = from->wr.rdma.rkey;
}

static int old_post_send(struct old_qp *qp, struct old_send_wr *wr, struct old_send_wr **bad)
{
	struct ibv_send_wr one, *one_bad;
	int error;

	for (; wr; wr = wr->next) {
		old_convert_send(qp, wr, &one);
		error = ibv_post_send(qp->real, &one, &one_bad);
		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

static struct ibv_recv_wr old_convert_recv(const struct old_recv_wr *from)
{
	return (struct ibv_recv_wr){ .wr_id = from->wr_id,
				     .sg_list = from->sg_list,
				     .num_sge = from->num_sge };
}

static int old_post_recv(struct old_qp *qp, struct old_recv_wr *wr, struct old_recv_wr **bad)
{
	struct ibv_recv_wr one, *one_bad;
	int error;

	for (; wr; wr = wr->next) {
		one = old_convert_recv(wr);
		error = ibv_post_recv(qp->real, &one, &one_bad);
		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

static int old_post_srq_recv(struct old_srq *srq, struct old_recv_wr *wr, struct old_recv_wr **bad)
{
	struct ibv_recv_wr one, *one_bad;
	int error;

	for (; wr; wr = wr->next) {
		one = old_convert_recv(wr);
		error = ibv_post_srq_recv(srq->real, &one, &one_bad);
		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

void old_fill_methods(struct old_context *context)
{
	context->methods[OLD_POLL_CQ] = (void (*)(void))old_poll_cq;
	context->methods[OLD_REQ_NOTIFY_CQ] = (void (*)(void))old_req_notify_cq;
	context->methods[OLD_POST_SEND] = (void (*)(void))old_post_send;
	context->methods[OLD_POST_RECV] = (void (*)(void))old_post_recv;
	context->methods[OLD_POST_SRQ_RECV] = (void (*)(void))old_post_srq_recv;
}
