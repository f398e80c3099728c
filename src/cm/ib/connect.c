/* connect.c: REQ, REP and RTU: how a connection is made.
 * In: the consumer's calls, received messages    Out: messages, events
 * Runs: any thread    Locks: cm.lock    Spec: IBA vol 1, 12.9.6 (states), 12.9.8.3 (stale), 12.10.4
 */
#include <errno.h>
#include <string.h>

#include "cm/ib/cm_priv.h"

/* cm_answer_briefly */
#define CM_BRIEF_NS NS_PER_S
enum { CM_BRIEF_RETRIES = 3 };

/* Failover Accepted of a REP: the responder could migrate, but not to this path. 12.7.29 */
enum { CM_FAILOVER_REFUSED = 2 };

/* ---- headers of messages --------------------------------------------------------------------- */

struct cm_msg cm_msg_for(const struct cm_id *id, enum cm_attr attr)
{
	struct cm_msg msg;

	memset(&msg, 0, sizeof(msg));
	msg.attr = attr;
	msg.tid = id->tid;
	return msg;
}

void cm_tid_renew(struct cm *cm, struct cm_id *id)
{
	id->tid = (u64)id->dev->hi_tid << 32 | ++cm->next_tid;
}

void cm_msg_fill_private(struct cm_msg *msg, const void *private_data, u8 length)
{
	u32 bytes;
	u8 *at = msg_private(msg, &bytes);

	if (private_data != NULL)
		memcpy(at, private_data, MIN((u32)length, bytes));
}

/* ---- sending a REQ --------------------------------------------------------------------------- */

static int cm_req_check(const struct ib_cm_req_param *p)
{
	if (p->primary_path == NULL || p->private_data_len > IB_CM_REQ_PRIVATE_DATA_SIZE ||
	    (p->private_data_len > 0 && p->private_data == NULL))
		return -EINVAL;
	if (p->qp_type != IB_QPT_RC && p->qp_type != IB_QPT_UC && p->qp_type != IB_QPT_XRC_INI)
		return -EINVAL;
	if (p->alternate_path != NULL && (p->alternate_path->pkey != p->primary_path->pkey ||
					  p->alternate_path->mtu != p->primary_path->mtu))
		return -EINVAL;
	return 0;
}

static void cm_req_set_type(struct cm_req_msg *m, enum ib_qp_type type)
{
	m->transport = type == IB_QPT_UC	? CM_TRANSPORT_UC
		       : type == IB_QPT_XRC_INI ? CM_TRANSPORT_EXTENDED
						: CM_TRANSPORT_RC;
	m->extended_transport = type == IB_QPT_XRC_INI ? CM_EXTENDED_XRC : 0;
}

/* The type of the receiver's queue pair. */
static enum ib_qp_type cm_req_type(const struct cm_req_msg *m)
{
	return m->transport == CM_TRANSPORT_UC	       ? IB_QPT_UC
	       : m->transport == CM_TRANSPORT_EXTENDED ? IB_QPT_XRC_TGT
						       : IB_QPT_RC;
}

static void cm_req_format(const struct cm_id *id, const struct ib_cm_req_param *p,
			  struct cm_msg *msg)
{
	struct cm_req_msg *m = &msg->req;

	*msg = cm_msg_for(id, CM_REQ);
	msg->attr_mod = p->ece.attr_mod;
	*m = (struct cm_req_msg){
		.local_id = be32toh(id->pub.local_id),
		.vendor_id = p->ece.vendor_id,
		.service_id = be64toh(p->service_id),
		.local_ca_guid = be64toh(id->dev->ib->node_guid),
		.local_qpn = p->qp_num,
		.responder_resources = p->qp_type == IB_QPT_RC ? p->responder_resources : 0,
		.initiator_depth = p->qp_type != IB_QPT_UC ? p->initiator_depth : 0,
		.remote_response_timeout = p->remote_cm_response_timeout,
		.flow_control = p->flow_control,
		.starting_psn = p->starting_psn,
		.local_response_timeout = p->local_cm_response_timeout,
		.retry_count = p->qp_type == IB_QPT_RC ? p->retry_count : 0,
		.pkey = be16toh(p->primary_path->pkey),
		.path_mtu = p->primary_path->mtu,
		.rnr_retry_count = p->qp_type == IB_QPT_RC ? p->rnr_retry_count : 0,
		.max_cm_retries = p->max_cm_retries,
		.srq = p->qp_type == IB_QPT_RC ? p->srq : 0,
	};
	cm_req_set_type(m, p->qp_type);
	cm_path_to_wire(p->primary_path, id->dev->ack_delay, &m->primary);
	if (p->alternate_path != NULL)
		cm_path_to_wire(p->alternate_path, id->dev->ack_delay, &m->alternate);
	cm_msg_fill_private(msg, p->private_data, p->private_data_len);
}

static int cm_req_send(struct cm *cm, struct cm_id *id, const struct ib_cm_req_param *p)
	REQUIRES(&cm->lock)
{
	struct cm_av av, alternate = { .valid = false };
	struct cm_msg msg;
	u64 timeout_ns;

	if (id->dev == NULL)
		return -ENODEV;
	if (id->pub.state != IB_CM_IDLE || cm_av_from_path(id->dev, p->primary_path, &av) != 0)
		return -EINVAL;
	if (p->alternate_path != NULL &&
	    cm_av_from_path(id->dev, p->alternate_path, &alternate) != 0)
		return -EINVAL;
	id->av = av;
	id->alternate = alternate;
	id->primary_path = *p->primary_path;
	id->pub.service_id = p->service_id;
	id->qp_type = p->qp_type;
	id->local_qpn = p->qp_num;
	id->rq_psn = p->starting_psn;
	id->pkey = be16toh(p->primary_path->pkey);
	id->path_mtu = p->primary_path->mtu;
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	id->retry_count = p->retry_count;
	id->rnr_retry_count = p->rnr_retry_count;
	id->max_cm_retries = MIN(p->max_cm_retries, 15);
	id->remote_response_timeout = p->remote_cm_response_timeout;
	id->peer_to_peer = p->peer_to_peer != 0;
	id->passive = false;
	cm_state_set(cm, id, IB_CM_REQ_SENT);
	cm_tid_renew(cm, id);
	id->req_tid = id->tid;
	cm_req_format(id, p, &msg);
	timeout_ns = cm_exponent_ns(p->remote_cm_response_timeout) +
		     2 * cm_exponent_ns(p->primary_path->packet_life_time);
	cm_request_start(cm, id, &msg, timeout_ns, id->max_cm_retries);
	if (id->peer_to_peer)
		cm_id_link(cm, id, CM_BY_PEER, 0, be64toh(p->service_id));
	return 0;
}

int ib_send_cm_req(struct ib_cm_id *cm_id, struct ib_cm_req_param *param)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err = cm_req_check(param);

	if (err == 0 && param->peer_to_peer)
		err = cm_peer_open(id, be64toh(param->service_id));
	if (err != 0)
		return err;
	cm_enter(cm);
	err = cm_req_send(cm, id, param);
	cm_leave(cm);
	if (err != 0)
		cm_peer_close(id);
	return err;
}

/* ---- receiving a REQ ------------------------------------------------------------------------- */

/* A REQ that an id has taken already: its sender has not got the answer. */
static void cm_req_duplicate(struct cm *cm, struct cm_id *id, const struct cm_received *r)
	REQUIRES(&cm->lock)
{
	cm_tally(cm, CM_DUPLICATES);
	switch (id->pub.state) {
	case IB_CM_MRA_REQ_SENT:
		cm_reply_repeat(cm, id, CM_MRA);
		break;
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
		cm_request_repeat(cm, id);
		break;
	case IB_CM_TIMEWAIT:
		cm_reject_stranger(cm, r->dev, r->a, r->msg, IB_CM_REJ_STALE_CONN, NULL, 0);
		break;
	default:
		break;
	}
}

/* The peer's queue pair was connected to one of ours, and now connects anew: it has left that
 * connection without our knowing. The new one is refused until that one has ended. */
static void cm_stale_end(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	cm_tally(cm, CM_STALE);
	if (id->pub.state == IB_CM_ESTABLISHED)
		cm_leave_send(cm, id, NULL, 0);
}

static enum ib_cm_rej_reason cm_req_judge(const struct cm_req_msg *m)
{
	if (m->transport != CM_TRANSPORT_RC && m->transport != CM_TRANSPORT_UC &&
	    (m->transport != CM_TRANSPORT_EXTENDED || m->extended_transport != CM_EXTENDED_XRC))
		return IB_CM_REJ_INVALID_TRANSPORT_TYPE;
	if (m->path_mtu < IB_MTU_256 || m->path_mtu > IB_MTU_4096)
		return IB_CM_REJ_INVALID_MTU;
	if (m->rdc_exists)
		return IB_CM_REJ_RDC_NOT_EXIST;
	return 0;
}

/* What the id keeps of the REQ. */
static void cm_req_take(struct cm *cm, struct cm_id *id, const struct cm_received *r)
	REQUIRES(&cm->lock)
{
	const struct cm_req_msg *m = &r->msg->req;

	id->passive = true;
	id->near = cm_gid_is_own(cm, &r->a->sgid);
	id->tid = id->req_tid = r->msg->tid;
	id->pub.remote_id = htobe32(m->local_id);
	id->pub.service_id = htobe64(m->service_id);
	id->remote_guid = m->local_ca_guid;
	id->remote_qpn = m->local_qpn;
	id->sq_psn = m->starting_psn;
	id->qp_type = cm_req_type(m);
	id->pkey = m->pkey;
	id->path_mtu = m->path_mtu;
	id->initiator_depth = m->responder_resources;
	id->responder_resources = m->initiator_depth;
	id->retry_count = m->retry_count;
	id->rnr_retry_count = m->rnr_retry_count;
	/* how long the sender of the REQ may take for its answer to the REP */
	id->timeout_ns = cm_request_timeout(m->local_response_timeout);
	id->max_cm_retries = cm_request_retries(id->timeout_ns, m->max_cm_retries);
	id->remote_response_timeout = m->local_response_timeout;
	cm_state_set(cm, id, IB_CM_REQ_RCVD);
	cm_id_link(cm, id, CM_BY_REMOTE, m->local_ca_guid, m->local_id);
	cm_id_link(cm, id, CM_BY_QPN, m->local_ca_guid, m->local_qpn);
}

static void cm_req_tell(struct cm_note *note, const struct cm_id *id, const struct cm_received *r)
{
	const struct cm_req_msg *m = &r->msg->req;

	note->event.param.req_rcvd = (struct ib_cm_req_event_param){
		.listen_id = id->listener != NULL ? &id->listener->pub : NULL,
		.port = id->av.route.ah.port_num,
		.primary_path = &note->primary,
		.alternate_path = id->alternate.valid ? &note->alternate : NULL,
		.remote_ca_guid = htobe64(m->local_ca_guid),
		.remote_qkey = m->local_qkey,
		.remote_qpn = m->local_qpn,
		.qp_type = id->qp_type,
		.starting_psn = m->starting_psn,
		.responder_resources = m->initiator_depth,
		.initiator_depth = m->responder_resources,
		.local_cm_response_timeout = m->remote_response_timeout & 31,
		.flow_control = m->flow_control & 1,
		.remote_cm_response_timeout = m->local_response_timeout & 31,
		.retry_count = m->retry_count & 7,
		.rnr_retry_count = m->rnr_retry_count & 7,
		.srq = m->srq & 1,
		.ece = { .vendor_id = m->vendor_id, .attr_mod = r->msg->attr_mod },
	};
}

static bool cm_gid_is_zero(const u8 *gid)
{
	static const u8 zero[16];

	return memcmp(gid, zero, 16) == 0;
}

/* A REQ travels its own primary path. One that has come another way wants a queue pair of this host
 * connected to a port that has not asked for it. */
static bool cm_req_came_by_its_path(const struct cm_received *r)
{
	const struct cm_wire_path *path = &r->msg->req.primary;

	if (r->a->back.ah.ah_flags & IB_AH_GRH)
		return memcmp(path->local_gid, r->a->sgid.raw, 16) == 0 &&
		       memcmp(path->remote_gid, r->a->dgid.raw, 16) == 0;
	return path->local_lid == r->a->back.ah.dlid || cm_path_leaves_lid(path->local_lid, path);
}

/* The paths of a REQ, as this side sees them; `note` gets them. The reason for a REJ, or 0. */
static enum ib_cm_rej_reason cm_req_paths(struct cm *cm, struct cm_id *id,
					  const struct cm_received *r, struct cm_note *note)
	REQUIRES(&cm->lock)
{
	const struct cm_req_msg *m = &r->msg->req;

	if (!cm_req_came_by_its_path(r)) {
		cm_tally(cm, CM_DROP_SOURCE);
		return IB_CM_REJ_INVALID_GID;
	}
	cm_path_from_wire(&m->primary, m, &r->a->back, &note->primary);
	if (cm_av_from_path(id->dev, &note->primary, &id->av) != 0)
		return IB_CM_REJ_INVALID_GID;
	id->primary_path = note->primary;
	id->alternate.valid = false;
	id->alternate_refused = false;
	if (m->alternate.local_lid == 0 && cm_gid_is_zero(m->alternate.local_gid))
		return 0;
	if (!cm_alternate_is_peers(cm, r, &m->alternate)) {
		cm_tally(cm, CM_DROP_SOURCE);
		id->alternate_refused = true;
		return 0;
	}
	cm_path_from_wire(&m->alternate, m, &r->a->back, &note->alternate);
	if (cm_av_from_path(id->dev, &note->alternate, &id->alternate) != 0)
		return IB_CM_REJ_INVALID_ALT_GID;
	return 0;
}

/* Gives the REQ to a new id. */
static void cm_req_accept(struct cm *cm, struct cm_id *listener, struct cm_id *id,
			  const struct cm_received *r) REQUIRES(&cm->lock)
{
	struct cm_note *note = cm_note_of(cm, id, IB_CM_REQ_RECEIVED, r->msg);
	enum ib_cm_rej_reason reason;

	reason = note != NULL ? cm_req_paths(cm, id, r, note) : 0;
	if (note == NULL || reason != 0) {
		if (reason != 0)
			cm_reject_stranger(cm, r->dev, r->a, r->msg, reason, NULL, 0);
		cm_note_free(note);
		id->orphan = true; /* nobody has seen it */
		cm_id_bury(cm, id);
		return;
	}
	cm_req_take(cm, id, r);
	cm_child_new(cm, listener, id);
	cm_req_tell(note, id, r);
	cm_note_post(cm, id, note);
}

/* Two REQs have crossed. */
static void cm_req_from_peer(struct cm *cm, struct cm_id *id, const struct cm_received *r)
	REQUIRES(&cm->lock)
{
	struct cm_note *note;

	if (!cm_peer_goes_first(id, &r->msg->req))
		return; /* the peer answers our REQ */
	note = cm_note_of(cm, id, IB_CM_REQ_RECEIVED, r->msg);
	if (note == NULL || cm_req_paths(cm, id, r, note) != 0) {
		cm_note_free(note);
		return;
	}
	cm_request_end(cm, id);
	cm_id_unlink(cm, id, CM_BY_PEER);
	cm_req_take(cm, id, r);
	cm_req_tell(note, id, r);
	cm_note_post(cm, id, note);
}

static void cm_req_from_stranger(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock)
{
	const struct cm_req_msg *m = &r->msg->req;
	enum ib_cm_rej_reason reason = cm_req_judge(m);
	struct cm_id *listener, *id;

	listener = cm_listener_find(cm, r->dev, m->service_id, m->private_data);
	if (listener == NULL)
		reason = IB_CM_REJ_INVALID_SERVICE_ID;
	if (reason != 0) {
		cm_reject_stranger(cm, r->dev, r->a, r->msg, reason, NULL, 0);
		return;
	}
	if (cm->backlog >= cm->backlog_max) {
		cm_tally(cm, CM_DROP_BACKLOG); /* it comes again */
		return;
	}
	id = cm_id_create(cm, r->dev, listener->pub.cm_handler, listener->pub.context);
	if (id == NULL) {
		cm_tally(cm, CM_DROP_MEMORY);
		return;
	}
	cm_req_accept(cm, listener, id, r);
}

/* The peer uses its id for another REQ: it has left the connection. (Before it was made, the old
 * exchange ends by itself; and the active one of two peers may see the other's REQ late.) */
static bool cm_req_replaces(const struct cm_id *id, const struct cm_received *r)
{
	return id->pub.state == IB_CM_ESTABLISHED && id->passive && id->req_tid != r->msg->tid;
}

void cm_receive_req(struct cm *cm, const struct cm_received *r)
{
	const struct cm_req_msg *m = &r->msg->req;
	struct cm_id *same, *stale, *peer;

	same = cm_id_find_of_port(cm, r, CM_BY_REMOTE, m->local_ca_guid, m->local_id);
	if (same != NULL && !cm_req_replaces(same, r)) {
		cm_req_duplicate(cm, same, r);
		return;
	}
	stale = same;
	if (stale == NULL)
		stale = cm_id_find_of_port(cm, r, CM_BY_QPN, m->local_ca_guid, m->local_qpn);
	if (stale != NULL) {
		cm_reject_stranger(cm, r->dev, r->a, r->msg, IB_CM_REJ_STALE_CONN, NULL, 0);
		cm_stale_end(cm, stale);
		return;
	}
	peer = cm_peer_find(cm, r);
	if (peer != NULL)
		cm_req_from_peer(cm, peer, r);
	else
		cm_req_from_stranger(cm, r);
}

/* ---- REP ------------------------------------------------------------------------------------- */

/* An XRC target's number lies in the place of the EE context's. Spec: IBA vol 1, annex A14. */
static u32 cm_rep_qpn(const struct cm_id *id, const struct cm_rep_msg *m)
{
	return id->qp_type == IB_QPT_XRC_INI ? m->local_eecn : m->local_qpn;
}

static void cm_rep_format(const struct cm_id *id, const struct ib_cm_rep_param *p,
			  struct cm_msg *msg)
{
	bool target = id->qp_type == IB_QPT_XRC_TGT;

	*msg = cm_msg_for(id, CM_REP);
	msg->attr_mod = p->ece.attr_mod;
	msg->rep = (struct cm_rep_msg){
		.local_id = be32toh(id->pub.local_id),
		.remote_id = be32toh(id->pub.remote_id),
		.local_qpn = target ? 0 : p->qp_num,
		.local_eecn = target ? p->qp_num : 0,
		.vendor_id_high = (u8)(p->ece.vendor_id >> 16),
		.vendor_id_middle = (u8)(p->ece.vendor_id >> 8),
		.vendor_id_low = (u8)p->ece.vendor_id,
		.starting_psn = p->starting_psn,
		.responder_resources = p->responder_resources,
		.initiator_depth = target ? 0 : p->initiator_depth,
		.target_ack_delay = id->dev->ack_delay,
		.failover_accepted = id->alternate_refused ? CM_FAILOVER_REFUSED
							   : p->failover_accepted,
		.flow_control = target ? 0 : p->flow_control,
		.rnr_retry_count = p->rnr_retry_count,
		.srq = target || p->srq,
		.local_ca_guid = be64toh(id->dev->ib->node_guid),
	};
	cm_msg_fill_private(msg, p->private_data, p->private_data_len);
}

bool cm_answer_briefly(struct ib_cm_id *cm_id)
{
	struct cm_id *id = cm_id_of(cm_id);
	bool brief;

	cm_enter(id->cm);
	brief = id->brief = !id->near;
	cm_leave(id->cm);
	return brief;
}

static void cm_rep_start(struct cm *cm, struct cm_id *id, const struct cm_msg *msg)
	REQUIRES(&cm->lock)
{
	cm_request_start(cm, id, msg, id->brief ? CM_BRIEF_NS : id->timeout_ns,
			 id->brief ? CM_BRIEF_RETRIES : id->max_cm_retries);
}

int ib_send_cm_rep(struct ib_cm_id *cm_id, struct ib_cm_rep_param *p)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	struct cm_msg msg;
	int err = 0;

	if (p->private_data_len > IB_CM_REP_PRIVATE_DATA_SIZE ||
	    (p->private_data_len > 0 && p->private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	if (id->dev == NULL) {
		err = -ENODEV;
	} else if (id->pub.state != IB_CM_REQ_RCVD && id->pub.state != IB_CM_MRA_REQ_SENT) {
		err = -EINVAL;
	} else {
		cm_state_set(cm, id, IB_CM_REP_SENT);
		id->local_qpn = p->qp_num;
		id->rq_psn = p->starting_psn;
		id->initiator_depth = p->initiator_depth;
		id->responder_resources = p->responder_resources;
		cm_rep_format(id, p, &msg);
		cm_rep_start(cm, id, &msg);
	}
	cm_leave(cm);
	return err;
}

/* A REP whose REQ waits for no answer any more. It is refused, unless it made the connection
 * that its receiver has. */
static void cm_rep_duplicate(struct cm *cm, const struct cm_received *r) REQUIRES(&cm->lock)
{
	const struct cm_rep_msg *m = &r->msg->rep;
	struct cm_id *id = cm_id_find(cm, r, m->remote_id, m->local_id);

	if (id == NULL) {
		cm_tally(cm, CM_DROP_UNKNOWN);
		cm_reject_stranger(cm, r->dev, r->a, r->msg, IB_CM_REJ_INVALID_COMM_ID, NULL, 0);
		return;
	}
	cm_tally(cm, CM_DUPLICATES);
	if (id->pub.state == IB_CM_ESTABLISHED)
		cm_reply_repeat(cm, id, CM_RTU);
	else if (id->pub.state == IB_CM_MRA_REP_SENT)
		cm_reply_repeat(cm, id, CM_MRA);
}

static void cm_rep_tell(struct cm_note *note, const struct cm_id *id, const struct cm_msg *msg)
{
	const struct cm_rep_msg *m = &msg->rep;

	note->event.param.rep_rcvd = (struct ib_cm_rep_event_param){
		.remote_ca_guid = htobe64(m->local_ca_guid),
		.remote_qkey = m->local_qkey,
		.remote_qpn = cm_rep_qpn(id, m),
		.starting_psn = m->starting_psn,
		.responder_resources = id->responder_resources,
		.initiator_depth = id->initiator_depth,
		.target_ack_delay = m->target_ack_delay & 31,
		.failover_accepted = m->failover_accepted & 3,
		.flow_control = m->flow_control & 1,
		.rnr_retry_count = m->rnr_retry_count & 7,
		.srq = m->srq & 1,
		.ece = { .vendor_id = (u32)m->vendor_id_high << 16 |
				      (u32)m->vendor_id_middle << 8 | m->vendor_id_low,
			 .attr_mod = msg->attr_mod },
	};
}

static void cm_rep_take(struct cm *cm, struct cm_id *id, const struct cm_rep_msg *m)
	REQUIRES(&cm->lock)
{
	cm_request_end(cm, id);
	cm_id_unlink(cm, id, CM_BY_PEER);
	cm_id_link(cm, id, CM_BY_REMOTE, m->local_ca_guid, m->local_id);
	cm_id_link(cm, id, CM_BY_QPN, m->local_ca_guid, cm_rep_qpn(id, m));
	cm_state_set(cm, id, IB_CM_REP_RCVD);
	id->pub.remote_id = htobe32(m->local_id);
	id->remote_guid = m->local_ca_guid;
	id->remote_qpn = cm_rep_qpn(id, m);
	id->sq_psn = m->starting_psn;
	id->initiator_depth = m->responder_resources;
	id->responder_resources = m->initiator_depth;
	id->rnr_retry_count = m->rnr_retry_count;
	id->target_ack_delay = m->target_ack_delay;
	/* the responder's delay counts, not ours: its own was a guess */
	id->av.timeout = cm_ack_timeout(m->target_ack_delay, id->primary_path.packet_life_time);
}

void cm_receive_rep(struct cm *cm, const struct cm_received *r)
{
	const struct cm_rep_msg *m = &r->msg->rep;
	struct cm_id *id = cm_id_find(cm, r, m->remote_id, 0);
	struct cm_id *stale;
	struct cm_note *note;

	if (id == NULL || r->msg->tid != id->tid ||
	    (id->pub.state != IB_CM_REQ_SENT && id->pub.state != IB_CM_MRA_REQ_RCVD)) {
		cm_rep_duplicate(cm, r);
		return;
	}
	stale = cm_id_find_of_port(cm, r, CM_BY_QPN, m->local_ca_guid, cm_rep_qpn(id, m));
	if (stale != NULL || cm_id_find_of_port(cm, r, CM_BY_REMOTE, m->local_ca_guid,
						m->local_id) != NULL) {
		cm_reject_stranger(cm, r->dev, r->a, r->msg, IB_CM_REJ_STALE_CONN, NULL, 0);
		if (stale != NULL)
			cm_stale_end(cm, stale);
		return;
	}
	note = cm_note_of(cm, id, IB_CM_REP_RECEIVED, r->msg);
	if (note == NULL)
		return; /* it comes again */
	cm_rep_take(cm, id, m);
	cm_rep_tell(note, id, r->msg);
	cm_note_post(cm, id, note);
}

/* ---- RTU ------------------------------------------------------------------------------------- */

int ib_send_cm_rtu(struct ib_cm_id *cm_id, const void *private_data, u8 private_data_len)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	struct cm_msg msg;
	int err = 0;

	if (private_data_len > IB_CM_RTU_PRIVATE_DATA_SIZE ||
	    (private_data_len > 0 && private_data == NULL))
		return -EINVAL;
	cm_enter(cm);
	if (id->dev == NULL) {
		err = -ENODEV;
	} else if (id->pub.state != IB_CM_REP_RCVD && id->pub.state != IB_CM_MRA_REP_SENT) {
		err = -EINVAL;
	} else {
		cm_state_set(cm, id, IB_CM_ESTABLISHED);
		msg = cm_msg_for(id, CM_RTU);
		msg.rtu.local_id = be32toh(id->pub.local_id);
		msg.rtu.remote_id = be32toh(id->pub.remote_id);
		cm_msg_fill_private(&msg, private_data, private_data_len);
		cm_reply_send(cm, id, &msg);
	}
	cm_leave(cm);
	return err;
}

static bool cm_waits_for_rtu(const struct cm_id *id)
{
	return id->pub.state == IB_CM_REP_SENT || id->pub.state == IB_CM_MRA_REP_RCVD;
}

void cm_receive_rtu(struct cm *cm, const struct cm_received *r)
{
	struct cm_id *id = cm_id_find(cm, r, r->msg->rtu.remote_id, r->msg->rtu.local_id);

	if (id == NULL || !cm_waits_for_rtu(id)) {
		cm_tally(cm, id != NULL ? CM_DUPLICATES : CM_DROP_UNKNOWN);
		return;
	}
	cm_request_end(cm, id);
	cm_state_set(cm, id, IB_CM_ESTABLISHED);
	cm_note_post(cm, id, cm_note_of(cm, id, IB_CM_RTU_RECEIVED, r->msg));
}

/* ---- what the queue pair tells --------------------------------------------------------------- */

static int cm_established_by_user(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	if (id->pub.state == IB_CM_ESTABLISHED)
		return -EISCONN;
	if (!cm_waits_for_rtu(id))
		return -EINVAL;
	cm_request_end(cm, id);
	cm_state_set(cm, id, IB_CM_ESTABLISHED);
	cm_note_post(cm, id, cm_note_create(cm, id, IB_CM_USER_ESTABLISHED));
	return 0;
}

static int cm_migrated(struct cm *cm, struct cm_id *id) REQUIRES(&cm->lock)
{
	struct cm_av before = id->av;

	if (id->pub.state != IB_CM_ESTABLISHED || !id->alternate.valid)
		return -EINVAL;
	id->av = id->alternate;
	id->alternate = before;
	cm_will_renew(cm, id);
	return 0;
}

int ib_cm_notify(struct ib_cm_id *cm_id, enum ib_event_type event)
{
	struct cm_id *id = cm_id_of(cm_id);
	struct cm *cm = id->cm;
	int err = -EINVAL;

	cm_enter(cm);
	if (event == IB_EVENT_COMM_EST)
		err = cm_established_by_user(cm, id);
	else if (event == IB_EVENT_PATH_MIG)
		err = cm_migrated(cm, id);
	cm_leave(cm);
	return err;
}
