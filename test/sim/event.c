/* event.c: asynchronous events: is each of them due, and does none fail to come?
 * In: the engine's and the queues' word    Out: an oracle's
 */
#include "ibt/receive/srq.h"
#include "model.h"

static void event_drained(struct sqp *q)
{
	sim_check(q->drain_asked && !q->drained && q->shown_state == IBV_QPS_SQD,
		  "qp %06x says that its send queue is drained, in state %u", q->qpn,
		  q->shown_state);
	q->drained = true;
}

static void event_limit(struct srq *s)
{
	sim_check(s->limit != 0, "p%u: a limit is reached that nobody has set", s->proc->id);
	s->limit = 0;
}

void sqp_async(void *arg, struct ibt_qp *engine, struct ibt_srq *srq, enum ibv_event_type type)
{
	struct sqp *q = engine == NULL ? NULL : sqp_of(ibt_qp_owner(engine));

	sim_check(q == NULL || q->engine != NULL, "an event of a queue pair that is destroyed");
	trace(arg, TR_EVENT, q == NULL ? 0 : q->qpn, type, 0, 0);
	if (type == IBV_EVENT_SQ_DRAINED)
		event_drained(q);
	else if (type == IBV_EVENT_SRQ_LIMIT_REACHED)
		event_limit(ibt_srq_owner(srq));
	else if (type == IBV_EVENT_PATH_MIG)
		mig_moved(q);
	else if (type == IBV_EVENT_PATH_MIG_ERR)
		mig_refused(q);
	else if (type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR)
		reason_refused(q, type);
}

void event_overflow(struct cq *cq)
{
	struct scq *c = container_of(cq, struct scq, cq);

	trace(c->proc, TR_EVENT, 0, IBV_EVENT_CQ_ERR, 0, 0);
	sim_check(c->small, "p%u: a completion queue overflows that is large enough", c->proc->id);
	sim_check(!c->overflowed, "p%u: an overflow is reported twice", c->proc->id);
	c->overflowed = true;
}

void event_check_drained(struct sqp *q)
{
	struct ibv_qp_attr a;

	ibt_qp_query(q->engine, &a);
	sim_check(!q->drain_asked || q->drained == !a.sq_draining,
		  "qp %06x is drained (%u), its event says other (%u)", q->qpn, !a.sq_draining,
		  q->drained);
	sim_check(!list_empty(&q->sends) || !a.sq_draining,
		  "qp %06x is still being drained, but nothing is outstanding", q->qpn);
}

void event_arm_limit(struct srq *s)
{
	struct ibv_srq_attr a = { .srq_limit = (u32)rng_range(RNG, 1, s->max_wr) };

	sim_check(ibt_srq_modify(s->srq, &a, IBV_SRQ_LIMIT) == 0, "a limit cannot be set");
	s->limit = a.srq_limit;
	s->at_arm = s->outstanding;
	s->since_arm = 0;
}

/* More have been completed since it was armed than can have been taken before: the last one was
 * taken after that, and when it was, not more were left than are now. */
void event_count_taken(struct srq *s)
{
	s->outstanding--;
	s->since_arm++;
	sim_check(s->limit == 0 || s->since_arm <= s->at_arm || s->outstanding >= s->limit,
		  "p%u: %u receive requests are left, an event was due at %u", s->proc->id,
		  s->outstanding, s->limit);
}

/* One that a message is just filling, unless a failure has flushed it, and those whose completions
 * nobody has polled. */
void event_forget_taken(struct sqp *q)
{
	struct srq *s = q->srq;

	if (q->type == IBV_QPT_XRC_RECV)
		xrc_forget_taken(q);
	if (s == NULL)
		return;
	s->forgotten += sqp_state(q) != IBV_QPS_ERR;
	s->forgotten += (u32)cq_peek(&q->recv_cq->cq, (int)s->max_wr);
}

/* Overflow loses completions, and with them receive requests. */
bool event_may_lose(const struct srq *s)
{
	for (u32 i = 0; i < s->proc->cq_count; i++)
		if (s->proc->cqs[i]->overflowed)
			return true;
	return s->proc->dead;
}

/* At the end. How many places are used says the room that is left. */
void event_check_taken(struct srq *s) NO_THREAD_SAFETY /* one thread */
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	u32 waiting = s->srq->head - s->srq->tail;
	struct ibv_srq_attr a;
	u32 used;

	ibt_srq_query(s->srq, &a);
	used = a.max_wr;
	while (ibt_srq_post(s->srq, &wr, &bad) == 0)
		used--;
	sim_check(used <= s->outstanding, "p%u: %u places are used, by %u shared receive requests",
		  s->proc->id, used, s->outstanding);
	/* The queue pairs that are gone have given back what they had taken. */
	sim_check(event_may_lose(s) || used == waiting,
		  "p%u: %u places are used, but %u shared receive requests wait", s->proc->id, used,
		  waiting);
	sim_check(event_may_lose(s) || s->outstanding <= waiting + s->forgotten,
		  "p%u: of %u shared receive requests %u wait, %u may be forgotten, "
		  "the others never complete",
		  s->proc->id, s->outstanding, waiting, s->forgotten);
}
