/* program.c: what the simulated programs do with their verbs, and what happens to them.
 * In: turns    Out: verbs by lot; stops, deaths, ports that go down
 */
#include <stdlib.h>

#include "tagged.h"

enum { PROGRAM_CQES = 8192 };

struct counter *counters[SIM_PROCS * SIM_PDS];
u32 counter_count;

/* ---- setup and teardown ---- */

static void setup_cq(struct proc *p, bool small)
{
	struct scq *cq = calloc(1, sizeof(*cq));

	if (cq == NULL ||
	    cq_init(&cq->cq, small ? (u32)rng_skewed(RNG, 1, 16) : PROGRAM_CQES) != 0)
		abort();
	cq->proc = p;
	cq->small = small;
	cq->cq.overflow = event_overflow;
	cq->cq.credit = ibt_credit;
	p->cqs[p->cq_count++] = cq;
}

static void setup_srq(struct proc *p)
{
	struct srq *s = calloc(1, sizeof(*s));
	struct ibt_srq_init init;
	struct ibv_srq_attr made;

	if (s == NULL)
		abort();
	s->proc = p;
	s->pd = rng_below(RNG, SIM_PDS);
	s->max_wr = (u32)rng_skewed(RNG, 1, 64);
	s->max_sge = (u32)rng_range(RNG, 1, MAX_SGES);
	list_init(&s->recvs);
	init = (struct ibt_srq_init){
		.pd = s->pd + 1, .max_wr = s->max_wr, .max_sge = s->max_sge, .owner = s
	};
	sim_check(ibt_srq_create(p->ibt, &init, &s->srq) == 0,
		  "a shared receive queue cannot be created");
	ibt_srq_query(s->srq, &made);
	s->max_wr = made.max_wr;
	p->srq = s;
}

static void setup_keys(struct proc *p)
{
	for (u32 pd = 0; pd < SIM_PDS; pd++) {
		struct mem_region r = { .addr = (u64)(uintptr_t)p->arena->bytes,
					.iova = (u64)(uintptr_t)p->arena->bytes,
					.length = ARENA_BYTES,
					.access = IBV_ACCESS_LOCAL_WRITE,
					.pd = pd + 1,
					.flags = MEM_CONTIGUOUS };

		sim_check(mem_register(&p->mem, &r, &p->local_key[pd]) == 0, "no key");
		counters[counter_count++] = counter_create(p, pd);
	}
}

void program_setup(struct proc *p)
{
	u32 cqs = world.plan.tagged ? 0 : (u32)rng_range(RNG, 1, SIM_CQS);

	for (u32 i = 0; i < cqs; i++)
		setup_cq(p, i != 0 && rng_percent(RNG, world.plan.small_cq_percent));
	setup_keys(p);
	if (world.plan.tagged)
		tagged_setup(p);
	else if (rng_percent(RNG, 40))
		setup_srq(p);
	if (world.plan.wide && rng_percent(RNG, 70))
		xrc_setup(p);
	proc_wake(p, p->program_ns);
}

void program_teardown(struct proc *p)
{
	for (u32 pd = 0; pd < SIM_PDS; pd++)
		sim_check(mem_deregister(&p->mem, p->local_key[pd]) == 0, "a key is gone");
	if (p->tm != NULL)
		tagged_teardown(p);
	if (p->srq != NULL) {
		event_check_taken(p->srq);
		list_for_each_safe(r, &p->srq->recvs, struct recv, node)
			recv_free(r, p);
		ibt_srq_destroy(p->srq->srq);
		free(p->srq);
	}
	xrc_teardown(p);
	for (u32 i = 0; i < p->cq_count; i++) {
		sim_check(cq_looks_empty(&p->cqs[i]->cq), "p%u: a completion is left at the end",
			  p->id);
		cq_fini(&p->cqs[i]->cq);
		free(p->cqs[i]);
	}
}

/* ---- turns ---- */

static struct sqp *turn_pick(struct proc *p)
{
	u32 begin = rng_below(RNG, sqp_count);

	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[(begin + i) % sqp_count];

		if (q->proc == p && q->engine != NULL && !q->ending)
			return q;
	}
	return NULL;
}

/* One that has just received something owes its peer an acknowledgement. */
static struct sqp *turn_pick_victim(struct proc *p)
{
	struct sqp *q = p->fresh;

	return q != NULL && q->engine != NULL && !q->ending && rng_percent(RNG, 60) ? q
										     : turn_pick(p);
}

static u32 turn_count(u32 type)
{
	u32 n = 0;

	for (u32 i = 0; i < sqp_count; i++)
		n += sqps[i]->engine != NULL && !sqps[i]->ending && !sqps[i]->proc->dead &&
		     (type == IBV_QPT_UD) == (sqps[i]->type == IBV_QPT_UD);
	return n;
}

static u32 turn_draw_type(const struct proc *other)
{
	if (other->xrc[0] != NULL && rng_percent(RNG, world.plan.hands ? 70 : 30))
		return IBV_QPT_XRC_SEND;
	return rng_percent(RNG, 80) ? IBV_QPT_RC : IBV_QPT_UC;
}

static void turn_open(struct proc *p)
{
	struct proc *other = world.procs[rng_below(RNG, world.plan.procs)];

	if (turn_count(IBV_QPT_RC) < 2 * world.plan.pairs && proc_runs(other) && !other->asleep)
		pair_open(p, other, turn_draw_type(other));
	if (turn_count(IBV_QPT_UD) < world.plan.datagram_qps)
		datagram_open(p);
}

static void turn_receive(struct proc *p)
{
	if (p->srq != NULL && rng_percent(RNG, 5))
		event_arm_limit(p->srq);
	if (p->srq != NULL && !rng_percent(RNG, world.plan.late_percent))
		post_srq(p->srq, (u32)rng_range(RNG, 1, p->srq->max_wr));
	xrc_turn(p);
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->proc == p && sqps[i]->engine != NULL && !sqps[i]->ending &&
		    !rng_percent(RNG, world.plan.late_percent))
			post_recvs(sqps[i], (u32)rng_skewed(RNG, 1, 64));
}

static void turn_drain_back(void *arg, u64 n)
{
	struct sqp *q = arg;

	if (q->engine == NULL || q->proc->dead || q->ending || sqp_state(q) != IBV_QPS_SQD)
		return;
	if (q->proc->stopped || q->proc->asleep)
		world_at(world.now + 50000, turn_drain_back, q, n);
	else {
		event_check_drained(q);
		sqp_modify(q, IBV_QPS_RTS);
	}
}

static void turn_withdraw(struct sqp *q)
{
	u32 skip = rng_below(RNG, q->cell_count);

	list_for_each(c, &q->cells, struct cell, node)
		if (skip-- == 0) {
			if (c->victim_of == 0)
				cell_withdraw(c);
			break;
		}
	cell_create(q);
}

/* The first of them, from some place on, that can be bound anew. */
static void turn_rebind(struct sqp *q)
{
	u32 skip = rng_below(RNG, q->cell_count);
	struct cell *found = NULL;

	list_for_each(c, &q->cells, struct cell, node) {
		if (key_is_rebindable(c))
			found = c;
		if (skip-- == 0 && found != NULL)
			break;
	}
	if (found != NULL)
		key_rebind(found);
}

/* A window that is bound to nothing is soon bound again, or wrongly, or one that is bound. */
static void turn_bind(struct sqp *q)
{
	struct cell *c = window_free_of(q, world.plan.fault_permille != 0 && rng_percent(RNG, 5));

	if (c != NULL)
		key_rebind(c);
}

static void turn_modify(struct sqp *q)
{
	enum ibv_qp_state state = sqp_state(q);

	switch (rng_below(RNG, 7)) {
	case 0:
		sqp_end(q);
		break;
	case 5:
	case 6:
		pair_reopen(q);
		break;
	case 1:
		sqp_destroy(q);
		break;
	case 2:
		sqp_modify(q, IBV_QPS_RESET);
		q->ending = true;
		break;
	case 3:
		if (state != IBV_QPS_RTS)
			break;
		sqp_modify(q, IBV_QPS_SQD);
		world_at(world.now + rng_skewed(RNG, 1000, 5 * NS_PER_MS), turn_drain_back, q, 0);
		break;
	default:
		if (q->type != IBV_QPT_UD)
			turn_withdraw(q);
		break;
	}
}

/* A send queue that has failed goes on; all that it flushed has been seen. */
static bool turn_recover(struct sqp *q)
{
	if (sqp_state(q) != IBV_QPS_SQE || !list_empty(&q->sends) || !rng_percent(RNG, 50))
		return false;
	q->flushed = false;
	sqp_modify(q, IBV_QPS_RTS);
	return true;
}

/* Queue pairs in error that have nothing to say any more, and those whose peer has gone. */
static void turn_tidy(struct proc *p)
{
	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[i];
		enum ibv_qp_state state = sqp_state(q);

		if (q->proc != p || q->engine == NULL || q->ending)
			continue;
		judge_patience(q);
		if (turn_recover(q))
			continue;
		if (q->send_cq->overflowed || q->recv_cq->overflowed)
			sqp_end(q);
		else if ((state == IBV_QPS_ERR || state == IBV_QPS_SQE) && rng_percent(RNG, 20))
			sqp_end(q);
		else if (q->peer != NULL &&
			 (q->peer->engine == NULL || q->peer->ending || q->peer->proc->dead) &&
			 rng_percent(RNG, 1))
			sqp_end(q);
	}
}

void program_turn(struct proc *p)
{
	struct sqp *q;

	/* Somebody still sleeps inside a verb, and the run does not end before. */
	if (world.turns >= RUN_TURNS)
		return;
	world.turns++;
	if (p->tm != NULL) {
		tagged_turn(p);
		return;
	}
	turn_open(p);
	turn_receive(p);
	q = turn_pick(p);
	if (q != NULL && world.requests_left > 0)
		post_sends(q);
	turn_tidy(p);
	q = turn_pick_victim(p);
	if (q != NULL && rng_permille(RNG, world.plan.modify_permille))
		turn_modify(q);
	q = turn_pick(p);
	if (q != NULL)
		mig_turn(q);
	if (q != NULL && q->type != IBV_QPT_UD && rng_permille(RNG, world.plan.rebind_permille))
		turn_rebind(q);
	if (q != NULL && q->type != IBV_QPT_UD && rng_percent(RNG, 40))
		turn_bind(q);
	if (q != NULL && q->type == IBV_QPT_UD && rng_percent(RNG, 10))
		group_change(q);
	if (rng_percent(RNG, 1))
		arena_check(p, 0, ARENA_BYTES, "on a look around");
}

void program_poll(struct proc *p)
{
	u32 often = world.plan.fills ? 25 : 80;

	if (p->tm != NULL)
		tagged_poll(p);
	for (u32 i = 0; i < p->cq_count; i++)
		if (world.quiet || rng_percent(RNG, often))
			judge_poll(p, p->cqs[i],
				   world.quiet || rng_percent(RNG, 50) ? 1 << 20
								       : (int)rng_range(RNG, 1, 8));
}

static void quiet_close(struct sqp *q)
{
	struct list_head *last = q->sends.prev;

	if (q->type == IBV_QPT_UD || last == &q->sends ||
	    list_entry(last, struct send, node)->signaled || sqp_state(q) != IBV_QPS_RTS)
		return;
	post_closing(q);
}

void program_quiet_turn(struct proc *p)
{
	if (p->tm != NULL) {
		tagged_quiet_turn(p);
		return;
	}
	if (p->srq != NULL)
		post_srq(p->srq, p->srq->max_wr);
	xrc_quiet_turn(p);
	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[i];

		if (q->proc != p || q->engine == NULL)
			continue;
		judge_patience(q);
		if (q->ending || q->lone)
			continue;
		post_recvs(q, 64);
		/* no memory for what the peer sends: then not at all */
		if (q->srq == NULL && q->recv_count == 0 && q->cap.max_recv_wr != 0)
			sqp_end(q);
		else
			quiet_close(q);
	}
	lone_turn(p);
}

/* ---- chaos ---- */

static void chaos_continue(void *arg, u64 n)
{
	proc_continue(arg);
}

static void chaos_port_up(void *arg, u64 n)
{
	node_set_port(arg, true);
}

static void chaos_port_down(void *arg, u64 n)
{
	if (!world.quiet)
		node_set_port(arg, false);
}

void chaos_kill(void *arg, u64 n)
{
	struct proc *p = arg;

	if (world.quiet || !world.plan.kills || p->dead || p->asleep ||
	    world.kills + 1 >= world.plan.procs)
		return;
	world.kills++;
	proc_kill(p);
}

static void chaos_strike(void *arg, u64 n)
{
	struct proc *p = world.procs[rng_below(RNG, world.plan.procs)];
	u64 flaps;

	if (world.quiet)
		return;
	flaps = 2 * rng_range(RNG, 1, 4);
	switch (rng_below(RNG, 6)) {
	case 5: /* up and down in quick succession */
		if (!p->node->up || rng_percent(RNG, 70))
			break;
		for (u64 i = 0, at = 0; i < flaps; i++) {
			at += rng_skewed(RNG, 1000, 2 * NS_PER_MS);
			world_at(world.now + at, i % 2 == 0 ? chaos_port_down : chaos_port_up,
				 p->node, 0);
		}
		break;
	case 4: /* in one direction only */
		world.weather[0][p->node->id][rng_below(RNG, world.plan.nodes)].cut_until_ns =
			world.now + rng_skewed(RNG, 1000, 20 * NS_PER_MS);
		break;
	case 0:
	case 1:
		if (!proc_runs(p))
			break;
		proc_stop(p);
		world_at(world.now + rng_skewed(RNG, 1000, 20 * NS_PER_MS), chaos_continue, p, 0);
		break;
	case 2:
		if (!p->node->up)
			break;
		node_set_port(p->node, false);
		world_at(world.now + rng_skewed(RNG, 1000, 20 * NS_PER_MS), chaos_port_up, p->node,
			 0);
		break;
	default:
		chaos_kill(p, 0);
		break;
	}
	world_at(world.now + rng_skewed(RNG, 1000, world.plan.chaos_us * 2000ull), chaos_strike,
		 NULL, 0);
}

void chaos_begin(void)
{
	if (world.plan.chaos_us != 0)
		world_at(world.now + world.plan.chaos_us * 1000ull, chaos_strike, NULL, 0);
}
