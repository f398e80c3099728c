/* conn_judge.c: what the CM tells consumers, judged by the model and by what the other end has
 * done.
 * In: events    Out: what their consumers do next; the end of the program if an event is wrong
 */
#include <string.h>

#include "conn.h"

/* ---- both ends know each other --------------------------------------------------------------- */

static void judge_pair(struct conn_side *s, struct conn_side *from)
{
	sim_check(from->attempt == s->attempt, "side %u is answered by side %u of another request",
		  s->index, from->index);
	sim_check(s->peer == NULL || s->peer == from,
		  "side %u hears side %u, and is connected to side %u", s->index, from->index,
		  s->peer != NULL ? s->peer->index : 0);
	sim_check(be32toh(s->id->remote_id) == from->local_id || s->id->remote_id == 0,
		  "side %u knows side %u by another ID", s->index, from->index);
	s->peer = from;
}

/* One connection of a request at most, and none that its sender does not know of. */
static void judge_made(struct conn_side *s)
{
	s->attempt->made++;
	sim_check(s->attempt->made == 1, "request %u has made two connections",
		  s->attempt->number);
	sim_check(s->peer->established && s->peer->peer == s,
		  "side %u is established, side %u is not", s->index, s->peer->index);
	conn_seen.connections++;
	conn_seen.peers += s->role == CONN_PEER;
	s->established = true;
	conn_judge_attributes(s);
}

/* A side that has ended has a right to refuse; its consumer may not have been told yet. */
static bool judge_has_ended(const struct conn_side *s)
{
	return s->id == NULL || s->process->dying || s->rejected || s->failed ||
	       s->state == IB_CM_IDLE || s->state == IB_CM_TIMEWAIT || conn_pending(s) > 0;
}

/* Any other side of the attempt that has, or none is known yet. */
static bool judge_peer_ended(const struct conn_side *s)
{
	bool any = false;

	for (u32 i = 0; i < conn.side_count; i++) {
		const struct conn_side *other = conn.sides[i];

		if (other == s || other->attempt != s->attempt)
			continue;
		if (judge_has_ended(other))
			return true;
		any = true;
	}
	return !any; /* refused before its handler was told */
}

static bool judge_listener_absent(const struct conn_side *s)
{
	const struct conn_node *to = s->attempt->to;

	return s->role == CONN_PEER || to->absent_ns[s->attempt->service] >= s->attempt->since;
}

/* Each refusal has its reason. */
static void judge_rej(struct conn_side *s, const struct conn_side *from,
		      const struct ib_cm_rej_event_param *e)
{
	bool ok;

	switch (e->reason) {
	case IB_CM_REJ_CONSUMER_DEFINED:
		ok = from != NULL ? from->rejected : judge_peer_ended(s);
		break;
	case IB_CM_REJ_TIMEOUT:
	case IB_CM_REJ_INVALID_COMM_ID:
		ok = judge_peer_ended(s);
		break;
	case IB_CM_REJ_INVALID_SERVICE_ID:
		ok = judge_listener_absent(s);
		break;
	case IB_CM_REJ_STALE_CONN:
		conn_seen.stale++;
		ok = s->reused || judge_peer_ended(s);
		break;
	default:
		ok = false;
	}
	sim_check(ok, "side %u is refused for no reason (%u)", s->index, e->reason);
	sim_check(from == NULL || from->attempt == s->attempt,
		  "side %u is refused by side %u of another request", s->index, from->index);
}

static void judge_sidr_rep(const struct conn_side *s, const struct conn_side *from,
			   const struct ib_cm_sidr_rep_event_param *e)
{
	if (from == NULL) {
		sim_check((e->status == IB_SIDR_UNSUPPORTED && judge_listener_absent(s)) ||
				  (e->status == IB_SIDR_REJECT && judge_peer_ended(s)),
			  "side %u is refused for no reason (%u)", s->index, e->status);
		return;
	}
	sim_check(from->attempt == s->attempt, "side %u is told of side %u's queue pair", s->index,
		  from->index);
	sim_check(e->status == from->sidr.status &&
			  (e->status != IB_SIDR_SUCCESS ||
			   (e->qpn == from->sidr.qp_num && e->qkey == from->sidr.qkey)),
		  "side %u is told of another queue pair than side %u's", s->index, from->index);
}

/* ---- time ------------------------------------------------------------------------------------ */

static u64 judge_exponent_ns(u8 exponent)
{
	return 4096ull << exponent;
}

/* Of two peers one has not begun, or has ended, before they could meet. */
static bool judge_is_alone(const struct conn_side *s)
{
	const struct conn_attempt *a = s->attempt;
	const struct conn_side *other = s == a->first ? a->second : a->first;

	return s->role == CONN_PEER && (other == NULL || judge_has_ended(other));
}

/* A request fails when all its retries have been sent and waited for, and not before. */
static void judge_failure(struct conn_side *s, enum cm_attr attr)
{
	u64 one = judge_exponent_ns(conn.plan.timeout);
	u32 tries = conn.plan.retries + 1u;

	s->failed = true;
	sim_check(s->sent[attr - CM_REQ] >= tries, "side %u gives up after %u of %u %ss", s->index,
		  s->sent[attr - CM_REQ], tries, conn_attr_name(attr));
	/* an MRA may ask for less time than the request itself allows */
	sim_check(world.now - s->since >= tries * one || s->came[CM_MRA - CM_REQ] > 0,
		  "side %u gives up after %llu ns", s->index,
		  (unsigned long long)(world.now - s->since));
	sim_check(!conn.plan.fair || judge_is_alone(s),
		  "side %u gives up (%s), though the network is whole", s->index,
		  conn_attr_name(attr));
}

/* Packets of the connection may be in flight for twice the path's life time. */
static void judge_timewait(const struct conn_side *s)
{
	u64 least = 2 * judge_exponent_ns(conn.plan.life_time);
	u64 began = s->ended_ns != 0 ? MIN(s->ended_ns, s->timewait_ns) : s->timewait_ns;

	if (began == s->timewait_ns && conn.plan.slow_permille != 0)
		return; /* its consumer may have heard of it late */
	sim_check(world.now - began + CONN_LAG_NS >= least, "side %u: timewait ends after %llu ns",
		  s->index, (unsigned long long)(world.now - began));
}

/* ---- events ---------------------------------------------------------------------------------- */

static void judge_content(struct conn_side *s, const struct ib_cm_event *e)
{
	struct conn_side *from = e->private_data != NULL ? conn_speaker(s->process->node, e)
							 : NULL;

	switch (e->event) {
	case IB_CM_REQ_RECEIVED:
		judge_pair(s, from);
		conn_judge_req(s, from, &e->param.req_rcvd);
		break;
	case IB_CM_REP_RECEIVED:
		judge_pair(s, from);
		conn_judge_rep(s, from, &e->param.rep_rcvd);
		break;
	case IB_CM_MRA_RECEIVED:
		sim_check(from->attempt == s->attempt, "side %u: an MRA of side %u", s->index,
			  from->index);
		sim_check(e->param.mra_rcvd.service_timeout == conn.plan.mra_time,
			  "side %u: an MRA of another time", s->index);
		break;
	case IB_CM_RTU_RECEIVED:
		judge_pair(s, from);
		break;
	case IB_CM_REJ_RECEIVED:
		judge_rej(s, from, &e->param.rej_rcvd);
		break;
	case IB_CM_LAP_RECEIVED:
		judge_pair(s, from);
		break;
	case IB_CM_APR_RECEIVED:
	case IB_CM_DREQ_RECEIVED:
	case IB_CM_DREP_RECEIVED:
		if (from != NULL)
			judge_pair(s, from);
		break;
	case IB_CM_SIDR_REQ_RECEIVED:
		s->peer = from;
		break;
	case IB_CM_SIDR_REP_RECEIVED:
		judge_sidr_rep(s, from, &e->param.sidr_rep_rcvd);
		break;
	default:
		break;
	}
}

/* What an event means that no message brings. */
static void judge_local(struct conn_side *s, const struct ib_cm_event *e)
{
	switch (e->event) {
	case IB_CM_REQ_ERROR:
		judge_failure(s, CM_REQ);
		break;
	case IB_CM_REP_ERROR:
		judge_failure(s, CM_REP);
		break;
	case IB_CM_SIDR_REQ_ERROR:
		judge_failure(s, CM_SIDR_REQ);
		break;
	case IB_CM_DREQ_ERROR:
		if (s->left)
			judge_failure(s, CM_DREQ);
		break;
	case IB_CM_LAP_ERROR:
		sim_check(!conn.plan.fair || judge_peer_ended(s) || s->peer->left,
			  "side %u: no answer to a LAP", s->index);
		break;
	case IB_CM_USER_ESTABLISHED:
		sim_check(s->notified, "side %u is established by nobody", s->index);
		s->notified = false;
		judge_made(s);
		break;
	case IB_CM_TIMEWAIT_EXIT:
		judge_timewait(s);
		break;
	default:
		break;
	}
}

/* The state before the call that the event has been waiting for, or the one now. */
static void judge_step(struct conn_side *s, const struct ib_cm_event *e)
{
	enum ib_cm_state before = s->state;
	bool late = s->late > 0, ok;

	s->late -= late;
	if (e->event == IB_CM_USER_ESTABLISHED) /* the call was the step */
		return;
	ok = late ? conn_model_event(e, &s->late_state, &s->late_lap)
		  : conn_model_event(e, &s->state, &s->lap);
	conn_seen.late += late;
	sim_check(ok, "side %u: %s in state %s", s->index, conn_event_name(e->event),
		  conn_state_name(late ? s->late_state : before));
	sim_check((e->event != IB_CM_DREP_RECEIVED && e->event != IB_CM_DREQ_ERROR) ||
			  before != IB_CM_ESTABLISHED || late ||
			  cm_count(s->process->cm, CM_STALE) > 0,
		  "side %u: %s without a DREQ", s->index, conn_event_name(e->event));
	s->owed = false;
	if (s->state == IB_CM_TIMEWAIT && before != IB_CM_TIMEWAIT)
		s->timewait_ns = world.now;
}

static void judge_event(struct conn_side *s, const struct ib_cm_event *e)
{
	conn_trace(s->process->node, CONN_TR_EVENT, s->index, e->event, s->state,
		   e->event == IB_CM_REJ_RECEIVED ? e->param.rej_rcvd.reason : 0);
	conn_seen.events[e->event]++;
	judge_content(s, e);
	judge_step(s, e);
	judge_local(s, e);
	if (e->event == IB_CM_RTU_RECEIVED)
		judge_made(s);
	if (e->event == IB_CM_REP_RECEIVED)
		conn_judge_attributes(s);
}

/* ---- a request for a listening id ------------------------------------------------------------ */

static struct conn_side *judge_child(struct conn_side *listener, struct ib_cm_id *id,
				     struct ib_cm_event *e)
{
	bool asks = e->event == IB_CM_SIDR_REQ_RECEIVED;
	struct conn_side *from = conn_speaker(listener->process->node, e), *s;

	sim_check(listener->role == CONN_LISTENS && listener->id != NULL,
		  "n%u: a request for no listener", listener->process->node->id);
	sim_check(from->role == (asks ? CONN_ASKS : CONN_ACTIVE) &&
			  from->attempt->to == listener->process->node &&
			  from->attempt->service == listener->service,
		  "n%u: side %u has asked for something else", listener->process->node->id,
		  from->index);
	s = conn_side_create(listener->process, asks ? CONN_ANSWERS : CONN_PASSIVE, from->attempt);
	s->id = id;
	s->local_id = be32toh(id->local_id);
	conn_number_begin(s);
	s->state = asks ? IB_CM_SIDR_REQ_RCVD : IB_CM_REQ_RCVD;
	s->peer = from;
	id->context = s;
	conn_trace(s->process->node, CONN_TR_EVENT, s->index, e->event, from->index, 0);
	conn_seen.events[e->event]++;
	if (!asks)
		conn_judge_req(s, from, &e->param.req_rcvd);
	return s;
}

static bool judge_is_child(const struct ib_cm_event *e)
{
	return e->event == IB_CM_SIDR_REQ_RECEIVED ||
	       (e->event == IB_CM_REQ_RECEIVED && e->param.req_rcvd.listen_id != NULL);
}

/* The consumer, in its handler: it may take its time, act at once, or let the CM destroy the id. */
static int judge_react(struct conn_side *s, struct ib_cm_id *id)
{
	s->in_handler = true;
	if (rng_permille(RNG, conn.plan.slow_permille))
		conn_sleep(s->process, rng_skewed(RNG, 1000, conn.plan.slow_ns));
	s->ends = !conn.quiet && !s->keeps && rng_percent(RNG, 2);
	s->acting = true;
	if (!s->ends && s->id == id && rng_percent(RNG, 35))
		conn_turn(s, s->turn);
	s->in_handler = s->acting = false;
	if (s->process->dying || s->id != id)
		return 0;
	if (!s->ends) {
		conn_plan_turn(s);
		return 0;
	}
	conn_trace(s->process->node, CONN_TR_DESTROY, s->index, s->state, 1, 0);
	conn_seen.destroyed[s->state]++;
	s->id = NULL;
	s->destroyed = true;
	s->destroyed_at = ++conn.destroyed;
	conn_number_rest(s->process->node, s->local_id, false);
	return -1;
}

int conn_handler(struct ib_cm_id *id, struct ib_cm_event *event)
{
	struct conn_side *s = id->context;

	if (s->process->dying)
		return 0;
	if (judge_is_child(event)) {
		s = judge_child(s, id, event);
	} else {
		sim_check(s->id == id, "side %u: %s after its end", s->index,
			  conn_event_name(event->event));
		judge_event(s, event);
	}
	conn_strike(s->process);
	return judge_react(s, id);
}
