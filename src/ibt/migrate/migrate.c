/* migrate.c: automatic path migration of reliable connections over paths that lose packets.
 *
 * The consumer loads an alternate path and asks for REARM. The queue pair then sends MigReq 0. When
 * it receives that from the peer, both ends are ready: ARMED. It moves when its requester has used
 * up its retries, when the consumer asks for MIGRATED, or when a packet with MigReq 1 comes by the
 * alternate path: the peer has moved. From then on it sends MigReq 1, by the other path, from the
 * oldest packet without an acknowledgement on, with a new retry budget.
 *
 * A path that loses nothing has nothing to move away from: there REARM stays REARM.
 *
 * In:    packets of watched queue pairs, retries that are used up, the consumer's wish
 * Out:   qp->dest, PATH_MIG, PATH_MIG_ERR
 * Runs:  the thread that receives or runs timers; the consumer's
 * Locks: sq_lock, then rq_lock    Spec: IBA vol 1, 17.2.8
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ibt/block.h"
#include "ibt/migrate/migrate.h"
#include "ibt/receive/responder.h"
#include "ibt/sched.h"
#include "ibt/lossy/stream.h"

/* Packets of a dead path that the peer may have to send again, at most. */
enum { MIGRATE_BEHIND = 1 << 14 };

/* ---- the alternate path ---- */

int ibt_qp_load_alternate(struct ibt_qp *qp, const struct path_av *av, struct path_dest *dest)
{
	struct alternate *m = calloc(1, sizeof(*m)), *old;

	if (m == NULL) {
		dest->path->ops->dest_put(dest);
		return -ENOMEM;
	}
	*m = (struct alternate){ .dest = dest, .av = *av, .loaded = true };
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	old = qp->alternate;
	qp->alternate = m;
	alternate_watch(qp);
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
	alternate_free(old);
	return 0;
}

/* ---- the move ---- */

static void migrate_swap_attr(struct ibv_qp_attr *a)
{
	struct ibv_ah_attr ah = a->ah_attr;
	u16 pkey_index = a->pkey_index;
	u8 port = a->port_num, timeout = a->timeout;

	a->ah_attr = a->alt_ah_attr;
	a->pkey_index = a->alt_pkey_index;
	a->port_num = a->alt_port_num;
	a->timeout = a->alt_timeout;
	a->alt_ah_attr = ah;
	a->alt_pkey_index = pkey_index;
	a->alt_port_num = port;
	a->alt_timeout = timeout;
	a->path_mig_state = IBV_MIG_MIGRATED;
}

static void migrate_swap_path(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
	REQUIRES(qp->resp.rq_lock)
{
	struct path_dest *dest = qp->dest;
	struct path_av av = qp->av;
	struct alternate *m = qp->alternate;

	qp->dest = m->dest;
	qp->av = m->av;
	qp->pkey = m->av.pkey;
	m->dest = dest;
	m->av = av;
	m->loaded = m->due = false;
	__atomic_store_n(&qp->heard_as, NULL, __ATOMIC_RELAXED);
	qp->grant = (struct path_grant){ .length = 0 };
}

/* Nothing is known of the new path's RTT, and its retry budget begins. */
static void migrate_restart(struct ibt_qp *qp) REQUIRES(qp->req.sq_lock)
{
	struct stream *s = &qp->req.stream;

	s->heard_ns = s->resent_ns = clock_now_ns();
	s->backoff = 0;
	s->probe = s->probed = false;
	s->srtt_us = s->rttvar_us = 0;
	stream_rewind(qp);
	qp_mark_runnable(qp);
}

/* Tells whether it has moved. *others: whose turn has come on the path before. */
static bool migrate_move_locked(struct ibt_qp *qp, bool event, struct path_dest **others)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	if (!alternate_is_armed(qp) || !qp_receives(qp))
		return false;
	list_remove(&qp->resp.ack_node);
	qp->resp.ack_listed = false;
	block_leave(qp);
	window_leave(qp);
	*others = window_claim(qp);
	migrate_swap_path(qp);
	migrate_swap_attr(&qp->attr);
	alternate_watch(qp);
	migrate_restart(qp);
	qp->ibt->cfg.publish(qp->ibt->cfg.arg, qp);
	if (event)
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_PATH_MIG);
	return true;
}

/* In the exclusion of the path, which is that of both destinations. */
static void migrate_move(struct ibt_qp *qp, bool event)
{
	struct path_dest *others = NULL;
	bool moved;

	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	moved = migrate_move_locked(qp, event, &others);
	lock_release(&qp->resp.rq_lock);
	sched_leave(qp);
	sched_wake(others);
	if (moved)
		resp_resume(qp); /* it may have waited on a list of the path before */
}

static void migrate_move_silently(void *arg)
{
	migrate_move(arg, false);
}

static void migrate_move_loudly(void *arg)
{
	migrate_move(arg, true);
}

void migrate_run(struct ibt_qp *qp, struct path *path, bool event)
{
	path->ops->exclude(path, event ? migrate_move_loudly : migrate_move_silently, qp);
}

/* ---- packets ---- */

static void migrate_arm(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	if (qp->attr.path_mig_state == IBV_MIG_REARM && alternate_is_active(qp)) {
		qp->attr.path_mig_state = IBV_MIG_ARMED;
		qp->alternate->refused = false;
	}
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
}

/* What a packet does to the state. */
enum migrate_step { MIG_NOTHING, MIG_ARM, MIG_MOVE, MIG_REFUSE };

/* Has the packet a PSN that the peer may use now? Without this any one packet with the right
 * addresses moves the connection. A peer that has moved begins with the oldest request that it
 * knows no answer to: the next one here, or one before. */
static bool migrate_is_in_place(const struct ibt_qp *qp, const struct pkt *p)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	const struct stream *s = &qp->req.stream;
	s32 ahead;

	if (!pkt_is_response(p->opcode)) {
		ahead = psn_ahead(p->psn, qp->resp.epsn);
		return ahead <= 0 && ahead >= -MIGRATE_BEHIND;
	}
	ahead = psn_ahead(p->psn, s->una);
	return ahead >= -1 && ahead < (s32)(s->top - s->una);
}

static enum migrate_step migrate_judge(struct ibt_qp *qp, const struct path_dest *from,
				       const struct pkt *p)
	REQUIRES(qp->req.sq_lock) REQUIRES(qp->resp.rq_lock)
{
	bool peer = qp_is_peer(qp, from, p);

	if (!alternate_is_active(qp) || !qp_receives(qp) || !migrate_is_in_place(qp, p))
		return MIG_NOTHING;
	if (qp->attr.path_mig_state == IBV_MIG_REARM)
		return peer && p->unmigrated ? MIG_ARM : MIG_NOTHING;
	if (p->unmigrated)
		return MIG_NOTHING;
	if (alternate_is_alternate(qp, from))
		return MIG_MOVE;
	return peer ? MIG_REFUSE : MIG_NOTHING;
}

/* The peer has moved, but not to the path that is loaded here. IBA vol 1, 17.2.8.1. */
static void migrate_refuse(struct ibt_qp *qp)
{
	bool first;

	lock_acquire(&qp->resp.rq_lock);
	qp_count(qp, COUNT_RX_WRONG_PEER);
	first = qp->alternate != NULL && !qp->alternate->refused;
	if (first)
		qp->alternate->refused = true;
	lock_release(&qp->resp.rq_lock);
	if (first)
		qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_PATH_MIG_ERR);
}

bool migrate_receive(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
{
	enum migrate_step step;

	lock_acquire(&qp->req.sq_lock);
	lock_acquire(&qp->resp.rq_lock);
	step = migrate_judge(qp, from, p);
	lock_release(&qp->resp.rq_lock);
	lock_release(&qp->req.sq_lock);
	if (step == MIG_ARM)
		migrate_arm(qp);
	else if (step == MIG_MOVE)
		migrate_move(qp, true);
	else if (step == MIG_REFUSE)
		migrate_refuse(qp);
	return step != MIG_REFUSE;
}

void migrate_timer(struct timer *t)
{
	struct path *path = sched_timer(t);

	if (unlikely(path != NULL))
		migrate_run(container_of(t, struct ibt_qp, req.timer), path, true);
}
