/* srq.c: shared receive queues.
 * In: receives in libibverbs' layout
 * Out: the driver's queue
 * Runs: the application's threads
 * Locks: none
 */
#include <pthread.h>
#include <stdlib.h>

#include "door.h"

_Static_assert((int)IB_SRQ_MAX_WR == IBV_SRQ_MAX_WR && (int)IB_SRQ_LIMIT == IBV_SRQ_LIMIT,
	       "the masks agree");

_Static_assert((int)IB_SRQT_BASIC == IBV_SRQT_BASIC && (int)IB_SRQT_TM == IBV_SRQT_TM &&
		       (int)IB_SRQT_XRC == IBV_SRQT_XRC,
	       "the types agree");

static void srq_fill(struct door_srq *srq, struct ibv_pd *pd, void *srq_context)
{
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = srq_context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	srq->post_recv = door_context(pd->context)->ops->post_srq_recv;
}

/* `init` names type, CQ and limits of tag matching. */
static struct ibv_srq *srq_create(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr,
				  struct ib_srq_init_attr_ex *init)
{
	struct door_context *c = door_context(pd->context);
	struct door_srq *srq = calloc(1, sizeof(*srq));

	if (!srq)
		return door_null(-ENOMEM);
	init->size = sizeof(*init);
	init->memory = pd_memory(pd);
	init->base = (struct ib_srq_init_attr){
		.event_handler = async_on_srq,
		.srq_context = srq,
		.attr = { .max_wr = attr->max_wr, .max_sge = attr->max_sge },
	};
	srq_fill(srq, pd, srq_context);
	srq->ib = pd_is_gone(pd) ? ERR_PTR(-EINVAL) : ib_create_srq_ex(door_pd(pd)->ib, init);
	if (IS_ERR(srq->ib)) {
		long error = PTR_ERR(srq->ib);

		free(srq);
		return door_null((int)error);
	}
	attr->max_wr = init->base.attr.max_wr;
	attr->max_sge = init->base.attr.max_sge;
	ib_uobject_add(c->ucontext, &srq->uobj, IB_UOBJECT_SRQ, srq->ib);
	srq->ibv.handle = srq->uobj.handle;
	pd_hold(pd);
	context_get(c);
	return &srq->ibv;
}

AV_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct ib_srq_init_attr_ex basic = { .srq_type = IB_SRQT_BASIC };

	return srq_create(pd, init->srq_context, &init->attr, &basic);
}
DOOR_DEFAULT(ibv_create_srq);

static int srq_read_tags(const struct ibv_srq_init_attr_ex *attr, struct ib_srq_init_attr_ex *init)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TM))
		return -EINVAL;
	init->max_num_tags = attr->tm_cap.max_num_tags;
	init->max_ops = attr->tm_cap.max_ops;
	return 0;
}

static int srq_read_xrcd(const struct ibv_context *context,
			 const struct ibv_srq_init_attr_ex *attr, struct ib_srq_init_attr_ex *init)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd ||
	    !context_is_same(attr->xrcd->context, context))
		return -EINVAL;
	init->xrcd = door_xrcd(attr->xrcd)->ib;
	return 0;
}

/* What comp_mask does not name is not read. A basic SRQ has no CQ of its own and no tags, so that
 * naming them asks for something that it is not. */
static int srq_read_attr(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr,
			 struct ib_srq_init_attr_ex *init)
{
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type :
									     IBV_SRQT_BASIC;

	if (attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_RESERVED - 1))
		return -EOPNOTSUPP;
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_TM && type != IBV_SRQT_XRC)
		return -EINVAL;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd ||
	    !context_is_same(attr->pd->context, context))
		return -EINVAL;
	*init = (struct ib_srq_init_attr_ex){ .srq_type = (enum ib_srq_type)type };
	if (type == IBV_SRQT_BASIC)
		return 0;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq ||
	    !context_is_same(attr->cq->context, context))
		return -EINVAL;
	init->cq = door_cq(attr->cq)->ib;
	return type == IBV_SRQT_TM ? srq_read_tags(attr, init) : srq_read_xrcd(context, attr, init);
}

struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ib_srq_init_attr_ex init;
	int error = srq_read_attr(context, attr, &init);
	struct ibv_srq *srq;

	if (error)
		return door_null(error);
	srq = srq_create(attr->pd, attr->srq_context, &attr->attr, &init);
	if (srq && init.xrcd) {
		door_srq(srq)->xrcd = door_xrcd(attr->xrcd);
		xrcd_use(door_xrcd(attr->xrcd));
	}
	return srq;
}

/* One layout: src/core sees to that. */
int srq_post_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	return door_errno(ib_post_srq_ops(door_srq(srq)->ib, (struct ib_ops_wr *)wr,
					  (struct ib_ops_wr **)bad));
}

AV_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ib_srq_attr ib = { .max_wr = attr->max_wr,
				  .max_sge = attr->max_sge,
				  .srq_limit = attr->srq_limit };

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	return door_errno(ib_modify_srq(door_srq(srq)->ib, &ib, mask));
}
DOOR_DEFAULT(ibv_modify_srq);

AV_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ib_srq_attr ib;
	int error = ib_query_srq(door_srq(srq)->ib, &ib);

	if (error)
		return door_errno(error);
	*attr = (struct ibv_srq_attr){ .max_wr = ib.max_wr,
				       .max_sge = ib.max_sge,
				       .srq_limit = ib.srq_limit };
	return 0;
}
DOOR_DEFAULT(ibv_query_srq);

AV_EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct door_context *c = door_context(srq->context);
	int error = ib_destroy_srq(door_srq(srq)->ib);

	if (error)
		return door_errno(error);
	async_queue_forget(c->async, srq);
	ib_uobject_remove(c->ucontext, &door_srq(srq)->uobj, true);
	pd_release(srq->pd);
	if (door_srq(srq)->xrcd)
		xrcd_unuse(door_srq(srq)->xrcd);
	free(srq);
	context_put(c);
	return 0;
}
DOOR_DEFAULT(ibv_destroy_srq);

int srq_post_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct door_srq *srq = door_srq(ibv);

	return -srq->post_recv(srq->ib, wr, bad);
}
