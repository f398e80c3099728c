/* xrc.c: XRC: the SRQs that requests name, and their receive requests.
 *
 * A process that is a target has an SRQ in each protection domain, and one in another XRC domain.
 * Keys are judged by the protection domain of the SRQ that the request names. Completions name no
 * queue pair, and outlive it. In some of the seeds all processes of a node share the domain: SENDs
 * name SRQs of any of them, and the target hands these on.
 * In: turns, requests, completions    Out: SRQs, their numbers in requests    Spec: IBA vol 1, A14
 */
#include <stdlib.h>

#include "ibt/send/wqe.h"
#include "model.h"

#define XRC_OTHER_DOMAIN (IBT_XRC_SHARED | 2)
enum { XRC_ROOM = 64 };

/* ---- the SRQs of a process ---- */

static struct srq *xrc_new(struct proc *p, u32 i)
{
	bool other = i == SIM_PDS;
	struct srq *s = calloc(1, sizeof(*s));
	struct ibt_srq_init init;

	if (s == NULL)
		abort();
	s->proc = p;
	s->pd = i % SIM_PDS;
	s->max_wr = (u32)rng_skewed(RNG, 4, XRC_ROOM);
	s->max_sge = (u32)rng_range(RNG, 1, MAX_SGES);
	s->number = p->slot << IBT_INDEX_BITS | p->next_index++;
	s->cq = p->cqs[0];
	list_init(&s->recvs);
	init = (struct ibt_srq_init){
		.pd = s->pd + 1, .max_wr = s->max_wr, .max_sge = s->max_sge, .owner = s
	};
	sim_check(ibt_srq_create(p->ibt, &init, &s->srq) == 0, "no shared receive queue");
	sim_check(ibt_srq_enter_domain(s->srq, &s->cq->cq, other ? XRC_OTHER_DOMAIN : XRC_DOMAIN,
				       s->number) == 0,
		  "SRQ %06x cannot enter a domain", s->number);
	return s;
}

void xrc_setup(struct proc *p)
{
	for (u32 i = 0; i < SIM_XRCS; i++)
		p->xrc[i] = xrc_new(p, i);
}

/* What it still has goes with it; what has completed before has been polled. */
static void xrc_end(struct srq *s)
{
	ibt_srq_leave_domain(s->srq);
	ibt_srq_destroy(s->srq);
	s->gone = true;
	list_for_each_safe(r, &s->recvs, struct recv, node)
		recv_free(r, s->proc);
}

void xrc_teardown(struct proc *p)
{
	for (u32 i = 0; i < SIM_XRCS; i++)
		for (struct srq *s = p->xrc[i], *older; s != NULL; s = older) {
			if (!s->gone) {
				event_check_taken(s);
				xrc_end(s);
			}
			older = s->older;
			free(s);
		}
}

/* Another one takes its place, with another number. Messages in progress to it are refused. */
static void xrc_replace(struct proc *p, u32 i)
{
	struct srq *old = p->xrc[i];

	judge_poll(p, old->cq, 1 << 20);
	trace(p, TR_GROUP, old->number, 2, 0, 0);
	xrc_end(old);
	p->xrc[i] = xrc_new(p, i);
	p->xrc[i]->older = old;
}

void xrc_turn(struct proc *p)
{
	if (p->xrc[0] == NULL)
		return;
	for (u32 i = 0; i < SIM_XRCS; i++) {
		struct srq *s = p->xrc[i];

		if (rng_percent(RNG, 2))
			event_arm_limit(s);
		if (!rng_percent(RNG, world.plan.late_percent))
			post_srq(s, (u32)rng_range(RNG, 1, s->max_wr));
	}
	if (world.plan.modify_permille != 0 && rng_permille(RNG, 3))
		xrc_replace(p, rng_below(RNG, SIM_XRCS));
}

void xrc_quiet_turn(struct proc *p)
{
	for (u32 i = 0; p->xrc[0] != NULL && i < SIM_XRCS; i++)
		post_srq(p->xrc[i], p->xrc[i]->max_wr);
}

/* ---- requests ---- */

/* Whose SRQ: mostly that of another process of the node, if there is one. */
static const struct proc *xrc_draw_proc(const struct proc *target)
{
	u32 begin = rng_below(RNG, world.plan.procs);

	for (u32 i = 0; i < world.plan.procs && rng_percent(RNG, 80); i++) {
		const struct proc *p = world.procs[(begin + i) % world.plan.procs];

		if (p != target && p->node == target->node && p->xrc[0] != NULL && !p->dead)
			return p;
	}
	return target;
}

void xrc_draw_srq(struct send *s, struct ibv_send_wr *wr)
{
	const struct sqp *to = s->qp->peer;
	const struct proc *p = to->proc;
	u32 i = to->pd;

	if (s->opcode == IBV_WR_SEND || s->opcode == IBV_WR_SEND_WITH_IMM) {
		i = rng_below(RNG, SIM_PDS);
		if (world.plan.hands)
			p = xrc_draw_proc(p);
	}
	s->srq = p->xrc[i];
	wr->qp_type.xrc.remote_srqn = s->srq->number;
}

/* Does the target look for the key at all? */
static bool xrc_needs_key(const struct send *s)
{
	return s->counter != NULL || (s->cell != NULL && s->length != 0);
}

bool xrc_draw_fault(struct send *s, struct ibv_send_wr *wr)
{
	const struct sqp *to = s->qp->peer;
	struct srq *const *all = to->proc->xrc;

	if (s->victim != NULL || s->fault != FAULT_NONE)
		return false;
	if (xrc_needs_key(s) && rng_percent(RNG, 50)) {
		s->fault = FAULT_RPD;
		s->srq = all[1 - to->pd];
		wr->qp_type.xrc.remote_srqn = s->srq->number;
		s->counter = NULL;
		return true;
	}
	s->fault = FAULT_SRQ;
	s->srq = NULL;
	s->counter = NULL;
	if (world.plan.hands)
		all = xrc_draw_proc(to->proc)->xrc;
	wr->qp_type.xrc.remote_srqn = rng_percent(RNG, 50)   ? all[SIM_PDS]->number
				      : rng_percent(RNG, 50) ? 0
							     : to->qpn ^ 0x800000;
	return true;
}

/* ---- completions ---- */

struct recv *xrc_find_recv(struct proc *p, u64 tag)
{
	for (u32 i = 0; p->xrc[0] != NULL && i < SIM_XRCS; i++)
		list_for_each(r, &p->xrc[i]->recvs, struct recv, node)
			if (r->tag == tag)
				return r;
	return NULL;
}

struct sqp *xrc_find_target(struct proc *p, u32 qpn)
{
	for (u32 i = 0; i < sqp_count; i++)
		if ((world.plan.hands || sqps[i]->proc == p) && sqps[i]->qpn == qpn &&
		    sqps[i]->type == IBV_QPT_XRC_RECV)
			return sqps[i];
	sim_fail("p%u: a completion that names no queue pair is none of a target", p->id);
}

void xrc_forget_taken(const struct sqp *target)
{
	for (u32 i = 0; i < SIM_XRCS; i++)
		target->proc->xrc[i]->forgotten += sqp_state(target) != IBV_QPS_ERR;
}
