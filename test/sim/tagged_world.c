/* tagged_world.c: processes with tag-matching SRQs: their queue pairs, their turns, and the end.
 * In: turns    Out: verbs by lot; what has not ended by the end of the run
 */
#include <stdlib.h>
#include <string.h>

#include "tagged.h"

enum { TM_CQES = 32768, TM_ARENA = ARENA_BYTES / 3 };

struct tagged_plan tagged_plan;

/* ---- the plan ---- */

void tagged_draw_plan(struct plan *p)
{
	p->tagged = true;
	p->procs = MIN(MAX(p->procs, 2u), 4u);
	p->requests = (u32)rng_skewed(RNG, 20, 400);
	p->datagram_qps = 0;
	p->small_cq_percent = 0;
	p->lone = 0;
	p->modify_permille /= 4;
	tagged_plan = (struct tagged_plan){
		.eager = rng_percent(RNG, 70) ? (u32)rng_skewed(RNG, 8, 6000)
					      : (u32)rng_skewed(RNG, 6000, 70000),
		.data = rng_percent(RNG, 70) ? (u32)rng_skewed(RNG, 1, 20000)
					     : (u32)rng_skewed(RNG, 20000, 100000),
		.lazy_sync_percent = rng_percent(RNG, 40) ? 0 : (u32)rng_range(RNG, 5, 95),
		.short_permille = rng_percent(RNG, 70) ? 0 : (u32)rng_skewed(RNG, 5, 200),
		.cancel_percent = rng_percent(RNG, 40) ? 0 : (u32)rng_range(RNG, 1, 60),
	};
	tagged_message_count = 0;
}

static void tagged_setup_cq(struct tagged *tm, struct scq *cq)
{
	if (cq_init(&cq->cq, TM_CQES) != 0 || cq_keep_sides(&cq->cq) != 0)
		abort();
	cq->proc = tm->proc;
	cq->cq.overflow = event_overflow;
}

void tagged_setup(struct proc *p)
{
	struct tagged *tm = calloc(1, sizeof(*tm));
	u32 most = MAX(tagged_plan.data, tagged_plan.eager) + 256;
	struct ibt_srq_init init;

	if (tm == NULL)
		abort();
	tm->proc = p;
	p->tm = tm;
	tm->pd = rng_below(RNG, SIM_PDS);
	tm->max_wr = (u32)rng_skewed(RNG, 1, MIN(32u, 1 + TM_ARENA / (tagged_plan.eager + 256)));
	tm->max_tags = (u32)rng_skewed(RNG, 1, MIN(64u, 1 + TM_ARENA / most));
	tm->max_ops = (u32)rng_skewed(RNG, 1, 64);
	tm->max_sge = TM_PIECES;
	tagged_setup_cq(tm, &tm->cq);
	tagged_setup_cq(tm, &tm->send_cq);
	init = (struct ibt_srq_init){ .pd = tm->pd + 1,
				      .max_wr = tm->max_wr,
				      .max_sge = 1,
				      .tm_cq = &tm->cq.cq,
				      .max_num_tags = tm->max_tags,
				      .max_ops = tm->max_ops,
				      .owner = tm };
	sim_check(ibt_srq_create(p->ibt, &init, &tm->srq) == 0, "no tag-matching SRQ");
}

/* ---- queue pairs ---- */

struct sqp *tagged_find(const struct proc *p, u32 qpn)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->proc == p && sqps[i]->qpn == qpn)
			return sqps[i];
	return NULL;
}

static bool tagged_lives(const struct sqp *q)
{
	return q->engine != NULL && !q->proc->dead && !q->ending;
}

/* Its first message may have waited for a peer that did not receive yet. */
static bool tagged_was_early(const struct sqp *q)
{
	return q->tagged_sent != 0 &&
	       !sqp_received_since(q->peer, q->tagged_stream[0]->posted_ns);
}

bool tagged_may_fail(const struct sqp *q)
{
	return world.plan.fault_permille != 0 || tagged_plan.short_permille != 0 ||
	       world.plan.chaos_us != 0 || q->why != 0 || q->peer->why != 0 ||
	       path_is_air(q->proc, q->peer->proc) || !tagged_lives(q) || !tagged_lives(q->peer) ||
	       tagged_was_early(q) || tagged_was_early(q->peer);
}

bool tagged_asks_amiss(const struct sqp *q)
{
	for (u32 i = 0; i < tagged_message_count; i++)
		if (tagged_messages[i]->from == q && tagged_messages[i]->fault != TM_SOUND)
			return true;
	return false;
}

static struct sqp *tagged_create(struct proc *p)
{
	struct sqp *q = sqp_new(p, IBV_QPT_RC);

	if (q == NULL)
		abort();
	q->tm = p->tm;
	q->qpn = p->slot << IBT_INDEX_BITS | p->next_index++;
	q->pd = p->tm->pd;
	q->pd_number = q->pd + 1;
	q->send_cq = q->recv_cq = &p->tm->send_cq;
	q->timeout = (u8)rng_range(RNG, 8, 16);
	q->rnr_retry = 7;
	q->cap = (struct ibv_qp_cap){
		.max_send_wr = rng_percent(RNG, 25) ? 0 : (u32)rng_skewed(RNG, 1, 32),
		.max_send_sge = (u32)rng_range(RNG, 1, 2),
	};
	sqp_create_engine(q);
	return q;
}

static void tagged_open(struct proc *p)
{
	struct proc *other = world.procs[rng_below(RNG, world.plan.procs)];
	struct sqp *x, *y;
	u32 alive = 0;

	for (u32 i = 0; i < sqp_count; i++)
		alive += tagged_lives(sqps[i]);
	if (alive >= 2 * world.plan.pairs + 2 || sqp_count + 2 > SIM_QPS || !proc_runs(other) ||
	    other->asleep)
		return;
	x = tagged_create(p);
	y = tagged_create(other);
	x->peer = y;
	y->peer = x;
	y->mtu = x->mtu;
	x->rd_atomic = MIN(x->rd_atomic, y->dest_rd_atomic);
	y->rd_atomic = MIN(y->rd_atomic, x->dest_rd_atomic);
	sqp_connect(x);
	sqp_connect(y);
}

void tagged_saw(const struct proc *p, const struct pkt *k)
{
	struct sqp *q;

	if (k->opcode != PKT_SEND_FIRST || p->tm == NULL ||
	    (q = sqp_find(p, k->dqpn)) == NULL)
		return;
	if (!q->tagged_begun)
		q->tagged_begun_at = tagged_position(p->tm);
	q->tagged_begun = true;
	q->tagged_until = q->peer->tagged_sent;
}

/* ---- turns ---- */

static struct sqp *turn_pick_any(struct proc *p)
{
	u32 begin = rng_below(RNG, sqp_count);

	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[(begin + i) % sqp_count];

		if (q->proc == p && tagged_lives(q))
			return q;
	}
	return NULL;
}

static void turn_break(struct sqp *q)
{
	switch (rng_below(RNG, 4)) {
	case 0:
		sqp_modify(q, IBV_QPS_ERR);
		break;
	case 1:
		sqp_destroy(q);
		break;
	case 2:
		sqp_modify(q, IBV_QPS_RESET);
		q->ending = true;
		break;
	default:
		sqp_end(q);
		break;
	}
}

static void turn_tidy_tagged(struct proc *p)
{
	for (u32 i = 0; i < sqp_count; i++) {
		struct sqp *q = sqps[i];

		if (q->proc != p || !tagged_lives(q))
			continue;
		tagged_go_on(q);
		if ((sqp_state(q) == IBV_QPS_ERR && rng_percent(RNG, 20)) ||
		    (!tagged_lives(q->peer) && rng_percent(RNG, 5)))
			sqp_end(q);
	}
}

static void turn_send(struct proc *p)
{
	struct sqp *q = turn_pick_any(p);
	u32 n = (u32)rng_range(RNG, 1, 4);

	for (u32 i = 0; q != NULL && i < n && sqp_state(q) == IBV_QPS_RTS; i++)
		tagged_send(q);
}

void tagged_turn(struct proc *p)
{
	struct tagged *tm = p->tm;
	struct sqp *q;

	tagged_open(p);
	if (!rng_percent(RNG, world.plan.late_percent))
		tagged_buffers(tm, (u32)rng_range(RNG, 1, tm->max_wr));
	for (u32 n = rng_below(RNG, 5); n != 0; n--)
		tagged_receive(tm);
	if (world.requests_left > 0)
		turn_send(p);
	if (rng_percent(RNG, tagged_plan.cancel_percent))
		tagged_cancel_any(tm);
	if (rng_percent(RNG, 15))
		tagged_sync(tm);
	turn_tidy_tagged(p);
	q = turn_pick_any(p);
	if (q != NULL && rng_permille(RNG, world.plan.modify_permille))
		turn_break(q);
	if (rng_permille(RNG, 2))
		arena_check(p, 0, ARENA_BYTES, "on a look around");
}

static int tagged_poll_some(struct tagged *tm, struct scq *cq, int most)
{
	struct cqe_side side[8];
	struct cqe e[8];
	int n = cq_pop_whole(&cq->cq, MIN(most, (int)ARRAY_LEN(e)), e, side);

	for (int i = 0; i < n; i++) {
		if (cq == &tm->cq)
			tagged_judge(tm, &e[i], &side[i]);
		else
			tagged_judge_send(tm, &e[i]);
	}
	return n;
}

void tagged_poll(struct proc *p)
{
	struct tagged *tm = p->tm;
	int most = world.quiet || rng_percent(RNG, 50) ? 1 << 20 : (int)rng_range(RNG, 1, 8);

	if (!world.quiet && rng_percent(RNG, 20))
		return;
	/* One at a time: tagged_position must know of those that wait. */
	for (int n = 1; n != 0 && most > 0; most -= n)
		n = tagged_poll_some(tm, &tm->cq, 1);
	while (tagged_poll_some(tm, &tm->send_cq, 8) != 0)
		continue;
}

/* ---- the end ---- */

static void quiet_cancel_all(struct tagged *tm)
{
	for (u32 i = 0; i < tm->entry_count; i++)
		tagged_cancel(tm, tm->entries[i]);
}

void tagged_quiet_turn(struct proc *p)
{
	tagged_buffers(p->tm, p->tm->max_wr);
	/* the memory is needed for buffers */
	if (p->tm->posted == 0)
		quiet_cancel_all(p->tm);
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->proc == p && tagged_lives(sqps[i]) &&
		    sqp_state(sqps[i]) == IBV_QPS_RTS)
			tagged_go_on(sqps[i]);
	tagged_sync(p->tm);
}

static bool is_whole(const struct sqp *q)
{
	return tagged_lives(q) && tagged_lives(q->peer) && sqp_state(q) == IBV_QPS_RTS &&
	       sqp_state(q->peer) == IBV_QPS_RTS;
}

/* What is not done of a whole connection; NULL: nothing. */
static const char *message_waits_for(const struct tagged_message *m)
{
	if (!m->sent)
		return "has not been sent";
	if (!m->sent_well)
		return NULL;
	if (!m->seen)
		return "has been sent, but not arrived";
	if (m->by_software && m->step != 4)
		return "has not been read by software";
	if (m->by_software && !m->fin)
		return "was read, but no FIN has come";
	return NULL;
}

/* The same of an entry's message. */
static const char *entry_waits_for(const struct tagged_entry *e)
{
	const struct tagged_message *m = e->message;

	if (e->state == TM_MATCHED)
		return "matches, but has no data";
	if (m->opcode == IBV_TMH_RNDV && m->length <= e->length && !m->fin)
		return "was read by the adapter, but no FIN has come";
	return NULL;
}

static const char *waits_of_messages(u32 *id)
{
	const char *why = NULL;

	for (*id = 0; *id < tagged_message_count; ++*id)
		if (is_whole(tagged_messages[*id]->from) &&
		    (why = message_waits_for(tagged_messages[*id])) != NULL)
			break;
	return why;
}

static const char *waits_of_entries(const struct tagged *tm, u32 *id)
{
	const char *why;

	for (u32 i = 0; i < tm->entry_count && !tm->proc->dead; i++) {
		const struct tagged_message *m = tm->entries[i]->message;

		if (m == NULL || !is_whole(m->from) ||
		    (why = entry_waits_for(tm->entries[i])) == NULL)
			continue;
		*id = m->id;
		return why;
	}
	return NULL;
}

static bool queue_waits(const struct sqp *q)
{
	enum ibv_qp_state state = sqp_state(q);

	return q->engine != NULL && !q->proc->dead && q->tagged_posted != 0 &&
	       (state == IBV_QPS_RTS || state == IBV_QPS_ERR);
}

/* What must end, and has not; NULL: all has. *id: of the message, or the queue pair. */
static const char *tagged_waits(u32 *id)
{
	const char *why = waits_of_messages(id);

	for (u32 i = 0; i < world.plan.procs && why == NULL; i++)
		why = waits_of_entries(world.procs[i]->tm, id);
	for (u32 i = 0; i < sqp_count && why == NULL; i++) {
		*id = sqps[i]->qpn;
		why = queue_waits(sqps[i]) ? "is a queue pair with requests that never end" : NULL;
	}
	return why;
}

bool tagged_is_done(void)
{
	u32 id;

	return !world.plan.tagged || tagged_waits(&id) == NULL;
}

void tagged_check_done(void)
{
	u32 id;
	const char *why = tagged_waits(&id);

	sim_check(why == NULL, "message %u %s", id, why);
}

/* Software tells all that it knows: then the counts agree, and an entry matches at once. */
static void finish_phases(struct tagged *tm)
{
	quiet_cancel_all(tm);
	tagged_poll(tm->proc);
	quiet_cancel_all(tm);
	tagged_poll(tm->proc);
	tagged_receive(tm);
	tagged_sync(tm);
	tagged_poll(tm->proc);
	sim_check(tm->handled == tm->unexpected,
		  "p%u: %u unexpected messages, software knows of %u", tm->proc->id,
		  tm->unexpected, tm->handled);
}

void tagged_finish(void)
{
	for (u32 i = 0; i < world.plan.procs; i++)
		if (!world.procs[i]->dead)
			finish_phases(world.procs[i]->tm);
}

void tagged_check_flushed(void)
{
	for (u32 i = 0; i < world.plan.procs; i++) {
		const struct tagged *tm = world.procs[i]->tm;

		for (u32 k = 0; k < tm->entry_count && !tm->proc->dead; k++)
			sim_check(tm->entries[k]->state != TM_MATCHED,
				  "p%u: entry %u was taken by message %u, and never completes",
				  tm->proc->id, k, tm->entries[k]->message->id);
		sim_check(tm->proc->dead || tm->signalled == 0,
			  "p%u: %u operations never complete", tm->proc->id, tm->signalled);
	}
	for (u32 i = 0; i < sqp_count; i++)
		sim_check(!queue_waits(sqps[i]), "qp %06x: %u requests are not flushed",
			  sqps[i]->qpn, sqps[i]->tagged_posted);
}

static void teardown_messages(struct proc *p)
{
	for (u32 i = 0; i < tagged_message_count; i++) {
		struct tagged_message *m = tagged_messages[i];

		if (m == NULL || m->owner != p)
			continue;
		if (m->key != 0 && !m->fin)
			sim_check(mem_deregister(&p->mem, m->region) == 0, "a key is gone");
		free(m);
		tagged_messages[i] = NULL;
	}
}

void tagged_teardown(struct proc *p)
{
	struct tagged *tm = p->tm;

	ibt_srq_destroy(tm->srq);
	for (u32 i = 0; i < tm->entry_count; i++)
		free(tm->entries[i]);
	for (u32 i = 0; i < tm->buffer_count; i++)
		free(tm->buffers[i]);
	for (u32 i = 0; i < tm->op_count; i++)
		free(tm->ops[i]);
	cq_fini(&tm->cq.cq);
	cq_fini(&tm->send_cq.cq);
	mpi_close(&tm->mpi);
	teardown_messages(p);
	free(tm);
	p->tm = NULL;
}
