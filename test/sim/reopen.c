/* reopen.c: a connection is reset at both ends and made anew with the same queue pairs: what the
 * old one has still under way must not harm the new one.
 * In: a connection    Out: two more connections of the model, with the engines of the old ones
 */
#include <stdlib.h>

#include "model.h"

/* The old numbers and the new ones lie so far apart that none is taken for the other. */
enum { REOPEN_APART = 1 << 20 };

static struct sqp *reopen_one(struct sqp *old)
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
	q->engine = old->engine;
	q->name = old->name;
	*q->name = q;
	old->engine = NULL;
	old->name = NULL;
	return q;
}

/* Both ends are in RESET, and each knows the other's new numbers. */
static void reopen_both(void *arg, u64 n)
{
	struct sqp *x = arg;

	if (x->proc->dead || x->peer->proc->dead || sqp_count + 2 > SIM_QPS)
		return;
	pair_join(reopen_one(x), reopen_one(x->peer));
}

static void reopen_reset(void *arg, u64 n)
{
	struct sqp *q = arg;

	if (q->proc->dead)
		return;
	if (q->proc->stopped || q->proc->asleep) {
		world_at(world.now + 50000, reopen_reset, q, n);
		return;
	}
	if (sqp_state(q) != IBV_QPS_RESET)
		sqp_modify(q, IBV_QPS_RESET);
	q->reset = true;
	if (q->peer->reset)
		world_at(world.now + rng_skewed(RNG, 1000, 100000), reopen_both, q, 0);
}

void pair_reopen(struct sqp *q)
{
	struct sqp *peer = q->peer;

	if (q->type != IBV_QPT_RC || peer->engine == NULL || peer->ending || peer->proc->dead)
		return;
	q->ending = peer->ending = true;
	world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), reopen_reset, q, 0);
	world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), reopen_reset, peer, 0);
}
