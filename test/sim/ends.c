/* ends.c: connections whose ends do not agree: they were given different path MTUs, or PSNs that do
 * not match, or a destination that nobody has. A draw in a quarter of the seeds.
 *
 * What fits one packet of either path MTU succeeds; what is longer is refused, or lost (UC). What a
 * reliable responder has counted already is a duplicate: acknowledged, without effect. What it does
 * not expect yet, and what reaches nobody, ends with the requester's retries.
 * In: a connection, requests that are being drawn    Out: what becomes of each, as a fault
 * Spec: IBA vol 1, 9.7.4.1 (PSN, length of the packet)
 */
#include "ibt/send/wqe.h"
#include "model.h"

enum {
	/* More PSNs than a send queue can hold, and less than reopen.c sets connections apart. */
	ENDS_FAR = 1 << 17,
	ENDS_STRAY_PERCENT = 5,
	ENDS_FIT_PERCENT = 70, /* of the requests that could be refused for their length */
};

static u32 ends_mtu(const struct sqp *q)
{
	return 128u << q->mtu;
}

/* ---- a connection ---- */

/* How far the first PSN that an end expects is from the one that its peer begins with. */
static s32 ends_draw_shift(void)
{
	u32 n = rng_percent(RNG, 75) ? (u32)rng_range(RNG, 1, 4)
				     : ENDS_FAR + rng_below(RNG, ENDS_FAR);

	if (rng_percent(RNG, 30))
		return 0;
	return rng_percent(RNG, 70) ? (s32)n : -(s32)n;
}

/* Direct copies ask for the peer's number alone, and not where it sends to. */
static enum astray ends_draw_astray(const struct sqp *x)
{
	bool direct = world.plan.direct && !path_is_air(x->proc, x->peer->proc);

	return rng_percent(RNG, 50) || direct ? ASTRAY_QPN : ASTRAY_DEST;
}

void ends_draw(struct sqp *x, struct sqp *y)
{
	if (!world.plan.ends || world.quiet || sqp_is_xrc(x))
		return;
	switch (rng_below(RNG, 10)) {
	case 0:
	case 1:
	case 2:
		y->mtu = (u8)rng_range(RNG, IBV_MTU_256, IBV_MTU_4096);
		break;
	case 3:
	case 4:
	case 5:
		x->shift = ends_draw_shift();
		y->shift = ends_draw_shift();
		break;
	case 6:
		x->astray = (u8)ends_draw_astray(x);
		break;
	default:
		break;
	}
	trace(x->proc, TR_ENDS, x->qpn, (u64)x->mtu << 8 | y->mtu,
	      (u64)(u32)x->shift << 32 | (u32)y->shift, x->astray);
}

u32 ends_peer_qpn(const struct sqp *q)
{
	/* a number that the peer process never reaches */
	return q->peer->qpn ^ (q->astray == ASTRAY_QPN ? 1u << (IBT_INDEX_BITS - 1) : 0);
}

bool ends_are_apart(const struct sqp *q)
{
	return q->peer != NULL && (q->astray != ASTRAY_NONE || q->peer->astray != ASTRAY_NONE);
}

/* Packets on a wire do not name the queue pair that sends: the peer takes them, and answers to the
 * number that it has. */
static bool ends_reach_the_deaf(const struct sqp *q)
{
	return q->peer != NULL && q->astray == ASTRAY_NONE && q->peer->astray == ASTRAY_QPN &&
	       path_is_air(q->proc, q->peer->proc);
}

bool ends_are_unheard(const struct sqp *q)
{
	return ends_reach_the_deaf(q) && sqp_is_reliable(q);
}

/* The PSNs that the peer has counted before the first request; negative: that it waits for. */
static s32 ends_behind(const struct sqp *q)
{
	return q->peer != NULL && q->type == IBV_QPT_RC ? q->peer->shift : 0;
}

bool ends_may_be_silent(const struct sqp *q)
{
	return ends_are_apart(q) || ends_behind(q) != 0;
}

/* ---- requests ---- */

bool ends_is_local(const struct send *s)
{
	return s->opcode == IBV_WR_LOCAL_INV || s->opcode == IBV_WR_BIND_MW ||
	       s->fault == FAULT_LKEY || s->fault == FAULT_LPD;
}

static bool ends_is_answered(const struct send *s)
{
	return s->opcode == IBV_WR_RDMA_READ || s->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || s->opcode == IBV_WR_ATOMIC_WRITE ||
	       s->opcode == WQE_WR_FLUSH;
}

/* The request will still be a duplicate: only one packet each, so that it is known which are. */
static bool ends_is_counted(const struct sqp *q)
{
	s32 behind = ends_behind(q);

	return behind > 0 && behind < ENDS_FAR && q->psns + q->drawn_psns < (u32)behind;
}

static u32 ends_least_mtu(const struct sqp *q)
{
	return MIN(ends_mtu(q), ends_mtu(q->peer));
}

static bool ends_differ_in_mtu(const struct sqp *q)
{
	return q->peer != NULL && q->mtu != q->peer->mtu && !sqp_is_xrc(q);
}

u32 ends_limit(const struct sqp *q)
{
	if (ends_is_counted(q))
		return ends_mtu(q);
	if (!ends_differ_in_mtu(q))
		return LARGE_BYTES * 2;
	/* Over memory the requester sees what its peer was given when that receives. What it sends
	 * before may succeed. */
	if ((!path_is_air(q->proc, q->peer->proc) && !sqp_state_receives(q->peer->shown_state)) ||
	    rng_percent(RNG, ENDS_FIT_PERCENT))
		return ends_least_mtu(q);
	return LARGE_BYTES * 2;
}

static void ends_count(struct send *s)
{
	s->psns = 1;
	s->qp->drawn_psns++;
	s->fault = ends_is_answered(s) ? FAULT_SILENT : FAULT_DUPLICATE;
}

void ends_judge(struct send *s)
{
	struct sqp *q = s->qp;

	if (!world.plan.ends || q->peer == NULL || ends_is_local(s))
		return;
	if (ends_is_counted(q)) {
		ends_count(s);
	} else if (ends_reach_the_deaf(q)) {
		return;
	} else if (ends_are_apart(q) || ends_behind(q) < 0 || ends_behind(q) >= ENDS_FAR) {
		s->fault = FAULT_SILENT;
	} else if (ends_differ_in_mtu(q) && s->length > ends_least_mtu(q)) {
		s->misfit = true;
		if (s->fault == FAULT_NONE || !ends_is_answered(s))
			s->fault = FAULT_MTU;
	}
}

void ends_draw_stray(struct send *s, const struct sqp *to, struct ibv_send_wr *wr,
		     struct path_av *av)
{
	if (!world.plan.ends || !rng_percent(RNG, ENDS_STRAY_PERCENT))
		return;
	s->fault = FAULT_SILENT;
	/* on a wire the GID names the node, within a node the number names the process */
	if (path_is_air(s->qp->proc, to->proc))
		av->dgid[13] ^= 0x20;
	else
		wr->wr.ud.remote_qpn = (SIM_PROCS + 1) << IBT_INDEX_BITS;
}
