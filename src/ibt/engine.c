/* engine.c: the engine as a whole: which queue pair a packet is for, and what paths tell it.
 * In: packets, room, deaths    Out: calls of responder, completer, requester
 * Runs: whoever polls    Locks: table_lock for changes of the table; lookups take none
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ibt/ibt_priv.h"

enum {
	ENGINE_TIMER_EVERY = 16, /* polls between looks at the clock, if any timer is armed */
	ENGINE_RESUMES = 4096,   /* queue pairs set going again in one call */
};

static void engine_count_datagrams(struct ibt *ibt, const struct ibt_qp *qp, u32 by)
{
	for (u32 i = 0; i < ibt->path_count && qp->type == IBV_QPT_UD; i++)
		__atomic_fetch_add(&ibt->paths[i]->datagrams, by, __ATOMIC_RELAXED);
}

int engine_table_add(struct ibt *ibt, struct ibt_qp *qp)
{
	u32 slot = qp->qpn >> IBT_INDEX_BITS;
	int err = 0;

	lock_acquire(&ibt->table_lock);
	if (ibt->tables[slot] == NULL) {
		struct ibt_qp **table = calloc(1u << IBT_INDEX_BITS, sizeof(*table));

		__atomic_store_n(&ibt->tables[slot], table, __ATOMIC_RELEASE);
	}
	if (ibt->tables[slot] == NULL)
		err = -ENOMEM;
	else
		__atomic_store_n(&ibt->tables[slot][qp->qpn & ((1u << IBT_INDEX_BITS) - 1)], qp,
				 __ATOMIC_RELEASE);
	lock_release(&ibt->table_lock);
	if (err == 0)
		engine_count_datagrams(ibt, qp, 1);
	return err;
}

void engine_table_remove(struct ibt *ibt, struct ibt_qp *qp)
{
	lock_acquire(&ibt->table_lock);
	__atomic_store_n(
		&ibt->tables[qp->qpn >> IBT_INDEX_BITS][qp->qpn & ((1u << IBT_INDEX_BITS) - 1)],
		NULL, __ATOMIC_RELEASE);
	lock_release(&ibt->table_lock);
	engine_count_datagrams(ibt, qp, -1u);
}

static inline bool engine_is_answer(u8 opcode)
{
	return opcode == PKT_ACK || opcode == PKT_ATOMIC_ACK || opcode == PKT_ABSENT ||
	       opcode == PKT_CNP || (opcode >= PKT_READ_FIRST && opcode <= PKT_READ_ONLY);
}

static void engine_no_qp(struct ibt *ibt, struct path_dest *from, const struct pkt *p)
{
	if (p->opcode == PKT_ABSENT && p->dqpn == 0 && from->path->promise.reliable) {
		loss_suspect_from(ibt, from);
		return;
	}
	path_count(from->path, COUNT_RX_NO_QP);
	if (!engine_is_answer(p->opcode))
		absent_say(from, p);
}

/* An acknowledgement that came along with a request. */
static void engine_piggyback(struct ibt_qp *qp, const struct path_dest *from, const struct pkt *p)
{
	lock_acquire(&qp->sq_lock);
	if (qp_sends(qp) && qp_is_peer(qp, from, p)) {
		if (likely(psn_ahead(p->ack_psn, qp->sq_psn) < 0))
			comp_ack(qp, p->ack_psn);
		else
			comp_beyond(qp, p->ack_psn);
	}
	lock_release(&qp->sq_lock);
}

/* A notification of congestion names no transport. Whose request is for another type of queue pair
 * finds nobody here. */
static void engine_other_type(struct ibt_qp *qp, struct path_dest *from, const struct pkt *p)
{
	if (p->opcode == PKT_CNP && qp->type != IBV_QPT_UD) {
		cnp_receive(qp, from, p);
		return;
	}
	path_count(from->path, COUNT_RX_OPCODE);
	if (!engine_is_answer(p->opcode))
		absent_say(from, p);
}

static void engine_receive(void *user, struct path_dest *from, const struct pkt *p,
			   const void *payload)
{
	struct ibt *ibt = user;
	struct ibt_qp *qp = engine_lookup(ibt, p->dqpn);

	if (unlikely(qp == NULL)) {
		engine_no_qp(ibt, from, p);
	} else if (unlikely(qp->type != p->qp_type)) {
		engine_other_type(qp, from, p);
	} else if (qp->type == IBV_QPT_UD) {
		ud_receive(qp, from->path, p, payload);
	} else if (engine_is_answer(p->opcode)) {
		if (qp->type == IBV_QPT_RC)
			comp_receive(qp, from, p, payload);
		else
			path_count(from->path, COUNT_RX_OPCODE);
	} else {
		if ((p->flags & PKT_HAS_ACK) != 0 && from->path->promise.reliable)
			engine_piggyback(qp, from, p);
		resp_receive(qp, from, p, payload);
	}
}

static bool engine_awaits(void *user, const struct path_dest *from, const struct pkt *p)
{
	struct ibt_qp *qp = engine_lookup(user, p->dqpn);
	bool awaited;

	if (qp == NULL) {
		path_count(from->path, COUNT_RX_NO_QP);
		return false;
	}
	if (qp->type == IBV_QPT_UD)
		return true;
	lock_acquire(&qp->rq_lock);
	awaited = qp_is_peer(qp, from, p);
	lock_release(&qp->rq_lock);
	if (!awaited)
		path_count(from->path, COUNT_RX_WRONG_PEER);
	return awaited;
}

static void engine_batch_end(void *user, struct path_dest *from, bool idle)
{
	resp_batch_end(from, idle);
}

static void engine_resume(struct ibt_qp *qp)
{
	struct path_dest *others = NULL;

	lock_acquire(&qp->sq_lock);
	qp->hurried = false;
	req_pump(qp);
	if (qp->streams)
		others = window_claim(qp);
	lock_release(&qp->sq_lock);
	window_wake(others);
	if (qp->type == IBV_QPT_RC)
		resp_resume(qp);
}

/* The next that waits, off the list; it may come back to it while it is resumed. */
static struct ibt_qp *engine_take_blocked(struct path_dest *dest)
{
	struct list_head *node;

	lock_acquire(&dest->blocked_lock);
	node = list_pop_front(&dest->blocked);
	__atomic_store_n(&dest->any_blocked, !list_empty(&dest->blocked), __ATOMIC_RELAXED);
	lock_release(&dest->blocked_lock);
	return node == NULL ? NULL : list_entry(node, struct ibt_qp, blocked_node);
}

/* A connected queue pair waits for this destination only, so its lock covers the node. */
static bool engine_is_blocked_again(struct ibt_qp *qp, struct path_dest *dest)
{
	bool again;

	if (qp->type == IBV_QPT_UD)
		return false;
	lock_acquire(&dest->blocked_lock);
	again = !list_empty(&qp->blocked_node);
	lock_release(&dest->blocked_lock);
	return again;
}

/* How many wait, at most as many as one call sets going, but one look in any case: it corrects
 * any_blocked. Each of them gets one try: a queue pair of datagrams may come back to the list, and
 * its next try would find no room either. */
static int engine_count_blocked(struct path_dest *dest)
{
	int n = 0;

	lock_acquire(&dest->blocked_lock);
	for (struct list_head *node = dest->blocked.next;
	     node != &dest->blocked && n < ENGINE_RESUMES; node = node->next)
		n++;
	lock_release(&dest->blocked_lock);
	return MAX(n, 1);
}

static void engine_writable(void *user, struct path_dest *dest)
{
	for (int limit = engine_count_blocked(dest); limit > 0; limit--) {
		struct ibt_qp *qp = engine_take_blocked(dest);

		if (qp == NULL)
			return;
		engine_resume(qp);
		/* Then the room is used up, and the rest waits for the next call. */
		if (engine_is_blocked_again(qp, dest))
			return;
	}
}

static void engine_dead(void *user, struct path_dest *dest)
{
	struct ibt *ibt = user;

	for (u32 s = 0; s < IBT_TABLES; s++) {
		/* both loads pair with engine_table_add */
		struct ibt_qp **table = __atomic_load_n(&ibt->tables[s], __ATOMIC_ACQUIRE);

		for (u32 i = 0; table != NULL && i < 1u << IBT_INDEX_BITS; i++) {
			struct ibt_qp *qp = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);

			if (qp != NULL && qp->type == IBV_QPT_RC)
				qp_peer_died(qp, dest);
		}
	}
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

	if (ibt != NULL)
		ibt->cfg = *cfg;
	return ibt;
}

void ibt_destroy(struct ibt *ibt)
{
	for (u32 s = 0; s < IBT_TABLES; s++)
		free(ibt->tables[s]);
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
