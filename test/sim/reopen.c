/* reopen.c: a connection is reset at both ends and made anew with the same queue pairs: what the
 * old one has still under way must not harm the new one. Sometimes one end is far ahead: it has
 * connected anew when the other one still is what it was, and neither expects the other's numbers;
 * that one follows much later, or never.
 * In: a connection    Out: two more connections of the model, with the engines of the old ones
 */
#include <stdlib.h>

#include "model.h"

/* The old numbers and the new ones lie so far apart that none is taken for the other. */
enum { REOPEN_APART = 1 << 20 };

/* The connection that is to follow, still without the engine of the old one. */
static struct sqp *reopen_new(struct sqp *old)
{
	struct sqp *q = sqp_new(old->proc, old->type);

	q->qpn = old->qpn;
	q->cap = old->cap;
	q->pd = old->pd;
	q->pd_number = old->pd_number;
	q->sig_all = old->sig_all;
	q->srq = old->srq;
	q->send_cq = old->send_cq;
	q->recv_cq = old->recv_cq;
	q->sq_psn = (old->sq_psn + REOPEN_APART + rng_below(RNG, (1 << 24) - 2 * REOPEN_APART)) &
		    0xffffff;
	q->again = true;
	old->next = q;
	return q;
}

/* Both are in RESET, or one is. */
static void reopen_pair(struct sqp *x)
{
	pair_join(reopen_new(x), reopen_new(x->peer));
}

static void reopen_begin(void *arg, u64 n)
{
	struct sqp *old = arg, *q = old->next;

	if (old->proc->dead || old->engine == NULL)
		return;
	q->engine = old->engine;
	old->engine = NULL;
	sqp_own(q);
	sqp_connect(q);
}

static void reopen_reset(void *arg, u64 ahead)
{
	struct sqp *q = arg, *peer = q->peer;

	if (q->proc->dead || q->engine == NULL)
		return;
	q->ending = true;
	if (q->proc->stopped || q->proc->asleep) {
		world_at(world.now + 50000, reopen_reset, q, ahead);
		return;
	}
	if (sqp_state(q) != IBV_QPS_RESET)
		sqp_modify(q, IBV_QPS_RESET);
	q->reset = true;
	if (q->next == NULL && (peer->reset || ahead) && !peer->proc->dead &&
	    peer->engine != NULL && sqp_count + 2 <= SIM_QPS)
		reopen_pair(q);
	if (q->next != NULL)
		world_at(world.now + rng_skewed(RNG, 1000, 100000), reopen_begin, q, 0);
	if (q->next != NULL && peer->reset)
		world_at(world.now + rng_skewed(RNG, 1000, 100000), reopen_begin, peer, 0);
}

void pair_reopen(struct sqp *q)
{
	struct sqp *peer = q->peer;

	if (q->type != IBV_QPT_RC || peer->engine == NULL || peer->ending || peer->proc->dead)
		return;
	if (rng_percent(RNG, 50)) {
		q->ending = peer->ending = true;
		world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), reopen_reset, q, false);
		world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), reopen_reset, peer, false);
	} else {
		world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), reopen_reset, q, true);
		if (rng_percent(RNG, 50))
			world_at(world.now + rng_skewed(RNG, NS_PER_MS, NS_PER_S), reopen_reset,
				 peer, false);
	}
}
