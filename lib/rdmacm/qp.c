/* qp.c: queue pairs and shared receive queues of an id, and the transitions that its connection
 * needs.
 * In:    the application's calls, events that connect     Out: libibverbs
 * Runs:  the application's threads           Locks: struct door_shared.qp_lock, over libibverbs'
 */
#include <rdma/rdma_verbs.h>
#include <string.h>

#include "core/convert_attr.h"
#include "door.h"

/* ---- transitions ----------------------------------------------------------------------------- */

static int qp_attr(struct door_id *id, enum ib_qp_state state, struct ibv_qp_attr *out, int *mask)
{
	struct ib_qp_attr attr;
	int err;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = state;
	err = ucma_init_qp_attr(id->ucma, &attr, mask);
	if (err == 0)
		ib_convert_qp_attr(&attr, out);
	return err;
}

static int qp_to(struct door_id *id, struct ibv_qp *qp, enum ib_qp_state state)
{
	struct ibv_qp_attr attr;
	int mask, err = qp_attr(id, state, &attr, &mask);

	return err < 0 ? err : -ibv_modify_qp(qp, &attr, mask);
}

static int qp_to_rtr(struct door_id *id, u8 responder_resources) REQUIRES(id->shared.qp_lock)
{
	struct ibv_qp_attr attr;
	/* once more INIT: now the connection says which remote accesses there are */
	int mask, err = qp_to(id, id->id.qp, IB_QPS_INIT);

	if (err == 0)
		err = qp_attr(id, IB_QPS_RTR, &attr, &mask);
	if (err < 0)
		return err;
	if (responder_resources != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = responder_resources;
	return -ibv_modify_qp(id->id.qp, &attr, mask);
}

static int qp_from_rtr(struct door_id *id, u8 initiator_depth) REQUIRES(id->shared.qp_lock)
{
	struct ibv_qp_attr attr;
	int mask, err = qp_attr(id, IB_QPS_RTS, &attr, &mask);

	if (err < 0)
		return err;
	if (initiator_depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = initiator_depth;
	return -ibv_modify_qp(id->id.qp, &attr, mask);
}

int qp_to_rts(struct door_id *id, u8 responder_resources, u8 initiator_depth)
{
	int err = 1;

	lock_acquire(&id->shared.qp_lock);
	if (id->id.qp != NULL)
		err = qp_to_rtr(id, responder_resources);
	if (err == 0)
		err = qp_from_rtr(id, initiator_depth);
	lock_release(&id->shared.qp_lock);
	return err;
}

int qp_to_err(struct door_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int err = 1;

	lock_acquire(&id->shared.qp_lock);
	if (id->id.qp != NULL)
		err = -ibv_modify_qp(id->id.qp, &attr, IBV_QP_STATE);
	lock_release(&id->shared.qp_lock);
	return err;
}

/* A datagram queue pair needs nobody's consent. */
static int qp_begin_datagrams(struct door_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int err = qp_to(id, qp, IB_QPS_INIT);

	if (err == 0)
		err = -ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (err < 0)
		return err;
	attr.qp_state = IBV_QPS_RTS;
	return -ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

AV_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *attr_mask)
{
	struct ib_qp_attr ib;
	int err;

	if (attr == NULL || attr_mask == NULL || (unsigned)attr->qp_state > IBV_QPS_ERR)
		return door_result(-EINVAL);
	memset(&ib, 0, sizeof(ib));
	ib.qp_state = (enum ib_qp_state)attr->qp_state;
	err = ucma_init_qp_attr(door_id(id)->ucma, &ib, attr_mask);
	if (err == 0)
		ib_convert_qp_attr(&ib, attr);
	return door_result(err);
}

/* ---- completion queues for those who bring none ---------------------------------------------- */

static int cq_make(struct rdma_cm_id *id, u32 entries, struct ibv_comp_channel **channel,
		   struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (*channel == NULL)
		return -errno;
	*cq = ibv_create_cq(id->verbs, (int)MAX(entries, 1u), id, *channel, 0);
	if (*cq != NULL)
		return 0;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return -errno;
}

static void cq_end(struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	if (*cq != NULL)
		ibv_destroy_cq(*cq);
	if (*channel != NULL)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void cq_end_own(struct door_id *id)
{
	/* Its SRQ may stand on one of them. */
	if (!id->own_queues || id->id.srq != NULL)
		return;
	cq_end(&id->id.send_cq_channel, &id->id.send_cq);
	cq_end(&id->id.recv_cq_channel, &id->id.recv_cq);
	id->own_queues = false;
}

/* The CQs that the attributes leave open. */
static int cq_fill(struct door_id *id, struct ibv_qp_init_attr_ex *init)
{
	bool receives = init->qp_type != IBV_QPT_XRC_SEND;
	struct rdma_cm_id *cm = &id->id;
	int err = 0;

	if (init->qp_type == IBV_QPT_XRC_RECV) /* it has what the SRQ of each request has */
		return 0;
	if (receives && init->recv_cq == NULL && cm->recv_cq == NULL) {
		id->own_queues = true;
		err = cq_make(cm, init->cap.max_recv_wr, &cm->recv_cq_channel, &cm->recv_cq);
	}
	if (err == 0 && init->send_cq == NULL && cm->send_cq == NULL) {
		id->own_queues = true;
		err = cq_make(cm, init->cap.max_send_wr, &cm->send_cq_channel, &cm->send_cq);
	}
	if (err < 0)
		return err;
	if (init->recv_cq == NULL)
		init->recv_cq = cm->recv_cq;
	if (init->send_cq == NULL)
		init->send_cq = cm->send_cq;
	return 0;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

/* A target is of the device's domain if it names none. */
static int qp_fill_domain(struct door_id *id, struct ibv_qp_init_attr_ex *init)
{
	if ((init->comp_mask & IBV_QP_INIT_ATTR_XRCD) && init->xrcd != NULL)
		return 0;
	init->xrcd = device_xrcd(id->device);
	if (init->xrcd == NULL)
		return -errno;
	init->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	return 0;
}

static int qp_check(struct door_id *id, struct ibv_qp_init_attr_ex *init)
{
	const struct rdma_cm_id *cm = &id->id;

	if (cm->qp != NULL || id->device == NULL)
		return -EINVAL;
	if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD) || init->pd == NULL) {
		init->pd = id->id.pd;
		init->comp_mask |= IBV_QP_INIT_ATTR_PD;
	}
	if (init->pd == NULL)
		return -ENOMEM;
	if (init->pd->context != id->id.verbs)
		return -EINVAL;
	if ((cm->recv_cq != NULL && init->recv_cq != NULL && init->recv_cq != cm->recv_cq) ||
	    (cm->send_cq != NULL && init->send_cq != NULL && init->send_cq != cm->send_cq))
		return -EINVAL;
	if (init->srq == NULL)
		init->srq = cm->srq;
	return init->qp_type == IBV_QPT_XRC_RECV ? qp_fill_domain(id, init) : 0;
}

static int qp_create(struct door_id *id, struct ibv_qp_init_attr_ex *init, struct ibv_qp **out)
{
	struct ibv_qp *qp;
	int err = cq_fill(id, init);

	if (err < 0)
		return err;
	qp = ibv_create_qp_ex(id->id.verbs, init);
	if (qp == NULL)
		return -errno;
	err = init->qp_type == IBV_QPT_UD ? qp_begin_datagrams(id, qp)
					  : qp_to(id, qp, IB_QPS_INIT);
	if (err < 0)
		ibv_destroy_qp(qp);
	else
		*out = qp;
	return err;
}

AV_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *cm_id, struct ibv_qp_init_attr_ex *init)
{
	struct door_id *id = door_id(cm_id);
	int err = qp_check(id, init);

	if (err < 0)
		return door_result(err);
	err = qp_create(id, init, &cm_id->qp);
	if (err < 0) {
		cq_end_own(id);
		return door_result(err);
	}
	cm_id->pd = init->pd;
	return 0;
}

/* The attributes begin alike in both structures. */
AV_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			     struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_qp_init_attr_ex init;

	memset(&init, 0, sizeof(init));
	memcpy(&init, qp_init_attr, sizeof(*qp_init_attr));
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = pd != NULL ? pd : id->pd;
	if (rdma_create_qp_ex(id, &init) != 0)
		return -1;
	memcpy(qp_init_attr, &init, sizeof(*qp_init_attr));
	return 0;
}

/* Beside a thread that takes an event, which leads the queue pair through its states. */
AV_EXPORT void rdma_destroy_qp(struct rdma_cm_id *cm_id)
{
	struct door_id *id = door_id(cm_id);
	struct ibv_qp *qp;

	id_lock(id);
	mcast_detach_all(id);
	qp = cm_id->qp;
	cm_id->qp = NULL;
	lock_release(&id->shared.qp_lock);
	if (qp != NULL)
		ibv_destroy_qp(qp);
	cq_end_own(id);
}

/* ---- shared receive queues ------------------------------------------------------------------- */

/* The domain and the CQ that the attributes leave open. */
static int srq_fill(struct door_id *id, struct ibv_srq_init_attr_ex *attr)
{
	int err = 0;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || attr->xrcd == NULL)
		attr->xrcd = id->device == NULL ? NULL : device_xrcd(id->device);
	if (attr->xrcd == NULL)
		return id->device == NULL ? -EINVAL : -errno;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || attr->cq == NULL) {
		if (id->id.recv_cq == NULL) {
			id->own_queues = true;
			err = cq_make(&id->id, attr->attr.max_wr, &id->id.recv_cq_channel,
				      &id->id.recv_cq);
		}
		attr->cq = id->id.recv_cq;
	}
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	return err;
}

AV_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq;
	int err;

	if (id->srq != NULL || id->verbs == NULL || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return door_result(-EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || attr->pd == NULL) {
		attr->pd = id->pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	err = attr->srq_type == IBV_SRQT_XRC ? srq_fill(door_id(id), attr) : 0;
	if (err < 0)
		return door_result(err);
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (srq == NULL)
		return -1;
	if (id->pd == NULL)
		id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

AV_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
			      struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex;

	memset(&ex, 0, sizeof(ex));
	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	ex.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	ex.pd = pd;
	if (rdma_create_srq_ex(id, &ex) != 0)
		return -1;
	memcpy(attr, &ex, sizeof(*attr));
	return 0;
}

AV_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq != NULL)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (id->qp == NULL)
		cq_end_own(door_id(id));
}
