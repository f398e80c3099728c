/* lone.c: once it is quiet, requesters whose peer queue pairs have been destroyed, though the
 * process there lives, beside a connection between the same two processes that is whole. Their
 * requests and probes share the path's window with that connection's; its requests must complete
 * all the same, and in time.
 * In: two processes with air between them    Out: queue pairs, requests, the oracle's word
 */
#include <stdlib.h>

#include "model.h"

typedef unsigned long long ull;

enum {
	LONE_ROUNDS = 12, /* requests of the connection that is whole */
	/* Of each, with what a narrow line loses on the way. The window counts what a lone one
	 * sends first for 10 ms, until its first probe, and may be as narrow as one of them. */
	LONE_BOUND_MS = 500,
	LONE_EACH_MS = 25,
};

static struct {
	struct sqp *whole; /* NULL: nothing of this happens */
	u32 rounds;
} lone;

static bool lone_is_usable(const struct proc *p)
{
	return !p->dead && !p->asleep;
}

/* Two processes with air between them, by lot. */
static bool lone_pick(struct proc **a, struct proc **b)
{
	u32 n = world.plan.procs, begin = rng_below(RNG, n * n);

	for (u32 i = 0; i < n * n; i++) {
		u32 at = (begin + i) % (n * n);

		*a = world.procs[at / n];
		*b = world.procs[at % n];
		if (*a != *b && lone_is_usable(*a) && lone_is_usable(*b) && path_is_air(*a, *b))
			return true;
	}
	return false;
}

static void lone_open(struct proc *a, struct proc *b)
{
	static const u8 timeouts[] = { 0, 14, 18, 18 };
	struct sqp *x = sqp_create(a, IBV_QPT_RC), *y = sqp_create(b, IBV_QPT_RC);

	if (x == NULL || y == NULL)
		abort();
	x->lone = y->lone = true;
	x->peer = y;
	y->peer = x;
	x->timeout = timeouts[rng_below(RNG, ARRAY_LEN(timeouts))];
	sqp_destroy(y);
	sqp_connect(x);
}

void lone_begin(void)
{
	struct proc *a, *b;

	lone.whole = NULL;
	lone.rounds = 0;
	if (world.plan.lone == 0 || sqp_count + 2 * world.plan.lone + 2 > SIM_QPS ||
	    !lone_pick(&a, &b))
		return;
	for (u32 i = 0; i < world.plan.lone; i++)
		lone_open(a, b);
	pair_open(a, b, IBV_QPT_RC);
	lone.whole = sqps[sqp_count - 2];
}

static bool lone_goes_on(const struct sqp *q)
{
	return q->engine != NULL && !q->ending && sqp_state(q) != IBV_QPS_ERR;
}

bool lone_is_done(void)
{
	return lone.whole == NULL || lone.rounds == LONE_ROUNDS || !lone_goes_on(lone.whole) ||
	       !lone_goes_on(lone.whole->peer);
}

u64 lone_delay_ns(void)
{
	return world.plan.lone * LONE_EACH_MS * NS_PER_MS;
}

static void lone_judge(const struct sqp *q)
{
	u64 bound = LONE_BOUND_MS * NS_PER_MS + lone_delay_ns();

	list_for_each(s, &q->sends, struct send, node)
		sim_check(world.now - s->posted_ns <= bound,
			  "qp %06x: #%llu has waited %llu ms beside %u whose peers are gone",
			  q->qpn, (ull)s->tag, (ull)((world.now - s->posted_ns) / NS_PER_MS),
			  world.plan.lone);
}

void lone_turn(struct proc *p)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->lone && sqps[i]->proc == p && sqp_state(sqps[i]) == IBV_QPS_RTS &&
		    sqps[i]->send_count == 0)
			post_lone(sqps[i]);
	if (lone_is_done() || lone.whole->proc != p || sqp_state(lone.whole) != IBV_QPS_RTS ||
	    !sqp_state_receives(lone.whole->peer->shown_state))
		return;
	if (lone.whole->send_count != 0) {
		lone_judge(lone.whole);
		return;
	}
	/* from time to time: between two probes of the others, too */
	if (!rng_percent(RNG, 10))
		return;
	lone.rounds++;
	post_sound(lone.whole);
}
