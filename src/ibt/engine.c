/* engine.c: the engine as a whole: finds a packet's queue pair, and handles the paths' callbacks.
 * In: packets, room, deaths    Out: calls of responder, completer, requester
 * Runs: the polling thread    Locks: none of its own
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ibt/receive/absent.h"
#include "ibt/receive/ack.h"
#include "ibt/block.h"
#include "ibt/lossy/cnp.h"
#include "ibt/send/completer.h"
#include "ibt/lossy/loss.h"
#include "ibt/qp.h"
#include "ibt/send/quick.h"
#include "ibt/migrate/migrate.h"
#include "ibt/xrc/proxy.h"
#include "ibt/receive/responder.h"
#include "ibt/lossy/retry.h"
#include "ibt/sched.h"
#include "ibt/table.h"
#include "ibt/send/ud.h"

enum {
	ENGINE_TIMER_EVERY = 16, /* polls between looks at the clock, if any timer is armed */
};

static inline bool engine_is_answer(u8 opcode)
{
	return opcode == PKT_ACK || opcode == PKT_ATOMIC_ACK || opcode == PKT_ABSENT ||
	       opcode == PKT_CNP || (opcode >= PKT_READ_FIRST && opcode <= PKT_READ_ONLY);
}

static bool engine_is_general(const struct ibt *ibt, const struct pkt *p)
{
	return p->dqpn == 1 && p->qp_type == IBV_QPT_UD && p->opcode == PKT_SEND_ONLY &&
	       ibt->cfg.general != NULL;
}

static void engine_no_qp(struct ibt *ibt, struct path_dest *from, const struct pkt *p,
			 const void *payload)
{
	if (p->opcode == PKT_ABSENT && p->dqpn == 0 && from->path->guarantees.reliable) {
		loss_suspect_from(ibt, from);
		return;
	}
	if (p->qp_type == PKT_TYPE_FORWARDED) {
		proxy_receive(ibt, from, p, payload);
		return;
	}
	if (engine_is_general(ibt, p)) {
		ibt->cfg.general(ibt->cfg.arg, p, payload);
		return;
	}
	path_count(from->path, COUNT_RX_NO_QP);
	if (!engine_is_answer(p->opcode))
		absent_report(from, p);
}

/* An acknowledgement that came along with a request. */
static void engine_piggyback(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p)
{
	lock_acquire(&qp->req.sq_lock);
	if (qp_sends(qp) && qp_is_peer(qp, from, p)) {
		if (likely(psn_ahead(p->ack_psn, qp->req.psn) < 0))
			comp_ack(qp, p->ack_psn);
		else
			comp_beyond(qp, p->ack_psn);
	}
	sched_leave(qp);
}

/* The peer's responses to requests of this side. */
static void engine_answer(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p,
			  const void *payload)
{
	lock_acquire(&qp->req.sq_lock);
	if (unlikely(!qp_is_peer(qp, from, p)))
		path_count(from->path, COUNT_RX_WRONG_PEER);
	else if (qp->streams)
		retry_receive(qp, p, payload);
	else
		comp_receive(qp, p, payload);
	sched_leave(qp);
}

static void engine_datagram(struct ibt_qp *qp, const struct path *path, const struct pkt *p,
			    const void *payload)
{
	if (likely(!ud_receive(qp, path, p, payload)))
		return;
	sched_fail(qp);
	qp->ibt->cfg.async(qp->ibt->cfg.arg, qp, NULL, IBV_EVENT_QP_FATAL);
}

/* The packet is lost, as on a pulled cable. No timer runs on a reliable path, so there its sender
 * gets a report. */
static void engine_port_is_down(struct path_dest *from, const struct pkt *p)
{
	path_count(from->path, COUNT_PORT_DOWN);
	if (!engine_is_answer(p->opcode))
		absent_report(from, p);
}

static inline void engine_connected(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p,
				    const void *payload)
{
	if (engine_is_answer(p->opcode)) {
		if (qp_is_reliable(qp))
			engine_answer(qp, from, p, payload);
		else
			path_count(from->path, COUNT_RX_OPCODE);
	} else {
		if ((p->flags & PKT_HAS_ACK) != 0 && from->path->guarantees.reliable)
			engine_piggyback(qp, from, p);
		resp_receive(qp, from, p, payload);
	}
}

/* A notification of congestion names no transport. Whose request is for another type of queue pair
 * finds no queue pair here. */
static NOINLINE void engine_other_type(struct ibt_qp *qp, struct path_dest *from,
				       const struct pkt *p, const void *payload)
{
	if (__atomic_load_n(&qp->takes, __ATOMIC_RELAXED) == QP_TAKES_WATCHED &&
	    ibt_qp_type(qp) == (enum ibv_qp_type)p->qp_type) {
		if (migrate_receive(qp, from, p))
			engine_connected(qp, from, p, payload);
		return;
	}
	if (p->qp_type == PKT_TYPE_FORWARDED) {
		proxy_receive(qp->ibt, from, p, payload); /* what is named here is no SRQ */
		return;
	}
	if (pkt_is_done(p->qp_type) && qp_is_target(qp)) {
		resp_receive_done(qp, from, p, payload);
		return;
	}
	if (qp_port_is_down(qp)) {
		engine_port_is_down(from, p);
		return;
	}
	if (p->opcode == PKT_CNP && qp_is_connected(qp)) {
		cnp_receive(qp, from, p);
		return;
	}
	path_count(from->path, COUNT_RX_OPCODE);
	if (!engine_is_answer(p->opcode))
		absent_report(from, p);
}

static void engine_receive(void *user, struct path_dest *from, const struct pkt *p,
			   const void *payload)
{
	struct ibt *ibt = user;
	struct ibt_qp *qp = table_lookup(ibt, p->dqpn);

	if (unlikely(qp == NULL)) {
		engine_no_qp(ibt, from, p, payload);
	} else if (unlikely(__atomic_load_n(&qp->takes, __ATOMIC_RELAXED) != p->qp_type)) {
		engine_other_type(qp, from, p, payload);
	} else if (!qp_is_connected(qp)) {
		engine_datagram(qp, from->path, p, payload);
	} else {
		engine_connected(qp, from, p, payload);
	}
}

static bool engine_awaits(void *user, const struct path_dest *from, const struct pkt *p)
{
	struct ibt_qp *qp = table_lookup(user, p->dqpn);
	bool awaited;

	if (qp == NULL && engine_is_general(user, p))
		return true;
	if (qp == NULL) {
		path_count(from->path, COUNT_RX_NO_QP);
		return false;
	}
	if (qp_port_is_down(qp)) {
		path_count(from->path, COUNT_PORT_DOWN);
		return false;
	}
	if (!qp_is_connected(qp))
		return true;
	lock_acquire(&qp->resp.rq_lock);
	awaited = qp_is_peer(qp, from, p) || alternate_is_alternate(qp, from);
	lock_release(&qp->resp.rq_lock);
	if (!awaited)
		path_count(from->path, COUNT_RX_WRONG_PEER);
	return awaited;
}

static void engine_batch_end(void *user, struct path_dest *from, bool idle)
{
	ack_batch_end(from, idle);
}

static void engine_resume(struct ibt_qp *qp)
{
	lock_acquire(&qp->req.sq_lock);
	qp->req.member_timed_out = false;
	qp_mark_runnable(qp);
	sched_leave(qp);
	if (qp_is_reliable(qp))
		resp_resume(qp);
}

static void engine_writable(void *user, struct path_dest *dest)
{
	for (int limit = block_count(dest); limit > 0; limit--) {
		struct ibt_qp *qp = block_pop(dest);

		if (qp == NULL)
			return;
		engine_resume(qp);
		/* Then the room is used up, and the rest waits for the next call. */
		if (block_is_listed(qp, dest))
			return;
	}
}

static void engine_dead(void *user, struct path_dest *dest)
{
	struct ibt *ibt = user;

	for (u32 s = 0; s < IBT_TABLES; s++) {
		/* both loads pair with table_add */
		struct ibt_qp **table = __atomic_load_n(&ibt->tables[s], __ATOMIC_ACQUIRE);

		for (u32 i = 0; table != NULL && i < 1u << IBT_INDEX_BITS; i++) {
			struct ibt_qp *qp = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);

			if (qp != NULL && qp_is_reliable(qp))
				qp_peer_died(qp, dest);
			if (qp != NULL)
				resp_peer_died(qp, dest);
		}
	}
	proxy_peer_died(ibt, dest);
}

static const struct path_user engine_user = {
	.receive = engine_receive,
	.awaits = engine_awaits,
	.receive_brief = quick_receive,
	.receive_run = quick_receive_run,
	.batch_end = engine_batch_end,
	.writable = engine_writable,
	.dead = engine_dead,
};

struct ibt *ibt_create(const struct ibt_config *cfg)
{
	struct ibt *ibt = calloc(1, sizeof(*ibt));

	if (ibt == NULL)
		return NULL;
	ibt->cfg = *cfg;
	ibt->rate_due = sched_rate_timer;
	ibt->answer_rate_due = resp_rate_timer;
	ibt->forward_due = resp_forward_timer;
	return ibt;
}

void ibt_destroy(struct ibt *ibt)
{
	for (u32 s = 0; s < IBT_TABLES; s++)
		free(ibt->tables[s]);
	free(ibt->xrc_srqs);
	proxy_free_all(ibt);
	free(ibt);
}

void ibt_add_path(struct ibt *ibt, struct path *p)
{
	p->user_ops = &engine_user;
	p->user = ibt;
	ibt->paths[ibt->path_count++] = p;
}

int ibt_look(struct ibt *ibt, int budget)
{
	int n = 0;

	for (u32 i = 0; i < ibt->path_count; i++)
		n += ibt->paths[i]->ops->poll(ibt->paths[i], budget, true);
	return n;
}

static void engine_timers(struct ibt *ibt)
{
	u32 polls = __atomic_load_n(&ibt->polls, __ATOMIC_RELAXED) + 1;

	__atomic_store_n(&ibt->polls, polls, __ATOMIC_RELAXED);
	if (polls % ENGINE_TIMER_EVERY == 0)
		timer_run(ibt->cfg.timers, clock_now_ns());
}

int ibt_poll(struct ibt *ibt, int budget)
{
	/* The nearest, which is asked always: it is never idle for long. */
	struct path *first = ibt->paths[0];
	int n = first->ops->poll(first, budget, false);

	for (u32 i = 1; i < ibt->path_count; i++)
		if (unlikely(!path_is_idle(ibt->paths[i])))
			n += ibt->paths[i]->ops->poll(ibt->paths[i], budget, false);
	if (unlikely(timer_next_ns(ibt->cfg.timers) != TIMER_NEVER))
		engine_timers(ibt);
	return n;
}
