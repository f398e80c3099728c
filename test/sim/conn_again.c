/* conn_again.c: the second episode of a node: communication IDs, slots and queue pair numbers that
 * served another owner before, and limits of the CM that are low enough to be used up.
 * In: births of ids, MADs, deaths    Out: numbers; the end of the program if a limit does not hold
 *
 * A number rests after its last owner until no MAD in flight names it. The owner's peer may still
 * repeat a request to it: that must not reach the next owner.
 */
#include <string.h>

#include "conn.h"

void conn_again_draw(struct conn_plan *p, u64 seed)
{
	/* not of the world's own lot: a seed without a second episode keeps its history */
	struct rng lot = { .state = rng_mix(seed ^ 0x616761696e) };

	if (rng_percent(&lot, 60)) {
		p->numbers = (u32)rng_skewed(&lot, 2, CONN_NUMBERS - 1);
		p->same_slot = rng_percent(&lot, 80);
	}
	p->backlog = rng_percent(&lot, 40) ? (u32)rng_skewed(&lot, 1, 6) : 0;
	p->orphans = rng_percent(&lot, 40) ? (u32)rng_skewed(&lot, 1, 6) : 0;
	p->again_percent = rng_percent(&lot, 40) ? (u32)rng_range(&lot, 30, 90) : 0;
	if (p->backlog != 0)
		p->slow_permille = MAX(p->slow_permille, (u32)rng_skewed(&lot, 10, 200));
}

void conn_again_limit(struct conn_process *p)
{
	if (conn.plan.backlog != 0)
		p->cm->backlog_max = conn.plan.backlog;
	if (conn.plan.orphans != 0)
		p->cm->orphans_max = conn.plan.orphans;
}

/* ---- communication IDs ----------------------------------------------------------------------- */

static u32 again_number_of(u32 local_id)
{
	return local_id & ((1u << CM_ID_BITS) - 1);
}

static bool again_is_free(struct conn_process *p, u32 number) NO_THREAD_SAFETY /* one thread */
{
	return p->node->rests_ns[number] <= world.now &&
	       cm_table_find(&p->cm->tables[CM_BY_LOCAL], 0, p->dev.id_bits | number) == NULL;
}

void conn_number_draw(struct conn_process *p) NO_THREAD_SAFETY /* one thread */
{
	struct conn_node *n = p->node;
	u32 best = 0;

	if (conn.plan.numbers == 0)
		return;
	/* mostly the one whose owner has gone last */
	for (u32 number = 1; number <= conn.plan.numbers; number++)
		if (again_is_free(p, number) &&
		    (best == 0 || n->rests_ns[number] > n->rests_ns[best] || rng_percent(RNG, 30)))
			best = number;
	p->cm->next_number = best != 0 ? best - 1 : CONN_NUMBERS + n->fresh++;
}

void conn_number_begin(struct conn_side *s)
{
	u32 number = again_number_of(s->local_id);
	u64 *rests;

	if (conn.plan.numbers == 0 || number > conn.plan.numbers)
		return;
	rests = &s->process->node->rests_ns[number];
	if (*rests != 0) {
		s->reused = true;
		conn_seen.renumbered++;
	}
	*rests = MAX(*rests, 1u);
}

void conn_number_rest(struct conn_node *n, u32 local_id, bool willed)
{
	u32 number = again_number_of(local_id);
	u64 rest = 2 * (conn.plan.delay_ns + conn.plan.jitter_ns);

	if (conn.plan.numbers == 0 || number > conn.plan.numbers)
		return;
	if (willed) /* it is sent eight times, one timeout apart */
		rest += 4096ull << (conn.plan.timeout + 3);
	n->rests_ns[number] = MAX(n->rests_ns[number], world.now + rest);
}

/* ---- limits ---------------------------------------------------------------------------------- */

struct conn_limits conn_limits_read(struct conn_process *p) NO_THREAD_SAFETY /* one thread */
{
	return (struct conn_limits){ .backlog = p->cm->backlog,
				     .ids = p->cm->id_count,
				     .full = p->cm->counters[CM_DROP_BACKLOG] };
}

/* A request that finds the backlog full makes no id, and is not answered: it comes again. All
 * others pass. */
void conn_limits_judge(struct conn_process *p, const struct conn_limits *before, bool asks,
		       u32 answers) NO_THREAD_SAFETY /* one thread */
{
	struct conn_limits now = conn_limits_read(p);
	bool is_full = asks && conn.plan.backlog != 0 && before->backlog >= conn.plan.backlog;
	u32 n = p->node->id;

	sim_check(conn.plan.backlog == 0 || now.backlog <= conn.plan.backlog,
		  "n%u: %u requests wait for handlers, %u may", n, now.backlog,
		  conn.plan.backlog);
	sim_check(now.full - before->full <= is_full,
		  "n%u: a request is dropped, and there is room", n);
	sim_check(!is_full || now.ids == before->ids,
		  "n%u: a request is taken, and there is no room", n);
	sim_check(now.full == before->full || answers == 0,
		  "n%u: a request that was dropped is answered", n);
	p->refused += (u32)(now.full - before->full);
	conn_seen.full += now.full - before->full;
}

static bool again_is_orphan(const struct conn_side *s) NO_THREAD_SAFETY /* one thread */
{
	const struct cm_key *key;

	if (!s->destroyed || s->process->dead || conn_side_find(s->process, s->local_id) != s)
		return false;
	key = cm_table_find(&s->process->cm->tables[CM_BY_LOCAL], 0, s->local_id);
	return key != NULL && key->id->orphan; /* else its next owner has not been told of */
}

/* The orphan of the process that was destroyed first. */
static struct conn_side *again_oldest(const struct conn_process *p)
{
	struct conn_side *oldest = NULL;

	for (u32 i = 0; i < conn.side_count; i++) {
		struct conn_side *s = conn.sides[i];

		if (s->process == p && again_is_orphan(s) &&
		    (oldest == NULL || s->destroyed_at < oldest->destroyed_at))
			oldest = s;
	}
	return oldest;
}

static u32 again_orphans(const struct conn_process *p) NO_THREAD_SAFETY /* one thread */
{
	return p->cm->orphan_count;
}

/* An id that ends in the state has something to say still, or rests. */
static bool again_outlives(const struct conn_process *p, enum ib_cm_state state)
{
	switch (state) {
	case IB_CM_REP_SENT:
	case IB_CM_MRA_REP_RCVD:
	case IB_CM_ESTABLISHED:
	case IB_CM_DREQ_SENT:
	case IB_CM_DREQ_RCVD:
	case IB_CM_TIMEWAIT:
		return !p->unplugged;
	default:
		return false;
	}
}

/* The consumer destroys the id. The new orphan is kept, and the oldest gives way. */
void conn_again_destroy(struct conn_side *s, struct ib_cm_id *id)
{
	struct conn_process *p = s->process;
	u32 most = conn.plan.orphans, before = again_orphans(p);
	bool outlives = again_outlives(p, id->state);
	struct conn_side *oldest = most != 0 && before == most ? again_oldest(p) : NULL;

	s->destroyed = true;
	s->destroyed_at = ++conn.destroyed;
	ib_destroy_cm_id(id);
	conn_number_rest(p->node, s->local_id, false);
	sim_check(again_is_orphan(s) == outlives, "side %u is %s when its consumer has gone",
		  s->index, outlives ? "freed" : "kept");
	if (most == 0)
		return;
	sim_check(again_orphans(p) <= most, "n%u: %u ids outlive their consumers, %u may",
		  p->node->id, again_orphans(p), most);
	if (oldest == NULL || !outlives)
		return;
	conn_seen.evicted++;
	sim_check(!again_is_orphan(oldest), "side %u is kept, and has been destroyed before all",
		  oldest->index);
}
