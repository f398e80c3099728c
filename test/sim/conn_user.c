/* conn_user.c: consumers of CM ids: what they ask for, and when, by lot.
 * In: turns    Out: calls
 */
#include "conn.h"

/* ---- turns ----------------------------------------------------------------------------------- */

struct conn_choice {
	enum conn_call call;
	u32 weight;
};

/* In each state: calls by weight of a hundred; the rest is waiting, and 4 of it destruction. */
static const struct conn_choice conn_choices[CONN_STATES][3] = {
	[IB_CM_REQ_SENT] = { { CONN_REJ, 3 } },
	[IB_CM_MRA_REQ_RCVD] = { { CONN_REJ, 3 } },
	[IB_CM_REQ_RCVD] = { { CONN_REP, 70 }, { CONN_REJ, 8 }, { CONN_MRA, 10 } },
	[IB_CM_MRA_REQ_SENT] = { { CONN_REP, 80 }, { CONN_REJ, 8 } },
	[IB_CM_REP_SENT] = { { CONN_REJ, 3 } },
	[IB_CM_MRA_REP_RCVD] = { { CONN_REJ, 3 } },
	[IB_CM_REP_RCVD] = { { CONN_RTU, 75 }, { CONN_REJ, 5 }, { CONN_MRA, 10 } },
	[IB_CM_MRA_REP_SENT] = { { CONN_RTU, 80 }, { CONN_REJ, 5 } },
	[IB_CM_ESTABLISHED] = { { CONN_DREQ, 12 } },
	[IB_CM_DREQ_RCVD] = { { CONN_DREP, 85 } },
	[IB_CM_SIDR_REQ_RCVD] = { { CONN_SIDR_REP, 85 } },
};
enum { DESTROY_WEIGHT = 4 };

/* The queue pair has received something: its peer believes in the connection. */
static bool turn_may_establish(const struct conn_side *s)
{
	return (s->state == IB_CM_REP_SENT || s->state == IB_CM_MRA_REP_RCVD) && s->peer != NULL &&
	       s->peer->established && s->peer->peer == s;
}

/* No LAP of an earlier exchange is in flight, or waits for a handler, that would be taken for
 * the new one. */
static bool turn_lap_is_over(const struct conn_side *s)
{
	return world.now > s->sent_ns + conn.plan.delay_ns + conn.plan.jitter_ns &&
	       (s->peer->id == NULL || conn_pending(s->peer) == 0);
}

/* Alternate paths: only the active side proposes them. True: it has done something. */
static bool turn_alternate(struct conn_side *s)
{
	if (s->state != IB_CM_ESTABLISHED)
		return false;
	switch (s->lap) {
	case IB_CM_LAP_RCVD:
		conn_do(s, rng_percent(RNG, 20) ? CONN_MRA : CONN_APR);
		return true;
	case IB_CM_MRA_LAP_SENT:
		conn_do(s, CONN_APR);
		return true;
	case IB_CM_LAP_UNINIT:
	case IB_CM_LAP_IDLE:
		if (s->role != CONN_ACTIVE || !rng_percent(RNG, 15) || !turn_lap_is_over(s))
			return false;
		conn_do(s, CONN_LAP);
		return true;
	default:
		return false;
	}
}

/* A call that the state forbids, by a consumer that has been told everything. */
static void turn_wild(struct conn_side *s)
{
	enum conn_call call = (enum conn_call)rng_below(RNG, CONN_CALLS);
	enum ib_cm_state state = s->state;
	enum ib_cm_lap_state lap = s->lap;

	if (conn_pending(s) == 0 && !s->in_handler && !conn_model_call(call, &state, &lap))
		conn_do(s, call);
}

/* No request of the last exchange is in flight, that would be taken for one of the next. */
static bool turn_may_ask_again(const struct conn_side *s)
{
	return (s->role == CONN_ACTIVE || s->role == CONN_ASKS) &&
	       rng_percent(RNG, MAX(60u, conn.plan.again_percent)) &&
	       conn_pending(s) == 0 && !s->in_handler &&
	       conn.attempt_count < conn.plan.attempts &&
	       world.now > s->sent_ns + conn.plan.delay_ns + conn.plan.jitter_ns;
}

/* The id is idle again: its consumer uses it for another request, or lets go of it. */
static void turn_again(struct conn_side *s)
{
	struct conn_attempt *a = s->attempt;
	struct conn_side *next;

	if (!turn_may_ask_again(s)) {
		if (rng_percent(RNG, 60))
			conn_destroy(s);
		return;
	}
	next = conn_side_create(s->process, s->role, &conn.attempts[conn.attempt_count]);
	*next->attempt = (struct conn_attempt){ .number = conn.attempt_count++,
						.role = s->role,
						.first = next,
						.from = a->from,
						.to = a->to,
						.service = rng_below(RNG, CONN_SERVICES),
						.since = world.now };
	if (rng_percent(RNG, conn.plan.again_percent))
		next->attempt->before = a;
	next->id = s->id;
	next->local_id = s->local_id;
	next->id->context = next;
	next->reused = true;
	if (next->attempt->before != NULL || rng_percent(RNG, 50))
		next->req.qp_num = s->req.qp_num;
	s->id = NULL;
	conn_do(next, next->role == CONN_ACTIVE ? CONN_REQ : CONN_SIDR_REQ);
	conn_plan_turn(next);
}

static void turn_draw(struct conn_side *s)
{
	const struct conn_choice *choices = conn_choices[s->state];
	u32 dice = rng_below(RNG, 100);

	if ((s->keeps && s->state == IB_CM_ESTABLISHED) ||
	    (s->waits && conn_model_ends(s->state)))
		return;
	for (u32 i = 0; i < ARRAY_LEN(conn_choices[0]); i++) {
		if (dice < choices[i].weight) {
			conn_do(s, choices[i].call);
			return;
		}
		dice -= choices[i].weight;
	}
	if (dice < DESTROY_WEIGHT)
		conn_destroy(s);
}

/* Nothing succeeds any more but the end. */
static void turn_without_device(struct conn_side *s)
{
	if (s->role != CONN_LISTENS && rng_percent(RNG, 50))
		conn_do(s, (enum conn_call)rng_below(RNG, CONN_ESTABLISH));
	if (rng_percent(RNG, 50))
		conn_destroy(s);
	else
		conn_plan_turn(s);
}

void conn_turn(void *arg, u64 n)
{
	struct conn_side *s = arg;

	if (s->id == NULL || s->turn != n || s->process->dying || s->late > 0)
		return;
	if (s->process->unplugged) {
		turn_without_device(s);
		return;
	}
	if (conn.quiet) {
		conn_settle(s);
		return;
	}
	if (rng_permille(RNG, conn.plan.wild_permille))
		turn_wild(s);
	if (s->state == IB_CM_IDLE)
		turn_again(s);
	else if (turn_may_establish(s) && rng_percent(RNG, 30))
		conn_do(s, CONN_ESTABLISH);
	else if (!turn_alternate(s))
		turn_draw(s);
	conn_wake(s->process);
	if (s->id != NULL)
		conn_plan_turn(s);
}

void conn_plan_turn(struct conn_side *s)
{
	u64 most = conn.plan.think_ns, wait;

	if (conn.quiet) /* all answer in time now */
		most = MIN(most, 4096ull << conn.plan.timeout);
	if (conn_model_ends(s->state) ||
	    (s->state == IB_CM_ESTABLISHED && s->lap != IB_CM_LAP_RCVD &&
	     s->lap != IB_CM_MRA_LAP_SENT))
		wait = rng_range(RNG, most / 2, 2 * most); /* for its peer, mostly */
	else
		wait = rng_skewed(RNG, 1000, most);
	world_at(world.now + wait, conn_turn, s, ++s->turn);
}

/* ---- the end of the script ------------------------------------------------------------------- */

void conn_settle(struct conn_side *s)
{
	if (s->id == NULL || s->process->dying || s->process->unplugged || s->late > 0)
		return;
	switch (s->state) {
	case IB_CM_REQ_RCVD:
	case IB_CM_MRA_REQ_SENT:
		conn_do(s, CONN_REP);
		break;
	case IB_CM_REP_RCVD:
	case IB_CM_MRA_REP_SENT:
		conn_do(s, CONN_RTU);
		break;
	case IB_CM_DREQ_RCVD:
		conn_do(s, CONN_DREP);
		break;
	case IB_CM_SIDR_REQ_RCVD:
		conn_do(s, CONN_SIDR_REP);
		break;
	case IB_CM_ESTABLISHED:
		if (s->lap == IB_CM_LAP_RCVD || s->lap == IB_CM_MRA_LAP_SENT)
			conn_do(s, CONN_APR);
		break;
	default:
		break;
	}
	conn_wake(s->process);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct conn_node *begin_node(void)
{
	return &conn.nodes[rng_below(RNG, conn.plan.nodes)];
}

static void begin_side(void *arg, u64 n)
{
	struct conn_attempt *a = arg;
	struct conn_node *node = n == 0 ? a->from : a->to;
	enum conn_role role = a->role;
	struct conn_side *s;

	if (node->live == NULL || node->live->dying || node->live->unplugged || conn.quiet)
		return;
	s = conn_side_create(node->live, role, a);
	*(n == 0 ? &a->first : &a->second) = s;
	conn_side_open(s);
	conn_do(s, role == CONN_ASKS ? CONN_SIDR_REQ : CONN_REQ);
	conn_wake(s->process);
	conn_plan_turn(s);
}

void conn_begin_attempt(void *arg, u64 n)
{
	struct conn_attempt *a = &conn.attempts[conn.attempt_count];

	if (conn.attempt_count == conn.plan.attempts || conn.quiet)
		return;
	*a = (struct conn_attempt){ .number = conn.attempt_count++,
				    .from = begin_node(),
				    .to = begin_node(),
				    .service = rng_below(RNG, CONN_SERVICES),
				    .since = world.now };
	a->role = rng_percent(RNG, conn.plan.peer_percent) && a->from != a->to ? CONN_PEER
		  : rng_percent(RNG, conn.plan.ask_percent)			? CONN_ASKS
										: CONN_ACTIVE;
	begin_side(a, 0);
	if (a->role == CONN_PEER)
		world_at(world.now + rng_skewed(RNG, 1, conn.plan.think_ns), begin_side, a, 1);
}
