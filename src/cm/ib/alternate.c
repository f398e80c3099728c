/* alternate.c: LAP and APR: another path for an established connection.
 * In: the consumer's calls, received messages    Out: messages, events
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, 12.8, 12.6.8 to 12.6.9
 */
#include <errno.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

static struct cm_msg cm_apr_for(const struct cm_id *id, enum ib_cm_apr_status status)
{
	struct cm_msg msg = cm_msg_for(id, CM_APR);

	msg.apr.local_id = be32toh(id->pub.local_id);
	msg.apr.remote_id = be32toh(id->pub.remote_id);
	msg.apr.status = (u8)status;
	return msg;
}

static int cm_lap_send(struct cm *cm, struct cm_id *id, const struct ib_sa_path_rec *path,
		       const void *private_data, u8 private_data_len) REQUIRES(&cm->lock)
{
	struct cm_msg msg;
	struct cm_av av;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_ESTABLISHED ||
	    (id->pub.lap_state != IB_CM_LAP_UNINIT && id->pub.lap_state != IB_CM_LAP_IDLE) ||
	    cm_av_from_path(id->dev, path, &av) != 0)
		return -EINVAL;
	id->alternate = av;
	id->pub.lap_state = IB_CM_LAP_SENT;
	cm_tid_renew(cm, id);
	msg = cm_msg_for(id, CM_LAP);
	msg.lap.local_id = be32toh(id->pub.local_id);
	msg.lap.remote_id = be32toh(id->pub.remote_id);
	msg.lap.remote_qpn = id->remote_qpn;
	msg.lap.remote_response_timeout = id->remote_response_timeout;
	cm_path_to_wire(path, id->dev->ack_delay, &msg.lap.alternate);
	cm_msg_fill_private(&msg, private_data, private_data_len);
	cm_request_start(cm, id, &msg, id->timeout_ns, id->max_cm_retries);
	return 0;
}

int ib_send_cm_lap(struct ib_cm_id *cm_id, struct ib_sa_path_rec *alternate_path,
		   const void *private_data, u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	if (alternate_path == NULL || private_data_len > IB_CM_LAP_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	err = cm_lap_send(cm, id, alternate_path, private_data, private_data_len);
	cm_leave(cm);
	return err;
}

/* The sender is told itself, and the consumer is not asked. */
static void cm_lap_refuse(struct cm *cm, struct cm_id *id, const struct cm_received *r)
	REQUIRES(&cm->lock)
{
	struct cm_msg msg;

	cm_tally(cm, CM_DROP_SOURCE);
	id->tid = r->msg->tid;
	id->pub.lap_state = IB_CM_LAP_IDLE;
	msg = cm_apr_for(id, IB_CM_APR_INVALID_GID);
	cm_reply_send(cm, id, &msg);
}

static void cm_lap_duplicate(struct cm *cm, struct cm_id *id, const struct cm_received *r)
	REQUIRES(&cm->lock)
{
	cm_tally(cm, CM_DUPLICATES);
	if (id->pub.lap_state == IB_CM_MRA_LAP_SENT)
		cm_reply_repeat(cm, id, CM_MRA);
	else if (id->pub.lap_state == IB_CM_LAP_IDLE && r->msg->tid == id->tid)
		cm_reply_repeat(cm, id, CM_APR);
}

void cm_receive_lap(struct cm *cm, const struct cm_received *r)
{
	const struct cm_lap_msg *m = &r->msg->lap;
	struct cm_id *id = cm_id_find(cm, r, m->remote_id, m->local_id);
	struct cm_req_msg as_req;
	struct cm_note *note;

	if (id == NULL || id->pub.state != IB_CM_ESTABLISHED || m->remote_qpn != id->local_qpn) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		return;
	}
	if ((id->pub.lap_state != IB_CM_LAP_UNINIT && id->pub.lap_state != IB_CM_LAP_IDLE) ||
	    (id->reply_attr == CM_APR && r->msg->tid == id->tid)) {
		cm_lap_duplicate(cm, id, r);
		return;
	}
	if (!cm_alternate_is_peers(cm, r, &m->alternate)) {
		cm_lap_refuse(cm, id, r);
		return;
	}
	note = cm_note_of(cm, id, IB_CM_LAP_RECEIVED, r->msg);
	if (note == NULL)
		return;
	as_req = (struct cm_req_msg){ .pkey = id->pkey, .path_mtu = id->path_mtu };
	cm_path_from_wire(&m->alternate, &as_req, &r->a->back, &note->alternate);
	id->proposed.valid = false;
	(void)cm_av_from_path(id->dev, &note->alternate, &id->proposed); /* the consumer judges */
	id->pub.lap_state = IB_CM_LAP_RCVD;
	id->tid = r->msg->tid;
	note->event.param.lap_rcvd.alternate_path = &note->alternate;
	cm_note_post(cm, id, note);
}

int ib_send_cm_apr(struct ib_cm_id *cm_id, enum ib_cm_apr_status status, void *info, u8 info_length,
		   const void *private_data, u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	struct cm_msg msg;
	int err = 0;

	if (info_length > IB_CM_APR_INFO_LENGTH || (info_length > 0 && info == NULL) ||
	    private_data_len > IB_CM_APR_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	if (id->dev == NULL) {
		err = -ENODEV;
	} else if (id->pub.state != IB_CM_ESTABLISHED ||
		   (id->pub.lap_state != IB_CM_LAP_RCVD &&
		    id->pub.lap_state != IB_CM_MRA_LAP_SENT)) {
		err = -EINVAL;
	} else {
		id->pub.lap_state = IB_CM_LAP_IDLE;
		if (status == IB_CM_APR_SUCCESS)
			id->alternate = id->proposed;
		msg = cm_apr_for(id, status);
		msg.apr.info_length = info_length;
		if (info_length > 0)
			memcpy(msg.apr.info, info, info_length);
		cm_msg_fill_private(&msg, private_data, private_data_len);
		cm_reply_send(cm, id, &msg);
	}
	cm_leave(cm);
	return err;
}

void cm_receive_apr(struct cm *cm, const struct cm_received *r)
{
	const struct cm_apr_msg *m = &r->msg->apr;
	struct cm_id *id = cm_id_find(cm, r, m->remote_id, m->local_id);
	struct cm_note *note;

	if (id == NULL || id->pub.state != IB_CM_ESTABLISHED || r->msg->tid != id->tid ||
	    (id->pub.lap_state != IB_CM_LAP_SENT && id->pub.lap_state != IB_CM_MRA_LAP_RCVD)) {
		cm_tally(cm, id == NULL ? CM_DROP_UNKNOWN : CM_DUPLICATES);
		return;
	}
	cm_request_end(cm, id);
	id->pub.lap_state = IB_CM_LAP_IDLE;
	if (m->status != IB_CM_APR_SUCCESS)
		id->alternate.valid = false;
	note = cm_note_of(cm, id, IB_CM_APR_RECEIVED, r->msg);
	if (note == NULL)
		return;
	memcpy(note->info, m->info, sizeof(m->info));
	note->event.param.apr_rcvd = (struct ib_cm_apr_event_param){
		.ap_status = (enum ib_cm_apr_status)m->status,
		.apr_info = note->info,
		.info_len = MIN(m->info_length, (u8)IB_CM_APR_INFO_LENGTH),
	};
	cm_note_post(cm, id, note);
}
