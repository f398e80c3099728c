/* conn_call.c: calls of the CM, with parameters and private data drawn by lot.
 * In: what consumers want    Out: calls of <rdma/ib_cm.h>; the model says which must succeed
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn.h"

enum { QPN_FIRST = 0x11, TEXT_HEAD = 12, KEEPS_PERCENT = 20, WAITS_PERCENT = 70 };
static const u64 CONN_SERVICE_ID = 0x1060100;

/* ---- what ends say --------------------------------------------------------------------------- */

static const u8 conn_data_bytes[CM_ATTR_END - CM_REQ] = {
	[CM_REQ - CM_REQ] = IB_CM_REQ_PRIVATE_DATA_SIZE,
	[CM_MRA - CM_REQ] = IB_CM_MRA_PRIVATE_DATA_SIZE,
	[CM_REJ - CM_REQ] = IB_CM_REJ_PRIVATE_DATA_SIZE,
	[CM_REP - CM_REQ] = IB_CM_REP_PRIVATE_DATA_SIZE,
	[CM_RTU - CM_REQ] = IB_CM_RTU_PRIVATE_DATA_SIZE,
	[CM_DREQ - CM_REQ] = IB_CM_DREQ_PRIVATE_DATA_SIZE,
	[CM_DREP - CM_REQ] = IB_CM_DREP_PRIVATE_DATA_SIZE,
	[CM_SIDR_REQ - CM_REQ] = IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE,
	[CM_SIDR_REP - CM_REQ] = IB_CM_SIDR_REP_PRIVATE_DATA_SIZE,
	[CM_LAP - CM_REQ] = IB_CM_LAP_PRIVATE_DATA_SIZE,
	[CM_APR - CM_REQ] = IB_CM_APR_PRIVATE_DATA_SIZE,
};

void conn_text(const struct conn_side *s, enum cm_attr attr, u8 *to, u32 length)
{
	u32 serial = s->said_serial[attr - CM_REQ];
	u32 head[3] = { s->attempt->number, s->index, (u32)attr << 8 | serial };
	u64 key = rng_mix(world.seed ^ (u64)s->index << 20 ^ head[2]);

	for (u32 i = 0; i < length; i++)
		to[i] = (u8)(rng_mix(key + i / 8) >> (i % 8 * 8));
	memcpy(to, head, sizeof(head));
}

/* The side is about to say something new. Returns the length. */
static u8 user_speak(struct conn_side *s, enum cm_attr attr, u8 *text)
{
	u8 *length = &s->said_length[attr - CM_REQ];

	s->said_serial[attr - CM_REQ]++;
	*length = (u8)rng_range(RNG, TEXT_HEAD, conn_data_bytes[attr - CM_REQ]);
	conn_text(s, attr, text, *length);
	return *length;
}

/* ---- sides ----------------------------------------------------------------------------------- */

struct conn_side *conn_side_create(struct conn_process *p, enum conn_role role,
				   struct conn_attempt *attempt)
{
	struct conn_side *s = calloc(1, sizeof(*s));

	if (s == NULL)
		abort();
	sim_check(conn.side_count < CONN_SIDES, "%u ids, and more", CONN_SIDES);
	s->index = conn.side_count;
	conn.sides[conn.side_count++] = s;
	s->role = role;
	s->process = p;
	s->attempt = attempt;
	s->keeps = rng_percent(RNG, KEEPS_PERCENT);
	s->waits = rng_percent(RNG, WAITS_PERCENT);
	return s;
}

/* The last one: an id may serve one request after the other. */
struct conn_side *conn_side_find(const struct conn_process *p, u32 local_id)
{
	for (u32 i = conn.side_count; i-- > 0;)
		if (conn.sides[i]->process == p && conn.sides[i]->local_id == local_id)
			return conn.sides[i];
	return NULL;
}

void conn_side_open(struct conn_side *s)
{
	conn_number_draw(s->process);
	s->id = ib_create_cm_id(&s->process->ib, conn_handler, s);
	sim_check(!IS_ERR(s->id), "n%u: no id", s->process->node->id);
	s->local_id = be32toh(s->id->local_id);
	conn_number_begin(s);
}

static u32 side_qpn(struct conn_side *s)
{
	struct conn_node *n = s->process->node;
	u32 qpn = n->next_qpn++;

	s->reused |= qpn < n->highest_qpn;
	n->highest_qpn = MAX(n->highest_qpn, n->next_qpn);
	return QPN_FIRST + qpn;
}

static u64 service_id(u32 service)
{
	return CONN_SERVICE_ID + ((u64)service << 8);
}

/* The last service is a range of IDs. */
static u64 service_mask(u32 service)
{
	return service == CONN_SERVICES - 1 ? ~0xffull : 0;
}

void conn_listen(struct conn_process *p, u32 service)
{
	struct conn_side *s = conn_side_create(p, CONN_LISTENS, NULL);

	p->node->absent_ns[service] = world.now;
	s->service = service;
	s->state = IB_CM_LISTEN;
	conn_side_open(s);
	sim_check(ib_cm_listen(s->id, htobe64(service_id(service)), htobe64(service_mask(service)),
			       NULL) == 0,
		  "n%u cannot listen", p->node->id);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void side_path(struct conn_side *s, const struct conn_node *to)
{
	s->path = (struct ib_sa_path_rec){
		.dgid = to->gid,
		.sgid = s->process->node->gid,
		.hop_limit = 64,
		.traffic_class = (u8)rng_below(RNG, 256),
		.flow_label = htobe32(rng_below(RNG, 1 << 20)),
		.reversible = 1,
		.pkey = htobe16(0xffff),
		.mtu_selector = IB_SA_EQ,
		.mtu = (u8)rng_range(RNG, IB_MTU_256, IB_MTU_4096),
		.rate_selector = IB_SA_EQ,
		.rate = IB_RATE_100_GBPS,
		.packet_life_time_selector = IB_SA_EQ,
		.packet_life_time = conn.plan.life_time,
	};
}

static const struct conn_node *side_target(const struct conn_side *s)
{
	return s->attempt->from == s->process->node ? s->attempt->to : s->attempt->from;
}

static u64 side_service(const struct conn_side *s)
{
	u64 id = service_id(s->attempt->service);

	if (s->role == CONN_PEER)
		return 0x7000000 + s->attempt->number;
	return id + (service_mask(s->attempt->service) != 0 ? rng_below(RNG, 256) : 0);
}

static int do_req(struct conn_side *s, const u8 *text, u8 length)
{
	side_path(s, side_target(s));
	s->req = (struct ib_cm_req_param){
		.primary_path = &s->path,
		.service_id = htobe64(side_service(s)),
		.qp_num = s->req.qp_num != 0 ? s->req.qp_num : side_qpn(s),
		.qp_type = rng_percent(RNG, 80) ? IB_QPT_RC : IB_QPT_UC,
		.starting_psn = rng_below(RNG, 1 << 24),
		.private_data = text,
		.private_data_len = length,
		.peer_to_peer = s->role == CONN_PEER,
		.responder_resources = (u8)rng_below(RNG, 17),
		.initiator_depth = (u8)rng_below(RNG, 17),
		.remote_cm_response_timeout = conn.plan.timeout,
		.local_cm_response_timeout = conn.plan.timeout,
		.flow_control = 1,
		.retry_count = (u8)rng_below(RNG, 8),
		.rnr_retry_count = (u8)rng_below(RNG, 8),
		.max_cm_retries = conn.plan.retries,
		.srq = (u8)rng_below(RNG, 2),
		.ece = { .vendor_id = rng_below(RNG, 1 << 24), .attr_mod = rng_below(RNG, 99) },
	};
	return ib_send_cm_req(s->id, &s->req);
}

/* The side of the last connection that is made anew by this one, and whose queue pair is free. */
static const struct conn_side *side_before(const struct conn_side *s)
{
	const struct conn_attempt *before = s->attempt->before;
	const struct conn_side *p = before != NULL ? before->passive : NULL;

	return p != NULL && p->process == s->process && p->rep.qp_num != 0 &&
			       (p->id == NULL || p->state == IB_CM_IDLE)
		       ? p
		       : NULL;
}

/* A connection that is made anew may have both its queue pairs again. */
static u32 side_passive_qpn(struct conn_side *s)
{
	const struct conn_side *before = side_before(s);

	s->attempt->passive = s;
	if (s->req.qp_num != 0) /* of two peers */
		return s->req.qp_num;
	if (before == NULL || !rng_percent(RNG, 70))
		return side_qpn(s);
	s->reused = true;
	conn_seen.again++;
	return before->rep.qp_num;
}

static int do_rep(struct conn_side *s, const u8 *text, u8 length)
{
	s->rep = (struct ib_cm_rep_param){
		.qp_num = side_passive_qpn(s),
		.starting_psn = rng_below(RNG, 1 << 24),
		.private_data = text,
		.private_data_len = length,
		.responder_resources = (u8)rng_below(RNG, 17),
		.initiator_depth = (u8)rng_below(RNG, 17),
		.rnr_retry_count = (u8)rng_below(RNG, 8),
		.srq = (u8)rng_below(RNG, 2),
		.ece = { .vendor_id = rng_below(RNG, 1 << 24), .attr_mod = rng_below(RNG, 99) },
	};
	return ib_send_cm_rep(s->id, &s->rep);
}

static int do_sidr_req(struct conn_side *s, const u8 *text, u8 length)
{
	struct ib_cm_sidr_req_param ask = {
		.path = &s->path,
		.service_id = htobe64(side_service(s)),
		.timeout_ms = 1 + (int)((4096ull << conn.plan.timeout) / NS_PER_MS),
		.private_data = text,
		.private_data_len = length,
		.max_cm_retries = conn.plan.retries,
	};

	side_path(s, side_target(s));
	return ib_send_cm_sidr_req(s->id, &ask);
}

static int do_sidr_rep(struct conn_side *s, const u8 *text, u8 length)
{
	s->sidr = (struct ib_cm_sidr_rep_param){
		.qp_num = rng_below(RNG, 1 << 24),
		.qkey = (u32)rng_next(RNG),
		.status = rng_percent(RNG, 80) ? IB_SIDR_SUCCESS : IB_SIDR_NO_QP,
		.private_data = text,
		.private_data_len = length,
	};
	return ib_send_cm_sidr_rep(s->id, &s->sidr);
}

static int do_mra(struct conn_side *s, const u8 *text, u8 length)
{
	u8 flag = rng_percent(RNG, 30) ? IB_CM_MRA_FLAG_DELAY : 0;

	return ib_send_cm_mra(s->id, conn.plan.mra_time | flag, text, length);
}

static const enum cm_attr call_attrs[CONN_CALLS] = {
	[CONN_REQ] = CM_REQ,	       [CONN_REP] = CM_REP,	      [CONN_RTU] = CM_RTU,
	[CONN_REJ] = CM_REJ,	       [CONN_MRA] = CM_MRA,	      [CONN_DREQ] = CM_DREQ,
	[CONN_DREP] = CM_DREP,	       [CONN_LAP] = CM_LAP,	      [CONN_APR] = CM_APR,
	[CONN_SIDR_REQ] = CM_SIDR_REQ, [CONN_SIDR_REP] = CM_SIDR_REP,
};

static int do_call(struct conn_side *s, enum conn_call call, const u8 *text, u8 length)
{
	switch (call) {
	case CONN_REQ:
		return do_req(s, text, length);
	case CONN_REP:
		return do_rep(s, text, length);
	case CONN_RTU:
		return ib_send_cm_rtu(s->id, text, length);
	case CONN_REJ:
		return ib_send_cm_rej(s->id, IB_CM_REJ_CONSUMER_DEFINED, NULL, 0, text, length);
	case CONN_MRA:
		return do_mra(s, text, length);
	case CONN_DREQ:
		return ib_send_cm_dreq(s->id, text, length);
	case CONN_DREP:
		return ib_send_cm_drep(s->id, text, length);
	case CONN_LAP:
		return ib_send_cm_lap(s->id, &s->path, text, length);
	case CONN_APR:
		return ib_send_cm_apr(s->id, IB_CM_APR_SUCCESS, NULL, 0, text, length);
	case CONN_SIDR_REQ:
		return do_sidr_req(s, text, length);
	case CONN_SIDR_REP:
		return do_sidr_rep(s, text, length);
	default:
		return ib_cm_notify(s->id, IB_EVENT_COMM_EST);
	}
}

u32 conn_pending(const struct conn_side *s)
{
	u32 n = 0;

	list_for_each(note, &cm_id_of(s->id)->notes, struct cm_note, link)
		n++;
	return n;
}

static void side_moved(struct conn_side *s, enum conn_call call)
{
	s->established |= s->state == IB_CM_ESTABLISHED;
	s->notified |= call == CONN_ESTABLISH;
	s->left |= call == CONN_DREQ;
	s->rejected |= call == CONN_REJ;
	if (s->state == IB_CM_TIMEWAIT)
		s->timewait_ns = s->ended_ns = world.now;
}

/* A new exchange of the kind begins. MADs may leave before the call returns. */
static void side_begin(struct conn_side *s, enum conn_call call)
{
	if (call_attrs[call] != 0)
		s->sent[call_attrs[call] - CM_REQ] = 0;
	s->since = world.now;
}

int conn_do(struct conn_side *s, enum conn_call call)
{
	enum ib_cm_state next = s->state;
	enum ib_cm_lap_state next_lap = s->lap;
	bool allowed = conn_model_call(call, &next, &next_lap);
	struct conn_side before = *s;
	u32 pending = conn_pending(s);
	u8 text[CM_DATA_BYTES], length = 0;
	int err;

	if (call_attrs[call] != 0)
		length = user_speak(s, call_attrs[call], text);
	if (allowed)
		side_begin(s, call);
	conn.caller = s;
	err = do_call(s, call, text, length);
	conn.caller = NULL;
	conn_trace(s->process->node, CONN_TR_CALL, s->index, call, s->state, (u64)-err);
	conn_seen.calls[call]++;
	sim_check(err != 0 || allowed, "side %u: a call (%u) succeeds in state %s", s->index, call,
		  conn_state_name(s->state));
	sim_check((err == -ENODEV) == s->process->unplugged || err == -EINVAL,
		  "side %u: a call (%u) fails with %d", s->index, call, err);
	sim_check(err == 0 || err == -EINVAL || err == -ENODEV ||
			  (call == CONN_ESTABLISH && err == -EISCONN),
		  "side %u: a call (%u) fails with %d", s->index, call, err);
	if (err != 0) {
		*s = before;
		s->owed |= allowed && err != -ENODEV;
		conn_seen.refused++;
		return err;
	}
	s->req.private_data = s->rep.private_data = s->sidr.private_data = NULL; /* on this stack */
	s->late = pending;
	s->late_state = s->state;
	s->late_lap = s->lap;
	s->state = next;
	s->lap = next_lap;
	side_moved(s, call);
	conn_strike(s->process);
	return 0;
}

void conn_destroy(struct conn_side *s)
{
	struct ib_cm_id *id = s->id;

	if (s->acting) {
		s->ends = true;
		return;
	}
	conn_trace(s->process->node, CONN_TR_DESTROY, s->index, s->state, 0, 0);
	conn_seen.destroyed[s->state]++;
	s->id = NULL;
	if (s->role == CONN_LISTENS)
		s->process->node->absent_ns[s->service] = SIM_NEVER;
	conn_again_destroy(s, id);
	conn_wake(s->process);
}
