/* conn_said.c: what a message has brought, beside what the other end's consumer has said in it.
 * In: events    Out: who has said it; the end of the program if a byte is wrong
 */
#include <string.h>

#include "conn.h"

/* ---- private data ---------------------------------------------------------------------------- */

struct said_message {
	enum ib_cm_event_type event;
	enum cm_attr attr;
	u8 bytes;
	bool always; /* every consumer says something in it */
};

static const struct said_message said_messages[] = {
	{ IB_CM_REQ_RECEIVED, CM_REQ, IB_CM_REQ_PRIVATE_DATA_SIZE, true },
	{ IB_CM_REP_RECEIVED, CM_REP, IB_CM_REP_PRIVATE_DATA_SIZE, true },
	{ IB_CM_RTU_RECEIVED, CM_RTU, IB_CM_RTU_PRIVATE_DATA_SIZE, true },
	{ IB_CM_MRA_RECEIVED, CM_MRA, IB_CM_MRA_PRIVATE_DATA_SIZE, true },
	{ IB_CM_LAP_RECEIVED, CM_LAP, IB_CM_LAP_PRIVATE_DATA_SIZE, true },
	{ IB_CM_SIDR_REQ_RECEIVED, CM_SIDR_REQ, IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE, true },
	{ IB_CM_APR_RECEIVED, CM_APR, IB_CM_APR_PRIVATE_DATA_SIZE, false },
	{ IB_CM_REJ_RECEIVED, CM_REJ, IB_CM_REJ_PRIVATE_DATA_SIZE, false },
	{ IB_CM_DREQ_RECEIVED, CM_DREQ, IB_CM_DREQ_PRIVATE_DATA_SIZE, false },
	{ IB_CM_DREP_RECEIVED, CM_DREP, IB_CM_DREP_PRIVATE_DATA_SIZE, false },
	{ IB_CM_SIDR_REP_RECEIVED, CM_SIDR_REP, IB_CM_SIDR_REP_PRIVATE_DATA_SIZE, false },
};

static const struct said_message *said_message_of(const struct ib_cm_event *event)
{
	for (u32 i = 0; i < ARRAY_LEN(said_messages); i++)
		if (said_messages[i].event == event->event)
			return &said_messages[i];
	return NULL;
}

static bool said_nothing(const u8 *data, u32 bytes)
{
	for (u32 i = 0; i < bytes; i++)
		if (data[i] != 0)
			return false;
	return true;
}

struct conn_side *conn_speaker(const struct conn_node *n, const struct ib_cm_event *event)
{
	const struct said_message *m = said_message_of(event);
	struct conn_side *from;
	u8 want[CM_DATA_BYTES];
	u32 head[3];

	sim_check(m != NULL, "n%u: an event of kind %u", n->id, event->event);
	sim_check(event->private_data != NULL && event->private_data_len == m->bytes,
		  "n%u: %s has %u bytes of private data", n->id, conn_event_name(event->event),
		  event->private_data_len);
	if (!m->always && said_nothing(event->private_data, m->bytes))
		return NULL;
	memcpy(head, event->private_data, sizeof(head));
	sim_check(head[1] < conn.side_count && head[2] >> 8 == m->attr,
		  "n%u: %s has private data of nobody", n->id, conn_event_name(event->event));
	from = conn.sides[head[1]];
	sim_check(from->attempt != NULL && from->said_length[m->attr - CM_REQ] != 0,
		  "n%u: side %u has never said what %s says", n->id, from->index,
		  conn_event_name(event->event));
	memset(want, 0, sizeof(want));
	conn_text(from, m->attr, want, from->said_length[m->attr - CM_REQ]);
	sim_check(memcmp(want, event->private_data, m->bytes) == 0,
		  "n%u: %s has not the private data of side %u", n->id,
		  conn_event_name(event->event), from->index);
	return from;
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool said_same_gid(const union ib_gid *a, const union ib_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

void conn_judge_req(const struct conn_side *s, const struct conn_side *from,
		      const struct ib_cm_req_event_param *e)
{
	const struct ib_cm_req_param *q = &from->req;
	bool rc = q->qp_type == IB_QPT_RC;

	sim_check(e->remote_qpn == q->qp_num && e->starting_psn == q->starting_psn &&
			  e->qp_type == q->qp_type &&
			  e->responder_resources == (rc ? q->initiator_depth : 0) &&
			  e->initiator_depth == (rc ? q->responder_resources : 0) &&
			  e->retry_count == (rc ? q->retry_count : 0) &&
			  e->rnr_retry_count == (rc ? q->rnr_retry_count : 0) &&
			  e->srq == (rc ? q->srq : 0) && e->flow_control == q->flow_control &&
			  e->ece.vendor_id == q->ece.vendor_id &&
			  e->ece.attr_mod == q->ece.attr_mod &&
			  e->remote_ca_guid == from->process->ib.node_guid,
		  "side %u: the REQ of side %u says something else", s->index, from->index);
	sim_check(said_same_gid(&e->primary_path->sgid, &s->process->node->gid) &&
			  said_same_gid(&e->primary_path->dgid, &from->process->node->gid) &&
			  e->primary_path->mtu == from->path.mtu &&
			  e->primary_path->traffic_class == from->path.traffic_class &&
			  e->primary_path->flow_label == from->path.flow_label,
		  "side %u: the REQ of side %u brings another path", s->index, from->index);
}

void conn_judge_rep(const struct conn_side *s, const struct conn_side *from,
		      const struct ib_cm_rep_event_param *e)
{
	const struct ib_cm_rep_param *p = &from->rep;

	sim_check(e->remote_qpn == p->qp_num && e->starting_psn == p->starting_psn &&
			  e->responder_resources == p->initiator_depth &&
			  e->initiator_depth == p->responder_resources &&
			  e->rnr_retry_count == p->rnr_retry_count && e->srq == p->srq &&
			  e->ece.vendor_id == p->ece.vendor_id &&
			  e->ece.attr_mod == p->ece.attr_mod &&
			  e->remote_ca_guid == from->process->ib.node_guid,
		  "side %u: the REP of side %u says something else", s->index, from->index);
}

void conn_judge_attributes(const struct conn_side *s)
{
	const struct conn_side *peer = s->peer;
	bool active = s->rep.qp_num == 0;
	u32 qpn = active ? peer->rep.qp_num : peer->req.qp_num;
	u32 psn = active ? peer->rep.starting_psn : peer->req.starting_psn;
	u32 own = active ? s->req.starting_psn : s->rep.starting_psn;
	struct ib_qp_attr a = { .qp_state = IB_QPS_RTR };
	int mask;

	if (conn_pending(s) != 0 || (s->state != IB_CM_REP_RCVD && s->state != IB_CM_ESTABLISHED))
		return; /* it has ended already */
	sim_check(ib_cm_init_qp_attr(s->id, &a, &mask) == 0, "side %u: no attributes", s->index);
	sim_check(a.dest_qp_num == qpn && a.rq_psn == own &&
			  said_same_gid(&a.ah_attr.grh.dgid, &peer->process->node->gid) &&
			  a.path_mtu == (active ? s : peer)->path.mtu,
		  "side %u: its queue pair is to be connected to another one", s->index);
	a.qp_state = IB_QPS_RTS;
	sim_check(ib_cm_init_qp_attr(s->id, &a, &mask) == 0 && a.sq_psn == psn,
		  "side %u: its queue pair is to send from another PSN", s->index);
}
