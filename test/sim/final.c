/* final.c: a whole run, and its end: what is under way must end, and everything must be given back.
 * In: a world    Out: the oracles' last word
 */
#include <stdlib.h>
#include <string.h>

#include "tagged.h"

enum {
	QUIET_FINE = 100,
	QUIET_LIMIT_S = 600,
	END_HANDS_MS = 200,
	END_LONG_TIMEOUT = 12, /* 16 ms */
};

typedef unsigned long long ull;

static bool run_is_over(void)
{
	return world.requests_left == 0 || world.turns >= RUN_TURNS;
}

/* ---- quiet ---- */

/* A request that may wait for ever: its queue pair never gives up, and nobody will come. */
static bool quiet_is_hopeless(const struct sqp *q)
{
	/* Nobody will hear of it. */
	if (q->send_cq->overflowed &&
	    (q->ending || sqp_state(q) == IBV_QPS_ERR || sqp_state(q) == IBV_QPS_SQE))
		return true;
	if (!sqp_is_reliable(q))
		return false;
	return q->timeout == 0 &&
	       (ends_may_be_silent(q) || !sqp_state_receives(q->peer->shown_state) ||
		(q->peer->proc->dead && path_is_air(q->proc, q->peer->proc)));
}

/* Its queue pair will not send what is posted. */
static bool quiet_is_held(const struct sqp *q)
{
	enum ibv_qp_state s = sqp_state(q);

	return s == IBV_QPS_RESET || s == IBV_QPS_INIT || s == IBV_QPS_RTR;
}

/* The oldest request that is to have a completion. A trailing unsignaled one has none. */
static struct send *quiet_oldest(struct sqp *q)
{
	list_for_each(s, &q->sends, struct send, node)
		if (s->signaled)
			return s;
	return NULL;
}

static struct sqp *quiet_waiting(void)
{
	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[i];

		if (q->engine != NULL && !q->proc->dead && quiet_oldest(q) != NULL &&
		    !quiet_is_held(q) && !quiet_is_hopeless(q))
			return q;
	}
	return NULL;
}

static bool quiet_is_done(void)
{
	return lone_is_done() && quiet_waiting() == NULL && tagged_is_done() && path_is_quiet();
}

static void quiet_turn(void *arg, u64 n)
{
	struct proc *p = arg;

	if (p->dead || !world.quiet)
		return;
	if (!p->asleep) {
		program_poll(p);
		program_quiet_turn(p);
	}
	proc_wake(p, world.now);
	world_at(world.now + (n < QUIET_FINE ? NS_PER_MS : 50 * NS_PER_MS), quiet_turn, p, n + 1);
}

/* Everything that was broken is mended, and everybody does what others wait for. */
static void quiet_begin(void)
{
	trace(NULL, TR_QUIET, 0, 0, 0, 0);
	world.quiet = true;
	air_clear_up();
	for (u32 i = 0; i < world.plan.nodes; i++)
		node_set_port(&world.nodes[i], true);
	for (u32 i = 0; i < world.plan.procs; i++)
		proc_continue(world.procs[i]);
	lone_begin();
	for (u32 i = 0; i < world.plan.procs; i++)
		quiet_turn(world.procs[i], 0);
}

/* A receive request whose completion is lost takes its queue pair along. */
static void quiet_check_overflowed(const struct sqp *q)
{
	if (q->engine == NULL || q->forgotten || q->proc->dead || !q->recv_cq->overflowed)
		return;
	for (u32 i = 0; i < q->message_count; i++)
		sim_check(!sqp_is_reliable(q) || !q->messages[i]->sent ||
				  q->messages[i]->delivered ||
				  q->messages[i]->fault == FAULT_DUPLICATE ||
				  q->messages[i]->sent_status != IBV_WC_SUCCESS ||
				  sqp_state(q) == IBV_QPS_ERR,
			  "qp %06x never heard of #%llu, but is in state %u", q->qpn,
			  (ull)q->messages[i]->tag, sqp_state(q));
}

static void quiet_wait(void)
{
	struct sqp *q;

	/* One round in any case: acknowledgements of what is done, and what they set going. */
	world_run(world.now + 20 * NS_PER_MS, NULL);
	world_run(world.now + QUIET_LIMIT_S * NS_PER_S, quiet_is_done);
	q = quiet_waiting();
	if (q != NULL)
		sim_fail("qp %06x in state %u: #%llu has no completion after %u s of quiet", q->qpn,
			 sqp_state(q), (ull)quiet_oldest(q)->tag,
			 QUIET_LIMIT_S);
	if (world.plan.tagged)
		tagged_check_done();
	world_run(world.now + 20 * NS_PER_MS, NULL);
	for (u32 i = 0; i < sqp_count; i++)
		quiet_check_overflowed(sqps[i]);
}

/* ---- the last look ---- */

/* Everything outstanding is flushed, at once. */
static void end_flush(void)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->engine != NULL && !sqps[i]->proc->dead &&
		    sqp_state(sqps[i]) != IBV_QPS_RESET)
			sqp_modify(sqps[i], IBV_QPS_ERR);
	for (u32 i = 0; i < world.plan.procs; i++)
		if (!world.procs[i]->dead)
			program_poll(world.procs[i]);
	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[i];

		if (q->engine == NULL || q->proc->dead)
			continue;
		if (q->send_cq->overflowed || q->recv_cq->overflowed)
			continue;
		sim_check(quiet_oldest(q) == NULL, "qp %06x: #%llu is not flushed", q->qpn,
			  (ull)quiet_oldest(q)->tag);
		sim_check(list_empty(&q->recvs), "qp %06x: receive #%llu is not flushed", q->qpn,
			  (ull)list_first(&q->recvs, struct recv, node)->tag);
	}
}

static bool end_is_fatal_delivery(const struct message *m)
{
	return m->delivered && m->delivered_status != IBV_WC_SUCCESS;
}

/* May a message to the queue pair have been sent twice, without a refusal in between: by the wire,
 * or by a timeout during which one of the processes did not run? Then the first one may be refused,
 * and the second one taken. */
static bool end_may_be_doubled(const struct sqp *q)
{
	return path_is_air(q->proc, q->peer->proc) || q->peer->timeout < END_LONG_TIMEOUT ||
	       reason_stopped_ns(q->proc) != 0 || reason_stopped_ns(q->peer->proc) != 0;
}

/* What both ends say of a message. */
static void end_check_message(const struct sqp *q, const struct message *m)
{
	/* all that arrived was seen */
	bool complete = !q->forgotten && !q->proc->dead && !q->recv_cq->overflowed &&
			(m->srq == NULL || !m->srq->proc->dead);

	if (!m->sent || !sqp_is_reliable(q))
		return;
	switch (m->sent_status) {
	case IBV_WC_SUCCESS:
		sim_check(!complete || m->fault == FAULT_DUPLICATE ||
				  (m->delivered && !end_is_fatal_delivery(m)),
			  "qp %06x: #%llu was sent with success, but has not arrived", q->qpn,
			  (ull)m->tag);
		break;
	case IBV_WC_REM_INV_REQ_ERR:
		sim_check(!complete || m->delivered_status == IBV_WC_LOC_LEN_ERR ||
				  m->fault == FAULT_SRQ || m->misfit || xrc_is_refused(m->srq),
			  "qp %06x: #%llu was refused as invalid for no reason", q->qpn,
			  (ull)m->tag);
		break;
	case IBV_WC_REM_OP_ERR:
		sim_check(!complete || m->delivered_status == IBV_WC_LOC_PROT_ERR,
			  "qp %06x: #%llu failed remotely for no reason", q->qpn, (ull)m->tag);
		break;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		sim_check(!m->delivered || end_may_be_doubled(q),
			  "qp %06x: #%llu was given up for lack of a receive request, "
			  "but has arrived",
			  q->qpn, (ull)m->tag);
		break;
	default:
		break;
	}
	sim_check(m->sent_status != IBV_WC_SUCCESS || !end_is_fatal_delivery(m),
		  "qp %06x: #%llu was sent with success, but its receiver failed", q->qpn,
		  (ull)m->tag);
}

static void end_check_all(void)
{
	for (u32 i = 0; i < sqp_count; i++) {
		for (u32 m = 0; m < sqps[i]->message_count; m++)
			end_check_message(sqps[i], sqps[i]->messages[m]);
		reason_check_flushed(sqps[i]);
	}
	for (u32 i = 0; i < world.plan.procs; i++)
		arena_check(world.procs[i], 0, ARENA_BYTES, "at the end");
	for (u32 i = 0; i < counter_count; i++)
		counter_check(counters[i]);
}

static void end_free_all(void)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->engine != NULL)
			sqp_destroy(sqps[i]);
	if (world.plan.hands) /* other processes hear that a target is gone, and flush */
		world_run(world.now + END_HANDS_MS * NS_PER_MS, NULL);
	for (u32 i = 0; i < sqp_count; i++)
		sqp_free(sqps[i]);
	for (u32 i = 0; i < counter_count; i++)
		counter_destroy(counters[i]);
	for (u32 i = 0; i < world.plan.procs; i++)
		program_teardown(world.procs[i]);
}

void final_run(void)
{
	sqp_count = counter_count = 0;
	next_tag = 1;
	groups_begin();
	for (u32 i = 0; i < world.plan.procs; i++)
		path_connect(world.procs[i]);
	for (u32 i = 0; i < world.plan.procs; i++)
		program_setup(world.procs[i]);
	chaos_begin();
	world_run(SIM_NEVER - 1, run_is_over);
	quiet_begin();
	quiet_wait();
	if (world.plan.tagged)
		tagged_finish();
	end_flush();
	if (world.plan.tagged)
		tagged_check_flushed();
	end_check_all();
	end_free_all();
}
