/* conn_final.c: the end of a history of connections: nothing is lost any more, consumers answer,
 * and then both ends must agree, all must end in the time that the specification allows, and
 * nothing may be left.
 */
#include "conn.h"

enum { FINAL_ROUNDS = 20 };

/* ---- all that waits ends --------------------------------------------------------------------- */

static u64 final_exponent_ns(u8 exponent)
{
	return 4096ull << exponent;
}

/* Longer than anything may take that waits for a peer, or for time: all retries, each answered by
 * an MRA; timewait. */
static u64 final_limit_ns(void)
{
	const struct conn_plan *p = &conn.plan;
	u64 one = final_exponent_ns(p->timeout) + 2 * final_exponent_ns(p->life_time) +
		  final_exponent_ns(p->mra_time) + 4 * final_exponent_ns(p->ack_delay) + NS_PER_MS;

	return 16 * one + 2 * (p->delay_ns + p->jitter_ns);
}

static void final_settle_all(void)
{
	for (u32 i = 0; i < conn.side_count; i++)
		conn_settle(conn.sides[i]);
}

/* A side whose exchange is not over; NULL: none. */
static const struct conn_side *final_waiting(void)
{
	for (u32 i = 0; i < conn.side_count; i++) {
		const struct conn_side *s = conn.sides[i];

		if (s->id != NULL && s->state != IB_CM_IDLE && s->state != IB_CM_LISTEN &&
		    (s->state != IB_CM_ESTABLISHED || s->lap == IB_CM_LAP_SENT ||
		     s->lap == IB_CM_MRA_LAP_RCVD))
			return s;
	}
	return NULL;
}

static void final_wait(void)
{
	u64 limit = 4 * final_limit_ns();
	const struct conn_side *s;

	for (u32 i = 0; i < FINAL_ROUNDS; i++) {
		final_settle_all();
		world_run(world.now + limit / FINAL_ROUNDS, NULL);
	}
	s = final_waiting();
	sim_check(s == NULL, "side %u is in state %s for ever", s->index,
		  conn_state_name(s->state));
	for (u32 i = 0; i < conn.side_count; i++) {
		s = conn.sides[i];
		sim_check(s->id == NULL || !s->owed,
			  "side %u is in state %s, its call was refused, and no event says why",
			  s->index, conn_state_name(s->state));
	}
}

/* ---- both ends agree ------------------------------------------------------------------------- */

/* A side that is established alone: its peer has said farewell, but it was lost; or was killed. */
static void final_judge_alone(const struct conn_side *s)
{
	const struct conn_side *p = s->peer;
	/* its DREQ may have given way to those of later ones */
	bool forgotten = p->destroyed && conn.plan.orphans != 0;

	sim_check(s->farewells == 0, "side %u was told that side %u has left, but does not know it",
		  s->index, p->index);
	sim_check(p->killed || forgotten || p->sent[CM_REJ - CM_REQ] > 0 ||
			  p->sent[CM_DREQ - CM_REQ] > conn.plan.retries,
		  "side %u is established, and side %u, which is not, has told it nothing",
		  s->index, p->index);
	/* a DREQ is sent eight times in its name */
	sim_check(!p->killed || !conn.plan.answers || conn.plan.cuts || p->process->unplugged ||
			  (p->state != IB_CM_ESTABLISHED && p->state != IB_CM_DREQ_SENT),
		  "side %u was killed, and nobody has told side %u", p->index, s->index);
	sim_check(!conn.plan.fair || !p->left || forgotten,
		  "side %u has left, and side %u never heard of it", p->index, s->index);
}

/* Who is alone for good reason goes. */
static void final_judge(struct conn_side *s)
{
	if (s->id == NULL || s->state != IB_CM_ESTABLISHED)
		return;
	sim_check(s->established && s->peer != NULL, "side %u is established with nobody",
		  s->index);
	if (s->peer->id == NULL || s->peer->state != IB_CM_ESTABLISHED) {
		final_judge_alone(s);
		conn_destroy(s);
	} else {
		sim_check(s->peer->peer == s, "side %u is connected to side %u, and that to %u",
			  s->index, s->peer->index, s->peer->peer->index);
	}
}

/* ---- everybody goes -------------------------------------------------------------------------- */

static void final_leave_all(void)
{
	for (u32 i = 0; i < conn.side_count; i++) {
		struct conn_side *s = conn.sides[i];

		if (s->id == NULL || s->state != IB_CM_ESTABLISHED || rng_percent(RNG, 30))
			continue;
		if (rng_percent(RNG, 60))
			conn_do(s, CONN_DREQ);
		else
			conn_destroy(s);
		conn_wake(s->process);
	}
}

/* Nothing is lost any more, so nobody is left alone. */
static void final_judge_left(const struct conn_side *s)
{
	sim_check(s->id == NULL || s->state != IB_CM_ESTABLISHED ||
			  (s->peer->id != NULL && s->peer->state == IB_CM_ESTABLISHED),
		  "side %u has left, and side %u does not know it", s->peer->index, s->index);
}

static void final_destroy_all(void)
{
	for (u32 i = 0; i < conn.side_count; i++)
		if (conn.sides[i]->id != NULL)
			conn_destroy(conn.sides[i]);
}

/* ---- nothing is left ------------------------------------------------------------------------- */

static void final_check_process(struct conn_process *p) NO_THREAD_SAFETY /* nobody else has it */
{
	struct cm *cm = p->cm;

	sim_check(cm_id_count(cm) == 0, "n%u: %u ids are left", p->node->id, cm_id_count(cm));
	sim_check(conn_will_count(p) == 0, "n%u: %u wills are left", p->node->id,
		  conn_will_count(p));
	sim_check(p->listens == 0, "n%u: %u services are left", p->node->id, p->listens);
	sim_check(work_queue_next_ns(&p->queue) == TIMER_NEVER &&
			  timer_next_ns(&cm->timers) == TIMER_NEVER,
		  "n%u: a timer is armed at the end", p->node->id);
	sim_check(cm->backlog == 0, "n%u: %u requests wait for handlers", p->node->id, cm->backlog);
	for (u32 i = 0; i < CM_KEYS; i++)
		sim_check(cm->tables[i].count == 0, "n%u: %u keys are left in table %u",
			  p->node->id, cm->tables[i].count, i);
	for (u32 i = CM_DROP_FORMAT; i <= CM_DROP_MEMORY; i++)
		sim_check(i == CM_DROP_UNKNOWN ||
				  cm->counters[i] == (i == CM_DROP_BACKLOG ? p->refused : 0),
			  "n%u: counter %u is %llu", p->node->id, i,
			  (unsigned long long)cm->counters[i]);
}

void conn_final(void)
{
	final_wait();
	for (u32 i = 0; i < conn.side_count; i++)
		final_judge(conn.sides[i]);
	final_leave_all();
	final_wait();
	for (u32 i = 0; i < conn.side_count; i++)
		final_judge_left(conn.sides[i]);
	final_destroy_all();
	world_run(world.now + 2 * final_limit_ns(), NULL);
	sim_check(conn.flying == 0, "%u MADs are in flight at the end", conn.flying);
	for (u32 i = 0; i < conn.plan.nodes; i++)
		if (conn.nodes[i].live != NULL)
			final_check_process(conn.nodes[i].live);
}
