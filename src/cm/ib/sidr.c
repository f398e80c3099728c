/* sidr.c: SIDR_REQ and SIDR_REP: which datagram queue pair serves a service ID.
 * In: the consumer's calls, received messages    Out: messages, events
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, 12.11
 */
#include <errno.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

/* ---- asking ---------------------------------------------------------------------------------- */

static int cm_sidr_ask(struct cm *cm, struct cm_id *id, const struct ib_cm_sidr_req_param *p)
	REQUIRES(&cm->lock)
{
	struct cm_msg msg;
	struct cm_av av;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_IDLE || cm_av_from_path(id->dev, p->path, &av) != 0)
		return -EINVAL;
	id->av = av;
	id->primary_path = *p->path;
	id->pub.service_id = p->service_id;
	cm_state_set(cm, id, IB_CM_SIDR_REQ_SENT);
	cm_tid_renew(cm, id);
	msg = cm_msg_for(id, CM_SIDR_REQ);
	msg.sidr_req.request_id = be32toh(id->pub.local_id);
	msg.sidr_req.pkey = be16toh(p->path->pkey);
	msg.sidr_req.service_id = be64toh(p->service_id);
	cm_msg_fill_private(&msg, p->private_data, p->private_data_len);
	cm_request_start(cm, id, &msg, (u64)p->timeout_ms * NS_PER_MS, MIN(p->max_cm_retries, 15));
	return 0;
}

int ib_send_cm_sidr_req(struct ib_cm_id *cm_id, struct ib_cm_sidr_req_param *param)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	if (param->path == NULL || param->timeout_ms <= 0 ||
	    param->private_data_len > IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE ||
	    (param->private_data_len > 0 && param->private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	err = cm_sidr_ask(cm, id, param);
	cm_leave(cm);
	return err;
}

void cm_receive_sidr_rep(struct cm *cm, const struct cm_received *r)
{
	const struct cm_sidr_rep_msg *m = &r->msg->sidr_rep;
	struct cm_id *id = cm_id_find(cm, r, m->request_id, 0);
	struct cm_note *note;

	if (id == NULL || id->pub.state != IB_CM_SIDR_REQ_SENT || r->msg->tid != id->tid) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		return;
	}
	if ((m->status == IB_SIDR_UNSUPPORTED || m->status == IB_SIDR_NO_QP) &&
	    cm_request_again(cm, id, r))
		return;
	note = cm_note_of(cm, id, IB_CM_SIDR_REP_RECEIVED, r->msg);
	cm_id_reset(cm, id);
	if (note == NULL)
		return;
	memcpy(note->info, m->info, sizeof(m->info));
	note->event.param.sidr_rep_rcvd = (struct ib_cm_sidr_rep_event_param){
		.status = (enum ib_cm_sidr_status)m->status,
		.qkey = m->qkey,
		.qpn = m->qpn,
		.info = note->info,
		.info_len = MIN(m->info_length, (u8)IB_CM_SIDR_REP_INFO_LENGTH),
	};
	cm_note_post(cm, id, note);
}

/* ---- answering ------------------------------------------------------------------------------- */

static void cm_sidr_rep_format(const struct ib_cm_sidr_rep_param *p, struct cm_msg *msg)
{
	msg->attr = CM_SIDR_REP;
	msg->sidr_rep.status = (u8)p->status;
	if (p->status == IB_SIDR_SUCCESS) {
		msg->sidr_rep.qpn = p->qp_num;
		msg->sidr_rep.qkey = p->qkey;
	}
	msg->sidr_rep.info_length = p->info_length;
	if (p->info_length > 0)
		memcpy(msg->sidr_rep.info, p->info, p->info_length);
	cm_msg_fill_private(msg, p->private_data, p->private_data_len);
}

struct cm_msg cm_sidr_rep_for(const struct cm_id *id, const struct ib_cm_sidr_rep_param *param)
{
	struct cm_msg msg = cm_msg_for(id, CM_SIDR_REP);

	msg.sidr_rep.request_id = be32toh(id->pub.remote_id);
	msg.sidr_rep.service_id = be64toh(id->pub.service_id);
	cm_sidr_rep_format(param, &msg);
	return msg;
}

int cm_sidr_answer(struct cm *cm, struct cm_id *id, const struct ib_cm_sidr_rep_param *param)
{
	struct cm_msg msg;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_SIDR_REQ_RCVD)
		return -EINVAL;
	msg = cm_sidr_rep_for(id, param);
	cm_queue_msg(cm, id->dev, &id->av.route, &msg);
	cm_id_reset(cm, id);
	return 0;
}

int ib_send_cm_sidr_rep(struct ib_cm_id *cm_id, struct ib_cm_sidr_rep_param *param)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	if (param->info_length > IB_CM_SIDR_REP_INFO_LENGTH ||
	    (param->info_length > 0 && param->info == NULL) ||
	    param->private_data_len > IB_CM_SIDR_REP_PRIVATE_DATA_SIZE ||
	    (param->private_data_len > 0 && param->private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	err = cm_sidr_answer(cm, id, param);
	cm_leave(cm);
	return err;
}

/* ---- receiving a request --------------------------------------------------------------------- */

static void cm_sidr_refuse_stranger(struct cm *cm, const struct cm_received *r,
				    enum ib_cm_sidr_status status) REQUIRES(&cm->lock)
{
	struct ib_cm_sidr_rep_param refusal = { .status = status };
	struct cm_msg msg;

	memset(&msg, 0, sizeof(msg));
	msg.tid = r->msg->tid;
	msg.sidr_rep.request_id = r->msg->sidr_req.request_id;
	msg.sidr_rep.service_id = r->msg->sidr_req.service_id;
	cm_sidr_rep_format(&refusal, &msg);
	cm_queue_msg(cm, r->dev, &r->a->back, &msg);
}

/* Where a request comes from, in one number: a port's GID, and its LID where there is no GRH. */
static u64 cm_sidr_source(const struct cm_arrival *a)
{
	u64 half[2];

	memcpy(half, a->sgid.raw, sizeof(half));
	return half[0] * 0x9e3779b97f4a7c15 ^ half[1] ^ (u64)a->back.ah.dlid << 48;
}

/* A request that waits for its consumer already. An id of the sender may have asked before. */
static bool cm_sidr_is_known(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock)
{
	struct cm_key *key = cm_table_find(&cm->tables[CM_BY_SIDR], cm_sidr_source(r->a),
					   r->msg->sidr_req.request_id);

	while (key != NULL && key->id->tid != r->msg->tid)
		key = cm_table_next(key);
	return key != NULL;
}

static void cm_sidr_take(struct cm *cm, struct cm_id *listener, struct cm_id *id,
			 struct cm_note *note, const struct cm_received *r) REQUIRES(&cm->lock)
{
	const struct cm_sidr_req_msg *m = &r->msg->sidr_req;

	id->av.route = r->a->back;
	id->tid = r->msg->tid;
	id->pub.remote_id = htobe32(m->request_id);
	id->pub.service_id = htobe64(m->service_id);
	cm_state_set(cm, id, IB_CM_SIDR_REQ_RCVD);
	cm_id_link(cm, id, CM_BY_SIDR, cm_sidr_source(r->a), m->request_id);
	cm_child_new(cm, listener, id);
	note->event.param.sidr_req_rcvd = (struct ib_cm_sidr_req_event_param){
		.listen_id = &listener->pub,
		.service_id = htobe64(m->service_id),
		.port = r->a->back.ah.port_num,
		.pkey = m->pkey,
		.dgid = r->a->dgid,
		.sgid = r->a->sgid,
	};
	cm_note_post(cm, id, note);
}

void cm_receive_sidr_req(struct cm *cm, const struct cm_received *r)
{
	const struct cm_sidr_req_msg *m = &r->msg->sidr_req;
	struct cm_id *listener, *id;
	struct cm_note *note;

	if (cm_sidr_is_known(cm, r)) {
		cm_tally(cm, CM_DUPLICATES);
		return;
	}
	listener = cm_listener_find(cm, r->dev, m->service_id, m->private_data);
	if (listener == NULL) {
		cm_sidr_refuse_stranger(cm, r, IB_SIDR_UNSUPPORTED);
		return;
	}
	if (cm->backlog >= cm->backlog_max) {
		cm_tally(cm, CM_DROP_BACKLOG);
		return;
	}
	id = cm_id_create(cm, r->dev, listener->pub.cm_handler, listener->pub.context);
	note = id != NULL ? cm_note_of(cm, id, IB_CM_SIDR_REQ_RECEIVED, r->msg) : NULL;
	if (note == NULL) {
		cm_tally(cm, CM_DROP_MEMORY);
		if (id != NULL)
			cm_id_abandon(cm, id);
		return;
	}
	cm_sidr_take(cm, listener, id, note, r);
}
