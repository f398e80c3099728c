/* connect.c: connecting, accepting, leaving.
 * In:    the application's calls           Out: the RDMA CM's, transitions of the id's queue pair
 * Runs:  the application's threads         Locks: none
 */
#include <rdma/ib_cm.h>
#include <string.h>

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
		conn.private_data_len = param->private_data != NULL ? param->private_data_len : 0;
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

/* Of the TCP port space a depth beyond the device's own is refused, and an id without a queue pair
 * needs parameters that say which. */
static int connect_check(const struct door_id *id, const struct rdma_conn_param *param)
{
	if (id->device == NULL || (param == NULL && id->id.qp == NULL && id->id.ps == RDMA_PS_TCP))
		return -EINVAL;
	if (param == NULL || id->id.ps != RDMA_PS_TCP)
		return 0;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    param->initiator_depth > id->device->max_initiator_depth)
		return -EINVAL;
	if (param->responder_resources != RDMA_MAX_RESP_RES &&
	    param->responder_resources > id->device->max_responder_resources)
		return -EINVAL;
	return 0;
}

/* A depth that the application leaves open is the most that can be. */
static void connect_depths(struct door_id *id, const struct rdma_conn_param *param, u8 most_init,
			   u8 most_resp)
{
	bool open_init = param == NULL || param->initiator_depth == RDMA_MAX_INIT_DEPTH;
	bool open_resp = param == NULL || param->responder_resources == RDMA_MAX_RESP_RES;

	id->initiator_depth = open_init ? most_init : param->initiator_depth;
	id->responder_resources = open_resp ? most_resp : param->responder_resources;
}

/* Puts the data of rdma_create_ep in front of the application's, in `room`. */
static int connect_add_data(const struct door_id *id, struct ucma_conn *conn,
			    u8 room[UCMA_PRIVATE_DATA])
{
	u32 len = (u32)id->connect_len + conn->private_data_len;

	if (id->connect_len == 0)
		return 0;
	if (len > UINT8_MAX)
		return -EINVAL;
	memcpy(room, id->connect_data, id->connect_len);
	if (conn->private_data_len > 0)
		memcpy(room + id->connect_len, conn->private_data, conn->private_data_len);
	conn->private_data = room;
	conn->private_data_len = (u8)len;
	return 0;
}

AV_EXPORT int rdma_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *conn_param)
{
	struct door_id *id = door_id(cm_id);
	u8 data[UCMA_PRIVATE_DATA];
	struct ucma_conn conn;
	bool sync = id->sync;
	int err = connect_check(id, conn_param);
	u8 len;

	if (err < 0)
		return door_result(err);
	connect_depths(id, conn_param, id->device->max_initiator_depth,
		       id->device->max_responder_resources);
	conn = connect_param(id, conn_param);
	err = connect_add_data(id, &conn, data);
	if (err < 0)
		return door_result(err);
	len = id->connect_len;
	id->connect_len = 0;
	err = ucma_connect(id->ucma, &conn);
	if (err < 0)
		id->connect_len = len;
	return id_complete(id, sync, err);
}

static int accept_prepare(struct door_id *id, const struct rdma_conn_param *param)
{
	int err = connect_check(id, param);

	if (err < 0 || (param == NULL && id->id.qp == NULL) || ucma_is_parents(id->ucma))
		return -EINVAL;
	/* what is left open is no more than the peer asked for */
	connect_depths(id, param, MIN(id->initiator_depth, id->device->max_initiator_depth),
		       MIN(id->responder_resources, id->device->max_responder_resources));
	if (id->id.qp_type == IBV_QPT_UD)
		return 0;
	return MIN(qp_to_rts(id, id->responder_resources, id->initiator_depth), 0);
}

AV_EXPORT int rdma_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *conn_param)
{
	struct door_id *id = door_id(cm_id);
	int err = accept_prepare(id, conn_param);
	bool sync = id->sync, ud = cm_id->qp_type == IBV_QPT_UD;
	struct ucma_conn conn;

	if (err < 0)
		return door_result(err);
	conn = connect_param(id, conn_param);
	err = ucma_accept(id->ucma, &conn);
	if (err < 0) {
		(void)qp_to_err(id);
		return door_result(err);
	}
	if (!ud)
		return id_complete(id, sync, 0);
	if (sync && cm_id->event != NULL)
		rdma_ack_cm_event(cm_id->event);
	if (sync)
		cm_id->event = NULL;
	return 0;
}

AV_EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		return door_result(-EINVAL);
	return door_result(ucma_accept(door_id(id)->ucma, NULL));
}

static int reject(struct rdma_cm_id *id, const void *private_data, u8 length, u8 reason)
{
	u8 len = private_data != NULL ? length : 0;

	return door_result(ucma_reject(door_id(id)->ucma, private_data, len, reason));
}

AV_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	return reject(id, private_data, private_data_len, IB_CM_REJ_CONSUMER_DEFINED);
}

/* The peer's options of a vendor are not what this side can do. */
AV_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
			      uint8_t private_data_len)
{
	return reject(id, private_data, private_data_len, IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED);
}

bool connect_answer_briefly(struct rdma_cm_id *id)
{
	return ucma_answer_briefly(door_id(id)->ucma);
}

AV_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return door_result(ucma_notify(door_id(id)->ucma, event));
}

AV_EXPORT int rdma_disconnect(struct rdma_cm_id *cm_id)
{
	struct door_id *id = door_id(cm_id);
	int err = cm_id->verbs == NULL || ucma_is_parents(id->ucma) ? -EINVAL : qp_to_err(id);
	bool sync = id->sync;

	if (err >= 0)
		err = ucma_disconnect(id->ucma);
	return id_complete(id, sync, err);
}

AV_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct door_id *l = door_id(listen);
	struct rdma_cm_event *event;
	struct ibv_qp_init_attr init;

	/* a parent's listener hears of nothing here */
	if (!l->sync || ucma_is_parents(l->ucma))
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
