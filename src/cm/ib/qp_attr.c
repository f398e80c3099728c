/* qp_attr.c: what the transitions of a queue pair need of its connection.
 * In: an id    Out: attributes of a queue pair and their mask
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, 11.2.5.2, 12.9.7
 */
#include <errno.h>

#include "cm/ib/cm_priv.h"

/* The states in which an id knows enough. */
#define CM_IN(state) (1u << (state))

enum {
	CM_STATES_ANSWERING = CM_IN(IB_CM_REQ_RCVD) | CM_IN(IB_CM_MRA_REQ_SENT) |
			      CM_IN(IB_CM_REP_RCVD) | CM_IN(IB_CM_MRA_REP_SENT) |
			      CM_IN(IB_CM_REP_SENT) | CM_IN(IB_CM_MRA_REP_RCVD) |
			      CM_IN(IB_CM_ESTABLISHED),
	CM_STATES_ASKING = CM_IN(IB_CM_REQ_SENT) | CM_IN(IB_CM_MRA_REQ_RCVD),
};

static int cm_attr_init(const struct cm_id *id, struct ib_qp_attr *attr, int *mask)
{
	if (!((CM_STATES_ANSWERING | CM_STATES_ASKING) & CM_IN(id->pub.state)))
		return -EINVAL;
	*mask = IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT;
	attr->qp_access_flags = IB_ACCESS_REMOTE_WRITE;
	if (id->responder_resources > 0)
		attr->qp_access_flags |= IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
	attr->pkey_index = id->av.route.pkey_index;
	attr->port_num = id->av.route.ah.port_num;
	return 0;
}

static void cm_attr_alternate(const struct cm_id *id, struct ib_qp_attr *attr, int *mask)
{
	*mask |= IB_QP_ALT_PATH;
	attr->alt_port_num = id->alternate.route.ah.port_num;
	attr->alt_pkey_index = id->alternate.route.pkey_index;
	attr->alt_timeout = id->alternate.timeout;
	attr->alt_ah_attr = id->alternate.route.ah;
}

static int cm_attr_rtr(const struct cm_id *id, struct ib_qp_attr *attr, int *mask)
{
	if (!(CM_STATES_ANSWERING & CM_IN(id->pub.state)))
		return -EINVAL;
	*mask = IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;
	attr->ah_attr = id->av.route.ah;
	attr->path_mtu = (enum ib_mtu)id->path_mtu;
	attr->dest_qp_num = id->remote_qpn;
	attr->rq_psn = id->rq_psn;
	if (id->qp_type == IB_QPT_RC || id->qp_type == IB_QPT_XRC_TGT) {
		*mask |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
		attr->max_dest_rd_atomic = id->responder_resources;
		attr->min_rnr_timer = 0;
	}
	if (id->alternate.valid)
		cm_attr_alternate(id, attr, mask);
	return 0;
}

static int cm_attr_rts(const struct cm_id *id, struct ib_qp_attr *attr, int *mask)
{
	if (!(CM_STATES_ANSWERING & CM_IN(id->pub.state)))
		return -EINVAL;
	if (id->pub.lap_state != IB_CM_LAP_UNINIT) { /* already RTS: only a new alternate path */
		*mask = IB_QP_STATE | IB_QP_PATH_MIG_STATE;
		attr->path_mig_state = IB_MIG_REARM;
		if (id->alternate.valid)
			cm_attr_alternate(id, attr, mask);
		return 0;
	}
	*mask = IB_QP_STATE | IB_QP_SQ_PSN;
	attr->sq_psn = id->sq_psn;
	if (id->qp_type != IB_QPT_UC) {
		*mask |= IB_QP_TIMEOUT;
		attr->timeout = id->av.timeout;
	}
	if (id->qp_type == IB_QPT_RC || id->qp_type == IB_QPT_XRC_INI) {
		*mask |= IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
		attr->retry_cnt = id->retry_count;
		attr->rnr_retry = id->rnr_retry_count;
		attr->max_rd_atomic = id->initiator_depth;
	}
	if (id->alternate.valid) {
		*mask |= IB_QP_PATH_MIG_STATE;
		attr->path_mig_state = IB_MIG_REARM;
	}
	return 0;
}

int ib_cm_init_qp_attr(struct ib_cm_id *cm_id, struct ib_qp_attr *qp_attr, int *qp_attr_mask)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	cm_enter(cm);
	switch (qp_attr->qp_state) {
	case IB_QPS_INIT:
		err = cm_attr_init(id, qp_attr, qp_attr_mask);
		break;
	case IB_QPS_RTR:
		err = cm_attr_rtr(id, qp_attr, qp_attr_mask);
		break;
	case IB_QPS_RTS:
		err = cm_attr_rts(id, qp_attr, qp_attr_mask);
		break;
	default:
		err = -EINVAL;
	}
	cm_leave(cm);
	return err;
}
