/* compat_queues.c: queues and events for programs linked with libibverbs 1.0.
 * In: objects of that release (compat_1_0.h)      Out: the same call on today's object behind it
 * Runs: the application's threads      Locks: none
 */
#include <stdlib.h>
#include <string.h>

#include "compat_1_0.h"

AV_EXPORT struct old_cq *old_create_cq(struct old_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int vector);
AV_EXPORT int old_resize_cq(struct old_cq *cq, int cqe);
AV_EXPORT int old_destroy_cq(struct old_cq *cq);
AV_EXPORT int old_get_cq_event(struct ibv_comp_channel *channel, struct old_cq **cq,
			       void **cq_context);
AV_EXPORT void old_ack_cq_events(struct old_cq *cq, unsigned int nevents);
AV_EXPORT struct old_srq *old_create_srq(struct old_pd *pd, struct ibv_srq_init_attr *init);
AV_EXPORT int old_modify_srq(struct old_srq *srq, struct ibv_srq_attr *attr, int mask);
AV_EXPORT int old_query_srq(struct old_srq *srq, struct ibv_srq_attr *attr);
AV_EXPORT int old_destroy_srq(struct old_srq *srq);
AV_EXPORT struct old_qp *old_create_qp(struct old_pd *pd, struct old_qp_init_attr *init);
AV_EXPORT int old_query_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask,
			   struct old_qp_init_attr *init);
AV_EXPORT int old_modify_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask);
AV_EXPORT int old_destroy_qp(struct old_qp *qp);
AV_EXPORT int old_attach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid);
AV_EXPORT int old_detach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid);
AV_EXPORT int old_get_async_event(struct old_context *context, struct ibv_async_event *event);
AV_EXPORT void old_ack_async_event(struct ibv_async_event *event);

struct old_cq *old_create_cq(struct old_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct old_cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return door_null(-ENOMEM);
	cq->real = ibv_create_cq(context->real, cqe, cq, channel, vector);
	if (!cq->real) {
		free(cq);
		return NULL;
	}
	cq->context = context;
	cq->cq_context = cq_context;
	cq->handle = cq->real->handle;
	cq->cqe = cq->real->cqe;
	return cq;
}
DOOR_OLD(old_create_cq, ibv_create_cq);

int old_resize_cq(struct old_cq *cq, int cqe)
{
	int error = ibv_resize_cq(cq->real, cqe);

	if (!error)
		cq_show_size(door_cq(cq->real)->ib, &cq->cqe);
	return error;
}
DOOR_OLD(old_resize_cq, ibv_resize_cq);

int old_destroy_cq(struct old_cq *cq)
{
	int error = ibv_destroy_cq(cq->real);

	if (!error)
		free(cq);
	return error;
}
DOOR_OLD(old_destroy_cq, ibv_destroy_cq);

int old_get_cq_event(struct ibv_comp_channel *channel, struct old_cq **cq, void **cq_context)
{
	struct ibv_cq *real;
	void *old;
	int error = ibv_get_cq_event(channel, &real, &old);

	if (error)
		return error;
	*cq = old;
	*cq_context = (*cq)->cq_context;
	return 0;
}
DOOR_OLD(old_get_cq_event, ibv_get_cq_event);

void old_ack_cq_events(struct old_cq *cq, unsigned int nevents)
{
	struct ibv_cq *real = cq->real;

	if (nevents)
		DOOR_COUNT_EVENTS(cq, comp_events_completed, nevents);
	ibv_ack_cq_events(real, nevents);
}
DOOR_OLD(old_ack_cq_events, ibv_ack_cq_events);

struct old_srq *old_create_srq(struct old_pd *pd, struct ibv_srq_init_attr *init)
{
	struct old_srq *srq = calloc(1, sizeof(*srq));
	struct ibv_srq_init_attr real = *init;

	if (!srq)
		return door_null(-ENOMEM);
	real.srq_context = srq;
	srq->real = ibv_create_srq(pd->real, &real);
	if (!srq->real) {
		free(srq);
		return NULL;
	}
	srq->context = pd->context;
	srq->srq_context = init->srq_context;
	srq->pd = pd;
	srq->handle = srq->real->handle;
	return srq;
}
DOOR_OLD(old_create_srq, ibv_create_srq);

int old_modify_srq(struct old_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return ibv_modify_srq(srq->real, attr, mask);
}
DOOR_OLD(old_modify_srq, ibv_modify_srq);

int old_query_srq(struct old_srq *srq, struct ibv_srq_attr *attr)
{
	return ibv_query_srq(srq->real, attr);
}
DOOR_OLD(old_query_srq, ibv_query_srq);

int old_destroy_srq(struct old_srq *srq)
{
	int error = ibv_destroy_srq(srq->real);

	if (!error)
		free(srq);
	return error;
}
DOOR_OLD(old_destroy_srq, ibv_destroy_srq);

struct old_qp *old_create_qp(struct old_pd *pd, struct old_qp_init_attr *init)
{
	struct old_qp *qp = calloc(1, sizeof(*qp));
	struct ibv_qp_init_attr real = {
		.qp_context = qp,
		.send_cq = init->send_cq ? init->send_cq->real : NULL,
		.recv_cq = init->recv_cq ? init->recv_cq->real : NULL,
		.srq = init->srq ? init->srq->real : NULL,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
	};

	if (!qp)
		return door_null(-ENOMEM);
	qp->real = ibv_create_qp(pd->real, &real);
	if (!qp->real) {
		free(qp);
		return NULL;
	}
	init->cap = real.cap;
	qp->context = pd->context;
	qp->qp_context = init->qp_context;
	qp->pd = pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->handle = qp->real->handle;
	qp->qp_num = qp->real->qp_num;
	qp->state = qp->real->state;
	qp->qp_type = qp->real->qp_type;
	return qp;
}
DOOR_OLD(old_create_qp, ibv_create_qp);

int old_query_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct old_qp_init_attr *init)
{
	struct ibv_qp_init_attr real;
	int error = ibv_query_qp(qp->real, attr, mask, &real);

	if (error)
		return error;
	*init = (struct old_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = real.cap,
		.qp_type = real.qp_type,
		.sq_sig_all = real.sq_sig_all,
	};
	qp->state = qp->real->state;
	return 0;
}
DOOR_OLD(old_query_qp, ibv_query_qp);

int old_modify_qp(struct old_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(qp->real, attr, mask);

	if (!error)
		qp->state = qp->real->state;
	return error;
}
DOOR_OLD(old_modify_qp, ibv_modify_qp);

int old_destroy_qp(struct old_qp *qp)
{
	int error = ibv_destroy_qp(qp->real);

	if (!error)
		free(qp);
	return error;
}
DOOR_OLD(old_destroy_qp, ibv_destroy_qp);

int old_attach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid)
{
	return ibv_attach_mcast(qp->real, gid, lid);
}
DOOR_OLD(old_attach_mcast, ibv_attach_mcast);

int old_detach_mcast(struct old_qp *qp, union ibv_gid *gid, uint16_t lid)
{
	return ibv_detach_mcast(qp->real, gid, lid);
}
DOOR_OLD(old_detach_mcast, ibv_detach_mcast);

/* The old object is what today's has for a consumer's context. */
int old_get_async_event(struct old_context *context, struct ibv_async_event *event)
{
	int error = ibv_get_async_event(context->real, event);

	if (error)
		return error;
	switch (async_subject_of(event->event_type)) {
	case ASYNC_CQ:
		event->element.cq = event->element.cq->cq_context;
		break;
	case ASYNC_QP:
		event->element.qp = event->element.qp->qp_context;
		break;
	case ASYNC_SRQ:
		event->element.srq = event->element.srq->srq_context;
		break;
	case ASYNC_PORT:
		break;
	}
	return 0;
}
DOOR_OLD(old_get_async_event, ibv_get_async_event);

void old_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_async_event real = *event;
	struct old_cq *cq;
	struct old_qp *qp;
	struct old_srq *srq;

	switch (async_subject_of(event->event_type)) {
	case ASYNC_CQ:
		cq = (struct old_cq *)event->element.cq;
		DOOR_COUNT_EVENTS(cq, async_events_completed, 1);
		real.element.cq = cq->real;
		break;
	case ASYNC_QP:
		qp = (struct old_qp *)event->element.qp;
		DOOR_COUNT_EVENTS(qp, events_completed, 1);
		real.element.qp = qp->real;
		break;
	case ASYNC_SRQ:
		srq = (struct old_srq *)event->element.srq;
		DOOR_COUNT_EVENTS(srq, events_completed, 1);
		real.element.srq = srq->real;
		break;
	case ASYNC_PORT:
		break;
	}
	ibv_ack_async_event(&real);
}
DOOR_OLD(old_ack_async_event, ibv_ack_async_event);
