/* connect.c: connections, from the REQ to timewait, and the datagram ids' question for a queue
 * pair.
 * In:    calls of consumers, events of the IB CM     Out: calls of the IB CM, events to consumers
 * Runs:  consumers' threads, the IB CM's             Locks: cma.lock
 */
#include <errno.h>
#include <rdma/ib_cache.h>
#include <string.h>

#include "cm/ib/cm.h"
#include "cm/rdma/cma_priv.h"

/* ---- private data ---------------------------------------------------------------------------- */

/* Puts the header and the consumer's data together; the length, or -EINVAL: more than `size`. */
static int connect_data(const struct cma_id *id, const void *data, u8 len, u8 *out, u32 size)
{
	u8 header = cma_header_size(id);

	if (header + (u32)len > size || (len > 0 && data == NULL))
		return -EINVAL;
	if (header > 0)
		cma_header_write(out, &id->id.route.addr);
	if (len > 0)
		memcpy(out + header, data, len);
	return header + len;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Makes the connection's id of the IB CM. NULL: *err says why. */
static struct ib_cm_id *connect_open(struct cma_id *id, struct ib_device *device, int *err)
{
	struct ib_cm_id *ib = ib_create_cm_id(device, cma_ib_event, id);

	if (IS_ERR(ib)) {
		*err = (int)PTR_ERR(ib);
		return NULL;
	}
	lock_acquire(&cma.lock);
	id->ib = ib;
	lock_release(&cma.lock);
	return ib;
}

/* Takes it back after a failure, unless the device's end has taken it. */
static void connect_close(struct cma_id *id)
{
	struct ib_cm_id *ib;

	lock_acquire(&cma.lock);
	ib = id->ib;
	id->ib = NULL;
	lock_release(&cma.lock);
	if (ib != NULL)
		ib_destroy_cm_id(ib);
}

static int connect_request(struct cma_id *id, struct ib_device *device,
			   const struct rdma_conn_param *param)
{
	u8 data[IB_CM_REQ_PRIVATE_DATA_SIZE];
	int len = connect_data(id, param->private_data, param->private_data_len, data,
			       sizeof(data));
	struct ib_cm_req_param req = {
		.primary_path = &id->path[0],
		.alternate_path = id->id.route.num_paths == 2 ? &id->path[1] : NULL,
		.service_id = rdma_get_service_id(&id->id, cma_addr(&id->id.route.addr.dst_addr)),
		.qp_num = id->qp_num,
		.qp_type = id->id.qp_type,
		.starting_psn = id->seq_num,
		.private_data = data,
		.private_data_len = (u8)MAX(len, 0),
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
		.remote_cm_response_timeout = CMA_RESPONSE_TIMEOUT,
		.flow_control = param->flow_control,
		.local_cm_response_timeout = CMA_RESPONSE_TIMEOUT,
		.retry_count = MIN(param->retry_count, (u8)7),
		.rnr_retry_count = MIN(param->rnr_retry_count, (u8)7),
		.max_cm_retries = CMA_MAX_RETRIES,
		.srq = id->srq,
	};
	struct ib_cm_id *ib = len < 0 ? NULL : connect_open(id, device, &len);

	return ib == NULL ? len : ib_send_cm_req(ib, &req);
}

static int connect_ask(struct cma_id *id, struct ib_device *device,
		       const struct rdma_conn_param *param)
{
	u8 data[IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE];
	int len = connect_data(id, param->private_data, param->private_data_len, data,
			       sizeof(data));
	struct ib_cm_sidr_req_param req = {
		.path = &id->path[0],
		.service_id = rdma_get_service_id(&id->id, cma_addr(&id->id.route.addr.dst_addr)),
		.timeout_ms = CMA_SIDR_TIMEOUT_MS,
		.private_data = data,
		.private_data_len = (u8)MAX(len, 0),
		.max_cm_retries = CMA_MAX_RETRIES,
	};
	struct ib_cm_id *ib = len < 0 ? NULL : connect_open(id, device, &len);

	return ib == NULL ? len : ib_send_cm_sidr_req(ib, &req);
}

/* The queue pair that is connected: the id's, or the consumer's own. */
static void connect_take_qp(struct cma_id *id, const struct rdma_conn_param *param)
{
	id->qp_num = id->id.qp != NULL ? id->id.qp->qp_num : param->qp_num & 0xffffff;
	id->srq = id->id.qp != NULL ? id->id.qp->srq != NULL : param->srq != 0;
}

int rdma_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *conn_param)
{
	static const struct rdma_conn_param none;
	const struct rdma_conn_param *param = conn_param != NULL ? conn_param : &none;
	struct cma_id *id = cma_id(cm_id);
	struct cma_device *d;
	int err = -ENODEV;

	if (cm_id == NULL)
		return -EINVAL;
	if (conn_param == NULL && !cma_is_datagram(cm_id))
		return -EINVAL;
	if (!cma_move(id, CMA_ROUTE_RESOLVED, CMA_CONNECT))
		return -EINVAL;
	connect_take_qp(id, param);
	d = cma_device_hold(id);
	if (d != NULL)
		err = cma_is_datagram(cm_id) ? connect_ask(id, d->device, param)
					     : connect_request(id, d->device, param);
	cma_device_release(d);
	if (err < 0) {
		connect_close(id);
		cma_move(id, CMA_CONNECT, CMA_ROUTE_RESOLVED);
	}
	return err;
}

/* ---- answering ------------------------------------------------------------------------------- */

static int accept_reply(struct cma_id *id, struct ib_cm_id *ib, struct rdma_conn_param *param)
{
	struct ib_cm_rep_param rep = {
		.qp_num = id->qp_num,
		.starting_psn = id->seq_num,
		.private_data = param->private_data,
		.private_data_len = param->private_data_len,
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
		.flow_control = param->flow_control,
		.rnr_retry_count = MIN(param->rnr_retry_count, (u8)7),
		.srq = id->srq,
	};
	int err = cma_qp_to_rts(id, param);

	return err < 0 ? err : ib_send_cm_rep(ib, &rep);
}

/* After a REP: the connection stands. */
static int accept_complete(struct cma_id *id, struct ib_cm_id *ib)
{
	int err = cma_qp_to_rts(id, NULL);

	return err < 0 ? err : ib_send_cm_rtu(ib, NULL, 0);
}

static int accept_datagram(struct cma_id *id, struct ib_cm_id *ib, enum ib_cm_sidr_status status,
			   const void *data, u8 len)
{
	struct ib_cm_sidr_rep_param rep = {
		.status = status,
		.private_data = data,
		.private_data_len = len,
	};

	if (status == IB_SIDR_SUCCESS) {
		rep.qp_num = id->qp_num;
		rep.qkey = cma_qkey(id);
	}
	return ib_send_cm_sidr_rep(ib, &rep);
}

static int accept_refuse(struct cma_id *id, struct ib_cm_id *ib, const void *data, u8 len,
			 u8 reason)
{
	if (cma_is_datagram(&id->id))
		return accept_datagram(id, ib, IB_SIDR_REJECT, data, len);
	return ib_send_cm_rej(ib, (enum ib_cm_rej_reason)reason, NULL, 0, data, len);
}

static int accept_answer(struct cma_id *id, struct ib_cm_id *ib, struct rdma_conn_param *conn_param)
{
	int err;

	if (conn_param != NULL)
		connect_take_qp(id, conn_param);
	if (cma_is_datagram(&id->id))
		err = accept_datagram(id, ib, IB_SIDR_SUCCESS,
				      conn_param != NULL ? conn_param->private_data : NULL,
				      conn_param != NULL ? conn_param->private_data_len : 0);
	else if (conn_param != NULL)
		err = accept_reply(id, ib, conn_param);
	else
		err = accept_complete(id, ib);
	if (err < 0) {
		cma_qp_to_err(id);
		(void)accept_refuse(id, ib, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED);
	}
	return err;
}

int rdma_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *conn_param)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_cm_id *ib;
	struct cma_device *d;
	int err = -EINVAL;

	if (cm_id == NULL)
		return -EINVAL;
	d = cma_device_hold_ib(id, &ib);
	if (ib != NULL && cma_is_in(id, CMA_CONNECT))
		err = accept_answer(id, ib, conn_param);
	cma_device_release(d);
	return err;
}

void cma_flush(struct rdma_cm_id *cm_id)
{
	struct ib_cm_id *ib;
	struct cma_device *d = cma_device_hold_ib(cma_id(cm_id), &ib);

	if (ib != NULL)
		cm_flush(ib);
	cma_device_release(d);
}

bool cma_answer_briefly(struct rdma_cm_id *cm_id)
{
	struct ib_cm_id *ib;
	struct cma_device *d = cma_device_hold_ib(cma_id(cm_id), &ib);
	bool brief = ib != NULL && !cma_is_datagram(cm_id) && cm_answer_briefly(ib);

	cma_device_release(d);
	return brief;
}

int rdma_reject(struct rdma_cm_id *cm_id, const void *private_data, u8 private_data_len, u8 reason)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_cm_id *ib;
	struct cma_device *d;
	int err = -EINVAL;

	if (cm_id == NULL)
		return -EINVAL;
	d = cma_device_hold_ib(id, &ib);
	if (ib != NULL)
		err = accept_refuse(id, ib, private_data, private_data_len, reason);
	cma_device_release(d);
	return err;
}

int rdma_notify(struct rdma_cm_id *cm_id, enum ib_event_type event)
{
	struct cma_device *d;
	struct ib_cm_id *ib;
	int err;

	if (cm_id == NULL)
		return -EINVAL;
	d = cma_device_hold_ib(cma_id(cm_id), &ib);
	err = ib != NULL ? ib_cm_notify(ib, event) : -EINVAL;
	cma_device_release(d);
	return err;
}

int rdma_disconnect(struct rdma_cm_id *cm_id)
{
	struct cma_id *id = cma_id(cm_id);
	struct ib_cm_id *ib;
	struct cma_device *d;
	int err;

	if (cm_id == NULL)
		return -EINVAL;
	d = cma_device_hold_ib(id, &ib);
	/* Linux's id has one of the IB CM while it listens on one device */
	err = ib != NULL || (d != NULL && cma_is_in(id, CMA_LISTEN)) ? 0 : -EINVAL;
	if (ib != NULL) {
		cma_qp_to_err(id);
		/* the peer has left already: then this is the answer; without a connection
		 * neither is sent */
		if (ib_send_cm_dreq(ib, NULL, 0) < 0)
			(void)ib_send_cm_drep(ib, NULL, 0);
	}
	cma_device_release(d);
	return err;
}

/* ---- events of the IB CM --------------------------------------------------------------------- */

static void cma_event_take_rep(const struct ib_cm_event *in, struct rdma_cm_event *out)
{
	const struct ib_cm_rep_event_param *rep = &in->param.rep_rcvd;

	out->param.conn = (struct rdma_conn_param){
		.private_data = in->private_data,
		.private_data_len = IB_CM_REP_PRIVATE_DATA_SIZE,
		.responder_resources = rep->responder_resources,
		.initiator_depth = rep->initiator_depth,
		.flow_control = rep->flow_control,
		.rnr_retry_count = rep->rnr_retry_count,
		.srq = rep->srq,
		.qp_num = rep->remote_qpn,
	};
}

/* The peer accepts. With a queue pair of the CM's own the connection is completed at once. */
static void cma_event_rep(struct cma_id *id, struct ib_cm_id *ib, const struct ib_cm_event *in,
		      struct rdma_cm_event *out)
{
	cma_event_take_rep(in, out);
	out->event = RDMA_CM_EVENT_CONNECT_RESPONSE;
	if (id->id.qp == NULL) {
		/* the consumer may take its time, as with a request: the peer repeats its REP */
		(void)ib_send_cm_mra(ib, IB_CM_MRA_FLAG_DELAY | CMA_MRA_TIMEOUT, NULL, 0);
		return;
	}
	out->status = accept_complete(id, ib);
	out->event = out->status == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_ERROR;
	if (out->status == 0)
		return;
	cma_qp_to_err(id);
	(void)ib_send_cm_rej(ib, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0);
}

static void cma_event_rej(struct cma_id *id, const struct ib_cm_event *in,
			  struct rdma_cm_event *out)
{
	cma_qp_to_err(id);
	out->event = RDMA_CM_EVENT_REJECTED;
	out->status = (int)in->param.rej_rcvd.reason;
	out->param.conn.private_data = in->private_data;
	out->param.conn.private_data_len = IB_CM_REJ_PRIVATE_DATA_SIZE;
}

/* The way to the peer's datagram queue pair. */
static void cma_event_ah(struct cma_id *id, struct ib_ah_attr *out)
{
	struct ib_sa_path_rec *path = &id->path[0];
	struct cma_device *d = cma_device_hold(id);
	union ib_gid sgid = path->sgid;
	u16 index = 0;
	u8 port = 0;

	*out = (struct ib_ah_attr){
		.grh = { .dgid = path->dgid,
			 .flow_label = be32toh(path->flow_label) & 0xfffff,
			 .hop_limit = path->hop_limit,
			 .traffic_class = path->traffic_class },
		.sl = path->sl,
		.static_rate = path->rate,
		.ah_flags = IB_AH_GRH,
		.port_num = id->id.port_num,
	};
	if (d != NULL && d->infiniband)
		(void)ib_init_ah_from_path(d->device, id->id.port_num, path, out);
	else if (d != NULL && ib_find_cached_gid(d->device, &sgid, &port, &index) == 0)
		out->grh.sgid_index = (u8)index;
	cma_device_release(d);
}

static void cma_event_sidr_rep(struct cma_id *id, const struct ib_cm_event *in,
			   struct rdma_cm_event *out)
{
	const struct ib_cm_sidr_rep_event_param *rep = &in->param.sidr_rep_rcvd;

	out->param.ud.private_data = in->private_data;
	out->param.ud.private_data_len = IB_CM_SIDR_REP_PRIVATE_DATA_SIZE;
	out->event = RDMA_CM_EVENT_UNREACHABLE;
	out->status = (int)rep->status;
	if (rep->status != IB_SIDR_SUCCESS)
		return;
	id->qkey = rep->qkey;
	cma_event_ah(id, &out->param.ud.ah_attr);
	out->param.ud.qp_num = rep->qpn;
	out->param.ud.qkey = rep->qkey;
	out->event = RDMA_CM_EVENT_ESTABLISHED;
}

/* What an event of the IB CM means to the consumer. False: nothing. Runs inside a turn. */
static bool cma_event_convert(struct cma_id *id, struct ib_cm_id *ib, const struct ib_cm_event *in,
			  struct rdma_cm_event *out)
{
	switch (in->event) {
	case IB_CM_REQ_ERROR:
	case IB_CM_REP_ERROR:
	case IB_CM_SIDR_REQ_ERROR:
		out->event = RDMA_CM_EVENT_UNREACHABLE;
		out->status = -ETIMEDOUT;
		return true;
	case IB_CM_REP_RECEIVED:
		cma_event_rep(id, ib, in, out);
		return true;
	case IB_CM_RTU_RECEIVED:
	case IB_CM_USER_ESTABLISHED:
		id->awaits_rtu = false;
		out->event = RDMA_CM_EVENT_ESTABLISHED;
		return true;
	case IB_CM_DREQ_ERROR:
		out->status = -ETIMEDOUT; /* of the same event */
		/* fall through */
	case IB_CM_DREQ_RECEIVED:
	case IB_CM_DREP_RECEIVED:
		out->event = RDMA_CM_EVENT_DISCONNECTED;
		return cma_move(id, CMA_CONNECT, CMA_DISCONNECT);
	case IB_CM_TIMEWAIT_EXIT:
		out->event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
		return true;
	case IB_CM_REJ_RECEIVED:
		cma_event_rej(id, in, out);
		return true;
	case IB_CM_SIDR_REP_RECEIVED:
		cma_event_sidr_rep(id, in, out);
		return true;
	default:
		return false; /* MRA: the IB CM waits longer; LAP, APR: nobody here asks */
	}
}

/* Only a peer that is connected sends a DREQ: its RTU was lost, for example because its process
 * ended before the RTU left. A consumer that waits for ESTABLISHED would take DISCONNECTED for it,
 * and then wait for DISCONNECTED until timewait ends. Inside a turn. What the handler returns. */
static int cma_event_rtu_lost(struct cma_id *id, const struct ib_cm_event *in)
{
	struct rdma_cm_event out = { .event = RDMA_CM_EVENT_ESTABLISHED };

	if (in->event != IB_CM_DREQ_RECEIVED || !id->awaits_rtu)
		return 0;
	id->awaits_rtu = false;
	return cma_tell(id, &out);
}

int cma_ib_event(struct ib_cm_id *ib, struct ib_cm_event *event)
{
	struct cma_id *id = ib->context;
	struct rdma_cm_event out = { .status = 0 };
	bool over = event->event == IB_CM_TIMEWAIT_EXIT;
	int destroy;

	if (!cma_enter(id, over ? CMA_DISCONNECT : CMA_CONNECT))
		return 0;
	destroy = cma_event_rtu_lost(id, event);
	if (destroy == 0 && cma_event_convert(id, ib, event, &out))
		destroy = cma_tell(id, &out);
	if (destroy != 0)
		cma_end_in_handler(id);
	else
		cma_leave(id);
	return destroy;
}
