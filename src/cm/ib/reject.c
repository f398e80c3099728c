/* reject.c: REJ and MRA: the answers that make no connection.
 * In: the consumer's calls, received messages    Out: messages, events
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, 12.6.6, 12.6.7, 12.9.8
 */
#include <errno.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

_Static_assert((int)CM_REASON_NO_RESOURCES == (int)IB_CM_REJ_NO_RESOURCES &&
		       (int)CM_SIDR_NO_QP == (int)IB_SIDR_NO_QP &&
		       (int)CM_REASON_UNKNOWN_ID == (int)IB_CM_REJ_INVALID_COMM_ID &&
		       (int)CM_REASON_UNKNOWN_SERVICE == (int)IB_CM_REJ_INVALID_SERVICE_ID &&
		       (int)CM_APR_UNKNOWN_ID == (int)IB_CM_APR_INVALID_COMM_ID &&
		       (int)CM_SIDR_UNKNOWN_SERVICE == (int)IB_SIDR_UNSUPPORTED,
	       "the values that consumers see are those of the wire");

/* ---- REJ ------------------------------------------------------------------------------------- */

/* The communication IDs of a message's sender and receiver lie first in all but REQ, which has one
 * only. */
void cm_reject_stranger(struct cm *cm, struct cm_device *dev, const struct cm_arrival *a,
			const struct cm_msg *to, enum ib_cm_rej_reason reason, const void *ari,
			u8 ari_length)
{
	struct cm_msg msg;

	memset(&msg, 0, sizeof(msg));
	msg.attr = CM_REJ;
	msg.tid = to->tid;
	msg.rej.remote_id = to->attr == CM_REQ ? to->req.local_id : to->rep.local_id;
	msg.rej.local_id = to->attr == CM_REQ ? 0 : to->rep.remote_id;
	msg.rej.about = to->attr == CM_REQ ? CM_ABOUT_REQ : CM_ABOUT_REP;
	msg.rej.reason = (u16)reason;
	msg.rej.ari_length = ari_length;
	if (ari_length > 0)
		memcpy(msg.rej.ari, ari, ari_length);
	cm_queue_msg(cm, dev, &a->back, &msg);
}

struct cm_msg cm_rej_for(const struct cm_id *id, enum ib_cm_rej_reason reason, const void *ari,
			 u8 ari_length)
{
	struct cm_msg msg = cm_msg_for(id, CM_REJ);

	msg.rej.local_id = be32toh(id->pub.local_id);
	msg.rej.remote_id = be32toh(id->pub.remote_id);
	msg.rej.reason = (u16)reason;
	msg.rej.ari_length = ari_length;
	if (ari_length > 0)
		memcpy(msg.rej.ari, ari, ari_length);
	switch (id->pub.state) {
	case IB_CM_REQ_RCVD:
		msg.rej.local_id = 0; /* the peer has never seen it */
		msg.rej.about = CM_ABOUT_REQ;
		break;
	case IB_CM_MRA_REQ_SENT:
		msg.rej.about = CM_ABOUT_REQ;
		break;
	case IB_CM_REP_RCVD:
	case IB_CM_MRA_REP_SENT:
		msg.rej.about = CM_ABOUT_REP;
		break;
	default:
		msg.rej.about = CM_ABOUT_OTHER;
	}
	return msg;
}

void cm_reject_for_timeout(struct cm *cm, struct cm_id *id)
{
	u64 guid = id->dev->ib->node_guid;
	struct cm_msg msg = cm_rej_for(id, IB_CM_REJ_TIMEOUT, &guid, sizeof(guid));

	cm_queue_msg(cm, id->dev, &id->av.route, &msg);
}

int cm_reject(struct cm *cm, struct cm_id *id, enum ib_cm_rej_reason reason, const void *ari,
	      u8 ari_length, const void *private_data, u8 private_data_len)
{
	struct cm_msg msg;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state < IB_CM_REQ_SENT || id->pub.state > IB_CM_MRA_REP_RCVD)
		return -EINVAL;
	msg = cm_rej_for(id, reason, ari, ari_length);
	cm_msg_fill_private(&msg, private_data, private_data_len);
	cm_queue_msg(cm, id->dev, &id->av.route, &msg);
	/* once a REP is out the peer may have sent to the queue pair */
	if (id->pub.state == IB_CM_REP_SENT || id->pub.state == IB_CM_MRA_REP_RCVD)
		cm_timewait_enter(cm, id);
	else
		cm_id_reset(cm, id);
	return 0;
}

int ib_send_cm_rej(struct ib_cm_id *cm_id, enum ib_cm_rej_reason reason, void *ari, u8 ari_length,
		   const void *private_data, u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	if (ari_length > IB_CM_REJ_ARI_LENGTH || (ari_length > 0 && ari == NULL) ||
	    private_data_len > IB_CM_REJ_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	err = cm_reject(cm, id, reason, ari, ari_length, private_data, private_data_len);
	cm_leave(cm);
	return err;
}

/* The id whose REQ waits for this answer. It may have sent others before; and of a REQ that came
 * twice one may have been refused, and the other accepted. */
static struct cm_id *cm_asker_find(struct cm *cm, const struct cm_received *r, u32 local_id)
	REQUIRES(&cm->lock)
{
	struct cm_id *id = cm_id_find(cm, r, local_id, 0);

	if (id == NULL || id->tid != r->msg->tid ||
	    (id->pub.state != IB_CM_REQ_SENT && id->pub.state != IB_CM_MRA_REQ_RCVD))
		return NULL;
	return id;
}

/* A REJ for a timeout names its sender's end of the connection by GUID, for the sender may not know
 * ours. */
static struct cm_id *cm_rej_find_by_guid(struct cm *cm, const struct cm_received *r)
	REQUIRES(&cm->lock)
{
	const struct cm_rej_msg *m = &r->msg->rej;
	struct cm_id *id;
	u64 guid;

	memcpy(&guid, m->ari, sizeof(guid));
	id = cm_id_find_of_port(cm, r, CM_BY_REMOTE, be64toh(guid), m->local_id);
	return id != NULL && id->dev != NULL && id->req_tid == r->msg->tid ? id : NULL;
}

/* Whom a REJ is for. */
static struct cm_id *cm_rej_find(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock)
{
	const struct cm_rej_msg *m = &r->msg->rej;
	struct cm_id *id;

	if (m->reason == IB_CM_REJ_TIMEOUT && m->ari_length >= sizeof(u64))
		return cm_rej_find_by_guid(cm, r);
	if (m->about == CM_ABOUT_REQ || m->local_id == 0) /* 0: its sender has no id for it */
		return cm_asker_find(cm, r, m->remote_id);
	id = cm_id_find(cm, r, m->remote_id, m->local_id);
	/* else it withdraws a REP that it has overtaken */
	return id != NULL ? id : cm_asker_find(cm, r, m->remote_id);
}

/* What the id becomes. False: a REJ means nothing in its state. */
static bool cm_rej_take(struct cm *cm, struct cm_id *id, const struct cm_rej_msg *m)
	REQUIRES(&cm->lock)
{
	switch (id->pub.state) {
	case IB_CM_REQ_SENT:
	case IB_CM_MRA_REQ_RCVD:
		/* of two peers the later one does not wait for the earlier one yet */
		if (id->peer_to_peer && m->reason == IB_CM_REJ_INVALID_SERVICE_ID)
			return false;
		/* fall through */
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
	case IB_CM_REQ_RCVD:
	case IB_CM_MRA_REQ_SENT:
		if (m->reason == IB_CM_REJ_STALE_CONN)
			cm_timewait_enter(cm, id);
		else
			cm_id_reset(cm, id);
		return true;
	case IB_CM_REP_RCVD:
	case IB_CM_MRA_REP_SENT:
	case IB_CM_ESTABLISHED:
	case IB_CM_DREQ_SENT:
		cm_timewait_enter(cm, id);
		return true;
	default:
		return false;
	}
}

/* The listener may be there soon, and so may what its process lacks. No consumer has refused. */
static bool cm_rej_is_early(const struct cm_id *id, const struct cm_rej_msg *m)
{
	return id->pub.state == IB_CM_REQ_SENT &&
	       (m->reason == IB_CM_REJ_INVALID_SERVICE_ID ||
		(m->reason == IB_CM_REJ_NO_RESOURCES && m->about == CM_ABOUT_OTHER));
}

void cm_receive_rej(struct cm *cm, const struct cm_received *r)
{
	const struct cm_rej_msg *m = &r->msg->rej;
	struct cm_id *id = cm_rej_find(cm, r);
	struct cm_note *note;

	if (id == NULL) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		return;
	}
	if (cm_rej_is_early(id, m) && cm_request_again(cm, id, r))
		return;
	note = cm_note_of(cm, id, IB_CM_REJ_RECEIVED, r->msg);
	if (!cm_rej_take(cm, id, m)) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		cm_note_free(note);
		return;
	}
	if (note == NULL)
		return;
	memcpy(note->info, m->ari, sizeof(m->ari));
	note->event.param.rej_rcvd = (struct ib_cm_rej_event_param){
		.reason = (enum ib_cm_rej_reason)m->reason,
		.ari = note->info,
		.ari_length = MIN(m->ari_length, (u8)IB_CM_REJ_ARI_LENGTH),
	};
	cm_note_post(cm, id, note);
}

/* ---- MRA ------------------------------------------------------------------------------------- */

/* Where an MRA leads, and what it is about. False: nothing waits for an answer of ours. */
static bool cm_mra_step(struct cm *cm, struct cm_id *id, u8 *about) REQUIRES(&cm->lock)
{
	switch (id->pub.state) {
	case IB_CM_REQ_RCVD:
		cm_state_set(cm, id, IB_CM_MRA_REQ_SENT);
		*about = CM_ABOUT_REQ;
		return true;
	case IB_CM_REP_RCVD:
		cm_state_set(cm, id, IB_CM_MRA_REP_SENT);
		*about = CM_ABOUT_REP;
		return true;
	case IB_CM_ESTABLISHED:
		if (id->pub.lap_state != IB_CM_LAP_RCVD)
			return false;
		id->pub.lap_state = IB_CM_MRA_LAP_SENT;
		*about = CM_ABOUT_OTHER;
		return true;
	default:
		return false;
	}
}

int ib_send_cm_mra(struct ib_cm_id *cm_id, u8 service_timeout, const void *private_data,
		   u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	struct cm_msg msg;
	int err = 0;
	u8 about;

	if (private_data_len > IB_CM_MRA_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	if (id->dev == NULL) {
		err = -ENODEV;
	} else if (!cm_mra_step(cm, id, &about)) {
		err = -EINVAL;
	} else {
		msg = cm_msg_for(id, CM_MRA);
		msg.mra.local_id = be32toh(id->pub.local_id);
		msg.mra.remote_id = be32toh(id->pub.remote_id);
		msg.mra.about = about;
		msg.mra.service_timeout = service_timeout & 31;
		cm_msg_fill_private(&msg, private_data, private_data_len);
		if (service_timeout & IB_CM_MRA_FLAG_DELAY)
			cm_reply_keep(cm, id, &msg);
		else
			cm_reply_send(cm, id, &msg);
	}
	cm_leave(cm);
	return err;
}

/* False: no request of that kind waits for an answer. `*again`: it is another MRA. */
static bool cm_mra_take(struct cm *cm, struct cm_id *id, u8 about, bool *again)
	REQUIRES(&cm->lock)
{
	switch (id->pub.state) {
	case IB_CM_REQ_SENT:
	case IB_CM_MRA_REQ_RCVD:
		if (about != CM_ABOUT_REQ)
			return false;
		*again = id->pub.state == IB_CM_MRA_REQ_RCVD;
		cm_state_set(cm, id, IB_CM_MRA_REQ_RCVD);
		return true;
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
		if (about != CM_ABOUT_REP)
			return false;
		*again = id->pub.state == IB_CM_MRA_REP_RCVD;
		cm_state_set(cm, id, IB_CM_MRA_REP_RCVD);
		return true;
	case IB_CM_ESTABLISHED:
		if (about != CM_ABOUT_OTHER || (id->pub.lap_state != IB_CM_LAP_SENT &&
						id->pub.lap_state != IB_CM_MRA_LAP_RCVD))
			return false;
		*again = id->pub.lap_state == IB_CM_MRA_LAP_RCVD;
		id->pub.lap_state = IB_CM_MRA_LAP_RCVD;
		return true;
	default:
		return false;
	}
}

void cm_receive_mra(struct cm *cm, const struct cm_received *r)
{
	const struct cm_mra_msg *m = &r->msg->mra;
	struct cm_id *id;
	struct cm_note *note;
	bool again;

	id = cm_id_find(cm, r, m->remote_id, m->about == CM_ABOUT_REQ ? 0 : m->local_id);
	if (id == NULL || id->tid != r->msg->tid || !cm_mra_take(cm, id, m->about, &again)) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		return;
	}
	/* an answer to a request that was repeated: the time runs from now, and is told once */
	cm_request_extend(cm, id, MIN(cm_exponent_ns(m->service_timeout) +
					      cm_exponent_ns(id->av.timeout),
				      (u64)CM_HOLD_NS));
	if (again) {
		cm_tally(cm, CM_DUPLICATES);
		return;
	}
	note = cm_note_of(cm, id, IB_CM_MRA_RECEIVED, r->msg);
	if (note != NULL)
		note->event.param.mra_rcvd.service_timeout = m->service_timeout;
	cm_note_post(cm, id, note);
}
