/* reason.c: a queue pair fails by itself only for a reason of its own.
 *
 * A responder that goes to ERR says so by an event. Then a request of its peer must be outstanding
 * that it may refuse, and not all of those may succeed: what its peer has completed, or has never
 * asked for, breaks no connection. A requester that hears nothing of its peer any more must have
 * lost a packet of this connection, or its peer was stopped, gone, or out of reach.
 * In: events, ends of requests, lost packets    Out: an oracle's word
 */
#include "tagged.h"

enum { REASON_SLACK_MS = 25 };

typedef unsigned long long ull;

/* ---- the responder ---- */

/* Has the key gone on which the request stands? One that the requester itself invalidates is good
 * until then, but a READ before that may be answered after it. */
static bool reason_key_is_gone(const struct send *s)
{
	const struct cell *c = s->cell;

	if (c == NULL)
		return false;
	if (c->by_peer)
		return s->tag > c->victim_of || s->opcode == IBV_WR_RDMA_READ;
	return c->withdrawn || c->victim_of != 0;
}

bool reason_is_access(const struct send *s)
{
	if (s->fault == FAULT_SILENT || s->fault == FAULT_DUPLICATE)
		return false;
	return (s->fault >= FAULT_RKEY && s->fault <= FAULT_ACCESS) ||
	       s->fault == FAULT_WITHDRAWN ||
	       (s->fault == FAULT_VICTIM && s->opcode == IBV_WR_SEND_WITH_INV) ||
	       reason_key_is_gone(s);
}

bool reason_is_invalid(const struct send *s)
{
	if (s->fault == FAULT_SILENT || s->fault == FAULT_DUPLICATE)
		return false;
	return s->fault == FAULT_ALIGN || s->fault == FAULT_SRQ || s->message != NULL ||
	       (s->misfit && s->opcode != IBV_WR_RDMA_READ) || xrc_is_refused(s->srq);
}

/* The requests of the peer for which the queue pair may have failed. A message that its receive
 * cannot take shows there, too. */
static u32 reason_blame(struct sqp *q, enum ibv_event_type type)
{
	u32 n = 0;

	list_for_each(s, &q->peer->sends, struct send, node) {
		s->blamed = type == IBV_EVENT_QP_ACCESS_ERR ? reason_is_access(s)
							    : reason_is_invalid(s);
		n += s->blamed;
		if (s->blamed && (type == IBV_EVENT_QP_ACCESS_ERR || s->message == NULL ||
				  s->fault != FAULT_NONE || xrc_is_refused(s->srq)))
			q->why |= WHY_PEER;
	}
	return n;
}

void reason_refused(struct sqp *q, enum ibv_event_type type)
{
	struct sqp *peer = q->peer;

	if (world.plan.tagged) {
		sim_check(type != IBV_EVENT_QP_ACCESS_ERR || tagged_asks_amiss(q),
			  "qp %06x fails with event %u, but no message of it names a wrong key",
			  q->qpn, type);
		return;
	}
	sim_check(sqp_is_reliable(q), "qp %06x fails with event %u", q->qpn, type);
	if (peer->flushed || peer->forgotten || peer->proc->dead) {
		q->why |= WHY_PEER; /* what it had sent is not known any more */
		return;
	}
	peer->blamed = reason_blame(q, type);
	sim_check(peer->blamed != 0,
		  "qp %06x fails with event %u, but no request of its peer may be refused", q->qpn,
		  type);
}

void reason_succeeded(struct send *s)
{
	sim_check(!s->blamed || --s->qp->blamed != 0,
		  "qp %06x: #%llu succeeds, and is all for which its peer may have failed",
		  s->qp->qpn, (ull)s->tag);
}

/* A queue pair whose requests or receives were flushed. */
void reason_check_flushed(const struct sqp *q)
{
	bool died = q->peer != NULL && q->peer->proc->dead;

	if ((!q->flushed && !q->recv_flushed) || q->forgotten || q->proc->dead ||
	    q->send_cq->overflowed || q->recv_cq->overflowed)
		return;
	sim_check(q->why != 0 || died, "qp %06x is in error for no reason", q->qpn);
}

/* ---- the requester ---- */

void reason_lost(u32 qpn)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->qpn == qpn && sqps[i]->peer != NULL)
			sqps[i]->lost_ns = sqps[i]->peer->lost_ns = world.now;
}

u64 reason_stopped_ns(const struct proc *p)
{
	return p->stops_ns + (p->stopped ? world.now - p->stopped_ns : 0);
}

/* Was the peer stopped for about as long as the retries last, or longer? Or a process that a target
 * has handed one of the requests to. */
static bool reason_was_stopped(const struct send *s)
{
	const struct sqp *q = s->qp;
	u64 budget = (q->retry_cnt + 1u) * judge_timeout_ns(q->timeout);
	u64 stopped = reason_stopped_ns(q->peer->proc) - s->peer_stopped_ns;

	if (world.plan.hands && sqp_is_xrc(q))
		for (u32 i = 0; i < world.plan.procs; i++)
			stopped += reason_stopped_ns(world.procs[i]);
	return stopped != 0 && stopped + REASON_SLACK_MS * NS_PER_MS >= budget;
}

bool reason_is_silence(const struct send *s)
{
	const struct sqp *q = s->qp, *peer = q->peer;
	const struct node *a = q->proc->node, *b = peer->proc->node;
	u64 since = s->posted_ns - MIN(s->posted_ns, 5 * NS_PER_MS);

	if (s->fault == FAULT_SILENT || s->fault == FAULT_DUPLICATE || ends_are_unheard(s->qp))
		return true;
	if (path_is_air(q->proc, peer->proc) &&
	    (reason_was_stopped(s) || q->lost_ns >= s->posted_ns))
		return true;
	if (q->plane != peer->plane || (peer->moves | q->moves) != 0)
		return true; /* one of them has moved, and the other one may not follow */
	return !sqp_received_since(peer, s->posted_ns) || !a->up || !b->up ||
	       a->changed_ns > since || b->changed_ns > since;
}
