/* connect.c: connecting, accepting, leaving.
 * In:    the application's calls           Out: the RDMA CM's, transitions of the id's queue pair
 * Runs:  the application's threads         Locks: none
 */
#include "door.h"

enum { CONNECT_RETRIES = 7 };

/* What goes on the wire: the id's depths, and the queue pair of the id if it has one. */
static struct ucma_conn connect_param(const struct door_id *id, const struct rdma_conn_param *param)
{
	struct ucma_conn conn = { .responder_resources = id->responder_resources,
				  .initiator_depth = id->initiator_depth,
				  .retry_count = CONNECT_RETRIES,
				  .rnr_retry_count = CONNECT_RETRIES };

	if (param != NULL) {
		conn.private_data = param->private_data;
		conn.private_data_len = param->private_data_len;
		conn.flow_control = param->flow_control;
		conn.retry_count = param->retry_count;
		conn.rnr_retry_count = param->rnr_retry_count;
		conn.qp_num = param->qp_num;
		conn.srq = param->srq;
	}
	if (id->id.qp != NULL) {
		conn.qp_num = id->id.qp->qp_num;
		conn.srq = id->id.qp->srq != NULL;
	}
	return conn;
}

/* A depth that the application leaves open is the most that can be; one beyond the device's own is
 * refused. */
static int connect_depth(bool open, u8 wanted, u8 most, u8 *out)
{
	if (!open && wanted > most)
		return -EINVAL;
	*out = open ? most : wanted;
	return 0;
}

static int connect_depths(struct door_id *id, const struct rdma_conn_param *param, u8 most_init,
			  u8 most_resp)
{
	bool open_init = param == NULL || param->initiator_depth == RDMA_MAX_INIT_DEPTH;
	bool open_resp = param == NULL || param->responder_resources == RDMA_MAX_RESP_RES;
	int err = connect_depth(open_init, open_init ? 0 : param->initiator_depth, most_init,
				&id->initiator_depth);

	if (err < 0)
		return err;
	return connect_depth(open_resp, open_resp ? 0 : param->responder_resources, most_resp,
			     &id->responder_resources);
}

AV_EXPORT int rdma_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *conn_param)
{
	struct door_id *id = door_id(cm_id);
	struct ucma_conn conn;
	int err;

	if (id->device == NULL)
		return door_result(-EINVAL);
	err = connect_depths(id, conn_param, id->device->max_initiator_depth,
			     id->device->max_responder_resources);
	if (err < 0)
		return door_result(err);
	conn = connect_param(id, conn_param);
	err = ucma_connect(id->ucma, &conn);
	return err < 0 ? door_result(err) : id_complete(id);
}

/* Of a request: no more than the peer asked for, where the application leaves it open. */
static int accept_depths(struct door_id *id, const struct rdma_conn_param *param)
{
	u8 init = id->initiator_depth, resp = id->responder_resources;
	int err = connect_depths(id, param, id->device->max_initiator_depth,
				 id->device->max_responder_resources);

	if (err < 0)
		return err;
	if (param == NULL || param->initiator_depth == RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = MIN(id->initiator_depth, init);
	if (param == NULL || param->responder_resources == RDMA_MAX_RESP_RES)
		id->responder_resources = MIN(id->responder_resources, resp);
	return 0;
}

static int accept_prepare(struct door_id *id, const struct rdma_conn_param *param)
{
	int err;

	if (id->device == NULL)
		return -EINVAL;
	err = accept_depths(id, param);
	if (err < 0 || id->id.qp == NULL || id->id.qp_type == IBV_QPT_UD)
		return err;
	err = qp_to_rtr(id, id->responder_resources);
	return err < 0 ? err : qp_to_rts(id, id->initiator_depth);
}

AV_EXPORT int rdma_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *conn_param)
{
	struct door_id *id = door_id(cm_id);
	int err = accept_prepare(id, conn_param);
	struct ucma_conn conn;

	if (err == 0) {
		conn = connect_param(id, conn_param);
		err = ucma_accept(id->ucma, &conn);
	}
	if (err < 0) {
		(void)qp_to_err(id);
		return door_result(err);
	}
	return cm_id->qp_type == IBV_QPT_UD ? 0 : id_complete(id);
}

AV_EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		return door_result(-EINVAL);
	return door_result(ucma_accept(door_id(id)->ucma, NULL));
}

AV_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return door_result(ucma_reject(door_id(id)->ucma, private_data, private_data_len));
}

AV_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return door_result(ucma_notify(door_id(id)->ucma, event));
}

AV_EXPORT int rdma_disconnect(struct rdma_cm_id *cm_id)
{
	struct door_id *id = door_id(cm_id);
	int err = qp_to_err(id);

	if (err == 0)
		err = ucma_disconnect(id->ucma);
	return err < 0 ? door_result(err) : id_complete(id);
}

AV_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct door_id *l = door_id(listen);
	struct rdma_cm_event *event;
	struct ibv_qp_init_attr init;

	if (!l->sync)
		return door_result(-EINVAL);
	if (listen->event != NULL)
		rdma_ack_cm_event(listen->event);
	listen->event = NULL;
	if (rdma_get_cm_event(listen->channel, &event) != 0)
		return -1;
	if (event->status != 0 || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int err = event->status < 0 ? event->status : -EINVAL;

		listen->event = event;
		return door_result(err);
	}
	if (l->init != NULL) {
		init = *l->init;
		if (rdma_create_qp(event->id, listen->pd, &init) != 0) {
			listen->event = event;
			rdma_reject(event->id, NULL, 0);
			return -1;
		}
	}
	*id = event->id;
	(*id)->event = event;
	return 0;
}
