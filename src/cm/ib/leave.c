/* leave.c: DREQ and DREP: how a connection is left.
 * In: the consumer's calls, received messages    Out: messages, events, timewait
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, 12.6.11, 12.6.12, 12.9.6
 */
#include <errno.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

struct cm_msg cm_dreq_for(const struct cm_id *id)
{
	struct cm_msg msg = cm_msg_for(id, CM_DREQ);

	msg.dreq.local_id = be32toh(id->pub.local_id);
	msg.dreq.remote_id = be32toh(id->pub.remote_id);
	msg.dreq.remote_qpn = id->remote_qpn;
	return msg;
}

struct cm_msg cm_drep_for(const struct cm_id *id)
{
	struct cm_msg msg = cm_msg_for(id, CM_DREP);

	msg.drep.local_id = be32toh(id->pub.local_id);
	msg.drep.remote_id = be32toh(id->pub.remote_id);
	return msg;
}

int cm_leave_send(struct cm *cm, struct cm_id *id, const void *private_data, u8 private_data_len)
{
	struct cm_msg msg;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_ESTABLISHED)
		return -EINVAL;
	cm_request_end(cm, id); /* of a LAP */
	cm_state_set(cm, id, IB_CM_DREQ_SENT);
	cm_tid_renew(cm, id);
	msg = cm_dreq_for(id);
	cm_msg_fill_private(&msg, private_data, private_data_len);
	cm_request_start(cm, id, &msg, id->timeout_ns, id->max_cm_retries);
	return 0;
}

int ib_send_cm_dreq(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	if (private_data_len > IB_CM_DREQ_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	err = cm_leave_send(cm, id, private_data, private_data_len);
	cm_leave(cm);
	return err;
}

int cm_leave_answer(struct cm *cm, struct cm_id *id, const void *private_data, u8 private_data_len)
{
	struct cm_msg msg;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_DREQ_RCVD)
		return -EINVAL;
	msg = cm_drep_for(id);
	cm_msg_fill_private(&msg, private_data, private_data_len);
	cm_reply_send(cm, id, &msg);
	cm_timewait_enter(cm, id);
	return 0;
}

int ib_send_cm_drep(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err;

	if (private_data_len > IB_CM_DREP_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	err = cm_leave_answer(cm, id, private_data, private_data_len);
	cm_leave(cm);
	return err;
}

/* There is no such connection (any more): the peer need not wait. */
static void cm_leave_stranger(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock)
{
	struct cm_msg msg;

	memset(&msg, 0, sizeof(msg));
	msg.attr = CM_DREP;
	msg.tid = r->msg->tid;
	msg.drep.local_id = r->msg->dreq.remote_id;
	msg.drep.remote_id = r->msg->dreq.local_id;
	cm_queue_msg(cm, r->dev, &r->a->back, &msg);
}

void cm_receive_dreq(struct cm *cm, const struct cm_received *r)
{
	const struct cm_dreq_msg *m = &r->msg->dreq;
	struct cm_id *id = cm_id_find(cm, r, m->remote_id, m->local_id);
	struct cm_note *note;

	if (id == NULL) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		cm_leave_stranger(cm, r);
		return;
	}
	switch (id->pub.state) {
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
	case IB_CM_ESTABLISHED:
	case IB_CM_DREQ_SENT: /* both leave at once */
		break;
	case IB_CM_TIMEWAIT:
		cm_tally(cm, CM_DUPLICATES);
		if (id->reply_attr == CM_DREP)
			cm_reply_repeat(cm, id, CM_DREP);
		else
			cm_leave_stranger(cm, r);
		return;
	default:
		cm_tally(cm, CM_DUPLICATES);
		return;
	}
	if (m->remote_qpn != id->local_qpn) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		return;
	}
	cm_request_end(cm, id);
	cm_state_set(cm, id, IB_CM_DREQ_RCVD);
	id->pub.lap_state = IB_CM_LAP_UNINIT;
	id->tid = r->msg->tid;
	note = cm_note_of(cm, id, IB_CM_DREQ_RECEIVED, r->msg);
	if (id->orphan)
		cm_leave_answer(cm, id, NULL, 0);
	cm_note_post(cm, id, note);
}

void cm_receive_drep(struct cm *cm, const struct cm_received *r)
{
	const struct cm_pair_msg *m = &r->msg->drep;
	struct cm_id *id = cm_id_find(cm, r, m->remote_id, m->local_id);

	if (id == NULL ||
	    (id->pub.state != IB_CM_DREQ_SENT && id->pub.state != IB_CM_DREQ_RCVD)) {
		cm_tally(cm, id == NULL ? CM_DROP_UNKNOWN : CM_DUPLICATES);
		return;
	}
	cm_timewait_enter(cm, id);
	cm_note_post(cm, id, cm_note_of(cm, id, IB_CM_DREP_RECEIVED, r->msg));
}
