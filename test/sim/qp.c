/* qp.c: queue pairs of the simulated programs: created, connected, modified, destroyed.
 * In: the program's wishes    Out: queue pairs of the engine, and what is known about them
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "tagged.h"

struct sqp *sqps[SIM_QPS];
u32 sqp_count;
u64 next_tag;

struct sqp *sqp_find(const struct proc *p, u32 qpn)
{
	for (u32 i = 0; i < sqp_count; i++)
		if (sqps[i]->proc == p && sqps[i]->qpn == qpn && sqps[i]->engine != NULL)
			return sqps[i];
	return NULL;
}

enum ibv_qp_state sqp_state(const struct sqp *q)
{
	return q->engine == NULL ? IBV_QPS_RESET : ibt_qp_state(q->engine);
}

void sqp_publish(void *arg, struct ibt_qp *engine)
{
	struct sqp *q = sqp_of(ibt_qp_owner(engine));
	bool receives;

	q->shown_state = (u8)ibt_qp_state(engine);
	q->shown_access = ibt_qp_access(engine);
	q->shown_peer = ibt_qp_peer(engine);
	receives = sqp_state_receives(q->shown_state);
	if (receives && q->receiving_ns == SIM_NEVER)
		q->receiving_ns = world.now;
	else if (!receives && q->receiving_ns != SIM_NEVER)
		q->absent_ns = world.now;
	if (!receives)
		q->receiving_ns = SIM_NEVER;
	if (q->shown_state != IBV_QPS_RTS)
		q->sending_ns = SIM_NEVER;
	else if (q->sending_ns == SIM_NEVER)
		q->sending_ns = world.now;
}

bool sqp_received_since(const struct sqp *q, u64 since)
{
	return q->engine != NULL && !q->proc->dead && q->receiving_ns <= since;
}

/* ---- creation ---- */

static void sqp_draw_caps(struct sqp *q)
{
	q->cap = (struct ibv_qp_cap){
		.max_send_wr = (u32)rng_skewed(RNG, 1, 64),
		.max_recv_wr = (u32)rng_skewed(RNG, 1, 64),
		.max_send_sge = (u32)rng_range(RNG, 1, MAX_SGES),
		.max_recv_sge = (u32)rng_range(RNG, 1, MAX_SGES),
		.max_inline_data = rng_percent(RNG, 50) ? 0 : (u32)rng_skewed(RNG, 1, 512),
	};
	if (q->mute)
		q->cap.max_send_wr = MIN(q->cap.max_send_wr, 8u);
}

void sqp_draw(struct sqp *q)
{
	static const u32 near_wrap = 0xffffff - 40;

	q->timeout = rng_percent(RNG, 10) ? 0 : (u8)rng_range(RNG, 1, 16);
	q->retry_cnt = (u8)rng_range(RNG, 0, 7);
	q->rnr_retry = rng_percent(RNG, 60) ? 7 : (u8)rng_range(RNG, 0, 6);
	q->min_rnr = (u8)rng_range(RNG, 0, 20);
	q->rd_atomic = (u8)rng_skewed(RNG, 1, 16);
	q->dest_rd_atomic = (u8)rng_skewed(RNG, 1, 16);
	q->mtu = (u8)rng_range(RNG, IBV_MTU_256, IBV_MTU_4096);
	q->access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		    (world.plan.wide ? MEM_ACCESS_FLUSH : 0);
	q->qkey = (u32)rng_range(RNG, 1, 0x7fffffff);
	q->sq_psn = rng_percent(RNG, 60) ? near_wrap + rng_below(RNG, 60) : (u32)rng_next(RNG);
	q->sq_psn &= 0xffffff;
	q->mute = world.plan.fills && rng_percent(RNG, 40);
}

void sqp_own(struct sqp *q)
{
	*(struct sqp **)ibt_qp_owner(q->engine) = q;
}

struct sqp *sqp_of(const void *owner)
{
	return *(struct sqp *const *)owner;
}

void sqp_create_engine(struct sqp *q)
{
	struct ibt_qp_init init = { .type = q->type,
				    .qpn = q->qpn,
				    .pd = q->pd_number,
				    .cap = q->cap,
				    .send_cq = &q->send_cq->cq,
				    .recv_cq = sqp_is_xrc(q) ? NULL : &q->recv_cq->cq,
				    .srq = q->tm != NULL    ? q->tm->srq
					   : q->srq != NULL ? q->srq->srq
							    : NULL,
				    .sq_sig_all = q->sig_all,
				    .owner_bytes = sizeof(struct sqp *),
				    .counters = &q->counters };
	int err;

	if (q->type == IBV_QPT_XRC_RECV) {
		init.send_cq = NULL;
		init.pd = 0;
		init.xrcd = XRC_DOMAIN;
	}
	err = ibt_qp_create(q->proc->ibt, &init, &q->engine);

	sim_check(err == 0, "a queue pair cannot be created: %d", err);
	sqp_own(q);
	if (!q->proc->port_up)
		ibt_qp_set_port_up(q->engine, false);
	q->cap = init.cap;
	trace(q->proc, TR_CREATE, q->qpn, q->type, q->cap.max_send_wr, q->cap.max_recv_wr);
}

struct sqp *sqp_new(struct proc *p, u32 type)
{
	struct sqp *q;

	if (sqp_count == SIM_QPS || (q = calloc(1, sizeof(*q))) == NULL)
		return NULL;
	sqps[sqp_count++] = q;
	q->proc = p;
	q->type = type;
	q->receiving_ns = q->sending_ns = SIM_NEVER;
	q->absent_ns = world.now;
	list_init(&q->sends);
	list_init(&q->recvs);
	list_init(&q->cells);
	sqp_draw(q);
	return q;
}

/* Seldom one that is too small. */
static struct scq *sqp_draw_cq(struct proc *p)
{
	struct scq *cq = p->cqs[rng_below(RNG, p->cq_count)];

	return cq->small && rng_percent(RNG, 70) ? p->cqs[0] : cq;
}

struct sqp *sqp_create(struct proc *p, u32 type)
{
	struct sqp *q = sqp_new(p, type);

	if (q == NULL)
		return NULL;
	q->qpn = p->slot << IBT_INDEX_BITS | p->next_index++;
	sqp_draw_caps(q);
	q->pd = rng_below(RNG, SIM_PDS);
	q->sig_all = rng_percent(RNG, 30);
	if (p->srq != NULL && rng_percent(RNG, 40) && type != IBV_QPT_UC && !sqp_is_xrc(q)) {
		q->srq = p->srq;
		q->pd = p->srq->pd;
	}
	q->pd_number = q->pd + 1;
	q->send_cq = sqp_draw_cq(p);
	q->recv_cq = sqp_draw_cq(p);
	if (type == IBV_QPT_XRC_RECV) {
		q->send_cq = q->recv_cq = p->cqs[0]; /* that of its SRQs */
		world.targets[p->id]++;
	}
	if (type == IBV_QPT_UD && rng_percent(RNG, 70)) {
		q->group = &groups[rng_below(RNG, SIM_GROUPS)];
		q->qkey = q->group->qkey;
	}
	sqp_create_engine(q);
	if (q->group != NULL && rng_percent(RNG, 70))
		group_change(q);
	return q;
}

/* ---- states ---- */

static int sqp_attr_init(struct sqp *q, struct ibv_qp_attr *a)
{
	a->port_num = 1;
	a->qp_access_flags = q->access;
	a->qkey = q->qkey;
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       (q->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
}

static int sqp_attr_rtr(struct sqp *q, struct ibv_qp_attr *a, struct path_av *av)
{
	if (q->type == IBV_QPT_UD)
		return IBV_QP_STATE;
	a->path_mtu = (enum ibv_mtu)q->mtu;
	a->dest_qp_num = ends_peer_qpn(q);
	a->rq_psn = q->rq_psn = (q->peer->sq_psn + (u32)q->shift) & 0xffffff;
	a->max_dest_rd_atomic = q->dest_rd_atomic;
	a->min_rnr_timer = q->min_rnr;
	path_gid(q->proc->node, av->sgid);
	path_gid(q->peer->proc->node, av->dgid);
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       (sqp_is_reliable(q) ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
}

static int sqp_attr_rts(struct sqp *q, struct ibv_qp_attr *a)
{
	a->sq_psn = q->sq_psn;
	a->timeout = q->timeout;
	a->retry_cnt = q->retry_cnt;
	a->rnr_retry = q->rnr_retry;
	a->max_rd_atomic = q->rd_atomic;
	return IBV_QP_STATE | IBV_QP_SQ_PSN |
	       (sqp_is_reliable(q) ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					     IBV_QP_MAX_QP_RD_ATOMIC
				   : 0);
}

static int sqp_attr_sqd(struct sqp *q, struct ibv_qp_attr *a)
{
	q->drain_asked = rng_percent(RNG, 70);
	q->drained = false;
	a->en_sqd_async_notify = q->drain_asked;
	return IBV_QP_EN_SQD_ASYNC_NOTIFY;
}

void sqp_modify(struct sqp *q, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = { .qp_state = to };
	struct path_dest *dest = NULL;
	struct path_av av = { .hop_limit = 64 };
	int mask = IBV_QP_STATE, err;

	trace(q->proc, TR_MODIFY, q->qpn, to, 0, 0);
	if (to == IBV_QPS_INIT)
		mask = sqp_attr_init(q, &a);
	else if (to == IBV_QPS_RTR)
		mask = sqp_attr_rtr(q, &a, &av);
	else if (to == IBV_QPS_RTS && sqp_state(q) == IBV_QPS_RTR)
		mask = sqp_attr_rts(q, &a);
	else if (to == IBV_QPS_SQD)
		mask |= sqp_attr_sqd(q, &a);
	else if (to == IBV_QPS_ERR)
		q->why |= WHY_PROGRAM;
	if (mask & IBV_QP_AV) {
		dest = q->astray == ASTRAY_DEST ? path_nowhere(q->proc, q->peer->proc)
						: path_dest_of(q->proc, q->peer->proc);
		dest->path->ops->resolve(dest);
	}
	if (to == IBV_QPS_RESET) {
		event_forget_taken(q);
		q->forgotten = true;
		proc_enter(q->proc);
	}
	err = ibt_qp_modify(q->engine, &a, mask, &av, dest);
	sim_check(err == 0, "qp %06x cannot be modified to %u: %d", q->qpn, to, err);
	if (to == IBV_QPS_RESET) {
		q->proc->asleep = false;
		judge_forget(q);
	}
	if (to == IBV_QPS_ERR)
		list_for_each(c, &q->cells, struct cell, node)
			cell_close(c);
	proc_wake(q->proc, world.now);
}

/* One step of the way to RTS; the program may have other plans by now. */
static void sqp_step(void *arg, u64 to)
{
	struct sqp *q = arg;

	if (q->proc->dead || q->engine == NULL || q->ending)
		return;
	if (q->proc->stopped || q->proc->asleep) {
		world_at(world.now + 50000, sqp_step, q, to);
		return;
	}
	if (sqp_state(q) != (to == IBV_QPS_INIT	 ? IBV_QPS_RESET
			     : to == IBV_QPS_RTR ? IBV_QPS_INIT
						 : IBV_QPS_RTR))
		return;
	if (to == IBV_QPS_RTR && q->again && world.plan.ends)
		path_drain(q->proc); /* as the driver does */
	sqp_modify(q, (enum ibv_qp_state)to);
	if (to != IBV_QPS_RTS && (to != IBV_QPS_RTR || q->type != IBV_QPT_XRC_RECV))
		world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), sqp_step, q, to + 1);
}

static void pair_create_cells(struct sqp *q)
{
	u32 n = (u32)rng_range(RNG, 1, 4);

	for (u32 i = 0; i < n; i++)
		cell_create(q);
}

void sqp_connect(struct sqp *q)
{
	world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), sqp_step, q, IBV_QPS_INIT);
}

void pair_join(struct sqp *x, struct sqp *y)
{
	x->peer = y;
	y->peer = x;
	y->mtu = x->mtu;
	x->rd_atomic = MIN(x->rd_atomic, y->dest_rd_atomic);
	y->rd_atomic = MIN(y->rd_atomic, x->dest_rd_atomic);
	ends_draw(x, y);
	if (x->type != IBV_QPT_XRC_SEND)
		pair_create_cells(x);
	pair_create_cells(y);
}

void pair_open(struct proc *a, struct proc *b, u32 type)
{
	bool xrc = type == IBV_QPT_XRC_SEND;
	struct sqp *x, *y;

	if (sqp_count + 2 > SIM_QPS)
		return;
	x = sqp_create(a, type);
	y = sqp_create(b, xrc ? (u32)IBV_QPT_XRC_RECV : type);
	if (x == NULL || y == NULL)
		abort();
	pair_join(x, y);
	sqp_connect(x);
	sqp_connect(y);
}

void datagram_open(struct proc *p)
{
	struct sqp *q = sqp_create(p, IBV_QPT_UD);

	if (q != NULL)
		sqp_connect(q);
}

/* ---- the end ---- */

static void sqp_destroy_later(void *arg, u64 n)
{
	struct sqp *q = arg;

	if (q->proc->dead || q->engine == NULL)
		return;
	if (q->proc->stopped || q->proc->asleep)
		world_at(world.now + 50000, sqp_destroy_later, q, n);
	else
		sqp_destroy(q);
}

void sqp_end(struct sqp *q)
{
	if (q->ending || q->engine == NULL)
		return;
	q->ending = true;
	if (sqp_state(q) != IBV_QPS_RESET && rng_percent(RNG, 70))
		sqp_modify(q, IBV_QPS_ERR);
	world_at(world.now + rng_skewed(RNG, 1000, NS_PER_MS), sqp_destroy_later, q, 0);
}

void sqp_destroy(struct sqp *q)
{
	struct ibt_qp *engine = q->engine;
	void *block = ibt_qp_owner(engine);
	size_t size = malloc_usable_size(block);

	trace(q->proc, TR_DESTROY, q->qpn, 0, 0, 0);
	event_forget_taken(q);
	q->forgotten = q->going = true;
	proc_enter(q->proc);
	q->shown_state = IBV_QPS_RESET;
	if (q->receiving_ns != SIM_NEVER)
		q->absent_ns = world.now;
	q->receiving_ns = SIM_NEVER;
	ibt_qp_destroy(engine);
	path_check_gone(q->proc, block, size);
	q->proc->asleep = false;
	q->engine = NULL;
	q->receiving_ns = q->sending_ns = SIM_NEVER;
	judge_forget(q);
	proc_wake(q->proc, world.now);
}

void sqp_set_port(struct proc *p, bool was_up)
{
	for (u32 i = 0; i < sqp_count; i++) {
		if (sqps[i]->proc != p || sqps[i]->engine == NULL || sqps[i]->going)
			continue;
		ibt_qp_set_port_up(sqps[i]->engine, p->port_up);
		if (was_up)
			ibt_qp_suspect_loss(sqps[i]->engine);
	}
}

void sqp_judge_port(const struct proc *p, u32 qpn)
{
	for (u32 i = 0; i < sqp_count && !p->port_up; i++)
		sim_check(sqps[i]->proc != p || sqps[i]->qpn != qpn || sqps[i]->engine == NULL ||
				  sqps[i]->going,
			  "qp %06x uses a port that is down", qpn);
}

/* At the end of the run. */
void sqp_free(struct sqp *q)
{
	list_for_each_safe(s, &q->sends, struct send, node)
		send_free(s);
	list_for_each_safe(r, &q->recvs, struct recv, node)
		recv_free(r, q->proc);
	list_for_each_safe(c, &q->cells, struct cell, node)
		cell_destroy(c);
	for (u32 i = 0; i < q->message_count; i++)
		free(q->messages[i]);
	free(q);
}
