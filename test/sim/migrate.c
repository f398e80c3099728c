/* migrate.c: connections that move to the other one of two ways between their nodes.
 * In: the program's wishes, PATH_MIG and PATH_MIG_ERR    Out: by which way each may send
 *
 * Each node has an address on two planes, with a weather of their own. A connection begins on the
 * first one. Either end loads the plane that it is not on as its alternate path and asks for REARM,
 * again and again; it may ask to move; planes are cut for long enough that retries are used up.
 */
#include "model.h"

enum { MIG_CUT_NS = 2000000000 };

bool mig_may(const struct sqp *q)
{
	return world.plan.migrates && q->type == IBV_QPT_RC && !q->lone && q->tm == NULL &&
	       path_is_air(q->proc, q->peer->proc) && !ends_are_apart(q);
}

static void mig_modify(struct sqp *q, struct ibv_qp_attr *a, int mask)
{
	int err = ibt_qp_modify(q->engine, a, mask | IBV_QP_PATH_MIG_STATE, NULL, NULL);

	sim_check(err == 0, "qp %06x cannot be given a migration state: %d", q->qpn, err);
	proc_wake(q->proc, world.now);
}

static enum ibv_mig_state mig_state(const struct sqp *q)
{
	struct ibv_qp_attr a;

	ibt_qp_query(q->engine, &a);
	return a.path_mig_state;
}

static void mig_load(struct sqp *q)
{
	struct ibv_qp_attr a = { .alt_port_num = 1, .path_mig_state = IBV_MIG_REARM };
	struct path_av av = { .hop_limit = 64 };
	u32 to = 1 - q->plane;

	a.alt_timeout = q->alt_timeout = (u8)rng_range(RNG, 1, 16);
	air_gid(q->proc->node, to, av.sgid);
	air_gid(q->peer->proc->node, to, av.dgid);
	sim_check(ibt_qp_load_alternate(q->engine, &av,
					air_dest(q->proc, q->peer->proc->node, to)) == 0,
		  "qp %06x cannot be given an alternate path", q->qpn);
	q->mig_asked = true;
	q->mig_refused = false;
	trace(q->proc, TR_MODIFY, q->qpn, sqp_state(q), IBV_MIG_REARM, to);
	mig_modify(q, &a, IBV_QP_ALT_PATH);
}

static void mig_swap(struct sqp *q)
{
	u8 timeout = q->timeout;

	q->timeout = q->alt_timeout;
	q->alt_timeout = timeout;
	q->plane = 1 - q->plane;
	q->mig_asked = false;
	q->moves++;
	q->moved_ns = world.now;
}

/* One that is armed moves at once, and hears nothing of it. */
static void mig_ask(struct sqp *q)
{
	struct ibv_qp_attr a = { .path_mig_state = IBV_MIG_MIGRATED };
	bool armed = mig_state(q) == IBV_MIG_ARMED;
	u32 moves = q->moves;

	sim_check(!armed || q->mig_asked, "qp %06x is armed, but was not asked to be", q->qpn);
	q->mig_moving = armed;
	q->mig_asked &= armed; /* what waits for room may go at once, and says so already */
	mig_modify(q, &a, 0);
	q->mig_moving = false;
	sim_check(q->moves == moves, "qp %06x says that it has moved as it was asked to", q->qpn);
	sim_check(mig_state(q) == IBV_MIG_MIGRATED, "qp %06x has not migrated when asked to",
		  q->qpn);
	q->mig_asked = false;
	if (armed)
		mig_swap(q);
}

static void mig_cut(struct sqp *q)
{
	u32 a = q->proc->node->id, b = q->peer->proc->node->id;
	u64 until = world.now + rng_skewed(RNG, NS_PER_MS, MIG_CUT_NS);

	if (world.quiet)
		return;
	world.weather[q->plane][a][b].cut_until_ns = until;
	if (rng_percent(RNG, 70))
		world.weather[q->plane][b][a].cut_until_ns = until;
}

void mig_turn(struct sqp *q)
{
	if (!mig_may(q) || sqp_state(q) != IBV_QPS_RTS)
		return;
	if (!q->mig_asked && rng_percent(RNG, 20))
		mig_load(q);
	else if (rng_permille(RNG, 15))
		mig_ask(q);
	else if (rng_permille(RNG, 10))
		mig_cut(q);
}

/* It moves when its retries are used up, or after a peer that says on that plane that it has. */
void mig_moved(struct sqp *q)
{
	u64 oldest = SIM_NEVER, since, least;

	sim_check(q->mig_asked, "qp %06x has moved, but was not asked to be ready", q->qpn);
	list_for_each(s, &q->sends, struct send, node)
		oldest = MIN(oldest, s->posted_ns);
	since = MAX(oldest, q->moved_ns);
	least = q->timeout == 0 ? SIM_NEVER : (q->retry_cnt + 1u) * judge_timeout_ns(q->timeout);
	sim_check(q->peer->said_migrated[1 - q->plane] ||
			  (oldest != SIM_NEVER && world.now - since >= least),
		  "qp %06x has moved, its peer has not, and its retries are not used up", q->qpn);
	mig_swap(q);
}

void mig_refused(struct sqp *q)
{
	sim_check(q->mig_asked && !q->mig_refused,
		  "qp %06x says that its peer cannot be followed, it was %s", q->qpn,
		  q->mig_asked ? "said" : "not to be followed");
	q->mig_refused = true;
}

void mig_judge(struct sqp *q, u32 plane, const struct pkt *k)
{
	if (!world.plan.migrates || k->opcode == PKT_CNP)
		return;
	sim_check(plane == q->plane || q->mig_moving, "qp %06x is on plane %u and sends on %u",
		  q->qpn, q->plane, plane);
	sim_check(k->unmigrated == q->mig_asked || q->mig_moving,
		  "qp %06x says that it has%s migrated", q->qpn, k->unmigrated ? " not" : "");
	if (!k->unmigrated)
		q->said_migrated[plane] = true;
}
