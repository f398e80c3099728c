/* qp.c: queue pairs.
 * In: libibverbs' attributes, and work requests that pass through as they are
 * Out: the midlayer, the driver
 * Runs: the application's threads
 * Locks: none
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "core/convert_attr.h"
#include "door.h"

_Static_assert((int)IB_QPT_RC == IBV_QPT_RC && (int)IB_QPT_UD == IBV_QPT_UD, "the types agree");

static int qp_check_init(struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
	switch (init->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		break;
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
	case IBV_QPT_DRIVER:
		return -EOPNOTSUPP;
	default:
		return -EINVAL;
	}
	if (!init->send_cq || !init->recv_cq || pd_is_gone(pd))
		return -EINVAL;
	if (init->send_cq->context != pd->context || init->recv_cq->context != pd->context)
		return -EINVAL;
	return init->srq && init->srq->context != pd->context ? -EINVAL : 0;
}

static void qp_fill(struct door_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
	const struct ib_uverbs_ops *ops = door_context(pd->context)->ops;
	struct ibv_qp *ibv = &qp->ex.qp_base;

	ibv->context = pd->context;
	ibv->qp_context = init->qp_context;
	ibv->pd = pd;
	ibv->send_cq = init->send_cq;
	ibv->recv_cq = init->recv_cq;
	ibv->srq = init->srq;
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = init->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	qp->post_send = ops->post_send;
	qp->post_recv = ops->post_recv;
	qp->sq_sig_all = init->sq_sig_all;
}

static int qp_create_below(struct door_qp *qp, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ib_qp_init_attr ib = {
		.event_handler = async_on_qp,
		.qp_context = &qp->ex.qp_base,
		.send_cq = door_cq(init->send_cq)->ib,
		.recv_cq = door_cq(init->recv_cq)->ib,
		.srq = init->srq ? door_srq(init->srq)->ib : NULL,
		.sq_sig_type = init->sq_sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR,
		.qp_type = (enum ib_qp_type)init->qp_type,
	};

	memcpy(&ib.cap, &init->cap, sizeof(ib.cap));
	qp->ib = ib_create_qp(door_pd(pd)->ib, &ib);
	if (IS_ERR(qp->ib))
		return (int)PTR_ERR(qp->ib);
	memcpy(&init->cap, &ib.cap, sizeof(init->cap));
	qp->cap = init->cap;
	qp->ex.qp_base.qp_num = qp->ib->qp_num;
	return 0;
}

LINE_ASSERT_SPARE(struct door_qp, uobj);

/* The attributes begin alike in both of libibverbs' structures. */
static struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *init, bool wr_api,
				uint64_t wr_flags)
{
	struct door_context *c = door_context(pd->context);
	int error = qp_check_init(pd, init);
	struct door_qp *qp;

	if (error)
		return door_null(error);
	qp = line_alloc(sizeof(*qp));
	if (!qp)
		return door_null(-ENOMEM);
	qp_fill(qp, pd, init);
	if (wr_api)
		error = wr_init(qp, wr_flags);
	if (!error)
		error = qp_create_below(qp, pd, init);
	if (error) {
		wr_fini(qp);
		free(qp);
		return door_null(error);
	}
	ib_uobject_add(c->ucontext, &qp->uobj, IB_UOBJECT_QP, qp->ib);
	qp->ex.qp_base.handle = qp->uobj.handle;
	pd_hold(pd);
	context_get(c);
	return &qp->ex.qp_base;
}

AV_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	return qp_create(pd, init, false, 0);
}
DOOR_DEFAULT(ibv_create_qp);

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS;
	bool wr_api = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (attr->comp_mask & ~known)
		return door_null(-EOPNOTSUPP);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)
		return door_null(-EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return door_null(-EINVAL);
	return qp_create(attr->pd, (struct ibv_qp_init_attr *)attr, wr_api,
			 wr_api ? attr->send_ops_flags : 0);
}

AV_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return door_qp(qp)->batch ? &door_qp(qp)->ex : NULL;
}

AV_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ib_qp_attr ib;
	int error;

	ib_convert_ibv_qp_attr(attr, &ib);
	error = ib_modify_qp(door_qp(qp)->ib, &ib, mask);
	if (!error && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return door_errno(error);
}
DOOR_DEFAULT(ibv_modify_qp);

AV_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			   struct ibv_qp_init_attr *init)
{
	struct ib_qp_init_attr ib_init;
	struct ib_qp_attr ib;
	int error;

	memset(&ib_init, 0, sizeof(ib_init));
	memset(&ib, 0, sizeof(ib));
	error = ib_query_qp(door_qp(qp)->ib, &ib, mask, &ib_init);
	if (error)
		return door_errno(error);
	ib_convert_qp_attr(&ib, attr);
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = door_qp(qp)->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = door_qp(qp)->sq_sig_all,
	};
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return 0;
}
DOOR_DEFAULT(ibv_query_qp);

AV_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct door_context *c = door_context(qp->context);
	int error = ib_destroy_qp(door_qp(qp)->ib);

	if (error)
		return door_errno(error);
	async_queue_forget(c->async, qp);
	ib_uobject_remove(c->ucontext, &door_qp(qp)->uobj, true);
	pd_release(qp->pd);
	wr_fini(door_qp(qp));
	free(door_qp(qp));
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_destroy_qp);

/* Bytes of one message become visible in ascending order on every path. */
AV_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	if (flags)
		return 0;
	switch (op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		return 1;
	default:
		return 0;
	}
}

/* No device here has a vendor's extensions to negotiate. */
AV_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (ece->comp_mask)
		return EINVAL;
	return ece->vendor_id ? EOPNOTSUPP : 0;
}

AV_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

int qp_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct door_qp *qp = door_qp(ibv);

	return -qp->post_send(qp->ib, wr, bad);
}

int qp_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct door_qp *qp = door_qp(ibv);

	return -qp->post_recv(qp->ib, wr, bad);
}
